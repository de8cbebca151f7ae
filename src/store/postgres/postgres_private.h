/* postgres_private.h - what the files of the PostgreSQL adapter share.
 *
 * A verb is, wherever it can be, one call of one function of the database: one round trip, one
 * transaction, nothing to undo in the client. Such a verb fills pg_params and calls weir__pg_call.
 * What needs several statements in one transaction (the caller's own SQL in a settle) takes a
 * connection of the pool and gives it back.
 *
 * Statements are texts from .sql files. Connections, outcomes and when a call is repeated: pg/pg.h.
 *
 * THREADS  Any thread may call any verb. A connection belongs to one thread from take to give.
 */
#ifndef WEIR_STORE_POSTGRES_POSTGRES_PRIVATE_H
#define WEIR_STORE_POSTGRES_POSTGRES_PRIVATE_H

#include "pg/pg.h"
#include "store/chunk.h"
#include "store/read_only.h"

enum {
    PG_LOCK_CLASS = 1465207122, /* "WEIR": first half of the key of advisory locks */
};

typedef struct pg_store pg_store;

/* session.c. How the store uses its connections. A refusal with SQLSTATE 'WRnnn', which our own
 * functions raise, is weir_status -nnn with its message; any other WEIR_EIO with store_code =
 * SQLSTATE (53100 and 53200 say disk full, memory; 55P03 and 57014: WEIR_EBUSY). */
extern const pg_manner weir__pg_store_manner;
/* Fills err from a failed result (never NULL). */
weir_status weir__pg_result_status(const PGresult *result, weir_error *err);

/* Our SQL with the schema's name in the place of `weir` wherever that stands before a dot or after
 * SCHEMA. Owned by the store, or NULL (out of memory). The same address gives the same answer,
 * so it is for constants; weir__pg_sql_add is for texts that are used once. */
const char *weir__pg_sql(pg_store *s, const char *sql);
bool weir__pg_sql_add(const pg_store *s, weir_buffer *out, const char *sql);

/* schema.c. A version of the schema, and how to get there from the one before. */
typedef struct pg_schema_step {
    int64_t version;    /* after this step */
    const char *change; /* SQL; additive: clients from client_least on keep working */
} pg_schema_step;

typedef struct pg_schema {
    int64_t version;
    int64_t client_least;        /* the oldest client that can work with it */
    const pg_schema_step *steps; /* for stores that are older, ascending; tests have their own */
    size_t steps_count;
} pg_schema;

extern const pg_schema weir__pg_schema_current;

/* For tests of upgrades: weir__postgres_open with another schema. */
weir_status weir__postgres_open_schema(weir_store **out, const store_options *options,
                                       const pg_schema *schema, weir_error *err);
/* Looks at the store, creates or upgrades it as the open flags say, and fills in what a store knows
 * of itself. ENOTFOUND, ENEWER. */
weir_status weir__pg_schema_open(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_error *err);
/* The SQL that this would run; empty: nothing. Changes nothing. */
weir_status weir__pg_schema_plan(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_buffer *sql, weir_error *err);
/* Adds to `sql` what gives a role the rights of a worker, and runs it unless it is a plan. */
weir_status weir__pg_schema_grant(pg_store *s, pg_conn *conn, weir_str role, const char *kind,
                                  bool plan, weir_buffer *sql, weir_error *err);
/* All functions of the database, in SQL that replaces what is there. */
bool weir__pg_schema_functions(const pg_store *s, weir_buffer *sql);
/* What a new store has, as temporary tables and functions: to compare with (check_schema.c). */
bool weir__pg_schema_model(weir_buffer *sql);

/* wake.c: background thread, listening and notifying. */
typedef struct pg_wake pg_wake;
weir_status weir__pg_wake_open(pg_wake **out, pg_store *s, weir_error *err);
void weir__pg_wake_close(pg_wake *w); /* sends what is still to be sent; NULL is a no-op */
/* After a commit that may give someone work: never blocks, never fails. */
void weir__pg_wake(pg_store *s);
/* The same for events that were committed: how many, and the last position. */
void weir__pg_wake_wrote(pg_store *s, int64_t events, int64_t position);
/* How watches of this handle hear of others' commits: "notify"; "poll" (about once a second: there
 * is a pooler in between, or no connection at the moment); "not started": nobody has opened one.
 * Waits for up to 3 s when it is just being found out. */
const char *weir__pg_wake_mode(pg_store *s);

/* safe.c: the rule of positions. */
typedef struct pg_safe pg_safe;
weir_status weir__pg_safe_open(pg_safe **out, pg_store *s, weir_error *err);
void weir__pg_safe_close(pg_safe *safe); /* NULL is a no-op */
/* Called with every new connection: another server discards what was seen of the old one. */
void weir__pg_safe_connected(pg_safe *safe, const pg_server *server);

