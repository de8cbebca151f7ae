/* contention_test.c - many who append at once on PostgreSQL: who waits for whom, and who wins.
 *
 * Method: threads with handles of their own, which are other processes to the server, and plain SQL
 * sessions that hold a stream or a key for as long as the test likes.
 */
#include "append_support.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

/* ---- locks --------------------------------------------------------------------------------- */

typedef struct opposite {
    weir_store *store;
    bool backwards;
    uint32_t flags;
    int failed;
} opposite;

static void *append_in_order(void *arg)
{
    enum { ROUNDS = 60, COUNT = 8 };
    opposite *o = arg;
    char names[COUNT * 2][16];
    for (int i = 0; i < COUNT * 2; i++) {
        snprintf(names[i], sizeof names[i], "s-%02d", o->backwards ? COUNT * 2 - 1 - i : i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        static __thread made m[COUNT];
        weir_error err = { 0 };
        for (int i = 0; i < COUNT; i++) {
            make(&m[i], names[2 * i], WEIR_EXPECT_ANY, 0, "A");
            make_add(&m[i], names[2 * i + 1], "B");
        }
        const weir_status status = run(o->store, m, COUNT, o->flags, &err);
        if (status != WEIR_OK) {
            fprintf(stderr, "batch: %s\n", err.message);
            o->failed++;
        }
        for (int i = 0; i < COUNT && status == WEIR_OK; i++) {
            o->failed += m[i].append.status != WEIR_OK &&
                         !(m[i].append.status == WEIR_EBUSY && m[i].append.alone);
        }
    }
    return NULL;
}

static void opposite_orders_do_not_deadlock(void **state)
{
    pg_test *t = *state;
    weir_store *stores[4] = { test_store(t), test_store(t), test_store(t), test_store(t) };
    opposite o[4];
    pthread_t threads[4];
    const char *deadlocks = "SELECT deadlocks FROM pg_stat_database "
                            "WHERE datname = current_database()";
    const int64_t before = test_number(t->conn, "%s", deadlocks);
    for (size_t i = 0; i < 4; i++) { /* two that wait, two that do not */
        o[i] = (opposite){ .store = stores[i],
                           .backwards = i % 2 == 1,
                           .flags = i < 2 ? 0 : STORE_APPEND_NOWAIT };
        assert_int_equal(pthread_create(&threads[i], NULL, append_in_order, &o[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(o[i].failed, 0);
        test_store_close(t, stores[i]); /* the server's processes end, and tell what they counted */
    }
    /* What a process has counted is there when it is gone, and not before. */
    const int64_t until = test_mono_us() + 60000000;
    while (test_number(t->conn, "SELECT count(*) FROM pg_stat_activity WHERE pid <> "
                                "pg_backend_pid() AND backend_type = 'client backend'") > 0) {
        assert_true(test_mono_us() < until);
    }
    assert_int_equal(test_number(t->conn, "%s", deadlocks), before);
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM (SELECT version <> row_number() OVER "
                                 "(PARTITION BY stream ORDER BY id) - 1 AS bad FROM %s.events) AS x"
                                 " WHERE bad",
                                 t->schema),
                     0);
}

typedef struct neighbour {
    weir *w;
    char stream[32];
    int appends;
    _Atomic bool answered; /* all of them were */
    weir_status status;
} neighbour;

static void *append_some(void *arg)
{
    neighbour *n = arg;
    for (int i = 0; i < n->appends && n->status == WEIR_OK; i++) {
        weir_error err = { 0 };
        n->status = append_by(n->w, NULL, n->stream, "", NULL, &err);
        if (n->status != WEIR_OK) {
            fprintf(stderr, "%s: %s\n", n->stream, err.message);
        }
    }
    n->answered = true;
    return NULL;
}

/* A stream that is there and one that is not, held by a user's transaction until everybody else has
 * been answered. */
static void C13_a_held_stream_delays_nobody_else(void **state)
{
    enum { HELD = 12, OTHERS = 6 }; /* more who wait than the pool has connections */
    pg_test *t = *state;
    weir *w = test_weir(t);
    weir_store *s = test_store(t);
    PGconn *user = test_connect(t);
    neighbour n[HELD + OTHERS];
    pthread_t threads[HELD + OTHERS];
    TEST_OK(t, append_by(w, NULL, "there", "", NULL, &t->err));
    for (int i = 0; i < OTHERS; i++) {
        snprintf(n[HELD + i].stream, sizeof n[0].stream, "other-%d", i);
        TEST_OK(t, append_by(w, NULL, n[HELD + i].stream, "", NULL, &t->err));
    }
    test_exec(user, "BEGIN");
    TEST_OK(t, append_by(w, user, "there", "", NULL, &t->err));
    TEST_OK(t, append_by(w, user, "not-there", "", NULL, &t->err));
    for (int i = 0; i < 2; i++) { /* in a batch, the one concerned is busy and nobody else */
        made m[2];
        make(&m[0], i == 0 ? "there" : "not-there", WEIR_EXPECT_ANY, 0, "A");
        make(&m[1], "other-0", WEIR_EXPECT_ANY, 0, "A");
        TEST_OK(t, run(s, m, 2, STORE_APPEND_NOWAIT, &t->err));
        assert_int_equal(m[0].append.status, WEIR_EBUSY);
        assert_true(m[0].append.alone);
        assert_int_equal(m[1].append.status, WEIR_OK);
    }
    for (int i = 0; i < HELD + OTHERS; i++) {
        char stream[32];
        snprintf(stream, sizeof stream, "%s", i % 2 == 0 ? "there" : "not-there");
        if (i >= HELD) {
            snprintf(stream, sizeof stream, i % 2 == 0 ? "other-%d" : "fresh-%d", i - HELD);
        }
        n[i] = (neighbour){ .w = w, .appends = i < HELD ? 1 : 40 };
        snprintf(n[i].stream, sizeof n[i].stream, "%s", stream);
        assert_int_equal(pthread_create(&threads[i], NULL, append_some, &n[i]), 0);
    }
    for (int i = HELD; i < HELD + OTHERS; i++) {
        pthread_join(threads[i], NULL);
    }
    int waiting = 0;
    for (int i = 0; i < HELD; i++) {
        waiting += !n[i].answered;
    }
    test_exec(user, "COMMIT");
    weir_wake(w);
    for (int i = 0; i < HELD; i++) {
        pthread_join(threads[i], NULL);
    }
    /* Nobody is inside any more: a failure ends the test, and the handle with it. */
    for (int i = 0; i < HELD; i++) {
        assert_int_equal(n[i].status, WEIR_OK);
    }
    for (int i = HELD; i < HELD + OTHERS; i++) {
        assert_int_equal(n[i].status, WEIR_OK);
    }
    assert_int_equal(waiting, HELD);
    assert_int_equal(
        test_number(t->conn, "SELECT version FROM %s.streams WHERE name = 'there'", t->schema),
        1 + HELD / 2);
}

static void a_lock_that_is_held_for_too_long_is_busy(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *user = test_connect(t);
    store_options options = test_options(t);
    options.busy_us = 200000;
    weir_store *s = test_store_with(t, &options);
    made m;
    test_exec(user, "BEGIN");
    TEST_OK(t, append_by(w, user, "s", "key", NULL, &t->err));
    make(&m, "s", WEIR_EXPECT_ANY, 0, "A");
    const weir_status status = run(s, &m, 1, 0, &t->err);
    assert_int_equal(status == WEIR_OK ? m.append.status : status, WEIR_EBUSY);
    make(&m, "other", WEIR_EXPECT_ANY, 0, "A"); /* the key is in flight, the stream is free */
    make_key(&m, "key", 1);
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_EINFLIGHT);
    /* In a batch neither waits at all. */
    made two[3];
    make(&two[0], "s", WEIR_EXPECT_ANY, 0, "A");
    make(&two[1], "free", WEIR_EXPECT_ANY, 0, "A");
    make(&two[2], "free-too", WEIR_EXPECT_ANY, 0, "A");
    make_key(&two[2], "key", 1);
    TEST_OK(t, run(s, two, 3, STORE_APPEND_NOWAIT, &t->err));
    assert_int_equal(two[0].append.status, WEIR_EBUSY);
    assert_true(two[0].append.alone);
    assert_int_equal(two[1].append.status, WEIR_OK);
    assert_int_equal(two[2].append.status, WEIR_EBUSY);
    assert_true(two[2].append.alone);
    test_exec(user, "ROLLBACK");
    make(&m, "other", WEIR_EXPECT_ANY, 0, "A"); /* it never happened, so the key is free */
    make_key(&m, "key", 1);
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_OK);
    assert_false(m.append.replayed);
}

static void C10_a_reserved_key_that_is_held_makes_one_append_busy(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *user = test_connect(t);
    made m[2];
    test_exec(
        user,
        "BEGIN; SELECT * FROM %s.append_any(0, 0, 0, '{0}', '{}', '{}', '{1}', '{owner}', '{0}',"
        " '{0}', '{1}', '{A}', '{1}', '{\"{}\"}', '{1}', '{email}', '{1}')",
        t->schema);
    make(&m[0], "wants", WEIR_EXPECT_ANY, 0, "A");
    m[0].change = (store_key_change){ .key = weir__str("email"), .change = WEIR_KEY_RESERVE };
    m[0].append.key_changes = &m[0].change;
    m[0].append.key_changes_count = 1;
    make(&m[1], "free", WEIR_EXPECT_ANY, 0, "A");
    TEST_OK(t, run(s, m, 2, STORE_APPEND_NOWAIT, &t->err));
    assert_int_equal(m[0].append.status, WEIR_EBUSY);
    assert_true(m[0].append.alone);
    assert_int_equal(m[1].append.status, WEIR_OK);
    test_exec(user, "COMMIT");
    m[0].append.flags = 0;
    TEST_OK(t, run(s, m, 1, 0, &t->err));
    assert_int_equal(m[0].append.status, WEIR_ETAKEN);
    assert_string_equal(m[0].err.stream, "owner");
}

/* ---- waiting holds nothing ------------------------------------------------------------------- */

/* One append of an event to each of two streams, or the same as the effects of a settle. */
typedef struct couple {
    weir *w;
    const char *streams[2];
    weir_status status;
    weir_error err;
} couple;

static void *append_couple(void *arg)
{
    couple *c = arg;
    const weir_new_event e[2] = {
        { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->streams[0]), .name = weir__str("A") },
        { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->streams[1]), .name = weir__str("A") },
    };
    const weir_new_event *events[] = { &e[0], &e[1] };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 2 };
    c->status = weir_append(c->w, &r, NULL, &c->err);
    return NULL;
}

