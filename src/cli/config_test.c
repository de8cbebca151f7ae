/* config_test.c - weir.yaml: what it says becomes what weir.h has, and everything that is wrong
 * with one is told at once, with its place.
 *
 * Each test writes a file and reads it. The sentences that users see are compared whole.
 */
#include "cli/cli.h"
#include "cli/config_reactions.h"
#include "cli/config_tables.h"
#include "cli/config_yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char directory[64];
    char previous[1024];
    cli_config config;
    weir_error err;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->directory, sizeof f->directory, "/tmp/weir-config-XXXXXX");
    assert_non_null(getcwd(f->previous, sizeof f->previous));
    assert_non_null(mkdtemp(f->directory));
    assert_int_equal(chdir(f->directory), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    weir__cli_config_free(&f->config);
    (void)unlink("weir.yaml");
    assert_int_equal(chdir(f->previous), 0);
    assert_int_equal(rmdir(f->directory), 0);
    free(f);
    return 0;
}

static void write_bytes(const char *text, size_t len)
{
    FILE *file = fopen("weir.yaml", "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static weir_status read_text(fixture *f, const char *text)
{
    weir__cli_config_free(&f->config);
    write_bytes(text, strlen(text));
    return weir__cli_config_read(&f->config, "weir.yaml", &f->err);
}

/* All problems of a file, in its order. */
static void expect_problems(fixture *f, const char *text, const char *problems)
{
    char found[16384] = "";

    assert_int_equal(read_text(f, text), WEIR_EINVAL);
    if (f->config.problems.len > 0) {
        (void)snprintf(found, sizeof found, "%.*s", (int)f->config.problems.len,
                       f->config.problems.ptr);
    }
    assert_string_equal(found, problems);
    assert_true(f->config.problems_count > 0);
}

/* One problem in a reaction that is otherwise well: `line` is its fifth, from the fifth column. */
static void expect_reaction(fixture *f, const char *line, const char *problem)
{
    char text[1024], whole[1024];

    (void)snprintf(text, sizeof text,
                   "reactions:\n"
                   "  - name: r\n"
                   "    run: ./r\n"
                   "%s%s"
                   "    %s\n",
                   strncmp(line, "on:", 3) == 0 ? "" : "    on: [E]\n",
                   strncmp(line, "to:", 3) == 0 ? "" : "    to: t\n", line);
    (void)snprintf(whole, sizeof whole, "weir.yaml:%d:%s\n",
                   strncmp(line, "on:", 3) == 0 || strncmp(line, "to:", 3) == 0 ? 5 : 6, problem);
    expect_problems(f, text, whole);
}

static void expect_lane(fixture *f, const char *values, const char *problem)
{
    char text[512], whole[512];

    (void)snprintf(text, sizeof text, "lanes:\n  mail: { %s }\n", values);
    (void)snprintf(whole, sizeof whole, "weir.yaml:2:%s\n", problem);
    expect_problems(f, text, whole);
}

static void expect_str(weir_str found, const char *text)
{
    assert_int_equal(found.len, strlen(text));
    assert_memory_equal(found.ptr, text, found.len);
}

/* ---- what it means ------------------------------------------------------------------------- */

static void everything_that_can_be_said_is_understood(void **state)
{
    fixture *f = *state;
    assert_int_equal(read_text(f, "store: sqlite:orders.db\n"
                                  "reactions:\n"
                                  "  - name: confirm-order\n"
                                  "    on: [OrderConfirmed, OrderPaid]\n"
                                  "    source: \"order-*\"\n"
                                  "    to: \"mail-{stream}\"\n"
                                  "    lane: mail\n"
                                  "    priority: 10\n"
                                  "    run: ./send-confirmation --now\n"
                                  "    retries: 5\n"
                                  "    backoff: { kind: linear, base: 100ms, cap: 1h }\n"
                                  "    on_poison: park\n"
                                  "    deadline: 5m\n"
                                  "    from: 17\n"
                                  "lanes:\n"
                                  "  mail: { threads: 2, lease: 10s, target_limit: 3,\n"
                                  "          event_limit: 4, cycle: 250ms }\n"
                                  "  slow:\n"),
                     WEIR_OK);
    assert_string_equal(f->config.store, "sqlite:orders.db");
    assert_int_equal(f->config.lanes_count, 2);
    const weir_lane *l = &f->config.lanes[0];
    expect_str(l->name, "mail");
    assert_int_equal(l->threads, 2);
    assert_int_equal(l->lease_us, 10000000);
    assert_int_equal(l->target_limit, 3);
    assert_int_equal(l->event_limit, 4);
    assert_int_equal(l->cycle_us, 250000);
    expect_str(f->config.lanes[1].name, "slow");
    assert_int_equal(f->config.lanes[1].threads, 0);
    assert_int_equal(f->config.reactions_count, 1);
    const weir_reaction *r = &f->config.reactions[0];
    assert_int_equal(r->size, sizeof *r);
    expect_str(r->name, "confirm-order");
    assert_int_equal(r->on_count, 2);
    expect_str(r->on[0], "OrderConfirmed");
    expect_str(r->on[1], "OrderPaid");
    expect_str(r->source, "order-*");
    expect_str(r->to, "mail-{stream}");
    expect_str(r->lane, "mail");
    assert_int_equal(r->priority, 10);
    assert_int_equal(r->priority_text.len, 0);
    assert_string_equal(r->run, "./send-confirmation --now");
    assert_null(r->exec);
    assert_int_equal(r->retries, 5);
    assert_int_equal(r->backoff, WEIR_BACKOFF_LINEAR);
    assert_int_equal(r->backoff_base_us, 100000);
    assert_int_equal(r->backoff_cap_us, INT64_C(3600000000));
    assert_int_equal(r->poison, WEIR_POISON_PARK);
    assert_int_equal(r->deadline_us, INT64_C(300000000));
    assert_int_equal(r->from, WEIR_FROM_POSITION);
    assert_int_equal(r->from_position, 17);
}

static void what_is_left_out_is_left_to_the_engine(void **state)
{
    fixture *f = *state;
    assert_int_equal(read_text(f, "reactions:\n"
                                  "  - { name: r, on: E, to: t, exec: python3 r.py }\n"),
                     WEIR_OK);
    assert_null(f->config.store);
    assert_int_equal(f->config.lanes_count, 0);
    const weir_reaction *r = &f->config.reactions[0];
    assert_int_equal(r->on_count, 1);
    expect_str(r->on[0], "E");
    assert_string_equal(r->exec, "python3 r.py");
    assert_null(r->run);
    assert_int_equal(r->retries, 0);
    assert_int_equal(r->backoff_base_us, 0);
    assert_int_equal(r->deadline_us, 0);
    assert_int_equal(r->from, WEIR_FROM_DEFAULT);
    assert_int_equal(r->lane.len, 0);
}

static void a_memory_limit_is_a_size(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text;
        int64_t bytes;
    } right[] = { { "256MiB", INT64_C(256) << 20 },
                  { "1024KiB", INT64_C(1) << 20 },
                  { "1048576", INT64_C(1) << 20 },
                  { "1024GiB", INT64_C(1) << 40 } };
    static const char *const wrong[] = { "1023KiB", "1025GiB", "64MB", "-1", "much", "0" };
    char text[128];

    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        (void)snprintf(text, sizeof text, "memory_limit: %s\n", right[i].text);
        assert_int_equal(read_text(f, text), WEIR_OK);
        assert_int_equal(f->config.memory_limit_bytes, right[i].bytes);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char expected[160];
        (void)snprintf(text, sizeof text, "memory_limit: %s\n", wrong[i]);
        (void)snprintf(expected, sizeof expected,
                       "weir.yaml:1:15: \"memory_limit\" is \"%s\", expected a size from 1MiB to "
                       "1024GiB, such as 256MiB\n",
                       wrong[i]);
        assert_int_equal(read_text(f, text), WEIR_EINVAL);
        assert_int_equal(f->config.problems.len, strlen(expected));
        assert_memory_equal(f->config.problems.ptr, expected, strlen(expected));
    }
}

