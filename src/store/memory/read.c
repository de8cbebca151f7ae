/* read.c - reading streams, the log, stream information and keys, in chunks.
 *
 * Every chunk is copied out under the mutex and is bounded in events and bytes, so a slow reader
 * holds nothing and a long read delays writers for the time of one chunk at most.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <string.h>

/* A chunk on its way. */
typedef struct filling {
    store_chunk *chunk;
    bool bare;
    size_t events_max, bytes_max;
} filling;

/* Room for the events of a chunk. */
static bool chunk_begin(filling *f, store_chunk *chunk, int64_t limit, bool bare)
{
    const size_t most = bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX;
    *f = (filling){
        .chunk = chunk,
        .bare = bare,
        .events_max = (uint64_t)limit < most ? (size_t)limit : most,
        .bytes_max = bare ? SIZE_MAX : STORE_CHUNK_BYTES_SOFT,
    };
    weir__arena_reset(&chunk->arena);
    chunk->events = weir__arena_alloc(&chunk->arena, f->events_max * sizeof(weir_event));
    chunk->events_count = 0;
    chunk->scanned_to = 0;
    chunk->more = false;
    return chunk->events != NULL;
}

static bool chunk_add(const filling *f, const memory_event *e)
{
    store_chunk *chunk = f->chunk;
    const weir_event *same =
        chunk->events_count == 0 ? NULL : &chunk->events[chunk->events_count - 1];
    if (!weir__memory_event_copy(&chunk->arena, e, same, f->bare,
                                 &chunk->events[chunk->events_count])) {
        return false;
    }
    chunk->events_count++;
    return true;
}

static bool chunk_is_full(const filling *f)
{
    return f->chunk->events_count >= f->events_max || f->chunk->arena.bytes_used >= f->bytes_max;
}

/* How many of a stream's events were created at or before a time: they come first. */
static int64_t count_until(const event_list *list, int64_t until_us)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (list->items[middle]->created_us <= until_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (int64_t)low;
}

static weir_status read_stream_locked(const memory_core *c, const store_stream_query *q,
                                      store_chunk *chunk, weir_error *err)
{
    const memory_stream *s = weir__memory_stream_find(c, q->stream);
    if (s == NULL) {
        weir__fail(err, WEIR_ENOTFOUND, "no stream \"%.*s\"", (int)q->stream.len, q->stream.ptr);
        weir__error_stream(err, q->stream);
        return WEIR_ENOTFOUND;
    }
    filling f;
    if (!chunk_begin(&f, chunk, q->limit, false)) {
        return weir__memory_full(err);
    }
    /* The bounds as versions that exist, lowest and highest. */
    const int64_t top = c->version_base + count_until(&s->events, q->until_us) - 1;
    int64_t low = q->backward ? q->to : q->from;
    int64_t high = q->backward ? q->from : q->to;
    low = low < c->version_base ? c->version_base : low;
    high = high > top ? top : high;

    while (low <= high && !chunk_is_full(&f)) {
        const int64_t version = q->backward ? high-- : low++;
        if (!chunk_add(&f, s->events.items[version - c->version_base])) {
            return weir__memory_full(err);
        }
    }
    chunk->more = low <= high;
    return WEIR_OK;
}

weir_status weir__memory_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = read_stream_locked(h->core, q, chunk, err);
    weir__unlock(&h->core->mu);
    return status;
}

/* Whether a reader wants an event; nothing is copied for one it does not. */
static bool event_wanted(const store_filter *filter, const memory_event *e)
{
    if (filter == NULL) {
        return true;
    }
    const weir_event borrowed = {
        .size = sizeof borrowed,
        .id = e->id,
        .version = e->version,
        .created_us = e->created_us,
        .stream = e->stream->item.key,
        .name = e->name->item.key,
        .data = weir__memory_data(e),
        .meta = weir__memory_meta(e),
    };
    return weir__filter_matches(filter, &borrowed);
}

/* Looks at one event after the other until the chunk, the bounds or its patience end. */
static weir_status scan(const memory_core *c, const store_log_query *q, int64_t low, int64_t high,
                        const filling *f, weir_error *err)
{
    const int64_t looked_max = f->bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX;
    int64_t looked = 0;

    while (low <= high && looked < looked_max && !chunk_is_full(f)) {
        const int64_t id = q->backward ? high-- : low++;
        const memory_event *e = weir__memory_event_at(c, id);
        if (event_wanted(q->filter, e) && !chunk_add(f, e)) {
            return weir__memory_full(err);
        }
        f->chunk->scanned_to = id;
        looked++;
    }
    f->chunk->more = low <= high;
    return WEIR_OK;
}

