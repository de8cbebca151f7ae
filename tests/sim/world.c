/* world.c - see sim.h: time, chance, processes, and who runs next.
 *
 * What stays true: a task's step is never run inside itself; a process that is killed or closed has
 * no step under way; after every step the store is looked at before anything else happens.
 */
#include "sim.h"

#include "base/error.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define WALL_AHEAD_US INT64_C(1700000000000000)
#define STEP_US_MAX   3000
#define NEVER         INT64_MAX
/* Longer than any lease, backoff and cycle of the fallback poll, a few of them in a row. */
#define DRAIN_US_MAX INT64_C(60000000)
#define IDLE_US      INT64_C(15000000) /* until even the routers have given up their leases */
#define QUIET_US_MAX INT64_C(30000000)

/* ---- chance and telling ------------------------------------------------------------------- */

uint64_t sim_random(sim *s)
{
    s->random += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t x = s->random;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

bool sim_chance(sim *s, uint64_t in_thousand)
{
    return sim_random(s) % 1000 < in_thousand;
}

int64_t sim_between(sim *s, int64_t least, int64_t most)
{
    return least + (int64_t)(sim_random(s) % (uint64_t)(most - least + 1));
}

void sim_fail(sim *s, const char *format, ...)
{
    va_list args;

    if (s->failed) {
        return;
    }
    const int used = snprintf(s->problem, sizeof s->problem, "step %lld: ", (long long)s->steps);
    va_start(args, format);
    (void)vsnprintf(s->problem + used, sizeof s->problem - (size_t)used, format, args);
    va_end(args);
    s->failed = true;
    sim_trace(s, "FAILED: %s", s->problem);
}

void sim_trace(sim *s, const char *format, ...)
{
    va_list args;

    if (!s->trace) {
        return;
    }
    (void)printf("# %6lld %10.3f %*s", (long long)s->steps, (double)s->mono_us / 1e6, 2 * s->depth,
                 "");
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)putchar('\n');
}

/* ---- clock, scheduler, log: what a worker is given ------------------------------------------ */

static int64_t clock_wall(void *ctx)
{
    return ((const sim *)ctx)->mono_us + WALL_AHEAD_US;
}

static int64_t clock_mono(void *ctx)
{
    return ((const sim *)ctx)->mono_us;
}

int64_t sim_store_now(sim *s)
{
    return clock_wall(s);
}

static void wake(scheduler *given, task *t)
{
    (void)given;
    sim_task *own = t->driver;
    if (own != NULL) { /* while it is being opened all tasks are due anyway */
        own->woken = true;
    }
}

static uint64_t scheduler_random(scheduler *given)
{
    sim_process *p = (sim_process *)(void *)((char *)given - offsetof(sim_process, scheduler));
    return sim_random(p->sim);
}

static void worker_log(void *ctx, int level, const char *event, const log_field *fields,
                       size_t count)
{
    sim_process *p = ctx;
    weir_buffer text = { 0 };

    if (p->sim->trace && weir__log_to_text(&text, fields, count)) {
        sim_trace(p->sim, "    p%d says %d %s %.*s", p->number, level, event, (int)text.len,
                  text.ptr == NULL ? "" : text.ptr);
    }
    weir__buffer_free(&text);
}

/* ---- processes ---------------------------------------------------------------------------- */

static weir_store *open_store(sim *s)
{
    char path[64];
    weir_store *store = NULL;
    weir_error err = { .size = sizeof err };

    (void)snprintf(path, sizeof path, "sim-%llu", (unsigned long long)s->seed);
    const store_options options = { .path = weir__str(path),
                                    .busy_us = 1000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .application = "sim",
                                    .clock = &s->clock };
    if (weir__memory_open(&store, &options, &err) != WEIR_OK) {
        sim_fail(s, "could not open the store: %s", err.message);
    }
    return store;
}

static void add_task(sim_process *p, task *t, sim_actor actor, lane *l, slot *own)
{
    sim_task *added = &p->tasks[p->tasks_count++];
    *added = (sim_task){ .task = t, .process = p, .actor = actor, .lane = l, .slot = own };
    t->driver = added;
}

