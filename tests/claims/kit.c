/* kit.c - see kit.h. */
#include "kit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SQL_BYTES = 64 * 1024, POLL_US = 2000, CASES_MAX = 256 };

static kit_kind kind_now;
static claim_path path_now;

/* ---- plain SQL ---------------------------------------------------------------------------- */

/* Text that grows up to the size of an answer. */
typedef struct text {
    char *bytes;
    size_t len, room;
} text;

static void text_add(text *t, const char *part)
{
    const size_t len = strlen(part);
    assert_true(t->len + len < t->room);
    memcpy(t->bytes + t->len, part, len + 1);
    t->len += len;
}

static const char *server(void)
{
    const char *url = getenv("WEIR_TEST_POSTGRES");
    if (url == NULL || url[0] == '\0') {
        fprintf(stderr, "WEIR_TEST_POSTGRES is not set: run this by tests/postgres/with-server\n");
        exit(2);
    }
    return url;
}

static PGconn *connect_now(void)
{
    PGconn *conn = PQconnectdb(server());
    if (PQstatus(conn) != CONNECTION_OK) {
        fail_msg("could not connect to the test's server: %s", PQerrorMessage(conn));
    }
    return conn;
}

PGconn *kit_connect(kit *k)
{
    assert_true(k->conns_count < KIT_SESSIONS_MAX);
    PGconn *conn = connect_now();
    k->conns[k->conns_count++] = conn;
    return conn;
}

static PGresult *pg_run(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    const ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY) {
        print_error("%s  by: %s\n", PQerrorMessage(conn), sql);
        PQclear(result);
        fail();
    }
    return result;
}

void kit_pg(PGconn *conn, const char *sql)
{
    PQclear(pg_run(conn, sql));
}

static void run(kit *k, const char *sql)
{
    char *message = NULL;
    if (k->kind == KIT_POSTGRES) {
        kit_pg(k->pg, sql);
    } else if (sqlite3_exec(k->lite, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s\n  by: %s", message, sql);
    }
}

void kit_exec(kit *k, const char *format, ...)
{
    static char sql[SQL_BYTES];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    assert_true(len >= 0 && (size_t)len < sizeof sql);
    run(k, sql);
}

void kit_exec_each(kit *k, const char *postgres, const char *sqlite)
{
    const char *sql = k->kind == KIT_POSTGRES ? postgres : sqlite;
    if (sql != NULL) {
        run(k, sql);
    }
}

static void pg_rows(kit *k, const char *sql, text *out)
{
    PGresult *r = pg_run(k->pg, sql);
    for (int row = 0; row < PQntuples(r); row++) {
        for (int column = 0; column < PQnfields(r); column++) {
            text_add(out, column > 0 ? " " : row > 0 ? "," : "");
            text_add(out, PQgetisnull(r, row, column) ? "-" : PQgetvalue(r, row, column));
        }
    }
    PQclear(r);
}

static void lite_rows(kit *k, const char *sql, text *out)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(k->lite, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fail_msg("%s\n  by: %s", sqlite3_errmsg(k->lite), sql);
    }
    int rc = sqlite3_step(stmt);
    for (int row = 0; rc == SQLITE_ROW; row++) {
        for (int column = 0; column < sqlite3_column_count(stmt); column++) {
            const unsigned char *cell = sqlite3_column_text(stmt, column);
            text_add(out, column > 0 ? " " : row > 0 ? "," : "");
            text_add(out, cell == NULL ? "-" : (const char *)cell);
        }
        rc = sqlite3_step(stmt);
    }
    if (rc != SQLITE_DONE) {
        fail_msg("%s\n  by: %s", sqlite3_errmsg(k->lite), sql);
    }
    sqlite3_finalize(stmt);
}

