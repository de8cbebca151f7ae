/* route.c - what the router found: marks, work rows, parks. */
#include "base/error.h"
#include "base/str.h"
#include "store/beyond.h"
#include "store/judge.h"
#include "store/memory/memory_store.h"

/* A subscription (NULL: there is none yet) as routing sees it. */
static store_routed routed_of(const memory_subscription *s)
{
    store_routed routed = { 0 };
    if (s != NULL) {
        routed = (store_routed){ .found = true,
                                 .was_reset = s->was_reset,
                                 .at = s->at,
                                 .mark = s->mark,
                                 .priority = s->priority };
    }
    return routed;
}

/* Blocks a target whose position is beyond the log. false: it was blocked for that before. */
static bool block_beyond(const memory_core *c, store_target *t, const memory_subscription *s,
                         const store_mark *mark, const store_route_step *step,
                         char text[STORE_BEYOND_TEXT_BYTES_MAX])
{
    if (weir__target_is_passed(t)) {
        return false;
    }
    t->blocked = true;
    t->blocked_us = c->now_us;
    t->event = mark->first;
    t->attempts = 0;
    t->reaction = weir__memory_reaction(c, s->reaction)->name;
    t->fence++;
    t->error = weir__beyond_text(text, mark, step, s->at, s->mark);
    weir__memory_lease_end(t);
    return true;
}

/* Raises the mark of a subscription, NULL: of a new one. */
static void mark_write(memory_core *c, int64_t target, int64_t reaction, bool works,
                       const memory_subscription *old, const store_mark *mark)
{
    memory_subscription s = { .target = target, .reaction = reaction };
    store_routed routed = routed_of(old);
    if (old != NULL) {
        s = *old;
    }
    weir__mark_raise(mark, &routed);
    s.at = routed.at;
    s.mark = routed.mark;
    s.priority = routed.priority;
    s.source = mark->source;
    s.value = mark->value;
    weir__memory_put(c, &c->subscriptions, &s);
    if (works) {
        const memory_work w = { .target = target, .reaction = reaction, .event = mark->last };
        weir__memory_put(c, &c->work, &w);
    }
}

/* *beyond: its target was blocked because it is beyond the log. */
static weir_status mark_raise(memory_core *c, const store_mark *mark, const store_route_step *step,
                              bool *beyond, weir_error *err)
{
    char text[STORE_BEYOND_TEXT_BYTES_MAX];
    const store_reaction *r = weir__memory_reaction(c, step->reaction);
    const store_rule rule = weir__memory_definition(c, r->id)->rule;
    const store_target *known = weir__memory_target_named(c, mark->target);
    const memory_subscription *s =
        known == NULL ? NULL : weir__memory_subscription(c, known->id, r->id);
    const store_routed routed = routed_of(s);
    const bool counts = weir__mark_counts(mark, &routed, rule, r->reread_to);
    const bool is_beyond =
        s != NULL && weir__mark_is_beyond(mark, step, r->reread_to, s->at, s->mark);
    store_target t;
    weir_status status = WEIR_OK;

    /* Another lane is refused even when there is nothing to write. */
    if (known != NULL || counts) {
        status = weir__memory_target_ensure(c, mark->target, mark->lane, &t, err);
    }
    if (status != WEIR_OK || (!counts && !is_beyond)) {
        return status;
    }
    if (is_beyond) {
        *beyond = block_beyond(c, &t, s, mark, step, text);
    }
    if (counts) {
        mark_write(c, t.id, r->id, rule == STORE_RULE_WORK, s, mark);
    }
    weir__memory_target_put(c, &t);
    return WEIR_OK;
}

/* No subscription of the reaction counts as reset any more. */
static void reread_end(memory_core *c, int64_t reaction)
{
    for (size_t i = 0; i < c->subscriptions.count; i++) {
        memory_subscription s = *(const memory_subscription *)c->subscriptions.rows[i];
        if (s.reaction == reaction && s.was_reset) {
            s.was_reset = false;
            weir__memory_put(c, &c->subscriptions, &s);
        }
    }
}

static void step_end(memory_core *c, const store_route_step *step)
{
    store_reaction r = *weir__memory_reaction(c, step->reaction);
    r.routed = step->to;
    if (r.reread_to != 0 && step->to >= r.reread_to) {
        r.reread_to = 0;
        reread_end(c, r.id);
    }
    weir__memory_put(c, &c->reactions, &r);
}

static weir_status route_locked(memory_core *c, const store_route *route, size_t *bad,
                                weir_error *err)
{
    const weir_str nobody = { 0 };
    weir_status status = WEIR_OK;

    for (size_t i = 0; i < route->steps_count && status == WEIR_OK; i++) {
        const store_route_step *step = &route->steps[i];
        status = weir__step_judge(step, weir__memory_reaction(c, step->reaction), err);
    }
    for (size_t i = 0; i < route->marks_count && status == WEIR_OK; i++) {
        const store_mark *mark = &route->marks[i];
        bool beyond = false;
        status = mark_raise(c, mark, &route->steps[mark->reaction_index], &beyond, err);
        if (beyond && route->beyond != NULL) {
            route->beyond[i] = true;
        }
        *bad = i;
    }
    for (size_t i = 0; i < route->parks_count && status == WEIR_OK; i++) {
        const store_route_park *park = &route->parks[i];
        const store_park row = { .reaction = route->steps[park->reaction_index].reaction,
                                 .event = park->event,
                                 .error = park->error };
        weir__memory_park(c, nobody, &row);
    }
    for (size_t i = 0; i < route->steps_count && status == WEIR_OK; i++) {
        step_end(c, &route->steps[i]);
    }
    return status;
}

weir_status weir__memory_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    size_t bad = 0;

    weir_status status = route_locked(c, r, &bad, err);
    if (status == WEIR_EINVAL && bad_mark != NULL) {
        *bad_mark = bad;
    }
    return weir__memory_end(base, status, true, err);
}
