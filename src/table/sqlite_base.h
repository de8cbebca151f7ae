/* sqlite_base.h - a database file that is somebody else's, or a database in memory: one connection
 * that works in it, and another one that moves a WAL into it.
 *
 * Nothing is made. A file that may be a store's is opened under the store's rules
 * (store/store_backup.h). Commits are durable.
 *
 * THREADS  One at a time.
 */
#ifndef WEIR_TABLE_SQLITE_BASE_H
#define WEIR_TABLE_SQLITE_BASE_H

#include "sqlite/sqlite.h"
#include "store/store.h"

/* Whoever has it sets database.at_rest: it is so while no call is inside SQLite and no transaction
 * is open. */
typedef struct sqlite_base {
    sqlite_database database;
    weir_arena texts;
    sqlite_conn writer, checkpointer;
} sqlite_base;

/* options.path empty: a database in memory. ENOTFOUND: there is no such file. *out: owned. */
weir_status weir__table_base_open(sqlite_base **out, const store_options *options, weir_error *err);
/* In a forked child it is the parent's, and stays. */
void weir__table_base_close(sqlite_base *base);
/* After a commit: a checkpoint if it is time for one. */
void weir__table_base_committed(sqlite_base *base);

#endif
