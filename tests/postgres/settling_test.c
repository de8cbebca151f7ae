/* settling_test.c - settling on PostgreSQL: one statement; effects, positions, the caller's own SQL
 * and the fence together; what happens when the lease is lost in the middle, or the server dies.
 *
 * What is slow is made so by a plain connection that holds a row: a settle that waits for a
 * stream's head waits for as long as the test likes.
 */
#include "proxy.h"
#include "targets_support.h"

#include "store/seed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)

/* ---- helpers ------------------------------------------------------------------------------ */

/* An effect: one event for a stream. */
typedef struct effect {
    store_append_stream stream;
    store_new_event event;
    store_append append;
    store_append *list[1];
    weir_error err;
} effect;

static void effect_init(effect *e, const char *stream, int32_t expect, int64_t version)
{
    *e = (effect){
        .stream = { .name = weir__str(stream), .expect = expect, .version = version },
        .event = { .name = weir__str("Done"), .data = weir__str("{}"), .meta = weir__str("{}") }
    };
    e->append = (store_append){ .streams = &e->stream,
                                .streams_count = 1,
                                .events = &e->event,
                                .events_count = 1,
                                .err = &e->err };
    e->list[0] = &e->append;
}

static store_settle settle_of(const work *w)
{
    return (store_settle){ .target = w->lease.target, .fence = w->lease.fence };
}

static void settle_effect(store_settle *settle, effect *e)
{
    settle->appends = e->list;
    settle->appends_count = 1;
}

/* Nothing of a settle remains: the position, the lease, the log are as they were. */
static void assert_untouched(pg_test *t, const work *w)
{
    store_fenced item = { .target = w->lease.target, .fence = w->lease.fence };
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), w->event - 1);
    assert_int_equal(look(t, "SELECT behind::integer FROM %s.targets"), 1);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 0);
    TEST_OK(t, w->s->work->extend(w->s, SECOND, &item, 1, &t->err));
    TEST_OK(t, item.status);
    nothing_is_wrong(t, w->s);
}

/* A settle that runs beside the test. */
typedef struct slow {
    weir_store *s;
    store_settle *settle;
    weir_status status;
    weir_error err;
} slow;

static void run_settle(void *ctx)
{
    slow *x = ctx;
    x->status = x->s->work->settle(x->s, x->settle, &x->err);
}

/* ---- one round trip ----------------------------------------------------------------------- */

static void a_settle_is_one_statement(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    const store_advance advance = { .reaction = w.reaction, .to = w.event };
    const store_park park = { .reaction = w.reaction, .event = w.event, .attempts = 1 };
    effect e;
    store_settle settle = settle_of(&w);
    char like[TEST_SCHEMA_BYTES + 8];
    effect_init(&e, "out-1", WEIR_EXPECT_NONE, 0);
    settle_effect(&settle, &e);
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.parks = &park;
    settle.parks_count = 1;
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);

    test_statements_reset(t);
    TEST_OK(t, w.s->work->settle(w.s, &settle, &t->err));
    assert_int_equal(test_statements(t, like), 1);
    assert_int_equal(test_statements(t, "BEGIN%"), 0);
    assert_false(settle.behind);
    assert_int_equal(e.stream.first, 0);
    assert_int_equal(e.stream.id, look(t, "SELECT max(id) FROM %s.events"));
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), w.event);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.parked"), 1);
    nothing_is_wrong(t, w.s);
}

static void keeping_a_lease_and_extending_it_are_one_statement_each(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    store_settle settle = settle_of(&w);
    store_fenced item = { .target = w.lease.target, .fence = w.lease.fence };
    char like[TEST_SCHEMA_BYTES + 8];
    settle.end = STORE_END_KEEP;
    settle.lease_us = 7 * SECOND;
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);

    test_statements_reset(t);
    TEST_OK(t, w.s->work->settle(w.s, &settle, &t->err));
    TEST_OK(t, w.s->work->extend(w.s, SECOND, &item, 1, &t->err));
    TEST_OK(t, item.status);
    assert_int_equal(test_statements(t, like), 2);
    assert_true(settle.behind);
    assert_true(settle.lease_until_us > item.until_us);
    assert_int_equal(look(t, "SELECT lease_until FROM %s.targets"), item.until_us);
}

