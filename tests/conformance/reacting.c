/* reacting.c - C19 and C30 to C32: reactions, their definitions and positions, routing,
 * subscriptions. */
#include "kit.h"
#include "store/beyond.h"

#include <stdio.h>

/* Routes one mark without moving `routed`. */
static weir_status mark_by_hand(kit *k, const store_reaction *r, const store_mark *mark)
{
    const int64_t routed = kit_reaction(k, "r").routed;
    const store_route_step step = {
        .reaction = r->id, .number = r->number, .from = routed, .to = routed
    };
    const store_route route = { .steps = &step, .steps_count = 1, .marks = mark, .marks_count = 1 };
    return k->store->work->route(k->store, &route, NULL, &k->err);
}

static size_t targets_count(kit *k)
{
    store_stats stats = { 0 };
    KIT_OK(k, k->store->about->stats(k->store, &stats, &k->err));
    return (size_t)stats.targets;
}

/* ---- C19 ---------------------------------------------------------------------------------- */

static void C19_subscribing_is_idempotent(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t event = kit_put(k, "s", "X");
    store_mark mark = { .target = weir__str("t"),
                        .lane = weir__str("lane"),
                        .priority = 1,
                        .source = weir__str("source"),
                        .value = weir__str("value"),
                        .first = event,
                        .last = event };
    KIT_OK(k, mark_by_hand(k, &r, &mark));
    const int64_t id = kit_target(k, "t")->id;
    KIT_OK(k, mark_by_hand(k, &r, &mark));
    assert_int_equal(targets_count(k), 1);
    const store_target *t = kit_target(k, "t");
    assert_int_equal(t->id, id);
    KIT_STR(t->lane, "lane");
    assert_int_equal(t->subscriptions_count, 1);
    assert_int_equal(t->subscriptions[0].at, event - 1);
    assert_int_equal(t->subscriptions[0].mark, event);
    assert_int_equal(t->state, STORE_TARGET_READY);
    /* Once more with other values: those follow, the position does not. */
    mark.priority = 7;
    mark.source = weir__str("other source");
    mark.value = weir__str("other value");
    KIT_OK(k, mark_by_hand(k, &r, &mark));
    t = kit_target(k, "t");
    assert_int_equal(t->subscriptions[0].at, event - 1);
    assert_int_equal(t->subscriptions[0].mark, event);
    assert_int_equal(t->priority, 7);
    KIT_STR(t->subscriptions[0].source, "other source");
    KIT_STR(t->subscriptions[0].value, "other value");
    kit_check(k);
}

static void C19_subscribing_needs_a_reaction(void **state)
{
    kit *k = *state;
    const store_reaction nobody = { .id = 99, .number = 1 };
    (void)kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t event = kit_put(k, "s", "X");
    const store_mark mark = { .target = weir__str("t"),
                              .lane = weir__str("lane"),
                              .source = weir__str("source"),
                              .first = event,
                              .last = event };
    KIT_IS(k, mark_by_hand(k, &nobody, &mark), WEIR_ECONFLICT);
    assert_int_equal(targets_count(k), 0);
}

static void C19_priority_is_the_greatest_declared(void **state)
{
    kit *k = *state;
    kit_declare(k, "a", "*", "*", STORE_RULE_STREAM);
    kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "X");
    KIT_OK(k, kit_mark(k, "a", "t", "lane", -5, 1, 1));
    assert_int_equal(kit_target(k, "t")->priority, -5); /* not 0: nobody declared 0 */
    KIT_OK(k, kit_mark(k, "b", "t", "lane", -3, 1, 1));
    assert_int_equal(kit_target(k, "t")->priority, -3);
    KIT_OK(k, kit_mark(k, "b", "t", "lane", -9, 1, 1));
    assert_int_equal(kit_target(k, "t")->priority, -5);
    KIT_OK(k, kit_mark(k, "b", "t", "lane", 12, 1, 1));
    assert_int_equal(kit_target(k, "t")->priority, 12);
    KIT_OK(k, k->store->work->retire(k->store, weir__str("b"), &k->err));
    assert_int_equal(kit_target(k, "t")->priority, -5);
    kit_check(k);
}

static void C19_prioritize_overrides_until_cleared(void **state)
{
    kit *k = *state;
    kit_declare(k, "a", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "X");
    KIT_OK(k, kit_mark(k, "a", "t", "lane", 3, 1, 1));
    store_operate op = kit_operate_of(k, STORE_PRIORITIZE, "t");
    op.priority = -1;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_target(k, "t")->priority, -1);
    assert_true(kit_target(k, "t")->prioritized);
    KIT_OK(k, kit_mark(k, "a", "t", "lane", 60, 1, 1));
    assert_int_equal(kit_target(k, "t")->priority, -1);
    op.clear = true;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_target(k, "t")->priority, 60);
    assert_false(kit_target(k, "t")->prioritized);
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 0);
}

