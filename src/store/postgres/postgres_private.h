/* postgres_private.h - what the files of the PostgreSQL adapter share.
 *
 * A verb is, wherever it can be, one call of one function of the database: one round trip, one
 * transaction, nothing to undo in the client. Such a verb fills pg_params and calls weir__pg_call.
 * What needs several statements in one transaction (the caller's own SQL in a settle) takes a
 * connection of the pool and gives it back.
 *
 * Statements are texts from .sql files, prepared once per connection (unless prepare=off), known
 * by the address of their text. All results and parameters are binary.
 *
 * OUTCOMES  A statement that the server refused has not happened. One that was sent and got no
 * answer may have happened: it is repeated only when repeating it cannot change what is true
 * (pg_call.repeat); otherwise it is WEIR_EUNKNOWN.
 *
 * THREADS  Any thread may call any verb. A connection belongs to one thread from take to give.
 */
#ifndef WEIR_STORE_POSTGRES_POSTGRES_PRIVATE_H
#define WEIR_STORE_POSTGRES_POSTGRES_PRIVATE_H

#include "base/stop.h"
#include "base/thread.h"
#include "store/postgres/params.h"
#include "store/store.h"

enum {
    PG_LOCK_CLASS = 1465207122, /* "WEIR": first half of the key of advisory locks */
    PG_POOL_MAX_DEFAULT = 8,
    PG_STATEMENTS_MAX = 128,
    PG_SETTINGS_BYTES = 256,
    PG_FAREWELL_BYTES = 200,
};
#define PG_ANSWER_US_DEFAULT INT64_C(8000000)   /* a quick statement without an answer is lost */
#define PG_ANSWER_US_LONG    INT64_C(600000000) /* one that may read a whole table */

typedef struct pg_store pg_store;

/* What a server said about itself when a connection to it was made. */
typedef struct pg_server {
    int64_t system;     /* identifier of the cluster; 0: it does not tell */
    int64_t started_us; /* of the postmaster */
    bool standby;       /* in recovery: reads only */
    bool pooled;        /* there is a pooler in between */
    int version;        /* 150018 */
} pg_server;

/* What is known about the last statement of a connection. */
typedef enum pg_outcome {
    PG_DONE = 0,     /* it was answered                                                      */
    PG_REFUSED = 1,  /* the server answered with an error: nothing of it has happened        */
    PG_NOT_SENT = 2, /* the connection was dead before: nothing of it has happened           */
    PG_LOST = 3,     /* sent, and no answer: it may have happened                            */
} pg_outcome;

/* The tag is not pg_conn: that is the one of libpq's PGconn. */
typedef struct pg_connection {
    pg_store *store; /* borrowed */
    PGconn *raw;     /* owned; NULL: not connected */
    pg_server server;
    uint64_t serial; /* of this connection in its store: another one after a reconnect */
    pg_outcome outcome;
    char sqlstate[6]; /* of the last error; "" */
    bool unsynced;    /* the standby did not confirm the last commit, though it should have */
    bool taken;       /* guarded by the pool's mutex */
    bool ended;       /* the server has said goodbye */
    bool refused;     /* the last attempt to connect: waiting does not help (password, database) */
    char farewell[PG_FAREWELL_BYTES]; /* the server's words for that; "" if it gave none */
    struct pg_prepared {
        const char *sql; /* known by its address */
        uint64_t hash;   /* of the text as it was sent: its name */
    } prepared[PG_STATEMENTS_MAX];
    size_t prepared_count;
    unsigned prepared_again;          /* how often names were given up: part of the name */
    int64_t test_clock_us;            /* tests: the time this session was last told */
    char settings[PG_SETTINGS_BYTES]; /* bare, and pooled: SQL that each transaction begins with */
    /* bare: once it is set, what runs is cancelled when stop_grace_us have passed. May be NULL. */
    const weir_stop *stop; /* borrowed */
    int64_t stop_grace_us;
} pg_conn;

/* connect.c. One attempt, bounded by connect_timeout; EUNAVAILABLE says why, and conn->refused
 * whether waiting may help. extra: more libpq parameters as NULL-terminated pairs, may be NULL. */
weir_status weir__pg_connect(pg_store *s, pg_conn *conn, const char *const *extra, weir_error *err);
/* Whether a connection that could not be made is worth another attempt. A handle that was connected
 * before waits for everything: what refuses it now let it in once. */
bool weir__pg_waiting_helps(const pg_conn *conn, weir_status status);
/* connect. The first connection of a handle is tried until the store's busy time has passed; later
 * ones have one attempt, because their callers try again. */
