/* targets_test.c - what targets, status and close print about work that waits, on both stores.
 *
 * No command makes targets yet, so each test makes them through the port and then runs the command
 * itself, in this process, with its output in a file.
 */
#include "api/api.h"
#include "base/json.h"
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOUR_S = 3600 };

typedef struct fixture {
    char directory[64];
    char url[128];
    weir *w;
    weir_store *store;
    int64_t reaction;
    char printed[512 * 1024]; /* by the last command */
} fixture;

/* Runs a command as main.c does; words are separated by single spaces. Its exit status. */
static int run(fixture *f, const cli_command *command, const char *line)
{
    char path[] = "/tmp/weir-printed-XXXXXX";
    const int fd = mkstemp(path);
    char text[256];
    char *argv[16];
    int argc = 0;
    cli c = { .command = command,
              .store = f->url,
              .json_errors = true,
              .out = { .fd = fd, .stop_fd = -1, .json = true } };

    assert_true(fd >= 0);
    (void)unlink(path);
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *at = text; *at != '\0' && argc < 16;) {
        argv[argc++] = at;
        at += strcspn(at, " ");
        if (*at == ' ') {
            *at++ = '\0';
        }
    }
    int status = weir__cli_parse(&c, argc, argv);
    c.out.json = !c.text;
    if (status == CLI_DONE) {
        status = weir__cli_finish(&c, command->run(&c));
    }
    const ssize_t n = pread(fd, f->printed, sizeof f->printed - 1, 0);
    f->printed[n > 0 ? n : 0] = '\0';
    weir__cli_output_free(&c.out);
    weir__free(c.given);
    weir__free(c.words);
    (void)close(fd);
    return status;
}

/* A member of the line of JSON that was printed, as it stands there. */
static void expect_member(const char *json, const char *name, const char *value)
{
    const size_t len = strcspn(json, "\n");
    weir_str found = { 0 };
    char text[512];

    assert_true(weir__json_get((weir_str){ json, len }, name, &found));
    (void)snprintf(text, sizeof text, "%.*s", (int)found.len, found.ptr);
    assert_string_equal(text, value);
}

static int64_t append(fixture *f, const char *stream, const char *name)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str(name) };
    const weir_new_event *const events[] = { &event };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1 };
    const weir_append_result *result = NULL;

    assert_int_equal(weir_append(f->w, &request, &result, NULL), WEIR_OK);
    const int64_t id = result->streams[0]->id;
    weir_append_result_free(result);
    return id;
}

/* One reaction on all streams, a target per stream. */
static void declare(fixture *f)
{
    weir_arena arena = { 0 };
    store_reaction reaction;
    const store_reaction_declaration d = { .name = weir__str("mail"),
                                           .all_names = true,
                                           .source = weir__str("*"),
                                           .rule = STORE_RULE_STREAM };

    assert_int_equal(f->store->work->declare(f->store, &d, &arena, &reaction, NULL), WEIR_OK);
    f->reaction = reaction.id;
    weir__arena_free(&arena);
}

/* Routes one event to the target of its stream. */
static void route(fixture *f, const char *target, const char *lane, int64_t from, int64_t event)
{
    const store_route_step step = {
        .reaction = f->reaction, .number = 1, .from = from, .to = event
    };
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str(lane),
                              .priority = 3,
                              .source = weir__str(target),
                              .value = weir__str(target),
                              .first = event,
                              .last = event };
    const store_route r = { .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1 };
    weir_error err;

    assert_int_equal(f->store->work->route(f->store, &r, NULL, &err), WEIR_OK);
}

static store_lease_list lease(fixture *f, const char *lane)
{
    store_lease_list list = { 0 };
    const store_lease_request r = { .lane = weir__str(lane),
                                    .holder = weir__str("worker-7"),
                                    .lease_us = (int64_t)HOUR_S * 1000000,
                                    .limit = 1,
                                    .all_reactions = true };

    assert_int_equal(f->store->work->turn(f->store, NULL, 0, &r, &list, NULL), WEIR_OK);
    assert_int_equal(list.leases_count, 1);
    return list;
}

