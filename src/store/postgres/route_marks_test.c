/* route_marks_test.c - which marks are put together, and what is left of each. */
#include "store/postgres/route_marks.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TEXT_BYTES = 256 };

static store_mark mark(uint32_t reaction, const char *target, int64_t first, int64_t last)
{
    return (store_mark){ .reaction_index = reaction,
                         .target = weir__str(target),
                         .lane = weir__str("l"),
                         .first = first,
                         .last = last };
}

/* Names, then marks as REACTION:NAME/ROUND FIRST-LAST, then events as MARK:EVENT. */
static void assert_put_together(const store_mark *marks, size_t count, const char *expected)
{
    char got[TEXT_BYTES] = "";
    size_t len = 0;
    weir_arena arena = { 0 };
    pg_route_marks m;
    assert_true(weir__pg_route_marks(marks, count, &arena, &m));
    for (size_t i = 0; i < m.names_count; i++) {
        len += (size_t)snprintf(got + len, sizeof got - len, "%.*s ", (int)m.names[i].len,
                                m.names[i].ptr);
    }
    for (size_t i = 0; i < m.marks_count; i++) {
        const pg_route_mark *k = &m.marks[i];
        assert_int_equal(k->begin->reaction_index, k->end->reaction_index);
        assert_true(weir__str_equal(k->begin->target, m.names[k->name]));
        assert_true(weir__str_equal(k->end->target, m.names[k->name]));
        len += (size_t)snprintf(got + len, sizeof got - len, "| %u:%u/%u %lld-%lld ",
                                (unsigned)k->begin->reaction_index, (unsigned)k->name,
                                (unsigned)k->round, (long long)k->begin->first,
                                (long long)k->end->last);
    }
    for (size_t i = 0; i < m.events_count; i++) {
        len += (size_t)snprintf(got + len, sizeof got - len, "%s%u:%lld", i == 0 ? "| " : " ",
                                (unsigned)m.events[i].mark, (long long)m.events[i].event);
    }
    assert_true(len < sizeof got);
    assert_string_equal(got, expected);
    weir__arena_free(&arena);
}

static void no_marks_are_none(void **state)
{
    (void)state;
    assert_put_together(NULL, 0, "");
}

static void events_of_a_subscription_are_one_mark(void **state)
{
    (void)state;
    store_mark marks[] = { mark(0, "b", 1, 1), mark(0, "a", 2, 2), mark(0, "b", 3, 3),
                           mark(1, "b", 3, 3), mark(0, "b", 4, 4) };
    marks[0].priority = 7;
    marks[4].priority = 2;
    assert_put_together(marks, 5, "a b | 0:1/0 1-4 | 0:0/0 2-2 | 1:1/0 3-3 | 0:1 1:2 0:3 2:3 0:4");

    weir_arena arena = { 0 };
    pg_route_marks m;
    assert_true(weir__pg_route_marks(marks, 5, &arena, &m));
    assert_ptr_equal(m.marks[0].begin, &marks[0]);
    assert_ptr_equal(m.marks[0].end, &marks[4]); /* the last gives priority, source and value */
    weir__arena_free(&arena);
}

static void an_event_that_is_found_twice_is_there_once(void **state)
{
    (void)state;
    const store_mark marks[] = { mark(0, "t", 5, 5), mark(0, "t", 5, 5), mark(0, "t", 6, 6) };
    assert_put_together(marks, 3, "t | 0:0/0 5-6 | 0:5 0:6");
}

/* A run of events is no list of them; what comes before another in the log cannot follow it. */
static void what_cannot_be_put_together_follows_in_rounds(void **state)
{
    (void)state;
    const store_mark marks[] = { mark(0, "t", 1, 4), mark(0, "t", 5, 5), mark(0, "t", 6, 6),
                                 mark(0, "t", 2, 2), mark(0, "u", 2, 2), mark(0, "t", 3, 3),
                                 mark(0, "t", 7, 9) };
    assert_put_together(marks, 7,
                        "t u | 0:0/0 1-4 | 0:0/1 5-6 | 0:0/2 2-3 | 0:1/0 2-2 | 0:0/3 7-9 "
                        "| 1:5 1:6 2:2 3:2 2:3");
}

/* Whichever of its marks is refused, it has an index of its own. */
static void a_target_with_two_lanes_keeps_its_marks_apart(void **state)
{
    (void)state;
    store_mark marks[] = { mark(0, "t", 1, 1), mark(0, "u", 2, 2), mark(0, "t", 3, 3),
                           mark(1, "t", 4, 4), mark(0, "u", 5, 5) };
    marks[3].lane = weir__str("other");
    assert_put_together(
        marks, 5, "t u | 0:0/0 1-1 | 0:1/0 2-5 | 0:0/1 3-3 | 1:0/0 4-4 | 0:1 1:2 2:3 3:4 1:5");
}

static void names_are_in_the_order_of_their_bytes(void **state)
{
    (void)state;
    const store_mark marks[] = { mark(0, "\xc3\xa4", 1, 1), mark(0, "t-1", 2, 2),
                                 mark(0, "t-10", 3, 3), mark(0, "T", 4, 4), mark(0, "t", 5, 5) };
    assert_put_together(marks, 5,
                        "T t t-1 t-10 \xc3\xa4 | 0:4/0 1-1 | 0:2/0 2-2 | 0:3/0 3-3 | 0:0/0 4-4 "
                        "| 0:1/0 5-5 | 0:1 1:2 2:3 3:4 4:5");
}

static void a_page_of_few_targets_is_few_marks(void **state)
{
    enum { COUNT = 4096, TARGETS = 100, NAME_BYTES = 16 };
    static store_mark marks[COUNT];
    static char names[TARGETS][NAME_BYTES];
    weir_arena arena = { 0 };
    pg_route_marks m;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char *name = names[i * 7 % TARGETS];
        (void)snprintf(name, NAME_BYTES, "customer-%d", i * 7 % TARGETS);
        marks[i] = mark(0, name, i + 1, i + 1);
    }
    assert_true(weir__pg_route_marks(marks, COUNT, &arena, &m));
    assert_int_equal(m.names_count, TARGETS);
    assert_int_equal(m.marks_count, TARGETS);
    assert_int_equal(m.events_count, COUNT);
    for (size_t i = 1; i < TARGETS; i++) {
        assert_true(weir__str_compare(m.names[i - 1], m.names[i]) < 0);
        assert_true(m.marks[i - 1].begin < m.marks[i].begin);
    }
    weir__arena_free(&arena);
}

static void without_memory_nothing_is_put_together(void **state)
{
    (void)state;
    const store_mark marks[] = { mark(0, "t", 5, 5) };
    weir_arena arena = { 0 };
    pg_route_marks m;
    weir__memory_fail_nth(1);
    assert_false(weir__pg_route_marks(marks, 1, &arena, &m));
    assert_true(weir__memory_failed());
    assert_true(weir__pg_route_marks(marks, 1, &arena, &m));
    weir__arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_marks_are_none),
        cmocka_unit_test(events_of_a_subscription_are_one_mark),
        cmocka_unit_test(an_event_that_is_found_twice_is_there_once),
        cmocka_unit_test(what_cannot_be_put_together_follows_in_rounds),
        cmocka_unit_test(a_target_with_two_lanes_keeps_its_marks_apart),
        cmocka_unit_test(names_are_in_the_order_of_their_bytes),
        cmocka_unit_test(a_page_of_few_targets_is_few_marks),
        cmocka_unit_test(without_memory_nothing_is_put_together),
    };
    return cmocka_run_group_tests_name("pg_route_marks", tests, NULL, NULL);
}