/* Until somebody waits for a lock. */
static void await_waiter(pg_test *t)
{
    const int64_t until = test_mono_us() + 60000000;
    while (test_number(t->conn, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        assert_true(test_mono_us() < until);
    }
}

/* Whoever waits for one of its streams has locked none of the others meanwhile, whichever comes
 * first by name: a stranger who wants one of those is not delayed by somebody he has nothing in
 * common with. */
static void C13_an_append_that_waits_for_a_stream_holds_no_other(void **state)
{
    static const char *const free_streams[] = { "a-free", "z-free" };
    pg_test *t = *state;
    weir *patient = test_weir(t), *stranger = test_weir(t);
    PGconn *user = test_connect(t);
    for (size_t i = 0; i < 2; i++) {
        couple c = { .w = patient, .streams = { free_streams[i], "held" } };
        weir_error err = { 0 };
        pthread_t thread;
        weir_status stranger_status = WEIR_OK;
        test_exec(user, "BEGIN");
        TEST_OK(t, append_by(stranger, user, "held", "", NULL, &t->err));
        assert_int_equal(pthread_create(&thread, NULL, append_couple, &c), 0);
        await_waiter(t);
        for (int k = 0; k < 20 && stranger_status == WEIR_OK; k++) {
            stranger_status = append_by(stranger, NULL, free_streams[i], "", NULL, &err);
        }
        test_exec(user, "COMMIT");
        pthread_join(thread, NULL);
        if (stranger_status != WEIR_OK) {
            fail_msg("%s: %s", free_streams[i], err.message);
        }
        TEST_OK(t, c.status);
        assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events WHERE stream = '%s'",
                                     t->schema, free_streams[i]),
                         21);
    }
}

