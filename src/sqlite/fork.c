/* fork.c - what a forked child makes of the databases that its parent has open.
 *
 * SQLite's locks belong to the process, and its memory of them is copied by a fork while the locks
 * are not. A connection that the child opens to the same file counts as one more of those that hold
 * a lock already, and works without any: the next program that closes the file as if it were the
 * last one then deletes the WAL under it, with everything that was acknowledged since. With flock
 * it is the other way round: the lock belongs to the open file, which the child shares, so it
 * outlives a holder that dies.
 *
 * So a child lets go of every file with such a lock at once (sqlite_holder.let_go), and of the
 * inherited connections before it opens one of its own. Closing those gives back memory and
 * descriptors and does nothing else: none of our connections checkpoints when it is closed, none is
 * inside a transaction, and a process cannot take back locks of another. A child that was forked
 * while some thread was inside SQLite is refused: nobody can say what that thread has left
 * half-done in memory.
 *
 * INVARIANTS
 *   (1) A handle is in `handles` from before its first connection until after its last one.
 *   (2) Some thread may be inside SQLite only while a handle is not `at_rest`, or its holder says
 *       that it is in use.
 *   (3) What is in `inherited` was opened by an ancestor. Only memory of ours and descriptors are
 *       reachable from it; the handle itself stays with whoever still has a pointer to it.
 *
 * THREADS  `handles_mu` is a leaf lock. It is held over a fork, so that the child finds whole
 * lists.
 */
#include "base/error.h"
#include "sqlite/sqlite.h"

#include <string.h>

static weir_mutex handles_mu = { .raw = PTHREAD_MUTEX_INITIALIZER };
/* guarded by handles_mu */
static sqlite_database *handles;
static sqlite_database *inherited;

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool fork_handlers_missing; /* immutable after fork_once */

/* Nothing here but what a child of a process with threads may do: no allocation, no other lock. */
static void handle_let_go(sqlite_database *db)
{
    const sqlite_holder *holder = db->holder;
    db->inherited = true;
    db->inherited_in_use = !db->at_rest || (holder->in_use != NULL && holder->in_use(db));
    if (holder->let_go != NULL) {
        holder->let_go(db);
    }
}

static void before_fork(void) WEIR_NO_LOCK_CHECK
{
    weir__lock(&handles_mu);
}

static void in_parent(void) WEIR_NO_LOCK_CHECK
{
    weir__unlock(&handles_mu);
}

static void in_child(void) WEIR_NO_LOCK_CHECK
{
    /* Locked by a thread with another number: made anew instead of unlocked. */
    handles_mu = (weir_mutex){ .raw = PTHREAD_MUTEX_INITIALIZER };
    while (handles != NULL) {
        sqlite_database *db = handles;
        handles = db->next;
        handle_let_go(db);
        db->next = inherited;
        inherited = db;
    }
}

static void register_handlers(void)
{
    fork_handlers_missing = pthread_atfork(before_fork, in_parent, in_child) != 0;
}

weir_status weir__sqlite_handle_add(sqlite_database *db, weir_error *err)
{
    if (pthread_once(&fork_once, register_handlers) != 0 || fork_handlers_missing) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle");
    }
    weir__lock(&handles_mu);
    db->next = handles;
    handles = db;
    db->listed = true;
    weir__unlock(&handles_mu);
    return WEIR_OK;
}

void weir__sqlite_handle_remove(sqlite_database *db)
{
    weir__lock(&handles_mu);
    for (sqlite_database **at = &handles; db->listed && *at != NULL; at = &(*at)->next) {
        if (*at == db) {
            *at = db->next;
            break;
        }
    }
    db->listed = false;
    weir__unlock(&handles_mu);
}

bool weir__sqlite_handle_elsewhere(const sqlite_database *db, dev_t dev, ino_t ino)
{
    bool found = false;
    weir__lock(&handles_mu);
    for (const sqlite_database *other = handles; other != NULL && !found; other = other->next) {
        /* Once it is at rest, its file is known and stays as it is. */
        found = other != db && atomic_load(&other->at_rest) && other->ino != 0 &&
                other->dev == dev && other->ino == ino && strcmp(other->path, db->path) != 0;
    }
    weir__unlock(&handles_mu);
    return found;
}

weir_status weir__sqlite_inherited_close(weir_error *err)
{
    weir_status status = WEIR_OK;
    weir__lock(&handles_mu);
    for (const sqlite_database *db = inherited; db != NULL && status == WEIR_OK; db = db->next) {
        if (db->inherited_in_use) {
            status = weir__fail(err, WEIR_EMISUSE,
                                "this process was forked while \"%s\" was in use by a thread",
                                db->given);
            weir__error_detail(err, "Fork while no call into the library is running, or start "
                                    "another program in the child.");
        }
    }
    while (status == WEIR_OK && inherited != NULL) {
        sqlite_database *db = inherited;
        inherited = db->next;
        db->holder->close(db);
    }
    weir__unlock(&handles_mu);
    return status;
}
