/* process.h - one program that runs: its three streams and its leash, read and written together.
 *
 * Whatever the program writes, at most two lines of CHILD_LINE_BYTES_MAX and the last of stderr are
 * kept. Nothing here waits longer than it was told to.
 */
#ifndef WEIR_SUPERVISOR_PROCESS_H
#define WEIR_SUPERVISOR_PROCESS_H

#include "base/memory.h"
#include "supervisor/keeper.h"
#include "supervisor/lease.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CHILD_LINE_BYTES_MAX = 4 * 1024 * 1024, /* of one line on stdout, without its newline */
    CHILD_STDERR_BYTES_MAX = 4096,          /* kept of stderr: the last of it             */
    PROCESS_CHUNK_BYTES = 32 * 1024,
};

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
    child_lease *lease;             /* what it runs under; NULL: nothing that ends. One call at a
                                       time may use it                                    */
    int hold_fd;                    /* stays open until no process of it is left, even if this one
                                       is killed before. 0: none; only for weir__child_run */
    child_stderr_fn stderr_cb;      /* NULL: what goes to stderr is only kept for `error` */
    void *stderr_ctx;
    child_stdout_fn stdout_cb; /* NULL: only the last line is kept */
    void *stdout_ctx;
    child_started_fn started_cb; /* may be NULL; only for weir__child_run */
    void *started_ctx;
    bool plain; /* weir__child_run: what it prints is no reply, and 65 is a failure like others */
} child_call;

typedef struct process {
    child_keeper *keeper;               /* borrowed                                        */
    int stdin_fd, stdout_fd, stderr_fd; /* owned; -1: closed                               */
    int leash_fd;                       /* owned; -1: over                                 */

    child_lease *lease; /* of the question; NULL: none                                     */

    bool over;        /* no process of it is left; the rest says how it ended              */
    bool lost;        /* over, but it is not known how: its supervisor was killed          */
    bool left_behind; /* others outlived it and were killed                                */
    bool expired;     /* it was ended because its lease was not moved in time              */
    int start_errno;  /* not 0: it was not started, and why                                */
    int wait_status;  /* as of waitpid                                                     */
    pid_t group;      /* of processes; 0: not known (yet). Meaningless once it is over     */

    size_t written;     /* of the question                                                 */
    bool stdin_keep;    /* more questions will follow                                      */
    weir_buffer line;   /* owned: the line that is being written to stdout                 */
    weir_buffer last;   /* owned: the last whole line that was not blank                   */
    size_t lines_count; /* whole lines since the question, blank ones too                  */
    bool flooded;       /* a line over CHILD_LINE_BYTES_MAX                                */
    bool no_memory;

    char tail[CHILD_STDERR_BYTES_MAX]; /* the last of stderr */
    size_t tail_len;
    bool tail_cut; /* there was more before it */
    char stderr_line[CHILD_STDERR_BYTES_MAX];
    size_t stderr_line_len;
    char chunk[PROCESS_CHUNK_BYTES];
} process;

typedef enum process_turn {
    PROCESS_GO_ON,
    PROCESS_TIMED_OUT, /* the deadline of the call has passed */
    PROCESS_STOPPED,   /* by stop_fd or `interrupted`         */
} process_turn;

/* For a first question. Blocks shortly. *out: owned by the caller. */
weir_status weir__process_start(process **out, child_keeper *k, const char *command,
                                const child_call *call, weir_error *err);
/* Forgets what came before a question: its lines and its stderr. */
void weir__process_question(process *p, bool stdin_keep);
/* From now on it runs under this lease; NULL: under none. The lease before is detached. */
void weir__process_lease(process *p, child_lease *lease);
/* Whether nothing of the question is left to be written. */
bool weir__process_was_given(const process *p, const child_call *call);
/* Waits for the program to do something, and takes or gives it some. call->deadline_mono_us,
 * stop_fd and interrupted bound the wait. */
process_turn weir__process_turn(process *p, const child_call *call);
/* Takes what has been written until now, without waiting. */
void weir__process_drain(process *p, const child_call *call);
/* Sees whether it is over, without waiting. What it wrote until then is taken. */
void weir__process_look(process *p, const child_call *call);
/* Kills all of it if it is not over, and waits until it is gone, CHILD_KILL_US at most. */
void weir__process_end(process *p, const child_call *call);
/* As end, without a question. NULL is a no-op. */
void weir__process_free(process *p);

#endif
