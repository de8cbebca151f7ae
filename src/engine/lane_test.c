/* lane_test.c - leasing for free slots, the shares of leading and lagging targets, keeping a
 * target, renewing, and handing back. On memory and on SQLite.
 *
 * Method: as slot_test.c. A handler stands for a long time by moving the clock itself, and lets the
 * renewal run meanwhile.
 */
#include "engine/slot_kit_test.h"

#include "base/str.h"
#include "engine/batch.h"

#include <stdio.h>

static kit_process a, b;
static recorder one, two;

static weir_store *begin(void **state)
{
    weir_store *s = kit_open(*state != NULL);
    one = (recorder){ .store = s };
    two = (recorder){ .store = s };
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static void with_lane(int32_t threads, int32_t event_limit)
{
    const weir_lane narrow = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = threads,
                               .event_limit = event_limit, .lease_us = 6 * S };
    kit_lane(&a, &narrow);
}

static void append(weir_store *s, const char *stream, size_t count)
{
    kit_append_many(s, stream, "Placed", count);
}

/* ---- shares ------------------------------------------------------------------------------- */

static void C22_one_slot_serves_leading_lagging_and_reserve_in_turn(void **state)
{
    lane_shares shares = { 0 };
    size_t leading = 0, reserve = 0;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        const lane_split split = weir__lane_split(&shares, 0.2, 1);
        assert_in_range(split.leading + split.reserve, 0, 1);
        leading += split.leading;
        reserve += split.reserve;
    }
    assert_in_range(leading, 199, 201);
    assert_in_range(reserve, 199, 201); /* a quarter of the 800 others */
}

static void C22_four_lagging_slots_have_one_in_reserve(void **state)
{
    lane_shares shares = { 0 };
    (void)state;
    for (int i = 0; i < 20; i++) {
        const lane_split split = weir__lane_split(&shares, 0.2, 5);
        assert_int_equal(split.leading, 1);
        assert_int_equal(split.reserve, 1);
    }
}

static store_work_ops watched_ops; /* of the store under test, but for turn */
static const store_work_ops *true_ops;
static size_t leading_given[8], given_count, vain_count;

static weir_status turn_and_note(weir_store *s, store_settle *const *settles, size_t count,
                                 const store_lease_request *request, store_lease_list *out,
                                 weir_error *err)
{
    const weir_status status = true_ops->turn(s, settles, count, request, out, err);
    if (count == 0 && status == WEIR_OK && out->leases_count > 0 && given_count < 8) {
        leading_given[given_count++] = request->leading;
    }
    vain_count += status == WEIR_OK && out->leases_count == 0;
    return status;
}

static void C22_a_share_that_nobody_had_is_still_due(void **state)
{
    weir_store *s = begin(state);
    true_ops = s->work;
    watched_ops = *s->work;
    watched_ops.turn = turn_and_note;
    s->work = &watched_ops;
    given_count = 0;
    vain_count = 0;
    with_lane(1, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    for (size_t i = 0; i < 4; i++) {
        append(s, "order-1", 1);
        (void)kit_route(&a);
        (void)kit_steps(&a.worker->lanes[0].leasing);
        (void)kit_steps(&a.worker->lanes[0].slots[0].task);
        (void)kit_steps(&a.worker->lanes[0].leasing); /* nothing is there */
        assert_int_equal(given_count, i + 1);
        assert_int_equal(vain_count, i + 1);
        /* One slot, half of it for those who lead: each second time, whatever came in between. */
        assert_int_equal(leading_given[i], i % 2);
    }
    end(s);
}

static void the_shares_follow_the_work_within_their_bounds(void **state)
{
    lane_shares shares = { 0 };
    double share = 0;
    (void)state;
    assert_true(weir__lane_seen(&shares, true, 1) == 0.5); /* nothing is known of the others */
    for (int i = 0; i < 100; i++) {
        (void)weir__lane_seen(&shares, true, 1);
        share = weir__lane_seen(&shares, false, 10);
    }
    assert_true(share == 0.2); /* those that lag have the work */
    for (int i = 0; i < 100; i++) {
        (void)weir__lane_seen(&shares, false, 1);
        share = weir__lane_seen(&shares, true, 10);
    }
    assert_true(share == 0.8);
    for (int i = 0; i < 100; i++) {
        (void)weir__lane_seen(&shares, false, 10);
        share = weir__lane_seen(&shares, true, 10);
    }
    assert_true(share > 0.49 && share < 0.51);
}

/* ---- leasing ------------------------------------------------------------------------------ */

static void leases_as_many_as_slots_are_free_and_fetches_once(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    append(s, "order-3", 1);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 2);
    assert_int_equal(weir__fault_calls(s, FAULT_FETCH), 1);
    assert_int_equal(weir__fault_calls(s, FAULT_LEASE), 1);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 3);
    assert_int_equal(kit_logged(&a, "0 leased target=order-"), 3);
    end(s);
}

