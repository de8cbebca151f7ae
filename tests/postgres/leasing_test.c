/* leasing_test.c - leasing on PostgreSQL: its locks, its plans, and what it costs.
 *
 * Targets are written by plain SQL, as routing would leave them, so that there can be many. What a
 * call costs is the number of buffers that EXPLAIN (ANALYZE, BUFFERS) counts for the function: the
 * same on every machine. What it may cost is a bound that one more level of an index fits in.
 */
#include "pg_support.h"
#include "targets_support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FEW = 1000, MANY = 100000, TEN = 10 };
#define LEASE_US INT64_C(60000000)

/* Targets t1, t2, ... of lane "l", each with one subscription of reaction 1 and work to do; ranks
 * and priorities differ. */
static void add_targets(pg_test *t, int from, int to)
{
    const char *schema = t->schema;
    test_exec(t->conn,
              "INSERT INTO %s.lanes (lane) VALUES ('l') ON CONFLICT DO NOTHING;"
              "INSERT INTO %s.targets (name, lane, behind, watermark, rank, priority) "
              "SELECT 't' || i, 'l', true, i * 100, (i * 100) >> 5, i %% 5 "
              "  FROM generate_series(%d, %d) AS i;"
              "INSERT INTO %s.subscriptions (target, reaction, at, mark, priority, source, value) "
              "SELECT t.id, 1, t.watermark, t.watermark + 1, t.priority, 's', '' "
              "  FROM %s.targets AS t WHERE NOT EXISTS "
              "(SELECT FROM %s.subscriptions AS s WHERE s.target = t.id)",
              schema, schema, from, to, schema, schema, schema);
}

static weir_store *store_with_targets(pg_test *t, int count)
{
    weir_store *s = test_store(t);
    assert_int_equal(give_reaction(t, s, "r", STORE_RULE_STREAM), 1);
    add_targets(t, 1, count);
    return s;
}

static store_lease_request request_of(size_t limit, size_t leading, size_t reserve)
{
    static const store_known_reaction known = { .reaction = 1, .number = 1 };
    return (store_lease_request){ .lane = weir__str("l"),
                                  .holder = weir__str("tester"),
                                  .lease_us = LEASE_US,
                                  .limit = limit,
                                  .leading = leading,
                                  .reserve = reserve,
                                  .known = &known,
                                  .known_count = 1,
                                  .lost_max = 10 };
}

/* The call as SQL, of ten targets, two of them leading and two in reserve. */
static const char *lease_ten(pg_test *t)
{
    static char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT * FROM %s.lease('l', 'tester', %lld, %d, 2, 2, '{1}', '{1}', false, 10)",
                   t->schema, (long long)LEASE_US, TEN);
    return sql;
}

static int64_t leased_now(pg_test *t)
{
    return look(t, "SELECT count(*) FROM %s.targets WHERE holder IS NOT NULL");
}

/* ---- locks ---------------------------------------------------------------------------------- */

static void a_locked_target_is_stepped_over_without_waiting(void **state)
{
    pg_test *t = *state;
    weir_store *s = store_with_targets(t, 20);
    PGconn *holder = test_connect(t);
    store_lease_list list = { 0 };
    const store_lease_request request = request_of(12, 1, 1);
    /* The first of every order: most current, most lagging, highest priority. */
    test_exec(holder, "BEGIN; SELECT FROM %s.targets WHERE name IN ('t1', 't20', 't4') FOR UPDATE",
              t->schema);
    TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err)); /* a wait would end as busy */
    assert_int_equal(list.leases_count, 12);
    test_exec(holder, "COMMIT");
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE name IN ('t1', 't20', 't4') "
                             "AND holder IS NOT NULL"),
                     0);
    weir__arena_free(&list.arena);
    nothing_is_wrong(t, s);
}

