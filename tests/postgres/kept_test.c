/* kept_test.c - statements that come again are prepared, and it changes nothing but their speed.
 *
 * The sessions of the port to tables are asked, on their own connections, what is prepared there.
 */
#include "pg_support.h"

#include "pg/pg.h"
#include "table/table.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct place {
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
} place;

static place place_open(pg_test *t, const char *more)
{
    place p = { 0 };
    char url[512];
    char sql[128];
    test_exec(t->conn, "CREATE SCHEMA IF NOT EXISTS %s; SET search_path = %s", t->schema,
              t->schema);
    test_exec(t->conn, "CREATE TABLE IF NOT EXISTS jobs (id integer PRIMARY KEY)");
    (void)snprintf(url, sizeof url, "%s%s", test_server(), more);
    if (weir__table_open(&p.db, &(table_options){ .url = url }, &p.err) != WEIR_OK ||
        weir__table_session_open(p.db, &p.s, &p.err) != WEIR_OK) {
        fail_msg("no session: %s", p.err.message);
    }
    (void)snprintf(sql, sizeof sql, "SET search_path = %s", t->schema);
    assert_int_equal(weir__table_run(p.s, &(table_statement){ .sql = sql }, NULL, &p.err), WEIR_OK);
    return p;
}

static void place_close(place *p)
{
    weir__table_session_close(p->s);
    weir__table_close(p->db);
    weir__table_result_free(&p->r);
}

static void again(place *p, const char *sql)
{
    const table_statement statement = { .sql = sql, .again = true };
    if (weir__table_run(p->s, &statement, &p->r, &p->err) != WEIR_OK) {
        fail_msg("%s: %s", sql, p->err.message);
    }
}

static int64_t prepared(place *p)
{
    table_result r = { 0 };
    const table_statement ask = { .sql = "SELECT count(*) FROM pg_prepared_statements" };
    assert_int_equal(weir__table_run(p->s, &ask, &r, &p->err), WEIR_OK);
    const int64_t count = strtoll(r.cells[0].text.ptr, NULL, 10);
    weir__table_result_free(&r);
    return count;
}

static void a_statement_is_prepared_the_second_time(void **state)
{
    place p = place_open(*state, "");
    again(&p, "SELECT 1");
    assert_int_equal(prepared(&p), 0);
    again(&p, "SELECT 1");
    assert_int_equal(prepared(&p), 1);
    again(&p, "SELECT 1");
    assert_int_equal(prepared(&p), 1);
    assert_int_equal(p.r.rows_count, 1);
    place_close(&p);
}

static void values_of_each_run_are_its_own(void **state)
{
    place p = place_open(*state, "");
    for (int64_t i = 1; i <= 10; i++) { /* past the fifth, when the plan knows no values */
        const table_value value = { .kind = TABLE_INTEGER, .number = i };
        const table_statement statement = { .sql = "INSERT INTO jobs VALUES ($1) RETURNING id",
                                            .values = &value,
                                            .values_count = 1,
                                            .again = true };
        assert_int_equal(weir__table_run(p.s, &statement, &p.r, &p.err), WEIR_OK);
        assert_int_equal(strtoll(p.r.cells[0].text.ptr, NULL, 10), i);
        assert_int_equal(p.r.changed, 1);
    }
    assert_int_equal(prepared(&p), 1);
    place_close(&p);
}

static void a_table_that_has_changed_is_seen_as_it_is(void **state)
{
    pg_test *t = *state;
    place p = place_open(t, "");
    for (int i = 0; i < 3; i++) {
        again(&p, "SELECT * FROM jobs");
    }
    assert_int_equal(p.r.columns_count, 1);
    test_exec(t->conn, "ALTER TABLE jobs ADD COLUMN note text");
    again(&p, "SELECT * FROM jobs");
    assert_int_equal(p.r.columns_count, 2);
    again(&p, "SELECT * FROM jobs"); /* and is prepared anew */
    again(&p, "SELECT * FROM jobs");
    assert_int_equal(p.r.columns_count, 2);
    place_close(&p);
}

static void what_somebody_has_dropped_runs_without_a_name(void **state)
{
    place p = place_open(*state, "");
    again(&p, "INSERT INTO jobs SELECT coalesce(max(id), 0) + 1 FROM jobs");
    again(&p, "INSERT INTO jobs SELECT coalesce(max(id), 0) + 1 FROM jobs");
    const table_statement drop = { .sql = "DEALLOCATE ALL" };
    assert_int_equal(weir__table_run(p.s, &drop, NULL, &p.err), WEIR_OK);
    again(&p, "INSERT INTO jobs SELECT coalesce(max(id), 0) + 1 FROM jobs");
    again(&p, "SELECT count(*) FROM jobs");
    assert_int_equal(strtoll(p.r.cells[0].text.ptr, NULL, 10), 3); /* once each */
    place_close(&p);
}

static void a_refusal_is_what_it_was(void **state)
{
    place p = place_open(*state, "");
    const table_statement wrong = { .sql = "SELECT nothing FROM jobs", .again = true };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir__table_run(p.s, &wrong, NULL, &p.err), WEIR_EIO);
        assert_string_equal(p.err.store_code, "42703");
    }
    again(&p, "SELECT 1");
    place_close(&p);
}

static void only_so_many_are_kept(void **state)
{
    place p = place_open(*state, "");
    char sql[64];
    for (int i = 0; i < 3 * PG_TEXTS_MAX; i++) {
        (void)snprintf(sql, sizeof sql, "SELECT %d", i);
        again(&p, sql);
        again(&p, sql);
        assert_true(prepared(&p) <= PG_TEXTS_MAX);
    }
    assert_int_equal(prepared(&p), PG_TEXTS_MAX);
    place_close(&p);
}

static void nothing_is_prepared_that_was_not_asked_for(void **state)
{
    place p = place_open(*state, "");
    const table_value bytes = { .kind = TABLE_BYTES, .text = { "x", 1 } };
    for (int i = 0; i < 3; i++) {
        const table_statement plain = { .sql = "SELECT 1" };
        const table_statement typed = {
            .sql = "SELECT $1", .values = &bytes, .values_count = 1, .again = true
        };
        assert_int_equal(weir__table_run(p.s, &plain, NULL, &p.err), WEIR_OK);
        assert_int_equal(weir__table_run(p.s, &typed, NULL, &p.err), WEIR_OK);
        assert_int_equal(weir__table_begin(p.s, &p.err), WEIR_OK);
        again(&p, "SELECT 2"); /* a failure would cost the transaction */
        assert_int_equal(weir__table_commit(p.s, &p.err), WEIR_OK);
    }
    assert_int_equal(prepared(&p), 0);
    place_close(&p);
    p = place_open(*state, "&prepare=off");
    again(&p, "SELECT 1");
    again(&p, "SELECT 1");
    assert_int_equal(prepared(&p), 0);
    place_close(&p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_statement_is_prepared_the_second_time),
        PG_TEST(values_of_each_run_are_its_own),
        PG_TEST(a_table_that_has_changed_is_seen_as_it_is),
        PG_TEST(what_somebody_has_dropped_runs_without_a_name),
        PG_TEST(a_refusal_is_what_it_was),
        PG_TEST(only_so_many_are_kept),
        PG_TEST(nothing_is_prepared_that_was_not_asked_for),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
