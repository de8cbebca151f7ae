/* doctor_test.c - every finding of `weir doctor` that is PostgreSQL's own, brought about for real.
 *
 * Method: a sound store on a server of the suite's own, one thing at a time made wrong, and what
 * check and survey tell about it; then it is put right by the advice where that is a statement, and
 * they are silent again.
 */
#include "pg_support.h"

#include "store/postgres/check_server.h"
#include "store/postgres/postgres_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What was told, a line each: "act rule: text [advice]". */
typedef struct told {
    weir_buffer lines;
} told;

static void tell(void *ctx, bool act, const char *rule, const char *text, const char *advice)
{
    told *d = ctx;
    const char *const parts[] = { act ? "act " : "note ", rule, ": ", text, " [", advice, "]\n" };
    assert_true(strlen(advice) > 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_true(weir__buffer_add_text(&d->lines, parts[i]));
    }
}

static void tell_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    tell(ctx, true, rule, text, advice);
}

static const char *end(told *d)
{
    assert_true(weir__buffer_add(&d->lines, "", 1));
    return d->lines.ptr;
}

/* The schema's part of check; until the next call. */
static const char *checked(pg_test *t, weir_store *s)
{
    static told d;
    d.lines.len = 0;
    TEST_OK(t, weir__pg_check_server(pg_of(s), tell_finding, &d, &t->err));
    return end(&d);
}

static const char *surveyed(pg_test *t, weir_store *s)
{
    static told d;
    d.lines.len = 0;
    TEST_OK(t, s->about->survey(s, tell, &d, &t->err));
    return end(&d);
}

static void has(const char *lines, const char *what)
{
    if (strstr(lines, what) == NULL) {
        fail_msg("expected \"%s\" in:\n%s", what, lines);
    }
}

static void has_not(const char *lines, const char *what)
{
    if (strstr(lines, what) != NULL) {
        fail_msg("did not expect \"%s\" in:\n%s", what, lines);
    }
}

/* ---- the schema ----------------------------------------------------------------------------- */

static void a_store_as_it_was_made_has_no_findings(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    assert_string_equal(checked(t, s), "");
    /* What operators may change, and what is theirs, is not told. */
    test_exec(t->conn,
              "ALTER TABLE \"%s\".targets SET (fillfactor = 50);"
              "CREATE INDEX theirs ON \"%s\".events (created);"
              "CREATE TABLE \"%s\".also_theirs (x integer);"
              "CREATE FUNCTION \"%s\".and_this() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
              t->schema, t->schema, t->schema, t->schema);
    assert_string_equal(checked(t, s), "");
    /* Looking leaves nothing behind. */
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM pg_class WHERE relname = 'events' "
                                          "AND relpersistence = 't'"),
                     0);
}

/* How a session wants its SQL printed makes no difference to what is printed. */
static void settings_of_a_role_make_no_findings(void **state)
{
    pg_test *t = *state;
    test_exec(t->conn, "ALTER ROLE CURRENT_USER SET quote_all_identifiers = on");
    weir_store *s = test_store(t);
    char lines[512];
    (void)snprintf(lines, sizeof lines, "%s", checked(t, s));
    test_exec(t->conn, "ALTER ROLE CURRENT_USER RESET quote_all_identifiers");
    assert_string_equal(lines, "");
}

/* Statements that make something wrong; what is told; statements that put it right. */
typedef struct fault {
    const char *wrong, *told, *right;
} fault;

static void fault_is_told(pg_test *t, weir_store *s, const fault *f)
{
    test_exec(t->conn, "SET search_path = \"%s\"; %s", t->schema, f->wrong);
    has(checked(t, s), f->told);
    test_exec(t->conn, "%s; RESET search_path", f->right);
    assert_string_equal(checked(t, s), "");
}

