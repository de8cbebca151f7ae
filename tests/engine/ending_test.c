/* ending_test.c - ending handles and engines from one thread while others are inside: calls that
 * wait are woken, calls inside are waited for, later calls are refused, and nothing else happens.
 *
 * Method: eight threads that call whatever there is, again and again, until they are refused, and
 * one that ends what they use. What they may be told is checked after each call. Under the
 * sanitizers the same shows that nobody touches what has ended.
 */
#include "base/thread.h"
#include "world.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 8, FOR_EVER = -1 };

static weir_engine *engine;

/* ---- engines ------------------------------------------------------------------------------ */

static int32_t handle_later(void *ctx, weir_delivery *d)
{
    (void)ctx;
    weir_delivery_defer(d, INT64_MAX / 2);
    return WEIR_DEFER;
}

/* A reaction to "Pull" for weir_next, and one to "Later" that is never done. */
static void engine_run(weir *w)
{
    const weir_str pull[] = { weir__str("Pull") }, later[] = { weir__str("Later") };
    const weir_reaction pulled = {
        WEIR_REACTION_INIT, .name = weir__str("pulled"),   .on = pull,
        .on_count = 1,      .to = weir__str("p-{stream}"), .from = WEIR_FROM_START
    };
    const weir_reaction deferred = {
        WEIR_REACTION_INIT,    .name = weir__str("deferred"), .on = later,
        .on_count = 1,         .to = weir__str("later"),      .from = WEIR_FROM_START,
        .handle = handle_later
    };
    WORLD_OK(weir_engine_open(w, NULL, &engine, &here.err));
    WORLD_OK(weir_engine_reaction(engine, &pulled, &here.err));
    WORLD_OK(weir_engine_reaction(engine, &deferred, &here.err));
    WORLD_OK(weir_engine_start(engine, &here.err));
}

/* ---- threads ------------------------------------------------------------------------------ */

typedef struct caller {
    pthread_t thread;
    weir *w;
    weir_engine *e;
    int number;
    _Atomic int calls;       /* that have returned */
    _Atomic int32_t answers; /* the last answer */
    _Atomic bool odd;        /* an answer that may not be */
} caller;

static caller callers[THREADS];

static void callers_start(weir *w, void *(*run)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (caller){ .w = w, .e = engine, .number = i };
        assert_int_equal(pthread_create(&callers[i].thread, NULL, run, &callers[i]), 0);
    }
}

static void callers_join(void)
{
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(callers[i].thread, NULL);
        if (callers[i].odd) {
            fail_msg("thread %d was answered %s", i, weir_status_text(callers[i].answers));
        }
    }
}

static bool all_have_called(const void *ctx)
{
    (void)ctx;
    for (int i = 0; i < THREADS; i++) {
        if (atomic_load(&callers[i].calls) < 2) {
            return false;
        }
    }
    return true;
}

/* What is answered, and whether to go on: until the handle is refused. */
static bool answered(caller *c, int32_t status, const int32_t *allowed)
{
    atomic_store(&c->answers, status);
    atomic_fetch_add(&c->calls, 1);
    if (status == WEIR_EMISUSE) {
        return false;
    }
    bool known = status == WEIR_OK;
    for (; *allowed != WEIR_OK; allowed++) {
        known = known || status == *allowed;
    }
    if (!known) {
        atomic_store(&c->odd, true);
    }
    return known;
}

/* ---- waits -------------------------------------------------------------------------------- */

static _Atomic int begun;

/* Waits without end, once, in one of three ways. */
static void *wait_main(void *arg)
{
    caller *c = arg;
    weir_delivery *d = NULL;
    const weir_event *event = NULL;
    weir_reader *reader = NULL;
    const weir_log_options follow = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    if (c->e == NULL || c->number % 3 == 2) {
        int32_t status = weir_log_open(c->w, &follow, &reader, NULL);
        do {
            status = status != WEIR_OK ? status : weir_reader_next(reader, 0, &event, NULL);
        } while (status == WEIR_OK && event != NULL);
        atomic_fetch_add(&begun, 1);
        atomic_store(&c->answers,
                     status != WEIR_OK ? status : weir_reader_next(reader, FOR_EVER, &event, NULL));
        weir_reader_close(reader);
    } else {
        atomic_fetch_add(&begun, 1);
        atomic_store(&c->answers, c->number % 3 == 0 ? weir_next(c->e, FOR_EVER, &d, NULL)
                                                     : weir_engine_wait_idle(c->e, FOR_EVER, NULL));
    }
    atomic_fetch_add(&c->calls, 1);
    return NULL;
}

