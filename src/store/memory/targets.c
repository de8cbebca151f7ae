/* targets.c - targets and their subscriptions, the values derived from them, and lanes.
 *
 * INVARIANT  behind, watermark and priority of a target's row are what weir__memory_derive says.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/judge.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"
#include "store/target.h"

#include <stdlib.h>

const store_target *weir__memory_target(const memory_core *c, int64_t id)
{
    return id >= 1 && id <= (int64_t)c->targets.count ? c->targets.rows[id - 1] : NULL;
}

const store_target *weir__memory_target_named(const memory_core *c, weir_str name)
{
    const memory_name *n = weir__rows_find(&c->names, &(memory_name){ .name = name });
    return n == NULL ? NULL : weir__memory_target(c, n->id);
}

weir_status weir__memory_target_ensure(const memory_core *c, weir_str name, weir_str lane,
                                       store_target *out, weir_error *err)
{
    const store_target *t = weir__memory_target_named(c, name);
    const weir_status status = t == NULL ? WEIR_OK : weir__lane_judge(name, t->lane, lane, err);
    if (status != WEIR_OK) {
        return status;
    }
    *out = (store_target){
        .id = (int64_t)c->targets.count + 1, .name = name, .lane = lane, .state = STORE_TARGET_IDLE
    };
    if (t != NULL) {
        *out = *t;
    }
    return WEIR_OK;
}

void weir__memory_target_put(memory_core *c, store_target *t)
{
    const memory_name name = { .name = t->name, .id = t->id };
    const bool is_new = t->id > (int64_t)c->targets.count;
    weir__memory_derive(c, t);
    weir__memory_put(c, &c->targets, t);
    if (is_new) {
        weir__memory_put(c, &c->names, &name);
    }
}

/* ---- subscriptions ------------------------------------------------------------------------ */

const memory_subscription *weir__memory_subscription(const memory_core *c, int64_t target,
                                                     int64_t reaction)
{
    const memory_subscription key = { .target = target, .reaction = reaction };
    return weir__rows_find(&c->subscriptions, &key);
}

const memory_subscription *weir__memory_subscription_next(const memory_core *c, int64_t target,
                                                          size_t *at)
{
    if (*at == 0) {
        *at = 1 + weir__rows_seek(&c->subscriptions, &(memory_subscription){ .target = target });
    } else {
        ++*at;
    }
    const memory_subscription *s =
        *at <= c->subscriptions.count ? c->subscriptions.rows[*at - 1] : NULL;
    return s != NULL && s->target == target ? s : NULL;
}

void weir__memory_work_drop(memory_core *c, const memory_subscription *s, int64_t up_to)
{
    const memory_work from = { .target = s->target, .reaction = s->reaction, .event = INT64_MIN };
    const size_t at = weir__rows_seek(&c->work, &from);
    while (at < c->work.count && !c->full) {
        const memory_work *w = c->work.rows[at];
        if (w->target != s->target || w->reaction != s->reaction || w->event > up_to) {
            return;
        }
        weir__memory_remove(c, &c->work, w);
    }
}

/* ---- derived values ----------------------------------------------------------------------- */

static bool is_sent_back(const memory_core *c, const store_target *t, int64_t reaction)
{
    for (size_t i = 0; i < c->parked.count; i++) {
        const store_parked *p = c->parked.rows[i];
        if (p->sent_back && p->reaction == reaction && weir__str_equal(p->target, t->name)) {
            return true;
        }
    }
    return false;
}

bool weir__memory_has_work(const memory_core *c, const store_target *t,
                           const memory_subscription *s)
{
    return !weir__memory_reaction(c, s->reaction)->retired &&
           (s->at < s->mark || is_sent_back(c, t, s->reaction));
}

void weir__memory_derive(const memory_core *c, store_target *t)
{
    store_derived d = { .behind = false };
    size_t at = 0;

    for (const memory_subscription *s;
         (s = weir__memory_subscription_next(c, t->id, &at)) != NULL;) {
        if (!weir__memory_reaction(c, s->reaction)->retired) {
            weir__derived_add(&d, s->at, s->mark, s->priority);
            d.behind = d.behind || is_sent_back(c, t, s->reaction);
        }
    }
    t->behind = d.behind;
    t->watermark = d.watermark;
    t->priority = t->prioritized ? t->priority : d.priority;
}

store_target_state weir__memory_target_state(const memory_core *c, const store_target *t)
{
    return weir__target_state(t, weir__memory_lane_paused(c, t->lane), c->now_us);
}

