/* lock.h - named locks and keys of once, as the port speaks of them; the verbs are in store.h. */
#ifndef WEIR_STORE_LOCK_H
#define WEIR_STORE_LOCK_H

#include "base/memory.h"
#include "weir.h"

enum { STORE_ONCE_OUTPUT_BYTES_MAX = 1024 * 1024 }; /* what is remembered of a run's output */

typedef enum store_lock_kind { STORE_LOCK = 0, STORE_ONCE = 1 } store_lock_kind;

typedef enum store_once_state {
    STORE_ONCE_RUNNING = 1,
    STORE_ONCE_DONE = 2,   /* it succeeded, and is remembered */
    STORE_ONCE_FAILED = 3, /* it ended in another way, and may be tried again */
    STORE_ONCE_DIED = 4,   /* it did not say how it ended, and its lease has; only in lists */
} store_once_state;

/* Who holds a name; of a key of once, its latest run. */
typedef struct store_lock {
    weir_str name;   /* as lock_take got it, at most STORE_NAME_BYTES_MAX */
    weir_str holder; /* who and where, for people to read; at most STORE_NAME_BYTES_MAX */
    int64_t fence;
    int64_t token; /* as of store_leased; only in what lock_take gives */
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

/* What all adapters answer to those who come too late, with who it is and since when. */
weir_status weir__lock_held(const store_lock *other, weir_error *err);
weir_status weir__once_running(const store_lock *other, weir_error *err);
/* The answer of lock_take to what was found of another's: it is held, or was done before. */
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
