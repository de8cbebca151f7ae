/* lanes.c - lanes, and what a process needs to know to sleep well. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <stdlib.h>

bool weir__memory_lane_paused(const memory_core *c, weir_str lane)
{
    const store_lane *row = weir__rows_find(&c->lanes, &(store_lane){ .lane = lane });
    return row != NULL && row->paused;
}

weir_status weir__memory_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err)
{
    memory_core *c = weir__memory_begin(base);
    store_lane row = { .lane = lane, .paused = paused };
    const bool changes = weir__memory_lane_paused(c, lane) != paused;

    if (paused) {
        row.paused_by = by;
    }
    if (changes) {
        weir__memory_put(c, &c->lanes, &row);
    }
    const weir_status status = weir__memory_end(base, WEIR_OK, true, err);
    if (status == WEIR_OK && changed != NULL) {
        *changed = changes;
    }
    return status;
}

/* ---- listing ------------------------------------------------------------------------------ */

static void lane_count(const memory_core *c, store_lane *lane, const store_target *t)
{
    lane->targets++;
    switch (weir__memory_target_state(c, t)) {
    case STORE_TARGET_LEASED:
        lane->leased++;
        break;
    case STORE_TARGET_BLOCKED:
        lane->blocked++;
        break;
    case STORE_TARGET_DEFERRED:
        if (t->event != 0 && t->error.len > 0) {
            lane->retrying++;
        } else {
            lane->deferred++;
        }
        break;
    case STORE_TARGET_READY:
        lane->ready++;
        break;
    case STORE_TARGET_PAUSED:
    case STORE_TARGET_IDLE:
        break;
    }
}

/* Takes what waits for a target into account; lane->oldest_us is the least `at` for now, or -1. */
static void lane_lag(const memory_core *c, store_lane *lane, const store_target *t)
{
    const memory_subscription *s;
    size_t at = 0;
    while ((s = weir__memory_subscription_next(c, t->id, &at)) != NULL) {
        if (weir__memory_reaction(c, s->reaction)->retired || s->at >= s->mark) {
            continue;
        }
        lane->lag = s->mark - s->at > lane->lag ? s->mark - s->at : lane->lag;
        lane->oldest_us = lane->oldest_us < 0 || s->at < lane->oldest_us ? s->at : lane->oldest_us;
    }
}

/* When the first event behind a position was created. */
static int64_t created_behind(const memory_core *c, int64_t position)
{
    const int64_t after = position < c->position_base ? c->position_base : position;
    return after < weir__memory_head(c) ? weir__memory_event(c, after + 1)->created_us : 0;
}

/* The lane of that name in a list, or a new one at its end. */
static store_lane *lane_ensure(store_lane_list *list, weir_str name)
{
    for (size_t i = 0; i < list->lanes_count; i++) {
        if (weir__str_equal(list->lanes[i].lane, name)) {
            return &list->lanes[i];
        }
    }
    store_lane *lane = &list->lanes[list->lanes_count++];
    *lane = (store_lane){ .lane = name, .oldest_us = -1 };
    return lane;
}

static int compare_lanes(const void *a, const void *b)
{
    return weir__str_compare(((const store_lane *)a)->lane, ((const store_lane *)b)->lane);
}

weir_status weir__memory_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const size_t most = c->lanes.count + c->targets.count + 1;
    weir__arena_reset(&list->arena);
    list->lanes_count = 0;
    list->lanes = weir__memory_array(c, &list->arena, most, sizeof *list->lanes);
    if (list->lanes == NULL) {
        return weir__memory_unlock(c, WEIR_ENOMEM, err);
    }
    for (size_t i = 0; i < c->lanes.count; i++) {
        const store_lane *row = c->lanes.rows[i];
        store_lane *lane = lane_ensure(list, row->lane);
        lane->paused = row->paused;
        lane->paused_by = row->paused_by;
    }
    for (size_t i = 0; i < c->targets.count; i++) {
        const store_target *t = c->targets.rows[i];
        store_lane *lane = lane_ensure(list, t->lane);
        lane_count(c, lane, t);
        lane_lag(c, lane, t);
    }
    qsort(list->lanes, list->lanes_count, sizeof *list->lanes, compare_lanes);
    for (size_t i = 0; i < list->lanes_count; i++) {
        store_lane *lane = &list->lanes[i];
        lane->oldest_us = lane->oldest_us < 0 ? 0 : created_behind(c, lane->oldest_us);
        weir__memory_copy(c, &c->lanes, lane, &list->arena, lane);
    }
    return weir__memory_unlock(c, WEIR_OK, err);
}

/* ---- poll --------------------------------------------------------------------------------- */

/* What a target with work has to say: that it can be leased, or when. */
static void target_poll(const memory_core *c, const store_target *t, store_poll *poll)
{
    if (!t->behind || t->blocked || t->paused || weir__memory_lane_paused(c, t->lane)) {
        return;
    }
    if (t->state == STORE_TARGET_LEASED && t->leased_until_us > c->now_us) {
        if (t->due_us == 0 && t->leased_until_us < poll->lease_end_us) {
            poll->lease_end_us = t->leased_until_us;
        }
    } else if (t->due_us <= c->now_us) {
        poll->ready = true;
    } else if (t->due_us < poll->due_us) {
        poll->due_us = t->due_us;
    }
}

weir_status weir__memory_poll(weir_store *base, store_poll *poll, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const int64_t head = weir__memory_head(c);
    store_poll answer = {
        .lane = poll->lane,
        .head = head,
        .safe = head,
        .now_us = c->now_us,
        .routed_least = INT64_MAX,
        .due_us = INT64_MAX,
        .lease_end_us = INT64_MAX,
        .router_end_us = INT64_MAX,
    };

    memcpy(answer.epoch, c->epoch, sizeof answer.epoch);
    memcpy(answer.log, c->epoch, sizeof answer.log);
    for (size_t i = 0; i < c->reactions.count; i++) {
        const store_reaction *r = c->reactions.rows[i];
        if (!r->retired && r->routed < answer.routed_least) {
            answer.routed_least = r->routed;
        }
        if (r->router_until_us > c->now_us && r->router_until_us < answer.router_end_us) {
            answer.router_end_us = r->router_until_us;
        }
    }
    for (size_t i = 0; i < c->targets.count; i++) {
        const store_target *t = c->targets.rows[i];
        if (poll->lane.len == 0 || weir__str_equal(poll->lane, t->lane)) {
            target_poll(c, t, &answer);
        }
    }
    if (answer.ready) {
        answer.lease_end_us = INT64_MAX;
    }
    *poll = answer;
    return weir__memory_unlock(c, WEIR_OK, err);
}
