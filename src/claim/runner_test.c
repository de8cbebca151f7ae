/* runner_test.c - commands for claimed rows and for rows that are held, on SQLite files, with real
 * programs. A command that shall run on waits for a file that the test makes.
 */
#define _GNU_SOURCE /* memmem */

#include "claim/hold.h"
#include "claim/hold_private.h"
#include "claim/runner.h"
#include "claim/waiters.h"

#include "base/clock.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define STR(text)                                                                                  \
    {                                                                                              \
        .ptr = (text), .len = sizeof(text) - 1                                                     \
    }
#define SECOND_US INT64_C(1000000)

typedef struct fixture {
    char directory[64];
    child_keeper *keeper;
    sqlite3 *sqlite; /* somebody else's */
    table_db *db;
    table_session *session;
    weir_arena arena;
    table_info table;
    int stop_fd;
    runner_tally tally;
    weir_mutex mu;
    char told[4096]; /* guarded by mu */
    weir_error err;
} fixture;

static const claim_set claimed[] = { { STR("status"),
                                       { .kind = TABLE_TEXT, .text = STR("claimed") } } };
static const claim_set done[] = { { STR("status"), { .kind = TABLE_TEXT, .text = STR("done") } } };
static const claim_set failed[] = { { STR("status"),
                                      { .kind = TABLE_TEXT, .text = STR("failed") } } };

static void run(fixture *f, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(f->sqlite, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", sql, why);
    }
}

static void expect(fixture *f, const char *sql, const char *text)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(f->sqlite, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), text);
    (void)sqlite3_finalize(s);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->directory, sizeof f->directory, "/tmp/weir-runner-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    assert_int_equal(chdir(f->directory), 0);
    assert_int_equal(weir__child_keeper_open(&f->keeper, &f->err), WEIR_OK);
    assert_int_equal(sqlite3_open("jobs.db", &f->sqlite), SQLITE_OK);
    (void)sqlite3_busy_timeout(f->sqlite, 10000);
    run(f, "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT, n INTEGER, claimed_by TEXT,"
           " claimed_at TEXT, locked_until INTEGER, fence INTEGER DEFAULT 0);"
           "INSERT INTO jobs (id, status, n) VALUES (1, 'new', 1), (2, 'new', 2), (3, 'new', 3)");
    const table_options o = { .url = "sqlite:jobs.db" };
    assert_int_equal(weir__table_open(&f->db, &o, &f->err), WEIR_OK);
    assert_int_equal(weir__table_session_open(f->db, &f->session, &f->err), WEIR_OK);
    assert_int_equal(
        weir__table_describe(f->session, weir__str("jobs"), &f->arena, &f->table, &f->err),
        WEIR_OK);
    f->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(f->stop_fd >= 0 && weir__mutex_init(&f->mu));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[96];
    weir__table_session_close(f->session);
    weir__table_close(f->db);
    weir__arena_free(&f->arena);
    (void)sqlite3_close(f->sqlite);
    weir__child_keeper_close(f->keeper);
    weir__mutex_destroy(&f->mu);
    (void)close(f->stop_fd);
    assert_int_equal(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", f->directory);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static void told(void *ctx, const table_result *rows, size_t row, runner_outcome outcome,
                 weir_str why)
{
    static const char *const words[] = { "done", "failed", "lost", "released" };
    fixture *f = ctx;
    const weir_str id = rows->cells[row * rows->columns_count].text;
    weir__lock(&f->mu);
    const size_t len = strlen(f->told);
    (void)snprintf(f->told + len, sizeof f->told - len, "%.*s %s: %.*s\n", (int)id.len, id.ptr,
                   words[outcome], (int)why.len, why.ptr);
    weir__unlock(&f->mu);
}

static claim_request request_of(int64_t limit, int64_t lease_us)
{
    return (claim_request){ .table = STR("jobs"),
                            .where = STR("status = 'new'"),
                            .limit = limit,
                            .writes.set = claimed,
                            .writes.set_count = 1,
                            .by = STR("me"),
                            .lease_us = lease_us,
                            .fence_column = STR("fence") };
}

static weir_status runs(fixture *f, const claim_request *r, const char *command, size_t parallel,
                        int64_t budget_us)
{
    const runner_options o = { .db = f->db,
                               .keeper = f->keeper,
                               .table = &f->table,
                               .request = r,
                               .command = command,
                               .parallel = parallel,
                               .budget_us = budget_us,
                               .stop_fd = f->stop_fd,
                               .done = { .set = done, .set_count = 1 },
                               .failed = { .set = failed, .set_count = 1 },
                               .told = told,
                               .told_ctx = f };
    return weir__runner_run(&o, &f->session, &f->tally, &f->err);
}

