/* judge_test.c - what is decided alike for all stores, and how it is said.
 *
 * Goal: every branch of judge.c and refusal.c, without a store. Method: what a store would have
 * found is made up. That the stores find it, tests/conformance/ shows.
 */
#include "store/judge.h"
#include "store/refusal.h"

#include "base/error.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

/* ---- appends ------------------------------------------------------------------------------- */

static weir_status stream_judged(int32_t expect, int64_t wanted, int64_t version, weir_error *err)
{
    store_append_stream stream = { .name = weir__str("a-1"), .expect = expect, .version = wanted };
    const store_append append = { .streams = &stream, .streams_count = 1 };
    bool done = false;
    const weir_status status = weir__stream_judge(&append, 0, version, false, &done, err);
    assert_false(done);
    return status;
}

static void an_expectation_is_judged_by_the_last_version(void **state)
{
    weir_error err;
    (void)state;
    assert_int_equal(stream_judged(WEIR_EXPECT_ANY, 0, WEIR_VERSION_NONE, &err), WEIR_OK);
    assert_int_equal(stream_judged(WEIR_EXPECT_ANY, 0, 7, &err), WEIR_OK);
    assert_int_equal(stream_judged(WEIR_EXPECT_NONE, 0, WEIR_VERSION_NONE, &err), WEIR_OK);
    assert_int_equal(stream_judged(WEIR_EXPECT_EXISTS, 0, 0, &err), WEIR_OK);
    assert_int_equal(stream_judged(WEIR_EXPECT_EXACT, 7, 7, &err), WEIR_OK);

    assert_int_equal(stream_judged(WEIR_EXPECT_NONE, 0, 0, &err), WEIR_ECONFLICT);
    assert_int_equal(err.expected, WEIR_VERSION_NONE);
    assert_int_equal(err.actual, 0);
    assert_int_equal(stream_judged(WEIR_EXPECT_EXISTS, 0, WEIR_VERSION_NONE, &err), WEIR_ECONFLICT);
    assert_int_equal(err.expected, WEIR_VERSION_EXISTS);
    assert_int_equal(stream_judged(WEIR_EXPECT_EXACT, 7, 8, &err), WEIR_ECONFLICT);
    assert_int_equal(err.expected, 7);
    assert_int_equal(err.actual, 8);
    assert_string_equal(err.stream, "a-1");
    assert_int_equal(stream_judged(WEIR_EXPECT_EXACT, WEIR_VERSION_NONE, WEIR_VERSION_NONE, &err),
                     WEIR_ECONFLICT);
}

static void a_closed_stream_takes_nothing_but_being_closed_again(void **state)
{
    store_append_stream stream = { .name = weir__str("a-1"), .expect = WEIR_EXPECT_NONE };
    store_append append = { .streams = &stream, .streams_count = 1 };
    weir_error err;
    bool done = false;
    (void)state;
    assert_int_equal(weir__stream_judge(&append, 0, 3, true, &done, &err), WEIR_ECLOSED);
    assert_string_equal(err.stream, "a-1");
    assert_false(done);

    append.flags = STORE_APPEND_CLOSE;
    assert_int_equal(weir__stream_judge(&append, 0, 3, true, &done, &err), WEIR_OK);
    assert_true(done); /* whatever was expected */
    done = false;
    assert_int_equal(weir__stream_judge(&append, 0, WEIR_VERSION_NONE, false, &done, &err),
                     WEIR_ENOTFOUND);
    assert_int_equal(weir__stream_judge(&append, 0, 3, false, &done, &err), WEIR_ECONFLICT);
    assert_false(done);
    assert_true(weir__close_asks(&append, 0));
    append.flags |= STORE_APPEND_FORCE;
    assert_false(weir__close_asks(&append, 0));
}

