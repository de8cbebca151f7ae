/* race_test.c - races in memory and on SQLite files, line by line; what is refused; being stopped.
 * What the program prints, and PostgreSQL: tests/e2e/cli_race_test.py.
 */
#include "race/race_private.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

enum { STEPS_MAX = 4096 };

typedef struct fixture {
    char directory[64];
    char path[96];
    char url[160];
    int fd; /* side effects */
    race *race;
    weir_error err;
    /* what was said */
    char table[RACE_TABLE_BYTES];
    size_t said[RACE_WHATS_COUNT];
    size_t rows_count;        /* lines of rows */
    int64_t given[STEPS_MAX]; /* rows of GETS and SEES, in the order in which they were said */
    size_t given_count;
    int64_t elapsed_us; /* of the last step */
    bool result;
    int64_t effects, doubled;
} fixture;

static int64_t database_number(const fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 60 * 1000); /* workers commit meanwhile */
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    const int rc = sqlite3_step(stmt);
    assert_true(rc == SQLITE_ROW || rc == SQLITE_DONE);
    const int64_t number = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return number;
}

static int64_t tables_left(const fixture *f)
{
    return database_number(f, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'weir_race%'");
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    char effects[128];
    assert_non_null(f);
    strcpy(f->directory, "/tmp/weir-race-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/a.db", f->directory);
    snprintf(f->url, sizeof f->url, "sqlite:%s", f->path);
    snprintf(effects, sizeof effects, "%s/effects", f->directory);
    f->fd = open(effects, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(f->fd >= 0);
    (void)database_number(f, "CREATE TABLE customers (id INTEGER PRIMARY KEY)");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    close(f->fd);
    snprintf(command, sizeof command, "rm -rf %s", f->directory);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static race_options options_of(const fixture *f, const char *url, race_mode mode)
{
    return (race_options){ .url = url,
                           .mode = mode,
                           .workers = 2,
                           .rows = 3,
                           .limit = 1,
                           .pause_us = 1000,
                           .effects_fd = f->fd };
}

static void start(fixture *f, const race_options *o)
{
    memset(f->said, 0, sizeof f->said);
    f->rows_count = f->given_count = 0;
    f->effects = f->doubled = f->elapsed_us = 0;
    f->result = false;
    if (weir__race_start(&f->race, o, &f->err) != WEIR_OK) {
        fail_msg("no race: %s", f->err.message);
    }
}

static void take(fixture *f, const race_line *line)
{
    switch (line->kind) {
    case RACE_LINE_LEFT:
        break;
    case RACE_LINE_TABLE:
        snprintf(f->table, sizeof f->table, "%.*s", (int)line->text.len, line->text.ptr);
        break;
    case RACE_LINE_STEP:
        assert_true(line->elapsed_us >= f->elapsed_us);
        f->elapsed_us = line->elapsed_us;
        f->said[line->what]++;
        for (size_t i = 0; i < line->rows_count; i++) {
            if (line->what == RACE_GETS || line->what == RACE_SEES) {
                f->given[f->given_count++] = line->rows[i];
            }
        }
        break;
    case RACE_LINE_ROW:
        f->rows_count++;
        break;
    case RACE_LINE_RESULT:
        f->result = true;
        f->effects = line->effects;
        f->doubled = line->doubled;
        break;
    }
}

/* Takes lines until the race is over, or `what` was said so many times. */
static void follow(fixture *f, race_what what, size_t count)
{
    while (!weir__race_over(f->race) && (count == 0 || f->said[what] < count)) {
        const race_line *line = weir__race_next(f->race);
        if (line != NULL) {
            take(f, line);
        } else {
            struct pollfd fd = { .fd = weir__race_fd(f->race), .events = POLLIN };
            (void)poll(&fd, 1, -1);
        }
    }
}

static weir_status end(fixture *f)
{
    const weir_status status = weir__race_end(f->race, &f->err);
    f->race = NULL;
    return status;
}

static void run(fixture *f, const race_options *o)
{
    start(f, o);
    follow(f, RACE_ASKS, 0);
    if (end(f) != WEIR_OK) {
        fail_msg("the race failed: %s", f->err.message);
    }
    assert_true(f->result);
    assert_int_equal(f->rows_count, o->rows);
    assert_int_equal(f->said[RACE_ASKS], o->workers);
    assert_int_equal(f->said[RACE_SENDS], f->effects);
    assert_int_equal(f->said[RACE_WRITES], f->effects);
    assert_int_equal(f->given_count, f->effects);
    assert_int_equal(f->said[RACE_FAILS], 0);
}

static void each_mode(fixture *f, const char *url)
{
    static const int64_t doubled[RACE_MODES_COUNT] = { [RACE_AUTOCOMMIT] = 1, [RACE_NONE] = 1 };
    for (int mode = 0; mode < RACE_MODES_COUNT; mode++) {
        const race_options o = options_of(f, url, (race_mode)mode);
        run(f, &o);
        assert_int_equal(f->effects, 2);
        assert_int_equal(f->doubled, doubled[mode]);
        /* Both the first row, or the first and the second: who says so first is no matter. */
        assert_int_equal(f->given[0] + f->given[1], doubled[mode] == 1 ? 2 : 3);
        assert_int_equal(tables_left(f), 0);
    }
}

static void C36_claims_double_nothing_and_the_wrong_ways_do_sqlite(void **state)
{
    fixture *f = *state;
    each_mode(f, f->url);
}

static void C36_claims_double_nothing_and_the_wrong_ways_do_memory(void **state)
{
    each_mode(*state, "memory:");
}

static void many_workers_and_few_rows(void **state)
{
    fixture *f = *state;
    race_options o = options_of(f, "memory:", RACE_SKIP);
    o.workers = 32;
    o.rows = 5;
    o.pause_us = 0; /* and still nobody works before all have looked */
    run(f, &o);
    assert_int_equal(f->effects, 5);
    assert_int_equal(f->doubled, 0);
    o.mode = RACE_NONE;
    run(f, &o);
    assert_int_equal(f->effects, 32);
    assert_int_equal(f->doubled, 31);
}

static void a_kept_table_is_what_was_printed(void **state)
{
    fixture *f = *state;
    char sql[128];
    race_options o = options_of(f, f->url, RACE_SKIP);
    o.keep = true;
    run(f, &o);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE status = 'done'", f->table);
    assert_int_equal(database_number(f, sql), 2);
    snprintf(sql, sizeof sql, "SELECT count(DISTINCT claimed_by) FROM %s", f->table);
    assert_int_equal(database_number(f, sql), 2);
    assert_int_equal(weir__race_drop(f->url, weir__str(f->table), &f->err), WEIR_OK);
    assert_int_equal(tables_left(f), 0);
    assert_int_equal(weir__race_drop(f->url, weir__str(f->table), &f->err), WEIR_ENOTFOUND);
}

static void numbers_at_their_limits_and_past_them(void **state)
{
    fixture *f = *state;
    const race_options good = options_of(f, "memory:", RACE_SKIP);
    race_options o = good;
    o.workers = RACE_WORKERS_MAX;
    o.rows = RACE_ROWS_MAX;
    o.limit = RACE_ROWS_MAX;
    o.pause_us = RACE_PAUSE_US_MAX;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_OK);
    o.workers = RACE_WORKERS_MAX + 1;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_EINVAL);
    o = good;
    o.rows = RACE_ROWS_MAX + 1;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_EINVAL);
    o = good;
    o.limit = RACE_ROWS_MAX + 1;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_EINVAL);
    o = good;
    o.pause_us = RACE_PAUSE_US_MAX + 1;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_EINVAL);
    o = good;
    o.workers = 0;
    assert_int_equal(weir__race_start(&f->race, &o, &f->err), WEIR_EINVAL);
    assert_null(f->race);
    o = good;
    o.limit = 0;
    assert_int_equal(weir__race_check(&o, &f->err), WEIR_EINVAL);
}

