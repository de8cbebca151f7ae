/* memory_store.h - what the files of the memory adapter share: the tables, and the transaction.
 *
 * A store is a `memory_core`: sorted arrays (rows.h) and one mutex, `mu`. A handle refers to a
 * core; named cores are shared by the handles of a process. Every function below that takes a core
 * is called with `mu` held. Where the port has a struct for something, its row is that struct.
 */
#ifndef WEIR_STORE_MEMORY_MEMORY_STORE_H
#define WEIR_STORE_MEMORY_MEMORY_STORE_H

#include "base/thread.h"
#include "store/chunk.h"
#include "store/memory/rows.h"
#include "store/read_only.h"
#include "store/watches.h"

#include <string.h>

enum {
    KEYS_EXPIRED_MAX = 64, /* expired idempotency keys removed per transaction */
};

/* ---- rows --------------------------------------------------------------------------------- */

/* An idempotency key, and what its append was answered. */
typedef struct memory_key {
    weir_str key;
    weir_str results; /* a memory_key_result for each stream of the append */
    int64_t expires_us;
    uint8_t fingerprint[WEIR_SHA256_BYTES];
} memory_key;

typedef struct memory_key_result {
    int64_t first, last, id, created_us;
} memory_key_result;

/* A reserved business key, and the stream that has it. */
typedef struct memory_reserved {
    weir_str key, owner;
} memory_reserved;

/* A process that works. */
typedef struct memory_worker {
    store_worker worker; /* its lanes and known are not used, but: */
    weir_str lanes;      /* each followed by a NUL                 */
    weir_str known;      /* the bytes of its array                 */
} memory_worker;

typedef struct memory_definition {
    int64_t reaction, number;
    store_rule rule;
    bool all_names;
    weir_str source, rule_text;
    weir_str names; /* in bytewise order, distinct, each followed by a NUL */
    size_t names_count;
    store_pattern *pattern; /* owned: the source, compiled */
} memory_definition;

/* The id of the target with a name. */
typedef struct memory_name {
    weir_str name;
    int64_t id;
} memory_name;

typedef struct memory_subscription {
    int64_t target, reaction;
    int64_t at, mark, retries, priority;
    weir_str source, value;
    bool was_reset;
} memory_subscription;

/* An event that the router found for a subscription of a reaction with STORE_RULE_WORK. */
typedef struct memory_work {
    int64_t target, reaction, event;
} memory_work;

/* ---- the store ---------------------------------------------------------------------------- */

/* Numbers of the whole store; a transaction that is undone takes its changes of them back. */
typedef struct memory_counters {
    int64_t worker, parked, fence; /* the last that were handed out; fence: of locks and once */
    int64_t key_expires_us;        /* no idempotency key expires before this */
} memory_counters;

typedef struct memory_core {
    weir_mutex mu;

    /* guarded by the registry's mutex */
    int64_t references; /* handles and watches */
    struct memory_core *next_named;

    /* immutable after opening */
    char *name; /* owned; NULL: private */
    char epoch[64];
    int64_t key_ttl_us;

    /* guarded by mu, like everything below */
    weir_steady_clock clock;
    weir_age_clock key_clock;            /* by which keys expire; begun when the store was made */
    int64_t now_us, key_now_us;          /* of this transaction */
    int64_t position_base, version_base; /* seed.h */

    row_table events;        /* weir_event by id: the log. Positions have no gaps         */
    row_table streams;       /* the same rows by stream, id                               */
    row_table keys;          /* memory_key by key                                         */
    row_table reserved;      /* memory_reserved by key                                    */
    row_table snapshots;     /* store_snapshot by stream                                  */
    row_table workers;       /* memory_worker by name                                     */
    row_table locks, once;   /* store_lock by name                                        */
    row_table reactions;     /* store_reaction by id: 1, 2, ...; see weir__memory_reaction */
    row_table definitions;   /* memory_definition by reaction, number                     */
    row_table lanes;         /* store_lane by name: those that were ever paused           */
    row_table targets;       /* store_target by id: 1, 2, ...; see weir__memory_target    */
    row_table names;         /* memory_name by name, of targets                           */
    row_table subscriptions; /* memory_subscription by target, reaction                   */
    row_table work;          /* memory_work by target, reaction, event                    */
    row_table parked;        /* store_parked by id; target "": parked while routing       */

    row_changes changes; /* of this transaction */
    bool full;           /* it has run out of memory: nothing is written any more */
    memory_counters counters, counters_before;
    watch_list watches;
} memory_core;

typedef struct memory_handle {
    weir_store base;         /* first */
    memory_core *core;       /* counted reference */
    const weir_clock *clock; /* borrowed */
    store_reading reading;   /* what base has when it was opened for reading alone */
    int64_t transactions;    /* guarded by core->mu */
} memory_handle;

