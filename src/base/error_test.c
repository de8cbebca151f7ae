/* error_test.c - what a user reads when something fails. */
#include "base/error.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void failing_fills_code_and_message_and_resets_the_rest(void **state)
{
    (void)state;
    weir_error err;
    memset(&err, 0xAB, sizeof err); /* as on a caller's stack */
    assert_int_equal(weir__fail(&err, WEIR_EINVAL, "name has %d bytes, allowed 1 to %d", 600, 512),
                     WEIR_EINVAL);
    assert_int_equal(err.size, sizeof err);
    assert_int_equal(err.code, WEIR_EINVAL);
    assert_string_equal(err.message, "name has 600 bytes, allowed 1 to 512");
    assert_string_equal(err.stream, "");
    assert_string_equal(err.detail, weir__status_advice((weir_status)err.code));
    assert_string_equal(err.store_code, "");
    assert_int_equal(err.expected, 0);
    assert_int_equal(err.actual, 0);
    for (size_t i = 0; i < sizeof err.reserved; i++) {
        assert_int_equal(err.reserved[i], 0);
    }
}

static void no_error_struct_is_no_problem(void **state)
{
    (void)state;
    assert_int_equal(weir__fail(NULL, WEIR_EIO, "x"), WEIR_EIO);
    assert_int_equal(weir__wrap(NULL, WEIR_EBUSY, "x"), WEIR_EBUSY);
    assert_int_equal(weir__fail_conflict(NULL, weir__str("s"), 1, 2), WEIR_ECONFLICT);
    weir__error_stream(NULL, weir__str("s"));
    weir__error_detail(NULL, "x");
    weir__error_store_code(NULL, "x");
}

static void wrapping_puts_the_outermost_first_and_keeps_the_rest(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EIO, "disk full");
    weir__error_store_code(&err, "%d", 778);
    weir__error_detail(&err, "Make room and try again.");
    weir__error_stream(&err, weir__str("order-1"));
    err.expected = 3;
    err.actual = 5;
    assert_int_equal(weir__wrap(&err, WEIR_EIO, "could not open database \"%s\"", "x.db"),
                     WEIR_EIO);
    assert_int_equal(weir__wrap(&err, WEIR_EIO, "append"), WEIR_EIO);
    assert_string_equal(err.message, "append: could not open database \"x.db\": disk full");
    assert_string_equal(err.store_code, "778");
    assert_string_equal(err.detail, "Make room and try again.");
    assert_string_equal(err.stream, "order-1");
    assert_int_equal(err.expected, 3);
    assert_int_equal(err.actual, 5);
}

static void every_code_says_what_to_do(void **state)
{
    (void)state;
    weir_error err;
    for (int code = WEIR_EINTERRUPTED; code < WEIR_OK; code++) {
        (void)weir__fail(&err, (weir_status)code, "x");
        const size_t len = strlen(err.detail);
        assert_true(len > 20 && err.detail[len - 1] == '.');
        assert_false(weir__error_advised(&err));
        for (int other = code + 1; other < WEIR_OK; other++) {
            assert_string_not_equal(err.detail, weir__status_advice((weir_status)other));
        }
    }
    assert_string_equal(weir_status_text(WEIR_EINTERRUPTED - 1),
                        "unknown-status"); /* all of them */
    /* What the place that failed says counts, and survives; the advice follows the code. */
    weir__error_detail(&err, "Make room.");
    assert_true(weir__error_advised(&err));
    (void)weir__wrap(&err, WEIR_EBUSY, "y");
    assert_string_equal(err.detail, "Make room.");
    weir__error_detail(&err, "%s", "");
    assert_string_equal(err.detail, weir__status_advice(WEIR_EBUSY));
    (void)weir__wrap(&err, WEIR_EIO, "y");
    assert_string_equal(err.detail, weir__status_advice(WEIR_EIO));
    assert_string_equal(weir__status_advice(WEIR_OK), "");
}

static void the_code_is_always_the_one_returned(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EIO, "x");
    assert_int_equal(weir__wrap(&err, WEIR_ECORRUPT, "y"), WEIR_ECORRUPT);
    assert_int_equal(err.code, WEIR_ECORRUPT);
}

static void a_message_may_be_built_from_itself(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EIO, "inner");
    (void)weir__fail(&err, WEIR_EIO, "outer (%s)", err.message);
    assert_string_equal(err.message, "outer (inner)");
    (void)weir__wrap(&err, WEIR_EIO, "again %s", err.message);
    assert_string_equal(err.message, "again outer (inner): outer (inner)");
}

static void control_characters_and_broken_utf8_are_shown_as_question_marks(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EINVAL, "%s", "a\nb\tc\x1b[31md\x7f");
    assert_string_equal(err.message, "a?b?c?[31md?");
    (void)weir__fail(&err, WEIR_EINVAL, "%s", "x\x80y\xC3(z\xED\xA0\x80");
    assert_string_equal(err.message, "x?y?(z???");
    (void)weir__fail(&err, WEIR_EINVAL, "%s", "next\xC2\x85line"); /* U+0085 ends a line, too */
    assert_string_equal(err.message, "next?line");
    (void)weir__fail(&err, WEIR_EINVAL, "%s", "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80");
    assert_string_equal(err.message, "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80");
    (void)weir__fail(&err, WEIR_EINVAL, "%.*s", 2, "a\xC3\xBC"); /* cut by its own caller */
    assert_string_equal(err.message, "a?");
    weir__error_stream(&err, (weir_str){ .ptr = "a\0b\nc", .len = 5 });
    assert_string_equal(err.stream, "a?b?c");
    weir__error_detail(&err, "%s", "one\r\ntwo");
    assert_string_equal(err.detail, "one??two");
}

