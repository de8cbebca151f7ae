/* load_test.c - the engine through weir.h with much to do at once, on one kind of store: several
 * engines, several appending threads, long backlogs. What other engines are known to get wrong
 * then has their number in its name.
 */
#include "world.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { ENGINES_MAX = 2, NOTES_MAX = 5000 };

static weir_engine *engines[ENGINES_MAX];
static int64_t notes[NOTES_MAX]; /* events, in the order in which handlers were given them */
static _Atomic size_t notes_count;
static _Atomic size_t leased_count;
static _Atomic size_t heap_bytes_max;

static int load_set_up(void **state)
{
    atomic_store(&notes_count, 0);
    atomic_store(&leased_count, 0);
    atomic_store(&heap_bytes_max, 0);
    return world_set_up(state);
}

static int load_tear_down(void **state)
{
    for (size_t i = 0; i < ENGINES_MAX; i++) {
        weir_engine_free(engines[i]);
        engines[i] = NULL;
    }
    return world_tear_down(state);
}
#define LOAD_TEST(f) cmocka_unit_test_setup_teardown(f, load_set_up, load_tear_down)

static void count_leases(void *ctx, int32_t level, weir_str event, weir_str json)
{
    (void)ctx;
    (void)level;
    (void)json;
    if (weir__str_equal(event, weir__str("leased"))) {
        atomic_fetch_add(&leased_count, 1);
    }
}

/* Every event of streams "in-*". */
static weir_reaction reaction_to(const char *target, weir_handle_fn handle)
{
    return (weir_reaction){ WEIR_REACTION_INIT,          .name = weir__str("r"),
                            .source = weir__str("in-*"), .to = weir__str(target),
                            .from = WEIR_FROM_START,     .handle = handle };
}

static void start(size_t index, const weir_reaction *reaction)
{
    const weir_engine_options options = { WEIR_ENGINE_OPTIONS_INIT, .log = count_leases };
    const weir_lane lane = { WEIR_LANE_INIT, .name = weir__str("default"), .cycle_us = 100000 };
    WORLD_OK(weir_engine_open(here.w, &options, &engines[index], &here.err));
    WORLD_OK(weir_engine_lane(engines[index], &lane, &here.err));
    WORLD_OK(weir_engine_reaction(engines[index], reaction, &here.err));
    WORLD_OK(weir_engine_start(engines[index], &here.err));
}

static void wait_idle(size_t index)
{
    WORLD_OK(weir_engine_wait_idle(engines[index], 60000, &here.err));
}

static void take_note(const weir_delivery *d)
{
    const size_t index = atomic_fetch_add(&notes_count, 1);
    if (index < NOTES_MAX) {
        notes[index] = weir_delivery_event(d)->id;
    }
}

static int32_t note_only(void *ctx, weir_delivery *d)
{
    (void)ctx;
    take_note(d);
    return WEIR_DONE;
}

/* ---- appending --------------------------------------------------------------------------- */

static int32_t stage_into_one_stream(void *ctx, weir_delivery *d)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("shared"),
                                   .name = weir__str("Done") };
    const weir_new_event *const events[] = { &event };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1 };
    (void)ctx;
    take_note(d);
    return weir_stage_append(d, &request, NULL) == WEIR_OK ? WEIR_DONE : WEIR_PERMANENT;
}

static void
act_8_1_I_handlers_that_append_to_one_stream_without_expectation_never_conflict(void **state)
{
    char stream[32];
    const weir_reaction q = reaction_to("{stream}", stage_into_one_stream);
    (void)state;
    for (int i = 0; i < 160; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % 16);
        (void)world_append(stream, "Came", NULL);
    }
    start(0, &q);
    wait_idle(0);
    assert_int_equal(world_read("shared", NULL, NULL), 160);
    assert_int_equal(atomic_load(&notes_count), 160); /* none was run again */
}

static _Atomic int append_errors;

static void *append_many(void *ctx)
{
    weir_error err;
    for (int i = 0; i < 100; i++) {
        if (world_try_append(here.w, ctx, "Came", NULL, NULL, &err) != WEIR_OK) {
            atomic_fetch_add(&append_errors, 1);
        }
    }
    return NULL;
}

