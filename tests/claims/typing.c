/* typing.c - columns and keys of every type: a claim writes them, shows them with all their digits,
 * finds the same row again by its key, or is refused.
 */
#include "kit.h"

#include <stdlib.h>

#define DIGITS "1234567890123456789012345678901234567890.50"

static claim_set set_of(const char *column, const char *value)
{
    return (claim_set){ .column = weir__str(column),
                        .value = { .kind = value == NULL ? TABLE_NULL : TABLE_TEXT,
                                   .text = value == NULL ? (weir_str){ 0 } : weir__str(value) } };
}

/* ---- what is written ------------------------------------------------------------------------- */

static void C36_every_type_is_written_and_shown(void **state)
{
    kit *k = *state;
    kit_exec(k, "DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'it''s glad'); "
                "CREATE TABLE jobs (id bigint PRIMARY KEY, status text, n numeric, "
                "at timestamptz, bare timestamp, b bytea, u uuid, j json, jb jsonb, a integer[], "
                "words text[], m mood, d date, yes boolean, f float8, span interval, empty text "
                "DEFAULT 'x', padded char(4), small varchar(3)); "
                "INSERT INTO jobs VALUES (9223372036854775807, 'pending')");
    const claim_set set[] = {
        set_of("status", "claimed"),
        set_of("n", DIGITS),
        set_of("at", "2026-11-15 12:00:00.123456+02"),
        set_of("bare", "2026-11-15 10:00:00.5"),
        { .column = weir__str("b"),
          .value = { .kind = TABLE_BYTES, .text = { .ptr = "\0\xff'\\", .len = 4 } } },
        set_of("u", "6f1b2c3d-0000-4000-8000-000000000001"),
        set_of("j", "{\"b\": 1.50, \"a\": null}"),
        set_of("jb", "{\"b\": 1.50, \"a\": null}"),
        set_of("a", "{3,NULL,1}"),
        set_of("words", "{\"a,b\",\"it's\"}"),
        set_of("m", "it's glad"),
        set_of("d", "2026-11-15"),
        set_of("yes", "t"),
        set_of("f", "0.1"),
        set_of("span", "1 day 02:03:04"),
        set_of("empty", NULL),
        set_of("padded", "ab"),
        set_of("small", "abc"),
    };
    claim_request r = kit_request(k, 1);
    r.writes.set = set;
    r.writes.set_count = sizeof set / sizeof set[0];
    KIT_OK(k->one, kit_try(k, &r));
    assert_string_equal(
        claimer_json(k->one),
        "{\"id\":9223372036854775807,\"status\":\"claimed\",\"n\":" DIGITS
        ",\"at\":\"2026-11-15T10:00:00.123456Z\",\"bare\":\"2026-11-15T10:00:00.5\","
        "\"b\":\"AP8nXA==\",\"u\":\"6f1b2c3d-0000-4000-8000-000000000001\","
        "\"j\":{\"b\":1.50,\"a\":null},\"jb\":{\"a\":null,\"b\":1.50},\"a\":[3,null,1],"
        "\"words\":[\"a,b\",\"it's\"],\"m\":\"it's glad\",\"d\":\"2026-11-15\",\"yes\":true,"
        "\"f\":0.1,\"span\":\"1 day 02:03:04\",\"empty\":null,\"padded\":\"ab  \","
        "\"small\":\"abc\"}");
    assert_string_equal(kit_rows(k, "SELECT n, encode(b, 'hex'), u, a, m, empty FROM jobs"),
                        DIGITS " 00ff275c 6f1b2c3d-0000-4000-8000-000000000001 {3,NULL,1} "
                               "it's glad -");
}