/* ---- turns -------------------------------------------------------------------------------- */

static void what_is_finished_is_settled_with_the_next_lease(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    append(s, "order-3", 1);
    append(s, "order-4", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[0].task);
    (void)kit_steps(&l->slots[1].task);
    assert_int_equal(one.calls, 2);
    assert_false(weir__lane_idle(l));
    assert_true(kit_woken(&a, &l->leasing));
    (void)kit_steps(&l->leasing);
    assert_int_equal(weir__fault_calls(s, FAULT_TURN), 1);
    assert_int_equal(weir__fault_calls(s, FAULT_LEASE), 1);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 2);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 4);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 4);
    assert_int_equal(weir__fault_calls(s, FAULT_SETTLE), 0);
    end(s);
}

static void slots_that_began_together_are_waited_for_a_moment(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    append(s, "order-3", 1);
    append(s, "order-4", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    const int64_t begun_us = kit_mono_us;
    (void)kit_steps(&l->slots[1].task);
    assert_int_equal(kit_steps(&l->leasing), begun_us + LANE_TOGETHER_US);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 0);
    (void)kit_steps(&l->slots[0].task);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 2);
    assert_int_equal(weir__fault_calls(s, FAULT_TURN), 1);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 4);
    end(s);
}

static void a_turn_does_not_wait_for_a_slot_that_runs(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    append(s, "order-3", 1);
    append(s, "order-4", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[1].task);
    kit_mono_us += LANE_TOGETHER_US;
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 3);
    /* The one that still runs began in another round: nobody waits for it at all. */
    (void)kit_steps(&l->slots[1].task);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 2);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 4);
    end(s);
}

/* With a slot that is free, what was routed does not wait either. */
static void a_turn_does_not_wait_while_a_slot_is_free(void **state)
{
    weir_store *s = begin(state);
    with_lane(3, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[1].task);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    kit_drive(&a, 1);
    end(s);
}

static void hints_in_vain_are_followed_less_and_less_often(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    kit_mono_us += S; /* that was long ago */
    const size_t before = weir__fault_calls(s, FAULT_LEASE);
    /* For a second somebody elsewhere settles something every 100 us. */
    for (size_t i = 0; i < 10000; i++) {
        weir__lane_hint(l);
        (void)kit_steps(&l->leasing);
        kit_mono_us += 100;
    }
    const size_t hinted = weir__fault_calls(s, FAULT_LEASE) - before;
    assert_in_range(hinted, S / LANE_VAIN_US_MAX, S / LANE_VAIN_US_MAX + 6);
    /* What is known to be there does not wait. */
    append(s, "order-1", 1);
    (void)kit_route(&a);
    assert_true(kit_woken(&a, &l->leasing));
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 1);
    kit_drive(&a, 1);
    /* Nor does a hint, after one that was not in vain, or a while later. */
    const size_t then = weir__fault_calls(s, FAULT_LEASE);
    kit_mono_us += 2 * LANE_VAIN_PAST_US;
    weir__lane_hint(l);
    (void)kit_steps(&l->leasing);
    weir__lane_hint(l);
    (void)kit_steps(&l->leasing);
    assert_int_equal(weir__fault_calls(s, FAULT_LEASE) - then, 2);
    end(s);
}

