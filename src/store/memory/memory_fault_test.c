/* memory_fault_test.c - an allocation that fails in the middle of a verb leaves nothing behind.
 *
 * Method: a store with something of everything is described as text; a verb is run with its 1st,
 * 2nd, 3rd ... allocation failing until it needs no more; after every failure the description must
 * be the same, the store must find nothing wrong with itself, and the verb must work when it is
 * run again.
 */
#include "base/memory.h"
#include "base/str.h"
#include "store/memory/memory_kit_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- a store with something of everything ------------------------------------------------- */

typedef struct world {
    weir_store *s;
    store_reaction plain, work; /* texts in the arena */
    weir_arena arena;
    store_lease_list leases; /* of "one" (plain and work) and "two" (work) */
    int64_t one, two, three;
    int64_t fence_one, fence_two;
    int64_t parked; /* sent back, on "one" */
} world;

/* Events 1..6 of order-1; "one" is leased with a sent-back event, "two" leased, "three" blocked. */
static void world_open(world *w)
{
    *w = (world){ .s = kit_open("", 0) };
    weir_store *s = w->s;
    kit_time_us = 1000000;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kit_append(s, "order-1", "Placed", i == 0 ? "key-1" : ""), WEIR_OK);
    }
    assert_int_equal(kit_declare(s, "plain", "Placed", STORE_RULE_STREAM, &w->plain, &w->arena), 0);
    assert_int_equal(kit_declare(s, "work", "Placed", STORE_RULE_WORK, &w->work, &w->arena), 0);
    assert_int_equal(kit_route(s, &w->plain, "one", 1, 4, 4), WEIR_OK);
    for (int64_t id = 1; id <= 3; id++) {
        w->work.routed = id - 1;
        assert_int_equal(kit_route(s, &w->work, id == 1 ? "one" : "two", id, id, id), WEIR_OK);
    }
    w->work.routed = 3;
    w->plain.routed = 4;
    w->one = 1;
    w->two = 2;
    w->three = 3;

    const store_lease_request r = kit_lease_request(10);
    assert_int_equal(s->work->turn(s, NULL, 0, &r, &w->leases, NULL), WEIR_OK);
    assert_int_equal(w->leases.leases_count, 2);
    const store_park park = {
        .reaction = w->plain.id, .event = 1, .attempts = 3, .error = weir__str("it broke")
    };
    const store_advance advance = { .reaction = w->plain.id, .to = 1 };
    store_settle settle = { .target = w->one,
                            .fence = 1,
                            .advances = &advance,
                            .advances_count = 1,
                            .parks = &park,
                            .parks_count = 1,
                            .end = STORE_END_KEEP,
                            .lease_us = 1000 };
    assert_int_equal(s->work->settle(s, &settle, NULL), WEIR_OK);
    assert_int_equal(s->work->parked_change(s, 1, STORE_PARKED_RETRY, NULL), WEIR_OK);
    w->parked = 1;
    w->fence_one = 1;
    w->fence_two = 1;
    w->plain.routed = 4;
    assert_int_equal(kit_route(s, &w->plain, "three", 5, 6, 6), WEIR_OK);
    w->plain.routed = 6;
    const store_lease_request again = kit_lease_request(1);
    assert_int_equal(s->work->turn(s, NULL, 0, &again, &w->leases, NULL), WEIR_OK);
    assert_int_equal(w->leases.leases_count, 1);
    const store_failure why = { .reaction = w->plain.id, .event = 5, .error = weir__str("no") };
    store_settle stuck = { .target = w->three, .fence = 1, .failure = why, .end = STORE_END_BLOCK };
    assert_int_equal(s->work->settle(s, &stuck, NULL), WEIR_OK);
    const store_advance work = { .reaction = w->work.id, .to = 2 };
    store_settle half = { .target = w->two,
                          .fence = 1,
                          .advances = &work,
                          .advances_count = 1,
                          .end = STORE_END_KEEP,
                          .lease_us = 1000 };
    assert_int_equal(s->work->settle(s, &half, NULL), WEIR_OK);
}

static void world_close(world *w)
{
    weir__arena_free(&w->leases.arena);
    weir__arena_free(&w->arena);
    w->s->about->close(w->s);
}

/* One verb, and what has to happen before it. */
typedef struct fault_case {
    const char *name;
    void (*setup)(world *w); /* may be NULL */
    weir_status (*verb)(world *w);
} fault_case;

/* The list of changes gives back its room, so that the next transaction has to allocate it. */
static void changes_drop(weir_store *s)
{
    row_changes *c = &weir__memory_handle(s)->core->changes;
    weir__free(c->list);
    *c = (row_changes){ 0 };
}

