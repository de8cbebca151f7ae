/* sqlite_store.h - what the files of the SQLite adapter share: transactions, on the connections and
 * with the statements of the driver (sqlite/sqlite.h).
 *
 * One writing connection per handle, used under `writer_mu`, inside the side lock (the file
 * PATH-weir), inside BEGIN IMMEDIATE: always in that order. Readers are read-only connections from
 * a small pool, each in one thread's hands at a time. README.md in this directory has the protocol.
 */
#ifndef WEIR_STORE_SQLITE_SQLITE_STORE_H
#define WEIR_STORE_SQLITE_SQLITE_STORE_H

#include "base/thread.h"
#include "sqlite/cursor.h"
#include "sqlite/sqlite.h"
#include "store/chunk.h"
#include "store/store.h"

typedef struct sqlite_store sqlite_store;

/* What every transaction reads first (sqlite_conn.row). In a write transaction head and next move
 * with what is appended. */
typedef struct sqlite_row {
    int64_t clock_us;     /* the latest time that the store has seen                  */
    int64_t head;         /* position of the last event; 0: there is none             */
    int64_t next;         /* position of the next event                               */
    int64_t version_base; /* version of a stream's first event: 0 outside of tests    */
    int64_t token;        /* of every lease and lock: made of the epoch, never 0      */
    int64_t machine_us;   /* machine.c; 0: nobody has asked in this transaction       */
} sqlite_row;

/* ---- transactions (transaction.c) --------------------------------------------------------- */

enum {
    SQLITE_TX_DURABLE = 1, /* synced even with sync=normal: whatever hands out a fence */
    SQLITE_TX_HINT = 2,    /* not synced even with sync=full: may be lost, with the power */
};

/* Begins a write transaction: the handle's writer mutex, the side lock, BEGIN IMMEDIATE, all within
 * busy_us, else WEIR_EBUSY. *now_us: the store's time, kept with the commit so that it never goes
 * back. Must be followed by weir__sqlite_write_end on the same thread. WEIR_EMISUSE on a read-only
 * store. */
weir_status weir__sqlite_write_begin(sqlite_store *s, uint32_t flags, sqlite_conn **conn,
                                     int64_t *now_us, weir_error *err);
/* The same until a time of the machine's monotonic clock, which may be past: tries once then. */
weir_status weir__sqlite_write_begin_until(sqlite_store *s, uint32_t flags, int64_t deadline_us,
                                           sqlite_conn **conn, int64_t *now_us, weir_error *err);
/* Commits when status is WEIR_OK, else rolls back (err is kept as it is). Checkpoints when it is
 * time, releases everything, then wakes the watches if `wake` and something was changed. Returns
 * `status`, or what the commit failed with; WEIR_EMISUSE when something inside has ended the
 * transaction. */
weir_status weir__sqlite_write_end(sqlite_store *s, weir_status status, bool wake, weir_error *err);

/* store.c. weir_store.epoch, inside a transaction. */
/* Gives a handle its verbs. */
void weir__sqlite_verbs(sqlite_store *s);
weir_status weir__sqlite_epoch(sqlite_conn *conn, char *out, size_t bytes, weir_error *err);

/* A read transaction on a pooled connection; keep it short, never over a callback. */
weir_status weir__sqlite_read_begin(sqlite_store *s, sqlite_conn **conn, weir_error *err);
void weir__sqlite_read_end(sqlite_store *s, sqlite_conn *conn);
/* The store's time for a reader: inside a read transaction. */
weir_status weir__sqlite_read_now(sqlite_store *s, sqlite_conn *conn, int64_t *now_us,
                                  weir_error *err);

const store_options *weir__sqlite_options(const sqlite_store *s);

/* ---- how long something is held (machine.c) ------------------------------------------------ */

/* Both times of a transaction. store_us: when something happens, and when what was deferred is due.
 * machine_us: who may hold what; every column that says until when a lease lasts is of that clock.
 */
typedef struct sqlite_times {
    int64_t store_us, machine_us;
} sqlite_times;

/* The machine's clock, inside a transaction. One that writes sets it, if it is the first since the
 * machine was started, and then ends every lease. */
weir_status weir__sqlite_machine_now(sqlite_store *s, sqlite_conn *conn, int64_t *now_us,
                                     weir_error *err);
