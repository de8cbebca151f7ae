/* creating_test.c - appends to more streams than a batch may have, whoever is met at the index, and
 * who waits where there is no place to wait.
 *
 * An owner's own INSERT holds no stream (append_functions.sql), so others meet it only at the
 * unique index, where PostgreSQL waits. Nobody's answer may be lost over that.
 */
#include "pg_support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 300 };

/* One append with an event for each of many streams. */
typedef struct mass {
    weir_store *s;
    store_append append;
    store_append_stream streams[MANY];
    store_new_event events[MANY];
    char names[MANY][24];
    weir_status status;
    weir_error err;
} mass;

static void mass_make(mass *m, weir_store *s, const char *prefix, bool backwards)
{
    *m = (mass){ .s = s };
    for (int i = 0; i < MANY; i++) {
        snprintf(m->names[i], sizeof m->names[i], "%s-%03d", prefix, backwards ? MANY - 1 - i : i);
        m->streams[i] = (store_append_stream){ .name = weir__str(m->names[i]) };
        m->events[i] = (store_new_event){ .stream_index = (uint32_t)i,
                                          .name = weir__str("A"),
                                          .data = weir__str("{}"),
                                          .meta = weir__str("{}") };
    }
    m->append = (store_append){ .streams = m->streams,
                                .streams_count = MANY,
                                .events = m->events,
                                .events_count = MANY,
                                .err = &m->err };
}

static void *mass_run(void *arg)
{
    mass *m = arg;
    store_append *append = &m->append;
    m->status = m->s->log->append(m->s, &append, 1, &m->err);
    m->status = m->status == WEIR_OK ? m->append.status : m->status;
    return NULL;
}

/* One event for one stream, until `wait_ms` from now. */
typedef struct one {
    weir_store *s;
    store_append append;
    store_append_stream stream;
    store_new_event event;
    weir_status status;
    weir_error err;
} one;

static void one_make(one *o, weir_store *s, const char *stream, int64_t wait_ms)
{
    *o = (one){ .s = s, .stream = { .name = weir__str(stream) } };
    o->event = (store_new_event){ .name = weir__str("A"),
                                  .data = weir__str("{}"),
                                  .meta = weir__str("{}") };
    o->append = (store_append){ .streams = &o->stream,
                                .streams_count = 1,
                                .events = &o->event,
                                .events_count = 1,
                                .deadline_us = test_mono_us() + 1000 * wait_ms,
                                .err = &o->err };
}

static void *one_run(void *arg)
{
    one *o = arg;
    store_append *append = &o->append;
    o->status = o->s->log->append(o->s, &append, 1, &o->err);
    o->status = o->status == WEIR_OK ? o->append.status : o->status;
    return NULL;
}

/* What an append may wait for a stream that is held: longer than any machine takes for a call. */
enum { PATIENCE_MS = 60000 };

static void a_batch_waits_a_moment_at_most_for_who_creates_many_streams(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *user = test_connect(t);
    static mass m;
    one meets, other;
    test_put(t, s, "there", "A");
    mass_make(&m, s, "m", false);
    test_exec(user, "BEGIN");
    TEST_OK(t, s->log->append_in(s, user, &m.append, &t->err));
    assert_int_equal(m.append.status, WEIR_OK);

    one_make(&meets, s, "m-100", PATIENCE_MS);
    one_make(&other, s, "there", PATIENCE_MS);
    meets.append.flags = other.append.flags = STORE_APPEND_NOWAIT;
    store_append *batch[] = { &meets.append, &other.append };
    const int64_t start = test_mono_us();
    TEST_OK(t, s->log->append(s, batch, 2, &t->err));
    assert_int_equal(meets.append.status, WEIR_EBUSY);
    assert_true(meets.append.alone);
    if (other.append.status != WEIR_OK) { /* goes alone as well, and need not wait there */
        assert_true(other.append.alone);
        one_make(&other, s, "there", PATIENCE_MS);
        one_run(&other);
        assert_int_equal(other.status, WEIR_OK);
    }
    assert_true(test_mono_us() - start < PATIENCE_MS * INT64_C(1000));

    one_make(&meets, s, "m-100", 300); /* alone it waits, as long as it may */
    one_run(&meets);
    assert_int_equal(meets.status, WEIR_EBUSY);
    test_exec(user, "COMMIT");
    one_make(&meets, s, "m-100", 10000);
    one_run(&meets);
    assert_int_equal(meets.status, WEIR_OK);
    assert_int_equal(meets.stream.last, 1);
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.events WHERE stream = 'there'", t->schema),
        2);
}

