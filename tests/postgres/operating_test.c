/* operating_test.c - operators on PostgreSQL: mass verbs in bounded transactions, the order of
 * locks, choices that must be made again; and that check finds what is wrong.
 */
#include "targets_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)

static int64_t operate_all(pg_test *t, weir_store *s, store_verb verb, bool dry_run)
{
    store_operate op = {
        .verb = verb, .dry_run = dry_run, .by = weir__str("me"), .priority = 3, .changed = -1
    };
    TEST_OK(t, s->work->operate(s, &op, &t->err));
    return op.changed;
}

/* An operator's verb that runs beside the test. */
typedef struct slow {
    weir_store *s;
    store_operate op;
    weir_status status;
    weir_error err;
} slow;

static void run_operate(void *ctx)
{
    slow *x = ctx;
    x->status = x->s->work->operate(x->s, &x->op, &x->err);
}

/* ---- many targets ------------------------------------------------------------------------- */

enum { MANY = 2500, CHUNKS = 3 };

static weir_store *give_many(pg_test *t)
{
    weir_store *s = test_store(t);
    (void)give_reaction(t, s, "r", STORE_RULE_CONSTANT);
    const int64_t event = test_put(t, s, "order-1", "Placed");
    give_mark(t, s, "r", "first", event, event);
    test_exec(t->conn,
              "INSERT INTO %s.targets (name, lane, watermark, behind) "
              "SELECT 't' || i, 'l', 0, true FROM generate_series(2, %d) AS i",
              t->schema, MANY);
    test_exec(t->conn,
              "INSERT INTO %s.subscriptions (target, reaction, at, mark, priority, source, value) "
              "SELECT t.id, s.reaction, 0, s.mark, 0, 'order-*', '' "
              "FROM %s.targets AS t, %s.subscriptions AS s WHERE t.name LIKE 't%%'",
              t->schema, t->schema, t->schema);
    nothing_is_wrong(t, s);
    return s;
}

static void mass_verbs_work_in_chunks_and_end_with_a_vacuum(void **state)
{
    pg_test *t = *state;
    weir_store *s = give_many(t);
    assert_int_equal(operate_all(t, s, STORE_PAUSE, true), MANY);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE paused"), 0);

    test_statements_reset(t);
    assert_int_equal(operate_all(t, s, STORE_PAUSE, false), MANY);
    assert_int_equal(test_statements(t, "SELECT%.operate($1%"), CHUNKS);
    assert_int_equal(test_statements(t, "VACUUM%"), 1);
    assert_int_equal(
        look(t, "SELECT count(*) FROM %s.targets WHERE paused AND held AND paused_by = 'me'"),
        MANY);
    assert_int_equal(operate_all(t, s, STORE_PAUSE, false), 0);
    assert_int_equal(operate_all(t, s, STORE_RESUME, false), MANY);
    assert_int_equal(operate_all(t, s, STORE_PRIORITIZE, false), MANY);
    assert_int_equal(operate_all(t, s, STORE_PRIORITIZE, false), 0);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE priority = 3"), MANY);

    test_statements_reset(t);
    assert_int_equal(operate_all(t, s, STORE_SKIP, true), MANY);
    assert_int_equal(operate_all(t, s, STORE_SKIP, false), MANY);
    assert_int_equal(test_statements(t, "SELECT%operate_skip($1%"), CHUNKS);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.parked"), MANY);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE fence = 1"), MANY);
    assert_int_equal(operate_all(t, s, STORE_SKIP, false), 0);
    assert_int_equal(operate_all(t, s, STORE_RESET, true), MANY);
    assert_int_equal(operate_all(t, s, STORE_RESET, false), MANY);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE fence = 2 AND behind"), MANY);
    nothing_is_wrong(t, s);
}

