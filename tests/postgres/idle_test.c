/* idle_test.c - what somebody who has nothing to do costs the server, and how soon they are at work
 * again: also when the way to the server died without a word.
 *
 * A worker is a handle with a reader that waits for the log; a follower is a process, weir log
 * --follow, which waits for its signals and its output as well. Each has a role of its own, and by
 * that pg_stat_statements counts what reached the server.
 */
#include "pg_support.h"
#include "proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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
    int32_t status = weir_log_open(w->weir, &options, &reader, &w->err);
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
    TEST_OK(t, weir_open(&options, &w->weir, &t->err));
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

/* weir log --follow, and what it prints. It ends with its reader: at the latest with us. */
typedef struct follower {
    pid_t pid;
    int fd;
} follower;

static follower follower_start(const char *url)
{
    follower f;
    int ends[2];
    const char *program = getenv("WEIR");
    assert_non_null(program);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    f.pid = fork();
    assert_true(f.pid >= 0);
    if (f.pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        execl(program, "weir", "log", "--follow", "--store", url, NULL);
        _exit(127);
    }
    close(ends[1]);
    f.fd = ends[0];
    return f;
}

/* Waits for one more line. When it was there. */
static int64_t await_line(const follower *f, int64_t most_us)
{
    const int64_t end_us = test_mono_us() + most_us;
    char ch = '\0';
    while (ch != '\n') {
        struct pollfd p = { .fd = f->fd, .events = POLLIN };
        const int64_t left_us = end_us - test_mono_us();
        if (left_us <= 0 || poll(&p, 1, (int)(left_us / 1000) + 1) != 1) {
            fail_msg("the follower has printed nothing for %lld ms", (long long)(most_us / 1000));
        }
        assert_int_equal(read(f->fd, &ch, 1), 1);
    }
    return test_mono_us();
}

static void follower_stop(const follower *f)
{
    int status = -1;
    assert_int_equal(kill(f->pid, SIGTERM), 0);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(f->fd);
}

/* The store's URL for a role of this name, which is made. */
static const char *url_as(pg_test *t, const char *role, char url[TEST_URL_BYTES])
{
    test_exec(t->conn, "CREATE ROLE %s SUPERUSER LOGIN", role);
    snprintf(url, TEST_URL_BYTES, "postgres:///postgres?host=%s&user=%s&schema=%s",
             getenv("WEIR_TEST_PG_DIR"), role, t->schema);
    return url;
}

/* That a role has asked little since the reset. */
static void has_asked_little(pg_test *t, const char *role, int64_t seconds)
{
    const int64_t calls = test_number(
        t->conn, "SELECT sum(calls) FROM pg_stat_statements WHERE userid = '%s'::regrole", role);
    print_message("# %s: %lld statements in %lld s\n", role, (long long)calls, (long long)seconds);
    assert_true(calls >= 3); /* it is alive: its heartbeat is among them */
    assert_true(calls <= 2 * seconds);
}

static void who_is_idle_issues_at_most_two_statements_per_second(void **state)
{
    pg_test *t = *state;
    worker w = { 0 };
    char worker_url[TEST_URL_BYTES], follower_url[TEST_URL_BYTES];
    weir_store *s = test_store(t);
    test_exec(t->conn, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    worker_start(t, &w, url_as(t, "worker", worker_url));
    const follower f = follower_start(url_as(t, "follower", follower_url));
    test_put(t, s, "s-0", "Happened");
    await_events(&w, 1, test_mono_us(), 60 * SECOND);
    await_line(&f, 60 * SECOND);
    test_store_close(t, s);
    sleep(3); /* until they are idle */

    test_exec(t->conn, "SELECT pg_stat_statements_reset()");
    int64_t in_transaction = 0;
    const int64_t idle_from_us = test_mono_us();
    for (int i = 0; i < IDLE_SECONDS; i++) {
        sleep(1);
        in_transaction += test_number(
            t->conn, "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('worker', 'follower')"
                     " AND state LIKE 'idle in transaction%%'");
    }
    const int64_t seconds = (test_mono_us() - idle_from_us) / SECOND + 1;
    has_asked_little(t, "worker", seconds);
    has_asked_little(t, "follower", seconds);
    /* A look may meet a short one, and the more so on a busy machine; one that is kept is met
     * always. */
    assert_true(in_transaction < IDLE_SECONDS / 2);
    /* And they are at work at once. */
    s = test_store(t);
    int64_t printed_us = SECOND, seen_us = SECOND; /* a busy machine has several tries */
    for (int i = 0; i < 20 && (seen_us >= SECOND / 2 || printed_us >= SECOND / 2); i++) {
        const int64_t from_us = test_mono_us();
        test_put(t, s, "s-0", "Happened");
        printed_us = await_line(&f, 60 * SECOND) - from_us;
        seen_us = await_events(&w, 2 + i, from_us, 60 * SECOND);
        print_message("# seen %lld us and printed %lld us after the append began\n",
                      (long long)seen_us, (long long)printed_us);
    }
    assert_true(seen_us < SECOND / 2);
    assert_true(printed_us < SECOND / 2);
    follower_stop(&f);
    worker_stop(t, &w, s);
    test_exec(t->conn, "DROP ROLE worker, follower");
}

/* Whatever it was doing when the silence began: the moments are spread over the fallback poll. How
 * long that may take is wake_test's, on a clock of its own. */
static void T18_work_starts_again_after_a_silence(void **state)
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
        await_events(&workers[i], 1, test_mono_us(), 60 * SECOND);
    }
    sleep(2);
    const int64_t from_us = test_mono_us();
    int64_t worst_us = 0;
    proxy_blackhole(p, false);
    test_put(t, s, "s-0", "Happened");
    for (int i = 0; i < WORKERS; i++) {
        const int64_t took_us = await_events(&workers[i], 2, from_us, 60 * SECOND);
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
        PG_TEST(who_is_idle_issues_at_most_two_statements_per_second),
        PG_TEST(T18_work_starts_again_after_a_silence),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
