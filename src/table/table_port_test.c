/* table_port_test.c - the port to tables on SQLite and in memory. The same on PostgreSQL is in
 * tests/postgres/tables_test.c.
 */
#include "table/table_private.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

typedef struct fixture {
    char directory[64];
    char path[96];
    char url[160];
    table_db *db;
    table_session *s;
    table_result r;
    weir_arena arena;
    weir_error err;
} fixture;

static void database_sql(const fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static table_db *db_open(fixture *f, const char *url)
{
    table_db *db = NULL;
    assert_int_equal(weir__table_open(&db, &(table_options){ .url = url }, &f->err), WEIR_OK);
    return db;
}

static table_session *session_open(fixture *f, table_db *db)
{
    table_session *s = NULL;
    if (weir__table_session_open(db, &s, &f->err) != WEIR_OK) {
        fail_msg("no session: %s", f->err.message);
    }
    return s;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->directory, "/tmp/weir-table-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/a.db", f->directory);
    snprintf(f->url, sizeof f->url, "sqlite:%s?busy=100ms", f->path);
    database_sql(f,
                 "PRAGMA journal_mode=WAL; CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT)");
    f->db = db_open(f, f->url);
    f->s = session_open(f, f->db);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    weir__table_session_close(f->s);
    weir__table_close(f->db);
    weir__table_result_free(&f->r);
    weir__arena_free(&f->arena);
    snprintf(command, sizeof command, "rm -rf %s", f->directory);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

/* Another database in the place of the file. */
static void use(fixture *f, const char *url)
{
    weir__table_session_close(f->s);
    weir__table_close(f->db);
    f->db = db_open(f, url);
    f->s = session_open(f, f->db);
}

static weir_status try_values(fixture *f, const char *sql, const table_value *values, size_t count)
{
    return weir__table_run(
        f->s, &(table_statement){ .sql = sql, .values = values, .values_count = count }, &f->r,
        &f->err);
}

static weir_status try_sql(fixture *f, const char *sql)
{
    return try_values(f, sql, NULL, 0);
}

static void run(fixture *f, const char *sql)
{
    if (try_sql(f, sql) != WEIR_OK) {
        fail_msg("%s: %s", sql, f->err.message);
    }
}

static void expect_rows(fixture *f, const char *json)
{
    weir_buffer out = { 0 };
    for (size_t i = 0; i < f->r.rows_count; i++) {
        assert_true(weir__table_row_json(&f->r, i, SIZE_MAX, &out));
    }
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, json);
    weir__buffer_free(&out);
}

static weir_status describe(fixture *f, const char *name, table_info *t)
{
    return weir__table_describe(f->s, weir__str(name), &f->arena, t, &f->err);
}

static void described(fixture *f, const char *name, table_info *t)
{
    if (describe(f, name, t) != WEIR_OK) {
        fail_msg("%s: %s", name, f->err.message);
    }
}

static void expect_str(weir_str text, const char *expected)
{
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.ptr, expected, text.len);
}

static void expect_message(const fixture *f, const char *part)
{
    if (strstr(f->err.message, part) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", f->err.message, part);
    }
}

/* ---- statements ------------------------------------------------------------------------------ */

static void values_come_back_in_their_shapes(void **state)
{
    fixture *f = *state;
    run(f, "SELECT 1 AS i, -9223372036854775808 AS least, 0.1 AS r, 3.0 AS whole, 1e300 AS large,"
           " 'it''s' AS t, x'00ff' AS b, NULL AS n, x'' AS empty, 9e999 AS inf");
    expect_rows(f, "{\"i\":1,\"least\":-9223372036854775808,\"r\":0.1,\"whole\":3.0,"
                   "\"large\":1e+300,\"t\":\"it's\",\"b\":\"AP8=\",\"n\":null,\"empty\":\"\","
                   "\"inf\":\"Infinity\"}");
}

static void reals_have_as_many_digits_as_they_need(void **state)
{
    fixture *f = *state;
    run(f, "SELECT 0.1 + 0.2 AS a, 123456789.125 AS b, -2.5e-8 AS c");
    expect_rows(f, "{\"a\":0.30000000000000004,\"b\":123456789.125,\"c\":-2.5e-08}");
}

