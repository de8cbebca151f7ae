/* transaction.c - write transactions, one at a time on the machine; read transactions from a pool.
 *
 * INVARIANTS
 *   (1) A write transaction exists only while its thread has the writer slot and the side lock.
 *       They are taken in that order and given back in the other.
 *   (2) The time of a transaction is at least every time that any process has committed: weir_store
 *       and the last event carry the latest, and both are read after BEGIN IMMEDIATE.
 *   (3) A reading connection that is in the pool has no open cursor and no transaction.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/seal.h"
#include "store/sqlite/transaction_sql.h"

static const char sql_begin_write[] = "BEGIN IMMEDIATE";
static const char sql_begin_read[] = "BEGIN";
static const char sql_commit[] = "COMMIT";

const store_options *weir__sqlite_options(const sqlite_store *s)
{
    return &s->options;
}

static int64_t mono_us(void)
{
    /* Not the store's clock: a test that stops that one must not stop a deadline. */
    return weir__clock_mono(weir__clock_machine());
}

int64_t weir__sqlite_deadline(const sqlite_store *s)
{
    int64_t deadline_us = 0;
    return __builtin_add_overflow(mono_us(), s->options.busy_us, &deadline_us) ? INT64_MAX
                                                                               : deadline_us;
}

static weir_status fail_busy(const sqlite_store *s, int64_t deadline_us, const char *whom,
                             weir_error *err)
{
    const int64_t waited_us = s->options.busy_us + (mono_us() - deadline_us);
    const weir_status status = weir__fail(err, WEIR_EBUSY, "store is busy: waited %.1f s for %s",
                                          (double)waited_us / 1e6, whom);
    weir__error_detail(err, "Nothing was written; try again, or wait longer with ?busy=.");
    return status;
}

static weir_status run_plain(sqlite_conn *conn, const char *sql, weir_error *err)
{
    return weir__sqlite_run_ints(conn, sql, NULL, 0, err);
}

/* ---- the writer slot ---------------------------------------------------------------------- */

weir_status weir__sqlite_slot_take(sqlite_store *s, int64_t deadline_us, weir_error *err)
{
    weir_status status = WEIR_OK;
    weir__lock(&s->writer_mu);
    if (s->writer_taken && pthread_equal(s->writer_owner, pthread_self()) != 0) {
        status = weir__fail(err, WEIR_EMISUSE,
                            "a write inside a write transaction of the same handle and thread");
        weir__error_detail(err,
                           "SQL that runs inside a settle must use the connection it was given.");
        goto out;
    }
    while (s->writer_taken) {
        if (!weir__cond_wait_until(&s->writer_free, &s->writer_mu, deadline_us) &&
            s->writer_taken) {
            status = fail_busy(s, deadline_us, "another thread of this process", err);
            goto out;
        }
    }
    s->writer_taken = true;
    s->writer_owner = pthread_self();
out:
    weir__unlock(&s->writer_mu);
    return status;
}

void weir__sqlite_slot_give(sqlite_store *s)
{
    weir__lock(&s->writer_mu);
    WEIR_ASSERT(s->writer_taken);
    s->writer_taken = false;
    weir__cond_signal(&s->writer_free);
    weir__unlock(&s->writer_mu);
}

/* ---- time --------------------------------------------------------------------------------- */

int64_t weir__sqlite_clock(sqlite_store *s, int64_t seen_us)
{
    weir__lock(&s->clock_mu);
    weir__steady_clock_seen(&s->clock, s->options.clock, seen_us);
    const int64_t now_us = weir__steady_clock_now(&s->clock, s->options.clock);
    weir__unlock(&s->clock_mu);
    return now_us;
}

