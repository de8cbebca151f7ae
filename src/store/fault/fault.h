/* fault.h - a store that wraps any other and misbehaves when told to: fails, delays or repeats the
 * Nth call of a chosen verb. For tests of what stands above the port.
 *
 * Without a plan it hands every call through. Calls are counted per verb, also those that a plan
 * fails. close, watch_fd and watch_close cannot fail and are not counted.
 */
#ifndef WEIR_STORE_FAULT_FAULT_H
#define WEIR_STORE_FAULT_FAULT_H

#include "store/store.h"

typedef enum fault_verb {
    FAULT_ANY = 0,
    FAULT_NOW,
    FAULT_APPEND,
    FAULT_READ_STREAM,
    FAULT_READ_LOG,
    FAULT_STREAM_INFO,
    FAULT_STREAMS,
    FAULT_POSITIONS,
    FAULT_DECLARE,
    FAULT_REACTIONS,
    FAULT_RETIRE,
    FAULT_ROUTER_LEASE,
    FAULT_ROUTE,
    FAULT_LEASE, /* a turn that settles nothing */
    FAULT_FETCH,
    FAULT_SETTLE,
    FAULT_EXTEND,
    FAULT_RELEASE, /* extending by 0 */
    FAULT_OPERATE,
    FAULT_LANE_PAUSE,
    FAULT_TARGETS,
    FAULT_LANES,
    FAULT_PARKED,
    FAULT_PARKED_CHANGE,
    FAULT_POLL,
    FAULT_SNAPSHOT_PUT,
    FAULT_SNAPSHOT_GET,
    FAULT_SNAPSHOT_DROP,
    FAULT_WATCH_OPEN,
    FAULT_WATCH_WAIT,
    FAULT_STATS,
    FAULT_CHECK,
    FAULT_HOLDERS,
    FAULT_WORKER_BEAT,
    FAULT_WORKERS,
    FAULT_TURN,
    FAULT_LOCK_TAKE,
    FAULT_LOCK_EXTEND,
    FAULT_LOCK_RELEASE,
    FAULT_LOCKS,
    FAULT_ONCE_FINISH,
    FAULT_ONCE_FORGET,
    FAULT_ONCE_RUNS,
    FAULT_VERBS_COUNT,
} fault_verb;

typedef enum fault_action {
    FAULT_FAIL_BEFORE, /* the inner store is not called: nothing has happened               */
    FAULT_FAIL_AFTER,  /* it is called and its success is reported as a failure: an outcome
                          that the caller cannot know                                       */
    FAULT_DELAY,       /* delay_cb runs before the inner store is called                    */
    FAULT_REPEAT,      /* the inner store is called twice, the second answer counts          */
} fault_action;

/* Runs on the calling thread, without a lock of the fault store. */
typedef void (*fault_delay_fn)(void *ctx, fault_verb verb);

typedef struct fault_plan {
    fault_verb verb;
    fault_action action;
    uint64_t nth;       /* of the calls from now on that fit `verb`; 1 is the next, 0: no plan */
    uint64_t count;     /* how many calls in a row from there; 0 means 1                       */
    weir_status status; /* FAULT_FAIL_*: what is answered                                      */
    fault_delay_fn delay_cb;
    void *delay_ctx; /* borrowed */
} fault_plan;

/* inner: moved; it is closed with the wrapper, and on failure too. *out: ended by about->close. */
weir_status weir__fault_open(weir_store **out, weir_store *inner, weir_error *err);
/* Replaces the plan and forgets the calls it had counted towards `nth`. Any thread. */
void weir__fault_set(weir_store *base, const fault_plan *plan);
/* How often the plan was carried out since it was set. */
uint64_t weir__fault_hits(weir_store *base);
/* Calls of a verb (FAULT_ANY: of all) since the store was opened. */
uint64_t weir__fault_calls(weir_store *base, fault_verb verb);
weir_store *weir__fault_inner(weir_store *base); /* borrowed */

#endif
