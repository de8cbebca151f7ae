/* engine.c - the engine behind weir.h: reactions are collected, then a worker runs on threads.
 *
 *   OPEN --start--> STARTING --> RUNNING --stop--> STOPPING --> STOPPED
 *     ^                 |
 *     +--- it fails ----+
 *
 * INVARIANTS
 *   (1) The threads end before the worker is closed, and the worker before the registry: steps use
 *       both.
 *   (2) A handler that does not end within the budget keeps its thread, the worker and the registry
 *       alive until weir_engine_free, which waits for it.
 *   (3) Calls that use the worker from outside its threads are counted in `users`. The worker is
 *       not closed while there are any, and none begins while it is being closed.
 *
 * THREADS  Any thread may call anything, at any time: a weir_engine * is a ticket (base/handle.h).
 * `mu` guards the state; it is not held over a call into the worker. Waits end when the engine is
 * stopped or freed (pull_fd), and when its store's handle is interrupted or closed (waits.h).
 */
#include "api/api.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/struct.h"
#include "engine/child/child.h"
#include "engine/delivery.h"
#include "engine/room.h"
#include "engine/threads.h"
#include "engine/worker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_US      INT64_C(5000)    /* how often the end of something is looked for */
#define INTERRUPT_US INT64_C(3000000) /* for programs to be ended, after the budget   */
#define END_US       INT64_C(500000)  /* for threads and calls that have nothing to do to end */

typedef enum engine_state {
    ENGINE_OPEN,
    ENGINE_STARTING,
    ENGINE_RUNNING,
    ENGINE_STOPPING,
    ENGINE_STOPPED
} engine_state;

typedef struct engine_core {
    /* immutable after opening */
    const weir *w;   /* ticket of the store's handle; it may end before the engine */
    weir_core *core; /* held */
    weir_engine_options options;
    weir_arena arena; /* owned: what options point to */
    int pull_fd;      /* owned; a semaphore: deliveries that may wait for weir_next. Has plenty from
                         the stop on, so that everybody wakes up */

    /* changed under mu while OPEN; then by the call that starts or stops, one at a time */
    registry registry;
    child_keeper *keeper; /* owned; NULL: no reaction has a program */
    threads *threads;     /* owned; from start on */

    weir_mutex mu;
    weir_cond left; /* users became 0, or the worker was closed */
    /* guarded by mu */
    engine_state state;
    worker *worker;  /* owned; from start on; NULL again after stop */
    bool closing;    /* nobody becomes a user any more */
    bool freeing;    /* nobody waits any more */
    size_t users;    /* all of them, */
    size_t settling; /* and those among them that are in a call of the store */
} engine_core;

static int64_t mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

/* As weir__enter, of an engine. */
static weir_status engine_enter(const weir_engine *e, engine_core **out, weir_error *err)
{
    if (e == NULL) {
        return weir__fail(err, WEIR_EINVAL, "engine is NULL");
    }
    engine_core *c = weir__handle_enter(HANDLE_ENGINE, e);
    if (c == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "this is not an engine, or it was freed");
    }
    if (c->core->fork_generation != weir__fork_generation()) {
        weir__handle_leave(e);
        return weir__fail(err, WEIR_EMISUSE,
                          "the engine was opened before a fork; open another in the child");
    }
    *out = c;
    return WEIR_OK;
}

static void engine_leave(const weir_engine *e)
{
    weir__handle_leave(e);
}

/* ---- users of the worker ------------------------------------------------------------------ */

static weir_status not_running(weir_error *err)
{
    return weir__fail(err, WEIR_EMISUSE, "the engine does not run");
}

/* Whether a call may go on waiting. */
static bool engine_goes_on(engine_core *c)
{
    weir__lock(&c->mu);
    const bool yes = c->state == ENGINE_RUNNING && !c->freeing;
    weir__unlock(&c->mu);
    return yes;
}

/* The worker, until user_end. NULL: there is none, or it is being closed. running: it has to run,
 * and not be about to stop. */
