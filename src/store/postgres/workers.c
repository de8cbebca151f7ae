/* workers.c - who works on the store: one row for each process, written at every beat.
 *
 * INVARIANT  The rows are a hint: nothing is decided by them, and the commit of a beat does not
 * wait for the disk (worker_functions.sql).
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/workers_sql.h"

#include <string.h>

/* The columns of sql_workers. */
enum {
    WORKER_ID,
    WORKER_NAME,
    WORKER_HOST,
    WORKER_PID,
    WORKER_SINCE,
    WORKER_UNTIL,
    WORKER_DRAINING,
    WORKER_LANES_COUNT,
    WORKER_LANES,
    WORKER_KNOWN_COUNT,
    WORKER_REACTIONS,
    WORKER_NUMBERS,
    WORKER_HOLDS,
    WORKER_METRICS,
};

/* ---- beating ------------------------------------------------------------------------------- */

weir_status weir__pg_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                 weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;

    weir__pg_add_text(&p, worker->name);
    weir__pg_add_text(&p, worker->host);
    weir__pg_add_i64(&p, worker->pid);
    weir__pg_add_text_array(&p, worker->lanes, worker->lanes_count);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < worker->known_count; i++) {
        weir__pg_push_i64(&p, worker->known[i].reaction);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < worker->known_count; i++) {
        weir__pg_push_i64(&p, worker->known[i].number);
    }
    weir__pg_array_end(&p);
    weir__pg_add_bool(&p, worker->draining);
    weir__pg_add_i64(&p, lease_us);
    weir__pg_add_i64(&p, STORE_WORKER_KEPT_US);
    weir__pg_add_i64(&p, STORE_WORKERS_FORGOTTEN_MAX);
    weir__pg_add_text(&p, worker->metrics);
    /* A second time it says the same. */
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_worker_beat, .params = &p, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}

/* ---- listing ------------------------------------------------------------------------------- */

/* The next line of a text; *rest becomes what follows it. */
static weir_str next_line(weir_str *rest)
{
    const char *end = rest->len == 0 ? NULL : memchr(rest->ptr, '\n', rest->len);
    weir_str line = *rest;
    if (end == NULL) {
        rest->len = 0;
        return line;
    }
    line.len = (size_t)(end - rest->ptr);
    rest->ptr = end + 1;
    rest->len -= line.len + 1;
    return line;
}

static bool read_lanes(const PGresult *result, int row, weir_arena *arena, store_worker *out)
{
    const size_t count = (size_t)weir__pg_i32(result, row, WORKER_LANES_COUNT);
    weir_str rest;
    weir_str *lanes = weir__arena_alloc(arena, (count + 1) * sizeof *lanes);
    if (lanes == NULL || !weir__pg_text_copy(arena, result, row, WORKER_LANES, &rest)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        lanes[i] = next_line(&rest);
    }
    out->lanes = lanes;
    out->lanes_count = count;
    return true;
}

/* What cannot be read is left out: a row that is wrong must not hide the others. */
static bool read_known(const PGresult *result, int row, weir_arena *arena, store_worker *out)
{
    const size_t count = (size_t)weir__pg_i32(result, row, WORKER_KNOWN_COUNT);
    weir_str reactions = weir__pg_text(result, row, WORKER_REACTIONS);
    weir_str numbers = weir__pg_text(result, row, WORKER_NUMBERS);
    store_known_reaction *known = weir__arena_alloc(arena, (count + 1) * sizeof *known);
    if (known == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        store_known_reaction *k = &known[out->known_count];
        if (weir__str_to_i64(next_line(&reactions), &k->reaction) &&
            weir__str_to_i64(next_line(&numbers), &k->number)) {
            out->known_count++;
        }
    }
    out->known = known;
    return true;
}

static weir_status read_worker(const PGresult *result, int row, weir_arena *arena,
                               store_worker *out, weir_error *err)
{
    *out = (store_worker){ .id = weir__pg_i64(result, row, WORKER_ID),
                           .pid = weir__pg_i64(result, row, WORKER_PID),
                           .since_us = weir__pg_i64(result, row, WORKER_SINCE),
                           .until_us = weir__pg_i64(result, row, WORKER_UNTIL),
                           .draining = weir__pg_bool(result, row, WORKER_DRAINING),
                           .holds = weir__pg_i64(result, row, WORKER_HOLDS) };
    if (!weir__pg_text_copy(arena, result, row, WORKER_NAME, &out->name) ||
        !weir__pg_text_copy(arena, result, row, WORKER_HOST, &out->host) ||
        !weir__pg_text_copy(arena, result, row, WORKER_METRICS, &out->metrics) ||
        !read_lanes(result, row, arena, out) || !read_known(result, row, arena, out)) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a worker");
    }
    return WEIR_OK;
}

weir_status weir__pg_workers(weir_store *base, store_worker_list *list, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;

    weir__arena_reset(&list->arena);
    list->workers = NULL;
    list->workers_count = 0;
    weir__pg_add_i64(&p, STORE_WORKER_KEPT_US);
    weir__pg_add_bool(&p, list->count_holds);
    weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_workers, .params = &p, .repeat = PG_REPEAT }, &result,
        err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return status;
    }
    const int rows = pq.PQntuples(result);
    store_worker *workers = weir__arena_alloc(&list->arena, ((size_t)rows + 1) * sizeof *workers);
    if (workers == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the list of workers");
    }
    for (int row = 0; row < rows && status == WEIR_OK; row++) {
        status = read_worker(result, row, &list->arena, &workers[row], err);
    }
    if (status == WEIR_OK) {
        list->workers = workers;
        list->workers_count = (size_t)rows;
    }
    pq.PQclear(result);
    return status;
}