static void C19_two_lanes_for_one_target_are_refused(void **state)
{
    kit *k = *state;
    const store_reaction a = kit_declare(k, "a", "*", "*", STORE_RULE_STREAM);
    kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "X");
    KIT_OK(k, kit_mark(k, "a", "t", "lane", 0, 1, 1));
    KIT_IS(k, kit_mark(k, "b", "t", "other", 9, 1, 1), WEIR_EINVAL);
    assert_int_equal(kit_target(k, "t")->subscriptions_count, 1);
    assert_int_equal(kit_target(k, "t")->priority, 0);

    /* Routing: nothing of the whole call is written, and it says which mark it was. */
    const store_mark marks[] = {
        { .target = weir__str("new"),
          .lane = weir__str("lane"),
          .source = weir__str("s"),
          .first = 2,
          .last = 3 },
        { .target = weir__str("t"),
          .lane = weir__str("lane"),
          .source = weir__str("s"),
          .first = 2,
          .last = 3 },
        { .target = weir__str("t"),
          .lane = weir__str("other"),
          .source = weir__str("s"),
          .first = 4,
          .last = 4 },
    };
    kit_put(k, "s", "X");
    kit_put(k, "s", "X");
    const int64_t routed = kit_reaction(k, "a").routed;
    const store_route_step step = {
        .reaction = a.id, .number = a.current, .from = routed, .to = kit_put(k, "s", "X")
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = marks, .marks_count = 3
    };
    size_t bad_mark = 77;
    KIT_IS(k, k->store->work->route(k->store, &route, &bad_mark, &k->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 2);
    assert_int_equal(targets_count(k), 1);
    assert_int_equal(kit_reaction(k, "a").routed, routed);
    assert_int_equal(kit_subscription(k, "t", a.id)->mark, 1);
    kit_check(k);
}

static void C19_two_reactions_with_different_sources_are_both_served(void **state)
{
    kit *k = *state;
    const store_reaction a = kit_declare(k, "a", "*", "a-*", STORE_RULE_CONSTANT);
    const store_reaction b = kit_declare(k, "b", "*", "b-*", STORE_RULE_CONSTANT);
    const int64_t a1 = kit_put(k, "a-1", "X");
    const int64_t b1 = kit_put(k, "b-1", "X");
    const int64_t a2 = kit_put(k, "a-2", "X");
    KIT_OK(k, kit_route(k, k->store, "a", "t", "lane", 0));
    KIT_OK(k, kit_route(k, k->store, "b", "t", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "t");
    assert_int_equal(l.subscriptions_count, 2);
    int64_t ids[4];
    for (size_t i = 0; i < 2; i++) {
        const store_leased_subscription *s = &l.subscriptions[i];
        const size_t n = kit_fetch(k, l.target, s->reaction, s->at, s->mark, ids, 4);
        if (s->reaction == a.id) {
            assert_int_equal(n, 2);
            assert_int_equal(ids[0], a1);
            assert_int_equal(ids[1], a2);
        } else {
            assert_int_equal(s->reaction, b.id);
            assert_int_equal(n, 1);
            assert_int_equal(ids[0], b1);
        }
    }
    /* One of them being done leaves the other to do. */
    KIT_OK(k, kit_settle(k, &l, a.id, a2, STORE_END_RELEASE));
    const store_leased again = kit_lease_target(k, "lane", "t");
    assert_int_equal(again.subscriptions_count, 1);
    assert_int_equal(again.subscriptions[0].reaction, b.id);
}

/* ---- C30 ---------------------------------------------------------------------------------- */

static void C30_a_lease_and_an_append_of_the_same_name_do_not_meet(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t id = kit_put(k, "same", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "same");
    kit_append a;
    weir_store *other = kit_open(k);
    KIT_OK(k, kit_try(other, "same", WEIR_EXPECT_EXACT, 0, &a));
    KIT_OK(k, kit_try(k->store, "same", WEIR_EXPECT_EXACT, 1, &a));
    const store_target *t = kit_target(k, "same");
    assert_int_equal(t->fence, l.fence);
    assert_int_equal(t->state, STORE_TARGET_LEASED);
    KIT_OK(k, kit_settle(k, &l, r.id, id, STORE_END_RELEASE));
    assert_int_equal(kit_version(k, "same"), 2);
    /* A target needs no stream, a stream no target. */
    KIT_OK(k, kit_mark(k, "r", "nothing", "lane", 0, 1, 1));
    assert_int_equal(kit_version(k, "nothing"), -1);
}

/* ---- C31: declaring ----------------------------------------------------------------------- */

static store_reaction_declaration declaration(const char *name, const char *source, int32_t start,
                                              int64_t position)
{
    return (store_reaction_declaration){ .name = weir__str(name),
                                         .source = weir__str(source),
                                         .rule = STORE_RULE_STREAM,
                                         .rule_text = weir__str("text"),
                                         .start = start,
                                         .start_position = position };
}

static void C31_where_a_reaction_begins_is_fixed_when_it_is_first_declared(void **state)
{
    kit *k = *state;
    for (int i = 0; i < 4; i++) {
        kit_put(k, "s", "A");
    }
    const int64_t head = kit_head(k);
    store_reaction out;
    store_reaction_declaration d = declaration("beginning", "*", STORE_START_BEGINNING, 0);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, 0);
    assert_int_equal(out.routed, 0);
    assert_int_equal(out.number, 1);
    assert_int_equal(out.current, 1);
    d = declaration("now", "*", STORE_START_NOW, 0);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, head);
    assert_int_equal(out.routed, head);
    d = declaration("position", "*", STORE_START_POSITION, 2);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, 2);
    assert_int_equal(out.routed, 2);

    kit_put(k, "s", "A");
    kit_reopen(k);
    d = declaration("now", "*", STORE_START_NOW, 0); /* a redeploy */
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, head);
    d = declaration("now", "s*", STORE_START_BEGINNING, 0); /* another definition */
    KIT_OK(k, kit_declare_with(k, &d, "A,B", &out));
    assert_int_equal(out.since, head);
    assert_int_equal(out.routed, head);
    assert_int_equal(out.number, 2);
    d = declaration("position", "*", STORE_START_POSITION, 4);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, 2);
}

