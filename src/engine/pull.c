/* pull.c - see pull.h.
 *
 * INVARIANTS, under worker.mu
 *   (1) batch.pulled is set exactly while its slot is in PHASE_PULL, and pulled.slot is that slot;
 *       after it was taken back pulled.slot is NULL.
 *   (2) A delivery is freed by the slot while it is WAITING, else by weir__worker_settle, or by
 *       weir__pulled_drop when there is no worker any more.
 */
#include "engine/pull.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/slot_private.h"

typedef enum pulled_state { PULLED_WAITING, PULLED_TAKEN, PULLED_SETTLING } pulled_state;

typedef struct pulled {
    weir_delivery delivery;
    weir_arena arena;
    effects effects;
    _Atomic bool interrupted;
    _Atomic int64_t held_until_us; /* as the slot's, which may end before this */
    /* guarded by worker.mu */
    slot *slot; /* borrowed; NULL: taken back */
    pulled_state state;
    int64_t since_us; /* mono: waiting since */
    bool passed_over; /* somebody asked, and the lease may have ended */
} pulled;

static void pulled_free(pulled *p)
{
    if (p != NULL) {
        weir__effects_free(&p->effects);
        weir__arena_free(&p->arena);
        weir__free(p);
    }
}

static bool copy_str(weir_arena *arena, weir_str *s)
{
    if (s->len > 0) {
        s->ptr = weir__arena_copy(arena, s->ptr, s->len);
    }
    return s->len == 0 || s->ptr != NULL;
}

/* A delivery that does not need the slot's memory. NULL: out of memory. */
static pulled *pulled_new(slot *s)
{
    pulled *p = weir__calloc(1, sizeof *p);
    weir_event *event = p == NULL ? NULL : weir__arena_alloc(&p->arena, sizeof *event);
    if (event == NULL) {
        pulled_free(p);
        return NULL;
    }
    (void)weir__slot_deliver(s, s->batch->next, &p->delivery);
    *event = *p->delivery.event;
    if (!copy_str(&p->arena, &event->stream) || !copy_str(&p->arena, &event->name) ||
        !copy_str(&p->arena, &event->data) || !copy_str(&p->arena, &event->meta) ||
        !copy_str(&p->arena, &p->delivery.target) ||
        !copy_str(&p->arena, &p->delivery.reaction_name)) {
        pulled_free(p);
        return NULL;
    }
    p->delivery.event = event;
    p->delivery.effects = &p->effects;
    p->delivery.interrupted = &p->interrupted;
    p->delivery.held_until_us = &p->held_until_us;
    p->delivery.pulled = p;
    p->slot = s;
    p->since_us = weir__task_now(&s->task);
    return p;
}

void weir__pull_held_locked(slot *s)
{
    if (s->batch->pulled != NULL) {
        s->batch->pulled->held_until_us = s->held_until_us;
    }
}

void weir__pull_offer(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    pulled *p = pulled_new(s);
    weir_error err;

    if (p == NULL) {
        (void)weir__fail(&err, WEIR_ENOMEM, "could not allocate a delivery");
        weir__slot_store_failed(s, &err);
        return;
    }
    weir__lock(&w->mu);
    b->pulled = p;
    b->phase = PHASE_PULL;
    weir__pull_held_locked(s);
    weir__unlock(&w->mu);
    if (w->options.pull_cb != NULL) {
        w->options.pull_cb(w->options.pull_ctx);
    }
}

/* Ends the slot's part in it. The delivery is freed unless somebody has it. */
static void take_back_locked(worker *w, slot *s, pulled **unused) WEIR_REQUIRES(w->mu)
{
    pulled *p = s->batch->pulled;
    WEIR_ASSERT(w == weir__slot_worker(s));
    *unused = NULL;
    if (p != NULL) {
        s->batch->pulled = NULL;
        s->batch->phase = PHASE_RUN;
        p->slot = NULL;
        p->interrupted = true;
        *unused = p->state == PULLED_WAITING ? p : NULL;
    }
}

int64_t weir__pull_step(slot *s)
{
    worker *w = weir__slot_worker(s);
    const int64_t now_us = weir__task_now(&s->task);
    pulled *unused = NULL;

    weir__lock(&w->mu);
    pulled *p = s->batch->pulled;
    if (p == NULL || p->state == PULLED_SETTLING) {
        weir__unlock(&w->mu);
        return p == NULL ? TASK_NOW : TASK_WAIT; /* who settles it wakes us */
    }
    const bool lost = s->lost;
    const bool taken = p->state == PULLED_TAKEN;
    const bool over = now_us >= p->delivery.deadline_mono_us;
    const bool draining = s->lane->draining && !taken;
    const bool passed_over = p->passed_over && !taken;
    if (!lost && !over && !draining && !passed_over) {
        const int64_t deadline_us = p->delivery.deadline_mono_us;
        weir__unlock(&w->mu);
        return deadline_us;
    }
    take_back_locked(w, s, &unused);
    weir__unlock(&w->mu);
    pulled_free(unused);
    if (passed_over && !lost && !over && !draining) {
        return TASK_NOW; /* the lease is renewed if it has to be, and the event offered again */
    }
    if (lost || taken) {
        /* Its caller may still be at work: the lease ends by itself, the fence keeps it out. */
        weir__slot_lost(s);
    } else {
        s->batch->phase = PHASE_RELEASE; /* nobody wanted it here */
    }
    return TASK_NOW;
}

