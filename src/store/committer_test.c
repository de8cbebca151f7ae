/* committer_test.c - who shares a transaction with whom, and what each caller is told.
 *
 * Method: the store below the committer is a gate that the test opens and closes, so that who waits
 * while which transaction runs is decided by the test and not by the scheduler. What the real
 * stores do with a batch is proved in tests/conformance/.
 */
#include "store/committer.h"

#include "base/error.h"
#include "base/str.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CALLS_MAX = 4096 };

typedef struct gate_store {
    weir_store base;
    weir_mutex mu;
    weir_cond opened;
    /* guarded by mu */
    bool closed;
    size_t inside;            /* callers of append that wait at the gate */
    size_t counts[CALLS_MAX]; /* how many appends each transaction had */
    int64_t order[CALLS_MAX]; /* tags of all appends in the order in which they were judged */
    size_t calls, judged;
    weir_status batch_fails; /* what transactions of more than one append fail with */
    size_t batch_fails_left; /* so many of them; 0: all                             */
    int64_t alone_fails_tag; /* the append that also fails alone */
    int64_t held_tag;        /* the append whose stream somebody holds: busy, or it waits    */
    bool held;               /* still                                                        */
    size_t held_inside;      /* callers that wait for it                                     */
} gate_store;

static bool any_waits_for_held(const gate_store *g, store_append *const *appends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (g->held && appends[i]->streams[0].version == g->held_tag &&
            (appends[i]->flags & STORE_APPEND_NOWAIT) == 0) {
            return true;
        }
    }
    return false;
}

/* Each append carries its tag in the version of its only stream; an odd tag below zero
 * conflicts. */
static weir_status gate_append(weir_store *base, store_append *const *appends, size_t count,
                               weir_error *err)
{
    gate_store *g = (gate_store *)base;
    weir_status status = WEIR_OK;
    weir__lock(&g->mu);
    g->inside++;
    while (g->closed) {
        weir__cond_wait(&g->opened, &g->mu);
    }
    g->inside--;
    while (any_waits_for_held(g, appends, count)) {
        g->held_inside++;
        weir__cond_wait(&g->opened, &g->mu);
        g->held_inside--;
    }
    g->counts[g->calls++] = count;
    if (count > 1 && g->batch_fails != WEIR_OK) {
        status = weir__fail(err, g->batch_fails, "the batch failed");
        if (g->batch_fails_left > 0 && --g->batch_fails_left == 0) {
            g->batch_fails = WEIR_OK;
        }
    } else if (count == 1 && g->alone_fails_tag != 0 &&
               appends[0]->streams[0].version == g->alone_fails_tag) {
        status = weir__fail(err, WEIR_EIO, "this one fails alone");
    } else {
        for (size_t i = 0; i < count; i++) {
            const int64_t tag = appends[i]->streams[0].version;
            if (g->held && tag == g->held_tag) {
                appends[i]->status = weir__fail(appends[i]->err, WEIR_EBUSY, "somebody holds it");
                appends[i]->alone = true;
                continue;
            }
            g->order[g->judged++] = tag;
            appends[i]->streams[0].id = tag * 10;
            appends[i]->status =
                tag % 5 == 0
                    ? weir__fail_conflict(appends[i]->err, appends[i]->streams[0].name, 1, tag)
                    : WEIR_OK;
        }
    }
    weir__unlock(&g->mu);
    return status;
}

static const weir_store_ops gate_ops = {
    .version = STORE_OPS_VERSION, .scheme = "gate", .group_commit = 1, .append = gate_append
};

typedef struct caller {
    pthread_t thread;
    committer *c;
    store_append append;
    store_append_stream stream;
    weir_error err;
    weir_status status;
} caller;

static void *caller_run(void *arg)
{
    caller *k = arg;
    k->status = weir__committer_append(k->c, &k->append);
    return NULL;
}

