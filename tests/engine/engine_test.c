/* engine_test.c - the engine through weir.h, on one kind of store: what a program that declares
 * reactions can rely on while nothing is killed (see fleet_test.c for that).
 *
 * Handlers note what they are given; a test appends, waits until there is no work left, and looks
 * at the notes, at what was appended and at the target.
 */
#include "world.h"

#include "engine/metrics.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { NOTES_MAX = 4096 };

/* What handlers were given, in the order in which they were. */
typedef struct note {
    char reaction[32], target[64], stream[64];
    int64_t event, attempt, fence;
} note;

static note notes[NOTES_MAX];
static size_t notes_count;
static pthread_mutex_t notes_mu = PTHREAD_MUTEX_INITIALIZER;

static void text_copy(char *out, size_t bytes, weir_str text)
{
    (void)snprintf(out, bytes, "%.*s", (int)text.len, text.ptr);
}

static void take_note(const weir_delivery *d)
{
    (void)pthread_mutex_lock(&notes_mu);
    if (notes_count < NOTES_MAX) {
        note *n = &notes[notes_count++];
        text_copy(n->reaction, sizeof n->reaction, weir_delivery_reaction(d));
        text_copy(n->target, sizeof n->target, weir_delivery_target(d));
        text_copy(n->stream, sizeof n->stream, weir_delivery_event(d)->stream);
        n->event = weir_delivery_event(d)->id;
        n->attempt = weir_delivery_attempt(d);
        n->fence = weir_delivery_fence(d);
    }
    (void)pthread_mutex_unlock(&notes_mu);
}

static size_t count_notes(void)
{
    (void)pthread_mutex_lock(&notes_mu);
    const size_t count = notes_count;
    (void)pthread_mutex_unlock(&notes_mu);
    return count;
}

static bool has_notes(const void *ctx)
{
    return count_notes() >= *(const size_t *)ctx;
}

static void await_notes(size_t count)
{
    world_await(has_notes, &count, "handlers were run");
}

/* ---- engines ------------------------------------------------------------------------------ */

static weir_engine *engine;

static int engine_set_up(void **state)
{
    notes_count = 0;
    return world_set_up(state);
}

static int engine_tear_down(void **state)
{
    weir_engine_free(engine);
    engine = NULL;
    return world_tear_down(state);
}
#define ENGINE_TEST(f) cmocka_unit_test_setup_teardown(f, engine_set_up, engine_tear_down)

static void open_engine(void)
{
    /* Leases that no test outlasts: who is told to end hears it from the engine. */
    const weir_lane lane = { WEIR_LANE_INIT, .name = weir__str("default"), .threads = 4,
                             .lease_us = INT64_C(600000000), .cycle_us = 100000 };
    weir_engine_free(engine);
    engine = NULL;
    WORLD_OK(weir_engine_open(here.w, NULL, &engine, &here.err));
    WORLD_OK(weir_engine_lane(engine, &lane, &here.err));
}

/* Every event of streams "in-*" to the target "on-" and the stream's name, with quick backoffs. */
static weir_reaction reaction_of(const char *name, weir_handle_fn handle, void *ctx)
{
    return (weir_reaction){ WEIR_REACTION_INIT,
                            .name = weir__str(name),
                            .source = weir__str("in-*"),
                            .to = weir__str("on-{stream}"),
                            .backoff_base_us = 1000,
                            .backoff_cap_us = 20000,
                            .from = WEIR_FROM_START,
                            .handle = handle,
                            .ctx = ctx };
}

static void add(const weir_reaction *reaction)
{
    WORLD_OK(weir_engine_reaction(engine, reaction, &here.err));
}

static void start(void)
{
    WORLD_OK(weir_engine_start(engine, &here.err));
}

static void wait_idle(void)
{
    WORLD_OK(weir_engine_wait_idle(engine, 60000, &here.err));
}

static void run_one(const weir_reaction *reaction)
{
    open_engine();
    add(reaction);
    start();
}

static int32_t done(void *ctx, weir_delivery *d)
{
    (void)ctx;
    take_note(d);
    return WEIR_DONE;
}

/* ---- declaring ---------------------------------------------------------------------------- */

