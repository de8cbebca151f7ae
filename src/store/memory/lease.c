/* lease.c - handing out targets: who may work on what, in which order.
 *
 * All targets are looked at, those that can be leased are sorted by each of the three orders in
 * turn, and the first of them are taken.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdio.h>
#include <stdlib.h>

/* One lease call. Arrays are in the arena of the list. */
typedef struct leasing {
    memory_core *core;
    const store_lease_request *request;
    const store_target **free; /* candidates: first those that are not deferred */
    size_t free_count;
    const store_target **chosen;
    size_t chosen_count;
    const store_target **lost; /* have lost too many leases: blocked instead */
    size_t lost_count;
} leasing;

/* ---- orders ------------------------------------------------------------------------------- */

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Rank, id. */
static int compare_lagging(const void *a, const void *b)
{
    const store_target *x = *(const store_target *const *)a;
    const store_target *y = *(const store_target *const *)b;
    const int order =
        compare_i64(x->watermark >> STORE_RANK_SHIFT, y->watermark >> STORE_RANK_SHIFT);
    return order != 0 ? order : compare_i64(x->id, y->id);
}

static int compare_leading(const void *a, const void *b)
{
    return compare_lagging(b, a);
}

static int compare_priority(const void *a, const void *b)
{
    const store_target *x = *(const store_target *const *)a;
    const store_target *y = *(const store_target *const *)b;
    const int order = compare_i64(y->priority, x->priority);
    return order != 0 ? order : compare_lagging(a, b);
}

static int compare_due(const void *a, const void *b)
{
    const store_target *x = *(const store_target *const *)a;
    const store_target *y = *(const store_target *const *)b;
    const int order = compare_i64(x->due_us, y->due_us);
    return order != 0 ? order : compare_i64(x->id, y->id);
}

/* ---- choosing ----------------------------------------------------------------------------- */

static bool reaction_known(const leasing *l, int64_t reaction)
{
    const store_lease_request *r = l->request;
    for (size_t i = 0; i < r->known_count && !r->all_reactions; i++) {
        if (r->known[i].reaction == reaction) {
            return r->known[i].number == weir__memory_reaction(l->core, reaction)->current;
        }
    }
    return r->all_reactions;
}

