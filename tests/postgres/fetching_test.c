/* fetching_test.c - fetching on PostgreSQL: round trips, sources that only the client can judge,
 * and what a rare event costs.
 *
 * The log has streams s-0 to s-9 in turn, one event each, so that an event's stream is known by its
 * position; every tenth round has a name of its own.
 */
#include "pg_support.h"
#include "targets_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 10, EVENTS = 300 };

static void write_log(pg_test *t)
{
    test_exec(
        t->conn,
        "INSERT INTO %s.events (id, stream, version, name, data, meta, created) "
        "SELECT i + 1, 's-' || i %% %d, i / %d, CASE WHEN i %% 100 = 7 THEN 'Rare' ELSE 'A' END, "
        "       '{}', '{}', now() FROM generate_series(0, %d) AS i;"
        "SELECT setval('%s.positions', %d)",
        t->schema, STREAMS, STREAMS, EVENTS - 1, t->schema, EVENTS);
}

/* `names` end with NULL; none: all of them. */
static int64_t declare_for(pg_test *t, weir_store *s, const char *name, const char *source,
                           store_rule rule, const char *const *names)
{
    weir_arena arena = { 0 };
    store_reaction r = { 0 };
    weir_str list[4];
    store_reaction_declaration d = {
        .name = weir__str(name), .names = list, .source = weir__str(source), .rule = rule
    };
    while (names != NULL && names[d.names_count] != NULL) {
        list[d.names_count] = weir__str(names[d.names_count]);
        d.names_count++;
    }
    d.all_names = d.names_count == 0;
    TEST_OK(t, s->work->declare(s, &d, &arena, &r, &t->err));
    weir__arena_free(&arena);
    return r.id;
}

static int64_t declare(pg_test *t, weir_store *s, const char *name, const char *source,
                       store_rule rule)
{
    return declare_for(t, s, name, source, rule, NULL);
}

/* A target with one event of a reaction. */
static int64_t subscribe(pg_test *t, weir_store *s, const char *target, int64_t reaction,
                         const char *value)
{
    const store_route_step step = { .reaction = reaction, .number = 1 };
    const store_mark mark = { .target = weir__str(target),
                              .lane = weir__str("l"),
                              .source = weir__str("s"),
                              .value = weir__str(value),
                              .first = 1,
                              .last = 1 };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    TEST_OK(t, s->work->route(s, &route, NULL, &t->err));
    return test_number(t->conn, "SELECT id FROM %s.targets WHERE name = '%s'", t->schema, target);
}

static void many_items_are_one_statement(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_item items[STREAMS];
    store_fetch_list list = { 0 };
    char like[TEST_SCHEMA_BYTES + 8];
    const int64_t reaction = declare(t, s, "r", "/^s-[0-9]$/", STORE_RULE_STREAM);
    write_log(t);
    for (int i = 0; i < STREAMS; i++) {
        char stream[16];
        (void)snprintf(stream, sizeof stream, "s-%d", i);
        items[i] = (store_fetch_item){ .target = subscribe(t, s, stream, reaction, stream),
                                       .reaction = reaction,
                                       .after = 100,
                                       .up_to = 200,
                                       .limit = i < 5 ? 4 : 50 };
    }
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    test_statements_reset(t);
    TEST_OK(t, s->work->fetch(s, items, STREAMS, &list, &t->err));
    assert_int_equal(test_statements(t, like), 1);
    assert_int_equal(list.events_count, 5 * 4 + 5 * 10);
    for (size_t i = 0; i < list.events_count; i++) {
        const uint32_t item = list.events[i].item_index;
        const size_t turn = i < 20 ? i % 4 : (i - 20) % 10;
        assert_int_equal(list.events[i].event->id, 101 + (int64_t)item + 10 * (int64_t)turn);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        assert_int_equal(list.exhausted[i], i >= 5);
    }
    weir__arena_free(&list.arena);
}

/* Events that the expression refuses take no room: the item gets what it asked for, and is called
 * exhausted only when it is. */
