/* router_test.c - routing, step by step: every rule, what fails, who may, and in which order. On
 * memory and on SQLite.
 *
 * Method: workers run by hand (worker_kit_test.h); what was routed is read from the store.
 */
#include "engine/worker_kit_test.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/lane.h"

#include <stdio.h>

static kit_process a, b;

/* ---- rules -------------------------------------------------------------------------------- */

/* Targets by the first letter of the data's region; "bad" cannot be resolved, "none" is ignored. */
static int32_t resolve_region(void *ctx, const weir_event *event, weir_route *out, weir_error *err)
{
    (void)ctx;
    const char *data = event->data.ptr;
    if (strstr(data, "bad") != NULL) {
        return weir__fail(err, WEIR_EINVAL, "no such region");
    }
    if (strstr(data, "none") == NULL) {
        out->target = weir__str(strstr(data, "north") != NULL ? "north" : "south");
        out->lane = weir__str("regions");
        out->priority = 7;
    }
    return WEIR_OK;
}

static void declare_resolver(kit_process *p, const char *name)
{
    const weir_str on[] = { weir__str("Placed") };
    const weir_lane lane_regions = { .size = sizeof lane_regions, .name = weir__str("regions") };
    const weir_reaction d = { .size = sizeof d,
                              .name = weir__str(name),
                              .on = on,
                              .on_count = 1,
                              .resolve = resolve_region,
                              .resolver_revision = 1,
                              .lane = weir__str("regions"),
                              .from = WEIR_FROM_START };

    assert_int_equal(weir__registry_lane(&p->reactions, &lane_regions, NULL), WEIR_OK);
    kit_declare(p, &d);
}

static void every_rule_is_routed(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&a, "stream", "Placed", "mail-{stream}");
    kit_reaction(&a, "category", "Placed", "of-{category}");
    kit_reaction(&a, "name", NULL, "named-{name}");
    kit_reaction(&a, "work", "Placed", "region-{data.region}");
    declare_resolver(&a, "resolver");
    kit_start(&a, s, NULL);
    const int64_t first = kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    const int64_t second = kit_append(s, "order-2", "Placed", "{\"region\":\"south\"}");
    const int64_t third = kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    const int64_t other = kit_append(s, "order-1", "Paid", "{}");
    assert_int_equal(kit_route(&a) > kit_mono_us, true);

    assert_int_equal(kit_mark(s, "all", "constant"), third);
    assert_int_equal(kit_at(s, "all", "constant"), first - 1);
    assert_int_equal(kit_mark(s, "mail-order-1", "stream"), third);
    assert_int_equal(kit_mark(s, "mail-order-2", "stream"), second);
    assert_int_equal(kit_mark(s, "of-order", "category"), third);
    assert_int_equal(kit_mark(s, "named-Placed", "name"), third);
    assert_int_equal(kit_mark(s, "named-Paid", "name"), other);
    assert_int_equal(kit_mark(s, "region-north", "work"), third);
    assert_int_equal(kit_mark(s, "region-south", "work"), second);
    assert_int_equal(kit_mark(s, "north", "resolver"), third);
    assert_int_equal(kit_fetchable(s, "all", "constant"), 3);
    assert_int_equal(kit_fetchable(s, "mail-order-1", "stream"), 2);
    assert_int_equal(kit_fetchable(s, "of-order", "category"), 3);
    assert_int_equal(kit_fetchable(s, "named-Placed", "name"), 3);
    assert_int_equal(kit_fetchable(s, "region-north", "work"), 2);
    assert_int_equal(kit_fetchable(s, "north", "resolver"), 2);
    assert_int_equal(kit_routed(s, "constant"), other);
    assert_true(kit_woken(&a, &a.worker->lanes[0].leasing));
    kit_stop(&a);
    kit_close(s);
}

static void a_run_of_events_is_one_mark(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    char name[16];

    for (int i = 0; i < 30; i++) { /* so many that they meet in the table */
        (void)snprintf(name, sizeof name, "stream-%d", i);
        kit_reaction(&a, name, "Placed", "mail-{stream}");
    }
    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    for (int i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "order-%d", i % 30);
        kit_append_many(s, name, "Placed", 10);
    }
    (void)kit_route(&a);
    assert_int_equal(kit_count(&a, METRIC_MARKS), 30 * 30 + 1);
    assert_int_equal(kit_count(&a, METRIC_ROUTED), 600);
    assert_int_equal(kit_fetchable(s, "all", "constant"), 600);
    for (int i = 0; i < 30; i++) {
        (void)snprintf(name, sizeof name, "stream-%d", i);
        assert_int_equal(kit_fetchable(s, "mail-order-7", name), 20);
    }
    kit_stop(&a);
    kit_close(s);
}