static const char *rows_of(kit *k, const char *format, va_list args) WEIR_PRINTF(2, 0);
static const char *rows_of(kit *k, const char *format, va_list args)
{
    static char sql[SQL_BYTES];
    static char bytes[KIT_TEXT_BYTES];
    text out = { .bytes = bytes, .room = sizeof bytes };
    const int len = vsnprintf(sql, sizeof sql, format, args);
    assert_true(len >= 0 && (size_t)len < sizeof sql);
    bytes[0] = '\0';
    if (k->kind == KIT_POSTGRES) {
        pg_rows(k, sql, &out);
    } else {
        lite_rows(k, sql, &out);
    }
    return bytes;
}

const char *kit_rows(kit *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *rows = rows_of(k, format, args);
    va_end(args);
    return rows;
}

int64_t kit_number(kit *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *rows = rows_of(k, format, args);
    va_end(args);
    char *end = NULL;
    const int64_t number = strtoll(rows, &end, 10);
    if (end == rows || *end != '\0') {
        fail_msg("\"%s\" is no number, by: %s", rows, format);
    }
    return number;
}

void kit_await(kit *k, const char *wanted, const char *format, ...)
{
    const int64_t deadline = kit_mono_us() + KIT_PATIENCE;
    for (;;) {
        va_list args;
        va_start(args, format);
        const char *rows = rows_of(k, format, args);
        va_end(args);
        if (strcmp(rows, wanted) == 0) {
            return;
        }
        if (kit_mono_us() > deadline) {
            fail_msg("\"%s\" never became \"%s\", by: %s", rows, wanted, format);
        }
        usleep(POLL_US);
    }
}

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * KIT_SECOND + now.tv_nsec / 1000;
}

int64_t kit_mono_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

