/* survival_test.c - every call succeeds, or fails with what is known about its outcome (C14), and
 * whatever has gone comes back by itself: connections that are cut at the worst moment, killed,
 * silent or refused, statements that somebody has dropped, a server that restarts.
 *
 * The worst moments are made by a proxy (proxy.h) and are the same in every run.
 */
#include "pg_support.h"
#include "proxy.h"

#include "store/postgres/postgres_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)

static int64_t events_count(pg_test *t)
{
    return test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema);
}

static void call_now(pg_test *t, weir_store *s)
{
    int64_t now_us = 0;
    TEST_OK(t, s->about->now(s, &now_us, &t->err));
}

/* ---- outcomes ----------------------------------------------------------------------------- */

static weir *weir_by(pg_test *t, const char *host)
{
    char url[TEST_URL_BYTES];
    weir *w = NULL;
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres&schema=%s", host,
             t->schema);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url,
                                   .application = "weir-test" };
    TEST_OK(t, weir_open(&options, &w, &t->err));
    return w;
}

/* One event; the key may be NULL. */
static int32_t append_one(weir *w, const char *stream, const char *key, bool *replayed,
                          weir_error *err)
{
    const weir_append_result *result = NULL;
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str("Happened"), .data = weir__str("{}") };
    const weir_new_event *events[] = { &event };
    const weir_append_request request = {
        WEIR_APPEND_REQUEST_INIT,
        .events = events,
        .events_count = 1,
        .key = key == NULL ? (weir_str){ 0 } : weir__str(key),
    };
    const int32_t status = weir_append(w, &request, &result, err);
    if (status == WEIR_OK) {
        *replayed = result->replayed;
        weir_append_result_free(result);
    }
    return status;
}

static void C14_a_commit_whose_answer_is_lost_is_unknown_without_a_key(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    bool replayed = false;
    weir *w = weir_by(t, proxy_host(p));
    TEST_OK(t, append_one(w, "s-0", NULL, &replayed, &t->err));
    for (int i = 1; i <= 5; i++) {
        /* The data of the event: the statement itself may be known by a name only. */
        proxy_cut_answer(p, "Happened");
        TEST_IS(t, append_one(w, "s-0", NULL, &replayed, &t->err), WEIR_EUNKNOWN);
        assert_int_equal(proxy_cuts(p), i);
        assert_int_equal(events_count(t), 2 * i); /* it had happened */
        TEST_OK(t, append_one(w, "s-0", NULL, &replayed, &t->err));
        assert_int_equal(events_count(t), 2 * i + 1);
    }
    weir_close(w);
    proxy_stop(p);
}

static void C14_a_commit_whose_answer_is_lost_is_found_by_its_key(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    bool replayed = false;
    weir *w = weir_by(t, proxy_host(p));
    for (int i = 1; i <= 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "k-%d", i);
        proxy_cut_answer(p, "Happened");
        TEST_OK(t, append_one(w, "s-0", key, &replayed, &t->err));
        assert_true(replayed);
        assert_int_equal(proxy_cuts(p), i);
        assert_int_equal(events_count(t), i);
    }
    weir_close(w);
    proxy_stop(p);
}

/* For the client it looks the same when the request never arrived. */
static void C14_a_request_that_is_lost_is_repeated_only_under_a_key(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    bool replayed = true;
    weir *w = weir_by(t, proxy_host(p));
    proxy_cut_request(p, "Happened");
    TEST_IS(t, append_one(w, "s-0", NULL, &replayed, &t->err), WEIR_EUNKNOWN);
    assert_int_equal(events_count(t), 0);
    proxy_cut_request(p, "Happened");
    TEST_OK(t, append_one(w, "s-0", "key", &replayed, &t->err));
    assert_false(replayed);
    assert_int_equal(proxy_cuts(p), 2);
    assert_int_equal(events_count(t), 1);
    weir_close(w);
    proxy_stop(p);
}

/* What only reads is asked again, and the caller does not notice. */
static void a_read_whose_answer_is_lost_is_repeated(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    const store_options options = test_options_by(t, proxy_host(p), "");
    weir_store *s = test_store_with(t, &options);
    for (int i = 1; i <= 5; i++) {
        proxy_cut_answer(p, NULL);
        call_now(t, s);
        assert_int_equal(proxy_cuts(p), i);
    }
    test_store_close(t, s);
    proxy_stop(p);
}

