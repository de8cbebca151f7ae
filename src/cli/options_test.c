/* options_test.c - arguments against a table: both spellings of a value, words, what is refused,
 * and what is suggested. Refusals write to stderr, which is the console of the test. */
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const cli_option options[] = {
    { "name", "NAME", CLI_TEXT, "" },   { "limit", "N", CLI_NUMBER, "" },
    { "at", "TIME", CLI_TIME, "" },     { "expect", "WHAT", CLI_EXPECT, "" },
    { "follow", NULL, CLI_FLAG, "" },   { "lease", "TIME", CLI_SPAN, "" },
    { "wait", "[TIME]", CLI_WAIT, "" },
};
static const cli_command command = { .name = "try",
                                     .options = options,
                                     .options_count = sizeof options / sizeof options[0],
                                     .words_min = 0,
                                     .words_max = 3 };

static cli c;

/* Parses a line of words that are separated by single spaces. */
static int parse(const char *line)
{
    static char text[256];
    static char *argv[32];
    int argc = 0;

    weir__free(c.given);
    weir__free(c.words);
    c = (cli){ .command = &command, .json_errors = true };
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *at = text; *at != '\0' && argc < 32;) {
        argv[argc++] = at;
        at += strcspn(at, " ");
        if (*at == ' ') {
            *at++ = '\0';
        }
    }
    return weir__cli_parse(&c, argc, argv);
}

static void a_duration_has_a_unit(void **state)
{
    (void)state;
    assert_int_equal(parse("--lease 5m"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "lease")->number, 300000000);
    assert_int_equal(parse("--lease 5"), CLI_USAGE);
    assert_int_equal(parse("--lease"), CLI_USAGE);
}

static void a_wait_may_do_without_its_duration(void **state)
{
    (void)state;
    assert_int_equal(parse("--wait 5s a"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "wait")->number, 5000000);
    assert_int_equal(c.words_count, 1);
    assert_int_equal(parse("--wait a"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "wait")->number, -1);
    assert_string_equal(c.words[0], "a");
    assert_int_equal(parse("--wait"), CLI_DONE);
    assert_int_equal(parse("--wait --follow"), CLI_DONE);
    assert_true(weir__cli_has(&c, "follow"));
    assert_int_equal(parse("--wait=soon"), CLI_USAGE);
}

static int forget(void **state)
{
    (void)state;
    weir__free(c.given);
    weir__free(c.words);
    return 0;
}

static void a_value_follows_after_a_space_or_an_equals_sign(void **state)
{
    (void)state;
    assert_int_equal(parse("--name a --limit=7"), CLI_DONE);
    assert_string_equal(weir__cli_get(&c, "name")->text, "a");
    assert_int_equal(weir__cli_get(&c, "limit")->number, 7);
    assert_int_equal(parse("--name=a=b"), CLI_DONE);
    assert_string_equal(weir__cli_get(&c, "name")->text, "a=b");
    assert_int_equal(parse("--name="), CLI_DONE);
    assert_string_equal(weir__cli_get(&c, "name")->text, "");
    assert_null(weir__cli_get(&c, "limit"));
}

static void the_last_one_counts_and_all_are_kept_in_order(void **state)
{
    (void)state;
    assert_int_equal(parse("--name a --follow --name b"), CLI_DONE);
    assert_string_equal(weir__cli_get(&c, "name")->text, "b");
    assert_true(weir__cli_has(&c, "follow"));
    assert_int_equal(c.given_count, 3);
    assert_string_equal(c.given[0].text, "a");
}

static void words_may_be_dashes_negative_numbers_and_anything_after_two_dashes(void **state)
{
    (void)state;
    assert_int_equal(parse("- -5 --follow x"), CLI_DONE);
    assert_int_equal(c.words_count, 3);
    assert_string_equal(c.words[1], "-5");
    assert_int_equal(parse("-- --follow --nonsense"), CLI_DONE);
    assert_int_equal(c.words_count, 2);
    assert_false(weir__cli_has(&c, "follow"));
}

static void common_options_are_known_to_every_command(void **state)
{
    (void)state;
    assert_int_equal(parse("--store sqlite:x --json"), CLI_DONE);
    assert_string_equal(c.store, "sqlite:x");
    assert_true(c.json);
    assert_int_equal(c.given_count, 0);
    assert_int_equal(parse("--help a b c d e"),
                     CLI_DONE); /* help is given whatever else is wrong */
    assert_true(c.help);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "--nonsense",      "-x",
        "--name",          "--follow=1",
        "--limit -1",      "--limit 1x",
        "--limit ",        "--at tomorrow",
        "--at 2026-02-30", "--expect -1",
        "--expect latest", "a b c d",
        "--json --text",   "--limit 9223372036854775808",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse(wrong[i]), CLI_USAGE);
    }
}

static void expectations_are_words_or_versions(void **state)
{
    (void)state;
    assert_int_equal(parse("--expect exists"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "expect")->expect, WEIR_EXPECT_EXISTS);
    assert_int_equal(parse("--expect none"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "expect")->expect, WEIR_EXPECT_NONE);
    assert_int_equal(parse("--expect 0"), CLI_DONE);
    assert_int_equal(weir__cli_get(&c, "expect")->expect, WEIR_EXPECT_EXACT);
    assert_int_equal(weir__cli_get(&c, "expect")->number, 0);
    assert_int_equal(parse("--expect 4294967297"), CLI_DONE);
    assert_true(weir__cli_get(&c, "expect")->number == INT64_C(4294967297));
}

static const char *const names[] = { "append", "read", "log", "status", "streams" };

static const char *name_of(const void *ctx, size_t i)
{
    (void)ctx;
    return names[i];
}

static const char *nearest(const char *word)
{
    return weir__cli_nearest(word, name_of, NULL, sizeof names / sizeof names[0]);
}

static void a_slip_finds_its_name_and_another_word_does_not(void **state)
{
    (void)state;
    assert_string_equal(nearest("appnd"), "append");
    assert_string_equal(nearest("lgo"), "log");
    assert_string_equal(nearest("erad"), "read");
    assert_string_equal(nearest("stat"), "status");
    assert_string_equal(nearest("streans"), "streams");
    assert_null(nearest("frobnicate"));
    assert_null(nearest("foo")); /* two slips from "log" */
    assert_null(nearest("x"));
    assert_null(nearest(""));
    assert_null(nearest("a-word-that-is-longer-than-any-name-of-ours"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_follows_after_a_space_or_an_equals_sign),
        cmocka_unit_test(a_duration_has_a_unit),
        cmocka_unit_test(a_wait_may_do_without_its_duration),
        cmocka_unit_test(the_last_one_counts_and_all_are_kept_in_order),
        cmocka_unit_test(words_may_be_dashes_negative_numbers_and_anything_after_two_dashes),
        cmocka_unit_test(common_options_are_known_to_every_command),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
        cmocka_unit_test(expectations_are_words_or_versions),
        cmocka_unit_test(a_slip_finds_its_name_and_another_word_does_not),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, forget);
}
