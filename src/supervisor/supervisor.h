/* supervisor.h - the process above a program: it starts the program, and makes sure that no process
 * of it is left when its owner is gone, or no longer holds what the program runs under. README.md
 * has the drawing, and what cannot be caught.
 *
 * What must stay true
 *   (1) Every process that descends from the program is below the supervisor, its subreaper: those
 *       that called setsid too. The supervisor ends when none is left, and says so before.
 *   (2) The leash is a socket. When its other end is closed, which the kernel does when the owner
 *       dies, however it dies, the whole tree is ended. It is also ended when the latest
 *       deadline has passed: the owner may be stopped, or hang.
 *   (3) What is held (hold_fd) stays open until the tree is gone.
 *   (4) Ending is SIGTERM to all, and SIGKILL grace_us later, again and again; SIGKILL at once when
 *       grace_us is 0.
 *
 * Times are of weir__clock_boot.
 */
#ifndef WEIR_SUPERVISOR_SUPERVISOR_H
#define WEIR_SUPERVISOR_SUPERVISOR_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long a process may outlive its program: the tee of a >(tee log). */
enum { SUPERVISOR_LINGER_US = 250 * 1000 };

/* A program that can be executed without looking for it: between fork and exec nothing is
 * allocated. */
typedef struct supervisor_program {
    char **paths;  /* where it may be, NULL at the end; tried in this order                    */
    char **argv;   /* NULL at the end                                                          */
    char **script; /* "sh", PATH and the arguments: for a file that is neither binary nor #!; NULL:
                      there is no such case                                                    */
    char **environment;
} supervisor_program;

typedef struct supervisor_start {
    supervisor_program program;
    int leash_fd;     /* the supervisor's end                                                  */
    int hold_fd;      /* -1: none                                                              */
    bool hold_passed; /* the program inherits it as well: a locked file                        */
    bool leased;      /* what is held ends by itself: a program that is stopped is ended too   */
    bool terminal;    /* stays in this session, whose terminal the program may use             */
    bool foreground;  /* the program gets the terminal                                         */
    bool clean;       /* the program starts with default signals, else with `mask` and those of
                         this process                                                          */
    int stdio[3];     /* the program's; -1: as it is                                           */
    sigset_t mask;
    int64_t grace_us;
} supervisor_start;

typedef enum leash_word {
    /* to the supervisor */
    LEASH_UNTIL = 1, /* time_us: it is ended then unless a later time is told; INT64_MAX: never */
    LEASH_SIGNAL,    /* number, to the program's group                                         */
    LEASH_END,       /* it must not go on                                                      */
    /* from the supervisor */
    LEASH_STARTED, /* number: the program, and its process group                               */
    LEASH_STOPPED, /* the program was stopped by a signal                                      */
    LEASH_EXPIRED, /* time_us has passed: the tree is being ended                              */
    LEASH_LEFT,    /* the program has ended and left others behind, who are being ended        */
    LEASH_ENDED,   /* nobody is left; number: of the program, as of waitpid                    */
    LEASH_FAILED,  /* nothing was started; number: errno                                       */
} leash_word;

typedef struct leash_message {
    int32_t word; /* leash_word */
    int32_t number;
    int64_t time_us;
} leash_message;

/* Does not block, and does not fail if the other end is gone. */
void weir__leash_tell(int leash_fd, leash_word word, int number, int64_t time_us);

/* The supervisor's whole life, in a process that was forked for it, with one thread and no
 * children. Deadlines that are already on the leash are read before the program is started.
 * Async-signal-safe. */
_Noreturn void weir__supervisor_main(const supervisor_start *start);
/* The same for a process without a keeper: forks the supervisor, and stays to end what it leaves if
 * it is killed. */
_Noreturn void weir__supervisor_main_kept(const supervisor_start *start);

/* For the processes of this module: standard files become /dev/null, and all others are closed
 * except `kept` (-1: none). */
void weir__supervisor_close_others(const int *kept, size_t kept_count);
/* Sets every signal to its default. */
void weir__supervisor_signals_default(void);

#endif