/* ---- connections that have gone ------------------------------------------------------------ */

/* The server's farewell lies in the socket: nothing is sent after it, so nothing is unknown. */
static void a_connection_killed_while_idle_makes_no_outcome_unknown(void **state)
{
    pg_test *t = *state;
    store_options options = test_options(t);
    options.application = "weir-killed";
    weir_store *s = test_store_with(t, &options);
    for (int i = 0; i < 20; i++) {
        test_put(t, s, "s-0", "Happened");
        test_exec(t->conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                           "application_name = 'weir-killed'");
        assert_true(test_wait(t->conn, 120,
                              "SELECT count(*) = 0 FROM pg_stat_activity WHERE "
                              "application_name = 'weir-killed'"));
    }
    assert_int_equal(events_count(t), 20);
}

/* Somebody who has more patience than the test: whoever gives up while it still waits has kept to a
 * time of its own, however slow the machine is. */
typedef struct patient {
    weir_store *store; /* asked for its time; NULL: opened */
    store_options options;
    pthread_t thread;
    weir_status status;
    _Atomic bool ended;
} patient;

static void *patient_main(void *arg)
{
    patient *q = arg;
    weir_error err = { .size = sizeof err };
    int64_t now_us = 0;
    q->status = q->store != NULL ? q->store->about->now(q->store, &now_us, &err)
                                 : weir__postgres_open(&q->store, &q->options, &err);
    atomic_store(&q->ended, true);
    return NULL;
}

static void a_silent_connection_is_given_up_after_the_timeout(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    patient q = { 0 };
    store_options options = test_options_by(t, proxy_host(p), "");
    options.answer_us = 100 * SECOND;
    q.store = test_store_with(t, &options);
    options.answer_us = SECOND;
    weir_store *s = test_store_with(t, &options);
    call_now(t, q.store);
    call_now(t, s);
    proxy_blackhole(p, false);
    assert_int_equal(pthread_create(&q.thread, NULL, patient_main, &q), 0);
    const int64_t from_us = test_mono_us();
    call_now(t, s);
    const int64_t took_us = test_mono_us() - from_us;
    const bool too_late = atomic_load(&q.ended);
    proxy_close_all(p);
    assert_int_equal(pthread_join(q.thread, NULL), 0);
    assert_int_equal(q.status, WEIR_OK);
    assert_true(took_us >= SECOND);
    assert_false(too_late);
    test_store_close(t, s);
    test_store_close(t, q.store);
    proxy_stop(p);
}

static void connecting_to_silence_is_bounded_and_passes_to_the_next_host(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    weir_store *s = NULL;
    char hosts[256];
    char path[512];
    patient q = { 0 };
    proxy_blackhole(p, true);
    store_options options = test_options_by(t, proxy_host(p), "&connect_timeout=100");
    options.busy_us = 1; /* one attempt */
    snprintf(path, sizeof path, "%s", options.path.ptr);
    q.options = options;
    q.options.path = weir__str(path);
    assert_int_equal(pthread_create(&q.thread, NULL, patient_main, &q), 0);
    while (proxy_connections(p) == 0) {
        usleep(1000);
    }
    options = test_options_by(t, proxy_host(p), "&connect_timeout=2");
    options.busy_us = 1;
    const weir_status status = weir__postgres_open(&s, &options, &t->err);
    const bool too_late = atomic_load(&q.ended);
    proxy_close_all(p);
    assert_int_equal(pthread_join(q.thread, NULL), 0);
    assert_int_equal(q.status, WEIR_EUNAVAILABLE);
    TEST_IS(t, status, WEIR_EUNAVAILABLE);
    assert_false(too_late);

    snprintf(hosts, sizeof hosts, "/nowhere,%s,%s", proxy_host(p), getenv("WEIR_TEST_PG_DIR"));
    options = test_options_by(t, hosts, "&connect_timeout=2");
    s = test_store_with(t, &options);
    const int64_t from_us = test_mono_us();
    store_watch *watch = NULL; /* the listener goes round the same hosts */
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    while (strcmp(weir__pg_wake_mode(pg_of(s)), "notify") != 0) {
        assert_true(test_mono_us() - from_us < 60 * SECOND);
        usleep(10000);
    }
    s->log->watch_close(watch);
    test_store_close(t, s);
    proxy_stop(p);
}

