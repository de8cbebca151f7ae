/* pg_support.h - what a test of the PostgreSQL store needs: a schema of its own, and plain libpq.
 *
 * The suites are run by with-server, which names the server in WEIR_TEST_POSTGRES. Every test gets
 * a schema that nobody else uses; stores and connections that were opened here are closed, and the
 * schema dropped, after it.
 *
 *     static void a_thing_is_so(void **state)
 *     {
 *         pg_test *t = *state;
 *         weir_store *s = test_store(t);                  (or: weir *w = test_weir(t);)
 *         ...
 *         test_exec(t->conn, "UPDATE %s.store SET ...", t->schema);
 *         assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 1);
 *     }
 *
 *     int main(int argc, char **argv)
 *     {
 *         static const struct CMUnitTest tests[] = { PG_TEST(a_thing_is_so) };
 *         return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
 *     }
 *
 * THREADS  Helpers assert, so they are for the test's own thread, unless they say otherwise.
 */
#ifndef WEIR_TESTS_POSTGRES_PG_SUPPORT_H
#define WEIR_TESTS_POSTGRES_PG_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "base/error.h"
#include "base/str.h"
#include "store/store.h"

enum { TEST_HANDLES_MAX = 64, TEST_URL_BYTES = 1024, TEST_SCHEMA_BYTES = 64 };

/* One test's surroundings: *state of every test. */
typedef struct pg_test {
    char schema[TEST_SCHEMA_BYTES]; /* nothing is there before a store is opened */
    char url[TEST_URL_BYTES];       /* the store's URL, the schema in it         */
    PGconn *conn;                   /* a plain connection, superuser             */
    weir_error err;                 /* of the last call that failed              */
    /* what is closed after the test */
    PGconn *conns[TEST_HANDLES_MAX];
    size_t conns_count;
    weir_store *stores[TEST_HANDLES_MAX];
    size_t stores_count;
    weir *weirs[TEST_HANDLES_MAX];
    size_t weirs_count;
} pg_test;

int test_setup(void **state);
int test_teardown(void **state);
#define PG_TEST(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)

/* Runs the tests; argv[1], when there, is a pattern of test names (* and ?). */
int test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* ---- plain SQL ---------------------------------------------------------------------------- */

/* The URL of the server, as with-server says it. Any thread. */
const char *test_server(void);
/* One more connection, closed after the test. */
PGconn *test_connect(pg_test *t);
void test_disconnect(pg_test *t, PGconn *conn);
/* Any number of statements; all must succeed. */
void test_exec(PGconn *conn, const char *format, ...) WEIR_PRINTF(2, 3);
/* One query; its rows, as text, ended by PQclear. */
PGresult *test_query(PGconn *conn, const char *format, ...) WEIR_PRINTF(2, 3);
/* The one number that a query gives; NULL is INT64_MIN. */
int64_t test_number(PGconn *conn, const char *format, ...) WEIR_PRINTF(2, 3);
/* The one text that a query gives, NULL: ""; until the next call. */
const char *test_text(PGconn *conn, const char *format, ...) WEIR_PRINTF(2, 3);
/* A statement that the server must refuse: with what SQLSTATE; until the next call. */
const char *test_refused(PGconn *conn, const char *format, ...) WEIR_PRINTF(2, 3);
/* Polls a query until it gives true, for at most `seconds`; false: it never did. */
bool test_wait(PGconn *conn, double seconds, const char *format, ...) WEIR_PRINTF(3, 4);

/* Statements that stores ran in this database since test_statements_reset, by pg_stat_statements:
 * those whose text is LIKE the pattern, top level ones only. What a handle asks by itself, a while
 * after it has written (safe_hint_head), counts only when the pattern names safe_prove. */
void test_statements_reset(pg_test *t);
int64_t test_statements(pg_test *t, const char *like);

/* ---- stores ------------------------------------------------------------------------------- */

/* The options of a store in the test's schema, with the machine's clock. */
store_options test_options(pg_test *t);
/* The same by way of this host; `more` is added to the URL. They stand until the next call. */
store_options test_options_by(pg_test *t, const char *host, const char *more);
/* One more handle, closed after the test. The first one creates the schema. */
weir_store *test_store(pg_test *t);
weir_store *test_store_with(pg_test *t, const store_options *options);
void test_store_close(pg_test *t, weir_store *s);
/* The same through the public functions. */
weir *test_weir(pg_test *t);
void test_weir_close(pg_test *t, weir *w);

/* A verb's status, with t->err shown when it is another than expected. */
#define TEST_IS(t, call, status) test_expect((t), (call), (status), #call, __FILE__, __LINE__)
#define TEST_OK(t, call)         TEST_IS(t, call, WEIR_OK)
void test_expect(pg_test *t, int32_t got, int32_t wanted, const char *call, const char *file,
                 int line);

/* One event named `name` with data {} to a stream, any version; its position. Asserts success. */
int64_t test_put(pg_test *t, weir_store *s, const char *stream, const char *name);
/* The same under an expectation. Any thread: it does not assert. *version, *id: what the event got,
 * or, on a conflict, the version that is there; may be NULL. */
weir_status test_try(weir_store *s, const char *stream, int32_t expect, int64_t at,
                     const char *name, int64_t *version, int64_t *id, weir_error *err);

/* ---- time --------------------------------------------------------------------------------- */

int64_t test_mono_us(void); /* the machine's monotonic clock. Any thread */
/* How long a storm lasts: `seconds`, or what WEIR_STORM_SECONDS says. */
int64_t test_storm_us(int64_t seconds);

#endif
