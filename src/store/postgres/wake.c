/* wake.c - telling everybody that there may be work: one thread per handle, which listens and
 * notifies.
 *
 * WHAT MUST STAY TRUE
 *   (1) A notification is a transaction of its own, sent after the commit it tells of and never
 *       inside it: NOTIFY holds a lock of the whole cluster until its transaction has ended, which
 *       for one that writes includes the flush. (Measured on 16 connections: 15,800 appends/s
 *       without, 4,200 with it inside.)
 *   (2) A commit never waits: it wakes the watches of its own handle, sets `unsent` and tells the
 *       thread. The thread clears `unsent` before it sends, so what is committed later is told
 *       later. The first notification goes at once, then one per NOTIFY_US at most: what happens in
 *       between is told together. It is empty.
 *       A watch that is woken looks at everything, so many writers need not notify more than one:
 *       a handle that wrote every third event waits three times NOTIFY_US, SHARE_MAX times at most.
 *       How many others wrote is seen from the positions. (16 processes that each notified for
 *       themselves sent as many notifications as appends.)
 *       Nothing is sent while nobody else listens. A listener holds a lock; we look for it with
 *       the next notification, at most once in LOOK_US. While there seems to be no listener, what
 *       is committed stays `unsent` until we look again: a listener that came meanwhile waits for
 *       LOOK_US at most, and reads by itself what was committed before it came. A writer that
 *       listens is told of new listeners at once. (One append: 9 to 12 % faster than with a
 *       notification.)
 *   (3) While the listener is not READY, for whatever reason, watches are woken about once a
 *       second: a store without notifications is slow, not stuck. When it becomes READY they are
 *       woken once, for what was missed.
 *   (4) Closing sends what is unsent, for CLOSE_US at most.
 *   (5) Who writes also asks the database to note how far the log is final (weir.safe), which a
 *       standby goes by: HINT_US after the last time at the earliest, and when it closes. The
 *       database proves it. Never before a commit is answered.
 *
 * WHO SENDS  The listener, where there is one. A process that only writes has none, and needs none:
 * there the notification goes over a connection of the pool that is idle at the moment, so that
 * `weir append` makes one connection and not two. It is still the thread that sends it: sent by the
 * caller it would be a second round trip of every append.
 *
 * THREADS  weir__pg_wake: any thread. Everything else as wake.h says.
 */
#include "store/postgres/wake.h"

#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "store/postgres/listener_sql.h"
#include "store/postgres/safe_sql.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NOTIFY_US    INT64_C(2000)
#define SHARE_MAX    INT64_C(8)
#define LOOK_US      INT64_C(1000000)
#define RETRY_US     INT64_C(5000)     /* when no connection was idle */
#define ANSWER_US    INT64_C(1000000)  /* of a connection of the pool */
#define POLL_US      INT64_C(1000000)  /* +- a quarter */
#define DEAF_US      INT64_C(30000000) /* +- a quarter: the way to the server may become another */
#define CLOSE_US     INT64_C(1000000)
#define HINT_US      INT64_C(200000)
#define HINT_US_MAX  INT64_C(10000000)
#define WAIT_US_MAX  INT64_C(3600000000) /* longer is for ever */
#define OPEN_WAIT_US INT64_C(2000000)
#define MODE_WAIT_US INT64_C(3000000) /* longer than a listener's test */

static const char MODE_NONE[] = "not started";
static const char MODE_NOTIFY[] = "notify";
static const char MODE_POLL[] = "poll";

static int64_t span_jittered(int64_t us)
{
    return us - us / 4 + (int64_t)(weir__random_u64() % (uint64_t)(us / 2));
}

static void signal_thread(pg_wake *w)
{
    const uint64_t one = 1;
    const ssize_t written = write(w->fd, &one, sizeof one);
    (void)written; /* it can only be full, and then it is readable */
}

static void watches_wake(pg_wake *w)
{
    weir__lock(&w->mu);
    weir__watches_wake_locked(&w->watches);
    weir__unlock(&w->mu);
}

static void mode_set(pg_wake *w, const char *mode, bool testing)
{
    weir__lock(&w->mu);
    w->mode = mode;
    w->testing = testing;
    weir__cond_broadcast(&w->settled);
    weir__unlock(&w->mu);
}

