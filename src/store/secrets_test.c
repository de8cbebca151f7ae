/* secrets_test.c - no password of a URL is shown, however the URL is written. */
#include "base/error.h"
#include "base/str.h"
#include "store/secrets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void shown_is(const char *url, const char *expected)
{
    weir_buffer out = { 0 };
    assert_true(weir__url_shown(&out, weir__str(url)));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, expected);
    weir__buffer_free(&out);
}

static void a_url_is_shown_without_its_passwords(void **state)
{
    (void)state;
    shown_is("postgres://h/d", "postgres://h/d");
    shown_is("postgres://u@h:5432/d", "postgres://u@h:5432/d");
    shown_is("postgres://u:hunter2@h:5432/d", "postgres://u:***@h:5432/d");
    shown_is("postgres://u:hunter2@a:1,b:2/d?sslmode=require",
             "postgres://u:***@a:1,b:2/d?sslmode=require");
    shown_is("postgres:///d?host=/tmp&password=hunter2&user=u",
             "postgres:///d?host=/tmp&password=***&user=u");
    shown_is("postgres://u:hunter2@h/d?sslpassword=hunter2&password=hunter2",
             "postgres://u:***@h/d?sslpassword=***&password=***");
    shown_is("postgres://h:5432/d", "postgres://h:5432/d");
    shown_is("postgres://h:5432/d?application_name=a@b",
             "postgres://h:5432/d?application_name=a@b");
    shown_is("postgres://", "postgres://");
    shown_is("", "");
}

static void without_is(const char *url, const char *expected)
{
    weir_buffer out = { 0 };
    assert_true(weir__url_without_passwords(&out, weir__str(url)));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, expected);
    weir__buffer_free(&out);
}

static void a_url_without_passwords_is_still_one(void **state)
{
    (void)state;
    without_is("postgres://h/d", "postgres://h/d");
    without_is("postgres://u:hunter2@h:5432/d", "postgres://u@h:5432/d");
    without_is("postgres://u:@h/d", "postgres://u@h/d");
    without_is("postgres://u:hunter2@h/d?a=1", "postgres://u@h/d?a=1");
    without_is("postgres:///d?password=hunter2", "postgres:///d");
    without_is("postgres:///d?password=hunter2&user=u", "postgres:///d?user=u");
    without_is("postgres:///d?user=u&password=", "postgres:///d?user=u");
    without_is("postgres:///d?user=u&sslpassword=x&password=y", "postgres:///d?user=u");
    without_is("postgres://u:a@h/d?password=b&host=/tmp&sslpassword=c",
               "postgres://u@h/d?host=/tmp");
    without_is("", "");
}

static void what_may_be_a_part_of_a_password_is_one(void **state)
{
    (void)state;
    shown_is("postgres://u:hun@ter2@h/d", "postgres://u:***@h/d");
    shown_is("postgres://u:hun/ter2@h/d", "postgres://u:***@h/d");
    shown_is("postgres://u:hun?ter2@h/d", "postgres://u:***@h/d");
    shown_is("postgres://u:hun:ter2@h/d", "postgres://u:***@h/d");
}

static void messages_lose_passwords_as_written_and_decoded(void **state)
{
    (void)state;
    weir_error err;
    const weir_str url = weir__str("postgres://u:p%40ss@h/d?password=other");
    (void)weir__fail(&err, WEIR_EINVAL, "invalid \"p%%40ss\" and p@ss, then other, p@ss");
    weir__error_detail(&err, "other p@ss");
    weir__url_scrub(url, &err);
    assert_string_equal(err.message, "invalid \"***\" and ***, then ***, ***");
    assert_string_equal(err.detail, "*** ***");
    weir__url_scrub(url, NULL);
}

static void a_short_password_does_not_overflow_a_full_message(void **state)
{
    (void)state;
    weir_error err;
    char full[sizeof err.message];
    memset(full, 'x', sizeof full - 1);
    full[sizeof full - 1] = '\0';
    (void)weir__fail(&err, WEIR_EINVAL, "%s", full);
    weir__url_scrub(weir__str("postgres://u:x@h/d"), &err);
    assert_true(strlen(err.message) < sizeof err.message);
    assert_null(strchr(err.message, 'x'));
}

static void a_password_that_libpq_would_cut_in_two_is_refused(void **state)
{
    (void)state;
    weir_error err;
    const char *const bad[] = { "postgres://u:hun/ter2@h/d", "postgres://u:hun@ter2@h/d",
                                "postgres://u:hun?ter2@h/d" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(weir__url_check_password(weir__str(bad[i]), &err), WEIR_EINVAL);
        assert_null(strstr(err.message, "ter2"));
        assert_null(strstr(err.message, "hun"));
        assert_non_null(strstr(err.message, "write %"));
    }
    const char *const fine[] = { "postgres://u:hunter2@h/d", "postgres://h:5432/odd@name",
                                 "postgres://u@h/d", "postgres:///d?host=/x&application_name=a@b" };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        assert_int_equal(weir__url_check_password(weir__str(fine[i]), &err), WEIR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_shown_without_its_passwords),
        cmocka_unit_test(a_url_without_passwords_is_still_one),
        cmocka_unit_test(what_may_be_a_part_of_a_password_is_one),
        cmocka_unit_test(messages_lose_passwords_as_written_and_decoded),
        cmocka_unit_test(a_short_password_does_not_overflow_a_full_message),
        cmocka_unit_test(a_password_that_libpq_would_cut_in_two_is_refused),
    };
    return cmocka_run_group_tests_name("secrets", tests, NULL, NULL);
}
