/* words.c - how a number, a size, a time and a state read. */
#define _GNU_SOURCE /* memmem, wcwidth */
#include "report/report.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <wchar.h>

enum { MS_US = 1000, SECOND_US = 1000 * MS_US };

static const int64_t MINUTE_US = INT64_C(60) * SECOND_US;
static const int64_t HOUR_US = INT64_C(3600) * SECOND_US;
static const int64_t DAY_US = INT64_C(86400) * SECOND_US;

void weir__report_count(int64_t count, char out[REPORT_WORD_BYTES])
{
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRId64, count);
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        const int left = n - i; /* digits from here on */
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') {
            out[at++] = ',';
        }
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

void weir__report_bytes(int64_t bytes, char out[REPORT_WORD_BYTES])
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double size = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " B", bytes);
        return;
    }
    /* What would be shown as 1024.0 is 1.0 of the next unit. */
    while (size >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) {
        size /= 1024;
        unit++;
    }
    (void)snprintf(out, REPORT_WORD_BYTES, "%.1f %s", size, units[unit]);
}

/* "2 h 5 min", or "2 h" when there is no rest. */
static void write_two(char *out, int64_t big, const char *big_unit, int64_t small,
                      const char *small_unit)
{
    if (small == 0) {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " %s", big, big_unit);
    } else {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " %s %" PRId64 " %s", big, big_unit,
                       small, small_unit);
    }
}

void weir__report_span(int64_t span_us, char out[REPORT_WORD_BYTES])
{
    const int64_t us = span_us < 0 ? 0 : span_us;

    if (us >= 2 * DAY_US) {
        char days[REPORT_WORD_BYTES];
        weir__report_count(us / DAY_US, days);
        (void)snprintf(out, REPORT_WORD_BYTES, "%.40s days", days);
    } else if (us >= 10 * HOUR_US) {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " h", us / HOUR_US);
    } else if (us >= HOUR_US) {
        write_two(out, us / HOUR_US, "h", us % HOUR_US / MINUTE_US, "min");
    } else if (us >= 10 * MINUTE_US) {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " min", us / MINUTE_US);
    } else if (us >= MINUTE_US) {
        write_two(out, us / MINUTE_US, "min", us % MINUTE_US / SECOND_US, "s");
    } else if (us >= SECOND_US || us == 0) {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " s", us / SECOND_US);
    } else {
        (void)snprintf(out, REPORT_WORD_BYTES, "%" PRId64 " ms", us / MS_US);
    }
}

void weir__report_time(const report_screen *screen, int64_t time_us, char out[REPORT_WORD_BYTES])
{
    if (!screen->relative) {
        weir__time_to_text(time_us, out);
        return;
    }
    /* The clocks of two machines are never quite the same: less than a second is now. */
    int64_t age_us = 0;
    if (__builtin_sub_overflow(screen->now_us, time_us, &age_us)) {
        age_us = INT64_MAX;
    }
    char span[REPORT_WORD_BYTES];
    weir__report_span(age_us < 0 ? -age_us : age_us, span);
    if (age_us < SECOND_US && age_us > -SECOND_US) {
        (void)snprintf(out, REPORT_WORD_BYTES, "now");
    } else if (age_us < 0) {
        (void)snprintf(out, REPORT_WORD_BYTES, "in %.40s", span);
    } else {
        (void)snprintf(out, REPORT_WORD_BYTES, "%.40s ago", span);
    }
}

bool weir__report_shown(weir_buffer *out, weir_str text)
{
    const size_t at = out->len;

    if (text.len == 0) {
        return true;
    }
    if (!weir__utf8_add_shown(out, text)) {
        return false;
    }
    for (size_t i = at; i < out->len; i++) {
        const unsigned char byte = (unsigned char)out->ptr[i];
        if (byte < 0x20 || byte == 0x7F) {
            out->ptr[i] = '?';
        } else if (byte == 0xC2 && i + 1 < out->len && (unsigned char)out->ptr[i + 1] < 0xA0) {
            out->ptr[i] = '?';
            out->ptr[++i] = '?';
        }
    }
    return true;
}

