/* child.h - handlers that are programs: one process per event, or one that answers line by line.
 *
 * A program can do nothing worse than fail. Whatever it does (dies, hangs, floods, answers rubbish,
 * leaves processes behind), the call returns by its deadline with a result that says what happened
 * and what the program last wrote to stderr; memory is bounded; and no process of it is left when
 * the call returns, but for the idle program of an open `child`. See README.md for who keeps the
 * processes, and for what is done when the worker itself is killed.
 */
#ifndef WEIR_ENGINE_CHILD_H
#define WEIR_ENGINE_CHILD_H

#include "base/memory.h"
#include "weir.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CHILD_LINE_BYTES_MAX = 4 * 1024 * 1024, /* of one line on stdout, without its newline */
    CHILD_STDERR_BYTES_MAX = 4096,          /* kept of stderr: the last of it             */
    CHILD_COMMAND_BYTES_MAX = 64 * 1024,
    CHILD_COUNT_MAX = 1024,          /* programs that one keeper runs at once      */
    CHILD_LINGER_US = 250 * 1000,    /* for what outlives its program, see README  */
    CHILD_KILL_US = 2 * 1000 * 1000, /* how long a killed group may take to be gone */
};

/* The process that starts programs and ends them; it ends with this one, however this one ends. Any
 * thread may use it. Opened early, while this process is small: it is a copy of it, with the
 * directory, the environment and the limits of that moment. */
typedef struct child_keeper child_keeper;

weir_status weir__child_keeper_open(child_keeper **out, weir_error *err);
/* All calls have returned and all children are closed. NULL is a no-op. */
void weir__child_keeper_close(child_keeper *k);

/* A whole line that the program wrote to stderr, without its newline; longer ones come in pieces of
 * CHILD_STDERR_BYTES_MAX. Borrowed for the call. On the thread that runs or asks. */
typedef void (*child_stderr_fn)(void *ctx, weir_str line);

/* A whole line that the program wrote to stdout, without its newline, blank ones too. The same. */
typedef void (*child_stdout_fn)(void *ctx, weir_str line);

/* The program runs, and this is its process group. The same. */
typedef void (*child_started_fn)(void *ctx, pid_t group);

/* One question. Everything is borrowed until the call returns. */
typedef struct child_call {
    weir_str line;                  /* one JSON text without newline: what stdin gets     */
    int64_t deadline_mono_us;       /* of the machine's monotonic clock                   */
    int stop_fd;                    /* readable: end now. 0: none                         */
    const atomic_bool *interrupted; /* true: end now; looked at every 50 ms. NULL: none   */
    child_stderr_fn stderr_cb;      /* NULL: what goes to stderr is only kept for `error` */
    void *stderr_ctx;
    child_stdout_fn stdout_cb; /* NULL: only the last line is kept */
    void *stdout_ctx;
    child_started_fn started_cb; /* NULL: nobody asks; weir__child_run alone */
    void *started_ctx;
    bool plain; /* weir__child_run: what it prints is no reply, and 65 is a failure like others */
} child_call;

typedef enum child_kind {
    CHILD_DONE = 1,
    CHILD_RETRY = 2,
    CHILD_PERMANENT = 3,
    CHILD_DEFER = 4,       /* until defer_us                                               */
    CHILD_INTERRUPTED = 5, /* by stop_fd or `interrupted`; says nothing about the event    */
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
    int32_t kind;        /* child_kind                                                     */
    int64_t defer_us;    /* CHILD_DEFER: microseconds since 1970                           */
    weir_str reply;      /* the answer, without white space; empty: none was given. Of a plain
                         call: the last line that is not blank, as it is                */
    weir_str why;        /* all but DONE and DEFER: one line                               */
    weir_str error;      /* `why`, and below it the last of stderr                         */
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
/* Kills the program and all of its process group. NULL is a no-op. */
void weir__child_close(child *c);

#endif
