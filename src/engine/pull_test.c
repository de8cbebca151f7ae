/* pull_test.c - deliveries that are run elsewhere: taken, settled, lost, taken back, asked again.
 * On memory and on SQLite.
 *
 * Method: as slot_test.c; the test is who pulls.
 */
#include "engine/slot_kit_test.h"

#include "base/str.h"

#include <stdio.h>

static kit_process a;
static size_t told;

static void tell(void *ctx)
{
    (void)ctx;
    told++;
}

static weir_store *begin(void **state, const weir_reaction *more, size_t count)
{
    const worker_options options = { .pull_cb = tell };
    weir_store *s = kit_open(*state != NULL);
    told = 0;
    kit_handler(&a, NULL, "one", "all", more);
    kit_start(&a, s, &options);
    kit_append_many(s, "order-1", "Placed", count);
    kit_drive(&a, 1);
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static weir_delivery *next(int64_t event, int64_t attempt)
{
    weir_delivery *d = weir__worker_next(a.worker);
    assert_non_null(d);
    assert_int_equal(d->event->id, event);
    assert_int_equal(d->attempt, attempt);
    return d;
}

static void stage(weir_delivery *d, int32_t expect)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("effect"),
                                   .name = weir__str("Done") };
    const weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = expect,
                                           .stream = weir__str("effect") };
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const expectations[] = { &expectation };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1, .expectations = expectations,
                                          .expectations_count = 1 };
    assert_int_equal(weir__stage_append(d, &request, NULL), WEIR_OK);
}

static void C33_what_was_pulled_is_settled_with_its_effects(void **state)
{
    weir_store *s = begin(state, NULL, 2);
    assert_int_equal(told, 1);
    weir_delivery *d = next(1, 1);
    assert_null(weir__worker_next(a.worker)); /* one at a time on one target */
    stage(d, WEIR_EXPECT_ANY);
    assert_int_equal(kit_version(s, "effect"), -1);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(kit_version(s, "effect"), 0); /* when it returns, not later */
    assert_int_equal(kit_at(s, "all", "one"), 1);
    kit_drive(&a, 1);
    d = next(2, 1);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    kit_drive(&a, 1);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_null(weir__worker_next(a.worker));
    end(s);
}

static void C27_a_pulled_failure_costs_one_retry(void **state)
{
    weir_store *s = begin(state, NULL, 1);
    weir_delivery *d = next(1, 1);
    stage(d, WEIR_EXPECT_ANY);
    weir__delivery_fail(d, weir__str("no"));
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_DEFERRED);
    assert_string_equal(kit_target_of(s, "all").error, "no");
    assert_int_equal(kit_version(s, "effect"), -1);
    kit_drive(&a, 2 * S);
    d = next(1, 2);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    end(s);
}

static void C34_a_pulled_delivery_that_loses_a_race_is_delivered_again(void **state)
{
    weir_store *s = begin(state, NULL, 1);
    weir_delivery *d = next(1, 1);
    stage(d, WEIR_EXPECT_NONE);
    (void)kit_append(s, "effect", "Other", "{}");
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_ECONFLICT);
    kit_drive(&a, 100 * MS);
    d = next(1, 1);
    stage(d, WEIR_EXPECT_ANY);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(kit_version(s, "effect"), 1);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    end(s);
}

static void C26_what_is_not_settled_by_its_deadline_is_taken_back(void **state)
{
    const weir_reaction more = { .deadline_us = 20 * S };
    weir_store *s = begin(state, &more, 1);
    kit_drive(&a, 15 * S); /* the time to handle it begins when it is taken */
    weir_delivery *d = next(1, 1);
    kit_drive(&a, 19 * S);
    assert_int_equal(kit_target_of(s, "all").fence, 1); /* renewed meanwhile */
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_LEASED);
    assert_false(atomic_load(d->interrupted));
    kit_drive(&a, 10 * S);
    assert_true(atomic_load(d->interrupted));
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    stage(d, WEIR_EXPECT_ANY); /* it is still there to be used */
    weir_delivery *again = next(1, 1);
    assert_true(again->fence > d->fence);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_ELOST);
    assert_int_equal(kit_version(s, "effect"), -1);
    assert_int_equal(weir__worker_settle(a.worker, again, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

static void C24_a_pulled_delivery_whose_lease_is_anothers_is_lost(void **state)
{
    weir_store *s = begin(state, NULL, 2);
    weir_delivery *d = next(1, 1);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    kit_drive(&a, 1);
    d = next(2, 1);
    stage(d, WEIR_EXPECT_ANY);
    kit_take_away(s, "all", 0);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_ELOST);
    assert_int_equal(kit_version(s, "effect"), -1);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    kit_drive(&a, 2 * S);
    d = next(1, 1);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    end(s);
}

static void C41_a_settle_that_the_store_did_not_take_can_be_asked_again(void **state)
{
    const fault_plan plan = { .verb = FAULT_SETTLE,
                              .action = FAULT_FAIL_BEFORE,
                              .nth = 1,
                              .count = 2,
                              .status = WEIR_EUNAVAILABLE };
    weir_store *s = begin(state, NULL, 1);
    weir_delivery *d = next(1, 1);
    stage(d, WEIR_EXPECT_ANY);
    weir__fault_set(s, &plan);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_EUNAVAILABLE);
    kit_drive(&a, 1 * S);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_EUNAVAILABLE);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(kit_version(s, "effect"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

static void an_unknown_outcome_ends_a_pulled_delivery(void **state)
{
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
    };
    weir_store *s = begin(state, NULL, 2);
    weir_delivery *d = next(1, 1);
    stage(d, WEIR_EXPECT_ANY);
    weir__fault_set(s, &plan);
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_EUNKNOWN);
    kit_drive(&a, 10 * S);
    d = next(2, 1); /* it had happened */
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(kit_version(s, "effect"), 0);
    end(s);
}

static void C42_what_nobody_pulled_is_handed_back(void **state)
{
    weir_store *s = begin(state, NULL, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_LEASED);
    weir__worker_drain(a.worker);
    kit_drive(&a, 1);
    assert_true(weir__worker_idle(a.worker));
    assert_null(weir__worker_next(a.worker));
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_READY);
    assert_int_equal(kit_target_of(s, "all").lost, 0);
    end(s);
}

static void C42_what_was_pulled_may_be_settled_while_it_drains(void **state)
{
    weir_store *s = begin(state, NULL, 2);
    weir_delivery *d = next(1, 1);
    weir__worker_drain(a.worker);
    kit_drive(&a, 1 * S);
    assert_false(weir__worker_idle(a.worker));
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    kit_drive(&a, 1);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(kit_at(s, "all", "one"), 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_READY);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(C33_what_was_pulled_is_settled_with_its_effects),
        TEST(C27_a_pulled_failure_costs_one_retry),
        TEST(C34_a_pulled_delivery_that_loses_a_race_is_delivered_again),
        TEST(C26_what_is_not_settled_by_its_deadline_is_taken_back),
        TEST(C24_a_pulled_delivery_whose_lease_is_anothers_is_lost),
        TEST(C41_a_settle_that_the_store_did_not_take_can_be_asked_again),
        TEST(an_unknown_outcome_ends_a_pulled_delivery),
        TEST(C42_what_nobody_pulled_is_handed_back),
        TEST(C42_what_was_pulled_may_be_settled_while_it_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
