/* sqlite.h - the driver for SQLite: connections to a database file, statements on them,
 * checkpoints, and what a forked child lets go of. It knows nothing of events, nor of any table.
 *
 * THREADS  A connection belongs to one thread at a time. Of a database, what is marked so belongs
 * to whoever's turn it is to write.
 */
#ifndef WEIR_SQLITE_SQLITE_H
#define WEIR_SQLITE_SQLITE_H

#include "base/memory.h"
#include "base/stop.h"
#include "base/thread.h"
#include "weir.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum {
    SQLITE_PAGE_BYTES = 4096, /* of the databases that are made here */
    SQLITE_CHECKPOINT_PAGES_DEFAULT = 4000,
    SQLITE_TEXTS_MAX = 16, /* statements that are kept by what they say */
};

/* How a connection is opened. */
typedef enum sqlite_role {
    SQLITE_ROLE_CREATOR,      /* writes, and makes the file when there is none       */
    SQLITE_ROLE_WRITER,       /* writes                                              */
    SQLITE_ROLE_CHECKPOINTER, /* runs checkpoints while the writer keeps all others out */
    SQLITE_ROLE_READER,
    SQLITE_ROLE_PEEK, /* for the bytes of the file as they are, without its WAL */
} sqlite_role;

/* A statement whose text has no static storage. */
typedef struct sqlite_text {
    char *sql;          /* owned; NULL: none */
    sqlite3_stmt *stmt; /* owned */
    uint64_t used;      /* when last, in uses of texts */
} sqlite_text;

/* A connection and its prepared statements. Belongs to one thread at a time. */
typedef struct sqlite_conn {
    sqlite3 *db;                      /* owned */
    struct sqlite_cached *statements; /* owned: SQL text (by address) to statement */
    size_t statements_count, statements_capacity;
    sqlite_text texts[SQLITE_TEXTS_MAX];
    uint64_t texts_used;
    struct sqlite_row *row; /* borrowed: what its owner keeps with the transaction; may be NULL */
    _Atomic bool *damaged;  /* borrowed: set when SQLite finds damage; may be NULL */
} sqlite_conn;

typedef struct sqlite_database sqlite_database;

/* What fork.c asks of whoever has a database open. Static; functions may be NULL. */
typedef struct sqlite_holder {
    /* Whether some thread may be inside SQLite although the database is `at_rest`. */
    bool (*in_use)(const sqlite_database *db);
    /* In a child, as soon as it is forked: files of its own. It may do what a child of a process
     * with threads may do: no allocation, no lock. */
    void (*let_go)(sqlite_database *db);
    void (*close)(sqlite_database *db); /* all connections */
} sqlite_holder;

/* A database that is open here: what its connections have in common. */
struct sqlite_database {
    /* Filled in before the first connection, then immutable. Texts are borrowed. */
    const char *path;  /* absolute, symbolic links resolved; ":memory:" */
    const char *given; /* as the caller wrote it, for messages */
    const char *vfs;   /* NULL: the default one */
    bool guest;        /* it is somebody else's: its foreign keys are kept; all commits are synced,
                          with or without a WAL */
    bool sync_normal;  /* the writer begins with synchronous=NORMAL; not of a guest */
    int64_t busy_us;   /* how long a connection that does not write waits for a lock */
    int64_t checkpoint_pages;
    _Atomic bool *damaged; /* as in sqlite_conn */
    const sqlite_holder *holder;
    void *owner;    /* of the holder's functions */
    bool immutable; /* read-only on a file that nobody can write: SQLite then takes no locks */
    /* Of the file, once it is known which it is; ino 0: it is not. */
    dev_t dev;
    ino_t ino;

    /* owned by whoever's turn it is to write */
    int64_t deadline_us;     /* machine's monotonic clock: when BEGIN stops waiting */
    const weir_stop *stop;   /* once it is set, nothing is waited for; borrowed, may be NULL */
    bool sync_full;          /* what the writer's PRAGMA synchronous is now */
    int64_t wal_pages;       /* in the WAL after our last commit */
    int64_t checkpoint_next; /* at so many pages we try again */

    /* fork.c: guarded by its handles_mu, but for what the child finds */
    sqlite_database *next;
    bool listed;
    _Atomic bool at_rest;  /* opened and not being closed                          */
    bool inherited;        /* opened by an ancestor of this process: nobody's here */
    bool inherited_in_use; /* and some thread was inside SQLite when we were forked */

    _Atomic int64_t checkpoints; /* counted for tests; nothing is derived from it */
};

/* ---- files (path.c) -------------------------------------------------------------------------- */

/* EINVAL: it is not the path of a file (`len`: as long as it was given). judging: 0 or
 * FILE_INSECURE, see base/file.h. */
weir_status weir__sqlite_path_check(const char *given, size_t len, int judging, weir_error *err);
/* WEIR_EINVAL: under this name SQLite or Weir keeps something beside a file that is there.
 * is_store: a database is to have it, else a backup. */
weir_status weir__sqlite_path_suffix(const char *path, bool is_store, weir_error *err);
/* As SQLite will resolve it: a symbolic link leads to the same file. *out: in the arena. */
weir_status weir__sqlite_path_resolve(const char *given, const char *vfs, weir_arena *arena,
                                      const char **out, weir_error *err);