static void json_columns_are_json_when_it_is_valid(void **state)
{
    fixture *f = *state;
    run(f, "CREATE TABLE j (id INTEGER PRIMARY KEY, a JSON, b TEXT)");
    run(f, "INSERT INTO j VALUES (1, '{\"x\": 1}', '{\"x\": 1}'), (2, '{', '{')");
    run(f, "SELECT * FROM j ORDER BY id");
    expect_rows(f, "{\"id\":1,\"a\":{\"x\":1},\"b\":\"{\\\"x\\\": 1}\"}"
                   "{\"id\":2,\"a\":\"{\",\"b\":\"{\"}");
    run(f, "UPDATE j SET b = 'c' WHERE id = 1 RETURNING id, a, b");
    expect_rows(f, "{\"id\":1,\"a\":{\"x\":1},\"b\":\"c\"}");
}

static void C39_values_are_parameters(void **state)
{
    fixture *f = *state;
    const table_value values[] = {
        { .kind = TABLE_TEXT, .text = weir__str("'; DROP TABLE jobs; --\"\xc3\xa9") },
        { .kind = TABLE_INTEGER, .number = INT64_MIN },
        { .kind = TABLE_BYTES, .text = { .ptr = "\0x", .len = 2 } },
        { .kind = TABLE_NULL },
        { .kind = TABLE_TEXT },
    };
    assert_int_equal(
        try_values(f, "SELECT $5 AS e, $1 AS t, $2 AS i, $3 AS b, $4 AS n, $1 AS again", values, 5),
        WEIR_OK);
    expect_rows(f, "{\"e\":\"\",\"t\":\"'; DROP TABLE jobs; --\\\"\xc3\xa9\","
                   "\"i\":-9223372036854775808,\"b\":\"AHg=\",\"n\":null,"
                   "\"again\":\"'; DROP TABLE jobs; --\\\"\xc3\xa9\"}");
    /* A statement that is kept must not keep its values. */
    assert_int_equal(try_values(f, "SELECT $1 AS a, $2 AS b", values, 2), WEIR_OK);
    assert_int_equal(try_values(f, "SELECT $1 AS a, $2 AS b", values + 3, 2), WEIR_OK);
    expect_rows(f, "{\"a\":null,\"b\":\"\"}");
}

static void a_parameter_without_a_value_is_refused(void **state)
{
    fixture *f = *state;
    const table_value one = { .kind = TABLE_INTEGER, .number = 1 };
    static const char *const refused[] = { "SELECT $1, $2",  "SELECT $1, $0", "SELECT $name",
                                           "SELECT $1, ?",   "SELECT ?1",     "SELECT @a",
                                           "SELECT $1 || #1" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(try_values(f, refused[i], &one, 1), WEIR_EINVAL);
        assert_int_equal(try_values(f, refused[i], NULL, 0), WEIR_EINVAL);
    }
    /* What was prepared with more values is not run with fewer. */
    assert_int_equal(try_values(f, "SELECT $1 AS kept", &one, 1), WEIR_OK);
    assert_int_equal(try_values(f, "SELECT $1 AS kept", NULL, 0), WEIR_EINVAL);
    assert_int_equal(try_values(f, "SELECT :name", &one, 1), WEIR_EINVAL);
    assert_int_equal(try_values(f, "SELECT 1", &one, 1), WEIR_OK);
}

static void what_is_in_quotes_is_no_parameter(void **state)
{
    fixture *f = *state;
    const table_value one = { .kind = TABLE_INTEGER, .number = 1 };
    assert_int_equal(try_values(f,
                                "SELECT '$2 :a ''?' AS \"$3\"\"?\", $1 AS [@x$9], 5 AS `#$1`"
                                " /* $4 ' */ -- :b '\n, $1 + 1 AS two",
                                &one, 1),
                     WEIR_OK);
    expect_rows(f, "{\"$3\\\"?\":\"$2 :a '?\",\"@x$9\":1,\"#$1\":5,\"two\":2}");
    assert_int_equal(try_values(f, "SELECT $1 AS a$1", &one, 1), WEIR_OK);
    expect_rows(f, "{\"a$1\":1}");
    assert_int_equal(try_sql(f, "SELECT 'open $1"), WEIR_EIO);
    assert_int_equal(try_sql(f, "SELECT 1 /* open $1"), WEIR_OK);
}

static void as_many_values_as_sqlite_takes(void **state)
{
    enum { COUNT = 30000 };
    fixture *f = *state;
    weir_buffer sql = { 0 };
    table_value *values = calloc(COUNT, sizeof *values);
    assert_non_null(values);
    assert_true(
        weir__buffer_add_text(&sql, "SELECT max(column1) AS m, count(*) AS n FROM (VALUES (0)"));
    for (int i = 0; i < COUNT; i++) {
        char text[24];
        snprintf(text, sizeof text, ",($%d)", i + 1);
        assert_true(weir__buffer_add_text(&sql, text));
        values[i] = (table_value){ .kind = TABLE_INTEGER, .number = i + 1 };
    }
    assert_true(weir__buffer_add(&sql, ")", 2));
    assert_int_equal(try_values(f, sql.ptr, values, COUNT), WEIR_OK);
    expect_rows(f, "{\"m\":30000,\"n\":30001}");
    weir__buffer_free(&sql);
    free(values);
}

