/* hold_watch.c - see hold_private.h and waiters.h. */
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "claim/hold_private.h"
#include "claim/waiters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SWEEPS_MAX = 100 };
#define LOOK_US INT64_C(200000)

weir_status weir__hold_watch_open(hold_watch *w, table_db *db, weir_error *err)
{
    *w = (hold_watch){ .db = db, .end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    if (w->end_fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not make a descriptor: errno %d", errno);
    }
    if (!weir__mutex_init(&w->mu) || !weir__cond_init(&w->changed)) {
        (void)close(w->end_fd);
        *w = (hold_watch){ .db = NULL };
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    (void)snprintf(w->name, sizeof w->name, "weir-hold-%016" PRIx64, weir__random_u64());
    return WEIR_OK;
}

void weir__hold_watch_close(hold_watch *w)
{
    if (w->db == NULL) {
        return;
    }
    weir__table_session_close(w->session);
    (void)close(w->end_fd);
    weir__cond_destroy(&w->changed);
    weir__mutex_destroy(&w->mu);
    *w = (hold_watch){ .db = NULL };
}

/* Ends the command, after what it waits with: that would go on by itself when the row is free. */
static void give_up(hold_watch *w, const waiter_found *found)
{
    const uint64_t one = 1;
    const weir_status left =
        found->waiter == 0 ? WEIR_OK : weir__waiter_end(w->session, found->waiter, NULL);

    weir__lock(&w->mu);
    if (found->waiter != 0) {
        (void)snprintf(
            w->why, sizeof w->why,
            "the command was waiting for its own row, which is locked by the "
            "transaction that waits for the command (backend %" PRId64 " waits for backend %" PRId64
            "), and was ended%s; what is to be written it prints last, as "
            "{\"set\":{\"amount\":5}}",
            found->waiter, w->holder, left == WEIR_OK ? "" : ", but its statement could not be");
    } else {
        w->lost = true;
        (void)snprintf(w->why, sizeof w->why,
                       "the connection that held the row was lost, and the command was ended");
    }
    weir__unlock(&w->mu);
    while (write(w->end_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* One look. false: there is no more to look for. A look that fails is repeated: it is there to
 * help, and the row is safe without it. */
static bool holds_look(hold_watch *w)
{
    const waiter_search search = { .holder = w->holder,
                                   .group = atomic_load(&w->group),
                                   .name = weir__str(w->name) };
    waiter_found found = { .waiter = 0 };
    weir_status status = WEIR_OK;

    if (w->session == NULL) {
        status = weir__table_session_open(w->db, &w->session, NULL);
    }
    if (status == WEIR_OK) {
        status = weir__waiters_look(w->session, &search, &found, NULL);
    }
    if (status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN) {
        weir__table_session_close(w->session);
        w->session = NULL;
    }
    if (status == WEIR_OK && (found.holder_gone || found.waiter != 0)) {
        give_up(w, &found);
        return false;
    }
    return true;
}

static void *watch_main(void *ctx)
{
    hold_watch *w = ctx;
    bool stop = false;

    while (!stop) {
        const int64_t next_us = weir__clock_mono(weir__clock_machine()) + LOOK_US;
        weir__lock(&w->mu);
        while (!w->stop && weir__cond_wait_until(&w->changed, &w->mu, next_us)) {
        }
        stop = w->stop;
        weir__unlock(&w->mu);
        stop = stop || !holds_look(w);
    }
    return NULL;
}

/* The backend as the server knows it: behind a pooler libpq knows another. */
static weir_status holder_ask(hold_watch *w, table_session *s, weir_error *err)
{
    const table_statement ask = { .sql = "SELECT pg_catalog.pg_backend_pid()" };
    table_result r = { .rows_count = 0 };
    weir_status status = weir__table_run(s, &ask, &r, err);

    if (status == WEIR_OK &&
        (r.rows_count != 1 || !weir__str_to_i64(r.cells[0].text, &w->holder))) {
        status = weir__fail(err, WEIR_EIO, "could not find out which backend holds the row");
    }
    weir__table_result_free(&r);
    return status;
}

weir_status weir__hold_watch_begin(hold_watch *w, table_session *s, weir_error *err)
{
    uint64_t count;
    weir_status status;

    w->holder = 0;
    w->stop = false;
    w->why[0] = '\0';
    w->lost = false;
    atomic_store(&w->group, 0);
    (void)!read(w->end_fd, &count, sizeof count);
    if (weir__table_session_dialect(s) != TABLE_POSTGRES) {
        return WEIR_OK;
    }
    status = holder_ask(w, s, err);
    if (status == WEIR_OK) {
        const int error = pthread_create(&w->thread, NULL, watch_main, w);
        w->watches = error == 0;
        status = w->watches
                     ? WEIR_OK
                     : weir__fail(err, WEIR_EIO, "could not start a thread: errno %d", error);
    }
    return status;
}

void weir__hold_watch_sweep(hold_watch *w)
{
    waiter_search search = { .holder = w->holder, .name = weir__str(w->name) };

    if (w->holder == 0 ||
        (w->session == NULL && weir__table_session_open(w->db, &w->session, NULL) != WEIR_OK)) {
        return;
    }
    for (int i = 0; i < SWEEPS_MAX; i++) {
        waiter_found found = { .waiter = 0 };
        if (weir__waiters_look(w->session, &search, &found, NULL) != WEIR_OK || found.waiter == 0 ||
            weir__waiter_end(w->session, found.waiter, NULL) != WEIR_OK) {
            return;
        }
    }
}

bool weir__hold_watch_end(hold_watch *w)
{
    if (w->watches) {
        weir__lock(&w->mu);
        w->stop = true;
        weir__cond_broadcast(&w->changed);
        weir__unlock(&w->mu);
        (void)pthread_join(w->thread, NULL);
        w->watches = false;
    }
    return w->why[0] != '\0';
}
