/* run.h - a program that runs while something is held: a lock, or a key of once.
 *
 * What must stay true
 *   (1) When the call returns, no process of the program is left, nor any that descends from it.
 *       What is held is not released before (supervisor.h says what happens if this process is
 *       killed).
 *   (2) The program runs only while it is known that what it runs under is held: the last proof is
 *       not older than check_us. After that it is sent SIGTERM, and SIGKILL grace_us later.
 *   (3) The program has this process's standard files, terminal, environment and signals, and its
 *       exit status is passed on as a shell would.
 *
 * For processes with one thread that do nothing else meanwhile: signals are blocked, and passed on
 * to the program.
 */
#ifndef WEIR_SUPERVISOR_RUN_H
#define WEIR_SUPERVISOR_RUN_H

#include "base/memory.h"
#include "weir.h"

#include <stdbool.h>
#include <stdint.h>

/* What is held. Times are of weir__clock_boot. */
typedef struct run_watch {
    void *ctx;
    int (*poll_fd)(void *ctx); /* readable: look; -1: none */
    int64_t (*due_us)(void *ctx);
    /* As weir__lock_watch; prove: as weir__lock_prove. */
    weir_status (*look)(void *ctx, bool prove, int64_t *known_us, weir_error *err);
} run_watch;

typedef struct run_request {
    char *const *argv; /* NULL at the end; borrowed */
    int64_t fence;     /* WEIR_FENCE; 0: not set */
    int64_t check_us, grace_us;
    int hold_fd;      /* -1: none */
    bool hold_passed; /* the program inherits it too: it is held as long as any process has it */
    bool leased;      /* what is held ends by itself, even while the program is stopped */
    run_watch watch;
    /* 0: stdout is the program's own. Else a pipe, closed when nobody reads ours any more. */
    size_t capture_bytes_max;
} run_request;

typedef struct run_outcome {
    int exit_status;  /* 0 to 255: as a shell would say it */
    int start_errno;  /* not 0: it was not started, and why */
    bool lost;        /* it was ended because what it ran under was lost; `why` says how */
    bool left_behind; /* it left processes behind, which were ended */
    bool cut;         /* not all of its output was kept: it was too much, or nobody read ours */
    bool orphaned;    /* EIO, and processes of it may be left */
    weir_error why;
    weir_buffer output;  /* owned: what was captured */
    weir_buffer pending; /* owned: captured and not yet passed on */
} run_outcome;

/* WEIR_OK: *out says how it went. Otherwise nothing ran, or its supervisor was killed (EIO). */
weir_status weir__run(const run_request *q, run_outcome *out, weir_error *err);
/* Passes on what is left. Blocks for as long as the reader of stdout takes. */
void weir__run_flush(run_outcome *out);
void weir__run_outcome_free(run_outcome *out); /* zeroed is fine */

#endif
