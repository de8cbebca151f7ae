/* lint_test.c - the reviewer as a function: limits, and what happens when memory runs out. What it
 * finds is shown by tests/lint.
 */
#include "lint/lint.h"
#include "lint/sql_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const lint_options any = { 0 };

/* One text with something for every part. */
static const char text[] =
    "CREATE TABLE calls (site text, number integer, CONSTRAINT k PRIMARY KEY (site, number));\n"
    "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$\n"
    "DECLARE idempotency_key text := now();\n"
    "BEGIN\n"
    "  UPDATE Calls SET state = 'running' WHERE number IN (\n"
    "    SELECT Number FROM calls WHERE state = 'x' ORDER BY number LIMIT 5 FOR UPDATE)\n"
    "  RETURNING *;\n"
    "END $$;\n"
    "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT ''a'', "
    "pg_advisory_lock(hashtext(''b''))';\n"
    "-- weir:allow no-flip\n"
    "SELECT id FROM jobs WHERE status = 'pending' LIMIT 9 FOR UPDATE SKIP LOCKED;\n";

static void findings_come_in_the_order_of_lines_and_rules(void **state)
{
    static const struct {
        uint32_t line;
        lint_rule rule;
    } expected[] = {
        { 3, LINT_KEY_CHANGES },          { 6, LINT_NO_SKIP_LOCKED }, { 6, LINT_LIMIT_NOT_KEPT },
        { 9, LINT_LOCK_KEY_COLLIDES },    { 11, LINT_NO_ORDER },      { 11, LINT_WRONG_LIMIT },
        { 11, LINT_NOT_ONE_TRANSACTION },
    };
    lint_report report = { 0 };
    weir_error err;

    (void)state;
    assert_int_equal(weir__lint(weir__str(text), &(lint_options){ .limit = 5 }, &report, &err),
                     WEIR_OK);
    for (size_t i = 0; i < weir__lint_findings_count(&report); i++) {
        const lint_finding *f = weir__lint_finding(&report, i);
        print_message("# %u %s\n", f->line, weir__lint_rules[f->rule].name);
    }
    assert_int_equal(weir__lint_findings_count(&report), sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(weir__lint_finding(&report, i)->line, expected[i].line);
        assert_int_equal(weir__lint_finding(&report, i)->rule, expected[i].rule);
    }
    weir__lint_report_free(&report);
}

static void running_out_of_memory_is_an_error_wherever_it_happens(void **state)
{
    uint64_t nth = 0;

    (void)state;
    for (bool failed = true; failed;) {
        lint_report report = { 0 };
        weir_error err = { .code = 0 };
        weir__memory_fail_nth(++nth);
        const weir_status status =
            weir__lint(weir__str(text), &(lint_options){ .limit = 5 }, &report, &err);
        failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(status, failed ? WEIR_ENOMEM : WEIR_OK);
        assert_int_equal(err.code, failed ? WEIR_ENOMEM : 0);
        weir__lint_report_free(&report);
    }
    assert_true(nth > 20);
}

static weir_status lint_text(const char *ptr, size_t len, uint32_t *bad_line)
{
    lint_report report = { 0 };
    weir_error err;
    const weir_status status = weir__lint((weir_str){ ptr, len }, &any, &report, &err);

    *bad_line = report.bad_line;
    weir__lint_report_free(&report);
    return status;
}

static void parentheses_go_200_deep(void **state)
{
    char nested[2 * SQL_DEPTH_MAX + 16];
    uint32_t bad_line = 0;

    (void)state;
    for (size_t depth = SQL_DEPTH_MAX; depth <= SQL_DEPTH_MAX + 1; depth++) {
        memset(nested, '(', depth);
        nested[depth] = '1';
        memset(nested + depth + 1, ')', depth);
        assert_int_equal(lint_text(nested, 2 * depth + 1, &bad_line),
                         depth <= SQL_DEPTH_MAX ? WEIR_OK : WEIR_EINVAL);
    }
    assert_int_equal(bad_line, 1);
}

static void a_text_has_up_to_64_mib(void **state)
{
    char *large = malloc((size_t)SQL_BYTES_MAX + 1);
    uint32_t bad_line = 0;

    (void)state;
    assert_non_null(large);
    memset(large, ' ', (size_t)SQL_BYTES_MAX + 1);
    assert_int_equal(lint_text(large, SQL_BYTES_MAX, &bad_line), WEIR_OK);
    assert_int_equal(lint_text(large, (size_t)SQL_BYTES_MAX + 1, &bad_line), WEIR_EINVAL);
    assert_int_equal(bad_line, 1);
    free(large);
}

static void bodies_in_bodies_are_read_up_to_a_depth(void **state)
{
    weir_buffer sql = { 0 };
    char part[64];
    uint32_t bad_line = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        (void)snprintf(part, sizeof part, "DO $a%d$ BEGIN ", i);
        assert_true(weir__buffer_add_text(&sql, part));
    }
    for (int i = 39; i >= 0; i--) {
        (void)snprintf(part, sizeof part, " END $a%d$;", i);
        assert_true(weir__buffer_add_text(&sql, part));
    }
    assert_int_equal(lint_text(sql.ptr, sql.len, &bad_line), WEIR_OK);
    weir__buffer_free(&sql);
}

static void nothing_has_no_findings(void **state)
{
    uint32_t bad_line = 0;

    (void)state;
    assert_int_equal(lint_text(NULL, 0, &bad_line), WEIR_OK);
    assert_int_equal(lint_text(";;;", 3, &bad_line), WEIR_OK);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(findings_come_in_the_order_of_lines_and_rules),
        cmocka_unit_test(running_out_of_memory_is_an_error_wherever_it_happens),
        cmocka_unit_test(parentheses_go_200_deep),
        cmocka_unit_test(a_text_has_up_to_64_mib),
        cmocka_unit_test(bodies_in_bodies_are_read_up_to_a_depth),
        cmocka_unit_test(nothing_has_no_findings),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