struct pg_store {
    weir_store base;
    store_reading reading; /* what base has when it was opened for reading alone */
    store_options options; /* texts in `texts` */
    weir_arena texts;
    const char *schema;      /* the name, quoted as an identifier; in texts */
    const char *schema_name; /* the name as it is */
    bool default_schema;     /* it is "weir": texts need no change */
    int64_t answer_us;
    const weir_clock *clock; /* of tests, told to weir.clock(); NULL: the database's own counts */
    /* set by schema.c before any verb runs, then immutable */
    int64_t schema_version;
    int32_t number;       /* weir.store.number: second half of the advisory lock's key */
    char epoch[40];       /* weir.store.epoch */
    char epoch_made[40];  /* of the store that opening has made or changed; "" */
    store_opened opening; /* which of the two */
    pg_database database;
    pg_pool *pool;
    pg_wake *wake;
    pg_safe *safe;
    _Atomic int64_t transactions;
    _Atomic int64_t append_waiters; /* connections on which an append may be waiting for a lock */
    _Atomic int32_t read_large;     /* so many of the next chunks probably have large events */
    _Atomic int32_t fetch_large;    /* the same of fetches */
    _Atomic uint64_t read_dense;    /* the filter that wanted much of the log; 0: none did    */

    weir_mutex sql_mu;
    struct pg_sql {
        const char *from;
        char *to;             /* owned */
    } sql[PG_STATEMENTS_MAX]; /* guarded by sql_mu */
    size_t sql_count;         /* guarded by sql_mu */
};

static inline pg_store *pg_of(weir_store *base)
{
    return (pg_store *)base;
}

/* The pool of the store, see pg/pg.h. */
static inline weir_status weir__pg_call(pg_store *s, const pg_call *call, PGresult **result,
                                        weir_error *err)
{
    return weir__pg_pool_call(s->pool, call, result, err);
}
static inline weir_status weir__pg_take(pg_store *s, int64_t deadline_us, pg_conn **out,
                                        weir_error *err)
{
    return weir__pg_pool_take(s->pool, deadline_us, out, err);
}
static inline pg_conn *weir__pg_take_idle(pg_store *s)
{
    return weir__pg_pool_take_idle(s->pool);
}
static inline void weir__pg_distrust(pg_store *s)
{
    weir__pg_pool_distrust(s->pool);
}

/* ---- the verbs, one file each (see store.h) ------------------------------------------------ */
/* append.c */
weir_status weir__pg_append(weir_store *base, store_append *const *appends, size_t count,
                            weir_error *err);
weir_status weir__pg_append_in(weir_store *base, void *native, store_append *append,
                               weir_error *err);
/* A name that somebody else holds. */
typedef struct pg_held {
    int32_t kind; /* PG_HELD_*; as in weir.append_hash */
    size_t len;
    char name[STORE_NAME_BYTES_MAX];
} pg_held;
enum { PG_HELD_STREAM = 0, PG_HELD_KEY = 1, PG_HELD_RESERVED = 2, PG_HELD_NOTHING = -1 };

/* Names that a transaction locks, but for an append that has more by itself: see lock order in
 * README.md. And how often an append that holds nothing while it waits may find something else held
 * before it waits for all in order. */
enum { PG_APPEND_NAMES_MAX = 48, PG_APPEND_ROUNDS_MAX = 10 };

/* Options of weir.append_any (append_functions.sql). */
enum { PG_APPEND_IN_ORDER = 1, PG_APPEND_IN_TRANSACTION = 2 };
/* Adds the 19 arguments of weir.append_any for these appends; settle.c uses it too. wait_us: how
 * long to wait for what others hold; 0: no limit of its own. first: what to wait for before
 * anything else is locked. */
void weir__pg_append_params(pg_params *p, const pg_store *s, store_append *const *appends,
                            size_t count, int32_t options, int64_t wait_us, const pg_held *first);
/* What writing them may take, apart from waiting: a microsecond for each byte, so that 64 MiB have
 * a minute. */
int64_t weir__pg_append_us(store_append *const *appends, size_t count);
/* Reads the first `rows` rows of weir.append_any, its columns in order and first, into the appends.
 * *held: what the last one that is busy has met; its kind is PG_HELD_NOTHING when none is. When the
 * call ended with it (*ended), the appends are as they were. */
weir_status weir__pg_append_results(const PGresult *result, int rows, store_append *const *appends,
                                    size_t count, pg_held *held, bool *ended, weir_error *err);
/* One refusal, as weir.append_any gives it, into an append: its status and its err. */
typedef struct pg_refusal {
    int32_t stream_index; /* -1: none */
    int64_t place;        /* the change of a taken key; the kind of what is held */
    int64_t actual;
    weir_str other;
} pg_refusal;
void weir__pg_append_refused(store_append *a, weir_status status, const pg_refusal *why);
/* read.c */
weir_status weir__pg_read_stream(weir_store *base, const store_stream_query *q, store_chunk *chunk,
                                 weir_error *err);
