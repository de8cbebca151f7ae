/* transaction_test.c - one writer at a time, time that never goes back, readers that hold nothing,
 * and checkpoints by nobody but the writer.
 *
 * Method: two handles on one file stand for two processes (their side locks are apart); where
 * threads meet, the test waits for the condition that it needs, never for a time.
 */
#include "store/sqlite/sqlite_testing.h"

#include "base/error.h"
#include "base/str.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sqlite_store *store_of(const testing *t)
{
    return sqlite_of(t->store);
}

static void begin(sqlite_store *s, uint32_t flags, sqlite_conn **conn, int64_t *now_us)
{
    weir_error err;
    if (weir__sqlite_write_begin(s, flags, conn, now_us, &err) != WEIR_OK) {
        fail_msg("could not begin: %s", err.message);
    }
}

static void put_category(sqlite_conn *conn, const char *name)
{
    static const char sql[] = "INSERT INTO weir_categories (name) VALUES (?1)";
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(weir__sqlite_statement(conn, sql, &stmt, NULL), WEIR_OK);
    weir__sqlite_bind_str(stmt, 1, weir__str(name));
    assert_int_equal(weir__sqlite_run(conn, stmt, NULL), WEIR_OK);
}

static void a_failed_transaction_leaves_nothing_and_keeps_its_error(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    begin(store_of(t), 0, &conn, &now_us);
    put_category(conn, "a");
    const weir_status status = weir__fail(&t->err, WEIR_ETAKEN, "mine");
    assert_int_equal(weir__sqlite_write_end(store_of(t), status, true, &t->err), WEIR_ETAKEN);
    assert_string_equal(t->err.message, "mine");
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_categories"), 0);

    begin(store_of(t), 0, &conn, &now_us);
    put_category(conn, "a");
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, true, &t->err), WEIR_OK);
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_categories"), 1);
}

static void another_writer_waits_until_its_deadline_and_writes_nothing(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    t->options.busy_us = 30 * 1000;
    weir_store *other = testing_open(t, 0);
    begin(store_of(t), 0, &conn, &now_us);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_EBUSY);
    assert_non_null(strstr(t->err.message, "store is busy: waited"));
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);
    assert_int_equal(testing_head(other), 0);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    testing_close(&other);
}

static void an_append_that_has_waited_elsewhere_does_not_wait_again(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    double waited = 0;
    t->options.busy_us = INT64_C(3600) * 1000000;
    weir_store *other = testing_open(t, 0);
    const int64_t past_us =
        weir__clock_mono(weir__clock_machine()) + t->options.busy_us - INT64_C(3610) * 1000000;
    store_append_stream streams[1] = { { .name = weir__str("order-1") } };
    store_append append = { .streams = streams, .streams_count = 1, .deadline_us = past_us };
    store_append *appends[1] = { &append };
    begin(store_of(t), 0, &conn, &now_us);
    /* Would take an hour. */
    assert_int_equal(other->log->append(other, appends, 1, &t->err), WEIR_EBUSY);
    assert_int_equal(sscanf(t->err.message, "store is busy: waited %lf s for", &waited), 1);
    assert_true(waited >= 3610); /* where it was does not matter to who asks */
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);
    assert_int_equal(other->log->append(other, appends, 1, &t->err), WEIR_OK); /* tries once */
    testing_close(&other);
}

static void a_foreign_writer_is_waited_for_until_the_same_deadline(void **state)
{
    testing *t = *state;
    sqlite3 *db = NULL;
    t->options.busy_us = 30 * 1000;
    weir_store *other = testing_open(t, 0);
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_EBUSY);
    assert_non_null(strstr(t->err.message, "another program"));
    /* The side lock was let go of: who does not need the database is not kept out. */
    assert_int_equal(weir__side_lock(&store_of(t)->side, 0, &t->err), WEIR_OK);
    weir__side_unlock(&store_of(t)->side);
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    testing_close(&other);
}