static int open_fixture(void **state, const char *scheme)
{
    static int number;
    fixture *f = calloc(1, sizeof *f);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = f == NULL ? NULL : f->url };

    assert_non_null(f);
    (void)snprintf(f->directory, sizeof f->directory, "/tmp/weir-targets-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    if (strcmp(scheme, "memory") == 0) {
        (void)snprintf(f->url, sizeof f->url, "memory:targets-%d", number++);
    } else {
        (void)snprintf(f->url, sizeof f->url, "sqlite:%s/weir.db", f->directory);
    }
    assert_int_equal(weir_open(&options, &f->w, NULL), WEIR_OK);
    f->store = weir__store(f->w);
    *state = f;
    return 0;
}

static int open_memory(void **state)
{
    return open_fixture(state, "memory");
}

static int open_sqlite(void **state)
{
    return open_fixture(state, "sqlite");
}

static int close_fixture(void **state)
{
    static const char *const names[] = { "weir.db", "weir.db-wal", "weir.db-shm", "weir.db-weir" };
    fixture *f = *state;
    char path[128];

    weir_close(f->w);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f->directory, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(f->directory);
    free(f);
    return 0;
}

static void a_target_is_shown_with_its_lag_and_its_reactions(void **state)
{
    fixture *f = *state;
    declare(f);
    const int64_t first = append(f, "order-1", "Placed");
    const int64_t second = append(f, "order-1", "Paid");
    char text[256];

    route(f, "order-1", "default", 0, first);
    route(f, "order-1", "default", first, second);
    assert_int_equal(run(f, &weir__cli_targets_command, ""), CLI_DONE);
    expect_member(f->printed, "target", "\"order-1\"");
    expect_member(f->printed, "lane", "\"default\"");
    expect_member(f->printed, "priority", "3");
    expect_member(f->printed, "state", "\"ready\"");
    expect_member(f->printed, "watermark", "0");
    expect_member(f->printed, "mark", "2");
    expect_member(f->printed, "lag", "2");
    expect_member(f->printed, "lag_seconds", "0");
    expect_member(f->printed, "retries", "0");
    expect_member(f->printed, "lost", "0");
    expect_member(f->printed, "leased_by", "null");
    expect_member(f->printed, "leased_until", "null");
    expect_member(f->printed, "deferred_until", "null");
    expect_member(f->printed, "error", "null");
    expect_member(f->printed, "event", "null");
    expect_member(f->printed, "reaction", "null");
    (void)snprintf(text, sizeof text,
                   "[{\"reaction\":\"mail\",\"at\":0,\"mark\":%d,\"retries\":0}]", (int)second);
    expect_member(f->printed, "reactions", text);
}

static void a_leased_target_names_its_holder_and_a_blocked_one_its_reason(void **state)
{
    fixture *f = *state;
    declare(f);
    const int64_t first = append(f, "order-1", "Placed");
    route(f, "order-1", "default", 0, first);
    store_lease_list list = lease(f, "default");
    assert_int_equal(run(f, &weir__cli_targets_command, ""), CLI_DONE);
    expect_member(f->printed, "state", "\"leased\"");
    expect_member(f->printed, "leased_by", "\"worker-7\"");
    expect_member(f->printed, "fence", "1");
    assert_int_equal(run(f, &weir__cli_targets_command, "--blocked"), CLI_NOTHING);
    assert_string_equal(f->printed, "");

    store_settle settle = { .target = list.leases[0].target,
                            .fence = list.leases[0].fence,
                            .failure = { .reaction = f->reaction,
                                         .event = first,
                                         .error = weir__str("mail server said no") },
                            .end = STORE_END_BLOCK };
    assert_int_equal(f->store->work->settle(f->store, &settle, NULL), WEIR_OK);
    weir__arena_free(&list.arena);
    assert_int_equal(run(f, &weir__cli_targets_command, "--blocked"), CLI_DONE);
    expect_member(f->printed, "state", "\"blocked\"");
    expect_member(f->printed, "leased_by", "null");
    expect_member(f->printed, "error", "\"mail server said no\"");
    expect_member(f->printed, "event", "1");
    expect_member(f->printed, "reaction", "\"mail\"");
    expect_member(f->printed, "retries", "1");
    assert_int_equal(run(f, &weir__cli_targets_command, "--text"), CLI_DONE);
    assert_non_null(strstr(f->printed, "TARGET   LANE     PRIORITY  STATE"));
    assert_non_null(strstr(f->printed, "mail server said no"));
}