static void C36_every_type_of_sqlite_is_written_and_shown(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id integer PRIMARY KEY, status text, n text, i integer, "
                "r real, b blob, j json, plain, empty text DEFAULT 'x'); "
                "INSERT INTO jobs (id, status) VALUES (9223372036854775807, 'pending')");
    const claim_set set[] = {
        set_of("status", "claimed"),
        set_of("n", DIGITS),
        { .column = weir__str("i"), .value = { .kind = TABLE_INTEGER, .number = INT64_MIN } },
        set_of("r", "0.1"),
        { .column = weir__str("b"),
          .value = { .kind = TABLE_BYTES, .text = { .ptr = "\0\xff'\\", .len = 4 } } },
        set_of("j", "{\"b\": 1.50, \"a\": null}"),
        set_of("plain", "01"),
        set_of("empty", NULL),
    };
    claim_request r = kit_request(k, 1);
    r.writes.set = set;
    r.writes.set_count = sizeof set / sizeof set[0];
    KIT_OK(k->one, kit_try(k, &r));
    assert_string_equal(claimer_json(k->one),
                        "{\"id\":9223372036854775807,\"status\":\"claimed\",\"n\":\"" DIGITS
                        "\",\"i\":-9223372036854775808,\"r\":0.1,\"b\":\"AP8nXA==\","
                        "\"j\":{\"b\":1.50,\"a\":null},\"plain\":\"01\",\"empty\":null}");
}

static void C36_a_value_that_is_none_of_its_type_claims_nothing(void **state)
{
    kit *k = *state;
    kit_exec(k, "DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'glad'); "
                "CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL, n numeric, "
                "m mood, u uuid, made bigint GENERATED ALWAYS AS (id * 2) STORED); "
                "INSERT INTO jobs (id, status) VALUES (1, 'pending')");
    const claim_set bad[] = {
        set_of("n", "twelve"), set_of("m", "furious"), set_of("u", "x"),
        set_of("made", "1"),   set_of("status", NULL),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        claim_request r = kit_request(k, 1);
        r.writes.set = &bad[i];
        const weir_status status = kit_try(k, &r);
        if (status != WEIR_EINVAL && status != WEIR_EIO) {
            fail_msg("value %zu: %s", i, weir_status_text(status));
        }
        assert_true(k->one->err.message[0] != '\0');
        assert_string_equal(kit_rows(k, "SELECT id, status, n, m, u FROM jobs"), "1 pending - - -");
        assert_false(weir__table_in_transaction(k->one->s));
    }
}

/* A claim whose mark is NULL, or no text: its expired ones are found all the same. */
static void C36_expired_claims_are_found_by_marks_of_any_type(void **state)
{
    kit *k = *state;
    kit_exec_each(
        k,
        "CREATE TABLE jobs (id integer PRIMARY KEY, ready boolean DEFAULT true, n numeric "
        "DEFAULT 1, kind text DEFAULT 'x', locked_until timestamptz)",
        "CREATE TABLE jobs (id integer PRIMARY KEY, ready boolean DEFAULT 1, n numeric "
        "DEFAULT 1, kind text DEFAULT 'x', locked_until integer)");
    kit_exec(k, "INSERT INTO jobs (id) VALUES (1), (2)");
    const claim_set set[] = {
        set_of("ready", k->kind == KIT_POSTGRES ? "false" : "0"),
        set_of("n", "1.50"),
        set_of("kind", NULL),
    };
    claim_request r = { .table = weir__str("jobs"),
                        .where =
                            k->kind == KIT_POSTGRES ? weir__str("ready") : weir__str("ready = 1"),
                        .writes.set = set,
                        .writes.set_count = 3,
                        .lease_us = KIT_HOUR,
                        .limit = 1,
                        .path = k->path };
    assert_string_equal(kit_claim(k, &r), "1");
    kit_exec_each(k, "UPDATE jobs SET locked_until = now() - interval '1 s' WHERE id = 1",
                  "UPDATE jobs SET locked_until = 1000000 WHERE id = 1");
    assert_string_equal(kit_claim(k, &r), "1");
    assert_string_equal(kit_claim(k, &r), "2");
    assert_string_equal(kit_claim(k, &r), "");
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Claims the rows of a table with this key one by one, finishes each by the key that it showed, and
 * leaves out those it has already seen. */
static void keys_work(kit *k, const char *type, const char *values)
{
    table_value seen[8];
    size_t count = 0;
    weir_arena arena = { 0 };
    kit_exec(k, "DROP TABLE IF EXISTS jobs");
    kit_exec(k,
             "CREATE TABLE jobs (id %s PRIMARY KEY, status text DEFAULT 'pending', claimed_by "
             "text)",
             type);
    kit_exec(k, "INSERT INTO jobs (id) VALUES %s", values);
    kit_claimer_renew(k);
    claim_request r = kit_request(k, 1);
    r.by = weir__str("A");
    r.at_column = CLAIM_NO_COLUMN;
    r.where = weir__str("status <> 'x'");
    r.exclude = seen;
    for (;;) {
        r.exclude_count = count;
        KIT_OK(k->one, kit_try(k, &r));
        if (k->one->r.rows_count == 0) {
            break;
        }
        assert_true(count < 8);
        seen[count] = weir__table_cell_value(&k->one->r.cells[0]);
        seen[count].text.ptr = weir__arena_copy(
            &arena, seen[count].text.ptr == NULL ? "" : seen[count].text.ptr, seen[count].text.len);
        finish_request f = kit_finish_request(FINISH_DONE, &seen[count], "A");
        f.lease_column = CLAIM_NO_COLUMN;
        f.writes.set = &(claim_set){ .column = weir__str("status"),
                                     .value = { .kind = TABLE_TEXT, .text = weir__str("done") } };
        f.writes.set_count = 1;
        KIT_OK(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err));
        count++;
        assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'done'"), count);
    }
    if (kit_number(k, "SELECT count(*) FROM jobs WHERE status <> 'done'") != 0) {
        fail_msg("%s: %s", type, kit_rows(k, "SELECT * FROM jobs"));
    }
    weir__arena_free(&arena);
}

