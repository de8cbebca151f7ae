/* committer.c - see committer.h.
 *
 * INVARIANTS
 *   (1) At most log->group_commit callers lead at once; each leader has a flight of its own, the
 *       transaction that it runs. Whenever somebody is queued, somebody leads.
 *   (2) No two flights name the same stream or key, so that no flight meets what another one holds.
 *       The queue is in arrival order; a leader takes from its front and steps over those who have
 *       a name in common with another flight, or with somebody stepped over: nobody is overtaken
 *       by an append that has a name in common with his.
 *   (3) A caller that was taken into a batch gets exactly one answer; its record lives on its own
 *       stack and is not touched after it was told. When the store is busy, those whose own time to
 *       wait is not up get none yet: they go back to the front of the queue.
 *   (4) The leader is the first of its batch: the one that had waited longest of those who could
 *       go when it was appointed. So a batch hardly ever waits for longer than its callers may; it
 *       is the leader's time that counts.
 *   (5) A batch waits for nothing that somebody outside of it holds (STORE_APPEND_NOWAIT). A caller
 *       whose stream or key is held waits for it alone, in its own thread, when its batch is over
 *       and somebody else leads: whoever queues up behind it is not held up.
 *
 *   caller: QUEUED <--busy-- --taken by a leader--> JUDGED (done) --held--> ALONE --> JUDGED
 *             |
 *             +--appointed--> LEADER (out of the queue, has a flight) --its batch--> JUDGED
 *
 * A second flight starts when half as many wait as are under way: fewer would make two small
 * transactions out of one. It is worth having because while the database works on one batch, the
 * callers of the other wake up, return and come back with their next append; with one flight those
 * two take turns.
 *
 * Names are compared by hash, NAME_BITS apart: a false match only makes a caller wait for the next
 * batch, or lets a batch have a name more than the store likes (log->batch_names_max), which then
 * makes two transactions of it.
 *
 * THREADS  `mu` guards everything below it. It is never held over a store call, nor while anybody
 * is woken: a caller that wakes up finds its answer in its own record and needs no lock. (With a
 * condition per caller, 64 callers switched threads twice as often and were a quarter slower.)
 */
#include "store/committer.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"

#include <stdatomic.h>
#include <string.h>

/* What a waiting caller is told: its append was judged, or it is to lead. */
enum { TOLD_DONE = 1, TOLD_LEAD = 2 };

enum {
    FLIGHTS_MAX = 4,
    NAME_BITS = 1024,
    NAME_WORDS = NAME_BITS / 64,
    WAITER_NAMES_MAX = 8, /* who has more collides with everybody */
};

typedef struct name_set {
    uint64_t words[NAME_WORDS];
} name_set;

/* A leader's transaction. */
typedef struct flight {
    bool taken;
    size_t count; /* callers */
    name_set names;
} flight;

typedef struct waiter {
    store_append *append; /* borrowed from the caller */
    struct waiter *next;  /* guarded by the committer's mu */
    flight *flight;       /* of a leader; borrowed from the committer */
    weir_baton told;
    uint16_t names[WAITER_NAMES_MAX]; /* hashes of its streams and keys */
    size_t names_count;               /* more than WAITER_NAMES_MAX: not listed */
} waiter;

struct committer {
    weir_store *store; /* borrowed, immutable */
    /* What was counted. Relaxed: numbers that nothing depends on. */
    _Atomic uint64_t appends, events, conflicts, batched;
    _Atomic uint64_t batches[COMMITTER_BATCH_BUCKETS];

    weir_mutex mu;
    /* guarded by mu */
    waiter *front, *back;
    size_t queued_count;
    size_t waiting_count; /* queued and in a batch */
    flight flights[FLIGHTS_MAX];
};

/* ---- names -------------------------------------------------------------------------------- */

static void waiter_name(waiter *w, weir_str name)
{
    if (w->names_count < WAITER_NAMES_MAX) {
        w->names[w->names_count] = (uint16_t)(weir__str_hash(name) % NAME_BITS);
    }
    w->names_count++;
}

/* A stream and a key of the same name collide; that does no harm. */
static void waiter_names(waiter *w)
{
    const store_append *a = w->append;
    for (size_t i = 0; i < a->streams_count && w->names_count <= WAITER_NAMES_MAX; i++) {
        waiter_name(w, a->streams[i].name);
    }
    for (size_t i = 0; i < a->key_changes_count && w->names_count <= WAITER_NAMES_MAX; i++) {
        waiter_name(w, a->key_changes[i].key);
    }
    if (a->key.len > 0) {
        waiter_name(w, a->key);
    }
}

static void names_add(name_set *set, const waiter *w)
{
    if (w->names_count > WAITER_NAMES_MAX) {
        memset(set, 0xff, sizeof *set);
        return;
    }
    for (size_t i = 0; i < w->names_count; i++) {
        set->words[w->names[i] / 64] |= UINT64_C(1) << (w->names[i] % 64);
    }
}

