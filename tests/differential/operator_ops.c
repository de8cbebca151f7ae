/* operator_ops.c - random operator's verbs, listings, parked events, snapshots; and the world's
 * own: time, reopening, checks. */
#include "world.h"

#include <stdlib.h>

/* ---- operating ---------------------------------------------------------------------------- */

typedef struct some_filter {
    store_target_filter filter;
    weir_str names[2];
    store_pattern *match, *source;
} some_filter;

static const char *target_name(world *w)
{
    if (w->notes_count > 0 && one_in(w, 2)) {
        return w->notes[chance(w, w->notes_count < NOTES_MAX ? w->notes_count : NOTES_MAX)].target;
    }
    return one_in(w, 10) ? "nobody" : stream_name((int)chance(w, STREAMS));
}

static void some_filter_make(world *w, some_filter *f)
{
    static const char *const lanes[LANES] = { "fast", "mail", "slow" };
    *f = (some_filter){ 0 };
    if (one_in(w, 2)) {
        f->filter.names = f->names;
        f->filter.names_count = 1 + chance(w, 2);
        for (size_t i = 0; i < f->filter.names_count; i++) {
            f->names[i] = weir__str(text(w, "%s", target_name(w)));
            what(w, " %s", f->names[i].ptr);
        }
        return;
    }
    f->match = some_pattern(w);
    f->filter.match = f->match;
    if (one_in(w, 3)) {
        f->source = some_pattern(w);
        f->filter.source = f->source;
    }
    if (one_in(w, 3)) {
        f->filter.lane = weir__str(lanes[chance(w, LANES)]);
        what(w, " lane %s", f->filter.lane.ptr);
    }
    f->filter.blocked = one_in(w, 4);
}

static void some_filter_free(some_filter *f)
{
    weir__pattern_close(f->match);
    weir__pattern_close(f->source);
}

static void op_operate(world *w)
{
    static const char *const verbs[] = { "",           "unblock", "reset", "skip",
                                         "prioritize", "pause",   "resume" };
    some_filter f;
    store_operate made = { .verb = (store_verb)(1 + chance(w, 6)),
                           .dry_run = one_in(w, 5),
                           .by = weir__str(one_in(w, 2) ? "ann" : "bob"),
                           .reset_to = (int32_t)chance(w, 3),
                           .position = w->position_base + (int64_t)chance(w, 200),
                           .time_us = w->wall_us - (int64_t)chance(w, 600000000),
                           .priority = (int64_t)chance(w, 7) - 3,
                           .clear = one_in(w, 3) };
    if (one_in(w, 4)) {
        made.verb = STORE_UNBLOCK;
    }
    if (made.verb == STORE_RESUME || made.verb == STORE_PAUSE) { /* or all would end up paused */
        made.verb = one_in(w, 5) ? STORE_PAUSE : STORE_RESUME;
    }
    what(w, "operate %s dry %d reset %d position %lld priority %lld clear %d", verbs[made.verb],
         made.dry_run, made.reset_to, (long long)made.position, (long long)made.priority,
         made.clear);
    some_filter_make(w, &f);
    made.filter = f.filter;
    for (int store = 0; store < w->stores_count; store++) {
        store_operate op = made;
        weir_error err;
        const weir_status status = w->stores[store]->work->operate(w->stores[store], &op, &err);
        say_status(w, store, status, &err);
        say(w, store, "  changed %lld\n", status == WEIR_OK ? (long long)op.changed : -1LL);
        w->must_wake = w->must_wake || (status == WEIR_OK && op.changed > 0 && !op.dry_run);
    }
    some_filter_free(&f);
    reactions_look(w); /* a reset of work rows takes routing back */
}

static void op_lane_pause(world *w)
{
    static const char *const lanes[] = { "fast", "mail", "slow", "unused" };
    const char *lane = lanes[chance(w, 4)];
    const bool paused = one_in(w, 4);
    what(w, "lane_pause %s %d", lane, paused);
    for (int store = 0; store < w->stores_count; store++) {
        bool changed = false;
        weir_error err;
        say_status(w, store,
                   w->stores[store]->work->lane_pause(w->stores[store], weir__str(lane), paused,
                                                      weir__str("ann"), &changed, &err),
                   &err);
        say(w, store, "  changed %d\n", changed);
    }
}