static void what_is_wrong_is_told_at_the_start_all_at_once(void **state)
{
    (void)state;
    weir_reaction broken = reaction_of("first", done, NULL);
    weir_reaction second = reaction_of("second", done, NULL);
    broken.to = weir__str("on-{nothing}");
    broken.retries = -7;
    second.run = "true"; /* and a function */
    open_engine();
    add(&broken);
    add(&second);
    WORLD_IS(weir_engine_start(engine, &here.err), WEIR_EINVAL);
    assert_non_null(strstr(here.err.detail, "nothing"));
    assert_non_null(strstr(here.err.detail, "retries"));
    assert_non_null(strstr(here.err.detail, "\"second\""));
    store_reaction_list list = { 0 };
    WORLD_OK(here.store->work->reactions(here.store, &list, &here.err));
    assert_int_equal(list.reactions_count, 0);
    weir__arena_free(&list.arena);
}

static void null_is_refused_and_misuse_is_told(void **state)
{
    (void)state;
    weir_delivery *d = NULL;
    const weir_reaction q = reaction_of("a", done, NULL);
    WORLD_IS(weir_engine_open(here.w, NULL, NULL, &here.err), WEIR_EINVAL);
    WORLD_IS(weir_engine_open(NULL, NULL, &engine, &here.err), WEIR_EINVAL);
    WORLD_IS(weir_engine_start(NULL, &here.err), WEIR_EINVAL);
    WORLD_IS(weir_engine_stop(NULL, 0, &here.err), WEIR_EINVAL);
    open_engine();
    WORLD_IS(weir_engine_reaction(engine, NULL, &here.err), WEIR_EINVAL);
    WORLD_IS(weir_engine_stop(engine, 0, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_next(engine, 0, &d, &here.err), WEIR_EMISUSE);
    add(&q);
    start();
    WORLD_IS(weir_engine_start(engine, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_engine_reaction(engine, &q, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_settle(engine, NULL, WEIR_DONE, &here.err), WEIR_EMISUSE);
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    WORLD_IS(weir_engine_stop(engine, 0, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_engine_wait_idle(engine, 0, &here.err), WEIR_EMISUSE);
}

static void two_lanes_for_one_target_are_refused_when_declared(void **state)
{
    (void)state;
    weir_reaction a = reaction_of("a", done, NULL), b = reaction_of("b", done, NULL);
    a.to = b.to = weir__str("one");
    b.lane = weir__str("slow");
    open_engine();
    add(&a);
    add(&b);
    WORLD_IS(weir_engine_start(engine, &here.err), WEIR_EINVAL);
}

/* ---- handlers and what they stage ----------------------------------------------------------- */

static int32_t stage_one(weir_delivery *d, const char *prefix, int32_t expect, weir_error *err)
{
    char stream[128], data[64];
    const weir_event *e = weir_delivery_event(d);
    (void)snprintf(stream, sizeof stream, "%s-%.*s", prefix, (int)e->stream.len, e->stream.ptr);
    (void)snprintf(data, sizeof data, "{\"of\":%lld}", (long long)e->id);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str("Done"), .data = weir__str(data) };
    const weir_expectation belief = { WEIR_EXPECTATION_INIT, .expect = expect,
                                      .stream = weir__str(stream) };
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const beliefs[] = { &belief };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1, .expectations = beliefs,
                                          .expectations_count = 1 };
    return weir_stage_append(d, &request, err);
}

static int32_t effect(void *ctx, weir_delivery *d)
{
    weir_error err;
    (void)ctx;
    take_note(d);
    return stage_one(d, "out", WEIR_EXPECT_ANY, &err) == WEIR_OK ? WEIR_DONE : WEIR_PERMANENT;
}

typedef struct effects_seen {
    const int64_t *ids;
    size_t count;
} effects_seen;

static int see_effect(void *ctx, const weir_event *e)
{
    effects_seen *s = ctx;
    char wanted[64], causation[64];
    (void)snprintf(wanted, sizeof wanted, "{\"of\":%lld}", (long long)s->ids[s->count]);
    (void)snprintf(causation, sizeof causation, "\"causation\":%lld", (long long)s->ids[s->count]);
    assert_int_equal(e->data.len, strlen(wanted));
    assert_memory_equal(e->data.ptr, wanted, e->data.len);
    assert_non_null(memmem(e->meta.ptr, e->meta.len, causation, strlen(causation)));
    s->count++;
    return 0;
}

static void C33_effects_happen_once_in_order_and_name_their_cause(void **state)
{
    enum { STREAMS = 5, EVENTS = 30 };
    int64_t ids[STREAMS][EVENTS];
    char stream[32];
    (void)state;
    const weir_reaction q = reaction_of("effect", effect, NULL);
    run_one(&q);
    for (size_t i = 0; i < EVENTS; i++) {
        for (size_t s = 0; s < STREAMS; s++) {
            (void)snprintf(stream, sizeof stream, "in-%zu", s);
            ids[s][i] = world_append(stream, "Came", NULL);
        }
    }
    wait_idle();
    for (size_t s = 0; s < STREAMS; s++) {
        effects_seen seen = { .ids = ids[s] };
        (void)snprintf(stream, sizeof stream, "out-in-%zu", s);
        assert_int_equal(world_read(stream, see_effect, &seen), EVENTS);
    }
    assert_int_equal(count_notes(), STREAMS * EVENTS);
    for (size_t s = 0; s < STREAMS; s++) {
        size_t next = 0;
        (void)snprintf(stream, sizeof stream, "in-%zu", s);
        for (size_t i = 0; i < notes_count; i++) {
            if (strcmp(notes[i].stream, stream) == 0) {
                assert_int_equal(notes[i].event, ids[s][next++]);
            }
        }
    }
}

static int32_t stage_and_fail(void *ctx, weir_delivery *d)
{
    weir_error err;
    (void)ctx;
    take_note(d);
    if (stage_one(d, "out", WEIR_EXPECT_ANY, &err) != WEIR_OK) {
        return WEIR_PERMANENT;
    }
    return weir_delivery_attempt(d) < 3 ? WEIR_RETRY : WEIR_DONE;
}

static void C33_what_a_failing_handler_staged_is_dropped(void **state)
{
    (void)state;
    const weir_reaction q = reaction_of("fails", stage_and_fail, NULL);
    run_one(&q);
    (void)world_append("in-1", "Came", NULL);
    wait_idle();
    assert_int_equal(count_notes(), 3);
    assert_int_equal(world_read("out-in-1", NULL, NULL), 1);
}

static int32_t stage_into_a_stream_that_exists(void *ctx, weir_delivery *d)
{
    weir_error err;
    (void)ctx;
    take_note(d);
    return stage_one(d, "out", WEIR_EXPECT_NONE, &err) == WEIR_OK ? WEIR_DONE : WEIR_PERMANENT;
}

static void C34_a_settle_that_loses_a_race_is_run_again_and_then_is_one_failure(void **state)
{
    (void)state;
    weir_reaction q = reaction_of("racing", stage_into_a_stream_that_exists, NULL);
    q.retries = -1;
    (void)world_append("out-in-1", "There", NULL);
    run_one(&q);
    const int64_t id = world_append("in-1", "Came", NULL);
    wait_idle();
    assert_int_equal(count_notes(), 4); /* and three times again */
    const store_target *t = world_target("on-in-1");
    assert_true(t->blocked);
    assert_int_equal(t->event, id);
    assert_int_equal(t->attempts, 1);
    assert_int_equal(world_read("out-in-1", NULL, NULL), 1);
}

/* ---- policies ----------------------------------------------------------------------------- */

static _Atomic bool healed;

/* Events named Poison fail until they are healed. */
static int32_t poisonous(void *ctx, weir_delivery *d)
{
    take_note(d);
    const weir_str name = weir_delivery_event(d)->name;
    if (name.len != 6 || memcmp(name.ptr, "Poison", 6) != 0 || atomic_load(&healed)) {
        return WEIR_DONE;
    }
    weir_delivery_fail(d, "it is poisonous");
    return *(const int32_t *)ctx;
}

static const int32_t retry_outcome = WEIR_RETRY, permanent_outcome = WEIR_PERMANENT;

static weir_reaction poison_reaction(int32_t poison, const int32_t *outcome)
{
    weir_reaction q = reaction_of("poisoned", poisonous, NULL);
    q.ctx = (void *)(uintptr_t)outcome;
    q.poison = poison;
    q.retries = 2;
    atomic_store(&healed, false);
    return q;
}

static void append_poison_between(void)
{
    (void)world_append("in-1", "Came", NULL);
    (void)world_append("in-1", "Poison", NULL);
    (void)world_append("in-1", "Came", NULL);
}

static void C27_block_stops_the_target_with_its_reason_and_unblock_goes_on_there(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_BLOCK, &retry_outcome);
    append_poison_between();
    run_one(&q);
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3); /* C28: what came before it is not run again */
    const store_target *t = world_target("on-in-1");
    assert_true(t->blocked);
    assert_int_equal(t->event, notes[1].event);
    assert_int_equal(t->attempts, 3);
    assert_true(weir__str_equal(t->error, weir__str("it is poisonous")));
    atomic_store(&healed, true);
    world_operate(STORE_UNBLOCK, "on-in-1");
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 2);
    assert_int_equal(notes[4].event, notes[1].event);
    assert_int_equal(notes[4].attempt, 1);
}

