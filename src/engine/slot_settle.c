/* slot_settle.c - settling what was run: effects, progress and fence in one transaction, and what
 * each answer of the store means. A batch without effects is settled by the lane, with others.
 *
 *   OK        the segment is history. The end of the batch ends the lease, or keeps it.
 *   refused   an append was (a race, a taken key), or a function of the user's. Nothing remains.
 *             Several events: they are run again one by one. One: it is run again, a few times when
 *             it was a race; then it has failed.
 *   ELOST     the target is another's: dropped, nothing charged.
 *   EUNKNOWN  nobody can say: the lease is given back, and whoever has it next reads how far it is.
 *   others    the store is away or busy, and nothing happened: the same settle again, later.
 *
 * A batch that ends with several reactions held charges all but the last while it keeps the lease:
 * a settle tells one failure.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"
#include "engine/slot_private.h"

#include <inttypes.h>

/* ---- what a settle writes ----------------------------------------------------------------- */

/* The user's functions, inside the transaction. */
typedef struct sql_run {
    slot *slot;
    weir_status status; /* not WEIR_OK: one of them said no, it was not the store */
    bool overdue;       /* none of them was run: the lease may have ended */
} sql_run;

static weir_status project_run(slot *s, void *native, weir_error *err)
{
    batch *b = s->batch;
    const batch_part *p = weir__batch_part_of(b, &b->events[weir__batch_first_run(b)]);
    const reaction *q = p->reaction;
    const size_t count = b->next - b->first;
    const weir_event **events = weir__calloc(count, sizeof *events);

    if (events == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a batch");
    }
    size_t given = 0;
    for (size_t i = b->first; i < b->next; i++) {
        if (b->events[i].state == EVENT_DONE) {
            events[given++] = b->events[i].event;
        }
    }
    const int64_t begin_us = weir__task_now(&s->task);
    weir_status status = (weir_status)q->project(q->ctx, native, events, given, err);
    const int64_t took_us = weir__task_now(&s->task) - begin_us;
    weir__free(events);
    weir__metric_observe(&weir__slot_worker(s)->metrics, METRIC_HANDLER_US, took_us);
    if (status == WEIR_OK && took_us > q->deadline_us) {
        status = weir__fail(err, WEIR_EBUSY, "the projection took %" PRId64 " ms, allowed %" PRId64,
                            took_us / 1000, q->deadline_us / 1000);
    }
    return status;
}

static weir_status sql_run_all(void *ctx, void *native, weir_error *err)
{
    sql_run *run = ctx;
    slot *s = run->slot;
    weir_error own = { .size = sizeof own };
    weir_status status = WEIR_OK;

    /* On the way here the store may have been waited for. */
    if (s->batch->project && weir__slot_overdue(s)) {
        run->overdue = true;
        return weir__fail(err, WEIR_EBUSY, "the lease may have ended");
    }
    if (s->batch->project) {
        status = project_run(s, native, &own);
    }
    for (size_t i = 0; i < s->effects.sqls_count && status == WEIR_OK; i++) {
        status = (weir_status)s->effects.sqls[i].fn(s->effects.sqls[i].ctx, native, &own);
    }
    if (status != WEIR_OK) {
        own.message[sizeof own.message - 1] = '\0';
        status = weir__fail(err, status, "%s",
                            own.message[0] != '\0' ? own.message : "the handler's SQL failed");
    }
    run->status = status;
    return status;
}

/* What a settle is made of, besides the effects. */
typedef struct settle_parts {
    store_advance *advances;
    store_park *parks;
    int64_t *parked_done;
    size_t advances_count, parks_count, parked_done_count;
} settle_parts;

/* How far each part got. */
static weir_status collect_advances(const batch *b, weir_arena *arena, settle_parts *out,
                                    weir_error *err)
{
    out->advances_count = 0;
    out->advances = weir__arena_alloc(arena, (b->parts_count + 1) * sizeof *out->advances);
    if (out->advances == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a settle");
    }
    for (size_t i = 0; i < b->parts_count; i++) {
        const int64_t to = weir__batch_progress(b, i);
        if (to > b->parts[i].at) {
            out->advances[out->advances_count++] =
                (store_advance){ .reaction = b->parts[i].reaction->known.id, .to = to };
        }
    }
    return WEIR_OK;
}

