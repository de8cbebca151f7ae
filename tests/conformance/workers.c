/* workers.c - P08: who works on a store is known, as they said it, until an hour after they ended.
 */
#include "kit.h"

#include <stdio.h>

enum { LEASE_US = 30 * 1000 * 1000 };

static store_worker worker_of(const char *name)
{
    return (store_worker){ .name = weir__str(name), .host = weir__str("host"), .pid = 42 };
}

static void beat(kit *k, const store_worker *worker, int64_t lease_us)
{
    KIT_OK(k, k->store->about->worker_beat(k->store, worker, lease_us, &k->err));
}

static void beat_name(kit *k, const char *name, int64_t lease_us)
{
    const store_worker worker = worker_of(name);
    beat(k, &worker, lease_us);
}

/* Everybody, as a handle sees it; lives as long as the test. */
static store_worker_list workers_of(kit *k, weir_store *s)
{
    store_worker_list list = { 0 };
    KIT_OK(k, s->about->workers(s, &list, &k->err));
    const store_worker_list out = list;
    kit_keep(k, &list.arena);
    return out;
}

/* Names, each followed by a space. */
static const char *names(kit *k)
{
    const store_worker_list list = workers_of(k, k->store);
    const char *text = "";
    for (size_t i = 0; i < list.workers_count; i++) {
        const weir_str name = list.workers[i].name;
        text = kit_text(k, "%s%.*s ", text, (int)name.len, name.ptr);
    }
    return text;
}

static store_worker only(kit *k, weir_store *s)
{
    const store_worker_list list = workers_of(k, s);
    assert_int_equal(list.workers_count, 1);
    return list.workers[0];
}

static void P08_a_worker_is_listed_as_it_said(void **state)
{
    kit *k = *state;
    assert_int_equal(workers_of(k, k->store).workers_count, 0);
    const weir_str lanes[] = { weir__str("slow"), weir__str("fast \"lane\" \xc3\xa9,{}\\") };
    const store_known_reaction known[] = { { .reaction = 7, .number = 2 },
                                           { .reaction = INT64_MAX, .number = INT64_MAX - 1 },
                                           { .reaction = 1, .number = 1 } };
    const store_worker said = { .name = weir__str("shop@host/42-'\xc3\xa4\"\\"),
                                .host = weir__str("h\xc3\xb6st"),
                                .pid = INT64_C(1) << 40,
                                .lanes = lanes,
                                .lanes_count = 2,
                                .known = known,
                                .known_count = 3,
                                .draining = true,
                                .metrics = weir__str("{\"a\":[1,\"\xc3\xa9'\\\\\"]}") };
    const int64_t now_us = kit_now(k);
    beat(k, &said, LEASE_US);
    weir_store *other = kit_open(k);
    const store_worker heard = only(k, other);
    assert_true(heard.id > 0);
    assert_true(weir__str_equal(heard.name, said.name));
    assert_true(weir__str_equal(heard.host, said.host));
    assert_int_equal(heard.pid, said.pid);
    assert_int_equal(heard.lanes_count, 2);
    assert_true(weir__str_equal(heard.lanes[0], lanes[0]));
    assert_true(weir__str_equal(heard.lanes[1], lanes[1]));
    assert_int_equal(heard.known_count, 3);
    assert_memory_equal(heard.known, known, sizeof known);
    assert_int_equal(heard.since_us, now_us);
    assert_int_equal(heard.until_us, now_us + LEASE_US);
    assert_true(heard.draining);
    assert_true(weir__str_equal(heard.metrics, said.metrics));
    kit_check(k);
}