static void every_source_is_listened_to(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    static const char *const sources[] = { "order-*", "bill-*" };

    for (size_t i = 0; i < 2; i++) {
        const weir_str on[] = { weir__str("Placed") };
        const weir_reaction d = { .size = sizeof d,
                                  .name = weir__str(sources[i]),
                                  .on = on,
                                  .on_count = 1,
                                  .source = weir__str(sources[i]),
                                  .to = weir__str("all"),
                                  .from = WEIR_FROM_START };
        kit_declare(&a, &d);
    }
    kit_start(&a, s, NULL);
    const int64_t order = kit_append(s, "order-1", "Placed", "{}");
    const int64_t bill = kit_append(s, "bill-1", "Placed", "{}");
    (void)kit_append(s, "other-1", "Placed", "{}");
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "all", "order-*"), order);
    assert_int_equal(kit_mark(s, "all", "bill-*"), bill);
    kit_stop(&a);
    kit_close(s);
}

static void a_route_has_a_bounded_number_of_marks(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    char name[16];

    for (int i = 0; i < 9; i++) {
        (void)snprintf(name, sizeof name, "work-%d", i);
        kit_reaction(&a, name, "Placed", "to-{data.region}");
    }
    kit_start(&a, s, NULL);
    for (int i = 0; i < 1000; i++) {
        (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    }
    (void)kit_route(&a);
    assert_int_equal(kit_count(&a, METRIC_MARKS), 9000);
    assert_int_equal(weir__fault_calls(s, FAULT_ROUTE), 3);
    assert_int_equal(kit_fetchable(s, "to-north", "work-8"), 1000);
    kit_stop(&a);
    kit_close(s);
}

/* ---- what fails --------------------------------------------------------------------------- */

static void an_event_that_cannot_be_resolved_is_parked_and_the_others_go_on(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    declare_resolver(&a, "resolver");
    kit_reaction(&a, "work", "Placed", "region-{data.region}");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"bad\"}");
    (void)kit_append(s, "order-1", "Placed", "{\"other\":\"none\"}");
    const int64_t last = kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    (void)kit_route(&a);
    assert_int_equal(kit_parked(s, "resolver"), 1);
    assert_int_equal(kit_parked(s, "work"), 1);
    assert_int_equal(kit_fetchable(s, "north", "resolver"), 2);
    assert_int_equal(kit_mark(s, "region-north", "work"), last);
    assert_int_equal(kit_count(&a, METRIC_ROUTE_PARKED), 2);
    assert_int_equal(kit_logged(&a, "2 route_parked reaction=resolver event="), 1);
    assert_int_equal(kit_logged(&a, "no such region"), 1);
    kit_stop(&a);
    kit_close(s);
}

static void an_event_for_a_target_in_another_lane_is_parked(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "first", "Opened", "{data.to}"); /* in the lane "default" */
    declare_resolver(&a, "resolver");                 /* in the lane "regions" */
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Opened", "{\"to\":\"north\"}");
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    const int64_t last = kit_append(s, "order-1", "Placed", "{\"region\":\"south\"}");
    (void)kit_route(&a);
    assert_int_equal(kit_parked(s, "resolver"), 2);
    assert_int_equal(kit_mark(s, "north", "resolver"), -1);
    assert_int_equal(kit_mark(s, "south", "resolver"), last);
    assert_int_equal(kit_routed(s, "resolver"), last);
    assert_int_equal(kit_logged(&a, "2 route_parked"), 2);
    kit_stop(&a);
    kit_close(s);
}

static void an_event_read_again_is_not_parked_again(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "work", "Placed", "region-{data.region}");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    const int64_t last = kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    (void)kit_route(&a);
    assert_int_equal(kit_parked(s, "work"), 1);

    /* An operator moves it back: nobody tells the router but a wake-up. */
    store_operate op = { .verb = STORE_RESET, .reset_to = STORE_RESET_START };
    assert_int_equal(s->work->operate(s, &op, NULL), WEIR_OK);
    assert_int_equal(kit_routed(s, "work"), 0);
    const store_parked_query q = { .limit = 1 };
    store_parked_chunk chunk = { 0 };
    assert_int_equal(s->work->parked(s, &q, &chunk, NULL), WEIR_OK);
    assert_int_equal(s->work->parked_change(s, chunk.parked[0].id, STORE_PARKED_DROP, NULL),
                     WEIR_OK);
    weir__arena_free(&chunk.arena);
    weir__worker_wake(a.worker);
    kit_run(&a, 2000000);
    assert_int_equal(kit_routed(s, "work"), last);
    assert_int_equal(kit_fetchable(s, "region-north", "work"), 1);
    assert_int_equal(kit_parked(s, "work"), 0);
    kit_stop(&a);
    kit_close(s);
}

