/* committing.c - C13: concurrent appends share transactions, and nobody pays for a neighbour.
 *
 * The committer stands above the port; here it runs over each store, through the fault store where
 * a transaction has to fail or wait.
 */
#include "kit.h"

#include "store/fault/fault.h"

#include <sched.h>
#include <stdio.h>

enum { CALLERS = 16, CALLS = 40 };

typedef struct callers {
    committer *committer;
    weir_status status[CALLERS][CALLS];
    int64_t version[CALLERS][CALLS]; /* of the caller's own stream; a conflict's actual one */
    int64_t id[CALLERS][CALLS];
    char stream[CALLERS][CALLS][32]; /* of the error */
} callers;

/* Each caller appends to a stream of its own; every third call is wrong, every fifth wants a key
 * that only one caller can have. */
static void call_all(void *ctx, size_t index)
{
    callers *c = ctx;
    int64_t next = 0;
    for (size_t i = 0; i < CALLS; i++) {
        char stream[32];
        kit_append a;
        snprintf(stream, sizeof stream, "own-%zu", index);
        kit_append_init(&a);
        const int64_t expected = i % 3 == 2 ? next + 100 : next - 1;
        const uint32_t s =
            kit_append_stream(&a, stream, expected < 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT,
                              expected < 0 ? 0 : expected);
        kit_append_event(&a, s, "A", "{}");
        if (i % 5 == 4) {
            kit_append_change(&a, WEIR_KEY_RESERVE, "the-only-one", s);
        }
        a.append.status = WEIR_EMISUSE;
        c->status[index][i] = weir__committer_append(c->committer, &a.append);
        c->version[index][i] = c->status[index][i] == WEIR_OK ? a.streams[0].last : a.err.actual;
        c->id[index][i] = a.streams[0].id;
        snprintf(c->stream[index][i], 32, "%.31s", a.err.stream);
        next += c->status[index][i] == WEIR_OK;
    }
}

static callers *callers_run(kit *k, weir_store *s)
{
    static callers c;
    c = (callers){ 0 };
    KIT_OK(k, weir__committer_open(&c.committer, s, &k->err));
    kit_threads(CALLERS, call_all, &c);
    weir__committer_close(c.committer);
    return &c;
}

static size_t callers_judge(const callers *c)
{
    size_t winners = 0;
    size_t won = 0;
    for (size_t t = 0; t < CALLERS; t++) {
        int64_t next = 0;
        char stream[32];
        snprintf(stream, sizeof stream, "own-%zu", t);
        for (size_t i = 0; i < CALLS; i++) {
            if (i % 3 == 2) {
                assert_int_equal(c->status[t][i], WEIR_ECONFLICT);
                assert_int_equal(c->version[t][i], next - 1);
                assert_string_equal(c->stream[t][i], stream);
            } else if (c->status[t][i] == WEIR_ETAKEN) {
                assert_int_equal(i % 5, 4);
                assert_string_not_equal(c->stream[t][i], stream);
            } else {
                assert_int_equal(c->status[t][i], WEIR_OK);
                assert_int_equal(c->version[t][i], next);
                next++;
                won++;
                winners += i == 4;
            }
        }
    }
    assert_int_equal(winners, 1);
    return won;
}

static void C13_each_caller_gets_its_own_result(void **state)
{
    kit *k = *state;
    const callers *c = callers_run(k, k->store);
    const size_t won = callers_judge(c);
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, won);
    kit_check_log(k, log);
    /* The ids told are the ids kept. */
    for (size_t i = 0; i < log.count; i++) {
        size_t t = 0;
        assert_int_equal(
            sscanf(kit_text(k, "%.*s", (int)log.events[i].stream.len, log.events[i].stream.ptr),
                   "own-%zu", &t),
            1);
        bool told = false;
        for (size_t j = 0; j < CALLS; j++) {
            told = told || (c->status[t][j] == WEIR_OK && c->id[t][j] == log.events[i].id &&
                            c->version[t][j] == log.events[i].version);
        }
        assert_true(told);
    }
}

/* What the first transaction waits for: that everybody else has asked. */
typedef struct gathering {
    weir_store *store;
    committer *committer;
    _Atomic size_t asked;
    weir_status status[CALLERS];
    int64_t version[CALLERS];
} gathering;

static void wait_for_all(void *ctx, fault_verb verb)
{
    gathering *g = ctx;
    (void)verb;
    while (atomic_load(&g->asked) < CALLERS) {
        sched_yield();
    }
}

