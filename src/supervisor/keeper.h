/* keeper.h - the process that forks supervisors for a process with threads.
 *
 * A request travels on the keeper's socket: the command's bytes, and four descriptors or five. The
 * fourth is the leash of the supervisor, a socket of which this process has the other end: see
 * supervisor.h for what is said on it. End of file without LEASH_ENDED or LEASH_FAILED: the
 * supervisor was killed, and nobody is left of what was below it. The fifth is what the supervisor
 * holds.
 */
#ifndef WEIR_SUPERVISOR_KEEPER_H
#define WEIR_SUPERVISOR_KEEPER_H

#include "base/memory.h"
#include "weir.h"

#include <stddef.h>

enum {
    CHILD_COMMAND_BYTES_MAX = 64 * 1024,
    CHILD_COUNT_MAX = 1024,          /* programs that one keeper runs at once     */
    CHILD_KILL_US = 2 * 1000 * 1000, /* how long a killed tree may take to be gone */

    KEEPER_FDS = 4,    /* stdin, stdout, stderr, leash: in this order */
    KEEPER_FDS_MAX = 5 /* and what is held, if anything is            */
};

/* The keeper ends with this process, however that ends. Any thread may use it. Open it early, while
 * this process is small: it is a copy of this process, with its directory, environment and limits
 * at that moment. */
typedef struct child_keeper child_keeper;

weir_status weir__child_keeper_open(child_keeper **out, weir_error *err);
/* All calls have returned and all children are closed. NULL is a no-op. */
void weir__child_keeper_close(child_keeper *k);

/* The keeper's whole life, in the process forked for it. */
_Noreturn void weir__keeper_main(int requests_fd);

/* Has the keeper start `command`. fds: the program's ends, which stay the caller's. Starts a new
 * keeper if the old one has died. WEIR_EBUSY: it has too much to do; WEIR_EMISUSE: this is a
 * fork of the process that opened it. */
weir_status weir__keeper_start(child_keeper *k, const char *command, const int *fds,
                               size_t fds_count, weir_error *err);
/* A leash has ended without a word: the keeper may be dying. It closes one descriptor after the
 * other, so its socket may still take a request that nobody will read. Waits until it is dead. */
void weir__keeper_lost(child_keeper *k);

#endif
