/* failover_test.c - what was held when a failover, or a restore, lost a part of the log (C16, C24,
 * C38, C40): leases, locks, keys of once, claims of rows, and what a router has read.
 *
 * Method: a standby stops getting anything while the primary goes on, and is then promoted. Fences
 * begin again there. The stores "before" and "after" are handles on the one and on the other. What
 * was taken on the first is used on the second, like a worker whose connections lead to the new
 * primary. Whole workers are in tests/stress/postgres_lost_log_test.py.
 */
#include "pg_support.h"
#include "servers.h"
#include "targets_support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEASE_US INT64_C(60000000)

/* A store on the test's own server, and the same on the one that was promoted. */
typedef struct failover {
    pg_test *t;
    weir_store *before, *after;
} failover;

static void standby_make(failover *f)
{
    test_shell("mkdir $dir/standby-socket; $bin/pg_basebackup -h $dir -U postgres -D $dir/standby "
               "-c fast -X stream -R; printf \"unix_socket_directories = \\x27%%s\\x27\\n\" "
               "$dir/standby-socket >> $dir/standby/postgresql.conf");
    server_start("standby");
    PGconn *standby = server_connect(f->t, "standby", "postgres");
    const int64_t head = look(f->t, "SELECT coalesce(max(id), 0) FROM %s.events");
    assert_true(test_wait(standby, 120, "SELECT coalesce(max(id), 0) = %lld FROM %s.events",
                          (long long)head, f->t->schema));
}

