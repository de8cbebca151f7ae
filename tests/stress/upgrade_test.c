/* upgrade_test.c - stores of older schemas stay readable, are upgraded once, and newer ones are
 * refused.
 *
 * METHOD  A store file of each older schema is kept beside this program (schema1.db.gz and so on,
 * made by `upgrade_test --make FILE` when that schema was finished; never made again). It must open
 * and hold what was put into it then; what it lacks is added when it is opened for writing. A
 * made-up schema 4 stands in for the future: its step cannot be run twice, and eight processes that
 * open the file at once must all find it done. A step that fails, or loses power anywhere, leaves
 * the schema that was there.
 */
#include "api/api.h"
#include "power.h"
#include "store/sqlite/sqlite_private.h"
#include "support.h"

#include <inttypes.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESSES = 8, EVENTS = 25 };

/* The real steps come first (main). */
static sqlite_upgrade upgrade_steps[] = {
    { .to = 2 },
    { .to = 3 },
    { .to = 4,
      .sql = "CREATE TABLE weir_made_up (events INTEGER NOT NULL) STRICT;"
             "INSERT INTO weir_made_up SELECT count(*) FROM weir_events;"
             "ALTER TABLE weir_streams ADD COLUMN made_up TEXT NOT NULL DEFAULT 'yes';" },
};
static const sqlite_schema schema_4 = { .version = 4, .steps = upgrade_steps, .steps_count = 3 };

static sqlite_upgrade broken_steps[] = {
    { .to = 2 },
    { .to = 3 },
    { .to = 4,
      .sql = "CREATE TABLE weir_made_up (events INTEGER NOT NULL) STRICT;"
             "INSERT INTO no_such_table VALUES (1);" },
};
static const sqlite_schema schema_broken = { .version = 4,
                                             .steps = broken_steps,
                                             .steps_count = 3 };

/* ---- what is in the kept file --------------------------------------------------------------- */

static int32_t key_take(weir *w, const char *stream, weir_error *err)
{
    const weir_append_result *result = NULL;
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = text(stream),
                               .name = text("Stressed"), .data = text("{\"n\":0}") };
    const weir_key_change change = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE,
                                     .key = text("email:kept@example.org"),
                                     .stream = text(stream) };
    const weir_new_event *events[] = { &e };
    const weir_key_change *changes[] = { &change };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                    .events_count = 1,        .key_changes = changes,
                                    .key_changes_count = 1,   .key = text(stream) };
    const int32_t status = weir_append(w, &r, &result, err);
    weir_append_result_free(result);
    return status;
}

static void make_events(weir *w)
{
    weir_error err;
    for (int i = 0; i < EVENTS; i++) {
        char stream[16], data[32];
        (void)snprintf(stream, sizeof(stream), "kept-%d", i % 3);
        (void)snprintf(data, sizeof(data), "{\"n\":%d}", i);
        must(append_one(w, stream, WEIR_EXPECT_ANY, 0, data, NULL, NULL, &err) == WEIR_OK,
             "an append failed");
    }
    must(key_take(w, "keyed-1", &err) == WEIR_OK, "an append failed");
    must(weir_stream_close(w, text("kept-2"), NULL, &err) == WEIR_OK, "a close failed");
}

static void make_target(weir *w)
{
    weir_store *s = weir__store(w);
    weir_arena arena = { 0 };
    store_reaction reaction;
    store_lease_list list = { 0 };
    weir_error err;
    const store_reaction_declaration d = { .name = text("mail"),
                                           .all_names = true,
                                           .source = text("kept-*"),
                                           .rule = STORE_RULE_CONSTANT,
                                           .rule_text = text("all") };
    must(s->work->declare(s, &d, &arena, &reaction, &err) == WEIR_OK, "declare failed");
    const store_route_step step = { .reaction = reaction.id, .number = 1, .from = 0, .to = 20 };
    const store_mark mark = { .target = text("post"),
                              .lane = text("default"),
                              .source = text("kept-*"),
                              .first = 1,
                              .last = 20 };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    must(s->work->route(s, &route, NULL, &err) == WEIR_OK, "route failed");
    const store_lease_request r = { .lane = text("default"),
                                    .holder = text("then"),
                                    .lease_us = 1,
                                    .limit = 1,
                                    .all_reactions = true };
    must(s->work->turn(s, NULL, 0, &r, &list, &err) == WEIR_OK && list.leases_count == 1,
         "lease failed");
    weir__arena_free(&list.arena);
    weir__arena_free(&arena);
}

