/* conformance_postgres.c - the conformance kit on the PostgreSQL store.
 *
 * A place is a schema in the database of WEIR_TEST_POSTGRES (see tests/postgres/with-server). What
 * the store does is looked at from outside, on a plain connection.
 *
 * The clock of the kit governs the store: one that is opened with another clock than the machine's
 * puts a function in the place of the database's clock, and tells each session the time.
 */
#include "kit.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { QUIET_TRIES = 200, QUIET_PAUSE_US = 10 * 1000 };

/* The place of the test that is running: own_write is not told. */
static char current[KIT_PLACE_BYTES];

static const char *server(void)
{
    const char *url = getenv("WEIR_TEST_POSTGRES");
    if (url == NULL || url[0] == '\0') {
        fprintf(stderr, "WEIR_TEST_POSTGRES is not set: run this by tests/postgres/with-server\n");
        exit(2);
    }
    return url;
}

/* The connection from outside, one for all tests. */
static PGconn *look(void)
{
    static PGconn *conn;
    if (conn == NULL) {
        conn = PQconnectdb(server());
    }
    if (PQstatus(conn) != CONNECTION_OK) {
        fprintf(stderr, "could not connect to the test's server: %s", PQerrorMessage(conn));
        exit(2);
    }
    return conn;
}

/* The number a query gives; 0 when it cannot be asked, for want of the table. */
static int64_t number(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    int64_t count = 0;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
        count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    }
    PQclear(result);
    return count;
}

static bool command(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    const ExecStatusType status = PQresultStatus(result);
    const bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok) {
        print_error("%s  by: %s\n", PQerrorMessage(conn), sql);
    }
    PQclear(result);
    return ok;
}

static bool postgres_create(char place[KIT_PLACE_BYTES])
{
    static unsigned count;
    snprintf(place, KIT_PLACE_BYTES, "weir_kit_%ld_%u", (long)getpid(), ++count);
    memcpy(current, place, KIT_PLACE_BYTES);
    /* Statistics are of this test, and there are never so many that the server throws some away. */
    return command(look(), "SET client_min_messages = warning;"
                           "CREATE EXTENSION IF NOT EXISTS pg_stat_statements;"
                           "SELECT pg_stat_statements_reset()");
}

static weir_status postgres_open(const char *place, const store_options *options, weir_store **out,
                                 weir_error *err)
{
    store_options o = *options;
    o.path = weir__str(server());
    o.schema = weir__str(place);
    return weir__postgres_open(out, &o, err);
}

/* Connections of callers that a test has not ended. */
enum { OWN_MAX = 8 };
static PGconn *own[OWN_MAX];

static void own_close(void)
{
    for (size_t i = 0; i < OWN_MAX; i++) {
        PQfinish(own[i]);
        own[i] = NULL;
    }
}

/* A handle that still holds a lock of the schema would hang the test: that is an error as well. */
static void postgres_destroy(const char *place)
{
    char sql[2 * KIT_PLACE_BYTES + 128];
    own_close();
    snprintf(sql, sizeof sql,
             "SET lock_timeout = '20s'; DROP SCHEMA IF EXISTS %s CASCADE;"
             "DROP SCHEMA IF EXISTS %s_own CASCADE",
             place, place);
    if (!command(look(), sql)) {
        exit(3);
    }
}

static void postgres_url(const char *place, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s%cschema=%s", server(), strchr(server(), '?') == NULL ? '?' : '&',
             place);
}

/* No transaction that was open when we looked stays open. Those that come and go are no one's to
 * wait for: a store sends its wake-ups in the background. */
static bool postgres_quiet(const char *place)
{
    enum { SEEN_BYTES = 8192 };
    static char seen[SEEN_BYTES];
    static char sql[SEEN_BYTES + 512];
    const char *const open = "SELECT coalesce(string_agg(pid || '@' || xact_start, ' '), '') "
                             "FROM pg_stat_activity WHERE datname = current_database() "
                             "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL "
                             "AND application_name ~ '^(weir|conformance)'";
    (void)place;
    PGresult *result = PQexec(look(), open);
    const bool asked = PQresultStatus(result) == PGRES_TUPLES_OK;
    snprintf(seen, sizeof seen, "%s", asked ? PQgetvalue(result, 0, 0) : "?");
    PQclear(result);
    if (!asked || seen[0] == '\0') {
        return asked;
    }
    snprintf(sql, sizeof sql, "%s AND pid || '@' || xact_start = ANY (string_to_array('%s', ' '))",
             open, seen);
    for (int i = 0; i < QUIET_TRIES; i++) {
        result = PQexec(look(), sql);
        const bool none =
            PQresultStatus(result) == PGRES_TUPLES_OK && PQgetvalue(result, 0, 0)[0] == '\0';
        PQclear(result);
        if (none) {
            return true;
        }
        usleep(QUIET_PAUSE_US);
    }
    return false;
}

/* Pages of tables and indexes that leasing has looked at so far. */
static uint64_t postgres_steps(weir_store *s, void *native)
{
    (void)s;
    return (uint64_t)number(native, "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)"
                                    "::bigint FROM pg_stat_statements "
                                    "WHERE query ~ '\\mlease\\(' AND toplevel");
}