/* From here on the standby gets nothing. */
static void cut(failover *f)
{
    PGconn *standby = server_connect(f->t, "standby", "postgres");
    /* Not where the next record goes: at the end of a page that is beyond its header, where no
     * standby gets without another record. */
    const char *lsn = test_text(f->t->conn, "SELECT pg_current_wal_flush_lsn()");
    assert_true(test_wait(standby, 120, "SELECT pg_last_wal_replay_lsn() >= '%s'", lsn));
    test_exec(standby, "ALTER SYSTEM SET primary_conninfo = ''");
    test_exec(standby, "SELECT pg_reload_conf()");
    assert_true(test_wait(standby, 120, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"));
}

static weir_store *store_at(failover *f, const char *server)
{
    static char path[TEST_URL_BYTES];
    store_options options = test_options(f->t);
    (void)snprintf(path, sizeof path, "%s", server_url(server, "postgres"));
    options.path = weir__str(path);
    return test_store_with(f->t, &options);
}

static void promote(failover *f)
{
    test_shell("$bin/pg_ctl -D $dir/standby -s -w promote");
    f->after = store_at(f, "standby");
}

static void put_many(pg_test *t, weir_store *s, int count)
{
    for (int i = 0; i < count; i++) {
        (void)test_put(t, s, "order-1", "A");
    }
}

/* The settle of one advance under a lease. */
static store_settle settle_of(const store_leased *l, const store_advance *advance)
{
    return (store_settle){ .target = l->target,
                           .fence = l->fence,
                           .token = l->token,
                           .advances = advance,
                           .advances_count = 1 };
}

static weir_status settle_at(failover *f, weir_store *s, const store_leased *l, int64_t reaction,
                             int64_t to)
{
    const store_advance advance = { .reaction = reaction, .to = to };
    store_settle settle = settle_of(l, &advance);
    return s->work->settle(s, &settle, &f->t->err);
}

static weir_status turn_at(failover *f, weir_store *s, const store_leased *l, int64_t reaction,
                           int64_t to)
{
    const store_advance advance = { .reaction = reaction, .to = to };
    store_settle settle = settle_of(l, &advance);
    store_settle *settles[] = { &settle };
    store_lease_list list = { 0 };
    TEST_OK(f->t, s->work->turn(s, settles, 1, NULL, &list, &f->t->err));
    weir__arena_free(&list.arena);
    return settle.status;
}

static weir_status extend(failover *f, weir_store *s, const store_leased *l)
{
    store_fenced item = { .target = l->target, .fence = l->fence, .token = l->token };
    TEST_OK(f->t, s->work->extend(s, LEASE_US, &item, 1, &f->t->err));
    return item.status;
}

static weir_status release(failover *f, weir_store *s, const store_leased *l)
{
    store_fenced item = { .target = l->target, .fence = l->fence, .token = l->token };
    TEST_OK(f->t, s->work->extend(s, 0, &item, 1, &f->t->err));
    return item.status;
}

/* Everything a holder may write, but to give back. */
static void assert_all_lost(failover *f, const store_leased *l, int64_t reaction, int64_t to)
{
    pg_test *t = f->t;
    store_append_stream stream = { .name = weir__str("effect") };
    const store_new_event event = { .name = weir__str("E"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1
    };
    store_append *appends[] = { &append };
    store_settle effects = { .target = l->target,
                             .fence = l->fence,
                             .token = l->token,
                             .appends = appends,
                             .appends_count = 1,
                             .end = STORE_END_KEEP,
                             .lease_us = LEASE_US };
    TEST_IS(t, settle_at(f, f->after, l, reaction, to), WEIR_ELOST);
    TEST_IS(t, turn_at(f, f->after, l, reaction, to), WEIR_ELOST);
    TEST_IS(t, turn_at(f, f->after, l, reaction, 1), WEIR_ELOST); /* which is in both logs */
    TEST_IS(t, extend(f, f->after, l), WEIR_ELOST);
    TEST_IS(t, f->after->work->settle(f->after, &effects, &t->err), WEIR_ELOST);
}

/* A target with an event to do; the lease of a first one was given back, so fences are above 1. */
static int64_t give_target(failover *f)
{
    pg_test *t = f->t;
    const int64_t reaction = give_reaction(t, f->before, "r", STORE_RULE_CONSTANT);
    put_many(t, f->before, 3);
    give_mark(t, f->before, "r", "x", 1, 3);
    const store_leased l = take_lease(t, f->before);
    TEST_IS(t, release(f, f->before, &l), WEIR_OK);
    return reaction;
}

/* ---- leases -------------------------------------------------------------------------------- */

static void lease_lost_with_the_log(failover *f, int lost)
{
    pg_test *t = f->t;
    f->before = test_store(t);
    const int64_t reaction = give_target(f);
    standby_make(f);
    cut(f);
    put_many(t, f->before, lost);
    give_mark(t, f->before, "r", "x", 4, 3 + lost);
    const store_leased old = take_lease(t, f->before);
    promote(f);
    const store_leased again = take_lease(t, f->after);
    assert_int_equal(again.target, old.target);
    assert_int_equal(again.fence, old.fence); /* fences begin again: that is the point */
    assert_all_lost(f, &old, reaction, 3 + lost);
    TEST_IS(t, release(f, f->after, &old), WEIR_ELOST);
    /* Who has it now has noticed nothing. */
    TEST_IS(t, extend(f, f->after, &again), WEIR_OK);
    TEST_IS(t, settle_at(f, f->after, &again, reaction, 3), WEIR_OK);
    PGconn *conn = server_connect(t, "standby", "postgres");
    assert_int_equal(test_number(conn, "SELECT at FROM %s.subscriptions", t->schema), 3);
    assert_int_equal(test_number(conn, "SELECT max(id) FROM %s.events", t->schema), 3);
    nothing_is_wrong(t, f->after);
    server_remove("standby");
}

static void C24_a_lease_that_was_lost_with_the_log_writes_nothing_on_the_new_one(void **state)
{
    failover f = { .t = *state };
    lease_lost_with_the_log(&f, 5);
}

/* Sequences are logged 32 positions ahead. */
static void C24_the_same_when_more_positions_were_lost_than_a_sequence_is_ahead(void **state)
{
    failover f = { .t = *state };
    lease_lost_with_the_log(&f, 60);
}

/* The lease itself is on both logs; its holder may have seen events of the one that is gone. */
static void C24_a_lease_from_before_the_failover_can_only_be_given_back(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    f.before = test_store(t);
    const int64_t reaction = give_target(&f);
    const store_leased l = take_lease(t, f.before);
    standby_make(&f);
    cut(&f);
    TEST_IS(t, extend(&f, f.before, &l), WEIR_OK);
    promote(&f);
    assert_all_lost(&f, &l, reaction, 3);
    TEST_IS(t, release(&f, f.after, &l), WEIR_OK);
    const store_leased next = take_lease(t, f.after);
    assert_int_equal(next.lost, 0);
    TEST_IS(t, settle_at(&f, f.after, &next, reaction, 3), WEIR_OK);
    server_remove("standby");
}

/* The same server, and the same log: nobody has handled what is not there. */
static void C24_nothing_is_settled_beyond_the_end_of_the_log(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    f.before = f.after = test_store(t);
    const int64_t reaction = give_target(&f);
    const store_leased l = take_lease(t, f.before);
    for (int mark = 3; mark <= 5; mark += 2) { /* the second one as an older Weir could write it */
        test_exec(t->conn, "UPDATE %s.subscriptions SET mark = %d", t->schema, mark);
        TEST_IS(t, settle_at(&f, f.before, &l, reaction, 4), WEIR_ELOST);
        assert_non_null(strstr(t->err.message, "beyond the end of the log (3)"));
        TEST_IS(t, turn_at(&f, f.before, &l, reaction, 4), WEIR_ELOST);
        assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), 0);
    }
    TEST_IS(t, turn_at(&f, f.before, &l, reaction, 3), WEIR_OK);
}

/* ---- a dump that is restored while workers run ----------------------------------------------- */

static void C24_a_dump_that_is_restored_in_place_ends_every_lease(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    f.before = f.after = test_store(t);
    const int64_t reaction = give_target(&f);
    const store_leased l = take_lease(t, f.before);
    test_shell("$bin/pg_dump -h $dir -U postgres -Fc -n %s -f $dir/dump postgres", t->schema);
    put_many(t, f.before, 2);
    give_mark(t, f.before, "r", "x", 4, 5);
    test_shell("$bin/pg_restore -h $dir -U postgres --clean -d postgres $dir/dump");
    assert_all_lost(&f, &l, reaction, 5);
    TEST_IS(t, release(&f, f.after, &l), WEIR_OK);
    const store_leased next = take_lease(t, f.after);
    TEST_IS(t, settle_at(&f, f.after, &next, reaction, 3), WEIR_OK);
    nothing_is_wrong(t, f.after);
}

static void C16_a_dump_that_is_restored_in_place_is_another_log(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    store_positions at, again;
    f.before = test_store(t);
    put_many(t, f.before, 3);
    test_shell("$bin/pg_dump -h $dir -U postgres -Fc -n %s -f $dir/dump postgres", t->schema);
    put_many(t, f.before, 2);
    TEST_OK(t, f.before->log->positions(f.before, &at, &t->err));
    assert_int_equal(at.safe, 5);
    test_shell("$bin/pg_restore -h $dir -U postgres --clean -d postgres $dir/dump");
    TEST_OK(t, f.before->log->positions(f.before, &again, &t->err));
    assert_int_equal(again.safe, 3);
    assert_string_not_equal(at.epoch, again.epoch);
}

/* ---- routing ------------------------------------------------------------------------------- */

static void C16_what_was_read_before_the_failover_is_not_routed_after_it(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 100 };
    f.before = test_store(t);
    const int64_t reaction = give_reaction(t, f.before, "r", STORE_RULE_CONSTANT);
    put_many(t, f.before, 1);
    standby_make(&f);
    cut(&f);
    put_many(t, f.before, 5);
    TEST_OK(t, f.before->log->read_log(f.before, &q, &chunk, &t->err));
    assert_int_equal(chunk.scanned_to, 6);
    promote(&f);
    const store_route_step step = { .reaction = reaction, .number = 1, .from = 0, .to = 6 };
    const store_mark mark = { .target = weir__str("x"),
                              .lane = weir__str("l"),
                              .source = weir__str("s"),
                              .first = 1,
                              .last = 6 };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1, .place = chunk.place
    };
    TEST_IS(t, f.after->work->route(f.after, &route, NULL, &t->err), WEIR_ECONFLICT);
    /* Also when the new log has become longer: the position is one of its own then. */
    put_many(t, f.after, 6);
    PGconn *conn = server_connect(t, "standby", "postgres");
    assert_true(test_number(conn, "SELECT max(id) FROM %s.events", t->schema) > step.to);
    TEST_IS(t, f.after->work->route(f.after, &route, NULL, &t->err), WEIR_ECONFLICT);
    TEST_OK(t, f.before->work->route(f.before, &route, NULL, &t->err));
    assert_int_equal(test_number(conn, "SELECT routed FROM %s.reactions", t->schema), 0);
    weir__chunk_free(&chunk);
    server_remove("standby");
}