static void writing_inside_a_write_of_the_same_thread_is_misuse(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    begin(store_of(t), 0, &conn, &now_us);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_EMISUSE);
    assert_int_equal(testing_head(t->store), 0); /* reading is allowed: it is another connection */
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);
}

static void a_transaction_that_was_ended_from_inside_is_misuse(void **state)
{
    testing *t = *state;
    const char *const endings[] = { "COMMIT", "ROLLBACK" };
    for (size_t i = 0; i < 2; i++) {
        sqlite_conn *conn = NULL;
        int64_t now_us = 0;
        begin(store_of(t), 0, &conn, &now_us);
        assert_int_equal(weir__sqlite_exec(conn, endings[i], NULL), WEIR_OK);
        assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err),
                         WEIR_EMISUSE);
    }
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
}

static void a_reading_handle_refuses_to_write(void **state)
{
    testing *t = *state;
    weir_store *reader = testing_open(t, WEIR_OPEN_READONLY);
    assert_int_equal(testing_append(reader, "order-1", &t->err), WEIR_EMISUSE);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(testing_head(reader), 1);
    assert_string_equal(testing_check(reader), "");
    testing_close(&reader);
}

static void time_never_goes_back_whoever_writes_and_whatever_the_clock_says(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t first_us = 0;
    int64_t now_us = 0;
    const int64_t noon = INT64_C(1800000000000000);

    t->wall_us = noon;
    begin(store_of(t), 0, &conn, &first_us);
    assert_int_equal(first_us, noon);
    put_category(conn, "kept in weir_store");
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);

    t->wall_us = noon - 3600 * INT64_C(1000000); /* an hour back */
    weir_store *other = testing_open(t, 0);
    assert_int_equal(other->about->now(other, &now_us, &t->err), WEIR_OK);
    assert_true(now_us >= noon);
    t->mono_us += 5;
    assert_int_equal(other->about->now(other, &now_us, &t->err), WEIR_OK);
    assert_int_equal(now_us, noon + 5); /* and it does not stand still */

    t->wall_us = noon + 100;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    t->wall_us = noon;
    assert_int_equal(other->about->now(other, &now_us, &t->err), WEIR_OK);
    assert_true(now_us >= noon + 100); /* from the event that the other has written */
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    assert_string_equal(testing_check(other), "");
    testing_close(&other);
}

typedef struct reading {
    sqlite_store *store;
    _Atomic int begun;
    weir_status status;
} reading;

static void *read_once(void *ctx)
{
    reading *r = ctx;
    sqlite_conn *conn = NULL;
    r->begun = 1;
    r->status = weir__sqlite_read_begin(r->store, &conn, NULL);
    if (r->status == WEIR_OK) {
        weir__sqlite_read_end(r->store, conn);
    }
    return NULL;
}

static void the_ninth_reader_waits_for_one_of_eight(void **state)
{
    testing *t = *state;
    sqlite_conn *conns[SQLITE_READERS_MAX];
    for (int i = 0; i < SQLITE_READERS_MAX; i++) {
        assert_int_equal(weir__sqlite_read_begin(store_of(t), &conns[i], &t->err), WEIR_OK);
        for (int j = 0; j < i; j++) {
            assert_ptr_not_equal(conns[i], conns[j]);
        }
    }
    reading r = { .store = store_of(t) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_once, &r), 0);
    while (r.begun == 0) {
        (void)usleep(100);
    }
    weir__sqlite_read_end(store_of(t), conns[3]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(r.status, WEIR_OK);
    for (int i = 0; i < SQLITE_READERS_MAX; i++) {
        if (i != 3) {
            weir__sqlite_read_end(store_of(t), conns[i]);
        }
    }
}