/* One append of both names in each transaction of the caller's own. */
static void *append_couples_in(void *arg)
{
    couple *c = arg;
    PGconn *conn = PQconnectdb(test_server());
    for (int i = 0; i < 40 && c->status == WEIR_OK; i++) {
        const weir_new_event e[2] = {
            { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->streams[0]), .name = weir__str("A") },
            { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->streams[1]), .name = weir__str("A") },
        };
        const weir_new_event *events[] = { &e[0], &e[1] };
        const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                        .events_count = 2 };
        PQclear(PQexec(conn, "BEGIN"));
        c->status = weir_append_in(c->w, conn, &r, NULL, &c->err);
        PQclear(PQexec(conn, c->status == WEIR_OK ? "COMMIT" : "ROLLBACK"));
    }
    PQfinish(conn);
    return NULL;
}

static void C13_callers_transactions_wait_in_the_order_of_names(void **state)
{
    enum { THREADS = 6 };
    pg_test *t = *state;
    couple c[THREADS];
    pthread_t threads[THREADS];
    weir *w = test_weir(t);
    for (int i = 0; i < THREADS; i++) {
        c[i] = (couple){ .w = w, .streams = { i % 2 == 0 ? "a" : "b", i % 2 == 0 ? "b" : "a" } };
        assert_int_equal(pthread_create(&threads[i], NULL, append_couples_in, &c[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        if (c[i].status != WEIR_OK) {
            fail_msg("%s", c[i].err.message); /* a deadlock, for one */
        }
    }
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema),
                     THREADS * 40 * 2);
}

/* What an append met at the index of a caller's transaction must not cost him that transaction. */
static void C06_a_callers_transaction_survives_what_was_written_behind_its_back(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *owner = test_connect(t);
    couple c = { .w = w, .streams = { "s", "u" } };
    pthread_t thread;
    TEST_OK(t, append_by(w, NULL, "s", "", NULL, &t->err));
    test_exec(
        owner,
        "BEGIN; INSERT INTO %s.events VALUES (nextval('%s.positions'), 's', 1, 'Owner', '{}', "
        "'{}', now())",
        t->schema, t->schema);
    assert_int_equal(pthread_create(&thread, NULL, append_couples_in, &c), 0);
    await_waiter(t);
    test_exec(owner, "COMMIT");
    pthread_join(thread, NULL);
    TEST_OK(t, c.status);
    assert_int_equal(
        test_number(t->conn, "SELECT version FROM %s.streams WHERE name = 's'", t->schema), 41);
}

/* ---- races --------------------------------------------------------------------------------- */

enum { RACE_THREADS = 16, RACE_ROUNDS = 15 };

typedef struct racer {
    weir *w;
    weir_store *store;
    int32_t expect;
    const char *key;
    int number;
    weir_status status[RACE_ROUNDS];
    int64_t id[RACE_ROUNDS];
    bool replayed[RACE_ROUNDS];
} racer;

static void *race_any(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < RACE_ROUNDS; i++) {
        weir_error err = { 0 };
        r->status[i] = append_by(r->w, NULL, "hot", "", NULL, &err);
        if (r->status[i] != WEIR_OK) {
            fprintf(stderr, "%s\n", err.message);
        }
    }
    return NULL;
}