static void patterns_mean_here_what_they_mean_everywhere(void **state)
{
    pg_test *t = *state;
    weir_store *s = give_many(t);
    static const struct {
        const char *match, *source;
        int64_t count;
    } cases[] = {
        { "t12*", NULL, 111 },         { "t7", NULL, 1 },        { "t99999", NULL, 0 },
        { "/^t1.?$/", NULL, 10 },      { "*", "order-*", MANY }, { "*", "/^order-.$/", MANY },
        { "*", "invoice-*", 0 },       { "first", "*", 1 },      { "/[05]$/", "order-*", 500 },
        { "/^t(1|2)..$/", NULL, 200 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        store_pattern *match = NULL, *source = NULL;
        TEST_OK(t, weir__pattern_open(&match, weir__str(cases[i].match), &t->err));
        if (cases[i].source != NULL) {
            TEST_OK(t, weir__pattern_open(&source, weir__str(cases[i].source), &t->err));
        }
        store_operate op = { .verb = STORE_PAUSE,
                             .dry_run = true,
                             .filter = { .match = match, .source = source } };
        TEST_OK(t, s->work->operate(s, &op, &t->err));
        if (op.changed != cases[i].count) {
            fail_msg("%s of %s: %lld targets", cases[i].match,
                     cases[i].source == NULL ? "any" : cases[i].source, (long long)op.changed);
        }
        weir__pattern_close(match);
        weir__pattern_close(source);
    }
}

static void a_role_that_may_not_vacuum_can_still_pause_all(void **state)
{
    pg_test *t = *state;
    (void)give_many(t);
    test_exec(t->conn,
              "CREATE ROLE %s_worker LOGIN; GRANT USAGE ON SCHEMA %s TO %s_worker; "
              "GRANT SELECT ON ALL TABLES IN SCHEMA %s TO %s_worker; "
              "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s_worker",
              t->schema, t->schema, t->schema, t->schema, t->schema, t->schema, t->schema);
    char url[TEST_URL_BYTES];
    const char *user = strstr(test_server(), "user=");
    assert_non_null(user);
    (void)snprintf(url, sizeof url, "%.*suser=%s_worker", (int)(user - test_server()),
                   test_server(), t->schema);
    store_options options = test_options(t);
    options.path = weir__str(url);
    options.open_flags = WEIR_OPEN_EXISTING;
    weir_store *s = test_store_with(t, &options);
    assert_int_equal(operate_all(t, s, STORE_PAUSE, false), MANY);
    assert_int_equal(operate_all(t, s, STORE_RESET, false), 0);
    test_store_close(t, s);
    test_exec(t->conn, "DROP OWNED BY %s_worker; DROP ROLE %s_worker", t->schema, t->schema);
}

/* ---- locks -------------------------------------------------------------------------------- */

/* Reactions before targets: a reset that waits for a router holds no target. */
static void a_reset_that_waits_for_a_router_holds_no_target(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *router = test_connect(t);
    (void)give_reaction(t, s, "w", STORE_RULE_WORK);
    const int64_t event = test_put(t, s, "order-1", "Placed");
    give_mark(t, s, "w", "t", event, event);
    assert_int_equal(operate_all(t, s, STORE_SKIP, false), 1);
    test_exec(router, "BEGIN; SELECT 1 FROM %s.reactions FOR NO KEY UPDATE", t->schema);

    slow x = { .s = s, .op = { .verb = STORE_RESET } };
    beside thread;
    begin_beside(&thread, run_operate, &x);
    assert_true(somebody_waits(t));
    /* What a router does next: it would wait for the reset, and the reset for it. */
    test_exec(router, "SELECT 1 FROM %s.targets FOR NO KEY UPDATE NOWAIT", t->schema);
    test_exec(router, "COMMIT");
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_OK);
    assert_int_equal(x.op.changed, 1);
    assert_int_equal(look(t, "SELECT routed FROM %s.reactions"), 0);
    assert_int_equal(look(t, "SELECT reread_to FROM %s.reactions"), event);
    nothing_is_wrong(t, s);
}