/* ---- effects ------------------------------------------------------------------------------ */

static void a_refused_effect_leaves_nothing_and_says_what_it_met(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    const store_advance advance = { .reaction = w.reaction, .to = w.event };
    effect first, second;
    store_settle settle = settle_of(&w);
    effect_init(&first, "out-1", WEIR_EXPECT_ANY, 0);
    effect_init(&second, "order-1", WEIR_EXPECT_EXACT, 5);
    store_append *both[] = { &first.append, &second.append };
    settle.appends = both;
    settle.appends_count = 2;
    settle.advances = &advance;
    settle.advances_count = 1;

    TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ECONFLICT);
    assert_string_equal(t->err.stream, "order-1");
    assert_int_equal(t->err.expected, 5);
    assert_int_equal(t->err.actual, 0);
    assert_int_equal(second.append.status, WEIR_ECONFLICT);
    assert_string_equal(second.err.message, t->err.message);
    assert_untouched(t, &w);

    second.append.err = NULL; /* the settle's own err is enough */
    TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ECONFLICT);
    assert_int_equal(t->err.actual, 0);
    TEST_IS(t, w.s->work->settle(w.s, &settle, NULL), WEIR_ECONFLICT);
}

static void a_taken_key_names_an_owner_of_512_bytes(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    const store_key_change change = { .key = weir__str("email:a"), .change = WEIR_KEY_RESERVE };
    char name[STORE_NAME_BYTES_MAX + 1];
    effect e;
    memset(name, 'n', STORE_NAME_BYTES_MAX);
    name[STORE_NAME_BYTES_MAX] = '\0';
    effect_init(&e, name, WEIR_EXPECT_ANY, 0);
    e.append.key_changes = &change;
    e.append.key_changes_count = 1;
    TEST_OK(t, w.s->log->append(w.s, e.list, 1, &t->err));
    TEST_OK(t, e.append.status);

    store_settle settle = settle_of(&w);
    effect_init(&e, "other-1", WEIR_EXPECT_ANY, 0);
    e.append.key_changes = &change;
    e.append.key_changes_count = 1;
    settle_effect(&settle, &e);
    TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ETAKEN);
    assert_string_equal(t->err.stream, name);
}

/* A stream that was written without holding it: judged by its events, as an append would be. */
static void an_event_behind_its_back_is_a_conflict_of_the_effect(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    effect e;
    store_settle settle = settle_of(&w);
    test_exec(t->conn,
              "INSERT INTO %s.events SELECT nextval('%s.positions'), stream, version + 1, 'Sly', "
              "data, meta, created FROM %s.events",
              t->schema, t->schema, t->schema);
    effect_init(&e, "order-1", WEIR_EXPECT_EXACT, 0);
    settle_effect(&settle, &e);
    TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ECONFLICT);
    assert_int_equal(t->err.actual, 1);
}

/* ---- the fence ---------------------------------------------------------------------------- */

/* Takes the lease away, as an operator does. */
static void reset_all(pg_test *t, weir_store *s)
{
    store_operate op = { .verb = STORE_SKIP };
    TEST_OK(t, s->work->operate(s, &op, &t->err));
    assert_int_equal(op.changed, 1);
}

