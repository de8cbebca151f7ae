/* operating.c - C29: what an operator can do to targets and lanes, and what it leaves alone. */
#include "kit.h"

#include <stdio.h>

enum { SECOND = 1000 * 1000 };

/* Reaction "r" (rule), target "s" with `count` events in ids; one second between them. */
static store_reaction target_with(kit *k, store_rule rule, size_t count, int64_t *ids)
{
    const store_reaction r = kit_declare(k, "r", "Work", "*", rule);
    for (size_t i = 0; i < count; i++) {
        ids[i] = kit_put(k, "s", "Work");
        kit_advance(k, SECOND);
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    return r;
}

/* Makes the target fail at `event` and blocks or defers it. */
static void fail_at(kit *k, const store_leased *l, int64_t reaction, int64_t event, store_end end)
{
    store_settle settle = kit_settle_of(l, end);
    settle.failure =
        (store_failure){ .reaction = reaction, .event = event, .error = weir__str("broken") };
    settle.until_us = kit_now(k) + 1000 * SECOND;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
}

/* Nothing of a block, a deferral or a failure is left. */
static void is_clean(kit *k, int64_t reaction)
{
    const store_target *t = kit_target(k, "s");
    assert_false(t->blocked);
    assert_int_equal(t->due_us, 0);
    assert_int_equal(t->lost, 0);
    assert_int_equal(t->attempts, 0);
    assert_int_equal(t->event, 0);
    KIT_STR(t->error, "");
    KIT_STR(t->reaction, "");
    assert_int_equal(kit_subscription(k, "s", reaction)->retries, 0);
}

static void C29_unblock_resumes_at_the_watermark(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "s"), 0); /* nothing to unblock */
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_KEEP));
    fail_at(k, &l, r.id, ids[1], STORE_END_BLOCK);
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "s"), 1);
    is_clean(k, r.id);
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].at, ids[0]);
    assert_int_equal(l.watermark, ids[0]);
    /* A backoff is cleared as well. */
    fail_at(k, &l, r.id, ids[1], STORE_END_DEFER);
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "s"), 1);
    is_clean(k, r.id);
    kit_lease_target(k, "lane", "s");
    kit_check(k);
}

static void C29_reset_goes_back_to_the_start(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[2], STORE_END_RELEASE));
    assert_int_equal(kit_operate(k, STORE_RESET, "s"), 1);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, r.since);
    l = kit_lease_target(k, "lane", "s");
    int64_t got[4];
    assert_int_equal(
        kit_fetch(k, l.target, r.id, l.subscriptions[0].at, l.subscriptions[0].mark, got, 4), 3);
    kit_check(k);
}

static void C29_reset_goes_back_to_a_position_or_a_time(void **state)
{
    kit *k = *state;
    int64_t ids[4];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 4, ids);
    const kit_events events = kit_stream(k, "s");
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[3], STORE_END_RELEASE));
    store_operate op = kit_operate_of(k, STORE_RESET, "s");
    op.reset_to = STORE_RESET_POSITION;
    op.position = ids[1]; /* the last that is not handled again */
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[1]);
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 0); /* it is not above it */
    op.position = ids[3];            /* never forwards */
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 0);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[1]);

    l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[3], STORE_END_RELEASE));
    op.reset_to = STORE_RESET_TIME;
    op.time_us = events.events[2].created_us; /* events at or after it */
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    l = kit_lease_target(k, "lane", "s");
    int64_t got[4];
    assert_int_equal(
        kit_fetch(k, l.target, r.id, l.subscriptions[0].at, l.subscriptions[0].mark, got, 4), 2);
    assert_int_equal(got[0], ids[2]);
    kit_check(k);
}

