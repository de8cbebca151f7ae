/* table.h - the port to a database that holds somebody else's tables.
 *
 * Claims, locks and races work on tables that Weir did not make, in databases in which it has
 * installed nothing. This is all they know of such a database: sessions that run one statement at a
 * time, and what a table looks like. Which SQL a database understands is said by its dialect; the
 * SQL itself is written by who asks (claim/).
 *
 * What must stay true
 *   (1) Values are parameters, names are identifiers: nothing given by a user becomes SQL, but what
 *       is documented to be SQL (a --where).
 *   (2) A statement outside of begin and commit is durable when it has returned, whatever the
 *       database or its role was set to.
 *   (3) A statement that was sent and not answered is WEIR_EUNKNOWN, never repeated here. Inside of
 *       begin and commit it is known that it did not happen: WEIR_EUNAVAILABLE.
 *   (4) Results do not depend on how a session or its role was set up (time zone, date style, ...).
 *
 * Ways: postgres://... (a pooler in transaction mode is fine outside of begin and commit, and
 * inside), sqlite:PATH (a file that exists; never made here), memory: (an SQLite database of this
 * handle's own, gone with it; its one connection is taken by one session at a time).
 *
 * THREADS  A table_db: any thread. A table_session: one at a time.
 */
#ifndef WEIR_TABLE_TABLE_H
#define WEIR_TABLE_TABLE_H

#include "base/memory.h"
#include "base/stop.h"
#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct table_db table_db;
typedef struct table_session table_session;

typedef enum table_dialect {
    TABLE_POSTGRES = 0,
    TABLE_SQLITE = 1, /* memory: too */
    TABLE_DIALECTS_COUNT,
} table_dialect;

/* ---- values and results ---------------------------------------------------------------------- */

typedef enum table_value_kind {
    TABLE_NULL = 0,
    TABLE_TEXT,    /* in the database's own notation of the type it is used as */
    TABLE_INTEGER, /* `number` */
    TABLE_BYTES,
} table_value_kind;

/* A parameter: $1, $2, ... in every dialect (SQLite's ?1 is written $1 too, and understood). */
typedef struct table_value {
    table_value_kind kind;
    weir_str text; /* TEXT, BYTES; borrowed */
    int64_t number;
} table_value;

/* How a cell is written in JSON. */
typedef enum table_shape {
    TABLE_SHAPE_TEXT = 0, /* a string: text, uuid, enum, inet, interval, ... */
    TABLE_SHAPE_NUMBER,   /* its digits, all of them; NaN and infinities are strings */
    TABLE_SHAPE_BOOL,
    TABLE_SHAPE_JSON,      /* as it is */
    TABLE_SHAPE_BYTES,     /* base64 */
    TABLE_SHAPE_TIME,      /* RFC 3339, UTC: 2026-11-15T10:00:00.123456Z */
    TABLE_SHAPE_TIME_BARE, /* without a zone: 2026-11-15T10:00:00 */
    TABLE_SHAPE_ARRAY,     /* of `element`; nested ones are nested */
} table_shape;

typedef struct table_cell {
    bool null;
    table_shape shape;   /* SQLite decides it for each value, PostgreSQL for each column */
    table_shape element; /* of an array */
    weir_str text;       /* as the database gives it; BYTES: the bytes */
} table_cell;

/* Everything lives in the arena, until the next statement into the same result. Zero at first. */
typedef struct table_result {
    weir_arena arena;
    const weir_str *names; /* of the columns */
    size_t columns_count;
    const table_cell *cells; /* row by row */
    size_t rows_count;
    int64_t changed; /* rows written; 0 when the statement is a SELECT, whatever is in its WITH */
} table_result;

void weir__table_result_free(table_result *r);
/* One flat object: {"id":1,"status":"claimed"}. false: out of memory. columns: how many of them,
 * from the first; SIZE_MAX: all. */
bool weir__table_row_json(const table_result *r, size_t row, size_t columns, weir_buffer *out);
/* A cell as the value that, used as a parameter, is equal to it. */
table_value weir__table_cell_value(const table_cell *cell);

/* ---- what a table looks like --------------------------------------------------------------- */

typedef struct table_column {
    weir_str name;
    weir_str type;   /* for CAST: "timestamp with time zone", "status_enum"; SQLite: as declared,
                        may be empty, and better not used: its CAST makes 2026 of a date */
    weir_str quoted; /* "name" */
    bool not_null;
    bool generated; /* cannot be written */
    size_t key;     /* its place in the primary key, from 1; 0: not in it */
} table_column;

typedef struct table_info {
    weir_str shown;  /* as in messages: public.jobs */
    weir_str quoted; /* as in SQL: "public"."jobs" */
    uint64_t id;     /* of the table: its oid; SQLite: a hash of its name */
    const table_column *columns;
    size_t columns_count;
    const size_t *key; /* indexes of the primary key's columns, in its order */
    size_t key_count;
    bool partitioned;
} table_info;

/* name: NAME or SCHEMA.NAME, in the case in which the database has it; a part with a dot or a quote
 * in it is written as in SQL: "odd.name". Without a schema it is looked for as the session would.
 * ENOTFOUND: no such table, and which ones are near; EINVAL: a view, a foreign table, a table
 * without a primary key, and what to do about it. Everything lives in `arena`. */