/* ---- locks and keys of once ------------------------------------------------------------------ */

static store_lock lock(failover *f, weir_store *s, weir_arena *arena)
{
    store_lock taken = { 0 };
    TEST_OK(f->t,
            s->locks->take(
                s, &(store_lock_request){ STORE_LOCK, weir__str("n"), weir__str("me"), LEASE_US },
                arena, &taken, &f->t->err));
    return taken;
}

static store_lock begin(failover *f, weir_store *s, weir_arena *arena)
{
    store_lock begun = { 0 };
    TEST_OK(f->t,
            s->locks->take(
                s, &(store_lock_request){ STORE_ONCE, weir__str("k"), weir__str("me"), LEASE_US },
                arena, &begun, &f->t->err));
    assert_int_equal(begun.state, STORE_ONCE_RUNNING);
    return begun;
}

/* The sequence of fences is a little ahead after a failover; here it is set to where it was. */
static void fences_again(failover *f, int64_t next)
{
    PGconn *conn = server_connect(f->t, "standby", "postgres");
    test_exec(conn, "SELECT setval('%s.lock_fences', %lld, false)", f->t->schema, (long long)next);
}

static void C40_a_lock_that_was_lost_with_the_log_is_lost_to_its_holder(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    weir_arena arena = { 0 };
    f.before = test_store(t);
    standby_make(&f);
    cut(&f);
    const store_lock old = lock(&f, f.before, &arena);
    promote(&f);
    weir_store *s = f.after;
    /* Nobody has it: then its holder has not got it either. */
    TEST_IS(t, s->locks->extend(s, STORE_LOCK, old.name, old.fence, old.token, LEASE_US, &t->err),
            WEIR_ELOST);
    fences_again(&f, old.fence);
    const store_lock again = lock(&f, s, &arena);
    assert_int_equal(again.fence, old.fence);
    TEST_IS(t, s->locks->extend(s, STORE_LOCK, old.name, old.fence, old.token, LEASE_US, &t->err),
            WEIR_ELOST);
    TEST_IS(t, s->locks->release(s, old.name, old.fence, old.token, &t->err), WEIR_ELOST);
    TEST_OK(t, s->locks->extend(s, STORE_LOCK, again.name, again.fence, again.token, LEASE_US,
                                &t->err));
    TEST_OK(t, s->locks->release(s, again.name, again.fence, again.token, &t->err));
    weir__arena_free(&arena);
    server_remove("standby");
}

