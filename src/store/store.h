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
 *       settle of nothing but progress that keeps its target, or leaves it without
 *       work, gives nobody any, and neither does a turn that has leased again whatever it left
 *       with work: they need not wake anybody. A wake-up is a hint and may be lost when a process
 *       dies between commit and wake-up.
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
#include "base/memory.h"
#include "base/sha256.h"
#include "store/about.h"
#include "store/filter.h"
#include "store/lock.h"
#include "weir.h"

#include <stdbool.h>

typedef struct weir_store weir_store;
typedef struct store_watch store_watch;

/* Limits that every store keeps. */
enum {
    STORE_NAME_BYTES_MAX = 512,
    STORE_APPEND_EVENTS_MAX = 100000,
    STORE_APPEND_STREAMS_MAX = 1000, /* all of them may have to be locked at once */
    STORE_APPEND_BYTES_MAX = 64 * 1024 * 1024,
    STORE_APPEND_KEYS_MAX = 1000, /* changes of reserved keys in one append: each needs a lock */
    STORE_PAYLOAD_BYTES_DEFAULT = 1024 * 1024,
    STORE_CHUNK_EVENTS_MAX = 1000,        /* events looked at in one read transaction          */
    STORE_CHUNK_BYTES_SOFT = 1024 * 1024, /* a chunk ends with the event that reaches this     */
    STORE_CHUNK_BARE_MAX = 8000,          /* the same of events without data and meta          */
    STORE_CHUNK_NAMES_MAX = 1000,         /* streams or targets looked at for one chunk        */
    STORE_FETCH_EVENTS_MAX = 10000,       /* events of one fetch, all items together           */
    STORE_FETCH_BYTES_SOFT = 4 * 1024 * 1024,
    STORE_LEASE_TARGETS_MAX = 1000,    /* targets per lease call                            */
    STORE_RANK_SHIFT = 5,              /* leasing orders watermarks to within 32            */
    STORE_OPERATE_CHUNK = 1000,        /* targets changed per transaction of a mass verb    */
    STORE_ERROR_TEXT_BYTES_MAX = 4096, /* error texts kept with targets and parked events   */
    STORE_WORKERS_FORGOTTEN_MAX = 64,  /* ended workers forgotten per beat                  */
    STORE_METRICS_BYTES_MAX = 16384,   /* what a worker has counted                         */
};

/* How often a worker says that it lives, and for how many beats it is believed. */
#define STORE_WORKER_BEAT_US ((int64_t)5 * 1000 * 1000)
enum { STORE_WORKER_BEATS = 3 };

/* How long a worker that has ended is still listed. */
#define STORE_WORKER_KEPT_US ((int64_t)3600 * 1000 * 1000)

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

/* ---- appending ---------------------------------------------------------------------------- */

typedef struct store_new_event {
    uint32_t stream_index;     /* into store_append.streams */
    weir_str name, data, meta; /* data and meta are valid JSON on one line */
} store_new_event;

typedef struct store_append_stream {
    weir_str name;
    int32_t expect; /* WEIR_EXPECT_*                   */
    int64_t version;
    /* results, as in weir_appended */
    int64_t first, last, id, created_us;
} store_append_stream;

typedef struct store_key_change {
    weir_str key;
    uint32_t stream_index;
    int32_t change; /* WEIR_KEY_* */
} store_key_change;

enum {
    STORE_APPEND_CLOSE = 1, /* streams[0] is being closed: its one event is $closed               */
    STORE_APPEND_FORCE = 2, /* with CLOSE: although reactions have unhandled events of it         */
    STORE_APPEND_DRY_RUN = 4, /* judge and roll back */
    /* Not tried (WEIR_EMISUSE, "not tried") when the append before it in the same call was refused
     * or not tried. */
    STORE_APPEND_CHAIN = 8,
    /* In a batch: when somebody outside of it holds a stream or a key of this append, answer
     * WEIR_EBUSY with `alone` set instead of waiting. */
    STORE_APPEND_NOWAIT = 16,
};

/* One caller's append: valid, compact, complete. Streams are distinct, in the order in which they
 * are judged. Events are in the order in which they get positions. */
typedef struct store_append {
    uint32_t flags;
    store_append_stream *streams;
    size_t streams_count;
    const store_new_event *events;
    size_t events_count;
    const store_key_change *key_changes;
    size_t key_changes_count;
    weir_str key;                           /* idempotency key; empty: none                    */
    uint8_t fingerprint[WEIR_SHA256_BYTES]; /* of everything but meta; set when there is a key */
    int64_t deadline_us; /* machine's monotonic clock: a store that has to wait for its turn gives
                            up then (and tries once, if that is past); 0: after its own busy time */
    /* results */
    weir_status status; /* of this caller alone                            */
    bool replayed;
    bool alone;      /* with NOWAIT and WEIR_EBUSY: run it by itself, without NOWAIT            */
    weir_error *err; /* borrowed from the caller; may be NULL           */
} store_append;

/* ---- reading ------------------------------------------------------------------------------ */

/* A chunk of events. Everything lives in `arena`, which the reading verb resets; so one chunk at a
 * time is in memory. A zeroed struct is ready to use; weir__chunk_free ends it. */
