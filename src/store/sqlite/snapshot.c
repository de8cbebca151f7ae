/* snapshot.c - folded states of streams: one per stream, kept by its name. */
#include "base/error.h"
#include "store/sqlite/snapshot_sql.h"
#include "store/sqlite/sqlite_private.h"

weir_status weir__sqlite_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_statement(conn, sql_snapshot_put, &stmt, err);
    if (status == WEIR_OK) {
        weir__sqlite_bind_str(stmt, 1, snapshot->stream);
        (void)sqlite3_bind_int64(stmt, 2, snapshot->version);
        weir__sqlite_bind_str(stmt, 3, snapshot->revision);
        (void)sqlite3_bind_blob64(stmt, 4, snapshot->data.len == 0 ? "" : snapshot->data.ptr,
                                  snapshot->data.len, SQLITE_STATIC);
        status = weir__sqlite_run(conn, stmt, err);
    }
    return weir__sqlite_write_end(s, status, false, err);
}

weir_status weir__sqlite_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_statement(conn, sql_snapshot_get, &stmt, err);
    if (status != WEIR_OK) {
        goto out;
    }
    weir__sqlite_bind_str(stmt, 1, stream);
    weir__sqlite_bind_str(stmt, 2, revision);
    (void)sqlite3_bind_int64(stmt, 3, at_most);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status != WEIR_OK) {
        goto out;
    }
    if (!row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no snapshot of stream \"%.*s\"", (int)stream.len,
                            stream.ptr);
        weir__error_stream(err, stream);
        goto out;
    }
    const store_snapshot found = {
        .stream = { weir__arena_copy(arena, stream.ptr, stream.len), stream.len },
        .revision = { weir__arena_copy(arena, revision.len == 0 ? "" : revision.ptr, revision.len),
                      revision.len },
        .version = sqlite3_column_int64(stmt, 0),
        .data = weir__sqlite_column_copy(stmt, 1, arena),
    };
    if (found.stream.ptr == NULL || found.revision.ptr == NULL || found.data.ptr == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a snapshot");
        goto out;
    }
    *out = found;
out:
    weir__sqlite_read_end(s, conn);
    return status;
}

weir_status weir__sqlite_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t now_us = 0;
    int64_t count = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_statement(conn, sql_snapshot_drop, &stmt, err);
    if (status == WEIR_OK) {
        weir__sqlite_bind_str(stmt, 1, category);
        weir__sqlite_bind_str(stmt, 2, keep_revision);
        status = weir__sqlite_run(conn, stmt, err);
        count = sqlite3_changes64(conn->db);
    }
    status = weir__sqlite_write_end(s, status, false, err);
    if (status == WEIR_OK && dropped != NULL) {
        *dropped = count;
    }
    return status;
}
