/* append_storm_test.c - everybody appends in every way at once, and afterwards the log is what each
 * of them was told: chance, where append_test.c and contention_test.c have the worst moments on
 * purpose.
 *
 * Writers on handles of their own append to a few streams: one event, exact versions, many streams,
 * batches with idempotency keys, reserved keys, chains and dry runs in them, the same keys again,
 * closing; and in transactions of their own, with savepoints, held for a while, prepared or rolled
 * back. An owner inserts events with plain SQL, sessions are terminated, and readers follow. Each
 * writes down what it was told. In the end plain SQL, which knows nothing of how appending works,
 * compares that with the table. WEIR_SEED repeats a run as far as chance is ours;
 * WEIR_STORM_SECONDS makes it longer.
 */
#include "pg_support.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    WRITERS = 10,
    HOT = 4,       /* streams that everybody wants                       */
    STREAMS = 40,  /* streams in all                                     */
    CLOSING = 400, /* streams that are closed some time                  */
    KEYS = 300,    /* idempotency keys that several use                  */
    RESERVED = 8,  /* reserved keys                                      */
    WIDE_MAX = 110,
    BATCH_MAX = 12,
    SAID_MAX = 200000,
};

typedef enum answer { TOLD_YES, TOLD_NO, TOLD_NOTHING } answer;

/* What a writer was told of one append: of one of its streams, or as a whole. */
typedef struct said {
    int64_t n, last, id, events;
    answer told;
    char stream[16]; /* "": of the append as a whole */
} said;

typedef struct storm {
    pg_test *t;
    atomic_bool going;             /* writers go on                                       */
    atomic_bool reading;           /* readers do: until after the last writer has ended   */
    _Atomic int64_t seen[STREAMS]; /* about which version there is */
} storm;

typedef struct wide {
    store_append append;
    store_append_stream streams[WIDE_MAX];
    store_new_event events[WIDE_MAX];
    store_key_change change;
    weir_error err;
    char names[WIDE_MAX][16], data[96], key[16], reserved[16];
    int64_t n;
} wide;

typedef struct writer {
    storm *storm;
    int number;
    unsigned seed;
    weir_store *store;
    PGconn *conn;
    wide batch[BATCH_MAX];
    said *said;
    size_t said_count;
    int64_t next_n, acknowledged, kinds[8];
    char wrong[700];
} writer;

static int chance(writer *w, int below)
{
    return rand_r(&w->seed) % below;
}

/* ---- making -------------------------------------------------------------------------------- */

/* So that the log says whose it is. */
static void wide_data(const writer *w, wide *x)
{
    snprintf(x->data, sizeof x->data, "{\"w\":%d,\"n\":%" PRId64 "}", w->number, x->n);
    for (size_t i = 0; i < x->append.events_count; i++) {
        x->events[i].data = weir__str(x->data);
    }
}

static void wide_begin(writer *w, wide *x)
{
    *x = (wide){ .n = w->next_n++ };
    wide_data(w, x);
    x->append = (store_append){
        .streams = x->streams, .events = x->events, .err = &x->err, .deadline_us = 0
    };
}

static void wide_add(wide *x, const char *prefix, int number, int events)
{
    size_t at = x->append.streams_count;
    char name[16];
    snprintf(name, sizeof name, "%s%d", prefix, number);
    for (size_t i = 0; i < at; i++) {
        if (strcmp(x->names[i], name) == 0) {
            return;
        }
    }
    memcpy(x->names[at], name, sizeof name);
    x->streams[at] = (store_append_stream){ .name = weir__str(x->names[at]) };
    x->append.streams_count++;
    for (int i = 0; i < events && x->append.events_count < WIDE_MAX; i++) {
        x->events[x->append.events_count++] = (store_new_event){ .stream_index = (uint32_t)at,
                                                                 .name = weir__str("A"),
                                                                 .data = weir__str(x->data),
                                                                 .meta = weir__str("{}") };
    }
}

static int some_stream(writer *w)
{
    return chance(w, 2) == 0 ? chance(w, HOT) : chance(w, STREAMS);
}

/* To one to three streams, in any order; sometimes with a key that nobody else has, a reserved key,
 * an expectation. */
