/* worker.c - putting a worker together, and taking it apart.
 *
 * What stays true: tasks are fixed between open and close; nothing here blocks on a task; the mutex
 * is held for assignments only.
 */
#include "engine/worker.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"
#include "engine/router.h"
#include "engine/slot.h"

#include <stdio.h>
#include <unistd.h>

enum { APPLICATION_BYTES_MAX = 96 };
#define WORKER_LOST_MAX        10
#define WORKER_ROUTER_LEASE_US INT64_C(3000000)
#define WORKER_BACKOFF_US      INT64_C(100000)
#define WORKER_BACKOFF_US_MAX  INT64_C(5000000)

/* ---- for the others ----------------------------------------------------------------------- */

void weir__worker_log(worker *w, int level, const char *event, const log_field *fields,
                      size_t count)
{
    if (w->options.log != NULL) {
        w->options.log(w->options.log_ctx, level, event, fields, count);
    }
}

/* Whether waiting may help; anything else is told each time. */
static bool is_outage(int32_t code)
{
    return code == WEIR_EBUSY || code == WEIR_EUNAVAILABLE || code == WEIR_EIO ||
           code == WEIR_EUNKNOWN;
}

/* A call failed, or waits for the store to come back. */
static void say_trouble(worker *w, task *t, const weir_error *err)
{
    const log_field fields[] = {
        weir__log_text_field("task", weir__str(t->name)),
        weir__log_text_field("status", weir__str(weir_status_text(err->code))),
        weir__log_text_field("error", weir__str(err->message)),
    };
    const size_t count = sizeof fields / sizeof fields[0];

    if (err->code == WEIR_ECORRUPT) {
        /* Said once: nothing that a worker could do again would help. */
        if (!atomic_exchange(&w->damage_taken, true)) {
            w->damage = *err;
            atomic_store(&w->damaged, true);
            weir__worker_log(w, LOG_ERROR, "store_damaged", fields, count);
            weir__worker_drain(w);
            if (w->options.pull_cb != NULL) {
                w->options.pull_cb(w->options.pull_ctx);
            }
        }
    } else if (!is_outage(err->code)) {
        weir__worker_log(w, LOG_ERROR, "store_error", fields, count);
    } else if (!atomic_exchange_explicit(&w->outage, true, memory_order_relaxed)) {
        weir__worker_log(w, LOG_WARNING, "store_away", fields, count);
        /* The poller finds out when it is back, and says so. */
        if (t != &w->poller.task) {
            weir__poller_stir(&w->poller);
        }
    }
}

/* The call goes on waiting and may yet succeed. The first one that meets an outage counts as failed
 * all the same: an outage that is logged is never zero in the metrics. */
static void task_away(task *t, const weir_error *err)
{
    worker *w = t->away_ctx;
    if (!atomic_load_explicit(&w->outage, memory_order_relaxed)) {
        weir__metric_add(&w->metrics, METRIC_STORE_ERRORS, 1);
    }
    say_trouble(w, t, err);
}

int64_t weir__worker_store_failed(worker *w, task *t, int *attempt, const weir_error *err)
{
    const int64_t wait_us =
        weir__task_backoff_us(t, *attempt, WORKER_BACKOFF_US, WORKER_BACKOFF_US_MAX);

    weir__metric_add(&w->metrics, METRIC_STORE_ERRORS, 1);
    say_trouble(w, t, err);
    *attempt += *attempt < 30;
    return weir__task_now(t) + wait_us;
}

bool weir__worker_damaged(worker *w, weir_error *how)
{
    const bool damaged = atomic_load(&w->damaged);
    if (damaged && how != NULL) {
        *how = w->damage;
    }
    return damaged;
}

bool weir__worker_draining(worker *w)
{
    weir__lock(&w->mu);
    const bool draining = w->draining;
    weir__unlock(&w->mu);
    return draining;
}

void weir__worker_wake_lanes(worker *w)
{
    for (size_t i = 0; i < w->lanes_count; i++) {
        weir__lane_ask(&w->lanes[i]);
    }
}

void weir__worker_wake_slots(worker *w)
{
    for (size_t i = 0; i < w->lanes_count; i++) {
        for (size_t n = 0; n < w->lanes[i].slots_count; n++) {
            weir__task_wake(&w->lanes[i].slots[n].task);
        }
    }
}

/* ---- opening ------------------------------------------------------------------------------ */