weir_status weir__sqlite_row_read(sqlite_store *s, sqlite_conn *conn, weir_error *err)
{
    weir_status status = WEIR_OK;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_store_row, err);
    if (!weir__cursor_next(&cursor)) {
        status = weir__cursor_end(&cursor);
        return status != WEIR_OK
                   ? status
                   : weir__fail(err, WEIR_ECORRUPT, "the store has lost its own row in weir_store");
    }
    const int64_t schema = weir__cursor_i64(&cursor, 0);
    if (schema != s->schema->version) {
        status =
            weir__fail(err, WEIR_ENEWER,
                       "store was changed to schema %lld while it was open, this library knows "
                       "schema %lld",
                       (long long)schema, (long long)s->schema->version);
        weir__error_detail(err,
                           "A newer version of Weir has upgraded the store; restart this program "
                           "with that version.");
        weir__cursor_fail(&cursor, status);
        return weir__cursor_end(&cursor);
    }
    const int64_t clock_us = weir__cursor_i64(&cursor, 1);
    const int64_t base = weir__cursor_i64(&cursor, 2);
    const int64_t last = weir__cursor_i64(&cursor, 4);
    const int64_t last_us = weir__cursor_i64(&cursor, 5);
    *conn->row = (sqlite_row){
        .clock_us = clock_us > last_us ? clock_us : last_us,
        .head = last,
        .next = (last > base ? last : base) + 1,
        .version_base = weir__cursor_i64(&cursor, 3),
        /* Fences begin again in a store that was restored; this differs. Only compared with what
         * the same process was given. */
        .token = (int64_t)(weir__str_hash(weir__cursor_text(&cursor, 6)) >> 1) | 1,
    };
    return weir__cursor_end(&cursor);
}

/* ---- writing ------------------------------------------------------------------------------ */

void weir__sqlite_rollback(sqlite_store *s)
{
    weir__sqlite_conn_rollback(&s->writer); /* if it is closed, the next one opens another */
    weir__sqlite_categories_forget(s);      /* some may have been of this transaction */
}

/* With sync=normal a commit is not synced, unless the transaction hands out a fence. One that is
 * only a hint is never synced: frames of the WAL become valid in their order, so the next commit
 * that is synced takes it along, and a power failure before that loses it and nothing else. */
