/* target_test.c - what a target is by its row and its subscriptions, and the texts of its errors.
 *
 * Goal: every branch of target.c and error_text.c. Method: rows are made up; that the stores have
 * such rows, tests/conformance/ shows.
 */
#include "store/beyond.h"
#include "store/error_text.h"
#include "store/target.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

/* ---- state --------------------------------------------------------------------------------- */

static void the_first_state_that_holds_is_the_state(void **state)
{
    store_target t = {
        .leased_until_us = 101, .blocked = true, .paused = true, .due_us = 101, .behind = true
    };
    (void)state;
    assert_int_equal(weir__target_state(&t, false, 100), STORE_TARGET_LEASED);
    assert_int_equal(weir__target_state(&t, false, 101), STORE_TARGET_BLOCKED); /* it has ended */
    t.blocked = false;
    assert_int_equal(weir__target_state(&t, false, 101), STORE_TARGET_PAUSED);
    t.paused = false;
    assert_int_equal(weir__target_state(&t, true, 101), STORE_TARGET_PAUSED);
    t.due_us = 102;
    assert_int_equal(weir__target_state(&t, false, 101), STORE_TARGET_DEFERRED);
    assert_int_equal(weir__target_state(&t, false, 102), STORE_TARGET_READY);
    t.behind = false;
    assert_int_equal(weir__target_state(&t, false, 102), STORE_TARGET_IDLE);
}

static void the_watermark_is_the_least_that_is_behind_else_the_greatest(void **state)
{
    store_derived d = { .behind = false };
    (void)state;
    assert_false(d.behind);
    weir__derived_add(&d, 5, 5, -3);
    assert_true(!d.behind && d.watermark == 5 && d.priority == -3);
    weir__derived_add(&d, 9, 9, -4);
    assert_true(!d.behind && d.watermark == 9 && d.priority == -3);
    weir__derived_add(&d, 7, 8, 1);
    assert_true(d.behind && d.watermark == 7 && d.priority == 1);
    weir__derived_add(&d, 6, 8, 0);
    assert_true(d.behind && d.watermark == 6 && d.priority == 1);
    weir__derived_add(&d, 1, 1, 0); /* not behind: it does not count any more */
    assert_int_equal(d.watermark, 6);

    d = (store_derived){ .behind = true }; /* an event was sent back */
    weir__derived_add(&d, 5, 5, 0);
    weir__derived_add(&d, 9, 9, 0);
    assert_true(d.behind && d.watermark == 9);
}

/* ---- filters ------------------------------------------------------------------------------- */

static void a_filter_accepts_by_name_and_lane_and_names_a_range(void **state)
{
    const weir_str none = { .ptr = "" };
    store_target_filter f = { .lane = weir__str("fast") };
    store_pattern *pattern = NULL;
    (void)state;
    assert_true(weir__target_accepts(&f, weir__str("a"), weir__str("fast")));
    assert_false(weir__target_accepts(&f, weir__str("a"), weir__str("slow")));
    assert_false(weir__target_is_beyond(&f, weir__str("z")));
    assert_int_equal(weir__pattern_open(&pattern, weir__str("b-*"), NULL), WEIR_OK);
    f = (store_target_filter){ .match = pattern };
    assert_true(weir__target_accepts(&f, weir__str("b-1"), weir__str("slow")));
    assert_false(weir__target_accepts(&f, weir__str("c"), weir__str("slow")));
    assert_true(weir__str_equal(weir__target_range(&f, none), weir__str("b-")));
    assert_true(weir__str_equal(weir__target_range(&f, weir__str("b-5")), weir__str("b-5")));
    assert_false(weir__target_is_beyond(&f, weir__str("a")));
    assert_false(weir__target_is_beyond(&f, weir__str("b-9")));
    assert_true(weir__target_is_beyond(&f, weir__str("b.")));
    weir__pattern_close(pattern);
    assert_int_equal(weir__pattern_open(&pattern, weir__str("b-1"), NULL), WEIR_OK);
    f.match = pattern;
    assert_false(weir__target_is_beyond(&f, weir__str("b-1")));
    assert_true(weir__target_is_beyond(&f, weir__str("b-10")));
    weir__pattern_close(pattern);
}

static void names_are_sorted_and_each_is_kept_once(void **state)
{
    weir_str names[] = { weir__str("b"), weir__str("a"), weir__str("b"), weir__str("B") };
    (void)state;
    assert_int_equal(weir__names_sort(names, 4), 3);
    assert_true(weir__str_equal(names[0], weir__str("B")));
    assert_true(weir__str_equal(names[1], weir__str("a")));
    assert_true(weir__str_equal(names[2], weir__str("b")));
    assert_true(weir__names_contain(names, 3, weir__str("a")));
    assert_int_equal(weir__names_sort(NULL, 0), 0);
}

/* ---- operators' verbs ---------------------------------------------------------------------- */

