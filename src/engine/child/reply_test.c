/* reply_test.c - every form of a reply, and every way of getting one wrong, with what is said. */
#include "base/json.h"
#include "base/str.h"
#include "engine/child/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static child_result result; /* used again and again, as a worker does */
static reply_text text;
static weir_error error;

static weir_status take(const char *line)
{
    weir__arena_reset(&result.arena);
    result = (child_result){ .arena = result.arena, .json = result.json, .text = result.text };
    error = (weir_error){ .code = 0 };
    return weir__reply_take(&result, weir__str(line), &text, &error);
}

static void is_text(weir_str actual, const char *expected)
{
    assert_int_equal(actual.len, strlen(expected));
    assert_memory_equal(actual.ptr, expected, actual.len);
}

static void is_refused(const char *line, const char *message)
{
    assert_int_equal(take(line), WEIR_EINVAL);
    assert_string_equal(error.message, message);
}

static void ok_alone_is_done(void **state)
{
    (void)state;
    assert_int_equal(take(" { \"ok\" : true } "), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(result.appends_count, 0);
    is_text(result.reply, "{\"ok\":true}");
    assert_int_equal(take("{\"ok\":true,\"append\":[]}"), WEIR_OK);
    assert_int_equal(result.appends_count, 0);
}

static void appends_are_handed_on_as_they_were_written(void **state)
{
    (void)state;
    assert_int_equal(take("{\"append\":[{\"stream\":\"mail-1\",\"name\":\"Sent\",\"data\":{\"a\": "
                          "[1.50]},\"meta\":{},\"expect\":7},{\"name\":\"\\u00e9\\n\",\"stream\":"
                          "\"s\",\"expect\":\"none\"},{\"name\":\"n\",\"stream\":\"s\",\"expect\":"
                          "\"exists\"},{\"name\":\"n\",\"stream\":\"s\",\"expect\":\"any\"}],"
                          "\"ok\":true}"),
                     WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(result.appends_count, 4);
    const child_append *a = result.appends;
    is_text(a[0].stream, "mail-1");
    is_text(a[0].name, "Sent");
    is_text(a[0].data, "{\"a\":[1.50]}");
    is_text(a[0].meta, "{}");
    assert_int_equal(a[0].expect, WEIR_EXPECT_EXACT);
    assert_int_equal(a[0].version, 7);
    is_text(a[1].stream, "s");
    is_text(a[1].name, "\xc3\xa9\n");
    assert_int_equal(a[1].data.len, 0);
    assert_int_equal(a[1].meta.len, 0);
    assert_int_equal(a[1].expect, WEIR_EXPECT_NONE);
    assert_int_equal(a[1].version, 0);
    assert_int_equal(a[2].expect, WEIR_EXPECT_EXISTS);
    assert_int_equal(a[3].expect, WEIR_EXPECT_ANY);
}

static void the_other_answers_carry_why_or_until(void **state)
{
    (void)state;
    assert_int_equal(take("{\"retry\":\"no \\\"route\\\"\"}"), WEIR_OK);
    assert_int_equal(result.kind, CHILD_RETRY);
    is_text(text.why, "no \"route\"");
    assert_int_equal(take("{\"permanent\":\"\"}"), WEIR_OK);
    assert_int_equal(result.kind, CHILD_PERMANENT);
    assert_int_equal(text.why.len, 0);
    assert_int_equal(take("{\"defer\":\"1970-01-01T00:00:01.000002Z\"}"), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DEFER);
    assert_int_equal(result.defer_us, 1000002);
}

static void a_member_that_is_not_known_is_named(void **state)
{
    (void)state;
    is_refused("{\"ok\":true,\"outbox\":[]}", "unknown member \"outbox\"");
    is_refused("{\"ok\":true,\"append\":[{\"stream\":\"s\",\"name\":\"n\"},"
               "{\"stream\":\"s\",\"name\":\"n\",\"key\":\"k\"}]}",
               "item 2 of \"append\": unknown member \"key\"");
    /* an escape does not hide one that is known */
    assert_int_equal(take("{\"\\u006fk\":true}"), WEIR_OK);
}

static void exactly_one_answer_is_given(void **state)
{
    (void)state;
    is_refused("{}", "expected one of \"ok\", \"retry\", \"permanent\" and \"defer\"");
    is_refused("{\"append\":[]}", "expected one of \"ok\", \"retry\", \"permanent\" and \"defer\"");
    is_refused("{\"ok\":true,\"retry\":\"x\"}", "both \"ok\" and \"retry\" are given");
    is_refused("{\"ok\":true,\"ok\":true}", "\"ok\" is given twice");
    is_refused("{\"permanent\":\"x\",\"append\":[]}",
               "\"append\" goes with \"ok\" only, not with \"permanent\"");
}

static void values_of_the_wrong_kind_are_refused(void **state)
{
    (void)state;
    is_refused("[]", "expected a JSON object");
    is_refused("{\"ok\":false}", "\"ok\" must be true");
    is_refused("{\"retry\":3}", "\"retry\" must be a string");
    is_refused("{\"permanent\":null}", "\"permanent\" must be a string");
    is_refused("{\"defer\":\"tomorrow\"}",
               "\"defer\" must be a time as in RFC 3339, not \"tomorrow\"");
    is_refused("{\"ok\":true,\"append\":{}}", "\"append\" must be an array");
    is_refused("{\"ok\":true,\"append\":[1]}", "item 1 of \"append\": expected a JSON object");
    is_refused("{\"ok\":true,\"append\":[{\"name\":\"n\"}]}",
               "item 1 of \"append\": \"stream\" is missing");
    is_refused("{\"ok\":true,\"append\":[{\"stream\":\"s\",\"name\":\"\"}]}",
               "item 1 of \"append\": \"name\" is empty");
    is_refused("{\"ok\":true,\"append\":[{\"stream\":\"s\",\"name\":\"n\",\"expect\":\"7\"}]}",
               "item 1 of \"append\": \"expect\" must be \"any\", \"none\", \"exists\" or a "
               "version, not \"7\"");
    is_refused("{\"ok\":true,\"append\":[{\"stream\":\"s\",\"name\":\"n\",\"expect\":-1}]}",
               "item 1 of \"append\": \"expect\" must be \"any\", \"none\", \"exists\" or a "
               "version, not -1");
    assert_int_equal(take("{\"ok\":true"), WEIR_EINVAL);
    assert_int_equal(take(""), WEIR_EINVAL);
}

static bool is_meant(const char *line)
{
    bool meant = false;

    assert_int_equal(weir__reply_is_meant(weir__str(line), &meant, NULL), WEIR_OK);
    return meant;
}

static void a_reply_is_told_from_other_output(void **state)
{
    (void)state;
    assert_true(is_meant("{\"ok\":true}"));
    assert_true(is_meant("  {\"append\":[],\"x\":1}"));
    assert_true(is_meant("{\"ok\":true,\"append\":[")); /* a mistake is not passed over */
    assert_true(is_meant("{ \"retry\": \"a \"quote\"\" }"));
    assert_false(is_meant(""));
    assert_false(is_meant("done."));
    assert_false(is_meant("[{\"ok\":true}]"));
    assert_false(is_meant("{}"));
    assert_false(is_meant("{a,b}"));
    assert_false(is_meant("{\"level\":\"info\",\"msg\":\"ok\"}")); /* a log line */
}

static void running_out_of_memory_is_said(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        weir__child_result_free(&result);
        weir__memory_fail_nth(n);
        const weir_status status = take("{\"ok\":true,\"append\":[{\"stream\":\"\\n\",\"name\":"
                                        "\"n\"}]}");
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        if (!failed) {
            assert_int_equal(status, WEIR_OK);
            assert_true(n > 3);
            break;
        }
        assert_int_equal(status, WEIR_ENOMEM);
    }
}

static int free_result(void **state)
{
    (void)state;
    weir__child_result_free(&result);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ok_alone_is_done),
        cmocka_unit_test(appends_are_handed_on_as_they_were_written),
        cmocka_unit_test(the_other_answers_carry_why_or_until),
        cmocka_unit_test(a_member_that_is_not_known_is_named),
        cmocka_unit_test(exactly_one_answer_is_given),
        cmocka_unit_test(values_of_the_wrong_kind_are_refused),
        cmocka_unit_test(a_reply_is_told_from_other_output),
        cmocka_unit_test(running_out_of_memory_is_said),
    };
    return cmocka_run_group_tests_name("reply", tests, NULL, free_result);
}
