/* store.c - opening and closing memory stores, the registry of named ones, the vtable.
 *
 * THREADS  The registry's mutex guards the list of named stores and the references of every core.
 * It is never held together with a core's mutex.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <assert.h>

enum { MEMORY_SCHEMA = 1 };

static weir_mutex registry_mu = { .raw = PTHREAD_MUTEX_INITIALIZER };
static memory_core *registry_first; /* guarded by registry_mu */

/* ---- what every verb uses ----------------------------------------------------------------- */

weir_status weir__memory_writable(const memory_handle *h, weir_error *err)
{
    return h->readonly ? weir__fail(err, WEIR_EMISUSE, "the store was opened for reading only")
                       : WEIR_OK;
}

int64_t weir__memory_now(memory_handle *h)
{
    return weir__steady_clock_now(&h->core->clock, h->clock);
}

int64_t weir__memory_later(int64_t now_us, int64_t span_us)
{
    int64_t later;
    return __builtin_add_overflow(now_us, span_us, &later) ? INT64_MAX : later;
}

/* ---- cores -------------------------------------------------------------------------------- */

static void parked_free(memory_core *c)
{
    for (ordered_node *n; (n = weir__ordered_first(&c->parked)) != NULL;) {
        memory_parked *p = ORDERED_ITEM(n, memory_parked, by_id);
        char *error;
        memcpy(&error, &p->state.error.ptr, sizeof error);
        weir__ordered_remove(&c->parked, n);
        weir__free(error);
        weir__free(p);
    }
}

static void snapshots_free(memory_core *c)
{
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->snapshots, &cursor)) != NULL;) {
        weir__free(item);
    }
    weir__table_free(&c->snapshots);
}

static void core_free(memory_core *c)
{
    WEIR_ASSERT(c->watches.first == NULL);
    weir__mutex_destroy(&c->mu);
    parked_free(c);
    weir__memory_targets_free(c);
    weir__memory_reactions_free(c);
    weir__memory_keys_free(c);
    weir__memory_log_free(c);
    snapshots_free(c);
    weir__memory_workers_free(c);
    weir__memory_locks_free(c);
    weir__journal_free(&c->journal);
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
    c->journal.serial = 1; /* 0 is what a new target has seen */
    weir__memory_parked_init(c);
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

void weir__memory_core_retain(memory_core *c)
{
    weir__lock(&registry_mu);
    c->references++;
    weir__unlock(&registry_mu);
}

void weir__memory_core_release(memory_core *c)
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

/* ---- verbs that are small ----------------------------------------------------------------- */

static void memory_close(weir_store *base)
{
    memory_handle *h = weir__memory_handle(base);
    if (h->core != NULL) {
        weir__memory_core_release(h->core);
    }
    weir__free(h);
}

static weir_status memory_now(weir_store *base, int64_t *now_us, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    (void)err;
    weir__lock(&h->core->mu);
    *now_us = weir__memory_now(h);
    weir__unlock(&h->core->mu);
    return WEIR_OK;
}

static weir_status memory_positions(weir_store *base, store_positions *out, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    (void)err;
    weir__lock(&h->core->mu);
    *out = (store_positions){ .head = weir__memory_head(h->core), .now_us = weir__memory_now(h) };
    out->safe = out->head;
    memcpy(out->epoch, h->core->epoch, sizeof out->epoch);
    memcpy(out->log, h->core->epoch, sizeof out->log);
    weir__unlock(&h->core->mu);
    return WEIR_OK;
}

static weir_status memory_stats(weir_store *base, store_stats *out, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    (void)err;
    weir__lock(&h->core->mu);
    *out = (store_stats){
        .schema = MEMORY_SCHEMA,
        .streams = (int64_t)h->core->streams.count,
        .targets = (int64_t)h->core->targets_count,
        .blocked = weir__memory_blocked_count(h->core),
        .parked = (int64_t)h->core->parked.count,
        .transactions = h->transactions,
        .durability = "none",
        .library = "memory",
    };
    weir__unlock(&h->core->mu);
    return WEIR_OK;
}

static weir_status memory_test_seed(weir_store *base, int64_t position_base, int64_t version_base,
                                    weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    if (h->core->log_count > 0) {
        status =
            weir__fail(err, WEIR_EMISUSE, "only an empty store can be given another beginning");
    } else {
        h->core->position_base = position_base;
        h->core->version_base = version_base;
    }
    weir__unlock(&h->core->mu);
    return status;
}

static const weir_store_ops memory_ops = {
    .version = STORE_OPS_VERSION,
    .scheme = "memory",
    .group_commit = 0,
    .close = memory_close,
    .now = memory_now,
    .append = weir__memory_append,
    .read_stream = weir__memory_read_stream,
    .read_log = weir__memory_read_log,
    .stream_info = weir__memory_stream_info,
    .streams = weir__memory_streams,
    .key_owner = weir__memory_key_owner,
    .positions = memory_positions,
    .declare = weir__memory_declare,
    .reactions = weir__memory_reactions,
    .retire = weir__memory_retire,
    .router_lease = weir__memory_router_lease,
    .route = weir__memory_route,
    .subscribe = weir__memory_subscribe,
    .lease = weir__memory_lease,
    .fetch = weir__memory_fetch,
    .settle = weir__memory_settle,
    .extend = weir__memory_extend,
    .release = weir__memory_release,
    .block = weir__memory_block,
    .defer = weir__memory_defer,
    .operate = weir__memory_operate,
    .lane_pause = weir__memory_lane_pause,
    .targets = weir__memory_targets,
    .lanes = weir__memory_lanes,
    .parked = weir__memory_parked,
    .parked_retry = weir__memory_parked_retry,
    .parked_drop = weir__memory_parked_drop,
    .poll = weir__memory_poll,
    .snapshot_put = weir__memory_snapshot_put,
    .snapshot_get = weir__memory_snapshot_get,
    .snapshot_drop = weir__memory_snapshot_drop,
    .watch_open = weir__memory_watch_open,
    .watch_wait = weir__watch_wait,
    .watch_fd = weir__watch_fd,
    .watch_close = weir__memory_watch_close,
    .stats = memory_stats,
    .check = weir__memory_check,
    .test_seed = memory_test_seed,
    .holders = weir__holders_none,
    .worker_beat = weir__memory_worker_beat,
    .workers = weir__memory_workers,
    .turn = weir__memory_turn,
    .lock_take = weir__memory_lock_take,
    .lock_extend = weir__memory_lock_extend,
    .lock_release = weir__memory_lock_release,
    .locks = weir__memory_locks,
    .once_begin = weir__memory_once_begin,
    .once_extend = weir__memory_once_extend,
    .once_finish = weir__memory_once_finish,
    .once_forget = weir__memory_once_forget,
    .once_runs = weir__memory_once_runs,
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
    h->base.ops = &memory_ops;
    h->base.opened = STORE_MADE;
    h->clock = options->clock;
    h->readonly = readonly;
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
