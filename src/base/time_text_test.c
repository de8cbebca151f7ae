/* time_text_test.c - points in time as text and back, over all the years there are.
 *
 * The oracle for dates is a calendar that is counted day by day, with the rule of leap years as
 * one learns it; the code under test computes.
 */
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static const int64_t DAY_US = INT64_C(86400) * 1000000;
static const int64_t YEAR_1_DAYS = -719162; /* 0001-01-01, in days from 1970-01-01 */

static int month_days(int year, int month)
{
    if (month == 2) {
        return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
    }
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

static void every_day_from_0001_to_9999_is_written_and_read_back(void **state)
{
    (void)state;
    int64_t day = YEAR_1_DAYS;
    for (int year = 1; year <= 9999; year++) {
        for (int month = 1; month <= 12; month++) {
            for (int d = 1; d <= month_days(year, month); d++, day++) {
                /* Another time of day each day, and the last microsecond of it now and then. */
                const int64_t of_day =
                    d == 28 ? DAY_US - 1 : (day * 7919 % 86400 + 86400) % 86400 * 1000000 + d;
                const int64_t time_us = day * DAY_US + of_day;
                char text[WEIR_TIME_TEXT_BYTES];
                char expected[64];
                int64_t read = 0;
                const int seconds = (int)(of_day / 1000000);
                (void)snprintf(expected, sizeof expected, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                               year, month, d, seconds / 3600, seconds / 60 % 60, seconds % 60,
                               (int)(of_day % 1000000));
                weir__time_to_text(time_us, text);
                if (strcmp(text, expected) != 0) {
                    fail_msg("%s, expected %s", text, expected);
                }
                if (!weir__time_from_text(weir__str(text), &read) || read != time_us) {
                    fail_msg("%s is not read back", text);
                }
                expected[10] = '\0';
                if (!weir__time_from_text(weir__str(expected), &read) || read != day * DAY_US) {
                    fail_msg("%s is not read as a date", expected);
                }
            }
        }
    }
    assert_int_equal(day, 2932897); /* 10000-01-01 */
}

static void known_moments_have_their_known_text(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {
        { 0, "1970-01-01T00:00:00.000000Z" },
        { -1, "1969-12-31T23:59:59.999999Z" },
        { INT64_C(1000000000000000), "2001-09-09T01:46:40.000000Z" },
        { INT64_C(2147483647000000), "2038-01-19T03:14:07.000000Z" },
        { INT64_C(2147483648000000), "2038-01-19T03:14:08.000000Z" },
        { INT64_C(951782400000000), "2000-02-29T00:00:00.000000Z" },
        { INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[WEIR_TIME_TEXT_BYTES];
        int64_t us = 1;
        weir__time_to_text(cases[i].us, text);
        assert_string_equal(text, cases[i].text);
        assert_true(weir__time_from_text(weir__str(text), &us));
        assert_true(us == cases[i].us);
    }
}

static void every_form_of_rfc_3339_is_read(void **state)
{
    (void)state;
    const int64_t expected = INT64_C(1794772944000000); /* 2026-11-15T20:02:24Z */
    static const struct {
        const char *text;
        int64_t plus_us;
    } cases[] = {
        { "2026-11-15T20:02:24Z", 0 },
        { "2026-11-15t20:02:24z", 0 },
        { "2026-11-15 20:02:24Z", 0 },
        { "2026-11-15T20:02:24+00:00", 0 },
        { "2026-11-15T20:02:24-00:00", 0 },
        { "2026-11-15T21:02:24+01:00", 0 },
        { "2026-11-15T12:02:24-08:00", 0 },
        { "2026-11-16T01:47:24+05:45", 0 },
        { "2026-11-14T20:03:24-23:59", 0 },
        { "2026-11-15T20:02:24.5Z", 500000 },
        { "2026-11-15T20:02:24.000001Z", 1 },
        { "2026-11-15T20:02:24.123456789Z", 123456 },
        { "2026-11-15T20:02:24.999999999Z", 999999 },
        { "2026-11-15T21:02:24.25+01:00", 250000 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t us = 0;
        if (!weir__time_from_text(weir__str(cases[i].text), &us)) {
            fail_msg("%s is refused", cases[i].text);
        }
        assert_true(us == expected + cases[i].plus_us);
    }
}

static void impossible_dates_and_other_forms_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "2026",
        "2026-11",
        "2026-11-1",
        "2026-1-15",
        "26-11-15",
        "20261115",
        "2026/11/15",
        "2026-00-15",
        "2026-13-15",
        "2026-11-00",
        "2026-11-31",
        "2026-02-29",
        "2026-02-30",
        "1900-02-29",
        "2100-02-29",
        "2000-02-30",
        "0000-01-01",
        "-001-01-01",
        "+2026-11-15",
        "2026-11-15T",
        "2026-11-15Z",
        "2026-11-15T20",
        "2026-11-15T20:02",
        "2026-11-15T20:02Z",
        "2026-11-15T20:02:24",
        "2026-11-15T20:02:24 Z",
        "2026-11-15T24:00:00Z",
        "2026-11-15T20:60:00Z",
        "2026-11-15T20:02:60Z",
        "2016-12-31T23:59:60Z",
        "2026-11-15T20:02:24.Z",
        "2026-11-15T20:02:24,5Z",
        "2026-11-15T20:02:24.0000000000Z",
        "2026-11-15T20:02:24.5",
        "2026-11-15T20:02:24+0100",
        "2026-11-15T20:02:24+1:00",
        "2026-11-15T20:02:24+01",
        "2026-11-15T20:02:24+24:00",
        "2026-11-15T20:02:24+01:60",
        "2026-11-15T20:02:24Zx",
        "2026-11-15T20:02:24Z ",
        " 2026-11-15T20:02:24Z",
        "2026-11-15_20:02:24Z",
        "2026-11-15T2a:02:24Z",
        "\xD9\xA2\xD9\xA0-01-01",
        "0001-01-01T00:00:00+00:01", /* would be in the year 0 */
        "0000-12-31T23:59:59-01:00", /* would be in the year 1, but names the year 0 */
        "9999-12-31T23:59:59-00:01", /* would be in the year 10000 */
        "10000-01-01T00:00:00Z",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int64_t us = 99;
        if (weir__time_from_text(weir__str(wrong[i]), &us)) {
            fail_msg("%s is accepted", wrong[i]);
        }
        assert_true(us == 99);
    }
    int64_t us = 99;
    assert_false(weir__time_from_text((weir_str){ 0 }, &us));
    assert_false(weir__time_from_text((weir_str){ .ptr = "2026-11-15\0", .len = 11 }, &us));
    assert_false(weir__time_from_text((weir_str){ .ptr = "2026-11-15\0"
                                                         "20:02:24Z",
                                                  .len = 20 },
                                      &us));
}

static void times_no_calendar_text_can_hold_are_shown_with_a_sign(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {
        { INT64_MAX, "+294247-01-10T04:00:54.775807Z" },
        { INT64_MIN, "-290308-12-21T19:59:05.224192Z" },
        { INT64_C(253402300800000000), "+010000-01-01T00:00:00.000000Z" },
        { INT64_C(-62135596800000001), "0000-12-31T23:59:59.999999Z" },
        { INT64_C(-62167219200000001), "-000001-12-31T23:59:59.999999Z" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[WEIR_TIME_TEXT_BYTES];
        int64_t us = 99;
        weir__time_to_text(cases[i].us, text);
        assert_string_equal(text, cases[i].text);
        assert_false(weir__time_from_text(weir__str(text), &us));
    }
}

static void the_time_zone_of_the_process_has_no_say(void **state)
{
    (void)state;
    assert_int_equal(setenv("TZ", "XYZ-13:45", 1), 0);
    tzset();
    char text[WEIR_TIME_TEXT_BYTES];
    int64_t us = 1;
    weir__time_to_text(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000000Z");
    assert_true(weir__time_from_text(weir__str("1970-01-01"), &us));
    assert_true(us == 0);
    assert_int_equal(unsetenv("TZ"), 0);
    tzset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_day_from_0001_to_9999_is_written_and_read_back),
        cmocka_unit_test(known_moments_have_their_known_text),
        cmocka_unit_test(every_form_of_rfc_3339_is_read),
        cmocka_unit_test(impossible_dates_and_other_forms_are_refused),
        cmocka_unit_test(times_no_calendar_text_can_hold_are_shown_with_a_sign),
        cmocka_unit_test(the_time_zone_of_the_process_has_no_say),
    };
    return cmocka_run_group_tests_name("time_text", tests, NULL, NULL);
}
