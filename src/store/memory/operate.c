/* operate.c - the operator's verbs: unblock, reset, skip, prioritize, pause, resume.
 *
 * Mass verbs work in transactions of at most STORE_OPERATE_CHUNK targets and give others their turn
 * in between. Targets are walked in the order of their names; none is ever removed, so the walk
 * can go on from the last one it has seen.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

/* Takes everything off a target that says it failed. With `take` its lease as well, so that the
 * holder's next write is refused. */
static bool clear(memory_core *c, memory_target *t, bool take)
{
    t->state.blocked = false;
    t->state.blocked_us = 0;
    t->state.due_us = 0;
    t->state.lost = 0;
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        t->subscriptions[i]->state.retries = 0;
    }
    if (!weir__memory_error_clear(c, t)) {
        return false;
    }
    if (take) {
        t->state.fence++;
        return weir__memory_lease_end(c, t);
    }
    return true;
}

/* Whether `clear` with `take` would change something. */
static bool to_clear(const memory_target *t)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        if (t->subscriptions[i]->state.retries != 0) {
            return true;
        }
    }
    return t->state.leased || t->state.blocked || t->state.due_us != 0 || t->state.lost != 0 ||
           t->state.event != 0 || t->state.attempts != 0 || t->state.failed != NULL ||
           t->state.error.len > 0;
}

bool weir__memory_is_passed(const memory_target *t)
{
    return t->state.blocked && t->state.failed != NULL && t->state.event != 0 &&
           t->state.attempts == 0;
}

/* ---- reset -------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What was routed of the log. No position is further, unless the log has lost its end. */
static int64_t routed_to(const memory_core *c, const memory_reaction *r)
{
    return least(greatest(r->state.routed, r->state.reread_to), weir__memory_head(c));
}

/* The last position that a subscription does not handle again. */
static int64_t reset_position(const memory_core *c, const store_operate *op,
                              const memory_reaction *r)
{
    int64_t position = r->state.since;
    if (op->reset_to == STORE_RESET_POSITION) {
        position = op->position;
    } else if (op->reset_to == STORE_RESET_TIME) {
        position = weir__memory_position_before(c, op->time_us);
    }
    return greatest(least(position, routed_to(c, r)), r->state.since);
}

/* What becomes of a mark when `at` has become this. */
static int64_t reset_mark(const memory_core *c, const memory_subscription *s, int64_t at)
{
    return greatest(at, least(s->state.mark, routed_to(c, s->reaction)));
}

static bool reset_wanted(const memory_core *c, const store_operate *op, const memory_target *t)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const memory_subscription *s = t->subscriptions[i];
        const int64_t at = least(s->state.at, reset_position(c, op, s->reaction));
        if (s->state.at > at || s->state.mark != reset_mark(c, s, at)) {
            return true;
        }
    }
    return to_clear(t);
}

/* Only the router can find the events of a work subscription again: it has to re-read them. */
static bool reset_work(memory_core *c, memory_subscription *s, int64_t position)
{
    memory_reaction *r = s->reaction;
    if (!weir__tx_save(c, &r->state, sizeof r->state) || !weir__memory_work_drop(c, s, INT64_MAX)) {
        return false;
    }
    s->state.mark = position;
    r->state.reread_to = routed_to(c, r);
    if (r->state.routed > position) {
        r->state.routed = position;
    }
    /* Nothing was routed yet: then there is nothing to read again. */
    s->state.was_reset = r->state.reread_to != 0;
    return true;
}

static bool reset(memory_core *c, const store_operate *op, memory_target *t)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        const int64_t position = reset_position(c, op, s->reaction);
        const bool moves = s->state.at > position;
        s->state.at = least(s->state.at, position);
        s->state.mark = reset_mark(c, s, s->state.at);
        if (!moves) {
            continue;
        }
        if (weir__memory_current(s->reaction)->rule == STORE_RULE_WORK &&
            !reset_work(c, s, position)) {
            return false;
        }
    }
    return clear(c, t, true);
}

/* ---- skip --------------------------------------------------------------------------------- */

/* The event in the way. */
typedef struct obstacle {
    memory_subscription *subscription; /* NULL: there is none */
    int64_t event, attempts;
} obstacle;

static void consider(obstacle *least, memory_subscription *s, int64_t event, int64_t attempts)
{
    if (least->subscription == NULL || event < least->event ||
        (event == least->event && s->reaction->id < least->subscription->reaction->id)) {
        *least = (obstacle){ .subscription = s, .event = event, .attempts = attempts };
    }
}