/* What the choice was made on has changed when the row is there: it is made again. */
static void a_skip_chooses_again_when_its_target_has_moved(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    PGconn *settler = test_connect(t);
    const int64_t second = test_put(t, w.s, "order-1", "Paid");
    give_mark(t, w.s, "r", "t", second, second);
    weir_store *operator= test_store(t);
    slow x = { .s = operator, .op = { .verb = STORE_SKIP } };
    beside thread;
    test_exec(settler, "BEGIN; SELECT 1 FROM %s.targets FOR NO KEY UPDATE", t->schema);
    begin_beside(&thread, run_operate, &x);
    assert_true(somebody_waits(t)); /* it has chosen the first event */
    test_exec(settler,
              "SELECT * FROM %s.settle(%lld, %lld, 0, ARRAY[%lld], ARRAY[%lld], '{}', '{}', '{}', "
              "'{}', '{}', false, 0, 0, '', 0, 0, 0); COMMIT",
              t->schema, (long long)w.lease.target, (long long)w.lease.fence, (long long)w.reaction,
              (long long)w.event);
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_OK);
    assert_int_equal(x.op.changed, 1);
    assert_int_equal(look(t, "SELECT event FROM %s.parked"), second);
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), second);
    nothing_is_wrong(t, w.s);
}

/* Whether it is blocked is asked again with the row locked. */
static void a_target_that_is_no_longer_blocked_is_left_alone(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    PGconn *other = test_connect(t);
    const store_failure why = { .error = weir__str("x") };
    store_settle stuck = {
        .target = w.lease.target, .fence = w.lease.fence, .failure = why, .end = STORE_END_BLOCK
    };
    TEST_OK(t, w.s->work->settle(w.s, &stuck, &t->err));
    slow x = { .s = w.s, .op = { .verb = STORE_PAUSE, .filter = { .blocked = true } } };
    beside thread;
    test_exec(other, "BEGIN; UPDATE %s.targets SET blocked = NULL, held = false", t->schema);
    begin_beside(&thread, run_operate, &x);
    assert_true(somebody_waits(t));
    test_exec(other, "COMMIT");
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_OK);
    assert_int_equal(x.op.changed, 0);
    assert_int_equal(look(t, "SELECT paused::integer FROM %s.targets"), 0);
}

/* A lock that is never given back is an answer, before the client gives up on one. */
static void a_row_that_stays_locked_is_busy_and_not_unknown(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    PGconn *holder = test_connect(t);
    store_settle settle = { .target = w.lease.target, .fence = w.lease.fence };
    test_exec(holder, "BEGIN; SELECT 1 FROM %s.targets FOR UPDATE", t->schema);
    TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_EBUSY);
    test_exec(holder, "COMMIT");
    TEST_OK(t, w.s->work->settle(w.s, &settle, &t->err));
}

/* ---- plans -------------------------------------------------------------------------------- */

/* Pages that a call looks at, on this connection, whose plans stay what they are. */
static int64_t pages(PGconn *conn, const char *call)
{
    PGresult *result =
        test_query(conn, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) SELECT * FROM %s", call);
    int64_t sum = -1;
    for (int row = 0; row < PQntuples(result) && sum < 0; row++) {
        const char *buffers = strstr(PQgetvalue(result, row, 0), "Buffers: shared");
        const char *hit = buffers == NULL ? NULL : strstr(buffers, "hit=");
        const char *read = buffers == NULL ? NULL : strstr(buffers, "read=");
        if (buffers != NULL) {
            sum = (hit == NULL ? 0 : strtoll(hit + 4, NULL, 10)) +
                  (read == NULL ? 0 : strtoll(read + 5, NULL, 10));
        }
    }
    PQclear(result);
    assert_true(sum > 0);
    return sum;
}

enum { CALLS = 6, TARGETS = 30000 };

