/* backup.c - weir backup and weir restore: a store into one file, and back.
 *
 * A store in a file is copied and put back here. PostgreSQL has its own tools for that; the
 * commands print the line that does it for exactly this store.
 */
#include "base/clock.h"
#include "cli/cli.h"
#include "store/secrets.h"
#include "store/store_backup.h"
#include "store/url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_EVERY_US = 200000 };

static const cli_option backup_options[] = {
    { "force", NULL, CLI_FLAG, "replace FILE if it exists" },
};

/* ---- progress ------------------------------------------------------------------------------ */

typedef struct shown_progress {
    bool wanted, shown;
    int64_t next_us;
} shown_progress;

static int64_t mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

static void show_progress(void *ctx, int64_t done, int64_t total)
{
    shown_progress *p = ctx;
    char line[64];
    if (!p->wanted || total == 0 || mono_us() < p->next_us) {
        return;
    }
    p->next_us = mono_us() + SHOWN_EVERY_US;
    const int n = snprintf(line, sizeof line, "\r\033[K%" PRId64 "%%", done * 100 / total);
    weir__cli_stderr((weir_str){ .ptr = line, .len = (size_t)n });
    p->shown = true;
}

static void end_progress(const shown_progress *p)
{
    if (p->shown) {
        weir__cli_stderr(weir__str("\r\033[K"));
    }
}

static shown_progress begin_progress(const cli *c)
{
    return (shown_progress){ .wanted = !c->json && isatty(STDERR_FILENO) != 0 };
}

/* ---- PostgreSQL ---------------------------------------------------------------------------- */

/* The schema as a pattern of pg_dump that fits it alone: a name in double quotes is no pattern. */
static bool add_schema(weir_buffer *b, const store_options *o)
{
    weir_buffer name = { 0 };
    const weir_str schema = o->schema.len == 0 ? weir__str("weir") : o->schema;
    bool ok = weir__buffer_add(&name, "\"", 1);
    for (size_t i = 0; ok && i < schema.len; i++) {
        ok = weir__buffer_add(&name, schema.ptr + i, 1) &&
             (schema.ptr[i] != '"' || weir__buffer_add(&name, "\"", 1));
    }
    ok = ok && weir__buffer_add(&name, "\"", 1) &&
         weir__cli_add_shell_word(b, (weir_str){ name.ptr, name.len });
    weir__buffer_free(&name);
    return ok;
}

static int print_line(cli *c, const store_options *o, const char *file, bool restore)
{
    weir_error err;
    weir_buffer b = { 0 }, url = { 0 };
    if (o->schema.len > 0 && weir__postgres_schema_check(o->schema, &err) != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    bool ok = weir__url_without_passwords(&url, o->path);
    if (restore) {
        ok = ok &&
             weir__buffer_add_text(&b, "pg_restore --single-transaction --exit-on-error "
                                       "--clean --if-exists --dbname=") &&
             weir__cli_add_shell_word(&b, (weir_str){ url.ptr, url.len });
    } else {
        ok = ok && weir__buffer_add_text(&b, "pg_dump --format=custom --schema=") &&
             add_schema(&b, o) && weir__buffer_add_text(&b, " --file=") &&
             weir__cli_add_shell_word(&b, weir__str(file));
    }
    ok = ok && weir__buffer_add(&b, " ", 1) &&
         (restore ? weir__cli_add_shell_word(&b, weir__str(file))
                  : weir__cli_add_shell_word(&b, (weir_str){ url.ptr, url.len }));
    if (ok) {
        const report_field field = { .name = "command",
                                     .type = REPORT_STR,
                                     .text = { b.ptr, b.len } };
        if (c->json) {
            (void)weir__cli_row(&c->out, &field, 1);
        } else {
            (void)weir__cli_print(&c->out, "%.*s\n", (int)b.len, b.ptr);
        }
        /* Not --no-acl: that would leave every function to everybody (PUBLIC). */
        weir__cli_note(c, restore ? "nothing was done: run this command; the roles that own the "
                                    "store or were granted it must exist before (CREATE ROLE)"
                                  : "nothing was done: run this command");
    }
    weir__buffer_free(&b);
    weir__buffer_free(&url);
    if (!ok) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
    }
    return ok ? CLI_DONE : weir__cli_fail(c, &err);
}

