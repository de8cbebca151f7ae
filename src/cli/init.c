/* init.c - weir init: makes or upgrades a store, or shows the SQL that would. */
#include "api/api.h"
#include "cli/cli.h"

static const cli_option options[] = {
    { "plan", NULL, CLI_FLAG, "print the SQL that would be run, and run nothing" },
    { "adopt", NULL, CLI_FLAG, "add the store to an SQLite database that has other tables" },
};

/* The SQL that opening the store would run now; empty when it is up to date or not SQLite. */
static weir_status plan(const cli *c, weir_buffer *sql, weir_error *err)
{
    char *url = NULL;
    store_url parsed = { 0 };
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__url_parse(&parsed, url, err);
    }
    if (status == WEIR_OK && strcmp(parsed.scheme, "sqlite") == 0) {
        parsed.options.open_flags = weir__cli_has(c, "adopt") ? WEIR_OPEN_ADOPT : 0;
        status = weir__sqlite_plan(&parsed.options, sql, err);
    }
    weir__url_free(&parsed);
    weir__free(url);
    return status;
}

/* JSON only when it is asked for: a plan is most useful as a file of SQL. */
static void print_plan(cli *c, const weir_buffer *sql)
{
    const weir_str text = { .ptr = sql->ptr == NULL ? "" : sql->ptr, .len = sql->len };
    const cli_field field = { .name = "sql", .type = CLI_STR, .text = text };

    if (c->json) {
        (void)weir__cli_row(&c->out, &field, 1);
    } else if (text.len > 0) {
        (void)weir__cli_put(&c->out, text);
        if (text.ptr[text.len - 1] != '\n') {
            (void)weir__cli_put(&c->out, weir__str("\n"));
        }
    } else {
        weir__cli_note(c, "the store is up to date");
    }
}

static weir_status print_store(cli *c, weir *w, const char *url, bool created, bool upgraded,
                               weir_error *err)
{
    store_stats stats;
    char *shown = NULL;
    weir_store *store = weir__store(w);
    weir_status status = weir__cli_url_shown(url, &shown, err);

    if (status == WEIR_OK) {
        status = store->ops->stats(store, &stats, err);
    }
    if (status == WEIR_OK) {
        const cli_field fields[] = {
            { .name = "store", .type = CLI_STR, .text = weir__str(shown) },
            { .name = "schema", .type = CLI_I64, .number = stats.schema },
            { .name = "created", .type = CLI_BOOL, .number = created },
            { .name = "upgraded", .type = CLI_BOOL, .number = upgraded },
        };
        (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    }
    weir__free(shown);
    return status;
}

/* Opens what is there, or makes it; *created: which. */
static weir_status open_or_make(const cli *c, const char *url, weir **w, bool *created,
                                weir_error *err)
{
    const bool adopt = weir__cli_has(c, "adopt");
    weir_options o = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_EXISTING, .store_url = url,
                       .application = "weir" };
    weir_status status = (weir_status)weir_open(w, &o, err);

    *created = status != WEIR_OK && (status == WEIR_ENOTFOUND || adopt);
    if (*created) {
        o.flags = adopt ? WEIR_OPEN_ADOPT : 0;
        status = (weir_status)weir_open(w, &o, err);
    }
    return status;
}

static int run(cli *c)
{
    weir *w = NULL;
    char *url = NULL;
    bool created = false;
    weir_error err;
    weir_buffer sql = { 0 };
    weir_status status = plan(c, &sql, &err);

    if (status == WEIR_OK && weir__cli_has(c, "plan")) {
        print_plan(c, &sql);
        goto out;
    }
    if (status == WEIR_OK) {
        status = weir__cli_url(c, &url, &err);
    }
    if (status == WEIR_OK) {
        status = open_or_make(c, url, &w, &created, &err);
    }
    if (status == WEIR_OK) {
        status = print_store(c, w, url, created, !created && sql.len > 0, &err);
    }
out:
    weir_close(w);
    weir__free(url);
    weir__buffer_free(&sql);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_init_command = {
    .name = "init",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[--plan] [--adopt] [options]",
    .summary = "make or upgrade the store",
    .about =
        "Makes the store when it is not there, and upgrades it in place when an older version of\n"
        "Weir made it. Run again it changes nothing. SQLite needs no init: the first append\n"
        "makes the store as well.",
    .example = "weir init\n"
               "weir init --store sqlite:orders.db --plan",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
