/* settle.c - the end of a lease: effects, positions and fence in one transaction; and the smaller
 * verbs that name a fence.
 *
 * INVARIANTS
 *   (1) Nothing is written for a target unless the fence given is the one in its row and somebody
 *       holds it, nor for a lease of another log (before a restore). The clock has no say:
 *       an expired lease that nobody took is still held.
 *   (2) The caller's own SQL cannot end the transaction it runs in: while it runs, every commit is
 *       turned into a rollback, and the settle is refused.
 *   (3) `held` is 1 exactly while the target is blocked or paused.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/error_text.h"
#include "store/judge.h"
#include "store/refusal.h"
#include "store/sqlite/settle_sql.h"
#include "store/sqlite/targets.h"

/* ---- shared with the operator's verbs ------------------------------------------------------ */

static weir_status write_parked(sqlite_conn *conn, const char *sql, int64_t target,
                                const store_park *park, int64_t now_us, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_i64(&cursor, 1, park->reaction);
    weir__cursor_bind_i64(&cursor, 2, target);
    weir__cursor_bind_i64(&cursor, 3, park->event);
    weir__cursor_bind_i64(&cursor, 4, park->attempts);
    weir__cursor_bind_i64(&cursor, 5, now_us);
    weir__cursor_bind_text(&cursor, 6, weir__error_text_cut(park->error));
    return weir__cursor_run(&cursor);
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

/* weir__fence_judge of a target that need not be known any further. ENOTFOUND. */
static weir_status check_fence(sqlite_conn *conn, const store_fenced *item, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_fenced_read, err);
    weir__cursor_bind_i64(&cursor, 1, item->target);
    if (weir__cursor_next(&cursor)) {
        weir__cursor_fail(&cursor,
                          weir__fence_judge(item, weir__cursor_i64(&cursor, 0),
                                            weir__cursor_bool(&cursor, 1), conn->row->token, err));
    } else if (cursor.status == WEIR_OK) {
        weir__cursor_fail(&cursor, weir__target_unknown(item->target, err));
    }
    return weir__cursor_end(&cursor);
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
    if (status != WEIR_OK && sqlite3_errcode(conn->db) == SQLITE_FULL) {
        status = weir__fail(err, WEIR_EUNAVAILABLE, "disk full while the SQL of a settle ran");
    }
    if (status == WEIR_OK && (ended || sqlite3_get_autocommit(conn->db) != 0)) {
        status = weir__settle_sql_ended("Nothing of it remains.", err);
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

/* NULL: none. */
static sqlite_subscription *find_subscription(sqlite_target *t, int64_t reaction)
{
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        if (t->subscriptions[i].reaction == reaction) {
            return &t->subscriptions[i];
        }
    }
    return NULL;
}

/* Whether all that is advanced and parked has a subscription: found before anything is written. */
static weir_status check_subscriptions(sqlite_target *t, const store_settle *settle,
                                       weir_error *err)
{
    for (size_t i = 0; i < settle->advances_count; i++) {
        if (find_subscription(t, settle->advances[i].reaction) == NULL) {
            return weir__subscription_unknown(t->id, settle->advances[i].reaction, err);
        }
    }
    for (size_t i = 0; i < settle->parks_count; i++) {
        if (find_subscription(t, settle->parks[i].reaction) == NULL) {
            return weir__subscription_unknown(t->id, settle->parks[i].reaction, err);
        }
    }
    return WEIR_OK;
}

/* Moves the subscriptions, here and in the store. *advanced becomes true when one has moved. */
static weir_status run_advances(sqlite_conn *conn, sqlite_target *t, const store_settle *settle,
                                bool *advanced, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < settle->advances_count && status == WEIR_OK; i++) {
        const store_advance *a = &settle->advances[i];
        sqlite_subscription *s = find_subscription(t, a->reaction);
        if (a->to <= s->at) {
            continue;
        }
        *advanced = true;
        s->at = a->to;
        s->mark = a->to > s->mark ? a->to : s->mark;
        const int64_t values[] = { t->id, a->reaction, a->to };
        status = weir__sqlite_run_ints(conn, sql_settle_advance, values, 3, err);
        if (status == WEIR_OK && t->has_work) {
            status = weir__sqlite_run_ints(conn, sql_settle_work_done, values, 3, err);
        }
    }
    return status;
}

