/* backup.h - copying a database page by page, and files by name: for backups and restores. */
#ifndef WEIR_STORE_SQLITE_BACKUP_H
#define WEIR_STORE_SQLITE_BACKUP_H

#include "store/sqlite/sqlite_private.h"

typedef struct backup_progress {
    weir_progress_fn fn; /* may be NULL */
    void *ctx;
} backup_progress;

/* `path` and what follows it. NULL: out of memory. Owned, ended by weir__free. */
char *weir__backup_name(const char *path, const char *suffix);
/* Makes a file that does not exist yet, with the owner and the permissions of the database `like`
 * where that is possible. WEIR_EIO. */
weir_status weir__backup_make(const char *file, const char *like, weir_error *err);
/* Copies what `from` sees into `file`, which is empty, as one file without a WAL, and checks the
 * copy. A transaction that is open on `from` keeps it at one state. */
weir_status weir__backup_copy(sqlite_conn *from, const char *file, const char *vfs,
                              const backup_progress *progress, weir_error *err);
/* Runs SQL on a database that nobody else has open. */
weir_status weir__backup_exec(const char *file, const char *vfs, const char *sql, weir_error *err);
/* Syncs a file, or a directory: the one that `file` is in. */
weir_status weir__backup_sync(const char *file, weir_error *err);
weir_status weir__backup_sync_directory(const char *file, weir_error *err);
/* Removes `file` and what SQLite and Weir leave beside it. */
void weir__backup_remove(const char *file);

#endif
