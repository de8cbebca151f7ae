/* base64_test.c - the vectors of RFC 4648, every byte value, and running out of memory. */
#include "base/base64.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void expect(weir_str bytes, const char *text)
{
    weir_buffer out = { 0 };
    assert_true(weir__buffer_add_text(&out, "<"));
    assert_true(weir__base64_add(&out, bytes));
    assert_int_equal(out.len, strlen(text) + 1);
    assert_memory_equal(out.ptr + 1, text, strlen(text));
    weir__buffer_free(&out);
}

static void the_vectors_of_the_standard(void **state)
{
    (void)state;
    expect(weir__str(""), "");
    expect(weir__str("f"), "Zg==");
    expect((weir_str){ .ptr = "foo", .len = 2 }, "Zm8=");
    expect(weir__str("foo"), "Zm9v");
    expect(weir__str("foob"), "Zm9vYg==");
    expect(weir__str("fooba"), "Zm9vYmE=");
    expect(weir__str("foobar"), "Zm9vYmFy");
}

static void bytes_that_are_no_text(void **state)
{
    (void)state;
    expect((weir_str){ .ptr = "\0\xff\xfe\x80", .len = 4 }, "AP/+gA==");
    expect((weir_str){ .ptr = "\xfb\xef\xff", .len = 3 }, "++//");
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    weir_buffer out = { 0 };
    weir__memory_fail_nth(1);
    assert_false(weir__base64_add(&out, weir__str("foo")));
    weir__memory_fail_nth(0);
    assert_int_equal(out.len, 0);
    weir__buffer_free(&out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_standard),
        cmocka_unit_test(bytes_that_are_no_text),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
