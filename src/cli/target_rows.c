/* target_rows.c - targets a page at a time, and how one is shown.
 *
 * A page of targets is read, then the next event of each subscription that is behind: its age is
 * the target's lag in seconds. Nothing is held between pages.
 */
#include "cli/operate.h"

#include "base/assert.h"

#include <assert.h>
#include <inttypes.h>

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

const char *weir__cli_state_text(cli_target_state state)
{
    static const char *const words[CLI_TARGET_STATES_COUNT] = {
        [CLI_TARGET_BLOCKED] = "blocked", [CLI_TARGET_RETRYING] = "retrying",
        [CLI_TARGET_PAUSED] = "paused",   [CLI_TARGET_DEFERRED] = "deferred",
        [CLI_TARGET_LEASED] = "leased",   [CLI_TARGET_READY] = "ready",
        [CLI_TARGET_IDLE] = "idle",
    };

    return words[state];
}

cli_target_state weir__cli_target_state(const store_target *t)
{
    switch (t->state) {
    case STORE_TARGET_LEASED:
        return CLI_TARGET_LEASED;
    case STORE_TARGET_BLOCKED:
        return CLI_TARGET_BLOCKED;
    case STORE_TARGET_PAUSED:
        return CLI_TARGET_PAUSED;
    case STORE_TARGET_DEFERRED:
        return t->event != 0 && t->error.len > 0 ? CLI_TARGET_RETRYING : CLI_TARGET_DEFERRED;
    case STORE_TARGET_READY:
        return CLI_TARGET_READY;
    case STORE_TARGET_IDLE:
        break;
    }
    return CLI_TARGET_IDLE;
}

bool weir__cli_is_beyond(const store_target *t, int64_t head, int64_t *position, int64_t *end)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        const int64_t at = s->at > s->mark ? s->at : s->mark;
        const int64_t bound = s->routed < head ? s->routed : head;
        if (!s->retired && at > bound) {
            if (position != NULL && end != NULL) {
                *position = at;
                *end = bound;
            }
            return true;
        }
    }
    return false;
}

bool weir__cli_is_routed_beyond(const store_reaction *r, const store_positions *at)
{
    return !r->retired && r->routed > at->head && r->routed > at->safe;
}

void weir__cli_note_routed_beyond(const cli *c, const store_reaction_list *reactions,
                                  const store_positions *at)
{
    for (size_t i = 0; i < reactions->reactions_count; i++) {
        const store_reaction *r = &reactions->reactions[i];
        if (weir__cli_is_routed_beyond(r, at)) {
            weir__cli_note(c,
                           "reaction %.*s is routed up to %" PRId64
                           ", beyond the end of the log (%" PRId64
                           "): nothing is routed for it; run weir doctor",
                           (int)r->name.len, r->name.ptr, r->routed, at->head);
        }
    }
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
        status = store->work->fetch(store, p->items + from, count, &p->next, err);
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
    report_json j = { .buffer = out };

    weir__buffer_clear(out);
    weir__report_json_open(&j, NULL, '[');
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        weir__report_json_open(&j, NULL, '{');
        weir__report_json_str(&j, "reaction", s->reaction_name);
        weir__report_json_i64(&j, "at", s->at);
        weir__report_json_i64(&j, "mark", s->mark);
        weir__report_json_i64(&j, "retries", s->retries);
        weir__report_json_close(&j, '}');
    }
    weir__report_json_close(&j, ']');
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

static report_field text_cell(const char *name, weir_str text, uint32_t flags, uint32_t rank)
{
    return (report_field){ .name = name,
                           .type = REPORT_STR,
                           .text = weir__cli_or_null(text),
                           .flags = flags,
                           .rank = rank };
}

static report_field number_cell(report_type type, const char *name, int64_t number, uint32_t flags,
                                uint32_t rank)
{
    return (
        report_field){ .name = name, .type = type, .number = number, .flags = flags, .rank = rank };
}

bool weir__cli_target_fields(const store_target *t, int64_t waited_us, weir_buffer *reactions,
                             report_field fields[CLI_TARGET_FIELDS_COUNT])
{
    enum { JSON = REPORT_JSON_ONLY, TEXT = REPORT_TEXT_ONLY };
    const char *state = weir__cli_state_text(weir__cli_target_state(t));

    if (!write_reactions(reactions, t)) {
        return false;
    }
    const weir_str list = { .ptr = reactions->ptr, .len = reactions->len };
    const int64_t lag = t->mark - t->watermark; /* negative where the log lost its end */
    const report_type event_type = t->event == 0 ? REPORT_NULL : REPORT_I64;
    const report_type waiting_type = waited_us == 0 ? REPORT_NULL : REPORT_SPAN;
    const report_field row[] = {
        text_cell("target", t->name, 0, 0),
        text_cell("lane", t->lane, 0, 5),
        number_cell(REPORT_I64, "priority", t->priority, 0, 8),
        { .name = "state", .type = REPORT_STATE, .text = weir__str(state) },
        number_cell(REPORT_I64, "position", t->watermark, TEXT, 6),
        number_cell(REPORT_I64, "watermark", t->watermark, JSON, 0),
        number_cell(REPORT_I64, "mark", t->mark, JSON, 0),
        number_cell(REPORT_COUNT, "lag", lag < 0 ? 0 : lag, 0, 1),
        number_cell(REPORT_I64, "lag_seconds", waited_us / 1000000, JSON, 0),
        number_cell(waiting_type, "waiting", waited_us, TEXT, 2),
        number_cell(REPORT_COUNT, "retries", retries_of(t), 0, 4),
        number_cell(REPORT_COUNT, "lost", t->lost, 0, 9),
        text_cell("leased_by", t->holder, 0, 7),
        number_cell(REPORT_TIME, "leased_until", t->leased_until_us, JSON, 0),
        number_cell(REPORT_I64, "fence", t->fence, JSON, 0),
        number_cell(REPORT_TIME, "deferred_until", t->due_us, JSON, 0),
        text_cell("error", t->error, JSON, 0),
        text_cell("error", weir__report_gist(t->error), TEXT, 3),
        number_cell(event_type, "event", t->event, JSON, 0),
        text_cell("reaction", t->reaction, JSON, 0),
        { .name = "reactions", .type = REPORT_RAW, .text = list, .flags = JSON },
    };
    static_assert(sizeof row / sizeof row[0] == CLI_TARGET_FIELDS_COUNT, "the header says so");
    memcpy(fields, row, sizeof row);
    return true;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Asks which of the page are wanted. *any: one is. */
static void columns_choose(page *p, bool *any)
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
    store_positions at = { 0 };
    weir_status status = WEIR_OK;

    if (p->sink->head != NULL) {
        status = store->log->positions(store, &at, err);
        if (status != WEIR_OK) {
            return status;
        }
        *p->sink->head = at.head;
    }
    columns_choose(p, &any);
    if (!any) {
        return WEIR_OK;
    }
    status = store->log->positions(store, &at, err);
    p->now_us = at.now_us;
    if (status == WEIR_OK) {
        status = find_oldest(p, store, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < p->targets.targets_count; i++) {
        store_target *t = &p->targets.targets[i];
        if (t->error.len == 0 && weir__cli_is_beyond(t, at.head, NULL, NULL)) {
            t->error = weir__str("its position is beyond the end of the log: run weir why");
        }
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
        status = store->work->targets(store, &q, &p->targets, err);
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