static void P08_a_beat_replaces_what_was_said_before(void **state)
{
    kit *k = *state;
    const weir_str lanes[] = { weir__str("a"), weir__str("b") };
    const store_known_reaction known[] = { { .reaction = 3, .number = 1 } };
    store_worker said = worker_of("w");
    said.lanes = lanes;
    said.lanes_count = 2;
    beat(k, &said, LEASE_US);
    const store_worker first = only(k, k->store);
    assert_int_equal(first.known_count, 0);
    assert_int_equal(first.metrics.len, 0);
    assert_false(first.draining);
    kit_advance(k, 1000);
    said.lanes_count = 0;
    said.known = known;
    said.known_count = 1;
    said.draining = true;
    said.pid = 43;
    char *counted = weir__arena_alloc(&k->arena, STORE_METRICS_BYTES_MAX);
    memset(counted, '7', STORE_METRICS_BYTES_MAX);
    said.metrics = (weir_str){ .ptr = counted, .len = STORE_METRICS_BYTES_MAX };
    said.host = weir__str("elsewhere");
    beat(k, &said, 2 * (int64_t)LEASE_US);
    kit_reopen(k);
    const store_worker second = only(k, k->store);
    assert_int_equal(second.id, first.id);
    assert_int_equal(second.since_us, first.since_us); /* the one thing that stays */
    assert_int_equal(second.until_us, first.since_us + 1000 + 2 * (int64_t)LEASE_US);
    assert_int_equal(second.lanes_count, 0);
    assert_int_equal(second.known_count, 1);
    assert_int_equal(second.known[0].reaction, 3);
    assert_int_equal(second.pid, 43);
    KIT_STR(second.host, "elsewhere");
    assert_true(second.draining);
    assert_true(weir__str_equal(second.metrics, said.metrics));
    said.metrics = (weir_str){ 0 };
    beat(k, &said, LEASE_US);
    assert_int_equal(only(k, k->store).metrics.len, 0);
}

static void P08_workers_are_listed_by_name(void **state)
{
    kit *k = *state;
    static const char *const unordered[] = { "b", "a-1", "B", "\xc3\xa9", "a", "a-", "Z" };
    for (size_t i = 0; i < sizeof unordered / sizeof unordered[0]; i++) {
        beat_name(k, unordered[i], LEASE_US);
    }
    assert_string_equal(names(k), "B Z a a- a-1 b \xc3\xa9 ");
}

static void P08_a_worker_that_says_so_is_gone_at_once(void **state)
{
    kit *k = *state;
    beat_name(k, "stays", LEASE_US);
    beat_name(k, "goes", LEASE_US);
    const int64_t id = workers_of(k, k->store).workers[0].id;
    beat_name(k, "goes", 0);
    assert_string_equal(names(k), "stays ");
    beat_name(k, "goes", 0); /* twice, or never known: fine */
    beat_name(k, "never", 0);
    assert_string_equal(names(k), "stays ");
    beat_name(k, "goes", LEASE_US); /* a number is not given out again */
    assert_true(workers_of(k, k->store).workers[0].id > id);
}

static void P08_a_worker_that_has_ended_leaves_what_it_said(void **state)
{
    kit *k = *state;
    store_worker said = worker_of("w");
    beat(k, &said, LEASE_US);
    kit_advance(k, 1000);
    said.draining = true;
    said.metrics = weir__str("{\"a\":1}");
    beat(k, &said, -1);
    const store_worker last = only(k, k->store);
    assert_true(last.until_us <= kit_now(k));
    assert_int_equal(last.since_us, kit_now(k) - 1000);
    KIT_STR(last.metrics, "{\"a\":1}");
    assert_true(last.draining);
    kit_advance(k, STORE_WORKER_KEPT_US);
    assert_string_equal(names(k), "");
}

static void P08_a_silent_worker_is_listed_for_an_hour(void **state)
{
    kit *k = *state;
    const int64_t since_us = kit_now(k);
    beat_name(k, "silent", LEASE_US);
    kit_advance(k, LEASE_US + STORE_WORKER_KEPT_US - 1);
    beat_name(k, "other", LEASE_US); /* forgets nobody yet */
    assert_string_equal(names(k), "other silent ");
    const store_worker last = workers_of(k, k->store).workers[1];
    assert_int_equal(last.until_us, since_us + LEASE_US); /* in the past: it has ended */
    kit_advance(k, 1);
    assert_string_equal(names(k), "other "); /* although nobody has removed it */
}

