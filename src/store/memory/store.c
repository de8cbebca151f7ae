/* store.c - opening and closing memory stores, the registry of named ones, the verbs.
 *
 * THREADS  The registry's mutex guards the list of named stores and the references of every core.
 * It is never held together with a core's mutex.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "store/memory/memory_store.h"
#include "store/seed.h"

#include <assert.h>

enum { MEMORY_SCHEMA = 1 };

static weir_mutex registry_mu = { .raw = PTHREAD_MUTEX_INITIALIZER };
static memory_core *registry_first; /* guarded by registry_mu */

/* ---- what every verb uses ----------------------------------------------------------------- */

weir_status weir__memory_full(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

void weir__memory_text_copy(memory_core *c, weir_arena *arena, weir_str *text)
{
    const char *copy = weir__arena_copy(arena, text->ptr, text->len);
    c->full = c->full || copy == NULL;
    text->ptr = copy != NULL ? copy : text->ptr;
}

void weir__memory_copy(memory_core *c, const row_table *t, const void *row, weir_arena *arena,
                       void *out)
{
    c->full = !weir__row_copy(t->kind, row, arena, out) || c->full;
}

void *weir__memory_array(memory_core *c, weir_arena *arena, size_t count, size_t item_bytes)
{
    size_t bytes;
    void *array =
        __builtin_mul_overflow(count, item_bytes, &bytes) ? NULL : weir__arena_alloc(arena, bytes);
    c->full = c->full || array == NULL;
    return array;
}

void weir__memory_put(memory_core *c, row_table *t, const void *row)
{
    c->full = c->full || !weir__rows_put(&c->changes, t, row);
}

void weir__memory_remove(memory_core *c, row_table *t, const void *key)
{
    c->full = c->full || !weir__rows_remove(&c->changes, t, key);
}

memory_core *weir__memory_lock(weir_store *base) WEIR_NO_LOCK_CHECK
{
    memory_handle *h = weir__memory_handle(base);
    memory_core *c = h->core;
    weir__lock(&c->mu);
    c->full = false;
    c->now_us = weir__steady_clock_now(&c->clock, h->clock);
    c->key_now_us = weir__age_clock_now(&c->key_clock, h->clock);
    return c;
}

weir_status weir__memory_unlock(memory_core *c, weir_status status,
                                weir_error *err) WEIR_NO_LOCK_CHECK
{
    const bool full = c->full;
    weir__unlock(&c->mu);
    return full ? weir__memory_full(err) : status;
}

memory_core *weir__memory_begin(weir_store *base)
{
    memory_core *c = weir__memory_lock(base);
    c->counters_before = c->counters;
    return c;
}

weir_status weir__memory_end(weir_store *base, weir_status status, bool wake, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    memory_core *c = h->core;
    if (status == WEIR_OK && !c->full) {
        weir__changes_keep(&c->changes);
        h->transactions++;
    } else {
        weir__changes_undo(&c->changes, 0);
        c->counters = c->counters_before;
    }
    if (status == WEIR_OK && !c->full && wake) {
        weir__watches_wake_locked(&c->watches);
    }
    return weir__memory_unlock(c, status, err);
}

/* ---- cores -------------------------------------------------------------------------------- */

static void core_free(memory_core *c)
{
    WEIR_ASSERT(c->watches.first == NULL);
    weir__mutex_destroy(&c->mu);
    weir__memory_tables_free(c);
    weir__free(c->changes.list);
    weir__free(c->name);
    weir__free(c);
}

/* A new store with one reference. NULL: out of memory. */
static memory_core *core_open(const store_options *options)
{
    memory_core *c = weir__calloc(1, sizeof *c);
    if (c == NULL || !weir__mutex_init(&c->mu)) {
        weir__free(c);
        return NULL;
    }
    c->references = 1;
    c->watches.mu = &c->mu;
    c->key_ttl_us = options->key_ttl_us;
    c->key_clock = weir__age_clock_begin(options->clock);
    c->counters.key_expires_us = INT64_MAX;
    weir__memory_tables_begin(c);
    static_assert(sizeof c->epoch >= WEIR_UUID_TEXT_BYTES, "an epoch is a UUID");
    weir__uuid7(weir__clock_wall(options->clock), c->epoch);
    if (options->path.len > 0) {
        c->name = weir__strndup(options->path.ptr, options->path.len);
        if (c->name == NULL) {
            core_free(c);
            return NULL;
        }
    }
    return c;
}

static void core_retain(memory_core *c)
{
    weir__lock(&registry_mu);
    c->references++;
    weir__unlock(&registry_mu);
}

static void core_release(memory_core *c)
{
    weir__lock(&registry_mu);
    const bool last = --c->references == 0;
    for (memory_core **link = &registry_first; last && *link != NULL; link = &(*link)->next_named) {
        if (*link == c) {
            *link = c->next_named;
            break;
        }
    }
    weir__unlock(&registry_mu);
    if (last) {
        core_free(c);
    }
}

/* The named store, opened when there is none. */
static weir_status core_named(memory_core **out, const store_options *options, bool existing,
                              weir_error *err)
{
    weir_status status = WEIR_OK;

    weir__lock(&registry_mu);
    memory_core *c = registry_first;
    while (c != NULL && !weir__str_equal(weir__str(c->name), options->path)) {
        c = c->next_named;
    }
    if (c != NULL) {
        c->references++;
    } else if (existing) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no store \"memory:%.*s\" in this process",
                            (int)options->path.len, options->path.ptr);
    } else {
        c = core_open(options);
        if (c == NULL) {
            status = weir__memory_full(err);
        } else {
            c->next_named = registry_first;
            registry_first = c;
        }
    }
    weir__unlock(&registry_mu);
    *out = c;
    return status;
}

