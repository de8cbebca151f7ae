/* names.c - C01 to C04: names, values, 64-bit numbers and time are the same on every store.
 *
 * What is kept above the port (names, JSON, limits) is tried through the request a public call
 * becomes, and then looked for in the store: a refusal must not have written anything.
 */
#include "kit.h"
#include "store/seed.h"

#include <stdlib.h>

static weir_status append_named(kit *k, weir_str stream, weir_str name)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = stream, .name = name };
    const weir_new_event *events[] = { &event };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    return kit_request(k, &r);
}

static weir_status append_keyed(kit *k, weir_str key, weir_str reserved)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("N") };
    const weir_new_event *events[] = { &event };
    const weir_key_change change = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE,
                                     .key = reserved, .stream = weir__str("s") };
    const weir_key_change *changes[] = { &change };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT,
                                    .events = events,
                                    .events_count = 1,
                                    .key_changes = changes,
                                    .key_changes_count = reserved.ptr == NULL ? 0 : 1,
                                    .key = key };
    return kit_request(k, &r);
}

static weir_status append_json(kit *k, weir_str data, weir_str meta)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("N"), .data = data, .meta = meta };
    const weir_new_event *events[] = { &event };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .correlation = weir__str("c") };
    return kit_request(k, &r);
}

/* ---- C01 ---------------------------------------------------------------------------------- */

static void C01_names_have_1_to_512_bytes(void **state)
{
    kit *k = *state;
    char name[STORE_NAME_BYTES_MAX + 1];
    memset(name, 'n', sizeof name);
    const weir_str longest = { .ptr = name, .len = STORE_NAME_BYTES_MAX };
    const weir_str too_long = { .ptr = name, .len = STORE_NAME_BYTES_MAX + 1 };
    const weir_str empty = { .ptr = "", .len = 0 };
    const weir_str fine = weir__str("fine");

    KIT_IS(k, append_named(k, too_long, fine), WEIR_EINVAL);
    KIT_IS(k, append_named(k, fine, too_long), WEIR_EINVAL);
    KIT_IS(k, append_named(k, empty, fine), WEIR_EINVAL);
    KIT_IS(k, append_named(k, fine, empty), WEIR_EINVAL);
    KIT_IS(k, append_keyed(k, too_long, fine), WEIR_EINVAL);
    KIT_IS(k, append_keyed(k, fine, too_long), WEIR_EINVAL);
    KIT_IS(k, append_keyed(k, fine, empty), WEIR_EINVAL);
    assert_int_equal(kit_head(k), 0);

    KIT_OK(k, append_named(k, longest, longest));
    KIT_OK(k, append_keyed(k, longest, longest));
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 2);
    assert_true(weir__str_equal(log.events[0].stream, longest));
    assert_true(weir__str_equal(log.events[0].name, longest));
}

static void C01_names_are_utf8_without_control_characters(void **state)
{
    kit *k = *state;
    static const weir_str bad[] = {
        { "a\0b", 3 },     { "a\nb", 3 },         { "\x1f", 1 },
        { "a\x7f", 2 },    { "\xff", 1 },         { "a\xc3", 2 },
        { "\xc0\xaf", 2 }, { "\xed\xa0\x80", 3 }, { "\xf4\x90\x80\x80", 4 },
        { "\xe2\x82", 2 },
    };
    const weir_str fine = weir__str("fine");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        KIT_IS(k, append_named(k, bad[i], fine), WEIR_EINVAL);
        KIT_IS(k, append_named(k, fine, bad[i]), WEIR_EINVAL);
        KIT_IS(k, append_keyed(k, bad[i], fine), WEIR_EINVAL);
        KIT_IS(k, append_keyed(k, fine, bad[i]), WEIR_EINVAL);
        KIT_IS(k, weir__name_check("lane", bad[i], false, &k->err), WEIR_EINVAL);
    }
    assert_int_equal(kit_head(k), 0);
    const weir_str umlaut = weir__str("bestellung-\xc3\xa4-\xe2\x82\xac-\xf0\x9f\x98\x80");
    KIT_OK(k, append_named(k, umlaut, umlaut));
    assert_true(weir__str_equal(kit_log(k).events[0].stream, umlaut));
}

