/* shim_vfs.h - an SQLite VFS that hands everything on to the default one and tells an observer.
 *
 * The observers are power.h (what would be left after a loss of power) and rule.h (who writes while
 * holding which lock). The hooks run on the thread of the call, before the real operation unless
 * their name says otherwise, and must be thread-safe.
 */
#ifndef WEIR_TESTS_STRESS_SHIM_VFS_H
#define WEIR_TESTS_STRESS_SHIM_VFS_H

#include <sqlite3.h>
#include <stdbool.h>

typedef struct shim_hooks shim_hooks;

/* An open file as the hooks see it. The real file follows it in memory. */
typedef struct shim_file {
    sqlite3_file base;
    const shim_hooks *hooks;
    const char
        *path;       /* borrowed from SQLite, as long as the file is open; NULL: a temporary file */
    int type;        /* SQLITE_OPEN_MAIN_DB, _WAL, _MAIN_JOURNAL, ... */
    bool created;    /* it was not there before */
    bool has_index;  /* its shared-memory index was mapped: the database is in WAL mode */
    int index_locks; /* bit per slot of the index that this connection holds exclusively */
    int level;       /* SQLITE_LOCK_* that this connection has on the file */
    int number;      /* for the observer */
    bool flag;       /* for the observer */
} shim_file;

struct shim_hooks {
    void (*opened)(shim_file *f);
    void (*closing)(shim_file *f);
    void (*writing)(shim_file *f, const void *bytes, int len, sqlite3_int64 offset);
    void (*truncating)(shim_file *f, sqlite3_int64 size);
    int (*syncing)(shim_file *f); /* not SQLITE_OK: the sync fails with that, and is not done */
    void (*synced)(shim_file *f);
    void (*deleted)(const char *path, bool directory_synced);
    /* Slots [first, first + count) of the WAL index; taken or given back exclusively. */
    void (*index_locked)(shim_file *f, int first, int count);
    void (*index_unlocked)(shim_file *f, int first, int count);
    void (*leveled)(shim_file *f, int before); /* its lock on the file has another level now */
    bool skip_sync; /* the observer keeps its own account of what was synced */
};

/* Registers a VFS that is not the default. `name` and `hooks` live for ever. SQLite's code. */
int shim_vfs_register(const char *name, const shim_hooks *hooks);

#endif
