/* raw_engine.c - the references for the engine: the least code that does the same durable work.
 *
 *     raw_engine fill --url URL --count N --streams S --targets T [--preferred P]
 *                           N events over S streams; T targets that have all of them to handle, or
 *                           with T = 0 one target for each stream
 *     raw_engine drain --url URL --count N --slots K --batch B [--each 1] [--watch TARGET]
 *                           until no target has anything to do: lease K targets, fetch B events of
 *                           each, handle them, settle
 *     raw_engine latency --url URL --count N --rate R
 *                           appends here; another process is woken, marks, leases, fetches, handles
 *                           and settles
 *
 * URL is a postgresql:// one, or the path of a SQLite file. Durable work means: a lease writes its
 * holder, its end and a new fence; settling writes how far the target is, if the fence is still the
 * same; both are transactions of their own, and synced. One settle for all K targets, or with
 * --each one for each of them. Targets know their marks beforehand (but for latency): there is no
 * routing. No retries, no renewal, no pausing, no reactions, one process. `drain` ends its time
 * when the last settle was answered, like the drain of Weir.
 */
#include "bench.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS_MAX = 100,
    SQL_BYTES = 512,
    LEASE_US = 5000000,
    LATENCY_WARM = 50,
    ARRAY_BYTES = SLOTS_MAX * 40,
};

typedef struct leased {
    int64_t id, at, mark, fence;
    char source[BENCH_NAME_BYTES]; /* a stream; "": all of them */
    int64_t fetched, last;
} leased;

typedef struct raw {
    PGconn *pg;
    sqlite3 *db; /* one of the two */
    sqlite3_stmt *choose, *take, *fetch_all, *fetch_stream, *settle, *append, *mark;
    int64_t handled, bytes;
    int64_t last_us;                 /* of the last settle */
    int64_t preferred, preferred_us; /* a target, and when its last event was handled */
    _Atomic int64_t *handled_us;     /* of latency, by version; else NULL */
} raw;

/* ---- either database ----------------------------------------------------------------------- */

static void pg_must(raw *r, PGresult *result)
{
    const ExecStatusType status = PQresultStatus(result);
    bench_must(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK, PQerrorMessage(r->pg));
}

__attribute__((format(printf, 2, 3))) static void run(raw *r, const char *format, ...)
{
    char sql[SQL_BYTES];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    bench_must(len > 0 && len < SQL_BYTES, "a statement does not fit");
    if (r->pg == NULL) {
        bench_must(sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(r->db));
        return;
    }
    PGresult *result = PQexec(r->pg, sql);
    pg_must(r, result);
    PQclear(result);
}

static sqlite3_stmt *lite(raw *r, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bench_must(sqlite3_prepare_v3(r->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) ==
                   SQLITE_OK,
               sqlite3_errmsg(r->db));
    return stmt;
}

static void lite_run(raw *r, sqlite3_stmt *stmt)
{
    bench_must(sqlite3_step(stmt) == SQLITE_DONE, sqlite3_errmsg(r->db));
    (void)sqlite3_reset(stmt);
}

static void pg_prepare(raw *r, const char *name, const char *sql)
{
    PGresult *result = PQprepare(r->pg, name, sql, 0, NULL);
    pg_must(r, result);
    PQclear(result);
}

static PGresult *pg_call(raw *r, const char *name, int count, const char *const *values)
{
    PGresult *result = PQexecPrepared(r->pg, name, count, values, NULL, NULL, 0);
    pg_must(r, result);
    return result;
}

