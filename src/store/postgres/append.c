/* append.c - appending: one call of a function of append_functions.sql, and reading what it
 * answers.
 *
 * INVARIANTS
 *   (1) One append, and one batch of them, is one statement: judging and writing happen in the
 *       database.
 *   (2) What the unique index on events refuses (somebody wrote an event without holding its
 *       stream) is not the caller's error: the same is tried again, and then it is judged by what
 *       is there.
 *   (3) A statement without an answer is WEIR_EUNKNOWN. It is not repeated here: the committer does
 *       that, under a key.
 *   (4) Nobody waits for a name while it holds another. Whoever meets one that is held lets go of
 *       everything, waits for that one alone, and then tries the others. Only an append with many
 *       names, or one that was unlucky PG_APPEND_ROUNDS_MAX times, waits for all in order.
 *   (5) At most half of the pool's connections wait for somebody's name; an append that finds no
 *       place looks now and then instead. So a stream that is held for long never stops the others.
 *   (6) A transaction has at most PG_APPEND_NAMES_MAX names, but for an append with more.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/append_batch.h"
#include "store/postgres/append_sql.h"
#include "store/postgres/postgres_private.h"
#include "store/refusal.h"

#include <string.h>

enum {
    LOOK_AGAIN_US_FIRST = 1000,
    LOOK_AGAIN_US_MAX = 20 * 1000,
};

/* The columns of append_one and of append_any in append.sql. */
enum { ONE_STATUS, ONE_VERSION, ONE_POSITION, ONE_CREATED };
enum {
    COLUMN_APPEND,
    COLUMN_STREAM,
    COLUMN_STATUS,
    COLUMN_REPLAYED,
    COLUMN_FIRST,
    COLUMN_LAST,
    COLUMN_POSITION,
    COLUMN_CREATED,
    COLUMN_OTHER,
};

/* ---- parameters ---------------------------------------------------------------------------- */

static int32_t wait_ms(int64_t wait_us)
{
    const int64_t ms = (wait_us + 999) / 1000;
    return ms > INT32_MAX ? INT32_MAX : (int32_t)ms;
}

static void add_appends(pg_params *p, store_append *const *appends, size_t count)
{
    bool keyed = false;
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i32(p, (int32_t)appends[i]->flags);
        keyed = keyed || appends[i]->key.len > 0;
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; keyed && i < count; i++) {
        weir__pg_push_text(p, appends[i]->key);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_BYTEA_ARRAY);
    for (size_t i = 0; keyed && i < count; i++) {
        weir__pg_push_text(p, (weir_str){ .ptr = (const char *)appends[i]->fingerprint,
                                          .len = WEIR_SHA256_BYTES });
    }
    weir__pg_array_end(p);
}

static void add_streams(pg_params *p, store_append *const *appends, size_t count)
{
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            weir__pg_push_i32(p, (int32_t)i + 1);
        }
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            weir__pg_push_text(p, appends[i]->streams[k].name);
        }
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            weir__pg_push_i32(p, appends[i]->streams[k].expect);
        }
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->streams_count; k++) {
            weir__pg_push_i64(p, appends[i]->streams[k].version);
        }
    }
    weir__pg_array_end(p);
}

typedef enum event_text { EVENT_NAME, EVENT_DATA, EVENT_META } event_text;

static void add_event_texts(pg_params *p, store_append *const *appends, size_t count,
                            event_text text)
{
    weir__pg_array_begin(p, text == EVENT_NAME ? PG_OID_TEXT_ARRAY : PG_OID_JSON_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->events_count; k++) {
            const store_new_event *e = &appends[i]->events[k];
            weir__pg_push_text(p, text == EVENT_NAME   ? e->name
                                  : text == EVENT_DATA ? e->data
                                                       : e->meta);
        }
    }
    weir__pg_array_end(p);
}

static void add_events(pg_params *p, store_append *const *appends, size_t count)
{
    int32_t base = 1; /* number of the append's first stream */
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->events_count; k++) {
            weir__pg_push_i32(p, base + (int32_t)appends[i]->events[k].stream_index);
        }
        base += (int32_t)appends[i]->streams_count;
    }
    weir__pg_array_end(p);
    add_event_texts(p, appends, count, EVENT_NAME);
    add_event_texts(p, appends, count, EVENT_DATA);
    add_event_texts(p, appends, count, EVENT_META);
}

