/* schema_test.c - what opening makes, upgrades, refuses and leaves alone.
 *
 * Method: real files, real processes. A schema 4 that does not exist is pretended; the processes
 * that upgrade at once are forked before anything is open.
 */
#include "store/sqlite/sqlite_testing.h"

#include "base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The real steps come first (setup). */
static sqlite_upgrade steps_to_4[] = {
    { .to = 2 },
    { .to = 3 },
    { .to = 4,
      .sql = "CREATE TABLE weir_made_up (x INTEGER NOT NULL) STRICT;"
             "INSERT INTO weir_made_up VALUES (4);" },
};
static const sqlite_schema schema_4 = { .version = 4, .steps = steps_to_4, .steps_count = 3 };

static sqlite_upgrade steps_broken[] = {
    { .to = 2 },
    { .to = 3 },
    { .to = 4,
      .sql = "CREATE TABLE weir_made_up (x INTEGER NOT NULL) STRICT;"
             "INSERT INTO weir_no_such_table VALUES (2);" },
};
static const sqlite_schema schema_broken = { .version = 4,
                                             .steps = steps_broken,
                                             .steps_count = 3 };

static int setup(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        steps_to_4[i] = steps_broken[i] = weir__sqlite_schema()->steps[i];
    }
    return testing_setup_bare(state);
}

static int teardown(void **state)
{
    weir__sqlite_schema_pretend(NULL);
    return testing_teardown(state);
}

static weir_status try_open(testing *t, uint32_t flags)
{
    weir_store *store = NULL;
    store_options options = t->options;
    options.open_flags = flags;
    const weir_status status = weir__sqlite_open(&store, &options, &t->err);
    testing_close(&store);
    return status;
}

static void write_file(const testing *t, const char *bytes)
{
    const int fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
    (void)close(fd);
}

static void a_missing_file_is_not_found_and_nothing_is_made(void **state)
{
    testing *t = *state;
    const uint32_t flags[] = { WEIR_OPEN_EXISTING, WEIR_OPEN_READONLY };
    for (size_t i = 0; i < 2; i++) {
        char expected[160];
        (void)snprintf(expected, sizeof expected, "no store at \"%s\"", t->path);
        assert_int_equal(try_open(t, flags[i]), WEIR_ENOTFOUND);
        assert_string_equal(t->err.message, expected);
        assert_false(testing_exists(t, ""));
        assert_false(testing_exists(t, "-weir"));
        assert_false(testing_exists(t, "-wal"));
    }
}

static void an_empty_file_and_a_database_without_tables_become_stores(void **state)
{
    testing *t = *state;
    write_file(t, "");
    assert_int_equal(try_open(t, WEIR_OPEN_EXISTING), WEIR_ENOTFOUND);
    assert_int_equal(try_open(t, 0), WEIR_OK);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_string_equal(testing_check(t->store), "");
    testing_close(&t->store);

    /* What a creation leaves that dies between the switch to WAL and its transaction. */
    assert_int_equal(unlink(t->path), 0);
    assert_int_equal(unlink(testing_file(t, "-wal")), 0);
    assert_int_equal(unlink(testing_file(t, "-shm")), 0);
    testing_sql(t, "PRAGMA page_size=4096; PRAGMA journal_mode=WAL;");
    assert_true(testing_bytes(t, "") > 0);
    assert_int_equal(try_open(t, WEIR_OPEN_EXISTING), WEIR_ENOTFOUND);
    assert_int_equal(try_open(t, 0), WEIR_OK);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_string_equal(testing_check(t->store), "");
}

static void a_file_that_is_no_database_is_refused_and_left_alone(void **state)
{
    testing *t = *state;
    const char text[] = "Dear diary, today I was mistaken for a database, which was very long ago "
                        "and took more than a hundred bytes to tell.\n";
    write_file(t, text);
    const uint32_t flags[] = { 0, WEIR_OPEN_EXISTING, WEIR_OPEN_READONLY, WEIR_OPEN_ADOPT };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(try_open(t, flags[i]), WEIR_ECORRUPT);
        assert_non_null(strstr(t->err.message, "not an SQLite database"));
        assert_non_null(strstr(t->err.message, "s.db"));
        assert_true(t->err.detail[0] != '\0');
        assert_false(testing_exists(t, "-weir"));
    }
    assert_int_equal(testing_bytes(t, ""), strlen(text));
}

