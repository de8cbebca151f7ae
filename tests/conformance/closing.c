/* closing.c - C11: a stream is closed for ever, by its last event, and not while reactions still
 * have something of it to handle.
 */
#include "kit.h"

static weir_status close_with(weir_store *s, const char *stream, uint32_t flags, int32_t expect,
                              int64_t version, kit_append *a)
{
    kit_append_init(a);
    kit_append_event(a, kit_append_stream(a, stream, expect, version), "$closed",
                     "{\"why\":\"done\"}");
    a->append.flags = STORE_APPEND_CLOSE | flags;
    return kit_append_run(s, a);
}

static weir_status close_stream(kit *k, const char *stream, kit_append *a)
{
    const weir_status status = close_with(k->store, stream, 0, WEIR_EXPECT_ANY, 0, a);
    k->err = a->err;
    return status;
}

static bool is_closed(kit *k, const char *stream)
{
    store_stream_info info = { 0 };
    KIT_OK(k, k->store->log->stream_info(k->store, weir__str(stream), &k->arena, &info, &k->err));
    return info.closed;
}

static void C11_closing_appends_a_last_event(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    assert_false(is_closed(k, "s"));
    kit_append a;
    KIT_OK(k, close_stream(k, "s", &a));
    assert_int_equal(a.streams[0].first, 1);
    assert_int_equal(a.streams[0].last, 1);
    const kit_events events = kit_stream(k, "s");
    assert_int_equal(events.count, 2);
    KIT_STR(events.events[1].name, "$closed");
    KIT_STR(events.events[1].data, "{\"why\":\"done\"}");
    assert_int_equal(a.streams[0].id, events.events[1].id);
    assert_true(is_closed(k, "s"));
    kit_check(k);
}

static void C11_later_appends_are_refused_by_any_path(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    KIT_OK(k, close_stream(k, "s", &a));
    weir_store *other = kit_open(k);
    static const struct {
        int32_t expect;
        int64_t version;
    } cases[] = { { WEIR_EXPECT_ANY, 0 },
                  { WEIR_EXPECT_EXISTS, 0 },
                  { WEIR_EXPECT_EXACT, 1 },
                  { WEIR_EXPECT_NONE, 0 } };
    for (size_t i = 0; i < 4; i++) {
        KIT_IS(k,
               kit_try(i % 2 == 0 ? other : k->store, "s", cases[i].expect, cases[i].version, &a),
               WEIR_ECLOSED);
        assert_string_equal(a.err.stream, "s");
    }
    /* In an append of several streams, and as an effect of settling. */
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "t", WEIR_EXPECT_ANY, 0), "A", "{}");
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0), "B", "{}");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECLOSED);
    assert_int_equal(kit_version(k, "t"), -1);

    const store_reaction r = kit_declare(k, "r", "Work", "*", STORE_RULE_STREAM);
    kit_put(k, "w", "Work");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "w");
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0), "B", "{}");
    store_append *effects[] = { &a.append };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    const store_advance advance = { .reaction = r.id, .to = l.subscriptions[0].mark };
    settle.appends = effects;
    settle.appends_count = 1;
    settle.advances = &advance;
    settle.advances_count = 1;
    KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), WEIR_ECLOSED);
    kit_reopen(k);
    KIT_IS(k, kit_try(k->store, "s", WEIR_EXPECT_ANY, 0, &a), WEIR_ECLOSED);
    assert_int_equal(kit_version(k, "s"), 1);
}

static void C11_closing_is_under_an_expectation(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    KIT_IS(k, close_with(k->store, "s", 0, WEIR_EXPECT_EXACT, 3, &a), WEIR_ECONFLICT);
    assert_int_equal(a.err.expected, 3);
    assert_int_equal(a.err.actual, 0);
    KIT_IS(k, close_with(k->store, "s", 0, WEIR_EXPECT_NONE, 0, &a), WEIR_ECONFLICT);
    assert_false(is_closed(k, "s"));
    assert_int_equal(kit_version(k, "s"), 0);
    KIT_OK(k, close_with(k->store, "s", 0, WEIR_EXPECT_EXACT, 0, &a));
    assert_true(is_closed(k, "s"));
}

