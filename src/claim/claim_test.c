/* claim_test.c - claims on SQLite and in memory, on both paths. What many claimers at once may not
 * do is shown elsewhere (tests/claims, tests/postgres); here is what one claim gives.
 */
#include "claim/claim.h"

#include "base/memory.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#define SECOND INT64_C(1000000)

typedef struct fixture {
    table_db *db;
    table_session *s;
    table_result r;
    weir_error err;
    claim_path path;
} fixture;

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

static void run(fixture *f, const char *sql)
{
    weir_error err;
    if (weir__table_run(f->s, &(table_statement){ .sql = sql }, &f->r, &err) != WEIR_OK) {
        fail_msg("%s: %s", sql, err.message);
    }
}

static void setup_jobs(fixture *f)
{
    run(f, "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT NOT NULL DEFAULT 'pending',"
           " priority INTEGER NOT NULL DEFAULT 0, tenant TEXT, claimed_by TEXT, claimed_at TEXT,"
           " locked_until INTEGER, fence INTEGER, attempts INTEGER)");
}

static int setup_path(void **state, claim_path path)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->path = path;
    assert_int_equal(weir__table_open(&f->db, &(table_options){ .url = "memory:" }, &f->err),
                     WEIR_OK);
    assert_int_equal(weir__table_session_open(f->db, &f->s, &f->err), WEIR_OK);
    setup_jobs(f);
    *state = f;
    return 0;
}

static int setup_fast(void **state)
{
    return setup_path(state, CLAIM_PATH_FAST);
}

static int setup_portable(void **state)
{
    return setup_path(state, CLAIM_PATH_PORTABLE);
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

static const claim_set claimed[] = { { .column = { .ptr = "status", .len = 6 },
                                       .value = TEXT("claimed") } };

/* Up to `limit` pending rows become claimed ones. */
static claim_request pending(const fixture *f, int64_t limit)
{
    return (claim_request){ .table = STR("jobs"),
                            .where = STR("status = 'pending'"),
                            .limit = limit,
                            .writes.set = claimed,
                            .writes.set_count = 1,
                            .path = f->path };
}

static weir_status try_claim(fixture *f, const claim_request *request)
{
    return weir__claim_rows(f->s, request, &f->r, &f->err);
}

static void claim(fixture *f, const claim_request *request)
{
    if (try_claim(f, request) != WEIR_OK) {
        fail_msg("%s (%s)", f->err.message, f->err.detail);
    }
}

/* One column of all rows: "1 2 3". */
static void expect(const fixture *f, const char *column, const char *expected)
{
    char got[4096] = "";
    size_t len = 0;
    for (size_t i = 0; i < f->r.rows_count; i++) {
        for (size_t j = 0; j < f->r.columns_count; j++) {
            if (weir__str_equal(f->r.names[j], weir__str(column))) {
                const table_cell *cell = &f->r.cells[i * f->r.columns_count + j];
                len += (size_t)snprintf(got + len, sizeof got - len, "%s%.*s", i == 0 ? "" : " ",
                                        cell->null ? 4 : (int)cell->text.len,
                                        cell->null ? "NULL" : cell->text.ptr);
            }
        }
    }
    assert_string_equal(got, expected);
}

static void claims(fixture *f, const claim_request *request, const char *ids)
{
    claim(f, request);
    expect(f, "id", ids);
}

static void expect_sql(fixture *f, const char *sql, const char *expected)
{
    run(f, sql);
    assert_int_equal(f->r.columns_count, 1);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)f->r.names[0].len, f->r.names[0].ptr);
    expect(f, name, expected);
}

static void refused(fixture *f, const claim_request *request, const char *message)
{
    assert_int_equal(try_claim(f, request), WEIR_EINVAL);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", f->err.message, message);
    }
    assert_int_equal(f->r.rows_count, 0);
}

static void ten_jobs(fixture *f)
{
    run(f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)"
           " INSERT INTO jobs (id, priority, tenant) SELECT i, i % 3, 'abc' FROM n");
}

