/* routing_test.c - routing on PostgreSQL: many marks at once, many routers at once.
 *
 * What a mark means is tested on every store (tests/conformance, tests/differential); here are the
 * statements, the locks and the commits.
 */
#include "pg_support.h"
#include "targets_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 32 };

/* A call of `route` with its texts. */
typedef struct routing {
    store_route_step step;
    store_mark *marks;
    char (*names)[NAME_BYTES];
    size_t count;
} routing;

/* One event, at `position`, for each of `count` targets PREFIX-0 ...; backwards: in that order. */
static routing routing_of(int64_t reaction, const char *prefix, size_t count, bool backwards,
                          int64_t position)
{
    routing r = {
        .step = { .reaction = reaction, .number = 1, .from = position - 1, .to = position },
        .marks = calloc(count, sizeof *r.marks),
        .names = calloc(count, sizeof *r.names),
        .count = count
    };
    assert_true(r.marks != NULL && r.names != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(r.names[i], NAME_BYTES, "%s-%05zu", prefix, backwards ? count - 1 - i : i);
        r.marks[i] = (store_mark){ .target = weir__str(r.names[i]),
                                   .lane = weir__str("l"),
                                   .source = weir__str("s"),
                                   .value = weir__str(""),
                                   .first = position,
                                   .last = position };
    }
    return r;
}

static void routing_free(routing *r)
{
    free(r->marks);
    free(r->names);
}

static weir_status route(weir_store *s, const routing *r, size_t *bad_mark, weir_error *err)
{
    const store_route request = {
        .steps = &r->step, .steps_count = 1, .marks = r->marks, .marks_count = r->count
    };
    return s->work->route(s, &request, bad_mark, err);
}

static void fifteen_hundred_marks_are_one_statement(void **state)
{
    enum { COUNT = 1500 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t reaction = give_reaction(t, s, "r", STORE_RULE_STREAM);
    char like[TEST_SCHEMA_BYTES + 8];
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    for (int64_t position = 1; position <= 2; position++) {
        test_put(t, s, "s-1", "A");
        routing r = routing_of(reaction, "t", COUNT, true, position);
        test_statements_reset(t);
        const int64_t begin = test_mono_us();
        TEST_OK(t, route(s, &r, NULL, &t->err));
        print_message("%d marks: %lld ms\n", COUNT, (long long)(test_mono_us() - begin) / 1000);
        assert_int_equal(test_statements(t, like), 1);
        routing_free(&r);
    }
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE behind AND watermark = 0"),
                     COUNT);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions WHERE at = 0 AND mark = 2"),
                     COUNT);
    /* Found first, numbered first, in whatever order they were locked. */
    assert_string_equal(
        test_text(t->conn, "SELECT name FROM %s.targets ORDER BY id LIMIT 1", t->schema),
        "t-01499");
    assert_int_equal(look(t, "SELECT max(id) FROM %s.targets"), COUNT);
    nothing_is_wrong(t, s);
}

/* Events from..to for the targets t-0 and t-1 in turns, each found `times` times, on a connection
 * of the test's: the first time put together, then in rounds. */
static void route_work(PGconn *conn, const char *schema, int from, int to, int times, int priority)
{
    PQclear(test_query(
        conn,
        "WITH events AS (SELECT (i - 1) * 2 + g %% 2 AS mark, i, g"
        "                  FROM generate_series(1, %d) AS i, generate_series(%d, %d) AS g),"
        "     marks AS (SELECT mark, mark %% 2 AS name, min(i) - 1 AS round, min(g) AS first,"
        "                      max(g) AS last FROM events GROUP BY mark)"
        "SELECT %s.route('{1}', '{1}', '{%d}', '{%d}', '{t-0, t-1}', array_agg(0),"
        "    array_agg(name ORDER BY mark), array_agg(round ORDER BY mark), array_agg('l'::text),"
        "    array_agg(%d::bigint), array_agg('s'::text), array_agg(''::text),"
        "    array_agg(first::bigint ORDER BY mark), array_agg(last::bigint ORDER BY mark),"
        "    (SELECT array_agg(mark ORDER BY i, g) FROM events),"
        "    (SELECT array_agg(g::bigint ORDER BY i, g) FROM events), '{}', '{}', '{}')"
        "  FROM marks",
        times, from, to, schema, from - 1, to, priority));
}

