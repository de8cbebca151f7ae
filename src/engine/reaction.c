/* reaction.c - where an event goes, how long a failure waits, and finding a reaction again.
 *
 * Everything here only reads what was declared, so that any number of threads may ask at once.
 */
#include "engine/reaction.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/template.h"
#include "store/request.h"

#include <string.h>

enum { WAIT_US_MIN = 1000 };

/* ---- routes -------------------------------------------------------------------------------- */

size_t weir__registry_known(const registry *r, store_known_reaction *out)
{
    size_t count = 0;
    for (size_t i = 0; i < r->reactions_count; i++) {
        const reaction *q = &r->reactions[i];
        const int64_t number = weir__reaction_number(q);
        if (number != 0) {
            out[count++] = (store_known_reaction){ .reaction = q->known.id, .number = number };
        }
    }
    return count;
}

bool weir__reaction_listens(const reaction *q, weir_str event_name, weir_str stream)
{
    const bool named = q->all_names ? event_name.len > 0 && event_name.ptr[0] != '$'
                                    : weir__names_contain(q->names, q->names_count, event_name);
    return named && weir__pattern_matches(q->source, stream);
}

bool weir__reaction_reads_payload(const reaction *q)
{
    return q->resolve != NULL || weir__template_reads_data(q->to) ||
           (q->priority_text != NULL && weir__template_reads_data(q->priority_text));
}

bool weir__reaction_reads_stream(const reaction *q)
{
    return q->resolve != NULL || q->priority_text != NULL || q->source->kind != PATTERN_ALL ||
           (q->rule != STORE_RULE_CONSTANT && q->rule != STORE_RULE_NAME);
}

bool weir__reaction_is_fixed(const reaction *q)
{
    return q->resolve == NULL && q->priority_text == NULL && q->rule == STORE_RULE_CONSTANT;
}

static bool text_keep(weir_arena *arena, weir_str text, weir_str *out)
{
    const char *copy = weir__arena_copy(arena, text.ptr == NULL ? "" : text.ptr, text.len);
    if (copy == NULL) {
        return false;
    }
    *out = (weir_str){ .ptr = copy, .len = text.len };
    return true;
}

/* Its texts live only until the next call, so they are copied. */
static weir_status route_keep(const reaction *q, const weir_event *e, const weir_route *said,
                              weir_arena *arena, reaction_route *out, weir_error *err)
{
    reaction_route route = { .lane = q->lane, .source = e->stream, .priority = said->priority };
    weir_status status = weir__name_check("target name", said->target, false, err);
    if (status == WEIR_OK && said->lane.len > 0) {
        status = weir__name_check("lane", said->lane, false, err);
    }
    if (status == WEIR_OK && said->source.len > 0) {
        status = weir__name_check("source", said->source, true, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (!text_keep(arena, said->target, &route.target) ||
        (said->lane.len > 0 && !text_keep(arena, said->lane, &route.lane)) ||
        (said->source.len > 0 && !text_keep(arena, said->source, &route.source))) {
        return weir__fail(err, WEIR_ENOMEM, "could not keep a route");
    }
    *out = route;
    return WEIR_OK;
}

static weir_status resolver_ask(const reaction *q, const weir_event *e, weir_arena *arena,
                                reaction_route *out, weir_error *err)
{
    weir_route said = { .size = sizeof said, .priority = q->priority };
    weir_error why = { .size = sizeof why };
    const int32_t rc = q->resolve(q->ctx, e, &said, &why);
    if (rc != WEIR_OK) {
        const size_t len = strnlen(why.message, sizeof why.message);
        return weir__fail(err, WEIR_EINVAL, "the resolver failed: %.*s",
                          (int)(len == 0 ? strlen(weir_status_text(rc)) : len),
                          len == 0 ? weir_status_text(rc) : why.message);
    }
    if (said.target.len == 0) {
        *out = (reaction_route){ 0 };
        return WEIR_OK;
    }
    const weir_status status = route_keep(q, e, &said, arena, out, err);
    return status == WEIR_OK ? WEIR_OK : weir__wrap(err, status, "the resolver's answer");
}

/* What the template gives, 0 when it gives no integer. Never a reason not to route: the events of a
 * target that can be derived lie between its marks, so one that was set aside would be handled all
 * the same. */
static weir_status priority_fill(const reaction *q, const weir_event *e, weir_arena *arena,
                                 int64_t *out, weir_error *err)
{
    weir_str text = { 0 };
    *out = q->priority;
    if (q->priority_text == NULL) {
        return WEIR_OK;
    }
    const weir_status status = weir__template_fill(q->priority_text, e, arena, &text, err);
    if (status == WEIR_ENOMEM) {
        return status;
    }
    if (status != WEIR_OK || !weir__str_to_i64(text, out)) {
        *out = 0;
    }
    return WEIR_OK;
}

weir_status weir__reaction_resolve(const reaction *q, const weir_event *e, weir_arena *arena,
                                   reaction_route *out, weir_error *err)
{
    if (q->resolve != NULL) {
        return resolver_ask(q, e, arena, out, err);
    }
    reaction_route route = { .lane = q->lane, .value = weir__template_value(q->to, e) };
    weir_status status = weir__template_fill(q->to, e, arena, &route.target, err);
    if (status == WEIR_OK) {
        status = weir__name_check("target name", route.target, false, err);
    }
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "target");
    }
    status = priority_fill(q, e, arena, &route.priority, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "priority");
    }
    /* A target of many streams shows what it listens to, which does not change with each event. */
    const bool own_stream = q->rule == STORE_RULE_STREAM || q->rule == STORE_RULE_WORK;
    route.source = own_stream ? e->stream : q->source->text;
    *out = route;
    return WEIR_OK;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int64_t weir__reaction_backoff_us(const reaction *q, int64_t attempt, uint64_t random)
{
    const reaction_backoff *b = &q->backoff;
    const int64_t before = attempt < 1 ? 0 : attempt - 1;
    int64_t wait = b->base_us;

    switch (b->kind) {
    case BACKOFF_FIXED:
        return wait;
    case BACKOFF_LINEAR:
        if (before >= b->cap_us / b->base_us) {
            wait = b->cap_us;
        } else {
            wait += before * b->base_us;
        }
        break;
    case BACKOFF_EXPONENTIAL:
        for (int64_t i = 0; i < before && wait < b->cap_us; i++) {
            wait = wait > b->cap_us / 2 ? b->cap_us : wait * 2;
        }
        break;
    }
    wait = wait > b->cap_us ? b->cap_us : wait;
    const int64_t jittered = (int64_t)(random % ((uint64_t)wait + 1));
    return jittered < WAIT_US_MIN ? WAIT_US_MIN : jittered;
}

/* ---- the registry -------------------------------------------------------------------------- */

reaction *weir__registry_find(registry *r, int64_t reaction_id)
{
    size_t low = 0;
    size_t high = r->reactions_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->reactions[middle].known.id < reaction_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < r->reactions_count && r->reactions[low].known.id == reaction_id
               ? &r->reactions[low]
               : NULL;
}

void weir__reaction_clear(reaction *q)
{
    weir__pattern_close(q->source);
    weir__template_close(q->to);
    weir__template_close(q->priority_text);
    q->source = NULL;
    q->to = NULL;
    q->priority_text = NULL;
}

void weir__registry_free(registry *r)
{
    for (size_t i = 0; i < r->reactions_count; i++) {
        weir__reaction_clear(&r->reactions[i]);
    }
    weir__free(r->reactions);
    weir__free(r->lanes);
    weir__buffer_free(&r->problems);
    weir__arena_free(&r->arena);
    *r = (registry){ 0 };
}
