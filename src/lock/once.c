/* once.c - see once.h. */
#include "lock/once.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "lock/lock_private.h"
#include "store/request.h"

enum { FINISH_PAUSE_US = 200 * 1000 };

struct once_run {
    store_url url;        /* owned */
    weir_store *store;    /* owned */
    weir_str key, holder; /* in url.memory */
    int64_t check_us, lease_us;
    int64_t known_us, due_us;
    weir_arena arena; /* of `is` */
    store_lock is;
};

static weir_status run_open(once_run *r, const once_request *q, weir_error *err)
{
    weir_status status = weir__name_check("key", q->key, true, err);
    if (status == WEIR_OK) {
        status = weir__url_parse(&r->url, q->url, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    r->key = (weir_str){ weir__arena_copy(&r->url.memory, q->key.ptr, q->key.len), q->key.len };
    r->holder =
        (weir_str){ weir__arena_copy(&r->url.memory, q->holder.ptr, q->holder.len), q->holder.len };
    if (r->key.ptr == NULL || r->holder.ptr == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a run");
    }
    r->check_us = q->check_us;
    r->lease_us = q->check_us + q->grace_us + LOCK_MARGIN_US;
    /* An attempt that fails within the time between two checks is repeated at the next. */
    store_options *o = &r->url.options;
    o->busy_us = weir__lock_least(o->busy_us, r->check_us / LOCK_CHECKS);
    o->open_flags = strcmp(r->url.scheme, "memory") == 0 ? 0 : WEIR_OPEN_EXISTING;
    return weir__store_open(&r->store, &r->url, err);
}

weir_status weir__once_begin(once_run *r, weir_error *err)
{
    const int64_t now_us = weir__clock_boot();
    weir__arena_reset(&r->arena);
    const weir_status status = r->store->locks->take(
        r->store, &(store_lock_request){ STORE_ONCE, r->key, r->holder, r->lease_us }, &r->arena,
        &r->is, err);
    if (status == WEIR_OK) {
        r->known_us = now_us;
        r->due_us = now_us + r->check_us / LOCK_CHECKS;
    }
    return status;
}

weir_status weir__once_open(once_run **out, const once_request *q, weir_error *err)
{
    once_run *r = weir__calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a run");
    }
    weir_status status = run_open(r, q, err);
    if (status == WEIR_OK) {
        status = weir__once_begin(r, err);
    }
    if (status != WEIR_OK && status != WEIR_EINFLIGHT) {
        weir__once_close(r);
        return status;
    }
    *out = r;
    return status;
}

void weir__once_close(once_run *r)
{
    if (r == NULL) {
        return;
    }
    if (r->store != NULL) {
        r->store->about->close(r->store);
    }
    weir__arena_free(&r->arena);
    weir__url_free(&r->url);
    weir__free(r);
}

const store_lock *weir__once_state(const once_run *r)
{
    return &r->is;
}

int64_t weir__once_due_us(const once_run *r)
{
    return r->due_us;
}

weir_status weir__once_watch(once_run *r, int64_t *known_us, weir_error *err)
{
    const int64_t now_us = weir__clock_boot();
    weir_status status = WEIR_OK;
    if (now_us >= r->due_us) {
        status = r->store->locks->extend(r->store, STORE_ONCE, r->key, r->is.fence, r->is.token,
                                         r->lease_us, err);
        if (status == WEIR_OK) {
            r->known_us = now_us;
        }
        if (status != WEIR_ELOST) { /* the store may come back before the lease has ended */
            status = WEIR_OK;
        }
        r->due_us = now_us + r->check_us / LOCK_CHECKS;
    }
    if (status == WEIR_OK && weir__clock_boot() - r->known_us >= r->check_us) {
        status = weir__wrap(err, WEIR_ELOST, "the lease could not be renewed");
    }
    *known_us = r->known_us;
    return status;
}

static bool comes_back(weir_status status)
{
    return status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN || status == WEIR_EBUSY;
}

weir_status weir__once_finish(once_run *r, int exit_status, weir_str output, bool *kept,
                              weir_error *err)
{
    const int64_t until_us = r->known_us + r->lease_us;
    weir_status status = WEIR_OK;
    *kept = true;
    for (;;) {
        /* Finishing what is finished is no mistake: one whose answer was lost is repeated. */
        status = r->store->locks->finish(r->store, r->key, r->is.fence, r->is.token, exit_status,
                                         *kept ? output : (weir_str){ 0 }, err);
        if (status == WEIR_OK || status == WEIR_ELOST) {
            return status;
        }
        if (!comes_back(status)) {
            if (!*kept || output.len == 0) {
                return status;
            }
            *kept = false; /* that it was done matters more than what it said */
            continue;
        }
        if (weir__clock_boot() >= until_us) {
            return status;
        }
        weir__clock_pause(FINISH_PAUSE_US);
    }
}
