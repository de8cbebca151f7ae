/* checkpoint.c - moving the WAL into the database: by the writer only, with everyone else kept out.
 *
 * Libraries before 3.51.3 can lose pages when one connection checkpoints while another commits and
 * starts the WAL over. So the side lock is held, which keeps Weir's other writers out, and BEGIN
 * IMMEDIATE on the writer, which keeps foreign ones out; a second connection then runs a PASSIVE
 * checkpoint. (FULL and RESTART would quietly become PASSIVE here: the writer's lock is taken, by
 * us.)
 *
 * A reader that is still on an old snapshot stops the checkpoint short. That is no failure: the WAL
 * grows, and the next try is one threshold later, so that a long reader does not make every commit
 * pay for a sync.
 */
#include "base/error.h"
#include "store/sqlite/seal.h"

int weir__sqlite_wal_hook(void *ctx, sqlite3 *db, const char *name, int pages)
{
    sqlite_store *s = ctx;
    (void)db;
    (void)name;
    if (pages < s->wal_pages) {
        s->checkpoint_next = s->options.checkpoint_pages; /* the WAL was started over */
    }
    s->wal_pages = pages;
    return SQLITE_OK;
}

void weir__sqlite_checkpoint(sqlite_store *s)
{
    /* Failing to checkpoint is not a failure of what was committed: the WAL has it. */
    s->checkpoint_next = s->wal_pages + s->options.checkpoint_pages;
    if (s->checkpointer.db == NULL &&
        weir__sqlite_conn_open(s, SQLITE_ROLE_CHECKPOINTER, &s->checkpointer, NULL) != WEIR_OK) {
        return;
    }
    s->deadline_us = 0; /* what was committed is not kept waiting for a foreign writer */
    if (!s->guest && !weir__seal_renew(s)) {
        return;
    }
    if (weir__sqlite_exec(&s->writer, "BEGIN IMMEDIATE", NULL) != WEIR_OK) {
        return;
    }
    const int rc = sqlite3_wal_checkpoint_v2(s->checkpointer.db, "main", SQLITE_CHECKPOINT_PASSIVE,
                                             NULL, NULL);
    if (rc == SQLITE_OK) {
        atomic_fetch_add_explicit(&s->checkpoints, 1, memory_order_relaxed);
    }
    weir__sqlite_rollback(s);
    if (!s->guest) {
        weir__seal_written(s);
    }
}
