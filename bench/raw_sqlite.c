/* raw_sqlite.c - the reference for SQLite: the least code that does the same durable work.
 *
 *     raw_sqlite append --path FILE, and the load of load.h    group commit (raw_group.h); with one
 *                                                              caller, one transaction per append
 *     raw_sqlite batch --path FILE --count N --batch B         one thread that has all N events in
 *                                                              hand, B to a transaction
 *     raw_sqlite fill --path FILE --count N                one stream of N events, to be read
 *     raw_sqlite read --path FILE                          reads it, by version
 *
 * Durable work means: the stream's version is looked up and compared with what the writer expects,
 * a unique index guards it, the commit is synced (WAL, synchronous=FULL). It has no categories, no
 * indexes by name, no keys, no validation, one process, and SQLite's own checkpoints.
 */
#include "bench.h"
#include "raw_group.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    "CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " version INTEGER NOT NULL) STRICT;"
    "CREATE TABLE events (id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, version INTEGER NOT "
    "NULL,"
    " created INTEGER NOT NULL, name TEXT NOT NULL, meta TEXT NOT NULL, data TEXT NOT NULL,"
    " UNIQUE (stream, version)) STRICT;";

typedef struct raw {
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *find, *create, *insert, *move;
} raw;

static sqlite3_stmt *prepare(raw *r, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bench_must(sqlite3_prepare_v3(r->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) ==
                   SQLITE_OK,
               sqlite3_errmsg(r->db));
    return stmt;
}

static void run(raw *r, sqlite3_stmt *stmt)
{
    bench_must(sqlite3_step(stmt) == SQLITE_DONE, sqlite3_errmsg(r->db));
    (void)sqlite3_reset(stmt);
}

static void open_db(raw *r, const char *path, int create)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    bench_must(sqlite3_open_v2(path, &r->db, flags, NULL) == SQLITE_OK, "cannot open the file");
    if (create) {
        bench_must(sqlite3_exec(r->db, schema, NULL, NULL, NULL) == SQLITE_OK,
                   sqlite3_errmsg(r->db));
    }
    r->begin = prepare(r, "BEGIN IMMEDIATE");
    r->commit = prepare(r, "COMMIT");
    r->find = prepare(r, "SELECT id, version FROM streams WHERE name = ?1");
    r->create = prepare(r, "INSERT INTO streams (name, version) VALUES (?1, -1)");
    r->insert = prepare(r, "INSERT INTO events (stream, version, created, name, meta, data)"
                           " VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
    r->move = prepare(r, "UPDATE streams SET version = ?2 WHERE id = ?1");
}

static void append(raw *r, const char *stream, size_t stream_len, int64_t expected, int64_t number)
{
    char data[BENCH_DATA_BYTES];
    const size_t data_len = bench_data(data, number);
    sqlite3_int64 id = 0, version = -1;
    sqlite3_bind_text(r->find, 1, stream, (int)stream_len, SQLITE_STATIC);
    if (sqlite3_step(r->find) == SQLITE_ROW) {
        id = sqlite3_column_int64(r->find, 0);
        version = sqlite3_column_int64(r->find, 1);
    } else {
        sqlite3_bind_text(r->create, 1, stream, (int)stream_len, SQLITE_STATIC);
        run(r, r->create);
        id = sqlite3_last_insert_rowid(r->db);
    }
    (void)sqlite3_reset(r->find);
    bench_must(version == expected, "a version is not as expected");
    sqlite3_bind_int64(r->insert, 1, id);
    sqlite3_bind_int64(r->insert, 2, version + 1);
    sqlite3_bind_int64(r->insert, 3, bench_now_us());
    sqlite3_bind_text(r->insert, 4, "OrderPlaced", -1, SQLITE_STATIC);
    sqlite3_bind_text(r->insert, 5, bench_meta, -1, SQLITE_STATIC);
    sqlite3_bind_text(r->insert, 6, data, (int)data_len, SQLITE_STATIC);
    run(r, r->insert);
    sqlite3_bind_int64(r->move, 1, id);
    sqlite3_bind_int64(r->move, 2, version + 1);
    run(r, r->move);
}

/* One thread at a time leads the group, so the connection needs no mutex. */
static void write_group(void *writer, const group_item *items, int64_t count)
{
    raw *r = writer;
    (void)count;
    run(r, r->begin);
    for (const group_item *item = items; item != NULL; item = item->next) {
        const bench_event *e = item->event;
        append(r, e->stream, e->stream_len, e->version - 1, e->number);
    }
    run(r, r->commit);
}

static void append_batches(raw *r, int64_t count, int64_t batch)
{
    char stream[BENCH_NAME_BYTES];
    for (int64_t i = 0; i < count; i++) {
        if (i % batch == 0) {
            run(r, r->begin);
        }
        const size_t len = bench_stream(stream, i);
        append(r, stream, len, i / BENCH_STREAMS - 1, i);
        if (i % batch == batch - 1 || i == count - 1) {
            run(r, r->commit);
        }
    }
}

static void fill(raw *r, int64_t count)
{
    run(r, r->begin);
    for (int64_t i = 0; i < count; i++) {
        append(r, "long-1", 6, i - 1, i);
    }
    run(r, r->commit);
}

static int64_t read_all(raw *r)
{
    int64_t count = 0, bytes = 0;
    sqlite3_stmt *stmt = prepare(r, "SELECT e.id, e.version, e.created, e.name, e.meta, e.data"
                                    " FROM events e JOIN streams s ON s.id = e.stream"
                                    " WHERE s.name = 'long-1' ORDER BY e.version");
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        bench_must(sqlite3_column_int64(stmt, 1) == count, "a version is missing");
        for (int i = 3; i < 6; i++) {
            bench_must(sqlite3_column_text(stmt, i) != NULL, "a text is missing");
            bytes += sqlite3_column_bytes(stmt, i);
        }
        count++;
    }
    (void)sqlite3_finalize(stmt);
    bench_must(bytes > count * 200, "the events are too small");
    return count;
}

int main(int argc, char **argv)
{
    raw r = { 0 };
    bench_must(argc > 1, "usage: see raw_sqlite.c");
    const char *path = bench_text(argc, argv, "path", "raw.db");
    const int64_t count = bench_number(argc, argv, "count", 10000);
    open_db(&r, path, strcmp(argv[1], "read") != 0);
    if (strcmp(argv[1], "append") == 0) {
        void *const writers[] = { &r };
        group_run(argc, argv, write_group, writers, 1, INT64_MAX);
        return 0;
    }
    const bench_timer t = bench_start();
    if (strcmp(argv[1], "batch") == 0) {
        append_batches(&r, count, bench_number(argc, argv, "batch", 512));
        bench_report(t, count);
    } else if (strcmp(argv[1], "fill") == 0) {
        fill(&r, count);
        bench_report(t, count);
    } else {
        bench_report(t, read_all(&r));
    }
    return 0; /* what is open ends with the process */
}