/* The hint that comes while hints wait is not forgotten. */
static void a_hint_that_waits_is_followed_in_time(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_handler(&b, &two, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    (void)kit_route(&a);
    lane *l = &b.worker->lanes[0];
    int64_t again_us = TASK_WAIT;
    for (size_t i = 0; i < 100 && again_us == TASK_WAIT; i++) {
        weir__lane_hint(l);
        again_us = kit_steps(&l->leasing);
    }
    assert_int_not_equal(again_us, TASK_WAIT);
    assert_in_range(again_us - kit_mono_us, 1, LANE_VAIN_US_MAX);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    weir__lane_hint(l);
    assert_int_equal(kit_steps(&l->leasing), again_us);
    kit_mono_us = again_us;
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&b, METRIC_LEASED), 1);
    kit_drive(&b, 1);
    kit_stop(&b);
    end(s);
}

/* Its wake-up finds the lane in the middle of a round, and is the only one. */
static void what_finishes_while_others_are_fetched_is_settled(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    lane *l = &a.worker->lanes[0];
    append(s, "order-1", 1);
    (void)kit_route(&a);
    (void)kit_steps(&l->leasing);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    (void)l->leasing.step(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 2);
    (void)kit_steps(&l->slots[0].task);
    assert_int_equal(one.calls, 1);
    kit_mono_us = kit_steps(&l->leasing); /* the other one has just begun */
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    kit_drive(&a, 1);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 2);
    end(s);
}

/* Nobody wakes the lane a second time, and it has a slot that is free. */
static void what_is_routed_while_others_are_fetched_is_leased(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    lane *l = &a.worker->lanes[0];
    append(s, "order-1", 1);
    (void)kit_route(&a);
    (void)l->leasing.step(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 1);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 2);
    end(s);
}

/* In every turn it is decided anew who is next. */
static void a_target_is_let_go_while_others_wait(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 2);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 4);
    append(s, "order-2", 4);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 8);
    assert_int_equal(kit_target_of(s, "order-1").fence, 2);
    assert_int_equal(kit_target_of(s, "order-2").fence, 2);
    end(s);
}

static void C41_a_turn_that_did_not_happen_is_tried_again(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_TURN, .action = FAULT_FAIL_BEFORE, .nth = 1, .count = 6, .status = WEIR_EBUSY
    };
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    weir__fault_set(s, &plan);
    kit_drive(&a, 60 * S);
    assert_int_equal(weir__fault_hits(s), 6);
    assert_int_equal(one.calls, 2);                      /* handlers are not run again for that */
    assert_true(weir__fault_calls(s, FAULT_EXTEND) > 0); /* meanwhile nobody else gets it */
    assert_int_equal(kit_at(s, "order-1", "one"), 1);
    assert_int_equal(kit_at(s, "order-2", "one"), 2);
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    end(s);
}

static void turn_unknown(void **state, fault_action action, size_t calls)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_TURN, .action = action, .nth = 1, .status = WEIR_EUNKNOWN
    };
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    weir__fault_set(s, &plan);
    kit_drive(&a, 60 * S);
    assert_int_equal(weir__fault_hits(s), 1);
    assert_int_equal(one.calls, calls);
    assert_int_equal(kit_at(s, "order-1", "one"), 1);
    assert_int_equal(kit_at(s, "order-2", "one"), 2);
    assert_int_equal(kit_target_of(s, "order-1").lost, 0);
    assert_int_equal(kit_retries(s, "order-1", "one"), 0);
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    end(s);
}