/* What was set aside, and what had been and is done now. */
static weir_status collect_parks(const batch *b, weir_arena *arena, settle_parts *out,
                                 weir_error *err)
{
    const size_t events = b->next - b->first + b->gone_count;
    out->parks = weir__arena_alloc(arena, (events + 1) * sizeof *out->parks);
    out->parked_done = weir__arena_alloc(arena, (events + 1) * sizeof *out->parked_done);
    if (out->parks == NULL || out->parked_done == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a settle");
    }
    for (size_t i = 0; i < b->gone_count; i++) {
        out->parked_done[out->parked_done_count++] = b->gone[i].parked;
    }
    for (size_t i = b->first; i < b->next; i++) {
        const batch_event *e = &b->events[i];
        if (e->state == EVENT_DONE && e->parked != 0) {
            out->parked_done[out->parked_done_count++] = e->parked;
        } else if (e->state == EVENT_PARKED) {
            out->parks[out->parks_count++] =
                (store_park){ .reaction = weir__batch_part_of(b, e)->reaction->known.id,
                              .event = e->event->id,
                              .attempts = e->attempt,
                              .error = e->error };
        }
    }
    return WEIR_OK;
}

/* ---- how it ends -------------------------------------------------------------------------- */

static bool failure_chargeable(const batch_hold *h)
{
    return h->kind != HOLD_POSTPONE && !h->settled;
}

/* The first hold that is still to be charged. *more: it is not the last. */
static batch_hold *next_charge(const batch *b, bool *more)
{
    batch_hold *found = NULL;
    *more = false;
    for (size_t i = 0; i < b->holds_count; i++) {
        if (failure_chargeable(&b->holds[i])) {
            *more = found != NULL;
            if (found != NULL) {
                break;
            }
            found = &b->holds[i];
        }
    }
    return found;
}

/* Failures wait for the longest of their backoffs; an event that was only deferred does not. */
static int64_t held_until(const batch *b)
{
    int64_t retry_us = 0, postponed_us = INT64_MAX;
    for (size_t i = 0; i < b->holds_count; i++) {
        const batch_hold *h = &b->holds[i];
        const int64_t until_us = h->until_us > 0 ? h->until_us : b->now_us + h->backoff_us;
        if (h->kind == HOLD_POSTPONE) {
            postponed_us = until_us < postponed_us ? until_us : postponed_us;
        } else {
            retry_us = until_us > retry_us ? until_us : retry_us;
        }
    }
    return retry_us > 0 && retry_us < postponed_us ? retry_us : postponed_us;
}

static bool worth_keeping(slot *s)
{
    worker *w = weir__slot_worker(s);
    const batch *b = s->batch;
    bool more = false;
    for (size_t i = 0; i < b->parts_count; i++) {
        more = more || (b->parts[i].behind && !b->parts[i].exhausted);
    }
    weir__lock(&w->mu);
    const bool wanted = s->lane->crowded || s->lane->draining || s->interrupted;
    weir__unlock(&w->mu);
    /* A batch without events is one of a list that was full: others come first. */
    return more && !wanted && b->events_count > 0 && b->rounds < SLOT_BATCHES_MAX &&
           weir__room_is_there(&s->lane->room, weir__lane_fetch_room(s->lane));
}

static bool asks_for_time(const batch *b)
{
    bool asks = false;
    for (size_t i = 0; i < b->holds_count; i++) {
        if (b->holds[i].kind == HOLD_BLOCK) {
            return false;
        }
        asks = asks || b->holds[i].until_us <= 0;
    }
    return asks;
}

batch_phase weir__slot_finish_phase(const slot *s)
{
    return asks_for_time(s->batch) && s->batch->now_us == 0 ? PHASE_NOW : PHASE_SETTLE;
}

void weir__slot_now(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    weir_error err;

    if (w->store->about->now(w->store, &b->now_us, &err) != WEIR_OK) {
        b->now_us = 0;
        weir__slot_store_failed(s, &err);
        return;
    }
    b->attempt = 0;
    b->phase = PHASE_SETTLE;
}

/* No event of the batch is left to run. */
static bool has_ended(const batch *b)
{
    return b->stopped || weir__batch_runnable(b, b->next) == b->events_count;
}

