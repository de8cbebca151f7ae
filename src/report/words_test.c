/* words_test.c - numbers, sizes, times and states as people read them. */
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { SECOND_US = 1000000 };

static void counts_have_a_separator_every_three_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        const char *text;
    } cases[] = {
        { 0, "0" },
        { 7, "7" },
        { 999, "999" },
        { 1000, "1,000" },
        { 12345, "12,345" },
        { 999999, "999,999" },
        { 1234567, "1,234,567" },
        { -1, "-1" },
        { -123, "-123" },
        { -1234, "-1,234" },
        { -123456, "-123,456" },
        { INT64_MAX, "9,223,372,036,854,775,807" },
        { INT64_MIN, "-9,223,372,036,854,775,808" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[REPORT_WORD_BYTES];
        weir__report_count(cases[i].count, out);
        assert_string_equal(out, cases[i].text);
    }
}

static void sizes_have_the_unit_that_reads_best(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.0 KiB" },
        { 2621440, "2.5 MiB" },
        { 1048575, "1.0 MiB" }, /* never 1024.0 KiB */
        { INT64_C(1) << 40, "1.0 TiB" },
        { INT64_MAX, "8.0 EiB" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[REPORT_WORD_BYTES];
        weir__report_bytes(cases[i].bytes, out);
        assert_string_equal(out, cases[i].text);
    }
}

static void spans_have_at_most_two_units(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {
        { -5, "0 s" },
        { 0, "0 s" },
        { 350000, "350 ms" },
        { 3 * SECOND_US + 999999, "3 s" },
        { INT64_C(60) * SECOND_US, "1 min" },
        { INT64_C(95) * SECOND_US, "1 min 35 s" },
        { INT64_C(630) * SECOND_US, "10 min" },
        { INT64_C(7500) * SECOND_US, "2 h 5 min" },
        { INT64_C(90000) * SECOND_US, "25 h" },
        { INT64_C(86400) * 3 * SECOND_US, "3 days" },
        { INT64_MAX, "106,751,991 days" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[REPORT_WORD_BYTES];
        weir__report_span(cases[i].us, out);
        assert_string_equal(out, cases[i].text);
    }
}

static void times_are_told_from_now_or_in_utc(void **state)
{
    (void)state;
    report_screen screen = { .relative = true, .now_us = INT64_C(1000000) * SECOND_US };
    char out[REPORT_WORD_BYTES];

    weir__report_time(&screen, screen.now_us - 3 * SECOND_US, out);
    assert_string_equal(out, "3 s ago");
    weir__report_time(&screen, screen.now_us + 240 * (int64_t)SECOND_US, out);
    assert_string_equal(out, "in 4 min");
    weir__report_time(&screen, screen.now_us + 900000, out);
    assert_string_equal(out, "now");
    weir__report_time(&screen, screen.now_us - 900000, out);
    assert_string_equal(out, "now");
    /* Times that no clock gives must not overflow. */
    weir__report_time(&screen, INT64_MIN, out);
    assert_string_equal(out, "106,751,991 days ago");
    weir__report_time(&screen, INT64_MAX, out);
    assert_string_equal(out, "in 106,751,979 days");
    screen.relative = false;
    weir__report_time(&screen, screen.now_us, out);
    assert_string_equal(out, "1970-01-12T13:46:40.000000Z");
}

static void the_gist_of_an_error_is_the_line_that_matters(void **state)
{
    (void)state;
    static const struct {
        const char *error, *gist;
    } cases[] = {
        { "", "" },
        { "no such mailbox", "no such mailbox" },
        { "no such mailbox\nsent by smtp\n", "no such mailbox" },
        { "the handler exited with 1\nstderr:\nTraceback:\n  File x\nKeyError: 'data' \n\n",
          "KeyError: 'data'" },
        { "the handler exited with 1\nstderr (the last 4 KiB):\na\r\nb\r\n", "b" },
        { "the handler exited with 1\nstderr:\n\n", "the handler exited with 1" },
        { "the handler exited with 1\nstderr:", "the handler exited with 1" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const weir_str gist = weir__report_gist(weir__str(cases[i].error));
        assert_int_equal(gist.len, strlen(cases[i].gist));
        assert_memory_equal(gist.len == 0 ? "" : gist.ptr, cases[i].gist, gist.len);
    }
}

static void a_paragraph_is_broken_between_words(void **state)
{
    (void)state;
    static const struct {
        size_t columns;
        const char *text, *first, *prefix, *shown;
    } cases[] = {
        { 0, "one two three", "", "", "one two three\n" },
        { 7, "one two three", "", "", "one two\nthree\n" },
        { 8, "one two three", "", "", "one two\nthree\n" },
        { 7, "one two three", "  ", "  ", "  one\n  two\n  three\n" },
        { 11, "one two three", "--x ", "  ", "--x one two\n  three\n" },
        { 3, "threefold x", "", "", "threefold\nx\n" }, /* a word is never broken */
        { 7, "", "  ", "  ", "  \n" },
        { 80, "a\nb \x1b[1m", "", "", "a?b ?[1m\n" },
        { 5, "a  b", "", "", "a  b\n" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const report_screen screen = { .columns = cases[i].columns };
        weir_buffer out = { 0 };
        assert_true(weir__report_wrap(&out, &screen, weir__str(cases[i].text), cases[i].first,
                                      cases[i].prefix));
        assert_int_equal(out.len, strlen(cases[i].shown));
        assert_memory_equal(out.ptr, cases[i].shown, out.len);
        weir__buffer_free(&out);
    }
}

static void only_a_screen_with_colours_is_sent_colours(void **state)
{
    (void)state;
    const report_screen plain = { 0 }, coloured = { .colour = true };

    assert_int_equal(weir__report_mood(weir__str("blocked")), REPORT_MOOD_BAD);
    assert_int_equal(weir__report_mood(weir__str("idle")), REPORT_MOOD_QUIET);
    assert_int_equal(weir__report_mood(weir__str("anything")), REPORT_MOOD_PLAIN);
    assert_string_equal(weir__report_colour_on(&plain, REPORT_MOOD_BAD), "");
    assert_string_equal(weir__report_colour_off(&plain, REPORT_MOOD_BAD), "");
    assert_string_equal(weir__report_colour_on(&coloured, REPORT_MOOD_BAD), "\x1b[1;31m");
    assert_string_equal(weir__report_colour_off(&coloured, REPORT_MOOD_BAD), "\x1b[0m");
    assert_string_equal(weir__report_colour_on(&coloured, REPORT_MOOD_PLAIN), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_a_separator_every_three_digits),
        cmocka_unit_test(sizes_have_the_unit_that_reads_best),
        cmocka_unit_test(spans_have_at_most_two_units),
        cmocka_unit_test(times_are_told_from_now_or_in_utc),
        cmocka_unit_test(the_gist_of_an_error_is_the_line_that_matters),
        cmocka_unit_test(a_paragraph_is_broken_between_words),
        cmocka_unit_test(only_a_screen_with_colours_is_sent_colours),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