static void C24_what_an_unknown_turn_settled_is_not_handled_again(void **state)
{
    turn_unknown(state, FAULT_FAIL_AFTER, 2);
}

static void C24_what_an_unknown_turn_did_not_settle_is_handled_again(void **state)
{
    turn_unknown(state, FAULT_FAIL_BEFORE, 4);
}

/* Taken away after its handler ended: one of a turn is refused, the others are settled. */
static void C24_one_of_a_turn_that_was_lost_is_dropped_and_counted(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[0].task);
    (void)kit_steps(&l->slots[1].task);
    kit_take_away(s, "order-2", 0);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    assert_int_equal(kit_at(s, "order-1", "one"), 1);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 3);
    assert_int_equal(kit_at(s, "order-2", "one"), 2);
    end(s);
}

static weir_status turn_of_distinct(weir_store *s, store_settle *const *settles, size_t count,
                                    const store_lease_request *request, store_lease_list *out,
                                    weir_error *err)
{
    for (size_t i = 1; i < count; i++) {
        assert_int_not_equal(settles[i]->target, settles[0]->target);
    }
    return true_ops->turn(s, settles, count, request, out, err);
}

/* Taken away from one slot, leased by another of the same lane, and both are finished. */
static void C24_a_turn_has_one_settle_of_a_target(void **state)
{
    weir_store *s = begin(state);
    true_ops = s->work;
    watched_ops = *s->work;
    watched_ops.turn = turn_of_distinct;
    s->work = &watched_ops;
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Other", "{}"); /* so that there is something to reset */
    append(s, "order-1", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    kit_take_away(s, "order-1", 0);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 2);
    (void)kit_steps(&l->slots[0].task);
    (void)kit_steps(&l->slots[1].task);
    assert_int_equal(one.calls, 2);
    (void)kit_steps(&l->leasing);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    assert_int_equal(kit_at(s, "order-1", "one"), 2);
    end(s);
}

/* The renewal is refused before the turn comes: it is counted once, and not settled. */
static void C24_a_finished_batch_whose_renewal_is_refused_is_dropped(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Other", "{}"); /* so that there is something to reset */
    append(s, "order-1", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->renewing);
    (void)kit_steps(&l->slots[0].task);
    kit_take_away(s, "order-1", 0);
    kit_mono_us += 3 * S;
    (void)kit_steps(&l->renewing);
    (void)kit_steps(&l->slots[0].task);
    kit_drive(&a, 1);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    assert_int_equal(one.calls, 2);
    assert_int_equal(kit_at(s, "order-1", "one"), 2);
    end(s);
}

static void C42_what_is_finished_is_settled_while_it_drains(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[0].task);
    weir__worker_drain(a.worker);
    kit_drive(&a, 1);
    assert_true(weir__lane_idle(l));
    assert_int_equal(kit_at(s, "order-1", "one"), 1);
    assert_int_equal(kit_count(&a, METRIC_LEASED), 1);
    end(s);
}

/* ---- keeping: what has effects is settled by its slot ---------------------------------------- */

/* Ten batches of one target take so many leases. */
static void leases_for_ten_batches(void **state, int32_t threads, int64_t leases)
{
    weir_store *s = begin(state);
    with_lane(threads, 2);
    one.effect = "effect";
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 20);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 20);
    assert_int_equal(kit_target_of(s, "order-1").fence, leases);
    end(s);
}

static void a_target_is_kept_for_eight_batches_while_nobody_waits(void **state)
{
    leases_for_ten_batches(state, 2, 2); /* 8 batches under one lease, then a second lease */
}

static void a_target_that_comes_back_at_once_is_kept(void **state)
{
    /* One batch, because others might have waited; 8 batches; the rest. */
    leases_for_ten_batches(state, 1, 3);
}

