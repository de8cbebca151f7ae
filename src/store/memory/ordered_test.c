/* ordered_test.c - the ordered set against a sorted array, and what it costs.
 *
 * Method: random additions and removals (the seed is printed), after each of which the set must be
 * sound and give the same answers as the array. Costs are counted in nodes visited, not in time.
 */
#include "base/memory.h"
#include "store/memory/ordered.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { KEYS = 200, ROUNDS = 20000, MANY = 200000 };

typedef struct item {
    ordered_node node;
    int64_t key;
} item;

static int compare_items(const ordered_node *a, const ordered_node *b)
{
    const int64_t x = ORDERED_ITEM_CONST(a, item, node)->key;
    const int64_t y = ORDERED_ITEM_CONST(b, item, node)->key;
    return (x > y) - (x < y);
}

static bool reached(const void *key, const ordered_node *node)
{
    const int64_t *at = key;
    return ORDERED_ITEM_CONST(node, item, node)->key >= *at;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static int64_t key_of(const ordered_node *n)
{
    return n == NULL ? -1 : ORDERED_ITEM_CONST(n, item, node)->key;
}

/* The nearest member from `key` on, in steps of `step`; -1: none. */
static int64_t nearest(const bool *member, int64_t key, int64_t step)
{
    while (key >= 0 && key < KEYS && !member[key]) {
        key += step;
    }
    return key >= 0 && key < KEYS ? key : -1;
}

static void an_empty_set_has_no_first_last_or_sought(void **state)
{
    (void)state;
    ordered_set set;
    const int64_t key = 0;
    weir__ordered_init(&set, compare_items);
    assert_null(weir__ordered_first(&set));
    assert_null(weir__ordered_last(&set));
    assert_null(weir__ordered_seek(&set, reached, &key));
    assert_true(weir__ordered_is_sound(&set));
}

static void it_answers_like_a_sorted_array_after_every_change(void **state)
{
    (void)state;
    static item items[KEYS];
    bool member[KEYS] = { false };
    ordered_set set;
    uint64_t random = 20261115;

    print_message("# seed %llu\n", (unsigned long long)random);
    weir__ordered_init(&set, compare_items);
    for (int64_t i = 0; i < KEYS; i++) {
        items[i].key = i;
    }
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t key = (int64_t)(next_random(&random) % KEYS);
        if (member[key]) {
            weir__ordered_remove(&set, &items[key].node);
        } else {
            weir__ordered_add(&set, &items[key].node);
        }
        member[key] = !member[key];

        const int64_t probe = (int64_t)(next_random(&random) % KEYS);
        assert_true(weir__ordered_is_sound(&set));
        assert_int_equal(key_of(weir__ordered_first(&set)), nearest(member, 0, 1));
        assert_int_equal(key_of(weir__ordered_last(&set)), nearest(member, KEYS - 1, -1));
        assert_int_equal(key_of(weir__ordered_seek(&set, reached, &probe)),
                         nearest(member, probe, 1));
        if (member[probe]) {
            assert_int_equal(key_of(weir__ordered_next(&set, &items[probe].node)),
                             nearest(member, probe + 1, 1));
            assert_int_equal(key_of(weir__ordered_previous(&set, &items[probe].node)),
                             nearest(member, probe - 1, -1));
        }
    }
}

static void keys_that_come_in_order_do_not_make_it_deep(void **state)
{
    (void)state;
    item *items = weir__calloc(MANY, sizeof *items);
    ordered_set set;

    assert_non_null(items);
    weir__ordered_init(&set, compare_items);
    for (int64_t i = 0; i < MANY; i++) {
        items[i].key = i;
        weir__ordered_add(&set, &items[i].node);
    }
    assert_int_equal(set.count, MANY);

    /* 2 ln 200,000 = 24.4 is the expected depth; twice that leaves room for chance on average. */
    const uint64_t before = set.steps;
    for (int64_t key = 0; key < MANY; key += 100) {
        assert_int_equal(key_of(weir__ordered_seek(&set, reached, &key)), key);
    }
    const uint64_t average = (set.steps - before) / (MANY / 100);
    assert_in_range(average, 1, 49);

    const ordered_node *n = weir__ordered_first(&set);
    for (int64_t key = 0; key < MANY; key++) {
        assert_int_equal(key_of(n), key);
        n = weir__ordered_next(&set, n);
    }
    assert_null(n);
    weir__free(items);
}

static void what_is_broken_is_found(void **state)
{
    (void)state;
    static item items[3];
    ordered_set set;

    weir__ordered_init(&set, compare_items);
    for (int64_t i = 0; i < 3; i++) {
        items[i].key = i;
        weir__ordered_add(&set, &items[i].node);
    }
    assert_true(weir__ordered_is_sound(&set));
    items[0].key = 5; /* changed while it is in the set */
    assert_false(weir__ordered_is_sound(&set));
    items[0].key = 0;
    set.count++;
    assert_false(weir__ordered_is_sound(&set));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_set_has_no_first_last_or_sought),
        cmocka_unit_test(it_answers_like_a_sorted_array_after_every_change),
        cmocka_unit_test(keys_that_come_in_order_do_not_make_it_deep),
        cmocka_unit_test(what_is_broken_is_found),
    };
    return cmocka_run_group_tests_name("ordered", tests, NULL, NULL);
}
