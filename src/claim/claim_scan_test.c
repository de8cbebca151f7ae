/* claim_scan_test.c - :name is found in the user's SQL, and nothing that only looks like it; what
 * would reach out of its parentheses is refused.
 */
#include "claim/claim_private.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* The SQL with its parameters between brackets; NULL: it was refused. */
static const char *scanned(table_dialect dialect, const char *sql, weir_error *err)
{
    static char out[1024];
    size_t len = 0;
    claim_scan scan = { .sql = weir__str(sql), .dialect = dialect };
    claim_piece piece;
    bool found = true;
    out[0] = '\0';
    while (found) {
        if (weir__claim_scan_next(&scan, &piece, &found, err) != WEIR_OK) {
            return NULL;
        }
        if (found) {
            len += (size_t)snprintf(out + len, sizeof out - len, piece.param ? "<%.*s>" : "%.*s",
                                    (int)piece.text.len, piece.text.ptr);
        }
    }
    return out;
}

static void expect_on(table_dialect dialect, const char *sql, const char *expected)
{
    weir_error err = { 0 };
    const char *got = scanned(dialect, sql, &err);
    if (got == NULL) {
        fail_msg("%s: %s", sql, err.message);
    }
    assert_string_equal(got, expected);
}

static void both(const char *sql, const char *expected)
{
    expect_on(TABLE_POSTGRES, sql, expected);
    expect_on(TABLE_SQLITE, sql, expected);
}

static void refused_on(table_dialect dialect, const char *sql, const char *message)
{
    weir_error err = { 0 };
    const char *got = scanned(dialect, sql, &err);
    if (got != NULL) {
        fail_msg("%s was taken: %s", sql, got);
    }
    assert_int_equal(err.code, WEIR_EINVAL);
    if (strstr(err.message, message) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", err.message, message);
    }
}

static void refused(const char *sql, const char *message)
{
    refused_on(TABLE_POSTGRES, sql, message);
    refused_on(TABLE_SQLITE, sql, message);
}

static void parameters_are_found(void **state)
{
    (void)state;
    both("", "");
    both(":a", "<a>");
    both("a=:a_1+:B2 AND (:c)", "a=<a_1>+<B2> AND (<c>)");
    both(":a:b", "<a><b>");
    both("x = :\xc3\xa9t\xc3\xa9", "x = <\xc3\xa9t\xc3\xa9>");
    both("a[1:2] OR a : 1 OR a:", "a[1:2] OR a : 1 OR a:");
    expect_on(TABLE_POSTGRES, ":a::int + x::text || y:::b", "<a>::int + x::text || y::<b>");
}

static void C39_what_only_looks_like_a_parameter_is_none(void **state)
{
    (void)state;
    both("':a' || ':''b' || \":c\" || \"d\"\":e\"", "':a' || ':''b' || \":c\" || \"d\"\":e\"");
    both("x -- :a ' \" (\n = :b", "x -- :a ' \" (\n = <b>");
    both("x /* :a ' ( */ = :b --", "x /* :a ' ( */ = <b> --");
    expect_on(TABLE_POSTGRES, "/* /* :a */ :b */ :c", "/* /* :a */ :b */ <c>");
    expect_on(TABLE_SQLITE, "/* /* :a */ :b", "/* /* :a */ <b>");
    expect_on(TABLE_POSTGRES, "$$:a$$ || $t$ $$ :b $t$ || :c", "$$:a$$ || $t$ $$ :b $t$ || <c>");
    expect_on(TABLE_POSTGRES, "E'\\':a' || e'\\\\' || :b", "E'\\':a' || e'\\\\' || <b>");
    expect_on(TABLE_POSTGRES, "type'\\' || :b", "type'\\' || <b>");
    expect_on(TABLE_SQLITE, "[:a] || `:b` || :c", "[:a] || `:b` || <c>");
    expect_on(TABLE_POSTGRES, "a[:i]", "a[<i>]");
    expect_on(TABLE_POSTGRES, "E'''\\'' || :b", "E'''\\'' || <b>");
    expect_on(TABLE_POSTGRES, "E'a'\n'\\'' || :b", "E'a'\n'\\'' || <b>");
    expect_on(TABLE_POSTGRES, "a$E'\\' || :b", "a$E'\\' || <b>");
    expect_on(TABLE_POSTGRES, "a$$ = :b AND c$$", "a$$ = <b> AND c$$");
    expect_on(TABLE_POSTGRES, "x -- :a\r = :b", "x -- :a\r = <b>");
    expect_on(TABLE_SQLITE, "x -- :a\r = :b", "x -- :a\r = :b");
}

