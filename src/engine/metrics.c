/* metrics.c - counting, and telling it in Prometheus' text format.
 *
 * What stays true: what is printed is cumulative and consistent in itself (a histogram's count is
 * its last bucket), although others go on counting meanwhile. Every name ends in its unit.
 */
#include "engine/metrics.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name, *help;
} counter_texts[METRIC_COUNTERS] = {
    [METRIC_ROUTED] = { "weir_routed_events_total", "Events that the router has looked at." },
    [METRIC_MARKS] = { "weir_marks_total", "Marks written by the router." },
    [METRIC_ROUTE_PARKED] = { "weir_route_parked_events_total",
                              "Events parked because their target could not be found." },
    [METRIC_LEASED] = { "weir_leased_targets_total", "Targets leased." },
    [METRIC_HANDLED] = { "weir_handled_events_total", "Events whose handler succeeded." },
    [METRIC_FAILED] = { "weir_failed_events_total", "Events whose handler failed." },
    [METRIC_SETTLED] = { "weir_settles_total", "Settles that were committed." },
    [METRIC_RERUN] = { "weir_reruns_total", "Settles that lost a race and were run again." },
    [METRIC_LOST] = { "weir_lost_leases_total", "Leases that were found to be another's." },
    [METRIC_DEFERRED] = { "weir_deferred_targets_total", "Targets deferred." },
    [METRIC_BLOCKED] = { "weir_blocked_targets_total", "Targets blocked." },
    [METRIC_PARKED] = { "weir_parked_events_total", "Events that became dead letters." },
    [METRIC_RELEASED] = { "weir_released_targets_total",
                          "Targets handed back before they were started." },
    [METRIC_STORE_ERRORS] = { "weir_store_errors_total",
                              "Calls that failed because the store was away or busy." },
};

static const struct {
    const char *name, *help;
} histogram_texts[METRIC_HISTOGRAMS] = {
    [METRIC_LEASE_US] = { "weir_lease_seconds", "Time to lease targets." },
    [METRIC_SETTLE_US] = { "weir_settle_seconds", "Time to settle a batch." },
    [METRIC_HANDLER_US] = { "weir_handler_seconds", "Time that a handler took." },
    [METRIC_DELAY_US] = { "weir_delay_seconds", "From the event's commit to its handler." },
};

/* The first whose bound, 2^index microseconds, is not below. */
static size_t bucket_of(int64_t us)
{
    size_t index = 0;

    while (index < METRIC_BUCKETS - 1 && us > INT64_C(1) << index) {
        index++;
    }
    return index;
}

void weir__metric_observe(metrics *m, metric_histogram h, int64_t us)
{
    /* Clocks of two machines: a delay can come out negative. */
    const int64_t value_us = us < 0 ? 0 : us;

    atomic_fetch_add_explicit(&m->histograms[h].buckets[bucket_of(value_us)], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&m->histograms[h].sum_us, (uint64_t)value_us, memory_order_relaxed);
}

typedef struct printer {
    weir_buffer *out;
    const char *labels;
    bool failed;
} printer;

/* One sample; more: another label, or NULL. */
static void print_sample(printer *p, const char *name, const char *suffix, const char *more,
                         const char *value)
{
    const bool has_labels = p->labels[0] != '\0';
    weir_buffer *out = p->out;
    bool ok = weir__buffer_add_text(out, name) && weir__buffer_add_text(out, suffix);

    if (has_labels || more != NULL) {
        ok = ok && weir__buffer_add_text(out, "{") && weir__buffer_add_text(out, p->labels) &&
             (!has_labels || more == NULL || weir__buffer_add_text(out, ",")) &&
             (more == NULL || weir__buffer_add_text(out, more)) && weir__buffer_add_text(out, "}");
    }
    ok = ok && weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, value) &&
         weir__buffer_add_text(out, "\n");
    p->failed = p->failed || !ok;
}

static void print_head(printer *p, const char *name, const char *help, const char *type)
{
    weir_buffer *out = p->out;
    const bool ok = weir__buffer_add_text(out, "# HELP ") && weir__buffer_add_text(out, name) &&
                    weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, help) &&
                    weir__buffer_add_text(out, "\n# TYPE ") && weir__buffer_add_text(out, name) &&
                    weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, type) &&
                    weir__buffer_add_text(out, "\n");
    p->failed = p->failed || !ok;
}

enum { NUMBER_BYTES = 48 };

/* Microseconds as seconds, exactly and without superfluous zeros. */
static void seconds_text(uint64_t us, char out[NUMBER_BYTES])
{
    int len = snprintf(out, NUMBER_BYTES, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);

    while (len > 0 && out[len - 1] == '0') {
        out[--len] = '\0';
    }
    if (len > 0 && out[len - 1] == '.') {
        out[--len] = '\0';
    }
}

static void print_histogram(printer *p, const metrics *m, metric_histogram h)
{
    const char *name = histogram_texts[h].name;
    char number[NUMBER_BYTES], bound[NUMBER_BYTES], le[NUMBER_BYTES + 8];
    uint64_t count = 0;

    print_head(p, name, histogram_texts[h].help, "histogram");
    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        count += atomic_load_explicit(&m->histograms[h].buckets[i], memory_order_relaxed);
        if (i < METRIC_BUCKETS - 1) {
            seconds_text(UINT64_C(1) << i, bound);
        } else {
            (void)snprintf(bound, sizeof bound, "+Inf");
        }
        (void)snprintf(le, sizeof le, "le=\"%s\"", bound);
        (void)snprintf(number, sizeof number, "%" PRIu64, count);
        print_sample(p, name, "_bucket", le, number);
    }
    seconds_text(atomic_load_explicit(&m->histograms[h].sum_us, memory_order_relaxed), bound);
    print_sample(p, name, "_sum", NULL, bound);
    print_sample(p, name, "_count", NULL, number);
}

bool weir__metrics_print(const metrics *m, const char *labels, weir_buffer *out)
{
    const size_t len = out->len;
    printer p = { .out = out, .labels = labels };
    char number[NUMBER_BYTES];

    for (size_t i = 0; i < METRIC_COUNTERS; i++) {
        const uint64_t count = atomic_load_explicit(&m->counters[i], memory_order_relaxed);
        print_head(&p, counter_texts[i].name, counter_texts[i].help, "counter");
        (void)snprintf(number, sizeof number, "%" PRIu64, count);
        print_sample(&p, counter_texts[i].name, "", NULL, number);
    }
    for (size_t i = 0; i < METRIC_HISTOGRAMS; i++) {
        print_histogram(&p, m, (metric_histogram)i);
    }
    if (p.failed) {
        out->len = len;
    }
    return !p.failed;
}
