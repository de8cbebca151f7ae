/* reaction.h - what was declared: which events, to which target, how, and what with failures.
 *
 * A registry is filled before the engine starts: every reaction is checked on its own, then all
 * together (names twice, one target in two lanes, unknown lanes), and all that is wrong is told at
 * once.
 *
 * THREADS  Until the worker's tasks run, a registry belongs to one thread. After
 * weir__registry_declare it is immutable and shared, but for two members of each reaction:
 *   known    but for `id`, belongs to the router's task: it alone reads and renews it;
 *   serving  is atomic: what every other task asks (weir__reaction_current, _number).
 */
#ifndef WEIR_ENGINE_REACTION_H
#define WEIR_ENGINE_REACTION_H

#include "base/memory.h"
#include "store/store.h"

#include <stdatomic.h>

enum {
    REACTIONS_MAX = 1000,
    REACTION_RETRIES_DEFAULT = 3,
    REACTION_RETRIES_MAX = 1000,
    REACTION_NAMES_MAX = 1000, /* event names of one reaction */
    REACTION_COMMAND_BYTES_MAX = 65536,
    REACTION_FROM_COUNT_MAX = 10000, /* events counted when `from` is missing */
    LANES_MAX = 100,
    LANE_THREADS_MAX = 1000,
};
#define REACTION_DEADLINE_US_DEFAULT INT64_C(300000000)
#define REACTION_DEADLINE_US_MAX     INT64_C(604800000000) /* a week */
#define REACTION_PROJECT_US_MAX      INT64_C(5000000)      /* and the default of projections */
#define REACTION_BACKOFF_US_MAX      INT64_C(604800000000)
#define REACTION_DURATION_US_MIN     INT64_C(1000)
#define LANE_LEASE_US_MIN            INT64_C(100000)
#define LANE_CYCLE_US_MIN            INT64_C(1000)
#define LANE_DURATION_US_MAX         INT64_C(3600000000)
#define REACTION_BACKOFF_BASE_US     INT64_C(200000)
#define REACTION_BACKOFF_CAP_US      INT64_C(30000000)

typedef enum reaction_mode {
    REACTION_HANDLE = 1,  /* a function, no transaction open                   */
    REACTION_PROJECT = 2, /* a function inside the settling transaction        */
    REACTION_PULL = 3,    /* deliveries wait for weir_next                     */
    REACTION_RUN = 4,     /* a program per event                               */
    REACTION_EXEC = 5,    /* a program per slot, JSON lines                    */
} reaction_mode;

typedef enum poison_policy { POISON_BLOCK = 0, POISON_PARK = 1, POISON_RETRY = 2 } poison_policy;

typedef enum backoff_kind {
    BACKOFF_EXPONENTIAL = 0,
    BACKOFF_FIXED = 1,
    BACKOFF_LINEAR = 2,
} backoff_kind;

typedef struct reaction_backoff {
    backoff_kind kind;
    int64_t base_us, cap_us;
} reaction_backoff;

/* Where an event goes. Texts are borrowed from the event, the reaction or the arena. */
typedef struct reaction_route {
    weir_str target, lane, source;
    int64_t priority;
    weir_str value; /* what the rule was resolved to, as store_mark.value */
} reaction_route;

typedef struct reaction {
    weir_str name;
    const weir_str *names; /* NULL with all_names */
    size_t names_count;
    bool all_names;
    store_pattern *source;               /* owned */
    struct template_text *to;            /* owned; NULL with a resolver */
    struct template_text *priority_text; /* owned; NULL: priority */
    int64_t priority;
    weir_str lane;
    int32_t retries; /* after the first attempt; >= 0 */
    reaction_backoff backoff;
    poison_policy poison;
    int64_t deadline_us;
    int32_t start; /* STORE_START_*; -1: not said, allowed while the log has no event for it */
    int64_t start_position;
    reaction_mode mode;
    weir_str command; /* RUN, EXEC; NUL-terminated */

    /* The user's functions, see weir.h */
    weir_handle_fn handle;
    weir_project_fn project;
    weir_resolve_fn resolve; /* NULL: `to` */
    int64_t resolver_revision;
    void *ctx;

    store_rule rule;    /* derived from `to` */
    weir_str rule_text; /* the same: part of the definition */
    /* After declare. id: never changes. The rest: the router's task's own. */
    store_reaction known;
    /* Atomic, relaxed: a number on its own; whoever uses an old one is refused by the store. The
     * number of the definition that is current and ours; 0: neither routed nor handled here. */
    _Atomic int64_t serving;
} reaction;

