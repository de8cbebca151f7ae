/* init.c - weir init: makes or upgrades a store, or shows the SQL that would. */
#include "api/api.h"
#include "cli/cli.h"

static const cli_option options[] = {
    { "plan", NULL, CLI_FLAG, "print the SQL that would be run, and run nothing" },
    { "adopt", NULL, CLI_FLAG, "add the store to an SQLite database that has other tables" },
    { "grant", "ROLE", CLI_WORD, "PostgreSQL: give ROLE the rights that it needs, and no more" },
    { "as", "KIND", CLI_WORD,
      "what ROLE is for: reader, writer, worker, operator (default: worker)" },
};

/* What --as says; NULL: none of the four. */
static const char *kind_of(const cli *c)
{
    static const char *const kinds[] = { "worker", "reader", "writer", "operator" };
    const char *kind = weir__cli_has(c, "as") ? NULL : kinds[0];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && kind == NULL; i++) {
        if (weir__str_equal(weir__cli_text(c, "as"), weir__str(kinds[i]))) {
            kind = kinds[i];
        }
    }
    return kind;
}

/* The SQL that opening the store would run now; empty when it is up to date or in memory. */
static weir_status init_plan(const cli *c, const store_url *url, weir_buffer *sql, weir_error *err)
{
    if (strcmp(url->scheme, "postgres") == 0) {
        return weir__postgres_plan(&url->options, sql, err);
    }
    if (strcmp(url->scheme, "sqlite") == 0) {
        store_options o = url->options;
        o.open_flags = weir__cli_has(c, "adopt") ? WEIR_OPEN_ADOPT : 0;
        return weir__sqlite_plan(&o, sql, err);
    }
    return WEIR_OK;
}

/* What --grant asks for; the SQL is added to what a plan prints. */
static weir_status init_grant(const cli *c, const store_url *url, bool plan_only, weir_buffer *sql,
                              weir_error *err)
{
    return weir__cli_has(c, "grant")
               ? weir__postgres_grant(&url->options, weir__cli_text(c, "grant"), kind_of(c),
                                      plan_only, sql, err)
               : WEIR_OK;
}

/* JSON only when it is asked for: a plan is most useful as a file of SQL. */
static void print_plan(cli *c, const weir_buffer *sql)
{
    const weir_str text = { .ptr = sql->ptr == NULL ? "" : sql->ptr, .len = sql->len };
    const report_field field = { .name = "sql", .type = REPORT_STR, .text = text };

    if (c->json) {
        (void)weir__cli_row(&c->out, &field, 1);
    } else if (text.len > 0) {
        (void)weir__cli_put_exact(&c->out, text);
        if (text.ptr[text.len - 1] != '\n') {
            (void)weir__cli_put(&c->out, weir__str("\n"));
        }
    } else {
        weir__cli_note(c, "the store is up to date");
    }
}

static weir_status print_store(cli *c, weir *w, const char *url, weir_error *err)
{
    store_stats stats;
    char *shown = NULL;
    weir_store *store = weir__store(w);
    weir_status status = weir__cli_url_shown(url, &shown, err);

    if (status == WEIR_OK) {
        status = store->about->stats(store, &stats, err);
    }
    if (status == WEIR_OK) {
        const report_field fields[] = {
            { .name = "store", .type = REPORT_STR, .text = weir__str(shown) },
            { .name = "schema", .type = REPORT_I64, .number = stats.schema },
            { .name = "created", .type = REPORT_BOOL, .number = store->opened == STORE_MADE },
            { .name = "upgraded", .type = REPORT_BOOL, .number = store->opened == STORE_UPGRADED },
            { .name = "granted", .type = REPORT_STR, .text = weir__cli_text(c, "grant") },
            { .name = "as", .type = REPORT_STR, .text = weir__str(kind_of(c)) },
        };
        const size_t count = sizeof fields / sizeof fields[0];
        (void)weir__cli_row(&c->out, fields, weir__cli_has(c, "grant") ? count : count - 2);
    }
    weir__free(shown);
    return status;
}

