/* output.c - what goes to stdout: rows, as lines of JSON or as a table.
 *
 * A reader that went away (EPIPE) is not an error: `closed` is set, rows are refused, and the
 * command ends with 0. While `stop_fd` is set no write ever waits for a reader that does not read
 * without also waiting for that descriptor, so that a signal ends the command at any moment.
 *
 * Without a descriptor (fd -1) everything stays in `buffer`, for whoever shows it elsewhere.
 */
#include "base/assert.h"
#include "base/utf8.h"
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { OUTPUT_BYTES_SOFT = 64 * 1024 };

static void fail_errno(cli_output *o, int error)
{
    if (error == EPIPE) {
        o->closed = true;
        return;
    }
    o->failed = true;
    (void)weir__fail(&o->error, WEIR_EIO, "could not write output: %s", strerror(error));
}

static void fail_memory(cli_output *o)
{
    o->failed = true;
    (void)weir__fail(&o->error, WEIR_ENOMEM, "out of memory");
}

/* Waits until stdout takes PIPE_BUF bytes or the command is to end; false: the latter. */
static bool wait_writable(cli_output *o)
{
    struct pollfd fds[2] = { { .fd = o->fd, .events = POLLOUT },
                             { .fd = o->stop_fd, .events = POLLIN } };

    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            fail_errno(o, errno);
            return false;
        }
        if (fds[1].revents != 0) {
            o->closed = true;
            return false;
        }
        if (fds[0].revents != 0) {
            return true; /* also when the reader is gone: the write says so */
        }
    }
}

