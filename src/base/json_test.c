/* json_test.c - JSON as Weir carries it: what is accepted, what is refused and how, the walk, and
 * strings. Every text under test lies in memory of exactly its size, so that a sanitizer sees a
 * byte read too many.
 */
#include "base/json.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- helpers ------------------------------------------------------------------------------ */

/* Compacts a copy of exactly text.len bytes behind what `out` already holds. */
static weir_status compact(weir_str text, weir_buffer *out, weir_json_type *type, weir_error *err)
{
    char *copy = weir__malloc(text.len);
    assert_non_null(copy);
    if (text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    const weir_status status =
        weir__json_compact((weir_str){ .ptr = copy, .len = text.len }, out, type, err);
    weir__free(copy);
    return status;
}

static void assert_compact(const char *text, const char *expected)
{
    weir_buffer out = { 0 };
    weir_error err = { .message = "" };
    if (compact(weir__str(text), &out, NULL, &err) != WEIR_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    if (!weir__str_equal((weir_str){ out.ptr, out.len }, weir__str(expected))) {
        fail_msg("%s became %.*s", text, (int)out.len, out.ptr);
    }
    weir__buffer_free(&out);
}

static void assert_refused(weir_str text, const char *message)
{
    weir_buffer out = { 0 };
    weir_error err = { .message = "" };
    assert_true(weir__buffer_add_text(&out, "before"));
    if (compact(text, &out, NULL, &err) != WEIR_EINVAL) {
        fail_msg("accepted: %.*s", (int)text.len, text.ptr);
    }
    assert_int_equal(err.code, WEIR_EINVAL);
    assert_string_equal(err.message, message);
    assert_int_equal(out.len, 6); /* what was there is there, and nothing else */
    assert_memory_equal(out.ptr, "before", 6);
    weir__buffer_free(&out);
}

static void assert_str(weir_str s, const char *expected)
{
    if (!weir__str_equal(s, weir__str(expected))) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)s.len, s.ptr, expected);
    }
}

/* ---- checking ----------------------------------------------------------------------------- */

static void compact_text_is_returned_unchanged(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-1.5e+10",
        "1E5",
        "1e-5",
        "0.10",
        "\"\"",
        "\"a\"",
        "[1,2,3]",
        "[[],{},[[]]]",
        "{\"a\":1,\"b\":[true,false,null]}",
        "{\"a\":1,\"a\":2,\"a\":1}",                      /* repeated members stay */
        "1234567890123456789012345678901234567890",       /* forty digits */
        "1.00000000000000000000000000000000000000000001", /* and these */
        "1e999999999",
        "-0.0e-0",
        "123456789012345678901234567890.5E+00012",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0001\\u001f\\u00e9\\uFFFF\\uffff\"",
        "\"\\ud83d\\ude00\"",
        "\"\\uD800\\uDC00\"",
        "\"\\uDBFF\\uDFFF\"", /* pairs */
        "\"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80\"",
        "\"\x7F\"",
        "\" white  space\"",
        "{\" a \":\" b \"}",
        "{\"\":0}",
        "[\"a string that is longer than eight bytes\",\"and\",\"short\"]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_compact(texts[i], texts[i]);
    }
}

static void white_space_outside_strings_is_removed_and_nothing_else(void **state)
{
    (void)state;
    assert_compact(" {} ", "{}");
    assert_compact("\t\n\r 1 \r\n\t", "1");
    assert_compact("[ ]", "[]");
    assert_compact("[ 1 , 2 ]", "[1,2]");
    assert_compact(" { \"a b\" : \" c \" , \"d\" : [ ] } ", "{\"a b\":\" c \",\"d\":[]}");
    assert_compact("{\n  \"name\": \"x\",\n  \"list\": [\n    1,\n    -2.50\n  ]\n}\n",
                   "{\"name\":\"x\",\"list\":[1,-2.50]}");
    assert_compact("\"a\\\" b\" ", "\"a\\\" b\"");
    assert_compact("[\"\\\\\" , \" \"]", "[\"\\\\\",\" \"]");
}

