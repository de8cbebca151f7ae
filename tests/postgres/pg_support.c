/* pg_support.c - see pg_support.h. */
#include "pg_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SQL_BYTES = 16 * 1024, POLL_US = 2000 };

/* ---- plain SQL ---------------------------------------------------------------------------- */

const char *test_server(void)
{
    const char *url = getenv("WEIR_TEST_POSTGRES");
    if (url == NULL || url[0] == '\0') {
        fprintf(stderr, "WEIR_TEST_POSTGRES is not set: run this by tests/postgres/with-server\n");
        exit(2);
    }
    return url;
}

/* Where the server cannot be reached, no test can say anything: the program ends. */
static PGconn *connect_now(void)
{
    PGconn *conn = PQconnectdb(test_server());
    if (PQstatus(conn) != CONNECTION_OK) {
        fprintf(stderr, "could not connect to the test's server: %s", PQerrorMessage(conn));
        exit(2);
    }
    return conn;
}

PGconn *test_connect(pg_test *t)
{
    assert_true(t->conns_count < TEST_HANDLES_MAX);
    PGconn *conn = connect_now();
    t->conns[t->conns_count++] = conn;
    return conn;
}

void test_disconnect(pg_test *t, PGconn *conn)
{
    for (size_t i = 0; i < t->conns_count; i++) {
        if (t->conns[i] == conn) {
            t->conns[i] = t->conns[--t->conns_count];
            PQfinish(conn);
            return;
        }
    }
    fail_msg("not a connection of this test");
}

static PGresult *run(PGconn *conn, const char *format, va_list args) WEIR_PRINTF(2, 0);
static PGresult *run(PGconn *conn, const char *format, va_list args)
{
    static char sql[SQL_BYTES];
    const int len = vsnprintf(sql, sizeof sql, format, args);
    assert_true(len >= 0 && (size_t)len < sizeof sql);
    return PQexec(conn, sql);
}

/* Ends the test when the statement failed. */
static PGresult *must(PGconn *conn, PGresult *result, const char *format)
{
    const ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY) {
        print_error("%s\n  by: %s\n", PQerrorMessage(conn), format);
        PQclear(result);
        fail();
    }
    return result;
}

void test_exec(PGconn *conn, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PGresult *result = run(conn, format, args);
    va_end(args);
    PQclear(must(conn, result, format));
}

PGresult *test_query(PGconn *conn, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PGresult *result = run(conn, format, args);
    va_end(args);
    return must(conn, result, format);
}