/* T2: what the first has taken, committed or not, the second neither waits for nor shares. */
static void two_workers_both_get_full_slices(void **state)
{
    pg_test *t = *state;
    store_with_targets(t, 2 * TEN);
    PGconn *first = test_connect(t);
    PGconn *second = test_connect(t);
    test_exec(second,
              "SET lock_timeout = '1s'"); /* counts while it waits for a lock, and then only */
    test_exec(first, "BEGIN");
    PGresult *result = test_query(first, "%s", lease_ten(t));
    assert_int_equal(PQntuples(result), TEN);
    PQclear(result);
    result = test_query(second, "%s", lease_ten(t));
    assert_int_equal(PQntuples(result), TEN);
    PQclear(result);
    test_exec(first, "COMMIT");
    assert_int_equal(leased_now(t), 2 * TEN);
}

/* ---- many at once --------------------------------------------------------------------------- */

enum { WORKERS = 40, HANDLES = 5, ROUNDS = 12, SLICE = 5, STORM_TARGETS = 400 };

/* Shared by the workers of a storm. */
typedef struct storm {
    weir_store *stores[HANDLES];
    _Atomic int owners[STORM_TARGETS + 1]; /* of each target: how many workers have it */
    _Atomic int workers_left;
    _Atomic int failed, over, twice, leased;
} storm;

typedef struct storm_worker {
    storm *storm;
    size_t number;
} storm_worker;

static void storm_round(storm *x, weir_store *s, store_lease_list *list, unsigned *seed)
{
    const store_lease_request request = request_of(SLICE, 1, 1);
    store_fenced items[SLICE + 1] = { 0 };
    weir_error err;
    if (s->work->turn(s, NULL, 0, &request, list, &err) != WEIR_OK) {
        x->failed++;
        return;
    }
    x->over += list->leases_count > SLICE;
    for (size_t i = 0; i < list->leases_count; i++) {
        x->twice += x->owners[list->leases[i].target]++ != 0;
        x->leased++;
    }
    (void)usleep((unsigned)rand_r(seed) % 2000);
    for (size_t i = 0; i < list->leases_count && i < SLICE; i++) {
        x->owners[list->leases[i].target]--;
        items[i] =
            (store_fenced){ .target = list->leases[i].target, .fence = list->leases[i].fence };
    }
    if (s->work->extend(s, 0, items, list->leases_count, &err) != WEIR_OK) {
        x->failed++;
    }
}

static void run_worker(void *ctx)
{
    storm_worker *w = ctx;
    weir_store *s = w->storm->stores[w->number % HANDLES];
    store_lease_list list = { 0 };
    unsigned seed = (unsigned)w->number + 1;
    for (int i = 0; i < ROUNDS; i++) {
        storm_round(w->storm, s, &list, &seed);
    }
    weir__arena_free(&list.arena);
    w->storm->workers_left--;
}

/* The settings under which a careless lease takes more rows than it should. */
static void bad_plans(pg_test *t, bool on)
{
    static const char *const settings[] = { "enable_hashjoin", "enable_mergejoin",
                                            "enable_material" };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        test_exec(t->conn,
                  on ? "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = off', "
                       "current_database()); END $$"
                     : "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I RESET %s', "
                       "current_database()); END $$",
                  settings[i]);
    }
}

/* Statistics of the time when there was nothing. */
static void stale_statistics(pg_test *t)
{
    test_exec(t->conn,
              "ALTER TABLE %s.targets SET (autovacuum_enabled = false);"
              "ALTER TABLE %s.subscriptions SET (autovacuum_enabled = false);"
              "ANALYZE %s.targets; ANALYZE %s.subscriptions",
              t->schema, t->schema, t->schema, t->schema);
}

