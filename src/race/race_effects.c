/* race_effects.c - emails that were sent: one line of the file for each, never taken back.
 *
 *     {"row":1,"worker":"worker-2"}
 */
#include "race/race_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 96, CHUNK_BYTES = 4096 };

const char *weir__race_errno(int code, char *text, size_t bytes)
{
    if (strerror_r(code, text, bytes) != 0) {
        (void)snprintf(text, bytes, "error %d", code);
    }
    return text;
}

weir_status weir__race_effect_send(int fd, int64_t row, size_t worker, weir_error *err)
{
    char line[LINE_BYTES_MAX], why[RACE_WHY_BYTES];
    const int len = snprintf(line, sizeof line, "{\"row\":%" PRId64 ",\"worker\":\"worker-%zu\"}\n",
                             row, worker);
    ssize_t n;
    do {
        n = write(fd, line, (size_t)len); /* the file is opened for appending: in one piece */
    } while (n < 0 && errno == EINTR);
    if (n != len) {
        return weir__fail(err, WEIR_EIO, "could not record the side effect of row %" PRId64 ": %s",
                          row,
                          n < 0 ? weir__race_errno(errno, why, sizeof why) : "the file is full");
    }
    return WEIR_OK;
}

static weir_status read_rest(int fd, int64_t start, weir_buffer *out, weir_error *err)
{
    char chunk[CHUNK_BYTES], why[RACE_WHY_BYTES];
    for (;;) {
        const ssize_t n = pread(fd, chunk, sizeof chunk, (off_t)start + (off_t)out->len);
        if (n == 0) {
            return WEIR_OK;
        }
        if (n < 0 && errno != EINTR) {
            return weir__fail(err, WEIR_EIO, "could not read the side effects: %s",
                              weir__race_errno(errno, why, sizeof why));
        }
        if (n > 0 && !weir__buffer_add(out, chunk, (size_t)n)) {
            return weir__fail(err, WEIR_ENOMEM, "could not allocate the side effects");
        }
    }
}

/* The row of a line; 0: it is none. */
static int64_t row_of(weir_str line)
{
    static const char begin[] = "{\"row\":";
    int64_t row = 0;
    if (!weir__str_starts_with(line, weir__str(begin))) {
        return 0;
    }
    const char *digits = line.ptr + sizeof begin - 1;
    const char *comma = memchr(line.ptr, ',', line.len);
    if (comma == NULL ||
        !weir__str_to_i64((weir_str){ .ptr = digits, .len = (size_t)(comma - digits) }, &row)) {
        return 0;
    }
    return row;
}

weir_status weir__race_effects_count(int fd, int64_t start, int64_t *counts, size_t rows_count,
                                     weir_error *err)
{
    weir_buffer text = { 0 };
    weir_status status = read_rest(fd, start, &text, err);
    size_t at = 0;
    while (status == WEIR_OK && at < text.len) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        const size_t len = end == NULL ? text.len - at : (size_t)(end - text.ptr) - at;
        const int64_t row = row_of((weir_str){ .ptr = text.ptr + at, .len = len });
        if (row < 1 || (uint64_t)row > rows_count || end == NULL) {
            status = weir__fail(err, WEIR_EIO,
                                "someone else has written to the file of side effects: \"%.*s\"",
                                len > 60 ? 60 : (int)len, text.ptr + at);
        } else {
            counts[row - 1]++;
        }
        at += len + 1;
    }
    weir__buffer_free(&text);
    return status;
}
