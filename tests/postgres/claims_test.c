/* claims_test.c - claims on PostgreSQL: what one claim gives, on tables of every kind, and what it
 * does about locks of others. The same on SQLite is in src/claim/claim_test.c.
 */
#include "pg_support.h"

#include "claim/claim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000)

/* As parts of initialisers; STR is a value as well. */
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
    claim_path path;
} place;

static void run(place *p, const char *sql)
{
    if (weir__table_run(p->s, &(table_statement){ .sql = sql }, &p->r, &p->err) != WEIR_OK) {
        fail_msg("%s: %s", sql, p->err.message);
    }
}

static place place_open(pg_test *t, claim_path path)
{
    place p = { .t = t, .path = path };
    char sql[128];
    if (weir__table_open(&p.db, &(table_options){ .url = test_server() }, &p.err) != WEIR_OK ||
        weir__table_session_open(p.db, &p.s, &p.err) != WEIR_OK) {
        fail_msg("no session: %s", p.err.message);
    }
    test_exec(t->conn, "SET client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS %s",
              t->schema);
    test_exec(t->conn, "SET search_path = %s", t->schema);
    snprintf(sql, sizeof sql, "SET search_path = %s", t->schema);
    run(&p, sql);
    return p;
}

static void place_close(place *p)
{
    weir__table_session_close(p->s);
    weir__table_close(p->db);
    weir__table_result_free(&p->r);
}

#define JOBS                                                                                       \
    "CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'pending',"            \
    " priority integer NOT NULL DEFAULT 0, tenant text, claimed_by text, claimed_at timestamptz,"  \
    " locked_until timestamptz, fence bigint, attempts integer);"                                  \
    "INSERT INTO jobs (id, priority) SELECT i, mod(i, 3) FROM generate_series(1, 10) AS i"

static const claim_set claimed[] = { { .column = { .ptr = "status", .len = 6 },
                                       .value = TEXT("claimed") } };

static claim_request pending(const place *p, int64_t limit)
{
    return (claim_request){ .table = STR("jobs"),
                            .where = STR("status = 'pending'"),
                            .limit = limit,
                            .set = claimed,
                            .set_count = 1,
                            .path = p->path };
}

static weir_status try_claim(place *p, const claim_request *request)
{
    return weir__claim_rows(p->s, request, &p->r, &p->err);
}

/* One column of all rows: "1 2 3". */
static void expect(const place *p, const char *column, const char *expected)
{
    char got[4096] = "";
    size_t len = 0;
    for (size_t i = 0; i < p->r.rows_count; i++) {
        for (size_t j = 0; j < p->r.columns_count; j++) {
            if (weir__str_equal(p->r.names[j], weir__str(column))) {
                const table_cell *cell = &p->r.cells[i * p->r.columns_count + j];
                len += (size_t)snprintf(got + len, sizeof got - len, "%s%.*s", i == 0 ? "" : " ",
                                        cell->null ? 4 : (int)cell->text.len,
                                        cell->null ? "NULL" : cell->text.ptr);
            }
        }
    }
    assert_string_equal(got, expected);
}

static void claims(place *p, const claim_request *request, const char *ids)
{
    if (try_claim(p, request) != WEIR_OK) {
        fail_msg("%s (%s)", p->err.message, p->err.detail);
    }
    expect(p, "id", ids);
}

static void refused(place *p, const claim_request *request, const char *message)
{
    assert_int_equal(try_claim(p, request), WEIR_EINVAL);
    if (strstr(p->err.message, message) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", p->err.message, message);
    }
}

static const claim_path both_paths[] = { CLAIM_PATH_FAST, CLAIM_PATH_PORTABLE };

/* A test on both paths, each with a schema of its own. */
#define ON_BOTH_PATHS(name)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        for (size_t i = 0; i < 2; i++) {                                                           \
            pg_test *t = *state;                                                                   \
            place p = place_open(t, both_paths[i]);                                                \
            name##_on(&p);                                                                         \
            place_close(&p);                                                                       \
            test_exec(t->conn, "DROP SCHEMA %s CASCADE", t->schema);                               \
        }                                                                                          \
    }

/* ---- what is given -------------------------------------------------------------------------- */

static void C36_as_many_as_asked_for_in_order_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    const claim_order order[] = { { .column = STR("priority"), .descending = true } };
    claim_request r = pending(p, 4);
    claims(p, &r, "1 2 3 4");
    expect(p, "status", "claimed claimed claimed claimed");
    r.order = order;
    r.order_count = 1;
    claims(p, &r, "5 8 7 10");
    claims(p, &r, "6 9");
    claims(p, &r, "");
    r.limit = 0;
    claims(p, &r, "");
}
ON_BOTH_PATHS(C36_as_many_as_asked_for_in_order)

