/* schema_test.c - creating, upgrading, refusing and protecting a store in PostgreSQL.
 *
 * Method: real processes that create and upgrade at once; a schema after this one is
 * pretended (weir__postgres_open_schema); a role without rights of its own tries everything.
 */
#include "append_support.h"

#include "store/postgres/check_server.h"
#include "store/postgres/postgres_private.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 16, URL_BYTES = TEST_URL_BYTES + 128 };

enum { NEXT = 4 }; /* the version after this one; main sees to it that it is */

/* What the next version adds: a table, a column with a default, an index. The functions are
 * replaced. The steps up to today's are put before it by main. */
static pg_schema_step steps_to_next[] = {
    { .version = 0 },
    { .version = 0 },
    { .version = NEXT,
      .change = "CREATE TABLE weir.made_up (x integer NOT NULL);"
                "INSERT INTO weir.made_up VALUES (3);"
                "ALTER TABLE weir.snapshots ADD COLUMN colour text NOT NULL DEFAULT 'none';"
                "CREATE INDEX snapshots_colour ON weir.snapshots (colour);" },
};
static const pg_schema schema_next = {
    .version = NEXT, .client_least = 1, .steps = steps_to_next, .steps_count = 3
};
static const pg_schema_step steps_broken[] = {
    { .version = NEXT,
      .change = "CREATE TABLE weir.made_up (x integer NOT NULL);"
                "INSERT INTO weir.no_such_table VALUES (2);" },
};
static const pg_schema schema_broken = {
    .version = NEXT, .client_least = 1, .steps = steps_broken, .steps_count = 1
};

static weir_status try_open(pg_test *t, const store_options *o, const pg_schema *schema)
{
    weir_store *store = NULL;
    const weir_status status = weir__postgres_open_schema(&store, o, schema, &t->err);
    if (store != NULL) {
        store->about->close(store);
    }
    return status;
}

static weir_status try_flags(pg_test *t, uint32_t flags)
{
    store_options o = test_options(t);
    o.open_flags = flags;
    return try_open(t, &o, &weir__pg_schema_current);
}

/* PROCESSES of them open at the same moment; how many could. */
static int open_at_once(pg_test *t, const pg_schema *schema)
{
    int gate[2];
    pid_t pids[PROCESSES];
    int succeeded = 0;
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            char byte;
            (void)close(gate[1]);
            (void)!read(gate[0], &byte, 1); /* until the gate is closed */
            store_options o = test_options(t);
            const weir_status status = try_open(t, &o, schema);
            if (status != WEIR_OK) {
                (void)fprintf(stderr, "# %s\n", t->err.message);
            }
            _exit(status == WEIR_OK ? 0 : 1);
        }
    }
    (void)close(gate[0]);
    (void)close(gate[1]);
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        succeeded += status == 0;
    }
    return succeeded;
}

static void sixteen_processes_at_once_create_one_store(void **state)
{
    pg_test *t = *state;
    assert_int_equal(open_at_once(t, &weir__pg_schema_current), PROCESSES);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM \"%s\".store", t->schema), 1);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM \"%s\".safe", t->schema), 1);
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
}

static void sixteen_processes_at_once_upgrade_once(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    test_store_close(t, s);
    assert_int_equal(open_at_once(t, &schema_next), PROCESSES);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM \"%s\".made_up", t->schema), 1);
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT);
    assert_int_equal(test_number(t->conn, "SELECT count(colour) FROM \"%s\".snapshots", t->schema),
                     0);
}

static void an_upgrade_that_fails_leaves_what_was_there(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    test_store_close(t, s);
    TEST_IS(t, try_open(t, &o, &schema_broken), WEIR_EIO);
    assert_non_null(strstr(t->err.message, "no_such_table"));
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT - 1);
    assert_string_equal(test_text(t->conn, "SELECT to_regclass('\"%s\".made_up')", t->schema), "");
    (void)test_put(t, test_store(t), "order-1", "Paid");
}

/* ---- an upgrade beside others --------------------------------------------------------------- */

/* Somebody has read a table of the store and left the transaction open. */
static PGconn *reader_open(pg_test *t)
{
    PGconn *reader = test_connect(t);
    test_exec(reader, "SET application_name = 'report'; BEGIN; SELECT count(*) FROM \"%s\".streams",
              t->schema);
    return reader;
}

static pid_t upgrade_begin(pg_test *t, int64_t busy_us)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        store_options o = test_options(t);
        o.busy_us = busy_us;
        o.application = "upgrade";
        const weir_status status = try_open(t, &o, &schema_next);
        const bool named = strstr(t->err.message, "application report") != NULL &&
                           strstr(t->err.detail, "pg_terminate_backend") != NULL;
        _exit(status == WEIR_OK ? 0 : status == WEIR_EBUSY && named ? 3 : 1);
    }
    return pid;
}

