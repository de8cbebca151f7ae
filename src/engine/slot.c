/* slot.c - see slot.h: the life of a slot, and its phases.
 *
 * INVARIANTS
 *   (1) state, target, fence and lost change under worker.mu; the batch belongs to the lane until
 *       it is `ready`, then to the slot until it is FINISHED or IDLE.
 *   (2) Every way to IDLE is weir__slot_idle: after the lease was ended by the store, or was found
 *       to be another's.
 */
#include "engine/slot.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"
#include "engine/pull.h"
#include "engine/slot_private.h"

void weir__slot_log(slot *s, int level, const char *what, size_t index, int64_t attempt,
                    weir_str error)
{
    const batch *b = s->batch;
    log_field fields[6] = { { .name = "target", .text = b->name } };
    size_t count = 1;

    if (index != SIZE_MAX) {
        const batch_event *e = &b->events[index];
        fields[count++] =
            (log_field){ .name = "reaction", .text = weir__batch_part_of(b, e)->reaction->name };
        fields[count++] = (log_field){ .name = "event", .number = e->event->id };
        fields[count++] = (log_field){ .name = "attempt", .number = attempt };
    }
    fields[count++] = (log_field){ .name = "fence", .number = b->fence };
    if (error.len > 0) {
        fields[count++] = (log_field){ .name = "error", .text = error };
    }
    weir__worker_log(weir__slot_worker(s), level, what, fields, count);
}

bool weir__slot_draining(const slot *s)
{
    return atomic_load_explicit(&s->lane->draining, memory_order_relaxed);
}

void weir__slot_renew_until(slot *s, int64_t mono_us)
{
    atomic_store_explicit(&s->extend_until_us, mono_us, memory_order_relaxed);
}

void weir__slot_taken_locked(slot *s, int64_t asked_us)
{
    const int64_t until_us = weir__lane_held_until(s->lane, asked_us);
    /* The supervisor reads the machine's clock, which in a test is not ours, so we convert. The
     * machine's clock is read first: what passes between the two makes the lease end sooner. */
    const int64_t machine_us = weir__clock_boot();
    s->held_until_us = until_us;
    weir__child_lease_set(&s->lease, machine_us + (until_us - weir__task_boot(&s->task)));
    weir__pull_held_locked(s);
}

void weir__slot_held_locked(slot *s, int64_t asked_us)
{
    if (weir__lane_held_until(s->lane, asked_us) > s->held_until_us) {
        weir__slot_taken_locked(s, asked_us); /* of two renewals at once the later one counts */
    }
}

bool weir__slot_overdue(slot *s)
{
    batch *b = s->batch;
    if (weir__task_boot(&s->task) < atomic_load_explicit(&s->held_until_us, memory_order_relaxed)) {
        return false;
    }
    b->renewed_phase = b->phase;
    b->phase = PHASE_RENEW;
    return true;
}

void weir__slot_store_failed(slot *s, const weir_error *err)
{
    batch *b = s->batch;
    b->wait_us = weir__worker_store_failed(weir__slot_worker(s), &s->task, &b->attempt, err);
}

void weir__slot_idle(slot *s)
{
    worker *w = weir__slot_worker(s);
    weir__effects_cut(&s->effects, 0, 0);
    weir__batch_forget(s->batch);
    weir__room_correct(&s->lane->room, &s->batch->room_bytes, 0);
    weir__lock(&w->mu);
    WEIR_ASSERT(s->state == SLOT_RUNNING || s->state == SLOT_FINISHED);
    s->state = SLOT_IDLE;
    s->lane->together = 0; /* a slot is free: nothing is waited for */
    s->last_target = s->target;
    s->last_fence = s->fence;
    s->target = 0;
    s->fence = 0;
    s->token = 0;
    s->lost = false;
    s->batch->ready = false;
    s->batch->ending = false;
    weir__unlock(&w->mu);
}

void weir__slot_idle_tell(slot *s, bool behind)
{
    worker *w = weir__slot_worker(s);
    weir__slot_idle(s);
    weir__lock(&w->mu);
    const bool wanted = behind || s->lane->crowded || s->lane->draining;
    weir__unlock(&w->mu);
    if (wanted) {
        weir__lane_ask(s->lane);
    }
}

