/* statement.c - prepared statements, kept per connection: constants by the address of their text,
 * others by what it says; SQLite's errors.
 *
 * INVARIANTS
 *   (1) A statement is handed out reset and without bindings.
 *   (2) The table of statements is open-addressed, its capacity a power of two, at most half full.
 *   (3) Constants have static storage, so an address names one text for as long as we run. Of other
 *       texts there are a few; the one least lately used gives way.
 */
#include "base/assert.h"
#include "base/error.h"
#include "sqlite/sqlite.h"

#include <string.h>

enum {
    STATEMENTS_CAPACITY_MIN = 64,
    TEXT_KEPT_BYTES_MAX = 16384, /* a longer one gives way first */
};

struct sqlite_cached {
    const char *sql;    /* static; NULL: free slot */
    sqlite3_stmt *stmt; /* owned */
};

weir_status weir__sqlite_fail(sqlite_conn *conn, int rc, weir_error *err, const char *what)
{
    const char *text = conn->db != NULL ? sqlite3_errmsg(conn->db) : sqlite3_errstr(rc);
    weir_status status = WEIR_EIO;
    const char *detail = NULL;

    switch (rc & 0xff) {
    case SQLITE_FULL:
        text = "disk full";
        detail = "Nothing of this was written and the store is intact; make room and try again.";
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        status = WEIR_EBUSY;
        detail = "Another program holds a lock on the database; nothing was written.";
        break;
    case SQLITE_CORRUPT:
        status = WEIR_ECORRUPT;
        detail = SQLITE_DAMAGED_DETAIL;
        break;
    case SQLITE_NOTADB:
        status = WEIR_ECORRUPT;
        text = "the file is not an SQLite database";
        detail = "It is something else, or it is encrypted, or its first page is damaged.";
        break;
    case SQLITE_NOMEM:
        status = WEIR_ENOMEM;
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        detail =
            "Writing needs permission on the database, on its -wal, -shm and -weir files and on "
            "their directory.";
        break;
    case SQLITE_CANTOPEN:
        detail =
            "Look at the path and at the permissions of the directory: SQLite makes files beside "
            "the database.";
        break;
    case SQLITE_IOERR:
        detail = "The operating system reported a failure; the transaction was undone.";
        break;
    case SQLITE_TOOBIG:
        status = WEIR_EINVAL;
        break;
    default:
        break;
    }
    if (status == WEIR_ECORRUPT && conn->damaged != NULL) {
        atomic_store(conn->damaged, true);
    }
    status = weir__fail(err, status, "could not %s: %s", what, text);
    weir__error_store_code(err, "%d", rc);
    if (detail != NULL) {
        weir__error_detail(err, "%s", detail);
    }
    return status;
}

/* The slot of `sql`, or the free one where it belongs. */
static struct sqlite_cached *find_slot(struct sqlite_cached *slots, size_t capacity,
                                       const char *sql)
{
    const uint64_t hash = (uint64_t)(uintptr_t)sql * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(hash >> 32) & (capacity - 1);
    while (slots[i].sql != NULL && slots[i].sql != sql) {
        i = (i + 1) & (capacity - 1);
    }
    return &slots[i];
}

static bool make_room(sqlite_conn *conn)
{
    if ((conn->statements_count + 1) * 2 <= conn->statements_capacity) {
        return true;
    }
    const size_t capacity =
        conn->statements_capacity == 0 ? STATEMENTS_CAPACITY_MIN : conn->statements_capacity * 2;
    struct sqlite_cached *slots = weir__calloc(capacity, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < conn->statements_capacity; i++) {
        if (conn->statements[i].sql != NULL) {
            *find_slot(slots, capacity, conn->statements[i].sql) = conn->statements[i];
        }
    }
    weir__free(conn->statements);
    conn->statements = slots;
    conn->statements_capacity = capacity;
    return true;
}