static void C01_names_with_a_dollar_are_weirs_own(void **state)
{
    kit *k = *state;
    const weir_str own = weir__str("$closed");
    const weir_str fine = weir__str("fine");
    KIT_IS(k, append_named(k, own, fine), WEIR_EINVAL);
    KIT_IS(k, append_named(k, fine, own), WEIR_EINVAL);
    KIT_IS(k, append_keyed(k, own, fine), WEIR_EINVAL);
    KIT_IS(k, append_keyed(k, fine, own), WEIR_EINVAL);
    static const char *const kinds[] = { "lane", "target", "reaction" };
    for (size_t i = 0; i < 3; i++) {
        KIT_IS(k, weir__name_check(kinds[i], own, false, &k->err), WEIR_EINVAL);
        KIT_OK(k, weir__name_check(kinds[i], own, true, &k->err));
        KIT_OK(k, weir__name_check(kinds[i], fine, false, &k->err));
    }
    assert_int_equal(kit_head(k), 0);
    KIT_OK(k, append_named(k, weir__str("a$b"), fine)); /* only at the beginning */
}

static void C01_the_message_has_the_offending_name(void **state)
{
    kit *k = *state;
    KIT_IS(k, append_named(k, weir__str("$mine"), weir__str("N")), WEIR_EINVAL);
    assert_non_null(strstr(k->err.message, "$mine"));
    KIT_IS(k, append_named(k, weir__str("s"), weir__str("bad\tname")), WEIR_EINVAL);
    assert_non_null(strstr(k->err.message, "bad"));
    assert_null(strchr(k->err.message, '\t'));
}

/* ---- C02 ---------------------------------------------------------------------------------- */

static void C02_what_is_not_json_is_refused_before_anything_is_written(void **state)
{
    kit *k = *state;
    static const weir_str bad[] = {
        { "{", 1 },
        { "{\"a\":}", 6 },
        { "nul", 3 },
        { "01", 2 },
        { "1 2", 3 },
        { "'a'", 3 },
        { "[1,]", 4 },
        { "\"a\nb\"", 5 },
        { "{}\0", 3 },
        { "\"\0\"", 3 },
        { "\"\\u0000\"", 8 },
        { "\"\\ud800\"", 8 },
        { "\"\\udc00\\ud800\"", 14 },
        { "\"\xff\"", 3 },
        { "\"\\x\"", 4 },
        { "NaN", 3 },
        { "+1", 2 },
        { ".5", 2 },
        { "1.", 2 },
        { "\xef\xbb\xbf{}", 5 },
    };
    const weir_str none = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        KIT_IS(k, append_json(k, bad[i], none), WEIR_EINVAL);
        KIT_IS(k, append_json(k, none, bad[i]), WEIR_EINVAL);
    }
    KIT_IS(k, append_json(k, weir__str("{\"abc\":tru}"), none), WEIR_EINVAL);
    assert_non_null(strstr(k->err.message, "byte"));
    assert_int_equal(kit_head(k), 0);
}

static void C02_meta_is_an_object_and_data_is_any_json(void **state)
{
    kit *k = *state;
    static const char *const any[] = { "null", "true", "7", "\"text\"", "[1,2]", "{\"a\":1}" };
    const weir_str none = { 0 };
    for (size_t i = 0; i < 6; i++) {
        KIT_OK(k, append_json(k, weir__str(any[i]), none));
        if (i < 5) {
            KIT_IS(k, append_json(k, none, weir__str(any[i])), WEIR_EINVAL);
        }
    }
    KIT_OK(k, append_json(k, none, none));
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 7);
    for (size_t i = 0; i < 6; i++) {
        KIT_STR(log.events[i].data, any[i]);
    }
    KIT_STR(log.events[6].data, "{}");
}

static void C02_only_white_space_outside_strings_is_removed(void **state)
{
    kit *k = *state;
    const weir_str data =
        weir__str("{\n  \"b\" : 1.50e+02 ,\t\"a\" : \" x \\u00e9 \\/ \" ,\r\n"
                  "  \"b\" : [ 1 , -0 , 1234567890123456789012345678901234567890 ] }");
    const weir_str meta = weir__str(" { \"z\" : 1 , \"a\" : 2 } ");
    KIT_OK(k, append_json(k, data, meta));
    const kit_events log = kit_log(k);
    KIT_STR(log.events[0].data, "{\"b\":1.50e+02,\"a\":\" x \\u00e9 \\/ \","
                                "\"b\":[1,-0,1234567890123456789012345678901234567890]}");
    /* What Weir adds comes last. */
    KIT_STR(log.events[0].meta, "{\"z\":1,\"a\":2,\"correlation\":\"c\"}");
}

