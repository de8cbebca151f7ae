/* slot_lease_test.c - nothing is delivered under a lease that may have ended: functions,
 * projections, deliveries that are pulled. On memory and on SQLite.
 *
 * Method: as slot_test.c. A process that was stopped is one whose clock has moved between two of
 * its steps, or in the middle of a handler or of a call into the store. Another process takes the
 * target meanwhile, or nobody does.
 */
#include "engine/slot_kit_test.h"

#include "base/str.h"

#include <stdio.h>

#define LEASE_US (6 * S)
#define HELD_US  (5 * S) /* a sixth less */

static kit_process a, b;
static recorder one, two;
static size_t told, projected;
static int64_t slow_us; /* so long a call takes after it has happened */
static store_work_ops slow_ops;
static const store_work_ops *true_ops;

static void tell(void *ctx)
{
    (void)ctx;
    told++;
}

static int32_t project(void *ctx, void *native, const weir_event *const *events, size_t count,
                       weir_error *err)
{
    (void)ctx;
    (void)native;
    (void)events;
    (void)err;
    projected += count;
    return WEIR_OK;
}

typedef enum form { FUNCTION, PROJECTION, PULLED } form;

static void declare(kit_process *p, recorder *r, form f)
{
    const weir_lane narrow = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = 1,
                               .event_limit = 10, .lease_us = LEASE_US };
    const weir_reaction more = { .project = f == PROJECTION ? project : NULL };
    kit_lane(p, &narrow);
    kit_handler(p, f == PULLED ? NULL : r, "one", "all", &more);
}

