/* fetch_test.c - every way to find the events of a subscription gives what the definition says.
 *
 * A log with several streams, categories and names is read through every rule and kind of source;
 * an oracle that walks the whole log says what should have come.
 */
#include "store/filter.h"
#include "store/sqlite/targets_fixture.h"

#include <stdio.h>

enum { EVENTS = 300 };

static const char *const streams[] = {
    "order-1", "order-2", "orders", "mail-1", "plain", "order-10"
};
static const char *const names[] = { "Placed", "Paid", "Sent", "Lost", "$internal" };
enum { STREAMS = sizeof streams / sizeof streams[0], NAMES = sizeof names / sizeof names[0] };

typedef struct written {
    const char *stream, *name;
} written;

static void write_log(fixture *f, written log[EVENTS + 1])
{
    uint32_t random = 12345; /* fixed: the log is the same in every run */
    for (int64_t i = 1; i <= EVENTS; i++) {
        random = random * 1664525U + 1013904223U;
        log[i] = (written){ .stream = streams[(random >> 8) % STREAMS],
                            .name = names[(random >> 20) % NAMES] };
        assert_int_equal(fixture_put(f, log[i].stream, log[i].name), i);
    }
}

static bool listed(const char *list, const char *name)
{
    const size_t len = strlen(name);
    if (strcmp(list, "*") == 0) {
        return name[0] != '$';
    }
    for (const char *from = list; *from != '\0';) {
        const size_t part = strcspn(from, ",");
        if (part == len && memcmp(from, name, len) == 0) {
            return true;
        }
        from += part + (from[part] == ',' ? 1 : 0);
    }
    return false;
}

typedef struct fetch_case {
    const char *reaction, *names, *source, *value;
    store_rule rule;
} fetch_case;

static bool belongs(const fetch_case *c, const written *e)
{
    const weir_str category = weir__category(weir__str(e->stream));
    switch (c->rule) {
    case STORE_RULE_STREAM:
        return strcmp(c->value, e->stream) == 0;
    case STORE_RULE_CATEGORY:
        return weir__str_equal(category, weir__str(c->value));
    case STORE_RULE_NAME:
        return strcmp(c->value, e->name) == 0;
    case STORE_RULE_CONSTANT:
    case STORE_RULE_WORK:
        break;
    }
    return true;
}

/* All ranges of a few bounds, in batches of `limit`. */
static void compare_with_oracle(fixture *f, const fetch_case *c, const written *log, int64_t target,
                                int64_t reaction, int64_t limit)
{
    static const int64_t bounds[] = { 0, 1, 17, 150, 299, 300 };
    store_pattern *source = NULL;
    store_fetch_list list = { 0 };
    OK(f, weir__pattern_open(&source, weir__str(c->source), &f->err));
    for (size_t a = 0; a < 6; a++) {
        for (size_t b = a; b < 6; b++) {
            const store_fetch_item item = { .target = target,
                                            .reaction = reaction,
                                            .after = bounds[a],
                                            .up_to = bounds[b],
                                            .limit = limit };
            size_t at = 0;
            OK(f, f->store->work->fetch(f->store, &item, 1, &list, &f->err));
            for (int64_t id = bounds[a] + 1; id <= bounds[b] && at < (size_t)limit; id++) {
                if (!belongs(c, &log[id]) || !listed(c->names, log[id].name) ||
                    !weir__pattern_matches(source, weir__str(log[id].stream))) {
                    continue;
                }
                assert_true(at < list.events_count);
                const weir_event *event = list.events[at++].event;
                assert_int_equal(event->id, id);
                assert_true(weir__str_equal(event->stream, weir__str(log[id].stream)));
                assert_true(weir__str_equal(event->name, weir__str(log[id].name)));
                assert_true(weir__str_equal(event->data, weir__str("{}")));
            }
            assert_int_equal(at, list.events_count);
        }
    }
    weir__arena_free(&list.arena);
    weir__pattern_close(source);
}

/* Makes a target of a new reaction, and looks at it in batches of several sizes. */
static void check_case(fixture *f, const fetch_case *c, const written *log)
{
    const store_reaction r = fixture_declare(f, c->reaction, c->names, c->source, c->rule);
    fixture_mark(f, c->reaction, c->reaction, "l", c->value, 1, 1);
    const int64_t target = fixture_int(f, "SELECT max(id) FROM weir_targets");
    compare_with_oracle(f, c, log, target, r.id, 1);
    compare_with_oracle(f, c, log, target, r.id, 7);
    compare_with_oracle(f, c, log, target, r.id, 70);
    compare_with_oracle(f, c, log, target, r.id, 1000);
}

