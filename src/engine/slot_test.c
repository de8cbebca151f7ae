/* slot_test.c - what a slot makes of a batch: progress, failures and their policies, races, lost
 * leases and a store that fails. On memory and on SQLite.
 *
 * Method: a whole worker whose steps are called by the test, over a store that can be told to fail
 * (store/fault). Time moves only when the test or a handler moves it, so that everything that waits
 * is known to wait. Tests are named after the lines of the contract.
 */
#include "engine/slot_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <stdio.h>

static kit_process a;
static recorder one, two;

static weir_store *begin(void **state)
{
    weir_store *s = kit_open(*state != NULL);
    one = (recorder){ .store = s };
    two = (recorder){ .store = s };
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static void append(weir_store *s, const char *stream, size_t count)
{
    kit_append_many(s, stream, "Placed", count);
}

/* One reaction to all of one target, so many events, and so long to handle them. */
static void drive_one(weir_store *s, const weir_reaction *more, size_t events_count, int64_t us)
{
    kit_handler(&a, &one, "one", "all", more);
    kit_start(&a, s, NULL);
    append(s, "order-1", events_count);
    kit_drive(&a, us);
}

/* ---- progress ----------------------------------------------------------------------------- */

static void C25_a_batch_is_settled_at_its_mark(void **state)
{
    weir_store *s = begin(state);
    drive_one(s, NULL, 3, 1 * MS);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:3/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 3);
    assert_int_equal(kit_mark(s, "all", "one"), 3);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_int_equal(kit_count(&a, METRIC_HANDLED), 3);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    end(s);
}

static void C25_at_stays_at_the_last_event_while_more_are_left(void **state)
{
    weir_store *s = begin(state);
    const weir_lane narrow = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = 1,
                               .event_limit = 4 };
    kit_lane(&a, &narrow);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 10);
    (void)kit_append(s, "order-1", "Other", "{}");
    (void)kit_route(&a);
    worker *w = a.worker;
    (void)kit_steps(&w->lanes[0].leasing);
    /* The first batch and its settle. */
    (void)kit_steps(&w->lanes[0].slots[0].task);
    (void)w->lanes[0].leasing.step(&w->lanes[0].leasing);
    assert_int_equal(one.calls, 4);
    assert_int_equal(kit_at(s, "all", "one"), 4);
    kit_drive(&a, 1 * MS);
    assert_int_equal(one.calls, 10);
    assert_int_equal(kit_at(s, "all", "one"), 10);
    end(s);
}

static void a_reaction_that_finds_nothing_up_to_its_mark_is_settled_there(void **state)
{
    weir_store *s = begin(state);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    (void)kit_append(s, "order-1", "Other", "{}");
    (void)kit_route(&a);
    /* Somebody marks an event that the reaction does not listen to. */
    const store_reaction *q = &a.reactions.reactions[0].known;
    const store_route_step step = {
        .reaction = q->id, .number = 1, .from = kit_routed(s, "one"), .to = kit_routed(s, "one")
    };
    const store_mark mark = { .target = weir__str("all"),
                              .lane = weir__str("default"),
                              .source = weir__str("order-1"),
                              .first = 2,
                              .last = 2 };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    assert_int_equal(s->work->route(s, &route, NULL, NULL), WEIR_OK);
    kit_drive(&a, 1 * MS);
    assert_int_equal(one.calls, 1);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_false(kit_target_of(s, "all").behind);
    end(s);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void C27_a_failure_costs_one_retry_and_waits_for_its_backoff(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .backoff = WEIR_BACKOFF_FIXED,
                                 .backoff_base_us = 10 * S,
                                 .backoff_cap_us = 10 * S };
    int64_t now_us = 0;
    one.fail_event = 1;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    one.why = "not today";
    drive_one(s, &more, 2, 1);
    assert_string_equal(one.seen, "one:1/1 ");
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(t.state, STORE_TARGET_DEFERRED);
    assert_string_equal(t.error, "not today");
    assert_string_equal(t.reaction, "one");
    assert_int_equal(t.event, 1);
    assert_int_equal(t.attempts, 1);
    assert_int_equal(kit_retries(s, "all", "one"), 1);
    assert_int_equal(s->about->now(s, &now_us, NULL), WEIR_OK);
    assert_in_range(t.due_us, now_us, now_us + 10 * S);
    /* Not before it is due, and then without anybody's help. */
    kit_drive(&a, t.due_us - now_us - 1);
    assert_int_equal(one.calls, 1);
    kit_drive(&a, 2 * S);
    assert_string_equal(one.seen, "one:1/1 one:1/2 one:2/1 ");
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    assert_string_equal(kit_target_of(s, "all").error, "");
    end(s);
}