/* Whether nobody else can have prepared the files that SQLite opens by name. Asked before it opens
 * them and afterwards, and never by opening them: closing a file ends SQLite's locks on it. */
weir_status weir__sqlite_files_judge(const char *path, int judging, weir_error *err);
/* The file itself: *there, and *st if it is. EINVAL: it is there and not a file. */
weir_status weir__sqlite_file_look(const sqlite_database *db, struct stat *st, bool *there,
                                   weir_error *err);
/* WEIR_EIO for an errno: could not WHAT "PATH": why. Says what to do about the common ones. */
weir_status weir__sqlite_file_fail(weir_error *err, int code, const char *what, const char *path);

/* ---- connections (connection.c) -------------------------------------------------------------- */

/* *conn must be zeroed but for `row`; weir__sqlite_conn_close ends it, also a zeroed one. */
weir_status weir__sqlite_conn_open(sqlite_database *db, sqlite_role role, sqlite_conn *conn,
                                   weir_error *err);
void weir__sqlite_conn_close(sqlite_conn *conn);
/* Ends the transaction, whatever it takes: conn->db may be NULL after it. */
void weir__sqlite_conn_rollback(sqlite_conn *conn);

/* ---- checkpoints (checkpoint.c) -------------------------------------------------------------- */

/* Before a checkpoint, outside of transactions, by whoever's turn it is to write. false: there will
 * be none. */
bool weir__sqlite_checkpoint_begin(sqlite_database *db, sqlite_conn *checkpointer);
/* Moves the WAL into the database, as far as readers let it; *all: to its end. false: somebody else
 * is writing. */
bool weir__sqlite_checkpoint_run(sqlite_database *db, sqlite_conn *writer,
                                 sqlite_conn *checkpointer, bool *all);
/* The same inside the writer's BEGIN IMMEDIATE, which it undoes. */
void weir__sqlite_checkpoint_locked(sqlite_database *db, sqlite_conn *writer,
                                    sqlite_conn *checkpointer, bool *all);

/* ---- forking (fork.c) ------------------------------------------------------------------------ */

/* Every database is known there from before its first connection until after its last. */
weir_status weir__sqlite_handle_add(sqlite_database *db, weir_error *err);
void weir__sqlite_handle_remove(sqlite_database *db); /* one that was never added is fine */
/* Before a database is opened: closes the connections that a forked child has from its parent.
 * WEIR_EMISUSE when one of them was in use at that moment. */
weir_status weir__sqlite_inherited_close(weir_error *err);
/* Whether another handle of this process has that file open under another name. */
bool weir__sqlite_handle_elsewhere(const sqlite_database *db, dev_t dev, ino_t ino);

/* ---- statements (statement.c) ---------------------------------------------------------------- */

/* The prepared statement for an SQL text with static storage, reset and with its bindings cleared;
 * kept by the address of the text. Borrowed; valid until the connection is closed. Finish with
 * weir__sqlite_done, or an open cursor keeps the transaction open. */
weir_status weir__sqlite_statement(sqlite_conn *conn, const char *sql, sqlite3_stmt **out,
                                   weir_error *err);
/* The same for other texts: what was kept under one; NULL: nothing. It is as it was left. */
sqlite3_stmt *weir__sqlite_text_find(sqlite_conn *conn, const char *sql);
/* Keeps a statement of this connection under a text, so that it is found the next time, until
 * others are used more. stmt: moved. false: out of memory, it is finalized. */
bool weir__sqlite_text_keep(sqlite_conn *conn, const char *sql, sqlite3_stmt *stmt);
/* One step. *row: whether there is one. Binding errors show up here as well. */
weir_status weir__sqlite_step(sqlite_conn *conn, sqlite3_stmt *stmt, bool *row, weir_error *err);
/* Runs a statement to its end, ignoring rows, and resets it. */
weir_status weir__sqlite_run(sqlite_conn *conn, sqlite3_stmt *stmt, weir_error *err);
void weir__sqlite_done(sqlite3_stmt *stmt); /* reset and clear; NULL is a no-op */
/* SQL text with several statements, not cached. */
weir_status weir__sqlite_exec(sqlite_conn *conn, const char *sql, weir_error *err);
void weir__sqlite_statements_reset(sqlite_conn *conn); /* ends every open cursor */
void weir__sqlite_statements_free(sqlite_conn *conn);

/* Binds without copying: the text must live until the statement is reset. */
void weir__sqlite_bind_str(sqlite3_stmt *stmt, int index, weir_str text);
/* A column's text; borrowed until the next step. */
weir_str weir__sqlite_column_str(sqlite3_stmt *stmt, int column);
/* The same copied into an arena; .ptr is NULL only when out of memory. */
weir_str weir__sqlite_column_copy(sqlite3_stmt *stmt, int column, weir_arena *arena);

/* What to do about a database that is damaged. */
#define SQLITE_DAMAGED_DETAIL                                                                      \
    "The database file is damaged. Restore a backup with weir restore, or try the \".recover\" "   \
    "command of the sqlite3 shell on a copy."
/* SQLite's error of this connection as a weir_status with message and store_code: full disk, busy,
 * corrupt, not a database, read-only, no memory, I/O; each says what to do in `detail`. */
weir_status weir__sqlite_fail(sqlite_conn *conn, int rc, weir_error *err, const char *what);

#endif