static void P08_a_worker_that_comes_back_is_the_same_until_it_is_forgotten(void **state)
{
    kit *k = *state;
    const int64_t since_us = kit_now(k);
    beat_name(k, "w", LEASE_US);
    kit_advance(k, LEASE_US + STORE_WORKER_KEPT_US - 1);
    beat_name(k, "w", LEASE_US);
    assert_int_equal(only(k, k->store).since_us, since_us);
    kit_advance(k, LEASE_US + STORE_WORKER_KEPT_US);
    beat_name(k, "w", LEASE_US);
    assert_int_equal(only(k, k->store).since_us, kit_now(k));
}

static int64_t holds(kit *k, const char *name, bool count)
{
    store_worker_list list = { .count_holds = count };
    int64_t found = -1;
    KIT_OK(k, k->store->about->workers(k->store, &list, &k->err));
    for (size_t i = 0; i < list.workers_count; i++) {
        if (weir__str_equal(list.workers[i].name, weir__str(name))) {
            found = list.workers[i].holds;
        }
    }
    weir__arena_free(&list.arena);
    return found;
}

static void P08_what_a_worker_holds_is_counted_when_asked_for(void **state)
{
    kit *k = *state;
    store_lease_list *list = NULL;
    store_lease_request request = kit_lease_request("lane", 3);
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int i = 0; i < 5; i++) {
        kit_put(k, kit_text(k, "t-%d", i), "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    beat_name(k, "a", 100 * (int64_t)KIT_LEASE_US);
    beat_name(k, "b", 100 * (int64_t)KIT_LEASE_US);
    beat_name(k, "idle", 100 * (int64_t)KIT_LEASE_US);
    request.holder = weir__str("a");
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    request.holder = weir__str("b");
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 2);
    assert_int_equal(holds(k, "a", true), 3);
    assert_int_equal(holds(k, "b", true), 2);
    assert_int_equal(holds(k, "idle", true), 0);
    assert_int_equal(holds(k, "a", false), 0);
    KIT_OK(k, kit_release(k, &list->leases[0]));
    assert_int_equal(holds(k, "b", true), 1);
    kit_advance(k, KIT_LEASE_US); /* a lease that is over is held by nobody */
    assert_int_equal(holds(k, "a", true), 0);
}

static void P08_a_lease_without_end_is_one(void **state)
{
    kit *k = *state;
    beat_name(k, "w", INT64_MAX);
    assert_int_equal(only(k, k->store).until_us, INT64_MAX);
    kit_advance(k, INT64_C(100) * 86400 * 1000 * 1000);
    assert_string_equal(names(k), "w ");
}

static void P08_a_beat_gives_nobody_work(void **state)
{
    kit *k = *state;
    store_watch *watch = NULL;
    bool woken = true;
    KIT_OK(k, k->store->log->watch_open(k->store, &watch, &k->err));
    /* Something else may wake us meanwhile, such as a listener that has just connected; but not
     * every time. */
    for (int i = 0; i < 20 && woken; i++) {
        KIT_OK(k, k->store->log->watch_wait(watch, 0, &woken, &k->err));
        beat_name(k, "w", LEASE_US);
        beat_name(k, "w", 0);
        KIT_OK(k, k->store->log->watch_wait(watch, 100, &woken, &k->err));
    }
    assert_false(woken);
    k->store->log->watch_close(watch);
    assert_true(k->adapter->quiet == NULL || k->adapter->quiet(k->place));
}

/* ---- what people are shown besides ---------------------------------------------------------- */

static store_lane lane_of(kit *k, const char *name)
{
    store_lane_list list = { 0 };
    store_lane found = { 0 };
    KIT_OK(k, k->store->work->lanes(k->store, &list, &k->err));
    for (size_t i = 0; i < list.lanes_count; i++) {
        if (weir__str_equal(list.lanes[i].lane, weir__str(name))) {
            found = list.lanes[i];
        }
    }
    kit_keep(k, &list.arena);
    assert_true(found.lane.len > 0);
    return found;
}

