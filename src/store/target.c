/* target.c - see target.h. */
#include "store/target.h"

#include "base/str.h"

/* ---- state --------------------------------------------------------------------------------- */

store_target_state weir__target_state(const store_target *t, bool lane_paused, int64_t now_us)
{
    if (t->leased_until_us > now_us) {
        return STORE_TARGET_LEASED;
    }
    if (t->blocked) {
        return STORE_TARGET_BLOCKED;
    }
    if (t->paused || lane_paused) {
        return STORE_TARGET_PAUSED;
    }
    if (t->due_us > now_us) {
        return STORE_TARGET_DEFERRED;
    }
    return t->behind ? STORE_TARGET_READY : STORE_TARGET_IDLE;
}

/* ---- derived values ------------------------------------------------------------------------ */

void weir__derived_add(store_derived *d, int64_t at, int64_t mark, int64_t priority)
{
    const bool lags = at < mark;
    /* The least of those that are behind, else the greatest. */
    if (lags ? !d->lagging || at < d->watermark
             : !d->lagging && (!d->counted || at > d->watermark)) {
        d->watermark = at;
    }
    d->priority = d->counted && d->priority > priority ? d->priority : priority;
    d->behind = d->behind || lags;
    d->lagging = d->lagging || lags;
    d->counted = true;
}

/* ---- filters ------------------------------------------------------------------------------- */

bool weir__target_accepts(const store_target_filter *filter, weir_str name, weir_str lane)
{
    return (filter->match == NULL || weir__pattern_matches(filter->match, name)) &&
           (filter->lane.len == 0 || weir__str_equal(filter->lane, lane));
}

static bool filter_is_range(const store_target_filter *filter)
{
    return filter->match != NULL &&
           (filter->match->kind == PATTERN_PREFIX || filter->match->kind == PATTERN_EXACT);
}

weir_str weir__target_range(const store_target_filter *filter, weir_str after)
{
    return filter_is_range(filter) && weir__str_compare(filter->match->name, after) > 0
               ? filter->match->name
               : after;
}

bool weir__target_is_beyond(const store_target_filter *filter, weir_str name)
{
    return filter_is_range(filter) && weir__str_compare(name, filter->match->name) > 0 &&
           (filter->match->kind == PATTERN_EXACT ||
            !weir__str_starts_with(name, filter->match->name));
}

/* ---- operators' verbs ---------------------------------------------------------------------- */

bool weir__verb_changes(const store_operate *op, const store_target *t, bool passed)
{
    switch (op->verb) {
    case STORE_UNBLOCK:
        return (t->blocked || t->due_us != 0) && !passed;
    case STORE_PRIORITIZE:
        return op->clear ? t->prioritized : !t->prioritized || t->priority != op->priority;
    case STORE_PAUSE:
        return !t->paused;
    case STORE_RESUME:
        return t->paused;
    case STORE_RESET:
    case STORE_SKIP:
        break;
    }
    return false;
}

void weir__obstacle_add(store_obstacles *o, int64_t event, int64_t reaction, int64_t attempts)
{
    const store_obstacle *least = &o->least;
    if (!least->found || event < least->event ||
        (event == least->event && reaction < least->reaction)) {
        o->least = (store_obstacle){ true, event, reaction, attempts };
    }
    o->named.found = o->named.found || (event == o->named.event && reaction == o->named.reaction);
}

store_obstacle weir__obstacle_first(const store_obstacles *o)
{
    return o->named.found ? o->named : o->least;
}