static void C21_forty_workers_never_get_too_many_nor_the_same_and_never_wait(void **state)
{
    pg_test *t = *state;
    storm *x = calloc(1, sizeof *x);
    storm_worker workers[WORKERS];
    beside threads[WORKERS];
    int waits = 0;
    assert_non_null(x);
    bad_plans(t, true);
    x->stores[0] = store_with_targets(t, 0);
    stale_statistics(t);
    add_targets(t, 1, STORM_TARGETS);
    for (size_t i = 1; i < HANDLES; i++) {
        x->stores[i] = test_store(t);
    }
    x->workers_left = WORKERS;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (storm_worker){ .storm = x, .number = i };
        begin_beside(&threads[i], run_worker, &workers[i]);
    }
    while (x->workers_left > 0) {
        waits += (int)test_number(t->conn,
                                  "SELECT count(*) FROM pg_stat_activity "
                                  " WHERE wait_event_type = 'Lock' AND query LIKE '%%%s.lease(%%'",
                                  t->schema);
        (void)usleep(2000);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        end_beside(&threads[i]);
    }
    bad_plans(t, false);
    assert_int_equal(x->failed, 0);
    assert_int_equal(x->over, 0);
    assert_int_equal(x->twice, 0);
    assert_int_equal(waits, 0);
    /* 40 workers want 200 of 400 targets at a time: there is always enough. */
    assert_int_equal(x->leased, WORKERS * ROUNDS * SLICE);
    assert_int_equal(leased_now(t), 0);
    nothing_is_wrong(t, x->stores[0]);
    free(x);
}

/* T1. The session's plans are of the time when there was one target, and it was leased. */
static void never_more_than_asked_for_under_a_nested_loop_and_stale_statistics(void **state)
{
    pg_test *t = *state;
    static const size_t limits[] = { 1, 5, 41, 300 };
    store_lease_list first = { 0 };
    const store_lease_request one = request_of(3, 1, 1);
    bad_plans(t, true);
    weir_store *s = store_with_targets(t, 1);
    stale_statistics(t);
    TEST_OK(t, s->work->turn(s, NULL, 0, &one, &first, &t->err));
    assert_int_equal(first.leases_count, 1);
    weir__arena_free(&first.arena);
    add_targets(t, 2, FEW);
    int64_t all = 1;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        store_lease_list list = { 0 };
        const store_lease_request request = request_of(limits[i], limits[i] / 3, limits[i] / 3);
        TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err));
        assert_int_equal(list.leases_count, limits[i]);
        all += (int64_t)limits[i];
        assert_int_equal(leased_now(t), all);
        weir__arena_free(&list.arena);
    }
    bad_plans(t, false);
}

/* ---- lost leases ----------------------------------------------------------------------------- */

/* C26: more of them than a call may take, in front of what is sound. */
static void lost_ones_are_blocked_and_replaced_however_many_there_are(void **state)
{
    pg_test *t = *state;
    weir_store *s = store_with_targets(t, 60);
    store_lease_list list = { 0 };
    const store_lease_request request = request_of(TEN, 3, 3);
    test_exec(t->conn,
              "UPDATE %s.targets SET holder = 'dead', lease_until = 1, lost = 9 "
              " WHERE id NOT BETWEEN 20 AND 31",
              t->schema);
    TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err));
    assert_int_equal(list.leases_count, TEN);
    for (size_t i = 0; i < list.leases_count; i++) {
        assert_in_range(list.leases[i].target, 20, 31);
        assert_int_equal(list.leases[i].fence, 1);
    }
    assert_int_equal(
        look(t, "SELECT count(*) FROM %s.targets WHERE blocked IS NOT NULL AND NOT held"), 0);
    assert_int_equal(look(t,
                          "SELECT count(*) FROM %s.targets WHERE blocked IS NOT NULL AND error = "
                          "'lost its lease 10 times in a row' AND holder IS NULL AND lost = 10"),
                     look(t, "SELECT count(*) FROM %s.targets WHERE held"));
    /* All that come before the last of the sound ones, from either end, and those of priority. */
    assert_true(look(t, "SELECT count(*) FROM %s.targets WHERE held") > 30);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE held AND id BETWEEN 20 AND 31"),
                     0);
    weir__arena_free(&list.arena);
    nothing_is_wrong(t, s);
}

/* ---- what it costs --------------------------------------------------------------------------- */

