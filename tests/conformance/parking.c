/* parking.c - parked events (C20, C27, C29): set aside, sent back, handled or dropped. */
#include "kit.h"

/* Reaction "r", target "s", the first of `count` events parked, the rest handled. */
static store_reaction one_parked(kit *k, size_t count, int64_t *ids, int64_t *parked)
{
    const store_reaction r = kit_declare(k, "r", "Work", "*", STORE_RULE_STREAM);
    for (size_t i = 0; i < count; i++) {
        ids[i] = kit_put(k, "s", "Work");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "s");
    const store_park park = {
        .reaction = r.id, .event = ids[0], .attempts = 3, .error = weir__str("poison")
    };
    const store_advance advance = { .reaction = r.id, .to = ids[count - 1] };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.parks = &park;
    settle.parks_count = 1;
    settle.advances = &advance;
    settle.advances_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind);
    const store_parked_chunk chunk = kit_parked(k);
    assert_int_equal(chunk.parked_count, 1);
    *parked = chunk.parked[0].id;
    return r;
}

static void C20_a_parked_event_that_was_sent_back_is_work(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    int64_t parked;
    const store_reaction r = one_parked(k, 3, ids, &parked);
    assert_true(kit_nothing_to_lease(k, "lane"));
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY, &k->err));
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY,
                                            &k->err)); /* twice is nothing */
    assert_true(kit_parked(k).parked[0].sent_back);
    assert_true(kit_target(k, "s")->behind);
    kit_reopen(k);
    store_leased l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions_count, 0); /* nothing else is behind */
    assert_int_equal(l.sent_back_count, 1);
    assert_int_equal(l.sent_back[0].parked, parked);
    assert_int_equal(l.sent_back[0].event, ids[0]);
    assert_int_equal(l.sent_back[0].reaction, r.id);
    assert_int_equal(l.sent_back[0].attempts, 3);
    /* Handled: it is gone, and with it the work. */
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.parked_done = &parked;
    settle.parked_done_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind);
    assert_int_equal(kit_parked(k).parked_count, 0);
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[2]);
    kit_check(k);
}

static void C20_a_sent_back_event_is_for_those_who_know_its_reaction(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    int64_t parked;
    const store_reaction r = one_parked(k, 2, ids, &parked);
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY, &k->err));
    store_lease_request request = kit_lease_request("lane", 1);
    store_lease_list *list = NULL;
    store_known_reaction known = { .reaction = r.id + 1, .number = 1 };
    request.all_reactions = false;
    request.known = &known;
    request.known_count = 1;
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 0);
    known.reaction = r.id;
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 1);
    assert_int_equal(list->leases[0].sent_back_count, 1);
}

static void C29_skip_parks_a_sent_back_event_again(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    int64_t parked;
    one_parked(k, 2, ids, &parked);
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY, &k->err));
    assert_int_equal(kit_operate(k, STORE_SKIP, "s"), 1);
    assert_true(kit_nothing_to_lease(k, "lane"));
    const store_parked_chunk chunk = kit_parked(k);
    assert_int_equal(chunk.parked_count, 1);
    assert_int_equal(chunk.parked[0].event, ids[0]);
    assert_false(chunk.parked[0].sent_back);
    assert_false(kit_target(k, "s")->behind);
    kit_check(k);
}

static void C27_a_parked_event_can_be_dropped(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    int64_t parked;
    one_parked(k, 2, ids, &parked);
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY, &k->err));
    KIT_OK(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_DROP, &k->err));
    assert_int_equal(kit_parked(k).parked_count, 0);
    assert_true(kit_nothing_to_lease(k, "lane")); /* the work went with it */
    KIT_IS(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_DROP, &k->err),
           WEIR_ENOTFOUND);
    KIT_IS(k, k->store->work->parked_change(k->store, parked, STORE_PARKED_RETRY, &k->err),
           WEIR_ENOTFOUND);
    kit_check(k);
}