static bool target_eligible(const leasing *l, const store_target *t)
{
    const memory_core *c = l->core;
    const memory_subscription *s;
    size_t at = 0;
    if (!t->behind || t->blocked || t->paused || t->due_us > c->now_us ||
        (t->state == STORE_TARGET_LEASED && t->leased_until_us > c->now_us) ||
        !weir__str_equal(t->lane, l->request->lane)) {
        return false;
    }
    while ((s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (reaction_known(l, s->reaction) && weir__memory_has_work(c, t, s)) {
            return true;
        }
    }
    return false;
}

/* Of the targets that were deferred until now, the first `limit` count; of the others all. */
static void candidates_collect(leasing *l)
{
    const memory_core *c = l->core;
    size_t plain = 0;
    for (size_t i = 0; i < c->targets.count; i++) {
        const store_target *t = c->targets.rows[i];
        if (target_eligible(l, t)) {
            l->free[l->free_count++] = t;
            if (t->due_us == 0) {
                l->free[l->free_count - 1] = l->free[plain];
                l->free[plain++] = t;
            }
        }
    }
    const size_t due = l->free_count - plain;
    qsort(l->free + plain, due, sizeof(store_target *), compare_due);
    l->free_count = plain + (due < l->request->limit ? due : l->request->limit);
}

/* Takes up to `wanted` of what is left, in this order. */
static void candidates_choose(leasing *l, int (*compare)(const void *, const void *), size_t wanted)
{
    const store_lease_request *r = l->request;
    size_t left = 0;
    if (wanted > r->limit - l->chosen_count) {
        wanted = r->limit - l->chosen_count;
    }
    if (wanted == 0) {
        return;
    }
    qsort(l->free, l->free_count, sizeof(store_target *), compare);
    for (size_t i = 0; i < l->free_count; i++) {
        const store_target *t = l->free[i];
        if (wanted == 0) {
            l->free[left++] = t;
        } else if (t->state == STORE_TARGET_LEASED && r->lost_max > 0 &&
                   t->lost + 1 >= r->lost_max) {
            l->lost[l->lost_count++] = t;
        } else {
            l->chosen[l->chosen_count++] = t;
            wanted--;
        }
    }
    l->free_count = left;
}

/* ---- taking ------------------------------------------------------------------------------- */

static void target_block(memory_core *c, const store_target *row)
{
    char reason[64];
    store_target t = *row;
    weir__memory_lease_end(&t);
    weir__memory_error_clear(&t);
    t.lost++;
    const int len =
        snprintf(reason, sizeof reason, "lost its lease %lld times in a row", (long long)t.lost);
    t.error = (weir_str){ .ptr = reason, .len = (size_t)len };
    t.blocked = true;
    t.blocked_us = c->now_us;
    weir__memory_target_put(c, &t);
}

static int compare_sent_back(const void *a, const void *b)
{
    const store_sent_back *x = a;
    const store_sent_back *y = b;
    const int order = compare_i64(x->event, y->event);
    return order != 0 ? order : compare_i64(x->reaction, y->reaction);
}

/* What was sent back to a target, of reactions that the caller knows. */
static void sent_back_fill(const leasing *l, const store_target *t, weir_arena *arena,
                           store_leased *out)
{
    memory_core *c = l->core;
    store_sent_back *sent = weir__memory_array(c, arena, c->parked.count + 1, sizeof *sent);
    if (sent == NULL) {
        return;
    }
    for (size_t i = 0; i < c->parked.count; i++) {
        const store_parked *p = c->parked.rows[i];
        if (p->sent_back && weir__str_equal(p->target, t->name) &&
            !weir__memory_reaction(c, p->reaction)->retired && reaction_known(l, p->reaction)) {
            sent[out->sent_back_count++] = (store_sent_back){
                .parked = p->id, .reaction = p->reaction, .event = p->event, .attempts = p->attempts
            };
        }
    }
    qsort(sent, out->sent_back_count, sizeof *sent, compare_sent_back);
    out->sent_back = sent;
}

/* The work of a target that the caller knows. */
static void work_fill(const leasing *l, const store_target *t, weir_arena *arena, store_leased *out)
{
    memory_core *c = l->core;
    const memory_subscription *s;
    size_t at = 0; /* a target has at most one subscription of each reaction */
    store_leased_subscription *subs =
        weir__memory_array(c, arena, c->reactions.count + 1, sizeof *subs);
    while (subs != NULL && (s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (weir__memory_reaction(c, s->reaction)->retired || s->at >= s->mark ||
            !reaction_known(l, s->reaction)) {
            continue;
        }
        store_leased_subscription *sub = &subs[out->subscriptions_count++];
        *sub = (store_leased_subscription){ .reaction = s->reaction,
                                            .at = s->at,
                                            .mark = s->mark,
                                            .retries = s->retries,
                                            .source = s->source,
                                            .value = s->value };
        weir__memory_text_copy(c, arena, &sub->source);
        weir__memory_text_copy(c, arena, &sub->value);
    }
    out->subscriptions = subs;
}

static void target_take(const leasing *l, const store_target *row, weir_arena *arena,
                        store_leased *out)
{
    memory_core *c = l->core;
    store_target t = *row;
    t.lost += t.state == STORE_TARGET_LEASED;
    t.fence++;
    t.state = STORE_TARGET_LEASED;
    t.holder = l->request->holder;
    t.leased_until_us = weir__time_later(c->now_us, l->request->lease_us);
    t.due_us = 0;
    *out = (store_leased){
        .target = t.id,
        .name = t.name,
        .fence = t.fence,
        .until_us = t.leased_until_us,
        .watermark = t.watermark,
        .priority = t.priority,
        .lost = t.lost,
    };
    weir__memory_text_copy(c, arena, &out->name);
    work_fill(l, &t, arena, out);
    sent_back_fill(l, &t, arena, out);
    weir__memory_target_put(c, &t);
}

void weir__memory_lease_in(memory_core *c, const store_lease_request *r, store_lease_list *list)
{
    const size_t count = c->targets.count + 1;
    leasing l = {
        .core = c,
        .request = r,
        .free = weir__memory_array(c, &list->arena, count, sizeof *l.free),
        .chosen = weir__memory_array(c, &list->arena, count, sizeof *l.chosen),
        .lost = weir__memory_array(c, &list->arena, count, sizeof *l.lost),
    };
    if (c->full || weir__memory_lane_paused(c, r->lane)) {
        return;
    }
    candidates_collect(&l);
    candidates_choose(&l, compare_leading, r->leading);
    candidates_choose(&l, compare_lagging, r->reserve);
    candidates_choose(&l, compare_priority, r->limit);
    qsort(l.chosen, l.chosen_count, sizeof(store_target *), compare_priority);

    list->leases = weir__memory_array(c, &list->arena, l.chosen_count + 1, sizeof *list->leases);
    for (size_t i = 0; i < l.lost_count; i++) {
        target_block(c, l.lost[i]);
    }
    for (size_t i = 0; i < l.chosen_count && !c->full; i++) {
        target_take(&l, l.chosen[i], &list->arena, &list->leases[i]);
    }
    list->leases_count = c->full ? 0 : l.chosen_count;
}
