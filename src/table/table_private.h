/* table_private.h - what the files of the table port share: the vtable behind a database and its
 * sessions.
 *
 * table.c checks what is the same everywhere (values, names, misuse) and calls the adapter; an
 * adapter knows one database. Adapters never see an invalid name, a value with a NUL in it, or a
 * begin on a connection that is the caller's own.
 */
#ifndef WEIR_TABLE_TABLE_PRIVATE_H
#define WEIR_TABLE_TABLE_PRIVATE_H

#include "store/url.h"
#include "table/table.h"

/* What a table looks like is asked for again after so long, where nothing tells that it changed. */
enum { TABLE_KNOWN_US = 30 * 1000 * 1000 };

/* A table's name, taken apart. */
typedef struct table_name {
    weir_str schema; /* .ptr NULL: none was given */
    weir_str name;
} table_name;

typedef struct table_ops {
    table_dialect dialect;
    weir_status (*session_open)(table_db *db, table_session **out, weir_error *err);
    void (*session_close)(table_session *s);
    void (*db_close)(table_db *db);
    void *(*native)(table_session *s);
    int (*fd)(table_session *s); /* NULL: none */
    bool (*in_transaction)(table_session *s);
    weir_status (*begin)(table_session *s, weir_error *err);
    weir_status (*commit)(table_session *s, weir_error *err);
    void (*rollback)(table_session *s);
    weir_status (*run)(table_session *s, const table_statement *statement, table_result *result,
                       weir_error *err);
    weir_status (*describe)(table_session *s, const table_name *name, weir_arena *arena,
                            table_info *out, weir_error *err);
    /* A number that is another one once any table has changed, asked for outside of transactions.
     * NULL: there is none; what has changed is noticed when a statement is refused. */
    weir_status (*version)(table_session *s, int64_t *out, weir_error *err);
} table_ops;

/* The first member of every adapter's own. */
struct table_db {
    const table_ops *ops;
    store_url url; /* owned */
};

struct table_session {
    const table_ops *ops;
    bool adopted;          /* the connection is the caller's */
    const weir_stop *stop; /* borrowed; may be NULL */
    /* What a table looks like: the last one asked for. */
    weir_arena known_memory;
    weir_str known_name;   /* empty: none */
    int64_t known_version; /* when it was asked for; where there are versions */
    int64_t known_us;      /* monotonic: since when it is known; where there are none */
    table_info known;
};

/* url: moved. */
weir_status weir__table_sqlite_open(table_db **out, store_url *url, weir_error *err);
weir_status weir__table_postgres_open(table_db **out, store_url *url, weir_error *err);
weir_status weir__table_sqlite_adopt(table_session **out, void *given, weir_error *err);
weir_status weir__table_postgres_adopt(table_session **out, void *given, weir_error *err);

/* A database is freed with its URL; the adapter has freed what is its own. */
void weir__table_db_free(table_db *db);

/* A cell of a result as text; NULL is empty. Borrowed from the result. */
weir_str weir__table_cell_text(const table_result *r, size_t row, size_t column);
/* A NUL-terminated copy. false: out of memory. */
bool weir__table_copy(weir_arena *arena, weir_str text, weir_str *out);

/* ENOTFOUND for a table that is not there, with the names of up to three that are near. `tables`:
 * the first column has the names of all there are, as they would be given. */
weir_status weir__table_not_found(const table_name *name, const table_result *tables,
                                  weir_error *err);
/* EINVAL for a table that cannot be worked on because it is `kind` ("a view"). */
weir_status weir__table_wrong_kind(const table_info *t, const char *kind, weir_error *err);
/* Fills in what follows from the rest of *t: quoted names and the key. EINVAL: there is none;
 * ENOMEM. columns: what t->columns points to. */
weir_status weir__table_finish(table_info *t, table_column *columns, weir_str schema, weir_str name,
                               weir_arena *arena, weir_error *err);
/* A bytea's text, in either of PostgreSQL's forms, as bytes; out has room for text.len, and may be
 * where the text is. false: it is none. */
bool weir__table_bytes_decode(weir_str text, char *out, size_t *len);
/* EINTERRUPTED: the session was stopped. */
weir_status weir__table_stopped(weir_error *err);
/* The result without rows and with its memory free for the next ones; NULL is fine. */
void weir__table_result_clear(table_result *r);

#endif
