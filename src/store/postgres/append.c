/* append.c - appending: one call of weir.append or weir.append_one, and reading what it answers.
 *
 * INVARIANTS
 *   (1) One append, and one batch of them, is one statement: judging and writing happen in the
 *       database (append_functions.sql).
 *   (2) What the unique index on events refuses (somebody wrote an event without moving the head)
 *       is not the caller's error: the same statement is run once more, looking at the events as
 *       well, and then it is a conflict with the version that is there, for the one concerned.
 *   (3) A statement without an answer is WEIR_EUNKNOWN. It is not repeated here: the committer does
 *       that, under a key.
 *   (4) At most half of the pool's connections wait for somebody's lock; an append that finds no
 *       place looks now and then instead. So a stream that is held for long never stops the others.
 *   (5) Whether a batch can be judged set-based is decided here, where it is cheap to see: see
 *       `options` in append_functions.sql.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/append_batch.h"
#include "store/postgres/append_sql.h"
#include "store/postgres/postgres_private.h"

#include <string.h>

enum {
    SET_BASED_NAMES_MAX = 1 << 16, /* streams and keys of one batch that are compared */
    NAMES_SHOWN_BYTES_MAX = 256,   /* of the reactions named in a message             */
    ATTEMPTS_MAX = 4,
    LOOK_AGAIN_US_FIRST = 1000,
    LOOK_AGAIN_US_MAX = 20 * 1000,
};

/* The columns of the statements in append.sql. */
enum {
    COLUMN_APPEND,
    COLUMN_STREAM,
    COLUMN_STATUS,
    COLUMN_REPLAYED,
    COLUMN_FIRST,
    COLUMN_LAST,
    COLUMN_POSITION,
    COLUMN_EXPECTED,
    COLUMN_ACTUAL, /* of a success: the time of its events */
    COLUMN_OTHER,
};

/* ---- how a batch can be judged ------------------------------------------------------------- */

/* A name that the appends of a batch have in common, or not. */
typedef struct seen_name {
    weir_str name;
    bool alone; /* whoever named it must stay the only one */
} seen_name;

typedef struct seen_names {
    seen_name *slots; /* owned; open-addressed, capacity a power of two */
    size_t capacity;
} seen_names;

/* false: another append has this name, and one of them needs it for itself. */
static bool see(seen_names *seen, weir_str name, bool alone)
{
    size_t i = (size_t)weir__str_hash(name) & (seen->capacity - 1);
    while (seen->slots[i].name.len != 0) {
        if (weir__str_equal(seen->slots[i].name, name)) {
            return !alone && !seen->slots[i].alone;
        }
        i = (i + 1) & (seen->capacity - 1);
    }
    seen->slots[i] = (seen_name){ .name = name, .alone = alone };
    return true;
}

static bool plain(const store_append *a)
{
    return a->key_changes_count == 0 &&
           (a->flags & (STORE_APPEND_CLOSE | STORE_APPEND_DRY_RUN)) == 0;
}

/* Whether what becomes of one append depends on the success of the one before. */
static bool chained(store_append *const *appends, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if ((appends[i]->flags & STORE_APPEND_CHAIN) != 0) {
            return true;
        }
    }
    return false;
}

static bool streams_apart(seen_names *seen, store_append *const *appends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const store_append *a = appends[i];
        for (size_t k = 0; k < a->streams_count; k++) {
            /* Events mostly come in the order of their streams: look there first. */
            bool has_event = false;
            for (size_t e = 0; e < a->events_count && !has_event; e++) {
                has_event = a->events[(k + e) % a->events_count].stream_index == k;
            }
            const bool alone = a->streams[k].expect != WEIR_EXPECT_ANY || !has_event;
            if (!see(seen, a->streams[k].name, alone)) {
                return false;
            }
        }
    }
    return true;
}

static bool keys_apart(seen_names *seen, store_append *const *appends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (appends[i]->key.len > 0 && !see(seen, appends[i]->key, true)) {
            return false;
        }
    }
    return true;
}

