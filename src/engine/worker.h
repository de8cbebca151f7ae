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

#include "engine/metrics.h"
#include "engine/reaction.h"
#include "engine/task.h"

typedef struct worker worker;

/* What a worker tells about itself: one event with its fields. level: 0 debug, 1 info, 2 warning,
 * 3 error. Never blocks for long. */
typedef struct log_field {
    const char *name;
    weir_str text; /* when text.ptr is NULL: number */
    int64_t number;
} log_field;
typedef void (*worker_log_fn)(void *ctx, int level, const char *event, const log_field *fields,
                              size_t count);

typedef struct worker_options {
    weir_str application;    /* for the holder's text; empty: "weir" */
    int64_t lost_max;        /* 10 */
    int64_t router_lease_us; /* 3 s */
    int64_t beat_us;       /* how often the store is told that we live: 10 s; lease is 3 times it */
    int64_t payload_bytes; /* largest data or meta of an append */
    bool until_idle_hint;  /* poll without backing off: somebody waits for the end of work */
    worker_log_fn log;     /* may be NULL */
    void *log_ctx;
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
/* Nothing is ready, leased or waiting for a backoff, and everything is routed: as the last poll
 * said, none of it is ours. */
bool weir__worker_out_of_work(worker *w);
metrics *weir__worker_metrics(worker *w);
weir_str weir__worker_name(const worker *w); /* the holder's text */
void weir__worker_close(worker *w);
void weir__worker_abandon(worker *w);

/* PULL: a delivery that waits, or NULL. Owned until weir__worker_settle. */
weir_delivery *weir__worker_next(worker *w);

#endif
