/* operate.c - what operators do: verbs on targets, lanes and parked events.
 *
 * Each is one call of the port. A verb that is not told which targets it is for is refused: to
 * forget a filter must not mean all of them.
 */
#include "api/api.h"
#include "api/filter.h"
#include "base/error.h"
#include "base/str.h"
#include "base/struct.h"
#include "store/request.h"

#include <assert.h>
#include <inttypes.h>

/* ---- verbs -------------------------------------------------------------------------------- */

/* Whether the options say something that this verb knows nothing of: a mistake, not a default. */
static weir_status options_check(const weir_targets_options *o, store_verb verb, weir_error *err)
{
    const bool clear = (o->flags & WEIR_TARGETS_CLEAR) != 0;
    const uint32_t known = WEIR_TARGETS_ALL | WEIR_TARGETS_BLOCKED | WEIR_TARGETS_DRY_RUN |
                           (verb == STORE_PRIORITIZE ? WEIR_TARGETS_CLEAR : 0);
    if ((o->flags & ~known) != 0) {
        return weir__fail(err, WEIR_EINVAL,
                          "weir_targets_options has flags %u that are not for this",
                          o->flags & ~known);
    }
    if (verb != STORE_RESET &&
        (o->reset_to != 0 || o->reset_position != 0 || o->reset_time_us != 0)) {
        return weir__fail(err, WEIR_EINVAL, "where to reset to is for weir_targets_reset only");
    }
    if (o->reset_to < WEIR_RESET_START || o->reset_to > WEIR_RESET_TIME ||
        (o->reset_to != WEIR_RESET_POSITION && o->reset_position != 0) ||
        (o->reset_to != WEIR_RESET_TIME && o->reset_time_us != 0) || o->reset_position < 0) {
        return weir__fail(err, WEIR_EINVAL,
                          "reset_to is %d with position %" PRId64 " and time %" PRId64
                          ": a position goes with 1, a time with 2",
                          o->reset_to, o->reset_position, o->reset_time_us);
    }
    if (o->priority != 0 && (verb != STORE_PRIORITIZE || clear)) {
        return weir__fail(err, WEIR_EINVAL,
                          "a priority is for weir_targets_prioritize without WEIR_TARGETS_CLEAR");
    }
    if (o->names_count == 0 && o->match.len == 0 && o->source.len == 0 && o->lane.len == 0 &&
        (o->flags & (WEIR_TARGETS_BLOCKED | WEIR_TARGETS_ALL)) == 0) {
        return weir__fail(err, WEIR_EINVAL,
                          "which targets? weir_targets_options has no names, no filter and not "
                          "WEIR_TARGETS_ALL");
    }
    return WEIR_OK;
}

static weir_str operator_of(const weir_core *c, weir_str by)
{
    return by.len > 0 ? by : weir__str(c->url.options.application);
}

static weir_status operate_checked(const weir *w, store_verb verb,
                                   const weir_targets_options *options, int64_t *changed,
                                   weir_error *err)
{
    weir_targets_options o = { 0 };
    api_filter f = { 0 };
    weir_core *c = NULL;
    weir_status status = weir__struct_copy(&o, sizeof o, options, "weir_targets_options", err);
    if (status == WEIR_OK) {
        status = options_check(&o, verb, err);
    }
    if (status == WEIR_OK && o.by.len > 0) {
        status = weir__name_check("operator", o.by, true, err);
    }
    if (status == WEIR_OK) {
        status = weir__api_filter_take(&f, &o, err);
    }
    const bool dry_run = (o.flags & WEIR_TARGETS_DRY_RUN) != 0;
    if (status == WEIR_OK) {
        status = dry_run ? weir__enter(w, &c, err) : weir__enter_writing(w, &c, err);
    }
    if (status == WEIR_OK) {
        store_operate op = { .verb = verb,
                             .filter = f.filter,
                             .dry_run = dry_run,
                             .by = operator_of(c, o.by),
                             .reset_to = o.reset_to,
                             .position = o.reset_position,
                             .time_us = o.reset_time_us,
                             .priority = o.priority,
                             .clear = (o.flags & WEIR_TARGETS_CLEAR) != 0 };
        status = c->store->work->operate(c->store, &op, err);
        weir__leave(w);
        if (status == WEIR_OK && changed != NULL) {
            *changed = op.changed;
        }
    }
    weir__api_filter_free(&f);
    return status;
}

static_assert((int)WEIR_RESET_START == (int)STORE_RESET_START &&
                  (int)WEIR_RESET_POSITION == (int)STORE_RESET_POSITION &&
                  (int)WEIR_RESET_TIME == (int)STORE_RESET_TIME,
              "the port counts them alike");

int32_t weir_targets_unblock(weir *w, const weir_targets_options *options, int64_t *changed,
                             weir_error *err)
{
    return operate_checked(w, STORE_UNBLOCK, options, changed, err);
}

int32_t weir_targets_skip(weir *w, const weir_targets_options *options, int64_t *changed,
                          weir_error *err)
{
    return operate_checked(w, STORE_SKIP, options, changed, err);
}

int32_t weir_targets_reset(weir *w, const weir_targets_options *options, int64_t *changed,
                           weir_error *err)
{
    return operate_checked(w, STORE_RESET, options, changed, err);
}

int32_t weir_targets_prioritize(weir *w, const weir_targets_options *options, int64_t *changed,
                                weir_error *err)
{
    return operate_checked(w, STORE_PRIORITIZE, options, changed, err);
}

int32_t weir_targets_pause(weir *w, const weir_targets_options *options, int64_t *changed,
                           weir_error *err)
{
    return operate_checked(w, STORE_PAUSE, options, changed, err);
}

int32_t weir_targets_resume(weir *w, const weir_targets_options *options, int64_t *changed,
                            weir_error *err)
{
    return operate_checked(w, STORE_RESUME, options, changed, err);
}

/* ---- lanes -------------------------------------------------------------------------------- */

static weir_status lane_set(const weir *w, weir_str lane, bool paused, weir_str by,
                            int64_t *changed, weir_error *err)
{
    weir_core *c = NULL;
    bool did = false;
    weir_status status = weir__name_check("lane", lane, true, err);
    if (status == WEIR_OK && by.len > 0) {
        status = weir__name_check("operator", by, true, err);
    }
    if (status == WEIR_OK) {
        status = weir__enter_writing(w, &c, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = c->store->work->lane_pause(c->store, lane, paused, operator_of(c, by), &did, err);
    weir__leave(w);
    if (status == WEIR_OK && changed != NULL) {
        *changed = did;
    }
    return status;
}

int32_t weir_lane_pause(weir *w, weir_str lane, weir_str by, int64_t *changed, weir_error *err)
{
    return lane_set(w, lane, true, by, changed, err);
}

int32_t weir_lane_resume(weir *w, weir_str lane, int64_t *changed, weir_error *err)
{
    return lane_set(w, lane, false, (weir_str){ .len = 0 }, changed, err);
}

/* ---- parked events ------------------------------------------------------------------------ */

int32_t weir_parked_retry(weir *w, int64_t id, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__enter_writing(w, &c, err);
    if (status == WEIR_OK) {
        status = c->store->work->parked_change(c->store, id, STORE_PARKED_RETRY, err);
        weir__leave(w);
    }
    return status;
}

int32_t weir_parked_drop(weir *w, int64_t id, weir_error *err)
{
    weir_core *c = NULL;
    weir_status status = weir__enter_writing(w, &c, err);
    if (status == WEIR_OK) {
        status = c->store->work->parked_change(c->store, id, STORE_PARKED_DROP, err);
        weir__leave(w);
    }
    return status;
}