static weir_status read_log_locked(const memory_core *c, const store_log_query *q,
                                   store_chunk *chunk, weir_error *err)
{
    const int64_t head = weir__memory_head(c);
    int64_t low, high;
    filling f;

    if (!chunk_begin(&f, chunk, q->limit, q->bare)) {
        return weir__memory_full(err);
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
    if (low <= c->position_base) {
        low = c->position_base + 1;
    }
    const weir_status status = scan(c, q, low, high, &f, err);
    if (status == WEIR_OK && !chunk->more) {
        if (q->backward) {
            chunk->scanned_to = q->to;
        } else if (high > chunk->scanned_to) {
            chunk->scanned_to = high;
        }
    }
    return status;
}

weir_status weir__memory_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = read_log_locked(h->core, q, chunk, err);
    memcpy(chunk->epoch, h->core->epoch, sizeof chunk->epoch);
    memcpy(chunk->log, h->core->epoch, sizeof chunk->log);
    weir__unlock(&h->core->mu);
    return status;
}

/* ---- streams ------------------------------------------------------------------------------ */

static bool info_fill(const memory_core *c, const memory_stream *s, weir_arena *arena,
                      store_stream_info *out)
{
    const memory_event *first = s->events.items[0];
    const memory_event *last = s->events.items[s->events.count - 1];
    weir_str name;

    if (!weir__memory_text_copy(arena, s->item.key, &name)) {
        return false;
    }
    *out = (store_stream_info){
        .stream = name,
        .version = weir__memory_stream_version(c, s),
        .id = last->id,
        .created_us = first->created_us,
        .updated_us = last->created_us,
        .closed = s->closed,
    };
    return true;
}

weir_status weir__memory_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = WEIR_OK;

    weir__lock(&h->core->mu);
    const memory_stream *s = weir__memory_stream_find(h->core, stream);
    if (s == NULL) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no stream \"%.*s\"", (int)stream.len, stream.ptr);
        weir__error_stream(err, stream);
    } else if (!info_fill(h->core, s, arena, out)) {
        status = weir__memory_full(err);
    }
    weir__unlock(&h->core->mu);
    return status;
}

/* What every name that fits begins with; empty: anything. */
static weir_str common_prefix(const store_streams_query *q)
{
    weir_str prefix = q->category;
    if (q->pattern != NULL &&
        (q->pattern->kind == PATTERN_EXACT || q->pattern->kind == PATTERN_PREFIX) &&
        q->pattern->name.len > prefix.len) {
        prefix = q->pattern->name;
    }
    return prefix;
}

static bool stream_wanted(const store_streams_query *q, const memory_stream *s)
{
    if ((q->closed == 1 && !s->closed) || (q->closed == 2 && s->closed)) {
        return false;
    }
    if (q->category.len > 0 && !weir__str_equal(s->category->item.key, q->category)) {
        return false;
    }
    return q->pattern == NULL || weir__pattern_matches(q->pattern, s->item.key);
}

static weir_status streams_locked(const memory_core *c, const store_streams_query *q,
                                  store_streams_chunk *chunk, weir_error *err)
{
    const weir_str prefix = common_prefix(q);
    const int64_t max = q->limit < CHUNK_NAMES_MAX ? q->limit : CHUNK_NAMES_MAX;
    const memory_stream *last = NULL;

    weir__arena_reset(&chunk->arena);
    chunk->streams = weir__arena_alloc(&chunk->arena, (size_t)max * sizeof(store_stream_info));
    chunk->streams_count = 0;
    if (chunk->streams == NULL) {
        return weir__memory_full(err);
    }
    const bool jump = weir__str_compare(prefix, q->after) > 0;
    name_cursor cursor =
        weir__name_index_seek(&c->streams_by_name, jump ? prefix : q->after, !jump);
    chunk->more = false;
    for (int64_t looked = 0;; looked++) {
        const table_item *item = weir__name_index_item(&cursor);
        if (item == NULL || !weir__str_starts_with(item->key, prefix)) {
            break; /* names with that prefix stand together: there are no more */
        }
        if (looked == CHUNK_NAMES_MAX || (int64_t)chunk->streams_count == max) {
            chunk->more = true;
            break;
        }
        const memory_stream *s = (const memory_stream *)(const void *)item;
        if (stream_wanted(q, s) &&
            !info_fill(c, s, &chunk->arena, &chunk->streams[chunk->streams_count++])) {
            return weir__memory_full(err);
        }
        last = s;
        weir__name_index_next(&cursor);
    }
    return weir__memory_text_copy(&chunk->arena, last == NULL ? q->after : last->item.key,
                                  &chunk->scanned_to)
               ? WEIR_OK
               : weir__memory_full(err);
}

weir_status weir__memory_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir__lock(&h->core->mu);
    const weir_status status = streams_locked(h->core, q, chunk, err);
    weir__unlock(&h->core->mu);
    return status;
}

weir_status weir__memory_key_owner(weir_store *base, weir_str key, weir_arena *arena,
                                   weir_str *stream, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    weir_status status = WEIR_OK;

    weir__lock(&h->core->mu);
    const memory_reserved *r = (const memory_reserved *)(const void *)weir__table_find(
        &h->core->reserved, weir__str_hash(key), key);
    if (r == NULL) {
        status = weir__fail(err, WEIR_ENOTFOUND, "key \"%.*s\" is free", (int)key.len, key.ptr);
    } else if (!weir__memory_text_copy(arena, r->owner, stream)) {
        status = weir__memory_full(err);
    }
    weir__unlock(&h->core->mu);
    return status;
}
