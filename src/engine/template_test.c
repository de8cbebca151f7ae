/* template_test.c - what templates give, which rule they are, and that everything else is refused
 * with what is allowed. */
#include "engine/template.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const char data[] = "{\"region\":\"eu\\u00e9\",\"amount\":12.50,\"paid\":true,\"gone\":null,"
                           "\"deep\":{\"er\":{\"est\":\"x\"}},\"list\":[1],\"empty\":\"\",\"1\":2}";

static weir_event event(void)
{
    return (weir_event){ .size = sizeof(weir_event),
                         .stream = weir__str("order-17-b"),
                         .name = weir__str("OrderPlaced"),
                         .data = weir__str(data) };
}

static template_text *opened(const char *text)
{
    template_text *t = NULL;
    weir_error err;
    if (weir__template_open(&t, weir__str(text), &err) != WEIR_OK) {
        fail_msg("\"%s\" was refused with \"%s\"", text, err.message);
    }
    return t;
}

static void gives(const char *text, const char *expected)
{
    template_text *t = opened(text);
    weir_arena arena = { 0 };
    weir_str filled = { 0 };
    weir_error err = { 0 };
    const weir_event e = event();
    if (weir__template_fill(t, &e, &arena, &filled, &err) != WEIR_OK) {
        fail_msg("\"%s\" failed with \"%s\"", text, err.message);
    }
    if (!weir__str_equal(filled, weir__str(expected))) {
        fail_msg("\"%s\" gave \"%.*s\", expected \"%s\"", text, (int)filled.len, filled.ptr,
                 expected);
    }
    weir__arena_free(&arena);
    weir__template_close(t);
}

static void fails_on(weir_event e, const char *text, const char *because)
{
    template_text *t = opened(text);
    weir_arena arena = { 0 };
    weir_str filled = { 0 };
    weir_error err = { 0 };
    assert_int_equal(weir__template_fill(t, &e, &arena, &filled, &err), WEIR_EINVAL);
    assert_null(filled.ptr);
    if (strstr(err.message, because) == NULL) {
        fail_msg("\"%s\" failed with \"%s\", expected \"%s\"", text, err.message, because);
    }
    weir__arena_free(&arena);
    weir__template_close(t);
}

static void refused(weir_str text, const char *because)
{
    template_text *t = NULL;
    weir_error err;
    assert_int_equal(weir__template_open(&t, text, &err), WEIR_EINVAL);
    assert_null(t);
    if (strstr(err.message, because) == NULL) {
        fail_msg("refused with \"%s\", expected \"%s\"", err.message, because);
    }
}

static void placeholders_are_filled_from_the_event(void **state)
{
    (void)state;
    gives("mail", "mail");
    gives("{stream}", "order-17-b");
    gives("mail-{stream}", "mail-order-17-b");
    gives("{category}.{name}!", "order.OrderPlaced!");
    gives("{stream}{stream}", "order-17-border-17-b");
}

static void members_are_decoded_strings_and_numbers_and_booleans_as_written(void **state)
{
    (void)state;
    gives("{data.region}", "eu\xc3\xa9");
    gives("r-{data.amount}", "r-12.50");
    gives("{data.paid}{data.1}", "true2");
    gives("{data.deep.er.est}", "x");
    gives("a{data.empty}b", "ab");
}

static void doubled_braces_are_braces(void **state)
{
    (void)state;
    gives("{{stream}}", "{stream}");
    gives("{{{stream}}}", "{order-17-b}");
    gives("}}{{", "}{");
}

static void a_member_that_gives_no_text_is_named(void **state)
{
    (void)state;
    fails_on(event(), "{data.missing}", "no \"data.missing\"");
    fails_on(event(), "{data.deep.er.missing}", "no \"data.deep.er.missing\"");
    fails_on(event(), "{data.region.inner}", "no \"data.region.inner\"");
    fails_on(event(), "{data.gone}", "\"data.gone\" of the event is null");
    fails_on(event(), "x-{data.deep}", "is an object");
    fails_on(event(), "{data.list}", "is an array");
    weir_event e = event();
    e.data = weir__str("[1,2]");
    fails_on(e, "{data.region}", "no \"data.region\"");
    e.data = weir__str("7");
    fails_on(e, "{data.region}", "no \"data.region\"");
}

static void a_result_is_bounded(void **state)
{
    (void)state;
    static char big[2 * TEMPLATE_RESULT_BYTES_MAX];
    weir_event e = event();
    (void)memset(big, '7', sizeof big);
    e.data = (weir_str){ .ptr = big, .len = sizeof big };
    memcpy(big, "{\"a\":", 5);
    big[sizeof big - 1] = '}';
    fails_on(e, "{data.a}", "more than 4096 bytes");
    big[5] = '"';
    big[sizeof big - 2] = '"';
    fails_on(e, "{data.a}", "allowed 4096");
}

