/* metrics.c - counting, keeping it in the store, and telling it in Prometheus' text format.
 *
 * What stays true: what is printed is cumulative and consistent in itself (a histogram's count is
 * its last bucket), although others go on counting meanwhile. Every name ends in its unit. A name
 * that was released keeps its meaning: workers of several versions share a store.
 */
#include "engine/metrics.h"

#include "base/json.h"
#include "base/str.h"

#include <assert.h>
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
    [METRIC_STALE] = { "weir_stale_fences_total", "Calls refused because their fence was stale." },
    [METRIC_DEFERRED] = { "weir_deferred_targets_total",
                          "Targets that wait: a handler failed, or asked to." },
    [METRIC_BLOCKED] = { "weir_blocked_targets_total", "Targets blocked." },
    [METRIC_PARKED] = { "weir_parked_events_total", "Events that were parked." },
    [METRIC_RELEASED] = { "weir_released_targets_total",
                          "Targets handed back before they were started." },
    [METRIC_STORE_ERRORS] = { "weir_store_errors_total",
                              "Calls that failed because the store was away or busy." },
    [METRIC_APPENDS] = { "weir_appends_total", "Appends committed by handlers and the process." },
    [METRIC_APPENDED] = { "weir_appended_events_total", "Events of those appends." },
    [METRIC_CONFLICTS] = { "weir_conflicts_total",
                           "Appends refused because their expectation did not hold." },
};

static const struct {
    const char *name, *help;
    bool numbers; /* not microseconds that are told as seconds */
} histogram_texts[METRIC_HISTOGRAMS] = {
    [METRIC_LEASE_US] = { "weir_lease_seconds", "Time to lease targets.", false },
    [METRIC_SETTLE_US] = { "weir_settle_seconds", "Time to settle a batch.", false },
    [METRIC_HANDLER_US] = { "weir_handler_seconds", "Time that a handler took.", false },
    [METRIC_DELAY_US] = { "weir_delay_seconds", "From the event's commit to its handler.", false },
    [METRIC_BATCH] = { "weir_commit_batch_appends", "Appends of the process per transaction.",
                       true },
};

static uint64_t counter_load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* ---- counting ------------------------------------------------------------------------------ */

/* The first whose bound, 2^index, is not below. */
static size_t bucket_of(int64_t value)
{
    const size_t index = value <= 1 ? 0 : 64 - (size_t)__builtin_clzll((uint64_t)value - 1);

    return index < METRIC_BUCKETS - 1 ? index : METRIC_BUCKETS - 1;
}

void weir__metric_observe(metrics *m, metric_histogram h, int64_t value)
{
    /* Clocks of two machines: a delay can come out negative. */
    const int64_t counted = value < 0 ? 0 : value;

    atomic_fetch_add_explicit(&m->histograms[h].buckets[bucket_of(counted)], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&m->histograms[h].sum, (uint64_t)counted, memory_order_relaxed);
}

void weir__metrics_add(metrics *m, const metrics *other)
{
    for (size_t i = 0; i < METRIC_COUNTERS; i++) {
        weir__metric_add(m, (metric_counter)i, counter_load(&other->counters[i]));
    }
    for (size_t i = 0; i < METRIC_HISTOGRAMS; i++) {
        for (size_t k = 0; k < METRIC_BUCKETS; k++) {
            atomic_fetch_add_explicit(&m->histograms[i].buckets[k],
                                      counter_load(&other->histograms[i].buckets[k]),
                                      memory_order_relaxed);
        }
        atomic_fetch_add_explicit(&m->histograms[i].sum, counter_load(&other->histograms[i].sum),
                                  memory_order_relaxed);
    }
}

