/* stop_test.c - a stop that is polled by several threads while it is set. */
#include "base/stop.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void *wait_for_it(void *arg)
{
    const weir_stop *s = arg;
    struct pollfd fd = { .fd = weir__stop_fd(s), .events = POLLIN };
    (void)poll(&fd, 1, -1);
    return weir__stop_is_set(s) ? arg : NULL;
}

static void everybody_who_waits_is_woken_and_finds_it_set(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    weir_stop s;
    pthread_t threads[THREADS];
    assert_true(weir__stop_init(&s));
    assert_false(weir__stop_is_set(&s));
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &s), 0);
    }
    weir__stop_set(&s);
    weir__stop_set(&s);
    for (int i = 0; i < THREADS; i++) {
        void *found = NULL;
        assert_int_equal(pthread_join(threads[i], &found), 0);
        assert_ptr_equal(found, &s);
    }
    assert_ptr_equal(wait_for_it(&s), &s); /* it stays set */
    weir__stop_destroy(&s);
}

static void without_one_nothing_is_stopped(void **state)
{
    (void)state;
    assert_false(weir__stop_is_set(NULL));
    assert_int_equal(weir__stop_fd(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_who_waits_is_woken_and_finds_it_set),
        cmocka_unit_test(without_one_nothing_is_stopped),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