static void C11_closing_twice_changes_nothing(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    KIT_OK(k, close_stream(k, "s", &a));
    const int64_t head = kit_head(k);
    KIT_OK(k, close_stream(k, "s", &a));
    assert_int_equal(a.streams[0].first, -1);
    assert_int_equal(kit_head(k), head);
    assert_int_equal(kit_version(k, "s"), 1);
}

static void C11_a_stream_that_is_not_there_cannot_be_closed(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_IS(k, close_stream(k, "s", &a), WEIR_ENOTFOUND);
    assert_int_equal(kit_head(k), 0);
}

static void C11_a_dry_run_judges_and_closes_nothing(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    KIT_OK(k, close_with(k->store, "s", STORE_APPEND_DRY_RUN, WEIR_EXPECT_ANY, 0, &a));
    assert_false(is_closed(k, "s"));
    kit_declare(k, "reader", "A", "*", STORE_RULE_STREAM);
    KIT_IS(k, close_with(k->store, "s", STORE_APPEND_DRY_RUN, WEIR_EXPECT_ANY, 0, &a), WEIR_EHELD);
    assert_int_equal(kit_version(k, "s"), 0);
    kit_put(k, "s", "B");
}

static void C11_events_that_are_not_routed_yet_hold_a_stream_open(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_declare(k, "confirm", "A", "s*", STORE_RULE_STREAM);
    kit_declare(k, "other-name", "B", "*", STORE_RULE_STREAM);
    kit_declare(k, "other-source", "*", "t*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    KIT_IS(k, close_stream(k, "s", &a), WEIR_EHELD);
    assert_non_null(strstr(a.err.message, "confirm"));
    assert_null(strstr(a.err.message, "other-"));
    assert_false(is_closed(k, "s"));
    assert_int_equal(kit_version(k, "s"), 0);
    kit_declare(k, "archive", "*", "*", STORE_RULE_CATEGORY);
    KIT_IS(k, close_stream(k, "s", &a), WEIR_EHELD);
    assert_non_null(strstr(a.err.message, "confirm"));
    assert_non_null(strstr(a.err.message, "archive"));
}

/* Routes and handles everything of one reaction of rule `rule` and says when the stream can go. */
static void held_until_handled(kit *k, store_rule rule)
{
    kit_append a;
    const store_reaction r = kit_declare(k, "r", "A", "*", rule);
    const int64_t first = kit_put(k, "s-1", "A");
    const int64_t second = kit_put(k, "s-1", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "t-", "lane", 0));
    KIT_IS(k, close_stream(k, "s-1", &a), WEIR_EHELD);
    store_lease_list *list = kit_lease(k, "lane", 1);
    assert_int_equal(list->leases_count, 1);
    const store_leased *l = &list->leases[0];
    KIT_OK(k, kit_settle(k, l, r.id, first, STORE_END_KEEP)); /* the first of the two */
    KIT_IS(k, close_stream(k, "s-1", &a), WEIR_EHELD);
    assert_non_null(strstr(a.err.message, "r"));
    KIT_OK(k, kit_settle(k, l, r.id, second, STORE_END_RELEASE));
    KIT_OK(k, close_stream(k, "s-1", &a));
    assert_true(is_closed(k, "s-1"));
    kit_check(k);
}

static void C11_routed_events_hold_a_stream_open_until_handled(void **state)
{
    held_until_handled(*state, STORE_RULE_STREAM);
}

static void C11_events_of_a_constant_target_hold_a_stream_open(void **state)
{
    held_until_handled(*state, STORE_RULE_CONSTANT);
}

static void C11_events_of_a_category_target_hold_a_stream_open(void **state)
{
    held_until_handled(*state, STORE_RULE_CATEGORY);
}

