/* tables_test.c - the port to tables on PostgreSQL: every type as JSON, whatever the role was set
 * to; locks, deadlocks and lost connections; what a table looks like. The same on SQLite is in
 * src/table/table_port_test.c.
 */
#include "bouncer.h"
#include "pg_support.h"
#include "proxy.h"

#include "table/table_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000)

/* A session whose tables are in the test's schema. */
typedef struct place {
    pg_test *t;
    table_db *db;
    table_session *s;
    table_result r;
    weir_arena arena;
    weir_error err;
} place;

static weir_status try_statement(place *p, table_statement statement)
{
    return weir__table_run(p->s, &statement, &p->r, &p->err);
}

static weir_status try_sql(place *p, const char *sql)
{
    return try_statement(p, (table_statement){ .sql = sql });
}

static void run(place *p, const char *sql)
{
    if (try_sql(p, sql) != WEIR_OK) {
        fail_msg("%s: %s", sql, p->err.message);
    }
}

static place place_open(pg_test *t, const char *url)
{
    place p = { .t = t };
    char sql[128];
    test_exec(t->conn, "CREATE SCHEMA IF NOT EXISTS %s; SET search_path = %s", t->schema,
              t->schema);
    if (weir__table_open(&p.db, &(table_options){ .url = url }, &p.err) != WEIR_OK ||
        weir__table_session_open(p.db, &p.s, &p.err) != WEIR_OK) {
        fail_msg("no session: %s", p.err.message);
    }
    snprintf(sql, sizeof sql, "SET search_path = %s", t->schema);
    run(&p, sql);
    return p;
}

static void place_close(place *p)
{
    weir__table_session_close(p->s);
    weir__table_close(p->db);
    weir__table_result_free(&p->r);
    weir__arena_free(&p->arena);
}

static void expect_rows(place *p, const char *json)
{
    weir_buffer out = { 0 };
    for (size_t i = 0; i < p->r.rows_count; i++) {
        assert_true(weir__table_row_json(&p->r, i, SIZE_MAX, &out));
    }
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, json);
    weir__buffer_free(&out);
}

static void expect_sql(place *p, const char *sql, const char *json)
{
    run(p, sql);
    expect_rows(p, json);
}

static void expect_str(weir_str text, const char *expected)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.ptr);
    assert_string_equal(copy, expected);
}

static void expect_message(const place *p, const char *part)
{
    if (strstr(p->err.message, part) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", p->err.message, part);
    }
}

static weir_status describe(place *p, const char *name, table_info *t)
{
    return weir__table_describe(p->s, weir__str(name), &p->arena, t, &p->err);
}

static void described(place *p, const char *name, table_info *t)
{
    if (describe(p, name, t) != WEIR_OK) {
        fail_msg("%s: %s", name, p->err.message);
    }
}

/* ---- types ----------------------------------------------------------------------------------- */

#define MANY_TYPES                                                                                 \
    "SELECT NULL::integer AS nothing, 9223372036854775807::bigint AS large,"                       \
    " -32767::smallint AS small, '1234567890123456789012345678901234567890.50'::numeric AS n40,"   \
    " 'NaN'::numeric AS nan, '-Infinity'::float8 AS inf, 0.1::float8 AS f8, 1e20::float8 AS e,"    \
    " 0.1::float4 AS f4, true AS yes, false AS no,"                                                \
    " timestamptz '2026-11-15 10:00:00.123456+00' AS at,"                                          \
    " timestamptz '1900-01-01 00:00:00+00' AS old, 'infinity'::timestamptz AS never,"              \
    " timestamp '2026-11-15 10:00:00.5' AS bare, date '2026-11-15' AS day, time '10:00' AS clock," \
    " '1 day 02:03:04'::interval AS span, '\\x00ff5c27'::bytea AS bytes, ''::bytea AS none,"       \
    " '6f1b2c3d-0000-4000-8000-000000000001'::uuid AS id,"                                         \
    " '{\"b\": [1.0, 1.00], \"a\": null}'::json AS j, '{\"b\": 1.50, \"a\": null}'::jsonb AS jb,"  \
    " 'it''s \"so\" \\ \u00e9\U0001F600'::text AS words, 'ab'::char(4) AS padded,"                 \
    " '192.168.0.1/24'::inet AS net, int4range(1, 5) AS range, 'x'::\"char\" AS letter"

