/* roles_test.c - what a role that was granted something can break, on purpose: nothing that Weir
 * promises to others.
 *
 * Method: real sessions of real roles, each granted as weir init --grant does it, that call every
 * function as no program of Weir's would.
 */
#include "pg_support.h"

#include "store/postgres/check_server.h"
#include "store/postgres/postgres_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 4, ROLE_BYTES = TEST_SCHEMA_BYTES + 16 };

static const char *const kinds[KINDS] = { "reader", "writer", "worker", "operator" };

/* A role of its own, granted as `kind`, and a session of it. */
static PGconn *session_of(pg_test *t, const char *kind, char role[ROLE_BYTES])
{
    weir_buffer sql = { 0 };
    store_options o = test_options(t);
    (void)snprintf(role, ROLE_BYTES, "%s_%s", kind, t->schema);
    test_exec(t->conn, "CREATE ROLE \"%s\" LOGIN", role);
    TEST_OK(t, weir__postgres_grant(&o, weir__str(role), kind, false, &sql, &t->err));
    weir__buffer_free(&sql);
    PGconn *conn = test_connect(t);
    test_exec(conn, "SET SESSION AUTHORIZATION \"%s\"; SET search_path = \"%s\"", role, t->schema);
    return conn;
}

static void role_drop(pg_test *t, PGconn *conn, const char *role)
{
    test_disconnect(t, conn);
    test_exec(t->conn, "DROP OWNED BY \"%s\"; DROP ROLE \"%s\"", role, role);
}

static void assert_refused(PGconn *conn, const char *code, const char *statement)
{
    const char *got = test_refused(conn, "%s", statement);
    if (strcmp(got, code) != 0) {
        fail_msg("%s: %s, expected %s", statement, got, code);
    }
}

/* ---- who may call what ---------------------------------------------------------------------- */

static void each_kind_may_do_what_the_one_before_may_and_more(void **state)
{
    pg_test *t = *state;
    char roles[KINDS][ROLE_BYTES];
    PGconn *conns[KINDS];
    int64_t before = 0;
    (void)test_store(t);
    for (int i = 0; i < KINDS; i++) {
        conns[i] = session_of(t, kinds[i], roles[i]);
        const int64_t may = test_number(
            conns[i],
            "SELECT count(*) FROM pg_proc WHERE pronamespace = '\"%s\"'::regnamespace AND "
            "has_function_privilege(oid, 'EXECUTE')",
            t->schema);
        assert_true(may > before);
        before = may;
        /* No table, no sequence, nothing that could be put in the way of anybody. */
        assert_int_equal(
            test_number(conns[i],
                        "SELECT count(*) FROM pg_class AS c WHERE relnamespace = "
                        "'\"%s\"'::regnamespace AND (relkind = 'r' AND has_table_privilege(oid, "
                        "'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') OR "
                        "CASE WHEN relkind = 'S' THEN has_sequence_privilege(oid, "
                        "'USAGE, UPDATE') END)",
                        t->schema),
            0);
        assert_int_equal(
            test_number(conns[i], "SELECT has_schema_privilege('%s', 'CREATE')::int", t->schema),
            0);
        if (i > 0) {
            assert_int_equal(
                test_number(t->conn,
                            "SELECT count(*) FROM pg_proc WHERE pronamespace = "
                            "'\"%s\"'::regnamespace AND has_function_privilege('%s', oid, "
                            "'EXECUTE') AND NOT has_function_privilege('%s', oid, 'EXECUTE')",
                            t->schema, roles[i - 1], roles[i]),
                0);
        }
    }
    /* What runs with its caller's rights cannot write, so what is left is called from inside. */
    assert_string_equal(
        test_text(t->conn,
                  "SELECT string_agg(proname, ', ' ORDER BY proname) FROM pg_proc WHERE prosecdef "
                  "AND pronamespace = '\"%s\"'::regnamespace AND NOT has_function_privilege('%s', "
                  "oid, 'EXECUTE')",
                  t->schema, roles[KINDS - 1]),
        "unhandled");
    static const struct {
        int from; /* the first kind that may */
        const char *statement;
    } calls[] = {
        { 1, "SELECT append_one(0, 0, 's', 0, 0, 'N', '{}', '{}')" },
        { 0, "SELECT safe_prove(1)" },
        { 2, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)" },
        { 2, "SELECT lease('default', 'h', 1, 1, 1, 0, '{}', '{}', true, 0)" },
        { 2, "SELECT lock_take(false, 'n', 'h', 1000000)" },
        { 3, "SELECT operate(5, '{}', false, NULL, 'me')" },
        { 3, "SELECT operate_reset('{}', false, 0)" },
        { 3, "SELECT retire('r')" },
        { 3, "SELECT once_forget('k')" },
        { 4, "SELECT grant_role('postgres', 'operator')" },
        { 4,
          "SELECT append_each(0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', "
          "'{}', '{}', '{}', '{}')" },
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (int k = 0; k < KINDS; k++) {
            if (k < calls[i].from) {
                assert_refused(conns[k], "42501", calls[i].statement);
            } else {
                test_exec(conns[k], "%s", calls[i].statement);
            }
        }
    }
    for (int i = 0; i < KINDS; i++) {
        role_drop(t, conns[i], roles[i]);
    }
}

static void a_role_that_is_granted_less_has_less(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_buffer sql = { 0 };
    store_options o = test_options(t);
    (void)test_store(t);
    PGconn *conn = session_of(t, "operator", role);
    TEST_OK(t, weir__postgres_grant(&o, weir__str(role), "reader", false, &sql, &t->err));
    weir__buffer_free(&sql);
    assert_refused(conn, "42501", "SELECT append_one(0, 0, 's', 0, 0, 'N', '{}', '{}')");
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 0);
    role_drop(t, conn, role);
}

/* The owner's functions run with the rights that it has. */
static void the_owner_is_granted_nothing_and_loses_nothing(void **state)
{
    pg_test *t = *state;
    weir_buffer sql = { 0 };
    store_options o = test_options(t);
    weir_store *s = test_store(t);
    TEST_OK(t, weir__postgres_grant(&o, weir__str("postgres"), "reader", false, &sql, &t->err));
    weir__buffer_free(&sql);
    (void)test_put(t, s, "order-1", "Placed");
}