static void C36_keys_of_every_type_find_their_rows(void **state)
{
    kit *k = *state;
    kit_exec(k, "DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'it''s')");
    keys_work(k, "bigint", "(-9223372036854775808), (0), (9223372036854775807)");
    keys_work(k, "smallint", "(-1), (2)");
    keys_work(k, "numeric", "(" DIGITS "), (1234567890123456789012345678901234567890.51)");
    keys_work(k, "timestamptz",
              "('2026-11-15 10:00:00.123456+00'), "
              "('2026-11-15 10:00:00.123457+00'), ('infinity')");
    keys_work(k, "timestamp", "('2026-11-15 10:00:00.1'), ('2026-11-15 10:00:00.2')");
    keys_work(k, "bytea", "('\\x00'), ('\\x00ff'), ('')");
    keys_work(k, "uuid",
              "('6f1b2c3d-0000-4000-8000-000000000001'), "
              "('6f1b2c3d-0000-4000-8000-000000000002')");
    keys_work(k, "text", "(''), ('a'), ('A'), ('it''s \\ $1')");
    keys_work(k, "char(4)", "('ab'), ('abc')");
    keys_work(k, "jsonb", "('{\"a\": 1}'), ('[1.0]'), ('\"x\"')");
    keys_work(k, "text[]", "('{}'), ('{a,b}'), ('{\"a,b\"}')");
    keys_work(k, "mood", "('sad'), ('it''s')");
    keys_work(k, "date", "('2026-11-15'), ('-infinity')");
    keys_work(k, "boolean", "(true), (false)");
    keys_work(k, "float8", "(0.1), (0.30000000000000004), ('NaN')");
    keys_work(k, "inet", "('10.0.0.1'), ('10.0.0.0/8')");
}

static void C36_keys_of_every_type_of_sqlite_find_their_rows(void **state)
{
    kit *k = *state;
    keys_work(k, "integer", "(-9223372036854775808), (0), (9223372036854775807)");
    keys_work(k, "text", "(''), ('a'), ('A'), ('1'), ('01'), ('" DIGITS "')");
    keys_work(k, "blob", "(x''), (x'00'), (x'00ff'), ('a'), (1)");
    keys_work(k, "real", "(0.1), (0.30000000000000004), (1e300)");
    keys_work(k, "numeric", "(1), (1.5), ('x')");
    keys_work(k, "", "(1), ('1'), (x'31')");
    keys_work(k, "text COLLATE NOCASE", "('a'), ('B')");
}