static void add_key_changes(pg_params *p, store_append *const *appends, size_t count)
{
    int32_t base = 1;
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->key_changes_count; k++) {
            weir__pg_push_i32(p, base + (int32_t)appends[i]->key_changes[k].stream_index);
        }
        base += (int32_t)appends[i]->streams_count;
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->key_changes_count; k++) {
            weir__pg_push_text(p, appends[i]->key_changes[k].key);
        }
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT4_ARRAY);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->key_changes_count; k++) {
            weir__pg_push_i32(p, appends[i]->key_changes[k].change);
        }
    }
    weir__pg_array_end(p);
}

void weir__pg_append_params(pg_params *p, const pg_store *s, store_append *const *appends,
                            size_t count, int32_t options, int64_t wait_us, const pg_held *first)
{
    weir__pg_add_i32(p, options);
    weir__pg_add_i32(p, wait_ms(wait_us));
    weir__pg_add_i64(p, s->options.key_ttl_us);
    add_appends(p, appends, count);
    add_streams(p, appends, count);
    add_events(p, appends, count);
    add_key_changes(p, appends, count);
    if (first == NULL || first->kind == PG_HELD_NOTHING) {
        weir__pg_add_null(p, PG_OID_INT4);
        weir__pg_add_null(p, PG_OID_TEXT);
    } else {
        weir__pg_add_i32(p, first->kind);
        weir__pg_add_text(p, (weir_str){ .ptr = first->name, .len = first->len });
    }
}

/* ---- results ------------------------------------------------------------------------------ */

/* The names that the database gives, with ", " between. */
static store_named names_of(weir_str text)
{
    store_named names = { 0 };
    size_t from = 0;
    for (size_t at = 0; at <= text.len; at++) {
        if (at == text.len ||
            (text.ptr[at] == ',' && at + 1 < text.len && text.ptr[at + 1] == ' ')) {
            weir__named_add(&names, (weir_str){ text.ptr + from, at - from });
            from = at + 2;
        }
    }
    return names;
}

static void refuse_busy(store_append *a, weir_str stream)
{
    a->alone = (a->flags & STORE_APPEND_NOWAIT) != 0;
    a->status = stream.len > 0 ? weir__fail(a->err, WEIR_EBUSY,
                                            "stream \"%.*s\" is held by another "
                                            "transaction",
                                            (int)stream.len, stream.ptr)
                               : weir__fail(a->err, WEIR_EBUSY,
                                            "a key or a stream of this append is held by another "
                                            "transaction");
    weir__error_stream(a->err, stream);
}

void weir__pg_append_refused(store_append *a, weir_status status, const pg_refusal *why)
{
    static const store_append_stream none = { .name = { .ptr = "" } };
    const bool has_stream = why->stream_index >= 0 && (size_t)why->stream_index < a->streams_count;
    const bool has_key = why->place >= 0 && (size_t)why->place < a->key_changes_count;
    const store_append_stream *stream = has_stream ? &a->streams[why->stream_index] : &none;

    a->status = status;
    switch (status) {
    case WEIR_EBUSY:
        refuse_busy(a, stream->name);
        break;
    case WEIR_ECONFLICT:
        (void)weir__stream_conflict(stream, why->actual, a->err);
        break;
    case WEIR_ECLOSED:
        (void)weir__stream_closed(stream->name, a->err);
        break;
    case WEIR_ENOTFOUND:
        (void)weir__stream_unknown(stream->name, a->err);
        break;
    case WEIR_EKEYREUSED:
        (void)weir__key_reused(a->key, a->err);
        break;
    case WEIR_EINFLIGHT:
        (void)weir__fail(a->err, status, "idempotency key \"%.*s\" is being used right now",
                         (int)a->key.len, a->key.ptr);
        break;
    case WEIR_ETAKEN:
        (void)weir__key_taken(has_key ? a->key_changes[why->place].key : none.name, why->other,
                              a->err);
        break;
    case WEIR_EHELD: {
        const store_named names = names_of(why->other);
        (void)weir__stream_unhandled(stream->name, &names, a->err);
        break;
    }
    case WEIR_OK:
    case WEIR_ENOMEM:
    case WEIR_EINVAL:
    case WEIR_EIO:
    case WEIR_ELOST:
    case WEIR_ECORRUPT:
    case WEIR_ENEWER:
    case WEIR_EUNAVAILABLE:
    case WEIR_EUNKNOWN:
    case WEIR_EREWOUND:
    case WEIR_EMISUSE:
    case WEIR_EINTERRUPTED:
        weir__append_not_tried(a);
        break;
    }
}

