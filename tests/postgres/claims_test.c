/* claims_test.c - claims on PostgreSQL: what one claim gives, on tables of every kind, and what it
 * does about locks of others. The same on SQLite is in src/claim/claim_test.c.
 */
#include "claims_place.h"

#include <pthread.h>
#include <stdlib.h>

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
    r.writes.set_sql = set_sql;
    r.writes.set_sql_count = 1;
    r.writes.params = params;
    r.writes.params_count = 2;
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
                        .writes.params =
                            (const claim_param[]){ { .name = STR("m"), .value = TEXT("new") } },
                        .writes.params_count = 1,
                        .writes.set = set,
                        .writes.set_count = 4,
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
    r.writes.set = &bad;
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
    /* A column that nobody has asked for is noticed after a while. */
    test_exec(p->t->conn, "ALTER TABLE jobs ADD COLUMN colour text NOT NULL DEFAULT 'blue'");
    p->s->known_us -= TABLE_KNOWN_US;
    claims(p, &r, "3");
    expect(p, "colour", "blue");
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
    f.writes.set = &done;
    f.writes.set_count = 1;
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
    assert_true(test_wait(p->t->conn, 120,
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

/* ---- what it costs -------------------------------------------------------------------------- */

/* Statements of the role that only the claimer has. */
static int64_t statements_of(pg_test *t, const char *role, const char *like)
{
    return test_number(t->conn,
                       "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE "
                       "toplevel AND userid = '%s'::regrole AND query LIKE '%s'",
                       role, like);
}

/* ---- closing a handle beside calls --------------------------------------------------------- */

typedef struct waiting_call {
    pthread_t thread;
    weir_tables *tables;
    const char *table;
    uint32_t flags;
    int64_t wait_us;
    const weir_rows *finish; /* NULL: it claims */
    int32_t status;
    weir_error err;
} waiting_call;

static void *call_and_wait(void *arg)
{
    waiting_call *c = arg;
    weir_rows *rows = NULL;
    const weir_value taken = { WEIR_VALUE_INIT, .name = STR("status"), .kind = WEIR_VALUE_TEXT,
                               .text = STR("taken") };
    const weir_value *const set[] = { &taken };
    const bool hold = (c->flags & WEIR_CLAIM_HOLD) != 0;
    const weir_claim claim = { WEIR_CLAIM_INIT,
                               .flags = c->flags,
                               .table = weir__str(c->table),
                               .where = STR("status = 'pending'"),
                               .set = set,
                               .set_count = hold ? 0 : 1,
                               .by = hold ? (weir_str){ 0 } : STR("test"),
                               .wait_us = c->wait_us };
    const weir_finish done = { WEIR_FINISH_INIT, .kind = WEIR_FINISH_RELEASE };
    c->status = c->finish != NULL ? weir_rows_finish(c->tables, c->finish, 0, &done, &c->err)
                                  : weir_claim_rows(c->tables, &claim, &rows, &c->err);
    weir_rows_free(rows);
    return NULL;
}

static void C42_closing_a_handle_on_tables_ends_what_waits(void **state)
{
    enum { CALLS = 7 };
    pg_test *t = *state;
    place p = place_open(t, CLAIM_PATH_DEFAULT);
    weir_tables *tables = NULL, *adopted = NULL;
    PGconn *holder = test_connect(t), *given = test_connect(t);
    char table[128];
    waiting_call calls[CALLS] = { 0 };
    weir_rows *rows = NULL;
    const weir_tables_options options = { WEIR_TABLES_OPTIONS_INIT, .url = test_server() };
    test_exec(t->conn, JOBS);
    snprintf(table, sizeof table, "%s.jobs", t->schema);
    TEST_OK(t, weir_tables_open(&options, &tables, &t->err));
    TEST_OK(t, weir_tables_adopt(WEIR_NATIVE_POSTGRES, given, &adopted, &t->err));
    const weir_value taken = { WEIR_VALUE_INIT, .name = STR("status"), .kind = WEIR_VALUE_TEXT,
                               .text = STR("taken") };
    const weir_value *const set[] = { &taken };
    const weir_claim one = {
        WEIR_CLAIM_INIT, .table = weir__str(table), .where = STR("status = 'pending'"), .set = set,
        .set_count = 1,  .by = STR("first")
    };
    TEST_OK(t, weir_claim_rows(tables, &one, &rows, &t->err));
    test_exec(holder, "BEGIN; SELECT 1 FROM %s FOR UPDATE", table);
    test_exec(given, "BEGIN");
    for (int i = 0; i < CALLS; i++) {
        calls[i] =
            (waiting_call){ .tables = i == CALLS - 1 ? adopted : tables,
                            .table = table,
                            .flags = WEIR_CLAIM_WAIT | (i % 2 == 1 ? WEIR_CLAIM_PORTABLE : 0),
                            .wait_us = i < 4 ? -1 : 3600 * SECOND,
                            .finish = i == 0 ? rows : NULL };
        if (i == CALLS - 1) {
            calls[i].flags = WEIR_CLAIM_WAIT | WEIR_CLAIM_HOLD;
        }
        assert_int_equal(pthread_create(&calls[i].thread, NULL, call_and_wait, &calls[i]), 0);
    }
    assert_true(
        test_wait(t->conn, 60,
                  "SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                  " AND query LIKE '%%jobs%%' AND pid <> pg_backend_pid()",
                  CALLS));
    weir_tables_close(adopted);
    weir_tables_close(tables); /* the holder holds on */
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(pthread_join(calls[i].thread, NULL), 0);
        if (calls[i].status != WEIR_EINTERRUPTED) {
            fail_msg("call %d: %s: %s", i, weir_status_text(calls[i].status), calls[i].err.message);
        }
    }
    TEST_IS(t, weir_claim_rows(tables, &one, &rows, &t->err), WEIR_EMISUSE);
    weir_rows_free(rows);
    test_exec(holder, "ROLLBACK");
    test_exec(given, "ROLLBACK; SELECT 1"); /* the caller's own is left in order */
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s WHERE claimed_by IS NULL", table), 9);
    place_close(&p);
}

static void C36_a_claim_on_a_handle_is_one_statement(void **state)
{
    enum { CLAIMS = 5 };
    pg_test *t = *state;
    place p = place_open(t, CLAIM_PATH_DEFAULT);
    weir_tables *tables = NULL;
    char url[TEST_URL_BYTES], table[128], role[96];
    test_exec(t->conn, JOBS);
    test_exec(t->conn, "INSERT INTO jobs (id, status) SELECT n, 'pending' FROM "
                       "generate_series(100, 200) AS n");
    snprintf(role, sizeof role, "%s_claimer", t->schema);
    test_exec(t->conn,
              "CREATE ROLE %s LOGIN; GRANT USAGE ON SCHEMA %s TO %s; GRANT ALL ON jobs TO %s", role,
              t->schema, role, role);
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=%s", getenv("WEIR_TEST_PG_DIR"),
             role);
    snprintf(table, sizeof table, "%s.jobs", t->schema);
    const weir_tables_options options = { WEIR_TABLES_OPTIONS_INIT, .url = url };
    TEST_OK(t, weir_tables_open(&options, &tables, &t->err));
    const weir_value status = { WEIR_VALUE_INIT, .name = STR("status"), .kind = WEIR_VALUE_TEXT,
                                .text = STR("taken") };
    const weir_value *const set[] = { &status };
    const weir_claim claim = { WEIR_CLAIM_INIT,
                               .table = weir__str(table),
                               .where = STR("status = 'pending'"),
                               .limit = 2,
                               .set = set,
                               .set_count = 1 };
    for (int i = 0; i < 2 * CLAIMS; i++) {
        weir_rows *rows = NULL;
        if (i == CLAIMS) { /* it is known what the table looks like */
            test_statements_reset(t);
        }
        TEST_OK(t, weir_claim_rows(tables, &claim, &rows, &t->err));
        assert_int_equal(weir_rows_count(rows), 2);
        assert_true(weir_rows_json(rows, 0).len > 0);
        weir_rows_free(rows);
    }
    assert_int_equal(statements_of(t, role, "%"), CLAIMS);
    /* What another has changed is seen all the same. */
    test_exec(t->conn, "ALTER TABLE jobs RENAME COLUMN status TO state");
    const weir_value state_value = { WEIR_VALUE_INIT, .name = STR("state"), .kind = WEIR_VALUE_TEXT,
                                     .text = STR("taken") };
    const weir_value *const set_state[] = { &state_value };
    weir_claim renamed = claim;
    weir_rows *rows = NULL;
    renamed.where = STR("state = 'pending'");
    renamed.set = set_state;
    TEST_OK(t, weir_claim_rows(tables, &renamed, &rows, &t->err));
    assert_int_equal(weir_rows_count(rows), 2);
    weir_rows_free(rows);
    weir_tables_close(tables);
    place_close(&p);
    test_exec(t->conn, "DROP OWNED BY %s; DROP ROLE %s", role, role);
}