/* ---- positions ------------------------------------------------------------------------------ */

static int64_t last_seen(pg_test *t, weir_store *s)
{
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 1000, .bare = true };
    TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
    const int64_t last = chunk.events_count == 0 ? 0 : chunk.events[chunk.events_count - 1].id;
    weir__chunk_free(&chunk);
    return last;
}

static void says_that_all_is_final(PGconn *hostile)
{
    static const char *const begins[] = { "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ",
                                          "BEGIN ISOLATION LEVEL SERIALIZABLE" };
    for (int i = 0; i < 6; i++) {
        test_exec(hostile,
                  "%s; SELECT safe_advance(103); SELECT safe_prove(9223372036854775807); "
                  "SELECT safe_prove(103); COMMIT",
                  begins[i % 3]);
    }
}

static void C16_a_granted_role_cannot_make_readers_skip_an_event(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_store *s = test_store(t);
    PGconn *hostile = session_of(t, "operator", role);
    PGconn *slow = test_connect(t);
    const int64_t first = test_put(t, s, "a", "A");
    for (int prepared = 0; prepared < 2; prepared++) {
        const int64_t before = prepared == 0 ? first : last_seen(t, test_store(t));
        test_exec(slow, "BEGIN; SELECT %s.append_one(0, 0, 'b', 0, 0, 'A', '{}', '{}')", t->schema);
        if (prepared == 1) {
            test_exec(slow, "PREPARE TRANSACTION '%s'", t->schema);
        }
        const int64_t after = test_put(t, s, "a", "A");
        assert_int_equal(after, before + 2);
        says_that_all_is_final(hostile);
        assert_int_equal(test_number(t->conn, "SELECT position FROM %s.safe", t->schema), before);
        assert_int_equal(last_seen(t, test_store(t)), before); /* one that has seen nothing yet */
        if (prepared == 1) {
            test_exec(slow, "COMMIT PREPARED '%s'", t->schema);
        } else {
            test_exec(slow, "COMMIT");
        }
        says_that_all_is_final(hostile);
        assert_int_equal(test_number(t->conn, "SELECT position FROM %s.safe", t->schema), after);
        assert_int_equal(last_seen(t, test_store(t)), after);
    }
    role_drop(t, hostile, role);
}

/* A gap for ever, and at every moment somebody who appends: those who could own it are gone all
 * the same. */
static void C16_the_hint_moves_on_although_somebody_always_appends(void **state)
{
    pg_test *t = *state;
    (void)test_store(t);
    PGconn *one = test_connect(t);
    PGconn *other = test_connect(t);
    test_exec(one, "SET search_path = \"%s\"", t->schema);
    test_exec(other, "SET search_path = \"%s\"", t->schema);
    test_exec(one, "BEGIN; SELECT append_one(0, 0, 'a', 0, 0, 'A', '{}', '{}'); ROLLBACK");
    test_exec(one, "BEGIN; SELECT append_one(0, 0, 'a', 0, 0, 'A', '{}', '{}')"); /* 2 */
    int64_t top = 0;
    for (int i = 0; i < 4; i++) {
        PGconn *next = i % 2 == 0 ? other : one;
        test_exec(next, "BEGIN; SELECT append_one(0, 0, 'b%d', 0, 0, 'A', '{}', '{}')", i);
        test_exec(i % 2 == 0 ? one : other, "COMMIT");
        top = test_number(t->conn, "SELECT %s.safe_prove(9223372036854775807)", t->schema);
    }
    test_exec(one, "COMMIT");
    assert_true(top >= 3); /* 1 is the gap */
}

/* Nobody but readers follows the log. An old gap is behind all of them once one has read past it,
 * although somebody appends when the next one comes. */
static void C16_those_who_only_read_move_the_hint(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES], url[512];
    (void)test_store(t);
    PGconn *conn = session_of(t, "reader", role);
    PGconn *slow = test_connect(t);
    store_options o = test_options(t);
    o.open_flags = WEIR_OPEN_READONLY;
    (void)snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=%s",
                   getenv("WEIR_TEST_PG_DIR"), role);
    o.path = weir__str(url);
    test_exec(slow, "SET search_path = \"%s\"", t->schema);
    test_exec(slow, "BEGIN; SELECT append_one(0, 0, 'a', 0, 0, 'A', '{}', '{}'); ROLLBACK");
    test_exec(slow, "SELECT append_one(0, 0, 'a', 0, 0, 'A', '{}', '{}')"); /* 2; 1 is the gap */
    assert_int_equal(last_seen(t, test_store_with(t, &o)), 2);
    assert_int_equal(test_number(conn, "SELECT position FROM safe"), 2);
    test_exec(slow, "BEGIN; SELECT append_one(0, 0, 'b', 0, 0, 'A', '{}', '{}')"); /* 3 */
    assert_int_equal(last_seen(t, test_store_with(t, &o)), 2);
    test_exec(slow, "COMMIT");
    assert_int_equal(last_seen(t, test_store_with(t, &o)), 3);
    for (size_t i = 0; i < t->stores_count; i++) {
        t->stores[i]->about->close(t->stores[i]);
    }
    t->stores_count = 0;
    role_drop(t, conn, role);
}

/* ---- what an event is ----------------------------------------------------------------------- */

/* `call` with the name in place of its %s. */
static void call_with_name(char *sql, size_t bytes, const char *call, const char *name)
{
    const char *at = strstr(call, "%s");

    assert_non_null(at);
    (void)snprintf(sql, bytes, "%.*s%s%s", (int)(at - call), call, name, at + strlen("%s"));
}