/* Whether all can be judged at once. false is never wrong, only slower. */
static bool set_based(store_append *const *appends, size_t count)
{
    size_t names = count;
    for (size_t i = 0; i < count; i++) {
        if (!plain(appends[i])) {
            return false;
        }
        names += appends[i]->streams_count;
    }
    if (count == 1) {
        return true;
    }
    if (names > SET_BASED_NAMES_MAX) {
        return false;
    }
    seen_names seen = { .capacity = 16 };
    while (seen.capacity < 2 * names) {
        seen.capacity *= 2;
    }
    seen.slots = weir__calloc(seen.capacity, sizeof *seen.slots);
    if (seen.slots == NULL) {
        return false;
    }
    bool apart = streams_apart(&seen, appends, count);
    memset(seen.slots, 0, seen.capacity * sizeof *seen.slots);
    apart = apart && keys_apart(&seen, appends, count);
    weir__free(seen.slots);
    return apart;
}

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

int32_t weir__pg_append_params(pg_params *p, const pg_store *s, store_append *const *appends,
                               size_t count, int32_t options, int64_t wait_us)
{
    if ((options & (PG_APPEND_RECHECK | PG_APPEND_IN_ORDER)) == 0 && set_based(appends, count)) {
        options |= PG_APPEND_SET_BASED | (chained(appends, count) ? PG_APPEND_ALL : 0);
    }
    weir__pg_add_i32(p, options);
    weir__pg_add_i32(p, wait_ms(wait_us));
    weir__pg_add_i64(p, s->options.key_ttl_us);
    add_appends(p, appends, count);
    add_streams(p, appends, count);
    add_events(p, appends, count);
    add_key_changes(p, appends, count);
    return options;
}

/* ---- results ------------------------------------------------------------------------------ */

/* The expectation as it is reported in a conflict. */
static int64_t expected_version(const store_append_stream *stream)
{
    switch (stream->expect) {
    case WEIR_EXPECT_NONE:
        return WEIR_VERSION_NONE;
    case WEIR_EXPECT_EXISTS:
        return WEIR_VERSION_EXISTS;
    default:
        return stream->version;
    }
}

