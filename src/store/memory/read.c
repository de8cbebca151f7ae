/* read.c - reading streams, the log, stream information, keys, and the events of subscriptions.
 *
 * Every chunk is copied out under the mutex and is bounded in events and bytes, so a slow reader
 * holds nothing.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"
#include "store/refusal.h"

/* ---- chunks of events --------------------------------------------------------------------- */

/* A chunk on its way. */
typedef struct filling {
    store_chunk *chunk;
    bool bare;
    size_t events_max, bytes_max;
} filling;

/* false: out of memory. */
static bool filling_begin(filling *f, memory_core *c, store_chunk *chunk, int64_t limit, bool bare)
{
    const size_t most = bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX;
    *f = (filling){
        .chunk = chunk,
        .bare = bare,
        .events_max = weir__chunk_limit(limit, most),
        .bytes_max = bare ? SIZE_MAX : STORE_CHUNK_BYTES_SOFT,
    };
    weir__chunk_clear(chunk);
    chunk->events = weir__memory_array(c, &chunk->arena, f->events_max, sizeof(weir_event));
    return chunk->events != NULL;
}

static bool filling_is_full(const filling *f)
{
    return f->chunk->events_count >= f->events_max || f->chunk->arena.bytes_used >= f->bytes_max;
}

static void filling_add(const filling *f, memory_core *c, const weir_event *e)
{
    c->full = !weir__chunk_add(f->chunk, e, f->bare) || c->full;
}

/* A version of the stream whose first event is at this index of `streams`. */
static const weir_event *version_at(const memory_core *c, size_t first, int64_t version)
{
    return c->streams.rows[first + (size_t)(version - c->version_base)];
}

static weir_status read_stream_locked(memory_core *c, const store_stream_query *q,
                                      store_chunk *chunk, weir_error *err)
{
    const weir_event *last = weir__memory_stream_last(c, q->stream);
    const size_t first = weir__memory_stream_seek(c, q->stream, 0);
    int64_t low = q->backward ? q->to : q->from;
    int64_t high = q->backward ? q->from : q->to;
    filling f;

    if (last == NULL) {
        return weir__stream_unknown(q->stream, err);
    }
    if (!filling_begin(&f, c, chunk, q->limit, false)) {
        return WEIR_ENOMEM;
    }
    low = low < c->version_base ? c->version_base : low;
    high = high > last->version ? last->version : high;
    while (low <= high && version_at(c, first, high)->created_us > q->until_us) {
        high--;
    }
    while (low <= high && !filling_is_full(&f)) {
        filling_add(&f, c, version_at(c, first, q->backward ? high-- : low++));
    }
    chunk->more = low <= high;
    return WEIR_OK;
}

weir_status weir__memory_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    return weir__memory_unlock(c, read_stream_locked(c, q, chunk, err), err);
}

/* Looks at one event after the other until the chunk, the bounds or its patience end. */
static void log_scan(memory_core *c, const store_log_query *q, int64_t low, int64_t high,
                     const filling *f)
{
    const int64_t looked_max = f->bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX;
    for (int64_t looked = 0; low <= high && looked < looked_max && !filling_is_full(f); looked++) {
        const int64_t id = q->backward ? high-- : low++;
        const weir_event *e = weir__memory_event(c, id);
        if (q->filter == NULL || weir__filter_matches(q->filter, e)) {
            filling_add(f, c, e);
        }
        f->chunk->scanned_to = id;
    }
    f->chunk->more = low <= high;
}

static void read_log_locked(memory_core *c, const store_log_query *q, store_chunk *chunk)
{
    const int64_t head = weir__memory_head(c);
    int64_t low, high;
    filling f;

    if (!filling_begin(&f, c, chunk, q->limit, q->bare)) {
        return;
    }
    chunk->scanned_to = q->after;
    chunk->head = head;
    if (q->backward) {
        high = q->after > head ? head : q->after - 1;
        low = q->to;
    } else {
        low = q->after == INT64_MAX ? INT64_MAX : q->after + 1;
        high = q->to > head ? head : q->to;
    }
    low = low <= c->position_base ? c->position_base + 1 : low;
    log_scan(c, q, low, high, &f);
    if (!chunk->more && q->backward) {
        chunk->scanned_to = q->to;
    } else if (!chunk->more && high > chunk->scanned_to) {
        chunk->scanned_to = high;
    }
}

weir_status weir__memory_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    read_log_locked(c, q, chunk);
    memcpy(chunk->epoch, c->epoch, sizeof chunk->epoch);
    memcpy(chunk->log, c->epoch, sizeof chunk->log);
    return weir__memory_unlock(c, WEIR_OK, err);
}

/* ---- streams and keys --------------------------------------------------------------------- */