static void a_ninth_reader_is_told_when_nobody_makes_room(void **state)
{
    testing *t = *state;
    sqlite_conn *conns[SQLITE_READERS_MAX];
    sqlite_conn *ninth = NULL;
    t->options.busy_us = 20 * 1000;
    weir_store *other = testing_open(t, 0);
    for (int i = 0; i < SQLITE_READERS_MAX; i++) {
        assert_int_equal(weir__sqlite_read_begin(sqlite_of(other), &conns[i], &t->err), WEIR_OK);
    }
    assert_int_equal(weir__sqlite_read_begin(sqlite_of(other), &ninth, &t->err), WEIR_EBUSY);
    for (int i = 0; i < SQLITE_READERS_MAX; i++) {
        weir__sqlite_read_end(sqlite_of(other), conns[i]);
    }
    testing_close(&other);
}

static void an_open_cursor_does_not_keep_a_reader_in_its_transaction(void **state)
{
    testing *t = *state;
    static const char sql[] = "SELECT id FROM weir_events ORDER BY id";
    sqlite_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 3, &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_read_begin(store_of(t), &conn, &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_statement(conn, sql, &stmt, &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_step(conn, stmt, &row, &t->err), WEIR_OK);
    assert_true(row);
    weir__sqlite_read_end(store_of(t), conn); /* without finishing the cursor */
    assert_int_equal(sqlite3_txn_state(conn->db, NULL), SQLITE_TXN_NONE);
}

static int64_t pragma(sqlite_conn *conn, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    assert_int_equal(weir__sqlite_statement(conn, sql, &stmt, NULL), WEIR_OK);
    assert_int_equal(weir__sqlite_step(conn, stmt, &row, NULL), WEIR_OK);
    const int64_t value = sqlite3_column_int64(stmt, 0);
    weir__sqlite_done(stmt);
    return value;
}

static void what_hands_out_a_fence_is_synced_although_the_rest_is_not(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    enum { NORMAL = 1, FULL = 2 };

    begin(store_of(t), 0, &conn, &now_us);
    assert_int_equal(pragma(conn, "PRAGMA synchronous"), FULL);
    assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);

    t->options.sync_normal = true;
    weir_store *other = testing_open(t, 0);
    for (int i = 0; i < 4; i++) {
        const uint32_t flags = i % 2 == 1 ? SQLITE_TX_DURABLE : 0;
        begin(sqlite_of(other), flags, &conn, &now_us);
        assert_int_equal(pragma(conn, "PRAGMA synchronous"), flags == 0 ? NORMAL : FULL);
        assert_int_equal(weir__sqlite_write_end(sqlite_of(other), WEIR_OK, false, &t->err),
                         WEIR_OK);
    }
    testing_close(&other);
}

static void a_hint_is_not_synced_and_what_comes_after_it_is(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    enum { NORMAL = 1, FULL = 2 };

    for (int i = 0; i < 4; i++) {
        const uint32_t flags = i % 2 == 1 ? SQLITE_TX_HINT : 0;
        begin(store_of(t), flags, &conn, &now_us);
        assert_int_equal(pragma(conn, "PRAGMA synchronous"), flags == 0 ? FULL : NORMAL);
        assert_int_equal(weir__sqlite_write_end(store_of(t), WEIR_OK, false, &t->err), WEIR_OK);
    }
    /* A worker's beat is one, an append is none. */
    const store_worker worker = { .name = weir__str("w"), .host = weir__str("h") };
    assert_int_equal(t->store->about->worker_beat(t->store, &worker, 1000, &t->err), WEIR_OK);
    assert_false(store_of(t)->database.sync_full);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_true(store_of(t)->database.sync_full);
}

