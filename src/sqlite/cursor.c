/* cursor.c - see cursor.h. */
#include "sqlite/cursor.h"

#include "base/error.h"
#include "sqlite/sqlite.h"

#include <string.h>

sqlite_cursor weir__cursor_open(sqlite_conn *conn, const char *sql, weir_error *err)
{
    sqlite_cursor cursor = { .conn = conn, .err = err };
    cursor.status = weir__sqlite_statement(conn, sql, &cursor.stmt, err);
    return cursor;
}

void weir__cursor_fail(sqlite_cursor *cursor, weir_status status)
{
    if (cursor->status == WEIR_OK) {
        cursor->status = status;
    }
}

static void bind_check(sqlite_cursor *cursor, int rc)
{
    if (rc != SQLITE_OK) {
        weir__cursor_fail(cursor,
                          weir__sqlite_fail(cursor->conn, rc, cursor->err, "bind a parameter"));
    }
}

void weir__cursor_bind_i64(sqlite_cursor *cursor, int index, int64_t value)
{
    if (cursor->status == WEIR_OK) {
        bind_check(cursor, sqlite3_bind_int64(cursor->stmt, index, value));
    }
}

void weir__cursor_bind_text(sqlite_cursor *cursor, int index, weir_str text)
{
    if (cursor->status == WEIR_OK) {
        /* A NULL pointer would bind NULL. */
        bind_check(cursor, sqlite3_bind_text64(cursor->stmt, index, text.len == 0 ? "" : text.ptr,
                                               text.len, SQLITE_STATIC, SQLITE_UTF8));
    }
}

void weir__cursor_bind_bytes(sqlite_cursor *cursor, int index, const void *ptr, size_t len)
{
    if (cursor->status == WEIR_OK) {
        bind_check(cursor, sqlite3_bind_blob64(cursor->stmt, index, len == 0 ? "" : ptr, len,
                                               SQLITE_STATIC));
    }
}

bool weir__cursor_next(sqlite_cursor *cursor)
{
    bool row = false;
    if (cursor->status != WEIR_OK || cursor->stmt == NULL) {
        return false;
    }
    weir__cursor_fail(cursor, weir__sqlite_step(cursor->conn, cursor->stmt, &row, cursor->err));
    return row;
}

weir_status weir__cursor_end(sqlite_cursor *cursor)
{
    weir__sqlite_done(cursor->stmt);
    cursor->stmt = NULL;
    return cursor->status;
}

weir_status weir__cursor_run(sqlite_cursor *cursor)
{
    while (weir__cursor_next(cursor)) {
    }
    weir__sqlite_done(cursor->stmt);
    return cursor->status;
}

weir_str weir__cursor_copy(sqlite_cursor *cursor, int column, weir_arena *arena)
{
    if (cursor->status != WEIR_OK) {
        return (weir_str){ 0 };
    }
    const weir_str text = weir__cursor_text(cursor, column);
    const char *copy = weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
    if (copy == NULL) {
        weir__cursor_fail(cursor, weir__fail(cursor->err, WEIR_ENOMEM, "could not copy a text"));
        return (weir_str){ 0 };
    }
    return (weir_str){ .ptr = copy, .len = text.len };
}

void weir__cursor_collect(sqlite_cursor *cursor, weir_buffer *found, const void *item, size_t bytes)
{
    if (cursor->status == WEIR_OK && !weir__buffer_add(found, item, bytes)) {
        weir__cursor_fail(cursor,
                          weir__fail(cursor->err, WEIR_ENOMEM, "could not allocate a list"));
    }
}

weir_status weir__cursor_keep(sqlite_cursor *cursor, weir_buffer *found, size_t bytes,
                              weir_arena *arena, void *items, size_t *count)
{
    weir_status status = weir__cursor_end(cursor);
    void *copy = NULL;
    if (status == WEIR_OK && found->len > 0) {
        copy = weir__arena_alloc(arena, found->len);
        if (copy == NULL) {
            status = weir__fail(cursor->err, WEIR_ENOMEM, "could not allocate a list");
        } else {
            memcpy(copy, found->ptr, found->len);
        }
    }
    if (status == WEIR_OK) {
        memcpy(items, &copy, sizeof copy);
        *count = found->len / bytes;
    }
    weir__buffer_free(found);
    return status;
}

/* ---- whole statements ---------------------------------------------------------------------- */

static sqlite_cursor cursor_open_ints(sqlite_conn *conn, const char *sql, const int64_t *values,
                                      size_t count, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    for (size_t i = 0; i < count; i++) {
        weir__cursor_bind_i64(&cursor, (int)i + 1, values[i]);
    }
    return cursor;
}

weir_status weir__sqlite_run_ints(sqlite_conn *conn, const char *sql, const int64_t *values,
                                  size_t count, weir_error *err)
{
    sqlite_cursor cursor = cursor_open_ints(conn, sql, values, count, err);
    return weir__cursor_run(&cursor);
}

weir_status weir__sqlite_get_int(sqlite_conn *conn, const char *sql, const int64_t *values,
                                 size_t count, bool *found, int64_t *out, weir_error *err)
{
    sqlite_cursor cursor = cursor_open_ints(conn, sql, values, count, err);
    return weir__cursor_get_int(&cursor, found, out);
}

weir_status weir__sqlite_get_by_text(sqlite_conn *conn, const char *sql, weir_str text, bool *found,
                                     int64_t *out, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_text(&cursor, 1, text);
    return weir__cursor_get_int(&cursor, found, out);
}

weir_status weir__cursor_get_int(sqlite_cursor *cursor, bool *found, int64_t *out)
{
    *found = weir__cursor_next(cursor) && !weir__cursor_null(cursor, 0);
    if (*found) {
        *out = weir__cursor_i64(cursor, 0);
    }
    return weir__cursor_end(cursor);
}
