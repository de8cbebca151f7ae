/* behind_test.c - the one derived flag that a target can get stuck with: `behind`.
 *
 * Whoever gives a target work races with whoever finishes its last. Each pair is run in both
 * orders, deterministically: the first is done and not committed, the second has been seen to wait
 * for the target's row, then the first commits. Whatever the order, a target that has work
 * afterwards can be leased, and the store's own check finds nothing.
 *
 * Two reactions share the target. A mark for the one that is settled would be noticed even by code
 * that locks no target, because both write the same subscription; a mark for the other is where
 * wake-ups were lost.
 */
#include "pg_support.h"
#include "targets_support.h"

#include <stdio.h>

enum { SQL_BYTES = 1024 };

/* A target "t" in lane "l", leased: the event `first` of reaction "one" is to be done. Reaction
 * "two" has had everything up to there; the event `second` is not routed. */
typedef struct race {
    weir_store *s;
    int64_t one, two, first, second;
    store_leased lease;
} race;

static race race_begin(pg_test *t)
{
    race r = { .s = test_store(t) };
    r.one = give_reaction(t, r.s, "one", STORE_RULE_CONSTANT);
    r.two = give_reaction(t, r.s, "two", STORE_RULE_CONSTANT);
    r.first = test_put(t, r.s, "order-1", "Placed");
    give_mark(t, r.s, "one", "t", r.first, r.first);
    give_mark(t, r.s, "two", "t", r.first, r.first);
    r.lease = take_lease(t, r.s);
    const store_advance advance = { .reaction = r.two, .to = r.first };
    store_settle settle = { .target = r.lease.target,
                            .fence = r.lease.fence,
                            .advances = &advance,
                            .advances_count = 1,
                            .end = STORE_END_KEEP,
                            .lease_us = INT64_C(10000000) };
    TEST_OK(t, r.s->work->settle(r.s, &settle, &t->err));
    assert_true(settle.behind);
    r.second = test_put(t, r.s, "order-1", "Placed");
    return r;
}

/* Settles the last event of reaction "one" and releases the target. */
static void settle_sql(pg_test *t, const race *r, char out[SQL_BYTES])
{
    (void)snprintf(
        out, SQL_BYTES,
        "SELECT * FROM %s.settle(%lld, %lld, 0, '{%lld}', '{%lld}', '{}', '{}', '{}', '{}', "
        "'{}', false, 0, 0, '', 0, 0, 0)",
        t->schema, (long long)r->lease.target, (long long)r->lease.fence, (long long)r->one,
        (long long)r->first);
}

/* The same as a turn, which leases nothing. */
static void turn_sql(pg_test *t, const race *r, char out[SQL_BYTES])
{
    (void)snprintf(
        out, SQL_BYTES,
        "SELECT * FROM %s.turn('{%lld}', '{%lld}', '{0}', '{%lld}', '{%lld}', '{%lld}', '', "
        "'', 0, 0, 0, 0, '{}', '{}', false, 0)",
        t->schema, (long long)r->lease.target, (long long)r->lease.fence,
        (long long)r->lease.target, (long long)r->one, (long long)r->first);
}

/* Routes the second event for a reaction. */
static void route_sql(pg_test *t, const race *r, int64_t reaction, char out[SQL_BYTES])
{
    (void)snprintf(
        out, SQL_BYTES,
        "SELECT %s.route('{%lld}', '{1}', '{%lld}', '{%lld}', '{t}', '{0}', '{0}', "
        "'{0}', '{l}', '{0}', '{s}', '{\"\"}', '{%lld}', '{%lld}', '{0}', '{%lld}', '{}', "
        "'{}', '{}')",
        t->schema, (long long)reaction, (long long)r->first, (long long)r->second,
        (long long)r->second, (long long)r->second, (long long)r->second);
}

/* `first` runs and waits with its commit until `second` waits for it; whether it did. */
static bool run_race(pg_test *t, const char *first, const char *second)
{
    PGconn *a = test_connect(t);
    PGconn *b = test_connect(t);
    test_exec(a, "BEGIN");
    PQclear(test_query(a, "%s", first));
    assert_int_equal(PQsendQuery(b, second), 1);
    const bool waited = test_wait(
        t->conn, 2, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %d",
        PQbackendPID(b));
    test_exec(a, "COMMIT");
    for (PGresult *result; (result = PQgetResult(b)) != NULL; PQclear(result)) {
        if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            fail_msg("%s: %s", second, PQresultErrorMessage(result));
        }
    }
    return waited;
}

static void assert_work_is_left(pg_test *t, const race *r)
{
    assert_int_equal(look(t, "SELECT behind::integer FROM %s.targets"), 1);
    assert_int_equal(take_lease(t, r->s).target, r->lease.target);
    nothing_is_wrong(t, r->s);
}