static void a_settle_that_loses_its_lease_inside_its_transaction_writes_nothing(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    weir_store *operator= test_store(t);
    PGconn *holder = test_connect(t);
    const store_advance advance = { .reaction = w.reaction, .to = w.event };
    effect e;
    store_settle settle = settle_of(&w);
    slow x = { .s = w.s, .settle = &settle };
    beside thread;
    effect_init(&e, "order-1", WEIR_EXPECT_ANY, 0);
    settle_effect(&settle, &e);
    settle.advances = &advance;
    settle.advances_count = 1;

    /* It looks at the fence, which is its own, and then waits for the stream. */
    test_exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(%s.append_hash(0, 'order-1'))",
              t->schema);
    begin_beside(&thread, run_settle, &x);
    assert_true(somebody_waits(t));
    reset_all(t, operator);
    test_exec(holder, "COMMIT");
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_ELOST);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 0);
    assert_int_equal(look(t, "SELECT version FROM %s.streams"), 0);
    nothing_is_wrong(t, w.s);
}

static void a_settle_that_waits_for_a_busy_stream_delays_no_router(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    weir_store *router = test_store(t);
    PGconn *holder = test_connect(t);
    effect e;
    store_settle settle = settle_of(&w);
    slow x = { .s = w.s, .settle = &settle };
    beside thread;
    effect_init(&e, "order-1", WEIR_EXPECT_ANY, 0);
    settle_effect(&settle, &e);
    const int64_t next = test_put(t, w.s, "order-2", "Placed");

    test_exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(%s.append_hash(0, 'order-1'))",
              t->schema);
    begin_beside(&thread, run_settle, &x);
    assert_true(somebody_waits(t));
    give_mark(t, router, "r", "t", next, next);
    assert_true(somebody_waits(t)); /* the settle, still */
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 0);
    test_exec(holder, "COMMIT");
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_OK);
    assert_true(settle.behind);
    nothing_is_wrong(t, w.s);
}

/* As an append: a settle that waits for one of its streams holds none of the others. */
static void C13_a_settle_that_waits_for_a_stream_holds_no_other(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    weir_store *stranger = test_store(t);
    PGconn *holder = test_connect(t);
    effect first, second;
    store_settle settle = settle_of(&w);
    slow x = { .s = w.s, .settle = &settle };
    beside thread;
    effect_init(&first, "a-free", WEIR_EXPECT_ANY, 0);
    effect_init(&second, "order-1", WEIR_EXPECT_ANY, 0);
    store_append *both[] = { &first.append, &second.append };
    settle.appends = both;
    settle.appends_count = 2;
    test_exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(%s.append_hash(0, 'order-1'))",
              t->schema);
    begin_beside(&thread, run_settle, &x);
    assert_true(somebody_waits(t));
    const int64_t id = test_put(t, stranger, "a-free", "Free");
    assert_true(somebody_waits(t)); /* the settle, still */
    test_exec(holder, "COMMIT");
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_OK);
    assert_true(id < first.stream.id);
    assert_int_equal(first.stream.last, 1);
    nothing_is_wrong(t, w.s);
}

static weir_status no_sql(void *ctx, void *native, weir_error *err)
{
    (void)ctx;
    (void)native;
    (void)err;
    return WEIR_OK;
}

static void an_effect_on_a_stream_that_stays_held_is_busy_and_not_unknown(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    store_options options = test_options(t);
    options.busy_us = 3 * SECOND / 2;
    options.answer_us = SECOND; /* the wait for the stream comes on top of it */
    weir_store *s = test_store_with(t, &options);
    PGconn *holder = test_connect(t);
    effect e;
    store_settle settle = settle_of(&w);
    effect_init(&e, "order-1", WEIR_EXPECT_ANY, 0);
    settle_effect(&settle, &e);
    test_exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(%s.append_hash(0, 'order-1'))",
              t->schema);
    TEST_IS(t, s->work->settle(s, &settle, &t->err), WEIR_EBUSY);
    settle.sql = no_sql;
    TEST_IS(t, s->work->settle(s, &settle, &t->err), WEIR_EBUSY);
    test_exec(holder, "COMMIT");
    assert_untouched(t, &w);
}