static weir_status answer_unreadable(weir_error *err)
{
    return weir__fail(err, WEIR_ECORRUPT, "the answer to an append cannot be read");
}

static weir_str text_or_empty(const PGresult *result, int row, int column)
{
    const weir_str empty = { .ptr = "" };
    return weir__pg_null(result, row, column) ? empty : weir__pg_text(result, row, column);
}

static void held_set(pg_held *held, int64_t kind, weir_str name)
{
    *held = (pg_held){ .kind = (int32_t)kind, .len = name.len };
    if (kind < PG_HELD_STREAM || kind > PG_HELD_RESERVED || name.len > sizeof held->name) {
        held->kind = PG_HELD_NOTHING;
        return;
    }
    memcpy(held->name, name.ptr, name.len);
}

weir_status weir__pg_append_results(const PGresult *result, int rows, store_append *const *appends,
                                    size_t count, pg_held *held, bool *ended, weir_error *err)
{
    size_t streams = 0; /* that still have no row */
    held->kind = PG_HELD_NOTHING;
    *ended = rows == 1 && weir__pg_i32(result, 0, COLUMN_APPEND) < 0;
    if (*ended) {
        held_set(held, weir__pg_i64_or(result, 0, COLUMN_POSITION, -1),
                 text_or_empty(result, 0, COLUMN_OTHER));
        return held->kind != PG_HELD_NOTHING ? WEIR_OK : answer_unreadable(err);
    }
    for (size_t i = 0; i < count; i++) {
        appends[i]->status = WEIR_OK;
        appends[i]->replayed = false;
        appends[i]->alone = false;
        streams += appends[i]->streams_count;
    }
    for (int row = 0; row < rows; row++) {
        const int32_t index = weir__pg_i32(result, row, COLUMN_APPEND);
        const int32_t at = weir__pg_i32(result, row, COLUMN_STREAM);
        const int32_t status = weir__pg_i32(result, row, COLUMN_STATUS);
        store_append *a = index >= 0 && (size_t)index < count ? appends[index] : NULL;
        if (a != NULL && status < 0 && status >= WEIR_EMISUSE) {
            const pg_refusal why = { .stream_index = at,
                                     .place = weir__pg_i64_or(result, row, COLUMN_POSITION, -1),
                                     .actual = weir__pg_i64_or(result, row, COLUMN_LAST, -1),
                                     .other = text_or_empty(result, row, COLUMN_OTHER) };
            streams -= a->streams_count;
            weir__pg_append_refused(a, (weir_status)status, &why);
            if (status == WEIR_EBUSY) {
                held_set(held, why.place, (weir_str){ .ptr = "" });
            }
            continue;
        }
        if (a == NULL || status != 0 || at < 0 || (size_t)at >= a->streams_count) {
            return answer_unreadable(err);
        }
        a->streams[at].first = weir__pg_i64(result, row, COLUMN_FIRST);
        a->streams[at].last = weir__pg_i64(result, row, COLUMN_LAST);
        a->streams[at].id = weir__pg_i64(result, row, COLUMN_POSITION);
        a->streams[at].created_us = weir__pg_null(result, row, COLUMN_CREATED)
                                        ? 0
                                        : weir__pg_time_us(result, row, COLUMN_CREATED);
        a->replayed = weir__pg_bool(result, row, COLUMN_REPLAYED);
        streams--;
    }
    return streams == 0 ? WEIR_OK
                        : weir__fail(err, WEIR_ECORRUPT, "the answer to an append is not complete");
}