static void set_defaults(worker_options *o)
{
    o->lost_max = o->lost_max > 0 ? o->lost_max : WORKER_LOST_MAX;
    o->router_lease_us = o->router_lease_us > 0 ? o->router_lease_us : WORKER_ROUTER_LEASE_US;
    o->beat_us = o->beat_us > 0 ? o->beat_us : STORE_WORKER_BEAT_US;
    o->payload_bytes = o->payload_bytes > 0 ? o->payload_bytes : STORE_PAYLOAD_BYTES_DEFAULT;
    o->memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : ROOM_BYTES_DEFAULT;
    /* Borrowed for the call that opens only. */
    o->application = (weir_str){ 0 };
    o->lanes = NULL;
    o->lanes_count = 0;
}

/* application@host:pid:random: whoever reads it knows where to look, and no two starts share it. */
static void set_name(worker *w, weir_str application)
{
    const weir_str shown = application.len > 0 ? application : weir__str("weir");
    const size_t most = shown.len < APPLICATION_BYTES_MAX ? shown.len : APPLICATION_BYTES_MAX;

    if (gethostname(w->host, sizeof w->host) != 0) {
        w->host[0] = '\0';
    }
    w->host[sizeof w->host - 1] = '\0';
    w->pid = getpid();
    const int written =
        snprintf(w->name, sizeof w->name, "%.*s@%s:%lld:%016llx",
                 (int)weir__utf8_valid_prefix(shown.ptr, most), shown.ptr, w->host,
                 (long long)w->pid, (unsigned long long)w->scheduler->random(w->scheduler));
    if (written < 0) {
        w->name[0] = '\0';
    }
}

static bool is_wanted(const worker_options *o, weir_str name)
{
    for (size_t i = 0; i < o->lanes_count; i++) {
        if (weir__str_equal(o->lanes[i], name)) {
            return true;
        }
    }
    return o->lanes_count == 0;
}

static weir_status check_lanes(const registry *reactions, const worker_options *o, weir_error *err)
{
    for (size_t i = 0; i < o->lanes_count; i++) {
        bool found = false;
        for (size_t j = 0; j < reactions->lanes_count && !found; j++) {
            found = weir__str_equal(o->lanes[i], reactions->lanes[j].name);
        }
        if (!found) {
            return weir__fail(err, WEIR_EINVAL, "no lane \"%.*s\" was declared",
                              (int)o->lanes[i].len, o->lanes[i].ptr);
        }
    }
    return WEIR_OK;
}

static weir_status open_lanes(worker *w, const worker_options *options, weir_error *err)
{
    const registry *reactions = w->registry;
    weir_status status = check_lanes(reactions, options, err);

    if (status != WEIR_OK) {
        return status;
    }
    w->lanes = weir__calloc(reactions->lanes_count + 1, sizeof *w->lanes);
    if (w->lanes == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < reactions->lanes_count && status == WEIR_OK; i++) {
        if (is_wanted(options, reactions->lanes[i].name)) {
            /* Counted first: freeing takes what is half open. */
            status = weir__lane_init(&w->lanes[w->lanes_count++], w, &reactions->lanes[i], err);
        }
    }
    w->some_lanes = w->lanes_count < reactions->lanes_count;
    return status;
}

