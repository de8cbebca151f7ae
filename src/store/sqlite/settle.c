/* settle.c - the end of a lease: effects, positions and fence in one transaction; and the smaller
 * verbs that name a fence.
 *
 * INVARIANTS
 *   (1) Nothing is written for a target unless the fence given is the one in its row and somebody
 *       holds it. The clock has no say: an expired lease that nobody took is still held.
 *   (2) The caller's own SQL cannot end the transaction it runs in: while it runs, every commit is
 *       turned into a rollback, and the settle is refused.
 *   (3) `held` is 1 exactly while the target is blocked or paused.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/sqlite/settle_sql.h"
#include "store/sqlite/targets.h"

/* ---- shared with the operator's verbs ------------------------------------------------------ */

static weir_status write_parked(sqlite_conn *conn, const char *sql, int64_t target,
                                const store_park *park, int64_t now_us, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, park->reaction);
    sqlite3_bind_int64(stmt, 2, target);
    sqlite3_bind_int64(stmt, 3, park->event);
    sqlite3_bind_int64(stmt, 4, park->attempts);
    sqlite3_bind_int64(stmt, 5, now_us);
    weir__sqlite_bind_str(stmt, 6, weir__sqlite_error_text(park->error));
    return weir__sqlite_run(conn, stmt, err);
}

weir_status weir__sqlite_park(sqlite_conn *conn, int64_t target, const store_park *park,
                              int64_t now_us, weir_error *err)
{
    weir_status status = write_parked(conn, sql_park_again, target, park, now_us, err);
    /* Not an upsert: that would use up an id for every event that is parked again. */
    if (status == WEIR_OK && sqlite3_changes(conn->db) == 0) {
        status = write_parked(conn, sql_park, target, park, now_us, err);
    }
    return status;
}

weir_status weir__sqlite_clear(sqlite_conn *conn, int64_t target, bool take, weir_error *err)
{
    weir_status status = weir__sqlite_run_ints(conn, sql_clear_target, &target, 1, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_clear_retries, &target, 1, err);
    }
    if (status == WEIR_OK && take) {
        status = weir__sqlite_run_ints(conn, sql_clear_lease, &target, 1, err);
    }
    return status;
}

/* ---- fences -------------------------------------------------------------------------------- */

/* WEIR_OK: the lease with that fence is held. ELOST, ENOTFOUND. */
static weir_status check_fence(sqlite_conn *conn, int64_t target, int64_t fence, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_fenced_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no target with id %lld", (long long)target);
    } else if (status == WEIR_OK && sqlite3_column_int64(stmt, 0) != fence) {
        status = weir__fail(err, WEIR_ELOST, "the lease is lost: fence %lld, the target is at %lld",
                            (long long)fence, (long long)sqlite3_column_int64(stmt, 0));
    } else if (status == WEIR_OK && sqlite3_column_int(stmt, 1) == 0) {
        status = weir__fail(err, WEIR_ELOST, "the lease is lost: nobody holds fence %lld",
                            (long long)fence);
    }
    weir__sqlite_done(stmt);
    return status;
}

/* ---- the caller's own SQL ------------------------------------------------------------------ */

static int refuse_commit(void *ctx)
{
    *(bool *)ctx = true;
    return 1; /* SQLite rolls back instead */
}

static void note_rollback(void *ctx)
{
    *(bool *)ctx = true;
}

static weir_status run_sql(sqlite_conn *conn, const store_settle *settle, weir_error *err)
{
    bool ended = false;
    if (settle->sql == NULL) {
        return WEIR_OK;
    }
    sqlite3_commit_hook(conn->db, refuse_commit, &ended);
    sqlite3_rollback_hook(conn->db, note_rollback, &ended);
    weir_status status = settle->sql(settle->sql_ctx, conn->db, err);
    sqlite3_commit_hook(conn->db, NULL, NULL);
    sqlite3_rollback_hook(conn->db, NULL, NULL);
    if (status == WEIR_OK && (ended || sqlite3_get_autocommit(conn->db) != 0)) {
        status = weir__fail(err, WEIR_EMISUSE, "the SQL of a settle has ended its transaction");
        weir__error_detail(err,
                           "It runs inside a transaction of the store's and must not commit or "
                           "roll back; nothing of it remains.");
    }
    return status;
}

/* ---- settling ------------------------------------------------------------------------------ */

