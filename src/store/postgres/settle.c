/* settle.c - the end of a lease: effects, positions and fence in one transaction; and the smaller
 * verbs that name a fence.
 *
 * INVARIANTS
 *   (1) Without SQL of the caller's a settle is one statement: it happened, or it did not, or its
 *       answer was lost. Nothing is repeated that may have happened.
 *   (2) With SQL of the caller's it is a transaction on one connection. Until COMMIT is sent
 *       nothing can have happened, so a connection that breaks before is EUNAVAILABLE, after it
 *       EUNKNOWN.
 *   (3) SQL that ends its transaction is found out: a setting that ends with the transaction is
 *       gone. What it committed cannot be taken back, but the settle does not count.
 *   (4) Results are written when everything has succeeded.
 *
 * What the fence means and what is locked when: settle_functions.sql.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/error_text.h"
#include "store/judge.h"
#include "store/postgres/settle_sql.h"
#include "store/postgres/targets.h"
#include "store/refusal.h"

#include <stdio.h>

/* ---- parameters ---------------------------------------------------------------------------- */

static void add_parks(pg_params *p, const store_settle *settle, weir_arena *arena)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < settle->parks_count; i++) {
        weir__pg_push_i64(p, settle->parks[i].reaction);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < settle->parks_count; i++) {
        weir__pg_push_i64(p, settle->parks[i].event);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < settle->parks_count; i++) {
        weir__pg_push_i64(p, settle->parks[i].attempts);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_TEXT_ARRAY);
    for (size_t i = 0; i < settle->parks_count; i++) {
        weir__pg_push_text(
            p, weir__error_text(arena, settle->parks[i].error, STORE_ERROR_TEXT_BYTES_MAX));
    }
    weir__pg_array_end(p);
}

/* The arguments of weir.settle. */
static void add_settle(pg_params *p, const store_settle *settle, weir_arena *arena)
{
    const store_failure *failure = &settle->failure;
    weir__pg_add_i64(p, settle->target);
    weir__pg_add_i64(p, settle->fence);
    weir__pg_add_i64(p, settle->token);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < settle->advances_count; i++) {
        weir__pg_push_i64(p, settle->advances[i].reaction);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < settle->advances_count; i++) {
        weir__pg_push_i64(p, settle->advances[i].to);
    }
    weir__pg_array_end(p);
    add_parks(p, settle, arena);
    weir__pg_add_i64_array(p, settle->parked_done, settle->parked_done_count);
    weir__pg_add_bool(p, weir__settle_fails(settle));
    weir__pg_add_i64(p, failure->reaction);
    weir__pg_add_i64(p, failure->event);
    weir__pg_add_text(p, weir__error_text(arena, failure->error, STORE_ERROR_TEXT_BYTES_MAX));
    weir__pg_add_i32(p, (int32_t)settle->end);
    weir__pg_add_i64(p, settle->lease_us);
    weir__pg_add_i64(p, settle->until_us);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* One settle on its way. */
typedef struct settling {
    pg_store *s;
    store_settle *settle;
    pg_params params;
    weir_arena arena;
} settling;

/* The columns of the last row that follow those of the effects. */
enum { COLUMN_END = 0, COLUMN_BEHIND = 1, COLUMN_SAME_TRANSACTION = 2 };

static int first_column(const store_settle *settle)
{
    return settle->appends_count > 0 ? 9 : 0;
}

static bool same_transaction(const PGresult *result, const store_settle *settle)
{
    return weir__pg_bool(result, pq.PQntuples(result) - 1,
                         first_column(settle) + COLUMN_SAME_TRANSACTION);
}

static weir_status take_answer(settling *x, const PGresult *result, weir_error *err)
{
    store_settle *settle = x->settle;
    const int column = first_column(settle), last = pq.PQntuples(result) - 1;
    pg_held held;
    bool ended = false;
    /* The rows of the effects: all of them succeeded. */
    weir_status status = settle->appends_count == 0
                             ? WEIR_OK
                             : weir__pg_append_results(result, last, settle->appends,
                                                       settle->appends_count, &held, &ended, err);
    if (status != WEIR_OK) {
        return status;
    }
    settle->lease_until_us = weir__pg_i64(result, last, column + COLUMN_END);
    settle->behind = weir__pg_bool(result, last, column + COLUMN_BEHIND);
    atomic_fetch_add(&x->s->transactions, 1);
    weir__pg_wake(x->s);
    return WEIR_OK;
}

/* What the function says in the detail of an error: which effect was refused and what it met. */
enum { REFUSED_APPEND, REFUSED_STREAM, REFUSED_PLACE, REFUSED_ACTUAL, REFUSED_NUMBERS };

static bool refusal_read(const weir_error *err, int64_t numbers[REFUSED_NUMBERS])
{
    const char *at = err->detail;
    for (size_t i = 0; i < REFUSED_NUMBERS; i++) {
        const size_t len = strcspn(at, "|");
        if (!weir__str_to_i64((weir_str){ .ptr = at, .len = len }, &numbers[i])) {
            return false;
        }
        at += len + (at[len] == '|' ? 1 : 0);
    }
    return strncmp(err->store_code, "WR", 2) == 0;
}