static bool is_deferred(const void *ctx)
{
    (void)ctx;
    const store_target *t = world_target("later");
    return t != NULL && t->due_us != 0;
}

static bool all_have_begun(const void *ctx)
{
    (void)ctx;
    return atomic_load(&begun) == THREADS;
}

/* Eight threads wait on the handle, or are just about to. */
static void wait_begin(weir *w)
{
    atomic_store(&begun, 0);
    callers_start(w, wait_main);
    world_await(all_have_begun, NULL, "eight waits");
}

static void C42_a_call_that_waits_is_told_of_the_stop(void **state)
{
    (void)state;
    engine_run(here.w);
    (void)world_append("s", "Later", NULL);
    world_await(is_deferred, NULL, "an event that waits"); /* so that it is never idle */
    wait_begin(here.w);
    WORLD_OK(weir_engine_stop(engine, 1000, &here.err));
    for (int i = 0; i < THREADS; i++) {
        if (i % 3 != 2) { /* a reader has nothing to do with the engine */
            (void)pthread_join(callers[i].thread, NULL);
            /* Who had not begun to wait was refused. */
            assert_true(callers[i].answers == WEIR_ENOTFOUND || callers[i].answers == WEIR_EMISUSE);
        }
    }
    WORLD_IS(weir_next(engine, 0, &(weir_delivery *){ NULL }, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_engine_wait_idle(engine, 0, &here.err), WEIR_EMISUSE);
    (void)world_append("s", "Other", NULL); /* what the readers wait for */
    for (int i = 2; i < THREADS; i += 3) {
        (void)pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].answers, WEIR_OK);
    }
    weir_engine_free(engine);
    WORLD_IS(weir_next(engine, 0, &(weir_delivery *){ NULL }, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_engine_stop(engine, 0, &here.err), WEIR_EMISUSE);
    assert_int_equal(weir_engine_fd(engine), -1);
    weir_engine_free(engine); /* a second time */
}

static bool all_are_out(const void *ctx)
{
    weir *w = here.w;
    (void)ctx;
    for (int i = 0; i < THREADS; i++) {
        if (atomic_load(&callers[i].calls) == 0) {
            weir_interrupt(w); /* it may not have begun to wait when it was interrupted first */
            return false;
        }
    }
    return true;
}

static void an_interrupt_ends_the_waits_under_way_and_no_later_ones(void **state)
{
    (void)state;
    weir_reader *reader = NULL;
    const weir_event *event = NULL;
    weir_delivery *d = NULL;
    const weir_log_options follow = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    weir_interrupt(NULL);
    engine_run(here.w);
    (void)world_append("s", "Later", NULL);
    world_await(is_deferred, NULL, "an event that waits");
    for (int round = 0; round < 20; round++) {
        wait_begin(here.w);
        world_await(all_are_out, NULL, "the end of eight waits");
        callers_join();
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(callers[i].answers, WEIR_EINTERRUPTED);
        }
    }
    weir_interrupt(here.w); /* nobody waits: nothing is kept for later */
    WORLD_OK(weir_log_open(here.w, &follow, &reader, &here.err));
    do {
        WORLD_OK(weir_reader_next(reader, 0, &event, &here.err));
    } while (event != NULL);
    WORLD_OK(weir_reader_next(reader, 20, &event, &here.err));
    assert_null(event);
    WORLD_IS(weir_next(engine, 20, &d, &here.err), WEIR_ENOTFOUND);
    WORLD_IS(weir_engine_wait_idle(engine, 20, &here.err), WEIR_EBUSY);
    (void)world_append("s", "Pull", NULL);
    WORLD_OK(weir_reader_next(reader, FOR_EVER, &event, &here.err));
    assert_non_null(event);
    WORLD_OK(weir_next(engine, FOR_EVER, &d, &here.err));
    WORLD_OK(weir_settle(engine, d, WEIR_DONE, &here.err));
    weir_reader_close(reader);
    weir_engine_free(engine);
}

static void C42_closing_ends_the_waits(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        weir *w = NULL;
        const weir_options o = { WEIR_OPTIONS_INIT, .store_url = here.url };
        WORLD_OK(weir_open(&o, &w, &here.err));
        engine_run(w);
        (void)world_append("s", "Later", NULL);
        world_await(is_deferred, NULL, "an event that waits");
        wait_begin(w);
        weir_close(w);
        for (int i = 0; i < THREADS; i++) {
            (void)pthread_join(callers[i].thread, NULL);
            assert_true(callers[i].answers == WEIR_EINTERRUPTED ||
                        callers[i].answers == WEIR_EMISUSE);
        }
        /* The engine outlives the handle, and can be ended. */
        WORLD_IS(weir_next(engine, 0, &(weir_delivery *){ NULL }, &here.err), WEIR_EMISUSE);
        WORLD_OK(weir_engine_stop(engine, 1000, &here.err));
        weir_engine_free(engine);
        weir_close(w);
        weir_interrupt(w);
    }
}