/* Events that are appended up to there would be passed over, and the name could not be used again.
 */
static void C31_a_reaction_cannot_begin_beyond_the_end_of_the_log(void **state)
{
    kit *k = *state;
    const int64_t head = kit_put(k, "s", "A");
    const int64_t wrong[] = { head + 1, INT64_MAX, -1, INT64_MIN };
    char hint[64];
    store_reaction out;
    store_reaction_declaration d;
    (void)snprintf(hint, sizeof hint, "or a position up to %lld", (long long)head);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        d = declaration("r", "*", STORE_START_POSITION, wrong[i]);
        KIT_IS(k, kit_declare_with(k, &d, "A", &out), WEIR_EINVAL);
        assert_non_null(strstr(k->err.message, "from: start, from: now"));
        assert_non_null(strstr(k->err.message, hint));
    }
    /* Nothing is left of it: the name can be declared anew. */
    d = declaration("r", "*", STORE_START_POSITION, head);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, head);
    assert_int_equal(out.number, 1);
    /* Of one that is known the start has no say any more. */
    d = declaration("r", "*", STORE_START_POSITION, head + 1);
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    assert_int_equal(out.since, head);
}

static void C31_definitions_are_numbered(void **state)
{
    kit *k = *state;
    store_reaction out;
    store_reaction_declaration old = declaration("r", "*", 0, 0);
    store_reaction_declaration new = declaration("r", "order-*", 0, 0);
    KIT_OK(k, kit_declare_with(k, &old, "B,A", &out));
    KIT_OK(k, kit_declare_with(k, &old, "A,B", &out)); /* the order of names does not matter */
    assert_int_equal(out.number, 1);
    assert_int_equal(out.current, 1);
    const int64_t id = out.id;
    KIT_OK(k, kit_declare_with(k, &new, "A,B", &out));
    assert_int_equal(out.id, id);
    assert_int_equal(out.number, 2);
    assert_int_equal(out.current, 2);
    /* A process of the old version comes back: it is told, and changes nothing. */
    KIT_OK(k, kit_declare_with(k, &old, "A,B", &out));
    assert_int_equal(out.number, 1);
    assert_int_equal(out.current, 2);
    assert_int_equal(kit_reaction(k, "r").current, 2);
    KIT_STR(kit_reaction(k, "r").source, "order-*");
    old.redeclare = true;
    KIT_OK(k, kit_declare_with(k, &old, "A,B", &out));
    assert_int_equal(out.number, 3);
    assert_int_equal(out.current, 3);
    KIT_STR(kit_reaction(k, "r").source, "*");
    KIT_OK(k, kit_declare_with(k, &new, "A,B", &out));
    assert_int_equal(out.number, 2);
    assert_int_equal(out.current, 3);
    /* Each part is part of it. */
    store_reaction_declaration parts[3] = { old, old, old };
    parts[0].rule = STORE_RULE_CATEGORY;
    parts[1].rule_text = weir__str("other text");
    for (int64_t i = 0; i < 3; i++) {
        parts[i].redeclare = false;
        KIT_OK(k, kit_declare_with(k, &parts[i], i == 2 ? "A" : "A,B", &out));
        assert_int_equal(out.number, 4 + i);
        assert_int_equal(out.current, 4 + i);
    }
    KIT_OK(k, kit_declare_with(k, &old, "*", &out));
    assert_int_equal(out.number, 7);
    assert_true(kit_reaction(k, "r").all_names);
}

