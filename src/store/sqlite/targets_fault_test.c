/* targets_fault_test.c - running out of memory at any allocation is WEIR_ENOMEM and changes
 * nothing.
 *
 * Every verb of the targets side is run again and again on a store in the same state, with the
 * first, second, third ... allocation failing, until one run needs fewer. What the verb would have
 * changed is compared with what is there.
 */
#include "store/sqlite/targets_fixture.h"

#include <stdio.h>
#include <string.h>

enum { ALLOCATIONS_MAX = 2000 };

/* Everything the verbs write, as one number. */
static int64_t fingerprint(fixture *f)
{
    return fixture_int(
        f, "SELECT (SELECT coalesce(sum(fence * 31 + lost * 37 + coalesce(due, 1) % 1009"
           " + coalesce(blocked, 3) % 1013 + paused * 41 + watermark * 43 + length(error) * 47"
           " + coalesce(override, 2) * 53 + lease_until % 1019), 0) FROM weir_targets)"
           " + (SELECT coalesce(sum(at * 59 + mark * 61 + retries * 67 + was_reset), 0)"
           "      FROM weir_subscriptions) * 71"
           " + (SELECT coalesce(sum(number * 73 + routed * 79 + retired + router_fence * 83), 0)"
           "      FROM weir_reactions) * 89"
           " + (SELECT coalesce(sum(id * 97 + sent_back), 0) FROM weir_parked) * 101"
           " + (SELECT coalesce(sum(event), 0) FROM weir_work) * 103"
           " + (SELECT coalesce(sum(paused), 0) FROM weir_lanes) * 107"
           " + (SELECT count(*) FROM weir_events) * 109");
}

/* The verbs. Each leaves the store so that it can be run again. */

static weir_status declare(fixture *f)
{
    const weir_str names[] = { weir__str("Placed"), weir__str("Paid") };
    const store_reaction_declaration d = { .name = weir__str("another"),
                                           .names = names,
                                           .names_count = 2,
                                           .source = weir__str("order-*"),
                                           .rule = STORE_RULE_STREAM,
                                           .rule_text = weir__str("v1") };
    store_reaction out = { 0 };
    return f->store->work->declare(f->store, &d, &f->arena, &out, &f->err);
}

