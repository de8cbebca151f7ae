/* claim_test.c - claims through weir.h, on SQLite files: what a caller gives and gets. How rows are
 * chosen and guarded is tested beside claim/. */
#include "base/str.h"
#include "weir.h"

#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STR(text)                                                                                  \
    {                                                                                              \
        .ptr = (text), .len = sizeof(text) - 1                                                     \
    }

typedef struct fixture {
    char path[64], url[80];
    sqlite3 *db;
    weir_tables *t;
    weir_error err;
} fixture;

static const weir_value claimed = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .name = STR("status"),
                                    .text = STR("claimed") };
static const weir_value done = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .name = STR("status"),
                                 .text = STR("done") };
static const weir_value *const claimed_set[] = { &claimed };
static const weir_value *const done_set[] = { &done };

static void run(fixture *f, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(f->db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", sql, why);
    }
}

static int64_t number(fixture *f, const char *sql)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(f->db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    return n;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->path, sizeof f->path, "/tmp/weir-api-claim-%d.db", (int)getpid());
    (void)snprintf(f->url, sizeof f->url, "sqlite:%s", f->path);
    (void)unlink(f->path);
    assert_int_equal(sqlite3_open(f->path, &f->db), SQLITE_OK);
    (void)sqlite3_busy_timeout(f->db, 10000);
    run(f,
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT, n INTEGER, claimed_by TEXT,"
        " claimed_at TEXT, locked_until INTEGER, fence INTEGER DEFAULT 0);"
        "INSERT INTO jobs (id, status, n) VALUES (1, 'new', 10), (2, 'new', 20), (3, 'new', 30)");
    const weir_tables_options o = { WEIR_TABLES_OPTIONS_INIT, .url = f->url };
    assert_int_equal(weir_tables_open(&o, &f->t, &f->err), WEIR_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    weir_tables_close(f->t);
    (void)sqlite3_close(f->db);
    (void)unlink(f->path);
    free(f);
    return 0;
}

static weir_claim claim_of(int64_t limit)
{
    return (
        weir_claim){ WEIR_CLAIM_INIT,       .table = STR("jobs"), .where = STR("status = 'new'"),
                     .limit = limit,        .set = claimed_set,   .set_count = 1,
                     .by = STR("worker-1"), .lease_us = 60000000, .fence_column = STR("fence") };
}

static weir_rows *claims(fixture *f, const weir_claim *c, size_t count)
{
    weir_rows *rows = NULL;
    if (weir_claim_rows(f->t, c, &rows, &f->err) != WEIR_OK) {
        fail_msg("%s", f->err.message);
    }
    assert_int_equal(weir_rows_count(rows), count);
    return rows;
}

static void rows_are_claimed_in_order_and_finished(void **state)
{
    fixture *f = *state;
    const weir_order by_n = { WEIR_ORDER_INIT, WEIR_ORDER_DESCENDING, STR("n") };
    const weir_order *const order[] = { &by_n };
    weir_claim c = claim_of(2);
    c.order = order;
    c.order_count = 1;
    weir_rows *rows = claims(f, &c, 2);
    const weir_str first = weir_rows_json(rows, 0);
    assert_true(first.len > 0);
    assert_memory_equal(first.ptr, "{\"id\":3,\"status\":\"claimed\",\"n\":30,", 33);
    assert_int_equal(weir_rows_json(rows, 2).len, 0);

    const weir_finish ends = { WEIR_FINISH_INIT, WEIR_FINISH_DONE, .set = done_set,
                               .set_count = 1 };
    assert_int_equal(weir_rows_finish(f->t, rows, 0, &ends, &f->err), WEIR_OK);
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE id = 3 AND status = 'done' AND"
                               " locked_until IS NULL AND claimed_by = 'worker-1'"),
                     1);
    assert_int_equal(weir_rows_finish(f->t, rows, 0, &ends, &f->err), WEIR_ELOST);
    assert_int_equal(weir_rows_finish(f->t, rows, 2, &ends, &f->err), WEIR_EINVAL);
    weir_rows_free(rows);
    c.limit = 0; /* is the default */
    weir_rows_free(claims(f, &c, 1));
    weir_rows_free(claims(f, &c, 0));
}

