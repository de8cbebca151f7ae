/* schema.c - making, upgrading and refusing stores.
 *
 * Everything here runs under the side lock, so what was seen is still so when it is acted upon, and
 * of two processes that come at once the second finds the work done. Making and upgrading are one
 * transaction each: a crash leaves what was there before. The switch to WAL comes first and apart;
 * a crash after it leaves a database without a table, which counts as new.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "store/sqlite/schema_sql.h"
#include "store/sqlite/sqlite_private.h"

#include <inttypes.h>
#include <stdio.h>

/* Each step is a file, schema_2.sql and so on, and never changes once it is released. */
static const sqlite_upgrade schema_steps[] = {
    { .to = 2, .sql = sql_schema_2 },
    { .to = 3, .sql = sql_schema_3 },
};

static const sqlite_schema schema_current = {
    .version = SQLITE_SCHEMA_VERSION,
    .steps = schema_steps,
    .steps_count = sizeof schema_steps / sizeof schema_steps[0],
};

static const sqlite_schema *_Atomic schema_pretended;

const sqlite_schema *weir__sqlite_schema(void)
{
    const sqlite_schema *pretended = atomic_load(&schema_pretended);
    return pretended != NULL ? pretended : &schema_current;
}

void weir__sqlite_schema_pretend(const sqlite_schema *schema)
{
    atomic_store(&schema_pretended, schema);
}

typedef enum found_kind {
    FOUND_NOTHING, /* no file, an empty one, or a database without a table */
    FOUND_FOREIGN, /* somebody's database                                  */
    FOUND_STORE,
} found_kind;

typedef struct found_store {
    found_kind kind;
    int64_t version; /* 0: no store */
    bool workers;    /* it has weir_workers */
    bool counts;     /* and what they count */
    bool locks;      /* it has weir_locks */
} found_store;

static bool up_to_date(const sqlite_store *s, const found_store *found)
{
    return found->version == s->schema->version && found->counts && found->locks;
}

/* One number, or two, from a query without parameters. */
static weir_status query_numbers(sqlite_conn *conn, const char *sql, int64_t *first,
                                 int64_t *second, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    if (weir__cursor_next(&cursor)) {
        *first = weir__cursor_i64(&cursor, 0);
        if (second != NULL) {
            *second = weir__cursor_i64(&cursor, 1);
        }
    } else if (cursor.status == WEIR_OK) {
        weir__cursor_fail(&cursor, weir__fail(err, WEIR_ECORRUPT,
                                              "the store has lost its own row in weir_store"));
    }
    return weir__cursor_end(&cursor);
}

static weir_status store_look(sqlite_store *s, sqlite_conn *conn, found_store *found,
                              weir_error *err)
{
    int64_t any = 0;
    int64_t store = 0;
    int64_t workers = 0;
    int64_t counts = 0;
    int64_t locks = 0;
    weir_status status = query_numbers(conn, sql_schema_look, &any, &store, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "open \"%s\"", s->given);
    }
    *found = (found_store){ .kind = store != 0 ? FOUND_STORE
                                    : any != 0 ? FOUND_FOREIGN
                                               : FOUND_NOTHING };
    if (store != 0) {
        status = query_numbers(conn, sql_schema_version, &found->version, NULL, err);
    }
    if (status == WEIR_OK && store != 0) {
        status = query_numbers(conn, sql_schema_has_workers, &workers, &counts, err);
        found->workers = workers != 0;
        found->counts = counts != 0;
    }
    if (status == WEIR_OK && store != 0) {
        status = query_numbers(conn, sql_schema_has_locks, &locks, NULL, err);
        found->locks = locks != 0;
    }
    return status;
}

static weir_status refuse_missing(sqlite_store *s, weir_error *err)
{
    return weir__fail(err, WEIR_ENOTFOUND, "no store at \"%s\"", s->given);
}

static weir_status refuse_foreign(sqlite_store *s, weir_error *err)
{
    const weir_status status = weir__fail(
        err, WEIR_EINVAL, "\"%s\" is an SQLite database without a store in it", s->given);
    weir__error_detail(err, "Run weir init --adopt to add a store to this database.");
    return status;
}

static weir_status refuse_newer(sqlite_store *s, int64_t version, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_ENEWER,
                   "\"%s\" has schema %" PRId64 ", this library knows schema %" PRId64 " and older",
                   s->given, version, s->schema->version);
    weir__error_detail(err, "The store was written by a newer version of Weir; use that one.");
    return status;
}

static weir_status set_version(sqlite_conn *conn, int64_t version, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_schema_set_version, err);
    weir__cursor_bind_i64(&cursor, 1, version);
    return weir__cursor_run(&cursor);
}

