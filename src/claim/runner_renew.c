/* runner_renew.c - the thread that keeps the leases of claimed rows, over a session of its own.
 *
 * A lease is renewed when a third of it has passed. What is not renewed in time is for the
 * supervising thread to see: this one may be waiting for a database that does not answer.
 */
#include "base/clock.h"
#include "base/error.h"
#include "claim/runner_private.h"

#include <stdio.h>

#define IDLE_US  INT64_C(3600000000)
#define RETRY_US INT64_C(250000)

/* The row whose renewal is due first; NULL: there is none. */
static runner_row *earliest_locked(runner *r) WEIR_REQUIRES(r->mu)
{
    runner_row *found = NULL;

    for (size_t i = 0; i < r->count; i++) {
        runner_row *row = &r->row[i];
        if ((row->state == ROW_WAITING || row->state == ROW_RUNNING) && !row->lost &&
            (found == NULL || row->renew_at_us < found->renew_at_us)) {
            found = row;
        }
    }
    return found;
}

/* Waits for a row that is due, and marks it. NULL: nothing is left to do. */
static runner_row *await_due(runner *r)
{
    const weir_clock *clock = weir__clock_machine();
    runner_row *row = NULL;

    weir__lock(&r->mu);
    for (;;) {
        const int64_t now_us = weir__clock_mono(clock);
        row = r->begun ? earliest_locked(r) : NULL;
        if (r->ended || (row != NULL && row->renew_at_us <= now_us)) {
            break;
        }
        (void)weir__cond_wait_until(&r->changed, &r->mu,
                                    row == NULL ? now_us + IDLE_US : row->renew_at_us);
    }
    row = r->ended ? NULL : row;
    if (row != NULL) {
        row->renewing = true;
    }
    weir__unlock(&r->mu);
    return row;
}

static weir_status rows_renew(runner *r, const runner_row *row, weir_error *err)
{
    finish_request f = weir__runner_finish(r, row, FINISH_EXTEND);
    weir_status status = WEIR_OK;

    f.wait_us = r->o->request->lease_us / 6; /* its own command may have it locked; others wait */
    if (r->renewal == NULL) {
        status = weir__table_session_open(r->o->db, &r->renewal, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_finish(r->renewal, &f, NULL, err);
    }
    if (status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN) {
        weir__table_session_close(r->renewal);
        r->renewal = NULL;
    }
    return status;
}

/* sent_us, sent_boot_us: before the renewal was sent. */
static void row_renewed(runner *r, runner_row *row, weir_status status, int64_t sent_us,
                        int64_t sent_boot_us, const weir_error *err)
{
    const int64_t lease_us = r->o->request->lease_us;

    weir__lock(&r->mu);
    row->renewing = false;
    if (status == WEIR_OK) {
        weir__runner_held_locked(r, row, sent_boot_us + lease_us);
        row->renew_at_us = sent_us + lease_us / 3;
    } else if (row->lost) {
        /* It was decided already, and told. */
    } else if (status == WEIR_ELOST || status == WEIR_ENOTFOUND) {
        row->lost = true;
        (void)snprintf(row->why, sizeof row->why, "%s", err->message);
        atomic_store(&row->interrupted, true);
    } else {
        const int64_t pause_us = lease_us / 10 < RETRY_US ? lease_us / 10 : RETRY_US;
        row->renew_at_us = weir__clock_mono(weir__clock_machine()) + pause_us;
    }
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
}

void *weir__runner_renew(void *ctx)
{
    runner *r = ctx;

    for (runner_row *row; (row = await_due(r)) != NULL;) {
        weir_error err;
        const int64_t sent_us = weir__clock_mono(weir__clock_machine());
        const int64_t sent_boot_us = weir__clock_boot();
        const weir_status status = rows_renew(r, row, &err);
        row_renewed(r, row, status, sent_us, sent_boot_us, &err);
    }
    return NULL;
}
