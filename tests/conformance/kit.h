/* kit.h - the conformance kit: what every store promises, as tests that run on any of them.
 *
 * A store takes part with one kit_adapter and a main() that calls kit_main (see
 * conformance_memory.c and README.md). Each test gets a fresh store, a clock that only moves when
 * the test moves it, and everything it opened or read is closed and freed after it.
 *
 * Tests are named after the line of docs/guarantees.md they prove (C07_...), or after a promise of
 * store.h (P06_...) where the guarantee is one between the store and the rest of Weir.
 *
 * THREADS  Assertions are for the test's own thread. Other threads write down what happened and the
 * test judges it after joining them.
 */
#ifndef WEIR_TESTS_CONFORMANCE_KIT_H
#define WEIR_TESTS_CONFORMANCE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/str.h"
#include "store/committer.h"
#include "store/request.h"
#include "store/store.h"

#include <stdatomic.h>

enum {
    KIT_PLACE_BYTES = 256,
    KIT_LEASE_US = 5 * 1000 * 1000,
    KIT_HANDLES_MAX = 32,
    KIT_STREAMS_MAX = 16,
    KIT_EVENTS_MAX = 64,
    KIT_CHANGES_MAX = 16,
};

enum {
    KIT_DURABLE = 1,      /* what is in it outlives its last handle                   */
    KIT_PROCESSES = 2,    /* several processes can have it open                       */
    KIT_KEEPS_TIME = 4,   /* keeps the machine's clock from going back. Not so where the clock is
                           the database's own: nothing of ours stands between it and the answer */
    KIT_ECHOES = 8,       /* wake-ups travel: one may be heard twice, and a listener that has just
                       connected wakes everybody, for what it may have missed */
    KIT_ONE_MACHINE = 16, /* is used on one machine, whose own clock measures what is held  */
};

/* How the kit reaches one kind of store. A place is where one store lives, as a text that another
 * process could use as well. */
typedef struct kit_adapter {
    const char *name;
    uint32_t features; /* KIT_* above */
    /* Makes up a place that nobody uses; nothing has to be there yet. false: could not. */
    bool (*create)(char place[KIT_PLACE_BYTES]);
    /* Opens one more handle on the place. options->path is empty: the adapter fills it. */
    weir_status (*open)(const char *place, const store_options *options, weir_store **out,
                        weir_error *err);
    /* Removes what is left; all handles are closed. */
    void (*destroy)(const char *place);
    /* The store URL of a place; NULL: this store has none, and the tests of the public functions
     * are left out. */
    void (*url)(const char *place, char *out, size_t bytes);
    /* Whether no handle of any process is inside a transaction. NULL: the store cannot tell. */
    bool (*quiet)(const char *place);
    /* How much the store has worked so far, in a unit of its own that does not depend on the
     * machine; `native` is what store_sql_fn gets, inside that call; NULL, outside of it, where a
     * store has no such handle. NULL: the store does not count, and C23 is left out. */
    uint64_t (*steps)(weir_store *s, void *native);
    /* Does at once what the store's upkeep does in its own time after mass changes. NULL: there is
     * no such thing. */
    void (*tidy)(const char *place);
    /* Writes one row of the caller's own in the transaction of `native`, and counts those that are
     * there. Both NULL: the store has no SQL. */
    bool (*own_write)(void *native);
    int64_t (*own_count)(const char *place);
    /* How many idempotency keys the store keeps, expired ones included; nobody writes meanwhile.
     * NULL: it cannot tell. */
    int64_t (*keys_count)(const char *place, weir_store *s);
    /* The same for workers, those that ended included. */
    int64_t (*workers_count)(const char *place, weir_store *s);
    /* A connection of the caller's own, named "a caller of its own", with a transaction begun on it
     * in which it is now_us; and its end, false: it did not end so. For log->append_in; both NULL:
     * the store has no such thing. Whatever is left is ended by destroy. */
    void *(*own_begin)(const char *place, int64_t now_us);
    bool (*own_end)(void *native, bool commit);
    /* What is to be shown in another way on this store. NULL: nothing. */
    struct kit_theme (*own)(void);
} kit_adapter;

/* One test's surroundings: *state of every test. */
typedef struct kit {
    const kit_adapter *adapter;
    char place[KIT_PLACE_BYTES];
    _Atomic int64_t wall_us, mono_us;
    const char *boot_id; /* of the last kit_machine_start */
    weir_clock clock;
    weir_store *store; /* the handle most tests use */
    weir_store *others[KIT_HANDLES_MAX];
    size_t others_count;
    weir_error err;   /* of the last verb that failed */
    weir_arena arena; /* what tests build */
    weir_arena *kept; /* owned: arenas of answers, freed after the test */
    size_t kept_count, kept_capacity;
} kit;

