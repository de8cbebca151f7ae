/* append_support.c - see append_support.h. */
#include "append_support.h"

#include "base/assert.h"

#include <string.h>

void make(made *m, const char *stream, int32_t expect, int64_t version, const char *name)
{
    *m = (made){ 0 };
    m->streams[0] =
        (store_append_stream){ .name = weir__str(stream), .expect = expect, .version = version };
    m->events[0] = (store_new_event){ .name = weir__str(name),
                                      .data = weir__str("{\"a\":1}"),
                                      .meta = weir__str("{}") };
    m->append = (store_append){ .streams = m->streams,
                                .streams_count = 1,
                                .events = m->events,
                                .events_count = 1,
                                .err = &m->err };
}

void make_add(made *m, const char *stream, const char *name)
{
    const size_t n = m->append.streams_count;
    WEIR_ASSERT(n < MADE_STREAMS_MAX);
    m->streams[n] = (store_append_stream){ .name = weir__str(stream) };
    m->events[n] = (store_new_event){ .stream_index = (uint32_t)n,
                                      .name = weir__str(name),
                                      .data = weir__str("{}"),
                                      .meta = weir__str("{}") };
    m->append.streams_count++;
    m->append.events_count++;
}

void make_key(made *m, const char *key, uint8_t content)
{
    m->append.key = weir__str(key);
    memset(m->append.fingerprint, content, sizeof m->append.fingerprint);
}

weir_status run(weir_store *s, made *all, size_t count, uint32_t flags, weir_error *err)
{
    store_append *appends[RUN_MAX];
    WEIR_ASSERT(count <= RUN_MAX);
    for (size_t i = 0; i < count; i++) {
        all[i].append.flags |= flags;
        appends[i] = &all[i].append;
    }
    return s->log->append(s, appends, count, err);
}

weir_status append_by(weir *w, PGconn *in, const char *stream, const char *key,
                      const weir_append_result **out, weir_error *err)
{
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                               .name = weir__str("A") };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .key = weir__str(key) };
    return in == NULL ? weir_append(w, &r, out, err) : weir_append_in(w, in, &r, out, err);
}
