/* supervisor_test.c - what is on the leash before the program exists. The other promises of
 * supervisor.h are tried from outside, by the tests of lock, once, claims and handlers.
 *
 * The test is the owner: it writes to its end of the leash, and only then forks the supervisor, so
 * that the order of events is certain.
 */
#define _GNU_SOURCE /* environ */

#include "supervisor/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs `sleep 20` below a supervisor that finds this word on its leash; how the program ended. */
static int wait_status_after(leash_word word, int number)
{
    static char path[] = "/bin/sleep", seconds[] = "20";
    char *paths[] = { path, NULL }, *argv[] = { path, seconds, NULL };
    const supervisor_start start = { .program = { paths, argv, NULL, environ },
                                     .hold_fd = -1,
                                     .clean = true,
                                     .stdio = { -1, -1, -1 } };
    leash_message m = { .word = LEASH_STARTED };
    int leash[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, leash), 0);
    weir__leash_tell(leash[0], word, number, 0);
    const pid_t pid = fork();
    if (pid == 0) {
        supervisor_start own = start;
        own.leash_fd = leash[1];
        weir__supervisor_main(&own);
    }
    assert_true(pid > 0);
    assert_int_equal(close(leash[1]), 0);
    while (m.word == LEASH_STARTED || m.word == LEASH_EXPIRED) {
        assert_int_equal(recv(leash[0], &m, sizeof m, 0), sizeof m);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(close(leash[0]), 0);
    assert_int_equal(m.word, LEASH_ENDED);
    return m.number;
}

static void C40_a_signal_that_comes_before_the_program_reaches_it(void **state)
{
    (void)state;
    const int wait_status = wait_status_after(LEASH_SIGNAL, SIGTERM);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGTERM);
}

static void a_deadline_that_has_passed_starts_nothing(void **state)
{
    (void)state;
    assert_int_equal(WTERMSIG(wait_status_after(LEASH_UNTIL, 0)), SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C40_a_signal_that_comes_before_the_program_reaches_it),
        cmocka_unit_test(a_deadline_that_has_passed_starts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