static void what_is_written_by_a_claim_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    const claim_set_sql set_sql[] = { { .column = STR("priority"),
                                        .sql = STR("priority + :more::int") } };
    const claim_param params[] = { { .name = STR("more"), .value = NUMBER(40) },
                                   { .name = STR("first"), .value = TEXT("1") } };
    const claim_order order[] = { { .column = STR("priority") } };
    claim_request r = pending(p, 3);
    r.where = STR("status = 'pending' AND id > :first AND id < 4 + :first -- :not");
    r.set_sql = set_sql;
    r.set_sql_count = 1;
    r.params = params;
    r.params_count = 2;
    r.order = order;
    r.order_count = 1;
    r.by = STR("w1");
    r.lease_us = 60 * SECOND;
    r.fence_column = STR("fence");
    r.attempts_column = STR("attempts");
    claims(p, &r, "3 4 2");
    expect(p, "priority", "40 41 42");
    expect(p, "claimed_by", "w1 w1 w1");
    expect(p, "fence", "1 1 1");
    expect(p, "attempts", "1 1 1");
    assert_int_equal(test_number(p->t->conn,
                                 "SELECT count(*) FROM jobs WHERE claimed_at BETWEEN now() - "
                                 "interval '9 s' AND now() AND locked_until BETWEEN "
                                 "now() + interval '50 s' AND now() + interval '61 s'"),
                     3);
    test_exec(p->t->conn, "UPDATE jobs SET status = 'pending', locked_until = NULL");
    claims(p, &r, "3 4 2");
    expect(p, "fence", "2 2 2");
    expect(p, "attempts", "2 2 2");
}
ON_BOTH_PATHS(what_is_written_by_a_claim)

static void C38_expired_claims_go_first_on(place *p)
{
    static const char *const types[] = { "timestamptz", "timestamp", "bigint", "text", "varchar" };
    static const char *const past[] = { "now() - interval '1 s'",
                                        "(now() - interval '1 s') AT TIME ZONE 'UTC'",
                                        "extract(epoch FROM now() - interval '1 s') * 1000000",
                                        "'2020-01-01T00:00:00.000000Z'",
                                        "'2020-01-01T00:00:00.000000Z'" };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        test_exec(p->t->conn, JOBS "; ALTER TABLE jobs DROP locked_until, ADD locked_until %s",
                  types[i]);
        claim_request r = pending(p, 3);
        r.lease_us = 3600 * SECOND;
        claims(p, &r, "1 2 3");
        test_exec(p->t->conn, "UPDATE jobs SET locked_until = %s WHERE id IN (1, 3)", past[i]);
        claims(p, &r, "1 3 4");
        claims(p, &r, "5 6 7");
        test_exec(p->t->conn, "UPDATE jobs SET locked_until = %s WHERE id IN (1, 3)", past[i]);
        r.expired_where = STR("id > 1");
        claims(p, &r, "3 8 9");
        test_exec(p->t->conn, "DROP TABLE jobs");
    }
}
ON_BOTH_PATHS(C38_expired_claims_go_first)

