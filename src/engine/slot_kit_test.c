/* slot_kit_test.c - see slot_kit_test.h. */
#include "engine/slot_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <stdio.h>

enum { DRIVE_STEPS_MAX = 200000, TASKS_MAX = 64 };

bool kit_on_sqlite = true;

/* ---- handlers ----------------------------------------------------------------------------- */

int64_t kit_version(weir_store *s, const char *stream)
{
    weir_arena arena = { 0 };
    store_stream_info info;
    const weir_status status = s->log->stream_info(s, weir__str(stream), &arena, &info, NULL);
    weir__arena_free(&arena);
    return status == WEIR_OK ? info.version : -1;
}

static void stage_effect(recorder *r, weir_delivery *d)
{
    const int64_t version = r->fresh ? kit_version(r->store, r->effect) : 0;
    char stream[600];
    (void)snprintf(stream, sizeof stream, "%s", r->effect);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str("Done") };
    weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = r->expect,
                                     .stream = weir__str(stream) };
    if (r->fresh) {
        expectation.expect = version < 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT;
        expectation.version = version < 0 ? 0 : version;
    }
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const expectations[] = { &expectation };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1, .expectations = expectations,
                                          .expectations_count = 1 };
    weir_error err;
    if (weir__stage_append(d, &request, &err) != WEIR_OK) {
        fail_msg("%s", err.message);
    }
    memset(stream, 'x', sizeof stream); /* nothing of the handler's is kept */
}

int32_t kit_handle(void *ctx, weir_delivery *d)
{
    recorder *r = ctx;
    const size_t used = strlen(r->seen);

    r->calls++;
    (void)snprintf(r->seen + used, sizeof r->seen - used, "%.*s:%lld/%lld ",
                   (int)d->reaction->name.len, d->reaction->name.ptr, (long long)d->event->id,
                   (long long)d->attempt);
    if (r->effect != NULL) {
        stage_effect(r, d);
    }
    if (r->during != NULL) {
        r->during(r, d);
    }
    if (r->fail_event == -1 || r->fail_event == d->event->id) {
        if (r->fail_times == 1) {
            r->fail_event = 0;
        }
        r->fail_times -= r->fail_times > 0;
        weir__delivery_fail(d, weir__str(r->why));
        d->defer_us = r->defer_us;
        return r->outcome;
    }
    return WEIR_DONE;
}

void kit_handler(kit_process *p, recorder *r, const char *name, const char *to,
                 const weir_reaction *more)
{
    const weir_str names[] = { weir__str("Placed") };
    weir_reaction d = more == NULL ? (weir_reaction){ 0 } : *more;
    d.size = sizeof d;
    d.name = weir__str(name);
    d.on = d.on_count == 0 ? names : d.on;
    d.on_count = d.on_count == 0 ? 1 : d.on_count;
    d.to = weir__str(to);
    d.from = WEIR_FROM_START;
    if (d.project == NULL && r != NULL) {
        d.handle = kit_handle;
    }
    d.ctx = d.ctx == NULL ? r : d.ctx;
    if (r != NULL) {
        r->process = p;
    }
    kit_declare(p, &d);
}

void kit_lane(kit_process *p, const weir_lane *declared)
{
    assert_int_equal(weir__registry_lane(&p->reactions, declared, NULL), WEIR_OK);
}

/* ---- running ------------------------------------------------------------------------------ */

static bool take_wake(kit_process *p, const task *t)
{
    for (size_t i = 0; i < p->woken_count; i++) {
        if (p->woken[i] == t) {
            p->woken[i] = p->woken[--p->woken_count];
            return true;
        }
    }
    return false;
}

void kit_drive(kit_process *p, int64_t us)
{
    const int64_t end_us = kit_mono_us + us;
    int64_t due_us[TASKS_MAX] = { 0 };
    size_t count = 0;
    task *const *tasks = weir__worker_tasks(p->worker, &count);

    assert_in_range(count, 1, TASKS_MAX);
    for (int steps = 0; steps < DRIVE_STEPS_MAX; steps++) {
        int64_t next_us = INT64_MAX;
        bool ran = false;
        for (size_t i = 0; i < count; i++) {
            const bool woken = take_wake(p, tasks[i]);
            if (woken || due_us[i] <= kit_mono_us) {
                due_us[i] = tasks[i]->step(tasks[i]);
                ran = true;
            }
            next_us = due_us[i] < next_us ? due_us[i] : next_us;
        }
        if (ran || p->woken_count > 0) {
            continue;
        }
        if (next_us > end_us) {
            kit_mono_us = end_us > kit_mono_us ? end_us : kit_mono_us;
            return;
        }
        kit_mono_us = next_us;
    }
    fail_msg("the worker never rests; log:\n%s", p->log);
}