/* Runs all tests that suit the adapter; argv[1], when there, is a pattern of test names (* and
 * ?). */
int kit_main(int argc, char **argv, const kit_adapter *adapter);

/* The place to make temporary files in: memory-backed where the machine has it. */
const char *kit_temp_dir(void);

/* ---- handles and time --------------------------------------------------------------------- */

store_options kit_options(kit *k);
weir_store *kit_open(kit *k); /* one more handle on the test's store, closed after the test */
weir_store *kit_open_with(kit *k, const store_options *options);
void kit_close_other(kit *k, weir_store *s);
void kit_reopen(kit *k);                /* k->store becomes another handle; the old one is closed */
void kit_advance(kit *k, int64_t us);   /* both clocks go forward            */
void kit_wall_jump(kit *k, int64_t us); /* the wall clock jumps, either way */
/* The machine was started again. k->store is the only handle. */
void kit_machine_start(kit *k, const char *boot_id);
int64_t kit_now(kit *k);
int64_t kit_head(kit *k);

/* ---- judging ------------------------------------------------------------------------------ */

/* A verb's status, with k->err shown when it is another than expected. */
#define KIT_IS(k, call, status) kit_expect((k), (call), (status), #call, __FILE__, __LINE__)
#define KIT_OK(k, call)         KIT_IS(k, call, WEIR_OK)
#define KIT_STR(str, text)      kit_expect_str((str), (text), __FILE__, __LINE__)
void kit_expect(kit *k, weir_status got, weir_status wanted, const char *call, const char *file,
                int line);
void kit_expect_str(weir_str got, const char *wanted, const char *file, int line);
/* The store's own check finds nothing. */
void kit_check(kit *k);

const char *kit_text(kit *k, const char *format, ...)
    WEIR_PRINTF(2, 3);                    /* lives as long as the test */
void kit_keep(kit *k, weir_arena *arena); /* moved: freed after the test */

/* ---- appending ---------------------------------------------------------------------------- */

/* An append being put together. Texts are borrowed. */
typedef struct kit_append {
    store_append append;
    store_append_stream streams[KIT_STREAMS_MAX];
    store_new_event events[KIT_EVENTS_MAX];
    store_key_change changes[KIT_CHANGES_MAX];
    weir_error err;
} kit_append;

void kit_append_init(kit_append *a);
uint32_t kit_append_stream(kit_append *a, const char *stream, int32_t expect, int64_t version);
void kit_append_event(kit_append *a, uint32_t stream, const char *name, const char *data);
void kit_append_change(kit_append *a, int32_t change, const char *key, uint32_t stream);
/* Sets the idempotency key and the fingerprint of what is in the append by now. */
void kit_append_key(kit_append *a, const char *key);
/* Runs it alone on a handle; its own status, or the verb's when that failed. */
weir_status kit_append_run(weir_store *s, kit_append *a);
/* One event, any expectation; its position. Asserts success. */
int64_t kit_put(kit *k, const char *stream, const char *name);
/* One event under an expectation; never asserts. */
weir_status kit_try(weir_store *s, const char *stream, int32_t expect, int64_t version,
                    kit_append *a);
/* The stream that has reserved a key, as an append would be told; "": nobody has. */
const char *kit_key_owner(kit *k, const char *key);
/* The public request, prepared and appended. */
weir_status kit_request(kit *k, const weir_append_request *request);

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct kit_events {
    weir_event *events;
    size_t count;
} kit_events;

/* Everything a query gives, chunk after chunk, copied. Each chunk is held against the port. */
kit_events kit_read_log(kit *k, weir_store *s, const store_log_query *query);
kit_events kit_log(kit *k); /* all of it, forwards */
kit_events kit_stream(kit *k, const char *stream);
int64_t kit_version(kit *k, const char *stream); /* -1: no such stream */
/* Versions of every stream are 0, 1, 2, ... and grow with the position; positions only grow. */
void kit_check_log(kit *k, kit_events log);

/* ---- reactions, targets, leases ----------------------------------------------------------- */

/* names: separated by commas, or "*" for all. Asserts success. */
store_reaction kit_declare(kit *k, const char *name, const char *names, const char *source,
                           store_rule rule);
weir_status kit_declare_with(kit *k, store_reaction_declaration *d, const char *names,
                             store_reaction *out);