/* ---- a settle ----------------------------------------------------------------------------- */

static _Atomic bool in_gate, gate_open;

/* In the transaction of the settle. */
static int32_t wait_at_the_gate(void *ctx, void *native, weir_error *err)
{
    (void)ctx;
    (void)native;
    (void)err;
    atomic_store(&in_gate, true);
    while (!atomic_load(&gate_open)) {
        world_pause_us(1000);
    }
    return WEIR_OK;
}

static void *settle_main(void *arg)
{
    caller *c = arg;
    weir_delivery *d = NULL;
    int32_t status = weir_next(c->e, FOR_EVER, &d, NULL);
    status = status != WEIR_OK ? status : weir_stage_sql(d, wait_at_the_gate, NULL, NULL);
    atomic_store(&c->answers, status != WEIR_OK ? status : weir_settle(c->e, d, WEIR_DONE, NULL));
    return NULL;
}

static bool gate_is_reached(const void *ctx)
{
    (void)ctx;
    return atomic_load(&in_gate);
}

static void C42_a_settle_that_runs_is_waited_for(void **state)
{
    (void)state;
    atomic_store(&in_gate, false);
    atomic_store(&gate_open, false);
    engine_run(here.w);
    (void)world_append("s", "Pull", NULL);
    callers[0] = (caller){ .w = here.w, .e = engine };
    assert_int_equal(pthread_create(&callers[0].thread, NULL, settle_main, &callers[0]), 0);
    world_await(gate_is_reached, NULL, "a settle");
    if (world_is("memory")) { /* nobody gets anything from it meanwhile, not even the stop */
        atomic_store(&gate_open, true);
    } else {
        WORLD_IS(weir_engine_stop(engine, 0, &here.err), WEIR_EBUSY);
        atomic_store(&gate_open, true);
    }
    weir_engine_free(engine); /* after the settle */
    (void)pthread_join(callers[0].thread, NULL);
    assert_int_equal(callers[0].answers, WEIR_OK);
    assert_int_equal(world_target("p-s")->state, STORE_TARGET_IDLE);
}

/* ---- calls -------------------------------------------------------------------------------- */

/* Everything that takes an engine, until it is refused. */
static void *engine_main(void *arg)
{
    caller *c = arg;
    static const int32_t allowed[] = { WEIR_ENOTFOUND, WEIR_EBUSY, WEIR_ELOST, WEIR_OK };
    unsigned turn = (unsigned)c->number;
    bool go_on = true;
    while (go_on) {
        weir_delivery *d = NULL;
        int32_t status = WEIR_OK;
        switch (turn++ % 4) {
        case 0:
        case 1:
            status = weir_next(c->e, 5, &d, NULL);
            if (status == WEIR_OK) {
                (void)world_try_append(c->w, "s", "Pull", NULL, NULL, NULL);
                status = weir_settle(c->e, d, WEIR_DONE, NULL);
                /* It ends, whatever became of the engine. */
                while (status == WEIR_EMISUSE || status == WEIR_EBUSY) {
                    status = weir_settle(c->e, d, WEIR_DONE, NULL);
                }
            }
            break;
        case 2:
            status = weir_engine_wait_idle(c->e, 5, NULL);
            break;
        default:
            (void)weir_engine_fd(c->e);
            break;
        }
        go_on = answered(c, status, allowed);
    }
    return NULL;
}

static void C42_eight_threads_use_an_engine_while_it_is_stopped_and_freed(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        engine_run(here.w);
        (void)world_append("a", "Pull", NULL);
        (void)world_append("b", "Pull", NULL);
        callers_start(here.w, engine_main);
        world_await(all_have_called, NULL, "calls of all threads");
        if (round % 2 == 0) {
            const int32_t status = weir_engine_stop(engine, round * 5, &here.err);
            assert_true(status == WEIR_OK || status == WEIR_EBUSY);
        }
        weir_engine_free(engine);
        callers_join();
    }
}

static int read_some(void *ctx, const weir_event *event)
{
    (void)event;
    return ++*(int *)ctx >= 20;
}

