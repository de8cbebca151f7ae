/* random_test.c - that randomness is fresh where it must be, and the form of UUIDs.
 *
 * Tests of chance here fail by accident less than once in 2^40 runs.
 */
#include "base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void any_number_of_bytes_is_filled_and_no_more(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 700; bytes++) {
        uint8_t seen[700] = { 0 };
        for (int round = 0; round < 12; round++) { /* each byte is 0 twelve times: 2^-96 */
            uint8_t out[701];
            memset(out, 0, sizeof out);
            weir__random_bytes(out, bytes);
            assert_int_equal(out[bytes], 0);
            for (size_t i = 0; i < bytes; i++) {
                seen[i] |= out[i];
            }
        }
        for (size_t i = 0; i < bytes; i++) {
            assert_int_not_equal(seen[i], 0);
        }
    }
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum { PER_THREAD = 1000, THREADS = 4 };

static void *draw(void *ctx)
{
    uint64_t *values = ctx;
    for (int i = 0; i < PER_THREAD; i++) {
        values[i] = weir__random_u64();
    }
    return NULL;
}

static void no_number_comes_twice_in_any_thread(void **state)
{
    (void)state;
    /* Eight million pairs, each equal by accident once in 2^64; pools that are alike, or a pool
     * that is shared without a lock, repeat at once. */
    static uint64_t values[THREADS * PER_THREAD];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, draw, values + i * PER_THREAD), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    qsort(values, THREADS * PER_THREAD, sizeof values[0], compare_u64);
    for (size_t i = 1; i < THREADS * PER_THREAD; i++) {
        assert_true(values[i] != values[i - 1]);
    }
}

static void a_forked_child_does_not_repeat_its_parent(void **state)
{
    (void)state;
    int fds[2];
    uint64_t parent[4];
    uint64_t child[4];
    (void)weir__random_u64(); /* the pool is filled and partly used */
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    for (int i = 0; i < 4; i++) {
        parent[i] = weir__random_u64();
    }
    if (pid == 0) {
        _exit(write(fds[1], parent, sizeof parent) == (ssize_t)sizeof parent ? 0 : 1);
    }
    assert_int_equal(read(fds[0], child, sizeof child), sizeof child);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            assert_true(parent[i] != child[j]);
        }
    }
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static void a_uuid_has_the_form_of_version_7(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        char text[WEIR_UUID_TEXT_BYTES];
        weir__uuid7(INT64_C(1645557742000000), text);
        assert_int_equal(strlen(text), 36);
        assert_int_equal(strspn(text, "0123456789abcdef-"), 36);
        assert_memory_equal(text, "017f22e2-79b0-7000-", 19); /* the time of RFC 9562, A.6 */
        assert_non_null(strchr("89ab", text[19]));
        assert_int_equal(text[23], '-');
        assert_null(memchr(text + 24, '-', 12));
    }
}

static void the_time_in_a_uuid_is_the_one_given(void **state)
{
    (void)state;
    static const struct {
        int64_t us;
        const char *start;
    } cases[] = {
        { 0, "00000000-0000-7000-" },
        { -5, "00000000-0000-7000-" }, /* before 1970 there is nothing to write */
        { 1000, "00000000-0001-7000-" },
        { 1500, "00000000-0001-7800-" },
        { 1999, "00000000-0001-7ffb-" }, /* 999 * 4096 / 1000 */
        { INT64_C(0xFFFFFFFFFFFF) * 1000, "ffffffff-ffff-7000-" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[WEIR_UUID_TEXT_BYTES];
        weir__uuid7(cases[i].us, text);
        assert_memory_equal(text, cases[i].start, 19);
    }
}

static void uuids_sort_by_microsecond_and_differ_within_one(void **state)
{
    (void)state;
    char last[WEIR_UUID_TEXT_BYTES];
    char next[WEIR_UUID_TEXT_BYTES];
    weir__uuid7(INT64_C(1794772944000000), last);
    for (int64_t us = 1; us <= 5000; us++) {
        weir__uuid7(INT64_C(1794772944000000) + us, next);
        assert_true(strcmp(last, next) < 0);
        weir__uuid7(INT64_C(1794772944000000) + us, last);
        assert_string_not_equal(last, next);
        assert_memory_equal(last, next, 19);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_bytes_is_filled_and_no_more),
        cmocka_unit_test(no_number_comes_twice_in_any_thread),
        cmocka_unit_test(a_forked_child_does_not_repeat_its_parent),
        cmocka_unit_test(a_uuid_has_the_form_of_version_7),
        cmocka_unit_test(the_time_in_a_uuid_is_the_one_given),
        cmocka_unit_test(uuids_sort_by_microsecond_and_differ_within_one),
    };
    return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
