/* claim_finish_test.c - the end of a claim, on SQLite in memory: what it writes, and what it
 * refuses to who no longer holds the row. The same on PostgreSQL is in
 * tests/postgres/claims_test.c.
 */
#include "claim/claim.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)

/* As parts of initialisers; STR is a value as well. */
#define STR(t) ((weir_str){ .ptr = (t), .len = sizeof(t) - 1 })
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = TABLE_TEXT, .text = {.ptr = (t), .len = sizeof(t) - 1 }                            \
    }
#define NUMBER(n)                                                                                  \
    {                                                                                              \
        .kind = TABLE_INTEGER, .number = (n)                                                       \
    }

typedef struct fixture {
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
} fixture;

static void run(fixture *f, const char *sql)
{
    weir_error err;
    if (weir__table_run(f->s, &(table_statement){ .sql = sql }, &f->r, &err) != WEIR_OK) {
        fail_msg("%s: %s", sql, err.message);
    }
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(weir__table_open(&f->db, &(table_options){ .url = "memory:" }, &f->err),
                     WEIR_OK);
    assert_int_equal(weir__table_session_open(f->db, &f->s, &f->err), WEIR_OK);
    run(f, "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT, claimed_by TEXT,"
           " claimed_at TEXT, locked_until INTEGER, fence INTEGER)");
    run(f, "INSERT INTO jobs VALUES (1, 'claimed', 'w1', 'then', 9000000000000000, 7),"
           " (2, 'claimed', 'w1', 'then', 1, 7), (3, 'pending', NULL, NULL, NULL, NULL)");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    weir__table_session_close(f->s);
    weir__table_close(f->db);
    weir__table_result_free(&f->r);
    free(f);
    return 0;
}

static const table_value first = NUMBER(1);
static const table_value second = NUMBER(2);
static const table_value third = NUMBER(3);
static const claim_set done = { .column = { .ptr = "status", .len = 6 }, .value = TEXT("done") };
static const claim_set held = { .column = { .ptr = "status", .len = 6 }, .value = TEXT("claimed") };

static finish_request finish(finish_kind kind, const table_value *key)
{
    return (finish_request){
        .table = STR("jobs"), .key = key, .key_count = 1, .kind = kind, .by = STR("w1")
    };
}

static void expect_row(const fixture *f, const char *json)
{
    weir_buffer out = { 0 };
    assert_int_equal(f->r.rows_count, 1);
    assert_true(weir__table_row_json(&f->r, 0, SIZE_MAX, &out));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, json);
    weir__buffer_free(&out);
}

static void gives(fixture *f, const finish_request *r, const char *json)
{
    if (weir__claim_finish(f->s, r, &f->r, &f->err) != WEIR_OK) {
        fail_msg("%s", f->err.message);
    }
    expect_row(f, json);
    assert_false(weir__table_in_transaction(f->s));
}

static void refused(fixture *f, const finish_request *r, weir_status status, const char *message)
{
    assert_int_equal(weir__claim_finish(f->s, r, &f->r, &f->err), status);
    assert_int_equal(f->err.code, status);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", f->err.message, message);
    }
    assert_false(weir__table_in_transaction(f->s));
}

static void done_writes_and_ends_the_lease(void **state)
{
    finish_request r = finish(FINISH_DONE, &first);
    r.writes.set = &done;
    r.writes.set_count = 1;
    gives(*state, &r,
          "{\"id\":1,\"status\":\"done\",\"claimed_by\":\"w1\",\"claimed_at\":\"then\","
          "\"locked_until\":null,\"fence\":7}");
}

static void release_takes_the_holder_out(void **state)
{
    const claim_set_sql back = { .column = STR("status"), .sql = STR(":a || 'ing'") };
    const claim_param pend = { .name = STR("a"), .value = TEXT("pend") };
    fixture *f = *state;
    finish_request r = finish(FINISH_RELEASE, &first);
    r.writes.set_sql = &back;
    r.writes.set_sql_count = 1;
    r.writes.params = &pend;
    r.writes.params_count = 1;
    assert_int_equal(weir__claim_finish(f->s, &r, NULL, &f->err), WEIR_OK);
    run(f, "SELECT status, claimed_by, claimed_at, fence FROM jobs WHERE id = 1");
    expect_row(f, "{\"status\":\"pending\",\"claimed_by\":null,\"claimed_at\":null,\"fence\":7}");
}

