/* table_sqlite.c - the port to tables on SQLite: a file that is somebody else's, or a database in
 * memory.
 *
 * Every session on a file is a connection of its own, of sqlite_base.h: commits are
 * durable, checkpoints happen with all writers kept out. A database in memory has one connection,
 * which sessions take in turn.
 *
 * INVARIANTS
 *   (1) Statements are reset when run returns: no cursor keeps a transaction open.
 *   (2) The handle is at rest exactly while no call is inside SQLite and no transaction is open, so
 *       that a forked child knows whether it may close what it has inherited.
 *
 * THREADS  `mu` guards `taken`, and is a leaf lock.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/sql.h"
#include "base/str.h"
#include "base/thread.h"
#include "table/sqlite_base.h"
#include "table/sqlite_sql.h"
#include "table/table_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { ROWS_FIRST = 16 }; /* so many have room at once; then twice as many, and so on */

extern const table_ops weir__table_sqlite_ops;

typedef struct sqlite_db {
    table_db base;
    sqlite_base *memory; /* owned: the database in memory; NULL: a file, or not opened yet */
    bool in_memory;
    weir_mutex mu;
    weir_cond released;
    bool taken; /* guarded by mu */
} sqlite_db;

typedef struct sqlite_session {
    table_session base;
    sqlite_db *db;     /* borrowed; NULL: adopted */
    sqlite_base *file; /* owned, or the database's own; NULL: adopted */
    sqlite_conn given; /* adopted: the caller's connection, without statements of ours */
} sqlite_session;

static sqlite_db *db_of(table_db *base)
{
    return (sqlite_db *)(void *)base;
}

static sqlite_session *session_of(table_session *base)
{
    return (sqlite_session *)(void *)base;
}

static sqlite_conn *conn_of(sqlite_session *s)
{
    return s->file == NULL ? &s->given : &s->file->writer;
}

/* ---- going in and out ------------------------------------------------------------------------ */

static weir_status session_enter(sqlite_session *s, int64_t wait_us, weir_error *err)
{
    if (s->file == NULL) {
        return WEIR_OK;
    }
    sqlite_database *database = &s->file->database;
    if (database->inherited) {
        return weir__fail(err, WEIR_EMISUSE,
                          "the session was opened before this process was forked; open another");
    }
    if (s->file->writer.db == NULL) {
        return weir__fail(err, WEIR_EUNAVAILABLE,
                          "the connection was closed when memory ran out; open another session");
    }
    database->at_rest = false;
    database->stop = s->base.stop;
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    database->deadline_us =
        wait_us < 0 || wait_us > INT64_MAX - now_us ? INT64_MAX : now_us + wait_us;
    return WEIR_OK;
}

static void session_leave(sqlite_session *s)
{
    sqlite_base *file = s->file;
    if (file == NULL || file->writer.db == NULL) {
        return;
    }
    const bool idle = sqlite3_get_autocommit(file->writer.db) != 0;
    if (idle) {
        weir__table_base_committed(file);
    }
    file->database.at_rest = idle;
}

