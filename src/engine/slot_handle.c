/* slot_handle.c - running one event: choosing it, handing it to its handler, and what its answer
 * means.
 *
 * A segment holds events of one kind: those that were run with no transaction open, or those that
 * one project function is given inside the settle. Where the kind changes the segment is settled.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/pull.h"
#include "engine/slot_private.h"
#include "store/error_text.h"

/* "reaction:event id". Made for every event, whether its handler asks for it or not. */
static void write_key(weir_delivery *d)
{
    const weir_str name = d->reaction->name;
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = (uint64_t)d->event->id; /* positions begin with 1 */

    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    digits[--at] = ':';
    WEIR_ASSERT(name.len + (sizeof digits - at) < sizeof d->key);
    memcpy(d->key, name.ptr, name.len);
    memcpy(d->key + name.len, digits + at, sizeof digits - at);
    d->key[name.len + (sizeof digits - at)] = '\0';
}

int64_t weir__slot_deliver(slot *s, size_t index, weir_delivery *d)
{
    worker *w = weir__slot_worker(s);
    const batch *b = s->batch;
    const batch_event *e = &b->events[index];
    const reaction *q = weir__batch_part_of(b, e)->reaction;
    const int64_t now_us = weir__task_now(&s->task);
    const int64_t store_us = weir__batch_store_us(b, now_us);

    /* One by one: the texts in it are long, and need not be zeroed. */
    d->event = e->event;
    d->reaction = q;
    d->reaction_name = q->name;
    d->target = b->name;
    d->attempt = weir__batch_attempt(b, index);
    d->fence = b->fence;
    d->deadline_us = store_us + q->deadline_us;
    d->deadline_mono_us = now_us + q->deadline_us;
    d->effects = &s->effects;
    d->payload_bytes = w->options.payload_bytes;
    d->clock = s->task.scheduler->clock;
    d->interrupted = &s->interrupted;
    d->held_until_us = &s->held_until_us;
    d->pulled = NULL;
    d->why[0] = '\0';
    d->defer_us = 0;
    write_key(d);
    weir__metric_observe(&w->metrics, METRIC_DELAY_US, store_us - e->event->created_us);
    weir__slot_renew_until(s, d->deadline_mono_us);
    return now_us;
}

/* ---- what became of an event -------------------------------------------------------------- */

void weir__slot_done(slot *s)
{
    batch *b = s->batch;
    b->events[b->next].state = EVENT_DONE;
    b->next++;
}

void weir__slot_postponed(slot *s, int64_t until_us)
{
    batch *b = s->batch;
    weir__batch_hold_add(b, (batch_hold){ .kind = HOLD_POSTPONE,
                                          .index = b->next,
                                          .attempt = weir__batch_attempt(b, b->next),
                                          .backoff_us = SLOT_DEFER_US,
                                          .until_us = until_us });
    b->next++;
}

void weir__slot_failed(slot *s, bool permanent, weir_str why, size_t bytes_max)
{
    batch *b = s->batch;
    batch_event *e = &b->events[b->next];
    const reaction *q = weir__batch_part_of(b, e)->reaction;
    const int64_t attempt = weir__batch_attempt(b, b->next);
    const bool spent = permanent || attempt > q->retries;
    const weir_str error = weir__error_text(
        &b->arena, why.len > 0 ? why : weir__str("the handler failed and did not say why"),
        bytes_max);

    weir__metric_add(&weir__slot_worker(s)->metrics, METRIC_FAILED, 1);
    if (e->parked != 0 || (spent && q->poison == POISON_PARK)) {
        /* One that was sent back has been set aside before, and is again: its target goes on. */
        e->state = EVENT_PARKED;
        e->error = error;
        e->attempt = attempt;
        b->next++;
        return;
    }
    batch_hold hold = { .kind = HOLD_RETRY, .index = b->next, .attempt = attempt, .error = error };
    if (spent && q->poison == POISON_BLOCK) {
        hold.kind = HOLD_BLOCK;
    } else {
        const uint64_t random = s->task.scheduler->random(s->task.scheduler);
        hold.backoff_us = weir__reaction_backoff_us(q, spent ? INT64_MAX : attempt, random);
    }
    weir__batch_hold_add(b, hold);
    b->next++;
}

