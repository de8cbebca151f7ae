/* append_batch.c - see append_batch.h.
 *
 * INVARIANTS
 *   (1) Streams are numbered here, where the appends are at hand, so that the database neither
 *       sorts nor joins.
 *   (2) Only appends without keys that can be judged at once: each of their streams gets an event,
 *       and one with an expectation is named by one append alone. Whatever else there is,
 *       weir.append_any judges.
 *   (3) What the database answers is a version for each head and a position for each event;
 *       versions are counted from there as the database has counted them. An answer of another size
 *       is corrupt and nothing is made of it.
 */
#include "store/postgres/append_batch.h"

#include "base/error.h"
#include "base/str.h"

#include <endian.h>
#include <string.h>

enum {
    COLUMN_HEADS,
    COLUMN_IDS,
    COLUMN_CREATED,
    COLUMN_REFUSED_STREAMS,
    COLUMN_REFUSED_STATES,
    COLUMN_REFUSED_VERSIONS,
};

/* An array in binary: five words, then a length and a value for each. */
enum { ARRAY_HEADER_BYTES = 20, ARRAY_LENGTH_BYTES = 4 };

/* ---- names --------------------------------------------------------------------------------- */

typedef struct name_slot {
    weir_str name;
    int32_t number; /* from 1; 0: empty */
} name_slot;

typedef struct name_table {
    name_slot *slots; /* owned */
    size_t capacity;  /* a power of two, at least twice as many as names */
    int32_t count;
} name_table;

static bool table_init(name_table *t, size_t names)
{
    *t = (name_table){ .capacity = 16 };
    while (t->capacity < 2 * names) {
        t->capacity *= 2;
    }
    t->slots = weir__calloc(t->capacity, sizeof *t->slots);
    return t->slots != NULL;
}

/* The number of a name, a new one if it has none. */
static int32_t table_number(name_table *t, weir_str name)
{
    size_t i = (size_t)weir__str_hash(name) & (t->capacity - 1);
    while (t->slots[i].number != 0 && !weir__str_equal(t->slots[i].name, name)) {
        i = (i + 1) & (t->capacity - 1);
    }
    if (t->slots[i].number == 0) {
        t->slots[i] = (name_slot){ .name = name, .number = ++t->count };
    }
    return t->slots[i].number;
}

static size_t append_names(const store_append *a)
{
    return a->streams_count + a->key_changes_count + (a->key.len > 0 ? 1 : 0);
}

size_t weir__pg_group(store_append *const *appends, size_t count)
{
    name_table t;
    size_t names = 0;
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        names += append_names(appends[i]);
    }
    if (names <= PG_APPEND_NAMES_MAX || count == 1) {
        return count;
    }
    if (!table_init(&t, names)) {
        return 1;
    }
    /* A key and a stream of the same name count as one: the bound has room for a few more. */
    while (taken < count) {
        const store_append *a = appends[taken];
        for (size_t k = 0; k < a->streams_count; k++) {
            (void)table_number(&t, a->streams[k].name);
        }
        for (size_t k = 0; k < a->key_changes_count; k++) {
            (void)table_number(&t, a->key_changes[k].key);
        }
        if (a->key.len > 0) {
            (void)table_number(&t, a->key);
        }
        if (t.count > PG_APPEND_NAMES_MAX) {
            break;
        }
        taken++;
    }
    weir__free(t.slots);
    return taken > 0 ? taken : 1;
}

/* ---- heads --------------------------------------------------------------------------------- */

static bool is_plain(const store_append *a)
{
    return a->key.len == 0 && a->key_changes_count == 0 &&
           (a->flags & (STORE_APPEND_CLOSE | STORE_APPEND_DRY_RUN)) == 0;
}

static bool has_event(const store_append *a, size_t stream)
{
    for (size_t e = 0; e < a->events_count; e++) {
        /* Events mostly come in the order of their streams: look there first. */
        if (a->events[(stream + e) % a->events_count].stream_index == stream) {
            return true;
        }
    }
    return false;
}

