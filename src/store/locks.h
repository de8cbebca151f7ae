/* locks.h - the part of the port that has to do with named locks and keys of once. Promises:
 * store.h. */
#ifndef WEIR_STORE_LOCKS_H
#define WEIR_STORE_LOCKS_H

#include "base/memory.h"
#include "store/pattern.h"
#include "weir.h"

#include <stdbool.h>

typedef struct weir_store weir_store;

enum { STORE_ONCE_OUTPUT_BYTES_MAX = 1024 * 1024 }; /* what is remembered of a run's output */

typedef enum store_lock_kind { STORE_LOCK = 0, STORE_ONCE = 1 } store_lock_kind;

typedef enum store_once_state {
    STORE_ONCE_RUNNING = 1,
    STORE_ONCE_DONE = 2,   /* it succeeded, and is remembered */
    STORE_ONCE_FAILED = 3, /* it ended in another way, and may be tried again */
    STORE_ONCE_DIED = 4,   /* it did not say how it ended, and its lease has; only in lists */
} store_once_state;

typedef struct store_lock_request {
    store_lock_kind kind;
    weir_str name, holder;
    int64_t lease_us;
} store_lock_request;

/* The holder of a name; for a key of once, its latest run. */
typedef struct store_lock {
    weir_str name;   /* as `take` got it, at most STORE_NAME_BYTES_MAX */
    weir_str holder; /* who and where, for people to read; at most STORE_NAME_BYTES_MAX */
    int64_t fence;
    int64_t token; /* as of store_leased; only in what `take` gives */
    int64_t since_us;
    int64_t until_us;       /* the end of its lease; 0: it is held by other means than a lease */
    store_once_state state; /* of a lock that is held: RUNNING */
    /* of a run that has ended */
    int64_t exit_status, ended_us;
    weir_str output; /* any bytes, at most STORE_ONCE_OUTPUT_BYTES_MAX */
} store_lock;

typedef struct store_lock_list {
    weir_arena arena;
    store_lock *locks; /* by name; those whose lease has ended are not listed */
    size_t locks_count;
} store_lock_list;

typedef struct store_once_list {
    weir_arena arena;
    store_lock *runs; /* without their output */
    size_t runs_count;
} store_once_list;

/* ---- the verbs ---------------------------------------------------------------------------- */

typedef struct store_locks_ops {
    /* TAKE a lock: a name that nobody holds, or whose holder's lease has ended, becomes the
     * caller's until now + lease_us, with a fence that is larger than every earlier one of that
     * name, through crashes as well. Else WEIR_EHELD, and *out is the other's lock: unlike (7),
     * *out is filled then as well, its texts in the arena. lease_us 0: for what is held by other
     * means (an advisory lock): the same, but it keeps nobody from taking the name: a fence, and a
     * note of who it is. Nobody is woken by any of these.
     * A key of once, whose names are others: the same with WEIR_EINFLIGHT, and lease_us is not 0;
     * but WEIR_OK with STORE_ONCE_DONE: it was done before, *out has the outcome. A run that
     * failed, or whose lease has ended, may be begun again. */
    weir_status (*take)(weir_store *s, const store_lock_request *q, weir_arena *arena,
                        store_lock *out, weir_error *err);
    /* ELOST. The fence decides, not the clock: who is late, and was not followed by anybody, still
     * has it. extend: until = now + lease_us; one without a lease stays without. */
    weir_status (*extend)(weir_store *s, store_lock_kind kind, weir_str name, int64_t fence,
                          int64_t token, int64_t lease_us, weir_error *err);
    weir_status (*release)(weir_store *s, weir_str name, int64_t fence, int64_t token,
                           weir_error *err);
    /* exit_status 0: done, for ever; else failed. A second time with the same fence changes nothing
     * and is WEIR_OK. ELOST. */
    weir_status (*finish)(weir_store *s, weir_str key, int64_t fence, int64_t token,
                          int64_t exit_status, weir_str output, weir_error *err);
    /* The key is as if it had never been used, but for its fences. ENOTFOUND. EINFLIGHT: it is
     * running; whose lease has ended is not. */
    weir_status (*forget)(weir_store *s, weir_str key, weir_error *err);
    weir_status (*list)(weir_store *s, store_lock_list *list, weir_error *err);
    /* The latest run of each key that matches (NULL: of every key), at most `limit`: first those
     * that are running, then the others; of each group the one that began last comes first, and of
     * those that began at the same time the one whose key is less. */
    weir_status (*runs)(weir_store *s, const store_pattern *match, int64_t limit,
                        store_once_list *list, weir_error *err);
} store_locks_ops;

/* What all adapters answer to those who come too late, with who it is and since when. */
weir_status weir__lock_held(const store_lock *other, weir_error *err);
weir_status weir__once_running(const store_lock *other, weir_error *err);
/* The answer of `take` to what was found of another's: it is held, or was done before. */
weir_status weir__lock_taken(store_lock_kind kind, const store_lock *found, weir_error *err);
weir_status weir__lock_lost(weir_str name, int64_t fence, weir_error *err);
weir_status weir__once_unknown(weir_str key, weir_error *err);
/* What happened to a run that a list shows, at this time of the store. */
store_once_state weir__once_state_at(const store_lock *run, int64_t now_us);

/* PostgreSQL: lock_take without a lease, and lock_release, in a session of the caller's own
 * (weir__pg_guest). schema: where the store lives, as an identifier. */
struct pg_connection;
weir_status weir__postgres_lock_take(struct pg_connection *conn, const char *schema, weir_str name,
                                     weir_str holder, weir_arena *arena, store_lock *out,
                                     weir_error *err);
weir_status weir__postgres_lock_release(struct pg_connection *conn, const char *schema,
                                        weir_str name, int64_t fence, int64_t token,
                                        weir_error *err);

#endif
