/* services.c - what the rest of Weir needs besides: wake-ups (P06), polling, snapshots, statistics.
 * Tests carry the number of the promise in store.h, or of the guarantee they belong to. */
#include "kit.h"

#include <poll.h>

/* ---- P06: wake-ups ------------------------------------------------------------------------ */

enum { WATCHES = 3, ECHOES_MAX = 4, ECHO_MS = 50 };

static bool woken(kit *k, weir_store *s, store_watch *watch, int32_t timeout_ms)
{
    bool answer = false;
    KIT_OK(k, s->log->watch_wait(watch, timeout_ms, &answer, &k->err));
    return answer;
}

/* Nothing more is heard. Echoes are waited for, so that none is taken for what comes next. */
static void silent(kit *k, weir_store *s, store_watch *watch)
{
    const bool echoes = (k->adapter->features & KIT_ECHOES) != 0;
    for (int n = 0; echoes && n < ECHOES_MAX && woken(k, s, watch, ECHO_MS); n++) {
    }
    assert_false(woken(k, s, watch, 0));
}

/* Whether what has just been done wakes every watch, of every handle, and once. */
static void wakes(kit *k, weir_store *const *stores, store_watch *const *watches)
{
    for (size_t i = 0; i < WATCHES; i++) {
        struct pollfd fd = { .fd = stores[i]->log->watch_fd(watches[i]), .events = POLLIN };
        assert_int_equal(poll(&fd, 1, 10000), 1); /* readable when wait would not block */
        assert_true(woken(k, stores[i], watches[i], 10000));
    }
    for (size_t i = 0; i < WATCHES; i++) {
        silent(k, stores[i], watches[i]);
    }
}

static void P06_whatever_may_give_work_wakes_every_watch(void **state)
{
    kit *k = *state;
    weir_store *stores[WATCHES] = { k->store, k->store, kit_open(k) };
    store_watch *watches[WATCHES];
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (size_t i = 0; i < WATCHES; i++) {
        KIT_OK(k, stores[i]->log->watch_open(stores[i], &watches[i], &k->err));
        silent(k, stores[i], watches[i]); /* counts from when it was opened */
    }
    const int64_t id = kit_put(k, "s", "A");
    wakes(k, stores, watches);
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    wakes(k, stores, watches);
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_release(k, &l));
    wakes(k, stores, watches);
    l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_defer(k, &l, kit_now(k)));
    wakes(k, stores, watches);
    l = kit_lease_target(k, "lane", "s");
    const store_failure why = { .error = weir__str("x") };
    KIT_OK(k, kit_block(k, &l, &why));
    wakes(k, stores, watches);
    for (store_verb verb = STORE_UNBLOCK; verb <= STORE_RESUME; verb++) {
        if (verb == STORE_RESET) {
            continue; /* there is nothing to reset yet */
        }
        store_operate op = kit_operate_of(k, verb, "s");
        op.priority = 3;
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        assert_int_equal(op.changed, 1);
        wakes(k, stores, watches);
    }
    assert_int_equal(kit_operate(k, STORE_RESET, "s"), 1);
    wakes(k, stores, watches);
    kit_put(k, "s", "A");
    wakes(k, stores, watches);
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    wakes(k, stores, watches);
    l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, id, STORE_END_RELEASE)); /* part of the way */
    wakes(k, stores, watches);
    const store_parked_chunk parked = kit_parked(k);
    assert_int_equal(parked.parked_count, 1);
    KIT_OK(k, k->store->work->parked_change(k->store, parked.parked[0].id, STORE_PARKED_RETRY,
                                            &k->err));
    wakes(k, stores, watches);
    for (size_t i = 0; i < WATCHES; i++) {
        stores[i]->log->watch_close(watches[i]);
    }
    k->store->log->watch_close(NULL);
}