static void info_fill(memory_core *c, const weir_event *last, weir_arena *arena,
                      store_stream_info *out)
{
    const size_t first = weir__memory_stream_seek(c, last->stream, 0);
    *out = (store_stream_info){
        .stream = last->stream,
        .version = last->version,
        .id = last->id,
        .created_us = weir__memory_stream_event(c, last->stream, first)->created_us,
        .updated_us = last->created_us,
        .closed = weir__memory_is_closed(last),
    };
    weir__memory_text_copy(c, arena, &out->stream);
}

weir_status weir__memory_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const weir_event *last = weir__memory_stream_last(c, stream);
    store_stream_info info;
    if (last == NULL) {
        return weir__memory_unlock(c, weir__stream_unknown(stream, err), err);
    }
    info_fill(c, last, arena, &info);
    const weir_status status = weir__memory_unlock(c, WEIR_OK, err);
    if (status == WEIR_OK) {
        *out = info;
    }
    return status;
}

weir_status weir__memory_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const size_t max = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX);

    weir__arena_reset(&chunk->arena);
    chunk->streams_count = 0;
    chunk->more = false;
    chunk->scanned_to = q->after;
    chunk->streams = weir__memory_array(c, &chunk->arena, max, sizeof *chunk->streams);
    size_t i = weir__memory_stream_seek(c, q->after, INT64_MAX), looked = 0;
    while (i < c->streams.count && !c->full && !chunk->more) {
        const weir_str name = ((const weir_event *)c->streams.rows[i])->stream;
        const weir_event *last = weir__memory_stream_last(c, name);
        const bool wanted = weir__stream_wanted(q, name, weir__memory_is_closed(last));
        chunk->more = looked++ == STORE_CHUNK_NAMES_MAX || (wanted && chunk->streams_count == max);
        if (wanted && !chunk->more) {
            info_fill(c, last, &chunk->arena, &chunk->streams[chunk->streams_count++]);
        }
        chunk->scanned_to = chunk->more ? chunk->scanned_to : name;
        i = weir__memory_stream_seek(c, name, INT64_MAX);
    }
    weir__memory_text_copy(c, &chunk->arena, &chunk->scanned_to);
    return weir__memory_unlock(c, WEIR_OK, err);
}

/* ---- fetch -------------------------------------------------------------------------------- */

static weir_status fetch_item(memory_core *c, const store_fetch_item *item, uint32_t item_index,
                              store_fetch_list *list, bool *exhausted, size_t *bytes,
                              weir_error *err)
{
    const memory_subscription *s = weir__memory_subscription(c, item->target, item->reaction);
    int64_t after = item->after;
    if (s == NULL) {
        return weir__subscription_unknown(item->target, item->reaction, err);
    }
    for (int64_t n = 0; n < item->limit && list->events_count < STORE_FETCH_EVENTS_MAX &&
                        *bytes < weir__fetch_bytes_soft(list);
         n++) {
        const weir_event *e = weir__memory_next_event(c, s, after, item->up_to);
        if (e == NULL) {
            *exhausted = true;
            break;
        }
        weir_event *copy = weir__memory_array(c, &list->arena, 1, sizeof *copy);
        if (copy == NULL) {
            return WEIR_ENOMEM;
        }
        weir__memory_copy(c, &c->events, e, &list->arena, copy);
        list->events[list->events_count++] =
            (store_fetched){ .event = copy, .item_index = item_index };
        after = e->id;
        *bytes += e->data.len + e->meta.len;
    }
    return WEIR_OK;
}

/* No more than this can come. */
static size_t fetch_room(const store_fetch_item *items, size_t count)
{
    size_t room = 0;
    for (size_t i = 0; i < count && room < STORE_FETCH_EVENTS_MAX; i++) {
        room += weir__chunk_limit(items[i].limit, STORE_FETCH_EVENTS_MAX - room);
    }
    return room;
}

weir_status weir__memory_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err)
{
    memory_core *c = weir__memory_lock(base);
    const size_t room = fetch_room(items, count);
    weir_status status = WEIR_OK;
    size_t bytes = 0;

    weir__arena_reset(&list->arena);
    list->events_count = 0;
    list->events = weir__memory_array(c, &list->arena, room + 1, sizeof *list->events);
    bool *exhausted = weir__memory_array(c, &list->arena, count + 1, sizeof *exhausted);
    list->exhausted = exhausted;
    for (size_t i = 0; i < count && status == WEIR_OK && !c->full; i++) {
        exhausted[i] = false;
        status = fetch_item(c, &items[i], (uint32_t)i, list, &exhausted[i], &bytes, err);
    }
    status = weir__memory_unlock(c, status, err);
    if (status != WEIR_OK) {
        list->events_count = 0;
    }
    return status;
}