void weir__pull_free(slot *s)
{
    worker *w = weir__slot_worker(s);
    pulled *unused = NULL;
    weir__lock(&w->mu);
    take_back_locked(w, s, &unused);
    weir__unlock(&w->mu);
    pulled_free(unused);
}

/* ---- who pulls ---------------------------------------------------------------------------- */

/* The one that has waited longest. *passed_over: the lease of another one may have ended; its slot
 * has to be woken. */
static pulled *longest_waiting_locked(worker *w, bool *passed_over) WEIR_REQUIRES(w->mu)
{
    pulled *found = NULL;
    *passed_over = false;
    for (size_t i = 0; i < w->lanes_count; i++) {
        for (size_t n = 0; n < w->lanes[i].slots_count; n++) {
            slot *s = &w->lanes[i].slots[n];
            pulled *p = s->batch == NULL || s->state != SLOT_RUNNING ? NULL : s->batch->pulled;
            const bool waits = p != NULL && p->state == PULLED_WAITING && !s->lost;
            if (waits && weir__task_boot(&s->task) >= s->held_until_us) {
                p->passed_over = true;
                *passed_over = true;
            } else if (waits && (found == NULL || p->since_us < found->since_us)) {
                found = p;
            }
        }
    }
    return found;
}

weir_delivery *weir__worker_next(worker *w)
{
    bool passed_over;

    weir__lock(&w->mu);
    pulled *p = longest_waiting_locked(w, &passed_over);
    if (p != NULL) {
        /* The time to handle it begins now, not when it began to wait. */
        const int64_t now_us = weir__task_now(&p->slot->task);
        const int64_t waited_us = now_us - p->since_us;
        p->state = PULLED_TAKEN;
        p->delivery.deadline_us += waited_us;
        p->delivery.deadline_mono_us += waited_us;
        p->slot->extend_until_us = p->delivery.deadline_mono_us;
    }
    weir__unlock(&w->mu);
    if (passed_over) {
        weir__worker_wake_slots(w);
    }
    return p == NULL ? NULL : &p->delivery;
}

/* The slot goes on by itself; the delivery is no more. */
static void hand_over(slot *s, pulled *p)
{
    worker *w = weir__slot_worker(s);
    weir__lock(&w->mu);
    s->batch->pulled = NULL;
    weir__unlock(&w->mu);
    pulled_free(p);
    weir__task_wake(&s->task);
}

/* The store is away: nothing has happened, and the delivery is as it was. */
static weir_status not_yet(slot *s, pulled *p, weir_status status, weir_error *err)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    if (weir__effects_move(&p->effects, &s->effects, err) != WEIR_OK) {
        status = WEIR_ENOMEM; /* cannot happen: it had room for them before */
    }
    weir__batch_rewind(b, weir__batch_first_run(b));
    b->wait_us = 0;
    weir__lock(&w->mu);
    b->phase = PHASE_PULL;
    s->extend_until_us = p->delivery.deadline_mono_us;
    p->state = PULLED_TAKEN;
    weir__unlock(&w->mu);
    weir__task_wake(&s->task); /* the deadline is looked at again */
    return status;
}

static bool asked_again(weir_status status)
{
    return status == WEIR_EBUSY || status == WEIR_EUNAVAILABLE || status == WEIR_EIO ||
           status == WEIR_ENOMEM;
}

weir_status weir__worker_settle(worker *w, weir_delivery *d, int32_t outcome, weir_error *err)
{
    pulled *p = d->pulled;
    weir_status status = WEIR_OK;
    weir_error own = { .size = sizeof own };

    err = err == NULL ? &own : err; /* what fails is told to the log, too */
    WEIR_ASSERT(p != NULL);
    weir__lock(&w->mu);
    slot *s = p->slot;
    const bool ours = p->state == PULLED_TAKEN;
    p->state = PULLED_SETTLING;
    weir__unlock(&w->mu);
    if (!ours) {
        return weir__fail(err, WEIR_EMISUSE, "the delivery is being settled by another call");
    }
    if (s == NULL) {
        pulled_free(p);
        return weir__fail(err, WEIR_ELOST,
                          "the delivery was taken back: somebody else has its lease, or "
                          "its deadline has passed");
    }
    const int64_t taken_us = d->deadline_mono_us - d->reaction->deadline_us;
    weir__metric_observe(&w->metrics, METRIC_HANDLER_US, weir__task_now(&s->task) - taken_us);
    if (outcome != WEIR_DONE) {
        s->batch->phase = PHASE_RUN;
        weir__slot_answered(s, d, outcome, 0, 0);
        hand_over(s, p);
        return WEIR_OK;
    }
    status = weir__effects_move(&s->effects, &p->effects, err);
    s->batch->phase = PHASE_SETTLE;
    weir__slot_done(s);
    if (status == WEIR_OK) {
        status = weir__slot_settle(s, true, err);
    }
    if (asked_again(status) && s->batch->phase == PHASE_SETTLE) {
        return not_yet(s, p, status, err);
    }
    if (asked_again(status)) {
        status = WEIR_EINVAL; /* its own SQL said so: it is delivered again */
    }
    hand_over(s, p);
    return status;
}

void weir__pulled_drop(weir_delivery *d)
{
    WEIR_ASSERT(d->pulled != NULL && d->pulled->slot == NULL);
    pulled_free(d->pulled);
}