static void C29_skip_parks_the_event_in_the_way(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_BLOCK, &retry_outcome);
    append_poison_between();
    run_one(&q);
    wait_idle();
    world_operate(STORE_SKIP, "on-in-1");
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 1);
    assert_int_equal(world_parked("poisoned"), 1);
}

static void T16_a_parked_event_is_sent_back_once_and_moves_nothing_back(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_PARK, &retry_outcome);
    append_poison_between();
    run_one(&q);
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 1);
    assert_int_equal(world_parked("poisoned"), 1);
    const int64_t at = world_target("on-in-1")->subscriptions[0].at;
    assert_true(at >= notes[4].event);

    store_parked_chunk chunk = { 0 };
    const store_parked_query query = { .limit = 10 };
    WORLD_OK(here.store->work->parked(here.store, &query, &chunk, &here.err));
    atomic_store(&healed, true);
    WORLD_OK(here.store->work->parked_change(here.store, chunk.parked[0].id, STORE_PARKED_RETRY,
                                             &here.err));
    /* It may have been handled meanwhile. */
    const weir_status again = here.store->work->parked_change(here.store, chunk.parked[0].id,
                                                              STORE_PARKED_RETRY, &here.err);
    assert_true(again == WEIR_OK || again == WEIR_ENOTFOUND);
    weir__arena_free(&chunk.arena);
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 1 + 1);
    assert_int_equal(notes[5].event, notes[1].event);
    assert_int_equal(world_parked("poisoned"), 0);
    assert_int_equal(world_target("on-in-1")->subscriptions[0].at, at);
}