store_reaction kit_reaction(kit *k, const char *name); /* as it is now */
/* A small router: reads what the reaction has not routed yet and routes it to targets named
 * prefix + stream, category or name by its rule (CONSTANT: prefix alone; WORK: prefix + stream). */
weir_status kit_route(kit *k, weir_store *s, const char *reaction, const char *prefix,
                      const char *lane, int64_t priority);
/* Routes one mark by hand, without moving `routed`. */
weir_status kit_mark(kit *k, const char *reaction, const char *target, const char *lane,
                     int64_t priority, int64_t first, int64_t last);

store_lease_request kit_lease_request(const char *lane, size_t limit);
weir_status kit_lease_with(kit *k, weir_store *s, const store_lease_request *r,
                           store_lease_list **out);
/* Leases up to `limit` of the lane for KIT_LEASE_US, every reaction counting. Asserts success. */
store_lease_list *kit_lease(kit *k, const char *lane, size_t limit);
/* Exactly one target, and this one. */
store_leased kit_lease_target(kit *k, const char *lane, const char *target);
/* Whether the lane has nothing to lease. Hands back what it gets. */
bool kit_nothing_to_lease(kit *k, const char *lane);

store_settle kit_settle_of(const store_leased *l, store_end end);
/* Settles one reaction up to `to`. */
weir_status kit_settle(kit *k, const store_leased *l, int64_t reaction, int64_t to, store_end end);
weir_status kit_defer(kit *k, const store_leased *l, int64_t until_us);
weir_status kit_block(kit *k, const store_leased *l, const store_failure *why);
weir_status kit_release(kit *k, const store_leased *l);

const store_target *kit_target(kit *k, const char *name); /* as it is now; asserts that it exists */
const store_subscription *kit_subscription(kit *k, const char *target, int64_t reaction);
store_operate kit_operate_of(kit *k, store_verb verb, const char *target);
/* Runs an operator's verb on one target; how many it changed. Asserts success. */
int64_t kit_operate(kit *k, store_verb verb, const char *target);
store_parked_chunk kit_parked(kit *k); /* all parked events */
/* The events of one subscription that are next, with their positions. */
size_t kit_fetch(kit *k, int64_t target, int64_t reaction, int64_t after, int64_t up_to,
                 int64_t *ids, size_t ids_max);

/* ---- threads and processes ---------------------------------------------------------------- */

typedef void (*kit_thread_fn)(void *ctx, size_t index);
/* Runs fn on `count` threads, started together, and joins them. */
void kit_threads(size_t count, kit_thread_fn fn, void *ctx);

/* Runs this program again as `--child ROLE PLACE ARG` with its standard output in *out_fd. */
int kit_spawn(kit *k, const char *role, const char *arg, int *out_fd);
int kit_child(const kit_adapter *adapter, const char *role, const char *place, const char *arg);

/* ---- the tests ---------------------------------------------------------------------------- */

typedef struct kit_theme {
    const struct CMUnitTest *tests;
    size_t count;
} kit_theme;

kit_theme kit_names(void);
kit_theme kit_appending(void);
kit_theme kit_keys(void);
kit_theme kit_closing(void);
kit_theme kit_committing(void);
kit_theme kit_reading(void);
kit_theme kit_reacting(void);
kit_theme kit_leasing(void);
kit_theme kit_settling(void);
kit_theme kit_turning(void);
kit_theme kit_operating(void);
kit_theme kit_parking(void);
kit_theme kit_services(void);     /* snapshots, wake-ups, checks */
kit_theme kit_kept_time(void);    /* adapters with KIT_KEEPS_TIME            */
kit_theme kit_machine_time(void); /* adapters with KIT_ONE_MACHINE */
kit_theme kit_holding(void);
kit_theme kit_workers(void);
kit_theme kit_locks(void);
kit_theme kit_once(void);
kit_theme kit_read_only(void);
kit_theme kit_own_transactions(void); /* adapters with own_begin */
kit_theme kit_key_counts(void);       /* adapters that can count their keys */
kit_theme kit_worker_counts(void);    /* and their workers */
kit_theme kit_counted(void);          /* adapters that can count their steps      */
kit_theme kit_public(void);           /* through weir.h: adapters with a URL    */
kit_theme kit_public_operate(void);   /* the same */
kit_theme kit_processes(void);        /* adapters with KIT_PROCESSES             */
kit_theme kit_processes_time(void);   /* with KIT_KEEPS_TIME as well             */

int kit_setup(void **state);
int kit_teardown(void **state);
#define KIT_TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)

#endif
