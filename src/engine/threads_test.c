/* threads_test.c - wakes are not lost, due times are kept, and stopping stops. */
#include "engine/threads.h"

#include "base/str.h"
#include "base/thread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TASKS = 8, WAKES = 20000 };

typedef struct counted {
    task task; /* first */
    _Atomic int64_t asked, seen, steps;
    _Atomic bool inside;
    _Atomic bool hold; /* the step does not return while it is set */
    int64_t answer;    /* what the step returns */
} counted;

static int64_t counted_step(task *t)
{
    counted *c = (counted *)t;
    assert_false(atomic_exchange(&c->inside, true));
    atomic_store(&c->seen, atomic_load(&c->asked));
    atomic_fetch_add(&c->steps, 1);
    while (atomic_load(&c->hold)) {
        (void)sched_yield();
    }
    atomic_store(&c->inside, false);
    return c->answer;
}

static void counted_init(counted *c, int64_t answer)
{
    *c = (counted){ .task = { .step = counted_step, .name = "counted" }, .answer = answer };
}

static int64_t mono_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

static void *wake_all(void *arg)
{
    counted *list = arg;
    for (int i = 0; i < WAKES; i++) {
        counted *c = &list[i % TASKS];
        atomic_fetch_add(&c->asked, 1);
        weir__task_wake(&c->task);
    }
    return NULL;
}

static void a_wake_is_never_lost(void **state)
{
    (void)state;
    counted list[TASKS];
    task *tasks[TASKS];
    pthread_t wakers[3];
    threads *t = NULL;
    assert_int_equal(weir__threads_open(&t, NULL), WEIR_OK);
    for (size_t i = 0; i < TASKS; i++) {
        counted_init(&list[i], TASK_WAIT);
        tasks[i] = &list[i].task;
    }
    assert_int_equal(weir__threads_start(t, tasks, TASKS, NULL), WEIR_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&wakers[i], NULL, wake_all, list), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(wakers[i], NULL), 0);
    }
    for (size_t i = 0; i < TASKS; i++) { /* hangs when one is lost */
        while (atomic_load(&list[i].seen) != 3 * WAKES / TASKS) {
            (void)sched_yield();
        }
    }
    assert_true(weir__threads_stop(t, mono_us() + 10000000));
    weir__threads_free(t);
}

static void a_task_is_run_when_it_is_due_and_at_once_when_it_says_so(void **state)
{
    (void)state;
    counted now, later, never;
    task *tasks[] = { &now.task, &later.task, &never.task };
    threads *t = NULL;
    assert_int_equal(weir__threads_open(&t, NULL), WEIR_OK);
    const int64_t begin_us = mono_us();
    counted_init(&now, TASK_NOW);
    counted_init(&later, begin_us + 50000);
    counted_init(&never, TASK_WAIT);
    assert_int_equal(weir__threads_start(t, tasks, 3, NULL), WEIR_OK);
    while (atomic_load(&later.steps) < 2) {
        (void)sched_yield();
    }
    assert_true(mono_us() >= begin_us + 50000);
    assert_true(atomic_load(&now.steps) > 2);
    assert_true(atomic_load(&never.steps) <= 1);
    assert_true(weir__threads_stop(t, mono_us() + 10000000));
    weir__threads_free(t);
}

static void stopping_waits_no_longer_than_it_may_and_begins_no_step(void **state)
{
    (void)state;
    counted held;
    task *tasks[] = { &held.task };
    threads *t = NULL;
    assert_int_equal(weir__threads_open(&t, NULL), WEIR_OK);
    counted_init(&held, TASK_NOW);
    atomic_store(&held.hold, true);
    assert_int_equal(weir__threads_start(t, tasks, 1, NULL), WEIR_OK);
    while (atomic_load(&held.steps) == 0) {
        (void)sched_yield();
    }
    assert_false(weir__threads_stop(t, mono_us() + 20000));
    atomic_store(&held.hold, false);
    assert_true(weir__threads_stop(t, INT64_MAX));
    assert_int_equal(atomic_load(&held.steps), 1);
    weir__threads_free(t);
}

static void told(void *ctx)
{
    atomic_fetch_add((_Atomic int *)ctx, 1);
}

static void who_watches_is_told_of_what_happens_in_the_store(void **state)
{
    (void)state;
    threads *t = NULL;
    weir_store *store = NULL;
    _Atomic int count = 0;
    const store_options options = { .clock = weir__clock_machine(), .application = "test" };
    assert_int_equal(weir__memory_open(&store, &options, NULL), WEIR_OK);
    assert_int_equal(weir__threads_open(&t, NULL), WEIR_OK);
    assert_int_equal(weir__threads_watch(t, store, told, &count, NULL), WEIR_OK);
    while (atomic_load(&count) == 0) { /* once at the beginning */
        (void)sched_yield();
    }
    bool changed = false;
    assert_int_equal(store->work->lane_pause(store, weir__str("default"), true, weir__str("test"),
                                             &changed, NULL),
                     WEIR_OK);
    while (atomic_load(&count) < 2) {
        (void)sched_yield();
    }
    assert_true(weir__threads_stop(t, mono_us() + 10000000));
    weir__threads_free(t);
    store->about->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_is_never_lost),
        cmocka_unit_test(a_task_is_run_when_it_is_due_and_at_once_when_it_says_so),
        cmocka_unit_test(stopping_waits_no_longer_than_it_may_and_begins_no_step),
        cmocka_unit_test(who_watches_is_told_of_what_happens_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
