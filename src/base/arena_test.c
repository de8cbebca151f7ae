/* arena_test.c - arenas: alignment, limits, reuse after a reset, and running out of memory. */
#include "base/memory.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool is_aligned(const void *ptr)
{
    return (uintptr_t)ptr % alignof(max_align_t) == 0;
}

static void allocations_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static uint8_t *ptrs[COUNT];
    static size_t sizes[COUNT];
    weir_arena a = { 0 };
    for (size_t i = 0; i < COUNT; i++) {
        sizes[i] = i * 37 % 301;
        if (i % 3 == 0) { /* copies of text lie between and need no alignment */
            static const char *const prefixes[] = { "", "n", "na", "nam", "name" };
            assert_string_equal(weir__arena_copy(&a, "name", i % 5), prefixes[i % 5]);
        }
        ptrs[i] = weir__arena_alloc(&a, sizes[i]);
        assert_non_null(ptrs[i]);
        assert_true(is_aligned(ptrs[i]));
        memset(ptrs[i], (int)(i & 0xFF), sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(ptrs[i][j], i & 0xFF);
        }
    }
    weir__arena_free(&a);
}

static void the_limit_is_a_failure_not_a_crash(void **state)
{
    (void)state;
    weir_arena a = { .bytes_max = 8192 };
    assert_null(weir__arena_alloc(&a, 8193));
    assert_null(weir__arena_alloc(&a, SIZE_MAX));
    assert_int_equal(a.bytes_used, 0);
    assert_non_null(weir__arena_alloc(&a, 100)); /* the arena still works */
    weir__arena_reset(&a);
    assert_non_null(weir__arena_alloc(&a, 8192)); /* all of it may be used, */
    assert_int_equal(a.bytes_used, 8192);
    assert_null(weir__arena_alloc(&a, 1)); /* and nothing more */
    assert_null(weir__arena_copy(&a, "", 0));
    weir__arena_reset(&a);
    assert_int_equal(a.bytes_used, 0);
    assert_non_null(weir__arena_alloc(&a, 8192)); /* a reset gives the whole limit back */
    weir__arena_free(&a);
}

static void the_limit_holds_for_many_small_allocations(void **state)
{
    (void)state;
    weir_arena a = { .bytes_max = 100000 };
    size_t count = 0;
    while (weir__arena_alloc(&a, 1) != NULL) {
        count++;
        assert_true(a.bytes_used <= a.bytes_max);
    }
    assert_true(count >= 100000 / alignof(max_align_t));
    assert_true(count <= 100000 / alignof(max_align_t) + 1 + 100000 / 4096);
    weir__arena_free(&a);
}

static void a_reset_arena_reuses_its_block_without_the_heap(void **state)
{
    (void)state;
    weir_arena a = { 0 };
    for (int i = 0; i < 50; i++) {
        assert_non_null(weir__arena_alloc(&a, 1000));
    }
    weir__arena_reset(&a);
    for (int round = 0; round < 3; round++) {
        weir__memory_fail_nth(1); /* any allocation from the heap would fail */
        assert_non_null(weir__arena_alloc(&a, 1000));
        assert_false(weir__memory_failed());
        weir__memory_fail_nth(0);
        weir__arena_reset(&a);
    }
    weir__arena_free(&a);
}

static void a_block_over_one_mebibyte_does_not_outlive_a_reset(void **state)
{
    (void)state;
    weir_arena a = { 0 };
    assert_non_null(weir__arena_alloc(&a, 1024 * 1024));
    weir__arena_reset(&a);
    assert_non_null(a.blocks);
    weir__memory_fail_nth(1);
    assert_non_null(weir__arena_alloc(&a, 1024 * 1024)); /* one mebibyte was kept */
    weir__memory_fail_nth(0);
    weir__arena_free(&a);

    assert_non_null(weir__arena_alloc(&a, 1024 * 1024 + 1));
    weir__arena_reset(&a);
    assert_null(a.blocks);
    weir__arena_free(&a);
}

static void out_of_memory_leaves_the_arena_usable(void **state)
{
    (void)state;
    weir_arena a = { 0 };
    char *first = weir__arena_copy(&a, "first", 5);
    assert_non_null(first);
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        weir__memory_fail_nth(nth);
        for (int i = 0; i < 20; i++) {
            const size_t used = a.bytes_used;
            if (weir__arena_alloc(&a, 3000) == NULL) {
                assert_true(weir__memory_failed());
                assert_int_equal(a.bytes_used, used);
                assert_non_null(weir__arena_alloc(&a, 3000));
            }
        }
        failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_string_equal(first, "first");
        if (failed) {
            weir__arena_free(&a);
            first = weir__arena_copy(&a, "first", 5);
            assert_non_null(first);
        }
        assert_true(nth < 100);
    }
    weir__arena_free(&a);
}

static void copies_end_with_nul_and_may_hold_one(void **state)
{
    (void)state;
    weir_arena a = { 0 };
    assert_memory_equal(weir__arena_copy(&a, "a\0b", 3), "a\0b", 4);
    assert_string_equal(weir__arena_copy(&a, NULL, 0), "");
    assert_null(weir__arena_copy(&a, "x", SIZE_MAX));
    weir__arena_free(&a);
}

static void freeing_twice_and_freeing_nothing_is_harmless(void **state)
{
    (void)state;
    weir_arena a = { 0 };
    weir__arena_reset(&a);
    weir__arena_free(&a);
    assert_non_null(weir__arena_alloc(&a, 0));
    weir__arena_free(&a);
    weir__arena_free(&a);
    assert_non_null(weir__arena_alloc(&a, 10)); /* an arena that was freed is an empty one */
    weir__arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_do_not_overlap),
        cmocka_unit_test(the_limit_is_a_failure_not_a_crash),
        cmocka_unit_test(the_limit_holds_for_many_small_allocations),
        cmocka_unit_test(a_reset_arena_reuses_its_block_without_the_heap),
        cmocka_unit_test(a_block_over_one_mebibyte_does_not_outlive_a_reset),
        cmocka_unit_test(out_of_memory_leaves_the_arena_usable),
        cmocka_unit_test(copies_end_with_nul_and_may_hold_one),
        cmocka_unit_test(freeing_twice_and_freeing_nothing_is_harmless),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
