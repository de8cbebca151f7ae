/* child_keeper_test.c - processes and their keeper: what a program inherits, threads that come and
 * go, a keeper that is killed, a worker that is killed.
 *
 * Workers are killed for real: child_worker, named by $CHILD_WORKER, is started and sent SIGKILL.
 */
#include "child_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_program_starts_with_clean_signals_and_descriptors(void **state)
{
    child_keeper *own = NULL;
    const child_call call = kit_call("{}", WAIT_US);
    sigset_t usr1, before;

    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR2, SIG_IGN);
    (void)sigemptyset(&usr1);
    (void)sigaddset(&usr1, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, &before), 0);
    const int leaky = open("/dev/null", O_RDONLY); /* inherited by everything but this */
    assert_true(leaky > 2);
    assert_int_equal(weir__child_keeper_open(&own, NULL), WEIR_OK);

    /* Two signals are the C library's own: nobody can set them, and posix_spawn, which make uses,
     * may leave them ignored. */
    assert_int_equal(weir__child_run(own,
                                     "awk '/^Sig(Ign|Blk)/ && "
                                     "$2 !~ /^0+(80000000|100000000|180000000)?$/ "
                                     "{ print; exit 1 }' "
                                     "/proc/self/status >&2",
                                     &call, &result, NULL),
                     WEIR_OK);
    assert_int_equal(result.error.len, 0);
    assert_int_equal(result.kind, CHILD_DONE);
    /* what ls opens to look is the fourth */
    assert_int_equal(
        weir__child_run(own, "[ \"$(ls /proc/self/fd | wc -l)\" -eq 4 ]", &call, &result, NULL),
        WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(weir__child_run(own,
                                     "set -- $(ps -o pgid=,sid=,tty= -p $$);"
                                     "[ \"$1 $2 $3\" = \"$$ $PPID ?\" ]",
                                     &call, &result, NULL),
                     WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);

    weir__child_keeper_close(own);
    assert_int_equal(close(leaky), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    (void)signal(SIGUSR2, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
}

/* The shell's parent is its supervisor, and the keeper is that one's. */
#define KEEPER "ps -o ppid= -p $PPID >keeper;"

static pid_t keeper_pid(void)
{
    assert_int_equal(kit_run(KEEPER), CHILD_DONE);
    return kit_pid("keeper");
}

static void a_keeper_ends_when_it_is_closed(void **state)
{
    child_keeper *own = NULL;
    const child_call call = kit_call("{}", WAIT_US);

    (void)state;
    assert_int_equal(weir__child_keeper_open(&own, NULL), WEIR_OK);
    assert_int_equal(weir__child_run(own, KEEPER, &call, &result, NULL), WEIR_OK);
    weir__child_keeper_close(own);
    assert_true(kit_is_gone(kit_pid("keeper")));
    weir__child_keeper_close(NULL);
}

static void what_a_terminal_sends_does_not_end_a_keeper(void **state)
{
    static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE };
    const pid_t pid = keeper_pid();

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(kill(pid, numbers[i]), 0);
    }
    assert_int_equal(keeper_pid(), pid);
}

static void what_a_terminal_sends_does_not_end_a_supervisor(void **state)
{
    (void)state;
    assert_int_equal(
        kit_run("for s in HUP INT QUIT TERM PIPE TSTP USR1 USR2; do kill -$s $PPID; done"),
        CHILD_DONE);
}

/* A program that answers, and is asked once; *pid: its process. */
static child *child_that_stays(pid_t *pid)
{
    child *c = NULL;
    assert_int_equal(weir__child_open(&c, keeper,
                                      "echo $$ >stays; while read -r l; do echo '{\"ok\":true}';"
                                      "done",
                                      NULL),
                     WEIR_OK);
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    *pid = kit_pid("stays");
    return c;
}

static void C44_a_supervisor_that_is_killed_takes_its_program_along(void **state)
{
    const pid_t pid = keeper_pid();
    pid_t stays = -1;

    (void)state;
    child *c = child_that_stays(&stays);
    assert_int_equal(kit_run("echo $$ >pid; sleep 1000 & echo $! >near; setsid sleep 1000 & "
                             "echo $! >far; kill -9 $PPID; exec sleep 1000"),
                     CHILD_RETRY);
    kit_expect(CHILD_RETRY, "the process that supervises the handler was killed");
    assert_true(kit_is_gone(kit_pid("pid")));
    assert_true(kit_is_gone(kit_pid("near")));
    assert_true(kit_is_gone(kit_pid("far")));
    assert_false(kit_is_gone(stays)); /* which has a supervisor of its own */
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    assert_int_equal(keeper_pid(), pid);
    weir__child_close(c);
    assert_true(kit_is_gone(stays));
}

