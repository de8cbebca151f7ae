/* clock_skew.c - a library to be loaded before others: for the process the time of day is
 * $CLOCK_SKEW_SECONDS off, or always $CLOCK_STANDS_AT (seconds since 1970), and the machine is
 * called $CLOCK_HOST. What is not set is as it was, and so is the monotonic clock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static time_t seconds_of(const char *name)
{
    const char *seconds = getenv(name);
    return seconds == NULL ? 0 : (time_t)strtol(seconds, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, out);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        const time_t still = seconds_of("CLOCK_STANDS_AT");
        *out = still != 0 ? (struct timespec){ .tv_sec = still } : *out;
        out->tv_sec += seconds_of("CLOCK_SKEW_SECONDS");
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

int gethostname(char *name, size_t len)
{
    const char *host = getenv("CLOCK_HOST");
    struct utsname machine;
    if (host == NULL) {
        host = uname(&machine) == 0 ? machine.nodename : "";
    }
    const size_t bytes = strlen(host) + 1;
    memcpy(name, host, bytes < len ? bytes : len);
    return 0;
}
