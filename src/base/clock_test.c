/* clock_test.c - the machine's clocks, and the steady clock over clocks that are moved by hand. */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

typedef struct hands {
    int64_t wall_us;
    int64_t mono_us;
} hands;

static int64_t hands_wall(void *ctx)
{
    return ((const hands *)ctx)->wall_us;
}

static int64_t hands_mono(void *ctx)
{
    return ((const hands *)ctx)->mono_us;
}

static weir_clock clock_of(hands *h)
{
    return (weir_clock){ .wall_us = hands_wall, .mono_us = hands_mono, .ctx = h };
}

static void wall_time_is_between_two_readings_of_the_system(void **state)
{
    (void)state;
    const weir_clock *c = weir__clock_machine();
    struct timespec before, after;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &before), 0);
    const int64_t now = weir__clock_wall(c);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &after), 0);
    assert_true(now >= (int64_t)before.tv_sec * 1000000 + before.tv_nsec / 1000);
    assert_true(now <= (int64_t)after.tv_sec * 1000000 + after.tv_nsec / 1000);
}

static void monotonic_time_advances_and_never_goes_back(void **state)
{
    (void)state;
    const weir_clock *c = weir__clock_machine();
    const int64_t start = weir__clock_mono(c);
    int64_t last = start;
    while (last - start < 2000) {
        const int64_t now = weir__clock_mono(c);
        assert_true(now >= last);
        last = now;
    }
}

static void the_boot_clock_is_the_systems_and_may_be_left_out(void **state)
{
    (void)state;
    struct timespec before, after;
    hands h = { .wall_us = 1, .mono_us = 42 };
    const weir_clock by_hand = clock_of(&h);
    assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &before), 0);
    const int64_t now = weir__clock_boottime(weir__clock_machine());
    assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &after), 0);
    assert_true(now >= (int64_t)before.tv_sec * 1000000 + before.tv_nsec / 1000);
    assert_true(now <= (int64_t)after.tv_sec * 1000000 + after.tv_nsec / 1000);
    assert_int_equal(weir__clock_boottime(&by_hand), 42); /* as the monotonic one */
}

static void a_pause_is_as_long_as_it_was_asked_for(void **state)
{
    static const int64_t pauses[] = { -1, 0, 1, 20000, 1001000 }; /* the last: past a second */
    (void)state;
    for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++) {
        const int64_t start = weir__clock_mono(weir__clock_machine());
        weir__clock_pause(pauses[i]);
        assert_true(weir__clock_mono(weir__clock_machine()) - start >= pauses[i]);
    }
}

static void steady_time_is_wall_time_while_that_advances(void **state)
{
    (void)state;
    hands h = { .wall_us = 1000000, .mono_us = 50 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    assert_int_equal(weir__steady_clock_now(&s, &c), 1000000);
    h.wall_us += 500; /* faster than the monotonic clock: the wall clock was set forward */
    h.mono_us += 10;
    assert_int_equal(weir__steady_clock_now(&s, &c), 1000500);
}

static void a_wall_clock_set_back_is_bridged_by_what_has_passed(void **state)
{
    (void)state;
    hands h = { .wall_us = 10000000, .mono_us = 0 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    assert_int_equal(weir__steady_clock_now(&s, &c), 10000000);
    h.wall_us = 4000000;
    for (int i = 1; i <= 5; i++) {
        h.mono_us += 1000;
        h.wall_us += 1000;
        assert_int_equal(weir__steady_clock_now(&s, &c), 10000000 + i * 1000);
    }
    h.wall_us = 10005001; /* the wall clock has caught up and leads again */
    assert_int_equal(weir__steady_clock_now(&s, &c), 10005001);
}

static void time_does_not_stand_still_with_the_wall_clock(void **state)
{
    (void)state;
    hands h = { .wall_us = 1000, .mono_us = 0 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    assert_int_equal(weir__steady_clock_now(&s, &c), 1000);
    h.mono_us = 7;
    assert_int_equal(weir__steady_clock_now(&s, &c), 1007);
    assert_int_equal(weir__steady_clock_now(&s, &c), 1007);
}

static void a_time_seen_elsewhere_is_a_lower_bound(void **state)
{
    (void)state;
    hands h = { .wall_us = 1000, .mono_us = 0 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    weir__steady_clock_seen(&s, &c, 5000);
    assert_int_equal(weir__steady_clock_now(&s, &c), 5000);
    weir__steady_clock_seen(&s, &c, 2000); /* nothing new */
    assert_int_equal(weir__steady_clock_now(&s, &c), 5000);
    h.mono_us += 30;
    weir__steady_clock_seen(&s, &c, 6000); /* what has passed counts from here */
    h.mono_us += 4;
    assert_int_equal(weir__steady_clock_now(&s, &c), 6004);
    h.wall_us = 9000;
    assert_int_equal(weir__steady_clock_now(&s, &c), 9000);
}

static void extremes_neither_wrap_nor_go_back(void **state)
{
    (void)state;
    hands h = { .wall_us = 1000, .mono_us = 100 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    weir__steady_clock_seen(&s, &c, INT64_MAX - 5);
    h.mono_us += 1000;
    assert_true(weir__steady_clock_now(&s, &c) == INT64_MAX);
    h.mono_us += 1000;
    assert_true(weir__steady_clock_now(&s, &c) == INT64_MAX);
}

/* Moves both clocks at random: the promise is about every sequence, not the few above. */
static void no_sequence_of_moves_makes_it_go_back(void **state)
{
    (void)state;
    uint64_t seed = 20261115;
    hands h = { .wall_us = 1000000000, .mono_us = 0 };
    const weir_clock c = clock_of(&h);
    weir_steady_clock s = { 0 };
    int64_t last = 0;
    for (int i = 0; i < 100000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int64_t mono_step = (int64_t)(seed >> 60);
        h.mono_us += mono_step;
        h.wall_us += mono_step;
        if (seed >> 40 & 1) {
            h.wall_us += (int64_t)(seed >> 20 & 0xFFFF) - 0x8000;
        }
        int64_t least = last;
        if (seed >> 41 & 1) {
            const int64_t other = h.wall_us + (int64_t)(seed >> 24 & 0xFFF) - 0x800;
            weir__steady_clock_seen(&s, &c, other);
            least = other > least ? other : least;
        }
        const int64_t now = weir__steady_clock_now(&s, &c);
        assert_true(now >= least);
        assert_true(now >= h.wall_us);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wall_time_is_between_two_readings_of_the_system),
        cmocka_unit_test(monotonic_time_advances_and_never_goes_back),
        cmocka_unit_test(the_boot_clock_is_the_systems_and_may_be_left_out),
        cmocka_unit_test(a_pause_is_as_long_as_it_was_asked_for),
        cmocka_unit_test(steady_time_is_wall_time_while_that_advances),
        cmocka_unit_test(a_wall_clock_set_back_is_bridged_by_what_has_passed),
        cmocka_unit_test(time_does_not_stand_still_with_the_wall_clock),
        cmocka_unit_test(a_time_seen_elsewhere_is_a_lower_bound),
        cmocka_unit_test(extremes_neither_wrap_nor_go_back),
        cmocka_unit_test(no_sequence_of_moves_makes_it_go_back),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
