/* inspect.c - looking at targets and lanes, and what a process needs to know to sleep well. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

/* ---- targets ------------------------------------------------------------------------------ */

bool weir__memory_filter_accepts(const store_target_filter *f, const memory_target *t)
{
    if ((f->blocked && !t->state.blocked) ||
        (f->lane.len > 0 && !weir__str_equal(f->lane, t->lane->item.key)) ||
        (f->match != NULL && !weir__pattern_matches(f->match, t->item.key))) {
        return false;
    }
    if (f->source == NULL) {
        return true;
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        if (weir__pattern_matches(f->source, t->subscriptions[i]->state.source)) {
            return true;
        }
    }
    return false;
}

static bool subscription_fill(const memory_subscription *s, weir_arena *arena,
                              store_subscription *out)
{
    *out = (store_subscription){
        .reaction = s->reaction->id,
        .at = s->state.at,
        .mark = s->state.mark,
        .retries = s->state.retries,
        .priority = s->state.priority,
        .retired = s->reaction->state.retired,
        .routed = s->reaction->state.reread_to > s->reaction->state.routed
                      ? s->reaction->state.reread_to
                      : s->reaction->state.routed,
    };
    return weir__memory_text_copy(arena, weir__memory_reaction_name(s->reaction),
                                  &out->reaction_name) &&
           weir__memory_text_copy(arena, s->state.source, &out->source) &&
           weir__memory_text_copy(arena, s->state.value, &out->value);
}

static bool target_texts(const memory_target *t, bool live, weir_arena *arena, store_target *out)
{
    const struct target_state *state = &t->state;
    const weir_str none = { 0 };
    const weir_str reaction =
        state->failed == NULL ? none : weir__memory_reaction_name(state->failed);
    return weir__memory_text_copy(arena, t->item.key, &out->name) &&
           weir__memory_text_copy(arena, t->lane->item.key, &out->lane) &&
           weir__memory_text_copy(arena, live ? state->holder : none, &out->holder) &&
           weir__memory_text_copy(arena, state->error, &out->error) &&
           weir__memory_text_copy(arena, reaction, &out->reaction) &&
           weir__memory_text_copy(arena, state->paused_by, &out->paused_by);
}

static bool target_fill(const memory_target *t, int64_t now_us, weir_arena *arena,
                        store_target *out)
{
    const struct target_state *state = &t->state;
    const bool live = state->leased && state->until_us > now_us;
    store_subscription *subs = weir__arena_alloc(arena, t->subscriptions_count * sizeof *subs);

    *out = (store_target){
        .id = t->id,
        .priority = state->priority,
        .prioritized = state->prioritized,
        .state = weir__memory_target_state(t, now_us),
        .watermark = state->watermark,
        .lost = state->lost,
        .fence = state->fence,
        .behind = state->behind,
        .leased_until_us = live ? state->until_us : 0,
        .due_us = state->due_us > now_us ? state->due_us : 0,
        .blocked = state->blocked,
        .blocked_us = state->blocked_us,
        .event = state->event,
        .attempts = state->attempts,
        .paused = state->paused,
        .subscriptions = subs,
        .subscriptions_count = t->subscriptions_count,
    };
    if (subs == NULL || !target_texts(t, live, arena, out)) {
        return false;
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        if (!subscription_fill(t->subscriptions[i], arena, &subs[i])) {
            return false;
        }
        out->mark = subs[i].mark > out->mark ? subs[i].mark : out->mark;
    }
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const memory_target *x = *(memory_target *const *)a;
    const memory_target *y = *(memory_target *const *)b;
    return weir__str_compare(x->item.key, y->item.key);
}

memory_target **weir__memory_named_targets(const memory_core *c, const store_target_filter *f,
                                           weir_arena *arena, size_t *count)
{
    memory_target **found = weir__arena_alloc(arena, f->names_count * sizeof(memory_target *));
    size_t all = 0;

    *count = 0;
    for (size_t i = 0; found != NULL && i < f->names_count; i++) {
        memory_target *t = weir__memory_target_find(c, f->names[i]);
        if (t != NULL) {
            found[all++] = t;
        }
    }
    if (all > 0) {
        qsort(found, all, sizeof(memory_target *), compare_names);
    }
    for (size_t i = 0; i < all; i++) {
        if (i == 0 || found[i] != found[i - 1]) {
            found[(*count)++] = found[i];
        }
    }
    return found;
}

/* A walk over targets in the order of their names: those that were named, or all. */
typedef struct target_walk {
    memory_target **named; /* in the arena; NULL: all */
    size_t named_count, named_index;
    name_cursor cursor;
    weir_str prefix; /* what every name that fits begins with */
} target_walk;

