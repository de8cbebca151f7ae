/* lint.c - weir lint: reads SQL and says what is wrong with the claims in it.
 *
 * Like a compiler it prints text wherever it prints, unless --json is given: what it says is read
 * by editors and by people looking at a log. Needs no store.
 */
#include "lint/lint.h"
#include "cli/cli.h"
#include "lint/sql_token.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

enum {
    LINT_FOUND = 1,      /* exit status: findings                */
    LINT_UNREADABLE = 2, /* exit status: a file could not be read */
    READ_BYTES = 64 * 1024,
};

static const cli_option options[] = {
    { "limit", "N", CLI_NUMBER, "every claim takes N rows: LIMIT N" },
    { "dialect", "NAME", CLI_WORD, "postgres or sqlite (default: guessed from the text)" },
    { "rules", NULL, CLI_FLAG, "print the rules, each with a wrong and a right example" },
};

/* Notes of unreadable files have the form of findings, so that editors find the place. */
static void lint_complain(const cli *c, const char *file, uint32_t line, const weir_error *err)
{
    weir_error shown;

    if (line > 0) {
        (void)weir__fail(&shown, WEIR_EINVAL, "%s:%" PRIu32 ": %s", file, line, err->message);
    } else {
        (void)weir__fail(&shown, (weir_status)err->code, "%s", err->message);
    }
    (void)weir__cli_fail(c, &shown);
}

static weir_status read_text(const char *file, weir_buffer *text, weir_error *err)
{
    const bool standard = strcmp(file, "-") == 0;
    const int fd = standard ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
    weir_status status = WEIR_OK;

    if (fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not open \"%.200s\": %s", file, strerror(errno));
    }
    weir__buffer_clear(text);
    while (status == WEIR_OK) {
        if (!weir__buffer_reserve(text, READ_BYTES)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
            break;
        }
        const ssize_t n = read(fd, text->ptr + text->len, READ_BYTES);
        if (n < 0 && errno != EINTR) {
            status = weir__fail(err, WEIR_EIO, "could not read \"%.200s\": %s",
                                standard ? "standard input" : file, strerror(errno));
        } else if (n == 0) {
            break;
        } else if (n > 0) {
            text->len += (size_t)n;
            if (text->len > SQL_BYTES_MAX) {
                status = weir__fail(err, WEIR_EINVAL, "\"%.200s\" has more than %d bytes", file,
                                    SQL_BYTES_MAX);
            }
        }
    }
    if (!standard) {
        (void)close(fd);
    }
    return status;
}

