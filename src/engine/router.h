/* router.h - the task that finds out which targets events belong to, for all reactions of a worker.
 *
 * One step: takes or renews routers' leases (3 s; renewed each second while there is something to
 * route, not renewed when there was nothing for 10 s), or reads a chunk of the log after the least
 * `routed` of the reactions held, resolves its events with no transaction open, and routes.
 * Correctness is the store's: route checks that `routed` is where reading began (ECONFLICT: read
 * the reactions again). The lease only keeps two workers from doing the same work.
 */
#ifndef WEIR_ENGINE_ROUTER_H
#define WEIR_ENGINE_ROUTER_H

#include "engine/worker_private.h"

weir_status weir__router_init(router *r, worker *w, weir_error *err);
void weir__router_free(router *r);
/* Gives the leases back; the last step before a worker ends. */
void weir__router_release(router *r);

#endif