static void P08_a_lane_tells_how_far_it_lags(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const store_reaction old = kit_declare(k, "old", "*", "*", STORE_RULE_STREAM);
    int64_t ids[5];
    kit_put(k, "x-1", "A");
    for (size_t i = 0; i < 5; i++) {
        kit_advance(k, 1000);
        ids[i] = kit_put(k, i == 4 ? "t-2" : "t-1", "A");
    }
    const int64_t fifth_us = kit_now(k);
    KIT_OK(k, kit_mark(k, "r", "t-1", "slow", 0, ids[0], ids[3]));
    KIT_OK(k, kit_mark(k, "r", "t-2", "slow", 0, ids[4], ids[4]));
    KIT_OK(k, kit_mark(k, "r", "t-3", "fast", 0, ids[4], ids[4]));
    KIT_OK(k, kit_mark(k, "old", "t-3", "fast", 0, ids[0], ids[4]));
    KIT_OK(k, k->store->work->retire(k->store, old.name, &k->err)); /* does not count any more */
    assert_int_equal(lane_of(k, "slow").lag, 4);                    /* of t-1, not of both */
    assert_int_equal(lane_of(k, "slow").oldest_us, fifth_us - 4000);
    assert_int_equal(lane_of(k, "fast").lag, 1);
    assert_int_equal(lane_of(k, "fast").oldest_us, fifth_us);
    kit_operate(k, STORE_PAUSE, "t-2"); /* it waits all the same */
    const store_leased l = kit_lease_target(k, "slow", "t-1");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[2], STORE_END_KEEP));
    assert_int_equal(lane_of(k, "slow").lag, 1);
    assert_int_equal(lane_of(k, "slow").oldest_us, fifth_us - 1000);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[3], STORE_END_RELEASE));
    assert_int_equal(lane_of(k, "slow").lag, 1);
    assert_int_equal(lane_of(k, "slow").oldest_us, fifth_us);
    kit_operate(k, STORE_RESUME, "t-2");
    const store_leased last = kit_lease_target(k, "slow", "t-2");
    KIT_OK(k, kit_settle(k, &last, r.id, ids[4], STORE_END_RELEASE));
    assert_int_equal(lane_of(k, "slow").lag, 0);
    assert_int_equal(lane_of(k, "slow").oldest_us, 0);
    kit_operate(k, STORE_RESET, "t-1");
    assert_int_equal(lane_of(k, "slow").lag, ids[3]);
    assert_int_equal(lane_of(k, "slow").oldest_us, fifth_us - 5000); /* x-1 lies between */
}

static void P08_attempts_are_those_of_the_current_definition(void **state)
{
    kit *k = *state;
    store_reaction out = { 0 };
    store_reaction_declaration d = {
        .name = weir__str("r"), .source = weir__str("*"), .rule_text = weir__str("1"), .attempts = 4
    };
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.attempts, 4);
    d.attempts = INT64_C(1) << 40;
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.number, 1); /* not part of the definition */
    assert_int_equal(out.attempts, INT64_C(1) << 40);
    store_reaction_declaration newer = d;
    newer.rule_text = weir__str("2");
    newer.attempts = 0;
    KIT_OK(k, kit_declare_with(k, &newer, "A", &out));
    assert_int_equal(out.number, 2);
    assert_int_equal(out.attempts, 0);
    newer.attempts = 2;
    KIT_OK(k, kit_declare_with(k, &newer, "A", &out));
    KIT_OK(k, kit_declare_with(k, &d, "A", &out)); /* an older one has no say */
    assert_int_equal(out.number, 1);
    assert_int_equal(out.attempts, 2);
    kit_reopen(k);
    if ((k->adapter->features & KIT_DURABLE) != 0) {
        assert_int_equal(kit_reaction(k, "r").attempts, 2);
    }
    d.redeclare = true;
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(kit_reaction(k, "r").attempts, INT64_C(1) << 40);
}

