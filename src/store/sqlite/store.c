/* store.c - the SQLite adapter as a store: its verbs, and what it says about itself. */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/seed.h"
#include "store/sqlite/seal.h"
#include "store/sqlite/store_sql.h"

#include <stdio.h>
#include <sys/stat.h>

static bool wal_has_bytes(const sqlite_store *s)
{
    bool has_bytes = false;
    (void)weir__sqlite_file_exists(s, "-wal", &has_bytes);
    return has_bytes;
}

/* The last to close a store brings everything into the database file and leaves an empty WAL.
 * SQLite does it while it closes its connection, and only if it gets the database exclusively,
 * which it does when no other connection of any program exists. So there is nobody whose commit the
 * checkpoint could meet. Of several that close at once each stops being present before it looks
 * for others, so that the last one finds nobody; it waits for the side lock of those before it. */
static void close_as_last(sqlite_store *s)
{
    int64_t written_ns = 0;
    if (s->writer.db == NULL || s->read_only || atomic_load(&s->damaged)) {
        return;
    }
    weir__side_leave(&s->side);
    if (s->side.present || weir__side_others(&s->side)) {
        return;
    }
    s->database.deadline_us = weir__sqlite_deadline(s);
    if (weir__side_lock(&s->side, s->database.deadline_us, NULL) != WEIR_OK) {
        return;
    }
    weir__side_leave(&s->side); /* taking the lock has shown us again */
    int keep_wal = 1;           /* the empty file: users who may only read need it */
    if (!weir__side_others(&s->side) &&
        weir__sqlite_files_check(s, SQLITE_FILES_COUNT, &written_ns, NULL) == WEIR_OK &&
        weir__seal_running(s, written_ns, NULL) == WEIR_OK && wal_has_bytes(s) &&
        weir__seal_renew(s) &&
        sqlite3_file_control(s->writer.db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep_wal) ==
            SQLITE_OK &&
        sqlite3_db_config(s->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL) == SQLITE_OK) {
        weir__sqlite_conn_close(&s->writer);
        weir__seal_written(s, wal_has_bytes(s) ? SEAL_PART : SEAL_ALL);
    }
    weir__side_unlock(&s->side);
}

static void store_close(weir_store *base)
{
    sqlite_store *s = sqlite_of(base);
    if (s->database.inherited) {
        return; /* in a forked child it is the parent's; what can be closed is closed by fork.c */
    }
    const bool opened = s->database.at_rest;
    s->database.at_rest = false;
    WEIR_ASSERT(!s->writer_taken);
    for (size_t i = 0; i < SQLITE_READERS_MAX; i++) {
        WEIR_ASSERT(!s->readers_taken[i]);
        weir__sqlite_conn_close(&s->readers[i]);
    }
    weir__sqlite_conn_close(&s->checkpointer);
    if (opened) {
        close_as_last(s);
    }
    weir__sqlite_conn_close(&s->writer);
    weir__side_close(&s->side);
    weir__sqlite_handle_remove(&s->database);
    weir__sqlite_categories_forget(s);
    weir__free(s->categories);
    weir__mutex_destroy(&s->clock_mu);
    weir__cond_destroy(&s->pool_free);
    weir__mutex_destroy(&s->pool_mu);
    weir__cond_destroy(&s->writer_free);
    weir__mutex_destroy(&s->writer_mu);
    weir__arena_free(&s->texts);
    weir__free(s);
}

static weir_status store_now(weir_store *base, int64_t *now_us, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    const weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    *now_us = weir__sqlite_clock(s, conn->row->clock_us);
    weir__sqlite_read_end(s, conn);
    return WEIR_OK;
}

weir_status weir__sqlite_epoch(sqlite_conn *conn, char *out, size_t bytes, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_store_epoch, err);
    if (weir__cursor_next(&cursor)) { /* the transaction has begun with reading that very row */
        const weir_str epoch = weir__cursor_text(&cursor, 0);
        (void)snprintf(out, bytes, "%.*s", (int)epoch.len, epoch.ptr);
    }
    return weir__cursor_end(&cursor);
}