/* Everything that takes a handle, until it is refused. */
static void *handle_main(void *arg)
{
    caller *c = arg;
    static const int32_t allowed[] = { WEIR_EINTERRUPTED, WEIR_EBUSY, WEIR_OK };
    const weir_read_options one = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    const weir_log_options follow = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    unsigned turn = (unsigned)c->number;
    bool go_on = true;
    while (go_on) {
        const weir_event *event = NULL;
        const weir_stream *info = NULL;
        weir_reader *reader = NULL;
        int64_t head = 0;
        int count = 0;
        int32_t status = WEIR_OK;
        switch (turn++ % 6) {
        case 0:
            status = world_try_append(c->w, "s", "Other", NULL, NULL, NULL);
            break;
        case 1:
            status = weir_read(c->w, &one, read_some, &count, NULL);
            break;
        case 2:
            status = weir_log_open(c->w, &follow, &reader, NULL);
            for (int i = 0; i < 20 && status == WEIR_OK; i++) {
                /* Half of them only: the others append and interrupt. */
                status = weir_reader_next(reader, c->number % 2 == 0 ? FOR_EVER : 1, &event, NULL);
            }
            weir_reader_close(reader); /* perhaps after the handle */
            break;
        case 3:
            status = weir_positions(c->w, &head, NULL, NULL);
            break;
        case 4:
            status = weir_stream_info(c->w, weir__str("s"), &info, NULL);
            weir_stream_free(status == WEIR_OK ? info : NULL);
            break;
        default:
            weir_wake(c->w);
            weir_interrupt(c->w);
            break;
        }
        go_on = answered(c, status, allowed);
    }
    return NULL;
}

static void C42_eight_threads_use_a_handle_while_it_is_closed(void **state)
{
    (void)state;
    (void)world_append("s", "Other", NULL);
    engine = NULL;
    for (int round = 0; round < 10; round++) {
        weir *w = NULL;
        const weir_options o = { WEIR_OPTIONS_INIT, .store_url = here.url };
        WORLD_OK(weir_open(&o, &w, &here.err));
        callers_start(w, handle_main);
        world_await(all_have_called, NULL, "calls of all threads");
        weir_close(w);
        callers_join();
        WORLD_IS(weir_positions(w, NULL, NULL, &here.err), WEIR_EMISUSE);
    }
}

/* ---- one thread --------------------------------------------------------------------------- */

static int close_it(void *ctx, const weir_event *event)
{
    (void)event;
    weir_close(*(weir **)ctx);
    return 0;
}

static void a_callback_may_close_the_handle_it_is_called_for(void **state)
{
    (void)state;
    weir *w = NULL;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = here.url };
    (void)world_append("s", "Other", NULL);
    (void)world_append("s", "Other", NULL);
    WORLD_OK(weir_open(&o, &w, &here.err));
    WORLD_IS(weir_log(w, NULL, close_it, &w, &here.err), WEIR_EMISUSE);
    WORLD_IS(weir_log(w, NULL, close_it, &w, &here.err), WEIR_EMISUSE);
}

static void readers_engines_and_deliveries_may_outlive_their_handle(void **state)
{
    (void)state;
    weir *w = NULL;
    weir_reader *reader = NULL;
    weir_delivery *d = NULL;
    const weir_event *event = NULL;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = here.url };
    const weir_log_options follow = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    WORLD_OK(weir_open(&o, &w, &here.err));
    engine_run(w);
    (void)world_append("s", "Pull", NULL);
    WORLD_OK(weir_log_open(w, &follow, &reader, &here.err));
    WORLD_OK(weir_reader_next(reader, 0, &event, &here.err));
    WORLD_OK(weir_next(engine, FOR_EVER, &d, &here.err));
    weir_close(w);
    WORLD_IS(weir_reader_next(reader, 0, &event, &here.err), WEIR_EMISUSE);
    assert_true(weir_reader_fd(reader) >= 0);
    weir_engine_free(engine);
    assert_true(weir__str_equal(weir_delivery_reaction(d), weir__str("pulled")));
    assert_true(weir__str_equal(weir_delivery_target(d), weir__str("p-s")));
    assert_int_equal(weir_delivery_interrupted(d), 1);
    WORLD_IS(weir_settle(engine, d, WEIR_DONE, &here.err), WEIR_ELOST);
    weir_reader_close(reader);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(C42_a_call_that_waits_is_told_of_the_stop),
        WORLD_TEST(C42_a_settle_that_runs_is_waited_for),
        WORLD_TEST(C42_eight_threads_use_an_engine_while_it_is_stopped_and_freed),
        WORLD_TEST(an_interrupt_ends_the_waits_under_way_and_no_later_ones),
        WORLD_TEST(C42_closing_ends_the_waits),
        WORLD_TEST(C42_eight_threads_use_a_handle_while_it_is_closed),
        WORLD_TEST(a_callback_may_close_the_handle_it_is_called_for),
        WORLD_TEST(readers_engines_and_deliveries_may_outlive_their_handle),
    };
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