/* ---- listings ----------------------------------------------------------------------------- */

static void target_say(world *w, int store, const store_target *t)
{
    say(w, store,
        "  target %.*s lane %.*s priority %lld%s state %d watermark %lld mark %lld lost %lld fence "
        "%lld behind %d",
        (int)t->name.len, t->name.ptr, (int)t->lane.len, t->lane.ptr, (long long)t->priority,
        t->prioritized ? "!" : "", (int)t->state, (long long)t->watermark, (long long)t->mark,
        (long long)t->lost, (long long)t->fence, t->behind);
    say(w, store, " holder %.*s until %lld due %lld blocked %d since %lld error %s event %lld",
        (int)t->holder.len, t->holder.len == 0 ? "" : t->holder.ptr, (long long)t->leased_until_us,
        (long long)t->due_us, t->blocked, (long long)t->blocked_us, reason(w, t->error),
        (long long)t->event);
    say(w, store, " reaction %.*s attempts %lld paused %d by %.*s\n", (int)t->reaction.len,
        t->reaction.len == 0 ? "" : t->reaction.ptr, (long long)t->attempts, t->paused,
        (int)t->paused_by.len, t->paused_by.len == 0 ? "" : t->paused_by.ptr);
    for (int i = 0; i < REACTIONS; i++) {
        for (size_t j = 0; j < t->subscriptions_count; j++) {
            const store_subscription *s = &t->subscriptions[j];
            if (weir__str_equal(s->reaction_name, weir__str(reaction_name(i)))) {
                say(w, store,
                    "    %s at %lld mark %lld retries %lld priority %lld retired %d source %.*s "
                    "value "
                    "%.*s\n",
                    reaction_name(i), (long long)s->at, (long long)s->mark, (long long)s->retries,
                    (long long)s->priority, s->retired, (int)s->source.len,
                    s->source.len == 0 ? "" : s->source.ptr, (int)s->value.len,
                    s->value.len == 0 ? "" : s->value.ptr);
            }
        }
    }
}

static void op_targets(world *w)
{
    some_filter f;
    what(w, "targets");
    some_filter_make(w, &f);
    if (one_in(w, 2)) {
        some_filter_free(&f);
        f = (some_filter){ 0 };
        what(w, " (all)");
    }
    const store_targets_query query = { .filter = f.filter, .limit = 1 + (int64_t)chance(w, 20) };
    for (int store = 0; store < w->stores_count; store++) {
        store_targets_chunk chunk = { 0 };
        store_targets_query q = query;
        weir_error err;
        bool more = true;
        while (more) {
            const weir_status status =
                w->stores[store]->work->targets(w->stores[store], &q, &chunk, &err);
            if (status != WEIR_OK) {
                say_status(w, store, status, &err);
                break;
            }
            for (size_t i = 0; i < chunk.targets_count; i++) {
                target_say(w, store, &chunk.targets[i]);
            }
            more = chunk.more;
            q.after = weir__str(text(w, "%.*s", (int)chunk.scanned_to.len,
                                     chunk.scanned_to.len == 0 ? "" : chunk.scanned_to.ptr));
        }
        weir__arena_free(&chunk.arena);
    }
    some_filter_free(&f);
}

static void op_lanes(world *w)
{
    what(w, "lanes");
    for (int store = 0; store < w->stores_count; store++) {
        store_lane_list list = { 0 };
        weir_error err;
        say_status(w, store, w->stores[store]->work->lanes(w->stores[store], &list, &err), &err);
        for (size_t i = 0; i < list.lanes_count; i++) {
            const store_lane *l = &list.lanes[i];
            say(w, store, "  lane %.*s paused %d by %.*s: %lld %lld %lld %lld %lld %lld\n",
                (int)l->lane.len, l->lane.ptr, l->paused, (int)l->paused_by.len,
                l->paused_by.len == 0 ? "" : l->paused_by.ptr, (long long)l->targets,
                (long long)l->ready, (long long)l->leased, (long long)l->blocked,
                (long long)l->retrying, (long long)l->deferred);
        }
        weir__arena_free(&list.arena);
    }
}