int64_t kit_now_us(kit *k)
{
    return k->kind == KIT_POSTGRES
               ? kit_number(k, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
               : clock_us(CLOCK_REALTIME);
}

void kit_jobs(kit *k, int count)
{
    const char *time = k->kind == KIT_POSTGRES ? "timestamptz" : "integer";
    kit_exec(k,
             "CREATE TABLE jobs (id %s PRIMARY KEY, status text NOT NULL DEFAULT 'pending', "
             "priority integer NOT NULL DEFAULT 0, kind text, claimed_by text, claimed_at %s, "
             "locked_until %s, fence bigint NOT NULL DEFAULT 0, attempts integer NOT NULL "
             "DEFAULT 0)",
             k->kind == KIT_POSTGRES ? "bigint" : "integer", time, time);
    kit_exec(k,
             "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO jobs (id) SELECT i FROM n WHERE i <= %d",
             count, count);
}

/* ---- claiming ----------------------------------------------------------------------------- */

static const claim_set set_claimed[] = {
    { .column = { .ptr = "status", .len = 6 },
      .value = { .kind = TABLE_TEXT, .text = { .ptr = "claimed", .len = 7 } } },
};

claim_request kit_request(const kit *k, int64_t limit)
{
    return (claim_request){
        .table = weir__str("jobs"),
        .where = weir__str("status = 'pending'"),
        .writes.set = set_claimed,
        .writes.set_count = 1,
        .limit = limit,
        .path = k->path,
    };
}

claim_request kit_lease(const kit *k, int64_t limit, const char *by, int64_t lease_us)
{
    claim_request r = kit_request(k, limit);
    r.by = weir__str(by);
    r.lease_us = lease_us;
    r.fence_column = weir__str("fence");
    r.attempts_column = weir__str("attempts");
    return r;
}

weir_status claimer_begin(claimer *c, table_db *db)
{
    c->err = (weir_error){ .size = sizeof c->err };
    return weir__table_session_open(db, &c->s, &c->err);
}

void claimer_end(claimer *c)
{
    weir__table_session_close(c->s);
    weir__table_result_free(&c->r);
    c->s = NULL;
}

claimer *kit_claimer(kit *k)
{
    claimer *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_true(k->claimers_count < KIT_SESSIONS_MAX);
    k->claimers[k->claimers_count++] = c;
    KIT_OK(c, claimer_begin(c, k->db));
    return c;
}

void kit_claimer_close(kit *k, claimer *c)
{
    for (size_t i = 0; i < k->claimers_count; i++) {
        if (k->claimers[i] == c) {
            k->claimers[i] = k->claimers[--k->claimers_count];
            claimer_end(c);
            free(c);
            return;
        }
    }
    fail_msg("not a claimer of this test");
}

void kit_claimer_renew(kit *k)
{
    kit_claimer_close(k, k->one);
    k->one = kit_claimer(k);
    if (k->kind == KIT_MEMORY) {
        k->lite = weir__table_native(k->one->s);
    }
}

weir_status claimer_try(claimer *c, const claim_request *request)
{
    return weir__claim_rows(c->s, request, &c->r, &c->err);
}

weir_status kit_try(kit *k, const claim_request *request)
{
    return claimer_try(k->one, request);
}

/* SIZE_MAX: there is no such column. */
static size_t column_of(const claimer *c, const char *name)
{
    size_t i = 0;
    while (i < c->r.columns_count && !weir__str_equal(c->r.names[i], weir__str(name))) {
        i++;
    }
    return i < c->r.columns_count ? i : SIZE_MAX;
}

const char *claimer_column(const claimer *c, const char *column)
{
    static char bytes[KIT_TEXT_BYTES];
    size_t at = 0;
    if (c->r.rows_count == 0) {
        return "";
    }
    const size_t index = column == NULL ? 0 : column_of(c, column);
    assert_true(index < c->r.columns_count);
    for (size_t row = 0; row < c->r.rows_count; row++) {
        const table_cell *cell = &c->r.cells[row * c->r.columns_count + index];
        assert_true(at + cell->text.len + 3 < sizeof bytes);
        at += (size_t)sprintf(bytes + at, "%s%.*s", row > 0 ? " " : "",
                              cell->null ? 1 : (int)cell->text.len,
                              cell->null ? "-" : cell->text.ptr);
    }
    return bytes;
}

const char *claimer_json(const claimer *c)
{
    static char bytes[KIT_TEXT_BYTES];
    weir_buffer out = { 0 };
    for (size_t i = 0; i < c->r.rows_count; i++) {
        assert_true(weir__table_row_json(&c->r, i, SIZE_MAX, &out));
    }
    assert_true(out.len < sizeof bytes);
    snprintf(bytes, sizeof bytes, "%.*s", (int)out.len, out.len == 0 ? "" : out.ptr);
    weir__buffer_free(&out);
    return bytes;
}

int64_t claimer_number(const claimer *c, size_t row, const char *column)
{
    int64_t number = INT64_MIN;
    const size_t index = column_of(c, column);
    if (row < c->r.rows_count && index != SIZE_MAX) {
        (void)weir__str_to_i64(c->r.cells[row * c->r.columns_count + index].text, &number);
    }
    return number;
}

const char *kit_claim_by(claimer *c, const claim_request *request)
{
    KIT_OK(c, claimer_try(c, request));
    return claimer_column(c, NULL);
}

const char *kit_claim(kit *k, const claim_request *request)
{
    return kit_claim_by(k->one, request);
}

finish_request kit_finish_request(finish_kind kind, const table_value *key, const char *by)
{
    return (finish_request){
        .table = weir__str("jobs"),
        .key = key,
        .key_count = 1,
        .kind = kind,
        .by = weir__str(by),
    };
}

static const claim_set set_done[] = {
    { .column = { .ptr = "status", .len = 6 },
      .value = { .kind = TABLE_TEXT, .text = { .ptr = "done", .len = 4 } } },
};

static weir_status finish(claimer *c, finish_request r)
{
    if (r.kind == FINISH_EXTEND) {
        r.lease_us = KIT_HOUR;
    } else {
        r.writes.set = set_done;
        r.writes.set_count = 1;
    }
    return weir__claim_finish(c->s, &r, &c->r, &c->err);
}

weir_status kit_finish(claimer *c, finish_kind kind, int64_t id, const char *by)
{
    const table_value key = { .kind = TABLE_INTEGER, .number = id };
    return finish(c, kit_finish_request(kind, &key, by));
}

weir_status kit_finish_fence(claimer *c, finish_kind kind, int64_t id, int64_t fence)
{
    const table_value key = { .kind = TABLE_INTEGER, .number = id };
    finish_request r = kit_finish_request(kind, &key, "");
    r.by = (weir_str){ 0 };
    r.has_fence = true;
    r.fence = fence;
    r.fence_column = weir__str("fence");
    return finish(c, r);
}

void kit_expect(const claimer *c, int32_t got, int32_t wanted, const char *call, const char *file,
                int line)
{
    if (got != wanted) {
        print_error("%s:%d: %s\n  gave %s, expected %s%s%s\n", file, line, call,
                    weir_status_text(got), weir_status_text(wanted),
                    got == WEIR_OK ? "" : "; last error: ", got == WEIR_OK ? "" : c->err.message);
        _fail(file, line);
    }
}

void kit_message(const claimer *c, const char *part)
{
    if (strstr(c->err.message, part) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", c->err.message, part);
    }
}

/* ---- many at once ------------------------------------------------------------------------- */

typedef struct runner {
    pthread_t thread;
    pthread_barrier_t *start;
    kit *k;
    int number;
    kit_thread_fn fn;
    void *ctx;
    const char *wrong;
} runner;

static void *run_one(void *ctx)
{
    runner *r = ctx;
    pthread_barrier_wait(r->start);
    r->wrong = r->fn(r->k, r->number, r->ctx);
    return NULL;
}

void kit_together(kit *k, int threads, kit_thread_fn fn, void *ctx)
{
    pthread_barrier_t start;
    runner *runners = calloc((size_t)threads, sizeof *runners);
    assert_non_null(runners);
    assert_int_equal(pthread_barrier_init(&start, NULL, (unsigned)threads), 0);
    for (int i = 0; i < threads; i++) {
        runners[i] = (runner){ .start = &start, .k = k, .number = i, .fn = fn, .ctx = ctx };
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_one, &runners[i]), 0);
    }
    int wrong = 0;
    for (int i = 0; i < threads; i++) {
        assert_int_equal(pthread_join(runners[i].thread, NULL), 0);
        if (runners[i].wrong != NULL) {
            print_error("thread %d: %s\n", i, runners[i].wrong);
            wrong++;
        }
    }
    pthread_barrier_destroy(&start);
    free(runners);
    assert_int_equal(wrong, 0);
}

