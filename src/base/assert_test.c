/* assert_test.c - what a broken invariant looks like from outside: a child process breaks one. */
#include "base/assert.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_false_assertion_aborts_and_names_itself(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int two = 2;
        (void)dup2(fds[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would turn it into a failed test */
        WEIR_ASSERT(two == 3);
        _exit(0);
    }
    assert_int_equal(close(fds[1]), 0);
    char text[512] = "";
    size_t len = 0;
    ssize_t rc;
    while ((rc = read(fds[0], text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)rc;
    }
    assert_int_equal(close(fds[0]), 0);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "two == 3"));
    assert_non_null(strstr(text, "assert_test.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}

static void a_true_assertion_evaluates_its_condition_once(void **state)
{
    (void)state;
    int calls = 0;
    WEIR_ASSERT(++calls == 1);
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_false_assertion_aborts_and_names_itself),
        cmocka_unit_test(a_true_assertion_evaluates_its_condition_once),
    };
    return cmocka_run_group_tests_name("assert", tests, NULL, NULL);
}