/* The steps above `from`, inside the caller's transaction. */
static weir_status run_steps(sqlite_store *s, int64_t from, weir_error *err)
{
    for (size_t i = 0; i < s->schema->steps_count; i++) {
        const sqlite_upgrade *step = &s->schema->steps[i];
        if (step->to <= from) {
            continue;
        }
        weir_status status = weir__sqlite_exec(&s->writer, step->sql, err);
        if (status == WEIR_OK) {
            status = set_version(&s->writer, step->to, err);
        }
        if (status != WEIR_OK) {
            return weir__wrap(err, status, "upgrade the store to schema %" PRId64, step->to);
        }
    }
    return WEIR_OK;
}

/* What of these a store has not; a new one has none. */
static weir_status run_additions(sqlite_conn *conn, const found_store *found, weir_error *err)
{
    weir_status status = WEIR_OK;
    if (!found->workers) {
        status = weir__sqlite_exec(conn, sql_workers_schema, err);
    }
    if (status == WEIR_OK && !found->counts) {
        status = weir__sqlite_exec(conn, sql_counts_schema, err);
    }
    return status == WEIR_OK && !found->locks ? weir__sqlite_exec(conn, sql_locks_schema, err)
                                              : status;
}

/* All tables of schema 1. */
static weir_status run_tables(sqlite_conn *conn, weir_error *err)
{
    weir_status status = weir__sqlite_exec(conn, sql_schema, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_exec(conn, sql_targets_schema, err);
    }
    return status == WEIR_OK ? run_additions(conn, &(found_store){ 0 }, err) : status;
}

static weir_status run_create(sqlite_store *s, weir_error *err)
{
    sqlite_conn *conn = &s->writer;
    char epoch[WEIR_UUID_TEXT_BYTES];
    const int64_t now_us = weir__sqlite_clock(s, 0);

    const weir_status status = run_tables(conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__uuid7(now_us, epoch);
    sqlite_cursor cursor = weir__cursor_open(conn, sql_schema_new_row, err);
    weir__cursor_bind_i64(&cursor, 1, SQLITE_SCHEMA_FIRST);
    weir__cursor_bind_text(&cursor, 2, weir__str(epoch));
    weir__cursor_bind_i64(&cursor, 3, now_us);
    return weir__cursor_run(&cursor);
}

/* Everything between BEGIN and COMMIT: from what was found to our schema. */
static weir_status schema_change(sqlite_store *s, const found_store *found, weir_error *err)
{
    int64_t from = found->version;
    weir_status status = weir__sqlite_exec(&s->writer, "BEGIN IMMEDIATE", err);
    if (status != WEIR_OK) {
        return status;
    }
    if (from == 0) {
        status = run_create(s, err);
        from = SQLITE_SCHEMA_FIRST;
    } else {
        status = run_additions(&s->writer, found, err);
    }
    if (status == WEIR_OK) {
        status = run_steps(s, from, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_exec(&s->writer, "COMMIT", err);
    }
    if (status != WEIR_OK && sqlite3_get_autocommit(s->writer.db) == 0) {
        weir__sqlite_statements_reset(&s->writer);
        (void)weir__sqlite_exec(&s->writer, "ROLLBACK", NULL);
    }
    return status;
}

/* Also for a store that is there: a tool may have switched it to another journal. */
static weir_status ensure_wal(sqlite_store *s, weir_error *err)
{
    static const char sql_to_wal[] = "PRAGMA main.journal_mode=WAL";
    sqlite_cursor cursor = weir__cursor_open(&s->writer, sql_to_wal, err);
    const bool row = weir__cursor_next(&cursor);
    const bool wal = row && weir__str_equal(weir__cursor_text(&cursor, 0), weir__str("wal"));
    weir_status status = weir__cursor_end(&cursor);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "switch \"%s\" to a write-ahead log", s->given);
    }
    if (!wal) {
        status =
            weir__fail(err, WEIR_EIO, "could not switch \"%s\" to a write-ahead log", s->given);
        weir__error_detail(err, "Its file system or VFS cannot share memory between processes.");
    }
    return status;
}