void weir__slot_lost(slot *s)
{
    worker *w = weir__slot_worker(s);
    weir__lock(&w->mu);
    const bool counted = s->lost; /* by the renewal */
    const bool given_up = s->given_up;
    store_fenced item = { .target = s->target, .fence = s->fence, .token = s->token };
    weir__unlock(&w->mu);
    if (!counted) {
        weir__metric_add(&w->metrics, METRIC_LOST, 1);
        weir__slot_log(s, 2, "lost", SIZE_MAX, 0, (weir_str){ 0 });
        weir__poller_ask(&w->poller); /* is it still the same log? */
    }
    if (given_up) {
        /* The lease may be on the new log as well. If this fails, it ends by itself. */
        weir_error err = { .size = sizeof err };
        (void)w->store->work->extend(w->store, 0, &item, 1, &err);
    }
    /* The new holder tells its own lane. */
    weir__slot_idle_tell(s, false);
}

/* ---- phases that are one call ------------------------------------------------------------- */

/* Nothing is charged: it was not started, or nobody knows what became of it. */
static void target_release(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    store_fenced item = { .target = b->target, .fence = b->fence, .token = b->token };
    weir_error err;

    weir__lock(&w->mu);
    b->ending = true;
    weir__unlock(&w->mu);
    const weir_status status = w->store->work->extend(w->store, 0, &item, 1, &err);
    if (status != WEIR_OK) {
        weir__slot_store_failed(s, &err);
        return;
    }
    if (item.status == WEIR_OK) {
        weir__metric_add(&w->metrics, METRIC_RELEASED, 1);
        weir__slot_log(s, 0, "released", SIZE_MAX, 0, (weir_str){ 0 });
    } else {
        weir__metric_add(&w->metrics, METRIC_STALE, 1);
    }
    weir__slot_idle_tell(s, item.status == WEIR_OK);
}

/* The process was stopped, or the store away, for longer than the lease. If somebody else has taken
 * the target since, its fence is higher; otherwise it is still ours. */
static void lease_renew(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    store_fenced item = { .target = b->target, .fence = b->fence, .token = b->token };
    weir_error err;

    const int64_t asked_us = weir__task_boot(&s->task);
    const weir_status status =
        w->store->work->extend(w->store, s->lane->config.lease_us, &item, 1, &err);
    if (status != WEIR_OK) {
        weir__slot_store_failed(s, &err);
        return;
    }
    if (item.status != WEIR_OK) {
        weir__metric_add(&w->metrics, METRIC_STALE, 1);
        weir__slot_lost(s);
        return;
    }
    weir__lock(&w->mu);
    weir__slot_held_locked(s, asked_us);
    weir__unlock(&w->mu);
    b->attempt = 0;
    b->phase = b->renewed_phase;
}

static weir_status add_fetched(batch *b, const store_fetch_item *items, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < b->fetched.events_count && status == WEIR_OK; i++) {
        const store_fetched *f = &b->fetched.events[i];
        status = weir__batch_add(b, items[f->item_index].reaction, f->event, false, NULL, err);
    }
    weir__batch_sort(b);
    return status;
}