static void caller_start_until(caller *k, committer *c, int64_t tag, int64_t deadline_us)
{
    *k = (caller){ .c = c, .stream = { .name = weir__str("s"), .version = tag } };
    k->append = (store_append){
        .streams = &k->stream, .streams_count = 1, .deadline_us = deadline_us, .err = &k->err
    };
    assert_int_equal(pthread_create(&k->thread, NULL, caller_run, k), 0);
}

static void caller_start(caller *k, committer *c, int64_t tag)
{
    caller_start_until(k, c, tag, 0);
}

static void gate_set(gate_store *g, bool closed)
{
    weir__lock(&g->mu);
    g->closed = closed;
    weir__cond_broadcast(&g->opened);
    weir__unlock(&g->mu);
}

static void wait_inside(gate_store *g, size_t count)
{
    bool there = false;
    while (!there) {
        weir__lock(&g->mu);
        there = g->inside == count;
        weir__unlock(&g->mu);
        (void)sched_yield();
    }
}

static void wait_waiting(committer *c, size_t count)
{
    while (weir__committer_waiting(c) != count) {
        (void)sched_yield();
    }
}

typedef struct fixture {
    gate_store gate;
    committer *c;
    caller callers[COMMITTER_WAITING_MAX + 1];
} fixture;

static int setup(void **state)
{
    fixture *f = weir__calloc(1, sizeof *f);
    f->gate.base.ops = &gate_ops;
    f->gate.closed = true;
    assert_true(weir__mutex_init(&f->gate.mu) && weir__cond_init(&f->gate.opened));
    assert_int_equal(weir__committer_open(&f->c, &f->gate.base, NULL), WEIR_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    weir__committer_close(f->c);
    weir__cond_destroy(&f->gate.opened);
    weir__mutex_destroy(&f->gate.mu);
    weir__free(f);
    return 0;
}

/* The first caller is inside the store; `count` more wait behind it, in this order. */
static void queue_up(fixture *f, size_t count)
{
    caller_start(&f->callers[0], f->c, 1);
    wait_inside(&f->gate, 1);
    for (size_t i = 1; i <= count; i++) {
        caller_start(&f->callers[i], f->c, (int64_t)i + 1);
        wait_waiting(f->c, i + 1);
    }
}

static void join_all(fixture *f, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(f->callers[i].thread, NULL), 0);
    }
}

static void C13_callers_that_wait_share_one_transaction_in_arrival_order(void **state)
{
    fixture *f = *state;
    queue_up(f, 63);
    gate_set(&f->gate, false);
    join_all(f, 64);
    assert_int_equal(f->gate.calls, 2);
    assert_int_equal(f->gate.counts[0], 1);
    assert_int_equal(f->gate.counts[1], 63);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(f->gate.order[i], (int64_t)i + 1);
    }
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void C13_each_caller_gets_its_own_ids_and_its_own_conflict(void **state)
{
    fixture *f = *state;
    queue_up(f, 20);
    gate_set(&f->gate, false);
    join_all(f, 21);
    for (size_t i = 0; i < 21; i++) {
        const caller *k = &f->callers[i];
        const int64_t tag = (int64_t)i + 1;
        assert_int_equal(k->stream.id, tag * 10);
        assert_int_equal(k->status, tag % 5 == 0 ? WEIR_ECONFLICT : WEIR_OK);
        assert_int_equal(k->err.actual, tag % 5 == 0 ? tag : 0);
    }
}

static void C13_a_failed_batch_is_run_again_one_by_one(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EIO;
    f->gate.alone_fails_tag = 3;
    queue_up(f, 3);
    gate_set(&f->gate, false);
    join_all(f, 4);
    assert_int_equal(f->gate.calls, 1 + 1 + 3);
    assert_int_equal(f->callers[1].status, WEIR_OK);
    assert_int_equal(f->callers[2].status, WEIR_EIO); /* tag 3: its own trouble, nobody else's */
    assert_string_equal(f->callers[2].err.message, "this one fails alone");
    assert_int_equal(f->callers[3].status, WEIR_OK);
}