/* Waking everybody for nothing is what a busy worker must not do. */
static void P06_a_turn_wakes_for_what_it_leaves_and_for_nothing_else(void **state)
{
    kit *k = *state;
    weir_store *s = kit_open(k);
    store_watch *watch = NULL;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    int64_t ids[2];
    for (size_t i = 0; i < 2; i++) {
        ids[i] = kit_put(k, "a", "A");
        kit_put(k, "b", "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_lease_list list = { 0 };
    store_lease_request lease = kit_lease_request("lane", 2);
    KIT_OK(k, k->store->work->turn(k->store, NULL, 0, &lease, &list, &k->err));
    assert_int_equal(list.leases_count, 2);
    KIT_OK(k, s->log->watch_open(s, &watch, &k->err));
    silent(k, s, watch);

    store_advance advances[] = { { .reaction = r.id, .to = ids[0] },
                                 { .reaction = r.id, .to = ids[0] + 1 } };
    store_settle settles[2];
    store_settle *pointers[] = { &settles[0], &settles[1] };
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 2; i++) {
            settles[i] = kit_settle_of(&list.leases[i], STORE_END_RELEASE);
            settles[i].advances = &advances[i];
            settles[i].advances_count = 1;
        }
        lease.limit = round == 1 ? 1 : 2;
        KIT_OK(k, k->store->work->turn(k->store, pointers, 2, &lease, &list, &k->err));
        if (round == 0) {
            assert_int_equal(list.leases_count, 2); /* both have more, and both are ours again */
            silent(k, s, watch);
        } else if (round == 1) {
            assert_int_equal(list.leases_count, 1); /* the other one is anybody's */
            assert_true(woken(k, s, watch, 10000));
            silent(k, s, watch);
            lease.limit = 1;
            store_lease_list rest = { 0 };
            KIT_OK(k, k->store->work->turn(k->store, NULL, 0, &lease, &rest, &k->err));
            assert_int_equal(rest.leases_count, 1);
            store_leased *both = weir__arena_alloc(&k->arena, 2 * sizeof *both);
            assert_non_null(both);
            both[0] = list.leases[0];
            both[1] = rest.leases[0];
            list.leases = both;
            kit_keep(k, &rest.arena);
            advances[0].to = ids[1];
            advances[1].to = ids[1] + 1;
        } else {
            assert_int_equal(list.leases_count, 0); /* nothing is left */
            silent(k, s, watch);
        }
    }
    s->log->watch_close(watch);
    weir__arena_free(&list.arena);
}

static void P06_a_wake_up_between_two_waits_is_not_lost(void **state)
{
    kit *k = *state;
    store_watch *watch = NULL;
    KIT_OK(k, k->store->log->watch_open(k->store, &watch, &k->err));
    kit_put(k, "s", "A");
    kit_put(k, "s", "B");
    assert_true(woken(k, k->store, watch, -1));
    kit_put(k, "s", "C");
    assert_true(woken(k, k->store, watch, -1));
    k->store->log->watch_close(watch);
}

typedef struct waiter {
    weir_store *store;
    store_watch *watch;
    weir_status status;
    bool answer;
} waiter;

static void wait_or_append(void *ctx, size_t index)
{
    waiter *w = ctx;
    weir_error err;
    kit_append a;
    if (index == 0) {
        w->status = w->store->log->watch_wait(w->watch, 30000, &w->answer, &err);
    } else if (kit_try(w->store, "s", WEIR_EXPECT_ANY, 0, &a) != WEIR_OK) {
        w->status = WEIR_EMISUSE;
    }
}

static void P06_a_waiting_thread_is_woken(void **state)
{
    kit *k = *state;
    waiter w = { .store = k->store };
    for (int i = 0; i < 10; i++) {
        KIT_OK(k, k->store->log->watch_open(k->store, &w.watch, &k->err));
        w.answer = false;
        kit_threads(2, wait_or_append, &w);
        assert_int_equal(w.status, WEIR_OK);
        assert_true(w.answer);
        k->store->log->watch_close(w.watch);
    }
}

