/* store.h - the port: what every event store implements, and what it promises.
 *
 * Above the port, once for all stores: names, JSON, limits and fingerprints (request.h), group
 * commit (committer.h), patterns (pattern.h), filters (filter.h), what is decided by what was found
 * (judge.h), and how a refusal is worded (refusal.h). Below it, an adapter: memory/,
 * sqlite/, postgres/. An adapter may rely on everything in a request being valid; it checks what
 * depends on what is stored. tests/conformance/ runs the same tests on every adapter, named after
 * these promises.
 *
 * PROMISES
 *   (1) A verb that changes something is one transaction: all of it happens, durably, or none.
 *   (2) Positions only grow; a reader that has seen P never later finds a new event at or below P.
 *   (3) Verbs may be called from any thread at once. They block; they hold no lock and no
 *       transaction when they return, and none while a callback runs, except store_settle.sql,
 *       which runs inside the transaction on purpose.
 *   (4) Time is the store's time (`now`): one clock for all processes, which never goes back. A
 *       store may measure what is held by another clock (C04); what it answers is store time.
 *   (5) Verbs that lose to someone else answer (conflict, lost, held); they do not retry and do not
 *       write. Strings and arrays handed in are borrowed until the verb returns; strings handed out
 *       live in the arena given, or until the callback returns.
 *   (6) After the commit of anything that may give someone work, every watch of every process on
 *       the store wakes up: append, route, settle, turn, giving back, operate, parked_change. A
 *       settle of nothing but progress that keeps its target, or leaves it without work, gives
 *       nobody any, and neither does a turn that has leased again whatever it left with work: they
 *       need not wake anybody. A wake-up is a hint and may be lost when a process dies between
 *       commit and wake-up.
 *   (7) A failed verb leaves its outputs as they were, unless its comment says otherwise.
 *   (8) Workers are known, as they described themselves, until an hour after they ended. That is
 *       a hint: nothing is decided by it, and unlike (1) the last of it may be lost in a crash.
 *   (9) A store opened with WEIR_OPEN_READONLY answers WEIR_EMISUSE to every verb that changes
 *       something, whatever the database would allow; dry runs of operators aside.
 *  (10) Of those who take a lock, or begin a key of once, one at a time has it; a key that was done
 *       is not begun again, unless it is forgotten.
 *
 * LOCK ORDER inside a transaction, for adapters that lock rows: the caller's own SQL; idempotency
 * keys; reserved keys; stream heads; reaction rows; target rows, each class in bytewise order.
 * Nobody holds a target row while waiting for anything but another target row. Subscriptions, work
 * rows and parked events are guarded by their target's row. SQLite and memory have one writer at a
 * time, so there the order is the order of the code.
 *
 * DERIVED VALUES of a target, computed by whoever changes what they derive from, after locking the
 * target, in a later statement:
 *   behind    = one of its subscriptions (of reactions that are not retired) has at < mark, or a
 *               parked event of it was sent back;
 *   watermark = the least `at` of the subscriptions that are behind, else the greatest `at`,
 *               else 0;
 *   priority  = the operator's override, else the greatest of its subscriptions' priorities,
 *               else 0.
 */
#ifndef WEIR_STORE_STORE_H
#define WEIR_STORE_STORE_H

#include "base/clock.h"
#include "store/about.h"
#include "store/locks.h"
#include "store/log.h"
#include "store/work.h"

/* ---- opening ------------------------------------------------------------------------------ */

typedef struct store_options {
    /* What follows the scheme, decoded. Memory: the name, may be empty; PostgreSQL: the connection
     * string for libpq, without our parameters. */
    weir_str path;
    uint32_t open_flags;      /* WEIR_OPEN_* */
    int64_t busy_us;          /* how long a writer waits for its turn */
    int64_t key_ttl_us;       /* how long idempotency keys are remembered */
    int64_t payload_bytes;    /* kept for request.h */
    bool sync_normal;         /* commits may be lost with the power; fences still never repeat */
    int64_t checkpoint_pages; /* 0: the default */
    bool insecure;            /* SQLite: use files that others could have prepared (base/file.h) */
    weir_str vfs;             /* SQLite VFS to use; empty: the default one. For tests */
    weir_str schema;          /* PostgreSQL: where the store lives; empty: "weir" */
    /* PostgreSQL: HOST:PORT of the server itself, for listening, where path leads to a pooler;
     * empty: path. */
    weir_str direct;
    int64_t pool;      /* PostgreSQL: most connections of the handle, one more listens; 0: 8 */
    int64_t answer_us; /* PostgreSQL: no answer for this long is a lost connection; 0: 8 s */
    int32_t prepare;   /* PostgreSQL: 0 unless there is a pooler in between, 1 yes, 2 no */
    const char *application; /* who we are, for others to see; never NULL */
    const weir_clock *clock; /* never NULL; tests inject their own */
} store_options;

/* What opening a store did. Of several that open it at once, one has made it. */
typedef enum store_opened { STORE_FOUND = 0, STORE_MADE = 1, STORE_UPGRADED = 2 } store_opened;

/* The first member of every adapter's struct. */
struct weir_store {
    /* immutable; the parts of the port */
    const store_log_ops *log;
    const store_work_ops *work;
    const store_locks_ops *locks;
    const store_about_ops *about;
    const store_work_ops *operating; /* read_only.c: the adapter's own; else NULL */
    store_opened opened;             /* immutable once it is open */
};

/* Adapters. *out: owned, ended by about->close. */
weir_status weir__memory_open(weir_store **out, const store_options *options, weir_error *err);
weir_status weir__sqlite_open(weir_store **out, const store_options *options, weir_error *err);
/* Prints the SQL that opening would run on this store now, nothing when it is up to date: one
 * string in `sql`. Changes nothing, creates nothing. */
weir_status weir__sqlite_plan(const store_options *options, weir_buffer *sql, weir_error *err);
weir_status weir__postgres_open(weir_store **out, const store_options *options, weir_error *err);
/* Whether a schema may have that name. */
weir_status weir__postgres_schema_check(weir_str name, weir_error *err);
weir_status weir__postgres_plan(const store_options *options, weir_buffer *sql, weir_error *err);
/* Lets a role of the database work on the store: read everything, and call the functions that its
 * kind needs ("reader", "writer", "worker" or "operator"); nothing else. `sql` gets what is run, or
 * with `plan` what would be. */
weir_status weir__postgres_grant(const store_options *options, weir_str role, const char *kind,
                                 bool plan, weir_buffer *sql, weir_error *err);

#endif
