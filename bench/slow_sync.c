/* slow_sync.c - a preloaded fdatasync that takes a fixed time. See simulated.py.
 *
 *     WEIR_SYNC_US=150 LD_PRELOAD=libslow_sync.so PROGRAM
 *
 * It sleeps and syncs nothing: the files are on tmpfs. Commits of PostgreSQL and of SQLite call it;
 * checkpoints of PostgreSQL call fsync, which is left alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd)
{
    const char *text = getenv("WEIR_SYNC_US");
    const long us = text == NULL ? 0 : strtol(text, NULL, 10);
    (void)fd;
    (void)prctl(PR_SET_TIMERSLACK, 1); /* otherwise a sleep takes 50 us longer */
    struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) {
    }
    return 0;
}