static void broken_text_is_refused_with_its_offset_and_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "", "invalid JSON at byte 0: expected a value" },
        { "   ", "invalid JSON at byte 3: expected a value" },
        { "x", "invalid JSON at byte 0: expected a value" },
        { "'a'", "invalid JSON at byte 0: expected a value" },
        { "\xEF\xBB\xBF{}", "invalid JSON at byte 0: expected a value" },
        { "tru", "invalid JSON at byte 0: expected a value" },
        { "[falso]", "invalid JSON at byte 1: expected a value or ']'" },
        { "nul", "invalid JSON at byte 0: expected a value" },
        { "not json", "invalid JSON at byte 0: expected a value" },
        { "True", "invalid JSON at byte 0: expected a value" },
        { "NaN", "invalid JSON at byte 0: expected a value" },
        { "Infinity", "invalid JSON at byte 0: expected a value" },
        { "{} {}", "invalid JSON at byte 3: expected the end of the text" },
        { "truex", "invalid JSON at byte 4: expected the end of the text" },
        { "1 2", "invalid JSON at byte 2: expected the end of the text" },
        { "]", "invalid JSON at byte 0: expected a value" },
        { "[", "invalid JSON at byte 1: expected a value or ']'" },
        { "[,", "invalid JSON at byte 1: expected a value or ']'" },
        { "[1", "invalid JSON at byte 2: expected ',' or ']'" },
        { "[1 2]", "invalid JSON at byte 3: expected ',' or ']'" },
        { "[1,]", "invalid JSON at byte 3: expected a value" },
        { "[1,,2]", "invalid JSON at byte 3: expected a value" },
        { "[1}", "invalid JSON at byte 2: expected ',' or ']'" },
        { "[}", "invalid JSON at byte 1: expected a value or ']'" },
        { "{", "invalid JSON at byte 1: expected a member's name or '}'" },
        { "{]", "invalid JSON at byte 1: expected a member's name or '}'" },
        { "{a:1}", "invalid JSON at byte 1: expected a member's name or '}'" },
        { "{1:1}", "invalid JSON at byte 1: expected a member's name or '}'" },
        { "{,}", "invalid JSON at byte 1: expected a member's name or '}'" },
        { "{\"a\"}", "invalid JSON at byte 4: expected ':'" },
        { "{\"a\" 1}", "invalid JSON at byte 5: expected ':'" },
        { "{\"a\":}", "invalid JSON at byte 5: expected a value" },
        { "{\"a\":", "invalid JSON at byte 5: expected a value" },
        { "{\"a\":1", "invalid JSON at byte 6: expected ',' or '}'" },
        { "{\"a\":1]", "invalid JSON at byte 6: expected ',' or '}'" },
        { "{\"a\":1,}", "invalid JSON at byte 7: expected a member's name" },
        { "{\"a\":1 \"b\":2}", "invalid JSON at byte 7: expected ',' or '}'" },
        { "[1] // x", "invalid JSON at byte 4: expected the end of the text" },
        { "[1,/**/2]", "invalid JSON at byte 3: expected a value" },
        { "[1,\v2]", "invalid JSON at byte 3: expected a value" },
        { "[1,\xC2\xA0"
          "2]",
          "invalid JSON at byte 3: expected a value" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(weir__str(cases[i].text), cases[i].message);
    }
    assert_refused((weir_str){ 0 }, "invalid JSON at byte 0: expected a value");
}

static void broken_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "-", "invalid JSON at byte 1: expected a digit" },
        { "+1", "invalid JSON at byte 0: expected a value" },
        { ".5", "invalid JSON at byte 0: expected a value" },
        { "-.5", "invalid JSON at byte 1: expected a digit" },
        { "1.", "invalid JSON at byte 2: expected a digit" },
        { "1.e5", "invalid JSON at byte 2: expected a digit" },
        { "1e", "invalid JSON at byte 2: expected a digit" },
        { "1e+", "invalid JSON at byte 3: expected a digit" },
        { "1e5.5", "invalid JSON at byte 3: expected the end of the text" },
        { "01", "invalid JSON at byte 1: expected the end of the text" },
        { "-01", "invalid JSON at byte 2: expected the end of the text" },
        { "[00]", "invalid JSON at byte 2: expected ',' or ']'" },
        { "--1", "invalid JSON at byte 1: expected a digit" },
        { "0x10", "invalid JSON at byte 1: expected the end of the text" },
        { "1_000", "invalid JSON at byte 1: expected the end of the text" },
        { "-Infinity", "invalid JSON at byte 1: expected a digit" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(weir__str(cases[i].text), cases[i].message);
    }
}