static void C39_tables_of_every_kind_on(place *p)
{
    test_exec(p->t->conn,
              "CREATE TYPE \"Mood\" AS ENUM ('new', 'Taken');"
              "CREATE TABLE \"Odd \"\"one\"\"\" (u uuid, \"n 40\" numeric, at timestamptz, b bytea,"
              " a text[], mood \"Mood\" DEFAULT 'new', j json, jb jsonb, c char(3), d date,"
              " twice numeric GENERATED ALWAYS AS (\"n 40\" * 2) STORED,"
              " id int GENERATED ALWAYS AS IDENTITY,"
              " PRIMARY KEY (at, u, \"n 40\", b, a, mood)) PARTITION BY LIST (mood);"
              "CREATE TABLE part_1 PARTITION OF \"Odd \"\"one\"\"\" FOR VALUES IN ('new');"
              "CREATE TABLE part_2 PARTITION OF \"Odd \"\"one\"\"\" FOR VALUES IN ('Taken');"
              "INSERT INTO \"Odd \"\"one\"\"\" SELECT '6f1b2c3d-0000-4000-8000-000000000001',"
              " 1234567890123456789012345678901234567890.5, '2026-01-01 00:00:00.123456+00',"
              " '\\x00ff', ARRAY['a,\"b', NULL], 'new', NULL, NULL, 'x', '2026-01-01'"
              " FROM generate_series(1, 1)");
    const claim_set set[] = {
        { .column = STR("j"), .value = TEXT("{\"a\": [1, \"'\"]}") },
        { .column = STR("jb"), .value = TEXT("{\"a\": 1}") },
        { .column = STR("c"), .value = TEXT("yes") },
        { .column = STR("d"), .value = { .kind = TABLE_NULL } },
    };
    claim_request r = { .table = STR("\"Odd \"\"one\"\"\""),
                        .where = STR("c = 'x' AND mood = :m"),
                        .params =
                            (const claim_param[]){ { .name = STR("m"), .value = TEXT("new") } },
                        .params_count = 1,
                        .set = set,
                        .set_count = 4,
                        .limit = 5,
                        .path = p->path };
    claims(p, &r, "1");
    expect(p, "c", "yes");
    expect(p, "j", "{\"a\": [1, \"'\"]}");
    expect(p, "n 40", "1234567890123456789012345678901234567890.5");
    claims(p, &r, "");
    table_value key[6];
    test_exec(p->t->conn, "UPDATE \"Odd \"\"one\"\"\" SET c = 'x'");
    claims(p, &r, "1");
    static const size_t columns[] = { 2, 0, 1, 3, 4, 5 };
    for (size_t i = 0; i < 6; i++) {
        key[i] = weir__table_cell_value(&p->r.cells[columns[i]]);
    }
    test_exec(p->t->conn, "UPDATE \"Odd \"\"one\"\"\" SET c = 'x'");
    table_result kept = p->r;
    p->r = (table_result){ 0 };
    r.exclude = key;
    r.exclude_count = 1;
    claims(p, &r, "");
    weir__table_result_free(&kept);
}
ON_BOTH_PATHS(C39_tables_of_every_kind)

static void a_table_partitioned_by_what_the_claim_sets_on(place *p)
{
    test_exec(p->t->conn,
              "CREATE TABLE jobs (id int, status text DEFAULT 'pending', PRIMARY KEY (id, status))"
              " PARTITION BY LIST (status)");
    claim_request r = pending(p, 1);
    refused(p, &r, "--set: column \"status\" of");
}
ON_BOTH_PATHS(a_table_partitioned_by_what_the_claim_sets)

static void mistakes_are_told_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    claim_request r = pending(p, 1);
    r.lease_us = SECOND;
    r.lease_column = STR("tenants");
    refused(p, &r, "--lease-column: no column \"tenants\" in ");
    r.lease_column = STR("attempts");
    refused(p, &r, "is integer: it cannot hold a time");
    r.lease_us = 0;
    r.fence_column = STR("tenant");
    refused(p, &r, "--fence-column: column \"tenant\"");
    r.fence_column = (weir_str){ 0 };
    r.where = STR("nope = status");
    refused(p, &r, "column \"nope\" does not exist");
    r.where = STR("status = $$pending");
    refused(p, &r, "--where: a string does not end");
    r.where = STR("status = $1");
    refused(p, &r, "--where: parameters have names here");
    r.where = STR("priority = 0");
    const claim_set bad = { .column = STR("priority"), .value = TEXT("high") };
    r.set = &bad;
    refused(p, &r, "invalid input syntax for type integer: \"high\"");
    assert_int_equal(test_number(p->t->conn, "SELECT count(*) FROM jobs WHERE status = 'claimed'"),
                     0);
}
ON_BOTH_PATHS(mistakes_are_told)

static void a_table_that_has_changed_is_looked_at_again_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    claim_request r = pending(p, 1);
    claims(p, &r, "1");
    test_exec(p->t->conn, "ALTER TABLE jobs RENAME priority TO urgency");
    claims(p, &r, "2");
    expect(p, "urgency", "2");
    test_exec(p->t->conn, "ALTER TABLE jobs RENAME TO other; CREATE TABLE jobs (LIKE other "
                          "INCLUDING ALL)");
    claims(p, &r, "");
}
ON_BOTH_PATHS(a_table_that_has_changed_is_looked_at_again)

/* ---- finishing ------------------------------------------------------------------------------ */

