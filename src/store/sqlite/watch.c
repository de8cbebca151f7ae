/* watch.c - waiting for the commits of all processes.
 *
 * A watch compares the stamp in the side file with the one it has seen; inotify only says when to
 * look. The stamp is written after COMMIT has returned, so whoever is woken finds the commit.
 * (Watching the WAL instead would wake before that.)
 *
 * INVARIANTS
 *   (1) `seen` is the stamp of the last wake-up that was reported: one between two waits is not
 *       lost.
 *   (2) The notifications are taken before the stamp is read, so that one that comes later makes
 *       the descriptor readable again.
 *
 * A store without a side file (a medium that cannot be written) never changes: its watch never
 * wakes.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "store/sqlite/sqlite_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000, /* the longest sleep between two looks: a notification may have got lost */
};

struct store_watch {
    char *path;  /* owned: the side file    */
    int fd;      /* of the side file, or -1 */
    int inotify; /* non-blocking            */
    int item;    /* what inotify watches; -1: nothing */
    ino_t ino;
    uint64_t seen;
};

/* Opens the side file that is there now, and watches that one. */
static void watch_attach(store_watch *watch)
{
    struct stat st;
    if (watch->item >= 0) {
        (void)inotify_rm_watch(watch->inotify, watch->item);
    }
    if (watch->fd >= 0) {
        (void)close(watch->fd);
    }
    watch->item = -1;
    watch->fd = weir__file_open(AT_FDCWD, watch->path, O_RDONLY, 0);
    if (watch->fd >= 0 && fstat(watch->fd, &st) == 0) {
        watch->ino = st.st_ino;
        watch->item = inotify_add_watch(watch->inotify, watch->path, IN_MODIFY | IN_DONT_FOLLOW);
    }
}

/* A side file that was removed gets a successor with the next write. */
static void watch_follow(store_watch *watch)
{
    struct stat st;
    if (stat(watch->path, &st) == 0 && (watch->fd < 0 || st.st_ino != watch->ino)) {
        watch_attach(watch);
    }
}

weir_status weir__sqlite_watch_open(weir_store *base, store_watch **out, weir_error *err)
{
    const sqlite_store *s = sqlite_of(base);
    store_watch *watch = weir__calloc(1, sizeof *watch);
    if (watch == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a watch");
    }
    weir_status status = WEIR_OK;
    weir_buffer name = { 0 };
    watch->fd = -1;
    watch->item = -1;
    watch->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->inotify < 0) {
        status = weir__sqlite_file_fail(err, errno, "watch", s->given);
        weir__error_detail(err, "The number of inotify instances of a user is limited: see "
                                "fs.inotify.max_user_instances.");
        goto out;
    }
    if (!weir__buffer_add_text(&name, s->path) || !weir__buffer_add(&name, "-weir", 6)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a watch");
        goto out;
    }
    watch->path = name.ptr; /* moved */
    name = (weir_buffer){ 0 };
    watch_attach(watch);
    watch->seen = weir__side_stamp_read(watch->fd);
    *out = watch;
    watch = NULL;
out:
    weir__buffer_free(&name);
    weir__sqlite_watch_close(watch);
    return status;
}

/* Whether the stamp has changed since the last time it was reported. */
static bool watch_look(store_watch *watch)
{
    char notifications[4096];
    while (read(watch->inotify, notifications, sizeof notifications) > 0) {
        /* which one does not matter */
    }
    const uint64_t stamp = weir__side_stamp_read(watch->fd);
    if (stamp == watch->seen) {
        return false;
    }
    watch->seen = stamp;
    return true;
}

weir_status weir__sqlite_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                    weir_error *err)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t deadline_us = weir__clock_mono(clock) + (int64_t)timeout_ms * 1000;

    for (;;) {
        if (watch_look(watch)) {
            *woken = true;
            return WEIR_OK;
        }
        int64_t left_ms = LOOK_MS;
        if (timeout_ms >= 0) {
            left_ms = (deadline_us - weir__clock_mono(clock) + 999) / 1000;
            if (left_ms <= 0) {
                watch_follow(watch); /* also for callers that poll the descriptor themselves */
                *woken = false;
                return WEIR_OK;
            }
        }
        struct pollfd item = { .fd = watch->inotify, .events = POLLIN };
        const int rc = poll(&item, 1, (int)(left_ms < LOOK_MS ? left_ms : LOOK_MS));
        if (rc < 0 && errno != EINTR) {
            return weir__sqlite_file_fail(err, errno, "wait for", watch->path);
        }
        if (rc == 0) {
            watch_follow(watch);
        }
    }
}

int weir__sqlite_watch_fd(store_watch *watch)
{
    return watch->inotify;
}

void weir__sqlite_watch_close(store_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    if (watch->inotify >= 0) {
        (void)close(watch->inotify);
    }
    if (watch->fd >= 0) {
        (void)close(watch->fd);
    }
    weir__free(watch->path);
    weir__free(watch);
}