static void no_retries_is_not_the_default_number_of_them(void **state)
{
    fixture *f = *state;
    assert_int_equal(
        read_text(f, "reactions: [{ name: r, on: E, to: t, run: ./r, retries: 0, from: now }]\n"),
        WEIR_OK);
    assert_int_equal(f->config.reactions[0].retries, -1);
    assert_int_equal(f->config.reactions[0].from, WEIR_FROM_NOW);
}

static void a_star_is_every_event(void **state)
{
    fixture *f = *state;
    assert_int_equal(
        read_text(f, "reactions: [{ name: r, on: \"*\", to: t, run: ./r, from: start }]\n"),
        WEIR_OK);
    assert_int_equal(f->config.reactions[0].on_count, 0);
    assert_int_equal(f->config.reactions[0].from, WEIR_FROM_START);
}

static void a_priority_can_be_a_template(void **state)
{
    fixture *f = *state;
    assert_int_equal(
        read_text(f,
                  "reactions: [{ name: r, on: E, to: t, run: ./r, priority: \"{data.urgency}\" }]"),
        WEIR_OK);
    expect_str(f->config.reactions[0].priority_text, "{data.urgency}");
    assert_int_equal(read_text(f, "reactions: [{ name: r, on: E, to: t, run: ./r, priority: -5 }]"),
                     WEIR_OK);
    assert_int_equal(f->config.reactions[0].priority, -5);
}