/* The answer of append_one. */
static weir_status take_one(const PGresult *result, store_append *a, weir_error *err)
{
    if (pq.PQntuples(result) != 1) {
        return answer_unreadable(err);
    }
    const int32_t status = weir__pg_i32(result, 0, ONE_STATUS);
    a->status = WEIR_OK;
    a->replayed = false;
    a->alone = false;
    if (status < 0 && status >= WEIR_EMISUSE) {
        weir__pg_append_refused(
            a, (weir_status)status,
            &(pg_refusal){ .place = PG_HELD_STREAM,
                           .actual = weir__pg_i64_or(result, 0, ONE_VERSION, -1),
                           .other = { .ptr = "" } });
        return WEIR_OK;
    }
    a->streams[0].first = a->streams[0].last = weir__pg_i64(result, 0, ONE_VERSION);
    a->streams[0].id = weir__pg_i64(result, 0, ONE_POSITION);
    a->streams[0].created_us = weir__pg_time_us(result, 0, ONE_CREATED);
    return WEIR_OK;
}

/* ---- running ------------------------------------------------------------------------------ */

static bool is_single_event(const store_append *a)
{
    return a->streams_count == 1 && a->events_count == 1 && a->key.len == 0 &&
           a->key_changes_count == 0 &&
           (a->flags & (STORE_APPEND_CLOSE | STORE_APPEND_DRY_RUN)) == 0;
}

static bool waits_for_nothing(store_append *const *appends)
{
    return (appends[0]->flags & STORE_APPEND_NOWAIT) != 0;
}

/* Whether what becomes of one append depends on the success of the one before. */
static bool is_chained(store_append *const *appends, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if ((appends[i]->flags & STORE_APPEND_CHAIN) != 0) {
            return true;
        }
    }
    return false;
}

/* What the one that has to give up first may wait for others, at least a millisecond. */
static int64_t time_to_wait(const pg_store *s, store_append *const *appends, size_t count)
{
    int64_t least_us = s->options.busy_us;
    const int64_t now_us = pg_mono_us();
    for (size_t i = 0; i < count; i++) {
        if (appends[i]->deadline_us != 0 && appends[i]->deadline_us - now_us < least_us) {
            least_us = appends[i]->deadline_us - now_us;
        }
    }
    return least_us < 1000 ? 1000 : least_us;
}

int64_t weir__pg_append_us(store_append *const *appends, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < appends[i]->events_count; k++) {
            bytes += appends[i]->events[k].data.len + appends[i]->events[k].meta.len + 256;
        }
    }
    return (int64_t)bytes;
}

/* The unique index that a statement ran into, as the server's message names it in any language. */
static bool ran_into_version(const weir_error *err)
{
    return strcmp(err->store_code, "23505") == 0 &&
           (strstr(err->message, "events_version") != NULL ||
            strstr(err->message, "events_first") != NULL);
}

/* A lock that was waited for in vain, or for which there was no memory. */
static bool ran_into_locks(const weir_error *err)
{
    return strcmp(err->store_code, "55P03") == 0 || strcmp(err->store_code, "53200") == 0;
}

/* How many events were written, and the last one's position. */
static int64_t written_events(store_append *const *appends, size_t count, int64_t *position)
{
    int64_t events = 0;
    *position = 0;
    for (size_t i = 0; i < count; i++) {
        const store_append *a = appends[i];
        if (a->status != WEIR_OK || a->replayed || (a->flags & STORE_APPEND_DRY_RUN) != 0) {
            continue;
        }
        events += (int64_t)a->events_count;
        for (size_t k = 0; k < a->streams_count; k++) {
            *position = a->streams[k].id > *position ? a->streams[k].id : *position;
        }
    }
    return events;
}

/* The appends of one transaction. */
typedef struct group {
    pg_store *s;
    store_append *const *appends;
    size_t count;
    int64_t until_us; /* when waiting is over */
    int32_t options;  /* of append_any */
    pg_held held;     /* to wait for; or what somebody held: see weir__pg_append_results */
    bool ended;       /* the call ended with that, and nothing was judged */
} group;

static weir_status group_call(const group *g, const char *sql, pg_params *p, int64_t wait_us,
                              PGresult **result, weir_error *err)
{
    const pg_call call = { .sql = sql,
                           .params = p,
                           .repeat = PG_ONCE,
                           .answer_us = g->s->answer_us + wait_us +
                                        weir__pg_append_us(g->appends, g->count) };
    const weir_status status = weir__pg_call(g->s, &call, result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&g->s->transactions, 1);
    }
    return status;
}