static void C40_a_run_that_was_lost_with_the_log_is_not_done_on_the_new_one(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    weir_arena arena = { 0 };
    const weir_str said = weir__str("said");
    f.before = test_store(t);
    standby_make(&f);
    cut(&f);
    const store_lock old = begin(&f, f.before, &arena);
    promote(&f);
    weir_store *s = f.after;
    TEST_IS(t, s->locks->finish(s, old.name, old.fence, old.token, 0, said, &t->err), WEIR_ELOST);
    fences_again(&f, old.fence);
    const store_lock again = begin(&f, s, &arena);
    assert_int_equal(again.fence, old.fence);
    TEST_IS(t, s->locks->extend(s, STORE_ONCE, old.name, old.fence, old.token, LEASE_US, &t->err),
            WEIR_ELOST);
    TEST_IS(t, s->locks->finish(s, old.name, old.fence, old.token, 0, said, &t->err), WEIR_ELOST);
    TEST_OK(t, s->locks->finish(s, again.name, again.fence, again.token, 0, said, &t->err));
    weir__arena_free(&arena);
    server_remove("standby");
}

/* ---- what a standby has read -------------------------------------------------------------- */

/* The standby has all that is on the primary, and calls it safe. */
static bool reaches(failover *f, int64_t id)
{
    store_positions there = { 0 };
    const int64_t until_us = test_mono_us() + INT64_C(30000000);
    while (there.safe < id && test_mono_us() < until_us) {
        TEST_OK(f->t, f->after->log->positions(f->after, &there, &f->t->err));
        usleep(20000);
    }
    return there.safe == id;
}

