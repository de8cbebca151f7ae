/* schema_client.c - calls every verb of a PostgreSQL store once or twice, in an order that makes
 * sense.
 *
 *   schema_client URL
 *
 * What it sends while a schema is the current one is kept (schema-1/keep.sh): the client of that
 * version, as later versions of the schema have to understand it. It says nothing when all is well.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAR_FUTURE_US INT64_C(4102444800000000) /* 2100: times that are sent must not have passed */

static weir_store *store;
static weir_error err;

#define CALL(status, call)                                                                         \
    do {                                                                                           \
        const weir_status got = (call);                                                            \
        if (got != (status)) {                                                                     \
            (void)fprintf(stderr, "%s: %s, %s\n", #call, weir_status_text(got), err.message);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct append_to {
    const char *stream, *key, *reserve;
    int32_t expect;
    uint32_t flags;
} append_to;

/* One event each, all of them in one call; the status of the last one. */
static weir_status append(const append_to *items, size_t count, int64_t *id)
{
    store_append appends[4] = { 0 };
    store_append *list[4];
    store_append_stream streams[4];
    store_new_event events[4];
    store_key_change changes[4];
    for (size_t i = 0; i < count; i++) {
        const bool close = (items[i].flags & STORE_APPEND_CLOSE) != 0;
        streams[i] =
            (store_append_stream){ .name = weir__str(items[i].stream), .expect = items[i].expect };
        events[i] = (store_new_event){ .name = weir__str(close ? "$closed" : "Placed"),
                                       .data = weir__str("{\"n\":1}"),
                                       .meta = weir__str("{}") };
        changes[i] =
            (store_key_change){ .key = weir__str(items[i].reserve), .change = WEIR_KEY_RESERVE };
        appends[i] = (store_append){ .flags = items[i].flags,
                                     .streams = &streams[i],
                                     .streams_count = 1,
                                     .events = &events[i],
                                     .events_count = 1,
                                     .key_changes = &changes[i],
                                     .key_changes_count = items[i].reserve == NULL ? 0 : 1,
                                     .key = weir__str(items[i].key),
                                     .err = &err };
        list[i] = &appends[i];
    }
    CALL(WEIR_OK, store->log->append(store, list, count, &err));
    if (id != NULL) {
        *id = streams[count - 1].id;
    }
    return appends[count - 1].status;
}

static void use_streams(void)
{
    weir_arena arena = { 0 };
    store_stream_info info = { 0 };
    store_streams_chunk streams = { 0 };
    store_chunk chunk = { 0 };
    const append_to single = { .stream = "order-1" };
    const append_to keyed = { .stream = "order-2", .key = "once", .reserve = "email:a" };
    const append_to refused = { .stream = "order-1", .expect = WEIR_EXPECT_NONE };
    const append_to batch[] = { { .stream = "order-3" },
                                { .stream = "order-1", .expect = WEIR_EXPECT_EXISTS },
                                { .stream = "order-4" } };
    CALL(WEIR_OK, append(&single, 1, NULL));
    CALL(WEIR_OK, append(&keyed, 1, NULL));
    CALL(WEIR_OK, append(&keyed, 1, NULL)); /* a replay */
    CALL(WEIR_ECONFLICT, append(&refused, 1, NULL));
    CALL(WEIR_OK, append(batch, 3, NULL));
    const append_to closing = { .stream = "order-4",
                                .expect = WEIR_EXPECT_EXISTS,
                                .flags = STORE_APPEND_CLOSE };
    CALL(WEIR_OK, append(&closing, 1, NULL));
    CALL(WEIR_ECLOSED, append(&batch[2], 1, NULL));

    CALL(WEIR_OK, store->log->stream_info(store, weir__str("order-1"), &arena, &info, &err));
    CALL(WEIR_OK,
         store->log->streams(store, &(store_streams_query){ .limit = 10 }, &streams, &err));
    weir__arena_free(&streams.arena);
    for (int backward = 0; backward < 2; backward++) {
        const store_stream_query q = { .stream = weir__str("order-1"),
                                       .from = backward ? 9 : 0,
                                       .to = backward ? 0 : 9,
                                       .backward = backward != 0,
                                       .limit = 10,
                                       .until_us = INT64_MAX };
        CALL(WEIR_OK, store->log->read_stream(store, &q, &chunk, &err));
        const store_log_query all = { .after = backward ? 99 : 0,
                                      .to = backward ? 0 : INT64_MAX,
                                      .backward = backward != 0,
                                      .limit = 10 };
        CALL(WEIR_OK, store->log->read_log(store, &all, &chunk, &err));
    }
    weir__chunk_free(&chunk);
    weir__arena_free(&arena);
}

static store_reaction declare(weir_arena *arena, const char *name, store_rule rule)
{
    store_reaction out = { 0 };
    const weir_str names[] = { weir__str("Placed") };
    const store_reaction_declaration d = { .name = weir__str(name),
                                           .names = names,
                                           .names_count = 1,
                                           .source = weir__str("order-*"),
                                           .rule = rule,
                                           .rule_text = weir__str(name) };
    CALL(WEIR_OK, store->work->declare(store, &d, arena, &out, &err));
    return out;
}

static void route(const store_reaction *r, const char *target, int64_t event)
{
    const store_route_step step = {
        .reaction = r->id, .number = r->number, .from = event - 1, .to = event
    };
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str("default"),
                              .source = weir__str("order-*"),
                              .value = weir__str(r->rule == STORE_RULE_WORK ? "" : target),
                              .first = event,
                              .last = event };
    const store_route routed = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    CALL(WEIR_OK, store->work->route(store, &routed, NULL, &err));
}

/* Leases one target, which must be there. */
static store_leased lease(weir_arena *arena)
{
    store_lease_list list = { 0 };
    const store_lease_request request = { .lane = weir__str("default"),
                                          .holder = weir__str("client"),
                                          .lease_us = 60000000,
                                          .limit = 1,
                                          .leading = 1,
                                          .all_reactions = true };
    CALL(WEIR_OK, store->work->turn(store, NULL, 0, &request, &list, &err));
    if (list.leases_count != 1) {
        (void)fprintf(stderr, "nothing to lease\n");
        exit(1);
    }
    const store_leased leased = list.leases[0];
    weir__arena_free(arena);
    *arena = list.arena;
    return leased;
}

static void operate(store_verb verb, const char *target)
{
    const weir_str name = weir__str(target);
    store_operate op = { .verb = verb,
                         .filter = { .names = &name, .names_count = 1 },
                         .by = weir__str("client"),
                         .priority = 3 };
    CALL(WEIR_OK, store->work->operate(store, &op, &err));
}

/* Ends a lease as it is, and takes the next one in the same transaction. */
static store_leased turn(const store_leased *held, int64_t reaction)
{
    store_lease_list list = { 0 };
    const store_lease_request request = { .lane = weir__str("default"),
                                          .holder = weir__str("client"),
                                          .lease_us = 60000000,
                                          .limit = 1,
                                          .all_reactions = true };
    const store_advance advance = { .reaction = reaction, .to = 0 };
    store_settle settle = {
        .target = held->target, .fence = held->fence, .advances = &advance, .advances_count = 1
    };
    store_settle *const settles[] = { &settle };
    CALL(WEIR_OK, store->work->turn(store, settles, 1, &request, &list, &err));
    if (settle.status != WEIR_OK || list.leases_count != 1) {
        (void)fprintf(stderr, "a turn gave %d and %zu leases\n", settle.status, list.leases_count);
        exit(1);
    }
    const store_leased leased = { .target = list.leases[0].target, .fence = list.leases[0].fence };
    weir__arena_free(&list.arena);
    return leased;
}

static void end(const store_leased *held, store_end how, const store_failure *why)
{
    store_settle settle = { .target = held->target,
                            .fence = held->fence,
                            .failure = *why,
                            .end = how,
                            .until_us = FAR_FUTURE_US };
    CALL(WEIR_OK, store->work->settle(store, &settle, &err));
}

/* Fetches, extends, fails, parks and settles with an effect. */
static void use_leases(const store_reaction *work, int64_t event)
{
    weir_arena arena = { 0 };
    store_fetch_list fetched = { 0 };
    store_leased leased = lease(&arena);
    const store_fetch_item item = { .target = leased.target,
                                    .reaction = work->id,
                                    .after = event - 1,
                                    .up_to = event,
                                    .limit = 5 };
    CALL(WEIR_OK, store->work->fetch(store, &item, 1, &fetched, &err));
    weir__arena_free(&fetched.arena);
    store_fenced fenced = { .target = leased.target, .fence = leased.fence };
    CALL(WEIR_OK, store->work->extend(store, 60000000, &fenced, 1, &err));
    const store_failure failure = { .reaction = work->id,
                                    .event = event,
                                    .error = weir__str("it failed") };
    store_settle failed = { .target = leased.target, .fence = leased.fence, .failure = failure };
    CALL(WEIR_OK, store->work->settle(store, &failed, &err));
    leased = lease(&arena);
    fenced = (store_fenced){ .target = leased.target, .fence = leased.fence };
    CALL(WEIR_OK, store->work->extend(store, 0, &fenced, 1, &err));
    leased = lease(&arena);
    leased = turn(&leased, work->id);
    end(&leased, STORE_END_BLOCK, &failure);
    operate(STORE_UNBLOCK, "t-1");
    leased = lease(&arena);
    end(&leased, STORE_END_DEFER, &(store_failure){ 0 });
    operate(STORE_SKIP, "t-1");
    weir__arena_free(&arena);
}

static void use_parked(const store_reaction *work, int64_t event)
{
    weir_arena arena = { 0 };
    store_parked_chunk chunk = { 0 };
    CALL(WEIR_OK, store->work->parked(store, &(store_parked_query){ .limit = 10 }, &chunk, &err));
    if (chunk.parked_count != 1) {
        (void)fprintf(stderr, "%zu events are parked, not 1\n", chunk.parked_count);
        exit(1);
    }
    const int64_t parked = chunk.parked[0].id;
    weir__arena_free(&chunk.arena);
    CALL(WEIR_OK, store->work->parked_change(store, parked, STORE_PARKED_RETRY, &err));
    const store_leased leased = lease(&arena);
    const store_advance advance = { .reaction = work->id, .to = event };
    store_append_stream stream = { .name = weir__str("mail-1") };
    const store_new_event sent = { .name = weir__str("Sent"),
                                   .data = weir__str("{}"),
                                   .meta = weir__str("{}") };
    store_append effect = {
        .streams = &stream, .streams_count = 1, .events = &sent, .events_count = 1, .err = &err
    };
    store_append *const effects[] = { &effect };
    store_settle settle = { .target = leased.target,
                            .fence = leased.fence,
                            .appends = effects,
                            .appends_count = 1,
                            .advances = &advance,
                            .advances_count = 1,
                            .parked_done = &parked,
                            .parked_done_count = 1 };
    CALL(WEIR_OK, store->work->settle(store, &settle, &err));
    CALL(WEIR_ENOTFOUND, store->work->parked_change(store, parked, STORE_PARKED_DROP, &err));
    weir__arena_free(&arena);
}

static void use_targets(void)
{
    weir_arena arena = { 0 };
    store_targets_chunk targets = { 0 };
    store_lane_list lanes = { 0 };
    store_reaction_list reactions = { 0 };
    store_poll poll = { .lane = weir__str("default") };
    bool changed = false;
    (void)declare(&arena, "mail", STORE_RULE_CONSTANT);
    const store_reaction work = declare(&arena, "bill", STORE_RULE_WORK);
    store_router_lease router = { .reaction = work.id };
    CALL(WEIR_OK,
         store->work->router_lease(store, weir__str("client"), 60000000, &router, 1, &err));
    route(&work, "t-1", 1);
    CALL(WEIR_OK, store->work->poll(store, &poll, &err));
    use_leases(&work, 1);
    use_parked(&work, 1);
    operate(STORE_RESET, "t-1");
    route(&work, "t-1", 1); /* again */
    operate(STORE_PRIORITIZE, "t-1");
    operate(STORE_PAUSE, "t-1");
    operate(STORE_RESUME, "t-1");
    CALL(WEIR_OK, store->work->lane_pause(store, weir__str("default"), true, weir__str("client"),
                                          &changed, &err));
    CALL(WEIR_OK,
         store->work->targets(store, &(store_targets_query){ .limit = 10 }, &targets, &err));
    CALL(WEIR_OK, store->work->lanes(store, &lanes, &err));
    CALL(WEIR_OK, store->work->reactions(store, &reactions, &err));
    CALL(WEIR_OK, store->work->retire(store, weir__str("mail"), &err));
    weir__arena_free(&targets.arena);
    weir__arena_free(&lanes.arena);
    weir__arena_free(&reactions.arena);
    weir__arena_free(&arena);
}

static void use_the_rest(void)
{
    weir_arena arena = { 0 };
    store_positions positions;
    store_holder_list holders = { 0 };
    store_stats stats;
    int64_t now_us = 0;
    store_snapshot snapshot = { .stream = weir__str("order-1"),
                                .revision = weir__str("r1"),
                                .version = 0,
                                .data = weir__str("folded") };
    CALL(WEIR_OK, store->log->snapshot_put(store, &snapshot, &err));
    CALL(WEIR_OK, store->log->snapshot_get(store, snapshot.stream, snapshot.revision, 9, &arena,
                                           &snapshot, &err));
    CALL(WEIR_OK,
         store->log->snapshot_drop(store, weir__str("order"), weir__str("r2"), NULL, &err));
    CALL(WEIR_OK, store->log->positions(store, &positions, &err));
    CALL(WEIR_OK, store->about->holders(store, &holders, &err));
    CALL(WEIR_OK, store->about->now(store, &now_us, &err));
    CALL(WEIR_OK, store->about->stats(store, &stats, &err));
    weir__arena_free(&holders.arena);
    weir__arena_free(&arena);
}

static void use_workers(void)
{
    store_worker_list workers = { 0 };
    const weir_str lanes[] = { weir__str("default"), weir__str("mail") };
    const store_known_reaction known[] = { { .reaction = 1, .number = 1 } };
    const store_worker worker = { .name = weir__str("client"),
                                  .host = weir__str("host"),
                                  .pid = 7,
                                  .lanes = lanes,
                                  .lanes_count = 2,
                                  .known = known,
                                  .known_count = 1 };
    CALL(WEIR_OK, store->about->worker_beat(store, &worker, 60000000, &err));
    CALL(WEIR_OK, store->about->worker_beat(store, &worker, 60000000, &err));
    CALL(WEIR_OK, store->about->workers(store, &workers, &err));
    CALL(WEIR_OK, store->about->worker_beat(store, &worker, 0, &err));
    weir__arena_free(&workers.arena);
}

static void use_locks(void)
{
    weir_arena arena = { 0 };
    store_lock lock = { 0 };
    store_lock once = { 0 };
    store_lock_list locks = { 0 };
    store_once_list runs = { 0 };
    const weir_str name = weir__str("nightly");
    const weir_str holder = weir__str("client on host");
    CALL(WEIR_OK,
         store->locks->take(store, &(store_lock_request){ STORE_LOCK, name, holder, 60000000 },
                            &arena, &lock, &err));
    CALL(WEIR_EHELD, store->locks->take(store, &(store_lock_request){ STORE_LOCK, name, holder, 0 },
                                        &arena, &lock, &err));
    CALL(WEIR_OK,
         store->locks->extend(store, STORE_LOCK, name, lock.fence, lock.token, 60000000, &err));
    CALL(WEIR_OK, store->locks->list(store, &locks, &err));
    CALL(WEIR_OK, store->locks->release(store, name, lock.fence, lock.token, &err));
    CALL(WEIR_OK,
         store->locks->take(store, &(store_lock_request){ STORE_ONCE, name, holder, 60000000 },
                            &arena, &once, &err));
    CALL(WEIR_EINFLIGHT,
         store->locks->take(store, &(store_lock_request){ STORE_ONCE, name, holder, 60000000 },
                            &arena, &once, &err));
    CALL(WEIR_OK,
         store->locks->extend(store, STORE_ONCE, name, once.fence, once.token, 60000000, &err));
    CALL(WEIR_OK,
         store->locks->finish(store, name, once.fence, once.token, 0, weir__str("output"), &err));
    CALL(WEIR_OK,
         store->locks->take(store, &(store_lock_request){ STORE_ONCE, name, holder, 60000000 },
                            &arena, &once, &err));
    CALL(WEIR_OK, store->locks->runs(store, NULL, 10, &runs, &err));
    CALL(WEIR_OK, store->locks->forget(store, name, &err));
    weir__arena_free(&runs.arena);
    weir__arena_free(&locks.arena);
    weir__arena_free(&arena);
}

int main(int argc, char **argv)
{
    store_url url = { 0 };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: schema_client URL\n");
        return 2;
    }
    CALL(WEIR_OK, weir__url_parse(&url, argv[1], &err));
    url.options.open_flags = WEIR_OPEN_EXISTING;
    CALL(WEIR_OK, weir__store_open(&store, &url, &err));
    use_streams();
    use_targets();
    use_workers();
    use_locks();
    use_the_rest();
    store->about->close(store);
    weir__url_free(&url);
    return 0;
}
