/* verbs_test.c - every verb of an operator while a handler is in the middle of a batch: what the
 * verb promises happens, the settle that comes afterwards is taken or refused as it promises, and
 * nothing is lost, charged or done twice that the verb did not ask for.
 *
 * A stream has twelve events, a batch five. The handler stages one effect per event and stops at a
 * gate in the middle of the second batch, once: events 0 to 4 are settled then, 5 and 6 have been
 * run and are not. The verb comes; where it takes the lease away, another slot does all that is to
 * be done while the first still stands at the gate; then the gate opens.
 */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { EVENTS = 12, BATCH = 5, GATE = 7, EFFECTS_MAX = 64, NO_GATE = -1 };

static weir_engine *engine;
static int64_t ids[EVENTS];
static _Atomic int64_t gate_version; /* of the event that stops there */
static _Atomic bool gate_open, poisonous;
static bool plain;       /* the handler has no effects: such batches are settled together */
static int64_t cycle_us; /* of the lane's fallback poll; 0: as it is */
static _Atomic int inside, runs, lost_count;
static _Atomic int64_t attempt_max;

static int verbs_set_up(void **state)
{
    atomic_store(&gate_version, NO_GATE);
    atomic_store(&gate_open, false);
    atomic_store(&poisonous, false);
    plain = false;
    cycle_us = 0;
    atomic_store(&inside, 0);
    atomic_store(&runs, 0);
    atomic_store(&lost_count, 0);
    atomic_store(&attempt_max, 0);
    return world_set_up(state);
}

static int verbs_tear_down(void **state)
{
    atomic_store(&gate_open, true); /* a test that failed may have left somebody there */
    weir_engine_free(engine);
    engine = NULL;
    return world_tear_down(state);
}
#define VERBS_TEST(f) cmocka_unit_test_setup_teardown(f, verbs_set_up, verbs_tear_down)

/* ---- the worker --------------------------------------------------------------------------- */

static int32_t stage_effect(weir_delivery *d)
{
    char data[64];
    (void)snprintf(data, sizeof data, "{\"of\":%lld}", (long long)weir_delivery_event(d)->id);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("out"),
                                   .name = weir__str("Done"), .data = weir__str(data) };
    const weir_new_event *const events[] = { &event };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1 };
    return weir_stage_append(d, &request, NULL);
}

static void note_attempt(int64_t attempt)
{
    int64_t before = atomic_load(&attempt_max);
    while (attempt > before && !atomic_compare_exchange_weak(&attempt_max, &before, attempt)) {
    }
}

static int32_t handle(void *ctx, weir_delivery *d)
{
    int64_t version = weir_delivery_event(d)->version;
    (void)ctx;
    atomic_fetch_add(&runs, 1);
    note_attempt(weir_delivery_attempt(d));
    if (version == 1 && atomic_load(&poisonous)) {
        weir_delivery_fail(d, "it is poisonous");
        return WEIR_PERMANENT;
    }
    if (atomic_compare_exchange_strong(&gate_version, &version, NO_GATE)) {
        atomic_fetch_add(&inside, 1);
        while (!atomic_load(&gate_open)) {
            world_pause_us(500);
        }
    }
    return plain || stage_effect(d) == WEIR_OK ? WEIR_DONE : WEIR_PERMANENT;
}

static void count_lost(void *ctx, int32_t level, weir_str event, weir_str json)
{
    (void)ctx;
    (void)level;
    (void)json;
    if (weir__str_equal(event, weir__str("lost"))) {
        atomic_fetch_add(&lost_count, 1);
    }
}