/* An owner inserts the next version and has not committed: nobody knows before the index is met. */
static void C13_a_batch_waits_a_moment_at_most_at_the_index(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *owner = test_connect(t);
    one meets, other;
    test_put(t, s, "there", "A");
    test_put(t, s, "met", "A");
    test_exec(
        owner,
        "BEGIN; INSERT INTO %s.events VALUES (nextval('%s.positions'), 'met', 1, 'Owner', '{}', "
        "'{}', now())",
        t->schema, t->schema);
    for (int alone = 0; alone < 2; alone++) {
        one_make(&meets, s, "met", PATIENCE_MS);
        one_make(&other, s, "there", PATIENCE_MS);
        meets.append.flags = other.append.flags = STORE_APPEND_NOWAIT;
        store_append *batch[] = { &meets.append, &other.append };
        const int64_t start = test_mono_us();
        TEST_OK(t, s->log->append(s, batch, alone ? 1 : 2, &t->err));
        assert_true(test_mono_us() - start < PATIENCE_MS * INT64_C(1000));
        assert_int_equal(meets.append.status, WEIR_EBUSY);
        assert_true(meets.append.alone);
        if (!alone) { /* who was with it goes alone as well, and need not wait */
            assert_int_equal(other.append.status, WEIR_EBUSY);
            assert_true(other.append.alone);
        }
    }
    one_make(&other, s, "there", PATIENCE_MS);
    one_run(&other);
    assert_int_equal(other.status, WEIR_OK);
    one_make(&meets, s, "met", 300); /* alone it waits, as long as it may */
    one_run(&meets);
    assert_int_equal(meets.status, WEIR_EBUSY);
    test_exec(owner, "COMMIT");
    one_make(&meets, s, "met", 10000);
    one_run(&meets);
    assert_int_equal(meets.status, WEIR_OK);
    assert_int_equal(meets.stream.last, 2);
}

/* Large appends go one after the other, so that together they do not fill the table of locks. */
static void C13_large_appends_hold_one_lock_of_their_own(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t), *patient = test_store(t);
    PGconn *user = test_connect(t);
    static mass m[2];
    pthread_t thread;
    mass_make(&m[0], s, "m", false);
    mass_make(&m[1], patient, "other", false);
    test_exec(user, "BEGIN");
    TEST_OK(t, s->log->append_in(s, user, &m[0].append, &t->err));
    assert_int_equal(m[0].append.status, WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, mass_run, &m[1]), 0);
    assert_true(test_wait(t->conn, 60, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"));
    assert_true(test_number(t->conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") <
                MANY + 10);
    test_exec(user, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(m[1].status, WEIR_OK);
}

static void many_streams_that_two_create_at_once_are_created_once(void **state)
{
    pg_test *t = *state;
    weir_store *stores[] = { test_store(t), test_store(t) };
    static mass m[2];
    for (int round = 0; round < 3; round++) {
        char prefix[8];
        pthread_t threads[2];
        snprintf(prefix, sizeof prefix, "r%d", round);
        for (int i = 0; i < 2; i++) {
            mass_make(&m[i], stores[i], prefix, i == 1);
            assert_int_equal(pthread_create(&threads[i], NULL, mass_run, &m[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
        }
        for (int i = 0; i < 2; i++) {
            if (m[i].status != WEIR_OK) {
                fail_msg("round %d: %d: %s", round, m[i].status, m[i].err.message);
            }
            for (int k = 0; k < MANY; k++) {
                assert_int_equal(m[i].streams[k].first + m[1 - i].streams[MANY - 1 - k].first, 1);
            }
        }
    }
}

static void a_key_in_flight_is_so_for_who_finds_no_place_to_wait(void **state)
{
    enum { WAITERS = 3 };
    pg_test *t = *state;
    store_options options = test_options(t);
    options.pool = 2;
    weir_store *s = test_store_with(t, &options);
    PGconn *user = test_connect(t);
    one holder, waiters[WAITERS];
    pthread_t threads[WAITERS];
    one_make(&holder, s, "held", 10000);
    holder.append.key = weir__str("key");
    test_exec(user, "BEGIN");
    TEST_OK(t, s->log->append_in(s, user, &holder.append, &t->err));
    for (int i = 0; i < WAITERS; i++) {
        one_make(&waiters[i], s, "free", 600);
        waiters[i].append.key = weir__str("key");
        assert_int_equal(pthread_create(&threads[i], NULL, one_run, &waiters[i]), 0);
    }
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(waiters[i].status, WEIR_EINFLIGHT);
        assert_false(waiters[i].append.alone);
    }
    test_exec(user, "ROLLBACK");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_batch_waits_a_moment_at_most_for_who_creates_many_streams),
        PG_TEST(C13_a_batch_waits_a_moment_at_most_at_the_index),
        PG_TEST(C13_large_appends_hold_one_lock_of_their_own),
        PG_TEST(many_streams_that_two_create_at_once_are_created_once),
        PG_TEST(a_key_in_flight_is_so_for_who_finds_no_place_to_wait),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