/* T7. Two handles are two processes to the server. */
static void C06_any_never_conflicts_under_contention(void **state)
{
    pg_test *t = *state;
    static racer racers[2 * RACE_THREADS];
    pthread_t threads[2 * RACE_THREADS];
    weir *handles[2] = { test_weir(t), test_weir(t) };
    for (int i = 0; i < 2 * RACE_THREADS; i++) {
        racers[i] = (racer){ .w = handles[i % 2] };
        assert_int_equal(pthread_create(&threads[i], NULL, race_any, &racers[i]), 0);
    }
    for (int i = 0; i < 2 * RACE_THREADS; i++) {
        pthread_join(threads[i], NULL);
        for (int k = 0; k < RACE_ROUNDS; k++) {
            assert_int_equal(racers[i].status[k], WEIR_OK);
        }
    }
    assert_int_equal(test_number(t->conn,
                                 "SELECT max(version) FROM %s.events WHERE stream = 'hot' "
                                 "HAVING count(*) = max(version) + 1",
                                 t->schema),
                     2 * RACE_THREADS * RACE_ROUNDS - 1);
}

static void *race_exact(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < RACE_ROUNDS; i++) {
        weir_error err = { 0 };
        int64_t at = 0;
        char name[16];
        snprintf(name, sizeof name, "s-%d", i);
        r->status[i] = test_try(r->store, name, WEIR_EXPECT_EXACT, 0, "B", &at, NULL, &err);
        r->id[i] = at;
    }
    return NULL;
}