static void what_is_not_set_has_its_default_and_flags_say_none(void **state)
{
    fixture *f = *state;
    weir_claim c = claim_of(1);
    c.by_column = WEIR_STR(""); /* the same as NULL */
    c.at_column = WEIR_STR("");
    c.lease_column = WEIR_STR("");
    weir_rows_free(claims(f, &c, 1));
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE id = 1 AND claimed_by = 'worker-1'"
                               " AND claimed_at IS NOT NULL AND locked_until IS NOT NULL"),
                     1);
    c.flags = WEIR_CLAIM_NO_BY | WEIR_CLAIM_NO_AT;
    weir_rows_free(claims(f, &c, 1));
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE id = 2 AND status = 'claimed'"
                               " AND claimed_by IS NULL AND claimed_at IS NULL"),
                     1);
    weir_rows *rows = NULL;
    c.limit = -1;
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    c.limit = 1;
    c.wait_us = -2;
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    assert_null(rows);
}

static void parameters_and_expressions(void **state)
{
    fixture *f = *state;
    const weir_value most = { WEIR_VALUE_INIT, WEIR_VALUE_INTEGER, .name = STR("most"),
                              .number = 15 };
    const weir_value more = { WEIR_VALUE_INIT, WEIR_VALUE_SQL, .name = STR("n"),
                              .text = STR("n + :more") };
    const weir_value five = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .name = STR("more"),
                              .text = STR("5") };
    const weir_value *const set[] = { &claimed, &more };
    const weir_value *const params[] = { &most, &five };
    weir_claim c = claim_of(3);
    c.where = (weir_str)STR("status = 'new' AND n < :most");
    c.params = params;
    c.params_count = 2;
    c.set = set;
    c.set_count = 2;
    weir_rows *rows = claims(f, &c, 1);
    assert_int_equal(number(f, "SELECT n FROM jobs WHERE id = 1"), 15);

    const weir_finish back = { WEIR_FINISH_INIT, WEIR_FINISH_FAIL,     .set = &set[1],
                               .set_count = 1,   .params = &params[1], .params_count = 1 };
    assert_int_equal(weir_rows_finish(f->t, rows, 0, &back, &f->err), WEIR_OK);
    assert_int_equal(number(f, "SELECT n FROM jobs WHERE id = 1"), 20);
    weir_rows_free(rows);
}

static void a_lost_row_is_refused(void **state)
{
    fixture *f = *state;
    const weir_finish longer = { WEIR_FINISH_INIT, WEIR_FINISH_EXTEND };
    const weir_finish back = { WEIR_FINISH_INIT, WEIR_FINISH_RELEASE };
    const weir_claim c = claim_of(2);
    weir_rows *rows = claims(f, &c, 2);
    run(f, "UPDATE jobs SET locked_until = 1 WHERE id = 1; UPDATE jobs SET fence = 2 WHERE id = 2");
    assert_int_equal(weir_rows_finish(f->t, rows, 0, &longer, &f->err), WEIR_ELOST);
    assert_non_null(strstr(f->err.message, "its lease has ended"));
    assert_int_equal(weir_rows_finish(f->t, rows, 1, &longer, &f->err), WEIR_ELOST);
    assert_non_null(strstr(f->err.message, "its fence is 2, not 1"));
    run(f, "UPDATE jobs SET fence = 1 WHERE id = 2");
    assert_int_equal(weir_rows_finish(f->t, rows, 1, &longer, &f->err), WEIR_OK);
    assert_int_equal(weir_rows_finish(f->t, rows, 1, &back, &f->err), WEIR_OK);
    run(f, "DELETE FROM jobs WHERE id = 2");
    assert_int_equal(weir_rows_finish(f->t, rows, 1, &back, &f->err), WEIR_ENOTFOUND);
    weir_rows_free(rows);
}