static void every_connection_has_the_settings_that_keep_processes_safe(void **state)
{
    testing *t = *state;
    sqlite_store *s = store_of(t);
    sqlite_conn *reader = NULL;
    s->database.checkpoint_pages = 1;
    s->database.checkpoint_next = 1;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_non_null(s->checkpointer.db);
    assert_int_equal(weir__sqlite_read_begin(s, &reader, &t->err), WEIR_OK);
    sqlite_conn *const conns[] = { &s->writer, &s->checkpointer, reader };
    for (size_t i = 0; i < 3; i++) {
        int no_checkpoint = 0;
        assert_int_equal(
            sqlite3_db_config(conns[i]->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1, &no_checkpoint),
            SQLITE_OK);
        assert_int_equal(no_checkpoint, 1);
        assert_int_equal(pragma(conns[i], "PRAGMA wal_autocheckpoint"), 0);
        assert_int_equal(pragma(conns[i], "PRAGMA mmap_size"), 0);
        assert_int_equal(pragma(conns[i], "PRAGMA secure_delete"), 0);
    }
    assert_int_equal(pragma(reader, "PRAGMA page_size"), 4096);
    weir__sqlite_read_end(s, reader);
}

static void the_wal_is_started_over_and_does_not_grow_with_the_log(void **state)
{
    testing *t = *state;
    t->options.checkpoint_pages = 20;
    weir_store *other = testing_open(t, 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    }
    assert_true(sqlite_of(other)->database.checkpoints > 3);
    assert_true(testing_bytes(t, "-wal") < 60 * 4096);
    assert_string_equal(testing_check(other), "");
    testing_close(&other);
}

static void a_reader_that_stays_stops_checkpoints_but_no_append(void **state)
{
    testing *t = *state;
    sqlite_conn *reader = NULL;
    t->options.checkpoint_pages = 20;
    weir_store *other = testing_open(t, 0);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_read_begin(store_of(t), &reader, &t->err), WEIR_OK);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    }
    const int64_t tries = sqlite_of(other)->database.checkpoints;
    assert_true(tries > 3 && tries < 100); /* it tries now and then, not with every commit */
    assert_true(testing_bytes(t, "-wal") > 200 * 4096);
    assert_int_equal(reader->row->head, 1); /* and the reader still sees what it saw */
    weir__sqlite_read_end(store_of(t), reader);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    }
    assert_true(sqlite_of(other)->database.wal_pages < 200); /* started over */
    assert_true(testing_bytes(t, "-wal") < 200 * 4096);      /* and cut */
    testing_close(&other);
}

static void a_checkpoint_does_not_wait_for_a_foreign_writer(void **state)
{
    testing *t = *state;
    sqlite_store *s = store_of(t);
    sqlite3 *db = NULL;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(weir__sqlite_slot_take(s, INT64_MAX, &t->err), WEIR_OK);
    assert_int_equal(weir__side_lock(&s->side, 0, &t->err), WEIR_OK);
    s->database.deadline_us = INT64_MAX; /* the append before it had all the time in the world */
    weir__sqlite_checkpoint(s);
    weir__side_unlock(&s->side);
    weir__sqlite_slot_give(s);
    assert_int_equal(s->database.checkpoints, 0);
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
}

static void the_last_to_close_leaves_one_complete_file(void **state)
{
    testing *t = *state;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    weir_store *reader = testing_open(t, WEIR_OPEN_READONLY);
    const int64_t short_bytes = testing_bytes(t, "");
    testing_close(&t->store);
    assert_int_equal(testing_bytes(t, ""), short_bytes); /* not the last: it moves nothing */
    assert_true(testing_bytes(t, "-wal") > 0);
    assert_int_equal(testing_head(reader), 1);
    testing_close(&reader); /* cannot write */
    assert_true(testing_bytes(t, "-wal") > 0);

    t->store = testing_open(t, 0);
    testing_close(&t->store);
    assert_true(testing_bytes(t, "") > short_bytes);
    assert_int_equal(testing_bytes(t, "-wal"), 0);
    t->store = testing_open(t, 0);
    assert_int_equal(testing_head(t->store), 1);
    assert_string_equal(testing_check(t->store), "");
}