static void a_stale_fence_writes_nothing_on_any_verb(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    const int64_t target = w.lease.target;
    const store_failure why = { .error = weir__str("x") };
    for (int64_t fence = w.lease.fence - 1; fence <= w.lease.fence + 1; fence += 2) {
        store_settle settle = { .target = target, .fence = fence };
        store_fenced items[] = { { .target = target, .fence = fence, .until_us = 77 },
                                 { .target = target + 1, .fence = fence } };
        effect e;
        TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ELOST);
        effect_init(&e, "out-1", WEIR_EXPECT_ANY, 0);
        settle_effect(&settle, &e);
        TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ELOST);
        const store_settle plain = { .target = target, .fence = fence };
        settle = plain;
        settle.end = STORE_END_BLOCK;
        settle.failure = why;
        TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ELOST);
        settle = plain;
        settle.end = STORE_END_DEFER;
        TEST_IS(t, w.s->work->settle(w.s, &settle, &t->err), WEIR_ELOST);
        TEST_OK(t, w.s->work->extend(w.s, SECOND, items, 2, &t->err));
        assert_int_equal(items[0].status, WEIR_ELOST);
        assert_int_equal(items[0].until_us, 77);
        assert_int_equal(items[1].status, WEIR_ENOTFOUND);
        TEST_OK(t, w.s->work->extend(w.s, 0, items, 2, &t->err));
        assert_int_equal(items[0].status, WEIR_ELOST);
    }
    store_settle nobodys = { .target = target + 1, .fence = 1, .end = STORE_END_DEFER };
    TEST_IS(t, w.s->work->settle(w.s, &nobodys, &t->err), WEIR_ENOTFOUND);
    assert_untouched(t, &w);

    /* And once it is given back, its own fence is stale as well. */
    store_fenced item = { .target = target, .fence = w.lease.fence };
    store_fenced twice[] = { item, item };
    TEST_OK(t, w.s->work->extend(w.s, 0, twice, 2, &t->err));
    assert_int_equal(twice[0].status, WEIR_OK);
    assert_int_equal(twice[1].status, WEIR_ELOST);
    TEST_OK(t, w.s->work->extend(w.s, SECOND, &item, 1, &t->err));
    assert_int_equal(item.status, WEIR_ELOST);
}

/* ---- the caller's own SQL ----------------------------------------------------------------- */

typedef struct own_sql {
    const char *sql;    /* any number of statements */
    weir_status status; /* what the callback answers */
    bool silent;        /* and does not say why */
} own_sql;

static weir_status run_own(void *ctx, void *native, weir_error *err)
{
    const own_sql *own = ctx;
    PQclear(PQexec(native, own->sql));
    if (own->status != WEIR_OK && !own->silent) {
        (void)weir__fail(err, own->status, "no thank you");
    }
    return own->status;
}

/* Settles with SQL of one's own; the status. */
static weir_status settle_own(pg_test *t, const work *w, int64_t fence, own_sql *own)
{
    const store_advance advance = { .reaction = w->reaction, .to = w->event };
    effect e;
    store_settle settle = { .target = w->lease.target,
                            .fence = fence,
                            .sql = run_own,
                            .sql_ctx = own,
                            .advances = &advance,
                            .advances_count = 1 };
    effect_init(&e, "out-1", WEIR_EXPECT_ANY, 0);
    settle_effect(&settle, &e);
    return w->s->work->settle(w->s, &settle, &t->err);
}

static void own_sql_is_atomic_with_the_watermark(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    char insert[128];
    own_sql own = { .sql = insert };
    test_exec(t->conn, "CREATE TABLE %s.mine (x integer)", t->schema);
    (void)snprintf(insert, sizeof insert, "INSERT INTO %s.mine VALUES (1)", t->schema);

    TEST_IS(t, settle_own(t, &w, w.lease.fence + 1, &own), WEIR_ELOST);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.mine"), 0);
    assert_untouched(t, &w);
    own.status = WEIR_EINVAL;
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EINVAL);
    assert_string_equal(t->err.message, "no thank you");
    own.silent = true;
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EINVAL);
    assert_string_equal(t->err.message, "the SQL of a settle has failed");
    assert_int_equal(look(t, "SELECT count(*) FROM %s.mine"), 0);
    assert_untouched(t, &w);

    own.status = WEIR_OK;
    TEST_OK(t, settle_own(t, &w, w.lease.fence, &own));
    assert_int_equal(look(t, "SELECT count(*) FROM %s.mine"), 1);
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), w.event);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 1);
}

