/* append.c - appending inside a write transaction: each append is judged, then written.
 *
 * INVARIANTS
 *   (1) An append is judged completely before its first write, so a refused one needs no undoing
 *       and its neighbours in the transaction go on.
 *   (2) There is one writer, so what was judged still holds when it is written. A stream's version
 *       is read from the unique index on (stream, version) itself: whatever else has written to the
 *       log is seen, and is a conflict if it was not expected.
 *   (3) Positions are the head plus one, plus one, ...: without gaps, in the order of the events.
 *   (4) A kept result (weir_keys.result) is first, last and id of each stream of the append, in its
 *       order, as zigzag LEB128 numbers.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/judge.h"
#include "store/refusal.h"
#include "store/sqlite/append_sql.h"
#include "store/sqlite/sqlite_private.h"

#include <string.h>

enum { NUMBER_BYTES_MAX = 10 }; /* of a 64-bit number as LEB128 */

/* What judging has found out about one stream of an append. */
typedef struct judged_stream {
    int64_t row;      /* weir_streams.id; 0: there is none yet */
    int64_t category; /* weir_categories.id; 0: not looked for */
    int64_t version;  /* WEIR_VERSION_NONE: it has no event    */
    int64_t next;     /* version of the next event             */
    bool closed;
} judged_stream;

/* A business key of an append, with its owner before and after. An empty owner: free. */
typedef struct judged_key {
    weir_str key;
    weir_str before, after;
} judged_key;

/* One append on its way. */
typedef struct appending {
    sqlite_store *store;
    sqlite_conn *conn;
    int64_t now_us;
    int64_t keys_now_us; /* by which keys expire: of the machine's clock */
    store_append *append;
    weir_arena *arena; /* reset for each append */
    judged_stream *streams;
    judged_key *keys; /* open-addressed by key; capacity a power of two */
    size_t keys_capacity;
    bool nothing_to_do; /* replayed, or closed already */
} appending;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for an append");
}

/* ---- categories --------------------------------------------------------------------------- */

void weir__sqlite_categories_forget(sqlite_store *s)
{
    for (size_t i = 0; i < s->categories_count; i++) {
        weir__free(s->categories[i].name);
    }
    s->categories_count = 0;
}

/* Best effort: without memory the next append asks the database again. */
static void remember_category(sqlite_store *s, weir_str name, int64_t id)
{
    if (s->categories_count == SQLITE_CATEGORIES_CACHED_MAX) {
        return;
    }
    if (s->categories == NULL) {
        s->categories = weir__calloc(SQLITE_CATEGORIES_CACHED_MAX, sizeof *s->categories);
    }
    char *copy = s->categories == NULL ? NULL : weir__strndup(name.ptr, name.len);
    if (copy != NULL) {
        s->categories[s->categories_count++] =
            (sqlite_category){ .name = copy, .len = name.len, .id = id };
    }
}

static weir_status category_id(appending *a, weir_str name, int64_t *id, weir_error *err)
{
    sqlite_store *s = a->store;
    bool known = false;

    for (size_t i = 0; i < s->categories_count; i++) {
        const sqlite_category *c = &s->categories[i];
        if (weir__str_equal((weir_str){ .ptr = c->name, .len = c->len }, name)) {
            *id = c->id;
            return WEIR_OK;
        }
    }
    weir_status status =
        weir__sqlite_get_by_text(a->conn, sql_append_category, name, &known, id, err);
    if (status == WEIR_OK && !known) {
        sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_category_new, err);
        weir__cursor_bind_text(&cursor, 1, name);
        status = weir__cursor_run(&cursor);
        *id = sqlite3_last_insert_rowid(a->conn->db);
    }
    if (status == WEIR_OK) {
        remember_category(s, name, *id);
    }
    return status;
}

/* ---- idempotency keys --------------------------------------------------------------------- */

static size_t put_number(uint8_t *out, int64_t value)
{
    uint64_t left = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    size_t len = 0;
    while (left >= 0x80) {
        out[len++] = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    out[len++] = (uint8_t)left;
    return len;
}

/* false: there is no complete number at *at. */
static bool get_number(weir_str bytes, size_t *at, int64_t *value)
{
    uint64_t got = 0;
    for (unsigned shift = 0; shift < 64 && *at < bytes.len; shift += 7) {
        const uint8_t byte = (uint8_t)bytes.ptr[(*at)++];
        got |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value = (int64_t)(got >> 1) ^ -(int64_t)(got & 1);
            return true;
        }
    }
    return false;
}

