/* snapshot.c - folded states of streams: one per stream, kept by its name. */
#include "base/error.h"
#include "store/refusal.h"
#include "store/sqlite/snapshot_sql.h"
#include "store/sqlite/sqlite_private.h"

weir_status weir__sqlite_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    const weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_snapshot_put, err);
    weir__cursor_bind_text(&cursor, 1, snapshot->stream);
    weir__cursor_bind_i64(&cursor, 2, snapshot->version);
    weir__cursor_bind_text(&cursor, 3, snapshot->revision);
    weir__cursor_bind_bytes(&cursor, 4, snapshot->data.ptr, snapshot->data.len);
    return weir__sqlite_write_end(s, weir__cursor_run(&cursor), false, err);
}

weir_status weir__sqlite_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_snapshot_get, err);
    weir__cursor_bind_text(&cursor, 1, stream);
    weir__cursor_bind_text(&cursor, 2, revision);
    weir__cursor_bind_i64(&cursor, 3, at_most);
    const bool row = weir__cursor_next(&cursor);
    store_snapshot found = { 0 };
    if (row) {
        found = (store_snapshot){
            .stream = { weir__arena_copy(arena, stream.ptr, stream.len), stream.len },
            .revision = { weir__arena_copy(arena, revision.len == 0 ? "" : revision.ptr,
                                           revision.len),
                          revision.len },
            .version = weir__cursor_i64(&cursor, 0),
            .data = weir__cursor_copy(&cursor, 1, arena),
        };
    }
    status = weir__cursor_end(&cursor);
    if (status == WEIR_OK && !row) {
        status = weir__snapshot_unknown(stream, err);
    } else if (status == WEIR_OK && (found.stream.ptr == NULL || found.revision.ptr == NULL)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a snapshot");
    } else if (status == WEIR_OK) {
        *out = found;
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

weir_status weir__sqlite_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_snapshot_drop, err);
    weir__cursor_bind_text(&cursor, 1, category);
    weir__cursor_bind_text(&cursor, 2, keep_revision);
    status = weir__cursor_run(&cursor);
    const int64_t count = sqlite3_changes64(conn->db);
    status = weir__sqlite_write_end(s, status, false, err);
    if (status == WEIR_OK && dropped != NULL) {
        *dropped = count;
    }
    return status;
}
