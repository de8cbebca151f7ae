/* claim_review_test.c - what weir claim prints as SQL passes its own review.
 *
 * Goal: every claim that can be asked for, in both dialects, on both paths, in every mode, with and
 * without each option, gives SQL in which weir lint finds nothing. Method: all of them, one by one;
 * the table is described by hand, so that no database is needed. That the claim is seen at all is
 * shown by asking for one row more: then there is a finding.
 */
#include "claim/claim.h"
#include "lint/lint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define STR(t) ((weir_str){ .ptr = (t), .len = sizeof(t) - 1 })
#define COLUMN(n, t, k)                                                                            \
    {                                                                                              \
        .name = { .ptr = (n), .len = sizeof(n) - 1 },                                              \
        .type = { .ptr = (t), .len = sizeof(t) - 1 },                                              \
        .quoted = { .ptr = "\"" n "\"", .len = sizeof(n) + 1 }, .key = (k)                         \
    }

enum { SWITCHES = 10 };

static const table_column postgres_columns[] = {
    COLUMN("id", "bigint", 1),
    COLUMN("site", "text", 2),
    COLUMN("status", "text", 0),
    COLUMN("priority", "integer", 0),
    COLUMN("tenant", "text", 0),
    COLUMN("claimed_by", "text", 0),
    COLUMN("claimed_at", "timestamp with time zone", 0),
    COLUMN("locked_until", "timestamp with time zone", 0),
    COLUMN("fence", "bigint", 0),
    COLUMN("attempts", "integer", 0),
};
static const table_column sqlite_columns[] = {
    COLUMN("id", "INTEGER", 1),      COLUMN("site", "TEXT", 2),
    COLUMN("status", "TEXT", 0),     COLUMN("priority", "INTEGER", 0),
    COLUMN("tenant", "TEXT", 0),     COLUMN("claimed_by", "TEXT", 0),
    COLUMN("claimed_at", "TEXT", 0), COLUMN("locked_until", "INTEGER", 0),
    COLUMN("fence", "INTEGER", 0),   COLUMN("attempts", "INTEGER", 0),
};
static const size_t keys[] = { 0, 1 };

static table_info jobs(table_dialect dialect, size_t key_count)
{
    return (table_info){ .shown = STR("jobs"),
                         .quoted = STR("\"jobs\""),
                         .id = 1,
                         .columns = dialect == TABLE_POSTGRES ? postgres_columns : sqlite_columns,
                         .columns_count = sizeof postgres_columns / sizeof postgres_columns[0],
                         .key = keys,
                         .key_count = key_count };
}

/* One request out of bits; what it borrows is static. */
static claim_request request_of(unsigned bits, claim_path path, claim_mode mode)
{
    static const claim_order order[] = { { .column = { "priority", 8 }, .descending = true } };
    static const claim_set set[] = {
        { .column = { "status", 6 }, .value = { .kind = TABLE_TEXT, .text = { "claimed", 7 } } },
    };
    static const claim_set_sql expression[] = { { .column = { "priority", 8 },
                                                  .sql = { "priority + 1", 12 } } };
    static const table_value excluded[] = {
        { .kind = TABLE_INTEGER, .number = 7 },
        { .kind = TABLE_TEXT, .text = { "a", 1 } },
        { .kind = TABLE_INTEGER, .number = 8 },
        { .kind = TABLE_TEXT, .text = { "b", 1 } },
    };
    claim_request r = { .table = STR("jobs"),
                        .where = STR("status = 'pending'"),
                        .limit = 5,
                        .path = path,
                        .mode = mode,
                        .wait_us = (bits & 512) != 0 ? -1 : 5000000 };

    r.writes.set = set;
    r.writes.set_count = (bits & 1) != 0 ? 1 : 0;
    if ((bits & 2) != 0) {
        r.lease_us = 60000000;
    }
    if ((bits & 4) != 0) {
        r.by = STR("it's me; -- FOR UPDATE");
    }
    if ((bits & 8) != 0) {
        r.order = order;
        r.order_count = 1;
    }
    if ((bits & 16) != 0) {
        r.fence_column = STR("fence");
        r.attempts_column = STR("attempts");
    }
    if ((bits & 32) != 0) {
        r.max_per_column = STR("tenant");
        r.max_per = 2;
    }
    if ((bits & 64) != 0) {
        r.writes.set_sql = expression;
        r.writes.set_sql_count = 1;
    }
    if ((bits & 128) != 0) {
        r.exclude = excluded;
        r.exclude_count = 2;
    }
    r.hold = (bits & 256) != 0;
    return r;
}