static void an_empty_file_says_nothing(void **state)
{
    fixture *f = *state;
    assert_int_equal(read_text(f, "# not yet\n"), WEIR_OK);
    assert_int_equal(f->config.reactions_count, 0);
    assert_int_equal(read_text(f, ""), WEIR_OK);
    assert_int_equal(read_text(f, "reactions: []\nlanes: {}\n"), WEIR_OK);
}

/* ---- what is wrong ------------------------------------------------------------------------- */

static void every_problem_is_told_at_once(void **state)
{
    expect_problems(
        *state,
        "stor: x\n"
        "lanes:\n"
        "  mail: { threads: many, lease: 10 }\n"
        "reactions:\n"
        "  - name: a\n"
        "    on: [E]\n"
        "    retires: 3\n"
        "    to: \"{strea}\"\n"
        "  - to: t\n"
        "    run: ./x\n"
        "    colour: red\n"
        "    on: E\n",
        "weir.yaml:1:1: unknown key \"stor\", did you mean \"store\"?\n"
        "weir.yaml:3:20: \"threads\" is \"many\", expected a number from 1 to 1000\n"
        "weir.yaml:3:33: \"lease\" is \"10\", expected a duration such as 200ms, 5s, "
        "5m or 1h\n"
        "weir.yaml:7:5: unknown key \"retires\", did you mean \"retries\"?\n"
        "weir.yaml:8:9: unknown placeholder \"{strea}\" at byte 0: allowed are {stream}, "
        "{category}, {name} and {data.MEMBER}; a brace is written {{ or }}\n"
        "weir.yaml:5:5: a reaction has no \"run\" and no \"exec\", expected one\n"
        "weir.yaml:11:5: unknown key \"colour\", expected \"name\", \"on\", \"source\", "
        "\"to\", \"lane\", \"priority\", \"run\", \"exec\", \"retries\", \"backoff\", "
        "\"on_poison\", \"deadline\" or \"from\"\n"
        "weir.yaml:9:5: a reaction has no \"name\"\n");
}

