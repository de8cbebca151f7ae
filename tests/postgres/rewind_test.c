/* rewind_test.c - positions when the server is another one than before (C16): after a crash, after
 * a failover that lost nothing, after one that lost events, after a restore.
 *
 * Clients reach "the server" by a symbolic link to the directory of its socket. A failover is that
 * link pointing elsewhere, and the connections to the old server ended.
 */
#include "pg_support.h"
#include "servers.h"

#include "store/postgres/safe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The link, pointing at the socket of a server: "main", or a clone by its name. */
static void lead_to(const char *server)
{
    if (strcmp(server, "main") == 0) {
        test_shell("ln -sfn $dir $dir/link");
    } else {
        test_shell("ln -sfn $dir/%s-socket $dir/link", server);
    }
}

static const char *url_by_link(pg_test *t)
{
    static char url[TEST_URL_BYTES];
    snprintf(url, sizeof url, "postgres:///postgres?host=%s/link&user=postgres&schema=%s",
             test_environment("WEIR_TEST_PG_DIR"), t->schema);
    return url;
}

static weir *weir_by_link(pg_test *t)
{
    weir *w = NULL;
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url_by_link(t),
                                   .application = "behind the link" };
    TEST_OK(t, weir_open(&options, &w, &t->err));
    t->weirs[t->weirs_count++] = w;
    return w;
}

/* Makes and starts a copy of the server as it is now. more: for pg_basebackup. */
static void clone_make(const char *clone, const char *more)
{
    test_shell(
        "mkdir $dir/%s-socket; $bin/pg_basebackup -h $dir -U postgres -D $dir/%s -c fast -X stream "
        "%s; printf \"unix_socket_directories = \\x27%%s\\x27\\n\" $dir/%s-socket "
        ">> $dir/%s/postgresql.conf",
        clone, clone, more, clone, clone);
    server_start(clone);
}

static void end_connections(pg_test *t)
{
    test_exec(t->conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                       "application_name LIKE 'behind the link%%'");
}

static void append_events(PGconn *conn, pg_test *t, const char *stream, int count)
{
    for (int i = 0; i < count; i++) {
        test_exec(conn, "SELECT * FROM %s.append_one(0, 0, '%s', 0, 0, 'A', '{}', '{}')", t->schema,
                  stream);
    }
}

/* Reads what is there; how many events came. */
static int read_all(pg_test *t, weir_reader *reader)
{
    const weir_event *event = NULL;
    int count = 0;
    do {
        TEST_OK(t, weir_reader_next(reader, 300, &event, &t->err));
        count += event != NULL;
    } while (event != NULL);
    return count;
}

static weir_reader *follower_open(pg_test *t, weir *w)
{
    const weir_log_options options = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    weir_reader *reader = NULL;
    TEST_OK(t, weir_log_open(w, &options, &reader, &t->err));
    return reader;
}

/* What the next look of a follower answers, once the store can be reached. */
static int32_t follower_status(pg_test *t, weir_reader *reader)
{
    const int64_t deadline = test_mono_us() + 20000000;
    int32_t status = WEIR_OK;
    do {
        const weir_event *event = NULL;
        status = weir_reader_next(reader, 100, &event, &t->err);
        if (status == WEIR_OK && event != NULL) {
            return WEIR_OK;
        }
    } while ((status == WEIR_OK || status == WEIR_EUNAVAILABLE) && test_mono_us() < deadline);
    return status;
}

/* ---- the same log ------------------------------------------------------------------------- */

static void reconnect(pg_test *t)
{
    for (int i = 0; i < 200 && PQstatus(t->conn) != CONNECTION_OK; i++) {
        usleep(50000);
        PQreset(t->conn);
    }
    assert_int_equal(PQstatus(t->conn), CONNECTION_OK);
}

static void C16_a_crash_leaves_gaps_that_nobody_waits_for(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    PGconn *writer = test_connect(t);
    append_events(t->conn, t, "a", 3);
    test_exec(writer, "BEGIN");
    append_events(writer, t, "held", 1);
    append_events(t->conn, t, "a", 2);
    assert_int_equal(read_all(t, reader), 3);
    test_shell("$bin/pg_ctl -D $data -l $dir/log -m immediate -s -w restart");
    PQreset(t->conn);
    reconnect(t);
    append_events(t->conn, t, "a", 5);
    assert_int_equal(read_all(t, reader), 7);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 10);
    weir_reader_close(reader);
}

