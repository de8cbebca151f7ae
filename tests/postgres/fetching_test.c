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
        "INSERT INTO %s.streams (name, version, last_id, created, updated) "
        "SELECT stream, max(version), max(id), min(created), max(created) "
        "  FROM %s.events GROUP BY stream;"
        "SELECT setval('%s.positions', %d)",
        t->schema, STREAMS, STREAMS, EVENTS - 1, t->schema, t->schema, t->schema, EVENTS);
}

static int64_t declare(pg_test *t, weir_store *s, const char *name, const char *source,
                       store_rule rule)
{
    weir_arena arena = { 0 };
    store_reaction r = { 0 };
    const store_reaction_declaration d = {
        .name = weir__str(name), .all_names = true, .source = weir__str(source), .rule = rule
    };
    TEST_OK(t, s->ops->declare(s, &d, &arena, &r, &t->err));
    weir__arena_free(&arena);
    return r.id;
}

static int64_t subscribe(pg_test *t, weir_store *s, const char *target, int64_t reaction,
                         const char *value)
{
    int64_t id = 0;
    const store_subscribe sub = { .target = weir__str(target),
                                  .lane = weir__str("l"),
                                  .reaction = reaction,
                                  .source = weir__str("s"),
                                  .value = weir__str(value) };
    TEST_OK(t, s->ops->subscribe(s, &sub, &id, &t->err));
    return id;
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
    TEST_OK(t, s->ops->fetch(s, items, STREAMS, &list, &t->err));
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
    TEST_OK(t, s->ops->fetch(s, items, 5, &list, &t->err));
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
    TEST_OK(t, s->ops->fetch(s, items, 3, &list, &t->err));
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
    const int64_t target = subscribe(t, s, "a", all, "");
    const store_fetch_item items[] = { { target, all, 0, 1, 1 }, { target, all + 1, 0, 1, 1 } };
    TEST_IS(t, s->ops->fetch(s, items, 2, &list, &t->err), WEIR_ENOTFOUND);
    assert_string_equal(t->err.message, "target 1 has no subscription of reaction 2");
    weir__arena_free(&list.arena);
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
        PGresult *result = NULL;
        for (int k = 0; k < 2; k++) {
            PQclear(result);
            result = test_query(t->conn,
                                "EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM "
                                "%s.fetch('{%lld}', '{%lld}', '{0}', '{%d}', '{10}', 1000, 1000)",
                                t->schema, (long long)target, (long long)reaction, MANY);
        }
        const char *hit = strstr(PQgetvalue(result, 1, 0), "shared hit=");
        assert_non_null(hit);
        assert_non_null(strstr(PQgetvalue(result, 0, 0), "rows=1 "));
        const int64_t cost = strtoll(hit + strlen("shared hit="), NULL, 10);
        print_message("%s: %lld buffers\n", values[i], (long long)cost);
        assert_true(cost < 100);
        PQclear(result);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(many_items_are_one_statement),
        PG_TEST(a_regular_expression_is_judged_exactly),
        PG_TEST(a_list_ends_with_the_event_that_fills_it),
        PG_TEST(an_item_without_a_subscription_is_not_found),
        PG_TEST(rare_events_are_found_by_their_index),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