#define MANY_TYPES_JSON                                                                            \
    "{\"nothing\":null,\"large\":9223372036854775807,\"small\":-32767,"                            \
    "\"n40\":1234567890123456789012345678901234567890.50,\"nan\":\"NaN\",\"inf\":\"-Infinity\","   \
    "\"f8\":0.1,\"e\":1e+20,\"f4\":0.1,\"yes\":true,\"no\":false,"                                 \
    "\"at\":\"2026-11-15T10:00:00.123456Z\",\"old\":\"1900-01-01T00:00:00.000000Z\","              \
    "\"never\":\"infinity\",\"bare\":\"2026-11-15T10:00:00.5\",\"day\":\"2026-11-15\","            \
    "\"clock\":\"10:00:00\",\"span\":\"1 day 02:03:04\",\"bytes\":\"AP9cJw==\",\"none\":\"\","     \
    "\"id\":\"6f1b2c3d-0000-4000-8000-000000000001\",\"j\":{\"b\":[1.0,1.00],\"a\":null},"         \
    "\"jb\":{\"a\":null,\"b\":1.50},\"words\":\"it's \\\"so\\\" \\\\ \u00e9\U0001F600\","          \
    "\"padded\":\"ab  \",\"net\":\"192.168.0.1/24\",\"range\":\"[1,5)\",\"letter\":\"x\"}"

static void every_type_as_json(void **state)
{
    place p = place_open(*state, test_server());
    expect_sql(&p, MANY_TYPES, MANY_TYPES_JSON);
    place_close(&p);
}

static void arrays_enums_and_domains(void **state)
{
    place p = place_open(*state, test_server());
    test_exec(p.t->conn, "CREATE TYPE mood AS ENUM ('sad', '{glad}', 'it''s \"so\"');"
                         "CREATE DOMAIN amount AS numeric CHECK (VALUE > 0);"
                         "CREATE DOMAIN sum AS amount;"
                         "CREATE TYPE pair AS (a integer, b text)");
    expect_sql(&p,
               "SELECT '{1,NULL,3}'::integer[] AS a, '{{1,2},{3,4}}'::bigint[] AS b,"
               " ARRAY['x', 'y \"z\"', NULL, 'NULL', '', 'a,b', '{}', '\\'] AS c,"
               " '{}'::text[] AS d, '[2:3]={5,6}'::integer[] AS e,"
               " ARRAY['\\x00ff'::bytea] AS f, ARRAY['{\"k\": \"v,\\\"\"}'::jsonb] AS g,"
               " ARRAY['2026-11-15 10:00:00+00'::timestamptz] AS h, ARRAY[1.50, 'NaN'] AS i,"
               " ARRAY['10.0.0.1'::inet] AS j, NULL::text[] AS k, ARRAY[true, false] AS l",
               "{\"a\":[1,null,3],\"b\":[[1,2],[3,4]],"
               "\"c\":[\"x\",\"y \\\"z\\\"\",null,\"NULL\",\"\",\"a,b\",\"{}\",\"\\\\\"],"
               "\"d\":[],\"e\":[5,6],\"f\":[\"AP8=\"],\"g\":[{\"k\":\"v,\\\"\"}],"
               "\"h\":[\"2026-11-15T10:00:00.000000Z\"],\"i\":[1.50,\"NaN\"],"
               "\"j\":[\"10.0.0.1\"],\"k\":null,\"l\":[true,false]}");
    expect_sql(
        &p,
        "SELECT 'sad'::mood AS a, '{glad}'::mood AS b,"
        " ARRAY['{glad}', 'it''s \"so\"', NULL]::mood[] AS c, 1.50::sum AS d,"
        " ARRAY[1.50, 2]::sum[] AS e, ROW(1, 'x y')::pair AS f, ARRAY[ROW(1, '{')::pair] AS g,"
        " '{[1,3),[5,6)}'::int4multirange AS h",
        "{\"a\":\"sad\",\"b\":\"{glad}\",\"c\":[\"{glad}\",\"it's \\\"so\\\"\",null],"
        "\"d\":1.50,\"e\":[1.50,2],\"f\":\"(1,\\\"x y\\\")\",\"g\":[\"(1,{)\"],"
        "\"h\":\"{[1,3),[5,6)}\"}");
    place_close(&p);
}

/* Settings of a role that would change every text of a result, and the durability of commits. */
static const char *const hostile[] = {
    "datestyle = 'German'",       "timezone = 'Asia/Kathmandu'", "intervalstyle = 'iso_8601'",
    "extra_float_digits = -10",   "bytea_output = 'escape'",     "lock_timeout = '1ms'",
    "synchronous_commit = 'off'", "client_encoding = 'LATIN1'",
};

static void hostile_role(pg_test *t, const char *role)
{
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        test_exec(t->conn, "ALTER ROLE %s SET %s", role, hostile[i]);
    }
}

