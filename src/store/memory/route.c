/* route.c - what the router found: marks, work rows, parks; and subscribing by hand. */
#include "base/error.h"
#include "base/str.h"
#include "store/beyond.h"
#include "store/memory/memory_store.h"

static weir_status check_step(const memory_core *c, const store_route_step *step, weir_error *err)
{
    const memory_reaction *r = weir__memory_reaction(c, step->reaction);
    if (r == NULL) {
        return weir__fail(err, WEIR_ECONFLICT, "no reaction with id %lld",
                          (long long)step->reaction);
    }
    const weir_str name = weir__memory_reaction_name(r);
    const int64_t number = weir__memory_current(r)->number;
    if (r->state.retired) {
        return weir__fail(err, WEIR_ECONFLICT, "reaction \"%.*s\" is retired", (int)name.len,
                          name.ptr);
    }
    if (number != step->number) {
        return weir__fail(err, WEIR_ECONFLICT,
                          "reaction \"%.*s\" has definition %lld, routed with %lld", (int)name.len,
                          name.ptr, (long long)number, (long long)step->number);
    }
    if (r->state.routed != step->from) {
        return weir__fail(err, WEIR_ECONFLICT,
                          "reaction \"%.*s\" is routed up to %lld, expected %lld", (int)name.len,
                          name.ptr, (long long)r->state.routed, (long long)step->from);
    }
    return WEIR_OK;
}

/* Whether a mark says something new about its subscription (NULL: there is none yet). While a
 * reaction is re-read, everyone but the subscriptions that were reset has had these events. */
static bool mark_counts(const memory_reaction *r, const memory_subscription *s,
                        const store_mark *mark)
{
    if (s != NULL && mark->last <= s->state.at) {
        return false;
    }
    return weir__memory_current(r)->rule != STORE_RULE_WORK || mark->last > r->state.reread_to ||
           (s != NULL && s->state.was_reset);
}

/* Blocks a target whose position is beyond the log; *beyond: it was not blocked for that before.
 * false: out of memory. */
static bool block_beyond(memory_core *c, const memory_subscription *s, const store_mark *mark,
                         const store_route_step *step, int64_t now_us, bool *beyond)
{
    char text[STORE_BEYOND_TEXT_BYTES_MAX];
    memory_target *t = s->target;

    if (weir__memory_is_passed(t)) {
        return true;
    }
    *beyond = true;
    t->state.blocked = true;
    t->state.blocked_us = now_us;
    t->state.event = mark->first;
    t->state.attempts = 0;
    t->state.failed = s->reaction;
    t->state.fence++;
    return weir__memory_lease_end(c, t) &&
           weir__tx_set_text(c, &t->state.error,
                             weir__beyond_text(text, mark, step, s->state.at, s->state.mark));
}