static void pg_statements(raw *r)
{
    pg_prepare(r, "lease",
               "WITH chosen AS (SELECT id FROM raw.targets WHERE at < mark AND until <= $3::bigint"
               "  ORDER BY priority DESC, at, id LIMIT $1::bigint FOR UPDATE SKIP LOCKED)"
               " UPDATE raw.targets AS t SET holder = 'raw', until = $2::bigint, fence = fence + 1"
               " FROM chosen WHERE t.id = chosen.id"
               " RETURNING t.id, t.at, t.mark, t.fence, t.source");
    pg_prepare(r, "fetch_all",
               "SELECT x.place, e.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
               "  $4::text[]) AS x (place, at, mark, source) CROSS JOIN LATERAL"
               " (SELECT id, version, stream, name, data, meta, created FROM raw.events AS e"
               "   WHERE e.id > x.at AND e.id <= x.mark ORDER BY e.id LIMIT $5::bigint) AS e");
    pg_prepare(r, "fetch_stream",
               "SELECT x.place, e.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
               "  $4::text[]) AS x (place, at, mark, source) CROSS JOIN LATERAL"
               " (SELECT id, version, stream, name, data, meta, created FROM raw.events AS e"
               "   WHERE e.stream = x.source AND e.id > x.at AND e.id <= x.mark"
               "   ORDER BY e.id LIMIT $5::bigint) AS e");
    pg_prepare(r, "settle",
               "UPDATE raw.targets AS t SET at = x.at, holder = NULL, until = 0"
               " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS x (id, at, fence)"
               " WHERE t.id = x.id AND t.fence = x.fence");
    pg_prepare(r, "append",
               "WITH added AS (INSERT INTO raw.events (stream, version, name, data, meta)"
               "  VALUES ($1, $2::bigint, 'OrderPlaced', $3::json, $4::json) RETURNING id)"
               " SELECT pg_notify('raw', id::text) FROM added");
    pg_prepare(r, "mark",
               "UPDATE raw.targets SET mark = h.id FROM (SELECT max(id) AS id FROM raw.events) AS h"
               " WHERE mark < h.id");
}

static void lite_statements(raw *r)
{
    r->choose = lite(r, "SELECT id, at, mark, fence + 1, source FROM targets"
                        " WHERE at < mark AND until <= ?2 ORDER BY priority DESC, at, id LIMIT ?1");
    r->take = lite(r, "UPDATE targets SET holder = 'raw', until = ?2, fence = fence + 1"
                      " WHERE id = ?1");
    r->fetch_all = lite(r, "SELECT id, version, stream, name, data, meta, created FROM events"
                           " WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3");
    r->fetch_stream = lite(r, "SELECT id, version, stream, name, data, meta, created FROM events"
                              " WHERE stream = ?4 AND id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3");
    r->settle = lite(r, "UPDATE targets SET at = ?2, holder = NULL, until = 0"
                        " WHERE id = ?1 AND fence = ?3");
    r->append = lite(r, "INSERT INTO events (stream, version, name, data, meta, created)"
                        " VALUES (?1, ?2, 'OrderPlaced', ?3, ?4, 0)");
    r->mark = lite(r, "UPDATE targets SET mark = (SELECT max(id) FROM events)"
                      " WHERE mark < (SELECT max(id) FROM events)");
}

static int is_postgres(const char *url)
{
    return strncmp(url, "postgres", 8) == 0;
}

