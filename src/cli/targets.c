/* targets.c - weir targets: the lines of work, where they are and what is in their way.
 *
 * A page of targets is read, then the next event of each subscription that is behind: its age is
 * the target's lag in seconds. Nothing is held between pages.
 */
#include "api/api.h"
#include "cli/cli.h"

enum {
    TARGETS_PAGE = 200,
};

static const cli_option options[] = {
    { "match", "PATTERN", CLI_WORD, "only targets whose name fits: mail-1, mail-*, /^mail-/" },
    { "source", "PATTERN", CLI_WORD, "only targets with a subscription whose source fits" },
    { "lane", "NAME", CLI_WORD, "only targets of this lane" },
    { "blocked", NULL, CLI_FLAG, "only targets that are blocked" },
    { "limit", "N", CLI_NUMBER, "at most N targets" },
};

typedef struct page {
    store_targets_chunk targets;
    store_fetch_list next;   /* of each subscription that is behind */
    store_fetch_item *items; /* owned */
    size_t *item_target;     /* owned: index of the item's target in the page */
    size_t items_count, items_capacity;
    int64_t *oldest_us;    /* owned: per target, 0: nothing waits */
    weir_buffer reactions; /* JSON of the row that is being written */
    char *after;           /* owned: where the next page begins */
    int64_t now_us;
} page;

static const char *state_text(store_target_state state)
{
    switch (state) {
    case STORE_TARGET_LEASED:
        return "leased";
    case STORE_TARGET_BLOCKED:
        return "blocked";
    case STORE_TARGET_PAUSED:
        return "paused";
    case STORE_TARGET_DEFERRED:
        return "deferred";
    case STORE_TARGET_READY:
        return "ready";
    case STORE_TARGET_IDLE:
        break;
    }
    return "idle";
}

/* ---- how old the oldest waiting event is ---------------------------------------------------- */

static weir_status add_item(page *p, const store_target *t, size_t index,
                            const store_subscription *s, weir_error *err)
{
    if (p->items_count == p->items_capacity) {
        const size_t capacity = p->items_capacity == 0 ? TARGETS_PAGE : p->items_capacity * 2;
        store_fetch_item *items = weir__realloc(p->items, capacity * sizeof *items);
        p->items = items == NULL ? p->items : items;
        size_t *owners = weir__realloc(p->item_target, capacity * sizeof *owners);
        p->item_target = owners == NULL ? p->item_target : owners;
        if (items == NULL || owners == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        p->items_capacity = capacity;
    }
    p->items[p->items_count] = (store_fetch_item){
        .target = t->id, .reaction = s->reaction, .after = s->at, .up_to = s->mark, .limit = 1
    };
    p->item_target[p->items_count++] = index;
    return WEIR_OK;
}

static weir_status find_oldest(page *p, weir_store *store, weir_error *err)
{
    weir_status status = WEIR_OK;

    p->items_count = 0;
    for (size_t i = 0; i < p->targets.targets_count; i++) {
        const store_target *t = &p->targets.targets[i];
        p->oldest_us[i] = 0;
        for (size_t k = 0; status == WEIR_OK && k < t->subscriptions_count; k++) {
            const store_subscription *s = &t->subscriptions[k];
            if (!s->retired && s->at < s->mark) {
                status = add_item(p, t, i, s, err);
            }
        }
    }
    for (size_t from = 0; status == WEIR_OK && from < p->items_count;
         from += STORE_CHUNK_EVENTS_MAX) {
        const size_t rest = p->items_count - from;
        const size_t count = rest < STORE_CHUNK_EVENTS_MAX ? rest : STORE_CHUNK_EVENTS_MAX;
        status = store->ops->fetch(store, p->items + from, count, &p->next, err);
        for (size_t k = 0; status == WEIR_OK && k < p->next.events_count; k++) {
            const store_fetched *f = &p->next.events[k];
            int64_t *oldest_us = &p->oldest_us[p->item_target[from + f->item_index]];
            if (*oldest_us == 0 || f->event->created_us < *oldest_us) {
                *oldest_us = f->event->created_us;
            }
        }
    }
    return status;
}

/* ---- a row ---------------------------------------------------------------------------------- */

static bool write_reactions(page *p, const store_target *t)
{
    cli_json j = { .buffer = &p->reactions };

    weir__buffer_clear(&p->reactions);
    weir__cli_json_open(&j, NULL, '[');
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        weir__cli_json_open(&j, NULL, '{');
        weir__cli_json_str(&j, "reaction", s->reaction_name);
        weir__cli_json_i64(&j, "at", s->at);
        weir__cli_json_i64(&j, "mark", s->mark);
        weir__cli_json_i64(&j, "retries", s->retries);
        weir__cli_json_close(&j, '}');
    }
    weir__cli_json_close(&j, ']');
    return !j.failed;
}

/* The most retries of one of its subscriptions. */
static int64_t retries_of(const store_target *t)
{
    int64_t retries = 0;

    for (size_t i = 0; i < t->subscriptions_count; i++) {
        retries = t->subscriptions[i].retries > retries ? t->subscriptions[i].retries : retries;
    }
    return retries;
}

static weir_str or_null(weir_str text)
{
    return (weir_str){ .ptr = text.len == 0 ? NULL : text.ptr, .len = text.len };
}

