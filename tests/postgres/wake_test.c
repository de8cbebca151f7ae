/* wake_test.c - wake-ups on PostgreSQL: who is woken, how soon, at what price, and what happens to
 * them when the listening connection dies, with a word or without one.
 *
 * Wake-ups are made by the port's own verb `wake`, which is what every commit does at its end.
 * Notifications are counted by a plain connection that listens as well.
 */
#include "pg_support.h"
#include "proxy.h"

#include "store/postgres/wake.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)

static store_options named_options(pg_test *t, const char *application)
{
    store_options options = test_options(t);
    options.application = application;
    return options;
}

static store_watch *watch_of(pg_test *t, weir_store *s)
{
    store_watch *watch = NULL;
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    return watch;
}

static bool woken(pg_test *t, weir_store *s, store_watch *watch, int32_t timeout_ms)
{
    bool answer = false;
    TEST_OK(t, s->log->watch_wait(watch, timeout_ms, &answer, &t->err));
    return answer;
}

/* A plain connection that hears what the store's watches hear; `known`: and is known to listen. */
static PGconn *ear_with(pg_test *t, weir_store *s, bool known)
{
    const char *channel = pg_of(s)->wake->listener.channel;
    PGconn *ear = test_connect(t);
    test_exec(ear, "LISTEN %s", channel);
    if (known) {
        test_exec(ear, "SELECT pg_advisory_lock_shared(1465207123, hashtext('%s'))", channel);
    }
    return ear;
}

static PGconn *ear_of(pg_test *t, weir_store *s)
{
    return ear_with(t, s, true);
}

/* How many empty notifications come until none has come for quiet_ms. Those that begin to listen
 * send one with a word in it. */
static int heard(PGconn *ear, int quiet_ms)
{
    int count = 0;
    struct pollfd fd = { .fd = PQsocket(ear), .events = POLLIN };
    do {
        PGnotify *n;
        assert_int_equal(PQconsumeInput(ear), 1);
        while ((n = PQnotifies(ear)) != NULL) {
            count += n->extra[0] == '\0' ? 1 : 0;
            PQfreemem(n);
        }
    } while (poll(&fd, 1, quiet_ms) > 0);
    return count;
}

/* Sooner or later; without a limit that a slow machine could meet. */
static void heard_soon(PGconn *ear)
{
    int count = 0;
    while (count == 0) {
        assert_true(poll(&(struct pollfd){ .fd = PQsocket(ear), .events = POLLIN }, 1, 30000) > 0);
        count = heard(ear, 300);
    }
}

static int64_t connections_of(pg_test *t, const char *application)
{
    return test_number(t->conn,
                       "SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s'",
                       application);
}

/* The process of the server that listens for this application. */
static int64_t listener_of(pg_test *t, const char *application)
{
    return test_number(
        t->conn,
        "SELECT pid FROM pg_stat_activity WHERE application_name = '%s' AND "
        "(query LIKE 'UNLISTEN%%' OR query LIKE 'SELECT 1' OR query LIKE 'SELECT %%pg_notify%%')",
        application);
}

static void P06_a_wake_up_reaches_every_handle_once(void **state)
{
    pg_test *t = *state;
    weir_store *a = test_store(t);
    weir_store *b = test_store(t);
    store_watch *on_a = watch_of(t, a);
    store_watch *on_b = watch_of(t, b);
    int64_t worst_us = 0;
    assert_string_equal(weir__pg_wake_mode(pg_of(a)), "notify");
    assert_false(woken(t, a, on_a, 100)); /* nobody has done anything */
    assert_false(woken(t, b, on_b, 0));
    for (int i = 0; i < 100; i++) {
        const int64_t before_us = test_mono_us();
        a->log->wake(a);
        assert_true(woken(t, a, on_a, 0)); /* its own at once */
        assert_true(woken(t, b, on_b, 5000));
        const int64_t took_us = test_mono_us() - before_us;
        worst_us = took_us > worst_us ? took_us : worst_us;
        assert_false(woken(t, a, on_a, i % 10 == 0 ? 20 : 0)); /* no echo of one's own */
        assert_false(woken(t, b, on_b, 0));
    }
    print_message("# slowest of 100 wake-ups of another handle: %lld us\n", (long long)worst_us);
    a->log->watch_close(on_a);
    b->log->watch_close(on_b);
}