static void a_key_belongs_to_one_stream_and_one_content(void **state)
{
    store_append_stream streams[] = { { .name = weir__str("a-1") }, { .name = weir__str("b-1") } };
    store_append append = { .streams = streams, .streams_count = 2, .key = weir__str("k") };
    store_key_change change = { .key = weir__str("mail"),
                                .stream_index = 1,
                                .change = WEIR_KEY_RESERVE };
    const weir_str none = { 0 };
    uint8_t other[WEIR_SHA256_BYTES] = { 1 };
    weir_str after = { 0 };
    weir_error err;
    (void)state;
    assert_int_equal(weir__key_judge(&append, (weir_str){ (char *)other, sizeof other }, &err),
                     WEIR_EKEYREUSED);
    memcpy(append.fingerprint, other, sizeof other);
    assert_int_equal(weir__key_judge(&append, (weir_str){ (char *)other, sizeof other }, &err),
                     WEIR_OK);
    assert_int_equal(weir__key_judge(&append, none, &err), WEIR_EKEYREUSED);

    assert_int_equal(weir__key_change_judge(&append, &change, none, &after, &err), WEIR_OK);
    assert_true(weir__str_equal(after, streams[1].name));
    assert_int_equal(weir__key_change_judge(&append, &change, streams[0].name, &after, &err),
                     WEIR_ETAKEN);
    assert_string_equal(err.stream, "a-1");
    change.change = WEIR_KEY_RELEASE;
    assert_int_equal(weir__key_change_judge(&append, &change, streams[1].name, &after, &err),
                     WEIR_OK);
    assert_int_equal(after.len, 0);
}

static void names_are_shown_as_far_as_there_is_room(void **state)
{
    char name[300];
    store_named names = { 0 };
    weir_error err;
    (void)state;
    memset(name, 'n', sizeof name);
    weir__named_add(&names, weir__str("charge"));
    weir__named_add(&names, weir__str("mail"));
    (void)weir__stream_unhandled(weir__str("a-1"), &names, &err);
    assert_string_equal(err.message,
                        "stream \"a-1\" has events that were not handled by: charge, mail");
    weir__named_add(&names, (weir_str){ name, sizeof name });
    weir__named_add(&names, weir__str("more"));
    (void)weir__stream_unhandled(weir__str("a-1"), &names, &err);
    assert_string_equal(err.message,
                        "stream \"a-1\" has events that were not handled by: charge, mail, ...");

    for (size_t len = 245; len < sizeof names.text + 10; len++) { /* around the edge */
        names = (store_named){ 0 };
        weir__named_add(&names, (weir_str){ name, len });
        assert_int_equal(names.len, names.is_cut ? 253 : len);
        weir__named_add(&names, weir__str("x"));
        weir__named_add(&names, weir__str("y"));
        assert_true(names.len <= sizeof names.text);
    }
}

/* ---- leases -------------------------------------------------------------------------------- */

static void a_lease_is_held_by_fence_and_log(void **state)
{
    const store_fenced held = { .fence = 4, .token = 9 };
    weir_error err;
    (void)state;
    assert_int_equal(weir__fence_judge(&held, 4, true, 9, &err), WEIR_OK);
    assert_int_equal(weir__fence_judge(&held, 5, true, 9, &err), WEIR_ELOST);
    assert_string_equal(err.message, "the lease is lost: fence 4, the target is at 5");
    assert_int_equal(weir__fence_judge(&held, 4, false, 9, &err), WEIR_ELOST);
    assert_int_equal(weir__fence_judge(&held, 4, true, 8, &err), WEIR_ELOST);
    assert_int_equal(weir__fence_judge(&(store_fenced){ .fence = 4 }, 4, true, 8, &err), WEIR_OK);
}

static void a_router_has_its_lease_until_another_may_take_it(void **state)
{
    store_reaction r = { .router_fence = 3, .router_until_us = 100 };
    (void)state;
    assert_int_equal(weir__router_judge(&r, 3, 10, 50), ROUTER_GOES_ON);
    assert_int_equal(weir__router_judge(&r, 3, 10, 200), ROUTER_GOES_ON); /* late, not followed */
    assert_int_equal(weir__router_judge(&r, 0, 10, 50), ROUTER_STAYS);
    assert_int_equal(weir__router_judge(&r, 2, 10, 100), ROUTER_BEGINS);
    assert_int_equal(weir__router_judge(&r, 3, 0, 50), ROUTER_ENDS);
    assert_int_equal(weir__router_judge(&r, 2, 0, 50), ROUTER_STAYS);
    r.retired = true;
    assert_int_equal(weir__router_judge(&r, 3, 10, 50), ROUTER_STAYS);
    assert_int_equal(weir__router_judge(&r, 3, 0, 50), ROUTER_ENDS);
    r = (store_reaction){ .router_fence = 3 };
    assert_int_equal(weir__router_judge(&r, 3, 10, 50), ROUTER_BEGINS); /* it was given back */
    assert_int_equal(weir__router_judge(&r, 3, 0, 50), ROUTER_STAYS);
}