static store_end choose_end(slot *s, bool in_between, const batch_hold *charge, bool more)
{
    const batch *b = s->batch;

    if (!has_ended(b) || more || (in_between && b->holds_count > 0)) {
        return STORE_END_KEEP;
    }
    if (charge != NULL && charge->kind == HOLD_BLOCK) {
        return STORE_END_BLOCK;
    }
    if (b->holds_count > 0) {
        return STORE_END_DEFER;
    }
    return b->next == b->events_count && worth_keeping(s) ? STORE_END_KEEP : STORE_END_RELEASE;
}

/* ---- what the answer means ---------------------------------------------------------------- */

static bool is_race(weir_status status)
{
    return status == WEIR_ECONFLICT || status == WEIR_ETAKEN || status == WEIR_EINFLIGHT;
}

/* An append or a function of the user's is the reason. Nothing of the segment remains. */
static void settle_refused(slot *s, weir_status status, const weir_error *err)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    const size_t count = weir__batch_segment(b);

    if (is_race(status)) {
        weir__metric_add(&w->metrics, METRIC_RERUN, 1);
    }
    if (status == WEIR_ECONFLICT) {
        weir__metric_add(&w->metrics, METRIC_CONFLICTS, 1);
    }
    /* Events that were held meanwhile stay so, unless they have to be run again with the others. */
    weir__effects_cut(&s->effects, 0, 0);
    weir__batch_rewind(b, count > 1 ? b->first : weir__batch_first_run(b));
    b->phase = PHASE_RUN;
    b->single = true;
    if (count > 1) {
        return;
    }
    if (is_race(status) && b->reruns < SLOT_RERUNS_MAX) {
        int64_t wait_us = SLOT_RERUN_BASE_US << b->reruns;
        wait_us = wait_us < SLOT_RERUN_CAP_US ? wait_us : SLOT_RERUN_CAP_US;
        const uint64_t random = s->task.scheduler->random(s->task.scheduler);
        b->reruns++;
        b->wait_us = weir__task_now(&s->task) + (int64_t)(random % ((uint64_t)wait_us + 1));
        return;
    }
    b->reruns = 0;
    b->io_errors = 0;
    weir__slot_failed(s, false, weir__str(err->message), HANDLER_ERROR_BYTES_MAX);
}

/* Nobody can handle them any more. */
static void tell_gone(slot *s)
{
    batch *b = s->batch;
    for (size_t i = 0; i < b->gone_count; i++) {
        const log_field fields[] = {
            { .name = "target", .text = b->name },
            { .name = "reaction",
              .text = weir__batch_part(b, b->gone[i].reaction)->reaction->name },
            { .name = "event", .number = b->gone[i].event },
            { .name = "error",
              .text = weir__str("sent back, but no longer in the log: counts as done") },
        };
        weir__worker_log(weir__slot_worker(s), LOG_WARNING, "event_gone", fields,
                         sizeof fields / sizeof fields[0]);
    }
    b->gone_count = 0;
}

static void tell_settled(slot *s, size_t parks_count, const batch_hold *charge, store_end end)
{
    worker *w = weir__slot_worker(s);
    const batch *b = s->batch;
    uint64_t done = 0;

    tell_gone(s);
    for (size_t i = b->first; i < b->next; i++) {
        const batch_event *e = &b->events[i];
        done += e->state == EVENT_DONE;
        if (e->state == EVENT_PARKED) {
            weir__slot_log(s, 2, "parked", i, e->attempt, e->error);
        }
    }
    weir__metric_add(&w->metrics, METRIC_SETTLED, 1);
    weir__metric_add(&w->metrics, METRIC_HANDLED, done);
    weir__metric_add(&w->metrics, METRIC_PARKED, parks_count);
    if (end == STORE_END_BLOCK) {
        weir__metric_add(&w->metrics, METRIC_BLOCKED, 1);
        weir__slot_log(s, 3, "blocked", charge->index, charge->attempt, charge->error);
    } else if (end == STORE_END_DEFER) {
        const batch_hold *h = charge != NULL ? charge : &b->holds[b->holds_count - 1];
        weir__metric_add(&w->metrics, METRIC_DEFERRED, 1);
        weir__slot_log(s, charge != NULL ? 2 : 1,
                       h->kind == HOLD_POSTPONE ? "deferred" : "retrying", h->index, h->attempt,
                       h->error);
    } else {
        weir__slot_log(s, 0, "settled", SIZE_MAX, 0, (weir_str){ 0 });
    }
}

