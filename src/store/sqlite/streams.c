/* streams.c - what is known about streams, page by page in the order of their names; owners of
 * keys.
 *
 * A pattern or a category narrows the names to a range; the rest is decided name by name. Names
 * compare bytewise in C and in SQL alike.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/sqlite_private.h"
#include "store/sqlite/streams_sql.h"

#include <string.h>

enum { NAMES_LOOKED_MAX = 1000 };

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for stream information");
}

static bool row_to_info(sqlite3_stmt *stmt, weir_arena *arena, store_stream_info *out)
{
    *out = (store_stream_info){
        .stream = weir__sqlite_column_copy(stmt, 0, arena),
        .version = sqlite3_column_int64(stmt, 1),
        .id = sqlite3_column_int64(stmt, 2),
        .created_us = sqlite3_column_int64(stmt, 3),
        .updated_us = sqlite3_column_int64(stmt, 4),
        .closed = sqlite3_column_int(stmt, 5) != 0,
    };
    return out->stream.ptr != NULL;
}

/* Runs a query by one text in a transaction of its own. *stmt stands on the row; the caller ends
 * both. */
static weir_status begin_lookup(sqlite_store *s, const char *sql, weir_str text, sqlite_conn **conn,
                                sqlite3_stmt **stmt, bool *row, weir_error *err)
{
    weir_status status = weir__sqlite_read_begin(s, conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_statement(*conn, sql, stmt, err);
    if (status == WEIR_OK) {
        weir__sqlite_bind_str(*stmt, 1, text);
        status = weir__sqlite_step(*conn, *stmt, row, err);
    }
    if (status != WEIR_OK) {
        weir__sqlite_read_end(s, *conn);
    }
    return status;
}

weir_status weir__sqlite_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    store_stream_info info;
    weir_status status = begin_lookup(s, sql_stream_info, stream, &conn, &stmt, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no stream \"%.*s\"", (int)stream.len, stream.ptr);
        weir__error_stream(err, stream);
    } else if (!row_to_info(stmt, arena, &info)) {
        status = no_memory(err);
    } else {
        *out = info;
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

weir_status weir__sqlite_key_owner(weir_store *base, weir_str key, weir_arena *arena,
                                   weir_str *stream, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = begin_lookup(s, sql_key_owner, key, &conn, &stmt, &row, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "key \"%.*s\" is free", (int)key.len, key.ptr);
    } else {
        const weir_str owner = weir__sqlite_column_copy(stmt, 0, arena);
        if (owner.ptr == NULL) {
            status = no_memory(err);
        } else {
            *stream = owner;
        }
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

/* ---- pages -------------------------------------------------------------------------------- */

/* Names with low <= name < high. */
typedef struct name_range {
    weir_buffer low, high;
} name_range;

static bool raise_low(name_range *range, weir_str text)
{
    if (weir__str_compare(text, (weir_str){ range->low.ptr, range->low.len }) <= 0) {
        return true;
    }
    weir__buffer_clear(&range->low);
    return weir__buffer_add(&range->low, text.ptr, text.len);
}

static bool lower_high(name_range *range, weir_str text)
{
    if (weir__str_compare(text, (weir_str){ range->high.ptr, range->high.len }) >= 0) {
        return true;
    }
    weir__buffer_clear(&range->high);
    return weir__buffer_add(&range->high, text.ptr, text.len);
}

/* Everything that begins with `prefix`. Names are UTF-8, so the last byte is never 0xff. */
static bool narrow_to_prefix(name_range *range, weir_str prefix)
{
    weir_buffer above = { 0 };
    if (prefix.len == 0) {
        return true;
    }
    bool ok = weir__buffer_add(&above, prefix.ptr, prefix.len);
    if (ok) {
        above.ptr[above.len - 1] =
            (char)(unsigned char)((unsigned char)above.ptr[above.len - 1] + 1);
        ok = raise_low(range, prefix) &&
             lower_high(range, (weir_str){ .ptr = above.ptr, .len = above.len });
    }
    weir__buffer_free(&above);
    return ok;
}

static bool make_range(name_range *range, const store_streams_query *q)
{
    /* No UTF-8 text has this byte; and the least text above `after` is that with a NUL behind
     * it. */
    bool ok = weir__buffer_add(&range->high, "\xff", 1);
    if (ok && q->after.len > 0) {
        ok = weir__buffer_add(&range->low, q->after.ptr, q->after.len) &&
             weir__buffer_add(&range->low, "", 1);
    }
    if (ok && q->pattern != NULL &&
        (q->pattern->kind == PATTERN_EXACT || q->pattern->kind == PATTERN_PREFIX)) {
        ok = narrow_to_prefix(range, q->pattern->name);
    }
    return ok && narrow_to_prefix(range, q->category);
}

static bool is_wanted(const store_streams_query *q, weir_str name, bool closed)
{
    if ((q->closed == 1 && !closed) || (q->closed == 2 && closed)) {
        return false;
    }
    if (q->category.len > 0 && !weir__str_equal(weir__category(name), q->category)) {
        return false;
    }
    return q->pattern == NULL || weir__pattern_matches(q->pattern, name);
}

/* Goes through the range until there are `max` streams or enough names were looked at. */
static weir_status fill_page(sqlite_conn *conn, sqlite3_stmt *stmt, const store_streams_query *q,
                             size_t max, store_streams_chunk *chunk, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool row = false;
    for (int64_t looked = 0;; looked++) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            return status;
        }
        if (looked == NAMES_LOOKED_MAX || chunk->streams_count == max) {
            chunk->more = true;
            return WEIR_OK;
        }
        const bool closed = sqlite3_column_int(stmt, 5) != 0;
        store_stream_info *slot = &chunk->streams[chunk->streams_count];
        if (is_wanted(q, weir__sqlite_column_str(stmt, 0), closed)) {
            if (!row_to_info(stmt, &chunk->arena, slot)) {
                return no_memory(err);
            }
            chunk->scanned_to = slot->stream;
            chunk->streams_count++;
            continue;
        }
        chunk->scanned_to = weir__sqlite_column_copy(stmt, 0, &chunk->arena);
        if (chunk->scanned_to.ptr == NULL) {
            return no_memory(err);
        }
    }
}

weir_status weir__sqlite_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    name_range range = { 0 };
    const size_t max = q->limit < NAMES_LOOKED_MAX ? (size_t)q->limit : NAMES_LOOKED_MAX;

    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__arena_reset(&chunk->arena);
    chunk->streams_count = 0;
    chunk->more = false;
    chunk->streams = weir__arena_alloc(&chunk->arena, max * sizeof *chunk->streams);
    chunk->scanned_to.ptr =
        weir__arena_copy(&chunk->arena, q->after.len == 0 ? "" : q->after.ptr, q->after.len);
    chunk->scanned_to.len = q->after.len;
    if (chunk->streams == NULL || chunk->scanned_to.ptr == NULL || !make_range(&range, q)) {
        status = no_memory(err);
        goto out;
    }
    status = weir__sqlite_statement(conn, sql_streams_page, &stmt, err);
    if (status != WEIR_OK) {
        goto out;
    }
    weir__sqlite_bind_str(stmt, 1, (weir_str){ .ptr = range.low.ptr, .len = range.low.len });
    weir__sqlite_bind_str(stmt, 2, (weir_str){ .ptr = range.high.ptr, .len = range.high.len });
    status = fill_page(conn, stmt, q, max, chunk, err);
out:
    weir__sqlite_done(stmt);
    weir__sqlite_read_end(s, conn);
    weir__buffer_free(&range.low);
    weir__buffer_free(&range.high);
    return status;
}