static void what_differs_from_what_this_version_makes_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    static const fault faults[] = {
        { "ALTER TABLE targets ALTER lane DROP NOT NULL",
          "act schema: column targets.lane is not as this version makes it: it is \"text COLLATE "
          "C\", "
          "and should be \"text NOT NULL COLLATE C\"",
          "ALTER TABLE targets ALTER lane SET NOT NULL" },
        { "ALTER TABLE reserved RENAME stream TO owner",
          "act schema: column reserved.stream is missing",
          "ALTER TABLE reserved RENAME owner TO stream" },
        { "ALTER VIEW streams RENAME closed TO shut",
          "act schema: view streams is not as this version makes it",
          "ALTER VIEW streams RENAME shut TO closed" },
        { "ALTER TABLE events DISABLE TRIGGER events_no_change",
          "act schema: trigger events_no_change is not as this version makes it",
          "ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_change" },
        { "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
          "act schema: table events is not as this version makes it: it is \"there, with row "
          "security\"",
          "ALTER TABLE events DISABLE ROW LEVEL SECURITY" },
        { "ALTER TABLE keys SET UNLOGGED",
          "act schema: table keys is not as this version makes it: it is \"there, unlogged\"",
          "ALTER TABLE keys SET LOGGED" },
        { "ALTER TABLE lanes RENAME TO tracks", "act schema: table lanes is missing",
          "ALTER TABLE tracks RENAME TO lanes" },
        { "ALTER TABLE workers RENAME TO hands", "act schema: table workers is missing",
          "ALTER TABLE hands RENAME TO workers" },
        { "ALTER FUNCTION clock_us() VOLATILE SECURITY DEFINER",
          "act schema: function clock_us() is not as this version makes it",
          "ALTER FUNCTION clock_us() VOLATILE SECURITY INVOKER" },
        { "ALTER FUNCTION commit_durably() RENAME TO commit_maybe",
          "act schema: function commit_durably() is missing",
          "ALTER FUNCTION commit_maybe() RENAME TO commit_durably" },
        { "ALTER TABLE safe DROP CONSTRAINT safe_one_check",
          "act schema: constraint safe_one_check is missing",
          "ALTER TABLE safe ADD CONSTRAINT safe_one_check CHECK (one)" },
        { "ALTER SEQUENCE positions RENAME TO places", "act schema: sequence positions is missing",
          "ALTER SEQUENCE places RENAME TO positions" },
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        fault_is_told(t, s, &faults[i]);
    }
}

static void a_function_whose_body_was_changed_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "CREATE OR REPLACE FUNCTION \"%s\".clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
              "AS 'SELECT now()'",
              t->schema);
    has(checked(t, s), "act schema: function clock() is not as this version makes it [");
}

static void a_missing_index_is_told_with_what_makes_it(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn, "DROP INDEX \"%s\".events_name", t->schema);
    const char *lines = checked(t, s);
    has(lines, "act schema: index events_name is missing [");
    has(lines, "CREATE INDEX events_name ON events USING btree (name, id)");
    has(lines, "CONCURRENTLY");
}

static void an_index_that_a_failed_build_left_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    (void)test_put(t, s, "order-1", "Placed");
    (void)test_put(t, s, "order-1", "Placed");
    assert_string_equal(
        test_refused(t->conn, "CREATE UNIQUE INDEX CONCURRENTLY events_bad ON \"%s\".events (name)",
                     t->schema),
        "23505");
    has(checked(t, s), ".events_bad is invalid");
    test_exec(t->conn, "DROP INDEX \"%s\".events_bad", t->schema);
    assert_string_equal(checked(t, s), "");
}

static void an_index_that_a_cancelled_reindex_left_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *other = test_connect(t);
    PGconn *reindex = test_connect(t);
    char sql[128];
    (void)test_put(t, s, "order-1", "Placed");
    /* It waits for whoever writes to the table, and is cancelled then. */
    test_exec(other, "BEGIN; LOCK TABLE \"%s\".events IN ROW EXCLUSIVE MODE", t->schema);
    (void)snprintf(sql, sizeof sql, "REINDEX INDEX CONCURRENTLY \"%s\".events_name", t->schema);
    assert_int_equal(PQsendQuery(reindex, sql), 1);
    assert_true(test_wait(t->conn, 120,
                          "SELECT wait_event_type = 'Lock' AND "
                          "to_regclass('\"%s\".events_name_ccnew') IS NOT NULL "
                          "FROM pg_stat_activity WHERE pid = %d",
                          t->schema, PQbackendPID(reindex)));
    test_exec(t->conn, "SELECT pg_cancel_backend(%d)", PQbackendPID(reindex));
    PGresult *result = PQgetResult(reindex);
    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "57014");
    PQclear(result);
    assert_null(PQgetResult(reindex));
    test_exec(other, "COMMIT");
    const char *lines = checked(t, s);
    has(lines, ".events_name_ccnew is invalid");
    has(lines, "left over from a REINDEX that failed: DROP INDEX CONCURRENTLY");
    test_exec(t->conn, "DROP INDEX CONCURRENTLY \"%s\".events_name_ccnew", t->schema);
    assert_string_equal(checked(t, s), "");
}