static weir_status group_one(group *g, pg_params *p, int64_t wait_us, weir_error *err)
{
    const store_append *a = g->appends[0];
    PGresult *result = NULL;
    weir__pg_add_i32(p, (int32_t)(a->flags & STORE_APPEND_NOWAIT)); /* a chain of one is none */
    weir__pg_add_i32(p, wait_ms(wait_us));
    weir__pg_add_text(p, a->streams[0].name);
    weir__pg_add_i32(p, a->streams[0].expect);
    weir__pg_add_i64(p, a->streams[0].version);
    weir__pg_add_text(p, a->events[0].name);
    weir__pg_add_json(p, a->events[0].data);
    weir__pg_add_json(p, a->events[0].meta);
    weir_status status = group_call(g, sql_append_one, p, wait_us, &result, err);
    if (status == WEIR_OK) {
        status = take_one(result, g->appends[0], err);
    }
    pq.PQclear(result);
    return status;
}

/* *done: false: one append was refused and with it all, so they have to be judged one by one. */
static weir_status group_batch(group *g, const pg_heads *h, pg_params *p, bool *done,
                               weir_error *err)
{
    /* One that waits wants to know of what, and what is chained ends with the first refusal. Both
     * are rare, and judging at once is many times faster. */
    const bool all_or_none = !waits_for_nothing(g->appends) || is_chained(g->appends, g->count);
    PGresult *result = NULL;
    bool written = false;
    weir__pg_heads_params(h, g->appends, all_or_none, p);
    add_events(p, g->appends, g->count);
    weir_status status = group_call(g, sql_append_batch, p, 0, &result, err);
    if (status == WEIR_OK) {
        status = weir__pg_heads_results(h, result, g->appends, g->count, &written, err);
    }
    pq.PQclear(result);
    *done = written || !all_or_none;
    for (size_t i = 0; status == WEIR_OK && *done && !written && i < g->count; i++) {
        if (g->appends[i]->status == WEIR_OK) { /* neither refused nor written */
            status = answer_unreadable(err);
        }
    }
    return status;
}

static weir_status group_any(group *g, pg_params *p, int64_t wait_us, weir_error *err)
{
    PGresult *result = NULL;
    weir__pg_append_params(p, g->s, g->appends, g->count, g->options, wait_us, &g->held);
    weir_status status = group_call(g, sql_append_any, p, wait_us, &result, err);
    if (status == WEIR_OK) {
        status = weir__pg_append_results(result, pq.PQntuples(result), g->appends, g->count,
                                         &g->held, &g->ended, err);
    }
    pq.PQclear(result);
    return status;
}

/* One transaction, or none, by the function that is for these appends. */
static weir_status group_try(group *g, bool optimistic, weir_error *err)
{
    const int64_t left_us = g->until_us - pg_mono_us();
    const int64_t wait_us = waits_for_nothing(g->appends) ? 0 : (left_us < 1000 ? 1000 : left_us);
    pg_params p = { 0 };
    pg_heads heads = { 0 };
    weir_status status = WEIR_OK;
    bool done = false;
    g->ended = false;
    if (optimistic && g->count == 1 && is_single_event(g->appends[0])) {
        status = group_one(g, &p, wait_us, err);
        done = true;
    } else if (optimistic && weir__pg_heads_find(&heads, g->appends, g->count)) {
        status = group_batch(g, &heads, &p, &done, err);
        weir__pg_heads_free(&heads);
    }
    if (status == WEIR_OK && !done) {
        weir__pg_params_reset(&p);
        status = group_any(g, &p, wait_us, err);
    }
    weir__pg_params_free(&p);
    return status;
}

/* Again when somebody has written behind our back: whoever waits, until his time is up; a batch
 * once, and then its appends go alone. */
static weir_status group_attempts(group *g, bool optimistic, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool again = true;
    for (int attempt = 0; again; attempt++) {
        status = group_try(g, optimistic && attempt < 2, err);
        again = status == WEIR_EIO && ran_into_version(err) &&
                (attempt == 0 || (!waits_for_nothing(g->appends) && pg_mono_us() < g->until_us));
    }
    return status;
}

/* Those of a batch that nobody can judge at the moment go alone: somebody holds one of their
 * streams at the index, nobody knows whose. */
static void group_alone(const group *g)
{
    const bool known = g->count == 1 && g->appends[0]->streams_count == 1;
    for (size_t i = 0; i < g->count; i++) {
        refuse_busy(g->appends[i],
                    known ? g->appends[0]->streams[0].name : (weir_str){ .ptr = "" });
    }
}

