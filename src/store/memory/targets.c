/* targets.c - targets and their subscriptions; the values derived from them; where they are placed.
 *
 * A target is placed by its state, and leasing looks only at what is placed:
 *
 *   leased, not lapsed                     in its lane's `leases`, by the end of the lease
 *   behind, not blocked or paused, no due  subscriptions with work: in by_priority and by_rank
 *   behind, not blocked or paused, due     subscriptions with work: in by_due
 *   else                                   nowhere
 *
 * A lease that has expired is still held until someone takes the target: the fence decides, not the
 * clock. `lapsed` only moves it to where leasing finds it (weir__memory_lane_sweep).
 *
 * INVARIANTS
 *   (1) While it is placed, nothing that a set orders by changes: whoever changes a target takes it
 *       out first (weir__tx_edit), and committing puts it back.
 *   (2) behind, watermark, priority and has_work are what weir__memory_derive computes.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

enum { ARRAY_MIN = 2 };

/* ---- orders ------------------------------------------------------------------------------- */

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_rank(const memory_target *a, const memory_target *b)
{
    const int order = compare_i64(weir__memory_rank(a), weir__memory_rank(b));
    return order != 0 ? order : compare_i64(a->id, b->id);
}

static int compare_by_priority(const ordered_node *a, const ordered_node *b)
{
    const memory_target *x = ORDERED_ITEM_CONST(a, memory_subscription, by_priority)->target;
    const memory_target *y = ORDERED_ITEM_CONST(b, memory_subscription, by_priority)->target;
    const int order = compare_i64(y->state.priority, x->state.priority);
    return order != 0 ? order : compare_rank(x, y);
}

static int compare_by_rank(const ordered_node *a, const ordered_node *b)
{
    return compare_rank(ORDERED_ITEM_CONST(a, memory_subscription, by_order)->target,
                        ORDERED_ITEM_CONST(b, memory_subscription, by_order)->target);
}

static int compare_by_due(const ordered_node *a, const ordered_node *b)
{
    const memory_target *x = ORDERED_ITEM_CONST(a, memory_subscription, by_order)->target;
    const memory_target *y = ORDERED_ITEM_CONST(b, memory_subscription, by_order)->target;
    const int order = compare_i64(x->state.due_us, y->state.due_us);
    return order != 0 ? order : compare_i64(x->id, y->id);
}

static int compare_by_lease(const ordered_node *a, const ordered_node *b)
{
    const memory_target *x = ORDERED_ITEM_CONST(a, memory_target, by_lease);
    const memory_target *y = ORDERED_ITEM_CONST(b, memory_target, by_lease);
    const int order = compare_i64(x->state.until_us, y->state.until_us);
    return order != 0 ? order : compare_i64(x->id, y->id);
}

static int compare_by_event(const ordered_node *a, const ordered_node *b)
{
    return compare_i64(ORDERED_ITEM_CONST(a, memory_work, by_event)->event,
                       ORDERED_ITEM_CONST(b, memory_work, by_event)->event);
}

/* ---- derived values and placement --------------------------------------------------------- */

void weir__memory_derive(memory_target *t)
{
    struct target_state *state = &t->state;
    int64_t least = INT64_MAX, greatest = INT64_MIN, priority = INT64_MIN;
    bool counted = false, lagging = false;

    state->behind = false;
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        s->state.has_work = false;
        if (s->reaction->state.retired) {
            continue;
        }
        counted = true;
        greatest = s->state.at > greatest ? s->state.at : greatest;
        priority = s->state.priority > priority ? s->state.priority : priority;
        if (s->state.at < s->state.mark) {
            lagging = true;
            least = s->state.at < least ? s->state.at : least;
        }
        s->state.has_work = s->state.at < s->state.mark || s->state.sent_back > 0;
        state->behind = state->behind || s->state.has_work;
    }
    state->watermark = lagging ? least : counted ? greatest : 0;
    state->priority = state->prioritized ? state->override : counted ? priority : 0;
}

