/* idle_test.c - what a worker costs the server that has nothing to do, and how soon it is at work
 * again: also when the way to the server died without a word.
 *
 * A worker is a handle with a reader that follows the log. Statements are counted by
 * pg_stat_statements, all that reached the server but those of the test's own connection.
 */
#include "pg_support.h"
#include "proxy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)

enum { IDLE_SECONDS = 30 };

typedef struct worker {
    weir *weir;
    pthread_t thread;
    _Atomic int64_t events;
    _Atomic int64_t last_us; /* when the last one was seen */
    _Atomic bool stopping, failed;
    weir_error err;
} worker;

static void *follow(void *arg)
{
    worker *w = arg;
    weir_reader *reader = NULL;
    const weir_log_options options = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    int32_t status = weir_log_open(&reader, w->weir, &options, &w->err);
    while (status == WEIR_OK && !atomic_load(&w->stopping)) {
        const weir_event *event = NULL;
        status = weir_reader_next(reader, -1, &event, &w->err);
        if (status == WEIR_OK && event != NULL) {
            atomic_store(&w->last_us, test_mono_us());
            atomic_fetch_add(&w->events, 1);
        }
    }
    atomic_store(&w->failed, status != WEIR_OK);
    weir_reader_close(reader);
    return NULL;
}

static void worker_start(pg_test *t, worker *w, const char *url)
{
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url, .application = "worker" };
    w->err.size = sizeof w->err;
    TEST_OK(t, weir_open(&w->weir, &options, &t->err));
    assert_int_equal(pthread_create(&w->thread, NULL, follow, w), 0);
}

/* One more event, by `s`, ends its waiting. */
static void worker_stop(pg_test *t, worker *w, weir_store *s)
{
    atomic_store(&w->stopping, true);
    test_put(t, s, "s-0", "Stopped");
    pthread_join(w->thread, NULL);
    weir_close(w->weir);
    if (atomic_load(&w->failed)) {
        fail_msg("the worker failed: %s", w->err.message);
    }
}

/* Waits until it has seen so many. The time since from_us. */
static int64_t await_events(worker *w, int64_t count, int64_t from_us, int64_t most_us)
{
    while (atomic_load(&w->events) < count) {
        if (test_mono_us() - from_us > most_us) {
            fail_msg("%lld events were seen after %lld ms, expected %lld",
                     (long long)atomic_load(&w->events), (long long)(most_us / 1000),
                     (long long)count);
        }
        usleep(500);
    }
    return atomic_load(&w->last_us) - from_us;
}

static void an_idle_worker_issues_at_most_two_statements_per_second(void **state)
{
    pg_test *t = *state;
    worker w = { 0 };
    weir_store *s = test_store(t);
    test_exec(t->conn, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    worker_start(t, &w, t->url);
    test_put(t, s, "s-0", "Happened");
    await_events(&w, 1, test_mono_us(), 10 * SECOND);
    test_store_close(t, s);
    sleep(3); /* until it is idle */

    test_exec(t->conn, "SELECT pg_stat_statements_reset()");
    int64_t in_transaction = 0;
    for (int i = 0; i < IDLE_SECONDS; i++) {
        sleep(1);
        in_transaction += test_number(
            t->conn, "SELECT count(*) AS of_the_test FROM pg_stat_activity WHERE application_name "
                     "= 'worker' AND xact_start < clock_timestamp() - interval '200 ms'");
    }
    const int64_t calls = test_number(t->conn, "SELECT sum(calls) AS of_the_test FROM "
                                               "pg_stat_statements WHERE query NOT LIKE "
                                               "'%%of_the_test%%' AND query NOT LIKE "
                                               "'%%pg_stat_statements_reset%%'");
    print_message("# %lld statements in %d s\n", (long long)calls, IDLE_SECONDS);
    assert_true(calls >= 3); /* it is alive: its heartbeat is among them */
    assert_true(calls <= 2 * IDLE_SECONDS);
    assert_int_equal(in_transaction, 0);
    /* And it is at work at once. */
    s = test_store(t);
    const int64_t from_us = test_mono_us();
    test_put(t, s, "s-0", "Happened");
    const int64_t took_us = await_events(&w, 2, from_us, 5 * SECOND);
    print_message("# seen %lld us after the append began\n", (long long)took_us);
    assert_true(took_us < SECOND / 2);
    worker_stop(t, &w, s);
}

/* Whatever it was doing when the silence began: the moments are spread over the fallback poll. */
static void T18_work_starts_again_within_ten_seconds_of_a_silence(void **state)
{
    pg_test *t = *state;
    enum { WORKERS = 6 };
    worker workers[WORKERS] = { 0 };
    proxy *p = proxy_start();
    char url[TEST_URL_BYTES];
    weir_store *s = test_store(t);
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres&schema=%s", proxy_host(p),
             t->schema);
    for (int i = 0; i < WORKERS; i++) {
        worker_start(t, &workers[i], url);
        usleep(300000);
    }
    test_put(t, s, "s-0", "Happened");
    for (int i = 0; i < WORKERS; i++) {
        await_events(&workers[i], 1, test_mono_us(), 10 * SECOND);
    }
    sleep(2);
    const int64_t from_us = test_mono_us();
    int64_t worst_us = 0;
    proxy_blackhole(p, false);
    test_put(t, s, "s-0", "Happened");
    for (int i = 0; i < WORKERS; i++) {
        const int64_t took_us = await_events(&workers[i], 2, from_us, 10 * SECOND);
        worst_us = took_us > worst_us ? took_us : worst_us;
    }
    print_message("# the slowest was at work again after %lld ms\n", (long long)(worst_us / 1000));
    for (int i = 0; i < WORKERS; i++) {
        worker_stop(t, &workers[i], s);
    }
    proxy_stop(p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(an_idle_worker_issues_at_most_two_statements_per_second),
        PG_TEST(T18_work_starts_again_within_ten_seconds_of_a_silence),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