static void C01_names_are_checked_by_the_database_as_well(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_store(t);
    PGconn *conn = session_of(t, "operator", role);
    static const char *const names[] = {
        "''",          "'$closed'",        "'$x'",
        "E'a\\nb'",    "E'a\\u0001'",      "E'a\\u007f'",
        "E'a\\u0085'", "repeat('x', 513)", "repeat('x', 3000)",
    };
    static const char *const calls[] = {
        "SELECT append_one(0, 0, 's', 0, 0, %s, '{}', '{}')",
        "SELECT append_one(0, 0, %s, 0, 0, 'N', '{}', '{}')",
        "SELECT append_one(16, 0, %s, 0, 0, 'N', '{}', '{}')",
        "SELECT append_one(16, 0, 'new', 0, 0, %s, '{}', '{}')",
        "SELECT append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', ARRAY[%s], '{0}', '{0}', '{1}', "
        "'{N}', "
        "'{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')",
        "SELECT append_batch(false, ARRAY[%s], '{0}', '{0}', '{1}', '{1}', '{1}', '{N}', "
        "'{\"{}\"}', '{\"{}\"}')",
        "SELECT append_batch(false, '{s}', '{0}', '{0}', '{1}', '{1}', '{1}', ARRAY[%s], "
        "'{\"{}\"}', '{\"{}\"}')",
        "SELECT append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{s}', '{0}', '{0}', '{1}', "
        "ARRAY[%s], "
        "'{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')",
        "SELECT append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{s}', '{0}', '{0}', '{1}', '{N}', "
        "'{\"{}\"}', '{\"{}\"}', '{1}', ARRAY[%s], '{1}')",
        "SELECT declare(%s, NULL, '*', 0, 'x', 0, false, 0)",
        "SELECT route('{1}', '{1}', '{0}', '{1}', '{target}', '{0}', '{0}', '{0}', ARRAY[%s], "
        "'{0}', '{*}', '{x}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{}')",
        "SELECT route('{1}', '{1}', '{0}', '{1}', ARRAY[%s], '{0}', '{0}', '{0}', '{default}', "
        "'{0}', '{*}', '{x}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{}')",
    };
    test_exec(conn, "SELECT append_one(0, 0, 's', 0, 0, 'N', '{}', '{}')");
    test_exec(conn, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)");
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            char sql[512];
            call_with_name(sql, sizeof sql, calls[c], names[n]);
            const char *code = test_refused(conn, "%s", sql);
            if (strcmp(code, "WR002") != 0) {
                fail_msg("%s: %s", sql, code);
            }
        }
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 1);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM streams"), 1);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM targets"), 0);
    /* What is allowed, up to the limit. */
    test_exec(conn,
              "SELECT append_one(0, 0, repeat('x', 512), 0, 0, repeat('y', 512), '{}', '{}')");
    test_exec(conn,
              "SELECT append_one(0, 0, E'Gr\\u00f6\\u00dfe \\u20ac', 0, 0, 'a b', '{}', '{}')");
    /* Further lists that are read line by line. */
    assert_refused(conn, "WR002", "SELECT declare('q', ARRAY[E'a\\nb'], '*', 0, 'x', 0, false, 0)");
    assert_refused(conn, "WR002", "SELECT declare('q', NULL, '*', 9, 'x', 0, false, 0)");
    assert_refused(conn, "2201B", "SELECT declare('q', NULL, '/(/', 0, 'x', 0, false, 0)");
    assert_refused(
        conn, "WR002",
        "SELECT worker_beat('w', 'h', 1, ARRAY[E'a\\nb'], '{}', '{}', false, 1, 1, 1, '')");
    assert_refused(conn, "WR002", "SELECT lock_take(false, E'a\\nb', 'h', 1)");
    role_drop(t, conn, role);
}

/* Both are shown to operators. A source may be a pattern, so that it may begin with a dollar; a
 * value is empty where the rule has none. */
static void C01_sources_and_values_are_checked_by_the_database_as_well(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "worker", role);
    static const char *const texts[] = {
        "''",          "E'a\\nb'", "E'\\u001b[2J'",     "E'a\\u007f'",
        "E'a\\u0085'", "NULL",     "repeat('x', 2000)", "repeat('x', 513)",
    };
    static const char *const calls[] = {
        "SELECT route('{1}', '{1}', '{0}', '{1}', '{t}', '{0}', '{0}', '{0}', '{default}', '{0}', "
        "ARRAY[%s], '{x}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{}')",
        "SELECT route('{1}', '{1}', '{0}', '{1}', '{t}', '{0}', '{0}', '{0}', '{default}', '{0}', "
        "'{*}', ARRAY[%s], '{1}', '{1}', '{}', '{}', '{}', '{}', '{}')",
    };
    test_exec(conn, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)");
    for (size_t c = 0; c < 2; c++) {
        for (size_t n = c; n < sizeof texts / sizeof texts[0]; n++) {
            char sql[512];
            call_with_name(sql, sizeof sql, calls[c], texts[n]);
            assert_refused(conn, "WR002", sql);
        }
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM targets"), 0);
    assert_int_equal(test_number(conn, "SELECT sum(routed) FROM reactions"), 0);
    test_exec(conn, "SELECT route('{1}', '{1}', '{0}', '{0}', '{t}', '{0}', '{0}', '{0}', "
                    "'{default}', '{0}', '{$x}', ARRAY[repeat('x', 512)], '{1}', '{1}', '{}', "
                    "'{}', '{}', '{}', '{}')");
    test_exec(conn, "SELECT route('{1}', '{1}', '{0}', '{0}', '{t}', '{0}', '{0}', '{0}', "
                    "'{default}', '{0}', ARRAY[repeat('x', 512)], '{\"\"}', '{1}', '{1}', '{}', "
                    "'{}', '{}', '{}', '{}')");
    role_drop(t, conn, role);
}

