/* ask.c - before something is destroyed or rewound: who may be asked, and what they say.
 *
 * Nothing is asked where nobody can answer, and no answer is no: then --yes is needed. The question
 * goes to stderr, so that stdout has the result only.
 */
#include "cli/operate.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ANSWER_BYTES_MAX = 64,
    PASSWD_BYTES = 4096,
    HOST_BYTES_MAX = 256,
};

int weir__cli_may_ask(const cli *c)
{
    if (weir__cli_has(c, "yes") || weir__cli_has(c, "dry-run") ||
        (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0)) {
        return CLI_DONE;
    }
    return weir__cli_usage(c, "add --yes: there is no terminal to ask on. --dry-run tells what it "
                              "would change");
}

/* A line of stdin, without its end. What does not fit is read and is no part of the answer. */
static void read_answer(char answer[ANSWER_BYTES_MAX])
{
    size_t len = 0;
    char byte = 0;

    for (;;) {
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            weir__cli_stderr(weir__str("\n")); /* the terminal has shown none */
        }
        if (n <= 0 || byte == '\n') {
            break;
        }
        if (len + 1 < ANSWER_BYTES_MAX) {
            answer[len++] = byte;
        }
    }
    answer[len] = '\0';
}

bool weir__cli_ask(const cli *c, const char *question)
{
    char text[2048], answer[ANSWER_BYTES_MAX];

    if (weir__cli_has(c, "yes")) {
        return true;
    }
    (void)snprintf(text, sizeof text, "weir: %s: %s? [y/N] ", c->command->name, question);
    weir__cli_stderr(weir__str(text));
    read_answer(answer);
    return strcmp(answer, "y") == 0 || strcmp(answer, "Y") == 0 || strcmp(answer, "yes") == 0;
}

int weir__cli_declined(const cli *c)
{
    weir__cli_note(c, "nothing was changed");
    return CLI_ERROR;
}

void weir__cli_changed(cli *c, int64_t count, const cli_deed *deed)
{
    const bool dry_run = weir__cli_has(c, "dry-run");
    const report_field field = { .name = dry_run ? "would_change" : "changed",
                                 .type = REPORT_I64,
                                 .number = count };
    char text[1024], number[REPORT_WORD_BYTES];
    const char *verb = dry_run ? deed->would : deed->did;

    if (c->out.json) {
        (void)weir__cli_row(&c->out, &field, 1);
        return;
    }
    weir__report_count(count, number);
    if (count == 0) {
        (void)snprintf(text, sizeof text, "nothing %s", dry_run ? "would change" : "changed");
    } else if (deed->name.len > 0) {
        (void)snprintf(text, sizeof text, "%s%s %.*s", dry_run ? "would " : "", verb,
                       (int)deed->name.len, deed->name.ptr);
    } else {
        (void)snprintf(text, sizeof text, "%s%s %s %s%s", dry_run ? "would " : "", verb, number,
                       deed->object, count == 1 ? "" : "s");
    }
    (void)weir__cli_wrap(&c->out, "", "", weir__str(text));
}

const char *weir__cli_operator(char *buffer, size_t bytes)
{
    char space[PASSWD_BYTES], host[HOST_BYTES_MAX] = "";
    struct passwd entry, *found = NULL;

    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    if (getpwuid_r(geteuid(), &entry, space, sizeof space, &found) == 0 && found != NULL) {
        (void)snprintf(buffer, bytes, "%s@%s", found->pw_name, host);
    } else {
        (void)snprintf(buffer, bytes, "%ld@%s", (long)geteuid(), host);
    }
    return buffer;
}