/* What failed, in the words of this port. */
static weir_status sqlite_failed(sqlite_session *s, weir_error *err, const char *what)
{
    sqlite_conn *conn = conn_of(s);
    const int rc = sqlite3_extended_errcode(conn->db);
    const weir_status status = weir__sqlite_fail(conn, rc, err, what);
    if (rc == SQLITE_BUSY_SNAPSHOT) {
        return weir__wrap(err, WEIR_ECONFLICT, "another has written since the transaction began");
    }
    if (status == WEIR_EBUSY && weir__stop_is_set(s->base.stop)) {
        return weir__table_stopped(err);
    }
    return status == WEIR_EBUSY ? weir__wrap(err, WEIR_EHELD, "someone else is writing") : status;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* $1 is a name to SQLite, which it looks for among all others, each time: ten thousand of them take
 * seconds. ?1 is a number. EINVAL: a parameter that is neither, and so has no value. */
static weir_status number_parameters(weir_buffer *out, const char *sql, size_t values_count,
                                     weir_error *err)
{
    const weir_str text = weir__str(sql);
    bool ok = true;
    for (size_t at = 0; at < text.len && ok;) {
        const sql_part part = weir__sql_part(text, at, SQL_FLAVOR_SQLITE);
        if (part.kind == SQL_PART_BYTE && strchr("$?:@#", sql[at]) != NULL) {
            const size_t digits = strspn(sql + at + 1, "0123456789");
            int64_t number = 0;
            if (sql[at] != '$' ||
                !weir__str_to_i64((weir_str){ .ptr = sql + at + 1, .len = digits }, &number) ||
                number < 1 || (uint64_t)number > values_count) {
                return weir__fail(err, WEIR_EINVAL,
                                  "there is no value for the parameter at \"%.20s\"", sql + at);
            }
            ok = weir__buffer_add_text(out, "?") && weir__buffer_add(out, sql + at + 1, digits);
            at += 1 + digits;
            continue;
        }
        ok = weir__buffer_add(out, sql + at, part.len);
        at += part.len;
    }
    return ok && weir__buffer_add(out, "", 1)
               ? WEIR_OK
               : weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
}

static weir_status sqlite_prepare(sqlite_session *s, const char *sql, sqlite3_stmt **out,
                                  weir_error *err)
{
    sqlite_conn *conn = conn_of(s);
    const char *tail = NULL;
    sqlite3_stmt *more = NULL;
    if (sqlite3_prepare_v3(conn->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, &tail) != SQLITE_OK) {
        return sqlite_failed(s, err, "prepare a statement");
    }
    const int rc = sqlite3_prepare_v2(conn->db, tail, -1, &more, NULL);
    if (*out == NULL || rc != SQLITE_OK || more != NULL) {
        const weir_status status = weir__fail(err, WEIR_EINVAL, "there is %s statement in \"%s\"",
                                              *out == NULL ? "no" : "more than one", sql);
        (void)sqlite3_finalize(more);
        (void)sqlite3_finalize(*out);
        *out = NULL;
        return status;
    }
    return WEIR_OK;
}

/* The statement of a text; kept for the next time. SQLite prepares it anew by itself when a table
 * has changed since. */
static weir_status statement_of(sqlite_session *s, const char *sql, size_t values_count,
                                sqlite3_stmt **out, weir_error *err)
{
    weir_buffer numbered = { 0 };
    sqlite3_stmt *stmt = weir__sqlite_text_find(conn_of(s), sql);
    weir_status status = WEIR_OK;
    if (stmt == NULL) {
        status = number_parameters(&numbered, sql, values_count, err);
        if (status == WEIR_OK) {
            status = sqlite_prepare(s, numbered.ptr, &stmt, err);
        }
        weir__buffer_free(&numbered);
        if (status == WEIR_OK && !weir__sqlite_text_keep(conn_of(s), sql, stmt)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
        }
    }
    if (status == WEIR_OK) {
        *out = stmt;
    }
    return status;
}

static int bind_one(sqlite3_stmt *stmt, int index, const table_value *value)
{
    const char *text = value->text.len == 0 ? "" : value->text.ptr; /* NULL would be NULL */
    switch (value->kind) {
    case TABLE_NULL:
        return sqlite3_bind_null(stmt, index);
    case TABLE_INTEGER:
        return sqlite3_bind_int64(stmt, index, value->number);
    case TABLE_TEXT:
        return sqlite3_bind_text64(stmt, index, text, value->text.len, SQLITE_STATIC, SQLITE_UTF8);
    case TABLE_BYTES:
        return sqlite3_bind_blob64(stmt, index, text, value->text.len, SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

static weir_status sqlite_bind(sqlite_session *s, sqlite3_stmt *stmt,
                               const table_statement *statement, weir_error *err)
{
    const size_t count = (size_t)sqlite3_bind_parameter_count(stmt);
    if (count > statement->values_count) {
        return weir__fail(err, WEIR_EINVAL, "the statement has %zu parameters and %zu values",
                          count, statement->values_count);
    }
    for (size_t i = 0; i < count; i++) {
        if (bind_one(stmt, (int)i + 1, &statement->values[i]) != SQLITE_OK) {
            return sqlite_failed(s, err, "bind a value");
        }
    }
    return WEIR_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* As few digits as make the same number again; never with a comma, whatever the locale. */
static void real_text(double value, char *out, size_t bytes)
{
    enum { DIGITS_LEAST = 15, DIGITS_MOST = 17 };
    bool plain = true;
    if (isinf(value)) {
        (void)snprintf(out, bytes, "%s", value < 0 ? "-Infinity" : "Infinity");
        return;
    }
    for (int digits = DIGITS_LEAST; digits <= DIGITS_MOST; digits++) {
        (void)snprintf(out, bytes, "%.*g", digits, value);
        if (strtod(out, NULL) == value) {
            break;
        }
    }
    size_t len = 0;
    for (; out[len] != '\0'; len++) {
        const bool digit = out[len] >= '0' && out[len] <= '9';
        if (!digit && strchr("+-e", out[len]) == NULL) {
            out[len] = '.';
        }
        plain = plain && (digit || out[len] == '-');
    }
    if (plain) {
        (void)snprintf(out + len, bytes - len, ".0"); /* still to be seen that it is no integer */
    }
}

static bool is_json_type(const char *declared)
{
    return declared != NULL &&
           (strcasecmp(declared, "json") == 0 || strcasecmp(declared, "jsonb") == 0);
}

static bool is_json(weir_str text)
{
    weir_buffer out = { 0 };
    const bool valid = weir__json_compact(text, &out, NULL, NULL) == WEIR_OK;
    weir__buffer_free(&out);
    return valid;
}

static bool copy_cell(sqlite3_stmt *stmt, int column, weir_arena *arena, table_cell *cell)
{
    char real[40];
    const void *ptr = "";
    const int type = sqlite3_column_type(stmt, column);
    *cell = (table_cell){ .null = type == SQLITE_NULL };
    if (type == SQLITE_NULL) {
        return true;
    }
    if (type == SQLITE_FLOAT) {
        real_text(sqlite3_column_double(stmt, column), real, sizeof real);
        cell->text.len = strlen(real);
        ptr = real;
    } else {
        /* The text first, then its length: a database may be in UTF-16. */
        ptr = type == SQLITE_BLOB ? sqlite3_column_blob(stmt, column)
                                  : (const void *)sqlite3_column_text(stmt, column);
        cell->text.len = (size_t)sqlite3_column_bytes(stmt, column);
        if (ptr == NULL && cell->text.len == 0 && type == SQLITE_BLOB) {
            ptr = "";
        }
    }
    cell->text.ptr = ptr == NULL ? NULL : weir__arena_copy(arena, ptr, cell->text.len);
    if (type == SQLITE_BLOB) {
        cell->shape = TABLE_SHAPE_BYTES;
    } else if (type == SQLITE_TEXT) {
        cell->shape = cell->text.ptr != NULL &&
                              is_json_type(sqlite3_column_decltype(stmt, column)) &&
                              is_json(cell->text)
                          ? TABLE_SHAPE_JSON
                          : TABLE_SHAPE_TEXT;
    } else {
        cell->shape = TABLE_SHAPE_NUMBER;
    }
    return cell->text.ptr != NULL;
}

/* The cells of a result while it grows. */
typedef struct growing {
    table_cell *cells; /* in the arena */
    size_t rows, capacity;
} growing;

static bool add_row(sqlite3_stmt *stmt, table_result *r, growing *g)
{
    if (g->rows == g->capacity) {
        const size_t capacity = g->capacity == 0 ? ROWS_FIRST : g->capacity * 2;
        size_t count;
        size_t bytes;
        if (__builtin_mul_overflow(capacity, r->columns_count, &count) ||
            __builtin_mul_overflow(count, sizeof *g->cells, &bytes)) {
            return false;
        }
        table_cell *cells = weir__arena_alloc(&r->arena, bytes);
        if (cells == NULL) {
            return false;
        }
        if (g->rows > 0) {
            memcpy(cells, g->cells, g->rows * r->columns_count * sizeof *cells);
        }
        g->cells = cells;
        g->capacity = capacity;
    }
    table_cell *row = g->cells + g->rows * r->columns_count;
    bool ok = true;
    for (size_t i = 0; i < r->columns_count && ok; i++) {
        ok = copy_cell(stmt, (int)i, &r->arena, &row[i]);
    }
    g->rows += ok ? 1 : 0;
    return ok;
}

static bool copy_names(sqlite3_stmt *stmt, table_result *r)
{
    const size_t count = (size_t)sqlite3_column_count(stmt);
    weir_str *names = weir__arena_alloc(&r->arena, (count + 1) * sizeof *names);
    bool ok = names != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        const char *name = sqlite3_column_name(stmt, (int)i);
        names[i].len = name == NULL ? 0 : strlen(name);
        names[i].ptr = name == NULL ? NULL : weir__arena_copy(&r->arena, name, names[i].len);
        ok = names[i].ptr != NULL;
    }
    r->names = names;
    r->columns_count = ok ? count : 0;
    return ok;
}

static weir_status step_all(sqlite_session *s, sqlite3_stmt *stmt, table_result *r, weir_error *err)
{
    growing rows = { 0 };
    /* Before anything is done: what is done is not undone because its names have no room. */
    bool fits = r == NULL || copy_names(stmt, r);
    (void)sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_REPREPARE, 1);
    int rc = fits ? sqlite3_step(stmt) : SQLITE_NOMEM;
    if (r != NULL && rc == SQLITE_ROW &&
        sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_REPREPARE, 0) > 0) {
        fits =
            copy_names(stmt, r); /* a table has changed: SELECT * has other columns than before */
    }
    while (rc == SQLITE_ROW && fits) {
        fits = r == NULL || add_row(stmt, r, &rows);
        /* To the end: a statement that writes has written only then. */
        rc = fits ? sqlite3_step(stmt) : SQLITE_NOMEM;
    }
    if (!fits) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the rows of a result");
    }
    if (rc != SQLITE_DONE) {
        return sqlite_failed(s, err, "run a statement");
    }
    if (r != NULL) {
        r->cells = rows.cells;
        r->rows_count = rows.rows;
    }
    return WEIR_OK;
}

/* ---- the port -------------------------------------------------------------------------------- */

static weir_status sqlite_run(table_session *base, const table_statement *statement,
                              table_result *result, weir_error *err)
{
    sqlite_session *s = session_of(base);
    sqlite3_stmt *stmt = NULL;
    weir_status status = session_enter(s, statement->wait_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3 *db = conn_of(s)->db;
    const int before = sqlite3_total_changes(db);
    status = statement_of(s, statement->sql, statement->values_count, &stmt, err);
    if (status == WEIR_OK) {
        status = sqlite_bind(s, stmt, statement, err);
    }
    if (status == WEIR_OK) {
        status = step_all(s, stmt, result, err);
    }
    /* What other statements have changed is still in sqlite3_changes when this one changes
     * nothing. */
    const bool wrote = status == WEIR_OK && sqlite3_total_changes(db) != before;
    weir__sqlite_done(stmt); /* a statement that was left in the middle is undone */
    if (status != WEIR_OK) {
        weir__table_result_clear(result);
    } else if (result != NULL) {
        result->changed = wrote ? sqlite3_changes(db) : 0;
    }
    session_leave(s);
    return status;
}

static bool in_transaction(table_session *base)
{
    const sqlite_conn *conn = conn_of(session_of(base));
    return conn->db != NULL && sqlite3_get_autocommit(conn->db) == 0;
}

static weir_status sqlite_begin(table_session *base, weir_error *err)
{
    sqlite_session *s = session_of(base);
    weir_status status = session_enter(s, s->db->base.url.options.busy_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (sqlite3_exec(conn_of(s)->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) {
        status = sqlite_failed(s, err, "begin a transaction");
    }
    session_leave(s);
    return status;
}

static void sqlite_rollback(table_session *base)
{
    sqlite_session *s = session_of(base);
    if (in_transaction(base) && session_enter(s, 0, NULL) == WEIR_OK) {
        weir__sqlite_conn_rollback(&s->file->writer);
        session_leave(s);
    }
}

static weir_status sqlite_commit(table_session *base, weir_error *err)
{
    sqlite_session *s = session_of(base);
    if (!in_transaction(base)) {
        return weir__fail(err, WEIR_EMISUSE, "no transaction is open: nothing was committed");
    }
    weir_status status = session_enter(s, s->db->base.url.options.busy_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (sqlite3_exec(conn_of(s)->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        status = sqlite_failed(s, err, "commit");
    }
    session_leave(s);
    if (status != WEIR_OK) {
        sqlite_rollback(base); /* readers may have kept the commit out: then it is open still */
    }
    return status;
}

static void *sqlite_native(table_session *base)
{
    return conn_of(session_of(base))->db;
}

/* ---- what a table looks like ----------------------------------------------------------------- */

static int64_t cell_number(const table_result *r, size_t row, size_t column)
{
    int64_t number = 0;
    (void)weir__str_to_i64(weir__table_cell_text(r, row, column), &number);
    return number;
}

static weir_status sqlite_ask(sqlite_session *s, const char *sql, weir_str first, weir_str second,
                              table_result *r, weir_error *err)
{
    const table_value values[] = {
        { .kind = TABLE_TEXT, .text = first },
        { .kind = second.ptr == NULL ? TABLE_NULL : TABLE_TEXT, .text = second },
    };
    const table_statement statement = {
        .sql = sql,
        .values = values,
        .values_count = 2,
        .wait_us = s->db == NULL ? 0 : s->db->base.url.options.busy_us,
    };
    return weir__table_run(&s->base, &statement, r, err);
}

static weir_status not_found(sqlite_session *s, const table_name *name, table_result *r,
                             weir_error *err)
{
    const weir_status status =
        sqlite_ask(s, sql_sqlite_tables, (weir_str){ 0 }, (weir_str){ 0 }, r, err);
    return status == WEIR_OK ? weir__table_not_found(name, r, err) : status;
}

/* The same for everyone who opens the file, in every process. */
static uint64_t id_of(weir_str schema, weir_str name)
{
    weir_sha256 hash;
    uint8_t digest[WEIR_SHA256_BYTES];
    uint64_t id;
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, schema.ptr, schema.len + 1); /* with its NUL: where one ends counts */
    weir__sha256_add(&hash, name.ptr, name.len);
    weir__sha256_end(&hash, digest);
    memcpy(&id, digest, sizeof id);
    return id;
}

static bool copy_columns(const table_result *r, weir_arena *arena, table_column *columns)
{
    bool ok = true;
    for (size_t i = 0; i < r->rows_count && ok; i++) {
        columns[i] = (table_column){ .not_null = cell_number(r, i, 2) != 0,
                                     .key = (size_t)cell_number(r, i, 3),
                                     .generated = cell_number(r, i, 4) != 0 };
        ok = weir__table_copy(arena, weir__table_cell_text(r, i, 0), &columns[i].name) &&
             weir__table_copy(arena, weir__table_cell_text(r, i, 1), &columns[i].type);
    }
    return ok;
}

static weir_status describe_found(sqlite_session *s, weir_str schema, weir_str name,
                                  table_result *r, weir_arena *arena, table_info *t,
                                  weir_error *err)
{
    const weir_status status = sqlite_ask(s, sql_sqlite_columns, name, schema, r, err);
    if (status != WEIR_OK) {
        return status;
    }
    table_column *columns = weir__arena_alloc(arena, (r->rows_count + 1) * sizeof *columns);
    if (columns == NULL || !copy_columns(r, arena, columns)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate what a table looks like");
    }
    t->columns_count = r->rows_count;
    return weir__table_finish(t, columns, schema, name, arena, err);
}

static weir_status sqlite_describe(table_session *base, const table_name *name, weir_arena *arena,
                                   table_info *out, weir_error *err)
{
    sqlite_session *s = session_of(base);
    table_result r = { 0 };
    table_info t = { 0 };
    weir_str schema;
    weir_str found;
    weir_buffer shown = { 0 };
    weir_status status = sqlite_ask(s, sql_sqlite_find, name->name, name->schema, &r, err);
    if (status == WEIR_OK && r.rows_count == 0) {
        status = not_found(s, name, &r, err);
    }
    if (status != WEIR_OK) {
        goto out;
    }
    const bool in_main = weir__str_equal(weir__table_cell_text(&r, 0, 0), weir__str("main"));
    if (!weir__table_copy(arena, weir__table_cell_text(&r, 0, 0), &schema) ||
        !weir__table_copy(arena, weir__table_cell_text(&r, 0, 1), &found) ||
        (!in_main && !(weir__buffer_add(&shown, schema.ptr, schema.len) &&
                       weir__buffer_add_text(&shown, "."))) ||
        !weir__buffer_add(&shown, found.ptr, found.len) ||
        !weir__table_copy(arena, (weir_str){ .ptr = shown.ptr, .len = shown.len }, &t.shown)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate what a table looks like");
        goto out;
    }
    t.id = id_of(schema, found);
    const weir_str type = weir__table_cell_text(&r, 0, 2);
    if (!weir__str_equal(type, weir__str("table"))) {
        const bool view = weir__str_equal(type, weir__str("view"));
        status = weir__table_wrong_kind(&t, view ? "a view" : "a virtual table", err);
        goto out;
    }
    status = describe_found(s, schema, found, &r, arena, &t, err);
    if (status == WEIR_OK) {
        *out = t;
    }
out:
    weir__buffer_free(&shown);
    weir__table_result_free(&r);
    return status;
}

/* Tables in temp or in what was attached are not counted: nothing is on connections of ours. */
static weir_status sqlite_version(table_session *base, int64_t *out, weir_error *err)
{
    sqlite_session *s = session_of(base);
    table_result r = { 0 };
    const weir_status status =
        sqlite_ask(s, sql_sqlite_version, (weir_str){ 0 }, (weir_str){ 0 }, &r, err);
    if (status == WEIR_OK) {
        *out = cell_number(&r, 0, 0);
    }
    weir__table_result_free(&r);
    return status;
}

/* ---- sessions and databases ------------------------------------------------------------------ */

static void db_close(table_db *base)
{
    sqlite_db *db = db_of(base);
    WEIR_ASSERT(!db->taken);
    if (db->memory != NULL) {
        weir__table_base_close(db->memory);
    }
    weir__cond_destroy(&db->released);
    weir__mutex_destroy(&db->mu);
    weir__table_db_free(base);
}

/* The one connection of a database in memory, when it is this session's turn. */
static weir_status take_memory(sqlite_db *db, weir_error *err)
{
    const int64_t deadline_us =
        weir__clock_mono(weir__clock_machine()) + db->base.url.options.busy_us;
    weir_status status = WEIR_OK;
    bool in_time = true;
    weir__lock(&db->mu);
    while (db->taken && in_time) {
        in_time = weir__cond_wait_until(&db->released, &db->mu, deadline_us);
    }
    if (db->taken) {
        status = weir__fail(err, WEIR_EBUSY,
                            "the database in memory is in use by another session of this process");
    } else if (db->memory == NULL) {
        store_options options = db->base.url.options;
        options.path = (weir_str){ 0 };
        status = weir__table_base_open(&db->memory, &options, err);
    }
    db->taken = db->taken || status == WEIR_OK;
    weir__unlock(&db->mu);
    return status;
}

static void session_close(table_session *base)
{
    sqlite_session *s = session_of(base);
    if (s->file != NULL && s->file->database.inherited) {
        return; /* in a forked child it is the parent's */
    }
    if (!base->adopted) {
        sqlite_rollback(base);
    }
    weir__sqlite_statements_free(&s->given); /* ours on the caller's connection */
    if (s->db != NULL && s->db->in_memory) {
        weir__lock(&s->db->mu);
        s->db->taken = false;
        weir__cond_signal(&s->db->released);
        weir__unlock(&s->db->mu);
    } else if (s->file != NULL) {
        weir__table_base_close(s->file);
    }
    weir__free(s);
}

static weir_status session_new(sqlite_session **out, weir_error *err)
{
    sqlite_session *s = weir__calloc(1, sizeof *s);
    if (s == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a session");
    }
    s->base.ops = &weir__table_sqlite_ops;
    *out = s;
    return WEIR_OK;
}

static weir_status session_open(table_db *base, table_session **out, weir_error *err)
{
    sqlite_db *db = db_of(base);
    sqlite_session *s = NULL;
    weir_status status = session_new(&s, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (db->in_memory) {
        status = take_memory(db, err);
        s->file = db->memory;
    } else {
        status = weir__table_base_open(&s->file, &base->url.options, err);
    }
    if (status != WEIR_OK) {
        weir__free(s);
        return status;
    }
    s->db = db;
    *out = &s->base;
    return WEIR_OK;
}

weir_status weir__table_sqlite_adopt(table_session **out, void *given, weir_error *err)
{
    sqlite_session *s = NULL;
    const weir_status status = session_new(&s, err);
    if (status == WEIR_OK) {
        s->given.db = given;
        s->base.adopted = true;
        *out = &s->base;
    }
    return status;
}

weir_status weir__table_sqlite_open(table_db **out, store_url *url, weir_error *err)
{
    sqlite_db *db = weir__calloc(1, sizeof *db);
    if (db == NULL || !weir__mutex_init(&db->mu)) {
        goto fail;
    }
    if (!weir__cond_init(&db->released)) {
        weir__mutex_destroy(&db->mu);
        goto fail;
    }
    db->base.ops = &weir__table_sqlite_ops;
    db->in_memory = strcmp(url->scheme, "memory") == 0;
    db->base.url = *url;
    *url = (store_url){ 0 };
    *out = &db->base;
    return WEIR_OK;
fail:
    weir__free(db);
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a database handle");
}

const table_ops weir__table_sqlite_ops = {
    .dialect = TABLE_SQLITE,
    .session_open = session_open,
    .session_close = session_close,
    .db_close = db_close,
    .native = sqlite_native,
    .in_transaction = in_transaction,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .run = sqlite_run,
    .describe = sqlite_describe,
    .version = sqlite_version,
};