/* A wake-up between two waits is not lost, and many of them are one. */
static void P06_wake_ups_between_two_waits_are_kept(void **state)
{
    pg_test *t = *state;
    weir_store *a = test_store(t);
    weir_store *b = test_store(t);
    store_watch *on_b = watch_of(t, b);
    struct pollfd fd = { .fd = b->log->watch_fd(on_b), .events = POLLIN };
    for (int i = 0; i < 5; i++) {
        a->log->wake(a);
        usleep(5000);
    }
    assert_int_equal(poll(&fd, 1, 5000), 1);
    usleep(20000);
    assert_true(woken(t, b, on_b, 0));
    assert_false(woken(t, b, on_b, 50));
    b->log->watch_close(on_b);
}

static void T17_many_commits_are_few_empty_notifications(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *ear = ear_of(t, s);
    for (int listening = 0; listening < 2; listening++) {
        store_watch *watch = listening != 0 ? watch_of(t, s) : NULL;
        const int64_t from_us = test_mono_us();
        int64_t wakes = 0;
        int count = 0;
        while (wakes <= 1000 || count < 2 || test_mono_us() - from_us < SECOND / 5) {
            s->log->wake(s);
            wakes++;
            if (wakes % 100 == 0) {
                count += heard(ear, 0);
                assert_true(test_mono_us() - from_us < 120 * SECOND);
            }
        }
        const int64_t took_us = test_mono_us() - from_us;
        count += heard(ear, 300);
        print_message("# %lld wake-ups in %lld us: %d notifications, %s\n", (long long)wakes,
                      (long long)took_us, count,
                      listening != 0 ? "by the listener" : "by the pool");
        assert_true(count <= took_us / 2000 + 2);
        /* The last one was told, too: nothing is kept back until the next. */
        s->log->wake(s);
        heard_soon(ear);
        s->log->watch_close(watch);
    }
}

/* An ear that nobody knows of shows what is sent all the same. */
static void T17_nothing_is_notified_while_nobody_listens(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *ear = ear_with(t, s, false);
    for (int listening = 0; listening < 2; listening++) {
        store_watch *watch = listening != 0 ? watch_of(t, s) : NULL; /* one's own does not count */
        for (int i = 0; i < 50; i++) {
            s->log->wake(s);
            usleep(3000);
        }
        assert_int_equal(heard(ear, 300), 0);
        s->log->watch_close(watch);
    }
    test_store_close(t, s);
    test_exec(ear, "SELECT 1");
    assert_int_equal(heard(ear, 0), 0);
}

/* Whoever comes while a writer believes to be alone is told of what happens from then on. */
static void P06_a_listener_that_came_unseen_is_told_when_the_writer_looks_again(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *unknown = ear_with(t, s, false);
    s->log->wake(s);
    assert_int_equal(heard(unknown, 300), 0); /* it has looked, and believes to be alone */
    PGconn *ear = ear_of(t, s);
    s->log->wake(s);
    heard_soon(ear);
}

static void P06_a_listener_that_came_unseen_is_told_when_the_writer_closes(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    pg_of(s)->wake->look_us = 3600 * SECOND; /* closing does not wait for that */
    PGconn *unknown = ear_with(t, s, false);
    s->log->wake(s);
    assert_int_equal(heard(unknown, 300), 0);
    PGconn *ear = ear_of(t, s);
    s->log->wake(s);
    test_store_close(t, s);
    test_exec(ear, "SELECT 1");
    assert_true(heard(ear, 100) >= 1);
}

/* Those that listen themselves hear of a new one, and need not look. */
static void P06_a_new_listener_announces_itself_to_those_that_listen(void **state)
{
    pg_test *t = *state;
    weir_store *a = test_store(t);
    weir_store *b = test_store(t);
    PGconn *unknown = ear_with(t, a, false);
    pg_of(a)->wake->look_us = 3600 * SECOND;
    store_watch *on_a = watch_of(t, a);
    a->log->wake(a);
    assert_int_equal(heard(unknown, 300), 0); /* it has looked, and will not look again */
    store_watch *on_b = watch_of(t, b);
    (void)woken(t, a, on_a, 0);
    assert_false(woken(t, a, on_a, 200)); /* that is no wake-up */
    a->log->wake(a);
    assert_true(woken(t, b, on_b, 60000));
    a->log->watch_close(on_a);
    b->log->watch_close(on_b);
}