/* In a process of its own: SQLite's locks end when any descriptor of the file is closed. */
static void shell(const testing *t, const char *program, const char *from, const char *to)
{
    char command[400];
    (void)snprintf(command, sizeof command, "%s '%s%s' '%s%s'", program, t->path, from, t->path,
                   to);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a command of this test's own */
}

static void C12_a_file_that_was_overwritten_in_place_is_written_no_more(void **state)
{
    testing *t = *state;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    shell(t, "cp", "", ".good");
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    t->store = testing_open(t, 0);
    weir_store *other = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    shell(t, "cp", ".good", "");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ECORRUPT);
        assert_non_null(strstr(t->err.message, "was overwritten"));
        assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_ECORRUPT);
    }
    testing_close(&t->store);
    testing_close(&other); /* the last one: it must not bring its WAL into that file either */
    shell(t, "cmp", "", ".good");
}

static void C12_a_side_file_that_was_removed_is_made_again(void **state)
{
    testing *t = *state;
    char side[300];
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    shell(t, "cp", "", ".good");
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    (void)snprintf(side, sizeof side, "%s-weir", t->path);
    assert_int_equal(unlink(side), 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    shell(t, "cp", ".good", "");
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ECORRUPT);
    assert_non_null(strstr(t->err.message, "was overwritten"));
}

/* Checkpoints of others change the file's time and nothing else. */
static void a_checkpoint_of_another_handle_is_no_swap(void **state)
{
    testing *t = *state;
    weir_store *other = NULL;
    t->options.checkpoint_pages = 1;
    other = testing_open(t, 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
        assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    }
    assert_true(sqlite_of(other)->database.checkpoints > 0);
    testing_close(&other);
    assert_int_equal(testing_head(t->store), 40);
}

static void C12_a_handle_that_has_seen_damage_writes_no_more(void **state)
{
    testing *t = *state;
    sqlite_conn *conn = &store_of(t)->writer;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_fail(conn, SQLITE_CORRUPT, &t->err, "read"), WEIR_ECORRUPT);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ECORRUPT);
    assert_non_null(strstr(t->err.detail, "weir restore"));
    assert_int_equal(testing_head(t->store), 1);
}

static void closing_checkpoints_nothing_beside_a_program_that_is_no_weir(void **state)
{
    testing *t = *state;
    sqlite3 *db = NULL;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM weir_store", NULL, NULL, NULL), SQLITE_OK);
    testing_close(&t->store);
    assert_true(testing_bytes(t, "-wal") > 0);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM weir_store", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    t->store = testing_open(t, 0);
    assert_int_equal(testing_head(t->store), 1);
}

static void transactions_are_counted_when_they_changed_something(void **state)
{
    testing *t = *state;
    store_stats stats;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    }
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_NONE, 0, 1, &t->err),
                     WEIR_ECONFLICT);
    assert_int_equal(t->store->about->stats(t->store, &stats, &t->err), WEIR_OK);
    assert_int_equal(stats.transactions, 5);
    assert_int_equal(stats.streams, 1);
    assert_int_equal(stats.schema, SQLITE_SCHEMA_VERSION);
    assert_true(stats.wal_bytes > 0 && stats.file_bytes > 0);
    assert_string_equal(stats.durability, "full");
    assert_non_null(strstr(stats.library, "SQLite 3."));
}

