/* raw_postgres.c - the reference for PostgreSQL: the least code that does the same durable work.
 *
 *     raw_postgres init --url CONNINFO                          an empty schema "raw"
 *     raw_postgres append --url CONNINFO --statement S, and the load of load.h
 *                                                               one transaction per append, one
 *                                                               connection per caller
 *     raw_postgres group --url CONNINFO --writers W, and the load of load.h
 *                                                               group commit over W connections
 *                                                               (raw_group.h): one statement per
 *                                                               transaction, versions checked
 *     raw_postgres fill --url CONNINFO --count N                one stream of N events, to be read
 *     raw_postgres read --url CONNINFO                          reads it, by version, in one SELECT
 *
 * S names one of `statements` below: a bare INSERT, a version check under a shared lock, or a
 * function of a peer whose schema exists. All are prepared and called in the same way. Raw has no
 * keys, no categories and no validation.
 */
#include "bench.h"
#include "raw_group.h"

#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OID_INT8 = 20,
    OID_TEXT = 25,
    OID_JSON = 114,
    OID_JSONB = 3802,
    OID_INT8S = 1016,
    OID_TEXTS = 1009,
    OID_JSONS = 199
};

static const char schema[] =
    "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw;"
    "CREATE TABLE raw.events (id bigserial PRIMARY KEY, stream text COLLATE \"C\" NOT NULL,"
    " version bigint NOT NULL, name text NOT NULL, data json NOT NULL, meta json NOT NULL,"
    " created timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (stream, version));"
    "CREATE FUNCTION raw.append(s text, v bigint, n text, d json, m json) RETURNS bigint"
    " LANGUAGE plpgsql AS $$ DECLARE head bigint; position bigint; BEGIN"
    "  PERFORM pg_advisory_xact_lock_shared(1, 1);"
    "  SELECT version INTO head FROM raw.events WHERE stream = s ORDER BY version DESC LIMIT 1;"
    "  IF coalesce(head, -1) + 1 <> v THEN RAISE EXCEPTION 'a version is not as expected'; END IF;"
    "  INSERT INTO raw.events (stream, version, name, data, meta) VALUES (s, v, n, d, m)"
    "   RETURNING id INTO position;"
    "  RETURN position; END $$;";

/* $1 stream, $2 version, $3 name, $4 data, $5 meta. */
static const struct statement {
    const char *name, *sql;
    Oid json;
} statements[] = {
    { "bare",
      "INSERT INTO raw.events (stream, version, name, data, meta) VALUES ($1, $2, $3, $4, $5)",
      OID_JSON },
    { "checked", "SELECT raw.append($1, $2, $3, $4, $5)", OID_JSON },
    { "pgmq", "SELECT * FROM pgmq.send('jobs', $4)", OID_JSONB },
    { "message-db",
      "SELECT write_message(CAST(gen_random_uuid() AS varchar), $1, $3, $4, $5, $2 - 1)",
      OID_JSONB },
};
static const char insert_group[] =
    "INSERT INTO raw.events (stream, version, name, data, meta)"
    " SELECT e.stream, e.version, e.name, e.data, e.meta"
    " FROM unnest($1, $2, $3, $4, $5) AS e (stream, version, name, data, meta)"
    " WHERE e.version = 1 + coalesce((SELECT max(x.version) FROM raw.events AS x"
    "                                  WHERE x.stream = e.stream), -1)";

static PGconn *connect_to(const char *url)
{
    PGconn *c = PQconnectdb(url);
    bench_must(PQstatus(c) == CONNECTION_OK, PQerrorMessage(c));
    return c;
}

static void must(PGconn *c, PGresult *r)
{
    const ExecStatusType status = PQresultStatus(r);
    bench_must(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK, PQerrorMessage(c));
}

static void prepare(PGconn *c, const char *sql, const Oid *types)
{
    PGresult *r = PQprepare(c, "s", sql, 5, types);
    must(c, r);
    PQclear(r);
}

static void *statement_open(const char *url, const char *name)
{
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        const struct statement *s = &statements[i];
        if (strcmp(name, s->name) == 0) {
            PGconn *c = connect_to(url);
            prepare(c, s->sql, (const Oid[]){ OID_TEXT, OID_INT8, OID_TEXT, s->json, s->json });
            return c;
        }
    }
    bench_must(0, "no such statement");
    return NULL;
}

static void append_one(void *caller, const bench_event *e)
{
    PGconn *c = caller;
    char data[BENCH_DATA_BYTES];
    const uint64_t big = htobe64((uint64_t)e->version);
    const char *values[] = { e->stream, (const char *)&big, "OrderPlaced", data, bench_meta };
    const int lengths[] = { 0, 8, 0, 0, 0 };
    const int formats[] = { 0, 1, 0, 0, 0 };
    (void)bench_data(data, e->number);
    PGresult *r = PQexecPrepared(c, "s", 5, values, lengths, formats, 1);
    must(c, r);
    bench_must(strcmp(PQcmdTuples(r), "1") == 0, "an event was not written");
    PQclear(r);
}

typedef struct array {
    char *bytes;
    size_t len, capacity;
    uint32_t count;
} array;

static void add(array *a, const void *ptr, size_t len)
{
    while (a->len + len > a->capacity) {
        a->capacity = a->capacity == 0 ? 65536 : a->capacity * 2;
        a->bytes = realloc(a->bytes, a->capacity);
        bench_must(a->bytes != NULL, "no memory");
    }
    memcpy(a->bytes + a->len, ptr, len);
    a->len += len;
}