/* Makes the file that is kept, checkpointed into one piece. */
static int make(const char *path)
{
    sqlite3 *db = NULL;
    char *url = text_format("sqlite:%s", path);
    weir *w = store_open(url, 0);
    make_events(w);
    make_target(w);
    weir_close(w);
    must(sqlite3_open(path, &db) == SQLITE_OK &&
             sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) == SQLITE_OK,
         "cannot checkpoint");
    (void)sqlite3_close(db);
    free(url);
    return 0;
}

static int event_check(void *ctx, const weir_event *event)
{
    int64_t *count = ctx;
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "{\"n\":%" PRId64 "}", *count);
    if (*count < EVENTS) {
        assert_int_equal(event->data.len, strlen(expected));
        assert_memory_equal(event->data.ptr, expected, event->data.len);
        assert_int_equal(event->version, *count / 3);
    }
    assert_int_equal(event->id, *count + 1);
    assert_true(event->created_us > 0);
    (*count)++;
    return 0;
}

static void finding(void *ctx, const char *rule, const char *found, const char *advice)
{
    (void)advice;
    print_message("# %s: %s\n", rule, found);
    (*(int *)ctx)++;
}

/* Everything that was put into the kept file is there, and the store's own checks find so much
 * wrong. */
static void kept_check(weir *w)
{
    weir_error err;
    int64_t count = 0;
    int findings = 0;
    weir_store *s = weir__store(w);
    const weir_stream *info = NULL;
    store_targets_chunk targets = { 0 };
    const store_targets_query q = { .limit = 10 };

    assert_int_equal(weir_log(w, NULL, event_check, &count, &err), WEIR_OK);
    assert_int_equal(count, EVENTS + 2); /* keyed-1 and $closed */
    assert_int_equal(weir_stream_info(w, text("kept-2"), &info, &err), WEIR_OK);
    assert_int_equal(info->closed, 1);
    weir_stream_free(info);
    assert_int_equal(s->work->targets(s, &q, &targets, &err), WEIR_OK);
    assert_int_equal(targets.targets_count, 1);
    assert_true(targets.targets[0].fence >= 1);
    assert_int_equal(targets.targets[0].mark, 20);
    weir__arena_free(&targets.arena);
    assert_int_equal(s->about->check(s, finding, &findings, &err), WEIR_OK);
    assert_int_equal(findings, 0);
}

/* ---- the file, unpacked --------------------------------------------------------------------- */

typedef struct place {
    char *directory, *path, *url;
} place;

static place kept_unpack(int schema)
{
    const char *source = getenv("WEIR_SOURCE");
    place p = { .directory = directory_make("upgrade") };
    p.path = text_format("%s/s.db", p.directory);
    p.url = text_format("sqlite:%s", p.path);
    char *command = text_format("gzip -dc '%s/tests/stress/schema%d.db.gz' >'%s'",
                                source != NULL ? source : ".", schema, p.path);
    if (system(command) != 0) { /* NOLINT(cert-env33-c): a fixed command of this test's own */
        fail_msg("cannot unpack the kept store: %s", command);
    }
    free(command);
    return p;
}

static void place_remove(place *p)
{
    char *sound = integrity_check(p->path);
    assert_string_equal(sound, "ok");
    free(sound);
    directory_remove(p->directory);
    free(p->path);
    free(p->url);
}

/* The first number a query gives; -1: none. */
static int64_t number_of(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t out = -1;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        out = sqlite3_column_int64(stmt, 0);
    }
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return out;
}

static int64_t workers_of(weir *w)
{
    weir_store *s = weir__store(w);
    store_worker_list list = { 0 };
    assert_int_equal(s->about->workers(s, &list, NULL), WEIR_OK);
    const int64_t count = (int64_t)list.workers_count;
    weir__arena_free(&list.arena);
    return count;
}