static void broken_strings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "\"", "invalid JSON at byte 1: expected '\"' to end a string" },
        { "\"abc", "invalid JSON at byte 4: expected '\"' to end a string" },
        { "\"abc\\\"", "invalid JSON at byte 6: expected '\"' to end a string" },
        { "\"a\nb\"", "invalid JSON at byte 2: expected an escape for a control character" },
        { "\"a\x1F\"", "invalid JSON at byte 2: expected an escape for a control character" },
        { "\"\\", "invalid JSON at byte 2: expected one of \"\\/bfnrtu after a backslash" },
        { "\"\\x41\"", "invalid JSON at byte 2: expected one of \"\\/bfnrtu after a backslash" },
        { "\"\\'\"", "invalid JSON at byte 2: expected one of \"\\/bfnrtu after a backslash" },
        { "\"\\U0041\"", "invalid JSON at byte 2: expected one of \"\\/bfnrtu after a backslash" },
        { "\"\\u\"", "invalid JSON at byte 3: expected four hexadecimal digits" },
        { "\"\\u12", "invalid JSON at byte 5: expected four hexadecimal digits" },
        { "\"\\u12g4\"", "invalid JSON at byte 5: expected four hexadecimal digits" },
        { "\"\\u0000\"", "invalid JSON at byte 1: \\u0000 is not allowed" },
        { "\"ab\\ud800\"",
          "invalid JSON at byte 9: expected the escape of a low surrogate after a high one" },
        { "\"\\ud800\\n\"",
          "invalid JSON at byte 7: expected the escape of a low surrogate after a high one" },
        { "\"\\ud800\\ud800\"",
          "invalid JSON at byte 7: expected the escape of a low surrogate after a high one" },
        { "\"\\ud800\\u0041\"",
          "invalid JSON at byte 7: expected the escape of a low surrogate after a high one" },
        { "\"\\ud800\\udc0\"", "invalid JSON at byte 12: expected four hexadecimal digits" },
        { "\"\\udc00\"", "invalid JSON at byte 1: expected a high surrogate before this low one" },
        { "\"\\udfff\\ud800\"",
          "invalid JSON at byte 1: expected a high surrogate before this low one" },
        { "\"\x80\"", "invalid JSON at byte 1: expected valid UTF-8" },
        { "\"ab\xC3\"", "invalid JSON at byte 3: expected valid UTF-8" },
        { "\"\xED\xA0\x80\"", "invalid JSON at byte 1: expected valid UTF-8" },
        { "\"\xC0\xAF\"", "invalid JSON at byte 1: expected valid UTF-8" },
        { "{\"\xFF\":1}", "invalid JSON at byte 2: expected valid UTF-8" },
        { "{\"\\u0000\":1}", "invalid JSON at byte 2: \\u0000 is not allowed" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(weir__str(cases[i].text), cases[i].message);
    }
}

static void nul_bytes_are_refused_wherever_they_are(void **state)
{
    (void)state;
    assert_refused((weir_str){ "\0", 1 }, "invalid JSON at byte 0: expected a value");
    assert_refused((weir_str){ "{}\0", 3 }, "invalid JSON at byte 2: expected the end of the text");
    assert_refused((weir_str){ "[\0]", 3 }, "invalid JSON at byte 1: expected a value or ']'");
    assert_refused((weir_str){ "\"a\0b\"", 5 },
                   "invalid JSON at byte 2: expected an escape for a control character");
    assert_refused((weir_str){ "{\"a\"\0:1}", 8 }, "invalid JSON at byte 4: expected ':'");
    assert_refused((weir_str){ "[1\0]", 4 }, "invalid JSON at byte 2: expected ',' or ']'");
}

