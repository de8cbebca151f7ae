/* snapshot.c - folded states of streams: one per stream, kept by its name. */
#include "base/error.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/snapshot_sql.h"
#include "store/refusal.h"

weir_status weir__pg_snapshot_put(weir_store *base, const store_snapshot *snapshot, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, snapshot->stream);
    weir__pg_add_i64(&p, snapshot->version);
    weir__pg_add_text(&p, snapshot->revision);
    weir__pg_add_bytes(&p, snapshot->data.ptr, snapshot->data.len);
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_snapshot_put, .params = &p, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

/* The strings are the caller's, copied. */
static weir_status copy_found(const PGresult *result, weir_str stream, weir_str revision,
                              weir_arena *arena, store_snapshot *out, weir_error *err)
{
    store_snapshot found = {
        .stream = { weir__arena_copy(arena, stream.len == 0 ? "" : stream.ptr, stream.len),
                    stream.len },
        .revision = { weir__arena_copy(arena, revision.len == 0 ? "" : revision.ptr, revision.len),
                      revision.len },
        .version = weir__pg_i64(result, 0, 0),
    };
    if (!weir__pg_text_copy(arena, result, 0, 1, &found.data) || found.stream.ptr == NULL ||
        found.revision.ptr == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a snapshot");
    }
    *out = found;
    return WEIR_OK;
}

weir_status weir__pg_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                  int64_t at_most, weir_arena *arena, store_snapshot *out,
                                  weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, stream);
    weir__pg_add_text(&p, revision);
    weir__pg_add_i64(&p, at_most);
    weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_snapshot_get, .params = &p, .repeat = PG_REPEAT },
        &result, err);
    if (status == WEIR_OK && pq.PQntuples(result) == 0) {
        status = weir__snapshot_unknown(stream, err);
    } else if (status == WEIR_OK) {
        status = copy_found(result, stream, revision, arena, out, err);
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

weir_status weir__pg_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                   int64_t *dropped, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, category);
    weir__pg_add_text(&p, keep_revision);
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_snapshot_drop, .params = &p, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        if (dropped != NULL) {
            *dropped = weir__pg_i64(result, 0, 0);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}
