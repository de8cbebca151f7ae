/* settle.c - the end of a lease: effects, positions and fence in one transaction; and the smaller
 * verbs that name a fence. Nothing is written for a target unless its lease has that fence. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

weir_str weir__memory_error_text(weir_str text)
{
    if (text.len > STORE_ERROR_TEXT_BYTES_MAX) {
        text.len = weir__utf8_valid_prefix(text.ptr, STORE_ERROR_TEXT_BYTES_MAX);
    }
    return text;
}

bool weir__memory_error_clear(memory_core *c, memory_target *t)
{
    t->state.event = 0;
    t->state.attempts = 0;
    t->state.failed = NULL;
    return weir__tx_set_text(c, &t->state.error, (weir_str){ 0 });
}

static weir_status no_subscription(const memory_target *t, int64_t reaction, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "target \"%.*s\" has no subscription of reaction %lld",
                      (int)t->item.key.len, t->item.key.ptr, (long long)reaction);
}

weir_status weir__memory_failure(memory_core *c, memory_target *t, const store_failure *failure,
                                 weir_error *err)
{
    memory_reaction *r = weir__memory_reaction(c, failure->reaction);
    int64_t attempts = 0;

    if (failure->reaction != 0) {
        memory_subscription *s = weir__memory_subscription(t, r);
        if (s == NULL) {
            return no_subscription(t, failure->reaction, err);
        }
        attempts = ++s->state.retries;
    }
    t->state.event = failure->event;
    t->state.failed = r;
    t->state.attempts = attempts;
    return weir__tx_set_text(c, &t->state.error, weir__memory_error_text(failure->error))
               ? WEIR_OK
               : weir__memory_full(err);
}

/* Each append must succeed; the first refusal is the answer. */
static weir_status run_appends(memory_core *c, const store_settle *settle, int64_t now_us,
                               weir_error *err)
{
    for (size_t i = 0; i < settle->appends_count; i++) {
        store_append *append = settle->appends[i];
        weir_error *own = append->err;
        bool wrote = false;

        append->err = own == NULL ? err : own;
        (void)weir__memory_append_one(c, append, now_us, &wrote);
        append->err = own;
        if (append->status != WEIR_OK) {
            if (own != NULL && err != NULL && own != err) {
                *err = *own;
            }
            return append->status;
        }
    }
    return WEIR_OK;
}

/* *advanced becomes true when one of them moved. */
static weir_status run_advances(memory_core *c, memory_target *t, const store_settle *settle,
                                bool *advanced, weir_error *err)
{
    for (size_t i = 0; i < settle->advances_count; i++) {
        const store_advance *a = &settle->advances[i];
        memory_subscription *s =
            weir__memory_subscription(t, weir__memory_reaction(c, a->reaction));
        if (s == NULL) {
            return no_subscription(t, a->reaction, err);
        }
        if (a->to <= s->state.at) {
            continue;
        }
        *advanced = true;
        t->state.lost = 0;
        s->state.retries = 0;
        s->state.at = a->to;
        /* at never goes past mark, or an event marked later would be stepped over. */
        s->state.mark = a->to > s->state.mark ? a->to : s->state.mark;
        if (!weir__memory_work_drop(c, s, a->to)) {
            return weir__memory_full(err);
        }
    }
    return WEIR_OK;
}

