/* public.c - guarantees that only show through weir.h: readers with callbacks, appends from many
 * threads, and failures of the store below, which must be reported and leave the handle usable.
 */
#include "kit.h"

#include "api/api.h"
#include "store/fault/fault.h"

#include <stdio.h>
#include <string.h>

static weir *public_open(kit *k)
{
    char url[KIT_PLACE_BYTES + 64];
    weir *w = NULL;
    k->adapter->url(k->place, url, sizeof url);
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    KIT_OK(k, (weir_status)weir_open(&o, &w, &k->err));
    return w;
}

static int32_t public_append(weir *w, const char *stream, weir_error *err)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str("A") };
    const weir_new_event *events[] = { &event };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    return weir_append(w, &r, NULL, err);
}

/* ---- C18 ---------------------------------------------------------------------------------- */

typedef struct slow {
    kit *k;
    weir *other;
    size_t given;
    size_t appended;
    size_t failures;
    bool busy; /* a transaction was open during the callback */
} slow;

/* A reader in no hurry: others write, and nobody waits for it. */
static int slow_event(void *ctx, const weir_event *event)
{
    slow *s = ctx;
    weir_error err;
    s->given++;
    if (s->given % 100 == 1 && s->appended < 30) {
        s->failures += public_append(s->other, "meanwhile", &err) != WEIR_OK;
        s->appended++;
        s->busy = s->busy || (s->k->adapter->quiet != NULL && !s->k->adapter->quiet(s->k->place));
    }
    return event->id == 0;
}

static void C18_a_slow_reader_holds_no_transaction(void **state)
{
    kit *k = *state;
    enum { COUNT = 2400 };
    for (int i = 0; i < COUNT / 60; i++) {
        kit_append a;
        kit_append_init(&a);
        const uint32_t s = kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0);
        for (int j = 0; j < 60; j++) {
            kit_append_event(&a, s, "A", "{}");
        }
        KIT_OK(k, kit_append_run(k->store, &a));
    }
    weir *reader = public_open(k);
    slow s = { .k = k, .other = public_open(k) };
    KIT_OK(k, (weir_status)weir_log(reader, NULL, slow_event, &s, &k->err));
    assert_int_equal(s.failures, 0);
    assert_false(s.busy);
    assert_true(s.appended >= 24);
    assert_true(s.given >= COUNT && s.given <= COUNT + s.appended);
    s.given = s.appended = 0;
    const weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    KIT_OK(k, (weir_status)weir_read(reader, &o, slow_event, &s, &k->err));
    assert_int_equal(s.given, COUNT);
    assert_false(s.busy);
    assert_int_equal(s.failures, 0);
    weir_close(s.other);
    weir_close(reader);
}

/* ---- C16 ---------------------------------------------------------------------------------- */

static int count_event(void *ctx, const weir_event *event)
{
    size_t *count = ctx;
    (void)event;
    (*count)++;
    return 0;
}

static void C16_a_position_beyond_the_log_is_rewound(void **state)
{
    kit *k = *state;
    const int64_t id = kit_put(k, "s", "A");
    weir *w = public_open(k);
    size_t count = 0;
    weir_log_options o = { WEIR_LOG_OPTIONS_INIT, .fields = WEIR_HAS_AFTER, .after = id };
    KIT_OK(k, (weir_status)weir_log(w, &o, count_event, &count, &k->err));
    assert_int_equal(count, 0);
    o.after = id + 1;
    KIT_IS(k, (weir_status)weir_log(w, &o, count_event, &count, &k->err), WEIR_EREWOUND);
    assert_int_equal(count, 0);
    weir_close(w);
}

/* ---- C13 ---------------------------------------------------------------------------------- */

enum { THREADS = 16, APPENDS = 50 };

typedef struct crowd {
    weir *w;
    _Atomic size_t ok, conflicts, wrong;
} crowd;

static void crowd_append(void *ctx, size_t index)
{
    crowd *c = ctx;
    for (int64_t i = 0; i < APPENDS; i++) {
        char stream[32];
        snprintf(stream, sizeof stream, "c-%zu", index);
        const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                       .name = weir__str("A") };
        const weir_new_event *events[] = { &event };
        const weir_expectation e = { WEIR_EXPECTATION_INIT, .stream = weir__str(stream),
                                     .expect = i % 5 == 4 ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY };
        const weir_expectation *expectations[] = { &e };
        const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                        .events_count = 1, .expectations = expectations,
                                        .expectations_count = 1 };
        const weir_append_result *result = NULL;
        weir_error err;
        const int32_t status = weir_append(c->w, &r, &result, &err);
        const int64_t next = i - i / 5;
        if (i % 5 == 4) {
            const bool right = status == WEIR_ECONFLICT && err.actual == next - 1 &&
                               strcmp(err.stream, stream) == 0;
            atomic_fetch_add(right ? &c->conflicts : &c->wrong, 1);
        } else {
            const bool right = status == WEIR_OK && result->streams_count == 1 &&
                               result->streams[0]->first == next;
            atomic_fetch_add(right ? &c->ok : &c->wrong, 1);
        }
        weir_append_result_free(result);
    }
}

