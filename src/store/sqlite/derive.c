/* derive.c - keeps a target's row in step with its subscriptions; small tools of the targets side.
 *
 * INVARIANT  At the end of every transaction, behind, watermark, rank and priority of every target
 * are what derive_read computes. Leasing reads nothing else, so a target whose row is wrong is
 * either leased for nothing or never again.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/derive_sql.h"
#include "store/sqlite/targets.h"

#include <stdlib.h>
#include <string.h>

weir_status weir__sqlite_run_ints(sqlite_conn *conn, const char *sql, const int64_t *values,
                                  size_t count, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
    }
    return weir__sqlite_run(conn, stmt, err);
}

weir_status weir__sqlite_get_int(sqlite_conn *conn, const char *sql, const int64_t *values,
                                 size_t count, bool *found, int64_t *out, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
    }
    bool row = false;
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK) {
        *found = row;
        if (row) {
            *out = sqlite3_column_int64(stmt, 0);
        }
    }
    weir__sqlite_done(stmt);
    return status;
}

/* What derive_read gives: as the row says, and as it should. */
typedef struct derived {
    int64_t behind, watermark, priority;
} derived;

weir_status weir__sqlite_derive(sqlite_conn *conn, int64_t target, bool *behind, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    derived is = { 0 }, should = { 0 };
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_derive_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && row) {
        is = (derived){ .behind = sqlite3_column_int64(stmt, 0),
                        .watermark = sqlite3_column_int64(stmt, 1),
                        .priority = sqlite3_column_int64(stmt, 2) };
        should = (derived){ .behind = sqlite3_column_int64(stmt, 3),
                            .watermark = sqlite3_column_int64(stmt, 4),
                            .priority = sqlite3_column_int64(stmt, 5) };
    }
    weir__sqlite_done(stmt);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no target with id %lld", (long long)target);
    }
    if (status != WEIR_OK) {
        return status;
    }

    /* SQLite rewrites an index entry whenever a column of it is named in an UPDATE, changed or not:
     * most settles move the watermark alone, inside its rank. */
    const int64_t rank = should.watermark >> STORE_RANK_SHIFT;
    if (is.behind != should.behind || is.priority != should.priority ||
        is.watermark >> STORE_RANK_SHIFT != rank) {
        status = weir__sqlite_run_ints(
            conn, sql_derive_write,
            (int64_t[]){ target, should.behind, should.watermark, rank, should.priority }, 5, err);
    } else if (is.watermark != should.watermark) {
        status = weir__sqlite_run_ints(conn, sql_derive_watermark,
                                       (int64_t[]){ target, should.watermark }, 2, err);
    }
    if (status == WEIR_OK && behind != NULL) {
        *behind = should.behind != 0;
    }
    return status;
}

weir_str weir__sqlite_error_text(weir_str text)
{
    if (text.len > STORE_ERROR_TEXT_BYTES_MAX) {
        text.len = weir__utf8_valid_prefix(text.ptr, STORE_ERROR_TEXT_BYTES_MAX);
    }
    return text;
}

weir_status weir__sqlite_ids_add(sqlite_ids *ids, int64_t id, weir_error *err)
{
    if (!weir__buffer_add(&ids->bytes, &id, sizeof id)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a list of %zu ids",
                          weir__sqlite_ids_count(ids) + 1);
    }
    return WEIR_OK;
}

int64_t weir__sqlite_ids_get(const sqlite_ids *ids, size_t index)
{
    int64_t id = 0;
    memcpy(&id, ids->bytes.ptr + index * sizeof id, sizeof id);
    return id;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t left = 0, right = 0;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

void weir__sqlite_ids_sort(sqlite_ids *ids)
{
    const size_t count = weir__sqlite_ids_count(ids);
    if (count < 2) {
        return;
    }
    qsort(ids->bytes.ptr, count, sizeof(int64_t), compare_ids);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        const int64_t id = weir__sqlite_ids_get(ids, i);
        if (id != weir__sqlite_ids_get(ids, kept - 1)) {
            memcpy(ids->bytes.ptr + kept * sizeof id, &id, sizeof id);
            kept++;
        }
    }
    ids->bytes.len = kept * sizeof(int64_t);
}