static void op_poll(world *w)
{
    static const char *const lanes[] = { "", "fast", "mail", "slow" };
    const char *lane = lanes[chance(w, 4)];
    what(w, "poll %s", lane);
    for (int store = 0; store < w->stores_count; store++) {
        store_poll p = { .lane = weir__str(lane) };
        weir_error err;
        say_status(w, store, w->stores[store]->work->poll(w->stores[store], &p, &err), &err);
        say(w, store,
            "  head %lld safe %lld now %lld routed %lld ready %d due %lld lease %lld router %lld\n",
            (long long)p.head, (long long)p.safe, (long long)p.now_us, (long long)p.routed_least,
            p.ready, (long long)p.due_us, (long long)p.lease_end_us, (long long)p.router_end_us);
    }
}

/* ---- parked events ------------------------------------------------------------------------ */

enum { PARKED_MAX = 200 };

static size_t parked_list(world *w, int store, const store_parked_query *q, int64_t *ids)
{
    store_parked_chunk chunk = { 0 };
    weir_error err;
    say_status(w, store, w->stores[store]->work->parked(w->stores[store], q, &chunk, &err), &err);
    const size_t count = chunk.parked_count < PARKED_MAX ? chunk.parked_count : PARKED_MAX;
    for (size_t i = 0; i < count; i++) {
        const store_parked *p = &chunk.parked[i];
        ids[i] = p->id;
        say(w, store,
            "  parked %.*s event %lld attempts %lld at %lld target %.*s error %s back %d\n",
            (int)p->reaction_name.len, p->reaction_name.ptr, (long long)p->event,
            (long long)p->attempts, (long long)p->parked_us, (int)p->target.len,
            p->target.len == 0 ? "" : p->target.ptr, reason(w, p->error), p->sent_back);
    }
    say(w, store, "  more %d\n", chunk.more);
    weir__arena_free(&chunk.arena);
    return count;
}

static void op_parked(world *w)
{
    int64_t ids[PARKED_MAX];
    const store_parked_query q = {
        .limit = one_in(w, 2) ? 1 + (int64_t)chance(w, 5) : PARKED_MAX,
        .target = weir__str(one_in(w, 3) ? text(w, "%s", target_name(w)) : ""),
        .reaction = weir__str(one_in(w, 3) ? reaction_name((int)chance(w, REACTIONS)) : ""),
    };
    what(w, "parked limit %lld target %s reaction %s", (long long)q.limit, q.target.ptr,
         q.reaction.ptr);
    for (int store = 0; store < w->stores_count; store++) {
        parked_list(w, store, &q, ids);
    }
}

static void parked_one(world *w, bool retry)
{
    int64_t ids[STORES][PARKED_MAX];
    const store_parked_query all = { .limit = PARKED_MAX };
    const uint64_t which = chance(w, 1000);
    const bool nobody = one_in(w, 20);
    what(w, "%s %u nobody %d", retry ? "parked_retry" : "parked_drop", (unsigned)which, nobody);
    for (int store = 0; store < w->stores_count; store++) {
        const size_t count = parked_list(w, store, &all, ids[store]);
        const int64_t id = count == 0 || nobody ? 777777 : ids[store][which % count];
        weir_store *s = w->stores[store];
        weir_error err;
        const weir_status status =
            s->work->parked_change(s, id, retry ? STORE_PARKED_RETRY : STORE_PARKED_DROP, &err);
        say_status(w, store, status, &err);
    }
}

static void op_parked_retry(world *w)
{
    parked_one(w, true);
}

static void op_parked_drop(world *w)
{
    parked_one(w, false);
}

/* ---- snapshots ---------------------------------------------------------------------------- */

