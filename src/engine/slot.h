/* slot.h - one handler slot: runs the batch of one leased target, event by event, and settles it.
 *
 *                       +--batch done, nothing but progress--> FINISHED: the lane settles it
 *                       |                                            |
 *   IDLE --assigned--> RUN --effects, or one failed--> SETTLE --kept--> FETCH
 *     ^     by the      ^ |                              | |  |          |
 *     |      lane       | +---(a project: in the settle)-+ |  |          |
 *     |                 +----------------------------------|--|----------+
 *     +---------- released, deferred, blocked, lost -------+--+
 * One step is one handler call or one store call. A batch whose handlers succeeded and staged
 * nothing is settled by the lane, together with others and with the lease of what comes next: see
 * lane.h. Everything else the slot settles by itself.
 *   - A batch is settled as a whole. When that loses a race (an append of it is refused with
 *     ECONFLICT or ETAKEN) nothing of it remains; it is run again event by event, each up to 3 more
 *     times (50 ms doubling to 1 s, full jitter), and then it is a failure of that event.
 *   - A failure ends its reaction's part of the batch; what succeeded before it is settled with it
 *     (advance and failure in one settle). Retries left: DEFER by the backoff. None left: the
 *     policy. The other reactions of the batch go on, unless the target is blocked.
 *   - An event that was parked and sent back has one attempt: if it fails it is parked again.
 *   - ELOST: everything is dropped, nothing is charged, counted. EUNKNOWN: released (ELOST then
 *     says that it had happened), nothing is charged.
 *   - A reaction's `at` is settled at its mark only when its fetch was exhausted.
 */
#ifndef WEIR_ENGINE_SLOT_H
#define WEIR_ENGINE_SLOT_H

#include "engine/worker_private.h"

weir_status weir__slot_init(slot *s, lane *l, size_t number, weir_error *err);
void weir__slot_free(slot *s);

/* For the lane, of a slot that is FINISHED. settled: its settle has its answer. unknown: nobody
 * knows whether it happened, so the slot gives the target back. */
void weir__slot_settled(slot *s);
void weir__slot_settle_unknown(slot *s, const weir_error *err);
void weir__slot_lost(slot *s); /* everything is dropped, nothing charged; also while it runs */

#endif
