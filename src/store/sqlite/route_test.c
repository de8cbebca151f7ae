/* route_test.c - many marks in one step leave what they would leave one by one.
 *
 * More targets than one call keeps in memory, each with several events, so that every subscription
 * is written, read again and written again.
 */
#include "store/sqlite/targets_fixture.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TARGETS = 2500, /* more than KEPT_MAX of route.c */
    ROUNDS = 3,     /* events of each target */
    EVENTS = TARGETS * ROUNDS,
};

static void put_events(fixture *f)
{
    store_append_stream streams[] = { { .name = weir__str("s"), .expect = WEIR_EXPECT_ANY } };
    store_new_event *events = calloc(EVENTS, sizeof *events);
    assert_non_null(events);
    for (size_t i = 0; i < EVENTS; i++) {
        events[i] = (store_new_event){ .name = weir__str("Placed"),
                                       .data = weir__str("{}"),
                                       .meta = weir__str("{}") };
    }
    store_append append = { .streams = streams,
                            .streams_count = 1,
                            .events = events,
                            .events_count = EVENTS,
                            .err = &f->err };
    store_append *appends[] = { &append };
    OK(f, f->store->log->append(f->store, appends, 1, &f->err));
    OK(f, append.status);
    free(events);
}

/* Event i + 1 is for target i % TARGETS; the source and the priority are those of its round. */
static void route_events(fixture *f, const store_reaction *r, int64_t from, int64_t to)
{
    static char names[TARGETS][16];
    static const char *const sources[ROUNDS] = { "first", "second", "third" };
    const store_route_step step = {
        .reaction = r->id, .number = r->number, .from = from, .to = to
    };
    store_mark *marks = calloc((size_t)(to - from), sizeof *marks);
    assert_non_null(marks);
    for (int64_t i = from; i < to; i++) {
        char *name = names[i % TARGETS];
        (void)snprintf(name, sizeof names[0], "t%d", (int)(i % TARGETS));
        marks[i - from] = (store_mark){ .target = weir__str(name),
                                        .lane = weir__str("l"),
                                        .source = weir__str(sources[i / TARGETS]),
                                        .priority = i / TARGETS,
                                        .first = i + 1,
                                        .last = i + 1 };
    }
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = marks, .marks_count = (size_t)(to - from)
    };
    OK(f, f->store->work->route(f->store, &route, NULL, &f->err));
    free(marks);
}

/* How many targets' subscription begins before its first event, and has its last one as its mark,
 * with what the last mark says about it. */
static int64_t right_ones(fixture *f, int rounds, const char *source)
{
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM weir_subscriptions AS s"
                   " JOIN weir_targets AS t ON t.id = s.target"
                   " WHERE at = CAST(substr(t.name, 2) AS INTEGER)"
                   " AND mark = at + 1 + %d AND source = '%s' AND s.priority = %d"
                   " AND t.priority = %d AND t.behind AND t.watermark = at"
                   " AND (SELECT count(*) FROM weir_work AS w WHERE w.target = t.id"
                   "      AND w.event %% %d = (at + 1) %% %d) = %d",
                   (rounds - 1) * TARGETS, source, rounds - 1, rounds - 1, TARGETS, TARGETS,
                   rounds);
    return fixture_int(f, sql);
}

static void many_marks_at_once_are_as_good_as_one_by_one(void **state)
{
    fixture *f = *state;
    put_events(f);
    const store_reaction r = fixture_declare(f, "r", "Placed", "*", STORE_RULE_WORK);
    route_events(f, &r, 0, 2 * TARGETS); /* subscriptions that are new */
    assert_int_equal(right_ones(f, 2, "second"), TARGETS);
    route_events(f, &r, 2 * TARGETS, EVENTS); /* and that have a row */
    assert_int_equal(right_ones(f, 3, "third"), TARGETS);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_subscriptions"), TARGETS);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_work"), EVENTS);
    fixture_check(f);
}

/* The second mark of a call finds what the first one has made. */
static void a_target_made_in_a_call_keeps_its_lane_in_it(void **state)
{
    fixture *f = *state;
    size_t bad = 99;
    put_events(f);
    const store_reaction r = fixture_declare(f, "r", "Placed", "*", STORE_RULE_WORK);
    const store_route_step step = { .reaction = r.id, .number = r.number, .from = 0, .to = 2 };
    const store_mark marks[] = {
        { .target = weir__str("t"), .lane = weir__str("l"), .first = 1, .last = 1 },
        { .target = weir__str("t"), .lane = weir__str("m"), .first = 2, .last = 2 },
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = marks, .marks_count = 2
    };
    assert_int_equal(f->store->work->route(f->store, &route, &bad, &f->err), WEIR_EINVAL);
    assert_int_equal(bad, 1);
    assert_int_equal(fixture_int(f, "SELECT count(*) FROM weir_targets"), 0);
    fixture_check(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_marks_at_once_are_as_good_as_one_by_one, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_target_made_in_a_call_keeps_its_lane_in_it, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}
