/* clock.c - the machine's clocks, and one that does not go back. */
#include "base/clock.h"

#include "base/assert.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_us(clockid_t id)
{
    struct timespec now;
    const int rc = clock_gettime(id, &now);
    WEIR_ASSERT(rc == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t machine_wall_us(void *ctx)
{
    (void)ctx;
    return read_us(CLOCK_REALTIME);
}

static int64_t machine_mono_us(void *ctx)
{
    (void)ctx;
    return read_us(CLOCK_MONOTONIC);
}

int64_t weir__clock_boot(void)
{
    return read_us(CLOCK_BOOTTIME);
}

static int64_t machine_boot_us(void *ctx)
{
    (void)ctx;
    return weir__clock_boot();
}

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static char boot_id[64]; /* written once */

static void boot_read(void)
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, boot_id, sizeof boot_id - 1);
    boot_id[got > 0 ? (size_t)got : 0] = '\0';
    boot_id[strcspn(boot_id, "\n")] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
}

const char *weir__clock_boot_id(void)
{
    (void)pthread_once(&boot_once, boot_read);
    return boot_id;
}

static const char *machine_boot_id(void *ctx)
{
    (void)ctx;
    return weir__clock_boot_id();
}

const weir_clock *weir__clock_machine(void)
{
    static const weir_clock machine = {
        .wall_us = machine_wall_us,
        .mono_us = machine_mono_us,
        .boot_us = machine_boot_us,
        .boot_id = machine_boot_id,
        .ctx = NULL,
    };
    return &machine;
}

void weir__clock_pause(int64_t us)
{
    const struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };
    if (us > 0) {
        (void)nanosleep(&t, NULL);
    }
}

void weir__steady_clock_seen(weir_steady_clock *s, const weir_clock *c, int64_t time_us)
{
    if (time_us > s->high_us) {
        s->high_us = time_us;
        s->mono_at_high = weir__clock_mono(c);
    }
}

int64_t weir__steady_clock_now(weir_steady_clock *s, const weir_clock *c)
{
    const int64_t wall = weir__clock_wall(c);
    const int64_t mono = weir__clock_mono(c);
    int64_t now = wall;

    if (wall <= s->high_us) {
        const int64_t passed = mono > s->mono_at_high ? mono - s->mono_at_high : 0;
        /* A store can hold a time that makes no sense; it must not make this one wrap around. */
        if (__builtin_add_overflow(s->high_us, passed, &now)) {
            now = INT64_MAX;
        }
    }
    s->high_us = now;
    s->mono_at_high = mono;
    return now;
}

weir_age_clock weir__age_clock_begin(const weir_clock *c)
{
    return (weir_age_clock){ .at_us = weir__clock_wall(c), .boot_us = weir__clock_boottime(c) };
}

int64_t weir__age_clock_now(const weir_age_clock *a, const weir_clock *c)
{
    const int64_t boot_us = weir__clock_boottime(c);
    const int64_t passed = boot_us > a->boot_us ? boot_us - a->boot_us : 0;
    int64_t now = 0;

    return __builtin_add_overflow(a->at_us, passed, &now) ? INT64_MAX : now;
}