/* ---- reactions ----------------------------------------------------------------------------- */

static void a_definition_is_new_or_the_one_that_it_was(void **state)
{
    store_reaction_declaration d = { .redeclare = false };
    store_reaction r = { .current = 3 };
    (void)state;
    assert_int_equal(weir__declared_number(&d, &r, 3), 3);
    assert_int_equal(weir__declared_number(&d, &r, 0), 4);
    assert_int_equal(weir__declared_number(&d, &r, 2), 2); /* an older process */
    d.redeclare = true;
    assert_int_equal(weir__declared_number(&d, &r, 2), 4);
    assert_int_equal(weir__declared_number(&d, &r, 3), 3);
    d.redeclare = false;
    r.retired = true;
    assert_int_equal(weir__declared_number(&d, &r, 2), 4);
}

static void a_step_goes_on_where_the_reaction_is(void **state)
{
    const store_route_step step = { .reaction = 1, .number = 2, .from = 10, .to = 20 };
    store_reaction r = { .name = weir__str("r"), .current = 2, .routed = 10 };
    (void)state;
    assert_int_equal(weir__step_judge(&step, &r, NULL), WEIR_OK);
    assert_int_equal(weir__step_judge(&step, NULL, NULL), WEIR_ECONFLICT);
    r.routed = 20;
    assert_int_equal(weir__step_judge(&step, &r, NULL), WEIR_ECONFLICT);
    r.routed = 10;
    r.current = 3;
    assert_int_equal(weir__step_judge(&step, &r, NULL), WEIR_ECONFLICT);
    r.current = 2;
    r.retired = true;
    assert_int_equal(weir__step_judge(&step, &r, NULL), WEIR_ECONFLICT);
}

static void a_mark_counts_once(void **state)
{
    const store_mark mark = { .first = 11, .last = 15, .priority = 2 };
    store_routed sub = { 0 };
    (void)state;
    assert_true(weir__mark_counts(&mark, &sub, STORE_RULE_STREAM, 0));
    sub = (store_routed){ .found = true, .at = 15, .mark = 15 };
    assert_false(weir__mark_counts(&mark, &sub, STORE_RULE_STREAM, 0));
    sub.at = 14;
    assert_true(weir__mark_counts(&mark, &sub, STORE_RULE_STREAM, 0));
    assert_true(weir__mark_counts(&mark, &sub, STORE_RULE_WORK, 14));
    assert_false(weir__mark_counts(&mark, &sub, STORE_RULE_WORK, 15)); /* it had them */
    sub.was_reset = true;
    assert_true(weir__mark_counts(&mark, &sub, STORE_RULE_WORK, 15));
}

static void a_raised_mark_steps_over_no_event(void **state)
{
    const store_mark mark = { .first = 11, .last = 15, .priority = 2 };
    store_routed sub = { 0 };
    (void)state;
    weir__mark_raise(&mark, &sub); /* a new one begins before what was found */
    assert_true(sub.found && sub.at == 10 && sub.mark == 15 && sub.priority == 2);
    sub = (store_routed){ .found = true, .at = 5, .mark = 5 }; /* an idle one follows the log */
    weir__mark_raise(&mark, &sub);
    assert_true(sub.at == 10 && sub.mark == 15);
    sub = (store_routed){ .found = true, .at = 5, .mark = 8 }; /* one with work does not */
    weir__mark_raise(&mark, &sub);
    assert_true(sub.at == 5 && sub.mark == 15);
    sub = (store_routed){ .found = true, .at = 13, .mark = 30 };
    weir__mark_raise(&mark, &sub);
    assert_true(sub.at == 13 && sub.mark == 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_expectation_is_judged_by_the_last_version),
        cmocka_unit_test(a_closed_stream_takes_nothing_but_being_closed_again),
        cmocka_unit_test(a_key_belongs_to_one_stream_and_one_content),
        cmocka_unit_test(names_are_shown_as_far_as_there_is_room),
        cmocka_unit_test(a_lease_is_held_by_fence_and_log),
        cmocka_unit_test(a_router_has_its_lease_until_another_may_take_it),
        cmocka_unit_test(a_definition_is_new_or_the_one_that_it_was),
        cmocka_unit_test(a_step_goes_on_where_the_reaction_is),
        cmocka_unit_test(a_mark_counts_once),
        cmocka_unit_test(a_raised_mark_steps_over_no_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
