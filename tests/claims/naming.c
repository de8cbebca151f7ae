/* naming.c - C39: names are identifiers, values are parameters, whatever is in them; and what is
 * not there is refused by the name of the flag that asked for it.
 */
#include "kit.h"

#include <stdlib.h>

#define HOSTILE "'; DROP TABLE jobs; --\" $1 :name ?1 @a %s%n \\ \xc3\xa9\n\xf0\x9f\x98\x80"

static table_value text_value(const char *text)
{
    return (table_value){ .kind = TABLE_TEXT, .text = weir__str(text) };
}

/* ---- names ----------------------------------------------------------------------------------- */

static void odd_table(kit *k)
{
    const bool postgres = k->kind == KIT_POSTGRES;
    const char *time = postgres ? "timestamptz" : "integer";
    kit_exec(
        k,
        "CREATE TABLE \"we\"\"ird'; DROP TABLE jobs; --\" (\"$1\" bigint, \"back\\slash\" text, "
        "\"st;a\"\"tus\" text, \"Claimed By\" text, \"50%%s\" %s, \"lock'ed\" %s, "
        "\":fence\" bigint NOT NULL DEFAULT 0, \"--tries\" bigint NOT NULL DEFAULT 0, "
        "\"order\" integer, \"/* kind\" text, PRIMARY KEY (\"back\\slash\", \"$1\"))",
        time, time);
    kit_exec(k, "INSERT INTO \"we\"\"ird'; DROP TABLE jobs; --\" (\"$1\", \"back\\slash\", "
                "\"st;a\"\"tus\", \"order\", \"/* kind\") VALUES (1, 'a', ':x $1', 1, 'k'), "
                "(2, 'a', ':x $1', 2, 'k'), (1, 'b', ':x $1', 2, 'k'), (9, 'b', 'other', 9, 'k')");
}

static const char odd_name[] = "\"we\"\"ird'; DROP TABLE jobs; --\"";

static void C39_names_are_names_whatever_is_in_them(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id integer)");
    odd_table(k);
    const claim_set set = { .column = weir__str("st;a\"tus"), .value = text_value(HOSTILE) };
    const claim_order order = { .column = weir__str("order"), .descending = true };
    const claim_request r = {
        .table = weir__str(odd_name),
        .where = weir__str("\"st;a\"\"tus\" = ':x $1'"),
        .writes.set = &set,
        .writes.set_count = 1,
        .order = &order,
        .order_count = 1,
        .by = weir__str("it's \"me\""),
        .by_column = weir__str("Claimed By"),
        .at_column = weir__str("50%s"),
        .lease_us = KIT_HOUR,
        .lease_column = weir__str("lock'ed"),
        .fence_column = weir__str(":fence"),
        .attempts_column = weir__str("--tries"),
        .max_per_column = weir__str("/* kind"),
        .max_per = 2,
        .limit = 10,
        .path = k->path,
    };
    KIT_OK(k->one, kit_try(k, &r));
    assert_string_equal(claimer_column(k->one, "back\\slash"), "a b");
    assert_string_equal(claimer_column(k->one, "$1"), "2 1");
    assert_string_equal(claimer_column(k->one, "st;a\"tus"), HOSTILE " " HOSTILE);
    assert_string_equal(claimer_column(k->one, ":fence"), "1 1");
    const table_value key[] = { text_value("a"), { .kind = TABLE_INTEGER, .number = 2 } };
    finish_request f = {
        .table = weir__str(odd_name),
        .key = key,
        .key_count = 2,
        .by = weir__str("it's \"me\""),
        .by_column = weir__str("Claimed By"),
        .at_column = weir__str("50%s"),
        .has_fence = true,
        .fence = 1,
        .fence_column = weir__str(":fence"),
        .lease_column = weir__str("lock'ed"),
        .held = &set,
        .held_count = 1,
        .writes.set = &(claim_set){ .column = weir__str("order"),
                                    .value = { .kind = TABLE_INTEGER, .number = -1 } },
        .writes.set_count = 1,
    };
    KIT_OK(k->one, weir__claim_finish(k->one->s, &f, &k->one->r, &k->one->err));
    assert_string_equal(claimer_column(k->one, "order"), "-1");
    f.kind = FINISH_RELEASE;
    f.by = weir__str("it's");
    KIT_IS(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err), WEIR_ELOST);
    assert_string_equal(kit_rows(k,
                                 "SELECT \"$1\", \"back\\slash\", \"Claimed By\", \"--tries\", "
                                 "\"order\" FROM %s ORDER BY \"back\\slash\", \"$1\"",
                                 odd_name),
                        "1 a - 0 1,2 a it's \"me\" 1 -1,1 b it's \"me\" 1 2,9 b - 0 9");
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs"), 0);
}