static void C27_block_after_the_budget(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = 2 };
    one.fail_event = 2;
    one.outcome = WEIR_RETRY;
    one.why = "poison";
    drive_one(s, &more, 3, 60 * S);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:2/2 one:2/3 ");
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(t.state, STORE_TARGET_BLOCKED);
    assert_string_equal(t.error, "poison");
    assert_int_equal(t.event, 2);
    assert_int_equal(t.attempts, 3);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    assert_int_equal(kit_count(&a, METRIC_BLOCKED), 1);
    assert_int_equal(kit_logged(&a, "3 blocked target=all reaction=one event=2 attempt=3"), 1);
    end(s);
}

static void C27_park_after_the_budget(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = 1, .poison = WEIR_POISON_PARK };
    char text[200];
    one.fail_event = 2;
    one.outcome = WEIR_RETRY;
    one.why = "poison";
    drive_one(s, &more, 3, 60 * S);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:2/2 one:3/1 ");
    (void)kit_parked_id(s, text, sizeof text);
    assert_string_equal(text, "2/2 poison");
    assert_int_equal(kit_at(s, "all", "one"), 3);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_int_equal(kit_count(&a, METRIC_PARKED), 1);
    end(s);
}

static void C27_retry_for_ever(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = -1,
                                 .poison = WEIR_POISON_RETRY,
                                 .backoff_base_us = 100 * MS,
                                 .backoff_cap_us = 1 * S };
    one.fail_event = 1;
    one.fail_times = 20;
    one.outcome = WEIR_RETRY;
    drive_one(s, &more, 1, 60 * S);
    assert_int_equal(one.calls, 21);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

static void C27_a_permanent_error_skips_the_retries(void **state)
{
    weir_store *s = begin(state);
    one.fail_event = 1;
    one.outcome = WEIR_PERMANENT;
    one.why = "never";
    drive_one(s, NULL, 1, 60 * S);
    assert_int_equal(one.calls, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_BLOCKED);
    assert_int_equal(kit_target_of(s, "all").attempts, 1);
    end(s);
}

static void C28_progress_before_a_failure_is_kept(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = 1 };
    one.fail_event = 3;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    one.effect = "effect";
    drive_one(s, &more, 4, 1);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_version(s, "effect"), 1); /* of the two that succeeded */
    assert_int_equal(kit_retries(s, "all", "one"), 1);
    kit_drive(&a, 10 * S);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:3/1 one:3/2 one:4/1 ");
    assert_int_equal(kit_version(s, "effect"), 3);
    end(s);
}

static void the_count_of_attempts_begins_again_behind_a_success(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = 1, .backoff_base_us = 1 * MS };
    one.fail_event = 1;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    drive_one(s, &more, 2, 1);
    one.fail_event = 2; /* fails for the first time, in the batch in which 1 has its second */
    one.fail_times = 1;
    kit_drive(&a, 10 * S);
    assert_string_equal(one.seen, "one:1/1 one:1/2 one:2/1 one:2/2 ");
    assert_int_equal(kit_at(s, "all", "one"), 2);
    end(s);
}