/* What a session has planned while the store was new serves it when it is full. */
static void plans_made_on_empty_tables_serve_a_full_store(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    int64_t few[CALLS];
    (void)give_reaction(t, s, "r", STORE_RULE_CONSTANT);
    (void)give_reaction(t, s, "w", STORE_RULE_WORK);
    (void)test_put(t, s, "a", "A"); /* position 1 can be settled */
    static const char *const calls[CALLS] = {
        ("settle(1, 1, 0, '{1,2}', '{1,1}', '{2}', '{1}', '{1}', '{x}', '{7}', true, 2, 1, '', 1, "
         "9, "
         "0)"),
        "fenced('{2,1,3}', '{1,1,1}', '{0,0,0}', 1000)",
        "operate(5, '{2,1,3}', false, NULL, 'me')",
        "operate_reset('{1,2}', false, 0)",
        "operate_skip('{2}', ARRAY['x'], '{1}', '{1}', '{1}')",
        "parked_drop((SELECT max(id) FROM parked))",
    };
    static const char fill[] =
        "INSERT INTO %s.targets (name, lane, fence, holder, lease_until, log) SELECT 't' || i, "
        "'l', 1, "
        "'me', 5, log() FROM generate_series(%d, %d) AS i; "
        "INSERT INTO %s.subscriptions (target, reaction, at, mark, priority, source, value) SELECT "
        "i, r, 0, 9, 0, '', '' FROM generate_series(%d, %d) AS i, generate_series(1, 2) AS r; "
        "INSERT INTO %s.work SELECT i, 2, e FROM generate_series(%d, %d) AS i, generate_series(1, "
        "5) AS e; "
        "INSERT INTO %s.parked (reaction, target, event, attempts, parked, error) SELECT 2, i, 9, "
        "1, 1, '' FROM generate_series(%d, %d) AS i";
    static const char *const tables[] = { "targets", "subscriptions", "work", "parked" };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        test_exec(t->conn, "ALTER TABLE %s.%s SET (autovacuum_enabled = off)", t->schema,
                  tables[i]);
    }
    test_exec(t->conn, "VACUUM ANALYZE");
    test_exec(t->conn, "SET search_path = %s", t->schema);
    test_exec(t->conn, fill, t->schema, 1, 3, t->schema, 1, 3, t->schema, 1, 3, t->schema, 1, 3);
    for (size_t i = 0; i < CALLS; i++) {
        few[i] = pages(t->conn, calls[i]);
    }
    test_exec(t->conn, fill, t->schema, 4, TARGETS, t->schema, 4, TARGETS, t->schema, 4, TARGETS,
              t->schema, 4, TARGETS);
    test_exec(t->conn, "UPDATE %s.targets SET fence = 1, holder = 'me', paused = false", t->schema);
    for (size_t i = 0; i < CALLS; i++) {
        const int64_t many = pages(t->conn, calls[i]);
        if (many > 3 * few[i] + 200) {
            fail_msg("%s looked at %lld pages, with few targets at %lld", calls[i], (long long)many,
                     (long long)few[i]);
        }
    }
}

/* ---- resetting to a time ------------------------------------------------------------------ */

/* Appends that run side by side may get positions and times in opposite orders: nothing that was
 * created later than the time may be left out. */
static void a_reset_to_a_time_leaves_no_later_event_out(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "INSERT INTO %s.events SELECT i, 's', i - 1, 'A', '{}', '{}', "
              "'2020-01-01Z'::timestamptz + CASE i WHEN 50 THEN 170 WHEN 120 THEN 30 ELSE i END "
              "* interval '1 second' FROM generate_series(1, 200) AS i",
              t->schema);
    const int64_t start = INT64_C(1577836800) * SECOND;
    static const struct {
        int64_t second, position;
    } cases[] = {
        { 0, 0 },    { 1, 0 },     { 2, 1 },     { 40, 39 },   { 100, 49 },
        { 170, 49 }, { 171, 170 }, { 200, 199 }, { 201, 200 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(test_number(t->conn, "SELECT %s.position_of_time(%lld)", t->schema,
                                     (long long)(start + cases[i].second * SECOND)),
                         cases[i].position);
    }
    (void)s;
}