static void nul_is_refused(void **state)
{
    fixture *f = *state;
    const table_value text = { .kind = TABLE_TEXT, .text = { .ptr = "a\0b", .len = 3 } };
    table_info t;
    assert_int_equal(try_values(f, "SELECT $1", &text, 1), WEIR_EINVAL);
    assert_int_equal(weir__table_describe(f->s, text.text, &f->arena, &t, &f->err), WEIR_EINVAL);
}

static void one_statement_and_no_more(void **state)
{
    fixture *f = *state;
    assert_int_equal(try_sql(f, "SELECT 1; DELETE FROM jobs"), WEIR_EINVAL);
    assert_int_equal(try_sql(f, "SELECT 1; nonsense"), WEIR_EINVAL);
    assert_int_equal(try_sql(f, ""), WEIR_EINVAL);
    assert_int_equal(try_sql(f, "SELECT 1; -- and that is all\n ;"), WEIR_OK);
}

static void rows_that_were_written_are_counted(void **state)
{
    fixture *f = *state;
    run(f, "INSERT INTO jobs VALUES (1, 'a'), (2, 'a'), (3, 'b')");
    assert_int_equal(f->r.changed, 3);
    run(f, "UPDATE jobs SET state = 'c' WHERE state = 'a' RETURNING id");
    assert_int_equal(f->r.changed, 2);
    assert_int_equal(f->r.rows_count, 2);
    run(f, "UPDATE jobs SET state = 'c' WHERE state = 'nowhere'");
    assert_int_equal(f->r.changed, 0);
    run(f, "SELECT * FROM jobs");
    assert_int_equal(f->r.changed, 0);
    assert_int_equal(f->r.rows_count, 3);
}

static void many_rows_and_no_rows(void **state)
{
    fixture *f = *state;
    run(f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
           "INSERT INTO jobs SELECT i, 'x' || i FROM n");
    run(f, "SELECT * FROM jobs ORDER BY id");
    assert_int_equal(f->r.rows_count, 1000);
    for (size_t i = 0; i < 1000; i++) {
        char text[16];
        snprintf(text, sizeof text, "x%zu", i + 1);
        expect_str(f->r.cells[i * 2 + 1].text, text);
    }
    run(f, "SELECT * FROM jobs WHERE id < 0");
    assert_int_equal(f->r.rows_count, 0);
    assert_int_equal(f->r.columns_count, 2);
    expect_str(f->r.names[1], "state");
}

static void more_statements_than_are_kept(void **state)
{
    fixture *f = *state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            char sql[32];
            char json[32];
            snprintf(sql, sizeof sql, "SELECT %d AS n", i);
            snprintf(json, sizeof json, "{\"n\":%d}", i);
            run(f, sql);
            expect_rows(f, json);
        }
    }
}

/* The statement that is kept of a text; NULL: none. *all: how many are. */
static sqlite3_stmt *kept(fixture *f, const char *sql, int *all)
{
    sqlite3_stmt *found = NULL;
    *all = 0;
    for (sqlite3_stmt *at = NULL; (at = sqlite3_next_stmt(weir__table_native(f->s), at)) != NULL;) {
        (*all)++;
        found = strcmp(sqlite3_sql(at), sql) == 0 ? at : found;
    }
    return found;
}

static void what_is_used_often_stays_prepared(void **state)
{
    enum { TIMES = 40 };
    fixture *f = *state;
    static const char often[] = "SELECT count(*) AS n FROM jobs";
    int all = 0;
    run(f, often);
    kept(f, often, &all);
    for (int i = 1; i < TIMES; i++) {
        char sql[40000];
        snprintf(sql, sizeof sql, "SELECT %d AS n %*s", i, i % 10 == 0 ? 39000 : 1, "");
        run(f, sql);
        run(f, often);
        expect_rows(f, "{\"n\":0}");
    }
    sqlite3_stmt *stmt = kept(f, often, &all);
    assert_non_null(stmt);
    assert_int_equal(sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0), TIMES);
    assert_true(all > 8 && all <= 16);
}