static void a_store_that_is_away_is_tried_again_for_ever_and_told_once(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    const fault_plan away = { .verb = FAULT_ANY,
                              .action = FAULT_FAIL_BEFORE,
                              .nth = 1,
                              .count = 1000000,
                              .status = WEIR_EUNAVAILABLE };
    const fault_plan back = { 0 };

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    weir__fault_set(s, &away);
    const uint64_t calls = weir__fault_calls(s, FAULT_ANY);
    for (int i = 0; i < 100; i++) {
        weir__worker_wake(a.worker); /* waking does not make it try more often */
        kit_run(&a, 600000);
    }
    assert_int_equal(kit_logged(&a, "2 store_away"), 1);
    const uint64_t tried = weir__fault_calls(s, FAULT_ANY) - calls;
    assert_in_range(tried, 24, 60); /* two tasks, each at 2.5 to 5 s, and a few quick ones */
    assert_int_equal(kit_count(&a, METRIC_STORE_ERRORS), tried);
    weir__fault_set(s, &back);
    kit_run(&a, 10000000);
    assert_int_equal(kit_logged(&a, "1 store_back"), 1);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    kit_stop(&a);
    kit_close(s);
}

static void a_worker_ends_although_the_store_is_away(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    const fault_plan away = { .verb = FAULT_ANY,
                              .action = FAULT_FAIL_BEFORE,
                              .nth = 1,
                              .count = 1000000,
                              .status = WEIR_EUNAVAILABLE };

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    kit_run(&a, 1);
    const uint64_t calls = weir__fault_calls(s, FAULT_ROUTER_LEASE);
    weir__fault_set(s, &away);
    kit_stop(&a);
    assert_int_equal(weir__fault_calls(s, FAULT_ROUTER_LEASE), calls + 1); /* it had one to give */
    kit_close(s);
}

/* ---- who may ------------------------------------------------------------------------------ */

static void processes_with_different_reactions_do_not_pass_over_each_others_events(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "paid", "Paid", "paid");
    kit_reaction(&b, "placed", "Placed", "placed");
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    const int64_t placed = kit_append(s, "order-1", "Placed", "{}");
    const int64_t paid = kit_append(s, "order-1", "Paid", "{}");
    (void)kit_route(&a);
    assert_int_equal(kit_routed(s, "paid"), paid);
    assert_int_equal(kit_routed(s, "placed"), 0);
    (void)kit_route(&b);
    assert_int_equal(kit_mark(s, "paid", "paid"), paid);
    assert_int_equal(kit_mark(s, "placed", "placed"), placed);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

static void one_of_two_routes_and_the_other_takes_over(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&b, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    int64_t id = kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    (void)kit_route(&b);
    assert_int_equal(kit_count(&a, METRIC_ROUTED), 1);
    assert_int_equal(kit_count(&b, METRIC_ROUTED), 0);

    /* SIGTERM: given back before anything else. */
    weir__worker_drain(a.worker);
    (void)kit_route(&a);
    id = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    const uint64_t routes = weir__fault_calls(s, FAULT_ROUTE);
    kit_run(&b, 1000000);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    assert_int_equal(kit_count(&b, METRIC_ROUTED), 1);
    assert_int_equal(weir__fault_calls(s, FAULT_ROUTE), routes + 1); /* it knew where to begin */

    /* SIGKILL: when the lease has ended. */
    kit_abandon(&b);
    kit_stop(&a);
    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    id = kit_append(s, "order-1", "Placed", "{}");
    kit_run(&a, 1000000);
    assert_int_not_equal(kit_mark(s, "all", "constant"), id);
    kit_run(&a, 4000000);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    kit_stop(&a);
    kit_close(s);
}