static void a_keeper_that_is_killed_is_replaced(void **state)
{
    const pid_t pid = keeper_pid();
    pid_t stays = -1;

    (void)state;
    child *c = child_that_stays(&stays);
    assert_int_equal(kit_run("kill -9 $(ps -o ppid= -p $PPID); setsid sleep 1000 & echo $! >far"),
                     CHILD_RETRY);
    kit_expect(CHILD_RETRY, "processes it had left in the background were killed");
    kit_await_end(kit_pid("far"));
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE); /* what runs goes on */
    assert_false(kit_is_gone(stays));
    assert_true(keeper_pid() != pid);
    assert_true(kit_is_gone(pid)); /* no zombie is left of it */
    weir__child_close(c);
    kit_await_end(stays);
}

static void *ask_once(void *ctx)
{
    child_result own = { .kind = 0 };
    const child_call call = kit_call("{}", WAIT_US);
    const bool ok = weir__child_ask(ctx, &call, &own, NULL) == WEIR_OK && own.kind == CHILD_DONE;

    weir__child_result_free(&own);
    return ok ? ctx : NULL;
}

static void a_program_outlives_the_thread_that_started_it(void **state)
{
    child *c = NULL;
    void *ok = NULL;
    pthread_t thread;

    (void)state;
    assert_int_equal(weir__child_open(&c, keeper,
                                      "echo $$ >>pids; while read -r l; do echo '{\"ok\":true}';"
                                      "done",
                                      NULL),
                     WEIR_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pthread_create(&thread, NULL, ask_once, c), 0);
        assert_int_equal(pthread_join(thread, &ok), 0);
        assert_non_null(ok);
    }
    assert_int_equal(kit_run("[ \"$(wc -l <pids)\" -eq 1 ]"), CHILD_DONE); /* started once */
    weir__child_close(c);
}

enum { THREADS = 8, ROUNDS = 20 };

static void *run_many(void *ctx)
{
    child_result own = { .kind = 0 };
    const char *number = ctx;
    char command[100];
    void *ok = ctx;

    (void)snprintf(command, sizeof command, "read -r l; echo \"{\\\"retry\\\":\\\"$l %s\\\"}\"",
                   number);
    for (int i = 0; i < ROUNDS; i++) {
        char line[32], why[64];
        (void)snprintf(line, sizeof line, "%d", i);
        (void)snprintf(why, sizeof why, "%d %s", i, number);
        const child_call call = kit_call(line, WAIT_US);
        if (weir__child_run(keeper, command, &call, &own, NULL) != WEIR_OK ||
            !weir__str_equal(own.why, weir__str(why))) {
            ok = NULL;
        }
    }
    weir__child_result_free(&own);
    return ok;
}

static void threads_run_programs_at_the_same_time(void **state)
{
    static char numbers[THREADS][2] = { "0", "1", "2", "3", "4", "5", "6", "7" };
    pthread_t threads[THREADS];
    void *ok = NULL;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &ok), 0);
        assert_non_null(ok);
    }
}

