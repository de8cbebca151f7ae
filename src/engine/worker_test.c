/* worker_test.c - a worker as a whole: its poller's sleep, its beat, when it is out of work, and
 * how it ends. On memory and on SQLite.
 *
 * Method: as router_test.c. Targets are leased by the test itself, so lanes do not run.
 */
#include "engine/worker_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <stdio.h>

static kit_process a, b;

#define MS INT64_C(1000)
#define S  INT64_C(1000000)

static int64_t store_now(weir_store *s)
{
    int64_t now_us = 0;

    assert_int_equal(s->about->now(s, &now_us, NULL), WEIR_OK);
    return now_us;
}

/* Leases the one target that is ready, as another process would. */
static store_leased lease(weir_store *s, int64_t lease_us)
{
    const store_lease_request r = { .lane = weir__str("default"),
                                    .holder = weir__str("other"),
                                    .lease_us = lease_us,
                                    .limit = 1,
                                    .all_reactions = true };
    store_lease_list list = { 0 };

    assert_int_equal(s->work->turn(s, NULL, 0, &r, &list, NULL), WEIR_OK);
    assert_int_equal(list.leases_count, 1);
    const store_leased leased = list.leases[0];
    weir__arena_free(&list.arena);
    return leased; /* numbers only */
}

static weir_status defer(weir_store *s, const store_leased *leased, int64_t until_us)
{
    store_settle settle = { .target = leased->target,
                            .fence = leased->fence,
                            .end = STORE_END_DEFER,
                            .until_us = until_us };
    return s->work->settle(s, &settle, NULL);
}

/* A worker with one reaction, and one event of it that was routed. */
static weir_store *start_with_work(bool sqlite, const worker_options *options)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, options);
    (void)kit_append(s, "order-1", "Placed", "{}");
    (void)kit_route(&a);
    return s;
}

/* ---- sleeping ----------------------------------------------------------------------------- */

static void a_poll_wakes_who_has_work(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    worker *w;

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    w = a.worker;
    (void)kit_route(&a);
    (void)kit_poll(&a);
    kit_forget(&a);
    kit_mono_us += 10 * S;
    (void)kit_poll(&a);
    assert_false(kit_woken(&a, &w->router.task));
    assert_false(kit_woken(&a, &w->lanes[0].leasing));

    (void)kit_append(s, "order-1", "Placed", "{}"); /* and the wake-up is lost */
    kit_mono_us += 10 * S;
    (void)kit_poll(&a);
    assert_true(kit_woken(&a, &w->router.task));
    assert_false(kit_woken(&a, &w->lanes[0].leasing));
    (void)kit_route(&a);
    kit_forget(&a);
    kit_mono_us += 10 * S;
    (void)kit_poll(&a);
    assert_true(kit_woken(&a, &w->lanes[0].leasing));
    assert_false(kit_woken(&a, &w->router.task));
    kit_stop(&a);
    kit_close(s);
}

static void it_sleeps_until_something_is_due(bool sqlite)
{
    weir_store *s = start_with_work(sqlite, NULL);
    const store_leased leased = lease(s, 5 * S);

    assert_int_equal(defer(s, &leased, store_now(s) + 300 * MS), WEIR_OK);
    kit_forget(&a);
    const int64_t due_us = kit_mono_us + 300 * MS;
    assert_int_equal(kit_poll(&a), due_us);
    assert_false(kit_woken(&a, &a.worker->lanes[0].leasing));
    kit_mono_us = due_us;
    const int64_t next_us = kit_poll(&a);
    assert_true(kit_woken(&a, &a.worker->lanes[0].leasing));
    assert_in_range(next_us - kit_mono_us, 800 * MS, 1 * S);
    kit_stop(&a);
    kit_close(s);
}

static void it_sleeps_until_a_lease_ends(bool sqlite)
{
    weir_store *s = start_with_work(sqlite, NULL);

    (void)lease(s, 700 * MS);
    kit_forget(&a);
    const int64_t end_us = kit_mono_us + 700 * MS;
    assert_int_equal(kit_poll(&a), end_us);
    kit_mono_us = end_us;
    (void)kit_poll(&a);
    assert_true(kit_woken(&a, &a.worker->lanes[0].leasing));
    kit_stop(&a);
    kit_close(s);
}

