/* locks.c - named locks and keys of once: one call of one function each (locks_functions.sql).
 *
 * INVARIANT  A call that hands out something is not repeated when its answer is lost: the caller
 * does not know whether it has the lock, and a lease that nobody knows of ends by itself. Extending
 * and finishing can be repeated, and are.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/locks_sql.h"
#include "store/postgres/postgres_private.h"

/* The columns of sql_lock_take; sql_once_forget has the first of them. */
enum {
    TAKE_TAKEN,
    TAKE_HOLDER,
    TAKE_FENCE,
    TAKE_SINCE,
    TAKE_UNTIL,
    TAKE_STATE,
    TAKE_EXIT_STATUS,
    TAKE_ENDED,
    TAKE_OUTPUT,
    TAKE_TOKEN,
};

static weir_status fail_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not copy a lock");
}

/* Runs a call that writes; the parameters are freed. */
static weir_status call_writing(weir_store *base, const char *sql, pg_params *p, pg_repeat repeat,
                                PGresult **result, weir_error *err)
{
    pg_store *s = pg_of(base);
    const weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql, .params = p, .repeat = repeat }, result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
    }
    weir__pg_params_free(p);
    return status;
}

/* ---- taking --------------------------------------------------------------------------------- */

static weir_status read_run(const PGresult *result, weir_str name, weir_arena *arena,
                            store_lock *out, weir_error *err)
{
    store_lock lock = {
        .name = { weir__arena_copy(arena, name.ptr, name.len), name.len },
        .fence = weir__pg_i64(result, 0, TAKE_FENCE),
        .since_us = weir__pg_i64(result, 0, TAKE_SINCE),
        .until_us = weir__pg_i64(result, 0, TAKE_UNTIL),
    };
    if (lock.name.ptr == NULL || !weir__pg_text_copy(arena, result, 0, TAKE_HOLDER, &lock.holder)) {
        return fail_memory(err);
    }
    *out = lock;
    return WEIR_OK;
}

static void take_params(pg_params *p, const store_lock_request *q)
{
    weir__pg_add_bool(p, q->kind == STORE_ONCE);
    weir__pg_add_text(p, q->name);
    weir__pg_add_text(p, q->holder);
    weir__pg_add_i64(p, q->lease_us);
}

/* *out is the caller's, or what weir__lock_taken answers about. The result is freed. */
static weir_status take_read(PGresult *result, const store_lock_request *q, weir_arena *arena,
                             store_lock *out, weir_error *err)
{
    store_lock found = { 0 };
    weir_status status = read_run(result, q->name, arena, &found, err);
    if (status == WEIR_OK && !weir__pg_text_copy(arena, result, 0, TAKE_OUTPUT, &found.output)) {
        status = fail_memory(err);
    }
    if (status == WEIR_OK) {
        found.state = (store_once_state)weir__pg_i32(result, 0, TAKE_STATE);
        found.exit_status = weir__pg_i64(result, 0, TAKE_EXIT_STATUS);
        found.ended_us = weir__pg_i64(result, 0, TAKE_ENDED);
        found.token = weir__pg_i64(result, 0, TAKE_TOKEN);
        *out = found;
        status =
            weir__pg_bool(result, 0, TAKE_TAKEN) ? WEIR_OK : weir__lock_taken(q->kind, out, err);
    }
    pq.PQclear(result);
    return status;
}

weir_status weir__pg_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                               store_lock *out, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    take_params(&p, q);
    const weir_status status = call_writing(base, sql_lock_take, &p, PG_ONCE, &result, err);
    return status == WEIR_OK ? take_read(result, q, arena, out, err) : status;
}

/* On a connection that is not the store's. The parameters are freed. */
static weir_status run_on(pg_conn *conn, const char *schema, const char *sql, pg_params *p,
                          PGresult **result, weir_error *err)
{
    weir_buffer text = { 0 };
    const pg_store named = { .schema = schema };
    const weir_status status =
        weir__pg_sql_add(&named, &text, sql) && weir__buffer_add(&text, "", 1)
            ? weir__pg_run_text(conn, text.ptr, p, PG_ANSWER_US_DEFAULT, result, err)
            : fail_memory(err);
    weir__buffer_free(&text);
    weir__pg_params_free(p);
    return status;
}

weir_status weir__postgres_lock_take(pg_conn *conn, const char *schema, weir_str name,
                                     weir_str holder, weir_arena *arena, store_lock *out,
                                     weir_error *err)
{
    const store_lock_request q = { .name = name, .holder = holder };
    pg_params p = { 0 };
    PGresult *result = NULL;
    take_params(&p, &q);
    weir_status status = run_on(conn, schema, sql_lock_take, &p, &result, err);
    if (status == WEIR_EHELD) { /* the row was locked for too long */
        status = weir__wrap(err, WEIR_EBUSY, "could not take a fence");
    }
    return status == WEIR_OK ? take_read(result, &q, arena, out, err) : status;
}

weir_status weir__postgres_lock_release(pg_conn *conn, const char *schema, weir_str name,
                                        int64_t fence, int64_t token, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, name);
    weir__pg_add_i64(&p, fence);
    weir__pg_add_i64(&p, token);
    const weir_status status = run_on(conn, schema, sql_lock_release, &p, &result, err);
    pq.PQclear(result);
    return status;
}

/* ---- holding, and letting go ---------------------------------------------------------------- */

