/* lock.h - named locks: one holder at a time, whoever asks and from wherever (C40).
 *
 * What must stay true
 *   (1) For each store one mechanism decides, whether or not weir init has been run on it, and
 *       whatever happens in between: see README.md for how sessions and leases exclude each other.
 *   (2) A lock is held as long as the descriptor of hold_fd is open somewhere (LOCK_LEASE: as long
 *       as its lease runs). The supervisor of a program that runs under it keeps that descriptor
 *       open until no process of the program is left.
 *   (3) known_us only moves when it was proved that the lock is held. A holder without a proof that
 *       is younger than check_us has lost it.
 *
 * THREADS  A lock belongs to one thread at a time.
 */
#ifndef WEIR_LOCK_LOCK_H
#define WEIR_LOCK_LOCK_H

#include "base/memory.h"
#include "weir.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LOCK_CHECK_US_DEFAULT = 10 * 1000 * 1000, /* a loss is noticed within */
    LOCK_GRACE_US_DEFAULT = 10 * 1000 * 1000, /* from SIGTERM to SIGKILL */
    LOCK_CHECK_US_MIN = 200 * 1000,
    LOCK_MARGIN_US = 5 * 1000 * 1000, /* by which a lease outlasts the end of its program */
};
#define LOCK_SPAN_US_MAX INT64_C(86400000000) /* of check and grace: a day */

typedef enum lock_kind {
    LOCK_SESSION = 1, /* PostgreSQL: an advisory lock of a connection                  */
    LOCK_LEASE = 2,   /* PostgreSQL behind a pooler: a row of the store, renewed       */
    LOCK_FILE = 3,    /* SQLite: a locked file beside the database; one machine        */
    LOCK_MEMORY = 4,  /* memory: nobody else can ask for it                            */
} lock_kind;

const char *weir__lock_kind_text(lock_kind kind);

typedef struct lock_request {
    const char *url;
    weir_str name;
    weir_str holder; /* who and where, for people to read */
    int64_t wait_us; /* for the holder to let go; 0: not at all, -1: as long as it takes */
    int64_t check_us, grace_us;
    /* Said once, when it is not the usual kind; may be NULL. */
    void (*note_cb)(void *ctx, const char *text);
    void *note_ctx;
} lock_request;

typedef struct named_lock named_lock;

/* Everything in *q is copied. WEIR_EHELD: somebody else's, and the message says whose and since
 * when. EINVAL: the name or the URL; ENOTFOUND: it needs a store (a pooler is in between) and there
 * is none; EMISUSE: a standby. *out: ended by weir__lock_release. */
weir_status weir__lock_acquire(named_lock **out, const lock_request *q, weir_error *err);
/* NULL is a no-op. No process of the program that ran under it is left. */
void weir__lock_release(named_lock *l);
/* Instead, when processes may be left: those that have inherited the lock (weir__lock_hold_fd of
 * LOCK_FILE) go on holding it. Any other kind is released. */
void weir__lock_leave(named_lock *l);

lock_kind weir__lock_kind(const named_lock *l);
int64_t weir__lock_fence(const named_lock *l); /* 0: the store is not initialised */
/* What has to stay open while it is held; -1: nothing. */
int weir__lock_hold_fd(const named_lock *l);

/* Times of the next four are of weir__clock_boot. */
/* Readable: look at once. -1: there is nothing to wait for. */
int weir__lock_poll_fd(const named_lock *l);
/* When weir__lock_watch wants to be called again at the latest. */
int64_t weir__lock_due_us(const named_lock *l);
/* Looks after it. WEIR_OK: it is held, as was known at *known_us (INT64_MAX: it cannot be lost).
 * Anything else: it is lost, and the message says how. LOCK_SESSION does not block; LOCK_LEASE
 * does, for less than check_us. */
weir_status weir__lock_watch(named_lock *l, int64_t *known_us, weir_error *err);

/* After a time in which nobody looked: whether it is held now. Blocks, for check_us at most. */
weir_status weir__lock_prove(named_lock *l, int64_t *known_us, weir_error *err);

/* ---- who holds what ----------------------------------------------------------------------- */

typedef struct lock_row {
    weir_str name; /* .ptr NULL: it cannot be known (another role's, without a store) */
    weir_str holder;
    lock_kind kind;
    bool waiting;
    int64_t since_us; /* 0: it cannot be known */
    int64_t until_us; /* of a lease; 0: none */
    int64_t fence;    /* 0: none */
} lock_row;

typedef struct lock_list {
    weir_arena arena;
    lock_row *rows; /* by name, the holder before those who wait */
    size_t rows_count;
} lock_list;

/* Reads only. memory: always empty. */
weir_status weir__lock_list(const char *url, lock_list *list, weir_error *err);
void weir__lock_list_free(lock_list *list);

#endif