/* ---- what is given -------------------------------------------------------------------------- */

static void C36_as_many_as_asked_for_in_order_as_they_are_afterwards(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 3);
    claims(f, &r, "1 2 3");
    expect(f, "status", "claimed claimed claimed");
    claims(f, &r, "4 5 6");
    r.limit = 100;
    claims(f, &r, "7 8 9 10");
    claims(f, &r, "");
    expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE status = 'claimed'", "10");
}

static void C36_a_limit_of_nothing_touches_nothing(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 0);
    claims(f, &r, "");
    r.limit = -5;
    claims(f, &r, "");
    r.limit = CLAIM_LIMIT_MAX + 1;
    refused(f, &r, "--limit: 10001");
    r.limit = CLAIM_LIMIT_MAX;
    claim(f, &r);
    assert_int_equal(f->r.rows_count, 10);
}

static void C36_several_columns_order_and_the_key_comes_last(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    run(f, "UPDATE jobs SET tenant = NULL WHERE id IN (2, 8)");
    const claim_order order[] = { { .column = STR("priority"), .descending = true },
                                  { .column = STR("tenant") } };
    claim_request r = pending(f, 10);
    r.order = order;
    r.order_count = 2;
    claims(f, &r, "2 8 5 1 4 7 10 3 6 9");
}

static void the_order_is_that_of_before_the_claim(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    run(f, "UPDATE jobs SET attempts = 10 - id");
    const claim_order order[] = { { .column = STR("attempts") } };
    const claim_set_sql set_sql[] = { { .column = STR("attempts"), .sql = STR("0") } };
    claim_request r = pending(f, 3);
    r.order = order;
    r.order_count = 1;
    r.writes.set_sql = set_sql;
    r.writes.set_sql_count = 1;
    claims(f, &r, "10 9 8");
    expect(f, "attempts", "0 0 0");
}

static void C36_an_error_claims_nothing(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    run(f, "CREATE TRIGGER no BEFORE UPDATE ON jobs WHEN new.id = 5"
           " BEGIN SELECT raise(ABORT, 'not this one'); END");
    claim_request r = pending(f, 10);
    assert_int_equal(try_claim(f, &r), WEIR_EIO);
    assert_false(weir__table_in_transaction(f->s));
    expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE status = 'claimed'", "0");
}

static void what_is_written_by_a_claim(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    const claim_set_sql set_sql[] = { { .column = STR("priority"),
                                        .sql = STR("priority + :more") } };
    const claim_param params[] = { { .name = STR("more"), .value = NUMBER(40) },
                                   { .name = STR("first"), .value = NUMBER(1) } };
    claim_request r = pending(f, 2);
    r.where = STR("status = 'pending' AND id > :first -- :not");
    r.writes.set_sql = set_sql;
    r.writes.set_sql_count = 1;
    r.writes.params = params;
    r.writes.params_count = 2;
    r.by = STR("w1");
    r.fence_column = STR("fence");
    r.attempts_column = STR("attempts");
    claims(f, &r, "2 3");
    expect(f, "priority", "42 40");
    expect(f, "claimed_by", "w1 w1");
    expect(f, "fence", "1 1");
    expect(f, "attempts", "1 1");
    expect(f, "locked_until", "NULL NULL");
    expect_sql(f,
               "SELECT length(claimed_at) AS n FROM jobs WHERE id = 2 AND abs(julianday('now')"
               " - julianday(claimed_at)) < 1",
               "27");
    run(f, "UPDATE jobs SET status = 'pending'");
    r.at_column = CLAIM_NO_COLUMN;
    claims(f, &r, "2 3");
    expect(f, "fence", "2 2");
    expect(f, "attempts", "2 2");
}

/* ---- leases --------------------------------------------------------------------------------- */