/* Runs a verb with its nth allocation failing. false: it does not have so many. */
static bool fail_allocation(const fault_case *f, uint64_t nth)
{
    world w;
    world_open(&w);
    if (f->setup != NULL) {
        f->setup(&w);
    }
    weir_buffer before = kit_describe(w.s);
    changes_drop(w.s);
    weir__memory_fail_nth(nth);
    weir_status status = f->verb(&w);
    const bool failed = weir__memory_failed();
    weir__memory_fail_nth(0);
    weir_buffer after = kit_describe(w.s);
    if (failed) {
        assert_int_equal(status, WEIR_ENOMEM);
        assert_string_equal(before.ptr, after.ptr);
        status = f->verb(&w); /* and now it works */
        weir__buffer_free(&after);
        after = kit_describe(w.s);
    }
    assert_int_equal(status, WEIR_OK);
    weir__buffer_free(&before);
    weir__buffer_free(&after);
    world_close(&w);
    return failed;
}

/* ---- fault loops -------------------------------------------------------------------------- */

enum { BIG_STREAMS = 20 };

/* New streams, known ones, names and keys; two appends. */
static weir_status big_append(world *w)
{
    static char names[BIG_STREAMS][16];
    store_append_stream streams[BIG_STREAMS];
    store_new_event events[BIG_STREAMS];
    for (uint32_t i = 0; i < BIG_STREAMS; i++) {
        (void)snprintf(names[i], sizeof names[i], "order-%u", i);
        streams[i] = (store_append_stream){ .name = weir__str(names[i]) };
        events[i] = (store_new_event){ .stream_index = i,
                                       .name = weir__str(names[i]),
                                       .data = weir__str("[1]"),
                                       .meta = weir__str("{}") };
    }
    const store_key_change changes[] = {
        { .key = weir__str("email:a"), .stream_index = 0, .change = WEIR_KEY_RESERVE },
        { .key = weir__str("email:a"), .stream_index = 0, .change = WEIR_KEY_RELEASE },
        { .key = weir__str("email:a"), .stream_index = 1, .change = WEIR_KEY_RESERVE },
    };
    store_append_stream refused_stream = { .name = weir__str("order-1"),
                                           .expect = WEIR_EXPECT_NONE };
    store_append refused = { .streams = &refused_stream, .streams_count = 1 };
    store_append a = { .streams = streams,
                       .streams_count = BIG_STREAMS,
                       .events = events,
                       .events_count = BIG_STREAMS,
                       .key_changes = changes,
                       .key_changes_count = 3,
                       .key = weir__str("key-2") };
    store_append *const list[] = { &refused, &a };
    const weir_status status = w->s->log->append(w->s, list, 2, NULL);
    if (status == WEIR_OK) {
        assert_int_equal(refused.status, WEIR_ECONFLICT);
    }
    return status != WEIR_OK ? status : a.status;
}