static void op_snapshot(world *w)
{
    const uint64_t kind = chance(w, 5);
    const char *revision = text(w, "rev-%u", (unsigned)chance(w, 2));
    const weir_str stream = weir__str(stream_name((int)chance(w, STREAMS)));
    store_stream_info info = { 0 };
    if (w->stores[0]->log->stream_info(w->stores[0], stream, &w->arena, &info, NULL) != WEIR_OK) {
        return; /* one that is not there has no version to keep */
    }
    const store_snapshot put = {
        .stream = stream,
        .revision = weir__str(revision),
        .version =
            info.version - (int64_t)chance(w, info.version < 5 ? (uint64_t)info.version + 1 : 6),
        .data = weir__str(text(w, "state %u", (unsigned)chance(w, 100)))
    };
    const char *category = one_in(w, 2) ? "a" : "b";
    what(w, "snapshot %u %s %s %lld", (unsigned)kind, put.stream.ptr, revision,
         (long long)put.version);
    for (int store = 0; store < w->stores_count; store++) {
        weir_store *s = w->stores[store];
        store_snapshot got = { 0 };
        int64_t dropped = 0;
        weir_error err;
        weir_status status = WEIR_OK;
        if (kind < 2) {
            status = s->log->snapshot_put(s, &put, &err);
        } else if (kind < 4) {
            status = s->log->snapshot_get(s, put.stream, put.revision, put.version, &w->arena, &got,
                                          &err);
        } else {
            status = s->log->snapshot_drop(s, weir__str(category), put.revision, &dropped, &err);
        }
        say_status(w, store, status, &err);
        say(w, store, "  version %lld data %.*s dropped %lld\n", (long long)got.version,
            (int)got.data.len, got.data.len == 0 ? "" : got.data.ptr, (long long)dropped);
    }
}

/* ---- workers ------------------------------------------------------------------------------ */

static void worker_say(world *w, int store, const store_worker *worker)
{
    say(w, store, "  worker %.*s host %.*s pid %lld since %lld until %lld draining %d holds %lld",
        (int)worker->name.len, worker->name.ptr, (int)worker->host.len, worker->host.ptr,
        (long long)worker->pid, (long long)worker->since_us, (long long)worker->until_us,
        worker->draining, (long long)worker->holds);
    for (size_t i = 0; i < worker->lanes_count; i++) {
        say(w, store, " %.*s", (int)worker->lanes[i].len, worker->lanes[i].ptr);
    }
    for (size_t i = 0; i < worker->known_count; i++) {
        say(w, store, " %lld/%lld", (long long)worker->known[i].reaction,
            (long long)worker->known[i].number);
    }
    say(w, store, "\n");
}

static void op_workers(world *w)
{
    const bool count = one_in(w, 2);
    what(w, "workers%s", count ? " with what they hold" : "");
    for (int store = 0; store < w->stores_count; store++) {
        store_worker_list list = { .count_holds = count };
        weir_error err;
        say_status(w, store, w->stores[store]->about->workers(w->stores[store], &list, &err), &err);
        for (size_t i = 0; i < list.workers_count; i++) {
            worker_say(w, store, &list.workers[i]);
        }
        weir__arena_free(&list.arena);
    }
}

/* As holders of leases are called (target_ops.c), and others. */
static void op_worker_beat(world *w)
{
    static const int64_t leases_us[] = { 0, 1, 30000000, 30000000, INT64_MAX };
    const weir_str lanes[] = { weir__str("slow"), weir__str("fast"), weir__str("mail") };
    const store_known_reaction known[] = { { 1, 2 }, { INT64_MAX, 1 }, { 3, INT64_MAX } };
    const int64_t lease_us = leases_us[chance(w, sizeof leases_us / sizeof leases_us[0])];
    const store_worker worker = { .name = weir__str(text(w, "worker-%d", (int)chance(w, 8))),
                                  .host = weir__str(one_in(w, 2) ? "here" : "there"),
                                  .pid = (int64_t)chance(w, 100),
                                  .lanes = lanes,
                                  .lanes_count = chance(w, 4),
                                  .known = known,
                                  .known_count = chance(w, 4),
                                  .draining = one_in(w, 3) };
    what(w, "worker_beat %.*s for %lld", (int)worker.name.len, worker.name.ptr,
         (long long)lease_us);
    for (int store = 0; store < w->stores_count; store++) {
        weir_error err;
        say_status(w, store,
                   w->stores[store]->about->worker_beat(w->stores[store], &worker, lease_us, &err),
                   &err);
    }
}