static bool decode_result(store_append *append, weir_str bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < append->streams_count; i++) {
        store_append_stream *stream = &append->streams[i];
        if (!get_number(bytes, &at, &stream->first) || !get_number(bytes, &at, &stream->last) ||
            !get_number(bytes, &at, &stream->id)) {
            return false;
        }
    }
    return at == bytes.len;
}

/* The time of a replayed append: that of the events it wrote then. */
static weir_status replayed_time(appending *a, weir_error *err)
{
    int64_t created_us = 0; /* the same for all events of an append */
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < a->append->streams_count && status == WEIR_OK; i++) {
        store_append_stream *stream = &a->append->streams[i];
        bool found = false;
        if (stream->id != 0 && created_us == 0) {
            status = weir__sqlite_get_int(a->conn, sql_append_created, &stream->id, 1, &found,
                                          &created_us, err);
        }
        stream->created_us = stream->id != 0 ? created_us : 0;
    }
    return status;
}

/* Whether the append was made before. */
static weir_status judge_key(appending *a, weir_error *err)
{
    store_append *append = a->append;
    sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_key, err);
    weir__cursor_bind_text(&cursor, 1, append->key);
    if (!weir__cursor_next(&cursor) || weir__cursor_i64(&cursor, 0) <= a->keys_now_us) {
        return weir__cursor_end(&cursor);
    }
    append->status = weir__key_judge(append, weir__cursor_text(&cursor, 1), append->err);
    if (append->status == WEIR_OK && !decode_result(append, weir__cursor_text(&cursor, 2))) {
        weir__cursor_fail(&cursor,
                          weir__fail(err, WEIR_ECORRUPT,
                                     "the result kept with idempotency key \"%.*s\" cannot be read",
                                     (int)append->key.len, append->key.ptr));
    } else if (append->status == WEIR_OK) {
        append->replayed = true;
        a->nothing_to_do = true;
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK && append->replayed ? replayed_time(a, err) : status;
}

static weir_status write_key(appending *a, weir_error *err)
{
    const store_append *append = a->append;
    const sqlite_store *s = a->store;
    const int64_t expires_us = weir__time_later(a->keys_now_us, s->options.key_ttl_us);
    size_t len = 0;

    uint8_t *result = weir__arena_alloc(a->arena, append->streams_count * 3 * NUMBER_BYTES_MAX + 1);
    if (result == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < append->streams_count; i++) {
        len += put_number(result + len, append->streams[i].first);
        len += put_number(result + len, append->streams[i].last);
        len += put_number(result + len, append->streams[i].id);
    }
    sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_key_new, err);
    weir__cursor_bind_text(&cursor, 1, append->key);
    weir__cursor_bind_i64(&cursor, 2, expires_us);
    weir__cursor_bind_bytes(&cursor, 3, append->fingerprint, WEIR_SHA256_BYTES);
    weir__cursor_bind_bytes(&cursor, 4, result, len);
    return weir__cursor_run(&cursor);
}

/* ---- streams ------------------------------------------------------------------------------ */

static weir_status look_up_stream(appending *a, weir_str name, judged_stream *found,
                                  weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_stream, err);
    weir__cursor_bind_text(&cursor, 1, name);
    *found = (judged_stream){ .version = WEIR_VERSION_NONE, .next = a->conn->row->version_base };
    if (weir__cursor_next(&cursor)) {
        found->row = weir__cursor_i64(&cursor, 0);
        if (!weir__cursor_null(&cursor, 1)) {
            found->version = weir__cursor_i64(&cursor, 1);
            found->next = found->version + 1;
        }
        found->category = weir__cursor_i64(&cursor, 2);
        found->closed = weir__cursor_bool(&cursor, 3);
    }
    return weir__cursor_end(&cursor);
}

/* Refuses in append->status; what is returned is about the database. */
static weir_status judge_stream(appending *a, size_t index, weir_error *err)
{
    store_append *append = a->append;
    const store_append_stream *stream = &append->streams[index];
    judged_stream *found = &a->streams[index];

    weir_status status = look_up_stream(a, stream->name, found, err);
    if (status != WEIR_OK) {
        return status;
    }
    append->status = weir__stream_judge(append, index, found->version, found->closed,
                                        &a->nothing_to_do, append->err);
    if (append->status != WEIR_OK || a->nothing_to_do || !weir__close_asks(append, index)) {
        return WEIR_OK;
    }
    status = weir__sqlite_unhandled(a->store, a->conn, found->row, stream->name, append->err);
    if (status == WEIR_EHELD) {
        append->status = status;
        return WEIR_OK;
    }
    if (status != WEIR_OK && err != NULL && append->err != NULL && err != append->err) {
        *err = *append->err;
    }
    return status;
}