static const store_append_stream *stream_of(const pg_heads *h, store_append *const *appends,
                                            size_t stream)
{
    size_t first = stream; /* of its append */
    while (first > 0 && h->stream_appends[first - 1] == h->stream_appends[stream]) {
        first--;
    }
    return &appends[h->stream_appends[stream]]->streams[stream - first];
}

/* false: there is one that has to be judged after another, or has no event. */
static bool number_streams(pg_heads *h, name_table *t, store_append *const *appends, size_t count)
{
    size_t stream = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            const store_append_stream *s = &appends[i]->streams[k];
            const int32_t head = table_number(t, s->name) - 1;
            if (!has_event(appends[i], k)) {
                return false;
            }
            h->stream_heads[stream] = head;
            h->stream_appends[stream] = (int32_t)i;
            if ((size_t)head == h->count) {
                h->head_streams[h->count++] = (int32_t)stream;
            } else if (s->expect != WEIR_EXPECT_ANY ||
                       stream_of(h, appends, (size_t)h->head_streams[head])->expect !=
                           WEIR_EXPECT_ANY) {
                return false;
            }
            stream++;
        }
    }
    return stream > 0;
}

bool weir__pg_heads_find(pg_heads *h, store_append *const *appends, size_t count)
{
    name_table t;
    *h = (pg_heads){ 0 };
    for (size_t i = 0; i < count; i++) {
        if (!is_plain(appends[i])) {
            return false;
        }
        h->streams_count += appends[i]->streams_count;
        h->events_count += appends[i]->events_count;
    }
    h->memory = weir__calloc(3 * h->streams_count + 1, sizeof *h->memory);
    if (h->memory == NULL || !table_init(&t, h->streams_count)) {
        weir__pg_heads_free(h);
        return false;
    }
    h->stream_heads = h->memory;
    h->stream_appends = h->stream_heads + h->streams_count;
    h->head_streams = h->stream_appends + h->streams_count;
    const bool found = number_streams(h, &t, appends, count) && h->count <= PG_APPEND_NAMES_MAX;
    weir__free(t.slots);
    if (!found) {
        weir__pg_heads_free(h);
    }
    return found;
}

void weir__pg_heads_free(pg_heads *h)
{
    weir__free(h->memory);
    *h = (pg_heads){ 0 };
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void add_numbers(pg_params *p, const int32_t *numbers, size_t count)
{
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i32(p, numbers[i] + 1);
    }
    weir__pg_array_end(p);
}

void weir__pg_heads_params(const pg_heads *h, store_append *const *appends, bool all_or_none,
                           pg_params *p)
{
    weir__pg_add_bool(p, all_or_none);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < h->count; i++) {
        weir__pg_push_text(p, stream_of(h, appends, (size_t)h->head_streams[i])->name);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < h->count; i++) {
        weir__pg_push_i32(p, stream_of(h, appends, (size_t)h->head_streams[i])->expect);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < h->count; i++) {
        weir__pg_push_i64(p, stream_of(h, appends, (size_t)h->head_streams[i])->version);
    }
    weir__pg_array_end(p);
    add_numbers(p, h->stream_appends, h->streams_count);
    add_numbers(p, h->stream_heads, h->streams_count);
}

/* ---- results ------------------------------------------------------------------------------- */

/* The numbers of an array of `count` of them, 4 or 8 bytes each. false: it is another one. */
static bool array_is(const PGresult *result, int column, size_t count, size_t bytes)
{
    return !weir__pg_null(result, 0, column) &&
           weir__pg_text(result, 0, column).len ==
               ARRAY_HEADER_BYTES + count * (ARRAY_LENGTH_BYTES + bytes);
}

static int64_t array_i64(const PGresult *result, int column, size_t i)
{
    uint64_t big;
    memcpy(&big,
           weir__pg_text(result, 0, column).ptr + ARRAY_HEADER_BYTES +
               i * (ARRAY_LENGTH_BYTES + sizeof big) + ARRAY_LENGTH_BYTES,
           sizeof big);
    return (int64_t)be64toh(big);
}

static int32_t array_i32(const PGresult *result, int column, size_t i)
{
    uint32_t big;
    memcpy(&big,
           weir__pg_text(result, 0, column).ptr + ARRAY_HEADER_BYTES +
               i * (ARRAY_LENGTH_BYTES + sizeof big) + ARRAY_LENGTH_BYTES,
           sizeof big);
    return (int32_t)be32toh(big);
}