static void C39_names_are_in_the_case_in_which_they_are(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE \"Jobs\" (\"Id\" integer PRIMARY KEY, \"Status\" text)");
    kit_exec(k, "INSERT INTO \"Jobs\" VALUES (1, 'pending')");
    const claim_set set = { .column = weir__str("Status"), .value = text_value("claimed") };
    const claim_request r = { .table = weir__str("Jobs"),
                              .where = weir__str("\"Status\" = 'pending'"),
                              .writes.set = &set,
                              .writes.set_count = 1,
                              .limit = 1,
                              .path = k->path };
    assert_string_equal(kit_claim(k, &r), "1");
    const claim_request other = kit_request(k, 1);
    if (k->kind == KIT_POSTGRES) {
        KIT_IS(k->one, kit_try(k, &other), WEIR_ENOTFOUND);
        kit_message(k->one, "jobs");
        kit_message(k->one, "Jobs");
    }
}

static void C39_a_table_in_a_schema(void **state)
{
    kit *k = *state;
    kit_exec(k, "DROP SCHEMA IF EXISTS \"My.Schema\" CASCADE; CREATE SCHEMA \"My.Schema\"; "
                "CREATE TABLE \"My.Schema\".jobs (id integer PRIMARY KEY, status text); "
                "INSERT INTO \"My.Schema\".jobs VALUES (7, 'pending')");
    kit_jobs(k, 1);
    claim_request r = kit_request(k, 5);
    r.table = weir__str("\"My.Schema\".jobs");
    assert_string_equal(kit_claim(k, &r), "7");
    r.table = weir__str("public.jobs");
    assert_string_equal(kit_claim(k, &r), "1");
    kit_exec(k, "DROP SCHEMA \"My.Schema\" CASCADE");
}

/* ---- what is not there ----------------------------------------------------------------------- */

/* A request that is refused with the flag and the name in the message, and does nothing. */
static void refused(kit *k, const claim_request *r, const char *flag, const char *name)
{
    KIT_IS(k->one, kit_try(k, r), WEIR_EINVAL);
    kit_message(k->one, flag);
    kit_message(k->one, name);
    assert_string_equal(kit_rows(k, "SELECT id, status FROM jobs"), "1 pending");
}

static void C39_a_column_that_is_not_there_is_refused_by_its_flag(void **state)
{
    kit *k = *state;
    const weir_str none = weir__str("id; DROP TABLE jobs");
    const char *name = "id; DROP TABLE jobs";
    kit_jobs(k, 1);
    claim_request r = kit_request(k, 1);
    r.writes.set = &(claim_set){ .column = none, .value = text_value("x") };
    refused(k, &r, "--set", name);
    r = kit_request(k, 1);
    r.writes.set_sql = &(claim_set_sql){ .column = none, .sql = weir__str("1") };
    r.writes.set_sql_count = 1;
    refused(k, &r, "--set-sql", name);
    r = kit_request(k, 1);
    r.order = &(claim_order){ .column = none };
    r.order_count = 1;
    refused(k, &r, "--order", name);
    r = kit_request(k, 1);
    r.by = weir__str("A");
    r.by_column = none;
    refused(k, &r, "--by-column", name);
    r.by_column = (weir_str){ 0 };
    r.at_column = none;
    refused(k, &r, "--at-column", name);
    r = kit_request(k, 1);
    r.lease_us = KIT_SECOND;
    r.lease_column = none;
    refused(k, &r, "--lease-column", name);
    r = kit_request(k, 1);
    r.fence_column = none;
    refused(k, &r, "--fence-column", name);
    r = kit_request(k, 1);
    r.attempts_column = none;
    refused(k, &r, "--attempts", name);
    r = kit_request(k, 1);
    r.max_per_column = none;
    r.max_per = 1;
    refused(k, &r, "--max-per", name);
}