static void C38_a_claim_is_finished_by_its_holder_alone(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    test_exec(p.t->conn, JOBS);
    const table_value key = NUMBER(1);
    const claim_set done = { .column = STR("status"), .value = TEXT("done") };
    claim_request r = pending(&p, 1);
    r.by = STR("w1");
    r.lease_us = 60 * SECOND;
    r.fence_column = STR("fence");
    claims(&p, &r, "1");
    finish_request f = { .table = STR("jobs"),
                         .key = &key,
                         .key_count = 1,
                         .by = STR("w1"),
                         .has_fence = true,
                         .fence = 1,
                         .fence_column = STR("fence"),
                         .held = claimed,
                         .held_count = 1 };
    f.kind = FINISH_EXTEND;
    f.lease_us = 3600 * SECOND;
    assert_int_equal(weir__claim_finish(p.s, &f, NULL, &p.err), WEIR_OK);
    assert_int_equal(test_number(p.t->conn, "SELECT count(*) FROM jobs WHERE locked_until > now()"
                                            " + interval '59 min'"),
                     1);
    test_exec(p.t->conn, "UPDATE jobs SET locked_until = now() WHERE id = 1");
    assert_int_equal(weir__claim_finish(p.s, &f, NULL, &p.err), WEIR_ELOST);
    assert_non_null(strstr(p.err.message, "its lease has ended"));
    r.by = STR("w2");
    claims(&p, &r, "1");
    f.kind = FINISH_DONE;
    f.set = &done;
    f.set_count = 1;
    assert_int_equal(weir__claim_finish(p.s, &f, NULL, &p.err), WEIR_ELOST);
    assert_non_null(strstr(p.err.message, "it is \"w2\"'s"));
    f.by = (weir_str){ 0 };
    assert_int_equal(weir__claim_finish(p.s, &f, NULL, &p.err), WEIR_ELOST);
    assert_non_null(strstr(p.err.message, "its fence is 2, not 1"));
    f.fence = 2;
    assert_int_equal(weir__claim_finish(p.s, &f, &p.r, &p.err), WEIR_OK);
    expect(&p, "status", "done");
    expect(&p, "locked_until", "NULL");
    assert_int_equal(weir__claim_finish(p.s, &f, &p.r, &p.err), WEIR_ELOST);
    assert_non_null(strstr(p.err.message, "no longer claimed"));
    const table_value nothing = TEXT("abc");
    f.key = &nothing;
    assert_int_equal(weir__claim_finish(p.s, &f, &p.r, &p.err), WEIR_EINVAL);
    place_close(&p);
}

/* ---- locks of others ------------------------------------------------------------------------ */

static void C37_what_is_locked_is_skipped_or_told_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    PGconn *other = test_connect(p->t);
    test_exec(other, "SET search_path = %s; BEGIN; SELECT FROM jobs WHERE id IN (1, 3) FOR UPDATE",
              p->t->schema);
    claim_request r = pending(p, 3);
    r.mode = CLAIM_NOWAIT;
    assert_int_equal(try_claim(p, &r), WEIR_EHELD);
    r.mode = CLAIM_WAIT;
    r.wait_us = 20000;
    assert_int_equal(try_claim(p, &r), WEIR_EHELD);
    assert_int_equal(test_number(p->t->conn, "SELECT count(*) FROM jobs WHERE status = 'claimed'"),
                     0);
    r.mode = CLAIM_SKIP;
    claims(p, &r, "2 4 5");
    test_exec(other, "COMMIT");
    r.mode = CLAIM_NOWAIT;
    claims(p, &r, "1 3 6");
}
ON_BOTH_PATHS(C37_what_is_locked_is_skipped_or_told)

typedef struct waiter {
    place *p;
    claim_request r;
    weir_status status;
    pthread_t thread;
} waiter;

static void *wait_run(void *ctx)
{
    waiter *w = ctx;
    w->status = try_claim(w->p, &w->r);
    return NULL;
}

static void wait_until_blocked(place *p)
{
    assert_true(test_wait(p->t->conn, 20,
                          "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type ="
                          " 'Lock' AND query LIKE '%%%s%%')",
                          p->t->schema));
}

/* Of three rows that are waited for one is taken, one stops fitting, and one appears meanwhile. */
static void C37_who_waits_judges_again_on(place *p)
{
    test_exec(p->t->conn, JOBS "; DELETE FROM jobs WHERE id > 3; CREATE TABLE stop (id bigint)");
    PGconn *other = test_connect(p->t);
    test_exec(other,
              "SET search_path = %s; BEGIN; UPDATE jobs SET status = 'taken' WHERE id = 1;"
              "SELECT FROM jobs WHERE id = 2 FOR UPDATE",
              p->t->schema);
    waiter w = { .p = p, .r = pending(p, 3) };
    w.r.where = STR("status = 'pending' AND id NOT IN (SELECT id FROM stop)");
    w.r.mode = CLAIM_WAIT;
    w.r.wait_us = -1;
    assert_int_equal(pthread_create(&w.thread, NULL, wait_run, &w), 0);
    wait_until_blocked(p);
    test_exec(other, "INSERT INTO stop VALUES (2); INSERT INTO jobs (id) VALUES (4); COMMIT");
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    if (w.status != WEIR_OK) {
        fail_msg("%s", p->err.message);
    }
    expect(p, "id", "3 4");
}
ON_BOTH_PATHS(C37_who_waits_judges_again)