/* Resets "s" to the position, which it is not beyond: it keeps its own, and loses all else. */
static void reset_clears(kit *k, int64_t reaction, int64_t position)
{
    const int64_t at = kit_subscription(k, "s", reaction)->at;
    const int64_t fence = kit_target(k, "s")->fence;
    store_operate op = kit_operate_of(k, STORE_RESET, "s");
    op.reset_to = STORE_RESET_POSITION;
    op.position = position;
    op.dry_run = true;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_target(k, "s")->fence, fence);
    op.dry_run = false;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    is_clean(k, reaction);
    assert_int_equal(kit_subscription(k, "s", reaction)->at, at);
    assert_int_equal(kit_target(k, "s")->fence, fence + 1);
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_READY);
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err)); /* nothing is left to change */
    assert_int_equal(op.changed, 0);
    assert_int_equal(kit_target(k, "s")->fence, fence + 1);
}

static void C29_reset_clears_a_target_that_is_not_beyond_the_position(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    static const store_end ends[] = { STORE_END_BLOCK, STORE_END_DEFER, STORE_END_RELEASE,
                                      STORE_END_KEEP };
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_RELEASE));
    for (size_t i = 0; i < 2 * sizeof ends / sizeof ends[0]; i++) {
        l = kit_lease_target(k, "lane", "s");
        fail_at(k, &l, r.id, ids[1], ends[i / 2]);
        reset_clears(k, r.id, ids[i % 2]); /* where it is, and further on */
        KIT_IS(k, kit_settle(k, &l, r.id, ids[1], STORE_END_RELEASE), WEIR_ELOST);
    }
    kit_lease_target(k, "lane", "s"); /* a lease without any failure */
    reset_clears(k, r.id, ids[0]);
    kit_check(k);
}

static void C29_reset_never_goes_before_the_reaction_began(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "Work");
    const int64_t since = kit_put(k, "s", "Work");
    store_reaction_declaration d = { .name = weir__str("r"),
                                     .source = weir__str("*"),
                                     .rule = STORE_RULE_STREAM,
                                     .rule_text = weir__str("rule"),
                                     .start = STORE_START_NOW };
    store_reaction r;
    KIT_OK(k, kit_declare_with(k, &d, "Work", &r));
    const int64_t id = kit_put(k, "s", "Work");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, id, STORE_END_RELEASE));
    assert_int_equal(kit_operate(k, STORE_RESET, "s"), 1);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, since);
    l = kit_lease_target(k, "lane", "s");
    int64_t got[4];
    assert_int_equal(
        kit_fetch(k, l.target, r.id, l.subscriptions[0].at, l.subscriptions[0].mark, got, 4), 1);
}

static void C29_reset_of_work_rows_routes_them_again(void **state)
{
    kit *k = *state;
    int64_t ids[4];
    const store_reaction r = target_with(k, STORE_RULE_WORK, 4, ids);
    const int64_t other = kit_put(k, "other", "Work");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_lease_list *list = kit_lease(k, "lane", 2);
    assert_int_equal(list->leases_count, 2);
    for (size_t i = 0; i < 2; i++) {
        KIT_OK(k, kit_settle(k, &list->leases[i], r.id, list->leases[i].subscriptions[0].mark,
                             STORE_END_RELEASE));
    }
    const int64_t routed = kit_reaction(k, "r").routed;
    store_operate op = kit_operate_of(k, STORE_RESET, "s");
    op.reset_to = STORE_RESET_POSITION;
    op.position = ids[1];
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[1]);
    assert_int_equal(kit_subscription(k, "s", r.id)->mark, ids[1]);
    assert_int_equal(kit_reaction(k, "r").routed, ids[1]);
    assert_int_equal(kit_reaction(k, "r").reread_to, routed);
    assert_true(kit_nothing_to_lease(k, "lane")); /* until it is routed again */

    const int64_t later = kit_put(k, "other", "Work");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    assert_int_equal(kit_reaction(k, "r").routed, later);
    assert_int_equal(kit_reaction(k, "r").reread_to, 0);
    list = kit_lease(k, "lane", 10);
    assert_int_equal(list->leases_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const store_leased *l = &list->leases[i];
        int64_t got[8];
        const size_t n = kit_fetch(k, l->target, r.id, 0, INT64_MAX, got, 8);
        if (weir__str_equal(l->name, weir__str("s"))) {
            assert_int_equal(n, 2);
            assert_int_equal(got[0], ids[2]);
            assert_int_equal(got[1], ids[3]);
        } else { /* re-reading has not given it what it had handled */
            assert_int_equal(n, 1);
            assert_int_equal(got[0], later);
            assert_true(later > other);
        }
    }
    kit_check(k);
}