/* A command knows nothing of the table, and asks once. */
static void C36_a_claim_of_a_command_asks_for_its_table_once(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, CLAIM_PATH_DEFAULT);
    char command[2048], role[96];
    test_exec(t->conn, JOBS);
    snprintf(role, sizeof role, "%s_command", t->schema);
    test_exec(t->conn,
              "CREATE ROLE %s LOGIN; GRANT USAGE ON SCHEMA %s TO %s; GRANT ALL ON jobs TO %s", role,
              t->schema, role, role);
    snprintf(command, sizeof command,
             "'%s' claim %s.jobs --store 'postgres:///postgres?host=%s&user=%s' --where \"status = "
             "'pending'\" --set status=taken >/dev/null",
             getenv("WEIR"), t->schema, getenv("WEIR_TEST_PG_DIR"), role);
    test_statements_reset(t);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    assert_int_equal(statements_of(t, role, "%pg_attribute%"), 1);
    assert_int_equal(statements_of(t, role, "%UPDATE%"), 1);
    place_close(&p);
    test_exec(t->conn, "DROP OWNED BY %s; DROP ROLE %s", role, role);
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
                                       .writes.set = &done,
                                       .writes.set_count = 1 };
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
        r.writes.params = &name;
        r.writes.params_count = 1;
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
        PG_TEST(C42_closing_a_handle_on_tables_ends_what_waits),
        PG_TEST(C36_a_claim_on_a_handle_is_one_statement),
        PG_TEST(C36_a_claim_of_a_command_asks_for_its_table_once),
        PG_TEST(never_more_than_so_many_held_under_32_claimers),
        PG_TEST(a_value_that_is_full_is_passed_over),
        PG_TEST(C38_held_rows_are_free_when_the_transaction_ends),
        PG_TEST(C38_on_the_callers_connection_too),
        PG_TEST(a_claim_is_one_statement),
        PG_TEST(what_is_shown_does_what_it_says),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