/* Rows that were changed leave dead ones behind: leasing steps over them until autovacuum comes. */
static void postgres_tidy(const char *place)
{
    char sql[KIT_PLACE_BYTES + 64];
    snprintf(sql, sizeof sql, "VACUUM (ANALYZE) %s.targets", place);
    assert_true(command(look(), sql));
}

static bool postgres_own_write(void *native)
{
    char sql[3 * KIT_PLACE_BYTES + 256];
    snprintf(sql, sizeof sql,
             "CREATE SCHEMA IF NOT EXISTS %s_own;"
             "CREATE TABLE IF NOT EXISTS %s_own.my_mails (sent text);"
             "INSERT INTO %s_own.my_mails VALUES ('now')",
             current, current, current);
    return command(native, sql);
}

static int64_t postgres_own_count(const char *place)
{
    char sql[KIT_PLACE_BYTES + 64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s_own.my_mails", place);
    return number(look(), sql);
}

static int64_t postgres_keys_count(const char *place, weir_store *s)
{
    char sql[KIT_PLACE_BYTES + 64];
    (void)s;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.keys", place);
    return number(look(), sql);
}

static int64_t postgres_workers_count(const char *place, weir_store *s)
{
    char sql[KIT_PLACE_BYTES + 64];
    (void)s;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.workers", place);
    return number(look(), sql);
}

static void *postgres_own_begin(const char *place, int64_t now_us)
{
    char sql[256];
    size_t i = 0;
    (void)place;
    while (i < OWN_MAX && own[i] != NULL) {
        i++;
    }
    if (i == OWN_MAX) {
        return NULL;
    }
    own[i] = PQconnectdb(server());
    snprintf(sql, sizeof sql,
             "SET application_name = 'a caller of its own';"
             "SELECT set_config('weir_test.clock', '%lld', false);"
             "SET client_min_messages = warning;",
             (long long)now_us);
    return command(own[i], sql) && command(own[i], "BEGIN") ? own[i] : NULL;
}

static bool postgres_own_end(void *native, bool commit)
{
    bool ended = false;
    for (size_t i = 0; i < OWN_MAX; i++) {
        if (own[i] == native) {
            PGresult *result = PQexec(native, commit ? "COMMIT" : "ROLLBACK");
            ended = strcmp(PQcmdStatus(result), commit ? "COMMIT" : "ROLLBACK") == 0;
            PQclear(result);
            PQfinish(native);
            own[i] = NULL;
        }
    }
    return ended;
}

/* ---- what is shown in another way here ---------------------------------------------------- */

/* The database's clock is everybody's. It is put ahead here; the process and its machine have no
 * say, in what time it is, when things happened, and how long a lease lasts. */
static void C04_the_clock_of_the_database_is_the_only_one(void **state)
{
    enum { SQL_BYTES = KIT_PLACE_BYTES + 256 };
    kit *k = *state;
    char sql[SQL_BYTES];
    const char *const put =
        "CREATE OR REPLACE FUNCTION %s.clock() RETURNS timestamptz LANGUAGE sql "
        "VOLATILE AS $$ SELECT '2101-01-01 00:00:00.000001+00'::timestamptz "
        "+ interval '%d microseconds' $$";
    const int64_t there = INT64_C(4133980800000001);
    store_options options = kit_options(k);
    options.clock = weir__clock_machine();
    k->store->about->close(k->store);
    k->store = NULL;
    KIT_OK(k, k->adapter->open(k->place, &options, &k->store, &k->err));
    snprintf(sql, sizeof sql, put, k->place, 0);
    assert_true(command(look(), sql));
    assert_int_equal(kit_now(k), there);
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    assert_int_equal(kit_log(k).events[0].created_us, there);
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_leased first = kit_lease_target(k, "lane", "s");
    assert_int_equal(first.until_us, there + KIT_LEASE_US);
    snprintf(sql, sizeof sql, put, k->place, KIT_LEASE_US - 1);
    assert_true(command(look(), sql));
    assert_true(kit_nothing_to_lease(k, "lane"));
    snprintf(sql, sizeof sql, put, k->place, KIT_LEASE_US);
    assert_true(command(look(), sql));
    assert_true(kit_lease_target(k, "lane", "s").fence > first.fence);
}

static kit_theme postgres_own(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C04_the_clock_of_the_database_is_the_only_one),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

int main(int argc, char **argv)
{
    static const kit_adapter adapter = {
        .name = "conformance_postgres",
        .features = KIT_DURABLE | KIT_PROCESSES | KIT_ECHOES,
        .create = postgres_create,
        .open = postgres_open,
        .destroy = postgres_destroy,
        .url = postgres_url,
        .quiet = postgres_quiet,
        .steps = postgres_steps,
        .tidy = postgres_tidy,
        .own_write = postgres_own_write,
        .own_count = postgres_own_count,
        .keys_count = postgres_keys_count,
        .workers_count = postgres_workers_count,
        .own_begin = postgres_own_begin,
        .own_end = postgres_own_end,
        .own = postgres_own,
    };
    (void)server();
    return kit_main(argc, argv, &adapter);
}
