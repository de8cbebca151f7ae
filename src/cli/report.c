/* report.c - what goes to stderr, and exit statuses.
 *
 * Text is `weir: COMMAND: message`; JSON is {"error":{"code":...,"message":...}} with the fields of
 * the weir_error that belong to the code. One line is one write, so that lines of several
 * processes on one stderr stay whole.
 */
#include "base/utf8.h"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int weir__cli_exit_status(int32_t status)
{
    switch ((weir_status)status) {
    case WEIR_OK:
        return CLI_DONE;
    case WEIR_ENOTFOUND:
        return CLI_NOTHING;
    case WEIR_ECONFLICT:
    case WEIR_ECLOSED:
    case WEIR_EKEYREUSED:
    case WEIR_ETAKEN:
    case WEIR_ELOST:
        return CLI_REFUSED;
    case WEIR_EHELD:
    case WEIR_EINFLIGHT:
        return CLI_HELD;
    case WEIR_ENOMEM:
    case WEIR_EINVAL:
    case WEIR_EBUSY:
    case WEIR_EIO:
    case WEIR_ECORRUPT:
    case WEIR_ENEWER:
    case WEIR_EUNAVAILABLE:
    case WEIR_EUNKNOWN:
    case WEIR_EREWOUND:
    case WEIR_EMISUSE:
    case WEIR_EINTERRUPTED:
        break;
    }
    return CLI_ERROR;
}

void weir__cli_stderr(weir_str text)
{
    weir_buffer shown = { 0 };
    weir_str line = text;

    if (weir__utf8_add_shown(&shown, text)) {
        line = (weir_str){ .ptr = shown.ptr, .len = shown.len };
    }
    while (line.len > 0) {
        const ssize_t n = write(STDERR_FILENO, line.ptr, line.len);
        if (n < 0 && errno != EINTR) {
            break; /* there is nowhere left to say so */
        }
        if (n > 0) {
            line.ptr += n;
            line.len -= (size_t)n;
        }
    }
    weir__buffer_free(&shown);
}

/* What the writer believed, in the words of --expect. */
static void json_expected(report_json *j, int64_t expected)
{
    if (expected == WEIR_VERSION_NONE) {
        weir__report_json_str(j, "expected", weir__str("none"));
    } else if (expected == WEIR_VERSION_EXISTS) {
        weir__report_json_str(j, "expected", weir__str("exists"));
    } else {
        weir__report_json_i64(j, "expected", expected);
    }
}

static void json_error(report_json *j, const weir_error *err, const char *message, int64_t line)
{
    weir__report_json_open(j, NULL, '{');
    weir__report_json_open(j, "error", '{');
    weir__report_json_str(j, "code", weir__str(weir_status_text(err->code)));
    weir__report_json_str(j, "message", weir__str(message));
    if (err->stream[0] != '\0') {
        weir__report_json_str(j, "stream", weir__str(err->stream));
    }
    if (err->code == WEIR_ECONFLICT) {
        json_expected(j, err->expected);
        if (err->actual == WEIR_VERSION_NONE) {
            weir__report_json_null(j, "actual");
        } else {
            weir__report_json_i64(j, "actual", err->actual);
        }
    }
    if (line > 0) {
        weir__report_json_i64(j, "line", line);
    }
    if (weir__error_advised(err)) {
        weir__report_json_str(j, "detail", weir__str(err->detail));
    }
    if (err->store_code[0] != '\0') {
        weir__report_json_str(j, "store_code", weir__str(err->store_code));
    }
    weir__report_json_close(j, '}');
    weir__report_json_close(j, '}');
}