/* ---- check -------------------------------------------------------------------------------- */

static void check_finds_what_is_wrong(void **state)
{
    pg_test *t = *state;
    static const struct {
        const char *rule, *sql; /* %s: the schema, once */
    } faults[] = {
        { "positions", "SELECT setval('%s.positions', 1)" },
        { "positions", "UPDATE %s.safe SET position = 1000000" },
        { "streams", "UPDATE %s.events SET name = '$closed' WHERE stream = 'a' AND version = 1" },
        { "streams", "INSERT INTO %s.truncated VALUES ('a', 3)" },
        { "streams", "INSERT INTO %s.truncated VALUES ('b', 0)" },
        { "versions", "INSERT INTO %s.truncated VALUES ('a', 1)" },
        { "versions", "UPDATE %s.events SET version = 7 WHERE stream = 'a' AND version = 2" },
        { "versions", "DELETE FROM %s.events WHERE stream = 'a' AND version = 1" },
        { "versions", "DELETE FROM %s.events WHERE stream = 'a' AND version = 0" },
        { "order", "UPDATE %s.events SET id = 500 WHERE stream = 'a' AND version = 0" },
        { "keys", "INSERT INTO %s.keys VALUES ('k', 0, 'short', '')" },
        { "target-derived", "UPDATE %s.targets SET behind = NOT behind" },
        { "target-derived", "UPDATE %s.targets SET watermark = 7" },
        { "target-derived", "UPDATE %s.targets SET priority = 7" },
        { "target-derived", "UPDATE %s.subscriptions SET at = 0" },
        { "target-rank", "UPDATE %s.targets SET rank = 7" },
        { "target-held", "UPDATE %s.targets SET held = NOT held" },
        { "target-held", "UPDATE %s.targets SET blocked = 1" },
        { "target-lease", "UPDATE %s.targets SET holder = 'x'" },
        { "target-lane", "UPDATE %s.targets SET lane = 'x'" },
        { "subscription-position", "UPDATE %s.subscriptions SET mark = at - 1" },
        { "subscription", "UPDATE %s.subscriptions SET target = 77" },
        { "subscription", "UPDATE %s.subscriptions SET reaction = 77" },
        { "work", "INSERT INTO %s.work VALUES (1, 1, 1)" },
        { "work", "INSERT INTO %s.work VALUES (1, 77, 1)" },
        { "parked", "UPDATE %s.parked SET reaction = 77" },
        { "parked", "UPDATE %s.parked SET event = 77" },
        { "parked", "UPDATE %s.parked SET target = 77" },
        { "reaction-definition", "UPDATE %s.reactions SET number = 7" },
        { "reaction-routing", "UPDATE %s.reactions SET since = 1000" },
        { "reaction-routing", "UPDATE %s.subscriptions SET was_reset = true" },
    };
    weir_store *s = test_store(t);
    (void)give_reaction(t, s, "r", STORE_RULE_CONSTANT);
    for (int i = 0; i < 3; i++) {
        (void)test_put(t, s, "a", "A");
    }
    give_mark(t, s, "r", "t", 1, 3);
    assert_int_equal(operate_all(t, s, STORE_SKIP, false), 1);
    nothing_is_wrong(t, s);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char sql[512], text[512];
        const char *at = strstr(faults[i].sql, "%s");
        (void)snprintf(sql, sizeof sql, "%.*s%s%s", (int)(at - faults[i].sql), faults[i].sql,
                       t->schema, at + 2);
        /* The store is asked by its own connections, so what is wrong has to be committed. */
        test_exec(t->conn,
                  "CREATE SCHEMA %s_kept; CREATE TABLE %s_kept.sequence AS SELECT last_value FROM "
                  "%s.positions",
                  t->schema, t->schema, t->schema);
        static const char *const tables[] = { "events",  "truncated",     "keys",
                                              "targets", "subscriptions", "work",
                                              "parked",  "reactions",     "safe" };
        for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++) {
            test_exec(t->conn, "CREATE TABLE %s_kept.%s AS SELECT * FROM %s.%s", t->schema,
                      tables[k], t->schema, tables[k]);
        }
        test_exec(t->conn, "ALTER TABLE %s.events DISABLE TRIGGER USER", t->schema);
        test_exec(t->conn, "%s", sql);
        if (findings(t, s, faults[i].rule, text) == 0) {
            fail_msg("\"%s\" was not found after: %s", faults[i].rule, sql);
        }
        for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++) {
            test_exec(t->conn,
                      "DELETE FROM %s.%s; INSERT INTO %s.%s OVERRIDING SYSTEM VALUE SELECT * FROM "
                      "%s_kept.%s",
                      t->schema, tables[k], t->schema, tables[k], t->schema, tables[k]);
        }
        test_exec(t->conn,
                  "SELECT setval('%s.positions', (SELECT last_value FROM %s_kept.sequence)); "
                  "ALTER TABLE %s.events ENABLE ALWAYS TRIGGER events_no_change, "
                  "ENABLE ALWAYS TRIGGER events_no_truncate; SET client_min_messages = warning; "
                  "DROP SCHEMA %s_kept CASCADE",
                  t->schema, t->schema, t->schema, t->schema);
    }
    nothing_is_wrong(t, s);
}