/* Eight bytes are looked at together: each special byte at each place among them, and behind. */
static void strings_end_where_they_end_at_any_alignment(void **state)
{
    (void)state;
    for (size_t len = 0; len < 40; len++) {
        char text[64];
        text[0] = '"';
        memset(text + 1, 'z', len);
        text[1 + len] = '"';
        weir_buffer out = { 0 };
        assert_int_equal(compact((weir_str){ text, len + 2 }, &out, NULL, NULL), WEIR_OK);
        assert_int_equal(out.len, len + 2);
        weir__buffer_free(&out);
        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 256; byte++) {
                text[1 + at] = (char)byte;
                const bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
                weir_buffer again = { 0 };
                if ((compact((weir_str){ text, len + 2 }, &again, NULL, NULL) == WEIR_OK) !=
                    plain) {
                    fail_msg("byte 0x%02x at %zu of %zu", (unsigned)byte, at, len);
                }
                weir__buffer_free(&again);
            }
            text[1 + at] = 'z';
        }
    }
}

static void nesting_of_128_is_accepted_and_129_refused(void **state)
{
    (void)state;
    for (size_t levels = WEIR_JSON_DEPTH_MAX - 1; levels <= WEIR_JSON_DEPTH_MAX + 1; levels++) {
        for (unsigned mix = 0; mix < 3; mix++) { /* arrays, objects, alternating */
            weir_buffer text = { 0 };
            char closing[WEIR_JSON_DEPTH_MAX + 1];
            size_t offset = 0;
            for (size_t i = 0; i < levels; i++) {
                const bool object = mix == 1 || (mix == 2 && i % 2 == 1);
                if (i == WEIR_JSON_DEPTH_MAX) {
                    offset = text.len;
                }
                assert_true(weir__buffer_add_text(&text, !object           ? "["
                                                         : i == levels - 1 ? "{"
                                                                           : "{\"a\":"));
                closing[levels - 1 - i] = object ? '}' : ']';
            }
            assert_true(weir__buffer_add(&text, closing, levels));
            weir_buffer out = { 0 };
            weir_error err = { .message = "" };
            const weir_status status = compact((weir_str){ text.ptr, text.len }, &out, NULL, &err);
            if (levels <= WEIR_JSON_DEPTH_MAX) {
                assert_int_equal(status, WEIR_OK);
                assert_int_equal(out.len, text.len);
            } else {
                char expected[100];
                (void)snprintf(expected, sizeof expected,
                               "invalid JSON at byte %zu: nested deeper than 128 levels", offset);
                assert_int_equal(status, WEIR_EINVAL);
                assert_string_equal(err.message, expected);
            }
            weir__buffer_free(&out);
            weir__buffer_free(&text);
        }
    }
}

/* What carries payloads may be one level deeper than they are. */
static void an_envelope_is_one_level_deeper(void **state)
{
    (void)state;
    for (size_t levels = WEIR_JSON_DEPTH_MAX; levels <= WEIR_JSON_DEPTH_MAX + 2; levels++) {
        char text[2 * (WEIR_JSON_DEPTH_MAX + 2)];
        weir_buffer out = { 0 };
        memset(text, '[', levels);
        memset(text + levels, ']', levels);
        const weir_status status =
            weir__json_compact_envelope((weir_str){ text, 2 * levels }, &out, NULL, NULL);
        assert_int_equal(status, levels <= WEIR_JSON_DEPTH_MAX + 1 ? WEIR_OK : WEIR_EINVAL);
        assert_int_equal(out.len, status == WEIR_OK ? 2 * levels : 0);
        weir__buffer_free(&out);
    }
}

/* Width is not depth: what was closed does not count. */
static void many_containers_side_by_side_are_not_deep(void **state)
{
    (void)state;
    weir_buffer text = { 0 };
    weir_buffer out = { 0 };
    assert_true(weir__buffer_add_text(&text, "[0"));
    for (int i = 0; i < 1000; i++) {
        assert_true(weir__buffer_add_text(&text, ",{\"a\":[{},[]]}"));
    }
    assert_true(weir__buffer_add_text(&text, "]"));
    assert_int_equal(compact((weir_str){ text.ptr, text.len }, &out, NULL, NULL), WEIR_OK);
    assert_int_equal(out.len, text.len);
    weir__buffer_free(&out);
    weir__buffer_free(&text);
}