static void a_target_with_effects_is_let_go_while_others_wait(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 2);
    one.effect = "effect";
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 4);
    append(s, "order-2", 4);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    (void)kit_steps(&a.worker->lanes[0].slots[0].task);
    assert_int_equal(one.calls, 2);
    assert_true(weir__lane_idle(&a.worker->lanes[0]));
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 8);
    assert_int_equal(kit_target_of(s, "order-1").fence, 2);
    assert_int_equal(kit_target_of(s, "order-2").fence, 2);
    end(s);
}

/* While the first one does not come back, another target is leased, handled and settled. */
static void hangs(recorder *r, weir_delivery *d)
{
    lane *l = &r->process->worker->lanes[0];
    size_t *times = r->ctx;
    if (*times == 0) {
        return;
    }
    (*times)--;
    assert_true(weir__str_equal(d->target, weir__str("order-1")));
    append(r->store, "order-2", 3);
    (void)kit_route(r->process);
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->slots[1].task);
    (void)kit_steps(&l->leasing);
    assert_int_equal(r->calls, 4);
    assert_int_equal(kit_at(r->store, "order-2", "one"), 4);
    assert_int_equal(kit_at(r->store, "order-1", "one"), 0);
}

static void C44_a_handler_that_hangs_stops_no_other_target(void **state)
{
    weir_store *s = begin(state);
    size_t times = 1;
    with_lane(2, 10);
    one.during = hangs;
    one.ctx = &times;
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    assert_int_equal(times, 0);
    assert_int_equal(one.calls, 4);
    assert_int_equal(kit_at(s, "order-1", "one"), 1);
    end(s);
}

static void C22_every_reaction_that_is_behind_has_its_share_of_a_batch(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 4);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &two, "two", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 5);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    const batch *first = a.worker->lanes[0].slots[0].batch;
    assert_int_equal(first->events_count, 4);
    assert_false(first->parts[0].exhausted);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 5);
    assert_int_equal(two.calls, 5);
    end(s);
}

static void reactions_of_an_old_definition_are_not_leased(void **state)
{
    weir_store *s = begin(state);
    const weir_str names[] = { weir__str("Placed"), weir__str("Moved") };
    const weir_reaction newer = { .on = names, .on_count = 2 };
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    kit_handler(&b, &two, "one", "all", &newer);
    kit_start(&b, s, NULL);
    (void)kit_steps(&a.worker->lanes[0].leasing); /* does not know yet: the store does */
    assert_int_equal(kit_count(&a, METRIC_LEASED), 0);
    kit_drive(&b, 2 * S);
    assert_int_equal(one.calls, 0);
    assert_int_equal(two.calls, 1);
    kit_stop(&b);
    end(s);
}

/* ---- renewing ----------------------------------------------------------------------------- */

/* The handler takes 20 s; the renewal runs each second. */
static void takes_long(recorder *r, weir_delivery *d)
{
    (void)d;
    for (int i = 0; i < 20; i++) {
        kit_mono_us += 1 * S;
        (void)kit_steps(&r->process->worker->lanes[0].renewing);
        const kit_target t = kit_target_of(r->store, "all");
        if (r->ctx == NULL) {
            assert_int_equal(t.state, STORE_TARGET_LEASED);
        }
    }
}

static void C26_a_lease_is_renewed_while_its_handler_runs(void **state)
{
    weir_store *s = begin(state);
    with_lane(1, 10);
    one.during = takes_long;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    assert_in_range(weir__fault_calls(s, FAULT_EXTEND), 9, 10); /* each 2 s */
    assert_int_equal(kit_target_of(s, "all").fence, 1);
    end(s);
}

static void C26_a_lease_is_not_renewed_past_the_deadline(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .deadline_us = 5 * S };
    with_lane(1, 10);
    one.during = takes_long;
    one.ctx = &one; /* the lease may end */
    kit_handler(&a, &one, "one", "all", &more);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    assert_int_equal(weir__fault_calls(s, FAULT_EXTEND), 2);
    assert_int_equal(kit_at(s, "all", "one"), 1); /* nobody else took it: the fence decides */
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    end(s);
}

