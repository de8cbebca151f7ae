/* fault.c - see fault.h.
 *
 * Every verb has the same shape: call_begin decides whether the plan concerns this call, the inner
 * store is called once or twice, call_end replaces its answer if it has to.
 *
 * THREADS  `mu` guards the plan and the counters. It is a leaf lock: neither the inner store nor a
 * callback is called while it is held.
 */
#include "store/fault/fault.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/thread.h"

typedef struct fault_store {
    weir_store base;
    /* immutable after weir__fault_open */
    store_log_ops log; /* its group_commit is the inner store's */
    weir_store *inner; /* owned */

    weir_mutex mu;
    /* guarded by mu */
    fault_plan plan;
    uint64_t seen; /* calls that fit the plan's verb since it was set */
    uint64_t hits;
    uint64_t calls[FAULT_VERBS_COUNT]; /* FAULT_ANY: all of them */
} fault_store;

struct store_watch {
    fault_store *store; /* borrowed */
    store_watch *inner; /* owned; the inner store's own type */
};

/* One call on its way through. */
typedef struct fault_call {
    bool hit;
    bool repeat; /* the inner store is to be called once more */
    fault_plan plan;
} fault_call;

static fault_store *self_of(weir_store *base)
{
    return (fault_store *)(void *)base;
}

/* WEIR_OK: go on to the inner store. */
static weir_status call_begin(fault_store *s, fault_verb verb, fault_call *call, weir_error *err)
{
    *call = (fault_call){ .hit = false };
    weir__lock(&s->mu);
    s->calls[FAULT_ANY]++;
    s->calls[verb]++;
    call->plan = s->plan;
    if (s->plan.nth > 0 && (s->plan.verb == FAULT_ANY || s->plan.verb == verb)) {
        const uint64_t count = s->plan.count == 0 ? 1 : s->plan.count;
        s->seen++;
        call->hit = s->seen >= s->plan.nth && s->seen - s->plan.nth < count;
        s->hits += call->hit;
    }
    weir__unlock(&s->mu);

    if (!call->hit) {
        return WEIR_OK;
    }
    switch (call->plan.action) {
    case FAULT_FAIL_BEFORE:
        return weir__fail(err, call->plan.status, "fault: failed before the call");
    case FAULT_FAIL_AFTER:
        break;
    case FAULT_DELAY:
        call->plan.delay_cb(call->plan.delay_ctx, verb);
        break;
    case FAULT_REPEAT:
        call->repeat = true;
        break;
    }
    return WEIR_OK;
}

static bool call_again(fault_call *call)
{
    const bool again = call->repeat;
    call->repeat = false;
    return again;
}

static weir_status call_end(const fault_call *call, weir_status status, weir_error *err)
{
    if (status == WEIR_OK && call->hit && call->plan.action == FAULT_FAIL_AFTER) {
        return weir__fail(err, call->plan.status, "fault: failed after the call");
    }
    return status;
}

