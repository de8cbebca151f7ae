/* watch_view_test.c - the list of a full screen without a terminal: order, filter, cursor, scroll.
 *
 * Rows have a name and a number. Keys are pressed as the decoder gives them, and the frame is
 * compared line by line.
 */
#include "cli/watch_view.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { ROWS = 8, COLUMNS = 120 };

typedef struct fixture {
    watch_view v;
    const weir_str *lines;
    size_t count, marked;
} fixture;

static void fill(fixture *f, const char *const *names, const int64_t *numbers, size_t count)
{
    weir__view_begin(&f->v);
    for (size_t i = 0; i < count; i++) {
        const report_field fields[] = {
            { .name = "name", .type = REPORT_STR, .text = weir__str(names[i]) },
            { .name = "hidden", .type = REPORT_I64, .flags = REPORT_JSON_ONLY },
            { .name = "lag",
              .type = numbers[i] < 0 ? REPORT_NULL : REPORT_COUNT,
              .number = numbers[i] },
        };
        assert_true(weir__view_add(&f->v, 0, weir__str(names[i]), fields, 3));
    }
    weir__view_commit(&f->v);
}

static void draw(fixture *f)
{
    const report_screen screen = { .columns = COLUMNS };

    assert_true(weir__view_lay_out(&f->v, &screen));
    assert_true(weir__view_frame(&f->v, weir__str("header"), ROWS, COLUMNS, &f->lines, &f->count,
                                 &f->marked));
    assert_int_equal(f->count, ROWS);
}

static view_action press(fixture *f, cli_key_kind kind, const char *text)
{
    cli_key key = { .kind = kind, .text_bytes = strlen(text) };

    memcpy(key.text, text, key.text_bytes);
    const view_action action = weir__view_key(&f->v, &key);
    draw(f);
    return action;
}

static void type_text(fixture *f, const char *text)
{
    for (; *text != '\0'; text++) {
        (void)press(f, CLI_KEY_TEXT, (char[]){ *text, '\0' });
    }
}

static bool line_has(const fixture *f, size_t line, const char *text)
{
    char copy[256];

    assert_true(line < f->count && f->lines[line].len < sizeof copy);
    (void)snprintf(copy, sizeof copy, "%.*s", (int)f->lines[line].len, f->lines[line].ptr);
    return strstr(copy, text) != NULL;
}

static void cursor_is_on(const fixture *f, const char *name)
{
    weir_str key;

    assert_true(weir__view_key_of(&f->v, &key));
    assert_true(weir__str_equal(key, weir__str(name)));
    assert_true(line_has(f, f->marked, name));
    assert_true(line_has(f, f->marked, "> "));
}

static const char *const nine[] = { "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9" };
static const int64_t nine_numbers[] = { 3, 1, -1, 9, 5, 2, 8, 7, 4 };

static int begin(void **state)
{
    static fixture f;

    f = (fixture){ .v = { .order = "name", .tables_count = 1, .cursor = SIZE_MAX } };
    fill(&f, nine, nine_numbers, 9);
    draw(&f);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    weir__view_free(&((fixture *)*state)->v);
    return 0;
}

static void the_cursor_scrolls_the_list_under_its_head(void **state)
{
    fixture *f = *state;

    assert_true(line_has(f, 0, "header") && line_has(f, 1, "NAME") && line_has(f, 2, "n1"));
    assert_true(line_has(f, ROWS - 1, "q quit"));
    cursor_is_on(f, "n1");
    (void)press(f, CLI_KEY_DOWN, "");
    cursor_is_on(f, "n2");
    (void)press(f, CLI_KEY_END, "");
    cursor_is_on(f, "n9");
    assert_true(line_has(f, 1, "NAME") && line_has(f, 2, "n5") && line_has(f, 6, "n9"));
    (void)press(f, CLI_KEY_UP, "");
    assert_true(line_has(f, 2, "n5"));
    (void)press(f, CLI_KEY_TEXT, "g");
    cursor_is_on(f, "n1");
    assert_true(line_has(f, 2, "n1"));
    (void)press(f, CLI_KEY_PAGE_DOWN, "");
    cursor_is_on(f, "n5");
    (void)press(f, CLI_KEY_TEXT, "k");
    (void)press(f, CLI_KEY_TEXT, "j");
    (void)press(f, CLI_KEY_PAGE_UP, "");
    cursor_is_on(f, "n1");
}

