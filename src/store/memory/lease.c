/* lease.c - handing out targets: who may work on what, in which order.
 *
 * Candidates are found in the sets of the lane's reactions that the caller knows (lane_work),
 * merged: each set is a cursor that stands on its best candidate, and every step takes the best of
 * all cursors. Targets whose due time has passed are at most `limit`, collected first and then
 * merged like one more cursor. So a call looks at what it takes, at one more for every reaction,
 * and never at targets that are blocked, paused, deferred, leased or only behind by reactions it
 * does not know.
 *
 * Choosing changes nothing but picked_serial, which marks what has been chosen; taking is done
 * afterwards, as a transaction.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum lease_order {
    ORDER_LEADING,  /* rank descending, id descending */
    ORDER_LAGGING,  /* rank, id                       */
    ORDER_PRIORITY, /* priority descending, rank, id  */
} lease_order;

typedef struct lease_cursor {
    lane_work *work; /* borrowed */
    ordered_node *node;
} lease_cursor;

/* One lease call. Arrays are in the arena of the list. */
typedef struct leasing {
    memory_core *core;
    const store_lease_request *request;
    int64_t now_us;
    lease_cursor *cursors;
    size_t cursors_count;
    memory_target **due; /* whose due time has passed: the first by (due, id), at most `limit` */
    size_t due_count, due_index;
    memory_target **chosen;
    size_t chosen_count;
    memory_target *blocked; /* lost too many leases: linked by picked_next */
} leasing;

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_targets(const memory_target *a, const memory_target *b, lease_order order)
{
    int result = 0;
    if (order == ORDER_PRIORITY) {
        result = compare_i64(b->state.priority, a->state.priority);
    }
    if (result == 0) {
        result = compare_i64(weir__memory_rank(a), weir__memory_rank(b));
    }
    if (result == 0) {
        result = compare_i64(a->id, b->id);
    }
    return order == ORDER_LEADING ? -result : result;
}

static int compare_leading(const void *a, const void *b)
{
    return compare_targets(*(memory_target *const *)a, *(memory_target *const *)b, ORDER_LEADING);
}

static int compare_lagging(const void *a, const void *b)
{
    return compare_targets(*(memory_target *const *)a, *(memory_target *const *)b, ORDER_LAGGING);
}

static int compare_priority(const void *a, const void *b)
{
    return compare_targets(*(memory_target *const *)a, *(memory_target *const *)b, ORDER_PRIORITY);
}

/* ---- cursors ------------------------------------------------------------------------------ */

static bool knows(const store_lease_request *r, const memory_reaction *reaction)
{
    if (r->all_reactions) {
        return true;
    }
    for (size_t i = 0; i < r->known_count; i++) {
        if (r->known[i].reaction == reaction->id) {
            return r->known[i].number == weir__memory_current(reaction)->number;
        }
    }
    return false;
}

static memory_target *ordered_target(const ordered_node *n)
{
    return ORDERED_ITEM_CONST(n, memory_subscription, by_order)->target;
}

static memory_target *cursor_target(const lease_cursor *cursor, lease_order order)
{
    if (cursor->node == NULL) {
        return NULL;
    }
    return order == ORDER_PRIORITY
               ? ORDERED_ITEM(cursor->node, memory_subscription, by_priority)->target
               : ordered_target(cursor->node);
}

static void cursor_start(lease_cursor *cursor, lease_order order)
{
    lane_work *w = cursor->work;
    switch (order) {
    case ORDER_LEADING:
        cursor->node = weir__ordered_last(&w->by_rank);
        break;
    case ORDER_LAGGING:
        cursor->node = weir__ordered_first(&w->by_rank);
        break;
    case ORDER_PRIORITY:
        cursor->node = weir__ordered_first(&w->by_priority);
        break;
    }
}

static void cursor_advance(lease_cursor *cursor, lease_order order)
{
    lane_work *w = cursor->work;
    switch (order) {
    case ORDER_LEADING:
        cursor->node = weir__ordered_previous(&w->by_rank, cursor->node);
        break;
    case ORDER_LAGGING:
        cursor->node = weir__ordered_next(&w->by_rank, cursor->node);
        break;
    case ORDER_PRIORITY:
        cursor->node = weir__ordered_next(&w->by_priority, cursor->node);
        break;
    }
}

/* ---- choosing ----------------------------------------------------------------------------- */

static bool is_picked(const leasing *l, const memory_target *t)
{
    return t->picked_serial == l->core->pick_serial;
}