/* Slices end where the next ones begin: a fault in each of them is found. */
static void check_looks_at_every_slice(void **state)
{
    pg_test *t = *state;
    weir_store *s = give_many(t);
    test_exec(t->conn,
              "UPDATE %s.targets SET held = true WHERE name IN ('first', 't%d'); "
              "INSERT INTO %s.keys SELECT 'k' || i, 0, CASE WHEN i IN (1, 99999) THEN 'short' ELSE "
              "sha256('')::bytea END, '' FROM generate_series(1, 99999, 14) AS i",
              t->schema, MANY, t->schema);
    test_exec(t->conn,
              "UPDATE %s.keys SET fingerprint = 'short' WHERE key = (SELECT max(key) FROM %s.keys)",
              t->schema, t->schema);
    assert_int_equal(findings(t, s, "target-held", NULL), 2);
    assert_int_equal(findings(t, s, "keys", NULL), 2);
}

static void stats_count_and_name(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    store_stats stats = { 0 };
    TEST_OK(t, w.s->about->stats(w.s, &stats, &t->err));
    assert_int_equal(stats.streams, 1);
    assert_int_equal(stats.targets, 1);
    assert_int_equal(stats.blocked, 0);
    assert_int_equal(stats.parked, 0);
    assert_true(stats.transactions >= 1);
    assert_int_equal(strncmp(stats.library, "PostgreSQL 1", 12), 0);
    assert_non_null(strstr(stats.library, "(libpq 1"));
    /* The tests' server does not flush, and says so. */
    assert_string_equal(stats.durability,
                        strcmp(test_text(t->conn, "SHOW fsync"), "off") == 0 ? "none" : "full");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(mass_verbs_work_in_chunks_and_end_with_a_vacuum),
        PG_TEST(patterns_mean_here_what_they_mean_everywhere),
        PG_TEST(a_role_that_may_not_vacuum_can_still_pause_all),
        PG_TEST(a_reset_that_waits_for_a_router_holds_no_target),
        PG_TEST(a_skip_chooses_again_when_its_target_has_moved),
        PG_TEST(a_target_that_is_no_longer_blocked_is_left_alone),
        PG_TEST(a_row_that_stays_locked_is_busy_and_not_unknown),
        PG_TEST(plans_made_on_empty_tables_serve_a_full_store),
        PG_TEST(a_reset_to_a_time_leaves_no_later_event_out),
        PG_TEST(check_finds_what_is_wrong),
        PG_TEST(check_looks_at_every_slice),
        PG_TEST(stats_count_and_name),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