typedef struct store_chunk {
    weir_arena arena;
    weir_event *events; /* in the arena */
    size_t events_count;
    int64_t scanned_to; /* log: everything up to here (backwards: down to here) was looked at   */
    bool more;          /* false: there was nothing further at the time of reading              */
    bool held;          /* log, forwards, more is false: there are events beyond `safe`, so look
                           again soon: nobody may wake us when their turn comes                  */
    char epoch[64];     /* log: as in store_positions, of the log that was read                 */
    char log[64];       /* log: the same                                                        */
    int64_t place;      /* log: where it was read, for route; 0: that makes no difference       */
    int64_t head;       /* log: its end, as far as this read knows; before `after`: rewound     */
} store_chunk;

typedef struct store_stream_query {
    weir_str stream;
    int64_t from, to; /* inclusive versions; from <= to forwards, from >= to backwards          */
    bool backward;
    int64_t limit;    /* at most so many in this chunk; >= 1                                     */
    int64_t until_us; /* INT64_MAX: no bound                                                     */
} store_stream_query;

typedef struct store_log_query {
    int64_t after; /* exclusive, in the direction of reading                                   */
    int64_t to;    /* inclusive; INT64_MAX (forwards) or 0 (backwards): no bound               */
    int64_t limit; /* >= 1                                                                     */
    bool backward;
    bool bare;          /* without data and meta, which are given as empty: cheaper, and many more
                           at once: up to STORE_CHUNK_BARE_MAX                                 */
    bool ids_and_names; /* of bare events nothing else is wanted: stream, version and time may be
                           left out (empty, 0) where that is cheaper                           */
    const store_filter *filter; /* borrowed; NULL: everything                                    */
} store_log_query;

typedef struct store_stream_info {
    weir_str stream; /* in the arena given */
    int64_t version, id, created_us, updated_us;
    bool closed;
} store_stream_info;

typedef struct store_streams_query {
    weir_str after;               /* bytewise, exclusive */
    int64_t limit;                /* >= 1 */
    const store_pattern *pattern; /* NULL: all */
    weir_str category;            /* empty: all */
    int32_t closed;               /* 0 all, 1 closed, 2 open */
} store_streams_query;

/* *more: false when the names were exhausted. Each chunk looks at a bounded number of names, so it
 * may be empty although there are more: go on after `scanned_to`. */
typedef struct store_streams_chunk {
    weir_arena arena;
    store_stream_info *streams;
    size_t streams_count;
    weir_str scanned_to;
    bool more;
} store_streams_chunk;

typedef struct store_positions {
    int64_t head, safe;
    int64_t now_us;
    char epoch[64]; /* what identifies the log, for people to read as well: changes when something
                       that this handle has read is not there any more                           */
    char log[64];   /* the same of the log on which leases are taken: also changes when another
                       server goes on with it, which may have lost what this handle has not read */
} store_positions;

/* A transaction that keeps `safe` below `head`: it has begun to append and has not ended. */
typedef struct store_holder {
    int64_t pid;          /* of the server's process; 0: a prepared transaction                */
    weir_str transaction; /* prepared: its name (gid); else the virtual transaction            */
    weir_str application, user, state, query; /* as far as the server tells; may be empty       */
    int64_t since_us; /* when the transaction began; 0: not known                          */
} store_holder;

typedef struct store_holder_list {
    weir_arena arena;
    store_holder *holders; /* oldest first */
    size_t holders_count;
} store_holder_list;

/* ---- reactions ---------------------------------------------------------------------------- */

/* How the events of a reaction's targets are found. */
typedef enum store_rule {
    STORE_RULE_CONSTANT = 0, /* one target: everything the reaction listens to                  */
    STORE_RULE_STREAM = 1,   /* target per stream: value = the stream                           */
    STORE_RULE_CATEGORY = 2, /* target per category: value = the category                       */
    STORE_RULE_NAME = 3,     /* target per event name: value = the name                         */
    STORE_RULE_WORK = 4,     /* anything else: the router writes a work row per event           */
} store_rule;

enum { STORE_START_BEGINNING = 0, STORE_START_NOW = 1, STORE_START_POSITION = 2 };

typedef struct store_reaction_declaration {
    weir_str name;
    const weir_str *names; /* event names it listens to                                          */
    size_t names_count;
    bool all_names;  /* instead of names: every event whose name does not start with '$'   */
    weir_str source; /* pattern text; "*": all streams                                     */
    store_rule rule;
    weir_str rule_text;     /* template or resolver revision: part of the definition              */
    int32_t start;          /* STORE_START_*; used when the store sees this name the first time   */
    int64_t start_position; /* for STORE_START_POSITION: the last position that is NOT handled   */
    bool redeclare;         /* make this definition current although a later one was declared     */
    int64_t attempts;       /* that an event gets before it is poison; 0: no limit. Not part of the
                               definition                                                         */
} store_reaction_declaration;

/* A reaction as the store knows it. */
typedef struct store_reaction {
    int64_t id;
    weir_str name;     /* in the arena given; so are the other texts */
    int64_t number;    /* of the definition that was asked for (declare) or is current (list) */
    int64_t current;   /* number of the current definition; a process whose number is lower neither
                            routes nor handles this reaction */
    int64_t since;     /* where it began, for ever */
    int64_t routed;    /* everything up to here was routed */
    int64_t reread_to; /* while routed is below this, only subscriptions that were reset get work
                            rows; 0: not re-reading */
    bool retired;
    int64_t attempts; /* as it was declared last, by whoever has the current definition */
    store_rule rule;
    weir_str source, rule_text;
    const weir_str *names; /* in bytewise order */
    size_t names_count;
    bool all_names;
    weir_str router; /* holder of the router's lease, also when it has expired; may be empty */
    int64_t router_until_us, router_fence;
} store_reaction;