weir_status weir__pg_connect_first(pg_store *s, pg_conn *conn, const char *const *extra,
                                   weir_error *err);
/* The `index`th of the parts between commas, into out; the last one when there are fewer. */
const char *weir__pg_list_part(const char *list, size_t index, char *out, size_t bytes);
size_t weir__pg_list_count(const char *list);

/* connection.c. disconnect: not connected is fine. */
void weir__pg_disconnect(pg_conn *conn);
/* How long to wait before attempt `attempt` (0, 1, ...) to reach a server: capped, full jitter. */
int64_t weir__pg_backoff_us(int attempt);
/* The same for an attempt that has a deadline: a pause does not go beyond it, so that the last
 * attempt is made when the time is up and not before. 0: it is up, give up. */
int64_t weir__pg_pause_us(int attempt, int64_t deadline_us);

/* How long an answer is waited for. */
typedef struct pg_wait {
    int64_t deadline_us;
    const weir_stop *stop; /* once it is set, the deadline is grace_us away at most; may be NULL */
    int64_t grace_us;
} pg_wait;
/* Sends what is left and reads until a result is complete. false: the deadline has passed, or the
 * connection broke; *why says which. */
bool weir__pg_await(PGconn *raw, pg_wait *w, const char **why);
/* Asks the server to stop what it does for this connection, and waits for the answer until the
 * deadline that it sets in *w. Called again when that has passed, it asks again: a request that
 * comes before the statement has begun does nothing. false: it was asked for long enough. */
bool weir__pg_cancel(PGconn *raw, pg_wait *w, int64_t *first_us);

typedef enum pg_repeat {
    PG_ONCE = 0, /* sent and no answer: WEIR_EUNKNOWN                                        */
    PG_REPEAT =
        1, /* reading, or writing what is then true anyway: tried again until the deadline */
} pg_repeat;

typedef struct pg_call {
    const char *sql;   /* a constant of a .sql file: known by its address */
    pg_params *params; /* NULL: none */
    pg_repeat repeat;
    int64_t answer_us; /* how long to wait for the answer; 0: PG_ANSWER_US_DEFAULT (or ?timeout=) */
} pg_call;

/* One statement, autocommit, on any connection of the pool. Waits for a connection, and for the
 * server to come back, until the store's busy time has passed: then WEIR_EBUSY, WEIR_EUNAVAILABLE.
 * Deadlocks and serialization failures are repeated. *result: owned, ended by pq.PQclear;
 * written on success only (tuples or command ok). An error raised by our own functions with
 * SQLSTATE 'WRnnn' becomes weir_status -nnn and its message; any other: WEIR_EIO with store_code
 * = SQLSTATE (53100 and 53200 say disk full, memory; 55P03 and 57014: WEIR_EBUSY). */
weir_status weir__pg_call(pg_store *s, const pg_call *call, PGresult **result, weir_error *err);

/* Whether a connection that nobody uses still leads somewhere, as far as can be known without
 * asking the server. Pre: it is connected. */
bool weir__pg_still_there(pg_conn *conn);
/* A connection of one's own, for several statements. deadline_us: monotonic, 0: the store's busy
 * time from now. EBUSY: all are taken; EUNAVAILABLE: no server. One that died while nobody used it
 * is not given out. give: broken ones are closed, an open transaction is rolled back. */
weir_status weir__pg_take(pg_store *s, int64_t deadline_us, pg_conn **out, weir_error *err);
void weir__pg_give(pg_conn *conn);
/* One that is connected and that nobody uses; NULL: there is none. Waits for nothing. */
pg_conn *weir__pg_take_idle(pg_store *s);
/* The way to the server seems to be dead without a word: connections that exist now are closed
 * instead of used, each when its turn comes. Those in use find out by themselves. */
void weir__pg_distrust(pg_store *s);

/* One statement on that connection. Never repeats. conn->outcome says what is known; PG_LOST is
 * WEIR_EUNKNOWN, PG_NOT_SENT is WEIR_EUNAVAILABLE. For BEGIN and statements inside a transaction
 * the caller knows better: what was not committed did not happen. */
weir_status weir__pg_run(pg_conn *conn, const pg_call *call, PGresult **result, weir_error *err);
/* The same for a statement that is not worth preparing. */
weir_status weir__pg_run_text(pg_conn *conn, const char *sql, pg_params *params, int64_t answer_us,
                              PGresult **result, weir_error *err);