static void a_statement_is_kept_and_comes_back_without_bindings(void **state)
{
    testing *t = *state;
    static const char sql[] = "SELECT ?1, ?2";
    sqlite_conn *conn = NULL;
    sqlite3_stmt *first = NULL;
    sqlite3_stmt *second = NULL;
    bool row = false;
    assert_int_equal(weir__sqlite_read_begin(store_of(t), &conn, &t->err), WEIR_OK);
    assert_int_equal(weir__sqlite_statement(conn, sql, &first, &t->err), WEIR_OK);
    weir__sqlite_bind_str(first, 1, weir__str("x"));
    weir__sqlite_bind_str(first, 2, (weir_str){ 0 });
    assert_int_equal(weir__sqlite_step(conn, first, &row, &t->err), WEIR_OK);
    assert_int_equal(sqlite3_column_type(first, 1), SQLITE_TEXT); /* empty, not NULL */
    assert_int_equal(weir__sqlite_column_str(first, 1).len, 0);
    while (row) {
        assert_int_equal(weir__sqlite_step(conn, first, &row, &t->err), WEIR_OK);
    }
    assert_int_equal(weir__sqlite_statement(conn, sql, &second, &t->err), WEIR_OK); /* not ended */
    assert_ptr_equal(first, second);
    assert_int_equal(weir__sqlite_step(conn, second, &row, &t->err), WEIR_OK);
    assert_int_equal(sqlite3_column_type(second, 0), SQLITE_NULL);
    weir__sqlite_read_end(store_of(t), conn);
}

static void many_statements_are_all_found_again(void **state)
{
    testing *t = *state;
    static const char many[] = "                                                               "
                               "                                                               "
                               "                                                        SELECT 7";
    sqlite3_stmt *stmts[150];
    sqlite_conn *conn = NULL;
    assert_int_equal(weir__sqlite_read_begin(store_of(t), &conn, &t->err), WEIR_OK);
    for (size_t i = 0; i < 150; i++) { /* every suffix is a text with an address of its own */
        assert_int_equal(weir__sqlite_statement(conn, many + i, &stmts[i], &t->err), WEIR_OK);
    }
    for (size_t i = 0; i < 150; i++) {
        sqlite3_stmt *again = NULL;
        assert_int_equal(weir__sqlite_statement(conn, many + i, &again, &t->err), WEIR_OK);
        assert_ptr_equal(again, stmts[i]);
    }
    weir__sqlite_read_end(store_of(t), conn);
}

static void errors_of_sqlite_say_what_happened_and_what_to_do(void **state)
{
    testing *t = *state;
    sqlite_conn none = { 0 };
    const struct {
        int rc;
        weir_status status;
        const char *code;
    } cases[] = {
        { SQLITE_FULL, WEIR_EIO, "13" },          { SQLITE_BUSY, WEIR_EBUSY, "5" },
        { SQLITE_CORRUPT, WEIR_ECORRUPT, "11" },  { SQLITE_CORRUPT_INDEX, WEIR_ECORRUPT, "779" },
        { SQLITE_NOTADB, WEIR_ECORRUPT, "26" },   { SQLITE_READONLY_DIRECTORY, WEIR_EIO, "1544" },
        { SQLITE_IOERR_FSYNC, WEIR_EIO, "1034" }, { SQLITE_CANTOPEN, WEIR_EIO, "14" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(weir__sqlite_fail(&none, cases[i].rc, &t->err, "write"), cases[i].status);
        assert_non_null(strstr(t->err.message, "could not write: "));
        assert_string_equal(t->err.store_code, cases[i].code);
        assert_true(t->err.detail[0] != '\0');
    }
    assert_int_equal(weir__sqlite_fail(&none, SQLITE_NOMEM, &t->err, "write"), WEIR_ENOMEM);
    assert_int_equal(weir__sqlite_fail(&none, SQLITE_NOMEM, NULL, "write"), WEIR_ENOMEM);
}

/* ---- files that others took away ---------------------------------------------------------- */

static void move(const testing *t, const char *from, const char *to)
{
    assert_int_equal(rename(testing_file(t, from), testing_file(t, to)), 0);
}

static void C12_nothing_is_acknowledged_into_a_file_that_was_taken_away(void **state)
{
    testing *t = *state;
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    for (size_t i = 0; i < 3; i++) {
        move(t, suffixes[i], "-away");
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ECORRUPT);
        assert_non_null(strstr(t->err.message, testing_file(t, suffixes[i])));
        /* nor when there is another one in its place */
        FILE *file = fopen(testing_file(t, suffixes[i]), "w");
        assert_non_null(file);
        (void)fclose(file);
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_ECORRUPT);
        move(t, "-away", suffixes[i]);
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    }
    assert_int_equal(testing_head(t->store), 4);
    assert_string_equal(testing_check(t->store), "");
}