typedef struct store_reaction_list {
    weir_arena arena;
    store_reaction *reactions; /* by name */
    size_t reactions_count;
} store_reaction_list;

typedef struct store_router_lease {
    int64_t reaction; /* id */
    /* in: the one held, or 0 to take a free one; out: the one held now, 0: not ours */
    int64_t fence;
    int64_t until_us; /* out */
} store_router_lease;

/* A run of events found for one target by one reaction. */
typedef struct store_mark {
    uint32_t reaction_index; /* into store_route.steps                                          */
    weir_str target, lane;
    int64_t priority;
    weir_str source;     /* shown to operators and matched by their filters                 */
    weir_str value;      /* what the rule was resolved to (store_rule); WORK: empty         */
    int64_t first, last; /* positions of the first and the last event found; equal for WORK  */
} store_mark;

/* An event whose target could not be found: parked for that reaction, with an empty target. */
typedef struct store_route_park {
    uint32_t reaction_index;
    int64_t event;
    weir_str error;
} store_route_park;

typedef struct store_route_step {
    int64_t reaction, number; /* id, and the definition that was used */
    int64_t from, to;         /* routed must be `from`, and becomes `to` (>= from) */
} store_route_step;

typedef struct store_route {
    const store_route_step *steps; /* distinct reactions */
    size_t steps_count;
    const store_mark *marks;
    size_t marks_count;
    const store_route_park *parks;
    size_t parks_count;
    int64_t place; /* of the chunk that is routed; 0: not known */
    bool *beyond;  /* out; NULL, or a flag per mark, false before: it has blocked its target */
} store_route;

/* ---- targets and leases ------------------------------------------------------------------- */

typedef struct store_known_reaction {
    int64_t reaction, number;
} store_known_reaction;

typedef struct store_lease_request {
    weir_str lane;
    weir_str holder; /* who, for others to read: application, host, process, thread             */
    int64_t lease_us;
    size_t limit;   /* 0 leases nothing; at most STORE_LEASE_TARGETS_MAX                        */
    size_t leading; /* of these, how many of the most current, whatever their priority           */
    size_t reserve; /* and how many of the most lagging, whatever their priority                */
    const store_known_reaction *known; /* only these, in these definitions, count as work        */
    size_t known_count;
    bool all_reactions; /* instead: every reaction counts (tests, tools)                         */
    int64_t lost_max;   /* a target that loses so many leases in a row is blocked; 0: never      */
} store_lease_request;

typedef struct store_leased_subscription {
    int64_t reaction;
    int64_t at, mark, retries;
    weir_str source, value;
} store_leased_subscription;

typedef struct store_sent_back {
    int64_t parked; /* id of the parked event */
    int64_t reaction, event, attempts;
} store_sent_back;

typedef struct store_leased {
    int64_t target; /* id */
    weir_str name;
    int64_t fence;
    int64_t token; /* identifies this lease together with the fence: a log that lost its end gives
                      out the same fences again. Callers pass it back unchanged; 0: the fence is
                      enough, or the caller does not know it                                     */
    int64_t until_us, watermark, priority, lost;
    const store_leased_subscription *subscriptions; /* known and behind, by reaction id          */
    size_t subscriptions_count;
    const store_sent_back *sent_back; /* of known reactions, by (event, reaction)                */
    size_t sent_back_count;
} store_leased;

typedef struct store_lease_list {
    weir_arena arena;
    store_leased *leases; /* by priority descending, then rank (watermark >> 5), then id         */
    size_t leases_count;
} store_lease_list;

typedef struct store_fetch_item {
    int64_t target, reaction;
    int64_t after, up_to; /* at and mark of the lease */
    int64_t limit;        /* >= 1 */
} store_fetch_item;

typedef struct store_fetched {
    const weir_event *event;
    uint32_t item_index;
} store_fetched;

typedef struct store_fetch_list {
    weir_arena arena;
    store_fetched *events; /* by item, then position */
    size_t events_count;
    /* Per item: nothing of it is left up to its up_to. Only then may its `at` be settled at up_to;
     * few events alone prove nothing, the list may be full. */
    const bool *exhausted;
    size_t bytes_soft; /* in: as STORE_FETCH_BYTES_SOFT, which it is when this is 0 or greater */
} store_fetch_list;

static inline size_t weir__fetch_bytes_soft(const store_fetch_list *list)
{
    return list->bytes_soft > 0 && list->bytes_soft < STORE_FETCH_BYTES_SOFT
               ? list->bytes_soft
               : STORE_FETCH_BYTES_SOFT;
}

typedef struct store_advance {
    int64_t reaction;
    int64_t to; /* at becomes this; lower than it is: ignored */
} store_advance;

typedef struct store_park {
    int64_t reaction, event, attempts;
    weir_str error;
} store_park;

typedef struct store_failure {
    int64_t reaction; /* 0: nothing failed. Else its retries grow by one */
    int64_t event;
    weir_str error;
} store_failure;

typedef enum store_end {
    STORE_END_RELEASE = 0, /* the target is free                                              */
    STORE_END_KEEP = 1,    /* the lease goes on for lease_us from now, same fence             */
    STORE_END_DEFER = 2,   /* free, and not leased before until_us                            */
    STORE_END_BLOCK = 3,   /* free, and blocked with the failure (reaction, event, error)     */
} store_end;

/* The caller's own SQL. Runs first in the transaction; `native` is the adapter's connection
 * (sqlite3 * for SQLite, PGconn * for PostgreSQL, NULL for memory). It must not begin, end or save
 * anything. Not WEIR_OK: all is undone and that status is returned; or WEIR_EUNAVAILABLE when the
 * store was the reason (the connection is lost, the disk full). */