static int upgrade_end(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* It waits with nothing in hand but for moments: its own wait is no longer than that of others. */
static void C18_an_upgrade_that_waits_for_a_reader_stops_no_append(void **state)
{
    pg_test *t = *state;
    const int64_t second = 1000000, start_us = test_mono_us();
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    PGconn *reader = reader_open(t);
    const pid_t pid = upgrade_begin(t, 5 * second);
    while (test_mono_us() - start_us < 4 * second) {
        const int64_t before_us = test_mono_us();
        (void)test_put(t, s, "order-1", "Paid");
        assert_true(test_mono_us() - before_us < 3 * second);
        usleep(20000);
    }
    assert_int_equal(upgrade_end(pid), 3); /* it was given up, and said for whom */
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT - 1);

    const pid_t again = upgrade_begin(t, 60 * second);
    usleep(300000);
    test_disconnect(t, reader);
    assert_int_equal(upgrade_end(again), 0); /* it waited */
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT);
    (void)test_put(t, test_store(t), "order-1", "Paid");
}

static void C18_an_upgrade_that_is_killed_lets_go(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    (void)reader_open(t);
    const pid_t pid = upgrade_begin(t, 60 * INT64_C(1000000));
    assert_true(test_wait(t->conn, 30,
                          "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = "
                          "'upgrade' AND wait_event_type = 'Lock'"));
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)upgrade_end(pid);
    assert_true(test_wait(t->conn, 10,
                          "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = "
                          "'upgrade'"));
    (void)test_put(t, s, "order-1", "Paid");
}

static void a_missing_store_is_not_found_and_nothing_is_made(void **state)
{
    pg_test *t = *state;
    TEST_IS(t, try_flags(t, WEIR_OPEN_EXISTING), WEIR_ENOTFOUND);
    assert_non_null(strstr(t->err.message, "weir init"));
    TEST_IS(t, try_flags(t, WEIR_OPEN_READONLY), WEIR_ENOTFOUND);
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", t->schema),
        0);
}

static void a_newer_store_is_used_while_it_says_so(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    (void)test_put(t, test_store(t), "order-1", "Placed");
    test_exec(t->conn, "UPDATE \"%s\".store SET schema = 7, client_least = 1", t->schema);
    TEST_OK(t, try_open(t, &o, &weir__pg_schema_current));
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Paid");
    test_exec(t->conn, "UPDATE \"%s\".store SET schema = 7, client_least = %d", t->schema, NEXT);
    TEST_IS(t, try_open(t, &o, &weir__pg_schema_current), WEIR_ENEWER);
    TEST_IS(t, try_flags(t, WEIR_OPEN_READONLY), WEIR_ENEWER);
    assert_non_null(strstr(t->err.message, "schema 7"));
    TEST_OK(t, try_open(t, &o, &schema_next)); /* client_least is what counts */
}

static void an_older_store_is_not_read_before_it_is_upgraded(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    (void)test_store(t);
    o.open_flags = WEIR_OPEN_READONLY;
    TEST_IS(t, try_open(t, &o, &schema_next), WEIR_EMISUSE);
    assert_non_null(strstr(t->err.message, "schema 3"));
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT - 1);
}

/* What a store_finding_fn was told, a line each. */
static void collect(void *ctx, const char *rule, const char *text, const char *advice)
{
    weir_buffer *b = ctx;
    assert_true(strlen(advice) > 0);
    assert_true(weir__buffer_add_text(b, rule) && weir__buffer_add_text(b, ": ") &&
                weir__buffer_add_text(b, text) && weir__buffer_add_text(b, "\n"));
}

static void assert_as_made(pg_test *t, weir_store *s)
{
    weir_buffer told = { 0 };
    TEST_OK(t, weir__pg_check_server(pg_of(s), collect, &told, &t->err));
    assert_true(weir__buffer_add(&told, "", 1));
    assert_string_equal(told.ptr, "");
    weir__buffer_free(&told);
}

static void the_plan_is_what_opening_runs(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    weir_buffer sql = { 0 };
    TEST_OK(t, weir__postgres_plan(&o, &sql, &t->err));
    assert_true(sql.len > 0);
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", t->schema),
        0);
    assert_true(weir__buffer_add(&sql, "", 1));
    PGresult *result = PQexec(t->conn, sql.ptr);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    weir__buffer_free(&sql);
    o.open_flags = WEIR_OPEN_EXISTING;
    weir_store *s = test_store_with(t, &o);
    assert_as_made(t, s);
    (void)test_put(t, s, "order-1", "Placed");
    TEST_OK(t, weir__postgres_plan(&o, &sql, &t->err));
    assert_int_equal(sql.len, 0);
    weir__buffer_free(&sql);
}

static size_t workers_known(pg_test *t, weir_store *s)
{
    store_worker_list list = { 0 };
    TEST_OK(t, s->about->workers(s, &list, &t->err));
    const size_t count = list.workers_count;
    weir__arena_free(&list.arena);
    return count;
}