weir_status weir__sqlite_statement(sqlite_conn *conn, const char *sql, sqlite3_stmt **out,
                                   weir_error *err)
{
    WEIR_ASSERT(conn->db != NULL);
    if (!make_room(conn)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the table of statements");
    }
    struct sqlite_cached *slot = find_slot(conn->statements, conn->statements_capacity, sql);
    if (slot->sql == NULL) {
        sqlite3_stmt *stmt = NULL;
        const int rc =
            sqlite3_prepare_v3(conn->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
        if (rc != SQLITE_OK) {
            return weir__sqlite_fail(conn, rc, err, "prepare a statement");
        }
        WEIR_ASSERT(stmt != NULL);
        *slot = (struct sqlite_cached){ .sql = sql, .stmt = stmt };
        conn->statements_count++;
    } else {
        weir__sqlite_done(slot->stmt); /* also one that ran to its end: binding to it would fail */
    }
    *out = slot->stmt;
    return WEIR_OK;
}

sqlite3_stmt *weir__sqlite_text_find(sqlite_conn *conn, const char *sql)
{
    for (size_t i = 0; i < SQLITE_TEXTS_MAX; i++) {
        sqlite_text *text = &conn->texts[i];
        if (text->sql != NULL && strcmp(text->sql, sql) == 0) {
            text->used = strlen(sql) > TEXT_KEPT_BYTES_MAX ? 0 : ++conn->texts_used;
            return text->stmt;
        }
    }
    return NULL;
}

static void text_forget(sqlite_text *text)
{
    (void)sqlite3_finalize(text->stmt); /* NULL is a no-op */
    weir__free(text->sql);
    *text = (sqlite_text){ 0 };
}

bool weir__sqlite_text_keep(sqlite_conn *conn, const char *sql, sqlite3_stmt *stmt)
{
    sqlite_text *oldest = &conn->texts[0];
    for (size_t i = 1; i < SQLITE_TEXTS_MAX; i++) {
        oldest = conn->texts[i].used < oldest->used ? &conn->texts[i] : oldest;
    }
    text_forget(oldest);
    const size_t len = strlen(sql);
    oldest->sql = weir__strndup(sql, len);
    oldest->stmt = stmt;
    oldest->used = len > TEXT_KEPT_BYTES_MAX ? 0 : ++conn->texts_used;
    if (oldest->sql == NULL) {
        text_forget(oldest);
        return false;
    }
    return true;
}

weir_status weir__sqlite_step(sqlite_conn *conn, sqlite3_stmt *stmt, bool *row, weir_error *err)
{
    const int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        *row = rc == SQLITE_ROW;
        return WEIR_OK;
    }
    const weir_status status = weir__sqlite_fail(conn, rc, err, "run a statement");
    weir__sqlite_done(stmt);
    return status;
}

weir_status weir__sqlite_run(sqlite_conn *conn, sqlite3_stmt *stmt, weir_error *err)
{
    bool row = true;
    while (row) {
        const weir_status status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    weir__sqlite_done(stmt);
    return WEIR_OK;
}

void weir__sqlite_done(sqlite3_stmt *stmt)
{
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt); /* repeats the failure that step has reported */
        (void)sqlite3_clear_bindings(stmt);
    }
}

weir_status weir__sqlite_exec(sqlite_conn *conn, const char *sql, weir_error *err)
{
    const int rc = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? WEIR_OK : weir__sqlite_fail(conn, rc, err, "run a statement");
}

void weir__sqlite_bind_str(sqlite3_stmt *stmt, int index, weir_str text)
{
    /* A NULL pointer would bind NULL. Only a wrong index or a gigabyte can fail here. */
    const int rc = sqlite3_bind_text64(stmt, index, text.len == 0 ? "" : text.ptr, text.len,
                                       SQLITE_STATIC, SQLITE_UTF8);
    WEIR_ASSERT(rc == SQLITE_OK);
}

weir_str weir__sqlite_column_str(sqlite3_stmt *stmt, int column)
{
    /* As a blob: text columns are UTF-8 already, and no terminator has to be made. */
    const char *ptr = sqlite3_column_blob(stmt, column);
    return (weir_str){ .ptr = ptr, .len = (size_t)sqlite3_column_bytes(stmt, column) };
}

weir_str weir__sqlite_column_copy(sqlite3_stmt *stmt, int column, weir_arena *arena)
{
    const weir_str text = weir__sqlite_column_str(stmt, column);
    char *copy = weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
    return (weir_str){ .ptr = copy, .len = copy == NULL ? 0 : text.len };
}

void weir__sqlite_statements_reset(sqlite_conn *conn)
{
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(conn->db, NULL); stmt != NULL;
         stmt = sqlite3_next_stmt(conn->db, stmt)) {
        if (sqlite3_stmt_busy(stmt) != 0) {
            weir__sqlite_done(stmt);
        }
    }
}

void weir__sqlite_statements_free(sqlite_conn *conn)
{
    for (size_t i = 0; i < conn->statements_capacity; i++) {
        (void)sqlite3_finalize(conn->statements[i].stmt); /* NULL is a no-op */
    }
    weir__free(conn->statements);
    conn->statements = NULL;
    conn->statements_count = 0;
    conn->statements_capacity = 0;
    for (size_t i = 0; i < SQLITE_TEXTS_MAX; i++) {
        text_forget(&conn->texts[i]);
    }
}
