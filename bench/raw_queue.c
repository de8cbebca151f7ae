/* raw_queue.c - the reference for claims: the least code that takes and finishes rows durably.
 *
 * The verbs of queue.h, and
 *
 *     raw_queue enqueue --url URL --count N --batch B [--pgmq 1]       B rows to a transaction
 *
 * With --pgmq, everything goes through the functions of pgmq, whose queue "jobs" is there: read and
 * delete, send_batch.
 *
 * Taking writes the state, the holder and the time, with --lease the lease's end too, and is
 * durable when the rows are in hand; finishing asks whether the row is still held. Each is one
 * prepared statement, on PostgreSQL with all rows in it, on SQLite for each row, in one
 * transaction. Leases that have ended are nobody's business here; nothing is known of the table but
 * what is written below; of a row, its number and its payload come back.
 */
#include "bench.h"
#include "queue.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARRAY_BYTES = QUEUE_LIMIT_MAX * 20 + 8, DIGITS_BYTES = 24 };

static const char pg_take[] =
    "WITH chosen AS MATERIALIZED (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT $1"
    " FOR UPDATE SKIP LOCKED)"
    " UPDATE jobs AS j SET status = 'claimed', claimed_by = $2, claimed_at = clock_timestamp()"
    " FROM chosen WHERE j.id = chosen.id RETURNING j.id, j.payload";
static const char pg_take_leased[] =
    "WITH chosen AS MATERIALIZED (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT $1"
    " FOR UPDATE SKIP LOCKED)"
    " UPDATE jobs AS j SET status = 'claimed', claimed_by = $2, claimed_at = clock_timestamp(),"
    " locked_until = clock_timestamp() + interval '30 s'"
    " FROM chosen WHERE j.id = chosen.id RETURNING j.id, j.payload";
static const char pg_finish[] =
    "UPDATE jobs SET status = 'done', locked_until = NULL WHERE id = ANY (CAST($1 AS bigint[]))"
    " AND claimed_by = $2 AND (locked_until IS NULL OR locked_until > clock_timestamp())";
static const char pg_back[] =
    "UPDATE jobs SET status = 'pending', locked_until = NULL, claimed_by = NULL, claimed_at = NULL"
    " WHERE id = ANY (CAST($1 AS bigint[])) AND claimed_by = $2";

static const char pgmq_take[] =
    "SELECT msg_id, message FROM pgmq.read('jobs', 30, CAST($1 AS integer)) WHERE $2 <> ''";
static const char pgmq_finish[] =
    "SELECT * FROM pgmq.delete('jobs', CAST($1 AS bigint[])) WHERE $2 <> ''";
static const char pgmq_back[] =
    "SELECT pgmq.set_vt('jobs', CAST($1 AS bigint[]), 0) WHERE $2 <> ''";

static const char lite_take[] =
    "UPDATE jobs SET status = 'claimed', claimed_by = ?2, claimed_at = ?3"
    " WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT ?1)"
    " RETURNING id, payload";
static const char lite_take_leased[] =
    "UPDATE jobs SET status = 'claimed', claimed_by = ?2, claimed_at = ?3,"
    " locked_until = ?3 + 30000000"
    " WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT ?1)"
    " RETURNING id, payload";
static const char lite_finish[] =
    "UPDATE jobs SET status = 'done', locked_until = NULL WHERE id = ?1 AND claimed_by = ?2"
    " AND (locked_until IS NULL OR locked_until > ?3)";
static const char lite_back[] =
    "UPDATE jobs SET status = 'pending', locked_until = NULL, claimed_by = NULL, claimed_at = NULL"
    " WHERE id = ?1 AND claimed_by = ?2 AND ?3 > 0";

typedef struct raw {
    PGconn *pg;
    sqlite3 *db; /* one of the two */
    sqlite3_stmt *take, *finish, *back;
    int64_t limit;
    const char *by;
    char *name;    /* owned: by */
    int64_t bytes; /* of payloads: somebody has to look at them */
} raw;

/* ---- PostgreSQL ---------------------------------------------------------------------------- */

static void pg_must(raw *r, const PGresult *result)
{
    const ExecStatusType status = PQresultStatus(result);
    bench_must(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK, PQerrorMessage(r->pg));
}

static void pg_prepare(raw *r, const char *name, const char *sql)
{
    PGresult *result = PQprepare(r->pg, name, sql, 0, NULL);
    pg_must(r, result);
    PQclear(result);
}