static void a_lease_is_one_statement(void **state)
{
    pg_test *t = *state;
    weir_store *s = store_with_targets(t, 30);
    store_lease_list list = { 0 };
    const store_lease_request request = request_of(TEN, 2, 2);
    char like[TEST_SCHEMA_BYTES + 8];
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    test_statements_reset(t);
    TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err));
    assert_int_equal(list.leases_count, TEN);
    assert_int_equal(test_statements(t, like), 1);
    assert_int_equal(test_statements(t, "BEGIN%"), 0);
    weir__arena_free(&list.arena);
}

/* The buffers of a query, found in memory or not, as EXPLAIN counts them for all of it. */
static int64_t buffers(PGconn *conn, const char *sql)
{
    PGresult *result = test_query(conn, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) %s", sql);
    int64_t count = -1;
    for (int i = 0; i < PQntuples(result) && count < 0; i++) {
        const char *hit = strstr(PQgetvalue(result, i, 0), "shared hit=");
        const char *read = strstr(PQgetvalue(result, i, 0), "read=");
        if (hit != NULL || read != NULL) {
            count = (hit == NULL ? 0 : strtoll(hit + strlen("shared hit="), NULL, 10)) +
                    (read == NULL ? 0 : strtoll(read + strlen("read="), NULL, 10));
        }
    }
    PQclear(result);
    assert_true(count >= 0);
    return count;
}

/* What leasing ten costs once the session knows its way; nothing is changed. */
static int64_t lease_cost(pg_test *t, int expected)
{
    PGconn *conn = test_connect(t);
    int64_t least = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        test_exec(conn, "BEGIN");
        PGresult *result = test_query(conn, "%s", lease_ten(t));
        assert_int_equal(PQntuples(result), expected);
        PQclear(result);
        test_exec(conn, "ROLLBACK; BEGIN");
        const int64_t cost = buffers(conn, lease_ten(t));
        least = cost < least ? cost : least;
        test_exec(conn, "ROLLBACK");
    }
    test_disconnect(t, conn);
    return least;
}

static void vacuum(pg_test *t)
{
    test_exec(t->conn, "VACUUM %s.targets", t->schema);
    test_exec(t->conn, "VACUUM %s.subscriptions", t->schema);
}

/* T3, C23: `change` makes them what they are to be; of MANY, expected[1] can be leased. */
static void cost_is_flat(pg_test *t, const char *change, const int expected[2])
{
    int64_t cost[2];
    static const int counts[2] = { FEW, MANY };
    store_with_targets(t, FEW);
    for (int i = 0; i < 2; i++) {
        if (i > 0) {
            add_targets(t, FEW + 1, MANY);
        }
        if (change != NULL) {
            test_exec(t->conn, "UPDATE %s.targets SET %s", t->schema, change);
        }
        vacuum(t);
        cost[i] = lease_cost(t, expected[i]);
        print_message("%d targets: %lld buffers\n", counts[i], (long long)cost[i]);
    }
    /* Ten targets through three orders, looked at twice and written once, each row by an index
     * whose tree may be one level deeper. */
    assert_true(cost[0] < 500);
    assert_true(cost[1] <= cost[0] + cost[0] / 4 + 20);
}

static void C23_cost_is_flat_with_everything_ready(void **state)
{
    cost_is_flat(*state, NULL, (int[]){ TEN, TEN });
}

/* 0.01 %: of 100,000 ten. */
static void C23_cost_is_flat_with_hardly_anything_ready(void **state)
{
    cost_is_flat(*state, "behind = id <= 10", (int[]){ TEN, TEN });
}

static void C23_cost_is_flat_with_everything_blocked(void **state)
{
    cost_is_flat(*state, "held = true, blocked = 1", (int[]){ 0, 0 });
}

static void C23_cost_is_flat_with_everything_deferred(void **state)
{
    cost_is_flat(*state, "due = 9000000000000000000 + id", (int[]){ 0, 0 });
}

/* Deferred ones whose time has come, all of them. */
static void C23_cost_is_flat_with_everything_due(void **state)
{
    cost_is_flat(*state, "due = id", (int[]){ TEN, TEN });
}

