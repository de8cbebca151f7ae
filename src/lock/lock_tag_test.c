/* lock_tag_test.c - goal: who holds a lock is read as it was written, or not at all; and a name
 * has one number, in which its schema counts. Method: round trips, and texts that are cut at every
 * byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "lock/lock_private.h"

static const char odd[] = "a */ b' \"--%41=\x01\n \xc3\xa4 name=x by=y";

static void tags_are_read_as_they_were_written(void **state)
{
    const lock_tag tag = { .since_us = 1789999999000001,
                           .by = weir__str("root@web-1 pid 4711"),
                           .name = { .ptr = odd, .len = sizeof odd - 1 } };
    weir_buffer text = { 0 };
    weir_arena arena = { 0 };
    lock_tag read = { 0 };
    (void)state;
    assert_true(weir__buffer_add_text(&text, "/* weir lock "));
    assert_true(weir__lock_tag_add(&text, &tag));
    assert_true(weir__buffer_add_text(&text, "*/ SELECT name FROM by"));
    for (size_t i = 0; i < text.len; i++) {
        assert_true(text.ptr[i] >= ' ' && text.ptr[i] <= '~');
    }
    assert_true(weir__lock_tag_read((weir_str){ text.ptr, text.len }, &arena, &read));
    assert_true(read.since_us == tag.since_us);
    assert_true(weir__str_equal(read.by, tag.by));
    assert_true(weir__str_equal(read.name, tag.name));
    weir__buffer_free(&text);
    weir__arena_free(&arena);
}

static void what_is_cut_off_is_not_given(void **state)
{
    const lock_tag tag = { .since_us = 17, .by = weir__str("me"), .name = weir__str("long name") };
    weir_buffer text = { 0 };
    weir_arena arena = { 0 };
    (void)state;
    assert_true(weir__lock_tag_add(&text, &tag));
    for (size_t len = 0; len <= text.len; len++) {
        lock_tag read = { 0 };
        assert_true(weir__lock_tag_read((weir_str){ text.ptr, len }, &arena, &read));
        assert_true(read.since_us == 0 || read.since_us == 17);
        assert_true(read.by.len == 0 || weir__str_equal(read.by, tag.by));
        assert_true(read.name.len == 0 || weir__str_equal(read.name, tag.name));
        assert_int_equal(read.name.len != 0, len == text.len);
    }
    weir__buffer_free(&text);
    weir__arena_free(&arena);
}

static void names_have_numbers_of_their_own(void **state)
{
    (void)state;
    const weir_str none = { 0 };
    /* Part of what programs of different versions must agree on. */
    assert_true(weir__lock_key(none, weir__str("a")) ==
                weir__lock_key(weir__str("weir"), weir__str("a")));
    assert_true(weir__lock_key(none, weir__str("a")) == INT64_C(-1382265114098057885));
    assert_true(weir__lock_key(none, weir__str("a")) != weir__lock_key(none, weir__str("b")));
    assert_true(weir__lock_key(weir__str("x"), weir__str("a")) !=
                weir__lock_key(weir__str("y"), weir__str("a")));
    assert_true(weir__lock_key(weir__str("x"), weir__str("ya")) !=
                weir__lock_key(weir__str("xy"), weir__str("a")));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_read_as_they_were_written),
        cmocka_unit_test(what_is_cut_off_is_not_given),
        cmocka_unit_test(names_have_numbers_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