static void C39_the_default_columns_are_asked_for_by_their_flags(void **state)
{
    kit *k = *state;
    kit_exec(k, "CREATE TABLE jobs (id integer PRIMARY KEY, status text)");
    kit_exec(k, "INSERT INTO jobs VALUES (1, 'pending')");
    claim_request r = kit_request(k, 1);
    r.by = weir__str("A");
    refused(k, &r, "--by-column", "claimed_by");
    r.by_column = CLAIM_NO_COLUMN;
    refused(k, &r, "--at-column", "claimed_at");
    r.at_column = CLAIM_NO_COLUMN;
    r.lease_us = KIT_SECOND;
    refused(k, &r, "--lease-column", "locked_until");
    r.lease_us = 0;
    assert_string_equal(kit_claim(k, &r), "1");
}

static void C39_a_column_is_written_once(void **state)
{
    kit *k = *state;
    const claim_set twice[] = {
        { .column = weir__str("status"), .value = text_value("a") },
        { .column = weir__str("status"), .value = text_value("b") },
    };
    kit_jobs(k, 1);
    claim_request r = kit_request(k, 1);
    r.writes.set = twice;
    r.writes.set_count = 2;
    refused(k, &r, "--set", "status");
    r = kit_lease(k, 1, "A", KIT_SECOND);
    r.writes.set = &(claim_set){ .column = weir__str("claimed_by"), .value = text_value("a") };
    refused(k, &r, "--", "claimed_by");
}

static void C39_a_claim_that_marks_nothing_is_refused(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_request r = kit_request(k, 1);
    r.writes.set = NULL;
    r.writes.set_count = 0;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    assert_string_equal(kit_rows(k, "SELECT id, status FROM jobs"), "1 pending");
}

static void C39_a_table_that_cannot_be_claimed_from_is_refused_by_name(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    kit_exec(k, "CREATE TABLE keyless (id integer, status text); "
                "INSERT INTO keyless VALUES (1, 'pending'); "
                "CREATE VIEW seen AS SELECT * FROM jobs");
    claim_request r = kit_request(k, 1);
    r.table = weir__str("keyless");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "keyless");
    kit_message(k->one, "primary key");
    r.table = weir__str("seen");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "seen");
    kit_message(k->one, "view");
    r.table = weir__str("nowhere");
    KIT_IS(k->one, kit_try(k, &r), WEIR_ENOTFOUND);
    kit_message(k->one, "nowhere");
    r.table = (weir_str){ 0 };
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    r.table = weir__str("jobs; DROP TABLE jobs");
    assert_int_not_equal(kit_try(k, &r), WEIR_OK);
    assert_string_equal(kit_rows(k, "SELECT status FROM jobs"), "pending");
    assert_string_equal(kit_rows(k, "SELECT status FROM keyless"), "pending");
}

/* ---- values ---------------------------------------------------------------------------------- */

