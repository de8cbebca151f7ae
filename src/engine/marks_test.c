/* marks_test.c - collecting marks: every (reaction, target, lane) has its own, however many there
 * are, and running out of memory is said. */
#include "base/str.h"
#include "engine/marks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { REACTIONS = 1000, TARGETS = 8 };

static bool add(mark_list *l, uint32_t reaction_index, store_rule rule, const char *target,
                const char *lane, int64_t event)
{
    const reaction_route route = { .target = weir__str(target),
                                   .lane = weir__str(lane),
                                   .priority = event };
    return weir__marks_add(l, reaction_index, rule, &route, event);
}

static void many_reactions_with_many_targets_do_not_meet(void **state)
{
    static const char *const targets[TARGETS] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    static bool seen[REACTIONS][TARGETS];
    weir_arena arena = { 0 };
    mark_list l = { .arena = &arena };
    int64_t event = 0;

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (size_t t = 0; t < TARGETS; t++) {
            event++;
            for (uint32_t r = 0; r < REACTIONS; r++) {
                assert_true(add(&l, r, STORE_RULE_STREAM, targets[t], "lane", event));
            }
        }
    }
    assert_int_equal(l.marks_count, REACTIONS * TARGETS);
    for (size_t i = 0; i < l.marks_count; i++) {
        const store_mark *m = &l.marks[i];
        const size_t t = (size_t)(m->target.ptr[0] - 'a');
        assert_false(seen[m->reaction_index][t]);
        seen[m->reaction_index][t] = true;
        assert_int_equal(m->first, t + 1);
        assert_int_equal(m->last, t + 1 + TARGETS);
        assert_int_equal(m->priority, m->last);
    }
    weir__arena_free(&arena);
}

static void another_lane_is_another_mark_and_work_is_never_merged(void **state)
{
    weir_arena arena = { 0 };
    mark_list l = { .arena = &arena };

    (void)state;
    assert_true(add(&l, 0, STORE_RULE_CONSTANT, "a", "x", 1));
    assert_true(add(&l, 0, STORE_RULE_CONSTANT, "a", "y", 2));
    assert_true(add(&l, 0, STORE_RULE_CONSTANT, "a", "x", 3));
    assert_int_equal(l.marks_count, 2);
    assert_true(add(&l, 1, STORE_RULE_WORK, "a", "x", 4));
    assert_true(add(&l, 1, STORE_RULE_WORK, "a", "x", 5));
    assert_int_equal(l.marks_count, 4);
    assert_int_equal(l.marks[3].first, 5);
    assert_int_equal(l.marks[3].last, 5);
    weir__arena_free(&arena);
}

static void running_out_of_memory_is_said(void **state)
{
    (void)state;
    for (size_t bytes_max = 0; bytes_max < 100000; bytes_max += 500) {
        weir_arena arena = { .bytes_max = bytes_max + 1 };
        mark_list l = { .arena = &arena };
        size_t marks = 0, parks = 0;
        char target[16];

        for (int i = 0; i < 1000; i++) {
            (void)snprintf(target, sizeof target, "t%d", i % 3);
            marks += add(&l, (uint32_t)i, STORE_RULE_STREAM, target, "lane", i + 1);
            parks += weir__marks_park(&l, 0, i + 1, weir__str("why"));
        }
        assert_int_equal(l.marks_count, marks);
        assert_int_equal(l.parks_count, parks);
        assert_true(marks < 1000 || parks < 1000);
        weir__arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_reactions_with_many_targets_do_not_meet),
        cmocka_unit_test(another_lane_is_another_mark_and_work_is_never_merged),
        cmocka_unit_test(running_out_of_memory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
