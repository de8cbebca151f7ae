/* child.h - handlers that are programs: one process per event, or one that answers line by line.
 *
 * A program can do nothing worse than fail. Whatever it does (dies, hangs, floods, answers rubbish,
 * leaves processes behind), the call returns by its deadline with a result that says what happened
 * and what the program last wrote to stderr; memory is bounded; and no process of it is left when
 * the call returns, but for the idle program of an open `child`. See supervisor/README.md for who
 * keeps the processes, and for what is done when the worker itself is killed.
 */
#ifndef WEIR_ENGINE_CHILD_H
#define WEIR_ENGINE_CHILD_H

#include "base/memory.h"
#include "supervisor/process.h"
#include "weir.h"

#include <stdint.h>

typedef enum child_kind {
    CHILD_DONE = 1,
    CHILD_RETRY = 2,
    CHILD_PERMANENT = 3,
    CHILD_DEFER = 4,       /* until defer_us                                               */
    CHILD_INTERRUPTED = 5, /* by stop_fd, `interrupted` or `lease`; says nothing about the event */
} child_kind;

/* One event that the program wants appended. */
typedef struct child_append {
    weir_str stream, name; /* not empty                         */
    weir_str data, meta;   /* JSON without white space; empty: left out */
    int32_t expect;        /* WEIR_EXPECT_*                     */
    int64_t version;       /* for WEIR_EXPECT_EXACT, else 0     */
} child_append;

/* Zeroed is ready to use, and used again by the next call. What it points to is its own, until
 * then or until weir__child_result_free. */
typedef struct child_result {
    int32_t kind;     /* child_kind                                                     */
    int64_t defer_us; /* CHILD_DEFER: microseconds since 1970                           */
    weir_str reply;   /* the answer, without white space; empty: none was given. Of a plain
                         call: the last line that is not blank, as it is                */
    weir_str why;     /* all but DONE and DEFER: one line                               */
    weir_str error;   /* `why`, and below it the last of stderr                         */
    bool expired;     /* CHILD_INTERRUPTED: by `lease`, which was not moved in time             */
    int32_t exit_status; /* of weir__child_run, as a shell says it: 128 and the signal; -1: it was
                            ended by us, or is not known                                */
    const child_append *appends; /* CHILD_DONE                                           */
    size_t appends_count;
    weir_arena arena; /* owned: appends and their texts */
    weir_buffer json; /* owned: reply                   */
    weir_buffer text; /* owned: why and error           */
} child_result;

void weir__child_result_free(child_result *r);

/* Runs `command` by /bin/sh for one event: `line`, newline and end of file on stdin. Exit 0 is
 * done, 65 permanent, everything else retry. With exit 0 the last line on stdout that is not blank
 * is taken as the reply when it is a JSON object with a member of a reply; other output is dropped.
 * A plain call is done with exit 0, whatever was printed.
 * Blocks until the deadline at most (and CHILD_KILL_US to see the processes gone). Any thread.
 * WEIR_OK: *out says how it went. Otherwise nothing was run: WEIR_ENOMEM, WEIR_EINVAL (command),
 * WEIR_EBUSY (too many at once), WEIR_EIO (no process or descriptor to be had), WEIR_EMISUSE (in a
 * fork of the process that opened the keeper). */
weir_status weir__child_run(child_keeper *k, const char *command, const child_call *call,
                            child_result *out, weir_error *err);

/* A program that stays: one line in, one line out. Used by one thread at a time. It is started by
 * the first question, and by the next one after it has ended or was killed. */
typedef struct child child;

/* command: copied. k: borrowed, outlives the child. */
weir_status weir__child_open(child **out, child_keeper *k, const char *command, weir_error *err);
/* As weir__child_run, but each line on stdout must be the reply to a question. */
weir_status weir__child_ask(child *c, const child_call *call, child_result *out, weir_error *err);
/* Kills the program and all that descends from it. NULL is a no-op. */
void weir__child_close(child *c);

#endif