static void C38_a_lease_that_has_ended_is_claimed_before_anything_else(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 2);
    r.lease_us = 3600 * SECOND;
    claims(f, &r, "1 2");
    expect_sql(f,
               "SELECT count(*) AS n FROM jobs WHERE locked_until BETWEEN"
               " (unixepoch() + 3590) * 1000000 AND (unixepoch() + 3610) * 1000000",
               "2");
    claims(f, &r, "3 4");
    run(f, "UPDATE jobs SET locked_until = unixepoch() * 1000000 - 1 WHERE id IN (2, 4)");
    r.limit = 3;
    claims(f, &r, "2 4 5");
    r.limit = 100;
    claims(f, &r, "6 7 8 9 10");
    claims(f, &r, "");
}

static void C38_leases_are_kept_as_texts_too(void **state)
{
    fixture *f = *state;
    run(f, "CREATE TABLE texts (id INTEGER PRIMARY KEY, locked_until DATETIME)");
    run(f, "INSERT INTO texts VALUES (1, NULL), (2, '2020-01-01T00:00:00.000000Z'),"
           " (3, '2999-01-01T00:00:00.000000Z')");
    claim_request r = {
        .table = STR("texts"), .limit = 10, .lease_us = 60 * SECOND, .path = f->path
    };
    claims(f, &r, "1 2");
    expect_sql(f, "SELECT length(locked_until) AS n FROM texts WHERE id < 3", "27 27");
    claims(f, &r, "");
}

static void expired_claims_may_have_to_fulfil_more(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    run(f, "UPDATE jobs SET status = 'claimed', locked_until = 1, attempts = id WHERE id <= 4");
    claim_request r = pending(f, 4);
    r.lease_us = SECOND;
    r.expired_where = STR("attempts < 3");
    claims(f, &r, "1 2 5 6");
}

static void a_lease_alone_is_enough_to_hold_a_row(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = {
        .table = STR("jobs"), .limit = 6, .lease_us = 60 * SECOND, .path = f->path
    };
    claims(f, &r, "1 2 3 4 5 6");
    claims(f, &r, "7 8 9 10");
    claims(f, &r, "");
}

/* ---- so many for each value ----------------------------------------------------------------- */

static void never_more_than_so_many_held_for_a_value(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    run(f, "UPDATE jobs SET tenant = CASE WHEN id <= 6 THEN 'a' WHEN id <= 8 THEN 'b' END");
    claim_request r = pending(f, 5);
    r.max_per_column = STR("tenant");
    r.max_per = 2;
    claims(f, &r, "1 2 7 8 9");
    claims(f, &r, "10");
    claims(f, &r, "");
    run(f, "UPDATE jobs SET status = 'done' WHERE id IN (2, 9)");
    claims(f, &r, "3");
}

static void what_has_expired_is_not_held(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 5);
    r.max_per_column = STR("tenant");
    r.max_per = 2;
    r.lease_us = 3600 * SECOND;
    claims(f, &r, "1 2");
    claims(f, &r, "");
    run(f, "UPDATE jobs SET locked_until = 1 WHERE id = 2");
    claims(f, &r, "2");
    claims(f, &r, "");
}

/* ---- transactions --------------------------------------------------------------------------- */

static void C38_inside_a_transaction_only_to_be_held_there(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 2);
    r.hold = true;
    assert_int_equal(try_claim(f, &r), WEIR_EMISUSE);
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    claims(f, &r, "1 2");
    expect(f, "status", "pending pending");
    const table_value keys[] = { NUMBER(1), NUMBER(2) };
    r.exclude = keys;
    r.exclude_count = 2;
    claims(f, &r, "3 4");
    r.hold = false;
    assert_int_equal(try_claim(f, &r), WEIR_EMISUSE);
    assert_non_null(strstr(f->err.message, "a transaction is open"));
    assert_true(weir__table_in_transaction(f->s));
    weir__table_rollback(f->s);
}

static void a_preview_writes_nothing(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 2);
    r.lease_us = SECOND;
    r.by = STR("w1");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir__claim_preview(f->s, &r, &f->r, &f->err), WEIR_OK);
        expect(f, "id", "1 2");
        expect(f, "status", "pending pending");
    }
}

/* ---- names and values ----------------------------------------------------------------------- */