static void a_sequence_that_keeps_positions_back_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".positions CACHE 20", t->schema);
    has(checked(t, s), "act sequence: the sequence of positions has CACHE 20");
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".lock_fences CACHE 5", t->schema);
    has(checked(t, s),
        "act sequence: the sequence of locks' fences has CACHE 5, INCREMENT 1: a lock's "
        "next holder can have a smaller fence");
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".lock_fences CACHE 1", t->schema);
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".positions CACHE 1 CYCLE", t->schema);
    has(checked(t, s), "CYCLE");
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".positions NO CYCLE", t->schema);
    assert_string_equal(checked(t, s), "");
}

static void a_trigger_and_a_column_of_others_on_our_tables_are_notes(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "CREATE TRIGGER theirs AFTER INSERT ON \"%s\".events FOR EACH ROW EXECUTE FUNCTION "
              "\"%s\".events_are_immutable(); ALTER TABLE \"%s\".work ADD colour text",
              t->schema, t->schema, t->schema);
    assert_string_equal(checked(t, s), "");
    const char *lines = surveyed(t, s);
    has(lines, "note schema: trigger theirs is not Weir's");
    has(lines, "note schema: column work.colour is not Weir's");
}

static void where_no_model_can_be_made_the_rest_is_checked(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES + 128], role[TEST_SCHEMA_BYTES + 8];
    weir_buffer sql = { 0 };
    store_options o = test_options(t);
    (void)test_store(t);
    (void)snprintf(role, sizeof role, "role_%s", t->schema);
    (void)snprintf(url, sizeof url, "%s&user=%s", test_server(), role);
    test_exec(t->conn,
              "CREATE ROLE \"%s\" LOGIN; REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC", role);
    TEST_OK(t, weir__postgres_grant(&o, weir__str(role), "worker", false, &sql, &t->err));
    weir__buffer_free(&sql);
    test_exec(t->conn, "ALTER SEQUENCE \"%s\".positions CACHE 20", t->schema);
    o.path = weir__str(url);
    weir_store *s = test_store_with(t, &o);
    has(surveyed(t, s), "note schema: tables and functions were not compared");
    has(checked(t, s), "act sequence:");
    test_store_close(t, s);
    test_exec(t->conn,
              "GRANT TEMPORARY ON DATABASE postgres TO PUBLIC; DROP OWNED BY \"%s\"; DROP ROLE "
              "\"%s\"",
              role, role);
}

static void rights_past_the_functions_are_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "CREATE ROLE \"role_%s\"; GRANT INSERT, TRIGGER ON \"%s\".events TO \"role_%s\"; "
              "GRANT USAGE ON SEQUENCE \"%s\".positions TO PUBLIC; "
              "GRANT EXECUTE ON FUNCTION \"%s\".append_one TO PUBLIC; "
              "GRANT CREATE ON SCHEMA \"%s\" TO \"role_%s\"",
              t->schema, t->schema, t->schema, t->schema, t->schema, t->schema, t->schema);
    const char *lines = surveyed(t, s);
    has(lines, ".events, and can bypass");
    has(lines, "has INSERT, TRIGGER on");
    has(lines, "act rights: PUBLIC has USAGE on");
    has(lines, "act rights: PUBLIC has EXECUTE on functions of");
    has(lines, "has CREATE on schema");
    test_exec(t->conn, "DROP OWNED BY \"role_%s\"; DROP ROLE \"role_%s\"", t->schema, t->schema);
}

/* ---- the server ----------------------------------------------------------------------------- */

static void set_system(pg_test *t, const char *name, const char *value)
{
    test_exec(t->conn, "ALTER SYSTEM SET %s = %s", name, value);
    test_exec(t->conn, "SELECT pg_reload_conf()");
    assert_true(test_wait(t->conn, 120, "SELECT current_setting('%s') = '%s'", name, value));
}