static void a_refused_connection_says_what_to_do(void **state)
{
    pg_test *t = *state;
    weir_store *s = NULL;
    const char *server = getenv("WEIR_TEST_PG_DIR");
    static const struct {
        const char *database, *rest, *message, *advice;
    } cases[] = {
        { "postgres", "&user=nobody_knows", "nobody_knows", "CREATE ROLE" },
        { "nowhere", "&user=postgres", "nowhere", "createdb" },
        { "postgres", "/nothing&user=postgres", "nothing", "running" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        store_options options = test_options(t);
        snprintf(path, sizeof path, "postgres:///%s?host=%s%s", cases[i].database, server,
                 cases[i].rest);
        options.path = weir__str(path);
        TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
        assert_non_null(strstr(t->err.message, cases[i].message));
        assert_non_null(strstr(t->err.detail, cases[i].advice));
    }
}

/* ---- too few connections ------------------------------------------------------------------- */

typedef struct caller {
    weir_store *store;
    int failed;
    weir_error err;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    for (int i = 0; i < 50; i++) {
        int64_t now_us = 0;
        if (c->store->about->now(c->store, &now_us, &c->err) != WEIR_OK) {
            c->failed++;
        }
    }
    return NULL;
}

static void eight_callers(pg_test *t, weir_store *s)
{
    enum { CALLERS = 8 };
    pthread_t threads[CALLERS];
    caller callers[CALLERS] = { 0 };
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].store = s;
        callers[i].err.size = sizeof callers[i].err;
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        t->err = callers[i].err;
        if (callers[i].failed > 0) {
            fail_msg("%d of 50 calls failed: %s", callers[i].failed, callers[i].err.message);
        }
    }
}

/* A server that grants fewer connections than the pool is wide: those there are do the work. */
static void T12_a_server_without_room_for_the_whole_pool_serves_all_callers(void **state)
{
    pg_test *t = *state;
    weir_store *first = test_store(t);
    test_store_close(t, first);
    test_exec(t->conn,
              "CREATE ROLE weir_narrow LOGIN CONNECTION LIMIT 2; "
              "GRANT USAGE ON SCHEMA %1$s TO weir_narrow; "
              "GRANT SELECT ON ALL TABLES IN SCHEMA %1$s TO weir_narrow; "
              "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %1$s TO weir_narrow",
              t->schema);
    char path[256];
    store_options options = test_options(t);
    snprintf(path, sizeof path, "postgres:///postgres?host=%s&user=weir_narrow",
             getenv("WEIR_TEST_PG_DIR"));
    options.path = weir__str(path);
    weir_store *s = test_store_with(t, &options);
    eight_callers(t, s);
    test_store_close(t, s);
    test_exec(t->conn, "DROP OWNED BY weir_narrow; DROP ROLE weir_narrow");
}

static void T12_callers_share_a_pool_of_one_and_exhaustion_is_busy(void **state)
{
    pg_test *t = *state;
    store_options options = test_options(t);
    pg_conn *conn = NULL;
    int64_t now_us = 0;
    options.pool = 1;
    options.busy_us = SECOND / 2;
    weir_store *s = test_store_with(t, &options);
    eight_callers(t, s);
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    const int64_t from_us = test_mono_us();
    TEST_IS(t, s->about->now(s, &now_us, &t->err), WEIR_EBUSY);
    assert_true(test_mono_us() - from_us >= SECOND / 2);
    assert_non_null(strstr(t->err.message, "pool="));
    weir__pg_give(conn);
    call_now(t, s);
}

/* ---- prepared statements ------------------------------------------------------------------- */

static void on_connection(pg_test *t, weir_store *s, const char *sql)
{
    pg_conn *conn = NULL;
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    TEST_OK(t, weir__pg_run_script(conn, sql, SECOND, &t->err));
    weir__pg_give(conn);
}

