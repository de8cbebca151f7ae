/* api_test.c - what weir.h promises apart from the store behind it: handles, readers, bounds,
 * misuse. */
#include "api/api.h"

#include "base/str.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    weir *w = NULL;
    weir_error err;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = "memory:" };
    if (weir_open(&o, &w, &err) != WEIR_OK) {
        print_error("%s\n", err.message);
        return -1;
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    weir_close(*state);
    return 0;
}

static void append(weir *w, const char *stream, const char *name)
{
    weir_error err;
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                               .name = weir__str(name), .data = weir__str("{\"n\":1}") };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    if (weir_append(w, &r, NULL, &err) != WEIR_OK) {
        fail_msg("append: %s", err.message);
    }
}

static void append_many(weir *w, const char *stream, int count)
{
    for (int i = 0; i < count; i++) {
        append(w, stream, "Happened");
    }
}

/* Versions or ids of what was read, as text: easy to compare and to read when it is wrong. */
typedef struct seen {
    char text[512];
    int count, stop_after;
} seen;

static int note_version(void *ctx, const weir_event *event)
{
    seen *s = ctx;
    const size_t len = strlen(s->text);
    (void)snprintf(s->text + len, sizeof s->text - len, "%lld ", (long long)event->version);
    return ++s->count == s->stop_after;
}

static int note_id(void *ctx, const weir_event *event)
{
    seen *s = ctx;
    const size_t len = strlen(s->text);
    (void)snprintf(s->text + len, sizeof s->text - len, "%lld ", (long long)event->id);
    return ++s->count == s->stop_after;
}

static void reads(weir *w, weir_read_options o, const char *expected)
{
    seen s = { 0 };
    weir_error err;
    o.size = sizeof o;
    o.stream = weir__str("s");
    if (weir_read(w, &o, note_version, &s, &err) != WEIR_OK) {
        fail_msg("read: %s", err.message);
    }
    assert_string_equal(s.text, expected);
}

static void C15_a_bound_of_0_is_a_bound_and_a_bound_left_out_is_none(void **state)
{
    weir *w = *state;
    append_many(w, "s", 5);
    reads(w, (weir_read_options){ 0 }, "0 1 2 3 4 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_TO, .to = 0 }, "0 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_FROM, .from = 0 }, "0 1 2 3 4 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_LIMIT, .limit = 0 }, "");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_LIMIT, .limit = 2 }, "0 1 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_FROM | WEIR_HAS_TO, .from = 1, .to = 3 },
          "1 2 3 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_FROM | WEIR_HAS_TO, .from = 3, .to = 1 }, "");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_UNTIL, .until_us = 0 }, "");
    reads(w, (weir_read_options){ .flags = WEIR_READ_BACKWARD }, "4 3 2 1 0 ");
    reads(w, (weir_read_options){ .flags = WEIR_READ_BACKWARD, .fields = WEIR_HAS_FROM, .from = 0 },
          "0 ");
    reads(w,
          (weir_read_options){ .flags = WEIR_READ_BACKWARD,
                               .fields = WEIR_HAS_FROM | WEIR_HAS_TO,
                               .from = 3,
                               .to = 2 },
          "3 2 ");
    reads(w, (weir_read_options){ .fields = WEIR_HAS_FROM, .from = 9 }, "");
}

static void a_missing_stream_is_not_found_whatever_the_bounds(void **state)
{
    weir *w = *state;
    seen s = { 0 };
    weir_error err;
    weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("nobody") };
    assert_int_equal(weir_read(w, &o, note_version, &s, &err), WEIR_ENOTFOUND);
    o.fields = WEIR_HAS_LIMIT;
    assert_int_equal(weir_read(w, &o, note_version, &s, &err), WEIR_ENOTFOUND);
    assert_int_equal(s.count, 0);
}

static void a_callback_ends_the_reading_when_it_has_enough(void **state)
{
    weir *w = *state;
    seen s = { .stop_after = 2 };
    append_many(w, "s", 5);
    const weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    assert_int_equal(weir_read(w, &o, note_version, &s, NULL), WEIR_OK);
    assert_string_equal(s.text, "0 1 ");
}

static void a_long_stream_is_read_across_chunks_without_gap_or_repeat(void **state)
{
    weir *w = *state;
    const weir_event *event = NULL;
    weir_reader *r = NULL;
    append_many(w, "s", 2 * STORE_CHUNK_EVENTS_MAX + 7);
    const weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    assert_int_equal(weir_read_open(w, &o, &r, NULL), WEIR_OK);
    for (int64_t i = 0; i < 2 * STORE_CHUNK_EVENTS_MAX + 7; i++) {
        assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK);
        assert_non_null(event);
        assert_int_equal(event->version, i);
    }
    assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK);
    assert_null(event);
    assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK); /* and stays at the end */
    assert_null(event);
    weir_reader_close(r);
}

