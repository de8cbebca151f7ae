/* sqlite_private.h - the handle of the SQLite adapter, for the files that open, lock and check it.
 *
 * Verbs go through sqlite_store.h and never look in here. Lock order: writer slot, side lock, BEGIN
 * IMMEDIATE; pool_mu and clock_mu are leaf locks, nothing else is taken under them.
 */
#ifndef WEIR_STORE_SQLITE_SQLITE_PRIVATE_H
#define WEIR_STORE_SQLITE_SQLITE_PRIVATE_H

#include "store/read_only.h"
#include "store/sqlite/side_lock.h"
#include "store/sqlite/sqlite_store.h"

enum {
    SQLITE_SCHEMA_FIRST = 1,   /* what schema.sql and targets_schema.sql make */
    SQLITE_SCHEMA_VERSION = 3, /* and the steps of schema.c lead to           */
    SQLITE_READERS_MAX = 8,
    SQLITE_CATEGORIES_CACHED_MAX = 256,
};

/* A step from one schema to the next. `sql`: static. */
typedef struct sqlite_upgrade {
    int64_t to;
    const char *sql;
} sqlite_upgrade;

/* What this library wants a store to look like: schema 1, then the steps up to `version`. */
typedef struct sqlite_schema {
    int64_t version;
    const sqlite_upgrade *steps; /* by `to`, from 2 on */
    size_t steps_count;
} sqlite_schema;

typedef struct sqlite_category {
    char *name; /* owned */
    size_t len;
    int64_t id;
} sqlite_category;

/* A file as it was when the handle was opened. name NULL: there was none. */
typedef struct sqlite_file {
    const char *name; /* in `texts` */
    dev_t dev;
    ino_t ino;
} sqlite_file;

enum { SQLITE_FILES_COUNT = 3 }; /* PATH, PATH-wal, PATH-shm */

struct sqlite_store {
    weir_store base; /* first: a weir_store * is a sqlite_store * */
    sqlite_database database;

    /* immutable after opening */
    store_options options; /* texts are in `texts` */
    weir_arena texts;
    const char *path;  /* absolute, symbolic links resolved */
    const char *given; /* as the caller wrote it, for messages */
    const char *vfs;   /* NULL: the default one */
    const sqlite_schema *schema;
    sqlite_file files[SQLITE_FILES_COUNT];
    bool read_only;
    store_reading reading; /* what base has then */

    /* guarded by writer_mu */
    weir_mutex writer_mu;
    weir_cond writer_free;
    bool writer_taken;
    pthread_t writer_owner; /* valid while writer_taken */

    /* owned by whoever has taken the writer slot */
    side_lock side;
    sqlite_conn writer, checkpointer;
    sqlite_row writer_row;
    int64_t now_us; /* of the transaction that is open */
    int64_t changes_before;
    bool events_written;         /* events carry the time themselves, weir_store need not */
    bool wal_unseen;             /* the WAL may be another one than when we last looked */
    int64_t written_ns;          /* when the database file was last changed, as we know */
    sqlite_category *categories; /* owned: ids that are committed or of this transaction */
    size_t categories_count;

    /* guarded by pool_mu; a taken connection belongs to who took it */
    weir_mutex pool_mu;
    weir_cond pool_free;
    sqlite_conn readers[SQLITE_READERS_MAX];
    sqlite_row reader_rows[SQLITE_READERS_MAX];
    bool readers_taken[SQLITE_READERS_MAX];

    /* guarded by clock_mu */
    weir_mutex clock_mu;
    weir_steady_clock clock;

    /* SQLite has called the database malformed: nothing more is written to it */
    _Atomic bool damaged;

    /* counters for stats and tests; relaxed, nothing is derived from them */
    _Atomic int64_t transactions;
};

static inline sqlite_store *sqlite_of(weir_store *base)
{
    return (sqlite_store *)(void *)base;
}

/* other_name.c. Before SQLite opens the database, under the side lock. WEIR_EHELD: it was renamed,
 * and somebody has it open under its old name. */
weir_status weir__sqlite_refuse_renamed(sqlite_store *s, weir_error *err);