static void C27_what_a_handler_defers_costs_nothing(void **state)
{
    weir_store *s = begin(state);
    int64_t now_us = 0;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    assert_int_equal(s->about->now(s, &now_us, NULL), WEIR_OK);
    one.fail_event = 2;
    one.fail_times = 6; /* more than there are retries */
    one.outcome = WEIR_DEFER;
    one.defer_us = now_us + 3 * S;
    append(s, "order-1", 2);
    kit_drive(&a, 1);
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(t.state, STORE_TARGET_DEFERRED);
    assert_int_equal(t.due_us, now_us + 3 * S);
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    for (int i = 0; i < 6; i++) {
        one.defer_us = now_us + (i + 2) * 3 * S;
        kit_drive(&a, 4 * S);
    }
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(one.calls, 8);
    assert_null(strstr(one.seen, "/2"));
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    end(s);
}

static void an_error_is_cut_and_made_valid(void **state)
{
    weir_store *s = begin(state);
    char why[1200];
    memset(why, 'e', sizeof why - 1);
    why[sizeof why - 1] = '\0';
    memcpy(why, "a\xff\xc3\xa4", 4);
    memcpy(why + 999, "\xc3\xa4", 2); /* does not fit as a whole */
    one.fail_event = 1;
    one.outcome = WEIR_PERMANENT;
    one.why = why;
    drive_one(s, NULL, 1, 1);
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(strlen(t.error), 999);
    assert_memory_equal(t.error,
                        "a?\xc3\xa4"
                        "eee",
                        7);
    end(s);
}

/* ---- two reactions on one target ------------------------------------------------------------ */

static void C19_two_reactions_on_one_target_run_in_the_order_of_events(void **state)
{
    weir_store *s = begin(state);
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &one, "two", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 2);
    kit_drive(&a, 1);
    assert_string_equal(one.seen, "one:1/1 two:1/1 one:2/1 two:2/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_at(s, "all", "two"), 2);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    end(s);
}

static void C28_a_failure_ends_the_part_of_its_reaction_only(void **state)
{
    weir_store *s = begin(state);
    one.fail_event = 2;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    one.why = "one failed";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &two, "two", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 3);
    kit_drive(&a, 1);
    assert_string_equal(one.seen, "one:1/1 one:2/1 ");
    assert_string_equal(two.seen, "two:1/1 two:2/1 two:3/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 1);
    assert_int_equal(kit_at(s, "all", "two"), 3);
    assert_string_equal(kit_target_of(s, "all").error, "one failed");
    assert_int_equal(kit_retries(s, "all", "two"), 0);
    kit_drive(&a, 10 * S);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:2/2 one:3/1 ");
    assert_int_equal(two.calls, 3);
    end(s);
}

static void C27_two_reactions_that_fail_in_one_batch_both_pay(void **state)
{
    weir_store *s = begin(state);
    one.fail_event = 1;
    one.outcome = WEIR_RETRY;
    one.why = "one failed";
    two = one;
    two.why = "two failed";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &two, "two", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    assert_int_equal(kit_retries(s, "all", "one"), 1);
    assert_int_equal(kit_retries(s, "all", "two"), 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_DEFERRED);
    assert_string_equal(kit_target_of(s, "all").error, "two failed");
    kit_drive(&a, 60 * S);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_BLOCKED);
    assert_int_equal(one.calls, 4);
    assert_int_equal(kit_target_of(s, "all").event, 1);
    end(s);
}

static void C44_reactions_that_share_a_target_share_its_backoff_and_its_block(void **state)
{
    weir_store *s = begin(state);
    const weir_str moved[] = { weir__str("Moved") };
    const weir_reaction more = { .on = moved, .on_count = 1 };
    const weir_str names[] = { weir__str("all") };
    store_operate unblock = { .verb = STORE_UNBLOCK,
                              .filter = { .names = names, .names_count = 1 } };
    one.fail_event = 1;
    one.outcome = WEIR_RETRY;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &two, "two", "all", &more);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_DEFERRED);
    (void)kit_append(s, "order-1", "Moved", "{}");
    kit_drive(&a, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_DEFERRED);
    assert_int_equal(two.calls, 0);
    kit_drive(&a, 60 * S);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_BLOCKED);
    assert_int_equal(two.calls, 1); /* when the backoff had ended, in the same batch as the other */
    (void)kit_append(s, "order-1", "Moved", "{}");
    kit_drive(&a, 60 * S);
    assert_int_equal(two.calls, 1);
    one.fail_event = 0;
    assert_int_equal(s->work->operate(s, &unblock, NULL), WEIR_OK);
    kit_drive(&a, 10 * S);
    assert_int_equal(two.calls, 2);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