static void own_sql_that_ends_its_transaction_is_refused(void **state)
{
    pg_test *t = *state;
    static const char *const endings[] = {
        "COMMIT",           "ROLLBACK",           "COMMIT; BEGIN",
        "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "ABORT; BEGIN; SELECT 1"
    };
    const work w = give_work(t, "t");
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        own_sql own = { .sql = endings[i] };
        TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EMISUSE);
        assert_non_null(strstr(t->err.message, "ended its transaction"));
        assert_untouched(t, &w);
    }
    own_sql failed = { .sql = "SELECT 1 / 0" };
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &failed), WEIR_EMISUSE);
    assert_non_null(strstr(t->err.message, "did not say so"));
    own_sql saved = { .sql = "SAVEPOINT a; SELECT 1 / 0" };
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &saved), WEIR_EMISUSE);
    assert_untouched(t, &w);
    own_sql rescued = { .sql = "SAVEPOINT a; ROLLBACK TO a; RELEASE a" };
    TEST_OK(t, settle_own(t, &w, w.lease.fence, &rescued));
}

/* Where its names are looked for is the role's affair, and what it sets ends with it: our
 * statements look in pg_catalog alone, in the same session. */
static void C56_own_sql_has_the_path_of_the_role_and_ours_is_kept(void **state)
{
    pg_test *t = *state;
    char sql[512];
    own_sql own = { .sql = sql };
    (void)snprintf(sql, sizeof sql, "-csearch_path=%s,pg_catalog", t->schema);
    setenv("PGOPTIONS", sql, 1); /* of every connection: the one that is idle may be in use */
    const work w = give_work(t, "t");
    store_positions positions;
    test_exec(t->conn, "CREATE TABLE %s.mine (x text)", t->schema);
    test_exec(t->conn,
              "CREATE FUNCTION %s.pg_is_in_recovery() RETURNS boolean LANGUAGE plpgsql AS "
              "'BEGIN RAISE EXCEPTION ''a decoy was met''; END'",
              t->schema);
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO mine SELECT current_setting('search_path');"
                   "SET SESSION search_path = %s, pg_catalog, public",
                   t->schema);
    const weir_status settled = settle_own(t, &w, w.lease.fence, &own);
    unsetenv("PGOPTIONS");
    TEST_OK(t, settled);
    TEST_OK(t, w.s->log->positions(w.s, &positions, &t->err));
    assert_int_equal(look(t, "SELECT count(*) FROM %s.mine WHERE x LIKE '%%,pg_catalog'"), 1);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.mine"), 1);
}

/* A constraint that is judged at the commit: what it refuses has not happened. */
static void a_commit_that_is_refused_undoes_the_settle(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    char insert[256];
    own_sql own = { .sql = insert };
    test_exec(t->conn,
              "CREATE TABLE %s.mine (x integer, CONSTRAINT once UNIQUE (x) DEFERRABLE INITIALLY "
              "DEFERRED)",
              t->schema);
    (void)snprintf(insert, sizeof insert, "INSERT INTO %s.mine VALUES (1), (1)", t->schema);
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EIO);
    assert_string_equal(t->err.store_code, "23505");
    assert_untouched(t, &w);
}

static void a_connection_that_dies_before_the_commit_is_no_unknown_outcome(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    own_sql own = { .sql = "SELECT pg_terminate_backend(pg_backend_pid())" };
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EUNAVAILABLE);
    assert_untouched(t, &w);
    own.status = WEIR_EIO; /* what it says of that is not the reason */
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EUNAVAILABLE);
    assert_untouched(t, &w);
    own = (own_sql){ .sql = "SELECT 1" };
    TEST_OK(t, settle_own(t, &w, w.lease.fence, &own));
}