/* ---- reserved keys ------------------------------------------------------------------------ */

/* The entry of a key, made on first sight with the owner that the database knows. */
static weir_status find_key(appending *a, weir_str key, judged_key **out, weir_error *err)
{
    size_t i = (size_t)weir__str_hash(key) & (a->keys_capacity - 1);
    while (a->keys[i].key.len != 0 && !weir__str_equal(a->keys[i].key, key)) {
        i = (i + 1) & (a->keys_capacity - 1);
    }
    judged_key *entry = &a->keys[i];
    *out = entry;
    if (entry->key.len != 0) {
        return WEIR_OK;
    }
    sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_reserved, err);
    weir__cursor_bind_text(&cursor, 1, key);
    if (weir__cursor_next(&cursor)) {
        entry->before = weir__cursor_copy(&cursor, 0, a->arena);
    }
    entry->key = key;
    entry->after = entry->before;
    return weir__cursor_end(&cursor);
}

static weir_status judge_reserved(appending *a, weir_error *err)
{
    store_append *append = a->append;
    a->keys_capacity = 4;
    while (a->keys_capacity < append->key_changes_count * 2) {
        a->keys_capacity *= 2;
    }
    a->keys = weir__arena_alloc(a->arena, a->keys_capacity * sizeof *a->keys);
    if (a->keys == NULL) {
        return no_memory(err);
    }
    memset(a->keys, 0, a->keys_capacity * sizeof *a->keys);

    for (size_t i = 0; i < append->key_changes_count; i++) {
        const store_key_change *change = &append->key_changes[i];
        judged_key *entry = NULL;
        const weir_status status = find_key(a, change->key, &entry, err);
        if (status != WEIR_OK) {
            return status;
        }
        append->status =
            weir__key_change_judge(append, change, entry->after, &entry->after, append->err);
        if (append->status != WEIR_OK) {
            return WEIR_OK;
        }
    }
    return WEIR_OK;
}

static weir_status write_reserved(appending *a, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < a->keys_capacity && status == WEIR_OK; i++) {
        const judged_key *entry = &a->keys[i];
        if (entry->key.len == 0 || weir__str_equal(entry->before, entry->after)) {
            continue;
        }
        const bool free_now = entry->after.len == 0;
        sqlite_cursor cursor =
            weir__cursor_open(a->conn, free_now ? sql_append_release : sql_append_reserve, err);
        weir__cursor_bind_text(&cursor, 1, entry->key);
        if (!free_now) {
            weir__cursor_bind_text(&cursor, 2, entry->after);
        }
        status = weir__cursor_run(&cursor);
    }
    return status;
}

/* ---- one append --------------------------------------------------------------------------- */

static weir_status append_judge(appending *a, weir_error *err)
{
    store_append *append = a->append;
    if (append->key.len != 0) {
        const weir_status status = judge_key(a, err);
        if (status != WEIR_OK || append->status != WEIR_OK || a->nothing_to_do) {
            return status;
        }
    }
    a->streams = weir__arena_alloc(a->arena, (append->streams_count + 1) * sizeof *a->streams);
    if (a->streams == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < append->streams_count; i++) {
        const weir_status status = judge_stream(a, i, err);
        if (status != WEIR_OK || append->status != WEIR_OK) {
            return status;
        }
    }
    return append->key_changes_count == 0 ? WEIR_OK : judge_reserved(a, err);
}

/* Fills the results from what was judged: no version and no position is decided anywhere else. */
static void set_results(appending *a)
{
    store_append *append = a->append;
    for (size_t i = 0; i < append->streams_count; i++) {
        append->streams[i].first = -1;
        append->streams[i].last = a->streams[i].version;
        append->streams[i].id = 0;
        append->streams[i].created_us = 0;
    }
    if (a->nothing_to_do) {
        return;
    }
    for (size_t i = 0; i < append->events_count; i++) {
        store_append_stream *stream = &append->streams[append->events[i].stream_index];
        const bool first = stream->first < 0;
        stream->last = first ? a->streams[append->events[i].stream_index].next : stream->last + 1;
        stream->first = first ? stream->last : stream->first;
        stream->id = a->conn->row->next + (int64_t)i;
        stream->created_us = a->now_us;
    }
}