static void start(int32_t threads)
{
    const weir_engine_options options = { WEIR_ENGINE_OPTIONS_INIT, .log = count_lost };
    const weir_lane lane = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = threads,
                             .event_limit = BATCH, .cycle_us = cycle_us };
    const weir_reaction reaction = {
        WEIR_REACTION_INIT,        .name = weir__str("r"),     .source = weir__str("in"),
        .to = weir__str("target"), .poison = WEIR_POISON_PARK, .from = WEIR_FROM_START,
        .backoff_base_us = 1000,   .backoff_cap_us = 1000,     .handle = handle
    };
    weir_engine_free(engine);
    engine = NULL;
    WORLD_OK(weir_engine_open(here.w, &options, &engine, &here.err));
    WORLD_OK(weir_engine_lane(engine, &lane, &here.err));
    WORLD_OK(weir_engine_reaction(engine, &reaction, &here.err));
    WORLD_OK(weir_engine_start(engine, &here.err));
}

static bool somebody_inside(const void *ctx)
{
    (void)ctx;
    return atomic_load(&inside) > 0;
}

static void append_all(void)
{
    for (int i = 0; i < EVENTS; i++) {
        ids[i] = world_append("in", "Came", NULL);
    }
}

/* A handler stands at the gate in the middle of the second batch. Gives the fence it has. */
static int64_t begin(int32_t threads)
{
    append_all();
    atomic_store(&gate_version, GATE);
    start(threads);
    world_await(somebody_inside, NULL, "a handler is in the middle of a batch");
    const store_target *t = world_target("target");
    assert_int_equal(t->state, STORE_TARGET_LEASED);
    assert_int_equal(t->subscriptions[0].at, ids[BATCH - 1]);
    return t->fence;
}

static void let_go(void)
{
    atomic_store(&gate_open, true);
}

static void wait_idle(void)
{
    WORLD_OK(weir_engine_wait_idle(engine, 30000, &here.err));
}

/* ---- looking ------------------------------------------------------------------------------ */

typedef struct effects {
    int64_t of[EFFECTS_MAX];
    size_t count;
} effects;

static int collect(void *ctx, const weir_event *e)
{
    effects *list = ctx;
    assert_true(list->count < EFFECTS_MAX && e->data.len > 6);
    list->of[list->count++] = strtoll(e->data.ptr + 6, NULL, 10);
    return 0;
}

/* One effect for each event [from, to) is there, in this order, from the position *next on. */
static void see_effects(size_t *next, int from, int to)
{
    effects list = { 0 };
    (void)world_read("out", collect, &list);
    assert_true(list.count >= *next + (size_t)(to - from));
    for (int i = from; i < to; i++) {
        assert_int_equal(list.of[(*next)++], ids[i]);
    }
}

static void see_no_more_than(size_t count)
{
    assert_int_equal(world_read("out", NULL, NULL), count);
}

static bool has_effects(const void *ctx)
{
    return world_read("out", NULL, NULL) >= *(const size_t *)ctx;
}

static void await_effects(size_t count)
{
    world_await(has_effects, &count, "effects");
}

/* All is handled, and nobody had to pay for it. */
static void see_all_is_well(void)
{
    const store_target *t = world_target("target");
    assert_int_equal(t->state, STORE_TARGET_IDLE);
    assert_false(t->behind);
    assert_int_equal(t->holder.len, 0);
    assert_int_equal(t->lost, 0);
    assert_int_equal(t->subscriptions[0].retries, 0);
    assert_true(t->subscriptions[0].at >= ids[EVENTS - 1]);
    assert_int_equal(atomic_load(&attempt_max), 1);
}

static int64_t operate(store_operate op)
{
    const weir_str names[] = { weir__str("target") };
    op.filter = (store_target_filter){ .names = names, .names_count = 1 };
    op.by = weir__str("test");
    WORLD_OK(here.store->work->operate(here.store, &op, &here.err));
    return op.changed;
}

static int64_t do_verb(store_verb verb)
{
    return operate((store_operate){ .verb = verb });
}

/* ---- verbs that leave the lease alone ----------------------------------------------------- */