static weir_status raise_mark(memory_core *c, const store_mark *mark, const store_route_step *step,
                              int64_t now_us, bool *beyond, weir_error *err)
{
    memory_reaction *r = weir__memory_reaction(c, step->reaction);
    memory_target *t = weir__memory_target_find(c, mark->target);
    memory_subscription *s = t == NULL ? NULL : weir__memory_subscription(t, r);
    const bool counts = mark_counts(r, s, mark);
    weir_status status = WEIR_OK;

    /* Another lane is refused even when there is nothing to write. */
    if (t != NULL || counts) {
        status = weir__memory_target_ensure(c, mark->target, mark->lane, &t, err);
    }
    const bool is_beyond = s != NULL && weir__mark_is_beyond(mark, step, r->state.reread_to,
                                                             s->state.at, s->state.mark);
    if (status != WEIR_OK || (!counts && !is_beyond)) {
        return status;
    }
    if (!weir__tx_edit(c, t) || (is_beyond && !block_beyond(c, s, mark, step, now_us, beyond))) {
        return weir__memory_full(err);
    }
    if (!counts) {
        return WEIR_OK;
    }
    if (s == NULL) {
        const store_subscribe sub = { .priority = mark->priority,
                                      .source = mark->source,
                                      .value = mark->value,
                                      .at = mark->first - 1 };
        status = weir__memory_subscription_add(c, t, r, &sub, &s, err);
    } else {
        status =
            weir__memory_subscription_update(c, s, mark->priority, mark->source, mark->value, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    /* An idle subscription follows the log, or its target would look most lagging. */
    if (s->state.at == s->state.mark && s->state.at < mark->first - 1) {
        s->state.at = mark->first - 1;
    }
    s->state.mark = mark->last > s->state.mark ? mark->last : s->state.mark;
    if (weir__memory_current(r)->rule == STORE_RULE_WORK &&
        !weir__memory_work_add(c, s, mark->last)) {
        return weir__memory_full(err);
    }
    return WEIR_OK;
}

/* No subscription of the reaction counts as reset any more. */
static bool end_reread(memory_core *c, memory_reaction *r)
{
    r->state.reread_to = 0;
    for (ordered_node *n = weir__ordered_first(&r->by_value); n != NULL;
         n = weir__ordered_next(&r->by_value, n)) {
        memory_subscription *s = ORDERED_ITEM(n, memory_subscription, by_value);
        if (s->state.was_reset) {
            if (!weir__tx_save(c, &s->state.was_reset, sizeof s->state.was_reset)) {
                return false;
            }
            s->state.was_reset = false;
        }
    }
    return true;
}

static weir_status advance(memory_core *c, const store_route_step *step, weir_error *err)
{
    memory_reaction *r = weir__memory_reaction(c, step->reaction);
    if (!weir__tx_save(c, &r->state, sizeof r->state)) {
        return weir__memory_full(err);
    }
    r->state.routed = step->to;
    if (r->state.reread_to != 0 && step->to >= r->state.reread_to && !end_reread(c, r)) {
        return weir__memory_full(err);
    }
    return WEIR_OK;
}

static weir_status route_locked(memory_handle *h, const store_route *route, size_t *bad,
                                weir_error *err) WEIR_REQUIRES(h->core->mu)
{
    memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    weir_status status = WEIR_OK;

    for (size_t i = 0; i < route->steps_count && status == WEIR_OK; i++) {
        status = check_step(c, &route->steps[i], err);
    }
    for (size_t i = 0; i < route->marks_count && status == WEIR_OK; i++) {
        const store_mark *mark = &route->marks[i];
        bool beyond = false;
        status = raise_mark(c, mark, &route->steps[mark->reaction_index], now_us, &beyond, err);
        if (beyond && route->beyond != NULL) {
            route->beyond[i] = true;
        }
        *bad = i;
    }
    for (size_t i = 0; i < route->parks_count && status == WEIR_OK; i++) {
        const store_route_park *park = &route->parks[i];
        memory_reaction *r = weir__memory_reaction(c, route->steps[park->reaction_index].reaction);
        const store_park row = { .reaction = r->id, .event = park->event, .error = park->error };
        status = weir__memory_park(c, r, NULL, &row, now_us, err);
    }
    for (size_t i = 0; i < route->steps_count && status == WEIR_OK; i++) {
        status = advance(c, &route->steps[i], err);
    }
    return status;
}

weir_status weir__memory_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    size_t bad = 0;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = route_locked(h, r, &bad, err);
    status = weir__tx_end(h, status, true);
    weir__unlock(&h->core->mu);
    if (status == WEIR_EINVAL && bad_mark != NULL) {
        *bad_mark = bad;
    }
    return status;
}

static weir_status subscribe_locked(memory_core *c, const store_subscribe *sub, int64_t *target,
                                    weir_error *err)
{
    memory_reaction *r = weir__memory_reaction(c, sub->reaction);
    memory_target *t = NULL;

    if (r == NULL) {
        return weir__fail(err, WEIR_ENOTFOUND, "no reaction with id %lld",
                          (long long)sub->reaction);
    }
    const weir_status status = weir__memory_target_ensure(c, sub->target, sub->lane, &t, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!weir__tx_edit(c, t)) {
        return weir__memory_full(err);
    }
    *target = t->id;
    memory_subscription *s = weir__memory_subscription(t, r);
    if (s == NULL) {
        return weir__memory_subscription_add(c, t, r, sub, &s, err);
    }
    return weir__memory_subscription_update(c, s, sub->priority, sub->source, sub->value, err);
}

weir_status weir__memory_subscribe(weir_store *base, const store_subscribe *sub, int64_t *target,
                                   weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    int64_t id = 0;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = subscribe_locked(h->core, sub, &id, err);
    status = weir__tx_end(h, status, false);
    weir__unlock(&h->core->mu);
    if (status == WEIR_OK && target != NULL) {
        *target = id;
    }
    return status;
}