/* After a crash it is another number's transaction; when a backend crashes, not even the postmaster
 * is another one. */
static void C16_a_prepared_transaction_is_waited_for_through_a_crash(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    PGconn *writer = test_connect(t);
    PGconn *victim = test_connect(t);
    test_exec(writer, "BEGIN");
    append_events(writer, t, "held", 1);
    test_exec(writer, "PREPARE TRANSACTION '%s'", t->schema);
    append_events(t->conn, t, "a", 2);
    assert_int_equal(read_all(t, reader), 0);
    assert_int_equal(kill(PQbackendPID(victim), SIGKILL), 0);
    for (int i = 0; i < 100 && PQstatus(t->conn) == CONNECTION_OK; i++) {
        PQclear(PQexec(t->conn, "SELECT 1"));
        usleep(20000);
    }
    reconnect(t);
    append_events(t->conn, t, "a", 2);
    assert_int_equal(read_all(t, reader), 0);
    assert_int_equal(read_all(t, reader), 0);
    test_exec(t->conn, "COMMIT PREPARED '%s'", t->schema);
    assert_int_equal(read_all(t, reader), 5);
    weir_reader_close(reader);
}

/* A standby reads what others have found to be safe; promoted, it finds out by itself. */
static void C16_a_failover_that_loses_nothing_is_not_noticed(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    append_events(t->conn, t, "a", 5);
    assert_int_equal(read_all(t, reader), 5);
    clone_make("standby", "-R");
    PGconn *standby = server_connect(t, "standby", "postgres");
    append_events(t->conn, t, "a", 5);
    assert_int_equal(read_all(t, reader), 5);
    const int64_t safe = test_number(t->conn, "SELECT position FROM %s.safe", t->schema);
    const int64_t head = test_number(t->conn, "SELECT max(id) FROM %s.events", t->schema);
    assert_true(test_wait(standby, 120, "SELECT max(id) = %lld FROM %s.events", (long long)head,
                          t->schema));

    char path[TEST_URL_BYTES];
    store_options options = test_options(t);
    snprintf(path, sizeof path, "postgres:///postgres?host=%s/standby-socket&user=postgres",
             test_environment("WEIR_TEST_PG_DIR"));
    options.path = weir__str(path);
    options.open_flags = WEIR_OPEN_READONLY;
    weir_store *s = test_store_with(t, &options);
    store_positions at;
    TEST_OK(t, s->log->positions(s, &at, &t->err));
    assert_int_equal(at.head, head);
    assert_true(at.safe >= safe && at.safe <= head);
    test_store_close(t, s);

    lead_to("standby");
    test_shell("$bin/pg_ctl -D $dir/standby -s -w promote");
    end_connections(t);
    append_events(standby, t, "b", 5);
    assert_int_equal(read_all(t, reader), 5);
    weir_reader_close(reader);
    server_remove("standby");
}

/* ---- another log -------------------------------------------------------------------------- */

/* A copy of the server from before the last events, which has gone on with others. */
static void lost_events(pg_test *t, int read_before, int lost, int new_events)
{
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    append_events(t->conn, t, "a", read_before);
    assert_int_equal(read_all(t, reader), read_before);
    clone_make("clone", "");
    append_events(t->conn, t, "a", lost);
    assert_int_equal(read_all(t, reader), lost);
    append_events(server_connect(t, "clone", "postgres"), t, "b", new_events);
    lead_to("clone");
    end_connections(t);
    assert_int_equal(follower_status(t, reader), WEIR_EREWOUND);
    weir_reader_close(reader);
    /* Who begins anew reads what is there. */
    reader = follower_open(t, w);
    assert_int_equal(read_all(t, reader), read_before + new_events);
    weir_reader_close(reader);
    server_remove("clone");
}

static void C16_a_follower_is_told_of_a_failover_that_lost_events(void **state)
{
    lost_events(*state, 5, 3, 0);
}

/* The hole that looking at the end of the log alone would leave. */
static void C16_a_follower_is_told_although_there_are_new_events(void **state)
{
    lost_events(*state, 5, 3, 20);
}