bool weir__report_wrap(weir_buffer *out, const report_screen *screen, weir_str text,
                       const char *first, const char *prefix)
{
    weir_buffer shown = { 0 };
    bool ok = weir__report_shown(&shown, text) && weir__buffer_add_text(out, first);
    const size_t indent = weir__report_width(prefix, strlen(prefix));
    size_t used = weir__report_width(first, strlen(first));

    for (size_t at = 0; ok && at < shown.len;) {
        const char *word = shown.ptr + at;
        const char *end = memchr(word, ' ', shown.len - at);
        const size_t len = end == NULL ? shown.len - at : (size_t)(end - word);
        const size_t width = weir__report_width(word, len);
        if (at > 0 && screen->columns > 0 && used + 1 + width > screen->columns && used > indent) {
            ok = weir__buffer_add(out, "\n", 1) && weir__buffer_add_text(out, prefix);
            used = indent;
        } else if (at > 0) {
            ok = weir__buffer_add(out, " ", 1);
            used++;
        }
        ok = ok && (len == 0 || weir__buffer_add(out, word, len));
        used += width;
        at += len + 1;
    }
    weir__buffer_free(&shown);
    return ok && weir__buffer_add(out, "\n", 1);
}

/* The line that begins at `at`, without spaces around it. */
static weir_str line_at(weir_str text, size_t at)
{
    const char *end = memchr(text.ptr + at, '\n', text.len - at);
    weir_str line = { .ptr = text.ptr + at,
                      .len = end == NULL ? text.len - at : (size_t)(end - text.ptr) - at };

    while (line.len > 0 && (line.ptr[0] == ' ' || line.ptr[0] == '\t')) {
        line.ptr++;
        line.len--;
    }
    while (line.len > 0 && (line.ptr[line.len - 1] == ' ' || line.ptr[line.len - 1] == '\r')) {
        line.len--;
    }
    return line;
}

weir_str weir__report_gist(weir_str error)
{
    static const char mark[] = "\nstderr"; /* what follows is the program's own: see engine/child */
    const char *block = error.len == 0 ? NULL : memmem(error.ptr, error.len, mark, sizeof mark - 1);
    weir_str gist = error.len == 0 ? error : line_at(error, 0);

    if (block != NULL) {
        size_t at = (size_t)(block - error.ptr) + 1;
        for (const char *newline;
             (newline = memchr(error.ptr + at, '\n', error.len - at)) != NULL;) {
            at = (size_t)(newline - error.ptr) + 1;
            const weir_str line = line_at(error, at);
            gist = line.len > 0 ? line : gist;
        }
    }
    return gist;
}

size_t weir__report_width(const char *ptr, size_t len)
{
    size_t columns = 0;

    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(ptr + i, ptr + len, &code);
        /* What the C library does not know takes one. */
        const int width = bytes > 1 ? wcwidth((wchar_t)code) : 1;
        columns += width < 0 ? 1 : (size_t)width;
        i += bytes == 0 ? 1 : bytes;
    }
    return columns;
}

report_mood weir__report_mood(weir_str state)
{
    static const struct {
        const char *word;
        report_mood mood;
    } moods[] = {
        { "blocked", REPORT_MOOD_BAD },   { "gone", REPORT_MOOD_BAD },
        { "failed", REPORT_MOOD_BAD },    { "problem", REPORT_MOOD_BAD },
        { "retrying", REPORT_MOOD_WARN }, { "paused", REPORT_MOOD_WARN },
        { "deferred", REPORT_MOOD_WARN }, { "warning", REPORT_MOOD_WARN },
        { "late", REPORT_MOOD_WARN },     { "leased", REPORT_MOOD_GOOD },
        { "running", REPORT_MOOD_GOOD },  { "ok", REPORT_MOOD_GOOD },
        { "idle", REPORT_MOOD_QUIET },    { "retired", REPORT_MOOD_QUIET },
        { "note", REPORT_MOOD_QUIET },    { "died", REPORT_MOOD_BAD },
    };

    for (size_t i = 0; i < sizeof moods / sizeof moods[0]; i++) {
        if (weir__str_equal(state, weir__str(moods[i].word))) {
            return moods[i].mood;
        }
    }
    return REPORT_MOOD_PLAIN;
}

const char *weir__report_colour_on(const report_screen *screen, report_mood mood)
{
    if (!screen->colour) {
        return "";
    }
    switch (mood) {
    case REPORT_MOOD_BAD:
        return "\x1b[1;31m";
    case REPORT_MOOD_WARN:
        return "\x1b[33m";
    case REPORT_MOOD_GOOD:
        return "\x1b[32m";
    case REPORT_MOOD_QUIET:
        return "\x1b[2m";
    case REPORT_MOOD_PLAIN:
        break;
    }
    return "";
}

const char *weir__report_colour_off(const report_screen *screen, report_mood mood)
{
    return screen->colour && mood != REPORT_MOOD_PLAIN ? "\x1b[0m" : "";
}