static void C02_data_and_meta_are_checked_by_the_database_as_well(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_store(t);
    PGconn *conn = session_of(t, "writer", role);
    static const struct {
        const char *code, *data, *meta;
    } wrong[] = {
        { "WR002", "'{}'", "'[]'" },
        { "WR002", "'{}'", "'1'" },
        { "WR002", "E'{\\n}'", "'{}'" },
        { "WR002", "E'{\"a\":1}\\n'", "'{}'" },
        { "WR002", "E'\\r{}'", "'{}'" },
        { "WR002", "'{}'", "E'{\\n}'" },
        { "WR002", "to_json(repeat('x', 33554432))", "'{}'" },
        { "22P05", "'{\"a\":\"\\u0000\"}'", "'{}'" },
        { "22P02", "'\"\\ud800\"'", "'{}'" },
        { "22P05", "'{}'", "'{\"a\":\"\\u0000\"}'" },
    };
    test_exec(conn, "SELECT append_one(0, 0, 's', 0, 0, 'N', '{}', '{}')");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        static const char *const streams[] = { "s", "new" }; /* a way of its own for each */
        for (size_t j = 0; j < 2; j++) {
            char sql[512];
            (void)snprintf(sql, sizeof sql, "SELECT append_one(16, 0, '%s', 0, 0, 'N', %s, %s)",
                           streams[j], wrong[i].data, wrong[i].meta);
            assert_refused(conn, wrong[i].code, sql);
        }
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 1);
    /* An escaped backslash before u0000, digits that no number type holds: as they are. */
    test_exec(conn,
              "SELECT append_one(0, 0, 's', 0, 0, 'N', '{\"a\":\"\\\\u0000\",\"n\":1e999999}', "
              "'{\"b\":\"\\u00e9\"}')");
    assert_string_equal(test_text(conn, "SELECT data FROM events ORDER BY id DESC LIMIT 1"),
                        "{\"a\":\"\\\\u0000\",\"n\":1e999999}");
    role_drop(t, conn, role);
}

/* ---- versions and streams ------------------------------------------------------------------- */

/* Versions are counted by the database, and streams are named by number: whatever the numbers say,
 * nothing is written but the next version of a stream that was named, once. */
static void C08_a_batch_that_is_numbered_wrongly_is_refused(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_store *s = test_store(t);
    PGconn *conn = session_of(t, "writer", role);
    /* head_names, stream_appends, stream_heads, event_streams of two events. */
    static const struct {
        const char *names, *appends, *heads, *events;
    } wrong[] = {
        { "{a,a}", "{1,2}", "{1,2}", "{1,2}" }, /* a stream named twice */
        { "{a,b}", "{1,2}", "{1,3}", "{1,2}" }, /* no such head */
        { "{a,b}", "{1,2}", "{1,0}", "{1,2}" },
        { "{a,b}", "{1,2}", "{1,NULL}", "{1,2}" },
        { "{a,b}", "{1,2}", "{1}", "{1,2}" },
        { "{a,b}", "{1,2}", "[2:3]={1,2}", "{1,2}" },
        { "{a,b}", "[0:1]={1,2}", "{1,2}", "{1,2}" },
        { "{a,b}", "{1,NULL}", "{1,2}", "{1,2}" },
        { "{a,b}", "{1,0}", "{1,2}", "{1,2}" },
        { "{a,b}", "{1,2}", "{1,2}", "{1,3}" }, /* no such stream */
        { "{a,b}", "{1,2}", "{1,2}", "{1,NULL}" },
        { "{a,b}", "{1,2}", "{1,2}", "{1}" },
        { "[0:1]={a,b}", "{1,2}", "{1,2}", "{1,2}" },
        { "{{a,b}}", "{1,2}", "{1,2}", "{1,2}" },
        { "{a,NULL}", "{1,2}", "{1,2}", "{1,2}" },
        { "{}", "{1,2}", "{1,2}", "{1,2}" },
    };
    (void)test_put(t, s, "a", "A");
    (void)test_put(t, s, "b", "A");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char sql[512];
        (void)snprintf(
            sql, sizeof sql,
            "SELECT append_batch(false, '%s', '{0,0}', '{0,0}', '%s', '%s', '%s', '{N,N}', "
            "'{\"{}\",\"{}\"}', '{\"{}\",\"{}\"}')",
            wrong[i].names, wrong[i].appends, wrong[i].heads, wrong[i].events);
        const char *code = test_refused(conn, "%s", sql);
        if (strcmp(code, "WR002") != 0 && strcmp(code, "23505") != 0) {
            fail_msg("%zu: %s", i, code);
        }
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 2);
    /* A stream that is closed gets nothing, whosever event it is said to be. */
    test_exec(conn,
              "SELECT append_any(0, 0, 0, '{3}', '{}', '{}', '{1}', '{b}', '{0}', '{0}', '{1}', "
              "'{$closed}', '{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')");
    test_exec(
        conn,
        "SELECT append_batch(false, '{a,b}', '{0,0}', '{0,0}', '{1,2,1}', '{1,2,2}', '{2,3}', "
        "'{N,N}', '{\"{}\",\"{}\"}', '{\"{}\",\"{}\"}')");
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 3);
    test_exec(conn,
              "SELECT append_batch(false, '{a,b}', '{0,0}', '{0,0}', '{1,2}', '{1,2}', '{1,2}', "
              "'{N,N}', '{\"{}\",\"{}\"}', '{\"{}\",\"{}\"}')");
    assert_int_equal(test_number(conn, "SELECT version FROM streams WHERE name = 'b'"), 1);
    /* As it should be, and it goes through. */
    test_exec(conn,
              "SELECT append_batch(false, '{a}', '{0}', '{0}', '{1,2}', '{1,1}', '{1,2}', '{N,N}', "
              "'{\"{}\",\"{}\"}', '{\"{}\",\"{}\"}')");
    assert_int_equal(test_number(conn, "SELECT version FROM streams WHERE name = 'a'"), 3);
    role_drop(t, conn, role);
}

/* Marks the first event for a target. */
static void mark_first(PGconn *conn, const char *target)
{
    test_exec(conn,
              "SELECT route('{1}', '{1}', '{0}', '{0}', '{%s}', '{0}', '{0}', '{0}', '{default}', "
              "'{0}', '{*}', '{%s}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{}')",
              target, target);
}

/* Reaction 1 and target 1, behind by one event and leased with fence 1. */
static void lease_of_x(PGconn *conn)
{
    test_exec(conn, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)");
    mark_first(conn, "x");
    test_exec(conn, "SELECT lease('default', 'h', 60000000, 2, 2, 0, '{}', '{}', true, 0)");
}