weir_status weir__table_describe(table_session *s, weir_str name, weir_arena *arena,
                                 table_info *out, weir_error *err);
/* The same, remembered by the session until another table is asked for; *out is borrowed until
 * then. SQLite, to which "a" is a text when there is no column a, is asked each time whether any
 * table has changed since; PostgreSQL, which refuses what no longer fits, is asked again after
 * 30 s, for columns that are new; inside of a transaction, and on a connection of the caller's
 * own, which may look for tables elsewhere by then, the table is asked for each time.
 * forget: the table may have changed. */
weir_status weir__table_described(table_session *s, weir_str name, const table_info **out,
                                  weir_error *err);
void weir__table_forget(table_session *s);
/* What the last weir__table_described gave, without asking anybody: what a claim that has just
 * returned was made with. NULL: nothing is remembered. */
const table_info *weir__table_known(const table_session *s);
/* A copy that lives in `arena`. false: out of memory. */
bool weir__table_info_copy(const table_info *t, weir_arena *arena, table_info *out);
/* NULL: there is none. */
const table_column *weir__table_column(const table_info *t, weir_str name);
/* Adds an identifier or a literal as the dialect writes it. false: out of memory; NUL in it is the
 * caller's mistake. type: empty, or what a literal is cast to. */
bool weir__table_quote(weir_buffer *out, weir_str identifier);
bool weir__table_literal(weir_buffer *out, table_dialect dialect, const table_value *value,
                         weir_str type);

/* ---- a database and its sessions ------------------------------------------------------------ */

typedef struct table_options {
    const char *url;
    weir_str application; /* shown to others; empty: "weir" */
} table_options;

/* Connects when the first session is opened. EINVAL: the URL. */
weir_status weir__table_open(table_db **out, const table_options *options, weir_error *err);
void weir__table_close(table_db *db); /* no session is open; NULL is a no-op */
table_dialect weir__table_dialect(const table_db *db);

/* A connection of one's own. EUNAVAILABLE, EBUSY, ENOTFOUND (no such file). */
weir_status weir__table_session_open(table_db *db, table_session **out, weir_error *err);
/* What was begun is rolled back. NULL is a no-op. */
void weir__table_session_close(table_session *s);
table_dialect weir__table_session_dialect(const table_session *s);
/* PGconn * or sqlite3 * of the session, for what only one dialect can do. */
void *weir__table_native(table_session *s);
/* While any process has this descriptor open, what the session has locked stays locked. -1: there
 * is none (SQLite: its locks belong to this process). */
int weir__table_session_fd(table_session *s);
/* One on a connection of the caller's own, on which a transaction may be open; closing it leaves
 * that as it is, and so does rollback. begin and commit are EMISUSE. How durable a commit is, and
 * how long SQLite waits for a lock, is the caller's setting. */
weir_status weir__table_session_adopt(table_session **out, table_dialect dialect, void *native,
                                      weir_error *err);
bool weir__table_adopted(const table_session *s);
/* From now on the session heeds `stop` (borrowed, until the session is closed; may be NULL). Once
 * that is set, statements that wait for locks of others are cancelled, and so is any other that
 * takes longer than some seconds: EINTERRUPTED, nothing has happened. Commits are left alone. On
 * SQLite nothing is waited for any more; on a connection of the caller's own, its busy handler
 * decides. */
void weir__table_session_heed(table_session *s, const weir_stop *stop);
/* A transaction is open on the connection. */
bool weir__table_in_transaction(table_session *s);

/* SQLite: BEGIN IMMEDIATE, waiting for others within the busy timeout of the URL. */
weir_status weir__table_begin(table_session *s, weir_error *err);
weir_status weir__table_commit(table_session *s, weir_error *err); /* EUNKNOWN: it may have */
void weir__table_rollback(table_session *s);                       /* none open is fine */

/* One statement. wait_us: for the locks of others, -1: as long as it takes; more than 0: so long,
 * this statement alone (PostgreSQL: lock_timeout, for which a statement outside of a transaction
 * gets one of its own, three round trips; SQLite: its busy timeout); 0: not at all, which on
 * PostgreSQL the SQL itself has to say (SKIP LOCKED, NOWAIT), and which is then one round trip.
 * Answers are waited for so much longer than the URL's timeout (10 min); a statement that takes
 * longer is cancelled (EIO, 57014). result may be NULL.
 * EHELD: a lock was not to be had in time (55P03, SQLITE_BUSY). ECONFLICT: a deadlock or a
 * serialization failure: the whole transaction was undone and is worth another attempt. EIO with
 * store_code: any other refusal. EUNAVAILABLE: the connection was lost before anything was sent, or
 * inside of a transaction: nothing of it has happened. A session that has lost its connection stays
 * without: open another. */
typedef struct table_statement {
    const char *sql; /* one statement, NUL-terminated */
    const table_value *values;
    size_t values_count;
    int64_t wait_us;
    /* It will come again, and what it is best run by does not depend on its values: PostgreSQL gets
     * it prepared, outside of transactions. SQLite keeps all statements anyway. */
    bool again;
} table_statement;
weir_status weir__table_run(table_session *s, const table_statement *statement,
                            table_result *result, weir_error *err);

#endif