static void C31_a_new_definition_goes_on_where_the_old_one_was(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_declare(k, "r", "A", "*", STORE_RULE_STREAM);
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const int64_t routed = kit_reaction(k, "r").routed;
    assert_int_equal(routed, kit_head(k));
    kit_put(k, "s", "B");
    const store_reaction next = kit_declare(k, "r", "A,B", "*", STORE_RULE_STREAM);
    assert_int_equal(next.routed, routed);
    assert_int_equal(next.number, 2);
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    assert_int_equal(kit_subscription(k, "s", next.id)->mark, kit_head(k));
}

static void C31_a_new_reaction_on_an_old_target_runs_through_its_own_history(void **state)
{
    kit *k = *state;
    const store_reaction old = kit_declare(k, "old", "*", "*", STORE_RULE_STREAM);
    int64_t ids[4];
    for (size_t i = 0; i < 3; i++) {
        ids[i] = kit_put(k, "s", "A");
    }
    KIT_OK(k, kit_route(k, k->store, "old", "", "lane", 0));
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, old.id, ids[2], STORE_END_RELEASE));
    assert_true(kit_nothing_to_lease(k, "lane"));

    const store_reaction new = kit_declare(k, "new", "*", "*", STORE_RULE_STREAM);
    KIT_OK(k, kit_route(k, k->store, "new", "", "lane", 0));
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions_count, 1); /* the old one has nothing to do again */
    assert_int_equal(l.subscriptions[0].reaction, new.id);
    assert_int_equal(l.subscriptions[0].at, ids[0] - 1);
    assert_int_equal(l.watermark, ids[0] - 1);
    int64_t got[4];
    assert_int_equal(
        kit_fetch(k, l.target, new.id, l.subscriptions[0].at, l.subscriptions[0].mark, got, 4), 3);
    assert_int_equal(kit_subscription(k, "s", old.id)->at, ids[2]);
}

static void C31_a_retired_reaction_comes_back_where_it_was(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "A", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    const int64_t second = kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    KIT_OK(k, k->store->work->retire(k->store, weir__str("r"), &k->err));
    KIT_OK(k, k->store->work->retire(k->store, weir__str("r"), &k->err)); /* twice is nothing */
    KIT_IS(k, k->store->work->retire(k->store, weir__str("nobody"), &k->err), WEIR_ENOTFOUND);
    assert_true(kit_reaction(k, "r").retired);
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_false(kit_target(k, "s")->behind);
    assert_true(kit_subscription(k, "s", r.id)->retired);
    KIT_IS(k, kit_mark(k, "r", "t", "lane", 0, 1, 1), WEIR_ECONFLICT);

    const store_reaction back = kit_declare(k, "r", "A", "*", STORE_RULE_STREAM);
    assert_int_equal(back.id, r.id);
    assert_false(back.retired);
    assert_int_equal(back.routed, second);
    const store_leased l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].mark, second);
    kit_check(k);
}

/* ---- C32 ---------------------------------------------------------------------------------- */

static void C32_nobodys_routing_passes_over_what_anothers_reactions_want(void **state)
{
    kit *k = *state;
    weir_store *other = kit_open(k); /* another program, whose reaction is b */
    const store_reaction a = kit_declare(k, "a", "A", "*", STORE_RULE_STREAM);
    const store_reaction b = kit_declare(k, "b", "B", "*", STORE_RULE_STREAM);
    int64_t ids[4];
    kit_put(k, "s", "B");
    kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "a", "a-", "lane", 0));
    assert_int_equal(kit_reaction(k, "a").routed, 2);
    assert_int_equal(kit_reaction(k, "b").routed, 0);
    kit_put(k, "s", "B");
    KIT_OK(k, kit_route(k, k->store, "a", "a-", "lane", 0));
    KIT_OK(k, kit_route(k, other, "b", "b-", "lane", 0));
    assert_int_equal(kit_reaction(k, "b").routed, 3);
    assert_int_equal(kit_fetch(k, kit_target(k, "a-s")->id, a.id, 0, 3, ids, 4), 1);
    assert_int_equal(ids[0], 2);
    assert_int_equal(kit_fetch(k, kit_target(k, "b-s")->id, b.id, 0, 3, ids, 4), 2);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 3);
    kit_check(k);
}

