/* poller.c - the fallback poll, which makes wake-ups mere hints, and the beat.
 *
 * One statement per cycle and process (one per lane when it runs only some lanes): it tells router
 * and lanes what they may have missed, and when the next thing is due. While nothing can happen by
 * itself (no lease is live, nothing is due) the cycle doubles up to 5 s.
 *
 * CLOCKS  Times in an answer are the store's; they become monotonic ones by the `now` of the same
 * answer, and are never compared with one directly.
 *
 * THREADS  Everything but the three hints belongs to the task.
 */
#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"
#include "engine/router.h"

#define POLLER_IDLE_US_MAX  INT64_C(5000000)
#define POLLER_SLEEP_US_MIN INT64_C(5000)
#define POLLER_LONG_AGO     (INT64_MIN / 4)

static int64_t time_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The shortest of the lanes'. */
static int64_t cycle_us(const worker *w)
{
    int64_t cycle = POLLER_IDLE_US_MAX;

    for (size_t i = 0; i < w->lanes_count; i++) {
        cycle = time_least(cycle, w->lanes[i].config.cycle_us);
    }
    return cycle;
}

/* What this worker has achieved, as a number that grows. */
static uint64_t progress_of(worker *w)
{
    return weir__metric_get(&w->metrics, METRIC_ROUTED) +
           weir__metric_get(&w->metrics, METRIC_LEASED) +
           weir__metric_get(&w->metrics, METRIC_SETTLED);
}

static int64_t poller_failed(poller *p, const weir_error *err)
{
    p->retry_us = weir__worker_store_failed(p->worker, &p->task, &p->attempt, err);
    return p->retry_us;
}

static void poller_succeeded(poller *p)
{
    worker *w = p->worker;

    p->attempt = 0;
    if (atomic_exchange_explicit(&w->outage, false, memory_order_relaxed)) {
        weir__worker_log(w, LOG_INFO, "store_back", NULL, 0);
    }
}

/* ---- beating ------------------------------------------------------------------------------ */

static bool can_beat(const worker *w)
{
    return w->store->about->worker_beat != NULL;
}

/* What was counted until now, by us and by whoever appends through the same handle. */
static bool metrics_counted(worker *w, weir_buffer *out)
{
    metrics all = { 0 };
    committer_counts appends = { 0 };

    weir__metrics_add(&all, &w->metrics);
    if (w->options.committer != NULL) {
        weir__committer_counts(w->options.committer, &appends);
        weir__metrics_add_appends(&all, &appends);
    }
    return weir__metrics_save(&all, out);
}

static weir_status beat_tell(poller *p, int64_t lease_us, bool draining, weir_error *err)
{
    worker *w = p->worker;
    weir_arena arena = { 0 };
    weir_buffer text = { 0 };
    weir_status status;
    weir_str *lanes = weir__arena_alloc(&arena, (w->lanes_count + 1) * sizeof *lanes);
    store_known_reaction *known =
        weir__arena_alloc(&arena, (w->registry->reactions_count + 1) * sizeof *known);

    if (lanes == NULL || known == NULL || !metrics_counted(w, &text)) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < w->lanes_count; i++) {
        lanes[i] = w->lanes[i].config.name;
    }
    const store_worker row = { .name = weir__worker_name(w),
                               .host = weir__str(w->host),
                               .pid = w->pid,
                               .lanes = lanes,
                               .lanes_count = w->lanes_count,
                               .known = known,
                               .known_count = weir__registry_known(w->registry, known),
                               .draining = draining,
                               .metrics = { text.ptr, text.len } };
    status = w->store->about->worker_beat(w->store, &row, lease_us, err);
out:
    weir__arena_free(&arena);
    weir__buffer_free(&text);
    return status;
}

static int64_t beat_step(poller *p, bool draining, int64_t now_us)
{
    const int64_t every_us = p->worker->options.beat_us;
    weir_error err = { .size = sizeof err };

    if (beat_tell(p, STORE_WORKER_BEATS * every_us, draining, &err) != WEIR_OK) {
        return poller_failed(p, &err);
    }
    poller_succeeded(p);
    p->beat_draining = draining;
    p->beat_us = now_us + every_us;
    return TASK_NOW;
}