/* A page of events for few targets costs what its targets cost, and the work rows. */
static void many_events_of_a_target_are_one_look_at_it(void **state)
{
    enum { PAGE = 40 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *conn = test_connect(t); /* has counted nothing yet */
    give_reaction(t, s, "r", STORE_RULE_WORK);
    for (int i = 0; i < 3 * PAGE; i++) {
        test_put(t, s, "s-1", "A");
    }
    route_work(t->conn, t->schema, 1, PAGE, 2, 0);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), PAGE);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE behind"), 2);

    const int64_t before = look(t, "SELECT sum(xmin::text::bigint) FROM %s.targets");
    test_exec(conn, "BEGIN");
    route_work(conn, t->schema, PAGE + 1, 2 * PAGE, 1, 0);
    const int64_t looks =
        test_number(conn,
                    "SELECT sum(idx_scan) FROM pg_stat_xact_all_tables WHERE schemaname = '%s'"
                    "   AND relname IN ('targets', 'subscriptions')",
                    t->schema);
    test_exec(conn, "COMMIT");
    print_message("%d marks: %lld looks\n", PAGE, (long long)looks);
    assert_in_range(looks, 1, PAGE / 2);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), 2 * PAGE);
    /* They were behind already, and are not written again... */
    assert_int_equal(look(t, "SELECT sum(xmin::text::bigint) FROM %s.targets"), before);

    /* ...unless their priority is another one. */
    route_work(t->conn, t->schema, 2 * PAGE + 1, 3 * PAGE, 1, 7);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE priority = 7"), 2);
    assert_int_equal(look(t, "SELECT min(mark) FROM %s.subscriptions"), 3 * PAGE - 1);
    assert_int_equal(look(t, "SELECT max(at) FROM %s.subscriptions"), 1);
    /* What has its work row already, below the mark, gets no second one; what has lost it does. */
    test_exec(t->conn, "DELETE FROM %s.work WHERE event = 9", t->schema);
    test_exec(t->conn, "UPDATE %s.reactions SET routed = 0", t->schema);
    route_work(t->conn, t->schema, 1, 3 * PAGE, 1, 7);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), 3 * PAGE);
    nothing_is_wrong(t, s);
}

/* What its marks make of it is known when it is inserted; what was guessed wrongly is put right. */
static void a_new_target_is_written_once(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *conn = test_connect(t); /* has counted nothing yet */
    give_reaction(t, s, "a", STORE_RULE_STREAM);
    give_reaction(t, s, "b", STORE_RULE_STREAM);
    for (int i = 0; i < 5; i++) {
        test_put(t, s, "s-1", "A");
    }
    test_exec(conn, "BEGIN");
    PQclear(test_query(conn,
                       "SELECT %s.route('{1, 2}', '{1, 1}', '{0, 0}', '{3, 3}', '{t, u}',"
                       "    '{0, 1, 0}', '{0, 0, 1}', '{0, 0, 0}', '{l, l, l}', '{4, 7, 1}',"
                       "    '{s, s, s}', '{v, v, v}', '{2, 1, 3}', '{2, 3, 3}', '{0, 2}',"
                       "    '{2, 3}', '{}', '{}', '{}')",
                       t->schema));
    assert_int_equal(test_number(conn,
                                 "SELECT n_tup_ins * 10 + n_tup_upd FROM pg_stat_xact_all_tables"
                                 " WHERE schemaname = '%s' AND relname = 'targets'",
                                 t->schema),
                     20);
    test_exec(conn, "COMMIT");
    assert_int_equal(look(t, "SELECT watermark * 10 + priority FROM %s.targets WHERE name = 't'"),
                     7);
    assert_int_equal(look(t, "SELECT watermark * 10 + priority FROM %s.targets WHERE name = 'u'"),
                     21);
    nothing_is_wrong(t, s);
    /* The last of a subscription's marks gives its priority. */
    PQclear(test_query(conn,
                       "SELECT %s.route('{1}', '{1}', '{3}', '{5}', '{w}', '{0, 0}', '{0, 0}',"
                       "    '{0, 1}', '{l, l}', '{9, 2}', '{s, s}', '{v, v}', '{4, 5}', '{4, 5}',"
                       "    '{0, 1}', '{4, 5}', '{}', '{}', '{}')",
                       t->schema));
    assert_int_equal(look(t, "SELECT watermark * 10 + priority FROM %s.targets WHERE name = 'w'"),
                     32);
    nothing_is_wrong(t, s);
}