static void C38_settings_of_the_role_change_nothing(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    test_exec(t->conn, "CREATE ROLE hostile LOGIN SUPERUSER;"
                       "ALTER ROLE hostile SET default_transaction_isolation = 'serializable'");
    hostile_role(t, "hostile");
    snprintf(url, sizeof url, "%s&user=hostile", test_server());
    place p = place_open(t, url);
    expect_sql(&p, MANY_TYPES, MANY_TYPES_JSON);
    expect_sql(&p,
               "SELECT ARRAY['2026-11-15 10:00:00+00'::timestamptz] AS a,"
               " ARRAY['\\x00ff'::bytea] AS b",
               "{\"a\":[\"2026-11-15T10:00:00.000000Z\"],\"b\":[\"AP8=\"]}");
    expect_sql(&p,
               "SELECT current_setting('synchronous_commit') AS a,"
               " current_setting('lock_timeout') AS b,"
               " current_setting('transaction_isolation') AS c,"
               " current_setting('timezone') AS d, 1::float8 / 3 AS e",
               "{\"a\":\"on\",\"b\":\"0\",\"c\":\"read committed\",\"d\":\"Asia/Kathmandu\","
               "\"e\":0.3333333333333333}");
    place_close(&p);
    test_exec(t->conn, "REASSIGN OWNED BY hostile TO postgres; DROP ROLE hostile");
}

static void C38_behind_a_pooler_settings_change_nothing_either(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    bouncer b = bouncer_start("transaction", 2);
    hostile_role(t, "postgres"); /* as which the pooler connects, whoever comes */
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres", b.directory);
    place p = place_open(t, url);
    test_exec(t->conn, "ALTER ROLE postgres RESET ALL"); /* the server's sessions have them */
    expect_sql(&p, MANY_TYPES, MANY_TYPES_JSON);
    expect_sql(&p, "SELECT current_setting('synchronous_commit') AS a", "{\"a\":\"on\"}");
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    expect_sql(&p,
               "SELECT current_setting('synchronous_commit') AS a, 1::float8 / 3 AS f,"
               " timestamptz '2026-11-15 10:00:00+00' AS t",
               "{\"a\":\"on\",\"f\":0.3333333333333333,\"t\":\"2026-11-15T10:00:00.000000Z\"}");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_OK);
    assert_false(weir__table_in_transaction(p.s));
    place_close(&p);
    bouncer_stop(&b);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void C39_values_are_parameters(void **state)
{
    place p = place_open(*state, test_server());
    const table_value values[] = {
        { .kind = TABLE_TEXT, .text = weir__str("'; DROP TABLE jobs; --\"\\\xc3\xa9") },
        { .kind = TABLE_INTEGER, .number = INT64_MIN },
        { .kind = TABLE_BYTES, .text = { .ptr = "\0\\x", .len = 3 } },
        { .kind = TABLE_NULL },
        { .kind = TABLE_TEXT },
        { .kind = TABLE_TEXT, .text = weir__str("1234567890123456789012345678901234567890.50") },
        { .kind = TABLE_BYTES },
        { .kind = TABLE_TEXT, .text = { .ptr = "a\0b", .len = 3 } },
    };
    assert_int_equal(
        try_statement(&p, (table_statement){ .sql = "SELECT $1::text AS t, $2::bigint AS i,"
                                                    " $3 AS b, $4::text AS n, $5::text AS e,"
                                                    " $6::numeric AS d, $7 AS nb",
                                             .values = values,
                                             .values_count = 7 }),
        WEIR_OK);
    expect_rows(&p, "{\"t\":\"'; DROP TABLE jobs; --\\\"\\\\\xc3\xa9\",\"i\":-9223372036854775808,"
                    "\"b\":\"AFx4\",\"n\":null,\"e\":\"\","
                    "\"d\":1234567890123456789012345678901234567890.50,\"nb\":\"\"}");
    assert_int_equal(try_statement(&p, (table_statement){ .sql = "SELECT $1::text",
                                                          .values = values + 7,
                                                          .values_count = 1 }),
                     WEIR_EINVAL);
    assert_int_equal(try_sql(&p, "SELECT 1; SELECT 2"), WEIR_EIO);
    assert_string_equal(p.err.store_code, "42601");
    place_close(&p);
}

/* A value in a key is found again by what was read, whatever its type. */
static void a_cell_is_equal_to_itself_as_a_value(void **state)
{
    static const char *const types[][2] = {
        { "bigint", "5" },        { "numeric", "1.50" },
        { "text", "a'b\\" },      { "uuid", "6f1b2c3d-0000-4000-8000-000000000001" },
        { "bytea", "\\x00ff" },   { "timestamptz", "2026-11-15 10:00:00.123456+05:30" },
        { "date", "2026-11-15" }, { "float8", "0.1" },
        { "boolean", "t" },       { "text[]", "{a,\"b c\"}" },
    };
    place p = place_open(*state, test_server());
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char sql[200];
        table_result r = { 0 };
        const table_value text = { .kind = TABLE_TEXT, .text = weir__str(types[i][1]) };
        snprintf(sql, sizeof sql, "SELECT $1::%s AS v", types[i][0]);
        assert_int_equal(
            try_statement(&p, (table_statement){ .sql = sql, .values = &text, .values_count = 1 }),
            WEIR_OK);
        const table_value again[] = { text, weir__table_cell_value(&p.r.cells[0]) };
        snprintf(sql, sizeof sql, "SELECT $1::%s = $2 AS same", types[i][0]);
        const table_statement compare = { .sql = sql, .values = again, .values_count = 2 };
        if (weir__table_run(p.s, &compare, &r, &p.err) != WEIR_OK) {
            fail_msg("%s: %s", sql, p.err.message);
        }
        expect_str(r.cells[0].text, "t");
        weir__table_result_free(&r);
    }
    place_close(&p);
}