static void C39_names_are_identifiers_and_values_are_values(void **state)
{
    fixture *f = *state;
    run(f,
        "CREATE TABLE \"Odd \"\"Table\"\"\" (\"First Key\" TEXT, \"x'); DROP\" BLOB, \"Order\" INT,"
        " \"to\" TEXT, PRIMARY KEY (\"x'); DROP\", \"First Key\"))");
    run(f, "INSERT INTO \"Odd \"\"Table\"\"\" VALUES ('a', x'00ff', 2, ''), ('b', x'00ff', 1, ''),"
           " ('''', x'', 3, '')");
    const claim_order order[] = { { .column = STR("Order"), .descending = true } };
    const claim_set set[] = { { .column = STR("to"), .value = TEXT("'; DROP TABLE jobs; --") } };
    claim_request r = { .table = STR("\"Odd \"\"Table\"\"\""),
                        .where = STR("\"to\" = ''"),
                        .order = order,
                        .order_count = 1,
                        .writes.set = set,
                        .writes.set_count = 1,
                        .limit = 2,
                        .path = f->path };
    claim(f, &r);
    expect(f, "First Key", "' a");
    expect(f, "to", "'; DROP TABLE jobs; -- '; DROP TABLE jobs; --");
    claim(f, &r);
    expect(f, "First Key", "b");
    expect_sql(f, "SELECT count(*) AS n FROM jobs", "0");
}

static void mistakes_are_told_with_their_flag(void **state)
{
    fixture *f = *state;
    run(f, "CREATE TABLE bad (id INTEGER PRIMARY KEY, status TEXT, r REAL, g TEXT AS (status))");
    claim_request r = pending(f, 1);
    r.table = STR("bad");
    r.lease_us = SECOND;
    refused(f, &r, "--lease-column: no column \"locked_until\" in bad");
    r.lease_column = STR("r");
    refused(f, &r, "--lease-column: column \"r\" of bad is REAL");
    r.lease_us = 0;
    r.by = STR("me");
    refused(f, &r, "--by-column: no column \"claimed_by\" in bad");
    r.by_column = STR("status");
    r.at_column = CLAIM_NO_COLUMN;
    refused(f, &r, "--by-column: column \"status\" is written by --set already");
    r.by_column = CLAIM_NO_COLUMN;
    r.fence_column = STR("status");
    refused(f, &r, "--fence-column: column \"status\" of bad is TEXT, not an integer");
    r.fence_column = (weir_str){ 0 };
    r.where = STR("status = :id");
    refused(f, &r, "--where: there is no --param for :id");
    const claim_param unused = { .name = STR("x"), .value = TEXT("1") };
    r.writes.params = &unused;
    r.writes.params_count = 1;
    r.where = STR("status = ':x'");
    refused(f, &r, "--param: :x is used nowhere");
    r.writes.params_count = 0;
    r.where = STR("status) OR (1");
    refused(f, &r, "--where: a parenthesis is closed");
    r.where = STR("nope = 1 AND status = ''");
    refused(f, &r, "no such column: nope");
    r.where = STR("id > 4 AND statuses = 1");
    refused(f, &r, "--where looks at nothing that the claim writes");
    r.where = (weir_str){ 0 };
    refused(f, &r, "--where looks at nothing that the claim writes");
    const claim_set id = { .column = STR("id"), .value = NUMBER(4) };
    r.writes.set = &id;
    refused(f, &r, "--set: column \"id\" of bad is part of the primary key");
    const claim_set generated = { .column = STR("g"), .value = NUMBER(4) };
    r.writes.set = &generated;
    refused(f, &r, "--set: column \"g\" of bad is generated");
    r.writes.set_count = 0;
    refused(f, &r, "--set: nothing would be written");
    const claim_order order = { .column = STR("nope") };
    r = pending(f, 1);
    r.order = &order;
    r.order_count = 1;
    refused(f, &r, "--order: no column \"nope\" in jobs");
    r = pending(f, 1);
    r.max_per_column = STR("tenant");
    refused(f, &r, "--max-per: 0");
    r.table = STR("job");
    assert_int_equal(try_claim(f, &r), WEIR_ENOTFOUND);
}