static void wide_random(writer *w, wide *x)
{
    wide_begin(w, x);
    for (int i = 1 + chance(w, 3); i > 0; i--) {
        wide_add(x, "s-", some_stream(w), 1 + chance(w, 3));
    }
    if (chance(w, 4) == 0) {
        snprintf(x->key, sizeof x->key, "k%d-%" PRId64, w->number, x->n);
        x->append.key = weir__str(x->key);
        memset(x->append.fingerprint, 1, sizeof x->append.fingerprint);
    }
    if (chance(w, 6) == 0) {
        snprintf(x->reserved, sizeof x->reserved, "r-%d", chance(w, RESERVED));
        x->change =
            (store_key_change){ .key = weir__str(x->reserved),
                                .change = chance(w, 2) == 0 ? WEIR_KEY_RESERVE : WEIR_KEY_RELEASE };
        /* So that the log says what was done with it. */
        snprintf(x->data, sizeof x->data, "{\"w\":%d,\"n\":%" PRId64 ",\"r\":\"%s\",\"c\":%d}",
                 w->number, x->n, x->reserved, x->change.change);
        for (size_t i = 0; i < x->append.events_count; i++) {
            x->events[i].data = weir__str(x->data);
        }
        x->append.key_changes = &x->change;
        x->append.key_changes_count = 1;
    }
    if (chance(w, 5) == 0) {
        const int number = atoi(x->names[0] + 2);
        x->streams[0].expect = WEIR_EXPECT_EXACT;
        x->streams[0].version = w->storm->seen[number];
    }
}

/* ---- telling ------------------------------------------------------------------------------- */

static void wrong(writer *w, const char *what, const weir_error *err)
{
    if (w->wrong[0] == '\0') {
        snprintf(w->wrong, sizeof w->wrong, "%s: %s", what, err->message);
    }
}

static void say(writer *w, const wide *x, answer told)
{
    for (size_t i = 0; i <= x->append.streams_count && w->said_count < SAID_MAX; i++) {
        said *s = &w->said[w->said_count];
        *s = (said){ .n = x->n, .told = told, .events = (int64_t)x->append.events_count };
        if (i < x->append.streams_count) {
            const store_append_stream *stream = &x->streams[i];
            if (told != TOLD_YES) {
                continue;
            }
            memcpy(s->stream, x->names[i], sizeof s->stream);
            s->last = stream->last;
            s->id = stream->id;
            s->events = stream->last - stream->first + 1;
            if (x->names[i][0] == 's') {
                w->storm->seen[atoi(x->names[i] + 2)] = stream->last;
            }
        }
        w->said_count++;
    }
    w->acknowledged += told == TOLD_YES;
}

static bool is_unknown(weir_status status)
{
    return status == WEIR_EUNKNOWN || status == WEIR_EUNAVAILABLE;
}

/* What one append has come to. */
static void settle(writer *w, wide *x, weir_status status)
{
    bool expects = false;
    if (status == WEIR_OK) {
        status = x->append.status;
    }
    for (size_t i = 0; i < x->append.streams_count; i++) {
        expects = expects || x->streams[i].expect != WEIR_EXPECT_ANY;
    }
    if (status == WEIR_OK && (x->append.flags & STORE_APPEND_DRY_RUN) == 0) {
        say(w, x, TOLD_YES);
    } else if (is_unknown(status)) {
        say(w, x, TOLD_NOTHING);
    } else {
        say(w, x, TOLD_NO);
        const bool fair = status == WEIR_OK || status == WEIR_EBUSY || status == WEIR_EINFLIGHT ||
                          (status == WEIR_ECONFLICT && expects) ||
                          (status == WEIR_ETAKEN && x->append.key_changes_count > 0) ||
                          (status == WEIR_EMISUSE && (x->append.flags & STORE_APPEND_CHAIN) != 0) ||
                          (status == WEIR_ECLOSED && x->names[0][0] == 'c');
        if (!fair) {
            wrong(w, "refused", &x->err);
        }
    }
    if (status == WEIR_ECONFLICT && x->names[0][0] == 's') {
        w->storm->seen[atoi(x->names[0] + 2)] = x->err.actual;
    }
}