static void C32_work_of_reactions_that_a_worker_does_not_know_is_left_to_others(void **state)
{
    kit *k = *state;
    weir_store *other = kit_open(k);
    const store_reaction a = kit_declare(k, "a", "*", "*", STORE_RULE_STREAM);
    const store_reaction b = kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    const store_known_reaction knows_a = { .reaction = a.id, .number = 1 };
    const store_known_reaction knows_b = { .reaction = b.id, .number = 1 };
    store_lease_request request = kit_lease_request("lane", 10);
    store_lease_list *list = NULL;
    kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "a", "", "lane", 0));
    KIT_OK(k, kit_route(k, other, "b", "", "lane", 0));
    /* One target, two reactions: each is given its own, and leaves the other's behind. */
    request.all_reactions = false;
    request.known = &knows_a;
    request.known_count = 1;
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 1);
    assert_int_equal(list->leases[0].subscriptions_count, 1);
    assert_int_equal(list->leases[0].subscriptions[0].reaction, a.id);
    KIT_OK(k, kit_settle(k, &list->leases[0], a.id, 1, STORE_END_RELEASE));
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 0);
    assert_int_equal(kit_subscription(k, "s", b.id)->at, 0);
    request.known = &knows_b;
    KIT_OK(k, kit_lease_with(k, other, &request, &list));
    assert_int_equal(list->leases_count, 1);
    assert_int_equal(list->leases[0].subscriptions_count, 1);
    assert_int_equal(list->leases[0].subscriptions[0].reaction, b.id);
    assert_int_equal(list->leases[0].subscriptions[0].at, 0);
    KIT_OK(k, kit_settle(k, &list->leases[0], b.id, 1, STORE_END_RELEASE));
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_check(k);
}

/* ---- routing ------------------------------------------------------------------------------ */

static void C31_routing_gives_a_target_its_events_once(void **state)
{
    kit *k = *state;
    static const store_rule rules[] = { STORE_RULE_CONSTANT, STORE_RULE_STREAM, STORE_RULE_CATEGORY,
                                        STORE_RULE_NAME, STORE_RULE_WORK };
    static const char *const names[] = { "constant", "stream", "category", "name", "work" };
    static const char *const targets[] = { "constant", "streamo-1", "categoryo", "nameA",
                                           "worko-1" };
    static const size_t counts[] = { 4, 3, 4, 3, 3 }; /* events that belong to that target */
    for (size_t i = 0; i < 5; i++) {
        kit_declare(k, names[i], "A,B", "o-*", rules[i]);
    }
    for (int i = 0; i < 2; i++) {
        kit_put(k, "o-1", "A");
        kit_put(k, "o-1", "Unheard");
        kit_put(k, "elsewhere", "A");
    }
    kit_put(k, "o-2", "A");
    kit_put(k, "o-1", "B");
    for (size_t i = 0; i < 5; i++) {
        KIT_OK(k, kit_route(k, k->store, names[i], names[i], names[i], 0));
        assert_int_equal(kit_reaction(k, names[i]).routed, kit_head(k));
        const store_lease_list *list = kit_lease(k, names[i], 10);
        bool found = false;
        for (size_t j = 0; j < list->leases_count; j++) {
            const store_leased *l = &list->leases[j];
            if (weir__str_equal(l->name, weir__str(targets[i]))) {
                const store_leased_subscription *s = &l->subscriptions[0];
                int64_t ids[8];
                assert_int_equal(kit_fetch(k, l->target, s->reaction, s->at, s->mark, ids, 8),
                                 counts[i]);
                /* In pieces it is the same. */
                assert_int_equal(kit_fetch(k, l->target, s->reaction, s->at, s->mark, ids, 1), 1);
                assert_int_equal(kit_fetch(k, l->target, s->reaction, ids[0], s->mark, ids, 8),
                                 counts[i] - 1);
                found = true;
            }
        }
        assert_true(found);
    }
    kit_check(k);
}

