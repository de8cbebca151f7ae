/* claims_plan_test.c - what a claim costs on PostgreSQL, and the indexes that weir claim --explain
 * recommends for it.
 */
#include "claims_place.h"

#include <string.h>

static void expect_findings(place *p, const claim_request *r, claim_plan *plan, const char *rules)
{
    char got[256] = "";
    if (weir__claim_explain(p->s, r, plan, &p->err) != WEIR_OK) {
        fail_msg("%s", p->err.message);
    }
    for (size_t i = 0; i < plan->findings_count; i++) {
        strcat(strcat(got, i == 0 ? "" : " "), plan->findings[i].rule);
    }
    assert_string_equal(got, rules);
    assert_int_equal(plan->indexes.len == 0, plan->findings_count == 0);
    assert_non_null(strstr(plan->text.ptr, "Update on jobs"));
}

static void mended(place *p, const claim_request *r, const char *rules, const char *index)
{
    claim_plan plan = { 0 };
    expect_findings(p, r, &plan, rules);
    if (strstr(plan.indexes.ptr, index) == NULL) {
        fail_msg("%s", plan.indexes.ptr);
    }
    test_exec(p->t->conn, "%s", plan.indexes.ptr);
    expect_findings(p, r, &plan, "");
    weir__claim_plan_free(&plan);
}

static void an_index_that_is_recommended_mends_what_was_found(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    const claim_order order[] = { { .column = STR("priority"), .descending = true } };
    const claim_param param = { .name = STR("t"), .value = TEXT("it's") };
    claim_request r = pending(&p, 10);
    const claim_request alone = { .table = STR("jobs"), .limit = 1, .lease_us = SECOND };
    test_exec(p.t->conn, JOBS);
    mended(&p, &alone, "sequential-scan", "(\"locked_until\");\n");
    mended(&p, &r, "sequential-scan", "(\"id\") WHERE status = 'pending';\n");
    r.order = order;
    r.order_count = 1;
    r.lease_us = SECOND;
    mended(&p, &r, "sort filter", "(\"status\", \"locked_until\");\n");
    r.max_per_column = STR("tenant");
    r.max_per = 1;
    claim_plan plan = { 0 };
    expect_findings(&p, &r, &plan, ""); /* the same index serves to count */
    weir__claim_plan_free(&plan);
    r.order_count = 0;
    r.where = STR("status = 'pending' AND tenant = :t AND claimed_at < now()");
    r.writes.params = &param;
    r.writes.params_count = 1;
    mended(&p, &r, "filter", "WHERE status = 'pending' AND tenant = 'it''s';\n");
    assert_int_equal(test_number(p.t->conn, "SELECT count(*) FROM jobs WHERE status = 'pending'"),
                     10);
    assert_int_equal(test_number(p.t->conn, "SELECT count(*) FROM pg_class WHERE relname = 'jobs'"
                                            " AND relpersistence = 't'"),
                     0);
    place_close(&p);
}

static void the_same_for_a_partitioned_table(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    test_exec(p.t->conn, "CREATE TABLE jobs (id int, region text, status text, priority int,"
                         " locked_until timestamptz, PRIMARY KEY (id, region))"
                         " PARTITION BY LIST (region);"
                         "CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES IN ('a');"
                         "CREATE TABLE jobs_2 PARTITION OF jobs FOR VALUES IN ('b')");
    claim_request r = pending(&p, 10);
    r.lease_us = SECOND;
    mended(&p, &r, "sequential-scan sequential-scan", "(\"id\", \"region\") WHERE status");
    place_close(&p);
}

/* Blocks that a claim reads, with so many finished rows. */
static int64_t blocks_of(place *p, const claim_request *r, int64_t finished)
{
    test_exec(
        p->t->conn,
        "TRUNCATE jobs; INSERT INTO jobs (id, status, claimed_by) SELECT i, 'done', 'w' FROM"
        " generate_series(1, %lld) AS i;"
        "INSERT INTO jobs (id, status, locked_until) SELECT 1000000 + i, CASE WHEN mod(i, 2) ="
        " 0 THEN 'claimed' ELSE 'pending' END, CASE WHEN mod(i, 2) = 0 THEN timestamptz"
        " '2020-01-01' END FROM generate_series(1, 200) AS i",
        (long long)finished);
    test_exec(p->t->conn, "VACUUM ANALYZE jobs");
    weir_arena arena = { 0 };
    weir_buffer sql = { 0 };
    table_info table;
    assert_int_equal(weir__table_describe(p->s, STR("jobs"), &arena, &table, &p->err), WEIR_OK);
    assert_int_equal(weir__claim_sql(r, &table, TABLE_POSTGRES, &sql, &p->err), WEIR_OK);
    assert_true(weir__buffer_add(&sql, "", 1));
    test_exec(p->t->conn,
              "DO $explain$ DECLARE plan json; BEGIN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS,"
              " FORMAT JSON) ' || $sql$%s$sql$ INTO plan; PERFORM set_config("
              "'weir_test.blocks', ((plan->0->'Plan'->>'Shared Hit Blocks')::int +"
              " (plan->0->'Plan'->>'Shared Read Blocks')::int)::text, false);"
              " END $explain$",
              sql.ptr);
    weir__buffer_free(&sql);
    weir__arena_free(&arena);
    return test_number(p->t->conn, "SELECT current_setting('weir_test.blocks')::int");
}

static void what_is_finished_costs_nothing(void **state)
{
    place p = place_open(*state, CLAIM_PATH_DEFAULT);
    claim_plan plan = { 0 };
    claim_request r = pending(&p, 10);
    r.lease_us = SECOND;
    test_exec(p.t->conn, JOBS);
    const int64_t without = blocks_of(&p, &r, 50000);
    assert_int_equal(weir__claim_explain(p.s, &r, &plan, &p.err), WEIR_OK);
    test_exec(p.t->conn, "%s", plan.indexes.ptr);
    const int64_t few = blocks_of(&p, &r, 500);
    const int64_t many = blocks_of(&p, &r, 50000);
    if (many > few * 3 / 2 || without < many * 3) {
        fail_msg("%lld blocks with 500 finished rows, %lld with 50,000, %lld without an index",
                 (long long)few, (long long)many, (long long)without);
    }
    weir__claim_plan_free(&plan);
    place_close(&p);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(an_index_that_is_recommended_mends_what_was_found),
        PG_TEST(the_same_for_a_partitioned_table),
        PG_TEST(what_is_finished_costs_nothing),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