static bool names_empty(const name_set *set)
{
    uint64_t any = 0;
    for (size_t i = 0; i < NAME_WORDS; i++) {
        any |= set->words[i];
    }
    return any == 0;
}

static size_t names_count(const name_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < NAME_WORDS; i++) {
        count += (size_t)__builtin_popcountll(set->words[i]);
    }
    return count;
}

static bool names_meet(const name_set *set, const waiter *w)
{
    if (w->names_count > WAITER_NAMES_MAX) {
        return !names_empty(set);
    }
    for (size_t i = 0; i < w->names_count; i++) {
        if ((set->words[w->names[i] / 64] >> (w->names[i] % 64) & 1) != 0) {
            return true;
        }
    }
    return false;
}

/* ---- opening and closing ------------------------------------------------------------------ */

weir_status weir__committer_open(committer **out, weir_store *store, weir_error *err)
{
    committer *c = weir__calloc(1, sizeof *c);
    if (c == NULL || !weir__mutex_init(&c->mu)) {
        weir__free(c);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the committer");
    }
    WEIR_ASSERT(store->log->group_commit <= FLIGHTS_MAX);
    c->store = store;
    *out = c;
    return WEIR_OK;
}

void weir__committer_close(committer *c)
{
    if (c == NULL) {
        return;
    }
    WEIR_ASSERT(c->front == NULL && c->waiting_count == 0);
    weir__mutex_destroy(&c->mu);
    weir__free(c);
}

/* ---- counting ----------------------------------------------------------------------------- */

static void count_add(_Atomic uint64_t *number, uint64_t n)
{
    atomic_fetch_add_explicit(number, n, memory_order_relaxed);
}

static void count_transaction(committer *c, size_t appends)
{
    size_t index = 0;
    while (index < COMMITTER_BATCH_BUCKETS - 1 && appends > (size_t)1 << index) {
        index++;
    }
    count_add(&c->batches[index], 1);
    count_add(&c->batched, appends);
}

/* Its answer is there. */
static void count_append(committer *c, const store_append *append)
{
    if (append->status == WEIR_ECONFLICT) {
        count_add(&c->conflicts, 1);
    } else if (append->status == WEIR_OK && !append->replayed &&
               (append->flags & STORE_APPEND_DRY_RUN) == 0) {
        count_add(&c->appends, 1);
        count_add(&c->events, append->events_count);
    }
}

void weir__committer_counts(committer *c, committer_counts *out)
{
    *out =
        (committer_counts){ .appends = atomic_load_explicit(&c->appends, memory_order_relaxed),
                            .events = atomic_load_explicit(&c->events, memory_order_relaxed),
                            .conflicts = atomic_load_explicit(&c->conflicts, memory_order_relaxed),
                            .batched = atomic_load_explicit(&c->batched, memory_order_relaxed) };
    for (size_t i = 0; i < COMMITTER_BATCH_BUCKETS; i++) {
        out->batches[i] = atomic_load_explicit(&c->batches[i], memory_order_relaxed);
    }
}

/* ---- transactions ------------------------------------------------------------------------- */

/* One append in a transaction of its own. An outcome that is not known is found out by asking
 * again, if the append has a key: the store then replays it or writes it, once. Without a key it is
 * never repeated. */