static void make_tables(raw *r)
{
    if (r->pg != NULL) {
        run(r, "SET client_min_messages = warning");
        run(r, "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw");
        run(r, "CREATE TABLE raw.events (id bigserial PRIMARY KEY, stream text COLLATE \"C\" NOT "
               "NULL, version bigint NOT NULL, name text NOT NULL, data json NOT NULL,"
               " meta json NOT NULL, created timestamptz NOT NULL DEFAULT clock_timestamp(),"
               " UNIQUE (stream, version));"
               "CREATE INDEX ON raw.events (stream, id)");
        run(r, "CREATE TABLE raw.targets (id bigserial PRIMARY KEY, source text NOT NULL,"
               " priority bigint NOT NULL, at bigint NOT NULL, mark bigint NOT NULL,"
               " fence bigint NOT NULL DEFAULT 0, holder text, until bigint NOT NULL DEFAULT 0)"
               " WITH (fillfactor = 50)");
        return;
    }
    run(r, "CREATE TABLE events (id INTEGER PRIMARY KEY, stream TEXT NOT NULL, version INTEGER NOT "
           "NULL, name TEXT NOT NULL, data TEXT NOT NULL, meta TEXT NOT NULL, created INTEGER NOT "
           "NULL, UNIQUE (stream, version)) STRICT;"
           "CREATE INDEX events_stream ON events (stream, id)");
    run(r, "CREATE TABLE targets (id INTEGER PRIMARY KEY, source TEXT NOT NULL,"
           " priority INTEGER NOT NULL, at INTEGER NOT NULL, mark INTEGER NOT NULL,"
           " fence INTEGER NOT NULL DEFAULT 0, holder TEXT, until INTEGER NOT NULL DEFAULT 0)"
           " STRICT");
}

