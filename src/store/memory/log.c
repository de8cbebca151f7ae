/* log.c - events: where they are, and which is the next of a subscription.
 *
 * INVARIANTS
 *   (1) Positions have no gaps: position_base + 1, + 2, ... `created_us` never goes back.
 *   (2) Versions have no gaps either: a stream begins with version_base.
 *   (3) A stream is closed when its last event is $closed.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

int64_t weir__memory_head(const memory_core *c)
{
    return c->events.count == 0 ? 0 : c->position_base + (int64_t)c->events.count;
}

const weir_event *weir__memory_event(const memory_core *c, int64_t id)
{
    const size_t index = (size_t)(id - c->position_base - 1);
    WEIR_ASSERT(index < c->events.count);
    return c->events.rows[index];
}

/* ---- streams ------------------------------------------------------------------------------ */

size_t weir__memory_stream_seek(const memory_core *c, weir_str stream, int64_t id)
{
    return weir__rows_seek(&c->streams, &(weir_event){ .stream = stream, .id = id });
}

const weir_event *weir__memory_stream_event(const memory_core *c, weir_str stream, size_t i)
{
    const weir_event *e = i < c->streams.count ? c->streams.rows[i] : NULL;
    return e != NULL && weir__str_equal(e->stream, stream) ? e : NULL;
}

const weir_event *weir__memory_stream_last(const memory_core *c, weir_str stream)
{
    const size_t end = weir__memory_stream_seek(c, stream, INT64_MAX);
    return end == 0 ? NULL : weir__memory_stream_event(c, stream, end - 1);
}

bool weir__memory_is_closed(const weir_event *last)
{
    return weir__str_equal(last->name, weir__str("$closed"));
}

const weir_event *weir__memory_event_add(memory_core *c, weir_str stream,
                                         const store_new_event *event)
{
    const weir_event *last = weir__memory_stream_last(c, stream);
    const weir_event e = {
        .size = sizeof e,
        .id = c->position_base + (int64_t)c->events.count + 1,
        .version = last == NULL ? c->version_base : last->version + 1,
        .created_us = c->now_us,
        .stream = stream,
        .name = event->name,
        .data = event->data,
        .meta = event->meta,
    };
    weir__memory_put(c, &c->events, &e);
    if (c->full) {
        return NULL;
    }
    void *row = c->events.rows[c->events.count - 1];
    c->full = !weir__rows_share(&c->changes, &c->streams, row);
    return c->full ? NULL : row;
}

/* ---- the events of a subscription --------------------------------------------------------- */

static const weir_event *next_in_stream(const memory_core *c, weir_str stream,
                                        const memory_definition *d, int64_t after, int64_t up_to)
{
    const weir_event *e;
    size_t i = weir__memory_stream_seek(c, stream, after + 1);
    while ((e = weir__memory_stream_event(c, stream, i++)) != NULL && e->id <= up_to) {
        if (weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

static const weir_event *next_in_log(const memory_core *c, weir_str value,
                                     const memory_definition *d, int64_t after, int64_t up_to)
{
    const int64_t head = weir__memory_head(c);
    const int64_t last = up_to < head ? up_to : head;
    for (int64_t id = (after < c->position_base ? c->position_base : after) + 1; id <= last; id++) {
        const weir_event *e = weir__memory_event(c, id);
        const bool fits =
            d->rule == STORE_RULE_CONSTANT ||
            weir__str_equal(value,
                            d->rule == STORE_RULE_NAME ? e->name : weir__category(e->stream));
        if (fits && weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

static const weir_event *next_of_work(const memory_core *c, const memory_subscription *s,
                                      const memory_definition *d, int64_t after, int64_t up_to)
{
    const int64_t head = weir__memory_head(c);
    const memory_work from = { .target = s->target, .reaction = s->reaction, .event = after + 1 };
    for (size_t i = weir__rows_seek(&c->work, &from); i < c->work.count; i++) {
        const memory_work *w = c->work.rows[i];
        if (w->target != s->target || w->reaction != s->reaction || w->event > up_to ||
            w->event > head || w->event <= c->position_base) {
            return NULL;
        }
        const weir_event *e = weir__memory_event(c, w->event);
        if (weir__memory_listens(d, e)) {
            return e;
        }
    }
    return NULL;
}

const weir_event *weir__memory_next_event(const memory_core *c, const memory_subscription *s,
                                          int64_t after, int64_t up_to)
{
    const memory_definition *d = weir__memory_definition(c, s->reaction);
    switch (d->rule) {
    case STORE_RULE_STREAM:
        return next_in_stream(c, s->value, d, after, up_to);
    case STORE_RULE_WORK:
        return next_of_work(c, s, d, after, up_to);
    case STORE_RULE_CONSTANT:
    case STORE_RULE_CATEGORY:
    case STORE_RULE_NAME:
        break;
    }
    return next_in_log(c, s->value, d, after, up_to);
}