static void characters_that_nobody_sees_are_escaped(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EINVAL, "%s", "a\xE2\x80\xA8z\xE2\x80\xAE\xF3\xA0\x80\x81");
    assert_string_equal(err.message, "a\\u2028z\\u202e\\udb40\\udc01");
    weir__error_stream(&err, weir__str("a\xE2\x80\x8Bz")); /* a name is compared */
    assert_string_equal(err.stream, "a\xE2\x80\x8Bz");
}

/* A long text of characters of `bytes` bytes each, after `before` single ones. */
static void fill(char *text, size_t size, size_t before, const char *character)
{
    const size_t bytes = strlen(character);
    size_t used = 0;
    while (used < before) {
        text[used++] = '.';
    }
    while (used + bytes < size) {
        memcpy(text + used, character, bytes);
        used += bytes;
    }
    text[used] = '\0';
}

static void what_does_not_fit_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = { "x", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x98\x80" };
    for (size_t i = 0; i < 4; i++) {
        for (size_t before = 0; before < 4; before++) {
            for (size_t size = 500; size < 3000; size += 7) {
                weir_error err;
                static char text[3000];
                fill(text, size, before, characters[i]);
                (void)weir__fail(&err, WEIR_EINVAL, "%s", text);
                const size_t len = strlen(err.message);
                assert_memory_equal(err.message, text, len); /* no '?' crept in */
                assert_int_equal(weir__utf8_valid_prefix(err.message, len), len);
                assert_true(len == strlen(text) || len > sizeof err.message - 1 - 4);

                weir__error_stream(&err, weir__str(text));
                const size_t stream_len = strlen(err.stream);
                assert_memory_equal(err.stream, text, stream_len);
                assert_int_equal(weir__utf8_valid_prefix(err.stream, stream_len), stream_len);

                (void)weir__wrap(&err, WEIR_EINVAL, "%s", text); /* the outer part comes first */
                const size_t wrapped_len = strlen(err.message);
                assert_memory_equal(err.message, text,
                                    strlen(text) < wrapped_len ? strlen(text) : wrapped_len);
                assert_int_equal(weir__utf8_valid_prefix(err.message, wrapped_len), wrapped_len);
            }
        }
    }
}

static void a_store_code_has_at_most_seven_characters(void **state)
{
    (void)state;
    weir_error err;
    (void)weir__fail(&err, WEIR_EIO, "x");
    weir__error_store_code(&err, "%s", "40001");
    assert_string_equal(err.store_code, "40001");
    weir__error_store_code(&err, "%s", "123456789");
    assert_string_equal(err.store_code, "1234567");
    assert_string_equal(err.message, "x");
}

static void a_conflict_carries_its_numbers_and_says_them(void **state)
{
    (void)state;
    static const struct {
        int64_t expected, actual;
        const char *message;
    } cases[] = {
        { 3, 5, "conflict on \"order-1\": expected version 3, it is at 5" },
        { 3, WEIR_VERSION_NONE,
          "conflict on \"order-1\": expected version 3, there is no such stream" },
        { WEIR_VERSION_NONE, 0, "conflict on \"order-1\": expected no such stream, it is at 0" },
        { WEIR_VERSION_EXISTS, WEIR_VERSION_NONE,
          "conflict on \"order-1\": expected it to exist, there is no such stream" },
        { INT64_MAX, INT64_MAX - 1,
          "conflict on \"order-1\": expected version 9223372036854775807, "
          "it is at 9223372036854775806" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_error err;
        assert_int_equal(
            weir__fail_conflict(&err, weir__str("order-1"), cases[i].expected, cases[i].actual),
            WEIR_ECONFLICT);
        assert_int_equal(err.code, WEIR_ECONFLICT);
        assert_string_equal(err.message, cases[i].message);
        assert_string_equal(err.stream, "order-1");
        assert_true(err.expected == cases[i].expected);
        assert_true(err.actual == cases[i].actual);
    }
}

static void a_long_name_does_not_push_the_versions_out_of_a_conflict(void **state)
{
    (void)state;
    for (size_t before = 0; before < 4; before++) {
        char name[513];
        weir_error err;
        fill(name, sizeof name, before, "\xF0\x9F\x98\x80");
        (void)weir__fail_conflict(&err, weir__str(name), INT64_MAX, INT64_MAX - 1);
        assert_string_equal(err.stream, name);
        const char *tail = "...\": expected version 9223372036854775807, "
                           "it is at 9223372036854775806";
        const size_t len = strlen(err.message);
        assert_true(len > strlen(tail));
        assert_string_equal(err.message + len - strlen(tail), tail);
        assert_int_equal(weir__utf8_valid_prefix(err.message, len), len);
        assert_null(strchr(err.message, '?'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_fills_code_and_message_and_resets_the_rest),
        cmocka_unit_test(no_error_struct_is_no_problem),
        cmocka_unit_test(wrapping_puts_the_outermost_first_and_keeps_the_rest),
        cmocka_unit_test(every_code_says_what_to_do),
        cmocka_unit_test(the_code_is_always_the_one_returned),
        cmocka_unit_test(a_message_may_be_built_from_itself),
        cmocka_unit_test(control_characters_and_broken_utf8_are_shown_as_question_marks),
        cmocka_unit_test(characters_that_nobody_sees_are_escaped),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
        cmocka_unit_test(a_store_code_has_at_most_seven_characters),
        cmocka_unit_test(a_conflict_carries_its_numbers_and_says_them),
        cmocka_unit_test(a_long_name_does_not_push_the_versions_out_of_a_conflict),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
