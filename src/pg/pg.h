/* pg.h - the driver for PostgreSQL: connections, statements on them, pools of them. It knows
 * nothing of events, nor of any table.
 *
 * Statements are constant texts, prepared once per connection (unless prepare=off), known by the
 * address of their text, with binary parameters and results; or texts of the moment, as they are.
 *
 * OUTCOMES  A statement that the server refused has not happened. One that was sent and got no
 * answer may have happened: it is repeated only when repeating it cannot change what is true
 * (pg_call.repeat); otherwise it is WEIR_EUNKNOWN.
 *
 * THREADS  A pool may be used by any thread. A connection belongs to one thread: from take to give,
 * or as long as it exists when it is of no pool.
 */
#ifndef WEIR_PG_PG_H
#define WEIR_PG_PG_H

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "pg/params.h"

enum {
    PG_POOL_MAX_DEFAULT = 8,
    PG_STATEMENTS_MAX = 128, /* constants */
    PG_TEXTS_MAX = 16,       /* and others, prepared on one connection */
    PG_SETTINGS_BYTES = 256,
    PG_FAREWELL_BYTES = 200,
    PG_VERSION_LEAST = 150000, /* PostgreSQL 15 */
};
#define PG_ANSWER_US_DEFAULT INT64_C(8000000)   /* a quick statement without an answer is lost */
#define PG_ANSWER_US_LONG    INT64_C(600000000) /* one that may read a whole table */

typedef struct pg_database pg_database;
typedef struct pg_pool pg_pool;

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

/* A statement that was prepared, or, if it is a text, will be the next time (prepared.c). */
typedef struct pg_prepared {
    const char *sql; /* a constant, known by its address; or `text` */
    char *text;      /* owned; NULL: it is a constant */
    bool named;      /* the server has it */
    char name[40];   /* there: the hash of what was sent, and prepared_again */
    uint64_t used;   /* a text: when last, in runs of texts */
} pg_prepared;

/* The tag is not pg_conn: that is the one of libpq's PGconn. */
typedef struct pg_connection {
    pg_database *database; /* borrowed */
    pg_pool *pool;         /* borrowed; NULL: it is of none */
    PGconn *raw;           /* owned; NULL: not connected */
    pg_server server;
    uint64_t serial; /* of this connection to its database: another one after a reconnect */
    pg_outcome outcome;
    char sqlstate[6]; /* of the last error; "" */
    bool unsynced;    /* the standby did not confirm the last commit, though it should have */
    bool taken;       /* guarded by the pool's mutex */
    bool ended;       /* the server has said goodbye */
    bool refused;     /* the last attempt to connect: waiting does not help (password, database) */
    char farewell[PG_FAREWELL_BYTES]; /* the server's words for that; "" if it gave none */
    pg_prepared prepared[PG_STATEMENTS_MAX + PG_TEXTS_MAX];
    size_t prepared_count;
    unsigned prepared_again; /* how often names were given up: part of the next one */
    uint64_t prepared_used;  /* how often texts were */
    int64_t told_us;         /* for pg_manner.before: what it told the session last; 0: nothing */
    char settings
        [PG_SETTINGS_BYTES]; /* pooled: SQL that each transaction has to begin with; or "" */
    /* Once it is set, what runs is cancelled when stop_grace_us have passed, if the manner cancels.
     * May be NULL. */
    const weir_stop *stop; /* borrowed */
    int64_t stop_grace_us;
} pg_conn;

/* How those who work in a database use its connections. Static. */
typedef struct pg_manner {
    /* On each new connection: finds out what has to be known, sets what has to be set. NULL:
     * nothing; conn->server.version is known all the same. */
    weir_status (*hello)(pg_conn *conn, weir_error *err);
    /* Before each statement; sends with weir__pg_send_text. NULL: nothing. */
    weir_status (*before)(pg_conn *conn, weir_error *err);
    /* What is sent for a constant text; the same address gives the same answer. NULL: no memory.
     * Without it: the text itself. */
    const char *(*text)(pg_database *db, const char *sql);
    /* The status of what the server refused, and its words. */
    weir_status (*refusal)(const PGresult *result, weir_error *err);
    /* A statement without an answer in time is cancelled, so that it is known that it has not
     * happened; otherwise its connection is given up. */
    bool cancels;
    int64_t answer_us; /* how long an answer is waited for, unless it was said otherwise */
} pg_manner;

