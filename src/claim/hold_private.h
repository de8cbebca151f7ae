/* hold_private.h - what the files of hold share: looking out for a command that waits for its own
 * row, and what a command wants written. */
#ifndef WEIR_CLAIM_HOLD_PRIVATE_H
#define WEIR_CLAIM_HOLD_PRIVATE_H

#include "base/thread.h"
#include "claim/hold.h"

/* ---- hold_watch.c ---------------------------------------------------------------------------- */

enum { HOLD_NAME_BYTES = 64, HOLD_WHY_BYTES = 512 };

/* A thread that looks every 200 ms, from begin to end, over a connection of its own. */
typedef struct hold_watch {
    /* immutable while it watches */
    table_db *db;
    int64_t holder;             /* the backend that holds the row */
    char name[HOLD_NAME_BYTES]; /* that the command's connections have in theirs */
    int end_fd;                 /* owned: readable when the command is to be ended */
    pthread_t thread;
    bool watches;

    table_session *session; /* the thread's; owned */
    atomic_int group;       /* of the command's processes; 0: it has not begun */

    weir_mutex mu;
    weir_cond changed;
    /* guarded by mu */
    bool stop;
    char why[HOLD_WHY_BYTES]; /* the command is ended; empty: it is not */
    bool lost;                /* ... because the row is no longer held */
} hold_watch;

weir_status weir__hold_watch_open(hold_watch *w, table_db *db, weir_error *err);
void weir__hold_watch_close(hold_watch *w); /* opened or zeroed */
/* s: where the row is held. On anything but PostgreSQL nothing is watched. */
weir_status weir__hold_watch_begin(hold_watch *w, table_session *s, weir_error *err);
/* Whether the command was ended, and then w->why says why. */
bool weir__hold_watch_end(hold_watch *w);
/* After a command that did not succeed is gone, and before its row is let go: ends statements that
 * it has left waiting. */
void weir__hold_watch_sweep(hold_watch *w);

/* ---- hold_write.c ---------------------------------------------------------------------------- */

/* Whether a line is meant as {"set":...}, what is to be written: a JSON object with that member, or
 * anything that begins so. What of this cannot be written is an error, never output: a write that
 * is dropped without a word would be committed as done. Other lines are output like any. */
bool weir__hold_is_set(weir_str line);
/* Writes what the command wants (a line that is_set, or an empty one) and `done` to the row with
 * the key of rows' first, in the transaction of the session. EINVAL: what is wrong with the
 * line. */
weir_status weir__hold_write(table_session *s, const hold_options *o, const table_result *rows,
                             weir_str line, weir_error *err);

#endif