int64_t kit_steps(task *t)
{
    for (int i = 0; i < DRIVE_STEPS_MAX; i++) {
        const int64_t until_us = t->step(t);
        if (until_us > kit_mono_us) {
            return until_us;
        }
    }
    fail_msg("%s never waits", t->name);
    return 0;
}

/* ---- what the store says ------------------------------------------------------------------ */

kit_target kit_target_of(weir_store *s, const char *name)
{
    const weir_str names[] = { weir__str(name) };
    const store_targets_query q = { .filter = { .names = names, .names_count = 1 }, .limit = 1 };
    store_targets_chunk chunk = { 0 };
    kit_target out = { 0 };

    assert_int_equal(s->work->targets(s, &q, &chunk, NULL), WEIR_OK);
    assert_int_equal(chunk.targets_count, 1);
    const store_target *t = &chunk.targets[0];
    out.state = t->state;
    out.event = t->event;
    out.attempts = t->attempts;
    out.due_us = t->due_us;
    out.fence = t->fence;
    out.lost = t->lost;
    out.watermark = t->watermark;
    out.behind = t->behind;
    out.blocked = t->blocked;
    (void)snprintf(out.error, sizeof out.error, "%.*s", (int)t->error.len,
                   t->error.len == 0 ? "" : t->error.ptr);
    (void)snprintf(out.reaction, sizeof out.reaction, "%.*s", (int)t->reaction.len,
                   t->reaction.len == 0 ? "" : t->reaction.ptr);
    weir__arena_free(&chunk.arena);
    return out;
}

int64_t kit_retries(weir_store *s, const char *target, const char *reaction_name)
{
    const weir_str names[] = { weir__str(target) };
    const store_targets_query q = { .filter = { .names = names, .names_count = 1 }, .limit = 1 };
    store_targets_chunk chunk = { 0 };
    int64_t retries = -1;

    assert_int_equal(s->work->targets(s, &q, &chunk, NULL), WEIR_OK);
    assert_int_equal(chunk.targets_count, 1);
    for (size_t i = 0; i < chunk.targets[0].subscriptions_count; i++) {
        const store_subscription *sub = &chunk.targets[0].subscriptions[i];
        if (weir__str_equal(sub->reaction_name, weir__str(reaction_name))) {
            retries = sub->retries;
        }
    }
    weir__arena_free(&chunk.arena);
    return retries;
}

void kit_take_away(weir_store *s, const char *target, int64_t position)
{
    const weir_str names[] = { weir__str(target) };
    store_operate op = { .verb = STORE_RESET,
                         .filter = { .names = names, .names_count = 1 },
                         .by = weir__str("test"),
                         .reset_to = STORE_RESET_POSITION,
                         .position = position };
    assert_int_equal(s->work->operate(s, &op, NULL), WEIR_OK);
    assert_int_equal(op.changed, 1);
}

int64_t kit_parked_id(weir_store *s, char *error, size_t error_bytes)
{
    const store_parked_query q = { .limit = 10 };
    store_parked_chunk chunk = { 0 };

    assert_int_equal(s->work->parked(s, &q, &chunk, NULL), WEIR_OK);
    assert_int_equal(chunk.parked_count, 1);
    const int64_t id = chunk.parked[0].id;
    (void)snprintf(error, error_bytes, "%lld/%lld %s%.*s", (long long)chunk.parked[0].event,
                   (long long)chunk.parked[0].attempts, chunk.parked[0].sent_back ? "back " : "",
                   (int)chunk.parked[0].error.len, chunk.parked[0].error.ptr);
    weir__arena_free(&chunk.arena);
    return id;
}

static void finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)ctx;
    (void)advice;
    fail_msg("%s: %s", rule, text);
}

void kit_check(weir_store *s)
{
    assert_int_equal(s->about->check(s, finding, NULL, NULL), WEIR_OK);
}
