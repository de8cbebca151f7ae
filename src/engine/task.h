/* task.h - everything the engine does is a task: something with a step.
 *
 * A step does a bounded piece of work (at most one call into the store, or one call of a handler)
 * and says when it wants to be called again. Nothing in a task sleeps, starts a thread or looks at
 * a clock of its own: who calls the steps, and when, is decided by a scheduler. In a worker that is
 * threads.c, a thread per task; in the simulator it is a loop with a seed. Both drive the same
 * objects.
 *
 * THREADS  A task's step is never run by two threads at once. Wake may be called by any thread,
 * also while the step runs: then it is run once more.
 */
#ifndef WEIR_ENGINE_TASK_H
#define WEIR_ENGINE_TASK_H

#include "base/clock.h"
#include "weir.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct task task;
typedef struct scheduler scheduler;

/* When a step wants to be run again: a reading of the scheduler's monotonic clock, or one of: */
#define TASK_NOW  INT64_C(0)
#define TASK_WAIT INT64_MAX /* not before it is woken */

struct task {
    int64_t (*step)(task *t);
    const char *name;     /* static; for logs and the simulator */
    scheduler *scheduler; /* borrowed; set before the first step */
    void *driver;         /* the scheduler's own; tasks leave it alone */
    /* The step's call of the store waits for one that is away; NULL: not told. Called by the thread
     * that runs the step. */
    void (*away_cb)(task *t, const weir_error *err);
    void *away_ctx; /* borrowed; for away_cb */
};

struct scheduler {
    /* The task's step is to be run as soon as possible. Never blocks. */
    void (*wake)(scheduler *s, task *t);
    /* A random number from the scheduler's own source. */
    uint64_t (*random)(scheduler *s);
    const weir_clock *clock; /* borrowed: the machine's, or the simulator's */
};

static inline void weir__task_wake(task *t)
{
    t->scheduler->wake(t->scheduler, t);
}
static inline int64_t weir__task_now(const task *t)
{
    return weir__clock_mono(t->scheduler->clock);
}
/* The same, of the clock that counts the time in which the machine is suspended: for leases. */
static inline int64_t weir__task_boot(const task *t)
{
    return weir__clock_boottime(t->scheduler->clock);
}

/* A wait that grows: base doubling with each attempt (from 0) up to cap, with full jitter in its
 * upper half. */
int64_t weir__task_backoff_us(task *t, int attempt, int64_t base_us, int64_t cap_us);

#endif
