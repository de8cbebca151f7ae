/* runner_private.h - what the files of the runner share: rows while they are worked on.
 *
 *   WAITING --a worker begins--> RUNNING --child has ended--> SETTLING --written--> SETTLED
 *      |                                                         ^
 *      +---lost, or the stop-------------------------------------+
 *
 * INVARIANTS
 *   (1) One thread changes a row's state at a time: the worker that took it.
 *   (2) A row that is written to is not being renewed, and is not renewed any more.
 */
#ifndef WEIR_CLAIM_RUNNER_PRIVATE_H
#define WEIR_CLAIM_RUNNER_PRIVATE_H

#include "base/thread.h"
#include "claim/runner.h"

enum { RUNNER_WHY_BYTES = 512 };

typedef enum row_state { ROW_WAITING = 0, ROW_RUNNING, ROW_SETTLING, ROW_SETTLED } row_state;

typedef struct runner_row {
    /* immutable once the claim was made */
    size_t index;     /* in the result */
    table_value *key; /* in the arena  */
    bool has_fence;
    int64_t fence;
    weir_str at; /* of the result: when it was claimed; may be empty */
    weir_str json;

    atomic_bool interrupted; /* ends the child; set once, after `lost` or the stop was decided */
    child_lease lease;       /* ends it when held_until_us is near, whatever became of us     */

    /* guarded by the runner's mu */
    row_state state;
    bool renewing;
    bool lost;
    char why[RUNNER_WHY_BYTES]; /* it is lost */
    int64_t held_until_us;      /* of weir__clock_boot; INT64_MAX: there is no lease */
    int64_t renew_at_us;        /* monotonic */
} runner_row;

typedef struct runner {
    /* immutable once the claim was made */
    const runner_options *o;
    table_result rows;
    weir_arena arena;
    runner_row *row;  /* in the arena */
    size_t row_count; /* of these, with their leases */
    size_t count;     /* that there are to work on */
    int wake_fd;      /* readable: something has settled */

    weir_mutex mu;
    weir_cond changed;
    /* guarded by mu */
    bool begun, ended; /* rows are there; nothing is left to do */
    bool stopping;
    size_t next; /* the first that no worker has taken */
    size_t settled;
    runner_tally tally;
    bool session_busy;
    table_session *session; /* whose session_busy it is may use and replace it; may be NULL */
    table_session *renewal; /* the renewing thread's */
} runner;

/* runner_write.c. What was decided about a row, written; tried again while that makes sense and the
 * row is still ours. */
weir_status weir__runner_write(runner *r, runner_row *row, finish_kind kind,
                               const claim_writes *writes, weir_error *err);
/* The request that finishes a row, guarded by all that is known of its claim. */
finish_request weir__runner_finish(const runner *r, const runner_row *row, finish_kind kind);

/* The row is held until then. */
void weir__runner_held_locked(runner *r, runner_row *row, int64_t until_us) WEIR_REQUIRES(r->mu);

/* runner_renew.c. A thread's life; ctx: a runner. */
void *weir__runner_renew(void *ctx);

#endif