static void run_alone(committer *c, store_append *append)
{
    append->alone = false;
    weir_status status = c->store->log->append(c->store, &append, 1, append->err);
    if (status == WEIR_EUNKNOWN && append->key.len > 0) {
        status = c->store->log->append(c->store, &append, 1, append->err);
    }
    if (status != WEIR_OK) {
        append->status = status;
        append->alone = false;
        return;
    }
    count_transaction(c, 1);
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
    const weir_status status = c->store->log->append(c->store, batch, count, &err);
    if (status == WEIR_OK) {
        count_transaction(c, count);
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

/* ---- the queue ---------------------------------------------------------------------------- */

/* Takes the waiter behind `before` (NULL: the front) out of the queue. */
static waiter *unlink_locked(committer *c, waiter *before) WEIR_REQUIRES(c->mu)
{
    waiter **link = before == NULL ? &c->front : &before->next;
    waiter *w = *link;
    *link = w->next;
    if (c->back == w) {
        c->back = before;
    }
    w->next = NULL;
    c->queued_count--;
    return w;
}

static void push_locked(committer *c, waiter *w) WEIR_REQUIRES(c->mu)
{
    if (c->back == NULL) {
        c->front = w;
    } else {
        c->back->next = w;
    }
    c->back = w;
    c->queued_count++;
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
        c->queued_count++;
    }
}

/* What the flights but for `mine` have names for. */
static name_set others_names_locked(const committer *c, const flight *mine) WEIR_REQUIRES(c->mu)
{
    name_set all = { 0 };
    for (size_t i = 0; i < FLIGHTS_MAX; i++) {
        if (&c->flights[i] != mine && c->flights[i].taken) {
            for (size_t k = 0; k < NAME_WORDS; k++) {
                all.words[k] |= c->flights[i].names.words[k];
            }
        }
    }
    return all;
}

/* Chooses a leader, takes it out of the queue and gives it a flight. NULL: nobody is to start now.
 * When nobody leads, the first in the queue always does. */
static waiter *appoint_locked(committer *c) WEIR_REQUIRES(c->mu)
{
    flight *mine = NULL;
    size_t leading = 0;
    size_t under_way = 0;
    for (size_t i = 0; i < c->store->log->group_commit; i++) {
        if (c->flights[i].taken) {
            leading++;
            under_way += c->flights[i].count;
        } else if (mine == NULL) {
            mine = &c->flights[i];
        }
    }
    if (mine == NULL || c->front == NULL || (leading > 0 && c->queued_count * 2 < under_way)) {
        return NULL;
    }
    name_set passed = others_names_locked(c, mine);
    waiter *before = NULL;
    for (waiter *w = c->front; w != NULL; before = w, w = w->next) {
        if (!names_meet(&passed, w)) {
            (void)unlink_locked(c, before);
            *mine = (flight){ .taken = true, .count = 1 };
            names_add(&mine->names, w);
            w->flight = mine;
            return w;
        }
        names_add(&passed, w);
    }
    return NULL;
}

/* Whether a batch with these names has room for those of one more caller. */
static bool names_fit_locked(const committer *c, const name_set *names, const waiter *w)
    WEIR_REQUIRES(c->mu)
{
    name_set both = *names;
    if (c->store->log->batch_names_max == 0) {
        return true;
    }
    names_add(&both, w);
    return names_count(&both) <= c->store->log->batch_names_max;
}

/* The leader's batch: itself and whom it may take. */
static size_t take_batch_locked(committer *c, waiter *self, waiter **waiters, store_append **batch)
    WEIR_REQUIRES(c->mu)
{
    size_t count = 1;
    size_t events = self->append->events_count;
    size_t bytes = append_bytes(self->append);
    name_set passed = others_names_locked(c, self->flight);
    waiter *before = NULL;
    waiters[0] = self;
    while (count < COMMITTER_BATCH_CALLERS_MAX && events < COMMITTER_BATCH_EVENTS_MAX &&
           bytes < COMMITTER_BATCH_BYTES_MAX) {
        waiter *w = before == NULL ? c->front : before->next;
        if (w == NULL || !names_fit_locked(c, &self->flight->names, w)) {
            break;
        }
        if (names_meet(&passed, w)) {
            names_add(&passed, w);
            before = w;
            continue;
        }
        waiters[count] = unlink_locked(c, before);
        names_add(&self->flight->names, w);
        events += w->append->events_count;
        bytes += append_bytes(w->append);
        count++;
    }
    self->flight->count = count;
    for (size_t i = 0; i < count; i++) {
        batch[i] = waiters[i]->append;
    }
    return count;
}

/* The caller was appointed. */
static void batch_lead(committer *c, waiter *self)
{
    waiter *waiters[COMMITTER_BATCH_CALLERS_MAX];
    store_append *batch[COMMITTER_BATCH_CALLERS_MAX];

    weir__lock(&c->mu);
    WEIR_ASSERT(self->flight != NULL && self->flight->taken);
    const size_t count = take_batch_locked(c, self, waiters, batch);
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

    /* Last, so that those who come back at once with their next append are in the next batch. Until
     * then the flight keeps its names, or half of the callers of one hot stream would start without
     * the other half. */
    weir__lock(&c->mu);
    self->flight->taken = false;
    waiter *next = appoint_locked(c);
    weir__unlock(&c->mu);
    if (next != NULL) {
        weir__baton_pass(&next->told, TOLD_LEAD);
    }
}

weir_status weir__committer_append(committer *c, store_append *append)
{
    waiter self = { .append = append };
    append->alone = false;
    if (c->store->log->group_commit == 0) {
        run_alone(c, append);
        count_append(c, append);
        return append->status;
    }
    append->flags |= STORE_APPEND_NOWAIT;
    if (c->store->log->group_commit > 1 || c->store->log->batch_names_max > 0) {
        waiter_names(&self);
    }
    weir__lock(&c->mu);
    if (c->waiting_count >= COMMITTER_WAITING_MAX) {
        weir__unlock(&c->mu);
        append->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
        return weir__fail(append->err, WEIR_EBUSY, "%d appends are waiting already; try again",
                          COMMITTER_WAITING_MAX);
    }
    c->waiting_count++;
    push_locked(c, &self);
    waiter *leader = appoint_locked(c);
    weir__unlock(&c->mu);
    if (leader != NULL && leader != &self) {
        weir__baton_pass(&leader->told, TOLD_LEAD);
    }
    if (leader == &self || weir__baton_await(&self.told) == TOLD_LEAD) {
        batch_lead(c, &self);
    }
    append->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
    if (append->status == WEIR_EBUSY && append->alone) {
        run_alone(c, append);
    }
    count_append(c, append);
    return append->status;
}

size_t weir__committer_waiting(committer *c)
{
    weir__lock(&c->mu);
    const size_t count = c->waiting_count;
    weir__unlock(&c->mu);
    return count;
}