/* T6. One wins, the others are told the version that is there. */
static void C06_of_many_who_expect_a_version_one_wins(void **state)
{
    enum { WRITERS = 6 };
    pg_test *t = *state;
    static racer racers[WRITERS];
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        racers[i] = (racer){ .store = test_store(t) };
    }
    for (int i = 0; i < RACE_ROUNDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "s-%d", i);
        test_put(t, racers[0].store, name, "A");
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, race_exact, &racers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int k = 0; k < RACE_ROUNDS; k++) {
        int won = 0;
        for (int i = 0; i < WRITERS; i++) {
            won += racers[i].status[k] == WEIR_OK;
            assert_true(racers[i].status[k] == WEIR_OK || racers[i].status[k] == WEIR_ECONFLICT);
            assert_int_equal(racers[i].id[k], 1); /* what it got, or what is there */
        }
        assert_int_equal(won, 1);
    }
}

static void *race_key(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < RACE_ROUNDS; i++) {
        const weir_append_result *result = NULL;
        weir_error err = { 0 };
        char key[16], stream[16];
        snprintf(key, sizeof key, "key-%d", i);
        snprintf(stream, sizeof stream, "s-%d", i);
        r->status[i] = append_by(r->w, NULL, stream, key, &result, &err);
        if (r->status[i] == WEIR_OK) {
            r->id[i] = result->streams[0]->id;
            r->replayed[i] = result->replayed == 1;
        }
        weir_append_result_free(result);
    }
    return NULL;
}

static void C09_of_many_with_the_same_key_one_writes(void **state)
{
    pg_test *t = *state;
    static racer racers[8];
    pthread_t threads[8];
    weir *handles[2] = { test_weir(t), test_weir(t) };
    for (int i = 0; i < 8; i++) {
        racers[i] = (racer){ .w = handles[i % 2] };
        assert_int_equal(pthread_create(&threads[i], NULL, race_key, &racers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int k = 0; k < RACE_ROUNDS; k++) {
        int wrote = 0;
        for (int i = 0; i < 8; i++) {
            assert_int_equal(racers[i].status[k], WEIR_OK);
            assert_int_equal(racers[i].id[k], racers[0].id[k]);
            wrote += !racers[i].replayed[k];
        }
        assert_int_equal(wrote, 1);
    }
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema),
                     RACE_ROUNDS);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(opposite_orders_do_not_deadlock),
        PG_TEST(C13_a_held_stream_delays_nobody_else),
        PG_TEST(C13_an_append_that_waits_for_a_stream_holds_no_other),
        PG_TEST(C13_callers_transactions_wait_in_the_order_of_names),
        PG_TEST(C06_a_callers_transaction_survives_what_was_written_behind_its_back),
        PG_TEST(a_lock_that_is_held_for_too_long_is_busy),
        PG_TEST(C10_a_reserved_key_that_is_held_makes_one_append_busy),
        PG_TEST(C06_any_never_conflicts_under_contention),
        PG_TEST(C06_of_many_who_expect_a_version_one_wins),
        PG_TEST(C09_of_many_with_the_same_key_one_writes),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
