/* settle.c - the end of a lease: effects, positions and fence in one transaction; and the smaller
 * verbs that name a fence. Nothing is written for a target unless its lease has that fence. */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/error_text.h"
#include "store/judge.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

/* Each append must succeed; the first refusal is the answer. */
static weir_status appends_run(memory_core *c, const store_settle *settle, weir_error *err)
{
    for (size_t i = 0; i < settle->appends_count; i++) {
        store_append *append = settle->appends[i];
        weir_error *own = append->err;
        bool wrote = false;

        append->err = own == NULL ? err : own;
        weir__memory_append_one(c, append, &wrote);
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
static weir_status advances_run(memory_core *c, store_target *t, const store_settle *settle,
                                bool *advanced, weir_error *err)
{
    for (size_t i = 0; i < settle->advances_count; i++) {
        const store_advance *a = &settle->advances[i];
        const memory_subscription *old = weir__memory_subscription(c, t->id, a->reaction);
        if (old == NULL) {
            return weir__subscription_unknown(t->id, a->reaction, err);
        }
        if (a->to <= old->at) {
            continue;
        }
        memory_subscription s = *old;
        *advanced = true;
        t->lost = 0;
        s.retries = 0;
        s.at = a->to;
        /* at never goes past mark, or an event marked later would be stepped over. */
        s.mark = a->to > s.mark ? a->to : s.mark;
        weir__memory_put(c, &c->subscriptions, &s);
        weir__memory_work_drop(c, &s, a->to);
    }
    return WEIR_OK;
}

static weir_status parks_run(memory_core *c, const store_target *t, const store_settle *settle,
                             weir_error *err)
{
    for (size_t i = 0; i < settle->parks_count; i++) {
        const store_park *park = &settle->parks[i];
        if (weir__memory_subscription(c, t->id, park->reaction) == NULL) {
            return weir__subscription_unknown(t->id, park->reaction, err);
        }
        weir__memory_park(c, t->name, park);
    }
    for (size_t i = 0; i < settle->parked_done_count; i++) {
        const store_parked *p = weir__memory_parked_get(c, settle->parked_done[i]);
        if (p != NULL && p->sent_back && weir__str_equal(p->target, t->name)) {
            weir__memory_remove(c, &c->parked, p);
        }
    }
    return WEIR_OK;
}

/* Keeps a failure on the target, and counts it. */
static weir_status failure_run(memory_core *c, store_target *t, const store_failure *failure,
                               weir_error *err)
{
    weir__memory_error_clear(t);
    if (failure->reaction != 0) {
        const memory_subscription *old = weir__memory_subscription(c, t->id, failure->reaction);
        if (old == NULL) {
            return weir__subscription_unknown(t->id, failure->reaction, err);
        }
        memory_subscription s = *old;
        t->attempts = ++s.retries;
        t->reaction = weir__memory_reaction(c, s.reaction)->name;
        weir__memory_put(c, &c->subscriptions, &s);
    }
    t->event = failure->event;
    t->error = weir__error_text_cut(failure->error);
    return WEIR_OK;
}

static void lease_settle(const memory_core *c, store_target *t, const store_settle *settle)
{
    if (settle->end == STORE_END_KEEP) {
        t->leased_until_us = weir__time_later(c->now_us, settle->lease_us);
        return;
    }
    if (settle->end == STORE_END_DEFER) {
        t->due_us = settle->until_us;
    } else if (settle->end == STORE_END_BLOCK) {
        t->blocked = true;
        t->blocked_us = c->now_us;
    }
    weir__memory_lease_end(t);
}

/* Settles inside a transaction, which a failure spoils. */
static weir_status settle_locked(memory_core *c, store_settle *settle, weir_error *err)
{
    bool advanced = false;

    weir_status status = settle->sql == NULL ? WEIR_OK : settle->sql(settle->sql_ctx, NULL, err);
    const store_target *row = weir__memory_target(c, settle->target);
    if (status == WEIR_OK) {
        status = weir__memory_fence_check(row, settle->target, settle->fence, err);
    }
    if (status == WEIR_OK) {
        status = appends_run(c, settle, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    store_target t = *row;
    status = advances_run(c, &t, settle, &advanced, err);
    if (status == WEIR_OK) {
        status = parks_run(c, &t, settle, err);
    }
    if (status == WEIR_OK && weir__settle_fails(settle)) {
        status = failure_run(c, &t, &settle->failure, err);
    } else if (advanced) {
        weir__memory_error_clear(&t);
    }
    if (status == WEIR_OK) {
        lease_settle(c, &t, settle);
        weir__memory_target_put(c, &t);
        settle->behind = t.behind && !t.paused && !weir__memory_lane_paused(c, t.lane);
        settle->lease_until_us = t.leased_until_us; /* 0 unless it was kept */
    }
    return status;
}

weir_status weir__memory_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    store_settle copy = *settle;
    weir__memory_keys_expire(c);
    weir_status status = settle_locked(c, &copy, err);
    status = weir__memory_end(base, status, weir__settle_gives_work(&copy, copy.behind), err);
    if (status == WEIR_OK) {
        settle->behind = copy.behind;
        settle->lease_until_us = copy.lease_until_us;
    }
    return status;
}

/* ---- many targets at once ----------------------------------------------------------------- */

/* Extends or releases. Answers are worked out on copies and handed out when all is kept. */
static weir_status fenced_run(weir_store *base, const store_settle *end, store_fenced *items,
                              size_t count, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    store_fenced *answers = weir__calloc(count + 1, sizeof *answers);

    c->full = answers == NULL;
    for (size_t i = 0; i < count && answers != NULL; i++) {
        store_fenced *item = &answers[i];
        *item = items[i];
        const store_target *row = weir__memory_target(c, item->target);
        item->status = weir__memory_fence_check(row, item->target, item->fence, NULL);
        if (item->status == WEIR_OK) {
            store_target t = *row;
            lease_settle(c, &t, end);
            item->until_us = end->end == STORE_END_KEEP ? t.leased_until_us : item->until_us;
            weir__memory_target_put(c, &t);
        }
    }
    const weir_status status =
        weir__memory_end(base, WEIR_OK, end->end == STORE_END_RELEASE && count > 0, err);
    for (size_t i = 0; i < count && status == WEIR_OK && answers != NULL; i++) {
        items[i] = answers[i];
    }
    weir__free(answers);
    return status;
}

weir_status weir__memory_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err)
{
    const store_settle end = { .end = lease_us == 0 ? STORE_END_RELEASE : STORE_END_KEEP,
                               .lease_us = lease_us };
    return fenced_run(base, &end, items, count, err);
}

/* ---- turn: what ends and what begins, in one transaction ----------------------------------- */

typedef struct turn_answer {
    weir_status status;
    bool behind;
} turn_answer;

/* Settles one, or leaves nothing behind of one that cannot be settled. */
static void turn_settle(memory_core *c, const store_settle *settle, turn_answer *answer)
{
    const size_t changes = c->changes.count;
    store_settle copy = *settle;
    WEIR_ASSERT(settle->sql == NULL && settle->appends_count == 0 &&
                weir__settle_is_plain(settle) && settle->end == STORE_END_RELEASE);
    copy.behind = false;
    answer->status = settle_locked(c, &copy, NULL);
    answer->behind = copy.behind;
    if (answer->status != WEIR_OK) {
        weir__changes_undo(&c->changes, changes);
    }
}

weir_status weir__memory_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    turn_answer *answers = weir__calloc(settles_count + 1, sizeof *answers); /* may be none */
    int64_t *left = weir__calloc(settles_count + 1, sizeof *left);           /* with work */
    size_t left_count = 0;

    weir__leases_clear(list);
    weir_status status = WEIR_OK;
    c->full = answers == NULL || left == NULL;
    for (size_t i = 0; i < settles_count && status == WEIR_OK && !c->full; i++) {
        turn_settle(c, settles[i], &answers[i]);
        if (answers[i].behind) {
            left[left_count++] = settles[i]->target;
        }
    }
    if (status == WEIR_OK && lease != NULL && lease->limit > 0) {
        weir__memory_lease_in(c, lease, list);
    }
    const bool wake = !weir__leased_all(left, left_count, list);
    status = weir__memory_end(base, status, wake, err);
    if (status != WEIR_OK) {
        weir__leases_clear(list);
    }
    for (size_t i = 0; i < settles_count && status == WEIR_OK && answers != NULL; i++) {
        settles[i]->status = answers[i].status;
        settles[i]->behind = answers[i].behind;
    }
    weir__free(answers);
    weir__free(left);
    return status;
}