static void run_one(writer *w, wide *x)
{
    store_append *list[] = { &x->append };
    settle(w, x, w->store->log->append(w->store, list, 1, &x->err));
}

/* ---- ways to append ------------------------------------------------------------------------ */

/* As the committer does: nobody waits, and who is busy goes alone. */
static void run_batch(writer *w)
{
    store_append *list[BATCH_MAX];
    weir_error err = { 0 };
    const int count = 2 + chance(w, BATCH_MAX - 2);
    const int kind = chance(w, 4);
    for (int i = 0; i < count; i++) {
        wide *x = &w->batch[i];
        wide_random(w, x);
        if (kind != 0) { /* what is judged at once */
            x->append.key.len = 0;
            x->append.key_changes_count = 0;
            wide_data(w, x);
        } else if (chance(w, 8) == 0) {
            x->append.flags |= STORE_APPEND_DRY_RUN;
        }
        if (kind == 1) {
            x->append.flags |= STORE_APPEND_CHAIN;
        }
        x->append.flags |= STORE_APPEND_NOWAIT;
        list[i] = &x->append;
    }
    const weir_status status = w->store->log->append(w->store, list, (size_t)count, &err);
    if (status != WEIR_OK && !is_unknown(status)) {
        wrong(w, "batch", &err);
    }
    for (int i = 0; i < count; i++) {
        wide *x = &w->batch[i];
        x->append.flags &= ~(uint32_t)STORE_APPEND_NOWAIT;
        if (status == WEIR_OK && x->append.status == WEIR_EBUSY && x->append.alone) {
            run_one(w, x);
        } else {
            settle(w, x, status);
        }
    }
}

/* A key that others use with the same content: whoever comes first writes it. */
static void run_shared_key(writer *w)
{
    wide *x = &w->batch[0];
    wide_begin(w, x);
    const int number = chance(w, KEYS);
    snprintf(x->data, sizeof x->data, "{\"key\":%d}", number);
    snprintf(x->key, sizeof x->key, "shared-%d", number);
    wide_add(x, "s-", number % STREAMS, 1);
    wide_add(x, "s-", number % HOT, 1);
    x->append.key = weir__str(x->key);
    memset(x->append.fingerprint, 2, sizeof x->append.fingerprint);
    store_append *list[] = { &x->append };
    const weir_status status = w->store->log->append(w->store, list, 1, &x->err);
    if (status == WEIR_OK && x->append.status != WEIR_OK && x->append.status != WEIR_EBUSY &&
        x->append.status != WEIR_EINFLIGHT) {
        wrong(w, "shared key", &x->err);
    }
}

static void run_closing(writer *w)
{
    wide *x = &w->batch[0];
    wide_begin(w, x);
    wide_add(x, "c-", chance(w, CLOSING), 1);
    if (chance(w, 4) == 0) {
        x->events[0].name = weir__str("$closed");
        x->append.flags = STORE_APPEND_CLOSE | (chance(w, 2) == 0 ? STORE_APPEND_FORCE : 0);
        store_append *list[] = { &x->append };
        const weir_status status = w->store->log->append(w->store, list, 1, &x->err);
        if (status == WEIR_OK && x->append.status != WEIR_OK &&
            x->append.status != WEIR_ENOTFOUND && x->append.status != WEIR_EBUSY) {
            wrong(w, "closing", &x->err);
        }
        return;
    }
    run_one(w, x);
}

static void run_wide(writer *w)
{
    wide *x = &w->batch[0];
    wide_begin(w, x);
    if (chance(w, 4) == 0) { /* more than a batch has */
        for (int i = chance(w, 60) + 50; i > 0; i--) {
            wide_add(x, "m-", chance(w, 400), 1);
        }
    }
    for (int i = 2 + chance(w, 5); i > 0 && x->append.events_count < WIDE_MAX; i--) {
        wide_add(x, "s-", some_stream(w), 1);
    }
    run_one(w, x);
}

/* A transaction of the caller's own, in the order of names; what it was told counts once it has
 * committed. */
