/* engine.c - the engine behind weir.h: reactions are collected, then a worker runs on threads.
 *
 *   OPEN --start--> RUNNING --stop--> STOPPED
 *     ^               |
 *     +-- start fails-+
 *
 * INVARIANTS
 *   (1) The threads end before the worker is closed, and the worker before the registry: steps use
 *       both.
 *   (2) A handler that does not end within the budget keeps its thread, the worker and the registry
 *       alive until weir_engine_free, which waits for it.
 *
 * THREADS  weir_next, weir_settle and weir_engine_wait_idle: any thread while it runs. Everything
 * else belongs to one thread at a time.
 */
#include "api/api.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/struct.h"
#include "engine/child/child.h"
#include "engine/delivery.h"
#include "engine/threads.h"
#include "engine/worker.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_US      INT64_C(5000)    /* how often the end of something is looked for */
#define INTERRUPT_US INT64_C(3000000) /* for programs to be ended, after the budget   */
#define END_US       INT64_C(500000)  /* for threads that have nothing to do to end   */

typedef enum engine_state { ENGINE_OPEN, ENGINE_RUNNING, ENGINE_STOPPED } engine_state;

struct weir_engine {
    weir *w; /* borrowed */
    weir_engine_options options;
    weir_arena arena; /* owned: what options point to */
    registry registry;
    child_keeper *keeper; /* owned; NULL: no reaction has a program */
    threads *threads;     /* owned; from start on */
    worker *worker;       /* owned; from start on */
    int pull_fd;          /* owned; a semaphore: deliveries that may wait for weir_next */
    engine_state state;
};

static int64_t mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

static weir_status engine_check(const weir_engine *e, weir_error *err)
{
    if (e == NULL) {
        return weir__fail(err, WEIR_EINVAL, "engine is NULL");
    }
    return weir__handle_check(e->w, err);
}

static weir_status running_check(const weir_engine *e, weir_error *err)
{
    const weir_status status = engine_check(e, err);
    if (status == WEIR_OK && e->state != ENGINE_RUNNING) {
        return weir__fail(err, WEIR_EMISUSE, "the engine does not run");
    }
    return status;
}

/* ---- opening and declaring ---------------------------------------------------------------- */

static bool copy_lanes(weir_engine *e)
{
    const size_t count = e->options.lanes_count;
    weir_str *lanes = weir__arena_alloc(&e->arena, (count == 0 ? 1 : count) * sizeof *lanes);
    for (size_t i = 0; lanes != NULL && i < count; i++) {
        lanes[i] = e->options.lanes[i];
        lanes[i].ptr = weir__arena_copy(&e->arena, lanes[i].ptr, lanes[i].len);
        if (lanes[i].ptr == NULL) {
            return false;
        }
    }
    e->options.lanes = lanes;
    return lanes != NULL;
}

int32_t weir_engine_open(weir_engine **out, weir *w, const weir_engine_options *options,
                         weir_error *err)
{
    weir_engine_options o = { WEIR_ENGINE_OPTIONS_INIT };
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the engine: out is NULL");
    }
    weir_status status = weir__handle_check(w, err);
    if (status == WEIR_OK && options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_engine_options", err);
    }
    if (status == WEIR_OK && (o.flags & ~(uint32_t)WEIR_ENGINE_REDECLARE) != 0) {
        status = weir__fail(err, WEIR_EINVAL, "weir_engine_options has unknown flags %u", o.flags);
    }
    if (status == WEIR_OK && (o.lost_max < 0 || (o.lanes_count > 0 && o.lanes == NULL))) {
        status = weir__fail(err, WEIR_EINVAL, "weir_engine_options: lost_max or lanes is bad");
    }
    if (status == WEIR_OK && w->readonly) {
        status = weir__fail(err, WEIR_EMISUSE, "the store was opened for reading only");
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_engine *e = weir__calloc(1, sizeof *e);
    if (e == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an engine");
    }
    e->w = w;
    e->options = o;
    e->pull_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (e->pull_fd < 0 || !copy_lanes(e)) {
        weir_engine_free(e);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate an engine");
    }
    *out = e;
    return WEIR_OK;
}

static weir_status declare_check(const weir_engine *e, const void *declared, weir_error *err)
{
    const weir_status status = engine_check(e, err);
    if (status == WEIR_OK && e->state != ENGINE_OPEN) {
        return weir__fail(err, WEIR_EMISUSE, "the engine was started already");
    }
    if (status == WEIR_OK && declared == NULL) {
        return weir__fail(err, WEIR_EINVAL, "the declaration is NULL");
    }
    return status;
}

