/* seal.h - recognising a database file that was swapped, before SQLite sees it.
 *
 * A WAL says nothing about the database it belongs to: SQLite copies it into whatever file has the
 * name. So the database has a mark (weir_seal), which is changed before every checkpoint, and the
 * side file says which mark the database file must have for the WAL that is there. README.md has
 * the protocol.
 */
#ifndef WEIR_STORE_SQLITE_SEAL_H
#define WEIR_STORE_SQLITE_SEAL_H

#include "store/sqlite/sqlite_private.h"

#include <sys/stat.h>

static inline int64_t weir__mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* All of these run under the side lock. */

/* Before SQLite opens the database. WEIR_ECORRUPT: the WAL belongs to another file, or a restore
 * was interrupted; nothing was read or written. *had_wal: there is a WAL with something in it. */
weir_status weir__seal_check(sqlite_store *s, bool *had_wal, weir_error *err);
/* After a writer has opened it and its schema is ours. A store that was swapped while it had no WAL
 * gets a new epoch; one without a record gets one. Either gets another mark, and a checkpoint.
 * made: by this opening. */
weir_status weir__seal_adopt(sqlite_store *s, bool had_wal, bool made, weir_error *err);
/* While it is open: WEIR_ECORRUPT when the database file was overwritten in place. Looks at its
 * content only when its time of change, which weir__sqlite_files_check finds, is another one. */
weir_status weir__seal_running(sqlite_store *s, int64_t written_ns, weir_error *err);
weir_status weir__seal_fail_overwritten(const sqlite_store *s, weir_error *err);
/* A reader was told that the database is damaged (WEIR_ECORRUPT): if it was overwritten, says that
 * instead. Without the side lock: it decides about the words only. */
weir_status weir__seal_explain(sqlite_store *s, sqlite_conn *conn, weir_status status,
                               weir_error *err);
/* Before a checkpoint, on the writer, outside of a transaction. False: there must be none. */
bool weir__seal_renew(sqlite_store *s);
typedef enum seal_extent {
    SEAL_PART,     /* readers may have stopped the checkpoint short                       */
    SEAL_ALL,      /* all of the WAL is in the file, and synced                           */
    SEAL_UNSYNCED, /* all of it, which is nothing but the mark; a power failure may undo it */
} seal_extent;
/* After the database file was written: its time of change is ours. */
void weir__seal_written(sqlite_store *s, seal_extent extent);
/* After a commit: takes note that the WAL was started over. False: on a file that another program
 * has checkpointed, which may bear the mark of older copies: it needs a checkpoint of ours. */
bool weir__seal_follow(sqlite_store *s);

/* The mark that the store has now, WAL and all, and its page. */
weir_status weir__seal_read(sqlite_conn *conn, unsigned char mark[16], uint32_t *page,
                            weir_error *err);
/* What a restore that has begun is about to do. */
typedef struct seal_restore {
    char kept[36];     /* behind the path: the name of the files that were there */
    uint64_t copy_ino; /* of the file that takes their place */
    int64_t copy_mtime_ns;
} seal_restore;

/* Whether a restore was interrupted, and which. */
bool weir__seal_interrupted(const sqlite_store *s, seal_restore *out);
/* Marks the store as being restored, or as done: `mark` is that of the new file. */
weir_status weir__seal_restoring(sqlite_store *s, const seal_restore *now, weir_error *err);
weir_status weir__seal_restored(sqlite_store *s, const unsigned char mark[16], uint32_t page,
                                weir_error *err);

#endif