static bool walk_start(const memory_core *c, const store_targets_query *q, weir_arena *arena,
                       target_walk *w)
{
    const store_target_filter *f = &q->filter;

    if (f->names_count > 0) {
        w->named = weir__memory_named_targets(c, f, arena, &w->named_count);
        while (w->named != NULL && w->named_index < w->named_count &&
               weir__str_compare(w->named[w->named_index]->item.key, q->after) <= 0) {
            w->named_index++;
        }
        return w->named != NULL;
    }
    if (f->match != NULL && (f->match->kind == PATTERN_EXACT || f->match->kind == PATTERN_PREFIX)) {
        w->prefix = f->match->name;
    }
    const bool jump = weir__str_compare(w->prefix, q->after) > 0;
    w->cursor = weir__name_index_seek(&c->targets_sorted, jump ? w->prefix : q->after, !jump);
    return true;
}

/* The target the walk stands on; NULL: it is at its end. */
static memory_target *walk_target(const target_walk *w)
{
    if (w->named != NULL) {
        return w->named_index < w->named_count ? w->named[w->named_index] : NULL;
    }
    memory_target *t = (memory_target *)(void *)weir__name_index_item(&w->cursor);
    return t != NULL && weir__str_starts_with(t->item.key, w->prefix) ? t : NULL;
}

static void walk_next(target_walk *w)
{
    if (w->named != NULL) {
        w->named_index++;
    } else {
        weir__name_index_next(&w->cursor);
    }
}

static weir_status targets_locked(memory_handle *h, const store_targets_query *q,
                                  store_targets_chunk *chunk, weir_error *err)
    WEIR_REQUIRES(h->core->mu)
{
    const memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    const size_t max = q->limit < CHUNK_NAMES_MAX ? (size_t)q->limit : CHUNK_NAMES_MAX;
    weir_str scanned_to = q->after;
    target_walk w = { 0 };
    memory_target *t;

    weir__arena_reset(&chunk->arena);
    chunk->targets_count = 0;
    chunk->targets = weir__arena_alloc(&chunk->arena, max * sizeof *chunk->targets);
    if (chunk->targets == NULL || !walk_start(c, q, &chunk->arena, &w)) {
        return weir__memory_full(err);
    }
    for (int looked = 0; (t = walk_target(&w)) != NULL; looked++) {
        if (looked == CHUNK_NAMES_MAX || chunk->targets_count == max) {
            break;
        }
        if (weir__memory_filter_accepts(&q->filter, t) &&
            !target_fill(t, now_us, &chunk->arena, &chunk->targets[chunk->targets_count++])) {
            return weir__memory_full(err);
        }
        scanned_to = t->item.key;
        walk_next(&w);
    }
    chunk->more = t != NULL;
    return weir__memory_text_copy(&chunk->arena, scanned_to, &chunk->scanned_to)
               ? WEIR_OK
               : weir__memory_full(err);
}

weir_status weir__memory_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = targets_locked(h, q, chunk, err);
    weir__unlock(&h->core->mu);
    return status;
}

int64_t weir__memory_blocked_count(const memory_core *c)
{
    int64_t blocked = 0;
    for (size_t i = 0; i < c->targets_count; i++) {
        blocked += c->targets[i]->state.blocked;
    }
    return blocked;
}

/* ---- lanes -------------------------------------------------------------------------------- */

static int compare_lanes(const void *a, const void *b)
{
    return weir__str_compare(((const store_lane *)a)->lane, ((const store_lane *)b)->lane);
}

static int compare_lane_name(const void *key, const void *lane)
{
    return weir__str_compare(*(const weir_str *)key, ((const store_lane *)lane)->lane);
}

static void lane_count(store_lane *lane, const memory_target *t, int64_t now_us)
{
    lane->targets++;
    switch (weir__memory_target_state(t, now_us)) {
    case STORE_TARGET_LEASED:
        lane->leased++;
        break;
    case STORE_TARGET_BLOCKED:
        lane->blocked++;
        break;
    case STORE_TARGET_DEFERRED:
        if (t->state.event != 0 && t->state.error.len > 0) {
            lane->retrying++;
        } else {
            lane->deferred++;
        }
        break;
    case STORE_TARGET_READY:
        lane->ready++;
        break;
    case STORE_TARGET_PAUSED:
    case STORE_TARGET_IDLE:
        break;
    }
}

/* Takes what waits for a target into account; lane->oldest_us is the least `at` for now, or -1. */
static void lane_lag(store_lane *lane, const memory_target *t)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const struct subscription_state *s = &t->subscriptions[i]->state;
        if (t->subscriptions[i]->reaction->state.retired || s->at >= s->mark) {
            continue;
        }
        lane->lag = s->mark - s->at > lane->lag ? s->mark - s->at : lane->lag;
        lane->oldest_us = lane->oldest_us < 0 || s->at < lane->oldest_us ? s->at : lane->oldest_us;
    }
}

/* When the first event behind a position was created. */
static int64_t created_behind(const memory_core *c, int64_t position)
{
    const int64_t after = position < c->position_base ? c->position_base : position;
    return after < weir__memory_head(c) ? weir__memory_event_at(c, after + 1)->created_us : 0;
}