static void C11_events_of_a_name_target_hold_a_stream_open(void **state)
{
    held_until_handled(*state, STORE_RULE_NAME);
}

static void C11_work_rows_hold_a_stream_open(void **state)
{
    held_until_handled(*state, STORE_RULE_WORK);
}

static void C11_only_its_own_events_hold_a_stream_open(void **state)
{
    kit *k = *state;
    kit_append a;
    /* One target for both streams, handled as far as s-1 goes. */
    const store_reaction r = kit_declare(k, "r", "A", "*", STORE_RULE_CONSTANT);
    const int64_t first = kit_put(k, "s-1", "A");
    kit_put(k, "s-2", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "all", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "all");
    KIT_OK(k, kit_settle(k, &l, r.id, first, STORE_END_RELEASE));
    KIT_OK(k, close_stream(k, "s-1", &a));
    KIT_IS(k, close_stream(k, "s-2", &a), WEIR_EHELD);
    /* $closed itself is nobody's work, although it is not routed yet. */
    kit_declare(k, "everything", "*", "s-1", STORE_RULE_STREAM);
    kit_put(k, "s-3", "B");
    KIT_OK(k, close_stream(k, "s-3", &a));
}

static void C11_retired_reactions_and_history_before_them_hold_nothing(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_put(k, "s", "A");
    store_reaction_declaration d = { .name = weir__str("late"),
                                     .source = weir__str("*"),
                                     .rule = STORE_RULE_STREAM,
                                     .rule_text = weir__str("x"),
                                     .start = STORE_START_NOW };
    store_reaction out = { 0 };
    KIT_OK(k, kit_declare_with(k, &d, "A", &out));
    kit_declare(k, "gone", "A", "*", STORE_RULE_STREAM);
    KIT_IS(k, close_stream(k, "s", &a), WEIR_EHELD);
    assert_null(strstr(a.err.message, "late"));
    KIT_OK(k, k->store->work->retire(k->store, weir__str("gone"), &k->err));
    KIT_OK(k, close_stream(k, "s", &a));
}

static void C11_closing_can_be_forced(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_declare(k, "r", "A", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    KIT_IS(k, close_stream(k, "s", &a), WEIR_EHELD);
    KIT_IS(k, close_with(k->store, "s", STORE_APPEND_FORCE, WEIR_EXPECT_EXACT, 4, &a),
           WEIR_ECONFLICT); /* forcing is not about the expectation */
    KIT_OK(k, close_with(k->store, "s", STORE_APPEND_FORCE, WEIR_EXPECT_EXACT, 0, &a));
    assert_true(is_closed(k, "s"));
    /* What was unhandled can still be handled. */
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    kit_lease_target(k, "lane", "s");
}

kit_theme kit_closing(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C11_closing_appends_a_last_event),
        KIT_TEST(C11_later_appends_are_refused_by_any_path),
        KIT_TEST(C11_closing_is_under_an_expectation),
        KIT_TEST(C11_closing_twice_changes_nothing),
        KIT_TEST(C11_a_stream_that_is_not_there_cannot_be_closed),
        KIT_TEST(C11_a_dry_run_judges_and_closes_nothing),
        KIT_TEST(C11_events_that_are_not_routed_yet_hold_a_stream_open),
        KIT_TEST(C11_routed_events_hold_a_stream_open_until_handled),
        KIT_TEST(C11_events_of_a_constant_target_hold_a_stream_open),
        KIT_TEST(C11_events_of_a_category_target_hold_a_stream_open),
        KIT_TEST(C11_events_of_a_name_target_hold_a_stream_open),
        KIT_TEST(C11_work_rows_hold_a_stream_open),
        KIT_TEST(C11_only_its_own_events_hold_a_stream_open),
        KIT_TEST(C11_retired_reactions_and_history_before_them_hold_nothing),
        KIT_TEST(C11_closing_can_be_forced),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
