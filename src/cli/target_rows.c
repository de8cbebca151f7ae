/* target_rows.c - targets a page at a time, and how one is shown.
 *
 * A page of targets is read, then the next event of each subscription that is behind: its age is
 * the target's lag in seconds. Nothing is held between pages.
 */
#include "cli/operate.h"

#include "base/assert.h"

#include <assert.h>

enum { TARGETS_PAGE = 200 };

typedef struct page {
    const cli_target_sink *sink;
    store_targets_chunk targets;
    store_fetch_list next;   /* of each subscription that is behind */
    store_fetch_item *items; /* owned */
    size_t *item_target;     /* owned: index of the item's target in the page */
    size_t items_count, items_capacity;
    bool wanted[TARGETS_PAGE];
    int64_t oldest_us[TARGETS_PAGE]; /* per target, 0: nothing waits */
    char *after;                     /* owned: where the next page begins */
    int64_t now_us;
    bool ended; /* the sink has had enough */
} page;

const char *weir__cli_state_text(store_target_state state)
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

weir_str weir__cli_or_null(weir_str text)
{
    return (weir_str){ .ptr = text.len == 0 ? NULL : text.ptr, .len = text.len };
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
        for (size_t k = 0; status == WEIR_OK && p->wanted[i] && k < t->subscriptions_count; k++) {
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

static bool write_reactions(weir_buffer *out, const store_target *t)
{
    cli_json j = { .buffer = out };

    weir__buffer_clear(out);
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

bool weir__cli_target_fields(const store_target *t, int64_t waited_us, weir_buffer *reactions,
                             cli_field fields[CLI_TARGET_FIELDS_COUNT])
{
    if (!write_reactions(reactions, t)) {
        return false;
    }
    const bool leased = t->holder.len > 0;
    const cli_field row[] = {
        { .name = "target", .type = CLI_STR, .text = t->name },
        { .name = "lane", .type = CLI_STR, .text = t->lane },
        { .name = "priority", .type = CLI_I64, .number = t->priority },
        { .name = "state", .type = CLI_STR, .text = weir__str(weir__cli_state_text(t->state)) },
        { .name = "watermark", .type = CLI_I64, .number = t->watermark },
        { .name = "mark", .type = CLI_I64, .number = t->mark },
        { .name = "lag", .type = CLI_I64, .number = t->mark - t->watermark },
        { .name = "lag_seconds", .type = CLI_I64, .number = waited_us / 1000000 },
        { .name = "retries", .type = CLI_I64, .number = retries_of(t) },
        { .name = "lost", .type = CLI_I64, .number = t->lost },
        { .name = "leased_by", .type = CLI_STR, .text = weir__cli_or_null(t->holder) },
        { .name = "leased_until",
          .type = leased ? CLI_STAMP : CLI_NULL,
          .number = t->leased_until_us,
          .flags = CLI_JSON_ONLY },
        { .name = "fence", .type = CLI_I64, .number = t->fence, .flags = CLI_JSON_ONLY },
        { .name = "deferred_until",
          .type = CLI_STAMP,
          .number = t->due_us,
          .flags = CLI_JSON_ONLY },
        { .name = "error", .type = CLI_STR, .text = weir__cli_or_null(t->error) },
        { .name = "event",
          .type = t->event == 0 ? CLI_NULL : CLI_I64,
          .number = t->event,
          .flags = CLI_JSON_ONLY },
        { .name = "reaction",
          .type = CLI_STR,
          .text = weir__cli_or_null(t->reaction),
          .flags = CLI_JSON_ONLY },
        { .name = "reactions",
          .type = CLI_RAW,
          .text = { .ptr = reactions->ptr, .len = reactions->len },
          .flags = CLI_JSON_ONLY },
    };
    static_assert(sizeof row / sizeof row[0] == CLI_TARGET_FIELDS_COUNT, "the header says so");
    memcpy(fields, row, sizeof row);
    return true;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Asks which of the page are wanted. *any: one is. */
static void choose(page *p, bool *any)
{
    *any = false;
    for (size_t i = 0; i < p->targets.targets_count; i++) {
        p->wanted[i] = p->sink->wants == NULL && !p->ended;
        if (p->sink->wants != NULL && !p->ended) {
            p->ended = !p->sink->wants(p->sink->ctx, &p->targets.targets[i], &p->wanted[i]);
        }
        *any = *any || p->wanted[i];
    }
}

static weir_status give_page(page *p, weir_store *store, weir_error *err)
{
    bool any = false;
    weir_status status = WEIR_OK;

    choose(p, &any);
    if (!any) {
        return WEIR_OK;
    }
    status = store->ops->now(store, &p->now_us, err);
    if (status == WEIR_OK) {
        status = find_oldest(p, store, err);
    }
    bool go_on = true;
    for (size_t i = 0; status == WEIR_OK && go_on && i < p->targets.targets_count; i++) {
        if (p->wanted[i]) {
            const int64_t waited_us = p->oldest_us[i] == 0 ? 0 : p->now_us - p->oldest_us[i];
            go_on =
                p->sink->row(p->sink->ctx, &p->targets.targets[i], waited_us < 0 ? 0 : waited_us);
        }
    }
    p->ended = p->ended || !go_on;
    return status;
}

/* Keeps where the next page begins: the names of this one end with it. */
static weir_status turn_page(page *p, store_targets_query *q, weir_error *err)
{
    const weir_str to = p->targets.scanned_to;

    weir__free(p->after);
    p->after = weir__strndup(to.len == 0 ? "" : to.ptr, to.len);
    q->after = (weir_str){ .ptr = p->after, .len = to.len };
    return p->after == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
}

weir_status weir__cli_targets_each(weir_store *store, const store_target_filter *filter,
                                   int64_t limit, const cli_target_sink *sink, weir_error *err)
{
    page *p = weir__calloc(1, sizeof *p);
    store_targets_query q = { .filter = *filter };
    int64_t left = limit;
    weir_status status = WEIR_OK;

    if (p == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    p->sink = sink;
    p->targets.more = true;
    while (status == WEIR_OK && p->targets.more && left > 0 && !p->ended) {
        q.limit = left < TARGETS_PAGE ? left : TARGETS_PAGE;
        status = store->ops->targets(store, &q, &p->targets, err);
        if (status == WEIR_OK) {
            WEIR_ASSERT(p->targets.targets_count <= TARGETS_PAGE);
            left -= (int64_t)p->targets.targets_count;
            status = give_page(p, store, err);
        }
        if (status == WEIR_OK) {
            status = turn_page(p, &q, err);
        }
    }
    weir__free(p->after);
    weir__free(p->items);
    weir__free(p->item_target);
    weir__arena_free(&p->targets.arena);
    weir__arena_free(&p->next.arena);
    weir__free(p);
    return status;
}