static void a_mark_in_the_wrong_lane_is_named_and_nothing_is_written(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t reaction = give_reaction(t, s, "r", STORE_RULE_STREAM);
    size_t bad_mark = 99;
    test_put(t, s, "s-1", "A");
    give_mark(t, s, "r", "t-00003", 1, 1);
    test_put(t, s, "s-1", "A");
    routing r = routing_of(reaction, "t", 5, false, 2);
    r.marks[3].lane = weir__str("other");
    TEST_IS(t, route(s, &r, &bad_mark, &t->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 3);
    assert_string_equal(t->err.message, "target \"t-00003\" is in lane \"l\", not in \"other\"");
    assert_false(weir__error_advised(&t->err));
    /* Two marks that disagree about a target that is new. */
    r.marks[3].lane = weir__str("l");
    r.marks[4] = r.marks[1];
    r.marks[4].lane = weir__str("other");
    TEST_IS(t, route(s, &r, &bad_mark, &t->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 4);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets"), 1);
    assert_int_equal(look(t, "SELECT routed FROM %s.reactions"), 1);
    r.count = 4;
    TEST_OK(t, route(s, &r, NULL, &t->err));
    assert_int_equal(look(t, "SELECT max(id) FROM %s.targets"), 4); /* no number was used up */
    routing_free(&r);
    nothing_is_wrong(t, s);
}

/* One event of one target, as rule WORK has it. */
static store_mark event_for(uint32_t step, const char *target, int64_t event, int64_t priority)
{
    return (store_mark){ .reaction_index = step,
                         .target = weir__str(target),
                         .lane = weir__str("l"),
                         .priority = priority,
                         .source = weir__str("s"),
                         .value = weir__str(""),
                         .first = event,
                         .last = event };
}

static weir_status route_marks(weir_store *s, const store_route_step *steps, size_t steps_count,
                               const store_mark *marks, size_t marks_count, size_t *bad_mark,
                               weir_error *err)
{
    const store_route request = {
        .steps = steps, .steps_count = steps_count, .marks = marks, .marks_count = marks_count
    };
    return s->work->route(s, &request, bad_mark, err);
}

/* "AT-MARK PRIORITY: EVENTS" of a subscription. */
static const char *stands(pg_test *t, const char *target, int64_t reaction)
{
    return test_text(
        t->conn,
        "SELECT s.at || '-' || s.mark || ' ' || s.priority || ': ' || coalesce((SELECT"
        "    string_agg(w.event::text, ' ' ORDER BY w.event) FROM %s.work AS w"
        "    WHERE w.target = s.target AND w.reaction = s.reaction), '') || CASE WHEN s.was_reset"
        "    THEN ' reset' ELSE '' END"
        "  FROM %s.subscriptions AS s JOIN %s.targets AS t ON t.id = s.target"
        " WHERE t.name = '%s' AND s.reaction = %lld",
        t->schema, t->schema, t->schema, target, (long long)reaction);
}

/* a is reset and gets everything again; b, which has handled it, and c, which is new, get what
 * comes after it; d was there only before. */
static void a_page_in_which_re_reading_ends_is_cut_for_each(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t id = give_reaction(t, s, "r", STORE_RULE_WORK);
    for (int i = 0; i < 10; i++) {
        test_put(t, s, "s-1", "A");
    }
    const store_mark before[] = {
        event_for(0, "a", 1, 0), event_for(0, "b", 2, 0), event_for(0, "a", 3, 0),
        event_for(0, "b", 4, 0), event_for(0, "a", 5, 0), event_for(0, "b", 6, 0),
    };
    const store_route_step first = { .reaction = id, .number = 1, .from = 0, .to = 6 };
    TEST_OK(t, route_marks(s, &first, 1, before, 6, NULL, &t->err));
    assert_string_equal(stands(t, "a", id), "0-5 0: 1 3 5");
    assert_string_equal(stands(t, "b", id), "1-6 0: 2 4 6");
    test_exec(t->conn,
              "DELETE FROM %s.work; UPDATE %s.reactions SET routed = 0, reread_to = 6;"
              "UPDATE %s.subscriptions SET at = 0, mark = 0, was_reset = true WHERE target = 1;"
              "UPDATE %s.subscriptions SET at = mark WHERE target = 2;"
              "UPDATE %s.targets SET behind = false, watermark = CASE id WHEN 1 THEN 0 ELSE 6 END,"
              "    rank = 0",
              t->schema, t->schema, t->schema, t->schema, t->schema);
    nothing_is_wrong(t, s);

    const store_mark again[] = {
        event_for(0, "a", 1, 0), event_for(0, "b", 2, 1), event_for(0, "a", 3, 0),
        event_for(0, "d", 3, 0), event_for(0, "b", 4, 1), event_for(0, "c", 5, 5),
        event_for(0, "a", 5, 0), event_for(0, "b", 6, 1), event_for(0, "a", 7, 4),
        event_for(0, "c", 8, 6), event_for(0, "b", 9, 2), event_for(0, "b", 10, 3),
    };
    const store_route_step second = { .reaction = id, .number = 1, .from = 0, .to = 10 };
    TEST_OK(t, route_marks(s, &second, 1, again, 12, NULL, &t->err));
    assert_string_equal(stands(t, "a", id), "0-7 4: 1 3 5 7");
    assert_string_equal(stands(t, "b", id), "8-10 3: 9 10");
    assert_string_equal(stands(t, "c", id), "7-8 6: 8");
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets"), 3);
    assert_int_equal(look(t, "SELECT reread_to FROM %s.reactions"), 0);
    nothing_is_wrong(t, s);
}

static void two_reactions_with_one_target_keep_their_events_and_priorities(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t a = give_reaction(t, s, "a", STORE_RULE_WORK);
    const int64_t b = give_reaction(t, s, "b", STORE_RULE_WORK);
    for (int i = 0; i < 6; i++) {
        test_put(t, s, "s-1", "A");
    }
    /* The last event of each gives its priority; the target has the higher one. */
    const store_mark marks[] = {
        event_for(0, "t", 1, 9), event_for(1, "t", 2, 1), event_for(0, "t", 3, 3),
        event_for(1, "t", 3, 8), event_for(1, "t", 4, 2),
    };
    const store_route_step steps[] = {
        { .reaction = a, .number = 1, .from = 0, .to = 4 },
        { .reaction = b, .number = 1, .from = 0, .to = 4 },
    };
    TEST_OK(t, route_marks(s, steps, 2, marks, 5, NULL, &t->err));
    assert_string_equal(stands(t, "t", a), "0-3 3: 1 3");
    assert_string_equal(stands(t, "t", b), "1-4 2: 2 3 4");
    assert_int_equal(look(t, "SELECT priority FROM %s.targets"), 3);
    nothing_is_wrong(t, s);

    /* Whatever order they come in, the last mark that counts is the one that says the priority. */
    const store_mark back[] = {
        event_for(0, "t", 6, 5),
        event_for(0, "t", 5, 7),
        event_for(0, "t", 5, 6),
    };
    const store_route_step step = { .reaction = a, .number = 1, .from = 4, .to = 6 };
    TEST_OK(t, route_marks(s, &step, 1, back, 3, NULL, &t->err));
    assert_string_equal(stands(t, "t", a), "0-6 6: 1 3 5 6");
    nothing_is_wrong(t, s);
}

/* Nothing of an idle subscription is below where it stands, and nothing is stepped over. */
static void an_idle_subscription_follows_to_the_first_event_beyond_it(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t id = give_reaction(t, s, "r", STORE_RULE_WORK);
    for (int i = 0; i < 9; i++) {
        test_put(t, s, "s-1", "A");
    }
    const store_route_step by_hand = { .reaction = id, .number = 1 };
    const store_mark fourth = event_for(0, "t", 4, 0);
    TEST_OK(t, route_marks(s, &by_hand, 1, &fourth, 1, NULL, &t->err));
    const store_leased leased = take_lease(t, s);
    const store_advance done = { .reaction = id, .to = 4 };
    store_settle settle = {
        .target = leased.target, .fence = leased.fence, .advances = &done, .advances_count = 1
    };
    TEST_OK(t, s->work->settle(s, &settle, &t->err));
    const store_mark marks[] = { event_for(0, "t", 2, 0), event_for(0, "t", 4, 0),
                                 event_for(0, "t", 7, 0), event_for(0, "t", 9, 0) };
    const store_route_step step = { .reaction = id, .number = 1, .from = 0, .to = 9 };
    TEST_OK(t, route_marks(s, &step, 1, marks, 4, NULL, &t->err));
    assert_string_equal(stands(t, "t", id), "6-9 0: 7 9");
    nothing_is_wrong(t, s);
}

/* The mark that is named is the first that does not fit, whatever it was put together with. */
static void of_events_of_one_target_the_first_in_the_wrong_lane_is_named(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t id = give_reaction(t, s, "r", STORE_RULE_WORK);
    size_t bad_mark = 99;
    for (int i = 0; i < 8; i++) {
        test_put(t, s, "s-1", "A");
    }
    const store_route_step first = { .reaction = id, .number = 1, .from = 0, .to = 1 };
    const store_mark there = event_for(0, "there", 1, 0);
    TEST_OK(t, route_marks(s, &first, 1, &there, 1, NULL, &t->err));

    const store_route_step step = { .reaction = id, .number = 1, .from = 1, .to = 8 };
    store_mark marks[] = {
        event_for(0, "new", 2, 0),   event_for(0, "there", 3, 0), event_for(0, "new", 4, 0),
        event_for(0, "there", 5, 0), event_for(0, "new", 6, 0),   event_for(0, "there", 7, 0),
    };
    marks[3].lane = marks[5].lane = weir__str("other"); /* of a target that is there */
    TEST_IS(t, route_marks(s, &step, 1, marks, 6, &bad_mark, &t->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 3);
    assert_string_equal(t->err.message, "target \"there\" is in lane \"l\", not in \"other\"");
    marks[1].lane = weir__str("other"); /* all of them */
    TEST_IS(t, route_marks(s, &step, 1, marks, 6, &bad_mark, &t->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 1);
    marks[1].lane = marks[3].lane = marks[5].lane = weir__str("l");
    marks[4].lane = weir__str("other"); /* of one that is new */
    TEST_IS(t, route_marks(s, &step, 1, marks, 6, &bad_mark, &t->err), WEIR_EINVAL);
    assert_int_equal(bad_mark, 4);
    assert_string_equal(t->err.message, "target \"new\" is in lane \"l\", not in \"other\"");
    assert_int_equal(look(t, "SELECT count(*) FROM %s.work"), 1);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets"), 1);

    /* What is only read again makes no target, and says nothing about its lane. */
    test_exec(t->conn, "UPDATE %s.reactions SET reread_to = 3", t->schema);
    marks[0].lane = weir__str("other");
    marks[4].lane = weir__str("l");
    TEST_OK(t, route_marks(s, &step, 1, marks, 6, NULL, &t->err));
    assert_string_equal(stands(t, "new", id), "3-6 0: 4 6");
    assert_string_equal(stands(t, "there", id), "0-7 0: 1 5 7");
    assert_string_equal(
        test_text(t->conn, "SELECT lane FROM %s.targets WHERE name = 'new'", t->schema), "l");
    nothing_is_wrong(t, s);
}

/* Two routers read the same events: one is first, the other writes nothing. */
static void of_two_routers_of_one_reaction_one_is_refused(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *a = test_connect(t);
    PGconn *b = test_connect(t);
    char sql[512];
    give_reaction(t, s, "r", STORE_RULE_STREAM);
    test_put(t, s, "s-1", "A");
    (void)snprintf(sql, sizeof sql,
                   "SELECT %s.route('{1}', '{1}', '{0}', '{1}', '{t}', '{0}', '{0}', '{0}', '{l}', "
                   "'{0}', '{s}', '{v}', '{1}', '{1}', '{0}', '{1}', '{}', '{}', '{}')",
                   t->schema);
    test_exec(a, "BEGIN");
    PQclear(test_query(a, "%s", sql));
    assert_int_equal(PQsendQuery(b, sql), 1);
    assert_true(test_wait(t->conn, 120,
                          "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %d",
                          PQbackendPID(b)));
    test_exec(a, "COMMIT");
    PGresult *result = PQgetResult(b);
    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "WR003");
    PQclear(result);
    assert_null(PQgetResult(b));
    assert_int_equal(look(t, "SELECT routed FROM %s.reactions"), 1);
    nothing_is_wrong(t, s);
}

/* Only routing may be lost with the power, and only while it runs: the setting ends with it. */
static void only_routing_commits_without_waiting_for_the_disk(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *conn = test_connect(t);
    give_reaction(t, s, "r", STORE_RULE_STREAM);
    (void)test_put(t, s, "s", "N");
    test_exec(
        conn,
        "BEGIN; SELECT %s.route('{1}', '{1}', '{0}', '{1}', '{t}', '{0}', '{0}', '{0}', '{l}', "
        "'{0}', '{s}', '{v}', '{1}', '{1}', '{0}', '{1}', '{}', '{}', '{}')",
        t->schema);
    assert_string_equal(test_text(conn, "SHOW synchronous_commit"), "off");
    test_exec(conn, "COMMIT");
    assert_string_equal(test_text(conn, "SHOW synchronous_commit"), "on");
    /* Whatever the session's default is, a lease waits. */
    test_exec(conn, "SET synchronous_commit = off; BEGIN");
    PQclear(test_query(conn,
                       "SELECT * FROM %s.lease('l', 'me', 1000000, 1, 0, 0, '{}', '{}', true, 0)",
                       t->schema));
    assert_string_equal(test_text(conn, "SHOW synchronous_commit"), "on");
    test_exec(conn, "COMMIT");
}

/* ---- several routers ------------------------------------------------------------------------- */

enum { ROUTERS = 4, ROUNDS = 15, SHARED = 300 };

typedef struct router {
    weir_store *s;
    int64_t reaction;
    bool backwards;
    pthread_barrier_t *round; /* all begin each round together, or they would not meet */
    int failed;
    weir_error err;
} router;

static void run_router(void *ctx)
{
    router *x = ctx;
    for (int64_t position = 1; position <= ROUNDS; position++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof prefix, "t%lld", (long long)(position / 2));
        routing r = routing_of(x->reaction, prefix, SHARED, x->backwards, position);
        (void)pthread_barrier_wait(x->round);
        if (route(x->s, &r, NULL, &x->err) != WEIR_OK) {
            x->failed++;
        }
        routing_free(&r);
    }
}

/* Every second round makes new targets, which the others make as well; every other raises marks of
 * targets that are there. */
static void routers_in_opposite_orders_do_not_deadlock(void **state)
{
    pg_test *t = *state;
    router routers[ROUTERS] = { 0 };
    beside threads[ROUTERS];
    pthread_barrier_t round;
    weir_store *s = test_store(t);
    assert_int_equal(pthread_barrier_init(&round, NULL, ROUTERS), 0);
    for (int i = 0; i < ROUNDS; i++) {
        test_put(t, s, "s-1", "A");
    }
    const int64_t before = test_number(t->conn, "SELECT deadlocks FROM pg_stat_database "
                                                " WHERE datname = current_database()");
    for (int i = 0; i < ROUTERS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "r%d", i);
        routers[i] = (router){ .s = test_store(t), .backwards = i % 2 == 1, .round = &round };
        routers[i].reaction = give_reaction(t, s, name, STORE_RULE_STREAM);
    }
    for (int i = 0; i < ROUTERS; i++) {
        begin_beside(&threads[i], run_router, &routers[i]);
    }
    for (int i = 0; i < ROUTERS; i++) {
        end_beside(&threads[i]);
    }
    for (int i = 0; i < ROUTERS; i++) {
        if (routers[i].failed != 0) {
            fail_msg("%d of %d: %s", routers[i].failed, ROUNDS, routers[i].err.message);
        }
        test_store_close(t, routers[i].s); /* the counters of a session are told when it ends */
    }
    (void)pthread_barrier_destroy(&round);
    assert_false(test_wait(t->conn, 1.5,
                           "SELECT deadlocks > %lld FROM pg_stat_database "
                           " WHERE datname = current_database()",
                           (long long)before));
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets"), (ROUNDS / 2 + 1) * SHARED);
    assert_int_equal(look(t, "SELECT count(*) FROM %s.subscriptions"),
                     ROUTERS * (ROUNDS / 2 + 1) * SHARED);
    nothing_is_wrong(t, s);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(fifteen_hundred_marks_are_one_statement),
        PG_TEST(many_events_of_a_target_are_one_look_at_it),
        PG_TEST(a_new_target_is_written_once),
        PG_TEST(a_mark_in_the_wrong_lane_is_named_and_nothing_is_written),
        PG_TEST(a_page_in_which_re_reading_ends_is_cut_for_each),
        PG_TEST(two_reactions_with_one_target_keep_their_events_and_priorities),
        PG_TEST(an_idle_subscription_follows_to_the_first_event_beyond_it),
        PG_TEST(of_events_of_one_target_the_first_in_the_wrong_lane_is_named),
        PG_TEST(of_two_routers_of_one_reaction_one_is_refused),
        PG_TEST(only_routing_commits_without_waiting_for_the_disk),
        PG_TEST(routers_in_opposite_orders_do_not_deadlock),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
