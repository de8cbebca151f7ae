/* lock_rule_test.c - nothing but the writer commits, checkpoints or recovers, and only under the
 * side lock.
 *
 * METHOD  The store runs over a VFS that looks, at every write, at who holds which lock (rule.h):
 * through creation, many writers, readers beside them, leases, close, and a first open that
 * recovers the WAL. To know that the observer can see, plain SQLite then breaks each rule on
 * purpose.
 */
#include "rule.h"

#include "api/api.h"
#include "support.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

enum { WRITERS = 4, READERS = 2, APPENDS = 60 };

typedef struct place {
    char *directory, *path, *url;
} place;

static place place_make(void)
{
    place p = { .directory = directory_make("rule") };
    p.path = text_format("%s/s.db", p.directory);
    p.url = text_format("sqlite:%s?vfs=" RULE_VFS "&checkpoint=10", p.path);
    rule_register();
    rule_reset();
    return p;
}

static void place_remove(place *p)
{
    directory_remove(p->directory);
    free(p->path);
    free(p->url);
}

static void rule_check_kept(void)
{
    const rule_report r = rule_now();
    if (r.breaches > 0) {
        fail_msg("%" PRId64 " breaches; first: %s; %s; %s", r.breaches, r.first[0], r.first[1],
                 r.first[2]);
    }
}

/* ---- the store ---------------------------------------------------------------------------- */

static weir *shared;
static atomic_bool writing;

static void *writer_main(void *arg)
{
    char stream[32];
    const int *number = arg;
    (void)snprintf(stream, sizeof(stream), "s-%d", *number);
    for (int i = 0; i < APPENDS; i++) {
        weir_error err;
        must(append_one(shared, stream, WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err) == WEIR_OK,
             "an append failed");
    }
    return NULL;
}

static int event_count(void *ctx, const weir_event *event)
{
    (void)event;
    (*(int64_t *)ctx)++;
    return 0;
}

static void *reader_main(void *arg)
{
    (void)arg;
    do {
        int64_t count = 0;
        weir_error err;
        must(weir_log(shared, NULL, event_count, &count, &err) == WEIR_OK, "a read failed");
    } while (atomic_load(&writing));
    return NULL;
}

static void many_threads_keep_the_rule(void **state)
{
    (void)state;
    pthread_t writers[WRITERS], readers[READERS];
    int numbers[WRITERS];
    place p = place_make();
    shared = store_open(p.url, 0);
    atomic_store(&writing, true);
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&writers[i], NULL, writer_main, &numbers[i]), 0);
    }
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&readers[i], NULL, reader_main, NULL), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        (void)pthread_join(writers[i], NULL);
    }
    atomic_store(&writing, false);
    for (int i = 0; i < READERS; i++) {
        (void)pthread_join(readers[i], NULL);
    }
    weir_close(shared);
    rule_check_kept();
    const rule_report r = rule_now();
    print_message("# %" PRId64 " commits, %" PRId64 " checkpoints\n", r.commits, r.checkpoints);
    assert_true(r.commits > 0 && r.checkpoints > 0 && r.others > 0);
    place_remove(&p);
}

/* A connection that neither checkpoints nor lets a close of the store do so. */
static sqlite3 *raw_open(const place *p)
{
    sqlite3 *db = NULL;
    must(sqlite3_open_v2(p->path, &db, SQLITE_OPEN_READWRITE, RULE_VFS) == SQLITE_OK,
         "cannot open a database");
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    (void)sqlite3_wal_autocheckpoint(db, 0);
    return db;
}

static void raw_run(sqlite3 *db, const char *sql)
{
    must(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(db));
}

/* Closes a store that somebody else has open: the WAL stays, for the next opener to recover. */
static sqlite3 *close_beside(const place *p, weir *w)
{
    sqlite3 *db = raw_open(p);
    raw_run(db, "SELECT count(*) FROM weir_events");
    weir_close(w);
    return db;
}

static void the_first_to_open_recovers_under_the_side_lock(void **state)
{
    (void)state;
    static const uint32_t ways[] = { 0, WEIR_OPEN_EXISTING, WEIR_OPEN_READONLY };
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        int64_t count = 0;
        weir_error err;
        place p = place_make();
        weir *w = store_open(p.url, 0);
        assert_int_equal(append_one(w, "s-1", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_OK);
        (void)sqlite3_close(close_beside(&p, w));
        rule_reset();
        w = store_open(p.url, ways[i]);
        assert_int_equal(weir_log(w, NULL, event_count, &count, &err), WEIR_OK);
        assert_int_equal(count, 1);
        weir_close(w);
        rule_check_kept();
        assert_true(rule_now().recoveries > 0);
        place_remove(&p);
    }
}