static void C39_values_are_values_whatever_is_in_them(void **state)
{
    kit *k = *state;
    kit_exec_each(k,
                  "CREATE TABLE jobs (id text PRIMARY KEY, status text, kind text, "
                  "claimed_by text, claimed_at timestamptz)",
                  "CREATE TABLE jobs (id text PRIMARY KEY, status text, kind text, "
                  "claimed_by text, claimed_at integer)");
    const table_value hostile = text_value(HOSTILE);
    const table_value row[] = { hostile, text_value("a"), text_value("$1") };
    table_result inserted = { 0 };
    const table_statement statement = {
        .sql = "INSERT INTO jobs (id, status, kind) VALUES ($1, $1, $1), ($2, 'pending', $3)",
        .values = row,
        .values_count = 3,
        .wait_us = -1,
    };
    KIT_OK(k->one, weir__table_run(k->one->s, &statement, &inserted, &k->one->err));
    weir__table_result_free(&inserted);
    const claim_set set = { .column = weir__str("status"), .value = text_value("100% '$1' \\") };
    const claim_param param = { .name = weir__str("kind"), .value = hostile };
    claim_request r = { .table = weir__str("jobs"),
                        .where = weir__str("kind = :kind AND status = :kind"),
                        .writes.params = &param,
                        .writes.params_count = 1,
                        .writes.set = &set,
                        .writes.set_count = 1,
                        .by = weir__str(HOSTILE),
                        .limit = 5,
                        .path = k->path };
    assert_string_equal(kit_claim(k, &r), HOSTILE);
    assert_string_equal(claimer_column(k->one, "status"), "100% '$1' \\");
    assert_string_equal(claimer_column(k->one, "claimed_by"), HOSTILE);
    /* And as a key. */
    finish_request f = kit_finish_request(FINISH_DONE, &hostile, HOSTILE);
    f.held = &set;
    f.held_count = 1;
    f.writes.set = &(claim_set){ .column = weir__str("status"), .value = text_value("done") };
    f.writes.set_count = 1;
    KIT_OK(k->one, weir__claim_finish(k->one->s, &f, NULL, &k->one->err));
    r.exclude = &hostile;
    r.exclude_count = 1;
    assert_string_equal(kit_claim(k, &r), "");
    assert_string_equal(kit_rows(k, "SELECT status FROM jobs WHERE id = 'a'"), "pending");
}

static void C39_a_nul_is_refused(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_request r = kit_request(k, 1);
    r.writes.set =
        &(claim_set){ .column = weir__str("status"),
                      .value = { .kind = TABLE_TEXT, .text = { .ptr = "a\0b", .len = 3 } } };
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    r = kit_request(k, 1);
    r.where = (weir_str){ .ptr = "true\0 OR", .len = 8 };
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    r = kit_request(k, 1);
    r.by = (weir_str){ .ptr = "A\0", .len = 2 };
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by FROM jobs"), "1 pending -");
}

/* A condition that would end the statement, or comment the rest of it out. */
static void C39_a_condition_is_one_expression(void **state)
{
    kit *k = *state;
    static const char *const conditions[] = {
        "true; DROP TABLE jobs",
        "true) OR (true",
        "status = 'pending' --",
        "status = 'pending' /*",
        "status = 'pending'); DROP TABLE jobs; --",
    };
    kit_jobs(k, 2);
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        claim_request r = kit_request(k, 1);
        r.where = weir__str(conditions[i]);
        const weir_status status = kit_try(k, &r);
        assert_true(status != WEIR_OK || k->one->r.rows_count <= 1);
        assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs"), 2);
        assert_true(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed'") ==
                    (status == WEIR_OK ? 1 : 0));
        kit_exec(k, "UPDATE jobs SET status = 'pending'");
    }
}

static void C39_a_parameter_stands_right_behind_a_word(void **state)
{
    kit *k = *state;
    const claim_param params[] = {
        { .name = weir__str("low"), .value = { .kind = TABLE_INTEGER, .number = 2 } },
        { .name = weir__str("high"), .value = { .kind = TABLE_INTEGER, .number = 3 } },
    };
    kit_jobs(k, 4);
    claim_request r = kit_request(k, 10);
    r.where = weir__str("status = 'pending' AND id BETWEEN:low AND:high");
    r.writes.params = params;
    r.writes.params_count = 2;
    assert_string_equal(kit_claim(k, &r), "2 3");
}

