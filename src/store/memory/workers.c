/* workers.c - who works on the store: one row for each process, replaced at every beat.
 *
 * INVARIANT  A row is one block of memory and never changes: a beat puts another in its place, with
 * the same id and, unless the worker was forgotten, the same `since_us`.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

static memory_worker *worker_of(table_item *item)
{
    return (memory_worker *)(void *)item;
}

static memory_worker *find(const memory_core *c, weir_str name)
{
    return worker_of(weir__table_find(&c->workers, weir__str_hash(name), name));
}

/* Whether it ended so long ago that it is no longer listed, removed or not. */
static bool forgotten(const memory_worker *w, int64_t now_us)
{
    return w->worker.until_us <= now_us - STORE_WORKER_KEPT_US;
}

/* ---- beating ------------------------------------------------------------------------------ */

/* A row with copies of everything `from` points to: the lists, then the texts. NULL: out of
 * memory. */
static memory_worker *row_new(memory_core *c, const store_worker *from)
{
    const size_t known_bytes = from->known_count * sizeof *from->known;
    const size_t lanes_bytes = from->lanes_count * sizeof *from->lanes;
    size_t bytes = sizeof(memory_worker) + known_bytes + lanes_bytes;
    bytes += from->name.len + from->host.len + from->metrics.len;
    for (size_t i = 0; i < from->lanes_count; i++) {
        bytes += from->lanes[i].len;
    }
    memory_worker *w = weir__tx_alloc(c, bytes);
    if (w == NULL) {
        return NULL;
    }
    store_known_reaction *known = (store_known_reaction *)(void *)w->bytes;
    weir_str *lanes = (weir_str *)(void *)(w->bytes + known_bytes);
    char *place = w->bytes + known_bytes + lanes_bytes;
    w->worker = *from;
    w->worker.holds = 0;
    w->worker.name = weir__memory_put_text(&place, from->name);
    w->worker.host = weir__memory_put_text(&place, from->host);
    w->worker.metrics = weir__memory_put_text(&place, from->metrics);
    w->worker.known = known;
    w->worker.lanes = lanes;
    for (size_t i = 0; i < from->lanes_count; i++) {
        lanes[i] = weir__memory_put_text(&place, from->lanes[i]);
    }
    if (known_bytes > 0) {
        memcpy(known, from->known, known_bytes);
    }
    w->item = (table_item){ .hash = weir__str_hash(from->name), .key = w->worker.name };
    return w;
}

static bool row_remove(memory_core *c, memory_worker *w)
{
    return weir__tx_table_remove(c, &c->workers, &w->item) && weir__tx_free(c, w);
}

/* As in snapshots.c, the walk starts again at the slot it has emptied. */
static bool forget(memory_core *c, int64_t now_us)
{
    size_t cursor = 0;
    size_t removed = 0;
    for (table_item *item; removed < STORE_WORKERS_FORGOTTEN_MAX &&
                           (item = weir__table_next(&c->workers, &cursor)) != NULL;) {
        if (!forgotten(worker_of(item), now_us)) {
            continue;
        }
        if (!row_remove(c, worker_of(item))) {
            return false;
        }
        removed++;
        cursor--;
    }
    return true;
}

static weir_status beat_locked(memory_core *c, const store_worker *worker, int64_t lease_us,
                               int64_t now_us, weir_error *err)
{
    memory_worker *old = find(c, worker->name);
    if (lease_us != 0) {
        memory_worker *w = row_new(c, worker);
        if (w == NULL || !weir__tx_save(c, &c->workers_last, sizeof c->workers_last)) {
            return weir__memory_full(err);
        }
        w->worker.id = old != NULL ? old->worker.id : ++c->workers_last;
        w->worker.since_us = old != NULL && !forgotten(old, now_us) ? old->worker.since_us : now_us;
        w->worker.until_us = weir__memory_later(now_us, lease_us);
        if ((old != NULL && !row_remove(c, old)) || !weir__tx_table_add(c, &c->workers, &w->item)) {
            return weir__memory_full(err);
        }
    } else if (old != NULL && !row_remove(c, old)) {
        return weir__memory_full(err);
    }
    return forget(c, now_us) ? WEIR_OK : weir__memory_full(err);
}

weir_status weir__memory_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = beat_locked(h->core, worker, lease_us, weir__memory_now(h), err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    return status;
}

/* ---- listing ------------------------------------------------------------------------------ */

static int compare_workers(const void *a, const void *b)
{
    const store_worker *left = a;
    const store_worker *right = b;
    return weir__str_compare(left->name, right->name);
}

static bool copy(weir_arena *arena, const store_worker *from, store_worker *out)
{
    weir_str *lanes = weir__arena_alloc(arena, (from->lanes_count + 1) * sizeof *lanes);
    store_known_reaction *known = weir__arena_alloc(arena, (from->known_count + 1) * sizeof *known);
    *out = *from;
    bool ok = lanes != NULL && known != NULL &&
              weir__memory_text_copy(arena, from->name, &out->name) &&
              weir__memory_text_copy(arena, from->host, &out->host) &&
              weir__memory_text_copy(arena, from->metrics, &out->metrics);
    for (size_t i = 0; ok && i < from->lanes_count; i++) {
        ok = weir__memory_text_copy(arena, from->lanes[i], &lanes[i]);
    }
    if (ok && from->known_count > 0) {
        memcpy(known, from->known, from->known_count * sizeof *known);
    }
    out->lanes = lanes;
    out->known = known;
    return ok;
}

/* What each of them holds; they are sorted. */
static void count_holds(const memory_core *c, int64_t now_us, store_worker *workers, size_t count)
{
    for (size_t i = 0; i < c->targets_count; i++) {
        const struct target_state *state = &c->targets[i]->state;
        const store_worker key = { .name = state->holder };
        store_worker *found = state->leased && state->until_us > now_us
                                  ? bsearch(&key, workers, count, sizeof key, compare_workers)
                                  : NULL;
        if (found != NULL) {
            found->holds++;
        }
    }
}

static weir_status list_locked(const memory_core *c, int64_t now_us, store_worker_list *list,
                               weir_error *err)
{
    size_t cursor = 0;
    size_t count = 0;
    store_worker *workers =
        weir__arena_alloc(&list->arena, (c->workers.count + 1) * sizeof *workers);
    if (workers == NULL) {
        return weir__memory_full(err);
    }
    for (table_item *item; (item = weir__table_next(&c->workers, &cursor)) != NULL;) {
        if (forgotten(worker_of(item), now_us)) {
            continue;
        }
        if (!copy(&list->arena, &worker_of(item)->worker, &workers[count++])) {
            return weir__memory_full(err);
        }
    }
    qsort(workers, count, sizeof *workers, compare_workers);
    if (list->count_holds) {
        count_holds(c, now_us, workers, count);
    }
    list->workers = workers;
    list->workers_count = count;
    return WEIR_OK;
}

weir_status weir__memory_workers(weir_store *base, store_worker_list *list, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__arena_reset(&list->arena);
    list->workers = NULL;
    list->workers_count = 0;
    weir__lock(&h->core->mu);
    const weir_status status = list_locked(h->core, weir__memory_now(h), list, err);
    weir__unlock(&h->core->mu);
    return status;
}

void weir__memory_workers_free(memory_core *c)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->workers, &cursor)) != NULL;) {
        weir__free(item);
    }
    weir__table_free(&c->workers);
}