static void C29_reset_and_skip_take_the_lease_away(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_KEEP));
    assert_int_equal(kit_operate(k, STORE_RESET, "s"), 1);
    KIT_IS(k, kit_settle(k, &l, r.id, ids[2], STORE_END_RELEASE), WEIR_ELOST);
    assert_int_equal(kit_target(k, "s")->lost, 0); /* uncharged */
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_READY);
    l = kit_lease_target(k, "lane", "s"); /* at once */
    assert_int_equal(l.lost, 0);
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
    KIT_IS(k, kit_settle(k, &l, r.id, ids[2], STORE_END_RELEASE), WEIR_ELOST);
    assert_int_equal(kit_target(k, "s")->lost, 0);
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 0);
}

static void C29_skip_parks_the_event_in_the_way(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    fail_at(k, &l, r.id, ids[0], STORE_END_BLOCK);
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
    is_clean(k, r.id);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0]);
    store_parked_chunk parked = kit_parked(k);
    assert_int_equal(parked.parked_count, 1);
    assert_int_equal(parked.parked[0].event, ids[0]);
    assert_int_equal(parked.parked[0].reaction, r.id);
    KIT_STR(parked.parked[0].error, "broken");
    KIT_STR(parked.parked[0].target, "s");
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].at, ids[0]);
    KIT_OK(k, kit_release(k, &l));
    /* Without an error: the one that is next, whatever lies between. */
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
        parked = kit_parked(k);
        assert_int_equal(parked.parked_count, 1 + i);
        assert_int_equal(parked.parked[i].event, ids[i]);
        KIT_STR(parked.parked[i].error, "skipped by an operator");
    }
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 0); /* no work, nothing to skip */
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_check(k);
}

/* A block may name an event that is not the next one; stepping to it would lose what lies
 * between. */
static void C29_skip_steps_over_nothing(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 3, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    fail_at(k, &l, r.id, ids[2], STORE_END_BLOCK);
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
    const store_parked_chunk parked = kit_parked(k);
    assert_int_equal(parked.parked_count, 1);
    assert_int_equal(parked.parked[0].event, ids[0]);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0]);
    kit_check(k);
}

static void C29_skip_takes_one_of_several_reactions_at_a_time(void **state)
{
    kit *k = *state;
    const store_reaction a = kit_declare(k, "a", "Work", "*", STORE_RULE_STREAM);
    const store_reaction b = kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    const int64_t first = kit_put(k, "s", "Other");
    const int64_t second = kit_put(k, "s", "Work");
    KIT_OK(k, kit_route(k, k->store, "a", "", "lane", 0));
    KIT_OK(k, kit_route(k, k->store, "b", "", "lane", 0));
    static const char *const order[] = { "b1", "a2", "b2" };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
        const store_parked_chunk parked = kit_parked(k);
        assert_int_equal(parked.parked_count, i + 1);
        const store_parked *p = &parked.parked[i];
        assert_int_equal(p->reaction, order[i][0] == 'a' ? a.id : b.id);
        assert_int_equal(p->event, order[i][1] == '1' ? first : second);
    }
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 0);
}

static void C29_prioritize_lets_the_running_batch_finish(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    store_operate op = kit_operate_of(k, STORE_PRIORITIZE, "s");
    op.priority = 0; /* what it is, but now said by an operator */
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 0);
    op.priority = 8;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[1], STORE_END_RELEASE));
    assert_int_equal(kit_target(k, "s")->priority, 8);
}

static void C29_pause_lets_the_running_batch_finish(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, STORE_RULE_STREAM, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    assert_int_equal(kit_operate(k, STORE_PAUSE, "s"), 1);
    assert_int_equal(kit_operate(k, STORE_PAUSE, "s"), 0); /* it is */
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_LEASED);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_RELEASE));
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_PAUSED);
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_operate(k, STORE_RESUME, "s"), 1);
    assert_int_equal(kit_operate(k, STORE_RESUME, "s"), 0);
    kit_lease_target(k, "lane", "s");
}