static void values_of_reactions_have_their_place(void **state)
{
    fixture *f = *state;
    expect_reaction(f, "on: []", "9: \"on\" has 0 names, expected 1 to 1000, or \"*\"");
    expect_reaction(f, "on: { a: b }", "9: \"on\" has 0 names, expected 1 to 1000, or \"*\"");
    expect_reaction(f, "on:", "8: \"on\" is empty, expected a name");
    expect_reaction(f, "on: [A, [B]]", "13: \"on\" is a list, expected a name");
    expect_reaction(f, "on: [A, \"*\"]",
                    "13: \"on\" has \"*\" in a list, expected names; on: \"*\" is every event");
    expect_reaction(f, "on: $closed",
                    "9: event name \"$closed\" starts with '$': such names are Weir's own");
    expect_reaction(f, "to: [t]", "9: \"to\" is a list, expected a target such as mail-{stream}");
    expect_reaction(f, "lane: ~", "11: \"lane\" is empty, expected a name");
    expect_reaction(f, "source: \"/(/\"",
                    "13: invalid regular expression at byte 1: '(' without ')' is not supported");
    expect_reaction(f, "priority: high",
                    "15: \"priority\" is \"high\", expected a number, or a template that gives one "
                    "such as {data.priority}");
    expect_reaction(f, "retries: -1",
                    "14: \"retries\" is \"-1\", expected a number from 0 to 1000");
    expect_reaction(f, "retries: 1001",
                    "14: \"retries\" is \"1001\", expected a number from 0 to 1000");
    expect_reaction(f, "on_poison: drop",
                    "16: \"on_poison\" is \"drop\", expected block, park or retry");
    expect_reaction(f, "deadline: 8d", "15: \"deadline\" is \"8d\", expected 1ms to 7d");
    expect_reaction(f, "from: yesterday",
                    "11: \"from\" is \"yesterday\", expected start, now or a position from 0");
    expect_reaction(f, "exec: ./b", "11: \"run\" and \"exec\" exclude each other");
    expect_reaction(f, "name: again", "5: key \"name\" is given twice, first in line 2");
    expect_reaction(f, "[a]: b", "5: expected a key");
    expect_reaction(f, "backoff: 5s", "14: \"backoff\" is \"5s\", expected keys and values");
    expect_reaction(f, "backoff: { kind: odd }",
                    "22: \"kind\" is \"odd\", expected exponential, fixed or linear");
    expect_reaction(f, "backoff: { base: 5s, cap: 1s }", "31: \"cap\" is less than \"base\"");
    expect_reaction(f, "backoff: { cap: 100ms }",
                    "21: \"cap\" is less than \"base\", which is 200ms when it is not given");
    expect_reaction(f, "backoff: { bas: 1s }", "16: unknown key \"bas\", did you mean \"base\"?");
}

static void values_of_lanes_have_their_place(void **state)
{
    fixture *f = *state;
    expect_lane(f, "threads: 0", "20: \"threads\" is \"0\", expected a number from 1 to 1000");
    expect_lane(f, "threads: 1001",
                "20: \"threads\" is \"1001\", expected a number from 1 to 1000");
    expect_lane(f, "lease: 99ms", "18: \"lease\" is \"99ms\", expected 100ms to 1h");
    expect_lane(f, "lease: 61m", "18: \"lease\" is \"61m\", expected 100ms to 1h");
    expect_lane(f, "cycle: [1s]",
                "18: \"cycle\" is a list, expected a duration such as 200ms, 5s, 5m or 1h");
    expect_lane(f, "event_limit: 1001",
                "24: \"event_limit\" is \"1001\", expected a number from 1 to 1000");
    expect_lane(f, "event_limits: 1",
                "11: unknown key \"event_limits\", did you mean \"event_limit\"?");
    expect_problems(f, "lanes: [mail]\n",
                    "weir.yaml:1:8: \"lanes\" is a list, expected lanes by name, such as mail: { "
                    "threads: 4 }\n");
    expect_problems(f, "tables: { jobs: { done: { status: a, status: b } } }\n",
                    "weir.yaml:1:38: key \"status\" is given twice, first in line 1\n");
    expect_problems(f, "lanes: { a: , a: }\n",
                    "weir.yaml:1:15: key \"a\" is given twice, first in line 1\n");
}