static void logs(weir *w, weir_log_options o, const char *expected)
{
    seen s = { 0 };
    weir_error err;
    o.size = sizeof o;
    if (weir_log(w, &o, note_id, &s, &err) != WEIR_OK) {
        fail_msg("log: %s", err.message);
    }
    assert_string_equal(s.text, expected);
}

static void C15_the_log_is_bounded_and_filtered(void **state)
{
    weir *w = *state;
    const weir_str names[] = { weir__str("B"), weir__str("A"), weir__str("B") };
    append(w, "order-1", "A");
    append(w, "order-2", "B");
    append(w, "cart-1", "A");
    append(w, "cart", "C");
    logs(w, (weir_log_options){ 0 }, "1 2 3 4 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_AFTER, .after = 2 }, "3 4 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_AFTER, .after = 0 }, "1 2 3 4 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_TO, .to = 0 }, "");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_TO, .to = 3 }, "1 2 3 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_NAMES, .names = names, .names_count = 3 },
         "1 2 3 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_NAMES }, "");
    logs(w, (weir_log_options){ .stream = weir__str("order-*") }, "1 2 ");
    logs(w, (weir_log_options){ .stream = weir__str("/-1$/") }, "1 3 ");
    logs(w, (weir_log_options){ .category = weir__str("cart") }, "3 4 ");
    logs(w, (weir_log_options){ .correlation = weir__str("nobody's") }, "");
    logs(w, (weir_log_options){ .flags = WEIR_READ_BACKWARD, .fields = WEIR_HAS_LIMIT, .limit = 2 },
         "4 3 ");
    logs(w, (weir_log_options){ .flags = WEIR_READ_BACKWARD, .fields = WEIR_HAS_AFTER, .after = 3 },
         "2 1 ");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_SINCE, .since_us = INT64_MAX }, "");
    logs(w, (weir_log_options){ .fields = WEIR_HAS_UNTIL, .until_us = 0 }, "");
}

static void a_transaction_of_the_callers_own_needs_a_store_that_has_them(void **state)
{
    weir *w = *state;
    weir_error err;
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                               .name = weir__str("A") };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    assert_int_equal(weir_append_in(w, &err, &r, NULL, &err), WEIR_EMISUSE);
    assert_non_null(strstr(err.message, "only a PostgreSQL store"));
    assert_int_equal(weir_append_in(NULL, &err, &r, NULL, &err), WEIR_EINVAL);
    weir_wake(w);
    weir_wake(NULL);
}

static void C16_a_position_beyond_the_log_is_rewound_not_silence(void **state)
{
    weir *w = *state;
    seen s = { 0 };
    weir_error err;
    append(w, "s", "A");
    const weir_log_options o = { WEIR_LOG_OPTIONS_INIT, .fields = WEIR_HAS_AFTER, .after = 7 };
    assert_int_equal(weir_log(w, &o, note_id, &s, &err), WEIR_EREWOUND);
    assert_non_null(strstr(err.message, "7"));
}

static void a_following_reader_gives_what_is_there_and_then_what_comes(void **state)
{
    weir *w = *state;
    weir_reader *r = NULL;
    const weir_event *event = NULL;
    const weir_log_options o = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    append(w, "s", "A");
    assert_int_equal(weir_log_open(w, &o, &r, NULL), WEIR_OK);
    assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK);
    assert_int_equal(event->id, 1);
    assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK);
    assert_null(event);

    struct pollfd p = { .fd = weir_reader_fd(r), .events = POLLIN };
    assert_true(p.fd >= 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    append(w, "s", "A");
    assert_int_equal(poll(&p, 1, 5000), 1);
    assert_int_equal(weir_reader_next(r, 0, &event, NULL), WEIR_OK);
    assert_int_equal(event->id, 2);
    assert_int_equal(weir_reader_next(r, 1, &event, NULL), WEIR_OK);
    assert_null(event);
    weir_reader_close(r);
}

static void *append_later(void *w)
{
    append(w, "s", "A");
    return NULL;
}

static void a_following_reader_waits_without_end_when_asked_to(void **state)
{
    weir *w = *state;
    weir_reader *r = NULL;
    const weir_event *event = NULL;
    pthread_t thread;
    const weir_log_options o = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    assert_int_equal(weir_log_open(w, &o, &r, NULL), WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, append_later, w), 0);
    assert_int_equal(weir_reader_next(r, -1, &event, NULL), WEIR_OK);
    assert_non_null(event);
    assert_int_equal(pthread_join(thread, NULL), 0);
    weir_reader_close(r);
}