const operation operator_operations[] = {
    { "operate", 30, op_operate },
    { "lane_pause", 4, op_lane_pause },
    { "targets", 12, op_targets },
    { "lanes", 4, op_lanes },
    { "poll", 8, op_poll },
    { "parked", 5, op_parked },
    { "parked_retry", 6, op_parked_retry },
    { "parked_drop", 3, op_parked_drop },
    { "snapshot", 8, op_snapshot },
    { "worker_beat", 6, op_worker_beat },
    { "workers", 4, op_workers },
    { NULL, 0, NULL },
};

/* ---- time, reopening, checks -------------------------------------------------------------- */

/* A write, so that every store has kept the time it is now: what only one of them was asked for
 * would not be known to a handle that is opened later. */
static void time_keep(world *w)
{
    for (int store = 0; store < w->stores_count; store++) {
        const store_worker clock = { .name = weir__str("clock"),
                                     .host = weir__str("here"),
                                     .metrics = weir__str("{}") };
        int64_t now_us = 0;
        weir_error err;
        weir_store *s = w->stores[store];
        if (s->about->worker_beat(s, &clock, 1, &err) != WEIR_OK ||
            s->about->now(s, &now_us, &err) != WEIR_OK) {
            wrong(w, "store %d: %s", store, err.message);
        }
        say(w, store, "now %lld\n", (long long)now_us);
    }
}

static void op_clock(world *w)
{
    static const int64_t steps[] = { 1,
                                     1000,
                                     1000 * 1000,
                                     1000 * 1000,
                                     1000 * 1000,
                                     INT64_C(2) * 1000 * 1000,
                                     INT64_C(5) * 1000 * 1000,
                                     INT64_C(30) * 1000 * 1000,
                                     INT64_C(3600) * 1000 * 1000,
                                     INT64_C(25) * 3600 * 1000 * 1000 };
    const int64_t step =
        1 + (int64_t)chance(w, (uint64_t)steps[chance(w, sizeof steps / sizeof steps[0])]);
    if (one_in(w, 12)) {
        what(w, "the wall clock goes back by %lld", (long long)step);
        time_keep(w);
        w->wall_us -= step;
        return;
    }
    what(w, "time passes: %lld", (long long)step);
    w->wall_us += step;
    w->mono_us += step;
    /* While the wall clock is behind, what time it is depends on when it was last asked for. */
    for (int store = 0; store < w->stores_count; store++) {
        int64_t now_us = 0;
        weir_error err;
        say_status(w, store, w->stores[store]->about->now(w->stores[store], &now_us, &err), &err);
        say(w, store, "now %lld\n", (long long)now_us);
        if (store == 0) {
            world_realign(w); /* the database's clock goes with it */
        }
    }
}

static void op_reopen(world *w)
{
    weir_error err;
    what(w, "reopen");
    time_keep(w);
    if (!world_reopen(w, &err)) {
        wrong(w, "could not reopen: %s", err.message);
    }
}

static void finding(void *ctx, const char *rule, const char *sentence, const char *advice)
{
    world *w = ctx;
    (void)advice;
    wrong(w, "check: %s: %s", rule, sentence);
}

static void op_check(world *w)
{
    what(w, "stats and check");
    for (int store = 0; store < w->stores_count; store++) {
        store_stats stats = { 0 };
        weir_error err;
        weir_store *s = w->stores[store];
        say_status(w, store, s->about->stats(s, &stats, &err), &err);
        say(w, store, "  streams %lld targets %lld blocked %lld parked %lld\n",
            (long long)stats.streams, (long long)stats.targets, (long long)stats.blocked,
            (long long)stats.parked);
        say_status(w, store, s->about->check(s, finding, w, &err), &err);
    }
}

const operation world_operations[] = {
    { "clock", 45, op_clock },
    { "reopen", 4, op_reopen },
    { "check", 5, op_check },
    { NULL, 0, NULL },
};
