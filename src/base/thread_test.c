/* thread_test.c - locks, waits with a deadline, noticing a fork. Each wait is for a condition. */
#include "base/clock.h"
#include "base/thread.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 20000 };

typedef struct shared {
    weir_mutex mu;
    weir_cond cond;
    /* guarded by mu */
    int64_t count;
    int turn;
    bool ready;
} shared;

static void shared_init(shared *s)
{
    *s = (shared){ .count = 0 };
    assert_true(weir__mutex_init(&s->mu));
    assert_true(weir__cond_init(&s->cond));
}

static void shared_destroy(shared *s)
{
    weir__cond_destroy(&s->cond);
    weir__mutex_destroy(&s->mu);
}

static void *count_up(void *ctx)
{
    shared *s = ctx;
    for (int i = 0; i < ROUNDS; i++) {
        weir__lock(&s->mu);
        s->count++;
        weir__unlock(&s->mu);
    }
    return NULL;
}

static void a_lock_lets_one_thread_in(void **state)
{
    (void)state;
    shared s;
    pthread_t threads[THREADS];
    shared_init(&s);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &s), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(s.count, THREADS * ROUNDS);
    shared_destroy(&s);
}

static void *play_back(void *ctx)
{
    shared *s = ctx;
    for (int i = 0; i < 1000; i++) {
        weir__lock(&s->mu);
        while (s->turn != 1) {
            weir__cond_wait(&s->cond, &s->mu);
        }
        s->turn = 0;
        weir__cond_signal(&s->cond);
        weir__unlock(&s->mu);
    }
    return NULL;
}

static void a_signal_is_never_lost_between_two_threads(void **state)
{
    (void)state;
    shared s;
    pthread_t thread;
    shared_init(&s);
    assert_int_equal(pthread_create(&thread, NULL, play_back, &s), 0);
    for (int i = 0; i < 1000; i++) {
        weir__lock(&s.mu);
        s.turn = 1;
        weir__cond_signal(&s.cond);
        while (s.turn != 0) {
            weir__cond_wait(&s.cond, &s.mu);
        }
        weir__unlock(&s.mu);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    shared_destroy(&s);
}

static void *wait_for_ready(void *ctx)
{
    shared *s = ctx;
    weir__lock(&s->mu);
    s->count++;
    weir__cond_broadcast(&s->cond);
    while (!s->ready) {
        weir__cond_wait(&s->cond, &s->mu);
    }
    weir__unlock(&s->mu);
    return NULL;
}

static void a_broadcast_wakes_everyone(void **state)
{
    (void)state;
    shared s;
    pthread_t threads[THREADS];
    shared_init(&s);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ready, &s), 0);
    }
    weir__lock(&s.mu);
    while (s.count < THREADS) {
        weir__cond_wait(&s.cond, &s.mu);
    }
    s.ready = true;
    weir__cond_broadcast(&s.cond);
    weir__unlock(&s.mu);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    shared_destroy(&s);
}

static void a_wait_ends_at_its_deadline_and_not_before(void **state)
{
    (void)state;
    const weir_clock *c = weir__clock_machine();
    shared s;
    shared_init(&s);
    weir__lock(&s.mu);
    const int64_t deadline = weir__clock_mono(c) + 20000;
    while (weir__cond_wait_until(&s.cond, &s.mu, deadline)) {
        /* woken for no reason, which is allowed */
    }
    assert_true(weir__clock_mono(c) >= deadline);
    /* Deadlines that have passed, however long ago, do not wait at all. */
    assert_false(weir__cond_wait_until(&s.cond, &s.mu, deadline));
    assert_false(weir__cond_wait_until(&s.cond, &s.mu, 0));
    assert_false(weir__cond_wait_until(&s.cond, &s.mu, -1));
    assert_false(weir__cond_wait_until(&s.cond, &s.mu, INT64_MIN));
    weir__unlock(&s.mu);
    shared_destroy(&s);
}

static void *make_ready(void *ctx)
{
    shared *s = ctx;
    weir__lock(&s->mu);
    s->ready = true;
    weir__cond_signal(&s->cond);
    weir__unlock(&s->mu);
    return NULL;
}