/* flags, streams' appends, names, expects and versions, events' streams and names, changes */
static const char *const misfits[] = {
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{5}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{5}', '{k}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{0}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{-1}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{NULL}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, NULL, '{k}', '{2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j,k}', '{1,2}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{NULL}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{3}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{NULL}', '{2}'",
    "'{0}', %s, '{1}', '[5:5]={thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{{thief}}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{NULL}', '{0}', '{0}', '{}', '{}', '{}', '{}', '{1}', '{k}', '{2}'",
    "'{0}', %s, '{1}', '{$own}', '{0}', '{0}', '{}', '{}', '{}', '{}', '{1}', '{j}', '{1}'",
    "'{0}', %s, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{1}', '{k}', '{2}'",
    "'{0}', %s, '{7}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{NULL}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{NULL}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{2}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{NULL}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0}', %s, '{1}', '{thief}', '{0}', '{0}', '{}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{NULL}', %s, '{1}', '{thief}', '{0}', '{0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    /* of two appends: the stream of the other */
    "'{0,0}',%s,'{1,2}','{b,t}','{0,0}','{0,0}','{1}','{N}',%s,'{2,1}','{j,k}','{1,2}'",
    "'{0,0}', %s, '{2,1}', '{b,t}', '{0,0}', '{0,0}', '{1}', '{N}', %s, '{1}', '{j}', '{1}'",
    "'{0,0}',%s,'{1,2}','{b,t}','{0,0}','{0,0}','{2,1}','{N,N}','{1,1}','{1,1}','{}','{}','{}'",
};

/* The lists of a call name streams by their number: a change whose stream is none has no owner that
 * could be compared. Here by each way to get there: out of range, NULL, lists of different lengths,
 * lists that do not begin with 1 or have two dimensions, another append's stream. */
static void C10_a_granted_role_cannot_take_the_key_of_another_stream(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_store *s = test_store(t);
    PGconn *conn = session_of(t, "worker", role);
    test_exec(conn,
              "SELECT append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{own}', '{0}', '{0}', '{1}', "
              "'{N}', '{\"{}\"}', '{\"{}\"}', '{1}', '{k}', '{1}')");
    test_exec(conn,
              "SELECT append_any(0, 0, 0, '{3}', '{}', '{}', '{1}', '{own}', '{0}', '{0}', '{1}', "
              "'{$closed}', '{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')");
    (void)test_put(t, s, "b", "A");
    lease_of_x(conn);
    static const char *const settle = ", 1, 1, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', false, "
                                      "0, 0, '', 1, 60000000, 0";
    for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
        char keys[1024];
        char lists[1024];
        char sql[2048];
        call_with_name(keys, sizeof keys, misfits[i], "'{}', '{}'");
        if (strstr(keys, "%s") == NULL) {
            (void)snprintf(lists, sizeof lists, "%s", keys);
        } else {
            call_with_name(lists, sizeof lists, keys, "'{\"{}\"}', '{\"{}\"}'");
        }
        (void)snprintf(sql, sizeof sql, "SELECT append_any(0, 0, 0, %s)", lists);
        assert_refused(conn, "WR002", sql);
        (void)snprintf(sql, sizeof sql, "SELECT settle_with(0, 0, 0, %s, NULL, NULL%s)", lists,
                       settle);
        assert_refused(conn, "WR002", sql);
    }
    assert_string_equal(
        test_text(conn, "SELECT string_agg(key || ' ' || stream, ', ') FROM reserved"), "k own");
    assert_int_equal(test_number(conn, "SELECT count(*) FROM streams"), 2);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events"), 3);
    /* And by the rules. */
    assert_int_equal(
        test_number(conn,
                    "SELECT status FROM append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{thief}', "
                    "'{0}', '{0}', '{1}', '{N}', '{\"{}\"}', '{\"{}\"}', '{1}', '{k}', "
                    "'{2}')"),
        WEIR_ETAKEN);
    role_drop(t, conn, role);
}

static void C11_a_stream_is_closed_by_its_last_event_alone(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_store *s = test_store(t);
    PGconn *conn = session_of(t, "writer", role);
    static const char *const calls[] = {
        /* closed, without the event */
        "SELECT append_any(0, 0, 0, '{3}', '{}', '{}', '{1}', '{a}', '{0}', '{0}', '{1}', '{N}', "
        "'{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')",
        /* the event, without closing */
        "SELECT append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{a}', '{0}', '{0}', '{1}', "
        "'{$closed}', '{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')",
        /* two streams at once, of which one is looked at */
        "SELECT append_any(0, 0, 0, '{3}', '{}', '{}', '{1,1}', '{a,b}', '{0,0}', '{0,0}', "
        "'{1,2}', "
        "'{$closed,$closed}', '{\"{}\",\"{}\"}', '{\"{}\",\"{}\"}', '{}', '{}', '{}')",
    };
    (void)test_put(t, s, "a", "A");
    (void)test_put(t, s, "b", "A");
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_refused(conn, "WR002", calls[i]);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM streams WHERE closed"), 0);
    test_exec(conn,
              "SELECT append_any(0, 0, 0, '{3}', '{}', '{}', '{1}', '{a}', '{0}', '{0}', '{1}', "
              "'{$closed}', '{\"{}\"}', '{\"{}\"}', '{}', '{}', '{}')");
    assert_string_equal(test_text(conn, "SELECT name FROM streams WHERE closed"), "a");
    role_drop(t, conn, role);
}