static void run_transaction(writer *w)
{
    const int count = 1 + chance(w, 3);
    int number = chance(w, 10);
    bool kept[3] = { false };
    bool fine = true;
    PGresult *result = NULL;
    if (PQstatus(w->conn) != CONNECTION_OK) {
        PQreset(w->conn);
    }
    PQclear(PQexec(w->conn, "BEGIN"));
    for (int i = 0; i < count && fine; i++) {
        wide *x = &w->batch[i];
        wide_begin(w, x);
        number += chance(w, 10);
        char name[8];
        snprintf(name, sizeof name, "s-%c", '0' + (char)(number % 10)); /* one digit: sorts */
        if (i > 0 && strcmp(name, w->batch[i - 1].names[0]) <= 0) {
            break;
        }
        wide_add(x, "s-", number % 10, 1 + chance(w, 2));
        const bool undone = chance(w, 4) == 0;
        if (undone) {
            PQclear(PQexec(w->conn, "SAVEPOINT s"));
        }
        const weir_status status = w->store->log->append_in(w->store, w->conn, &x->append, &x->err);
        fine = status == WEIR_OK && x->append.status == WEIR_OK;
        if (status == WEIR_OK && x->append.status != WEIR_OK) {
            wrong(w, "in a transaction", &x->err);
        }
        if (undone && fine) {
            result = PQexec(w->conn, "ROLLBACK TO s");
            fine = PQresultStatus(result) == PGRES_COMMAND_OK;
            PQclear(result);
        }
        kept[i] = fine && !undone;
    }
    if (chance(w, 3) == 0) {
        usleep((useconds_t)chance(w, 60000));
    }
    const int end = chance(w, 5);
    if (!fine || end == 0) {
        PQclear(PQexec(w->conn, "ROLLBACK"));
        return; /* told nothing, and a session that ends rolls back as well */
    }
    bool done = false;
    if (end == 1) {
        char sql[96];
        snprintf(sql, sizeof sql, "PREPARE TRANSACTION 'p%d-%d'", w->number, (int)w->next_n);
        result = PQexec(w->conn, sql);
        const bool prepared = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
        usleep((useconds_t)chance(w, 30000));
        snprintf(sql, sizeof sql, "COMMIT PREPARED 'p%d-%d'", w->number, (int)w->next_n);
        for (int i = 0; prepared && !done && i < 50; i++) {
            if (PQstatus(w->conn) != CONNECTION_OK) {
                PQreset(w->conn);
            }
            result = PQexec(w->conn, sql);
            done = PQresultStatus(result) == PGRES_COMMAND_OK ||
                   strcmp(PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL
                              ? ""
                              : PQresultErrorField(result, PG_DIAG_SQLSTATE),
                          "42704") == 0; /* it was done, and the answer was lost */
            PQclear(result);
        }
        if (prepared && !done) {
            snprintf(w->wrong, sizeof w->wrong, "a prepared transaction is left behind");
        }
    } else {
        result = PQexec(w->conn, "COMMIT");
        done = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
    }
    for (int i = 0; i < count; i++) {
        if (kept[i]) {
            say(w, &w->batch[i], done ? TOLD_YES : TOLD_NOTHING);
        }
    }
}

static void *writer_run(void *arg)
{
    writer *w = arg;
    while (w->storm->going && w->wrong[0] == '\0' && w->said_count + 400 < SAID_MAX) {
        const int what = chance(w, 100);
        const int kind = what < 25   ? 0
                         : what < 35 ? 1
                         : what < 55 ? 2
                         : what < 75 ? 3
                         : what < 82 ? 4
                         : what < 90 ? 5
                                     : 6;
        wide *x = &w->batch[0];
        w->kinds[kind]++;
        switch (kind) {
        case 0: /* one event, any version */
            wide_begin(w, x);
            wide_add(x, "s-", some_stream(w), 1);
            run_one(w, x);
            break;
        case 1: { /* one event, the version that is there */
            const int number = chance(w, HOT);
            wide_begin(w, x);
            wide_add(x, "s-", number, 1);
            x->streams[0].expect = WEIR_EXPECT_EXACT;
            x->streams[0].version = w->storm->seen[number];
            run_one(w, x);
            break;
        }
        case 2:
            run_wide(w);
            break;
        case 3:
            run_batch(w);
            break;
        case 4:
            run_shared_key(w);
            break;
        case 5:
            run_closing(w);
            break;
        default:
            run_transaction(w);
            break;
        }
    }
    return NULL;
}