/* Locks of this process do not show that it has the file open itself. */
static void C12_a_second_name_is_refused_in_the_same_process(void **state)
{
    testing *t = *state;
    weir_store *second = NULL;
    char path[sizeof t->path + 8];
    store_options options = t->options;
    (void)snprintf(path, sizeof path, "%s-moved", t->path);
    options.path = weir__str(path);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    move(t, "", "-moved");
    assert_int_equal(weir__sqlite_open(&second, &options, &t->err), WEIR_EHELD);
    assert_non_null(strstr(t->err.message, "open under another name"));
    move(t, "-moved", "");
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    move(t, "", "-moved");
    assert_int_equal(weir__sqlite_open(&second, &options, &t->err), WEIR_OK);
    assert_int_equal(testing_head(second), 2);
    testing_close(&second);
}

static void C16_a_reader_is_told_that_its_database_was_replaced(void **state)
{
    testing *t = *state;
    store_positions positions;
    char sql[160];
    assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 2, &t->err), WEIR_OK);
    (void)snprintf(sql, sizeof sql, "VACUUM INTO '%s-backup'", t->path);
    testing_sql(t, sql);
    move(t, "-backup", "");
    assert_int_equal(t->store->log->positions(t->store, &positions, &t->err), WEIR_ECORRUPT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, testing_setup, testing_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(C12_nothing_is_acknowledged_into_a_file_that_was_taken_away),
        TEST(C12_a_second_name_is_refused_in_the_same_process),
        TEST(C16_a_reader_is_told_that_its_database_was_replaced),
        TEST(a_failed_transaction_leaves_nothing_and_keeps_its_error),
        TEST(another_writer_waits_until_its_deadline_and_writes_nothing),
        TEST(an_append_that_has_waited_elsewhere_does_not_wait_again),
        TEST(a_foreign_writer_is_waited_for_until_the_same_deadline),
        TEST(writing_inside_a_write_of_the_same_thread_is_misuse),
        TEST(a_transaction_that_was_ended_from_inside_is_misuse),
        TEST(a_reading_handle_refuses_to_write),
        TEST(time_never_goes_back_whoever_writes_and_whatever_the_clock_says),
        TEST(the_ninth_reader_waits_for_one_of_eight),
        TEST(a_ninth_reader_is_told_when_nobody_makes_room),
        TEST(an_open_cursor_does_not_keep_a_reader_in_its_transaction),
        TEST(what_hands_out_a_fence_is_synced_although_the_rest_is_not),
        TEST(a_hint_is_not_synced_and_what_comes_after_it_is),
        TEST(every_connection_has_the_settings_that_keep_processes_safe),
        TEST(the_wal_is_started_over_and_does_not_grow_with_the_log),
        TEST(a_reader_that_stays_stops_checkpoints_but_no_append),
        TEST(a_checkpoint_does_not_wait_for_a_foreign_writer),
        TEST(the_last_to_close_leaves_one_complete_file),
        TEST(closing_checkpoints_nothing_beside_a_program_that_is_no_weir),
        TEST(C12_a_side_file_that_was_removed_is_made_again),
        TEST(C12_a_file_that_was_overwritten_in_place_is_written_no_more),
        TEST(a_checkpoint_of_another_handle_is_no_swap),
        TEST(C12_a_handle_that_has_seen_damage_writes_no_more),
        TEST(transactions_are_counted_when_they_changed_something),
        TEST(a_statement_is_kept_and_comes_back_without_bindings),
        TEST(many_statements_are_all_found_again),
        TEST(errors_of_sqlite_say_what_happened_and_what_to_do),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("transaction", tests, NULL, NULL);
}