static void a_store_that_is_busy_is_not_asked_once_more_for_each(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EBUSY;
    queue_up(f, 3);
    gate_set(&f->gate, false);
    join_all(f, 4);
    assert_int_equal(f->gate.calls, 2);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(f->callers[i].status, WEIR_EBUSY);
        assert_string_equal(f->callers[i].err.message, "the batch failed");
    }
}

static void C14_what_may_have_happened_is_repeated_only_under_a_key(void **state)
{
    fixture *f = *state;
    f->gate.batch_fails = WEIR_EUNKNOWN;
    caller_start(&f->callers[0], f->c, 1);
    wait_inside(&f->gate, 1);
    for (size_t i = 1; i <= 2; i++) {
        caller *k = &f->callers[i];
        *k = (caller){ .c = f->c, .stream = { .name = weir__str("s"), .version = (int64_t)i + 1 } };
        k->append = (store_append){ .streams = &k->stream,
                                    .streams_count = 1,
                                    .err = &k->err,
                                    .key = weir__str(i == 2 ? "key" : NULL) };
        assert_int_equal(pthread_create(&k->thread, NULL, caller_run, k), 0);
        wait_waiting(f->c, i + 1);
    }
    gate_set(&f->gate, false);
    join_all(f, 3);
    assert_int_equal(f->callers[1].status, WEIR_EUNKNOWN);
    assert_int_equal(f->callers[2].status, WEIR_OK);
    assert_int_equal(f->gate.calls, 1 + 1 + 1);
}