/* ---- others -------------------------------------------------------------------------------- */

typedef struct other {
    storm *storm;
    weir_store *store;
    PGconn *conn;
    unsigned seed;
    int64_t done, count, sum, last;
    char wrong[256];
} other;

/* The next version of a stream, by an owner who holds the store's lock and not the stream's. */
static void *owner_run(void *arg)
{
    other *o = arg;
    char sql[640];
    const char *schema = o->storm->t->schema;
    while (o->storm->going) {
        snprintf(
            sql, sizeof sql,
            "BEGIN; SELECT pg_advisory_xact_lock_shared(1465207122, %s.number());"
            "INSERT INTO %s.events SELECT nextval('%s.positions'), name, version + 1, 'Owner', "
            "'{}', '{}', now() FROM %s.streams WHERE name = 's-%d'",
            schema, schema, schema, schema, rand_r(&o->seed) % HOT);
        PGresult *result = PQexec(o->conn, sql);
        const bool fine = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
        usleep((useconds_t)(rand_r(&o->seed) % 20000));
        PQclear(PQexec(o->conn, fine ? "COMMIT" : "ROLLBACK"));
        o->done += fine;
        usleep((useconds_t)(rand_r(&o->seed) % 30000));
    }
    return NULL;
}

static void *killer_run(void *arg)
{
    other *o = arg;
    while (o->storm->going) {
        usleep(150000 + (useconds_t)(rand_r(&o->seed) % 200000));
        PGresult *result =
            PQexec(o->conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                            "application_name = 'weir-test' AND state <> 'idle' "
                            "ORDER BY random() LIMIT 1");
        o->done += PQntuples(result);
        PQclear(result);
    }
    return NULL;
}

/* Positions only grow, and nothing is passed over: count and sum are compared in the end. */
static void *reader_run(void *arg)
{
    other *o = arg;
    store_chunk chunk = { 0 };
    weir_error err = { 0 };
    bool last_look = false;
    for (;;) {
        const store_log_query q = { .after = o->last, .to = INT64_MAX, .limit = 1000 };
        const bool going = o->storm->reading;
        const weir_status status = o->store->log->read_log(o->store, &q, &chunk, &err);
        if (status != WEIR_OK && status != WEIR_EUNAVAILABLE) {
            snprintf(o->wrong, sizeof o->wrong, "%.200s", err.message);
            break;
        }
        for (size_t i = 0; status == WEIR_OK && i < chunk.events_count; i++) {
            if (chunk.events[i].id <= o->last) {
                snprintf(o->wrong, sizeof o->wrong, "%" PRId64 " after %" PRId64,
                         chunk.events[i].id, o->last);
            }
            o->last = chunk.events[i].id;
            o->count++;
            o->sum += o->last;
        }
        if (status == WEIR_OK) {
            o->last = chunk.scanned_to > o->last ? chunk.scanned_to : o->last;
        }
        if (!going && status == WEIR_OK && !chunk.more && !chunk.held) {
            if (last_look) {
                break;
            }
            last_look = true;
        }
        usleep(2000);
    }
    weir__chunk_free(&chunk);
    return NULL;
}

/* ---- the judge ----------------------------------------------------------------------------- */

