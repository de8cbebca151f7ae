/* router.h - the task that finds out which targets events belong to, for all reactions of a worker.
 *
 * One step is one call of the store:
 *   lease   takes or renews routers' leases (3 s; renewed each second while there is something to
 *           route, more rarely when there is not, and no longer after 10 s of that);
 *   look    reads the reactions: how far they are routed, and whether our definitions are current;
 *   read    reads a chunk of the log from where some of the reactions held are; those at different
 *           positions take turns, so that a new one's history does not stop the live ones;
 *   route   resolves its events with no transaction open, and writes marks, parks and positions.
 *
 * Correctness is the store's: route checks that `routed` is where reading began and that the
 * definition is current (ECONFLICT: look again). The lease only keeps two workers from doing the
 * same work, so a router that was stopped past its lease can do no harm.
 */
#ifndef WEIR_ENGINE_ROUTER_H
#define WEIR_ENGINE_ROUTER_H

#include "engine/worker_private.h"

weir_status weir__router_init(router *r, worker *w, weir_error *err);
void weir__router_free(router *r);
/* There may be something new in the log. Any thread. */
void weir__router_ask(router *r);
/* The same, and if it was not about the log the lanes are told (weir__lane_hint). */
void weir__router_hint(router *r);
/* Gives the leases back; the last step before a worker ends. */
void weir__router_release(router *r);

#endif
