/* runner.h - a command for each claimed row: children beside each other, leases that are kept.
 *
 * What must stay true
 *   (1) A child runs only while its row is held: it is ended before the lease can have ended, by
 *       this machine's boot clock from before the claim or renewal was sent, unless the database
 *       has renewed the lease meanwhile: also when this process is stopped, by the child's
 *       supervisor. A row that is found to be another's ends it at once.
 *   (2) What is written about the outcome is guarded by holder, fence and the values of the claim.
 *       A lost row is told, and not written.
 *   (3) Nothing that was claimed is forgotten: each row ends as done, failed, lost, released, or
 *       left as it is, and `told` hears of each that is not done.
 *   (4) A stop begins nothing more: what was not begun is released; what runs may end within the
 *       budget, and is then ended and released.
 *
 * When this process is killed its children are, by their keeper, and the rows are free when their
 * leases end.
 *
 * THREADS  The caller's supervises: it waits for the end, for the stop, and for leases that run
 * out; it never talks to the database meanwhile. `parallel` threads run children and write
 * outcomes, one at a time, over the session that claimed; one more gives rows back after a stop.
 * One thread renews leases over a session of its own.
 */
#ifndef WEIR_CLAIM_RUNNER_H
#define WEIR_CLAIM_RUNNER_H

#include "claim/claim.h"
#include "engine/child/child.h"

enum { RUNNER_PARALLEL_MAX = 256 };
#define RUNNER_LEASE_US_MIN INT64_C(500000) /* shorter ones cannot be kept */

typedef enum runner_outcome {
    RUNNER_DONE = 0,
    RUNNER_FAILED,   /* the child, or writing its outcome */
    RUNNER_LOST,     /* the lease, while it ran or waited */
    RUNNER_RELEASED, /* because of the stop               */
    RUNNER_OUTCOMES,
} runner_outcome;

/* A row that is not done, and why. On any thread, several at a time. */
typedef void (*runner_told_fn)(void *ctx, const table_result *rows, size_t row,
                               runner_outcome outcome, weir_str why);

/* Everything is borrowed. */
typedef struct runner_options {
    table_db *db;
    child_keeper *keeper;
    const table_info *table;
    const claim_request *request; /* not held */
    const char *command;
    size_t parallel;         /* 0: 1 */
    int64_t deadline_us;     /* of a child; 0: none */
    int64_t budget_us;       /* for children that run, after a stop */
    int stop_fd;             /* readable: stop; read. A second time: at once. -1: none */
    const atomic_bool *stop; /* true: stop, if that was not said before; NULL: none */
    /* What is written; nothing at all: the row stays as it was claimed. */
    claim_writes done, failed, released;
    runner_told_fn told;
    void *told_ctx;
    child_stdout_fn stdout_cb; /* on any thread, several at a time */
    child_stderr_fn stderr_cb;
    void *child_ctx;
} runner_options;

typedef struct runner_tally {
    size_t claimed;
    size_t outcomes[RUNNER_OUTCOMES];
} runner_tally;

/* Claims, and runs. WEIR_OK: *out says what became of the rows; none was free: claimed is 0. Else
 * nothing was run, and as weir__claim_rows. The session is closed and opened again when its
 * connection was lost: *session is then another, or NULL. */
weir_status weir__runner_run(const runner_options *o, table_session **session, runner_tally *out,
                             weir_error *err);

#endif
