/* pull.h - deliveries that are run outside of the slot: they wait for weir__worker_next, and are
 * settled by the thread that pulled them.
 *
 *   WAITING --weir__worker_next--> TAKEN --weir__worker_settle--> SETTLING --> ended
 *      |                             |  ^                            |
 *      |                             |  +---(the store is away)------+
 *      +--(lost, drained, too long)--+--(lost, or the deadline has passed)--> taken back
 *      +--(passed over: its lease may have ended)--> renewed, then offered again
 *
 * While it is SETTLING the settling thread runs the slot, and its task does nothing. A delivery
 * that was taken back belongs to who pulled it alone: it has its own copy of the event and its own
 * effects, and its settle answers WEIR_ELOST.
 */
#ifndef WEIR_ENGINE_PULL_H
#define WEIR_ENGINE_PULL_H

#include "engine/worker_private.h"

/* The event at next waits to be pulled. */
void weir__pull_offer(slot *s);
/* The slot's step while it has a delivery: when to look again. */
int64_t weir__pull_step(slot *s);
/* The slot's lease was renewed: tells the delivery that was pulled from it. worker.mu is held. */
void weir__pull_held_locked(slot *s);
/* At the end of the slot. What was pulled and not settled is taken back. */
void weir__pull_free(slot *s);

#endif