static void a_verb_changes_what_is_not_so_yet(void **state)
{
    store_target t = { .paused = true, .prioritized = true, .priority = 3 };
    (void)state;
    assert_false(weir__verb_changes(&(store_operate){ .verb = STORE_PAUSE }, &t, false));
    assert_true(weir__verb_changes(&(store_operate){ .verb = STORE_RESUME }, &t, false));
    assert_false(weir__verb_changes(&(store_operate){ .verb = STORE_UNBLOCK }, &t, false));
    t.due_us = 1;
    assert_true(weir__verb_changes(&(store_operate){ .verb = STORE_UNBLOCK }, &t, false));
    assert_false(weir__verb_changes(&(store_operate){ .verb = STORE_UNBLOCK }, &t, true));
    store_operate op = { .verb = STORE_PRIORITIZE, .priority = 3 };
    assert_false(weir__verb_changes(&op, &t, false));
    op.priority = 4;
    assert_true(weir__verb_changes(&op, &t, false));
    op.clear = true;
    assert_true(weir__verb_changes(&op, &t, false));
    t.prioritized = false;
    assert_false(weir__verb_changes(&op, &t, false));
}

static void only_routing_blocks_at_an_event_without_an_attempt(void **state)
{
    (void)state;
    assert_true(weir__block_is_passed(true, true, 7, 0));
    assert_false(weir__block_is_passed(true, true, 7, 1));
    assert_false(weir__block_is_passed(true, false, 7, 0));
    assert_false(weir__block_is_passed(true, true, 0, 0));
    assert_false(weir__block_is_passed(false, true, 7, 0));
}

static void the_least_event_is_in_the_way_unless_a_block_names_another(void **state)
{
    store_obstacles o = { .least = { .found = false } };
    (void)state;
    assert_false(weir__obstacle_first(&o).found);
    weir__obstacle_add(&o, 9, 2, 1);
    weir__obstacle_add(&o, 8, 5, 2);
    weir__obstacle_add(&o, 8, 4, 3);
    weir__obstacle_add(&o, 8, 6, 4);
    store_obstacle first = weir__obstacle_first(&o);
    assert_true(first.found && first.event == 8 && first.reaction == 4 && first.attempts == 3);

    o = (store_obstacles){ .named = { .event = 9, .reaction = 2, .attempts = 7 } };
    weir__obstacle_add(&o, 8, 4, 3);
    assert_int_equal(weir__obstacle_first(&o).event, 8); /* what lies before is not handled */
    weir__obstacle_add(&o, 9, 3, 3);
    assert_int_equal(weir__obstacle_first(&o).event, 8);
    weir__obstacle_add(&o, 9, 2, 0);
    first = weir__obstacle_first(&o);
    assert_true(first.found && first.event == 9 && first.reaction == 2 && first.attempts == 7);
    assert_true(weir__str_equal(weir__skip_error(weir__str("why")), weir__str("why")));
    assert_true(weir__skip_error((weir_str){ 0 }).len > 0);
}

/* ---- texts of errors ----------------------------------------------------------------------- */

static void an_error_is_cut_between_characters(void **state)
{
    char text[STORE_ERROR_TEXT_BYTES_MAX + 8];
    (void)state;
    memset(text, 'e', sizeof text);
    weir_str all = { text, STORE_ERROR_TEXT_BYTES_MAX };
    assert_int_equal(weir__error_text_cut(all).len, STORE_ERROR_TEXT_BYTES_MAX);
    all.len = sizeof text;
    assert_int_equal(weir__error_text_cut(all).len, STORE_ERROR_TEXT_BYTES_MAX);
    for (size_t before = 0; before <= 4; before++) { /* of four bytes, so many still fit */
        memset(text, 'e', sizeof text);
        memcpy(text + STORE_ERROR_TEXT_BYTES_MAX - before, "\xf0\x9f\x98\x80", 4);
        assert_int_equal(weir__error_text_cut(all).len,
                         STORE_ERROR_TEXT_BYTES_MAX - (before < 4 ? before : 0));
    }
}

static void an_error_that_is_no_text_is_kept_with_question_marks(void **state)
{
    weir_arena arena = { 0 };
    (void)state;
    const weir_str text = { "a\0b\xff\xf0\x9f\x98\x80z", 9 };
    const weir_str kept = weir__error_text(&arena, text, 100);
    assert_int_equal(kept.len, 9);
    assert_memory_equal(kept.ptr, "a?b?\xf0\x9f\x98\x80z", 9);
    assert_int_equal(weir__error_text(&arena, text, 7).len, 4);
    assert_int_equal(weir__error_text(&arena, (weir_str){ 0 }, 7).len, 0);
    weir__arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_state_that_holds_is_the_state),
        cmocka_unit_test(the_watermark_is_the_least_that_is_behind_else_the_greatest),
        cmocka_unit_test(a_filter_accepts_by_name_and_lane_and_names_a_range),
        cmocka_unit_test(names_are_sorted_and_each_is_kept_once),
        cmocka_unit_test(a_verb_changes_what_is_not_so_yet),
        cmocka_unit_test(only_routing_blocks_at_an_event_without_an_attempt),
        cmocka_unit_test(the_least_event_is_in_the_way_unless_a_block_names_another),
        cmocka_unit_test(an_error_is_cut_between_characters),
        cmocka_unit_test(an_error_that_is_no_text_is_kept_with_question_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
