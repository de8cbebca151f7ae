/* claim.c - weir claim: takes rows of a user's table that nobody else holds.
 *
 * Rows are printed, or a command is run for each. A table or database that is not there is an error
 * (1), so that "nothing to claim" (3) always means just that.
 */
#include "cli/claim.h"
#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static const cli_option options[] = {
    { "table", "NAME", CLI_WORD, "a table of the database; its entry in weir.yaml is ignored" },
    { "where", "SQL", CLI_WORD, "which rows are ready, such as \"status = 'pending'\"" },
    { "param", "NAME=VALUE", CLI_TEXT, "what :NAME stands for in SQL; may be repeated" },
    { "order", "COLUMNS", CLI_WORD, "such as \"priority desc, created\" (default: primary key)" },
    { "limit", "N", CLI_NUMBER, "at most N rows (default: 1)" },
    { "set", "COLUMN=VALUE", CLI_TEXT, "what a claim writes; may be repeated" },
    { "set-sql", "COLUMN=SQL", CLI_TEXT, "the same with an expression; may be repeated" },
    { "by", "ID", CLI_WORD, "who claims; written to the row with the time of the claim" },
    { "by-column", "COLUMN", CLI_TEXT, "column for --by (default: claimed_by); '': none" },
    { "at-column", "COLUMN", CLI_TEXT,
      "column for the time of the claim (default: claimed_at); '': none" },
    { "lease", "TIME", CLI_SPAN, "the claim ends after TIME unless it is renewed" },
    { "lease-column", "COLUMN", CLI_WORD,
      "column for the end of the lease (default: locked_until)" },
    { "fence-column", "COLUMN", CLI_WORD, "column with a number that grows with every claim" },
    { "attempts-column", "COLUMN", CLI_WORD, "column that counts how often the row was claimed" },
    { "max-per", "COLUMN=N", CLI_WORD,
      "never hold more than N rows with the same value in COLUMN" },
    { "wait", "[TIME]", CLI_WAIT, "wait for rows that others have locked, instead of skipping" },
    { "nowait", NULL, CLI_FLAG, "exit with 75 when a row is locked, instead of skipping" },
    { "path", "PATH", CLI_WORD, "default, fast or portable: which statements are used" },
    { "dry-run", NULL, CLI_FLAG, "print what would be claimed; lock and write nothing" },
    { "sql", NULL, CLI_FLAG, "print the SQL with its values; run nothing" },
    { "explain", NULL, CLI_FLAG, "print the query plan and any missing index; claim nothing" },
    { "run", "CMD", CLI_WORD, "run CMD for each row, with the row as JSON on stdin" },
    { "parallel", "N", CLI_NUMBER, "run at most N commands at once (default: 1)" },
    { "deadline", "TIME", CLI_SPAN, "how long a command may take (default: no limit)" },
    { "budget", "TIME", CLI_SPAN, "how long commands may run on after a signal (default: 30s)" },
    { "done", "COLUMN=VALUE", CLI_TEXT, "with --run: written when the command succeeds" },
    { "done-sql", "COLUMN=SQL", CLI_TEXT, "the same with an expression" },
    { "fail", "COLUMN=VALUE", CLI_TEXT, "with --run: written when the command fails" },
    { "fail-sql", "COLUMN=SQL", CLI_TEXT, "the same with an expression" },
    { "release", "COLUMN=VALUE", CLI_TEXT, "with --run: written to rows that are given back" },
    { "release-sql", "COLUMN=SQL", CLI_TEXT, "the same with an expression" },
    { "hold", NULL, CLI_FLAG, "with --run: keep each row locked in a transaction meanwhile" },
};

/* ---- what goes together --------------------------------------------------------------------- */

/* The first of these flags that was given; NULL: none. */
static const char *first_given(const cli *c, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (weir__cli_has(c, names[i])) {
            return names[i];
        }
    }
    return NULL;
}

static int check_hold(const cli *c)
{
    /* A row that is held is written to once, at the end. */
    static const char *const writing[] = { "set",          "set-sql",      "by",
                                           "by-column",    "at-column",    "lease",
                                           "lease-column", "fence-column", "attempts-column",
                                           "max-per",      "fail",         "fail-sql",
                                           "release",      "release-sql" };
    const char *name = first_given(c, writing, sizeof writing / sizeof writing[0]);

    if (name != NULL) {
        return weir__cli_usage(c,
                               "--hold and --%s exclude each other: a row that is held is written "
                               "to when its command has succeeded, and only then",
                               name);
    }
    return CLI_DONE;
}

