/* committer.c - see committer.h.
 *
 * INVARIANTS
 *   (1) `leading` is true exactly while one caller (the leader) runs transactions or has been
 *       chosen to.
 *   (2) The queue is in arrival order; the leader takes from its front, so callers are judged in
 *       the order in which they came.
 *   (3) A caller that was taken into a batch gets exactly one answer; its record lives on its own
 *       stack and is not touched after it was told. When the store is busy, those whose own time to
 *       wait is not up get none yet: they go back to the front of the queue.
 *   (4) The leader is the caller that has waited longest, so a batch never waits for longer than
 *       any of its callers may.
 *   (5) A batch waits for nothing that somebody outside of it holds (STORE_APPEND_NOWAIT). A caller
 *       whose stream or key is held waits for it alone, in its own thread, when its batch is over
 *       and somebody else leads: whoever queues up behind it is not held up.
 *
 *   caller: QUEUED <--busy-- --taken by a leader--> JUDGED (done) --held--> ALONE --> JUDGED
 *             |
 *             +--front of the queue when a leader ends--> LEADER --its batch--> JUDGED
 *
 * THREADS  `mu` guards everything below it. It is never held over a store call, nor while anybody
 * is woken: a caller that wakes up finds its answer in its own record and needs no lock. (With a
 * condition per caller, 64 callers switched threads twice as often and were a quarter slower.)
 */
#include "store/committer.h"

#include "base/assert.h"
#include "base/error.h"

/* What a waiting caller is told: its append was judged, or it is the next leader. */
enum { TOLD_DONE = 1, TOLD_LEAD = 2 };

typedef struct waiter {
    store_append *append; /* borrowed from the caller */
    struct waiter *next;  /* guarded by the committer's mu */
    weir_baton told;
} waiter;

struct committer {
    weir_store *store; /* borrowed, immutable */

    weir_mutex mu;
    /* guarded by mu */
    waiter *front, *back;
    size_t waiting_count; /* queued and in the running batch */
    bool leading;
};

weir_status weir__committer_open(committer **out, weir_store *store, weir_error *err)
{
    committer *c = weir__calloc(1, sizeof *c);
    if (c == NULL || !weir__mutex_init(&c->mu)) {
        weir__free(c);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the committer");
    }
    c->store = store;
    *out = c;
    return WEIR_OK;
}

void weir__committer_close(committer *c)
{
    if (c == NULL) {
        return;
    }
    WEIR_ASSERT(c->front == NULL && !c->leading);
    weir__mutex_destroy(&c->mu);
    weir__free(c);
}

/* One append in a transaction of its own. An outcome that is not known is found out by asking
 * again, if the append has a key: the store then replays it or writes it, once. Without a key it is
 * never repeated. */
static void run_alone(committer *c, store_append *append)
{
    append->alone = false;
    weir_status status = c->store->ops->append(c->store, &append, 1, append->err);
    if (status == WEIR_EUNKNOWN && append->key.len > 0) {
        status = c->store->ops->append(c->store, &append, 1, append->err);
    }
    if (status != WEIR_OK) {
        append->status = status;
        append->alone = false;
    }
}

/* Whether a caller of a batch that failed as a whole may be run alone. */
static bool may_run_alone(const store_append *append, weir_status batch_failed_with)
{
    if (batch_failed_with == WEIR_EUNKNOWN) {
        return append->key.len > 0;
    }
    /* The time to wait is spent; waiting once more for each would multiply it. */
    return batch_failed_with != WEIR_EBUSY;
}

/* Whether a caller goes on waiting although the transaction it was in got no turn. */
static bool has_time_left(const store_append *append, int64_t now_us)
{
    return append->deadline_us != 0 && append->deadline_us > now_us;
}

/* Returns how many have their answer: all of them, or those at the front whose time is up. */
static size_t run_batch(committer *c, store_append *const *batch, size_t count)
{
    weir_error err = { 0 };
    size_t answered = count;
    if (count == 1) {
        run_alone(c, batch[0]);
        return count;
    }
    const weir_status status = c->store->ops->append(c->store, batch, count, &err);
    if (status == WEIR_OK) {
        return count;
    }
    if (status == WEIR_EBUSY) {
        const int64_t now_us = weir__clock_mono(weir__clock_machine());
        answered = 1; /* the leader, so that it ends */
        while (answered < count && !has_time_left(batch[answered], now_us)) {
            answered++;
        }
    }
    for (size_t i = 0; i < answered; i++) {
        if (may_run_alone(batch[i], status)) {
            run_alone(c, batch[i]);
            continue;
        }
        batch[i]->status = status;
        batch[i]->alone = false;
        if (batch[i]->err != NULL) {
            *batch[i]->err = err;
        }
    }
    return answered;
}

