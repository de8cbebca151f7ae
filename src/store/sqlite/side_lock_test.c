/* side_lock_test.c - one holder among handles and processes, and a stamp that changes.
 *
 * Method: two side locks on one file are two open files, which is what two processes have; where
 * the death of a holder matters, there is a real child that is killed.
 */
#include "store/sqlite/sqlite_testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t in_ms(int64_t ms)
{
    return weir__clock_mono(weir__clock_machine()) + ms * 1000;
}

static void only_one_holds_it_and_the_other_is_told_how_long_it_waited(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    side_lock b = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(weir__side_open(&b, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_OK); /* tries once, also without time */
    const int64_t began_us = in_ms(0);
    assert_int_equal(weir__side_lock(&b, in_ms(120), &t->err), WEIR_EBUSY);
    assert_true(in_ms(0) - began_us >= 120 * 1000);
    double waited = 0;
    assert_int_equal(
        sscanf(t->err.message, "store is busy: waited %lf s for the other writer", &waited), 1);
    assert_true(waited >= 0.1);
    assert_false(b.held);
    weir__side_unlock(&a);
    assert_int_equal(weir__side_lock(&b, 0, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_EBUSY);
    weir__side_close(&b); /* lets go */
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_OK);
    weir__side_close(&a);
}

static void closing_another_descriptor_of_the_file_does_not_let_go(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    side_lock b = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_OK);
    const int fd = open(a.path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(weir__side_open(&b, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&b, 0, &t->err), WEIR_EBUSY);
    weir__side_close(&a);
    weir__side_close(&b);
}

static void nobody_inherits_it_over_an_exec(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    assert_true((fcntl(a.fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true(a.fd > STDERR_FILENO);
    weir__side_close(&a);
}

static int hold_until_killed(void *ctx)
{
    const testing *t = ctx;
    side_lock a = { 0 };
    if (weir__side_open(&a, t->path, false, NULL) != WEIR_OK ||
        weir__side_lock(&a, in_ms(5000), NULL) != WEIR_OK) {
        return 1;
    }
    weir__side_stamp(&a); /* tells the test that we have it */
    for (;;) {
        (void)pause();
    }
}

static void it_dies_with_its_holder(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    child c = testing_fork(hold_until_killed, t);
    testing_go(&c);
    while (weir__side_stamp_read(a.fd) == 0) {
        (void)usleep(100); /* between two looks at the condition */
    }
    assert_int_equal(weir__side_lock(&a, in_ms(5), &t->err), WEIR_EBUSY);
    assert_int_equal(kill(c.pid, SIGKILL), 0);
    assert_int_equal(weir__side_lock(&a, in_ms(10000), &t->err), WEIR_OK);
    assert_int_equal(testing_join(&c), -1);
    weir__side_close(&a);
}

static void a_file_that_was_removed_is_made_again_and_the_lock_is_on_the_new_one(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    side_lock b = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    assert_true(a.created);
    assert_int_equal(unlink(a.path), 0);
    assert_int_equal(weir__side_open(&b, t->path, false, &t->err), WEIR_OK);
    assert_true(b.created);
    assert_int_equal(weir__side_lock(&b, 0, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&a, in_ms(5), &t->err), WEIR_EBUSY); /* not on its old file */
    weir__side_unlock(&b);
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_OK);
    assert_int_equal(a.ino, b.ino);
    weir__side_remove(&a);
    weir__side_unlock(&a);
    assert_int_equal(weir__side_lock(&a, 0, &t->err), WEIR_OK);
    assert_true(testing_exists(t, "-weir"));
    weir__side_close(&a);
    weir__side_close(&b);
}

static void whoever_may_write_the_database_may_write_the_side_file(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    struct stat st;
    const int fd = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0660), 0);
    (void)close(fd);
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    assert_int_equal(stat(a.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    weir__side_close(&a);
}

static void every_stamp_differs_from_the_one_before(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    assert_int_equal(weir__side_open(&a, t->path, false, &t->err), WEIR_OK);
    uint64_t before = weir__side_stamp_read(a.fd);
    assert_int_equal(before, 0);
    for (int i = 0; i < 100; i++) {
        weir__side_stamp(&a);
        const uint64_t stamp = weir__side_stamp_read(a.fd);
        assert_true(stamp != before);
        before = stamp;
    }
    assert_int_equal(weir__side_stamp_read(-1), 0);
    weir__side_close(&a);
}

static void a_directory_that_is_not_there_is_an_error_with_its_code(void **state)
{
    testing *t = *state;
    side_lock a = { 0 };
    assert_int_equal(weir__side_open(&a, "/nowhere/at/all.db", false, &t->err), WEIR_EIO);
    assert_string_equal(t->err.message,
                        "could not open side file \"/nowhere/at/all.db-weir\": No such "
                        "file or directory");
    assert_string_equal(t->err.store_code, "2");
    assert_string_equal(t->err.detail, "The directory of a store must be there already.");
    weir__side_close(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_one_holds_it_and_the_other_is_told_how_long_it_waited,
                                        testing_setup_bare, testing_teardown),
        cmocka_unit_test_setup_teardown(closing_another_descriptor_of_the_file_does_not_let_go,
                                        testing_setup_bare, testing_teardown),
        cmocka_unit_test_setup_teardown(nobody_inherits_it_over_an_exec, testing_setup_bare,
                                        testing_teardown),
        cmocka_unit_test_setup_teardown(it_dies_with_its_holder, testing_setup_bare,
                                        testing_teardown),
        cmocka_unit_test_setup_teardown(
            a_file_that_was_removed_is_made_again_and_the_lock_is_on_the_new_one,
            testing_setup_bare, testing_teardown),
        cmocka_unit_test_setup_teardown(whoever_may_write_the_database_may_write_the_side_file,
                                        testing_setup_bare, testing_teardown),
        cmocka_unit_test_setup_teardown(every_stamp_differs_from_the_one_before, testing_setup_bare,
                                        testing_teardown),
        cmocka_unit_test_setup_teardown(a_directory_that_is_not_there_is_an_error_with_its_code,
                                        testing_setup_bare, testing_teardown),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("side_lock", tests, NULL, NULL);
}