/* The event a target is blocked at, while it is the next of its reaction or was sent back. A block
 * that names a later one does not decide: what lies before that has not been handled. */
static obstacle blocked_event(memory_core *c, memory_target *t)
{
    memory_subscription *s = weir__memory_subscription(t, t->state.failed);
    if (!t->state.blocked || s == NULL || s->reaction->state.retired || t->state.event == 0) {
        return (obstacle){ 0 };
    }
    const memory_parked *p = weir__memory_parked_find(c, s->reaction, s, t->state.event);
    const memory_event *next = weir__memory_next_event(c, s, s->state.at, s->state.mark);
    const bool is_next = next != NULL && next->id == t->state.event;
    if (!is_next && (p == NULL || !p->state.sent_back)) {
        return (obstacle){ 0 };
    }
    return (obstacle){ .subscription = s, .event = t->state.event, .attempts = t->state.attempts };
}

static obstacle find_obstacle(memory_core *c, memory_target *t)
{
    obstacle found = blocked_event(c, t);
    if (found.subscription != NULL) {
        return found;
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        const memory_event *e = s->reaction->state.retired
                                    ? NULL
                                    : weir__memory_next_event(c, s, s->state.at, s->state.mark);
        if (e != NULL) {
            consider(&found, s, e->id, s->state.retries);
        }
    }
    for (const memory_parked *p = weir__memory_sent_back_first(t); p != NULL;
         p = weir__memory_sent_back_next(t, p)) {
        if (!p->reaction->state.retired) {
            consider(&found, p->subscription, p->event, p->state.attempts);
        }
    }
    return found;
}

static bool skip(memory_core *c, memory_target *t, int64_t now_us)
{
    const obstacle o = find_obstacle(c, t);
    memory_subscription *s = o.subscription;
    const store_park park = {
        .event = o.event,
        .attempts = o.attempts,
        .error = t->state.error.len > 0 ? t->state.error : weir__str("skipped by an operator"),
    };
    if (weir__memory_park(c, s->reaction, s, &park, now_us, NULL) != WEIR_OK) {
        return false;
    }
    /* Not beyond the mark: an event that was sent back may lie there after a reset, and what is
     * before it has yet to come. */
    if (o.event > s->state.at && o.event <= s->state.mark) {
        s->state.at = o.event;
        if (!weir__memory_work_drop(c, s, o.event)) {
            return false;
        }
    }
    return clear(c, t, true);
}

/* ---- one target --------------------------------------------------------------------------- */

/* Whether the verb has something to do with a target. */
static bool wanted(memory_core *c, const store_operate *op, memory_target *t)
{
    switch (op->verb) {
    case STORE_UNBLOCK:
        return (t->state.blocked || t->state.due_us != 0) && !weir__memory_is_passed(t);
    case STORE_RESET:
        return reset_wanted(c, op, t);
    case STORE_SKIP:
        return t->state.behind && !weir__memory_is_passed(t) &&
               find_obstacle(c, t).subscription != NULL;
    case STORE_PRIORITIZE:
        return op->clear ? t->state.prioritized
                         : !t->state.prioritized || t->state.override != op->priority;
    case STORE_PAUSE:
        return !t->state.paused;
    case STORE_RESUME:
        return t->state.paused;
    }
    return false;
}

/* false: out of memory. */
static bool apply(memory_core *c, const store_operate *op, memory_target *t, int64_t now_us)
{
    const weir_str none = { 0 };

    if (!weir__tx_edit(c, t)) {
        return false;
    }
    switch (op->verb) {
    case STORE_UNBLOCK:
        return clear(c, t, false);
    case STORE_RESET:
        return reset(c, op, t);
    case STORE_SKIP:
        return skip(c, t, now_us);
    case STORE_PRIORITIZE:
        t->state.prioritized = !op->clear;
        t->state.override = op->clear ? 0 : op->priority;
        return true;
    case STORE_PAUSE:
    case STORE_RESUME:
        t->state.paused = op->verb == STORE_PAUSE;
        return weir__tx_set_text(c, &t->state.paused_by, t->state.paused ? op->by : none);
    }
    return true;
}

/* Adds to *changed when it did, or would. */
static weir_status operate_one(memory_core *c, const store_operate *op, memory_target *t,
                               int64_t now_us, int64_t *changed, weir_error *err)
{
    if (!wanted(c, op, t)) {
        return WEIR_OK;
    }
    if (!op->dry_run && !apply(c, op, t, now_us)) {
        return weir__memory_full(err);
    }
    ++*changed;
    return WEIR_OK;
}