/* Nothing lies beyond the end of the log: events that come to lie there would be passed over. */
static void C25_nothing_is_routed_beyond_the_end_of_the_log(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "worker", role);
    test_exec(conn, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)");
    static const struct {
        const char *step, *park;
    } wrong[] = {
        { "'{1}', '{1}', '{0}', '{2}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{9223372036854775807}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{-1}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{NULL}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{NULL}', '{1}'", "'{}', '{}', '{}'" },
        { "'{1}', '{NULL}', '{0}', '{1}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{1,2}'", "'{}', '{}', '{}'" },
        { "'{1}', '{1}', '{0}', '{1}'", "'{0}', '{2}', '{e}'" },
        { "'{1}', '{1}', '{0}', '{1}'", "'{0}', '{0}', '{e}'" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        static const char *const places[] = { "", ", 0", ", NULL" };
        for (size_t p = 0; p < 3; p++) {
            char sql[512];
            (void)snprintf(sql, sizeof sql,
                           "SELECT route(%s, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', "
                           "'{}', '{}', '{}', %s%s)",
                           wrong[i].step, wrong[i].park, places[p]);
            assert_refused(conn, "WR003", sql);
        }
    }
    /* first, last; the single events of the mark */
    static const char *const marks[] = {
        "'{1}', '{2}', '{}', '{}'",          "'{2}', '{2}', '{}', '{}'",
        "'{1}', '{9000000000}', '{}', '{}'", "'{2}', '{1}', '{}', '{}'",
        "'{0}', '{1}', '{}', '{}'",          "'{-9223372036854775808}', '{1}', '{}', '{}'",
        "'{NULL}', '{1}', '{}', '{}'",       "'{1}', '{NULL}', '{}', '{}'",
        "'{1}', '{1}', '{0}', '{2}'",        "'{1}', '{1}', '{0}', '{NULL}'",
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        char sql[512];
        (void)snprintf(sql, sizeof sql,
                       "SELECT route('{1}', '{1}', '{0}', '{1}', '{x}', '{0}', '{0}', '{0}', "
                       "'{default}', '{0}', '{*}', '{x}', %s, '{}', '{}', '{}', 0)",
                       marks[i]);
        assert_refused(conn, "WR003", sql);
    }
    static const char *const starts[] = { "2", "9000000000000", "-5", "NULL" };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        char sql[128];
        (void)snprintf(sql, sizeof sql, "SELECT declare('soon', NULL, '*', 0, 'x', %s, false, 0)",
                       starts[i]);
        assert_refused(conn, "WR002", sql);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM reactions"), 1);
    assert_int_equal(test_number(conn, "SELECT sum(routed) FROM reactions"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM targets"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM parked"), 0);
    /* Up to the end. */
    test_exec(conn, "SELECT route('{1}', '{1}', '{0}', '{1}', '{x}', '{0}', '{0}', '{0}', "
                    "'{default}', '{0}', '{*}', '{x}', '{1}', '{1}', '{}', '{}', '{0}', '{1}', "
                    "'{e}', 0)");
    assert_int_equal(test_number(conn, "SELECT routed FROM reactions WHERE id = 1"), 1);
    role_drop(t, conn, role);
}

/* ---- leases --------------------------------------------------------------------------------- */

static void C24_what_no_fence_allows_is_not_moved(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "worker", role);
    test_exec(conn, "SELECT declare('r', NULL, '*', 0, 'x', 0, false, 0)");
    mark_first(conn, "x");
    mark_first(conn, "y");
    test_exec(conn, "SELECT lease('default', 'h', 60000000, 2, 2, 0, '{}', '{}', true, 0)");
    static const char *const calls[] = {
        "SELECT settle(1, NULL, 0, '{1}', '{1}', '{}', '{}', '{}', '{}', '{}', false, 0, 0, '', 0, "
        "0, "
        "0)",
        "SELECT settle(1, 2, 0, '{1}', '{1}', '{}', '{}', '{}', '{}', '{}', false, 0, 0, '', 0, 0, "
        "0)",
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_refused(conn, "WR011", calls[i]);
    }
    /* By a turn: without a fence, by a list that is too short, of a target that is not settled. */
    test_exec(
        conn,
        "SELECT turn('{1}', '{NULL}', '{0}', '{1}', '{1}', '{1}', 'default', 'h', 1, 0, 0, 0, "
        "'{}', '{}', true, 0)");
    test_exec(conn,
              "SELECT turn('{1}', '{}', '{}', '{1}', '{1}', '{1}', 'default', 'h', 1, 0, 0, 0, "
              "'{}', '{}', true, 0)");
    test_exec(conn,
              "SELECT turn('{}', '{}', '{}', '{1}', '{1}', '{1}', 'default', 'h', 1, 0, 0, 0, "
              "'{}', '{}', true, 0)");
    test_exec(conn,
              "SELECT turn('{2}', '{1}', '{0}', '{1}', '{1}', '{1}', 'default', 'h', 1, 0, 0, 0, "
              "'{}', '{}', true, 0)");
    assert_int_equal(test_number(conn, "SELECT max(at) FROM subscriptions WHERE target = 1"), 0);
    role_drop(t, conn, role);
}

/* ---- workers -------------------------------------------------------------------------------- */

static void a_worker_that_cannot_be_read_is_refused_and_hides_no_other(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    weir_store *s = test_store(t);
    PGconn *conn = session_of(t, "worker", role);
    static const char *const wrong[] = {
        "'h', 1, '{default}', '{1}', '{}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, '{default}', '{NULL}', '{NULL}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, '{default}', '{1}', '{NULL}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, '{default}', '{{1},{2}}', '{{1},{2}}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, '{NULL}', '{}', '{}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, NULL, NULL, NULL, false, 60000000, 60000000, 10, '{}'",
        "NULL, 1, '{}', '{}', '{}', false, 60000000, 60000000, 10, '{}'",
        "'h', 1, '{}', '{}', '{}', false, NULL, 60000000, 10, '{}'",
        "'h', 1, '{}', '{}', '{}', false, 60000000, 60000000, 10, NULL",
        /* Kept for less than no time, everybody would be forgotten. */
        "'h', 1, '{}', '{}', '{}', false, 60000000, -9000000000000, 10, '{}'",
        "'h', 1, '{}', '{}', '{}', false, -2, 60000000, 10, '{}'",
        "'h', 1, '{}', '{}', '{}', false, 60000000, 60000000, -1, '{}'",
    };
    test_exec(conn, "SELECT worker_beat('other', 'h', 1, '{}', '{}', '{}', false, 60000000, "
                    "60000000, 10, '{}')");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char sql[256];
        (void)snprintf(sql, sizeof sql, "SELECT worker_beat('w', %s)", wrong[i]);
        assert_refused(conn, "WR002", sql);
    }
    assert_string_equal(test_text(conn, "SELECT string_agg(name, ' ') FROM workers"), "other");
    test_exec(conn, "SELECT worker_beat('other', 'h', 1, '{}', '{}', '{}', false, 0, 0, 10, '{}')");
    static const char beat[] = "SELECT worker_beat('%s', 'h', 1, '{default}', '{7}', '{8}', false, "
                               "60000000, 60000000, 10, '{}')";
    test_exec(conn, beat, "a");
    test_exec(conn, beat, "b");
    /* As an earlier Weir let one write it. */
    test_exec(t->conn,
              "UPDATE %s.workers SET reactions = '{NULL,7}', numbers = '{}', lanes = '{NULL}' "
              "WHERE name = 'a'",
              t->schema);
    store_worker_list list = { 0 };
    TEST_OK(t, s->about->workers(s, &list, &t->err));
    assert_int_equal(list.workers_count, 2);
    assert_int_equal(list.workers[0].known_count, 0);
    assert_int_equal(list.workers[1].known_count, 1);
    assert_int_equal(list.workers[1].known[0].number, 8);
    weir__arena_free(&list.arena);
    role_drop(t, conn, role);
}