/* As many of the names (separated by ", ") as a message has room for. */
static int names_shown(weir_str names, const char **more)
{
    *more = "";
    size_t len = NAMES_SHOWN_BYTES_MAX - sizeof ", ...";
    if (names.len <= len) {
        return (int)names.len;
    }
    while (len > 0 && names.ptr[len] != ',') {
        len--;
    }
    *more = len == 0 ? "..." : ", ...";
    return (int)len;
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
    const bool has_stream = why->stream_index >= 0 && (size_t)why->stream_index < a->streams_count;
    const store_append_stream *stream = has_stream ? &a->streams[why->stream_index] : NULL;
    const weir_str name = has_stream ? stream->name : (weir_str){ .ptr = "" };
    const char *more = "";

    a->status = status;
    switch (status) {
    case WEIR_EBUSY:
        refuse_busy(a, name);
        break;
    case WEIR_ECONFLICT:
        (void)weir__fail_conflict(a->err, name, has_stream ? expected_version(stream) : 0,
                                  why->actual);
        break;
    case WEIR_ECLOSED:
        (void)weir__fail(a->err, status, "stream \"%.*s\" is closed", (int)name.len, name.ptr);
        weir__error_stream(a->err, name);
        break;
    case WEIR_ENOTFOUND:
        (void)weir__fail(a->err, status, "no stream \"%.*s\"", (int)name.len, name.ptr);
        weir__error_stream(a->err, name);
        break;
    case WEIR_EKEYREUSED:
        (void)weir__fail(a->err, status, "idempotency key \"%.*s\" was used with other content",
                         (int)a->key.len, a->key.ptr);
        break;
    case WEIR_EINFLIGHT:
        (void)weir__fail(a->err, status, "idempotency key \"%.*s\" is being used right now",
                         (int)a->key.len, a->key.ptr);
        break;
    case WEIR_ETAKEN: {
        const bool known = why->expected >= 0 && (size_t)why->expected < a->key_changes_count;
        const weir_str key = known ? a->key_changes[why->expected].key : (weir_str){ .ptr = "" };
        (void)weir__fail(a->err, status, "key \"%.*s\" belongs to stream \"%.*s\"", (int)key.len,
                         key.ptr, (int)why->other.len, why->other.ptr);
        weir__error_stream(a->err, why->other);
        break;
    }
    case WEIR_EHELD: {
        const int shown = names_shown(why->other, &more);
        (void)weir__fail(a->err, status,
                         "stream \"%.*s\" has events that were not handled by: %.*s%s",
                         (int)name.len, name.ptr, shown, why->other.ptr, more);
        weir__error_stream(a->err, name);
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
        (void)weir__fail(a->err, status, "not tried");
        break;
    }
}

static weir_str text_or_empty(const PGresult *result, int row, int column)
{
    const weir_str empty = { .ptr = "" };
    return weir__pg_null(result, row, column) ? empty : weir__pg_text(result, row, column);
}

weir_status weir__pg_append_results(const PGresult *result, store_append *const *appends,
                                    size_t count, weir_error *err)
{
    const int rows = pq.PQntuples(result);
    size_t streams = 0; /* that still have no row */
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
            streams -= a->streams_count;
            weir__pg_append_refused(
                a, (weir_status)status,
                &(pg_refusal){ .stream_index = at,
                               .expected = weir__pg_i64_or(result, row, COLUMN_EXPECTED, -1),
                               .actual = weir__pg_i64_or(result, row, COLUMN_ACTUAL, -1),
                               .other = text_or_empty(result, row, COLUMN_OTHER) });
            continue;
        }
        if (a == NULL || status != 0 || at < 0 || (size_t)at >= a->streams_count) {
            return weir__fail(err, WEIR_ECORRUPT, "the answer to an append cannot be read");
        }
        a->streams[at].first = weir__pg_i64(result, row, COLUMN_FIRST);
        a->streams[at].last = weir__pg_i64(result, row, COLUMN_LAST);
        a->streams[at].id = weir__pg_i64(result, row, COLUMN_POSITION);
        a->streams[at].created_us = weir__pg_i64_or(result, row, COLUMN_ACTUAL, 0);
        a->replayed = weir__pg_bool(result, row, COLUMN_REPLAYED);
        streams--;
    }
    return streams == 0 ? WEIR_OK
                        : weir__fail(err, WEIR_ECORRUPT, "the answer to an append is not complete");
}

/* ---- running ------------------------------------------------------------------------------ */

static bool is_single_event(const store_append *a)
{
    return plain(a) && a->streams_count == 1 && a->events_count == 1 && a->key.len == 0;
}

/* What the one that has to give up first may wait for a lock, at least a millisecond; 0: in a batch
 * nobody waits. */
