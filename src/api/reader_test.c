/* reader_test.c - readers whose log becomes another one under them.
 *
 * SQLite's own backup writes an older copy over the file while the store is open: the same log by
 * its epoch, only shorter.
 */
#include "api/api.h"

#include "base/str.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct surroundings {
    char dir[32];
    char path[64], copy[64];
    weir *weir;
} surroundings;

static int setup(void **state)
{
    static surroundings s;
    char url[96];
    weir_error err;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    s = (surroundings){ .dir = "/tmp/weir-reader-XXXXXX" };
    if (mkdtemp(s.dir) == NULL) {
        return -1;
    }
    (void)snprintf(s.path, sizeof s.path, "%s/x.db", s.dir);
    (void)snprintf(s.copy, sizeof s.copy, "%s/copy.db", s.dir);
    (void)snprintf(url, sizeof url, "sqlite:%s", s.path);
    *state = &s;
    if (weir_open(&o, &s.weir, &err) != WEIR_OK) {
        print_error("%s\n", err.message);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    surroundings *s = *state;
    char command[64];
    weir_close(s->weir);
    (void)snprintf(command, sizeof command, "rm -r %s", s->dir);
    return system(command);
}

static void append(surroundings *s, int count)
{
    weir_error err;
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                               .name = weir__str("Happened") };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    for (int i = 0; i < count; i++) {
        if (weir_append(s->weir, &r, NULL, &err) != WEIR_OK) {
            fail_msg("append: %s", err.message);
        }
    }
}

/* Everything in one file becomes what is in the other. */
static void copy_database(const char *from, const char *to)
{
    sqlite3 *source = NULL, *target = NULL;
    assert_int_equal(sqlite3_open(from, &source), SQLITE_OK);
    assert_int_equal(sqlite3_open(to, &target), SQLITE_OK);
    sqlite3_backup *backup = sqlite3_backup_init(target, "main", source, "main");
    assert_non_null(backup);
    assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    assert_int_equal(sqlite3_backup_finish(backup), SQLITE_OK);
    assert_int_equal(sqlite3_close(source), SQLITE_OK);
    assert_int_equal(sqlite3_close(target), SQLITE_OK);
}

static weir_reader *follower_open(surroundings *s)
{
    const weir_log_options o = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    weir_reader *reader = NULL;
    weir_error err;
    if (weir_log_open(s->weir, &o, &reader, &err) != WEIR_OK) {
        fail_msg("open: %s", err.message);
    }
    return reader;
}

static int read_all(weir_reader *reader)
{
    const weir_event *event = NULL;
    weir_error err;
    int count = 0;
    do {
        if (weir_reader_next(reader, 0, &event, &err) != WEIR_OK) {
            fail_msg("next: %s", err.message);
        }
        count += event != NULL ? 1 : 0;
    } while (event != NULL);
    return count;
}

/* Two of five events are left. A look that does not wait must find it as well as one that does. */
static void set_back(surroundings *s, int32_t timeout_ms)
{
    const weir_event *event = NULL;
    weir_error err;
    append(s, 2);
    copy_database(s->path, s->copy);
    append(s, 3);
    weir_reader *reader = follower_open(s);
    assert_int_equal(read_all(reader), 5);
    assert_int_equal(read_all(reader), 0);
    copy_database(s->copy, s->path);
    assert_int_equal(weir_reader_next(reader, timeout_ms, &event, &err), WEIR_EREWOUND);
    assert_non_null(strstr(err.message, "log was rewound: this reader is at "));
    assert_non_null(strstr(err.message, " of a log that is not there any more; the one that is "
                                        "there now ends at "));
    assert_non_null(strstr(err.message, "at 5"));
    assert_non_null(strstr(err.message, "ends at 2"));
    weir_reader_close(reader);
    /* Who begins anew reads what is there. */
    reader = follower_open(s);
    assert_int_equal(read_all(reader), 2);
    weir_reader_close(reader);
}

static void C16_a_follower_is_told_of_a_log_that_was_set_back(void **state)
{
    set_back(*state, 5000);
}

static void C16_a_look_that_does_not_wait_is_told_as_well(void **state)
{
    set_back(*state, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(C16_a_follower_is_told_of_a_log_that_was_set_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(C16_a_look_that_does_not_wait_is_told_as_well, setup,
                                        teardown),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