static void said_load(pg_test *t, writer *writers)
{
    weir_buffer sql = { 0 };
    char row[160];
    test_exec(t->conn, "CREATE TEMP TABLE said (w integer, n bigint, stream text, last bigint, "
                       "id bigint, events bigint, told integer)");
    for (int i = 0; i < WRITERS; i++) {
        const writer *w = &writers[i];
        for (size_t k = 0; k < w->said_count; k++) {
            const said *s = &w->said[k];
            snprintf(row, sizeof row,
                     "%s(%d,%" PRId64 ",'%s',%" PRId64 ",%" PRId64 ",%" PRId64 ",%d)",
                     sql.len == 0 ? "INSERT INTO said VALUES " : ",", w->number, s->n, s->stream,
                     s->last, s->id, s->events, (int)s->told);
            assert_true(weir__buffer_add_text(&sql, row));
            if (sql.len > 500000 || k + 1 == w->said_count) {
                assert_true(weir__buffer_add(&sql, "", 1));
                PGresult *result = PQexec(t->conn, sql.ptr);
                assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
                PQclear(result);
                sql.len = 0;
            }
        }
    }
    weir__buffer_free(&sql);
    test_exec(
        t->conn,
        "CREATE TEMP TABLE log AS SELECT id, stream, version, name, created, "
        "(data->>'w')::integer AS w, (data->>'n')::bigint AS n, (data->>'key')::integer AS key, "
        "data->>'r' AS r, (data->>'c')::integer AS c FROM %s.events;"
        "CREATE INDEX ON log (w, n); CREATE INDEX ON log (stream, version); "
        "CREATE INDEX ON said (w, n); ANALYZE log; ANALYZE said",
        t->schema);
}

/* Each finds rows that must not be there. */
static const struct {
    const char *rule, *sql;
} rules[] = {
    { "versions have no gaps and grow with positions",
      "SELECT stream, version FROM (SELECT stream, version, row_number() OVER (PARTITION BY stream "
      "ORDER BY id) - 1 AS nth FROM log) AS x WHERE version <> nth" },
    { "what was acknowledged is there, once, as it was said",
      "SELECT s.w, s.n FROM said AS s WHERE told = 0 AND stream <> '' AND NOT EXISTS (SELECT FROM "
      "log "
      "AS e WHERE (e.stream, e.version, e.id, e.w, e.n) = (s.stream, s.last, s.id, s.w, s.n))" },
    { "all of it, and no more",
      "SELECT s.w, s.n FROM said AS s WHERE told = 0 AND stream = '' AND events <> "
      "(SELECT count(*) FROM log AS e WHERE (e.w, e.n) = (s.w, s.n))" },
    { "each stream got what was said",
      "SELECT s.w, s.n FROM said AS s WHERE told = 0 AND stream <> '' AND events <> (SELECT "
      "count(*) "
      "FROM log AS e WHERE (e.w, e.n, e.stream) = (s.w, s.n, s.stream))" },
    { "what was refused is not there",
      "SELECT s.w, s.n FROM said AS s WHERE told = 1 AND EXISTS (SELECT FROM log AS e "
      "WHERE (e.w, e.n) = (s.w, s.n))" },
    { "what nobody knows of is there as a whole, or not at all",
      "SELECT s.w, s.n FROM said AS s WHERE told = 2 AND stream = '' AND (SELECT count(*) FROM log "
      "AS e "
      "WHERE (e.w, e.n) = (s.w, s.n)) NOT IN (0, events)" },
    { "nobody was told nothing of what is there",
      "SELECT e.w, e.n FROM log AS e WHERE w IS NOT NULL AND stream NOT LIKE 'c-%%' AND NOT EXISTS "
      "(SELECT FROM said AS s WHERE (s.w, s.n) = (e.w, e.n))" },
    { "a key writes once",
      "SELECT key, count(*) FROM log WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 2 "
      "OR count(DISTINCT created) > 1" },
    { "a closed stream ends with its last event",
      "SELECT e.stream, e.version FROM log AS e WHERE name = '$closed' AND EXISTS (SELECT FROM log "
      "AS x "
      "WHERE x.stream = e.stream AND x.version > e.version)" },
};

/* Reserved keys by the log: nobody reserves or releases what is another stream's. */
static void reserved_check(pg_test *t)
{
    char owners[RESERVED][16] = { "" };
    PGresult *result = test_query(
        t->conn,
        "SELECT DISTINCT ON (min_id) r, c, first_stream FROM (SELECT r, c, min(id) AS min_id, "
        "(array_agg(stream ORDER BY id))[1] AS first_stream FROM log WHERE r IS NOT NULL "
        "GROUP BY w, n, r, c) AS x ORDER BY min_id");
    for (int i = 0; i < PQntuples(result); i++) {
        char *owner = owners[atoi(PQgetvalue(result, i, 0) + 2)];
        const char *stream = PQgetvalue(result, i, 2);
        if (owner[0] != '\0' && strcmp(owner, stream) != 0) {
            fail_msg("key %s of %s was changed by %s", PQgetvalue(result, i, 0), owner, stream);
        }
        snprintf(owner, 16, "%s", atoi(PQgetvalue(result, i, 1)) == WEIR_KEY_RESERVE ? stream : "");
    }
    PQclear(result);
}