static void await_file(const char *name)
{
    const int64_t until_us = weir__clock_mono(weir__clock_machine()) + 30 * SECOND_US;
    while (access(name, F_OK) != 0) {
        assert_true(weir__clock_mono(weir__clock_machine()) < until_us);
        weir__clock_pause(10000);
    }
}

static void await_told(fixture *f, const char *part)
{
    const int64_t until_us = weir__clock_mono(weir__clock_machine()) + 30 * SECOND_US;
    for (bool found = false; !found;) {
        weir__lock(&f->mu);
        found = strstr(f->told, part) != NULL;
        weir__unlock(&f->mu);
        if (!found && weir__clock_mono(weir__clock_machine()) > until_us) {
            fail_msg("\"%s\" has no \"%s\"", f->told, part);
        }
        weir__clock_pause(10000);
    }
}

static void touch(const char *name)
{
    FILE *file = fopen(name, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static const char waits[] = "read -r row; touch began; until [ -e go ]; do sleep 0.02; done";

/* ---- the runner ----------------------------------------------------------------------------- */

static void outcomes_are_written_and_what_is_not_done_is_told(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(5, 60 * SECOND_US);
    assert_int_equal(runs(f, &r, "grep -v '\"id\":2,'", 2, 0), WEIR_OK);
    assert_int_equal(f->tally.claimed, 3);
    assert_int_equal(f->tally.outcomes[RUNNER_DONE], 2);
    assert_int_equal(f->tally.outcomes[RUNNER_FAILED], 1);
    assert_string_equal(f->told, "2 failed: the handler exited with 1\n");
    expect(f, "SELECT group_concat(status) FROM jobs", "done,failed,done");
    expect(f, "SELECT count(locked_until) FROM jobs", "0");
    assert_int_equal(runs(f, &r, "true", 1, 0), WEIR_OK);
    assert_int_equal(f->tally.claimed, 0);
}

/* What another thread does while a run goes on. */
typedef struct meanwhile {
    fixture *f;
    void (*what)(fixture *f);
    pthread_t thread;
} meanwhile;

static void *do_it(void *ctx)
{
    meanwhile *m = ctx;
    await_file("began");
    m->what(m->f);
    return NULL;
}

static void runs_while(fixture *f, const claim_request *r, const char *command, int64_t budget_us,
                       void (*what)(fixture *f))
{
    meanwhile m = { .f = f, .what = what };
    assert_int_equal(pthread_create(&m.thread, NULL, do_it, &m), 0);
    const weir_status status = runs(f, r, command, 1, budget_us);
    assert_int_equal(pthread_join(m.thread, NULL), 0);
    assert_int_equal(status, WEIR_OK);
}

static int64_t lease_of(fixture *f, int row)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(
        sqlite3_prepare_v2(f->sqlite, "SELECT locked_until FROM jobs WHERE id = ?", -1, &s, NULL),
        SQLITE_OK);
    (void)sqlite3_bind_int(s, 1, row);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    const int64_t end = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    return end;
}

static void see_renewals(fixture *f)
{
    /* The second row waits for its turn, and is renewed as well. */
    for (int row = 1; row <= 2; row++) {
        const int64_t first = lease_of(f, row);
        bool any_told = false;
        while (!any_told && lease_of(f, row) < first + 3 * SECOND_US / 2) { /* more than a lease */
            weir__clock_pause(10000);
            weir__lock(&f->mu);
            any_told = f->told[0] != '\0';
            weir__unlock(&f->mu);
        }
    }
    touch("go");
}

static void C38_leases_are_renewed_while_commands_run_and_wait(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(2, SECOND_US);
    runs_while(f, &r, waits, 0, see_renewals);
    assert_string_equal(f->told, "");
    assert_int_equal(f->tally.outcomes[RUNNER_DONE], 2);
}

static void steal(fixture *f)
{
    run(f, "UPDATE jobs SET claimed_by = 'thief', fence = fence + 1 WHERE id = 1");
}

static void C38_a_command_that_lost_its_row_is_ended_and_nothing_is_written(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(1, SECOND_US);
    runs_while(f, &r, waits, 0, steal);
    assert_int_equal(f->tally.outcomes[RUNNER_LOST], 1);
    assert_non_null(strstr(f->told, "1 lost: row 1 of jobs is not held by \"me\""));
    expect(f, "SELECT status || ' ' || claimed_by FROM jobs WHERE id = 1", "claimed thief");
}

static void lock_the_database(fixture *f)
{
    run(f, "BEGIN IMMEDIATE");
    await_told(f, "lost");
    run(f, "ROLLBACK");
}

static void C38_a_lease_that_cannot_be_renewed_ends_its_command_before_it_ends(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(1, SECOND_US);
    runs_while(f, &r, waits, 0, lock_the_database);
    assert_int_equal(f->tally.outcomes[RUNNER_LOST], 1);
    assert_string_equal(f->told, "1 lost: its lease could not be renewed before its end\n");
}

static void stop(fixture *f)
{
    const uint64_t one = 1;
    assert_int_equal(write(f->stop_fd, &one, sizeof one), sizeof one);
    await_told(f, "3 released");
    touch("go");
}

static void a_stop_releases_what_was_not_begun_and_lets_the_rest_end(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(3, 60 * SECOND_US);
    const claim_request again = request_of(3, 60 * SECOND_US);
    table_result rows = { 0 };
    runs_while(f, &r, waits, 60 * SECOND_US, stop);
    assert_int_equal(f->tally.outcomes[RUNNER_DONE], 1);
    assert_int_equal(f->tally.outcomes[RUNNER_RELEASED], 2);
    assert_int_equal(weir__claim_rows(f->session, &again, &rows, &f->err), WEIR_OK);
    assert_int_equal(rows.rows_count, 2); /* at once */
    weir__table_result_free(&rows);
}

static void stop_only(fixture *f)
{
    const uint64_t one = 1;
    assert_int_equal(write(f->stop_fd, &one, sizeof one), sizeof one);
}

static void the_end_of_the_budget_ends_what_runs(void **state)
{
    fixture *f = *state;
    const claim_request r = request_of(1, 60 * SECOND_US);
    runs_while(f, &r, waits, 0, stop_only);
    assert_string_equal(f->told, "1 released: its command was ended by the stop\n");
}

static void what_cannot_be_run_is_refused_before_anything_is_claimed(void **state)
{
    fixture *f = *state;
    claim_request r = request_of(1, 1000);
    assert_int_equal(runs(f, &r, "true", 1, 0), WEIR_EINVAL);
    r = request_of(1, SECOND_US);
    assert_int_equal(runs(f, &r, "true", RUNNER_PARALLEL_MAX + 1, 0), WEIR_EINVAL);
    expect(f, "SELECT group_concat(status) FROM jobs", "new,new,new");
}

/* ---- rows that are held --------------------------------------------------------------------- */

static bool no_row_is_wanted(void *ctx, const table_result *rows)
{
    (void)ctx;
    assert_int_equal(rows->rows_count, 1);
    return false;
}

static hold_outcome holds(fixture *f, const char *command, const char *why)
{
    const hold_options o = { .db = f->db,
                             .keeper = f->keeper,
                             .table = &f->table,
                             .command = command == NULL ? "exit 1" : command,
                             .locked_cb = command == NULL ? no_row_is_wanted : NULL,
                             .done = { .set = done, .set_count = 1 } };
    const claim_request r = {
        .table = STR("jobs"), .where = STR("status = 'new'"), .limit = 1, .hold = true
    };
    hold_result out = { .outcome = HOLD_NOTHING };
    hold *h = NULL;
    assert_int_equal(weir__hold_open(&h, &o, &f->err), WEIR_OK);
    if (weir__hold_run(h, &r, &out, &f->err) != WEIR_OK) {
        fail_msg("%s", f->err.message);
    }
    if (why != NULL &&
        (out.why.len == 0 || memmem(out.why.ptr, out.why.len, why, strlen(why)) == NULL)) {
        fail_msg("\"%.*s\" has no \"%s\"", (int)out.why.len, out.why.len == 0 ? "" : out.why.ptr,
                 why);
    }
    const hold_outcome outcome = out.outcome;
    weir__hold_result_free(&out);
    weir__hold_close(h);
    return outcome;
}

static void C38_what_a_held_rows_command_wants_is_committed_with_its_success_or_not(void **state)
{
    fixture *f = *state;
    assert_int_equal(holds(f, "echo '{\"set\":{\"n\":-7}}'; exit 1", "exited with 1"), HOLD_FAILED);
    expect(f, "SELECT group_concat(status || n) FROM jobs", "new1,new2,new3");
    assert_int_equal(holds(f, "echo '{\"set\":{\"n\":-7,\"claimed_by\":\"a\\u0022b\"}}'", NULL),
                     HOLD_DONE);
    expect(f, "SELECT status || n || claimed_by FROM jobs WHERE id = 1", "done-7a\"b");
    assert_int_equal(holds(f, "echo '{\"set\":{\"n\":null,\"claimed_at\":[1,true]}}'", NULL),
                     HOLD_DONE);
    expect(f, "SELECT ifnull(n, 'null') || claimed_at FROM jobs WHERE id = 2", "null[1,true]");
    assert_int_equal(holds(f, "kill -9 $$", "killed by signal 9"), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"set\":{\"nn\":1}}'", "no column \"nn\""), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"set\":[]}'", "must be an object"), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"set\":{\"n\":1}'", "invalid JSON"), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"set\":{\"n\":1,\"n\":1}}'", "\"n\" twice"), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"set\":{\"status\":1}}'", "leave it to one"), HOLD_FAILED);
    assert_int_equal(holds(f, "echo '{\"sat\":{\"n\":1}}'", NULL), HOLD_DONE); /* is output */
    expect(f, "SELECT status || n FROM jobs WHERE id = 3", "done3");
    assert_int_equal(holds(f, "true", NULL), HOLD_NOTHING);
}