/* What literals say is what values say. */
static void C39_literals_are_the_values_they_stand_for(void **state)
{
    place p = place_open(*state, test_server());
    const table_value values[] = {
        { .kind = TABLE_TEXT, .text = weir__str("it's a \\ '' \"x\" \xc3\xa9") },
        { .kind = TABLE_BYTES, .text = { .ptr = "\0\xff'\\", .len = 4 } },
        { .kind = TABLE_INTEGER, .number = INT64_MIN + 1 },
        { .kind = TABLE_NULL },
    };
    static const char *const types[] = { "text", "bytea", "bigint", "text" };
    for (size_t i = 0; i < 4; i++) {
        for (int conforming = 0; conforming < 2; conforming++) {
            weir_buffer sql = { 0 };
            run(&p, conforming ? "SET standard_conforming_strings = on"
                               : "SET standard_conforming_strings = off");
            assert_true(weir__buffer_add_text(&sql, "SELECT $1 IS NOT DISTINCT FROM "));
            assert_true(weir__table_literal(&sql, TABLE_POSTGRES, &values[i], weir__str(types[i])));
            assert_true(weir__buffer_add(&sql, "", 1));
            if (try_statement(&p, (table_statement){ .sql = sql.ptr,
                                                     .values = &values[i],
                                                     .values_count = 1 }) != WEIR_OK) {
                fail_msg("%s: %s", sql.ptr, p.err.message);
            }
            expect_str(p.r.cells[0].text, "t");
            weir__buffer_free(&sql);
        }
    }
    place_close(&p);
}

static void rows_that_were_written_are_counted(void **state)
{
    place p = place_open(*state, test_server());
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY, state text)");
    run(&p, "INSERT INTO jobs SELECT i, 'a' FROM generate_series(1, 3) AS i");
    assert_int_equal(p.r.changed, 3);
    run(&p, "UPDATE jobs SET state = 'b' WHERE id < 3 RETURNING id");
    assert_int_equal(p.r.changed, 2);
    assert_int_equal(p.r.rows_count, 2);
    run(&p, "SELECT * FROM jobs");
    assert_int_equal(p.r.changed, 0);
    assert_int_equal(p.r.rows_count, 3);
    place_close(&p);
}

/* ---- transactions and locks ------------------------------------------------------------------ */

static void a_transaction_is_all_or_nothing(void **state)
{
    place p = place_open(*state, test_server());
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_EMISUSE);
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    assert_true(weir__table_in_transaction(p.s));
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_EMISUSE);
    run(&p, "INSERT INTO jobs VALUES (1)");
    weir__table_rollback(p.s);
    weir__table_rollback(p.s);
    assert_false(weir__table_in_transaction(p.s));
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "INSERT INTO jobs VALUES (2)");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_OK);
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "INSERT INTO jobs VALUES (3)");
    assert_int_equal(try_sql(&p, "INSERT INTO jobs VALUES (2)"), WEIR_EIO);
    assert_string_equal(p.err.store_code, "23505");
    /* The server would answer COMMIT without an error here. */
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_EIO);
    assert_false(weir__table_in_transaction(p.s));
    expect_sql(&p, "SELECT * FROM jobs", "{\"id\":2}");
    place_close(&p);
}

