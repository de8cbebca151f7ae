/* operate_test.c - mass verbs in short transactions, and a check that finds what is wrong.
 *
 * The findings are provoked by writing into the tables directly: no verb of the port can break
 * them.
 */
#include "store/sqlite/targets_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { TARGETS = 2 * STORE_OPERATE_CHUNK + 500 };

static int64_t operate(fixture *f, store_operate *op)
{
    OK(f, f->store->work->operate(f->store, op, &f->err));
    return op->changed;
}

static int64_t transactions(fixture *f)
{
    store_stats stats = { 0 };
    OK(f, f->store->about->stats(f->store, &stats, &f->err));
    return stats.transactions;
}

static void a_mass_verb_is_done_in_chunks(void **state)
{
    fixture *f = *state;
    store_operate op = { .verb = STORE_PAUSE, .by = weir__str("me"), .dry_run = true };
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, TARGETS, 100);

    const int64_t before = transactions(f);
    assert_int_equal(operate(f, &op), TARGETS);
    assert_int_equal(transactions(f), before); /* a dry run writes nothing */
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets WHERE paused = 1"), 0);

    op.dry_run = false;
    assert_int_equal(operate(f, &op), TARGETS);
    assert_int_equal(transactions(f), before + 3);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets WHERE paused = 1"), TARGETS);
    assert_int_equal(operate(f, &op), 0);
    assert_int_equal(transactions(f), before + 3);
    fixture_check(f);
}

/* A filter that accepts a few names reads a few names. */
static void a_prefix_reads_only_its_range(void **state)
{
    fixture *f = *state;
    store_pattern *pattern = NULL;
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, TARGETS, 100);
    OK(f, weir__pattern_open(&pattern, weir__str("t000017*"), &f->err));
    store_operate op = { .verb = STORE_PAUSE, .filter = { .match = pattern } };
    assert_int_equal(operate(f, &op), 10);
    (void)fixture_take_steps(f);
    assert_int_equal(operate(f, &op), 0);
    assert_in_range(fixture_take_steps(f).vm, 1, 2000);
    weir__pattern_close(pattern);
    fixture_check(f);
}

static void an_unknown_name_changes_nothing(void **state)
{
    fixture *f = *state;
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 3, 100);
    const weir_str names[] = { weir__str("t0000001"), weir__str("nobody") };
    store_operate op = { .verb = STORE_PAUSE,
                         .filter = { .names = names, .names_count = 2 },
                         .changed = 77 };
    assert_int_equal(f->store->work->operate(f->store, &op, &f->err), WEIR_ENOTFOUND);
    assert_int_equal(op.changed, 77);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets WHERE paused = 1"), 0);
}

/* `reset` to a time finds the first event of that time without reading the log. */
static void reset_to_a_time_searches_the_log(void **state)
{
    fixture *f = *state;
    int64_t times[64];
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    for (size_t i = 0; i < 64; i++) {
        f->now_us += 1000;
        times[i] = f->now_us;
        (void)fixture_put(f, "order-1", "Placed");
    }
    fixture_mark(f, "r", "t", "l", "", 1, 64);
    for (int64_t i = 63; i >= 0; i -= 9) {
        fixture_exec(f, "UPDATE weir_subscriptions SET at = 64;"
                        "UPDATE weir_targets SET watermark = 64, behind = 0");
        store_operate op = { .verb = STORE_RESET,
                             .reset_to = STORE_RESET_TIME,
                             .time_us = times[i] };
        assert_int_equal(operate(f, &op), 1);
        assert_int_equal(fixture_int(f, "SELECT at FROM weir_subscriptions"), i);
        op.time_us = times[i] - 1; /* between two events */
        fixture_exec(f, "UPDATE weir_subscriptions SET at = 64");
        assert_int_equal(operate(f, &op), 1);
        assert_int_equal(fixture_int(f, "SELECT at FROM weir_subscriptions"), i);
    }
    store_operate later = { .verb = STORE_RESET,
                            .reset_to = STORE_RESET_TIME,
                            .time_us = f->now_us + 1 };
    assert_int_equal(operate(f, &later), 0);
    fixture_check(f);
}