/* ---- many at once ------------------------------------------------------------------------- */

enum { BEATERS = 8, BEATS = 40 };

typedef struct beaters {
    weir_store *stores[BEATERS];
    weir_status status[BEATERS];
} beaters;

/* Each beats under a name of its own and under one that all have, and some of them go in between:
 * so rows come, change and go while everybody forgets the old ones. */
static void beat_many(void *ctx, size_t index)
{
    beaters *b = ctx;
    char name[32];
    weir_error err;
    (void)snprintf(name, sizeof name, "own-%zu", index);
    for (int i = 0; i < BEATS && b->status[index] == WEIR_OK; i++) {
        const store_worker worker = worker_of(i % 2 == 0 ? name : "shared");
        const int64_t lease_us = i % 8 == 3 ? 0 : LEASE_US;
        b->status[index] =
            b->stores[index]->about->worker_beat(b->stores[index], &worker, lease_us, &err);
    }
    if (b->status[index] == WEIR_OK) {
        const store_worker worker = worker_of("shared");
        b->status[index] =
            b->stores[index]->about->worker_beat(b->stores[index], &worker, LEASE_US, &err);
    }
}

static void P08_workers_that_beat_at_once_are_all_known(void **state)
{
    kit *k = *state;
    static beaters b;
    b = (beaters){ 0 };
    for (int i = 0; i < 150; i++) {
        beat_name(k, kit_text(k, "old-%03d", i), 1);
    }
    kit_advance(k, STORE_WORKER_KEPT_US + 1);
    for (size_t i = 0; i < BEATERS; i++) {
        b.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(BEATERS, beat_many, &b);
    for (size_t i = 0; i < BEATERS; i++) {
        assert_int_equal(b.status[i], WEIR_OK);
    }
    assert_string_equal(names(k), "own-0 own-1 own-2 own-3 own-4 own-5 own-6 own-7 shared ");
    kit_check(k);
}

kit_theme kit_workers(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(P08_a_worker_is_listed_as_it_said),
        KIT_TEST(P08_a_beat_replaces_what_was_said_before),
        KIT_TEST(P08_workers_are_listed_by_name),
        KIT_TEST(P08_a_worker_that_says_so_is_gone_at_once),
        KIT_TEST(P08_a_worker_that_has_ended_leaves_what_it_said),
        KIT_TEST(P08_a_silent_worker_is_listed_for_an_hour),
        KIT_TEST(P08_a_worker_that_comes_back_is_the_same_until_it_is_forgotten),
        KIT_TEST(P08_what_a_worker_holds_is_counted_when_asked_for),
        KIT_TEST(P08_a_lease_without_end_is_one),
        KIT_TEST(P08_a_beat_gives_nobody_work),
        KIT_TEST(P08_workers_that_beat_at_once_are_all_known),
        KIT_TEST(P08_a_lane_tells_how_far_it_lags),
        KIT_TEST(P08_attempts_are_those_of_the_current_definition),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

/* ---- for adapters that can count their rows ----------------------------------------------- */

static void P08_ended_workers_are_removed_in_bounded_batches(void **state)
{
    kit *k = *state;
    enum { COUNT = 150 };
    for (int i = 0; i < COUNT; i++) {
        beat_name(k, kit_text(k, "w-%d", i), LEASE_US);
    }
    beat_name(k, "never", 0); /* nobody has ended */
    assert_int_equal(k->adapter->workers_count(k->place, k->store), COUNT);
    kit_advance(k, LEASE_US + STORE_WORKER_KEPT_US);
    int64_t left = COUNT;
    while (left > 0) { /* a beat takes its share of the work, and no more */
        beat_name(k, "never", 0);
        left = left > STORE_WORKERS_FORGOTTEN_MAX ? left - STORE_WORKERS_FORGOTTEN_MAX : 0;
        assert_int_equal(k->adapter->workers_count(k->place, k->store), left);
    }
}

kit_theme kit_worker_counts(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(P08_ended_workers_are_removed_in_bounded_batches),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