/* A call that answers whether it was still held with that fence. */
static weir_status lock_change(weir_store *base, const char *sql, pg_params *p, pg_repeat repeat,
                               weir_str name, int64_t fence, weir_error *err)
{
    PGresult *result = NULL;
    weir_status status = call_writing(base, sql, p, repeat, &result, err);
    if (status == WEIR_OK && !weir__pg_bool(result, 0, 0)) {
        status = weir__lock_lost(name, fence, err);
    }
    pq.PQclear(result);
    return status;
}

weir_status weir__pg_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                 int64_t fence, int64_t token, int64_t lease_us, weir_error *err)
{
    pg_params p = { 0 };
    weir__pg_add_bool(&p, kind == STORE_ONCE);
    weir__pg_add_text(&p, name);
    weir__pg_add_i64(&p, fence);
    weir__pg_add_i64(&p, token);
    weir__pg_add_i64(&p, lease_us);
    return lock_change(base, sql_lock_extend, &p, PG_REPEAT, name, fence, err);
}

weir_status weir__pg_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                  weir_error *err)
{
    pg_params p = { 0 };
    weir__pg_add_text(&p, name);
    weir__pg_add_i64(&p, fence);
    weir__pg_add_i64(&p, token);
    return lock_change(base, sql_lock_release, &p, PG_ONCE, name, fence, err);
}

weir_status weir__pg_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                 int64_t exit_status, weir_str output, weir_error *err)
{
    pg_params p = { 0 };
    weir__pg_add_text(&p, key);
    weir__pg_add_i64(&p, fence);
    weir__pg_add_i64(&p, token);
    weir__pg_add_i64(&p, exit_status);
    weir__pg_add_bytes(&p, output.ptr, output.len);
    return lock_change(base, sql_once_finish, &p, PG_REPEAT, key, fence, err);
}

weir_status weir__pg_once_forget(weir_store *base, weir_str key, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, key);
    weir_status status = call_writing(base, sql_once_forget, &p, PG_ONCE, &result, err);
    if (status == WEIR_OK && pq.PQntuples(result) == 0) {
        status = weir__once_unknown(key, err);
    } else if (status == WEIR_OK && !weir__pg_bool(result, 0, TAKE_TAKEN)) {
        weir_arena arena = { 0 };
        store_lock other = { 0 };
        status = read_run(result, key, &arena, &other, err);
        if (status == WEIR_OK) {
            status = weir__once_running(&other, err);
        }
        weir__arena_free(&arena);
    }
    pq.PQclear(result);
    return status;
}

/* ---- listing -------------------------------------------------------------------------------- */

static bool read_lock(const PGresult *result, int row, weir_arena *arena, store_lock *out)
{
    *out = (store_lock){ .fence = weir__pg_i64(result, row, 2),
                         .since_us = weir__pg_i64(result, row, 3),
                         .until_us = weir__pg_i64(result, row, 4) };
    return weir__pg_text_copy(arena, result, row, 0, &out->name) &&
           weir__pg_text_copy(arena, result, row, 1, &out->holder);
}

weir_status weir__pg_locks(weir_store *base, store_lock_list *list, weir_error *err)
{
    PGresult *result = NULL;

    weir__arena_reset(&list->arena);
    list->locks = NULL;
    list->locks_count = 0;
    const weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_locks, .repeat = PG_REPEAT }, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int rows = pq.PQntuples(result);
    store_lock *locks = weir__arena_alloc(&list->arena, ((size_t)rows + 1) * sizeof *locks);
    bool ok = locks != NULL;
    for (int row = 0; row < rows && ok; row++) {
        ok = read_lock(result, row, &list->arena, &locks[row]);
    }
    pq.PQclear(result);
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the list of locks");
    }
    list->locks = locks;
    list->locks_count = (size_t)rows;
    return WEIR_OK;
}

static bool read_once(const PGresult *result, int row, weir_arena *arena, store_lock *out)
{
    const bool ok = read_lock(result, row, arena, out);
    out->state = (store_once_state)weir__pg_i32(result, row, 5);
    out->exit_status = weir__pg_i64(result, row, 6);
    out->ended_us = weir__pg_i64(result, row, 7);
    return ok;
}

weir_status weir__pg_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                               store_once_list *list, weir_error *err)
{
    const store_pattern_kind kind = match == NULL ? PATTERN_ALL : match->kind;
    pg_params p = { 0 };
    PGresult *result = NULL;

    weir__arena_reset(&list->arena);
    list->runs = NULL;
    list->runs_count = 0;
    weir__pg_add_text(&p, kind == PATTERN_PREFIX ? match->name : (weir_str){ 0 });
    if (kind == PATTERN_EXACT) {
        weir__pg_add_text(&p, match->name);
    } else {
        weir__pg_add_null(&p, PG_OID_TEXT);
    }
    if (kind == PATTERN_REGEX) {
        weir__pg_add_null(&p, PG_OID_INT8);
    } else {
        weir__pg_add_i64(&p, limit);
    }
    const weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_once_runs, .params = &p, .repeat = PG_REPEAT }, &result,
        err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return status;
    }
    const int rows = pq.PQntuples(result);
    store_lock *runs = weir__arena_alloc(&list->arena, ((size_t)rows + 1) * sizeof *runs);
    bool ok = runs != NULL;
    size_t count = 0;
    for (int row = 0; ok && row < rows && (int64_t)count < limit; row++) {
        if (kind != PATTERN_REGEX || weir__pattern_matches(match, weir__pg_text(result, row, 0))) {
            ok = read_once(result, row, &list->arena, &runs[count++]);
        }
    }
    pq.PQclear(result);
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the list of runs");
    }
    list->runs = runs;
    list->runs_count = count;
    return WEIR_OK;
}