static void ask(void *ctx, size_t index)
{
    gathering *g = ctx;
    kit_append a;
    kit_append_init(&a);
    /* One in four is refused. */
    kit_append_event(
        &a, kit_append_stream(&a, "shared", index % 4 == 3 ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY, 0),
        "A", "{}");
    if (index % 4 == 3) {
        kit_append_stream(&a, "guard", WEIR_EXPECT_NONE, 0);
    }
    atomic_fetch_add(&g->asked, 1);
    g->status[index] = weir__committer_append(g->committer, &a.append);
    g->version[index] = a.streams[0].last;
}

static void gathering_run(kit *k, gathering *g)
{
    weir_store *inner = NULL;
    const store_options options = kit_options(k);
    KIT_OK(k, k->adapter->open(k->place, &options, &inner, &k->err));
    KIT_OK(k, weir__fault_open(&g->store, inner, &k->err));
    KIT_OK(k, weir__committer_open(&g->committer, g->store, &k->err));
}

static void gathering_end(gathering *g)
{
    weir__committer_close(g->committer);
    g->store->about->close(g->store);
}

static void C13_concurrent_appends_share_transactions(void **state)
{
    kit *k = *state;
    gathering g = { 0 };
    kit_put(k, "guard", "A");
    gathering_run(k, &g);
    const fault_plan plan = { .verb = FAULT_APPEND,
                              .action = FAULT_DELAY,
                              .nth = 1,
                              .delay_cb = wait_for_all,
                              .delay_ctx = &g };
    weir__fault_set(g.store, &plan);
    kit_threads(CALLERS, ask, &g);
    size_t won = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_equal(g.status[i], i % 4 == 3 ? WEIR_ECONFLICT : WEIR_OK);
        won += g.status[i] == WEIR_OK;
    }
    assert_int_equal(won, 12);
    assert_int_equal(kit_version(k, "shared"), 11);
    if (g.store->log->group_commit) {
        /* All that asked while the first was in its transaction go together in the next; one that
         * had said so but was not in the queue yet costs one more. */
        assert_true(weir__fault_calls(g.store, FAULT_APPEND) < CALLERS);
    }
    gathering_end(&g);
}

/* Then the next transaction, which is that of all who waited, fails as a whole. */
static void wait_for_all_and_fail_the_next(void *ctx, fault_verb verb)
{
    gathering *g = ctx;
    const fault_plan plan = {
        .verb = FAULT_APPEND, .action = FAULT_FAIL_BEFORE, .nth = 1, .status = WEIR_EIO
    };
    wait_for_all(ctx, verb);
    weir__fault_set(g->store, &plan);
}

static void C13_a_failing_transaction_fails_nobody_else(void **state)
{
    kit *k = *state;
    gathering g = { 0 };
    kit_put(k, "guard", "A");
    gathering_run(k, &g);
    const fault_plan plan = { .verb = FAULT_APPEND,
                              .action = FAULT_DELAY,
                              .nth = 1,
                              .delay_cb = wait_for_all_and_fail_the_next,
                              .delay_ctx = &g };
    weir__fault_set(g.store, &plan);
    kit_threads(CALLERS, ask, &g);
    /* One caller fails when it was alone in that transaction; otherwise each was tried again
     * alone. */
    size_t failed = 0;
    size_t won = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        failed += g.status[i] == WEIR_EIO;
        won += g.status[i] == WEIR_OK;
        assert_true(g.status[i] == WEIR_EIO ||
                    g.status[i] == (i % 4 == 3 ? WEIR_ECONFLICT : WEIR_OK));
    }
    if (g.store->log->group_commit) {
        assert_int_equal(weir__fault_hits(g.store), 1);
    }
    assert_true(failed <= 1);
    assert_int_equal(kit_stream(k, "shared").count, won);
    kit_check_log(k, kit_log(k));
    gathering_end(&g);
}