/* ---- what doctor would call damage ---------------------------------------------------------- */

static void what_looks_like_damage_is_not_let_in(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "worker", role);
    static const char *const prints[] = { "NULL", "''", "'\\x00'", "repeat('x', 33)::bytea" };
    for (size_t i = 0; i < sizeof prints / sizeof prints[0]; i++) {
        for (int options = 0; options < 2; options++) { /* a way of its own for each */
            char sql[512];
            (void)snprintf(
                sql, sizeof sql,
                "SELECT append_any(%d, 0, 1000000, '{0}', '{k}', ARRAY[%s]::bytea[], '{1}', "
                "'{a}', '{0}', '{0}', '{1}', '{N}', '{\"{}\"}', '{\"{}\"}', '{}', "
                "'{}', '{}')",
                options, prints[i]);
            assert_refused(conn, "WR002", sql);
        }
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM keys"), 0);
    /* An event that does not exist, set aside. */
    lease_of_x(conn);
    assert_refused(conn, "WR006",
                   "SELECT settle(1, 1, 0, '{}', '{}', '{1}', '{888888}', '{1}', '{e}', '{}', "
                   "false, 0, 0, '', 0, 0, 0)");
    assert_int_equal(test_number(conn, "SELECT count(*) FROM parked"), 0);
    test_exec(conn, "SELECT settle(1, 1, 0, '{}', '{}', '{1}', '{1}', '{1}', '{e}', '{}', false, "
                    "0, 0, '', 0, 0, 0)");
    assert_int_equal(test_number(conn, "SELECT count(*) FROM parked"), 1);
    static const char *const calls[] = {
        "SELECT snapshot_put('a', 9223372036854775807, 'r', '')",
        "SELECT snapshot_put('a', 1, 'r', '')",
        "SELECT snapshot_put('a', -1, 'r', '')",
        "SELECT snapshot_put('a', NULL, 'r', '')",
        "SELECT snapshot_put('nowhere', 0, 'r', '')",
        "SELECT snapshot_put('nowhere', 9223372036854775807, 'r', '')",
        "SELECT snapshot_put(E'a\nb', 0, 'r', '')",
        "SELECT lock_take(false, 'n', E'h\x1b[2J', 1000000)",
        "SELECT lock_take(false, 'n', repeat('h', 600), 1000000)",
        "SELECT lock_take(false, 'n', 'h', -1)",
        "SELECT lock_take(true, 'n', 'h', NULL)",
        "SELECT lock_extend(false, 'n', 1, 0, -1)",
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_refused(conn, "WR002", calls[i]);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM locks"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM snapshots"), 0);
    test_exec(conn, "SELECT snapshot_put('a', 0, 'r', '')");
    test_exec(conn, "SELECT lock_take(false, 'n', 'h', 1000000)");
    role_drop(t, conn, role);
}

/* What others read on a terminal, or have to hold in memory. */
static void C01_holders_and_sizes_are_checked_by_the_database_as_well(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "operator", role); /* may do what a worker may */
    static const char *const holders[] = { "E'h\x1b[2J'", "E'h\nx'", "repeat('h', 513)", "NULL" };
    static const char *const calls[] = {
        "SELECT lease('default', %s, 60000000, 2, 2, 0, '{}', '{}', true, 0)",
        "SELECT turn('{}', '{}', '{}', '{}', '{}', '{}', 'x', %s, 1, 2, 2, 0, '{}', '{}', true, 0)",
        "SELECT router_lease(%s, 60000000, '{1}', '{0}')",
        "SELECT worker_beat('w', %s, 1, '{}', '{}', '{}', false, 60000000, 60000000, 10, '{}')",
        "SELECT lane_pause('default', true, %s)",
    };
    lease_of_x(conn);
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (size_t h = 0; h < sizeof holders / sizeof holders[0]; h++) {
            char sql[512];
            call_with_name(sql, sizeof sql, calls[c], holders[h]);
            assert_refused(conn, "WR002", sql);
        }
    }
    static const char *const sizes[] = {
        "SELECT settle(1, 1, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', true, 1, 1, "
        "repeat('e', 4097), 0, 0, 0)",
        "SELECT settle(1, 1, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', true, 1, 1, NULL, 0, 0, "
        "0)",
        "SELECT settle(1, 1, 0, '{}', '{}', '{1}', '{1}', '{1}', ARRAY[repeat('e', 4097)], '{}', "
        "false, 0, 0, '', 0, 0, 0)",
        "SELECT settle(1, 1, 0, '{}', '{}', '{1}', '{1}', '{1}', '{NULL}', '{}', false, 0, 0, '', "
        "0, 0, 0)",
        "SELECT route('{1}', '{1}', '{0}', '{1}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', "
        "'{}', '{}', '{}', '{}', '{0}', '{1}', ARRAY[repeat('e', 4097)])",
        "SELECT once_finish('k', 1, 0, 0, repeat('o', 1048577)::bytea)",
        "SELECT once_finish('k', 1, 0, NULL, '')",
        "SELECT once_finish('k', 1, 0, 0, NULL)",
        "SELECT declare('q', NULL, '*', 0, repeat('x', 1025), 0, false, 0)",
        "SELECT declare('q', NULL, '*', 0, E'x\n', 0, false, 0)",
        "SELECT declare('q', NULL, '*', 0, NULL, 0, false, 0)",
        "SELECT declare('q', NULL, '*', 0, 'x', 0, false, -1)",
        "SELECT declare('q', NULL, '*', 0, 'x', 0, false, NULL)",
        "SELECT worker_beat('w', 'h', -1, '{}', '{}', '{}', false, 60000000, 60000000, 10, '{}')",
        "SELECT worker_beat('w', 'h', 1, '{}', '{}', '{}', false, 60000000, 60000000, 10, "
        "repeat('m', 16385))",
        "SELECT worker_beat('w', 'h', 1, '{}', '{}', '{}', false, 60000000, 60000000, 10, "
        "E'{\n}')",
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_refused(conn, "WR002", sizes[i]);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM parked"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM workers"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM reactions"), 1);
    test_exec(conn, "SELECT lock_take(true, 'k', 'h', 60000000)");
    test_exec(conn, "SELECT once_finish('k', fence, 0, 0, repeat('o', 1048576)::bytea) FROM locks");
    test_exec(conn, "SELECT settle(1, 1, 0, '{}', '{}', '{1}', '{1}', '{1}', "
                    "ARRAY[repeat('e', 4096)], '{}', true, 1, 1, repeat('e', 4096), 1, 1, 0)");
    role_drop(t, conn, role);
}