static void stopping_drops_the_table_and_sends_nothing_more(void **state)
{
    fixture *f = *state;
    for (int mode = 0; mode < RACE_MODES_COUNT; mode++) {
        race_options o = options_of(f, f->url, (race_mode)mode);
        const race_what answer = mode == RACE_SKIP || mode == RACE_WAIT ? RACE_GETS : RACE_SEES;
        o.pause_us = RACE_PAUSE_US_MAX;
        start(f, &o);
        follow(f, answer, 1);
        assert_int_equal(tables_left(f), 1);
        weir__race_stop(f->race);
        follow(f, RACE_ASKS, 0);
        assert_int_equal(end(f), WEIR_OK);
        assert_false(f->result);
        assert_int_equal(f->said[RACE_SENDS], 0);
        assert_int_equal(lseek(f->fd, 0, SEEK_END), 0);
        assert_int_equal(tables_left(f), 0);
    }
}

static void ending_without_taking_a_line_leaves_nothing(void **state)
{
    fixture *f = *state;
    race_options o = options_of(f, f->url, RACE_WAIT);
    o.pause_us = RACE_PAUSE_US_MAX;
    start(f, &o);
    assert_int_equal(end(f), WEIR_OK);
    assert_int_equal(tables_left(f), 0);
}

static void a_database_that_is_not_there_is_an_error(void **state)
{
    fixture *f = *state;
    const race_options o = options_of(f, "sqlite:/nowhere/at/all.db", RACE_SKIP);
    start(f, &o);
    follow(f, RACE_ASKS, 0);
    assert_int_equal(end(f), WEIR_ENOTFOUND);
    assert_false(f->result);
}