static size_t lines_printed(const fixture *f)
{
    size_t n = 0;

    for (const char *at = f->printed; *at != '\0'; at++) {
        n += *at == '\n' ? 1 : 0;
    }
    return n;
}

static void filters_and_limits_choose_targets(void **state)
{
    fixture *f = *state;
    int64_t at = 0;
    declare(f);
    for (int i = 0; i < 5; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, i < 3 ? "order-%d" : "user-%d", i);
        const int64_t id = append(f, name, "Began");
        route(f, name, i < 4 ? "default" : "slow", at, id);
        at = id;
    }
    assert_int_equal(run(f, &weir__cli_targets_command, ""), CLI_DONE);
    assert_int_equal(lines_printed(f), 5);
    assert_int_equal(run(f, &weir__cli_targets_command, "--match order-*"), CLI_DONE);
    assert_int_equal(lines_printed(f), 3);
    assert_int_equal(run(f, &weir__cli_targets_command, "--match order-* --limit 2"), CLI_DONE);
    assert_int_equal(lines_printed(f), 2);
    assert_int_equal(run(f, &weir__cli_targets_command, "--lane slow"), CLI_DONE);
    expect_member(f->printed, "target", "\"user-4\"");
    assert_int_equal(run(f, &weir__cli_targets_command, "--source user-3"), CLI_DONE);
    expect_member(f->printed, "target", "\"user-3\"");
    assert_int_equal(run(f, &weir__cli_targets_command, "--lane nowhere"), CLI_NOTHING);
}