/* The segment is committed. */
static void settle_done(slot *s, const store_settle *settle, batch_hold *charge)
{
    batch *b = s->batch;
    metrics *m = &weir__slot_worker(s)->metrics;
    for (size_t i = 0; i < settle->appends_count; i++) {
        if (!settle->appends[i]->replayed) {
            weir__metric_add(m, METRIC_APPENDS, 1);
            weir__metric_add(m, METRIC_APPENDED, settle->appends[i]->events_count);
        }
    }
    weir__effects_cut(&s->effects, 0, 0);
    weir__batch_settled(b, charge);
    b->attempt = 0;
    if (settle->end != STORE_END_KEEP) {
        weir__slot_idle_tell(s, settle->behind);
        return;
    }
    if (!has_ended(b) || b->holds_count > 0) {
        b->phase = PHASE_RUN;
    } else if (!settle->behind) {
        b->phase = PHASE_RELEASE; /* paused meanwhile, or its reaction is no more */
    } else {
        b->phase = PHASE_FETCH;
        b->rounds++;
    }
}

static bool has_sql(const slot *s)
{
    return s->effects.sqls_count > 0 || s->batch->project;
}

static bool has_effects(const slot *s)
{
    return s->effects.appends_count > 0 || has_sql(s);
}

static void not_settled(slot *s, weir_status status, bool sql_failed, const weir_error *err)
{
    batch *b = s->batch;
    const bool with_effects = has_effects(s);

    if (sql_failed) {
        settle_refused(s, status == WEIR_ELOST ? WEIR_EIO : status, err);
        return;
    }
    switch (status) {
    case WEIR_ELOST:
    case WEIR_ENOTFOUND: /* there is no such target any more */
        weir__metric_add(&weir__slot_worker(s)->metrics, METRIC_STALE, 1);
        weir__slot_lost(s);
        return;
    case WEIR_EUNKNOWN:
        weir__effects_cut(&s->effects, 0, 0);
        b->phase = PHASE_RELEASE;
        weir__slot_store_failed(s, err);
        return;
    case WEIR_ECONFLICT:
    case WEIR_ETAKEN:
    case WEIR_EINFLIGHT:
    case WEIR_ECLOSED:
    case WEIR_EKEYREUSED:
    case WEIR_EINVAL:
    case WEIR_EHELD:
    case WEIR_EMISUSE:
    case WEIR_EINTERRUPTED:
        if (with_effects) {
            settle_refused(s, status, err);
            return;
        }
        break;
    case WEIR_EIO:
        /* A store that fails for one settle only, again and again, fails because of what is in it:
         * SQL that has broken its transaction. It must not hold the slot for ever. Appends cannot
         * do that: then it is the store, a full disk for one, and nobody is charged. */
        if (has_sql(s) && ++b->io_errors >= SLOT_IO_ERRORS_MAX) {
            settle_refused(s, status, err);
            return;
        }
        break;
    case WEIR_OK:
    case WEIR_ENOMEM:
    case WEIR_EBUSY:
    case WEIR_ECORRUPT:
    case WEIR_ENEWER:
    case WEIR_EUNAVAILABLE:
    case WEIR_EREWOUND:
        break;
    }
    weir__slot_store_failed(s, err);
}

static void set_ending(slot *s, bool ending)
{
    worker *w = weir__slot_worker(s);
    weir__lock(&w->mu);
    s->batch->ending = ending;
    s->extend_until_us = weir__task_now(&s->task) + SLOT_SETTLE_US;
    weir__unlock(&w->mu);
}

/* The store has settled it, in a call made at asked_us (boot). */
static void was_settled(slot *s, const store_settle *settle, batch_hold *charge, int64_t asked_us)
{
    worker *w = weir__slot_worker(s);

    tell_settled(s, settle->parks_count, charge, settle->end);
    if (settle->end == STORE_END_DEFER) {
        weir__worker_due(w, settle->until_us);
    }
    if (settle->end == STORE_END_KEEP) {
        weir__lock(&w->mu);
        weir__slot_held_locked(s, asked_us);
        weir__unlock(&w->mu);
    }
    settle_done(s, settle, charge);
}

