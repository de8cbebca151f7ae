/* memory_store.h - what the files of the memory adapter share: the data, and the transaction.
 *
 * A store is a `memory_core`; a handle (`memory_handle`) refers to one, and named stores are
 * shared by the handles of a process. Everything in a core is guarded by its one mutex, `mu`,
 * unless it says otherwise; every function below that takes a core is called with it held.
 * README.md in this directory has locks, lifetimes and the reasons.
 */
#ifndef WEIR_STORE_MEMORY_MEMORY_STORE_H
#define WEIR_STORE_MEMORY_MEMORY_STORE_H

#include "base/thread.h"
#include "store/memory/name_index.h"
#include "store/memory/ordered.h"
#include "store/memory/table.h"
#include "store/store.h"
#include "store/watches.h"

#include <string.h>

typedef struct memory_core memory_core;
typedef struct memory_event memory_event;
typedef struct memory_reaction memory_reaction;
typedef struct memory_target memory_target;
typedef struct memory_subscription memory_subscription;

/* ---- events, streams, keys ---------------------------------------------------------------- */

enum {
    LOG_BLOCK_EVENTS = 4096, /* the log is an array of blocks: growing never moves an event */
    KEYS_EXPIRED_MAX = 64,   /* expired idempotency keys removed per transaction */
    CHUNK_NAMES_MAX = 1000,  /* names looked at by one call that lists streams or targets */
};

/* Events in the order of their positions. */
typedef struct event_list {
    memory_event **items; /* owned; the events are the log's */
    size_t count, capacity;
} event_list;

/* The name of events, or a category of streams, with its events. Interned: never removed, so that
 * an undone append leaves at most an empty one, which nothing shows. */
typedef struct memory_word {
    table_item item; /* first; the key is `bytes` */
    event_list events;
    char bytes[];
} memory_word;

typedef struct memory_stream {
    table_item item;       /* first; the key is `bytes` */
    memory_word *category; /* borrowed from the core */
    event_list events;     /* never empty outside a transaction */
    bool closed;
    char bytes[];
} memory_stream;

/* Immutable once written. */
struct memory_event {
    memory_stream *stream; /* borrowed from the core */
    memory_word *name;     /* borrowed from the core */
    int64_t id, version, created_us;
    uint32_t data_bytes, meta_bytes;
    char bytes[]; /* data, then meta */
};

typedef struct memory_key_result {
    int64_t first, last, id, created_us;
} memory_key_result;

/* An idempotency key. */
typedef struct memory_key {
    table_item item; /* first; the key follows the results */
    struct memory_key *older, *newer;
    int64_t expires_us;
    uint8_t fingerprint[WEIR_SHA256_BYTES];
    size_t results_count;
    memory_key_result results[];
} memory_key;

/* A reserved business key. The owner is a name: it needs no event. */
typedef struct memory_reserved {
    table_item item; /* first */
    weir_str owner;  /* in `bytes`, after the key */
    char bytes[];
} memory_reserved;

typedef struct memory_snapshot {
    table_item item; /* first: the stream's name */
    weir_str revision, data;
    int64_t version;
    char bytes[];
} memory_snapshot;

/* A process that works. */
typedef struct memory_worker {
    table_item item;     /* first: its name */
    store_worker worker; /* what it points to is in `bytes` */
    _Alignas(store_known_reaction) char bytes[];
} memory_worker;

/* A lock, or a key of once. */
typedef struct memory_lock {
    table_item item; /* first: its name */
    store_once once; /* of a lock: `run` alone. Texts are in `bytes` */
    char bytes[];
} memory_lock;

/* ---- reactions, targets ------------------------------------------------------------------- */

typedef struct memory_definition {
    int64_t number;
    const weir_str *names; /* in the same block; in bytewise order, distinct */
    size_t names_count;
    bool all_names;
    store_rule rule;
    weir_str source, rule_text; /* in the same block */
    store_pattern *pattern;     /* owned: the source, compiled */
} memory_definition;

struct memory_reaction {
    table_item item; /* first; the key is `bytes` */
    int64_t id;
    memory_definition **definitions; /* owned; number n is at n - 1, the last is current */
    size_t definitions_count, definitions_capacity;
    ordered_set by_value; /* its subscriptions by (value, target) */
    ordered_set work;     /* work rows of all its subscriptions by (event, target) */
    struct reaction_state {
        int64_t since, routed, reread_to, attempts;
        weir_str router; /* owned; empty: given back */
        int64_t router_until_us, router_fence;
        bool retired;
    } state;
    char bytes[];
};

