/* worker_private.h - the objects of a worker, for router.c, lane.c, slot.c, poller.c and worker.c.
 *
 * LOCKS  worker.mu (rank 1) guards the slots' states as the lane sees them. It is never held over a
 * store call, a handler call or a wake of the scheduler.
 */
#ifndef WEIR_ENGINE_WORKER_PRIVATE_H
#define WEIR_ENGINE_WORKER_PRIVATE_H

#include "base/thread.h"
#include "engine/delivery.h"
#include "engine/room.h"
#include "engine/worker.h"
#include "supervisor/lease.h"

typedef struct router {
    task task;
    worker *worker; /* borrowed */
    /* atomic: set by any thread, taken by the task. Relaxed: the wake-up that follows is what makes
     * the task look. */
    _Atomic bool asked;   /* there may be something new in the log */
    _Atomic bool hinted;  /* and if it is not about the log, it may be about targets */
    _Atomic bool rewound; /* the log is another one: what was read of it counts no more */
    /* owned by the task */
    struct router_reaction *reactions; /* owned; one per reaction of the registry, by its index */
    weir_arena arena;                  /* of one call of the store */
    /* what is being routed */
    store_chunk chunk;
    bool has_chunk;
    int64_t chunk_from;       /* where reading it began */
    size_t chunk_next;        /* the first event of it that is not routed */
    struct lane_clash *clash; /* marks of it that were refused */
    weir_arena clash_arena;
    /* where to go on */
    bool searching;     /* since we were asked, the end was not found yet */
    bool progress;      /* and something was routed */
    bool tried;         /* and what others hold was tried to get */
    bool look;          /* the reactions must be read before anything else */
    bool look_wanted;   /* they shall be read when nothing else is found */
    int64_t turn_after; /* up to here was read last: who is beyond it is next, or else the first */
    int64_t seen_end;   /* the end of the log as it was read since; -1: not read */
    /* times, mono; INT64_MAX: never */
    int64_t leased_us;    /* leases were taken or renewed last */
    int64_t active_us;    /* something was routed last */
    int64_t looked_us;    /* the reactions were read last */
    int64_t look_at_us;   /* read them then */
    int64_t look_wait_us; /* the least time between two looks that find nothing */
    int64_t read_at_us;   /* do not read before, after reads that found nothing */
    int64_t vain_us;      /* how long to wait after the next one */
    int64_t held_at_us;   /* read what was held back then */
    int64_t held_wait_us;
    int64_t until_us; /* what the last step answered */
    int64_t retry_us; /* the store failed: not before */
    int attempt;      /* failures of the store in a row */
} router;

typedef enum slot_state {
    SLOT_IDLE,
    SLOT_ASSIGNED, /* leased; the lane fills its batch, then the slot begins  */
    SLOT_RUNNING,
    SLOT_FINISHED, /* its batch was run, and is the lane's again, to be settled */
} slot_state;

typedef struct slot {
    task task;
    struct lane *lane; /* borrowed */
    size_t number;

    /* guarded by worker.mu */
    slot_state state;
    uint64_t round;                  /* of the lane in which it was assigned */
    int64_t target, fence, token;    /* while not IDLE */
    bool lost;                       /* the renewal was refused, or the log is another one */
    bool given_up;                   /* the latter: the store may still think that it is ours */
    int64_t last_target, last_fence; /* of the lease before, while IDLE */

    /* owned by the task while RUNNING, else by the lane's leasing */
    struct batch *batch; /* see batch.h: the lease, its events and how far they are; owned */
    effects effects;
    struct slot_programs *programs; /* see slot_program.c; owned; NULL: none was started */
    bool runs; /* the step before was one of many events: unless interrupted, nothing has changed */
    _Atomic bool interrupted; /* the lease is lost, or the worker wants to end */
    /* boot: the lease is surely ours until then. Counted from a reading taken before the call that
     * took or renewed it was sent, never from the store's clock, and less LANE_MARGIN. No event is
     * delivered after it. Atomic, relaxed: written under worker.mu, read for every event. */
    _Atomic int64_t held_until_us;
    child_lease lease; /* the same, for the supervisor of the program that runs */
    /* mono: the deadline of what runs; not renewed after it. Atomic, relaxed: set for every event,
     * and a renewal that reads the one before is as good. */
    _Atomic int64_t extend_until_us;
} slot;

