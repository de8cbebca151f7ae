/* params_test.c - parameters byte by byte, and how long to wait before the next attempt. */
#include "pg/pg.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void value_is(const pg_params *p, int index, Oid type, const char *bytes, int len)
{
    assert_true(index < p->count);
    assert_int_equal(p->types[index], type);
    assert_int_equal(p->lengths[index], len);
    assert_memory_equal(p->bytes.ptr + p->offsets[index], bytes, (size_t)len);
}

static void numbers_and_texts_are_binary(void **state)
{
    (void)state;
    pg_params p = { 0 };
    weir__pg_add_i64(&p, INT64_C(0x0102030405060708));
    weir__pg_add_i32(&p, -2);
    weir__pg_add_bool(&p, true);
    weir__pg_add_text(&p, weir__str("a'b"));
    weir__pg_add_text(&p, weir__str(""));
    weir__pg_add_null(&p, PG_OID_TEXT);
    assert_false(p.failed);
    assert_int_equal(p.count, 6);
    value_is(&p, 0, PG_OID_INT8, "\1\2\3\4\5\6\7\10", 8);
    value_is(&p, 1, PG_OID_INT4, "\xff\xff\xff\xfe", 4);
    value_is(&p, 2, PG_OID_BOOL, "\1", 1);
    value_is(&p, 3, PG_OID_TEXT, "a'b", 3);
    assert_int_equal(p.lengths[4], 0);
    assert_true(p.offsets[4] != SIZE_MAX); /* '' is not NULL */
    assert_true(p.offsets[5] == SIZE_MAX);
    weir__pg_params_free(&p);
}

static void arrays_have_their_header(void **state)
{
    (void)state;
    pg_params p = { 0 };
    weir__pg_array_begin(&p, PG_OID_TEXT_ARRAY);
    weir__pg_push_text(&p, weir__str("x"));
    weir__pg_push_null(&p);
    weir__pg_array_end(&p);
    weir__pg_add_i64_array(&p, NULL, 0);
    weir__pg_add_i64(&p, 7);
    value_is(&p, 0, PG_OID_TEXT_ARRAY,
             "\0\0\0\1\0\0\0\1\0\0\0\31\0\0\0\2\0\0\0\1"
             "\0\0\0\1x"
             "\xff\xff\xff\xff",
             29);
    value_is(&p, 1, PG_OID_INT8_ARRAY, "\0\0\0\0\0\0\0\0\0\0\0\24", 12);
    value_is(&p, 2, PG_OID_INT8, "\0\0\0\0\0\0\0\7", 8);
    weir__pg_params_free(&p);
}

static void what_could_not_be_added_is_remembered(void **state)
{
    (void)state;
    pg_params p = { 0 };
    for (int i = 0; i <= PG_PARAMS_MAX; i++) {
        assert_false(p.failed);
        weir__pg_add_i64(&p, i);
    }
    assert_true(p.failed);
    weir__pg_params_reset(&p);
    assert_false(p.failed);
    assert_int_equal(p.count, 0);
    weir__memory_fail_nth(1);
    weir__pg_params_free(&p);
    weir__pg_add_text(&p, weir__str("some text"));
    assert_true(p.failed);
    weir__memory_fail_nth(0);
    weir__pg_params_free(&p);
}

static void backoff_grows_is_capped_and_jittered(void **state)
{
    (void)state;
    int64_t most_first = 0;
    int64_t most_later = 0;
    for (int i = 0; i < 1000; i++) {
        const int64_t first = weir__pg_backoff_us(0);
        const int64_t later = weir__pg_backoff_us(30);
        assert_in_range(first, 1, 50 * 1000);
        assert_in_range(later, 1, 2 * 1000 * 1000);
        most_first = first > most_first ? first : most_first;
        most_later = later > most_later ? later : most_later;
    }
    assert_true(most_first > 25 * 1000);
    assert_true(most_later > 1000 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_texts_are_binary),
        cmocka_unit_test(arrays_have_their_header),
        cmocka_unit_test(what_could_not_be_added_is_remembered),
        cmocka_unit_test(backoff_grows_is_capped_and_jittered),
    };
    return cmocka_run_group_tests_name("pg_params", tests, NULL, NULL);
}
