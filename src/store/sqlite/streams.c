/* streams.c - what is known about streams, page by page in the order of their names; owners of
 * keys.
 *
 * A pattern or a category narrows the names to a range; the rest is decided name by name. Names
 * compare bytewise in C and in SQL alike.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/sqlite/sqlite_private.h"
#include "store/sqlite/streams_sql.h"

#include <string.h>

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for stream information");
}

static void row_to_info(sqlite_cursor *cursor, weir_arena *arena, store_stream_info *out)
{
    *out = (store_stream_info){
        .stream = weir__cursor_copy(cursor, 0, arena),
        .version = weir__cursor_i64(cursor, 1),
        .id = weir__cursor_i64(cursor, 2),
        .created_us = weir__cursor_i64(cursor, 3),
        .updated_us = weir__cursor_i64(cursor, 4),
        .closed = weir__cursor_bool(cursor, 5),
    };
}

weir_status weir__sqlite_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    store_stream_info info = { 0 };
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_stream_info, err);
    weir__cursor_bind_text(&cursor, 1, stream);
    const bool row = weir__cursor_next(&cursor);
    if (row) {
        row_to_info(&cursor, arena, &info);
    }
    status = weir__cursor_end(&cursor);
    if (status == WEIR_OK && row) {
        *out = info;
    } else if (status == WEIR_OK) {
        status = weir__stream_unknown(stream, err);
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

/* Goes through the range until there are `max` streams or enough names were looked at. */
static weir_status fill_page(sqlite_cursor *cursor, const store_streams_query *q, size_t max,
                             store_streams_chunk *chunk)
{
    for (int64_t looked = 0; weir__cursor_next(cursor); looked++) {
        if (looked == STORE_CHUNK_NAMES_MAX || chunk->streams_count == max) {
            chunk->more = true;
            break;
        }
        store_stream_info *slot = &chunk->streams[chunk->streams_count];
        if (weir__stream_wanted(q, weir__cursor_text(cursor, 0), weir__cursor_bool(cursor, 5))) {
            row_to_info(cursor, &chunk->arena, slot);
            chunk->scanned_to = slot->stream;
            chunk->streams_count++;
        } else {
            chunk->scanned_to = weir__cursor_copy(cursor, 0, &chunk->arena);
        }
    }
    return weir__cursor_end(cursor);
}

weir_status weir__sqlite_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    name_range range = { 0 };
    const size_t max = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX);

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
    sqlite_cursor cursor = weir__cursor_open(conn, sql_streams_page, err);
    weir__cursor_bind_text(&cursor, 1, (weir_str){ .ptr = range.low.ptr, .len = range.low.len });
    weir__cursor_bind_text(&cursor, 2, (weir_str){ .ptr = range.high.ptr, .len = range.high.len });
    status = fill_page(&cursor, q, max, chunk);
out:
    weir__sqlite_read_end(s, conn);
    weir__buffer_free(&range.low);
    weir__buffer_free(&range.high);
    return status;
}