static worker *user_begin(engine_core *c, bool running)
{
    worker *found = NULL;
    weir__lock(&c->mu);
    if (!c->closing && (!running || c->state == ENGINE_RUNNING)) {
        found = c->worker;
        c->users += found != NULL;
    }
    weir__unlock(&c->mu);
    return found;
}

static void user_end(engine_core *c)
{
    weir__lock(&c->mu);
    if (--c->users == 0) {
        weir__cond_broadcast(&c->left);
    }
    weir__unlock(&c->mu);
}

/* Wakes every call that waits for a delivery, now and later. */
static void wake_waiting(const engine_core *c)
{
    const uint64_t plenty = UINT32_MAX;
    const ssize_t written = write(c->pull_fd, &plenty, sizeof plenty);
    (void)written; /* it can only be full, and then it is readable */
}

/* ---- opening and declaring ---------------------------------------------------------------- */

static bool copy_lanes(engine_core *e)
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

static weir_status options_check(const weir_engine_options *o, const weir_core *core,
                                 weir_error *err)
{
    if ((o->flags & ~(uint32_t)WEIR_ENGINE_REDECLARE) != 0) {
        return weir__fail(err, WEIR_EINVAL, "weir_engine_options has unknown flags %u", o->flags);
    }
    if (o->lost_max < 0 || (o->lanes_count > 0 && o->lanes == NULL)) {
        return weir__fail(err, WEIR_EINVAL, "weir_engine_options: lost_max or lanes is bad");
    }
    if (o->memory_limit_bytes != 0 &&
        (o->memory_limit_bytes < ROOM_BYTES_MIN || o->memory_limit_bytes > ROOM_BYTES_MAX)) {
        return weir__fail(
            err, WEIR_EINVAL, "memory_limit_bytes is %lld, allowed 0 (256 MiB) or %lld to %lld",
            (long long)o->memory_limit_bytes, (long long)ROOM_BYTES_MIN, (long long)ROOM_BYTES_MAX);
    }
    return core->readonly ? weir__fail(err, WEIR_EMISUSE, "the store was opened for reading only")
                          : WEIR_OK;
}

/* After the last call on it. */
static void engine_end(void *object);

static engine_core *engine_new(const weir *w, weir_core *core, const weir_engine_options *o)
{
    engine_core *e = weir__calloc(1, sizeof *e);
    if (e == NULL || !weir__mutex_init(&e->mu)) {
        weir__free(e);
        return NULL;
    }
    if (!weir__cond_init(&e->left)) {
        weir__mutex_destroy(&e->mu);
        weir__free(e);
        return NULL;
    }
    weir__core_hold(core);
    e->w = w;
    e->core = core;
    e->options = *o;
    e->pull_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (e->pull_fd < 0 || !copy_lanes(e)) {
        engine_end(e);
        return NULL;
    }
    return e;
}