/* ---- a clock that stands still ------------------------------------------------------------ */

/* SQLite asks its file system for the time. */
static sqlite3_vfs pinned;
static int64_t pinned_us;

static int pinned_now(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    *out = pinned_us / KIT_MS + INT64_C(210866760000000); /* the Julian day of 1970 */
    return SQLITE_OK;
}

static void unpin(void)
{
    if (pinned.zName != NULL) {
        sqlite3_vfs_unregister(&pinned);
        pinned = (sqlite3_vfs){ 0 };
    }
}

void kit_pin_clock(kit *k, int64_t us)
{
    if (k->kind == KIT_POSTGRES) {
        kit_exec(k,
                 "CREATE SCHEMA IF NOT EXISTS pinned; "
                 "CREATE OR REPLACE FUNCTION pinned.clock_timestamp() RETURNS timestamptz "
                 "LANGUAGE sql AS $$ SELECT timestamptz 'epoch' + interval '%" PRId64
                 " microseconds' $$; "
                 "ALTER DATABASE postgres SET search_path = pinned, pg_catalog, public",
                 us);
    } else if (pinned.zName == NULL) {
        pinned = *sqlite3_vfs_find(NULL);
        pinned.zName = "pinned";
        pinned.xCurrentTimeInt64 = pinned_now;
        assert_int_equal(sqlite3_vfs_register(&pinned, 1), SQLITE_OK);
    }
    pinned_us = us;
    if (k->kind != KIT_MEMORY) {
        kit_claimer_renew(k);
    }
}

/* ---- the fixture -------------------------------------------------------------------------- */