static void add_tasks(sim_process *p)
{
    worker *w = p->worker;
    size_t count = 0;

    p->tasks_count = 0;
    add_task(p, &w->router.task, ACTOR_ROUTER, NULL, NULL);
    add_task(p, &w->poller.task, ACTOR_POLLER, NULL, NULL);
    for (size_t i = 0; i < w->lanes_count; i++) {
        lane *l = &w->lanes[i];
        add_task(p, &l->leasing, ACTOR_LEASING, l, NULL);
        add_task(p, &l->renewing, ACTOR_RENEWING, l, NULL);
        for (size_t j = 0; j < l->slots_count; j++) {
            add_task(p, &l->slots[j].task, ACTOR_SLOT, l, &l->slots[j]);
        }
    }
    (void)weir__worker_tasks(w, &count);
    if (count != p->tasks_count) {
        sim_fail(p->sim, "a worker has %zu tasks, %zu are known", count, p->tasks_count);
    }
}

static void start(sim_process *p)
{
    sim *s = p->sim;
    static const char fast[] = "fast";
    const weir_str lanes[] = { { fast, sizeof fast - 1 } };
    const bool some_lanes = p->number == SIM_PROCESSES - 1;
    weir_error err = { .size = sizeof err };

    p->newer = s->newer_exists && (sim_chance(s, 500) || p->number == 0);
    p->store = open_store(s);
    if (p->store != NULL) {
        sim_watch_settles(s, p->store);
    }
    if (p->store == NULL || weir__fault_open(&p->store, p->store, &err) != WEIR_OK) {
        return;
    }
    sim_declare(p);
    p->scheduler = (scheduler){ .wake = wake, .random = scheduler_random, .clock = &s->clock };
    const worker_options options = { .lost_max = SIM_LOST_MAX,
                                     .log = worker_log,
                                     .log_ctx = p,
                                     .lanes = lanes,
                                     .lanes_count = some_lanes ? 1 : 0,
                                     .pull_cb = sim_pull_told,
                                     .pull_ctx = p };
    const int64_t routed = s->routed[COPY];
    if (weir__registry_declare(&p->reactions, p->store, false, &err) != WEIR_OK ||
        weir__worker_open(&p->worker, p->store, &p->reactions, &options, &p->scheduler, &err) !=
            WEIR_OK) {
        sim_fail(s, "could not start: %s", err.message);
        return;
    }
    if (p->newer && s->newer_from == NEVER) {
        sim_newer_from(s, routed);
    }
    p->up = true;
    p->draining = false;
    p->stopped_until_us = 0;
    p->wake_us = NEVER;
    p->pull_us = NEVER;
    add_tasks(p);
    sim_trace(s, "p%d starts with the %s definitions", p->number, p->newer ? "newer" : "first");
    sim_look(s, ACTOR_START, p, NULL, 0);
}

static void ended(sim_process *p)
{
    sim *s = p->sim;

    p->worker = NULL;
    weir__registry_free(&p->reactions);
    p->reactions = (registry){ 0 };
    p->store->about->close(p->store);
    p->store = NULL;
    p->up = false;
    p->tasks_count = 0;
    p->start_us = s->mono_us + sim_between(s, 0, s->faults ? 3000000 : 0);
}

/* What the worker has counted is kept, before it is no more. */
static void keep_counts(sim_process *p)
{
    for (int i = 0; i < METRIC_COUNTERS; i++) {
        p->sim->counted[i] += weir__metric_get(weir__worker_metrics(p->worker), (metric_counter)i);
    }
}

static void crash(sim_process *p)
{
    sim_trace(p->sim, "p%d is killed", p->number);
    p->sim->crashes++;
    keep_counts(p);
    sim_pull_end(p);
    weir__worker_abandon(p->worker);
    ended(p);
}

size_t sim_beliefs(const sim_process *p, const lane *only, sim_belief *out)
{
    size_t count = 0;

    for (size_t i = 0; i < p->tasks_count; i++) {
        const slot *own = p->tasks[i].slot;
        if (own != NULL && own->state != SLOT_IDLE && (only == NULL || own->lane == only)) {
            out[count++] = (sim_belief){ .target = own->target, .fence = own->fence };
        }
    }
    return count;
}

/* Of the slots of a lane that wait to be settled. */
static size_t finished_beliefs(const lane *l, sim_belief *out)
{
    size_t count = 0;

    for (size_t i = 0; i < l->slots_count; i++) {
        if (l->slots[i].state == SLOT_FINISHED) {
            out[count++] = (sim_belief){ .target = l->slots[i].target, .fence = l->slots[i].fence };
        }
    }
    return count;
}

static void close_process(sim_process *p)
{
    sim_belief beliefs[SIM_TASKS_MAX];
    const size_t count = sim_beliefs(p, NULL, beliefs);

    sim_trace(p->sim, "p%d ends", p->number);
    keep_counts(p);
    sim_pull_end(p);
    weir__worker_close(p->worker);
    sim_look(p->sim, ACTOR_CLOSE, p, beliefs, count);
    ended(p);
}