static void C36_keys_of_several_columns(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (status text DEFAULT 'pending', b text, \"A\" bigint, "
                "claimed_by text, PRIMARY KEY (\"A\", b))");
    kit_exec(k, "INSERT INTO jobs (\"A\", b) VALUES (1, 'x'), (1, 'y'), (2, 'x'), (2, 'y')");
    const table_value seen[] = {
        { .kind = TABLE_INTEGER, .number = 1 },
        { .kind = TABLE_TEXT, .text = weir__str("y") },
        { .kind = TABLE_INTEGER, .number = 2 },
        { .kind = TABLE_TEXT, .text = weir__str("x") },
    };
    claim_request r = kit_request(k, 5);
    r.by = weir__str("A");
    r.at_column = CLAIM_NO_COLUMN;
    r.exclude = seen;
    r.exclude_count = 2;
    KIT_OK(k->one, kit_try(k, &r));
    assert_string_equal(claimer_column(k->one, "A"), "1 2");
    assert_string_equal(claimer_column(k->one, "b"), "x y");
    finish_request f = kit_finish_request(FINISH_RELEASE, seen, "A");
    f.key_count = 2;
    KIT_IS(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err), WEIR_ELOST);
    f.key = (const table_value[]){ seen[2], seen[1] };
    KIT_OK(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err));
    f.key_count = 1;
    KIT_IS(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err), WEIR_EINVAL);
    assert_string_equal(kit_rows(k, "SELECT \"A\", b, claimed_by FROM jobs ORDER BY \"A\", b"),
                        "1 x A,1 y -,2 x -,2 y -");
}

/* A key of SQLite's may be NULL. Whatever a claim takes it shows, and what it shows it has
 * taken. */
static void C36_a_key_that_is_null_is_no_trap(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id text PRIMARY KEY, status text DEFAULT 'pending'); "
                "INSERT INTO jobs (id) VALUES (NULL), ('a'), (NULL)");
    const claim_request r = kit_request(k, 5);
    const weir_status status = kit_try(k, &r);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed'"),
                     status == WEIR_OK ? k->one->r.rows_count : 0);
    if (status == WEIR_OK) {
        assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed' AND "
                                       "id = 'a'"),
                         1);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void C36_a_partitioned_table_is_a_table(void **state)
{
    kit *k = *state;
    kit_exec(k,
             "CREATE TABLE jobs (id bigint, place text, status text DEFAULT 'pending', claimed_by "
             "text, claimed_at timestamptz, PRIMARY KEY (place, id)) PARTITION BY LIST (place); "
             "CREATE TABLE north PARTITION OF jobs FOR VALUES IN ('n'); "
             "CREATE TABLE south (x integer, id bigint NOT NULL, claimed_by text, claimed_at "
             "timestamptz, place text NOT NULL, status text DEFAULT 'pending'); "
             "ALTER TABLE south DROP COLUMN x; "
             "ALTER TABLE jobs ATTACH PARTITION south FOR VALUES IN ('s'); "
             "INSERT INTO jobs (id, place) SELECT i, CASE i %% 2 WHEN 0 THEN 'n' ELSE 's' END "
             "FROM generate_series(1, 9) AS i");
    const claim_order order = { .column = weir__str("id"), .descending = true };
    claim_request r = kit_request(k, 4);
    r.by = weir__str("A");
    r.order = &order;
    r.order_count = 1;
    assert_string_equal(kit_claim(k, &r), "9 8 7 6");
    assert_string_equal(claimer_column(k->one, "place"), "s n s n");
    const table_value key[] = { { .kind = TABLE_TEXT, .text = weir__str("s") },
                                { .kind = TABLE_INTEGER, .number = 9 } };
    finish_request f = kit_finish_request(FINISH_DONE, key, "A");
    f.key_count = 2;
    f.writes.set = &(claim_set){ .column = weir__str("status"),
                                 .value = { .kind = TABLE_TEXT, .text = weir__str("done") } };
    f.writes.set_count = 1;
    KIT_OK(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err));
    assert_string_equal(kit_rows(k, "SELECT id, status FROM jobs WHERE status <> 'pending' "
                                    "ORDER BY id"),
                        "6 claimed,7 claimed,8 claimed,9 done");
    /* A row that moves to another partition by being claimed is claimed once. */
    kit_exec(k, "UPDATE jobs SET status = 'pending'");
    const claim_set moved[] = { set_of("place", "n"), set_of("status", "claimed") };
    r = kit_request(k, 20);
    r.writes.set = moved;
    r.writes.set_count = 2;
    const weir_status status = kit_try(k, &r);
    assert_true(status != WEIR_OK || k->one->r.rows_count == 9);
    assert_string_equal(kit_rows(k, "SELECT count(*), count(DISTINCT id) FROM jobs"), "9 9");
}