/* A target at the end of the log, of which nothing was routed: what a target looks like that was
 * further than a log that lost its end. */
static int64_t put_beyond(kit *k, const store_reaction *r, size_t events)
{
    int64_t id = 0;
    for (size_t i = 0; i < events; i++) {
        id = kit_put(k, "s", "A");
    }
    const store_mark mark = { .target = weir__str("ts"),
                              .lane = weir__str("lane"),
                              .source = weir__str("s"),
                              .value = weir__str(r->rule == STORE_RULE_WORK ? "" : "s"),
                              .first = id,
                              .last = id };
    KIT_OK(k, mark_by_hand(k, r, &mark));
    const store_leased l = kit_lease_target(k, "lane", "ts");
    KIT_OK(k, kit_settle(k, &l, r->id, id, STORE_END_RELEASE));
    return id;
}

static size_t leased_events(kit *k, const char *target)
{
    int64_t ids[32];
    const store_leased l = kit_lease_target(k, "lane", target);
    assert_int_equal(l.subscriptions_count, 1);
    const store_leased_subscription *s = &l.subscriptions[0];
    return kit_fetch(k, l.target, s->reaction, s->at, s->mark, ids, 32);
}

static void blocked_until_it_is_reset(kit *k, store_rule rule)
{
    const store_reaction r = kit_declare(k, "r", "*", "*", rule);
    const int64_t at = put_beyond(k, &r, 5);
    const int64_t first = at - 4;
    store_operate op = kit_operate_of(k, STORE_UNBLOCK, "ts");

    kit_put(k, "s", "A"); /* the log has grown past it */
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0));
    const store_target *t = kit_target(k, "ts");
    assert_true(t->blocked);
    assert_true(weir__target_is_passed(t));
    assert_int_equal(t->event, first);
    KIT_STR(t->reaction, "r");
    const char *error = kit_text(k,
                                 "position %lld is beyond what was routed of the log (%lld): a "
                                 "part of the log was lost",
                                 (long long)at, (long long)r.routed);
    KIT_STR(t->error, error);
    assert_true(kit_nothing_to_lease(k, "lane"));
    /* Neither of these would bring back what was passed over. */
    op.dry_run = true;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 0);
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "ts"), 0);
    assert_int_equal(kit_operate(k, STORE_SKIP, "ts"), 0);
    kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0));
    t = kit_target(k, "ts");
    assert_int_equal(t->event, first);
    KIT_STR(t->error, error);
    assert_int_equal(kit_operate(k, STORE_RESET, "ts"), 1);
    assert_false(kit_target(k, "ts")->blocked);
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0)); /* what only the router finds again */
    assert_int_equal(leased_events(k, "ts"), 7);
    kit_check(k);
}

static void C16_a_target_beyond_the_log_is_blocked_until_it_is_reset(void **state)
{
    blocked_until_it_is_reset(*state, STORE_RULE_STREAM);
}

static void C16_the_same_where_only_the_router_finds_events(void **state)
{
    blocked_until_it_is_reset(*state, STORE_RULE_WORK);
}

/* Settled at its mark, it would be beyond the log as well. */
static void C16_a_mark_beyond_the_log_blocks_and_takes_the_lease(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t first = kit_put(k, "s", "A");
    const int64_t last = kit_put(k, "s", "A");
    const int64_t further = kit_put(k, "other", "A");
    bool beyond[1] = { false };
    store_mark mark = { .target = weir__str("ts"),
                        .lane = weir__str("lane"),
                        .source = weir__str("s"),
                        .value = weir__str("s"),
                        .first = first,
                        .last = further };
    store_route_step step = { .reaction = r.id, .number = 1, .from = r.routed, .to = r.routed };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1, .beyond = beyond
    };
    KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err)); /* marked, not routed */
    const store_leased l = kit_lease_target(k, "lane", "ts");
    mark.last = last;
    step.to = last;
    KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err));
    assert_true(beyond[0]);
    assert_true(weir__target_is_passed(kit_target(k, "ts")));
    KIT_IS(k, kit_settle(k, &l, r.id, further, STORE_END_RELEASE), WEIR_ELOST);
    /* To a position that it has not come to: its mark is repaired nevertheless. */
    store_operate op = kit_operate_of(k, STORE_RESET, "ts");
    op.reset_to = STORE_RESET_POSITION;
    op.position = further;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_subscription(k, "ts", r.id)->mark, last);
    assert_int_equal(kit_subscription(k, "ts", r.id)->routed, last);
    assert_int_equal(leased_events(k, "ts"), 2);
    kit_check(k);
}