/* ---- wake-ups ----------------------------------------------------------------------------- */

static void pass_on_wakes(sim *s)
{
    bool woken = false;

    if (s->store->log->watch_wait(s->watch, 0, &woken, NULL) != WEIR_OK || !woken) {
        return;
    }
    for (int i = 0; i < SIM_PROCESSES; i++) {
        sim_process *p = &s->processes[i];
        if (p->up && !s->silent && !(s->faults && sim_chance(s, 250))) {
            const int64_t at_us = s->mono_us + sim_between(s, 0, 5000);
            p->wake_us = at_us < p->wake_us ? at_us : p->wake_us;
        }
    }
}

/* ---- one step of a task ------------------------------------------------------------------- */

static void delay(void *ctx, fault_verb verb)
{
    sim_process *p = ctx;
    const bool frozen = sim_chance(p->sim, 400);

    sim_trace(p->sim, "p%d %s in call %d", p->number, frozen ? "stands still" : "waits", (int)verb);
    sim_meanwhile(p, sim_between(p->sim, 1000, frozen ? 3000000 : 600000), frozen);
}

static void plan_fault(sim_process *p)
{
    static const weir_status refusals[] = { WEIR_EBUSY, WEIR_EUNAVAILABLE, WEIR_EIO };
    sim *s = p->sim;
    fault_plan plan = { .verb = FAULT_ANY, .nth = 1 };

    if (!s->faults || !sim_chance(s, 50)) {
        plan.nth = 0;
    } else if (sim_chance(s, 400)) {
        plan.action = FAULT_DELAY;
        plan.delay_cb = delay;
        plan.delay_ctx = p;
        plan.nth = s->depth < SIM_DEPTH_MAX ? 1 : 0;
    } else if (sim_chance(s, 400)) {
        plan.action = FAULT_FAIL_AFTER;
        plan.status = WEIR_EUNKNOWN;
    } else {
        plan.action = FAULT_FAIL_BEFORE;
        plan.status = refusals[sim_random(s) % 3];
    }
    weir__fault_set(p->store, &plan);
}

bool sim_call(sim_process *p, sim_actor actor, const sim_belief *beliefs, size_t count,
              void (*call)(void *ctx), void *ctx)
{
    static const fault_plan none = { 0 };
    sim *s = p->sim;

    s->steps++;
    p->frames++;
    const uint64_t calls = weir__fault_calls(p->store, FAULT_ANY);
    plan_fault(p);
    call(ctx);
    if (weir__fault_hits(p->store) > 0) {
        sim_trace(s, "p%d had a fault", p->number);
    }
    weir__fault_set(p->store, &none);
    p->frames--;
    const bool called = weir__fault_calls(p->store, FAULT_ANY) != calls;
    if (called) {
        sim_look(s, actor, p, beliefs, count);
        pass_on_wakes(s);
    }
    s->mono_us += sim_between(s, 10, STEP_US_MAX);
    return called;
}

static void step(void *ctx)
{
    sim_task *t = ctx;
    const sim_process *p = t->process;

    t->due_us = t->task->step(t->task);
    sim_trace(p->sim, "p%d %s %.*s", p->number, t->task->name,
              t->lane == NULL ? 0 : (int)t->lane->config.name.len,
              t->lane == NULL ? "" : t->lane->config.name.ptr);
}

static void run(sim_task *t)
{
    sim_process *p = t->process;
    sim_belief beliefs[SIM_TASKS_MAX];
    size_t count = 0;

    if (t->actor == ACTOR_RENEWING) {
        count = sim_beliefs(p, t->lane, beliefs);
    } else if (t->actor == ACTOR_LEASING) {
        count = finished_beliefs(t->lane, beliefs);
    } else if (t->slot != NULL && t->slot->state != SLOT_IDLE) {
        beliefs[count++] = (sim_belief){ .target = t->slot->target, .fence = t->slot->fence };
    }
    t->woken = false;
    t->running = true;
    (void)sim_call(p, t->actor, beliefs, count, step, t);
    t->running = false;
}

/* ---- who is next -------------------------------------------------------------------------- */

static bool can_run(const sim_process *p)
{
    return p->up && !p->frozen && p->stopped_until_us <= p->sim->mono_us;
}

static bool is_due(const sim_task *t)
{
    return !t->running && (t->woken || t->due_us <= t->process->sim->mono_us);
}