static void worker_add(weir *w)
{
    weir_store *s = weir__store(w);
    const store_worker worker = { .name = text("w"), .host = text("h") };
    assert_int_equal(s->about->worker_beat(s, &worker, 1000000, NULL), WEIR_OK);
}

/* ---- tests -------------------------------------------------------------------------------- */

static void kept_store_opens_and_reads(int schema)
{
    weir_error err;
    int64_t at = -1;
    place p = kept_unpack(schema);
    /* Schema 1 is older than the table of workers and what they count, which a writer adds. */
    static const char there[] = "SELECT count(*) FROM sqlite_schema WHERE name = 'weir_workers'";
    const weir_options reading = { WEIR_OPTIONS_INIT, .flags = WEIR_OPEN_READONLY,
                                   .store_url = p.url };
    weir *w = NULL;
    assert_int_equal(weir_open(&reading, &w, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "opening it once for writing"));
    assert_int_equal(number_of(p.path, there), schema == 1 ? 0 : 1);
    assert_int_equal(number_of(p.path, "SELECT schema FROM weir_store"), schema);
    w = store_open(p.url, WEIR_OPEN_EXISTING);
    kept_check(w);
    assert_int_equal(key_take(w, "other-1", &err), WEIR_ETAKEN);
    assert_string_equal(err.stream, "keyed-1");
    weir_close(w);
    w = store_open(p.url, WEIR_OPEN_READONLY);
    kept_check(w);
    weir_close(w);
    w = store_open(p.url, WEIR_OPEN_EXISTING);
    assert_int_equal(number_of(p.path, there), 1);
    assert_int_equal(number_of(p.path, "SELECT schema FROM weir_store"), 3);
    worker_add(w);
    assert_int_equal(workers_of(w), 1);
    assert_int_equal(append_one(w, "kept-0", WEIR_EXPECT_EXACT, 8, "{}", &at, NULL, &err), WEIR_OK);
    assert_int_equal(at, 9);
    assert_int_equal(append_one(w, "kept-2", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err),
                     WEIR_ECLOSED);
    weir_close(w);
    place_remove(&p);
}

static void a_kept_store_of_schema_1_opens_and_reads(void **state)
{
    (void)state;
    kept_store_opens_and_reads(1);
}

static void a_kept_store_of_schema_2_opens_and_reads(void **state)
{
    (void)state;
    kept_store_opens_and_reads(2);
}

/* In a process of its own: opens as a library of schema 4 when the others do. */
static void upgrade_child(const place *p, int start)
{
    char byte = 0;
    weir *w = NULL;
    weir_error err;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = p->url };
    weir__sqlite_schema_pretend(&schema_4);
    if (read(start, &byte, 1) != 0) { /* the parent closes it for all of us at once */
        _exit(2);
    }
    const int32_t rc = weir_open(&o, &w, &err);
    if (rc != WEIR_OK) {
        (void)fprintf(stderr, "upgrade: %s\n", err.message);
        _exit(3);
    }
    const int32_t appended = append_one(w, "kept-0", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err);
    weir_close(w);
    _exit(appended == WEIR_OK ? 0 : 4);
}

static void processes_that_upgrade_at_once_do_it_once(void **state)
{
    (void)state;
    pid_t children[PROCESSES];
    int start[2];
    place p = kept_unpack(1);
    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            (void)close(start[1]);
            upgrade_child(&p, start[0]);
        }
        assert_true(children[i] > 0);
    }
    (void)close(start[0]);
    (void)close(start[1]);
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(number_of(p.path, "SELECT schema FROM weir_store"), 4);
    assert_int_equal(number_of(p.path, "SELECT count(*) FROM weir_made_up"), 1);
    assert_int_equal(number_of(p.path, "SELECT events FROM weir_made_up"), EVENTS + 2);
    assert_int_equal(number_of(p.path, "SELECT count(*) FROM weir_events"), EVENTS + 2 + PROCESSES);
    place_remove(&p);
}

