/* connection.c - opening and closing connections: the settings that keep several processes safe.
 *
 * INVARIANTS
 *   (1) No connection ever checkpoints by itself, neither after a commit nor when it is closed:
 *       libraries before 3.51.3 can corrupt a database when that meets another's commit. The only
 *       checkpoints are those of checkpoint.c, and the last close of a store.
 *   (2) A connection is used by one thread at a time, so it needs no mutex of its own.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "sqlite/sqlite.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    CACHE_KIB_WRITER = 8192,
    CACHE_KIB_READER = 2048,
    WAL_KEPT_THRESHOLDS = 4, /* a WAL that a reader made longer is cut when it is started over */
};

static const char sql_rollback[] = "ROLLBACK";

/* For BEGIN IMMEDIATE against writers that do not know the side lock. */
static int wait_for_foreign_writer(void *ctx, int tries)
{
    const sqlite_database *db = ctx;
    if (weir__clock_mono(weir__clock_machine()) >= db->deadline_us || weir__stop_is_set(db->stop)) {
        return 0;
    }
    weir__clock_pause(tries < 10 ? 100 : 2000);
    return 1;
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
           c == '-' || c == '_' || c == '.';
}

/* The path as SQLite's URI for a file that cannot change. */
static bool immutable_uri(weir_buffer *out, const char *path)
{
    bool ok = weir__buffer_add_text(out, "file://");
    for (const char *c = path; ok && *c != '\0'; c++) {
        if (is_unreserved(*c)) {
            ok = weir__buffer_add(out, c, 1);
        } else {
            char hex[4];
            (void)snprintf(hex, sizeof hex, "%%%02X", (unsigned)(unsigned char)*c);
            ok = weir__buffer_add_text(out, hex);
        }
    }
    return ok && weir__buffer_add(out, "?immutable=1", sizeof "?immutable=1"); /* with its NUL */
}

static int role_flags(const sqlite_database *db, sqlite_role role)
{
    int flags = SQLITE_OPEN_NOMUTEX;
    switch (role) {
    case SQLITE_ROLE_CREATOR:
        flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
        break;
    case SQLITE_ROLE_WRITER:
    case SQLITE_ROLE_CHECKPOINTER:
        flags |= SQLITE_OPEN_READWRITE;
        break;
    case SQLITE_ROLE_READER:
    case SQLITE_ROLE_PEEK:
        flags |= SQLITE_OPEN_READONLY;
        break;
    }
    return db->immutable || role == SQLITE_ROLE_PEEK ? flags | SQLITE_OPEN_URI : flags;
}

static int wal_hook(void *ctx, sqlite3 *raw, const char *name, int pages)
{
    sqlite_database *db = ctx;
    (void)raw;
    (void)name;
    if (pages < db->wal_pages) {
        db->checkpoint_next = db->checkpoint_pages; /* the WAL was started over */
    }
    db->wal_pages = pages;
    return SQLITE_OK;
}

static weir_status conn_configure(sqlite_database *db, sqlite_role role, sqlite_conn *conn,
                                  weir_error *err)
{
    const bool writer = role == SQLITE_ROLE_CREATOR || role == SQLITE_ROLE_WRITER;
    const bool sync_full = db->guest || !writer || !db->sync_normal;
    /* A guest's database need not have a WAL: without one a commit is durable only when the
     * directory has been synced too. Its foreign keys are declared to be kept. */
    const char *sync = db->guest ? "EXTRA" : sync_full ? "FULL" : "NORMAL";
    const int64_t busy_ms = db->busy_us / 1000;
    const int64_t wal_bytes_kept = db->checkpoint_pages * SQLITE_PAGE_BYTES * WAL_KEPT_THRESHOLDS;
    char sql[320];

    (void)sqlite3_extended_result_codes(conn->db, 1);
    int rc = sqlite3_db_config(conn->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc != SQLITE_OK) {
        return weir__sqlite_fail(conn, rc, err, "configure the connection");
    }
    rc = writer ? sqlite3_busy_handler(conn->db, wait_for_foreign_writer, db)
                : sqlite3_busy_timeout(conn->db, busy_ms > INT_MAX ? INT_MAX : (int)busy_ms);
    if (rc != SQLITE_OK) {
        return weir__sqlite_fail(conn, rc, err, "configure the connection");
    }
    /* Debian's library overwrites what is deleted unless told not to. */
    (void)snprintf(sql, sizeof sql,
                   "PRAGMA wal_autocheckpoint=0; PRAGMA mmap_size=0; PRAGMA secure_delete=OFF;"
                   "PRAGMA cache_size=-%d; PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=%s;"
                   "PRAGMA synchronous=%s; PRAGMA journal_size_limit=%lld;",
                   writer ? CACHE_KIB_WRITER : CACHE_KIB_READER, db->guest ? "ON" : "OFF", sync,
                   (long long)wal_bytes_kept);
    const weir_status status = weir__sqlite_exec(conn, sql, err);
    if (status == WEIR_OK && writer) {
        db->sync_full = sync_full;
        /* After wal_autocheckpoint, which would take the hook's place. */
        (void)sqlite3_wal_hook(conn->db, wal_hook, db);
    }
    return status;
}

weir_status weir__sqlite_conn_open(sqlite_database *db, sqlite_role role, sqlite_conn *conn,
                                   weir_error *err)
{
    WEIR_ASSERT(conn->db == NULL);
    weir_status status = WEIR_OK;
    weir_buffer uri = { 0 };
    const char *name = db->path;

    if (db->immutable || role == SQLITE_ROLE_PEEK) {
        if (!immutable_uri(&uri, db->path)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate the name of the database");
            goto out;
        }
        name = uri.ptr;
    }
    const int rc = sqlite3_open_v2(name, &conn->db, role_flags(db, role), db->vfs);
    if (rc != SQLITE_OK) {
        /* The extended code is not on yet, and it is what tells a directory from a missing file. */
        const int extended = conn->db == NULL ? rc : sqlite3_extended_errcode(conn->db);
        status = weir__sqlite_fail(conn, extended, err, "open the database");
        goto out;
    }
    conn->damaged = db->damaged;
    if (role != SQLITE_ROLE_PEEK) {
        status = conn_configure(db, role, conn, err);
    }
out:
    if (status != WEIR_OK) {
        weir__sqlite_conn_close(conn);
    }
    weir__buffer_free(&uri);
    return status;
}

void weir__sqlite_conn_close(sqlite_conn *conn)
{
    weir__sqlite_statements_free(conn);
    const int rc = sqlite3_close(conn->db); /* NULL is a no-op */
    WEIR_ASSERT(rc == SQLITE_OK);           /* every statement is ours and has been finalized */
    conn->db = NULL;
}

void weir__sqlite_conn_rollback(sqlite_conn *conn)
{
    sqlite3_stmt *stmt = NULL;
    weir__sqlite_statements_reset(conn);
    /* SQLite has undone it already after some failures, such as a full disk. */
    if (sqlite3_get_autocommit(conn->db) == 0 &&
        (weir__sqlite_statement(conn, sql_rollback, &stmt, NULL) != WEIR_OK ||
         weir__sqlite_run(conn, stmt, NULL) != WEIR_OK) &&
        sqlite3_get_autocommit(conn->db) == 0) {
        /* No memory, not even for that. Closing undoes it as well and needs none. */
        weir__sqlite_conn_close(conn);
    }
}