/* A holder that goes on from batch to batch learns from its settles that it shall not. */
static void C29_a_holder_is_told_of_a_pause_when_it_settles(void **state)
{
    kit *k = *state;
    const weir_str lane = weir__str("lane"), by = weir__str("ann");
    int64_t ids[2];
    bool changed = false;
    target_with(k, STORE_RULE_STREAM, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_KEEP);
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_true(settle.behind);
    assert_int_equal(kit_operate(k, STORE_PAUSE, "s"), 1);
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind);
    assert_int_equal(kit_operate(k, STORE_RESUME, "s"), 1);
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, true, by, &changed, &k->err));
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind);
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, false, by, &changed, &k->err));
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_true(settle.behind);
    assert_true(kit_target(k, "s")->behind);
}

static void C29_pause_and_resume_hold_a_lane(void **state)
{
    kit *k = *state;
    int64_t id;
    target_with(k, STORE_RULE_STREAM, 1, &id);
    const weir_str lane = weir__str("lane");
    const weir_str by = weir__str("ann");
    bool changed = false;
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, true, by, &changed, &k->err));
    assert_true(changed);
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, true, by, &changed, &k->err));
    assert_false(changed);
    KIT_OK(k,
           k->store->work->lane_pause(k->store, weir__str("empty"), true, by, &changed, &k->err));
    assert_true(changed); /* a lane needs no target */
    kit_reopen(k);
    store_lane_list list = { 0 };
    KIT_OK(k, k->store->work->lanes(k->store, &list, &k->err));
    assert_int_equal(list.lanes_count, 2);
    KIT_STR(list.lanes[0].lane, "empty");
    assert_true(list.lanes[0].paused);
    KIT_STR(list.lanes[1].lane, "lane");
    assert_true(list.lanes[1].paused);
    KIT_STR(list.lanes[1].paused_by, "ann");
    assert_int_equal(list.lanes[1].targets, 1);
    weir__arena_free(&list.arena);
    assert_false(kit_target(k, "s")->paused); /* the lane is, not the target */
    assert_true(kit_nothing_to_lease(k, "lane"));
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, false, by, &changed, &k->err));
    assert_true(changed);
    kit_lease_target(k, "lane", "s");
}

/* Six targets: a-1 a-2 b-1 in lane x, b-2 c-1 c-2 in lane y; a-2 and c-1 blocked. */
static void six_targets(kit *k)
{
    static const char *const names[] = { "a-1", "a-2", "b-1", "b-2", "c-1", "c-2" };
    kit_declare(k, "rx", "*", "/^(a|b-1)/", STORE_RULE_STREAM);
    kit_declare(k, "ry", "*", "/^(c|b-2)/", STORE_RULE_STREAM);
    for (size_t i = 0; i < 6; i++) {
        kit_put(k, names[i], "A");
    }
    KIT_OK(k, kit_route(k, k->store, "rx", "", "x", 0));
    KIT_OK(k, kit_route(k, k->store, "ry", "", "y", 0));
    for (size_t lane = 0; lane < 2; lane++) {
        const store_lease_list *list = kit_lease(k, lane == 0 ? "x" : "y", 10);
        assert_int_equal(list->leases_count, 3);
        for (size_t i = 0; i < 3; i++) {
            const store_leased *l = &list->leases[i];
            const store_failure why = { .error = weir__str("x") };
            if (weir__str_equal(l->name, weir__str("a-2")) ||
                weir__str_equal(l->name, weir__str("c-1"))) {
                KIT_OK(k, kit_block(k, l, &why));
            } else {
                KIT_OK(k, kit_release(k, l));
            }
        }
    }
}