static inline memory_handle *weir__memory_handle(weir_store *base)
{
    return (memory_handle *)(void *)base;
}

/* ---- tables (tables.c) -------------------------------------------------------------------- */

void weir__memory_tables_begin(memory_core *c);
void weir__memory_tables_free(memory_core *c);

/* ---- transactions (store.c) --------------------------------------------------------------- */

/* Locks the store and reads the clock, for a verb that reads. */
memory_core *weir__memory_lock(weir_store *base);
/* Its end. WEIR_ENOMEM when memory ran out on the way, else `status`. */
weir_status weir__memory_unlock(memory_core *c, weir_status status, weir_error *err);
/* Locks the store and reads the clock, for a verb that writes. It goes on to weir__memory_end also
 * when this answers WEIR_EMISUSE, because the handle must not write. */
memory_core *weir__memory_begin(weir_store *base);
/* Keeps what was changed when status is WEIR_OK, and then wakes the watches if `wake`. Otherwise,
 * or when memory ran out on the way (WEIR_ENOMEM), undoes it. */
weir_status weir__memory_end(weir_store *base, weir_status status, bool wake, weir_error *err);

/* Nobody has to ask whether these found memory. If one does not, it sets c->full, and from then on
 * nothing is written: what was put may be missing, nothing else, until the end undoes it all. */
void weir__memory_put(memory_core *c, row_table *t, const void *row);
void weir__memory_remove(memory_core *c, row_table *t, const void *key);
void weir__memory_copy(memory_core *c, const row_table *t, const void *row, weir_arena *arena,
                       void *out);
void weir__memory_text_copy(memory_core *c, weir_arena *arena, weir_str *text);
/* Not zeroed. NULL: out of memory. */
void *weir__memory_array(memory_core *c, weir_arena *arena, size_t count, size_t item_bytes);

weir_status weir__memory_full(weir_error *err); /* "out of memory" */

/* ---- log.c: events and streams ------------------------------------------------------------ */

int64_t weir__memory_head(const memory_core *c);
/* The event at a position that exists. */
const weir_event *weir__memory_event(const memory_core *c, int64_t id);
/* The i-th row of `streams`; NULL: there is none, or it is not of that stream. */
const weir_event *weir__memory_stream_event(const memory_core *c, weir_str stream, size_t i);
/* The index in `streams` of the first event of a stream at or after a position. */
size_t weir__memory_stream_seek(const memory_core *c, weir_str stream, int64_t id);
/* The last event of a stream; NULL: there is no such stream. */
const weir_event *weir__memory_stream_last(const memory_core *c, weir_str stream);
/* Whether that is the end of a closed stream. */
bool weir__memory_is_closed(const weir_event *last);
/* Adds an event to the log. NULL: out of memory. */
const weir_event *weir__memory_event_add(memory_core *c, weir_str stream,
                                         const store_new_event *event);
/* The next event of a subscription with after < id <= up_to; NULL: none. */
const weir_event *weir__memory_next_event(const memory_core *c, const memory_subscription *s,
                                          int64_t after, int64_t up_to);

/* ---- append.c, unhandled.c ---------------------------------------------------------------- */

/* Judges and writes one append inside a transaction; refused, it leaves nothing behind. The answer
 * is in append->status and append->err. *wrote becomes true when events were added. */
void weir__memory_append_one(memory_core *c, store_append *append, bool *wrote);
void weir__memory_keys_expire(memory_core *c);
/* WEIR_EHELD naming the reactions that have unhandled events of a stream, else WEIR_OK. */
weir_status weir__memory_unhandled(const memory_core *c, weir_str stream, weir_error *err);

/* ---- reactions.c -------------------------------------------------------------------------- */

/* In a row, `number` and what belongs to the definition are not used: see `definitions`. */
const store_reaction *weir__memory_reaction(const memory_core *c, int64_t id); /* NULL: none */
const store_reaction *weir__memory_reaction_named(const memory_core *c, weir_str name);
/* The current definition of a reaction that exists. */
const memory_definition *weir__memory_definition(const memory_core *c, int64_t reaction);
bool weir__memory_listens(const memory_definition *d, const weir_event *e);

/* ---- targets.c ---------------------------------------------------------------------------- */

/* In a row, `state` is LEASED while somebody has the lease, expired or not: the fence decides, not
 * the clock; else IDLE. `leased_until_us`, `due_us` and `holder` are as they were written; `mark`
 * and `subscriptions` are not used. NULL: none. */
const store_target *weir__memory_target(const memory_core *c, int64_t id);
const store_target *weir__memory_target_named(const memory_core *c, weir_str name);
/* *out is a copy of the target's row, or of a new one; it has to be put. EINVAL when the target is
 * in another lane. */
weir_status weir__memory_target_ensure(const memory_core *c, weir_str name, weir_str lane,
                                       store_target *out, weir_error *err);