static weir_status batch_unreadable(weir_error *err)
{
    return weir__fail(err, WEIR_ECORRUPT, "the answer to a batch of appends cannot be read");
}

/* The appends that were refused get their status and err. */
static weir_status take_refusals(const pg_heads *h, const PGresult *result,
                                 store_append *const *appends, weir_error *err)
{
    if (weir__pg_null(result, 0, COLUMN_REFUSED_STREAMS)) {
        return WEIR_OK;
    }
    const size_t bytes = weir__pg_text(result, 0, COLUMN_REFUSED_STREAMS).len;
    const size_t refused = bytes < ARRAY_HEADER_BYTES ? 0 : (bytes - ARRAY_HEADER_BYTES) / 8;
    if (!array_is(result, COLUMN_REFUSED_STREAMS, refused, 4) ||
        !array_is(result, COLUMN_REFUSED_STATES, refused, 4) ||
        !array_is(result, COLUMN_REFUSED_VERSIONS, refused, 8)) {
        return batch_unreadable(err);
    }
    for (size_t i = 0; i < refused; i++) {
        const size_t stream = (size_t)array_i32(result, COLUMN_REFUSED_STREAMS, i);
        const int32_t state = array_i32(result, COLUMN_REFUSED_STATES, i);
        if (stream >= h->streams_count || state >= 0 || state < WEIR_EMISUSE) {
            return batch_unreadable(err);
        }
        store_append *a = appends[h->stream_appends[stream]];
        weir__pg_append_refused(
            a, (weir_status)state,
            &(pg_refusal){ .stream_index = (int32_t)(stream_of(h, appends, stream) - a->streams),
                           .place = PG_HELD_STREAM,
                           .actual = array_i64(result, COLUMN_REFUSED_VERSIONS, i),
                           .other = { .ptr = "" } });
    }
    return WEIR_OK;
}

/* The versions and positions of those that were not. */
static weir_status take_events(const pg_heads *h, const PGresult *result,
                               store_append *const *appends, size_t count, weir_error *err)
{
    size_t event = 0, first = 0; /* the append's first stream */
    if (!array_is(result, COLUMN_HEADS, h->count, 8) ||
        !array_is(result, COLUMN_IDS, h->events_count, 8)) {
        return batch_unreadable(err);
    }
    int64_t *versions = weir__calloc(h->count, sizeof *versions);
    if (versions == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the answer to an append");
    }
    for (size_t i = 0; i < h->count; i++) {
        versions[i] = array_i64(result, COLUMN_HEADS, i);
    }
    for (size_t i = 0; i < count; i++) {
        store_append *a = appends[i];
        for (size_t k = 0; k < a->streams_count; k++) {
            a->streams[k].first = -1;
        }
        for (size_t k = 0; k < a->events_count && a->status == WEIR_OK; k++) {
            store_append_stream *stream = &a->streams[a->events[k].stream_index];
            stream->last = ++versions[h->stream_heads[first + a->events[k].stream_index]];
            stream->id = array_i64(result, COLUMN_IDS, event + k);
            stream->created_us = weir__pg_time_us(result, 0, COLUMN_CREATED);
            if (stream->first < 0) {
                stream->first = stream->last;
            }
        }
        event += a->events_count;
        first += a->streams_count;
    }
    weir__free(versions);
    return WEIR_OK;
}

weir_status weir__pg_heads_results(const pg_heads *h, const PGresult *result,
                                   store_append *const *appends, size_t count, bool *written,
                                   weir_error *err)
{
    for (size_t i = 0; i < count; i++) {
        appends[i]->status = WEIR_OK;
        appends[i]->replayed = false;
        appends[i]->alone = false;
    }
    if (pq.PQntuples(result) != 1) {
        return batch_unreadable(err);
    }
    *written = !weir__pg_null(result, 0, COLUMN_IDS);
    const weir_status status = take_refusals(h, result, appends, err);
    return status == WEIR_OK && *written ? take_events(h, result, appends, count, err) : status;
}