static void print_finding(cli *c, weir_str file, const lint_finding *f)
{
    const char *rule = weir__lint_rules[f->rule].name;

    if (!c->json) {
        (void)weir__cli_print(&c->out, "%.*s:%" PRIu32 ": %s: %.*s\n", (int)file.len, file.ptr,
                              f->line, rule, (int)f->message.len, f->message.ptr);
        return;
    }
    const report_field fields[] = {
        { .name = "file", .type = REPORT_STR, .text = file },
        { .name = "line", .type = REPORT_I64, .number = f->line },
        { .name = "rule", .type = REPORT_STR, .text = weir__str(rule) },
        { .name = "message", .type = REPORT_STR, .text = f->message },
    };
    (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

/* The exit status that this file alone would have. */
static int lint_file(cli *c, const char *file, const lint_options *o, weir_buffer *text)
{
    lint_report report = { 0 };
    weir_error err;
    weir_buffer shown = { 0 };
    int status = LINT_UNREADABLE;

    if (read_text(file, text, &err) != WEIR_OK) {
        lint_complain(c, file, 0, &err);
    } else if (weir__lint((weir_str){ text->ptr, text->len }, o, &report, &err) != WEIR_OK) {
        lint_complain(c, strcmp(file, "-") == 0 ? "standard input" : file, report.bad_line, &err);
    } else if (!weir__report_shown(&shown, weir__str(file))) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        lint_complain(c, file, 0, &err);
    } else {
        const size_t count = weir__lint_findings_count(&report);
        const weir_str name = c->json ? weir__str(file) : (weir_str){ shown.ptr, shown.len };
        for (size_t i = 0; i < count; i++) {
            print_finding(c, name, weir__lint_finding(&report, i));
        }
        status = count == 0 ? CLI_DONE : LINT_FOUND;
    }
    weir__buffer_free(&shown);
    weir__lint_report_free(&report);
    return status;
}

static void print_example(cli *c, const char *title, const char *text)
{
    (void)weir__cli_print(&c->out, "  %s\n", title);
    while (*text != '\0') {
        const size_t len = strcspn(text, "\n");
        (void)weir__cli_print(&c->out, "    %.*s\n", (int)len, text);
        text += len + (text[len] == '\n' ? 1 : 0);
    }
}

static int print_rules(cli *c)
{
    for (int i = 0; i < LINT_RULES_COUNT; i++) {
        const lint_rule_info *r = &weir__lint_rules[i];
        if (c->json) {
            const report_field fields[] = {
                { .name = "rule", .type = REPORT_STR, .text = weir__str(r->name) },
                { .name = "message", .type = REPORT_STR, .text = weir__str(r->message) },
                { .name = "wrong", .type = REPORT_STR, .text = weir__str(r->wrong) },
                { .name = "right", .type = REPORT_STR, .text = weir__str(r->right) },
            };
            (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
            continue;
        }
        (void)weir__cli_print(&c->out, "%s%s: %s\n", i == 0 ? "" : "\n", r->name, r->message);
        print_example(c, i == LINT_WRONG_LIMIT ? "wrong, with --limit 10:" : "wrong:", r->wrong);
        print_example(c, "right:", r->right);
    }
    return CLI_DONE;
}

static int lint_run(cli *c)
{
    lint_options o = { 0 };
    weir_buffer text = { 0 };
    int status = CLI_DONE;

    if (weir__cli_has(c, "rules")) {
        return c->words_count > 0 ? weir__cli_usage(c, "--rules takes no file") : print_rules(c);
    }
    if (c->words_count == 0) {
        return weir__cli_usage(c, "a file is missing; - is standard input");
    }
    if (weir__cli_has(c, "limit")) {
        o.limit = weir__cli_get(c, "limit")->number;
        if (o.limit == 0) {
            return weir__cli_usage(c, "--limit is 0, allowed 1 or more");
        }
    }
    if (weir__cli_has(c, "dialect")) {
        const weir_str name = weir__cli_text(c, "dialect");
        if (weir__str_equal(name, weir__str("postgres"))) {
            o.dialect = LINT_DIALECT_POSTGRES;
        } else if (weir__str_equal(name, weir__str("sqlite"))) {
            o.dialect = LINT_DIALECT_SQLITE;
        } else {
            return weir__cli_usage(c, "--dialect is postgres or sqlite, not \"%.*s\"",
                                   (int)name.len, name.ptr);
        }
    }
    for (size_t i = 0; i < c->words_count; i++) {
        const int one = lint_file(c, c->words[i], &o, &text);
        status = one > status ? one : status;
    }
    weir__buffer_free(&text);
    return status;
}

const cli_command weir__cli_lint_command = {
    .name = "lint",
    .block = CLI_BLOCK_TABLES,
    .usage = "FILE|-... [options]\n--rules [options]",
    .summary = "say what is wrong with claims in SQL",
    .about =
        "Reads SQL and checks every claim in it, the way a careful reviewer would: is there a row\n"
        "lock, SKIP LOCKED, an ORDER BY that decides, a LIMIT that is kept, a mark that makes the\n"
        "row no longer claimable, one transaction, and no work while the lock is held. Function\n"
        "bodies are read as well. Prints FILE:LINE: rule: what goes wrong, as text unless --json\n"
        "is given. A comment \"weir:allow RULE\" in or before a statement allows what it names.\n"
        "Needs no store. Exit status: 0 nothing found, 1 findings, 2 something cannot be read.",
    .example = "weir lint --rules\n"
               "weir lint claims.sql\n"
               "weir lint --limit 10 --json - <claims.sql",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = SIZE_MAX,
    .run = lint_run,
};