/* ---- effects and races ---------------------------------------------------------------------- */

static void C33_effects_have_the_events_correlation_and_its_id_as_causation(void **state)
{
    weir_store *s = begin(state);
    store_chunk chunk = { 0 };
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    store_append_stream streams[] = { { .name = weir__str("order-1") } };
    const store_new_event event = { .name = weir__str("Placed"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{\"correlation\":\"c \\u00e4\"}") };
    store_append placed = {
        .streams = streams, .streams_count = 1, .events = &event, .events_count = 1
    };
    store_append *const list[] = { &placed };
    assert_int_equal(s->log->append(s, list, 1, NULL), WEIR_OK);
    kit_drive(&a, 1);
    const store_stream_query q = {
        .stream = weir__str("effect"), .to = 10, .limit = 10, .until_us = INT64_MAX
    };
    assert_int_equal(s->log->read_stream(s, &q, &chunk, NULL), WEIR_OK);
    assert_int_equal(chunk.events_count, 1);
    assert_true(weir__str_equal(chunk.events[0].meta,
                                weir__str("{\"correlation\":\"c \xc3\xa4\",\"causation\":1}")));
    weir__chunk_free(&chunk);
    end(s);
}

/* Somebody else appends to the stream after the handler has looked. */
static void beaten(recorder *r, weir_delivery *d)
{
    size_t *times = r->ctx;
    (void)d;
    if (*times > 0) {
        (*times)--;
        (void)kit_append(r->store, r->effect, "Other", "{}");
    }
}

static void C34_who_loses_a_race_is_run_again_from_fresh_state(void **state)
{
    weir_store *s = begin(state);
    size_t times = 1;
    one.effect = "effect";
    one.fresh = true;
    one.during = beaten;
    one.ctx = &times;
    drive_one(s, NULL, 1, 60 * MS);
    assert_string_equal(one.seen, "one:1/1 one:1/1 "); /* the same attempt */
    assert_int_equal(kit_version(s, "effect"), 1);     /* theirs, then ours */
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    assert_int_equal(kit_count(&a, METRIC_RERUN), 1);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

static void C34_three_times_more_then_it_counts_as_one_failure(void **state)
{
    weir_store *s = begin(state);
    size_t times = 4;
    one.effect = "effect";
    one.fresh = true;
    one.during = beaten;
    one.ctx = &times;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    while (times > 0) {
        kit_drive(&a, 1 * MS);
    }
    assert_int_equal(one.calls, 4);
    assert_string_equal(one.seen, "one:1/1 one:1/1 one:1/1 one:1/1 ");
    kit_drive(&a, 1 * MS);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 1);
    kit_drive(&a, 10 * S);
    assert_int_equal(one.calls, 5);
    assert_non_null(strstr(one.seen, "one:1/2"));
    assert_int_equal(kit_version(s, "effect"), 4);
    end(s);
}

static void C34_a_batch_that_loses_a_race_is_run_again_one_by_one(void **state)
{
    weir_store *s = begin(state);
    one.effect = "effect";
    one.expect = WEIR_EXPECT_NONE; /* the second of them can never be written */
    drive_one(s, NULL, 2, 60 * S);
    assert_int_equal(kit_version(s, "effect"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1); /* the first one is not held back by it */
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(t.state, STORE_TARGET_BLOCKED);
    assert_int_equal(t.event, 2);
    assert_int_equal(t.attempts, 4);
    assert_non_null(strstr(t.error, "conflict on \"effect\""));
    assert_int_equal(one.calls, 2 + 1 + 4 * 4); /* together; the first alone; the second */
    end(s);
}

static void C34_the_failure_of_another_reaction_is_not_lost_in_a_race(void **state)
{
    weir_store *s = begin(state);
    size_t times = 1;
    one.fail_event = 1;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    two.effect = "effect";
    two.fresh = true;
    two.during = beaten;
    two.ctx = &times;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_handler(&a, &two, "two", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    kit_drive(&a, 60 * S);
    assert_string_equal(one.seen, "one:1/1 one:1/2 ");
    assert_string_equal(two.seen, "two:1/1 two:1/1 ");
    assert_int_equal(kit_version(s, "effect"), 1);
    end(s);
}

/* ---- lost leases and a store that fails ------------------------------------------------------ */

static void taken_away(recorder *r, weir_delivery *d)
{
    size_t *times = r->ctx;
    if (*times > 0 && d->event->id == 2) {
        (*times)--;
        /* A reset of a subscription that stands at 0 changes nothing, so it is moved first. */
        kit_take_away(r->store, "all", 0);
    }
}

static void C24_who_lost_the_lease_writes_nothing_and_pays_nothing(void **state)
{
    weir_store *s = begin(state);
    size_t times = 1;
    drive_one(s, NULL, 1, 1);
    one.during = taken_away;
    one.ctx = &times;
    one.effect = "effect";
    append(s, "order-1", 1);
    kit_drive(&a, 10 * S);
    /* The reset has made the first event new again. */
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:1/1 one:2/1 ");
    assert_int_equal(kit_version(s, "effect"), 1);
    assert_int_equal(kit_count(&a, METRIC_LOST), 1);
    assert_int_equal(kit_logged(&a, "2 lost target=all"), 1);
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    assert_int_equal(kit_target_of(s, "all").lost, 0);
    end(s);
}

static void settle_fails(void **state, fault_action action, weir_status status, uint64_t count)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = action, .nth = 1, .count = count, .status = status
    };
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, "order-1", 2);
    weir__fault_set(s, &plan);
    kit_drive(&a, 60 * S);
    assert_int_equal(weir__fault_hits(s), count);
    assert_int_equal(kit_version(s, "effect"), 1); /* each effect once */
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_int_equal(kit_target_of(s, "all").lost, 0);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
    assert_null(strstr(one.seen, "/2"));
    end(s);
}