static void somebody_elses_database_is_refused_unless_it_is_adopted(void **state)
{
    testing *t = *state;
    testing_sql(t, "CREATE TABLE shop (x); INSERT INTO shop VALUES (7)");
    assert_int_equal(try_open(t, 0), WEIR_EINVAL);
    assert_non_null(strstr(t->err.message, "without a store in it"));
    assert_string_equal(t->err.detail, "Run weir init --adopt to add a store to this database.");
    assert_int_equal(try_open(t, WEIR_OPEN_EXISTING), WEIR_EINVAL);
    assert_int_equal(try_open(t, WEIR_OPEN_READONLY), WEIR_EINVAL);
    assert_false(testing_exists(t, "-weir"));
    assert_int_equal(testing_number(t, "SELECT count(*) FROM sqlite_schema"), 1);

    t->store = testing_open(t, WEIR_OPEN_ADOPT);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(testing_number(t, "SELECT x FROM shop"), 7);
    assert_string_equal(testing_check(t->store), "");
    assert_int_equal(try_open(t, 0), WEIR_OK); /* it is a store now */
}

static void a_directory_and_memory_are_no_files(void **state)
{
    testing *t = *state;
    t->options.path = weir__str(t->dir);
    assert_int_equal(try_open(t, 0), WEIR_EINVAL);
    t->options.path = weir__str(":memory:");
    assert_int_equal(try_open(t, 0), WEIR_EINVAL);
    t->options.path = weir__str("");
    assert_int_equal(try_open(t, 0), WEIR_EINVAL);
    t->options.path = weir__str("/nowhere/at/all.db");
    assert_int_equal(try_open(t, 0), WEIR_EIO);
    assert_int_equal(try_open(t, WEIR_OPEN_READONLY), WEIR_ENOTFOUND);
    t->options.path = weir__str(t->path);
    t->options.vfs = weir__str("no-such-vfs");
    assert_int_equal(try_open(t, 0), WEIR_EINVAL);
}

static void a_newer_store_is_refused_and_both_versions_are_named(void **state)
{
    testing *t = *state;
    weir__sqlite_schema_pretend(&schema_4);
    assert_int_equal(try_open(t, 0), WEIR_OK);
    weir__sqlite_schema_pretend(NULL);
    const uint32_t flags[] = { 0, WEIR_OPEN_EXISTING, WEIR_OPEN_READONLY, WEIR_OPEN_ADOPT };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(try_open(t, flags[i]), WEIR_ENEWER);
        assert_non_null(strstr(t->err.message, "schema 4"));
        assert_non_null(strstr(t->err.message, "schema 3"));
    }
    assert_true(testing_exists(t, "-weir"));
    assert_int_equal(testing_number(t, "SELECT schema FROM weir_store"), 4);
}

static void upgrading_keeps_everything_and_who_is_behind_notices(void **state)
{
    testing *t = *state;
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);

    weir__sqlite_schema_pretend(&schema_4);
    assert_int_equal(try_open(t, WEIR_OPEN_READONLY), WEIR_EMISUSE); /* may not upgrade */
    weir_store *newer = testing_open(t, WEIR_OPEN_EXISTING);
    assert_int_equal(testing_number(t, "SELECT x FROM weir_made_up"), 4);
    assert_int_equal(testing_head(newer), 1);
    assert_int_equal(testing_append(newer, "order-1", &t->err), WEIR_OK);
    assert_string_equal(testing_check(newer), "");

    /* The handle from before the upgrade neither writes nor reads what it does not know. */
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ENEWER);
    store_positions positions;
    assert_int_equal(t->store->log->positions(t->store, &positions, &t->err), WEIR_ENEWER);
    assert_int_equal(testing_head(newer), 2);
    testing_close(&newer);
}