static void the_order_goes_through_the_columns_and_back(void **state)
{
    fixture *f = *state;

    (void)press(f, CLI_KEY_TEXT, "s"); /* name */
    assert_true(line_has(f, ROWS - 1, "order: NAME"));
    (void)press(f, CLI_KEY_TEXT, "s"); /* lag, the greatest first */
    assert_true(line_has(f, ROWS - 1, "order: LAG"));
    assert_true(line_has(f, 2, "n4") && line_has(f, 3, "n7"));
    (void)press(f, CLI_KEY_TEXT, "r");
    assert_true(line_has(f, 2, "n2") && line_has(f, ROWS - 1, "reversed"));
    (void)press(f, CLI_KEY_END, "");
    cursor_is_on(f, "n3"); /* without a number: last in either direction */
    (void)press(f, CLI_KEY_TEXT, "s");
    assert_false(line_has(f, ROWS - 1, "order:"));
    (void)press(f, CLI_KEY_HOME, "");
    cursor_is_on(f, "n1");
}

static void a_filter_is_typed_kept_and_dropped(void **state)
{
    fixture *f = *state;

    (void)press(f, CLI_KEY_TEXT, "/");
    type_text(f, "N7q");
    assert_true(line_has(f, ROWS - 1, "/N7q_"));
    assert_true(line_has(f, 1, "nothing fits"));
    assert_int_equal(press(f, CLI_KEY_BACKSPACE, ""), VIEW_LOOK);
    cursor_is_on(f, "n7");
    assert_int_equal(press(f, CLI_KEY_ENTER, ""), VIEW_DRAW);
    assert_true(line_has(f, ROWS - 1, "filter: N7 (Esc: all)   1 row "));
    assert_int_equal(press(f, CLI_KEY_ESCAPE, ""), VIEW_LOOK);
    assert_true(line_has(f, 2, "n1"));
    assert_int_equal(press(f, CLI_KEY_ESCAPE, ""), VIEW_QUIT);
}

static void a_filter_has_a_limit(void **state)
{
    fixture *f = *state;

    (void)press(f, CLI_KEY_TEXT, "/");
    for (int i = 0; i < VIEW_FILTER_BYTES + 1; i++) {
        (void)press(f, CLI_KEY_TEXT, "x");
    }
    assert_int_equal(f->v.filter_bytes, VIEW_FILTER_BYTES);
    (void)press(f, CLI_KEY_CLEAR, "");
    assert_int_equal(f->v.filter_bytes, 0);
    (void)press(f, CLI_KEY_TEXT, "\xc3\xa4");
    (void)press(f, CLI_KEY_BACKSPACE, "");
    assert_int_equal(f->v.filter_bytes, 0);
}

static void the_cursor_stays_with_its_row_unless_it_is_at_the_top(void **state)
{
    fixture *f = *state;
    static const char *const more[] = { "a1", "n1", "n2", "n3" };
    static const char *const fewer[] = { "a1", "n1" };
    static const int64_t numbers[] = { 1, 1, 1, 1 };

    fill(f, more, numbers, 4);
    draw(f);
    cursor_is_on(f, "a1");
    (void)press(f, CLI_KEY_DOWN, "");
    (void)press(f, CLI_KEY_DOWN, "");
    cursor_is_on(f, "n2");
    fill(f, nine, nine_numbers, 9);
    draw(f);
    cursor_is_on(f, "n2");
    fill(f, fewer, numbers, 2);
    draw(f);
    cursor_is_on(f, "n1");
    fill(f, NULL, NULL, 0);
    draw(f);
    assert_int_equal(f->marked, SIZE_MAX);
    assert_int_equal(press(f, CLI_KEY_ENTER, ""), VIEW_DRAW);
    (void)press(f, CLI_KEY_DOWN, "");
    (void)press(f, CLI_KEY_TEXT, "s");
    assert_true(line_has(f, 1, "nothing to show"));
}

