/* world.h - the differential kit: the same random work on several stores, and the same answers.
 *
 * A seed decides everything: operations, their parameters, what the clock does, when stores are
 * reopened. Each operation is made up once, run on every store, and what each store answers is
 * written down as text, with what may differ left out or replaced: ids of targets, reactions and
 * parked events (looked up per store by name or by order), the store's epoch, the wording of
 * messages. The texts have to be the same.
 *
 * Two things are the database's on PostgreSQL, and are made equal. Its clock, which the others have
 * to keep from going back themselves: it is what the first store says. Its positions, of which an
 * append that is undone uses some up: they are given back after each operation, which is safe while
 * nobody else appends.
 *
 * Besides, the harness keeps a model of its own of the versions of streams and checks every answer
 * to an append against it, and that whatever may give somebody work has woken a watch.
 */
#ifndef WEIR_TESTS_DIFFERENTIAL_WORLD_H
#define WEIR_TESTS_DIFFERENTIAL_WORLD_H

#include "base/error.h"
#include "base/str.h"
#include "store/store.h"

#include <libpq-fe.h>
#include <stdatomic.h>

enum {
    STORES = 3,
    STREAMS = 14,
    REACTIONS = 6,
    LANES = 3,
    NOTES_MAX = 24,
    NAME_BYTES = 48,
    NOTE_SUBSCRIPTIONS_MAX = 8,
    NOTE_SENT_BACK_MAX = 8,
};

/* What can take part. The first that does is the one others are compared with. */
typedef enum store_kind {
    KIND_MEMORY = 0,
    KIND_SQLITE = 1,
    KIND_POSTGRES = 2,
} store_kind;

/* A lease that some store has given out, as a worker would remember it; may be stale by now. */
typedef struct note {
    char target[NAME_BYTES];
    int64_t id[STORES], fence[STORES];
    struct {
        int reaction; /* index */
        int64_t at, mark;
    } subscriptions[NOTE_SUBSCRIPTIONS_MAX];
    size_t subscriptions_count;
    int64_t sent_back[NOTE_SENT_BACK_MAX][STORES];
    size_t sent_back_count;
} note;

/* A reaction as the stores have it. */
typedef struct reaction_note {
    bool known, retired;
    int64_t id[STORES], router_fence[STORES];
    int64_t current, routed;
    store_rule rule;
    char source[NAME_BYTES];
    bool all_names;
    char names[4]; /* letters of the event names it listens to */
} reaction_note;

typedef struct world {
    uint64_t seed, rng;
    int64_t wall_us, mono_us;
    _Atomic int64_t kept_us; /* the time that the first store last said */
    weir_clock clock, database_clock;
    int stores_count;
    store_kind kinds[STORES];
    weir_store *stores[STORES];
    store_watch *watches[STORES];
    char places[STORES][256];
    PGconn *database; /* beside the store; NULL: PostgreSQL takes no part */

    weir_buffer what;         /* the operation, in words    */
    weir_buffer text[STORES]; /* what each store answered   */
    weir_arena arena;         /* dies with the operation    */
    bool must_wake;           /* the operation has to have woken the watches */
    char wrong[512];          /* what the model found wrong; empty: nothing  */

    note notes[NOTES_MAX];
    size_t notes_count;
    reaction_note reactions[REACTIONS];
    int64_t versions[STREAMS]; /* the model: version of each stream, first_version - 1: none */
    int64_t first_version;
    int64_t position_base;
    int64_t head;
} world;

/* `kinds`: which stores, in their order. */
bool world_open(world *w, uint64_t seed, const store_kind *kinds, int count, weir_error *err);
void world_close(world *w);
bool world_reopen(world *w, weir_error *err);
/* After each operation. */
void world_realign(world *w);

/* ---- chance ------------------------------------------------------------------------------- */

uint64_t chance(world *w, uint64_t below); /* 0 to below - 1 */
bool one_in(world *w, uint64_t n);
const char *text(world *w, const char *format, ...) WEIR_PRINTF(2, 3); /* in the arena */
const char *stream_name(int index);
int stream_of(weir_str name); /* -1: none of ours */
const char *event_name(world *w);
const char *lane_of(world *w, const char *target); /* nearly always the same for a target */
store_pattern *some_pattern(world *w);             /* to be closed; may be NULL: all */

/* ---- writing down ------------------------------------------------------------------------- */

void what(world *w, const char *format, ...) WEIR_PRINTF(2, 3);
void say(world *w, int store, const char *format, ...) WEIR_PRINTF(3, 4);
/* A status with the fields of its error. */
void say_status(world *w, int store, weir_status status, const weir_error *err);
void say_event(world *w, int store, const weir_event *e);
/* An error text: ours as it is, a store's own only as there. */
const char *reason(world *w, weir_str error);
void wrong(world *w, const char *format, ...) WEIR_PRINTF(2, 3);
const char *reaction_name(int index);
int reaction_of(const world *w, int store, int64_t id);

/* ---- operations --------------------------------------------------------------------------- */

typedef struct operation {
    const char *name;
    unsigned weight;
    void (*run)(world *w);
} operation;

extern const operation log_operations[];
extern const operation reaction_operations[];
extern const operation target_operations[];
extern const operation operator_operations[];
extern const operation world_operations[];
/* How every world begins, so that the rest has something to work on. */
void op_declare(world *w);
/* Everything in the log, and the model against it. */
void compare_logs(world *w);
/* An append made up at random, for settling. */
typedef struct some_append {
    store_append append;
    store_append_stream streams[3];
    int stream_index[3];
    store_new_event events[5];
    store_key_change changes[2];
    weir_error err;
} some_append;
void some_append_make(world *w, some_append *a, bool effect);
void some_append_copy(const some_append *from, some_append *to);
void some_append_say(world *w, int store, const some_append *a);
/* Takes the results of appends that were committed into the model. */
void some_appends_learn(world *w, int store, some_append *appends, size_t count);
void reactions_look(world *w);

#endif
