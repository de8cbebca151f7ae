/* locks.c - named locks and keys of once: one row for each, replaced whenever somebody takes it.
 *
 * INVARIANT  Whatever hands out a fence, or says that something was done for ever, is synced
 * (SQLITE_TX_DURABLE): with the power neither a fence comes back nor a run.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/locks_sql.h"
#include "store/sqlite/targets.h"

_Static_assert(SQL_ONCE_RUNNING == STORE_ONCE_RUNNING && SQL_ONCE_DONE == STORE_ONCE_DONE &&
                   SQL_ONCE_FAILED == STORE_ONCE_FAILED,
               "the states of words.sql");

/* The columns of sql_lock_find. */
enum { FENCE, HOLDER, SINCE, UNTIL, STATE, EXIT_STATUS, ENDED, OUTPUT };

/* Which row: both parameters that all statements have. */
typedef struct lock_key {
    bool once;
    weir_str name;
} lock_key;

static sqlite_cursor open_key(sqlite_conn *conn, const char *sql, const lock_key *key,
                              weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_i64(&cursor, 1, key->once ? 1 : 0);
    weir__cursor_bind_text(&cursor, 2, key->name);
    return cursor;
}

/* ---- taking --------------------------------------------------------------------------------- */

static void read_row(sqlite_cursor *cursor, weir_str name, const sqlite_times *now,
                     weir_arena *arena, store_lock *out)
{
    *out = (store_lock){
        .name = { weir__arena_copy(arena, name.ptr, name.len), name.len },
        .holder = weir__cursor_copy(cursor, HOLDER, arena),
        .fence = weir__cursor_i64(cursor, FENCE),
        .token = cursor->conn->row->token,
        .since_us = weir__cursor_i64(cursor, SINCE),
        .until_us = weir__sqlite_held_until(now, weir__cursor_i64(cursor, UNTIL)),
        .state = (store_once_state)weir__cursor_i64(cursor, STATE),
        .exit_status = weir__cursor_i64(cursor, EXIT_STATUS),
        .ended_us = weir__cursor_i64(cursor, ENDED),
        .output = weir__cursor_copy(cursor, OUTPUT, arena),
    };
    if (out->name.ptr == NULL) {
        weir__cursor_fail(cursor, weir__fail(cursor->err, WEIR_ENOMEM, "could not copy a lock"));
    }
}

/* *found false: there is no row, *out is as it was. */
static weir_status row_find(sqlite_conn *conn, const lock_key *key, const sqlite_times *now,
                            weir_arena *arena, bool *found, store_lock *out, weir_error *err)
{
    sqlite_cursor cursor = open_key(conn, sql_lock_find, key, err);
    *found = weir__cursor_next(&cursor);
    if (*found) {
        read_row(&cursor, key->name, now, arena, out);
    }
    return weir__cursor_end(&cursor);
}

/* Its end has been brought to store time, so that is what to compare it with. */
static bool is_live(const store_lock *o, const sqlite_times *now)
{
    return o->state == STORE_ONCE_RUNNING && o->until_us > now->store_us;
}

static weir_status row_put(sqlite_conn *conn, const lock_key *key, weir_str holder, int64_t now_us,
                           int64_t until_us, weir_error *err)
{
    sqlite_cursor cursor = open_key(conn, sql_lock_put, key, err);
    weir__cursor_bind_text(&cursor, 3, holder);
    weir__cursor_bind_i64(&cursor, 4, now_us);
    weir__cursor_bind_i64(&cursor, 5, until_us);
    return weir__cursor_run(&cursor);
}