/* What one reaction can do in one lane. Leasing merges those it knows, so that work of reactions it
 * does not know costs nothing. Subscriptions are members while they have work and their target can
 * be leased, now or (by_due) at its time. */
typedef struct lane_work {
    memory_reaction *reaction; /* borrowed */
    ordered_set by_priority;   /* target's priority descending, rank, id */
    ordered_set by_rank;       /* target's rank, id */
    ordered_set by_due;        /* target's due, id */
} lane_work;

/* Interned like memory_word: shown once it has a target or was paused. */
typedef struct memory_lane {
    table_item item;    /* first; the key is `bytes` */
    ordered_set leases; /* targets by (until, id) whose lease was live when last looked at */
    lane_work **works;  /* owned, each too */
    size_t works_count, works_capacity;
    bool paused, was_paused;
    weir_str paused_by; /* owned */
    char bytes[];
} memory_lane;

/* An event that the router found for a subscription of a reaction with STORE_RULE_WORK. */
typedef struct memory_work {
    ordered_node by_event;    /* in the subscription's set */
    ordered_node by_reaction; /* in the reaction's set     */
    memory_subscription *subscription;
    int64_t event;
} memory_work;

typedef enum placement {
    PLACED_NOWHERE,
    PLACED_READY, /* subscriptions with work: in by_priority and by_rank */
    PLACED_DUE,   /* subscriptions with work: in by_due                  */
    PLACED_LEASED /* the target: in its lane's leases                    */
} placement;

struct memory_subscription {
    memory_target *target;     /* borrowed */
    memory_reaction *reaction; /* borrowed */
    lane_work *lane;           /* borrowed: where it is placed */
    ordered_node by_value;     /* in the reaction's set */
    ordered_node by_priority;  /* PLACED_READY */
    ordered_node by_order;     /* PLACED_READY: by_rank; PLACED_DUE: by_due */
    bool placed;               /* its nodes are in the sets of its target's placement */
    ordered_set work;          /* work rows by event */
    struct subscription_state {
        int64_t at, mark, retries, priority;
        int64_t sent_back;      /* how many of its parked events were sent back */
        weir_str source, value; /* owned */
        bool was_reset;
        bool has_work; /* derived: not retired, and at < mark or something was sent back */
    } state;
};

struct memory_target {
    table_item item;       /* first; the key is `bytes` */
    ordered_node by_lease; /* PLACED_LEASED */
    int64_t id;
    memory_lane *lane; /* borrowed; for ever */
    placement placed;
    memory_subscription **subscriptions; /* owned, each too; by reaction id */
    size_t subscriptions_count, subscriptions_capacity;
    ordered_set sent_back;  /* its parked events that were sent back, by (event, reaction) */
    uint64_t edited_serial; /* the transaction that has taken it out of its sets */
    uint64_t picked_serial; /* the lease call that has looked at it already */
    memory_target *picked_next;
    struct target_state {
        int64_t fence, until_us, due_us, blocked_us, lost;
        int64_t event, attempts;
        memory_reaction *failed; /* borrowed; NULL: none */
        int64_t override;
        weir_str holder, error, paused_by; /* owned */
        int64_t watermark, priority;       /* derived */
        bool behind;                       /* derived */
        bool leased;                       /* someone holds it, expired or not: the fence decides */
        bool lapsed; /* the lease was seen to have expired: the target is placed as if free */
        bool blocked, paused, prioritized;
    } state;
    char bytes[];
};

typedef struct memory_parked {
    ordered_node by_id;
    ordered_node by_event;     /* (event, reaction, target) */
    ordered_node by_sent_back; /* in the target's set while sent back */
    int64_t id, event;
    memory_reaction *reaction;         /* borrowed */
    memory_subscription *subscription; /* borrowed; NULL: parked while routing */
    struct parked_state {
        int64_t attempts, parked_us;
        weir_str error; /* owned */
        bool sent_back;
    } state;
} memory_parked;

/* ---- the transaction (journal.c) ---------------------------------------------------------- */

typedef struct journal_entry {
    uint32_t kind;
    size_t bytes;  /* of what was saved */
    size_t offset; /* where it was saved */
    void *a, *b;
} journal_entry;