/* How many findings there are in what is printed for the request, if it is to claim `limit` rows;
 * -1: it is refused. */
static long findings_of(const claim_request *r, table_dialect dialect, size_t key_count, bool guess,
                        int64_t limit)
{
    const table_info table = jobs(dialect, key_count);
    const lint_dialect told =
        dialect == TABLE_POSTGRES ? LINT_DIALECT_POSTGRES : LINT_DIALECT_SQLITE;
    const lint_options options = { .limit = limit, .dialect = guess ? LINT_DIALECT_GUESS : told };
    weir_buffer sql = { 0 };
    lint_report report = { 0 };
    weir_error err;
    long count = -1;

    if (weir__claim_sql(r, &table, dialect, &sql, &err) == WEIR_OK) {
        if (weir__lint((weir_str){ sql.ptr, sql.len }, &options, &report, &err) != WEIR_OK) {
            fail_msg("line %u: %s in\n%.*s", report.bad_line, err.message, (int)sql.len, sql.ptr);
        }
        count = (long)weir__lint_findings_count(&report);
        for (long i = 0; limit == r->limit && i < count; i++) {
            const lint_finding *f = weir__lint_finding(&report, (size_t)i);
            (void)fprintf(stderr, "line %u: %s\n", f->line, weir__lint_rules[f->rule].name);
        }
        if (limit == r->limit && count > 0) {
            (void)fprintf(stderr, "in\n%.*s\n", (int)sql.len, sql.ptr);
        }
    }
    weir__lint_report_free(&report);
    weir__buffer_free(&sql);
    return count;
}

static void check_all(table_dialect dialect, claim_path path)
{
    static const claim_mode modes[] = { CLAIM_SKIP, CLAIM_WAIT, CLAIM_NOWAIT };
    unsigned printed = 0;

    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        for (unsigned bits = 0; bits < 1U << SWITCHES; bits++) {
            const claim_request r = request_of(bits, path, modes[m]);
            for (size_t key_count = 1; key_count <= 2; key_count++) {
                if (key_count == 1 && r.exclude_count > 0) {
                    continue; /* the keys to leave out have two columns */
                }
                const long count = findings_of(&r, dialect, key_count, bits % 2 == 0, r.limit);
                assert_true(count <= 0);
                /* With max_per the LIMIT is that of another query, which reads the claim's. */
                if (count == 0 && !r.hold && r.max_per == 0) {
                    assert_true(findings_of(&r, dialect, key_count, true, r.limit + 1) > 0);
                }
                printed += count == 0 ? 1 : 0;
            }
        }
    }
    print_message("%u requests\n", printed);
    assert_true(printed > 500);
}

static void claims_on_postgres_pass_their_review(void **state)
{
    (void)state;
    check_all(TABLE_POSTGRES, CLAIM_PATH_FAST);
}

static void portable_claims_on_postgres_pass_their_review(void **state)
{
    (void)state;
    check_all(TABLE_POSTGRES, CLAIM_PATH_PORTABLE);
}

static void claims_on_sqlite_pass_their_review(void **state)
{
    (void)state;
    check_all(TABLE_SQLITE, CLAIM_PATH_FAST);
}

static void portable_claims_on_sqlite_pass_their_review(void **state)
{
    (void)state;
    check_all(TABLE_SQLITE, CLAIM_PATH_PORTABLE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_on_postgres_pass_their_review),
        cmocka_unit_test(portable_claims_on_postgres_pass_their_review),
        cmocka_unit_test(claims_on_sqlite_pass_their_review),
        cmocka_unit_test(portable_claims_on_sqlite_pass_their_review),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
