/* checkpoint.c - a checkpoint of a store: under the side lock, with a new mark in the database. */
#include "store/sqlite/seal.h"

#include <sys/stat.h>

void weir__sqlite_checkpoint(sqlite_store *s)
{
    bool all = false;
    if (weir__sqlite_checkpoint_begin(&s->database, &s->checkpointer) && weir__seal_renew(s) &&
        weir__sqlite_checkpoint_run(&s->database, &s->writer, &s->checkpointer, &all)) {
        weir__seal_written(s, all ? SEAL_ALL : SEAL_PART);
    }
}

/* Whether the WAL has one frame and no more: nobody else has written to it. */
static bool wal_has_one_frame(const sqlite_store *s)
{
    struct stat st;
    return s->files[1].name != NULL && stat(s->files[1].name, &st) == 0 &&
           st.st_size == 32 + 24 + SQLITE_PAGE_BYTES;
}

/* The mark alone, with the writer's PRAGMA synchronous=OFF. */
static void mark_write(sqlite_store *s)
{
    bool all = false;
    if (!weir__seal_renew(s) || weir__sqlite_exec(&s->writer, "BEGIN IMMEDIATE", NULL) != WEIR_OK) {
        return;
    }
    if (!wal_has_one_frame(s) ||
        weir__sqlite_exec(&s->checkpointer, "PRAGMA synchronous=OFF", NULL) != WEIR_OK) {
        weir__sqlite_conn_rollback(&s->writer);
        return;
    }
    weir__sqlite_checkpoint_locked(&s->database, &s->writer, &s->checkpointer, &all);
    weir__seal_written(s, all ? SEAL_UNSYNCED : SEAL_PART);
    if (weir__sqlite_exec(&s->checkpointer, "PRAGMA synchronous=FULL", NULL) != WEIR_OK) {
        weir__sqlite_conn_close(&s->checkpointer);
    }
}

void weir__sqlite_wal_mark(sqlite_store *s)
{
    struct stat st;
    const int64_t deadline_us = s->database.deadline_us;
    if (!s->wal_unseen || s->files[1].name == NULL || stat(s->files[1].name, &st) != 0 ||
        st.st_size > 0 || !weir__sqlite_checkpoint_begin(&s->database, &s->checkpointer)) {
        return;
    }
    s->database.deadline_us = deadline_us;
    /* Nothing is synced, as nothing depends on it: both marks are known. */
    if (weir__sqlite_exec(&s->writer, "PRAGMA synchronous=OFF", NULL) != WEIR_OK) {
        return;
    }
    s->database.sync_full = false;
    mark_write(s);
    if (s->writer.db != NULL &&
        weir__sqlite_exec(&s->writer, "PRAGMA synchronous=NORMAL", NULL) != WEIR_OK) {
        weir__sqlite_conn_close(&s->writer); /* the next transaction opens another one */
    }
}