static void C13_callers_are_judged_in_order_each_seeing_those_before(void **state)
{
    kit *k = *state;
    enum { COUNT = 6 };
    kit_append all[COUNT];
    store_append *appends[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        kit_append_init(&all[i]);
        appends[i] = &all[i].append;
    }
    kit_append_event(&all[0], kit_append_stream(&all[0], "s", WEIR_EXPECT_NONE, 0), "A", "{}");
    kit_append_change(&all[0], WEIR_KEY_RESERVE, "k", 0);
    kit_append_event(&all[1], kit_append_stream(&all[1], "s", WEIR_EXPECT_EXACT, 0), "B", "{}");
    kit_append_event(&all[2], kit_append_stream(&all[2], "s", WEIR_EXPECT_EXACT, 0), "C", "{}");
    kit_append_event(&all[3], kit_append_stream(&all[3], "t", WEIR_EXPECT_NONE, 0), "D", "{}");
    kit_append_change(&all[3], WEIR_KEY_RESERVE, "k", 0);
    kit_append_event(&all[4], kit_append_stream(&all[4], "s", WEIR_EXPECT_ANY, 0), "$closed", "{}");
    all[4].append.flags = STORE_APPEND_CLOSE;
    kit_append_event(&all[5], kit_append_stream(&all[5], "s", WEIR_EXPECT_ANY, 0), "E", "{}");
    KIT_OK(k, k->store->log->append(k->store, appends, COUNT, &k->err));
    static const weir_status expected[COUNT] = { WEIR_OK,     WEIR_OK, WEIR_ECONFLICT,
                                                 WEIR_ETAKEN, WEIR_OK, WEIR_ECLOSED };
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(all[i].append.status, expected[i]);
    }
    assert_int_equal(all[2].err.actual, 1);
    assert_string_equal(all[3].err.stream, "s");
    assert_int_equal(kit_version(k, "s"), 2);
    assert_int_equal(kit_version(k, "t"), -1);
    kit_check_log(k, kit_log(k));
}

static void C13_a_chain_ends_with_the_first_refusal(void **state)
{
    kit *k = *state;
    enum { COUNT = 5 };
    kit_append all[COUNT];
    store_append *appends[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        kit_append_init(&all[i]);
        kit_append_event(&all[i],
                         kit_append_stream(&all[i], i == 4 ? "t" : "s",
                                           i == 1 ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY, 0),
                         "A", "{}");
        all[i].append.flags = i == 0 || i == 4 ? 0 : STORE_APPEND_CHAIN;
        appends[i] = &all[i].append;
    }
    KIT_OK(k, k->store->log->append(k->store, appends, COUNT, &k->err));
    assert_int_equal(all[0].append.status, WEIR_OK);
    assert_int_equal(all[1].append.status, WEIR_ECONFLICT);
    assert_int_equal(all[2].append.status, WEIR_EMISUSE);
    assert_non_null(strstr(all[2].err.message, "not tried"));
    assert_int_equal(all[3].append.status, WEIR_EMISUSE); /* after one that was not tried */
    assert_int_equal(all[4].append.status, WEIR_OK);      /* not part of the chain */
    assert_int_equal(kit_log(k).count, 2);
}

/* The same where no two appends have a stream in common, which a store may judge in another way. */
static void C13_a_chain_of_different_streams_ends_with_the_first_refusal(void **state)
{
    kit *k = *state;
    enum { COUNT = 4 };
    static const char *const streams[COUNT] = { "a", "b", "c", "d" };
    kit_append all[COUNT];
    store_append *appends[COUNT];
    kit_put(k, "c", "A");
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            kit_append_init(&all[i]);
            kit_append_event(
                &all[i],
                kit_append_stream(&all[i], streams[i],
                                  i == 2 && round == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY, 0),
                "A", "{}");
            all[i].append.flags = i == 0 ? 0 : STORE_APPEND_CHAIN;
            appends[i] = &all[i].append;
        }
        KIT_OK(k, k->store->log->append(k->store, appends, COUNT, &k->err));
        assert_int_equal(all[0].append.status, WEIR_OK);
        assert_int_equal(all[1].append.status, WEIR_OK);
        assert_int_equal(all[1].append.streams[0].last, round);
        assert_int_equal(all[2].append.status, round == 0 ? WEIR_ECONFLICT : WEIR_OK);
        assert_int_equal(all[3].append.status, round == 0 ? WEIR_EMISUSE : WEIR_OK);
        assert_int_equal(kit_log(k).count, round == 0 ? 3 : 7);
    }
}

kit_theme kit_committing(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C13_each_caller_gets_its_own_result),
        KIT_TEST(C13_concurrent_appends_share_transactions),
        KIT_TEST(C13_a_failing_transaction_fails_nobody_else),
        KIT_TEST(C13_callers_are_judged_in_order_each_seeing_those_before),
        KIT_TEST(C13_a_chain_ends_with_the_first_refusal),
        KIT_TEST(C13_a_chain_of_different_streams_ends_with_the_first_refusal),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