static void a_store_without_workers_and_their_counts_gets_them(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    weir_buffer sql = { 0 };
    const store_worker worker = { .name = weir__str("w"), .host = weir__str("h") };
    (void)test_store(t);
    test_exec(t->conn,
              "DROP FUNCTION \"%s\".worker_beat; DROP TABLE \"%s\".workers;"
              "DROP FUNCTION \"%s\".declare; ALTER TABLE \"%s\".reactions DROP COLUMN attempts",
              t->schema, t->schema, t->schema, t->schema);
    TEST_IS(t, try_flags(t, WEIR_OPEN_READONLY), WEIR_EMISUSE);
    o.open_flags = WEIR_OPEN_EXISTING;
    TEST_OK(t, weir__postgres_plan(&o, &sql, &t->err));
    assert_true(weir__buffer_add(&sql, "", 1));
    const char *table = strstr(sql.ptr, "CREATE TABLE");
    assert_non_null(table);
    assert_non_null(strstr(table, ".workers ("));
    assert_null(strstr(table + 1, "CREATE TABLE")); /* that one alone */
    weir__buffer_free(&sql);
    weir_store *s = test_store_with(t, &o);
    TEST_OK(t, s->about->worker_beat(s, &worker, 60000000, &t->err));
    o.open_flags = WEIR_OPEN_READONLY;
    assert_int_equal(workers_known(t, test_store_with(t, &o)), 1);
    o.open_flags = WEIR_OPEN_EXISTING;
    assert_as_made(t, s);
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT - 1);
    TEST_OK(t, weir__postgres_plan(&o, &sql, &t->err));
    assert_int_equal(sql.len, 0);
    weir__buffer_free(&sql);
}

/* The top of the sources. */
static const char *source(void)
{
    const char *top = getenv("WEIR_SOURCE");
    return top == NULL ? "." : top;
}

/* A database of its own with the store that the create.sql of a schema makes; *url is static. */
static const char *kept_database(pg_test *t, const char *name, int schema)
{
    static char url[URL_BYTES];
    char command[URL_BYTES + 512];
    const char *bin = getenv("WEIR_TEST_PG_BIN");
    assert_non_null(bin);
    test_exec(t->conn, "CREATE DATABASE %s", name);
    (void)snprintf(url, sizeof url, "%s&dbname=%s", test_server(), name);
    (void)snprintf(command, sizeof command,
                   "'%s/psql' -X -q -v ON_ERROR_STOP=1 -d '%s' -f "
                   "'%s/tests/postgres/schema-%d/create.sql' >/dev/null",
                   bin, url, source(), schema);
    assert_int_equal(system(command), 0);
    return url;
}

static void a_store_without_locks_gets_them(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    weir_arena arena = { 0 };
    store_lock lock = { 0 };
    o.path = weir__str(kept_database(t, "kept_without_locks", 1));
    o.schema = weir__str("");
    PGconn *conn = PQconnectdb(o.path.ptr);
    test_exec(
        conn,
        "DROP FUNCTION weir.lock_take; DROP TABLE weir.locks; DROP SEQUENCE weir.lock_fences");
    PQfinish(conn);
    o.open_flags = WEIR_OPEN_READONLY;
    TEST_IS(t, try_open(t, &o, &weir__pg_schema_current), WEIR_EMISUSE);
    o.open_flags = WEIR_OPEN_EXISTING;
    weir_store *s = test_store_with(t, &o);
    TEST_OK(t,
            s->locks->take(
                s, &(store_lock_request){ STORE_LOCK, weir__str("n"), weir__str("me"), 60000000 },
                &arena, &lock, &t->err));
    assert_int_equal(lock.fence, 1);
    assert_as_made(t, s);
    o.open_flags = WEIR_OPEN_READONLY;
    TEST_OK(t, try_open(t, &o, &weir__pg_schema_current));
    weir__arena_free(&arena);
    test_store_close(t, s);
    test_exec(t->conn, "DROP DATABASE kept_without_locks");
}

static void a_name_with_spaces_and_capitals_is_a_schema(void **state)
{
    pg_test *t = *state;
    char name[TEST_SCHEMA_BYTES + 16];
    store_options o = test_options(t);
    (void)snprintf(name, sizeof name, "Odd weir. %s", t->schema);
    o.schema = weir__str(name);
    weir_store *s = test_store_with(t, &o);
    (void)test_put(t, s, "order-1", "Placed");
    assert_as_made(t, s);
    test_store_close(t, s);
    test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA \"%s\" CASCADE", name);
}

static void a_table_of_somebody_elses_is_refused_and_left_alone(void **state)
{
    pg_test *t = *state;
    test_exec(t->conn, "CREATE SCHEMA \"%s\"; CREATE TABLE \"%s\".store (shop text)", t->schema,
              t->schema);
    TEST_IS(t, try_flags(t, 0), WEIR_EINVAL);
    assert_non_null(strstr(t->err.message, "not Weir's"));
    assert_non_null(strstr(t->err.detail, "?schema="));
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM pg_class WHERE relnamespace = "
                                 "'\"%s\"'::regnamespace",
                                 t->schema),
                     1);
}

