/* check.c - every invariant of the store that can be checked by reading.
 *
 * Findings are collected under the mutex and told after it is released, because a callback may call
 * the store. At most FINDINGS_MAX are kept: after that many, one more says nothing new.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdarg.h>
#include <stdio.h>

enum { FINDINGS_MAX = 100, FINDING_BYTES_MAX = 256 };

/* Rule and text of every finding, each ended by a NUL. */
typedef struct findings {
    weir_buffer texts;
    size_t count;
    bool full; /* out of memory */
} findings;

static void find(findings *f, const char *rule, const char *format, ...) WEIR_PRINTF(3, 4);

static void find(findings *f, const char *rule, const char *format, ...)
{
    char text[FINDING_BYTES_MAX];
    va_list args;

    if (f->count >= FINDINGS_MAX) {
        return;
    }
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char end = '\0';
    f->full = f->full || len < 0 || !weir__buffer_add_text(&f->texts, rule) ||
              !weir__buffer_add(&f->texts, &end, 1) || !weir__buffer_add_text(&f->texts, text) ||
              !weir__buffer_add(&f->texts, &end, 1);
    f->count++;
}

static void check_log(const memory_core *c, findings *f)
{
    int64_t created_us = INT64_MIN;
    for (size_t i = 0; i < c->log_count; i++) {
        const memory_event *e = c->log[i / LOG_BLOCK_EVENTS][i % LOG_BLOCK_EVENTS];
        const int64_t id = c->position_base + (int64_t)i + 1;
        if (e->id != id) {
            find(f, "log", "The event at position %lld says it is at %lld.", (long long)id,
                 (long long)e->id);
        }
        if (e->created_us < created_us) {
            find(f, "log", "The event at position %lld is older than the one before it.",
                 (long long)id);
        }
        created_us = e->created_us;
    }
}

static void check_streams(const memory_core *c, findings *f)
{
    size_t cursor = 0, events = 0;
    for (table_item *item; (item = weir__table_next(&c->streams, &cursor)) != NULL;) {
        const memory_stream *s = (const memory_stream *)(const void *)item;
        events += s->events.count;
        for (size_t i = 0; i < s->events.count; i++) {
            const memory_event *e = s->events.items[i];
            if (e->stream != s || e->version != c->version_base + (int64_t)i) {
                find(f, "stream", "Version %lld of stream \"%.*s\" is not where it should be.",
                     (long long)e->version, (int)item->key.len, item->key.ptr);
            }
        }
        if (s->events.count == 0) {
            find(f, "stream", "Stream \"%.*s\" has no event.", (int)item->key.len, item->key.ptr);
        }
    }
    if (events != c->log_count) {
        find(f, "stream", "The streams have %zu events, the log has %zu.", events, c->log_count);
    }
    if (c->streams_by_name.count != c->streams.count ||
        !weir__name_index_is_sound(&c->streams_by_name)) {
        find(f, "order", "The order of the streams' names is broken.");
    }
}

/* Names or categories. */
static void check_words(const memory_core *c, const table *words, const char *what, findings *f)
{
    size_t cursor = 0, events = 0;
    for (table_item *item; (item = weir__table_next(words, &cursor)) != NULL;) {
        const event_list *list = &((const memory_word *)(const void *)item)->events;
        events += list->count;
        for (size_t i = 1; i < list->count; i++) {
            if (list->items[i - 1]->id >= list->items[i]->id) {
                find(f, "index", "The events of %s \"%.*s\" are out of order at %lld.", what,
                     (int)item->key.len, item->key.ptr, (long long)list->items[i]->id);
            }
        }
    }
    if (events != c->log_count) {
        find(f, "index", "All %s lists have %zu events, the log has %zu.", what, events,
             c->log_count);
    }
}

static void check_reactions(const memory_core *c, findings *f)
{
    for (size_t i = 0; i < c->reactions_count; i++) {
        const memory_reaction *r = c->reactions[i];
        const weir_str name = weir__memory_reaction_name(r);
        if (r->state.routed < r->state.since) {
            find(f, "reaction", "Reaction \"%.*s\" is routed up to %lld, before it began at %lld.",
                 (int)name.len, name.ptr, (long long)r->state.routed, (long long)r->state.since);
        }
        if (!weir__ordered_is_sound(&r->by_value) || !weir__ordered_is_sound(&r->work)) {
            find(f, "order", "The order of what reaction \"%.*s\" has is broken.", (int)name.len,
                 name.ptr);
        }
    }
}