/* Nothing has happened to the batch: every event once, by the one that had begun. */
static void see_nothing_happened(int64_t fence)
{
    size_t next = 0;
    assert_int_equal(world_target("target")->fence, fence);
    let_go();
    wait_idle();
    see_effects(&next, 0, EVENTS);
    see_no_more_than(EVENTS);
    assert_int_equal(atomic_load(&runs), EVENTS);
    assert_int_equal(atomic_load(&lost_count), 0);
    see_all_is_well();
}

static void C29_unblock_leaves_a_target_alone_that_is_being_worked_on(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_UNBLOCK), 0);
    see_nothing_happened(fence);
}

static void C29_prioritize_lets_the_running_batch_finish(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(operate((store_operate){ .verb = STORE_PRIORITIZE, .priority = 7 }), 1);
    see_nothing_happened(fence);
    assert_int_equal(world_target("target")->priority, 7);
}

static void C29_a_dry_run_of_any_verb_leaves_the_lease_alone(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(operate((store_operate){ .verb = STORE_RESET, .dry_run = true }), 1);
    assert_int_equal(operate((store_operate){ .verb = STORE_SKIP, .dry_run = true }), 1);
    assert_int_equal(operate((store_operate){ .verb = STORE_PAUSE, .dry_run = true }), 1);
    see_nothing_happened(fence);
    assert_int_equal(world_parked("r"), 0);
}

static void C29_pause_and_resume_while_a_batch_runs_are_not_noticed(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_RESUME), 0);
    assert_int_equal(do_verb(STORE_PAUSE), 1);
    assert_int_equal(do_verb(STORE_PAUSE), 0);
    assert_int_equal(do_verb(STORE_RESUME), 1);
    see_nothing_happened(fence);
}

/* ---- verbs that hold ---------------------------------------------------------------------- */

static bool target_is_free(const void *ctx)
{
    (void)ctx;
    return world_target("target")->holder.len == 0;
}

/* The running batch finishes, is settled, and no other is begun. */
static void see_it_held_after_the_batch(int64_t fence)
{
    size_t next = 0;
    const store_target *t = world_target("target");
    assert_int_equal(t->fence, fence);
    assert_int_equal(t->state, STORE_TARGET_LEASED);
    let_go();
    world_await(target_is_free, NULL, "the batch has ended");
    wait_idle();
    see_effects(&next, 0, 2 * BATCH);
    see_no_more_than(2 * BATCH);
    assert_int_equal(atomic_load(&lost_count), 0);
    t = world_target("target");
    assert_int_equal(t->state, STORE_TARGET_PAUSED);
    assert_int_equal(t->subscriptions[0].at, ids[2 * BATCH - 1]);
    assert_int_equal(t->fence, fence);
}

static void see_the_rest(void)
{
    size_t next = 2 * BATCH;
    await_effects(EVENTS);
    wait_idle();
    see_effects(&next, 2 * BATCH, EVENTS);
    see_no_more_than(EVENTS);
    assert_int_equal(atomic_load(&runs), EVENTS);
    see_all_is_well();
}

static void C29_pause_lets_the_running_batch_finish_and_begins_no_other(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_PAUSE), 1);
    see_it_held_after_the_batch(fence);
    assert_int_equal(do_verb(STORE_RESUME), 1);
    see_the_rest();
}

static void pause_lane(bool paused)
{
    bool changed = false;
    WORLD_OK(here.store->work->lane_pause(here.store, weir__str("default"), paused,
                                          weir__str("test"), &changed, &here.err));
    assert_true(changed);
}

static void C29_pausing_a_lane_lets_its_batches_finish_and_begins_no_other(void **state)
{
    (void)state;
    const int64_t fence = begin(2);
    pause_lane(true);
    see_it_held_after_the_batch(fence);
    pause_lane(false);
    see_the_rest();
}

/* ---- verbs that take the lease away ------------------------------------------------------- */

