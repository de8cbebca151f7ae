/* read.c - chunks of a stream and of the log, each in one short read transaction.
 *
 * INVARIANTS
 *   (1) A chunk looks at no more than STORE_CHUNK_EVENTS_MAX events, of bare ones
 *       STORE_CHUNK_BARE_MAX, and LOOK_US_MAX microseconds, then the transaction ends: an open one
 *       stops every checkpoint.
 *   (2) `created` never goes back with the position, and positions grow with the version inside a
 *       stream: so times and positions are found by halving, without an index on either.
 *   (3) An index is only a way to look at fewer events. What is given is decided by
 *       weir__filter_matches, for every event.
 *
 * Where a log query looks, the first that applies:
 *   stream is one name   the stream's own versions
 *   category, or a prefix with a '-' in it    the index (category, id)
 *   a few names          the index (name, id), one cursor per name, merged by position; the log
 *                        itself when it begins with many of them, unless the index says it all
 *   anything else        the log itself
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/sqlite/read_sql.h"
#include "store/sqlite/sqlite_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_US_MAX = 50 * 1000, /* a pattern may be slow; checked every LOOK_EVENTS events */
    LOOK_EVENTS = 64,
    NAMES_BY_INDEX_MAX = 8, /* with more names, most of the log is wanted anyway        */
    EVENTS_CAPACITY_MIN = 16,
    DENSE_LOOK = 64, /* so many of each name tell whether they are dense */
};

/* A chunk that is being filled. */
typedef struct filling {
    sqlite_conn *conn;
    store_chunk *chunk;
    const store_filter *filter; /* NULL: everything  */
    weir_str stream;            /* name of all events; .ptr NULL: in the row */
    size_t capacity;            /* of chunk->events  */
    int64_t limit;
    bool bare;          /* data and meta are not wanted */
    bool ids_and_names; /* nor anything else: the index on names says it all */
    size_t bytes_max;
    int64_t looked, looked_max;
    int64_t began_us; /* machine's monotonic clock */
} filling;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a chunk of events");
}

static filling filling_of(store_chunk *chunk, int64_t limit, bool bare)
{
    return (filling){
        .chunk = chunk,
        .limit = limit,
        .bare = bare,
        .bytes_max = bare ? SIZE_MAX : STORE_CHUNK_BYTES_SOFT,
        .looked_max = bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX,
        .began_us = weir__clock_mono(weir__clock_machine()),
    };
}

static bool chunk_is_full(const filling *f)
{
    return (int64_t)f->chunk->events_count >= f->limit || f->looked >= f->looked_max ||
           f->chunk->arena.bytes_used >= f->bytes_max ||
           (!f->ids_and_names && f->looked % LOOK_EVENTS == LOOK_EVENTS - 1 &&
            weir__clock_mono(weir__clock_machine()) - f->began_us >= LOOK_US_MAX);
}

/* Says which of a row's columns are wanted. */
static void bind_columns(const filling *f, sqlite_cursor *cursor)
{
    const bool judged_by_meta = f->filter != NULL && f->filter->correlation.len > 0;
    weir__cursor_bind_i64(cursor, 4, !f->bare || judged_by_meta);
    weir__cursor_bind_i64(cursor, 5, !f->bare);
}

/* Makes room for one more event; the old array stays in the arena until the chunk is cleared. */
static bool room_make(filling *f)
{
    store_chunk *chunk = f->chunk;
    if (chunk->events_count == f->capacity) {
        const size_t capacity = f->capacity == 0 ? EVENTS_CAPACITY_MIN : f->capacity * 2;
        weir_event *events = weir__arena_alloc(&chunk->arena, capacity * sizeof *events);
        if (events == NULL) {
            return false;
        }
        if (chunk->events_count > 0) {
            memcpy(events, chunk->events, chunk->events_count * sizeof *events);
        }
        chunk->events = events;
        f->capacity = capacity;
    }
    return true;
}

/* Takes in the row that the statement stands on, if it is wanted. */
static void take_row(filling *f, sqlite_cursor *cursor, weir_event *event)
{
    *event = (weir_event){
        .size = sizeof *event,
        .id = weir__cursor_i64(cursor, 0),
        .version = weir__cursor_i64(cursor, 1),
        .created_us = weir__cursor_i64(cursor, 2),
        .stream = f->stream.ptr != NULL ? f->stream : weir__cursor_text(cursor, 3),
        .name = weir__cursor_text(cursor, 4),
        .meta = weir__cursor_text(cursor, 5),
    };
    f->looked++;
    f->chunk->scanned_to = event->id;
    if (f->filter != NULL && !weir__filter_matches(f->filter, event)) {
        return;
    }
    if (!f->bare) {
        event->data = weir__cursor_text(cursor, 6); /* only now: it may be long */
    }
    if (!room_make(f) || !weir__chunk_add(f->chunk, event, f->bare)) {
        weir__cursor_fail(cursor, no_memory(cursor->err));
    }
}