/* Nobody reads on the primary: whoever writes says how far the log is final. */
static void C16_a_standby_gets_what_a_primary_is_only_written_to(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    f.before = test_store(t);
    const int64_t first = test_put(t, f.before, "order-1", "A");
    standby_make(&f);
    f.after = store_at(&f, "standby");
    assert_true(reaches(&f, first));
    put_many(t, f.before, 10);
    assert_true(reaches(&f, test_put(t, f.before, "order-1", "A")));

    /* Positions that were rolled back: only the primary can know. */
    (void)test_number(t->conn, "SELECT nextval('%s.positions')", t->schema);
    assert_true(reaches(&f, test_put(t, f.before, "order-1", "A")));
    /* A handle that is closed at once, as that of weir append. */
    (void)test_number(t->conn, "SELECT nextval('%s.positions')", t->schema);
    weir_store *brief = test_store(t);
    const int64_t last = test_put(t, brief, "order-2", "A");
    test_store_close(t, brief);
    test_store_close(t, f.before);
    assert_true(reaches(&f, last));
    test_store_close(t, f.after);
    server_remove("standby");
}

/* Up to the first gap a standby sees by itself that all is there. */
static void C16_a_standby_reads_up_to_the_first_gap_by_itself(void **state)
{
    failover f = { .t = *state };
    pg_test *t = f.t;
    f.before = test_store(t);
    (void)test_put(t, f.before, "order-1", "A");
    standby_make(&f);
    f.after = store_at(&f, "standby");
    /* Whoever else would say how far it is final is kept from it. */
    PGconn *holder = test_connect(t);
    test_exec(holder, "BEGIN; SELECT position FROM %s.safe FOR UPDATE", t->schema);
    put_many(t, f.before, 3);
    const int64_t last = test_put(t, f.before, "order-1", "A");
    assert_true(reaches(&f, last));
    (void)test_number(t->conn, "SELECT nextval('%s.positions')", t->schema);
    const int64_t beyond = test_put(t, f.before, "order-1", "A");
    PGconn *standby = server_connect(t, "standby", "postgres");
    assert_true(test_wait(standby, 60, "SELECT max(id) = %lld FROM %s.events", (long long)beyond,
                          t->schema));
    assert_true(reaches(&f, last));
    test_exec(holder, "ROLLBACK");
    assert_true(reaches(&f, beyond));
    test_store_close(t, f.after);
    server_remove("standby");
}

/* ---- claims of rows ---------------------------------------------------------------------- */

static weir_tables *tables_at(failover *f, const char *url)
{
    weir_tables *tables = NULL;
    const weir_tables_options o = { WEIR_TABLES_OPTIONS_INIT, .url = url };
    TEST_OK(f->t, weir_tables_open(&o, &tables, &f->t->err));
    return tables;
}

static weir_rows *claim(failover *f, weir_tables *tables, const char *by)
{
    weir_rows *rows = NULL;
    const weir_claim c = { WEIR_CLAIM_INIT, .table = weir__str("public.lost_jobs"),
                           .by = weir__str(by), .lease_us = LEASE_US,
                           .fence_column = weir__str("fence") };
    TEST_OK(f->t, weir_claim_rows(tables, &c, &rows, &f->t->err));
    assert_int_equal(weir_rows_count(rows), 1);
    return rows;
}