static void an_upgrade_that_fails_changes_nothing(void **state)
{
    testing *t = *state;
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    weir__sqlite_schema_pretend(&schema_broken);
    assert_int_equal(try_open(t, 0), WEIR_EIO);
    assert_non_null(strstr(t->err.message, "schema 4"));
    assert_int_equal(testing_number(t, "SELECT schema FROM weir_store"), 3);
    assert_int_equal(
        testing_number(t, "SELECT count(*) FROM sqlite_schema WHERE name = 'weir_made_up'"), 0);
    weir__sqlite_schema_pretend(NULL);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
}

static int open_and_append(void *ctx)
{
    testing *t = ctx;
    weir_store *store = NULL;
    if (weir__sqlite_open(&store, &t->options, &t->err) != WEIR_OK) {
        return 1;
    }
    const weir_status status = testing_append(store, "order-1", &t->err);
    testing_close(&store);
    return status == WEIR_OK ? 0 : 2;
}

static void run_at_once(testing *t, int64_t head)
{
    enum { CHILDREN = 6 };
    child children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = testing_fork(open_and_append, t);
    }
    for (int i = 0; i < CHILDREN; i++) {
        testing_go(&children[i]);
    }
    for (int i = 0; i < CHILDREN; i++) {
        assert_int_equal(testing_join(&children[i]), 0);
    }
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_int_equal(testing_head(t->store), head + CHILDREN);
    assert_string_equal(testing_check(t->store), "");
}

static void processes_that_create_at_once_all_get_the_same_store(void **state)
{
    run_at_once(*state, 0);
}

static void processes_that_upgrade_at_once_all_get_the_upgraded_store(void **state)
{
    testing *t = *state;
    assert_int_equal(open_and_append(t), 0);
    weir__sqlite_schema_pretend(&schema_4);
    run_at_once(t, 1);
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_made_up"), 1);
    assert_int_equal(testing_number(t, "SELECT schema FROM weir_store"), 4);
}

/* No file of this process may grow beyond so many bytes. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_creation_that_fails_removes_what_it_made(void **state)
{
    testing *t = *state;
    const rlim_t sizes[] = { 100, 4096, 3 * 4096, 10 * 4096 };
    for (size_t i = 0; i < 4; i++) {
        limit_files(sizes[i]);
        const weir_status status = try_open(t, 0);
        limit_files(RLIM_INFINITY);
        assert_int_equal(status, WEIR_EIO);
        assert_true(t->err.store_code[0] != '\0');
        assert_false(testing_exists(t, ""));
        assert_false(testing_exists(t, "-wal"));
        assert_false(testing_exists(t, "-shm"));
        assert_false(testing_exists(t, "-weir"));
    }
    t->store = testing_open(t, 0);
    assert_string_equal(testing_check(t->store), "");
}

static void the_plan_is_what_opening_would_run(void **state)
{
    testing *t = *state;
    weir_buffer sql = { 0 };
    assert_int_equal(weir__sqlite_plan(&t->options, &sql, &t->err), WEIR_OK);
    assert_true(weir__buffer_add(&sql, "", 1));
    assert_false(testing_exists(t, ""));
    assert_false(testing_exists(t, "-weir"));
    testing_sql(t, sql.ptr);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_string_equal(testing_check(t->store), "");
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);

    weir__buffer_clear(&sql);
    assert_int_equal(weir__sqlite_plan(&t->options, &sql, &t->err), WEIR_OK);
    assert_int_equal(sql.len, 0); /* up to date */

    weir__sqlite_schema_pretend(&schema_4);
    assert_int_equal(weir__sqlite_plan(&t->options, &sql, &t->err), WEIR_OK);
    assert_true(weir__buffer_add(&sql, "", 1));
    assert_non_null(strstr(sql.ptr, "weir_made_up"));
    assert_null(strstr(sql.ptr, "CREATE TABLE weir_events"));
    testing_close(&t->store);
    testing_sql(t, sql.ptr);
    t->store = testing_open(t, WEIR_OPEN_EXISTING);
    assert_string_equal(testing_check(t->store), "");
    weir__buffer_free(&sql);
}

