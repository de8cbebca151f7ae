/* read.c - chunks of a stream and of the log, one statement each.
 *
 * INVARIANTS
 *   (1) A chunk looks at no more than STORE_CHUNK_EVENTS_MAX events, and no statement sends much
 *       more than STORE_CHUNK_BYTES_SOFT: what is sent is in memory. A bare one has only names to
 *       send, and looks at STORE_CHUNK_BARE_MAX.
 *   (2) Forwards, the log is read up to what was safe before the statement began, on the server
 *       where that was found out.
 *   (3) An index is only a way to look at fewer events. What is given is decided by
 *       weir__filter_matches, for every event.
 *
 * Where a log query looks, the first that applies:
 *   stream is one name   the stream's own versions
 *   category, or a prefix with a '-' in it    the index (category, id)
 *   a few names          the index (name, id), one scan per name, merged by position
 *   anything else        the log itself
 * A filter that was seen to want much of the log (read_dense) reads the log itself: to find a
 * fourth of the events through an index costs more than to step over the others.
 *
 * Times have no index. They grow with positions, nearly: two appends may take their positions the
 * other way round, and the clock of a server that was promoted may be behind. So a range of
 * positions is narrowed to the times that are wanted and TIME_SLACK_US more at either end.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/read_sql.h"
#include "store/postgres/safe.h"

enum {
    NAMES_BY_INDEX_MAX = 8, /* with more names, most of the log is wanted anyway             */
    LARGE_CHUNKS = 16,      /* where one event is large, others are: so many chunks are read
                               with an eye on sizes before the quick way is tried again       */
    DENSE_PART = 4,         /* one event in so many is much of the log                        */
    DENSE_EVENTS_MIN = 500, /* of fewer nothing is learned                                    */
    SERVERS_TRIED_MAX = 5,
    PG_OID_TIMESTAMPTZ = 1184,
};
#define PG_EPOCH_US   INT64_C(946684800000000)      /* 2000-01-01, where PostgreSQL's times begin */
#define TIME_US_MIN   (-INT64_C(62135596800000000)) /* years 1 to 9999: all that events can have */
#define TIME_US_MAX   INT64_C(253402300799999999)
#define TIME_SLACK_US INT64_C(86400000000) /* a day */

/* Where a statement has what; -1: it does not. */
typedef struct columns {
    int id, version, created, stream, name, meta, data, is_full;
} columns;

static const columns stream_small = { 0, 1, 2, -1, 3, 4, 5, -1 };
static const columns stream_sized = { 0, 1, 2, -1, 3, 4, 5, 6 };
static const columns log_small = { 0, 1, 2, 3, 4, 5, 6, -1 };
static const columns log_sized = { 3, 4, 5, 6, 7, 8, 9, 10 };
static const columns log_bare = { 0, 1, 2, 3, 4, -1, -1, -1 };
static const columns news_bare = {
    PG_NEWS_ID, PG_NEWS_VERSION, PG_NEWS_CREATED, PG_NEWS_STREAM, PG_NEWS_NAME, -1, -1, -1,
};
enum { NAMES_CUT = 5 }; /* column of read_names_bare */

/* A chunk that is being filled. */
typedef struct filling {
    pg_store *store;
    store_chunk *chunk;
    const store_filter *filter; /* NULL: everything */
    weir_str stream;            /* name of all events, where it is in no column */
    int64_t limit;
    bool bare;   /* data and meta are left out */
    bool is_cut; /* the chunk ended before what the statement had found */
} filling;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a chunk of events");
}

static weir_str text_or_none(const PGresult *result, int row, int column)
{
    return column < 0 ? weir__str("") : weir__pg_text(result, row, column);
}