static void T28_statements_that_somebody_dropped_are_prepared_again(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    static const char *const drops[] = { "DEALLOCATE ALL", "DISCARD ALL" };
    for (int i = 0; i < 4; i++) {
        test_put(t, s, "s-0", "Happened");
        call_now(t, s);
        on_connection(t, s, drops[i % 2]);
        test_put(t, s, "s-0", "Happened");
        call_now(t, s);
    }
    assert_int_equal(events_count(t), 8);
}

static const char sql_everything[] = "SELECT * FROM pg_temp.thing";

static int fields_of(pg_test *t, pg_conn *conn)
{
    PGresult *result = NULL;
    TEST_OK(t, weir__pg_run(conn, &(pg_call){ .sql = sql_everything }, &result, &t->err));
    const int fields = PQnfields(result);
    PQclear(result);
    return fields;
}

static void T28_a_plan_that_no_longer_fits_is_made_anew(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    pg_conn *conn = NULL;
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    TEST_OK(t, weir__pg_run_script(conn, "CREATE TEMP TABLE thing (a int)", SECOND, &t->err));
    assert_int_equal(fields_of(t, conn), 1);
    for (int i = 2; i < 5; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "ALTER TABLE thing ADD COLUMN c%d int", i);
        TEST_OK(t, weir__pg_run_script(conn, sql, SECOND, &t->err));
        assert_int_equal(fields_of(t, conn), i); /* without a name */
        assert_int_equal(fields_of(t, conn), i); /* under a new one */
        assert_int_equal(conn->prepared_count, 1);
    }
    weir__pg_give(conn);
}

static void prepare_off_prepares_nothing(void **state)
{
    pg_test *t = *state;
    store_options options = test_options(t);
    pg_conn *conn = NULL;
    options.prepare = 2;
    weir_store *s = test_store_with(t, &options);
    test_put(t, s, "s-0", "Happened");
    call_now(t, s);
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    assert_int_equal(conn->prepared_count, 0);
    weir__pg_give(conn);
}

/* ---- a server that restarts ---------------------------------------------------------------- */