static void settings_that_endanger_something_are_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    static const struct {
        const char *name, *told;
    } settings[] = {
        { "fsync", "act durability: fsync is off" },
        { "full_page_writes", "act durability: full_page_writes is off" },
        { "autovacuum", "act autovacuum: autovacuum is off" },
        { "track_counts", "act autovacuum: track_counts is off" },
        { "synchronous_commit", "note durability: synchronous_commit is off" },
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        set_system(t, settings[i].name, "off");
        has(surveyed(t, s), settings[i].told);
        set_system(t, settings[i].name, "on");
        has_not(surveyed(t, s), settings[i].told);
        test_exec(t->conn, "ALTER SYSTEM RESET %s", settings[i].name);
    }
    const bool sums = strcmp(test_text(t->conn, "SHOW data_checksums"), "on") == 0;
    (sums ? has_not : has)(surveyed(t, s), "note checksums:");
    test_exec(t->conn, "SELECT pg_reload_conf()");
}

static void notifications_arrive_although_the_first_host_is_dead(void **state)
{
    pg_test *t = *state;
    char hosts[256];
    (void)snprintf(hosts, sizeof hosts, "/nowhere,%s", getenv("WEIR_TEST_PG_DIR"));
    const store_options options = test_options_by(t, hosts, "");
    has_not(surveyed(t, test_store_with(t, &options)), "wake-ups");
}

static void another_isolation_than_read_committed_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    has_not(surveyed(t, s), "isolation");
    test_exec(t->conn,
              "CREATE ROLE \"iso_%s\"; GRANT SELECT ON \"%s\".store TO \"iso_%s\"; "
              "ALTER ROLE \"iso_%s\" SET default_transaction_isolation = 'repeatable read'",
              t->schema, t->schema, t->schema, t->schema);
    has(surveyed(t, s), "act isolation: default_transaction_isolation is repeatable read (set for "
                        "role iso_");
    test_exec(t->conn, "DROP OWNED BY \"iso_%s\"; DROP ROLE \"iso_%s\"", t->schema, t->schema);
    has_not(surveyed(t, s), "isolation");
    test_exec(t->conn, "ALTER SYSTEM SET default_transaction_isolation = 'serializable'");
    test_exec(t->conn, "SELECT pg_reload_conf()");
    assert_true(test_wait(t->conn, 120,
                          "SELECT current_setting('default_transaction_isolation') = "
                          "'serializable'"));
    /* The store's own sessions ask for what they need. */
    weir_store *later = test_store(t);
    (void)test_put(t, later, "order-1", "Placed");
    has(surveyed(t, later), "is serializable (the server's default)");
    test_exec(t->conn, "ALTER SYSTEM RESET default_transaction_isolation");
    test_exec(t->conn, "SELECT pg_reload_conf()");
}

/* Long enough to be called old. */
static void grow_old(void)
{
    (void)usleep(150000);
}

static void a_transaction_that_holds_back_dead_rows_is_named(void **state)
{
    pg_test *t = *state;
    char expected[128];
    weir_store *s = test_store(t);
    PGconn *other = test_connect(t);
    const int64_t usual_us = weir__pg_old_transaction_us;
    weir__pg_old_transaction_us = 100000;
    has_not(surveyed(t, s), "old-transaction");

    test_exec(other, "SET application_name = 'forgotten'; BEGIN ISOLATION LEVEL REPEATABLE READ; "
                     "SELECT count(*) FROM pg_class");
    grow_old();
    const char *lines = surveyed(t, s);
    (void)snprintf(expected, sizeof expected,
                   "act old-transaction: process %d (application forgotten, "
                   "user postgres, idle in transaction)",
                   PQbackendPID(other));
    has(lines, expected);
    has(lines, " since 20");
    (void)snprintf(expected, sizeof expected, "SELECT pg_terminate_backend(%d)",
                   PQbackendPID(other));
    has(lines, expected);
    test_exec(other, "COMMIT");
    has_not(surveyed(t, s), "old-transaction");

    /* Idle with a row written, and no snapshot. */
    test_exec(other,
              "CREATE TABLE \"%s\".own (x integer); BEGIN; INSERT INTO \"%s\".own VALUES (1)",
              t->schema, t->schema);
    grow_old();
    has(surveyed(t, s), "application forgotten");
    test_exec(other, "COMMIT");

    test_exec(other, "BEGIN; INSERT INTO \"%s\".own VALUES (2); PREPARE TRANSACTION 'lost %s'",
              t->schema, t->schema);
    grow_old();
    (void)snprintf(expected, sizeof expected,
                   "act old-transaction: the prepared transaction 'lost %s'", t->schema);
    lines = surveyed(t, s);
    has(lines, expected);
    has(lines, "COMMIT PREPARED 'lost ");
    test_exec(other, "ROLLBACK PREPARED 'lost %s'", t->schema);
    has_not(surveyed(t, s), "old-transaction");
    weir__pg_old_transaction_us = usual_us;
}