const char *weir__pg_wake_mode(pg_store *s)
{
    pg_wake *w = s->wake;
    const int64_t end_us = pg_mono_us() + MODE_WAIT_US;
    if (w == NULL) {
        return MODE_NONE;
    }
    weir__lock(&w->mu);
    while (w->testing && weir__cond_wait_until(&w->settled, &w->mu, end_us)) {
        /* it is being found out */
    }
    const char *mode = w->mode;
    weir__unlock(&w->mu);
    return mode;
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Over a connection that is idle: what a step of the listener would tell; 0: there is none, or it
 * did not work. */
static uint32_t notify_by_pool(pg_wake *w, bool look, const char *channel)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    pg_conn *conn = weir__pg_take_idle(w->store);
    if (conn == NULL) {
        return 0;
    }
    weir__pg_add_text(&p, weir__str(channel));
    const pg_call call = { .sql = look ? sql_listener_notify_others : sql_listener_notify,
                           .params = &p,
                           .answer_us = ANSWER_US };
    const weir_status status = weir__pg_run(conn, &call, &result, NULL);
    weir__pg_give(conn);
    weir__pg_params_free(&p);
    const bool alone = status == WEIR_OK && weir__pg_listener_alone(result);
    pq.PQclear(result);
    return status != WEIR_OK ? 0 : alone ? LISTENER_TOLD_ALONE : LISTENER_TOLD_OTHERS;
}

/* What is known of others that listen, and when to look again. */
static void audience_set(pg_wake *w, bool alone, int64_t now_us)
{
    w->alone = alone;
    w->next_look_us = now_us + w->look_us;
}

/* What a step of the listener has told; `notifying`: our notification was on its way before it. */
static void wake_told(pg_wake *w, uint32_t bits, bool notifying, int64_t now_us)
{
    /* Before the mode: who opens a watch waits for that, and has missed nothing. */
    if ((bits & (LISTENER_TOLD_WAKE | LISTENER_TOLD_READY)) != 0) {
        watches_wake(w);
    }
    if ((bits & LISTENER_TOLD_READY) != 0) {
        w->attempt = 0;
        w->next_look_us = 0; /* who came before us has not told us */
        mode_set(w, MODE_NOTIFY, false);
    }
    /* Others last: who came after we had looked has told us after the answer. */
    if ((bits & (LISTENER_TOLD_ALONE | LISTENER_TOLD_OTHERS)) != 0) {
        audience_set(w, (bits & LISTENER_TOLD_OTHERS) == 0, now_us);
    }
    if ((bits & LISTENER_TOLD_TEST) != 0) {
        mode_set(w, MODE_POLL, true); /* until it is known better */
        if (notify_by_pool(w, false, w->listener.test_channel) == 0) {
            weir__pg_listener_close(&w->listener); /* no connection was idle: nothing is known */
            bits |= LISTENER_TOLD_LOST;
        }
    }
    if ((bits & (LISTENER_TOLD_LOST | LISTENER_TOLD_DEAF)) != 0) {
        /* The next of several hosts may be the one that is there: nothing is known before all were
         * tried. */
        const bool others_left =
            (bits & LISTENER_TOLD_DEAF) == 0 && (size_t)w->attempt + 1 < w->listener.hosts;
        w->next_begin_us = now_us + ((bits & LISTENER_TOLD_DEAF) != 0 ? span_jittered(DEAF_US)
                                     : others_left                    ? 0
                                                   : weir__pg_backoff_us(w->attempt));
        w->attempt++;
        mode_set(w, MODE_POLL, others_left);
        if (notifying) {
            atomic_store(&w->unsent, true); /* it may have gone; once more does no harm */
        }
    }
    if ((bits & LISTENER_TOLD_SILENT) != 0) {
        weir__pg_distrust(w->store);
    }
}

static void listen_if_due(pg_wake *w, int64_t now_us)
{
    if (w->listener.state == LISTENER_DOWN && now_us >= w->next_begin_us) {
        wake_told(w, weir__pg_listener_begin(&w->listener, now_us), false, now_us);
    }
}

/* How long to wait until the next notification after this one. */
static int64_t notify_pause_us(pg_wake *w)
{
    const int64_t written = atomic_load(&w->written);
    const int64_t position = atomic_load(&w->position);
    const int64_t mine = written - w->told_written;
    const int64_t all = w->told_position == 0 ? mine : position - w->told_position;
    int64_t share = mine <= 0 ? 1 : all / mine;
    share = share < 1 ? 1 : share > SHARE_MAX ? SHARE_MAX : share;
    w->told_written = written;
    w->told_position = position;
    return share * NOTIFY_US;
}

/* When to send what is unsent. */
static int64_t notify_due_us(const pg_wake *w)
{
    return w->alone && w->next_look_us > w->next_notify_us ? w->next_look_us : w->next_notify_us;
}