static void C36_a_table_without_rowids_is_a_table(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id text, n integer, status text DEFAULT 'pending', "
                "PRIMARY KEY (n, id)) WITHOUT ROWID; "
                "INSERT INTO jobs (id, n) VALUES ('b', 1), ('a', 1), ('a', 2)");
    const claim_request r = kit_request(k, 2);
    assert_string_equal(kit_claim(k, &r), "a b");
    assert_string_equal(kit_claim(k, &r), "a");
    assert_string_equal(kit_claim(k, &r), "");
}

/* A column called as what SQLite calls its own. */
static void C36_a_column_called_rowid_is_a_column(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id text PRIMARY KEY, rowid integer, _rowid_ integer, oid "
                "integer, status text DEFAULT 'pending')");
    kit_exec(k, "INSERT INTO jobs (id, rowid, _rowid_, oid) VALUES ('a', 1, 1, 1), ('b', 1, 1, 1), "
                "('c', 1, 1, 1)");
    const claim_request r = kit_request(k, 2);
    assert_string_equal(kit_claim(k, &r), "a b");
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id"),
                        "a,b");
}

/* Somebody else's triggers change a row, or keep it from being changed. */
static void C36_a_row_that_a_trigger_keeps_as_it_is_was_not_claimed(void **state)
{
    kit *k = *state;
    kit_jobs(k, 4);
    kit_exec_each(k,
                  "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                  "IF old.id = 2 THEN RETURN NULL; END IF; new.kind = 'seen'; RETURN new; END $$; "
                  "CREATE TRIGGER keep BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION keep()",
                  "CREATE TRIGGER keep BEFORE UPDATE ON jobs WHEN old.id = 2 BEGIN "
                  "SELECT RAISE(IGNORE); END");
    const claim_request r = kit_request(k, 10);
    if (k->kind != KIT_POSTGRES && k->path == CLAIM_PATH_FAST) {
        KIT_IS(k->one, kit_try(k, &r),
               WEIR_EIO); /* what is ignored cannot be told from a mistake */
        assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed'"), 0);
        return;
    }
    assert_string_equal(kit_claim(k, &r), "1 3 4");
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id"),
                        "1,3,4");
    if (k->kind == KIT_POSTGRES) {
        assert_string_equal(claimer_column(k->one, "kind"), "seen seen seen");
    }
}

const kit_case kit_typing[] = {
    KIT_TEST(C36_every_type_is_written_and_shown, ON_POSTGRES),
    KIT_TEST(C36_every_type_of_sqlite_is_written_and_shown, ON_ONE_FILE),
    KIT_TEST(C36_a_value_that_is_none_of_its_type_claims_nothing, ON_POSTGRES),
    KIT_TEST(C36_expired_claims_are_found_by_marks_of_any_type, ON_ALL),
    KIT_TEST(C36_keys_of_every_type_find_their_rows, ON_POSTGRES),
    KIT_TEST(C36_keys_of_every_type_of_sqlite_find_their_rows, ON_ONE_FILE),
    KIT_TEST(C36_keys_of_several_columns, ON_ALL),
    KIT_TEST(C36_a_key_that_is_null_is_no_trap, ON_ONE_FILE),
    KIT_TEST(C36_a_partitioned_table_is_a_table, ON_POSTGRES),
    KIT_TEST(C36_a_table_without_rowids_is_a_table, ON_ONE_FILE),
    KIT_TEST(C36_a_column_called_rowid_is_a_column, ON_ALL),
    KIT_TEST(C36_a_row_that_a_trigger_keeps_as_it_is_was_not_claimed, ON_ALL),
};
const size_t kit_typing_count = sizeof kit_typing / sizeof kit_typing[0];
