/* pgbouncer_test.c - the store behind the real PgBouncer: in transaction mode, where every
 * transaction may get another session of the server, and in session mode.
 *
 * Two server connections serve many clients, so sessions change hands all the time: anything that
 * was left in one would be found by somebody else.
 */
#include "bouncer.h"
#include "pg_support.h"

#include "store/postgres/postgres_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)

enum { CLIENTS = 6, APPENDS = 60 };

static store_options options_by(pg_test *t, const bouncer *b)
{
    static char path[256];
    store_options options = test_options(t);
    snprintf(path, sizeof path, "postgres:///postgres?host=%s&user=postgres", b->directory);
    options.path = weir__str(path);
    return options;
}

typedef struct client {
    weir_store *store;
    int number;
    int failed;
    weir_error err;
} client;

static void *append_often(void *arg)
{
    client *c = arg;
    for (int i = 0; i < APPENDS; i++) {
        char stream[32];
        int64_t now_us = 0, version = -1;
        snprintf(stream, sizeof stream, "s-%d", c->number);
        if (test_try(c->store, stream, i == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT, i - 1,
                     "Happened", &version, NULL, &c->err) != WEIR_OK ||
            version != i || c->store->about->now(c->store, &now_us, &c->err) != WEIR_OK) {
            c->failed++;
        }
    }
    return NULL;
}

/* Several handles, so several clients of the pooler, at the same time. */
static void clients_append(pg_test *t, const store_options *options)
{
    client clients[CLIENTS] = { 0 };
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client){ .store = test_store_with(t, options), .number = i };
        clients[i].err.size = sizeof clients[i].err;
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, append_often, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (clients[i].failed > 0) {
            fail_msg("%d calls failed: %s", clients[i].failed, clients[i].err.message);
        }
        test_store_close(t, clients[i].store);
    }
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema),
                     CLIENTS * APPENDS);
}

static void transaction_mode_works_without_prepared_statements(void **state)
{
    pg_test *t = *state;
    bouncer b = bouncer_start("transaction", 2);
    const store_options options = options_by(t, &b);
    pg_conn *conn = NULL;
    weir_store *s = test_store_with(t, &options);
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    assert_true(conn->server.pooled);
    weir__pg_give(conn);
    clients_append(t, &options);
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    assert_int_equal(conn->prepared_count, 0);
    weir__pg_give(conn);
    test_store_close(t, s);
    bouncer_stop(&b);
}

/* Told to prepare all the same, it heals at every change of session: slow, and right. */
static void transaction_mode_survives_prepared_statements_by_force(void **state)
{
    pg_test *t = *state;
    bouncer b = bouncer_start("transaction", 2);
    store_options options = options_by(t, &b);
    options.prepare = 1;
    clients_append(t, &options);
    bouncer_stop(&b);
}

static void the_server_itself_is_not_taken_for_a_pooler(void **state)
{
    pg_test *t = *state;
    pg_conn *conn = NULL;
    weir_store *s = test_store(t);
    TEST_OK(t, weir__pg_take(pg_of(s), 0, &conn, &t->err));
    assert_false(conn->server.pooled);
    weir__pg_give(conn);
}

static bool woken(pg_test *t, weir_store *s, store_watch *watch, int32_t timeout_ms)
{
    bool answer = false;
    TEST_OK(t, s->log->watch_wait(watch, timeout_ms, &answer, &t->err));
    return answer;
}

/* Notifications do not pass: watches are woken about once a second; those with a way of their own
 * to the server hear them, also the ones that are sent through the pooler. */
static void transaction_mode_polls_unless_there_is_a_direct_way(void **state)
{
    pg_test *t = *state;
    bouncer b = bouncer_start("transaction", 2);
    store_options options = options_by(t, &b);
    weir_store *polling = test_store_with(t, &options);
    char direct[128];
    snprintf(direct, sizeof direct, "%s:5432", getenv("WEIR_TEST_PG_DIR"));
    options.direct = weir__str(direct);
    weir_store *notified = test_store_with(t, &options);
    store_watch *a = NULL, *d = NULL;
    TEST_OK(t, polling->log->watch_open(polling, &a, &t->err));
    TEST_OK(t, notified->log->watch_open(notified, &d, &t->err));
    assert_string_equal(weir__pg_wake_mode(pg_of(polling)), "poll");
    while (woken(t, polling, a, 0)) {
    }
    assert_string_equal(weir__pg_wake_mode(pg_of(notified)), "notify");
    while (woken(t, notified, d, 0)) {
    }

    const int64_t from_us = test_mono_us();
    for (int i = 0; i < 3; i++) {
        assert_true(woken(t, polling, a, 60000)); /* by the clock */
    }
    assert_true(test_mono_us() - from_us > SECOND);
    assert_false(woken(t, notified, d, 0));
    polling->log->wake(polling); /* sent through the pooler */
    assert_true(woken(t, notified, d, 2000));
    polling->log->watch_close(a);
    notified->log->watch_close(d);
    test_store_close(t, polling);
    test_store_close(t, notified);
    /* The sessions that others get next listen to nothing of ours. */
    PGconn *next = PQconnectdb(options.path.ptr);
    assert_int_equal(test_number(next,
                                 "SELECT count(*) FROM pg_listening_channels() c WHERE c LIKE "
                                 "'weir_%%' AND c NOT LIKE 'weir_test_%%'"),
                     0);
    PQfinish(next);
    bouncer_stop(&b);
}

static void session_mode_passes_notifications(void **state)
{
    pg_test *t = *state;
    bouncer b = bouncer_start("session", 20);
    const store_options options = options_by(t, &b);
    weir_store *s = test_store_with(t, &options);
    weir_store *other = test_store(t);
    store_watch *watch = NULL;
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    assert_string_equal(weir__pg_wake_mode(pg_of(s)), "notify"); /* known as soon as asked for */
    while (woken(t, s, watch, 100)) {
    }
    other->log->wake(other);
    assert_true(woken(t, s, watch, 2000));
    s->log->wake(s); /* no echo of one's own, although the session has another's number */
    assert_true(woken(t, s, watch, 0));
    assert_false(woken(t, s, watch, 300));
    s->log->watch_close(watch);
    test_store_close(t, s);
    bouncer_stop(&b);
}

/* What cannot be asked for behind a pooler, because the session is not ours, is refused. */
static void transaction_mode_needs_the_usual_isolation(void **state)
{
    pg_test *t = *state;
    weir_store *s = NULL;
    (void)test_store(t);
    test_exec(t->conn, "ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'");
    bouncer b = bouncer_start("transaction", 2);
    const store_options options = options_by(t, &b);
    const weir_status status = weir__postgres_open(&s, &options, &t->err);
    test_exec(t->conn, "ALTER ROLE postgres RESET default_transaction_isolation");
    bouncer_stop(&b);
    assert_int_equal(status, WEIR_EMISUSE);
    assert_non_null(strstr(t->err.message, "default_transaction_isolation = 'read committed'"));
    assert_null(s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(transaction_mode_works_without_prepared_statements),
        PG_TEST(transaction_mode_survives_prepared_statements_by_force),
        PG_TEST(the_server_itself_is_not_taken_for_a_pooler),
        PG_TEST(transaction_mode_polls_unless_there_is_a_direct_way),
        PG_TEST(transaction_mode_needs_the_usual_isolation),
        PG_TEST(session_mode_passes_notifications),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
