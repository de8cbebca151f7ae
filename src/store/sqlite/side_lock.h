/* side_lock.h - the file beside a database: one writer among all processes, and their wake-ups.
 *
 * PATH-weir holds 8 bytes, the stamp, which changes after every commit that may give someone work,
 * and the record of seal.c. Only the holder of an exclusive flock on it writes, checkpoints or
 * recovers PATH. Every handle that is open holds a shared lock on one byte of it, for
 * as long as it is open.
 */
#ifndef WEIR_STORE_SQLITE_SIDE_LOCK_H
#define WEIR_STORE_SQLITE_SIDE_LOCK_H

#include "weir.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SIDE_WAIT_US_MIN = 50,   /* first pause between two tries */
    SIDE_WAIT_US_MAX = 2000, /* and the longest               */
    SIDE_WAIT_PART = 8,      /* of what was waited so far     */
};

/* Belongs to one thread at a time. `fd` -1: not open. */
typedef struct side_lock {
    int fd;
    char *path;     /* owned                                                       */
    char *database; /* owned: whose owner and permissions a new side file gets     */
    dev_t dev;
    ino_t ino;
    bool read_only;
    bool insecure; /* set before opening: see base/file.h */
    bool created;  /* by the opening that gave us fd */
    bool held;
    bool present; /* others see that the store is open here */
} side_lock;

/* Opens PATH-weir, creating it when it is not there. read_only: opened for reading when it cannot
 * be written, and left out (WEIR_OK with fd -1) when it can neither be opened nor made; nothing is
 * locked then. *side must be zeroed except for `insecure`. weir__side_close ends it, also after a
 * failure. */
weir_status weir__side_open(side_lock *side, const char *database, bool read_only, weir_error *err);
void weir__side_close(side_lock *side); /* zeroed or closed is fine; lets go of the lock */

/* Takes the lock, waiting until `deadline_us` of the machine's monotonic clock; tries once at
 * least. A side file that was removed or replaced meanwhile is opened anew: the lock always is on
 * the file that others find under that name. WEIR_EBUSY: no turn in time. */
weir_status weir__side_lock(side_lock *side, int64_t deadline_us, weir_error *err);
void weir__side_unlock(side_lock *side);
/* side_presence.c. A handle shows that it has the store open with its first lock, which does this,
 * and until it is closed, or leaves. */
void weir__side_show(side_lock *side);
void weir__side_leave(side_lock *side);
/* Whether another handle, here or in another process, has the store open. */
bool weir__side_others(const side_lock *side);
/* Removes the file, while the lock is held: for an opening that failed and had made it. */
void weir__side_remove(side_lock *side);

/* Changes the stamp. A failure only costs a wake-up, which is a hint, so it is not reported. */
void weir__side_stamp(const side_lock *side);
/* The stamp of an open side file; 0 when there is none. */
uint64_t weir__side_stamp_read(int fd);

#endif
