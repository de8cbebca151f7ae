/* lease_test.c - what leasing costs, and the choices that the conformance kit cannot see.
 *
 * The cost is counted, not timed: steps of SQLite's machine, rows of full scans, sorts; and the
 * plans of the statements are read. So a slow machine passes and a missing index does not.
 */
#include "store/sqlite/lease_sql.h"
#include "store/sqlite/subscribe_sql.h"
#include "store/sqlite/targets_fixture.h"
#include "store/sqlite/targets_sql.h"

#include <stdio.h>
#include <string.h>

enum { FEW = 1000, MANY = 100000 };

static void release_all(fixture *f, const store_lease_list *list)
{
    for (size_t i = 0; i < list->leases_count; i++) {
        store_fenced item = { .target = list->leases[i].target, .fence = list->leases[i].fence };
        OK(f, f->store->work->extend(f->store, 0, &item, 1, &f->err));
        OK(f, item.status);
    }
}

/* ---- plans --------------------------------------------------------------------------------- */

static void plan_is_a_search(fixture *f, const char *sql)
{
    char explained[2048];
    sqlite3_stmt *stmt = NULL;
    int rows = 0;
    const int len = snprintf(explained, sizeof explained, "EXPLAIN QUERY PLAN %s", sql);
    assert_true(len > 0 && (size_t)len < sizeof explained);
    assert_int_equal(sqlite3_prepare_v2(fixture_db(f), explained, -1, &stmt, NULL), SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *line = (const char *)sqlite3_column_text(stmt, 3);
        rows++;
        if (strstr(line, "SCAN") != NULL || strstr(line, "TEMP B-TREE") != NULL) {
            fail_msg("%s\nof: %s", line, sql);
        }
    }
    sqlite3_finalize(stmt);
    assert_true(rows > 0);
}

static void leasing_searches_and_never_sorts(void **state)
{
    fixture *f = *state;
    const char *const statements[] = {
        sql_lease_lane_paused,   sql_lease_by_priority, sql_lease_by_rank,  sql_lease_leading,
        sql_lease_due,           sql_lease_take,        sql_lease_take_due, sql_lease_block,
        sql_lease_subscriptions, sql_lease_sent_back,   sql_poll_ready,     sql_poll_due,
        sql_poll_lease_end,      sql_target_by_name,
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        plan_is_a_search(f, statements[i]);
    }
}

/* The partial indexes hold what the comment in the schema says, or the plans above mean nothing. */
static void targets_that_cannot_be_leased_are_in_no_index_of_leasing(void **state)
{
    fixture *f = *state;
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 100, 10);
    fixture_exec(f, "UPDATE weir_targets SET held = 1, paused = 1");
    (void)fixture_take_steps(f);
    store_lease_list list = { 0 };
    fixture_lease(f, 10, &list);
    assert_int_equal(list.leases_count, 0);
    const fixture_steps held = fixture_take_steps(f);
    fixture_exec(f, "DELETE FROM weir_subscriptions; DELETE FROM weir_targets");
    (void)fixture_take_steps(f);
    fixture_lease(f, 10, &list);
    const fixture_steps none = fixture_take_steps(f);
    assert_int_equal(held.vm, none.vm);
    weir__arena_free(&list.arena);
}

/* ---- cost ---------------------------------------------------------------------------------- */

typedef struct lease_cost {
    size_t leased;
    fixture_steps steps;
} lease_cost;

/* One lease call with all its arms, warm. */
static lease_cost cost_of_leasing(fixture *f)
{
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("tester"),
                                          .lease_us = 1000000,
                                          .limit = 10,
                                          .leading = 3,
                                          .reserve = 2,
                                          .all_reactions = true };
    store_lease_list list = { 0 };
    lease_cost cost = { 0 };
    for (int round = 0; round < 2; round++) {
        (void)fixture_take_steps(f);
        OK(f, f->store->work->turn(f->store, NULL, 0, &request, &list, &f->err));
        cost = (lease_cost){ .leased = list.leases_count, .steps = fixture_take_steps(f) };
        /* Back to how it was: a due target that was taken and released is no longer due. */
        release_all(f, &list);
    }
    weir__arena_free(&list.arena);
    return cost;
}

static void assert_flat(lease_cost few, lease_cost many)
{
    assert_int_equal(few.leased, many.leased);
    assert_int_equal(many.steps.fullscan, 0);
    assert_int_equal(many.steps.sorts, 0);
    /* The same work but for a step here and there: a hundred times the targets is not 1.2 times
     * the steps. */
    assert_in_range(many.steps.vm, 1, few.steps.vm * 6 / 5);
}

static const char *const lease_states[] = {
    "UPDATE weir_targets SET held = 0, paused = 0, due = NULL",
    "UPDATE weir_targets SET held = 1, paused = 1, due = NULL",
    "UPDATE weir_targets SET held = 0, paused = 0, due = 2000000000000000",
    "UPDATE weir_targets SET held = 0, paused = 0, due = 1600000000000000",
    "UPDATE weir_targets SET held = (id % 2), paused = (id % 2), due = NULL",
};
enum { LEASE_STATES = sizeof lease_states / sizeof lease_states[0] };

/* C23 */
static void leasing_costs_the_same_with_a_hundred_times_the_targets(void **state)
{
    static const size_t leased[LEASE_STATES] = { 10, 0, 0, 10, 10 };
    fixture *f = *state;
    lease_cost few[LEASE_STATES];
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, FEW, 100);
    for (size_t i = 0; i < LEASE_STATES; i++) {
        fixture_exec(f, lease_states[i]);
        few[i] = cost_of_leasing(f);
        assert_int_equal(few[i].leased, leased[i]);
    }
    fixture_exec(f, lease_states[0]);
    fixture_many(f, "r", FEW, MANY - FEW, 10000);
    for (size_t i = 0; i < LEASE_STATES; i++) {
        fixture_exec(f, lease_states[i]);
        assert_flat(few[i], cost_of_leasing(f));
    }
}

