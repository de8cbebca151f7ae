/* away.c - see away.h. */
#include "store/away.h"

#include <stddef.h>

static _Thread_local struct {
    store_away_fn fn;
    void *ctx; /* borrowed */
} told;

void weir__store_away_set(store_away_fn fn, void *ctx)
{
    told.fn = fn;
    told.ctx = ctx;
}

void weir__store_away_tell(const weir_error *err)
{
    if (told.fn != NULL) {
        told.fn(told.ctx, err);
    }
}