/* A commit that is lost need not be the one with the highest position. */
static void C16_a_follower_is_told_of_a_lost_event_below_the_last(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    PGconn *writer = test_connect(t);
    test_exec(writer, "BEGIN");
    append_events(writer, t, "late", 1);
    append_events(t->conn, t, "a", 3);
    clone_make("clone", "");
    test_exec(writer, "COMMIT");
    assert_int_equal(read_all(t, reader), 4);
    append_events(server_connect(t, "clone", "postgres"), t, "b", 5);
    lead_to("clone");
    end_connections(t);
    assert_int_equal(follower_status(t, reader), WEIR_EREWOUND);
    weir_reader_close(reader);
    server_remove("clone");
}

/* T10: a dump in a new cluster is another log, whatever is in it. */
static void C16_a_follower_is_told_of_a_restore_into_a_new_cluster(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    append_events(t->conn, t, "a", 5);
    assert_int_equal(read_all(t, reader), 5);
    server_make("clone");
    test_shell("$bin/pg_dump -h $dir -U postgres -n %s postgres | $bin/psql -q -v ON_ERROR_STOP=1 "
               "-h $dir/clone-socket -U postgres postgres",
               t->schema);
    append_events(server_connect(t, "clone", "postgres"), t, "a", 5);
    lead_to("clone");
    end_connections(t);
    assert_int_equal(follower_status(t, reader), WEIR_EREWOUND);
    weir_reader_close(reader);
    reader = follower_open(t, w);
    assert_int_equal(read_all(t, reader), 10);
    weir_reader_close(reader);
    server_remove("clone");
}

/* On the same server, in the same place. */
static void C16_a_follower_is_told_of_a_store_that_was_made_anew(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = follower_open(t, w);
    append_events(t->conn, t, "a", 2);
    assert_int_equal(read_all(t, reader), 2);
    test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA %s CASCADE", t->schema);
    weir *again = test_weir(t);
    assert_non_null(again);
    append_events(t->conn, t, "a", 5);
    assert_int_equal(follower_status(t, reader), WEIR_EREWOUND);
    weir_reader_close(reader);
}

static void append_many(pg_test *t)
{
    test_exec(t->conn,
              "DO $$ BEGIN FOR g IN 1..3500 LOOP PERFORM %s.append_one(0, 0, 's', 0, 0, 'A', '{}', "
              "'{}'); END LOOP; END $$",
              t->schema);
}

/* The same for a reader that is far from the end: what it knows of the log is not asked anew. */
static void C16_a_reader_far_from_the_end_is_told_as_well(void **state)
{
    pg_test *t = *state;
    lead_to("main");
    weir *w = weir_by_link(t);
    weir_reader *reader = NULL;
    const weir_log_options options = { WEIR_LOG_OPTIONS_INIT };
    const weir_event *event = NULL;
    int32_t status = WEIR_OK;
    int count = 0;
    append_many(t);
    TEST_OK(t, weir_log_open(w, &options, &reader, &t->err));
    for (int i = 0; i < 100; i++) {
        TEST_OK(t, weir_reader_next(reader, 0, &event, &t->err));
        assert_non_null(event);
    }
    test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA %s CASCADE", t->schema);
    assert_non_null(test_weir(t));
    append_many(t);
    do {
        status = weir_reader_next(reader, 0, &event, &t->err);
        count++;
    } while (status == WEIR_OK && event != NULL);
    assert_int_equal(status, WEIR_EREWOUND);
    assert_true(count <= 1000); /* what was in its hand */
    weir_reader_close(reader);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C16_a_crash_leaves_gaps_that_nobody_waits_for),
        PG_TEST(C16_a_prepared_transaction_is_waited_for_through_a_crash),
        PG_TEST(C16_a_failover_that_loses_nothing_is_not_noticed),
        PG_TEST(C16_a_follower_is_told_of_a_failover_that_lost_events),
        PG_TEST(C16_a_follower_is_told_although_there_are_new_events),
        PG_TEST(C16_a_follower_is_told_of_a_lost_event_below_the_last),
        PG_TEST(C16_a_follower_is_told_of_a_restore_into_a_new_cluster),
        PG_TEST(C16_a_follower_is_told_of_a_store_that_was_made_anew),
        PG_TEST(C16_a_reader_far_from_the_end_is_told_as_well),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