/* Parses the store's URL. CLI_DONE and *handled: PostgreSQL, and the line is printed. */
static int url_parse(cli *c, bool restore, store_url *url, bool *handled)
{
    weir_error err;
    char *text = NULL;
    weir_status status = weir__cli_url(c, &text, &err);
    *handled = false;
    if (status == WEIR_OK) {
        status = weir__url_parse(url, text, &err);
    }
    weir__free(text);
    if (status == WEIR_OK && strcmp(url->scheme, "memory") == 0) {
        return weir__cli_usage(c, "a store in memory ends with its process: there is nothing to %s",
                               restore ? "restore" : "back up");
    }
    if (status == WEIR_OK && strcmp(url->scheme, "postgres") == 0) {
        *handled = true;
        return print_line(c, &url->options, c->words[0], restore);
    }
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

/* ---- the commands -------------------------------------------------------------------------- */

static int64_t bytes_of(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 ? (int64_t)st.st_size : 0;
}

static weir_status backup_store(cli *c, weir *w, weir_error *err)
{
    shown_progress progress = begin_progress(c);
    const char *file = c->words[0];
    const weir_status status = (weir_status)weir_backup_watched(
        w, file, weir__cli_has(c, "force") ? WEIR_BACKUP_REPLACE : 0, show_progress, &progress,
        err);
    end_progress(&progress);
    if (status == WEIR_EINVAL && strstr(err->detail, "WEIR_BACKUP_REPLACE") != NULL) {
        weir__error_detail(err, "Choose another name, or replace it with --force.");
    }
    if (status == WEIR_OK) {
        const report_field fields[] = {
            { .name = "backup", .type = REPORT_STR, .text = weir__str(file) },
            { .name = "bytes", .type = REPORT_I64, .number = bytes_of(file) },
        };
        (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    }
    return status;
}

static int backup_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    store_url url = { 0 };
    bool handled = false;
    if (strcmp(c->words[0], "-") == 0) {
        return weir__cli_usage(c, "a backup is a file, not a stream: give it a name");
    }
    const int parsed = url_parse(c, false, &url, &handled);

    weir__url_free(&url);
    if (parsed != CLI_DONE || handled) {
        return parsed;
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        status = backup_store(c, w, &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

static int restore_store(cli *c, const store_url *url)
{
    weir_error err;
    char *kept = NULL;
    shown_progress progress = begin_progress(c);
    const weir_status status =
        weir__sqlite_restore(&url->options, c->words[0], &kept, show_progress, &progress, &err);
    end_progress(&progress);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    const report_field fields[] = {
        { .name = "restored", .type = REPORT_STR, .text = weir__str(c->words[0]) },
        { .name = "kept", .type = REPORT_STR, .text = weir__str(kept) },
    };
    (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    weir__free(kept);
    return CLI_DONE;
}

static int restore_run(cli *c)
{
    store_url url = { 0 };
    bool handled = false;
    int status = url_parse(c, true, &url, &handled);
    if (status == CLI_DONE && !handled) {
        status = restore_store(c, &url);
    }
    weir__url_free(&url);
    return status;
}

const cli_command weir__cli_backup_command = {
    .name = "backup",
    .block = CLI_BLOCK_OPERATE,
    .usage = "FILE [--force] [options]",
    .summary = "copy the store into one file, while it is in use",
    .about =
        "Writes a complete copy of an SQLite store, as it is at one moment, to FILE. Others may\n"
        "go on reading and writing. FILE appears only when the copy has been checked and is on\n"
        "the disk. For PostgreSQL it prints the pg_dump command for exactly this store, and runs\n"
        "nothing.",
    .example = "weir backup weir-monday.db\n"
               "weir backup nightly.db --force --store sqlite:orders.db\n"
               "weir backup orders.dump --store postgres:///orders",
    .options = backup_options,
    .options_count = sizeof backup_options / sizeof backup_options[0],
    .words_min = 1,
    .words_max = 1,
    .run = backup_run,
};

const cli_command weir__cli_restore_command = {
    .name = "restore",
    .block = CLI_BLOCK_OPERATE,
    .usage = "FILE [options]",
    .summary = "replace the store with a backup, and keep what was there",
    .about =
        "Checks FILE and puts a copy of it in place of an SQLite store. The old files stay beside\n"
        "it, as PATH.before-TIME. If another process has the store open, the restore is refused\n"
        "(exit status 75). The log is a new one: readers that continue from a position of the old\n"
        "log are told so, and its leases are refused. For PostgreSQL it prints the pg_restore\n"
        "command, and runs nothing.",
    .example = "weir restore weir-monday.db\n"
               "weir restore nightly.db --store sqlite:orders.db\n"
               "weir restore orders.dump --store postgres:///orders",
    .words_min = 1,
    .words_max = 1,
    .run = restore_run,
};
