/* lane.h - a lane of a worker: leases targets for its free slots, renews the leases of those that
 * run, and sleeps well.
 *
 * Tasks: `leasing` (leases for as many slots as are free, fetches for all of them in one call, and
 * wakes the slots) and `renewing` (extends what runs, at a third of the lease).
 */
#ifndef WEIR_ENGINE_LANE_H
#define WEIR_ENGINE_LANE_H

#include "engine/worker_private.h"

weir_status weir__lane_init(lane *l, worker *w, const lane_config *config, weir_error *err);
void weir__lane_free(lane *l);
/* No more leases; what was leased and not started is handed back (uncharged). */
void weir__lane_drain(lane *l);
/* Every slot is idle. */
bool weir__lane_idle(lane *l);

#endif