static size_t append_bytes(const store_append *a)
{
    size_t bytes = 0;
    for (size_t i = 0; i < a->events_count; i++) {
        bytes += a->events[i].data.len + a->events[i].meta.len;
    }
    return bytes;
}

/* Takes the front of the queue, at least one caller. */
static size_t take_batch_locked(committer *c, waiter **waiters, store_append **batch)
    WEIR_REQUIRES(c->mu)
{
    size_t count = 0;
    size_t events = 0;
    size_t bytes = 0;
    while (c->front != NULL && count < COMMITTER_BATCH_CALLERS_MAX &&
           events < COMMITTER_BATCH_EVENTS_MAX && bytes < COMMITTER_BATCH_BYTES_MAX) {
        waiter *w = c->front;
        c->front = w->next;
        events += w->append->events_count;
        bytes += append_bytes(w->append);
        waiters[count] = w;
        batch[count] = w->append;
        count++;
    }
    if (c->front == NULL) {
        c->back = NULL;
    }
    return count;
}

/* Puts callers back to the front of the queue, in their order. */
static void put_back_locked(committer *c, waiter *const *waiters, size_t count) WEIR_REQUIRES(c->mu)
{
    for (size_t i = count; i > 0; i--) {
        waiters[i - 1]->next = c->front;
        if (c->front == NULL) {
            c->back = waiters[i - 1];
        }
        c->front = waiters[i - 1];
    }
}

/* The caller is the leader and at the front of the queue. */
static void lead(committer *c, waiter *self)
{
    waiter *waiters[COMMITTER_BATCH_CALLERS_MAX];
    store_append *batch[COMMITTER_BATCH_CALLERS_MAX];

    weir__lock(&c->mu);
    WEIR_ASSERT(c->leading && c->front == self);
    const size_t count = take_batch_locked(c, waiters, batch);
    weir__unlock(&c->mu);

    const size_t answered = run_batch(c, batch, count);

    weir__lock(&c->mu);
    c->waiting_count -= answered;
    put_back_locked(c, waiters + answered, count - answered);
    weir__unlock(&c->mu);
    for (size_t i = 0; i < answered; i++) {
        if (waiters[i] != self) {
            weir__baton_pass(&waiters[i]->told, TOLD_DONE);
        }
    }

    /* Last, so that those who come back at once with their next append are in the next batch. */
    weir__lock(&c->mu);
    waiter *next = c->front;
    c->leading = next != NULL;
    weir__unlock(&c->mu);
    if (next != NULL) {
        weir__baton_pass(&next->told, TOLD_LEAD);
    }
}

weir_status weir__committer_append(committer *c, store_append *append)
{
    waiter self = { .append = append };
    append->alone = false;
    if (!c->store->ops->group_commit) {
        run_alone(c, append);
        return append->status;
    }
    append->flags |= STORE_APPEND_NOWAIT;
    weir__lock(&c->mu);
    if (c->waiting_count >= COMMITTER_WAITING_MAX) {
        weir__unlock(&c->mu);
        return weir__fail(append->err, WEIR_EBUSY, "%d appends are waiting already; try again",
                          COMMITTER_WAITING_MAX);
    }
    c->waiting_count++;
    if (c->back == NULL) {
        c->front = &self;
    } else {
        c->back->next = &self;
    }
    c->back = &self;
    const bool first = !c->leading;
    c->leading = true;
    weir__unlock(&c->mu);
    if (first || weir__baton_await(&self.told) == TOLD_LEAD) {
        lead(c, &self);
    }
    append->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
    if (append->status == WEIR_EBUSY && append->alone) {
        run_alone(c, append);
    }
    return append->status;
}

size_t weir__committer_waiting(committer *c)
{
    weir__lock(&c->mu);
    const size_t count = c->waiting_count;
    weir__unlock(&c->mu);
    return count;
}
