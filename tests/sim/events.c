/* events.c - see sim.h: what is appended, what the handlers do with it, and what an operator does.
 *
 * Every handler but LOOK's stages one event that says which event, reaction, target and fence it
 * was for. So the log tells, without asking any worker, what was done, how often, and under which
 * lease. Now and then one also stages an event for a stream that all compete for, at the version it
 * has: such a settle may lose a race. LOOK's stages nothing, and tells the model what it has seen.
 *
 *   COPY   on Placed, in the newer definition on Changed too   t-{stream}   blocks what fails
 *   AUDIT  on Placed and Changed                               t-{stream}   retries for ever
 *   TALLY  on Placed                                           all          blocks
 *   BILL   on Paid                                             w-{data.k}   parks
 *   MAIL   on Paid                                             w-{data.k}   blocks
 *   SUM    on Placed, a projection                             t-{stream}   parks
 *   TAKE   on Paid, pulled                                     w-{data.k}   blocks
 *   LOOK   on Placed, without effects                          l-{stream}   parks, or blocks
 */
#include "sim.h"

#include "base/str.h"

#include <stdio.h>

const char *const sim_reaction_names[SIM_REACTIONS] = { "copy", "audit", "tally", "bill",
                                                        "mail", "sum",   "take",  "look" };

/* ---- handlers ----------------------------------------------------------------------------- */

static int reaction_index(weir_str name)
{
    for (int i = 0; i < SIM_REACTIONS; i++) {
        if (weir__str_equal(name, weir__str(sim_reaction_names[i]))) {
            return i;
        }
    }
    return -1;
}

/* What the handlers compete for. The version is the one it has while the handler runs. */
static weir_expectation expect_shared(sim *s)
{
    weir_expectation e = { WEIR_EXPECTATION_INIT, .expect = WEIR_EXPECT_NONE,
                           .stream = weir__str("shared") };
    weir_arena arena = { 0 };
    store_stream_info info;

    if (s->store->log->stream_info(s->store, e.stream, &arena, &info, NULL) == WEIR_OK) {
        e.expect = WEIR_EXPECT_EXACT;
        e.version = info.version;
    }
    weir__arena_free(&arena);
    return e;
}

static void stage(sim *s, weir_delivery *d)
{
    char stream[64], data[128];
    weir_error err = { .size = sizeof err };
    const int index = reaction_index(d->reaction->name);

    if (index == LOOK) {
        return;
    }
    (void)snprintf(stream, sizeof stream, "done-%s-%.*s", sim_reaction_names[index],
                   (int)d->target.len, d->target.ptr);
    (void)snprintf(
        data, sizeof data, "{\"event\":%lld,\"reaction\":%d,\"fence\":%lld,\"to\":\"%.*s\"}",
        (long long)d->event->id, index, (long long)d->fence, (int)d->target.len, d->target.ptr);
    const weir_new_event done = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                  .name = weir__str("Done"), .data = weir__str(data) };
    const weir_new_event shared = { WEIR_NEW_EVENT_INIT, .stream = weir__str("shared"),
                                    .name = weir__str("Shared") };
    const weir_expectation expectation = expect_shared(s);
    const weir_new_event *const events[] = { &done, &shared };
    const weir_expectation *const expectations[] = { &expectation };
    const bool race = sim_chance(s, 100);
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = race ? 2 : 1,
                                          .expectations = expectations,
                                          .expectations_count = race ? 1 : 0 };
    if (weir__stage_append(d, &request, &err) != WEIR_OK) {
        sim_fail(s, "could not stage: %s", err.message);
    }
}

int32_t sim_handled(sim_process *p, weir_delivery *d)
{
    sim *s = p->sim;

    sim_trace(s, "p%d %.*s handles %lld of %.*s, fence %lld, attempt %lld", p->number,
              (int)d->reaction->name.len, d->reaction->name.ptr, (long long)d->event->id,
              (int)d->target.len, d->target.ptr, (long long)d->fence, (long long)d->attempt);
    if (!s->faults) {
        stage(s, d);
        if (s->quiet && sim_chance(s, 400)) {
            d->defer_us = sim_store_now(s) + sim_between(s, 0, 3000000);
            return sim_chance(s, 500) ? WEIR_DEFER : (d->attempt == 1 ? WEIR_RETRY : WEIR_DONE);
        }
        return WEIR_DONE;
    }
    if (sim_chance(s, 500)) {
        stage(s, d);
    } else {
        /* Staged late: after whatever happens while it is slow. */
        if (sim_chance(s, 60)) {
            sim_meanwhile(p, sim_between(s, 1000, 2500000), sim_chance(s, 300));
        }
        stage(s, d);
    }
    if (sim_chance(s, 30)) {
        sim_meanwhile(p, sim_between(s, 1000, 2500000), sim_chance(s, 300));
    }
    if (sim_chance(s, 80)) {
        weir__delivery_fail(d, weir__str("by chance"));
        return WEIR_RETRY;
    }
    if (sim_chance(s, 25)) {
        return WEIR_PERMANENT;
    }
    if (sim_chance(s, 20)) {
        d->defer_us = sim_store_now(s) + sim_between(s, -1000, 1500000);
        return WEIR_DEFER;
    }
    return WEIR_DONE;
}