/* Each append must succeed. One at a time: the first refusal is the answer. */
static weir_status run_appends(sqlite_store *s, sqlite_conn *conn, int64_t now_us,
                               const store_settle *settle, weir_error *err)
{
    for (size_t i = 0; i < settle->appends_count; i++) {
        store_append *append = settle->appends[i];
        weir_error *own = append->err;
        if (own == NULL) {
            append->err = err;
        }
        weir_status status = weir__sqlite_append_in(s, conn, now_us, &append, 1, err);
        if (status == WEIR_OK && append->status != WEIR_OK) {
            status = append->status;
            if (own != NULL && err != NULL && own != err) {
                *err = *own;
            }
        }
        append->err = own;
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

static weir_status no_subscription(int64_t target, int64_t reaction, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "target %lld has no subscription of reaction %lld",
                      (long long)target, (long long)reaction);
}

/* *at: where a subscription is. ENOTFOUND. */
static weir_status find_subscription(sqlite_conn *conn, int64_t target, int64_t reaction,
                                     int64_t *at, weir_error *err)
{
    bool found = false;
    const weir_status status = weir__sqlite_get_int(
        conn, sql_settle_subscription, (int64_t[]){ target, reaction }, 2, &found, at, err);
    return status == WEIR_OK && !found ? no_subscription(target, reaction, err) : status;
}

static weir_status advance(sqlite_conn *conn, int64_t target, const store_advance *advance,
                           bool *advanced, weir_error *err)
{
    int64_t at = 0;
    weir_status status = find_subscription(conn, target, advance->reaction, &at, err);
    if (status != WEIR_OK || advance->to <= at) {
        return status;
    }
    *advanced = true;
    const int64_t values[] = { target, advance->reaction, advance->to };
    status = weir__sqlite_run_ints(conn, sql_settle_advance, values, 3, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_settle_work_done, values, 3, err);
    }
    return status;
}

/* Keeps a failure on the target. A reaction that failed has one retry less. */
static weir_status fail_target(sqlite_conn *conn, int64_t target, const store_failure *failure,
                               weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t attempts = 0;
    bool found = false;
    weir_status status = WEIR_OK;
    if (failure->reaction != 0) {
        status =
            weir__sqlite_get_int(conn, sql_settle_retry, (int64_t[]){ target, failure->reaction },
                                 2, &found, &attempts, err);
        if (status == WEIR_OK && !found) {
            status = no_subscription(target, failure->reaction, err);
        }
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_settle_failed, &stmt, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    weir__sqlite_bind_str(stmt, 2, weir__sqlite_error_text(failure->error));
    sqlite3_bind_int64(stmt, 3, failure->event);
    sqlite3_bind_int64(stmt, 4, failure->reaction);
    sqlite3_bind_int64(stmt, 5, attempts);
    return weir__sqlite_run(conn, stmt, err);
}

static weir_status end_lease(sqlite_conn *conn, const store_settle *settle, int64_t now_us,
                             weir_error *err)
{
    switch (settle->end) {
    case STORE_END_RELEASE:
        return weir__sqlite_run_ints(conn, sql_end_release, &settle->target, 1, err);
    case STORE_END_KEEP:
        return weir__sqlite_run_ints(
            conn, sql_end_keep,
            (int64_t[]){ settle->target, weir__sqlite_later(now_us, settle->lease_us) }, 2, err);
    case STORE_END_DEFER:
        return weir__sqlite_run_ints(conn, sql_end_defer,
                                     (int64_t[]){ settle->target, settle->until_us }, 2, err);
    case STORE_END_BLOCK:
        return weir__sqlite_run_ints(conn, sql_end_block, (int64_t[]){ settle->target, now_us }, 2,
                                     err);
    }
    return weir__fail(err, WEIR_EINVAL, "unknown end of a lease: %d", (int)settle->end);
}

/* What a settle changes besides its appends. */
static weir_status settle_target(sqlite_conn *conn, const store_settle *settle, int64_t now_us,
                                 bool *behind, weir_error *err)
{
    const bool failed = settle->failure.reaction != 0 || settle->end == STORE_END_BLOCK;
    bool advanced = false;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < settle->advances_count && status == WEIR_OK; i++) {
        status = advance(conn, settle->target, &settle->advances[i], &advanced, err);
    }
    if (status == WEIR_OK && advanced) {
        status = weir__sqlite_run_ints(conn, sql_settle_not_lost, &settle->target, 1, err);
    }
    if (status == WEIR_OK && advanced && !failed) {
        status = weir__sqlite_run_ints(conn, sql_settle_no_error, &settle->target, 1, err);
    }
    for (size_t i = 0; i < settle->parks_count && status == WEIR_OK; i++) {
        int64_t at = 0;
        status = find_subscription(conn, settle->target, settle->parks[i].reaction, &at, err);
        if (status == WEIR_OK) {
            status = weir__sqlite_park(conn, settle->target, &settle->parks[i], now_us, err);
        }
    }
    for (size_t i = 0; i < settle->parked_done_count && status == WEIR_OK; i++) {
        status =
            weir__sqlite_run_ints(conn, sql_settle_parked_done,
                                  (int64_t[]){ settle->parked_done[i], settle->target }, 2, err);
    }
    if (status == WEIR_OK && failed) {
        status = fail_target(conn, settle->target, &settle->failure, err);
    }
    if (status == WEIR_OK) {
        status = end_lease(conn, settle, now_us, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_derive(conn, settle->target, behind, err);
    }
    if (status == WEIR_OK && *behind) {
        int64_t paused = 0;
        bool found = false;
        status =
            weir__sqlite_get_int(conn, sql_settle_paused, &settle->target, 1, &found, &paused, err);
        *behind = paused == 0;
    }
    return status;
}

weir_status weir__sqlite_settle_plain(sqlite_conn *conn, const store_settle *settle, int64_t now_us,
                                      bool *behind, weir_error *err)
{
    int64_t at = 0;
    WEIR_ASSERT(settle->sql == NULL && settle->appends_count == 0 && settle->parks_count == 0 &&
                settle->parked_done_count == 0 && settle->failure.reaction == 0 &&
                settle->end == STORE_END_RELEASE);
    weir_status status = check_fence(conn, settle->target, settle->fence, err);
    for (size_t i = 0; i < settle->advances_count && status == WEIR_OK; i++) {
        status = find_subscription(conn, settle->target, settle->advances[i].reaction, &at, err);
    }
    return status == WEIR_OK ? settle_target(conn, settle, now_us, behind, err) : status;
}

weir_status weir__sqlite_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    bool behind = false;

    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = run_sql(conn, settle, err);
    if (status == WEIR_OK) {
        status = check_fence(conn, settle->target, settle->fence, err);
    }
    if (status == WEIR_OK) {
        status = run_appends(s, conn, now_us, settle, err);
    }
    if (status == WEIR_OK) {
        status = settle_target(conn, settle, now_us, &behind, err);
    }
    status = weir__sqlite_write_end(s, status, true, err);
    if (status == WEIR_OK) {
        settle->behind = behind;
        settle->lease_until_us =
            settle->end == STORE_END_KEEP ? weir__sqlite_later(now_us, settle->lease_us) : 0;
    }
    return status;
}

