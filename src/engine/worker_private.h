/* worker_private.h - the objects of a worker, for router.c, lane.c, slot.c, poller.c and worker.c.
 *
 * LOCKS  worker.mu (rank 1) guards the slots' states as the lane sees them. It is never held over a
 * store call, a handler call or a wake of the scheduler.
 */
#ifndef WEIR_ENGINE_WORKER_PRIVATE_H
#define WEIR_ENGINE_WORKER_PRIVATE_H

#include "base/thread.h"
#include "engine/delivery.h"
#include "engine/worker.h"

typedef struct router {
    task task;
    worker *worker; /* borrowed */
    /* owned by the task */
    store_router_lease *leases; /* one per reaction of the registry, by its index */
    store_chunk chunk;
    weir_arena arena;
    int64_t renew_us, active_us; /* mono: when to renew; when something was routed last */
    int64_t looked_us;           /* mono: when the reactions were read last */
    int attempt;                 /* failures of the store in a row */
} router;

/* One event of a slot's batch. */
typedef struct slot_event {
    const weir_event *event;
    reaction *reaction;
    int64_t retries;  /* of its subscription when it was leased */
    int64_t parked;   /* id of the parked event that was sent back; 0: none */
    int64_t attempts; /* of a parked event */
} slot_event;

typedef enum slot_state { SLOT_IDLE, SLOT_ASSIGNED, SLOT_RUNNING } slot_state;

typedef struct slot {
    task task;
    struct lane *lane; /* borrowed */
    size_t number;

    /* guarded by worker.mu */
    slot_state state;
    int64_t target, fence;   /* while not IDLE */
    int64_t extend_until_us; /* mono: the deadline of what runs; not renewed after it */
    bool lost;               /* the renewal was refused */

    /* owned by the task while RUNNING; by the lane while IDLE */
    struct batch *batch; /* see slot.c: the lease, its events and how far they are */
    effects effects;
    struct child *child; /* EXEC: see child/child.h; owned */
    _Atomic bool interrupted;
} slot;

typedef struct lane {
    task leasing, renewing;
    worker *worker; /* borrowed */
    lane_config config;
    slot *slots; /* owned */
    size_t slots_count;
    /* owned by `leasing` */
    int attempt;
    double leading_share; /* 0.2 to 0.8 */
    /* guarded by worker.mu */
    bool crowded; /* the last lease call came back full: others wait for a slot */
    bool draining;
} lane;

/* The fallback poll: one statement per process; wakes router and lanes; beats. */
typedef struct poller {
    task task;
    worker *worker;
    int64_t poll_us, beat_us; /* mono: when next */
    int64_t idle_us;          /* how long the next sleep is when nothing happens */
    int attempt;
} poller;

struct worker {
    weir_store *store; /* borrowed */
    registry *registry;
    worker_options options;
    scheduler *scheduler;
    metrics metrics;
    char name[256]; /* application@host:pid:random */
    char host[128];
    int64_t pid, since_us;
    router router;
    poller poller;
    lane *lanes; /* owned */
    size_t lanes_count;
    task **tasks; /* owned */
    size_t tasks_count;

    weir_mutex mu;
    /* guarded by mu */
    store_poll polled;
    bool polled_once, draining;
    _Atomic bool router_behind; /* the router knows of more to do */
};

void weir__worker_log(worker *w, int level, const char *event, const log_field *fields,
                      size_t count);
/* Says so once per outage, counts it, and gives the time of the next attempt. */
int64_t weir__worker_store_failed(worker *w, task *t, int *attempt, const weir_error *err);

#endif