static void a_lock_is_waited_for_as_long_as_was_said(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    table_statement lock = { .sql = "SELECT id FROM jobs FOR UPDATE", .wait_us = SECOND / 5 };
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    run(&p, "INSERT INTO jobs VALUES (1)");
    test_exec(t->conn, "BEGIN; SELECT * FROM jobs FOR UPDATE");
    for (int inside = 0; inside < 2; inside++) {
        if (inside) {
            assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
        }
        const int64_t before = test_mono_us();
        assert_int_equal(try_statement(&p, lock), WEIR_EHELD);
        assert_true(test_mono_us() - before >= SECOND / 5);
        assert_string_equal(p.err.store_code, "55P03");
        weir__table_rollback(p.s);
        assert_false(weir__table_in_transaction(p.s));
    }
    assert_int_equal(try_sql(&p, "SELECT id FROM jobs FOR UPDATE NOWAIT"), WEIR_EHELD);
    test_exec(t->conn, "COMMIT");
    assert_int_equal(try_statement(&p, lock), WEIR_OK);
    expect_rows(&p, "{\"id\":1}");
    expect_sql(&p, "SHOW lock_timeout", "{\"lock_timeout\":\"0\"}");
    /* In a transaction: of that statement alone. */
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    assert_int_equal(try_statement(&p, lock), WEIR_OK);
    expect_sql(&p, "SHOW lock_timeout", "{\"lock_timeout\":\"0\"}");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_OK);
    /* One that waits and is not in a transaction is committed. */
    assert_int_equal(
        try_statement(&p, (table_statement){ .sql = "DELETE FROM jobs", .wait_us = SECOND }),
        WEIR_OK);
    assert_int_equal(p.r.changed, 1);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM jobs"), 0);
    place_close(&p);
}

typedef struct waiter {
    place *p;
    weir_status status;
} waiter;

static void *wait_for_row(void *arg)
{
    waiter *w = arg;
    w->status = weir__table_run(
        w->p->s,
        &(table_statement){ .sql = "UPDATE jobs SET n = n + 1 WHERE id = 1", .wait_us = -1 },
        &w->p->r, &w->p->err);
    return NULL;
}

static const char waits_for_lock[] =
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %d AND "
    "wait_event_type = 'Lock')";

static void who_waits_for_ever_gets_the_lock(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    /* Although a quick answer was asked for. */
    snprintf(url, sizeof url, "%s&timeout=200ms", test_server());
    place p = place_open(t, url);
    waiter w = { .p = &p };
    pthread_t thread;
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY, n integer)");
    run(&p, "INSERT INTO jobs VALUES (1, 0), (2, 0)");
    test_exec(t->conn, "BEGIN; SELECT * FROM jobs FOR UPDATE");
    assert_int_equal(pthread_create(&thread, NULL, wait_for_row, &w), 0);
    const int64_t start = test_mono_us();
    assert_true(test_wait(t->conn, 120, waits_for_lock, PQbackendPID(weir__table_native(p.s))));
    while (test_mono_us() - start < SECOND) {
        test_exec(t->conn, "SELECT pg_sleep(0.1)");
    }
    test_exec(t->conn, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(w.status, WEIR_OK);
    assert_int_equal(p.r.changed, 1);
    place_close(&p);
}

/* A statement without an answer in time is cancelled: then it is known that it did not happen. */
static void a_statement_that_takes_too_long_is_cancelled(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    snprintf(url, sizeof url, "%s&timeout=300ms", test_server());
    place p = place_open(t, url);
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    assert_int_equal(
        try_sql(&p, "WITH s AS (SELECT pg_sleep(60)) INSERT INTO jobs SELECT 1 FROM s"), WEIR_EIO);
    assert_string_equal(p.err.store_code, "57014");
    expect_sql(&p, "SELECT count(*) AS n FROM jobs", "{\"n\":0}");
    place_close(&p);
}

static void a_deadlock_is_a_conflict(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    waiter w = { .p = &p };
    pthread_t thread;
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY, n integer)");
    run(&p, "INSERT INTO jobs VALUES (1, 0), (2, 0)");
    run(&p, "SET deadlock_timeout = '100ms'");
    test_exec(t->conn, "SET deadlock_timeout = '1h'; BEGIN; UPDATE jobs SET n = 1 WHERE id = 1");
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "UPDATE jobs SET n = 2 WHERE id = 2");
    PGconn *look = test_connect(t);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_row, &w), 0);
    test_exec(t->conn, "UPDATE jobs SET n = 1 WHERE id = 2"); /* until the other one is undone */
    pthread_join(thread, NULL);
    assert_int_equal(w.status, WEIR_ECONFLICT);
    assert_string_equal(p.err.store_code, "40P01");
    weir__table_rollback(p.s);
    test_exec(t->conn, "COMMIT");
    test_disconnect(t, look);
    /* The session is as good as new. */
    expect_sql(&p, "SELECT n FROM jobs ORDER BY id", "{\"n\":1}{\"n\":1}");
    place_close(&p);
}

/* ---- lost connections ------------------------------------------------------------------------ */

static void terminate(pg_test *t, const place *p)
{
    const int pid = PQbackendPID(weir__table_native(p->s));
    test_exec(t->conn, "SELECT pg_terminate_backend(%d)", pid);
    assert_true(test_wait(t->conn, 120,
                          "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %d)", pid));
}