static void array_reset(array *a, Oid type)
{
    const uint32_t header[] = { htonl(1), 0, htonl(type), 0, htonl(1) };
    a->len = 0;
    a->count = 0;
    add(a, header, sizeof header);
}

static void push(array *a, const void *ptr, size_t len)
{
    const uint32_t big = htonl((uint32_t)len);
    add(a, &big, sizeof big);
    add(a, ptr, len);
    a->count++;
}

static void array_end(array *a)
{
    const uint32_t big = htonl(a->count);
    memcpy(a->bytes + 12, &big, sizeof big);
}

typedef struct writer {
    PGconn *c;
    array arrays[5];
} writer;

static void write_group(void *ctx, const group_item *items, int64_t count)
{
    static const Oid elements[] = { OID_TEXT, OID_INT8, OID_TEXT, OID_JSON, OID_JSON };
    static const int formats[] = { 1, 1, 1, 1, 1 };
    writer *w = ctx;
    array *arrays = w->arrays;
    char data[BENCH_DATA_BYTES];
    const char *values[5];
    int lengths[5];
    for (int i = 0; i < 5; i++) {
        array_reset(&arrays[i], elements[i]);
    }
    for (const group_item *item = items; item != NULL; item = item->next) {
        const bench_event *e = item->event;
        const uint64_t version = htobe64((uint64_t)e->version);
        push(&arrays[0], e->stream, e->stream_len);
        push(&arrays[1], &version, sizeof version);
        push(&arrays[2], "OrderPlaced", 11);
        push(&arrays[3], data, bench_data(data, e->number));
        push(&arrays[4], bench_meta, strlen(bench_meta));
    }
    for (int i = 0; i < 5; i++) {
        array_end(&arrays[i]);
        values[i] = arrays[i].bytes;
        lengths[i] = (int)arrays[i].len;
    }
    PGresult *r = PQexecPrepared(w->c, "s", 5, values, lengths, formats, 1);
    must(w->c, r);
    bench_must(atoll(PQcmdTuples(r)) == count, "a version is not as expected");
    PQclear(r);
}

static void group_append(int argc, char **argv, const char *url)
{
    static const Oid types[] = { OID_TEXTS, OID_INT8S, OID_TEXTS, OID_JSONS, OID_JSONS };
    static writer writers[GROUP_WRITERS_MAX];
    void *list[GROUP_WRITERS_MAX];
    const int64_t count = bench_number(argc, argv, "writers", 1);
    bench_must(count >= 1 && count <= GROUP_WRITERS_MAX, "1 to 4 writers");
    for (int64_t i = 0; i < count; i++) {
        writers[i].c = connect_to(url);
        prepare(writers[i].c, insert_group, types);
        list[i] = &writers[i];
    }
    const int64_t callers = bench_number(argc, argv, "callers", 1);
    group_run(argc, argv, write_group, list, count, (callers + count - 1) / count);
}

static void fill(const char *url, int64_t count)
{
    PGconn *c = statement_open(url, "bare");
    PGresult *r = PQexec(c, "BEGIN");
    must(c, r);
    PQclear(r);
    for (int64_t i = 0; i < count; i++) {
        append_one(c, &(bench_event){ .stream = "long-1", .version = i, .number = i });
    }
    r = PQexec(c, "COMMIT");
    must(c, r);
    PQclear(r);
    PQfinish(c);
}

static int64_t read_all(PGconn *c)
{
    int64_t bytes = 0;
    PGresult *r = PQexecParams(c,
                               "SELECT id, version, created, name, meta, data FROM raw.events"
                               " WHERE stream = 'long-1' ORDER BY version",
                               0, NULL, NULL, NULL, NULL, 1);
    must(c, r);
    const int count = PQntuples(r);
    for (int i = 0; i < count; i++) {
        uint64_t version;
        memcpy(&version, PQgetvalue(r, i, 1), sizeof version);
        bench_must((int64_t)be64toh(version) == i, "a version is missing");
        for (int j = 3; j < 6; j++) {
            bytes += PQgetlength(r, i, j);
        }
    }
    bench_must(bytes > count * 200, "the events are too small");
    PQclear(r);
    return count;
}

typedef struct target {
    const char *url, *statement;
} target;

static void *caller_open(void *ctx)
{
    const target *t = ctx;
    return statement_open(t->url, t->statement);
}

static void caller_close(void *caller)
{
    PQfinish(caller);
}

int main(int argc, char **argv)
{
    static const bench_side side = { .open = caller_open,
                                     .append = append_one,
                                     .close = caller_close };
    bench_must(argc > 1, "usage: see raw_postgres.c");
    const char *verb = argv[1];
    target t = { .url = bench_text(argc, argv, "url", ""),
                 .statement = bench_text(argc, argv, "statement", "bare") };
    if (strcmp(verb, "append") == 0) {
        bench_load_run(argc, argv, &side, &t);
    } else if (strcmp(verb, "group") == 0) {
        group_append(argc, argv, t.url);
    } else if (strcmp(verb, "fill") == 0) {
        const int64_t count = bench_number(argc, argv, "count", 10000);
        const bench_timer started = bench_start();
        fill(t.url, count);
        bench_report(started, count);
    } else {
        PGconn *c = connect_to(t.url);
        if (strcmp(verb, "init") == 0) {
            PGresult *r = PQexec(c, schema);
            must(c, r);
            PQclear(r);
        } else {
            const bench_timer started = bench_start();
            bench_report(started, read_all(c));
        }
        PQfinish(c);
    }
    return 0; /* what is open ends with the process */
}