/* Both have the same reaction; three events are routed, and a has the lease. */
static weir_store *begin(void **state, form f)
{
    const worker_options options = { .pull_cb = tell };
    weir_store *s = kit_open(*state != NULL);

    one = (recorder){ .store = s };
    two = (recorder){ .store = s };
    told = 0;
    projected = 0;
    slow_us = 0;
    declare(&a, &one, f);
    declare(&b, &two, f);
    kit_start(&a, s, &options);
    kit_start(&b, s, &options);
    kit_append_many(s, "order-1", "Placed", 3);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

static slot *slot_of(kit_process *p)
{
    return &p->worker->lanes[0].slots[0];
}

static void other_takes_it(void)
{
    (void)kit_steps(&b.worker->lanes[0].leasing);
    assert_int_equal(slot_of(&b)->fence, 2);
}

/* ---- functions ---------------------------------------------------------------------------- */

static void is_stopped(recorder *r, weir_delivery *d)
{
    r->during = NULL;
    assert_false(weir__delivery_interrupted(d));
    kit_mono_us += LEASE_US + 1;
    assert_true(weir__delivery_interrupted(d)); /* although nobody has said so yet */
    if (r->ctx != NULL) {
        other_takes_it();
    }
}

static void C24_no_event_is_begun_under_a_lease_that_has_ended(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    one.during = is_stopped;
    one.ctx = &one;
    (void)kit_steps(&slot_of(&a)->task);
    assert_string_equal(one.seen, "one:1/1 ");
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    assert_int_equal(kit_count(&a, METRIC_STALE), 1);
    kit_drive(&b, 1);
    assert_string_equal(two.seen, "one:1/1 one:2/1 one:3/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 3);
    end(s);
}

static void C24_a_lease_that_ended_and_that_nobody_took_is_renewed_first(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    one.during = is_stopped;
    const uint64_t before = weir__fault_calls(s, FAULT_EXTEND);
    kit_drive(&a, 1);
    assert_int_equal(weir__fault_calls(s, FAULT_EXTEND), before + 1);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:3/1 ");
    assert_int_equal(kit_target_of(s, "all").fence, 1);
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    end(s);
}

static void is_suspended(recorder *r, weir_delivery *d)
{
    (void)d;
    r->during = NULL;
    kit_suspended_us += LEASE_US + 1;
    other_takes_it();
}

static void C24_the_time_in_which_the_machine_is_suspended_counts(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    one.during = is_suspended;
    (void)kit_steps(&slot_of(&a)->task);
    assert_string_equal(one.seen, "one:1/1 ");
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    end(s);
}

static void fail_once(recorder *r, const char *why)
{
    r->fail_event = 1;
    r->fail_times = 1;
    r->outcome = WEIR_RETRY;
    r->why = why;
}

static void is_stopped_and_fails(recorder *r, weir_delivery *d)
{
    is_stopped(r, d);
    fail_once(r, "the lease was about to end");
}

static void a_handler_that_gives_up_when_its_lease_ends_pays_nothing(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    one.during = is_stopped_and_fails;
    kit_drive(&a, 1);
    assert_string_equal(one.seen, "one:1/1 one:1/1 one:2/1 one:3/1 ");
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    end(s);
}

static void fails_past_its_deadline(recorder *r, weir_delivery *d)
{
    (void)d;
    r->during = NULL;
    kit_mono_us += 301 * S; /* it has five minutes */
    fail_once(r, "too late");
}

static void a_handler_that_fails_past_its_deadline_pays(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    one.during = fails_past_its_deadline;
    (void)kit_steps(&slot_of(&a)->task);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 1);
    assert_int_equal(kit_retries(s, "all", "one"), 1);
    end(s);
}

/* ---- when a lease ends -------------------------------------------------------------------- */

static weir_status slow_lease(weir_store *s, store_settle *const *settles, size_t count,
                              const store_lease_request *request, store_lease_list *out,
                              weir_error *err)
{
    const weir_status status = true_ops->turn(s, settles, count, request, out, err);
    kit_mono_us += count == 0 ? slow_us : 0;
    return status;
}

static weir_status slow_extend(weir_store *s, int64_t lease_us, store_fenced *items, size_t count,
                               weir_error *err)
{
    const weir_status status = true_ops->extend(s, lease_us, items, count, err);
    kit_mono_us += lease_us > 0 ? slow_us : 0;
    return status;
}

static weir_status slow_settle(weir_store *s, store_settle *settle, weir_error *err)
{
    const weir_status status = true_ops->settle(s, settle, err);
    kit_mono_us += slow_us;
    return status;
}

static void make_slow(weir_store *s)
{
    true_ops = s->work;
    slow_ops = *s->work;
    slow_ops.turn = slow_lease;
    slow_ops.extend = slow_extend;
    slow_ops.settle = slow_settle;
    s->work = &slow_ops;
}

static int64_t held_for_us(void)
{
    return slot_of(&a)->held_until_us - (kit_mono_us + kit_suspended_us);
}

static void C24_a_lease_counts_from_before_it_was_asked_for(void **state)
{
    weir_store *s = kit_open(*state != NULL);
    one = (recorder){ .store = s };
    make_slow(s);
    slow_us = 2 * S;
    declare(&a, &one, FUNCTION);
    kit_start(&a, s, NULL);
    kit_append_many(s, "order-1", "Placed", 3);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    assert_int_equal(held_for_us(), HELD_US - slow_us);
    /* Whatever the store says about its end: its clock is not ours. */
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_LEASED);
    kit_stop(&a);
    kit_close(s);
}

static void C24_a_renewal_counts_from_before_it_was_asked_for(void **state)
{
    weir_store *s = begin(state, FUNCTION);
    task *const renewing = &a.worker->lanes[0].renewing;
    make_slow(s);
    (void)kit_steps(renewing);
    kit_mono_us += 2 * S; /* a third of it */
    slow_us = 1 * S;
    (void)renewing->step(renewing);
    assert_int_equal(held_for_us(), HELD_US - slow_us);
    /* A renewal that did not happen moves nothing. */
    const fault_plan plan = {
        .verb = FAULT_EXTEND, .action = FAULT_FAIL_BEFORE, .nth = 1, .status = WEIR_EUNAVAILABLE
    };
    kit_mono_us += 2 * S;
    slow_us = 0;
    weir__fault_set(s, &plan);
    (void)renewing->step(renewing);
    assert_int_equal(weir__fault_hits(s), 1);
    assert_int_equal(held_for_us(), HELD_US - 3 * S);
    end(s);
}

static void C24_a_lease_that_is_kept_counts_from_before_its_settle(void **state)
{
    weir_store *s = begin(state, PULLED);
    make_slow(s);
    (void)kit_steps(&slot_of(&a)->task);
    weir_delivery *d = weir__worker_next(a.worker);
    assert_non_null(d);
    kit_mono_us += 2 * S;
    slow_us = 1 * S;
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    assert_int_equal(held_for_us(), HELD_US - slow_us);
    slow_us = 0;
    end(s);
}

