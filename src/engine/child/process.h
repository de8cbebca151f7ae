/* process.h - one program that runs: its three streams and its leash, read and written together.
 *
 * Whatever the program writes, at most two lines of CHILD_LINE_BYTES_MAX and the last of stderr are
 * kept. Nothing here waits longer than it was told to.
 */
#ifndef WEIR_ENGINE_CHILD_PROCESS_H
#define WEIR_ENGINE_CHILD_PROCESS_H

#include "engine/child/keeper.h"

#include <sys/types.h>

enum { PROCESS_CHUNK_BYTES = 32 * 1024 };

typedef struct process {
    child_keeper *keeper;               /* borrowed                                        */
    int stdin_fd, stdout_fd, stderr_fd; /* owned; -1: closed                               */
    int leash_fd;                       /* owned; -1: over                                 */

    bool over; /* no process of its group is left; `note` says how it ended          */
    bool lost; /* over, but nobody can say how: its keeper has died                  */
    leash_note note;
    pid_t group; /* of processes; 0: not known (yet). Meaningless once it is over     */

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

/* Blocks shortly. *out: owned by the caller. */
weir_status weir__process_start(process **out, child_keeper *k, const char *command,
                                weir_error *err);
/* Forgets what came before a question: its lines and its stderr. */
void weir__process_question(process *p, bool stdin_keep);
/* Whether nothing of the question is left to be written. */
bool weir__process_was_given(const process *p, const child_call *call);
/* Waits for the program to do something, and takes or gives it some. call->deadline_mono_us,
 * stop_fd and interrupted bound the wait. */
process_turn weir__process_turn(process *p, const child_call *call);
/* Takes what has been written until now, without waiting. */
void weir__process_drain(process *p, const child_call *call);
/* Sees whether it is over, without waiting. What it wrote until then is taken. */
void weir__process_look(process *p, const child_call *call);
/* Kills the group if it is not over, and waits until it is gone, CHILD_KILL_US at most. */
void weir__process_end(process *p, const child_call *call);
/* As end, without a question. NULL is a no-op. */
void weir__process_free(process *p);

#endif
