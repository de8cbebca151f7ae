/* committer.h - group commit: concurrent appends of one handle share transactions.
 *
 * The first caller becomes the leader: it takes what waits (itself included), runs one
 * transaction, and wakes each of the others with its own result. Callers that have a stream or a
 * key in common are judged in arrival order; others may go side by side (log->group_commit). A
 * transaction that fails as a whole is undone and each caller is run alone, once, so that one
 * caller's trouble is not its neighbours'. Only a store that was busy is not asked again for
 * those whose time to wait is up (store_append.deadline_us). A caller whose stream or key
 * somebody else holds (another process, a user's own transaction) does not hold up its batch: it
 * waits alone. At most COMMITTER_WAITING_MAX callers wait for a batch; one more is WEIR_EBUSY.
 */
#ifndef WEIR_STORE_COMMITTER_H
#define WEIR_STORE_COMMITTER_H

#include "base/thread.h"
#include "store/store.h"

enum {
    COMMITTER_WAITING_MAX = 1024,
    COMMITTER_BATCH_CALLERS_MAX = 256, /* each may need a lock or two of the database's memory */
    COMMITTER_BATCH_EVENTS_MAX = 4096, /* soft: a batch ends with the caller that reaches it */
    COMMITTER_BATCH_BYTES_MAX = 4 * 1024 * 1024, /* soft, likewise */
};

typedef struct committer committer;

/* store: borrowed, outlives the committer. *out: owned, ended by weir__committer_close. */
weir_status weir__committer_open(committer **out, weir_store *store, weir_error *err);
void weir__committer_close(committer *c); /* NULL is a no-op; nobody may be waiting */

/* Blocks until the append has been judged. Returns its status; its err (store_append.err) is
 * filled. */
weir_status weir__committer_append(committer *c, store_append *append);

/* What was counted since it was opened. Any thread. */
enum { COMMITTER_BATCH_BUCKETS = 9 }; /* transactions of at most 1, 2, 4, ... 256 appends */
typedef struct committer_counts {
    uint64_t appends, events; /* committed, and their events; replays and dry runs are not */
    uint64_t conflicts;       /* appends that were refused with WEIR_ECONFLICT */
    uint64_t batches[COMMITTER_BATCH_BUCKETS];
    uint64_t batched; /* appends in all of those, refused ones too */
} committer_counts;
void weir__committer_counts(committer *c, committer_counts *out);

/* How many callers wait or are being judged at this moment. */
size_t weir__committer_waiting(committer *c);

#endif