/* *taken: it is another's, who is in *out, or was done before. */
static weir_status take_in(sqlite_conn *conn, const store_lock_request *q, const sqlite_times *now,
                           weir_arena *arena, store_lock *out, bool *taken, weir_error *err)
{
    const lock_key key = { .once = q->kind == STORE_ONCE, .name = q->name };
    bool found = false;
    store_lock is = { 0 };
    weir_status status = row_find(conn, &key, now, arena, &found, &is, err);
    if (status == WEIR_OK && found && (is_live(&is, now) || is.state == STORE_ONCE_DONE)) {
        *taken = true;
    } else if (status == WEIR_OK) {
        const int64_t until_us =
            q->lease_us == 0 ? 0 : weir__time_later(now->machine_us, q->lease_us);
        status = row_put(conn, &key, q->holder, now->store_us, until_us, err);
        if (status == WEIR_OK) {
            status = row_find(conn, &key, now, arena, &found, &is, err);
        }
    }
    if (status == WEIR_OK) {
        *out = is;
    }
    return status;
}

weir_status weir__sqlite_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                                   store_lock *out, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };
    store_lock found = { 0 };
    bool taken = false;
    weir_status status = weir__sqlite_hold_begin(s, SQLITE_TX_DURABLE, &conn, &now, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = take_in(conn, q, &now, arena, &found, &taken, err);
    status = weir__sqlite_write_end(s, status, false, err);
    if (status != WEIR_OK) {
        return status;
    }
    *out = found;
    return taken ? weir__lock_taken(q->kind, out, err) : WEIR_OK;
}

/* ---- holding, and letting go ---------------------------------------------------------------- */

/* One change of a row that is held with a fence. */
typedef struct lock_change {
    const char *sql;
    lock_key key;
    int64_t fence, token;
    uint32_t flags;   /* of the transaction */
    int64_t lease_us; /* lock_extend */
    int64_t exit_status;
    weir_str output;
} lock_change;

static weir_status change_in(sqlite_conn *conn, const lock_change *c, const sqlite_times *now,
                             weir_error *err)
{
    sqlite_cursor cursor = open_key(conn, c->sql, &c->key, err);
    weir__cursor_bind_i64(&cursor, 3, c->fence);
    if (c->sql == sql_lock_extend) {
        weir__cursor_bind_i64(&cursor, 4, weir__time_later(now->machine_us, c->lease_us));
    } else if (c->sql == sql_once_end) {
        weir__cursor_bind_i64(&cursor, 4, c->exit_status);
        weir__cursor_bind_i64(&cursor, 5, now->store_us);
        weir__cursor_bind_bytes(&cursor, 6, c->output.ptr, c->output.len);
    }
    const weir_status status = weir__cursor_run(&cursor);
    return status == WEIR_OK && sqlite3_changes64(conn->db) == 0
               ? weir__lock_lost(c->key.name, c->fence, err)
               : status;
}

static weir_status row_change(weir_store *base, const lock_change *c, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };
    weir_status status = weir__sqlite_hold_begin(s, c->flags, &conn, &now, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (c->token != 0 && c->token != conn->row->token) { /* of the log before a restore */
        return weir__sqlite_write_end(s, weir__lock_lost(c->key.name, c->fence, err), false, err);
    }
    status = change_in(conn, c, &now, err);
    if (status == WEIR_ELOST && c->sql == sql_once_end) {
        weir_arena arena = { 0 };
        store_lock is = { 0 };
        bool found = false;
        if (row_find(conn, &c->key, &now, &arena, &found, &is, NULL) == WEIR_OK && found &&
            is.fence == c->fence) {
            status = WEIR_OK; /* it was finished before */
        }
        weir__arena_free(&arena);
    }
    return weir__sqlite_write_end(s, status, false, err);
}

weir_status weir__sqlite_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                     int64_t fence, int64_t token, int64_t lease_us,
                                     weir_error *err)
{
    const lock_change c = { .sql = sql_lock_extend,
                            .key = { .once = kind == STORE_ONCE, .name = name },
                            .fence = fence,
                            .token = token,
                            .lease_us = lease_us };
    return row_change(base, &c, err);
}

weir_status weir__sqlite_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err)
{
    const lock_change c = {
        .sql = sql_lock_remove, .key = { .name = name }, .fence = fence, .token = token
    };
    return row_change(base, &c, err);
}