static void settle_then_route(pg_test *t, bool same_reaction)
{
    char settle[SQL_BYTES];
    char route[SQL_BYTES];
    const race r = race_begin(t);
    settle_sql(t, &r, settle);
    route_sql(t, &r, same_reaction ? r.one : r.two, route);
    const bool waited = run_race(t, settle, route);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

static void route_then_settle(pg_test *t, bool same_reaction)
{
    char settle[SQL_BYTES];
    char route[SQL_BYTES];
    const race r = race_begin(t);
    settle_sql(t, &r, settle);
    route_sql(t, &r, same_reaction ? r.one : r.two, route);
    const bool waited = run_race(t, route, settle);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

static void a_mark_that_waits_for_the_last_settle_wakes_the_target(void **state)
{
    settle_then_route(*state, true);
}

static void a_mark_of_another_reaction_that_waits_for_the_last_settle_wakes_the_target(void **state)
{
    settle_then_route(*state, false);
}

static void a_last_settle_that_waits_for_a_mark_leaves_the_target_behind(void **state)
{
    route_then_settle(*state, true);
}

static void a_last_settle_that_waits_for_a_mark_of_another_reaction_leaves_it_behind(void **state)
{
    route_then_settle(*state, false);
}

static void a_mark_of_another_reaction_that_waits_for_the_last_turn_wakes_the_target(void **state)
{
    pg_test *t = *state;
    char turn[SQL_BYTES];
    char route[SQL_BYTES];
    const race r = race_begin(t);
    turn_sql(t, &r, turn);
    route_sql(t, &r, r.two, route);
    const bool waited = run_race(t, turn, route);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

static void a_last_turn_that_waits_for_a_mark_of_another_reaction_leaves_it_behind(void **state)
{
    pg_test *t = *state;
    char turn[SQL_BYTES];
    char route[SQL_BYTES];
    const race r = race_begin(t);
    turn_sql(t, &r, turn);
    route_sql(t, &r, r.two, route);
    const bool waited = run_race(t, route, turn);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

/* ---- the others who change what counts as work ---------------------------------------------- */

static void a_reaction_that_comes_back_while_a_target_settles_counts_again(void **state)
{
    pg_test *t = *state;
    char settle[SQL_BYTES];
    char declare[SQL_BYTES];
    const race r = race_begin(t);
    give_mark(t, r.s, "two", "t", r.second, r.second);
    TEST_OK(t, r.s->work->retire(r.s, weir__str("two"), &t->err));
    settle_sql(t, &r, settle);
    (void)snprintf(declare, sizeof declare,
                   "SELECT * FROM %s.declare('two', NULL, '*', 0, '', 0, false, 0)", t->schema);
    const bool waited = run_race(t, settle, declare);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

static void a_settle_that_waits_for_a_reaction_to_come_back_leaves_its_work(void **state)
{
    pg_test *t = *state;
    char settle[SQL_BYTES];
    char declare[SQL_BYTES];
    const race r = race_begin(t);
    give_mark(t, r.s, "two", "t", r.second, r.second);
    TEST_OK(t, r.s->work->retire(r.s, weir__str("two"), &t->err));
    settle_sql(t, &r, settle);
    (void)snprintf(declare, sizeof declare,
                   "SELECT * FROM %s.declare('two', NULL, '*', 0, '', 0, false, 0)", t->schema);
    const bool waited = run_race(t, declare, settle);
    assert_work_is_left(t, &r);
    assert_true(waited);
}

static void a_retire_that_waits_for_a_mark_takes_its_work_away(void **state)
{
    pg_test *t = *state;
    char route[SQL_BYTES];
    char retire[SQL_BYTES];
    const race r = race_begin(t);
    const store_advance advance = { .reaction = r.one, .to = r.first };
    store_settle settle = {
        .target = r.lease.target, .fence = r.lease.fence, .advances = &advance, .advances_count = 1
    };
    TEST_OK(t, r.s->work->settle(r.s, &settle, &t->err));
    route_sql(t, &r, r.two, route);
    (void)snprintf(retire, sizeof retire, "SELECT %s.retire('two')", t->schema);
    assert_true(run_race(t, route, retire));
    assert_int_equal(look(t, "SELECT behind::integer FROM %s.targets"), 0);
    nothing_is_wrong(t, r.s);
}

/* A new subscription is made while the reaction is being retired: nobody misses the other. */
static void a_retire_that_waits_for_a_new_subscription_finds_it(void **state)
{
    pg_test *t = *state;
    char subscribe[SQL_BYTES];
    char retire[SQL_BYTES];
    const race r = race_begin(t);
    (void)snprintf(subscribe, sizeof subscribe,
                   "SELECT %s.route('{%lld}', '{1}', '{%lld}', '{%lld}', '{new}', '{0}', '{0}', "
                   "'{0}', '{l}', '{7}', '{s}', '{\"\"}', '{%lld}', '{%lld}', '{0}', '{%lld}', "
                   "'{}', '{}', '{}')",
                   t->schema, (long long)r.two, (long long)r.first, (long long)r.second,
                   (long long)r.second, (long long)r.second, (long long)r.second);
    (void)snprintf(retire, sizeof retire, "SELECT %s.retire('two')", t->schema);
    assert_true(run_race(t, subscribe, retire));
    assert_int_equal(look(t, "SELECT priority FROM %s.targets WHERE name = 'new'"), 0);
    nothing_is_wrong(t, r.s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_mark_that_waits_for_the_last_settle_wakes_the_target),
        PG_TEST(a_mark_of_another_reaction_that_waits_for_the_last_settle_wakes_the_target),
        PG_TEST(a_last_settle_that_waits_for_a_mark_leaves_the_target_behind),
        PG_TEST(a_last_settle_that_waits_for_a_mark_of_another_reaction_leaves_it_behind),
        PG_TEST(a_mark_of_another_reaction_that_waits_for_the_last_turn_wakes_the_target),
        PG_TEST(a_last_turn_that_waits_for_a_mark_of_another_reaction_leaves_it_behind),
        PG_TEST(a_reaction_that_comes_back_while_a_target_settles_counts_again),
        PG_TEST(a_settle_that_waits_for_a_reaction_to_come_back_leaves_its_work),
        PG_TEST(a_retire_that_waits_for_a_mark_takes_its_work_away),
        PG_TEST(a_retire_that_waits_for_a_new_subscription_finds_it),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