/* ---- what schema 1 was ---------------------------------------------------------------------- */

/* Clients of schema 1 name a lease by its fence alone, and are told that this is not enough. */
static void assert_old_client_is_refused(pg_test *t, const store_options *o)
{
    const pg_schema schema_1 = { .version = 1, .client_least = 1 };
    TEST_IS(t, try_open(t, o, &schema_1), WEIR_ENEWER);
    assert_non_null(strstr(t->err.message, "needs a newer Weir than this one (schema 1)"));
    /* One that had it open writes nothing for a lease any more. */
    PGconn *conn = PQconnectdb(o->path.ptr);
    assert_string_equal(
        test_refused(conn, "SELECT weir.settle(1, 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', "
                           "false, 0, 0, '', 0, 0, 0)"),
        "42883");
    PQfinish(conn);
}

static void the_kept_schema_1_becomes_what_a_new_store_is(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    o.path = weir__str(kept_database(t, "kept_as_it_is", 1));
    o.schema = weir__str("");
    weir_store *s = test_store_with(t, &o);
    assert_as_made(t, s); /* today's client has upgraded it */
    assert_old_client_is_refused(t, &o);
    test_store_close(t, s);
    test_exec(t->conn, "DROP DATABASE kept_as_it_is");
}

static void a_kept_store_is_upgraded_by_the_next_version_too(void **state)
{
    pg_test *t = *state;
    weir_store *s = NULL;
    store_options o = test_options(t);
    o.path = weir__str(kept_database(t, "kept_upgraded", 2));
    o.schema = weir__str("");
    /* The client of the next schema upgrades, and works. */
    TEST_OK(t, weir__postgres_open_schema(&s, &o, &schema_next, &t->err));
    assert_int_equal(pg_of(s)->schema_version, NEXT);
    /* Today's goes on, as if nothing had happened. */
    TEST_OK(t, try_open(t, &o, &weir__pg_schema_current));
    (void)test_put(t, s, "order-1", "Paid");
    s->about->close(s);
    test_exec(t->conn, "DROP DATABASE kept_upgraded");
}

/* ---- upgrading a store that is in use ------------------------------------------------------- */

enum { KEPT_STREAMS = 300 };

/* As clients of schema 1 and 2 write: an append of three events with an idempotency key and a
 * reserved one, a stream that is closed, and many streams at once. */
static void write_by_old_rules(PGconn *conn)
{
    test_exec(
        conn,
        "SELECT weir.append(0, 0, 9000000000000, '{0}', '{k}', ARRAY[repeat(E'\\x07', 32)::bytea],"
        " '{1}', '{order-1}', '{1}', '{0}', '{1,1,1}', '{A,B,C}', '{1,2,3}', "
        " '{\"{}\",\"{}\",\"{}\"}', '{1}', '{email}', '{1}');"
        "SELECT weir.append(0, 0, 0, '{0}', '{}', '{}', '{1}', '{done-1}', '{0}', '{0}', '{1}', "
        " '{A}', '{1}', '{\"{}\"}', '{}', '{}', '{}');"
        "SELECT weir.append(0, 0, 0, '{3}', '{}', '{}', '{1}', '{done-1}', '{0}', '{0}', '{1}', "
        " '{$closed}', '{1}', '{\"{}\"}', '{}', '{}', '{}');"
        "SELECT weir.append(0, 0, 0, '{0}', '{}', '{}', array_fill(1, ARRAY[n]), "
        " ARRAY(SELECT 's-' || i FROM generate_series(1, n) AS i), array_fill(0, ARRAY[n]), "
        " array_fill(0::bigint, ARRAY[n]), ARRAY(SELECT generate_series(1, n)), "
        " array_fill('A'::text, ARRAY[n]), array_fill('{}'::json, ARRAY[n]), "
        " array_fill('{}'::json, ARRAY[n]), '{}', '{}', '{}') FROM (VALUES (%d)) AS v (n)",
        KEPT_STREAMS);
}

static int64_t count_streams(pg_test *t, weir_store *s)
{
    store_streams_chunk chunk = { 0 };
    weir_str after = { .ptr = "" };
    char last[STORE_NAME_BYTES_MAX];
    int64_t count = 0;
    do {
        const store_streams_query q = { .after = after, .limit = 100 };
        TEST_OK(t, s->log->streams(s, &q, &chunk, &t->err));
        count += (int64_t)chunk.streams_count;
        memcpy(last, chunk.scanned_to.ptr, chunk.scanned_to.len);
        after = (weir_str){ .ptr = last, .len = chunk.scanned_to.len };
    } while (chunk.more);
    weir__arena_free(&chunk.arena);
    return count;
}

typedef struct upgrade {
    store_options options;
    weir_store *store;
    weir_status status;
    weir_error err;
} upgrade;

static void *upgrade_run(void *arg)
{
    upgrade *u = arg;
    u->status =
        weir__postgres_open_schema(&u->store, &u->options, &weir__pg_schema_current, &u->err);
    return NULL;
}