static void a_writer_that_nobody_watches_makes_one_connection(void **state)
{
    pg_test *t = *state;
    const store_options options = named_options(t, "weir-wake-single");
    weir_store *s = test_store_with(t, &options);
    PGconn *ear = ear_of(t, s);
    for (int i = 0; i < 10; i++) {
        s->log->wake(s);
        usleep(5000);
    }
    const int count = heard(ear, 300);
    assert_true(count >= 2 && count <= 10);
    assert_int_equal(connections_of(t, "weir-wake-single"), 1);
    assert_string_equal(weir__pg_wake_mode(pg_of(s)), "not started");
}

static void closing_sends_what_is_unsent(void **state)
{
    pg_test *t = *state;
    weir_store *first = test_store(t);
    PGconn *ear = ear_of(t, first);
    for (int i = 0; i < 10; i++) {
        weir_store *s = test_store(t);
        s->log->wake(s);
        s->log->wake(s);
        test_store_close(t, s);
        /* It was sent before close returned: asking anything brings it with the answer. */
        test_exec(ear, "SELECT 1");
        assert_true(heard(ear, 100) >= 1);
    }
}

static void T18_a_listener_that_was_killed_comes_back_and_wakes_once(void **state)
{
    pg_test *t = *state;
    const store_options options = named_options(t, "weir-wake-killed");
    weir_store *s = test_store_with(t, &options);
    weir_store *other = test_store(t);
    store_watch *watch = watch_of(t, s);
    for (int i = 0; i < 3; i++) {
        const int64_t listener = listener_of(t, "weir-wake-killed");
        assert_false(woken(t, s, watch, 0));
        test_exec(t->conn, "SELECT pg_terminate_backend(%lld)", (long long)listener);
        assert_true(woken(t, s, watch, 5000)); /* for what was missed */
        assert_true(test_wait(t->conn, 120,
                              "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = "
                              "'weir-wake-killed' AND pid <> %lld AND query LIKE 'UNLISTEN%%' AND "
                              "state = 'idle'",
                              (long long)listener));
        while (woken(t, s, watch, 200)) { /* a poll may have come in between */
        }
        assert_string_equal(weir__pg_wake_mode(pg_of(s)), "notify");
        other->log->wake(other);
        assert_true(woken(t, s, watch, 5000));
        while (woken(t, s, watch, 50)) {
        }
    }
    s->log->watch_close(watch);
}

/* Steps while the listener's clock stands still, until one of these is told. */
static uint32_t listener_told(pg_listener *l, uint32_t wanted, int64_t now_us)
{
    uint32_t told = 0;
    while ((told & wanted) == 0) {
        struct pollfd fd = { .fd = weir__pg_listener_fd(l), .events = l->events };
        assert_int_equal(poll(&fd, 1, 60000), 1);
        told = weir__pg_listener_step(l, now_us);
        assert_int_equal(told & ~wanted & (LISTENER_TOLD_LOST | LISTENER_TOLD_DEAF), 0);
    }
    return told;
}

/* On a clock that only the test moves, so that the machine's speed does not count. */
static void T18_a_listener_that_dies_without_a_word_is_replaced_within_ten_seconds(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    store_options options = test_options_by(t, proxy_host(p), "");
    weir_store *s = test_store_with(t, &options);
    pg_listener l;
    const int64_t silent_us = 77 * SECOND;
    int64_t now_us = silent_us;
    uint32_t told = 0;
    weir__pg_listener_init(&l, pg_of(s));
    assert_int_equal(weir__pg_listener_begin(&l, now_us), 0);
    (void)listener_told(&l, LISTENER_TOLD_READY, now_us);

    proxy_blackhole(p, false); /* just after its last word */
    while ((told & LISTENER_TOLD_LOST) == 0) {
        assert_true(l.due_us > now_us && l.due_us - silent_us < 10 * SECOND);
        now_us = l.due_us;
        told = weir__pg_listener_step(&l, now_us);
    }
    assert_true((told & LISTENER_TOLD_SILENT) != 0); /* the pool is distrusted for that */
    now_us += weir__pg_backoff_us(0);
    assert_int_equal(weir__pg_listener_begin(&l, now_us), 0);
    assert_true(l.due_us - silent_us <= 10 * SECOND); /* connected by then, or given up again */
    (void)listener_told(&l, LISTENER_TOLD_READY, now_us);
    weir__pg_listener_close(&l);
    test_store_close(t, s);
    proxy_stop(p);
}

