/* name_index_test.c - the index of names against a sorted array: many additions in random order,
 * the removals that undo them, seeks between them, and allocations that fail while it grows. */
#include "base/memory.h"
#include "base/str.h"
#include "store/memory/name_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NAMES = 20000, FEW = 500 }; /* NAMES: more than two levels of 64 */

typedef struct entry {
    table_item item;
    char name[16];
} entry;

static entry entries[NAMES]; /* in bytewise order */

static int compare_entries(const void *a, const void *b)
{
    return weir__str_compare(((const entry *)a)->item.key, ((const entry *)b)->item.key);
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        const int len = snprintf(entries[i].name, sizeof entries[i].name, "name-%zu", i * 3);
        entries[i].item.key = (weir_str){ .ptr = entries[i].name, .len = (size_t)len };
    }
    qsort(entries, NAMES, sizeof entries[0], compare_entries);
    for (size_t i = 0; i < NAMES; i++) { /* sorting has moved the names */
        entries[i].item.key.ptr = entries[i].name;
    }
    return 0;
}

/* All indexes once, in an order that looks random: the step has no common divisor with NAMES. */
static size_t shuffled(size_t i)
{
    return i * 7919 % NAMES;
}

static void names_come_out_in_order_whatever_the_order_they_came_in(void **state)
{
    (void)state;
    name_index index = { 0 };
    for (size_t i = 0; i < NAMES; i++) {
        assert_true(weir__name_index_add(&index, &entries[shuffled(i)].item));
    }
    assert_true(weir__name_index_is_sound(&index));
    name_cursor cursor = weir__name_index_seek(&index, (weir_str){ 0 }, false);
    for (size_t i = 0; i < NAMES; i++) {
        assert_ptr_equal(weir__name_index_item(&cursor), &entries[i].item);
        weir__name_index_next(&cursor);
    }
    assert_null(weir__name_index_item(&cursor));
    weir__name_index_free(&index);
}

static void seeking_finds_the_name_or_the_one_after_it(void **state)
{
    (void)state;
    name_index index = { 0 };
    const name_cursor nowhere = weir__name_index_seek(&index, weir__str("a"), false);
    assert_null(weir__name_index_item(&nowhere));
    for (size_t i = 0; i < NAMES; i += 2) {
        assert_true(weir__name_index_add(&index, &entries[i].item));
    }
    for (size_t i = 0; i < NAMES; i++) {
        const size_t at = i % 2 == 0 ? i : i + 1;
        const size_t above = i % 2 == 0 ? i + 2 : i + 1;
        name_cursor cursor = weir__name_index_seek(&index, entries[i].item.key, false);
        assert_ptr_equal(weir__name_index_item(&cursor), at < NAMES ? &entries[at].item : NULL);
        cursor = weir__name_index_seek(&index, entries[i].item.key, true);
        assert_ptr_equal(weir__name_index_item(&cursor),
                         above < NAMES ? &entries[above].item : NULL);
    }
    weir__name_index_free(&index);
}

/* Freed names must not be needed any more: their bytes are overwritten. */
static void what_is_removed_leaves_no_trace(void **state)
{
    (void)state;
    name_index index = { 0 };
    for (size_t i = 0; i < NAMES; i++) {
        assert_true(weir__name_index_add(&index, &entries[shuffled(i)].item));
    }
    for (size_t i = NAMES; i > 0; i--) {
        entry *e = &entries[shuffled(i - 1)];
        if (shuffled(i - 1) % 10 != 0) {
            weir__name_index_remove(&index, &e->item);
            e->name[0] = 'z';
        }
    }
    assert_int_equal(index.count, NAMES / 10);
    assert_true(weir__name_index_is_sound(&index));
    name_cursor cursor = weir__name_index_seek(&index, (weir_str){ 0 }, false);
    for (size_t i = 0; i < NAMES; i += 10) {
        assert_ptr_equal(weir__name_index_item(&cursor), &entries[i].item);
        weir__name_index_next(&cursor);
    }
    for (size_t i = 0; i < NAMES; i++) {
        entries[i].name[0] = 'n';
    }
    for (size_t i = 0; i < NAMES; i++) {
        if (i % 10 != 0) {
            assert_true(weir__name_index_add(&index, &entries[i].item));
        }
    }
    assert_int_equal(index.count, NAMES);
    assert_true(weir__name_index_is_sound(&index));
    weir__name_index_free(&index);
}

static void a_failed_allocation_leaves_it_as_it_was(void **state)
{
    (void)state;
    name_index index = { 0 };
    size_t failures = 0;
    for (size_t i = 0; i < FEW; i++) {
        table_item *item = &entries[shuffled(i)].item;
        bool added = false;
        for (uint64_t nth = 1; !added; nth++) {
            weir__memory_fail_nth(nth);
            added = weir__name_index_add(&index, item);
            failures += weir__memory_failed();
            assert_int_equal(added, !weir__memory_failed());
            weir__memory_fail_nth(0);
            assert_int_equal(index.count, i + added);
            assert_true(weir__name_index_is_sound(&index));
        }
    }
    assert_true(failures > FEW / 64); /* the leaves were split, and every split can fail */
    weir__name_index_free(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_come_out_in_order_whatever_the_order_they_came_in),
        cmocka_unit_test(seeking_finds_the_name_or_the_one_after_it),
        cmocka_unit_test(what_is_removed_leaves_no_trace),
        cmocka_unit_test(a_failed_allocation_leaves_it_as_it_was),
    };
    return cmocka_run_group_tests_name("name_index", tests, setup, NULL);
}