static void open_raw(raw *r, const char *url, int create)
{
    if (is_postgres(url)) {
        r->pg = PQconnectdb(url);
        bench_must(PQstatus(r->pg) == CONNECTION_OK, PQerrorMessage(r->pg));
    } else {
        bench_must(sqlite3_open(url, &r->db) == SQLITE_OK, "cannot open the file");
        (void)sqlite3_busy_timeout(r->db, 5000);
        run(r, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL");
    }
    if (create) {
        make_tables(r);
    }
    if (r->pg != NULL) {
        run(r, "SET search_path = raw");
        pg_statements(r);
    } else {
        lite_statements(r);
    }
}

static void append(raw *r, int64_t version, int64_t stream)
{
    char name[BENCH_NAME_BYTES], data[BENCH_DATA_BYTES], number[24];
    const size_t name_len = bench_stream(name, stream), data_len = bench_data(data, stream);
    if (r->pg != NULL) {
        (void)snprintf(number, sizeof number, "%" PRId64, version);
        PQclear(pg_call(r, "append", 4, (const char *[]){ name, number, data, bench_meta }));
        return;
    }
    sqlite3_bind_text(r->append, 1, name, (int)name_len, SQLITE_STATIC);
    sqlite3_bind_int64(r->append, 2, version);
    sqlite3_bind_text(r->append, 3, data, (int)data_len, SQLITE_STATIC);
    sqlite3_bind_text(r->append, 4, bench_meta, -1, SQLITE_STATIC);
    lite_run(r, r->append);
}

/* ---- the work of an engine ----------------------------------------------------------------- */

static int64_t lite_lease(raw *r, leased *out, int64_t limit, int64_t now_us)
{
    int64_t count = 0;
    run(r, "BEGIN IMMEDIATE");
    sqlite3_bind_int64(r->choose, 1, limit);
    sqlite3_bind_int64(r->choose, 2, now_us);
    while (sqlite3_step(r->choose) == SQLITE_ROW) {
        leased *l = &out[count++];
        *l = (leased){ .id = sqlite3_column_int64(r->choose, 0),
                       .at = sqlite3_column_int64(r->choose, 1),
                       .mark = sqlite3_column_int64(r->choose, 2),
                       .fence = sqlite3_column_int64(r->choose, 3) };
        (void)snprintf(l->source, sizeof l->source, "%s",
                       (const char *)sqlite3_column_text(r->choose, 4));
    }
    (void)sqlite3_reset(r->choose);
    for (int64_t i = 0; i < count; i++) {
        sqlite3_bind_int64(r->take, 1, out[i].id);
        sqlite3_bind_int64(r->take, 2, now_us + LEASE_US);
        lite_run(r, r->take);
    }
    run(r, "COMMIT");
    return count;
}

static int64_t pg_lease(raw *r, leased *out, int64_t limit, int64_t now_us)
{
    char texts[3][24];
    (void)snprintf(texts[0], sizeof texts[0], "%" PRId64, limit);
    (void)snprintf(texts[1], sizeof texts[1], "%" PRId64, now_us + LEASE_US);
    (void)snprintf(texts[2], sizeof texts[2], "%" PRId64, now_us);
    PGresult *result = pg_call(r, "lease", 3, (const char *[]){ texts[0], texts[1], texts[2] });
    const int count = PQntuples(result);
    for (int i = 0; i < count; i++) {
        out[i] = (leased){ .id = atoll(PQgetvalue(result, i, 0)),
                           .at = atoll(PQgetvalue(result, i, 1)),
                           .mark = atoll(PQgetvalue(result, i, 2)),
                           .fence = atoll(PQgetvalue(result, i, 3)) };
        (void)snprintf(out[i].source, sizeof out[i].source, "%s", PQgetvalue(result, i, 4));
    }
    PQclear(result);
    return count;
}

static int64_t lease(raw *r, leased *out, int64_t limit)
{
    const int64_t now_us = bench_now_us();
    return r->pg != NULL ? pg_lease(r, out, limit, now_us) : lite_lease(r, out, limit, now_us);
}

/* Events of one target come in order. */
static void handle(raw *r, leased *l, int64_t id, int64_t version, int64_t bytes)
{
    bench_must(id > l->at && id > l->last && bytes > 200, "an event is not the next one");
    l->last = id;
    l->fetched++;
    r->handled++;
    r->bytes += bytes;
    if (r->handled_us != NULL) {
        bench_must(r->handled_us[version] == 0, "an event was handled twice");
        r->handled_us[version] = bench_now_us();
    }
}

static void pg_fetch(raw *r, leased *list, int64_t count, int64_t limit)
{
    char arrays[4][ARRAY_BYTES], most[24];
    size_t used[4] = { 0 };
    for (int64_t i = 0; i < count; i++) {
        const char *between = i == 0 ? "{" : ",";
        const int64_t numbers[] = { i, list[i].at, list[i].mark };
        for (int j = 0; j < 3; j++) {
            used[j] += (size_t)snprintf(arrays[j] + used[j], ARRAY_BYTES - used[j], "%s%" PRId64,
                                        between, numbers[j]);
        }
        used[3] += (size_t)snprintf(arrays[3] + used[3], ARRAY_BYTES - used[3], "%s\"%s\"", between,
                                    list[i].source);
    }
    for (int j = 0; j < 4; j++) {
        bench_must(used[j] + 2 <= ARRAY_BYTES, "an array does not fit");
        (void)strcpy(arrays[j] + used[j], "}");
    }
    (void)snprintf(most, sizeof most, "%" PRId64, limit);
    PGresult *result =
        pg_call(r, list[0].source[0] == '\0' ? "fetch_all" : "fetch_stream", 5,
                (const char *[]){ arrays[0], arrays[1], arrays[2], arrays[3], most });
    const int rows = PQntuples(result);
    for (int i = 0; i < rows; i++) {
        handle(r, &list[atoll(PQgetvalue(result, i, 0))], atoll(PQgetvalue(result, i, 1)),
               atoll(PQgetvalue(result, i, 2)),
               PQgetlength(result, i, 5) + PQgetlength(result, i, 6));
    }
    PQclear(result);
}

static void lite_fetch(raw *r, leased *l, int64_t limit)
{
    sqlite3_stmt *stmt = l->source[0] == '\0' ? r->fetch_all : r->fetch_stream;
    sqlite3_bind_int64(stmt, 1, l->at);
    sqlite3_bind_int64(stmt, 2, l->mark);
    sqlite3_bind_int64(stmt, 3, limit);
    if (stmt == r->fetch_stream) {
        sqlite3_bind_text(stmt, 4, l->source, -1, SQLITE_STATIC);
    }
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        bench_must(sqlite3_column_text(stmt, 4) != NULL && sqlite3_column_text(stmt, 5) != NULL,
                   "a text is missing");
        handle(r, l, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
               sqlite3_column_bytes(stmt, 4) + sqlite3_column_bytes(stmt, 5));
    }
    (void)sqlite3_reset(stmt);
}