static void who_keeps_the_note_of_what_is_final_is_named(void **state)
{
    pg_test *t = *state;
    char expected[256];
    weir_store *s = test_store(t);
    PGconn *other = test_connect(t);
    const int64_t usual_us = weir__pg_safe_kept_us;
    (void)test_put(t, s, "order-1", "Placed");
    weir__pg_safe_kept_us = 100000;
    has_not(surveyed(t, s), "safe-kept");

    test_exec(other, "SET application_name = 'reports'; BEGIN; SELECT \"%s\".safe_prove(%lld)",
              t->schema, (long long)INT64_MAX);
    grow_old();
    const char *lines = surveyed(t, s);
    (void)snprintf(expected, sizeof expected,
                   "act safe-kept: process %d (application reports, user postgres, idle in "
                   "transaction) has kept the row of \"%s\".safe since 20",
                   PQbackendPID(other), t->schema);
    has(lines, expected);
    (void)snprintf(expected, sizeof expected, "End it: SELECT pg_terminate_backend(%d)",
                   PQbackendPID(other));
    has(lines, expected);
    test_exec(other, "COMMIT");
    has_not(surveyed(t, s), "safe-kept");

    test_exec(other, "BEGIN; SELECT \"%s\".safe_prove(%lld); PREPARE TRANSACTION 'kept %s'",
              t->schema, (long long)INT64_MAX, t->schema);
    grow_old();
    (void)snprintf(expected, sizeof expected,
                   "act safe-kept: the prepared transaction 'kept %s' of postgres", t->schema);
    has(surveyed(t, s), expected);
    test_exec(other, "ROLLBACK PREPARED 'kept %s'", t->schema);
    has_not(surveyed(t, s), "safe-kept");
    weir__pg_safe_kept_us = usual_us;
}

/* What a standby with hot_standby_feedback tells the primary: keep everything from `xmin` on. */
static void feed_back(PGconn *conn, uint32_t xmin)
{
    const uint8_t fields[] = { (uint8_t)(xmin >> 24), (uint8_t)(xmin >> 16), (uint8_t)(xmin >> 8),
                               (uint8_t)xmin };
    char message[1 + 8 + 4 * 4] = { 'h' };
    memcpy(message + 9, fields, sizeof fields);
    assert_int_equal(PQputCopyData(conn, message, sizeof message), 1);
    assert_int_equal(PQflush(conn), 0);
}

/* A connection that replicates, from a slot or without one. */
static PGconn *replicate(const char *slot)
{
    char url[TEST_URL_BYTES + 64], command[256];
    (void)snprintf(url, sizeof url, "%s&replication=true&application_name=copy", test_server());
    PGconn *conn = PQconnectdb(url);
    assert_int_equal(PQstatus(conn), CONNECTION_OK);
    PGresult *system = PQexec(conn, "IDENTIFY_SYSTEM");
    assert_int_equal(PQresultStatus(system), PGRES_TUPLES_OK);
    (void)snprintf(command, sizeof command, "START_REPLICATION %s%s PHYSICAL %s",
                   slot == NULL ? "" : "SLOT ", slot == NULL ? "" : slot, PQgetvalue(system, 0, 2));
    PQclear(system);
    PGresult *started = PQexec(conn, command);
    assert_int_equal(PQresultStatus(started), PGRES_COPY_BOTH);
    PQclear(started);
    return conn;
}