static void what_reaches_out_is_refused(void **state)
{
    (void)state;
    refused("1) OR (1", "a parenthesis is closed that was not opened");
    refused("(1", "a parenthesis is not closed");
    refused("1; DELETE FROM jobs", "a semicolon");
    refused("x = 'a", "a string does not end: 'a");
    refused("x = 'a''", "a string does not end");
    refused("\"a", "a name in quotes does not end");
    refused("1 /* (", "a comment does not end");
    refused("'", "a string does not end");
    refused_on(TABLE_POSTGRES, "/* /* */", "a comment does not end");
    refused_on(TABLE_POSTGRES, "$a$ $$ $b$", "a string does not end");
    refused_on(TABLE_POSTGRES, "E'\\'", "a string does not end");
    refused_on(TABLE_SQLITE, "[a", "a name in quotes does not end");
    refused("x = $1", "parameters have names here");
    assert_string_equal(scanned(TABLE_POSTGRES, "a$1 = 2", NULL), "a$1 = 2");
}

/* What PostgreSQL takes for code is not hidden in what looks like a string or a comment. */
static void C39_what_reaches_out_is_not_hidden(void **state)
{
    static const char closed[] = "a parenthesis is closed that was not opened";

    (void)state;
    refused_on(TABLE_POSTGRES, "E'''\\'') OR (true) -- '", closed);
    refused_on(TABLE_POSTGRES, "E'a'\n'\\'') OR (true) -- '", closed);
    refused_on(TABLE_POSTGRES, "a$E'\\') OR (true) -- '", closed);
    refused_on(TABLE_POSTGRES, "1 -- \r) OR (1", closed);
    refused("1$1", "parameters have names here");
}

static void a_nul_is_refused_wherever_it_is(void **state)
{
    static const weir_str texts[] = { { .ptr = "a\0b", .len = 3 },
                                      { .ptr = "'\0'", .len = 3 },
                                      { .ptr = "/*\0*/", .len = 5 },
                                      { .ptr = "\"\0\"", .len = 3 } };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        claim_scan scan = { .sql = texts[i] };
        claim_piece piece;
        weir_error err;
        bool found = true;
        assert_int_equal(weir__claim_scan_next(&scan, &piece, &found, &err), WEIR_EINVAL);
        assert_string_equal(err.message, "a NUL byte");
    }
}

/* The parts between ANDs, each between brackets. */
static void parts(const char *sql, const char *expected)
{
    char out[512] = "";
    size_t len = 0;
    size_t start = 0;
    claim_scan scan = { .sql = weir__str(sql), .dialect = TABLE_POSTGRES };
    while (start < scan.sql.len) {
        size_t end = 0;
        size_t next = 0;
        assert_int_equal(weir__claim_scan_and(&scan, &end, &next, NULL), WEIR_OK);
        len += (size_t)snprintf(out + len, sizeof out - len, "<%.*s>", (int)(end - start),
                                sql + start);
        start = next;
    }
    assert_string_equal(out, expected);
}

static void conditions_are_told_apart(void **state)
{
    (void)state;
    parts("a", "<a>");
    parts("a AND b and c", "<a >< b >< c>");
    parts("a AND(b AND c)AND d", "<a ><(b AND c)>< d>");
    parts("sand AND brand = ' AND ' AND \"x AND y\"", "<sand >< brand = ' AND ' >< \"x AND y\">");
    parts("a BETWEEN 1 AND 2 AND b", "<a BETWEEN 1 AND 2 >< b>");
    parts("CASE WHEN a AND b THEN c END AND d", "<CASE WHEN a AND b THEN c END >< d>");
    parts("a -- AND b\nAND c", "<a -- AND b\n>< c>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_found),
        cmocka_unit_test(C39_what_only_looks_like_a_parameter_is_none),
        cmocka_unit_test(what_reaches_out_is_refused),
        cmocka_unit_test(C39_what_reaches_out_is_not_hidden),
        cmocka_unit_test(a_nul_is_refused_wherever_it_is),
        cmocka_unit_test(conditions_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