static void fetch(raw *r, leased *list, int64_t count, int64_t limit)
{
    if (r->pg != NULL) {
        pg_fetch(r, list, count, limit);
    }
    for (int64_t i = 0; r->pg == NULL && i < count; i++) {
        lite_fetch(r, &list[i], limit);
    }
    const int64_t now_us = bench_now_us();
    for (int64_t i = 0; i < count; i++) {
        /* Fewer than asked for: there is nothing more up to the mark. */
        list[i].at = list[i].fetched < limit ? list[i].mark : list[i].last;
        if (list[i].id == r->preferred && list[i].at == list[i].mark) {
            r->preferred_us = now_us;
        }
    }
}

static void pg_settle(raw *r, const leased *list, int64_t count)
{
    char arrays[3][ARRAY_BYTES];
    size_t used[3] = { 0 };
    for (int64_t i = 0; i < count; i++) {
        const int64_t numbers[] = { list[i].id, list[i].at, list[i].fence };
        for (int j = 0; j < 3; j++) {
            used[j] += (size_t)snprintf(arrays[j] + used[j], ARRAY_BYTES - used[j], "%s%" PRId64,
                                        i == 0 ? "{" : ",", numbers[j]);
        }
    }
    for (int j = 0; j < 3; j++) {
        bench_must(used[j] + 2 <= ARRAY_BYTES, "an array does not fit");
        (void)strcpy(arrays[j] + used[j], "}");
    }
    PGresult *result = pg_call(r, "settle", 3, (const char *[]){ arrays[0], arrays[1], arrays[2] });
    bench_must(atoll(PQcmdTuples(result)) == count, "a lease was lost");
    PQclear(result);
}

static void settle(raw *r, const leased *list, int64_t count)
{
    if (r->pg != NULL) {
        pg_settle(r, list, count);
        return;
    }
    run(r, "BEGIN IMMEDIATE");
    for (int64_t i = 0; i < count; i++) {
        sqlite3_bind_int64(r->settle, 1, list[i].id);
        sqlite3_bind_int64(r->settle, 2, list[i].at);
        sqlite3_bind_int64(r->settle, 3, list[i].fence);
        lite_run(r, r->settle);
        bench_must(sqlite3_changes(r->db) == 1, "a lease was lost");
    }
    run(r, "COMMIT");
}

/* One round; how many targets it leased. */
static int64_t work(raw *r, int64_t slots, int64_t batch, int each)
{
    static leased list[SLOTS_MAX];
    const int64_t count = lease(r, list, slots);
    if (count > 0) {
        fetch(r, list, count, batch);
        for (int64_t i = 0; each && i < count; i++) {
            settle(r, &list[i], 1);
        }
        if (!each) {
            settle(r, list, count);
        }
        r->last_us = bench_now_us();
    }
    return count;
}

/* ---- verbs --------------------------------------------------------------------------------- */

