/* child_ask_test.c - a program that stays: lines in and out, and every way of breaking that. */
#include "child_kit.h"

#include <stdlib.h>
#include <unistd.h>

/* Answers each line with an event that carries its own process and the line's number. */
#define COUNTER                                                                                    \
    "n=0; while read -r line; do n=$((n+1)); "                                                     \
    "echo '{\"ok\":true,\"append\":[{\"stream\":\"p-'$$'\",\"name\":\"n'$n'\"}]}'; done"

static child *open_child(const char *command)
{
    child *c = NULL;

    assert_int_equal(weir__child_open(&c, keeper, command, NULL), WEIR_OK);
    return c;
}

static pid_t answered_by(void)
{
    int64_t pid = 0;

    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(result.appends_count, 1);
    assert_true(weir__str_to_i64((weir_str){ .ptr = result.appends[0].stream.ptr + 2,
                                             .len = result.appends[0].stream.len - 2 },
                                 &pid));
    return (pid_t)pid;
}

static void one_program_answers_all_questions(void **state)
{
    child *c = open_child(COUNTER);
    char name[32];

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    const pid_t pid = answered_by();
    for (int i = 2; i <= 300; i++) {
        assert_int_equal(kit_ask(c, "{\"event\":1}"), CHILD_DONE);
        assert_int_equal(answered_by(), pid);
        (void)snprintf(name, sizeof name, "n%d", i);
        assert_true(weir__str_equal(result.appends[0].name, weir__str(name)));
    }
    assert_false(kit_is_gone(pid));
    weir__child_close(c);
    assert_true(kit_is_gone(pid));
    weir__child_close(NULL);
}

static void answers_that_are_no_success_keep_the_program(void **state)
{
    child *c = open_child("while read -r line; do echo log $line >&2; echo \"$line\"; done");

    (void)state;
    assert_int_equal(kit_ask(c, "{\"retry\":\"busy\"}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "busy");
    assert_true(kit_contains(result.error, "\nstderr:\nlog {\"retry\":\"busy\"}"));
    assert_int_equal(kit_ask(c, "{\"permanent\":\"never\"}"), CHILD_PERMANENT);
    assert_true(kit_contains(result.error, "\nstderr:\nlog {\"permanent\":\"never\"}"));
    assert_false(kit_contains(result.error, "busy")); /* that was about another event */
    assert_int_equal(kit_ask(c, "{\"defer\":\"2026-12-01T00:00:00Z\"}"), CHILD_DEFER);
    assert_int_equal(kit_ask(c, "{\"ok\":true}"), CHILD_DONE);
    weir__child_close(c);
}

static void a_program_that_dies_is_started_again(void **state)
{
    child *c =
        open_child("echo $$ >pid; read -r line; echo oops >&2; [ \"$line\" != '{\"die\":1}' ]"
                   " || exit 3; [ \"$line\" != '{\"die\":2}' ] || kill -9 $$;"
                   "echo '{\"ok\":true}'; cat >/dev/null");

    (void)state;
    assert_int_equal(kit_ask(c, "{\"die\":1}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 3 without answering");
    assert_true(kit_contains(result.error, "\nstderr:\noops"));
    const pid_t first = kit_pid("pid");
    assert_true(kit_is_gone(first));
    assert_int_equal(kit_ask(c, "{\"die\":2}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "killed by signal 9 without answering");
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    weir__child_close(c);
}

static void a_program_that_does_not_read_costs_a_retry(void **state)
{
    child *c = open_child("exit 0");

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
        kit_expect(CHILD_RETRY, "exited with 0 without answering");
    }
    weir__child_close(c);
}

static void ending_between_questions_costs_nothing(void **state)
{
    child *c = open_child("read -r line; echo '{\"ok\":true,\"append\":[{\"stream\":\"p-'$$'\","
                          "\"name\":\"x\"}]}'");

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
        kit_await_gone(answered_by()); /* its keeper has seen it end */
    }
    weir__child_close(c);
}

static void a_last_answer_without_newline_is_one(void **state)
{
    child *c = open_child("read -r line; printf '{\"ok\":true}'");

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    weir__child_close(c);
}

static void rubbish_costs_a_retry_and_the_program(void **state)
{
    static const struct {
        const char *answer, *why;
    } cases[] = {
        { "hello", "not a reply: invalid JSON" },
        { "", "not a reply: invalid JSON" },
        { "[]", "not a reply: expected a JSON object" },
        { "{}", "expected one of" },
        { "{\"ok\":true,\"outbox\":1}", "unknown member \"outbox\"" },
        { "{\"ok\":true,\"append\":[{\"stream\":\"s\",\"name\":\"n\",\"key\":1}]}",
          "unknown member \"key\"" },
        { "{\"ok\":true}\n{\"ok\":true}", "more than one line" },
        { "{\"ok\":true}\nx", "more than one line" },
        { "{\"ok\":true}\n", "more than one line" }, /* and an empty one */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *out = fopen("answer", "w");
        assert_non_null(out);
        assert_true(fprintf(out, "%s\n", cases[i].answer) > 0);
        assert_int_equal(fclose(out), 0);
        child *c =
            open_child("echo $$ >pid; read -r line; cat answer; echo why >&2; cat >/dev/null");
        assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
        kit_expect(CHILD_RETRY, cases[i].why);
        assert_int_equal(result.appends_count, 0);
        assert_true(kit_is_gone(kit_pid("pid")));
        weir__child_close(c);
    }
}

static void a_line_nobody_asked_for_is_not_taken_for_an_answer(void **state)
{
    child *c =
        open_child("read -r line; echo '{\"ok\":true}'; until [ -e go ]; do sleep 0.01; done;"
                   "echo '{\"ok\":true}'; : >gone; cat >/dev/null");

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    kit_touch("go");
    kit_await_file("gone");
    assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "wrote to stdout without being asked and was killed: {\"ok\":true}");
    assert_int_equal(unlink("go"), 0);
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE); /* by a new one */
    weir__child_close(c);
}

static void a_line_has_a_limit(void **state)
{
    child *c = open_child("echo $$ >pid; read -r line;"
                          "head -c 4194305 /dev/zero | tr '\\0' ' '; cat >/dev/null");
    child *most = open_child("read -r line; printf '{\"ok\":true}';"
                             "head -c 4194293 /dev/zero | tr '\\0' ' '; echo; cat >/dev/null");

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "a line of more than 4194304 bytes");
    assert_true(kit_is_gone(kit_pid("pid")));
    weir__child_close(c);
    assert_int_equal(kit_ask(most, "{}"), CHILD_DONE);
    weir__child_close(most);
}