/* ---- all of them -------------------------------------------------------------------------- */

/* Every name is looked up before anything is changed. */
static weir_status check_names(const memory_core *c, const store_target_filter *f, weir_error *err)
{
    for (size_t i = 0; i < f->names_count; i++) {
        if (weir__memory_target_find(c, f->names[i]) == NULL) {
            return weir__fail(err, WEIR_ENOTFOUND, "no target \"%.*s\"", (int)f->names[i].len,
                              f->names[i].ptr);
        }
    }
    return WEIR_OK;
}

/* The targets that were named, in the order of their names, each once. They stay under one lock:
 * they are few. */
static weir_status operate_names(memory_handle *h, const store_operate *op, weir_arena *arena,
                                 int64_t *changed, weir_error *err) WEIR_REQUIRES(h->core->mu)
{
    memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    size_t count = 0;
    weir_status status = check_names(c, &op->filter, err);
    if (status != WEIR_OK) {
        return status;
    }
    memory_target **named = weir__memory_named_targets(c, &op->filter, arena, &count);
    if (named == NULL) {
        return weir__memory_full(err);
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = operate_one(c, op, named[i], now_us, changed, err);
        if ((i + 1) % STORE_OPERATE_CHUNK == 0 || i + 1 == count || status != WEIR_OK) {
            status = weir__tx_end(h, status, !op->dry_run);
        }
    }
    return status;
}

/* One transaction over the targets above *after; *more: there are others. Names are never removed,
 * so *after may be one of the store's own. */
static weir_status operate_chunk(memory_handle *h, const store_operate *op, weir_str *after,
                                 bool *more, int64_t *changed, weir_error *err)
    WEIR_REQUIRES(h->core->mu)
{
    memory_core *c = h->core;
    const int64_t now_us = weir__memory_now(h);
    weir_status status = WEIR_OK;
    name_cursor cursor = weir__name_index_seek(&c->targets_sorted, *after, true);
    table_item *item = weir__name_index_item(&cursor);

    for (int looked = 0; item != NULL && looked < STORE_OPERATE_CHUNK && status == WEIR_OK;
         looked++) {
        memory_target *t = (memory_target *)(void *)item;
        if (weir__memory_filter_accepts(&op->filter, t)) {
            status = operate_one(c, op, t, now_us, changed, err);
        }
        *after = item->key;
        weir__name_index_next(&cursor);
        item = weir__name_index_item(&cursor);
    }
    *more = item != NULL;
    return weir__tx_end(h, status, !op->dry_run);
}

weir_status weir__memory_operate(weir_store *base, store_operate *op, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_arena arena = { 0 };
    weir_str after = { 0 };
    bool more = false;
    int64_t changed = 0;
    weir_status status = op->dry_run ? WEIR_OK : weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    if (op->filter.names_count > 0) {
        weir__lock(&h->core->mu);
        status = operate_names(h, op, &arena, &changed, err);
        weir__unlock(&h->core->mu);
        weir__arena_free(&arena);
    } else {
        do {
            weir__lock(&h->core->mu);
            status = operate_chunk(h, op, &after, &more, &changed, err);
            weir__unlock(&h->core->mu);
        } while (more && status == WEIR_OK);
    }
    if (status == WEIR_OK) {
        op->changed = changed;
    }
    return status;
}

static weir_status lane_pause_locked(memory_core *c, weir_str name, bool paused, weir_str by,
                                     bool *changed, weir_error *err)
{
    const weir_str none = { 0 };
    memory_lane *lane = weir__memory_lane_find(c, name);
    if (lane == NULL && paused) {
        lane = weir__memory_lane_ensure(c, name);
        if (lane == NULL) {
            return weir__memory_full(err);
        }
    }
    if (lane == NULL || lane->paused == paused) {
        *changed = false;
        return WEIR_OK;
    }
    /* The only step that can fail comes first, so the flags need no undoing. */
    if (!weir__tx_set_text(c, &lane->paused_by, paused ? by : none)) {
        return weir__memory_full(err);
    }
    lane->paused = paused;
    lane->was_paused = true;
    *changed = true;
    return WEIR_OK;
}

weir_status weir__memory_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    bool did = false;
    weir_status status = weir__memory_writable(h, err);

    if (status != WEIR_OK) {
        return status;
    }
    weir__lock(&h->core->mu);
    status = lane_pause_locked(h->core, lane, paused, by, &did, err);
    status = weir__tx_end(h, status, true);
    weir__unlock(&h->core->mu);
    if (status == WEIR_OK && changed != NULL) {
        *changed = did;
    }
    return status;
}
