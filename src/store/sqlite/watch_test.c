/* watch_test.c - a watch wakes after the commit, for every handle and process, and forgets nothing.
 *
 * Method: waits are given ten seconds, which only a lost wake-up uses up; what must not wake is
 * looked at without waiting, after what might have woken it has returned.
 */
#include "store/sqlite/sqlite_testing.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000, ROUNDS = 300 };

static store_watch *watch_open(testing *t)
{
    store_watch *watch = NULL;
    assert_int_equal(t->store->log->watch_open(t->store, &watch, &t->err), WEIR_OK);
    return watch;
}

static bool wait_for(testing *t, store_watch *watch, int32_t timeout_ms)
{
    bool woken = false;
    assert_int_equal(t->store->log->watch_wait(watch, timeout_ms, &woken, &t->err), WEIR_OK);
    return woken;
}

static bool is_readable(testing *t, store_watch *watch)
{
    struct pollfd item = { .fd = t->store->log->watch_fd(watch), .events = POLLIN };
    return poll(&item, 1, 0) == 1;
}

static void a_wake_up_between_two_waits_is_not_lost_and_counts_once(void **state)
{
    testing *t = *state;
    weir_store *other = testing_open(t, 0);
    store_watch *watch = watch_open(t);
    assert_false(wait_for(t, watch, 0));
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    assert_int_equal(testing_append(t->store, "order-1", &t->err),
                     WEIR_OK); /* own writes count too */
    assert_true(is_readable(t, watch));
    assert_true(wait_for(t, watch, 0));
    assert_false(wait_for(t, watch, 0));
    assert_false(is_readable(t, watch));
    assert_false(wait_for(t, watch, 20));
    t->store->log->watch_close(watch);
    t->store->log->watch_close(NULL);
    testing_close(&other);
}

static void what_was_committed_before_it_was_opened_does_not_wake_it(void **state)
{
    testing *t = *state;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    store_watch *watch = watch_open(t);
    assert_false(wait_for(t, watch, 0));
    t->store->log->watch_close(watch);
}

static void what_changes_nothing_wakes_nobody(void **state)
{
    testing *t = *state;
    /* The first writer since the machine was started sets the clock of keys, whatever it writes. */
    assert_int_equal(testing_append(t->store, "order-2", &t->err), WEIR_OK);
    store_watch *watch = watch_open(t);
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_EXACT, 7, 1, &t->err),
                     WEIR_ECONFLICT);
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_NONE, 0, 0, &t->err),
                     WEIR_OK);
    assert_false(wait_for(t, watch, 0));
    t->store->log->watch_close(watch);
}

/* A child that appends one event whenever it is told to. */
typedef struct writer {
    testing *t;
    int orders; /* read end */
} writer;

static int write_when_told(void *ctx)
{
    const writer *w = ctx;
    weir_store *store = NULL;
    char byte;
    if (weir__sqlite_open(&store, &w->t->options, NULL) != WEIR_OK) {
        return 1;
    }
    while (read(w->orders, &byte, 1) == 1 && byte == 'a') {
        if (testing_append(store, "order-1", NULL) != WEIR_OK) {
            return 2;
        }
    }
    testing_close(&store);
    return 0;
}

static void whoever_is_woken_finds_the_commit_of_another_process(void **state)
{
    testing *t = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    writer w = { .t = t, .orders = ends[0] };
    child c = testing_fork(write_when_told, &w); /* before we have anything open */
    t->store = testing_open(t, 0);
    store_watch *watch = watch_open(t);
    testing_go(&c);
    for (int i = 1; i <= ROUNDS; i++) {
        assert_int_equal(write(ends[1], "a", 1), 1);
        assert_true(wait_for(t, watch, PATIENCE_MS));
        assert_int_equal(testing_head(t->store), i);
    }
    assert_int_equal(write(ends[1], "e", 1), 1);
    assert_int_equal(testing_join(&c), 0);
    t->store->log->watch_close(watch);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_side_file_that_was_replaced_is_found_again(void **state)
{
    testing *t = *state;
    store_watch *watch = watch_open(t);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_true(wait_for(t, watch, 0));
    assert_int_equal(unlink(testing_file(t, "-weir")), 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_true(wait_for(t, watch, PATIENCE_MS));
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_true(wait_for(t, watch, 0)); /* and watched as before */
    t->store->log->watch_close(watch);
}

static void a_reading_handle_can_watch(void **state)
{
    testing *t = *state;
    weir_store *reader = testing_open(t, WEIR_OPEN_READONLY);
    store_watch *watch = NULL;
    bool woken = false;
    assert_int_equal(reader->log->watch_open(reader, &watch, &t->err), WEIR_OK);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(reader->log->watch_wait(watch, PATIENCE_MS, &woken, &t->err), WEIR_OK);
    assert_true(woken);
    reader->log->watch_close(watch);
    testing_close(&reader);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wake_up_between_two_waits_is_not_lost_and_counts_once,
                                        testing_setup, testing_teardown),
        cmocka_unit_test_setup_teardown(what_was_committed_before_it_was_opened_does_not_wake_it,
                                        testing_setup, testing_teardown),
        cmocka_unit_test_setup_teardown(what_changes_nothing_wakes_nobody, testing_setup,
                                        testing_teardown),
        cmocka_unit_test_setup_teardown(whoever_is_woken_finds_the_commit_of_another_process,
                                        testing_setup_bare, testing_teardown),
        cmocka_unit_test_setup_teardown(a_side_file_that_was_replaced_is_found_again, testing_setup,
                                        testing_teardown),
        cmocka_unit_test_setup_teardown(a_reading_handle_can_watch, testing_setup,
                                        testing_teardown),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
