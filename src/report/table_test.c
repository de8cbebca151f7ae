/* table_test.c - columns that line up, in pieces too, and cells that cannot steer a terminal. */
#include "report/report.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void add(report_table *t, const char *name, int64_t number, const char *text)
{
    const report_field fields[] = {
        { .name = "name", .type = REPORT_STR, .text = weir__str(name) },
        { .name = "hidden",
          .type = REPORT_STR,
          .text = weir__str("no"),
          .flags = REPORT_JSON_ONLY },
        { .name = "a_number", .type = REPORT_I64, .number = number },
        { .name = "last", .type = REPORT_STR, .text = weir__str(text) },
    };

    assert_true(weir__report_table_row(t, fields, sizeof fields / sizeof fields[0]));
}

static void expect_text(report_table *t, const char *expected)
{
    weir_buffer out = { 0 };

    assert_true(weir__report_table_flush(t, &out));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, expected);
    weir__buffer_free(&out);
}

static void columns_line_up_and_numbers_stand_right(void **state)
{
    (void)state;
    report_table t = { 0 };
    add(&t, "a", 5, "x");
    add(&t, "l\xc3\xa4nger", -12, "y"); /* two bytes, one column */
    expect_text(&t, "NAME    A NUMBER  LAST\n"
                    "a              5  x\n"
                    "l\xc3\xa4nger       -12  y\n");
    weir__report_table_free(&t);
}

static void later_rows_stand_under_the_first_ones_and_grow_a_column_when_they_must(void **state)
{
    (void)state;
    report_table t = { 0 };
    add(&t, "abc", 1, "x");
    expect_text(&t, "NAME  A NUMBER  LAST\n"
                    "abc          1  x\n");
    expect_text(&t, "");
    add(&t, "a", 2, "y");
    expect_text(&t, "a            2  y\n");
    add(&t, "abcdefgh", 3, "z");
    expect_text(&t, "abcdefgh         3  z\n");
    weir__report_table_free(&t);
}

static void control_characters_and_nulls_are_shown_harmlessly(void **state)
{
    (void)state;
    report_table t = { 0 };
    add(&t, "\x1b[31m", 1,
        "\xc2\x9b"
        "31m\x7f");
    add(&t, NULL, 2, "");
    expect_text(&t, "NAME   A NUMBER  LAST\n"
                    "?[31m         1  ?"
                    "?31m?\n"
                    "-             2  \n");
    weir__report_table_free(&t);
}

static void wide_and_combining_characters_take_the_columns_they_are_shown_in(void **state)
{
    (void)state;
    report_table t = { 0 };
    add(&t, "\xe6\x97\xa5\xe6\x9c\xac", 1, "x"); /* two characters, four columns */
    add(&t, "\xf0\x9f\x98\x80", 2, "y");         /* one, two columns             */
    add(&t, "e\xcc\x81tage", 3, "z");            /* the accent takes none        */
    expect_text(&t, "NAME   A NUMBER  LAST\n"
                    "\xe6\x97\xa5\xe6\x9c\xac          1  x\n"
                    "\xf0\x9f\x98\x80            2  y\n"
                    "e\xcc\x81tage         3  z\n");
    weir__report_table_free(&t);
}

static void marks_that_turn_the_direction_of_a_line_are_shown_harmlessly(void **state)
{
    (void)state;
    report_table t = { 0 };
    add(&t,
        "a\xe2\x80\xae"
        "b",
        1, "\xe2\x81\xa6x\xe2\x81\xa9");
    expect_text(&t, "NAME      A NUMBER  LAST\n"
                    "a\\u202eb         1  \\u2066x\\u2069\n");
    weir__report_table_free(&t);
}

static void it_asks_to_be_flushed_after_a_bounded_number_of_rows(void **state)
{
    (void)state;
    report_table t = { 0 };
    int rows = 0;
    weir_buffer out = { 0 };
    while (!weir__report_table_full(&t)) {
        add(&t, "a", rows++, "x");
    }
    assert_int_equal(rows, 200);
    assert_true(weir__report_table_flush(&t, &out));
    assert_false(weir__report_table_full(&t));
    weir__buffer_free(&out);
    weir__report_table_free(&t);
}

static void of_too_many_columns_the_first_ones_are_shown(void **state)
{
    (void)state;
    static char names[40][64];
    report_field fields[40];
    report_table t = { 0 };
    weir_buffer out = { 0 };

    for (size_t i = 0; i < 40; i++) {
        memset(names[i], 'x', 63);
        fields[i] = (report_field){ .name = names[i], .type = REPORT_I64, .number = (int64_t)i };
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(weir__report_table_row(&t, fields, 40));
    }
    assert_int_equal(t.columns_count, 8); /* as many names as the head has room for */
    assert_true(weir__report_table_flush(&t, &out));
    weir__buffer_free(&out);
    weir__report_table_free(&t);
}