static void a_connection_that_died_while_idle_is_not_used_for_own_sql(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    own_sql own = { .sql = "SELECT 1" };
    const char *others = "FROM pg_stat_activity WHERE application_name = 'weir-test' AND pid <> "
                         "pg_backend_pid()";
    for (int i = 0; i < 2; i++) {
        assert_true(test_number(t->conn, "SELECT count(pg_terminate_backend(pid)) %s", others) > 0);
        assert_true(test_wait(t->conn, 120, "SELECT count(*) = 0 %s", others));
        if (i == 0) {
            nothing_is_wrong(t, w.s);
        } else {
            TEST_OK(t, settle_own(t, &w, w.lease.fence, &own));
        }
    }
}

/* The answer to COMMIT is cut off: it has happened, and nobody may say that it has not. */
static void a_commit_without_an_answer_is_unknown(void **state)
{
    pg_test *t = *state;
    work w = give_work(t, "t");
    proxy *p = proxy_start();
    store_options options = test_options(t);
    char url[TEST_URL_BYTES];
    own_sql own = { .sql = "SELECT 1" };
    (void)snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres", proxy_host(p));
    options.path = weir__str(url);
    weir_store *direct = w.s;
    w.s = test_store_with(t, &options);
    proxy_cut_answer(p, "COMMIT;");
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EUNKNOWN);
    assert_int_equal(proxy_cuts(p), 1);
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), w.event);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 1);

    /* Cut off before it: nothing has happened, and that is known. */
    const int64_t next = test_put(t, direct, "order-1", "Placed");
    give_mark(t, direct, "r", "t", next, next);
    w.event = next;
    w.lease = take_lease(t, direct);
    proxy_cut_request(p, "settle_with");
    TEST_IS(t, settle_own(t, &w, w.lease.fence, &own), WEIR_EUNAVAILABLE);
    assert_int_equal(proxy_cuts(p), 2);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.events WHERE name = 'Done'"), 1);
    assert_true(look(t, "SELECT at FROM %s.subscriptions") < next);
    test_store_close(t, w.s);
    proxy_stop(p);
}

/* ---- crashes ------------------------------------------------------------------------------ */

/* Kills a process of the server's, which makes the others start again from the WAL, and waits until
 * it answers. */
static void crash(pg_test *t, weir_store *s)
{
    const int64_t pid = test_number(t->conn, "SELECT pg_backend_pid()");
    int64_t now_us = 0;
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    for (int tries = 0; tries < 200; tries++) {
        usleep(50000);
        PQreset(t->conn);
        if (PQstatus(t->conn) == CONNECTION_OK) {
            TEST_OK(t, s->about->now(s, &now_us, &t->err));
            return;
        }
    }
    fail_msg("the server did not come back");
}

/* What is not flushed at the commit is lost with certainty: nobody else flushes it. */
static void make_commits_lazy(pg_test *t)
{
    test_exec(t->conn, "ALTER SYSTEM SET synchronous_commit = off");
    test_exec(t->conn, "ALTER SYSTEM SET wal_writer_delay = '10s'");
    test_exec(t->conn, "ALTER SYSTEM SET autovacuum = off");
    test_exec(t->conn, "SELECT pg_reload_conf()");
    assert_true(test_wait(t->conn, 120, "SELECT current_setting('synchronous_commit') = 'off'"));
}

static void make_commits_normal(pg_test *t)
{
    test_exec(t->conn, "ALTER SYSTEM RESET ALL");
    test_exec(t->conn, "SELECT pg_reload_conf()");
}

static void fences_never_repeat_through_a_crash(void **state)
{
    pg_test *t = *state;
    work w = give_work(t, "t");
    test_exec(t->conn, "CHECKPOINT");
    make_commits_lazy(t);
    store_fenced item = { .target = w.lease.target, .fence = w.lease.fence };
    TEST_OK(t, w.s->work->extend(w.s, 0, &item, 1, &t->err));
    const int64_t fence = take_lease(t, w.s).fence;
    crash(t, w.s);
    assert_int_equal(look(t, "SELECT fence FROM %s.targets"), fence);
    item.fence = fence;
    TEST_OK(t, w.s->work->extend(w.s, 0, &item, 1, &t->err));
    TEST_OK(t, item.status);
    assert_true(take_lease(t, w.s).fence > fence);
    make_commits_normal(t);
}