/* weir__sqlite_write_begin and weir__sqlite_read_now, with both times. */
weir_status weir__sqlite_hold_begin(sqlite_store *s, uint32_t flags, sqlite_conn **conn,
                                    sqlite_times *now, weir_error *err);
weir_status weir__sqlite_read_times(sqlite_store *s, sqlite_conn *conn, sqlite_times *now,
                                    weir_error *err);
/* The end of a lease, as the store keeps it, in store time: for those who ask. */
int64_t weir__sqlite_held_until(const sqlite_times *now, int64_t until_us);

/* ---- appending inside a transaction (append.c) --------------------------------------------- */

/* Judges and writes appends inside the caller's write transaction, as store.h says for append. A
 * refused append leaves nothing behind in the transaction. */
weir_status weir__sqlite_append_in(sqlite_store *s, sqlite_conn *conn, int64_t now_us,
                                   store_append *const *appends, size_t count, weir_error *err);

/* ---- names in the log (read.c) --------------------------------------------------------------- */

enum {
    SQLITE_DENSE_PART = 4, /* names are dense when they are a quarter of the events */
};

/* Names looked for in the positions [low, high], from either end. */
typedef struct sqlite_names {
    const weir_str *names; /* borrowed */
    size_t count;
    int64_t low, high;
    bool backward;
    int64_t limit; /* so many are wanted */
} sqlite_names;

/* Whether a good part of the next events has these names, so that reading all of them is cheaper
 * than looking each up. An estimate, from the index alone. */
weir_status weir__sqlite_names_dense(sqlite_conn *conn, const sqlite_names *names, bool *dense,
                                     weir_error *err);

/* Names the reactions that have not handled every event of a stream (targets side, unhandled.c):
 * WEIR_OK when there are none, WEIR_EHELD with the names in the message otherwise. `stream_row` is
 * weir_streams.id. */
weir_status weir__sqlite_unhandled(sqlite_store *s, sqlite_conn *conn, int64_t stream_row,
                                   weir_str stream, weir_error *err);

/* ---- the verbs, for the tables in store.c -------------------------------------------------- */

weir_status weir__sqlite_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err);
weir_status weir__sqlite_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err);
weir_status weir__sqlite_reactions(weir_store *base, store_reaction_list *list, weir_error *err);
weir_status weir__sqlite_retire(weir_store *base, weir_str name, weir_error *err);
weir_status weir__sqlite_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err);
weir_status weir__sqlite_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err);
weir_status weir__sqlite_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err);
weir_status weir__sqlite_settle(weir_store *base, store_settle *settle, weir_error *err);
weir_status weir__sqlite_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err);
weir_status weir__sqlite_operate(weir_store *base, store_operate *op, weir_error *err);
weir_status weir__sqlite_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err);
weir_status weir__sqlite_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err);
weir_status weir__sqlite_lanes(weir_store *base, store_lane_list *list, weir_error *err);
weir_status weir__sqlite_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err);
weir_status weir__sqlite_poll(weir_store *base, store_poll *poll, weir_error *err);
weir_status weir__sqlite_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err);
weir_status weir__sqlite_workers(weir_store *base, store_worker_list *list, weir_error *err);
weir_status weir__sqlite_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err);
weir_status weir__sqlite_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                                   store_lock *out, weir_error *err);
weir_status weir__sqlite_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                     int64_t fence, int64_t token, int64_t lease_us,
                                     weir_error *err);
weir_status weir__sqlite_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                       weir_error *err);
weir_status weir__sqlite_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err);
weir_status weir__sqlite_locks(weir_store *base, store_lock_list *list, weir_error *err);
weir_status weir__sqlite_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err);
weir_status weir__sqlite_once_forget(weir_store *base, weir_str key, weir_error *err);
weir_status weir__sqlite_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err);
/* The targets' part of check: findings about targets, subscriptions, work rows and parked
 * events. */
weir_status weir__sqlite_check_targets(sqlite_store *s, sqlite_conn *conn, store_finding_fn fn,
                                       void *ctx, weir_error *err);
/* The targets' part of stats: targets, blocked, parked. */
weir_status weir__sqlite_stats_targets(sqlite_store *s, sqlite_conn *conn, store_stats *out,
                                       weir_error *err);

#endif