static void C02_nesting_ends_at_128(void **state)
{
    kit *k = *state;
    char text[2 * 129];
    const weir_str none = { 0 };
    memset(text, '[', 129);
    memset(text + 129, ']', 129);
    KIT_IS(k, append_json(k, (weir_str){ .ptr = text, .len = sizeof text }, none), WEIR_EINVAL);
    assert_int_equal(kit_head(k), 0);
    KIT_OK(k, append_json(k, (weir_str){ .ptr = text + 1, .len = sizeof text - 2 }, none));
    assert_int_equal(kit_log(k).events[0].data.len, 256);
}

static void C02_a_payload_over_the_limit_is_refused(void **state)
{
    kit *k = *state;
    const size_t limit = STORE_PAYLOAD_BYTES_DEFAULT;
    char *text = malloc(limit + 1);
    assert_non_null(text);
    memset(text, 'x', limit + 1);
    text[0] = '"';
    text[limit] = '"';
    const weir_str none = { 0 };
    KIT_IS(k, append_json(k, (weir_str){ .ptr = text, .len = limit + 1 }, none), WEIR_EINVAL);
    assert_int_equal(kit_head(k), 0);
    text[limit - 1] = '"';
    KIT_OK(k, append_json(k, (weir_str){ .ptr = text, .len = limit }, none));
    const kit_events log = kit_log(k);
    assert_int_equal(log.events[0].data.len, limit);
    assert_memory_equal(log.events[0].data.ptr, text, limit);
    free(text);
}

/* ---- C03 ---------------------------------------------------------------------------------- */

/* Everything that carries a position or a version, just before and after `base`. */
static void numbers_past(kit *k, int64_t base)
{
    KIT_OK(k, weir__store_seed(k->store, base - 2, base - 2, &k->err));
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(kit_put(k, "big-1", "N"), base - 1 + i);
    }
    kit_append a;
    KIT_OK(k, kit_try(k->store, "big-1", WEIR_EXPECT_EXACT, base, &a));
    assert_int_equal(a.streams[0].last, base + 1);
    assert_int_equal(a.streams[0].id, base + 2);
    KIT_IS(k, kit_try(k->store, "big-1", WEIR_EXPECT_EXACT, base, &a), WEIR_ECONFLICT);
    assert_int_equal(a.err.expected, base);
    assert_int_equal(a.err.actual, base + 1);
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 4);
    assert_int_equal(log.events[3].id, base + 2);
    assert_int_equal(log.events[3].version, base + 1);
    const store_log_query after = { .after = base, .to = INT64_MAX, .limit = 10 };
    assert_int_equal(kit_read_log(k, k->store, &after).count, 2);

    KIT_OK(k, kit_route(k, k->store, "r", "t-", "lane", 0));
    const store_leased l = kit_lease_target(k, "lane", "t-big-1");
    assert_int_equal(l.subscriptions[0].mark, base + 2);
    int64_t ids[8];
    assert_int_equal(kit_fetch(k, l.target, r.id, l.subscriptions[0].at, base + 2, ids, 8), 4);
    assert_int_equal(ids[3], base + 2);
    KIT_OK(k, kit_settle(k, &l, r.id, base + 1, STORE_END_RELEASE));
    kit_reopen(k);
    assert_int_equal(kit_target(k, "t-big-1")->watermark, base + 1);
    assert_int_equal(kit_reaction(k, "r").routed, base + 2);
    const store_snapshot put = { .stream = weir__str("big-1"),
                                 .revision = weir__str("1"),
                                 .version = base + 1,
                                 .data = weir__str("state") };
    store_snapshot got = { 0 };
    KIT_OK(k, k->store->log->snapshot_put(k->store, &put, &k->err));
    KIT_OK(k, k->store->log->snapshot_get(k->store, put.stream, put.revision, base + 1, &k->arena,
                                          &got, &k->err));
    assert_int_equal(got.version, base + 1);
}

static void C03_numbers_go_past_2_to_the_31(void **state)
{
    numbers_past(*state, INT64_C(1) << 31);
}

static void C03_numbers_go_past_2_to_the_32(void **state)
{
    numbers_past(*state, INT64_C(1) << 32);
}

static void C03_numbers_go_past_2_to_the_53(void **state)
{
    numbers_past(*state, INT64_C(1) << 53);
}

/* ---- C04 ---------------------------------------------------------------------------------- */

