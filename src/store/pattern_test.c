/* pattern_test.c - what patterns match, and that the portable subset refuses everything else by
 * name. */
#include "store/pattern.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool matches(const char *pattern, const char *name)
{
    store_pattern *p = NULL;
    weir_error err;
    assert_int_equal(weir__pattern_open(&p, weir__str(pattern), &err), WEIR_OK);
    const bool matched = weir__pattern_matches(p, weir__str(name));
    weir__pattern_close(p);
    return matched;
}

static void refused(const char *pattern, const char *because)
{
    store_pattern *p = NULL;
    weir_error err;
    assert_int_equal(weir__pattern_open(&p, weir__str(pattern), &err), WEIR_EINVAL);
    assert_null(p);
    if (strstr(err.message, because) == NULL) {
        fail_msg("\"%s\" was refused with \"%s\", expected \"%s\"", pattern, err.message, because);
    }
}

static void a_name_matches_itself_only(void **state)
{
    (void)state;
    assert_true(matches("order-1", "order-1"));
    assert_false(matches("order-1", "order-10"));
    assert_false(matches("order-1", "Order-1"));
}

static void a_last_star_is_a_prefix_and_alone_it_is_all(void **state)
{
    (void)state;
    assert_true(matches("order-*", "order-"));
    assert_true(matches("order-*", "order-10"));
    assert_false(matches("order-*", "order"));
    assert_true(matches("*", "anything"));
}

static void a_star_elsewhere_is_refused_not_taken_literally(void **state)
{
    (void)state;
    refused("*-1", "at the end only");
    refused("a*b", "at the end only");
    refused("**", "at the end only");
}

static void a_regular_expression_is_searched_for_anywhere(void **state)
{
    (void)state;
    assert_true(matches("/rder/", "order-1"));
    assert_false(matches("/^rder/", "order-1"));
    assert_true(matches("/^(order|cart)-[0-9]{1,3}$/", "cart-123"));
    assert_false(matches("/^(order|cart)-[0-9]{1,3}$/", "cart-1234"));
    assert_true(matches("/^(?:a|b)+?$/", "abab"));
    assert_true(matches("/^\\w+-\\d$/", "x_9-3"));
    assert_true(matches("/a\\/b/", "a/b"));
    assert_true(matches("/^.$/", "\xc3\xa4")); /* a character, not a byte */
}

static void shorthand_classes_are_ascii(void **state)
{
    (void)state;
    assert_false(matches("/\\w/", "\xc3\xa4"));
    assert_false(matches("/\\d/", "\xd9\xa3")); /* an Arabic digit */
    assert_true(matches("/^\\W\\D\\S$/", "\xc3\xa4\xc3\xa4\xc3\xa4"));
}

static void what_dialects_disagree_on_is_refused_by_name(void **state)
{
    (void)state;
    refused("/\\bx/", "\\b");
    refused("/(a)\\1/", "\\1");
    refused("/(?=x)/", "(?");
    refused("/(?i)x/", "(?");
    refused("/(*UCP)x/", "(*");
    refused("/a*+/", "possessive");
    refused("/a**/", "repetition of");
    refused("/*a/", "repetition of nothing");
    refused("/a{2,1}/", "m <= n");
    refused("/a{256}/", "255");
    refused("/a{,3}/", "{m,n}");
    refused("/[[:alpha:]]/", "inside a class");
    refused("/[\\D]/", "\\D");
    refused("/[]a]/", "class");
    refused("/[a/", "without ']'");
    refused("/(a/", "without ')'");
    refused("/a)/", "without '('");
    refused("/a}/", "']' or '}'");
    refused("/a\\/", "a backslash at the end");
}

static void a_regular_expression_stands_between_slashes(void **state)
{
    (void)state;
    refused("/abc", "two slashes");
    refused("//", "two slashes");
    refused("/", "two slashes");
}

static void lengths_are_limited(void **state)
{
    (void)state;
    char text[PATTERN_BYTES_MAX + 2];
    memset(text, 'a', sizeof text);
    text[PATTERN_BYTES_MAX] = '\0';
    assert_false(matches(text, "a"));
    text[PATTERN_BYTES_MAX] = 'a';
    text[PATTERN_BYTES_MAX + 1] = '\0';
    refused(text, "allowed 1 to 512");
    refused("", "allowed 1 to 512");
    refused("\xff", "UTF-8");
}

static void a_match_that_would_take_for_ever_does_not_match(void **state)
{
    (void)state;
    char name[201];
    memset(name, 'a', 200);
    name[200] = '\0';
    assert_false(matches("/^(a+)+(a+)+(a+)+b$/", name));
}

static void the_category_is_what_stands_before_the_first_dash(void **state)
{
    (void)state;
    assert_true(weir__str_equal(weir__category(weir__str("order-1-2")), weir__str("order")));
    assert_true(weir__str_equal(weir__category(weir__str("order")), weir__str("order")));
    assert_int_equal(weir__category(weir__str("-x")).len, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_matches_itself_only),
        cmocka_unit_test(a_last_star_is_a_prefix_and_alone_it_is_all),
        cmocka_unit_test(a_star_elsewhere_is_refused_not_taken_literally),
        cmocka_unit_test(a_regular_expression_is_searched_for_anywhere),
        cmocka_unit_test(shorthand_classes_are_ascii),
        cmocka_unit_test(what_dialects_disagree_on_is_refused_by_name),
        cmocka_unit_test(a_regular_expression_stands_between_slashes),
        cmocka_unit_test(lengths_are_limited),
        cmocka_unit_test(a_match_that_would_take_for_ever_does_not_match),
        cmocka_unit_test(the_category_is_what_stands_before_the_first_dash),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
