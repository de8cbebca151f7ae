/* claiming.c - C36 with one claimer at a time: how many rows, which ones, in what order, as what.
 * Many at a time are in many_test.c.
 */
#include "kit.h"

#include <stdlib.h>

#define JOBS(k) kit_rows(k, "SELECT id, status FROM jobs ORDER BY id")

static claim_order ascending(const char *column)
{
    return (claim_order){ .column = weir__str(column) };
}

static claim_order descending(const char *column)
{
    return (claim_order){ .column = weir__str(column), .descending = true };
}

static claim_param text_param(const char *name, const char *value)
{
    return (claim_param){ .name = weir__str(name),
                          .value = { .kind = TABLE_TEXT, .text = weir__str(value) } };
}

static void C36_as_many_as_asked_for_as_they_are_after_the_claim(void **state)
{
    kit *k = *state;
    kit_jobs(k, 5);
    claim_request r = kit_request(k, 3);
    r.by = weir__str("worker-7");
    r.attempts_column = weir__str("attempts");
    assert_string_equal(kit_claim(k, &r), "1 2 3");
    assert_string_equal(claimer_column(k->one, "status"), "claimed claimed claimed");
    assert_string_equal(claimer_column(k->one, "claimed_by"), "worker-7 worker-7 worker-7");
    assert_string_equal(claimer_column(k->one, "attempts"), "1 1 1");
    assert_string_equal(claimer_column(k->one, "locked_until"), "- - -");
    /* All columns, in the table's order. */
    assert_int_equal(k->one->r.columns_count, 9);
    assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by, attempts, claimed_at IS NULL "
                                    "AS n FROM jobs WHERE status <> 'claimed' ORDER BY id"),
                        k->kind == KIT_POSTGRES ? "4 pending - 0 t,5 pending - 0 t"
                                                : "4 pending - 0 1,5 pending - 0 1");
    assert_string_equal(kit_rows(k, "SELECT id, claimed_by, attempts FROM jobs WHERE status = "
                                    "'claimed' AND claimed_at IS NOT NULL ORDER BY id"),
                        "1 worker-7 1,2 worker-7 1,3 worker-7 1");
}

static void C36_zero_or_less_claims_nothing(void **state)
{
    kit *k = *state;
    const int64_t limits[] = { 0, -1, INT64_MIN };
    kit_jobs(k, 2);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const claim_request r = kit_lease(k, limits[i], "A", KIT_SECOND);
        assert_string_equal(kit_claim(k, &r), "");
        assert_int_equal(k->one->r.rows_count, 0);
    }
    assert_string_equal(kit_rows(k, "SELECT id, status, fence, attempts, locked_until FROM jobs "
                                    "ORDER BY id"),
                        "1 pending 0 0 -,2 pending 0 0 -");
    const claim_request one = kit_request(k, 1);
    assert_string_equal(kit_claim(k, &one), "1");
}

static void C36_what_is_taken_is_not_given_again(void **state)
{
    kit *k = *state;
    kit_jobs(k, 5);
    const claim_request r = kit_request(k, 2);
    assert_string_equal(kit_claim(k, &r), "1 2");
    assert_string_equal(kit_claim(k, &r), "3 4");
    assert_string_equal(kit_claim(k, &r), "5");
    assert_string_equal(kit_claim(k, &r), "");
    assert_string_equal(kit_claim(k, &r), "");
}

/* A claim that leaves its rows as ready as they were: only one at a time can work like that, but
 * within a claim no row comes twice. */
static void C36_a_row_that_stays_ready_is_given_once_by_a_claim(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    claim_request r = kit_request(k, 7);
    r.where = weir__str("id < 3 AND status <> 'done'");
    r.attempts_column = weir__str("attempts");
    assert_string_equal(kit_claim(k, &r), "1 2");
    r.mode = CLAIM_WAIT;
    r.wait_us = -1;
    assert_string_equal(kit_claim(k, &r), "1 2");
    r.mode = CLAIM_NOWAIT;
    assert_string_equal(kit_claim(k, &r), "1 2");
    assert_string_equal(kit_rows(k, "SELECT id, attempts FROM jobs ORDER BY id"), "1 3,2 3,3 0");
}