static weir_status run_parks(memory_core *c, memory_target *t, const store_settle *settle,
                             int64_t now_us, weir_error *err)
{
    for (size_t i = 0; i < settle->parks_count; i++) {
        const store_park *park = &settle->parks[i];
        memory_subscription *s =
            weir__memory_subscription(t, weir__memory_reaction(c, park->reaction));
        if (s == NULL) {
            return no_subscription(t, park->reaction, err);
        }
        const weir_status status = weir__memory_park(c, s->reaction, s, park, now_us, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < settle->parked_done_count; i++) {
        memory_parked *p = weir__memory_parked_get(c, settle->parked_done[i]);
        const bool ours = p != NULL && p->state.sent_back && p->subscription->target == t;
        if (ours && !weir__memory_parked_remove(c, p)) {
            return weir__memory_full(err);
        }
    }
    return WEIR_OK;
}

static weir_status end_lease(memory_core *c, memory_target *t, const store_settle *settle,
                             int64_t now_us, weir_error *err)
{
    struct target_state *state = &t->state;
    if (settle->end == STORE_END_KEEP) {
        state->until_us = weir__memory_later(now_us, settle->lease_us);
        state->lapsed = false;
        return WEIR_OK;
    }
    if (settle->end == STORE_END_DEFER) {
        state->due_us = settle->until_us;
    } else if (settle->end == STORE_END_BLOCK) {
        state->blocked = true;
        state->blocked_us = now_us;
    }
    return weir__memory_lease_end(c, t) ? WEIR_OK : weir__memory_full(err);
}

weir_status weir__memory_settle_in(memory_handle *h, store_settle *settle, weir_error *err)
{
    memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    const bool failed = settle->failure.reaction != 0 || settle->end == STORE_END_BLOCK;
    bool advanced = false;

    weir__memory_keys_expire(h);
    weir_status status = settle->sql == NULL ? WEIR_OK : settle->sql(settle->sql_ctx, NULL, err);
    memory_target *t = weir__memory_target(c, settle->target);
    if (status == WEIR_OK) {
        status = weir__memory_fence_check(t, settle->target, settle->fence, err);
    }
    if (status == WEIR_OK) {
        status = run_appends(c, settle, now_us, err);
    }
    if (status == WEIR_OK && !weir__tx_edit(c, t)) {
        status = weir__memory_full(err);
    }
    if (status == WEIR_OK) {
        status = run_advances(c, t, settle, &advanced, err);
    }
    if (status == WEIR_OK && advanced && !failed && !weir__memory_error_clear(c, t)) {
        status = weir__memory_full(err);
    }
    if (status == WEIR_OK) {
        status = run_parks(c, t, settle, now_us, err);
    }
    if (status == WEIR_OK && failed) {
        status = weir__memory_failure(c, t, &settle->failure, err);
    }
    if (status == WEIR_OK) {
        status = end_lease(c, t, settle, now_us, err);
    }
    if (status == WEIR_OK) {
        weir__memory_derive(t);
        settle->behind = t->state.behind && !t->state.paused && !t->lane->paused;
        settle->lease_until_us = t->state.until_us; /* 0 unless it was kept */
    }
    return status;
}

weir_status weir__memory_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = weir__memory_settle_in(h, settle, err);
    status = weir__tx_end(h, status, weir__settle_gives_work(settle, settle->behind));
    weir__unlock(&h->core->mu);
    return status;
}

weir_status weir__memory_block(weir_store *base, int64_t target, int64_t fence,
                               const store_failure *why, weir_error *err)
{
    store_settle settle = {
        .target = target, .fence = fence, .failure = *why, .end = STORE_END_BLOCK
    };
    return weir__memory_settle(base, &settle, err);
}

weir_status weir__memory_defer(weir_store *base, int64_t target, int64_t fence, int64_t until_us,
                               weir_error *err)
{
    store_settle settle = {
        .target = target, .fence = fence, .end = STORE_END_DEFER, .until_us = until_us
    };
    return weir__memory_settle(base, &settle, err);
}

/* ---- many targets at once ----------------------------------------------------------------- */

/* One item's own answer. */
static weir_status fenced_one(memory_core *c, store_settle *end, store_fenced *item, int64_t now_us,
                              weir_error *err)
{
    memory_target *t = weir__memory_target(c, item->target);
    item->status = weir__memory_fence_check(t, item->target, item->fence, NULL);
    if (item->status != WEIR_OK) {
        return WEIR_OK;
    }
    if (!weir__tx_edit(c, t)) {
        return weir__memory_full(err);
    }
    const weir_status status = end_lease(c, t, end, now_us, err);
    if (end->end == STORE_END_KEEP) {
        item->until_us = t->state.until_us;
    }
    return status;
}

/* Extends or releases. Answers are worked out on copies and handed out when all is committed. */
static weir_status fenced(weir_store *base, store_settle *end, store_fenced *items, size_t count,
                          weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK || count == 0) {
        return status;
    }
    store_fenced *answers = weir__calloc(count, sizeof *answers);
    if (answers == NULL) {
        return weir__memory_full(err);
    }
    memcpy(answers, items, count * sizeof *answers);
    weir__lock(&h->core->mu);
    const int64_t now_us = weir__memory_now(h);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = fenced_one(h->core, end, &answers[i], now_us, err);
    }
    status = weir__tx_end(h, status, end->end == STORE_END_RELEASE);
    weir__unlock(&h->core->mu);
    if (status == WEIR_OK) {
        memcpy(items, answers, count * sizeof *answers);
    }
    weir__free(answers);
    return status;
}

weir_status weir__memory_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err)
{
    store_settle end = { .end = STORE_END_KEEP, .lease_us = lease_us };
    return fenced(base, &end, items, count, err);
}

weir_status weir__memory_release(weir_store *base, store_fenced *items, size_t count,
                                 weir_error *err)
{
    store_settle end = { .end = STORE_END_RELEASE };
    return fenced(base, &end, items, count, err);
}