typedef weir_status (*store_sql_fn)(void *ctx, void *native, weir_error *err);

typedef struct store_settle {
    int64_t target, fence, token;
    store_sql_fn sql; /* may be NULL */
    void *sql_ctx;
    /* Effects: each must succeed, else nothing of the settle happens. */
    store_append *const *appends;
    size_t appends_count;
    const store_advance *advances;
    size_t advances_count;
    const store_park *parks; /* become dead letters; do not advance by themselves               */
    size_t parks_count;
    const int64_t *parked_done; /* sent-back parked events that were handled: removed            */
    size_t parked_done_count;
    store_failure failure;
    store_end end;
    int64_t lease_us; /* STORE_END_KEEP  */
    int64_t until_us; /* STORE_END_DEFER: a time of the store's clock                            */
    /* results */
    int64_t lease_until_us; /* STORE_END_KEEP */
    bool behind;            /* there is more for this target, and nobody paused it or its lane */
    weir_status status;     /* of `turn` only: WEIR_OK, WEIR_ELOST or WEIR_ENOTFOUND */
} store_settle;

/* One of many targets in a call; each gets its own answer. */
typedef struct store_fenced {
    int64_t target, fence, token;
    int64_t until_us;   /* extend: out, the new end of the lease */
    weir_status status; /* out: WEIR_OK, WEIR_ELOST or WEIR_ENOTFOUND */
} store_fenced;

/* ---- operating ---------------------------------------------------------------------------- */

typedef enum store_verb {
    STORE_UNBLOCK = 1,
    STORE_RESET = 2,
    STORE_SKIP = 3,
    STORE_PRIORITIZE = 4,
    STORE_PAUSE = 5,
    STORE_RESUME = 6,
} store_verb;

enum { STORE_RESET_START = 0, STORE_RESET_POSITION = 1, STORE_RESET_TIME = 2 };

typedef struct store_target_filter {
    const weir_str *names; /* these targets; with none of the others set */
    size_t names_count;
    const store_pattern *match;  /* target's name; NULL: any                                     */
    const store_pattern *source; /* the source of one of its subscriptions; NULL: any            */
    weir_str lane;               /* empty: any                                                   */
    bool blocked;                /* only blocked ones                                            */
} store_target_filter;

typedef struct store_operate {
    store_verb verb;
    store_target_filter filter; /* nothing set: all targets */
    bool dry_run;
    weir_str by;      /* who does this: kept with a pause */
    int32_t reset_to; /* STORE_RESET_* */
    int64_t position; /* STORE_RESET_POSITION: the last position that is not handled again */
    int64_t time_us;  /* STORE_RESET_TIME: events created at or after it are          */
    int64_t priority; /* STORE_PRIORITIZE */
    bool clear;       /* STORE_PRIORITIZE: back to what the reactions declare         */
    int64_t changed;  /* out */
} store_operate;

typedef enum store_target_state {
    STORE_TARGET_LEASED,
    STORE_TARGET_BLOCKED,
    STORE_TARGET_PAUSED,
    STORE_TARGET_DEFERRED,
    STORE_TARGET_READY,
    STORE_TARGET_IDLE,
} store_target_state;

typedef struct store_subscription {
    int64_t reaction;
    weir_str reaction_name, source, value;
    int64_t at, mark, retries, priority;
    bool retired;   /* of a retired reaction: does not count as work */
    int64_t routed; /* of its reaction: everything up to here was routed, perhaps is read again */
} store_subscription;

typedef struct store_target {
    int64_t id;
    weir_str name, lane;
    int64_t priority;
    bool prioritized;         /* by an operator */
    store_target_state state; /* the first that holds of the enum's order; paused: it or its lane */
    int64_t watermark, mark;  /* mark: the greatest of its subscriptions */
    int64_t lost, fence;
    bool behind;
    weir_str holder;         /* of a live lease, else empty */
    int64_t leased_until_us; /* of a live lease, else 0 */
    int64_t due_us;          /* deferred until; 0: not */
    bool blocked;
    int64_t blocked_us; /* since when */
    weir_str error;     /* of the last failure, or the reason of the block; may be empty */
    int64_t event;      /* that failed; 0: none */
    weir_str reaction;  /* that failed; may be empty */
    int64_t attempts;   /* of that reaction at that event */
    bool paused;
    weir_str paused_by;
    const store_subscription *subscriptions; /* by reaction id */
    size_t subscriptions_count;
} store_target;

typedef struct store_targets_query {
    store_target_filter filter;
    weir_str after; /* bytewise, exclusive: targets come in the order of their names */
    int64_t limit;  /* >= 1 */
} store_targets_query;

typedef struct store_targets_chunk {
    weir_arena arena;
    store_target *targets;
    size_t targets_count;
    weir_str scanned_to;
    bool more;
} store_targets_chunk;

typedef struct store_lane {
    weir_str lane;
    bool paused;
    weir_str paused_by;
    /* Counted now: costs a scan. Deferred targets are counted as one of two: `retrying` after a
     * failure, `deferred` otherwise. */
    int64_t targets, ready, leased, blocked, retrying, deferred;
    /* Of the subscriptions that have work. Others' events may lie between, so both are bounds. */
    int64_t lag;       /* the greatest mark - at: at most so many events wait for one of them     */
    int64_t oldest_us; /* when the first event behind the least `at` was created: what waits is not
                          older; 0: nothing waits */
} store_lane;