static void a_handle_is_refused_in_a_forked_child_and_goes_on_in_the_parent(void **state)
{
    weir *w = *state;
    int status = 0;
    append(w, "s", "A");
    const pid_t child = fork();
    if (child == 0) {
        int64_t head = 0;
        weir_error err;
        const int32_t rc = weir_positions(w, &head, NULL, &err);
        _exit(rc == WEIR_EMISUSE && strstr(err.message, "fork") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    append(w, "s", "B");
}

static void a_store_that_is_not_there_is_not_created_unless_asked_to(void **state)
{
    (void)state;
    weir *w = NULL;
    weir_error err;
    char dir[] = "/tmp/weir-api-XXXXXX";
    char url[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(url, sizeof url, "sqlite:%s/x.db", dir);
    weir_options o = { WEIR_OPTIONS_INIT, .store_url = url, .flags = WEIR_OPEN_EXISTING };
    assert_int_equal(weir_open(&o, &w, &err), WEIR_ENOTFOUND);
    o.flags = WEIR_OPEN_READONLY;
    assert_int_equal(weir_open(&o, &w, &err), WEIR_ENOTFOUND);
    assert_null(w);
    assert_int_equal(rmdir(dir), 0); /* nothing was left behind */
}

static void codes_have_words_and_the_library_has_a_version(void **state)
{
    (void)state;
    assert_string_equal(weir_status_text(WEIR_OK), "ok");
    assert_string_equal(weir_status_text(WEIR_EKEYREUSED), "key-reused");
    assert_string_equal(weir_status_text(-99), "unknown-status");
    for (int32_t code = WEIR_EMISUSE; code <= 0; code++) {
        assert_string_not_equal(weir_status_text(code), "unknown-status");
    }
    assert_int_equal(weir_version_number(), WEIR_VERSION_NUMBER);
    assert_string_equal(weir_version_text(), "0.1.0");
}

static void what_is_missing_is_an_error_not_a_crash(void **state)
{
    weir *w = *state;
    weir *other = NULL;
    weir_error err;
    const weir_options unknown_flag = { WEIR_OPTIONS_INIT, .flags = 1u << 31 };
    const weir_log_options contrary = { WEIR_LOG_OPTIONS_INIT,
                                        .flags = WEIR_READ_BACKWARD | WEIR_READ_FOLLOW };
    weir_reader *r = NULL;
    assert_int_equal(weir_open(NULL, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_open(&unknown_flag, &other, &err), WEIR_EINVAL);
    assert_int_equal(weir_append(NULL, NULL, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_append(w, NULL, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_read(w, NULL, note_id, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_log(w, NULL, NULL, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_log_open(w, &contrary, &r, &err), WEIR_EINVAL);
    assert_int_equal(weir_reader_next(NULL, 0, NULL, &err), WEIR_EINVAL);
    assert_int_equal(weir_reader_fd(NULL), -1);
    weir_close(NULL);
    weir_reader_close(NULL);
    weir_append_result_free(NULL);
    weir_stream_free(NULL);
}

static void running_out_of_memory_leaves_the_handle_usable(void **state)
{
    weir *w = *state;
    bool failed = true;
    int64_t before = 0;
    for (uint64_t nth = 1; failed; nth++) {
        weir_error err;
        int64_t head = 0;
        const weir_append_result *result = NULL;
        const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("A") };
        const weir_new_event *events[] = { &e };
        const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                        .events_count = 1 };
        weir__memory_fail_nth(nth);
        const int32_t status = weir_append(w, &r, &result, &err);
        failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(status, failed ? WEIR_ENOMEM : WEIR_OK);
        assert_int_equal(weir_positions(w, &head, NULL, NULL), WEIR_OK);
        assert_int_equal(head, failed ? before : before + 1); /* reported as it is */
        before = head;
        weir_append_result_free(result);
    }
}

/* A store that notes until when it may wait. */
typedef struct deadline_store {
    weir_store base;
    int64_t deadline_us;
} deadline_store;

static weir_status deadline_append(weir_store *base, store_append *const *appends, size_t count,
                                   weir_error *err)
{
    deadline_store *s = (deadline_store *)base;
    (void)err;
    assert_int_equal(count, 1);
    s->deadline_us = appends[0]->deadline_us;
    appends[0]->status = WEIR_OK;
    return WEIR_OK;
}

static void deadline_close(weir_store *base)
{
    (void)base;
}

static void the_time_to_wait_runs_from_the_moment_of_the_call(void **state)
{
    (void)state;
    static const store_log_ops log = { .group_commit = 1, .append = deadline_append };
    static const store_about_ops about = { .scheme = "deadline", .close = deadline_close };
    deadline_store store = { .base = { .log = &log, .about = &about } };
    store_url url;
    weir *w = NULL;
    assert_int_equal(weir__url_parse(&url, "sqlite:x.db?busy=7s", NULL), WEIR_OK);
    assert_int_equal(weir__open_store(&w, &store.base, &url, NULL), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        const int64_t before_us = weir__clock_mono(weir__clock_machine());
        store.deadline_us = 0;
        if (i == 0) {
            append(w, "s", "A");
        } else {
            assert_int_equal(weir_stream_close(w, weir__str("s"), NULL, NULL), WEIR_OK);
        }
        assert_true(store.deadline_us >= before_us + 7000000);
        assert_true(store.deadline_us <= weir__clock_mono(weir__clock_machine()) + 7000000);
    }
    weir_close(w);
}

/* Reads to the end with the nth allocation failing: the failure is reported once, and what follows
 * goes on where the last event that was given stands. *failed: whether there was an nth one. */
static void read_on_after_failure(weir *w, bool of_log, uint64_t nth, int64_t count, bool *failed)
{
    weir_reader *r = NULL;
    weir_error err;
    const weir_read_options ro = { WEIR_READ_OPTIONS_INIT, .stream = weir__str("s") };
    assert_int_equal(of_log ? weir_log_open(w, NULL, &r, &err) : weir_read_open(w, &ro, &r, &err),
                     WEIR_OK);
    int64_t given = 0;
    int failures = 0;
    weir__memory_fail_nth(nth);
    for (;;) {
        const weir_event *event = NULL;
        const int32_t status = weir_reader_next(r, 0, &event, &err);
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_ENOMEM);
            failures++;
            continue;
        }
        if (event == NULL) {
            break;
        }
        assert_int_equal(event->version, given);
        given++;
    }
    *failed = weir__memory_failed();
    weir__memory_fail_nth(0);
    assert_int_equal(given, count);
    assert_true(failures <= 1);
    weir_reader_close(r);
}

static void C16_a_reader_that_failed_goes_on_without_gap_or_repeat(void **state)
{
    (void)state;
    enum { EVENTS = 300, DATA_BYTES = 2000 };
    weir *w = NULL;
    char dir[] = "/tmp/weir-api-XXXXXX";
    char command[96];
    char url[64];
    char data[DATA_BYTES];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(url, sizeof url, "sqlite:%s/x.db?sync=normal", dir);
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    assert_int_equal(weir_open(&o, &w, NULL), WEIR_OK);
    memset(data, '1', sizeof data);
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                               .name = weir__str("A"), .data = { data, sizeof data } };
    const weir_new_event *events[EVENTS];
    for (size_t i = 0; i < EVENTS; i++) {
        events[i] = &e;
    }
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                    .events_count = EVENTS };
    assert_int_equal(weir_append(w, &r, NULL, NULL), WEIR_OK);
    for (int of_log = 0; of_log < 2; of_log++) {
        bool failed = true;
        for (uint64_t nth = 1; failed; nth++) {
            read_on_after_failure(w, of_log != 0, nth, EVENTS, &failed);
        }
    }
    weir_close(w);
    (void)snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(C15_a_bound_of_0_is_a_bound_and_a_bound_left_out_is_none,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_stream_is_not_found_whatever_the_bounds, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_callback_ends_the_reading_when_it_has_enough, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_long_stream_is_read_across_chunks_without_gap_or_repeat,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(C15_the_log_is_bounded_and_filtered, setup, teardown),
        cmocka_unit_test_setup_teardown(C16_a_position_beyond_the_log_is_rewound_not_silence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_following_reader_gives_what_is_there_and_then_what_comes,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_following_reader_waits_without_end_when_asked_to, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            a_handle_is_refused_in_a_forked_child_and_goes_on_in_the_parent, setup, teardown),
        cmocka_unit_test(a_store_that_is_not_there_is_not_created_unless_asked_to),
        cmocka_unit_test(codes_have_words_and_the_library_has_a_version),
        cmocka_unit_test_setup_teardown(
            a_transaction_of_the_callers_own_needs_a_store_that_has_them, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_an_error_not_a_crash, setup, teardown),
        cmocka_unit_test_setup_teardown(running_out_of_memory_leaves_the_handle_usable, setup,
                                        teardown),
        cmocka_unit_test(the_time_to_wait_runs_from_the_moment_of_the_call),
        cmocka_unit_test(C16_a_reader_that_failed_goes_on_without_gap_or_repeat),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