int64_t test_number(PGconn *conn, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PGresult *result = must(conn, run(conn, format, args), format);
    va_end(args);
    assert_int_equal(PQntuples(result), 1);
    const int64_t number =
        PQgetisnull(result, 0, 0) ? INT64_MIN : strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

const char *test_text(PGconn *conn, const char *format, ...)
{
    static char text[SQL_BYTES];
    va_list args;
    va_start(args, format);
    PGresult *result = must(conn, run(conn, format, args), format);
    va_end(args);
    assert_int_equal(PQntuples(result), 1);
    assert_true((size_t)PQgetlength(result, 0, 0) < sizeof text);
    snprintf(text, sizeof text, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return text;
}

const char *test_refused(PGconn *conn, const char *format, ...)
{
    static char code[8];
    va_list args;
    va_start(args, format);
    PGresult *result = run(conn, format, args);
    va_end(args);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(code, sizeof code, "%s", state == NULL ? "" : state);
    const bool failed = PQresultStatus(result) == PGRES_FATAL_ERROR;
    PQclear(result);
    if (!failed) {
        print_error("was not refused: %s\n", format);
        fail();
    }
    return code;
}

bool test_wait(PGconn *conn, double seconds, const char *format, ...)
{
    static char sql[SQL_BYTES];
    const int64_t deadline = test_mono_us() + (int64_t)(seconds * 1000000);
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    assert_true(len >= 0 && (size_t)len < sizeof sql);
    for (;;) {
        PGresult *result = must(conn, PQexec(conn, sql), sql);
        const bool yes = PQntuples(result) > 0 && PQgetvalue(result, 0, 0)[0] == 't';
        PQclear(result);
        if (yes) {
            return true;
        }
        if (test_mono_us() >= deadline) {
            return false;
        }
        usleep(POLL_US);
    }
}

int64_t test_storm_us(int64_t seconds)
{
    const char *text = getenv("WEIR_STORM_SECONDS");
    return (text != NULL ? atoll(text) : seconds) * 1000000;
}

void test_statements_reset(pg_test *t)
{
    test_exec(t->conn, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    test_exec(t->conn, "SELECT pg_stat_statements_reset()");
}

int64_t test_statements(pg_test *t, const char *like)
{
    char *quoted = PQescapeLiteral(t->conn, like, strlen(like));
    assert_non_null(quoted);
    const int64_t calls =
        test_number(t->conn,
                    "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements "
                    "WHERE toplevel AND query LIKE %s AND query NOT LIKE '%%pg_stat_statements%%' "
                    "AND (query NOT LIKE '%%safe_prove(e.head)%%' OR %s LIKE '%%safe_prove%%') "
                    "AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    quoted, quoted);
    PQfreemem(quoted);
    return calls;
}

/* ---- stores ------------------------------------------------------------------------------- */

store_options test_options(pg_test *t)
{
    return (store_options){
        .path = weir__str(test_server()),
        .schema = weir__str(t->schema),
        .busy_us = INT64_C(10) * 1000 * 1000,
        .key_ttl_us = INT64_C(24) * 3600 * 1000 * 1000,
        .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
        .application = "weir-test",
        .clock = weir__clock_machine(),
    };
}

store_options test_options_by(pg_test *t, const char *host, const char *more)
{
    static char path[512];
    store_options options = test_options(t);
    snprintf(path, sizeof path, "postgres:///postgres?host=%s&user=postgres%s", host, more);
    options.path = weir__str(path);
    return options;
}

weir_store *test_store_with(pg_test *t, const store_options *options)
{
    assert_true(t->stores_count < TEST_HANDLES_MAX);
    weir_store *s = NULL;
    TEST_OK(t, weir__postgres_open(&s, options, &t->err));
    t->stores[t->stores_count++] = s;
    return s;
}

weir_store *test_store(pg_test *t)
{
    const store_options options = test_options(t);
    return test_store_with(t, &options);
}

void test_store_close(pg_test *t, weir_store *s)
{
    for (size_t i = 0; i < t->stores_count; i++) {
        if (t->stores[i] == s) {
            t->stores[i] = t->stores[--t->stores_count];
            s->about->close(s);
            return;
        }
    }
    fail_msg("not a store of this test");
}

weir *test_weir(pg_test *t)
{
    assert_true(t->weirs_count < TEST_HANDLES_MAX);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = t->url,
                                   .application = "weir-test" };
    weir *w = NULL;
    TEST_OK(t, weir_open(&options, &w, &t->err));
    t->weirs[t->weirs_count++] = w;
    return w;
}

void test_weir_close(pg_test *t, weir *w)
{
    for (size_t i = 0; i < t->weirs_count; i++) {
        if (t->weirs[i] == w) {
            t->weirs[i] = t->weirs[--t->weirs_count];
            weir_close(w);
            return;
        }
    }
    fail_msg("not a handle of this test");
}

void test_expect(pg_test *t, int32_t got, int32_t wanted, const char *call, const char *file,
                 int line)
{
    if (got != wanted) {
        print_error("%s:%d: %s\n  gave %s, expected %s%s%s\n", file, line, call,
                    weir_status_text(got), weir_status_text(wanted),
                    got == WEIR_OK ? "" : "; last error: ", got == WEIR_OK ? "" : t->err.message);
        _fail(file, line);
    }
}

weir_status test_try(weir_store *s, const char *stream, int32_t expect, int64_t at,
                     const char *name, int64_t *version, int64_t *id, weir_error *err)
{
    weir_error own = { .size = sizeof own };
    weir_error *const e = err != NULL ? err : &own;
    store_append_stream streams[] = {
        { .name = weir__str(stream), .expect = expect, .version = at },
    };
    const store_new_event events[] = {
        { .name = weir__str(name), .data = weir__str("{}"), .meta = weir__str("{}") },
    };
    store_append append = {
        .streams = streams, .streams_count = 1, .events = events, .events_count = 1, .err = e
    };
    store_append *one = &append;
    weir_status status = s->log->append(s, &one, 1, e);
    status = status != WEIR_OK ? status : append.status;
    if (status == WEIR_OK && version != NULL) {
        *version = streams[0].last;
    }
    if (status == WEIR_OK && id != NULL) {
        *id = streams[0].id;
    }
    if (status == WEIR_ECONFLICT && version != NULL) {
        *version = e->actual;
    }
    return status;
}

int64_t test_put(pg_test *t, weir_store *s, const char *stream, const char *name)
{
    int64_t id = 0;
    TEST_OK(t, test_try(s, stream, WEIR_EXPECT_ANY, 0, name, NULL, &id, &t->err));
    return id;
}

int64_t test_mono_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- the fixture -------------------------------------------------------------------------- */

int test_setup(void **state)
{
    static unsigned count;
    pg_test *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return -1;
    }
    t->err.size = sizeof t->err;
    snprintf(t->schema, sizeof t->schema, "weir_test_%ld_%u", (long)getpid(), ++count);
    const char *server = test_server();
    snprintf(t->url, sizeof t->url, "%s%cschema=%s", server, strchr(server, '?') ? '&' : '?',
             t->schema);
    t->conn = connect_now();
    *state = t;
    return 0;
}

int test_teardown(void **state)
{
    pg_test *t = *state;
    for (size_t i = 0; i < t->weirs_count; i++) {
        weir_close(t->weirs[i]);
    }
    for (size_t i = 0; i < t->stores_count; i++) {
        t->stores[i]->about->close(t->stores[i]);
    }
    for (size_t i = 0; i < t->conns_count; i++) {
        PQfinish(t->conns[i]);
    }
    /* A test may have killed this one, or left it in a transaction. */
    PQfinish(t->conn);
    t->conn = connect_now();
    char sql[256];
    snprintf(sql, sizeof sql,
             "SET client_min_messages = warning; SET lock_timeout = '20s'; "
             "DROP SCHEMA IF EXISTS %s CASCADE",
             t->schema);
    PGresult *result = PQexec(t->conn, sql);
    const bool dropped = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!dropped) {
        print_error("could not drop the schema: %s", PQerrorMessage(t->conn));
    }
    PQclear(result);
    PQfinish(t->conn);
    free(t);
    return dropped ? 0 : -1;
}

int test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    (void)test_server();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const char *slash = strrchr(argv[0], '/');
    return _cmocka_run_group_tests(slash == NULL ? argv[0] : slash + 1, tests, count, NULL, NULL);
}
