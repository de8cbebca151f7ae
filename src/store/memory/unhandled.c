/* unhandled.c - which reactions still have something to do with a stream: what closing asks. */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

/* The least `at` of a reaction's subscriptions for a value (NULL: for any); INT64_MAX: there are
 * none. */
static int64_t value_at(const memory_core *c, int64_t reaction, const weir_str *value)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < c->subscriptions.count; i++) {
        const memory_subscription *s = c->subscriptions.rows[i];
        if (s->reaction == reaction && s->at < least &&
            (value == NULL || weir__str_equal(s->value, *value))) {
            least = s->at;
        }
    }
    return least;
}

static bool work_exists(const memory_core *c, int64_t reaction, int64_t event)
{
    for (size_t i = 0; i < c->work.count; i++) {
        const memory_work *w = c->work.rows[i];
        if (w->reaction == reaction && w->event == event) {
            return true;
        }
    }
    return false;
}

/* Whether an event that is routed and that the reaction listens to has not been handled. */
static bool event_unhandled(const memory_core *c, const memory_definition *d, const weir_event *e)
{
    const weir_str category = weir__category(e->stream);
    switch (d->rule) {
    case STORE_RULE_CONSTANT:
        return e->id > value_at(c, d->reaction, NULL);
    case STORE_RULE_STREAM:
        return e->id > value_at(c, d->reaction, &e->stream);
    case STORE_RULE_CATEGORY:
        return e->id > value_at(c, d->reaction, &category);
    case STORE_RULE_NAME:
        return e->id > value_at(c, d->reaction, &e->name);
    case STORE_RULE_WORK:
        return work_exists(c, d->reaction, e->id);
    }
    return false;
}

static bool reaction_holds(const memory_core *c, const store_reaction *r, weir_str stream)
{
    const memory_definition *d = weir__memory_definition(c, r->id);
    const weir_event *e;
    size_t i = weir__memory_stream_seek(c, stream, r->since + 1);
    while (!r->retired && (e = weir__memory_stream_event(c, stream, i++)) != NULL) {
        if (weir__memory_listens(d, e) && (e->id > r->routed || event_unhandled(c, d, e))) {
            return true;
        }
    }
    return false;
}

weir_status weir__memory_unhandled(const memory_core *c, weir_str stream, weir_error *err)
{
    store_named names = { 0 };
    for (size_t i = 0; i < c->reactions.count; i++) {
        const store_reaction *r = c->reactions.rows[i];
        if (reaction_holds(c, r, stream)) {
            weir__named_add(&names, r->name);
        }
    }
    return names.len == 0 ? WEIR_OK : weir__stream_unhandled(stream, &names, err);
}
