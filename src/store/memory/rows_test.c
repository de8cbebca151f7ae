/* rows_test.c - sorted arrays of rows, and undoing.
 *
 * Method: random puts, removals and undoings on a table and on a model of it: an array that says
 * which value each key has. After each step both must say the same.
 */
#include "store/memory/rows.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { KEYS = 40, STEPS = 20000 };

typedef struct pair {
    weir_str text;
    int64_t number;
    weir_str value;
} pair;

static const row_kind pair_kind = {
    .bytes = sizeof(pair),
    .texts_count = 2,
    .texts = { offsetof(pair, text), offsetof(pair, value) },
    .by_text = true,
    .numbers_count = 1,
    .numbers = { offsetof(pair, number) },
};

/* The same rows in another order: by the number alone. */
static const row_kind number_kind = {
    .bytes = sizeof(pair),
    .numbers_count = 1,
    .numbers = { offsetof(pair, number) },
    .shared = true,
};

static bool pair_put(row_changes *c, row_table *t, const char *text, int64_t number,
                     const char *value)
{
    const pair p = { .text = weir__str(text), .number = number, .value = weir__str(value) };
    return weir__rows_put(c, t, &p);
}

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

/* "" when there is none. */
static weir_str pair_value(const row_table *t, const char *text, int64_t number)
{
    const pair key = { .text = weir__str(text), .number = number };
    const pair *found = weir__rows_find(t, &key);
    return found == NULL ? weir__str("") : found->value;
}

static void rows_are_in_the_order_of_text_then_numbers(void **state)
{
    (void)state;
    row_changes c = { 0 };
    row_table t = { .kind = &pair_kind };
    char text[] = "b";
    assert_true(pair_put(&c, &t, text, 2, "b2"));
    text[0] = 'x'; /* the row has its own copy */
    assert_true(pair_put(&c, &t, "b", -1, "b-1"));
    assert_true(pair_put(&c, &t, "ab", 9, "ab9"));
    assert_true(pair_put(&c, &t, "b", 2, "again"));
    weir__changes_keep(&c);
    assert_int_equal(t.count, 3);
    assert_true(weir__str_equal(((const pair *)t.rows[0])->value, weir__str("ab9")));
    assert_true(weir__str_equal(((const pair *)t.rows[1])->value, weir__str("b-1")));
    assert_true(weir__str_equal(((const pair *)t.rows[2])->value, weir__str("again")));
    assert_int_equal(weir__rows_seek(&t, &(pair){ .text = weir__str("b"), .number = 0 }), 2);
    assert_int_equal(weir__rows_seek(&t, &(pair){ .text = weir__str("c") }), 3);
    assert_null(weir__rows_find(&t, &(pair){ .text = weir__str("b"), .number = 1 }));
    weir__rows_free(&t);
    weir__free(c.list);
}

static void undoing_ends_where_the_model_was(void **state)
{
    (void)state;
    row_changes c = { 0 };
    row_table t = { .kind = &pair_kind };
    uint64_t random = 42;
    int64_t now[KEYS] = { 0 }, before[KEYS] = { 0 }; /* 0: there is none */
    for (int64_t step = 1; step <= STEPS; step++) {
        char value[24];
        const size_t key = (size_t)(random_next(&random) % KEYS);
        const uint64_t what = random_next(&random) % 20;
        (void)snprintf(value, sizeof value, "%lld", (long long)step);
        if (what < 12) {
            assert_true(pair_put(&c, &t, "k", (int64_t)key, value));
            now[key] = step;
        } else if (what < 18 && now[key] != 0) {
            const pair p = { .text = weir__str("k"), .number = (int64_t)key };
            assert_true(weir__rows_remove(&c, &t, &p));
            now[key] = 0;
        } else if (what == 18) {
            weir__changes_undo(&c, 0);
            memcpy(now, before, sizeof now);
        } else if (what == 19) {
            weir__changes_keep(&c);
            memcpy(before, now, sizeof now);
        }
        size_t count = 0;
        for (size_t i = 0; i < KEYS; i++) {
            (void)snprintf(value, sizeof value, "%lld", (long long)now[i]);
            count += now[i] != 0;
            assert_true(weir__str_equal(pair_value(&t, "k", (int64_t)i),
                                        weir__str(now[i] == 0 ? "" : value)));
        }
        assert_int_equal(t.count, count);
    }
    weir__changes_undo(&c, 0);
    weir__rows_free(&t);
    weir__free(c.list);
}

static void a_part_of_the_changes_is_undone(void **state)
{
    (void)state;
    row_changes c = { 0 };
    row_table t = { .kind = &pair_kind }, by_number = { .kind = &number_kind };
    assert_true(pair_put(&c, &t, "b", 1, "one"));
    assert_true(weir__rows_share(&c, &by_number, t.rows[0]));
    const size_t part = c.count;
    assert_true(pair_put(&c, &t, "a", 2, "two"));
    assert_true(weir__rows_share(&c, &by_number, t.rows[0]));
    assert_ptr_equal(by_number.rows[1], t.rows[0]);
    weir__changes_undo(&c, part);
    weir__changes_keep(&c);
    assert_int_equal(t.count, 1);
    assert_int_equal(by_number.count, 1);
    assert_ptr_equal(by_number.rows[0], t.rows[0]);
    weir__rows_free(&by_number);
    weir__rows_free(&t);
    weir__free(c.list);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) { /* the changes, the array, the row */
        row_changes c = { 0 };
        row_table t = { .kind = &pair_kind };
        weir__memory_fail_nth(nth);
        assert_false(pair_put(&c, &t, "a", 1, "x"));
        weir__memory_fail_nth(0);
        assert_int_equal(t.count, 0);
        assert_int_equal(c.count, 0);
        assert_true(pair_put(&c, &t, "a", 1, "x"));
        weir__changes_keep(&c);
        weir__rows_free(&t);
        weir__free(c.list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_the_order_of_text_then_numbers),
        cmocka_unit_test(undoing_ends_where_the_model_was),
        cmocka_unit_test(a_part_of_the_changes_is_undone),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