static void C39_a_value_with_a_nul_in_it_is_refused(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 1);
    const claim_set set = { .column = STR("status"), .value = TEXT("a\\\0b") };
    r.writes.set = &set;
    r.writes.set_count = 1;
    r.lease_us = SECOND; /* with which the value is compared, too */
    assert_int_equal(try_claim(f, &r), WEIR_EINVAL);
    assert_string_equal(f->err.message, "--set: the value of \"status\" has a NUL byte in it");
    r = pending(f, 1);
    const claim_param name = { .name = STR("t"), .value = TEXT("a\0b") };
    r.where = STR("status = 'pending' AND tenant <> :t");
    r.writes.params = &name;
    r.writes.params_count = 1;
    assert_int_equal(try_claim(f, &r), WEIR_EINVAL);
    assert_string_equal(f->err.message, "--param: the value of \"t\" has a NUL byte in it");
    expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE claimed_by IS NOT NULL", "0");
}

static void a_table_that_has_changed_is_looked_at_again(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 1);
    claims(f, &r, "1");
    run(f, "ALTER TABLE jobs RENAME COLUMN priority TO urgency");
    claims(f, &r, "2");
    expect(f, "urgency", "2");
}

/* ---- as SQL --------------------------------------------------------------------------------- */

static void what_is_shown_does_what_it_says(void **state)
{
    fixture *f = *state;
    weir_buffer sql = { 0 };
    weir_arena arena = { 0 };
    table_info table;
    ten_jobs(f);
    run(f, "UPDATE jobs SET status = 'claimed', locked_until = 1 WHERE id = 9");
    const claim_param name = { .name = STR("t"), .value = TEXT("a'c") };
    run(f, "UPDATE jobs SET tenant = 'a''c' WHERE id > 1");
    claim_request r = pending(f, 2);
    r.where = STR("status = 'pending' AND tenant = :t");
    r.writes.params = &name;
    r.writes.params_count = 1;
    r.by = STR("it's me");
    r.lease_us = 60 * SECOND;
    assert_int_equal(weir__table_describe(f->s, STR("jobs"), &arena, &table, &f->err), WEIR_OK);
    assert_int_equal(weir__claim_sql(&r, &table, TABLE_SQLITE, &sql, &f->err), WEIR_OK);
    assert_true(weir__buffer_add(&sql, "", 1));
    expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE claimed_by IS NOT NULL", "0");
    if (f->path == CLAIM_PATH_FAST) {
        char *message = NULL;
        if (sqlite3_exec(weir__table_native(f->s), sql.ptr, NULL, NULL, &message) != SQLITE_OK) {
            fail_msg("%s\n%s", message, sql.ptr);
        }
        expect_sql(f, "SELECT id FROM jobs WHERE claimed_by = 'it''s me' ORDER BY id", "2 9");
    } else {
        assert_non_null(strstr(sql.ptr, "WHERE \"id\" = :weir_key_1 AND"));
    }
    weir__buffer_free(&sql);
    weir__arena_free(&arena);
}

/* ---- when memory runs out ------------------------------------------------------------------- */

static void C36_running_out_of_memory_claims_nothing(void **state)
{
    fixture *f = *state;
    ten_jobs(f);
    claim_request r = pending(f, 3);
    r.by = STR("w1");
    r.lease_us = 60 * SECOND;
    weir_status status = WEIR_ENOMEM;
    for (uint64_t n = 1; status != WEIR_OK; n++) {
        weir__memory_fail_nth(n);
        status = try_claim(f, &r);
        weir__memory_fail_nth(0);
        assert_false(weir__table_in_transaction(f->s));
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_ENOMEM);
            assert_int_equal(f->r.rows_count, 0);
            expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE status = 'claimed'", "0");
        }
    }
    expect(f, "id", "1 2 3");
    expect_sql(f, "SELECT count(*) AS n FROM jobs WHERE status = 'claimed'", "3");
}