static void every_rule_and_source_gives_what_the_definition_says(void **state)
{
    static const fetch_case cases[] = {
        { "constant-all", "*", "*", "", STORE_RULE_CONSTANT },
        { "constant-names", "Paid,Sent", "*", "", STORE_RULE_CONSTANT },
        { "constant-own", "$internal", "*", "", STORE_RULE_CONSTANT },
        { "constant-nothing", "", "*", "", STORE_RULE_CONSTANT },
        { "constant-exact", "*", "order-1", "", STORE_RULE_CONSTANT },
        { "constant-exact-names", "Placed,Lost", "order-1", "", STORE_RULE_CONSTANT },
        { "constant-exact-none", "*", "nobody-1", "", STORE_RULE_CONSTANT },
        { "constant-prefix", "*", "order-*", "", STORE_RULE_CONSTANT },
        { "constant-prefix-in", "*", "order-1*", "", STORE_RULE_CONSTANT },
        { "constant-prefix-over", "Paid,Lost", "order*", "", STORE_RULE_CONSTANT },
        { "constant-prefix-none", "*", "none-*", "", STORE_RULE_CONSTANT },
        { "constant-regex", "*", "/-1$/", "", STORE_RULE_CONSTANT },
        { "constant-regex-names", "Paid", "/^[mp]/", "", STORE_RULE_CONSTANT },
        { "stream", "*", "*", "order-2", STORE_RULE_STREAM },
        { "stream-names", "Placed,Sent", "order-*", "order-1", STORE_RULE_STREAM },
        { "stream-not-source", "*", "mail-*", "order-1", STORE_RULE_STREAM },
        { "category", "*", "*", "order", STORE_RULE_CATEGORY },
        { "category-prefix", "Paid", "order-1*", "order", STORE_RULE_CATEGORY },
        { "category-plain", "*", "*", "plain", STORE_RULE_CATEGORY },
        { "category-none", "*", "*", "nobody", STORE_RULE_CATEGORY },
        { "name", "Placed,Paid", "*", "Paid", STORE_RULE_NAME },
        { "name-source", "*", "/order/", "Sent", STORE_RULE_NAME },
        { "name-not-listed", "Placed", "*", "Paid", STORE_RULE_NAME },
    };
    fixture *f = *state;
    written log[EVENTS + 1];
    write_log(f, log);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(f, &cases[i], log);
    }
    fixture_check(f);
}

/* Where most events are wanted the log is read, and names are looked up where few are. */
static void names_are_found_in_dense_and_in_sparse_parts_of_the_log(void **state)
{
    static const fetch_case cases[] = {
        { "one", "Paid", "*", "", STORE_RULE_CONSTANT },
        { "two", "Paid,Sent", "*", "", STORE_RULE_CONSTANT },
        { "two-some", "Paid,Sent", "/-1/", "", STORE_RULE_CONSTANT },
        { "around", "Lost,Placed", "*", "", STORE_RULE_CONSTANT },
    };
    fixture *f = *state;
    written log[EVENTS + 1];
    for (int64_t i = 1; i <= EVENTS; i++) {
        /* Enough to be taken for dense; four times 70 events further there are others. */
        const bool dense = i <= 66 || (i > 150 && i <= 155);
        const char *name = dense || i % 60 == 0 ? "Paid" : i % 70 == 0 ? "Sent" : "Lost";
        log[i] = (written){ .stream = streams[i % STREAMS], .name = name };
        assert_int_equal(fixture_put(f, log[i].stream, log[i].name), i);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(f, &cases[i], log);
    }
}

/* A worker far into a long stream does not read its beginning. */
static void a_late_range_of_a_stream_is_found_by_search(void **state)
{
    fixture *f = *state;
    store_fetch_list list = { 0 };
    for (int64_t i = 1; i <= EVENTS; i++) {
        (void)fixture_put(f, "order-1", "Placed");
    }
    const store_reaction r = fixture_declare(f, "r", "*", "*", STORE_RULE_STREAM);
    fixture_mark(f, "r", "t", "l", "order-1", 1, 1);
    const int64_t target = fixture_int(f, "SELECT id FROM weir_targets");
    const store_fetch_item item = {
        .target = target, .reaction = r.id, .after = EVENTS - 2, .up_to = EVENTS, .limit = 10
    };
    OK(f, f->store->work->fetch(f->store, &item, 1, &list, &f->err));
    assert_int_equal(list.events_count, 2);
    int64_t steps = 0;
    for (size_t i = 0; i < SQLITE_READERS_MAX; i++) {
        sqlite3 *db = sqlite_of(f->store)->readers[i].db;
        for (sqlite3_stmt *stmt = db == NULL ? NULL : sqlite3_next_stmt(db, NULL); stmt != NULL;
             stmt = sqlite3_next_stmt(db, stmt)) {
            steps += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 0);
        }
    }
    assert_in_range(steps, 1, 600); /* reading all 300 rows takes several thousand */
    weir__arena_free(&list.arena);
}

/* Work rows are what the router wrote; those the reaction no longer wants are left out. */
static void work_rows_are_given_in_order(void **state)
{
    fixture *f = *state;
    store_fetch_list list = { 0 };
    const store_reaction r = fixture_declare(f, "r", "Placed,Paid", "*", STORE_RULE_WORK);
    for (int i = 0; i < 4; i++) {
        (void)fixture_put(f, "order-1", i % 2 == 0 ? "Placed" : "Paid");
    }
    for (int64_t id = 1; id <= 4; id++) {
        fixture_mark(f, "r", id == 3 ? "other" : "t", "l", "", id, id);
    }
    const store_fetch_item items[] = {
        { .target = 1, .reaction = r.id, .after = 0, .up_to = 4, .limit = 10 },
        { .target = 2, .reaction = r.id, .after = 2, .up_to = 3, .limit = 10 },
    };
    OK(f, f->store->work->fetch(f->store, items, 2, &list, &f->err));
    assert_int_equal(list.events_count, 4);
    static const int64_t ids[] = { 1, 2, 4, 3 };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(list.events[i].event->id, ids[i]);
        assert_int_equal(list.events[i].item_index, i == 3 ? 1 : 0);
    }
    (void)fixture_declare(f, "r", "Placed", "*", STORE_RULE_WORK);
    OK(f, f->store->work->fetch(f->store, items, 1, &list, &f->err));
    assert_int_equal(list.events_count, 1);
    weir__arena_free(&list.arena);
    fixture_check(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_rule_and_source_gives_what_the_definition_says,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(names_are_found_in_dense_and_in_sparse_parts_of_the_log,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_late_range_of_a_stream_is_found_by_search, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(work_rows_are_given_in_order, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
