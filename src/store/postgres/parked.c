/* parked.c - dead letters: events that were set aside so that their target could go on.
 *
 * INVARIANT  A target is behind while one of its parked events is sent back, so whoever changes
 * that derives the target again (operate_functions.sql).
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/parked_sql.h"
#include "store/postgres/postgres_private.h"

/* ---- listing ------------------------------------------------------------------------------- */

static bool read_parked(const PGresult *result, int row, weir_arena *arena, store_parked *out)
{
    *out = (store_parked){ .id = weir__pg_i64(result, row, 0),
                           .reaction = weir__pg_i64(result, row, 1),
                           .event = weir__pg_i64(result, row, 4),
                           .attempts = weir__pg_i64(result, row, 5),
                           .parked_us = weir__pg_i64(result, row, 6),
                           .sent_back = weir__pg_bool(result, row, 8) };
    return weir__pg_text_copy(arena, result, row, 2, &out->reaction_name) &&
           weir__pg_text_copy(arena, result, row, 3, &out->target) &&
           weir__pg_text_copy(arena, result, row, 7, &out->error);
}

weir_status weir__pg_parked(weir_store *base, const store_parked_query *q,
                            store_parked_chunk *chunk, weir_error *err)
{
    const size_t limit = weir__chunk_limit(q->limit, STORE_CHUNK_EVENTS_MAX);
    const char *sql = sql_parked_list;
    pg_params p = { 0 };
    PGresult *result = NULL;

    weir__arena_reset(&chunk->arena);
    chunk->parked = NULL;
    chunk->parked_count = 0;
    chunk->more = false;
    weir__pg_add_i64(&p, q->after);
    weir__pg_add_i64(&p, (int64_t)limit + 1);
    if (q->target.len > 0) {
        sql = sql_parked_by_target;
        weir__pg_add_text(&p, q->target);
        weir__pg_add_text(&p, q->reaction);
    } else if (q->reaction.len > 0) {
        sql = sql_parked_by_reaction;
        weir__pg_add_text(&p, q->reaction);
    }
    weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql, .params = &p, .repeat = PG_REPEAT }, &result, err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return status;
    }
    const size_t rows = (size_t)pq.PQntuples(result);
    const size_t count = rows < limit ? rows : limit;
    store_parked *list = weir__arena_alloc(&chunk->arena, (count + 1) * sizeof *list);
    bool ok = list != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        ok = read_parked(result, (int)i, &chunk->arena, &list[i]);
    }
    pq.PQclear(result);
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu parked events", count);
    }
    chunk->parked = list;
    chunk->parked_count = count;
    chunk->more = rows > count;
    return WEIR_OK;
}

/* ---- sending back, dropping ---------------------------------------------------------------- */

weir_status weir__pg_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                   weir_error *err)
{
    pg_store *s = pg_of(base);
    const bool retry = action == STORE_PARKED_RETRY;
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&p, parked);
    /* Not repeated when the answer is lost: a worker may have handled and removed it meanwhile. */
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = retry ? sql_parked_retry : sql_parked_drop, .params = &p }, &result,
        err);
    pq.PQclear(result);
    weir__pg_params_free(&p);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
    }
    if (status == WEIR_OK && retry) {
        weir__pg_wake(s);
    } else if (status == WEIR_EMISUSE) {
        weir__error_detail(err, "Its reaction could not say which target it is for. Reset the "
                                "reaction's targets once it can, and drop this one.");
    }
    return status;
}