/* ---- watches: a core keeps as long as one of them is open ----------------------------------- */

static weir_status memory_watch_open(weir_store *base, store_watch **out, weir_error *err)
{
    memory_core *c = weir__memory_handle(base)->core;
    core_retain(c);
    const weir_status status = weir__watch_add(&c->watches, c, out, err);
    if (status != WEIR_OK) {
        core_release(c);
    }
    return status;
}

void weir__memory_watch_close(store_watch *watch)
{
    memory_core *c = watch != NULL ? watch->owner : NULL;
    weir__watch_remove(watch);
    if (c != NULL) {
        core_release(c);
    }
}

/* ---- verbs that are small ----------------------------------------------------------------- */

static void memory_close(weir_store *base)
{
    memory_handle *h = weir__memory_handle(base);
    if (h->core != NULL) {
        core_release(h->core);
    }
    weir__free(h);
}

static weir_status memory_now(weir_store *base, int64_t *now_us, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    *now_us = c->now_us;
    return weir__memory_unlock(c, WEIR_OK, err);
}

static weir_status memory_positions(weir_store *base, store_positions *out, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const int64_t head = weir__memory_head(c);
    *out = (store_positions){ .head = head, .safe = head, .now_us = c->now_us };
    memcpy(out->epoch, c->epoch, sizeof out->epoch);
    memcpy(out->log, c->epoch, sizeof out->log);
    return weir__memory_unlock(c, WEIR_OK, err);
}

static weir_status memory_stats(weir_store *base, store_stats *out, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    *out = (store_stats){
        .schema = MEMORY_SCHEMA,
        .targets = (int64_t)c->targets.count,
        .parked = (int64_t)c->parked.count,
        .transactions = weir__memory_handle(base)->transactions,
        .durability = "none",
        .library = "memory",
    };
    for (size_t i = 0; i < c->events.count; i++) {
        out->streams += ((const weir_event *)c->events.rows[i])->version == c->version_base;
    }
    for (size_t i = 0; i < c->targets.count; i++) {
        out->blocked += ((const store_target *)c->targets.rows[i])->blocked;
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}

weir_status weir__memory_seed(weir_store *base, int64_t position_base, int64_t version_base,
                              weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    weir_status status = WEIR_OK;
    if (c->events.count > 0) {
        status =
            weir__fail(err, WEIR_EMISUSE, "only an empty store can be given another beginning");
    } else {
        c->position_base = position_base;
        c->version_base = version_base;
    }
    return weir__memory_end(base, status, false, err);
}

static const store_log_ops memory_log_ops = {
    .group_commit = 0,
    .append = weir__memory_append,
    .read_stream = weir__memory_read_stream,
    .read_log = weir__memory_read_log,
    .stream_info = weir__memory_stream_info,
    .streams = weir__memory_streams,
    .positions = memory_positions,
    .snapshot_put = weir__memory_snapshot_put,
    .snapshot_get = weir__memory_snapshot_get,
    .snapshot_drop = weir__memory_snapshot_drop,
    .watch_open = memory_watch_open,
    .watch_wait = weir__watch_wait,
    .watch_fd = weir__watch_fd,
    .watch_close = weir__memory_watch_close,
};

static const store_work_ops memory_work_ops = {
    .declare = weir__memory_declare,
    .reactions = weir__memory_reactions,
    .retire = weir__memory_retire,
    .router_lease = weir__memory_router_lease,
    .route = weir__memory_route,
    .fetch = weir__memory_fetch,
    .settle = weir__memory_settle,
    .extend = weir__memory_extend,
    .operate = weir__memory_operate,
    .lane_pause = weir__memory_lane_pause,
    .targets = weir__memory_targets,
    .lanes = weir__memory_lanes,
    .parked = weir__memory_parked,
    .parked_change = weir__memory_parked_change,
    .poll = weir__memory_poll,
    .turn = weir__memory_turn,
};

static const store_locks_ops memory_locks_ops = {
    .take = weir__memory_lock_take,
    .extend = weir__memory_lock_extend,
    .release = weir__memory_lock_release,
    .list = weir__memory_locks,
    .finish = weir__memory_once_finish,
    .forget = weir__memory_once_forget,
    .runs = weir__memory_once_runs,
};

static const store_about_ops memory_about_ops = {
    .scheme = "memory",
    .close = memory_close,
    .now = memory_now,
    .stats = memory_stats,
    .check = weir__memory_check,
    .holders = weir__holders_none,
    .worker_beat = weir__memory_worker_beat,
    .workers = weir__memory_workers,
};

weir_status weir__memory_open(weir_store **out, const store_options *options, weir_error *err)
{
    const bool readonly = (options->open_flags & WEIR_OPEN_READONLY) != 0;
    const bool existing = readonly || (options->open_flags & WEIR_OPEN_EXISTING) != 0;
    weir_status status = WEIR_OK;
    memory_handle *h = weir__calloc(1, sizeof *h);

    if (h == NULL) {
        return weir__memory_full(err);
    }
    h->base = (weir_store){ .log = &memory_log_ops,
                            .work = &memory_work_ops,
                            .locks = &memory_locks_ops,
                            .about = &memory_about_ops,
                            .opened = STORE_MADE };
    h->clock = options->clock;
    if (readonly) {
        weir__store_read_only(&h->base, &h->reading);
    }
    if (options->path.len > 0) {
        status = core_named(&h->core, options, existing, err);
    } else if (existing) {
        status = weir__fail(err, WEIR_ENOTFOUND, "a private memory store is always a new one");
    } else {
        h->core = core_open(options);
        status = h->core == NULL ? weir__memory_full(err) : WEIR_OK;
    }
    if (status != WEIR_OK) {
        memory_close(&h->base);
        return status;
    }
    *out = &h->base;
    return WEIR_OK;
}