void weir__poller_farewell(poller *p)
{
    weir_error err = { .size = sizeof err };

    if (p->worker != NULL && p->beat_us != POLLER_LONG_AGO && can_beat(p->worker)) {
        /* It ends at once, and what it has counted can still be seen. If it fails, its last beat
         * ends by itself. */
        (void)beat_tell(p, -1, true, &err);
    }
}

/* ---- polling ------------------------------------------------------------------------------ */

/* When the next poll is, after a cycle that ended at now_us with this answer. */
static int64_t next_poll_us(poller *p, const store_poll *answer, int64_t now_us)
{
    worker *w = p->worker;
    const bool unrouted = answer->head > answer->routed_least;
    const bool stuck = (answer->ready || unrouted) && progress_of(w) == p->progress;
    const bool still = answer->due_us == INT64_MAX && answer->lease_end_us == INT64_MAX &&
                       answer->router_end_us == INT64_MAX;
    const int64_t times[] = { answer->due_us, answer->lease_end_us,
                              unrouted ? answer->router_end_us : INT64_MAX };
    const int64_t sleep_us = p->idle_us;
    int64_t next_us = now_us + sleep_us -
                      (int64_t)(w->scheduler->random(w->scheduler) % ((uint64_t)sleep_us / 8 + 1));

    if (still && (stuck || (!answer->ready && !unrouted))) {
        p->idle_us = time_least(p->idle_us * 2, POLLER_IDLE_US_MAX);
    } else {
        p->idle_us = cycle_us(w);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        /* What has passed already was answered with `ready`, or waits for something else. */
        if (times[i] != INT64_MAX && times[i] > answer->now_us) {
            next_us = time_least(next_us, now_us + (times[i] - answer->now_us));
        }
    }
    return next_us > now_us + POLLER_SLEEP_US_MIN ? next_us : now_us + POLLER_SLEEP_US_MIN;
}

/* The answers of all lanes are there. */
static void cycle_ended(poller *p, int64_t now_us)
{
    worker *w = p->worker;
    const store_poll *answer = &p->sum;

    p->polled_us = now_us;
    p->store_ahead_us = answer->now_us - now_us;
    p->poll_us = next_poll_us(p, answer, now_us);
    p->progress = progress_of(w);
    weir__lock(&w->mu);
    w->polled = *answer;
    w->polled.lane = (weir_str){ 0 };
    w->polled_ours = p->routed_ours;
    w->polled_once = w->ask_number == p->ask_number;
    weir__unlock(&w->mu);
    if (answer->head > answer->routed_least) {
        weir__router_ask(&w->router);
    }
}

static void add_answer(poller *p, const store_poll *answer)
{
    store_poll *sum = &p->sum;
    const store_poll before = *sum;

    *sum = *answer;
    if (p->lane_index > 0) {
        sum->ready = sum->ready || before.ready;
        sum->due_us = time_least(sum->due_us, before.due_us);
        sum->lease_end_us = time_least(sum->lease_end_us, before.lease_end_us);
    }
}

/* Before the first question of a cycle: what comes from now on, may not be in the answer. */
static void cycle_begins(poller *p)
{
    worker *w = p->worker;

    atomic_store_explicit(&p->asked, false, memory_order_relaxed);
    atomic_store_explicit(&p->due_hint_us, INT64_MAX, memory_order_relaxed);
    weir__lock(&w->mu);
    p->ask_number = w->ask_number;
    weir__unlock(&w->mu);
    p->routed_ours = atomic_load_explicit(&w->routed_ours, memory_order_relaxed);
}

