/* error.c - filling a weir_error.
 *
 * INVARIANTS
 *   (1) Every text in a weir_error is NUL-terminated, valid UTF-8 and free of control characters,
 *       whatever the arguments were: it can be printed on a terminal and decoded by any language.
 *       Invisible characters are written as \u202e, except in the name of a stream.
 *   (2) What does not fit is cut between characters, never inside one.
 *   (3) A failure always says what to do: `detail` is never empty, and where the place that failed
 *       has nothing to say it is the advice of the code, also when a caller changes the code.
 */
#include "base/error.h"

#include "base/assert.h"
#include "base/str.h"
#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifdef __clang_analyzer__
#undef weir__fail
#undef weir__wrap
#endif

static_assert(sizeof(weir_error) == 2048, "the size of weir_error is part of the ABI");

enum { ERROR_TEXT_BYTES = 1536 }; /* holds any one text of weir_error, and two of them joined */

/* The length of text[0..len) without a sequence that lost its tail when the text was cut. */
static size_t without_cut_sequence(const char *text, size_t len)
{
    size_t start = len;
    while (start > 0 && len - start < WEIR_UTF8_BYTES_MAX - 1) {
        start--;
        const uint8_t byte = (uint8_t)text[start];
        if (byte >= 0xC0) {
            const size_t bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
            return len - start < bytes ? start : len;
        }
        if (byte < 0x80) {
            break;
        }
    }
    return len;
}

/* Copies text[0..len) to out[0..size), cleaned and cut as the invariants say. A name is not
 * escaped, because callers compare it. */
static void set_text(char *out, size_t size, const char *text, size_t len, bool name)
{
    const char *at = text;
    const char *end = text + len;
    size_t used = 0;

    while (at < end) {
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(at, end, &code);
        const bool shown = bytes > 0 && code >= 0x20 && (code < 0x7F || code > 0x9F);
        char escape[WEIR_UTF8_ESCAPE_BYTES_MAX];
        const bool hidden = shown && !name && weir__utf8_hidden(code);
        const size_t needed = hidden ? weir__utf8_escape(code, escape) : shown ? bytes : 1;
        if (needed > size - 1 - used) {
            break;
        }
        memcpy(out + used, hidden ? escape : shown ? at : "?", needed);
        used += needed;
        at += bytes == 0 ? 1 : bytes;
    }
    out[used] = '\0';
}

static size_t format_text(char *text, size_t size, const char *format, va_list args)
    WEIR_PRINTF(3, 0);

/* Formats into text[0..size); the length, without a sequence that was cut. */
static size_t format_text(char *text, size_t size, const char *format, va_list args)
{
    const int rc = vsnprintf(text, size, format, args);
    if (rc < 0) {
        return 0;
    }
    if ((size_t)rc < size) {
        return (size_t)rc;
    }
    return without_cut_sequence(text, size - 1);
}

/* Speaks of what every program knows: the call, its arguments, the store. The command line has its
 * own words and does not show these. */
const char *weir__status_advice(weir_status status)
{
    switch (status) {
    case WEIR_OK:
        return "";
    case WEIR_ENOMEM:
        return "Nothing was written. Free some memory, or ask for less at a time, and call again.";
    case WEIR_EINVAL:
        return "Nothing was tried. Correct the argument that the message names; weir.h says what "
               "is allowed.";
    case WEIR_ECONFLICT:
        return "Nothing was written. Read the stream again, decide again, and append with the "
               "version that is there now.";
    case WEIR_EBUSY:
        return "Nothing was written. Try again in a moment; with busy= in the store URL the "
               "library itself waits longer.";
    case WEIR_EIO:
        return "The store is as it was. Look at what the database or the system said, repair it, "
               "and call again.";
    case WEIR_ENOTFOUND:
        return "Check the name. If it should be there, check that this is the right store.";
    case WEIR_ECLOSED:
        return "Nothing was written. A closed stream takes no more events: append to another one.";
    case WEIR_EKEYREUSED:
        return "Nothing was written. Use a new idempotency key for new content; repeat an append "
               "with exactly what it had the first time.";
    case WEIR_EINFLIGHT:
        return "Somebody else is at it. Call again when that has ended, and get its result.";
    case WEIR_ETAKEN:
        return "Nothing was written. Choose another key, or let the stream that has it give it up.";
    case WEIR_ELOST:
        return "Nothing was written. Somebody else may be at work on it by now: stop, and begin "
               "again with a new lease.";
    case WEIR_EHELD:
        return "Nothing was changed. Wait until it is free, then call again.";
    case WEIR_ECORRUPT:
        return "Do not write to it. Run weir doctor on the store, and restore a backup if it "
               "confirms the damage.";
    case WEIR_ENEWER:
        return "Update the library that this program uses to the version that wrote the store.";
    case WEIR_EUNAVAILABLE:
        return "Nothing was sent. Check that the database runs and can be reached, then call "
               "again.";
    case WEIR_EUNKNOWN:
        return "It may have happened or not. Look whether it did, or repeat it with the same "
               "idempotency key.";
    case WEIR_EREWOUND:
        return "The log was restored or replaced. Read it again from a position that is in it, and "
               "check what was derived from the lost part.";
    case WEIR_EMISUSE:
        return "Nothing was done. The program has to change: weir.h says when this call is "
               "allowed.";
    case WEIR_EINTERRUPTED:
        return "Nothing was lost. Call again to go on waiting, or end.";
    }
    return "The code is not known to this version of the library.";
}

