/* streams.c - what is known about streams, page by page in the order of their names; owners of
 * keys.
 *
 * A pattern or a category says where to begin; the rest is decided name by name. Names compare
 * bytewise in C and in SQL alike.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/streams_sql.h"
#include "store/refusal.h"

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for stream information");
}

static bool row_to_info(const PGresult *result, int row, weir_arena *arena, store_stream_info *out)
{
    *out = (store_stream_info){
        .version = weir__pg_i64(result, row, 1),
        .id = weir__pg_i64(result, row, 2),
        .created_us = weir__pg_time_us(result, row, 3),
        .updated_us = weir__pg_time_us(result, row, 4),
        .closed = weir__pg_bool(result, row, 5),
    };
    return weir__pg_text_copy(arena, result, row, 0, &out->stream);
}

/* Runs a query by one text. */
static weir_status look_up(pg_store *s, const char *sql, weir_str text, PGresult **result,
                           weir_error *err)
{
    pg_params p = { 0 };
    weir__pg_add_text(&p, text);
    const weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql, .params = &p, .repeat = PG_REPEAT }, result, err);
    weir__pg_params_free(&p);
    return status;
}

weir_status weir__pg_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                 store_stream_info *out, weir_error *err)
{
    PGresult *result = NULL;
    store_stream_info info;
    weir_status status = look_up(pg_of(base), sql_stream_info, stream, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (pq.PQntuples(result) == 0) {
        status = weir__stream_unknown(stream, err);
    } else if (!row_to_info(result, 0, arena, &info)) {
        status = no_memory(err);
    } else {
        *out = info;
    }
    pq.PQclear(result);
    return status;
}

/* ---- pages -------------------------------------------------------------------------------- */

/* What every name that is wanted begins with: the longer of two that agree. false: nothing can
 * begin with both. */
static bool common_prefix(const store_streams_query *q, weir_str *out)
{
    weir_str prefix = { .ptr = "", .len = 0 };
    if (q->pattern != NULL &&
        (q->pattern->kind == PATTERN_EXACT || q->pattern->kind == PATTERN_PREFIX)) {
        prefix = q->pattern->name;
    }
    if (q->category.len > 0 && !weir__str_starts_with(prefix, q->category)) {
        if (!weir__str_starts_with(q->category, prefix)) {
            return false;
        }
        prefix = q->category;
    }
    *out = prefix;
    return true;
}

/* Takes in the names that begin with the prefix, until there are `max` streams or enough names were
 * looked at. */
static weir_status fill_page(const PGresult *result, const store_streams_query *q, weir_str prefix,
                             size_t max, store_streams_chunk *chunk, weir_error *err)
{
    for (int i = 0; i < pq.PQntuples(result); i++) {
        const weir_str name = weir__pg_text(result, i, 0);
        if (!weir__str_starts_with(name, prefix)) {
            return WEIR_OK; /* they stand together, and begin with the first name that was asked */
        }
        if (i == STORE_CHUNK_NAMES_MAX || chunk->streams_count == max) {
            chunk->more = true;
            return WEIR_OK;
        }
        store_stream_info *slot = &chunk->streams[chunk->streams_count];
        if (weir__stream_wanted(q, name, weir__pg_bool(result, i, 5))) {
            if (!row_to_info(result, i, &chunk->arena, slot)) {
                return no_memory(err);
            }
            chunk->scanned_to = slot->stream;
            chunk->streams_count++;
        } else if (!weir__pg_text_copy(&chunk->arena, result, i, 0, &chunk->scanned_to)) {
            return no_memory(err);
        }
    }
    return WEIR_OK;
}

weir_status weir__pg_streams(weir_store *base, const store_streams_query *q,
                             store_streams_chunk *chunk, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir_str prefix = { 0 };
    const size_t max = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX);
    const bool all = q->pattern == NULL && q->category.len == 0 && q->closed == 0;
    const bool possible = common_prefix(q, &prefix);
    weir_status status = WEIR_OK;

    if (possible) {
        weir__pg_add_text(&p, q->after);
        weir__pg_add_text(&p, prefix);
        weir__pg_add_i64(&p, (int64_t)(all ? max : STORE_CHUNK_NAMES_MAX) + 1);
        status = weir__pg_call(
            pg_of(base), &(pg_call){ .sql = sql_streams_page, .params = &p, .repeat = PG_REPEAT },
            &result, err);
    }
    if (status == WEIR_OK) {
        weir__arena_reset(&chunk->arena);
        chunk->streams_count = 0;
        chunk->more = false;
        chunk->streams = weir__arena_alloc(&chunk->arena, max * sizeof *chunk->streams);
        chunk->scanned_to.ptr =
            weir__arena_copy(&chunk->arena, q->after.len == 0 ? "" : q->after.ptr, q->after.len);
        chunk->scanned_to.len = q->after.len;
        if (chunk->streams == NULL || chunk->scanned_to.ptr == NULL) {
            status = no_memory(err);
        } else if (possible) {
            status = fill_page(result, q, prefix, max, chunk, err);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}
