/* operate.c - the operator's verbs: unblock, reset, skip, prioritize, pause, resume.
 *
 * Mass verbs work in transactions of at most STORE_OPERATE_CHUNK targets and give others their turn
 * in between. Targets are walked in the order of their names; none is ever removed.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/beyond.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"
#include "store/target.h"

/* Takes everything off a target that says it failed. With `take` its lease as well, so that the
 * holder's next write is refused. */
static void target_clear(memory_core *c, store_target *t, bool take)
{
    const memory_subscription *old;
    size_t at = 0;

    t->blocked = false;
    t->blocked_us = 0;
    t->due_us = 0;
    t->lost = 0;
    weir__memory_error_clear(t);
    if (take) {
        t->fence++;
        weir__memory_lease_end(t);
    }
    while ((old = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (old->retries != 0) {
            memory_subscription s = *old;
            s.retries = 0;
            weir__memory_put(c, &c->subscriptions, &s);
        }
    }
}

/* Whether target_clear with `take` would change something. */
static bool clear_wanted(const memory_core *c, const store_target *t)
{
    const memory_subscription *s;
    size_t at = 0;
    while ((s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (s->retries != 0) {
            return true;
        }
    }
    return t->state == STORE_TARGET_LEASED || t->blocked || t->due_us != 0 || t->lost != 0 ||
           t->event != 0 || t->attempts != 0 || t->reaction.len > 0 || t->error.len > 0;
}

/* ---- reset -------------------------------------------------------------------------------- */

static int64_t i64_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t i64_greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What was routed of the log. No position is further, unless the log has lost its end. */
static int64_t routed_to(const memory_core *c, const store_reaction *r)
{
    return i64_least(i64_greatest(r->routed, r->reread_to), weir__memory_head(c));
}

/* The highest position whose event was created before a time; 0: none. */
static int64_t position_before(const memory_core *c, int64_t time_us)
{
    int64_t id = weir__memory_head(c);
    while (id > c->position_base && weir__memory_event(c, id)->created_us >= time_us) {
        id--;
    }
    return id > c->position_base ? id : 0;
}

/* The last position that a subscription does not handle again. */
static int64_t reset_position(const memory_core *c, const store_operate *op,
                              const store_reaction *r)
{
    int64_t position = r->since;
    if (op->reset_to == STORE_RESET_POSITION) {
        position = op->position;
    } else if (op->reset_to == STORE_RESET_TIME) {
        position = position_before(c, op->time_us);
    }
    return i64_greatest(i64_least(position, routed_to(c, r)), r->since);
}

/* What a reset makes of a subscription. */
static memory_subscription subscription_reset(const memory_core *c, const store_operate *op,
                                              const memory_subscription *old)
{
    const store_reaction *r = weir__memory_reaction(c, old->reaction);
    memory_subscription s = *old;
    s.at = i64_least(s.at, reset_position(c, op, r));
    s.mark = i64_greatest(s.at, i64_least(s.mark, routed_to(c, r)));
    return s;
}

static bool reset_wanted(const memory_core *c, const store_operate *op, const store_target *t)
{
    const memory_subscription *old;
    size_t at = 0;
    while ((old = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        const memory_subscription s = subscription_reset(c, op, old);
        if (s.at != old->at || s.mark != old->mark) {
            return true;
        }
    }
    return clear_wanted(c, t);
}

/* Only the router can find the events of a work subscription again: it has to re-read them. */
static void work_reset(memory_core *c, memory_subscription *s)
{
    store_reaction r = *weir__memory_reaction(c, s->reaction);
    s->mark = s->at;
    r.reread_to = routed_to(c, &r);
    r.routed = i64_least(r.routed, s->at);
    /* Nothing was routed yet: then there is nothing to read again. */
    s->was_reset = r.reread_to != 0;
    weir__memory_work_drop(c, s, INT64_MAX);
    weir__memory_put(c, &c->reactions, &r);
}

static void target_reset(memory_core *c, const store_operate *op, store_target *t)
{
    const memory_subscription *old;
    size_t at = 0;
    while ((old = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        memory_subscription s = subscription_reset(c, op, old);
        if (s.at < old->at && weir__memory_definition(c, s.reaction)->rule == STORE_RULE_WORK) {
            work_reset(c, &s);
        }
        weir__memory_put(c, &c->subscriptions, &s);
    }
    target_clear(c, t, true);
}

/* ---- skip --------------------------------------------------------------------------------- */

/* Everything that a target has to do next. */
static store_obstacle obstacle_find(const memory_core *c, const store_target *t)
{
    const store_reaction *blocks = t->blocked ? weir__memory_reaction_named(c, t->reaction) : NULL;
    const memory_subscription *s;
    store_obstacles o = { .least = { .found = false } };
    size_t at = 0;

    if (blocks != NULL) {
        o.named =
            (store_obstacle){ .event = t->event, .reaction = blocks->id, .attempts = t->attempts };
    }
    while ((s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        const weir_event *e = weir__memory_reaction(c, s->reaction)->retired
                                  ? NULL
                                  : weir__memory_next_event(c, s, s->at, s->mark);
        if (e != NULL) {
            weir__obstacle_add(&o, e->id, s->reaction, s->retries);
        }
    }
    for (size_t i = 0; i < c->parked.count; i++) {
        const store_parked *p = c->parked.rows[i];
        if (p->sent_back && weir__str_equal(p->target, t->name) &&
            !weir__memory_reaction(c, p->reaction)->retired) {
            weir__obstacle_add(&o, p->event, p->reaction, p->attempts);
        }
    }
    return weir__obstacle_first(&o);
}

static void target_skip(memory_core *c, store_target *t)
{
    const store_obstacle o = obstacle_find(c, t);
    memory_subscription s = *weir__memory_subscription(c, t->id, o.reaction);
    const store_park park = {
        .reaction = s.reaction,
        .event = o.event,
        .attempts = o.attempts,
        .error = weir__skip_error(t->error),
    };
    weir__memory_park(c, t->name, &park);
    /* Not beyond the mark: an event that was sent back may lie there after a reset, and what is
     * before it has yet to come. */
    if (o.event > s.at && o.event <= s.mark) {
        s.at = o.event;
        weir__memory_put(c, &c->subscriptions, &s);
        weir__memory_work_drop(c, &s, o.event);
    }
    target_clear(c, t, true);
}

/* ---- one target --------------------------------------------------------------------------- */

/* Whether the verb has something to do with a target. */
static bool verb_wanted(const memory_core *c, const store_operate *op, const store_target *t)
{
    if (op->verb == STORE_RESET) {
        return reset_wanted(c, op, t);
    }
    if (op->verb == STORE_SKIP) {
        return t->behind && !weir__target_is_passed(t) && obstacle_find(c, t).found;
    }
    return weir__verb_changes(op, t, weir__target_is_passed(t));
}

static void verb_apply(memory_core *c, const store_operate *op, const store_target *row)
{
    const weir_str none = { 0 };
    store_target t = *row;

    switch (op->verb) {
    case STORE_UNBLOCK:
        target_clear(c, &t, false);
        break;
    case STORE_RESET:
        target_reset(c, op, &t);
        break;
    case STORE_SKIP:
        target_skip(c, &t);
        break;
    case STORE_PRIORITIZE:
        t.prioritized = !op->clear;
        t.priority = op->priority;
        break;
    case STORE_PAUSE:
    case STORE_RESUME:
        t.paused = op->verb == STORE_PAUSE;
        t.paused_by = t.paused ? op->by : none;
        break;
    }
    weir__memory_target_put(c, &t);
}

/* ---- all of them -------------------------------------------------------------------------- */

static weir_status names_check(const memory_core *c, const store_target_filter *f, weir_error *err)
{
    for (size_t i = 0; i < f->names_count; i++) {
        if (weir__memory_target_named(c, f->names[i]) == NULL) {
            return weir__target_not_named(f->names[i], err);
        }
    }
    return WEIR_OK;
}

/* One transaction, from the target named *from on; *changed grows by those that it did, or would,
 * change. *from becomes where to go on; NULL: that was all. Rows of names are never replaced. */
static void operate_chunk(memory_core *c, const store_operate *op, const memory_name **from,
                          int64_t *changed)
{
    size_t i = *from == NULL ? 0 : weir__rows_seek(&c->names, *from);
    for (const size_t end = i + STORE_OPERATE_CHUNK; i < end && i < c->names.count; i++) {
        const memory_name *name = c->names.rows[i];
        const store_target *t = weir__memory_target(c, name->id);
        if (weir__memory_filter_accepts(c, &op->filter, t) && verb_wanted(c, op, t)) {
            ++*changed;
            if (!op->dry_run) {
                verb_apply(c, op, t);
            }
        }
    }
    *from = i < c->names.count ? c->names.rows[i] : NULL;
}

weir_status weir__memory_operate(weir_store *base, store_operate *op, weir_error *err)
{
    const memory_name *from = NULL;
    int64_t changed = 0;
    weir_status status = WEIR_OK;

    do {
        memory_core *c = weir__memory_begin(base);
        if (from == NULL) {
            status = names_check(c, &op->filter, err);
        }
        if (status == WEIR_OK) {
            operate_chunk(c, op, &from, &changed);
        }
        status = weir__memory_end(base, status, !op->dry_run, err);
    } while (from != NULL && status == WEIR_OK);
    if (status == WEIR_OK) {
        op->changed = changed;
    }
    return status;
}
