/* table_json_test.c - cells as JSON: every shape, and what is not of the shape was announced. */
#include "table/table_private.h"

#include "base/json.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void expect_cell(table_cell cell, const char *json)
{
    const weir_str name = weir__str("c");
    const table_result r = { .names = &name, .columns_count = 1, .cells = &cell, .rows_count = 1 };
    weir_buffer out = { 0 };
    assert_true(weir__table_row_json(&r, 0, SIZE_MAX, &out));
    const weir_str row = { .ptr = out.ptr, .len = out.len };
    assert_true(row.len > 6);
    const weir_str value = { .ptr = row.ptr + 5, .len = row.len - 6 };
    if (!weir__str_equal(value, weir__str(json))) {
        fail_msg("got %.*s, expected %s", (int)value.len, value.ptr, json);
    }
    assert_null(memchr(row.ptr, '\n', row.len));
    weir__buffer_free(&out);
}

static void expect(table_shape shape, const char *text, const char *json)
{
    expect_cell((table_cell){ .shape = shape, .text = weir__str(text) }, json);
}

static void expect_array(table_shape element, const char *text, const char *json)
{
    expect_cell(
        (table_cell){ .shape = TABLE_SHAPE_ARRAY, .element = element, .text = weir__str(text) },
        json);
}

static void numbers_keep_all_their_digits(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_NUMBER, "1234567890123456789012345678901234567890.00",
           "1234567890123456789012345678901234567890.00");
    expect(TABLE_SHAPE_NUMBER, "-9223372036854775808", "-9223372036854775808");
    expect(TABLE_SHAPE_NUMBER, "1e+20", "1e+20");
    expect(TABLE_SHAPE_NUMBER, "0", "0");
    expect(TABLE_SHAPE_NUMBER, "-0.5E-10", "-0.5E-10");
}

static void what_is_no_number_in_json_is_a_string(void **state)
{
    static const char *const texts[] = { "NaN", "Infinity", "-Infinity", "007", "1.",  ".5",
                                         "1e",  "1e+",      "--1",       "1 ",  "0x1", "" };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char json[32] = "\"";
        strcat(json, texts[i]);
        strcat(json, "\"");
        expect(TABLE_SHAPE_NUMBER, texts[i], json);
    }
}

static void times_are_utc(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_TIME, "2026-11-15 10:00:00+00", "\"2026-11-15T10:00:00.000000Z\"");
    expect(TABLE_SHAPE_TIME, "2026-11-15 10:00:00.5+05:30", "\"2026-11-15T04:30:00.500000Z\"");
    expect(TABLE_SHAPE_TIME, "2026-12-31 23:30:00.123456-02", "\"2027-01-01T01:30:00.123456Z\"");
    /* Amsterdam before 1937 */
    expect(TABLE_SHAPE_TIME, "1900-01-01 00:00:00+00:19:32", "\"1899-12-31T23:40:28.000000Z\"");
    expect(TABLE_SHAPE_TIME, "1900-01-01 00:00:00-00:19:32", "\"1900-01-01T00:19:32.000000Z\"");
}

static void times_that_rfc_3339_cannot_say_are_left_as_they_are(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_TIME, "infinity", "\"infinity\"");
    expect(TABLE_SHAPE_TIME, "-infinity", "\"-infinity\"");
    expect(TABLE_SHAPE_TIME, "0044-03-15 12:00:00+00 BC", "\"0044-03-15 12:00:00+00 BC\"");
    expect(TABLE_SHAPE_TIME, "12026-11-15 10:00:00+00", "\"12026-11-15 10:00:00+00\"");
    expect(TABLE_SHAPE_TIME_BARE, "infinity", "\"infinity\"");
    expect(TABLE_SHAPE_TIME_BARE, "0044-03-15 12:00:00 BC", "\"0044-03-15 12:00:00 BC\"");
    expect(TABLE_SHAPE_TIME_BARE, "12026-11-15 10:00:00", "\"12026-11-15 10:00:00\"");
}

static void times_without_a_zone_get_none(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_TIME_BARE, "2026-11-15 10:00:00", "\"2026-11-15T10:00:00\"");
    expect(TABLE_SHAPE_TIME_BARE, "2026-11-15 10:00:00.123456", "\"2026-11-15T10:00:00.123456\"");
}

static void json_is_as_it_is_on_one_line(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_JSON, "{\"a\": [1.00,\n 2]}", "{\"a\":[1.00,2]}");
    expect(TABLE_SHAPE_JSON, "{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}");
    /* Valid, though not to our own reader. */
    expect(TABLE_SHAPE_JSON, "[\"\\u0000\",\n1]", "[\"\\u0000\", 1]");
}

