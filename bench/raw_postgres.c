/* raw_postgres.c - the reference for PostgreSQL: the least code that does the same durable work.
 *
 *     raw_postgres init --url CONNINFO                          an empty schema "raw"
 *     raw_postgres bare --url CONNINFO --count N                N INSERTs, one to a transaction
 *     raw_postgres append --url CONNINFO --count N --batch B    B to a transaction, one statement,
 *                                                               versions checked
 *     raw_postgres many --url CONNINFO --count N --callers C    C connections, each with one call
 *                                                               at a time: shared lock, head row,
 *                                                               version check
 *     raw_postgres fill --url CONNINFO --count N                one stream of N events, to be read
 *     raw_postgres read --url CONNINFO                          reads it, by version, in one SELECT
 *
 * Statements are prepared, parameters and results binary. No keys, no categories, no validation.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS_MAX = 64,
    OID_INT8 = 20,
    OID_TEXT = 25,
    OID_JSON = 114,
    OID_INT8S = 1016,
    OID_TEXTS = 1009,
    OID_JSONS = 199
};

static const char schema[] =
    "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw;"
    "CREATE TABLE raw.events (id bigserial PRIMARY KEY, stream text COLLATE \"C\" NOT NULL,"
    " version bigint NOT NULL, name text NOT NULL, data json NOT NULL, meta json NOT NULL,"
    " created timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (stream, version));"
    "CREATE TABLE raw.streams (name text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL)"
    " WITH (fillfactor = 70);"
    "CREATE FUNCTION raw.append(s text, expected bigint, n text, d json, m json) RETURNS bigint"
    " LANGUAGE plpgsql AS $$ DECLARE head bigint; position bigint; BEGIN"
    "  PERFORM pg_advisory_xact_lock_shared(1, 1);"
    "  SELECT version INTO head FROM raw.streams WHERE name = s FOR NO KEY UPDATE;"
    "  IF NOT FOUND THEN INSERT INTO raw.streams VALUES (s, -1); head := -1; END IF;"
    "  IF head <> expected THEN RETURN -1; END IF;"
    "  INSERT INTO raw.events (stream, version, name, data, meta)"
    "   VALUES (s, head + 1, n, d, m) RETURNING id INTO position;"
    "  UPDATE raw.streams SET version = head + 1 WHERE name = s;"
    "  RETURN position; END $$;";

static const char insert_bare[] = "INSERT INTO raw.events (stream, version, name, data, meta)"
                                  " VALUES ($1, $2, $3, $4, $5)";
static const char insert_batch[] =
    "INSERT INTO raw.events (stream, version, name, data, meta)"
    " SELECT e.stream, e.version, e.name, e.data, e.meta"
    " FROM unnest($1, $2, $3, $4, $5) AS e (stream, version, name, data, meta)"
    " WHERE e.version = 1 + coalesce((SELECT max(x.version) FROM raw.events AS x"
    "                                  WHERE x.stream = e.stream), -1)";
static const char insert_checked[] = "SELECT raw.append($1, $2, $3, $4, $5)";

static const Oid types_one[] = { OID_TEXT, OID_INT8, OID_TEXT, OID_JSON, OID_JSON };
static const Oid types_many[] = { OID_TEXTS, OID_INT8S, OID_TEXTS, OID_JSONS, OID_JSONS };

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

/* One event; the affected rows or the function's answer say whether it was written. */
static void append_one(PGconn *c, const char *stream, size_t stream_len, int64_t version,
                       int64_t number, int checked)
{
    char data[BENCH_DATA_BYTES];
    const size_t data_len = bench_data(data, number);
    const uint64_t big = htobe64((uint64_t)version);
    const char *values[] = { stream, (const char *)&big, "OrderPlaced", data, bench_meta };
    const int lengths[] = { (int)stream_len, 8, 11, (int)data_len, (int)strlen(bench_meta) };
    const int formats[] = { 1, 1, 1, 1, 1 };
    PGresult *r = PQexecPrepared(c, "s", 5, values, lengths, formats, 1);
    must(c, r);
    if (checked) {
        uint64_t id;
        memcpy(&id, PQgetvalue(r, 0, 0), sizeof id);
        bench_must((int64_t)be64toh(id) > 0, "a version is not as expected");
    }
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

static void append_batch(PGconn *c, array arrays[5], int64_t batch)
{
    const char *values[5];
    int lengths[5];
    const int formats[] = { 1, 1, 1, 1, 1 };
    for (int i = 0; i < 5; i++) {
        array_end(&arrays[i]);
        values[i] = arrays[i].bytes;
        lengths[i] = (int)arrays[i].len;
    }
    PGresult *r = PQexecPrepared(c, "s", 5, values, lengths, formats, 1);
    must(c, r);
    bench_must(atoll(PQcmdTuples(r)) == batch, "a version is not as expected");
    PQclear(r);
}

static void append_many(PGconn *c, int64_t count, int64_t batch)
{
    static array arrays[5];
    static const Oid elements[] = { OID_TEXT, OID_INT8, OID_TEXT, OID_JSON, OID_JSON };
    char name[BENCH_NAME_BYTES], data[BENCH_DATA_BYTES];
    prepare(c, insert_batch, types_many);
    for (int64_t done = 0; done < count; done += batch) {
        for (int i = 0; i < 5; i++) {
            array_reset(&arrays[i], elements[i]);
        }
        for (int64_t i = done; i < done + batch; i++) {
            const size_t len = bench_stream(name, i);
            const uint64_t version = htobe64((uint64_t)(i / BENCH_STREAMS));
            push(&arrays[0], name, len);
            push(&arrays[1], &version, sizeof version);
            push(&arrays[2], "OrderPlaced", 11);
            push(&arrays[3], data, bench_data(data, i));
            push(&arrays[4], bench_meta, strlen(bench_meta));
        }
        append_batch(c, arrays, batch);
    }
}

static void fill(PGconn *c, int64_t count)
{
    PGresult *r = PQexec(c, "BEGIN");
    must(c, r);
    PQclear(r);
    prepare(c, insert_bare, types_one);
    for (int64_t i = 0; i < count; i++) {
        append_one(c, "long-1", 6, i, i, 0);
    }
    r = PQexec(c, "COMMIT");
    must(c, r);
    PQclear(r);
}

static void bare(PGconn *c, int64_t count)
{
    char name[BENCH_NAME_BYTES];
    prepare(c, insert_bare, types_one);
    for (int64_t i = 0; i < count; i++) {
        const size_t len = bench_stream(name, i);
        append_one(c, name, len, i / BENCH_STREAMS, i, 0);
    }
}

typedef struct caller {
    const char *url;
    int64_t number, callers, count;
} caller;

static void *caller_main(void *arg)
{
    const caller *me = arg;
    char name[BENCH_NAME_BYTES];
    PGconn *c = connect_to(me->url);
    const int64_t own = (BENCH_STREAMS - me->number + me->callers - 1) / me->callers;
    prepare(c, insert_checked, types_one);
    for (int64_t i = 0; i < me->count; i++) {
        const size_t len = bench_stream(name, me->number + i % own * me->callers);
        append_one(c, name, len, i / own - 1, i, 1);
    }
    PQfinish(c);
    return NULL;
}

static int64_t many(const char *url, int64_t count, int64_t callers)
{
    pthread_t threads[CONNECTIONS_MAX];
    caller list[CONNECTIONS_MAX];
    bench_must(callers >= 1 && callers <= CONNECTIONS_MAX, "1 to 64 callers");
    for (int64_t i = 0; i < callers; i++) {
        list[i] = (caller){ .url = url, .number = i, .callers = callers, .count = count / callers };
        bench_must(pthread_create(&threads[i], NULL, caller_main, &list[i]) == 0, "no thread");
    }
    for (int64_t i = 0; i < callers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return count / callers * callers;
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

int main(int argc, char **argv)
{
    bench_must(argc > 1, "usage: see raw_postgres.c");
    const char *verb = argv[1];
    const char *url = bench_text(argc, argv, "url", "");
    int64_t count = bench_number(argc, argv, "count", 10000);
    PGconn *c = connect_to(url);
    if (strcmp(verb, "init") == 0) {
        PGresult *r = PQexec(c, schema);
        must(c, r);
        PQclear(r);
        PQfinish(c);
        return 0;
    }
    const bench_timer t = bench_start();
    if (strcmp(verb, "bare") == 0) {
        bare(c, count);
    } else if (strcmp(verb, "append") == 0) {
        append_many(c, count, bench_number(argc, argv, "batch", 16));
    } else if (strcmp(verb, "many") == 0) {
        count = many(url, count, bench_number(argc, argv, "callers", 16));
    } else if (strcmp(verb, "fill") == 0) {
        fill(c, count);
    } else {
        count = read_all(c);
    }
    bench_report(t, count);
    PQfinish(c);
    return 0;
}