weir_status weir__sqlite_schema_prepare(sqlite_store *s, bool *made, weir_error *err)
{
    WEIR_ASSERT(s->side.held);
    const uint32_t flags = s->options.open_flags;
    found_store found = { .kind = FOUND_NOTHING };

    *made = false;
    weir_status status = store_look(s, &s->writer, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (found.kind == FOUND_NOTHING && (flags & WEIR_OPEN_EXISTING) != 0) {
        return refuse_missing(s, err);
    }
    if (found.kind == FOUND_FOREIGN && (flags & WEIR_OPEN_ADOPT) == 0) {
        return refuse_foreign(s, err);
    }
    if (found.version > s->schema->version) {
        return refuse_newer(s, found.version, err);
    }
    if (found.kind == FOUND_NOTHING) {
        status = weir__sqlite_exec(&s->writer, "PRAGMA page_size=4096", err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    status = ensure_wal(s, err);
    if (status != WEIR_OK || up_to_date(s, &found)) {
        return status;
    }
    status = schema_change(s, &found, err);
    if (status != WEIR_OK) {
        return weir__wrap(err, status,
                          found.version == 0 ? "create a store in \"%s\"" : "upgrade \"%s\"",
                          s->given);
    }
    *made = found.version == 0;
    s->base.opened = *made ? STORE_MADE : STORE_UPGRADED;
    return WEIR_OK;
}

weir_status weir__sqlite_schema_verify(sqlite_store *s, sqlite_conn *conn, weir_error *err)
{
    found_store found = { .kind = FOUND_NOTHING };
    const weir_status status = store_look(s, conn, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (found.kind == FOUND_NOTHING) {
        return refuse_missing(s, err);
    }
    if (found.kind == FOUND_FOREIGN) {
        return refuse_foreign(s, err);
    }
    if (found.version > s->schema->version) {
        return refuse_newer(s, found.version, err);
    }
    if (found.version < s->schema->version) {
        return weir__fail(err, WEIR_EMISUSE,
                          "\"%s\" has schema %" PRId64 ", which must be upgraded to %" PRId64
                          " by opening it once for writing",
                          s->given, found.version, s->schema->version);
    }
    if (!found.counts || !found.locks) {
        return weir__fail(err, WEIR_EMISUSE,
                          "\"%s\" is of an earlier Weir and must be upgraded by opening it once "
                          "for writing",
                          s->given);
    }
    return WEIR_OK;
}

/* Ends a statement that is one of several in a text. */
static bool add_sql(weir_buffer *out, const char *sql)
{
    return weir__buffer_add_text(out, sql) && weir__buffer_add_text(out, "\n");
}

static bool add_additions(const found_store *found, weir_buffer *out)
{
    return (found->workers || add_sql(out, sql_workers_schema)) &&
           (found->counts || add_sql(out, sql_counts_schema)) &&
           (found->locks || add_sql(out, sql_locks_schema));
}

static bool add_creation(sqlite_store *s, weir_buffer *out)
{
    char epoch[WEIR_UUID_TEXT_BYTES];
    char row[256];
    const int64_t now_us = weir__sqlite_clock(s, 0);
    weir__uuid7(now_us, epoch);
    (void)snprintf(row, sizeof row,
                   "INSERT INTO weir_store (one, schema, epoch, created, clock_us)\n"
                   "VALUES (1, %d, '%s', %" PRId64 ", %" PRId64 ");",
                   SQLITE_SCHEMA_FIRST, epoch, now_us, now_us);
    return add_sql(out, sql_schema) && add_sql(out, sql_targets_schema) &&
           add_additions(&(found_store){ 0 }, out) && add_sql(out, row);
}

static bool add_steps(const sqlite_store *s, int64_t from, weir_buffer *out)
{
    for (size_t i = 0; i < s->schema->steps_count; i++) {
        const sqlite_upgrade *step = &s->schema->steps[i];
        char row[64];
        (void)snprintf(row, sizeof row, "UPDATE weir_store SET schema = %" PRId64 ";", step->to);
        if (step->to > from && (!add_sql(out, step->sql) || !add_sql(out, row))) {
            return false;
        }
    }
    return true;
}

weir_status weir__sqlite_schema_plan(sqlite_store *s, sqlite_conn *conn, weir_buffer *out,
                                     weir_error *err)
{
    const uint32_t flags = s->options.open_flags;
    found_store found = { .kind = FOUND_NOTHING };
    if (conn != NULL) {
        const weir_status status = store_look(s, conn, &found, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (found.kind == FOUND_NOTHING && (flags & (WEIR_OPEN_EXISTING | WEIR_OPEN_READONLY)) != 0) {
        return refuse_missing(s, err);
    }
    if (found.kind == FOUND_FOREIGN && (flags & WEIR_OPEN_ADOPT) == 0) {
        return refuse_foreign(s, err);
    }
    if (found.version > s->schema->version) {
        return refuse_newer(s, found.version, err);
    }
    if (up_to_date(s, &found)) {
        return WEIR_OK;
    }
    bool ok = found.version != 0 ||
              ((found.kind != FOUND_NOTHING || add_sql(out, "PRAGMA page_size = 4096;")) &&
               add_sql(out, "PRAGMA journal_mode = WAL;"));
    ok = ok && add_sql(out, "BEGIN IMMEDIATE;");
    ok = ok && (found.version != 0 || add_creation(s, out));
    ok = ok && (found.version == 0 || add_additions(&found, out));
    ok = ok && add_steps(s, found.version == 0 ? SQLITE_SCHEMA_FIRST : found.version, out);
    ok = ok && add_sql(out, "COMMIT;");
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate memory for the schema");
}

/* Everything a store should have, in a database of its own in memory. */
weir_status weir__sqlite_schema_build(sqlite_store *s, sqlite_conn *conn, weir_error *err)
{
    weir_status status = run_tables(conn, err);
    for (size_t i = 0; i < s->schema->steps_count && status == WEIR_OK; i++) {
        status = weir__sqlite_exec(conn, s->schema->steps[i].sql, err);
    }
    return status;
}
