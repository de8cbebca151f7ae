/* input.c - what comes in: data from an argument, a file or stdin, and lines of a batch.
 *
 * Everything is bounded: data by what an append may hold, a line by what an event may hold. A line
 * that is longer is skipped to its end without being kept.
 */
#include "cli/cli.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum {
    INPUT_READ_BYTES = 64 * 1024,
    INPUT_DATA_BYTES_MAX = STORE_APPEND_BYTES_MAX,
};

static weir_status read_all(int fd, const char *shown, weir_buffer *memory, weir_error *err)
{
    for (;;) {
        if (!weir__buffer_reserve(memory, INPUT_READ_BYTES)) {
            return weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        const ssize_t n = read(fd, memory->ptr + memory->len, INPUT_READ_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return weir__fail(err, WEIR_EIO, "could not read %s: %s", shown, strerror(errno));
        }
        if (n == 0) {
            return WEIR_OK;
        }
        memory->len += (size_t)n;
        if (memory->len > INPUT_DATA_BYTES_MAX) {
            return weir__fail(err, WEIR_EINVAL, "%s has more than %d bytes", shown,
                              INPUT_DATA_BYTES_MAX);
        }
    }
}

weir_status weir__cli_data(const char *what, const char *argument, weir_buffer *memory,
                           weir_str *data, weir_error *err)
{
    char shown[256];
    int fd = STDIN_FILENO;
    weir_status status;

    if (strcmp(argument, "-") != 0 && argument[0] != '@') {
        *data = weir__str(argument);
        /* An empty argument is not a left-out one: it is no JSON, and says so. */
        return data->len > 0 ? WEIR_OK : weir__fail(err, WEIR_EINVAL, "%s is empty", what);
    }
    if (argument[0] == '@') {
        (void)snprintf(shown, sizeof shown, "\"%.200s\"", argument + 1);
        fd = open(argument + 1, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return weir__fail(err, WEIR_EIO, "could not open %s: %s", shown, strerror(errno));
        }
    } else {
        (void)snprintf(shown, sizeof shown, "standard input");
    }
    status = read_all(fd, shown, memory, err);
    if (status == WEIR_OK && memory->len == 0) {
        status = weir__fail(err, WEIR_EINVAL, "%s is empty", shown);
    }
    *data = (weir_str){ .ptr = memory->ptr, .len = memory->len };
    if (fd != STDIN_FILENO) {
        (void)close(fd);
    }
    return status;
}

/* Makes room, moving what is left to the front. */
static weir_status lines_room(cli_lines *l, weir_error *err)
{
    if (l->start > 0) {
        memmove(l->ptr, l->ptr + l->start, l->end - l->start);
        l->end -= l->start;
        l->start = 0;
    }
    if (l->capacity - l->end < INPUT_READ_BYTES) {
        const size_t capacity = l->capacity == 0 ? 4 * (size_t)INPUT_READ_BYTES : l->capacity * 2;
        char *ptr = weir__realloc(l->ptr, capacity);
        if (ptr == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        l->ptr = ptr;
        l->capacity = capacity;
    }
    return WEIR_OK;
}

static weir_status lines_read(cli_lines *l, weir_error *err)
{
    weir_status status = lines_room(l, err);

    while (status == WEIR_OK) {
        const ssize_t n = read(l->fd, l->ptr + l->end, l->capacity - l->end);
        if (n >= 0) {
            l->end += (size_t)n;
            l->eof = n == 0;
            break;
        }
        if (errno == EAGAIN) {
            struct pollfd fd = { .fd = l->fd, .events = POLLIN };
            (void)poll(&fd, 1, -1);
        } else if (errno != EINTR) {
            const char *quote = l->path == NULL ? "" : "\"";
            status =
                weir__fail(err, WEIR_EIO, "could not read %s%.200s%s: %s", quote,
                           l->path == NULL ? "standard input" : l->path, quote, strerror(errno));
        }
    }
    return status;
}

static char *lines_newline(const cli_lines *l, size_t from)
{
    return from >= l->end ? NULL : memchr(l->ptr + from, '\n', l->end - from);
}

/* Drops the rest of a line that is too long. */
static weir_status lines_skip(cli_lines *l, weir_error *err)
{
    weir_status status = WEIR_OK;

    for (;;) {
        const char *newline = lines_newline(l, l->start);
        if (newline != NULL) {
            l->bytes_done += newline + 1 - (l->ptr + l->start);
            l->start = (size_t)(newline + 1 - l->ptr);
            break;
        }
        l->bytes_done += (int64_t)(l->end - l->start);
        l->start = l->end = 0;
        if (l->eof) {
            break;
        }
        status = lines_read(l, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return weir__fail(err, WEIR_EINVAL, "the line has more than %zu bytes", l->line_max);
}

weir_status weir__cli_lines_next(cli_lines *l, weir_str *line, bool *more, weir_error *err)
{
    size_t looked = 0; /* how much of the line has no newline in it */

    for (;;) {
        const char *newline = lines_newline(l, l->start + looked);
        const size_t len =
            newline == NULL ? l->end - l->start : (size_t)(newline - (l->ptr + l->start));
        if (len > l->line_max) {
            l->number++;
            return lines_skip(l, err);
        }
        if (newline != NULL || (l->eof && len > 0)) {
            *line = (weir_str){ .ptr = l->ptr + l->start, .len = len };
            *more = true;
            l->number++;
            l->start += len + (newline != NULL ? 1 : 0);
            l->bytes_done += (int64_t)(len + (newline != NULL ? 1 : 0));
            return WEIR_OK;
        }
        if (l->eof) {
            *more = false;
            return WEIR_OK;
        }
        looked = len;
        const weir_status status = lines_read(l, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
}

bool weir__cli_lines_wait(cli_lines *l)
{
    weir_error err;

    /* Something that can be read may be half a line: it is read, and then there is nothing. */
    while (!l->eof && l->end - l->start <= l->line_max && lines_newline(l, l->start) == NULL) {
        struct pollfd fd = { .fd = l->fd, .events = POLLIN };
        if (poll(&fd, 1, 0) == 0) {
            return true;
        }
        if (lines_read(l, &err) != WEIR_OK) {
            return false; /* reading the next line says why */
        }
    }
    return false;
}

void weir__cli_lines_free(cli_lines *l)
{
    weir__free(l->ptr);
    l->ptr = NULL;
}