static weir_status store_positions_get(weir_store *base, store_positions *out, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    store_positions at;

    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    /* One writer at a time: what is committed is complete, so everything is safe. */
    at = (store_positions){ .head = conn->row->head,
                            .safe = conn->row->head,
                            .now_us = weir__sqlite_clock(s, conn->row->clock_us) };
    status = weir__sqlite_epoch(conn, at.epoch, sizeof at.epoch, err);
    if (status == WEIR_OK) {
        memcpy(at.log, at.epoch, sizeof at.log);
        *out = at;
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

static int64_t file_bytes(const sqlite_store *s, const char *suffix)
{
    weir_buffer name = { 0 };
    struct stat st;
    int64_t bytes = 0;
    if (weir__buffer_add_text(&name, s->path) && weir__buffer_add_text(&name, suffix) &&
        weir__buffer_add(&name, "", 1) && stat(name.ptr, &st) == 0) {
        bytes = (int64_t)st.st_size;
    }
    weir__buffer_free(&name);
    return bytes;
}

weir_status weir__sqlite_stats(weir_store *base, store_stats *out, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    bool found = false;
    store_stats stats = { 0 };

    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status =
        weir__sqlite_get_int(conn, sql_store_streams_count, NULL, 0, &found, &stats.streams, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_stats_targets(s, conn, &stats, err);
    }
    weir__sqlite_read_end(s, conn);
    if (status != WEIR_OK) {
        return status;
    }
    stats.schema = s->schema->version;
    stats.file_bytes = file_bytes(s, "");
    stats.wal_bytes = file_bytes(s, "-wal");
    stats.transactions = atomic_load_explicit(&s->transactions, memory_order_relaxed);
    (void)snprintf(stats.durability, sizeof stats.durability, "%s",
                   s->options.sync_normal ? "normal" : "full");
    (void)snprintf(stats.library, sizeof stats.library, "SQLite %s", sqlite3_libversion());
    *out = stats;
    return WEIR_OK;
}

weir_status weir__sqlite_seed(weir_store *base, int64_t position_base, int64_t version_base,
                              weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;

    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status =
        conn->row->head != 0
            ? weir__fail(err, WEIR_EMISUSE, "only an empty store can be given another beginning")
            : weir__sqlite_run_ints(conn, sql_store_seed,
                                    (int64_t[]){ position_base, version_base }, 2, err);
    return weir__sqlite_write_end(s, status, false, err);
}

static const store_log_ops sqlite_log_ops = {
    .group_commit = 1,
    .append = weir__sqlite_append,
    .read_stream = weir__sqlite_read_stream,
    .read_log = weir__sqlite_read_log,
    .stream_info = weir__sqlite_stream_info,
    .streams = weir__sqlite_streams,
    .positions = store_positions_get,
    .snapshot_put = weir__sqlite_snapshot_put,
    .snapshot_get = weir__sqlite_snapshot_get,
    .snapshot_drop = weir__sqlite_snapshot_drop,
    .watch_open = weir__sqlite_watch_open,
    .watch_wait = weir__sqlite_watch_wait,
    .watch_fd = weir__sqlite_watch_fd,
    .watch_close = weir__sqlite_watch_close,
};

static const store_work_ops sqlite_work_ops = {
    .declare = weir__sqlite_declare,
    .reactions = weir__sqlite_reactions,
    .retire = weir__sqlite_retire,
    .router_lease = weir__sqlite_router_lease,
    .route = weir__sqlite_route,
    .fetch = weir__sqlite_fetch,
    .settle = weir__sqlite_settle,
    .extend = weir__sqlite_extend,
    .operate = weir__sqlite_operate,
    .lane_pause = weir__sqlite_lane_pause,
    .targets = weir__sqlite_targets,
    .lanes = weir__sqlite_lanes,
    .parked = weir__sqlite_parked,
    .parked_change = weir__sqlite_parked_change,
    .poll = weir__sqlite_poll,
    .turn = weir__sqlite_turn,
};

static const store_locks_ops sqlite_locks_ops = {
    .take = weir__sqlite_lock_take,
    .extend = weir__sqlite_lock_extend,
    .release = weir__sqlite_lock_release,
    .list = weir__sqlite_locks,
    .finish = weir__sqlite_once_finish,
    .forget = weir__sqlite_once_forget,
    .runs = weir__sqlite_once_runs,
};

static const store_about_ops sqlite_about_ops = {
    .scheme = "sqlite",
    .close = store_close,
    .now = store_now,
    .stats = weir__sqlite_stats,
    .check = weir__sqlite_check,
    .holders = weir__holders_none,
    .survey = weir__sqlite_survey,
    .worker_beat = weir__sqlite_worker_beat,
    .workers = weir__sqlite_workers,
};

void weir__sqlite_verbs(sqlite_store *s)
{
    s->base.log = &sqlite_log_ops;
    s->base.work = &sqlite_work_ops;
    s->base.locks = &sqlite_locks_ops;
    s->base.about = &sqlite_about_ops;
}
