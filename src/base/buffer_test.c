/* buffer_test.c - growing runs of bytes. */
#include "base/memory.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void what_is_added_comes_out_in_order(void **state)
{
    (void)state;
    weir_buffer b = { 0 };
    for (int i = 0; i < 5000; i++) {
        const char byte = (char)i;
        assert_true(weir__buffer_add(&b, &byte, 1));
    }
    assert_int_equal(b.len, 5000);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(b.ptr[i], (char)i);
    }
    weir__buffer_free(&b);
    assert_null(b.ptr);
    assert_int_equal(b.len, 0);
    assert_int_equal(b.capacity, 0);
}

static void adding_nothing_to_nothing_allocates_nothing(void **state)
{
    (void)state;
    weir_buffer b = { 0 };
    assert_true(weir__buffer_add(&b, NULL, 0));
    assert_true(weir__buffer_add_text(&b, ""));
    assert_true(weir__buffer_reserve(&b, 0));
    assert_null(b.ptr);
    weir__buffer_free(&b);
    weir__buffer_free(&b);
}

static void integers_are_written_as_printf_writes_them(void **state)
{
    (void)state;
    static const int64_t values[] = {
        0,           1,
        -1,          9,
        10,          -10,
        99,          100,
        2147483647,  2147483648,
        -2147483649, 4294967296,
        INT64_MAX,   INT64_MAX - 1,
        INT64_MIN,   INT64_MIN + 1,
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        weir_buffer b = { 0 };
        char expected[32];
        const int len = snprintf(expected, sizeof expected, "%" PRId64, values[i]);
        assert_true(weir__buffer_add_i64(&b, values[i]));
        assert_int_equal(b.len, len);
        assert_memory_equal(b.ptr, expected, (size_t)len);
        weir__buffer_free(&b);
    }
}

static void clearing_keeps_the_memory(void **state)
{
    (void)state;
    weir_buffer b = { 0 };
    assert_true(weir__buffer_reserve(&b, 10000));
    weir__memory_fail_nth(1);
    for (int i = 0; i < 3; i++) {
        char bytes[10000];
        memset(bytes, i, sizeof bytes);
        assert_true(weir__buffer_add(&b, bytes, sizeof bytes));
        weir__buffer_clear(&b);
        assert_int_equal(b.len, 0);
    }
    assert_false(weir__memory_failed());
    weir__memory_fail_nth(0);
    weir__buffer_free(&b);
}

static void growth_is_geometric(void **state)
{
    (void)state;
    weir_buffer b = { 0 };
    unsigned growths = 0;
    for (int i = 0; i < 1000000; i++) {
        const size_t before = b.capacity;
        assert_true(weir__buffer_add(&b, "x", 1));
        growths += b.capacity != before;
    }
    assert_true(growths < 20);
    weir__buffer_free(&b);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    weir_buffer b = { 0 };
    assert_true(weir__buffer_add_text(&b, "kept"));
    assert_false(weir__buffer_reserve(&b, SIZE_MAX));
    assert_false(weir__buffer_reserve(&b, SIZE_MAX - 4));
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.ptr, "kept", 4);
    weir__buffer_free(&b);
}

static bool write_some(weir_buffer *b)
{
    for (int i = 0; i < 200; i++) {
        const size_t len = b->len;
        if (!weir__buffer_add_text(b, "text ") || !weir__buffer_add_i64(b, i)) {
            assert_true(b->len == len || b->len == len + 5); /* each addition is whole or absent */
            return false;
        }
    }
    return true;
}

static void out_of_memory_leaves_the_buffer_as_it_was(void **state)
{
    (void)state;
    weir_buffer expected = { 0 };
    assert_true(write_some(&expected));
    bool done = false;
    uint64_t nth = 0;
    while (!done) {
        weir_buffer b = { 0 };
        weir__memory_fail_nth(++nth);
        done = write_some(&b);
        assert_true(done == !weir__memory_failed());
        weir__memory_fail_nth(0);
        assert_true(b.len <= expected.len);
        if (b.len > 0) {
            assert_memory_equal(b.ptr, expected.ptr, b.len);
        }
        weir__buffer_free(&b);
    }
    assert_true(nth > 3); /* so many allocations were made to fail */
    weir__buffer_free(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_added_comes_out_in_order),
        cmocka_unit_test(adding_nothing_to_nothing_allocates_nothing),
        cmocka_unit_test(integers_are_written_as_printf_writes_them),
        cmocka_unit_test(clearing_keeps_the_memory),
        cmocka_unit_test(growth_is_geometric),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(out_of_memory_leaves_the_buffer_as_it_was),
    };
    return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