static void C27_an_event_parked_while_routing_has_no_target(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_WORK);
    const int64_t id = kit_put(k, "s", "A");
    const store_route_park park = { .event = id, .error = weir__str("no such member: region") };
    const store_route_step step = { .reaction = r.id, .number = 1, .to = id };
    const store_route route = {
        .steps = &step, .steps_count = 1, .parks = &park, .parks_count = 1
    };
    KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err));
    assert_int_equal(kit_reaction(k, "r").routed, id);
    const store_parked_chunk chunk = kit_parked(k);
    assert_int_equal(chunk.parked_count, 1);
    KIT_STR(chunk.parked[0].target, "");
    KIT_STR(chunk.parked[0].error, "no such member: region");
    assert_int_equal(chunk.parked[0].event, id);
    KIT_IS(k,
           k->store->work->parked_change(k->store, chunk.parked[0].id, STORE_PARKED_RETRY, &k->err),
           WEIR_EMISUSE);
    KIT_OK(k,
           k->store->work->parked_change(k->store, chunk.parked[0].id, STORE_PARKED_DROP, &k->err));
    kit_check(k);
}

static void C27_parked_events_are_listed_by_target_and_reaction(void **state)
{
    kit *k = *state;
    const store_reaction a = kit_declare(k, "a", "*", "*", STORE_RULE_STREAM);
    const store_reaction b = kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    const int64_t id = kit_put(k, "s", "A");
    kit_put(k, "t", "A");
    KIT_OK(k, kit_route(k, k->store, "a", "", "lane", 0));
    KIT_OK(k, kit_route(k, k->store, "b", "", "lane", 0));
    const store_lease_list *list = kit_lease(k, "lane", 2);
    assert_int_equal(list->leases_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const store_park parks[] = { { .reaction = a.id, .event = id, .error = weir__str("x") },
                                     { .reaction = b.id, .event = id, .error = weir__str("y") } };
        store_settle settle = kit_settle_of(&list->leases[i], STORE_END_RELEASE);
        settle.parks = parks;
        settle.parks_count = 2;
        KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    }
    const struct {
        store_parked_query q;
        size_t count;
    } cases[] = {
        { { .limit = 100 }, 4 },
        { { .limit = 3 }, 3 },
        { { .limit = 100, .target = weir__str("s") }, 2 },
        { { .limit = 100, .reaction = weir__str("b") }, 2 },
        { { .limit = 100, .reaction = weir__str("b"), .target = weir__str("t") }, 1 },
        { { .limit = 100, .target = weir__str("nobody") }, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        store_parked_chunk chunk = { 0 };
        KIT_OK(k, k->store->work->parked(k->store, &cases[i].q, &chunk, &k->err));
        assert_int_equal(chunk.parked_count, cases[i].count);
        assert_int_equal(chunk.more, i == 1);
        for (size_t j = 1; j < chunk.parked_count; j++) {
            assert_true(chunk.parked[j].id > chunk.parked[j - 1].id);
        }
        if (i == 1) {
            const store_parked_query rest = { .after = chunk.parked[2].id, .limit = 100 };
            KIT_OK(k, k->store->work->parked(k->store, &rest, &chunk, &k->err));
            assert_int_equal(chunk.parked_count, 1);
        }
        weir__arena_free(&chunk.arena);
    }
    /* Parking by itself does not advance. */
    assert_int_equal(kit_subscription(k, "s", a.id)->at, id - 1);
}

kit_theme kit_parking(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C20_a_parked_event_that_was_sent_back_is_work),
        KIT_TEST(C20_a_sent_back_event_is_for_those_who_know_its_reaction),
        KIT_TEST(C29_skip_parks_a_sent_back_event_again),
        KIT_TEST(C27_a_parked_event_can_be_dropped),
        KIT_TEST(C27_an_event_parked_while_routing_has_no_target),
        KIT_TEST(C27_parked_events_are_listed_by_target_and_reaction),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