static size_t pg_take_rows(raw *r, int64_t *ids)
{
    char digits[DIGITS_BYTES];
    const char *values[] = { digits, r->by };
    (void)snprintf(digits, sizeof digits, "%" PRId64, r->limit);
    PGresult *result = PQexecPrepared(r->pg, "take", 2, values, NULL, NULL, 0);
    pg_must(r, result);
    const int count = PQntuples(result);
    bench_must(count <= r->limit, "more rows than asked for");
    for (int i = 0; i < count; i++) {
        ids[i] = strtoll(PQgetvalue(result, i, 0), NULL, 10);
        r->bytes += PQgetlength(result, i, 1);
    }
    PQclear(result);
    return (size_t)count;
}

static void pg_write(raw *r, const char *statement, const int64_t *ids, size_t count)
{
    static _Thread_local char array[ARRAY_BYTES];
    const char *values[] = { array, r->by };
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        len += (size_t)snprintf(array + len, sizeof array - len, "%c%" PRId64, i == 0 ? '{' : ',',
                                ids[i]);
    }
    (void)snprintf(array + len, sizeof array - len, "}");
    PGresult *result = PQexecPrepared(r->pg, statement, 2, values, NULL, NULL, 0);
    pg_must(r, result);
    bench_must(strtoull(PQcmdTuples(result), NULL, 10) == count, "a row was lost");
    PQclear(result);
}

/* ---- SQLite -------------------------------------------------------------------------------- */

static void lite_must(raw *r, int rc)
{
    bench_must(rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW, sqlite3_errmsg(r->db));
}

static void lite_run(raw *r, const char *sql)
{
    lite_must(r, sqlite3_exec(r->db, sql, NULL, NULL, NULL));
}

static sqlite3_stmt *lite_prepare(raw *r, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    lite_must(r, sqlite3_prepare_v2(r->db, sql, -1, &statement, NULL));
    return statement;
}

static int64_t lite_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static size_t lite_take_rows(raw *r, int64_t *ids)
{
    int64_t count = 0;
    int rc;
    lite_run(r, "BEGIN IMMEDIATE");
    lite_must(r, sqlite3_bind_int64(r->take, 1, r->limit));
    lite_must(r, sqlite3_bind_text(r->take, 2, r->by, -1, SQLITE_STATIC));
    lite_must(r, sqlite3_bind_int64(r->take, 3, lite_now()));
    while ((rc = sqlite3_step(r->take)) == SQLITE_ROW) {
        bench_must(count < r->limit, "more rows than asked for");
        ids[count++] = sqlite3_column_int64(r->take, 0);
        (void)sqlite3_column_text(r->take, 1);
        r->bytes += sqlite3_column_bytes(r->take, 1);
    }
    lite_must(r, rc);
    lite_must(r, sqlite3_reset(r->take));
    lite_run(r, "COMMIT");
    return (size_t)count;
}

static void lite_write(raw *r, sqlite3_stmt *statement, const int64_t *ids, size_t count)
{
    lite_run(r, "BEGIN IMMEDIATE");
    for (size_t i = 0; i < count; i++) {
        lite_must(r, sqlite3_bind_int64(statement, 1, ids[i]));
        lite_must(r, sqlite3_bind_text(statement, 2, r->by, -1, SQLITE_STATIC));
        lite_must(r, sqlite3_bind_int64(statement, 3, lite_now()));
        lite_must(r, sqlite3_step(statement));
        bench_must(sqlite3_changes(r->db) == 1, "a row was lost");
        lite_must(r, sqlite3_reset(statement));
    }
    lite_run(r, "COMMIT");
}

/* ---- either -------------------------------------------------------------------------------- */