weir_status weir__pg_read_log(weir_store *base, const store_log_query *q, store_chunk *chunk,
                              weir_error *err);
/* streams.c */
weir_status weir__pg_stream_info(weir_store *base, weir_str stream, weir_arena *arena,
                                 store_stream_info *out, weir_error *err);
weir_status weir__pg_streams(weir_store *base, const store_streams_query *q,
                             store_streams_chunk *chunk, weir_error *err);
/* safe.c */
weir_status weir__pg_positions(weir_store *base, store_positions *out, weir_error *err);
weir_status weir__pg_holders(weir_store *base, store_holder_list *list, weir_error *err);
/* reactions.c */
weir_status weir__pg_declare(weir_store *base, const store_reaction_declaration *d,
                             weir_arena *arena, store_reaction *out, weir_error *err);
weir_status weir__pg_reactions(weir_store *base, store_reaction_list *list, weir_error *err);
weir_status weir__pg_retire(weir_store *base, weir_str name, weir_error *err);
weir_status weir__pg_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                  store_router_lease *items, size_t count, weir_error *err);
/* route.c */
weir_status weir__pg_route(weir_store *base, const store_route *r, size_t *bad_mark,
                           weir_error *err);
/* lease.c, fetch.c */
weir_status weir__pg_lease(weir_store *base, const store_lease_request *r, store_lease_list *list,
                           weir_error *err);
weir_status weir__pg_poll(weir_store *base, store_poll *poll, weir_error *err);
weir_status weir__pg_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                           store_fetch_list *list, weir_error *err);
/* turn.c */
weir_status weir__pg_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                          const store_lease_request *lease, store_lease_list *list,
                          weir_error *err);
/* settle.c */
weir_status weir__pg_settle(weir_store *base, store_settle *settle, weir_error *err);
weir_status weir__pg_extend(weir_store *base, int64_t lease_us, store_fenced *items, size_t count,
                            weir_error *err);
/* operate.c, targets.c, parked.c */
weir_status weir__pg_operate(weir_store *base, store_operate *op, weir_error *err);
weir_status weir__pg_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                bool *changed, weir_error *err);
weir_status weir__pg_targets(weir_store *base, const store_targets_query *q,
                             store_targets_chunk *chunk, weir_error *err);
weir_status weir__pg_lanes(weir_store *base, store_lane_list *list, weir_error *err);
weir_status weir__pg_parked(weir_store *base, const store_parked_query *q,
                            store_parked_chunk *chunk, weir_error *err);
/* snapshot.c */
weir_status weir__pg_snapshot_put(weir_store *base, const store_snapshot *snapshot,
                                  weir_error *err);
weir_status weir__pg_snapshot_get(weir_store *base, weir_str stream, weir_str revision,
                                  int64_t at_most, weir_arena *arena, store_snapshot *out,
                                  weir_error *err);
weir_status weir__pg_snapshot_drop(weir_store *base, weir_str category, weir_str keep_revision,
                                   int64_t *dropped, weir_error *err);
/* workers.c */
weir_status weir__pg_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                 weir_error *err);
weir_status weir__pg_workers(weir_store *base, store_worker_list *list, weir_error *err);
/* locks.c */
weir_status weir__pg_lock_take(weir_store *base, const store_lock_request *q, weir_arena *arena,
                               store_lock *out, weir_error *err);
weir_status weir__pg_lock_extend(weir_store *base, store_lock_kind kind, weir_str name,
                                 int64_t fence, int64_t token, int64_t lease_us, weir_error *err);
weir_status weir__pg_parked_change(weir_store *base, int64_t parked, store_parked_action action,
                                   weir_error *err);
weir_status weir__pg_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                  weir_error *err);
weir_status weir__pg_locks(weir_store *base, store_lock_list *list, weir_error *err);
weir_status weir__pg_once_finish(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                 int64_t exit_status, weir_str output, weir_error *err);
weir_status weir__pg_once_forget(weir_store *base, weir_str key, weir_error *err);
weir_status weir__pg_once_runs(weir_store *base, const store_pattern *match, int64_t limit,
                               store_once_list *list, weir_error *err);
/* wake.c */
weir_status weir__pg_watch_open(weir_store *s, store_watch **out, weir_error *err);
/* check.c */
weir_status weir__pg_stats(weir_store *base, store_stats *out, weir_error *err);
weir_status weir__pg_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err);
/* check_schema.c: the schema's part of weir__pg_check; check_server.c: the rest of weir doctor */
weir_status weir__pg_check_server(pg_store *s, store_finding_fn fn, void *ctx, weir_error *err);
weir_status weir__pg_survey(weir_store *base, store_survey_fn fn, void *ctx, weir_error *err);

#endif