static void the_plan_for_somebody_elses_database_leaves_it_alone(void **state)
{
    testing *t = *state;
    weir_buffer sql = { 0 };
    testing_sql(t, "CREATE TABLE shop (x)");
    assert_int_equal(weir__sqlite_plan(&t->options, &sql, &t->err), WEIR_EINVAL);
    t->options.open_flags = WEIR_OPEN_ADOPT;
    assert_int_equal(weir__sqlite_plan(&t->options, &sql, &t->err), WEIR_OK);
    assert_true(sql.len > 0);
    assert_false(testing_exists(t, "-weir"));
    assert_false(testing_exists(t, "-wal"));
    assert_false(testing_exists(t, "-shm"));
    assert_int_equal(testing_number(t, "SELECT count(*) FROM sqlite_schema"), 1);
    weir__buffer_free(&sql);
}

static void another_journal_is_switched_back(void **state)
{
    testing *t = *state;
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    testing_sql(t, "PRAGMA journal_mode=DELETE");
    t->store = testing_open(t, 0);
    assert_string_equal(testing_check(t->store), "");
    assert_int_equal(testing_head(t->store), 1);
}

/* A store_survey_fn; ctx: where the last line goes, of 512 bytes. */
static void survey_keep(void *ctx, bool act, const char *rule, const char *text, const char *advice)
{
    (void)snprintf(ctx, 512, "%s %s: %s (%s)", act ? "act" : "note", rule, text, advice);
}

static void a_trigger_of_others_on_our_tables_is_a_note(void **state)
{
    testing *t = *state;
    char line[512] = "";
    t->store = testing_open(t, 0);
    assert_non_null(t->store->about->survey);
    assert_int_equal(t->store->about->survey(t->store, survey_keep, line, &t->err), WEIR_OK);
    assert_string_equal(line, "");
    testing_sql(t, "CREATE TABLE mine (x); "
                   "CREATE TRIGGER of_mine AFTER INSERT ON mine BEGIN SELECT 1; END");
    assert_int_equal(t->store->about->survey(t->store, survey_keep, line, &t->err), WEIR_OK);
    assert_string_equal(line, "");

    /* Whatever its name is. */
    testing_sql(t, "CREATE TRIGGER weir_evil AFTER INSERT ON weir_events "
                   "BEGIN UPDATE weir_events SET name = 'x'; END");
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_EIO);
    assert_string_equal(testing_check(t->store), "");
    assert_int_equal(t->store->about->survey(t->store, survey_keep, line, &t->err), WEIR_OK);
    assert_non_null(strstr(line, "note schema: trigger weir_evil on weir_events is not Weir's: "
                                 "\"CREATE TRIGGER weir_evil AFTER INSERT ON weir_events BEGIN"));
    assert_non_null(strstr(line, "take it away if something is slow or refused"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_missing_file_is_not_found_and_nothing_is_made),
        TEST(an_empty_file_and_a_database_without_tables_become_stores),
        TEST(a_file_that_is_no_database_is_refused_and_left_alone),
        TEST(somebody_elses_database_is_refused_unless_it_is_adopted),
        TEST(a_directory_and_memory_are_no_files),
        TEST(a_newer_store_is_refused_and_both_versions_are_named),
        TEST(upgrading_keeps_everything_and_who_is_behind_notices),
        TEST(an_upgrade_that_fails_changes_nothing),
        TEST(processes_that_create_at_once_all_get_the_same_store),
        TEST(processes_that_upgrade_at_once_all_get_the_upgraded_store),
        TEST(a_creation_that_fails_removes_what_it_made),
        TEST(the_plan_is_what_opening_would_run),
        TEST(the_plan_for_somebody_elses_database_leaves_it_alone),
        TEST(another_journal_is_switched_back),
        TEST(a_trigger_of_others_on_our_tables_is_a_note),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