static void a_statement_that_is_kept_has_the_columns_of_now(void **state)
{
    fixture *f = *state;
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "{\"id\":1,\"state\":\"a\"}");
    database_sql(f, "ALTER TABLE jobs ADD COLUMN note JSON DEFAULT '[1]'");
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "{\"id\":1,\"state\":\"a\",\"note\":[1]}");
    database_sql(f, "ALTER TABLE jobs DROP COLUMN state");
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "{\"id\":1,\"note\":[1]}");
}

static void a_refusal_says_why(void **state)
{
    fixture *f = *state;
    assert_int_equal(try_sql(f, "SELECT missing FROM jobs"), WEIR_EIO);
    expect_message(f, "no such column");
    assert_int_equal(f->r.rows_count, 0);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    assert_int_equal(try_sql(f, "INSERT INTO jobs VALUES (1, 'a')"), WEIR_EIO);
    assert_string_equal(f->err.store_code, "1555"); /* SQLITE_CONSTRAINT_PRIMARYKEY */
}

static void without_memory_nothing_is_half_done(void **state)
{
    fixture *f = *state;
    bool done = false;
    for (uint64_t nth = 1; !done; nth++) {
        assert_true(nth < 1000);
        run(f, "DELETE FROM jobs");
        weir__table_result_free(&f->r); /* the arena has no block to start with */
        weir__memory_fail_nth(nth);
        const weir_status status =
            try_sql(f, "INSERT INTO jobs VALUES (1, 'a'), (2, 'b') RETURNING id, state");
        const bool hit = weir__memory_failed();
        weir__memory_fail_nth(0);
        done = !hit;
        assert_int_equal(status, hit ? WEIR_ENOMEM : WEIR_OK);
        run(f, "SELECT count(*) AS n FROM jobs");
        expect_rows(f, hit ? "{\"n\":0}" : "{\"n\":2}");
    }
}

/* ---- transactions ---------------------------------------------------------------------------- */

static void a_transaction_is_all_or_nothing(void **state)
{
    fixture *f = *state;
    assert_false(weir__table_in_transaction(f->s));
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    assert_true(weir__table_in_transaction(f->s));
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_EMISUSE);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    weir__table_rollback(f->s);
    weir__table_rollback(f->s);
    assert_int_equal(weir__table_commit(f->s, &f->err), WEIR_EMISUSE);
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "");
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    run(f, "INSERT INTO jobs VALUES (2, 'b')");
    assert_int_equal(weir__table_commit(f->s, &f->err), WEIR_OK);
    assert_false(weir__table_in_transaction(f->s));
    use(f, f->url);
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "{\"id\":2,\"state\":\"b\"}");
}

static void closing_a_session_rolls_back(void **state)
{
    fixture *f = *state;
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    use(f, f->url);
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "");
}

static void who_waits_for_a_writer_is_told_in_time(void **state)
{
    fixture *f = *state;
    table_session *other = session_open(f, f->db);
    const table_statement write = { .sql = "UPDATE jobs SET state = 'x'", .wait_us = 0 };
    assert_int_equal(weir__table_begin(other, &f->err), WEIR_OK);
    assert_int_equal(weir__table_run(f->s, &write, NULL, &f->err), WEIR_EHELD);
    assert_string_equal(f->err.store_code, "5");
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_EHELD);
    assert_false(weir__table_in_transaction(f->s));
    /* Reading goes on: the database has a WAL. */
    run(f, "SELECT * FROM jobs");
    weir__table_rollback(other);
    assert_int_equal(weir__table_run(f->s, &write, NULL, &f->err), WEIR_OK);
    weir__table_session_close(other);
}