/* More than one page of them: each is printed once, in the order of their names. */
static void more_targets_than_a_page_holds_come_once_and_in_order(void **state)
{
    fixture *f = *state;
    int64_t routed = 0;
    declare(f);
    for (int i = 0; i < 450; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t-%03d", i);
        const int64_t id = append(f, name, "Placed");
        route(f, name, "default", routed, id);
        routed = id;
    }
    assert_int_equal(run(f, &weir__cli_targets_command, ""), CLI_DONE);
    assert_int_equal(lines_printed(f), 450);
    const char *at = f->printed;
    for (int i = 0; i < 450; i++) {
        char begin[64];
        (void)snprintf(begin, sizeof begin, "{\"target\":\"t-%03d\",", i);
        assert_int_equal(strncmp(at, begin, strlen(begin)), 0);
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(run(f, &weir__cli_targets_command, "--limit 201"), CLI_DONE);
    assert_int_equal(lines_printed(f), 201);
}

static void status_tells_about_lanes_and_routers(void **state)
{
    fixture *f = *state;
    bool changed = false;
    declare(f);
    const int64_t first = append(f, "order-1", "Placed");
    route(f, "order-1", "default", 0, first);
    (void)append(f, "order-1", "Paid");
    store_router_lease router = { .reaction = f->reaction };
    assert_int_equal(f->store->work->router_lease(f->store, weir__str("router-1"),
                                                  (int64_t)HOUR_S * 1000000, &router, 1, NULL),
                     WEIR_OK);
    assert_int_equal(f->store->work->lane_pause(f->store, weir__str("default"), true,
                                                weir__str("ann"), &changed, NULL),
                     WEIR_OK);
    assert_int_equal(run(f, &weir__cli_status_command, ""), CLI_DONE);
    expect_member(f->printed, "head", "2");
    expect_member(f->printed, "safe", "2");
    expect_member(f->printed, "blocked", "0");
    assert_non_null(strstr(f->printed, "\"routers\":[{\"reaction\":\"mail\",\"routed\":1,\"lag\":1,"
                                       "\"leased_by\":\"router-1\",\"leased_until\":\"20"));
    assert_non_null(strstr(f->printed, "\"lanes\":[{\"lane\":\"default\",\"targets\":1,"));
    assert_non_null(strstr(f->printed, "\"paused\":true,\"paused_by\":\"ann\"}"));
    assert_int_equal(run(f, &weir__cli_status_command, "--text"), CLI_DONE);
    assert_non_null(strstr(f->printed, "LANE "));
}

static void status_tells_who_works(void **state)
{
    fixture *f = *state;
    const weir_str lanes[] = { weir__str("default"), weir__str("mail") };
    store_worker worker = { .name = weir__str("shop@one/7-x"),
                            .host = weir__str("one"),
                            .pid = 7,
                            .lanes = lanes,
                            .lanes_count = 2,
                            .draining = true,
                            .metrics = weir__str("{\"weir_store_errors_total\":3}") };
    declare(f);
    route(f, "order-1", "default", 0, append(f, "order-1", "Placed"));
    assert_int_equal(run(f, &weir__cli_status_command, ""), CLI_DONE);
    assert_non_null(strstr(f->printed, "\"workers\":[]"));
    assert_int_equal(
        f->store->about->worker_beat(f->store, &worker, (int64_t)HOUR_S * 1000000, NULL), WEIR_OK);
    worker = (store_worker){ .name = weir__str("silent"), .host = weir__str("two"), .pid = 8 };
    assert_int_equal(f->store->about->worker_beat(f->store, &worker, 1, NULL), WEIR_OK);
    const store_lease_request request = { .lane = weir__str("default"),
                                          .holder = weir__str("shop@one/7-x"),
                                          .lease_us = (int64_t)HOUR_S * 1000000,
                                          .limit = 1,
                                          .all_reactions = true };
    store_lease_list leases = { 0 };
    assert_int_equal(f->store->work->turn(f->store, NULL, 0, &request, &leases, NULL), WEIR_OK);
    assert_int_equal(leases.leases_count, 1);
    weir__arena_free(&leases.arena);
    assert_int_equal(run(f, &weir__cli_status_command, ""), CLI_DONE);
    assert_non_null(strstr(f->printed, "\"workers\":[{\"worker\":\"shop@one/7-x\",\"host\":\"one\","
                                       "\"pid\":7,\"lanes\":[\"default\",\"mail\"],"
                                       "\"since\":\"20"));
    assert_non_null(strstr(f->printed, "Z\",\"holds\":1,\"draining\":true,\"store_errors\":3,"
                                       "\"state\":\"draining\"},"
                                       "{\"worker\":\"silent\",\"host\":\"two\",\"pid\":8,"
                                       "\"lanes\":[],\"since\":\"20"));
    assert_non_null(strstr(f->printed, "Z\",\"holds\":0,\"draining\":false,\"store_errors\":0,"
                                       "\"state\":\"gone\"}]"));
    assert_int_equal(run(f, &weir__cli_status_command, "--text"), CLI_DONE);
    assert_non_null(strstr(f->printed, "\nWORKER "));
    assert_non_null(strstr(f->printed, "\nshop@one/7-x"));
    assert_non_null(strstr(f->printed, "  default,mail  "));
    assert_non_null(strstr(f->printed, "STORE ERRORS\n"));
}

static void closing_is_held_while_a_reaction_has_work_unless_forced(void **state)
{
    fixture *f = *state;
    declare(f);
    (void)append(f, "order-1", "Placed");
    assert_int_equal(run(f, &weir__cli_close_command, "order-1"), CLI_HELD);
    assert_int_equal(run(f, &weir__cli_close_command, "order-1 --dry-run"), CLI_HELD);
    assert_int_equal(run(f, &weir__cli_close_command, "order-1 --force"), CLI_DONE);
    expect_member(f->printed, "closed", "true");
    expect_member(f->printed, "changed", "1");
}

int main(void)
{
    const struct CMUnitTest memory[] = {
        cmocka_unit_test_setup_teardown(a_target_is_shown_with_its_lag_and_its_reactions,
                                        open_memory, close_fixture),
        cmocka_unit_test_setup_teardown(
            a_leased_target_names_its_holder_and_a_blocked_one_its_reason, open_memory,
            close_fixture),
        cmocka_unit_test_setup_teardown(filters_and_limits_choose_targets, open_memory,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(more_targets_than_a_page_holds_come_once_and_in_order,
                                        open_memory, close_fixture),
        cmocka_unit_test_setup_teardown(status_tells_about_lanes_and_routers, open_memory,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(status_tells_who_works, open_memory, close_fixture),
        cmocka_unit_test_setup_teardown(closing_is_held_while_a_reaction_has_work_unless_forced,
                                        open_memory, close_fixture),
    };
    struct CMUnitTest all[2 * sizeof memory / sizeof memory[0]];
    const size_t count = sizeof memory / sizeof memory[0];

    /* The same on the other store. */
    for (size_t i = 0; i < count; i++) {
        all[i] = memory[i];
        all[count + i] = memory[i];
        all[count + i].setup_func = open_sqlite;
    }
    return cmocka_run_group_tests_name("targets", all, NULL, NULL);
}