/* One that says nothing of what the claim writes would give everybody the same rows. */
static void C36_a_condition_that_no_claim_could_change_is_refused(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    claim_request r = kit_request(k, 1);
    r.where = weir__str("id > 0");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "--where");
    r.where = (weir_str){ 0 };
    r.by = weir__str("A");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by FROM jobs ORDER BY id"),
                        "1 pending -,2 pending -");
    r.lease_us = KIT_HOUR; /* tells them apart */
    assert_string_equal(kit_claim(k, &r), "1");
    assert_string_equal(kit_claim(k, &r), "2");
    assert_string_equal(kit_claim(k, &r), "");
}

static void C36_what_does_not_match_is_left_alone(void **state)
{
    kit *k = *state;
    kit_jobs(k, 6);
    kit_exec(k, "UPDATE jobs SET status = 'done', kind = 'old' WHERE id IN (1, 4); "
                "UPDATE jobs SET status = 'claimed', claimed_by = 'B' WHERE id = 2");
    claim_request r = kit_request(k, 10);
    r.by = weir__str("A");
    assert_string_equal(kit_claim(k, &r), "3 5 6");
    assert_string_equal(kit_rows(k, "SELECT id, status, kind, claimed_by, attempts FROM jobs "
                                    "WHERE id IN (1, 2, 4) ORDER BY id"),
                        "1 done old - 0,2 claimed - B 0,4 done old - 0");
    /* A condition with an OR in it is one condition. */
    kit_exec(k, "UPDATE jobs SET status = 'claimed', kind = NULL");
    r.where = weir__str("status = 'pending' OR id = 4");
    r.exclude = &(table_value){ .kind = TABLE_INTEGER, .number = 4 };
    r.exclude_count = 1;
    assert_string_equal(kit_claim(k, &r), "");
}

/* What plain SQL says to the same order, for whoever is in doubt about NULL. */
static void expect_order(kit *k, const claim_order *order, size_t count, const char *sql)
{
    char expected[512];
    kit_exec(k, "UPDATE jobs SET status = 'pending'");
    snprintf(expected, sizeof expected, "%s",
             kit_rows(k, "SELECT id FROM jobs ORDER BY %s LIMIT 7", sql));
    for (char *c = expected; *c != '\0'; c++) {
        *c = *c == ',' ? ' ' : *c;
    }
    claim_request r = kit_request(k, 7);
    r.order = order;
    r.order_count = count;
    assert_string_equal(kit_claim(k, &r), expected);
}

static void C36_rows_come_in_the_order_asked_for(void **state)
{
    kit *k = *state;
    kit_jobs(k, 20);
    kit_exec(k, "UPDATE jobs SET priority = (id * 7) %% 5, kind = CASE WHEN id %% 4 = 0 THEN NULL "
                "WHEN id %% 3 = 0 THEN 'b' ELSE 'a' END");
    const claim_order both[] = { descending("priority"), ascending("kind") };
    const claim_order other[] = { ascending("kind"), descending("priority"), descending("id") };
    expect_order(k, NULL, 0, "id");
    expect_order(k, both, 1, "priority DESC, id");
    expect_order(k, both, 2, "priority DESC, kind, id");
    expect_order(k, other, 1, "kind, id");
    expect_order(k, other, 3, "kind, priority DESC, id DESC");
    expect_order(k, other + 2, 1, "id DESC");
}

static void C36_the_first_in_that_order_are_the_ones_taken(void **state)
{
    kit *k = *state;
    kit_jobs(k, 6);
    kit_exec(k, "UPDATE jobs SET priority = id - 1");
    const claim_order order = descending("priority");
    claim_request r = kit_request(k, 3);
    r.order = &order;
    r.order_count = 1;
    assert_string_equal(kit_claim(k, &r), "6 5 4");
    assert_string_equal(claimer_column(k->one, "priority"), "5 4 3");
}

