/* child_run_test.c - one process per event: everything a program may do, done by real ones. */
#include "child_kit.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- what an exit means --------------------------------------------------------------------- */

static void exit_0_is_done_65_permanent_and_the_rest_retry(void **state)
{
    (void)state;
    assert_int_equal(kit_run("cat >/dev/null"), CHILD_DONE);
    assert_int_equal(result.error.len, 0);
    assert_int_equal(result.reply.len, 0);
    assert_int_equal(kit_run("exit 65"), CHILD_PERMANENT);
    kit_expect(CHILD_PERMANENT, "exited with 65");
    assert_int_equal(kit_run("exit 1"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 1");
    assert_int_equal(kit_run("exit 66"), CHILD_RETRY);
    assert_int_equal(kit_run("/nowhere/to/be/found"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 127");
    assert_true(kit_contains(result.error, "\nstderr:\n"));
    assert_int_equal(kit_run("kill -9 $$"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "killed by signal 9");
    assert_int_equal(kit_run("kill -TERM $$; sleep 60"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "killed by signal 15");
}

static void stdin_has_the_line_a_newline_and_an_end(void **state)
{
    (void)state;
    assert_int_equal(kit_run("[ \"$(wc -c)\" -eq 12 ]"), CHILD_DONE);
    assert_int_equal(kit_run("read -r line && [ \"$line\" = '{\"event\":1}' ]"), CHILD_DONE);
}

static char *long_text(size_t len, const char *before, const char *after)
{
    char *text = malloc(len + 1);

    assert_non_null(text);
    memset(text, 'x', len);
    memcpy(text, before, strlen(before));
    memcpy(text + len - strlen(after), after, strlen(after));
    text[len] = '\0';
    return text;
}

static void a_long_line_goes_in_and_comes_out(void **state)
{
    (void)state;
    char *line = long_text(CHILD_LINE_BYTES_MAX, "{\"retry\":\"", "\"}");
    const child_call call = kit_call(line, WAIT_US);

    assert_int_equal(weir__child_run(keeper, "cat", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_RETRY, "xxxx");
    assert_int_equal(result.reply.len, CHILD_LINE_BYTES_MAX);
    assert_true(result.why.len < 1024); /* bounded, whatever it says */
    free(line);
}

static void a_program_need_not_read(void **state)
{
    (void)state;
    char *line = long_text(1 << 20, "{", "}");
    const child_call call = kit_call(line, WAIT_US);

    /* More than a pipe holds: the write meets a closed pipe, with SIGPIPE at its default. */
    assert_int_equal(weir__child_run(keeper, "exit 0", &call, &result, NULL), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(weir__child_run(keeper, "exec <&-; exit 0", &call, &result, NULL), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_int_equal(weir__child_run(keeper, "exit 4", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_RETRY, "exited with 4");
    free(line);
}

/* ---- replies -------------------------------------------------------------------------------- */

static void the_last_line_may_be_a_reply(void **state)
{
    (void)state;
    assert_int_equal(kit_run("echo hello; echo '{\"ok\":true,\"append\":[{\"stream\":\"a-1\","
                             "\"name\":\"B\",\"data\":{\"n\":1}}]}'"),
                     CHILD_DONE);
    assert_int_equal(result.appends_count, 1);
    assert_true(weir__str_equal(result.appends[0].stream, weir__str("a-1")));
    assert_true(weir__str_equal(result.appends[0].data, weir__str("{\"n\":1}")));
    assert_int_equal(kit_run("printf '{\"permanent\":\"no such card\"}'"), CHILD_PERMANENT);
    kit_expect(CHILD_PERMANENT, "no such card");
    assert_int_equal(kit_run("printf '{\"retry\":\"later\"}\\n\\n  \\n'"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "later");
    assert_int_equal(kit_run("echo '{\"defer\":\"2026-12-01T00:00:00Z\"}'"), CHILD_DEFER);
    assert_int_equal(result.defer_us, INT64_C(1796083200) * SECOND_US);
}

static void other_output_means_nothing(void **state)
{
    (void)state;
    assert_int_equal(kit_run("echo '{\"retry\":\"x\"}'; echo done"), CHILD_DONE);
    assert_int_equal(kit_run("echo '{\"level\":\"info\"}'"), CHILD_DONE);
    assert_int_equal(result.reply.len, 0);
    assert_int_equal(kit_run("echo '[1]'"), CHILD_DONE);
    assert_int_equal(kit_run("echo; echo"), CHILD_DONE);
    assert_int_equal(kit_run("printf '\\000\\377{'"), CHILD_DONE);
}

static void a_reply_with_a_mistake_is_a_failure_that_says_which(void **state)
{
    (void)state;
    assert_int_equal(kit_run("echo '{\"ok\":true,\"outbox\":[]}'"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "unknown member \"outbox\"");
    assert_int_equal(result.reply.len, 0);
    assert_int_equal(result.appends_count, 0);
    assert_int_equal(kit_run("echo '{\"ok\":true,\"append\":[}'"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "invalid JSON");
}

static void a_reply_counts_only_with_exit_0(void **state)
{
    (void)state;
    assert_int_equal(kit_run("echo '{\"ok\":true}'; exit 3"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 3");
    assert_int_equal(result.reply.len, 0);
    assert_int_equal(kit_run("echo '{\"retry\":\"x\"}'; exit 65"), CHILD_PERMANENT);
}

/* ---- too much ------------------------------------------------------------------------------- */

static void a_line_has_a_limit(void **state)
{
    char command[200];

    (void)state;
    (void)snprintf(command, sizeof command, "head -c %d /dev/zero | tr '\\0' x; echo",
                   (int)CHILD_LINE_BYTES_MAX);
    assert_int_equal(kit_run(command), CHILD_DONE);
    (void)snprintf(command, sizeof command,
                   "echo $$ >pid; head -c %d /dev/zero | tr '\\0' x; exec sleep 1000",
                   (int)CHILD_LINE_BYTES_MAX + 1);
    assert_int_equal(kit_run(command), CHILD_RETRY); /* at once, not when the sleep is over */
    kit_expect(CHILD_RETRY, "a line of more than 4194304 bytes");
    assert_true(kit_is_gone(kit_pid("pid")));
    (void)snprintf(command, sizeof command, "head -c %d /dev/zero", (int)CHILD_LINE_BYTES_MAX + 1);
    assert_int_equal(kit_run(command), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "a line of more than 4194304 bytes");
}

static void a_flood_of_lines_takes_no_memory(void **state)
{
    struct rusage before, after;

    (void)state;
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(kit_run("line=$(head -c 60 /dev/zero | tr '\\0' y);"
                             "yes $line | head -c 50000000 & yes $line | head -c 50000000 >&2;"
                             "wait; exit 9"),
                     CHILD_RETRY);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    kit_expect(CHILD_RETRY, "exited with 9");
    assert_true(result.error.len < CHILD_STDERR_BYTES_MAX + 1024);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* KiB */
}

/* ---- stderr --------------------------------------------------------------------------------- */

static void the_error_has_the_last_of_stderr(void **state)
{
    (void)state;
    assert_int_equal(kit_run("echo 'first line' >&2; printf 'caf\\303\\251 \\377\\033[1m\\n' >&2;"
                             "exit 1"),
                     CHILD_RETRY);
    const weir_str expected = weir__str("the handler exited with 1\nstderr:\nfirst line\n"
                                        "caf\xc3\xa9 ??[1m");
    assert_true(weir__str_equal(result.error, expected));
    assert_int_equal(kit_run("echo first >&2; head -c 4090 /dev/zero | tr '\\0' y >&2;"
                             "printf '%s' last >&2; exit 1"),
                     CHILD_RETRY);
    assert_true(kit_contains(result.error, "\nstderr, its last 4096 bytes:\nt\nyyyy"));
    assert_true(kit_contains(result.error, "yyyylast"));
    assert_int_equal(kit_run("echo all is well >&2"), CHILD_DONE);
    assert_int_equal(result.error.len, 0);
}

typedef struct heard {
    char text[512];
    size_t lines_count;
    size_t longest;
} heard;

static void hear(void *ctx, weir_str line)
{
    heard *h = ctx;
    const size_t len = strlen(h->text);

    h->lines_count++;
    h->longest = line.len > h->longest ? line.len : h->longest;
    if (line.len < 100) {
        (void)snprintf(h->text + len, sizeof h->text - len, "<%.*s>", (int)line.len, line.ptr);
    }
}

static void stderr_is_passed_on_line_by_line_if_wanted(void **state)
{
    heard h = { .lines_count = 0 };
    child_call call = kit_call("{}", WAIT_US);

    (void)state;
    call.stderr_cb = hear;
    call.stderr_ctx = &h;
    assert_int_equal(weir__child_run(keeper,
                                     "echo one >&2; echo >&2; head -c 10000 /dev/zero >&2;"
                                     "echo >&2; printf two >&2",
                                     &call, &result, NULL),
                     WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_string_equal(h.text, "<one><><two>");
    assert_int_equal(h.longest, CHILD_STDERR_BYTES_MAX);
    assert_int_equal(h.lines_count, 6);
}

/* ---- processes that stay -------------------------------------------------------------------- */

static void gather(void *ctx, weir_str line)
{
    char *all = ctx;
    const size_t len = strlen(all);

    (void)snprintf(all + len, 64 - len, "<%.*s>", (int)line.len, line.ptr);
}

static void stdout_is_passed_on_line_by_line_if_wanted(void **state)
{
    (void)state;
    char all[64] = "";
    child_call call = kit_call("{}", WAIT_US);

    call.stdout_cb = gather;
    call.stdout_ctx = all;
    assert_int_equal(weir__child_run(keeper, "echo one; echo; printf two", &call, &result, NULL),
                     WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_string_equal(all, "<one><><two>");
}

static void note_group(void *ctx, pid_t group)
{
    *(pid_t *)ctx = group;
}

static void a_plain_call_says_its_group_and_keeps_the_last_line_as_it_is(void **state)
{
    (void)state;
    pid_t group = 0;
    char expected[64];
    child_call call = kit_call("{}", WAIT_US);

    call.plain = true;
    call.started_cb = note_group;
    call.started_ctx = &group;
    assert_int_equal(
        weir__child_run(keeper, "read -r line; echo '{\"retry\":\"x\"}'; echo \"group $$\"; echo",
                        &call, &result, NULL),
        WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
    assert_true(group > 0);
    (void)snprintf(expected, sizeof expected, "group %d", (int)group);
    assert_true(weir__str_equal(result.reply, weir__str(expected)));
    assert_int_equal(weir__child_run(keeper, "echo '{\"retry\":\"x\"}'", &call, &result, NULL),
                     WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE); /* it says nothing to us */
    assert_int_equal(weir__child_run(keeper, "exit 65", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_RETRY, "exited with 65");
    assert_int_equal(result.exit_status, 65);
    assert_int_equal(weir__child_run(keeper, "kill -TERM $$", &call, &result, NULL), WEIR_OK);
    assert_int_equal(result.exit_status, 143);
    call.deadline_mono_us = kit_now_us() + SECOND_US / 10;
    assert_int_equal(weir__child_run(keeper, "sleep 60", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_RETRY, "deadline");
    assert_int_equal(result.exit_status, -1);
}

static void what_hangs_is_killed_with_all_its_group(void **state)
{
    const child_call call = kit_call("{}", SECOND_US);

    (void)state;
    assert_int_equal(weir__child_run(keeper,
                                     "trap '' TERM HUP INT QUIT; echo working >&2;"
                                     "sh -c 'echo $$ >inner; sleep 1000; :' & echo $! >outer;"
                                     "kill -STOP $$",
                                     &call, &result, NULL),
                     WEIR_OK);
    assert_true(kit_now_us() >= call.deadline_mono_us);
    kit_expect(CHILD_RETRY, "not done by its deadline and was killed");
    assert_true(kit_contains(result.error, "\nstderr:\nworking"));
    assert_true(kit_is_gone(kit_pid("inner"))); /* now, not soon */
    assert_true(kit_is_gone(kit_pid("outer")));
}

static void a_grandchild_that_lives_on_costs_a_retry_and_no_time(void **state)
{
    const int64_t began_us = kit_now_us();

    (void)state;
    assert_int_equal(kit_run("sleep 1000 & echo $! >pid; exit 0"), CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 0; processes it had left in the background were killed");
    assert_true(kit_is_gone(kit_pid("pid")));
    assert_int_equal(kit_run("sleep 1000 & echo $! >pid; exit 65"), CHILD_PERMANENT);
    kit_expect(CHILD_PERMANENT, "exited with 65; processes it had left");
    assert_true(kit_is_gone(kit_pid("pid")));
    assert_true(kit_now_us() - began_us < WAIT_US / 2);
}

static void a_grandchild_that_is_about_to_end_may(void **state)
{
    (void)state;
    /* It ends when its stdin does, which its parent holds open until it exits itself. */
    assert_int_equal(kit_run("mkfifo pipe; { cat; echo '{\"retry\":\"seen\"}'; } <pipe &"
                             "exec 9>pipe; exit 0"),
                     CHILD_RETRY);
    kit_expect(CHILD_RETRY, "seen"); /* what it wrote last was waited for */
}

static void C44_what_leaves_its_session_is_waited_for_and_ended_too(void **state)
{
    (void)state;
    /* `yes` writes for ever: there is always more to read. */
    assert_int_equal(kit_run("setsid sh -c 'echo $$ >pid; exec yes' &"
                             "until [ -s pid ]; do :; done; exit 0"),
                     CHILD_RETRY);
    kit_expect(CHILD_RETRY, "exited with 0; processes it had left in the background were killed");
    assert_true(kit_is_gone(kit_pid("pid"))); /* now, not soon */
    /* Twice removed, its parents gone, with nothing of the handler's open. */
    assert_int_equal(kit_run("setsid sh -c 'setsid sh -c \"echo \\$\\$ >pid; exec sleep 1000\" &' "
                             "</dev/null >/dev/null 2>&1; until [ -s pid ]; do :; done; exit 0"),
                     CHILD_RETRY);
    assert_true(kit_is_gone(kit_pid("pid")));
    /* One that ends by itself may. */
    assert_int_equal(kit_run("setsid sh -c 'until [ -s pid ]; do :; done' & echo $! >pid; exit 0"),
                     CHILD_DONE);
    assert_true(kit_is_gone(kit_pid("pid")));
}

static void what_hangs_is_killed_with_all_that_left_it(void **state)
{
    const child_call call = kit_call("{}", SECOND_US);

    (void)state;
    assert_int_equal(weir__child_run(keeper,
                                     "setsid sh -c 'trap \"\" TERM; echo $$ >far; kill -STOP $$' &"
                                     "sleep 1000",
                                     &call, &result, NULL),
                     WEIR_OK);
    kit_expect(CHILD_RETRY, "not done by its deadline and was killed");
    assert_true(kit_is_gone(kit_pid("far")));
}

/* ---- leases --------------------------------------------------------------------------------- */

static void C44_a_handler_ends_with_a_lease_that_is_not_renewed(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    child_lease lease;

    (void)state;
    assert_true(weir__child_lease_init(&lease));
    call.lease = &lease;
    const int64_t until_us = weir__clock_boot() + SECOND_US / 2;
    weir__child_lease_set(&lease, until_us);
    assert_int_equal(weir__child_run(keeper,
                                     "setsid sleep 1000 & echo $! >far; kill -STOP $$;"
                                     "exec sleep 1000",
                                     &call, &result, NULL),
                     WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "its lease was not renewed in time");
    assert_true(result.expired);
    assert_true(weir__clock_boot() >= until_us);
    assert_true(access("far", F_OK) != 0 || kit_is_gone(kit_pid("far")));
    /* Nothing is run under one that has ended. */
    assert_int_equal(weir__child_run(keeper, "touch ran", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "its lease was not renewed in time");
    assert_int_not_equal(access("ran", F_OK), 0);
    weir__child_lease_destroy(&lease);
}

typedef struct renewal {
    child_lease lease;
    int64_t until_us; /* as it was first */
} renewal;

/* The handler runs until the first end of its lease has passed. */
static void renew(void *ctx, pid_t group)
{
    renewal *r = ctx;

    (void)group;
    weir__child_lease_set(&r->lease, INT64_MAX);
    while (weir__clock_boot() <= r->until_us + SECOND_US / 4) { /* it would have been ended */
        weir__clock_pause(1000);
    }
    kit_touch("go");
}

static void C44_a_handler_goes_on_with_a_lease_that_is_renewed(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    renewal r;

    (void)state;
    assert_true(weir__child_lease_init(&r.lease));
    call.lease = &r.lease;
    call.started_cb = renew;
    call.started_ctx = &r;
    /* A machine that is too slow to renew it in time is given more. */
    for (int64_t span_us = SECOND_US / 4; span_us < WAIT_US; span_us *= 4) {
        (void)unlink("go");
        r.until_us = weir__clock_boot() + span_us;
        weir__child_lease_set(&r.lease, r.until_us);
        assert_int_equal(
            weir__child_run(keeper, "until [ -e go ]; do sleep 0.01; done", &call, &result, NULL),
            WEIR_OK);
        if (result.kind == CHILD_DONE) {
            break;
        }
    }
    assert_int_equal(result.kind, CHILD_DONE);
    weir__child_lease_destroy(&r.lease);
}

/* ---- being stopped -------------------------------------------------------------------------- */

static void a_stop_ends_the_call(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    atomic_bool interrupted = true;

    (void)state;
    call.interrupted = &interrupted;
    assert_int_equal(weir__child_run(keeper, "touch ran", &call, &result, NULL), WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "interrupted before the handler ran");
    assert_int_equal(access("ran", F_OK), -1);
    atomic_store(&interrupted, false);
    assert_int_equal(weir__child_run(keeper, "exit 0", &call, &result, NULL), WEIR_OK);
    assert_int_equal(result.kind, CHILD_DONE);
}

static void raise_flag(void *ctx, weir_str line)
{
    (void)line;
    atomic_store((atomic_bool *)ctx, true);
}

static void a_flag_ends_a_call_that_waits(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    atomic_bool interrupted = false;

    (void)state;
    call.interrupted = &interrupted;
    call.stderr_cb = raise_flag; /* the program says when it is under way */
    call.stderr_ctx = &interrupted;
    assert_int_equal(
        weir__child_run(keeper, "echo $$ >pid; echo >&2; exec sleep 1000", &call, &result, NULL),
        WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "the handler was interrupted");
    assert_true(kit_is_gone(kit_pid("pid")));
    assert_true(kit_now_us() < call.deadline_mono_us);
}

static void raise_event(void *ctx, weir_str line)
{
    (void)line;
    assert_int_equal(eventfd_write(*(int *)ctx, 1), 0);
}

static void a_descriptor_ends_a_call_that_waits(void **state)
{
    child_call call = kit_call("{}", WAIT_US);
    int fd = eventfd(0, EFD_CLOEXEC);

    (void)state;
    assert_true(fd > 0);
    call.stop_fd = fd;
    call.stderr_cb = raise_event;
    call.stderr_ctx = &fd;
    assert_int_equal(
        weir__child_run(keeper, "echo $$ >pid; echo >&2; exec sleep 1000", &call, &result, NULL),
        WEIR_OK);
    kit_expect(CHILD_INTERRUPTED, "the handler was interrupted");
    assert_true(kit_is_gone(kit_pid("pid")));
    assert_true(kit_now_us() < call.deadline_mono_us);
    assert_int_equal(close(fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_0_is_done_65_permanent_and_the_rest_retry),
        cmocka_unit_test(stdin_has_the_line_a_newline_and_an_end),
        cmocka_unit_test(a_long_line_goes_in_and_comes_out),
        cmocka_unit_test(a_program_need_not_read),
        cmocka_unit_test(the_last_line_may_be_a_reply),
        cmocka_unit_test(other_output_means_nothing),
        cmocka_unit_test(a_reply_with_a_mistake_is_a_failure_that_says_which),
        cmocka_unit_test(a_reply_counts_only_with_exit_0),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(a_flood_of_lines_takes_no_memory),
        cmocka_unit_test(the_error_has_the_last_of_stderr),
        cmocka_unit_test(stderr_is_passed_on_line_by_line_if_wanted),
        cmocka_unit_test(stdout_is_passed_on_line_by_line_if_wanted),
        cmocka_unit_test(a_plain_call_says_its_group_and_keeps_the_last_line_as_it_is),
        cmocka_unit_test(what_hangs_is_killed_with_all_its_group),
        cmocka_unit_test(a_grandchild_that_lives_on_costs_a_retry_and_no_time),
        cmocka_unit_test(a_grandchild_that_is_about_to_end_may),
        cmocka_unit_test(C44_what_leaves_its_session_is_waited_for_and_ended_too),
        cmocka_unit_test(what_hangs_is_killed_with_all_that_left_it),
        cmocka_unit_test(C44_a_handler_ends_with_a_lease_that_is_not_renewed),
        cmocka_unit_test(C44_a_handler_goes_on_with_a_lease_that_is_renewed),
        cmocka_unit_test(a_stop_ends_the_call),
        cmocka_unit_test(a_flag_ends_a_call_that_waits),
        cmocka_unit_test(a_descriptor_ends_a_call_that_waits),
    };
    return cmocka_run_group_tests_name("child_run", tests, kit_set_up, kit_tear_down);
}