/* Takes in rows until the chunk is full, or an event was too large to be sent. */
static weir_status take_rows(filling *f, const PGresult *result, const columns *c, weir_error *err)
{
    store_chunk *chunk = f->chunk;
    const int rows = pq.PQntuples(result);
    if (rows > 0) {
        chunk->events = weir__arena_alloc(&chunk->arena, (size_t)rows * sizeof *chunk->events);
        if (chunk->events == NULL) {
            return no_memory(err);
        }
    }
    for (int i = 0; i < rows; i++) {
        if (weir__pg_null(result, i, c->id)) {
            break; /* the one row of a statement that found nothing */
        }
        if ((int64_t)chunk->events_count >= f->limit ||
            (!f->bare && chunk->arena.bytes_used >= STORE_CHUNK_BYTES_SOFT) ||
            (c->data >= 0 && weir__pg_null(result, i, c->data))) {
            f->is_cut = true;
            break;
        }
        const weir_event event = {
            .size = sizeof event,
            .id = weir__pg_i64(result, i, c->id),
            .version = weir__pg_i64(result, i, c->version),
            .created_us = weir__pg_time_us(result, i, c->created),
            .stream = c->stream < 0 ? f->stream : weir__pg_text(result, i, c->stream),
            .name = weir__pg_text(result, i, c->name),
            .meta = text_or_none(result, i, c->meta),
            .data = text_or_none(result, i, c->data),
        };
        chunk->scanned_to = event.id;
        if (c->is_full >= 0) {
            f->is_cut = weir__pg_bool(result, i, c->is_full);
        }
        if (weir__filter_matches(f->filter, &event) && !weir__chunk_add(chunk, &event, f->bare)) {
            return no_memory(err);
        }
    }
    return WEIR_OK;
}

static void add_time(pg_params *p, int64_t time_us)
{
    weir__pg_add_i64(p, time_us - PG_EPOCH_US);
    if (p->count > 0) {
        p->types[p->count - 1] = PG_OID_TIMESTAMPTZ;
    }
}

static weir_status read_run(pg_store *s, const char *sql, pg_params *p, PGresult **result,
                            weir_error *err)
{
    return weir__pg_call(s, &(pg_call){ .sql = sql, .params = p, .repeat = PG_REPEAT }, result,
                         err);
}

/* Whether this chunk is to be read with an eye on sizes. */
static bool expects_large(pg_store *s)
{
    int32_t left = atomic_load_explicit(&s->read_large, memory_order_relaxed);
    if (left > 0) {
        atomic_store_explicit(&s->read_large, left - 1, memory_order_relaxed);
    }
    return left > 0;
}

static void found_large(pg_store *s)
{
    atomic_store_explicit(&s->read_large, LARGE_CHUNKS, memory_order_relaxed);
}

/* ---- streams ------------------------------------------------------------------------------ */