static weir_status collect_tasks(worker *w, weir_error *err)
{
    size_t count = 2;

    for (size_t i = 0; i < w->lanes_count; i++) {
        count += 2 + w->lanes[i].slots_count;
    }
    w->tasks = weir__calloc(count, sizeof *w->tasks);
    if (w->tasks == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    w->tasks[w->tasks_count++] = &w->router.task;
    w->tasks[w->tasks_count++] = &w->poller.task;
    for (size_t i = 0; i < w->lanes_count; i++) {
        lane *l = &w->lanes[i];
        w->tasks[w->tasks_count++] = &l->leasing;
        w->tasks[w->tasks_count++] = &l->renewing;
        for (size_t j = 0; j < l->slots_count; j++) {
            w->tasks[w->tasks_count++] = &l->slots[j].task;
        }
    }
    for (size_t i = 0; i < w->tasks_count; i++) {
        w->tasks[i]->scheduler = w->scheduler;
        w->tasks[i]->away_cb = task_away;
        w->tasks[i]->away_ctx = w;
    }
    return WEIR_OK;
}

weir_status weir__worker_open(worker **out, weir_store *store, registry *reactions,
                              const worker_options *options, scheduler *sched, weir_error *err)
{
    worker *w = weir__calloc(1, sizeof *w);

    if (w == NULL || !weir__mutex_init(&w->mu)) {
        weir__free(w);
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    w->store = store;
    w->registry = reactions;
    w->scheduler = sched;
    w->options = *options;
    w->routed_ours = INT64_MIN;
    set_defaults(&w->options);
    w->room.bytes_max = w->options.memory_bytes;
    set_name(w, options->application);
    weir_status status = weir__router_init(&w->router, w, err);
    if (status == WEIR_OK) {
        status = open_lanes(w, options, err);
    }
    if (status == WEIR_OK) {
        status = weir__poller_init(&w->poller, w, err);
    }
    if (status == WEIR_OK) {
        status = collect_tasks(w, err);
    }
    if (status != WEIR_OK) {
        weir__worker_abandon(w);
        return status;
    }
    *out = w;
    return WEIR_OK;
}

task *const *weir__worker_tasks(worker *w, size_t *count)
{
    *count = w->tasks_count;
    return w->tasks;
}

/* ---- while it runs ------------------------------------------------------------------------ */

void weir__worker_wake(worker *w)
{
    weir__router_hint(&w->router);
    weir__poller_stir(&w->poller);
}

void weir__worker_drain(worker *w)
{
    weir__lock(&w->mu);
    w->draining = true;
    weir__unlock(&w->mu);
    for (size_t i = 0; i < w->lanes_count; i++) {
        weir__lane_drain(&w->lanes[i]);
    }
    weir__task_wake(&w->router.task);
    weir__task_wake(&w->poller.task);
}

void weir__worker_interrupt(worker *w)
{
    for (size_t i = 0; i < w->lanes_count; i++) {
        for (size_t j = 0; j < w->lanes[i].slots_count; j++) {
            atomic_store(&w->lanes[i].slots[j].interrupted, true);
        }
    }
    weir__worker_wake_slots(w);
}

static bool all_lanes_idle(worker *w)
{
    for (size_t i = 0; i < w->lanes_count; i++) {
        if (!weir__lane_idle(&w->lanes[i])) {
            return false;
        }
    }
    return true;
}

bool weir__worker_idle(worker *w)
{
    return weir__worker_draining(w) && all_lanes_idle(w);
}

static bool polled_routed(const store_poll *poll, int64_t ours)
{
    return poll->routed_least >= poll->head || ours >= poll->head;
}

bool weir__worker_rests(worker *w)
{
    const bool idle = all_lanes_idle(w);

    weir__lock(&w->mu);
    const bool routed = w->polled.now_us != 0 && polled_routed(&w->polled, w->polled_ours);
    weir__unlock(&w->mu);
    return idle && routed;
}

bool weir__worker_out_of_work(worker *w)
{
    /* Idle before the poll is read: what a slot settles is in a later poll. */
    const bool idle = all_lanes_idle(w);

    weir__lock(&w->mu);
    const bool polled = w->polled_once;
    const store_poll poll = w->polled;
    const int64_t ours = w->polled_ours;
    weir__unlock(&w->mu);
    return idle && polled && !poll.ready && poll.due_us == INT64_MAX &&
           poll.lease_end_us == INT64_MAX && polled_routed(&poll, ours);
}

void weir__worker_ask(worker *w)
{
    weir__lock(&w->mu);
    w->polled_once = false;
    w->ask_number++;
    weir__unlock(&w->mu);
    weir__poller_ask(&w->poller);
}

metrics *weir__worker_metrics(worker *w)
{
    return &w->metrics;
}

weir_str weir__worker_name(const worker *w)
{
    return weir__str(w->name);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Hands back what slots still hold: their handlers were given up, or never began. */
static void release_slots(worker *w)
{
    weir_error err = { .size = sizeof err };
    size_t count = 0, slots = 0;

    for (size_t i = 0; i < w->lanes_count; i++) {
        slots += w->lanes[i].slots_count;
    }
    store_fenced *items = weir__calloc(slots + 1, sizeof *items);
    if (items == NULL) {
        return; /* their leases end by themselves */
    }
    weir__lock(&w->mu);
    for (size_t i = 0; i < w->lanes_count; i++) {
        for (size_t j = 0; j < w->lanes[i].slots_count; j++) {
            const slot *s = &w->lanes[i].slots[j];
            if (s->state != SLOT_IDLE && !s->lost) {
                items[count++] =
                    (store_fenced){ .target = s->target, .fence = s->fence, .token = s->token };
            }
        }
    }
    weir__unlock(&w->mu);
    if (count > 0) {
        (void)w->store->work->extend(w->store, 0, items, count, &err);
    }
    weir__free(items);
}

void weir__worker_close(worker *w)
{
    if (w == NULL) {
        return;
    }
    release_slots(w);
    weir__router_release(&w->router);
    weir__poller_farewell(&w->poller);
    weir__worker_abandon(w);
}

void weir__worker_abandon(worker *w)
{
    if (w == NULL) {
        return;
    }
    w->room.shares = NULL; /* nobody waits for room any more */
    for (size_t i = 0; i < w->lanes_count; i++) {
        weir__lane_free(&w->lanes[i]);
    }
    weir__router_free(&w->router);
    weir__mutex_destroy(&w->mu);
    weir__free(w->lanes);
    weir__free(w->tasks);
    weir__free(w);
}
