/* sim.h - workers on one memory store, in a world whose time and chance come from a seed.
 *
 *   sim_test.c  runs seeds
 *   world.c     time, chance, who runs next; the processes, their crashes and their pauses
 *   events.c    what is appended, the handlers, the operator
 *   forms.c     projections, and deliveries that are pulled
 *   model.c     what has to be true, derived from the log alone; see there
 *
 * The objects are the worker's own (weir__worker_tasks); only what threads.c does is done here. A
 * step is one step of a task, or one deed of the world (an append, an operator's verb, a crash).
 * A call of the store that is delayed, and a handler that is slow, let other steps happen in the
 * middle of theirs; so steps nest, and whatever looks at the store looks after each one of them.
 *
 * Batches are settled in both ways: with effects by their slot, and without, as LOOK's are, in the
 * lane's turn. LOOK has targets of its own: a batch with an effect of anybody's is not plain.
 *
 * Everything runs on one thread, and one seed is always the same run. So what needs threads or
 * processes is not here: programs as handlers are tried for real, in tests/engine/.
 */
#ifndef WEIR_TESTS_SIM_H
#define WEIR_TESTS_SIM_H

#include "engine/worker_private.h"
#include "store/fault/fault.h"

enum {
    SIM_PROCESSES = 4, /* at most; those that were killed start again */
    SIM_STREAMS = 7,
    SIM_KEYS = 7,
    SIM_LOOKED = SIM_STREAMS + SIM_KEYS, /* the first target of LOOK; it has one for each stream */
    SIM_TARGETS = SIM_LOOKED + SIM_STREAMS + 1,
    SIM_NOWHERE = SIM_TARGETS, /* the line of events whose target cannot be found */
    SIM_TASKS_MAX = 16,        /* of one process */
    SIM_STEPS = 2000,
    SIM_DRAIN_STEPS_MAX = 20000,
    SIM_DEPTH_MAX = 3, /* steps in the middle of steps */
    SIM_LOST_MAX = 6,
    SIM_TAKEN_MAX = 3, /* deliveries that one process has pulled */
    SIM_PROJECTED_MAX = 64,
    SIM_ENDS = 16, /* leases of a target whose ends are remembered */
};
#define SIM_PULL_US    INT64_C(1000000) /* the deadline of what is pulled */
#define SIM_PROJECT_US INT64_C(200000)

typedef enum sim_reaction {
    COPY,
    AUDIT,
    TALLY,
    BILL,
    MAIL,
    SUM,
    TAKE,
    LOOK,
    SIM_REACTIONS
} sim_reaction;

/* Who has taken a step: what it may change depends on that. */
typedef enum sim_actor {
    ACTOR_ROUTER,
    ACTOR_POLLER,
    ACTOR_LEASING,
    ACTOR_RENEWING,
    ACTOR_SLOT,
    ACTOR_START,    /* a process declares its reactions */
    ACTOR_CLOSE,    /* a worker hands back              */
    ACTOR_APPEND,   /* the world                        */
    ACTOR_OPERATOR, /* anything but the following        */
    ACTOR_SKIP,
    ACTOR_RESET,
} sim_actor;

typedef struct sim sim;
typedef struct sim_process sim_process;

typedef struct sim_task {
    task *task;
    sim_process *process;
    sim_actor actor;
    lane *lane; /* LEASING, RENEWING, SLOT */
    slot *slot; /* SLOT */
    int64_t due_us;
    bool woken, running;
} sim_task;

/* A lease that somebody believes to have. */
typedef struct sim_belief {
    int64_t target, fence;
} sim_belief;

/* A delivery that was pulled. */
typedef struct sim_taken {
    weir_delivery *delivery; /* NULL: none */
    int64_t settle_us;
    bool staged, settling;
    int32_t outcome;
} sim_taken;

/* A row that a projection has left. */
typedef struct sim_projected {
    int64_t event, fence;
} sim_projected;

struct sim_process {
    sim *sim;
    int number;
    bool up, draining;
    bool newer;               /* has the definitions that gained an event name */
    int frames;               /* of its steps that are under way */
    bool frozen;              /* all of it stands still, in the middle of a step */
    int64_t stopped_until_us; /* stands still between steps */
    int64_t start_us;         /* when it starts again */
    int64_t close_us;         /* draining: when it ends at the latest */
    int64_t wake_us;          /* when a wake-up arrives; INT64_MAX: none is on its way */
    int64_t pull_us;          /* when it looks for something to pull; INT64_MAX: not */
    sim_taken taken[SIM_TAKEN_MAX];
    weir_store *store; /* owned: a fault store over a handle of its own */
    registry reactions;
    worker *worker;
    scheduler scheduler;
    sim_task tasks[SIM_TASKS_MAX];
    size_t tasks_count;
};

/* An event for one reaction on one target, as the log says. */
typedef struct sim_event {
    int64_t id;
    bool required; /* else it may be handled, see model.c */
    int effects, parked;
    bool was_parked;
    int64_t seen_fence; /* LOOK: the last under which its handler has said that it is done */
} sim_event;

typedef struct sim_line {
    sim_event *events; /* owned; by id */
    size_t count, capacity;
    size_t covered; /* events[0..covered) are at or below `at` */
    int64_t last;   /* the event whose effect came last */
    /* LOOK: the last fence under which one was seen, and the last that was seen under it */
    int64_t seen_fence, seen_last;
    /* as the store has it */
    bool subscribed;
    int64_t at, mark, retries;
    int64_t sent_back;
    bool was_reset; /* and what the router has to read again for it was not read yet */
} sim_line;