/* Between two claims of one session, by another connection. */
static void C39_a_table_that_another_has_changed_is_seen_as_it_is(void **state)
{
    kit *k = *state;
    const table_value second = { .kind = TABLE_INTEGER, .number = 2 };
    const table_value x = { .kind = TABLE_TEXT, .text = weir__str("x") };
    kit_jobs(k, 6);
    claim_request r = kit_request(k, 1);
    r.by = weir__str("A");
    assert_string_equal(kit_claim(k, &r), "1");
    kit_exec(k, "ALTER TABLE jobs ADD COLUMN note text DEFAULT 'new'");
    assert_string_equal(kit_claim(k, &r), "2");
    assert_string_equal(claimer_column(k->one, "note"), "new");
    kit_exec(k, "ALTER TABLE jobs RENAME COLUMN kind TO sort");
    const finish_request f = kit_finish_request(FINISH_DONE, &second, "A");
    KIT_OK(k->one, weir__claim_finish(k->one->s, &f, &k->one->r, &k->one->err));
    assert_non_null(strstr(claimer_json(k->one), "\"sort\":null"));
    assert_null(strstr(claimer_json(k->one), "kind"));
    kit_exec(k, "ALTER TABLE jobs DROP COLUMN note");
    assert_string_equal(kit_claim(k, &r), "3");
    assert_null(strstr(claimer_json(k->one), "note"));
    kit_exec(k, "ALTER TABLE jobs DROP COLUMN claimed_by");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "--by-column: no column \"claimed_by\"");
    kit_exec(k, "DROP TABLE jobs; CREATE TABLE jobs (status json, claimed_by text, id integer, "
                "name text PRIMARY KEY); INSERT INTO jobs VALUES ('pending', NULL, 4, 'y'), "
                "('pending', NULL, 5, 'x')");
    r.at_column = CLAIM_NO_COLUMN;
    KIT_OK(k->one, kit_try(k, &r));
    assert_string_equal(claimer_column(k->one, "name"), "x");
    const claim_set done = { .column = weir__str("status"),
                             .value = { .kind = TABLE_TEXT, .text = weir__str("done") } };
    finish_request last = kit_finish_request(FINISH_DONE, &x, "A");
    last.writes.set = &done;
    last.writes.set_count = 1;
    KIT_OK(k->one, weir__claim_finish(k->one->s, &last, NULL, &k->one->err));
    assert_string_equal(kit_rows(k, "SELECT name, status FROM jobs ORDER BY name"),
                        "x done,y pending");
}

const kit_case kit_naming[] = {
    KIT_TEST(C39_names_are_names_whatever_is_in_them, ON_ALL),
    KIT_TEST(C39_names_are_in_the_case_in_which_they_are, ON_ALL),
    KIT_TEST(C39_a_table_in_a_schema, ON_POSTGRES),
    KIT_TEST(C39_a_column_that_is_not_there_is_refused_by_its_flag, ON_ALL),
    KIT_TEST(C39_the_default_columns_are_asked_for_by_their_flags, ON_ALL),
    KIT_TEST(C39_a_column_is_written_once, ON_ALL),
    KIT_TEST(C39_a_claim_that_marks_nothing_is_refused, ON_ALL),
    KIT_TEST(C39_a_table_that_cannot_be_claimed_from_is_refused_by_name, ON_ALL),
    KIT_TEST(C39_values_are_values_whatever_is_in_them, ON_ALL),
    KIT_TEST(C39_a_nul_is_refused, ON_ALL),
    KIT_TEST(C39_a_condition_is_one_expression, ON_ALL),
    KIT_TEST(C39_a_parameter_stands_right_behind_a_word, ON_ALL),
    KIT_TEST(C39_a_table_that_another_has_changed_is_seen_as_it_is, ON_SQLITE),
};
const size_t kit_naming_count = sizeof kit_naming / sizeof kit_naming[0];