static void a_command_has_a_limit(void **state)
{
    const child_call call = kit_call("{}", WAIT_US);
    char *command = malloc(CHILD_COMMAND_BYTES_MAX + 2);
    child *c = NULL;

    (void)state;
    assert_non_null(command);
    memset(command, ' ', CHILD_COMMAND_BYTES_MAX + 1);
    memcpy(command, "exit 7;", 7);
    command[CHILD_COMMAND_BYTES_MAX] = '\0';
    assert_int_equal(kit_run(command), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 7");
    command[CHILD_COMMAND_BYTES_MAX] = ' ';
    command[CHILD_COMMAND_BYTES_MAX + 1] = '\0';
    assert_int_equal(weir__child_run(keeper, command, &call, &result, NULL), WEIR_EINVAL);
    assert_int_equal(weir__child_run(keeper, "", &call, &result, NULL), WEIR_EINVAL);
    assert_int_equal(weir__child_open(&c, keeper, "", NULL), WEIR_EINVAL);
    free(command);
}

static void a_fork_may_not_use_its_parents_keeper(void **state)
{
    int status = 0;

    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const child_call call = kit_call("{}", WAIT_US);
        const weir_status refused = weir__child_run(keeper, "exit 0", &call, &result, NULL);
        weir__child_keeper_close(keeper); /* and closing it there does not end it */
        _exit(refused == WEIR_EMISUSE ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(kit_run("exit 0"), CHILD_DONE);
}

static void running_out_of_memory_is_said(void **state)
{
    const char *command = "read -r l; printf '%s\\n' '{\"ok\":true,\"append\":[{\"stream\":\"\\n\","
                          "\"name\":\"n\"}]}'; echo x >&2";

    (void)state;
    for (uint64_t n = 1;; n++) {
        const child_call call = kit_call("{}", WAIT_US);
        child *c = NULL;
        weir__child_result_free(&result);
        weir__memory_fail_nth(n);
        weir_status status = weir__child_run(keeper, command, &call, &result, NULL);
        if (status == WEIR_OK) {
            status = weir__child_open(&c, keeper, command, NULL);
        }
        if (status == WEIR_OK) {
            status = weir__child_ask(c, &call, &result, NULL);
        }
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        weir__child_close(c);
        if (!failed) {
            assert_int_equal(status, WEIR_OK);
            assert_int_equal(result.kind, CHILD_DONE);
            assert_true(n > 6);
            break;
        }
        assert_int_equal(status, WEIR_ENOMEM);
    }
}

/* ---- a worker that is killed ---------------------------------------------------------------- */

/* lease: in milliseconds, of what it runs; it is not renewed. */
static pid_t worker_start(const char *lease)
{
    /* Three generations each, one that ignores what can be ignored, one that is stopped, one in a
     * session of its own. */
    static const char run[] = "trap '' TERM HUP INT; " KEEPER "echo $PPID >supervisor;"
                              "setsid sleep 1000 & echo $! >far; echo $$ >run;"
                              "sh -c 'trap \"\" TERM HUP INT PIPE; echo $$ >run2;"
                              "sleep 1000 & echo $! >run3; wait' & wait";
    static const char exec[] = "echo $$ >exec; sh -c 'echo $$ >exec2; kill -STOP $$' &"
                               "while read -r line; do echo '{\"ok\":true}'; done;"
                               "sleep 1000"; /* the closed stdin alone does not end it */
    const char *program = getenv("CHILD_WORKER");

    assert_non_null(program);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(program, program, run, exec, lease, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void worker_dies(int number)
{
    static const char *const files[] = { "run",  "run2",  "run3",       "far",
                                         "exec", "exec2", "supervisor", "keeper" };
    pid_t pids[sizeof files / sizeof files[0]];
    int status = 0;

    const pid_t worker = worker_start("0");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        pids[i] = kit_pid(files[i]);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_false(kit_is_gone(pids[i]));
    }
    assert_int_equal(kill(worker, number), 0);
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFSIGNALED(status));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        kit_await_end(pids[i]);
    }
}

static void C44_programs_and_their_children_end_with_a_worker_that_is_killed(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        worker_dies(SIGKILL);
    }
}

static void and_with_one_that_is_terminated(void **state)
{
    (void)state;
    worker_dies(SIGTERM);
}

static void C44_programs_of_a_stopped_worker_end_with_their_lease(void **state)
{
    static const char *const files[] = { "run", "run2", "run3", "far" };
    pid_t pids[sizeof files / sizeof files[0]];

    (void)state;
    const pid_t worker = worker_start("2000");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        pids[i] = kit_pid(files[i]);
    }
    assert_int_equal(kill(worker, SIGSTOP), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        kit_await_end(pids[i]);
    }
    assert_int_equal(kill(worker, SIGKILL), 0);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
    kit_await_end(kit_pid("keeper"));
    kit_await_end(kit_pid("exec"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_starts_with_clean_signals_and_descriptors),
        cmocka_unit_test(a_keeper_ends_when_it_is_closed),
        cmocka_unit_test(what_a_terminal_sends_does_not_end_a_keeper),
        cmocka_unit_test(what_a_terminal_sends_does_not_end_a_supervisor),
        cmocka_unit_test(C44_a_supervisor_that_is_killed_takes_its_program_along),
        cmocka_unit_test(a_keeper_that_is_killed_is_replaced),
        cmocka_unit_test(a_program_outlives_the_thread_that_started_it),
        cmocka_unit_test(threads_run_programs_at_the_same_time),
        cmocka_unit_test(a_command_has_a_limit),
        cmocka_unit_test(a_fork_may_not_use_its_parents_keeper),
        cmocka_unit_test(running_out_of_memory_is_said),
        cmocka_unit_test(C44_programs_and_their_children_end_with_a_worker_that_is_killed),
        cmocka_unit_test(and_with_one_that_is_terminated),
        cmocka_unit_test(C44_programs_of_a_stopped_worker_end_with_their_lease),
    };
    return cmocka_run_group_tests_name("child_keeper", tests, kit_set_up, kit_tear_down);
}
