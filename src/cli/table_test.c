/* table_test.c - columns that line up, in pieces too, and cells that cannot steer a terminal. */
#include "cli/cli.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void add(cli_table *t, const char *name, int64_t number, const char *text)
{
    const cli_field fields[] = {
        { .name = "name", .type = CLI_STR, .text = weir__str(name) },
        { .name = "hidden", .type = CLI_STR, .text = weir__str("no"), .flags = CLI_JSON_ONLY },
        { .name = "a_number", .type = CLI_I64, .number = number },
        { .name = "last", .type = CLI_STR, .text = weir__str(text) },
    };

    assert_true(weir__cli_table_row(t, fields, sizeof fields / sizeof fields[0]));
}

static void expect_text(cli_table *t, const char *expected)
{
    weir_buffer out = { 0 };

    assert_true(weir__cli_table_flush(t, &out));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, expected);
    weir__buffer_free(&out);
}

static void columns_line_up_and_numbers_stand_right(void **state)
{
    (void)state;
    cli_table t = { 0 };
    add(&t, "a", 5, "x");
    add(&t, "l\xc3\xa4nger", -12, "y"); /* two bytes, one column */
    expect_text(&t, "NAME    A NUMBER  LAST\n"
                    "a              5  x\n"
                    "l\xc3\xa4nger       -12  y\n");
    weir__cli_table_free(&t);
}

static void later_rows_stand_under_the_first_ones_and_grow_a_column_when_they_must(void **state)
{
    (void)state;
    cli_table t = { 0 };
    add(&t, "abc", 1, "x");
    expect_text(&t, "NAME  A NUMBER  LAST\n"
                    "abc          1  x\n");
    expect_text(&t, "");
    add(&t, "a", 2, "y");
    expect_text(&t, "a            2  y\n");
    add(&t, "abcdefgh", 3, "z");
    expect_text(&t, "abcdefgh         3  z\n");
    weir__cli_table_free(&t);
}

static void control_characters_and_nulls_are_shown_harmlessly(void **state)
{
    (void)state;
    cli_table t = { 0 };
    add(&t, "\x1b[31m", 1,
        "\xc2\x9b"
        "31m\x7f");
    add(&t, NULL, 2, "");
    expect_text(&t, "NAME   A NUMBER  LAST\n"
                    "?[31m         1  ?"
                    "?31m?\n"
                    "-             2  \n");
    weir__cli_table_free(&t);
}

static void wide_and_combining_characters_take_the_columns_they_are_shown_in(void **state)
{
    (void)state;
    cli_table t = { 0 };
    add(&t, "\xe6\x97\xa5\xe6\x9c\xac", 1, "x"); /* two characters, four columns */
    add(&t, "\xf0\x9f\x98\x80", 2, "y");         /* one, two columns             */
    add(&t, "e\xcc\x81tage", 3, "z");            /* the accent takes none        */
    expect_text(&t, "NAME   A NUMBER  LAST\n"
                    "\xe6\x97\xa5\xe6\x9c\xac          1  x\n"
                    "\xf0\x9f\x98\x80            2  y\n"
                    "e\xcc\x81tage         3  z\n");
    weir__cli_table_free(&t);
}

static void marks_that_turn_the_direction_of_a_line_are_shown_harmlessly(void **state)
{
    (void)state;
    cli_table t = { 0 };
    add(&t,
        "a\xe2\x80\xae"
        "b",
        1, "\xe2\x81\xa6x\xe2\x81\xa9");
    expect_text(&t, "NAME   A NUMBER  LAST\n"
                    "a???b         1  ???x???\n");
    weir__cli_table_free(&t);
}

static void it_asks_to_be_flushed_after_a_bounded_number_of_rows(void **state)
{
    (void)state;
    cli_table t = { 0 };
    int rows = 0;
    weir_buffer out = { 0 };
    while (!weir__cli_table_full(&t)) {
        add(&t, "a", rows++, "x");
    }
    assert_int_equal(rows, 200);
    assert_true(weir__cli_table_flush(&t, &out));
    assert_false(weir__cli_table_full(&t));
    weir__buffer_free(&out);
    weir__cli_table_free(&t);
}

static void of_too_many_columns_the_first_ones_are_shown(void **state)
{
    (void)state;
    static char names[40][64];
    cli_field fields[40];
    cli_table t = { 0 };
    weir_buffer out = { 0 };

    for (size_t i = 0; i < 40; i++) {
        memset(names[i], 'x', 63);
        fields[i] = (cli_field){ .name = names[i], .type = CLI_I64, .number = (int64_t)i };
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(weir__cli_table_row(&t, fields, 40));
    }
    assert_int_equal(t.columns_count, 8); /* as many names as the head has room for */
    assert_true(weir__cli_table_flush(&t, &out));
    weir__buffer_free(&out);
    weir__cli_table_free(&t);
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
        cmocka_unit_test(it_asks_to_be_flushed_after_a_bounded_number_of_rows),
    };
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* as the program does */
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