static void await_waiting(pg_test *t, int count)
{
    assert_true(
        test_wait(t->conn, 60, "SELECT count(*) >= %d FROM pg_locks WHERE NOT granted", count));
}

/* An upgrade begins while a client of the schema before is in the middle of a transaction, and
 * another one calls while the upgrade waits for that. The first one counts. The second one counts
 * as well if the upgrade gave way to it; else it has written nothing and is told so, as is every
 * call after it. */
static void upgrade_in_use(pg_test *t, int schema)
{
    char name[32];
    (void)snprintf(name, sizeof name, "kept_in_use_%d", schema);
    const char *url = kept_database(t, name, schema);
    upgrade u = { .options = test_options(t) };
    pthread_t thread;
    PGconn *old[2];
    u.options.path = weir__str(url);
    u.options.schema = weir__str("");
    for (size_t i = 0; i < 2; i++) {
        old[i] = PQconnectdb(url);
        test_exec(old[i],
                  "PREPARE one AS SELECT append_index, status, first_version, position, other "
                  "FROM weir.append_one($1, 0, $2, 0, 0, 'A', '{}', '{}')");
    }
    if (schema > 1) {
        test_exec(t->conn, "DROP ROLE IF EXISTS kept_writer; CREATE ROLE kept_writer");
        test_exec(old[0], "SELECT weir.grant_role('kept_writer', 'writer')");
    }
    write_by_old_rules(old[0]);
    test_exec(old[0], "EXECUTE one(16, 'new-1'); EXECUTE one(0, 'new-1')");
    test_exec(old[1], "EXECUTE one(16, 'new-2')");

    test_exec(old[0], "BEGIN; EXECUTE one(0, 'order-1')");
    assert_int_equal(pthread_create(&thread, NULL, upgrade_run, &u), 0);
    await_waiting(t, 1);
    assert_int_equal(PQsendQuery(old[1], "EXECUTE one(0, 'order-1')"), 1);
    await_waiting(t, 2);
    test_exec(old[0], "COMMIT");
    pthread_join(thread, NULL);
    TEST_OK(t, u.status);
    PGresult *result = PQgetResult(old[1]);
    const int64_t second = PQresultStatus(result) == PGRES_TUPLES_OK ? 1 : 0;
    assert_true(second == 1 || PQresultStatus(result) == PGRES_FATAL_ERROR);
    PQclear(result);
    assert_null(PQgetResult(old[1]));
    const int64_t events = test_number(old[0], "SELECT count(*) FROM weir.events");
    assert_int_equal(events, 3 + 2 + KEPT_STREAMS + 2 + 1 + 1 + second);
    for (size_t i = 0; i < 2; i++) {
        (void)test_refused(old[i], "EXECUTE one(16, 'order-1')");
        (void)test_refused(old[i], "EXECUTE one(0, 'fresh')");
        (void)test_refused(
            old[i], "SELECT append_index FROM weir.append(0, 0, 0, '{0}', '{}', '{}', '{1}', "
                    "'{order-1}', '{0}', '{0}', '{1}', '{A}', '{1}', '{\"{}\"}', '{}', '{}', "
                    "'{}')");
    }
    assert_int_equal(test_number(old[0], "SELECT count(*) FROM weir.events"), events);

    /* Everything is as it was, by the new rules. */
    weir_store *s = u.store;
    made m;
    assert_as_made(t, s);
    weir_buffer told = { 0 };
    TEST_OK(t, s->about->check(s, collect, &told, &t->err));
    assert_int_equal(told.len, 0);
    assert_int_equal(count_streams(t, s), 1 + 1 + KEPT_STREAMS + 2);
    make(&m, "order-1", WEIR_EXPECT_EXACT, 2, "D");
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_ECONFLICT);
    assert_int_equal(m.err.actual, 3 + second);
    make(&m, "order-1", WEIR_EXPECT_EXACT, 3 + second, "D");
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_OK);
    assert_int_equal(m.streams[0].last, 4 + second);
    make(&m, "done-1", WEIR_EXPECT_ANY, 0, "D");
    TEST_OK(t, run(s, &m, 1, STORE_APPEND_NOWAIT, &t->err));
    assert_int_equal(m.append.status, WEIR_ECLOSED);
    make(&m, "order-1", WEIR_EXPECT_NONE, 0, "A");
    make_key(&m, "k", 7);
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_OK);
    assert_true(m.append.replayed);
    assert_int_equal(m.streams[0].last, 2);
    make(&m, "order-2", WEIR_EXPECT_ANY, 0, "A");
    m.change = (store_key_change){ .key = weir__str("email"), .change = WEIR_KEY_RESERVE };
    m.append.key_changes = &m.change;
    m.append.key_changes_count = 1;
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_ETAKEN);
    assert_string_equal(m.err.stream, "order-1");
    if (schema > 1) {
        assert_string_equal(
            test_text(old[0],
                      "SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc AS p "
                      "WHERE p.pronamespace = 'weir'::regnamespace AND p.proname ~ '^append_' "
                      "AND has_function_privilege('kept_writer', p.oid, 'EXECUTE')"),
            "append_any append_batch append_one");
    }
    s->about->close(s);
    PQfinish(old[0]);
    PQfinish(old[1]);
    test_exec(t->conn, "DROP DATABASE %s", name);
}

