/* side_lock.c - the file beside a database: one writer among all processes, and their wake-ups.
 *
 * INVARIANTS
 *   (1) While `held`, the file under `path` is the one we have locked. It is compared after every
 *       locking, because the file may have been removed by an opening that failed, or by a hand.
 *   (2) Two stamps that follow each other differ. Stamps are random and not counted: they are
 *       written after the lock was let go of, so two processes that count would write the same
 *       number.
 *   (3) flock belongs to the open file, not to the process: closing another descriptor of this file
 *       elsewhere in the process does not let go of it, as it would with POSIX record locks.
 */
#include "store/sqlite/side_lock.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_fd(const char *path, int flags)
{
    return weir__file_open(AT_FDCWD, path, flags, 0644);
}

/* Opens or makes the file under side->path; -1 with errno otherwise. */
static int open_or_make(side_lock *side)
{
    side->created = false;
    int fd = open_fd(side->path, O_RDWR);
    if (fd < 0 && errno == ENOENT) {
        fd = open_fd(side->path, O_RDWR | O_CREAT | O_EXCL);
        if (fd >= 0) {
            side->created = true;
            weir__file_match(fd, side->database);
        } else if (errno == EEXIST) {
            fd = open_fd(side->path, O_RDWR); /* someone was faster */
        }
    }
    if (fd < 0 && side->read_only) {
        fd = open_fd(side->path, O_RDONLY);
    }
    return fd;
}

static bool read_identity(side_lock *side)
{
    struct stat st;
    if (fstat(side->fd, &st) != 0) {
        return false;
    }
    side->dev = st.st_dev;
    side->ino = st.st_ino;
    return true;
}

static int judging_flags(const side_lock *side)
{
    return FILE_ONE_NAME | (side->insecure ? FILE_INSECURE : 0);
}

static weir_status side_reopen(side_lock *side, weir_error *err)
{
    if (side->fd >= 0) {
        (void)close(side->fd);
    }
    side->present = false;
    side->fd = open_or_make(side);
    if (side->fd < 0) {
        const int code = errno;
        if (side->read_only && (code == ENOENT || code == EACCES || code == EROFS)) {
            return WEIR_OK; /* nobody can have it, we neither */
        }
        const weir_status status =
            weir__file_open_judge(code, side->path, judging_flags(side), err);
        return status != WEIR_OK ? status
                                 : weir__sqlite_file_fail(err, code, "open side file", side->path);
    }
    const weir_status status = weir__file_judge(side->fd, side->path, judging_flags(side), err);
    if (status != WEIR_OK) {
        (void)close(side->fd);
        side->fd = -1;
        return status;
    }
    if (!read_identity(side)) {
        return weir__sqlite_file_fail(err, errno, "look at side file", side->path);
    }
    return WEIR_OK;
}

weir_status weir__side_open(side_lock *side, const char *database, bool read_only, weir_error *err)
{
    WEIR_ASSERT(side != NULL && database != NULL);
    static const char suffix[] = "-weir";
    const size_t len = strlen(database);

    *side = (side_lock){ .fd = -1, .read_only = read_only, .insecure = side->insecure };
    side->database = weir__strndup(database, len);
    side->path = weir__malloc(len + sizeof suffix);
    if (side->database == NULL || side->path == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the name of the side file");
    }
    memcpy(side->path, database, len);
    memcpy(side->path + len, suffix, sizeof suffix);
    return side_reopen(side, err);
}

void weir__side_close(side_lock *side)
{
    if (side->path != NULL && side->fd >= 0) {
        (void)close(side->fd); /* the last descriptor of this open file: the lock goes with it */
    }
    weir__free(side->path);
    weir__free(side->database);
    *side = (side_lock){ .fd = -1 };
}

/* Whether `path` still names the file that we have open. */
static bool is_current(const side_lock *side)
{
    struct stat st;
    return stat(side->path, &st) == 0 && st.st_dev == side->dev && st.st_ino == side->ino;
}

/* Waits for flock alone. */
static weir_status wait_for_flock(side_lock *side, int64_t deadline_us, weir_error *err)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t started_us = weir__clock_mono(clock);

    for (;;) {
        if (flock(side->fd, LOCK_EX | LOCK_NB) == 0) {
            return WEIR_OK;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return weir__sqlite_file_fail(err, errno, "lock side file", side->path);
        }
        const int64_t now_us = weir__clock_mono(clock);
        if (now_us >= deadline_us) {
            const weir_status status =
                weir__fail(err, WEIR_EBUSY, "store is busy: waited %.1f s for the other writer",
                           (double)(now_us - started_us) / 1e6);
            weir__error_detail(
                err, "Nothing was written. Another process holds the lock on \"%s\".", side->path);
            return status;
        }
        /* In proportion to what was waited already: most transactions of others are short, and a
         * pause that is as long as one of them is a turn missed. Jitter keeps two waiters from
         * trying in step. */
        const int64_t part_us = (now_us - started_us) / SIDE_WAIT_PART;
        const int64_t wait_us = part_us < SIDE_WAIT_US_MIN   ? SIDE_WAIT_US_MIN
                                : part_us < SIDE_WAIT_US_MAX ? part_us
                                                             : SIDE_WAIT_US_MAX;
        const int64_t jittered = wait_us / 2 + (int64_t)(weir__random_u64() % (uint64_t)wait_us);
        const int64_t left_us = deadline_us - now_us;
        weir__clock_pause(jittered < left_us ? jittered : left_us);
    }
}

weir_status weir__side_lock(side_lock *side, int64_t deadline_us, weir_error *err)
{
    WEIR_ASSERT(!side->held);
    while (side->fd >= 0) {
        weir_status status = wait_for_flock(side, deadline_us, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (is_current(side)) {
            side->held = true;
            weir__side_show(side);
            return WEIR_OK;
        }
        status = side_reopen(side, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (!side->read_only) {
        /* An earlier reopening failed (a full disk, say): there may be room by now. */
        const weir_status status = side_reopen(side, err);
        return status != WEIR_OK ? status : weir__side_lock(side, deadline_us, err);
    }
    return WEIR_OK; /* read-only and without a side file */
}

void weir__side_unlock(side_lock *side)
{
    if (side->held) {
        side->held = false;
        const int rc = flock(side->fd, LOCK_UN);
        WEIR_ASSERT(rc == 0);
    }
}

void weir__side_remove(side_lock *side)
{
    WEIR_ASSERT(side->held);
    (void)unlink(side->path);
}

void weir__side_stamp(const side_lock *side)
{
    if (side->fd < 0) {
        return;
    }
    const uint64_t stamp = weir__random_u64();
    if (pwrite(side->fd, &stamp, sizeof stamp, 0) != (ssize_t)sizeof stamp) {
        return; /* a full disk: the watches look once a second anyway */
    }
}

uint64_t weir__side_stamp_read(int fd)
{
    uint64_t stamp = 0;
    if (fd < 0 || pread(fd, &stamp, sizeof stamp, 0) != (ssize_t)sizeof stamp) {
        return 0;
    }
    return stamp;
}