static void reactions_are_compared_with_each_other(void **state)
{
    fixture *f = *state;
    expect_problems(f,
                    "reactions:\n"
                    "  - { name: a, on: E, to: t, run: x }\n"
                    "  - { name: a, on: E, to: u, run: x }\n",
                    "weir.yaml:3:13: reaction \"a\" is given twice, first in line 2\n");
    expect_problems(
        f,
        "reactions:\n"
        "  - { name: a, on: E, to: t, run: x }\n"
        "  - { name: b, on: E, to: t, run: x, lane: fast }\n",
        "weir.yaml:3:44: target \"t\" is in lane \"fast\", and in lane \"default\" with "
        "the reaction in line 2: one target has one lane\n");
    expect_problems(
        f,
        "reactions:\n"
        "  - { name: a, on: E, to: t, run: x, lane: mai }\n"
        "lanes: { mail: }\n",
        "weir.yaml:2:44: lane \"mai\" is not among \"lanes\", did you mean \"mail\"?\n");
}

static void what_is_no_yaml_has_a_place_too(void **state)
{
    fixture *f = *state;
    expect_problems(
        f, "reactions: {}\n",
        "weir.yaml:1:12: \"reactions\" is a mapping, expected a list of reactions, each "
        "beginning with \"-\"\n");
    expect_problems(f, "- a\n",
                    "weir.yaml:1:1: \"the file\" is a list, expected keys and values\n");
    expect_problems(f, "store: a\nreactions: [\n",
                    "weir.yaml:3:1: did not find expected node content\n");
    expect_problems(f, "store: a\n---\nstore: b\n",
                    "weir.yaml:2:1: expected one document, here begins a second\n");
    expect_problems(f, "store: a\nstore\xff: b\n", "weir.yaml:2:6: invalid leading UTF-8 octet\n");
    expect_problems(f, "store: \"a\\0b\"\n",
                    "weir.yaml:1:8: \"store\" is \"a\", expected a URL such as sqlite:orders.db\n");
    expect_problems(f, "lanes: &l { a: *l }\n",
                    "weir.yaml:1:13: unknown key \"a\", expected \"threads\", \"lease\", "
                    "\"target_limit\", \"event_limit\" or \"cycle\"\n");
}

static void a_file_full_of_mistakes_is_bounded(void **state)
{
    fixture *f = *state;
    weir_buffer b = { 0 };
    char line[32];
    size_t lines = 0;

    for (int i = 0; i <= CONFIG_PROBLEMS_MAX; i++) {
        (void)snprintf(line, sizeof line, "zzzzzz%d: 1\n", i);
        assert_true(weir__buffer_add_text(&b, line));
    }
    write_bytes(b.ptr, b.len);
    assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_EINVAL);
    assert_int_equal(f->config.problems_count, CONFIG_PROBLEMS_MAX + 1);
    for (size_t i = 0; i < f->config.problems.len; i++) {
        lines += f->config.problems.ptr[i] == '\n' ? 1 : 0;
    }
    assert_int_equal(lines, CONFIG_PROBLEMS_MAX);
    weir__buffer_free(&b);
}

static void a_file_has_a_size_that_it_may_have(void **state)
{
    fixture *f = *state;
    char *text = malloc(CONFIG_BYTES_MAX + 1);
    assert_non_null(text);
    memset(text, '#', CONFIG_BYTES_MAX + 1);
    write_bytes(text, CONFIG_BYTES_MAX);
    assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_OK);
    write_bytes(text, CONFIG_BYTES_MAX + 1);
    assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_EINVAL);
    free(text);
}

/* Far beyond it as well: loading that would take minutes. */
static void a_file_has_a_depth_that_it_may_have(void **state)
{
    static const size_t depths[] = { CONFIG_DEPTH_MAX - 1, CONFIG_DEPTH_MAX, 100000 };
    static const char key[] = "store: ";
    fixture *f = *state;
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        char *text = malloc(sizeof key + 2 * depths[i]);
        assert_non_null(text);
        memcpy(text, key, sizeof key - 1);
        memset(text + sizeof key - 1, '[', depths[i]);
        memset(text + sizeof key - 1 + depths[i], ']', depths[i]);
        write_bytes(text, sizeof key - 1 + 2 * depths[i]);
        assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_EINVAL);
        assert_true(weir__buffer_add(&f->config.problems, "", 1));
        assert_int_equal(strstr(f->config.problems.ptr, "nests too deep") != NULL, i > 0);
        weir__cli_config_free(&f->config);
        free(text);
    }
}