/* The claim stops after its snapshot was taken and before it looks at a row: others write
 * meanwhile. */
static void C36_what_has_changed_since_the_snapshot_is_judged_again(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    test_exec(p.t->conn, JOBS);
    PGconn *other = test_connect(p.t);
    test_exec(other, "SET search_path = %s; SELECT pg_advisory_lock(4711)", p.t->schema);
    waiter w = { .p = &p, .r = pending(&p, 3) };
    w.r.where =
        STR("(SELECT pg_advisory_xact_lock_shared(4711)) IS NOT NULL AND status = 'pending'");
    w.r.attempts_column = STR("attempts");
    assert_int_equal(pthread_create(&w.thread, NULL, wait_run, &w), 0);
    wait_until_blocked(&p);
    test_exec(other, "UPDATE jobs SET status = 'taken' WHERE id = 1;"
                     "UPDATE jobs SET attempts = 40 WHERE id = 2; DELETE FROM jobs WHERE id = 3");
    test_exec(other, "SELECT pg_advisory_unlock(4711)"); /* when that is committed */
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_int_equal(w.status, WEIR_OK);
    expect(&p, "id", "2 4 5");
    expect(&p, "attempts", "41 1 1");
    place_close(&p);
}

/* ---- so many for each value ----------------------------------------------------------------- */

enum { CAPPED_CLAIMERS = 32, CAPPED_CLAIMS = 12 };

typedef struct capped {
    place p;
    claim_request r;
    pthread_t thread;
    size_t claims, rows;
    weir_status status;
} capped;

/* Claims, and gives back what was claimed before the last time. */
static void *capped_run(void *ctx)
{
    capped *c = ctx;
    for (int i = 0; i < CAPPED_CLAIMS && c->status == WEIR_OK; i++) {
        c->status = try_claim(&c->p, &c->r);
        c->rows += c->p.r.rows_count;
        for (size_t j = 0; j < c->p.r.rows_count && c->status == WEIR_OK; j += 2) {
            const table_value key = weir__table_cell_value(&c->p.r.cells[j * c->p.r.columns_count]);
            const claim_set done = { .column = STR("status"), .value = TEXT("done") };
            const finish_request f = { .table = STR("jobs"),
                                       .key = &key,
                                       .key_count = 1,
                                       .by = c->r.by,
                                       .set = &done,
                                       .set_count = 1 };
            c->status = weir__claim_finish(c->p.s, &f, NULL, &c->p.err);
        }
    }
    return NULL;
}

/* Each claim writes down how many are held when it commits; checked by the table itself. */
#define COUNTED                                                                                    \
    "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"                       \
    " IF (SELECT count(*) FROM jobs WHERE status = 'claimed' AND tenant IS NOT DISTINCT FROM"      \
    " new.tenant) > 3 THEN RAISE 'too many of %%', new.tenant; END IF; RETURN NULL; END $$;"       \
    "CREATE CONSTRAINT TRIGGER counted AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED"         \
    " FOR EACH ROW EXECUTE FUNCTION counted()"

static void never_more_than_so_many_held_under_32_claimers_on(place *p)
{
    static capped all[CAPPED_CLAIMERS];
    size_t rows = 0;
    test_exec(p->t->conn, JOBS "; " COUNTED);
    test_exec(p->t->conn, "INSERT INTO jobs (id, tenant) SELECT i, nullif(mod(i, 4), 0)"
                          " FROM generate_series(11, 2000) AS i");
    for (size_t i = 0; i < CAPPED_CLAIMERS; i++) {
        all[i] = (capped){ .p = place_open(p->t, p->path) };
        all[i].r = pending(&all[i].p, 2);
        all[i].r.by = STR("w");
        all[i].r.max_per_column = STR("tenant");
        all[i].r.max_per = 3;
    }
    for (size_t i = 0; i < CAPPED_CLAIMERS; i++) {
        assert_int_equal(pthread_create(&all[i].thread, NULL, capped_run, &all[i]), 0);
    }
    for (size_t i = 0; i < CAPPED_CLAIMERS; i++) {
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
        if (all[i].status != WEIR_OK) {
            fail_msg("%s", all[i].p.err.message);
        }
        rows += all[i].rows;
        place_close(&all[i].p);
    }
    assert_int_equal(test_number(p->t->conn, "SELECT count(*) FROM jobs WHERE status <> 'pending'"),
                     (int64_t)rows);
    /* Nothing more fits: four values, three of each. */
    claim_request r = pending(p, 100);
    r.max_per_column = STR("tenant");
    r.max_per = 3;
    assert_int_equal(try_claim(p, &r), WEIR_OK);
    assert_int_equal(test_number(p->t->conn, "SELECT count(*) FROM jobs WHERE status = 'claimed'"),
                     12);
    assert_int_equal(try_claim(p, &r), WEIR_OK);
    assert_int_equal(p->r.rows_count, 0);
}
ON_BOTH_PATHS(never_more_than_so_many_held_under_32_claimers)