static void a_target_that_this_worker_deferred_is_not_forgotten(bool sqlite)
{
    weir_store *s = start_with_work(sqlite, NULL);
    const store_leased leased = lease(s, 5 * S);

    (void)kit_poll(&a);
    kit_forget(&a);
    assert_int_equal(defer(s, &leased, store_now(s) + 200 * MS), WEIR_OK);
    weir__worker_due(a.worker, store_now(s) + 400 * MS);
    weir__worker_due(a.worker, store_now(s) + 200 * MS);
    weir__worker_due(a.worker, store_now(s) + 300 * MS);
    assert_true(kit_woken(&a, &a.worker->poller.task));
    assert_int_equal(kit_poll(&a), kit_mono_us + 200 * MS);
    kit_mono_us += 200 * MS;
    (void)kit_poll(&a);
    assert_true(kit_woken(&a, &a.worker->lanes[0].leasing));
    kit_stop(&a);
    kit_close(s);
}

static void it_backs_off_while_nothing_can_happen_by_itself(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    int64_t slept_us = 0;

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_run(&a, 20 * S);
    for (int i = 0; i < 10; i++) {
        (void)kit_poll(&a);
        const int64_t next_us = a.worker->poller.poll_us;
        slept_us = next_us - kit_mono_us;
        assert_in_range(slept_us, 1, 5 * S);
        kit_mono_us = next_us;
    }
    assert_in_range(slept_us, 4 * S, 5 * S);

    /* Something happens: at most a cycle from now on. */
    (void)kit_poll(&a);
    kit_mono_us += 2 * S;
    weir__worker_wake(a.worker);
    const uint64_t polls = weir__fault_calls(s, FAULT_POLL);
    (void)kit_poll(&a);
    assert_int_equal(weir__fault_calls(s, FAULT_POLL), polls + 1);
    weir__worker_wake(a.worker); /* but not one for each */
    (void)kit_poll(&a);
    assert_int_equal(weir__fault_calls(s, FAULT_POLL), polls + 1);
    assert_in_range(a.worker->poller.poll_us - kit_mono_us, 1, 1 * S);
    kit_stop(&a);
    kit_close(s);
}

static void it_does_not_back_off_while_another_works(bool sqlite)
{
    weir_store *s = start_with_work(sqlite, NULL);

    kit_reaction(&b, "constant", "Placed", "all");
    kit_start(&b, s, NULL);
    for (int i = 0; i < 10; i++) {
        (void)kit_append(s, "order-1", "Placed", "{}");
        weir__worker_wake(a.worker);
        (void)kit_route(&a);
        (void)kit_poll(&b);
        assert_in_range(b.worker->poller.poll_us - kit_mono_us, 1, 1 * S);
        kit_mono_us = b.worker->poller.poll_us;
    }
    kit_stop(&b);
    kit_stop(&a);
    kit_close(s);
}

static void an_idle_worker_makes_few_calls(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_run(&a, 1 * S);
    for (int second = 0; second < 30; second += 5) {
        const uint64_t calls = weir__fault_calls(s, FAULT_ANY);
        kit_run(&a, 5 * S);
        assert_in_range(weir__fault_calls(s, FAULT_ANY) - calls, 1, 10);
    }
    const uint64_t calls = weir__fault_calls(s, FAULT_ANY);
    kit_run(&a, 60 * S);
    assert_in_range(weir__fault_calls(s, FAULT_ANY) - calls, 18, 30); /* 12 are beats */
    kit_stop(&a);
    kit_close(s);
}

/* ---- lanes -------------------------------------------------------------------------------- */