void weir__metrics_add_appends(metrics *m, const committer_counts *counts)
{
    static_assert((int)COMMITTER_BATCH_BUCKETS <= (int)METRIC_BUCKETS,
                  "the committer's are the first");
    weir__metric_add(m, METRIC_APPENDS, counts->appends);
    weir__metric_add(m, METRIC_APPENDED, counts->events);
    weir__metric_add(m, METRIC_CONFLICTS, counts->conflicts);
    for (size_t i = 0; i < COMMITTER_BATCH_BUCKETS; i++) {
        atomic_fetch_add_explicit(&m->histograms[METRIC_BATCH].buckets[i], counts->batches[i],
                                  memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&m->histograms[METRIC_BATCH].sum, counts->batched,
                              memory_order_relaxed);
}

/* ---- keeping ------------------------------------------------------------------------------- */

static bool add_u64(weir_buffer *out, uint64_t number)
{
    char text[METRICS_NUMBER_BYTES];

    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    return weir__buffer_add_text(out, text);
}

static bool save_name(weir_buffer *out, size_t begin, const char *name)
{
    return weir__buffer_add_text(out, out->len == begin ? "{\"" : ",\"") &&
           weir__buffer_add_text(out, name) && weir__buffer_add_text(out, "\":");
}

/* The sum, then the buckets up to the last that is not 0. */
static bool save_histogram(const metrics *m, metric_histogram h, size_t begin, weir_buffer *out)
{
    uint64_t buckets[METRIC_BUCKETS];
    size_t count = 0;

    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        buckets[i] = counter_load(&m->histograms[h].buckets[i]);
        count = buckets[i] != 0 ? i + 1 : count;
    }
    if (count == 0) {
        return true;
    }
    bool ok = save_name(out, begin, histogram_texts[h].name) && weir__buffer_add_text(out, "[") &&
              add_u64(out, counter_load(&m->histograms[h].sum));
    for (size_t i = 0; ok && i < count; i++) {
        ok = weir__buffer_add_text(out, ",") && add_u64(out, buckets[i]);
    }
    return ok && weir__buffer_add_text(out, "]");
}

bool weir__metrics_save(const metrics *m, weir_buffer *out)
{
    const size_t begin = out->len;
    bool ok = true;

    for (size_t i = 0; ok && i < METRIC_COUNTERS; i++) {
        const uint64_t number = counter_load(&m->counters[i]);
        ok = number == 0 || (save_name(out, begin, counter_texts[i].name) && add_u64(out, number));
    }
    for (size_t i = 0; ok && i < METRIC_HISTOGRAMS; i++) {
        ok = save_histogram(m, (metric_histogram)i, begin, out);
    }
    ok = ok && weir__buffer_add_text(out, out->len == begin ? "{}" : "}");
    if (!ok) {
        out->len = begin;
    }
    return ok;
}

/* Numbers of ours are far below 2^63. */
static bool load_u64(weir_str text, _Atomic uint64_t *out)
{
    int64_t number = -1;

    if (!weir__str_to_i64(text, &number) || number < 0) {
        return false;
    }
    atomic_store_explicit(out, (uint64_t)number, memory_order_relaxed);
    return true;
}

static bool load_histogram(metrics *m, metric_histogram h, weir_str array)
{
    weir_json_members it = weir__json_elements(array);

    if (weir__json_type(array) != WEIR_JSON_ARRAY || !weir__json_elements_next(&it) ||
        !load_u64(it.value, &m->histograms[h].sum)) {
        return false;
    }
    for (size_t i = 0; weir__json_elements_next(&it); i++) {
        if (i == METRIC_BUCKETS || !load_u64(it.value, &m->histograms[h].buckets[i])) {
            return false;
        }
    }
    return true;
}

static bool load_member(metrics *m, weir_str name, weir_str value)
{
    for (size_t i = 0; i < METRIC_COUNTERS; i++) {
        if (weir__str_equal(name, weir__str(counter_texts[i].name))) {
            return load_u64(value, &m->counters[i]);
        }
    }
    for (size_t i = 0; i < METRIC_HISTOGRAMS; i++) {
        if (weir__str_equal(name, weir__str(histogram_texts[i].name))) {
            return load_histogram(m, (metric_histogram)i, value);
        }
    }
    return true;
}

bool weir__metrics_load(metrics *m, weir_str saved)
{
    weir_buffer compact = { 0 };
    bool ok = weir__json_compact(saved, &compact, NULL, NULL) == WEIR_OK &&
              weir__json_type((weir_str){ compact.ptr, compact.len }) == WEIR_JSON_OBJECT;

    *m = (metrics){ 0 };
    if (ok) {
        weir_json_members it = weir__json_members((weir_str){ compact.ptr, compact.len });
        while (ok && weir__json_members_next(&it)) {
            ok = load_member(m, it.name, it.value);
        }
    }
    weir__buffer_free(&compact);
    return ok;
}

/* ---- telling ------------------------------------------------------------------------------- */

bool weir__metrics_label(weir_buffer *out, const char *name, weir_str value)
{
    bool ok = (out->len == 0 || weir__buffer_add_text(out, ",")) &&
              weir__buffer_add_text(out, name) && weir__buffer_add_text(out, "=\"");

    for (size_t i = 0; ok && i < value.len; i++) {
        const char c = value.ptr[i];
        ok = c == '\n'               ? weir__buffer_add_text(out, "\\n")
             : c == '"' || c == '\\' ? weir__buffer_add(out, (char[]){ '\\', c }, 2)
                                     : weir__buffer_add(out, &c, 1);
    }
    return ok && weir__buffer_add_text(out, "\"");
}