weir_status weir__slot_settle(slot *s, bool in_between, weir_error *err)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    sql_run run = { .slot = s };
    weir_arena arena = { 0 };
    settle_parts parts = { 0 };
    bool more = false;

    batch_hold *charge = next_charge(b, &more);
    const store_end end = choose_end(s, in_between, charge, more);
    const bool charging = end != STORE_END_KEEP || more;
    weir_status status = collect_advances(b, &arena, &parts, err);
    if (status == WEIR_OK) {
        status = collect_parks(b, &arena, &parts, err);
    }
    store_append *const *appends = weir__effects_list(&s->effects);
    if (appends == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a settle");
    }
    store_settle settle = {
        .target = b->target,
        .fence = b->fence,
        .token = b->token,
        .sql = b->project || s->effects.sqls_count > 0 ? sql_run_all : NULL,
        .sql_ctx = &run,
        .appends = appends,
        .appends_count = s->effects.appends_count,
        .advances = parts.advances,
        .advances_count = parts.advances_count,
        .parks = parts.parks,
        .parks_count = parts.parks_count,
        .parked_done = parts.parked_done,
        .parked_done_count = parts.parked_done_count,
        .end = end,
        .lease_us = s->lane->config.lease_us,
        .until_us = end == STORE_END_DEFER ? held_until(b) : 0,
    };
    charge = charging ? charge : NULL;
    if (charge != NULL) {
        const batch_event *e = &b->events[charge->index];
        settle.failure = (store_failure){ .reaction = weir__batch_part_of(b, e)->reaction->known.id,
                                          .event = e->event->id,
                                          .error = charge->error };
    }
    set_ending(s, end != STORE_END_KEEP);
    const int64_t asked_us = weir__task_boot(&s->task);
    if (status == WEIR_OK) {
        const int64_t begin_us = weir__task_now(&s->task);
        status = w->store->work->settle(w->store, &settle, err);
        weir__metric_observe(&w->metrics, METRIC_SETTLE_US, weir__task_now(&s->task) - begin_us);
    }
    if (status == WEIR_OK) {
        was_settled(s, &settle, charge, asked_us);
    } else if (run.overdue) {
        set_ending(s, false);
    } else {
        if (status != WEIR_EUNKNOWN) {
            set_ending(s, false);
        }
        /* A function that failed because the store did is told by an answer of the store's own. */
        not_settled(s, status, run.status != WEIR_OK && run.status == status, err);
    }
    weir__arena_free(&arena);
    return status;
}

/* ---- settled by the lane ------------------------------------------------------------------- */

/* The batch ends, and there is nothing to write but how far it got. */
static bool is_plain(const slot *s)
{
    const batch *b = s->batch;

    if (!has_ended(b) || b->holds_count > 0 || b->gone_count > 0 || has_effects(s)) {
        return false;
    }
    for (size_t i = b->first; i < b->next; i++) {
        if (b->events[i].state == EVENT_PARKED || b->events[i].parked != 0) {
            return false;
        }
    }
    return true;
}

bool weir__slot_finish(slot *s)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;
    settle_parts parts = { 0 };

    /* Without memory it is settled the other way, which says so. */
    if (!is_plain(s) || collect_advances(b, &b->arena, &parts, NULL) != WEIR_OK) {
        return false;
    }
    b->settle = (store_settle){ .target = b->target,
                                .fence = b->fence,
                                .token = b->token,
                                .advances = parts.advances,
                                .advances_count = parts.advances_count,
                                .end = STORE_END_RELEASE };
    weir__lock(&w->mu);
    s->state = SLOT_FINISHED;
    b->ready = false;
    s->extend_until_us = weir__task_now(&s->task) + SLOT_SETTLE_US;
    const bool wake = weir__lane_finished_locked(s->lane, s);
    weir__unlock(&w->mu);
    if (wake) {
        weir__lane_ask(s->lane);
    } else {
        atomic_store(&s->lane->asked, true);
    }
    return true;
}

void weir__slot_settled(slot *s)
{
    if (s->batch->settle.status != WEIR_OK) {
        weir__metric_add(&weir__slot_worker(s)->metrics, METRIC_STALE, 1);
        weir__slot_lost(s);
        return;
    }
    tell_settled(s, 0, NULL, STORE_END_RELEASE);
    weir__slot_idle(s);
}

void weir__slot_settle_unknown(slot *s, const weir_error *err)
{
    worker *w = weir__slot_worker(s);
    batch *b = s->batch;

    b->phase = PHASE_RELEASE;
    weir__slot_store_failed(s, err);
    weir__lock(&w->mu);
    s->state = SLOT_RUNNING;
    b->ready = true;
    weir__unlock(&w->mu);
    weir__task_wake(&s->task);
}