/* The versions [low, high] that were created in time. */
static weir_status narrow_until(filling *f, int64_t low, int64_t *high, int64_t until_us,
                                weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, f->stream);
    weir__pg_add_i64(&p, low);
    weir__pg_add_i64(&p, *high == INT64_MAX ? INT64_MAX - 1 : *high);
    add_time(&p, until_us < TIME_US_MIN ? TIME_US_MIN : until_us);
    const weir_status status = read_run(f->store, sql_read_stream_until, &p, &result, err);
    if (status == WEIR_OK) {
        *high = weir__pg_i64_or(result, 0, 0, -1);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* One statement over [low, high]. *rows: how many it gave. */
static weir_status fill_from_stream(filling *f, const store_stream_query *q, int64_t low,
                                    int64_t high, bool sized, int *rows, weir_error *err)
{
    static const char *const statements[2][2] = {
        { sql_read_stream_forward_small, sql_read_stream_backward_small },
        { sql_read_stream_forward_sized, sql_read_stream_backward_sized },
    };
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, q->stream);
    weir__pg_add_i64(&p, low);
    weir__pg_add_i64(&p, high);
    weir__pg_add_i64(&p, f->limit);
    weir_status status = read_run(f->store, statements[sized][q->backward], &p, &result, err);
    if (status == WEIR_OK) {
        weir__chunk_clear(f->chunk);
        f->is_cut = false;
        *rows = pq.PQntuples(result);
        status = take_rows(f, result, sized ? &stream_sized : &stream_small, err);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

weir_status weir__pg_read_stream(weir_store *base, const store_stream_query *q, store_chunk *chunk,
                                 weir_error *err)
{
    filling f = { .store = pg_of(base), .chunk = chunk, .stream = q->stream };
    int64_t low = q->backward ? q->to : q->from;
    int64_t high = q->backward ? q->from : q->to;
    weir_status status = WEIR_OK;
    int rows = 0;

    f.limit = q->limit < STORE_CHUNK_EVENTS_MAX ? q->limit : STORE_CHUNK_EVENTS_MAX;
    if (q->until_us < TIME_US_MAX) {
        status = narrow_until(&f, low, &high, q->until_us, err);
    }
    const bool sized = expects_large(f.store);
    if (status == WEIR_OK) {
        status = fill_from_stream(&f, q, low, high, sized, &rows, err);
    }
    if (status == WEIR_OK && f.is_cut && chunk->events_count == 0) { /* a large one is first */
        found_large(f.store);
        status = fill_from_stream(&f, q, low, high, true, &rows, err);
    }
    if (status == WEIR_OK && rows == 0) {
        store_stream_info info;
        weir_arena arena = { 0 };
        status = weir__pg_stream_info(base, q->stream, &arena, &info, err);
        weir__arena_free(&arena);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (chunk->events_count > 0) {
        const int64_t last = chunk->events[chunk->events_count - 1].version;
        const bool ended = q->backward ? last <= low : last >= high;
        chunk->more = !ended && (f.is_cut || rows == (int)f.limit);
    }
    return WEIR_OK;
}

/* ---- the log ------------------------------------------------------------------------------ */

/* Positions [low, high] to look at, and from which end. */
typedef struct log_range {
    int64_t low, high;
    bool backward;
    int64_t place; /* where `high` is safe */
    bool moved;    /* out: the statement ran on another server */
} log_range;

/* Everything in the range, the quick way. *found: false when there was nothing, which is also the
 * answer of another server. */
static weir_status fill_from_log(filling *f, log_range *range, bool *found, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&p, range->low);
    weir__pg_add_i64(&p, range->high);
    weir__pg_add_i64(&p, f->limit);
    weir__pg_add_i64(&p, range->place);
    weir_status status = read_run(
        f->store, range->backward ? sql_read_log_backward_small : sql_read_log_forward_small, &p,
        &result, err);
    if (status == WEIR_OK) {
        status = take_rows(f, result, &log_small, err);
        *found = f->chunk->events_count > 0;
        if (*found && (f->is_cut || pq.PQntuples(result) == (int)f->limit)) {
            f->chunk->more = range->backward ? f->chunk->scanned_to > range->low
                                             : f->chunk->scanned_to < range->high;
        }
        if (f->is_cut && !*found) {
            found_large(f->store);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

static void add_text_or_null(pg_params *p, weir_str text)
{
    if (text.len == 0) {
        weir__pg_add_null(p, PG_OID_TEXT);
    } else {
        weir__pg_add_text(p, text);
    }
}

static void add_time_or_null(pg_params *p, int64_t time_us)
{
    if (time_us < TIME_US_MIN || time_us > TIME_US_MAX) {
        weir__pg_add_null(p, PG_OID_TIMESTAMPTZ);
    } else {
        add_time(p, time_us);
    }
}

typedef enum way { WAY_LOG, WAY_CATEGORY, WAY_NAMES, WAY_EXACT } way;

/* Stands for a filter; never 0. */
static uint64_t filter_hash(const store_filter *filter)
{
    uint64_t hash = weir__str_hash(filter->category) | 1;
    for (size_t i = 0; filter->has_names && i < filter->names_count; i++) {
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + 2 * weir__str_hash(filter->names[i]);
    }
    if (filter->stream != NULL) {
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + 2 * weir__str_hash(filter->stream->text);
    }
    return hash;
}

static bool is_dense(const filling *f)
{
    return f->filter != NULL && atomic_load_explicit(&f->store->read_dense, memory_order_relaxed) ==
                                    filter_hash(f->filter);
}

/* Takes note of how many events were found, by their index or in the log, among so many positions.
 * What is remembered is a guess, and of the last filter only. */
static void learn_density(const filling *f, int64_t found, int64_t positions)
{
    if (f->filter == NULL || positions < DENSE_EVENTS_MIN) {
        return;
    }
    uint64_t hash = filter_hash(f->filter);
    if (found >= positions / DENSE_PART) {
        atomic_store_explicit(&f->store->read_dense, hash, memory_order_relaxed);
    } else {
        (void)atomic_compare_exchange_strong_explicit(&f->store->read_dense, &hash, 0,
                                                      memory_order_relaxed, memory_order_relaxed);
    }
}

/* Which index to go through; *key: what to look for in it. */
static way way_of(const filling *f, weir_str *key)
{
    const store_filter *filter = f->filter;
    const store_pattern *p = filter == NULL ? NULL : filter->stream;
    *key = (weir_str){ 0 };
    if (p != NULL && p->kind == PATTERN_EXACT) {
        *key = p->name;
        return WAY_EXACT;
    }
    if (is_dense(f)) {
        return WAY_LOG;
    }
    if (filter != NULL && filter->category.len > 0) {
        *key = filter->category;
    } else if (p != NULL && p->kind == PATTERN_PREFIX &&
               memchr(p->name.ptr, '-', p->name.len) != NULL) {
        *key = weir__category(p->name);
    }
    /* A name that begins with '-' has an empty category, which stands for none here. */
    if (key->len > 0) {
        return WAY_CATEGORY;
    }
    if (filter != NULL && filter->has_names && filter->names_count <= NAMES_BY_INDEX_MAX) {
        return WAY_NAMES;
    }
    return WAY_LOG;
}

/* What weir.is_wanted is given. */
static void filter_params(pg_params *p, const filling *f)
{
    static const store_filter everything = { .since_us = INT64_MIN, .until_us = INT64_MAX };
    const store_filter *filter = f->filter == NULL ? &everything : f->filter;
    if (filter->has_names) {
        weir__pg_add_text_array(p, filter->names, filter->names_count);
    } else {
        weir__pg_add_null(p, PG_OID_TEXT_ARRAY);
    }
    add_text_or_null(p, filter->category);
    add_text_or_null(p, filter->stream != NULL && filter->stream->kind == PATTERN_PREFIX
                            ? filter->stream->name
                            : (weir_str){ 0 });
    add_time_or_null(p, filter->since_us);
    add_time_or_null(p, filter->until_us);
}

/* A page of the range through an index, filtered. */
static weir_status fill_from_page(filling *f, log_range *range, weir_error *err)
{
    static const char *const statements[][2] = {
        [WAY_LOG] = { sql_read_log_forward_sized, sql_read_log_backward_sized },
        [WAY_CATEGORY] = { sql_read_category_forward_sized, sql_read_category_backward_sized },
        [WAY_NAMES] = { sql_read_names_forward_sized, sql_read_names_backward_sized },
        [WAY_EXACT] = { sql_read_exact_forward_sized, sql_read_exact_backward_sized },
    };
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir_str key;
    const way by = way_of(f, &key);
    weir__pg_add_i64(&p, range->low);
    weir__pg_add_i64(&p, range->high);
    weir__pg_add_i64(&p, f->limit);
    filter_params(&p, f);
    add_text_or_null(&p, key);
    f->is_cut = false;
    weir_status status = read_run(f->store, statements[by][range->backward], &p, &result, err);
    if (status == WEIR_OK && weir__pg_i64(result, 0, 0) != range->place) {
        range->moved = true;
    } else if (status == WEIR_OK) {
        const bool page_full = weir__pg_i64(result, 0, 1) == STORE_CHUNK_EVENTS_MAX;
        const int64_t page_last = weir__pg_i64_or(result, 0, 2, 0);
        const int rows = weir__pg_null(result, 0, log_sized.id) ? 0 : pq.PQntuples(result);
        status = take_rows(f, result, &log_sized, err);
        if (page_full && by != WAY_EXACT && !f->is_cut && f->limit >= STORE_CHUNK_EVENTS_MAX) {
            learn_density(f, rows,
                          by == WAY_LOG     ? STORE_CHUNK_EVENTS_MAX
                          : range->backward ? range->high - page_last + 1
                                            : page_last - range->low + 1);
        }
        if (!f->is_cut && rows < (int)f->limit && page_last != 0) {
            f->chunk->scanned_to = page_last;
        }
        if (page_last != 0 && (f->chunk->scanned_to != page_last || page_full)) {
            f->chunk->more = range->backward ? f->chunk->scanned_to > range->low
                                             : f->chunk->scanned_to < range->high;
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* The bare statement to go by, with its parameters. log: up to which position it looks, when it
 * looks at the log itself; else 0. */
static const char *bare_statement(const filling *f, const log_range *range, pg_params *p,
                                  int64_t *log)
{
    weir_str key;
    way by = way_of(f, &key);
    const bool few = range->high - range->low < STORE_CHUNK_EVENTS_MAX;
    const int64_t high = few || range->high - range->low < STORE_CHUNK_BARE_MAX
                             ? range->high
                             : range->low + STORE_CHUNK_BARE_MAX - 1;
    by = few ? WAY_LOG : by;
    *log = by == WAY_LOG ? high : 0;
    weir__pg_add_i64(p, range->low);
    weir__pg_add_i64(p, by == WAY_LOG ? high : range->high);
    weir__pg_add_i64(p,
                     by == WAY_NAMES ? f->limit / (int64_t)f->filter->names_count + 1 : f->limit);
    weir__pg_add_i64(p, range->place);
    if (by == WAY_CATEGORY) {
        weir__pg_add_text(p, key);
        return sql_read_category_bare;
    }
    if (by == WAY_NAMES) {
        weir__pg_add_text_array(p, f->filter->names, f->filter->names_count);
        return sql_read_names_bare;
    }
    filter_params(p, f);
    return sql_read_log_bare;
}

/* Forwards, without data and meta. *found: as fill_from_log. */
static weir_status fill_bare(filling *f, const log_range *range, bool *found, weir_error *err)
{
    store_chunk *chunk = f->chunk;
    pg_params p = { 0 };
    PGresult *result = NULL;
    int64_t log = 0;
    const char *sql = bare_statement(f, range, &p, &log);
    weir_status status = read_run(f->store, sql, &p, &result, err);
    const int rows = status == WEIR_OK ? pq.PQntuples(result) : 0;
    *found = rows > 0;
    if (*found) {
        status = take_rows(f, result, &log_bare, err);
        if (!f->is_cut && log == 0) { /* through an index: all, or up to where it was cut */
            f->is_cut = sql == sql_read_names_bare ? !weir__pg_null(result, 0, NAMES_CUT)
                                                   : rows == (int)f->limit;
        } else if (!f->is_cut && rows < (int)f->limit) {
            chunk->scanned_to = log;
        }
        chunk->more = (f->is_cut || log != 0) && chunk->scanned_to < range->high;
        if (f->is_cut || log != 0) {
            learn_density(f, (int64_t)chunk->events_count, chunk->scanned_to - range->low + 1);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* Narrows a range of more than a page to the times that the filter wants. */
static weir_status narrow_by_time(filling *f, log_range *range, weir_error *err)
{
    const int64_t since_us = f->filter->since_us, until_us = f->filter->until_us;
    pg_params p = { 0 };
    PGresult *result = NULL;
    if ((since_us == INT64_MIN && until_us == INT64_MAX) ||
        range->high - range->low < STORE_CHUNK_EVENTS_MAX) {
        return WEIR_OK;
    }
    weir__pg_add_i64(&p, range->low);
    weir__pg_add_i64(&p, range->high);
    add_time_or_null(&p, since_us < TIME_US_MIN ? since_us : since_us - TIME_SLACK_US);
    add_time_or_null(&p, until_us > TIME_US_MAX ? until_us : until_us + TIME_SLACK_US);
    const weir_status status = read_run(f->store, sql_read_log_times, &p, &result, err);
    if (status == WEIR_OK) {
        range->moved = weir__pg_i64(result, 0, 0) != range->place;
        range->low = weir__pg_i64(result, 0, 1);
        range->high = weir__pg_i64(result, 0, 2);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

static weir_status fill_range(filling *f, log_range *range, weir_error *err)
{
    const store_filter *filter = f->filter;
    const bool all =
        filter == NULL || (!filter->has_names && filter->stream == NULL &&
                           filter->category.len == 0 && filter->correlation.len == 0 &&
                           filter->since_us == INT64_MIN && filter->until_us == INT64_MAX);
    if (range->low > range->high ||
        (filter != NULL && ((filter->has_names && filter->names_count == 0) ||
                            filter->since_us > TIME_US_MAX || filter->until_us < TIME_US_MIN))) {
        return WEIR_OK;
    }
    const bool bare =
        f->bare && !range->backward &&
        (filter == NULL || (filter->correlation.len == 0 && filter->since_us == INT64_MIN &&
                            filter->until_us == INT64_MAX &&
                            (filter->stream == NULL || filter->stream->kind != PATTERN_EXACT)));
    if (bare || (all && !expects_large(f->store))) {
        bool found = false;
        const weir_status status =
            bare ? fill_bare(f, range, &found, err) : fill_from_log(f, range, &found, err);
        if (status != WEIR_OK || found) {
            return status;
        }
    }
    if (filter != NULL) {
        const weir_status status = narrow_by_time(f, range, err);
        if (status != WEIR_OK || range->moved || range->low > range->high) {
            return status;
        }
    }
    return fill_from_page(f, range, err);
}

/* What is known of the log is enough to answer this query without asking anew. */
static bool is_known(const store_log_query *q, const pg_known *known)
{
    if (known->place == 0 || known->behind) {
        return false;
    }
    if (q->backward) {
        return q->after <= known->head;
    }
    return q->to <= known->safe ||
           (q->after < known->safe && known->safe - q->after >= STORE_CHUNK_EVENTS_MAX);
}

/* What was read with `safe`, if it was; else what is in the range. */
static weir_status log_fill(filling *f, log_range *range, const pg_news *news, weir_error *err)
{
    return news->result == NULL ? fill_range(f, range, err)
                                : take_rows(f, news->result, &news_bare, err);
}

static weir_status read_log_known(filling *f, const store_log_query *q, const pg_known *known,
                                  const pg_news *news, bool fresh, bool *moved, weir_error *err)
{
    store_chunk *chunk = f->chunk;
    log_range range = { .backward = q->backward, .place = known->place };
    if (q->backward) {
        range.low = q->to < 1 ? 1 : q->to;
        range.high = q->after > known->head ? known->head : q->after - 1;
    } else {
        range.low = q->after < 1 ? 1 : q->after == INT64_MAX ? INT64_MAX : q->after + 1;
        range.high = q->to > known->safe ? known->safe : q->to;
    }
    const int64_t end = q->backward ? q->to : range.high > q->after ? range.high : q->after;
    weir__chunk_clear(chunk);
    chunk->scanned_to = q->after;
    chunk->head = known->head;
    memcpy(chunk->epoch, known->epoch, sizeof chunk->epoch);
    memcpy(chunk->log, known->log, sizeof chunk->log);
    chunk->place = known->place;
    if (!known->behind) {
        const weir_status status = log_fill(f, &range, news, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    *moved = range.moved;
    if (!chunk->more) {
        chunk->scanned_to = end;
        /* The log may go on where what is known of it ends. */
        chunk->more = !fresh && !q->backward && end < q->to;
        chunk->held = !chunk->more && !q->backward && known->held && end < q->to;
    }
    return WEIR_OK;
}

/* Whether the end of the log can be read with `safe`. */
static bool wants_news_of(const store_log_query *q)
{
    return q->bare && !q->backward && q->to == INT64_MAX && q->limit >= PG_NEWS_MAX &&
           (q->filter == NULL || q->filter->correlation.len == 0);
}

weir_status weir__pg_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                              weir_error *err)
{
    pg_store *s = pg_of(base);
    filling f = { .store = s, .chunk = chunk, .filter = q->filter, .bare = q->bare };
    const int64_t limit_max = q->bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX;
    f.limit = q->limit < limit_max ? q->limit : limit_max;
    const bool wants_news = wants_news_of(q);
    for (int i = 0; i < SERVERS_TRIED_MAX; i++) {
        pg_known known;
        pg_news news = { .after = q->after };
        bool moved = false;
        weir_status status = WEIR_OK;
        weir__pg_safe_known(s, &known);
        const bool fresh = i > 0 || !is_known(q, &known);
        if (fresh) {
            status = weir__pg_safe_advance(s, &known, wants_news ? &news : NULL, err);
        }
        if (status == WEIR_OK) {
            status = read_log_known(&f, q, &known, &news, fresh, &moved, err);
        }
        pq.PQclear(news.result);
        if (status != WEIR_OK || !moved) {
            return status;
        }
        weir__pg_safe_suspect(s);
    }
    return weir__fail(err, WEIR_EUNAVAILABLE,
                      "connections lead to different PostgreSQL servers by turns");
}
