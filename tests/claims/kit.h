/* kit.h - what the tests of claims share: a database with tables of the test's own, short ways to
 * claim from them and to look at them, and claimers that are processes (claim_worker.c).
 *
 * Every program is run once for each way there is to claim: its first argument is the database
 * (memory, sqlite, or postgres, by with-server), the second the path (fast, portable), the third,
 * when there, a pattern of test names. Every test has an empty database; sessions and processes
 * that it started are gone after it, however it ends.
 *
 * Tables are made and looked at over a plain connection, never through what is tested.
 *
 * THREADS  Everything here asserts: for the test's own thread, unless it says otherwise.
 */
#ifndef TESTS_CLAIMS_KIT_H
#define TESTS_CLAIMS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>
#include <libpq-fe.h>
#include <sqlite3.h>

#include "base/error.h"
#include "base/str.h"
#include "claim/claim.h"

enum {
    KIT_SESSIONS_MAX = 64,
    KIT_WORKERS_MAX = 16,
    KIT_URL_BYTES = 1024,
    KIT_TEXT_BYTES = 64 * 1024, /* of one answer */
};

#define KIT_MS     INT64_C(1000)
#define KIT_SECOND INT64_C(1000000)
#define KIT_HOUR   (3600 * KIT_SECOND)
/* Whatever takes longer has failed. */
#define KIT_PATIENCE (60 * KIT_SECOND)

typedef enum kit_kind {
    KIT_MEMORY = 1,
    KIT_SQLITE = 2,
    KIT_POSTGRES = 4,
} kit_kind;

/* Where a test makes sense. */
enum {
    ON_SQLITE = KIT_SQLITE,
    ON_POSTGRES = KIT_POSTGRES,
    ON_ONE_FILE = KIT_MEMORY | KIT_SQLITE, /* SQLite's dialect                    */
    ON_SHARED = KIT_SQLITE | KIT_POSTGRES, /* more than one session at a time     */
    ON_ALL = KIT_MEMORY | KIT_SQLITE | KIT_POSTGRES,
    ONLY_FAST = 8, /* added to the above: not on the portable path                    */
};

/* A session and what its last claim gave. */
typedef struct claimer {
    table_session *s;
    table_result r;
    weir_error err;
} claimer;

/* A process that claims. */
typedef struct kit_worker {
    pid_t pid; /* 0: ended */
    int in, out;
    char line[KIT_TEXT_BYTES]; /* the last answer */
    char rest[KIT_TEXT_BYTES]; /* what came after it */
    size_t rest_len;
} kit_worker;

typedef struct kit {
    kit_kind kind;
    claim_path path;
    char directory[64]; /* of the test, removed after it */
    char file[96];
    char url[KIT_URL_BYTES];
    table_db *db;
    claimer *one; /* open before the test begins */
    PGconn *pg;   /* the plain connection; memory: that of `one` */
    sqlite3 *lite;
    /* what is closed after the test */
    claimer *claimers[KIT_SESSIONS_MAX];
    size_t claimers_count;
    PGconn *conns[KIT_SESSIONS_MAX];
    size_t conns_count;
    kit_worker *workers[KIT_WORKERS_MAX];
    size_t workers_count;
} kit;

typedef struct kit_case {
    struct CMUnitTest test;
    int where;
} kit_case;

int kit_set_up(void **state);
int kit_tear_down(void **state);
#define KIT_TEST(f, where)                                                                         \
    {                                                                                              \
        cmocka_unit_test_setup_teardown(f, kit_set_up, kit_tear_down), where                       \
    }
/* Lists of cases, the last one NULL. */
int kit_main(int argc, char **argv, const kit_case *const *lists, const size_t *counts);

/* ---- plain SQL ---------------------------------------------------------------------------- */

/* Any number of statements; all must succeed. */
void kit_exec(kit *k, const char *format, ...) WEIR_PRINTF(2, 3);
/* The same where % is itself, and one text for each dialect; NULL: not there. */
void kit_exec_each(kit *k, const char *postgres, const char *sqlite);
/* What a query gives: cells with a space between them, rows with a comma; NULL is "-". Until the
 * next call. */