static void send_if_due(pg_wake *w, int64_t now_us)
{
    const bool look = now_us >= w->next_look_us;
    if (now_us < notify_due_us(w) || !atomic_load(&w->unsent)) {
        return;
    }
    if (w->listener.state == LISTENER_READY) {
        if (w->listener.asking) {
            return; /* its answer wakes us */
        }
        atomic_store(&w->unsent, false);
        if (!weir__pg_listener_notify(&w->listener, look, now_us)) {
            atomic_store(&w->unsent, true);
        }
        w->next_notify_us = now_us + notify_pause_us(w);
        return;
    }
    atomic_store(&w->unsent, false);
    const uint32_t bits = notify_by_pool(w, look, w->listener.channel);
    if (bits == 0) {
        atomic_store(&w->unsent, true);
    } else if (look) {
        wake_told(w, bits, false, pg_mono_us());
    }
    w->next_notify_us = pg_mono_us() + (bits != 0 ? notify_pause_us(w) : RETRY_US);
}

static int64_t time_sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Asks once how far the log is final. A transaction that is open may keep it back for long: it is
 * asked less and less often. */
static void hint_ask(pg_wake *w)
{
    PGresult *result = NULL;
    pg_conn *conn = weir__pg_take_idle(w->store);
    w->next_hint_us = pg_mono_us() + HINT_US;
    if (conn == NULL) {
        return;
    }
    const bool fresh = atomic_exchange(&w->unhinted, false);
    const pg_call call = { .sql = sql_safe_hint_head, .answer_us = ANSWER_US };
    const weir_status status = weir__pg_run(conn, &call, &result, NULL);
    weir__pg_give(conn);
    if (fresh) {
        w->hint_pause_us = HINT_US;
    }
    if (status == WEIR_OK && pq.PQntuples(result) == 1) {
        const int64_t to = fresh ? weir__pg_i64(result, 0, 1) : w->hint_to;
        w->hint_to = weir__pg_i64_or(result, 0, 0, 0) < to ? to : 0;
    } else {
        w->hint_to = 0; /* the next commit asks again */
        w->hint_pause_us = HINT_US_MAX;
    }
    w->next_hint_us = pg_mono_us() + w->hint_pause_us;
    w->hint_pause_us = time_sooner(2 * w->hint_pause_us, HINT_US_MAX);
    pq.PQclear(result);
}

static bool hint_wanted(pg_wake *w)
{
    return w->hint_to > 0 || atomic_load(&w->unhinted);
}

static void poll_if_due(pg_wake *w, int64_t now_us)
{
    if (w->listener.state == LISTENER_READY) {
        w->next_poll_us = 0;
        return;
    }
    if (w->next_poll_us != 0 && now_us >= w->next_poll_us) {
        watches_wake(w);
    }
    if (w->next_poll_us == 0 || now_us >= w->next_poll_us) {
        w->next_poll_us = now_us + span_jittered(POLL_US);
    }
}

/* When there is something to do, if nothing comes before. */
static int64_t next_due(pg_wake *w, bool listen)
{
    int64_t due_us = w->listener.due_us;
    if (listen && w->listener.state == LISTENER_DOWN) {
        due_us = time_sooner(due_us, w->next_begin_us);
    }
    if (listen && w->listener.state != LISTENER_READY) {
        due_us = time_sooner(due_us, w->next_poll_us);
    }
    if (atomic_load(&w->unsent) && !w->listener.asking) {
        due_us = time_sooner(due_us, notify_due_us(w));
    }
    if (hint_wanted(w)) {
        due_us = time_sooner(due_us, w->next_hint_us);
    }
    return due_us;
}

static void wait_and_step(pg_wake *w, int64_t until_us)
{
    uint64_t count;
    struct pollfd fds[2] = {
        { .fd = w->fd, .events = POLLIN },
        { .fd = weir__pg_listener_fd(&w->listener), .events = w->listener.events },
    };
    const int64_t left_us = until_us - pg_mono_us();
    const int left_ms = left_us <= 0            ? 0
                        : left_us > WAIT_US_MAX ? -1
                                                : (int)((left_us + 999) / 1000);
    const int ready = poll(fds, 2, left_ms);
    if (ready > 0 && fds[0].revents != 0) {
        const ssize_t got = read(w->fd, &count, sizeof count);
        (void)got; /* non-blocking: how often we were told does not matter */
    }
    const int64_t now_us = pg_mono_us();
    /* Never before its time: a connection being made may not be looked at before it is ready. */
    if (w->listener.state != LISTENER_DOWN &&
        ((ready > 0 && fds[1].revents != 0) || now_us >= w->listener.due_us)) {
        const bool notifying = w->listener.notifying;
        wake_told(w, weir__pg_listener_step(&w->listener, now_us), notifying, now_us);
    }
}