static void print_target(cli *c, page *p, size_t index)
{
    const store_target *t = &p->targets.targets[index];
    const bool leased = t->holder.len > 0;
    const int64_t waited_us = p->oldest_us[index] == 0 ? 0 : p->now_us - p->oldest_us[index];
    const cli_field fields[] = {
        { .name = "target", .type = CLI_STR, .text = t->name },
        { .name = "lane", .type = CLI_STR, .text = t->lane },
        { .name = "priority", .type = CLI_I64, .number = t->priority },
        { .name = "state", .type = CLI_STR, .text = weir__str(state_text(t->state)) },
        { .name = "watermark", .type = CLI_I64, .number = t->watermark },
        { .name = "mark", .type = CLI_I64, .number = t->mark },
        { .name = "lag", .type = CLI_I64, .number = t->mark - t->watermark },
        { .name = "lag_seconds",
          .type = CLI_I64,
          .number = waited_us < 0 ? 0 : waited_us / 1000000 },
        { .name = "retries", .type = CLI_I64, .number = retries_of(t) },
        { .name = "lost", .type = CLI_I64, .number = t->lost },
        { .name = "leased_by", .type = CLI_STR, .text = or_null(t->holder) },
        { .name = "leased_until",
          .type = leased ? CLI_STAMP : CLI_NULL,
          .number = t->leased_until_us,
          .flags = CLI_JSON_ONLY },
        { .name = "fence", .type = CLI_I64, .number = t->fence, .flags = CLI_JSON_ONLY },
        { .name = "deferred_until",
          .type = CLI_STAMP,
          .number = t->due_us,
          .flags = CLI_JSON_ONLY },
        { .name = "error", .type = CLI_STR, .text = or_null(t->error) },
        { .name = "event",
          .type = t->event == 0 ? CLI_NULL : CLI_I64,
          .number = t->event,
          .flags = CLI_JSON_ONLY },
        { .name = "reaction",
          .type = CLI_STR,
          .text = or_null(t->reaction),
          .flags = CLI_JSON_ONLY },
        { .name = "reactions",
          .type = CLI_RAW,
          .text = { .ptr = p->reactions.ptr, .len = p->reactions.len },
          .flags = CLI_JSON_ONLY },
    };

    (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Reads a page after the last one and prints it. */
static weir_status print_page(cli *c, page *p, weir_store *store, store_targets_query *q,
                              int64_t *left, weir_error *err)
{
    weir_status status;

    q->limit = *left < TARGETS_PAGE ? *left : TARGETS_PAGE;
    status = store->ops->targets(store, q, &p->targets, err);
    if (status == WEIR_OK) {
        status = store->ops->now(store, &p->now_us, err);
    }
    if (status == WEIR_OK) {
        status = find_oldest(p, store, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < p->targets.targets_count; i++) {
        if (!write_reactions(p, &p->targets.targets[i])) {
            return weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        print_target(c, p, i);
    }
    if (status == WEIR_OK) {
        *left -= (int64_t)p->targets.targets_count;
        weir__free(p->after);
        p->after = weir__strndup(p->targets.scanned_to.len == 0 ? "" : p->targets.scanned_to.ptr,
                                 p->targets.scanned_to.len);
        if (p->after == NULL) {
            return weir__fail(err, WEIR_ENOMEM, "out of memory");
        }
        q->after = (weir_str){ .ptr = p->after, .len = p->targets.scanned_to.len };
    }
    return status;
}

/* Prints all that fit; *count: how many. */
static weir_status print_all(cli *c, weir_store *store, store_targets_query *q, int64_t *count,
                             weir_error *err)
{
    page p = { 0 };
    const cli_given *limit = weir__cli_get(c, "limit");
    const int64_t most = limit == NULL ? INT64_MAX : limit->number;
    int64_t left = most;
    weir_status status = WEIR_OK;

    p.oldest_us = weir__calloc(TARGETS_PAGE, sizeof *p.oldest_us);
    if (p.oldest_us == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    p.targets.more = true;
    while (status == WEIR_OK && p.targets.more && left > 0 && !c->out.closed && !c->out.failed) {
        status = print_page(c, &p, store, q, &left, err);
    }
    *count = most - left;
    weir__free(p.after);
    weir__free(p.oldest_us);
    weir__free(p.items);
    weir__free(p.item_target);
    weir__buffer_free(&p.reactions);
    weir__arena_free(&p.targets.arena);
    weir__arena_free(&p.next.arena);
    return status;
}

static bool has_filter(const cli *c)
{
    return weir__cli_has(c, "match") || weir__cli_has(c, "source") || weir__cli_has(c, "lane") ||
           weir__cli_has(c, "blocked");
}

static int run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    store_pattern *match = NULL, *source = NULL;
    const cli_given *g_match = weir__cli_get(c, "match"), *g_source = weir__cli_get(c, "source");
    int64_t count = 0;
    weir_status status = WEIR_OK;

    if (g_match != NULL) {
        status = weir__pattern_open(&match, weir__str(g_match->text), &err);
    }
    if (status == WEIR_OK && g_source != NULL) {
        status = weir__pattern_open(&source, weir__str(g_source->text), &err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    }
    if (status == WEIR_OK) {
        store_targets_query q = {
            .filter = { .match = match, .source = source, .blocked = weir__cli_has(c, "blocked") }
        };
        q.filter.lane = weir__cli_text(c, "lane");
        status = print_all(c, weir__store(w), &q, &count, &err);
    }
    weir__pattern_close(match);
    weir__pattern_close(source);
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    /* Nothing is an answer, unless something was looked for. */
    if (count > 0 || c->out.closed || !has_filter(c)) {
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
        "exit status is 3.",
    .example = "weir targets --blocked\n"
               "weir targets --match 'mail-*' --lane default",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