/* The names of the targets that are paused, or that a filter lists. */
static const char *target_names(kit *k, const store_target_filter *filter, bool paused_only)
{
    char names[128] = "";
    size_t len = 0;
    store_targets_chunk chunk = { 0 };
    store_targets_query q = { .filter = *filter, .limit = 2 };
    do {
        KIT_OK(k, k->store->work->targets(k->store, &q, &chunk, &k->err));
        assert_true(chunk.targets_count <= 2);
        for (size_t i = 0; i < chunk.targets_count; i++) {
            if (!paused_only || chunk.targets[i].paused) {
                len += (size_t)snprintf(names + len, sizeof names - len, "%.*s ",
                                        (int)chunk.targets[i].name.len, chunk.targets[i].name.ptr);
            }
        }
        q.after = weir__str(kit_text(k, "%.*s", (int)chunk.scanned_to.len,
                                     chunk.scanned_to.ptr == NULL ? "" : chunk.scanned_to.ptr));
    } while (chunk.more);
    weir__arena_free(&chunk.arena);
    return kit_text(k, "%s", names);
}

static void C29_verbs_take_names_or_a_filter_and_answer_with_the_count(void **state)
{
    kit *k = *state;
    six_targets(k);
    store_pattern *b = NULL;
    store_pattern *second = NULL;
    KIT_OK(k, weir__pattern_open(&b, weir__str("b-*"), &k->err));
    KIT_OK(k, weir__pattern_open(&second, weir__str("/2$/"), &k->err));
    const weir_str two[] = { weir__str("c-2"), weir__str("a-1") };
    const struct {
        store_target_filter filter;
        const char *names;
        int64_t count;
    } cases[] = {
        { { 0 }, "a-1 a-2 b-1 b-2 c-1 c-2 ", 6 },
        { { .names = two, .names_count = 2 }, "a-1 c-2 ", 2 },
        { { .match = b }, "b-1 b-2 ", 2 },
        { { .source = second }, "a-2 b-2 c-2 ", 3 },
        { { .lane = weir__str("x") }, "a-1 a-2 b-1 ", 3 },
        { { .blocked = true }, "a-2 c-1 ", 2 },
        { { .lane = weir__str("y"), .blocked = true }, "c-1 ", 1 },
        { { .lane = weir__str("y"), .match = b, .source = second }, "b-2 ", 1 },
        { { .lane = weir__str("z") }, "", 0 },
    };
    const store_target_filter all = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(target_names(k, &cases[i].filter, false), cases[i].names);
        store_operate op = { .verb = STORE_PAUSE,
                             .filter = cases[i].filter,
                             .dry_run = true,
                             .by = weir__str("me"),
                             .changed = -1 };
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err)); /* says, does not do */
        assert_int_equal(op.changed, cases[i].count);
        assert_string_equal(target_names(k, &all, true), "");
        op.dry_run = false;
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        assert_int_equal(op.changed, cases[i].count);
        assert_string_equal(target_names(k, &all, true), cases[i].names);
        op.verb = STORE_RESUME;
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        assert_int_equal(op.changed, cases[i].count);
    }
    weir__pattern_close(b);
    weir__pattern_close(second);
    kit_check(k);
}

static void C29_a_name_that_is_no_target_changes_nothing(void **state)
{
    kit *k = *state;
    six_targets(k);
    const weir_str names[] = { weir__str("a-1"), weir__str("nobody") };
    for (store_verb verb = STORE_UNBLOCK; verb <= STORE_RESUME; verb++) {
        store_operate op = { .verb = verb,
                             .filter = { .names = names, .names_count = 2 },
                             .by = weir__str("me"),
                             .priority = 4 };
        KIT_IS(k, k->store->work->operate(k->store, &op, &k->err), WEIR_ENOTFOUND);
        assert_non_null(strstr(k->err.message, "nobody"));
    }
    assert_int_equal(kit_target(k, "a-1")->priority, 0);
    assert_false(kit_target(k, "a-1")->paused);
    assert_int_equal(kit_target(k, "a-1")->fence, 1);
}