/* After a reset, the events before one that was sent back have yet to be routed again. */
static void skipping_a_sent_back_event_steps_over_nothing(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_WORK);
    for (int64_t id = 1; id <= 4; id++) {
        assert_int_equal(fixture_put(f, "order-1", "Placed"), id);
        fixture_mark(f, "r", "t", "l", "", id, id);
    }
    fixture_lease(f, 1, &list);
    assert_int_equal(list.leases_count, 1);
    const store_park park = { .reaction = 1, .event = 4, .error = weir__str("bad") };
    const store_advance advance = { .reaction = 1, .to = 4 };
    store_settle settle = { .target = 1,
                            .fence = list.leases[0].fence,
                            .parks = &park,
                            .parks_count = 1,
                            .advances = &advance,
                            .advances_count = 1 };
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    OK(f, f->store->work->parked_change(f->store, 1, STORE_PARKED_RETRY, &f->err));
    store_operate reset = { .verb = STORE_RESET };
    assert_int_equal(operate(f, &reset), 1);
    assert_int_equal(fixture_int(f, "SELECT routed FROM weir_reactions"), 0);

    store_operate skip = { .verb = STORE_SKIP };
    assert_int_equal(operate(f, &skip), 1);
    assert_int_equal(fixture_int(f, "SELECT at FROM weir_subscriptions"), 0);
    assert_int_equal(fixture_int(f, "SELECT sent_back FROM weir_parked"), 0);
    assert_int_equal(operate(f, &skip), 0); /* nothing is in the way until it is routed */
    for (int64_t id = 1; id <= 4; id++) {
        fixture_mark(f, "r", "t", "l", "", id, id);
    }
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_work"), 4);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* ---- check --------------------------------------------------------------------------------- */

typedef struct findings {
    const char *wanted;
    int matching, others;
} findings;

static void count_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    findings *found = ctx;
    assert_true(strlen(text) > 0 && strlen(advice) > 0);
    if (strcmp(rule, found->wanted) == 0) {
        found->matching++;
    } else {
        found->others++;
    }
}

static void check_finds_what_is_broken(void **state)
{
    static const struct {
        const char *rule, *break_it, *repair;
    } cases[] = {
        { "target-derived", "UPDATE weir_targets SET behind = 0",
          "UPDATE weir_targets SET behind = 1" },
        { "target-derived", "UPDATE weir_targets SET priority = 5",
          "UPDATE weir_targets SET priority = 0" },
        { "target-rank", "UPDATE weir_targets SET rank = 7", "UPDATE weir_targets SET rank = 0" },
        { "target-held", "UPDATE weir_targets SET held = 1", "UPDATE weir_targets SET held = 0" },
        { "target-lease", "UPDATE weir_targets SET holder = 'x'",
          "UPDATE weir_targets SET holder = NULL" },
        { "target-lease", "UPDATE weir_targets SET fence = -1",
          "UPDATE weir_targets SET fence = 0" },
        { "target-lane", "UPDATE weir_targets SET lane = 'x'",
          "UPDATE weir_targets SET lane = 'l'" },
        { "subscription-position", "UPDATE weir_subscriptions SET mark = at - 1, at = at + 0",
          "UPDATE weir_subscriptions SET mark = 1" },
        { "subscription",
          "INSERT INTO weir_subscriptions (target, reaction, at, mark, priority, source, value)"
          " VALUES (1, 99, 0, 0, 0, '', '')",
          "DELETE FROM weir_subscriptions WHERE reaction = 99" },
        { "work", "INSERT INTO weir_work VALUES (1, 1, 99)", "DELETE FROM weir_work" },
        { "work", "INSERT INTO weir_work VALUES (1, 98, 1)", "DELETE FROM weir_work" },
        { "parked",
          "INSERT INTO weir_parked (reaction, target, event, attempts, parked, error)"
          " VALUES (1, 77, 1, 0, 0, '')",
          "DELETE FROM weir_parked" },
        { "reaction-definition", "UPDATE weir_reactions SET number = 3",
          "UPDATE weir_reactions SET number = 1" },
        { "reaction-routing", "UPDATE weir_reactions SET since = 9",
          "UPDATE weir_reactions SET since = 0" },
        { "reaction-routing", "UPDATE weir_subscriptions SET was_reset = 1",
          "UPDATE weir_subscriptions SET was_reset = 0" },
    };
    fixture *f = *state;
    fixture_declare(f, "r", "*", "*", STORE_RULE_CONSTANT);
    const int64_t id = fixture_put(f, "order-1", "Placed");
    fixture_mark(f, "r", "t", "l", "", id, id);
    fixture_check(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        findings found = { .wanted = cases[i].rule };
        fixture_exec(f, cases[i].break_it);
        OK(f, f->store->about->check(f->store, count_finding, &found, &f->err));
        if (found.matching != 1) {
            fail_msg("%s: %d findings after %s", cases[i].rule, found.matching, cases[i].break_it);
        }
        fixture_exec(f, cases[i].repair);
        fixture_check(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mass_verb_is_done_in_chunks, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_prefix_reads_only_its_range, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_unknown_name_changes_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(reset_to_a_time_searches_the_log, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(skipping_a_sent_back_event_steps_over_nothing,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(check_finds_what_is_broken, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("operate", tests, NULL, NULL);
}