int32_t weir_engine_open(weir *w, const weir_engine_options *options, weir_engine **out,
                         weir_error *err)
{
    weir_engine_options o = { WEIR_ENGINE_OPTIONS_INIT };
    weir_core *core = NULL;
    if (out == NULL) {
        return weir__fail(err, WEIR_EINVAL, "there is nowhere to put the engine: out is NULL");
    }
    weir_status status = weir__enter(w, &core, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (options != NULL) {
        status = weir__struct_copy(&o, sizeof o, options, "weir_engine_options", err);
    }
    if (status == WEIR_OK) {
        status = options_check(&o, core, err);
    }
    if (status == WEIR_OK) {
        engine_core *e = engine_new(w, core, &o);
        weir_engine *ticket = e == NULL ? NULL : weir__handle_open(HANDLE_ENGINE, e, engine_end);
        if (e == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate an engine");
        } else if (ticket == NULL) {
            engine_end(e);
            status = weir__fail(err, WEIR_EBUSY, "%d handles are open already", HANDLES_MAX);
        } else {
            *out = ticket;
        }
    }
    weir__leave(w);
    return status;
}

static weir_status declare_check_locked(const engine_core *e, const void *declared, weir_error *err)
{
    if (e->state != ENGINE_OPEN) {
        return weir__fail(err, WEIR_EMISUSE, "the engine was started already");
    }
    return declared == NULL ? weir__fail(err, WEIR_EINVAL, "the declaration is NULL") : WEIR_OK;
}

int32_t weir_engine_lane(weir_engine *ticket, const weir_lane *lane, weir_error *err)
{
    weir_lane l = { WEIR_LANE_INIT };
    engine_core *e = NULL;
    weir_status status = engine_enter(ticket, &e, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&e->mu);
    status = declare_check_locked(e, lane, err);
    if (status == WEIR_OK) {
        status = weir__struct_copy(&l, sizeof l, lane, "weir_lane", err);
    }
    if (status == WEIR_OK) {
        status = weir__registry_lane(&e->registry, &l, err);
    }
    weir__unlock(&e->mu);
    engine_leave(ticket);
    return status;
}

int32_t weir_engine_reaction(weir_engine *ticket, const weir_reaction *declared, weir_error *err)
{
    weir_reaction q = { WEIR_REACTION_INIT };
    engine_core *e = NULL;
    weir_status status = engine_enter(ticket, &e, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&e->mu);
    status = declare_check_locked(e, declared, err);
    if (status == WEIR_OK) {
        status = weir__struct_copy(&q, sizeof q, declared, "weir_reaction", err);
    }
    if (status == WEIR_OK) {
        status = weir__registry_reaction(&e->registry, &q, err);
    }
    weir__unlock(&e->mu);
    engine_leave(ticket);
    return status;
}

/* ---- starting ----------------------------------------------------------------------------- */

static void engine_log(void *ctx, int level, const char *event, const log_field *fields,
                       size_t count)
{
    const engine_core *e = ctx;
    weir_buffer json = { 0 };
    if (weir__log_to_json(&json, fields, count)) {
        e->options.log(e->options.log_ctx, level, (weir_str){ event, strlen(event) },
                       (weir_str){ json.ptr, json.len });
    }
    weir__buffer_free(&json);
}

static void pull_told(void *ctx)
{
    const engine_core *e = ctx;
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

static void worker_set(engine_core *e, worker *w, engine_state state)
{
    weir__lock(&e->mu);
    e->worker = w;
    e->state = state;
    weir__cond_broadcast(&e->left);
    weir__unlock(&e->mu);
}

static weir_status start_worker(engine_core *e, worker **out, weir_error *err)
{
    weir_store *store = e->core->store;
    weir_status status = weir__threads_open(&e->threads, err);
    if (status != WEIR_OK) {
        return status;
    }
    const char *application = e->core->url.options.application;
    const worker_options o = { .application = { application, strlen(application) },
                               .lost_max = e->options.lost_max,
                               .payload_bytes = e->core->url.options.payload_bytes,
                               .memory_bytes = e->options.memory_limit_bytes,
                               .log = e->options.log == NULL ? NULL : engine_log,
                               .log_ctx = e,
                               .lanes = e->options.lanes,
                               .lanes_count = e->options.lanes_count,
                               .committer = e->core->committer,
                               .keeper = e->keeper,
                               .pull_cb = pull_told,
                               .pull_ctx = e };
    status =
        weir__worker_open(out, store, &e->registry, &o, weir__threads_scheduler(e->threads), err);
    if (status == WEIR_OK) {
        size_t count;
        task *const *tasks = weir__worker_tasks(*out, &count);
        status = weir__threads_start(e->threads, tasks, count, err);
    }
    /* After the tasks, which can be woken only now. It begins with a wake-up: nothing is missed. */
    if (status == WEIR_OK) {
        status = weir__threads_watch(e->threads, store, store_woken, *out, err);
    }
    return status;
}

/* STARTING: nobody else touches the registry. */
static weir_status start_all(engine_core *e, weir_error *err)
{
    worker *made = NULL;
    weir_status status = weir__registry_check(&e->registry, err);
    /* Before any thread: it is a copy of this process. */
    if (status == WEIR_OK && has_program(&e->registry)) {
        status = weir__child_keeper_open(&e->keeper, err);
    }
    if (status == WEIR_OK) {
        const bool redeclare = (e->options.flags & WEIR_ENGINE_REDECLARE) != 0;
        status = weir__registry_declare(&e->registry, e->core->store, redeclare, err);
    }
    if (status == WEIR_OK) {
        status = start_worker(e, &made, err);
    }
    if (status != WEIR_OK) {
        weir__threads_free(e->threads);
        e->threads = NULL;
        weir__worker_close(made);
        weir__child_keeper_close(e->keeper);
        e->keeper = NULL;
        made = NULL;
    }
    worker_set(e, made, status == WEIR_OK ? ENGINE_RUNNING : ENGINE_OPEN);
    return status;
}

int32_t weir_engine_start(weir_engine *ticket, weir_error *err)
{
    engine_core *e = NULL;
    weir_core *core = NULL;
    weir_status status = engine_enter(ticket, &e, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__enter(e->w, &core, err);
    if (status == WEIR_OK) {
        weir__lock(&e->mu);
        const bool opened = e->state == ENGINE_OPEN;
        e->state = opened ? ENGINE_STARTING : e->state;
        weir__unlock(&e->mu);
        status = opened ? start_all(e, err)
                        : weir__fail(err, WEIR_EMISUSE, "the engine was started already");
        weir__leave(e->w);
    }
    engine_leave(ticket);
    return status;
}

/* ---- waiting and stopping ----------------------------------------------------------------- */

/* Whether `holds` became true by then. */
static bool worker_await(worker *w, bool (*holds)(worker *w), int64_t until_us)
{
    bool there = holds(w);
    while (!there && mono_us() < until_us) {
        weir__clock_pause(LOOK_US);
        there = holds(w);
    }
    return there;
}

static int64_t until_us_of(int32_t timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : mono_us() + (int64_t)timeout_ms * 1000;
}

static weir_status stopped_meanwhile(weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "the engine was stopped meanwhile");
}

/* Whether the engine does no more work: WEIR_ECORRUPT, and why. */
static weir_status damaged_meanwhile(worker *w, weir_error *err)
{
    return weir__worker_damaged(w, err) ? weir__wrap(err, WEIR_ECORRUPT, "the engine has ended")
                                        : WEIR_OK;
}

static weir_status await_idle(engine_core *e, worker *w, int32_t timeout_ms, weir_error *err)
{
    const int64_t until_us = until_us_of(timeout_ms);
    wait_mark mark;
    weir_status status = WEIR_OK;
    weir__waits_begin(&e->core->waits, &mark);
    weir__worker_ask(w);
    while (status == WEIR_OK && !weir__worker_out_of_work(w)) {
        if (!engine_goes_on(e)) {
            status = stopped_meanwhile(err);
        } else if (weir__worker_damaged(w, NULL)) {
            status = damaged_meanwhile(w, err);
        } else if (!weir__waits_goes_on(&e->core->waits, &mark)) {
            status = weir__waits_failed(err);
        } else if (mono_us() >= until_us) {
            status = weir__fail(err, WEIR_EBUSY, "there is still work after %d ms", timeout_ms);
        } else {
            weir__clock_pause(LOOK_US);
        }
    }
    weir__waits_end(&e->core->waits, &mark);
    return status;
}

/* What a call that waits begins with: inside the engine, inside the store's handle, and a user of
 * the worker. */
static weir_status waiting_enter(const weir_engine *ticket, engine_core **e, worker **w,
                                 weir_error *err)
{
    weir_core *core = NULL;
    weir_status status = engine_enter(ticket, e, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__enter((*e)->w, &core, err);
    if (status == WEIR_OK) {
        *w = user_begin(*e, true);
        if (*w != NULL) {
            return WEIR_OK;
        }
        weir__leave((*e)->w);
        status = not_running(err);
    }
    engine_leave(ticket);
    return status;
}

static void waiting_leave(const weir_engine *ticket, engine_core *e)
{
    user_end(e);
    weir__leave(e->w);
    engine_leave(ticket);
}

int32_t weir_engine_wait_idle(weir_engine *ticket, int32_t timeout_ms, weir_error *err)
{
    engine_core *e = NULL;
    worker *w = NULL;
    weir_status status = waiting_enter(ticket, &e, &w, err);
    if (status == WEIR_OK) {
        status = await_idle(e, w, timeout_ms, err);
        waiting_leave(ticket, e);
    }
    return status;
}

void weir__engine_drain(weir_engine *ticket)
{
    engine_core *e = NULL;
    if (engine_enter(ticket, &e, NULL) == WEIR_OK) {
        worker *w = user_begin(e, false);
        if (w != NULL) {
            weir__worker_drain(w);
            user_end(e);
        }
        engine_leave(ticket);
    }
}

bool weir__engine_damaged(weir_engine *ticket, weir_error *how)
{
    engine_core *e = NULL;
    bool damaged = false;
    if (engine_enter(ticket, &e, NULL) == WEIR_OK) {
        worker *w = user_begin(e, false);
        if (w != NULL) {
            damaged = weir__worker_damaged(w, how);
            user_end(e);
        }
        engine_leave(ticket);
    }
    return damaged;
}

bool weir__engine_drained(weir_engine *ticket)
{
    engine_core *e = NULL;
    bool drained = true;
    if (engine_enter(ticket, &e, NULL) == WEIR_OK) {
        worker *w = user_begin(e, false);
        if (w != NULL) {
            drained = weir__worker_idle(w);
            user_end(e);
        }
        engine_leave(ticket);
    }
    return drained;
}

bool weir__engine_counted(weir_engine *ticket, int64_t *handled, int64_t *failed)
{
    engine_core *e = NULL;
    bool known = false;
    if (engine_enter(ticket, &e, NULL) == WEIR_OK) {
        worker *w = user_begin(e, false);
        if (w != NULL) {
            const metrics *m = weir__worker_metrics(w);
            *handled = (int64_t)weir__metric_get(m, METRIC_HANDLED);
            *failed = (int64_t)weir__metric_get(m, METRIC_FAILED);
            known = true;
            user_end(e);
        }
        engine_leave(ticket);
    }
    return known;
}

bool weir__engine_rests(weir_engine *ticket, char *name, size_t bytes)
{
    engine_core *e = NULL;
    bool rests = false;
    if (engine_enter(ticket, &e, NULL) == WEIR_OK) {
        worker *w = user_begin(e, false);
        if (w != NULL) {
            const weir_str text = weir__worker_name(w);
            (void)snprintf(name, bytes, "%.*s", (int)text.len, text.ptr);
            rests = weir__worker_rests(w);
            user_end(e);
        }
        engine_leave(ticket);
    }
    return rests;
}

/* Waits for the users of the worker to leave, and lets no new ones begin. Calls that settle have
 * until until_us (INT64_MAX: as long as they take); the others wait for nothing and leave as
 * soon as they run. true: the worker is ours alone. false: time is up, and users may begin
 * again. */
static bool users_leave(engine_core *e, int64_t until_us)
{
    bool in_time = true;
    weir__lock(&e->mu);
    e->closing = true;
    while (e->users > 0 && (in_time || e->settling == 0)) {
        if (e->settling == 0 || until_us == INT64_MAX) {
            weir__cond_wait(&e->left, &e->mu);
        } else {
            in_time = weir__cond_wait_until(&e->left, &e->mu, until_us);
        }
    }
    const bool alone = e->users == 0;
    e->closing = alone;
    weir__unlock(&e->mu);
    return alone;
}

/* STOPPING. w: the worker. */
static weir_status stop_all(engine_core *e, worker *w, int32_t budget_ms, weir_error *err)
{
    weir__worker_drain(w);
    bool idle = worker_await(w, weir__worker_idle, until_us_of(budget_ms < 0 ? 0 : budget_ms));
    if (!idle) {
        weir__worker_interrupt(w);
        /* Programs are ended and their end is waited for; a function cannot be. */
        idle = e->keeper != NULL && worker_await(w, weir__worker_idle, mono_us() + INTERRUPT_US);
    }
    const bool ended = weir__threads_stop(e->threads, idle ? INT64_MAX : mono_us() + END_US) &&
                       users_leave(e, idle ? INT64_MAX : mono_us() + END_US);
    if (!ended) {
        worker_set(e, w, ENGINE_STOPPED);
        return weir__fail(err, WEIR_EBUSY,
                          "a handler, or a call of the store, was still running after %d ms",
                          budget_ms);
    }
    weir__threads_free(e->threads); /* before the worker: it has the tasks */
    e->threads = NULL;
    weir__worker_close(w);
    worker_set(e, NULL, ENGINE_STOPPED);
    return WEIR_OK;
}

/* RUNNING --> STOPPING. The worker, or NULL: it does not run. */
static worker *stop_begin(engine_core *e)
{
    weir__lock(&e->mu);
    const bool runs = e->state == ENGINE_RUNNING;
    e->state = runs ? ENGINE_STOPPING : e->state;
    worker *w = runs ? e->worker : NULL;
    weir__unlock(&e->mu);
    if (runs) {
        wake_waiting(e);
    }
    return w;
}

int32_t weir_engine_stop(weir_engine *ticket, int32_t budget_ms, weir_error *err)
{
    engine_core *e = NULL;
    weir_status status = engine_enter(ticket, &e, err);
    if (status == WEIR_OK) {
        worker *w = stop_begin(e);
        status = w == NULL ? not_running(err) : stop_all(e, w, budget_ms, err);
        engine_leave(ticket);
    }
    return status;
}

static void engine_end(void *object)
{
    engine_core *e = object;
    /* In a forked child the threads and what they hold are the parent's. */
    if (e->core->fork_generation == weir__fork_generation()) {
        worker *w = stop_begin(e);
        if (w != NULL) {
            (void)stop_all(e, w, 0, NULL); /* what still runs is waited for below */
        }
        weir__threads_free(e->threads);
        weir__worker_close(e->worker);
        weir__cond_destroy(&e->left);
        weir__mutex_destroy(&e->mu);
    }
    weir__child_keeper_close(e->keeper);
    weir__registry_free(&e->registry);
    weir__arena_free(&e->arena);
    if (e->pull_fd >= 0) {
        (void)close(e->pull_fd);
    }
    weir__core_drop(e->core);
    weir__free(e);
}

void weir_engine_free(weir_engine *ticket)
{
    engine_core *e = ticket == NULL ? NULL : weir__handle_shut(HANDLE_ENGINE, ticket);
    if (e == NULL) {
        return;
    }
    const bool forked = e->core->fork_generation != weir__fork_generation();
    if (!forked) {
        weir__lock(&e->mu);
        e->freeing = true;
        weir__unlock(&e->mu);
        wake_waiting(e);
    }
    weir__handle_end(ticket, forked);
}

/* ---- pulling ------------------------------------------------------------------------------ */

/* Whether one was counted. It may be one too many: a delivery that was taken back. */
static bool caller_uncount(const engine_core *e)
{
    uint64_t one;
    return read(e->pull_fd, &one, sizeof one) == (ssize_t)sizeof one;
}

/* Until there may be a delivery. left_us: INT64_MAX: without end. WEIR_EINTERRUPTED. */
static weir_status await_delivery(engine_core *e, const wait_mark *mark, int64_t left_us,
                                  weir_error *err)
{
    struct pollfd fds[] = { { .fd = e->pull_fd, .events = POLLIN },
                            { .fd = weir__waits_fd(&e->core->waits), .events = POLLIN } };
    const int64_t left_ms = left_us == INT64_MAX ? -1 : (left_us + 999) / 1000;
    (void)poll(fds, 2, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    return weir__waits_goes_on(&e->core->waits, mark) ? WEIR_OK : weir__waits_failed(err);
}

static weir_status pull_next(engine_core *e, worker *w, int32_t timeout_ms, weir_delivery **out,
                             weir_error *err)
{
    const int64_t until_us = until_us_of(timeout_ms);
    weir_status status = WEIR_OK;
    wait_mark mark;
    weir__waits_begin(&e->core->waits, &mark);
    while (status == WEIR_OK) {
        if (!engine_goes_on(e)) {
            status = stopped_meanwhile(err);
            break;
        }
        weir_delivery *d = weir__worker_next(w);
        const bool counted = caller_uncount(e);
        if (d != NULL) {
            *out = d;
            break;
        }
        status = damaged_meanwhile(w, err);
        if (status != WEIR_OK) {
            break;
        }
        if (counted) {
            continue; /* it may have come between the two */
        }
        const int64_t left_us = until_us == INT64_MAX ? INT64_MAX : until_us - mono_us();
        status = left_us <= 0
                     ? weir__fail(err, WEIR_ENOTFOUND, "no delivery within %d ms", timeout_ms)
                     : await_delivery(e, &mark, left_us, err);
    }
    weir__waits_end(&e->core->waits, &mark);
    return status;
}

int32_t weir_next(weir_engine *ticket, int32_t timeout_ms, weir_delivery **out, weir_error *err)
{
    engine_core *e = NULL;
    worker *w = NULL;
    weir_status status = waiting_enter(ticket, &e, &w, err);
    if (status == WEIR_OK) {
        status = out == NULL ? weir__fail(err, WEIR_EINVAL,
                                          "there is nowhere to put the delivery: out is NULL")
                             : pull_next(e, w, timeout_ms, out, err);
        waiting_leave(ticket, e);
    }
    return status;
}

int32_t weir_engine_fd(const weir_engine *ticket)
{
    engine_core *e = NULL;
    if (engine_enter(ticket, &e, NULL) != WEIR_OK) {
        return -1;
    }
    const int fd = e->pull_fd;
    engine_leave(ticket);
    return fd;
}

/* A delivery that was taken back belongs to its caller alone, with the engine or without. */
static weir_status settle_late(weir_delivery *d, weir_error *err)
{
    weir__pulled_drop(d);
    return weir__fail(err, WEIR_ELOST, "the engine was stopped, and its lease given back");
}

/* As user_begin; when the worker is being closed, after that: what was pulled has been taken back
 * then. */
static worker *settle_begin(engine_core *e)
{
    weir__lock(&e->mu);
    while (e->closing && e->worker != NULL) {
        weir__cond_wait(&e->left, &e->mu);
    }
    worker *w = e->worker;
    e->users += w != NULL;
    e->settling += w != NULL;
    weir__unlock(&e->mu);
    return w;
}

static void settle_end(engine_core *e)
{
    weir__lock(&e->mu);
    e->users--;
    e->settling--;
    weir__cond_broadcast(&e->left);
    weir__unlock(&e->mu);
}

int32_t weir_settle(weir_engine *ticket, weir_delivery *d, int32_t outcome, weir_error *err)
{
    engine_core *e = NULL;
    weir_status status = engine_enter(ticket, &e, err);
    const bool pulled = d != NULL && d->pulled != NULL;
    if (status != WEIR_OK) {
        /* The engine is gone: so is the lease. */
        return ticket != NULL && pulled && atomic_load(d->interrupted) ? settle_late(d, err)
                                                                       : status;
    }
    if (!pulled) {
        status = weir__fail(err, WEIR_EMISUSE, "only a delivery of weir_next is settled");
    } else {
        worker *w = settle_begin(e);
        if (w != NULL) {
            status = weir__worker_settle(w, d, outcome, err);
            settle_end(e);
        } else {
            status = settle_late(d, err);
        }
    }
    engine_leave(ticket);
    return status;
}