static weir_status finish(failover *f, weir_tables *tables, const weir_rows *rows, int32_t kind)
{
    const weir_finish end = { WEIR_FINISH_INIT, .kind = kind };
    return weir_rows_finish(tables, rows, 0, &end, &f->t->err);
}

/* The row is claimed again on the new log, with the same fence: by another, and by a namesake. */
static void claim_lost_with_the_log(failover *f, const char *other)
{
    pg_test *t = f->t;
    f->before = test_store(t);
    test_exec(t->conn, "DROP TABLE IF EXISTS public.lost_jobs");
    test_exec(t->conn,
              "CREATE TABLE public.lost_jobs (id int PRIMARY KEY, claimed_by text, claimed_at "
              "timestamptz, locked_until timestamptz, fence bigint DEFAULT 0)");
    test_exec(t->conn, "INSERT INTO public.lost_jobs (id) VALUES (1)");
    standby_make(f);
    cut(f);
    weir_tables *before = tables_at(f, t->url);
    weir_rows *old = claim(f, before, "me");
    promote(f);
    weir_tables *after = tables_at(f, server_url("standby", "postgres"));
    TEST_IS(t, finish(f, after, old, WEIR_FINISH_DONE), WEIR_ELOST); /* nobody has it */
    weir_rows *again = claim(f, after, other);
    PGconn *conn = server_connect(t, "standby", "postgres");
    assert_int_equal(test_number(conn, "SELECT fence FROM public.lost_jobs"), 1);
    assert_int_equal(test_number(t->conn, "SELECT fence FROM public.lost_jobs"), 1);
    for (int32_t kind = WEIR_FINISH_DONE; kind <= WEIR_FINISH_EXTEND; kind++) {
        TEST_IS(t, finish(f, after, old, kind), WEIR_ELOST);
    }
    TEST_OK(t, finish(f, after, again, WEIR_FINISH_EXTEND));
    TEST_OK(t, finish(f, after, again, WEIR_FINISH_DONE));
    weir_rows_free(old);
    weir_rows_free(again);
    weir_tables_close(before);
    weir_tables_close(after);
    test_exec(t->conn, "DROP TABLE public.lost_jobs");
    server_remove("standby");
}

static void C38_a_claim_that_was_lost_with_the_log_is_lost_to_its_holder(void **state)
{
    failover f = { .t = *state };
    claim_lost_with_the_log(&f, "another");
}

static void C38_the_same_when_a_namesake_has_claimed_the_row_again(void **state)
{
    failover f = { .t = *state };
    claim_lost_with_the_log(&f, "me");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C24_a_lease_that_was_lost_with_the_log_writes_nothing_on_the_new_one),
        PG_TEST(C24_the_same_when_more_positions_were_lost_than_a_sequence_is_ahead),
        PG_TEST(C24_a_lease_from_before_the_failover_can_only_be_given_back),
        PG_TEST(C24_nothing_is_settled_beyond_the_end_of_the_log),
        PG_TEST(C24_a_dump_that_is_restored_in_place_ends_every_lease),
        PG_TEST(C16_a_dump_that_is_restored_in_place_is_another_log),
        PG_TEST(C16_what_was_read_before_the_failover_is_not_routed_after_it),
        PG_TEST(C16_a_standby_gets_what_a_primary_is_only_written_to),
        PG_TEST(C16_a_standby_reads_up_to_the_first_gap_by_itself),
        PG_TEST(C40_a_lock_that_was_lost_with_the_log_is_lost_to_its_holder),
        PG_TEST(C40_a_run_that_was_lost_with_the_log_is_not_done_on_the_new_one),
        PG_TEST(C38_a_claim_that_was_lost_with_the_log_is_lost_to_its_holder),
        PG_TEST(C38_the_same_when_a_namesake_has_claimed_the_row_again),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