static void C13_a_caller_whose_time_is_not_up_goes_on_waiting_for_a_busy_store(void **state)
{
    fixture *f = *state;
    const int64_t past_us = weir__clock_mono(weir__clock_machine());
    const int64_t deadlines_us[] = { 0, past_us, past_us, INT64_MAX, INT64_MAX };
    f->gate.batch_fails = WEIR_EBUSY;
    f->gate.batch_fails_left = 1;
    caller_start(&f->callers[0], f->c, 1);
    wait_inside(&f->gate, 1);
    for (size_t i = 1; i <= 4; i++) {
        caller_start_until(&f->callers[i], f->c, (int64_t)i + 1, deadlines_us[i]);
        wait_waiting(f->c, i + 1);
    }
    gate_set(&f->gate, false);
    join_all(f, 5);
    assert_int_equal(f->gate.calls, 3);
    assert_int_equal(f->gate.counts[1], 4);
    assert_int_equal(f->gate.counts[2], 2);
    assert_int_equal(f->callers[1].status, WEIR_EBUSY);
    assert_int_equal(f->callers[2].status, WEIR_EBUSY);
    assert_int_equal(f->callers[3].status, WEIR_OK);
    assert_int_equal(f->callers[4].stream.id, 50); /* a conflict of its own, in its turn */
    assert_int_equal(f->callers[4].status, WEIR_ECONFLICT);
    assert_int_equal(f->gate.order[1], 4);
    assert_int_equal(f->gate.order[2], 5);
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void release_held(gate_store *g)
{
    weir__lock(&g->mu);
    g->held = false;
    weir__cond_broadcast(&g->opened);
    weir__unlock(&g->mu);
}

static void wait_for_held(gate_store *g, size_t count)
{
    bool there = false;
    while (!there) {
        weir__lock(&g->mu);
        there = g->held_inside == count;
        weir__unlock(&g->mu);
        (void)sched_yield();
    }
}

/* The one whose stream is held is in the middle of a batch; then it is the leader. */
static void C13_a_caller_whose_stream_is_held_waits_alone(void **state)
{
    fixture *f = *state;
    f->gate.held = true;
    f->gate.held_tag = 4;
    queue_up(f, 7);
    gate_set(&f->gate, false);
    for (size_t i = 0; i < 8; i++) {
        if (i != 3) {
            assert_int_equal(pthread_join(f->callers[i].thread, NULL), 0);
        }
    }
    wait_for_held(&f->gate, 1);
    /* Whoever comes now is not held up, be it alone in its batch. */
    caller_start(&f->callers[8], f->c, 9);
    assert_int_equal(pthread_join(f->callers[8].thread, NULL), 0);
    assert_int_equal(f->callers[8].status, WEIR_OK);
    caller_start(&f->callers[9], f->c, 4);
    wait_for_held(&f->gate, 2);
    caller_start(&f->callers[10], f->c, 11);
    assert_int_equal(pthread_join(f->callers[10].thread, NULL), 0);
    release_held(&f->gate);
    assert_int_equal(pthread_join(f->callers[3].thread, NULL), 0);
    assert_int_equal(pthread_join(f->callers[9].thread, NULL), 0);
    assert_int_equal(f->callers[3].status, WEIR_OK);
    assert_int_equal(f->callers[3].stream.id, 40);
    assert_int_equal(f->callers[9].status, WEIR_OK);
    assert_int_equal(weir__committer_waiting(f->c), 0);
}

static void a_batch_has_at_most_256_callers(void **state)
{
    fixture *f = *state;
    queue_up(f, COMMITTER_BATCH_CALLERS_MAX + 1);
    gate_set(&f->gate, false);
    join_all(f, COMMITTER_BATCH_CALLERS_MAX + 2);
    assert_int_equal(f->gate.counts[1], COMMITTER_BATCH_CALLERS_MAX);
    assert_int_equal(f->gate.counts[2], 1);
}

static void the_1025th_waiting_caller_is_told_to_come_back(void **state)
{
    fixture *f = *state;
    store_append_stream stream = { .name = weir__str("s"), .version = 1 };
    weir_error err;
    store_append append = { .streams = &stream, .streams_count = 1, .err = &err };
    queue_up(f, COMMITTER_WAITING_MAX - 1);
    assert_int_equal(weir__committer_append(f->c, &append), WEIR_EBUSY);
    gate_set(&f->gate, false);
    join_all(f, COMMITTER_WAITING_MAX);
    assert_int_equal(weir__committer_append(f->c, &append), WEIR_OK);
}

static void a_batch_ends_where_it_would_become_too_large(void **state)
{
    fixture *f = *state;
    static store_new_event events[COMMITTER_BATCH_EVENTS_MAX];
    caller_start(&f->callers[0], f->c, 1);
    wait_inside(&f->gate, 1);
    for (size_t i = 1; i <= 3; i++) {
        caller *k = &f->callers[i];
        *k = (caller){ .c = f->c, .stream = { .name = weir__str("s"), .version = (int64_t)i + 1 } };
        k->append = (store_append){ .streams = &k->stream,
                                    .streams_count = 1,
                                    .err = &k->err,
                                    .events = events,
                                    .events_count = COMMITTER_BATCH_EVENTS_MAX };
        assert_int_equal(pthread_create(&k->thread, NULL, caller_run, k), 0);
        wait_waiting(f->c, i + 1);
    }
    gate_set(&f->gate, false);
    join_all(f, 4);
    assert_int_equal(f->gate.calls, 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            C13_callers_that_wait_share_one_transaction_in_arrival_order, setup, teardown),
        cmocka_unit_test_setup_teardown(C13_each_caller_gets_its_own_ids_and_its_own_conflict,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(C13_a_failed_batch_is_run_again_one_by_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_store_that_is_busy_is_not_asked_once_more_for_each, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(C14_what_may_have_happened_is_repeated_only_under_a_key,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            C13_a_caller_whose_time_is_not_up_goes_on_waiting_for_a_busy_store, setup, teardown),
        cmocka_unit_test_setup_teardown(C13_a_caller_whose_stream_is_held_waits_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_batch_has_at_most_256_callers, setup, teardown),
        cmocka_unit_test_setup_teardown(the_1025th_waiting_caller_is_told_to_come_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_batch_ends_where_it_would_become_too_large, setup,
                                        teardown),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("committer", tests, NULL, NULL);
}
