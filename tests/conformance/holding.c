/* holding.c - appends that are not finished: what they hold back, and who is told (C16, C17); and
 * appends inside a transaction of the caller's own, which is how one is left unfinished on purpose.
 */
#include "kit.h"

/* ---- every store -------------------------------------------------------------------------- */

static store_positions positions_now(kit *k)
{
    store_positions p = { 0 };
    KIT_OK(k, k->store->log->positions(k->store, &p, &k->err));
    return p;
}

/* Who holds `safe` back, in memory that ends with the test. */
static store_holder_list holders_now(kit *k)
{
    store_holder_list list = { 0 };
    KIT_OK(k, k->store->about->holders(k->store, &list, &k->err));
    kit_keep(k, &list.arena);
    return list;
}

/* Everything a forward reader gets from `after` on, without waiting. *held: it was told to look
 * again. */
static kit_events read_after(kit *k, int64_t after, bool *held)
{
    const store_log_query q = { .after = after, .to = INT64_MAX, .limit = 100 };
    store_chunk chunk = { 0 };
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_false(chunk.more);
    *held = chunk.held;
    weir__chunk_free(&chunk);
    return kit_read_log(k, k->store, &q);
}

static void C17_nothing_holds_back_what_is_committed(void **state)
{
    kit *k = *state;
    bool held = true;
    assert_int_equal(holders_now(k).holders_count, 0);
    int64_t id = 0;
    for (int i = 0; i < 5; i++) {
        kit_append a;
        id = kit_put(k, "s", "A");
        KIT_IS(k, kit_try(k->store, "s", WEIR_EXPECT_NONE, 0, &a), WEIR_ECONFLICT);
    }
    const store_positions p = positions_now(k);
    assert_int_equal(p.head, id);
    assert_int_equal(p.safe, id);
    assert_int_equal(holders_now(k).holders_count, 0);
    assert_int_equal(read_after(k, 0, &held).count, 5);
    assert_false(held);
}

kit_theme kit_holding(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C17_nothing_holds_back_what_is_committed),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

/* ---- inside a caller's own transaction ---------------------------------------------------- */

static void *own_begin(kit *k)
{
    void *native = k->adapter->own_begin(k->place, atomic_load(&k->wall_us));
    assert_non_null(native);
    return native;
}

static void own_end(kit *k, void *native, bool commit)
{
    assert_true(k->adapter->own_end(native, commit));
    k->store->log->wake(k->store);
}

static weir_status own_append(kit *k, void *native, const char *stream, int32_t expect,
                              int64_t version, kit_append *a)
{
    kit_append_init(a);
    kit_append_event(a, kit_append_stream(a, stream, expect, version), "Own", "{}");
    const weir_status status = k->store->log->append_in(k->store, native, &a->append, &a->err);
    k->err = a->err;
    return status != WEIR_OK ? status : a->append.status;
}

static void C05_an_append_in_a_callers_transaction_happens_with_its_commit(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_put(k, "s", "A");
    void *native = own_begin(k);
    assert_true(k->adapter->own_write(native));
    KIT_OK(k, own_append(k, native, "s", WEIR_EXPECT_EXACT, 0, &a));
    assert_int_equal(a.streams[0].last, 1);
    assert_int_equal(kit_version(k, "s"), 0);
    own_end(k, native, true);
    assert_int_equal(kit_version(k, "s"), 1);
    assert_int_equal(k->adapter->own_count(k->place), 1);
    native = own_begin(k);
    assert_true(k->adapter->own_write(native));
    KIT_OK(k, own_append(k, native, "s", WEIR_EXPECT_EXACT, 1, &a));
    KIT_OK(k, own_append(k, native, "new", WEIR_EXPECT_NONE, 0, &a));
    own_end(k, native, false);
    assert_int_equal(kit_version(k, "s"), 1);
    assert_int_equal(kit_version(k, "new"), -1);
    assert_int_equal(k->adapter->own_count(k->place), 1);
    KIT_OK(k, kit_try(k->store, "s", WEIR_EXPECT_EXACT, 1, &a)); /* as if it had never been */
    kit_check_log(k, kit_log(k));
}