/* Gives the refusal of an effect the fields it has in an append of its own. Other failures stay as
 * they are. */
static weir_status tell_refusal(const store_settle *settle, weir_status status, weir_error *err)
{
    int64_t numbers[REFUSED_NUMBERS];
    char other[sizeof err->stream];
    if (!refusal_read(err, numbers) || numbers[REFUSED_APPEND] < 0 ||
        (uint64_t)numbers[REFUSED_APPEND] >= settle->appends_count) {
        return status;
    }
    (void)snprintf(other, sizeof other, "%s", err->stream);
    store_append *append = settle->appends[numbers[REFUSED_APPEND]];
    weir_error *own = append->err;
    weir_error told = { 0 };
    append->err = own == NULL ? &told : own;
    weir__pg_append_refused(append, status,
                            &(pg_refusal){ .stream_index = (int32_t)numbers[REFUSED_STREAM],
                                           .place = numbers[REFUSED_PLACE],
                                           .actual = numbers[REFUSED_ACTUAL],
                                           .other = weir__str(other) });
    *err = *append->err;
    append->err = own;
    return status;
}

/* ---- the caller's own SQL ------------------------------------------------------------------ */

/* Nothing was committed, so what broke did no harm. */
static weir_status not_committed(const pg_conn *conn, weir_status status, weir_error *err)
{
    return conn->outcome == PG_LOST
               ? weir__wrap(err, WEIR_EUNAVAILABLE, "nothing of the settle was committed")
               : status;
}

static weir_status sql_ended(weir_error *err)
{
    return weir__settle_sql_ended("The settle did not happen; what was committed remains.", err);
}