static void a_regular_expression_is_judged_exactly(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_list list = { 0 };
    const int64_t some = declare(t, s, "some", "/^s-[37]$/", STORE_RULE_CONSTANT);
    const int64_t none = declare(t, s, "none", "/^other$/", STORE_RULE_CONSTANT);
    const int64_t all = declare(t, s, "all", "*", STORE_RULE_CONSTANT);
    write_log(t);
    const store_fetch_item items[] = {
        { subscribe(t, s, "a", some, ""), some, 0, EVENTS, 7 },
        { subscribe(t, s, "b", none, ""), none, 0, EVENTS, 7 },
        { subscribe(t, s, "c", some, ""), some, 10, 50, 100 },
        { subscribe(t, s, "d", all, ""), all, 290, EVENTS, 10 },
        { subscribe(t, s, "e", all, ""), all, 290, EVENTS, 11 },
    };
    static const int64_t wanted[] = {
        4, 8, 14, 18, 24, 28, 34, 14, 18, 24, 28, 34, 38, 44, 48
    }; /* then 291 ... 300, twice */
    TEST_OK(t, s->work->fetch(s, items, 5, &list, &t->err));
    assert_int_equal(list.events_count, 15 + 20);
    for (size_t i = 0; i < list.events_count; i++) {
        const int64_t id = i < 15 ? wanted[i] : 291 + (int64_t)((i - 15) % 10);
        assert_int_equal(list.events[i].event->id, id);
        assert_int_equal(list.events[i].item_index, i < 7 ? 0 : i < 15 ? 2 : i < 25 ? 3 : 4);
    }
    assert_false(list.exhausted[0]);
    assert_true(list.exhausted[1]);
    assert_true(list.exhausted[2]);
    assert_false(list.exhausted[3]);
    assert_true(list.exhausted[4]);
    weir__arena_free(&list.arena);
}

/* The server counts characters of what it sends as the client does. */
static void a_list_ends_with_the_event_that_fills_it(void **state)
{
    enum { BIG = 900 * 1024 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_list list = { 0 };
    const int64_t all = declare(t, s, "all", "/s/", STORE_RULE_CONSTANT);
    test_exec(t->conn,
              "INSERT INTO %s.events (id, stream, version, name, data, meta, created) "
              "SELECT i, 's', i - 1, 'A', to_json(repeat('ü', %d)), '{}', now() "
              "  FROM generate_series(1, 12) AS i;"
              "SELECT setval('%s.positions', 12)",
              t->schema, BIG / 2, t->schema);
    const store_fetch_item items[] = {
        { subscribe(t, s, "a", all, ""), all, 0, 3, 100 },
        { subscribe(t, s, "b", all, ""), all, 3, 12, 100 },
        { subscribe(t, s, "c", all, ""), all, 11, 12, 100 },
    };
    TEST_OK(t, s->work->fetch(s, items, 3, &list, &t->err));
    assert_int_equal(list.events_count, 5); /* 900 KiB each: the fifth passes 4 MiB */
    assert_int_equal(list.events[4].item_index, 1);
    assert_int_equal(list.events[4].event->data.len, BIG + 2);
    assert_true(list.exhausted[0]);
    assert_false(list.exhausted[1]);
    assert_false(list.exhausted[2]);
    weir__arena_free(&list.arena);
}

static void an_item_without_a_subscription_is_not_found(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_list list = { 0 };
    const int64_t all = declare(t, s, "all", "*", STORE_RULE_CONSTANT);
    test_put(t, s, "s", "A");
    const int64_t target = subscribe(t, s, "a", all, "");
    const store_fetch_item items[] = { { target, all, 0, 1, 1 }, { target, all + 1, 0, 1, 1 } };
    TEST_IS(t, s->work->fetch(s, items, 2, &list, &t->err), WEIR_ENOTFOUND);
    assert_string_equal(t->err.message, "target 1 has no subscription of reaction 2");
    /* All of one reaction, by each of its ways. */
    static const store_rule rules[] = { STORE_RULE_STREAM, STORE_RULE_CATEGORY, STORE_RULE_NAME,
                                        STORE_RULE_WORK };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "r%zu", i);
        const int64_t reaction = declare(t, s, name, "*", rules[i]);
        const store_fetch_item lone[] = { { target, reaction, 0, 1, 1 } };
        TEST_IS(t, s->work->fetch(s, lone, 1, &list, &t->err), WEIR_ENOTFOUND);
    }
    weir__arena_free(&list.arena);
}

/* One event is found, and little is read for it. */
static void cheap_by(pg_test *t, const char *function, int64_t target, int64_t reaction, int up_to)
{
    PGresult *result = NULL;
    for (int k = 0; k < 2; k++) {
        PQclear(result);
        result = test_query(t->conn,
                            "EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM "
                            "%s.%s('{%lld}', '{%lld}', '{0}', '{%d}', '{10}', 1000, 1000)",
                            t->schema, function, (long long)target, (long long)reaction, up_to);
    }
    const char *hit = strstr(PQgetvalue(result, 1, 0), "shared hit=");
    assert_non_null(hit);
    assert_non_null(strstr(PQgetvalue(result, 0, 0), "rows=1 "));
    const int64_t cost = strtoll(hit + strlen("shared hit="), NULL, 10);
    print_message("%s, target %lld: %lld buffers\n", function, (long long)target, (long long)cost);
    assert_true(cost < 100);
    PQclear(result);
}