void weir__memory_place(memory_target *t)
{
    const struct target_state *state = &t->state;

    WEIR_ASSERT(t->placed == PLACED_NOWHERE);
    if (state->leased && !state->lapsed) {
        weir__ordered_add(&t->lane->leases, &t->by_lease);
        t->placed = PLACED_LEASED;
        return;
    }
    if (!state->behind || state->blocked || state->paused) {
        return;
    }
    t->placed = state->due_us != 0 ? PLACED_DUE : PLACED_READY;
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        if (!s->state.has_work) {
            continue;
        }
        if (t->placed == PLACED_DUE) {
            weir__ordered_add(&s->lane->by_due, &s->by_order);
        } else {
            weir__ordered_add(&s->lane->by_rank, &s->by_order);
            weir__ordered_add(&s->lane->by_priority, &s->by_priority);
        }
        s->placed = true;
    }
}

void weir__memory_unplace(memory_target *t)
{
    if (t->placed == PLACED_LEASED) {
        weir__ordered_remove(&t->lane->leases, &t->by_lease);
    }
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        memory_subscription *s = t->subscriptions[i];
        if (!s->placed) {
            continue;
        }
        if (t->placed == PLACED_DUE) {
            weir__ordered_remove(&s->lane->by_due, &s->by_order);
        } else {
            weir__ordered_remove(&s->lane->by_rank, &s->by_order);
            weir__ordered_remove(&s->lane->by_priority, &s->by_priority);
        }
        s->placed = false;
    }
    t->placed = PLACED_NOWHERE;
}

void weir__memory_lane_sweep(memory_lane *lane, int64_t now_us)
{
    for (;;) {
        ordered_node *n = weir__ordered_first(&lane->leases);
        memory_target *t = n == NULL ? NULL : ORDERED_ITEM(n, memory_target, by_lease);
        if (t == NULL || t->state.until_us > now_us) {
            return;
        }
        weir__memory_unplace(t);
        t->state.lapsed = true;
        weir__memory_place(t);
    }
}

store_target_state weir__memory_target_state(const memory_target *t, int64_t now_us)
{
    const struct target_state *state = &t->state;
    if (state->leased && state->until_us > now_us) {
        return STORE_TARGET_LEASED;
    }
    if (state->blocked) {
        return STORE_TARGET_BLOCKED;
    }
    if (state->paused || t->lane->paused) {
        return STORE_TARGET_PAUSED;
    }
    if (state->due_us > now_us) {
        return STORE_TARGET_DEFERRED;
    }
    return state->behind ? STORE_TARGET_READY : STORE_TARGET_IDLE;
}

/* ---- lanes -------------------------------------------------------------------------------- */

memory_lane *weir__memory_lane_find(const memory_core *c, weir_str name)
{
    return (memory_lane *)(void *)weir__table_find(&c->lanes, weir__str_hash(name), name);
}

memory_lane *weir__memory_lane_ensure(memory_core *c, weir_str name)
{
    memory_lane *lane = weir__memory_lane_find(c, name);
    if (lane != NULL || !weir__table_reserve(&c->lanes)) {
        return lane;
    }
    lane = weir__calloc(1, sizeof *lane + name.len);
    if (lane == NULL) {
        return NULL;
    }
    if (name.len > 0) {
        memcpy(lane->bytes, name.ptr, name.len);
    }
    lane->item.key = (weir_str){ .ptr = lane->bytes, .len = name.len };
    lane->item.hash = weir__str_hash(name);
    weir__ordered_init(&lane->leases, compare_by_lease);
    weir__table_add(&c->lanes, &lane->item);
    return lane;
}

/* What a reaction has in a lane: interned. NULL: out of memory. */
static lane_work *lane_work_ensure(memory_lane *lane, memory_reaction *r)
{
    for (size_t i = 0; i < lane->works_count; i++) {
        if (lane->works[i]->reaction == r) {
            return lane->works[i];
        }
    }
    if (!weir__memory_room(&lane->works, lane->works_count, &lane->works_capacity, ARRAY_MIN)) {
        return NULL;
    }
    lane_work *work = weir__calloc(1, sizeof *work);
    if (work == NULL) {
        return NULL;
    }
    work->reaction = r;
    weir__ordered_init(&work->by_priority, compare_by_priority);
    weir__ordered_init(&work->by_rank, compare_by_rank);
    weir__ordered_init(&work->by_due, compare_by_due);
    lane->works[lane->works_count++] = work;
    return work;
}