static void a_session_that_was_ended_while_idle_sends_nothing(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    terminate(t, &p);
    assert_int_equal(try_sql(&p, "INSERT INTO jobs VALUES (1)"), WEIR_EUNAVAILABLE);
    assert_null(weir__table_native(p.s));
    /* And stays so: whatever it held is gone. */
    assert_int_equal(try_sql(&p, "SELECT 1"), WEIR_EUNAVAILABLE);
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_EUNAVAILABLE);
    assert_false(weir__table_in_transaction(p.s));
    weir__table_rollback(p.s);
    place_close(&p);
}

static void a_session_that_was_ended_inside_a_transaction_has_done_nothing(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    waiter w = { .p = &p };
    pthread_t thread;
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY, n integer)");
    run(&p, "INSERT INTO jobs VALUES (1, 0)");
    test_exec(t->conn, "BEGIN; SELECT * FROM jobs FOR UPDATE");
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    const int pid = PQbackendPID(weir__table_native(p.s));
    PGconn *look = test_connect(t);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_row, &w), 0);
    assert_true(test_wait(look, 120, waits_for_lock, pid));
    test_exec(look, "SELECT pg_terminate_backend(%d)", pid);
    pthread_join(thread, NULL);
    assert_int_equal(w.status, WEIR_EUNAVAILABLE);
    test_exec(t->conn, "COMMIT");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_EUNAVAILABLE);
    assert_int_equal(test_number(t->conn, "SELECT n FROM jobs"), 0);
    place_close(&p);
}

static place place_by_proxy(pg_test *t, const proxy *way)
{
    char url[TEST_URL_BYTES];
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres", proxy_host(way));
    return place_open(t, url);
}

static void C38_an_answer_that_is_lost_is_not_known(void **state)
{
    pg_test *t = *state;
    proxy *way = proxy_start();
    place p = place_by_proxy(t, way);
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    proxy_cut_answer(way, "INSERT INTO jobs");
    assert_int_equal(try_sql(&p, "INSERT INTO jobs VALUES (1)"), WEIR_EUNKNOWN);
    assert_int_equal(proxy_cuts(way), 1);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM jobs"), 1);
    place_close(&p);
    proxy_stop(way);
}

/* Looking at a table does nothing, so the claim goes on over another connection. */
static void C41_a_look_at_a_table_that_is_cut_is_repeated(void **state)
{
    pg_test *t = *state;
    proxy *way = proxy_start();
    place p = place_by_proxy(t, way);
    weir_arena arena = { 0 };
    table_info info;
    run(&p, "CREATE TABLE public.looked_at (id integer PRIMARY KEY)");
    proxy_cut_answer(way, "to_regclass");
    assert_int_equal(
        weir__table_describe(p.s, weir__str("public.looked_at"), &arena, &info, &p.err), WEIR_OK);
    assert_int_equal(proxy_cuts(way), 1);
    assert_int_equal(info.columns_count, 1);
    run(&p, "INSERT INTO public.looked_at VALUES (1)");
    /* Not in a transaction: what was done in it is gone. */
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "INSERT INTO public.looked_at VALUES (2)");
    proxy_cut_request(way, "to_regclass");
    assert_int_equal(
        weir__table_describe(p.s, weir__str("public.looked_at"), &arena, &info, &p.err),
        WEIR_EUNAVAILABLE);
    assert_int_equal(try_sql(&p, "SELECT 1"), WEIR_EUNAVAILABLE);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM public.looked_at"), 1);
    weir__arena_free(&arena);
    place_close(&p);
    proxy_stop(way);
    test_exec(t->conn, "DROP TABLE public.looked_at");
}

static void C38_a_commit_whose_answer_is_lost_is_not_known(void **state)
{
    pg_test *t = *state;
    proxy *way = proxy_start();
    place p = place_by_proxy(t, way);
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "INSERT INTO jobs VALUES (1)");
    proxy_cut_answer(way, "COMMIT");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_EUNKNOWN);
    place_close(&p);
    /* The same in the transaction that a limited wait makes around a statement. */
    p = place_by_proxy(t, way);
    proxy_cut_answer(way, "COMMIT");
    assert_int_equal(try_statement(&p, (table_statement){ .sql = "INSERT INTO jobs VALUES (2)",
                                                          .wait_us = SECOND }),
                     WEIR_EUNKNOWN);
    assert_int_equal(proxy_cuts(way), 2);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM jobs"), 2);
    place_close(&p);
    proxy_stop(way);
}

static void no_server_and_no_sense(void **state)
{
    place p = place_open(*state, test_server());
    table_db *db = NULL;
    table_session *s = NULL;
    assert_int_equal(
        weir__table_open(&db, &(table_options){ .url = "postgres:///x?host=/nowhere" }, &p.err),
        WEIR_OK);
    assert_int_equal(weir__table_session_open(db, &s, &p.err), WEIR_EUNAVAILABLE);
    weir__table_close(db);
    db = NULL;
    assert_int_equal(
        weir__table_open(&db, &(table_options){ .url = "postgres://h/x?nonsense=1" }, &p.err),
        WEIR_EINVAL);
    assert_null(db);
    place_close(&p);
}