/* Adds each line of a text after `weir: `; on a terminal a long one is broken between words. */
static bool text_add(weir_buffer *b, const char *text)
{
    const report_screen screen = { .columns = weir__cli_columns(STDERR_FILENO) };
    bool ok = true;

    while (ok && text != NULL) {
        const char *end = strchr(text, '\n');
        const weir_str line = { text, end == NULL ? strlen(text) : (size_t)(end - text) };
        if (screen.columns > 0) {
            ok = weir__report_wrap(b, &screen, line, "weir: ", "weir: ");
        } else {
            ok = weir__buffer_add_text(b, "weir: ") && weir__buffer_add(b, line.ptr, line.len) &&
                 weir__buffer_add(b, "\n", 1);
        }
        text = end == NULL ? NULL : end + 1;
    }
    return ok;
}

static bool text_error(const cli *c, weir_buffer *b, const weir_error *err, const char *message,
                       int64_t line)
{
    char number[40] = "";
    weir_buffer text = { 0 };
    bool ok = true;

    if (line > 0) {
        (void)snprintf(number, sizeof number, "line %" PRId64 ": ", line);
    }
    const char *const parts[] = { c->command == NULL ? "" : c->command->name,
                                  c->command == NULL ? "" : ": ", number, message };
    for (size_t i = 0; ok && i < sizeof parts / sizeof parts[0]; i++) {
        ok = weir__buffer_add_text(&text, parts[i]);
    }
    ok = ok && weir__buffer_add(&text, "", 1) && text_add(b, text.ptr) &&
         (!weir__error_advised(err) || text_add(b, err->detail));
    weir__buffer_free(&text);
    return ok;
}

/* A conflict's stream is told without quotes here: the line is read at a glance, and the name is
 * followed by a colon. */
static void unquote_stream(const weir_error *err, char *message)
{
    char quoted[sizeof err->stream + 2];
    const int n = snprintf(quoted, sizeof quoted, "\"%s\"", err->stream);
    char *at = n > 2 && (size_t)n < sizeof quoted ? strstr(message, quoted) : NULL;

    if (err->code == WEIR_ECONFLICT && at != NULL) {
        const size_t len = (size_t)n - 2;
        memmove(at, at + 1, len);
        memmove(at + len, at + len + 2, strlen(at + len + 2) + 1);
    }
}

static int status_report(const cli *c, const weir_error *err, int64_t line)
{
    char message[sizeof err->message];
    weir_buffer b = { 0 };
    bool ok;

    memcpy(message, err->message, sizeof message);
    unquote_stream(err, message);
    if (c->json_errors) {
        report_json j = { .buffer = &b };
        json_error(&j, err, message, line);
        ok = weir__buffer_add(&b, "\n", 1);
    } else {
        ok = text_error(c, &b, err, message, line);
    }
    weir__cli_stderr(ok ? (weir_str){ b.ptr, b.len } : weir__str("weir: out of memory\n"));
    weir__buffer_free(&b);
    return weir__cli_exit_status(err->code);
}

int weir__cli_fail(const cli *c, const weir_error *err)
{
    return status_report(c, err, 0);
}

int weir__cli_fail_line(const cli *c, const weir_error *err, int64_t line)
{
    return status_report(c, err, line);
}

int weir__cli_usage(const cli *c, const char *format, ...)
{
    weir_error err;
    char message[sizeof err.message];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    (void)weir__fail(&err, WEIR_EINVAL, "%s", message);
    if (c->command != NULL) {
        weir__error_detail(&err, "Try weir %s --help.", c->command->name);
    } else {
        weir__error_detail(&err, "Try weir help.");
    }
    (void)status_report(c, &err, 0);
    return CLI_USAGE;
}

void weir__cli_note(const cli *c, const char *format, ...)
{
    char message[1024];
    weir_buffer b = { 0 };
    bool ok;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (c->json_errors) {
        report_json j = { .buffer = &b };
        weir__report_json_open(&j, NULL, '{');
        weir__report_json_str(&j, "note", weir__str(message));
        weir__report_json_close(&j, '}');
        ok = weir__buffer_add(&b, "\n", 1);
    } else {
        ok = text_add(&b, message);
    }
    if (ok) {
        weir__cli_stderr((weir_str){ b.ptr, b.len });
    }
    weir__buffer_free(&b);
}