static void connect_to(raw *r, const char *url)
{
    if (queue_is_postgres(url)) {
        r->pg = PQconnectdb(url);
        bench_must(PQstatus(r->pg) == CONNECTION_OK, PQerrorMessage(r->pg));
        return;
    }
    bench_must(sqlite3_open(url, &r->db) == SQLITE_OK, "cannot open the file");
    lite_must(r, sqlite3_busy_timeout(r->db, 60000));
    lite_run(r, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
}

static void *raw_open(const queue_options *options, const char *name)
{
    raw *r = calloc(1, sizeof *r);
    bench_must(r != NULL, "no memory");
    *r = (raw){ .limit = options->limit, .name = strdup(name) };
    r->by = r->name;
    connect_to(r, options->url);
    if (r->pg != NULL) {
        pg_prepare(r, "take",
                   options->pgmq    ? pgmq_take
                   : options->lease ? pg_take_leased
                                    : pg_take);
        pg_prepare(r, "finish", options->pgmq ? pgmq_finish : pg_finish);
        pg_prepare(r, "back", options->pgmq ? pgmq_back : pg_back);
    } else {
        r->take = lite_prepare(r, options->lease ? lite_take_leased : lite_take);
        r->finish = lite_prepare(r, lite_finish);
        r->back = lite_prepare(r, lite_back);
    }
    return r;
}

static void raw_close(void *worker)
{
    raw *r = worker;
    PQfinish(r->pg);
    (void)sqlite3_finalize(r->take);
    (void)sqlite3_finalize(r->finish);
    (void)sqlite3_finalize(r->back);
    (void)sqlite3_close(r->db);
    free(r->name);
    free(r);
}

static size_t raw_take(void *worker, int64_t *ids)
{
    raw *r = worker;
    return r->pg != NULL ? pg_take_rows(r, ids) : lite_take_rows(r, ids);
}

static void raw_finish(void *worker, const int64_t *ids, size_t count)
{
    raw *r = worker;
    if (r->pg != NULL) {
        pg_write(r, "finish", ids, count);
    } else {
        lite_write(r, r->finish, ids, count);
    }
}

static void raw_put_back(void *worker, const int64_t *ids, size_t count)
{
    raw *r = worker;
    if (r->pg != NULL) {
        pg_write(r, "back", ids, count);
    } else {
        lite_write(r, r->back, ids, count);
    }
}

/* ---- enqueueing ---------------------------------------------------------------------------- */

/* The payloads from `first` on, as one JSON array. */
static void payloads(char *out, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        *out++ = i == 0 ? '[' : ',';
        out += bench_data(out, first + i);
    }
    memcpy(out, "]", 2);
}

static void pg_insert(raw *r, char *array, int64_t first, int64_t count)
{
    const char *values[] = { array };
    payloads(array, first, count);
    PGresult *result = PQexecPrepared(r->pg, "insert", 1, values, NULL, NULL, 0);
    pg_must(r, result);
    PQclear(result);
}

static void lite_insert(raw *r, sqlite3_stmt *insert, int64_t first, int64_t count)
{
    char data[BENCH_DATA_BYTES];
    lite_run(r, "BEGIN IMMEDIATE");
    for (int64_t i = 0; i < count; i++) {
        const size_t len = bench_data(data, first + i);
        lite_must(r, sqlite3_bind_text(insert, 1, data, (int)len, SQLITE_STATIC));
        lite_must(r, sqlite3_step(insert));
        lite_must(r, sqlite3_reset(insert));
    }
    lite_run(r, "COMMIT");
}

static void enqueue(const char *url, int64_t count, int64_t batch, bool pgmq)
{
    raw r = { 0 };
    sqlite3_stmt *insert = NULL;
    char *array = malloc((size_t)batch * BENCH_DATA_BYTES + 2);
    bench_must(array != NULL && batch > 0 && count % batch == 0, "a count of whole batches");
    connect_to(&r, url);
    if (r.pg != NULL) {
        pg_prepare(&r, "insert",
                   pgmq ? "SELECT count(*) FROM pgmq.send_batch('jobs',"
                          " ARRAY(SELECT value FROM jsonb_array_elements($1)))"
                        : "INSERT INTO jobs (payload) SELECT value FROM json_array_elements($1)");
    } else {
        insert = lite_prepare(&r, "INSERT INTO jobs (payload) VALUES (?1)");
    }
    const bench_timer started = bench_start();
    for (int64_t i = 0; i < count; i += batch) {
        if (r.pg != NULL) {
            pg_insert(&r, array, i, batch);
        } else {
            lite_insert(&r, insert, i, batch);
        }
    }
    bench_report(started, count);
    (void)sqlite3_finalize(insert);
    PQfinish(r.pg);
    (void)sqlite3_close(r.db);
    free(array);
}

int main(int argc, char **argv)
{
    static const queue_side side = { .open = raw_open,
                                     .close = raw_close,
                                     .take = raw_take,
                                     .finish = raw_finish,
                                     .put_back = raw_put_back };
    if (queue_run(argc, argv, &side)) {
        return 0;
    }
    bench_must(argc > 1 && strcmp(argv[1], "enqueue") == 0, "work, take or enqueue");
    enqueue(bench_text(argc, argv, "url", ""), bench_number(argc, argv, "count", 1000),
            bench_number(argc, argv, "batch", 1000), bench_number(argc, argv, "pgmq", 0) != 0);
    return 0;
}