static weir_status fault_now(weir_store *base, int64_t *now_us, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_NOW, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->now(s->inner, now_us, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_APPEND, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->append(s->inner, appends, count, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_READ_STREAM, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->read_stream(s->inner, q, chunk, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_READ_LOG, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->read_log(s->inner, q, chunk, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_STREAM_INFO, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->stream_info(s->inner, stream, arena, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_STREAMS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->streams(s->inner, q, chunk, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_positions(weir_store *base, store_positions *out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_POSITIONS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->positions(s->inner, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_DECLARE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->declare(s->inner, d, arena, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_REACTIONS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->reactions(s->inner, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_retire(weir_store *base, weir_str name, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_RETIRE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->retire(s->inner, name, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_ROUTER_LEASE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->router_lease(s->inner, holder, lease_us, items, count, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_ROUTE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->route(s->inner, r, bad_mark, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_FETCH, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->fetch(s->inner, items, count, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_SETTLE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->settle(s->inner, settle, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, lease_us == 0 ? FAULT_RELEASE : FAULT_EXTEND, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->extend(s->inner, lease_us, items, count, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_operate(weir_store *base, store_operate *op, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_OPERATE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->operate(s->inner, op, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LANE_PAUSE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->lane_pause(s->inner, lane, paused, by, changed, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_TARGETS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->targets(s->inner, q, chunk, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LANES, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->lanes(s->inner, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_PARKED, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->parked(s->inner, q, chunk, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                       weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_PARKED_CHANGE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->parked_change(s->inner, parked, action, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_poll(weir_store *base, store_poll *poll, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_POLL, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->poll(s->inner, poll, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_SNAPSHOT_PUT, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->snapshot_put(s->inner, snapshot, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_SNAPSHOT_GET, &call, err);
    if (status == WEIR_OK) {
        do {
            status =
                s->inner->log->snapshot_get(s->inner, stream, revision, at_most, arena, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_SNAPSHOT_DROP, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->snapshot_drop(s->inner, category, keep_revision, dropped, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_stats(weir_store *base, store_stats *out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_STATS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->stats(s->inner, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_CHECK, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->check(s->inner, fn, ctx, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_holders(weir_store *base, store_holder_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_HOLDERS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->holders(s->inner, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_WORKER_BEAT, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->worker_beat(s->inner, worker, lease_us, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_workers(weir_store *base, store_worker_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_WORKERS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->about->workers(s->inner, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, settles_count == 0 ? FAULT_LEASE : FAULT_TURN, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->work->turn(s->inner, settles, settles_count, lease, list, err);
        } while (call_again(&call));
    }
    status = call_end(&call, status, err);
    if (status != WEIR_OK) {
        list->leases = NULL;
        list->leases_count = 0;
    }
    return status;
}

static weir_status fault_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                                   store_lock *out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LOCK_TAKE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->take(s->inner, q, arena, out, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                     int64_t fence, int64_t token, int64_t lease_us,
                                     weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LOCK_EXTEND, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->extend(s->inner, kind, name, fence, token, lease_us, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LOCK_RELEASE, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->release(s->inner, name, fence, token, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_locks(weir_store *base, store_lock_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_LOCKS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->list(s->inner, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_ONCE_FINISH, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->finish(s->inner, key, fence, token, exit_status, output, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_once_forget(weir_store *base, weir_str key, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_ONCE_FORGET, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->forget(s->inner, key, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static weir_status fault_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    weir_status status = call_begin(s, FAULT_ONCE_RUNS, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->locks->runs(s->inner, match, limit, list, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static void fault_watch_close(store_watch *watch)
{
    if (watch != NULL) {
        watch->store->inner->log->watch_close(watch->inner);
        weir__free(watch);
    }
}

/* Not repeated: a second watch would have no owner. */
static weir_status fault_watch_open(weir_store *base, store_watch **out, weir_error *err)
{
    fault_store *s = self_of(base);
    fault_call call;
    store_watch *watch = NULL;
    weir_status status = call_begin(s, FAULT_WATCH_OPEN, &call, err);
    if (status != WEIR_OK) {
        return status;
    }
    watch = weir__calloc(1, sizeof *watch);
    if (watch == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a watch");
    }
    watch->store = s;
    status = s->inner->log->watch_open(s->inner, &watch->inner, err);
    if (status != WEIR_OK) {
        weir__free(watch);
        return status;
    }
    status = call_end(&call, status, err);
    if (status != WEIR_OK) {
        fault_watch_close(watch);
        return status;
    }
    *out = watch;
    return WEIR_OK;
}

static weir_status fault_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                    weir_error *err)
{
    fault_store *s = watch->store;
    fault_call call;
    weir_status status = call_begin(s, FAULT_WATCH_WAIT, &call, err);
    if (status == WEIR_OK) {
        do {
            status = s->inner->log->watch_wait(watch->inner, timeout_ms, woken, err);
        } while (call_again(&call));
    }
    return call_end(&call, status, err);
}

static int fault_watch_fd(store_watch *watch)
{
    return watch->store->inner->log->watch_fd(watch->inner);
}

static void fault_close(weir_store *base)
{
    fault_store *s = self_of(base);
    s->inner->about->close(s->inner);
    weir__mutex_destroy(&s->mu);
    weir__free(s);
}

static const store_log_ops fault_log_ops = {
    .append = fault_append,
    .read_stream = fault_read_stream,
    .read_log = fault_read_log,
    .stream_info = fault_stream_info,
    .streams = fault_streams,
    .positions = fault_positions,
    .snapshot_put = fault_snapshot_put,
    .snapshot_get = fault_snapshot_get,
    .snapshot_drop = fault_snapshot_drop,
    .watch_open = fault_watch_open,
    .watch_wait = fault_watch_wait,
    .watch_fd = fault_watch_fd,
    .watch_close = fault_watch_close,
};

static const store_work_ops fault_work_ops = {
    .declare = fault_declare,
    .reactions = fault_reactions,
    .retire = fault_retire,
    .router_lease = fault_router_lease,
    .route = fault_route,
    .fetch = fault_fetch,
    .settle = fault_settle,
    .extend = fault_extend,
    .operate = fault_operate,
    .lane_pause = fault_lane_pause,
    .targets = fault_targets,
    .lanes = fault_lanes,
    .parked = fault_parked,
    .parked_change = fault_parked_change,
    .poll = fault_poll,
    .turn = fault_turn,
};

static const store_locks_ops fault_locks_ops = {
    .take = fault_lock_take,
    .extend = fault_lock_extend,
    .release = fault_lock_release,
    .list = fault_locks,
    .finish = fault_once_finish,
    .forget = fault_once_forget,
    .runs = fault_once_runs,
};

static const store_about_ops fault_about_ops = {
    .scheme = "fault",
    .close = fault_close,
    .now = fault_now,
    .stats = fault_stats,
    .check = fault_check,
    .holders = fault_holders,
    .worker_beat = fault_worker_beat,
    .workers = fault_workers,
};

weir_status weir__fault_open(weir_store **out, weir_store *inner, weir_error *err)
{
    fault_store *s = weir__calloc(1, sizeof *s);
    if (s == NULL || !weir__mutex_init(&s->mu)) {
        weir__free(s);
        inner->about->close(inner);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the fault store");
    }
    s->log = fault_log_ops;
    s->log.group_commit = inner->log->group_commit;
    s->base.log = &s->log;
    s->base.work = &fault_work_ops;
    s->base.locks = &fault_locks_ops;
    s->base.about = &fault_about_ops;
    s->inner = inner;
    *out = &s->base;
    return WEIR_OK;
}

void weir__fault_set(weir_store *base, const fault_plan *plan)
{
    fault_store *s = self_of(base);
    WEIR_ASSERT(plan->action != FAULT_DELAY || plan->delay_cb != NULL);
    weir__lock(&s->mu);
    s->plan = *plan;
    s->seen = 0;
    s->hits = 0;
    weir__unlock(&s->mu);
}

uint64_t weir__fault_hits(weir_store *base)
{
    fault_store *s = self_of(base);
    weir__lock(&s->mu);
    const uint64_t hits = s->hits;
    weir__unlock(&s->mu);
    return hits;
}

uint64_t weir__fault_calls(weir_store *base, fault_verb verb)
{
    fault_store *s = self_of(base);
    weir__lock(&s->mu);
    const uint64_t calls = s->calls[verb];
    weir__unlock(&s->mu);
    return calls;
}

weir_store *weir__fault_inner(weir_store *base)
{
    return self_of(base)->inner;
}