static void C36_the_order_is_that_of_the_rows_as_they_were(void **state)
{
    kit *k = *state;
    kit_jobs(k, 4);
    kit_exec(k, "UPDATE jobs SET priority = id");
    const claim_order order = descending("priority");
    const claim_set_sql negated = { .column = weir__str("priority"),
                                    .sql = weir__str("priority * -1") };
    claim_request r = kit_request(k, 3);
    r.order = &order;
    r.order_count = 1;
    r.writes.set_sql = &negated;
    r.writes.set_sql_count = 1;
    assert_string_equal(kit_claim(k, &r), "4 3 2");
    assert_string_equal(claimer_column(k->one, "priority"), "-4 -3 -2");
}

static void C36_equals_are_taken_in_the_order_of_their_keys(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (a integer, b text, status text, PRIMARY KEY (b, a))");
    kit_exec(k, "INSERT INTO jobs VALUES (2, 'x', 'pending'), (1, 'y', 'pending'), "
                "(1, 'x', 'pending'), (3, 'w', 'pending')");
    const claim_order order = ascending("status");
    claim_request r = kit_request(k, 1);
    r.order = &order;
    r.order_count = 1;
    const char *expected[] = { "3", "1", "2", "1" };
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(kit_claim(k, &r), expected[i]);
        assert_string_equal(claimer_column(k->one, "b"), i == 0 ? "w" : i == 3 ? "y" : "x");
    }
}

static void C36_an_error_claims_nothing(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id integer PRIMARY KEY, status text DEFAULT 'pending', "
                "CHECK (NOT (id = 4 AND status = 'claimed')))");
    kit_exec(k, "INSERT INTO jobs (id) VALUES (1), (2), (3), (4), (5), (6)");
    const claim_request r = kit_request(k, 5);
    KIT_IS(k->one, kit_try(k, &r), WEIR_EIO);
    assert_int_equal(k->one->r.rows_count, 0);
    assert_string_equal(kit_rows(k, "SELECT count(*) FROM jobs WHERE status <> 'pending'"), "0");
    /* The session is as good as before, and nothing is locked. */
    assert_false(weir__table_in_transaction(k->one->s));
    const claim_request three = kit_request(k, 3);
    assert_string_equal(kit_claim(k, &three), "1 2 3");
    kit_exec(k, "UPDATE jobs SET status = 'pending'");
}

/* An expression that fails on one row, not before. */
static void C36_an_expression_that_fails_claims_nothing(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    kit_exec(k, "UPDATE jobs SET kind = CASE id WHEN 3 THEN 'no' ELSE '1' END");
    const claim_set_sql expression = {
        .column = weir__str("priority"),
        .sql = k->kind == KIT_POSTGRES
                   ? weir__str("kind::integer")
                   : weir__str("CASE kind WHEN 'no' THEN abs(-9223372036854775807 - 1) ELSE 1 END"),
    };
    claim_request r = kit_request(k, 3);
    r.writes.set_sql = &expression;
    r.writes.set_sql_count = 1;
    const weir_status status = kit_try(k, &r);
    assert_true(status == WEIR_EINVAL || status == WEIR_EIO);
    assert_string_equal(JOBS(k), "1 pending,2 pending,3 pending");
}

static void C36_a_batch_is_full_while_rows_are_free(void **state)
{
    kit *k = *state;
    kit_jobs(k, 8);
    PGconn *other = kit_connect(k);
    kit_pg(other, "SET idle_in_transaction_session_timeout = '10min'; BEGIN; "
                  "SELECT 1 FROM jobs WHERE id IN (1, 2, 5) FOR UPDATE");
    const claim_request three = kit_request(k, 3);
    assert_string_equal(kit_claim(k, &three), "3 4 6");
    const claim_request ten = kit_request(k, 10);
    assert_string_equal(kit_claim(k, &ten), "7 8");
    kit_pg(other, "ROLLBACK");
    assert_string_equal(kit_claim(k, &ten), "1 2 5");
}

static void C36_rows_that_are_not_wanted_are_left_out(void **state)
{
    kit *k = *state;
    const table_value unwanted[] = {
        { .kind = TABLE_INTEGER, .number = 1 },
        { .kind = TABLE_TEXT, .text = weir__str("3") },
        { .kind = TABLE_INTEGER, .number = 99 },
    };
    kit_jobs(k, 5);
    claim_request r = kit_request(k, 2);
    r.exclude = unwanted;
    r.exclude_count = 3;
    assert_string_equal(kit_claim(k, &r), "2 4");
    assert_string_equal(kit_claim(k, &r), "5");
}