/* Routes one mark for each of three targets; `to` is where everything stands already. */
static const char *route_three(pg_test *t, const char *targets)
{
    static char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT %s.route('{1}', '{1}', '{0}', '{0}', '{%s}', '{0,0,0}', '{0,1,2}', "
                   "'{0,0,0}', '{l,l,l}', '{0,0,0}', '{s,s,s}', '{a,b,c}', '{1,1,1}', "
                   "'{9000000,9000000,9000000}', '{}', '{}', '{}', '{}', '{}')",
                   t->schema, targets);
    return sql;
}

/* Advances a target by one event and keeps its lease. */
static const char *settle_one(pg_test *t, int target)
{
    static char sql[512];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT * FROM %s.settle(%d, 0, 0, '{1}', '{8000000}', '{}', '{}', '{}', '{}', '{}', "
        "false, 0, 0, '', 1, 1000000, 0)",
        t->schema, target);
    return sql;
}

/* Advances a target by one event, finds another lost, and leases ten. */
static const char *turn_two(pg_test *t, int target)
{
    static char sql[512];
    (void)snprintf(
        sql, sizeof sql,
        "SELECT * FROM %s.turn('{%d,5}', '{0,7}', '{0,0}', '{%d}', '{1}', '{8000000}', 'l', "
        "'tester', %lld, %d, 2, 2, '{1}', '{1}', false, 10)",
        t->schema, target, target, (long long)LEASE_US, TEN);
    return sql;
}

/* A session keeps its plans. One that was made when there was nothing has to be right for ever. */
static void plans_made_on_empty_tables_are_right_for_many_targets(void **state)
{
    enum { LOOKED_AT = 8 };
    static const struct {
        const char *name;
        int64_t most;
    } bounds[LOOKED_AT] = { { "lease", 600 }, { "poll", 60 },  { "derive", 100 }, { "fenced", 60 },
                            { "route", 250 }, { "fetch", 60 }, { "settle", 150 }, { "turn", 750 } };
    pg_test *t = *state;
    char sql[LOOKED_AT][512];
    store_with_targets(t, 0);
    test_exec(t->conn, "INSERT INTO %s.events VALUES (9000000, 'far', 0, 'A', '{}', '{}', now())",
              t->schema); /* positions up to there can be settled */
    stale_statistics(t);
    PGconn *conn = test_connect(t);
    (void)snprintf(sql[0], sizeof sql[0], "%s", lease_ten(t));
    (void)snprintf(sql[1], sizeof sql[1], "SELECT * FROM %s.poll('l')", t->schema);
    (void)snprintf(sql[2], sizeof sql[2], "SELECT %s.derive('{10,2000,20000}')", t->schema);
    (void)snprintf(sql[3], sizeof sql[3],
                   "SELECT * FROM %s.fenced('{20000}', '{0}', '{0}', 1000000)", t->schema);
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < 4; j++) {
            PQclear(test_query(conn, "%s", sql[j]));
        }
        test_exec(conn, "BEGIN");
        PQclear(test_query(conn, "%s", route_three(t, "a,b,c")));
        PQclear(test_query(conn,
                           "SELECT * FROM %s.fetch((SELECT array_agg(id) FROM %s.targets), "
                           "'{1,1,1}', '{0,0,0}', '{5,5,5}', '{9,9,9}', 9, 999)",
                           t->schema, t->schema));
        test_exec(conn, "UPDATE %s.targets SET holder = 'x', log = %s.log() WHERE name = 'a'",
                  t->schema, t->schema);
        const int a =
            (int)test_number(conn, "SELECT id FROM %s.targets WHERE name = 'a'", t->schema);
        PQclear(test_query(conn, "%s", settle_one(t, a)));
        PQclear(test_query(conn, "%s", turn_two(t, a)));
        test_exec(conn, "ROLLBACK");
    }
    add_targets(t, 1, 30000);
    test_exec(t->conn,
              "UPDATE %s.targets SET holder = 'x', log = %s.log() WHERE id = 20000;"
              "INSERT INTO %s.work (target, reaction, event) "
              "SELECT id, 1, watermark + 1 FROM %s.targets",
              t->schema, t->schema, t->schema, t->schema);
    (void)snprintf(sql[4], sizeof sql[4], "%s", route_three(t, "t5,t6,t20000"));
    (void)snprintf(sql[5], sizeof sql[5],
                   "SELECT * FROM %s.fetch('{20000}', '{1}', '{0}', '{5}', '{9}', 9, 999)",
                   t->schema);
    (void)snprintf(sql[6], sizeof sql[6], "%s", settle_one(t, 20000));
    (void)snprintf(sql[7], sizeof sql[7], "%s", turn_two(t, 20000));
    for (int j = 0; j < LOOKED_AT; j++) {
        int64_t cost = 0;
        for (int k = 0; k < 2; k++) { /* the first to come by tidies up */
            test_exec(conn, "BEGIN");
            cost = buffers(conn, sql[j]);
            test_exec(conn, "ROLLBACK");
        }
        print_message("%s: %lld buffers\n", bounds[j].name, (long long)cost);
        assert_true(cost <= bounds[j].most);
    }
}