static weir_status run_sql(pg_conn *conn, const store_settle *settle, weir_error *err)
{
    if (pq.PQsetnonblocking(conn->raw, 0) != 0) {
        return weir__fail(err, WEIR_EIO, "could not hand over the connection");
    }
    weir_status status = settle->sql(settle->sql_ctx, conn->raw, err);
    if (pq.PQstatus(conn->raw) != CONNECTION_OK) {
        return weir__fail(err, WEIR_EUNAVAILABLE,
                          "the connection broke while the SQL of a settle ran");
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (pq.PQsetnonblocking(conn->raw, 1) != 0) {
        return weir__fail(err, WEIR_EUNAVAILABLE, "could not take the connection back");
    }
    switch (pq.PQtransactionStatus(conn->raw)) {
    case PQTRANS_INTRANS:
        return WEIR_OK;
    case PQTRANS_IDLE:
        return sql_ended(err);
    case PQTRANS_INERROR:
        status = weir__fail(err, WEIR_EMISUSE, "the SQL of a settle has failed and did not say so");
        weir__error_detail(err, "A statement was refused, so PostgreSQL will not commit what came "
                                "before it. Return the failure, or use a savepoint.");
        return status;
    case PQTRANS_ACTIVE:
    case PQTRANS_UNKNOWN:
        break;
    }
    return weir__fail(err, WEIR_EMISUSE, "the SQL of a settle has not read all of its results");
}

/* Effects may have to wait for their streams, and that comes on top: the server says that they are
 * held before we stop listening. 0: as always. */
static int64_t answer_us(const settling *x)
{
    const store_settle *settle = x->settle;
    return settle->appends_count == 0
               ? 0
               : x->s->answer_us + x->s->options.busy_us +
                     weir__pg_append_us(settle->appends, settle->appends_count);
}

static weir_status settle_in(settling *x, pg_conn *conn, const char *sql, PGresult **result,
                             weir_error *err)
{
    weir_status status = weir__pg_run_script(conn, sql_settle_begin, x->s->answer_us, err);
    if (status != WEIR_OK) {
        return not_committed(conn, status, err);
    }
    status = run_sql(conn, x->settle, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__pg_run_text(conn, sql, &x->params, answer_us(x), result, err);
    if (status != WEIR_OK) {
        return not_committed(conn, status, err);
    }
    if (!same_transaction(*result, x->settle)) {
        return sql_ended(err);
    }
    /* Its SQL may have set the path for the session, which is to have ours again; unless it is a
     * pooler's. */
    return weir__pg_run_script(conn,
                               conn->server.pooled ? sql_settle_commit_pooled : sql_settle_commit,
                               x->s->answer_us, err);
}

/* A connection of its own, which is closed when it is given back in a transaction. */
static weir_status settle_with_sql(settling *x, const char *sql, PGresult **result, weir_error *err)
{
    pg_conn *conn = NULL;
    weir_status status = weir__pg_take(x->s, 0, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = settle_in(x, conn, sql, result, err);
    if (status != WEIR_OK && conn->raw != NULL) {
        /* Whatever the caller's SQL left behind: an open transaction, unread results. */
        weir__pg_disconnect(conn);
    }
    weir__pg_give(conn);
    return status;
}

/* ---- settling ------------------------------------------------------------------------------ */

/* One attempt. The caller's SQL runs once, and has locked what it likes: there streams are waited
 * for in order, and what is met at the index is judged again. Else `held` alone is waited for. */
static weir_status settle_once(settling *x, int32_t options, const pg_held *held, int64_t wait_us,
                               PGresult **result, weir_error *err)
{
    store_settle *settle = x->settle;
    const bool effects = settle->appends_count > 0;
    const char *sql = effects ? sql_settle_with : sql_settle;
    weir__pg_params_reset(&x->params);
    weir__arena_reset(&x->arena);
    if (effects) {
        weir__pg_append_params(&x->params, x->s, settle->appends, settle->appends_count,
                               settle->sql == NULL ? options
                                                   : PG_APPEND_IN_ORDER | PG_APPEND_IN_TRANSACTION,
                               wait_us, held);
    }
    add_settle(&x->params, settle, &x->arena);
    return settle->sql != NULL
               ? settle_with_sql(x, sql, result, err)
               : weir__pg_call(
                     x->s,
                     &(pg_call){ .sql = sql, .params = &x->params, .answer_us = answer_us(x) },
                     result, err);
}

/* Whether a settle ended because somebody holds a name that it needs; which one. */
static bool met_somebody(const weir_error *err, pg_held *held)
{
    int64_t numbers[REFUSED_NUMBERS];
    const size_t len = strlen(err->stream);
    if (!refusal_read(err, numbers) || numbers[REFUSED_APPEND] != -1 || len > sizeof held->name) {
        return false;
    }
    *held = (pg_held){ .kind = (int32_t)numbers[REFUSED_PLACE], .len = len };
    memcpy(held->name, err->stream, len);
    return true;
}

/* Until nobody holds what it needs, or its time is up. Nothing is held while it waits. */
static weir_status settle_rounds(settling *x, PGresult **result, weir_error *err)
{
    enum { ATTEMPTS_MAX = 4 };
    const int64_t until_us = pg_mono_us() + x->s->options.busy_us;
    pg_held held = { .kind = PG_HELD_NOTHING };
    int attempts = 0;
    for (int round = 0;; round++) {
        const int64_t left_us = until_us - pg_mono_us();
        const weir_status status =
            settle_once(x, round < PG_APPEND_ROUNDS_MAX ? 0 : PG_APPEND_IN_ORDER, &held,
                        left_us < 1000 ? 1000 : left_us, result, err);
        if (x->settle->sql != NULL || x->settle->appends_count == 0) {
            return status;
        }
        if (status == WEIR_EBUSY && met_somebody(err, &held)) {
            if (left_us <= 0) {
                return weir__fail(err, status, "%s \"%.*s\" is held by another transaction",
                                  held.kind == PG_HELD_STREAM ? "stream" : "key", (int)held.len,
                                  held.name);
            }
        } else if (status != WEIR_EIO || strcmp(err->store_code, "23505") != 0 ||
                   ++attempts == ATTEMPTS_MAX) {
            return status; /* else somebody has written without holding the stream */
        }
    }
}

weir_status weir__pg_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    settling x = { .s = pg_of(base), .settle = settle };
    weir_error told = { 0 }; /* a refusal is read out of it, so there must be one */
    PGresult *result = NULL;

    weir_status status = settle_rounds(&x, &result, &told);
    status =
        status == WEIR_OK ? take_answer(&x, result, &told) : tell_refusal(settle, status, &told);
    if (status != WEIR_OK && told.code == WEIR_OK) {
        (void)weir__fail(&told, status, "the SQL of a settle has failed");
    }
    if (status != WEIR_OK && err != NULL) {
        *err = told;
    }
    pq.PQclear(result);
    weir__pg_params_free(&x.params);
    weir__arena_free(&x.arena);
    return status;
}

/* ---- extend, release ----------------------------------------------------------------------- */

/* Extending twice is extending, so that is repeated when its answer is lost; a second release would
 * say that the lease was not ours. */
weir_status weir__pg_extend(weir_store *base, int64_t lease_us, store_fenced *items, size_t count,
                            weir_error *err)
{
    pg_store *s = pg_of(base);
    const bool release = lease_us == 0;
    pg_params p = { 0 };
    PGresult *result = NULL;
    if (count == 0) {
        return WEIR_OK;
    }
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(&p, items[i].target);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(&p, items[i].fence);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(&p, items[i].token);
    }
    weir__pg_array_end(&p);
    weir__pg_add_i64(&p, release ? -1 : lease_us);
    weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_fenced, .params = &p, .repeat = release ? PG_ONCE : PG_REPEAT },
        &result, err);
    if (status == WEIR_OK && pq.PQntuples(result) != (int)count) {
        status = weir__fail(err, WEIR_ECORRUPT, "PostgreSQL gave %d answers for %zu leases",
                            pq.PQntuples(result), count);
    }
    for (int i = 0; status == WEIR_OK && i < (int)count; i++) {
        items[i].status = (weir_status)weir__pg_i32(result, i, 0);
        if (items[i].status == WEIR_OK && !release) {
            items[i].until_us = weir__pg_i64(result, i, 1);
        }
    }
    pq.PQclear(result);
    weir__pg_params_free(&p);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
    }
    if (status == WEIR_OK && release) {
        weir__pg_wake(s);
    }
    return status;
}