/* A proxy that stops forwarding says nothing: the heartbeat notices. */
static void T18_a_watch_is_woken_after_its_listener_died_without_a_word(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    weir_store *other = test_store(t);
    store_options options = test_options_by(t, proxy_host(p), "");
    options.answer_us = 60 * SECOND;
    weir_store *s = test_store_with(t, &options);
    store_watch *watch = watch_of(t, s);
    other->log->wake(other);
    assert_true(woken(t, s, watch, 5000));

    const int64_t from_us = test_mono_us();
    proxy_blackhole(p, false);
    other->log->wake(other); /* this one is swallowed */
    assert_true(woken(t, s, watch, 60000));
    print_message("# woken %lld ms after the silence began\n",
                  (long long)((test_mono_us() - from_us) / 1000));
    while (strcmp(weir__pg_wake_mode(pg_of(s)), "notify") != 0) {
        assert_true(test_mono_us() - from_us < 60 * SECOND);
        usleep(10000);
    }
    while (woken(t, s, watch, 200)) {
    }
    other->log->wake(other);
    assert_true(woken(t, s, watch, 2000));
    /* What the pool held open was of the same kind: it is not waited for. */
    const int64_t asked_us = test_mono_us();
    int64_t now_us = 0;
    TEST_OK(t, s->about->now(s, &now_us, &t->err));
    assert_true(test_mono_us() - asked_us < options.answer_us);
    s->log->watch_close(watch);
    test_store_close(t, s);
    proxy_stop(p);
}

/* While there is no way to the server, watches are woken by the clock; closing does not wait. */
static void a_watch_without_a_server_polls_and_closing_is_bounded(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    store_options options = test_options_by(t, proxy_host(p), "&connect_timeout=60");
    weir_store *s = test_store_with(t, &options);
    store_watch *watch = watch_of(t, s);
    proxy_blackhole(p, true);
    const int64_t from_us = test_mono_us();
    assert_true(woken(t, s, watch, 10000));
    assert_string_equal(weir__pg_wake_mode(pg_of(s)), "poll");
    assert_true(woken(t, s, watch, 3000));
    assert_true(woken(t, s, watch, 3000));
    assert_true(test_mono_us() - from_us > SECOND); /* and not all the time */
    s->log->wake(s);
    s->log->watch_close(watch);
    const int64_t closing_us = test_mono_us();
    test_store_close(t, s);
    assert_true(test_mono_us() - closing_us < 30 * SECOND);
    proxy_stop(p);
}

/* Another store of the same database is not woken. */
static void each_store_has_a_channel_of_its_own(void **state)
{
    pg_test *t = *state;
    char schema[TEST_SCHEMA_BYTES + 8];
    weir_store *a = test_store(t);
    store_options options = test_options(t);
    snprintf(schema, sizeof schema, "%s_b", t->schema);
    options.schema = weir__str(schema);
    weir_store *b = test_store_with(t, &options);
    store_watch *watch = watch_of(t, b);
    a->log->wake(a);
    assert_false(woken(t, b, watch, 300));
    b->log->watch_close(watch);
    test_store_close(t, b);
    test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA %s CASCADE", schema);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(P06_a_wake_up_reaches_every_handle_once),
        PG_TEST(P06_wake_ups_between_two_waits_are_kept),
        PG_TEST(T17_many_commits_are_few_empty_notifications),
        PG_TEST(T17_nothing_is_notified_while_nobody_listens),
        PG_TEST(P06_a_listener_that_came_unseen_is_told_when_the_writer_looks_again),
        PG_TEST(P06_a_listener_that_came_unseen_is_told_when_the_writer_closes),
        PG_TEST(P06_a_new_listener_announces_itself_to_those_that_listen),
        PG_TEST(a_writer_that_nobody_watches_makes_one_connection),
        PG_TEST(closing_sends_what_is_unsent),
        PG_TEST(T18_a_listener_that_was_killed_comes_back_and_wakes_once),
        PG_TEST(T18_a_listener_that_dies_without_a_word_is_replaced_within_ten_seconds),
        PG_TEST(T18_a_watch_is_woken_after_its_listener_died_without_a_word),
        PG_TEST(a_watch_without_a_server_polls_and_closing_is_bounded),
        PG_TEST(each_store_has_a_channel_of_its_own),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