/* The best candidate of a step that has not been picked; NULL: there are no more. */
static memory_target *next_candidate(leasing *l, lease_order order)
{
    memory_target *best = NULL;

    for (size_t i = 0; i < l->cursors_count; i++) {
        lease_cursor *cursor = &l->cursors[i];
        memory_target *t = cursor_target(cursor, order);
        while (t != NULL && is_picked(l, t)) {
            cursor_advance(cursor, order);
            t = cursor_target(cursor, order);
        }
        if (t != NULL && (best == NULL || compare_targets(t, best, order) < 0)) {
            best = t;
        }
    }
    while (l->due_index < l->due_count && is_picked(l, l->due[l->due_index])) {
        l->due_index++;
    }
    if (l->due_index < l->due_count) {
        memory_target *t = l->due[l->due_index];
        if (best == NULL || compare_targets(t, best, order) < 0) {
            best = t;
        }
    }
    return best;
}

static void choose(leasing *l, lease_order order, size_t wanted)
{
    static int (*const compare[])(const void *, const void *) = {
        [ORDER_LEADING] = compare_leading,
        [ORDER_LAGGING] = compare_lagging,
        [ORDER_PRIORITY] = compare_priority,
    };
    const store_lease_request *r = l->request;
    size_t taken = 0;

    if (wanted > r->limit - l->chosen_count) {
        wanted = r->limit - l->chosen_count;
    }
    if (wanted == 0) {
        return;
    }
    for (size_t i = 0; i < l->cursors_count; i++) {
        cursor_start(&l->cursors[i], order);
    }
    qsort(l->due, l->due_count, sizeof(memory_target *), compare[order]);
    l->due_index = 0;
    while (taken < wanted) {
        memory_target *t = next_candidate(l, order);
        if (t == NULL) {
            return;
        }
        t->picked_serial = l->core->pick_serial;
        if (t->state.leased && r->lost_max > 0 && t->state.lost + 1 >= r->lost_max) {
            t->picked_next = l->blocked;
            l->blocked = t;
        } else {
            l->chosen[l->chosen_count++] = t;
            taken++;
        }
    }
}

/* Merges the sets of deferred targets up to now. They are not picked by this: picking uses its own
 * serial, so that one that is not taken stays a candidate of the next step. */
static void collect_due(leasing *l)
{
    l->core->pick_serial++;
    for (size_t i = 0; i < l->cursors_count; i++) {
        l->cursors[i].node = weir__ordered_first(&l->cursors[i].work->by_due);
    }
    while (l->due_count < l->request->limit) {
        memory_target *best = NULL;
        for (size_t i = 0; i < l->cursors_count; i++) {
            lease_cursor *cursor = &l->cursors[i];
            while (cursor->node != NULL && is_picked(l, ordered_target(cursor->node))) {
                cursor->node = weir__ordered_next(&cursor->work->by_due, cursor->node);
            }
            memory_target *t = cursor->node == NULL ? NULL : ordered_target(cursor->node);
            if (t != NULL && t->state.due_us <= l->now_us &&
                (best == NULL || t->state.due_us < best->state.due_us ||
                 (t->state.due_us == best->state.due_us && t->id < best->id))) {
                best = t;
            }
        }
        if (best == NULL) {
            break;
        }
        best->picked_serial = l->core->pick_serial;
        l->due[l->due_count++] = best;
    }
    l->core->pick_serial++;
}

/* ---- taking ------------------------------------------------------------------------------- */

static bool block_lost(leasing *l, memory_target *t)
{
    char reason[64];
    if (!weir__tx_edit(l->core, t)) {
        return false;
    }
    t->state.lost++;
    const int len = snprintf(reason, sizeof reason, "lost its lease %lld times in a row",
                             (long long)t->state.lost);
    t->state.blocked = true;
    t->state.blocked_us = l->now_us;
    t->state.event = 0;
    t->state.attempts = 0;
    t->state.failed = NULL;
    return weir__memory_lease_end(l->core, t) &&
           weir__tx_set_text(l->core, &t->state.error,
                             (weir_str){ .ptr = reason, .len = (size_t)len });
}

/* The work of a target that the caller knows. */
static bool fill_work(const leasing *l, memory_target *t, weir_arena *arena, store_leased *out)
{
    store_leased_subscription *subs =
        weir__arena_alloc(arena, t->subscriptions_count * sizeof *subs);
    store_sent_back *sent = weir__arena_alloc(arena, t->sent_back.count * sizeof *sent);
    if (subs == NULL || sent == NULL) {
        return false;
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const memory_subscription *s = t->subscriptions[i];
        if (s->reaction->state.retired || s->state.at >= s->state.mark ||
            !knows(l->request, s->reaction)) {
            continue;
        }
        store_leased_subscription *sub = &subs[out->subscriptions_count++];
        *sub = (store_leased_subscription){ .reaction = s->reaction->id,
                                            .at = s->state.at,
                                            .mark = s->state.mark,
                                            .retries = s->state.retries };
        if (!weir__memory_text_copy(arena, s->state.source, &sub->source) ||
            !weir__memory_text_copy(arena, s->state.value, &sub->value)) {
            return false;
        }
    }
    for (const memory_parked *p = weir__memory_sent_back_first(t); p != NULL;
         p = weir__memory_sent_back_next(t, p)) {
        if (!p->reaction->state.retired && knows(l->request, p->reaction)) {
            sent[out->sent_back_count++] = (store_sent_back){ .parked = p->id,
                                                              .reaction = p->reaction->id,
                                                              .event = p->event,
                                                              .attempts = p->state.attempts };
        }
    }
    out->subscriptions = subs;
    out->sent_back = sent;
    return true;
}