/* The next events of a target that was kept, up to the marks of its lease. */
static void events_fetch(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    const size_t limit = (size_t)s->lane->config.event_limit;
    const int64_t share = weir__batch_share(b, limit);
    size_t count = 0;
    weir_error err;

    weir__batch_forget(b);
    weir__room_correct(&s->lane->room, &b->room_bytes, 0);
    if (!weir__room_take(&s->lane->room, weir__lane_fetch_room(s->lane))) {
        b->phase = PHASE_RELEASE; /* the lane leases when there is room */
        return;
    }
    b->room_bytes = weir__lane_fetch_room(s->lane);
    b->fetched.bytes_soft = weir__room_fetch_bytes(s->lane->room.room);
    /* A kept target is fetched a few times at most: the lease's arena does not grow for long. */
    store_fetch_item *items =
        weir__arena_alloc(&b->lease_arena, (b->parts_count + 1) * sizeof *items);
    weir_status status = items != NULL
                             ? weir__batch_clear(b, limit, 0, &err)
                             : weir__fail(&err, WEIR_ENOMEM, "could not allocate a batch");
    for (size_t i = 0; i < b->parts_count && status == WEIR_OK; i++) {
        const batch_part *p = &b->parts[i];
        if (p->behind && !p->exhausted) {
            items[count++] = (store_fetch_item){ .target = b->target,
                                                 .reaction = p->reaction->known.id,
                                                 .after = p->at,
                                                 .up_to = p->mark,
                                                 .limit = share };
        }
    }
    if (status == WEIR_OK) {
        status = w->store->work->fetch(w->store, items, count, &b->fetched, &err);
    }
    if (status != WEIR_OK) {
        weir__slot_store_failed(s, &err);
        b->phase = status == WEIR_ENOTFOUND ? PHASE_RELEASE : PHASE_FETCH;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        weir__batch_part(b, items[i].reaction)->exhausted = b->fetched.exhausted[i];
    }
    b->attempt = 0;
    b->phase = add_fetched(b, items, &err) == WEIR_OK ? PHASE_RUN : PHASE_RELEASE;
    weir__room_correct(&s->lane->room, &b->room_bytes, weir__batch_bytes(b));
}

/* ---- the step ----------------------------------------------------------------------------- */

/* Whether there is something to do, and what has happened meanwhile. */
static bool begin_step(slot *s, bool *lost, bool *pulled)
{
    worker *w = weir__slot_worker(s);
    bool begun = false;

    weir__lock(&w->mu);
    const bool busy = s->state != SLOT_IDLE && s->batch->ready;
    if (busy && s->state == SLOT_ASSIGNED) {
        s->state = SLOT_RUNNING;
        begun = true;
    }
    const bool draining = weir__slot_draining(s);
    *lost = busy && s->lost;
    *pulled = busy && s->batch->pulled != NULL;
    weir__unlock(&w->mu);
    if (begun && (draining || s->batch->broken)) {
        s->batch->phase = PHASE_RELEASE;
    }
    return busy;
}

static int64_t slot_step(task *t)
{
    slot *s = (slot *)((char *)t - offsetof(slot, task));
    batch *b = s->batch;
    weir_error err;
    bool lost = false, pulled = false;

    const bool runs = s->runs && !atomic_load_explicit(&s->interrupted, memory_order_acquire);
    s->runs = false;
    if (!runs && !begin_step(s, &lost, &pulled)) {
        return TASK_WAIT;
    }
    if (pulled) {
        return weir__pull_step(s);
    }
    if (lost) {
        weir__slot_lost(s);
        return TASK_WAIT;
    }
    if (b->wait_us != 0 && b->wait_us > weir__task_now(t)) {
        return b->wait_us;
    }
    switch (b->phase) {
    case PHASE_RUN:
        weir__slot_run(s);
        break;
    case PHASE_NOW:
        weir__slot_now(s);
        break;
    case PHASE_SETTLE:
        if (weir__slot_finish(s)) {
            return TASK_WAIT;
        }
        (void)weir__slot_settle(s, false, &err);
        break;
    case PHASE_RELEASE:
        target_release(s);
        break;
    case PHASE_FETCH:
        events_fetch(s);
        break;
    case PHASE_RENEW:
        lease_renew(s);
        break;
    case PHASE_PULL:
        break;
    }
    return TASK_NOW; /* the next step says when that is */
}

weir_status weir__slot_init(slot *s, lane *l, size_t number, weir_error *err)
{
    *s = (slot){ .lane = l, .number = number };
    s->task = (task){ .step = slot_step, .name = "slot", .scheduler = l->worker->scheduler };
    s->batch = weir__calloc(1, sizeof *s->batch);
    if (s->batch != NULL && !weir__child_lease_init(&s->lease)) {
        weir__free(s->batch);
        s->batch = NULL;
    }
    return s->batch != NULL ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate a slot");
}

void weir__slot_free(slot *s)
{
    weir__effects_free(&s->effects);
    weir__slot_programs_free(s->programs);
    s->programs = NULL;
    if (s->batch != NULL) {
        weir__pull_free(s);
        weir__batch_free(s->batch);
        weir__free(s->batch);
        s->batch = NULL;
        weir__child_lease_destroy(&s->lease);
    }
}
