/* history.c - writing a client's history, and reading back its own end; see history.h. */
#include "history.h"

#include "support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 1024 };

static int64_t expect_parse(const char *word)
{
    if (strcmp(word, "any") == 0) {
        return HISTORY_ANY;
    }
    if (strcmp(word, "none") == 0) {
        return HISTORY_NONE;
    }
    if (strcmp(word, "exists") == 0) {
        return HISTORY_EXISTS;
    }
    return strtoll(word, NULL, 10);
}

static void expect_print(char *out, size_t bytes, int64_t expect)
{
    if (expect == HISTORY_ANY) {
        (void)snprintf(out, bytes, "any");
    } else if (expect == HISTORY_NONE) {
        (void)snprintf(out, bytes, "none");
    } else if (expect == HISTORY_EXISTS) {
        (void)snprintf(out, bytes, "exists");
    } else {
        (void)snprintf(out, bytes, "%" PRId64, expect);
    }
}

/* The intent of a complete line; the line is taken apart. */
static void intent_parse(char *line, history_intent *out)
{
    char *rest = line + 2; /* "i " */
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->op, sizeof(out->op), "%s", strsep(&rest, " "));
    out->keyed = strcmp(strsep(&rest, " "), "1") == 0;
    out->pad = atoi(strsep(&rest, " "));
    char *parts = strsep(&rest, " ");
    must(parts != NULL && rest != NULL && strcmp(rest, ".") == 0, "an intent that cannot be read");
    while (parts != NULL) {
        char *part = strsep(&parts, ",");
        must(out->parts_count < HISTORY_STREAMS_MAX, "an intent with too many streams");
        history_part *p = &out->parts[out->parts_count++];
        (void)snprintf(p->stream, sizeof(p->stream), "%s", strsep(&part, ":"));
        p->expect = expect_parse(strsep(&part, ":"));
        must(part != NULL, "an intent that cannot be read");
        p->count = atoi(part);
    }
}

history history_open(const char *path, history_intent *open_intent, bool *has_open)
{
    char line[LINE_BYTES_MAX];
    char last_op[HISTORY_NAME_BYTES] = "";
    bool torn = false;
    history h = { .fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) };
    FILE *in = fopen(path, "re");
    must(h.fd >= 0 && in != NULL, "cannot open a history");
    *has_open = false;
    while (fgets(line, sizeof(line), in) != NULL) {
        const size_t len = strlen(line);
        torn = line[len - 1] != '\n';
        if (torn || len < 4 || strcmp(line + len - 3, " .\n") != 0) {
            continue;
        }
        line[len - 1] = '\0';
        if (line[0] == 'i') {
            intent_parse(line, open_intent);
            *has_open = true;
            if (strcmp(open_intent->op, last_op) != 0) {
                h.intents++;
                (void)snprintf(last_op, sizeof(last_op), "%s", open_intent->op);
            }
        } else if (line[0] == 'a' || line[0] == 'r') { /* not 'u': that one is still open */
            *has_open = false;
        }
    }
    (void)fclose(in);
    if (torn) {
        must(write(h.fd, "\n", 1) == 1, "cannot write a history");
    }
    return h;
}

void history_line(history *h, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof(line) - 4, format, args);
    va_end(args);
    must(len > 0, "cannot write a history");
    if (len > (int)sizeof(line) - 5) {
        len = (int)sizeof(line) - 5;
    }
    for (int i = 0; i < len; i++) {
        if (line[i] == '\n') {
            line[i] = ' ';
        }
    }
    memcpy(line + len, " .\n", 3);
    must(write(h->fd, line, (size_t)len + 3) == len + 3, "cannot write a history");
}

void history_intend(history *h, const history_intent *intent, bool again)
{
    char parts[LINE_BYTES_MAX / 2] = "";
    size_t used = 0;
    for (size_t i = 0; i < intent->parts_count; i++) {
        char expect[24];
        expect_print(expect, sizeof(expect), intent->parts[i].expect);
        const int n = snprintf(parts + used, sizeof(parts) - used, "%s%s:%s:%d", i > 0 ? "," : "",
                               intent->parts[i].stream, expect, intent->parts[i].count);
        must(n > 0 && (size_t)n < sizeof(parts) - used, "an intent is too long");
        used += (size_t)n;
    }
    history_line(h, "i %s %d %d %s", intent->op, intent->keyed ? 1 : 0, intent->pad, parts);
    if (!again) {
        h->intents++;
    }
}

void history_close(history *h)
{
    (void)close(h->fd);
}