static void C36_expired_claims_come_first_and_in_order(void **state)
{
    kit *k = *state;
    kit_jobs(k, 6);
    kit_exec_each(k,
                  "UPDATE jobs SET status = 'claimed', claimed_by = 'dead', fence = 7, "
                  "attempts = 2, locked_until = now() - interval '1 hour' WHERE id IN (4, 6); "
                  "UPDATE jobs SET status = 'claimed', locked_until = now() + interval '1 hour' "
                  "WHERE id = 2",
                  "UPDATE jobs SET status = 'claimed', claimed_by = 'dead', fence = 7, "
                  "attempts = 2, locked_until = 1000000 WHERE id IN (4, 6); "
                  "UPDATE jobs SET status = 'claimed', locked_until = 9000000000000000 "
                  "WHERE id = 2");
    const claim_request r = kit_lease(k, 3, "A", KIT_HOUR);
    assert_string_equal(kit_claim(k, &r), "1 4 6");
    assert_string_equal(claimer_column(k->one, "claimed_by"), "A A A");
    assert_string_equal(claimer_column(k->one, "fence"), "1 8 8");
    assert_string_equal(claimer_column(k->one, "attempts"), "1 3 3");
    assert_string_equal(kit_claim(k, &r), "3 5");
    assert_string_equal(kit_claim(k, &r), "");
}

static void C36_parameters_of_a_condition(void **state)
{
    kit *k = *state;
    kit_jobs(k, 4);
    kit_exec(k, "UPDATE jobs SET kind = CASE id %% 2 WHEN 0 THEN 'it''s' ELSE ':kind' END");
    const claim_param params[] = { text_param("kind", "it's"), text_param("state", "pending") };
    claim_request r = kit_request(k, 10);
    r.where = weir__str("kind = :kind AND ':kind' <> kind AND status = :state /* :none */");
    r.writes.params = params;
    r.writes.params_count = 2;
    assert_string_equal(kit_claim(k, &r), "2 4");
    r.writes.params_count = 1;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "state");
    r.where = weir__str("kind = :kind AND status = 'pending'");
    r.writes.params_count = 2;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "state");
    r.where = weir__str("kind = ");
    r.writes.params_count = 0;
    assert_int_not_equal(kit_try(k, &r), WEIR_OK);
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id"),
                        "2,4");
}

static void C36_the_limit_ends_at_ten_thousand(void **state)
{
    kit *k = *state;
    kit_jobs(k, CLAIM_LIMIT_MAX + 1);
    claim_request r = kit_request(k, CLAIM_LIMIT_MAX + 1);
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status <> 'pending'"), 0);
    r.limit = CLAIM_LIMIT_MAX;
    KIT_OK(k->one, kit_try(k, &r));
    assert_int_equal(k->one->r.rows_count, CLAIM_LIMIT_MAX);
    for (size_t i = 0; i < CLAIM_LIMIT_MAX; i++) {
        assert_int_equal(claimer_number(k->one, i, "id"), i + 1);
    }
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'pending'"), "10001");
}

static void C36_a_preview_shows_and_takes_nothing(void **state)
{
    kit *k = *state;
    kit_jobs(k, 4);
    kit_exec(k, "UPDATE jobs SET priority = id");
    const claim_order order = descending("priority");
    claim_request r = kit_lease(k, 2, "A", KIT_HOUR);
    r.order = &order;
    r.order_count = 1;
    KIT_OK(k->one, weir__claim_preview(k->one->s, &r, &k->one->r, &k->one->err));
    assert_string_equal(claimer_column(k->one, NULL), "4 3");
    assert_string_equal(claimer_column(k->one, "status"), "pending pending");
    assert_string_equal(JOBS(k), "1 pending,2 pending,3 pending,4 pending");
    assert_string_equal(kit_claim(k, &r), "4 3");
    KIT_OK(k->one, weir__claim_preview(k->one->s, &r, &k->one->r, &k->one->err));
    assert_string_equal(claimer_column(k->one, NULL), "2 1");
}