/* A name or a category that hardly ever comes is found by its index, whatever the planner believes
 * about names: among 100,000 events, with statistics that know two names. */
static void rare_events_are_found_by_their_index(void **state)
{
    enum { MANY = 100000 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    static const char *const sources[] = { "*", "*", "*" };
    static const store_rule rules[] = { STORE_RULE_NAME, STORE_RULE_CATEGORY, STORE_RULE_STREAM };
    static const char *const values[] = { "Rare", "rare", "rare-1" };
    test_exec(t->conn,
              "INSERT INTO %s.events (id, stream, version, name, data, meta, created) "
              "SELECT i, CASE WHEN i = %d THEN 'rare-1' ELSE 'c-1' END, i, "
              "       CASE WHEN i = %d THEN 'Rare' ELSE 'A' END, '{}', '{}', now() "
              "  FROM generate_series(1, %d) AS i; ANALYZE %s.events",
              t->schema, MANY, MANY, MANY, t->schema);
    for (int i = 0; i < 3; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "r%d", i);
        const int64_t reaction = declare(t, s, name, sources[i], rules[i]);
        const int64_t target = subscribe(t, s, name, reaction, values[i]);
        cheap_by(t, "fetch", target, reaction, MANY);
        cheap_by(t, "fetch_small", target, reaction, MANY);
    }
}

/* Large events are fetched by the way that adds sizes up, which is then expected for a while. */
static void large_events_stand_where_they_belong(void **state)
{
    static const size_t sizes[] = { 2, 2, 60002, 2, 3002, 2, 2, 2 }; /* the second large one is
                                                                         not compressed */
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_list list = { 0 };
    char like[TEST_SCHEMA_BYTES + 8];
    const int64_t reaction = declare(t, s, "r", "*", STORE_RULE_STREAM);
    test_exec(t->conn,
              "ALTER TABLE %s.events ALTER data SET STORAGE EXTENDED;"
              "INSERT INTO %s.events (id, stream, version, name, data, meta, created) "
              "SELECT i, 's', i - 1, 'A', CASE i WHEN 3 THEN to_json(repeat('a', 60000)) "
              "       WHEN 5 THEN to_json((SELECT left(string_agg(md5(n::text), ''), 3000) "
              "                              FROM generate_series(1, 100) AS n)) "
              "       ELSE '{}' END, '{}', now() FROM generate_series(1, 8) AS i;"
              "SELECT setval('%s.positions', 8)",
              t->schema, t->schema, t->schema);
    const store_fetch_item items[] = {
        { subscribe(t, s, "a", reaction, "s"), reaction, 0, 4, 100 },
        { subscribe(t, s, "b", reaction, "s"), reaction, 2, 8, 6 },
        { subscribe(t, s, "c", reaction, "s"), reaction, 6, 8, 100 },
    };
    PGresult *quick =
        test_query(t->conn,
                   "SELECT string_agg(coalesce(octet_length(event_data::text)::text, '-'), ' ') "
                   "FROM %s.fetch_small('{%lld}', '{%lld}', '{0}', '{8}', '{8}', 1000, 1048)",
                   t->schema, (long long)items[0].target, (long long)reaction);
    assert_string_equal(PQgetvalue(quick, 0, 0), "2 2 - 2 - 2 2 2");
    PQclear(quick);
    static const int64_t ids[] = { 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8 };
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    for (int k = 0; k < 2; k++) {
        test_statements_reset(t);
        TEST_OK(t, s->work->fetch(s, items, 3, &list, &t->err));
        assert_int_equal(test_statements(t, like), k == 0 ? 2 : 1);
        assert_int_equal(list.events_count, 12);
        for (size_t i = 0; i < 12; i++) {
            assert_int_equal(list.events[i].event->id, ids[i]);
            assert_int_equal(list.events[i].item_index, i < 4 ? 0 : i < 10 ? 1 : 2);
            assert_int_equal(list.events[i].event->data.len, sizes[ids[i] - 1]);
        }
        assert_true(list.exhausted[0]);
        assert_false(list.exhausted[1]);
        assert_true(list.exhausted[2]);
    }
    weir__arena_free(&list.arena);
}

/* What does not fit into one answer comes in the next one, and nothing is called exhausted before
 * it is: the first answer ends exactly with an item, the second one inside of one. */