static void act_8_1_M_nothing_is_stepped_over_while_appends_race(void **state)
{
    enum { THREADS = 4 };
    static char streams[THREADS][16];
    pthread_t threads[THREADS];
    const weir_reaction q = reaction_to("one", note_only);
    (void)state;
    atomic_store(&append_errors, 0);
    start(0, &q);
    for (int i = 0; i < THREADS; i++) {
        (void)snprintf(streams[i], sizeof streams[i], "in-%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, append_many, streams[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    wait_idle(0);
    assert_int_equal(atomic_load(&append_errors), 0);
    assert_int_equal(atomic_load(&notes_count), THREADS * 100);
    for (size_t i = 1; i < THREADS * 100; i++) {
        assert_true(notes[i] > notes[i - 1]); /* one target: in the order of the log */
    }
}

/* ---- leasing ----------------------------------------------------------------------------- */

static void act_8_1_K_a_target_is_leased_for_its_work_and_never_without(void **state)
{
    enum { TARGETS = 200 };
    char stream[32];
    const weir_reaction q = reaction_to("{stream}", note_only);
    (void)state;
    for (int i = 0; i < TARGETS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        (void)world_append(stream, "Came", NULL);
    }
    start(0, &q);
    start(1, &q);
    wait_idle(0);
    wait_idle(1);
    assert_int_equal(atomic_load(&notes_count), TARGETS);
    assert_int_equal(atomic_load(&leased_count), TARGETS);
}

static void act_8_1_G_a_holder_cannot_move_its_own_position_back(void **state)
{
    const weir_reaction q = reaction_to("one", NULL);
    weir_delivery *d = NULL;
    (void)state;
    const int64_t first = world_append("in-1", "Came", NULL);
    (void)world_append("in-1", "Came", NULL);
    start(0, &q);
    for (int i = 0; i < 2; i++) {
        WORLD_OK(weir_next(engines[0], 30000, &d, &here.err));
        if (i == 0) {
            WORLD_OK(weir_settle(engines[0], d, WEIR_DONE, &here.err));
        }
    }
    const store_target *t = world_target("one");
    assert_int_equal(t->subscriptions[0].at, first);
    const store_advance back = { .reaction = t->subscriptions[0].reaction, .to = first - 1 };
    store_settle settle = { .target = t->id,
                            .fence = weir_delivery_fence(d),
                            .advances = &back,
                            .advances_count = 1,
                            .end = STORE_END_KEEP,
                            .lease_us = 5000000 };
    const weir_status status = here.store->work->settle(here.store, &settle, &here.err);
    assert_true(status == WEIR_OK || status == WEIR_EINVAL);
    assert_int_equal(world_target("one")->subscriptions[0].at, first);
    WORLD_OK(weir_settle(engines[0], d, WEIR_DONE, &here.err));
    wait_idle(0);
}

/* ---- memory ------------------------------------------------------------------------------ */

static int32_t watch_the_heap(void *ctx, weir_delivery *d)
{
    const size_t bytes = mallinfo2().uordblks;
    size_t before = atomic_load(&heap_bytes_max);
    (void)ctx;
    while (bytes > before && !atomic_compare_exchange_weak(&heap_bytes_max, &before, bytes)) {
    }
    take_note(d);
    return WEIR_DONE;
}

static void act_8_1_L_a_long_backlog_is_never_in_memory_at_once(void **state)
{
    enum { EVENTS = 4000, BYTES = 8 * 1024, ROOM_BYTES = EVENTS * BYTES / 2 };
    static char data[BYTES];
    const weir_reaction q = reaction_to("one", watch_the_heap);
    (void)state;
    memset(data, 'x', sizeof data);
    memcpy(data, "{\"x\":\"", 6);
    memcpy(data + sizeof data - 3, "\"}", 3);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("in-1"),
                                   .name = weir__str("Came"), .data = weir__str(data) };
    const weir_new_event *events[100];
    for (size_t i = 0; i < 100; i++) {
        events[i] = &event;
    }
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 100 };
    for (int i = 0; i < EVENTS / 100; i++) {
        WORLD_OK(weir_append(here.w, &request, NULL, &here.err));
    }
    const size_t before = mallinfo2().uordblks;
    start(0, &q);
    wait_idle(0);
    assert_int_equal(atomic_load(&notes_count), EVENTS);
    const size_t most = atomic_load(&heap_bytes_max);
    print_message("heap: %zu KiB more at most\n", most > before ? (most - before) / 1024 : 0);
    assert_true(most < before + ROOM_BYTES);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        LOAD_TEST(act_8_1_I_handlers_that_append_to_one_stream_without_expectation_never_conflict),
        LOAD_TEST(act_8_1_M_nothing_is_stepped_over_while_appends_race),
        LOAD_TEST(act_8_1_K_a_target_is_leased_for_its_work_and_never_without),
        LOAD_TEST(act_8_1_G_a_holder_cannot_move_its_own_position_back),
        LOAD_TEST(act_8_1_L_a_long_backlog_is_never_in_memory_at_once),
    };
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
