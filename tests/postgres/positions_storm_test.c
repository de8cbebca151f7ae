/* positions_storm_test.c - writers that commit late, out of order or not at all, and readers that
 * must not miss anything (C16): chance, where positions_test.c has the worst moments on purpose.
 *
 * Eight writers on connections of their own append by the function itself, wait at random before
 * they end, and roll back one time in ten, some of them through a savepoint or as a prepared
 * transaction. Readers follow all the while, on handles of their own and on one that two share, and
 * write down what they were given. In the end it is compared with the table. A liar, who wants them
 * to skip events, keeps saying that everything is final, in every kind of transaction.
 * WEIR_SEED repeats a run as far as chance is ours; WEIR_STORM_SECONDS makes it longer.
 */
#include "pg_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 8, READERS = 3, IDS_MAX = 1000000 };
#define PATIENCE_US INT64_C(60000000) /* readers that never meet a gap are waited for no longer */

typedef struct storm {
    pg_test *t;
    atomic_bool writing; /* writers go on */
    atomic_bool reading; /* readers do; they end after one last look */
} storm;

typedef struct writer {
    storm *storm;
    PGconn *conn;
    unsigned seed;
    int number;
    _Atomic int64_t committed;
    char wrong[256];
} writer;

typedef struct reader {
    storm *storm;
    weir_store *store;
    int64_t *ids;
    size_t count;
    int64_t after;
    int64_t looks;
    _Atomic int64_t held_looks; /* of these, how many met a gap that somebody could still fill */
    char wrong[256];
} reader;

static bool run(writer *w, const char *format, ...) WEIR_PRINTF(2, 3);
static bool run(writer *w, const char *format, ...)
{
    char sql[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    PGresult *result = PQexec(w->conn, sql);
    const ExecStatusType status = PQresultStatus(result);
    const bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok && w->wrong[0] == '\0') {
        snprintf(w->wrong, sizeof w->wrong, "%s", PQresultErrorMessage(result));
    }
    PQclear(result);
    return ok;
}

static void wait_a_little(writer *w)
{
    const int choice = rand_r(&w->seed) % 10;
    if (choice >= 4) { /* most wait up to 2 ms, some up to 20 */
        usleep((useconds_t)(rand_r(&w->seed) % (choice == 9 ? 20000 : 2000)));
    }
}

static bool append_one(writer *w)
{
    return run(w, "SELECT * FROM %s.append_one(0, 0, 's-%d', 0, 0, 'A', '{}', '{}')",
               w->storm->t->schema, w->number);
}

static bool transaction(writer *w)
{
    const int kind = rand_r(&w->seed) % 20;
    int64_t events = 1;
    bool ok = run(w, "BEGIN") && append_one(w);
    wait_a_little(w);
    if (ok && kind == 0) { /* one more that is undone alone */
        ok = run(w, "SAVEPOINT a") && append_one(w) && run(w, "ROLLBACK TO a");
    } else if (ok && kind == 1) {
        ok = append_one(w);
        events++;
    }
    const bool undo = rand_r(&w->seed) % 10 == 0;
    if (ok && kind == 2) {
        ok = run(w, "PREPARE TRANSACTION '%s-%d'", w->storm->t->schema, w->number);
        wait_a_little(w);
        ok = ok && run(w, "%s PREPARED '%s-%d'", undo ? "ROLLBACK" : "COMMIT", w->storm->t->schema,
                       w->number);
    } else {
        ok = ok && run(w, "%s", undo ? "ROLLBACK" : "COMMIT");
    }
    w->committed += ok && !undo ? events : 0;
    return ok;
}

static void *writer_main(void *ctx)
{
    writer *w = ctx;
    while (atomic_load(&w->storm->writing)) {
        /* One in three is a transaction of its own, as fast as it can be. */
        const bool alone = rand_r(&w->seed) % 3 == 0;
        if (alone ? !append_one(w) : !transaction(w)) {
            break;
        }
        w->committed += alone;
    }
    return NULL;
}

/* Readers begin at weir.safe.position: one too many there, and they have skipped something. */
static void *liar_main(void *ctx)
{
    writer *w = ctx;
    while (atomic_load(&w->storm->writing)) {
        const int kind = rand_r(&w->seed) % 4;
        const char *begin = kind == 0   ? "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
                            : kind == 1 ? "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1"
                                        : "BEGIN";
        const bool ok = run(w, "%s", begin);
        if (kind == 0) {
            wait_a_little(w);
        }
        PGresult *result = NULL;
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT %s.safe_prove(9223372036854775807)", w->storm->t->schema);
        result = PQexec(w->conn, sql); /* may find that the row has changed (40001) */
        PQclear(result);
        if (!ok || !run(w, "%s", "COMMIT")) {
            break;
        }
        w->committed++;
    }
    return NULL;
}