/* ---- under any plan -------------------------------------------------------------------------- */

/* A table that had one row when it was looked at, and has 41. */
static void stale(kit *k)
{
    kit_exec(k, "CREATE TABLE jobs (id text PRIMARY KEY, status text, priority integer) "
                "WITH (autovacuum_enabled = off)");
    kit_exec(k, "INSERT INTO jobs VALUES ('000', 'pending', 0)");
    kit_exec(k, "ANALYZE jobs");
    kit_exec(k, "INSERT INTO jobs SELECT lpad(i::text, 3, '0'), 'pending', 0 "
                "FROM generate_series(1, 40) AS i");
}

/* The control: the statement that everybody writes takes more than its LIMIT here. */
static void T1_the_usual_statement_takes_more_than_its_limit(void **state)
{
    kit *k = *state;
    stale(k);
    const int64_t taken =
        kit_number(k, "WITH taken AS (UPDATE jobs SET status = 'claimed' WHERE id IN (SELECT id "
                      "FROM jobs WHERE status IN ('pending', 'failed') ORDER BY priority DESC "
                      "LIMIT 5 FOR UPDATE SKIP LOCKED) RETURNING id) SELECT count(*) FROM taken");
    assert_int_equal(taken, 41);
}

static void C36_T1_never_more_than_asked_for_under_any_plan(void **state)
{
    kit *k = *state;
    static const char *const plans[] = {
        "SET enable_seqscan = on", /* as it comes */
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; "
        "SET enable_memoize = off",
        "SET enable_nestloop = off; SET enable_mergejoin = off",
        "SET enable_nestloop = off; SET enable_hashjoin = off",
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off",
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; "
        "SET enable_memoize = off; SET enable_indexscan = off; SET enable_bitmapscan = off",
    };
    stale(k);
    const claim_order order = descending("priority");
    claim_request r = kit_request(k, 5);
    r.where = weir__str("status IN ('pending', 'failed')");
    r.order = &order;
    r.order_count = 1;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        claimer *c = kit_claimer(k);
        kit_pg(weir__table_native(c->s), plans[i]);
        assert_string_equal(kit_claim_by(c, &r), "000 001 002 003 004");
        assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id"),
                            "000,001,002,003,004");
        kit_exec(k, "UPDATE jobs SET status = 'pending'");
        kit_claimer_close(k, c);
    }
}

/* ---- what it costs --------------------------------------------------------------------------- */

static int statements;

static int count_statement(unsigned event, void *ctx, void *p, void *x)
{
    (void)event;
    (void)ctx;
    (void)p;
    /* Not a trigger's, and not about what the table looks like. */
    statements += strncmp(x, "--", 2) != 0 && strstr(x, "pragma_") == NULL &&
                  strstr(x, "schema_version") == NULL;
    return 0;
}

static void C36_a_hundred_rows_are_one_statement(void **state)
{
    kit *k = *state;
    kit_jobs(k, 300);
    const claim_request r = kit_lease(k, 100, "A", KIT_HOUR);
    KIT_OK(k->one, kit_try(k, &r)); /* and what the table looks like is asked once */
    if (k->kind != KIT_POSTGRES) {
        sqlite3 *db = weir__table_native(k->one->s);
        statements = 0;
        assert_int_equal(sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_statement, NULL), SQLITE_OK);
        KIT_OK(k->one, kit_try(k, &r));
        assert_int_equal(sqlite3_trace_v2(db, 0, NULL, NULL), SQLITE_OK);
        assert_int_equal(statements, 4); /* BEGIN, SELECT for the order, UPDATE, COMMIT */
    } else {
        kit_exec(k, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
        kit_exec(k, "SELECT pg_stat_statements_reset()");
        KIT_OK(k->one, kit_try(k, &r));
        assert_string_equal(kit_rows(k, "SELECT sum(calls), max(rows) FROM pg_stat_statements "
                                        "WHERE toplevel AND query NOT LIKE "
                                        "'%%pg_stat_statements%%'"),
                            "1 100");
    }
    assert_int_equal(k->one->r.rows_count, 100);
}