static weir_status reactions(fixture *f)
{
    store_reaction_list list = { 0 };
    const weir_status status = f->store->work->reactions(f->store, &list, &f->err);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status router_lease(fixture *f)
{
    store_router_lease item = { .reaction = 1 };
    return f->store->work->router_lease(f->store, weir__str("me"), 1000, &item, 1, &f->err);
}

static weir_status route(fixture *f)
{
    const int64_t routed = fixture_int(f, "SELECT routed FROM weir_reactions WHERE id = 2");
    const store_route_step step = { .reaction = 2, .number = 1, .from = routed, .to = routed + 1 };
    const store_mark mark = { .target = weir__str("work-2"),
                              .lane = weir__str("l"),
                              .source = weir__str("*"),
                              .first = 3,
                              .last = 3 };
    const store_route_park park = { .event = 2, .error = weir__str("where to?") };
    const store_route r = { .steps = &step,
                            .steps_count = 1,
                            .marks = &mark,
                            .marks_count = 1,
                            .parks = &park,
                            .parks_count = 1 };
    return f->store->work->route(f->store, &r, NULL, &f->err);
}

static weir_status lease(fixture *f)
{
    const store_known_reaction known[] = { { .reaction = 2, .number = 1 },
                                           { .reaction = 1, .number = 1 } };
    const store_lease_request r = { .lane = weir__str("l"),
                                    .holder = weir__str("me"),
                                    .lease_us = 0, /* ends at once: can be taken again */
                                    .limit = 3,
                                    .leading = 1,
                                    .reserve = 1,
                                    .known = known,
                                    .known_count = 2 };
    store_lease_list list = { 0 };
    const weir_status status = f->store->work->turn(f->store, NULL, 0, &r, &list, &f->err);
    assert_int_equal(list.leases_count, status == WEIR_OK ? 3 : 0);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status fetch(fixture *f)
{
    const store_fetch_item items[] = {
        { .target = 1, .reaction = 1, .after = 0, .up_to = 3, .limit = 10 },
        { .target = 2, .reaction = 2, .after = 0, .up_to = 3, .limit = 10 },
    };
    store_fetch_list list = { 0 };
    const weir_status status = f->store->work->fetch(f->store, items, 2, &list, &f->err);
    assert_int_equal(list.events_count, status == WEIR_OK ? 4 : 0);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status settle(fixture *f)
{
    const int64_t fence = fixture_int(f, "SELECT fence FROM weir_targets WHERE id = 4");
    store_append_stream stream = { .name = weir__str("mail-1") };
    const store_new_event event = { .name = weir__str("Sent"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1
    };
    store_append *appends[] = { &append };
    const store_park park = { .reaction = 1, .event = 2, .error = weir__str("bad") };
    const store_advance advance = { .reaction = 1, .to = 2 };
    store_settle s = { .target = 4,
                       .fence = fence,
                       .appends = appends,
                       .appends_count = 1,
                       .advances = &advance,
                       .advances_count = 1,
                       .parks = &park,
                       .parks_count = 1,
                       .failure = { .reaction = 1, .event = 3, .error = weir__str("worse") },
                       .end = STORE_END_KEEP,
                       .lease_us = 1 };
    return f->store->work->settle(f->store, &s, &f->err);
}

/* Settles "leased" with nothing moved and takes it again; its lease ends at once. */
static weir_status turn(fixture *f)
{
    const int64_t fence = fixture_int(f, "SELECT fence FROM weir_targets WHERE id = 4");
    const store_advance advance = { .reaction = 1, .to = 1 };
    store_settle settle = {
        .target = 4, .fence = fence, .advances = &advance, .advances_count = 1
    };
    store_settle stale = { .target = 1, .fence = 987654 };
    store_settle *settles[] = { &stale, &settle };
    const store_lease_request r = {
        .lane = weir__str("other"), .holder = weir__str("me"), .limit = 3, .all_reactions = true
    };
    store_lease_list list = { 0 };
    const weir_status status = f->store->work->turn(f->store, settles, 2, &r, &list, &f->err);
    assert_int_equal(list.leases_count, status == WEIR_OK ? 1 : 0);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status extend(fixture *f)
{
    const int64_t fence = fixture_int(f, "SELECT fence FROM weir_targets WHERE id = 4");
    store_fenced item = { .target = 4, .fence = fence };
    return f->store->work->extend(f->store, 5, &item, 1, &f->err);
}

static weir_status operate(fixture *f, store_operate op)
{
    const weir_str names[] = { weir__str("all"), weir__str("work") };
    op.filter.names = names;
    op.filter.names_count = 2;
    return f->store->work->operate(f->store, &op, &f->err);
}

static weir_status pause_all(fixture *f)
{
    return operate(f, (store_operate){ .verb = STORE_PAUSE, .by = weir__str("me") });
}

static weir_status resume_all(fixture *f)
{
    return operate(f, (store_operate){ .verb = STORE_RESUME });
}

static weir_status skip_all(fixture *f)
{
    return operate(f, (store_operate){ .verb = STORE_SKIP });
}

static weir_status reset_all(fixture *f)
{
    return operate(f, (store_operate){ .verb = STORE_RESET });
}

static weir_status list_targets(fixture *f)
{
    const store_targets_query q = { .limit = 10 };
    store_targets_chunk chunk = { 0 };
    const weir_status status = f->store->work->targets(f->store, &q, &chunk, &f->err);
    weir__arena_free(&chunk.arena);
    return status;
}

static weir_status list_lanes(fixture *f)
{
    store_lane_list list = { 0 };
    const weir_status status = f->store->work->lanes(f->store, &list, &f->err);
    weir__arena_free(&list.arena);
    return status;
}

static weir_status list_parked(fixture *f)
{
    const store_parked_query q = { .limit = 10 };
    store_parked_chunk chunk = { 0 };
    const weir_status status = f->store->work->parked(f->store, &q, &chunk, &f->err);
    weir__arena_free(&chunk.arena);
    return status;
}

static weir_status close_stream(fixture *f)
{
    store_append_stream stream = { .name = weir__str("order-1") };
    const store_new_event event = { .name = weir__str("$closed"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append append = { .flags = STORE_APPEND_CLOSE,
                            .streams = &stream,
                            .streams_count = 1,
                            .events = &event,
                            .events_count = 1,
                            .err = &f->err };
    store_append *appends[] = { &append };
    weir_status status = f->store->log->append(f->store, appends, 1, &f->err);
    if (status == WEIR_OK && append.status != WEIR_EHELD) {
        status = append.status;
        assert_int_not_equal(status, WEIR_OK);
    }
    return status;
}

/* Three events; reaction 1 with targets "all" (1) and "leased" (4), reaction 2 with work rows for
 * targets "work" (2) and "work-2" (3). */
static void prepare(fixture *f)
{
    fixture_declare(f, "constant", "*", "*", STORE_RULE_CONSTANT);
    fixture_declare(f, "worker", "*", "/order/", STORE_RULE_WORK);
    for (int i = 0; i < 3; i++) {
        (void)fixture_put(f, "order-1", "Placed");
    }
    fixture_mark(f, "constant", "all", "l", "", 1, 3);
    fixture_mark(f, "worker", "work", "l", "", 1, 1);
    fixture_mark(f, "worker", "work-2", "l", "", 2, 2);
    fixture_mark(f, "constant", "leased", "other", "", 1, 3);
    fixture_exec(f,
                 "UPDATE weir_targets SET due = 1 WHERE id = 1;"
                 "UPDATE weir_targets SET holder = 'me', lease_until = 9, fence = 1 WHERE id = 4");
    fixture_check(f);
}

static void out_of_memory_changes_nothing(void **state)
{
    static const struct {
        const char *name;
        weir_status (*verb)(fixture *f);
    } verbs[] = {
        { "declare", declare },    { "reactions", reactions },  { "router_lease", router_lease },
        { "route", route },        { "lease", lease },          { "fetch", fetch },
        { "extend", extend },      { "close", close_stream },   { "pause", pause_all },
        { "resume", resume_all },  { "targets", list_targets }, { "lanes", list_lanes },
        { "parked", list_parked }, { "skip", skip_all },        { "turn", turn },
        { "settle", settle },      { "reset", reset_all },
    };
    fixture *f = *state;
    prepare(f);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        uint64_t nth = 1;
        for (; nth < ALLOCATIONS_MAX; nth++) {
            const int64_t before = fingerprint(f);
            weir__memory_fail_nth(nth);
            const weir_status status = verbs[i].verb(f);
            const bool failed = weir__memory_failed();
            weir__memory_fail_nth(0);
            if (!failed) {
                OK(f, status);
                break;
            }
            /* An allocation whose failure is survived is as good; then the verb has happened. */
            if (status != WEIR_OK && (status != WEIR_ENOMEM || fingerprint(f) != before)) {
                fail_msg("%s, allocation %d: %s", verbs[i].name, (int)nth, f->err.message);
            }
        }
        assert_true(nth > 1 && nth < ALLOCATIONS_MAX);
        fixture_check(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(out_of_memory_changes_nothing, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("targets_fault", tests, NULL, NULL);
}
