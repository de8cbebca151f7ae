/* delivery.h - one event given to a handler, and what the handler stages.
 *
 * Effects are copied when they are staged and live until the settle. Appends inherit the event's
 * correlation and have its id as causation unless they say otherwise. All of a batch's effects are
 * settled in the order in which they were staged.
 */
#ifndef WEIR_ENGINE_DELIVERY_H
#define WEIR_ENGINE_DELIVERY_H

#include "engine/reaction.h"
#include "store/request.h"

typedef struct staged_sql {
    weir_sql_fn fn;
    void *ctx;
} staged_sql;

/* Everything that the events of a batch have staged. */
typedef struct effects {
    prepared_append **appends; /* owned */
    size_t appends_count, appends_capacity;
    staged_sql *sqls; /* owned */
    size_t sqls_count, sqls_capacity;
} effects;

void weir__effects_free(effects *e); /* zeroed is fine */
/* Back to how many there were: what a failed handler had staged is dropped. */
void weir__effects_cut(effects *e, size_t appends_count, size_t sqls_count);

struct weir_delivery {
    const weir_event *event;
    const reaction *reaction;
    weir_str target;
    int64_t attempt; /* 1 is the first */
    int64_t fence;
    int64_t deadline_us; /* of the store's clock, for the handler to read */
    int64_t deadline_mono_us;
    char key[600];         /* "reaction:event id": the same on every redelivery; NUL-terminated */
    effects *effects;      /* borrowed: of the slot */
    int64_t payload_bytes; /* largest data or meta */
    const weir_clock *clock;
    _Atomic bool *interrupted; /* borrowed: the worker ends, or the lease is lost */
    /* what the handler said */
    char why[1024];
    int64_t defer_us;
};

#endif