static void a_signal_ends_a_wait_long_before_its_deadline(void **state)
{
    (void)state;
    shared s;
    pthread_t thread;
    shared_init(&s);
    weir__lock(&s.mu);
    assert_int_equal(pthread_create(&thread, NULL, make_ready, &s), 0);
    while (!s.ready) { /* a deadline that never comes: only the signal can end this */
        assert_true(weir__cond_wait_until(&s.cond, &s.mu, INT64_MAX));
    }
    weir__unlock(&s.mu);
    assert_int_equal(pthread_join(thread, NULL), 0);
    shared_destroy(&s);
}

static int exit_status_of(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void each_fork_is_a_new_generation_for_the_child_alone(void **state)
{
    (void)state;
    const uint32_t mine = weir__fork_generation();
    assert_int_equal(weir__fork_generation(), mine);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const uint32_t in_child = weir__fork_generation();
        if (in_child == mine || weir__fork_generation() != in_child) {
            _exit(1);
        }
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            const uint32_t in_grandchild = weir__fork_generation();
            _exit(in_grandchild == in_child || in_grandchild == mine ? 2 : 0);
        }
        int status = -1;
        if (waitpid(grandchild, &status, 0) != grandchild || weir__fork_generation() != in_child) {
            _exit(3);
        }
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
    }
    assert_int_equal(exit_status_of(child), 0);
    assert_int_equal(weir__fork_generation(), mine);
}

/* ---- batons ------------------------------------------------------------------------------- */

enum { BATON_ROUNDS = 20000 };

typedef struct baton_post {
    _Atomic(weir_baton *) waiting; /* of the thread that awaits; on its stack */
    uint64_t written;              /* before passing; read after awaiting */
} baton_post;

static void *baton_passer(void *arg)
{
    baton_post *post = arg;
    for (uint32_t i = 0; i < BATON_ROUNDS; i++) {
        weir_baton *baton = NULL;
        while (baton == NULL) {
            baton = atomic_exchange(&post->waiting, NULL);
        }
        post->written = i;
        weir__baton_pass(baton, i % WEIR_BATON_MAX + 1);
    }
    return NULL;
}

/* A frame of its own for each baton, so that it is gone when await has returned. */
__attribute__((noinline)) static uint32_t baton_await_on_stack(baton_post *post)
{
    weir_baton baton = { 0 };
    atomic_store(&post->waiting, &baton);
    return weir__baton_await(&baton);
}

static void a_baton_brings_its_number_and_all_that_was_written_before(void **state)
{
    (void)state;
    static baton_post post;
    pthread_t passer;
    assert_int_equal(pthread_create(&passer, NULL, baton_passer, &post), 0);
    for (uint32_t i = 0; i < BATON_ROUNDS; i++) {
        assert_int_equal(baton_await_on_stack(&post), i % WEIR_BATON_MAX + 1);
        assert_int_equal(post.written, i);
    }
    assert_int_equal(pthread_join(passer, NULL), 0);
}

static void a_baton_that_was_passed_is_not_waited_for(void **state)
{
    (void)state;
    weir_baton baton = { 0 };
    weir__baton_pass(&baton, WEIR_BATON_MAX);
    assert_int_equal(weir__baton_await(&baton), WEIR_BATON_MAX);
}

#ifdef WEIR_DEBUG
static void unlocking_what_is_not_locked_aborts_in_test_builds(void **state) WEIR_NO_LOCK_CHECK
{
    (void)state;
    weir_mutex mu;
    assert_true(weir__mutex_init(&mu));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        weir__unlock(&mu);
        _exit(0);
    }
    assert_int_equal(exit_status_of(child), 128 + SIGABRT);
    weir__mutex_destroy(&mu);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_lets_one_thread_in),
        cmocka_unit_test(a_signal_is_never_lost_between_two_threads),
        cmocka_unit_test(a_broadcast_wakes_everyone),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_not_before),
        cmocka_unit_test(a_signal_ends_a_wait_long_before_its_deadline),
        cmocka_unit_test(a_baton_brings_its_number_and_all_that_was_written_before),
        cmocka_unit_test(a_baton_that_was_passed_is_not_waited_for),
        cmocka_unit_test(each_fork_is_a_new_generation_for_the_child_alone),
#ifdef WEIR_DEBUG
        cmocka_unit_test(unlocking_what_is_not_locked_aborts_in_test_builds),
#endif
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