/* other_name.c. Whether another process has a connection to the database. */
weir_status weir__sqlite_connected(sqlite_store *s, bool *connected, weir_error *err);

/* open.c. A handle that knows where its store is but has nothing open. Ended by about->close. */
weir_status weir__sqlite_place(sqlite_store **out, const store_options *options, weir_error *err);

/* open.c. Whether there is a file PATH with this suffix. *has_bytes (may be NULL): and not an empty
 * one. */
bool weir__sqlite_file_exists(const sqlite_store *s, const char *suffix, bool *has_bytes);

/* WEIR_ECORRUPT when one of the first `count` files was removed or replaced since the handle was
 * opened, or the database emptied: SQLite would go on with the one that nobody finds any more. If
 * only the database is asked for (count 1), and it was removed, it is WEIR_EUNAVAILABLE.
 * *written_ns: when the database was last changed, for weir__seal_running. */
weir_status weir__sqlite_files_check(const sqlite_store *s, size_t count, int64_t *written_ns,
                                     weir_error *err);

/* transaction.c. Takes the writer slot within the deadline. */
weir_status weir__sqlite_slot_take(sqlite_store *s, int64_t deadline_us, weir_error *err);
void weir__sqlite_slot_give(sqlite_store *s);
int64_t weir__sqlite_deadline(const sqlite_store *s);
/* Reads weir_store and the end of the log into conn->row; WEIR_ENEWER when the schema has
 * changed. */
weir_status weir__sqlite_row_read(sqlite_store *s, sqlite_conn *conn, weir_error *err);
/* The store's time, with what conn->row says taken into account. */
int64_t weir__sqlite_clock(sqlite_store *s, int64_t seen_us);

/* Ends the transaction of the writer, whatever it takes: writer.db may be NULL after it. */
void weir__sqlite_rollback(sqlite_store *s);

/* checkpoint.c. The caller has the writer slot and the side lock, and no transaction. */
void weir__sqlite_checkpoint(sqlite_store *s);
/* Before a write into an empty WAL: gives the database file a mark that no copy of it has. */
void weir__sqlite_wal_mark(sqlite_store *s);

/* schema.c. Under the side lock, on the writer: creates, upgrades or refuses. *made: a store was
 * created. */
weir_status weir__sqlite_schema_prepare(sqlite_store *s, bool *made, weir_error *err);
/* The same for a reading connection: refuses only. */
weir_status weir__sqlite_schema_verify(sqlite_store *s, sqlite_conn *conn, weir_error *err);
/* The SQL that weir__sqlite_schema_prepare would run. conn NULL: there is no file. */
weir_status weir__sqlite_schema_plan(sqlite_store *s, sqlite_conn *conn, weir_buffer *out,
                                     weir_error *err);
/* Makes the tables in an empty database, to compare with. */
weir_status weir__sqlite_schema_build(sqlite_store *s, sqlite_conn *conn, weir_error *err);
const sqlite_schema *weir__sqlite_schema(void);
/* Tests only: what weir__sqlite_schema answers in this process from now on; NULL: the real one. */
void weir__sqlite_schema_pretend(const sqlite_schema *schema);

/* append.c */
void weir__sqlite_categories_forget(sqlite_store *s);

/* The verbs of the events side. */
weir_status weir__sqlite_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err);
weir_status weir__sqlite_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err);
weir_status weir__sqlite_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err);
weir_status weir__sqlite_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err);
weir_status weir__sqlite_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err);
weir_status weir__sqlite_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err);
weir_status weir__sqlite_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err);
weir_status weir__sqlite_watch_open(weir_store *base, store_watch **out, weir_error *err);
weir_status weir__sqlite_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                    weir_error *err);
int weir__sqlite_watch_fd(store_watch *watch);
void weir__sqlite_watch_close(store_watch *watch);
weir_status weir__sqlite_stats(weir_store *base, store_stats *out, weir_error *err);
weir_status weir__sqlite_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err);
weir_status weir__sqlite_survey(weir_store *base, store_survey_fn fn, void *ctx, weir_error *err);

#endif
