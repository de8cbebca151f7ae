/* room_test.c - the limit is kept to the byte, a lane that holds nothing is never refused, and who
 * was refused is told. */
#include "engine/room.h"

#include "store/store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static _Atomic size_t told;

static void tell(void *ctx)
{
    (void)ctx;
    told++;
}

static room room_of(int64_t bytes)
{
    told = 0;
    return (room){ .bytes_max = bytes };
}

static room r;
static room_share a, b;

/* Two lanes share a thousand bytes. */
static int begin(void **state)
{
    (void)state;
    r = room_of(1000);
    weir__room_share(&a, &r, tell, NULL);
    weir__room_share(&b, &r, tell, NULL);
    return 0;
}

static void up_to_the_limit_and_not_past_it(void **state)
{
    (void)state;
    int64_t first = 600, second = 400;
    assert_true(weir__room_take(&a, first));
    assert_false(weir__room_is_there(&a, second + 1));
    assert_false(weir__room_take(&a, second + 1));
    assert_true(weir__room_is_there(&a, second));
    assert_true(weir__room_take(&a, second));
    assert_int_equal(r.used, 1000);
    assert_false(weir__room_take(&a, 1));
    weir__room_correct(&a, &first, 0);
    weir__room_correct(&a, &second, 0);
    assert_int_equal(r.used, 0);
    assert_int_equal(a.used, 0);
}

static void what_is_larger_than_the_limit_is_taken_alone(void **state)
{
    (void)state;
    int64_t large = 5000, small = 1;
    assert_true(weir__room_take(&a, large));
    assert_false(weir__room_take(&a, small));
    weir__room_correct(&a, &large, 0);
    assert_true(weir__room_take(&a, small));
    assert_false(weir__room_take(&a, 5000));
    weir__room_correct(&a, &small, 0);
}

static void a_lane_that_holds_nothing_gets_room_whatever_others_hold(void **state)
{
    (void)state;
    int64_t all = 1000, some = 300;
    assert_true(weir__room_take(&a, all));
    assert_true(weir__room_take(&b, some));
    assert_false(weir__room_take(&b, 1));
    assert_false(weir__room_take(&a, 1));
    assert_int_equal(r.used, 1300);
    weir__room_correct(&b, &some, 0);
    assert_true(weir__room_take(&b, 1));
}

static void who_was_refused_is_told_once_when_some_is_given_back(void **state)
{
    (void)state;
    int64_t all = 1000;
    assert_true(weir__room_take(&a, all));
    weir__room_correct(&a, &all, 900);
    assert_int_equal(told, 0); /* nobody was refused */
    assert_false(weir__room_take(&a, 200));
    weir__room_correct(&a, &all, 950); /* it was more after all */
    weir__room_correct(&a, &all, 801);
    assert_int_equal(told, 0); /* it would be refused again */
    weir__room_correct(&a, &all, 800);
    assert_int_equal(told, 1);
    weir__room_correct(&a, &all, 0);
    assert_int_equal(told, 1);
}

static void who_was_not_refused_is_left_alone(void **state)
{
    (void)state;
    int64_t most = 900, vain = 100;
    assert_true(weir__room_take(&a, most));
    assert_false(weir__room_take(&a, 200));
    for (int i = 0; i < 3; i++) {
        assert_true(weir__room_take(&b, vain));
        weir__room_correct(&b, &vain, 0);
        vain = 100;
        assert_int_equal(told, 0); /* neither b nor a, for whom it is not enough */
    }
    weir__room_correct(&a, &most, 0);
    assert_int_equal(told, 1);
}

static void a_fetch_is_a_part_of_the_limit(void **state)
{
    (void)state;
    const room usual = room_of(ROOM_BYTES_DEFAULT), least = room_of(ROOM_BYTES_MIN),
               small = room_of(16 << 20), none = room_of(1);
    assert_int_equal(weir__room_fetch_bytes(&usual), STORE_FETCH_BYTES_SOFT);
    assert_int_equal(weir__room_fetch_bytes(&small), 2 << 20);
    assert_int_equal(weir__room_fetch_bytes(&least), 128 << 10);
    assert_int_equal(weir__room_fetch_bytes(&none), 64 << 10);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 8, TURNS = 20000 };

typedef struct taker {
    room_share *share;
    int64_t bytes;
    int64_t most; /* that was seen to be in use */
    size_t taken;
} taker;

static void *take_and_give(void *ctx)
{
    taker *t = ctx;
    for (size_t i = 0; i < TURNS; i++) {
        int64_t mine = t->bytes;
        if (weir__room_take(t->share, mine)) {
            const int64_t used = t->share->room->used;
            t->most = used > t->most ? used : t->most;
            t->taken++;
            weir__room_correct(t->share, &mine, mine / 2);
            weir__room_correct(t->share, &mine, 0);
        }
    }
    return NULL;
}

static void many_threads_stay_within_the_limit(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    taker takers[THREADS] = { 0 };
    for (size_t i = 0; i < THREADS; i++) {
        takers[i] = (taker){ .share = i % 2 == 0 ? &a : &b, .bytes = 200 + (int64_t)i };
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &takers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(takers[i].taken > 0);
        assert_in_range(takers[i].most, 1, 1000 + 2 * 207); /* and one more for each lane */
    }
    assert_int_equal(r.used, 0);
    assert_int_equal(a.used + b.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(up_to_the_limit_and_not_past_it, begin),
        cmocka_unit_test_setup(what_is_larger_than_the_limit_is_taken_alone, begin),
        cmocka_unit_test_setup(a_lane_that_holds_nothing_gets_room_whatever_others_hold, begin),
        cmocka_unit_test_setup(who_was_refused_is_told_once_when_some_is_given_back, begin),
        cmocka_unit_test_setup(who_was_not_refused_is_left_alone, begin),
        cmocka_unit_test_setup(a_fetch_is_a_part_of_the_limit, begin),
        cmocka_unit_test_setup(many_threads_stay_within_the_limit, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