/* A target as the store had it when it was looked at last. */
typedef struct sim_row {
    int64_t id; /* 0: not there */
    int64_t fence, until_us, due_us, lost, priority;
    bool behind, blocked, paused;
    char holder[128];
} sim_row;

/* When a lease ended, or would have. */
typedef struct sim_end {
    int64_t fence, until_us;
} sim_end;

struct sim {
    uint64_t seed, random;
    int64_t mono_us;
    weir_clock clock;
    weir_store *store; /* owned: a handle without faults */
    store_watch *watch;
    sim_process processes[SIM_PROCESSES];
    bool trace;
    bool faults;        /* chance may do harm */
    bool silent;        /* no wake-up arrives */
    bool quiet;         /* no faults, and some of the work is to be done later */
    bool newer_exists;  /* the definitions with one more name may be started */
    int64_t newer_from; /* and were declared when so much was routed; INT64_MAX: not yet */
    int depth;
    int64_t steps;
    int64_t projecting[SIM_PROJECTED_MAX]; /* events, in the settle under way */
    size_t projecting_count;
    sim_projected projected[SIM_PROJECTED_MAX]; /* rows that were not looked at yet */
    size_t projected_count;
    /* model */
    sim_line lines[SIM_REACTIONS][SIM_TARGETS + 1];
    sim_row rows[SIM_TARGETS];
    sim_end ends[SIM_TARGETS][SIM_ENDS]; /* by fence, modulo */
    int64_t routed[SIM_REACTIONS], reaction_ids[SIM_REACTIONS];
    int64_t routed_high[SIM_REACTIONS]; /* as far as it was before a reset */
    int64_t log_seen, last_source;      /* the last event that somebody listens to */
    size_t parked_count;
    store_targets_chunk targets;
    store_reaction_list reactions;
    store_chunk chunk;
    store_parked_chunk parked;
    /* to see that something happens: what was done, and what the workers counted */
    uint64_t effects, crashes, projections, pulls, pulls_lost;
    uint64_t turns, plain, plain_lost; /* turns that settled batches, those, and those refused */
    uint64_t looks;                    /* events of LOOK's that turns settled */
    uint64_t counted[METRIC_COUNTERS];
    bool failed;
    char problem[1000];
};

extern const char *const sim_reaction_names[SIM_REACTIONS];

/* ---- chance and telling ---- */
uint64_t sim_random(sim *s);
bool sim_chance(sim *s, uint64_t in_thousand);
int64_t sim_between(sim *s, int64_t least, int64_t most);
void sim_fail(sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- world.c ---- */
/* Runs a seed; false: s->problem says what is wrong. *digest is the same for the same run. */
bool sim_run(sim *s, uint64_t seed, bool trace, uint64_t *digest);
/* Lets others step, about so long, in the middle of a step of p. frozen: not p itself. */
void sim_meanwhile(sim_process *p, int64_t us, bool frozen);
int64_t sim_store_now(sim *s);
/* Makes a call of a worker's that may use the store: with a fault, maybe, and a look after it. Was
 * the store called? */
bool sim_call(sim_process *p, sim_actor actor, const sim_belief *beliefs, size_t count,
              void (*call)(void *ctx), void *ctx);
/* Every lease that the process believes to have; of one lane only, unless that is NULL. */
size_t sim_beliefs(const sim_process *p, const lane *only, sim_belief *out);

/* ---- events.c ---- */
/* Fills the registry; everything the handlers need is in the process. */
void sim_declare(sim_process *p);
/* Stages what a handler does, and gives its answer. */
int32_t sim_handled(sim_process *p, weir_delivery *d);
void sim_append(sim *s);
void sim_operate(sim *s);
/* Takes away whatever keeps targets from running but time. */
void sim_relent(sim *s);

/* ---- forms.c ---- */
/* Rows of projections are kept or dropped with the settles of this handle, and turns counted. */
void sim_watch_settles(sim *s, weir_store *store);
int32_t sim_project(void *ctx, void *native, const weir_event *const *events, size_t events_count,
                    weir_error *err);
/* worker_options.pull_cb, of a process */
void sim_pull_told(void *ctx);
/* When sim_pull has something to do. */
int64_t sim_pull_next_us(const sim_process *p);
/* Takes a delivery, or settles one. */
void sim_pull(sim_process *p);
/* The process ends, whatever it has. */
void sim_pull_end(sim_process *p);

/* ---- model.c ---- */
/* Looks at the store after a step and compares it with what was there before and with the model.
 * beliefs: the leases that the actor had when its step began. */
void sim_look(sim *s, sim_actor actor, const sim_process *p, const sim_belief *beliefs,
              size_t count);
/* A handler is given an event under that fence. */
void sim_begins(sim *s, weir_str target, int64_t fence);
/* LOOK's handler is about to say that an event is done. */
void sim_saw(sim *s, weir_str target, int64_t event, int64_t fence);
/* COPY has its newer definition from here on. */
void sim_newer_from(sim *s, int64_t routed);
/* The operator is about to let everything after the position be handled again. */
void sim_will_reset(sim *s, int target, int64_t position);
/* The lowest position to which a target can be reset: above it nothing is parked. */
int64_t sim_reset_least(const sim *s, int target);
bool sim_blocked(const sim *s); /* one of the targets is */
/* All that was asked for is done. */
bool sim_done(sim *s);
void sim_check_end(sim *s);
void sim_model_free(sim *s);

#endif
