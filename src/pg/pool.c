/* pool.c - the connections of one handle, and calls that take one for a single statement.
 *
 * INVARIANTS
 *   (1) There are never more connections than the pool is wide; the listening one is not of them.
 *   (2) A connection belongs to one thread from take to give.
 *   (3) The mutex is never held while anything is sent, received or connected.
 *   (4) What is given back is idle and in no transaction, or closed.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "pg/pg.h"

#include <string.h>

struct pg_pool {
    pg_database *database; /* borrowed */
    size_t size;           /* immutable */
    weir_mutex mu;
    weir_cond free;      /* somebody gave one back */
    weir_cond connected; /* ... that is connected */
    pg_conn *conns;      /* owned array; `taken` of each is guarded by mu */
    size_t waiting;      /* guarded by mu: for `free` */
    size_t resting;      /* guarded by mu: for `connected` */
    uint64_t distrusted; /* guarded by mu: connections up to this serial are not used again */
};

weir_status weir__pg_pool_open(pg_pool **out, pg_database *db, int64_t most, weir_error *err)
{
    pg_pool *pool = weir__calloc(1, sizeof *pool);
    const size_t size = most == 0 ? PG_POOL_MAX_DEFAULT : (size_t)most;
    if (pool != NULL) {
        pool->conns = weir__calloc(size, sizeof *pool->conns);
    }
    if (pool == NULL || pool->conns == NULL || !weir__mutex_init(&pool->mu)) {
        goto fail;
    }
    if (!weir__cond_init(&pool->free)) {
        weir__mutex_destroy(&pool->mu);
        goto fail;
    }
    if (!weir__cond_init(&pool->connected)) {
        weir__cond_destroy(&pool->free);
        weir__mutex_destroy(&pool->mu);
        goto fail;
    }
    pool->database = db;
    pool->size = size;
    for (size_t i = 0; i < size; i++) {
        pool->conns[i].database = db;
        pool->conns[i].pool = pool;
    }
    *out = pool;
    return WEIR_OK;
fail:
    if (pool != NULL) {
        weir__free(pool->conns);
    }
    weir__free(pool);
    return weir__fail(err, WEIR_ENOMEM, "could not allocate the connection pool");
}

void weir__pg_pool_close(pg_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (size_t i = 0; i < pool->size; i++) {
        WEIR_ASSERT(!pool->conns[i].taken);
        weir__pg_disconnect(&pool->conns[i]);
    }
    weir__cond_destroy(&pool->connected);
    weir__cond_destroy(&pool->free);
    weir__mutex_destroy(&pool->mu);
    weir__free(pool->conns);
    weir__free(pool);
}

/* The first free one that is connected, else the first free one: few connections do the work of
 * many threads, and the others stay closed. */
static pg_conn *conn_pick_locked(pg_pool *pool) WEIR_REQUIRES(pool->mu)
{
    pg_conn *found = NULL;
    for (size_t i = 0; i < pool->size; i++) {
        pg_conn *conn = &pool->conns[i];
        if (conn->taken) {
            continue;
        }
        if (conn->raw != NULL) {
            return conn;
        }
        found = found == NULL ? conn : found;
    }
    return found;
}

/* Waits for a connection to become free. */
static pg_conn *conn_await_locked(pg_pool *pool, int64_t deadline_us) WEIR_REQUIRES(pool->mu)
{
    pg_conn *conn = conn_pick_locked(pool);
    bool in_time = true;
    while (conn == NULL && in_time) {
        pool->waiting++;
        in_time = weir__cond_wait_until(&pool->free, &pool->mu, deadline_us);
        pool->waiting--;
        conn = conn_pick_locked(pool);
    }
    return conn;
}

/* The server could not be reached: waits a little, and for less when a connection is given back
 * that works. It may be one of the few that the server grants us. */
static void pool_rest(pg_pool *pool, int64_t until_us)
{
    weir__lock(&pool->mu);
    pool->resting++;
    (void)weir__cond_wait_until(&pool->connected, &pool->mu, until_us);
    pool->resting--;
    weir__unlock(&pool->mu);
}

/* The server is there and has no room for one more connection (53300): those that we have work. */
static bool is_crowded(const weir_error *err)
{
    return strncmp(err->store_code, "53", 2) == 0;
}

/* May have died while nobody used it: running a statement on it tells. */
static weir_status conn_take(pg_pool *pool, int64_t deadline_us, pg_conn **out, weir_error *err)
{
    pg_database *db = pool->database;
    const int64_t deadline = deadline_us == 0 ? pg_mono_us() + db->busy_us : deadline_us;
    for (int attempt = 0;; attempt++) {
        weir__lock(&pool->mu);
        pg_conn *conn = conn_await_locked(pool, deadline);
        if (conn == NULL) {
            weir__unlock(&pool->mu);
            return weir__fail(err, WEIR_EBUSY,
                              "all %zu connections of this handle were in use for too long; add "
                              "pool=N to the store URL for more",
                              pool->size);
        }
        conn->taken = true;
        const bool distrusted = conn->serial <= pool->distrusted;
        weir__unlock(&pool->mu);
        if (distrusted) {
            weir__pg_disconnect(conn);
        }
        const weir_status status =
            conn->raw != NULL ? WEIR_OK : weir__pg_connect(db, conn, NULL, err);
        if (status == WEIR_OK) {
            *out = conn;
            return WEIR_OK;
        }
        const bool waiting_helps = weir__pg_waiting_helps(conn, status);
        weir__pg_give(conn);
        const int64_t pause_us = weir__pg_pause_us(attempt, deadline);
        if (!waiting_helps || pause_us == 0) {
            return status;
        }
        if (err != NULL && !is_crowded(err) && db->away_cb != NULL) {
            db->away_cb(err);
        }
        pool_rest(pool, pg_mono_us() + pause_us);
    }
}