static void C16_a_reset_leaves_no_position_beyond_what_was_routed(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t at = put_beyond(k, &r, 3);
    store_operate op = kit_operate_of(k, STORE_RESET, "ts");
    op.reset_to = STORE_RESET_POSITION;
    op.position = at + 10;
    op.dry_run = true;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    op.dry_run = false;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    assert_int_equal(op.changed, 1);
    assert_int_equal(kit_subscription(k, "ts", r.id)->at, r.routed);
    assert_int_equal(kit_subscription(k, "ts", r.id)->mark, r.routed);
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0));
    assert_false(kit_target(k, "ts")->blocked);
    assert_int_equal(leased_events(k, "ts"), 3);
    kit_check(k);
}

/* While one target's events are read again, the others are further. */
static void C16_who_is_further_than_what_is_read_again_is_not_beyond(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_WORK);
    kit_put(k, "a", "A");
    const int64_t last = kit_put(k, "b", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0));
    for (int i = 0; i < 2; i++) {
        const store_leased l = kit_lease(k, "lane", 1)->leases[0];
        KIT_OK(k, kit_settle(k, &l, r.id, l.subscriptions[0].mark, STORE_END_RELEASE));
    }
    assert_int_equal(kit_operate(k, STORE_RESET, "ta"), 1);
    assert_int_equal(kit_reaction(k, "r").reread_to, last);
    kit_put(k, "b", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "t", "lane", 0));
    assert_false(kit_target(k, "ta")->blocked);
    assert_false(kit_target(k, "tb")->blocked);
    kit_check(k);
}

static void P05_routing_from_where_somebody_else_was_writes_nothing(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const store_reaction q = kit_declare(k, "q", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    const store_mark mark = { .target = weir__str("t"),
                              .lane = weir__str("lane"),
                              .source = weir__str("s"),
                              .first = 1,
                              .last = 1 };
    store_route_step steps[] = { { .reaction = q.id, .number = 1, .to = 1 },
                                 { .reaction = r.id, .number = 1, .to = 1 } };
    const store_route route = {
        .steps = steps, .steps_count = 2, .marks = &mark, .marks_count = 1
    };
    steps[1].from = 5; /* not where it is */
    KIT_IS(k, k->store->work->route(k->store, &route, NULL, &k->err), WEIR_ECONFLICT);
    steps[1].from = 0;
    steps[1].number = 2; /* not the current definition */
    KIT_IS(k, k->store->work->route(k->store, &route, NULL, &k->err), WEIR_ECONFLICT);
    assert_int_equal(kit_reaction(k, "q").routed, 0);
    assert_int_equal(targets_count(k), 0);
    steps[1].number = 1;
    KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err));
    KIT_IS(k, k->store->work->route(k->store, &route, NULL, &k->err), WEIR_ECONFLICT); /* once */
    kit_declare(k, "r", "A", "*", STORE_RULE_STREAM);
    steps[0] = (store_route_step){ .reaction = r.id, .number = 1, .from = 1, .to = 1 };
    const store_route stale = { .steps = steps, .steps_count = 1 };
    KIT_IS(k, k->store->work->route(k->store, &stale, NULL, &k->err), WEIR_ECONFLICT);
}

static void C25_a_mark_behind_the_position_is_not_written(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int i = 0; i < 20; i++) {
        kit_put(k, "s", "A");
    }
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 0, 5, 8));
    assert_int_equal(kit_subscription(k, "t", r.id)->at, 4); /* a new one begins before its first */
    assert_int_equal(kit_subscription(k, "t", r.id)->mark, 8);
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 0, 6, 7)); /* nothing new */
    assert_int_equal(kit_subscription(k, "t", r.id)->mark, 8);
    store_leased l = kit_lease_target(k, "lane", "t");
    KIT_OK(k, kit_settle(k, &l, r.id, 8, STORE_END_RELEASE));
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 0, 7, 8)); /* handled already */
    assert_int_equal(kit_subscription(k, "t", r.id)->at, 8);
    assert_int_equal(kit_subscription(k, "t", r.id)->mark, 8);
    assert_true(kit_nothing_to_lease(k, "lane"));
    /* An idle subscription begins right before what it is given: it is not behind all the rest. */
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 0, 15, 16));
    assert_int_equal(kit_subscription(k, "t", r.id)->at, 14);
    assert_int_equal(kit_target(k, "t")->watermark, 14);
    /* One that is behind keeps its place. */
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 0, 18, 19));
    assert_int_equal(kit_subscription(k, "t", r.id)->at, 14);
    assert_int_equal(kit_subscription(k, "t", r.id)->mark, 19);
    KIT_OK(k, kit_mark(k, "r", "t", "lane", 3, 20, 20));
    assert_int_equal(kit_target(k, "t")->priority, 3); /* but not its old priority */
    kit_check(k);
}