static void lists_that_do_not_fit_together_are_refused(void **state)
{
    pg_test *t = *state;
    char role[ROLE_BYTES];
    (void)test_put(t, test_store(t), "a", "A");
    PGconn *conn = session_of(t, "worker", role);
    lease_of_x(conn);
    /* One that does, for a reaction that the target does not have, behind one that is NULL; and
     * lists that do not fit together. */
    assert_refused(conn, "WR006",
                   "SELECT settle(1, 1, 0, '{NULL}', '{1}', '{7}', '{1}', '{1}', '{e}', '{}', "
                   "false, 0, 0, '', 0, 0, 0)");
    static const char *const lists[] = {
        "'{1}', '{}', '{}', '{}', '{}', '{}'",
        "'{1}', '{NULL}', '{}', '{}', '{}', '{}'",
        "'{}', '{}', '{1}', '{1,1}', '{1}', '{e}'",
        "'{}', '{}', '{1}', '{1}', '{}', '{e}'",
        "'{}', '{}', '{1}', '{1}', '{1}', '{}'",
        "'{}', '{}', '[0:1]={1,1}', '{1,1}', '{1,1}', '{e,e}'",
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char sql[512];
        (void)snprintf(sql, sizeof sql,
                       "SELECT settle(1, 1, 0, %s, '{}', false, 0, 0, '', 0, 0, 0)", lists[i]);
        assert_refused(conn, "WR002", sql);
    }
    /* What nobody would be told of: a dry run that writes, a list with one too many. */
    static const char *const appends[] = {
        "append_one(4, 0, 'n', 0, 0, 'E', '{}', '{}')",
        "append_one(NULL, 0, 'n', 0, 0, 'E', '{}', '{}')",
        "append_one(0, 50, NULL, 0, 0, 'E', '{}', '{}')",
        "append_batch(false, '{n}', '{0,0}', '{0,0}', '{1}', '{1}', '{1}', '{E}', "
        "ARRAY['{}'::json], ARRAY['{}'::json])",
        "append_batch(false, '{n}', '{0}', '{0}', '{1}', '{1}', '{1}', '{E}', "
        "ARRAY['{}'::json, '{}'], ARRAY['{}'::json])",
    };
    for (size_t i = 0; i < sizeof appends / sizeof appends[0]; i++) {
        char sql[512];
        (void)snprintf(sql, sizeof sql, "SELECT %s", appends[i]);
        assert_refused(conn, "WR002", sql);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM events WHERE stream = 'n'"), 0);
    /* Marks, events and events set aside of what is not there: passed over, they would be lost. */
    static const char *const routes[] = {
        "'{y}', '{1}', '{0}', '{0}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{NULL}', '{0}', '{0}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{1}', '{0}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{NULL}', '{0}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{1}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{}'%s'{}', '{}', '{}', '{}', '{}'",
        "'[0:0]={y}', '{0}', '{0}', '{0}'%s'{}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{1}', '{1}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{NULL}', '{1}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{0}', '{}', '{}', '{}', '{}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{}', '{}', '{1}', '{1}', '{e}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{}', '{}', '{NULL}', '{1}', '{e}'",
        "'{y}', '{0}', '{0}', '{0}'%s'{}', '{}', '{0}', '{1}', '{}'",
    };
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        char marks[512];
        char sql[1024];
        call_with_name(marks, sizeof marks, routes[i],
                       ", '{default}', '{0}', '{*}', '{y}', '{1}', '{1}', ");
        (void)snprintf(sql, sizeof sql, "SELECT route('{1}', '{1}', '{0}', '{1}', %s)", marks);
        assert_refused(conn, "WR003", sql);
    }
    assert_int_equal(test_number(conn, "SELECT count(*) FROM parked"), 0);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM targets"), 1);
    assert_int_equal(test_number(conn, "SELECT routed FROM reactions WHERE id = 1"), 0);
    role_drop(t, conn, role);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(each_kind_may_do_what_the_one_before_may_and_more),
        PG_TEST(a_role_that_is_granted_less_has_less),
        PG_TEST(the_owner_is_granted_nothing_and_loses_nothing),
        PG_TEST(C16_a_granted_role_cannot_make_readers_skip_an_event),
        PG_TEST(C16_the_hint_moves_on_although_somebody_always_appends),
        PG_TEST(C16_those_who_only_read_move_the_hint),
        PG_TEST(C01_names_are_checked_by_the_database_as_well),
        PG_TEST(C01_sources_and_values_are_checked_by_the_database_as_well),
        PG_TEST(C02_data_and_meta_are_checked_by_the_database_as_well),
        PG_TEST(C08_a_batch_that_is_numbered_wrongly_is_refused),
        PG_TEST(C10_a_granted_role_cannot_take_the_key_of_another_stream),
        PG_TEST(C11_a_stream_is_closed_by_its_last_event_alone),
        PG_TEST(C25_nothing_is_routed_beyond_the_end_of_the_log),
        PG_TEST(C24_what_no_fence_allows_is_not_moved),
        PG_TEST(what_looks_like_damage_is_not_let_in),
        PG_TEST(C01_holders_and_sizes_are_checked_by_the_database_as_well),
        PG_TEST(lists_that_do_not_fit_together_are_refused),
        PG_TEST(a_worker_that_cannot_be_read_is_refused_and_hides_no_other),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