static void C04_time_is_in_microseconds_and_never_goes_back(void **state)
{
    kit *k = *state;
    const int64_t before = kit_now(k);
    assert_int_equal(before, atomic_load(&k->wall_us));
    kit_advance(k, 1);
    assert_int_equal(kit_now(k), before + 1);
    kit_put(k, "s", "A");
    kit_wall_jump(k, -INT64_C(3600) * 1000 * 1000);
    assert_true(kit_now(k) >= before + 1);
    kit_put(k, "s", "B");
    weir_store *other = kit_open(k); /* which has never seen the later time itself */
    int64_t now_us = 0;
    KIT_OK(k, other->about->now(other, &now_us, &k->err));
    assert_true(now_us >= before + 1);
    kit_reopen(k);
    kit_put(k, "s", "C");
    const kit_events log = kit_log(k);
    assert_int_equal(log.events[0].created_us, before + 1);
    assert_true(log.events[1].created_us >= log.events[0].created_us);
    assert_true(log.events[2].created_us >= log.events[1].created_us);
}

static void C04_a_clock_set_back_does_not_stretch_a_lease(void **state)
{
    kit *k = *state;
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    kit_lease_target(k, "lane", "s");
    kit_wall_jump(k, -INT64_C(3600) * 1000 * 1000);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_advance(k, KIT_LEASE_US); /* the time of a lease passes, whatever the wall clock says */
    kit_lease_target(k, "lane", "s");
}

/* One process, or one moment, whose time of day is three days ahead: store time goes on from there,
 * but keys are as old as they are. */
static void C04_a_wall_clock_ahead_expires_no_keys(void **state)
{
    kit *k = *state;
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("A") };
    const weir_new_event *events[] = { &event };
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                              .key = weir__str("key") };
    const int64_t days_us = INT64_C(3) * 24 * 3600 * 1000000;
    KIT_OK(k, kit_request(k, &r));
    kit_wall_jump(k, days_us);
    r.key = weir__str("other key");
    KIT_OK(k, kit_request(k, &r)); /* which removes what has expired */
    r.key = weir__str("key");
    KIT_OK(k, kit_request(k, &r));
    kit_wall_jump(k, -days_us);
    KIT_OK(k, kit_request(k, &r));
    assert_int_equal(kit_version(k, "s"), 1); /* each was appended once */
    kit_advance(k, days_us);
    KIT_OK(k, kit_request(k, &r));
    assert_int_equal(kit_version(k, "s"), 2); /* and has expired when its time has passed */
}

static void C04_the_time_of_an_append_is_one_for_all_its_events(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_append_init(&a);
    const uint32_t x = kit_append_stream(&a, "x", WEIR_EXPECT_ANY, 0);
    const uint32_t y = kit_append_stream(&a, "y", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, x, "A", "{}");
    kit_append_event(&a, y, "B", "{}");
    kit_append_event(&a, x, "C", "{}");
    KIT_OK(k, kit_append_run(k->store, &a));
    const kit_events log = kit_log(k);
    assert_int_equal(log.events[0].created_us, log.events[1].created_us);
    assert_int_equal(log.events[0].created_us, log.events[2].created_us);
    assert_int_equal(log.events[0].created_us, atomic_load(&k->wall_us));
}

kit_theme kit_names(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C01_names_have_1_to_512_bytes),
        KIT_TEST(C01_names_are_utf8_without_control_characters),
        KIT_TEST(C01_names_with_a_dollar_are_weirs_own),
        KIT_TEST(C01_the_message_has_the_offending_name),
        KIT_TEST(C02_what_is_not_json_is_refused_before_anything_is_written),
        KIT_TEST(C02_meta_is_an_object_and_data_is_any_json),
        KIT_TEST(C02_only_white_space_outside_strings_is_removed),
        KIT_TEST(C02_nesting_ends_at_128),
        KIT_TEST(C02_a_payload_over_the_limit_is_refused),
        KIT_TEST(C03_numbers_go_past_2_to_the_31),
        KIT_TEST(C03_numbers_go_past_2_to_the_32),
        KIT_TEST(C03_numbers_go_past_2_to_the_53),
        KIT_TEST(C04_the_time_of_an_append_is_one_for_all_its_events),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

kit_theme kit_kept_time(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C04_time_is_in_microseconds_and_never_goes_back),
        KIT_TEST(C04_a_clock_set_back_does_not_stretch_a_lease),
        KIT_TEST(C04_a_wall_clock_ahead_expires_no_keys),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