/* What has to be undone when the transaction does not commit, in the order in which it was done. */
typedef struct journal {
    journal_entry *entries; /* owned */
    size_t count, capacity;
    weir_buffer saved;
    uint64_t serial; /* of this transaction */
} journal;

/* ---- the store ---------------------------------------------------------------------------- */

struct memory_core {
    weir_mutex mu;

    /* guarded by the registry's mutex */
    size_t references;
    memory_core *next_named;

    /* immutable after opening */
    char *name; /* owned; NULL: private */
    char epoch[64];
    int64_t key_ttl_us;

    /* guarded by mu, like everything below */
    weir_steady_clock clock;
    weir_age_clock key_clock; /* by which keys expire; begun when the store was made */
    int64_t key_now_us;       /* its time in this transaction: weir__memory_keys_expire */
    journal journal;
    uint64_t pick_serial;

    memory_event ***log; /* owned blocks of LOG_BLOCK_EVENTS */
    size_t log_count, log_blocks, log_blocks_capacity;
    int64_t position_base, version_base;
    table streams, names, categories;
    name_index streams_by_name;

    table keys;
    memory_key *key_oldest, *key_newest;
    table reserved;
    table snapshots;
    table workers;
    int64_t workers_last; /* id */
    table locks, once;
    int64_t locks_fence; /* the last that was handed out: rows come and go, fences grow */

    table reactions_by_name;
    memory_reaction **reactions; /* owned; id n is at n - 1 */
    size_t reactions_count, reactions_capacity;
    table lanes;
    table targets_by_name;
    name_index targets_sorted;
    memory_target **targets; /* owned; id n is at n - 1 */
    size_t targets_count, targets_capacity;
    ordered_set parked, parked_by_event;
    int64_t parked_last; /* id */

    watch_list watches;
};

typedef struct memory_handle {
    weir_store base;         /* first */
    memory_core *core;       /* counted reference */
    const weir_clock *clock; /* borrowed */
    bool readonly;
    int64_t transactions; /* guarded by core->mu */
} memory_handle;

static inline memory_handle *weir__memory_handle(weir_store *base)
{
    return (memory_handle *)(void *)base;
}

/* A copy of `text` in a row's own bytes; *place moves on behind it. */
static inline weir_str weir__memory_put_text(char **place, weir_str text)
{
    const weir_str out = { .ptr = *place, .len = text.len };
    if (text.len > 0) {
        memcpy(*place, text.ptr, text.len);
    }
    *place += text.len;
    return out;
}

/* Ends the "out of memory" branch of everything here. */
weir_status weir__memory_full(weir_error *err);
/* WEIR_EMISUSE when the handle must not write. */
weir_status weir__memory_writable(const memory_handle *h, weir_error *err);
int64_t weir__memory_now(memory_handle *h) WEIR_REQUIRES(h->core->mu);
/* now + lease_us without wrapping around. */
int64_t weir__memory_later(int64_t now_us, int64_t span_us);

/* ---- journal.c ---------------------------------------------------------------------------- */

/* Each notes how to undo a change, and then makes it. false: out of memory, nothing was done. */
bool weir__tx_save(memory_core *c, void *ptr, size_t bytes); /* its bytes, before they change */
void *weir__tx_alloc(memory_core *c, size_t bytes);          /* zeroed; freed when undone */
bool weir__tx_free(memory_core *c, void *ptr);               /* freed when committed; NULL: no-op */
bool weir__tx_set_add(memory_core *c, ordered_set *set, ordered_node *node);
bool weir__tx_set_remove(memory_core *c, ordered_set *set, ordered_node *node);
bool weir__tx_table_add(memory_core *c, table *t, table_item *item);
bool weir__tx_name_add(memory_core *c, name_index *index, table_item *item);
bool weir__tx_table_remove(memory_core *c, table *t, table_item *item);
/* *field becomes an owned copy of `text`; an equal text is left alone. */
bool weir__tx_set_text(memory_core *c, weir_str *field, weir_str text);
/* `event` is about to become the last of the log, its stream, name and category; room was made. */
bool weir__tx_add_event(memory_core *c, memory_event *event);
/* A new stream, whose list of events is freed when it is undone. */
bool weir__tx_add_stream(memory_core *c, memory_stream *stream);
/* A new target, or a new subscription of one, is about to be added; room was made. */
bool weir__tx_add_target(memory_core *c, memory_target *target);
bool weir__tx_add_subscription(memory_core *c, memory_subscription *subscription);
bool weir__tx_add_definition(memory_core *c, memory_reaction *reaction, memory_definition *d);
bool weir__tx_add_reaction(memory_core *c, memory_reaction *reaction);
/* Takes a target out of its sets and saves its state and that of its subscriptions, once per
 * transaction; committing derives its values and places it again. Whoever changes a target, or what
 * its values derive from, calls this first. */