/* A row as a command would give it: a name, a state, a number, a time and a text. */
static void add_ranked(report_table *t, const char *name, const char *word, int64_t count,
                       const char *text)
{
    const report_field fields[] = {
        { .name = "target", .type = REPORT_STR, .text = weir__str(name) },
        { .name = "state", .type = REPORT_STATE, .text = weir__str(word) },
        { .name = "waiting", .type = REPORT_COUNT, .number = count, .rank = 2 },
        { .name = "since", .type = REPORT_TIME, .number = 1, .rank = 3 },
        { .name = "error", .type = REPORT_STR, .text = weir__str(text), .rank = 1 },
    };

    assert_true(weir__report_table_row(t, fields, sizeof fields / sizeof fields[0]));
}

static void a_screen_that_is_wide_enough_shows_everything(void **state)
{
    (void)state;
    const report_screen screen = { .columns = 60, .relative = true, .now_us = 3000001 };
    report_table t = { .screen = &screen };
    add_ranked(&t, "mail-1", "blocked", 12345, "no such mailbox");
    expect_text(&t, "TARGET  STATE    WAITING  SINCE    ERROR\n"
                    "mail-1  blocked   12,345  3 s ago  no such mailbox\n");
    weir__report_table_free(&t);
}

static void expect_at(size_t columns, const char *name, const char *expected)
{
    const report_screen screen = { .columns = columns, .relative = true, .now_us = 3000001 };
    report_table t = { .screen = &screen };

    add_ranked(&t, name, "blocked", 12345, "no such mailbox at example.org");
    expect_text(&t, expected);
    weir__report_table_free(&t);
}

static void a_narrow_one_shortens_texts_and_then_loses_the_least_important_columns(void **state)
{
    (void)state;
    expect_at(58, "mail-1",
              "TARGET  STATE    WAITING  SINCE    ERROR\n"
              "mail-1  blocked   12,345  3 s ago  no such mailbox at exa\xe2\x80\xa6\n");
    expect_at(50, "mail-1",
              "TARGET  STATE    WAITING  ERROR\n"
              "mail-1  blocked   12,345  no such mailbox at exam\xe2\x80\xa6\n");
    expect_at(40, "mail-1",
              "TARGET  STATE    ERROR\n"
              "mail-1  blocked  no such mailbox at exa\xe2\x80\xa6\n");
    expect_at(9, "mail-1-and-more",
              "TARGET\n"
              "mail-1-a\xe2\x80\xa6\n");
}

static void no_line_is_wider_than_the_screen(void **state)
{
    (void)state;
    static const char *const names[] = { "a", "order-\xe6\x97\xa5\xe6\x9c\xac-17",
                                         "a-target-with-a-rather-long-name-of-somebody" };

    for (size_t columns = 1; columns < 130; columns++) {
        const report_screen screen = { .columns = columns, .relative = true, .now_us = 9 };
        report_table t = { .screen = &screen };
        weir_buffer out = { 0 };

        for (size_t i = 0; i < 9; i++) {
            add_ranked(&t, names[i % 3], i % 2 == 0 ? "idle" : "blocked", (int64_t)i * 1000000007,
                       names[(i + 1) % 3]);
            if (i % 4 == 3) { /* later rows do not make it wider */
                assert_true(weir__report_table_flush(&t, &out));
            }
        }
        assert_true(weir__report_table_flush(&t, &out));
        for (const char *at = out.ptr, *end = out.ptr + out.len; at < end;) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            assert_non_null(newline);
            assert_true(weir__report_width(at, (size_t)(newline - at)) <= columns);
            at = newline + 1;
        }
        weir__buffer_free(&out);
        weir__report_table_free(&t);
    }
}

static void a_state_is_coloured_and_nothing_else_moves(void **state)
{
    (void)state;
    const report_screen screen = { .colour = true, .relative = true, .now_us = 3000001 };
    report_table t = { .screen = &screen };
    add_ranked(&t, "mail-1", "idle", 1, "x");
    add_ranked(&t, "blocked", "blocked", 2, "y");
    expect_text(&t, "TARGET   STATE    WAITING  SINCE    ERROR\n"
                    "mail-1   \x1b[2midle\x1b[0m           1  3 s ago  x\n"
                    "blocked  \x1b[1;31mblocked\x1b[0m        2  3 s ago  y\n");
    weir__report_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_line_up_and_numbers_stand_right),
        cmocka_unit_test(later_rows_stand_under_the_first_ones_and_grow_a_column_when_they_must),
        cmocka_unit_test(control_characters_and_nulls_are_shown_harmlessly),
        cmocka_unit_test(wide_and_combining_characters_take_the_columns_they_are_shown_in),
        cmocka_unit_test(marks_that_turn_the_direction_of_a_line_are_shown_harmlessly),
        cmocka_unit_test(of_too_many_columns_the_first_ones_are_shown),
        cmocka_unit_test(a_screen_that_is_wide_enough_shows_everything),
        cmocka_unit_test(a_narrow_one_shortens_texts_and_then_loses_the_least_important_columns),
        cmocka_unit_test(no_line_is_wider_than_the_screen),
        cmocka_unit_test(a_state_is_coloured_and_nothing_else_moves),
        cmocka_unit_test(it_asks_to_be_flushed_after_a_bounded_number_of_rows),
    };
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* as the program does */
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
