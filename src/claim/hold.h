/* hold.h - a command for one row that is locked in a transaction meanwhile.
 *
 * What must stay true
 *   (1) The row is locked before the command begins, over a connection of this process, and until
 *       it has ended. Exit 0 commits; anything else, and any death of this process, rolls back: the
 *       row is then as if nothing had happened.
 *   (2) What the command wants written it prints last: {"set":{"amount":5}} is written to its row
 *       in the same transaction, or nothing is committed: also when it cannot be read, or names a
 *       column twice, or one that `done` writes. It must not write the row itself: that would wait
 *       for the transaction that waits for it. A command of which a process is found waiting so, on
 *       PostgreSQL, is ended with an error that says this. On SQLite its own busy timeout ends it.
 *   (3) When the transaction's connection is lost, the command is ended.
 *   (4) On PostgreSQL the row stays locked until no process of the command is left, even if this
 *       process is killed: the command's supervisor keeps the connection open. SQLite's lock
 *       belongs to this process and goes with it, an instant before the command does.
 *
 * THREADS  A hold belongs to one thread at a time. It has a second thread and a second connection
 * while a command runs on PostgreSQL.
 */
#ifndef WEIR_CLAIM_HOLD_H
#define WEIR_CLAIM_HOLD_H

#include "claim/claim.h"
#include "claim/runner.h"
#include "engine/child/child.h"

typedef struct hold hold;

/* Everything is borrowed until weir__hold_close. */
typedef struct hold_options {
    table_db *db;
    child_keeper *keeper;
    const table_info *table;
    const char *command;
    int64_t deadline_us;            /* 0: none                                       */
    claim_writes done;              /* written as well when the command has succeeded */
    const atomic_bool *interrupted; /* true: end the command and roll back           */
    /* The row is locked, and its command not begun. false: it is not wanted after all, and is let
     * go. NULL: every row is wanted. */
    bool (*locked_cb)(void *ctx, const table_result *rows);
    child_stdout_fn stdout_cb; /* what it prints, but for the {"set":...} at the end */
    child_stderr_fn stderr_cb;
    void *child_ctx; /* for these three */
} hold_options;

typedef enum hold_outcome {
    HOLD_NOTHING = 0, /* there was no row                  */
    HOLD_DONE,        /* committed                         */
    HOLD_FAILED,      /* rolled back, or the commit failed */
    HOLD_STOPPED,     /* rolled back, because of `interrupted` */
    HOLD_UNWANTED,    /* let go, because locked_cb said so */
} hold_outcome;

/* Zero at first. What it points to is its own until the next run or weir__hold_result_free. */
typedef struct hold_result {
    hold_outcome outcome;
    table_result rows;   /* one, as it was before */
    int32_t exit_status; /* as child_result has it */
    bool lost;           /* FAILED: the connection that held the row was lost; nothing is written */
    weir_str why;        /* FAILED, STOPPED: one line */
    weir_buffer text;
} hold_result;

weir_status weir__hold_open(hold **out, const hold_options *o, weir_error *err);
/* request: with `hold`; its limit is taken as 1. WEIR_OK: *out says how it went. Else nothing was
 * run, and nothing was written: as weir__claim_rows. */
weir_status weir__hold_run(hold *h, const claim_request *request, hold_result *out,
                           weir_error *err);
void weir__hold_close(hold *h); /* NULL is a no-op */
void weir__hold_result_free(hold_result *r);

#endif