/* ---- connections of the caller's own --------------------------------------------------------- */

static void a_connection_of_the_callers_is_left_as_it_is(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    PGconn *own = test_connect(t);
    table_session *s = p.s;
    test_exec(own, "SET search_path = %s; SET lock_timeout = '7s'", t->schema);
    assert_int_equal(weir__table_session_adopt(&p.s, TABLE_POSTGRES, own, &p.err), WEIR_OK);
    assert_false(weir__table_in_transaction(p.s));
    test_exec(own, "BEGIN");
    assert_true(weir__table_in_transaction(p.s));
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_EMISUSE);
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_EMISUSE);
    weir__table_rollback(p.s);
    assert_true(weir__table_in_transaction(p.s));
    assert_int_equal(try_statement(&p, (table_statement){ .sql = "INSERT INTO jobs VALUES (1)",
                                                          .wait_us = SECOND }),
                     WEIR_OK);
    assert_string_equal(test_text(own, "SHOW lock_timeout"), "7s");
    expect_sql(&p, "SELECT * FROM jobs", "{\"id\":1}");
    weir__table_session_close(p.s);
    assert_int_equal(PQtransactionStatus(own), PQTRANS_INTRANS);
    test_exec(own, "COMMIT");
    test_exec(own, "SET datestyle = 'German'");
    assert_int_equal(weir__table_session_adopt(&p.s, TABLE_POSTGRES, own, &p.err), WEIR_EMISUSE);
    expect_message(&p, "DateStyle");
    p.s = s;
    expect_sql(&p, "SELECT * FROM jobs", "{\"id\":1}");
    place_close(&p);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void a_table_is_described(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    table_info info;
    char shown[200];
    run(&p, "CREATE TYPE mood AS ENUM ('sad', 'glad')");
    run(&p, "CREATE TABLE \"Mixed Case\" (b varchar(3) NOT NULL, dropped integer, \"a\"\"x\" mood,"
            " c char(4), n numeric(10,2), at timestamptz, g integer GENERATED ALWAYS AS (1) STORED,"
            " i integer GENERATED ALWAYS AS IDENTITY, d integer GENERATED BY DEFAULT AS IDENTITY,"
            " PRIMARY KEY (\"a\"\"x\", b) INCLUDE (n))");
    run(&p, "ALTER TABLE \"Mixed Case\" DROP COLUMN dropped");
    described(&p, "Mixed Case", &info);
    snprintf(shown, sizeof shown, "%s.Mixed Case", t->schema);
    expect_str(info.shown, shown);
    snprintf(shown, sizeof shown, "\"%s\".\"Mixed Case\"", t->schema);
    expect_str(info.quoted, shown);
    assert_int_equal(info.id, test_number(t->conn, "SELECT '\"Mixed Case\"'::regclass::oid"));
    assert_false(info.partitioned);
    assert_int_equal(info.columns_count, 8);
    expect_str(info.columns[0].type, "character varying");
    expect_str(info.columns[1].name, "a\"x");
    expect_str(info.columns[1].quoted, "\"a\"\"x\"");
    expect_str(info.columns[1].type, "mood");
    expect_str(info.columns[2].type, "bpchar");
    expect_str(info.columns[4].type, "timestamp with time zone");
    assert_true(info.columns[0].not_null);
    assert_false(info.columns[2].not_null);
    assert_true(info.columns[5].generated);
    assert_true(info.columns[6].generated);
    assert_false(info.columns[7].generated);
    assert_int_equal(info.key_count, 2);
    assert_int_equal(info.key[0], 1);
    assert_int_equal(info.key[1], 0);
    assert_int_equal(info.columns[3].key, 0);
    place_close(&p);
}

static void C39_names_are_exact(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    table_info info;
    char name[200];
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY)");
    run(&p, "CREATE TABLE \"Jobs\" (id integer PRIMARY KEY)");
    run(&p, "CREATE TABLE \"odd.na\"\"me; --\" (id integer PRIMARY KEY)");
    described(&p, "jobs", &info);
    const uint64_t jobs = info.id;
    described(&p, "Jobs", &info);
    assert_true(info.id != jobs);
    assert_int_equal(describe(&p, "JOBS", &info), WEIR_ENOTFOUND);
    expect_message(&p, "\"Jobs\"");
    expect_message(&p, "\"jobs\"");
    snprintf(name, sizeof name, "%s.\"odd.na\"\"me; --\"", t->schema);
    described(&p, name, &info);
    described(&p, "\"odd.na\"\"me; --\"", &info);
    run(&p, "SET search_path = public");
    assert_int_equal(describe(&p, "jobs", &info), WEIR_ENOTFOUND);
    snprintf(name, sizeof name, "%s.jobs\"", t->schema);
    expect_message(&p, name);
    assert_int_equal(describe(&p, "nowhere.jobs", &info), WEIR_ENOTFOUND);
    place_close(&p);
}