static void some_lanes_only_are_asked_for_one_by_one(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    const weir_str wanted[] = { weir__str("mail"), weir__str("slow") };
    static const char *const lanes[] = { "mail", "other", "slow" };
    const worker_options options = { .lanes = wanted, .lanes_count = 2 };

    for (size_t i = 0; i < 3; i++) {
        const weir_lane l = { .size = sizeof l, .name = weir__str(lanes[i]) };
        const weir_str on[] = { weir__str(lanes[i]) };
        const weir_reaction d = { .size = sizeof d,
                                  .name = weir__str(lanes[i]),
                                  .on = on,
                                  .on_count = 1,
                                  .to = weir__str(lanes[i]),
                                  .lane = weir__str(lanes[i]),
                                  .from = WEIR_FROM_START };
        assert_int_equal(weir__registry_lane(&a.reactions, &l, NULL), WEIR_OK);
        kit_declare(&a, &d);
    }
    kit_start(&a, s, &options);
    worker *w = a.worker;
    assert_int_equal(w->lanes_count, 2);
    (void)kit_append(s, "order-1", "other", "{}");
    (void)kit_route(&a); /* routes for all: somebody runs that lane */
    assert_int_equal(kit_mark(s, "other", "other"), 1);
    kit_forget(&a);
    const uint64_t polls = weir__fault_calls(s, FAULT_POLL);
    (void)kit_poll(&a);
    assert_int_equal(weir__fault_calls(s, FAULT_POLL), polls + 2);
    assert_int_equal(a.woken_count, 0);
    assert_true(weir__worker_out_of_work(w));

    /* Asked in the middle of a cycle: what was answered before does not count. */
    weir__worker_ask(w);
    (void)w->poller.task.step(&w->poller.task);
    weir__worker_ask(w);
    (void)w->poller.task.step(&w->poller.task);
    assert_false(weir__worker_out_of_work(w));
    (void)kit_poll(&a);
    assert_true(weir__worker_out_of_work(w));

    kit_mono_us += 10 * MS;
    (void)kit_append(s, "order-1", "slow", "{}");
    (void)kit_route(&a);
    kit_forget(&a);
    kit_mono_us += 5 * S;
    (void)kit_poll(&a);
    assert_true(kit_woken(&a, &w->lanes[1].leasing));
    assert_false(kit_woken(&a, &w->lanes[0].leasing));
    assert_false(weir__worker_out_of_work(w));

    /* Ready in the first lane only. */
    store_operate op = { .verb = STORE_PAUSE, .by = weir__str("test") };
    assert_int_equal(s->work->operate(s, &op, NULL), WEIR_OK);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_true(weir__worker_out_of_work(w));
    (void)kit_append(s, "order-1", "mail", "{}");
    kit_mono_us += 10 * MS;
    weir__worker_wake(w);
    (void)kit_route(&a);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_false(weir__worker_out_of_work(w));
    kit_stop(&a);
    kit_close(s);
}

static void a_lane_that_was_not_declared_cannot_be_run(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    const weir_str wanted[] = { weir__str("nowhere") };
    const worker_options options = { .lanes = wanted, .lanes_count = 1 };
    worker *w = NULL;
    weir_error err;

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    assert_int_equal(weir__worker_open(&w, s, &a.reactions, &options, &a.scheduler, &err),
                     WEIR_EINVAL);
    assert_string_equal(err.message, "no lane \"nowhere\" was declared");
    kit_stop(&a);
    kit_close(s);
}

/* ---- out of work -------------------------------------------------------------------------- */

static void out_of_work_is_what_a_poll_after_the_question_says(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    worker *w = a.worker;
    assert_false(weir__worker_out_of_work(w));
    (void)kit_route(&a);
    (void)kit_poll(&a);
    assert_true(weir__worker_out_of_work(w));

    /* Appended, then asked: the poll before it does not count. */
    (void)kit_append(s, "order-1", "Placed", "{}");
    weir__worker_ask(w);
    assert_false(weir__worker_out_of_work(w));
    (void)kit_poll(&a);
    assert_false(weir__worker_out_of_work(w)); /* not routed */
    kit_mono_us += 10 * MS;
    (void)kit_route(&a);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_false(weir__worker_out_of_work(w)); /* ready */
    const store_leased leased = lease(s, 5 * S);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_false(weir__worker_out_of_work(w)); /* leased */
    assert_int_equal(defer(s, &leased, store_now(s) + S), WEIR_OK);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_false(weir__worker_out_of_work(w)); /* due */
    kit_mono_us += 2 * S;
    const store_leased again = lease(s, 5 * S);
    const store_advance to = { .reaction = a.reactions.reactions[0].known.id, .to = 1 };
    store_settle settle = {
        .target = again.target, .fence = again.fence, .advances = &to, .advances_count = 1
    };
    assert_int_equal(s->work->settle(s, &settle, NULL), WEIR_OK);
    weir__worker_ask(w);
    (void)kit_poll(&a);
    assert_true(weir__worker_out_of_work(w));
    kit_stop(&a);
    kit_close(s);
}