static bool write_all(cli_output *o, const char *ptr, size_t len)
{
    while (len > 0) {
        size_t part = len;
        if (o->stop_fd >= 0) {
            if (!wait_writable(o)) {
                return false;
            }
            part = len < PIPE_BUF ? len : PIPE_BUF;
        }
        const ssize_t n = write(o->fd, ptr, part);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd fd = { .fd = o->fd, .events = POLLOUT };
            (void)poll(&fd, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            fail_errno(o, errno);
            return false;
        } else if (n > 0) {
            ptr += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static bool flush_buffer(cli_output *o)
{
    if (o->fd < 0) {
        return !o->failed;
    }
    const bool ok = o->closed || o->failed ? false : write_all(o, o->buffer.ptr, o->buffer.len);

    weir__buffer_clear(&o->buffer);
    return ok;
}

/* Whether a text has characters that are not printed as they are, so that it cannot be copied from
 * where it is shown: control characters, invisible ones, and what is not UTF-8. */
static bool is_typed(weir_str text)
{
    const char *const end = text.ptr + text.len;
    for (const char *at = text.ptr; at < end;) {
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(at, end, &code);
        if (bytes == 0 || code < ' ' || (code >= 0x7f && code < 0xa0) || weir__utf8_hidden(code)) {
            return false;
        }
        at += bytes;
    }
    return true;
}

/* $'...', which bash, zsh and ksh know: what is not plain is written as bytes. */
static bool add_bytes_word(weir_buffer *b, weir_str text)
{
    bool ok = weir__buffer_add_text(b, "$'");
    for (size_t i = 0; ok && i < text.len; i++) {
        char escaped[8];
        const unsigned char byte = (unsigned char)text.ptr[i];
        const bool plain = byte >= ' ' && byte < 0x7f && byte != '\'' && byte != '\\';
        (void)snprintf(escaped, sizeof escaped, "\\x%02x", byte);
        ok = plain ? weir__buffer_add(b, text.ptr + i, 1) : weir__buffer_add_text(b, escaped);
    }
    return ok && weir__buffer_add(b, "'", 1);
}

bool weir__cli_add_shell_word(weir_buffer *b, weir_str text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./:@%+,";
    size_t safe = 0;

    while (safe < text.len && memchr(plain, text.ptr[safe], sizeof plain - 1) != NULL) {
        safe++;
    }
    if (safe == text.len && text.len > 0) {
        return weir__buffer_add(b, text.ptr, text.len);
    }
    if (!is_typed(text)) {
        return add_bytes_word(b, text);
    }
    bool ok = weir__buffer_add(b, "'", 1);
    for (size_t i = 0; ok && i < text.len; i++) {
        ok = text.ptr[i] == '\'' ? weir__buffer_add_text(b, "'\\''")
                                 : weir__buffer_add(b, text.ptr + i, 1);
    }
    return ok && weir__buffer_add(b, "'", 1);
}

bool weir__cli_flush(cli_output *o)
{
    if (o->closed || o->failed) {
        return false;
    }
    if (!weir__report_table_flush(&o->table, &o->buffer)) {
        fail_memory(o);
        return false;
    }
    return flush_buffer(o);
}

static bool row_json(cli_output *o, const report_field *fields, size_t count)
{
    report_json j = { .buffer = &o->buffer };

    weir__report_json_open(&j, NULL, '{');
    for (size_t i = 0; i < count; i++) {
        weir__report_json_field(&j, &fields[i]);
    }
    weir__report_json_close(&j, '}');
    return !j.failed && weir__buffer_add(&o->buffer, "\n", 1);
}

bool weir__cli_row(cli_output *o, const report_field *fields, size_t count)
{
    bool full;

    o->answered = true;
    if (o->closed || o->failed) {
        return false;
    }
    if (o->json) {
        if (!row_json(o, fields, count)) {
            fail_memory(o);
            return false;
        }
        full = o->buffer.len >= OUTPUT_BYTES_SOFT;
    } else {
        if (!weir__report_table_row(&o->table, fields, count)) {
            fail_memory(o);
            return false;
        }
        full = weir__report_table_full(&o->table);
    }
    return full || o->line_by_line ? weir__cli_flush(o) : true;
}

bool weir__cli_event(cli_output *o, const weir_event *event)
{
    const report_field fields[] = {
        { .name = "id", .type = REPORT_I64, .number = event->id },
        { .name = "stream", .type = REPORT_STR, .text = event->stream },
        { .name = "version", .type = REPORT_I64, .number = event->version, .rank = 3 },
        { .name = "name", .type = REPORT_STR, .text = event->name },
        { .name = "data", .type = REPORT_RAW, .text = event->data, .flags = REPORT_JSON_ONLY },
        { .name = "meta", .type = REPORT_RAW, .text = event->meta, .flags = REPORT_JSON_ONLY },
        { .name = "created", .type = REPORT_TIME, .number = event->created_us, .rank = 2 },
        /* In a table the longest column comes last. */
        { .name = "data",
          .type = REPORT_RAW,
          .text = event->data,
          .flags = REPORT_TEXT_ONLY,
          .rank = 1 },
    };

    return weir__cli_row(o, fields, sizeof fields / sizeof fields[0]);
}

bool weir__cli_put_exact(cli_output *o, weir_str text)
{
    o->answered = true;
    if (o->closed || o->failed) {
        return false;
    }
    if (!weir__buffer_add(&o->buffer, text.ptr, text.len)) {
        fail_memory(o);
        return false;
    }
    return o->buffer.len >= OUTPUT_BYTES_SOFT ? flush_buffer(o) : true;
}

bool weir__cli_put(cli_output *o, weir_str text)
{
    o->answered = true;
    if (o->closed || o->failed) {
        return false;
    }
    if (!weir__utf8_add_shown(&o->buffer, text)) {
        fail_memory(o);
        return false;
    }
    return o->buffer.len >= OUTPUT_BYTES_SOFT ? flush_buffer(o) : true;
}

bool weir__cli_print(cli_output *o, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    WEIR_ASSERT(n >= 0 && (size_t)n < sizeof text);
    return weir__cli_put(o, (weir_str){ .ptr = text, .len = (size_t)n });
}

bool weir__cli_wrap(cli_output *o, const char *first, const char *prefix, weir_str text)
{
    weir_buffer wrapped = { 0 };
    bool ok = weir__report_wrap(&wrapped, &o->screen, text, first, prefix);

    if (ok) {
        ok = weir__cli_put(o, (weir_str){ wrapped.ptr, wrapped.len });
    } else {
        fail_memory(o);
    }
    weir__buffer_free(&wrapped);
    return ok;
}

int weir__cli_finish(cli *c, int status)
{
    if (status == CLI_DONE && !c->out.answered && !c->out.closed && !c->out.json &&
        c->command != NULL && c->command->empty != NULL) {
        (void)weir__cli_wrap(
            &c->out, "", "",
            weir__str(c->given_count > 0 ? "Nothing matches." : c->command->empty));
    }
    (void)weir__cli_flush(&c->out);
    if (c->out.failed) {
        const int failed = weir__cli_fail(c, &c->out.error);
        return status == CLI_DONE ? failed : status;
    }
    return status;
}

void weir__cli_output_free(cli_output *o)
{
    weir__buffer_free(&o->buffer);
    weir__report_table_free(&o->table);
}