static void side_effects_are_counted_as_they_are_in_the_file(void **state)
{
    fixture *f = *state;
    int64_t counts[3] = { 0 };
    assert_int_equal(write(f->fd, "before\n", 7), 7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir__race_effect_send(f->fd, i == 2 ? 1 : i + 1, 1, &f->err), WEIR_OK);
    }
    assert_int_equal(weir__race_effects_count(f->fd, 7, counts, 3, &f->err), WEIR_OK);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 0);
    assert_int_equal(weir__race_effects_count(f->fd, 7, counts, 1, &f->err), WEIR_EIO);
    assert_int_equal(weir__race_effects_count(f->fd, 0, counts, 3, &f->err), WEIR_EIO);
    assert_int_equal(write(f->fd, "{\"row\":1", 8), 8);
    assert_int_equal(weir__race_effects_count(f->fd, 7, counts, 3, &f->err), WEIR_EIO);
}

static void side_effects_need_a_regular_file(void **state)
{
    fixture *f = *state;
    int fds[2];
    race_options o = options_of(f, "memory:", RACE_SKIP);
    assert_int_equal(pipe(fds), 0);
    o.effects_fd = fds[1];
    assert_int_equal(weir__race_start(&f->race, &o, &f->err), WEIR_EINVAL);
    close(fds[0]);
    close(fds[1]);
}

static void only_tables_of_races_are_dropped(void **state)
{
    fixture *f = *state;
    static const char *const names[] = { "customers",
                                         "",
                                         "weir_race_",
                                         "weir_race_0123456789abcde",
                                         "weir_race_0123456789abcdef0",
                                         "weir_race_0123456789ABCDEF",
                                         "weir_race_0123456789abcde;" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(weir__race_drop(f->url, weir__str(names[i]), &f->err), WEIR_EINVAL);
    }
    assert_int_equal(weir__race_drop(f->url,
                                     (weir_str){ .ptr = "weir_race_0123456789abcde\0", .len = 26 },
                                     &f->err),
                     WEIR_EINVAL);
    assert_int_equal(database_number(f, "SELECT count(*) FROM customers"), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
#define RACE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        RACE_TEST(C36_claims_double_nothing_and_the_wrong_ways_do_sqlite),
        RACE_TEST(C36_claims_double_nothing_and_the_wrong_ways_do_memory),
        RACE_TEST(many_workers_and_few_rows),
        RACE_TEST(a_kept_table_is_what_was_printed),
        RACE_TEST(numbers_at_their_limits_and_past_them),
        RACE_TEST(stopping_drops_the_table_and_sends_nothing_more),
        RACE_TEST(ending_without_taking_a_line_leaves_nothing),
        RACE_TEST(a_database_that_is_not_there_is_an_error),
        RACE_TEST(side_effects_are_counted_as_they_are_in_the_file),
        RACE_TEST(side_effects_need_a_regular_file),
        RACE_TEST(only_tables_of_races_are_dropped),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("race_test", tests, NULL, NULL);
}
