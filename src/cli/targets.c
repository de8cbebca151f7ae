/* targets.c - weir targets: the lines of work, where they are and what is in their way. */
#include "cli/operate.h"

static const cli_option options[] = {
    { "match", "PATTERN", CLI_WORD, "only targets whose name fits: mail-1, mail-*, /^mail-/" },
    { "source", "PATTERN", CLI_WORD, "only targets with a subscription whose source fits" },
    { "lane", "NAME", CLI_WORD, "only targets of this lane" },
    { "blocked", NULL, CLI_FLAG, "only targets that are blocked" },
    { "limit", "N", CLI_NUMBER, "at most N targets" },
    { "watch", NULL, CLI_FLAG, "go on with what changes, until interrupted" },
};

typedef struct listing {
    cli *c;
    int64_t count;
    weir_buffer reactions; /* JSON of the row that is being written */
    bool no_memory;
} listing;

static bool print_target(void *ctx, const store_target *t, int64_t waited_us)
{
    listing *l = ctx;
    cli_field fields[CLI_TARGET_FIELDS_COUNT];

    l->no_memory = !weir__cli_target_fields(t, waited_us, &l->reactions, fields);
    l->count++;
    return !l->no_memory && weir__cli_row(&l->c->out, fields, CLI_TARGET_FIELDS_COUNT);
}

static weir_status list(listing *l, weir_store *store, const store_target_filter *filter,
                        weir_error *err)
{
    const cli_given *limit = weir__cli_get(l->c, "limit");
    const cli_target_sink sink = { .row = print_target, .ctx = l };
    const weir_status status = weir__cli_targets_each(
        store, filter, limit == NULL ? INT64_MAX : limit->number, &sink, err);

    weir__buffer_free(&l->reactions);
    return status == WEIR_OK && l->no_memory ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                             : status;
}

static int run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    cli_target_filter f = { 0 };
    listing l = { .c = c };
    const bool watch = weir__cli_has(c, "watch");
    weir_status status = weir__cli_filter_options(c, &f, &err);

    if (watch && weir__cli_has(c, "limit")) {
        weir__cli_filter_free(&f);
        return weir__cli_usage(c, "--watch and --limit exclude each other");
    }
    if (status == WEIR_OK) {
        status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    }
    if (status == WEIR_OK) {
        status = watch ? weir__cli_targets_watch(c, weir__store(w), &f.filter, &err)
                       : list(&l, weir__store(w), &f.filter, &err);
    }
    weir__cli_filter_free(&f);
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    /* Nothing is an answer, unless something was looked for. */
    if (watch || l.count > 0 || c->out.closed || !weir__cli_has_filter(c)) {
        return CLI_DONE;
    }
    (void)weir__fail(&err, WEIR_ENOTFOUND, "no target matched");
    return weir__cli_fail(c, &err);
}

const cli_command weir__cli_targets_command = {
    .name = "targets",
    .block = CLI_BLOCK_WORKERS,
    .usage = "[options]",
    .summary = "list targets: state, lag, retries, who holds them",
    .about =
        "Lists targets in the order of their names. The state is the first that holds of leased,\n"
        "blocked, paused, deferred, ready, idle. lag is mark - watermark in positions, "
        "lag_seconds\n"
        "the age of the oldest event that waits. When a filter is given and no target fits, the\n"
        "exit status is 3. --watch draws the list anew on a terminal; elsewhere it prints the "
        "list\n"
        "and then a line for every target that changes. It ends with 0 when it is interrupted.",
    .example = "weir targets --blocked\n"
               "weir targets --watch\n"
               "weir targets --match 'mail-*' --lane default",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