/* Several statements without parameters, as one transaction unless they say otherwise. Taken as
 * they are: the schema's name is in them already. */
weir_status weir__pg_run_script(pg_conn *conn, const char *sql, int64_t answer_us, weir_error *err);
/* The same, with the rows of the last of them that has any, as text. */
weir_status weir__pg_run_script_rows(pg_conn *conn, const char *sql, int64_t answer_us,
                                     PGresult **result, weir_error *err);
/* A field of a result or notice; "" when it has none. */
const char *weir__pg_field(const PGresult *result, int code);
bool weir__pg_is_fatal(const PGresult *result); /* its session has ended */
/* One line, without the line breaks that libpq adds. */
void weir__pg_one_line(const char *text, char *out, size_t bytes);
/* Fills err from a failed result (never NULL); the status as weir__pg_call says. */
weir_status weir__pg_result_status(const PGresult *result, weir_error *err);

/* For what works in a database that need not have a store: connections that find out nothing about
 * one, are set up so that results do not depend on a role's settings, and take SQL as it is.
 * Refusals on them: 55P03 is WEIR_EHELD, 40P01 and 40001 WEIR_ECONFLICT, all others WEIR_EIO. A
 * statement without an answer in time is cancelled, so that it is known that it has not happened.
 * Ended by base.ops->close. */
weir_status weir__pg_bare_open(pg_store **out, const store_options *options, weir_error *err);
/* Parameters as libpq has them. */
typedef struct pg_plain {
    int count;
    const Oid *types;
    const char *const *values;
    const int *lengths;
    const int *formats;
} pg_plain;
/* One statement; the result is text. */
weir_status weir__pg_run_plain(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err);
/* The same in two steps. A prepare that was not answered has done nothing. */
weir_status weir__pg_prepare_plain(pg_conn *conn, const char *name, const char *sql,
                                   const pg_plain *plain, int64_t answer_us, weir_error *err);
weir_status weir__pg_run_prepared(pg_conn *conn, const char *name, const pg_plain *plain,
                                  int64_t answer_us, PGresult **result, weir_error *err);
/* Part of a prepared statement's name: should a pooler hand us a session in which somebody else has
 * prepared, the same name is still the same statement. */
uint64_t weir__pg_text_hash(const char *text);
/* Whether statements are to be prepared on this connection (?prepare=, or no pooler in between). */
bool weir__pg_prepares(const pg_conn *conn);
/* Somebody has dropped what was prepared, or its plan no longer fits: nothing has happened. */
bool weir__pg_prepared_gone(const pg_conn *conn);
/* As weir__pg_result_status, for a database that is not ours. */
weir_status weir__pg_foreign_status(const PGresult *result, weir_error *err);

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

/* listener.c. HOST:PORT of the server behind a pooler, taken apart. */
typedef struct pg_place {
    char host[512], hostaddr[512], port[16];
} pg_place;
void weir__pg_place_direct(weir_str direct, pg_place *out);

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

/* pool.c */
typedef struct pg_pool pg_pool;
weir_status weir__pg_pool_open(pg_pool **out, pg_store *s, weir_error *err);
void weir__pg_pool_close(pg_pool *pool); /* nobody has a connection; NULL is a no-op */

struct pg_store {
    weir_store base;
    weir_store_ops reading; /* what base.ops is when it was opened for reading alone */
    store_options options;  /* texts in `texts` */
    weir_arena texts;
    const char *schema;      /* the name, quoted as an identifier; in texts */
    const char *schema_name; /* the name as it is */
    bool default_schema;     /* it is "weir": texts need no change */
    bool bare;               /* see weir__pg_bare_open */
    bool silent; /* connections ask nothing when they are made: conn->server is for who uses them */
    int64_t answer_us;
    const weir_clock *clock; /* of tests, told to weir.clock(); NULL: the database's own counts */
    /* set by schema.c before any verb runs, then immutable */
    int64_t schema_version;
    int32_t number;       /* weir.store.number: second half of the advisory lock's key */
    char epoch[40];       /* weir.store.epoch */
    char epoch_made[40];  /* of the store that opening has made or changed; "" */
    store_opened opening; /* which of the two */
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
        char *to;                 /* owned */
    } sql[PG_STATEMENTS_MAX];     /* guarded by sql_mu */
    size_t sql_count;             /* guarded by sql_mu */
    _Atomic uint64_t connections; /* made so far */
    _Atomic bool reached;         /* one of them got through */
};

/* The machine's monotonic clock, for deadlines; never for what the store calls time. */
static inline int64_t pg_mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