/* What the holder settles is refused and counted, and nobody pays. */
static void see_the_holder_refused(size_t effects_count)
{
    let_go();
    wait_idle();
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    see_no_more_than(effects_count);
    assert_int_equal(atomic_load(&lost_count), 1);
    see_all_is_well();
}

static void C29_reset_takes_the_lease_away_and_begins_at_the_start(void **state)
{
    size_t next = 0;
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_RESET), 1);
    assert_true(world_target("target")->fence > fence);
    await_effects(BATCH + EVENTS); /* by another slot: the first one is at the gate */
    see_the_holder_refused(BATCH + EVENTS);
    see_effects(&next, 0, BATCH);
    see_effects(&next, 0, EVENTS);
}

static void C29_reset_to_a_position_takes_the_lease_away_and_begins_there(void **state)
{
    size_t next = 0;
    (void)state;
    const int64_t fence = begin(2);
    const store_operate op = { .verb = STORE_RESET,
                               .reset_to = STORE_RESET_POSITION,
                               .position = ids[2] };
    assert_int_equal(operate(op), 1);
    assert_true(world_target("target")->fence > fence);
    await_effects(EVENTS + 2);
    see_the_holder_refused(EVENTS + 2);
    see_effects(&next, 0, BATCH);
    see_effects(&next, 3, EVENTS);
}

static void C29_reset_to_where_a_target_has_not_come_to_takes_only_its_lease(void **state)
{
    size_t next = 0;
    (void)state;
    const int64_t fence = begin(2);
    const store_operate op = { .verb = STORE_RESET,
                               .reset_to = STORE_RESET_POSITION,
                               .position = ids[GATE - 1] };
    assert_int_equal(operate(op), 1); /* 5 and 6 were run, and are not settled */
    assert_true(world_target("target")->fence > fence);
    await_effects(EVENTS);
    see_the_holder_refused(EVENTS);
    see_effects(&next, 0, EVENTS); /* none was left out, and none is there twice */
}

static void C29_skip_takes_the_lease_away_and_parks_the_event_in_the_way(void **state)
{
    size_t next = 0;
    (void)state;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_SKIP), 1);
    assert_true(world_target("target")->fence > fence);
    await_effects(EVENTS - 1);
    see_the_holder_refused(EVENTS - 1);
    see_effects(&next, 0, BATCH);
    see_effects(&next, BATCH + 1, EVENTS); /* its handler had run; its effect was refused */
    assert_int_equal(world_parked("r"), 1);
}

/* With no other slot: the one that lost the lease goes on with it, soon and not when a poll finds
 * out by itself, which here is after a minute. */
static void C29_a_worker_with_one_slot_goes_on_at_once_after_its_lease_was_taken(void **state)
{
    (void)state;
    cycle_us = INT64_C(60000000);
    (void)begin(1);
    assert_int_equal(do_verb(STORE_RESET), 1);
    let_go();
    const int64_t begin_us = world_now_us();
    await_effects(BATCH + EVENTS);
    const int64_t took_us = world_now_us() - begin_us;
    see_the_holder_refused(BATCH + EVENTS);
    print_message("went on after %lld ms\n", (long long)(took_us / 1000));
    assert_true(took_us < cycle_us / 2);
}

/* ---- without effects ---------------------------------------------------------------------- */

static bool has_run(const void *ctx)
{
    return atomic_load(&runs) >= *(const int *)ctx;
}

static void await_runs(int count)
{
    world_await(has_run, &count, "handlers were run");
}

/* And those behind the gate in the batch of the first one, who may not know yet. */
static void see_runs(int count)
{
    assert_in_range(atomic_load(&runs), count, count + 2 * BATCH - GATE - 1);
}

static void C29_reset_takes_the_lease_of_a_batch_without_effects_away(void **state)
{
    (void)state;
    plain = true;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_RESET), 1);
    assert_true(world_target("target")->fence > fence);
    await_runs(GATE + 1 + EVENTS);
    see_the_holder_refused(0);
    see_runs(GATE + 1 + EVENTS);
}