static int64_t poll_step(poller *p)
{
    worker *w = p->worker;
    const bool one_by_one = w->some_lanes || w->lanes_count == 1;
    const size_t questions = one_by_one && w->lanes_count > 0 ? w->lanes_count : 1;
    weir_error err = { .size = sizeof err };
    store_poll answer = { 0 };

    if (p->lane_index == 0) {
        cycle_begins(p);
    }
    if (one_by_one && w->lanes_count > 0) {
        answer.lane = w->lanes[p->lane_index].config.name;
    }
    const int64_t asked = weir__worker_log_ask(w);
    if (w->store->work->poll(w->store, &answer, &err) != WEIR_OK) {
        p->lane_index = 0;
        p->poll_failed = true;
        return poller_failed(p, &err);
    }
    p->poll_failed = false;
    poller_succeeded(p);
    (void)weir__worker_log_is(w, asked, answer.epoch, answer.log);
    add_answer(p, &answer);
    if (answer.ready && questions > 1) {
        weir__lane_ask(&w->lanes[p->lane_index]);
    } else if (answer.ready) {
        weir__worker_wake_lanes(w);
    }
    p->lane_index++;
    if (p->lane_index == questions) {
        p->lane_index = 0;
        cycle_ended(p, weir__task_now(&p->task));
    }
    return TASK_NOW;
}

/* Takes the hints of others into account. */
static void take_hints(poller *p, int64_t now_us)
{
    const int64_t hint_us = atomic_load_explicit(&p->due_hint_us, memory_order_relaxed);

    if (atomic_exchange_explicit(&p->stirred, false, memory_order_relaxed)) {
        p->idle_us = cycle_us(p->worker);
        p->poll_us = time_least(p->poll_us, p->polled_us + p->idle_us);
    }
    if (hint_us != INT64_MAX) {
        p->poll_us = time_least(p->poll_us, hint_us - p->store_ahead_us);
    }
    if (atomic_load_explicit(&p->asked, memory_order_relaxed)) {
        p->poll_us = time_least(p->poll_us, now_us);
    }
}

static int64_t poller_step(task *t)
{
    poller *p = (poller *)(void *)t; /* the task is its first member */
    const int64_t now_us = weir__task_now(t);
    const bool draining = weir__worker_draining(p->worker);
    const bool beats = can_beat(p->worker);
    const bool beat_is_due = beats && (now_us >= p->beat_us || draining != p->beat_draining);

    if (now_us < p->retry_us) {
        return p->retry_us;
    }
    take_hints(p, now_us);
    /* A read may wait for a file that was removed; only a write finds out that the store is gone
     * for good. So while polls fail, a beat that is due takes turns with them. */
    const bool polls = p->lane_index > 0 || now_us >= p->poll_us;
    if (polls && !(beat_is_due && p->poll_failed)) {
        return poll_step(p);
    }
    p->poll_failed = false;
    if (beat_is_due) {
        return beat_step(p, draining, now_us);
    }
    return beats ? time_least(p->poll_us, p->beat_us) : p->poll_us;
}

void weir__poller_stir(poller *p)
{
    atomic_store_explicit(&p->stirred, true, memory_order_relaxed);
    weir__task_wake(&p->task);
}

void weir__poller_ask(poller *p)
{
    atomic_store_explicit(&p->asked, true, memory_order_relaxed);
    weir__task_wake(&p->task);
}

void weir__worker_due(worker *w, int64_t until_us)
{
    _Atomic int64_t *hint = &w->poller.due_hint_us;
    int64_t before_us = atomic_load_explicit(hint, memory_order_relaxed);

    while (until_us < before_us &&
           !atomic_compare_exchange_weak_explicit(hint, &before_us, until_us, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    if (until_us < before_us) {
        weir__task_wake(&w->poller.task);
    }
}

weir_status weir__poller_init(poller *p, worker *w, weir_error *err)
{
    (void)err;
    *p = (poller){
        .task = { .step = poller_step, .name = "poller", .scheduler = w->scheduler },
        .worker = w,
        .due_hint_us = INT64_MAX,
        .polled_us = POLLER_LONG_AGO,
        .poll_us = POLLER_LONG_AGO,
        .beat_us = POLLER_LONG_AGO,
        .retry_us = POLLER_LONG_AGO,
        .idle_us = cycle_us(w),
    };
    return WEIR_OK;
}