bool weir__slot_told_to_end(const slot *s, const weir_delivery *d)
{
    return weir__task_boot(&s->task) >=
               atomic_load_explicit(&s->held_until_us, memory_order_relaxed) &&
           weir__task_now(&s->task) < d->deadline_mono_us;
}

void weir__slot_answered(slot *s, const weir_delivery *d, int32_t outcome, size_t appends_count,
                         size_t sqls_count)
{
    if (outcome == WEIR_DONE) {
        weir__slot_done(s);
        return;
    }
    weir__effects_cut(&s->effects, appends_count, sqls_count);
    if (outcome == WEIR_DEFER) {
        weir__slot_postponed(s, d->defer_us);
    } else if (weir__slot_told_to_end(s, d)) {
        s->batch->stopped = true; /* says nothing about the event: it will be run again */
    } else {
        weir__slot_failed(s, outcome == WEIR_PERMANENT, weir__str(d->why), HANDLER_ERROR_BYTES_MAX);
    }
}

/* ---- running it --------------------------------------------------------------------------- */

static void event_handle(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    const size_t appends = s->effects.appends_count, sqls = s->effects.sqls_count;
    weir_delivery d;

    const int64_t begin_us = weir__slot_deliver(s, b->next, &d);
    const int32_t outcome = d.reaction->handle(d.reaction->ctx, &d);
    weir__metric_observe(&w->metrics, METRIC_HANDLER_US, weir__task_now(&s->task) - begin_us);
    weir__slot_answered(s, &d, outcome, appends, sqls);
    s->runs = true;
}

/* The events from `next` on that their reaction's project function gets in one call: the settle
 * does that. They count as done; a settle that fails goes back. */
static void segment_project(slot *s)
{
    batch *b = s->batch;
    const size_t part = b->events[b->next].part_index;
    const reaction *q = b->parts[part].reaction;

    b->project = true;
    do {
        weir__slot_done(s);
    } while (!b->single && b->next < b->events_count && b->events[b->next].part_index == part &&
             b->events[b->next].parked == 0 && b->events[b->next - 1].parked == 0);
    weir__slot_renew_until(s, weir__task_now(&s->task) + q->deadline_us);
    b->phase = PHASE_SETTLE;
}

static bool event_alone(const batch *b, const reaction *q)
{
    return b->single || q->mode == REACTION_PROJECT || q->mode == REACTION_PULL;
}

void weir__slot_run(slot *s)
{
    batch *b = s->batch;
    weir_delivery d;

    if (weir__slot_draining(s)) {
        b->stopped = true; /* the others are for whoever leases it next */
    }
    const size_t next = b->stopped ? b->events_count : weir__batch_runnable(b, b->next);
    if (next == b->events_count) {
        b->stopped = true;
        b->phase = weir__slot_finish_phase(s);
        return;
    }
    const reaction *q = weir__batch_part_of(b, &b->events[next])->reaction;
    if (event_alone(b, q) && weir__batch_segment(b) > 0) {
        b->phase = PHASE_SETTLE;
        return;
    }
    if (weir__slot_overdue(s)) {
        return;
    }
    b->next = next;
    switch (q->mode) {
    case REACTION_HANDLE:
        event_handle(s);
        return;
    case REACTION_PROJECT:
        segment_project(s);
        return;
    case REACTION_PULL:
        weir__pull_offer(s);
        return;
    case REACTION_RUN:
    case REACTION_EXEC:
        (void)weir__slot_deliver(s, next, &d);
        weir__slot_program(s, &d);
        return;
    }
}