/* The time is up, and somebody still has what was waited for. */
static weir_status group_give_up(group *g, weir_error *err)
{
    const weir_str name = { .ptr = g->held.name, .len = g->held.len };
    if (g->count > 1) {
        return weir__fail(err, WEIR_EBUSY, "%s \"%.*s\" is held by another transaction",
                          g->held.kind == PG_HELD_STREAM ? "stream" : "key", (int)name.len,
                          name.ptr);
    }
    store_append *a = g->appends[0];
    a->replayed = false;
    a->alone = false;
    if (g->held.kind == PG_HELD_KEY) {
        weir__pg_append_refused(a, WEIR_EINFLIGHT, &(pg_refusal){ .stream_index = -1 });
    } else {
        refuse_busy(a, g->held.kind == PG_HELD_STREAM ? name : (weir_str){ .ptr = "" });
    }
    return WEIR_OK;
}

/* Waits for what is held, one name at a time, holding nothing meanwhile. */
static weir_status group_wait(group *g, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (int round = 0;; round++) {
        const pg_held waited = g->held;
        g->options = round < PG_APPEND_ROUNDS_MAX ? 0 : PG_APPEND_IN_ORDER;
        status = group_attempts(g, round == 0, err);
        if (status == WEIR_EBUSY && ran_into_locks(err) && waited.kind != PG_HELD_NOTHING) {
            g->held = waited;
            return group_give_up(g, err);
        }
        if (status == WEIR_EBUSY && ran_into_locks(err) && pg_mono_us() < g->until_us) {
            /* Of a whole table: an upgrade has it for a moment. */
            weir__clock_pause(LOOK_AGAIN_US_MAX);
            continue;
        }
        if (status != WEIR_OK || !g->ended) {
            return status;
        }
        if (pg_mono_us() >= g->until_us) {
            return group_give_up(g, err);
        }
    }
}

/* As group_wait without a place to wait in: looks now and then whether the way is free. */
static weir_status group_poll(group *g, weir_error *err)
{
    store_append *a = g->appends[0];
    weir_status status = WEIR_OK;
    int64_t pause_us = LOOK_AGAIN_US_FIRST;
    a->flags |= STORE_APPEND_NOWAIT;
    for (;;) {
        g->held.kind = PG_HELD_NOTHING;
        status = group_attempts(g, true, err);
        if (status != WEIR_OK || a->status != WEIR_EBUSY || pg_mono_us() + pause_us > g->until_us) {
            break;
        }
        weir__clock_pause(pause_us);
        pause_us = pause_us * 2 < LOOK_AGAIN_US_MAX ? pause_us * 2 : LOOK_AGAIN_US_MAX;
    }
    a->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
    if (status == WEIR_OK && a->status == WEIR_EBUSY && g->held.kind == PG_HELD_KEY) {
        weir__pg_append_refused(a, WEIR_EINFLIGHT, &(pg_refusal){ .stream_index = -1 });
    }
    a->alone = false;
    return status;
}

/* Whoever waits has a place for it, or polls. */
static weir_status group_run(group *g, weir_error *err)
{
    pg_store *s = g->s;
    weir_status status = WEIR_OK;
    if (waits_for_nothing(g->appends)) {
        status = group_attempts(g, true, err);
        if (status != WEIR_OK && (ran_into_locks(err) || ran_into_version(err))) {
            group_alone(g);
            status = WEIR_OK;
        }
        return status;
    }
    const int64_t pool = s->options.pool == 0 ? PG_POOL_MAX_DEFAULT : s->options.pool;
    const int64_t places = pool > 2 ? pool / 2 : 1;
    if (atomic_fetch_add(&s->append_waiters, 1) < places || g->count > 1) {
        status = group_wait(g, err);
    } else {
        status = group_poll(g, err);
    }
    atomic_fetch_sub(&s->append_waiters, 1);
    return status;
}

/* One transaction. Waits for what others hold unless the appends say NOWAIT, which all of them do
 * or none. */