static void the_outermost_type_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        weir_json_type type;
    } cases[] = {
        { " null ", WEIR_JSON_NULL },  { " false", WEIR_JSON_FALSE },
        { "true ", WEIR_JSON_TRUE },   { " -1.5", WEIR_JSON_NUMBER },
        { "0", WEIR_JSON_NUMBER },     { " \"x\"", WEIR_JSON_STRING },
        { "\n[{}]", WEIR_JSON_ARRAY }, { " {\"a\":[]}", WEIR_JSON_OBJECT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_buffer out = { 0 };
        weir_json_type type = (weir_json_type)99;
        assert_true(weir__buffer_add_text(&out, "{"));
        assert_int_equal(compact(weir__str(cases[i].text), &out, &type, NULL), WEIR_OK);
        assert_int_equal(type, cases[i].type);
        assert_int_equal(weir__json_type(weir__str(cases[i].text)), cases[i].type);
        weir__buffer_free(&out);
    }
    weir_buffer out = { 0 };
    weir_json_type type = WEIR_JSON_TRUE;
    assert_int_equal(compact(weir__str("[1,"), &out, &type, NULL), WEIR_EINVAL);
    assert_int_equal(type, WEIR_JSON_TRUE); /* written on success only */
    weir__buffer_free(&out);
}