static void what_hangs_is_killed_with_all_its_group(void **state)
{
    child *c = open_child("sleep 1000 & echo $! >pid; echo waiting >&2; read -r line; wait");
    const child_call call = kit_call("{}", SECOND_US);

    (void)state;
    assert_int_equal(weir__child_ask(c, &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_RETRY,
               "not done by its deadline and was killed; an exec: handler gets one line "
               "per event and must answer each line (read a line, not to the end of "
               "stdin)");
    assert_true(kit_contains(result.error, "\nstderr:\nwaiting"));
    assert_true(kit_is_gone(kit_pid("pid")));
    weir__child_close(c);
}

static void a_program_that_closes_stdout_is_not_waited_for(void **state)
{
    child *c = open_child("exec >&-; echo $$ >pid; sleep 1000");
    const int64_t began_us = kit_now_us();

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "closed its stdout without answering");
    assert_true(kit_now_us() - began_us < WAIT_US / 2);
    assert_true(kit_is_gone(kit_pid("pid")));
    weir__child_close(c);
}

static void a_grandchild_that_holds_stdout_is_not_waited_for(void **state)
{
    child *c = open_child("read -r line; sleep 1000 & echo $! >pid; exit 2");

    (void)state;
    assert_int_equal(kit_ask(c, "{}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 2 without answering; processes it had left");
    assert_true(kit_is_gone(kit_pid("pid")));
    weir__child_close(c);
}

/* An array of blanks, of more than a pipe holds. */
static char *long_line(void)
{
    const size_t len = 200000;
    char *line = malloc(len + 1);

    assert_non_null(line);
    memset(line, ' ', len);
    line[0] = '[';
    line[len - 1] = ']';
    line[len] = '\0';
    return line;
}

static void an_answer_that_comes_before_the_question_was_read_waits(void **state)
{
    char *line = long_line();
    child *c = open_child("echo '{\"ok\":true}'; read -r line; exec cat");

    (void)state;
    assert_int_equal(kit_ask(c, line), CHILD_DONE);
    assert_int_equal(kit_ask(c, "{\"retry\":\"echo\"}"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "echo"); /* in step: nothing of the first line is left */
    weir__child_close(c);
    free(line);
}

static void a_program_that_cannot_be_asked_again_is_replaced(void **state)
{
    char *line = long_line();
    child *c = open_child("exec <&-; echo $$ >pid; echo '{\"ok\":true}'; sleep 1000");

    (void)state;
    assert_int_equal(kit_ask(c, line), CHILD_DONE);
    const pid_t first = kit_pid("pid");
    assert_int_equal(kit_ask(c, line), CHILD_DONE);
    assert_true(kit_is_gone(first));
    weir__child_close(c);
    free(line);
}

static void raise_flag(void *ctx, weir_str line)
{
    (void)line;
    atomic_store((atomic_bool *)ctx, true);
}

static void a_lease_is_of_the_question_and_not_of_the_program(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    child_lease lease;
    child *c = NULL;

    (void)state;
    assert_true(weir__child_lease_init(&lease));
    assert_int_equal(weir__child_open(&c, keeper,
                                      "echo $$ >pid; while read -r l; do [ -e silent ] && s=1;"
                                      "echo '{\"ok\":true}'; [ -z \"$s\" ] || sleep 1000; done",
                                      NULL),
                     WEIR_OK);
    call.lease = &lease;
    assert_int_equal(weir__child_ask(c, &call, &result, NULL), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    const pid_t pid = kit_pid("pid");
    weir__child_lease_set(&lease, 0); /* it has ended while the program was idle */
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    kit_touch("silent");
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    weir__child_lease_set(&lease, weir__clock_boot() + SECOND_US / 4);
    assert_int_equal(weir__child_ask(c, &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "its lease was not renewed in time");
    assert_true(kit_is_gone(pid)); /* it was one program all along */
    weir__child_close(c);
    weir__child_lease_destroy(&lease);
}

static void a_stop_ends_the_program(void **state)
{
    child *c = open_child("echo $$ >pid; read -r line; echo >&2; [ -e answer_now ] || sleep 1000;"
                          "echo '{\"ok\":true}'; cat >/dev/null");
    child_call call = kit_call("{}", WAIT_US);
    atomic_bool interrupted = false;

    (void)state;
    call.interrupted = &interrupted;
    call.stderr_cb = raise_flag;
    call.stderr_ctx = &interrupted;
    assert_int_equal(weir__child_ask(c, &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "the handler was interrupted");
    assert_true(kit_is_gone(kit_pid("pid")));
    kit_touch("answer_now");
    assert_int_equal(kit_ask(c, "{}"), CHILD_DONE);
    weir__child_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_program_answers_all_questions),
        cmocka_unit_test(answers_that_are_no_success_keep_the_program),
        cmocka_unit_test(a_program_that_dies_is_started_again),
        cmocka_unit_test(a_program_that_does_not_read_costs_a_retry),
        cmocka_unit_test(ending_between_questions_costs_nothing),
        cmocka_unit_test(a_last_answer_without_newline_is_one),
        cmocka_unit_test(rubbish_costs_a_retry_and_the_program),
        cmocka_unit_test(a_line_nobody_asked_for_is_not_taken_for_an_answer),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(what_hangs_is_killed_with_all_its_group),
        cmocka_unit_test(a_program_that_closes_stdout_is_not_waited_for),
        cmocka_unit_test(a_grandchild_that_holds_stdout_is_not_waited_for),
        cmocka_unit_test(an_answer_that_comes_before_the_question_was_read_waits),
        cmocka_unit_test(a_program_that_cannot_be_asked_again_is_replaced),
        cmocka_unit_test(a_lease_is_of_the_question_and_not_of_the_program),
        cmocka_unit_test(a_stop_ends_the_program),
    };
    return cmocka_run_group_tests_name("child_ask", tests, kit_set_up, kit_tear_down);
}