static weir_status append_group(pg_store *s, store_append *const *appends, size_t count,
                                weir_error *err)
{
    weir_error local = { 0 }; /* what went wrong is read out of it, so there must be one */
    weir_error *why = err == NULL ? &local : err;
    group g = { .s = s,
                .appends = appends,
                .count = count,
                .until_us = pg_mono_us() + time_to_wait(s, appends, count),
                .held = { .kind = PG_HELD_NOTHING } };
    const weir_status status = group_run(&g, why);
    int64_t position = 0;
    const int64_t events = status == WEIR_OK ? written_events(appends, count, &position) : 0;
    if (events > 0) {
        weir__pg_wake_wrote(s, events, position);
    }
    return status;
}

/* An append that failed with one before it. */
static void append_skip(store_append *a, weir_status status, const weir_error *why)
{
    a->replayed = false;
    a->alone = false;
    a->status = status;
    if (a->err != NULL) {
        *a->err = *why;
    }
}

weir_status weir__pg_append(weir_store *base, store_append *const *appends, size_t count,
                            weir_error *err)
{
    weir_error why = { 0 };
    size_t done = 0;
    while (done < count) {
        if (done > 0 && (appends[done]->flags & STORE_APPEND_CHAIN) != 0 &&
            appends[done - 1]->status != WEIR_OK) {
            weir__append_not_tried(appends[done++]);
            continue;
        }
        const size_t group_count = weir__pg_group(appends + done, count - done);
        const weir_status status = append_group(pg_of(base), appends + done, group_count, &why);
        if (status != WEIR_OK && done == 0) {
            if (err != NULL) {
                *err = why;
            }
            return status;
        }
        for (size_t i = done; status != WEIR_OK && i < count; i++) {
            append_skip(appends[i], status, &why); /* what came before is committed */
        }
        done = status == WEIR_OK ? done + group_count : count;
    }
    return WEIR_OK;
}

/* ---- inside a caller's transaction --------------------------------------------------------- */

static weir_status transaction_check(PGconn *native, weir_error *err)
{
    if (native == NULL) {
        return weir__fail(err, WEIR_EINVAL, "no connection was given");
    }
    switch (pq.PQtransactionStatus(native)) {
    case PQTRANS_INTRANS:
        return WEIR_OK;
    case PQTRANS_IDLE:
        return weir__fail(err, WEIR_EMISUSE, "no transaction is open on the connection given");
    case PQTRANS_INERROR:
        return weir__fail(err, WEIR_EMISUSE,
                          "the transaction on the connection given has failed: roll it back");
    case PQTRANS_ACTIVE:
        return weir__fail(err, WEIR_EMISUSE, "a statement is running on the connection given");
    case PQTRANS_UNKNOWN:
        break;
    }
    return weir__fail(err, WEIR_EUNAVAILABLE, "the connection given is lost");
}

static PGresult *run_native(PGconn *native, const char *sql, const pg_params *p)
{
    const char *values[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
    for (int i = 0; i < p->count; i++) {
        values[i] = p->offsets[i] == SIZE_MAX ? NULL : p->bytes.ptr + p->offsets[i];
        formats[i] = 1;
    }
    return pq.PQexecParams(native, sql, p->count, p->types, values, p->lengths, formats, 1);
}

weir_status weir__pg_append_in(weir_store *base, void *native, store_append *append,
                               weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir_status status = transaction_check(native, err);
    if (status != WEIR_OK) {
        return status;
    }
    append->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
    weir__pg_append_params(&params, s, &append, 1, PG_APPEND_IN_ORDER | PG_APPEND_IN_TRANSACTION, 0,
                           NULL);
    const char *sql = weir__pg_sql(s, sql_append_in);
    if (params.failed || sql == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the parameters of a statement");
        goto out;
    }
    result = run_native(native, sql, &params);
    if (pq.PQresultStatus(result) != PGRES_TUPLES_OK) {
        const bool lost = pq.PQstatus(native) != CONNECTION_OK;
        status = lost ? weir__fail(err, WEIR_EUNAVAILABLE, "the connection given is lost")
                      : weir__pg_result_status(result, err);
        goto out;
    }
    if (pq.PQntuples(result) == 0) {
        status = weir__fail(err, WEIR_EMISUSE,
                            "the transaction on the connection given is not READ COMMITTED: an "
                            "append must see what others have committed");
        goto out;
    }
    pg_held held;
    bool ended = false;
    status = weir__pg_append_results(result, pq.PQntuples(result), &append, 1, &held, &ended, err);
out:
    pq.PQclear(result);
    weir__pg_params_free(&params);
    return status;
}
