/* threads.c - see threads.h.
 *
 * INVARIANTS
 *   (1) A wake is never lost: it sets `woken` under the runner's lock, and the runner clears it
 *       under the same lock before it begins a step. A wake during a step makes one more step.
 *   (2) No lock of this file is held while a step or the watch's function runs.
 *   (3) After `stopping` is set no step begins. A thread is joined only when it has ended.
 *
 * THREADS  Each runner has a lock of its own, a leaf: a wake costs the woken one's lock and no
 * other. Signals belong to the program: none is handled by these threads.
 */
#include "engine/threads.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/thread.h"
#include "store/away.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WATCH_RETRY_US_FIRST INT64_C(100000)
#define WATCH_RETRY_US_MAX   INT64_C(5000000)

typedef struct runner {
    task *task; /* borrowed */
    pthread_t thread;
    bool started; /* owned by the starter */

    weir_mutex mu;
    weir_cond changed;
    /* guarded by mu */
    bool woken, stopping, ended;
} runner;

/* The thread that watches the store. */
typedef struct watcher {
    weir_store *store; /* borrowed */
    threads_watch_fn fn;
    void *ctx;
    pthread_t thread;
    bool started;
    int stop_fd; /* owned; readable when it is to end */
} watcher;

struct threads {
    scheduler scheduler; /* first: a scheduler * is a threads * */
    runner *runners;     /* owned */
    size_t runners_count;
    watcher watcher;
};

static void threads_wake(scheduler *s, task *t)
{
    runner *r = t->driver;
    (void)s;
    if (r == NULL) {
        return; /* not started yet: its first step comes anyway */
    }
    weir__lock(&r->mu);
    r->woken = true;
    weir__cond_signal(&r->changed);
    weir__unlock(&r->mu);
}

static uint64_t threads_random(scheduler *s)
{
    (void)s;
    return weir__random_u64();
}

weir_status weir__threads_open(threads **out, weir_error *err)
{
    threads *t = weir__calloc(1, sizeof *t);
    if (t == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a scheduler");
    }
    t->scheduler = (scheduler){ .wake = threads_wake,
                                .random = threads_random,
                                .clock = weir__clock_machine() };
    t->watcher.stop_fd = -1;
    *out = t;
    return WEIR_OK;
}

scheduler *weir__threads_scheduler(threads *t)
{
    return &t->scheduler;
}

/* ---- runners ------------------------------------------------------------------------------ */

/* Waits until the task is due, woken, or to end. */
static void await_locked(runner *r, int64_t due_us) WEIR_REQUIRES(r->mu)
{
    while (!r->stopping && !r->woken) {
        if (due_us == TASK_WAIT) {
            weir__cond_wait(&r->changed, &r->mu);
        } else if (!weir__cond_wait_until(&r->changed, &r->mu, due_us)) {
            return;
        }
    }
}

static void runner_away(void *ctx, const weir_error *err)
{
    task *t = ctx;
    if (t->away_cb != NULL) {
        t->away_cb(t, err);
    }
}

static void *runner_main(void *arg)
{
    runner *r = arg;
    int64_t due_us = TASK_NOW;
    weir__store_away_set(runner_away, r->task);
    weir__lock(&r->mu);
    for (;;) {
        if (due_us != TASK_NOW) {
            await_locked(r, due_us);
        }
        if (r->stopping) {
            break;
        }
        r->woken = false;
        weir__unlock(&r->mu);
        due_us = r->task->step(r->task);
        weir__lock(&r->mu);
    }
    r->ended = true;
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
    return NULL;
}