bool weir__error_advised(const weir_error *err)
{
    return err->detail[0] != '\0' &&
           strcmp(err->detail, weir__status_advice((weir_status)err->code)) != 0;
}

static void detail_advise(weir_error *err)
{
    const char *advice = weir__status_advice((weir_status)err->code);
    set_text(err->detail, sizeof err->detail, advice, strlen(advice), false);
}

weir_status weir__fail(weir_error *err, weir_status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES]; /* arguments may point into *err, which is about to be reset */
    va_list args;

    if (err == NULL) {
        return status;
    }
    va_start(args, format);
    const size_t len = format_text(text, sizeof text, format, args);
    va_end(args);
    *err = (weir_error){ .size = sizeof *err, .code = status };
    set_text(err->message, sizeof err->message, text, len, false);
    detail_advise(err);
    return status;
}

weir_status weir__wrap(weir_error *err, weir_status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;

    if (err == NULL) {
        return status;
    }
    va_start(args, format);
    size_t len = format_text(text, sizeof text - sizeof err->message - 2, format, args);
    va_end(args);
    text[len++] = ':';
    text[len++] = ' ';
    const size_t old_len = strnlen(err->message, sizeof err->message);
    memcpy(text + len, err->message, old_len);
    set_text(err->message, sizeof err->message, text, len + old_len, false);
    const bool advised = weir__error_advised(err);
    err->code = status; /* what is returned is what the error says, also when a caller changes it */
    if (!advised) {
        detail_advise(err);
    }
    return status;
}

void weir__error_stream(weir_error *err, weir_str stream)
{
    if (err != NULL) {
        set_text(err->stream, sizeof err->stream, stream.len == 0 ? "" : stream.ptr, stream.len,
                 true);
    }
}

void weir__error_detail(weir_error *err, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;

    if (err == NULL) {
        return;
    }
    va_start(args, format);
    const size_t len = format_text(text, sizeof text, format, args);
    va_end(args);
    set_text(err->detail, sizeof err->detail, text, len, false);
    if (err->detail[0] == '\0') {
        detail_advise(err);
    }
}

void weir__error_store_code(weir_error *err, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;

    if (err == NULL) {
        return;
    }
    va_start(args, format);
    const size_t len = format_text(text, sizeof text, format, args);
    va_end(args);
    set_text(err->store_code, sizeof err->store_code, text, len, false);
}

weir_status weir__fail_conflict(weir_error *err, weir_str stream, int64_t expected, int64_t actual)
{
    char wanted[48];
    char found[48];
    int rc;

    if (err == NULL) {
        return WEIR_ECONFLICT;
    }
    if (expected == WEIR_VERSION_NONE) {
        rc = snprintf(wanted, sizeof wanted, "expected no such stream");
    } else if (expected == WEIR_VERSION_EXISTS) {
        rc = snprintf(wanted, sizeof wanted, "expected it to exist");
    } else {
        rc = snprintf(wanted, sizeof wanted, "expected version %" PRId64, expected);
    }
    WEIR_ASSERT(rc > 0 && (size_t)rc < sizeof wanted);
    if (actual == WEIR_VERSION_NONE) {
        rc = snprintf(found, sizeof found, "there is no such stream");
    } else {
        rc = snprintf(found, sizeof found, "it is at %" PRId64, actual);
    }
    WEIR_ASSERT(rc > 0 && (size_t)rc < sizeof found);

    /* The versions matter more than the end of a long name, so the name is what gives way. */
    const size_t name_bytes_max = sizeof err->message - 1 - strlen("conflict on \"...\": , ") -
                                  strlen(wanted) - strlen(found);
    const bool fits = stream.len <= name_bytes_max;
    const size_t name_len = fits ? stream.len : without_cut_sequence(stream.ptr, name_bytes_max);
    (void)weir__fail(err, WEIR_ECONFLICT, "conflict on \"%.*s%s\": %s, %s", (int)name_len,
                     stream.len == 0 ? "" : stream.ptr, fits ? "" : "...", wanted, found);
    weir__error_stream(err, stream);
    err->expected = expected;
    err->actual = actual;
    return WEIR_ECONFLICT;
}