static void look(reader *r, store_chunk *chunk)
{
    weir_error err = { .size = sizeof err };
    do {
        /* As a router reads, and as others do. */
        const store_log_query q = {
            .after = r->after, .to = INT64_MAX, .limit = 1000, .bare = r->count % 2 == 0
        };
        if (r->store->log->read_log(r->store, &q, chunk, &err) != WEIR_OK) {
            snprintf(r->wrong, sizeof r->wrong, "%.200s", err.message);
            return;
        }
        for (size_t i = 0; i < chunk->events_count && r->count < IDS_MAX; i++) {
            r->ids[r->count++] = chunk->events[i].id;
        }
        r->after = chunk->scanned_to;
        r->looks++;
        r->held_looks += chunk->held;
    } while (chunk->more);
}

static void *reader_main(void *ctx)
{
    reader *r = ctx;
    store_chunk chunk = { 0 };
    bool last = false;
    while (r->wrong[0] == '\0' && !last) {
        last = !atomic_load(&r->storm->reading);
        look(r, &chunk);
        usleep(500);
    }
    weir__chunk_free(&chunk);
    return NULL;
}

/* What a reader missed, or was given twice or too early. */
static void judge(pg_test *t, const reader *r)
{
    PGresult *all = test_query(t->conn, "SELECT id FROM %s.events ORDER BY id", t->schema);
    const size_t count = (size_t)PQntuples(all);
    size_t missing = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t id = atoll(PQgetvalue(all, (int)i, 0));
        if (at < r->count && r->ids[at] == id) {
            at++;
        } else {
            missing++;
        }
    }
    PQclear(all);
    if (missing > 0 || at != r->count) {
        fail_msg("of %zu events %zu were not given in their order; %zu more were", count, missing,
                 r->count - at);
    }
}

/* Enough was committed, and every reader met a gap; or one of them failed, and the rest is moot. */
static bool storm_was_one(const writer *writers, const reader *readers)
{
    int64_t committed = 0;
    bool failed = false, met = true;
    for (int i = 0; i < WRITERS; i++) {
        committed += writers[i].committed;
        failed = failed || writers[i].wrong[0] != '\0';
    }
    for (int i = 0; i < READERS; i++) {
        met = met && readers[i].held_looks > 0;
        failed = failed || readers[i].wrong[0] != '\0';
    }
    return failed || (committed > 100 && met);
}

static void C16_nothing_is_skipped_in_a_storm(void **state)
{
    pg_test *t = *state;
    const char *seed_text = getenv("WEIR_SEED");
    const unsigned seed = seed_text != NULL ? (unsigned)atoll(seed_text) : (unsigned)time(NULL);
    storm all = { .t = t };
    writer writers[WRITERS + 1]; /* the last one lies */
    reader readers[READERS];
    pthread_t threads[WRITERS + 1 + READERS];
    print_message("# WEIR_SEED=%u\n", seed);
    (void)test_store(t);
    atomic_store(&all.writing, true);
    atomic_store(&all.reading, true);
    for (int i = 0; i < READERS; i++) {
        /* The last two share a handle, and so what it knows of the log. */
        readers[i] = (reader){ .storm = &all };
        readers[i].store = i == READERS - 1 ? readers[i - 1].store : test_store(t);
        readers[i].ids = calloc(IDS_MAX, sizeof *readers[i].ids);
        assert_non_null(readers[i].ids);
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
    }
    for (int i = 0; i <= WRITERS; i++) {
        writers[i] = (writer){
            .storm = &all, .conn = test_connect(t), .seed = seed + (unsigned)i, .number = i
        };
        assert_int_equal(pthread_create(&threads[READERS + i], NULL,
                                        i == WRITERS ? liar_main : writer_main, &writers[i]),
                         0);
    }
    const int64_t end_us = test_mono_us() + test_storm_us(5);
    bool was_one = false;
    while (test_mono_us() < end_us || (!was_one && test_mono_us() < end_us + PATIENCE_US)) {
        usleep(10000);
        was_one = storm_was_one(writers, readers);
    }
    atomic_store(&all.writing, false);
    for (int i = 0; i <= WRITERS; i++) {
        assert_int_equal(pthread_join(threads[READERS + i], NULL), 0);
        assert_string_equal(writers[i].wrong, "");
    }
    assert_true(writers[WRITERS].committed > 0);
    /* Everybody has ended, so two looks are enough to see all that there is. */
    usleep(100000);
    atomic_store(&all.reading, false);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_string_equal(readers[i].wrong, "");
        judge(t, &readers[i]);
        print_message("# reader %d: %zu events, %lld looks, %lld of them held back\n", i,
                      readers[i].count, (long long)readers[i].looks,
                      (long long)readers[i].held_looks);
        free(readers[i].ids);
    }
    assert_true(was_one);
    /* Nobody appends, so it proves all that there is. */
    assert_int_equal(test_number(t->conn, "SELECT %s.safe_prove(9223372036854775807)", t->schema),
                     test_number(t->conn, "SELECT max(id) FROM %s.events", t->schema));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = { PG_TEST(C16_nothing_is_skipped_in_a_storm) };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
