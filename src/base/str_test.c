/* str_test.c - order, prefixes, hashes, and numbers with and without units. */
#include "base/str.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static void order_is_bytewise_and_shorter_first(void **state)
{
    (void)state;
    static const weir_str sorted[] = {
        { NULL, 0 },   { "\0", 1 },   { "\0\0", 2 },     { "A", 1 },    { "a", 1 },
        { "a\0", 2 },  { "a!", 2 },   { "aa", 2 },       { "ab", 2 },   { "b", 1 },
        { "\x7F", 1 }, { "\x80", 1 }, { "\xC3\xBC", 2 }, { "\xFF", 1 }, { "\xFF\xFF", 2 },
    };
    const size_t count = sizeof sorted / sizeof sorted[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            const int expected = (i > j) - (i < j);
            assert_int_equal(sign(weir__str_compare(sorted[i], sorted[j])), expected);
            assert_true(weir__str_equal(sorted[i], sorted[j]) == (i == j));
        }
    }
    assert_int_equal(weir__str_compare(weir__str(""), (weir_str){ 0 }), 0);
    assert_true(weir__str_equal(weir__str(""), weir__str(NULL)));
}

static void a_prefix_is_the_beginning_and_nothing_else(void **state)
{
    (void)state;
    assert_true(weir__str_starts_with(weir__str("order-1"), weir__str("order-")));
    assert_true(weir__str_starts_with(weir__str("order-1"), weir__str("order-1")));
    assert_true(weir__str_starts_with(weir__str("order-1"), weir__str("")));
    assert_true(weir__str_starts_with((weir_str){ 0 }, (weir_str){ 0 }));
    assert_false(weir__str_starts_with(weir__str("order-1"), weir__str("order-12")));
    assert_false(weir__str_starts_with(weir__str("order-1"), weir__str("Order")));
    assert_false(weir__str_starts_with((weir_str){ 0 }, weir__str("a")));
}

/* Names as they come: a word and a counter. A table with as many places as names should have about
 * 1/e of its places empty, whichever bits it uses. */
static void names_that_differ_in_a_digit_spread_over_a_table(void **state)
{
    (void)state;
    enum { NAMES = 1 << 16 };
    static uint8_t low[NAMES], high[NAMES];
    unsigned low_used = 0;
    unsigned high_used = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        char name[32];
        const int len = snprintf(name, sizeof name, "order-%u", i);
        const uint64_t h = weir__str_hash((weir_str){ .ptr = name, .len = (size_t)len });
        low_used += low[h % NAMES]++ == 0;
        high_used += high[h >> 48]++ == 0;
    }
    assert_in_range(low_used, NAMES * 61 / 100, NAMES * 66 / 100);
    assert_in_range(high_used, NAMES * 61 / 100, NAMES * 66 / 100);
}

static void the_hash_depends_on_every_byte_and_on_the_length(void **state)
{
    (void)state;
    char text[40] = { 0 };
    assert_true(weir__str_hash((weir_str){ 0 }) == weir__str_hash(weir__str("")));
    for (size_t len = 1; len <= sizeof text; len++) {
        const weir_str s = { .ptr = text, .len = len };
        const uint64_t zeros = weir__str_hash(s);
        assert_true(zeros != weir__str_hash((weir_str){ .ptr = text, .len = len - 1 }));
        for (size_t i = 0; i < len; i++) {
            text[i] = 1;
            assert_true(weir__str_hash(s) != zeros);
            text[i] = 0;
        }
    }
}

static void integers_are_read_up_to_both_ends_of_the_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } right[] = {
        { "0", 0 },
        { "-0", 0 },
        { "7", 7 },
        { "-7", -7 },
        { "0042", 42 },
        { "4294967296", INT64_C(4294967296) },
        { "9223372036854775807", INT64_MAX },
        { "-9223372036854775808", INT64_MIN },
    };
    static const char *const wrong[] = {
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "--1",
        "0x10",
        "a",
        "1a",
        "\xD9\xA1",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "100000000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        int64_t value = 99;
        assert_true(weir__str_to_i64(weir__str(right[i].text), &value));
        assert_true(value == right[i].value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int64_t value = 99;
        assert_false(weir__str_to_i64(weir__str(wrong[i]), &value));
        assert_true(value == 99); /* outputs are written on success only */
    }
    int64_t value = 99;
    assert_false(weir__str_to_i64((weir_str){ 0 }, &value));
    assert_false(weir__str_to_i64((weir_str){ .ptr = "1\0", .len = 2 }, &value));
    assert_true(weir__str_to_i64((weir_str){ .ptr = "123", .len = 2 }, &value));
    assert_true(value == 12); /* the length decides, not what follows */
}

static void durations_need_a_unit_and_are_in_microseconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } right[] = {
        { "0s", 0 },
        { "500ms", 500000 },
        { "10s", 10000000 },
        { "5m", INT64_C(300000000) },
        { "24h", INT64_C(86400000000) },
        { "2d", INT64_C(172800000000) },
        { "9223372036854775ms", INT64_C(9223372036854775000) },
        { "106751991d", INT64_C(106751991) * 86400 * 1000000 },
    };
    static const char *const wrong[] = {
        "",           "10",
        "s",          "-1s",
        "+1s",        "1 s",
        "1s ",        "1.5s",
        "1S",         "1sec",
        "1w",         "1us",
        "1ms2",       "9223372036854776ms",
        "106751992d", "99999999999999999999s",
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        int64_t us = -1;
        assert_true(weir__str_to_duration_us(weir__str(right[i].text), &us));
        assert_true(us == right[i].us);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int64_t us = -1;
        assert_false(weir__str_to_duration_us(weir__str(wrong[i]), &us));
        assert_true(us == -1);
    }
    int64_t us = -1;
    assert_false(weir__str_to_duration_us((weir_str){ 0 }, &us));
}

static void sizes_are_bytes_or_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } right[] = {
        { "0", 0 },          { "1048576", 1048576 },       { "64KiB", 65536 },
        { "1MiB", 1048576 }, { "3GiB", INT64_C(3) << 30 }, { "9223372036854775807", INT64_MAX },
    };
    static const char *const wrong[] = {
        "",
        "KiB",
        "1KB",
        "1kib",
        "1 MiB",
        "-1",
        "1.5MiB",
        "1M",
        "1B",
        "9223372036854775808",
        "9007199254740992KiB",
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        int64_t bytes = -1;
        assert_true(weir__str_to_bytes(weir__str(right[i].text), &bytes));
        assert_true(bytes == right[i].bytes);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int64_t bytes = -1;
        assert_false(weir__str_to_bytes(weir__str(wrong[i]), &bytes));
        assert_true(bytes == -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_bytewise_and_shorter_first),
        cmocka_unit_test(a_prefix_is_the_beginning_and_nothing_else),
        cmocka_unit_test(names_that_differ_in_a_digit_spread_over_a_table),
        cmocka_unit_test(the_hash_depends_on_every_byte_and_on_the_length),
        cmocka_unit_test(integers_are_read_up_to_both_ends_of_the_range),
        cmocka_unit_test(durations_need_a_unit_and_are_in_microseconds),
        cmocka_unit_test(sizes_are_bytes_or_powers_of_1024),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