static void C07_a_refusal_leaves_a_callers_transaction_as_it_was(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_put(k, "s", "A");
    kit_put(k, "s", "A");
    void *native = own_begin(k);
    KIT_OK(k, own_append(k, native, "s", WEIR_EXPECT_ANY, 0, &a));
    KIT_IS(k, own_append(k, native, "s", WEIR_EXPECT_EXACT, 1, &a), WEIR_ECONFLICT);
    assert_int_equal(a.err.actual, 2); /* its own event counts */
    KIT_IS(k, own_append(k, native, "other", WEIR_EXPECT_EXISTS, 0, &a), WEIR_ECONFLICT);
    assert_int_equal(a.err.actual, -1);
    KIT_OK(k, own_append(k, native, "s", WEIR_EXPECT_EXACT, 2, &a));
    own_end(k, native, true);
    assert_int_equal(kit_version(k, "s"), 3);
    assert_int_equal(kit_version(k, "other"), -1);
    kit_check_log(k, kit_log(k));
}

static void C09_a_key_used_in_a_callers_transaction_is_used_with_its_commit(void **state)
{
    kit *k = *state;
    for (int commit = 0; commit < 2; commit++) {
        kit_append a;
        kit_append b;
        void *native = own_begin(k);
        kit_append_init(&a);
        kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0), "A", "{}");
        kit_append_key(&a, "key");
        KIT_OK(k, k->store->log->append_in(k->store, native, &a.append, &a.err));
        KIT_OK(k, a.append.status);
        assert_false(a.append.replayed);
        own_end(k, native, commit == 1);
        kit_append_init(&b);
        kit_append_event(&b, kit_append_stream(&b, "s", WEIR_EXPECT_ANY, 0), "A", "{}");
        kit_append_key(&b, "key");
        if (commit == 1) {
            KIT_OK(k, kit_append_run(k->store, &b));
            assert_true(b.append.replayed);
            assert_int_equal(b.streams[0].id, a.streams[0].id);
        }
    }
    assert_int_equal(kit_version(k, "s"), 0);
}

/* Appends one event in an open transaction and three past it, and sees that readers stop short. */
static int64_t hold(kit *k, void *native, int64_t before)
{
    kit_append a;
    bool held = false;
    KIT_OK(k, own_append(k, native, "held", WEIR_EXPECT_ANY, 0, &a));
    const int64_t own = a.streams[0].id;
    int64_t last = 0;
    for (int i = 0; i < 3; i++) {
        last = kit_put(k, "past", "B");
    }
    assert_true(own > before && last > own);
    for (int i = 0; i < 3; i++) { /* however often it is asked */
        const store_positions p = positions_now(k);
        assert_int_equal(p.head, last);
        assert_true(p.safe >= before && p.safe < own);
        assert_int_equal(read_after(k, before, &held).count, 0);
        assert_true(held);
    }
    return last;
}

static void C17_an_append_that_is_not_finished_holds_safe_and_is_named(void **state)
{
    kit *k = *state;
    bool held = true;
    const int64_t before = kit_put(k, "s", "A");
    void *native = own_begin(k);
    const int64_t last = hold(k, native, before);
    const store_holder_list list = holders_now(k);
    assert_int_equal(list.holders_count, 1);
    assert_true(list.holders[0].pid > 0);
    assert_true(list.holders[0].transaction.len > 0);
    assert_true(list.holders[0].since_us > 0);
    KIT_STR(list.holders[0].application, "a caller of its own");
    own_end(k, native, true);
    assert_int_equal(holders_now(k).holders_count, 0);
    const kit_events log = read_after(k, before, &held);
    assert_int_equal(log.count, 4);
    KIT_STR(log.events[0].stream, "held");
    assert_int_equal(log.events[3].id, last);
    assert_false(held);
    assert_int_equal(positions_now(k).safe, last);
}

static void C16_what_was_rolled_back_is_passed_over(void **state)
{
    kit *k = *state;
    bool held = true;
    const int64_t before = kit_put(k, "s", "A");
    void *native = own_begin(k);
    const int64_t last = hold(k, native, before);
    own_end(k, native, false);
    const kit_events log = read_after(k, before, &held);
    assert_int_equal(log.count, 3);
    KIT_STR(log.events[0].stream, "past");
    assert_int_equal(log.events[2].id, last);
    assert_false(held);
    assert_int_equal(positions_now(k).safe, last);
    assert_int_equal(holders_now(k).holders_count, 0);
}

