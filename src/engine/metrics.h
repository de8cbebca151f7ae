/* metrics.h - counters and histograms of a worker, behind one interface. Any thread; lock-free.
 *
 * A worker counts, and with every beat puts what it has counted into the store as one line of JSON
 * (save). Whoever wants to see it, in another process, reads that back (load) and prints it. */
#ifndef WEIR_ENGINE_METRICS_H
#define WEIR_ENGINE_METRICS_H

#include "base/memory.h"
#include "store/committer.h"

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
    METRIC_STALE,        /* calls refused for their fence      */
    METRIC_DEFERRED,
    METRIC_BLOCKED,
    METRIC_PARKED,
    METRIC_RELEASED,     /* handed back, not started           */
    METRIC_STORE_ERRORS, /* calls that failed because the store was away or busy */
    METRIC_APPENDS,      /* of handlers and of the handle, committed             */
    METRIC_APPENDED,     /* their events                                         */
    METRIC_CONFLICTS,    /* appends refused because of their expectation         */
    METRIC_COUNTERS,
} metric_counter;

typedef enum metric_histogram {
    METRIC_LEASE_US,
    METRIC_SETTLE_US,
    METRIC_HANDLER_US,
    METRIC_DELAY_US, /* from the event's commit (created) to its handler */
    METRIC_BATCH,    /* appends of the handle per transaction            */
    METRIC_HISTOGRAMS,
} metric_histogram;

/* Powers of two, of a microsecond or of one; the last: everything above. */
enum { METRIC_BUCKETS = 28 };

typedef struct metrics {
    _Atomic uint64_t counters[METRIC_COUNTERS];
    struct {
        _Atomic uint64_t buckets[METRIC_BUCKETS];
        _Atomic uint64_t sum; /* of microseconds, but for METRIC_BATCH */
    } histograms[METRIC_HISTOGRAMS];
} metrics;

static inline void weir__metric_add(metrics *m, metric_counter c, uint64_t n)
{
    atomic_fetch_add_explicit(&m->counters[c], n, memory_order_relaxed);
}
/* value: microseconds, but for METRIC_BATCH. Less than 0 counts as 0. */
void weir__metric_observe(metrics *m, metric_histogram h, int64_t value);
static inline uint64_t weir__metric_get(const metrics *m, metric_counter c)
{
    return atomic_load_explicit(&m->counters[c], memory_order_relaxed);
}
/* Adds what another one has counted, as it is now. */
void weir__metrics_add(metrics *m, const metrics *other);
/* Adds what appends of a handle were counted. */
void weir__metrics_add_appends(metrics *m, const committer_counts *counts);
/* The values of now as they are kept in the store: an object whose members have the names of the
 * metrics, without those that are 0. false: out of memory, `out` is as it was. */
bool weir__metrics_save(const metrics *m, weir_buffer *out);
/* Reads it back. What is not there is 0, what is not known is left out: the other may be of another
 * version. false: it is not what save writes; *m is undefined. */
bool weir__metrics_load(metrics *m, weir_str saved);

/* Who has counted what. labels: what is between the braces, see weir__metrics_label; may be "". */
typedef struct metrics_of {
    const metrics *counted;
    const char *labels;
} metrics_of;

/* Prometheus' text format, names weir_..., each with HELP and TYPE once and a series for each of
 * `all`, which have different labels. false: out of memory, `out` is as it was. */
bool weir__metrics_print(const metrics_of *all, size_t count, weir_buffer *out);
/* A label: name="value", escaped; with a comma before it when out is not empty. */
bool weir__metrics_label(weir_buffer *out, const char *name, weir_str value);
/* The two lines that begin a metric; type: "gauge", ... */
bool weir__metrics_head(weir_buffer *out, const char *name, const char *help, const char *type);
/* Microseconds as seconds, exactly and without superfluous zeros. */
enum { METRICS_NUMBER_BYTES = 48 };
void weir__metrics_seconds(uint64_t us, char out[METRICS_NUMBER_BYTES]);

#endif
