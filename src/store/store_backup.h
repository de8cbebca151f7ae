/* store_backup.h - the file of a store: copying it whole, putting such a copy back, and opening it
 * for tables of somebody else's. Only for SQLite: PostgreSQL has its own tools. fn: told how far it
 * is; may be NULL. */
#ifndef WEIR_STORE_STORE_BACKUP_H
#define WEIR_STORE_STORE_BACKUP_H

#include "store/store.h"

/* Writes a copy of the store as it is now to a new file, while others go on writing. The copy is
 * checked and on the disk before it gets its name. WEIR_EINVAL: there is a file of that name and
 * not `replace`, or something that is not a regular file, or a log of another file beside it.
 * WEIR_EMISUSE: not an SQLite store. WEIR_ECORRUPT: the store is damaged; no copy was made. */
weir_status weir__sqlite_backup(weir_store *base, const char *file, bool replace,
                                weir_progress_fn fn, void *ctx, weir_error *err);
/* Replaces the store that `options` name with the copy in `file`, checked, with a new epoch. The
 * old files stay beside it under another name: *kept, ended by weir__free, NULL when there were
 * none. WEIR_EHELD: somebody has the store open. WEIR_ENOTFOUND, WEIR_EINVAL, WEIR_ECORRUPT,
 * WEIR_EMISUSE: about `file`; nothing was changed. After a crash in the middle the store refuses
 * to open until a restore has completed. */
weir_status weir__sqlite_restore(const store_options *options, const char *file, char **kept,
                                 weir_progress_fn fn, void *ctx, weir_error *err);
/* Before a database that may be a store's is opened without a store: refuses one that was swapped
 * beside the log of another file (WEIR_ECORRUPT), and one that is open under another name
 * (WEIR_EHELD). Nothing is made. *out: keeps others from opening the store, if it is one, until
 * weir__sqlite_visit_end, which takes NULL. */
weir_status weir__sqlite_visit(weir_store **out, const store_options *options, weir_error *err);
void weir__sqlite_visit_end(weir_store *base);

#endif