static void restart(const char *mode)
{
    char command[1024];
    const bool root = geteuid() == 0;
    snprintf(command, sizeof command,
             "cd / && %s %s %s '%s/pg_ctl' -D '%s' -m %s -w -s -l '%s/log' restart >/dev/null",
             root ? "runuser -u" : "exec", root ? getenv("WEIR_TEST_PG_USER") : "",
             root ? "--" : "", getenv("WEIR_TEST_PG_BIN"), getenv("WEIR_TEST_PG_DATA"), mode,
             getenv("WEIR_TEST_PG_DIR"));
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void a_restart_of_the_server_is_waited_for(void **state)
{
    pg_test *t = *state;
    static const char *const modes[] = { "fast", "immediate" };
    weir_store *s = test_store(t);
    store_watch *watch = NULL;
    bool woken = false;
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    for (int i = 0; i < 2; i++) {
        test_put(t, s, "s-0", "Happened");
        TEST_OK(t, s->log->watch_wait(watch, 1000, &woken, &t->err));
        restart(modes[i]);
        test_put(t, s, "s-0", "Happened"); /* nothing is unknown: it was idle */
        const int64_t from_us = test_mono_us();
        while (strcmp(weir__pg_wake_mode(pg_of(s)), "notify") != 0) {
            assert_true(test_mono_us() - from_us < 60 * SECOND);
            usleep(10000);
        }
        TEST_OK(t, s->log->watch_wait(watch, 5000, &woken, &t->err));
        assert_true(woken);
    }
    s->log->watch_close(watch);
    PQreset(t->conn);
    assert_int_equal(events_count(t), 4);
}

/* ---- settings of somebody else's ------------------------------------------------------------ */

typedef struct racer {
    weir_store *store;
    int won, other;
    weir_error err;
    pthread_t thread;
} racer;

/* Appends to one stream, each time at the version it was told of: it wins, or is told again. */
static void *race(void *arg)
{
    racer *r = arg;
    int64_t at = -1;
    while (r->won < 25 && r->other == 0) {
        int64_t version = -1;
        const weir_status status =
            test_try(r->store, "raced", at < 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT, at, "Größe",
                     &version, NULL, &r->err);
        r->won += status == WEIR_OK;
        r->other += status != WEIR_OK && status != WEIR_ECONFLICT;
        at = version;
    }
    return NULL;
}

/* What a role or a database is set to is for its other users: sessions of ours ask for what they
 * need. A trigger looks at the isolation: with another one the functions would look at what was
 * there before they waited for a lock, and most races would end well all the same. */
static void settings_of_a_role_change_nothing(void **state)
{
    enum { RACERS = 4 };
    static const char *const settings[] = {
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "client_encoding = latin1",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'SQL, DMY'",
        "standard_conforming_strings = off",
        "bytea_output = escape",
        "array_nulls = off",
        "transform_null_equals = on",
        "search_path = pg_temp",
        "synchronous_commit = off",
    };
    pg_test *t = *state;
    char role[TEST_SCHEMA_BYTES + 8], path[TEST_URL_BYTES + TEST_SCHEMA_BYTES];
    racer racers[RACERS];
    store_chunk chunk = { 0 };
    store_positions at;
    (void)test_store(t); /* which makes it */
    test_exec(t->conn,
              "CREATE FUNCTION %s.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
              "IF current_setting('transaction_isolation') <> 'read committed' THEN "
              "RAISE EXCEPTION 'another isolation'; END IF; RETURN NEW; END $$;"
              "CREATE TRIGGER look BEFORE INSERT ON %s.events FOR EACH ROW "
              "EXECUTE FUNCTION %s.look()",
              t->schema, t->schema, t->schema);
    (void)snprintf(role, sizeof role, "odd_%s", t->schema);
    test_exec(t->conn, "CREATE ROLE \"%s\" LOGIN SUPERUSER", role);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        test_exec(t->conn, "ALTER ROLE \"%s\" SET %s", role, settings[i]);
    }
    store_options options = test_options(t);
    (void)snprintf(path, sizeof path, "postgres:///postgres?host=%s&user=%s",
                   getenv("WEIR_TEST_PG_DIR"), role);
    options.path = weir__str(path);
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = (racer){ .store = test_store_with(t, &options) };
    }
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
        if (racers[i].other > 0) {
            fail_msg("neither won nor lost: %s (%s)", racers[i].err.message,
                     racers[i].err.store_code);
        }
    }
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM %s.events WHERE convert_to(name, 'UTF8') = "
                                 "'\\x4772c3b6c39f65'",
                                 t->schema),
                     RACERS * 25);
    weir_store *s = racers[0].store;
    const store_log_query q = { .to = INT64_MAX, .limit = 1 };
    TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
    assert_true(weir__str_equal(chunk.events[0].name, weir__str("Größe")));
    TEST_OK(t, s->log->positions(s, &at, &t->err));
    assert_true(chunk.events[0].created_us <= at.now_us &&
                chunk.events[0].created_us > at.now_us - INT64_C(600000000));
    assert_int_equal(at.safe, at.head);
    weir__chunk_free(&chunk);
    for (size_t i = 0; i < RACERS; i++) {
        test_store_close(t, racers[i].store);
    }
    test_exec(t->conn, "DROP ROLE \"%s\"", role);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C14_a_commit_whose_answer_is_lost_is_unknown_without_a_key),
        PG_TEST(C14_a_commit_whose_answer_is_lost_is_found_by_its_key),
        PG_TEST(C14_a_request_that_is_lost_is_repeated_only_under_a_key),
        PG_TEST(a_read_whose_answer_is_lost_is_repeated),
        PG_TEST(a_connection_killed_while_idle_makes_no_outcome_unknown),
        PG_TEST(a_silent_connection_is_given_up_after_the_timeout),
        PG_TEST(connecting_to_silence_is_bounded_and_passes_to_the_next_host),
        PG_TEST(a_refused_connection_says_what_to_do),
        PG_TEST(T12_a_server_without_room_for_the_whole_pool_serves_all_callers),
        PG_TEST(T12_callers_share_a_pool_of_one_and_exhaustion_is_busy),
        PG_TEST(T28_statements_that_somebody_dropped_are_prepared_again),
        PG_TEST(T28_a_plan_that_no_longer_fits_is_made_anew),
        PG_TEST(prepare_off_prepares_nothing),
        PG_TEST(settings_of_a_role_change_nothing),
        PG_TEST(a_restart_of_the_server_is_waited_for),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