static void C29_skip_takes_the_lease_of_a_batch_without_effects_away(void **state)
{
    (void)state;
    plain = true;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_SKIP), 1);
    assert_true(world_target("target")->fence > fence);
    await_runs(GATE + 1 + EVENTS - BATCH - 1);
    see_the_holder_refused(0);
    see_runs(GATE + 1 + EVENTS - BATCH - 1);
    assert_int_equal(world_parked("r"), 1);
}

static void C29_pause_lets_a_batch_without_effects_finish_and_begins_no_other(void **state)
{
    (void)state;
    plain = true;
    const int64_t fence = begin(2);
    assert_int_equal(do_verb(STORE_PAUSE), 1);
    let_go();
    world_await(target_is_free, NULL, "the batch has ended");
    wait_idle();
    const store_target *t = world_target("target");
    assert_int_equal(t->state, STORE_TARGET_PAUSED);
    assert_int_equal(t->subscriptions[0].at, ids[2 * BATCH - 1]);
    assert_int_equal(t->fence, fence);
    assert_int_equal(atomic_load(&runs), 2 * BATCH);
    assert_int_equal(do_verb(STORE_RESUME), 1);
    await_runs(EVENTS);
    wait_idle();
    assert_int_equal(atomic_load(&runs), EVENTS);
    assert_int_equal(atomic_load(&lost_count), 0);
    see_all_is_well();
}

/* ---- parked events and reactions ---------------------------------------------------------- */

static int64_t parked_id(void)
{
    store_parked_chunk chunk = { 0 };
    const store_parked_query query = { .limit = 10 };
    WORLD_OK(here.store->work->parked(here.store, &query, &chunk, &here.err));
    assert_int_equal(chunk.parked_count, 1);
    const int64_t id = chunk.parked[0].id;
    weir__arena_free(&chunk.arena);
    return id;
}

static size_t effects_of(int64_t id)
{
    effects list = { 0 };
    size_t count = 0;
    (void)world_read("out", collect, &list);
    for (size_t i = 0; i < list.count; i++) {
        count += list.of[i] == id;
    }
    return count;
}

static void C27_a_parked_event_is_sent_back_into_a_running_batch_and_handled_once(void **state)
{
    (void)state;
    atomic_store(&poisonous, true);
    const int64_t fence = begin(2);
    atomic_store(&poisonous, false);
    WORLD_OK(
        here.store->work->parked_change(here.store, parked_id(), STORE_PARKED_RETRY, &here.err));
    assert_int_equal(world_target("target")->fence, fence);
    let_go();
    await_effects(EVENTS);
    wait_idle();
    see_no_more_than(EVENTS);
    for (int i = 0; i < EVENTS; i++) {
        assert_int_equal(effects_of(ids[i]), 1);
    }
    assert_int_equal(world_parked("r"), 0);
    assert_int_equal(atomic_load(&lost_count), 0);
    assert_false(world_target("target")->behind);
}

/* The first one is parked, sent back, and its handler runs. Gives what it is parked as. */
static int64_t begin_sent_back(void)
{
    append_all();
    atomic_store(&poisonous, true);
    start(2);
    wait_idle();
    see_no_more_than(EVENTS - 1);
    atomic_store(&poisonous, false);
    atomic_store(&gate_version, 1);
    const int64_t id = parked_id();
    WORLD_OK(here.store->work->parked_change(here.store, id, STORE_PARKED_RETRY, &here.err));
    world_await(somebody_inside, NULL, "the handler of what was sent back");
    return id;
}

static void C27_sending_back_again_what_is_being_handled_does_it_once(void **state)
{
    (void)state;
    const int64_t id = begin_sent_back();
    WORLD_OK(here.store->work->parked_change(here.store, id, STORE_PARKED_RETRY, &here.err));
    let_go();
    wait_idle();
    see_no_more_than(EVENTS);
    assert_int_equal(effects_of(ids[1]), 1);
    assert_int_equal(world_parked("r"), 0);
    assert_false(world_target("target")->behind);
}