static void C13_threads_of_one_handle_share_transactions(void **state)
{
    kit *k = *state;
    crowd c = { .w = public_open(k) };
    weir_store *s = weir__store(c.w);
    store_stats before;
    store_stats after;
    KIT_OK(k, s->about->stats(s, &before, &k->err));
    kit_threads(THREADS, crowd_append, &c);
    KIT_OK(k, s->about->stats(s, &after, &k->err));
    assert_int_equal(atomic_load(&c.wrong), 0);
    assert_int_equal(atomic_load(&c.ok), THREADS * APPENDS * 4 / 5);
    assert_int_equal(atomic_load(&c.conflicts), THREADS * APPENDS / 5);
    if (s->log->group_commit) {
        assert_true(after.transactions - before.transactions < THREADS * APPENDS);
    }
    weir_close(c.w);
    kit_check_log(k, kit_log(k));
}

/* ---- P07: failures of the store ------------------------------------------------------------ */

static int stop_never(void *ctx, const weir_stream *info)
{
    (void)ctx;
    (void)info;
    return 0;
}

/* One public call that needs the verb; it must say what the store said. */
static int32_t public_call(weir *w, fault_verb verb, weir_error *err)
{
    const weir_read_options read = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    const weir_log_options follow = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    const weir_stream *info = NULL;
    weir_reader *reader = NULL;
    size_t count = 0;
    int64_t head = 0;
    int32_t status = WEIR_EMISUSE;
    if (verb == FAULT_APPEND) {
        status = public_append(w, "s", err);
    } else if (verb == FAULT_READ_STREAM) {
        status = weir_read(w, &read, count_event, &count, err);
        assert_true(status == WEIR_OK || count == 0);
    } else if (verb == FAULT_READ_LOG) {
        status = weir_log(w, NULL, count_event, &count, err);
        assert_true(status == WEIR_OK || count == 0);
    } else if (verb == FAULT_STREAM_INFO) {
        status = weir_stream_info(w, weir__str("s"), &info, err);
        assert_true((status == WEIR_OK) == (info != NULL));
        weir_stream_free(info);
    } else if (verb == FAULT_STREAMS) {
        status = weir_streams(w, NULL, stop_never, NULL, err);
    } else if (verb == FAULT_POSITIONS) {
        status = weir_positions(w, &head, NULL, err);
        assert_true((status == WEIR_OK) == (head > 0));
    } else if (verb == FAULT_WATCH_OPEN) {
        status = weir_log_open(w, &follow, &reader, err);
        assert_true((status == WEIR_OK) == (reader != NULL));
        weir_reader_close(reader);
    }
    return status;
}

static void P07_every_failure_of_the_store_is_reported_and_passes(void **state)
{
    kit *k = *state;
    static const fault_verb verbs[] = { FAULT_APPEND,    FAULT_READ_STREAM, FAULT_READ_LOG,
                                        FAULT_STREAMS,   FAULT_STREAM_INFO, FAULT_POSITIONS,
                                        FAULT_WATCH_OPEN };
    static const weir_status statuses[] = { WEIR_EIO, WEIR_ENOMEM, WEIR_EBUSY, WEIR_EUNAVAILABLE };
    kit_put(k, "s", "A");
    char text[KIT_PLACE_BYTES + 64];
    k->adapter->url(k->place, text, sizeof text);
    store_url url = { 0 };
    weir_store *inner = NULL;
    weir_store *fault = NULL;
    weir *w = NULL;
    KIT_OK(k, weir__url_parse(&url, text, &k->err));
    KIT_OK(k, weir__store_open(&inner, &url, &k->err));
    KIT_OK(k, weir__fault_open(&fault, inner, &k->err));
    KIT_OK(k, weir__open_store(&w, fault, &url, &k->err));
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        for (size_t j = 0; j < sizeof statuses / sizeof statuses[0]; j++) {
            const fault_plan plan = {
                .verb = verbs[i], .action = FAULT_FAIL_BEFORE, .nth = 1, .status = statuses[j]
            };
            weir__fault_set(fault, &plan);
            KIT_IS(k, (weir_status)public_call(w, verbs[i], &k->err), statuses[j]);
            assert_int_equal(k->err.code, statuses[j]);
            assert_true(k->err.message[0] != '\0');
            assert_int_equal(weir__fault_hits(fault), 1);
            KIT_OK(k, (weir_status)public_call(w, verbs[i], &k->err)); /* and works again */
        }
    }
    weir_close(w);
    kit_check_log(k, kit_log(k));
}

static void P07_an_append_that_failed_after_the_commit_is_not_repeated(void **state)
{
    kit *k = *state;
    char text[KIT_PLACE_BYTES + 64];
    k->adapter->url(k->place, text, sizeof text);
    store_url url = { 0 };
    weir_store *inner = NULL;
    weir_store *fault = NULL;
    weir *w = NULL;
    KIT_OK(k, weir__url_parse(&url, text, &k->err));
    KIT_OK(k, weir__store_open(&inner, &url, &k->err));
    KIT_OK(k, weir__fault_open(&fault, inner, &k->err));
    KIT_OK(k, weir__open_store(&w, fault, &url, &k->err));
    const fault_plan plan = {
        .verb = FAULT_APPEND, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
    };
    weir__fault_set(fault, &plan);
    KIT_IS(k, (weir_status)public_append(w, "s", &k->err), WEIR_EUNKNOWN);
    assert_int_equal(weir__fault_calls(fault, FAULT_APPEND), 1);
    assert_int_equal(kit_version(k, "s"), 0);
    weir_close(w);
}

kit_theme kit_public(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C18_a_slow_reader_holds_no_transaction),
        KIT_TEST(C16_a_position_beyond_the_log_is_rewound),
        KIT_TEST(C13_threads_of_one_handle_share_transactions),
        KIT_TEST(P07_every_failure_of_the_store_is_reported_and_passes),
        KIT_TEST(P07_an_append_that_failed_after_the_commit_is_not_repeated),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