/* ---- targets ------------------------------------------------------------------------------ */

memory_target *weir__memory_target(const memory_core *c, int64_t id)
{
    return id >= 1 && id <= (int64_t)c->targets_count ? c->targets[id - 1] : NULL;
}

memory_target *weir__memory_target_find(const memory_core *c, weir_str name)
{
    return (memory_target *)(void *)weir__table_find(&c->targets_by_name, weir__str_hash(name),
                                                     name);
}

/* NULL: out of memory. */
static memory_target *target_add(memory_core *c, weir_str name, memory_lane *lane)
{
    if (!weir__memory_room(&c->targets, c->targets_count, &c->targets_capacity, ARRAY_MIN)) {
        return NULL;
    }
    memory_target *t = weir__tx_alloc(c, sizeof *t + name.len);
    if (t == NULL) {
        return NULL;
    }
    memcpy(t->bytes, name.ptr, name.len);
    t->item.key = (weir_str){ .ptr = t->bytes, .len = name.len };
    t->item.hash = weir__str_hash(name);
    t->id = (int64_t)c->targets_count + 1;
    t->lane = lane;
    weir__ordered_init(&t->sent_back, weir__memory_sent_back_compare);
    return weir__tx_add_target(c, t) && weir__tx_table_add(c, &c->targets_by_name, &t->item) &&
                   weir__tx_name_add(c, &c->targets_sorted, &t->item)
               ? t
               : NULL;
}

weir_status weir__memory_target_ensure(memory_core *c, weir_str name, weir_str lane,
                                       memory_target **out, weir_error *err)
{
    memory_target *t = weir__memory_target_find(c, name);
    if (t == NULL) {
        memory_lane *l = weir__memory_lane_ensure(c, lane);
        t = l == NULL ? NULL : target_add(c, name, l);
        if (t == NULL) {
            return weir__memory_full(err);
        }
    } else if (!weir__str_equal(t->lane->item.key, lane)) {
        return weir__fail(err, WEIR_EINVAL, "target \"%.*s\" is in lane \"%.*s\", not in \"%.*s\"",
                          (int)name.len, name.ptr, (int)t->lane->item.key.len,
                          t->lane->item.key.ptr, (int)lane.len, lane.ptr);
    }
    *out = t;
    return WEIR_OK;
}

bool weir__memory_lease_end(memory_core *c, memory_target *t)
{
    t->state.leased = false;
    t->state.lapsed = false;
    t->state.until_us = 0;
    return weir__tx_set_text(c, &t->state.holder, (weir_str){ 0 });
}

weir_status weir__memory_fence_check(const memory_target *t, int64_t id, int64_t fence,
                                     weir_error *err)
{
    if (t == NULL) {
        return weir__fail(err, WEIR_ENOTFOUND, "no target with id %lld", (long long)id);
    }
    if (!t->state.leased || t->state.fence != fence) {
        return weir__fail(
            err, WEIR_ELOST, "lease with fence %lld of target \"%.*s\" is lost, its fence is %lld",
            (long long)fence, (int)t->item.key.len, t->item.key.ptr, (long long)t->state.fence);
    }
    return WEIR_OK;
}

/* ---- subscriptions and their work rows ---------------------------------------------------- */