static void C27_a_permanent_error_skips_the_retries(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_BLOCK, &permanent_outcome);
    append_poison_between();
    run_one(&q);
    wait_idle();
    assert_int_equal(count_notes(), 1 + 1);
    assert_true(world_target("on-in-1")->blocked);
}

static void C27_retry_goes_on_for_ever(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_RETRY, &retry_outcome);
    append_poison_between();
    run_one(&q);
    await_notes(1 + 8); /* the budget is three attempts */
    assert_false(world_target("on-in-1")->blocked);
    atomic_store(&healed, true);
    wait_idle();
    assert_int_equal(notes[count_notes() - 2].event, notes[1].event);
    assert_int_equal(world_parked("poisoned"), 0);
}

static void C44_a_poisoned_target_stops_no_other(void **state)
{
    (void)state;
    const weir_reaction q = poison_reaction(WEIR_POISON_BLOCK, &retry_outcome);
    append_poison_between();
    for (int i = 0; i < 20; i++) {
        (void)world_append("in-2", "Came", NULL);
    }
    run_one(&q);
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 20);
    assert_true(world_target("on-in-1")->blocked);
    for (int i = 0; i < 5; i++) {
        (void)world_append("in-2", "Came", NULL);
    }
    wait_idle();
    assert_int_equal(count_notes(), 1 + 3 + 20 + 5);
}

/* Not before the third time it is asked. */
static int32_t later(void *ctx, weir_delivery *d)
{
    _Atomic int *asked = ctx;
    take_note(d);
    if (weir_delivery_event(d)->version != 1 || atomic_fetch_add(asked, 1) >= 2) {
        return WEIR_DONE;
    }
    weir_delivery_defer(d, weir_delivery_event(d)->created_us + 200000);
    return WEIR_DEFER;
}