static void a_commit_that_readers_keep_out_is_undone(void **state)
{
    fixture *f = *state;
    sqlite3 *reader = NULL;
    weir__table_session_close(f->s);
    database_sql(f, "PRAGMA journal_mode=DELETE");
    f->s = session_open(f, f->db);
    assert_int_equal(sqlite3_open(f->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT * FROM jobs", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    assert_int_equal(weir__table_commit(f->s, &f->err), WEIR_EHELD);
    assert_false(weir__table_in_transaction(f->s));
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    run(f, "SELECT * FROM jobs");
    expect_rows(f, "");
}

static void C38_commits_are_synced_whatever_the_url_says(void **state)
{
    fixture *f = *state;
    char url[200];
    snprintf(url, sizeof url, "%s&sync=normal", f->url);
    use(f, url);
    run(f, "PRAGMA synchronous");
    expect_rows(f, "{\"synchronous\":3}");
}

static void the_wal_does_not_grow_for_ever(void **state)
{
    fixture *f = *state;
    char url[200];
    snprintf(url, sizeof url, "%s&checkpoint=10", f->url);
    use(f, url);
    for (int i = 0; i < 40; i++) {
        run(f, "INSERT INTO jobs (state) VALUES (hex(randomblob(5000)))");
    }
    run(f, "PRAGMA wal_checkpoint(PASSIVE)");
    /* Without checkpoints there would be some 120 pages in it. */
    int64_t pages = 0;
    assert_true(weir__str_to_i64(f->r.cells[1].text, &pages));
    assert_in_range(pages, 1, 40);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void a_file_that_is_not_there_is_not_made(void **state)
{
    fixture *f = *state;
    char url[200];
    table_session *s = NULL;
    snprintf(url, sizeof url, "sqlite:%s/missing.db", f->directory);
    table_db *db = db_open(f, url);
    assert_int_equal(weir__table_session_open(db, &s, &f->err), WEIR_ENOTFOUND);
    expect_message(f, "missing.db");
    assert_int_equal(access(url + strlen("sqlite:"), F_OK), -1);
    weir__table_close(db);
}

static void nothing_is_left_beside_the_file(void **state)
{
    fixture *f = *state;
    char path[128];
    snprintf(path, sizeof path, "%s-weir", f->path);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    assert_int_equal(access(path, F_OK), -1);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    fixture *f = *state;
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s/text", f->directory);
    FILE *file = fopen(url + strlen("sqlite:"), "w");
    assert_non_null(file);
    for (int i = 0; i < 100; i++) {
        fprintf(file, "this is a text and no database\n");
    }
    fclose(file);
    table_db *db = db_open(f, url);
    table_session *s = NULL;
    weir_status status = weir__table_session_open(db, &s, &f->err);
    if (status == WEIR_OK) {
        table_info t;
        status = weir__table_describe(s, weir__str("jobs"), &f->arena, &t, &f->err);
    }
    assert_int_equal(status, WEIR_ECORRUPT);
    weir__table_session_close(s);
    weir__table_close(db);
}

static void urls_are_checked_when_a_database_is_opened(void **state)
{
    fixture *f = *state;
    table_db *db = NULL;
    assert_int_equal(weir__table_open(&db, &(table_options){ .url = "mysql:x" }, &f->err),
                     WEIR_EINVAL);
    assert_int_equal(weir__table_open(&db, &(table_options){ .url = "sqlite:" }, &f->err),
                     WEIR_EINVAL);
    assert_null(db);
}

static void memory_has_one_connection(void **state)
{
    fixture *f = *state;
    table_session *second = NULL;
    use(f, "memory:");
    f->db->url.options.busy_us = 50 * 1000;
    assert_int_equal(weir__table_dialect(f->db), TABLE_SQLITE);
    run(f, "CREATE TABLE m (id INTEGER PRIMARY KEY)");
    run(f, "INSERT INTO m VALUES (7)");
    assert_int_equal(weir__table_session_open(f->db, &second, &f->err), WEIR_EBUSY);
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    run(f, "INSERT INTO m VALUES (8)");
    weir__table_session_close(f->s);
    f->s = session_open(f, f->db); /* the same database, what was begun is undone */
    run(f, "SELECT * FROM m");
    expect_rows(f, "{\"id\":7}");
}

static void a_connection_of_the_callers_is_left_as_it_is(void **state)
{
    fixture *f = *state;
    sqlite3 *db = NULL;
    table_session *s = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(weir__table_session_adopt(&s, TABLE_SQLITE, db, &f->err), WEIR_OK);
    assert_ptr_equal(weir__table_native(s), db);
    assert_false(weir__table_in_transaction(s));
    assert_int_equal(sqlite3_exec(db, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
    assert_true(weir__table_in_transaction(s));
    assert_int_equal(weir__table_begin(s, &f->err), WEIR_EMISUSE);
    assert_int_equal(weir__table_commit(s, &f->err), WEIR_EMISUSE);
    assert_int_equal(
        weir__table_run(s, &(table_statement){ .sql = "INSERT INTO jobs VALUES (1, 'a')" }, &f->r,
                        &f->err),
        WEIR_OK);
    weir__table_rollback(s);
    weir__table_session_close(s);
    assert_int_equal(sqlite3_get_autocommit(db), 0);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    run(f, "SELECT id FROM jobs");
    expect_rows(f, "{\"id\":1}");
    assert_int_equal(weir__table_session_adopt(&s, TABLE_SQLITE, NULL, &f->err), WEIR_EMISUSE);
}

static void another_that_wrote_in_between_is_a_conflict(void **state)
{
    fixture *f = *state;
    sqlite3 *db = NULL;
    table_session *s = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(weir__table_session_adopt(&s, TABLE_SQLITE, db, &f->err), WEIR_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM jobs", NULL, NULL, NULL), SQLITE_OK);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    assert_int_equal(
        weir__table_run(s, &(table_statement){ .sql = "DELETE FROM jobs" }, NULL, &f->err),
        WEIR_ECONFLICT);
    weir__table_session_close(s);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void a_table_is_described(void **state)
{
    fixture *f = *state;
    table_info t;
    run(f, "CREATE TABLE \"Mixed Case\" (b TEXT NOT NULL, \"a\"\"x\" VARCHAR(10), n,"
           " g INT GENERATED ALWAYS AS (1) STORED, PRIMARY KEY (\"a\"\"x\", b))");
    described(f, "Mixed Case", &t);
    expect_str(t.shown, "Mixed Case");
    expect_str(t.quoted, "\"main\".\"Mixed Case\"");
    assert_false(t.partitioned);
    assert_int_equal(t.columns_count, 4);
    expect_str(t.columns[1].name, "a\"x");
    expect_str(t.columns[1].quoted, "\"a\"\"x\"");
    expect_str(t.columns[1].type, "VARCHAR(10)");
    expect_str(t.columns[2].type, "");
    assert_true(t.columns[0].not_null);
    assert_false(t.columns[2].not_null);
    assert_true(t.columns[3].generated);
    assert_false(t.columns[0].generated);
    assert_int_equal(t.key_count, 2);
    assert_int_equal(t.key[0], 1);
    assert_int_equal(t.key[1], 0);
    assert_int_equal(t.columns[0].key, 2);
    assert_ptr_equal(weir__table_column(&t, weir__str("n")), &t.columns[2]);
    assert_null(weir__table_column(&t, weir__str("N")));
    assert_null(weir__table_column(&t, weir__str("nn")));
}

static int count_catalogue(unsigned event, void *ctx, void *stmt, void *sql)
{
    (void)event;
    (void)stmt;
    *(int *)ctx += strstr(sql, "pragma_table_") != NULL;
    return 0;
}

static const table_info *known(fixture *f)
{
    const table_info *t = NULL;
    if (weir__table_described(f->s, weir__str("jobs"), &t, &f->err) != WEIR_OK) {
        fail_msg("%s", f->err.message);
    }
    return t;
}

static void a_table_is_looked_at_again_when_it_has_changed(void **state)
{
    fixture *f = *state;
    int looks = 0;
    assert_int_equal(
        sqlite3_trace_v2(weir__table_native(f->s), SQLITE_TRACE_STMT, count_catalogue, &looks),
        SQLITE_OK);
    assert_int_equal(known(f)->columns_count, 2);
    const int once = looks;
    assert_true(once > 0);
    run(f, "INSERT INTO jobs VALUES (1, 'a')");
    assert_int_equal(known(f)->columns_count, 2);
    assert_int_equal(looks, once);
    database_sql(f, "ALTER TABLE jobs ADD COLUMN note TEXT");
    assert_int_equal(known(f)->columns_count, 3);
    assert_int_equal(looks, 2 * once);
    /* What a transaction has seen of its own is gone with it, and its number is given again. */
    assert_int_equal(weir__table_begin(f->s, &f->err), WEIR_OK);
    run(f, "ALTER TABLE jobs ADD COLUMN mine TEXT");
    assert_non_null(weir__table_column(known(f), weir__str("mine")));
    weir__table_rollback(f->s);
    database_sql(f, "ALTER TABLE jobs ADD COLUMN theirs TEXT");
    assert_null(weir__table_column(known(f), weir__str("mine")));
    assert_non_null(weir__table_column(known(f), weir__str("theirs")));
}

static void a_table_is_the_same_to_every_session(void **state)
{
    fixture *f = *state;
    table_info a, b, c;
    run(f, "CREATE TABLE other (id INTEGER PRIMARY KEY)");
    described(f, "jobs", &a);
    described(f, "other", &c);
    use(f, f->url);
    described(f, "main.JOBS", &b);
    expect_str(b.quoted, "\"main\".\"jobs\"");
    assert_true(a.id == b.id);
    assert_true(a.id != c.id);
}

static void C39_hostile_names_are_names(void **state)
{
    fixture *f = *state;
    static const char *const bad[] = { "",       ".",      "a.",   ".a",   "a.b.c",  "\"a",
                                       "a\"b\"", "\"a\"b", "\"\"", "a..b", "\"\".a", "\xff" };
    table_info t;
    run(f, "CREATE TABLE \"odd.na\"\"me\" (id INTEGER PRIMARY KEY)");
    run(f, "CREATE TEMP TABLE scratch (id INTEGER PRIMARY KEY)");
    described(f, "\"odd.na\"\"me\"", &t);
    expect_str(t.quoted, "\"main\".\"odd.na\"\"me\"");
    described(f, "main.\"odd.na\"\"me\"", &t);
    described(f, "\"main\".jobs", &t);
    described(f, "scratch", &t);
    expect_str(t.shown, "temp.scratch");
    assert_int_equal(describe(f, "main.scratch", &t), WEIR_ENOTFOUND);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(describe(f, bad[i], &t), WEIR_EINVAL);
    }
    assert_int_equal(describe(f, "jobs; DROP TABLE jobs", &t), WEIR_ENOTFOUND);
    described(f, "jobs", &t);
}

static void a_table_that_is_missing_has_neighbours(void **state)
{
    fixture *f = *state;
    table_info t;
    run(f, "CREATE TABLE pending_jobs (id INTEGER PRIMARY KEY)");
    run(f, "CREATE TABLE customers (id INTEGER PRIMARY KEY)");
    assert_int_equal(describe(f, "jbos", &t), WEIR_ENOTFOUND);
    expect_message(f, "there is no table \"jbos\"; near it: \"jobs\"");
    assert_int_equal(describe(f, "JOB", &t), WEIR_ENOTFOUND);
    expect_message(f, "\"jobs\"");
    assert_null(strstr(f->err.message, "customers"));
    assert_int_equal(describe(f, "zzz", &t), WEIR_ENOTFOUND);
    assert_null(strstr(f->err.message, "near"));
}

static void what_is_no_table_is_refused_by_name(void **state)
{
    fixture *f = *state;
    table_info t;
    run(f, "CREATE VIEW v AS SELECT * FROM jobs");
    run(f, "CREATE TABLE keyless (a TEXT)");
    assert_int_equal(describe(f, "v", &t), WEIR_EINVAL);
    expect_message(f, "is a view");
    assert_int_equal(describe(f, "keyless", &t), WEIR_EINVAL);
    expect_message(f, "no primary key");
    if (try_sql(f, "CREATE VIRTUAL TABLE ft USING fts5(a)") == WEIR_OK) {
        assert_int_equal(describe(f, "ft", &t), WEIR_EINVAL);
        expect_message(f, "virtual table");
    }
}

/* ---- literals -------------------------------------------------------------------------------- */

static void literal(table_dialect dialect, table_value value, const char *type, const char *text)
{
    weir_buffer out = { 0 };
    assert_true(weir__table_literal(&out, dialect, &value, weir__str(type)));
    assert_true(weir__buffer_add(&out, "", 1));
    assert_string_equal(out.ptr, text);
    weir__buffer_free(&out);
}

static void literals_are_written_as_the_dialect_does(void **state)
{
    const table_value quote = { .kind = TABLE_TEXT, .text = weir__str("it's") };
    const table_value slash = { .kind = TABLE_TEXT, .text = weir__str("a\\'") };
    const table_value bytes = { .kind = TABLE_BYTES, .text = { .ptr = "\0\xfe", .len = 2 } };
    (void)state;
    for (table_dialect d = 0; d < TABLE_DIALECTS_COUNT; d++) {
        literal(d, (table_value){ .kind = TABLE_NULL }, "", "NULL");
        literal(d, (table_value){ .kind = TABLE_NULL }, "text", "CAST(NULL AS text)");
        literal(d, (table_value){ .kind = TABLE_INTEGER, .number = 12 }, "", "12");
        literal(d, (table_value){ .kind = TABLE_INTEGER, .number = -12 }, "", "(-12)");
        literal(d, quote, "", "'it''s'");
        literal(d, quote, "status", "CAST('it''s' AS status)");
        literal(d, (table_value){ .kind = TABLE_TEXT }, "", "''");
    }
    literal(TABLE_POSTGRES, slash, "", "E'a\\\\'''");
    literal(TABLE_SQLITE, slash, "", "'a\\'''");
    literal(TABLE_POSTGRES, bytes, "", "CAST(E'\\\\x00fe' AS bytea)");
    literal(TABLE_SQLITE, bytes, "", "X'00fe'");
}

static void a_cell_is_equal_to_itself_as_a_value(void **state)
{
    fixture *f = *state;
    run(f, "SELECT 5 AS i, 'a' AS t, x'00' AS b, NULL AS n, '5' AS five");
    table_value values[5];
    for (size_t i = 0; i < 5; i++) {
        values[i] = weir__table_cell_value(&f->r.cells[i]);
    }
    table_result r = { 0 };
    const table_statement again = {
        .sql = "SELECT $1 IS 5 AS i, $2 IS 'a' AS t, $3 IS x'00' AS b, $4 IS NULL AS n,"
               " $5 IS '5' AS five",
        .values = values,
        .values_count = 5,
    };
    assert_int_equal(weir__table_run(f->s, &again, &r, &f->err), WEIR_OK);
    table_result kept = f->r;
    f->r = r;
    expect_rows(f, "{\"i\":1,\"t\":1,\"b\":1,\"n\":1,\"five\":1}");
    weir__table_result_free(&kept);
}

/* What it has from its parent is closed, with the statements that are kept there; a session of its
 * own works. */
static void C12_a_forked_child_opens_a_session_of_its_own(void **state)
{
    fixture *f = *state;
    int status = 0;
    run(f, "INSERT INTO jobs (state) VALUES ('parent')");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        table_db *db = NULL;
        table_session *s = NULL;
        const table_statement insert = { .sql = "INSERT INTO jobs (state) VALUES ('child')" };
        const bool done =
            weir__table_open(&db, &(table_options){ .url = f->url }, &f->err) == WEIR_OK &&
            weir__table_session_open(db, &s, &f->err) == WEIR_OK &&
            weir__table_run(s, &insert, NULL, &f->err) == WEIR_OK &&
            weir__table_run(f->s, &insert, NULL, &f->err) == WEIR_EMISUSE;
        _exit(done ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run(f, "SELECT state FROM jobs ORDER BY id");
    expect_rows(f, "{\"state\":\"parent\"}{\"state\":\"child\"}");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
#define TABLE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    static const struct CMUnitTest tests[] = {
        TABLE_TEST(values_come_back_in_their_shapes),
        TABLE_TEST(reals_have_as_many_digits_as_they_need),
        TABLE_TEST(json_columns_are_json_when_it_is_valid),
        TABLE_TEST(C39_values_are_parameters),
        TABLE_TEST(a_parameter_without_a_value_is_refused),
        TABLE_TEST(what_is_in_quotes_is_no_parameter),
        TABLE_TEST(as_many_values_as_sqlite_takes),
        TABLE_TEST(nul_is_refused),
        TABLE_TEST(one_statement_and_no_more),
        TABLE_TEST(rows_that_were_written_are_counted),
        TABLE_TEST(many_rows_and_no_rows),
        TABLE_TEST(more_statements_than_are_kept),
        TABLE_TEST(what_is_used_often_stays_prepared),
        TABLE_TEST(a_statement_that_is_kept_has_the_columns_of_now),
        TABLE_TEST(a_table_is_looked_at_again_when_it_has_changed),
        TABLE_TEST(a_refusal_says_why),
        TABLE_TEST(without_memory_nothing_is_half_done),
        TABLE_TEST(a_transaction_is_all_or_nothing),
        TABLE_TEST(closing_a_session_rolls_back),
        TABLE_TEST(who_waits_for_a_writer_is_told_in_time),
        TABLE_TEST(a_commit_that_readers_keep_out_is_undone),
        TABLE_TEST(C38_commits_are_synced_whatever_the_url_says),
        TABLE_TEST(the_wal_does_not_grow_for_ever),
        TABLE_TEST(a_file_that_is_not_there_is_not_made),
        TABLE_TEST(nothing_is_left_beside_the_file),
        TABLE_TEST(a_file_that_is_no_database_is_refused),
        TABLE_TEST(urls_are_checked_when_a_database_is_opened),
        TABLE_TEST(memory_has_one_connection),
        TABLE_TEST(a_connection_of_the_callers_is_left_as_it_is),
        TABLE_TEST(another_that_wrote_in_between_is_a_conflict),
        TABLE_TEST(C12_a_forked_child_opens_a_session_of_its_own),
        TABLE_TEST(a_table_is_described),
        TABLE_TEST(a_table_is_the_same_to_every_session),
        TABLE_TEST(C39_hostile_names_are_names),
        TABLE_TEST(a_table_that_is_missing_has_neighbours),
        TABLE_TEST(what_is_no_table_is_refused_by_name),
        TABLE_TEST(literals_are_written_as_the_dialect_does),
        TABLE_TEST(a_cell_is_equal_to_itself_as_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