static void every_other_verb_that_writes_keeps_the_rule(void **state)
{
    (void)state;
    weir_error err;
    place p = place_make();
    weir *w = store_open(p.url, 0);
    weir_store *s = weir__store(w);
    weir_arena arena = { 0 };
    store_reaction reaction;
    const store_reaction_declaration d = { .name = text("mail"),
                                           .all_names = true,
                                           .source = text("*"),
                                           .rule = STORE_RULE_CONSTANT,
                                           .rule_text = text("all") };
    assert_int_equal(s->work->declare(s, &d, &arena, &reaction, &err), WEIR_OK);
    for (int i = 0; i < 40; i++) {
        store_lease_list list = { 0 };
        store_operate op = { .verb = STORE_PAUSE, .by = text("test") };
        const store_route_step step = { .reaction = reaction.id, .number = reaction.number };
        const store_mark mark = { .target = text("post"),
                                  .lane = text("default"),
                                  .priority = i,
                                  .source = text("*"),
                                  .first = 1,
                                  .last = 1 };
        const store_route route = {
            .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
        };
        const store_lease_request r = { .lane = text("default"),
                                        .holder = text("test"),
                                        .lease_us = 1000000,
                                        .limit = 1,
                                        .all_reactions = true };
        const store_snapshot snapshot = {
            .stream = text("s-1"), .revision = text("1"), .version = i, .data = text("{}")
        };
        op.verb = i % 2 == 0 ? STORE_PAUSE : STORE_RESUME;
        assert_int_equal(s->work->route(s, &route, NULL, &err), WEIR_OK);
        assert_int_equal(s->work->turn(s, NULL, 0, &r, &list, &err), WEIR_OK);
        assert_int_equal(s->work->operate(s, &op, &err), WEIR_OK);
        assert_int_equal(s->log->snapshot_put(s, &snapshot, &err), WEIR_OK);
        weir__arena_free(&list.arena);
    }
    weir__arena_free(&arena);
    assert_int_equal(append_one(w, "s-1", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err), WEIR_OK);
    assert_int_equal(weir_stream_close(w, text("s-1"),
                                       &(weir_close_options){ WEIR_CLOSE_OPTIONS_INIT,
                                                              .flags = WEIR_CLOSE_FORCE },
                                       &err),
                     WEIR_OK);
    weir_close(w);
    rule_check_kept();
    assert_true(rule_now().commits > 0 && rule_now().checkpoints > 0);
    place_remove(&p);
}

/* ---- breaches, on purpose ------------------------------------------------------------------ */

/* A store with something in its WAL, and a raw connection to it that has read it. */
static sqlite3 *breach_begin(place *p)
{
    weir_error err;
    *p = place_make();
    weir *w = store_open(p->url, 0);
    must(append_one(w, "s-1", WEIR_EXPECT_ANY, 0, "{}", NULL, NULL, &err) == WEIR_OK,
         "an append failed");
    sqlite3 *db = close_beside(p, w);
    rule_reset();
    return db;
}

static void breach_check(const char *expected)
{
    const rule_report r = rule_now();
    assert_true(r.breaches > 0);
    assert_string_equal(r.first[0], expected);
}

static void a_commit_without_the_side_lock_is_seen(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    raw_run(db, "CREATE TABLE foreign_table (x)");
    breach_check("a commit (a change of the WAL) without the side lock");
    (void)sqlite3_close(db);
    place_remove(&p);
}

static void a_checkpoint_without_the_side_lock_is_seen(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    raw_run(db, "PRAGMA wal_checkpoint(PASSIVE)");
    breach_check("a checkpoint (a change of the database file) without the side lock");
    (void)sqlite3_close(db);
    place_remove(&p);
}

static void a_close_that_checkpoints_is_seen(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    assert_int_equal(rule_now().breaches, 0);
    (void)sqlite3_close(db);
    breach_check("a checkpoint (a change of the database file) without the side lock");
    place_remove(&p);
}

static void a_close_that_checkpoints_under_the_side_lock_breaks_nothing(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    weir *w = store_open(p.url, 0);
    (void)sqlite3_close(db);
    const int64_t before = rule_now().checkpoints;
    weir_close(w);
    rule_check_kept();
    assert_true(rule_now().checkpoints > before);
    place_remove(&p);
}

static void a_checkpoint_beside_the_writer_is_seen(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    char *side = text_format("%s-weir", p.path);
    const int fd = open(side, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    raw_run(db, "PRAGMA wal_checkpoint(PASSIVE)");
    breach_check("a checkpoint (a change of the database file) without the writer's transaction");
    (void)close(fd);
    (void)sqlite3_close(db);
    free(side);
    place_remove(&p);
}

static void a_recovery_without_the_side_lock_is_seen(void **state)
{
    (void)state;
    place p;
    sqlite3 *db = breach_begin(&p);
    (void)sqlite3_close(db);
    db = raw_open(&p);
    raw_run(db, "SELECT count(*) FROM weir_events");
    breach_check("a recovery of the WAL without the side lock");
    (void)sqlite3_close(db);
    place_remove(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_keep_the_rule),
        cmocka_unit_test(the_first_to_open_recovers_under_the_side_lock),
        cmocka_unit_test(every_other_verb_that_writes_keeps_the_rule),
        cmocka_unit_test(a_commit_without_the_side_lock_is_seen),
        cmocka_unit_test(a_checkpoint_without_the_side_lock_is_seen),
        cmocka_unit_test(a_close_that_checkpoints_is_seen),
        cmocka_unit_test(a_close_that_checkpoints_under_the_side_lock_breaks_nothing),
        cmocka_unit_test(a_checkpoint_beside_the_writer_is_seen),
        cmocka_unit_test(a_recovery_without_the_side_lock_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