/* Makes the stream, if there is none, and marks it closed, if the append closes it. */
static weir_status write_stream(appending *a, size_t index, weir_error *err)
{
    const store_append_stream *stream = &a->append->streams[index];
    judged_stream *found = &a->streams[index];
    weir_status status = WEIR_OK;

    if (found->row == 0) {
        status = category_id(a, weir__category(stream->name), &found->category, err);
        if (status != WEIR_OK) {
            return status;
        }
        sqlite_cursor cursor = weir__cursor_open(a->conn, sql_append_stream_new, err);
        weir__cursor_bind_text(&cursor, 1, stream->name);
        weir__cursor_bind_i64(&cursor, 2, found->category);
        weir__cursor_bind_i64(&cursor, 3, a->now_us);
        status = weir__cursor_run(&cursor);
        found->row = sqlite3_last_insert_rowid(a->conn->db);
    }
    return status == WEIR_OK && (a->append->flags & STORE_APPEND_CLOSE) != 0 && index == 0
               ? weir__sqlite_run_ints(a->conn, sql_append_stream_close, &found->row, 1, err)
               : status;
}

static weir_status write_events(appending *a, weir_error *err)
{
    const store_append *append = a->append;
    sqlite_conn *conn = a->conn;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_append_event, err);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < append->events_count && status == WEIR_OK; i++) {
        const store_new_event *event = &append->events[i];
        judged_stream *stream = &a->streams[event->stream_index];
        weir__cursor_bind_i64(&cursor, 1, conn->row->next);
        weir__cursor_bind_i64(&cursor, 2, stream->row);
        weir__cursor_bind_i64(&cursor, 3, stream->next);
        weir__cursor_bind_i64(&cursor, 4, stream->category);
        weir__cursor_bind_i64(&cursor, 5, a->now_us);
        weir__cursor_bind_text(&cursor, 6, event->name);
        weir__cursor_bind_text(&cursor, 7, event->meta);
        weir__cursor_bind_text(&cursor, 8, event->data);
        status = weir__cursor_run(&cursor);
        stream->next++;
        conn->row->head = conn->row->next++;
    }
    a->store->events_written = a->store->events_written || append->events_count > 0;
    return status;
}

static weir_status append_write(appending *a, weir_error *err)
{
    const store_append *append = a->append;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < append->streams_count && status == WEIR_OK; i++) {
        if (append->streams[i].id != 0) {
            status = write_stream(a, i, err);
        }
    }
    if (status == WEIR_OK && append->events_count > 0) {
        status = write_events(a, err);
    }
    if (status == WEIR_OK && append->key_changes_count > 0) {
        status = write_reserved(a, err);
    }
    if (status == WEIR_OK && append->key.len != 0) {
        status = write_key(a, err);
    }
    return status;
}

weir_status weir__sqlite_append_in(sqlite_store *s, sqlite_conn *conn, int64_t now_us,
                                   store_append *const *appends, size_t count, weir_error *err)
{
    weir_arena arena = { 0 };
    int64_t keys_now_us = 0;
    weir_status status = count > 0 ? weir__sqlite_machine_now(s, conn, &keys_now_us, err) : WEIR_OK;
    bool refused = false;
    bool key_written = false;

    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        store_append *append = appends[i];
        appending a = { .store = s,
                        .conn = conn,
                        .now_us = now_us,
                        .keys_now_us = keys_now_us,
                        .append = append,
                        .arena = &arena };
        append->status = WEIR_OK;
        append->replayed = false;
        if (refused && (append->flags & STORE_APPEND_CHAIN) != 0) {
            weir__append_not_tried(append);
            continue;
        }
        weir__arena_reset(&arena);
        status = append_judge(&a, err);
        refused = append->status != WEIR_OK;
        if (status != WEIR_OK || refused || append->replayed) {
            continue;
        }
        set_results(&a);
        if (!a.nothing_to_do && (append->flags & STORE_APPEND_DRY_RUN) == 0) {
            status = append_write(&a, err);
            key_written = key_written || append->key.len != 0;
        }
    }
    if (status == WEIR_OK && key_written) {
        status = weir__sqlite_run_ints(conn, sql_append_keys_expire, &keys_now_us, 1, err);
    }
    weir__arena_free(&arena);
    return status;
}

/* Until when the one that has to give up first may wait. */
static int64_t first_deadline(const sqlite_store *s, store_append *const *appends, size_t count)
{
    int64_t first_us = weir__sqlite_deadline(s);
    for (size_t i = 0; i < count; i++) {
        const int64_t deadline_us = appends[i]->deadline_us;
        first_us = deadline_us != 0 && deadline_us < first_us ? deadline_us : first_us;
    }
    return first_us;
}

weir_status weir__sqlite_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin_until(s, 0, first_deadline(s, appends, count),
                                                        &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_append_in(s, conn, now_us, appends, count, err);
    return weir__sqlite_write_end(s, status, true, err);
}
