/* claim_batch_test.c - claims and their ends in numbers, on PostgreSQL: many rows finished by one
 * statement, and a claim that comes again planned as well as the first.
 */
#include "pg_support.h"

#include "claim/claim.h"

#include <stdio.h>
#include <stdlib.h>

#define STR(t) ((weir_str){ .ptr = (t), .len = sizeof(t) - 1 })
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = TABLE_TEXT, .text = {.ptr = (t), .len = sizeof(t) - 1 }                            \
    }
#define NUMBER(n)                                                                                  \
    {                                                                                              \
        .kind = TABLE_INTEGER, .number = (n)                                                       \
    }

typedef struct place {
    pg_test *t;
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
} place;

static void run(place *p, const char *sql)
{
    if (weir__table_run(p->s, &(table_statement){ .sql = sql }, &p->r, &p->err) != WEIR_OK) {
        fail_msg("%s: %s", sql, p->err.message);
    }
}

static place place_open(pg_test *t)
{
    place p = { .t = t };
    char sql[128];
    if (weir__table_open(&p.db, &(table_options){ .url = test_server() }, &p.err) != WEIR_OK ||
        weir__table_session_open(p.db, &p.s, &p.err) != WEIR_OK) {
        fail_msg("no session: %s", p.err.message);
    }
    test_exec(t->conn, "SET client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS %s",
              t->schema);
    test_exec(t->conn, "SET search_path = %s", t->schema);
    (void)snprintf(sql, sizeof sql, "SET search_path = %s", t->schema);
    run(&p, sql);
    return p;
}

static void place_close(place *p)
{
    weir__table_session_close(p->s);
    weir__table_close(p->db);
    weir__table_result_free(&p->r);
}

/* tenant and id are the key. Held by w1: 1 for an hour, 2 until a moment ago, 3 without a lease and
 * with another fence; 4 is w2's. */
#define JOBS                                                                                       \
    "CREATE TABLE jobs (id integer, tenant text, status text NOT NULL DEFAULT 'claimed',"          \
    " claimed_by text, claimed_at timestamptz, locked_until timestamptz, fence bigint,"            \
    " PRIMARY KEY (tenant, id));"                                                                  \
    "INSERT INTO jobs (id, tenant, claimed_by, locked_until, fence) VALUES"                        \
    " (1, 'it''s', 'w1', now() + interval '1 h', 7), (2, 'it''s', 'w1', now(), 7),"                \
    " (3, 'it''s', 'w1', NULL, 8), (4, 'it''s', 'w2', NULL, 7)"

static const claim_set done = { .column = { .ptr = "status", .len = 6 }, .value = TEXT("done") };

static const table_value keys[] = {
    TEXT("it's"), NUMBER(4), TEXT("it's"),   NUMBER(3), TEXT("it's"), NUMBER(2),
    TEXT("it's"), NUMBER(1), TEXT("nobody"), NUMBER(1), TEXT("it's"), NUMBER(1),
};

static finish_request finish(void)
{
    return (finish_request){ .table = STR("jobs"),
                             .key_count = 2,
                             .kind = FINISH_DONE,
                             .by = STR("w1"),
                             .writes.set = &done,
                             .writes.set_count = 1 };
}

static void finishes(place *p, const finish_request *r, const finish_batch *batch,
                     const char *expected)
{
    bool finished[8];
    char got[9] = "";
    if (weir__claim_finish_batch(p->s, r, batch, finished, &p->err) != WEIR_OK) {
        fail_msg("%s", p->err.message);
    }
    for (size_t i = 0; i < batch->count; i++) {
        got[i] = finished[i] ? 'x' : '.';
    }
    assert_string_equal(got, expected);
}

static void C38_of_many_only_what_is_still_yours_is_finished(void **state)
{
    pg_test *t = *state;
    place p = place_open(t);
    test_exec(t->conn, JOBS);
    const finish_request r = finish();
    finishes(&p, &r, &(finish_batch){ .keys = keys, .count = 5 }, ".x.x.");
    assert_string_equal(test_text(t->conn,
                                  "SELECT string_agg(id || status, ' ' ORDER BY id) FROM jobs"
                                  " WHERE locked_until IS NULL"),
                        "1done 3done 4claimed");
    /* The last one is there twice. */
    test_exec(t->conn, "UPDATE jobs SET status = 'claimed' WHERE id = 1");
    bool finished[6];
    assert_int_equal(weir__claim_finish_batch(p.s, &r, &(finish_batch){ .keys = keys, .count = 6 },
                                              finished, &p.err),
                     WEIR_OK);
    assert_int_equal(finished[3] + finished[5], 1);
    place_close(&p);
}

static void C38_each_of_many_has_its_own_fence(void **state)
{
    pg_test *t = *state;
    place p = place_open(t);
    const int64_t fences[] = { 7, 7, 7, 7 };
    test_exec(t->conn, JOBS);
    finish_request r = finish();
    r.has_fence = true;
    r.fence_column = STR("fence");
    finishes(&p, &r, &(finish_batch){ .keys = keys, .fences = fences, .count = 4 }, "...x");
    r.by = (weir_str){ 0 }; /* the fence alone */
    r.by_column = CLAIM_NO_COLUMN;
    finishes(&p, &r, &(finish_batch){ .keys = keys, .fences = fences, .count = 4 }, "x..x");
    place_close(&p);
}