static void C27_dropping_what_is_being_handled_leaves_nothing_behind(void **state)
{
    (void)state;
    const int64_t id = begin_sent_back();
    WORLD_OK(here.store->work->parked_change(here.store, id, STORE_PARKED_DROP, &here.err));
    let_go();
    wait_idle();
    assert_true(effects_of(ids[1]) <= 1);
    see_no_more_than(EVENTS - 1 + effects_of(ids[1]));
    assert_int_equal(world_parked("r"), 0);
    const store_target *t = world_target("target");
    assert_int_equal(t->state, STORE_TARGET_IDLE);
    assert_true(t->subscriptions[0].at >= ids[EVENTS - 1]);
}

static void C29_skip_parks_what_was_sent_back_and_is_being_handled(void **state)
{
    (void)state;
    (void)begin_sent_back();
    assert_int_equal(do_verb(STORE_SKIP), 1);
    let_go();
    wait_idle();
    see_no_more_than(EVENTS - 1);
    assert_int_equal(world_parked("r"), 1);
    assert_int_equal(atomic_load(&lost_count), 1);
    assert_int_equal(world_target("target")->state, STORE_TARGET_IDLE);
}

static void a_reaction_that_is_retired_in_a_batch_comes_back_where_it_was(void **state)
{
    size_t next = 0;
    (void)state;
    (void)begin(2);
    WORLD_OK(here.store->work->retire(here.store, weir__str("r"), &here.err));
    let_go();
    wait_idle();
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    const size_t settled = world_read("out", NULL, NULL);
    assert_true(settled == BATCH || settled == 2 * BATCH); /* not the third: it was not begun */
    assert_false(world_target("target")->behind);
    start(2);
    await_effects(EVENTS);
    wait_idle();
    see_effects(&next, 0, EVENTS);
    see_no_more_than(EVENTS);
    see_all_is_well();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        VERBS_TEST(C29_unblock_leaves_a_target_alone_that_is_being_worked_on),
        VERBS_TEST(C29_prioritize_lets_the_running_batch_finish),
        VERBS_TEST(C29_a_dry_run_of_any_verb_leaves_the_lease_alone),
        VERBS_TEST(C29_pause_and_resume_while_a_batch_runs_are_not_noticed),
        VERBS_TEST(C29_pause_lets_the_running_batch_finish_and_begins_no_other),
        VERBS_TEST(C29_pausing_a_lane_lets_its_batches_finish_and_begins_no_other),
        VERBS_TEST(C29_reset_takes_the_lease_away_and_begins_at_the_start),
        VERBS_TEST(C29_reset_to_a_position_takes_the_lease_away_and_begins_there),
        VERBS_TEST(C29_reset_to_where_a_target_has_not_come_to_takes_only_its_lease),
        VERBS_TEST(C29_skip_takes_the_lease_away_and_parks_the_event_in_the_way),
        VERBS_TEST(C29_a_worker_with_one_slot_goes_on_at_once_after_its_lease_was_taken),
        VERBS_TEST(C29_reset_takes_the_lease_of_a_batch_without_effects_away),
        VERBS_TEST(C29_skip_takes_the_lease_of_a_batch_without_effects_away),
        VERBS_TEST(C29_pause_lets_a_batch_without_effects_finish_and_begins_no_other),
        VERBS_TEST(C27_a_parked_event_is_sent_back_into_a_running_batch_and_handled_once),
        VERBS_TEST(C27_sending_back_again_what_is_being_handled_does_it_once),
        VERBS_TEST(C27_dropping_what_is_being_handled_leaves_nothing_behind),
        VERBS_TEST(C29_skip_parks_what_was_sent_back_and_is_being_handled),
        VERBS_TEST(a_reaction_that_is_retired_in_a_batch_comes_back_where_it_was),
    };
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