static void C36_more_kinds_of_claims_than_are_kept_prepared(void **state)
{
    enum { KINDS = 24, ROUNDS = 3 };
    kit *k = *state;
    kit_jobs(k, KINDS * ROUNDS);
    kit_exec(k, "UPDATE jobs SET priority = id %% %d", KINDS);
    for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < KINDS; kind++) {
            char where[64];
            char wanted[16];
            snprintf(where, sizeof where, "status = 'pending' AND priority = %d", kind);
            snprintf(wanted, sizeof wanted, "%d", round * KINDS + (kind == 0 ? KINDS : kind));
            claim_request r = kit_request(k, 1);
            r.where = weir__str(where);
            assert_string_equal(kit_claim(k, &r), wanted);
        }
    }
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'pending'"), 0);
}

static void C36_batches_of_every_size_are_full_and_in_order(void **state)
{
    enum { LARGEST = 40 };
    kit *k = *state;
    char wanted[512];
    kit_jobs(k, LARGEST * (LARGEST + 1) / 2);
    kit_exec(k, "UPDATE jobs SET priority = -id");
    const claim_order order = descending("priority");
    int next = 1;
    for (int size = 1; size <= LARGEST; size++) {
        size_t len = 0;
        for (int i = 0; i < size; i++) {
            len += (size_t)snprintf(wanted + len, sizeof wanted - len, "%s%d", i == 0 ? "" : " ",
                                    next++);
        }
        claim_request r = kit_lease(k, size, "A", KIT_HOUR);
        r.order = &order;
        r.order_count = 1;
        assert_string_equal(kit_claim(k, &r), wanted);
    }
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'pending'"), 0);
}

const kit_case kit_claiming[] = {
    KIT_TEST(C36_as_many_as_asked_for_as_they_are_after_the_claim, ON_ALL),
    KIT_TEST(C36_zero_or_less_claims_nothing, ON_ALL),
    KIT_TEST(C36_what_is_taken_is_not_given_again, ON_ALL),
    KIT_TEST(C36_a_row_that_stays_ready_is_given_once_by_a_claim, ON_ALL),
    KIT_TEST(C36_a_condition_that_no_claim_could_change_is_refused, ON_ALL),
    KIT_TEST(C36_what_does_not_match_is_left_alone, ON_ALL),
    KIT_TEST(C36_rows_come_in_the_order_asked_for, ON_ALL),
    KIT_TEST(C36_the_first_in_that_order_are_the_ones_taken, ON_ALL),
    KIT_TEST(C36_the_order_is_that_of_the_rows_as_they_were, ON_ALL),
    KIT_TEST(C36_equals_are_taken_in_the_order_of_their_keys, ON_ALL),
    KIT_TEST(C36_an_error_claims_nothing, ON_ALL),
    KIT_TEST(C36_an_expression_that_fails_claims_nothing, ON_ALL),
    KIT_TEST(C36_a_batch_is_full_while_rows_are_free, ON_POSTGRES),
    KIT_TEST(C36_rows_that_are_not_wanted_are_left_out, ON_ALL),
    KIT_TEST(C36_expired_claims_come_first_and_in_order, ON_ALL),
    KIT_TEST(C36_parameters_of_a_condition, ON_ALL),
    KIT_TEST(C36_the_limit_ends_at_ten_thousand, ON_ALL | ONLY_FAST),
    KIT_TEST(C36_a_preview_shows_and_takes_nothing, ON_ALL),
    KIT_TEST(T1_the_usual_statement_takes_more_than_its_limit, ON_POSTGRES),
    KIT_TEST(C36_T1_never_more_than_asked_for_under_any_plan, ON_POSTGRES),
    KIT_TEST(C36_a_hundred_rows_are_one_statement, ON_ALL | ONLY_FAST),
    KIT_TEST(C36_more_kinds_of_claims_than_are_kept_prepared, ON_ALL),
    KIT_TEST(C36_batches_of_every_size_are_full_and_in_order, ON_ALL),
};
const size_t kit_claiming_count = sizeof kit_claiming / sizeof kit_claiming[0];