static void a_store_of_a_newer_schema_is_refused_and_left_alone(void **state)
{
    (void)state;
    static const uint32_t ways[] = { 0, WEIR_OPEN_EXISTING, WEIR_OPEN_READONLY };
    place p = kept_unpack(1);
    weir__sqlite_schema_pretend(&schema_4);
    weir_close(store_open(p.url, 0));
    weir__sqlite_schema_pretend(NULL);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        weir *w = NULL;
        weir_error err;
        const weir_options o = { WEIR_OPTIONS_INIT, .flags = ways[i], .store_url = p.url };
        assert_int_equal(weir_open(&o, &w, &err), WEIR_ENEWER);
        assert_null(w);
        assert_non_null(strstr(err.message, "schema 4"));
        assert_non_null(strstr(err.message, "schema 3"));
    }
    assert_int_equal(number_of(p.path, "SELECT schema FROM weir_store"), 4);
    place_remove(&p);
}

static void an_upgrade_that_fails_leaves_the_store_as_it_was(void **state)
{
    (void)state;
    weir *w = NULL;
    weir_error err;
    place p = kept_unpack(1);
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = p.url };
    weir__sqlite_schema_pretend(&schema_broken);
    assert_int_not_equal(weir_open(&o, &w, &err), WEIR_OK);
    assert_non_null(strstr(err.message, "no_such_table"));
    weir__sqlite_schema_pretend(NULL);
    assert_int_equal(number_of(p.path, "SELECT schema FROM weir_store"), 1);
    assert_int_equal(
        number_of(p.path, "SELECT count(*) FROM sqlite_schema WHERE name = 'weir_made_up'"), 0);
    w = store_open(p.url, WEIR_OPEN_EXISTING);
    kept_check(w);
    weir_close(w);
    place_remove(&p);
}

/* Records the creation of a store and its upgrade, then cuts after every step. */
static void an_upgrade_that_loses_power_happens_whole_or_not_at_all(void **state)
{
    (void)state;
    int before = 0, after = 0;
    char *directory = directory_make("upgrade"), *cut = directory_make_volatile("cut");
    char *url = text_format("sqlite:%s/s.db?vfs=" POWER_VFS, directory);
    char *cut_path = text_format("%s/s.db", cut), *cut_url = text_format("sqlite:%s", cut_path);
    power_begin();
    weir *w = store_open(url, 0);
    make_events(w);
    weir_close(w);
    const size_t made = power_now();
    weir__sqlite_schema_pretend(&schema_4);
    weir_close(store_open(url, 0));
    const size_t steps = power_end();
    power_player *p = power_player_open();
    for (size_t step = 0; step <= steps; step++) {
        if (step >= made) {
            directory_empty(cut);
            power_player_cut(p, step % 2 == 0 ? POWER_LOSE_ALL : POWER_LOSE_SOME, step, cut);
            const int64_t schema = number_of(cut_path, "SELECT schema FROM weir_store");
            const int64_t there = number_of(cut_path, "SELECT events FROM weir_made_up");
            assert_true((schema == 3 && there == -1) || (schema == 4 && there == EVENTS + 2));
            before += schema == 3 ? 1 : 0;
            after += schema == 4 ? 1 : 0;
            weir_close(store_open(cut_url, WEIR_OPEN_EXISTING)); /* as a library of schema 4 */
            assert_int_equal(number_of(cut_path, "SELECT events FROM weir_made_up"), EVENTS + 2);
        }
        if (step < steps) {
            power_player_step(p);
        }
    }
    weir__sqlite_schema_pretend(NULL);
    assert_true(before > 0 && after > 0);
    power_player_close(p);
    directory_remove(directory);
    directory_remove(cut);
    free(url);
    free(cut_path);
    free(cut_url);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_upgrade_at_once_do_it_once),
        cmocka_unit_test(a_kept_store_of_schema_1_opens_and_reads),
        cmocka_unit_test(a_kept_store_of_schema_2_opens_and_reads),
        cmocka_unit_test(a_store_of_a_newer_schema_is_refused_and_left_alone),
        cmocka_unit_test(an_upgrade_that_fails_leaves_the_store_as_it_was),
        cmocka_unit_test(an_upgrade_that_loses_power_happens_whole_or_not_at_all),
    };
    if (argc == 3 && strcmp(argv[1], "--make") == 0) {
        return make(argv[2]);
    }
    for (size_t i = 0; i < 2; i++) {
        upgrade_steps[i] = broken_steps[i] = weir__sqlite_schema()->steps[i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
