/* memory_test.c - the heap and the failure that can be ordered from it. */
#include "base/memory.h"
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void only_the_nth_allocation_fails_and_only_once(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth++) {
        weir__memory_fail_nth(nth);
        for (uint64_t i = 1; i <= 6; i++) {
            void *ptr = weir__malloc(8);
            assert_true((ptr == NULL) == (i == nth));
            assert_true(weir__memory_failed() == (i >= nth));
            weir__free(ptr);
        }
    }
    weir__memory_fail_nth(0);
    assert_false(weir__memory_failed());
}

static void every_way_to_allocate_counts(void **state)
{
    (void)state;
    void *kept = weir__malloc(8);
    assert_non_null(kept);
    weir__memory_fail_nth(1);
    assert_null(weir__calloc(1, 8));
    weir__memory_fail_nth(1);
    assert_null(weir__strndup("abc", 3));
    weir__memory_fail_nth(1);
    assert_null(weir__realloc(kept, 16));
    memset(kept, 0, 8); /* a failed realloc leaves the old memory alone */
    assert_true(weir__memory_failed());
    weir__free(kept);
    weir__memory_fail_nth(0);
}

static void *allocate_once(void *result)
{
    void *ptr = weir__malloc(8);
    *(bool *)result = ptr != NULL && !weir__memory_failed();
    weir__free(ptr);
    return NULL;
}

static void an_ordered_failure_spares_other_threads(void **state)
{
    (void)state;
    pthread_t thread;
    bool worked = false;
    weir__memory_fail_nth(1);
    assert_int_equal(pthread_create(&thread, NULL, allocate_once, &worked), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(worked);
    assert_false(weir__memory_failed());
    assert_null(weir__malloc(8));
    assert_true(weir__memory_failed());
}

static void nothing_asked_for_is_not_out_of_memory(void **state)
{
    (void)state;
    void *a = weir__malloc(0);
    void *b = weir__calloc(0, 8);
    void *c = weir__realloc(NULL, 0);
    char *d = weir__strndup(NULL, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_string_equal(d, "");
    c = weir__realloc(c, 0);
    assert_non_null(c);
    weir__free(a);
    weir__free(b);
    weir__free(c);
    weir__free(d);
    weir__free(NULL);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX; /* volatile: gcc would warn about what is tested here */
    assert_null(weir__calloc(huge / 2, 3));
    assert_null(weir__strndup("x", huge));
}

static void a_copy_ends_where_it_was_told_to(void **state)
{
    (void)state;
    char *copy = weir__strndup("abcdef", 3);
    assert_string_equal(copy, "abc");
    weir__free(copy);
    copy = weir__strndup("a\0b", 3); /* bytes, not a C string */
    assert_memory_equal(copy, "a\0b", 4);
    weir__free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_nth_allocation_fails_and_only_once),
        cmocka_unit_test(every_way_to_allocate_counts),
        cmocka_unit_test(an_ordered_failure_spares_other_threads),
        cmocka_unit_test(nothing_asked_for_is_not_out_of_memory),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(a_copy_ends_where_it_was_told_to),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