/* Whoever works in a database that is somebody else's: connections are set up so that results do
 * not depend on a role's settings, and take SQL as it is. 55P03 is WEIR_EHELD, 40P01 and 40001
 * WEIR_ECONFLICT, all other refusals WEIR_EIO. */
extern const pg_manner weir__pg_guest;

/* What the connections to a database have in common. Filled in before the first one is made; the
 * first part does not change then. */
struct pg_database {
    const char *url;         /* for libpq; borrowed */
    const char *application; /* who we are, for others to see; borrowed */
    bool writes;             /* of several hosts it has to be the primary */
    int32_t prepare;         /* 0 unless there is a pooler in between, 1 yes, 2 no */
    int64_t busy_us;         /* how long a server that is away is waited for */
    int64_t answer_us;       /* how long an answer is */
    const pg_manner *manner;
    void *owner;                            /* of the manner's functions */
    void (*away_cb)(const weir_error *err); /* it could not be reached, and is tried again */
    _Atomic uint64_t connections;           /* made so far */
    _Atomic bool reached;                   /* one of them got through */
};

/* The machine's monotonic clock, for deadlines; never for what a database calls time. */
static inline int64_t pg_mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

/* ---- connecting (connect.c) ------------------------------------------------------------------ */

/* One attempt, bounded by connect_timeout; EUNAVAILABLE says why, and conn->refused whether waiting
 * may help. extra: more libpq parameters as NULL-terminated pairs, may be NULL. */
weir_status weir__pg_connect(pg_database *db, pg_conn *conn, const char *const *extra,
                             weir_error *err);
/* Whether a connection that could not be made is worth another attempt. A database that was reached
 * before is waited for whatever it says: what refuses us now let us in once. */
bool weir__pg_waiting_helps(const pg_conn *conn, weir_status status);
/* connect. The first connection to a database is tried until its busy time has passed; later ones
 * have one attempt, because their callers try again. */
weir_status weir__pg_connect_first(pg_database *db, pg_conn *conn, const char *const *extra,
                                   weir_error *err);
/* For pg_manner.hello: what kind of server it is; transactions are READ COMMITTED from here on. The
 * database has to be in UTF-8. */
weir_status weir__pg_hello(pg_conn *conn, weir_error *err);
/* Not connected is fine. */
void weir__pg_disconnect(pg_conn *conn);

/* The `index`th of the parts between commas, into out; the last one when there are fewer. */
const char *weir__pg_list_part(const char *list, size_t index, char *out, size_t bytes);
size_t weir__pg_list_count(const char *list);
/* HOST:PORT of the server behind a pooler, taken apart. */
typedef struct pg_place {
    char host[512], hostaddr[512], port[16];
} pg_place;
void weir__pg_place_direct(weir_str direct, pg_place *out);

/* ---- waiting (connection.c) ------------------------------------------------------------------ */

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
/* Whether a connection that nobody uses still leads somewhere, as far as can be known without
 * asking the server. Pre: it is connected. */
bool weir__pg_still_there(pg_conn *conn);

/* ---- statements (connection.c, prepared.c) -------------------------------------------------- */

typedef enum pg_repeat {
    PG_ONCE = 0, /* sent and no answer: WEIR_EUNKNOWN                                        */
    PG_REPEAT =
        1, /* reading, or writing what is then true anyway: tried again until the deadline */
} pg_repeat;

typedef struct pg_call {
    const char *sql;   /* a constant of a .sql file: known by its address */
    pg_params *params; /* NULL: none */
    pg_repeat repeat;
    int64_t answer_us; /* how long to wait for the answer; 0: as the database says */
} pg_call;