/* No index has to follow a lease: leasing and releasing leave every entry where it is. */
static void leases_are_hot_updates(void **state)
{
    pg_test *t = *state;
    weir_store *s = store_with_targets(t, 200);
    store_lease_list list = { 0 };
    const store_lease_request request = request_of(TEN, 2, 2);
    test_exec(t->conn, "VACUUM FULL %s.targets; ", t->schema);
    test_exec(t->conn, "SELECT pg_stat_reset_single_table_counters('%s.targets'::regclass)",
              t->schema);
    for (int i = 0; i < 100; i++) {
        store_fenced items[TEN];
        TEST_OK(t, s->work->turn(s, NULL, 0, &request, &list, &t->err));
        assert_int_equal(list.leases_count, TEN);
        for (size_t j = 0; j < TEN; j++) {
            items[j] =
                (store_fenced){ .target = list.leases[j].target, .fence = list.leases[j].fence };
        }
        TEST_OK(t, s->work->extend(s, 0, items, TEN, &t->err));
    }
    weir__arena_free(&list.arena);
    test_store_close(t, s); /* the counters of a session are told when it ends */
    assert_true(test_wait(t->conn, 120,
                          "SELECT n_tup_upd >= 2000 FROM pg_stat_all_tables "
                          " WHERE relid = '%s.targets'::regclass",
                          t->schema));
    const int64_t updates = test_number(
        t->conn, "SELECT n_tup_upd FROM pg_stat_all_tables WHERE relid = '%s.targets'::regclass",
        t->schema);
    const int64_t hot = test_number(
        t->conn,
        "SELECT n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = '%s.targets'::regclass",
        t->schema);
    print_message("%lld of %lld updates were HOT\n", (long long)hot, (long long)updates);
    assert_true(hot * 100 >= updates * 95);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_locked_target_is_stepped_over_without_waiting),
        PG_TEST(two_workers_both_get_full_slices),
        PG_TEST(C21_forty_workers_never_get_too_many_nor_the_same_and_never_wait),
        PG_TEST(never_more_than_asked_for_under_a_nested_loop_and_stale_statistics),
        PG_TEST(lost_ones_are_blocked_and_replaced_however_many_there_are),
        PG_TEST(a_lease_is_one_statement),
        PG_TEST(C23_cost_is_flat_with_everything_ready),
        PG_TEST(C23_cost_is_flat_with_hardly_anything_ready),
        PG_TEST(C23_cost_is_flat_with_everything_blocked),
        PG_TEST(C23_cost_is_flat_with_everything_deferred),
        PG_TEST(C23_cost_is_flat_with_everything_due),
        PG_TEST(plans_made_on_empty_tables_are_right_for_many_targets),
        PG_TEST(leases_are_hot_updates),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