static void a_router_stopped_past_its_lease_does_no_harm(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    task *t;

    kit_reaction(&a, "work", "Placed", "region-{data.region}");
    kit_reaction(&b, "work", "Placed", "region-{data.region}");
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    t = &a.worker->router.task;
    for (int i = 0; i < 10 && !a.worker->router.has_chunk; i++) {
        (void)t->step(t);
    }
    assert_true(a.worker->router.has_chunk);

    /* Stopped here: it has read, and not routed. Another takes over. */
    kit_mono_us += 10000000;
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"south\"}");
    (void)kit_route(&b);
    assert_int_equal(kit_count(&b, METRIC_ROUTED), 2);

    (void)kit_route(&a);
    assert_int_equal(kit_count(&a, METRIC_ROUTED), 0);
    assert_int_equal(kit_count(&a, METRIC_STORE_ERRORS), 0);
    assert_int_equal(kit_fetchable(s, "region-north", "work"), 1);
    assert_int_equal(kit_fetchable(s, "region-south", "work"), 1);
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"west\"}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_count(&a, METRIC_ROUTED), 0); /* it is b's now */
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

/* The monotonic clock stands still while a machine sleeps; leases end all the same. */
static void a_router_whose_machine_slept_lets_go(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&b, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    kit_suspended_us += 10000000;
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&b);
    assert_int_equal(kit_count(&b, METRIC_ROUTED), 1);
    weir__worker_wake(a.worker);
    kit_mono_us += 10000;
    (void)kit_route(&a); /* whatever it does now is refused, and it learns why */
    for (int i = 0; i < 5; i++) {
        (void)kit_append(s, "order-1", "Placed", "{}");
        kit_mono_us += 10000;
        weir__worker_wake(a.worker);
        (void)kit_route(&a);
        weir__worker_wake(b.worker);
        (void)kit_route(&b);
    }
    assert_in_range(kit_count(&a, METRIC_ROUTED), 1, 2);
    assert_int_equal(kit_count(&a, METRIC_ROUTED) + kit_count(&b, METRIC_ROUTED), 7);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

static void declare_two_names(kit_process *p)
{
    const weir_str on[] = { weir__str("Paid"), weir__str("Placed") };
    const weir_reaction d = { .size = sizeof d,
                              .name = weir__str("growing"),
                              .on = on,
                              .on_count = 2,
                              .to = weir__str("all"),
                              .from = WEIR_FROM_START };
    kit_declare(p, &d);
}