static void *wake_main(void *arg)
{
    pg_wake *w = arg;
    int64_t end_us = INT64_MAX; /* once stopping */
    for (;;) {
        weir__lock(&w->mu);
        const bool stopping = w->stopping;
        const bool listen = w->listen;
        weir__unlock(&w->mu);
        const int64_t now_us = pg_mono_us();
        if (stopping && end_us == INT64_MAX) {
            end_us = now_us + CLOSE_US;
            w->next_look_us = 0; /* somebody may have come since we looked */
        }
        if (listen && !stopping) {
            listen_if_due(w, now_us);
            poll_if_due(w, now_us);
        }
        send_if_due(w, now_us);
        if (hint_wanted(w) && now_us >= w->next_hint_us) {
            hint_ask(w);
        }
        if (stopping && (now_us >= end_us || !(atomic_load(&w->unsent) || w->listener.notifying))) {
            break;
        }
        wait_and_step(w, time_sooner(next_due(w, listen && !stopping), end_us));
    }
    if (hint_wanted(w) && pg_mono_us() < end_us) {
        hint_ask(w);
    }
    weir__pg_listener_close(&w->listener);
    return NULL;
}

/* Signals belong to the program: none is handled by this thread. */
static void run_locked(pg_wake *w) WEIR_REQUIRES(w->mu)
{
    sigset_t all, before;
    if (w->running) {
        return;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    w->running = pthread_create(&w->thread, NULL, wake_main, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- from any thread ---------------------------------------------------------------------- */

weir_status weir__pg_wake_open(pg_wake **out, pg_store *s, weir_error *err)
{
    pg_wake *w = weir__calloc(1, sizeof *w);
    if (w == NULL || !weir__mutex_init(&w->mu)) {
        weir__free(w);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate wake-ups");
    }
    if (!weir__cond_init(&w->settled)) {
        weir__mutex_destroy(&w->mu);
        weir__free(w);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate wake-ups");
    }
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0) {
        const int error = errno;
        weir__cond_destroy(&w->settled);
        weir__mutex_destroy(&w->mu);
        weir__free(w);
        (void)weir__fail(err, WEIR_EIO, "could not open a wake-up descriptor: errno %d", error);
        weir__error_store_code(err, "%d", error);
        return WEIR_EIO;
    }
    w->store = s;
    w->watches.mu = &w->mu;
    w->mode = MODE_NONE;
    w->look_us = LOOK_US;
    weir__pg_listener_init(&w->listener, s);
    *out = w;
    return WEIR_OK;
}

/* Somebody wants to be woken by others, too: starts the thread when need be, and waits, for a
 * bounded time, until it listens or is known not to. */
static weir_status wake_listen(pg_wake *w, weir_error *err)
{
    const int64_t end_us = pg_mono_us() + OPEN_WAIT_US;
    weir__lock(&w->mu);
    w->listen = true;
    run_locked(w);
    const bool running = w->running;
    if (running) {
        signal_thread(w);
        while (w->mode == MODE_NONE && weir__cond_wait_until(&w->settled, &w->mu, end_us)) {
            /* a server that does not answer is waited for no longer than this */
        }
    }
    weir__unlock(&w->mu);
    return running ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not start a thread");
}

weir_status weir__pg_watch_open(weir_store *s, store_watch **out, weir_error *err)
{
    pg_wake *w = pg_of(s)->wake;
    /* First, so that what is committed elsewhere after this call wakes the watch, and becoming able
     * to listen does not. */
    const weir_status status = wake_listen(w, err);
    return status != WEIR_OK ? status : weir__watch_add(&w->watches, NULL, out, err);
}

void weir__pg_wake(pg_store *s)
{
    pg_wake *w = s->wake;
    if (w == NULL) {
        return;
    }
    watches_wake(w);
    atomic_store(&w->unhinted, true);
    if (!atomic_exchange(&w->unsent, true)) {
        weir__lock(&w->mu);
        run_locked(w);
        weir__unlock(&w->mu);
        signal_thread(w);
    }
}

void weir__pg_wake_wrote(pg_store *s, int64_t events, int64_t position)
{
    if (s->wake != NULL) {
        atomic_fetch_add(&s->wake->written, events);
        atomic_store(&s->wake->position, position);
    }
    weir__pg_wake(s);
}

void weir__pg_wake_close(pg_wake *w)
{
    if (w == NULL) {
        return;
    }
    weir__lock(&w->mu);
    w->stopping = true;
    const bool running = w->running;
    weir__unlock(&w->mu);
    if (running) {
        signal_thread(w);
        (void)pthread_join(w->thread, NULL);
    } else if (atomic_load(&w->unsent)) {
        (void)notify_by_pool(w, true, w->listener.channel); /* there was no thread to be had */
    }
    (void)close(w->fd);
    weir__cond_destroy(&w->settled);
    weir__mutex_destroy(&w->mu);
    weir__free(w);
}