static void many_may_be_part_of_a_transaction(void **state)
{
    pg_test *t = *state;
    place p = place_open(t);
    test_exec(t->conn, JOBS);
    const finish_request r = finish();
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    finishes(&p, &r, &(finish_batch){ .keys = keys, .count = 4 }, ".x.x");
    weir__table_rollback(p.s);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM jobs WHERE status = 'done'"), 0);
    place_close(&p);
}

static claim_request claim(const claim_set *set, int64_t limit)
{
    return (claim_request){ .table = STR("jobs"),
                            .where = STR("status = 'pending'"),
                            .limit = limit,
                            .writes.set = set,
                            .writes.set_count = 1,
                            .by = STR("w1"),
                            .lease_us = INT64_C(60000000) };
}

static const claim_set claimed = { .column = { .ptr = "status", .len = 6 },
                                   .value = TEXT("claimed") };

static void many_jobs(pg_test *t)
{
    test_exec(
        t->conn,
        "CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL, claimed_by text,"
        " claimed_at timestamptz, locked_until timestamptz);"
        "INSERT INTO jobs SELECT i, CASE WHEN i <= 1000 THEN 'pending' ELSE 'done' END"
        "  FROM generate_series(1, 20000) AS i;"
        "CREATE INDEX pending_first ON jobs (id) WHERE status = 'pending';"
        "CREATE INDEX claimed_first ON jobs (locked_until) WHERE status = 'claimed'; ANALYZE jobs");
}

static bool plan_has(const place *p, const char *text)
{
    for (size_t i = 0; i < p->r.rows_count; i++) {
        const weir_str line = p->r.cells[i].text;
        if (memmem(line.ptr, line.len, text, strlen(text)) != NULL) {
            return true;
        }
    }
    return false;
}

/* The plan for any values of what was prepared last, which a statement gets that comes often. */
static void explain_prepared(place *p)
{
    char sql[4096];
    run(p, "SELECT name, repeat(', NULL', cardinality(parameter_types) - 1) AS more"
           " FROM pg_prepared_statements ORDER BY prepare_time DESC LIMIT 1");
    assert_int_equal(p->r.rows_count, 1);
    (void)snprintf(sql, sizeof sql, "EXPLAIN EXECUTE %.*s(NULL%.*s)", (int)p->r.cells[0].text.len,
                   p->r.cells[0].text.ptr, (int)p->r.cells[1].text.len, p->r.cells[1].text.ptr);
    run(p, "SET plan_cache_mode = force_generic_plan");
    run(p, sql);
}

static void claim_some(place *p, int64_t rows, table_value *ids)
{
    const claim_request r = claim(&claimed, rows);
    assert_int_equal(weir__claim_rows(p->s, &r, &p->r, &p->err), WEIR_OK);
    assert_int_equal(p->r.rows_count, rows);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (table_value){ .kind = TABLE_INTEGER };
        ids[i].number = strtoll(p->r.cells[(size_t)i * p->r.columns_count].text.ptr, NULL, 10);
    }
}

static void a_hundred_are_finished_by_one_statement(void **state)
{
    enum { ROWS = 100 };
    pg_test *t = *state;
    place p = place_open(t);
    table_value ids[ROWS];
    bool finished[ROWS];
    many_jobs(t);
    test_exec(t->conn, "CREATE TABLE writes (n integer);"
                       "CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql AS"
                       " $$ BEGIN INSERT INTO writes VALUES (1); RETURN NULL; END $$;"
                       "CREATE TRIGGER writes AFTER UPDATE ON jobs FOR EACH STATEMENT"
                       " EXECUTE FUNCTION count_write()");
    finish_request end = finish();
    end.key_count = 1;
    const finish_batch batch = { .keys = ids, .count = ROWS };
    for (int i = 1; i <= 3; i++) {
        claim_some(&p, ROWS, ids);
        assert_int_equal(weir__claim_finish_batch(p.s, &end, &batch, finished, &p.err), WEIR_OK);
        assert_int_equal(test_number(t->conn, "SELECT count(*) FROM writes"), 2 * i);
        assert_int_equal(test_number(t->conn, "SELECT count(*) FROM jobs WHERE claimed_by = 'w1'"
                                              " AND status = 'done' AND locked_until IS NULL"),
                         i * ROWS);
    }
    /* The statistics are of a time when nobody held a row. */
    explain_prepared(&p);
    assert_true(plan_has(&p, "Index Scan using jobs_pkey on jobs"));
    place_close(&p);
}

static void a_claim_that_comes_again_uses_the_same_indexes(void **state)
{
    pg_test *t = *state;
    place p = place_open(t);
    table_value id;
    many_jobs(t);
    for (int i = 0; i < 10; i++) {
        claim_some(&p, 1, &id);
    }
    explain_prepared(&p);
    assert_true(plan_has(&p, "Index Scan using claimed_first on jobs") ||
                plan_has(&p, "Bitmap Index Scan on claimed_first"));
    assert_true(plan_has(&p, "Index Scan using pending_first on jobs"));
    assert_false(plan_has(&p, "Seq Scan on jobs"));
    place_close(&p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C38_of_many_only_what_is_still_yours_is_finished),
        PG_TEST(C38_each_of_many_has_its_own_fence),
        PG_TEST(many_may_be_part_of_a_transaction),
        PG_TEST(a_hundred_are_finished_by_one_statement),
        PG_TEST(a_claim_that_comes_again_uses_the_same_indexes),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