static void finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)ctx;
    (void)advice;
    fail_msg("%s: %s", rule, text);
}

static void the_log_is_what_everybody_was_told(void **state)
{
    pg_test *t = *state;
    static storm everybody;
    static writer writers[WRITERS];
    other others[4];
    pthread_t threads[WRITERS + 4];
    const char *given = getenv("WEIR_SEED");
    const unsigned seed = given != NULL ? (unsigned)atoi(given) : (unsigned)test_mono_us() % 100000;
    store_options options = test_options(t);
    print_message("# WEIR_SEED=%u\n", seed);
    options.busy_us = 20000000;
    options.pool = 4;
    everybody.t = t;
    everybody.going = everybody.reading = true;
    for (int i = 0; i < STREAMS; i++) {
        everybody.seen[i] = -1;
    }
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (writer){ .storm = &everybody,
                               .number = i,
                               .seed = seed + (unsigned)i,
                               .store = test_store_with(t, &options),
                               .conn = test_connect(t),
                               .said = calloc(SAID_MAX, sizeof(said)) };
        assert_non_null(writers[i].said);
    }
    for (int i = 0; i < 4; i++) {
        others[i] = (other){ .storm = &everybody,
                             .store = i < 2 ? test_store_with(t, &options) : NULL,
                             .conn = test_connect(t),
                             .seed = seed + 100 + (unsigned)i };
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, writer_run, &writers[i]), 0);
    }
    void *(*const runs[])(void *) = { reader_run, reader_run, owner_run, killer_run };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[WRITERS + i], NULL, runs[i], &others[i]), 0);
    }
    const int64_t until = test_mono_us() + test_storm_us(8);
    while (test_mono_us() < until) {
        usleep(50000);
    }
    everybody.going = false;
    for (int i = 0; i < WRITERS + 4; i++) {
        if (i < WRITERS || i >= WRITERS + 2) {
            pthread_join(threads[i], NULL);
        }
    }
    everybody.reading = false;
    pthread_join(threads[WRITERS], NULL);
    pthread_join(threads[WRITERS + 1], NULL);

    int64_t acknowledged = 0;
    int64_t kinds[8] = { 0 };
    for (int i = 0; i < WRITERS; i++) {
        if (writers[i].wrong[0] != '\0') {
            fail_msg("writer %d: %s", i, writers[i].wrong);
        }
        acknowledged += writers[i].acknowledged;
        for (int k = 0; k < 8; k++) {
            kinds[k] += writers[i].kinds[k];
        }
    }
    print_message(
        "# %lld appends acknowledged, %lld events of an owner, %lld sessions terminated\n",
        (long long)acknowledged, (long long)others[2].done, (long long)others[3].done);
    said_load(t, writers);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        PGresult *result = test_query(t->conn, "%s LIMIT 5", rules[i].sql);
        if (PQntuples(result) > 0) {
            fail_msg("%s: not %s %s", rules[i].rule, PQgetvalue(result, 0, 0),
                     PQgetvalue(result, 0, 1));
        }
        PQclear(result);
    }
    reserved_check(t);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(others[i].wrong, "");
        assert_int_equal(others[i].count, test_number(t->conn, "SELECT count(*) FROM log"));
        assert_int_equal(others[i].sum, test_number(t->conn, "SELECT sum(id) FROM log"));
    }
    TEST_OK(t, writers[0].store->about->check(writers[0].store, finding, NULL, &t->err));
    assert_true(acknowledged > 100 && others[3].done > 0);
    for (int i = 0; i < WRITERS; i++) {
        free(writers[i].said);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(the_log_is_what_everybody_was_told),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