/* ---- projections -------------------------------------------------------------------------- */

static void C24_no_projection_is_begun_under_a_lease_that_has_ended(void **state)
{
    weir_store *s = begin(state, PROJECTION);
    task *const t = &slot_of(&a)->task;
    (void)t->step(t); /* the next step settles, and projects in it */
    kit_mono_us += LEASE_US + 1;
    other_takes_it();
    (void)kit_steps(t);
    assert_int_equal(projected, 0);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    kit_drive(&b, 1);
    assert_int_equal(projected, 3);
    assert_int_equal(kit_at(s, "all", "one"), 3);
    end(s);
}

static void a_projection_whose_lease_nobody_took_is_done_after_it_was_renewed(void **state)
{
    weir_store *s = begin(state, PROJECTION);
    task *const t = &slot_of(&a)->task;
    (void)t->step(t);
    kit_mono_us += LEASE_US + 1;
    const uint64_t before = weir__fault_calls(s, FAULT_EXTEND);
    (void)t->step(t);
    assert_int_equal(projected, 0);
    (void)kit_steps(t);
    assert_int_equal(weir__fault_calls(s, FAULT_EXTEND), before + 1);
    assert_int_equal(projected, 3);
    kit_drive(&a, 1);
    assert_int_equal(kit_at(s, "all", "one"), 3);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    end(s);
}

/* ---- pulled ------------------------------------------------------------------------------- */

static void C24_nothing_is_pulled_under_a_lease_that_has_ended(void **state)
{
    weir_store *s = begin(state, PULLED);
    (void)kit_steps(&slot_of(&a)->task);
    assert_int_equal(told, 1);
    kit_mono_us += LEASE_US + 1;
    other_takes_it();
    assert_null(weir__worker_next(a.worker));
    kit_drive(&a, 1);
    assert_null(weir__worker_next(a.worker));
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    end(s);
}

static void what_was_passed_over_is_offered_again_when_its_lease_is_renewed(void **state)
{
    weir_store *s = begin(state, PULLED);
    (void)kit_steps(&slot_of(&a)->task);
    kit_mono_us += LEASE_US + 1;
    assert_null(weir__worker_next(a.worker));
    assert_true(kit_woken(&a, &slot_of(&a)->task));
    (void)kit_steps(&slot_of(&a)->task);
    assert_int_equal(told, 2); /* whoever waits for it is told once more */
    weir_delivery *d = weir__worker_next(a.worker);
    assert_non_null(d);
    assert_int_equal(d->fence, 1);
    assert_false(weir__delivery_interrupted(d));
    kit_mono_us += HELD_US;
    assert_true(weir__delivery_interrupted(d));
    (void)kit_steps(&a.worker->lanes[0].renewing);
    kit_mono_us += 2 * S;
    (void)kit_steps(&a.worker->lanes[0].renewing);
    assert_false(weir__delivery_interrupted(d)); /* it follows the renewal */
    assert_int_equal(weir__worker_settle(a.worker, d, WEIR_DONE, NULL), WEIR_OK);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(C24_no_event_is_begun_under_a_lease_that_has_ended),
        TEST(C24_a_lease_that_ended_and_that_nobody_took_is_renewed_first),
        TEST(C24_the_time_in_which_the_machine_is_suspended_counts),
        TEST(a_handler_that_gives_up_when_its_lease_ends_pays_nothing),
        TEST(a_handler_that_fails_past_its_deadline_pays),
        TEST(C24_a_lease_counts_from_before_it_was_asked_for),
        TEST(C24_a_renewal_counts_from_before_it_was_asked_for),
        TEST(C24_a_lease_that_is_kept_counts_from_before_its_settle),
        TEST(C24_no_projection_is_begun_under_a_lease_that_has_ended),
        TEST(a_projection_whose_lease_nobody_took_is_done_after_it_was_renewed),
        TEST(C24_nothing_is_pulled_under_a_lease_that_has_ended),
        TEST(what_was_passed_over_is_offered_again_when_its_lease_is_renewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