static bool start_thread(pthread_t *thread, void *(*main)(void *), void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(thread, NULL, main, arg) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

weir_status weir__threads_start(threads *t, task *const *tasks, size_t count, weir_error *err)
{
    t->runners = weir__calloc(count == 0 ? 1 : count, sizeof *t->runners);
    if (t->runners == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu threads", count);
    }
    /* All of them can be woken before the first one runs: it may wake another. */
    for (size_t i = 0; i < count; i++) {
        runner *r = &t->runners[i];
        r->task = tasks[i];
        if (!weir__mutex_init(&r->mu)) {
            return weir__fail(err, WEIR_ENOMEM, "could not make a lock");
        }
        if (!weir__cond_init(&r->changed)) {
            weir__mutex_destroy(&r->mu);
            return weir__fail(err, WEIR_ENOMEM, "could not make a condition");
        }
        t->runners_count = i + 1;
        tasks[i]->scheduler = &t->scheduler;
        tasks[i]->driver = r;
    }
    for (size_t i = 0; i < count; i++) {
        runner *r = &t->runners[i];
        r->started = start_thread(&r->thread, runner_main, r);
        if (!r->started) {
            (void)weir__threads_stop(t, INT64_MAX);
            return weir__fail(err, WEIR_ENOMEM, "could not start thread %zu of %zu", i + 1, count);
        }
    }
    return WEIR_OK;
}

/* ---- watching the store ------------------------------------------------------------------- */

/* false: it is to end. */
static bool pause_unless_stopped(const watcher *w, int64_t us)
{
    struct pollfd fd = { .fd = w->stop_fd, .events = POLLIN };
    return poll(&fd, 1, (int)(us / 1000)) <= 0;
}

/* Until the watch fails (true) or it is to end (false). */
static bool watch_until_it_fails(const watcher *w, store_watch *watch)
{
    const store_log_ops *log = w->store->log;
    for (;;) {
        struct pollfd fds[] = { { .fd = w->stop_fd, .events = POLLIN },
                                { .fd = log->watch_fd(watch), .events = POLLIN } };
        bool woken = false;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return true;
        }
        if (fds[0].revents != 0) {
            return false;
        }
        if (fds[1].revents != 0) {
            if (log->watch_wait(watch, 0, &woken, NULL) != WEIR_OK) {
                return true;
            }
            if (woken) {
                w->fn(w->ctx);
            }
        }
    }
}

static void *watcher_main(void *arg)
{
    watcher *w = arg;
    int64_t retry_us = WATCH_RETRY_US_FIRST;
    bool goes_on = true;
    while (goes_on) {
        store_watch *watch = NULL;
        if (w->store->log->watch_open(w->store, &watch, NULL) == WEIR_OK) {
            retry_us = WATCH_RETRY_US_FIRST;
            w->fn(w->ctx); /* for what was missed */
            goes_on = watch_until_it_fails(w, watch);
            w->store->log->watch_close(watch);
        }
        goes_on = goes_on && pause_unless_stopped(w, retry_us);
        retry_us = retry_us * 2 > WATCH_RETRY_US_MAX ? WATCH_RETRY_US_MAX : retry_us * 2;
    }
    return NULL;
}

weir_status weir__threads_watch(threads *t, weir_store *store, threads_watch_fn fn, void *ctx,
                                weir_error *err)
{
    watcher *w = &t->watcher;
    w->store = store;
    w->fn = fn;
    w->ctx = ctx;
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->stop_fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not open a wake-up descriptor: errno %d", errno);
    }
    w->started = start_thread(&w->thread, watcher_main, w);
    return w->started ? WEIR_OK
                      : weir__fail(err, WEIR_ENOMEM, "could not start the watching thread");
}

/* ---- stopping ----------------------------------------------------------------------------- */

static void stop_watching(watcher *w)
{
    const uint64_t one = 1;
    if (w->started) {
        const ssize_t written = write(w->stop_fd, &one, sizeof one);
        (void)written; /* it cannot be full: it is written once */
        (void)pthread_join(w->thread, NULL);
        w->started = false;
    }
    if (w->stop_fd >= 0) {
        (void)close(w->stop_fd);
        w->stop_fd = -1;
    }
}

/* Whether it has ended by then; joined if so. */
static bool await_end(runner *r, int64_t until_us)
{
    bool in_time = true;
    weir__lock(&r->mu);
    while (r->started && !r->ended && in_time) {
        if (until_us == INT64_MAX) {
            weir__cond_wait(&r->changed, &r->mu);
        } else {
            in_time = weir__cond_wait_until(&r->changed, &r->mu, until_us);
        }
    }
    const bool ended = !r->started || r->ended;
    weir__unlock(&r->mu);
    if (ended && r->started) {
        (void)pthread_join(r->thread, NULL);
        r->started = false;
    }
    return ended;
}

bool weir__threads_stop(threads *t, int64_t until_us)
{
    bool all = true;
    stop_watching(&t->watcher);
    for (size_t i = 0; i < t->runners_count; i++) {
        weir__lock(&t->runners[i].mu);
        t->runners[i].stopping = true;
        weir__cond_broadcast(&t->runners[i].changed);
        weir__unlock(&t->runners[i].mu);
    }
    for (size_t i = 0; i < t->runners_count; i++) {
        all = await_end(&t->runners[i], until_us) && all;
    }
    return all;
}

void weir__threads_free(threads *t)
{
    if (t == NULL) {
        return;
    }
    (void)weir__threads_stop(t, INT64_MAX);
    for (size_t i = 0; i < t->runners_count; i++) {
        t->runners[i].task->driver = NULL;
        weir__cond_destroy(&t->runners[i].changed);
        weir__mutex_destroy(&t->runners[i].mu);
    }
    weir__free(t->runners);
    weir__free(t);
}