static int64_t cpu_us(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

static void fill(int argc, char **argv)
{
    raw r = { 0 };
    const int64_t count = bench_number(argc, argv, "count", 5000);
    const int64_t streams = bench_number(argc, argv, "streams", 1);
    const int64_t targets = bench_number(argc, argv, "targets", 1);
    open_raw(&r, bench_text(argc, argv, "url", "raw.db"), 1);
    run(&r, "BEGIN");
    for (int64_t i = 0; i < count; i++) {
        append(&r, i / streams, i % streams);
    }
    for (int64_t i = 1; i <= targets; i++) {
        const int64_t preferred =
            i == targets / 2 + 1 ? bench_number(argc, argv, "preferred", 0) : 0;
        run(&r,
            "INSERT INTO targets (source, priority, at, mark) VALUES ('', %" PRId64 ", 0, %" PRId64
            ")",
            preferred, count);
    }
    if (targets == 0) {
        run(&r, "INSERT INTO targets (source, priority, at, mark)"
                " SELECT stream, 0, 0, max(id) FROM events GROUP BY stream ORDER BY stream");
    }
    run(&r, "COMMIT");
    run(&r, "ANALYZE");
}

/* Plans are made before the time begins: six times nothing, after which a prepared statement has
 * the plan that it keeps. */
static void warm(raw *r)
{
    static const char *const nothing[] = { "{}", "{}", "{}", "{}", "0" };
    leased none;
    for (int i = 0; i < 6 && r->pg != NULL; i++) {
        (void)pg_lease(r, &none, 0, 0);
        PQclear(pg_call(r, "fetch_all", 5, nothing));
        PQclear(pg_call(r, "fetch_stream", 5, nothing));
        PQclear(pg_call(r, "settle", 3, nothing));
    }
}

static void drain(int argc, char **argv)
{
    raw r = { .preferred = bench_number(argc, argv, "watch", 0) };
    const int64_t slots = bench_number(argc, argv, "slots", 1);
    const int64_t batch = bench_number(argc, argv, "batch", 10);
    const int each = (int)bench_number(argc, argv, "each", 0);
    bench_must(slots >= 1 && slots <= SLOTS_MAX, "1 to 100 slots");
    open_raw(&r, bench_text(argc, argv, "url", "raw.db"), 0);
    warm(&r);
    const int64_t from_us = bench_now_us(), cpu_from_us = cpu_us();
    while (work(&r, slots, batch, each) > 0) {
    }
    const int64_t cpu_done_us = cpu_us();
    bench_must(r.handled == bench_number(argc, argv, "count", 5000),
               "not every event was handled once");
    (void)printf("{\"events\":%" PRId64 ",\"wall_us\":%" PRId64 ",\"cpu_us\":%" PRId64
                 ",\"preferred_us\":%" PRId64 "}\n",
                 r.handled, r.last_us - from_us, cpu_done_us - cpu_from_us,
                 r.preferred == 0 ? 0 : r.preferred_us - from_us);
}

/* Waits for the wake-up: a notification, or a byte in the pipe. 0: the other process has ended. */
static int woken(raw *r, int pipe_fd)
{
    char bytes[4096];
    struct pollfd fds[] = { { .fd = pipe_fd, .events = POLLIN },
                            { .fd = r->pg == NULL ? -1 : PQsocket(r->pg), .events = POLLIN } };
    bench_must(poll(fds, 2, -1) > 0, "poll failed");
    if (r->pg != NULL) {
        PGnotify *n;
        bench_must(PQconsumeInput(r->pg) == 1, PQerrorMessage(r->pg));
        while ((n = PQnotifies(r->pg)) != NULL) {
            PQfreemem(n);
        }
    }
    return fds[0].revents == 0 || read(pipe_fd, bytes, sizeof bytes) > 0;
}

static void handle_elsewhere(const char *url, _Atomic int64_t *handled_us, int wake_fd,
                             int ready_fd)
{
    raw r = { .handled_us = handled_us };
    const char byte = 'r';
    open_raw(&r, url, 0);
    if (r.pg != NULL) {
        run(&r, "LISTEN raw");
    }
    bench_must(write(ready_fd, &byte, 1) == 1, "cannot say that it is ready");
    while (woken(&r, wake_fd)) {
        do {
            if (r.pg != NULL) {
                PQclear(pg_call(&r, "mark", 0, NULL));
            } else {
                lite_run(&r, r.mark);
            }
        } while (work(&r, 10, 100, 1) > 0);
    }
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *name, int64_t *us, int64_t count, const char *after)
{
    qsort(us, (size_t)count, sizeof *us, compare);
    (void)printf("\"%sp50_us\":%" PRId64 ",\"%sp99_us\":%" PRId64 ",\"%smax_us\":%" PRId64 "%s",
                 name, us[(count - 1) / 2], name, us[(count - 1) * 99 / 100], name, us[count - 1],
                 after);
}

static void wait_until(int64_t at_us)
{
    const struct timespec at = { .tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void await_all(const _Atomic int64_t *handled_us, int64_t count)
{
    const int64_t until_us = bench_now_us() + 60000000;
    for (int64_t i = 0; i < count; i++) {
        while (handled_us[i] == 0 && bench_now_us() < until_us) {
            wait_until(bench_now_us() + 1000);
        }
        bench_must(handled_us[i] != 0, "an event was not handled");
    }
}

/* Appends events at R per second. The first ones are not measured. A handler may be faster than the
 * return of the append. */
static void offer(raw *r, const _Atomic int64_t *handled_us, int64_t count, int64_t rate,
                  int wake_fd)
{
    int64_t *whole = calloc((size_t)count, sizeof *whole);
    int64_t *after = calloc((size_t)count, sizeof *after);
    const int64_t begin_us = bench_now_us();
    bench_must(whole != NULL && after != NULL, "no memory");
    for (int64_t i = 0; i < count; i++) {
        wait_until(begin_us + i * 1000000 / rate);
        whole[i] = bench_now_us();
        append(r, i, 0);
        after[i] = bench_now_us();
        /* SQLite has no notifications. */
        bench_must(r->pg != NULL || write(wake_fd, "w", 1) == 1, "cannot wake");
    }
    await_all(handled_us, count);
    for (int64_t i = 0; i < count; i++) {
        whole[i] = handled_us[i] - whole[i];
        after[i] = handled_us[i] > after[i] ? handled_us[i] - after[i] : 0;
    }
    (void)printf("{\"events\":%" PRId64 ",", count);
    print_times("whole_", whole + LATENCY_WARM, count - LATENCY_WARM, ",");
    print_times("", after + LATENCY_WARM, count - LATENCY_WARM, "}\n");
    free(whole);
    free(after);
}

static void latency(int argc, char **argv)
{
    raw r = { 0 };
    const char *url = bench_text(argc, argv, "url", "raw.db");
    const int64_t count = bench_number(argc, argv, "count", 1000) + LATENCY_WARM;
    int wake_ends[2], ready_ends[2], status = 0;
    char byte;
    _Atomic int64_t *handled_us = mmap(NULL, (size_t)count * sizeof *handled_us,
                                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bench_must(handled_us != MAP_FAILED && pipe(wake_ends) == 0 && pipe(ready_ends) == 0,
               "cannot start");
    const pid_t pid = fork(); /* before there is a connection */
    bench_must(pid >= 0, "no process");
    if (pid == 0) {
        (void)close(wake_ends[1]);
        handle_elsewhere(url, handled_us, wake_ends[0], ready_ends[1]);
        exit(0);
    }
    (void)close(ready_ends[1]);
    (void)close(wake_ends[0]);
    bench_must(read(ready_ends[0], &byte, 1) == 1, "the other process does not start");
    open_raw(&r, url, 0);
    offer(&r, handled_us, count, bench_number(argc, argv, "rate", 100), wake_ends[1]);
    (void)close(wake_ends[1]);
    bench_must(waitpid(pid, &status, 0) == pid && status == 0, "the other process failed");
}

int main(int argc, char **argv)
{
    bench_must(argc > 1, "usage: see raw_engine.c");
    if (strcmp(argv[1], "fill") == 0) {
        fill(argc, argv);
    } else if (strcmp(argv[1], "drain") == 0) {
        drain(argc, argv);
    } else {
        bench_must(strcmp(argv[1], "latency") == 0, "usage: see raw_engine.c");
        latency(argc, argv);
    }
    return 0; /* what is open ends with the process */
}