/* ---- on a connection of the caller's own ---------------------------------------------------- */

static void C38_on_the_callers_connection_too(void **state)
{
    fixture *f = *state;
    table_session *own = f->s;
    ten_jobs(f);
    assert_int_equal(
        weir__table_session_adopt(&f->s, TABLE_SQLITE, weir__table_native(own), &f->err), WEIR_OK);
    claim_request r = pending(f, 2);
    claims(f, &r, "1 2");
    assert_false(weir__table_in_transaction(f->s));
    run(f, "BEGIN");
    assert_int_equal(try_claim(f, &r), WEIR_EMISUSE);
    r.hold = true;
    claims(f, &r, "3 4");
    run(f, "ROLLBACK");
    r.hold = false;
    claims(f, &r, "3 4");
    weir__table_session_close(f->s);
    f->s = own;
}

/* ---- others --------------------------------------------------------------------------------- */

static void C37_who_will_not_wait_is_told_at_once(void **state)
{
    (void)state;
    char directory[] = "/tmp/weir-claim-XXXXXX";
    char path[96];
    char url[160];
    char command[128];
    fixture f = { 0 };
    sqlite3 *other = NULL;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a.db", directory);
    snprintf(url, sizeof url, "sqlite:%s?busy=20ms", path);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "PRAGMA journal_mode = WAL", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(weir__table_open(&f.db, &(table_options){ .url = url }, &f.err), WEIR_OK);
    assert_int_equal(weir__table_session_open(f.db, &f.s, &f.err), WEIR_OK);
    setup_jobs(&f);
    ten_jobs(&f);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    claim_request r = pending(&f, 1);
    assert_int_equal(try_claim(&f, &r), WEIR_EHELD);
    r.mode = CLAIM_NOWAIT;
    assert_int_equal(try_claim(&f, &r), WEIR_EHELD);
    r.mode = CLAIM_WAIT;
    r.wait_us = 1000;
    assert_int_equal(try_claim(&f, &r), WEIR_EHELD);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    claims(&f, &r, "1");
    r.mode = CLAIM_NOWAIT;
    claims(&f, &r, "2");
    sqlite3_close(other);
    weir__table_session_close(f.s);
    weir__table_close(f.db);
    weir__table_result_free(&f.r);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    assert_int_equal(system(command), 0);
}

#define BOTH(test)                                                                                 \
    { #test, test, setup_fast, teardown, NULL },                                                   \
    {                                                                                              \
#test "_portable", test, setup_portable, teardown, NULL                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(C36_as_many_as_asked_for_in_order_as_they_are_afterwards),
        BOTH(C36_a_limit_of_nothing_touches_nothing),
        BOTH(C36_several_columns_order_and_the_key_comes_last),
        BOTH(the_order_is_that_of_before_the_claim),
        BOTH(C36_an_error_claims_nothing),
        BOTH(what_is_written_by_a_claim),
        BOTH(C38_a_lease_that_has_ended_is_claimed_before_anything_else),
        BOTH(C38_leases_are_kept_as_texts_too),
        BOTH(expired_claims_may_have_to_fulfil_more),
        BOTH(a_lease_alone_is_enough_to_hold_a_row),
        BOTH(never_more_than_so_many_held_for_a_value),
        BOTH(what_has_expired_is_not_held),
        BOTH(C38_inside_a_transaction_only_to_be_held_there),
        BOTH(a_preview_writes_nothing),
        BOTH(C39_names_are_identifiers_and_values_are_values),
        BOTH(mistakes_are_told_with_their_flag),
        BOTH(C39_a_value_with_a_nul_in_it_is_refused),
        BOTH(a_table_that_has_changed_is_looked_at_again),
        BOTH(what_is_shown_does_what_it_says),
        BOTH(C36_running_out_of_memory_claims_nothing),
        BOTH(C38_on_the_callers_connection_too),
        cmocka_unit_test(C37_who_will_not_wait_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