/* ---- searching ---------------------------------------------------------------------------- */

/* Position and time of one event. */
typedef struct probed {
    bool found;
    int64_t id, created_us;
} probed;

static weir_status event_probe(sqlite_conn *conn, const char *sql, int64_t first, int64_t second,
                               probed *out, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_i64(&cursor, 1, first);
    if (sqlite3_bind_parameter_count(cursor.stmt) > 1) {
        weir__cursor_bind_i64(&cursor, 2, second);
    }
    *out = (probed){ .found = weir__cursor_next(&cursor) };
    if (out->found) {
        out->id = weir__cursor_i64(&cursor, 0);
        out->created_us = weir__cursor_i64(&cursor, 1);
    }
    return weir__cursor_end(&cursor);
}

/* The first position in [low, high] whose event was created at or after `time_us`; high + 1:
 * none. */
static weir_status position_at_time(sqlite_conn *conn, int64_t low, int64_t high, int64_t time_us,
                                    int64_t *out, weir_error *err)
{
    int64_t end = high + 1; /* the answer is in [low, end] */
    while (low < end) {
        const int64_t middle = low + (end - low) / 2;
        probed event;
        const weir_status status =
            event_probe(conn, sql_read_position_probe, middle, 0, &event, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (event.found && event.id < end && event.created_us < time_us) {
            low = event.id + 1;
        } else {
            end = middle; /* nothing between middle and that event, or it is late enough */
        }
    }
    *out = low;
    return WEIR_OK;
}

/* What to look for in the versions [low, high] of a stream. */
typedef struct version_search {
    int64_t stream; /* weir_streams.id */
    int64_t low, high;
    bool by_time; /* `bound` is a time; else a position */
    int64_t bound;
} version_search;

/* The first version whose event is at or above the bound; high + 1: none. */
static weir_status version_at(sqlite_conn *conn, const version_search *search, int64_t *out,
                              weir_error *err)
{
    int64_t low = search->low;
    int64_t end = search->high + 1;
    while (low < end) {
        const int64_t middle = low + (end - low) / 2;
        probed event;
        const weir_status status =
            event_probe(conn, sql_read_version_probe, search->stream, middle, &event, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (!event.found || (search->by_time ? event.created_us : event.id) < search->bound) {
            low = middle + 1; /* versions that are not there are below the first one */
        } else {
            end = middle;
        }
    }
    *out = low;
    return WEIR_OK;
}

/* A stream's row and the version of its last event. */
static weir_status look_up_stream(sqlite_conn *conn, weir_str name, int64_t *id, int64_t *version,
                                  bool *found, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_read_stream_row, err);
    weir__cursor_bind_text(&cursor, 1, name);
    *found = weir__cursor_next(&cursor) && !weir__cursor_null(&cursor, 1);
    if (*found) {
        *id = weir__cursor_i64(&cursor, 0);
        *version = weir__cursor_i64(&cursor, 1);
    }
    return weir__cursor_end(&cursor);
}

/* ---- streams ------------------------------------------------------------------------------ */

/* The versions [low, high] of a stream, from either end, until the chunk is full. */
static weir_status fill_from_stream(filling *f, int64_t stream, int64_t low, int64_t high,
                                    bool backward, weir_error *err)
{
    weir_event event = { 0 };

    f->chunk->more = false;
    if (low > high) {
        return WEIR_OK;
    }
    sqlite_cursor cursor = weir__cursor_open(
        f->conn, backward ? sql_read_stream_backward : sql_read_stream_forward, err);
    weir__cursor_bind_i64(&cursor, 1, stream);
    weir__cursor_bind_i64(&cursor, 2, low);
    weir__cursor_bind_i64(&cursor, 3, high);
    bind_columns(f, &cursor);
    while (weir__cursor_next(&cursor)) {
        take_row(f, &cursor, &event);
        if (chunk_is_full(f)) {
            f->chunk->more = backward ? event.version > low : event.version < high;
            break;
        }
    }
    return weir__cursor_end(&cursor);
}

static weir_status read_stream_in(filling *f, const store_stream_query *q, weir_error *err)
{
    int64_t stream = 0;
    int64_t version = 0;
    bool found = false;
    weir_status status = look_up_stream(f->conn, q->stream, &stream, &version, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!found) {
        return weir__stream_unknown(q->stream, err);
    }
    const int64_t base = f->conn->row->version_base;
    int64_t low = q->backward ? q->to : q->from;
    int64_t high = q->backward ? q->from : q->to;
    low = low < base ? base : low;
    high = high > version ? version : high;
    if (q->until_us != INT64_MAX && low <= high) {
        const version_search after_until = {
            .stream = stream, .low = low, .high = high, .by_time = true, .bound = q->until_us + 1
        };
        int64_t late = 0;
        status = version_at(f->conn, &after_until, &late, err);
        if (status != WEIR_OK) {
            return status;
        }
        high = late - 1;
    }
    return fill_from_stream(f, stream, low, high, q->backward, err);
}

weir_status weir__sqlite_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    filling f = filling_of(chunk, q->limit, false);
    f.stream = q->stream;
    weir_status status = weir__sqlite_read_begin(s, &f.conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__chunk_clear(chunk);
    status = read_stream_in(&f, q, err);
    weir__sqlite_read_end(s, f.conn);
    return status;
}

/* ---- the log ------------------------------------------------------------------------------ */

/* Positions [low, high] to look at, and from which end. */
typedef struct log_range {
    int64_t low, high;
    bool backward;
} log_range;

/* Goes through a query whose first two parameters are the range. */
static weir_status fill_from_log(filling *f, const char *sql, const log_range *range,
                                 int64_t category, weir_error *err)
{
    weir_event event = { 0 };
    sqlite_cursor cursor = weir__cursor_open(f->conn, sql, err);
    weir__cursor_bind_i64(&cursor, 1, range->low);
    weir__cursor_bind_i64(&cursor, 2, range->high);
    if (category != 0) {
        weir__cursor_bind_i64(&cursor, 3, category);
    }
    bind_columns(f, &cursor);
    while (weir__cursor_next(&cursor)) {
        take_row(f, &cursor, &event);
        if (chunk_is_full(f)) {
            f->chunk->more = range->backward ? event.id > range->low : event.id < range->high;
            break;
        }
    }
    return weir__cursor_end(&cursor);
}

static weir_status fill_from_whole_log(filling *f, const log_range *range, weir_error *err)
{
    return fill_from_log(f, range->backward ? sql_read_log_backward : sql_read_log_forward, range,
                         0, err);
}

static weir_status fill_from_category(filling *f, weir_str name, const log_range *range,
                                      weir_error *err)
{
    int64_t category = 0;
    bool found = false;
    const weir_status status =
        weir__sqlite_get_by_text(f->conn, sql_read_category, name, &found, &category, err);
    if (status != WEIR_OK || !found) {
        return status;
    }
    return fill_from_log(f,
                         range->backward ? sql_read_category_backward : sql_read_category_forward,
                         range, category, err);
}

static weir_status fill_from_exact(filling *f, weir_str name, const log_range *range,
                                   weir_error *err)
{
    int64_t stream = 0;
    int64_t version = 0;
    bool found = false;
    weir_status status = look_up_stream(f->conn, name, &stream, &version, &found, err);
    if (status != WEIR_OK || !found) {
        return status;
    }
    version_search search = {
        .stream = stream, .low = f->conn->row->version_base, .high = version, .bound = range->low
    };
    int64_t low = 0;
    int64_t above = version + 1;
    status = version_at(f->conn, &search, &low, err);
    if (status == WEIR_OK && range->high < f->conn->row->head) {
        search.low = low;
        search.bound = range->high + 1;
        status = version_at(f->conn, &search, &above, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    f->stream = name;
    return fill_from_stream(f, stream, low, above - 1, range->backward, err);
}

typedef struct named_position {
    int64_t id;
    weir_str name;
} named_position;

static int compare_up(const void *a, const void *b)
{
    const int64_t left = ((const named_position *)a)->id;
    const int64_t right = ((const named_position *)b)->id;
    return (left > right) - (left < right);
}

static int compare_down(const void *a, const void *b)
{
    return compare_up(b, a);
}

/* Positions of events of a few names. */
typedef struct merged {
    named_position *found; /* owned; in the direction of the search */
    size_t count;
    int64_t end; /* as far as every name's list goes */
} merged;

/* Adds up to `limit` positions with one name. */
static weir_status collect_name(sqlite_conn *conn, const sqlite_names *names, weir_str name,
                                merged *m, weir_error *err)
{
    int64_t count = 0;
    int64_t last = 0; /* where this list ends, if it may go on */
    sqlite_cursor cursor = weir__cursor_open(
        conn, names->backward ? sql_read_name_backward : sql_read_name_forward, err);
    weir__cursor_bind_i64(&cursor, 1, names->low);
    weir__cursor_bind_i64(&cursor, 2, names->high);
    weir__cursor_bind_text(&cursor, 3, name);
    weir__cursor_bind_i64(&cursor, 4, names->limit);
    while (weir__cursor_next(&cursor)) {
        last = weir__cursor_i64(&cursor, 0);
        m->found[m->count++] = (named_position){ .id = last, .name = name };
        count++;
    }
    if (count == names->limit && (names->backward ? last > m->end : last < m->end)) {
        m->end = last;
    }
    return weir__cursor_end(&cursor);
}

/* Up to `limit` positions of each name. *m is ended by weir__free(m->found), also after a
 * failure. */
static weir_status merge_names(sqlite_conn *conn, const sqlite_names *names, merged *m,
                               weir_error *err)
{
    weir_status status = WEIR_OK;
    const int64_t others = names->high - names->low; /* no name has more than that, and one */
    const size_t most = (size_t)(others < names->limit ? others + 1 : names->limit);
    *m = (merged){ .end = names->backward ? names->low : names->high };
    m->found = weir__malloc(names->count * most * sizeof *m->found);
    if (m->found == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < names->count && status == WEIR_OK; i++) {
        status = collect_name(conn, names, names->names[i], m, err);
    }
    if (names->count > 1 && m->count > 0) {
        qsort(m->found, m->count, sizeof *m->found, names->backward ? compare_down : compare_up);
    }
    while (m->count > 0 && (names->backward ? m->found[m->count - 1].id < m->end
                                            : m->found[m->count - 1].id > m->end)) {
        m->count--; /* another name may have one before it that was not looked at */
    }
    return status;
}

weir_status weir__sqlite_names_dense(sqlite_conn *conn, const sqlite_names *names, bool *dense,
                                     weir_error *err)
{
    sqlite_names few = *names;
    merged m = { 0 };
    WEIR_ASSERT(names->count > 0 && names->low <= names->high);
    few.limit = names->limit < 1 ? 1 : names->limit > DENSE_LOOK ? DENSE_LOOK : names->limit;
    const weir_status status = merge_names(conn, &few, &m, err);
    if (status == WEIR_OK) {
        const int64_t before = few.backward ? few.high - m.end : m.end - few.low;
        *dense = before / SQLITE_DENSE_PART < (int64_t)m.count;
    }
    weir__free(m.found);
    return status;
}

/* Reads the event at a position and takes it in. */
static weir_status take_at(filling *f, int64_t id, weir_error *err)
{
    weir_event event = { 0 };
    sqlite_cursor cursor = weir__cursor_open(f->conn, sql_read_log_forward, err);
    weir__cursor_bind_i64(&cursor, 1, id);
    weir__cursor_bind_i64(&cursor, 2, id);
    bind_columns(f, &cursor);
    if (weir__cursor_next(&cursor)) {
        take_row(f, &cursor, &event);
    }
    return weir__cursor_end(&cursor);
}

/* Takes in what the index says of an event. */
static weir_status take_position(filling *f, const named_position *found, weir_error *err)
{
    const weir_event event = {
        .size = sizeof event, .id = found->id, .stream = { "", 0 }, .name = found->name
    };
    f->looked++;
    f->chunk->scanned_to = event.id;
    if (!weir__filter_matches(f->filter, &event)) {
        return WEIR_OK;
    }
    return room_make(f) && weir__chunk_add(f->chunk, &event, f->bare) ? WEIR_OK : no_memory(err);
}

/* Whether a few names are all that the filter looks at. */
static bool is_by_names_only(const store_filter *filter)
{
    return filter != NULL && filter->has_names && filter->names_count <= NAMES_BY_INDEX_MAX &&
           filter->since_us == INT64_MIN && filter->until_us == INT64_MAX &&
           filter->stream == NULL && filter->category.len == 0 && filter->correlation.len == 0;
}

static weir_status fill_from_names(filling *f, const log_range *range, const sqlite_names *names,
                                   weir_error *err)
{
    const int64_t range_end = range->backward ? range->low : range->high;
    merged m = { 0 };
    weir_status status = merge_names(f->conn, names, &m, err);
    for (size_t i = 0; i < m.count && status == WEIR_OK; i++) {
        status =
            f->ids_and_names ? take_position(f, &m.found[i], err) : take_at(f, m.found[i].id, err);
        if (status == WEIR_OK && chunk_is_full(f)) {
            f->chunk->more = i + 1 < m.count || m.end != range_end;
            goto out;
        }
    }
    if (status == WEIR_OK) {
        f->chunk->scanned_to = m.end;
        f->chunk->more = m.end != range_end;
    }
out:
    weir__free(m.found);
    return status;
}

static weir_status fill_from_log_or_names(filling *f, const log_range *range, weir_error *err)
{
    sqlite_names names = { .names = f->filter->names,
                           .count = f->filter->names_count,
                           .low = range->low,
                           .high = range->high,
                           .backward = range->backward,
                           .limit = f->limit };
    bool dense = false;
    weir_status status = WEIR_OK;
    if (!f->ids_and_names) {
        status = weir__sqlite_names_dense(f->conn, &names, &dense, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    names.limit = f->looked_max;
    if (f->ids_and_names) {
        /* Of as many of each name as that, all can be given. */
        const int64_t each = f->looked_max / (int64_t)names.count;
        names.limit = f->limit < each ? f->limit : each;
    }
    return dense ? fill_from_whole_log(f, range, err) : fill_from_names(f, range, &names, err);
}

/* Narrows the range to the times that the filter wants. */
static weir_status narrow_by_time(filling *f, log_range *range, weir_error *err)
{
    const store_filter *filter = f->filter;
    weir_status status = WEIR_OK;
    if (filter->since_us != INT64_MIN && range->low <= range->high) {
        status =
            position_at_time(f->conn, range->low, range->high, filter->since_us, &range->low, err);
    }
    if (status == WEIR_OK && filter->until_us != INT64_MAX && range->low <= range->high) {
        int64_t late = 0;
        status =
            position_at_time(f->conn, range->low, range->high, filter->until_us + 1, &late, err);
        range->high = late - 1;
    }
    return status;
}

static weir_status fill_by_filter(filling *f, log_range *range, weir_error *err)
{
    const store_filter *filter = f->filter;
    const weir_status status = filter == NULL ? WEIR_OK : narrow_by_time(f, range, err);
    if (status != WEIR_OK || range->low > range->high) {
        return status;
    }
    if (filter != NULL) {
        const store_pattern *p = filter->stream;
        if (filter->has_names && filter->names_count == 0) {
            return WEIR_OK;
        }
        if (p != NULL && p->kind == PATTERN_EXACT) {
            return fill_from_exact(f, p->name, range, err);
        }
        if (filter->category.len > 0) {
            return fill_from_category(f, filter->category, range, err);
        }
        if (p != NULL && p->kind == PATTERN_PREFIX &&
            memchr(p->name.ptr, '-', p->name.len) != NULL) {
            return fill_from_category(f, weir__category(p->name), range, err);
        }
        if (filter->has_names && filter->names_count <= NAMES_BY_INDEX_MAX) {
            return fill_from_log_or_names(f, range, err);
        }
    }
    return fill_from_whole_log(f, range, err);
}

static weir_status read_log_in(filling *f, const store_log_query *q, weir_error *err)
{
    const int64_t head = f->conn->row->head; /* and everything up to it is safe */
    store_chunk *chunk = f->chunk;
    log_range range = { .backward = q->backward };

    if (q->backward) {
        range.low = q->to < 1 ? 1 : q->to;
        range.high = q->after > head ? head : q->after - 1;
    } else {
        range.low = q->after < 1 ? 1 : q->after == INT64_MAX ? INT64_MAX : q->after + 1;
        range.high = q->to > head ? head : q->to;
    }
    const int64_t end = q->backward ? q->to : range.high > q->after ? range.high : q->after;
    chunk->scanned_to = q->after;
    chunk->head = head;
    if (range.low <= range.high) {
        const weir_status status = fill_by_filter(f, &range, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (!chunk->more) {
        chunk->scanned_to = end;
    }
    return WEIR_OK;
}

weir_status weir__sqlite_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    filling f = filling_of(chunk, q->limit, q->bare);
    f.filter = q->filter;
    f.ids_and_names = q->bare && q->ids_and_names && is_by_names_only(q->filter);
    weir_status status = weir__sqlite_read_begin(s, &f.conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__chunk_clear(chunk);
    status = weir__sqlite_epoch(f.conn, chunk->epoch, sizeof chunk->epoch, err);
    if (status == WEIR_OK) {
        memcpy(chunk->log, chunk->epoch, sizeof chunk->log);
        status = read_log_in(&f, q, err);
    }
    weir__sqlite_read_end(s, f.conn);
    return status;
}