static void what_was_settled_survives_a_crash(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    const store_advance advance = { .reaction = w.reaction, .to = w.event };
    store_settle settle = settle_of(&w);
    settle.advances = &advance;
    settle.advances_count = 1;
    test_exec(t->conn, "CHECKPOINT");
    make_commits_lazy(t);
    TEST_OK(t, w.s->work->settle(w.s, &settle, &t->err));
    crash(t, w.s);
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), w.event);
    nothing_is_wrong(t, w.s);
    make_commits_normal(t);
}

/* A backend that is killed while it settles: the answer is lost, and nothing has happened. */
static void a_settle_whose_backend_is_killed_is_unknown_and_leaves_nothing(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    PGconn *holder = test_connect(t);
    effect e;
    store_settle settle = settle_of(&w);
    slow x = { .s = w.s, .settle = &settle };
    beside thread;
    effect_init(&e, "order-1", WEIR_EXPECT_ANY, 0);
    settle_effect(&settle, &e);
    test_exec(holder, "BEGIN; SELECT pg_advisory_xact_lock(%s.append_hash(0, 'order-1'))",
              t->schema);
    begin_beside(&thread, run_settle, &x);
    assert_true(somebody_waits(t));
    test_exec(t->conn,
              "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = "
              "'Lock' AND application_name = 'weir-test' AND query LIKE '%%%s%%'",
              t->schema);
    end_beside(&thread);
    assert_int_equal(x.status, WEIR_EUNKNOWN);
    test_exec(holder, "COMMIT");
    assert_untouched(t, &w);
}

/* ---- numbers and texts -------------------------------------------------------------------- */

static void ids_past_2_32_on_every_verb(void **state)
{
    pg_test *t = *state;
    const int64_t base = INT64_C(1) << 33;
    weir_store *s = test_store(t);
    store_parked_chunk parked = { 0 };
    TEST_OK(t, weir__store_seed(s, base, base, &t->err));
    static const char *const counters[] = { "targets_id_seq", "reactions_id_seq", "parked_id_seq" };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        test_exec(t->conn, "SELECT setval('%s.%s', %lld)", t->schema, counters[i], (long long)base);
    }
    const int64_t r = give_reaction(t, s, "r", STORE_RULE_WORK);
    const int64_t first = test_put(t, s, "order-1", "Placed");
    const int64_t second = test_put(t, s, "order-1", "Paid");
    assert_int_equal(first, base + 1);
    give_mark(t, s, "r", "t", first, first);
    give_mark(t, s, "r", "t", second, second);
    test_exec(t->conn, "UPDATE %s.targets SET fence = %lld", t->schema, (long long)base);
    store_leased l = take_lease(t, s);
    assert_true(l.target > base && l.fence == base + 1);

    const store_advance advance = { .reaction = r, .to = first };
    const store_park park = { .reaction = r, .event = first, .attempts = base };
    store_settle settle = { .target = l.target,
                            .fence = l.fence,
                            .advances = &advance,
                            .advances_count = 1,
                            .parks = &park,
                            .parks_count = 1,
                            .failure = { .reaction = r, .event = second },
                            .end = STORE_END_BLOCK };
    TEST_OK(t, s->work->settle(s, &settle, &t->err));
    assert_true(settle.behind);
    store_operate skip = { .verb = STORE_SKIP };
    TEST_OK(t, s->work->operate(s, &skip, &t->err));
    assert_int_equal(skip.changed, 1);
    const store_parked_query q = { .limit = 10 };
    TEST_OK(t, s->work->parked(s, &q, &parked, &t->err));
    assert_int_equal(parked.parked_count, 2);
    assert_int_equal(parked.parked[0].event, first);
    assert_int_equal(parked.parked[0].attempts, base);
    assert_int_equal(parked.parked[1].event, second);
    TEST_OK(t, s->work->parked_change(s, parked.parked[0].id, STORE_PARKED_RETRY, &t->err));
    l = take_lease(t, s);
    settle = (store_settle){ .target = l.target, .fence = l.fence };
    settle.parked_done = &parked.parked[0].id;
    settle.parked_done_count = 1;
    TEST_OK(t, s->work->settle(s, &settle, &t->err));
    assert_false(settle.behind);
    store_operate reset = { .verb = STORE_RESET,
                            .reset_to = STORE_RESET_POSITION,
                            .position = base };
    TEST_OK(t, s->work->operate(s, &reset, &t->err));
    assert_int_equal(reset.changed, 1);
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions"), base);
    assert_int_equal(look(t, "SELECT routed FROM %s.reactions"), base);
    nothing_is_wrong(t, s);
    weir__arena_free(&parked.arena);
}