bool weir__metrics_head(weir_buffer *out, const char *name, const char *help, const char *type)
{
    return weir__buffer_add_text(out, "# HELP ") && weir__buffer_add_text(out, name) &&
           weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, help) &&
           weir__buffer_add_text(out, "\n# TYPE ") && weir__buffer_add_text(out, name) &&
           weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, type) &&
           weir__buffer_add_text(out, "\n");
}

void weir__metrics_seconds(uint64_t us, char out[METRICS_NUMBER_BYTES])
{
    int len =
        snprintf(out, METRICS_NUMBER_BYTES, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);

    while (len > 0 && out[len - 1] == '0') {
        out[--len] = '\0';
    }
    if (len > 0 && out[len - 1] == '.') {
        out[--len] = '\0';
    }
}

typedef struct printer {
    weir_buffer *out;
    bool failed;
} printer;

/* One sample; more: another label, or NULL. */
static void print_sample(printer *p, const char *name, const char *suffix, const char *labels,
                         const char *more, const char *value)
{
    const bool has_labels = labels[0] != '\0';
    weir_buffer *out = p->out;
    bool ok = weir__buffer_add_text(out, name) && weir__buffer_add_text(out, suffix);

    if (has_labels || more != NULL) {
        ok = ok && weir__buffer_add_text(out, "{") && weir__buffer_add_text(out, labels) &&
             (!has_labels || more == NULL || weir__buffer_add_text(out, ",")) &&
             (more == NULL || weir__buffer_add_text(out, more)) && weir__buffer_add_text(out, "}");
    }
    ok = ok && weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, value) &&
         weir__buffer_add_text(out, "\n");
    p->failed = p->failed || !ok;
}

/* A value of a histogram in the unit that its name says. */
static void value_text(metric_histogram h, uint64_t value, char out[METRICS_NUMBER_BYTES])
{
    if (histogram_texts[h].numbers) {
        (void)snprintf(out, METRICS_NUMBER_BYTES, "%" PRIu64, value);
    } else {
        weir__metrics_seconds(value, out);
    }
}

static void print_histogram(printer *p, const metrics_of *of, metric_histogram h)
{
    const char *name = histogram_texts[h].name;
    char number[METRICS_NUMBER_BYTES], bound[METRICS_NUMBER_BYTES], le[METRICS_NUMBER_BYTES + 8];
    uint64_t count = 0;

    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        count += counter_load(&of->counted->histograms[h].buckets[i]);
        if (i < METRIC_BUCKETS - 1) {
            value_text(h, UINT64_C(1) << i, bound);
        } else {
            (void)snprintf(bound, sizeof bound, "+Inf");
        }
        if (histogram_texts[h].numbers && i >= COMMITTER_BATCH_BUCKETS && i < METRIC_BUCKETS - 1) {
            continue; /* there are no larger ones */
        }
        (void)snprintf(le, sizeof le, "le=\"%s\"", bound);
        (void)snprintf(number, sizeof number, "%" PRIu64, count);
        print_sample(p, name, "_bucket", of->labels, le, number);
    }
    value_text(h, counter_load(&of->counted->histograms[h].sum), bound);
    print_sample(p, name, "_sum", of->labels, NULL, bound);
    print_sample(p, name, "_count", of->labels, NULL, number);
}

bool weir__metrics_print(const metrics_of *all, size_t count, weir_buffer *out)
{
    const size_t len = out->len;
    printer p = { .out = out, .failed = false };
    char number[METRICS_NUMBER_BYTES];

    for (size_t i = 0; count > 0 && i < METRIC_COUNTERS; i++) {
        const char *name = counter_texts[i].name;
        p.failed = p.failed || !weir__metrics_head(out, name, counter_texts[i].help, "counter");
        for (size_t k = 0; k < count; k++) {
            (void)snprintf(number, sizeof number, "%" PRIu64,
                           counter_load(&all[k].counted->counters[i]));
            print_sample(&p, name, "", all[k].labels, NULL, number);
        }
    }
    for (size_t i = 0; count > 0 && i < METRIC_HISTOGRAMS; i++) {
        p.failed = p.failed || !weir__metrics_head(out, histogram_texts[i].name,
                                                   histogram_texts[i].help, "histogram");
        for (size_t k = 0; k < count; k++) {
            print_histogram(&p, &all[k], (metric_histogram)i);
        }
    }
    if (p.failed) {
        out->len = len;
    }
    return !p.failed;
}
