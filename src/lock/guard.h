/* guard.h - the process between `weir lock` and its program: it starts the program, and sees to it
 * that no process of it is left when the lock goes.
 *
 *     weir lock ──socket──> guard ──> program, in a process group of its own
 *        └── connection or locked file, open in the guard as well
 *
 * The guard has the lock's descriptor open and nothing else: when weir lock is killed, however, the
 * lock stays until the guard ends, and the guard ends when the program's group is empty. It is also
 * the one who knows until when the lock is proved to be held; when that time has passed without
 * word from weir lock (it was stopped, or hangs), the program ends all the same. Ending is SIGTERM
 * to the group, and SIGKILL grace_us later.
 *
 * When the guard is killed the program has its parent-death signal, and weir lock, to whom orphans
 * go next, kills the rest of the group.
 */
#ifndef WEIR_LOCK_GUARD_H
#define WEIR_LOCK_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* A program that can be executed without looking for it: between fork and exec nothing is
 * allocated. */
typedef struct guard_program {
    char **paths;  /* where it may be, NULL at the end; tried in this order            */
    char **argv;   /* NULL at the end                                                  */
    char **script; /* "sh", PATH and the arguments: for a file that is neither binary nor #!   */
    char **environment;
} guard_program;

typedef struct guard_start {
    guard_program program;
    int socket_fd;   /* the guard's end                                                */
    int hold_fd;     /* -1: none                                                       */
    int stdout_fd;   /* the program's; -1: as it is                                    */
    bool foreground; /* the program gets the terminal                                  */
    sigset_t mask;   /* of signals, for the program                                    */
    int64_t grace_us;
    int64_t until_us; /* of weir__lock_now_us: so long the lock is held without a word */
} guard_start;

typedef enum guard_word {
    /* to the guard */
    GUARD_UNTIL = 1, /* time_us                                                        */
    GUARD_SIGNAL,    /* number, to the group                                           */
    GUARD_END,       /* it must not go on                                              */
    /* from the guard */
    GUARD_STARTED, /* number: the group                                                */
    GUARD_STOPPED, /* the program was stopped by a signal                              */
    GUARD_EXPIRED, /* time_us has passed: the program is being ended                   */
    GUARD_LEFT,    /* it has ended and left others behind, who are being ended         */
    GUARD_ENDED,   /* nobody of the group is left; number: as of waitpid               */
    GUARD_FAILED,  /* nothing was started; number: errno                               */
} guard_word;

typedef struct guard_message {
    int32_t word; /* guard_word */
    int32_t number;
    int64_t time_us;
} guard_message;

/* The guard's whole life, in the process forked for it. Async-signal-safe. */
_Noreturn void weir__guard_main(const guard_start *start);

#endif
