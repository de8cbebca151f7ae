/* fault_test.c - the fault store does what it is told, to every verb, and nothing else.
 *
 * Method: call_verb makes one harmless call of any verb on a memory store, so that each test can go
 * through all of them; what the inner store has done is looked up behind the wrapper's back.
 */
#include "store/fault/fault.h"

#include "base/error.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct setup {
    weir_store *store; /* the fault store */
    weir_store *inner;
    weir_arena arena;
    weir_error err;
} setup;

static int open_store(void **state)
{
    static setup s;
    s = (setup){ 0 };
    const store_options options = { .busy_us = 1000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .application = "fault_test",
                                    .clock = weir__clock_machine() };
    if (weir__memory_open(&s.inner, &options, &s.err) != WEIR_OK ||
        weir__fault_open(&s.store, s.inner, &s.err) != WEIR_OK) {
        return -1;
    }
    *state = &s;
    return 0;
}

static int close_store(void **state)
{
    setup *s = *state;
    s->store->about->close(s->store);
    weir__arena_free(&s->arena);
    return 0;
}

static weir_status append_one(weir_store *s, int64_t *version, weir_error *err)
{
    store_append_stream stream = { .name = weir__str("s") };
    const store_new_event event = { .name = weir__str("A"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1, .err = err
    };
    store_append *appends[] = { &append };
    const weir_status status = s->log->append(s, appends, 1, err);
    if (status == WEIR_OK && version != NULL) {
        *version = stream.last;
    }
    return status;
}

static void no_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)ctx;
    (void)rule;
    (void)text;
    (void)advice;
}

static weir_status call_log_verb(setup *s, fault_verb verb)
{
    weir_store *w = s->store;
    weir_error *err = &s->err;
    weir_status status = WEIR_EMISUSE;
    store_chunk chunk = { 0 };
    store_streams_chunk streams = { 0 };
    store_holder_list holders = { 0 };
    const store_stream_query stream_query = {
        .stream = weir__str("s"), .to = INT64_MAX, .limit = 1, .until_us = INT64_MAX
    };
    const store_log_query log_query = { .to = INT64_MAX, .limit = 1 };
    const store_streams_query streams_query = { .limit = 1 };
    store_stream_info info;
    store_positions positions;
    store_stats stats;
    int64_t now_us = 0;
    if (verb == FAULT_NOW) {
        status = w->about->now(w, &now_us, err);
    } else if (verb == FAULT_APPEND) {
        status = append_one(w, NULL, err);
    } else if (verb == FAULT_READ_STREAM) {
        status = w->log->read_stream(w, &stream_query, &chunk, err);
    } else if (verb == FAULT_READ_LOG) {
        status = w->log->read_log(w, &log_query, &chunk, err);
    } else if (verb == FAULT_STREAM_INFO) {
        status = w->log->stream_info(w, weir__str("s"), &s->arena, &info, err);
    } else if (verb == FAULT_STREAMS) {
        status = w->log->streams(w, &streams_query, &streams, err);
    } else if (verb == FAULT_POSITIONS) {
        status = w->log->positions(w, &positions, err);
    } else if (verb == FAULT_STATS) {
        status = w->about->stats(w, &stats, err);
    } else if (verb == FAULT_CHECK) {
        status = w->about->check(w, no_finding, NULL, err);
    } else if (verb == FAULT_HOLDERS) {
        status = w->about->holders(w, &holders, err);
    }
    weir__arena_free(&holders.arena);
    weir__chunk_free(&chunk);
    weir__arena_free(&streams.arena);
    return status;
}

