/* runner_write.c - what became of a row, written to it.
 *
 * A connection that was lost is replaced, and what is known not to have happened is tried again,
 * while the row is still ours: until its lease can have ended, or for WRITE_PATIENCE_US.
 */
#include "base/clock.h"
#include "base/error.h"
#include "claim/runner_private.h"

#define WRITE_PATIENCE_US INT64_C(30000000)
#define WRITE_PAUSE_US    INT64_C(100000)

finish_request weir__runner_finish(const runner *r, const runner_row *row, finish_kind kind)
{
    finish_request f = weir__claim_finish_of(r->o->request);

    f.key = row->key;
    f.key_count = r->o->table->key_count;
    f.kind = kind;
    f.at = row->at;
    f.has_fence = row->has_fence;
    f.fence = row->fence;
    return f;
}

static table_session *session_take(runner *r)
{
    weir__lock(&r->mu);
    while (r->session_busy) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    r->session_busy = true;
    table_session *s = r->session;
    weir__unlock(&r->mu);
    return s;
}

static void session_give(runner *r, table_session *s)
{
    weir__lock(&r->mu);
    r->session = s;
    r->session_busy = false;
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
}

/* One attempt, over a session that works. */
static weir_status write_once(runner *r, const finish_request *f, weir_error *err)
{
    table_session *s = session_take(r);
    weir_status status = s == NULL ? weir__table_session_open(r->o->db, &s, err) : WEIR_OK;

    if (status == WEIR_OK) {
        status = weir__claim_finish(s, f, NULL, err);
    }
    if (s != NULL && (status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN)) {
        weir__table_session_close(s);
        s = NULL;
    }
    session_give(r, s);
    return status;
}

/* Whether it is worth another attempt. What may have happened may happen again only if that changes
 * nothing; and then the row may have its new values already. */
static bool is_worth_more(weir_status status, finish_request *f)
{
    if (status == WEIR_EUNKNOWN) {
        f->held_count = 0;
        return f->writes.set_sql_count == 0 && (f->by.len > 0 || f->has_fence);
    }
    return status == WEIR_EUNAVAILABLE || status == WEIR_ECONFLICT || status == WEIR_EHELD ||
           status == WEIR_EBUSY;
}

weir_status weir__runner_write(runner *r, runner_row *row, finish_kind kind,
                               const claim_writes *writes, weir_error *err)
{
    finish_request f = weir__runner_finish(r, row, kind);
    int64_t until_us = weir__clock_boot() + WRITE_PATIENCE_US;
    weir_status status;

    f.writes = *writes;
    weir__lock(&r->mu);
    if (row->held_until_us < INT64_MAX) {
        until_us = row->held_until_us;
    }
    weir__unlock(&r->mu);
    for (;;) {
        status = write_once(r, &f, err);
        if (status == WEIR_OK || !is_worth_more(status, &f) || weir__clock_boot() >= until_us) {
            return status;
        }
        weir__clock_pause(WRITE_PAUSE_US);
    }
}
