/* work.h - the part of the port that has to do with reactions and their targets: routing, leasing,
 * settling, operating. Promises: store.h. */
#ifndef WEIR_STORE_WORK_H
#define WEIR_STORE_WORK_H

#include "store/log.h"

typedef struct weir_store weir_store;

/* Limits that every store keeps. */
enum {
    STORE_FETCH_EVENTS_MAX = 10000, /* events of one fetch, all items together           */
    STORE_FETCH_BYTES_SOFT = 4 * 1024 * 1024,
    STORE_LEASE_TARGETS_MAX = 1000,    /* targets per lease call                            */
    STORE_RANK_SHIFT = 5,              /* leasing orders watermarks to within 32            */
    STORE_OPERATE_CHUNK = 1000,        /* targets changed per transaction of a mass verb    */
    STORE_ERROR_TEXT_BYTES_MAX = 4096, /* error texts kept with targets and parked events   */
};

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

/* ---- the verbs ---------------------------------------------------------------------------- */

typedef struct store_work_ops {
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
} store_work_ops;

/* work.c. Whether a settle may give somebody work, see promise (6); `behind`: what it answers. */
bool weir__settle_gives_work(const store_settle *settle, bool behind);
/* Whether every target of `ids`, distinct and sorted by this, was leased: then a turn that has left
 * those with work gives nobody any. */
bool weir__leased_all(int64_t *ids, size_t count, const store_lease_list *list);

#endif
