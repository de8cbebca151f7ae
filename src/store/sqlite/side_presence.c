/* side_presence.c - who has the store open: a shared lock on one byte of the side file. */
#define _GNU_SOURCE /* F_OFD_SETLK */

#include "store/sqlite/side_lock.h"

#include <fcntl.h>
#include <unistd.h>

/* The byte that every handle has a shared lock on. A lock of the open file (OFD), as flock is: it
 * goes with the descriptor, and other descriptors of the file do not matter. */
static struct flock presence_lock(short type)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = 4096, .l_len = 1 };
}

/* Best effort: where such locks do not exist, the last one to close does not know it, and leaves
 * the WAL as it is. */
void weir__side_show(side_lock *side)
{
    struct flock lock = presence_lock(F_RDLCK);
    side->present = side->present || fcntl(side->fd, F_OFD_SETLK, &lock) == 0;
}

void weir__side_leave(side_lock *side)
{
    struct flock lock = presence_lock(F_UNLCK);
    if (side->present && fcntl(side->fd, F_OFD_SETLK, &lock) == 0) {
        side->present = false;
    }
}

bool weir__side_others(const side_lock *side)
{
    struct flock lock = presence_lock(F_WRLCK);
    return fcntl(side->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}