static void a_definition_that_gains_a_name_misses_nothing(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "growing", "Placed", "all");
    kit_reaction(&a, "other", "Placed", "others");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    assert_int_equal(kit_count(&a, METRIC_MARKS), 2);

    /* The new version starts beside the old one, which still has the lease. */
    declare_two_names(&b);
    kit_start(&b, s, NULL);
    const int64_t paid = kit_append(s, "order-1", "Paid", "{}");
    (void)kit_route(&b);
    assert_int_equal(kit_routed(s, "growing"), paid - 1);
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_routed(s, "growing"), paid - 1); /* the old one stepped aside */
    assert_int_equal(kit_routed(s, "other"), paid);       /* and goes on with the rest  */
    kit_run(&b, 1000000);
    assert_int_equal(kit_mark(s, "all", "growing"), paid);
    assert_int_equal(kit_fetchable(s, "all", "growing"), 2);

    for (int i = 0; i < 5; i++) {
        (void)kit_append(s, "order-1", "Placed", "{}");
        weir__worker_wake(a.worker);
        kit_run(&a, 2000000);
    }
    assert_int_equal(kit_logged(&a, "2 definition_old reaction=growing"), 1);
    assert_int_equal(kit_mark(s, "all", "growing"), paid);
    kit_stop(&a);

    /* Nor does the old one come back by restarting. */
    kit_reaction(&a, "growing", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_run(&a, 10000000);
    assert_int_equal(kit_logged(&a, "2 definition_old reaction=growing"), 1);
    assert_int_equal(kit_mark(s, "all", "growing"), paid);
    kit_run(&b, 1000000);
    assert_int_equal(kit_fetchable(s, "all", "growing"), 7);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

/* ---- in which order ----------------------------------------------------------------------- */

static void the_history_of_a_new_reaction_does_not_stop_the_others(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    task *t;
    int steps = 0;

    kit_reaction(&a, "live", "Placed", "live");
    kit_start(&a, s, NULL);
    for (int i = 0; i < 30; i++) {
        kit_append_many(s, "order-1", "Placed", 1000);
    }
    (void)kit_route(&a);
    kit_stop(&a);
    kit_reaction(&a, "live", "Placed", "live");
    kit_reaction(&a, "young", "Placed", "young-{stream}");
    kit_start(&a, s, NULL);
    const int64_t last = kit_append(s, "order-2", "Placed", "{}");
    t = &a.worker->router.task;
    while (kit_mark(s, "live", "live") < last && steps < 1000) {
        (void)t->step(t);
        steps++;
    }
    assert_in_range(steps, 1, 10);
    assert_int_equal(kit_count(&a, METRIC_MARKS), 2); /* one of each: nothing is given twice */
    assert_in_range(kit_routed(s, "young"), 0, last / 2);
    (void)kit_route(&a);
    assert_int_equal(kit_routed(s, "young"), last);
    assert_int_equal(kit_mark(s, "young-order-2", "young"), last);
    kit_stop(&a);
    kit_close(s);
}

static void reactions_further_ahead_are_not_given_events_again(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "ahead", "Placed", "to-{data.region}");
    kit_start(&a, s, NULL);
    for (int i = 0; i < 10; i++) {
        (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    }
    (void)kit_route(&a);
    kit_stop(&a);
    kit_reaction(&a, "ahead", "Placed", "to-{data.region}");
    kit_reaction(&a, "young", "Placed", "young");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{\"region\":\"north\"}");
    (void)kit_route(&a); /* one chunk has all of it */
    assert_int_equal(kit_count(&a, METRIC_MARKS), 2);
    assert_int_equal(kit_fetchable(s, "young", "young"), 11);
    assert_int_equal(kit_fetchable(s, "to-north", "ahead"), 11);
    kit_stop(&a);
    kit_close(s);
}

static void leases_are_renewed_during_a_long_catch_up(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    task *t;

    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&b, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_start(&b, s, NULL);
    for (int i = 0; i < 30; i++) {
        kit_append_many(s, "order-1", "Placed", 1000);
    }
    t = &a.worker->router.task;
    for (int i = 0; i < 100 && kit_routed(s, "constant") < 30000; i++) {
        (void)t->step(t);
        kit_mono_us += 400000; /* a slow store */
        weir__worker_wake(b.worker);
        (void)kit_route(&b);
    }
    assert_int_equal(kit_count(&a, METRIC_ROUTED), 30000);
    assert_int_equal(kit_count(&b, METRIC_ROUTED), 0);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

static void an_idle_router_leaves_the_store_alone(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    kit_run(&a, 1000000);
    uint64_t calls = weir__fault_calls(s, FAULT_ANY);
    kit_run(&a, 10000000);
    assert_in_range(weir__fault_calls(s, FAULT_ANY) - calls, 10, 20); /* still at hand */
    kit_run(&a, 10000000);
    calls = weir__fault_calls(s, FAULT_ROUTER_LEASE);
    const uint64_t reads = weir__fault_calls(s, FAULT_READ_LOG);
    kit_run(&a, 60000000);
    assert_int_equal(weir__fault_calls(s, FAULT_ROUTER_LEASE), calls);
    assert_int_equal(weir__fault_calls(s, FAULT_READ_LOG), reads);
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    kit_stop(&a);
    kit_close(s);
}

static void lanes_are_woken_when_it_is_known_what_for(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    kit_reaction(&a, "one", "Placed", "{stream}");
    kit_start(&a, s, NULL);
    (void)kit_route(&a);
    const task *leasing = &a.worker->lanes[0].leasing;
    /* Nothing new in the log: somebody may have handed a target back. */
    kit_forget(&a);
    weir__worker_wake(a.worker);
    assert_false(kit_woken(&a, leasing));
    (void)kit_route(&a);
    assert_true(kit_woken(&a, leasing));
    /* Something new: when it is routed. */
    (void)kit_append(s, "order-1", "Placed", "{}");
    kit_forget(&a);
    weir__worker_wake(a.worker);
    assert_false(kit_woken(&a, leasing));
    (void)kit_route(&a);
    assert_true(kit_woken(&a, leasing));
    kit_stop(&a);
    kit_close(s);
}

static void lanes_of_a_worker_that_does_not_route_are_woken_at_once(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    kit_reaction(&a, "one", "Placed", "{stream}");
    kit_start(&a, s, NULL);
    (void)kit_route(&a);
    kit_reaction(&b, "one", "Placed", "{stream}");
    kit_start(&b, s, NULL);
    (void)kit_route(&b);
    kit_forget(&b);
    weir__worker_wake(b.worker);
    (void)b.worker->router.task.step(&b.worker->router.task);
    assert_true(kit_woken(&b, &b.worker->lanes[0].leasing));
    kit_stop(&b);
    kit_stop(&a);
    kit_close(s);
}

static void waking_it_in_vain_costs_little(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    const uint64_t reads = weir__fault_calls(s, FAULT_READ_LOG);
    for (int i = 0; i < 10000; i++) { /* for a second */
        kit_mono_us += 100;
        weir__worker_wake(a.worker);
        (void)kit_route(&a);
    }
    assert_in_range(weir__fault_calls(s, FAULT_READ_LOG) - reads, 200, 300);

    /* And something new is found at once when it was quiet, soon when it was not. */
    int64_t id = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    const int64_t again_us = kit_route(&a);
    assert_in_range(again_us - kit_mono_us, 1, 4000);
    kit_mono_us = again_us;
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    kit_mono_us += 200000;
    id = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    kit_stop(&a);
    kit_close(s);
}

/* ---- what only other stores do ------------------------------------------------------------ */

static store_log_ops changed_log;   /* of the store under test, but for read_log */
static store_work_ops changed_work; /* and but for poll */
static const store_log_ops *true_log;
static const store_work_ops *true_work;
static bool say_held;
static const char *say_epoch, *say_log;
static int64_t say_head; /* -1: as it is */
static size_t reads_bare, reads_whole;

static weir_status read_and_change(weir_store *s, const store_log_query *q, store_chunk *chunk,
                                   weir_error *err)
{
    const weir_status status = true_log->read_log(s, q, chunk, err);

    *(q->bare ? &reads_bare : &reads_whole) += 1;
    chunk->held = say_held && !chunk->more;
    (void)snprintf(chunk->epoch, sizeof chunk->epoch, "%s", say_epoch);
    (void)snprintf(chunk->log, sizeof chunk->log, "%s", say_log);
    chunk->head = say_head >= 0 ? say_head : chunk->head;
    return status;
}

static weir_status poll_and_change(weir_store *s, store_poll *poll, weir_error *err)
{
    const weir_status status = true_work->poll(s, poll, err);

    (void)snprintf(poll->epoch, sizeof poll->epoch, "%s", say_epoch);
    (void)snprintf(poll->log, sizeof poll->log, "%s", say_log);
    return status;
}

static void change_reading(weir_store *s)
{
    true_log = s->log;
    true_work = s->work;
    changed_log = *s->log;
    changed_work = *s->work;
    changed_log.read_log = read_and_change;
    changed_work.poll = poll_and_change;
    s->log = &changed_log;
    s->work = &changed_work;
    say_held = false;
    say_epoch = say_log = "one";
    say_head = -1;
    reads_bare = reads_whole = 0;
}

static void end_changed(weir_store *s)
{
    s->log = true_log;
    s->work = true_work;
    kit_stop(&a);
    kit_close(s);
}

static void payloads_are_read_only_for_who_looks_at_them(bool sqlite)
{
    const weir_str on[] = { weir__str("Placed") };
    const weir_reaction by_data = { .size = sizeof by_data,
                                    .name = weir__str("by-data"),
                                    .on = on,
                                    .on_count = 1,
                                    .to = weir__str("to-{stream}"),
                                    .priority_text = weir__str("{data.urgency}"),
                                    .from = WEIR_FROM_START };
    weir_store *s = kit_open(sqlite);

    change_reading(s);
    kit_reaction(&a, "names", "Placed", "of-{stream}-{name}");
    kit_start(&a, s, NULL);
    const int64_t id = kit_append(s, "order-1", "Placed", "{\"urgency\":7}");
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "of-order-1-Placed", "names"), id);
    assert_true(reads_bare > 0);
    assert_int_equal(reads_whole, 0);
    kit_stop(&a);
    reads_bare = 0;
    kit_reaction(&a, "names", "Placed", "of-{stream}-{name}");
    kit_declare(&a, &by_data);
    kit_start(&a, s, NULL);
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "to-order-1", "by-data"), id);
    assert_true(reads_whole > 0);
    end_changed(s);
}

