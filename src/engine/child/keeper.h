/* keeper.h - what the keeper and the process that opened it say to each other.
 *
 * A request travels on the keeper's socket: the command's bytes, and four descriptors. The last is
 * the program's leash, a socket of which this process has the other end:
 *   - The program's process group lives as long as the leash: when this end is shut down or closed,
 *     which the kernel does when this process dies, the keeper kills the group.
 *   - Two leash_notes come back on it: one with the group's number when the program was started,
 *     and one when no process of the group is left. When nothing could be started only the second
 *     comes. End of file without it: the keeper is dead, and the program with it.
 */
#ifndef WEIR_ENGINE_CHILD_KEEPER_H
#define WEIR_ENGINE_CHILD_KEEPER_H

#include "engine/child/child.h"

enum { KEEPER_FDS = 4 }; /* stdin, stdout, stderr, leash: in this order */

typedef struct leash_note {
    int32_t group;       /* not 0: the program was started, and nothing else yet */
    int32_t start_errno; /* not 0: the program was not started, and why      */
    int32_t wait_status; /* as of waitpid                                    */
    int32_t left_behind; /* 1: others of the group outlived it and were killed */
} leash_note;

/* The keeper's whole life, in the process forked for it. */
_Noreturn void weir__keeper_main(int requests_fd);

/* Has the keeper start `command`; its ends of the descriptors, which stay the caller's. Starts a
 * new keeper when the old one has died. */
weir_status weir__keeper_start(child_keeper *k, const char *command, const int fds[KEEPER_FDS],
                               weir_error *err);
/* A leash has ended without a note. A keeper that dies lets go of one descriptor after the other,
 * so that its socket may still take a request that nobody will read: waits until it is dead. */
void weir__keeper_lost(child_keeper *k);

#endif