int32_t weir_engine_lane(weir_engine *e, const weir_lane *lane, weir_error *err)
{
    weir_lane l = { WEIR_LANE_INIT };
    weir_status status = declare_check(e, lane, err);
    if (status == WEIR_OK) {
        status = weir__struct_copy(&l, sizeof l, lane, "weir_lane", err);
    }
    return status == WEIR_OK ? weir__registry_lane(&e->registry, &l, err) : status;
}

int32_t weir_engine_reaction(weir_engine *e, const weir_reaction *declared, weir_error *err)
{
    weir_reaction q = { WEIR_REACTION_INIT };
    weir_status status = declare_check(e, declared, err);
    if (status == WEIR_OK) {
        status = weir__struct_copy(&q, sizeof q, declared, "weir_reaction", err);
    }
    return status == WEIR_OK ? weir__registry_reaction(&e->registry, &q, err) : status;
}

/* ---- starting ----------------------------------------------------------------------------- */

static void engine_log(void *ctx, int level, const char *event, const log_field *fields,
                       size_t count)
{
    const weir_engine *e = ctx;
    weir_buffer json = { 0 };
    if (weir__log_to_json(&json, fields, count)) {
        e->options.log(e->options.log_ctx, level, (weir_str){ event, strlen(event) },
                       (weir_str){ json.ptr, json.len });
    }
    weir__buffer_free(&json);
}

static void pull_told(void *ctx)
{
    const weir_engine *e = ctx;
    const uint64_t one = 1;
    const ssize_t written = write(e->pull_fd, &one, sizeof one);
    (void)written; /* it can only be full, and then it is readable */
}

static void store_woken(void *ctx)
{
    weir__worker_wake(ctx);
}

static bool has_program(const registry *r)
{
    for (size_t i = 0; i < r->reactions_count; i++) {
        if (r->reactions[i].mode == REACTION_RUN || r->reactions[i].mode == REACTION_EXEC) {
            return true;
        }
    }
    return false;
}

/* What start has made; the engine is OPEN again. */
static void start_undo(weir_engine *e)
{
    weir__threads_free(e->threads);
    e->threads = NULL;
    weir__worker_close(e->worker);
    e->worker = NULL;
    weir__child_keeper_close(e->keeper);
    e->keeper = NULL;
}

static weir_status start_worker(weir_engine *e, weir_error *err)
{
    weir_store *store = e->w->store;
    weir_status status = weir__threads_open(&e->threads, err);
    if (status != WEIR_OK) {
        return status;
    }
    const char *application = e->w->url.options.application;
    const worker_options o = { .application = { application, strlen(application) },
                               .lost_max = e->options.lost_max,
                               .payload_bytes = e->w->url.options.payload_bytes,
                               .log = e->options.log == NULL ? NULL : engine_log,
                               .log_ctx = e,
                               .lanes = e->options.lanes,
                               .lanes_count = e->options.lanes_count,
                               .committer = e->w->committer,
                               .keeper = e->keeper,
                               .pull_cb = pull_told,
                               .pull_ctx = e };
    status = weir__worker_open(&e->worker, store, &e->registry, &o,
                               weir__threads_scheduler(e->threads), err);
    if (status == WEIR_OK) {
        size_t count;
        task *const *tasks = weir__worker_tasks(e->worker, &count);
        status = weir__threads_start(e->threads, tasks, count, err);
    }
    /* After the tasks, which can be woken only now. It begins with a wake-up: nothing is missed. */
    if (status == WEIR_OK) {
        status = weir__threads_watch(e->threads, store, store_woken, e->worker, err);
    }
    return status;
}

