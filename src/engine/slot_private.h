/* slot_private.h - what the files of a slot share: slot.c (its life), slot_handle.c (running one
 * event), slot_settle.c (settling what was run), pull.c (events that are run elsewhere).
 *
 * All of it is called by whoever runs the slot at that moment: its task, or the thread that settles
 * its pulled delivery.
 */
#ifndef WEIR_ENGINE_SLOT_PRIVATE_H
#define WEIR_ENGINE_SLOT_PRIVATE_H

#include "engine/batch.h"
#include "engine/slot.h"

enum {
    SLOT_BATCHES_MAX = 8,   /* in a row on one target                                        */
    SLOT_RERUNS_MAX = 3,    /* of an event whose settle lost a race                           */
    SLOT_IO_ERRORS_MAX = 5, /* of a settle with SQL: then that is taken to be the reason      */
};
#define SLOT_RERUN_BASE_US INT64_C(50000)
#define SLOT_RERUN_CAP_US  INT64_C(1000000)
#define SLOT_SETTLE_US     INT64_C(60000000) /* how long a lease is renewed for a settle */
#define SLOT_DEFER_US      INT64_C(1000000)  /* for a handler that does not say until when */

static inline worker *weir__slot_worker(const slot *s)
{
    return s->lane->worker;
}

/* slot.c */
/* The lease has ended: the slot is free. */
void weir__slot_idle(slot *s);
/* The same, outside of a turn: the lane may want the slot. behind: there is more for the target. */
void weir__slot_idle_tell(slot *s, bool behind);
bool weir__slot_draining(const slot *s);
/* From now on the lease is renewed until that time. */
void weir__slot_renew_until(slot *s, int64_t mono_us);
/* The lease was taken, or renewed, by a call made at asked_us (boot). worker.mu is held. */
void weir__slot_taken_locked(slot *s, int64_t asked_us);
void weir__slot_held_locked(slot *s, int64_t asked_us);
/* The lease may be another's by now: nothing more is delivered under it. It is renewed first, which
 * the fence decides, and then the slot goes on with the phase it is in. */
bool weir__slot_overdue(slot *s);
/* The store is away or busy: the phase is tried again later. */
void weir__slot_store_failed(slot *s, const weir_error *err);
/* About the event at `index` of the batch, or about the target (SIZE_MAX). */
void weir__slot_log(slot *s, int level, const char *what, size_t index, int64_t attempt,
                    weir_str error);

/* slot_handle.c */
/* One event, or the decision that the segment is to be settled. */
void weir__slot_run(slot *s);
/* Makes the delivery of the event at `index`; its deadline begins now. What the clock said. */
int64_t weir__slot_deliver(slot *s, size_t index, weir_delivery *d);
/* What became of the event at next: next moves on. */
void weir__slot_done(slot *s);
void weir__slot_postponed(slot *s, int64_t until_us);
/* bytes_max: of `why`. */
void weir__slot_failed(slot *s, bool permanent, weir_str why, size_t bytes_max);
/* A handler's answer about the event at next, effects included: what it staged is behind
 * appends_count and sqls_count. */
void weir__slot_answered(slot *s, const weir_delivery *d, int32_t outcome, size_t appends_count,
                         size_t sqls_count);

/* The lease could not be renewed while the handler had time left: that it did not succeed is not
 * its fault, and costs nothing. */
bool weir__slot_told_to_end(const slot *s, const weir_delivery *d);

/* slot_settle.c */
/* What is to be done before the segment can be settled at the end of the batch: PHASE_NOW when a
 * backoff begins. */
batch_phase weir__slot_finish_phase(const slot *s);
void weir__slot_now(slot *s);
/* One settle. The answer is the store's; phase and waiting time are set by it. in_between: the
 * lease is kept unless nothing is left to do. */
weir_status weir__slot_settle(slot *s, bool in_between, weir_error *err);

/* Hands the batch to the lane when nothing but progress is left to settle. false: the slot has to
 * settle it by itself. */
bool weir__slot_finish(slot *s);

/* slot_program.c */
void weir__slot_program(slot *s, weir_delivery *d);
void weir__slot_programs_free(struct slot_programs *p);

#endif