static weir_status call_reaction_verb(setup *s, fault_verb verb)
{
    weir_store *w = s->store;
    weir_error *err = &s->err;
    weir_status status = WEIR_EMISUSE;
    const store_reaction_declaration d = { .name = weir__str("r"),
                                           .all_names = true,
                                           .source = weir__str("*") };
    const store_route route = { 0 };
    const store_snapshot put = { .stream = weir__str("s"), .revision = weir__str("1") };
    store_snapshot got;
    store_reaction reaction;
    store_reaction_list list = { 0 };
    int64_t dropped = 0;
    if (verb == FAULT_DECLARE) {
        status = w->work->declare(w, &d, &s->arena, &reaction, err);
    } else if (verb == FAULT_REACTIONS) {
        status = w->work->reactions(w, &list, err);
    } else if (verb == FAULT_RETIRE) {
        status = w->work->retire(w, weir__str("r"), err);
    } else if (verb == FAULT_ROUTER_LEASE) {
        status = w->work->router_lease(w, weir__str("me"), 1000, NULL, 0, err);
    } else if (verb == FAULT_ROUTE) {
        status = w->work->route(w, &route, NULL, err);
    } else if (verb == FAULT_SNAPSHOT_PUT) {
        status = w->log->snapshot_put(w, &put, err);
    } else if (verb == FAULT_SNAPSHOT_GET) {
        status = w->log->snapshot_get(w, put.stream, put.revision, 0, &s->arena, &got, err);
    } else if (verb == FAULT_SNAPSHOT_DROP) {
        status = w->log->snapshot_drop(w, weir__str("s"), weir__str("1"), &dropped, err);
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status call_target_verb(setup *s, fault_verb verb)
{
    weir_store *w = s->store;
    weir_error *err = &s->err;
    weir_status status = WEIR_EMISUSE;
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("me"),
                                          .lease_us = 1000,
                                          .limit = 1,
                                          .all_reactions = true };
    const store_targets_query query = { .limit = 1 };
    const store_parked_query parked_query = { .limit = 1 };
    store_operate op = { .verb = STORE_PAUSE };
    store_settle settle = { .target = 1, .fence = 1 };
    store_settle *const settles[] = { &settle };
    store_poll poll = { 0 };
    store_lease_list leases = { 0 };
    store_fetch_list fetched = { 0 };
    store_targets_chunk targets = { 0 };
    store_lane_list lanes = { 0 };
    store_parked_chunk parked = { 0 };
    store_worker_list workers = { 0 };
    const store_worker worker = { .name = weir__str("me") };
    bool changed = false;
    if (verb == FAULT_LEASE) {
        status = w->work->turn(w, NULL, 0, &request, &leases, err);
    } else if (verb == FAULT_FETCH) {
        status = w->work->fetch(w, NULL, 0, &fetched, err);
    } else if (verb == FAULT_SETTLE) {
        status = w->work->settle(w, &settle, err);
    } else if (verb == FAULT_EXTEND) {
        status = w->work->extend(w, 1000, NULL, 0, err);
    } else if (verb == FAULT_RELEASE) {
        status = w->work->extend(w, 0, NULL, 0, err);
    } else if (verb == FAULT_OPERATE) {
        status = w->work->operate(w, &op, err);
    } else if (verb == FAULT_LANE_PAUSE) {
        status = w->work->lane_pause(w, weir__str("l"), true, weir__str("me"), &changed, err);
    } else if (verb == FAULT_TARGETS) {
        status = w->work->targets(w, &query, &targets, err);
    } else if (verb == FAULT_LANES) {
        status = w->work->lanes(w, &lanes, err);
    } else if (verb == FAULT_PARKED) {
        status = w->work->parked(w, &parked_query, &parked, err);
    } else if (verb == FAULT_PARKED_CHANGE) {
        status = w->work->parked_change(w, 1, STORE_PARKED_RETRY, err);
    } else if (verb == FAULT_POLL) {
        status = w->work->poll(w, &poll, err);
    } else if (verb == FAULT_WORKER_BEAT) {
        status = w->about->worker_beat(w, &worker, 1000, err);
    } else if (verb == FAULT_WORKERS) {
        status = w->about->workers(w, &workers, err);
    } else if (verb == FAULT_TURN) {
        status = w->work->turn(w, settles, 1, &request, &leases, err);
    }
    weir__arena_free(&leases.arena);
    weir__arena_free(&fetched.arena);
    weir__arena_free(&targets.arena);
    weir__arena_free(&lanes.arena);
    weir__arena_free(&parked.arena);
    weir__arena_free(&workers.arena);
    return status;
}

static weir_status call_lock_verb(setup *s, fault_verb verb)
{
    weir_store *w = s->store;
    weir_error *err = &s->err;
    const weir_str name = weir__str("n");
    const weir_str me = weir__str("me");
    weir_status status = WEIR_EMISUSE;
    store_lock lock = { 0 };
    store_lock_list locks = { 0 };
    store_once_list runs = { 0 };
    if (verb == FAULT_LOCK_TAKE) {
        status = w->locks->take(w, &(store_lock_request){ STORE_LOCK, name, me, 1000 }, &s->arena,
                                &lock, err);
    } else if (verb == FAULT_LOCK_EXTEND) {
        status = w->locks->extend(w, STORE_LOCK, name, 1, 0, 1000, err);
    } else if (verb == FAULT_LOCK_RELEASE) {
        status = w->locks->release(w, name, 1, 0, err);
    } else if (verb == FAULT_LOCKS) {
        status = w->locks->list(w, &locks, err);
    } else if (verb == FAULT_ONCE_FINISH) {
        status = w->locks->finish(w, name, 1, 0, 0, me, err);
    } else if (verb == FAULT_ONCE_FORGET) {
        status = w->locks->forget(w, name, err);
    } else if (verb == FAULT_ONCE_RUNS) {
        status = w->locks->runs(w, NULL, 1, &runs, err);
    }
    weir__arena_free(&runs.arena);
    weir__arena_free(&locks.arena);
    return status;
}

static weir_status call_watch_verb(setup *s, fault_verb verb)
{
    store_watch *watch = NULL;
    bool woken = false;
    weir_status status = s->store->log->watch_open(s->store, &watch, &s->err);
    if (verb == FAULT_WATCH_WAIT && status == WEIR_OK) {
        status = s->store->log->watch_wait(watch, 0, &woken, &s->err);
    }
    s->store->log->watch_close(watch);
    return status;
}

static weir_status call_verb(setup *s, fault_verb verb)
{
    if (verb == FAULT_WATCH_OPEN || verb == FAULT_WATCH_WAIT) {
        return call_watch_verb(s, verb);
    }
    weir_status status = call_log_verb(s, verb);
    if (status == WEIR_EMISUSE) {
        status = call_reaction_verb(s, verb);
    }
    if (status == WEIR_EMISUSE) {
        status = call_target_verb(s, verb);
    }
    if (status == WEIR_EMISUSE) {
        status = call_lock_verb(s, verb);
    }
    return status;
}

static void every_verb_can_fail_before_and_works_again(void **state)
{
    setup *s = *state;
    for (fault_verb verb = FAULT_NOW; verb < FAULT_VERBS_COUNT; verb++) {
        const fault_plan plan = {
            .verb = verb, .action = FAULT_FAIL_BEFORE, .nth = 1, .status = WEIR_EUNAVAILABLE
        };
        const uint64_t calls = weir__fault_calls(s->store, verb);
        const weir_status plain = call_verb(s, verb);
        assert_int_not_equal(plain, WEIR_EMISUSE); /* call_verb knows every verb */
        weir__fault_set(s->store, &plan);
        assert_int_equal(call_verb(s, verb), WEIR_EUNAVAILABLE);
        assert_int_equal(s->err.code, WEIR_EUNAVAILABLE);
        assert_int_equal(weir__fault_hits(s->store), 1);
        assert_int_not_equal(call_verb(s, verb), WEIR_EUNAVAILABLE); /* only the Nth */
        assert_int_equal(weir__fault_calls(s->store, verb), calls + 3);
    }
}

static void every_verb_that_succeeds_can_fail_after(void **state)
{
    setup *s = *state;
    size_t succeeded = 0;
    for (fault_verb verb = FAULT_NOW; verb < FAULT_VERBS_COUNT; verb++) {
        const fault_plan plan = {
            .verb = verb, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
        };
        weir__fault_set(s->store, &plan);
        const weir_status first = call_verb(s, verb);
        const weir_status second = call_verb(s, verb);
        if (second == WEIR_OK) {
            assert_int_equal(first, WEIR_EUNKNOWN);
            succeeded++;
        }
    }
    assert_true(succeeded > 20);
}

static void failing_before_has_not_happened_and_failing_after_has(void **state)
{
    setup *s = *state;
    fault_plan plan = {
        .verb = FAULT_APPEND, .action = FAULT_FAIL_BEFORE, .nth = 2, .count = 2, .status = WEIR_EIO
    };
    int64_t version = -1;
    weir__fault_set(s->store, &plan);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_EIO);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_EIO);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(version, 1);
    assert_int_equal(weir__fault_hits(s->store), 2);

    plan = (fault_plan){
        .verb = FAULT_APPEND, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
    };
    weir__fault_set(s->store, &plan);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_EUNKNOWN);
    assert_int_equal(append_one(weir__fault_inner(s->store), &version, &s->err), WEIR_OK);
    assert_int_equal(version, 3);
}