/* ---- extend, release, block, defer --------------------------------------------------------- */

/* Every item's own answer, written when the transaction has ended well. lease_us < 0: release. */
static weir_status fenced(weir_store *base, int64_t lease_us, store_fenced *items, size_t count,
                          weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    store_fenced *results = NULL;
    int64_t now_us = 0;
    const bool release = lease_us < 0;

    if (count == 0) {
        return WEIR_OK;
    }
    results = weir__calloc(count, sizeof *results);
    if (results == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu answers", count);
    }
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        goto out;
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        results[i] = items[i];
        status = check_fence(conn, items[i].target, items[i].fence, err);
        results[i].status = status;
        if (status == WEIR_ELOST || status == WEIR_ENOTFOUND) {
            status = WEIR_OK;
        } else if (status == WEIR_OK && release) {
            status = weir__sqlite_run_ints(conn, sql_end_release, &items[i].target, 1, err);
        } else if (status == WEIR_OK) {
            results[i].until_us = weir__sqlite_later(now_us, lease_us);
            status = weir__sqlite_run_ints(
                conn, sql_end_keep, (int64_t[]){ items[i].target, results[i].until_us }, 2, err);
        }
    }
    status = weir__sqlite_write_end(s, status, release, err);
    if (status == WEIR_OK) {
        for (size_t i = 0; i < count; i++) {
            items[i] = results[i];
        }
    }
out:
    weir__free(results);
    return status;
}

weir_status weir__sqlite_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err)
{
    return fenced(base, lease_us < 0 ? 0 : lease_us, items, count, err);
}

weir_status weir__sqlite_release(weir_store *base, store_fenced *items, size_t count,
                                 weir_error *err)
{
    return fenced(base, -1, items, count, err);
}

weir_status weir__sqlite_block(weir_store *base, int64_t target, int64_t fence,
                               const store_failure *why, weir_error *err)
{
    store_settle settle = {
        .target = target, .fence = fence, .failure = *why, .end = STORE_END_BLOCK
    };
    return weir__sqlite_settle(base, &settle, err);
}

weir_status weir__sqlite_defer(weir_store *base, int64_t target, int64_t fence, int64_t until_us,
                               weir_error *err)
{
    store_settle settle = {
        .target = target, .fence = fence, .end = STORE_END_DEFER, .until_us = until_us
    };
    return weir__sqlite_settle(base, &settle, err);
}