static void a_row_that_is_not_wanted_after_all_is_let_go_untried(void **state)
{
    fixture *f = *state;
    assert_int_equal(holds(f, NULL, NULL), HOLD_UNWANTED);
    expect(f, "SELECT group_concat(status || n) FROM jobs", "new1,new2,new3");
    assert_int_equal(holds(f, "true", NULL), HOLD_DONE);
}

static void on_sqlite_who_writes_elsewhere_is_told_why_it_could_not(void **state)
{
    fixture *f = *state;
    assert_int_equal(holds(f, "echo 'Error: database is locked' >&2; exit 5",
                           "while its row is held nobody else can write"),
                     HOLD_FAILED);
}

static void which_lines_are_for_us(void **state)
{
    (void)state;
    assert_true(weir__hold_is_set(weir__str(" {\"set\":{}}")));
    assert_true(weir__hold_is_set(weir__str("{\"set\": 5}"))); /* and wrong */
    assert_false(weir__hold_is_set(weir__str("{\"sets\":{}}")));
    assert_true(weir__hold_is_set(weir__str("{\"set\":{}"))); /* cut off */
    assert_true(weir__hold_is_set(weir__str("\t{ \"set\" rubbish")));
    assert_true(weir__hold_is_set(weir__str("{\"a\":1,\"set\":{}}")));
    assert_false(weir__hold_is_set(weir__str("{\"set")));
    assert_false(weir__hold_is_set(weir__str("{ \"a\": \"set\"")));
    assert_false(weir__hold_is_set(weir__str("[\"set\"]")));
    assert_false(weir__hold_is_set(weir__str("")));
}