typedef struct lane_config {
    weir_str name;
    int32_t threads;      /* 4 */
    int64_t lease_us;     /* 5 s */
    int32_t target_limit; /* 10 */
    int32_t event_limit;  /* 10 */
    int64_t cycle_us;     /* 1 s */
} lane_config;

typedef struct registry {
    weir_arena arena;
    reaction *reactions; /* owned; by the order of declaration; sorted by known.id after declare */
    size_t reactions_count, reactions_capacity;
    lane_config *lanes;
    size_t lanes_count, lanes_capacity;
    weir_buffer problems; /* one line each, all of them */
    size_t problems_count;
    size_t declared_count; /* reactions that were handed in, also those that could not be kept */
    bool checked;
} registry;

/* Zeroed is ready to use. Copies everything it keeps. A problem is added to `problems`, not
 * returned: WEIR_ENOMEM only. */
weir_status weir__registry_reaction(registry *r, const weir_reaction *declared, weir_error *err);
weir_status weir__registry_lane(registry *r, const weir_lane *declared, weir_error *err);
/* All together; EINVAL with every problem (message: the first and how many; detail: as many as have
 * room; `problems`: all). Lanes that were not declared are added with their defaults, so that every
 * reaction's lane is in `lanes`; once lanes are declared, only "default" may be left out. */
weir_status weir__registry_check(registry *r, weir_error *err);
/* Keeps one more problem. false: ENOMEM. */
bool weir__registry_problem(registry *r, const char *line);
/* EINVAL with the problems, as check. There is at least one. */
weir_status weir__registry_report(const registry *r, weir_error *err);
/* Checks once more that all is well, tells the store, fills `known` and `serving`, and sorts
  * the reactions by their ids. redeclare: as in store_reaction_declaration. EINVAL: `from` is
  * missing and the log holds events that the reaction would handle (how many is in the message);
  * then nothing was declared. After another failure it can be called again. */
weir_status weir__registry_declare(registry *r, weir_store *store, bool redeclare, weir_error *err);
/* Asks the store again: how far everything is routed, and which definitions are current. By the
 * router's task only. What fails changes nothing. */
weir_status weir__registry_refresh(registry *r, weir_store *store, weir_error *err);
/* The log has become another one: nothing is served until the registry was refreshed on it. Any
 * thread. A refresh that was under way may serve again what it read before: the router looks at
 * `rewound` when it has ended, which is set before this is called. */
void weir__registry_unserve(registry *r);
void weir__registry_free(registry *r);
/* Ends what a reaction owns, for who has to drop one. */
void weir__reaction_clear(reaction *q);

/* NULL: not ours. */
reaction *weir__registry_find(registry *r, int64_t reaction_id);
/* The number of our definition, for routing and leasing; 0: it is not current. Any thread. */
static inline int64_t weir__reaction_number(const reaction *q)
{
    return atomic_load_explicit(&q->serving, memory_order_relaxed);
}
/* Whether this process may route and handle it: it has the current definition. Any thread. */
static inline bool weir__reaction_current(const reaction *q)
{
    return weir__reaction_number(q) != 0;
}

/* The reactions that this process may handle, as the store is told; out has room for all. Any
 * thread. */
size_t weir__registry_known(const registry *r, store_known_reaction *out);

bool weir__reaction_listens(const reaction *q, weir_str event_name, weir_str stream);
/* Whether saying where an event goes takes its data or meta: a resolver may look at everything. */
bool weir__reaction_reads_payload(const reaction *q);
/* Whether it takes more than its position and its name. */
bool weir__reaction_reads_stream(const reaction *q);
/* Whether all of its events go the same way. */
bool weir__reaction_is_fixed(const reaction *q);
/* Where this event goes. WEIR_EINVAL: it cannot be said (a template member that is missing, a
 * resolver that fails); err says why, and the event is to be parked. out->target empty: the
 * resolver wants it ignored. */
weir_status weir__reaction_resolve(const reaction *q, const weir_event *e, weir_arena *arena,
                                   reaction_route *out, weir_error *err);
/* What to wait after the given failed attempt (1 is the first; INT64_MAX: the backoff has reached
 * its cap). Fixed: the base, always. Linear and exponential: anything from 1 ms up to the backoff,
 * as `random` decides (full jitter). */
int64_t weir__reaction_backoff_us(const reaction *q, int64_t attempt, uint64_t random);

#endif
