/* worker.h - one worker: router, lanes and slots over one store, as tasks that somebody drives.
 *
 *     weir__worker_open(&w, store, registry, options, scheduler, &err);   nothing runs yet
 *     for each of weir__worker_tasks: the scheduler calls its step
 *     weir__worker_drain(w);     from now on nothing is leased; what runs goes on
 *     ... until weir__worker_idle(w) or the budget is spent
 *     weir__worker_close(w);     hands back what it can, frees
 *
 * A worker that is dropped without a call into the store (weir__worker_abandon) is what kill -9
 * leaves: for the simulator.
 */
#ifndef WEIR_ENGINE_WORKER_H
#define WEIR_ENGINE_WORKER_H

#include "engine/log.h"
#include "engine/metrics.h"
#include "engine/reaction.h"
#include "engine/task.h"

typedef struct worker worker;

typedef struct worker_options {
    weir_str application;    /* for the holder's text; empty: "weir" */
    int64_t lost_max;        /* 10 */
    int64_t router_lease_us; /* 3 s */
    int64_t beat_us;         /* how often the store is told that we live: STORE_WORKER_BEAT_US */
    int64_t payload_bytes;   /* largest data or meta of an append */
    int64_t memory_bytes;    /* for events, all lanes together: ROOM_BYTES_DEFAULT */
    worker_log_fn log;       /* may be NULL */
    void *log_ctx;
    const weir_str *lanes; /* run these of the registry's lanes only; borrowed until open returns */
    size_t lanes_count;    /* 0: all */
    committer *committer;  /* whose appends are counted as ours; borrowed; may be NULL */
    struct child_keeper *keeper; /* borrowed, see child/child.h; NULL: no reaction has a program */
    /* A delivery waits for weir__worker_next. Any thread; never blocks; may be NULL. */
    void (*pull_cb)(void *ctx);
    void *pull_ctx;
} worker_options;

/* store, registry (declared), scheduler: borrowed, outlive the worker. */
weir_status weir__worker_open(worker **out, weir_store *store, registry *reactions,
                              const worker_options *options, scheduler *sched, weir_error *err);
/* The tasks, fixed for the worker's life; borrowed. */
task *const *weir__worker_tasks(worker *w, size_t *count);
/* Something happened in the store (a watch was woken, or an append of this process). Any thread. */
void weir__worker_wake(worker *w);
void weir__worker_drain(worker *w);
/* Handlers that can be interrupted (programs) are told to end. */
void weir__worker_interrupt(worker *w);
bool weir__worker_idle(worker *w); /* drained, and no slot runs */
/* Nothing is ready, leased or waiting for a backoff, everything of ours is routed, and no slot
 * runs: as the last poll said. Any thread. */
bool weir__worker_out_of_work(worker *w);
/* The same of what is ours: no slot runs, and everything of ours is routed. Any thread. */
bool weir__worker_rests(worker *w);
/* Forgets the last poll and asks for one now: until it was made, we are not out of work. For
 * whoever begins to wait for the end of work. Any thread. */
void weir__worker_ask(worker *w);
/* The store is damaged or was taken away: it has drained itself. Waiting does not help. *how (may
 * be NULL): the error that said so. Any thread. */
bool weir__worker_damaged(worker *w, weir_error *how);
metrics *weir__worker_metrics(worker *w);
weir_str weir__worker_name(const worker *w); /* the holder's text */
void weir__worker_close(worker *w);
void weir__worker_abandon(worker *w);

/* PULL: a delivery that waits, or NULL. Owned until weir__worker_settle. Any thread. */
weir_delivery *weir__worker_next(worker *w);
/* Ends it as a handler's return value does (WEIR_DONE, ...), on the calling thread. Blocks as a
 * call into the store does. WEIR_OK: what was staged is written, or the failure will be. Otherwise
 * nothing of it was written:
 *   ELOST                     the lease was another's, or the deadline has passed; ended
 *   ECONFLICT, ETAKEN, ...    an append was refused; ended: it is delivered again, or counts as a
 *                             failure when that was the last try
 *   EUNKNOWN                  nobody can say whether it was written; ended
 *   EBUSY, EUNAVAILABLE, EIO, ENOMEM   not ended: call again. */
weir_status weir__worker_settle(worker *w, weir_delivery *d, int32_t outcome, weir_error *err);
/* Ends one that has outlived its worker. */
void weir__pulled_drop(weir_delivery *d);

#endif