static void C06_a_store_of_schema_1_is_upgraded_while_it_is_in_use(void **state)
{
    upgrade_in_use(*state, 1);
}

static void C06_a_store_of_schema_2_is_upgraded_while_it_is_in_use(void **state)
{
    upgrade_in_use(*state, 2);
}

/* ---- facts do not change -------------------------------------------------------------------- */

static void assert_immutable(PGconn *conn, const char *schema)
{
    static const char *const roles[] = { "origin", "local", "replica" };
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        test_exec(conn, "SET session_replication_role = %s", roles[i]);
        assert_string_equal(test_refused(conn, "UPDATE \"%s\".events SET name = 'x'", schema),
                            "P0001");
        assert_string_equal(test_refused(conn, "DELETE FROM \"%s\".events", schema), "P0001");
        assert_string_equal(test_refused(conn, "TRUNCATE \"%s\".events", schema), "P0001");
    }
    test_exec(conn, "RESET session_replication_role");
    assert_string_equal(test_text(conn, "SELECT name FROM \"%s\".events", schema), "Placed");
}

static void C12_events_refuse_to_be_changed_even_by_a_superuser(void **state)
{
    pg_test *t = *state;
    (void)test_put(t, test_store(t), "order-1", "Placed");
    assert_immutable(t->conn, t->schema);
}

/* A store of schema 1 gets it when it is opened for writing. */
static void C12_events_of_an_upgraded_store_refuse_to_be_changed(void **state)
{
    pg_test *t = *state;
    store_options o = test_options(t);
    const char *url = kept_database(t, "kept_immutable", 1);
    o.path = weir__str(url);
    o.schema = weir__str("");
    weir_store *s = test_store_with(t, &o);
    (void)test_put(t, s, "order-1", "Placed");
    PGconn *conn = PQconnectdb(url);
    assert_immutable(conn, "weir");
    PQfinish(conn);
    test_store_close(t, s);
    test_exec(t->conn, "DROP DATABASE kept_immutable");
}

/* ---- roles ---------------------------------------------------------------------------------- */

/* A role that may log in and nothing else, named after the test's schema; and the URL as it. */
static void make_role(pg_test *t, char *role, char *url)
{
    (void)snprintf(role, TEST_SCHEMA_BYTES + 8, "role_%s", t->schema);
    (void)snprintf(url, URL_BYTES, "%s&user=%s", test_server(), role);
    test_exec(t->conn, "CREATE ROLE \"%s\" LOGIN", role);
}

static void drop_role(pg_test *t, const char *role)
{
    test_exec(t->conn, "DROP OWNED BY \"%s\"; DROP ROLE \"%s\"", role, role);
}

static void grant(pg_test *t, const char *role)
{
    weir_buffer sql = { 0 };
    store_options o = test_options(t);
    TEST_OK(t, weir__postgres_grant(&o, weir__str(role), "worker", false, &sql, &t->err));
    weir__buffer_free(&sql);
}

static void count_note(void *ctx, bool act, const char *rule, const char *text, const char *advice)
{
    (void)text;
    (void)advice;
    (void)act;
    *(int *)ctx += strcmp(rule, "rights") == 0;
}

static void a_role_without_rights_is_told_what_to_do(void **state)
{
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], url[URL_BYTES];
    make_role(t, role, url);
    store_options o = test_options(t);
    o.path = weir__str(url);
    TEST_IS(t, try_open(t, &o, &weir__pg_schema_current), WEIR_EIO);
    assert_non_null(strstr(t->err.message, "permission denied"));
    assert_non_null(strstr(t->err.detail, "weir init"));
    (void)test_store(t); /* the superuser makes it */
    TEST_IS(t, try_open(t, &o, &weir__pg_schema_current), WEIR_EIO);
    assert_non_null(strstr(t->err.message, "weir init --grant"));
    grant(t, role);
    TEST_OK(t, try_open(t, &o, &weir__pg_schema_current));
    /* It may work, and not upgrade. */
    TEST_IS(t, try_open(t, &o, &schema_next), WEIR_EIO);
    assert_non_null(strstr(t->err.detail, "owner of the store"));
    assert_int_equal(test_number(t->conn, "SELECT schema FROM \"%s\".store", t->schema), NEXT - 1);
    drop_role(t, role);
}

static void a_role_may_use_a_schema_that_was_made_for_it(void **state)
{
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], url[URL_BYTES];
    make_role(t, role, url);
    test_exec(t->conn, "CREATE SCHEMA \"%s\" AUTHORIZATION \"%s\"", t->schema, role);
    store_options o = test_options(t);
    o.path = weir__str(url);
    weir_store *s = test_store_with(t, &o);
    (void)test_put(t, s, "order-1", "Placed");
    assert_as_made(t, s);
    test_store_close(t, s);
    drop_role(t, role);
}

