/* claim_explain_test.c - findings on SQLite: what is slow is told, with the index that mends it,
 * and is gone once it is there. The same on PostgreSQL is in tests/postgres/claims_test.c.
 */
#include "claim/claim.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sqlite3.h>

#define SECOND INT64_C(1000000)

#define STR(t) ((weir_str){ .ptr = (t), .len = sizeof(t) - 1 })
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = TABLE_TEXT, .text = {.ptr = (t), .len = sizeof(t) - 1 }                            \
    }

typedef struct fixture {
    table_db *db;
    table_session *s;
    claim_plan plan;
    weir_error err;
} fixture;

static void run(fixture *f, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(weir__table_native(f->s), sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(weir__table_open(&f->db, &(table_options){ .url = "memory:" }, &f->err),
                     WEIR_OK);
    assert_int_equal(weir__table_session_open(f->db, &f->s, &f->err), WEIR_OK);
    run(f, "CREATE TABLE \"my jobs\" (id INTEGER PRIMARY KEY, status TEXT, priority INTEGER,"
           " tenant TEXT, locked_until INTEGER)");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    weir__claim_plan_free(&f->plan);
    weir__table_session_close(f->s);
    weir__table_close(f->db);
    free(f);
    return 0;
}

static const claim_set claimed[] = { { .column = { .ptr = "status", .len = 6 },
                                       .value = TEXT("claimed") } };

static claim_request pending(void)
{
    return (claim_request){ .table = STR("my jobs"),
                            .where = STR("status = 'pending'"),
                            .limit = 10,
                            .writes.set = claimed,
                            .writes.set_count = 1 };
}

static void explain(fixture *f, const claim_request *r, const char *rules)
{
    char got[256] = "";
    if (weir__claim_explain(f->s, r, &f->plan, &f->err) != WEIR_OK) {
        fail_msg("%s", f->err.message);
    }
    for (size_t i = 0; i < f->plan.findings_count; i++) {
        strcat(strcat(got, i == 0 ? "" : " "), f->plan.findings[i].rule);
    }
    assert_string_equal(got, rules);
    assert_int_equal(f->plan.indexes.len == 0, f->plan.findings_count == 0);
    assert_true(f->plan.text.len > 0);
}

/* What is recommended is done, and nothing is left to be found. */
static void mended(fixture *f, const claim_request *r, const char *rules, const char *indexes)
{
    explain(f, r, rules);
    if (strstr(f->plan.indexes.ptr, indexes) == NULL) {
        fail_msg("%s", f->plan.indexes.ptr);
    }
    run(f, f->plan.indexes.ptr);
    explain(f, r, "");
}

static void in_order_of_the_key(void **state)
{
    claim_request r = pending();
    mended(*state, &r, "sequential-scan",
           "\"my jobs\" (\"status\", \"id\") WHERE status = 'pending';\n");
}

/* Of a time when nothing was claimed, so that an index of claims seems to find every row. */
static void ended_leases_are_looked_up_whatever_statistics_say(void **state)
{
    fixture *f = *state;
    claim_request r = pending();
    r.lease_us = 1000000;
    run(f, "CREATE INDEX by_lease ON \"my jobs\" (status, locked_until);"
           "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
           " INSERT INTO \"my jobs\" (id, status) SELECT i, 'pending' FROM n; ANALYZE");
    assert_int_equal(weir__claim_explain(f->s, &r, &f->plan, &f->err), WEIR_OK);
    if (strstr(f->plan.text.ptr, "INDEX by_lease (status=? AND locked_until<?)") == NULL) {
        fail_msg("%s", f->plan.text.ptr);
    }
}

static void in_another_order(void **state)
{
    const claim_order order[] = { { .column = STR("priority"), .descending = true } };
    claim_request r = pending();
    r.order = order;
    r.order_count = 1;
    mended(*state, &r, "sequential-scan sort",
           "(\"status\", \"priority\" DESC, \"id\") WHERE status = 'pending';\n");
}

/* A value that a condition gives to a column comes first in the index, and nothing else does. */
static void conditions_of_many_kinds(void **state)
{
    static const struct {
        const char *where, *index;
    } kinds[] = {
        { "\"status\"  ==\n'pending' AND tenant = 'a'",
          "(\"status\", \"tenant\", \"id\", \"locked_until\")" },
        { "PRIORITY=5 AND tenant = 'it''s'", "(\"priority\", \"id\", \"locked_until\") WHERE" },
        { "status = 'a' OR tenant = 'b'", "(\"id\") WHERE" },
        { "status = 'a' || 'b'", "(\"id\") WHERE" },
        { "status = tenant", "(\"id\") WHERE" },
        { "priority = -5", "(\"id\") WHERE" },
        { "priority > 5", "(\"id\") WHERE" },
        { "status IN ('a')", "(\"id\") WHERE" },
        { "upper(status) = 'A'", "(\"id\") WHERE" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        fixture *f = *state;
        claim_request r = pending();
        r.lease_us = SECOND;
        r.where = (weir_str){ .ptr = kinds[i].where, .len = strlen(kinds[i].where) };
        assert_int_equal(weir__claim_explain(f->s, &r, &f->plan, &f->err), WEIR_OK);
        if (strstr(f->plan.indexes.ptr, kinds[i].index) == NULL) {
            fail_msg("%s: %s", kinds[i].where, f->plan.indexes.ptr);
        }
    }
}

/* What is recommended is used, whatever statistics of when every row was ready say. */
static void ready_rows_are_looked_up_whatever_statistics_say(void **state)
{
    fixture *f = *state;
    claim_request r = pending();
    r.lease_us = 1000000;
    explain(f, &r, "sequential-scan sequential-scan");
    run(f, f->plan.indexes.ptr);
    run(f, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
           " INSERT INTO \"my jobs\" (id, status) SELECT i, 'pending' FROM n; ANALYZE");
    explain(f, &r, "");
    if (strstr(f->plan.text.ptr, "SCAN my jobs") != NULL ||
        strstr(f->plan.text.ptr, "SCAN main.my jobs") != NULL) {
        fail_msg("%s", f->plan.text.ptr);
    }
}

static void with_a_lease_and_a_cap(void **state)
{
    claim_request r = pending();
    r.lease_us = SECOND;
    r.max_per_column = STR("tenant");
    r.max_per = 1;
    mended(*state, &r, "sequential-scan sequential-scan sequential-scan",
           "(\"status\", \"locked_until\");\n");
}

static void a_lease_alone(void **state)
{
    claim_request r = { .table = STR("my jobs"), .limit = 1, .lease_us = SECOND };
    mended(*state, &r, "sequential-scan", "(\"locked_until\");\n");
}

static void parameters_are_values_in_the_index(void **state)
{
    const claim_param param = { .name = STR("s"), .value = TEXT("it's") };
    claim_request r = pending();
    r.where = STR("status = :s AND priority < abs(random()) AND tenant BETWEEN 'a' AND 'b' "
                  "AND CASE WHEN id > 0 AND 1 THEN 1 END");
    r.writes.params = &param;
    r.writes.params_count = 1;
    mended(*state, &r, "sequential-scan",
           "WHERE status = 'it''s' AND tenant BETWEEN 'a' AND 'b' AND "
           "CASE WHEN id > 0 AND 1 THEN 1 END;\n");
}

static void C36_nothing_is_claimed_and_nothing_is_left(void **state)
{
    fixture *f = *state;
    claim_request r = pending();
    run(f, "INSERT INTO \"my jobs\" (status) VALUES ('pending')");
    explain(f, &r, "sequential-scan");
    table_result result = { 0 };
    assert_int_equal(weir__table_run(f->s,
                                     &(table_statement){ .sql = "SELECT count(*) || ' ' || (SELECT "
                                                                "count(*) FROM sqlite_temp_schema) "
                                                                "AS n FROM \"my jobs\" WHERE "
                                                                "status = 'pending'" },
                                     &result, &f->err),
                     WEIR_OK);
    assert_memory_equal(result.cells[0].text.ptr, "1 0", 3);
    weir__table_result_free(&result);
    r.where = STR("nope = status");
    assert_int_equal(weir__claim_explain(f->s, &r, &f->plan, &f->err), WEIR_EINVAL);
    assert_false(weir__table_in_transaction(f->s));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_order_of_the_key),
        TEST(ended_leases_are_looked_up_whatever_statistics_say),
        TEST(ready_rows_are_looked_up_whatever_statistics_say),
        TEST(conditions_of_many_kinds),
        TEST(in_another_order),
        TEST(with_a_lease_and_a_cap),
        TEST(a_lease_alone),
        TEST(parameters_are_values_in_the_index),
        TEST(C36_nothing_is_claimed_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