bool weir__tx_edit(memory_core *c, memory_target *target);
/* Derives and places what has been edited so far, so that the rest of the transaction finds it. */
bool weir__tx_place(memory_core *c);

/* A place to go back to, for parts that may be refused on their own. Not across weir__tx_edit. */
size_t weir__tx_savepoint(const memory_core *c);
void weir__tx_undo_to(memory_core *c, size_t savepoint);
/* Commits when status is WEIR_OK, else undoes everything. Wakes the watches if `wake` and
 * committed. Returns `status`. */
weir_status weir__tx_end(memory_handle *h, weir_status status, bool wake)
    WEIR_REQUIRES(h->core->mu);
void weir__journal_free(journal *j);

/* ---- log.c: events, streams, words -------------------------------------------------------- */

int64_t weir__memory_head(const memory_core *c);
/* The event at a position that exists. */
memory_event *weir__memory_event_at(const memory_core *c, int64_t id);
memory_stream *weir__memory_stream_find(const memory_core *c, weir_str name);
memory_word *weir__memory_word_find(const table *words, weir_str name);
int64_t weir__memory_stream_version(const memory_core *c, const memory_stream *s);
/* Adds one event to a stream, NULL in *stream: to a new one of that name. Inside a transaction. */
weir_status weir__memory_event_add(memory_core *c, memory_stream **stream, weir_str stream_name,
                                   const store_new_event *event, int64_t now_us, weir_error *err);
/* The index of the first event above a position. */
size_t weir__memory_list_after(const event_list *list, int64_t id);
/* The highest position whose event was created before a time; 0: none. */
int64_t weir__memory_position_before(const memory_core *c, int64_t time_us);
weir_str weir__memory_data(const memory_event *e);
weir_str weir__memory_meta(const memory_event *e);
/* Room for one more pointer. false: out of memory. */
bool weir__memory_room(void *items, size_t count, size_t *capacity, size_t minimum);
void weir__memory_log_free(memory_core *c);

/* The copy of an event for a caller, texts in the arena. `same`: the event copied before it, whose
 * stream and name can be shared; may be NULL. `bare`: without data and meta. false: out of
 * memory. */
bool weir__memory_event_copy(weir_arena *arena, const memory_event *e, const weir_event *same,
                             bool bare, weir_event *out);
bool weir__memory_text_copy(weir_arena *arena, weir_str text, weir_str *out);

/* ---- append.c ----------------------------------------------------------------------------- */

/* Judges and writes one append inside a transaction; refused, it leaves nothing behind. Its own
 * answer is in append->status and append->err; the result is WEIR_ENOMEM or WEIR_OK. *wrote becomes
 * true when events were added. */
weir_status weir__memory_append_one(memory_core *c, store_append *append, int64_t now_us,
                                    bool *wrote);
void weir__memory_keys_expire(memory_handle *h);
void weir__memory_keys_free(memory_core *c);

/* ---- reactions.c, unhandled.c ------------------------------------------------------------- */

memory_reaction *weir__memory_reaction(const memory_core *c, int64_t id); /* NULL: none */
static inline memory_definition *weir__memory_current(const memory_reaction *r)
{
    return r->definitions[r->definitions_count - 1];
}
static inline weir_str weir__memory_reaction_name(const memory_reaction *r)
{
    return r->item.key;
}
bool weir__memory_listens(const memory_definition *d, const memory_event *e);
void weir__memory_definition_free(memory_definition *d); /* NULL is a no-op */
void weir__memory_reactions_free(memory_core *c);
/* WEIR_EHELD naming the reactions that have unhandled events of a stream, else WEIR_OK. */
weir_status weir__memory_unhandled(const memory_core *c, const memory_stream *s, weir_error *err);

/* ---- targets.c: what a target is, and where it is placed ----------------------------------- */