static void open_plain(kit *k)
{
    if (k->kind == KIT_POSTGRES) {
        k->pg = connect_now();
        kit_exec(k, "SET client_min_messages = warning; DROP SCHEMA IF EXISTS public CASCADE; "
                    "CREATE SCHEMA public; "
                    "DROP SCHEMA IF EXISTS pinned CASCADE; ALTER DATABASE postgres RESET ALL; "
                    "SET search_path = public");
        return;
    }
    snprintf(k->directory, sizeof k->directory, "/tmp/weir-claims-XXXXXX");
    assert_non_null(mkdtemp(k->directory));
    snprintf(k->file, sizeof k->file, "%s/a.db", k->directory);
    if (k->kind == KIT_SQLITE) {
        assert_int_equal(sqlite3_open(k->file, &k->lite), SQLITE_OK);
        assert_int_equal(sqlite3_busy_timeout(k->lite, (int)(KIT_PATIENCE / KIT_MS)), SQLITE_OK);
        kit_exec(k, "PRAGMA journal_mode = WAL");
    }
}

int kit_set_up(void **state)
{
    kit *k = calloc(1, sizeof *k);
    assert_non_null(k);
    *state = k;
    k->kind = kind_now;
    k->path = path_now;
    open_plain(k);
    if (k->kind == KIT_MEMORY) {
        snprintf(k->url, sizeof k->url, "memory:");
    } else if (k->kind == KIT_SQLITE) {
        snprintf(k->url, sizeof k->url, "sqlite:%s", k->file);
    } else {
        snprintf(k->url, sizeof k->url, "%s", server());
    }
    weir_error err = { .size = sizeof err };
    if (weir__table_open(&k->db, &(table_options){ .url = k->url }, &err) != WEIR_OK) {
        fail_msg("%s: %s", k->url, err.message);
    }
    k->one = kit_claimer(k);
    if (k->kind == KIT_MEMORY) {
        k->lite = weir__table_native(k->one->s);
    }
    return 0;
}

int kit_tear_down(void **state)
{
    kit *k = *state;
    for (size_t i = 0; i < k->workers_count; i++) {
        kit_worker_kill(k->workers[i]);
        free(k->workers[i]);
    }
    for (size_t i = 0; i < k->claimers_count; i++) {
        claimer_end(k->claimers[i]);
        free(k->claimers[i]);
    }
    weir__table_close(k->db);
    for (size_t i = 0; i < k->conns_count; i++) {
        PQfinish(k->conns[i]);
    }
    PQfinish(k->pg);
    if (k->kind == KIT_SQLITE) {
        sqlite3_close_v2(k->lite);
    }
    unpin();
    if (k->directory[0] != '\0') {
        char command[128];
        snprintf(command, sizeof command, "rm -rf %s", k->directory);
        assert_int_equal(system(command), 0);
    }
    free(k);
    return 0;
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s memory|sqlite|postgres fast|portable [PATTERN]\n", program);
    return 2;
}

int kit_main(int argc, char **argv, const kit_case *const *lists, const size_t *counts)
{
    static struct CMUnitTest tests[CASES_MAX];
    size_t count = 0;
    if (argc < 3) {
        return usage(argv[0]);
    }
    kind_now = strcmp(argv[1], "memory") == 0   ? KIT_MEMORY
               : strcmp(argv[1], "sqlite") == 0 ? KIT_SQLITE
                                                : KIT_POSTGRES;
    path_now = strcmp(argv[2], "portable") == 0 ? CLAIM_PATH_PORTABLE : CLAIM_PATH_FAST;
    for (size_t list = 0; lists[list] != NULL; list++) {
        for (size_t i = 0; i < counts[list]; i++) {
            const kit_case *one = &lists[list][i];
            if ((one->where & (int)kind_now) != 0 &&
                ((one->where & ONLY_FAST) == 0 || path_now == CLAIM_PATH_FAST)) {
                assert_true(count < CASES_MAX);
                tests[count++] = one->test;
            }
        }
    }
    if (argc > 3) {
        cmocka_set_test_filter(argv[3]);
    }
    return _cmocka_run_group_tests(argv[1], tests, count, NULL, NULL);
}