typedef struct lane {
    task leasing, renewing;
    worker *worker; /* borrowed */
    lane_config config;
    slot *slots; /* owned */
    size_t slots_count;
    room_share room; /* for the events of its slots */
    /* owned by `leasing` */
    int attempt;
    double leading_share;     /* 0.2 to 0.8 */
    struct lane_round *round; /* see lane.c; owned */
    /* owned by `renewing` */
    int renew_attempt;
    int64_t renew_us; /* mono: when next */
    /* guarded by worker.mu */
    bool crowded;            /* the last lease call came back full: others wait for a slot */
    size_t together;         /* so many of together_round are waited for, with a time; 0: none */
    uint64_t together_round; /* see slot.round */
    /* atomic, relaxed: set once; whoever does not see it yet has begun before */
    _Atomic bool draining;
    /* set before `leasing` is woken, cleared when a turn begins */
    _Atomic bool asked;  /* there is something to settle or to lease */
    _Atomic bool hinted; /* there may be something to lease */
} lane;

/* The fallback poll: one statement per process; wakes router and lanes; beats. */
typedef struct poller {
    task task;
    worker *worker;
    /* atomic: set by any thread, taken by the task; relaxed, as router.asked */
    _Atomic bool stirred;        /* something happened: do not sleep longer than a cycle */
    _Atomic bool asked;          /* poll now */
    _Atomic int64_t due_hint_us; /* store's clock: something is due then; INT64_MAX: none */
    /* owned by the task */
    int64_t polled_us;      /* mono: when the last poll was made; INT64_MIN: none */
    int64_t poll_us;        /* mono: when next */
    int64_t beat_us;        /* mono: when the next beat is */
    int64_t idle_us;        /* how long the next sleep is when nothing happens */
    int64_t store_ahead_us; /* the store's clock less the monotonic one, at the last poll */
    uint64_t progress;      /* what this worker had done at the last poll */
    size_t lane_index;      /* of the lanes that are asked for one by one */
    store_poll sum;         /* of those asked so far in this cycle */
    int64_t ask_number;     /* as worker.ask_number when this cycle began */
    int64_t routed_ours;    /* the same of worker.routed_ours             */
    bool beat_draining;     /* what the last beat said */
    bool poll_failed;       /* the last try was a poll, and failed */
    int64_t retry_us;       /* mono: the store failed: not before */
    int attempt;
} poller;

struct worker {
    weir_store *store; /* borrowed */
    registry *registry;
    worker_options options;
    scheduler *scheduler;
    metrics metrics;
    room room;      /* for the events of all lanes */
    char name[256]; /* application@host:pid:random */
    char host[128];
    int64_t pid;
    router router;
    poller poller;
    lane *lanes; /* owned */
    size_t lanes_count;
    task **tasks; /* owned */
    size_t tasks_count;

    weir_mutex mu;
    /* guarded by mu */
    store_poll polled;
    int64_t polled_ours; /* routed_ours before it: what that marked, the poll has seen */
    bool polled_once, draining;
    int64_t ask_number;             /* how often somebody asked for a new poll */
    char epoch[64], log[64];        /* of the log, as it was seen last; "": not yet (rewind.c) */
    int64_t log_asked, log_changed; /* number of the last question, and of the last change */

    bool some_lanes; /* immutable: not all lanes of the registry are run here */
    /* atomic, relaxed: numbers on their own */
    _Atomic int64_t routed_ours; /* the least `routed` of what we route; INT64_MIN: not known */
    _Atomic bool outage;         /* the store was away, and it was said */
    _Atomic bool damaged;        /* the store is damaged, and it was said: this worker ends */
    weir_error damage;           /* how; written before `damaged`, by one task, and never again */
    _Atomic bool damage_taken;   /* that task */
};

bool weir__worker_draining(worker *w);
/* Wakes every lane's leasing. */
void weir__worker_wake_lanes(worker *w);
/* Wakes every slot. */
void weir__worker_wake_slots(worker *w);
/* A target of ours was deferred until then (the store's clock): somebody looks when it is due. Any
 * thread. */
void weir__worker_due(worker *w, int64_t until_us);

void weir__worker_log(worker *w, int level, const char *event, const log_field *fields,
                      size_t count);
/* Says so once per outage, counts it, and gives the time of the next attempt. */
int64_t weir__worker_store_failed(worker *w, task *t, int *attempt, const weir_error *err);

/* rewind.c: which log it is, by whatever answer of the store tells. ask: before the store is asked,
 * the number of the question. is: what the answer said. True: it is another log than before, which
 * is said once, and all that is held was given up. Any thread. */
int64_t weir__worker_log_ask(worker *w);
bool weir__worker_log_is(worker *w, int64_t asked, const char *epoch, const char *log);
/* Whether a change was found since that question. The caller holds worker.mu. */
bool weir__worker_log_changed_locked(const worker *w, int64_t asked);

/* After the lanes. */
weir_status weir__poller_init(poller *p, worker *w, weir_error *err);
/* Something happened: do not sleep longer than a cycle. Any thread. */
void weir__poller_stir(poller *p);
/* Poll now. Any thread. */
void weir__poller_ask(poller *p);
/* The worker is no more: others need not wait until its last beat has ended. */
void weir__poller_farewell(poller *p);

#endif