static bool take(leasing *l, memory_target *t, weir_arena *arena, store_leased *out)
{
    struct target_state *state = &t->state;
    if (!weir__tx_edit(l->core, t) ||
        !weir__tx_set_text(l->core, &state->holder, l->request->holder)) {
        return false;
    }
    state->lost += state->leased;
    state->fence++;
    state->leased = true;
    state->lapsed = false;
    state->until_us = weir__memory_later(l->now_us, l->request->lease_us);
    state->due_us = 0;
    *out = (store_leased){
        .target = t->id,
        .fence = state->fence,
        .until_us = state->until_us,
        .watermark = state->watermark,
        .priority = state->priority,
        .lost = state->lost,
    };
    return weir__memory_text_copy(arena, t->item.key, &out->name) && fill_work(l, t, arena, out);
}

void weir__memory_leases_clear(store_lease_list *list)
{
    weir__arena_reset(&list->arena);
    list->leases = NULL;
    list->leases_count = 0;
}

weir_status weir__memory_lease_in(memory_handle *h, const store_lease_request *r,
                                  store_lease_list *list, weir_error *err)
{
    leasing l = { .core = h->core, .request = r, .now_us = weir__memory_now(h) };
    memory_lane *lane = weir__memory_lane_find(h->core, r->lane);
    if (lane == NULL || lane->paused) {
        return WEIR_OK;
    }
    weir__memory_lane_sweep(lane, l.now_us);
    l.cursors = weir__arena_alloc(&list->arena, lane->works_count * sizeof *l.cursors);
    l.due = weir__arena_alloc(&list->arena, r->limit * sizeof(memory_target *));
    l.chosen = weir__arena_alloc(&list->arena, r->limit * sizeof(memory_target *));
    if (l.cursors == NULL || l.due == NULL || l.chosen == NULL) {
        return weir__memory_full(err);
    }
    for (size_t i = 0; i < lane->works_count; i++) {
        if (knows(r, lane->works[i]->reaction)) {
            l.cursors[l.cursors_count++] = (lease_cursor){ .work = lane->works[i] };
        }
    }
    collect_due(&l);
    choose(&l, ORDER_LEADING, r->leading);
    choose(&l, ORDER_LAGGING, r->reserve);
    choose(&l, ORDER_PRIORITY, r->limit);
    qsort(l.chosen, l.chosen_count, sizeof(memory_target *), compare_priority);

    list->leases = weir__arena_alloc(&list->arena, l.chosen_count * sizeof *list->leases);
    if (list->leases == NULL) {
        return weir__memory_full(err);
    }
    for (memory_target *t = l.blocked; t != NULL; t = t->picked_next) {
        if (!block_lost(&l, t)) {
            return weir__memory_full(err);
        }
    }
    for (size_t i = 0; i < l.chosen_count; i++) {
        if (!take(&l, l.chosen[i], &list->arena, &list->leases[i])) {
            return weir__memory_full(err);
        }
    }
    list->leases_count = l.chosen_count;
    return WEIR_OK;
}

weir_status weir__memory_lease(weir_store *base, const store_lease_request *r,
                               store_lease_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__memory_leases_clear(list);
    if (r->limit == 0) {
        return WEIR_OK;
    }
    weir__lock(&h->core->mu);
    status = weir__memory_lease_in(h, r, list, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

uint64_t weir__memory_lease_steps(weir_store *base)
{
    memory_handle *h = weir__memory_handle(base);
    uint64_t steps = 0;
    size_t cursor = 0;

    weir__lock(&h->core->mu);
    for (table_item *item; (item = weir__table_next(&h->core->lanes, &cursor)) != NULL;) {
        const memory_lane *lane = (const memory_lane *)(const void *)item;
        steps += lane->leases.steps;
        for (size_t i = 0; i < lane->works_count; i++) {
            const lane_work *w = lane->works[i];
            steps += w->by_priority.steps + w->by_rank.steps + w->by_due.steps;
        }
    }
    weir__unlock(&h->core->mu);
    return steps;
}
