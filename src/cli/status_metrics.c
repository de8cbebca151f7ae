/* status_metrics.c - weir status --metrics: for Prometheus, in its text format.
 *
 * INVARIANTS
 *   (1) Every name has one HELP and one TYPE line and its series together; no two have the same
 *       labels: a lane, a reaction and a worker are in their list once.
 *   (2) Counters are of one worker each and never go back: a worker that starts again has another
 *       name. So nothing is added up here; a sum would go back when a worker is forgotten.
 */
#include "cli/status.h"
#include "engine/metrics.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct page {
    const status_facts *f;
    weir_buffer *out;
    bool failed;
} page;

static void metric_head(page *p, const char *name, const char *help)
{
    p->failed = p->failed || !weir__metrics_head(p->out, name, help, "gauge");
}

/* labels: may be empty. */
static void metric_sample(page *p, const char *name, const weir_buffer *labels, const char *value)
{
    weir_buffer *out = p->out;
    bool ok = weir__buffer_add_text(out, name);

    if (labels->len > 0) {
        ok = ok && weir__buffer_add_text(out, "{") &&
             weir__buffer_add(out, labels->ptr, labels->len) && weir__buffer_add_text(out, "}");
    }
    ok = ok && weir__buffer_add_text(out, " ") && weir__buffer_add_text(out, value) &&
         weir__buffer_add_text(out, "\n");
    p->failed = p->failed || !ok;
}

/* A sample with up to two labels; NULL: none. */
static void metric_number(page *p, const char *name, const char *label, weir_str value,
                          const char *other_label, const char *other_value, int64_t n)
{
    char text[METRICS_NUMBER_BYTES];
    weir_buffer labels = { 0 };
    const bool ok =
        (label == NULL || weir__metrics_label(&labels, label, value)) &&
        (other_label == NULL || weir__metrics_label(&labels, other_label, weir__str(other_value)));

    (void)snprintf(text, sizeof text, "%" PRId64, n);
    p->failed = p->failed || !ok;
    metric_sample(p, name, &labels, text);
    weir__buffer_free(&labels);
}

static void metric_gauge(page *p, const char *name, const char *help, int64_t n)
{
    metric_head(p, name, help);
    metric_number(p, name, NULL, (weir_str){ 0 }, NULL, NULL, n);
}

/* ---- what the store knows ------------------------------------------------------------------- */

static void store_page(page *p)
{
    const status_facts *f = p->f;

    metric_gauge(p, "weir_head_position", "The highest position of the log.", f->positions.head);
    metric_gauge(p, "weir_safe_position", "At and below it nothing can still appear.",
                 f->positions.safe);
    metric_gauge(p, "weir_streams", "Streams.", f->stats.streams);
    metric_gauge(p, "weir_dead_letters", "Parked events.", f->stats.parked);
    metric_gauge(p, "weir_store_bytes", "Size of the store, without its write-ahead log.",
                 f->stats.file_bytes);
}

static void reactions_page(page *p)
{
    const store_reaction_list *list = &p->f->reactions;
    const int64_t safe = p->f->positions.safe;
    static const char routed[] = "weir_routed_position", lag[] = "weir_routing_lag_events";

    metric_head(p, routed, "Everything up to it was routed for the reaction.");
    for (size_t i = 0; i < list->reactions_count; i++) {
        const store_reaction *r = &list->reactions[i];
        if (!r->retired) {
            metric_number(p, routed, "reaction", r->name, NULL, NULL, r->routed);
        }
    }
    metric_head(p, lag, "Positions up to safe that are not routed for the reaction.");
    for (size_t i = 0; i < list->reactions_count; i++) {
        const store_reaction *r = &list->reactions[i];
        if (!r->retired) {
            metric_number(p, lag, "reaction", r->name, NULL, NULL,
                          safe > r->routed ? safe - r->routed : 0);
        }
    }
}

static void lane_targets(page *p, const store_lane *l)
{
    static const char name[] = "weir_lane_targets";
    const int64_t busy = l->leased + l->blocked + l->retrying + l->deferred + l->ready;

    metric_number(p, name, "lane", l->lane, "state", "leased", l->leased);
    metric_number(p, name, "lane", l->lane, "state", "blocked", l->blocked);
    metric_number(p, name, "lane", l->lane, "state", "retrying", l->retrying);
    metric_number(p, name, "lane", l->lane, "state", "deferred", l->deferred);
    metric_number(p, name, "lane", l->lane, "state", "ready", l->ready);
    metric_number(p, name, "lane", l->lane, "state", "idle", l->targets - busy);
}