int32_t weir_engine_start(weir_engine *e, weir_error *err)
{
    weir_status status = engine_check(e, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (e->state != ENGINE_OPEN) {
        return weir__fail(err, WEIR_EMISUSE, "the engine was started already");
    }
    status = weir__registry_check(&e->registry, err);
    /* Before any thread: it is a copy of this process. */
    if (status == WEIR_OK && has_program(&e->registry)) {
        status = weir__child_keeper_open(&e->keeper, err);
    }
    if (status == WEIR_OK) {
        const bool redeclare = (e->options.flags & WEIR_ENGINE_REDECLARE) != 0;
        status = weir__registry_declare(&e->registry, e->w->store, redeclare, err);
    }
    if (status == WEIR_OK) {
        status = start_worker(e, err);
    }
    if (status != WEIR_OK) {
        start_undo(e);
        return status;
    }
    e->state = ENGINE_RUNNING;
    return WEIR_OK;
}

/* ---- waiting and stopping ----------------------------------------------------------------- */

/* Whether `holds` became true by then. */
static bool await(const weir_engine *e, bool (*holds)(worker *w), int64_t until_us)
{
    bool there = holds(e->worker);
    while (!there && mono_us() < until_us) {
        weir__clock_pause(LOOK_US);
        there = holds(e->worker);
    }
    return there;
}

static int64_t until_us_of(int32_t timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : mono_us() + (int64_t)timeout_ms * 1000;
}

int32_t weir_engine_wait_idle(weir_engine *e, int32_t timeout_ms, weir_error *err)
{
    const weir_status status = running_check(e, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__worker_ask(e->worker);
    return await(e, weir__worker_out_of_work, until_us_of(timeout_ms))
               ? WEIR_OK
               : weir__fail(err, WEIR_EBUSY, "there is still work after %d ms", timeout_ms);
}

void weir__engine_drain(weir_engine *e)
{
    weir__worker_drain(e->worker);
}

bool weir__engine_drained(weir_engine *e)
{
    return weir__worker_idle(e->worker);
}

int32_t weir_engine_stop(weir_engine *e, int32_t budget_ms, weir_error *err)
{
    const weir_status status = running_check(e, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__worker_drain(e->worker);
    bool idle = await(e, weir__worker_idle, until_us_of(budget_ms < 0 ? 0 : budget_ms));
    if (!idle) {
        weir__worker_interrupt(e->worker);
        /* Programs are ended and their end is waited for; a function cannot be. */
        idle = e->keeper != NULL && await(e, weir__worker_idle, mono_us() + INTERRUPT_US);
    }
    e->state = ENGINE_STOPPED;
    if (!weir__threads_stop(e->threads, idle ? INT64_MAX : mono_us() + END_US)) {
        return weir__fail(err, WEIR_EBUSY,
                          "a handler, or a call of the store, was still running after %d ms",
                          budget_ms);
    }
    weir__threads_free(e->threads); /* before the worker: it has the tasks */
    e->threads = NULL;
    weir__worker_close(e->worker);
    e->worker = NULL;
    return WEIR_OK;
}

void weir_engine_free(weir_engine *e)
{
    if (e == NULL) {
        return;
    }
    if (e->state == ENGINE_RUNNING) {
        const int32_t status = weir_engine_stop(e, 0, NULL);
        (void)status; /* what still runs is waited for below */
    }
    weir__threads_free(e->threads);
    weir__worker_close(e->worker);
    weir__child_keeper_close(e->keeper);
    weir__registry_free(&e->registry);
    weir__arena_free(&e->arena);
    if (e->pull_fd >= 0) {
        (void)close(e->pull_fd);
    }
    weir__free(e);
}

/* ---- pulling ------------------------------------------------------------------------------ */

/* Whether one was counted. It may be one too many: a delivery that was taken back. */
static bool uncount(const weir_engine *e)
{
    uint64_t one;
    return read(e->pull_fd, &one, sizeof one) == (ssize_t)sizeof one;
}

int32_t weir_next(weir_engine *e, int32_t timeout_ms, weir_delivery **out, weir_error *err)
{
    const int64_t until_us = until_us_of(timeout_ms);
    const weir_status status = running_check(e, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the delivery: out is NULL");
    }
    for (;;) {
        weir_delivery *d = weir__worker_next(e->worker);
        const bool counted = uncount(e);
        if (d != NULL) {
            *out = d;
            return WEIR_OK;
        }
        if (counted) {
            continue; /* it may have come between the two */
        }
        const int64_t left_us = until_us == INT64_MAX ? INT64_MAX : until_us - mono_us();
        if (left_us <= 0) {
            return weir__fail(err, WEIR_ENOTFOUND, "no delivery within %d ms", timeout_ms);
        }
        struct pollfd fd = { .fd = e->pull_fd, .events = POLLIN };
        (void)poll(&fd, 1, left_us == INT64_MAX ? -1 : (int)((left_us + 999) / 1000));
    }
}

int32_t weir_engine_fd(const weir_engine *e)
{
    return e == NULL ? -1 : e->pull_fd;
}

int32_t weir_settle(weir_engine *e, weir_delivery *d, int32_t outcome, weir_error *err)
{
    const weir_status status = engine_check(e, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (d == NULL || d->pulled == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "only a delivery of weir_next is settled");
    }
    if (e->worker == NULL) {
        weir__pulled_drop(d);
        return weir__fail(err, WEIR_ELOST, "the engine was stopped, and its lease given back");
    }
    return weir__worker_settle(e->worker, d, outcome, err);
}