/* A worker with one reaction and one event, whose reading is changed. */
static weir_store *begin_changed(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    change_reading(s);
    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    (void)kit_append(s, "order-1", "Placed", "{}");
    return s;
}

static void events_that_are_held_back_are_looked_for_again_soon(bool sqlite)
{
    weir_store *s = begin_changed(sqlite);
    int64_t waits_us[8];

    say_held = true;
    for (size_t i = 0; i < 8; i++) {
        const int64_t until_us = kit_route(&a);
        waits_us[i] = until_us - kit_mono_us;
        kit_mono_us = until_us;
    }
    assert_int_equal(waits_us[0], 5000);
    assert_int_equal(waits_us[1], 10000);
    assert_int_equal(waits_us[6], 100000);
    assert_int_equal(waits_us[7], 100000);
    say_held = false;
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    assert_in_range(kit_route(&a) - kit_mono_us, 500000, INT64_MAX); /* nobody has woken it */
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    end_changed(s);
}

static void a_log_that_was_rewound_is_told_and_routed_from_where_the_store_is(bool sqlite)
{
    weir_store *s = begin_changed(sqlite);

    (void)kit_route(&a);
    assert_int_equal(kit_logged(&a, "log_rewound"), 0);
    say_epoch = say_log = "two";
    const uint64_t looks = weir__fault_calls(s, FAULT_REACTIONS);
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_logged(&a, "3 log_rewound epoch_before=one epoch=two lost=yes"), 1);
    assert_int_equal(weir__fault_calls(s, FAULT_REACTIONS), looks + 1);
    kit_mono_us += 10000000;
    (void)kit_poll(&a);
    assert_int_equal(kit_logged(&a, "log_rewound"), 1); /* whoever finds it next */
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    end_changed(s);
}