/* A value that has many ready rows in front does not keep the others from being found. */
static void a_value_that_is_full_is_passed_over_on(place *p)
{
    test_exec(p->t->conn, JOBS);
    test_exec(p->t->conn, "UPDATE jobs SET tenant = CASE WHEN id <= 6 THEN 'a' WHEN id <= 8 THEN"
                          " 'b' END, locked_until = NULL");
    claim_request r = pending(p, 5);
    r.max_per_column = STR("tenant");
    r.max_per = 2;
    r.lease_us = 60 * SECOND;
    claims(p, &r, "1 2 7 8 9");
    assert_int_equal(weir__claim_preview(p->s, &r, &p->r, &p->err), WEIR_OK);
    expect(p, "id", "10");
    r.mode = CLAIM_WAIT;
    r.wait_us = SECOND;
    claims(p, &r, "10");
    test_exec(p->t->conn, "UPDATE jobs SET locked_until = now() WHERE id = 2");
    r.mode = CLAIM_NOWAIT;
    claims(p, &r, "2");
    claims(p, &r, "");
}
ON_BOTH_PATHS(a_value_that_is_full_is_passed_over)

static void C38_held_rows_are_free_when_the_transaction_ends(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    place q = place_open(*state, CLAIM_PATH_DEFAULT);
    test_exec(p.t->conn, JOBS);
    claim_request r = pending(&p, 2);
    r.hold = true;
    assert_int_equal(try_claim(&p, &r), WEIR_EMISUSE);
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    claims(&p, &r, "1 2");
    const table_value keys[] = { NUMBER(1), NUMBER(2) };
    r.exclude = keys;
    r.exclude_count = 2;
    claims(&p, &r, "3 4");
    claim_request plain = pending(&q, 1);
    assert_int_equal(try_claim(&p, &plain), WEIR_EMISUSE);
    claims(&q, &plain, "5");
    weir__table_rollback(p.s);
    claims(&q, &plain, "1");
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    r.exclude_count = 0;
    r.mode = CLAIM_WAIT;
    r.wait_us = SECOND;
    claims(&p, &r, "2 3");
    place_close(&p);
    place_close(&q);
}

static void a_claim_is_one_statement(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, CLAIM_PATH_DEFAULT);
    test_exec(t->conn, JOBS "; INSERT INTO jobs SELECT i FROM generate_series(11, 200) AS i");
    claim_request r = pending(&p, 1);
    r.by = STR("w");
    r.lease_us = 60 * SECOND;
    claims(&p, &r, "1");
    const int64_t xid = test_number(t->conn, "SELECT txid_current()");
    r.limit = 100;
    assert_int_equal(try_claim(&p, &r), WEIR_OK);
    assert_int_equal(p.r.rows_count, 100);
    /* One transaction, and no statement in between. */
    assert_int_equal(test_number(t->conn, "SELECT txid_current()"), xid + 2);
    place_close(&p);
}

static void what_is_shown_does_what_it_says(void **state)
{
    static const claim_mode modes[] = { CLAIM_SKIP, CLAIM_WAIT, CLAIM_NOWAIT };
    pg_test *t = *state;
    place p = place_open(t, CLAIM_PATH_DEFAULT);
    weir_arena arena = { 0 };
    test_exec(t->conn, JOBS);
    const claim_param name = { .name = STR("t"), .value = TEXT("a'c") };
    test_exec(t->conn, "UPDATE jobs SET tenant = 'a''c' WHERE id > 1");
    for (size_t i = 0; i < 6; i++) {
        weir_buffer sql = { 0 };
        table_info table;
        claim_request r = pending(&p, 1);
        r.where = STR("status = 'pending' AND tenant = :t");
        r.params = &name;
        r.params_count = 1;
        r.by = STR("it's me");
        r.lease_us = 60 * SECOND;
        r.mode = modes[i % 3];
        r.wait_us = -1;
        r.max_per_column = i < 3 ? STR("tenant") : (weir_str){ 0 };
        r.max_per = 100;
        assert_int_equal(weir__table_describe(p.s, STR("jobs"), &arena, &table, &p.err), WEIR_OK);
        assert_int_equal(weir__claim_sql(&r, &table, TABLE_POSTGRES, &sql, &p.err), WEIR_OK);
        assert_true(weir__buffer_add(&sql, "", 1));
        assert_int_equal(test_number(t->conn, "SELECT count(claimed_by) FROM jobs"), (int64_t)i);
        test_exec(t->conn, "%s", sql.ptr);
        assert_int_equal(
            test_number(t->conn, "SELECT max(id) FROM jobs WHERE claimed_by = 'it''s me'"),
            (int64_t)i + 2);
        weir__buffer_free(&sql);
    }
    weir__arena_free(&arena);
    place_close(&p);
}