weir_status weir__pg_pool_take(pg_pool *pool, int64_t deadline_us, pg_conn **out, weir_error *err)
{
    const int64_t deadline =
        deadline_us == 0 ? pg_mono_us() + pool->database->busy_us : deadline_us;
    for (;;) {
        pg_conn *conn = NULL;
        const weir_status status = conn_take(pool, deadline, &conn, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (weir__pg_still_there(conn)) {
            *out = conn;
            return WEIR_OK;
        }
        weir__pg_disconnect(conn);
        weir__pg_give(conn);
    }
}

pg_conn *weir__pg_pool_take_idle(pg_pool *pool)
{
    pg_conn *conn = NULL;
    weir__lock(&pool->mu);
    /* From the end: the first ones are taken again the soonest. */
    for (size_t i = pool->size; i > 0 && conn == NULL; i--) {
        pg_conn *idle = &pool->conns[i - 1];
        if (!idle->taken && idle->raw != NULL && idle->serial > pool->distrusted) {
            conn = idle;
            conn->taken = true;
        }
    }
    weir__unlock(&pool->mu);
    return conn;
}

void weir__pg_pool_distrust(pg_pool *pool)
{
    weir__lock(&pool->mu);
    pool->distrusted = atomic_load(&pool->database->connections);
    weir__unlock(&pool->mu);
}

void weir__pg_give(pg_conn *conn)
{
    pg_pool *pool = conn->pool;
    if (conn->raw != NULL && (pq.PQstatus(conn->raw) != CONNECTION_OK ||
                              pq.PQtransactionStatus(conn->raw) != PQTRANS_IDLE)) {
        /* Ending the session undoes whatever is open in it. */
        weir__pg_disconnect(conn);
    }
    weir__lock(&pool->mu);
    conn->taken = false;
    if (pool->waiting > 0) {
        weir__cond_signal(&pool->free);
    } else if (conn->raw != NULL && pool->resting > 0) {
        weir__cond_signal(&pool->connected);
    }
    weir__unlock(&pool->mu);
}

/* ---- single statements -------------------------------------------------------------------- */

typedef enum verdict { FINAL, AGAIN_AT_ONCE, AGAIN_LATER } verdict;

static bool sqlstate_is(const pg_conn *conn, const char *sqlstate)
{
    return strcmp(conn->sqlstate, sqlstate) == 0;
}

/* Whether a statement that failed may be tried again; *reconnect: not on this connection. */
static verdict call_judge(const pg_conn *conn, const pg_call *call, bool *reconnect)
{
    *reconnect = false;
    switch (conn->outcome) {
    case PG_NOT_SENT:
        return AGAIN_AT_ONCE;
    case PG_LOST:
        return call->repeat == PG_REPEAT ? AGAIN_LATER : FINAL;
    case PG_REFUSED:
        if (sqlstate_is(conn, "40P01") || sqlstate_is(conn, "40001")) {
            return AGAIN_AT_ONCE; /* undone by the server for the sake of others */
        }
        if (sqlstate_is(conn, "25006")) {
            *reconnect = true; /* a server that has become a standby: look for the primary */
            return AGAIN_LATER;
        }
        return FINAL;
    case PG_DONE:
        break;
    }
    return FINAL;
}

weir_status weir__pg_pool_call(pg_pool *pool, const pg_call *call, PGresult **result,
                               weir_error *err)
{
    const int64_t deadline = pg_mono_us() + pool->database->busy_us;
    for (int attempt = 0;; attempt++) {
        pg_conn *conn = NULL;
        bool reconnect = false;
        weir_status status = conn_take(pool, deadline, &conn, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (call->params != NULL && call->params->failed) {
            weir__pg_give(conn);
            return weir__fail(err, WEIR_ENOMEM, "could not allocate the parameters of a statement");
        }
        status = weir__pg_run(conn, call, result, err);
        if (status == WEIR_OK) {
            weir__pg_give(conn);
            return WEIR_OK;
        }
        const verdict end = call_judge(conn, call, &reconnect);
        const bool lost = conn->outcome == PG_LOST;
        if (reconnect) {
            weir__pg_disconnect(conn);
        }
        weir__pg_give(conn);
        const int64_t pause_us = weir__pg_pause_us(attempt, deadline);
        if (end == FINAL || pause_us == 0) {
            return lost && call->repeat == PG_REPEAT
                       ? weir__wrap(err, WEIR_EUNAVAILABLE, "gave up trying again")
                       : status;
        }
        weir__clock_pause(end == AGAIN_LATER || attempt > 0 ? pause_us : 0);
    }
}