static inline pg_store *pg_of(weir_store *base)
{
    return (pg_store *)base;
}

/* ---- the verbs, one file each (see store.h) ------------------------------------------------ */
/* append.c */
weir_status weir__pg_append(weir_store *base, store_append *const *appends, size_t count,
                            weir_error *err);
weir_status weir__pg_append_in(weir_store *base, void *native, store_append *append,
                               weir_error *err);
/* Options of weir.append (append_functions.sql). SET_BASED is found out by
 * weir__pg_append_params. */
enum {
    PG_APPEND_SET_BASED = 1,
    PG_APPEND_RECHECK = 2,
    PG_APPEND_EXPIRE = 4,
    PG_APPEND_ALL = 8,
    PG_APPEND_IN_ORDER = 16, /* not to be judged set-based; for weir__pg_append_params alone */
};
/* Adds the 17 arguments of weir.append for these appends and gives the options it chose; settle.c
 * uses it too. wait_us: for each lock; 0: no limit of its own. */
int32_t weir__pg_append_params(pg_params *p, const pg_store *s, store_append *const *appends,
                               size_t count, int32_t options, int64_t wait_us);
/* What writing them may take, apart from waiting: a microsecond for each byte, so that 64 MiB have
 * a minute. */
int64_t weir__pg_append_us(store_append *const *appends, size_t count);
/* Reads the rows of weir.append, its columns in order and no others, into the appends. */
weir_status weir__pg_append_results(const PGresult *result, store_append *const *appends,
                                    size_t count, weir_error *err);
/* One refusal, as weir.append gives it, into an append: its status and its err. */
typedef struct pg_refusal {
    int32_t stream_index; /* -1: none */
    int64_t expected, actual;
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
weir_status weir__pg_key_owner(weir_store *base, weir_str key, weir_arena *arena, weir_str *stream,
                               weir_error *err);
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
weir_status weir__pg_subscribe(weir_store *base, const store_subscribe *sub, int64_t *target,
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
weir_status weir__pg_release(weir_store *base, store_fenced *items, size_t count, weir_error *err);
weir_status weir__pg_block(weir_store *base, int64_t target, int64_t fence,
                           const store_failure *why, weir_error *err);
weir_status weir__pg_defer(weir_store *base, int64_t target, int64_t fence, int64_t until_us,
                           weir_error *err);
/* operate.c, targets.c, parked.c */
weir_status weir__pg_operate(weir_store *base, store_operate *op, weir_error *err);
/* read_only.c: the same verbs, but whatever changes something is EMISUSE. */
weir_store_ops weir__pg_read_only(const weir_store_ops *all);
weir_status weir__pg_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                bool *changed, weir_error *err);
weir_status weir__pg_targets(weir_store *base, const store_targets_query *q,
                             store_targets_chunk *chunk, weir_error *err);
weir_status weir__pg_lanes(weir_store *base, store_lane_list *list, weir_error *err);
weir_status weir__pg_parked(weir_store *base, const store_parked_query *q,
                            store_parked_chunk *chunk, weir_error *err);
weir_status weir__pg_parked_retry(weir_store *base, int64_t parked, weir_error *err);
weir_status weir__pg_parked_drop(weir_store *base, int64_t parked, weir_error *err);
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
weir_status weir__pg_lock_take(weir_store *base, weir_str name, weir_str holder, int64_t lease_us,
                               weir_arena *arena, store_lock *out, weir_error *err);
/* lock_take and lock_release on a connection of the caller's own, which may be a bare one. */
weir_status weir__pg_lock_take_on(pg_conn *conn, weir_str name, weir_str holder, int64_t lease_us,
                                  weir_arena *arena, store_lock *out, weir_error *err);
weir_status weir__pg_lock_release_on(pg_conn *conn, weir_str name, int64_t fence, int64_t token,
                                     weir_error *err);
weir_status weir__pg_lock_extend(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                 int64_t lease_us, weir_error *err);
weir_status weir__pg_lock_release(weir_store *base, weir_str name, int64_t fence, int64_t token,
                                  weir_error *err);
weir_status weir__pg_locks(weir_store *base, store_lock_list *list, weir_error *err);
weir_status weir__pg_once_begin(weir_store *base, weir_str key, weir_str holder, int64_t lease_us,
                                weir_arena *arena, store_once *out, weir_error *err);
weir_status weir__pg_once_extend(weir_store *base, weir_str key, int64_t fence, int64_t token,
                                 int64_t lease_us, weir_error *err);
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
