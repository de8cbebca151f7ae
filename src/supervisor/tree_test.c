/* tree_test.c - finding the processes below this one, and saying so when that is not possible.
 *
 * The tree is a child that sleeps. Descriptors are taken away with RLIMIT_NOFILE, in a process of
 * its own, because the test's own files need some.
 */
#include "supervisor/tree.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static pid_t sleeper_start(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            (void)pause();
        }
    }
    assert_true(pid > 0);
    return pid;
}

static void sleeper_end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_child_is_found_and_signalled(void **state)
{
    (void)state;
    int wait_status = 0;
    const pid_t pid = sleeper_start();
    assert_int_equal(weir__tree_signal(SIGTERM, 0, NULL), 1);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(weir__tree_signal(SIGTERM, 0, NULL), 0);
}

static void *pause_for_ever(void *arg)
{
    for (;;) {
        (void)pause();
    }
    return arg;
}

/* /proc calls a process whose first thread has ended a zombie, although the others run. */
static void C44_a_process_whose_first_thread_has_ended_is_found_and_ended(void **state)
{
    (void)state;
    int wait_status = 0;
    siginfo_t how = { 0 };
    char path[64], text[8] = "";
    const pid_t pid = fork();
    if (pid == 0) {
        pthread_t other;
        if (pthread_create(&other, NULL, pause_for_ever, NULL) != 0) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
    assert_true(pid > 0);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)pid);
    do { /* until its first thread has ended */
        char line[256];
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file) != NULL && sscanf(line, "State: %7s", text) != 1) {
        }
        (void)fclose(file);
        assert_int_equal(waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT), 0);
        assert_int_equal(how.si_pid, 0);
    } while (strcmp(text, "Z") != 0);
    assert_int_equal(weir__tree_signal(SIGKILL, 0, NULL), 1);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(weir__tree_signal(SIGKILL, 0, NULL), 0);
}

/* With so many descriptors free: 0 when the answer is `expected`. */
static int answer_with_free(rlim_t free_count, size_t expected)
{
    const int next = dup(STDIN_FILENO);
    const struct rlimit limit = { .rlim_cur = (rlim_t)next + free_count,
                                  .rlim_max = (rlim_t)next + free_count };
    (void)close(next);
    if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 2;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            (void)pause();
        }
    }
    const size_t found = weir__tree_signal(0, 0, NULL);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return found == expected ? 0 : 1;
}

static void without_descriptors_nobody_is_called_gone(void **state)
{
    (void)state;
    for (rlim_t free_count = 0; free_count <= TREE_FDS; free_count++) {
        int wait_status = 0;
        const pid_t pid = fork();
        if (pid == 0) {
            _exit(answer_with_free(free_count, free_count < TREE_FDS ? SIZE_MAX : 1));
        }
        assert_int_equal(waitpid(pid, &wait_status, 0), pid);
        assert_true(WIFEXITED(wait_status));
        assert_int_equal(WEXITSTATUS(wait_status), 0);
    }
}

static bool skip_all(pid_t pid)
{
    (void)pid;
    return true;
}

static void what_is_skipped_does_not_count(void **state)
{
    (void)state;
    const pid_t pid = sleeper_start();
    assert_int_equal(weir__tree_signal(SIGKILL, 0, skip_all), 0);
    sleeper_end(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_found_and_signalled),
        cmocka_unit_test(C44_a_process_whose_first_thread_has_ended_is_found_and_ended),
        cmocka_unit_test(without_descriptors_nobody_is_called_gone),
        cmocka_unit_test(what_is_skipped_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