static void booleans_texts_bytes_and_null(void **state)
{
    (void)state;
    expect(TABLE_SHAPE_BOOL, "t", "true");
    expect(TABLE_SHAPE_BOOL, "f", "false");
    expect(TABLE_SHAPE_TEXT, "a \"b\"\n\xc3\xa9", "\"a \\\"b\\\"\\n\xc3\xa9\"");
    expect_cell((table_cell){ .shape = TABLE_SHAPE_BYTES, .text = { .ptr = "\0\xff", .len = 2 } },
                "\"AP8=\"");
    expect_cell((table_cell){ .null = true, .shape = TABLE_SHAPE_NUMBER }, "null");
}

static void arrays_are_nested_as_they_are(void **state)
{
    (void)state;
    expect_array(TABLE_SHAPE_NUMBER, "{}", "[]");
    expect_array(TABLE_SHAPE_NUMBER, "{1,NULL,3}", "[1,null,3]");
    expect_array(TABLE_SHAPE_NUMBER, "{{1,2},{3,4}}", "[[1,2],[3,4]]");
    expect_array(TABLE_SHAPE_NUMBER, "[2:3]={5,6}", "[5,6]");
    expect_array(TABLE_SHAPE_NUMBER, "[0:1][1:1]={{5},{6}}", "[[5],[6]]");
    expect_array(TABLE_SHAPE_NUMBER, "{NaN}", "[\"NaN\"]");
    expect_array(TABLE_SHAPE_TEXT, "{a,\"b c\",\"NULL\",NULL,\"\"}",
                 "[\"a\",\"b c\",\"NULL\",null,\"\"]");
    expect_array(TABLE_SHAPE_TEXT, "{\"q\\\"\\\\ ,{}\"}", "[\"q\\\"\\\\ ,{}\"]");
    expect_array(TABLE_SHAPE_BYTES, "{\"\\\\x00ff\",\"\\\\x\"}", "[\"AP8=\",\"\"]");
    expect_array(TABLE_SHAPE_TIME, "{\"2026-11-15 10:00:00+01\"}",
                 "[\"2026-11-15T09:00:00.000000Z\"]");
    expect_array(TABLE_SHAPE_BOOL, "{t,f}", "[true,false]");
    expect_array(TABLE_SHAPE_JSON, "{\"{\\\"a\\\": 1}\"}", "[{\"a\":1}]");
}

static void an_array_that_is_none_is_a_string(void **state)
{
    static const char *const texts[] = { "",     "{", "{1",     "{1,",  "{\"a",
                                         "{1}}", "1", "{\"a\\", "[1:2]" };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weir_buffer json = { 0 };
        assert_true(weir__json_write_string(&json, weir__str(texts[i])));
        assert_true(weir__buffer_add(&json, "", 1));
        expect_array(TABLE_SHAPE_NUMBER, texts[i], json.ptr);
        weir__buffer_free(&json);
    }
}

static void bytes_are_read_in_both_forms(void **state)
{
    char out[16];
    size_t len = 0;
    (void)state;
    assert_true(weir__table_bytes_decode(weir__str("\\x00fFa1"), out, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(out, "\x00\xff\xa1", 3);
    assert_true(weir__table_bytes_decode(weir__str("a\\\\b\\000\\377"), out, &len));
    assert_int_equal(len, 5);
    assert_memory_equal(out, "a\\b\x00\xff", 5);
    assert_false(weir__table_bytes_decode(weir__str("\\x0"), out, &len));
    assert_false(weir__table_bytes_decode(weir__str("\\xzz"), out, &len));
    assert_false(weir__table_bytes_decode(weir__str("\\0"), out, &len));
}

static void only_the_first_columns_when_asked(void **state)
{
    const weir_str names[] = { weir__str("a"), weir__str("b\"") };
    const table_cell cells[] = { { .shape = TABLE_SHAPE_NUMBER, .text = weir__str("1") },
                                 { .null = true } };
    const table_result r = { .names = names, .columns_count = 2, .cells = cells, .rows_count = 1 };
    weir_buffer out = { 0 };
    (void)state;
    assert_true(weir__table_row_json(&r, 0, 1, &out));
    assert_true(weir__table_row_json(&r, 0, 0, &out));
    assert_true(weir__table_row_json(&r, 0, SIZE_MAX, &out));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, "{\"a\":1}{}{\"a\":1,\"b\\\"\":null}");
    weir__buffer_free(&out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_keep_all_their_digits),
        cmocka_unit_test(what_is_no_number_in_json_is_a_string),
        cmocka_unit_test(times_are_utc),
        cmocka_unit_test(times_that_rfc_3339_cannot_say_are_left_as_they_are),
        cmocka_unit_test(times_without_a_zone_get_none),
        cmocka_unit_test(json_is_as_it_is_on_one_line),
        cmocka_unit_test(booleans_texts_bytes_and_null),
        cmocka_unit_test(arrays_are_nested_as_they_are),
        cmocka_unit_test(an_array_that_is_none_is_a_string),
        cmocka_unit_test(bytes_are_read_in_both_forms),
        cmocka_unit_test(only_the_first_columns_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
