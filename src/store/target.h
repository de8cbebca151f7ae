/* target.h - what a target is, by its row and its subscriptions: its state, the values derived from
 * them (see DERIVED VALUES in store.h), which filter accepts it, what an operator's verb changes
 * and which event is in its way. PostgreSQL derives in SQL.
 */
#ifndef WEIR_STORE_TARGET_H
#define WEIR_STORE_TARGET_H

#include "base/str.h"
#include "store/store.h"

/* ---- state --------------------------------------------------------------------------------- */

/* What a target is at this time; lane_paused: its lane is. */
store_target_state weir__target_state(const store_target *t, bool lane_paused, int64_t now_us);

/* ---- derived values ------------------------------------------------------------------------ */

/* Zeroed: of a target without subscriptions. behind may be set before: an event was sent back. */
typedef struct store_derived {
    bool behind;
    int64_t watermark, priority;
    bool counted, lagging; /* some subscription; one that is behind */
} store_derived;

/* Adds a subscription of a reaction that is not retired. */
void weir__derived_add(store_derived *d, int64_t at, int64_t mark, int64_t priority);

/* ---- filters ------------------------------------------------------------------------------- */

/* Whether a filter without names accepts a name and a lane; sources and blocks are asked of the
 * store. */
bool weir__target_accepts(const store_target_filter *filter, weir_str name, weir_str lane);
/* The names that can be accepted are a range: its least name, or `after` if that is greater, and
 * whether a name lies beyond its end. */
weir_str weir__target_range(const store_target_filter *filter, weir_str after);
bool weir__target_is_beyond(const store_target_filter *filter, weir_str name);

/* ---- operators' verbs ---------------------------------------------------------------------- */

/* Whether a verb would change a target; passed: weir__target_is_passed. RESET and SKIP: no,
 * they look further. */
bool weir__verb_changes(const store_operate *op, const store_target *t, bool passed);

/* An event that a target has to do. */
typedef struct store_obstacle {
    bool found;
    int64_t event, reaction, attempts;
} store_obstacle;

/* The event in the way, while it is looked for. */
typedef struct store_obstacles {
    store_obstacle named; /* by a block, found or not; zeroed: there is no block */
    store_obstacle least;
} store_obstacles;

/* Takes in the next event of a subscription, or one that was sent back. */
void weir__obstacle_add(store_obstacles *o, int64_t event, int64_t reaction, int64_t attempts);
/* The one that the block names, if it was sent back or is the next of its reaction (a block that
 * names a later one does not decide: what lies before that has not been handled); else the least
 * event of all. */
store_obstacle weir__obstacle_first(const store_obstacles *o);
/* What it is parked with: the error of its target (empty: none), or who did it. */
static inline weir_str weir__skip_error(weir_str error)
{
    return error.len > 0 ? error : weir__str("skipped by an operator");
}

#endif