static void C29_a_dry_run_of_any_verb_changes_nothing(void **state)
{
    kit *k = *state;
    six_targets(k);
    static const int64_t counts[] = {
        [STORE_UNBLOCK] = 2,    [STORE_RESET] = 5, [STORE_SKIP] = 6,
        [STORE_PRIORITIZE] = 6, [STORE_PAUSE] = 6, [STORE_RESUME] = 0
    };
    for (store_verb verb = STORE_UNBLOCK; verb <= STORE_RESUME; verb++) {
        store_operate op = { .verb = verb, .dry_run = true, .by = weir__str("me"), .priority = 3 };
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        assert_int_equal(op.changed, counts[verb]);
    }
    static const char *const names[] = { "a-1", "a-2", "b-1", "b-2", "c-1", "c-2" };
    for (size_t i = 0; i < 6; i++) {
        const store_target *t = kit_target(k, names[i]);
        assert_int_equal(t->fence, 1);
        assert_int_equal(t->blocked, i == 1 || i == 4);
        assert_false(t->paused || t->prioritized);
        assert_int_equal(t->subscriptions[0].at, t->subscriptions[0].mark - 1);
    }
    assert_int_equal(kit_parked(k).parked_count, 0);
    /* Then for real: the same counts. */
    static const store_verb order[] = { STORE_UNBLOCK, STORE_RESET, STORE_SKIP, STORE_PRIORITIZE,
                                        STORE_PAUSE };
    for (size_t i = 0; i < 5; i++) {
        store_operate op = { .verb = order[i], .by = weir__str("me"), .priority = 3 };
        KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        assert_int_equal(op.changed, counts[order[i]]);
    }
    assert_int_equal(kit_parked(k).parked_count, 6);
    kit_check(k);
}

static void C29_mass_verbs_reach_every_target(void **state)
{
    kit *k = *state;
    enum { COUNT = 2 * STORE_OPERATE_CHUNK + 345 };
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const store_route_step step = { .reaction = r.id, .number = 1 };
    kit_put(k, "s", "A");
    store_mark *marks = weir__arena_alloc(&k->arena, COUNT * sizeof *marks);
    assert_non_null(marks);
    for (int i = 0; i < COUNT; i++) {
        marks[i] = (store_mark){ .target = weir__str(kit_text(k, "t-%d", i)),
                                 .lane = weir__str("lane"),
                                 .source = weir__str("s"),
                                 .first = 1,
                                 .last = 1 };
    }
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = marks, .marks_count = COUNT
    };
    KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err));
    store_operate op = { .verb = STORE_PAUSE, .by = weir__str("me") };
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, COUNT);
    assert_true(kit_nothing_to_lease(k, "lane"));
    op.verb = STORE_RESUME;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, COUNT);
    assert_int_equal(kit_lease(k, "lane", STORE_LEASE_TARGETS_MAX)->leases_count,
                     STORE_LEASE_TARGETS_MAX);
    kit_check(k);
}

kit_theme kit_operating(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C29_unblock_resumes_at_the_watermark),
        KIT_TEST(C29_reset_goes_back_to_the_start),
        KIT_TEST(C29_reset_goes_back_to_a_position_or_a_time),
        KIT_TEST(C29_reset_clears_a_target_that_is_not_beyond_the_position),
        KIT_TEST(C29_reset_never_goes_before_the_reaction_began),
        KIT_TEST(C29_reset_of_work_rows_routes_them_again),
        KIT_TEST(C29_reset_and_skip_take_the_lease_away),
        KIT_TEST(C29_skip_parks_the_event_in_the_way),
        KIT_TEST(C29_skip_steps_over_nothing),
        KIT_TEST(C29_skip_takes_one_of_several_reactions_at_a_time),
        KIT_TEST(C29_prioritize_lets_the_running_batch_finish),
        KIT_TEST(C29_pause_lets_the_running_batch_finish),
        KIT_TEST(C29_a_holder_is_told_of_a_pause_when_it_settles),
        KIT_TEST(C29_pause_and_resume_hold_a_lane),
        KIT_TEST(C29_verbs_take_names_or_a_filter_and_answer_with_the_count),
        KIT_TEST(C29_a_name_that_is_no_target_changes_nothing),
        KIT_TEST(C29_a_dry_run_of_any_verb_changes_nothing),
        KIT_TEST(C29_mass_verbs_reach_every_target),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