static void more_than_one_answer_holds(void **state)
{
    enum { MANY = 2000, ITEMS = 6 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_fetch_list list = { 0 };
    char like[TEST_SCHEMA_BYTES + 8];
    const int64_t reaction = declare(t, s, "r", "*", STORE_RULE_STREAM);
    test_exec(t->conn,
              "INSERT INTO %s.events (id, stream, version, name, data, meta, created) "
              "SELECT i, 's', i - 1, 'A', '{}', '{}', now() FROM generate_series(1, %d) AS i;"
              "SELECT setval('%s.positions', %d)",
              t->schema, MANY, t->schema, MANY);
    static const int64_t limits[ITEMS] = { 1000, 3000, 1000, 1500, 2000, 2000 };
    static const int64_t counts[ITEMS] = { 1000, 2000, 1000, 1500, 2000, 2000 };
    store_fetch_item items[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%d", i);
        items[i] = (store_fetch_item){ .target = subscribe(t, s, name, reaction, "s"),
                                       .reaction = reaction,
                                       .after = 0,
                                       .up_to = MANY,
                                       .limit = limits[i] };
    }
    (void)snprintf(like, sizeof like, "%%%s%%", t->schema);
    test_statements_reset(t);
    TEST_OK(t, s->work->fetch(s, items, ITEMS, &list, &t->err));
    assert_int_equal(test_statements(t, like), 3);
    assert_int_equal(list.events_count, 9500);
    size_t at = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
        for (int64_t n = 1; n <= counts[i]; n++, at++) {
            assert_int_equal(list.events[at].item_index, i);
            assert_int_equal(list.events[at].event->id, n);
        }
        assert_int_equal(list.exhausted[i], i == 1);
    }
    weir__arena_free(&list.arena);
}

/* The rows of one call of weir.FUNCTION for these items, as one text. */
static PGresult *found_by(pg_test *t, const char *function, int64_t reaction, const char *targets)
{
    return test_query(
        t->conn,
        "SELECT coalesce(string_agg(concat_ws('|', f.item, f.event_id, f.event_version,"
        " f.event_stream, f.event_name, f.judge), ' '), 'none'), count(*) FROM "
        "%s.%s('%s', '{%lld,%lld,%lld}', '{0,40,290}', '{300,250,300}', '{50,7,9}',"
        " 1000, 100000) AS f",
        t->schema, function, targets, (long long)reaction, (long long)reaction,
        (long long)reaction);
}

/* Whatever the rule, the source and the names are: the quick way finds what the other finds. */
static void both_ways_find_the_same(void **state)
{
    static const char *const sources[] = { "*", "s*", "s-*", "s-1*", "s-3", "/^s-[12]$/" };
    static const char *const no_names[] = { NULL };
    static const char *const rare[] = { "Rare", NULL };
    static const char *const both[] = { "Rare", "A", NULL };
    static const char *const *const names[] = { no_names, rare, both };
    static const char *const values[] = { "", "s-3", "s", "Rare", "x" }; /* by rule */
    pg_test *t = *state;
    weir_store *s = test_store(t);
    int number = 0, found = 0;
    write_log(t);
    for (int rule = STORE_RULE_CONSTANT; rule <= STORE_RULE_WORK; rule++) {
        for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
            for (size_t n = 0; n < 3; n++) {
                char name[16], targets[64];
                int64_t ids[3];
                (void)snprintf(name, sizeof name, "r%d", number);
                const int64_t reaction =
                    declare_for(t, s, name, sources[i], (store_rule)rule, names[n]);
                for (int k = 0; k < 3; k++) {
                    (void)snprintf(name, sizeof name, "t%d-%d", number, k);
                    ids[k] = subscribe(t, s, name, reaction, values[rule]);
                }
                number++;
                (void)snprintf(targets, sizeof targets, "{%lld,%lld,%lld}", (long long)ids[0],
                               (long long)ids[1], (long long)ids[2]);
                if (rule == STORE_RULE_WORK) {
                    test_exec(t->conn,
                              "INSERT INTO %s.work (target, reaction, event) "
                              "SELECT u, %lld, i FROM unnest('%s'::bigint[]) AS u, "
                              "generate_series(4, 300, 7) AS i",
                              t->schema, (long long)reaction, targets);
                }
                PGresult *quick = found_by(t, "fetch_small", reaction, targets);
                PGresult *sized = found_by(t, "fetch", reaction, targets);
                assert_string_equal(PQgetvalue(quick, 0, 0), PQgetvalue(sized, 0, 0));
                found += atoi(PQgetvalue(quick, 0, 1));
                PQclear(quick);
                PQclear(sized);
            }
        }
    }
    assert_true(found > 1000);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(many_items_are_one_statement),
        PG_TEST(a_regular_expression_is_judged_exactly),
        PG_TEST(a_list_ends_with_the_event_that_fills_it),
        PG_TEST(large_events_stand_where_they_belong),
        PG_TEST(more_than_one_answer_holds),
        PG_TEST(both_ways_find_the_same),
        PG_TEST(an_item_without_a_subscription_is_not_found),
        PG_TEST(rare_events_are_found_by_their_index),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