static void lane_seconds(page *p, const char *name, const store_lane *l)
{
    const int64_t now_us = p->f->positions.now_us;
    const int64_t us = l->oldest_us == 0 || l->oldest_us > now_us ? 0 : now_us - l->oldest_us;
    char text[METRICS_NUMBER_BYTES];
    weir_buffer labels = { 0 };

    weir__metrics_seconds((uint64_t)us, text);
    p->failed = p->failed || !weir__metrics_label(&labels, "lane", l->lane);
    metric_sample(p, name, &labels, text);
    weir__buffer_free(&labels);
}

static void lanes_page(page *p)
{
    const store_lane_list *list = &p->f->lanes;

    metric_head(p, "weir_lane_targets",
                "Targets by state; idle: they have no work, or are paused.");
    for (size_t i = 0; i < list->lanes_count; i++) {
        lane_targets(p, &list->lanes[i]);
    }
    metric_head(p, "weir_lane_paused", "1: the lane is paused.");
    for (size_t i = 0; i < list->lanes_count; i++) {
        const store_lane *l = &list->lanes[i];
        metric_number(p, "weir_lane_paused", "lane", l->lane, NULL, NULL, l->paused);
    }
    metric_head(
        p, "weir_lane_lag_events",
        "Positions from the last event handled to the last one that waits, for the target that is "
        "most behind: at most so many events wait for it.");
    for (size_t i = 0; i < list->lanes_count; i++) {
        const store_lane *l = &list->lanes[i];
        metric_number(p, "weir_lane_lag_events", "lane", l->lane, NULL, NULL, l->lag);
    }
    metric_head(p, "weir_lane_lag_seconds", "Age of the oldest event that may be waiting.");
    for (size_t i = 0; i < list->lanes_count; i++) {
        lane_seconds(p, "weir_lane_lag_seconds", &list->lanes[i]);
    }
}

/* ---- what workers say ----------------------------------------------------------------------- */

static void worker_up(page *p, const store_worker *w)
{
    char pid[METRICS_NUMBER_BYTES];
    weir_buffer labels = { 0 };

    (void)snprintf(pid, sizeof pid, "%" PRId64, w->pid);
    p->failed = p->failed || !weir__metrics_label(&labels, "worker", w->name) ||
                !weir__metrics_label(&labels, "host", w->host) ||
                !weir__metrics_label(&labels, "pid", weir__str(pid));
    metric_sample(p, "weir_worker_up", &labels, w->until_us > p->f->positions.now_us ? "1" : "0");
    weir__buffer_free(&labels);
}

static void workers_page(page *p)
{
    const store_worker_list *list = &p->f->workers;

    metric_head(p, "weir_worker_up", "1: it works; 0: it ended within the last hour.");
    for (size_t i = 0; i < list->workers_count; i++) {
        worker_up(p, &list->workers[i]);
    }
    metric_head(p, "weir_worker_draining", "1: it finishes what it has and takes nothing new.");
    for (size_t i = 0; i < list->workers_count; i++) {
        const store_worker *w = &list->workers[i];
        metric_number(p, "weir_worker_draining", "worker", w->name, NULL, NULL, w->draining);
    }
    metric_head(p, "weir_worker_held_targets", "Targets with a live lease of the worker.");
    for (size_t i = 0; i < list->workers_count; i++) {
        const store_worker *w = &list->workers[i];
        metric_number(p, "weir_worker_held_targets", "worker", w->name, NULL, NULL, w->holds);
    }
}

/* What they have counted; one that says nothing that we understand is left out. */
static void counters_page(page *p)
{
    const store_worker_list *list = &p->f->workers;
    const size_t count = list->workers_count;
    metrics *counted = weir__calloc(count + 1, sizeof *counted);
    metrics_of *all = weir__calloc(count + 1, sizeof *all);
    weir_buffer *labels = weir__calloc(count + 1, sizeof *labels);
    bool ok = counted != NULL && all != NULL && labels != NULL;
    size_t known = 0;

    for (size_t i = 0; ok && i < count; i++) {
        const store_worker *w = &list->workers[i];
        if (weir__metrics_load(&counted[known], w->metrics)) {
            ok = weir__metrics_label(&labels[known], "worker", w->name) &&
                 weir__buffer_add(&labels[known], "", 1);
            all[known] = (metrics_of){ &counted[known], labels[known].ptr };
            known++;
        }
    }
    ok = ok && weir__metrics_print(all, known, p->out);
    for (size_t i = 0; labels != NULL && i < count; i++) {
        weir__buffer_free(&labels[i]);
    }
    weir__free(labels);
    weir__free(all);
    weir__free(counted);
    p->failed = p->failed || !ok;
}

bool weir__cli_status_metrics(const status_facts *f, weir_buffer *out)
{
    page p = { .f = f, .out = out, .failed = false };

    store_page(&p);
    reactions_page(&p);
    lanes_page(&p);
    workers_page(&p);
    counters_page(&p);
    return !p.failed;
}
