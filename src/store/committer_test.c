/* committer_test.c - who shares a transaction with whom, and what each caller is told, where one
 * transaction runs at a time. Two at a time: committer_two_test.c.
 *
 * Method: the store below the committer is a gate that the test opens and closes. What the real
 * stores do with a batch is proved in tests/conformance/.
 */
#include "store/committer_fixture.h"

#include <sched.h>

static void C13_callers_that_wait_share_one_transaction_in_arrival_order(void **state)
{
    fixture *f = *state;
    queue_up(f, 63);
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.calls, 2);
    assert_int_equal(f->gate.counts[0], 1);
    assert_int_equal(f->gate.counts[1], 63);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(f->gate.order[i], (int64_t)i + 1);
    }
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void C13_each_caller_gets_its_own_ids_and_its_own_conflict(void **state)
{
    fixture *f = *state;
    queue_up(f, 20);
    gate_set(&f->gate, false);
    join_all(f);
    for (size_t i = 0; i < 21; i++) {
        const caller *k = &f->callers[i];
        const int64_t tag = (int64_t)i + 1;
        assert_int_equal(k->streams[0].id, tag * 10);
        assert_int_equal(k->status, tag % 5 == 0 ? WEIR_ECONFLICT : WEIR_OK);
        assert_int_equal(k->err.actual, tag % 5 == 0 ? tag : 0);
    }
}

/* 64 callers in two transactions; every fifth conflicts. */
static void what_becomes_of_appends_is_counted(void **state)
{
    fixture *f = *state;
    committer_counts counts;
    queue_up(f, 63);
    weir__committer_counts(f->c, &counts);
    assert_int_equal(counts.appends + counts.conflicts + counts.batched, 0);
    gate_set(&f->gate, false);
    join_all(f);
    weir__committer_counts(f->c, &counts);
    assert_int_equal(counts.conflicts, 64 / 5);
    assert_int_equal(counts.appends, 64 - 64 / 5);
    assert_int_equal(counts.events, 0); /* the fixture's have none */
    assert_int_equal(counts.batched, 64);
    assert_int_equal(counts.batches[0], 1); /* of one   */
    assert_int_equal(counts.batches[6], 1); /* up to 64 */
    for (size_t i = 1; i < COMMITTER_BATCH_BUCKETS; i++) {
        assert_int_equal(counts.batches[i], i == 6 ? 1 : 0);
    }
}

static void C13_a_failed_batch_is_run_again_one_by_one(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EIO;
    f->gate.alone_fails_tag = 3;
    queue_up(f, 3);
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.calls, 1 + 1 + 3);
    assert_int_equal(f->callers[1].status, WEIR_OK);
    assert_int_equal(f->callers[2].status, WEIR_EIO); /* tag 3: its own trouble, nobody else's */
    assert_string_equal(f->callers[2].err.message, "this one fails alone");
    assert_int_equal(f->callers[3].status, WEIR_OK);
}

static void a_store_that_is_busy_is_not_asked_once_more_for_each(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EBUSY;
    queue_up(f, 3);
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.calls, 2);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(f->callers[i].status, WEIR_EBUSY);
        assert_string_equal(f->callers[i].err.message, "the batch failed");
    }
}

static void C14_what_may_have_happened_is_repeated_only_under_a_key(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EUNKNOWN;
    queue_up(f, 0);
    caller_queue(f, (wish){ 0 });
    caller_queue(f, (wish){ .key = 'K' });
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->callers[1].status, WEIR_EUNKNOWN);
    assert_int_equal(f->callers[2].status, WEIR_OK);
    assert_int_equal(f->gate.calls, 1 + 1 + 1);
}