/* A lane is paused by one row, not by touching its targets. */
static void pausing_a_lane_costs_the_same_with_a_thousand_targets(void **state)
{
    fixture *f = *state;
    bool changed = false;
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, FEW, 100);
    (void)fixture_take_steps(f);
    OK(f, f->store->work->lane_pause(f->store, weir__str("l"), true, weir__str("me"), &changed,
                                     &f->err));
    assert_true(changed);
    assert_in_range(fixture_take_steps(f).vm, 1, 300);
    store_lease_list list = { 0 };
    fixture_lease(f, 10, &list);
    assert_int_equal(list.leases_count, 0);
    weir__arena_free(&list.arena);
}

/* ---- choices ------------------------------------------------------------------------------- */

/* The order of the reserve from its other end: within one rank the higher id comes first. */
static void leading_share_takes_the_highest_rank_by_id(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 30, 10); /* ranks 0, 1, 2 */
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("tester"),
                                          .lease_us = 1000000,
                                          .limit = 12,
                                          .leading = 12,
                                          .all_reactions = true };
    OK(f, f->store->work->turn(f->store, NULL, 0, &request, &list, &f->err));
    assert_int_equal(list.leases_count, 12);
    /* All of rank 2 (targets 20..29), then the last two of rank 1; listed by rank. */
    assert_memory_equal(list.leases[0].name.ptr, "t0000018", 8);
    assert_memory_equal(list.leases[1].name.ptr, "t0000019", 8);
    for (size_t i = 2; i < 12; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%07zu", i + 18);
        assert_memory_equal(list.leases[i].name.ptr, name, 8);
    }
    release_all(f, &list);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* Due targets compete with the others in every step, each taken at most once. */
static void due_targets_are_merged_into_every_order(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    bool seen[12] = { false };
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 12, 4);
    fixture_exec(f, "UPDATE weir_targets SET due = id WHERE id % 3 = 0");
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("tester"),
                                          .lease_us = 1000000,
                                          .limit = 12,
                                          .leading = 4,
                                          .reserve = 4,
                                          .all_reactions = true };
    OK(f, f->store->work->turn(f->store, NULL, 0, &request, &list, &f->err));
    assert_int_equal(list.leases_count, 12);
    for (size_t i = 0; i < 12; i++) {
        const int64_t id = list.leases[i].target;
        assert_in_range(id, 1, 12);
        assert_false(seen[id - 1]);
        seen[id - 1] = true;
    }
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets WHERE due IS NOT NULL"), 0);
    release_all(f, &list);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

/* C26: the targets that are blocked make room for others in the same call. */
static void targets_that_lose_too_many_leases_are_blocked_and_replaced(void **state)
{
    fixture *f = *state;
    store_lease_list list = { 0 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 8, 4);
    store_lease_request request = { .lane = weir__str("l"),
                                    .holder = weir__str("tester"),
                                    .lease_us = 1000000,
                                    .limit = 4,
                                    .all_reactions = true,
                                    .lost_max = 2 };
    for (int round = 0; round < 2; round++) {
        OK(f, f->store->work->turn(f->store, NULL, 0, &request, &list, &f->err));
        assert_int_equal(list.leases_count, 4);
        assert_int_equal(list.leases[0].target, 1);
        assert_int_equal(list.leases[0].lost, round);
        f->now_us += 1000000;
    }
    OK(f, f->store->work->turn(f->store, NULL, 0, &request, &list, &f->err));
    assert_int_equal(list.leases_count, 4);
    assert_int_equal(list.leases[0].target, 5);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets WHERE blocked IS NOT NULL"
                                    " AND id <= 4 AND lost = 2 AND holder IS NULL"
                                    " AND error = 'lost its lease 2 times in a row'"),
                     4);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

static void C03_fences_are_64_bit_on_every_path(void **state)
{
    fixture *f = *state;
    const int64_t before = (INT64_C(1) << 32) + 7;
    store_lease_list list = { 0 };
    fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_many(f, "r", 0, 1, 1);
    fixture_exec(f, "UPDATE weir_targets SET fence = 4294967303");
    fixture_lease(f, 1, &list);
    assert_int_equal(list.leases_count, 1);
    assert_true(list.leases[0].fence == before + 1);
    const int64_t target = list.leases[0].target;
    store_fenced stale = { .target = target, .fence = 8 }; /* the same in 32 bits */
    OK(f, f->store->work->extend(f->store, 1000000, &stale, 1, &f->err));
    assert_int_equal(stale.status, WEIR_ELOST);
    store_fenced held = { .target = target, .fence = before + 1 };
    OK(f, f->store->work->extend(f->store, 1000000, &held, 1, &f->err));
    assert_int_equal(held.status, WEIR_OK);
    store_settle settle = { .target = target, .fence = before + 1, .end = STORE_END_RELEASE };
    OK(f, f->store->work->settle(f->store, &settle, &f->err));
    weir__arena_free(&list.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(C03_fences_are_64_bit_on_every_path, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(leasing_searches_and_never_sorts, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(targets_that_cannot_be_leased_are_in_no_index_of_leasing,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(leasing_costs_the_same_with_a_hundred_times_the_targets,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(pausing_a_lane_costs_the_same_with_a_thousand_targets,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(leading_share_takes_the_highest_rank_by_id, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(due_targets_are_merged_into_every_order, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(targets_that_lose_too_many_leases_are_blocked_and_replaced,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