/* Opens what is there, or makes it. */
static weir_status open_or_make(const cli *c, const char *url, weir **w, weir_error *err)
{
    const bool adopt = weir__cli_has(c, "adopt");
    weir_options o = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_EXISTING, .store_url = url,
                       .application = "weir" };
    weir_status status = (weir_status)weir_open(&o, w, err);

    if (status != WEIR_OK && (status == WEIR_ENOTFOUND || adopt)) {
        o.flags = adopt ? WEIR_OPEN_ADOPT : 0;
        status = (weir_status)weir_open(&o, w, err);
    }
    return status;
}

static weir_status init_store(cli *c, const char *url, const store_url *parsed, weir_error *err)
{
    weir *w = NULL;
    weir_buffer sql = { 0 }, granted = { 0 };
    weir_status status = WEIR_OK;

    if (weir__cli_has(c, "plan")) {
        status = init_plan(c, parsed, &sql, err);
    }
    if (status == WEIR_OK && weir__cli_has(c, "plan")) {
        status = init_grant(c, parsed, true, &sql, err);
        if (status == WEIR_OK) {
            print_plan(c, &sql);
        }
        goto out;
    }
    if (status == WEIR_OK) {
        status = open_or_make(c, url, &w, err);
    }
    if (status == WEIR_OK) {
        status = init_grant(c, parsed, false, &granted, err);
    }
    if (status == WEIR_OK) {
        status = print_store(c, w, url, err);
    }
out:
    weir_close(w);
    weir__buffer_free(&sql);
    weir__buffer_free(&granted);
    return status;
}

static int init_run(cli *c)
{
    char *url = NULL;
    store_url parsed = { 0 };
    weir_error err;
    weir_status status = weir__cli_url(c, &url, &err);
    int exit_status = CLI_DONE;

    if (status == WEIR_OK) {
        status = weir__url_parse(&parsed, url, &err);
    }
    if (status == WEIR_OK && weir__cli_has(c, "as") && !weir__cli_has(c, "grant")) {
        exit_status = weir__cli_usage(c, "--as goes with --grant ROLE");
    } else if (status == WEIR_OK && kind_of(c) == NULL) {
        exit_status = weir__cli_usage(c, "--as is reader, writer, worker or operator");
    } else if (status == WEIR_OK && weir__cli_has(c, "grant") &&
               strcmp(parsed.scheme, "postgres") != 0) {
        exit_status = weir__cli_usage(c, "--grant is for PostgreSQL: files have no roles");
    } else if (status == WEIR_OK && weir__cli_has(c, "adopt") &&
               strcmp(parsed.scheme, "postgres") == 0) {
        exit_status = weir__cli_usage(c, "--adopt is for SQLite: PostgreSQL has schemas, see "
                                         "?schema= in weir(1)");
    } else if (status == WEIR_OK) {
        status = init_store(c, url, &parsed, &err);
    }
    weir__url_free(&parsed);
    weir__free(url);
    return status == WEIR_OK ? exit_status : weir__cli_fail(c, &err);
}

const cli_command weir__cli_init_command = {
    .name = "init",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[--plan] [--adopt] [--grant ROLE [--as KIND]] [options]",
    .summary = "create or upgrade the store",
    .about =
        "Creates the store, or upgrades one that an older version of Weir created. Running it\n"
        "again changes nothing, and any number of processes may run it at once. SQLite needs no\n"
        "init: the first append creates the store. PostgreSQL needs an existing database, and a\n"
        "role that may create a schema in it.",
    .example = "weir init\n"
               "weir init --store sqlite:orders.db --plan\n"
               "weir init --store postgres:///orders --grant shop\n"
               "weir init --store postgres:///orders --grant reports --as reader",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = init_run,
};