static void loses(recorder *r, weir_delivery *d)
{
    size_t *times = r->ctx;
    if (d->event->id == 2 && *times > 0) {
        (*times)--;
        kit_take_away(r->store, "all", 0);
        assert_false(atomic_load(d->interrupted));
        kit_mono_us += 3 * S;
        (void)kit_steps(&r->process->worker->lanes[0].renewing);
        assert_true(atomic_load(d->interrupted));
    }
}

static void C26_a_renewal_that_is_refused_interrupts_and_is_counted_once(void **state)
{
    weir_store *s = begin(state);
    size_t times = 1;
    with_lane(1, 10);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    one.during = loses;
    one.ctx = &times;
    append(s, "order-1", 2);
    kit_drive(&a, 10 * S);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    /* The third event of the batch that was lost is not run by the loser. */
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:1/1 one:2/1 one:3/1 ");
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    end(s);
}

static void what_waits_for_the_store_is_renewed_too(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_FETCH, .action = FAULT_FAIL_BEFORE, .nth = 1, .count = 6, .status = WEIR_EBUSY
    };
    with_lane(1, 10);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    weir__fault_set(s, &plan);
    kit_drive(&a, 60 * S);
    assert_int_equal(weir__fault_hits(s), 6);
    assert_true(weir__fault_calls(s, FAULT_EXTEND) > 0);
    assert_int_equal(one.calls, 1);
    assert_int_equal(kit_target_of(s, "all").fence, 1);
    end(s);
}

static void C24_a_settle_that_had_happened_is_not_a_lost_lease(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
    };
    with_lane(1, 10);
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    weir__fault_set(s, &plan);
    lane *l = &a.worker->lanes[0];
    (void)kit_steps(&l->leasing);
    (void)kit_steps(&l->renewing);
    (void)kit_steps(&l->slots[0].task); /* settled, and nobody knows; gives it back later */
    assert_false(weir__lane_idle(l));
    kit_mono_us += 3 * S;
    (void)kit_steps(&l->renewing);
    assert_int_equal(weir__fault_calls(s, FAULT_EXTEND), 1);
    kit_drive(&a, 1);
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    assert_int_equal(one.calls, 1);
    end(s);
}

static void C41_a_lane_that_is_woken_keeps_its_backoff(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = { .verb = FAULT_LEASE,
                              .action = FAULT_FAIL_BEFORE,
                              .nth = 1,
                              .count = 2,
                              .status = WEIR_EUNAVAILABLE };
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    weir__fault_set(s, &plan);
    for (int i = 0; i < 5; i++) {
        (void)kit_steps(&a.worker->lanes[0].leasing);
    }
    assert_int_equal(weir__fault_calls(s, FAULT_LEASE), 1);
    kit_drive(&a, 1 * S);
    assert_int_equal(weir__fault_hits(s), 2);
    assert_int_equal(one.calls, 1);
    end(s);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void C42_what_was_leased_and_not_started_is_handed_back(void **state)
{
    weir_store *s = begin(state);
    with_lane(2, 10);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    append(s, "order-2", 1);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    assert_int_equal(kit_target_of(s, "order-1").state, STORE_TARGET_LEASED);
    assert_false(weir__lane_idle(&a.worker->lanes[0]));
    weir__worker_drain(a.worker);
    kit_drive(&a, 1);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(one.calls, 0);
    assert_int_equal(kit_target_of(s, "order-1").state, STORE_TARGET_READY);
    assert_int_equal(kit_target_of(s, "order-2").lost, 0);
    assert_int_equal(kit_count(&a, METRIC_RELEASED), 2);
    end(s);
}

static void C42_a_lease_that_was_not_fetched_yet_is_handed_back(void **state)
{
    weir_store *s = begin(state);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    (void)a.worker->lanes[0].leasing.step(&a.worker->lanes[0].leasing);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_LEASED);
    weir__worker_drain(a.worker);
    kit_drive(&a, 1);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_READY);
    end(s);
}