static void a_connection_of_the_callers_own_holds_rows_in_its_transaction(void **state)
{
    fixture *f = *state;
    const weir_claim plain = claim_of(1);
    const weir_claim held = { WEIR_CLAIM_INIT, WEIR_CLAIM_HOLD, .table = STR("jobs"),
                              .where = STR("status = 'new'") };
    weir_tables *t = NULL;
    weir_rows *rows = NULL;
    assert_int_equal(weir_tables_adopt(WEIR_NATIVE_SQLITE, f->db, &t, &f->err), WEIR_OK);
    assert_int_equal(weir_claim_rows(t, &held, &rows, &f->err), WEIR_EMISUSE);
    run(f, "BEGIN IMMEDIATE");
    assert_int_equal(weir_claim_rows(t, &plain, &rows, &f->err), WEIR_EMISUSE);
    assert_int_equal(weir_claim_rows(t, &held, &rows, &f->err), WEIR_OK);
    assert_int_equal(weir_rows_count(rows), 1);
    weir_rows_free(rows);
    weir_tables_close(t);
    assert_int_equal(sqlite3_get_autocommit(f->db), 0); /* it is still open */
    run(f, "ROLLBACK");
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE status = 'new'"), 3);
}

static void what_makes_no_sense_is_refused(void **state)
{
    fixture *f = *state;
    const weir_tables_options nowhere = { WEIR_TABLES_OPTIONS_INIT, .url = "sqlite:/tmp/none.db" };
    const weir_tables_options odd = { WEIR_TABLES_OPTIONS_INIT, .url = "elastic:x" };
    const weir_tables_options nothing = { WEIR_TABLES_OPTIONS_INIT, .flags = 0 };
    const weir_value unnamed = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .text = STR("x") };
    const weir_value *const unnamed_set[] = { &unnamed };
    weir_tables *t = NULL;
    weir_rows *rows = NULL;
    weir_claim c = claim_of(1);

    assert_int_equal(weir_tables_open(NULL, &t, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_tables_open(&nothing, &t, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_tables_open(&odd, &t, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_tables_adopt(3, f->db, &t, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_tables_open(&nowhere, &t, &f->err), WEIR_OK); /* connects when needed */
    assert_int_equal(weir_claim_rows(t, &c, &rows, &f->err), WEIR_ENOTFOUND);
    weir_tables_close(t);
    weir_tables_close(NULL);
    weir_rows_free(NULL);
    assert_int_equal(weir_rows_count(NULL), 0);

    assert_int_equal(weir_claim_rows(NULL, &c, &rows, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_claim_rows(f->t, NULL, &rows, &f->err), WEIR_EINVAL);
    assert_int_equal(weir_claim_rows(f->t, &c, NULL, &f->err), WEIR_EINVAL);
    c.flags = WEIR_CLAIM_WAIT | WEIR_CLAIM_NOWAIT;
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    c = claim_of(1);
    c.set = unnamed_set;
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    c = claim_of(1);
    c.table = (weir_str)STR("job");
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_ENOTFOUND);
    assert_null(rows);
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE status = 'new'"), 3);
}

static void errors_speak_of_fields(void **state)
{
    fixture *f = *state;
    weir_claim c = claim_of(1);
    weir_rows *rows = NULL;

    c.lease_us = 1000000;
    c.lease_column = weir__str("--lease");
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    assert_string_equal(f->err.message, "lease_column: no column \"--lease\" in jobs");
    assert_string_equal(f->err.detail, "Add it with ALTER TABLE \"main\".\"jobs\" ADD COLUMN "
                                       "\"--lease\" TEXT; or name another column.");
    c = claim_of(1);
    c.where = weir__str("n > 0");
    c.by = (weir_str){ 0 };
    c.lease_us = 0;
    assert_int_equal(weir_claim_rows(f->t, &c, &rows, &f->err), WEIR_EINVAL);
    assert_null(strstr(f->err.message, "--"));
    assert_null(strstr(f->err.detail, "--"));
    assert_non_null(strstr(f->err.detail, "lease_us"));
}

static void a_handle_does_not_cross_a_fork(void **state)
{
    fixture *f = *state;
    const weir_claim c = claim_of(1);
    weir_rows_free(claims(f, &c, 1));
    const pid_t pid = fork();
    if (pid == 0) {
        weir_rows *rows = NULL;
        _exit(weir_claim_rows(f->t, &c, &rows, NULL) == WEIR_EMISUSE ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    weir_rows_free(claims(f, &c, 1));
}

/* ---- closing beside calls -------------------------------------------------------------------- */

enum { CALLERS = 6 };

typedef struct caller {
    pthread_t thread;
    weir_tables *t;
    uint32_t flags;
    int64_t wait_us;
    _Atomic int calls;
    int32_t last;
} caller;

static void *claim_until_refused(void *arg)
{
    caller *c = arg;
    for (c->last = WEIR_OK; c->last == WEIR_OK || c->last == WEIR_EHELD;) {
        weir_rows *rows = NULL;
        weir_claim claim = claim_of(1);
        claim.flags = c->flags;
        claim.wait_us = c->wait_us;
        c->calls++;
        c->last = weir_claim_rows(c->t, &claim, &rows, NULL);
        weir_rows_free(rows);
    }
    return NULL;
}

/* Somebody else writes, and never ends. */
static void C42_closing_a_handle_on_tables_ends_claims_that_wait(void **state)
{
    fixture *f = *state;
    caller callers[CALLERS] = { 0 };
    run(f, "BEGIN IMMEDIATE");
    for (int i = 0; i < CALLERS; i++) {
        callers[i].t = f->t;
        callers[i].flags =
            (i % 3 == 2 ? 0 : WEIR_CLAIM_WAIT) | (i % 2 == 0 ? WEIR_CLAIM_PORTABLE : 0);
        callers[i].wait_us = i % 3 == 0 ? -1 : INT64_C(3600000000);
        assert_int_equal(pthread_create(&callers[i].thread, NULL, claim_until_refused, &callers[i]),
                         0);
    }
    for (int i = 0; i < CALLERS; i++) {
        while (callers[i].calls == 0) {
            (void)usleep(1000);
        }
    }
    weir_tables_close(f->t); /* would wait for an hour, or for ever */
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        /* One that had not entered yet is refused. */
        assert_true(callers[i].last == WEIR_EINTERRUPTED || callers[i].last == WEIR_EMISUSE);
    }
    run(f, "ROLLBACK");
    assert_int_equal(number(f, "SELECT count(*) FROM jobs WHERE status = 'new'"), 3);
}

/* Nobody is in the way: calls that work end by themselves. */
static void C42_closing_a_handle_on_tables_waits_for_claims_that_run(void **state)
{
    fixture *f = *state;
    enum { ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        caller callers[CALLERS] = { 0 };
        const weir_tables_options o = { WEIR_TABLES_OPTIONS_INIT, .url = f->url };
        weir_tables *t = NULL;
        assert_int_equal(weir_tables_open(&o, &t, &f->err), WEIR_OK);
        for (int i = 0; i < CALLERS; i++) {
            callers[i].t = t;
            assert_int_equal(
                pthread_create(&callers[i].thread, NULL, claim_until_refused, &callers[i]), 0);
        }
        while (callers[round % CALLERS].calls < 2) {
            (void)usleep(100);
        }
        weir_tables_close(t);
        weir_tables_close(t);
        for (int i = 0; i < CALLERS; i++) {
            assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
            assert_true(callers[i].last == WEIR_EINTERRUPTED || callers[i].last == WEIR_EMISUSE);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_are_claimed_in_order_and_finished),
        TEST(what_is_not_set_has_its_default_and_flags_say_none),
        TEST(parameters_and_expressions),
        TEST(a_lost_row_is_refused),
        TEST(a_connection_of_the_callers_own_holds_rows_in_its_transaction),
        TEST(what_makes_no_sense_is_refused),
        TEST(errors_speak_of_fields),
        TEST(a_handle_does_not_cross_a_fork),
        TEST(C42_closing_a_handle_on_tables_ends_claims_that_wait),
        TEST(C42_closing_a_handle_on_tables_waits_for_claims_that_run),
    };
    return cmocka_run_group_tests_name("api claim", tests, NULL, NULL);
}
