/* clock_skew.c - a library to be loaded before others: the time of day is $CLOCK_SKEW_SECONDS off
 * for the process. The monotonic clock is as it was.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t skew(void)
{
    const char *seconds = getenv("CLOCK_SKEW_SECONDS");
    return seconds == NULL ? 0 : (time_t)strtol(seconds, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, out);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        out->tv_sec += skew();
    }
    return code;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    const int code = clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return code;
}

time_t time(time_t *out)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL) {
        *out = t.tv_sec;
    }
    return t.tv_sec;
}