/* Every lane that is known, in the order of their names, nothing counted yet. */
static bool lanes_fill(const memory_core *c, store_lane_list *list)
{
    size_t cursor = 0;
    list->lanes_count = 0;
    list->lanes = weir__arena_alloc(&list->arena, c->lanes.count * sizeof *list->lanes);
    if (list->lanes == NULL) {
        return false;
    }
    for (table_item *item; (item = weir__table_next(&c->lanes, &cursor)) != NULL;) {
        const memory_lane *lane = (const memory_lane *)(const void *)item;
        store_lane *out = &list->lanes[list->lanes_count++];
        *out = (store_lane){ .paused = lane->paused, .oldest_us = -1 };
        if (!weir__memory_text_copy(&list->arena, lane->item.key, &out->lane) ||
            !weir__memory_text_copy(&list->arena, lane->paused_by, &out->paused_by)) {
            return false;
        }
    }
    if (list->lanes_count > 0) {
        qsort(list->lanes, list->lanes_count, sizeof *list->lanes, compare_lanes);
    }
    return true;
}

static weir_status lanes_locked(memory_handle *h, store_lane_list *list, weir_error *err)
    WEIR_REQUIRES(h->core->mu)
{
    const memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    size_t kept = 0;

    weir__arena_reset(&list->arena);
    if (!lanes_fill(c, list)) {
        list->lanes_count = 0;
        return weir__memory_full(err);
    }
    for (size_t i = 0; i < c->targets_count; i++) {
        const memory_target *t = c->targets[i];
        store_lane *lane = bsearch(&t->lane->item.key, list->lanes, list->lanes_count,
                                   sizeof *list->lanes, compare_lane_name);
        lane_count(lane, t, now_us);
        lane_lag(lane, t);
    }
    for (size_t i = 0; i < list->lanes_count; i++) {
        store_lane *lane = &list->lanes[i];
        lane->oldest_us = lane->oldest_us < 0 ? 0 : created_behind(c, lane->oldest_us);
        if (lane->targets > 0 || weir__memory_lane_find(c, lane->lane)->was_paused) {
            list->lanes[kept++] = *lane;
        }
    }
    list->lanes_count = kept;
    return WEIR_OK;
}

weir_status weir__memory_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = lanes_locked(h, list, err);
    weir__unlock(&h->core->mu);
    return status;
}

/* ---- poll --------------------------------------------------------------------------------- */

static void poll_lane(memory_lane *lane, store_poll *poll)
{
    if (lane->paused) {
        return; /* nothing of it can be leased, now or later */
    }
    weir__memory_lane_sweep(lane, poll->now_us);
    for (const ordered_node *n = weir__ordered_first(&lane->leases); n != NULL;
         n = weir__ordered_next(&lane->leases, n)) {
        const struct target_state *state = &ORDERED_ITEM_CONST(n, memory_target, by_lease)->state;
        if (state->behind && !state->blocked && !state->paused && state->due_us == 0) {
            poll->lease_end_us =
                state->until_us < poll->lease_end_us ? state->until_us : poll->lease_end_us;
            break;
        }
    }
    for (size_t i = 0; i < lane->works_count; i++) {
        lane_work *w = lane->works[i];
        for (const ordered_node *n = weir__ordered_first(&w->by_due); n != NULL;
             n = weir__ordered_next(&w->by_due, n)) {
            const int64_t due_us =
                ORDERED_ITEM_CONST(n, memory_subscription, by_order)->target->state.due_us;
            if (due_us > poll->now_us) {
                poll->due_us = due_us < poll->due_us ? due_us : poll->due_us;
                break;
            }
            poll->ready = true;
        }
        poll->ready = poll->ready || w->by_rank.count > 0;
    }
}

weir_status weir__memory_poll(weir_store *base, store_poll *poll, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    memory_core *c = h->core;
    store_poll answer = {
        .lane = poll->lane,
        .routed_least = INT64_MAX,
        .due_us = INT64_MAX,
        .lease_end_us = INT64_MAX,
        .router_end_us = INT64_MAX,
    };
    size_t cursor = 0;

    (void)err;
    weir__lock(&h->core->mu);
    answer.now_us = weir__memory_now(h);
    answer.head = weir__memory_head(c);
    answer.safe = answer.head;
    memcpy(answer.epoch, c->epoch, sizeof answer.epoch);
    memcpy(answer.log, c->epoch, sizeof answer.log);
    for (size_t i = 0; i < c->reactions_count; i++) {
        const struct reaction_state *r = &c->reactions[i]->state;
        if (!r->retired && r->routed < answer.routed_least) {
            answer.routed_least = r->routed;
        }
        if (r->router_until_us > answer.now_us && r->router_until_us < answer.router_end_us) {
            answer.router_end_us = r->router_until_us;
        }
    }
    if (poll->lane.len > 0) {
        memory_lane *lane = weir__memory_lane_find(c, poll->lane);
        if (lane != NULL) {
            poll_lane(lane, &answer);
        }
    } else {
        for (table_item *item; (item = weir__table_next(&c->lanes, &cursor)) != NULL;) {
            poll_lane((memory_lane *)(void *)item, &answer);
        }
    }
    weir__unlock(&h->core->mu);
    if (answer.ready) {
        answer.lease_end_us = INT64_MAX;
    }
    *poll = answer;
    return WEIR_OK;
}
