/* targets.c - weir targets: the lines of work, where they are and what is in their way. */
#include "cli/operate.h"

#include <stdlib.h>

static const cli_option options[] = {
    { "match", "PATTERN", CLI_WORD, "only targets whose name fits: mail-1, mail-*, /^mail-/" },
    { "source", "PATTERN", CLI_WORD, "only targets with a subscription whose source fits" },
    { "lane", "NAME", CLI_WORD, "only targets of this lane" },
    { "blocked", NULL, CLI_FLAG, "only targets that are blocked" },
    { "limit", "N", CLI_NUMBER, "at most N targets" },
    { "watch", NULL, CLI_FLAG, "keep showing changes until interrupted" },
};

enum {
    SORTED_MAX = 100000, /* targets that are put into the order of their states */
    SORTED_CHUNK = 200,
};

/* A target that waits for its turn. */
typedef struct ordered {
    cli_target_state state;
    weir_str name; /* in the arena */
} ordered;

typedef struct listing {
    cli *c;
    int64_t count;
    weir_buffer reactions; /* JSON of the row that is being written */
    weir_arena arena;
    weir_buffer order; /* of `ordered` */
    size_t order_count;
    bool no_memory;
} listing;

static bool print_target(void *ctx, const store_target *t, int64_t waited_us)
{
    listing *l = ctx;
    report_field fields[CLI_TARGET_FIELDS_COUNT];

    l->no_memory = !weir__cli_target_fields(t, waited_us, &l->reactions, fields);
    l->count++;
    return !l->no_memory && weir__cli_row(&l->c->out, fields, CLI_TARGET_FIELDS_COUNT);
}

/* A `wants` of cli_target_sink: takes note of the target, and of one more than can be sorted. */
static bool note_target(void *ctx, const store_target *t, bool *wanted)
{
    listing *l = ctx;
    const ordered o = { .state = weir__cli_target_state(t),
                        .name = { .ptr = weir__arena_copy(&l->arena, t->name.ptr, t->name.len),
                                  .len = t->name.len } };

    *wanted = false;
    l->no_memory = o.name.ptr == NULL || !weir__buffer_add(&l->order, &o, sizeof o);
    l->order_count++;
    return !l->no_memory && l->order_count <= SORTED_MAX;
}

static int compare_ordered(const void *a, const void *b)
{
    const ordered *x = a, *y = b;

    return x->state != y->state ? (x->state < y->state ? -1 : 1)
                                : weir__str_compare(x->name, y->name);
}

/* Prints targets by name, a few at a time: those of one state, which the store gives in the order
 * of their names. */
static weir_status print_in_order(listing *l, weir_store *store, int64_t limit, weir_error *err)
{
    ordered *order = (ordered *)(void *)l->order.ptr;
    const cli_target_sink sink = { .row = print_target, .ctx = l };
    const size_t end = (uint64_t)limit < l->order_count ? (size_t)limit : l->order_count;
    weir_status status = WEIR_OK;

    if (l->order_count > 0) {
        qsort(order, l->order_count, sizeof *order, compare_ordered);
    }
    for (size_t at = 0; status == WEIR_OK && at < end && !l->no_memory && !l->c->out.closed;) {
        weir_str names[SORTED_CHUNK];
        const cli_target_state state = order[at].state;
        size_t count = 0;
        while (at < end && count < SORTED_CHUNK && order[at].state == state) {
            names[count++] = order[at++].name;
        }
        const store_target_filter filter = { .names = names, .names_count = count };
        status = weir__cli_targets_each(store, &filter, INT64_MAX, &sink, err);
    }
    return status;
}

/* For programs in the order of names. For people, those that need someone come first, unless there
 * are more than anybody reads. */
static weir_status targets_list(listing *l, weir_store *store, const store_target_filter *filter,
                                weir_error *err)
{
    const cli_given *given = weir__cli_get(l->c, "limit");
    const int64_t limit = given == NULL ? INT64_MAX : given->number;
    const cli_target_sink print = { .row = print_target, .ctx = l };
    const cli_target_sink note = { .wants = note_target, .ctx = l };
    weir_status status = WEIR_OK;

    if (!l->c->out.json) {
        status = weir__cli_targets_each(store, filter, INT64_MAX, &note, err);
    }
    if (status == WEIR_OK && !l->no_memory) {
        status = l->c->out.json || l->order_count > SORTED_MAX
                     ? weir__cli_targets_each(store, filter, limit, &print, err)
                     : print_in_order(l, store, limit, err);
    }
    weir__buffer_free(&l->reactions);
    weir__buffer_free(&l->order);
    weir__arena_free(&l->arena);
    return status == WEIR_OK && l->no_memory ? weir__fail(err, WEIR_ENOMEM, "out of memory")
                                             : status;
}

/* What no target shows: a reaction for which nothing is routed. */
static weir_status note_reactions(cli *c, weir_store *store, weir_error *err)
{
    store_reaction_list reactions = { 0 };
    store_positions positions = { 0 };
    weir_status status = store->work->reactions(store, &reactions, err);

    if (status == WEIR_OK) {
        status = store->log->positions(store, &positions, err);
    }
    if (status == WEIR_OK) {
        weir__cli_note_routed_beyond(c, &reactions, &positions);
    }
    weir__arena_free(&reactions.arena);
    return status;
}

static int targets_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    cli_target_filter f = { 0 };
    listing l = { .c = c };
    const bool watch = weir__cli_has(c, "watch");
    c->out.answered = watch; /* whatever comes */
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
                       : targets_list(&l, weir__store(w), &f.filter, &err);
    }
    if (status == WEIR_OK && !watch) {
        status = note_reactions(c, weir__store(w), &err);
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
        "Lists targets. Those that need attention come first: blocked, retrying, paused,\n"
        "deferred, leased, ready, idle. JSON is sorted by name. LAG is how many positions a\n"
        "target is behind; WAITING is the age of the oldest event that waits for it. If you\n"
        "give a filter and no target matches, the exit status is 3. --watch shows a full\n"
        "screen that is kept up to date: / filters, s sorts, Enter explains a target, ? lists\n"
        "the keys, q quits. In a pipe it prints the list, and then a line for every target that\n"
        "changes. It exits with 0 when it is interrupted.",
    .empty = "No targets yet. A target is made when a worker routes the first event for it.",
    .example = "weir targets --blocked\n"
               "weir targets --watch\n"
               "weir targets --match 'mail-*' --lane default",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = targets_run,
};