/* ---- changes of a copy -------------------------------------------------------------------- */

void weir__memory_lease_end(store_target *t)
{
    t->state = STORE_TARGET_IDLE;
    t->leased_until_us = 0;
    t->holder = (weir_str){ 0 };
}

void weir__memory_error_clear(store_target *t)
{
    t->event = 0;
    t->attempts = 0;
    t->reaction = (weir_str){ 0 };
    t->error = (weir_str){ 0 };
}

weir_status weir__memory_fence_check(const store_target *t, int64_t id, int64_t fence,
                                     weir_error *err)
{
    return t == NULL ? weir__target_unknown(id, err)
                     : weir__fence_judge(&(store_fenced){ .fence = fence }, t->fence,
                                         t->state == STORE_TARGET_LEASED, 0, err);
}

/* ---- listing targets ---------------------------------------------------------------------- */

bool weir__memory_filter_accepts(const memory_core *c, const store_target_filter *f,
                                 const store_target *t)
{
    const memory_subscription *s;
    size_t at = 0, n = 0;

    while (n < f->names_count && !weir__str_equal(f->names[n], t->name)) {
        n++;
    }
    if ((f->names_count > 0 && n == f->names_count) || (f->blocked && !t->blocked) ||
        !weir__target_accepts(f, t->name, t->lane)) {
        return false;
    }
    while (f->source != NULL && (s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (weir__pattern_matches(f->source, s->source)) {
            return true;
        }
    }
    return f->source == NULL;
}

static void subscription_fill(memory_core *c, const memory_subscription *s, weir_arena *arena,
                              store_subscription *out)
{
    const store_reaction *r = weir__memory_reaction(c, s->reaction);
    *out = (store_subscription){
        .reaction = s->reaction,
        .reaction_name = r->name,
        .source = s->source,
        .value = s->value,
        .at = s->at,
        .mark = s->mark,
        .retries = s->retries,
        .priority = s->priority,
        .retired = r->retired,
        .routed = r->reread_to > r->routed ? r->reread_to : r->routed,
    };
    weir__memory_text_copy(c, arena, &out->reaction_name);
    weir__memory_text_copy(c, arena, &out->source);
    weir__memory_text_copy(c, arena, &out->value);
}

static void target_fill(memory_core *c, const store_target *t, weir_arena *arena, store_target *out)
{
    store_target shown = *t;
    const memory_subscription *s;
    size_t at = 0; /* a target has at most one subscription of each reaction */
    store_subscription *subs = weir__memory_array(c, arena, c->reactions.count + 1, sizeof *subs);
    shown.state = weir__memory_target_state(c, t);
    if (shown.state != STORE_TARGET_LEASED) {
        weir__memory_lease_end(&shown);
        shown.state = weir__memory_target_state(c, t);
    }
    shown.due_us = t->due_us > c->now_us ? t->due_us : 0;
    shown.mark = 0;
    shown.subscriptions = subs;
    shown.subscriptions_count = 0;
    while (subs != NULL && (s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        subscription_fill(c, s, arena, &subs[shown.subscriptions_count++]);
        shown.mark = s->mark > shown.mark ? s->mark : shown.mark;
    }
    weir__memory_copy(c, &c->targets, &shown, arena, out);
}

weir_status weir__memory_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const size_t max = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX);

    weir__arena_reset(&chunk->arena);
    chunk->targets_count = 0;
    chunk->more = false;
    chunk->scanned_to = q->after;
    chunk->targets = weir__memory_array(c, &chunk->arena, max, sizeof *chunk->targets);
    const memory_name after = { .name = q->after };
    size_t i = weir__rows_seek(&c->names, &after), looked = 0;
    i += weir__rows_find(&c->names, &after) != NULL;
    for (; i < c->names.count && !c->full && !chunk->more; i++) {
        const memory_name *n = c->names.rows[i];
        const store_target *t = weir__memory_target(c, n->id);
        const bool wanted = weir__memory_filter_accepts(c, &q->filter, t);
        chunk->more = looked++ == STORE_CHUNK_NAMES_MAX || (wanted && chunk->targets_count == max);
        if (wanted && !chunk->more) {
            target_fill(c, t, &chunk->arena, &chunk->targets[chunk->targets_count++]);
        }
        chunk->scanned_to = chunk->more ? chunk->scanned_to : n->name;
    }
    weir__memory_text_copy(c, &chunk->arena, &chunk->scanned_to);
    return weir__memory_unlock(c, WEIR_OK, err);
}