static void P05_a_routers_lease_has_one_holder(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const weir_str me = weir__str("me");
    const weir_str you = weir__str("you");
    store_router_lease mine = { .reaction = r.id };
    KIT_OK(k, k->store->work->router_lease(k->store, me, KIT_LEASE_US, &mine, 1, &k->err));
    assert_true(mine.fence > 0);
    assert_int_equal(mine.until_us, kit_now(k) + KIT_LEASE_US);
    store_router_lease yours = { .reaction = r.id };
    KIT_OK(k, k->store->work->router_lease(k->store, you, KIT_LEASE_US, &yours, 1, &k->err));
    assert_int_equal(yours.fence, 0);
    yours.fence = mine.fence - 1; /* a stale fence is no key */
    KIT_OK(k, k->store->work->router_lease(k->store, you, KIT_LEASE_US, &yours, 1, &k->err));
    assert_int_equal(yours.fence, 0);
    KIT_STR(kit_reaction(k, "r").router, "me");
    /* Renewing keeps the fence. */
    kit_advance(k, KIT_LEASE_US / 2);
    const int64_t fence = mine.fence;
    KIT_OK(k, k->store->work->router_lease(k->store, me, KIT_LEASE_US, &mine, 1, &k->err));
    assert_int_equal(mine.fence, fence);
    assert_int_equal(mine.until_us, kit_now(k) + KIT_LEASE_US);
    /* It ends by itself, or is given back; whoever takes it then has a higher fence. */
    kit_advance(k, KIT_LEASE_US);
    kit_reopen(k);
    KIT_OK(k, k->store->work->router_lease(k->store, you, KIT_LEASE_US, &yours, 1, &k->err));
    assert_true(yours.fence > fence);
    KIT_OK(k, k->store->work->router_lease(k->store, me, KIT_LEASE_US, &mine, 1, &k->err));
    assert_int_equal(mine.fence, 0);
    const int64_t second = yours.fence;
    KIT_OK(k, k->store->work->router_lease(k->store, you, 0, &yours, 1, &k->err));
    KIT_OK(k, k->store->work->router_lease(k->store, me, KIT_LEASE_US, &mine, 1, &k->err));
    assert_true(mine.fence > second);
    assert_int_equal(kit_reaction(k, "r").router_fence, mine.fence);
}

kit_theme kit_reacting(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C19_subscribing_is_idempotent),
        KIT_TEST(C19_subscribing_needs_a_reaction),
        KIT_TEST(C19_priority_is_the_greatest_declared),
        KIT_TEST(C19_prioritize_overrides_until_cleared),
        KIT_TEST(C19_two_lanes_for_one_target_are_refused),
        KIT_TEST(C19_two_reactions_with_different_sources_are_both_served),
        KIT_TEST(C30_a_lease_and_an_append_of_the_same_name_do_not_meet),
        KIT_TEST(C31_where_a_reaction_begins_is_fixed_when_it_is_first_declared),
        KIT_TEST(C31_a_reaction_cannot_begin_beyond_the_end_of_the_log),
        KIT_TEST(C31_definitions_are_numbered),
        KIT_TEST(C31_a_new_definition_goes_on_where_the_old_one_was),
        KIT_TEST(C31_a_new_reaction_on_an_old_target_runs_through_its_own_history),
        KIT_TEST(C31_a_retired_reaction_comes_back_where_it_was),
        KIT_TEST(C32_nobodys_routing_passes_over_what_anothers_reactions_want),
        KIT_TEST(C32_work_of_reactions_that_a_worker_does_not_know_is_left_to_others),
        KIT_TEST(C31_routing_gives_a_target_its_events_once),
        KIT_TEST(C16_a_target_beyond_the_log_is_blocked_until_it_is_reset),
        KIT_TEST(C16_the_same_where_only_the_router_finds_events),
        KIT_TEST(C16_a_mark_beyond_the_log_blocks_and_takes_the_lease),
        KIT_TEST(C16_a_reset_leaves_no_position_beyond_what_was_routed),
        KIT_TEST(C16_who_is_further_than_what_is_read_again_is_not_beyond),
        KIT_TEST(P05_routing_from_where_somebody_else_was_writes_nothing),
        KIT_TEST(C25_a_mark_behind_the_position_is_not_written),
        KIT_TEST(P05_a_routers_lease_has_one_holder),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