static int32_t handle(void *ctx, weir_delivery *d)
{
    sim_begins(((sim_process *)ctx)->sim, d->target, d->fence);
    return sim_handled(ctx, d);
}

static int32_t look(void *ctx, weir_delivery *d)
{
    sim_process *p = ctx;

    sim_begins(p->sim, d->target, d->fence);
    const int32_t outcome = sim_handled(p, d);

    if (outcome == WEIR_DONE) {
        sim_saw(p->sim, d->target, d->event->id, d->fence);
    }
    return outcome;
}

/* ---- declaring ---------------------------------------------------------------------------- */

static void declare_lane(sim_process *p, const char *name, int64_t lease_us)
{
    const weir_lane declared = { WEIR_LANE_INIT,    .name = weir__str(name), .threads = 2,
                                 .target_limit = 3, .event_limit = 4,        .lease_us = lease_us,
                                 .cycle_us = 300000 };
    if (weir__registry_lane(&p->reactions, &declared, NULL) != WEIR_OK) {
        sim_fail(p->sim, "could not declare a lane");
    }
}

void sim_declare(sim_process *p)
{
    const weir_str both[] = { weir__str("Placed"), weir__str("Changed") };
    const weir_str paid[] = { weir__str("Paid") };
    const weir_reaction common = {
        WEIR_REACTION_INIT,       .from = WEIR_FROM_START,  .handle = handle, .ctx = p,
        .backoff_base_us = 20000, .backoff_cap_us = 500000, .retries = 2
    };
    weir_reaction all[SIM_REACTIONS];

    declare_lane(p, "fast", 1000000);
    declare_lane(p, "slow", 500000);
    for (int i = 0; i < SIM_REACTIONS; i++) {
        weir_reaction *r = &all[i];
        const bool of_payment = i == BILL || i == MAIL || i == TAKE;
        *r = common;
        r->name = weir__str(sim_reaction_names[i]);
        r->on = of_payment ? paid : both;
        r->on_count = i == AUDIT || (i == COPY && p->newer) ? 2 : 1;
        r->source = weir__str(of_payment ? "*" : "order-*");
        r->to = weir__str(i == TALLY ? "all" : (of_payment ? "w-{data.k}" : "t-{stream}"));
        r->lane = weir__str(of_payment || i == TALLY ? "slow" : "fast");
    }
    all[AUDIT].poison = WEIR_POISON_RETRY;
    all[BILL].poison = WEIR_POISON_PARK;
    all[BILL].priority = 5;
    all[SUM].handle = NULL;
    all[SUM].project = sim_project;
    all[SUM].poison = WEIR_POISON_PARK;
    all[SUM].deadline_us = SIM_PROJECT_US;
    all[TAKE].handle = NULL;
    all[TAKE].deadline_us = SIM_PULL_US;
    all[LOOK].handle = look;
    all[LOOK].to = weir__str("l-{stream}");
    all[LOOK].lane = weir__str(p->sim->seed % 2 == 0 ? "slow" : "fast");
    all[LOOK].poison = p->sim->seed % 4 < 2 ? WEIR_POISON_PARK : WEIR_POISON_BLOCK;
    for (int i = 0; i < SIM_REACTIONS; i++) {
        if (weir__registry_reaction(&p->reactions, &all[i], NULL) != WEIR_OK) {
            sim_fail(p->sim, "could not declare a reaction");
        }
    }
}

/* ---- appending ---------------------------------------------------------------------------- */

void sim_append(sim *s)
{
    static const char *const names[] = { "Placed", "Changed", "Paid", "Ignored" };
    char stream[32], data[32];
    const size_t kind = sim_random(s) % 100;
    const char *name = names[kind < 40 ? 0 : (kind < 60 ? 1 : (kind < 95 ? 2 : 3))];

    (void)snprintf(stream, sizeof stream, "%s-%d", kind < 60 ? "order" : "pay",
                   (int)(sim_random(s) % SIM_STREAMS));
    (void)snprintf(data, sizeof data, "{\"k\":\"%d\"}", (int)(sim_random(s) % SIM_KEYS));
    if (sim_chance(s, 40)) {
        (void)snprintf(data, sizeof data, "{\"no\":\"k\"}");
    }
    const store_new_event events[] = {
        { .name = weir__str(name), .data = weir__str(data), .meta = weir__str("{}") },
        { .name = weir__str("Changed"), .data = weir__str(data), .meta = weir__str("{}") },
    };
    store_append_stream streams[] = { { .name = weir__str(stream) } };
    store_append a = { .streams = streams,
                       .streams_count = 1,
                       .events = events,
                       .events_count = sim_chance(s, 200) ? 2 : 1 };
    store_append *const list[] = { &a };

    s->steps++;
    if (s->store->log->append(s->store, list, 1, NULL) != WEIR_OK || a.status != WEIR_OK) {
        sim_fail(s, "could not append");
    }
    sim_trace(s, "%s %s is appended to %s", name, data, stream);
    sim_look(s, ACTOR_APPEND, NULL, NULL, 0);
}