static weir_status forced_close(world *w)
{
    store_append_stream stream = { .name = weir__str("order-1") };
    const store_new_event event = { .name = weir__str("$closed"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append a = { .flags = STORE_APPEND_CLOSE | STORE_APPEND_FORCE,
                       .streams = &stream,
                       .streams_count = 1,
                       .events = &event,
                       .events_count = 1 };
    store_append *const list[] = { &a };
    const weir_status status = w->s->log->append(w->s, list, 1, NULL);
    return status != WEIR_OK ? status : a.status;
}

static weir_status declare_new(world *w)
{
    store_reaction r;
    return kit_declare(w->s, "new", "Placed", STORE_RULE_CONSTANT, &r, &w->arena);
}

static weir_status declare_changed(world *w)
{
    store_reaction r;
    return kit_declare(w->s, "plain", "Changed", STORE_RULE_STREAM, &r, &w->arena);
}

static void retire_plain(world *w)
{
    assert_int_equal(w->s->work->retire(w->s, weir__str("plain"), NULL), WEIR_OK);
}

static weir_status route_all(world *w)
{
    const store_route_step steps[] = {
        { .reaction = w->plain.id, .number = 1, .from = 6, .to = 6 },
        { .reaction = w->work.id, .number = 1, .from = 3, .to = 6 },
    };
    const weir_str lane = weir__str("lane");
    const store_mark marks[] = {
        { .reaction_index = 1,
          .target = weir__str("two"),
          .lane = lane,
          .first = 4,
          .last = 4,
          .source = weir__str("another"),
          .value = weir__str("another"),
          .priority = 7 },
        { .reaction_index = 1,
          .target = weir__str("four"),
          .lane = lane,
          .first = 5,
          .last = 5,
          .source = weir__str("s"),
          .value = weir__str("v") },
        { .reaction_index = 0,
          .target = weir__str("four"),
          .lane = lane,
          .first = 5,
          .last = 6,
          .source = weir__str("s"),
          .value = weir__str("v") },
        { .reaction_index = 0,
          .target = weir__str("one"),
          .lane = lane,
          .first = 6,
          .last = 6,
          .source = weir__str("s"),
          .value = weir__str("w") },
    };
    const store_route_park parks[] = {
        { .reaction_index = 1, .event = 6, .error = weir__str("nowhere") },
    };
    const store_route route = { .steps = steps,
                                .steps_count = 2,
                                .marks = marks,
                                .marks_count = 4,
                                .parks = parks,
                                .parks_count = 1 };
    return w->s->work->route(w->s, &route, NULL, NULL);
}

/* The leases have expired, and "two" has lost as many as it may. */
static void leases_expire(world *w)
{
    memory_core *c = weir__memory_handle(w->s)->core;
    store_target two = *weir__memory_target(c, w->two);
    two.lost = 4;
    weir__memory_put(c, &c->targets, &two);
    weir__changes_keep(&c->changes);
    kit_time_us += 1000000;
}

static weir_status lease_again(world *w)
{
    store_lease_list list = { 0 };
    store_lease_request r = kit_lease_request(1);
    r.leading = 1;
    r.lost_max = 5;
    const weir_status status = w->s->work->turn(w->s, NULL, 0, &r, &list, NULL);
    if (status == WEIR_OK) {
        assert_int_equal(list.leases_count, 1);
        assert_int_equal(list.leases[0].target, w->one);
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status settle_all(world *w)
{
    store_append_stream stream = { .name = weir__str("mail-1") };
    const store_new_event event = { .name = weir__str("Sent"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append a = { .streams = &stream,
                       .streams_count = 1,
                       .events = &event,
                       .events_count = 1,
                       .key = weir__str("key-3") };
    store_append *const appends[] = { &a };
    const store_advance advances[] = { { .reaction = w->plain.id, .to = 2 },
                                       { .reaction = w->work.id, .to = 1 } };
    const store_park park = { .reaction = w->plain.id, .event = 2, .error = weir__str("bad") };
    const int64_t done[] = { w->parked };
    store_settle settle = {
        .target = w->one,
        .fence = w->fence_one,
        .appends = appends,
        .appends_count = 1,
        .advances = advances,
        .advances_count = 2,
        .parks = &park,
        .parks_count = 1,
        .parked_done = done,
        .parked_done_count = 1,
        .failure = { .reaction = w->plain.id, .event = 3, .error = weir__str("failed") },
        .end = STORE_END_DEFER,
        .until_us = 5000000,
    };
    return w->s->work->settle(w->s, &settle, NULL);
}

/* One is settled half and taken again, two is done, three is not ours. */
static weir_status turn_all(world *w)
{
    const store_advance plain = { .reaction = w->plain.id, .to = 2 };
    const store_advance work = { .reaction = w->work.id, .to = 3 };
    store_settle one = {
        .target = w->one, .fence = w->fence_one, .advances = &plain, .advances_count = 1
    };
    store_settle two = {
        .target = w->two, .fence = w->fence_two, .advances = &work, .advances_count = 1
    };
    store_settle three = { .target = w->three, .fence = 1 };
    store_settle *const settles[] = { &one, &two, &three };
    store_lease_list list = { 0 };
    const store_lease_request r = kit_lease_request(10);
    one.status = two.status = three.status = WEIR_EMISUSE;
    const weir_status status = w->s->work->turn(w->s, settles, 3, &r, &list, NULL);
    const bool ok = status == WEIR_OK;
    assert_int_equal(list.leases_count, ok ? 1 : 0);
    assert_int_equal(one.status, ok ? WEIR_OK : WEIR_EMISUSE);
    assert_int_equal(two.status, ok ? WEIR_OK : WEIR_EMISUSE);
    assert_int_equal(three.status, ok ? WEIR_ELOST : WEIR_EMISUSE);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status extend_both(world *w)
{
    store_fenced items[] = { { .target = w->one, .fence = w->fence_one },
                             { .target = w->two, .fence = w->fence_two } };
    return w->s->work->extend(w->s, 5000, items, 2, NULL);
}

static weir_status release_both(world *w)
{
    store_fenced items[] = { { .target = w->one, .fence = w->fence_one },
                             { .target = w->two, .fence = w->fence_two } };
    return w->s->work->extend(w->s, 0, items, 2, NULL);
}

static weir_status operate(world *w, store_operate op)
{
    op.by = weir__str("operator");
    return w->s->work->operate(w->s, &op, NULL);
}

static weir_status unblock_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_UNBLOCK });
}

static weir_status reset_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_RESET });
}

static void reset_everything(world *w)
{
    assert_int_equal(reset_all(w), WEIR_OK);
}

/* From where the reset took the reaction back to, to where it was. */
static weir_status route_again(world *w)
{
    store_reaction work = w->work;
    work.routed = 0;
    return kit_route(w->s, &work, "two", 2, 2, 3);
}

static weir_status skip_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_SKIP });
}

