/* slot_program_test.c - reactions that are programs, with real ones: what they are given, and what
 * their answers do. What programs can do wrong is tested with child/.
 *
 * Method: as slot_test.c, on memory; the hand-moved clock starts where the machine's is, because a
 * program's deadline is a time of the machine.
 */
#include "engine/slot_kit_test.h"

#include "base/str.h"
#include "engine/child/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static kit_process a;
static child_keeper *keeper;
static char dir[64];

static weir_store *begin(const char *run, const char *exec, weir_reaction more, size_t count)
{
    const worker_options options = { .keeper = keeper };
    weir_store *s = kit_open(false);
    kit_mono_us = weir__clock_mono(weir__clock_machine());
    more.run = run;
    more.exec = exec;
    kit_handler(&a, NULL, "one", "to-{stream}", &more);
    kit_start(&a, s, &options);
    for (size_t i = 0; i < count; i++) {
        (void)kit_append(s, "order-1", "Placed", "{\"n\":[1]}");
    }
    kit_drive(&a, 1);
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/weir-program-XXXXXX");
    return mkdtemp(dir) != NULL && weir__child_keeper_open(&keeper, NULL) == WEIR_OK ? 0 : -1;
}

static int teardown(void **state)
{
    char path[100];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/line", dir);
    (void)unlink(path);
    weir__child_keeper_close(keeper);
    return rmdir(dir);
}

static void a_program_is_given_the_event_on_one_line(void **state)
{
    char command[200], path[100], line[1000] = "", expected[1000];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/line", dir);
    (void)snprintf(command, sizeof command, "cat > %s", path);
    weir_store *s = begin(command, NULL, (weir_reaction){ 0 }, 1);
    assert_int_equal(kit_at(s, "to-order-1", "one"), 1);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(fgetc(f), EOF);
    (void)fclose(f);
    const char *created = strstr(line, "\"created\":\"");
    const char *deadline = strstr(line, "\"deadline\":\"");
    assert_non_null(created);
    assert_non_null(deadline);
    (void)snprintf(expected, sizeof expected,
                   "{\"event\":{\"id\":1,\"stream\":\"order-1\",\"version\":0,\"name\":\"Placed\","
                   "\"data\":{\"n\":[1]},\"meta\":{},\"created\":\"%.27s\"},\"reaction\":\"one\","
                   "\"target\":\"to-order-1\",\"attempt\":1,\"fence\":1,\"deadline\":\"%.27s\","
                   "\"key\":\"one:1\"}\n",
                   created + 11, deadline + 12);
    assert_string_equal(line, expected);
    end(s);
}

static void C33_what_a_program_appends_is_settled_with_the_progress(void **state)
{
    (void)state;
    weir_store *s =
        begin(NULL,
              "while read -r l; do echo '{\"ok\":true,\"append\":[{\"stream\":\"effect\","
              "\"name\":\"Done\"},{\"stream\":\"effect\",\"name\":\"Done\",\"expect\":"
              "\"exists\"}]}'; done",
              (weir_reaction){ 0 }, 3);
    assert_int_equal(kit_version(s, "effect"), 5);
    assert_int_equal(kit_at(s, "to-order-1", "one"), 3);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    end(s);
}

static void C27_a_program_that_fails_costs_a_retry_and_says_why(void **state)
{
    (void)state;
    weir_store *s = begin("cat >/dev/null; echo it hurts >&2; exit 3", NULL,
                          (weir_reaction){ .retries = 1 }, 1);
    assert_int_equal(kit_target_of(s, "to-order-1").state, STORE_TARGET_DEFERRED);
    kit_drive(&a, 5 * S);
    const kit_target t = kit_target_of(s, "to-order-1");
    assert_int_equal(t.state, STORE_TARGET_BLOCKED);
    assert_int_equal(t.attempts, 2);
    assert_non_null(strstr(t.error, "it hurts"));
    end(s);
}

static void C27_a_program_can_say_permanent_and_defer(void **state)
{
    (void)state;
    weir_store *s = begin("cat >/dev/null; exit 65", NULL, (weir_reaction){ 0 }, 1);
    assert_int_equal(kit_target_of(s, "to-order-1").state, STORE_TARGET_BLOCKED);
    assert_int_equal(kit_target_of(s, "to-order-1").attempts, 1);
    end(s);
    s = begin("cat >/dev/null; echo '{\"defer\":\"2199-01-01T00:00:00Z\"}'", NULL,
              (weir_reaction){ 0 }, 1);
    assert_int_equal(kit_target_of(s, "to-order-1").state, STORE_TARGET_DEFERRED);
    assert_int_equal(kit_target_of(s, "to-order-1").due_us, INT64_C(7226582400000000));
    assert_int_equal(kit_retries(s, "to-order-1", "one"), 0);
    end(s);
}

static void a_reply_that_cannot_be_staged_is_a_failure_and_leaves_nothing(void **state)
{
    (void)state;
    weir_store *s = begin("cat >/dev/null; echo '{\"ok\":true,\"append\":[{\"stream\":\"effect\","
                          "\"name\":\"Done\"},{\"stream\":\"$mine\",\"name\":\"Done\"}]}'",
                          NULL, (weir_reaction){ .retries = -1 }, 1);
    const kit_target t = kit_target_of(s, "to-order-1");
    assert_int_equal(t.state, STORE_TARGET_BLOCKED);
    assert_non_null(strstr(t.error, "append 2 of 2 in the reply"));
    assert_int_equal(kit_version(s, "effect"), -1);
    end(s);
}

static void C42_an_interrupted_program_costs_nothing(void **state)
{
    (void)state;
    weir_store *s = begin("cat >/dev/null; sleep 1000", NULL, (weir_reaction){ 0 }, 0);
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    weir__worker_interrupt(a.worker); /* before it begins: it ends at once */
    slot *first = &a.worker->lanes[0].slots[0];
    (void)first->task.step(&first->task);
    weir__worker_drain(a.worker);
    kit_drive(&a, 1);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(kit_retries(s, "to-order-1", "one"), 0);
    assert_int_equal(kit_target_of(s, "to-order-1").state, STORE_TARGET_READY);
    end(s);
}

static void a_program_that_this_worker_cannot_start_costs_nothing(void **state)
{
    struct rlimit before, none;
    (void)state;
    weir_store *s = begin("cat >/dev/null", NULL, (weir_reaction){ .retries = -1 }, 0);
    (void)kit_append(s, "order-1", "Placed", "{}");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    kit_drive(&a, 10 * S);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(kit_at(s, "to-order-1", "one"), 0);
    assert_int_equal(kit_retries(s, "to-order-1", "one"), 0);
    kit_drive(&a, 10 * S);
    assert_int_equal(kit_at(s, "to-order-1", "one"), 1);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_is_given_the_event_on_one_line),
        cmocka_unit_test(C33_what_a_program_appends_is_settled_with_the_progress),
        cmocka_unit_test(C27_a_program_that_fails_costs_a_retry_and_says_why),
        cmocka_unit_test(C27_a_program_can_say_permanent_and_defer),
        cmocka_unit_test(a_reply_that_cannot_be_staged_is_a_failure_and_leaves_nothing),
        cmocka_unit_test(C42_an_interrupted_program_costs_nothing),
        cmocka_unit_test(a_program_that_this_worker_cannot_start_costs_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