/* ---- the operator ------------------------------------------------------------------------- */

static void operate(sim *s, store_verb verb, const char *target, int64_t number)
{
    const weir_str names[] = { weir__str(target == NULL ? "" : target) };
    store_operate op = { .verb = verb,
                         .filter = { .names = names, .names_count = target == NULL ? 0 : 1 },
                         .by = weir__str("sim"),
                         .reset_to = STORE_RESET_POSITION,
                         .position = number,
                         .priority = number,
                         .clear = number == 0 };
    static const sim_actor actors[] = {
        [STORE_SKIP] = ACTOR_SKIP, [STORE_RESET] = ACTOR_RESET, [STORE_RESUME] = ACTOR_OPERATOR
    };
    weir_error err = { .size = sizeof err };

    s->steps++;
    const weir_status status = s->store->work->operate(s->store, &op, &err);
    sim_trace(s, "operator: verb %d of %s changes %lld", (int)verb, target == NULL ? "all" : target,
              (long long)op.changed);
    if (status != WEIR_OK && status != WEIR_ENOTFOUND) {
        sim_fail(s, "operator's verb %d: %s", (int)verb, err.message);
    }
    sim_look(s, actors[verb] == ACTOR_ROUTER ? ACTOR_OPERATOR : actors[verb], NULL, NULL, 0);
}

static void lane_pause(sim *s, const char *name, bool paused)
{
    if (s->store->work->lane_pause(s->store, weir__str(name), paused, weir__str("sim"), NULL,
                                   NULL) != WEIR_OK) {
        sim_fail(s, "could not pause a lane");
    }
}

/* One of the parked events is sent back. */
static void send_back(sim *s)
{
    const store_parked_query q = { .limit = 1000 };
    store_parked_chunk chunk = { 0 };

    s->steps++;
    if (s->store->work->parked(s->store, &q, &chunk, NULL) == WEIR_OK && chunk.parked_count > 0) {
        const store_parked *one = &chunk.parked[sim_random(s) % chunk.parked_count];
        const weir_status wanted = one->target.len > 0 ? WEIR_OK : WEIR_EMISUSE;
        sim_trace(s, "operator: sends %lld back to %.*s", (long long)one->event,
                  (int)one->reaction_name.len, one->reaction_name.ptr);
        if (s->store->work->parked_change(s->store, one->id, STORE_PARKED_RETRY, NULL) != wanted) {
            sim_fail(s, "could not send back");
        }
    }
    weir__arena_free(&chunk.arena);
    sim_look(s, ACTOR_OPERATOR, NULL, NULL, 0);
}

static int some_target(sim *s, char *name, size_t bytes)
{
    const size_t i = sim_random(s) % SIM_TARGETS;

    if (i == SIM_TARGETS - 1) {
        (void)snprintf(name, bytes, "all");
    } else if (i < SIM_STREAMS) {
        (void)snprintf(name, bytes, "t-order-%zu", i);
    } else if (i < SIM_LOOKED) {
        (void)snprintf(name, bytes, "w-%zu", i - SIM_STREAMS);
    } else {
        (void)snprintf(name, bytes, "l-order-%zu", i - SIM_LOOKED);
    }
    return (int)i;
}

static void reset(sim *s, int target, const char *name)
{
    const int64_t least = sim_reset_least(s, target);
    const int64_t position = sim_between(s, least, s->log_seen > least ? s->log_seen : least);

    sim_trace(s, "operator: resets %s to %lld", name, (long long)position);
    sim_will_reset(s, target, position);
    operate(s, STORE_RESET, name, position);
}

void sim_operate(sim *s)
{
    char target[32];

    const int index = some_target(s, target, sizeof target);
    switch (sim_random(s) % 11) {
    case 0:
        operate(s, STORE_SKIP, target, 0);
        break;
    case 1:
        operate(s, STORE_PRIORITIZE, target, sim_between(s, 0, 20));
        break;
    case 2:
        operate(s, STORE_PAUSE, target, 0);
        break;
    case 3:
    case 4:
        operate(s, STORE_RESUME, NULL, 0);
        break;
    case 5:
        s->steps++;
        lane_pause(s, sim_chance(s, 500) ? "fast" : "slow", sim_chance(s, 300));
        break;
    case 6:
        reset(s, index, target);
        break;
    case 7:
    case 8:
        send_back(s);
        break;
    default:
        operate(s, STORE_UNBLOCK, NULL, 0);
    }
}

void sim_relent(sim *s)
{
    lane_pause(s, "fast", false);
    lane_pause(s, "slow", false);
    operate(s, STORE_RESUME, NULL, 0);
    operate(s, STORE_UNBLOCK, NULL, 0);
}