static void C13_a_caller_whose_time_is_not_up_goes_on_waiting_for_a_busy_store(void **state)
{
    fixture *f = *state;
    const int64_t past_us = weir__clock_mono(weir__clock_machine());
    const int64_t deadlines_us[] = { 0, past_us, past_us, INT64_MAX, INT64_MAX };
    f->gate.batch_fails = WEIR_EBUSY;
    f->gate.batch_fails_left = 1;
    queue_up(f, 0);
    for (size_t i = 1; i <= 4; i++) {
        caller_queue(f, (wish){ .deadline_us = deadlines_us[i] });
    }
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.calls, 3);
    assert_int_equal(f->gate.counts[1], 4);
    assert_int_equal(f->gate.counts[2], 2);
    assert_int_equal(f->callers[1].status, WEIR_EBUSY);
    assert_int_equal(f->callers[2].status, WEIR_EBUSY);
    assert_int_equal(f->callers[3].status, WEIR_OK);
    assert_int_equal(f->callers[4].streams[0].id, 50); /* a conflict of its own, in its turn */
    assert_int_equal(f->callers[4].status, WEIR_ECONFLICT);
    assert_int_equal(f->gate.order[1], 4);
    assert_int_equal(f->gate.order[2], 5);
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void release_held(gate_store *g)
{
    weir__lock(&g->mu);
    g->held = false;
    weir__cond_broadcast(&g->opened);
    weir__unlock(&g->mu);
}

static void wait_for_held(gate_store *g, size_t count)
{
    bool there = false;
    while (!there) {
        weir__lock(&g->mu);
        there = g->held_inside == count;
        weir__unlock(&g->mu);
        (void)sched_yield();
    }
}

/* The one whose stream is held is in the middle of a batch; then it is the leader. */
static void C13_a_caller_whose_stream_is_held_waits_alone(void **state)
{
    fixture *f = *state;
    f->gate.held = true;
    f->gate.held_tag = 4;
    queue_up(f, 7);
    gate_set(&f->gate, false);
    for (size_t i = 0; i < 8; i++) {
        if (i != 3) {
            caller_join(&f->callers[i]);
        }
    }
    wait_for_held(&f->gate, 1);
    /* Whoever comes now is not held up, be it alone in its batch. */
    (void)caller_start(f, (wish){ 0 });
    caller_join(&f->callers[8]);
    assert_int_equal(f->callers[8].status, WEIR_OK);
    (void)caller_start(f, (wish){ .tag = 4 });
    wait_for_held(&f->gate, 2);
    (void)caller_start(f, (wish){ 0 });
    caller_join(&f->callers[10]);
    release_held(&f->gate);
    caller_join(&f->callers[3]);
    caller_join(&f->callers[9]);
    assert_int_equal(f->callers[3].status, WEIR_OK);
    assert_int_equal(f->callers[3].streams[0].id, 40);
    assert_int_equal(f->callers[9].status, WEIR_OK);
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void a_batch_has_at_most_256_callers(void **state)
{
    fixture *f = *state;
    queue_up(f, COMMITTER_BATCH_CALLERS_MAX + 1);
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.counts[1], COMMITTER_BATCH_CALLERS_MAX);
    assert_int_equal(f->gate.counts[2], 1);
}

static void the_1025th_waiting_caller_is_told_to_come_back(void **state)
{
    fixture *f = *state;
    queue_up(f, COMMITTER_WAITING_MAX - 1);
    caller *k = caller_start(f, (wish){ .tag = 1 });
    caller_join(k);
    assert_int_equal(k->status, WEIR_EBUSY);
    gate_set(&f->gate, false);
    join_all(f);
    k = caller_start(f, (wish){ .tag = 1 });
    caller_join(k);
    assert_int_equal(k->status, WEIR_OK);
}

static void a_batch_ends_where_it_would_become_too_large(void **state)
{
    fixture *f = *state;
    queue_up(f, 0);
    for (size_t i = 1; i <= 3; i++) {
        caller_queue(f, (wish){ .events_count = COMMITTER_BATCH_EVENTS_MAX });
    }
    gate_set(&f->gate, false);
    join_all(f);
    assert_int_equal(f->gate.calls, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup_1, fixture_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(C13_callers_that_wait_share_one_transaction_in_arrival_order),
        TEST(C13_each_caller_gets_its_own_ids_and_its_own_conflict),
        TEST(what_becomes_of_appends_is_counted),
        TEST(C13_a_failed_batch_is_run_again_one_by_one),
        TEST(a_store_that_is_busy_is_not_asked_once_more_for_each),
        TEST(C14_what_may_have_happened_is_repeated_only_under_a_key),
        TEST(C13_a_caller_whose_time_is_not_up_goes_on_waiting_for_a_busy_store),
        TEST(C13_a_caller_whose_stream_is_held_waits_alone),
        TEST(a_batch_has_at_most_256_callers),
        TEST(the_1025th_waiting_caller_is_told_to_come_back),
        TEST(a_batch_ends_where_it_would_become_too_large),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("committer", tests, NULL, NULL);
}
