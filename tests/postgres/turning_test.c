/* turning_test.c - turns on PostgreSQL: many leases end and others begin, in one statement.
 *
 * What a turn does for one target is what a settle and a lease do, so most of this is about many:
 * each has its own answer, rows are locked in one order, and what the rows say is what the store's
 * own check derives.
 */
#include "targets_support.h"

#include <stdio.h>
#include <string.h>

enum { TARGETS = 4 };
#define LEASE_US INT64_C(60000000)

/* Targets "a", "b", ... of lane "l", all leased: each has the events 1 and 2 of its stream to do
 * for reaction "r". Ids are given in the order of the names. */
typedef struct turn_test {
    weir_store *s;
    int64_t reaction;
    int64_t events[TARGETS][2];
    store_leased leases[TARGETS];
    store_advance advances[TARGETS];
    store_settle settles[TARGETS];
    store_settle *list[TARGETS];
    store_lease_list leased;
} turn_test;

static store_lease_request request_of(size_t limit)
{
    return (store_lease_request){ .lane = weir__str("l"),
                                  .holder = weir__str("turner"),
                                  .lease_us = LEASE_US,
                                  .limit = limit,
                                  .all_reactions = true };
}

static turn_test turn_begin(pg_test *t, store_rule rule)
{
    static const char *const names[TARGETS] = { "a", "b", "c", "d" };
    turn_test x = { .s = test_store(t) };
    store_lease_list list = { 0 };
    const store_lease_request request = request_of(TARGETS);
    x.reaction = give_reaction(t, x.s, "r", rule);
    for (size_t i = 0; i < TARGETS; i++) {
        for (size_t k = 0; k < 2; k++) {
            x.events[i][k] = test_put(t, x.s, names[i], "Placed");
            give_mark(t, x.s, "r", names[i], x.events[i][k], x.events[i][k]);
        }
    }
    TEST_OK(t, x.s->work->turn(x.s, NULL, 0, &request, &list, &t->err));
    assert_int_equal(list.leases_count, TARGETS);
    for (size_t i = 0; i < TARGETS; i++) {
        x.leases[i] = list.leases[i];
        x.leases[i].name = (weir_str){ 0 };
        x.advances[i] = (store_advance){ .reaction = x.reaction, .to = x.events[i][1] };
        x.settles[i] =
            (store_settle){ .target = list.leases[i].target, .fence = list.leases[i].fence };
    }
    weir__arena_free(&list.arena);
    return x;
}

/* The settles of a turn, in this order. */
static void give_settles(turn_test *x)
{
    for (size_t i = 0; i < TARGETS; i++) {
        x->settles[i].advances = &x->advances[i];
        x->settles[i].advances_count = 1;
        x->settles[i].status = WEIR_EIO;
        x->list[i] = &x->settles[TARGETS - 1 - i]; /* not the order of targets */
    }
}

/* ---- one round trip -------------------------------------------------------------------------- */

static void a_turn_is_one_statement(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    const store_lease_request request = request_of(TARGETS);
    char like[TEST_SCHEMA_BYTES + 8];
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    give_settles(&x);
    x.advances[1].to = x.events[1][0]; /* has more to do */
    x.advances[3].to = x.events[3][0];

    test_statements_reset(t);
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, &request, &x.leased, &t->err));
    assert_int_equal(test_statements(t, like), 1);
    assert_int_equal(test_statements(t, "BEGIN%"), 0);
    for (size_t i = 0; i < TARGETS; i++) {
        assert_int_equal(x.settles[i].status, WEIR_OK);
        assert_int_equal(x.settles[i].behind, i % 2);
    }
    /* The two that have more were free again, and are leased with the next fence. */
    assert_int_equal(x.leased.leases_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const store_leased *l = &x.leased.leases[i];
        assert_int_equal(l->target, x.leases[2 * i + 1].target);
        assert_int_equal(l->fence, x.leases[2 * i + 1].fence + 1);
        assert_int_equal(l->subscriptions_count, 1);
        assert_int_equal(l->subscriptions[0].at, x.events[2 * i + 1][0]);
        assert_int_equal(l->subscriptions[0].mark, x.events[2 * i + 1][1]);
        assert_int_equal(l->lost, 0);
    }
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE holder IS NOT NULL"), 2);
    nothing_is_wrong(t, x.s);
    weir__arena_free(&x.leased.arena);
}