static weir_status pause_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_PAUSE });
}

static weir_status prioritize_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_PRIORITIZE, .priority = 9 });
}

static weir_status pause_lane(world *w)
{
    bool changed = false;
    return w->s->work->lane_pause(w->s, weir__str("a third lane"), true, weir__str("me"), &changed,
                                  NULL);
}

static weir_status drop_parked(world *w)
{
    return w->s->work->parked_change(w->s, w->parked, STORE_PARKED_DROP, NULL);
}

static weir_status lease_router(world *w)
{
    store_router_lease items[] = { { .reaction = w->plain.id }, { .reaction = w->work.id } };
    return w->s->work->router_lease(w->s, weir__str("router"), 1000, items, 2, NULL);
}

static weir_status put_snapshot(world *w)
{
    const store_snapshot snapshot = { .stream = weir__str("order-1"),
                                      .revision = weir__str("1"),
                                      .version = 3,
                                      .data = weir__str("state") };
    return w->s->log->snapshot_put(w->s, &snapshot, NULL);
}

static weir_status read_everything(world *w)
{
    store_chunk chunk = { 0 };
    store_fetch_list fetched = { 0 };
    store_targets_chunk targets = { 0 };
    const store_log_query log = { .to = INT64_MAX, .limit = 1000 };
    const store_stream_query stream = {
        .stream = weir__str("order-1"), .to = INT64_MAX, .limit = 1000, .until_us = INT64_MAX
    };
    const store_fetch_item item = {
        .target = w->one, .reaction = w->plain.id, .up_to = 4, .limit = 10
    };
    const store_targets_query query = { .limit = 10 };
    weir_status status = w->s->log->read_log(w->s, &log, &chunk, NULL);
    if (status == WEIR_OK) {
        status = w->s->log->read_stream(w->s, &stream, &chunk, NULL);
    }
    if (status == WEIR_OK) {
        status = w->s->work->fetch(w->s, &item, 1, &fetched, NULL);
    }
    if (status == WEIR_OK) {
        assert_int_equal(fetched.events_count, 4);
        status = w->s->work->targets(w->s, &query, &targets, NULL);
    }
    weir__chunk_free(&chunk);
    weir__arena_free(&fetched.arena);
    weir__arena_free(&targets.arena);
    return status;
}

static void a_failed_allocation_leaves_the_store_as_it_was(void **state)
{
    (void)state;
    static const fault_case cases[] = {
        { "append", NULL, big_append },
        { "close a stream", NULL, forced_close },
        { "declare a new reaction", NULL, declare_new },
        { "declare a new definition", NULL, declare_changed },
        { "bring a retired reaction back", retire_plain, declare_changed },
        { "route", NULL, route_all },
        { "route to the end of a re-reading", reset_everything, route_again },
        { "lease", leases_expire, lease_again },
        { "settle", NULL, settle_all },
        { "turn", NULL, turn_all },
        { "extend", NULL, extend_both },
        { "release", NULL, release_both },
        { "unblock", NULL, unblock_all },
        { "reset", NULL, reset_all },
        { "skip", NULL, skip_all },
        { "pause", NULL, pause_all },
        { "prioritize", NULL, prioritize_all },
        { "pause a lane", NULL, pause_lane },
        { "drop a parked event", NULL, drop_parked },
        { "lease a router", NULL, lease_router },
        { "put a snapshot", NULL, put_snapshot },
        { "read", NULL, read_everything },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t nth = 1;
        while (fail_allocation(&cases[i], nth)) {
            nth++;
            assert_in_range(nth, 1, 10000);
        }
        print_message("# %s: %llu allocations failed\n", cases[i].name,
                      (unsigned long long)nth - 1);
        assert_in_range(nth, 2, 10000); /* one that allocates nothing would prove nothing */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_leaves_the_store_as_it_was),
    };
    return cmocka_run_group_tests_name("memory_fault", tests, NULL, NULL);
}