/* The target of the worker that begin_changed has made is leased. */
static slot *hold_one(void)
{
    (void)kit_route(&a);
    (void)kit_poll(&a);
    lane *l = &a.worker->lanes[0];
    slot *held = &l->slots[0];
    (void)l->leasing.step(&l->leasing);
    assert_int_equal(held->state, SLOT_ASSIGNED);
    assert_false(held->lost);
    return held;
}

static void assert_given_up(const slot *held)
{
    assert_true(held->lost);
    assert_true(held->interrupted);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
}

/* What was read from the log before is worth nothing, and must not run on. */
static void a_log_that_was_rewound_ends_what_is_held(bool sqlite)
{
    weir_store *s = begin_changed(sqlite);
    const slot *held = hold_one();

    say_epoch = say_log = "two";
    (void)kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_given_up(held);
    end_changed(s);
}

/* A worker whose router reads nothing learns it from the poll. Another server goes on with the log,
 * and nobody knows whether something was lost. What is given up is free at once. */
static void another_log_is_found_by_the_poll_too(bool sqlite)
{
    weir_store *s = begin_changed(sqlite);
    slot *held = hold_one();
    lane *l = &a.worker->lanes[0];

    say_log = "one/2";
    kit_mono_us += 10000000;
    (void)kit_poll(&a);
    assert_given_up(held);
    assert_int_equal(kit_logged(&a, "2 log_rewound epoch_before=one epoch=one/2 lost=unknown"), 1);
    (void)kit_route(&a);
    kit_mono_us += 10000000;
    (void)kit_poll(&a);
    assert_int_equal(kit_logged(&a, "log_rewound"), 1);
    while (held->state != SLOT_IDLE) { /* it is filled, and then given back */
        (void)l->leasing.step(&l->leasing);
        (void)held->task.step(&held->task);
    }
    assert_int_equal(kit_logged(&a, "log_rewound"), 1);
    weir__lane_ask(l);
    (void)l->leasing.step(&l->leasing);
    assert_int_equal(held->state, SLOT_ASSIGNED);
    assert_int_equal(held->fence, 2);
    end_changed(s);
}

/* A lease that is refused has the poller ask which log it is, at once. */
static void a_refused_renewal_has_the_poll_look_at_the_log(bool sqlite)
{
    weir_store *s = begin_changed(sqlite);
    const slot *held = hold_one();
    lane *l = &a.worker->lanes[0];
    store_fenced item = { .target = held->target, .fence = held->fence, .token = held->token };

    say_epoch = say_log = "two";
    assert_int_equal(s->work->extend(s, 0, &item, 1, NULL), WEIR_OK);
    (void)l->renewing.step(&l->renewing); /* which begins to count */
    kit_mono_us += l->config.lease_us / 3;
    kit_forget(&a);
    (void)l->renewing.step(&l->renewing);
    assert_true(held->lost);
    assert_true(kit_woken(&a, &a.worker->poller.task));
    (void)kit_poll(&a);
    assert_int_equal(kit_logged(&a, "3 log_rewound epoch_before=one epoch=two lost=yes"), 1);
    end_changed(s);
}

