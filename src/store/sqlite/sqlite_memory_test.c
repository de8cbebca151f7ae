/* sqlite_memory_test.c - SQLite running out of memory, in every one of its own statements.
 *
 * Method: SQLite's allocator is replaced by one that fails the nth time, or from the nth time on.
 * After each failure the same handle must be able to write and read again, with everything that was
 * acknowledged and nothing else. (Weir's own allocations are failed in sqlite_test.c.)
 */
#include "store/sqlite/sqlite_testing.h"

#include <stdlib.h>
#include <unistd.h>

static sqlite3_mem_methods usual;
static int64_t calls, fails_at; /* fails_at 0: never */
static bool fails_on;           /* also every time after that */

static bool fails_now(void)
{
    if (fails_at == 0) {
        return false;
    }
    calls++;
    return fails_on ? calls >= fails_at : calls == fails_at;
}

static void *failing_malloc(int bytes)
{
    return fails_now() ? NULL : usual.xMalloc(bytes);
}

static void *failing_realloc(void *block, int bytes)
{
    return fails_now() ? NULL : usual.xRealloc(block, bytes);
}

static int group_setup(void **state)
{
    (void)state;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &usual), SQLITE_OK);
    sqlite3_mem_methods methods = usual;
    methods.xMalloc = failing_malloc;
    methods.xRealloc = failing_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
    /* Thousands of commits and checkpoints, and none of it is about the disk. */
    if (access("/dev/shm", W_OK) == 0) {
        assert_int_equal(setenv("TMPDIR", "/dev/shm", 1), 0);
    }
    return 0;
}

/* A handle of its own, so that its first statements of each kind are prepared under the failure. */
static bool fail_nth(testing *t, int64_t nth, int64_t *acknowledged)
{
    store_positions positions;
    weir_store *store = testing_open(t, 0);
    calls = 0;
    fails_at = nth;
    const weir_status appended = testing_append(store, "order-1", &t->err);
    const weir_status read = store->log->positions(store, &positions, &t->err);
    const bool reached = calls >= nth;
    fails_at = 0;
    assert_true(appended == WEIR_OK || appended == WEIR_ENOMEM);
    assert_true(read == WEIR_OK || read == WEIR_ENOMEM);
    *acknowledged += appended == WEIR_OK;
    if (testing_append(store, "order-1", &t->err) != WEIR_OK) {
        fail_msg("allocation %lld: %s", (long long)nth, t->err.message);
    }
    ++*acknowledged;
    assert_int_equal(testing_head(store), *acknowledged);
    testing_close(&store);
    return reached;
}

/* Every statement takes a dozen allocations or more, so none is stepped over. */
static void run_out_everywhere(testing *t, int64_t step)
{
    int64_t acknowledged = 0;
    int64_t nth = 1;
    t->options.checkpoint_pages = 1; /* with every commit: it allocates as well */
    t->options.sync_normal = true;
    while (fail_nth(t, nth, &acknowledged)) {
        nth += step;
    }
    assert_true(nth > 100); /* the allocator is the one that SQLite uses */
    assert_string_equal(testing_check(t->store), "");
}

static void a_failed_allocation_costs_one_verb_and_not_the_handle(void **state)
{
    fails_on = false;
    run_out_everywhere(*state, 3);
}

static void having_no_memory_for_a_while_costs_verbs_and_not_the_handle(void **state)
{
    fails_on = true;
    run_out_everywhere(*state, 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, testing_setup, testing_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failed_allocation_costs_one_verb_and_not_the_handle),
        TEST(having_no_memory_for_a_while_costs_verbs_and_not_the_handle),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("sqlite_memory", tests, group_setup, NULL);
}
