/* parked.c - dead letters: events that were set aside so that their target could go on.
 *
 * INVARIANT  A target is behind while one of its parked events is sent back, so whoever changes
 * that derives the target again.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/sqlite/parked_sql.h"
#include "store/sqlite/targets.h"

/* ---- listing ------------------------------------------------------------------------------- */

static void read_parked(sqlite_cursor *cursor, weir_arena *arena, store_parked *out)
{
    *out = (store_parked){ .id = weir__cursor_i64(cursor, 0),
                           .reaction = weir__cursor_i64(cursor, 1),
                           .reaction_name = weir__cursor_copy(cursor, 2, arena),
                           .target = weir__cursor_copy(cursor, 3, arena),
                           .event = weir__cursor_i64(cursor, 4),
                           .attempts = weir__cursor_i64(cursor, 5),
                           .parked_us = weir__cursor_i64(cursor, 6),
                           .error = weir__cursor_copy(cursor, 7, arena),
                           .sent_back = weir__cursor_bool(cursor, 8) };
}

static sqlite_cursor open_list(sqlite_conn *conn, const store_parked_query *q, weir_error *err)
{
    const bool by_target = q->target.len > 0;
    const bool by_reaction = !by_target && q->reaction.len > 0;
    sqlite_cursor cursor = weir__cursor_open(conn,
                                             by_target     ? sql_parked_by_target
                                             : by_reaction ? sql_parked_by_reaction
                                                           : sql_parked_list,
                                             err);
    weir__cursor_bind_i64(&cursor, 1, q->after);
    if (by_target) {
        weir__cursor_bind_text(&cursor, 2, q->target);
    } else if (by_reaction) {
        weir__cursor_bind_text(&cursor, 3, q->reaction);
    }
    return cursor;
}

static weir_status parked_in(sqlite_conn *conn, const store_parked_query *q,
                             store_parked_chunk *chunk, weir_error *err)
{
    const size_t limit = weir__chunk_limit(q->limit, STORE_CHUNK_EVENTS_MAX);
    size_t count = 0;
    store_parked *list = weir__arena_alloc(&chunk->arena, (limit + 1) * sizeof *list);
    if (list == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu parked events", limit);
    }
    sqlite_cursor cursor = open_list(conn, q, err);
    while (weir__cursor_next(&cursor)) {
        if (q->reaction.len > 0 && !weir__str_equal(q->reaction, weir__cursor_text(&cursor, 2))) {
            continue;
        }
        if (count == limit) {
            chunk->more = true;
            break;
        }
        read_parked(&cursor, &chunk->arena, &list[count++]);
    }
    const weir_status status = weir__cursor_end(&cursor);
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
    sqlite_cursor cursor = weir__cursor_open(conn, sql_parked_read, err);
    weir__cursor_bind_i64(&cursor, 1, parked);
    const bool row = weir__cursor_next(&cursor);
    if (row) {
        *target = weir__cursor_i64(&cursor, 0);
        *sent_back = weir__cursor_bool(&cursor, 1);
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK && !row ? weir__parked_unknown(parked, err) : status;
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
        return weir__parked_targetless(parked, err);
    }
    status = weir__sqlite_run_ints(conn, sql_parked_send_back, &parked, 1, err);
    return status == WEIR_OK ? weir__sqlite_derive(conn, target, NULL, err) : status;
}

static weir_status parked_drop(sqlite_conn *conn, int64_t parked, weir_error *err)
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

weir_status weir__sqlite_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                       weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    const bool retry = action == STORE_PARKED_RETRY;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = retry ? send_back(conn, parked, err) : parked_drop(conn, parked, err);
    return weir__sqlite_write_end(s, status, retry, err);
}