/* Keeps a failure on the target. A reaction that failed has one retry less. */
static weir_status fail_target(sqlite_conn *conn, int64_t target, const store_failure *failure,
                               weir_error *err)
{
    int64_t attempts = 0;
    bool found = false;
    weir_status status = WEIR_OK;
    if (failure->reaction != 0) {
        status =
            weir__sqlite_get_int(conn, sql_settle_retry, (int64_t[]){ target, failure->reaction },
                                 2, &found, &attempts, err);
        if (status == WEIR_OK && !found) {
            status = weir__subscription_unknown(target, failure->reaction, err);
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_settle_failed, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    weir__cursor_bind_text(&cursor, 2, weir__error_text_cut(failure->error));
    weir__cursor_bind_i64(&cursor, 3, failure->event);
    weir__cursor_bind_i64(&cursor, 4, failure->reaction);
    weir__cursor_bind_i64(&cursor, 5, attempts);
    return weir__cursor_run(&cursor);
}

static weir_status end_lease(sqlite_conn *conn, const store_settle *settle, const sqlite_times *now,
                             weir_error *err)
{
    switch (settle->end) {
    case STORE_END_RELEASE:
        return weir__sqlite_run_ints(conn, sql_end_release, &settle->target, 1, err);
    case STORE_END_KEEP:
        return weir__sqlite_run_ints(
            conn, sql_end_keep,
            (int64_t[]){ settle->target, weir__time_later(now->machine_us, settle->lease_us) }, 2,
            err);
    case STORE_END_DEFER:
        return weir__sqlite_run_ints(conn, sql_end_defer,
                                     (int64_t[]){ settle->target, settle->until_us }, 2, err);
    case STORE_END_BLOCK:
        return weir__sqlite_run_ints(conn, sql_end_block,
                                     (int64_t[]){ settle->target, now->store_us }, 2, err);
    }
    return weir__fail(err, WEIR_EINVAL, "unknown end of a lease: %d", (int)settle->end);
}

static weir_status end_plainly(sqlite_conn *conn, const sqlite_target *t,
                               const store_settle *settle, const sqlite_times *now, bool advanced,
                               bool *behind, weir_error *err)
{
    const bool kept = settle->end == STORE_END_KEEP;
    const store_derived should = weir__sqlite_target_derived(t);
    const int64_t values[] = { t->id,
                               kept,
                               kept ? weir__time_later(now->machine_us, settle->lease_us) : 0,
                               advanced ? 0 : t->lost,
                               should.watermark,
                               should.behind,
                               should.watermark >> STORE_RANK_SHIFT,
                               should.priority };
    *behind = should.behind;
    return weir__sqlite_derived_moves(&t->is, &should)
               ? weir__sqlite_run_ints(conn, sql_settle_end_moved, values, 8, err)
               : weir__sqlite_run_ints(conn, sql_settle_end, values, 5, err);
}

/* The end of a settle that parks, fails, defers or blocks. */
static weir_status end_with_trouble(sqlite_conn *conn, const store_settle *settle,
                                    const sqlite_times *now, bool failed, bool *behind,
                                    weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < settle->parks_count && status == WEIR_OK; i++) {
        status = weir__sqlite_park(conn, settle->target, &settle->parks[i], now->store_us, err);
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
        status = end_lease(conn, settle, now, err);
    }
    return status == WEIR_OK ? weir__sqlite_derive(conn, settle->target, behind, err) : status;
}

/* What a settle changes besides its appends. */
static weir_status settle_target(sqlite_conn *conn, sqlite_target *t, const store_settle *settle,
                                 const sqlite_times *now, bool *behind, weir_error *err)
{
    const bool failed = weir__settle_fails(settle);
    const bool plain = weir__settle_is_plain(settle);
    bool advanced = false;
    weir_status status = run_advances(conn, t, settle, &advanced, err);
    if (status == WEIR_OK && advanced && t->lost != 0 && !plain) {
        status = weir__sqlite_run_ints(conn, sql_settle_not_lost, &t->id, 1, err);
    }
    if (status == WEIR_OK && advanced && t->failed && !failed) {
        status = weir__sqlite_run_ints(conn, sql_settle_no_error, &t->id, 1, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = plain ? end_plainly(conn, t, settle, now, advanced, behind, err)
                   : end_with_trouble(conn, settle, now, failed, behind, err);
    *behind = *behind && !t->paused;
    return status;
}

/* Loads the target of a settle and finds out whether it may be settled. ELOST, ENOTFOUND. */
static weir_status load_and_judge(sqlite_conn *conn, const store_settle *settle, sqlite_target *t,
                                  weir_error *err)
{
    const store_fenced held = { .fence = settle->fence, .token = settle->token };
    const weir_status status = weir__sqlite_target_load(conn, settle->target, t, err);
    return status == WEIR_OK ? weir__fence_judge(&held, t->fence, t->leased, conn->row->token, err)
                             : status;
}

weir_status weir__sqlite_settle_plain(sqlite_conn *conn, const store_settle *settle,
                                      const sqlite_times *now, bool *behind, weir_error *err)
{
    sqlite_target t;
    WEIR_ASSERT(settle->sql == NULL && settle->appends_count == 0 &&
                weir__settle_is_plain(settle) && settle->end == STORE_END_RELEASE);
    weir_status status = load_and_judge(conn, settle, &t, err);
    if (status == WEIR_OK) {
        status = check_subscriptions(&t, settle, err);
    }
    if (status == WEIR_OK) {
        status = settle_target(conn, &t, settle, now, behind, err);
    }
    weir__sqlite_target_free(&t);
    return status;
}

weir_status weir__sqlite_settle(weir_store *base, store_settle *settle, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_target t = { 0 };
    sqlite_times now = { 0 };
    bool behind = false;

    weir_status status = weir__sqlite_hold_begin(s, 0, &conn, &now, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = run_sql(conn, settle, err);
    if (status == WEIR_OK) {
        status = load_and_judge(conn, settle, &t, err);
    }
    if (status == WEIR_OK) {
        status = run_appends(s, conn, now.store_us, settle, err);
    }
    if (status == WEIR_OK) {
        status = check_subscriptions(&t, settle, err);
    }
    if (status == WEIR_OK) {
        status = settle_target(conn, &t, settle, &now, &behind, err);
    }
    weir__sqlite_target_free(&t);
    status = weir__sqlite_write_end(s, status, weir__settle_gives_work(settle, behind), err);
    if (status == WEIR_OK) {
        settle->behind = behind;
        settle->lease_until_us =
            settle->end == STORE_END_KEEP ? weir__time_later(now.store_us, settle->lease_us) : 0;
    }
    return status;
}

/* ---- extend, release ----------------------------------------------------------------------- */

/* Every item's own answer, written when the transaction has ended well. */
weir_status weir__sqlite_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    store_fenced *results = NULL;
    sqlite_times now = { 0 };
    const bool release = lease_us == 0;

    if (count == 0) {
        return WEIR_OK;
    }
    results = weir__calloc(count, sizeof *results);
    if (results == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu answers", count);
    }
    weir_status status = weir__sqlite_hold_begin(s, 0, &conn, &now, err);
    if (status != WEIR_OK) {
        goto out;
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        results[i] = items[i];
        status = check_fence(conn, &items[i], err);
        results[i].status = status;
        if (status == WEIR_ELOST || status == WEIR_ENOTFOUND) {
            status = WEIR_OK;
        } else if (status == WEIR_OK && release) {
            status = weir__sqlite_run_ints(conn, sql_end_release, &items[i].target, 1, err);
        } else if (status == WEIR_OK) {
            results[i].until_us = weir__time_later(now.store_us, lease_us);
            status = weir__sqlite_run_ints(
                conn, sql_end_keep,
                (int64_t[]){ items[i].target, weir__time_later(now.machine_us, lease_us) }, 2, err);
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