/* A task that may run now; NULL: none. */
static sim_task *choose(sim *s)
{
    sim_task *found = NULL;
    uint64_t seen = 0;

    for (int i = 0; i < SIM_PROCESSES; i++) {
        sim_process *p = &s->processes[i];
        for (size_t j = 0; can_run(p) && j < p->tasks_count; j++) {
            if (is_due(&p->tasks[j]) && sim_random(s) % ++seen == 0) {
                found = &p->tasks[j];
            }
        }
    }
    return found;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something happens by itself; NEVER: nothing does. */
static int64_t next_time(sim *s)
{
    int64_t next_us = NEVER;

    for (int i = 0; i < SIM_PROCESSES; i++) {
        const sim_process *p = &s->processes[i];
        int64_t own_us = NEVER;
        if (!p->up) {
            next_us = least(next_us, p->start_us);
            continue;
        }
        if (p->frozen) {
            continue;
        }
        for (size_t j = 0; j < p->tasks_count; j++) {
            const sim_task *t = &p->tasks[j];
            if (!t->running) {
                own_us = least(own_us, t->woken ? s->mono_us : t->due_us);
            }
        }
        own_us = least(own_us, least(p->wake_us, sim_pull_next_us(p)));
        own_us = p->draining ? least(own_us, p->close_us) : own_us;
        if (own_us < p->stopped_until_us) {
            own_us = p->stopped_until_us;
        }
        next_us = least(next_us, own_us);
    }
    return next_us;
}

/* What the passing of time brings: starts, ends and wake-ups. */
static void attend(sim *s)
{
    for (int i = 0; i < SIM_PROCESSES && !s->failed; i++) {
        sim_process *p = &s->processes[i];
        if (!p->up && p->start_us <= s->mono_us && s->depth == 0) {
            start(p);
        }
        if (can_run(p) && p->wake_us <= s->mono_us) {
            p->wake_us = NEVER;
            weir__worker_wake(p->worker);
        }
        if (can_run(p) && sim_pull_next_us(p) <= s->mono_us) {
            sim_pull(p);
        }
        if (can_run(p) && p->draining && p->frames == 0 &&
            (p->close_us <= s->mono_us || weir__worker_idle(p->worker))) {
            close_process(p);
        }
    }
}

/* ---- what the world does ------------------------------------------------------------------ */

static void harm(sim *s)
{
    sim_process *p = &s->processes[sim_random(s) % SIM_PROCESSES];

    if (!p->up || p->frames > 0) {
        return;
    }
    switch (sim_random(s) % 4) {
    case 0:
        crash(p);
        break;
    case 1:
        if (!p->draining) {
            sim_trace(s, "p%d drains", p->number);
            p->draining = true;
            p->close_us = s->mono_us + sim_between(s, 0, 2000000);
            weir__worker_drain(p->worker);
        }
        break;
    default:
        p->stopped_until_us = s->mono_us + sim_between(s, 10000, 4000000);
        sim_trace(s, "p%d stands still for %lld ms", p->number,
                  (long long)(p->stopped_until_us - s->mono_us) / 1000);
    }
}

/* Something happens from outside, or a task runs, or time passes. false: nothing ever will. */
static bool advance(sim *s)
{
    attend(s);
    if (s->faults && sim_chance(s, 90)) {
        sim_append(s);
        pass_on_wakes(s);
        return true;
    }
    if (s->faults && sim_chance(s, 12)) {
        sim_operate(s);
        pass_on_wakes(s);
        return true;
    }
    if (s->faults && sim_chance(s, 10)) {
        harm(s);
        return true;
    }
    sim_task *t = choose(s);
    if (t != NULL) {
        run(t);
        return true;
    }
    const int64_t next_us = next_time(s);
    if (next_us == NEVER) {
        return false;
    }
    s->mono_us = next_us > s->mono_us ? next_us : s->mono_us + 1;
    return true;
}

void sim_meanwhile(sim_process *p, int64_t us, bool frozen)
{
    sim *s = p->sim;
    const int64_t end_us = s->mono_us + us;
    const int64_t steps_max = s->steps + 150;
    const bool before = p->frozen;

    if (s->depth >= SIM_DEPTH_MAX) {
        return;
    }
    p->frozen = p->frozen || frozen;
    s->depth++;
    while (!s->failed && s->mono_us < end_us && s->steps < steps_max && s->steps < SIM_STEPS) {
        if (!advance(s)) {
            break;
        }
    }
    s->depth--;
    p->frozen = before;
    s->mono_us = s->mono_us > end_us ? s->mono_us : end_us;
}

/* ---- a run -------------------------------------------------------------------------------- */

static void open_world(sim *s)
{
    weir_error err = { .size = sizeof err };

    s->clock = (weir_clock){ .wall_us = clock_wall, .mono_us = clock_mono, .ctx = s };
    s->mono_us = 1000000;
    s->faults = true;
    s->newer_from = NEVER;
    s->store = open_store(s);
    if (s->store == NULL || s->store->log->watch_open(s->store, &s->watch, &err) != WEIR_OK) {
        sim_fail(s, "could not watch the store");
    }
    for (int i = 0; i < SIM_PROCESSES; i++) {
        s->processes[i] = (sim_process){ .sim = s,
                                         .number = i,
                                         .start_us = s->mono_us + sim_between(s, 0, 20000) };
    }
}

static void close_world(sim *s)
{
    for (int i = 0; i < SIM_PROCESSES; i++) {
        if (s->processes[i].up) {
            keep_counts(&s->processes[i]);
            sim_pull_end(&s->processes[i]);
            weir__worker_abandon(s->processes[i].worker);
            ended(&s->processes[i]);
        }
    }
    if (s->store != NULL) {
        s->store->log->watch_close(s->watch);
        s->store->about->close(s->store);
    }
    sim_model_free(s);
}

/* No more harm: what was stopped goes on, who has ended starts, and the last thing that is appended
 * may be heard by nobody. */
static void relent(sim *s)
{
    s->faults = false;
    s->newer_exists = s->newer_from != NEVER;
    for (int i = 0; i < SIM_PROCESSES; i++) {
        s->processes[i].stopped_until_us = 0;
        s->processes[i].start_us = s->mono_us;
    }
    if (s->newer_exists && s->processes[0].up && !s->processes[0].newer) {
        crash(&s->processes[0]);
    }
    sim_relent(s);
    pass_on_wakes(s);
    s->silent = sim_chance(s, 500);
    sim_append(s);
    pass_on_wakes(s);
    s->silent = false;
}

/* Until all is done. Nobody helps but the passing of time. */
static void run_to_the_end(sim *s, int64_t us_max)
{
    const int64_t begin = s->steps, begin_us = s->mono_us;

    while (!s->failed && !sim_done(s)) {
        if (!advance(s)) {
            sim_fail(s, "there is work, and nobody will ever look");
        } else if (s->steps - begin > SIM_DRAIN_STEPS_MAX || s->mono_us - begin_us > us_max) {
            sim_fail(s, "there is work after %lld steps and %lld s without faults",
                     (long long)(s->steps - begin), (long long)(s->mono_us - begin_us) / 1000000);
        } else if (sim_blocked(s)) {
            sim_relent(s); /* it had lost its lease too often before */
            pass_on_wakes(s);
        }
    }
    sim_trace(s, "everything was handled after %lld steps and %lld ms without faults",
              (long long)(s->steps - begin), (long long)(s->mono_us - begin_us) / 1000);
}

/* Faults stop, and everything gets done. Then nobody hears anything any more, and a little work
 * comes, some of it to be done later: it gets done as well, since somebody looks by himself. */
static void drain(sim *s)
{
    relent(s);
    run_to_the_end(s, DRAIN_US_MAX);
    sim_trace(s, "no wake-up arrives any more");
    s->silent = true;
    s->quiet = true;
    const int64_t idle_us = s->mono_us + IDLE_US;
    while (!s->failed && s->mono_us < idle_us && advance(s)) {
    }
    for (int i = 0; i < 3 && !s->failed; i++) {
        sim_append(s);
        pass_on_wakes(s);
    }
    run_to_the_end(s, QUIET_US_MAX);
}

bool sim_run(sim *s, uint64_t seed, bool trace, uint64_t *digest)
{
    *s = (sim){ .seed = seed, .random = seed * UINT64_C(0xD1342543DE82EF95), .trace = trace };
    open_world(s);
    const int64_t newer_step = sim_between(s, 0, SIM_STEPS * 5 / 4);
    while (!s->failed && s->steps < SIM_STEPS) {
        /* Whatever is declared first is older: so somebody has to have the first definitions. */
        s->newer_exists = s->newer_exists || (s->steps >= newer_step && s->reaction_ids[COPY] != 0);
        (void)advance(s);
    }
    if (!s->failed) {
        drain(s);
    }
    if (!s->failed) {
        sim_check_end(s);
    }
    *digest = s->random ^ (uint64_t)s->mono_us ^ ((uint64_t)s->log_seen << 32);
    close_world(s);
    return !s->failed;
}
