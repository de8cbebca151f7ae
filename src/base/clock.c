/* clock.c - the machine's clocks, and one that does not go back. */
#include "base/clock.h"

#include "base/assert.h"

#include <stddef.h>
#include <time.h>

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

const weir_clock *weir__clock_machine(void)
{
    static const weir_clock machine = {
        .wall_us = machine_wall_us,
        .mono_us = machine_mono_us,
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
