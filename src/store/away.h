/* away.h - tells a caller that the store is away while its call still waits for it to come back.
 *
 * A call waits for up to busy= before it fails. An outage should be reported sooner than that: a
 * thread sets a function here, and the store calls it each time it could not be reached, before it
 * tries again. It runs inside the call, perhaps several times, and must not call the store.
 */
#ifndef WEIR_STORE_AWAY_H
#define WEIR_STORE_AWAY_H

#include "weir.h"

typedef void (*store_away_fn)(void *ctx, const weir_error *err);

/* For the calling thread and all stores; NULL: nothing is called. */
void weir__store_away_set(store_away_fn fn, void *ctx);
/* For adapters. */
void weir__store_away_tell(const weir_error *err);

#endif