static void drains(recorder *r, weir_delivery *d)
{
    if (d->event->id == 2) {
        weir__worker_drain(r->process->worker);
    }
}

static void C42_a_batch_ends_with_the_event_that_runs(void **state)
{
    weir_store *s = begin(state);
    one.during = drains;
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 5);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 2);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_version(s, "effect"), 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_READY);
    end(s);
}

static void C26_a_worker_that_dies_costs_a_lost_lease_and_no_retry(void **state)
{
    weir_store *s = begin(state);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    kit_handler(&b, &two, "one", "all", NULL);
    kit_start(&b, s, NULL);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    kit_abandon(&a);
    kit_drive(&b, 4 * S);
    assert_int_equal(two.calls, 0);
    kit_drive(&b, 3 * S); /* the lease of 5 s has ended, and somebody looked */
    assert_string_equal(two.seen, "one:1/1 ");
    kit_check(s);
    kit_stop(&b);
    kit_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C22_one_slot_serves_leading_lagging_and_reserve_in_turn),
        cmocka_unit_test(C22_four_lagging_slots_have_one_in_reserve),
        cmocka_unit_test(the_shares_follow_the_work_within_their_bounds),
        TEST(C22_a_share_that_nobody_had_is_still_due),
        TEST(leases_as_many_as_slots_are_free_and_fetches_once),
        TEST(a_target_is_kept_for_eight_batches_while_nobody_waits),
        TEST(a_target_that_comes_back_at_once_is_kept),
        TEST(what_is_finished_is_settled_with_the_next_lease),
        TEST(slots_that_began_together_are_waited_for_a_moment),
        TEST(a_turn_does_not_wait_while_a_slot_is_free),
        TEST(hints_in_vain_are_followed_less_and_less_often),
        TEST(a_hint_that_waits_is_followed_in_time),
        TEST(a_turn_does_not_wait_for_a_slot_that_runs),
        TEST(what_finishes_while_others_are_fetched_is_settled),
        TEST(what_is_routed_while_others_are_fetched_is_leased),
        TEST(a_target_is_let_go_while_others_wait),
        TEST(C44_a_handler_that_hangs_stops_no_other_target),
        TEST(C41_a_turn_that_did_not_happen_is_tried_again),
        TEST(C24_what_an_unknown_turn_settled_is_not_handled_again),
        TEST(C24_what_an_unknown_turn_did_not_settle_is_handled_again),
        TEST(C24_one_of_a_turn_that_was_lost_is_dropped_and_counted),
        TEST(C24_a_turn_has_one_settle_of_a_target),
        TEST(C24_a_finished_batch_whose_renewal_is_refused_is_dropped),
        TEST(C42_what_is_finished_is_settled_while_it_drains),
        TEST(a_target_with_effects_is_let_go_while_others_wait),
        TEST(C22_every_reaction_that_is_behind_has_its_share_of_a_batch),
        TEST(reactions_of_an_old_definition_are_not_leased),
        TEST(C26_a_lease_is_renewed_while_its_handler_runs),
        TEST(C26_a_lease_is_not_renewed_past_the_deadline),
        TEST(C26_a_renewal_that_is_refused_interrupts_and_is_counted_once),
        TEST(what_waits_for_the_store_is_renewed_too),
        TEST(C24_a_settle_that_had_happened_is_not_a_lost_lease),
        TEST(C41_a_lane_that_is_woken_keeps_its_backoff),
        TEST(C42_what_was_leased_and_not_started_is_handed_back),
        TEST(C42_a_lease_that_was_not_fetched_yet_is_handed_back),
        TEST(C42_a_batch_ends_with_the_event_that_runs),
        TEST(C26_a_worker_that_dies_costs_a_lost_lease_and_no_retry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
