/* checkpoint.c - moving the WAL into the database: by the writer only, with everyone else kept out.
 *
 * Libraries before 3.51.3 can lose pages when one connection checkpoints while another commits and
 * starts the WAL over. So all other writers are kept out: by whatever lock they share, if they do
 * (the store's side lock), and by BEGIN IMMEDIATE on the writer; a second connection then runs a
 * PASSIVE checkpoint. (FULL and RESTART would quietly become PASSIVE here: the writer's lock is
 * taken, by us.)
 *
 * A reader that is still on an old snapshot stops the checkpoint short. That is no failure: the WAL
 * grows, and the next try is one threshold later, so that a long reader does not make every commit
 * pay for a sync.
 */
#include "sqlite/sqlite.h"

bool weir__sqlite_checkpoint_begin(sqlite_database *db, sqlite_conn *checkpointer)
{
    /* Failing to checkpoint is not a failure of what was committed: the WAL has it. */
    db->checkpoint_next = db->wal_pages + db->checkpoint_pages;
    db->deadline_us = 0; /* what was committed is not kept waiting for a foreign writer */
    return checkpointer->db != NULL ||
           weir__sqlite_conn_open(db, SQLITE_ROLE_CHECKPOINTER, checkpointer, NULL) == WEIR_OK;
}

void weir__sqlite_checkpoint_locked(sqlite_database *db, sqlite_conn *writer,
                                    sqlite_conn *checkpointer, bool *all)
{
    int pages = 0, done = 0;
    const int rc = sqlite3_wal_checkpoint_v2(checkpointer->db, "main", SQLITE_CHECKPOINT_PASSIVE,
                                             &pages, &done);
    if (rc == SQLITE_OK) {
        atomic_fetch_add_explicit(&db->checkpoints, 1, memory_order_relaxed);
    }
    *all = rc == SQLITE_OK && done == pages;
    weir__sqlite_conn_rollback(writer);
}

bool weir__sqlite_checkpoint_run(sqlite_database *db, sqlite_conn *writer,
                                 sqlite_conn *checkpointer, bool *all)
{
    if (weir__sqlite_exec(writer, "BEGIN IMMEDIATE", NULL) != WEIR_OK) {
        return false;
    }
    weir__sqlite_checkpoint_locked(db, writer, checkpointer, all);
    return true;
}