memory_target *weir__memory_target(const memory_core *c, int64_t id); /* NULL: none */
memory_target *weir__memory_target_find(const memory_core *c, weir_str name);
memory_lane *weir__memory_lane_find(const memory_core *c, weir_str name);
/* Interned when there is none. NULL: out of memory. */
memory_lane *weir__memory_lane_ensure(memory_core *c, weir_str name);
/* The target of that name, created when there is none. EINVAL when it is in another lane. */
weir_status weir__memory_target_ensure(memory_core *c, weir_str name, weir_str lane,
                                       memory_target **out, weir_error *err);
memory_subscription *weir__memory_subscription(const memory_target *t, const memory_reaction *r);
/* Adds a subscription with at = mark to a target that is being edited. */
weir_status weir__memory_subscription_add(memory_core *c, memory_target *t, memory_reaction *r,
                                          const store_subscribe *sub, memory_subscription **out,
                                          weir_error *err);
/* Priority, source and value become what is said. */
weir_status weir__memory_subscription_update(memory_core *c, memory_subscription *s,
                                             int64_t priority, weir_str source, weir_str value,
                                             weir_error *err);
bool weir__memory_work_add(memory_core *c, memory_subscription *s, int64_t event);
/* Deletes its work rows at or below a position. */
bool weir__memory_work_drop(memory_core *c, memory_subscription *s, int64_t up_to);
/* behind, watermark, priority and has_work from the subscriptions. */
void weir__memory_derive(memory_target *t);
void weir__memory_place(memory_target *t);
void weir__memory_unplace(memory_target *t);
static inline int64_t weir__memory_rank(const memory_target *t)
{
    return t->state.watermark >> STORE_RANK_SHIFT;
}
/* Places the lane's targets whose lease has expired as if they were free; they keep their fence. */
void weir__memory_lane_sweep(memory_lane *lane, int64_t now_us);
store_target_state weir__memory_target_state(const memory_target *t, int64_t now_us);
/* Ends a lease; the target is being edited. */
bool weir__memory_lease_end(memory_core *c, memory_target *t);
weir_status weir__memory_fence_check(const memory_target *t, int64_t id, int64_t fence,
                                     weir_error *err);
void weir__memory_targets_free(memory_core *c);

/* ---- lease.c ------------------------------------------------------------------------------ */

/* Empties the list. */
void weir__memory_leases_clear(store_lease_list *list);
/* Leases inside a transaction, into an empty list; r->limit is not 0. */
weir_status weir__memory_lease_in(memory_handle *h, const store_lease_request *r,
                                  store_lease_list *list, weir_error *err)
    WEIR_REQUIRES(h->core->mu);
/* Test only: nodes visited so far by the sets that leasing uses. */
uint64_t weir__memory_lease_steps(weir_store *base);

/* ---- fetch.c ------------------------------------------------------------------------------ */

/* The next event of a subscription with after < id <= up_to; NULL: none. */
memory_event *weir__memory_next_event(const memory_core *c, memory_subscription *s, int64_t after,
                                      int64_t up_to);

/* ---- settle.c, parked.c ------------------------------------------------------------------- */

/* Settles inside a transaction, which a failure spoils. */
weir_status weir__memory_settle_in(memory_handle *h, store_settle *settle, weir_error *err)
    WEIR_REQUIRES(h->core->mu);
/* Keeps a failure on a target that is being edited, and counts it. */
weir_status weir__memory_failure(memory_core *c, memory_target *t, const store_failure *failure,
                                 weir_error *err);
bool weir__memory_error_clear(memory_core *c, memory_target *t);
/* An error text, cut to what is kept, between characters. */
weir_str weir__memory_error_text(weir_str text);

/* The row of an event that was parked for a reaction, with s NULL: while routing. NULL: none. */
memory_parked *weir__memory_parked_find(memory_core *c, const memory_reaction *r,
                                        const memory_subscription *s, int64_t event);
/* Parks an event, or parks it anew: no longer sent back. The target of s is being edited. */
weir_status weir__memory_park(memory_core *c, memory_reaction *r, memory_subscription *s,
                              const store_park *park, int64_t now_us, weir_error *err);
/* Removes a row; its target, if any, is being edited. */
bool weir__memory_parked_remove(memory_core *c, memory_parked *p);
memory_parked *weir__memory_parked_get(memory_core *c, int64_t id);
memory_parked *weir__memory_sent_back_first(memory_target *t);
memory_parked *weir__memory_sent_back_next(memory_target *t, const memory_parked *p);
void weir__memory_parked_init(memory_core *c);
int weir__memory_sent_back_compare(const ordered_node *a, const ordered_node *b);