static void C41_a_settle_that_did_not_happen_is_tried_again(void **state)
{
    static const weir_status codes[] = { WEIR_EUNAVAILABLE, WEIR_EBUSY, WEIR_EIO };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        settle_fails(state, FAULT_FAIL_BEFORE, codes[i], 4);
        assert_int_equal(one.calls, 2); /* the handler is not run again for that */
    }
}

static void an_unknown_outcome_that_did_not_happen_is_handled_again(void **state)
{
    settle_fails(state, FAULT_FAIL_BEFORE, WEIR_EUNKNOWN, 1);
    assert_int_equal(one.calls, 4);
}

static void an_unknown_outcome_that_happened_is_not_handled_again(void **state)
{
    settle_fails(state, FAULT_FAIL_AFTER, WEIR_EUNKNOWN, 1);
    assert_int_equal(one.calls, 2);
}

static void C41_every_call_may_fail_and_all_is_handled_once_it_stops(void **state)
{
    static const fault_verb verbs[] = { FAULT_LEASE,   FAULT_FETCH,  FAULT_NOW,
                                        FAULT_RELEASE, FAULT_EXTEND, FAULT_SETTLE };
    static const weir_status codes[] = { WEIR_EBUSY, WEIR_EUNAVAILABLE, WEIR_EIO, WEIR_EUNKNOWN };
    static const fault_action actions[] = { FAULT_FAIL_BEFORE, FAULT_FAIL_AFTER };

    for (size_t i = 0; i < 6 * 4 * 2; i++) {
        weir_store *s = begin(state);
        const weir_lane narrow = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = 1,
                                   .event_limit = 2 };
        const fault_plan plan = { .verb = verbs[i % 6],
                                  .action = actions[i / 24],
                                  .nth = 1,
                                  .count = 3,
                                  .status = codes[i / 6 % 4] };
        one.effect = "effect";
        one.fail_event = 3;
        one.fail_times = 1;
        one.outcome = WEIR_RETRY;
        /* Only an unknown outcome may be reported of what has happened. */
        const bool possible = plan.action == FAULT_FAIL_BEFORE || plan.status == WEIR_EUNKNOWN;
        if (possible) {
            kit_lane(&a, &narrow);
            kit_handler(&a, &one, "one", "all", NULL);
            kit_start(&a, s, NULL);
            append(s, "order-1", 7);
            weir__fault_set(s, &plan);
            kit_drive(&a, 120 * S);
            assert_int_equal(kit_version(s, "effect"), 6);
            assert_int_equal(kit_at(s, "all", "one"), 7);
            kit_check(s);
            kit_stop(&a);
        }
        kit_close(s);
    }
}