static void C38_what_is_released_is_free_at_once(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_RELEASE, &first);
    const claim_request again = { .table = STR("jobs"),
                                  .where = STR("status = 'pending' AND id = 1"),
                                  .expired_where = STR("id = 1"),
                                  .limit = 1,
                                  .writes.set = &held,
                                  .writes.set_count = 1,
                                  .by = STR("w2"),
                                  .lease_us = 60 * SECOND };
    r.held = &held;
    r.held_count = 1;
    assert_int_equal(weir__claim_rows(f->s, &again, &f->r, &f->err), WEIR_OK);
    assert_int_equal(f->r.rows_count, 0); /* it is held */
    assert_int_equal(weir__claim_finish(f->s, &r, NULL, &f->err), WEIR_OK);
    assert_int_equal(weir__claim_rows(f->s, &again, &f->r, &f->err), WEIR_OK);
    assert_int_equal(f->r.rows_count, 1);
}

static void without_a_lease_the_values_of_the_claim_are_a_guard(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_DONE, &first);
    r.by = (weir_str){ 0 };
    r.held = &held;
    r.held_count = 1;
    r.writes.set = &done;
    r.writes.set_count = 1;
    refused(f, &r, WEIR_EINVAL,
            "--by or --fence is missing"); /* its lease may have ended meanwhile */
    r.lease_column = CLAIM_NO_COLUMN;
    assert_int_equal(weir__claim_finish(f->s, &r, NULL, &f->err), WEIR_OK);
    refused(f, &r, WEIR_ELOST, "row 1 of jobs is no longer claimed");
}

static void extend_moves_the_end(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_EXTEND, &first);
    r.lease_us = 60 * SECOND;
    assert_int_equal(weir__claim_finish(f->s, &r, NULL, &f->err), WEIR_OK);
    run(f, "SELECT locked_until / 1000000 - unixepoch() BETWEEN 50 AND 61 AS soon FROM jobs"
           " WHERE id = 1");
    expect_row(f, "{\"soon\":1}");
}

static void C38_what_has_no_lease_is_not_extended(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_DONE, &first);
    r.writes.set = &done;
    r.writes.set_count = 1;
    assert_int_equal(weir__claim_finish(f->s, &r, NULL, &f->err), WEIR_OK);
    r = finish(FINISH_EXTEND, &first);
    r.lease_us = 60 * SECOND;
    refused(f, &r, WEIR_ELOST, "row 1 of jobs is no longer yours: it has no lease that goes on");
    run(f, "SELECT locked_until IS NULL AS finished FROM jobs WHERE id = 1");
    expect_row(f, "{\"finished\":1}");
}

static void C38_who_no_longer_holds_it_is_refused(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_DONE, &first);
    r.writes.set = &done;
    r.writes.set_count = 1;
    r.by = STR("w2");
    refused(f, &r, WEIR_ELOST, "row 1 of jobs is not held by \"w2\": it is \"w1\"'s");
    r.by = (weir_str){ 0 };
    r.has_fence = true;
    r.fence = 6;
    r.fence_column = STR("fence");
    refused(f, &r, WEIR_ELOST, "row 1 of jobs was claimed again: its fence is 7, not 6");
    r.fence = 8;
    refused(f, &r, WEIR_ELOST, "row 1 of jobs was never claimed so: its fence is 7, not 8");
    r = finish(FINISH_EXTEND, &second);
    r.lease_us = SECOND;
    refused(f, &r, WEIR_ELOST, "row 2 of jobs is no longer yours: its lease has ended");
    r = finish(FINISH_FAIL, &third);
    refused(f, &r, WEIR_ELOST, "row 3 of jobs is not held by \"w1\": nobody holds it");
    run(f, "UPDATE jobs SET status = 'done' WHERE id = 1");
    r = finish(FINISH_RELEASE, &first);
    r.held = &held;
    r.held_count = 1;
    refused(f, &r, WEIR_ELOST, "row 1 of jobs is no longer claimed");
    run(f, "SELECT group_concat(status || ' ' || ifnull(claimed_by, '') || ' ' ||"
           " ifnull(locked_until, '')) AS all_rows FROM jobs");
    expect_row(f, "{\"all_rows\":\"done w1 9000000000000000,claimed w1 1,pending  \"}");
}