static void check_subscription(memory_subscription *s, findings *f)
{
    const weir_str name = s->target->item.key;
    const ordered_node *first = weir__ordered_first(&s->work);

    if (s->state.at > s->state.mark) {
        find(f, "subscription", "Target \"%.*s\" is at %lld, above its mark %lld.", (int)name.len,
             name.ptr, (long long)s->state.at, (long long)s->state.mark);
    }
    if (first != NULL && ORDERED_ITEM_CONST(first, memory_work, by_event)->event <= s->state.at) {
        find(f, "work", "Target \"%.*s\" has a work row for an event it has handled.",
             (int)name.len, name.ptr);
    }
    const bool should =
        s->state.has_work && (s->target->placed == PLACED_READY || s->target->placed == PLACED_DUE);
    if (s->placed != should) {
        find(f, "placement", "A subscription of target \"%.*s\" is not where it should be.",
             (int)name.len, name.ptr);
    }
}

static placement placement_due(const memory_target *t)
{
    const struct target_state *state = &t->state;
    if (state->leased && !state->lapsed) {
        return PLACED_LEASED;
    }
    if (!state->behind || state->blocked || state->paused) {
        return PLACED_NOWHERE;
    }
    return state->due_us != 0 ? PLACED_DUE : PLACED_READY;
}

static void check_target(memory_target *t, findings *f)
{
    const struct target_state was = t->state;
    size_t sent_back = 0;

    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        const bool has_work = s->state.has_work;
        sent_back += (size_t)s->state.sent_back;
        check_subscription(s, f);
        weir__memory_derive(t);
        if (s->state.has_work != has_work) {
            find(f, "derived", "A subscription of target \"%.*s\" is wrong about having work.",
                 (int)t->item.key.len, t->item.key.ptr);
        }
        s->state.has_work = has_work; /* as found: what is placed depends on it */
    }
    if (t->state.behind != was.behind || t->state.watermark != was.watermark ||
        t->state.priority != was.priority) {
        find(f, "derived", "Target \"%.*s\" is out of step with its subscriptions.",
             (int)t->item.key.len, t->item.key.ptr);
    }
    t->state = was;
    if (t->sent_back.count != sent_back) {
        find(f, "parked", "Target \"%.*s\" is wrong about what was sent back.",
             (int)t->item.key.len, t->item.key.ptr);
    }
    if (t->placed != placement_due(t)) {
        find(f, "placement", "Target \"%.*s\" is not where leasing looks for it.",
             (int)t->item.key.len, t->item.key.ptr);
    }
}

static void check_targets(memory_core *c, findings *f)
{
    size_t cursor = 0;
    for (size_t i = 0; i < c->targets_count; i++) {
        check_target(c->targets[i], f);
    }
    if (c->targets_sorted.count != c->targets_count ||
        c->targets_by_name.count != c->targets_count ||
        !weir__name_index_is_sound(&c->targets_sorted)) {
        find(f, "order", "The order of the targets' names is broken.");
    }
    if (!weir__ordered_is_sound(&c->parked) || !weir__ordered_is_sound(&c->parked_by_event) ||
        c->parked.count != c->parked_by_event.count) {
        find(f, "order", "The order of the parked events is broken.");
    }
    for (table_item *item; (item = weir__table_next(&c->lanes, &cursor)) != NULL;) {
        const memory_lane *lane = (const memory_lane *)(const void *)item;
        bool sound = weir__ordered_is_sound(&lane->leases);
        for (size_t i = 0; i < lane->works_count; i++) {
            const lane_work *w = lane->works[i];
            sound = sound && weir__ordered_is_sound(&w->by_priority) &&
                    weir__ordered_is_sound(&w->by_rank) && weir__ordered_is_sound(&w->by_due) &&
                    w->by_priority.count == w->by_rank.count;
        }
        if (!sound) {
            find(f, "order", "The order of lane \"%.*s\" is broken.", (int)item->key.len,
                 item->key.ptr);
        }
    }
}

weir_status weir__memory_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    memory_core *c = h->core;
    findings f = { 0 };

    weir__lock(&h->core->mu);
    check_log(c, &f);
    check_streams(c, &f);
    check_words(c, &c->names, "name", &f);
    check_words(c, &c->categories, "category", &f);
    check_reactions(c, &f);
    check_targets(c, &f);
    weir__unlock(&h->core->mu);

    const char *at = f.texts.ptr;
    for (size_t i = 0; i < f.count && !f.full; i++) {
        const char *rule = at;
        const char *text = rule + strlen(rule) + 1;
        fn(ctx, rule, text, "This is an error in Weir; please report it.");
        at = text + strlen(text) + 1;
    }
    weir__buffer_free(&f.texts);
    return f.full ? weir__memory_full(err) : WEIR_OK;
}