const char *kit_rows(kit *k, const char *format, ...) WEIR_PRINTF(2, 3);
int64_t kit_number(kit *k, const char *format, ...) WEIR_PRINTF(2, 3);
/* Polls a query until it gives this text. */
void kit_await(kit *k, const char *wanted, const char *format, ...) WEIR_PRINTF(3, 4);
/* One more plain connection to PostgreSQL, closed after the test. */
PGconn *kit_connect(kit *k);
void kit_pg(PGconn *conn, const char *sql);
/* The database's own clock: microseconds since 1970. */
int64_t kit_now_us(kit *k);
int64_t kit_mono_us(void); /* any thread */
/* From now on, and until the test ends, it is this time to the database; `one` is opened again. On
 * SQLite it has milliseconds, and is this process's. */
void kit_pin_clock(kit *k, int64_t us);

/* The table most tests use, with this many pending jobs, their ids from 1 on:
 *   jobs (id, status, priority, kind, claimed_by, claimed_at, locked_until, fence, attempts)
 * times: of the type in which the dialect keeps a time. */
void kit_jobs(kit *k, int count);

/* ---- claiming ----------------------------------------------------------------------------- */

/* Up to `limit` pending jobs get the status claimed, by the test's path. */
claim_request kit_request(const kit *k, int64_t limit);
/* The same with the holder's name, a lease, a fence and attempts; 0: no lease. */
claim_request kit_lease(const kit *k, int64_t limit, const char *by, int64_t lease_us);
/* One more session, closed after the test; or sooner. */
claimer *kit_claimer(kit *k);
void kit_claimer_close(kit *k, claimer *c);
void kit_claimer_renew(kit *k); /* closes `one`, and opens it again */
/* Opens it without the test; any thread: it does not assert. Ended by claimer_end. */
weir_status claimer_begin(claimer *c, table_db *db);
void claimer_end(claimer *c);
/* Any thread: it does not assert. */
weir_status claimer_try(claimer *c, const claim_request *request);

/* The status of a claim by `one`, or by c. */
weir_status kit_try(kit *k, const claim_request *request);
/* The first columns of the rows of a claim that must succeed, with spaces; until the next call. */
const char *kit_claim(kit *k, const claim_request *request);
const char *kit_claim_by(claimer *c, const claim_request *request);
/* The same, of the rows that a claimer has: the column of this name. */
const char *claimer_column(const claimer *c, const char *column);
/* The rows as JSON, one after the other; until the next call. */
const char *claimer_json(const claimer *c);
int64_t claimer_number(const claimer *c, size_t row, const char *column); /* any thread */

/* Finishing the job of this id. */
finish_request kit_finish_request(finish_kind kind, const table_value *key, const char *by);
weir_status kit_finish(claimer *c, finish_kind kind, int64_t id, const char *by);
weir_status kit_finish_fence(claimer *c, finish_kind kind, int64_t id, int64_t fence);

/* A status, with the message shown when it is another than expected. */
#define KIT_IS(c, call, status) kit_expect((c), (call), (status), #call, __FILE__, __LINE__)
#define KIT_OK(c, call)         KIT_IS(c, call, WEIR_OK)
void kit_expect(const claimer *c, int32_t got, int32_t wanted, const char *call, const char *file,
                int line);
/* The last message has this in it. */
void kit_message(const claimer *c, const char *part);

/* ---- many at once ------------------------------------------------------------------------- */

/* Runs fn in so many threads, which begin together, and waits for all. fn returns NULL, or what
 * went wrong (static, or in its own part), which fails the test. */
typedef const char *(*kit_thread_fn)(kit *k, int number, void *ctx);
void kit_together(kit *k, int threads, kit_thread_fn fn, void *ctx);

/* Starts claim_worker on the test's database; its time of day is so many seconds off. */
kit_worker *kit_worker_start(kit *k, int skew_seconds);
/* A line to it, without waiting for the answer. */
void kit_worker_send(kit_worker *w, const char *format, ...) WEIR_PRINTF(2, 3);
/* The next line of it; until the next one. NULL: it has ended. */
const char *kit_worker_read(kit_worker *w);
const char *kit_worker_ask(kit_worker *w, const char *format, ...) WEIR_PRINTF(2, 3);
/* Waits until it has ended: the exit status, or minus the signal. */
int kit_worker_end(kit_worker *w);
void kit_worker_kill(kit_worker *w);

/* ---- the parts of the kit ----------------------------------------------------------------- */

extern const kit_case kit_claiming[], kit_losing[], kit_lasting[], kit_naming[], kit_typing[];
extern const size_t kit_claiming_count, kit_losing_count, kit_lasting_count, kit_naming_count,
    kit_typing_count;

#endif