static void C38_on_the_callers_connection_too_on(place *p)
{
    table_session *own = p->s;
    test_exec(p->t->conn, JOBS);
    assert_int_equal(weir__table_session_adopt(&p->s, TABLE_POSTGRES, p->t->conn, &p->err),
                     WEIR_OK);
    claim_request r = pending(p, 2);
    claims(p, &r, "1 2");
    r.mode = CLAIM_WAIT;
    r.wait_us = SECOND;
    claims(p, &r, "3 4");
    r.max_per_column = STR("tenant");
    r.max_per = 5;
    claims(p, &r, "5");
    r.max_per_column = (weir_str){ 0 };
    assert_false(weir__table_in_transaction(p->s));
    test_exec(p->t->conn, "BEGIN");
    assert_int_equal(try_claim(p, &r), WEIR_EMISUSE);
    r.hold = true;
    claims(p, &r, "6 7");
    test_exec(p->t->conn, "ROLLBACK");
    assert_int_equal(test_number(p->t->conn, "SELECT count(*) FROM jobs WHERE status = 'claimed'"),
                     5);
    weir__table_session_close(p->s);
    p->s = own;
}
ON_BOTH_PATHS(C38_on_the_callers_connection_too)

/* ---- plans ---------------------------------------------------------------------------------- */

static void expect_findings(place *p, const claim_request *r, claim_plan *plan, const char *rules)
{
    char got[256] = "";
    if (weir__claim_explain(p->s, r, plan, &p->err) != WEIR_OK) {
        fail_msg("%s", p->err.message);
    }
    for (size_t i = 0; i < plan->findings_count; i++) {
        strcat(strcat(got, i == 0 ? "" : " "), plan->findings[i].rule);
    }
    assert_string_equal(got, rules);
    assert_int_equal(plan->indexes.len == 0, plan->findings_count == 0);
    assert_non_null(strstr(plan->text.ptr, "Update on jobs"));
}

static void mended(place *p, const claim_request *r, const char *rules, const char *index)
{
    claim_plan plan = { 0 };
    expect_findings(p, r, &plan, rules);
    if (strstr(plan.indexes.ptr, index) == NULL) {
        fail_msg("%s", plan.indexes.ptr);
    }
    test_exec(p->t->conn, "%s", plan.indexes.ptr);
    expect_findings(p, r, &plan, "");
    weir__claim_plan_free(&plan);
}

static void an_index_that_is_recommended_mends_what_was_found(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    const claim_order order[] = { { .column = STR("priority"), .descending = true } };
    const claim_param param = { .name = STR("t"), .value = TEXT("it's") };
    claim_request r = pending(&p, 10);
    const claim_request alone = { .table = STR("jobs"), .limit = 1, .lease_us = SECOND };
    test_exec(p.t->conn, JOBS);
    mended(&p, &alone, "sequential-scan", "(\"locked_until\");\n");
    mended(&p, &r, "sequential-scan", "(\"id\") WHERE status = 'pending';\n");
    r.order = order;
    r.order_count = 1;
    r.lease_us = SECOND;
    mended(&p, &r, "sort filter", "(\"status\", \"locked_until\");\n");
    r.max_per_column = STR("tenant");
    r.max_per = 1;
    claim_plan plan = { 0 };
    expect_findings(&p, &r, &plan, ""); /* the same index serves to count */
    weir__claim_plan_free(&plan);
    r.order_count = 0;
    r.where = STR("status = 'pending' AND tenant = :t AND claimed_at < now()");
    r.params = &param;
    r.params_count = 1;
    mended(&p, &r, "filter", "WHERE status = 'pending' AND tenant = 'it''s';\n");
    assert_int_equal(test_number(p.t->conn, "SELECT count(*) FROM jobs WHERE status = 'pending'"),
                     10);
    assert_int_equal(test_number(p.t->conn, "SELECT count(*) FROM pg_class WHERE relname = 'jobs'"
                                            " AND relpersistence = 't'"),
                     0);
    place_close(&p);
}