typedef struct store_lane_list {
    weir_arena arena;
    store_lane *lanes; /* by name; every lane that has a target or was paused */
    size_t lanes_count;
} store_lane_list;

typedef struct store_parked {
    int64_t id;
    int64_t reaction, event, attempts, parked_us;
    weir_str reaction_name, target, error;
    bool sent_back;
} store_parked;

typedef enum store_parked_action {
    STORE_PARKED_RETRY = 1,
    STORE_PARKED_DROP = 2,
} store_parked_action;

typedef struct store_parked_query {
    int64_t after; /* id, exclusive */
    int64_t limit;
    weir_str target;   /* empty: any */
    weir_str reaction; /* name; empty: any */
} store_parked_query;

typedef struct store_parked_chunk {
    weir_arena arena;
    store_parked *parked; /* by id */
    size_t parked_count;
    bool more;
} store_parked_chunk;

/* What a process needs to know to sleep well. */
typedef struct store_poll {
    weir_str lane; /* in; empty: all lanes */
    int64_t head, safe, now_us;
    int64_t routed_least;  /* of reactions that are not retired; INT64_MAX: there are none  */
    bool ready;            /* a target can be leased now                                   */
    int64_t due_us;        /* the earliest due time still to come, of targets with work; INT64_MAX:
                              none. One that has passed is `ready`, and hides no later one. */
    int64_t lease_end_us;  /* the earliest end of a live lease that alone keeps a target from being
                              leased: it has work, and is not blocked, paused nor deferred, nor
                              its lane paused; INT64_MAX: none, or `ready`: nobody waits for it */
    int64_t router_end_us; /* the earliest end of a router's live lease; INT64_MAX: none   */
    char epoch[64], log[64]; /* as in store_positions                                        */
} store_poll;

typedef struct store_snapshot {
    weir_str stream;
    weir_str revision; /* of the aggregate's code */
    int64_t version;   /* the last event that is folded in */
    weir_str data;     /* any bytes */
} store_snapshot;

/* A process that works, or has worked a short while ago. Who is in the list is a hint, for people
 * and for those who share out work: leases and fences decide, never this. */
typedef struct store_worker {
    int64_t id;    /* out: the store's number for it */
    weir_str name; /* as its leases' holder; no two starts of a process have the same, and it is at
                      most STORE_NAME_BYTES_MAX long */
    weir_str host;
    int64_t pid;
    const weir_str *lanes; /* in the order they were given */
    size_t lanes_count;
    const store_known_reaction *known; /* what it can handle, in the order they were given */
    size_t known_count;
    int64_t since_us; /* out: when it was first heard of */
    int64_t until_us; /* out: it has ended when that has passed and nothing was heard */
    bool draining;    /* finishes what it has and takes nothing new */
    weir_str metrics; /* what it has counted, one line of JSON, at most STORE_METRICS_BYTES_MAX; the
                         store does not look into it; empty: says nothing */
    int64_t holds;    /* out, when it is counted: targets with a live lease of that holder */
} store_worker;

typedef struct store_worker_list {
    weir_arena arena;
    bool count_holds;      /* in: costs a scan of the targets */
    store_worker *workers; /* by name */
    size_t workers_count;
} store_worker_list;

/* ---- the vtable --------------------------------------------------------------------------- */

enum { STORE_OPS_VERSION = 7 };