/* One reaction, one target, one lease, settled: what a worker does all day. */
static void work_once(pg_test *t, weir_store *s)
{
    weir_arena arena = { 0 };
    store_reaction reaction = { 0 };
    const store_reaction_declaration d = { .name = weir__str("mail"),
                                           .all_names = true,
                                           .source = weir__str("*"),
                                           .rule = STORE_RULE_CONSTANT,
                                           .rule_text = weir__str("mail") };
    const int64_t id = test_put(t, s, "order-1", "Placed");
    TEST_OK(t, s->work->declare(s, &d, &arena, &reaction, &t->err));
    const store_route_step step = {
        .reaction = reaction.id, .number = reaction.number, .from = 0, .to = id
    };
    const store_mark mark = { .target = weir__str("mail"),
                              .lane = weir__str("default"),
                              .source = weir__str("*"),
                              .value = weir__str("mail"),
                              .first = id,
                              .last = id };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    TEST_OK(t, s->work->route(s, &route, NULL, &t->err));
    store_lease_list leases = { 0 };
    const store_lease_request request = { .lane = weir__str("default"),
                                          .holder = weir__str("test"),
                                          .lease_us = 60000000,
                                          .limit = 1,
                                          .all_reactions = true };
    TEST_OK(t, s->work->turn(s, NULL, 0, &request, &leases, &t->err));
    assert_int_equal(leases.leases_count, 1);
    const store_advance advance = { .reaction = reaction.id, .to = id };
    store_settle settle = { .target = leases.leases[0].target,
                            .fence = leases.leases[0].fence,
                            .advances = &advance,
                            .advances_count = 1 };
    TEST_OK(t, s->work->settle(s, &settle, &t->err));
    assert_false(settle.behind);
    const store_worker worker = { .name = weir__str("test"), .host = weir__str("host") };
    TEST_OK(t, s->about->worker_beat(s, &worker, 60000000, &t->err));
    assert_int_equal(workers_known(t, s), 1);
    store_lock lock = { 0 };
    TEST_OK(t,
            s->locks->take(
                s, &(store_lock_request){ STORE_LOCK, weir__str("n"), weir__str("test"), 60000000 },
                &arena, &lock, &t->err));
    TEST_OK(t, s->locks->release(s, lock.name, lock.fence, lock.token, &t->err));
    weir__arena_free(&leases.arena);
    weir__arena_free(&arena);
}

static void a_granted_role_works_and_writes_no_table(void **state)
{
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], url[URL_BYTES];
    int notes = 0;
    (void)test_store(t);
    make_role(t, role, url);
    grant(t, role);
    store_options o = test_options(t);
    o.path = weir__str(url);
    weir_store *s = test_store_with(t, &o);
    work_once(t, s);
    assert_as_made(t, s);
    TEST_OK(t, s->about->survey(s, count_note, &notes, &t->err));
    assert_int_equal(notes, 1); /* it cannot see what others do, and is told so */

    PGconn *conn = test_connect(t);
    test_exec(conn, "SET SESSION AUTHORIZATION \"%s\"", role);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM \"%s\".events", t->schema), 1);
    /* Before the schema's name and after it. */
    static const char *const forbidden[][2] = {
        { "INSERT INTO \"", "\".events VALUES (99, 's', 0, 'n', '{}', '{}', now())" },
        { "UPDATE \"", "\".events SET name = 'x'" },
        { "DELETE FROM \"", "\".events" },
        { "TRUNCATE \"", "\".events" },
        { "SELECT nextval('\"", "\".positions')" },
        { "SELECT setval('\"", "\".positions', 1)" },
        { "INSERT INTO \"", "\".truncated VALUES ('s', 0)" },
        { "DELETE FROM \"", "\".keys" },
        { "UPDATE \"", "\".targets SET fence = 0" },
        { "UPDATE \"", "\".store SET epoch = ''" },
        { "DELETE FROM \"", "\".workers" },
        { "ALTER TABLE \"", "\".events DISABLE TRIGGER ALL" },
        { "DROP TABLE \"", "\".events" },
        { "CREATE TABLE \"", "\".mine (x integer)" },
    };
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
        const char *code =
            test_refused(conn, "%s%s%s", forbidden[i][0], t->schema, forbidden[i][1]);
        if (strcmp(code, "42501") != 0) {
            fail_msg("%s%s%s: %s", forbidden[i][0], t->schema, forbidden[i][1], code);
        }
    }
    test_disconnect(t, conn);
    test_store_close(t, s);
    drop_role(t, role);
}