static void what_is_no_table_is_refused_by_name(void **state)
{
    place p = place_open(*state, test_server());
    table_info info;
    run(&p, "CREATE TABLE parts (id integer, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE "
            "(day)");
    run(&p, "CREATE TABLE keyless (id integer)");
    run(&p, "CREATE TABLE columnless ()");
    run(&p, "CREATE VIEW v AS SELECT * FROM parts");
    run(&p, "CREATE MATERIALIZED VIEW m AS SELECT * FROM parts");
    run(&p, "CREATE SEQUENCE s");
    run(&p, "CREATE FOREIGN DATA WRAPPER nothing");
    run(&p, "CREATE SERVER nothing FOREIGN DATA WRAPPER nothing");
    run(&p, "CREATE FOREIGN TABLE f (id integer) SERVER nothing");
    described(&p, "parts", &info);
    assert_true(info.partitioned);
    static const char *const refused[][2] = {
        { "v", "is a view" },
        { "m", "is a materialized view" },
        { "s", "is a sequence" },
        { "f", "is a foreign table" },
        { "parts_pkey", "is an index" },
        { "keyless", "no primary key" },
        { "columnless", "no primary key" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(describe(&p, refused[i][0], &info), WEIR_EINVAL);
        expect_message(&p, refused[i][1]);
    }
    run(&p, "DROP FOREIGN DATA WRAPPER nothing CASCADE");
    place_close(&p);
}

/* ---- cost ------------------------------------------------------------------------------------ */

static void a_statement_is_one_statement(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, test_server());
    run(&p, "CREATE TABLE jobs (id integer PRIMARY KEY, tags text[])");
    run(&p, "INSERT INTO jobs VALUES (1, '{a}')");
    test_statements_reset(t);
    run(&p, "UPDATE jobs SET tags = tags RETURNING *");
    assert_int_equal(test_statements(t, "%"), 1);
    place_close(&p);
}

static void a_lock_that_was_not_had_leaves_the_way_to_a_savepoint(void **state)
{
    place p = place_open(*state, test_server());
    run(&p, "CREATE TABLE held AS SELECT 1 AS id");
    PGconn *other = test_connect(*state);
    test_exec(other, "BEGIN; LOCK TABLE %s.held", p.t->schema);
    assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
    run(&p, "SAVEPOINT here");
    assert_int_equal(
        try_statement(&p, (table_statement){ .sql = "SELECT * FROM held", .wait_us = 1000 }),
        WEIR_EHELD);
    run(&p, "ROLLBACK TO SAVEPOINT here");
    expect_sql(&p, "SHOW lock_timeout", "{\"lock_timeout\":\"0\"}");
    assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_OK);
    place_close(&p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(every_type_as_json),
        PG_TEST(arrays_enums_and_domains),
        PG_TEST(C38_settings_of_the_role_change_nothing),
        PG_TEST(C38_behind_a_pooler_settings_change_nothing_either),
        PG_TEST(C39_values_are_parameters),
        PG_TEST(a_cell_is_equal_to_itself_as_a_value),
        PG_TEST(C39_literals_are_the_values_they_stand_for),
        PG_TEST(rows_that_were_written_are_counted),
        PG_TEST(a_transaction_is_all_or_nothing),
        PG_TEST(a_lock_is_waited_for_as_long_as_was_said),
        PG_TEST(who_waits_for_ever_gets_the_lock),
        PG_TEST(a_statement_that_takes_too_long_is_cancelled),
        PG_TEST(a_deadlock_is_a_conflict),
        PG_TEST(a_session_that_was_ended_while_idle_sends_nothing),
        PG_TEST(a_session_that_was_ended_inside_a_transaction_has_done_nothing),
        PG_TEST(C38_an_answer_that_is_lost_is_not_known),
        PG_TEST(C41_a_look_at_a_table_that_is_cut_is_repeated),
        PG_TEST(C38_a_commit_whose_answer_is_lost_is_not_known),
        PG_TEST(no_server_and_no_sense),
        PG_TEST(a_connection_of_the_callers_is_left_as_it_is),
        PG_TEST(a_table_is_described),
        PG_TEST(C39_names_are_exact),
        PG_TEST(what_is_no_table_is_refused_by_name),
        PG_TEST(a_statement_is_one_statement),
        PG_TEST(a_lock_that_was_not_had_leaves_the_way_to_a_savepoint),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