/* ---- inspect.c ---------------------------------------------------------------------------- */

/* Whether a filter without names accepts a target. */
bool weir__memory_filter_accepts(const store_target_filter *f, const memory_target *t);
/* The targets a filter names, in the order of their names, each once, in the arena; what is not a
 * target is passed over. NULL: out of memory. */
memory_target **weir__memory_named_targets(const memory_core *c, const store_target_filter *f,
                                           weir_arena *arena, size_t *count);
int64_t weir__memory_blocked_count(const memory_core *c);

/* ---- workers.c ---------------------------------------------------------------------------- */

void weir__memory_workers_free(memory_core *c);

/* ---- locks.c ------------------------------------------------------------------------------ */

void weir__memory_locks_free(memory_core *c);

/* ---- watch.c ------------------------------------------------------------------------------ */

void weir__memory_wake(memory_core *c);
weir_status weir__memory_watch_open(weir_store *base, store_watch **out, weir_error *err);
void weir__memory_watch_close(store_watch *watch);

/* ---- store.c ------------------------------------------------------------------------------ */

void weir__memory_core_retain(memory_core *c);
void weir__memory_core_release(memory_core *c);

/* ---- the verbs, for the vtable in store.c -------------------------------------------------- */

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
weir_status weir__memory_key_owner(weir_store *base, weir_str key, weir_arena *arena,
                                   weir_str *stream, weir_error *err);
weir_status weir__memory_declare(weir_store *base, const store_reaction_declaration *d,
                                 weir_arena *arena, store_reaction *out, weir_error *err);
weir_status weir__memory_reactions(weir_store *base, store_reaction_list *list, weir_error *err);
weir_status weir__memory_retire(weir_store *base, weir_str name, weir_error *err);
weir_status weir__memory_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                      store_router_lease *items, size_t count, weir_error *err);
weir_status weir__memory_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err);
weir_status weir__memory_subscribe(weir_store *base, const store_subscribe *sub, int64_t *target,
                                   weir_error *err);
weir_status weir__memory_lease(weir_store *base, const store_lease_request *r,
                               store_lease_list *list, weir_error *err);
weir_status weir__memory_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err);
weir_status weir__memory_settle(weir_store *base, store_settle *settle, weir_error *err);
weir_status weir__memory_extend(weir_store *base, int64_t lease_us, store_fenced *items,
                                size_t count, weir_error *err);
weir_status weir__memory_release(weir_store *base, store_fenced *items, size_t count,
                                 weir_error *err);
weir_status weir__memory_block(weir_store *base, int64_t target, int64_t fence,
                               const store_failure *why, weir_error *err);
weir_status weir__memory_defer(weir_store *base, int64_t target, int64_t fence, int64_t until_us,
                               weir_error *err);
weir_status weir__memory_operate(weir_store *base, store_operate *op, weir_error *err);
/* As weir__target_is_passed. */
bool weir__memory_is_passed(const memory_target *t);
weir_status weir__memory_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err);
weir_status weir__memory_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err);
weir_status weir__memory_lanes(weir_store *base, store_lane_list *list, weir_error *err);
weir_status weir__memory_parked(weir_store *base, const store_parked_query *q,
                                store_parked_chunk *chunk, weir_error *err);
weir_status weir__memory_parked_retry(weir_store *base, int64_t parked, weir_error *err);
weir_status weir__memory_parked_drop(weir_store *base, int64_t parked, weir_error *err);
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
weir_status weir__memory_lock_take(weir_store *base, weir_str name, weir_str holder,
                                   int64_t lease_us, weir_arena *arena, store_lock *out,
                                   weir_error *err);
weir_status weir__memory_lock_extend(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                     int64_t lease_us, weir_error *err);
weir_status weir__memory_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                      weir_error *err);
weir_status weir__memory_locks(weir_store *base, store_lock_list *list, weir_error *err);
weir_status weir__memory_once_begin(weir_store *base, weir_str key, weir_str holder,
                                    int64_t lease_us, weir_arena *arena, store_once *out,
                                    weir_error *err);
weir_status weir__memory_once_extend(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t lease_us, weir_error *err);
weir_status weir__memory_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                     int64_t exit_status, weir_str output, weir_error *err);
weir_status weir__memory_once_forget(weir_store *base, weir_str key, weir_error *err);
weir_status weir__memory_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                                   store_once_list *list, weir_error *err);
weir_status weir__memory_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err);

#endif
