/* cursor.h - one run of a prepared statement: parameters, rows, and one question at the end.
 *
 *     sqlite_cursor cursor = weir__cursor_open(conn, sql_route_subscription, err);
 *     weir__cursor_bind_i64(&cursor, 1, target);
 *     while (weir__cursor_next(&cursor)) {
 *         at = weir__cursor_i64(&cursor, 0);
 *     }
 *     return weir__cursor_end(&cursor);
 *
 * Nothing fails visibly before the end: the first failure is kept in the cursor and in `err`, and
 * whatever follows does nothing. Always ended by weir__cursor_end or weir__cursor_run: a cursor
 * that is left open keeps its transaction open.
 */
#ifndef WEIR_SQLITE_CURSOR_H
#define WEIR_SQLITE_CURSOR_H

#include "base/memory.h"
#include "weir.h"

#include <sqlite3.h>
#include <stdbool.h>

struct sqlite_conn;

/* conn and err are borrowed. */
typedef struct sqlite_cursor {
    struct sqlite_conn *conn;
    sqlite3_stmt *stmt; /* of the connection; NULL: not prepared, or ended */
    weir_error *err;
    weir_status status; /* the first failure */
} sqlite_cursor;

/* `sql` has static storage: statements are kept by the address of their text. Two cursors on one
 * text cannot be open at once. */
sqlite_cursor weir__cursor_open(struct sqlite_conn *conn, const char *sql, weir_error *err);

/* Parameters count from 1; one that is not bound is NULL. Texts and bytes are not copied: they must
 * live until the cursor is ended. */
void weir__cursor_bind_i64(sqlite_cursor *cursor, int index, int64_t value);
void weir__cursor_bind_text(sqlite_cursor *cursor, int index, weir_str text); /* empty is '' */
void weir__cursor_bind_bytes(sqlite_cursor *cursor, int index, const void *ptr, size_t len);

/* Steps to the next row; false: there is none, or something has failed. */
bool weir__cursor_next(sqlite_cursor *cursor);
/* Keeps a failure of the caller's, whose `err` is written already. WEIR_OK is a no-op. */
void weir__cursor_fail(sqlite_cursor *cursor, weir_status status);
/* Resets the statement and gives the first failure. Ending twice is fine. */
weir_status weir__cursor_end(sqlite_cursor *cursor);
/* Runs to the end, ignoring rows. The cursor can be bound and run again. */
weir_status weir__cursor_run(sqlite_cursor *cursor);

/* Columns of the row that weir__cursor_next has found; they count from 0. NULL reads as 0, false
 * and empty. */
static inline int64_t weir__cursor_i64(const sqlite_cursor *cursor, int column)
{
    return sqlite3_column_int64(cursor->stmt, column);
}

static inline bool weir__cursor_bool(const sqlite_cursor *cursor, int column)
{
    return sqlite3_column_int(cursor->stmt, column) != 0;
}

static inline bool weir__cursor_null(const sqlite_cursor *cursor, int column)
{
    return sqlite3_column_type(cursor->stmt, column) == SQLITE_NULL;
}

/* Text or bytes, borrowed until the next step. */
static inline weir_str weir__cursor_text(const sqlite_cursor *cursor, int column)
{
    /* As a blob: text columns are UTF-8 already, and no terminator has to be made. */
    const char *ptr = sqlite3_column_blob(cursor->stmt, column);
    return (weir_str){ .ptr = ptr, .len = (size_t)sqlite3_column_bytes(cursor->stmt, column) };
}

/* The same copied into an arena. When out of memory, .ptr is NULL and the cursor has failed. */
weir_str weir__cursor_copy(sqlite_cursor *cursor, int column, weir_arena *arena);

/* Adds a struct made of a row to a list of them. */
void weir__cursor_collect(sqlite_cursor *cursor, weir_buffer *found, const void *item,
                          size_t bytes);
/* Ends the cursor, and moves what was collected into an arena: *items (a pointer to structs of so
 * many bytes; NULL when there are none) and *count are written only on success. `found` is empty
 * afterwards. */
weir_status weir__cursor_keep(sqlite_cursor *cursor, weir_buffer *found, size_t bytes,
                              weir_arena *arena, void *items, size_t *count);

/* ---- whole statements ---------------------------------------------------------------------- */

/* Runs a statement to its end with integers as its parameters ?1, ?2, ... */
weir_status weir__sqlite_run_ints(struct sqlite_conn *conn, const char *sql, const int64_t *values,
                                  size_t count, weir_error *err);
/* The first column of the first row, with integers as parameters; *found false: no row, or NULL,
 * and *out as it was. */
weir_status weir__sqlite_get_int(struct sqlite_conn *conn, const char *sql, const int64_t *values,
                                 size_t count, bool *found, int64_t *out, weir_error *err);
/* The same with a text as the only parameter. */
weir_status weir__sqlite_get_by_text(struct sqlite_conn *conn, const char *sql, weir_str text,
                                     bool *found, int64_t *out, weir_error *err);
/* The same of a cursor whose parameters are bound; ends it. */
weir_status weir__cursor_get_int(sqlite_cursor *cursor, bool *found, int64_t *out);

#endif