/* Derives behind, watermark and priority of a target, also in *t, and puts it. Whoever changes a
 * target, or what its values derive from, calls this last. */
void weir__memory_target_put(memory_core *c, store_target *t);
void weir__memory_derive(const memory_core *c, store_target *t);
/* What the target is at this time. */
store_target_state weir__memory_target_state(const memory_core *c, const store_target *t);
/* These change a copy of a row, which is then put. */
void weir__memory_lease_end(store_target *t);
void weir__memory_error_clear(store_target *t);
weir_status weir__memory_fence_check(const store_target *t, int64_t id, int64_t fence,
                                     weir_error *err);
bool weir__memory_lane_paused(const memory_core *c, weir_str lane);
/* Whether a filter accepts a target. */
bool weir__memory_filter_accepts(const memory_core *c, const store_target_filter *f,
                                 const store_target *t);

/* NULL: none. */
const memory_subscription *weir__memory_subscription(const memory_core *c, int64_t target,
                                                     int64_t reaction);
/* A walk over a target's subscriptions, by reaction; *at starts at 0. NULL: that was all. They may
 * be replaced meanwhile, nothing added. */
const memory_subscription *weir__memory_subscription_next(const memory_core *c, int64_t target,
                                                          size_t *at);
/* Removes a subscription's work rows at or below a position. */
void weir__memory_work_drop(memory_core *c, const memory_subscription *s, int64_t up_to);
/* Whether a reaction that is not retired has something to do for a target by this subscription. */
bool weir__memory_has_work(const memory_core *c, const store_target *t,
                           const memory_subscription *s);

/* ---- parked.c ----------------------------------------------------------------------------- */

/* The row of an event that was parked for a reaction and a target. NULL: none. */
const store_parked *weir__memory_parked_find(const memory_core *c, weir_str target,
                                             const store_park *park);
/* Parks an event, or parks it anew: no longer sent back. The target is put afterwards. */
void weir__memory_park(memory_core *c, weir_str target, const store_park *park);
const store_parked *weir__memory_parked_get(const memory_core *c, int64_t id); /* NULL: none */

/* ---- lease.c ------------------------------------------------------------------------------ */

/* Leases inside a transaction, into an empty list; r->limit is not 0. */
void weir__memory_lease_in(memory_core *c, const store_lease_request *r, store_lease_list *list);

/* ---- the verbs, for the tables in store.c -------------------------------------------------- */

void weir__memory_watch_close(store_watch *watch);
weir_status weir__memory_append(weir_store *base, store_append *const *appends, size_t count,
                                weir_error *err);
weir_status weir__memory_read_stream(weir_store *base, const store_stream_query *q,
                                     store_chunk *chunk, weir_error *err);
weir_status weir__memory_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                                  weir_error *err);
weir_status weir__memory_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                     store_stream_info *out, weir_error *err);
weir_status weir__memory_streams(weir_store *base, const store_streams_query *q,
                                 store_streams_chunk *chunk, weir_error *err);
weir_status weir__memory_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err);
weir_status weir__memory_reactions(weir_store *base, store_reaction_list *list, weir_error *err);
weir_status weir__memory_retire(weir_store *base, weir_str name, weir_error *err);
weir_status weir__memory_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err);
weir_status weir__memory_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err);
weir_status weir__memory_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err);
weir_status weir__memory_settle(weir_store *base, store_settle *settle, weir_error *err);
weir_status weir__memory_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err);
weir_status weir__memory_operate(weir_store *base, store_operate *op, weir_error *err);
weir_status weir__memory_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err);
weir_status weir__memory_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err);
weir_status weir__memory_lanes(weir_store *base, store_lane_list *list, weir_error *err);
weir_status weir__memory_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err);
weir_status weir__memory_poll(weir_store *base, store_poll *poll, weir_error *err);
weir_status weir__memory_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                      weir_error *err);
weir_status weir__memory_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                      int64_t at_most, weir_arena *arena, store_snapshot *out,
                                      weir_error *err);
weir_status weir__memory_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                       int64_t *dropped, weir_error *err);
weir_status weir__memory_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err);
weir_status weir__memory_workers(weir_store *base, store_worker_list *list, weir_error *err);
weir_status weir__memory_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err);
weir_status weir__memory_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                                   store_lock *out, weir_error *err);
weir_status weir__memory_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                     int64_t fence, int64_t token, int64_t lease_us,
                                     weir_error *err);
weir_status weir__memory_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                       weir_error *err);
weir_status weir__memory_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err);
weir_status weir__memory_locks(weir_store *base, store_lock_list *list, weir_error *err);
weir_status weir__memory_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err);
weir_status weir__memory_once_forget(weir_store *base, weir_str key, weir_error *err);
weir_status weir__memory_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err);
weir_status weir__memory_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err);

#endif