static void a_row_that_is_not_there_is_told(void **state)
{
    const table_value nowhere = NUMBER(99);
    const finish_request r = finish(FINISH_RELEASE, &nowhere);
    refused(*state, &r, WEIR_ENOTFOUND, "there is no row 99 in jobs");
}

static void a_lease_column_may_be_left_out(void **state)
{
    finish_request r = finish(FINISH_DONE, &second);
    r.writes.set = &done;
    r.writes.set_count = 1;
    r.lease_column = CLAIM_NO_COLUMN;
    gives(*state, &r,
          "{\"id\":2,\"status\":\"done\",\"claimed_by\":\"w1\",\"claimed_at\":\"then\","
          "\"locked_until\":1,\"fence\":7}");
}

static void mistakes_are_told_with_their_flag(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_DONE, &first);
    r.by = (weir_str){ 0 };
    refused(f, &r, WEIR_EINVAL, "--by or --fence is missing");
    r.has_fence = true;
    refused(f, &r, WEIR_EINVAL, "--fence-column is missing");
    r.fence_column = STR("fences");
    refused(f, &r, WEIR_EINVAL, "--fence-column: no column \"fences\" in jobs");
    r = finish(FINISH_DONE, &first);
    r.by_column = STR("owner");
    refused(f, &r, WEIR_EINVAL, "--by-column: no column \"owner\" in jobs");
    r = finish(FINISH_DONE, &first);
    r.lease_column = CLAIM_NO_COLUMN;
    refused(f, &r, WEIR_EINVAL, "--set: nothing would be written");
    r.kind = FINISH_EXTEND;
    refused(f, &r, WEIR_EINVAL, "--lease-column: ");
    r = finish(FINISH_EXTEND, &first);
    refused(f, &r, WEIR_EINVAL, "--lease: 0 us");
    r.key_count = 0;
    refused(f, &r, WEIR_EINVAL, "the primary key of jobs has 1 columns, and 0 values were given");
}

static void it_may_be_part_of_a_transaction(void **state)
{
    fixture *f = *state;
    finish_request r = finish(FINISH_RELEASE, &first);
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    assert_int_equal(weir__claim_finish(f->s, &r, &f->r, &f->err), WEIR_OK);
    r = finish(FINISH_RELEASE, &second);
    assert_int_equal(weir__claim_finish(f->s, &r, &f->r, &f->err), WEIR_ELOST);
    assert_true(weir__table_in_transaction(f->s));
    weir__table_rollback(f->s);
    run(f, "SELECT claimed_by FROM jobs WHERE id = 1");
    expect_row(f, "{\"claimed_by\":\"w1\"}");
}

/* ---- many at once --------------------------------------------------------------------------- */

static const table_value three[] = { NUMBER(1), NUMBER(2), NUMBER(3) };

static void expect_states(fixture *f, const char *json)
{
    run(f, "SELECT group_concat(status || coalesce(locked_until, ''), ' ') AS states FROM jobs");
    expect_row(f, json);
}

static void C38_of_many_only_what_is_still_yours_is_finished(void **state)
{
    fixture *f = *state;
    bool finished[3] = { false, true, true };
    finish_request r = finish(FINISH_DONE, NULL);
    r.writes.set = &done;
    r.writes.set_count = 1;
    const finish_batch batch = { .keys = three, .count = 3 };
    /* The lease of the second has ended, the third is nobody's. */
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_OK);
    assert_true(finished[0] && !finished[1] && !finished[2]);
    expect_states(f, "{\"states\":\"done claimed1 pending\"}");
    assert_false(weir__table_in_transaction(f->s));
}