/* ---- being known, ending ------------------------------------------------------------------ */

/* How many workers the store lists that have not ended; the last of them is copied: numbers. */
static size_t living(weir_store *s, store_worker *out)
{
    store_worker_list list = { 0 };
    const int64_t now_us = store_now(s);
    size_t count = 0;

    assert_int_equal(s->about->workers(s, &list, NULL), WEIR_OK);
    for (size_t i = 0; i < list.workers_count; i++) {
        if (list.workers[i].until_us > now_us) {
            *out = list.workers[i];
            count++;
        }
    }
    weir__arena_free(&list.arena);
    return count;
}

static void a_worker_is_known_while_it_lives(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    store_worker row = { 0 };
    const worker_options options = { .application = weir__str("shop") };

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, &options);
    assert_int_equal(strncmp(a.worker->name, "shop@", 5), 0);
    kit_run(&a, 1 * S);
    assert_int_equal(living(s, &row), 1);
    assert_int_equal(row.known_count, 1);
    assert_int_equal(row.lanes_count, 1);
    assert_false(row.draining);
    kit_run(&a, 120 * S);
    assert_int_equal(living(s, &row), 1);
    assert_in_range(weir__fault_calls(s, FAULT_WORKER_BEAT), 22, 26);
    weir__worker_drain(a.worker);
    (void)kit_poll(&a);
    assert_int_equal(living(s, &row), 1);
    assert_true(row.draining);
    kit_stop(&a);
    assert_int_equal(living(s, &row), 0);

    /* Killed: until its last beat has ended. */
    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, &options);
    kit_run(&a, 1 * S);
    kit_abandon(&a);
    assert_int_equal(living(s, &row), 1);
    kit_mono_us += 15 * S;
    assert_int_equal(living(s, &row), 0);
    kit_close(s);
}

/* Only a write finds out that a file was removed for good: a read waits for it. */
static void C41_polls_that_fail_do_not_keep_the_beat_back(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    const fault_plan away = { .verb = FAULT_POLL,
                              .action = FAULT_FAIL_BEFORE,
                              .nth = 1,
                              .count = 1000000,
                              .status = WEIR_EUNAVAILABLE };
    const fault_plan back = { 0 };

    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, NULL);
    kit_run(&a, 1000000);
    weir__fault_set(s, &away);
    const uint64_t beats = weir__fault_calls(s, FAULT_WORKER_BEAT);
    kit_run(&a, 60000000);
    assert_true(weir__fault_calls(s, FAULT_WORKER_BEAT) - beats >= 5);
    weir__fault_set(s, &back);
    kit_stop(&a);
    kit_close(s);
}

static void names_of_workers_differ_and_fit(bool sqlite)
{
    weir_store *s = kit_open(sqlite);
    char long_name[400];
    const worker_options options = { .application = { long_name, sizeof long_name } };

    memset(long_name, 'x', sizeof long_name);
    kit_reaction(&a, "constant", "Placed", "all");
    kit_start(&a, s, &options);
    kit_reaction(&b, "constant", "Placed", "all");
    kit_start(&b, s, &options);
    assert_string_not_equal(a.worker->name, b.worker->name);
    assert_true(weir__worker_name(a.worker).len < 256);
    kit_run(&a, 1 * S);
    assert_int_equal(kit_logged(&a, "store_error"), 0);
    kit_stop(&a);
    kit_stop(&b);
    kit_close(s);
}