typedef struct weir_store_ops {
    uint32_t version; /* STORE_OPS_VERSION; methods are only ever added at the end */
    const char *scheme;
    uint32_t group_commit; /* how many transactions of collected callers may run at once; 0: do not
                              collect, it does not pay */
    uint32_t batch_names_max; /* how many different streams and keys the callers of one of them may
                                 name together; 0: any number. One caller alone may have more */

    /* Never fails on a store that is half open; NULL is not passed. */
    void (*close)(weir_store *s);

    /* The store's time, in microseconds. */
    weir_status (*now)(weir_store *s, int64_t *now_us, weir_error *err);

    /* APPEND. Judges `count` appends in order, each seeing those before it, in one transaction;
     * those that name more than batch_names_max streams and keys in several, one after the other.
     * Post: WEIR_OK: committed; every append has its own status and, when that is not WEIR_OK, its
     * err filled and nothing of it written. Otherwise nothing was written for anybody and the
     * appends' own fields are undefined: WEIR_EBUSY (no turn within busy_us), WEIR_EIO, ...
     * Order of judging one append: key: known, same fingerprint -> replayed, results as the first
     * time; other fingerprint -> EKEYREUSED; being used -> EINFLIGHT; an expired key is unknown.
     * Then each stream: closed -> ECLOSED, expectation -> ECONFLICT. Then each key change in order:
     * RESERVE of another stream's key, or RELEASE of one -> ETAKEN with err->stream = the owner;
     * RESERVE of one's own and RELEASE of a free one change nothing. All events of an append have
     * the same `created`. CLOSE: a closed stream is WEIR_OK with nothing written and first = -1; no
     * such stream is ENOTFOUND; unhandled events of it -> EHELD naming the reactions, unless FORCE:
     * an event is unhandled when a reaction that is not retired listens to it (names, source) and
     * it is above `routed`, or above `at` of the subscription it belongs to, or has a work row.
     * Events at or below `since` are not. Then $closed is appended and the stream is closed, for
     * ever. DRY_RUN: judged, results as if, nothing written.
     * Expired idempotency keys are removed by appends that have a key, a bounded number (64) per
     * transaction. */
    weir_status (*append)(weir_store *s, store_append *const *appends, size_t count,
                          weir_error *err);

    /* READS. One short transaction each; `chunk` is reset and filled; events come with all fields,
     * unless they are asked for without.
     * read_stream: ENOTFOUND: no such stream. more = false when the bounds are exhausted.
     * read_log: looks at no more than STORE_CHUNK_EVENTS_MAX events (bare: STORE_CHUNK_BARE_MAX);
     * forwards it stays at or below `safe`. It may give no event and yet have `more`: go on from
     * scanned_to. At the end scanned_to is at least every position that was looked at, and `safe`
     * (bounded by `to`) when more is false. */
    weir_status (*read_stream)(weir_store *s, const store_stream_query *q, store_chunk *chunk,
                               weir_error *err);
    weir_status (*read_log)(weir_store *s, const store_log_query *q, store_chunk *chunk,
                            weir_error *err);
    /* ENOTFOUND. The name is copied into the arena. */
    weir_status (*stream_info)(weir_store *s, weir_str stream, weir_arena *arena,
                               store_stream_info *out, weir_error *err);
    weir_status (*streams)(weir_store *s, const store_streams_query *q, store_streams_chunk *chunk,
                           weir_error *err);
    weir_status (*positions)(weir_store *s, store_positions *out, weir_error *err);

    /* REACTIONS. declare: the definition is (names, source, rule, rule_text). A name seen for the
     * first time gets number 1 and since = routed = its start, which is not beyond the end of the
     * log: else EINVAL. A definition equal to the current one changes nothing. An unknown
     * definition, or a known one with redeclare, becomes current under the next number and
     * continues from `routed`. A known, older one without redeclare changes nothing: the answer has
     * number < current. Declaring a retired reaction brings it back (its subscriptions count as
     * work again), current and all. When the definition that was asked for is the current one in
     * the end, `attempts` becomes what is declared. The reaction is written into the arena. */
    weir_status (*declare)(weir_store *s, const store_reaction_declaration *d, weir_arena *arena,
                           store_reaction *out, weir_error *err);
    weir_status (*reactions)(weir_store *s, store_reaction_list *list, weir_error *err);
    /* ENOTFOUND. Its subscriptions no longer count as work; behind, watermark and priority of its
     * targets are derived again. Retiring twice changes nothing. */
    weir_status (*retire)(weir_store *s, weir_str name, weir_error *err);
    /* Takes or renews routers' leases: each item by its reaction's id. Taken when free, expired or
     * held with that very fence; every taking (not renewing) raises the fence. An item that is
     * another's comes back with fence 0. lease_us 0 gives back what is held. */
    weir_status (*router_lease)(weir_store *s, weir_str holder, int64_t lease_us,
                                store_router_lease *items, size_t count, weir_error *err);
    /* ROUTE. Locks the reactions, then checks: `routed` is `from` and `number` is current for every
     * step, none retired -> else ECONFLICT, nothing written (someone else has routed); and the same
     * when this is not the `place` where it was read: the log may be another one. Then targets
     * and subscriptions are created as needed, marks raised, work rows written, parks written,
     * `routed` advanced.
     *   - A mark with last <= the subscription's at is not written. A new subscription has
     *     at = first - 1.
     *   - On a subscription with at = mark, at becomes max(at, first - 1); then
     *     mark = max(mark, last).
     *   - rule WORK: a work row (target, reaction, event); while routed < reread_to, an event at or
     *     below reread_to is written only for subscriptions that were reset. When routed reaches
     *     reread_to, re-reading is over and no subscription counts as reset any more.
     *   - priority, source and value of the subscription become what the mark says.
     *   - A mark that meets a subscription beyond the log (beyond.h) is raised, blocks the target
     *     at the mark's first event, with 0 attempts, and takes its lease away. Only RESET ends
     *     that.
     *   - a mark that names another lane than its target has: EINVAL, nothing written, *bad_mark =
     *     its index. (*bad_mark may be NULL.) */
    weir_status (*route)(weir_store *s, const store_route *r, size_t *bad_mark, weir_error *err);

    /* TURN. What ends and what begins, in one transaction: each of `settles` as SETTLE, then LEASE,
     * which sees what they have freed. The settles are of distinct targets, at most
     * STORE_LEASE_TARGETS_MAX, and have nothing but advances and STORE_END_RELEASE. Each has its
     * own answer in its `status`: one that was lost (ELOST), or whose target or subscription is
     * not there (ENOTFOUND), writes nothing, and the others go on. lease: NULL or limit 0: nothing
     * is leased. Not WEIR_OK: nothing happened for anybody, or with EUNKNOWN nobody can say; list
     * is empty.
     * LEASE. A target is eligible when it is in the lane, behind by a known reaction, not blocked,
     * not paused (nor its lane), due is unset or has passed, and no live lease holds it. Of the
     * targets whose due time has passed the first `limit` by (due, id) are considered, of the
     * others all. These are taken, in this order:
     *   1. `leading` of them by rank descending, then id descending;
     *   2. `reserve` of the rest by rank, then id;
     *   3. of the rest by priority descending, rank, id, until there are `limit`.
     * Each gets fence + 1, holder, until = now + lease_us, due unset. A target whose last lease
     * expired without being released has lost + 1; at lost_max it is blocked instead (reason kept),
     * and another one is taken in its place. Cost does not grow with the number of targets. */
    weir_status (*turn)(weir_store *s, store_settle *const *settles, size_t settles_count,
                        const store_lease_request *lease, store_lease_list *list, weir_error *err);
    /* FETCH. The next events of each item's subscription with after < id <= up_to: found through
     * the reaction's current definition (names, source), the rule and the subscription's value, or
     * through work rows; events the reaction does not listen to are not given. All items in one
     * short transaction, at most STORE_FETCH_EVENTS_MAX events together, ending with the one that
     * brings data and meta to list->bytes_soft. ENOTFOUND: no such subscription. */
    weir_status (*fetch)(weir_store *s, const store_fetch_item *items, size_t count,
                         store_fetch_list *list, weir_error *err);
    /* SETTLE. One transaction: sql; fence check (stale, or no lease with it, or one with another
     * token, or one taken on another log, or an advance past the mark and the end of the log ->
     * ELOST; an expired lease that nobody took since is still held: the fence decides, not the
     * clock); appends; advances (at grows only, retries of that subscription = 0, lost of the
     * target = 0; work rows at or below `at` are deleted); parks; parked_done; failure (retries
     * + 1; error, event and reaction are kept on the target; an advance of the same reaction counts
     * first); the end. Then behind, watermark and priority are derived. An append that is
     * refused -> that status, with its err copied to `err`; nothing of the settle remains and
     * the lease is as before. BLOCK keeps failure.error as the reason and the attempts so far. A
     * target without failure has its error cleared when it advances. */
    weir_status (*settle)(weir_store *s, store_settle *settle, weir_error *err);
    /* EXTEND. Each item by its own fence and token, as in SETTLE; the verb itself answers WEIR_OK
     * when all items have their answer. lease_us 0 gives back: free at once, nothing charged, lost
     * unchanged; also on another log than the one it was taken on, because giving back writes no
     * position. */
    weir_status (*extend)(weir_store *s, int64_t lease_us, store_fenced *items, size_t count,
                          weir_error *err);

    /* OPERATE, in transactions of at most STORE_OPERATE_CHUNK targets. A name that is not a target
     * is ENOTFOUND and changes nothing. changed counts:
     *   UNBLOCK    targets that were blocked or deferred: block, due, error, retries and lost are
     *              cleared. Not of one that ROUTE has blocked.
     *   RESET      targets that it changed: a subscription above the position P (never below the
     *              reaction's `since`) gets at = P, one at or below it stays; in every case block,
     *              due, error, retries, lost are cleared, and the lease is taken away (fence + 1).
     *              One on which none of this changes anything keeps its fence. rule WORK, when it
     *              is moved: at = mark = P, its work rows are deleted, it counts as reset, and the
     *              reaction's reread_to = max(reread_to, routed), but not beyond the end of the
     *              log, and routed = min(routed, P). A subscription beyond the log is repaired: P
     *              is at most what was routed of the log, and so is its mark then.
     *   SKIP       targets with work: the event in the way (the blocked one if it is the next of
     *              its reaction, else the least (event, reaction) that is next) is parked with the
     *              error of the target or "skipped by an operator", at advances to it, cleared and
     *              taken away as in RESET. An event that was sent back and blocks is parked again.
     *              Not of one that ROUTE has blocked.
     *   PRIORITIZE targets whose priority or override changed.
     *   PAUSE, RESUME  targets whose paused changed. The running batch finishes. */
    weir_status (*operate)(weir_store *s, store_operate *op, weir_error *err);
    /* Pauses or resumes a lane by its own row. *changed: whether it did. A lane needs no target. */
    weir_status (*lane_pause)(weir_store *s, weir_str lane, bool paused, weir_str by, bool *changed,
                              weir_error *err);
    weir_status (*targets)(weir_store *s, const store_targets_query *q, store_targets_chunk *chunk,
                           weir_error *err);
    weir_status (*lanes)(weir_store *s, store_lane_list *list, weir_error *err);
    weir_status (*parked)(weir_store *s, const store_parked_query *q, store_parked_chunk *chunk,
                          weir_error *err);
    /* RETRY sends a parked event back to its reaction: its target is behind. EMISUSE: it was parked
     * while routing and has no target. Twice changes nothing. DROP removes it. ENOTFOUND. */
    weir_status (*parked_change)(weir_store *s, int64_t parked, store_parked_action action,
                                 weir_error *err);
    weir_status (*poll)(weir_store *s, store_poll *poll, weir_error *err);

    /* SNAPSHOTS, one per stream. put: of a version that the stream has; kept when that is not lower
     * than the one kept, or the revision differs. get: ENOTFOUND unless there is one of that
     * revision with version <= at_most; texts in the arena. drop: of all streams of the category
     * whose snapshot has another revision than given; *dropped may be NULL. */
    weir_status (*snapshot_put)(weir_store *s, const store_snapshot *snapshot, weir_error *err);
    weir_status (*snapshot_get)(weir_store *s, weir_str stream, weir_str revision, int64_t at_most,
                                weir_arena *arena, store_snapshot *out, weir_error *err);
    weir_status (*snapshot_drop)(weir_store *s, weir_str category, weir_str keep_revision,
                                 int64_t *dropped, weir_error *err);

    /* WAKE-UPS. A watch counts what happened since it was last waited for: a wake-up between two
     * waits is not lost. wait: *woken false: timeout_ms passed (-1: no limit, 0: just look). A
     * watch belongs to one thread at a time; fd is readable when wait would not block. */
    weir_status (*watch_open)(weir_store *s, store_watch **out, weir_error *err);
    weir_status (*watch_wait)(store_watch *watch, int32_t timeout_ms, bool *woken, weir_error *err);
    int (*watch_fd)(store_watch *watch);
    void (*watch_close)(store_watch *watch); /* NULL is a no-op */

    /* ABOUT ITSELF. check: every invariant of this page that can be checked by reading, and of the
     * schema. */
    weir_status (*stats)(weir_store *s, store_stats *out, weir_error *err);
    weir_status (*check)(weir_store *s, store_finding_fn fn, void *ctx, weir_error *err);

    /* HOLDERS. What keeps `safe` below `head` at this moment (C17). Stores in which the two are
     * always equal give an empty list. */
    weir_status (*holders)(weir_store *s, store_holder_list *list, weir_error *err);
    /* APPEND_IN. One append inside a transaction of the caller's own, on the caller's connection
     * (`native`, as in store_sql_fn): judged and written there, visible and durable with its
     * commit. A refusal leaves the transaction as it was. Nobody is woken: `wake` after the commit.
     * NULL where a store cannot do it. */
    weir_status (*append_in)(weir_store *s, void *native, store_append *append, weir_error *err);
    /* Wakes every watch of every process, as after a commit. Never blocks for long, never fails.
     * NULL where append_in is. */
    void (*wake)(weir_store *s);
    /* SURVEY. What surrounds the store and can harm it, though the store itself is sound: settings
     * of a server, who holds it up, how it is reached. Reads only. NULL where there is nothing
     * around. */
    weir_status (*survey)(weir_store *s, store_survey_fn fn, void *ctx, weir_error *err);

    /* WORKERS. beat: makes the worker known, or renews it: until = now + lease_us; everything else
     * becomes what is said, but `since`. lease_us -1: it has ended just now, and stays listed with
     * what it says. lease_us 0: it has gone, its row is removed; one that is not known is fine.
     * Forgets workers that have ended STORE_WORKER_KEPT_US ago, at most
     * STORE_WORKERS_FORGOTTEN_MAX of them. Nobody is woken. */
    weir_status (*worker_beat)(weir_store *s, const store_worker *worker, int64_t lease_us,
                               weir_error *err);
    /* All that have not ended, or ended less than STORE_WORKER_KEPT_US ago. */
    weir_status (*workers)(weir_store *s, store_worker_list *list, weir_error *err);

    /* TAKE a lock: a name that nobody holds, or whose holder's lease has ended, becomes the
     * caller's until now + lease_us, with a fence that is larger than every earlier one of that
     * name, through crashes as well. Else WEIR_EHELD, and *out is the other's lock: unlike (7),
     * *out is filled then as well, its texts in the arena. lease_us 0: for what is held by other
     * means (an advisory lock): the same, but it keeps nobody from taking the name: a fence, and a
     * note of who it is. Nobody is woken by any of these.
     * A key of once, whose names are others: the same with WEIR_EINFLIGHT, and lease_us is not 0;
     * but WEIR_OK with STORE_ONCE_DONE: it was done before, *out has the outcome. A run that
     * failed, or whose lease has ended, may be begun again. */
    weir_status (*lock_take)(weir_store *s, store_lock_kind kind, weir_str name, weir_str holder,
                             int64_t lease_us, weir_arena *arena, store_lock *out, weir_error *err);
    /* ELOST. The fence decides, not the clock: who is late, and was not followed by anybody, still
     * has it. extend: until = now + lease_us; one without a lease stays without. */
    weir_status (*lock_extend)(weir_store *s, store_lock_kind kind, weir_str name, int64_t fence,
                               int64_t token, int64_t lease_us, weir_error *err);
    weir_status (*lock_release)(weir_store *s, weir_str name, int64_t fence, int64_t token,
                                weir_error *err);
    /* exit_status 0: done, for ever; else failed. A second time with the same fence changes nothing
     * and is WEIR_OK. ELOST. */
    weir_status (*once_finish)(weir_store *s, weir_str key, int64_t fence, int64_t token,
                               int64_t exit_status, weir_str output, weir_error *err);
    /* The key is as if it had never been used, but for its fences. ENOTFOUND. EINFLIGHT: it is
     * running; whose lease has ended is not. */
    weir_status (*once_forget)(weir_store *s, weir_str key, weir_error *err);
    weir_status (*locks)(weir_store *s, store_lock_list *list, weir_error *err);
    /* The latest run of each key that matches (NULL: of every key), at most `limit`: first those
     * that are running, then the others; of each group the one that began last comes first, and of
     * those that began at the same time the one whose key is less. */
    weir_status (*once_runs)(weir_store *s, const store_pattern *match, int64_t limit,
                             store_once_list *list, weir_error *err);
} weir_store_ops;

/* What opening a store did. Of several that open it at once, one has made it. */
typedef enum store_opened { STORE_FOUND = 0, STORE_MADE = 1, STORE_UPGRADED = 2 } store_opened;

struct weir_store {
    const weir_store_ops *ops; /* immutable; first member of every adapter's struct */
    store_opened opened;       /* immutable once it is open */
};

/* Adapters. *out: owned, ended by ops->close. */
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

/* work.c. Whether a settle may give somebody work, see promise (6); `behind`: what it answers. */
bool weir__settle_gives_work(const store_settle *settle, bool behind);
/* Whether every target of `ids`, distinct and sorted by this, was leased: then a turn that has left
 * those with work gives nobody any. */
bool weir__leased_all(int64_t *ids, size_t count, const store_lease_list *list);

/* chunk.c: ending what reads filled; NULL-safe on zeroed structs. */
void weir__chunk_free(store_chunk *chunk);
/* `holders` of stores with one writer at a time: what is committed is complete. */
weir_status weir__holders_none(weir_store *s, store_holder_list *list, weir_error *err);

#endif