memory_subscription *weir__memory_subscription(const memory_target *t, const memory_reaction *r)
{
    size_t low = 0;
    size_t high = t->subscriptions_count;

    while (r != NULL && low < high) {
        const size_t middle = low + (high - low) / 2;
        memory_subscription *s = t->subscriptions[middle];
        if (s->reaction == r) {
            return s;
        }
        if (s->reaction->id < r->id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

weir_status weir__memory_subscription_add(memory_core *c, memory_target *t, memory_reaction *r,
                                          const store_subscribe *sub, memory_subscription **out,
                                          weir_error *err)
{
    lane_work *work = lane_work_ensure(t->lane, r);
    if (work == NULL || !weir__memory_room(&t->subscriptions, t->subscriptions_count,
                                           &t->subscriptions_capacity, ARRAY_MIN)) {
        return weir__memory_full(err);
    }
    memory_subscription *s = weir__tx_alloc(c, sizeof *s);
    if (s == NULL) {
        return weir__memory_full(err);
    }
    s->target = t;
    s->reaction = r;
    s->lane = work;
    s->state.at = sub->at;
    s->state.mark = sub->at;
    s->state.priority = sub->priority;
    weir__ordered_init(&s->work, compare_by_event);
    if (!weir__tx_set_text(c, &s->state.source, sub->source) ||
        !weir__tx_set_text(c, &s->state.value, sub->value) ||
        !weir__tx_set_add(c, &r->by_value, &s->by_value) || !weir__tx_add_subscription(c, s)) {
        return weir__memory_full(err);
    }
    *out = s;
    return WEIR_OK;
}

weir_status weir__memory_subscription_update(memory_core *c, memory_subscription *s,
                                             int64_t priority, weir_str source, weir_str value,
                                             weir_error *err)
{
    s->state.priority = priority;
    bool ok = weir__tx_set_text(c, &s->state.source, source);
    if (ok && !weir__str_equal(s->state.value, value)) {
        ok = weir__tx_set_remove(c, &s->reaction->by_value, &s->by_value) &&
             weir__tx_set_text(c, &s->state.value, value) &&
             weir__tx_set_add(c, &s->reaction->by_value, &s->by_value);
    }
    return ok ? WEIR_OK : weir__memory_full(err);
}

static bool event_reached(const void *key, const ordered_node *node)
{
    const int64_t *event = key;
    return ORDERED_ITEM_CONST(node, memory_work, by_event)->event >= *event;
}

bool weir__memory_work_add(memory_core *c, memory_subscription *s, int64_t event)
{
    const ordered_node *n = weir__ordered_seek(&s->work, event_reached, &event);
    if (n != NULL && ORDERED_ITEM_CONST(n, memory_work, by_event)->event == event) {
        return true;
    }
    memory_work *w = weir__tx_alloc(c, sizeof *w);
    if (w == NULL) {
        return false;
    }
    w->subscription = s;
    w->event = event;
    return weir__tx_set_add(c, &s->work, &w->by_event) &&
           weir__tx_set_add(c, &s->reaction->work, &w->by_reaction);
}

bool weir__memory_work_drop(memory_core *c, memory_subscription *s, int64_t up_to)
{
    for (;;) {
        ordered_node *n = weir__ordered_first(&s->work);
        memory_work *w = n == NULL ? NULL : ORDERED_ITEM(n, memory_work, by_event);
        if (w == NULL || w->event > up_to) {
            return true;
        }
        if (!weir__tx_set_remove(c, &s->work, &w->by_event) ||
            !weir__tx_set_remove(c, &s->reaction->work, &w->by_reaction) || !weir__tx_free(c, w)) {
            return false;
        }
    }
}

/* ---- ending ------------------------------------------------------------------------------- */

static void text_free(weir_str text)
{
    char *ptr;
    memcpy(&ptr, &text.ptr, sizeof ptr);
    weir__free(ptr);
}

static void subscription_free(memory_subscription *s)
{
    for (ordered_node *n; (n = weir__ordered_first(&s->work)) != NULL;) {
        weir__ordered_remove(&s->work, n);
        weir__free(ORDERED_ITEM(n, memory_work, by_event));
    }
    text_free(s->state.source);
    text_free(s->state.value);
    weir__free(s);
}

void weir__memory_targets_free(memory_core *c)
{
    for (size_t i = 0; i < c->targets_count; i++) {
        memory_target *t = c->targets[i];
        for (size_t n = 0; n < t->subscriptions_count; n++) {
            subscription_free(t->subscriptions[n]);
        }
        text_free(t->state.holder);
        text_free(t->state.error);
        text_free(t->state.paused_by);
        weir__free(t->subscriptions);
        weir__free(t);
    }
    weir__free(c->targets);
    weir__table_free(&c->targets_by_name);
    weir__name_index_free(&c->targets_sorted);
    size_t cursor = 0;
    for (table_item *item; (item = weir__table_next(&c->lanes, &cursor)) != NULL;) {
        memory_lane *lane = (memory_lane *)(void *)item;
        for (size_t n = 0; n < lane->works_count; n++) {
            weir__free(lane->works[n]);
        }
        text_free(lane->paused_by);
        weir__free(lane->works);
        weir__free(lane);
    }
    weir__table_free(&c->lanes);
}
