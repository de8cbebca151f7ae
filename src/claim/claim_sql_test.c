/* claim_sql_test.c - every kind of claim as SQL, in both dialects: our own reviewer finds nothing
 * wrong with it, values are literals, and the trap of a LIMIT in an IN is not there.
 */
#include "claim/claim.h"

#include "base/str.h"
#include "lint/lint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)

#define STR(t)                                                                                     \
    {                                                                                              \
        .ptr = (t), .len = sizeof(t) - 1                                                           \
    }
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = TABLE_TEXT, .text = STR(t)                                                         \
    }

static const table_column columns[] = {
    { .name = STR("id"), .type = STR("bigint"), .quoted = STR("\"id\""), .key = 1 },
    { .name = STR("part"), .type = STR("text"), .quoted = STR("\"part\""), .key = 2 },
    { .name = STR("status"), .type = STR("text"), .quoted = STR("\"status\"") },
    { .name = STR("priority"), .type = STR("bigint"), .quoted = STR("\"priority\"") },
    { .name = STR("claimed_by"), .type = STR("text"), .quoted = STR("\"claimed_by\"") },
    { .name = STR("claimed_at"), .type = STR("text"), .quoted = STR("\"claimed_at\"") },
    { .name = STR("locked_until"), .type = STR("text"), .quoted = STR("\"locked_until\"") },
};
static const size_t key[] = { 0, 1 };
static const table_info jobs = { .shown = STR("public.jobs"),
                                 .quoted = STR("\"public\".\"jobs\""),
                                 .id = 17,
                                 .columns = columns,
                                 .columns_count = sizeof columns / sizeof columns[0],
                                 .key = key,
                                 .key_count = 2 };
static const claim_set claimed[] = { { .column = STR("status"), .value = TEXT("it's") } };
static const claim_order order[] = { { .column = STR("priority"), .descending = true } };
static const claim_param params[] = { { .name = STR("s"), .value = TEXT("'; --") } };
static const table_value excluded[] = { { .kind = TABLE_INTEGER, .number = 4 }, TEXT("a") };

/* One of all kinds, by number. false: there is none of that number. */
static bool kind_of_claim(unsigned number, claim_request *r, table_dialect *dialect)
{
    *r = (claim_request){ .table = STR("jobs"),
                          .where = STR("status = :s"),
                          .writes.params = params,
                          .writes.params_count = 1,
                          .limit = 7,
                          .writes.set = claimed,
                          .writes.set_count = 1 };
    *dialect = number & 1 ? TABLE_SQLITE : TABLE_POSTGRES;
    r->lease_us = number & 2 ? SECOND : 0;
    r->order = order;
    r->order_count = number & 4 ? 1 : 0;
    r->by = number & 8 ? (weir_str)STR("w1") : (weir_str){ 0 };
    if (number & 16) {
        r->max_per_column = (weir_str)STR("priority");
        r->max_per = 3;
    }
    if (number & 32) {
        r->exclude = excluded;
        r->exclude_count = 1;
    }
    r->mode = (claim_mode)(number / 64 % 3);
    r->wait_us = -1;
    r->hold = number / 192 == 1;
    r->path = number / 192 == 2 ? CLAIM_PATH_PORTABLE : CLAIM_PATH_DEFAULT;
    if (r->hold) {
        r->max_per_column = (weir_str){ 0 };
    }
    return number < (unsigned)(192 * 3);
}

static void each_kind(void (*check)(const claim_request *r, table_dialect dialect, weir_str sql))
{
    claim_request r;
    table_dialect dialect;
    weir_error err = { 0 };
    for (unsigned i = 0; kind_of_claim(i, &r, &dialect); i++) {
        weir_buffer sql = { 0 };
        if (weir__claim_sql(&r, &jobs, dialect, &sql, &err) != WEIR_OK) {
            fail_msg("kind %u: %s", i, err.message);
        }
        check(&r, dialect, (weir_str){ .ptr = sql.ptr, .len = sql.len });
        weir__buffer_free(&sql);
    }
}

static void check_lint(const claim_request *r, table_dialect dialect, weir_str sql)
{
    const lint_options options = {
        .dialect = dialect == TABLE_SQLITE ? LINT_DIALECT_SQLITE : LINT_DIALECT_POSTGRES,
    };
    lint_report report = { 0 };
    weir_error err = { 0 };
    if (r->hold || r->mode != CLAIM_SKIP) {
        return; /* what is locked and not marked at once is meant so there */
    }
    if (weir__lint(sql, &options, &report, &err) != WEIR_OK) {
        fail_msg("%s\n%.*s", err.message, (int)sql.len, sql.ptr);
    }
    if (weir__lint_findings_count(&report) > 0) {
        const lint_finding *first = weir__lint_finding(&report, 0);
        fail_msg("line %u: %s\n%.*s", first->line, weir__lint_rules[first->rule].name, (int)sql.len,
                 sql.ptr);
    }
    weir__lint_report_free(&report);
}

static void a_reviewer_finds_nothing_wrong(void **state)
{
    (void)state;
    each_kind(check_lint);
}

static bool has(weir_str sql, const char *part)
{
    const size_t len = strlen(part);
    for (size_t i = 0; i + len <= sql.len; i++) {
        if (memcmp(sql.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

static void check_text(const claim_request *r, table_dialect dialect, weir_str sql)
{
    const bool locks = dialect == TABLE_POSTGRES && r->path != CLAIM_PATH_PORTABLE;
    assert_true(has(sql, "'''; --'"));
    assert_false(has(sql, "$1"));
    assert_int_equal(has(sql, "FOR NO KEY UPDATE"), locks);
    assert_int_equal(has(sql, "SKIP LOCKED"), locks && r->mode != CLAIM_NOWAIT);
    assert_int_equal(has(sql, "NOWAIT"), locks && r->mode == CLAIM_NOWAIT);
    assert_int_equal(has(sql, "UPDATE \"public\""), !r->hold);
    /* The one UPDATE of SQLite has its rows from an IN, without a LIMIT or a lock in it. */
    assert_false(has(sql, "LIMIT 7)\n  RETURNING"));
    assert_memory_equal(sql.ptr + sql.len - 2, ";\n", 2);
}

static void C36_what_is_shown_is_what_was_asked_for(void **state)
{
    (void)state;
    each_kind(check_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reviewer_finds_nothing_wrong),
        cmocka_unit_test(C36_what_is_shown_is_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