/* Who calls such a function must not be able to put anything of its own in its way. */
static void functions_with_their_owners_rights_have_a_search_path_of_their_own(void **state)
{
    pg_test *t = *state;
    (void)test_store(t);
    assert_true(test_number(t->conn,
                            "SELECT count(*) FROM pg_proc WHERE prosecdef AND pronamespace = "
                            "'\"%s\"'::regnamespace",
                            t->schema) > 10);
    assert_string_equal(test_text(t->conn,
                                  "SELECT string_agg(proname, ', ') FROM pg_proc WHERE prosecdef "
                                  "AND pronamespace = '\"%s\"'::regnamespace AND NOT coalesce("
                                  "'search_path=pg_catalog, pg_temp' = ANY (proconfig), false)",
                                  t->schema),
                        "");
}

static void a_role_that_may_only_look_cannot_append(void **state)
{
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], url[URL_BYTES];
    (void)test_put(t, test_store(t), "order-1", "Placed");
    make_role(t, role, url);
    test_exec(t->conn,
              "GRANT USAGE ON SCHEMA \"%s\" TO \"%s\"; GRANT SELECT ON \"%s\".events TO \"%s\"",
              t->schema, role, t->schema, role);
    PGconn *conn = test_connect(t);
    test_exec(conn, "SET SESSION AUTHORIZATION \"%s\"", role);
    assert_int_equal(test_number(conn, "SELECT count(*) FROM \"%s\".events", t->schema), 1);
    /* No function may be called by everybody. */
    assert_int_equal(test_number(conn,
                                 "SELECT count(*) FROM pg_proc WHERE pronamespace = "
                                 "'\"%s\"'::regnamespace AND has_function_privilege(oid, "
                                 "'EXECUTE')",
                                 t->schema),
                     0);
    test_disconnect(t, conn);
    drop_role(t, role);
}

static void an_upgrade_gives_workers_the_rights_to_what_it_adds(void **state)
{
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], looker[TEST_SCHEMA_BYTES + 8], url[URL_BYTES];
    (void)test_store(t);
    make_role(t, role, url);
    grant(t, role);
    (void)snprintf(looker, sizeof looker, "look_%s", t->schema);
    test_exec(t->conn,
              "CREATE ROLE \"%s\"; GRANT USAGE ON SCHEMA \"%s\" TO \"%s\"; "
              "GRANT SELECT ON \"%s\".events TO \"%s\"",
              looker, t->schema, looker, t->schema, looker);
    store_options o = test_options(t);
    TEST_OK(t, try_open(t, &o, &schema_next));
    assert_string_equal(test_text(t->conn,
                                  "SELECT has_table_privilege('%s', '\"%s\".made_up', 'SELECT')",
                                  role, t->schema),
                        "t");
    assert_string_equal(test_text(t->conn,
                                  "SELECT has_table_privilege('%s', '\"%s\".made_up', 'SELECT')",
                                  looker, t->schema),
                        "f");
    drop_role(t, looker);
    drop_role(t, role);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(sixteen_processes_at_once_create_one_store),
        PG_TEST(sixteen_processes_at_once_upgrade_once),
        PG_TEST(an_upgrade_that_fails_leaves_what_was_there),
        PG_TEST(C18_an_upgrade_that_waits_for_a_reader_stops_no_append),
        PG_TEST(C18_an_upgrade_that_is_killed_lets_go),
        PG_TEST(a_missing_store_is_not_found_and_nothing_is_made),
        PG_TEST(a_newer_store_is_used_while_it_says_so),
        PG_TEST(an_older_store_is_not_read_before_it_is_upgraded),
        PG_TEST(the_plan_is_what_opening_runs),
        PG_TEST(a_store_without_workers_and_their_counts_gets_them),
        PG_TEST(a_store_without_locks_gets_them),
        PG_TEST(a_name_with_spaces_and_capitals_is_a_schema),
        PG_TEST(a_table_of_somebody_elses_is_refused_and_left_alone),
        PG_TEST(the_kept_schema_1_becomes_what_a_new_store_is),
        PG_TEST(a_kept_store_is_upgraded_by_the_next_version_too),
        PG_TEST(C06_a_store_of_schema_1_is_upgraded_while_it_is_in_use),
        PG_TEST(C06_a_store_of_schema_2_is_upgraded_while_it_is_in_use),
        PG_TEST(C12_events_refuse_to_be_changed_even_by_a_superuser),
        PG_TEST(C12_events_of_an_upgraded_store_refuse_to_be_changed),
        PG_TEST(a_role_without_rights_is_told_what_to_do),
        PG_TEST(a_role_may_use_a_schema_that_was_made_for_it),
        PG_TEST(a_granted_role_works_and_writes_no_table),
        PG_TEST(functions_with_their_owners_rights_have_a_search_path_of_their_own),
        PG_TEST(a_role_that_may_only_look_cannot_append),
        PG_TEST(an_upgrade_gives_workers_the_rights_to_what_it_adds),
    };
    assert_int_equal(weir__pg_schema_current.version, NEXT - 1);
    assert_int_equal(weir__pg_schema_current.steps_count, 2);
    steps_to_next[0] = weir__pg_schema_current.steps[0];
    steps_to_next[1] = weir__pg_schema_current.steps[1];
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