static int64_t time_to_wait(const pg_store *s, store_append *const *appends, size_t count)
{
    int64_t least_us = s->options.busy_us;
    const int64_t now_us = pg_mono_us();
    if ((appends[0]->flags & STORE_APPEND_NOWAIT) != 0) {
        return 0;
    }
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

static void add_single_event(pg_params *p, const store_append *a, int64_t wait_us)
{
    weir__pg_add_i32(p, (int32_t)a->flags);
    weir__pg_add_i32(p, wait_ms(wait_us));
    weir__pg_add_text(p, a->streams[0].name);
    weir__pg_add_i32(p, a->streams[0].expect);
    weir__pg_add_i64(p, a->streams[0].version);
    weir__pg_add_text(p, a->events[0].name);
    weir__pg_add_json(p, a->events[0].data);
    weir__pg_add_json(p, a->events[0].meta);
}

/* The unique index or the key that a statement ran into, as the server's message names it in any
 * language. */
static bool ran_into(const weir_error *err, const char *constraint)
{
    return strcmp(err->store_code, "23505") == 0 && strstr(err->message, constraint) != NULL;
}

static bool is_lock_timeout(const weir_error *err)
{
    return strcmp(err->store_code, "55P03") == 0;
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

/* All were to be written or none (PG_APPEND_ALL): was it none? Then they are judged one by one. A
 * chain is rarely broken, and judging it at once is many times faster. */
static bool chain_broken(const PGresult *result, store_append *const *appends, size_t count)
{
    const int rows = pq.PQntuples(result);
    size_t streams = 0;
    for (size_t i = 0; i < count; i++) {
        streams += appends[i]->streams_count;
    }
    for (int row = 0; row < rows; row++) {
        if (weir__pg_i32(result, row, COLUMN_STATUS) != 0) {
            return true;
        }
    }
    return (size_t)rows < streams;
}

/* One try at a batch: what is sent, and what came back. */
typedef struct attempt {
    pg_params params;
    pg_heads heads;
    PGresult *result; /* owned */
    int32_t options, sent;
    bool written; /* all of them, as weir.append_batch says */
} attempt;

static weir_status attempt_run(attempt *a, pg_store *s, store_append *const *appends, size_t count,
                               bool first, weir_error *err)
{
    const int64_t wait_us = time_to_wait(s, appends, count);
    const bool single = first && count == 1 && is_single_event(appends[0]);
    const char *sql = single ? sql_append_one : sql_append;
    weir__pg_params_reset(&a->params);
    weir__pg_heads_free(&a->heads);
    a->sent = 0;
    if (single) {
        add_single_event(&a->params, appends[0], wait_us);
    } else {
        a->sent = weir__pg_append_params(&a->params, s, appends, count, a->options, wait_us);
    }
    if ((a->sent & PG_APPEND_SET_BASED) != 0 && weir__pg_heads_find(&a->heads, appends, count)) {
        weir__pg_heads_params(&a->heads, &a->params);
        sql = sql_append_batch;
    }
    const pg_call call = { .sql = sql,
                           .params = &a->params,
                           .repeat = PG_ONCE,
                           .answer_us =
                               s->answer_us + wait_us + weir__pg_append_us(appends, count) };
    const weir_status status = weir__pg_call(s, &call, &a->result, err);
    a->written = status == WEIR_OK && a->heads.count > 0 && weir__pg_heads_written(a->result);
    return status;
}

/* Whether nothing was written and it has to be tried once more; how is in the options then. */
static bool attempt_again(attempt *a, weir_status status, store_append *const *appends,
                          size_t count, const weir_error *why)
{
    if (status == WEIR_OK && !a->written && (a->sent & PG_APPEND_ALL) != 0 &&
        chain_broken(a->result, appends, count)) {
        pq.PQclear(a->result);
        a->result = NULL;
        a->options |= PG_APPEND_IN_ORDER;
        return true;
    }
    if (status != WEIR_EIO) {
        return false;
    }
    if (ran_into(why, "events_version")) {
        a->options |= PG_APPEND_RECHECK;
        return true;
    }
    return ran_into(why, "streams_pkey"); /* two who created the same one at once */
}

/* What became of each append, once the statement was answered. */
static weir_status attempt_results(const attempt *a, store_append *const *appends, size_t count,
                                   weir_error *err)
{
    if (a->result == NULL) {
        return weir__fail(err, WEIR_EBUSY,
                          "others create the same streams all the time; try again");
    }
    return a->written ? weir__pg_heads_results(&a->heads, a->result, appends, count, err)
                      : weir__pg_append_results(a->result, appends, count, err);
}

/* One transaction. Waits for locks unless the appends say NOWAIT, which all of them do or none. */
static weir_status append_once(pg_store *s, store_append *const *appends, size_t count,
                               weir_error *err)
{
    attempt a = { .options = PG_APPEND_EXPIRE };
    weir_error local = { 0 };
    weir_error *why = err == NULL ? &local : err;
    weir_status status = WEIR_OK;
    int attempts = 0;
    bool again = false;

    do {
        status = attempt_run(&a, s, appends, count, attempts == 0, why);
        again = attempt_again(&a, status, appends, count, why);
    } while (again && ++attempts < ATTEMPTS_MAX);
    if (status == WEIR_EBUSY && is_lock_timeout(why) &&
        (appends[0]->flags & STORE_APPEND_NOWAIT) != 0) {
        /* Somebody creates one of these streams, and many others: nobody knows which. Or it was one
         * alone, whose head is held. */
        const bool known = count == 1 && appends[0]->streams_count == 1;
        for (size_t i = 0; i < count; i++) {
            refuse_busy(appends[i], known ? appends[0]->streams[0].name : (weir_str){ .ptr = "" });
        }
        status = WEIR_OK;
    } else if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        status = attempt_results(&a, appends, count, err);
        int64_t position;
        const int64_t events = status == WEIR_OK ? written_events(appends, count, &position) : 0;
        if (events > 0) {
            weir__pg_wake_wrote(s, events, position);
        }
    }
    pq.PQclear(a.result);
    weir__pg_params_free(&a.params);
    weir__pg_heads_free(&a.heads);
    return status;
}

/* As append_once without a place to wait in: looks now and then whether the way is free. */
static weir_status append_polling(pg_store *s, store_append *append, int64_t until_us,
                                  weir_error *err)
{
    weir_status status = WEIR_OK;
    int64_t pause_us = LOOK_AGAIN_US_FIRST;
    append->flags |= STORE_APPEND_NOWAIT;
    for (;;) {
        status = append_once(s, &append, 1, err);
        if (status != WEIR_OK || append->status != WEIR_EBUSY ||
            pg_mono_us() + pause_us > until_us) {
            break;
        }
        weir__clock_pause(pause_us);
        pause_us = pause_us * 2 < LOOK_AGAIN_US_MAX ? pause_us * 2 : LOOK_AGAIN_US_MAX;
    }
    append->flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
    if (status == WEIR_OK && append->status == WEIR_EBUSY && append->key.len > 0) {
        /* Only who waits is told whether it is the key that is in flight: for a millisecond. */
        const int64_t deadline_us = append->deadline_us;
        append->deadline_us = until_us;
        status = append_once(s, &append, 1, err);
        append->deadline_us = deadline_us;
    }
    append->alone = false;
    return status;
}

weir_status weir__pg_append(weir_store *base, store_append *const *appends, size_t count,
                            weir_error *err)
{
    pg_store *s = pg_of(base);
    weir_error local = { 0 };
    weir_error *why = err == NULL ? &local : err;
    weir_status status = WEIR_OK;
    if (count == 0) {
        return WEIR_OK;
    }
    if ((appends[0]->flags & STORE_APPEND_NOWAIT) != 0) {
        return append_once(s, appends, count, err);
    }
    const int64_t pool = s->options.pool == 0 ? PG_POOL_MAX_DEFAULT : s->options.pool;
    const int64_t places = pool > 2 ? pool / 2 : 1;
    const int64_t until_us = pg_mono_us() + time_to_wait(s, appends, count);
    if (atomic_fetch_add(&s->append_waiters, 1) < places || count > 1) {
        status = append_once(s, appends, count, why);
        /* Of a whole table, not of a stream: an upgrade has it for a moment. */
        while (status == WEIR_EBUSY && is_lock_timeout(why) && pg_mono_us() < until_us) {
            weir__clock_pause(LOOK_AGAIN_US_MAX);
            status = append_once(s, appends, count, why);
        }
    } else {
        status = append_polling(s, appends[0], until_us, why);
    }
    atomic_fetch_sub(&s->append_waiters, 1);
    return status;
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
    /* The events are looked at beforehand: an error would cost the caller the whole transaction. */
    (void)weir__pg_append_params(&params, s, &append, 1, PG_APPEND_RECHECK, 0);
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
    status = weir__pg_append_results(result, &append, 1, err);
out:
    pq.PQclear(result);
    weir__pg_params_free(&params);
    return status;
}