/* One statement on that connection. Never repeats. conn->outcome says what is known; PG_LOST is
 * WEIR_EUNKNOWN, PG_NOT_SENT is WEIR_EUNAVAILABLE. For BEGIN and statements inside a transaction
 * the caller knows better: what was not committed did not happen. *result: owned, ended by
 * pq.PQclear; written on success only (tuples or command ok). */
weir_status weir__pg_run(pg_conn *conn, const pg_call *call, PGresult **result, weir_error *err);
/* The same for a statement that is not worth preparing. */
weir_status weir__pg_run_text(pg_conn *conn, const char *sql, pg_params *params, int64_t answer_us,
                              PGresult **result, weir_error *err);
/* The same at once, as it is: for pg_manner.before. */
weir_status weir__pg_send_text(pg_conn *conn, const char *sql, const pg_params *params,
                               PGresult **result, weir_error *err);
/* Several statements without parameters, as one transaction unless they say otherwise. Taken as
 * they are. */
weir_status weir__pg_run_script(pg_conn *conn, const char *sql, int64_t answer_us, weir_error *err);
/* The same, with the rows of the last of them that has any, as text. */
weir_status weir__pg_run_script_rows(pg_conn *conn, const char *sql, int64_t answer_us,
                                     PGresult **result, weir_error *err);
/* Parameters as libpq has them. */
typedef struct pg_plain {
    int count;
    const Oid *types;
    const char *const *values;
    const int *lengths;
    const int *formats;
} pg_plain;
/* One statement, as it is; the result is text. */
weir_status weir__pg_run_plain(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err);
/* The same for a statement that comes again and again: prepared the second time (prepared.c). Its
 * plan then knows no values after a while; it is for statements whose plan should not depend on
 * them. Pre: no transaction is open. */
weir_status weir__pg_run_again(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err);

/* ---- refusals (connection.c) ----------------------------------------------------------------- */

/* A field of a result or notice; "" when it has none. */
const char *weir__pg_field(const PGresult *result, int code);
bool weir__pg_is_fatal(const PGresult *result); /* its session has ended */
/* One line, without the line breaks that libpq adds. */
void weir__pg_one_line(const char *text, char *out, size_t bytes);
/* EUNAVAILABLE in the place of an EUNKNOWN in err, for a statement that can have done nothing:
 * `what` was being done. */
weir_status weir__pg_lost_nothing(const char *what, weir_error *err);
/* Fills err from a failed result (never NULL), as weir__pg_guest says. */
weir_status weir__pg_foreign_status(const PGresult *result, weir_error *err);

/* ---- pools (pool.c) -------------------------------------------------------------------------- */

/* most: connections; 0: PG_POOL_MAX_DEFAULT. db: borrowed until close. */
weir_status weir__pg_pool_open(pg_pool **out, pg_database *db, int64_t most, weir_error *err);
void weir__pg_pool_close(pg_pool *pool); /* nobody has a connection; NULL is a no-op */
/* A connection of one's own, for several statements. deadline_us: monotonic, 0: the database's busy
 * time from now. EBUSY: all are taken; EUNAVAILABLE: no server. One that died while nobody used it
 * is not given out. give: broken ones are closed, an open transaction is rolled back. */
weir_status weir__pg_pool_take(pg_pool *pool, int64_t deadline_us, pg_conn **out, weir_error *err);
void weir__pg_give(pg_conn *conn);
/* One that is connected and that nobody uses; NULL: there is none. Waits for nothing. */
pg_conn *weir__pg_pool_take_idle(pg_pool *pool);
/* The way to the server seems to be dead without a word: connections that exist now are closed
 * instead of used, each when its turn comes. Those in use find out by themselves. */
void weir__pg_pool_distrust(pg_pool *pool);
/* One statement, autocommit, on any connection of the pool. Waits for a connection, and for the
 * server to come back, until the database's busy time has passed: then WEIR_EBUSY,
 * WEIR_EUNAVAILABLE. Deadlocks and serialization failures are repeated. *result as weir__pg_run. */
weir_status weir__pg_pool_call(pg_pool *pool, const pg_call *call, PGresult **result,
                               weir_error *err);

#endif
