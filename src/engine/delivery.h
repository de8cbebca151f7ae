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

#include <stdatomic.h>

enum {
    EFFECTS_MAX = 10000,            /* appends, and SQL functions, of one batch   */
    HANDLER_ERROR_BYTES_MAX = 1000, /* of what a handler says about its failure */
};

typedef struct staged_append {
    prepared_append prepared; /* owned; borrows from names */
    weir_arena names;         /* owned                     */
} staged_append;

typedef struct staged_sql {
    weir_sql_fn fn;
    void *ctx;
} staged_sql;

/* Everything that the events of a batch have staged. Zeroed is empty. */
typedef struct effects {
    staged_append **appends; /* owned, each of them too */
    size_t appends_count, appends_capacity;
    staged_sql *sqls; /* owned */
    size_t sqls_count, sqls_capacity;
    store_append **list; /* owned: what a settle is given; see weir__effects_list */
    size_t list_capacity;
} effects;

void weir__effects_free(effects *e); /* zeroed is fine */
/* Back to how many there were: what a failed handler had staged is dropped. */
void weir__effects_cut(effects *e, size_t appends_count, size_t sqls_count);
/* Puts what `from` has behind what `to` has; `from` is empty then. WEIR_ENOMEM: both are as they
 * were. */
weir_status weir__effects_move(effects *to, effects *from, weir_error *err);
/* The appends as a settle takes them, with the results of an earlier try removed. NULL with
 * appends: out of memory. Valid until something is staged. */
store_append *const *weir__effects_list(effects *e);

struct weir_delivery {
    const weir_event *event;
    const reaction *reaction;
    weir_str reaction_name; /* of what was pulled: its own copy, which outlives the engine */
    weir_str target;
    int64_t attempt; /* 1 is the first */
    int64_t fence;
    int64_t deadline_us; /* of the store's clock, for the handler to read */
    int64_t deadline_mono_us;
    char key[600];         /* "reaction:event id": the same on every redelivery; NUL-terminated */
    effects *effects;      /* borrowed: of the slot */
    int64_t payload_bytes; /* largest data or meta */
    const weir_clock *clock;
    _Atomic bool *interrupted;            /* borrowed: the worker ends, or the lease is lost */
    const _Atomic int64_t *held_until_us; /* borrowed: see slot.held_until_us */
    struct pulled *pulled;                /* PULL, see pull.h; else NULL */
    /* what the handler said */
    char why[1024];
    int64_t defer_us;
};

/* As weir_stage_append and weir_stage_sql of weir.h. EBUSY: EFFECTS_MAX is reached. */
weir_status weir__stage_append(weir_delivery *d, const weir_append_request *request,
                               weir_error *err);
weir_status weir__stage_sql(weir_delivery *d, weir_sql_fn fn, void *ctx, weir_error *err);
/* As weir_delivery_interrupted. Any thread. */
bool weir__delivery_interrupted(const weir_delivery *d);
/* As weir_delivery_fail: kept as far as there is room. */
void weir__delivery_fail(weir_delivery *d, weir_str why);

#endif