static void C38_each_of_many_has_its_own_fence(void **state)
{
    fixture *f = *state;
    bool finished[2];
    const int64_t fences[] = { 7, 6 };
    run(f, "UPDATE jobs SET locked_until = NULL");
    finish_request r = finish(FINISH_DONE, NULL);
    r.writes.set = &done;
    r.writes.set_count = 1;
    r.has_fence = true;
    r.fence_column = STR("fence");
    const finish_batch batch = { .keys = three, .fences = fences, .count = 2 };
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_OK);
    assert_true(finished[0] && !finished[1]);
    expect_states(f, "{\"states\":\"done claimed pending\"}");
}

static void an_error_finishes_none_of_many(void **state)
{
    fixture *f = *state;
    bool finished[3] = { true, true, true };
    run(f, "UPDATE jobs SET claimed_by = 'w1', locked_until = NULL");
    run(f, "CREATE TRIGGER no BEFORE UPDATE ON jobs WHEN old.id = 2 BEGIN"
           " SELECT raise(FAIL, 'no'); END");
    finish_request r = finish(FINISH_DONE, NULL);
    r.writes.set = &done;
    r.writes.set_count = 1;
    finish_batch batch = { .keys = three, .count = 3 };
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_EIO);
    assert_false(finished[0] || finished[1] || finished[2]);
    expect_states(f, "{\"states\":\"claimed claimed pending\"}");
    const table_value no_key[] = { NUMBER(1), { .kind = TABLE_NULL } };
    batch = (finish_batch){ .keys = no_key, .count = 2 };
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_EINVAL);
    expect_states(f, "{\"states\":\"claimed claimed pending\"}");
}

static void as_many_as_a_claim_and_no_more(void **state)
{
    enum { MOST = CLAIM_LIMIT_MAX };
    fixture *f = *state;
    table_value *keys = calloc(MOST + 1, sizeof *keys);
    bool *finished = calloc(MOST + 1, sizeof *finished);
    assert_true(keys != NULL && finished != NULL);
    for (size_t i = 0; i <= MOST; i++) {
        keys[i] = (table_value){ .kind = TABLE_INTEGER, .number = (int64_t)i + 1 };
    }
    finish_request r = finish(FINISH_DONE, NULL);
    r.writes.set = &done;
    r.writes.set_count = 1;
    finish_batch batch = { .keys = keys, .count = MOST };
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_OK);
    assert_true(finished[0] && !finished[1] && !finished[MOST - 1]);
    batch.count = MOST + 1;
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_EINVAL);
    batch.count = 0;
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_OK);
    free(keys);
    free(finished);
}

static void many_may_be_part_of_a_transaction(void **state)
{
    fixture *f = *state;
    bool finished[3];
    finish_request r = finish(FINISH_RELEASE, NULL);
    const finish_batch batch = { .keys = three, .count = 3 };
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    assert_int_equal(weir__claim_finish_batch(f->s, &r, &batch, finished, &f->err), WEIR_OK);
    assert_true(finished[0] && weir__table_in_transaction(f->s));
    weir__table_rollback(f->s);
    run(f, "SELECT claimed_by FROM jobs WHERE id = 1");
    expect_row(f, "{\"claimed_by\":\"w1\"}");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(done_writes_and_ends_the_lease),
        TEST(release_takes_the_holder_out),
        TEST(C38_what_is_released_is_free_at_once),
        TEST(without_a_lease_the_values_of_the_claim_are_a_guard),
        TEST(extend_moves_the_end),
        TEST(C38_what_has_no_lease_is_not_extended),
        TEST(C38_who_no_longer_holds_it_is_refused),
        TEST(a_row_that_is_not_there_is_told),
        TEST(a_lease_column_may_be_left_out),
        TEST(mistakes_are_told_with_their_flag),
        TEST(it_may_be_part_of_a_transaction),
        TEST(C38_of_many_only_what_is_still_yours_is_finished),
        TEST(C38_each_of_many_has_its_own_fence),
        TEST(an_error_finishes_none_of_many),
        TEST(as_many_as_a_claim_and_no_more),
        TEST(many_may_be_part_of_a_transaction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