weir_status weir__sqlite_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err)
{
    const lock_change c = { .sql = sql_once_end,
                            .key = { .once = true, .name = key },
                            .fence = fence,
                            .token = token,
                            .flags = SQLITE_TX_DURABLE,
                            .exit_status = exit_status,
                            .output = output };
    return row_change(base, &c, err);
}

static weir_status forget_in(sqlite_conn *conn, const lock_key *key, const sqlite_times *now,
                             weir_arena *arena, weir_error *err)
{
    store_lock is = { 0 };
    bool found = false;
    const weir_status status = row_find(conn, key, now, arena, &found, &is, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!found) {
        return weir__once_unknown(key->name, err);
    }
    if (is_live(&is, now)) {
        return weir__once_running(&is, err);
    }
    const lock_change c = { .sql = sql_lock_remove, .key = *key, .fence = is.fence };
    return change_in(conn, &c, now, err);
}

weir_status weir__sqlite_once_forget(weir_store *base, weir_str key, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    weir_arena arena = { 0 };
    sqlite_times now = { 0 };
    weir_status status = weir__sqlite_hold_begin(s, 0, &conn, &now, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = forget_in(conn, &(lock_key){ .once = true, .name = key }, &now, &arena, err);
    status = weir__sqlite_write_end(s, status, false, err);
    weir__arena_free(&arena);
    return status;
}

/* ---- listing -------------------------------------------------------------------------------- */

static weir_status locks_in(sqlite_conn *conn, const sqlite_times *now, store_lock_list *list,
                            weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_locks_list, err);
    weir__cursor_bind_i64(&cursor, 1, now->machine_us);
    while (weir__cursor_next(&cursor)) {
        const store_lock lock = {
            .name = weir__cursor_copy(&cursor, 0, &list->arena),
            .holder = weir__cursor_copy(&cursor, 1, &list->arena),
            .fence = weir__cursor_i64(&cursor, 2),
            .since_us = weir__cursor_i64(&cursor, 3),
            .until_us = weir__sqlite_held_until(now, weir__cursor_i64(&cursor, 4)),
        };
        weir__cursor_collect(&cursor, &found, &lock, sizeof lock);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *list->locks, &list->arena, &list->locks,
                             &list->locks_count);
}

weir_status weir__sqlite_locks(weir_store *base, store_lock_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };

    weir__arena_reset(&list->arena);
    list->locks = NULL;
    list->locks_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = locks_in(conn, &now, list, err);
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

static weir_status runs_in(sqlite_conn *conn, const store_pattern *match, int64_t limit,
                           const sqlite_times *now, store_once_list *list, weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_once_runs, err);
    weir__cursor_bind_i64(&cursor, 1, now->machine_us);
    while (limit > 0 && weir__cursor_next(&cursor)) {
        if (match != NULL && !weir__pattern_matches(match, weir__cursor_text(&cursor, 0))) {
            continue;
        }
        store_lock run = {
            .name = weir__cursor_copy(&cursor, 0, &list->arena),
            .holder = weir__cursor_copy(&cursor, 1, &list->arena),
            .fence = weir__cursor_i64(&cursor, 2),
            .since_us = weir__cursor_i64(&cursor, 3),
            .until_us = weir__sqlite_held_until(now, weir__cursor_i64(&cursor, 4)),
            .state = (store_once_state)weir__cursor_i64(&cursor, 5),
            .exit_status = weir__cursor_i64(&cursor, 6),
            .ended_us = weir__cursor_i64(&cursor, 7),
        };
        run.state = weir__once_state_at(&run, now->store_us);
        limit--;
        weir__cursor_collect(&cursor, &found, &run, sizeof run);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *list->runs, &list->arena, &list->runs,
                             &list->runs_count);
}

weir_status weir__sqlite_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };

    weir__arena_reset(&list->arena);
    list->runs = NULL;
    list->runs_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = runs_in(conn, match, limit, &now, list, err);
    }
    weir__sqlite_read_end(s, conn);
    return status;
}