/* Only the transactions that were there when the gap was seen are waited for. */
static void C16_a_later_transaction_holds_only_what_is_its_own(void **state)
{
    kit *k = *state;
    kit_append a;
    bool held = false;
    const int64_t before = kit_put(k, "s", "A");
    void *first = own_begin(k);
    const int64_t last = hold(k, first, before);
    void *second = own_begin(k);
    KIT_OK(k, own_append(k, second, "later", WEIR_EXPECT_ANY, 0, &a));
    assert_true(a.streams[0].id > last);
    assert_int_equal(holders_now(k).holders_count, 2);
    assert_true(holders_now(k).holders[0].since_us <= holders_now(k).holders[1].since_us);
    own_end(k, first, true);
    assert_int_equal(read_after(k, before, &held).count, 4);
    assert_int_equal(positions_now(k).safe, last);
    own_end(k, second, true);
    assert_int_equal(read_after(k, before, &held).count, 5);
    assert_false(held);
    kit_check_log(k, kit_log(k));
}

static void C13_a_stream_held_by_a_caller_is_nobody_elses_wait(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_put(k, "held", "A");
    void *native = own_begin(k);
    KIT_OK(k, own_append(k, native, "held", WEIR_EXPECT_ANY, 0, &a));
    KIT_OK(k, own_append(k, native, "held-and-new", WEIR_EXPECT_NONE, 0, &a));
    /* A batch in which two need what is held, and a neighbour between them does not. */
    kit_append batch[3];
    store_append *appends[3];
    static const char *const streams[] = { "held", "free", "held-and-new" };
    for (size_t i = 0; i < 3; i++) {
        kit_append_init(&batch[i]);
        kit_append_event(&batch[i], kit_append_stream(&batch[i], streams[i], WEIR_EXPECT_ANY, 0),
                         "B", "{}");
        batch[i].append.flags = STORE_APPEND_NOWAIT;
        appends[i] = &batch[i].append;
    }
    KIT_OK(k, k->store->log->append(k->store, appends, 3, &k->err));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(batch[i].append.status, i == 1 ? WEIR_OK : WEIR_EBUSY);
        assert_true(batch[i].append.alone == (i != 1));
    }
    assert_int_equal(kit_version(k, "free"), 0);
    own_end(k, native, true);
    for (size_t i = 0; i < 3; i += 2) {
        batch[i].append.flags = 0;
        KIT_OK(k, kit_append_run(k->store, &batch[i]));
        assert_int_equal(batch[i].streams[0].last, 1 + (i == 0));
    }
    kit_check_log(k, kit_log(k));
}

/* Nobody is told of a transaction that Weir does not end itself: that is its owner's to do. */
static void P06_the_caller_wakes_everybody_after_its_own_commit(void **state)
{
    enum { WATCHES = 2, ECHO_MS = 50 };
    kit *k = *state;
    kit_append a;
    weir_store *const stores[WATCHES] = { k->store, kit_open(k) };
    store_watch *watches[WATCHES];
    bool woken = true;
    for (size_t i = 0; i < WATCHES; i++) {
        KIT_OK(k, stores[i]->log->watch_open(stores[i], &watches[i], &k->err));
        for (int n = 0; n < 10 && woken; n++) { /* what is still on its way from opening */
            KIT_OK(k, stores[i]->log->watch_wait(watches[i], ECHO_MS, &woken, &k->err));
        }
        assert_false(woken);
        woken = true;
    }
    void *native = own_begin(k);
    KIT_OK(k, own_append(k, native, "s", WEIR_EXPECT_ANY, 0, &a));
    assert_true(k->adapter->own_end(native, true));
    for (size_t i = 0; i < WATCHES; i++) {
        KIT_OK(k, stores[i]->log->watch_wait(watches[i], ECHO_MS, &woken, &k->err));
        assert_false(woken);
    }
    k->store->log->wake(k->store);
    for (size_t i = 0; i < WATCHES; i++) {
        KIT_OK(k, stores[i]->log->watch_wait(watches[i], 10000, &woken, &k->err));
        assert_true(woken);
        stores[i]->log->watch_close(watches[i]);
    }
}

kit_theme kit_own_transactions(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C05_an_append_in_a_callers_transaction_happens_with_its_commit),
        KIT_TEST(C07_a_refusal_leaves_a_callers_transaction_as_it_was),
        KIT_TEST(C09_a_key_used_in_a_callers_transaction_is_used_with_its_commit),
        KIT_TEST(C13_a_stream_held_by_a_caller_is_nobody_elses_wait),
        KIT_TEST(C16_what_was_rolled_back_is_passed_over),
        KIT_TEST(C16_a_later_transaction_holds_only_what_is_its_own),
        KIT_TEST(C17_an_append_that_is_not_finished_holds_safe_and_is_named),
        KIT_TEST(P06_the_caller_wakes_everybody_after_its_own_commit),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