static int flags_check(const cli *c)
{
    static const char *const shows[] = { "dry-run", "sql", "explain" };
    static const char *const running[] = { "parallel", "deadline", "budget",
                                           "done",     "done-sql", "fail",
                                           "fail-sql", "release",  "release-sql" };
    const char *show = first_given(c, shows, 3);
    const char *for_child = first_given(c, running, sizeof running / sizeof running[0]);

    if (weir__cli_has(c, "table") && c->words_count == 1 && weir__cli_has(c, "wait") &&
        weir__cli_get(c, "wait")->number < 0) {
        return weir__cli_usage(
            c, "\"%s\" is no duration for --wait, and no argument beside --table", c->words[0]);
    }
    if (weir__cli_has(c, "table") == (c->words_count == 1)) {
        return c->words_count == 1
                   ? weir__cli_usage(c, "--table and the argument \"%s\" exclude each other",
                                     c->words[0])
                   : weir__cli_usage(c, "which table: --table NAME, or one of weir.yaml");
    }
    if (weir__cli_has(c, "wait") && weir__cli_has(c, "nowait")) {
        return weir__cli_usage(c, "--wait and --nowait exclude each other");
    }
    for (size_t i = 0; show != NULL && i < 3; i++) {
        if (show != shows[i] && weir__cli_has(c, shows[i])) {
            return weir__cli_usage(c, "--%s and --%s exclude each other", show, shows[i]);
        }
    }
    if (for_child != NULL && !weir__cli_has(c, "run")) {
        return weir__cli_usage(c, "--%s needs --run CMD", for_child);
    }
    if (weir__cli_has(c, "hold")) {
        return weir__cli_has(c, "run") || show != NULL
                   ? check_hold(c)
                   : weir__cli_usage(c, "--hold needs --run CMD: what is held ends with weir");
    }
    return CLI_DONE;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* Commands that are run are run by somebody, whose name is made up if the table has a place for
 * it. */
static void make_holder(claim_run *k)
{
    char host[64] = "localhost";

    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(k->holder, sizeof k->holder, "%s-%d-%08x", host, (int)getpid(),
                   (unsigned)weir__random_u64());
    k->request.by = weir__str(k->holder);
    if (k->request.at_column.len == 0 &&
        weir__claim_column_of(&k->place.table, "--at-column", k->request.at_column) == NULL) {
        k->request.at_column = CLAIM_NO_COLUMN;
    }
}

static int check_guard(const claim_run *k)
{
    const claim_request *r = &k->request;
    const table_spec *s = &k->options.spec;

    if (weir__claim_finish_of(r).by.len > 0 || r->fence_column.len > 0) {
        return CLI_DONE;
    }
    if (r->lease_us > 0) {
        return weir__cli_usage(k->c,
                               "--run under a lease needs to know its claims again: table %.*s has "
                               "no column claimed_by; name one with --by-column or --fence-column",
                               (int)k->place.table.shown.len, k->place.table.shown.ptr);
    }
    if (r->writes.set_count == 0 && (s->done.set_count + s->done.set_sql_count +
                                     s->failed.set_count + s->failed.set_sql_count) > 0) {
        return weir__cli_usage(k->c, "--done and --fail need to know a claim again: give --set, "
                                     "--by-column or --fence-column");
    }
    return CLI_DONE;
}

static int make_request(claim_run *k)
{
    const cli *c = k->c;
    claim_request *r = &k->request;

    r->mode = weir__cli_has(c, "wait")     ? CLAIM_WAIT
              : weir__cli_has(c, "nowait") ? CLAIM_NOWAIT
                                           : CLAIM_SKIP;
    r->wait_us = r->mode == CLAIM_WAIT ? weir__cli_get(c, "wait")->number : 0;
    if (weir__cli_has(c, "hold")) {
        *r = (claim_request){ .table = r->table,
                              .where = r->where,
                              .writes = { .params = r->writes.params,
                                          .params_count = r->writes.params_count },
                              .order = r->order,
                              .order_count = r->order_count,
                              .limit = r->limit,
                              .mode = r->mode,
                              .wait_us = r->wait_us,
                              .path = r->path,
                              .hold = true };
        return CLI_DONE;
    }
    if (k->command != NULL && r->by.len == 0 &&
        weir__claim_column_of(&k->place.table, "--by-column", r->by_column) != NULL) {
        make_holder(k);
    }
    if (r->writes.set_count == 0 && r->writes.set_sql_count == 0 && r->by.len == 0 &&
        r->lease_us == 0) {
        return weir__cli_usage(c, "nothing would show that a row is claimed: give --set, --by or "
                                  "--lease, or --hold");
    }
    return k->command == NULL ? CLI_DONE : check_guard(k);
}

/* ---- claiming ------------------------------------------------------------------------------- */

static int nothing_tell(const cli *c)
{
    if (!c->json_errors) {
        weir__cli_note(c, "nothing to claim");
    }
    return CLI_NOTHING;
}

static int rows_claim(claim_run *k)
{
    table_result rows = { .rows_count = 0 };
    weir_error err;
    int status = CLI_DONE;

    if (weir__claim_rows(k->place.session, &k->request, &rows, &err) != WEIR_OK) {
        status = weir__cli_claim_fail(k->c, &err);
    } else if (rows.rows_count == 0) {
        status = nothing_tell(k->c);
    }
    for (size_t i = 0; i < rows.rows_count && weir__cli_table_print(&k->c->out, &rows, i); i++) {
    }
    weir__table_result_free(&rows);
    return status;
}

/* Before anything else: the process is small, and has one thread. */
static int children_prepare(claim_run *k)
{
    const cli_given *budget = weir__cli_get(k->c, "budget");
    weir_error err;

    k->budget_us = budget == NULL ? CLAIM_BUDGET_US : budget->number;
    k->signal_fd = weir__cli_signals_open();
    if (k->signal_fd < 0) {
        (void)weir__fail(&err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
        return weir__cli_fail(k->c, &err);
    }
    return weir__child_keeper_open(&k->keeper, &err) == WEIR_OK ? CLI_DONE
                                                                : weir__cli_fail(k->c, &err);
}

static int request_dispatch(claim_run *k)
{
    const cli *c = k->c;

    if (weir__cli_has(c, "sql")) {
        return weir__cli_claim_sql(k);
    }
    if (weir__cli_has(c, "explain")) {
        return weir__cli_claim_explain(k);
    }
    if (weir__cli_has(c, "dry-run")) {
        const int status = weir__cli_claim_preview(k);
        return status == CLI_NOTHING ? nothing_tell(c) : status;
    }
    if (k->command == NULL) {
        return rows_claim(k);
    }
    const int status = k->request.hold ? weir__cli_claim_held(k) : weir__cli_claim_children(k);
    return status == CLI_NOTHING ? nothing_tell(c) : status;
}

static int command_run(cli *c)
{
    claim_run k = { .c = c, .signal_fd = -1, .command = weir__cli_text(c, "run").ptr };
    const bool from_file = c->words_count == 1;
    const bool shows =
        weir__cli_has(c, "sql") || weir__cli_has(c, "explain") || weir__cli_has(c, "dry-run");
    int status = flags_check(c);

    if (!weir__mutex_init(&k.mu)) {
        return CLI_ERROR;
    }
    if (status == CLI_DONE) {
        status = weir__cli_claim_read(
            c, &k.options, from_file ? c->words[0] : weir__cli_text(c, "table").ptr, from_file);
    }
    if (status == CLI_DONE && k.command != NULL && !shows) {
        status = children_prepare(&k);
    }
    if (status == CLI_DONE) {
        status = weir__cli_place_open(c, k.options.spec.claim.table, &k.place);
    }
    if (status == CLI_DONE) {
        status = weir__cli_claim_params(c, &k.options, weir__table_dialect(k.place.db));
    }
    if (status == CLI_DONE) {
        k.request = k.options.spec.claim;
        status = make_request(&k);
    }
    if (status == CLI_DONE) {
        status = request_dispatch(&k);
    }
    weir__cli_place_close(&k.place);
    weir__child_keeper_close(k.keeper);
    if (k.signal_fd >= 0) {
        (void)close(k.signal_fd);
    }
    weir__cli_claim_free(&k.options);
    weir__mutex_destroy(&k.mu);
    return status;
}

const cli_command weir__cli_claim_command = {
    .name = "claim",
    .block = CLI_BLOCK_TABLES,
    .usage = "--table NAME --where SQL --set COLUMN=VALUE [options]\n"
             "TABLE [options]\n"
             "TABLE --run CMD [options]",
    .summary = "take rows of your own table that nobody else holds",
    .about =
        "Claims up to --limit rows that are ready, in one step, so that no two callers are ever\n"
        "given the same row. Each row is written to (--set, --by, --lease), and is then printed\n"
        "or passed to a command (--run). Rows that others are claiming at the same moment are\n"
        "skipped, waited for (--wait), or an error (--nowait). Weir installs nothing in the\n"
        "database, and you do not need weir init. TABLE is an entry under tables: in weir.yaml,\n"
        "which supplies what the flags leave out, or the name of a table. Exit status: 0 rows\n"
        "were claimed, or all commands succeeded; 1 an error, or a command failed; 3 nothing to\n"
        "claim; 75 held.",
    .example = "weir claim --table jobs --where \"status = 'pending'\" --set status=claimed --by "
               "worker-7\n"
               "weir claim --table jobs --where \"status = 'pending'\" --set status=claimed --sql\n"
               "weir claim jobs --limit 10 --run ./work-on-it --parallel 4",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 1,
    .run = command_run,
};