static void a_turn_without_a_lease_leases_nothing(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    give_settles(&x);
    x.advances[0].to = x.events[0][0];
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, NULL, &x.leased, &t->err));
    assert_int_equal(x.leased.leases_count, 0);
    assert_true(x.settles[0].behind);
    assert_false(x.settles[1].behind);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE holder IS NOT NULL"), 0);
    TEST_OK(t, x.s->work->turn(x.s, NULL, 0, NULL, &x.leased, &t->err));
    assert_int_equal(x.leased.leases_count, 0);
    nothing_is_wrong(t, x.s);
    weir__arena_free(&x.leased.arena);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void each_settle_of_a_turn_has_its_own_answer(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    const store_lease_request request = request_of(TARGETS);
    store_advance both[2] = { { .reaction = x.reaction, .to = x.events[2][1] },
                              { .reaction = 4711, .to = x.events[2][1] } };
    give_settles(&x);
    x.settles[0].fence--;                   /* stale */
    x.settles[1].target = INT64_C(1) << 40; /* no such target */
    x.settles[2].advances = both;           /* one of them is of no subscription */
    x.settles[2].advances_count = 2;

    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, &request, &x.leased, &t->err));
    assert_int_equal(x.settles[0].status, WEIR_ELOST);
    assert_int_equal(x.settles[1].status, WEIR_ENOTFOUND);
    assert_int_equal(x.settles[2].status, WEIR_ENOTFOUND);
    assert_int_equal(x.settles[3].status, WEIR_OK);
    assert_int_equal(x.leased.leases_count, 0); /* the others are as they were: leased */
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions WHERE at = mark"), 1);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE holder IS NOT NULL"), 3);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions"), TARGETS);

    /* Again: what was released is lost, whatever the fence. */
    give_settles(&x);
    x.settles[0].fence = x.leases[0].fence;
    x.settles[1].target = x.leases[1].target;
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, &request, &x.leased, &t->err));
    for (size_t i = 0; i < TARGETS; i++) {
        assert_int_equal(x.settles[i].status, i == 3 ? WEIR_ELOST : WEIR_OK);
    }
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions WHERE at = mark"), TARGETS);
    nothing_is_wrong(t, x.s);
    weir__arena_free(&x.leased.arena);
}

/* What a settle keeps and clears, a turn does. */
static void a_turn_clears_what_a_settle_clears(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    const int64_t last = test_put(t, x.s, "elsewhere", "Noticed");
    store_advance twice[2] = { { .reaction = x.reaction, .to = x.events[0][1] },
                               { .reaction = x.reaction, .to = x.events[0][0] } };
    test_exec(t->conn,
              "UPDATE %s.targets SET lost = 3, error = 'e', event = 1, reaction = 1, attempts = 2;"
              "UPDATE %s.subscriptions SET retries = 2",
              t->schema, t->schema);
    give_settles(&x);
    x.settles[0].advances = twice; /* the furthest counts */
    x.settles[0].advances_count = 2;
    x.settles[1].advances_count = 0;       /* does not move */
    x.advances[2].to = x.events[2][0] - 1; /* lower than it is: ignored */
    x.advances[3].to = last;               /* takes the mark with it */
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, NULL, &x.leased, &t->err));
    for (size_t i = 0; i < TARGETS; i++) {
        TEST_OK(t, x.settles[i].status);
        assert_int_equal(x.settles[i].behind, i == 1 || i == 2);
    }
    assert_string_equal(
        test_text(t->conn,
                  "SELECT string_agg(concat_ws(',', t.name, t.lost, t.error, t.event, t.reaction, "
                  "t.attempts, s.retries), ' ' ORDER BY t.name) "
                  "FROM %s.targets AS t JOIN %s.subscriptions AS s ON s.target = t.id",
                  t->schema, t->schema),
        "a,0,,0,0,0,0 b,3,e,1,1,2,2 c,3,e,1,1,2,2 d,0,,0,0,0,0");
    assert_int_equal(look(t, "SELECT at FROM %s.subscriptions ORDER BY target LIMIT 1"),
                     x.events[0][1]);
    assert_int_equal(look(t, "SELECT max(mark) FROM %s.subscriptions"), last);
    nothing_is_wrong(t, x.s);
}

static void a_turn_takes_the_work_rows_with_it(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_WORK);
    give_settles(&x);
    x.advances[0].to = x.events[0][0];
    x.settles[1].fence--;
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), 2 * TARGETS);
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, NULL, &x.leased, &t->err));
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), 3);
    assert_int_equal(look(t, "SELECT sum(event) FROM %s.work"),
                     x.events[0][1] + x.events[1][0] + x.events[1][1]);
    nothing_is_wrong(t, x.s);
}

