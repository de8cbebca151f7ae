/* append_batch.c - see append_batch.h.
 *
 * INVARIANTS
 *   (1) Numbers are given here, where the appends are at hand, so that the database neither sorts
 *       nor joins: which head an event belongs to and which of its new events it is.
 *   (2) Only appends that nobody waits for, without keys, and with an event for each of their
 *       streams: whatever else there is, weir.append judges.
 *   (3) What the database answers is a version for each head and a position for each event; an
 *       answer of another size is corrupt and nothing is made of it.
 */
#include "store/postgres/append_batch.h"

#include "base/error.h"
#include "base/str.h"

#include <endian.h>
#include <string.h>

/* The columns of append_batch that append has not. */
enum { COLUMN_HEADS = 10, COLUMN_IDS = 11 };

/* As in append.c: here the time of all events. */
enum { COLUMN_ACTUAL = 8 };

/* An array of int8 in binary: five words, then a length and a value for each. */
enum { ARRAY_HEADER_BYTES = 20, ARRAY_ITEM_BYTES = 12 };

typedef struct name_slot {
    weir_str name;
    int32_t head; /* 0: empty */
} name_slot;

static int32_t *find_head(name_slot *slots, size_t capacity, weir_str name)
{
    size_t i = (size_t)weir__str_hash(name) & (capacity - 1);
    while (slots[i].head != 0 && !weir__str_equal(slots[i].name, name)) {
        i = (i + 1) & (capacity - 1);
    }
    slots[i].name = name;
    return &slots[i].head;
}

static bool number_streams(pg_heads *h, store_append *const *appends, size_t count)
{
    size_t capacity = 16;
    while (capacity < 2 * h->streams_count) {
        capacity *= 2;
    }
    name_slot *slots = weir__calloc(capacity, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    size_t stream = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            int32_t *head = find_head(slots, capacity, appends[i]->streams[k].name);
            if (*head == 0) {
                h->streams[h->count] = (int32_t)stream + 1;
                h->count++;
                *head = (int32_t)h->count;
            }
            h->stream_heads[stream] = *head;
            stream++;
        }
    }
    weir__free(slots);
    return true;
}

static void number_events(pg_heads *h, store_append *const *appends, size_t count)
{
    size_t first = 0; /* the append's first stream */
    size_t event = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->events_count; k++) {
            const size_t stream = first + appends[i]->events[k].stream_index;
            const int32_t head = h->stream_heads[stream];
            h->stream_events[stream]++;
            h->counts[head - 1]++;
            h->ends[head - 1] = (int32_t)event + 1;
            h->event_heads[event] = head;
            h->event_offsets[event] = h->counts[head - 1];
            event++;
        }
        first += appends[i]->streams_count;
    }
}

static bool all_have_events(const pg_heads *h)
{
    for (size_t i = 0; i < h->streams_count; i++) {
        if (h->stream_events[i] == 0) {
            return false;
        }
    }
    return h->streams_count > 0;
}

bool weir__pg_heads_find(pg_heads *h, store_append *const *appends, size_t count)
{
    *h = (pg_heads){ 0 };
    for (size_t i = 0; i < count; i++) {
        if (appends[i]->key.len > 0 || (appends[i]->flags & STORE_APPEND_NOWAIT) == 0) {
            return false;
        }
        h->streams_count += appends[i]->streams_count;
        h->events_count += appends[i]->events_count;
    }
    h->memory = weir__calloc(5 * h->streams_count + 2 * h->events_count + 1, sizeof *h->memory);
    if (h->memory == NULL) {
        return false;
    }
    h->stream_heads = h->memory;
    h->stream_events = h->stream_heads + h->streams_count;
    h->streams = h->stream_events + h->streams_count;
    h->counts = h->streams + h->streams_count;
    h->ends = h->counts + h->streams_count;
    h->event_heads = h->ends + h->streams_count;
    h->event_offsets = h->event_heads + h->events_count;
    if (number_streams(h, appends, count)) {
        number_events(h, appends, count);
        if (all_have_events(h)) {
            return true;
        }
    }
    weir__pg_heads_free(h);
    return false;
}

void weir__pg_heads_free(pg_heads *h)
{
    weir__free(h->memory);
    *h = (pg_heads){ 0 };
}

static void add_numbers(pg_params *p, const int32_t *numbers, size_t count)
{
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i32(p, numbers[i]);
    }
    weir__pg_array_end(p);
}

void weir__pg_heads_params(const pg_heads *h, pg_params *p)
{
    add_numbers(p, h->streams, h->count < h->streams_count ? h->count : 0);
    add_numbers(p, h->ends, h->count);
    add_numbers(p, h->event_heads, h->events_count);
    add_numbers(p, h->event_offsets, h->events_count);
}

bool weir__pg_heads_written(const PGresult *result)
{
    return pq.PQntuples(result) == 1 && !weir__pg_null(result, 0, COLUMN_HEADS);
}

static int64_t array_item(const char *array, size_t i)
{
    uint64_t big;
    const size_t value = ARRAY_HEADER_BYTES + i * ARRAY_ITEM_BYTES + sizeof(uint32_t);
    memcpy(&big, array + value, sizeof big);
    return (int64_t)be64toh(big);
}

weir_status weir__pg_heads_results(const pg_heads *h, const PGresult *result,
                                   store_append *const *appends, size_t count, weir_error *err)
{
    const weir_str heads = weir__pg_text(result, 0, COLUMN_HEADS);
    const weir_str ids = weir__pg_text(result, 0, COLUMN_IDS);
    if (heads.len != ARRAY_HEADER_BYTES + h->count * ARRAY_ITEM_BYTES ||
        ids.len != ARRAY_HEADER_BYTES + h->events_count * ARRAY_ITEM_BYTES) {
        return weir__fail(err, WEIR_ECORRUPT, "the answer to a batch of appends cannot be read");
    }
    const int64_t created_us = weir__pg_i64_or(result, 0, COLUMN_ACTUAL, 0);
    size_t event = 0;
    for (size_t i = 0; i < count; i++) {
        store_append *a = appends[i];
        a->status = WEIR_OK;
        a->replayed = false;
        a->alone = false;
        for (size_t k = 0; k < a->streams_count; k++) {
            a->streams[k].first = -1;
        }
        for (size_t k = 0; k < a->events_count; k++) {
            store_append_stream *stream = &a->streams[a->events[k].stream_index];
            const size_t head = (size_t)h->event_heads[event] - 1;
            stream->last = array_item(heads.ptr, head) + h->event_offsets[event];
            stream->id = array_item(ids.ptr, event);
            stream->created_us = created_us;
            if (stream->first < 0) {
                stream->first = stream->last;
            }
            event++;
        }
    }
    return WEIR_OK;
}