static void act_8_1_E_to_defer_inside_a_batch_is_no_failure_and_keeps_what_was_done(void **state)
{
    _Atomic int asked = 0;
    (void)state;
    weir_reaction q = reaction_of("later", later, &asked);
    q.retries = -1;
    for (int i = 0; i < 3; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    run_one(&q);
    wait_idle();
    assert_false(world_target("on-in-1")->blocked);
    assert_true(atomic_load(&asked) >= 3);
    size_t first = 0;
    for (size_t i = 0; i < notes_count; i++) {
        assert_int_equal(notes[i].attempt, 1);
        first += notes[i].event == notes[0].event;
    }
    assert_int_equal(first, 1);
}

/* ---- projections -------------------------------------------------------------------------- */

typedef struct projected {
    size_t calls, events, fail_calls;
    int64_t last;
    bool native, ordered;
} projected;

/* One target: one thread at a time. */
static int32_t project(void *ctx, void *native, const weir_event *const *events, size_t count,
                       weir_error *err)
{
    projected *p = ctx;
    p->calls++;
    p->native = native != NULL;
    if (p->calls <= p->fail_calls) {
        err->size = sizeof *err;
        (void)snprintf(err->message, sizeof err->message, "not yet");
        return WEIR_EINVAL;
    }
    for (size_t i = 0; i < count; i++) {
        p->ordered = p->ordered && events[i]->id > p->last;
        p->last = events[i]->id;
    }
    p->events += count;
    return WEIR_OK;
}

static void C33_a_projection_gets_batches_in_order_and_the_native_handle(void **state)
{
    projected p = { .ordered = true };
    (void)state;
    weir_reaction q = reaction_of("table", NULL, &p);
    q.project = project;
    q.to = weir__str("table");
    for (int i = 0; i < 50; i++) {
        (void)world_append(i % 2 == 0 ? "in-1" : "in-2", "Came", NULL);
    }
    run_one(&q);
    wait_idle();
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    assert_int_equal(p.events, 50);
    assert_true(p.calls < 25);
    assert_true(p.ordered);
    assert_int_equal(p.native, !world_is("memory"));
}

static void a_projection_that_fails_is_undone_and_costs_its_first_event_a_retry(void **state)
{
    projected p = { .ordered = true, .fail_calls = 2 };
    (void)state;
    weir_reaction q = reaction_of("table", NULL, &p);
    q.project = project;
    q.to = weir__str("table");
    (void)world_append("in-1", "Came", NULL);
    run_one(&q);
    wait_idle();
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    assert_int_equal(p.events, 1);
    assert_int_equal(p.calls, 3);
}

/* ---- pulling ------------------------------------------------------------------------------ */

static void pulled_deliveries_are_settled_with_their_effects(void **state)
{
    (void)state;
    weir_delivery *d = NULL;
    const weir_reaction q = reaction_of("pulled", NULL, NULL);
    run_one(&q);
    WORLD_IS(weir_next(engine, 0, &d, &here.err), WEIR_ENOTFOUND);
    for (int i = 0; i < 5; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    struct pollfd readable = { .fd = weir_engine_fd(engine), .events = POLLIN };
    assert_int_equal(poll(&readable, 1, 30000), 1);
    for (int i = 0; i < 5; i++) {
        WORLD_OK(weir_next(engine, 30000, &d, &here.err));
        assert_int_equal(weir_delivery_event(d)->version, i);
        WORLD_OK(stage_one(d, "out", WEIR_EXPECT_ANY, &here.err));
        WORLD_OK(weir_settle(engine, d, WEIR_DONE, &here.err));
        assert_int_equal(world_read("out-in-1", NULL, NULL), i + 1);
    }
    WORLD_IS(weir_next(engine, 0, &d, &here.err), WEIR_ENOTFOUND);
    wait_idle();
}

static void what_was_pulled_and_outlives_its_engine_is_lost(void **state)
{
    (void)state;
    weir_delivery *d = NULL;
    const weir_reaction q = reaction_of("pulled", NULL, NULL);
    run_one(&q);
    (void)world_append("in-1", "Came", NULL);
    WORLD_OK(weir_next(engine, 30000, &d, &here.err));
    WORLD_OK(stage_one(d, "out", WEIR_EXPECT_ANY, &here.err));
    WORLD_OK(weir_engine_stop(engine, 0, &here.err));
    assert_int_equal(weir_delivery_interrupted(d), 1);
    assert_int_equal(weir_delivery_event(d)->version, 0);
    WORLD_IS(weir_settle(engine, d, WEIR_DONE, &here.err), WEIR_ELOST);
    assert_int_equal(world_read("out-in-1", NULL, NULL), 0);
}

static void a_pulled_delivery_that_failed_comes_again(void **state)
{
    (void)state;
    weir_delivery *d = NULL;
    const weir_reaction q = reaction_of("pulled", NULL, NULL);
    run_one(&q);
    (void)world_append("in-1", "Came", NULL);
    WORLD_OK(weir_next(engine, 30000, &d, &here.err));
    WORLD_OK(stage_one(d, "out", WEIR_EXPECT_ANY, &here.err));
    WORLD_OK(weir_settle(engine, d, WEIR_RETRY, &here.err));
    WORLD_OK(weir_next(engine, 30000, &d, &here.err));
    assert_int_equal(weir_delivery_attempt(d), 2);
    WORLD_OK(weir_settle(engine, d, WEIR_DONE, &here.err));
    wait_idle();
    assert_int_equal(world_read("out-in-1", NULL, NULL), 0);
}

/* ---- routing ------------------------------------------------------------------------------ */

static void
act_8_1_B_two_reactions_with_different_sources_on_one_target_are_both_served(void **state)
{
    (void)state;
    weir_reaction a = reaction_of("a", done, NULL), b = reaction_of("b", done, NULL);
    a.to = b.to = weir__str("one");
    b.source = weir__str("other-*");
    open_engine();
    add(&a);
    add(&b);
    start();
    for (int i = 0; i < 10; i++) {
        (void)world_append("in-1", "Came", NULL);
        (void)world_append("other-1", "Came", NULL);
    }
    wait_idle();
    size_t of_a = 0;
    for (size_t i = 0; i < notes_count; i++) {
        const bool is_a = strcmp(notes[i].reaction, "a") == 0;
        of_a += is_a;
        assert_string_equal(notes[i].stream, is_a ? "in-1" : "other-1");
        assert_string_equal(notes[i].target, "one");
    }
    assert_int_equal(count_notes(), 20);
    assert_int_equal(of_a, 10);
    assert_false(world_target("one")->behind);
}

static void act_8_1_O_a_new_reaction_sees_history_without_a_new_event(void **state)
{
    (void)state;
    const weir_reaction first = reaction_of("first", done, NULL);
    char stream[32];
    for (int i = 0; i < 60; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % 6);
        (void)world_append(stream, "Came", NULL);
    }
    run_one(&first);
    wait_idle();
    assert_int_equal(count_notes(), 60);
    const weir_reaction second = reaction_of("second", done, NULL);
    open_engine();
    add(&first);
    add(&second);
    start();
    wait_idle();
    assert_int_equal(count_notes(), 120);
    for (size_t i = 60; i < 120; i++) {
        assert_string_equal(notes[i].reaction, "second");
    }
}

enum { HISTORY = 600 };
static _Atomic size_t old_events, live_events, old_before_live;

/* Of the new reaction, on the target of the old one: slow. */
static int32_t catch_up(void *ctx, weir_delivery *d)
{
    (void)ctx;
    (void)d;
    world_pause_us(1000);
    atomic_fetch_add(&old_events, 1);
    return WEIR_DONE;
}

static int32_t stay_current(void *ctx, weir_delivery *d)
{
    (void)ctx;
    take_note(d);
    if (atomic_fetch_add(&live_events, 1) == HISTORY) {
        atomic_store(&old_before_live, atomic_load(&old_events));
    }
    return WEIR_DONE;
}

static bool has_begun_to_catch_up(const void *ctx)
{
    (void)ctx;
    return atomic_load(&old_events) > 0;
}

static void C31_the_history_of_a_new_reaction_stops_nobody_on_its_target(void **state)
{
    (void)state;
    weir_reaction first = reaction_of("first", stay_current, NULL);
    weir_reaction second = reaction_of("second", catch_up, NULL);
    first.to = second.to = weir__str("one");
    atomic_store(&old_events, 0);
    atomic_store(&live_events, 0);
    atomic_store(&old_before_live, 0);
    for (int i = 0; i < HISTORY; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    run_one(&first);
    wait_idle();
    open_engine();
    add(&first);
    add(&second);
    start();
    world_await(has_begun_to_catch_up, NULL, "the new reaction has begun");
    const int64_t live = world_append("in-1", "Came", NULL);
    wait_idle();
    assert_int_equal(atomic_load(&old_events), HISTORY + 1);
    assert_int_equal(count_notes(), HISTORY + 1); /* nothing of the old one was run again */
    assert_int_equal(notes[HISTORY].event, live);
    assert_true(atomic_load(&old_before_live) < HISTORY / 2);
}

static int32_t resolve_or_fail(void *ctx, const weir_event *event, weir_route *out, weir_error *err)
{
    (void)ctx;
    if (event->version == 1) {
        err->size = sizeof *err;
        (void)snprintf(err->message, sizeof err->message, "nowhere to go");
        return WEIR_EINVAL;
    }
    out->target = weir__str("resolved");
    return WEIR_OK;
}

static void act_8_1_P_a_resolver_that_fails_on_one_event_stops_nothing(void **state)
{
    (void)state;
    weir_reaction bad = reaction_of("bad", done, NULL);
    const weir_reaction good = reaction_of("good", done, NULL);
    bad.to = (weir_str){ 0 };
    bad.resolve = resolve_or_fail;
    open_engine();
    add(&bad);
    add(&good);
    start();
    for (int i = 0; i < 3; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    wait_idle();
    assert_int_equal(count_notes(), 2 + 3);
    assert_int_equal(world_parked("bad"), 1);
    assert_int_equal(world_parked("good"), 0);
}

static int64_t routed(const char *name)
{
    store_reaction_list list = { 0 };
    int64_t found = -1;
    WORLD_OK(here.store->work->reactions(here.store, &list, &here.err));
    for (size_t i = 0; i < list.reactions_count; i++) {
        if (weir__str_equal(list.reactions[i].name, weir__str(name))) {
            found = list.reactions[i].routed;
        }
    }
    weir__arena_free(&list.arena);
    return found;
}

static void act_8_1_J_progress_over_events_of_no_interest_is_kept(void **state)
{
    (void)state;
    const weir_reaction q = reaction_of("picky", done, NULL);
    int64_t last = 0;
    for (int i = 0; i < 40; i++) {
        last = world_append("boring-1", "Came", NULL);
    }
    run_one(&q);
    wait_idle();
    assert_true(routed("picky") >= last);
    assert_int_equal(count_notes(), 0);
}

static void T27_priorities_merge_by_maximum_and_an_operator_overrides(void **state)
{
    (void)state;
    weir_reaction a = reaction_of("a", done, NULL), b = reaction_of("b", done, NULL);
    a.to = b.to = weir__str("one");
    a.priority = -5;
    b.priority = -3;
    for (int round = 0; round < 2; round++) {
        open_engine();
        add(&a);
        add(&b);
        start();
        (void)world_append("in-1", "Came", NULL);
        wait_idle();
        assert_int_equal(world_target("one")->priority, round == 0 ? -3 : 7);
        const weir_str names[] = { weir__str("one") };
        store_operate op = { .verb = STORE_PRIORITIZE,
                             .priority = 7,
                             .filter = { .names = names, .names_count = 1 } };
        WORLD_OK(here.store->work->operate(here.store, &op, &here.err));
    }
}

/* ---- stopping and waiting ----------------------------------------------------------------- */

typedef struct gate {
    _Atomic bool open;
    _Atomic int inside;
    _Atomic bool told; /* that it should end */
} gate;

static int32_t wait_at_gate(void *ctx, weir_delivery *d)
{
    gate *g = ctx;
    take_note(d);
    atomic_fetch_add(&g->inside, 1);
    while (!atomic_load(&g->open)) {
        world_pause_us(1000);
        if (weir_delivery_interrupted(d) != 0) {
            atomic_store(&g->told, true);
        }
    }
    return WEIR_DONE;
}

static bool somebody_inside(const void *ctx)
{
    const gate *g = ctx;
    return atomic_load(&g->inside) > 0;
}

static void *open_gate_later(void *ctx)
{
    world_pause_us(150000);
    atomic_store(&((gate *)ctx)->open, true);
    return NULL;
}

static void C42_what_runs_is_waited_for_and_the_rest_is_handed_back(void **state)
{
    gate g = { 0 };
    pthread_t opener;
    (void)state;
    const weir_reaction q = reaction_of("gated", wait_at_gate, &g);
    run_one(&q);
    for (int i = 0; i < 5; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    world_await(somebody_inside, &g, "a handler runs");
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    WORLD_OK(weir_engine_stop(engine, 20000, &here.err));
    (void)pthread_join(opener, NULL);
    const size_t handled = count_notes();
    const store_target *t = world_target("on-in-1");
    assert_int_equal(handled, 1);
    assert_int_equal(t->state, STORE_TARGET_READY); /* no lease is left behind */
    assert_int_equal(t->lost, 0);
    assert_int_equal(t->subscriptions[0].retries, 0);
    assert_int_equal(t->subscriptions[0].at, notes[0].event);
    open_engine();
    add(&q);
    start();
    wait_idle();
    assert_int_equal(count_notes(), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(notes[i].attempt, 1);
    }
}

static void C42_a_handler_that_outlives_the_budget_is_told_and_charged_nothing(void **state)
{
    gate g = { 0 };
    (void)state;
    const weir_reaction q = reaction_of("gated", wait_at_gate, &g);
    run_one(&q);
    (void)world_append("in-1", "Came", NULL);
    world_await(somebody_inside, &g, "a handler runs");
    assert_false(atomic_load(&g.told));
    /* It returns at all: the handler ends when it is told, or below. */
    WORLD_IS(weir_engine_stop(engine, 100, &here.err), WEIR_EBUSY);
    for (int i = 0; i < 5000 && !atomic_load(&g.told); i++) {
        world_pause_us(1000);
    }
    atomic_store(&g.open, true); /* told or not, it has to end before we do */
    weir_engine_free(engine);
    engine = NULL;
    assert_true(atomic_load(&g.told));
    const store_target *t = world_target("on-in-1");
    assert_int_equal(t->lost, 0);
    assert_int_equal(t->subscriptions[0].retries, 0);
    assert_int_equal(t->state, STORE_TARGET_READY); /* released, for whoever is next */
}

/* What a worker has counted stays behind when it has ended; appends of the program are in it. */
static void appends_through_the_engines_handle_are_counted(void **state)
{
    (void)state;
    metrics counted = { 0 };
    store_worker_list list = { 0 };
    const weir_reaction q = reaction_of("a", done, NULL);
    run_one(&q);
    for (int i = 0; i < 5; i++) {
        world_append("in-1", "X", "{}");
    }
    wait_idle();
    WORLD_OK(weir_engine_stop(engine, 10000, &here.err));
    WORLD_OK(here.store->about->workers(here.store, &list, &here.err));
    assert_int_equal(list.workers_count, 1);
    assert_true(weir__metrics_load(&counted, list.workers[0].metrics));
    assert_int_equal(weir__metric_get(&counted, METRIC_APPENDS), 5);
    assert_int_equal(weir__metric_get(&counted, METRIC_APPENDED), 5);
    assert_int_equal(weir__metric_get(&counted, METRIC_CONFLICTS), 0);
    assert_int_equal(weir__metric_get(&counted, METRIC_HANDLED), 5);
    assert_int_equal(counted.histograms[METRIC_BATCH].sum, 5);
    weir__arena_free(&list.arena);
}

static void waiting_for_the_end_of_work_has_a_limit(void **state)
{
    gate g = { 0 };
    (void)state;
    const weir_reaction q = reaction_of("gated", wait_at_gate, &g);
    run_one(&q);
    wait_idle();
    (void)world_append("in-1", "Came", NULL);
    WORLD_IS(weir_engine_wait_idle(engine, 50, &here.err), WEIR_EBUSY);
    atomic_store(&g.open, true);
    wait_idle();
    assert_int_equal(count_notes(), 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ENGINE_TEST(what_is_wrong_is_told_at_the_start_all_at_once),
        ENGINE_TEST(null_is_refused_and_misuse_is_told),
        ENGINE_TEST(two_lanes_for_one_target_are_refused_when_declared),
        ENGINE_TEST(C33_effects_happen_once_in_order_and_name_their_cause),
        ENGINE_TEST(C33_what_a_failing_handler_staged_is_dropped),
        ENGINE_TEST(C34_a_settle_that_loses_a_race_is_run_again_and_then_is_one_failure),
        ENGINE_TEST(C27_block_stops_the_target_with_its_reason_and_unblock_goes_on_there),
        ENGINE_TEST(C29_skip_parks_the_event_in_the_way),
        ENGINE_TEST(T16_a_parked_event_is_sent_back_once_and_moves_nothing_back),
        ENGINE_TEST(C27_a_permanent_error_skips_the_retries),
        ENGINE_TEST(C27_retry_goes_on_for_ever),
        ENGINE_TEST(C44_a_poisoned_target_stops_no_other),
        ENGINE_TEST(act_8_1_E_to_defer_inside_a_batch_is_no_failure_and_keeps_what_was_done),
        ENGINE_TEST(C33_a_projection_gets_batches_in_order_and_the_native_handle),
        ENGINE_TEST(a_projection_that_fails_is_undone_and_costs_its_first_event_a_retry),
        ENGINE_TEST(pulled_deliveries_are_settled_with_their_effects),
        ENGINE_TEST(what_was_pulled_and_outlives_its_engine_is_lost),
        ENGINE_TEST(a_pulled_delivery_that_failed_comes_again),
        ENGINE_TEST(act_8_1_B_two_reactions_with_different_sources_on_one_target_are_both_served),
        ENGINE_TEST(act_8_1_O_a_new_reaction_sees_history_without_a_new_event),
        ENGINE_TEST(C31_the_history_of_a_new_reaction_stops_nobody_on_its_target),
        ENGINE_TEST(act_8_1_P_a_resolver_that_fails_on_one_event_stops_nothing),
        ENGINE_TEST(act_8_1_J_progress_over_events_of_no_interest_is_kept),
        ENGINE_TEST(T27_priorities_merge_by_maximum_and_an_operator_overrides),
        ENGINE_TEST(C42_what_runs_is_waited_for_and_the_rest_is_handed_back),
        ENGINE_TEST(C42_a_handler_that_outlives_the_budget_is_told_and_charged_nothing),
        ENGINE_TEST(appends_through_the_engines_handle_are_counted),
        ENGINE_TEST(waiting_for_the_end_of_work_has_a_limit),
    };
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
