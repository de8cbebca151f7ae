/* clock.h - the clocks of the machine behind one port, so that tests can move them. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* wall_us: microseconds since 1970, may jump either way. mono_us: never goes back, no meaning but
 * differences; stands still while the machine is suspended. boot_us: the same, but goes on then;
 * NULL: as mono_us. boot_id: which start of the machine boot_us counts from, "" when that cannot be
 * known; NULL: there is only one. All may be called from any thread. */
typedef struct weir_clock {
    int64_t (*wall_us)(void *ctx);
    int64_t (*mono_us)(void *ctx);
    int64_t (*boot_us)(void *ctx);
    const char *(*boot_id)(void *ctx);
    void *ctx; /* borrowed */
} weir_clock;

/* The machine's clocks. Static. */
const weir_clock *weir__clock_machine(void);

static inline int64_t weir__clock_wall(const weir_clock *c)
{
    return c->wall_us(c->ctx);
}
static inline int64_t weir__clock_mono(const weir_clock *c)
{
    return c->mono_us(c->ctx);
}
static inline int64_t weir__clock_boottime(const weir_clock *c)
{
    return c->boot_us != NULL ? c->boot_us(c->ctx) : c->mono_us(c->ctx);
}

static inline const char *weir__clock_start(const weir_clock *c)
{
    return c->boot_id != NULL ? c->boot_id(c->ctx) : "the only one";
}

/* time_us + span_us; a span without end leads to the last time there is. */
static inline int64_t weir__time_later(int64_t time_us, int64_t span_us)
{
    int64_t later_us = 0;
    return __builtin_add_overflow(time_us, span_us, &later_us) ? INT64_MAX : later_us;
}

/* Microseconds of CLOCK_BOOTTIME: never goes back, and goes on while the machine sleeps. For what
 * ends by itself elsewhere, such as a lease. Async-signal-safe. */
int64_t weir__clock_boot(void);

/* Sleeps on the machine's clock, for `us` microseconds; for 0 or less not at all. A signal may end
 * it sooner: it is for whoever looks again afterwards. */
void weir__clock_pause(int64_t us);

/* A clock that never goes back and never stands still: wall time, or, while the wall clock is
 * behind what was already seen, that time plus what has passed since. Not thread-safe: the owner
 * locks. Zeroed is ready to use. */
typedef struct weir_steady_clock {
    int64_t high_us;      /* the highest time seen or given */
    int64_t mono_at_high; /* monotonic reading at that moment */
} weir_steady_clock;

/* Takes note of a time that some process has already used (from the store). */
void weir__steady_clock_seen(weir_steady_clock *s, const weir_clock *c, int64_t time_us);
/* Now: at least every time seen or given before. */
int64_t weir__steady_clock_now(weir_steady_clock *s, const weir_clock *c);

/* A clock for how old something is, which the wall clock cannot move: it is set by the wall clock
 * once, and from then on goes as the machine's own clock does, suspends included. */
typedef struct weir_age_clock {
    int64_t at_us;   /* its time at that moment */
    int64_t boot_us; /* boottime at that moment */
} weir_age_clock;

/* The machine's boot_id. Any thread. */
const char *weir__clock_boot_id(void);
/* One that begins now. */
weir_age_clock weir__age_clock_begin(const weir_clock *c);
int64_t weir__age_clock_now(const weir_age_clock *a, const weir_clock *c);

#endif