static void repeating_calls_twice(void **state)
{
    setup *s = *state;
    const fault_plan plan = { .verb = FAULT_APPEND, .action = FAULT_REPEAT, .nth = 1 };
    int64_t version = -1;
    weir__fault_set(s->store, &plan);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(version, 1); /* the second answer */
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(version, 2);
}

typedef struct delayed {
    setup *s;
    size_t count;
    fault_verb verb;
    int64_t version;
} delayed;

/* Somebody else is faster: the callback may use the store. */
static void append_meanwhile(void *ctx, fault_verb verb)
{
    delayed *d = ctx;
    d->count++;
    d->verb = verb;
    assert_int_equal(append_one(d->s->store, &d->version, &d->s->err), WEIR_OK);
}

static void delaying_runs_the_callback_before_the_call(void **state)
{
    setup *s = *state;
    delayed d = { .s = s };
    const fault_plan plan = { .verb = FAULT_ANY,
                              .action = FAULT_DELAY,
                              .nth = 2,
                              .delay_cb = append_meanwhile,
                              .delay_ctx = &d };
    int64_t version = -1;
    int64_t now_us = 0;
    weir__fault_set(s->store, &plan);
    assert_int_equal(s->store->about->now(s->store, &now_us, &s->err), WEIR_OK);
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(d.count, 1);
    assert_int_equal(d.verb, FAULT_APPEND);
    assert_int_equal(d.version, 0);
    assert_int_equal(version, 1);
}

static void without_a_plan_it_is_the_inner_store(void **state)
{
    setup *s = *state;
    int64_t version = -1;
    assert_int_equal(append_one(s->store, &version, &s->err), WEIR_OK);
    assert_int_equal(version, 0);
    assert_int_equal(s->store->log->group_commit, s->inner->log->group_commit);
    assert_int_equal(weir__fault_calls(s->store, FAULT_ANY), 1);
    assert_int_equal(weir__fault_hits(s->store), 0);
    store_watch *watch = NULL;
    assert_int_equal(s->store->log->watch_open(s->store, &watch, &s->err), WEIR_OK);
    assert_true(s->store->log->watch_fd(watch) >= 0);
    s->store->log->watch_close(watch);
    s->store->log->watch_close(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_verb_can_fail_before_and_works_again, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(every_verb_that_succeeds_can_fail_after, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(failing_before_has_not_happened_and_failing_after_has,
                                        open_store, close_store),
        cmocka_unit_test_setup_teardown(repeating_calls_twice, open_store, close_store),
        cmocka_unit_test_setup_teardown(delaying_runs_the_callback_before_the_call, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(without_a_plan_it_is_the_inner_store, open_store,
                                        close_store),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