static void several_texts_can_share_one_buffer(void **state)
{
    (void)state;
    weir_buffer out = { 0 };
    assert_int_equal(compact(weir__str("[ 1 ]"), &out, NULL, NULL), WEIR_OK);
    assert_true(weir__buffer_add_text(&out, "\n"));
    assert_int_equal(compact(weir__str("[ 2, }"), &out, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(compact(weir__str("{ \"a\" : 3 }"), &out, NULL, NULL), WEIR_OK);
    assert_str((weir_str){ out.ptr, out.len }, "[1]\n{\"a\":3}");
    weir__buffer_free(&out);
}

/* ---- walking ------------------------------------------------------------------------------ */

static void members_come_in_order_repeated_ones_too(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"a\":1,\"b\\n\":\"x,}\\\"]\",\"a\":[1,{\"c\":[]},\"]\"],\"\":{\"d\":{}},\"e\":null}",
        " { \"a\" : 1 , \"b\\n\" : \"x,}\\\"]\" ,\n\"a\":[1,{\"c\":[]},\"]\"]\t,\"\":{\"d\":{}} , "
        "\"e\" : null } ",
    };
    static const char *const expected[][2] = {
        { "a", "1" },
        { "b\\n", "\"x,}\\\"]\"" },
        { "a", "[1,{\"c\":[]},\"]\"]" },
        { "", "{\"d\":{}}" },
        { "e", "null" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weir_json_members it = weir__json_members(weir__str(texts[i]));
        for (size_t j = 0; j < sizeof expected / sizeof expected[0]; j++) {
            assert_true(weir__json_members_next(&it));
            assert_str(it.name, expected[j][0]);
            assert_str(it.value, expected[j][1]);
        }
        assert_false(weir__json_members_next(&it));
        assert_false(weir__json_members_next(&it)); /* the end stays the end */
    }
}

static void elements_come_in_order(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[1,\"a,\\\\\",[2,[3]],{\"b\":[\"]\"]},true,-1.5e3]",
        "\n[ 1 , \"a,\\\\\" ,[2,[3]] , {\"b\":[\"]\"]} , true , -1.5e3 ] ",
    };
    static const char *const expected[] = {
        "1", "\"a,\\\\\"", "[2,[3]]", "{\"b\":[\"]\"]}", "true", "-1.5e3",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weir_json_members it = weir__json_elements(weir__str(texts[i]));
        for (size_t j = 0; j < sizeof expected / sizeof expected[0]; j++) {
            assert_true(weir__json_elements_next(&it));
            assert_int_equal(it.name.len, 0);
            assert_str(it.value, expected[j]);
        }
        assert_false(weir__json_elements_next(&it));
        assert_false(weir__json_elements_next(&it));
    }
}

static void empty_containers_and_other_values_have_nothing_to_walk_over(void **state)
{
    (void)state;
    static const char *const texts[] = { "{}", "{ }", "[]", "[ ]", "1", "\"{}\"", "null", "" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weir_json_members members = weir__json_members(weir__str(texts[i]));
        assert_false(weir__json_members_next(&members));
        weir_json_members elements = weir__json_elements(weir__str(texts[i]));
        assert_false(weir__json_elements_next(&elements));
    }
    weir_json_members it = weir__json_members(weir__str("[{\"a\":1}]"));
    assert_false(weir__json_members_next(&it));
    it = weir__json_elements(weir__str("{\"a\":[1]}"));
    assert_false(weir__json_elements_next(&it));
    it = weir__json_members((weir_str){ 0 });
    assert_false(weir__json_members_next(&it));
}

static void getting_finds_the_last_member_of_that_decoded_name(void **state)
{
    (void)state;
    const weir_str object = weir__str("{\"a\":1,\"n\\u0061me\":\"x\",\"a\":2,\"in\":{\"b\":3},"
                                      "\"\\ud83d\\ude00\":4,\"gr\xC3\xBC\":5,\"\":6,\"ab\":7}");
    weir_str value = { 0 };
    assert_true(weir__json_get(object, "a", &value));
    assert_str(value, "2");
    assert_true(weir__json_get(object, "name", &value));
    assert_str(value, "\"x\"");
    assert_true(weir__json_get(object, "in", &value));
    assert_str(value, "{\"b\":3}");
    assert_true(weir__json_get(object, "\xF0\x9F\x98\x80", &value));
    assert_str(value, "4");
    assert_true(weir__json_get(object, "gr\xC3\xBC", &value));
    assert_str(value, "5");
    assert_true(weir__json_get(object, "", &value));
    assert_str(value, "6");
    value = weir__str("untouched");
    assert_false(weir__json_get(object, "b", &value)); /* of the inner object only */
    assert_false(weir__json_get(object, "abc", &value));
    assert_false(weir__json_get(object, "n\\u0061me", &value));
    assert_false(weir__json_get(weir__str("[\"a\",1]"), "a", &value));
    assert_false(weir__json_get(weir__str("\"a\""), "a", &value));
    assert_str(value, "untouched");
}

/* What the walk gives for texts that were never checked does not matter, but it must end and must
 * not leave the text (each lies in memory of exactly its size). */
static void a_walk_over_unchecked_text_ends_and_stays_inside(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{",
        "{\"",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "{\"\\",
        "{\"a\":[",
        "{\"a\":{\"b\"",
        "{]]]}",
        "{\"a\":]}",
        "{\"a\":,}",
        "{:::}",
        "{\"a\"1}",
        "[",
        "[,,,]",
        "[1",
        "[\"",
        "[\"\\",
        "[[[[",
        "[}}}]",
        "{}}",
        "[]]",
        "[ ",
        "{ ",
        "{\"a\":1,",
        "{\"a\":1 2}",
        "{\"a\":\"\\}",
        "[\"\\]",
        "[1 2]",
        "{\"a\"}",
        "{\"\\\"}",
        "[\x80\xFF]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const size_t len = strlen(texts[i]);
        char *copy = weir__malloc(len);
        assert_non_null(copy);
        memcpy(copy, texts[i], len);
        const weir_str text = { .ptr = copy, .len = len };
        weir_str found = { 0 };
        size_t steps = 0;
        for (weir_json_members it = weir__json_members(text); weir__json_members_next(&it);) {
            assert_true(it.value.ptr >= copy && it.value.ptr + it.value.len <= copy + len);
            assert_true(it.name.ptr >= copy && it.name.ptr + it.name.len <= copy + len);
            assert_true(++steps <= len);
        }
        for (weir_json_members it = weir__json_elements(text); weir__json_elements_next(&it);) {
            assert_true(it.value.ptr >= copy && it.value.ptr + it.value.len <= copy + len);
            assert_true(++steps <= 2 * len);
        }
        (void)weir__json_get(text, "a", &found);
        (void)weir__json_type(text);
        weir__free(copy);
    }
}

/* ---- strings ------------------------------------------------------------------------------ */

static void strings_are_decoded_and_compared_after_decoding(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *text;
    } cases[] = {
        { "\"\"", "" },
        { "\"plain\"", "plain" },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t" },
        { "\"\\u0041\\u00fc\\u20AC\\ud83d\\ude00\"", "A\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80" },
        { "\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF" },
        { "\"a\\u0062c\"", "abc" },
        { " \"x\" ", "x" },
        { "\"\\\\u0041\"", "\\u0041" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_buffer out = { 0 };
        const weir_str value = weir__str(cases[i].value);
        const weir_str text = weir__str(cases[i].text);
        assert_true(weir__buffer_add_text(&out, "+"));
        assert_true(weir__json_string_decode(value, &out));
        assert_str((weir_str){ out.ptr + 1, out.len - 1 }, cases[i].text);
        assert_true(weir__json_string_is(value, text));
        assert_false(weir__json_string_is(value, weir__str("something else entirely")));
        if (text.len > 0) {
            assert_false(weir__json_string_is(value, (weir_str){ text.ptr, text.len - 1 }));
        }
        assert_false(weir__json_string_is(value, (weir_str){ out.ptr, out.len }));
        weir__buffer_free(&out);
    }
    assert_true(weir__json_string_is(weir__str("\"\""), (weir_str){ 0 }));
}

static void what_is_not_a_string_is_not_decoded(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",    "1",      "null",    "[\"a\"]",   "{\"a\":\"b\"}", "\"",
        "\"a", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"ab\\ud800\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weir_buffer out = { 0 };
        assert_true(weir__buffer_add_text(&out, "+"));
        assert_false(weir__json_string_decode(weir__str(texts[i]), &out));
        assert_str((weir_str){ out.ptr, out.len }, "+");
        assert_false(weir__json_string_is(weir__str(texts[i]), weir__str("1")));
        weir__buffer_free(&out);
    }
}

static void written_strings_escape_what_a_terminal_or_parser_must_not_see(void **state)
{
    (void)state;
    static const struct {
        weir_str text;
        const char *json;
    } cases[] = {
        { { NULL, 0 }, "\"\"" },
        { { "plain", 5 }, "\"plain\"" },
        { { "a\"b\\c/d", 7 }, "\"a\\\"b\\\\c/d\"" },
        { { "\b\f\n\r\t", 5 }, "\"\\b\\f\\n\\r\\t\"" },
        { { "\x01\x1f\x7f", 3 }, "\"\\u0001\\u001f\\u007f\"" },
        { { "a\xC2\x9B"
            "31m",
            6 },
          "\"a\\u009b31m\"" },
        { { "\xC2\xA0\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80", 11 },
          "\"\xC2\xA0\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80\"" },
        { { "a\0b", 3 }, "\"a\\ufffdb\"" }, /* \u0000 would be refused when it comes back */
        { { "x\x80y\xC3", 4 }, "\"x\\ufffdy\\ufffd\"" },
        { { "\xED\xA0\x80", 3 }, "\"\\ufffd\\ufffd\\ufffd\"" },
        { { "a long run of plain text, \x7f and another one\n", 44 },
          "\"a long run of plain text, \\u007f and another one\\n\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_buffer out = { 0 };
        assert_true(weir__json_write_string(&out, cases[i].text));
        assert_str((weir_str){ out.ptr, out.len }, cases[i].json);
        weir__buffer_free(&out);
    }
}

static void every_character_survives_writing_checking_and_decoding(void **state)
{
    (void)state;
    for (unsigned first = 1; first < 256; first++) {
        for (unsigned second = 1; second < 256; second++) {
            const char text[3] = { (char)first, (char)second, 'z' };
            weir_buffer json = { 0 };
            weir_buffer checked = { 0 };
            weir_buffer back = { 0 };
            assert_true(weir__json_write_string(&json, (weir_str){ text, 3 }));
            const weir_str written = { json.ptr, json.len };
            assert_int_equal(weir__json_compact(written, &checked, NULL, NULL), WEIR_OK);
            assert_true(weir__str_equal((weir_str){ checked.ptr, checked.len }, written));
            assert_true(weir__json_string_decode(written, &back));
            if (weir__utf8_valid_prefix(text, 3) == 3) {
                assert_true(
                    weir__str_equal((weir_str){ back.ptr, back.len }, (weir_str){ text, 3 }));
                assert_true(weir__json_string_is(written, (weir_str){ text, 3 }));
            }
            weir__buffer_free(&json);
            weir__buffer_free(&checked);
            weir__buffer_free(&back);
        }
    }
}

/* ---- running out of memory ---------------------------------------------------------------- */

/* One of each thing here that allocates. */
static bool use_memory(weir_buffer *out, weir_error *err)
{
    const weir_str text =
        weir__str("{ \"a\" : [ 1, 2, 3 ], \"b\" : \"\\u00fc and so on, and so on\" }");
    const size_t start = out->len;
    weir_status status = weir__json_compact(text, out, NULL, err);
    if (status != WEIR_OK) {
        assert_int_equal(status, WEIR_ENOMEM);
        assert_int_equal(err->code, WEIR_ENOMEM);
        assert_int_equal(out->len, start);
        return false;
    }
    weir_buffer decoded = { 0 };
    weir_str value = { 0 };
    assert_true(weir__json_get(text, "b", &value)); /* does not allocate */
    if (!weir__json_string_decode(value, &decoded)) {
        assert_int_equal(decoded.len, 0);
        weir__buffer_free(&decoded);
        return false;
    }
    char controls[200];
    memset(controls, 1, sizeof controls); /* grows to six times its size while it is written */
    const size_t before = out->len;
    if (!weir__json_write_string(out, (weir_str){ controls, sizeof controls })) {
        assert_int_equal(out->len, before);
        weir__buffer_free(&decoded);
        return false;
    }
    weir__buffer_free(&decoded);
    return true;
}

static void out_of_memory_is_reported_and_leaves_no_trace(void **state)
{
    (void)state;
    uint64_t nth = 0;
    bool done = false;
    while (!done) {
        weir_buffer out = { 0 };
        weir_error err;
        weir__memory_fail_nth(++nth);
        done = use_memory(&out, &err);
        assert_true(done == !weir__memory_failed());
        weir__memory_fail_nth(0);
        weir__buffer_free(&out);
    }
    assert_true(nth > 4); /* so many allocations were made to fail */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compact_text_is_returned_unchanged),
        cmocka_unit_test(white_space_outside_strings_is_removed_and_nothing_else),
        cmocka_unit_test(broken_text_is_refused_with_its_offset_and_what_was_expected),
        cmocka_unit_test(broken_numbers_are_refused),
        cmocka_unit_test(broken_strings_are_refused),
        cmocka_unit_test(nul_bytes_are_refused_wherever_they_are),
        cmocka_unit_test(strings_end_where_they_end_at_any_alignment),
        cmocka_unit_test(nesting_of_128_is_accepted_and_129_refused),
        cmocka_unit_test(an_envelope_is_one_level_deeper),
        cmocka_unit_test(many_containers_side_by_side_are_not_deep),
        cmocka_unit_test(the_outermost_type_is_told),
        cmocka_unit_test(several_texts_can_share_one_buffer),
        cmocka_unit_test(members_come_in_order_repeated_ones_too),
        cmocka_unit_test(elements_come_in_order),
        cmocka_unit_test(empty_containers_and_other_values_have_nothing_to_walk_over),
        cmocka_unit_test(getting_finds_the_last_member_of_that_decoded_name),
        cmocka_unit_test(a_walk_over_unchecked_text_ends_and_stays_inside),
        cmocka_unit_test(strings_are_decoded_and_compared_after_decoding),
        cmocka_unit_test(what_is_not_a_string_is_not_decoded),
        cmocka_unit_test(written_strings_escape_what_a_terminal_or_parser_must_not_see),
        cmocka_unit_test(every_character_survives_writing_checking_and_decoding),
        cmocka_unit_test(out_of_memory_is_reported_and_leaves_no_trace),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