static void the_same_for_a_partitioned_table(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    test_exec(p.t->conn, "CREATE TABLE jobs (id int, region text, status text, priority int,"
                         " locked_until timestamptz, PRIMARY KEY (id, region))"
                         " PARTITION BY LIST (region);"
                         "CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES IN ('a');"
                         "CREATE TABLE jobs_2 PARTITION OF jobs FOR VALUES IN ('b')");
    claim_request r = pending(&p, 10);
    r.lease_us = SECOND;
    mended(&p, &r, "sequential-scan sequential-scan", "(\"id\", \"region\") WHERE status");
    place_close(&p);
}

/* Blocks that a claim reads, with so many finished rows. */
static int64_t blocks_of(place *p, const claim_request *r, int64_t finished)
{
    test_exec(
        p->t->conn,
        "TRUNCATE jobs; INSERT INTO jobs (id, status, claimed_by) SELECT i, 'done', 'w' FROM"
        " generate_series(1, %lld) AS i;"
        "INSERT INTO jobs (id, status, locked_until) SELECT 1000000 + i, CASE WHEN mod(i, 2) ="
        " 0 THEN 'claimed' ELSE 'pending' END, CASE WHEN mod(i, 2) = 0 THEN timestamptz"
        " '2020-01-01' END FROM generate_series(1, 200) AS i",
        (long long)finished);
    test_exec(p->t->conn, "VACUUM ANALYZE jobs");
    weir_arena arena = { 0 };
    weir_buffer sql = { 0 };
    table_info table;
    assert_int_equal(weir__table_describe(p->s, STR("jobs"), &arena, &table, &p->err), WEIR_OK);
    assert_int_equal(weir__claim_sql(r, &table, TABLE_POSTGRES, &sql, &p->err), WEIR_OK);
    assert_true(weir__buffer_add(&sql, "", 1));
    test_exec(p->t->conn,
              "DO $explain$ DECLARE plan json; BEGIN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS,"
              " FORMAT JSON) ' || $sql$%s$sql$ INTO plan; PERFORM set_config("
              "'weir_test.blocks', ((plan->0->'Plan'->>'Shared Hit Blocks')::int +"
              " (plan->0->'Plan'->>'Shared Read Blocks')::int)::text, false);"
              " END $explain$",
              sql.ptr);
    weir__buffer_free(&sql);
    weir__arena_free(&arena);
    return test_number(p->t->conn, "SELECT current_setting('weir_test.blocks')::int");
}

static void what_is_finished_costs_nothing(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    claim_plan plan = { 0 };
    claim_request r = pending(&p, 10);
    r.lease_us = SECOND;
    test_exec(p.t->conn, JOBS);
    const int64_t without = blocks_of(&p, &r, 50000);
    assert_int_equal(weir__claim_explain(p.s, &r, &plan, &p.err), WEIR_OK);
    test_exec(p.t->conn, "%s", plan.indexes.ptr);
    const int64_t few = blocks_of(&p, &r, 500);
    const int64_t many = blocks_of(&p, &r, 50000);
    if (many > few * 3 / 2 || without < many * 3) {
        fail_msg("%lld blocks with 500 finished rows, %lld with 50,000, %lld without an index",
                 (long long)few, (long long)many, (long long)without);
    }
    weir__claim_plan_free(&plan);
    place_close(&p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C36_as_many_as_asked_for_in_order),
        PG_TEST(what_is_written_by_a_claim),
        PG_TEST(C38_expired_claims_go_first),
        PG_TEST(C39_tables_of_every_kind),
        PG_TEST(a_table_partitioned_by_what_the_claim_sets),
        PG_TEST(mistakes_are_told),
        PG_TEST(a_table_that_has_changed_is_looked_at_again),
        PG_TEST(C38_a_claim_is_finished_by_its_holder_alone),
        PG_TEST(C37_what_is_locked_is_skipped_or_told),
        PG_TEST(C37_who_waits_judges_again),
        PG_TEST(C36_what_has_changed_since_the_snapshot_is_judged_again),
        PG_TEST(never_more_than_so_many_held_under_32_claimers),
        PG_TEST(a_value_that_is_full_is_passed_over),
        PG_TEST(C38_held_rows_are_free_when_the_transaction_ends),
        PG_TEST(C38_on_the_callers_connection_too),
        PG_TEST(a_claim_is_one_statement),
        PG_TEST(an_index_that_is_recommended_mends_what_was_found),
        PG_TEST(the_same_for_a_partitioned_table),
        PG_TEST(what_is_finished_costs_nothing),
        PG_TEST(what_is_shown_does_what_it_says),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
