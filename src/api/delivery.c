/* delivery.c - what a handler can ask and say: the functions of weir.h over engine/delivery.h. */
#include "engine/delivery.h"

#include "base/error.h"

#include <string.h>

const weir_event *weir_delivery_event(const weir_delivery *d)
{
    return d->event;
}

weir_str weir_delivery_reaction(const weir_delivery *d)
{
    return d->reaction_name;
}

weir_str weir_delivery_target(const weir_delivery *d)
{
    return d->target;
}

int64_t weir_delivery_attempt(const weir_delivery *d)
{
    return d->attempt;
}

int64_t weir_delivery_fence(const weir_delivery *d)
{
    return d->fence;
}

int64_t weir_delivery_deadline_us(const weir_delivery *d)
{
    return d->deadline_us;
}

weir_str weir_delivery_key(const weir_delivery *d)
{
    return (weir_str){ d->key, strlen(d->key) };
}

int32_t weir_delivery_interrupted(const weir_delivery *d)
{
    return weir__delivery_interrupted(d) ? 1 : 0;
}

void weir_delivery_fail(weir_delivery *d, const char *why)
{
    if (why != NULL) {
        weir__delivery_fail(d, (weir_str){ why, strlen(why) });
    }
}

void weir_delivery_defer(weir_delivery *d, int64_t until_us)
{
    d->defer_us = until_us;
}

int32_t weir_stage_append(weir_delivery *d, const weir_append_request *request, weir_error *err)
{
    if (d == NULL || request == NULL) {
        return weir__fail(err, WEIR_EINVAL, "delivery or request is NULL");
    }
    return weir__stage_append(d, request, err);
}

int32_t weir_stage_sql(weir_delivery *d, weir_sql_fn fn, void *ctx, weir_error *err)
{
    if (d == NULL || fn == NULL) {
        return weir__fail(err, WEIR_EINVAL, "delivery or function is NULL");
    }
    return weir__stage_sql(d, fn, ctx, err);
}