static void what_is_not_a_placeholder_is_refused_with_what_is(void **state)
{
    (void)state;
    refused(weir__str("a-{flow}"),
            "unknown placeholder \"{flow}\" at byte 2: allowed are {stream}");
    refused(weir__str("{}"), "unknown placeholder \"{}\" at byte 0");
    refused(weir__str("{ stream}"), "unknown placeholder");
    refused(weir__str("{data}"), "unknown placeholder");
    refused(weir__str("{data.}"), "unknown placeholder");
    refused(weir__str("{data..a}"), "unknown placeholder");
    refused(weir__str("{data.a.}"), "unknown placeholder");
    refused(weir__str("{data.a..b}"), "unknown placeholder");
    refused(weir__str("{meta.a}"), "unknown placeholder");
    refused(weir__str("x{stream"), "'{' without '}' at byte 1");
    refused(weir__str("x}"), "'}' without '{' at byte 1");
    refused(weir__str("{stream}}"), "'}' without '{' at byte 8");
    refused(weir__str("\xff-{stream}"), "not valid UTF-8 at byte 0");
    refused(weir__str("a\nb"), "control character at byte 1");
    refused((weir_str){ .ptr = "a\0b", .len = 3 }, "control character at byte 1");
}

static void a_template_has_a_largest_size(void **state)
{
    (void)state;
    static char text[TEMPLATE_BYTES_MAX + 1];
    template_text *t = NULL;
    (void)memset(text, 'a', sizeof text);
    refused((weir_str){ .ptr = text, .len = sizeof text }, "has 1025 bytes, allowed 1 to 1024");
    refused((weir_str){ 0 }, "has 0 bytes");
    assert_int_equal(weir__template_open(&t, (weir_str){ text, TEMPLATE_BYTES_MAX }, NULL),
                     WEIR_OK);
    weir__template_close(t);
}

/* Every byte that a template can be made of, as dense as pieces get. */
static void as_many_pieces_as_fit_stay_inside_the_block(void **state)
{
    (void)state;
    static char text[TEMPLATE_BYTES_MAX + 8];
    const weir_event e = event();
    for (size_t texts = 0; texts <= 1; texts++) {
        size_t len = 0;
        while (len + 7 <= TEMPLATE_BYTES_MAX) {
            memcpy(text + len, "{name}x", 7);
            len += 6 + texts;
        }
        template_text *t = NULL;
        weir_arena arena = { 0 };
        weir_str filled = { 0 };
        assert_int_equal(weir__template_open(&t, (weir_str){ text, len }, NULL), WEIR_OK);
        assert_int_equal(weir__template_fill(t, &e, &arena, &filled, NULL), WEIR_OK);
        assert_int_equal(filled.len, len / (6 + texts) * (e.name.len + texts));
        weir__arena_free(&arena);
        weir__template_close(t);
    }
}

static void rule_is(const char *text, store_rule rule, const char *value)
{
    template_text *t = opened(text);
    const weir_event e = event();
    if (weir__template_rule(t) != rule) {
        fail_msg("\"%s\" has rule %d, expected %d", text, (int)weir__template_rule(t), (int)rule);
    }
    assert_true(weir__str_equal(weir__template_value(t, &e), weir__str(value)));
    weir__template_close(t);
}

static void the_rule_follows_from_the_placeholders(void **state)
{
    (void)state;
    rule_is("mail", STORE_RULE_CONSTANT, "");
    rule_is("{{stream}}", STORE_RULE_CONSTANT, "");
    rule_is("{stream}", STORE_RULE_STREAM, "order-17-b");
    rule_is("mail-{stream}.x", STORE_RULE_STREAM, "order-17-b");
    rule_is("by-{category}", STORE_RULE_CATEGORY, "order");
    rule_is("{name}", STORE_RULE_NAME, "OrderPlaced");
    rule_is("{data.region}", STORE_RULE_WORK, "");
    rule_is("{stream}-{name}", STORE_RULE_WORK, "");
    rule_is("{stream}-{data.region}", STORE_RULE_WORK, "");
    rule_is("{category}-{category}", STORE_RULE_WORK, "");
}

static void no_memory_is_a_failure_not_a_crash(void **state)
{
    (void)state;
    const weir_event e = event();
    uint64_t failures = 0;
    for (uint64_t nth = 1;; nth++) {
        template_text *t = NULL;
        weir_arena arena = { 0 };
        weir_str filled = { 0 };
        weir__memory_fail_nth(nth);
        weir_status status = weir__template_open(&t, weir__str("{data.region}-{stream}"), NULL);
        if (status == WEIR_OK) {
            status = weir__template_fill(t, &e, &arena, &filled, NULL);
        }
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(status, failed ? WEIR_ENOMEM : WEIR_OK);
        weir__arena_free(&arena);
        weir__template_close(t);
        if (!failed) {
            break;
        }
        failures++;
    }
    assert_true(failures >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placeholders_are_filled_from_the_event),
        cmocka_unit_test(members_are_decoded_strings_and_numbers_and_booleans_as_written),
        cmocka_unit_test(doubled_braces_are_braces),
        cmocka_unit_test(a_member_that_gives_no_text_is_named),
        cmocka_unit_test(a_result_is_bounded),
        cmocka_unit_test(what_is_not_a_placeholder_is_refused_with_what_is),
        cmocka_unit_test(a_template_has_a_largest_size),
        cmocka_unit_test(as_many_pieces_as_fit_stay_inside_the_block),
        cmocka_unit_test(the_rule_follows_from_the_placeholders),
        cmocka_unit_test(no_memory_is_a_failure_not_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