static weir_status set_sync(sqlite_store *s, uint32_t flags, weir_error *err)
{
    const bool hint = (flags & SQLITE_TX_HINT) != 0;
    const bool full = (flags & SQLITE_TX_DURABLE) != 0 || (!s->options.sync_normal && !hint);
    if (full == s->database.sync_full) {
        return WEIR_OK;
    }
    const weir_status status = weir__sqlite_exec(
        &s->writer, full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
    if (status == WEIR_OK) {
        s->database.sync_full = full;
    }
    return status;
}

static weir_status begin_immediate(sqlite_store *s, uint32_t flags, weir_error *err)
{
    weir_status status = WEIR_OK;
    if (s->writer.db == NULL) { /* see weir__sqlite_rollback */
        status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_WRITER, &s->writer, err);
    }
    if (status == WEIR_OK) {
        status = set_sync(s, flags, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = run_plain(&s->writer, sql_begin_write, err);
    if (status == WEIR_EBUSY) {
        return fail_busy(s, s->database.deadline_us, "another program that writes to the database",
                         err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_row_read(s, &s->writer, err);
    if (status != WEIR_OK) {
        weir__sqlite_rollback(s);
    }
    return status;
}

static weir_status refuse_damaged(const sqlite_store *s, weir_error *err)
{
    if (!atomic_load(&s->damaged)) {
        return WEIR_OK;
    }
    const weir_status damaged =
        weir__fail(err, WEIR_ECORRUPT, "\"%s\" is damaged, nothing is written to it", s->given);
    weir__error_detail(err, SQLITE_DAMAGED_DETAIL);
    return damaged;
}

weir_status weir__sqlite_write_begin_until(sqlite_store *s, uint32_t flags, int64_t deadline_us,
                                           sqlite_conn **conn, int64_t *now_us, weir_error *err)
{
    WEIR_ASSERT(!s->read_only);
    weir_status status = weir__sqlite_slot_take(s, deadline_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__side_lock(&s->side, deadline_us, err);
    if (status == WEIR_EBUSY) {
        /* The wait may have begun elsewhere, and that is counted as well. */
        status = fail_busy(s, deadline_us, "the other writer", err);
        weir__error_detail(err, "Nothing was written. Another process holds the lock on \"%s\".",
                           s->side.path);
    }
    if (status == WEIR_OK) {
        s->database.deadline_us = deadline_us;
        if (s->side.created) { /* again: somebody has removed it */
            s->side.created = false;
            s->wal_unseen = true;
        }
        int64_t written_ns = 0;
        status = weir__sqlite_files_check(s, SQLITE_FILES_COUNT, &written_ns, err);
        if (status == WEIR_OK) {
            status = weir__seal_running(s, written_ns, err);
        }
        /* Only now: a file that was overwritten looks damaged as well, and that says less. */
        if (status == WEIR_OK) {
            status = refuse_damaged(s, err);
        }
        if (status == WEIR_OK && s->writer.db != NULL) {
            weir__sqlite_wal_mark(s);
        }
        if (status == WEIR_OK) {
            status = begin_immediate(s, flags, err);
        }
        if (status != WEIR_OK) {
            weir__side_unlock(&s->side);
        }
    }
    if (status != WEIR_OK) {
        weir__sqlite_slot_give(s);
        return status;
    }
    s->now_us = weir__sqlite_clock(s, s->writer.row->clock_us);
    s->changes_before = sqlite3_total_changes64(s->writer.db);
    s->events_written = false;
    *conn = &s->writer;
    *now_us = s->now_us;
    return WEIR_OK;
}

weir_status weir__sqlite_write_begin(sqlite_store *s, uint32_t flags, sqlite_conn **conn,
                                     int64_t *now_us, weir_error *err)
{
    return weir__sqlite_write_begin_until(s, flags, weir__sqlite_deadline(s), conn, now_us, err);
}

static weir_status transaction_commit(sqlite_store *s, bool *changed, weir_error *err)
{
    sqlite_conn *conn = &s->writer;
    weir_status status = WEIR_OK;

    if (sqlite3_get_autocommit(conn->db) != 0) {
        return weir__fail(err, WEIR_EMISUSE, "the transaction was ended by a statement inside it");
    }
    weir__sqlite_statements_reset(conn); /* an open cursor would keep the transaction's locks */
    *changed = sqlite3_total_changes64(conn->db) != s->changes_before;
    if (*changed && !s->events_written) {
        status = weir__sqlite_run_ints(conn, sql_store_clock, &s->now_us, 1, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    status = run_plain(conn, sql_commit, err);
    const int rc = sqlite3_extended_errcode(conn->db);
    if (status != WEIR_OK && (rc == SQLITE_IOERR_FSYNC || rc == SQLITE_IOERR_DIR_FSYNC)) {
        /* Everything is in the WAL, the commit's frame too; whether it is on the disk, nobody
         * knows. This process goes on without it and overwrites it; but if nobody writes before a
         * crash, the next to open the file finds a complete commit. */
        status = weir__wrap(err, WEIR_EUNKNOWN, "commit, which may or may not have happened");
        weir__error_detail(err,
                           "The disk failed to sync. Check it, read back what was written, and "
                           "use idempotency keys to repeat appends safely.");
    }
    return status;
}

weir_status weir__sqlite_write_end(sqlite_store *s, weir_status status, bool wake, weir_error *err)
{
    WEIR_ASSERT(s->writer_taken && s->side.held);
    bool changed = false;

    if (status == WEIR_OK) {
        status = transaction_commit(s, &changed, err);
    }
    if (status != WEIR_OK) {
        changed = false;
        weir__sqlite_rollback(s);
    }
    if (changed) {
        atomic_fetch_add_explicit(&s->transactions, 1, memory_order_relaxed);
        if (!weir__seal_follow(s) || s->database.wal_pages >= s->database.checkpoint_next) {
            weir__sqlite_checkpoint(s);
        }
    }
    weir__side_unlock(&s->side);
    if (changed && wake) {
        /* Only now: who is woken finds the commit visible and the lock free. */
        weir__side_stamp(&s->side);
    }
    weir__sqlite_slot_give(s);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Takes a connection that nobody has, one that is open if possible. */
static weir_status pool_take(sqlite_store *s, sqlite_conn **out, weir_error *err)
{
    const int64_t deadline_us = weir__sqlite_deadline(s);
    weir_status status = WEIR_OK;
    int found = -1;

    weir__lock(&s->pool_mu);
    for (;;) {
        for (int i = 0; i < SQLITE_READERS_MAX; i++) {
            if (!s->readers_taken[i] && (found < 0 || s->readers[found].db == NULL)) {
                found = i;
            }
        }
        if (found >= 0) {
            break;
        }
        if (!weir__cond_wait_until(&s->pool_free, &s->pool_mu, deadline_us)) {
            status = fail_busy(s, deadline_us, "other readers of this process", err);
            goto out;
        }
    }
    s->readers_taken[found] = true;
    *out = &s->readers[found];
out:
    weir__unlock(&s->pool_mu);
    return status;
}

static void pool_give(sqlite_store *s, sqlite_conn *conn)
{
    weir__lock(&s->pool_mu);
    WEIR_ASSERT(s->readers_taken[conn - s->readers]);
    s->readers_taken[conn - s->readers] = false;
    weir__cond_signal(&s->pool_free);
    weir__unlock(&s->pool_mu);
}

/* A store that was read as one that cannot change, because there was no WAL and none could be made,
 * turns out to be written by someone with more rights. */
static weir_status refuse_changed(const sqlite_store *s, weir_error *err)
{
    bool has_bytes = false;
    struct stat st;
    if (!s->database.immutable) {
        return WEIR_OK;
    }
    (void)weir__sqlite_file_exists(s, "-wal", &has_bytes);
    if (!has_bytes && stat(s->path, &st) == 0 && weir__mtime_ns(&st) == s->written_ns) {
        return WEIR_OK;
    }
    return weir__fail(err, WEIR_EUNAVAILABLE,
                      "\"%s\" was opened for writing since it was opened here: open it again",
                      s->given);
}

weir_status weir__sqlite_read_begin(sqlite_store *s, sqlite_conn **conn, weir_error *err)
{
    sqlite_conn *taken = NULL;
    /* The database alone: a WAL that was taken away is the writers' business. */
    int64_t written_ns = 0;
    weir_status changed = weir__sqlite_files_check(s, 1, &written_ns, err);
    if (changed == WEIR_OK) {
        changed = refuse_changed(s, err);
    }
    if (changed != WEIR_OK) {
        return changed;
    }
    weir_status status = pool_take(s, &taken, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (taken->db == NULL) {
        status = weir__sqlite_conn_open(&s->database, SQLITE_ROLE_READER, taken, err);
        if (status != WEIR_OK) {
            pool_give(s, taken);
            return status;
        }
    }
    status = run_plain(taken, sql_begin_read, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_row_read(s, taken, err);
    }
    if (status != WEIR_OK) {
        status = weir__seal_explain(s, taken, status, err);
        weir__sqlite_read_end(s, taken);
        return status;
    }
    *conn = taken;
    return WEIR_OK;
}

void weir__sqlite_read_end(sqlite_store *s, sqlite_conn *conn)
{
    weir__sqlite_statements_reset(conn);
    if (sqlite3_get_autocommit(conn->db) == 0 && run_plain(conn, sql_commit, NULL) != WEIR_OK) {
        /* Nothing to commit, so this needs no room and no lock; if it fails all the same, a new
         * connection is the way to be sure that no snapshot stays open. */
        weir__sqlite_conn_close(conn);
    }
    pool_give(s, conn);
}

weir_status weir__sqlite_read_now(sqlite_store *s, sqlite_conn *conn, int64_t *now_us,
                                  weir_error *err)
{
    (void)err;
    *now_us = weir__sqlite_clock(s, conn->row->clock_us);
    return WEIR_OK;
}