/* A full disk, for one. With no retries, so that a charge would block. */
static void C41_a_store_that_fails_every_settle_is_nobodys_failure(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction none = { .retries = -1 };
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = FAULT_FAIL_BEFORE, .nth = 1, .count = 30, .status = WEIR_EIO
    };
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", &none);
    kit_start(&a, s, NULL);
    append(s, "order-1", 1);
    weir__fault_set(s, &plan);
    kit_drive(&a, 600 * S);
    assert_int_equal(weir__fault_hits(s), 30);
    assert_string_equal(one.seen, "one:1/1 ");
    assert_int_equal(kit_version(s, "effect"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

/* ---- parked events that were sent back ------------------------------------------------------- */

static int64_t park_the_first(weir_store *s)
{
    const weir_reaction more = { .retries = -1, .poison = WEIR_POISON_PARK };
    char text[100];
    one.fail_event = 1;
    one.outcome = WEIR_RETRY;
    one.why = "first";
    drive_one(s, &more, 2, 1);
    assert_string_equal(one.seen, "one:1/1 one:2/1 ");
    one.seen[0] = '\0';
    const int64_t id = kit_parked_id(s, text, sizeof text);
    assert_string_equal(text, "1/1 first");
    return id;
}

static void what_was_sent_back_is_handled_first_and_removed(void **state)
{
    weir_store *s = begin(state);
    const int64_t id = park_the_first(s);
    one.fail_event = 0;
    append(s, "order-1", 1);
    (void)kit_route(&a);
    assert_int_equal(s->work->parked_change(s, id, STORE_PARKED_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 2 * S);
    assert_string_equal(one.seen, "one:1/2 one:3/1 ");
    assert_int_equal(kit_parked(s, "one"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 3);
    end(s);
}

/* A log from which event 1 was removed, as an owner of the database can. */
static const store_log_ops *whole;
static store_log_ops without_the_first;
static size_t gone_reads;

static weir_status read_without_the_first(weir_store *s, const store_log_query *q,
                                          store_chunk *chunk, weir_error *err)
{
    store_log_query other = *q;
    if (q->after == 0 && q->to == 1) {
        gone_reads++;
        other.to = 0;
    }
    return whole->read_log(s, &other, chunk, err);
}

/* What is parked, and whose event can no longer be read. */
static int64_t park_the_first_and_lose_it(weir_store *s)
{
    const int64_t id = park_the_first(s);
    whole = s->log;
    without_the_first = *whole;
    without_the_first.read_log = read_without_the_first;
    s->log = &without_the_first;
    gone_reads = 0;
    return id;
}

static void end_after_one_look(weir_store *s)
{
    assert_int_equal(kit_parked(s, "one"), 0);
    assert_int_equal(gone_reads, 1);
    s->log = whole;
    end(s);
}

static void what_was_sent_back_and_is_gone_is_done(void **state)
{
    weir_store *s = begin(state);
    const int64_t id = park_the_first_and_lose_it(s);
    append(s, "order-1", 1);
    (void)kit_route(&a);
    assert_int_equal(s->work->parked_change(s, id, STORE_PARKED_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 2 * S);
    assert_string_equal(one.seen, "one:3/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 3);
    assert_int_equal(
        kit_logged(&a, "2 event_gone target=all reaction=one event=1 error=\"sent back"), 1);
    end_after_one_look(s);
}

/* The same where nothing else is to be done for the target. */
static void a_target_with_nothing_but_an_event_that_is_gone_is_idle(void **state)
{
    weir_store *s = begin(state);
    const int64_t id = park_the_first_and_lose_it(s);
    assert_int_equal(s->work->parked_change(s, id, STORE_PARKED_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 2 * S);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    end_after_one_look(s);
}

static void what_was_sent_back_and_fails_is_parked_again(void **state)
{
    weir_store *s = begin(state);
    const int64_t id = park_the_first(s);
    char text[100];
    one.why = "again";
    assert_int_equal(s->work->parked_change(s, id, STORE_PARKED_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 2 * S);
    assert_string_equal(one.seen, "one:1/2 ");
    assert_int_equal(kit_parked_id(s, text, sizeof text), id);
    assert_string_equal(text, "1/2 again");
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_int_equal(kit_retries(s, "all", "one"), 0);
    end(s);
}

static void what_was_sent_back_blocks_nothing(void **state)
{
    weir_store *s = begin(state);
    const weir_str names[] = { weir__str("all") };
    store_operate skip = { .verb = STORE_SKIP,
                           .filter = { .names = names, .names_count = 1 },
                           .by = weir__str("test") };
    char text[100];
    one.fail_event = 1;
    one.outcome = WEIR_PERMANENT;
    one.why = "never";
    kit_handler(&a, &one, "one", "all", NULL); /* whose policy is to block */
    kit_start(&a, s, NULL);
    append(s, "order-1", 2);
    kit_drive(&a, 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_BLOCKED);
    assert_int_equal(s->work->operate(s, &skip, NULL), WEIR_OK);
    assert_int_equal(
        s->work->parked_change(s, kit_parked_id(s, text, sizeof text), STORE_PARKED_RETRY, NULL),
        WEIR_OK);
    kit_drive(&a, 2 * S);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_IDLE);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    (void)kit_parked_id(s, text, sizeof text);
    assert_string_equal(text, "1/2 never");
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(C25_a_batch_is_settled_at_its_mark),
        TEST(C25_at_stays_at_the_last_event_while_more_are_left),
        TEST(a_reaction_that_finds_nothing_up_to_its_mark_is_settled_there),
        TEST(C27_a_failure_costs_one_retry_and_waits_for_its_backoff),
        TEST(C27_block_after_the_budget),
        TEST(C27_park_after_the_budget),
        TEST(C27_retry_for_ever),
        TEST(C27_a_permanent_error_skips_the_retries),
        TEST(C28_progress_before_a_failure_is_kept),
        TEST(the_count_of_attempts_begins_again_behind_a_success),
        TEST(C27_what_a_handler_defers_costs_nothing),
        TEST(an_error_is_cut_and_made_valid),
        TEST(C19_two_reactions_on_one_target_run_in_the_order_of_events),
        TEST(C28_a_failure_ends_the_part_of_its_reaction_only),
        TEST(C27_two_reactions_that_fail_in_one_batch_both_pay),
        TEST(C44_reactions_that_share_a_target_share_its_backoff_and_its_block),
        TEST(C33_effects_have_the_events_correlation_and_its_id_as_causation),
        TEST(C34_who_loses_a_race_is_run_again_from_fresh_state),
        TEST(C34_three_times_more_then_it_counts_as_one_failure),
        TEST(C34_a_batch_that_loses_a_race_is_run_again_one_by_one),
        TEST(C34_the_failure_of_another_reaction_is_not_lost_in_a_race),
        TEST(C24_who_lost_the_lease_writes_nothing_and_pays_nothing),
        TEST(C41_a_settle_that_did_not_happen_is_tried_again),
        TEST(an_unknown_outcome_that_did_not_happen_is_handled_again),
        TEST(an_unknown_outcome_that_happened_is_not_handled_again),
        TEST(C41_every_call_may_fail_and_all_is_handled_once_it_stops),
        TEST(C41_a_store_that_fails_every_settle_is_nobodys_failure),
        TEST(what_was_sent_back_is_handled_first_and_removed),
        TEST(what_was_sent_back_and_is_gone_is_done),
        TEST(a_target_with_nothing_but_an_event_that_is_gone_is_idle),
        TEST(what_was_sent_back_and_fails_is_parked_again),
        TEST(what_was_sent_back_blocks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