/* ---- polling ------------------------------------------------------------------------------ */

static store_poll poll_now(kit *k, const char *lane)
{
    store_poll p = { .lane = weir__str(lane) };
    KIT_OK(k, k->store->work->poll(k->store, &p, &k->err));
    return p;
}

/* One that nobody has taken yet must not keep a worker from waking up for the next. */
static void C43_what_is_due_hides_nothing_that_is_due_later(void **state)
{
    kit *k = *state;
    (void)kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    kit_put(k, "t", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_leased s = kit_lease_target(k, "lane", "s");
    const store_leased t = kit_lease_target(k, "lane", "t");
    const int64_t later_us = kit_now(k) + 90;
    KIT_OK(k, kit_defer(k, &s, kit_now(k) + 50));
    KIT_OK(k, kit_defer(k, &t, later_us));
    assert_int_equal(poll_now(k, "lane").due_us, later_us - 40);
    kit_advance(k, 50);
    assert_true(poll_now(k, "lane").ready);
    assert_int_equal(poll_now(k, "lane").due_us, later_us);
    assert_int_equal(poll_now(k, "").due_us, later_us);
    kit_advance(k, 40);
    assert_int_equal(poll_now(k, "lane").due_us, INT64_MAX);
    assert_true(poll_now(k, "lane").ready);
}

static void C20_polling_says_when_there_will_be_work(void **state)
{
    kit *k = *state;
    store_poll p = poll_now(k, "");
    assert_false(p.ready);
    assert_int_equal(p.routed_least, INT64_MAX); /* there are no reactions */
    assert_int_equal(p.due_us, INT64_MAX);
    assert_int_equal(p.lease_end_us, INT64_MAX);
    assert_int_equal(p.router_end_us, INT64_MAX);
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    p = poll_now(k, "");
    assert_int_equal(p.head, kit_head(k));
    assert_int_equal(p.safe, p.head);
    assert_int_equal(p.routed_least, 0);
    assert_int_equal(p.now_us, kit_now(k));
    assert_false(p.ready); /* it is not routed */
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    assert_true(poll_now(k, "").ready);
    assert_true(poll_now(k, "lane").ready);
    assert_false(poll_now(k, "other").ready);
    assert_int_equal(poll_now(k, "").routed_least, kit_head(k));

    store_leased l = kit_lease_target(k, "lane", "s");
    p = poll_now(k, "lane");
    assert_false(p.ready);
    assert_int_equal(p.lease_end_us, l.until_us);
    KIT_OK(k, kit_defer(k, &l, kit_now(k) + 50));
    p = poll_now(k, "lane");
    assert_false(p.ready);
    assert_int_equal(p.due_us, kit_now(k) + 50);
    assert_int_equal(p.lease_end_us, INT64_MAX);
    assert_int_equal(poll_now(k, "other").due_us, INT64_MAX);
    kit_advance(k, 50);
    assert_true(poll_now(k, "lane").ready);
    kit_operate(k, STORE_PAUSE, "s");
    assert_false(poll_now(k, "lane").ready);
    kit_operate(k, STORE_RESUME, "s");
    bool changed;
    KIT_OK(k, k->store->work->lane_pause(k->store, weir__str("lane"), true, weir__str("me"),
                                         &changed, &k->err));
    assert_false(poll_now(k, "lane").ready);
    store_router_lease router = { .reaction = r.id };
    KIT_OK(k, k->store->work->router_lease(k->store, weir__str("me"), KIT_LEASE_US, &router, 1,
                                           &k->err));
    assert_int_equal(poll_now(k, "").router_end_us, router.until_us);
}

static void C20_lanes_are_counted(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    int64_t last = 0;
    for (int i = 0; i < 6; i++) {
        last = kit_put(k, kit_text(k, "t-%d", i), "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_lease_list *list = kit_lease(k, "lane", 4);
    const store_failure why = { .error = weir__str("x") };
    KIT_OK(k, kit_block(k, &list->leases[0], &why));
    KIT_OK(k, kit_defer(k, &list->leases[1], INT64_MAX / 2));
    store_settle failed = kit_settle_of(&list->leases[2], STORE_END_DEFER);
    failed.until_us = INT64_MAX / 2;
    failed.failure = (store_failure){ .reaction = r.id, .event = last, .error = weir__str("x") };
    KIT_OK(k, k->store->work->settle(k->store, &failed, &k->err));
    store_lane_list lanes = { 0 };
    KIT_OK(k, k->store->work->lanes(k->store, &lanes, &k->err));
    assert_int_equal(lanes.lanes_count, 1);
    KIT_STR(lanes.lanes[0].lane, "lane");
    assert_int_equal(lanes.lanes[0].targets, 6);
    assert_int_equal(lanes.lanes[0].leased, 1);
    assert_int_equal(lanes.lanes[0].blocked, 1);
    assert_int_equal(lanes.lanes[0].deferred, 1);
    assert_int_equal(lanes.lanes[0].retrying, 1);
    assert_int_equal(lanes.lanes[0].ready, 2);
    weir__arena_free(&lanes.arena);
    store_stats stats;
    KIT_OK(k, k->store->about->stats(k->store, &stats, &k->err));
    assert_int_equal(stats.streams, 6);
    assert_int_equal(stats.targets, 6);
    assert_int_equal(stats.blocked, 1);
    assert_int_equal(stats.parked, 0);
    assert_true(stats.library[0] != '\0' && stats.durability[0] != '\0');
}

/* ---- snapshots ---------------------------------------------------------------------------- */

static weir_status put(kit *k, const char *stream, const char *revision, int64_t version,
                       const char *data)
{
    const store_snapshot s = { .stream = weir__str(stream),
                               .revision = weir__str(revision),
                               .version = version,
                               .data = weir__str(data) };
    return k->store->log->snapshot_put(k->store, &s, &k->err);
}

/* The data of a snapshot, or NULL. */
static const char *get(kit *k, const char *stream, const char *revision, int64_t at_most)
{
    store_snapshot s = { 0 };
    const weir_status status = k->store->log->snapshot_get(
        k->store, weir__str(stream), weir__str(revision), at_most, &k->arena, &s, &k->err);
    if (status == WEIR_ENOTFOUND) {
        return NULL;
    }
    KIT_OK(k, status);
    KIT_STR(s.stream, stream);
    KIT_STR(s.revision, revision);
    return kit_text(k, "%.*s", (int)s.data.len, s.data.ptr);
}

static void P01_a_snapshot_is_kept_when_it_is_not_older(void **state)
{
    kit *k = *state;
    for (int i = 0; i < 10; i++) {
        kit_put(k, "s", "A");
    }
    assert_null(get(k, "s", "1", 100));
    KIT_OK(k, put(k, "s", "1", 5, "five"));
    assert_string_equal(get(k, "s", "1", 5), "five");
    assert_null(get(k, "s", "1", 4)); /* newer than asked for */
    assert_null(get(k, "s", "2", 5)); /* another revision */
    assert_null(get(k, "t", "1", 5));
    KIT_OK(k, put(k, "s", "1", 3, "three"));
    assert_string_equal(get(k, "s", "1", 100), "five");
    KIT_OK(k, put(k, "s", "1", 5, "five again"));
    assert_string_equal(get(k, "s", "1", 100), "five again");
    KIT_OK(k, put(k, "s", "1", 9, "nine"));
    kit_reopen(k);
    assert_string_equal(get(k, "s", "1", 100), "nine");
    KIT_OK(k, put(k, "s", "2", 1, "new code")); /* another revision always wins */
    assert_null(get(k, "s", "1", 100));
    assert_string_equal(get(k, "s", "2", 100), "new code");
}

static void P01_a_snapshot_can_hold_any_bytes(void **state)
{
    kit *k = *state;
    static const char bytes[] = { 0, 1, '\'', (char)0xff, 0, 'x' };
    const store_snapshot s = { .stream = weir__str("s"),
                               .revision = weir__str("1"),
                               .data = { .ptr = bytes, .len = sizeof bytes } };
    store_snapshot got = { 0 };
    kit_put(k, "s", "A");
    KIT_OK(k, k->store->log->snapshot_put(k->store, &s, &k->err));
    KIT_OK(k, k->store->log->snapshot_get(k->store, s.stream, s.revision, 0, &k->arena, &got,
                                          &k->err));
    assert_int_equal(got.data.len, sizeof bytes);
    assert_memory_equal(got.data.ptr, bytes, sizeof bytes);
}

static void P01_snapshots_of_old_code_are_dropped_by_category(void **state)
{
    kit *k = *state;
    kit_put(k, "order-1", "A");
    kit_put(k, "order-2", "A");
    kit_put(k, "order", "A");
    kit_put(k, "orders-1", "A");
    KIT_OK(k, put(k, "order-1", "1", 0, "a"));
    KIT_OK(k, put(k, "order-2", "2", 0, "b"));
    KIT_OK(k, put(k, "order", "1", 0, "c"));
    KIT_OK(k, put(k, "orders-1", "1", 0, "d"));
    int64_t dropped = -1;
    KIT_OK(k, k->store->log->snapshot_drop(k->store, weir__str("order"), weir__str("2"), &dropped,
                                           &k->err));
    assert_int_equal(dropped, 2);
    assert_null(get(k, "order-1", "1", 0));
    assert_null(get(k, "order", "1", 0));
    assert_string_equal(get(k, "order-2", "2", 0), "b");
    assert_string_equal(get(k, "orders-1", "1", 0), "d");
    KIT_OK(k, k->store->log->snapshot_drop(k->store, weir__str("order"), weir__str("2"), NULL,
                                           &k->err));
}

/* ---- P03, P07 ----------------------------------------------------------------------------- */

static void P07_a_failed_verb_leaves_its_outputs_alone(void **state)
{
    kit *k = *state;
    store_stream_info info = { .version = 77 };
    KIT_IS(k, k->store->log->stream_info(k->store, weir__str("s"), &k->arena, &info, &k->err),
           WEIR_ENOTFOUND);
    assert_int_equal(info.version, 77);
    store_snapshot snapshot = { .version = 77 };
    KIT_IS(k,
           k->store->log->snapshot_get(k->store, weir__str("s"), weir__str("1"), 5, &k->arena,
                                       &snapshot, &k->err),
           WEIR_ENOTFOUND);
    assert_int_equal(snapshot.version, 77);
    /* And an error may be of no interest. */
    KIT_IS(k, k->store->log->stream_info(k->store, weir__str("s"), &k->arena, &info, NULL),
           WEIR_ENOTFOUND);
}

kit_theme kit_services(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(P06_whatever_may_give_work_wakes_every_watch),
        KIT_TEST(P06_a_turn_wakes_for_what_it_leaves_and_for_nothing_else),
        KIT_TEST(P06_a_wake_up_between_two_waits_is_not_lost),
        KIT_TEST(P06_a_waiting_thread_is_woken),
        KIT_TEST(C20_polling_says_when_there_will_be_work),
        KIT_TEST(C43_what_is_due_hides_nothing_that_is_due_later),
        KIT_TEST(C20_lanes_are_counted),
        KIT_TEST(P01_a_snapshot_is_kept_when_it_is_not_older),
        KIT_TEST(P01_a_snapshot_can_hold_any_bytes),
        KIT_TEST(P01_snapshots_of_old_code_are_dropped_by_category),
        KIT_TEST(P07_a_failed_verb_leaves_its_outputs_alone),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
