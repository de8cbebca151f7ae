/* metrics.h - counters and histograms of a worker, behind one interface. Any thread; lock-free. */
#ifndef WEIR_ENGINE_METRICS_H
#define WEIR_ENGINE_METRICS_H

#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum metric_counter {
    METRIC_ROUTED,       /* events looked at by the router     */
    METRIC_MARKS,        /* marks written                      */
    METRIC_ROUTE_PARKED, /* events whose target was not found  */
    METRIC_LEASED,       /* targets                            */
    METRIC_HANDLED,      /* events whose handler succeeded     */
    METRIC_FAILED,       /* events whose handler failed        */
    METRIC_SETTLED,      /* settles that were committed        */
    METRIC_RERUN,        /* settles that lost a race           */
    METRIC_LOST,         /* leases found to be another's       */
    METRIC_DEFERRED,
    METRIC_BLOCKED,
    METRIC_PARKED,
    METRIC_RELEASED,     /* handed back, not started           */
    METRIC_STORE_ERRORS, /* calls that failed because the store was away or busy */
    METRIC_COUNTERS,
} metric_counter;

typedef enum metric_histogram {
    METRIC_LEASE_US,
    METRIC_SETTLE_US,
    METRIC_HANDLER_US,
    METRIC_DELAY_US, /* from the event's commit (created) to its handler */
    METRIC_HISTOGRAMS,
} metric_histogram;

enum { METRIC_BUCKETS = 28 }; /* powers of two of a microsecond; the last: everything above */

typedef struct metrics {
    _Atomic uint64_t counters[METRIC_COUNTERS];
    struct {
        _Atomic uint64_t buckets[METRIC_BUCKETS];
        _Atomic uint64_t sum_us;
    } histograms[METRIC_HISTOGRAMS];
} metrics;

static inline void weir__metric_add(metrics *m, metric_counter c, uint64_t n)
{
    atomic_fetch_add_explicit(&m->counters[c], n, memory_order_relaxed);
}
void weir__metric_observe(metrics *m, metric_histogram h, int64_t us);
static inline uint64_t weir__metric_get(const metrics *m, metric_counter c)
{
    return atomic_load_explicit(&m->counters[c], memory_order_relaxed);
}
/* Prometheus' text format, names weir_..., with these labels (text between the braces; may be "").
 * false: out of memory, `out` is as it was. */
bool weir__metrics_print(const metrics *m, const char *labels, weir_buffer *out);

#endif
