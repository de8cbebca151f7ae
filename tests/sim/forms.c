/* forms.c - see sim.h: the two other forms of a handler, projections and deliveries that are
 * pulled. (A third one, programs, is of real processes: tests/engine/ and tests/e2e/ have those.)
 *
 * A projection writes into a table of the world's. The memory store has no transaction to write it
 * in, so every handle's settle is watched: what a projection wrote stays when that settle happened,
 * whatever its caller is told, and is gone when it did not. The model then counts such a row like
 * an effect in the log, with the fence of the settle.
 *
 * Whoever pulls takes deliveries as soon as they are offered, or later, stages what a handler
 * would, and settles after a while: in time, past the deadline, after the lease was lost, or never,
 * when its process ends before that.
 */
#include "sim.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/pull.h"

#define NEVER INT64_MAX

/* ---- projections -------------------------------------------------------------------------- */

static sim *world; /* of the settle under way: a store does not know its own */
static const store_work_ops *true_ops;
static store_work_ops watched_ops;

static weir_status settle_and_keep(weir_store *store, store_settle *settle, weir_error *err)
{
    world->projecting_count = 0;
    const weir_status status = true_ops->settle(store, settle, err);
    for (size_t i = 0; status == WEIR_OK && i < world->projecting_count; i++) {
        if (world->projected_count == SIM_PROJECTED_MAX) {
            sim_fail(world, "too many rows were projected at once");
            break;
        }
        world->projected[world->projected_count++] =
            (sim_projected){ .event = world->projecting[i], .fence = settle->fence };
    }
    world->projecting_count = 0;
    return status;
}

static weir_status turn_and_count(weir_store *store, store_settle *const *settles, size_t count,
                                  const store_lease_request *lease, store_lease_list *list,
                                  weir_error *err)
{
    const weir_status status = true_ops->turn(store, settles, count, lease, list, err);
    uint64_t plain = 0;

    for (size_t i = 0; status == WEIR_OK && i < count; i++) {
        plain += settles[i]->status == WEIR_OK;
        world->plain_lost += settles[i]->status != WEIR_OK;
    }
    world->plain += plain;
    world->turns += plain > 0;
    return status;
}

void sim_watch_settles(sim *s, weir_store *store)
{
    world = s;
    true_ops = store->work;
    watched_ops = *store->work;
    watched_ops.settle = settle_and_keep;
    watched_ops.turn = turn_and_count;
    store->work = &watched_ops;
}

int32_t sim_project(void *ctx, void *native, const weir_event *const *events, size_t events_count,
                    weir_error *err)
{
    sim_process *p = ctx;
    sim *s = p->sim;

    (void)native;
    for (size_t i = 0; i < events_count; i++) {
        sim_trace(s, "p%d projects %lld", p->number, (long long)events[i]->id);
        s->projecting[s->projecting_count++] = events[i]->id;
    }
    if (s->faults && sim_chance(s, 60)) {
        return weir__fail(err, WEIR_EINVAL, "by chance");
    }
    if (s->faults && sim_chance(s, 20)) {
        s->mono_us += sim_between(s, 0, 3 * SIM_PROJECT_US); /* nobody else runs meanwhile */
    }
    return WEIR_OK;
}

/* ---- pulling ------------------------------------------------------------------------------ */

void sim_pull_told(void *ctx)
{
    sim_process *p = ctx;
    const int64_t at_us = p->sim->mono_us + sim_between(p->sim, 0, p->sim->faults ? 100000 : 2000);

    p->pull_us = at_us < p->pull_us ? at_us : p->pull_us;
}

static void take(sim_process *p)
{
    sim *s = p->sim;
    size_t i = 0;

    p->pull_us = NEVER;
    while (i < SIM_TAKEN_MAX && p->taken[i].delivery != NULL) {
        i++;
    }
    weir_delivery *d = i == SIM_TAKEN_MAX ? NULL : weir__worker_next(p->worker);
    if (d == NULL) {
        return;
    }
    sim_begins(s, d->target, d->fence);
    const bool late = s->faults && sim_chance(s, 150);
    p->taken[i] =
        (sim_taken){ .delivery = d,
                     .settle_us = s->mono_us + sim_between(s, 0, late ? 3 * SIM_PULL_US : 50000) };
    sim_trace(s, "p%d takes %lld of %.*s, fence %lld", p->number, (long long)d->event->id,
              (int)d->target.len, d->target.ptr, (long long)d->fence);
    sim_pull_told(p); /* there may be another */
}

typedef struct sim_settling {
    sim_process *process;
    sim_taken *taken;
} sim_settling;

static bool is_asked_again(weir_status status)
{
    return status == WEIR_EBUSY || status == WEIR_EUNAVAILABLE || status == WEIR_EIO;
}

static void settle(void *ctx)
{
    const sim_settling *own = ctx;
    sim_taken *t = own->taken;
    sim *s = own->process->sim;
    weir_delivery *d = t->delivery;
    weir_error err = { .size = sizeof err };

    if (!t->staged) {
        t->outcome = sim_handled(own->process, d);
        t->staged = true;
    }
    const weir_status status = weir__worker_settle(own->process->worker, d, t->outcome, &err);
    sim_trace(s, "p%d settles a delivery: %d", own->process->number, (int)status);
    if (is_asked_again(status)) {
        t->settle_us = s->mono_us + sim_between(s, 0, 20000);
        t->settling = false;
    } else {
        s->pulls += status == WEIR_OK && t->outcome == WEIR_DONE;
        s->pulls_lost += status == WEIR_ELOST;
        *t = (sim_taken){ .delivery = NULL };
        sim_pull_told(own->process); /* there is room again */
    }
}

int64_t sim_pull_next_us(const sim_process *p)
{
    int64_t next_us = p->pull_us;

    for (size_t i = 0; i < SIM_TAKEN_MAX; i++) {
        const sim_taken *t = &p->taken[i];
        if (t->delivery != NULL && !t->settling && t->settle_us < next_us) {
            next_us = t->settle_us;
        }
    }
    return next_us;
}

void sim_pull(sim_process *p)
{
    sim *s = p->sim;

    if (p->pull_us <= s->mono_us) {
        take(p);
    }
    for (size_t i = 0; i < SIM_TAKEN_MAX; i++) {
        sim_taken *t = &p->taken[i];
        if (t->delivery != NULL && !t->settling && t->settle_us <= s->mono_us) {
            sim_belief beliefs[SIM_TASKS_MAX];
            const size_t count = sim_beliefs(p, NULL, beliefs);
            sim_settling own = { .process = p, .taken = t };
            t->settling = true;
            sim_call(p, ACTOR_SLOT, beliefs, count, settle, &own);
            return;
        }
    }
}

void sim_pull_end(sim_process *p)
{
    for (size_t i = 0; i < p->tasks_count; i++) {
        if (p->tasks[i].slot != NULL && p->tasks[i].slot->batch != NULL) {
            weir__pull_free(p->tasks[i].slot);
        }
    }
    for (size_t i = 0; i < SIM_TAKEN_MAX; i++) {
        sim_taken *t = &p->taken[i];
        if (t->delivery != NULL &&
            weir__worker_settle(p->worker, t->delivery, WEIR_DONE, NULL) != WEIR_ELOST) {
            sim_fail(p->sim, "a delivery that was taken back could be settled");
        }
        *t = (sim_taken){ .delivery = NULL };
    }
    p->pull_us = NEVER;
}