static void a_slot_and_a_standby_that_hold_back_dead_rows_are_named(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t usual = weir__pg_old_transactions;
    const int64_t xmin = test_number(t->conn, "SELECT txid_current()");
    weir__pg_old_transactions = 3;
    for (int i = 0; i < 5; i++) {
        (void)test_put(t, s, "order-1", "Placed");
    }
    has_not(surveyed(t, s), "old-transaction");

    PGconn *standby = replicate(NULL);
    feed_back(standby, (uint32_t)xmin);
    assert_true(test_wait(t->conn, 120, "SELECT age(backend_xmin) >= 3 FROM pg_stat_replication"));
    has(surveyed(t, s), "act old-transaction: the standby copy with hot_standby_feedback has held "
                        "back the removal of dead rows, over ");
    PQfinish(standby);
    assert_true(test_wait(t->conn, 120, "SELECT count(*) = 0 FROM pg_stat_replication"));
    has_not(surveyed(t, s), "old-transaction");

    test_exec(t->conn, "SELECT pg_create_physical_replication_slot('left_over')");
    standby = replicate("left_over");
    feed_back(standby, (uint32_t)xmin);
    assert_true(test_wait(t->conn, 120, "SELECT age(xmin) >= 3 FROM pg_replication_slots"));
    PQfinish(standby);
    assert_true(test_wait(t->conn, 120, "SELECT NOT active FROM pg_replication_slots"));
    const char *lines = surveyed(t, s);
    has(lines, "act old-transaction: the replication slot left_over, which nobody uses, has held");
    has(lines, "End it: SELECT pg_drop_replication_slot('left_over').");
    test_exec(t->conn, "SELECT pg_drop_replication_slot('left_over')");
    has_not(surveyed(t, s), "old-transaction");
    weir__pg_old_transactions = usual;
}

static void a_table_full_of_dead_rows_is_told(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn, "ALTER TABLE \"%s\".work SET (autovacuum_enabled = false)", t->schema);
    has(surveyed(t, s), "act autovacuum: autovacuum is turned off for ");
    test_exec(t->conn,
              "BEGIN; INSERT INTO \"%s\".work SELECT 1, 1, n FROM generate_series(1, 120000) AS n; "
              "ROLLBACK",
              t->schema);
    assert_true(test_wait(t->conn, 120,
                          "SELECT n_dead_tup >= 120000 FROM pg_stat_user_tables WHERE schemaname = "
                          "'%s' AND relname = 'work'",
                          t->schema));
    const char *lines = surveyed(t, s);
    has(lines, "act bloat: ");
    has(lines, ".work has 120000 dead rows and 0 live ones");
    test_exec(t->conn, "VACUUM \"%s\".work", t->schema);
    assert_true(test_wait(t->conn, 120,
                          "SELECT n_dead_tup = 0 FROM pg_stat_user_tables WHERE schemaname = '%s' "
                          "AND relname = 'work'",
                          t->schema));
    has_not(surveyed(t, s), "bloat");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_store_as_it_was_made_has_no_findings),
        PG_TEST(settings_of_a_role_make_no_findings),
        PG_TEST(what_differs_from_what_this_version_makes_is_told),
        PG_TEST(a_function_whose_body_was_changed_is_told),
        PG_TEST(a_missing_index_is_told_with_what_makes_it),
        PG_TEST(an_index_that_a_failed_build_left_is_told),
        PG_TEST(an_index_that_a_cancelled_reindex_left_is_told),
        PG_TEST(a_sequence_that_keeps_positions_back_is_told),
        PG_TEST(a_trigger_and_a_column_of_others_on_our_tables_are_notes),
        PG_TEST(where_no_model_can_be_made_the_rest_is_checked),
        PG_TEST(rights_past_the_functions_are_told),
        PG_TEST(settings_that_endanger_something_are_told),
        PG_TEST(notifications_arrive_although_the_first_host_is_dead),
        PG_TEST(another_isolation_than_read_committed_is_told),
        PG_TEST(a_transaction_that_holds_back_dead_rows_is_named),
        PG_TEST(who_keeps_the_note_of_what_is_final_is_named),
        PG_TEST(a_slot_and_a_standby_that_hold_back_dead_rows_are_named),
        PG_TEST(a_table_full_of_dead_rows_is_told),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
