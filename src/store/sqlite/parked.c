/* parked.c - dead letters: events that were set aside so that their target could go on.
 *
 * INVARIANT  A target is behind while one of its parked events is sent back, so whoever changes
 * that derives the target again.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/parked_sql.h"
#include "store/sqlite/targets.h"

/* ---- listing ------------------------------------------------------------------------------- */

static weir_status read_parked(sqlite3_stmt *stmt, weir_arena *arena, store_parked *out,
                               weir_error *err)
{
    *out = (store_parked){ .id = sqlite3_column_int64(stmt, 0),
                           .reaction = sqlite3_column_int64(stmt, 1),
                           .reaction_name = weir__sqlite_column_copy(stmt, 2, arena),
                           .target = weir__sqlite_column_copy(stmt, 3, arena),
                           .event = sqlite3_column_int64(stmt, 4),
                           .attempts = sqlite3_column_int64(stmt, 5),
                           .parked_us = sqlite3_column_int64(stmt, 6),
                           .error = weir__sqlite_column_copy(stmt, 7, arena),
                           .sent_back = sqlite3_column_int(stmt, 8) != 0 };
    if (out->reaction_name.ptr == NULL || out->target.ptr == NULL || out->error.ptr == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a parked event");
    }
    return WEIR_OK;
}

static weir_status open_list(sqlite_conn *conn, const store_parked_query *q, sqlite3_stmt **out,
                             weir_error *err)
{
    const char *sql = sql_parked_list;
    if (q->target.len > 0) {
        sql = sql_parked_by_target;
    } else if (q->reaction.len > 0) {
        sql = sql_parked_by_reaction;
    }
    const weir_status status = weir__sqlite_statement(conn, sql, out, err);
    if (status == WEIR_OK) {
        sqlite3_bind_int64(*out, 1, q->after);
        if (q->target.len > 0) {
            weir__sqlite_bind_str(*out, 2, q->target);
        } else if (q->reaction.len > 0) {
            weir__sqlite_bind_str(*out, 3, q->reaction);
        }
    }
    return status;
}

static weir_status parked_in(sqlite_conn *conn, const store_parked_query *q,
                             store_parked_chunk *chunk, weir_error *err)
{
    const size_t limit =
        (uint64_t)q->limit < STORE_CHUNK_EVENTS_MAX ? (size_t)q->limit : STORE_CHUNK_EVENTS_MAX;
    sqlite3_stmt *stmt = NULL;
    size_t count = 0;
    bool row = false;
    store_parked *list = weir__arena_alloc(&chunk->arena, (limit + 1) * sizeof *list);
    if (list == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu parked events", limit);
    }
    weir_status status = open_list(conn, q, &stmt, err);
    while (status == WEIR_OK) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        if (q->reaction.len > 0 &&
            !weir__str_equal(q->reaction, weir__sqlite_column_str(stmt, 2))) {
            continue;
        }
        if (count == limit) {
            chunk->more = true;
            break;
        }
        status = read_parked(stmt, &chunk->arena, &list[count], err);
        count++;
    }
    weir__sqlite_done(stmt);
    if (status == WEIR_OK) {
        chunk->parked = list;
        chunk->parked_count = count;
    }
    return status;
}

weir_status weir__sqlite_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    weir__arena_reset(&chunk->arena);
    chunk->parked = NULL;
    chunk->parked_count = 0;
    chunk->more = false;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status == WEIR_OK) {
        status = parked_in(conn, q, chunk, err);
        weir__sqlite_read_end(s, conn);
    }
    return status;
}

/* ---- sending back, dropping ---------------------------------------------------------------- */

/* ENOTFOUND. *target 0: parked while routing. */
static weir_status find_parked(sqlite_conn *conn, int64_t parked, int64_t *target, bool *sent_back,
                               weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_parked_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, parked);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no parked event with id %lld", (long long)parked);
    } else if (status == WEIR_OK) {
        *target = sqlite3_column_int64(stmt, 0);
        *sent_back = sqlite3_column_int(stmt, 1) != 0;
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status send_back(sqlite_conn *conn, int64_t parked, weir_error *err)
{
    int64_t target = 0;
    bool sent_back = false;
    weir_status status = find_parked(conn, parked, &target, &sent_back, err);
    if (status != WEIR_OK || sent_back) {
        return status;
    }
    if (target == 0) {
        status = weir__fail(err, WEIR_EMISUSE,
                            "parked event %lld was parked while routing and has no target",
                            (long long)parked);
        weir__error_detail(err, "Its reaction could not say which target it is for. Reset the "
                                "reaction's targets once it can, and drop this one.");
        return status;
    }
    status = weir__sqlite_run_ints(conn, sql_parked_send_back, &parked, 1, err);
    return status == WEIR_OK ? weir__sqlite_derive(conn, target, NULL, err) : status;
}

static weir_status drop(sqlite_conn *conn, int64_t parked, weir_error *err)
{
    int64_t target = 0;
    bool sent_back = false;
    weir_status status = find_parked(conn, parked, &target, &sent_back, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_parked_drop, &parked, 1, err);
    }
    if (status == WEIR_OK && sent_back) {
        status = weir__sqlite_derive(conn, target, NULL, err);
    }
    return status;
}

weir_status weir__sqlite_parked_retry(weir_store *base, int64_t parked, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = send_back(conn, parked, err);
    return weir__sqlite_write_end(s, status, true, err);
}

weir_status weir__sqlite_parked_drop(weir_store *base, int64_t parked, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = drop(conn, parked, err);
    return weir__sqlite_write_end(s, status, false, err);
}
