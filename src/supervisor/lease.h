/* lease.h - until when a program may run: its supervisor is told, and ends it then by itself.
 *
 * One thread holds something that expires (a claimed row, a target of the engine) and moves the end
 * with every renewal; another thread runs the program. If the holder is stopped or hangs, nobody
 * moves the end, and the program is still ended in time.
 *
 * THREADS  Any. `mu` is a leaf lock, held over a send that does not block.
 */
#ifndef WEIR_SUPERVISOR_LEASE_H
#define WEIR_SUPERVISOR_LEASE_H

#include "base/thread.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct child_lease {
    weir_mutex mu;
    /* guarded by mu */
    int64_t until_us; /* of weir__clock_boot; INT64_MAX: no end */
    int leash_fd;     /* borrowed from the program that runs; -1: none does */
} child_lease;

/* A lease without an end. false: out of memory. */
bool weir__child_lease_init(child_lease *l);
void weir__child_lease_destroy(child_lease *l); /* no call uses it any more */

/* The program, if one runs, is killed at until_us of weir__clock_boot, unless a later time is set
 * before that. The caller has already subtracted the time that killing may take. */
void weir__child_lease_set(child_lease *l, int64_t until_us);
/* Whether that time has passed. */
bool weir__child_lease_has_ended(child_lease *l);

/* For process.c. Attaching tells the end on the leash of the program that starts. Detaching says
 * there that it has no end any more: the program no longer runs under this lease. */
void weir__child_lease_attach(child_lease *l, int leash_fd);
void weir__child_lease_detach(child_lease *l);

#endif