/* ---- whose socket it is ---------------------------------------------------------------------- */

static void a_socket_belongs_to_the_group_that_has_it_open(void **state)
{
    fixture *f = *state;
    struct sockaddr_in here = { .sin_family = AF_INET };
    socklen_t len = sizeof here;
    char command[160], from[INET_ADDRSTRLEN];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (const struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &len), 0);
    (void)snprintf(command, sizeof command,
                   "setsid bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; echo $$ >group; mv group named;"
                   " until [ -e go ]; do sleep 0.02; done' &",
                   ntohs(here.sin_port));
    assert_int_equal(system(command), 0);
    const int accepted = accept(listener, (struct sockaddr *)&here, &len);
    assert_true(accepted >= 0);
    await_file("named");
    FILE *file = fopen("named", "re");
    int group = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &group), 1);
    (void)fclose(file);
    assert_non_null(inet_ntop(AF_INET, &here.sin_addr, from, sizeof from));
    assert_true(weir__group_has_socket(group, weir__str(from), ntohs(here.sin_port)));
    assert_true(weir__group_has_socket(group, weir__str("::ffff:127.0.0.1"), ntohs(here.sin_port)));
    assert_false(weir__group_has_socket(group, weir__str("127.0.0.2"), ntohs(here.sin_port)));
    assert_false(weir__group_has_socket(group, weir__str(from), ntohs(here.sin_port) + 1));
    assert_false(weir__group_has_socket(getpgrp(), weir__str(from), ntohs(here.sin_port)));
    touch("go");
    (void)f;
    char end;
    assert_int_equal(read(accepted, &end, 1), 0); /* it is gone */
    (void)close(accepted);
    (void)close(listener);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(outcomes_are_written_and_what_is_not_done_is_told),
        TEST(C38_leases_are_renewed_while_commands_run_and_wait),
        TEST(C38_a_command_that_lost_its_row_is_ended_and_nothing_is_written),
        TEST(C38_a_lease_that_cannot_be_renewed_ends_its_command_before_it_ends),
        TEST(a_stop_releases_what_was_not_begun_and_lets_the_rest_end),
        TEST(the_end_of_the_budget_ends_what_runs),
        TEST(what_cannot_be_run_is_refused_before_anything_is_claimed),
        TEST(C38_what_a_held_rows_command_wants_is_committed_with_its_success_or_not),
        TEST(a_row_that_is_not_wanted_after_all_is_let_go_untried),
        TEST(on_sqlite_who_writes_elsewhere_is_told_why_it_could_not),
        TEST(which_lines_are_for_us),
        TEST(a_socket_belongs_to_the_group_that_has_it_open),
    };
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