/* Events that come to lie up to its position would be passed over. */
static void a_reaction_that_is_routed_beyond_the_log_is_refused(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    weir_error err = { .size = sizeof err };

    change_reading(s);
    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&a, "sound", "Placed", "others");
    kit_start(&a, s, NULL);
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    const int64_t number = a.worker->registry->reactions[0].known.id;
    /* What only a damaged store has. */
    (void)kit_append(s, "order-1", "Ignored", "{}");
    const store_route_step further = { .reaction = number, .number = 1, .from = id, .to = id + 1 };
    const store_route route = { .steps = &further, .steps_count = 1 };
    assert_int_equal(s->work->route(s, &route, NULL, &err), WEIR_OK);
    say_head = id;
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    kit_mono_us += 10000000;
    (void)kit_route(&a);
    assert_int_equal(kit_logged(&a, "3 routed_beyond_log reaction=constant"), 1);
    assert_int_equal(kit_logged(&a, "routed_beyond_log"), 1);
    /* Also when the log has grown past it. */
    say_head = -1;
    const int64_t next = kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_mark(s, "others", "sound"), next);
    assert_int_equal(kit_mark(s, "all", "constant"), id);
    /* Until somebody has repaired it. */
    const store_route_step repaired = {
        .reaction = number, .number = 1, .from = id + 1, .to = id + 2
    };
    assert_int_equal(
        s->work->route(s, &(store_route){ .steps = &repaired, .steps_count = 1 }, NULL, &err),
        WEIR_OK);
    const int64_t last = kit_append(s, "order-1", "Placed", "{}");
    for (int i = 0; i < 3; i++) { /* the reactions are looked at when nothing else is found */
        kit_mono_us += 10000000;
        weir__worker_wake(a.worker);
        (void)kit_route(&a);
    }
    assert_int_equal(kit_mark(s, "all", "constant"), last);
    assert_int_equal(kit_logged(&a, "routed_beyond_log"), 1);
    end_changed(s);
}

int main(void)
{
    static const kit_test tests[] = {
        { "every rule is routed", every_rule_is_routed },
        { "a run of events is one mark", a_run_of_events_is_one_mark },
        { "a route has a bounded number of marks", a_route_has_a_bounded_number_of_marks },
        { "an event that cannot be resolved is parked and the others go on",
          an_event_that_cannot_be_resolved_is_parked_and_the_others_go_on },
        { "an event for a target in another lane is parked",
          an_event_for_a_target_in_another_lane_is_parked },
        { "an event read again is not parked again", an_event_read_again_is_not_parked_again },
        { "a store that is away is tried again for ever and told once",
          a_store_that_is_away_is_tried_again_for_ever_and_told_once },
        { "a worker ends although the store is away", a_worker_ends_although_the_store_is_away },
        { "processes with different reactions do not pass over each others events",
          processes_with_different_reactions_do_not_pass_over_each_others_events },
        { "one of two routes and the other takes over",
          one_of_two_routes_and_the_other_takes_over },
        { "a router stopped past its lease does no harm",
          a_router_stopped_past_its_lease_does_no_harm },
        { "a definition that gains a name misses nothing",
          a_definition_that_gains_a_name_misses_nothing },
        { "the history of a new reaction does not stop the others",
          the_history_of_a_new_reaction_does_not_stop_the_others },
        { "every source is listened to", every_source_is_listened_to },
        { "a router whose machine slept lets go", a_router_whose_machine_slept_lets_go },
        { "reactions further ahead are not given events again",
          reactions_further_ahead_are_not_given_events_again },
        { "leases are renewed during a long catch-up", leases_are_renewed_during_a_long_catch_up },
        { "an idle router leaves the store alone", an_idle_router_leaves_the_store_alone },
        { "lanes are woken when it is known what for", lanes_are_woken_when_it_is_known_what_for },
        { "lanes of a worker that does not route are woken at once",
          lanes_of_a_worker_that_does_not_route_are_woken_at_once },
        { "waking it in vain costs little", waking_it_in_vain_costs_little },
        { "payloads are read only for who looks at them",
          payloads_are_read_only_for_who_looks_at_them },
        { "events that are held back are looked for again soon",
          events_that_are_held_back_are_looked_for_again_soon },
        { "a log that was rewound is told and routed from where the store is",
          a_log_that_was_rewound_is_told_and_routed_from_where_the_store_is },
        { "C24 a log that was rewound ends what is held",
          a_log_that_was_rewound_ends_what_is_held },
        { "C24 another log is found by the poll too", another_log_is_found_by_the_poll_too },
        { "C24 a refused renewal has the poll look at the log",
          a_refused_renewal_has_the_poll_look_at_the_log },
        { "C16 a reaction that is routed beyond the log is refused",
          a_reaction_that_is_routed_beyond_the_log_is_refused },
    };
    return kit_main(tests, sizeof tests / sizeof tests[0]);
}