/* ---- other commands ------------------------------------------------------------------------ */

static void a_slip_in_a_reaction_hides_no_store(void **state)
{
    fixture *f = *state;
    static const char text[] = "reactions: [{ nam: r }]\nstore: sqlite:a.db\nlanes: 7\n";
    char *store = NULL;

    write_bytes(text, strlen(text));
    assert_int_equal(weir__cli_config_store("weir.yaml", &store, &f->err), WEIR_OK);
    assert_string_equal(store, "sqlite:a.db");
    weir__free(store);
    assert_int_equal(unlink("weir.yaml"), 0);
    assert_int_equal(weir__cli_config_store("weir.yaml", &store, &f->err), WEIR_OK);
    assert_null(store);
    assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_ENOTFOUND);
}

static void running_out_of_memory_is_an_error_and_no_crash(void **state)
{
    fixture *f = *state;
    static const char text[] = "store: sqlite:a.db\n"
                               "lanes: { mail: { threads: 2 } }\n"
                               "reactions:\n"
                               "  - name: r\n"
                               "    on: [A, B]\n"
                               "    source: /^a/\n"
                               "    to: \"t-{stream}\"\n"
                               "    lane: mail\n"
                               "    run: ./r\n";
    write_bytes(text, strlen(text));
    for (uint64_t nth = 1;; nth++) {
        weir__cli_config_free(&f->config);
        weir__memory_fail_nth(nth);
        const weir_status status = weir__cli_config_read(&f->config, "weir.yaml", &f->err);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        if (!failed) {
            assert_int_equal(status, WEIR_OK);
            assert_true(nth > 10);
            break;
        }
        assert_int_equal(status, WEIR_ENOMEM);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static weir_status read_tables(fixture *f, config_tables *t, const char *text)
{
    write_bytes(text, strlen(text));
    return weir__config_tables_read(t, "weir.yaml", &f->err);
}

static void tables_are_understood(void **state)
{
    fixture *f = *state;
    config_tables t = { 0 };
    assert_int_equal(
        read_tables(
            f, &t,
            "store: sqlite:a.db\n"
            "tables:\n"
            "  jobs: { ready: \"status = 'new'\", claimed: { status: claimed, note: null },\n"
            "          done: { status: done }, done_sql: { n: n + 1 }, lease: 5m,\n"
            "          order: \"\\\"a, b\\\" desc, id\", at_column: \"\", max_per: { customer: 2 "
            "},\n"
            "          path: portable, limit: 10, parallel: 4, deadline: 1m, by: me }\n"
            "  other: { table: shop.other, failed: { status: failed } }\n"),
        WEIR_OK);
    assert_int_equal(t.count, 2);
    const table_spec *s = weir__config_table(&t, weir__str("jobs"));
    assert_non_null(s);
    assert_true(weir__str_equal(s->claim.table, weir__str("jobs")));
    assert_true(weir__str_equal(s->claim.where, weir__str("status = 'new'")));
    assert_int_equal(s->claim.writes.set_count, 2);
    assert_int_equal(s->claim.writes.set[1].value.kind, TABLE_NULL);
    assert_true(weir__str_equal(s->done.set[0].value.text, weir__str("done")));
    assert_true(weir__str_equal(s->done.set_sql[0].sql, weir__str("n + 1")));
    assert_int_equal(s->claim.lease_us, INT64_C(300000000));
    assert_int_equal(s->claim.order_count, 2);
    assert_true(weir__str_equal(s->claim.order[0].column, weir__str("a, b")) &&
                s->claim.order[0].descending);
    assert_true(weir__str_equal(s->claim.order[1].column, weir__str("id")) &&
                !s->claim.order[1].descending);
    assert_true(s->claim.at_column.ptr != NULL && s->claim.at_column.len == 0);
    assert_true(weir__str_equal(s->claim.max_per_column, weir__str("customer")));
    assert_int_equal(s->claim.max_per, 2);
    assert_int_equal(s->claim.path, CLAIM_PATH_PORTABLE);
    assert_int_equal(s->claim.limit, 10);
    assert_int_equal(s->parallel, 4);
    s = weir__config_table(&t, weir__str("other"));
    assert_true(weir__str_equal(s->claim.table, weir__str("shop.other")));
    assert_null(weir__config_table(&t, weir__str("others")));
    weir__config_tables_free(&t);
}

static void every_problem_of_tables_is_told(void **state)
{
    fixture *f = *state;
    config_tables t = { 0 };
    static const char text[] =
        "tables:\n"
        "  jobs: { raedy: x, claimed: status, done: { status: [1] }, lease: 5 }\n"
        "  jobs: { ready: y }\n"
        "  more: { order: 'a,', max_per: { a: 0 }, path: quick, limit: 0 }\n"
        "  none: 5\n";
    static const char *const problems[] = {
        "weir.yaml:3:3: key \"jobs\" is given twice, first in line 2",
        "weir.yaml:2:11: unknown key \"raedy\", did you mean \"ready\"?",
        "weir.yaml:2:30: \"claimed\" is \"status\", expected columns and values such as",
        "weir.yaml:2:54: \"done\" is a list, expected a value for each column",
        "weir.yaml:2:68: \"lease\" is \"5\", expected a duration",
        "weir.yaml:4:18: \"order\": a column is missing",
        "weir.yaml:4:38: \"max_per\" is \"0\", expected a number from 1",
        "weir.yaml:4:49: \"path\" is \"quick\", expected default, fast or portable",
        "weir.yaml:4:63: \"limit\" is \"0\", expected a number from 1 to 10000",
        "weir.yaml:5:9: \"a table\" is \"5\", expected keys and values",
    };
    assert_int_equal(read_tables(f, &t, text), WEIR_EINVAL);
    assert_true(weir__buffer_add(&t.problems, "", 1));
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        if (strstr(t.problems.ptr, problems[i]) == NULL) {
            fail_msg("no \"%s\" in\n%s", problems[i], t.problems.ptr);
        }
    }
    assert_int_equal(t.problems_count, sizeof problems / sizeof problems[0]);
    weir__config_tables_free(&t);
    /* Who runs reactions is told the same. */
    assert_int_equal(weir__cli_config_read(&f->config, "weir.yaml", &f->err), WEIR_EINVAL);
    assert_int_equal(f->config.problems_count, sizeof problems / sizeof problems[0]);
}

static void tables_without_memory_are_an_error_and_no_crash(void **state)
{
    fixture *f = *state;
    static const char text[] =
        "tables: { jobs: { ready: a, claimed: { b: c }, order: \"d desc\" } }\n";
    write_bytes(text, strlen(text));
    for (uint64_t nth = 1;; nth++) {
        config_tables t = { 0 };
        weir__memory_fail_nth(nth);
        const weir_status status = weir__config_tables_read(&t, "weir.yaml", &f->err);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        weir__config_tables_free(&t);
        if (!failed) {
            assert_int_equal(status, WEIR_OK);
            break;
        }
        assert_int_equal(status, WEIR_ENOMEM);
    }
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(everything_that_can_be_said_is_understood),
        T(what_is_left_out_is_left_to_the_engine),
        T(a_memory_limit_is_a_size),
        T(no_retries_is_not_the_default_number_of_them),
        T(a_star_is_every_event),
        T(a_priority_can_be_a_template),
        T(an_empty_file_says_nothing),
        T(every_problem_is_told_at_once),
        T(values_of_reactions_have_their_place),
        T(values_of_lanes_have_their_place),
        T(reactions_are_compared_with_each_other),
        T(what_is_no_yaml_has_a_place_too),
        T(a_file_full_of_mistakes_is_bounded),
        T(a_file_has_a_size_that_it_may_have),
        T(a_file_has_a_depth_that_it_may_have),
        T(a_slip_in_a_reaction_hides_no_store),
        T(running_out_of_memory_is_an_error_and_no_crash),
        T(tables_are_understood),
        T(every_problem_of_tables_is_told),
        T(tables_without_memory_are_an_error_and_no_crash),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