/* Retired reactions, sent-back events, priorities and pauses count as they do in a settle. */
static void a_turn_derives_what_the_check_derives(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    bool changed = false;
    (void)give_reaction(t, x.s, "old", STORE_RULE_STREAM);
    give_mark(t, x.s, "old", "a", x.events[0][0], x.events[0][1]);
    TEST_OK(t, x.s->work->retire(x.s, weir__str("old"), &t->err));
    test_exec(t->conn,
              "INSERT INTO %s.parked (reaction, target, event, attempts, parked, error, sent_back) "
              "SELECT %lld, id, 1, 1, 1, '', true FROM %s.targets WHERE name = 'b';"
              "UPDATE %s.subscriptions SET priority = 7;"
              "UPDATE %s.targets SET priority = CASE name WHEN 'c' THEN 3 ELSE 7 END, "
              "override = CASE name WHEN 'c' THEN 3 END, paused = name = 'd', held = name = 'd'",
              t->schema, (long long)x.reaction, t->schema, t->schema, t->schema);
    give_settles(&x);
    x.advances[2].to = x.events[2][0];
    x.advances[3].to = x.events[3][0]; /* there is more, but it is paused */
    TEST_OK(t, x.s->work->turn(x.s, x.list, TARGETS, NULL, &x.leased, &t->err));
    assert_false(x.settles[0].behind);
    assert_true(x.settles[1].behind);
    assert_true(x.settles[2].behind);
    assert_false(x.settles[3].behind);
    nothing_is_wrong(t, x.s);

    /* A paused lane as well. */
    TEST_OK(t,
            x.s->work->lane_pause(x.s, weir__str("l"), true, weir__str("op"), &changed, &t->err));
    test_exec(t->conn, "UPDATE %s.targets SET holder = 'turner' WHERE name = 'c'", t->schema);
    x.settles[2].advances_count = 0;
    TEST_OK(t, x.s->work->turn(x.s, &x.list[1], 1, NULL, &x.leased, &t->err));
    TEST_OK(t, x.settles[2].status);
    assert_false(x.settles[2].behind);
    nothing_is_wrong(t, x.s);
}

/* ---- locks ----------------------------------------------------------------------------------- */

typedef struct running {
    turn_test *x;
    weir_status status;
    weir_error err;
} running;

static void run_turn(void *ctx)
{
    running *r = ctx;
    r->status = r->x->s->work->turn(r->x->s, r->x->list, TARGETS, NULL, &r->x->leased, &r->err);
}

/* Names are "a" to "d", ids the other way round after this: who locks by id is found out. */
static void a_turn_locks_its_targets_in_the_order_of_their_names(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    running r = { .x = &x };
    beside b;
    test_exec(t->conn,
              "UPDATE %s.targets SET name = '-' || name;"
              "UPDATE %s.targets SET name = translate(substr(name, 2), 'abcd', 'dcba')",
              t->schema, t->schema);
    give_settles(&x);
    test_exec(t->conn, "BEGIN; SELECT 1 FROM %s.targets WHERE name = 'b' FOR NO KEY UPDATE",
              t->schema);
    begin_beside(&b, run_turn, &r);
    PGconn *other = test_connect(t);
    const bool waited = test_wait(other, 120,
                                  "SELECT count(*) = 1 FROM pg_stat_activity "
                                  " WHERE wait_event_type = 'Lock' AND query LIKE '%%%s%%turn(%%'",
                                  t->schema);
    char unlocked[16];
    (void)snprintf(unlocked, sizeof unlocked, "%s",
                   test_text(other,
                             "SELECT string_agg(name, '' ORDER BY name) FROM (SELECT name "
                             "FROM %s.targets FOR NO KEY UPDATE SKIP LOCKED) AS f",
                             t->schema));
    test_exec(t->conn, "COMMIT");
    end_beside(&b);
    assert_true(waited);
    assert_string_equal(unlocked, "cd");
    assert_int_equal(r.status, WEIR_OK);
    for (size_t i = 0; i < TARGETS; i++) {
        TEST_OK(t, x.settles[i].status);
    }
}

/* Somebody who keeps a target locked makes the turn busy: nothing of it happened, for nobody. */
static void a_target_that_stays_locked_makes_the_turn_busy(void **state)
{
    pg_test *t = *state;
    turn_test x = turn_begin(t, STORE_RULE_STREAM);
    give_settles(&x);
    test_exec(t->conn, "BEGIN; SELECT 1 FROM %s.targets WHERE name = 'b' FOR NO KEY UPDATE",
              t->schema);
    TEST_IS(t, x.s->work->turn(x.s, x.list, TARGETS, NULL, &x.leased, &t->err), WEIR_EBUSY);
    test_exec(t->conn, "COMMIT");
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE holder IS NOT NULL"), TARGETS);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions WHERE at = mark"), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(a_turn_is_one_statement),
        PG_TEST(a_turn_without_a_lease_leases_nothing),
        PG_TEST(each_settle_of_a_turn_has_its_own_answer),
        PG_TEST(a_turn_clears_what_a_settle_clears),
        PG_TEST(a_turn_takes_the_work_rows_with_it),
        PG_TEST(a_turn_derives_what_the_check_derives),
        PG_TEST(a_turn_locks_its_targets_in_the_order_of_their_names),
        PG_TEST(a_target_that_stays_locked_makes_the_turn_busy),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
