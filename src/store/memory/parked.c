/* parked.c - events that were set aside: dead letters of a subscription, or of a reaction whose
 * router could not find their target.
 *
 * INVARIANT  One row per (event, reaction, target): parking again renews the row and keeps its id.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/error_text.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

const store_parked *weir__memory_parked_find(const memory_core *c, weir_str target,
                                             const store_park *park)
{
    for (size_t i = 0; i < c->parked.count; i++) {
        const store_parked *p = c->parked.rows[i];
        if (p->event == park->event && p->reaction == park->reaction &&
            weir__str_equal(p->target, target)) {
            return p;
        }
    }
    return NULL;
}

const store_parked *weir__memory_parked_get(const memory_core *c, int64_t id)
{
    return weir__rows_find(&c->parked, &(store_parked){ .id = id });
}

void weir__memory_park(memory_core *c, weir_str target, const store_park *park)
{
    const store_parked *old = weir__memory_parked_find(c, target, park);
    const store_parked p = {
        .id = old != NULL ? old->id : ++c->counters.parked,
        .reaction = park->reaction,
        .event = park->event,
        .attempts = park->attempts,
        .parked_us = c->now_us,
        .reaction_name = weir__memory_reaction(c, park->reaction)->name,
        .target = target,
        .error = weir__error_text_cut(park->error),
    };
    weir__memory_put(c, &c->parked, &p);
}

/* ---- the verbs ---------------------------------------------------------------------------- */

/* Sends a parked event back, or removes it; its target, if it has one, has other work then. */
static weir_status parked_change(memory_core *c, int64_t id, bool retry, weir_error *err)
{
    const store_parked *old = weir__memory_parked_get(c, id);
    if (old == NULL) {
        return weir__parked_unknown(id, err);
    }
    if (retry && old->target.len == 0) {
        return weir__parked_targetless(id, err);
    }
    if (retry) {
        store_parked p = *old;
        p.sent_back = true;
        weir__memory_put(c, &c->parked, &p);
    } else {
        weir__memory_remove(c, &c->parked, old);
    }
    if (old->target.len > 0) {
        store_target t = *weir__memory_target_named(c, old->target);
        weir__memory_target_put(c, &t);
    }
    return WEIR_OK;
}

weir_status weir__memory_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                       weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    const bool retry = action == STORE_PARKED_RETRY;
    weir_status status = parked_change(c, parked, retry, err);
    return weir__memory_end(base, status, retry, err);
}

static bool parked_wanted(const store_parked_query *q, const store_parked *p)
{
    return p->id > q->after && (q->target.len == 0 || weir__str_equal(q->target, p->target)) &&
           (q->reaction.len == 0 || weir__str_equal(q->reaction, p->reaction_name));
}

weir_status weir__memory_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err)
{
    const size_t max = weir__chunk_limit(q->limit, STORE_CHUNK_EVENTS_MAX);
    memory_core *c = weir__memory_lock(base);

    weir__arena_reset(&chunk->arena);
    chunk->parked_count = 0;
    chunk->more = false;
    chunk->parked = weir__memory_array(c, &chunk->arena, max, sizeof *chunk->parked);
    for (size_t i = 0; i < c->parked.count && !c->full && !chunk->more; i++) {
        const store_parked *p = c->parked.rows[i];
        const bool wanted = parked_wanted(q, p);
        chunk->more = wanted && chunk->parked_count == max;
        if (wanted && !chunk->more) {
            weir__memory_copy(c, &c->parked, p, &chunk->arena,
                              &chunk->parked[chunk->parked_count++]);
        }
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}
