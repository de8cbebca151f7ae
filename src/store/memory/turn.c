/* turn.c - what ends and what begins in one transaction: many plain settles, then one lease.
 *
 * What cannot be settled is found before anything is written for it, so that nothing has to be
 * undone for one of them. Answers are handed out when all is committed.
 */
#include "store/memory/memory_store.h"

#include "base/assert.h"
#include "base/error.h"

typedef struct turn_answer {
    weir_status status;
    bool behind;
} turn_answer;

/* WEIR_OK, or why this one cannot be settled: ELOST, ENOTFOUND. */
static weir_status judge(const memory_core *c, const store_settle *settle)
{
    const memory_target *t = weir__memory_target(c, settle->target);
    const weir_status status = weir__memory_fence_check(t, settle->target, settle->fence, NULL);
    if (status != WEIR_OK) {
        return status;
    }
    for (size_t i = 0; i < settle->advances_count; i++) {
        const memory_reaction *r = weir__memory_reaction(c, settle->advances[i].reaction);
        if (weir__memory_subscription(t, r) == NULL) {
            return WEIR_ENOTFOUND;
        }
    }
    return WEIR_OK;
}

static weir_status settle_one(memory_handle *h, const store_settle *settle, turn_answer *answer,
                              weir_error *err) WEIR_REQUIRES(h->core->mu)
{
    WEIR_ASSERT(settle->sql == NULL && settle->appends_count == 0 && settle->parks_count == 0 &&
                settle->parked_done_count == 0 && settle->failure.reaction == 0 &&
                settle->end == STORE_END_RELEASE);
    answer->status = judge(h->core, settle);
    if (answer->status != WEIR_OK) {
        return WEIR_OK;
    }
    store_settle copy = *settle;
    const weir_status status = weir__memory_settle_in(h, &copy, err);
    answer->behind = copy.behind;
    return status;
}

static weir_status turn_locked(memory_handle *h, store_settle *const *settles, size_t count,
                               turn_answer *answers, const store_lease_request *lease,
                               store_lease_list *list, weir_error *err) WEIR_REQUIRES(h->core->mu)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = settle_one(h, settles[i], &answers[i], err);
    }
    if (status != WEIR_OK || lease == NULL || lease->limit == 0) {
        return status;
    }
    if (!weir__tx_place(h->core)) {
        return weir__memory_full(err);
    }
    return weir__memory_lease_in(h, lease, list, err);
}

weir_status weir__memory_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__memory_leases_clear(list);
    weir_status status = weir__memory_writable(h, err);
    if (status != WEIR_OK) {
        return status;
    }
    turn_answer *answers = weir__calloc(settles_count + 1, sizeof *answers); /* may be none */
    int64_t *left = weir__calloc(settles_count + 1, sizeof *left);           /* with work */
    size_t left_count = 0;
    if (answers == NULL || left == NULL) {
        status = weir__memory_full(err);
        goto out;
    }
    weir__lock(&h->core->mu);
    status = turn_locked(h, settles, settles_count, answers, lease, list, err);
    for (size_t i = 0; i < settles_count; i++) {
        if (answers[i].behind) {
            left[left_count++] = settles[i]->target;
        }
    }
    status = weir__tx_end(h, status, !weir__leased_all(left, left_count, list));
    weir__unlock(&h->core->mu);
    if (status != WEIR_OK) {
        weir__memory_leases_clear(list);
    }
    for (size_t i = 0; i < settles_count && status == WEIR_OK; i++) {
        settles[i]->status = answers[i].status;
        settles[i]->behind = answers[i].behind;
    }
out:
    weir__free(answers);
    weir__free(left);
    return status;
}