static void an_error_that_is_no_text_is_kept_with_question_marks(void **state)
{
    pg_test *t = *state;
    const work w = give_work(t, "t");
    char text[STORE_ERROR_TEXT_BYTES_MAX + 100];
    memset(text, 'e', sizeof text);
    memcpy(text, "a\0b\xff\xc3(\xf0\x9f\x98\x80", 10);
    const store_failure why = { .reaction = w.reaction,
                                .event = w.event,
                                .error = { .ptr = text, .len = sizeof text } };
    store_settle stuck = {
        .target = w.lease.target, .fence = w.lease.fence, .failure = why, .end = STORE_END_BLOCK
    };
    TEST_OK(t, w.s->work->settle(w.s, &stuck, &t->err));
    assert_string_equal(test_text(t->conn, "SELECT left(error, 8) FROM %s.targets", t->schema),
                        "a?b?" /* no trigraph */ "?(\xf0\x9f\x98\x80"
                        "e");
    assert_int_equal(look(t, "SELECT octet_length(error) FROM %s.targets"),
                     STORE_ERROR_TEXT_BYTES_MAX);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_settle_is_one_statement),
        PG_TEST(keeping_a_lease_and_extending_it_are_one_statement_each),
        PG_TEST(a_refused_effect_leaves_nothing_and_says_what_it_met),
        PG_TEST(a_taken_key_names_an_owner_of_512_bytes),
        PG_TEST(an_event_behind_its_back_is_a_conflict_of_the_effect),
        PG_TEST(a_settle_that_loses_its_lease_inside_its_transaction_writes_nothing),
        PG_TEST(a_settle_that_waits_for_a_busy_stream_delays_no_router),
        PG_TEST(C13_a_settle_that_waits_for_a_stream_holds_no_other),
        PG_TEST(an_effect_on_a_stream_that_stays_held_is_busy_and_not_unknown),
        PG_TEST(a_stale_fence_writes_nothing_on_any_verb),
        PG_TEST(own_sql_is_atomic_with_the_watermark),
        PG_TEST(own_sql_that_ends_its_transaction_is_refused),
        PG_TEST(C56_own_sql_has_the_path_of_the_role_and_ours_is_kept),
        PG_TEST(a_commit_that_is_refused_undoes_the_settle),
        PG_TEST(a_connection_that_dies_before_the_commit_is_no_unknown_outcome),
        PG_TEST(a_connection_that_died_while_idle_is_not_used_for_own_sql),
        PG_TEST(a_commit_without_an_answer_is_unknown),
        PG_TEST(fences_never_repeat_through_a_crash),
        PG_TEST(what_was_settled_survives_a_crash),
        PG_TEST(a_settle_whose_backend_is_killed_is_unknown_and_leaves_nothing),
        PG_TEST(ids_past_2_32_on_every_verb),
        PG_TEST(an_error_that_is_no_text_is_kept_with_question_marks),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
