/* slot.h - one handler slot: runs the batch of one leased target, event by event, and settles it.
 *
 *   IDLE --assigned by the lane--> RUN --batch done, or one failed--> SETTLE --kept--> FETCH
 *     ^                            ^ |                                  |                |
 *     |                            | +------(a project: in the settle)--+                |
 *     +------------- released, deferred, blocked, lost -----------------+                |
 *                                  +-----------------------------------------------------+
 * One step is one handler call or one store call.
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

#endif