static void what_is_half_read_is_not_shown(void **state)
{
    fixture *f = *state;

    weir__view_begin(&f->v);
    draw(f);
    assert_true(line_has(f, 2, "n1"));
    weir__view_begin(&f->v);
    weir__view_commit(&f->v);
    draw(f);
    assert_true(line_has(f, 1, "nothing to show"));
}

static void a_text_is_scrolled_and_closed(void **state)
{
    fixture *f = *state;

    assert_int_equal(press(f, CLI_KEY_ENTER, ""), VIEW_EXPLAIN);
    assert_true(weir__view_show(&f->v, "why n1", weir__str("1\n2\n3\n4\n5\n6\n7\n8"), 80));
    draw(f);
    assert_true(line_has(f, 0, "why n1") && line_has(f, 1, "1") && line_has(f, 6, "6"));
    assert_true(line_has(f, ROWS - 1, "lines 1-6 of 8"));
    assert_int_equal(f->marked, SIZE_MAX);
    (void)press(f, CLI_KEY_END, "");
    assert_true(line_has(f, 1, "3") && line_has(f, 6, "8"));
    (void)press(f, CLI_KEY_UP, "");
    assert_true(line_has(f, 1, "2"));
    assert_int_equal(press(f, CLI_KEY_TEXT, "q"), VIEW_DRAW);
    cursor_is_on(f, "n1");
    (void)press(f, CLI_KEY_TEXT, "?");
    assert_true(line_has(f, 0, "keys"));
    assert_int_equal(press(f, CLI_KEY_ESCAPE, ""), VIEW_DRAW);
    assert_int_equal(press(f, CLI_KEY_TEXT, "q"), VIEW_QUIT);
}

static void a_long_line_of_a_text_is_broken(void **state)
{
    fixture *f = *state;

    assert_true(weir__view_show(&f->v, "why", weir__str("abcdefg\n\nxy"), 3));
    draw(f);
    assert_true(line_has(f, 1, "abc") && line_has(f, 2, "def") && line_has(f, 3, "g"));
    assert_int_equal(f->lines[4].len, 0);
    assert_true(line_has(f, 5, "xy") && line_has(f, ROWS - 1, "lines 1-5 of 5"));
}

static void a_low_screen_shows_the_cursor(void **state)
{
    fixture *f = *state;
    const report_screen screen = { .columns = 20 };

    (void)press(f, CLI_KEY_END, "");
    for (size_t rows = 1; rows < 14; rows++) {
        assert_true(weir__view_lay_out(&f->v, &screen));
        assert_true(weir__view_frame(&f->v, weir__str("header"), rows, 20, &f->lines, &f->count,
                                     &f->marked));
        if (rows >= 4) {
            assert_int_equal(f->count, rows);
            cursor_is_on(f, "n9");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_cursor_scrolls_the_list_under_its_head, begin, end),
        cmocka_unit_test_setup_teardown(the_order_goes_through_the_columns_and_back, begin, end),
        cmocka_unit_test_setup_teardown(a_filter_is_typed_kept_and_dropped, begin, end),
        cmocka_unit_test_setup_teardown(a_filter_has_a_limit, begin, end),
        cmocka_unit_test_setup_teardown(the_cursor_stays_with_its_row_unless_it_is_at_the_top,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_is_half_read_is_not_shown, begin, end),
        cmocka_unit_test_setup_teardown(a_text_is_scrolled_and_closed, begin, end),
        cmocka_unit_test_setup_teardown(a_long_line_of_a_text_is_broken, begin, end),
        cmocka_unit_test_setup_teardown(a_low_screen_shows_the_cursor, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
