/* workers.c - who works on the store: one row for each process, replaced at every beat. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

/* Whether it ended so long ago that it is no longer listed, removed or not. */
static bool worker_forgotten(const memory_core *c, const memory_worker *w)
{
    return w->worker.until_us <= c->now_us - STORE_WORKER_KEPT_US;
}

/* ---- beating ------------------------------------------------------------------------------ */

static void worker_put(memory_core *c, const store_worker *from, const memory_worker *old,
                       int64_t lease_us)
{
    weir_buffer lanes = { 0 };
    memory_worker w = { .worker = *from };
    for (size_t i = 0; i < from->lanes_count; i++) {
        c->full = !weir__buffer_add(&lanes, from->lanes[i].ptr, from->lanes[i].len) ||
                  !weir__buffer_add(&lanes, "", 1) || c->full;
    }
    w.lanes = (weir_str){ .ptr = lanes.ptr, .len = lanes.len };
    w.known = (weir_str){ .ptr = (const char *)from->known,
                          .len = from->known_count * sizeof *from->known };
    w.worker.holds = 0;
    w.worker.id = old != NULL ? old->worker.id : ++c->counters.worker;
    w.worker.since_us = old != NULL && !worker_forgotten(c, old) ? old->worker.since_us : c->now_us;
    w.worker.until_us = weir__time_later(c->now_us, lease_us);
    weir__memory_put(c, &c->workers, &w);
    weir__buffer_free(&lanes);
}

weir_status weir__memory_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    const memory_worker key = { .worker.name = worker->name };
    const memory_worker *old = weir__rows_find(&c->workers, &key);
    int removed = 0;

    if (lease_us != 0) {
        worker_put(c, worker, old, lease_us);
    } else if (old != NULL) {
        weir__memory_remove(c, &c->workers, old);
    }
    for (size_t i = c->workers.count; i > 0; i--) {
        const memory_worker *w = c->workers.rows[i - 1];
        if (worker_forgotten(c, w) && removed < STORE_WORKERS_FORGOTTEN_MAX) {
            weir__memory_remove(c, &c->workers, w);
            removed++;
        }
    }
    return weir__memory_end(base, WEIR_OK, false, err);
}

/* ---- listing ------------------------------------------------------------------------------ */

static void worker_fill(memory_core *c, const memory_worker *from, weir_arena *arena,
                        store_worker *out)
{
    memory_worker w;
    weir_str *lanes = weir__memory_array(c, arena, from->worker.lanes_count + 1, sizeof *lanes);
    store_known_reaction *known =
        weir__memory_array(c, arena, from->worker.known_count + 1, sizeof *known);
    weir__memory_copy(c, &c->workers, from, arena, &w);
    if (lanes == NULL || known == NULL) {
        return;
    }
    const char *at = w.lanes.ptr;
    for (size_t i = 0; i < w.worker.lanes_count; i++) {
        lanes[i] = weir__str(at);
        at += lanes[i].len + 1;
    }
    memcpy(known, w.known.ptr, w.known.len);
    *out = w.worker;
    out->lanes = lanes;
    out->known = known;
}

/* Targets with a live lease of this holder. */
static int64_t holds_count(const memory_core *c, weir_str holder)
{
    int64_t holds = 0;
    for (size_t i = 0; i < c->targets.count; i++) {
        const store_target *t = c->targets.rows[i];
        holds += t->state == STORE_TARGET_LEASED && t->leased_until_us > c->now_us &&
                 weir__str_equal(t->holder, holder);
    }
    return holds;
}

weir_status weir__memory_workers(weir_store *base, store_worker_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    weir__arena_reset(&list->arena);
    list->workers_count = 0;
    list->workers =
        weir__memory_array(c, &list->arena, c->workers.count + 1, sizeof *list->workers);
    for (size_t i = 0; i < c->workers.count && !c->full; i++) {
        const memory_worker *w = c->workers.rows[i];
        if (!worker_forgotten(c, w)) {
            store_worker *out = &list->workers[list->workers_count++];
            worker_fill(c, w, &list->arena, out);
            out->holds = list->count_holds ? holds_count(c, w->worker.name) : 0;
        }
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}