static void drained_it_is_idle_and_closing_gives_everything_back(bool sqlite)
{
    weir_store *s = start_with_work(sqlite, NULL);
    store_poll poll = { 0 };

    assert_false(weir__worker_idle(a.worker));
    weir__worker_drain(a.worker);
    assert_true(weir__worker_idle(a.worker));
    assert_int_equal(s->work->poll(s, &poll, NULL), WEIR_OK);
    assert_int_not_equal(poll.router_end_us, INT64_MAX);

    /* A slot that was given up while its handler ran. */
    const store_leased leased = lease(s, 5 * S);
    slot *busy = &a.worker->lanes[0].slots[0];
    weir__lock(&a.worker->mu);
    busy->state = SLOT_RUNNING;
    busy->target = leased.target;
    busy->fence = leased.fence;
    weir__unlock(&a.worker->mu);
    assert_false(weir__worker_idle(a.worker));
    kit_stop(&a);
    assert_int_equal(s->work->poll(s, &poll, NULL), WEIR_OK);
    assert_int_equal(poll.router_end_us, INT64_MAX);
    assert_true(poll.ready);
    kit_close(s);
}

/* A target of the first reaction has handled what was never routed. */
static void handle_beyond(weir_store *s, int64_t event)
{
    const store_reaction *known = &a.worker->registry->reactions[0].known;
    const store_route_step step = { .reaction = known->id, .number = known->number };
    const store_mark mark = {
        .target = weir__str("all"), .lane = weir__str("default"), .first = event, .last = event
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };

    assert_int_equal(s->work->route(s, &route, NULL, NULL), WEIR_OK);
    const store_leased leased = lease(s, 5 * S);
    const store_advance done = { .reaction = known->id, .to = event };
    store_settle settle = {
        .target = leased.target, .fence = leased.fence, .advances = &done, .advances_count = 1
    };
    assert_int_equal(s->work->settle(s, &settle, NULL), WEIR_OK);
}

/* As after a log that lost its end: events would be passed over. */
static void a_target_beyond_the_log_is_blocked_and_told(bool sqlite)
{
    weir_store *s = kit_open(sqlite);

    kit_reaction(&a, "constant", "Placed", "all");
    kit_reaction(&a, "sound", "Placed", "others");
    kit_start(&a, s, NULL);
    const int64_t id = kit_append(s, "order-1", "Placed", "{}");
    (void)kit_append(s, "order-1", "Placed", "{}");
    handle_beyond(s, id + 1);
    (void)kit_append(s, "order-1", "Placed", "{}"); /* the log has grown past it */
    (void)kit_route(&a);
    assert_int_equal(kit_logged(&a, "3 target_beyond_log target=all reaction=constant event="), 1);
    assert_int_equal(kit_count(&a, METRIC_BLOCKED), 1);
    assert_int_equal(kit_mark(s, "others", "sound"), id + 2);
    (void)kit_append(s, "order-1", "Placed", "{}");
    weir__worker_wake(a.worker);
    (void)kit_route(&a);
    assert_int_equal(kit_logged(&a, "target_beyond_log"), 1);
    assert_int_equal(kit_mark(s, "others", "sound"), id + 3);
    kit_stop(&a);
    kit_close(s);
}

int main(void)
{
    static const kit_test tests[] = {
        { "a poll wakes who has work", a_poll_wakes_who_has_work },
        { "it sleeps until something is due", it_sleeps_until_something_is_due },
        { "it sleeps until a lease ends", it_sleeps_until_a_lease_ends },
        { "a target that this worker deferred is not forgotten",
          a_target_that_this_worker_deferred_is_not_forgotten },
        { "it backs off while nothing can happen by itself",
          it_backs_off_while_nothing_can_happen_by_itself },
        { "it does not back off while another works", it_does_not_back_off_while_another_works },
        { "an idle worker makes few calls", an_idle_worker_makes_few_calls },
        { "some lanes only are asked for one by one", some_lanes_only_are_asked_for_one_by_one },
        { "a lane that was not declared cannot be run",
          a_lane_that_was_not_declared_cannot_be_run },
        { "out of work is what a poll after the question says",
          out_of_work_is_what_a_poll_after_the_question_says },
        { "a worker is known while it lives", a_worker_is_known_while_it_lives },
        { "C41_polls_that_fail_do_not_keep_the_beat_back",
          C41_polls_that_fail_do_not_keep_the_beat_back },
        { "names of workers differ and fit", names_of_workers_differ_and_fit },
        { "drained it is idle, and closing gives everything back",
          drained_it_is_idle_and_closing_gives_everything_back },
        { "C16 a target beyond the log is blocked and told",
          a_target_beyond_the_log_is_blocked_and_told },
    };
    return kit_main(tests, sizeof tests / sizeof tests[0]);
}
