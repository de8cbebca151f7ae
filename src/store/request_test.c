/* request_test.c - what is refused before any store sees it, and the shape of what is accepted. */
#include "store/request.h"

#include "base/json.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PAYLOAD_MAX = 1024 };

static weir_new_event event(const char *stream, const char *name, const char *data,
                            const char *meta)
{
    return (weir_new_event){ WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                             .name = weir__str(name), .data = weir__str(data),
                             .meta = weir__str(meta) };
}

static weir_status prepare(prepared_append *p, const weir_append_request *r, weir_error *err)
{
    return weir__append_prepare(p, r, PAYLOAD_MAX, weir__clock_machine(), err);
}

/* One event in a request of its own. */
static weir_status prepare_event(prepared_append *p, const weir_new_event *e, weir_error *err)
{
    const weir_new_event *events[] = { e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    return prepare(p, &r, err);
}

static void refused(weir_new_event e, const char *because)
{
    prepared_append p;
    weir_error err;
    assert_int_equal(prepare_event(&p, &e, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    if (strstr(err.message, because) == NULL) {
        fail_msg("refused with \"%s\", expected \"%s\"", err.message, because);
    }
}

static void C01_names_have_1_to_512_bytes_of_utf8_without_control_characters(void **state)
{
    (void)state;
    char name[STORE_NAME_BYTES_MAX + 2];
    prepared_append p;
    memset(name, 'n', sizeof name);
    name[STORE_NAME_BYTES_MAX] = '\0';
    const weir_new_event longest = event(name, name, "1", NULL);
    assert_int_equal(prepare_event(&p, &longest, NULL), WEIR_OK);
    weir__prepared_free(&p);
    name[STORE_NAME_BYTES_MAX] = 'n';
    name[STORE_NAME_BYTES_MAX + 1] = '\0';
    refused(event(name, "x", "1", NULL), "513 bytes");
    refused(event("", "x", "1", NULL), "stream name");
    refused(event("s", "", "1", NULL), "event name");
    refused(event("bad\tname", "x", "1", NULL), "control character at byte 3");
    refused(event("bad\x7f", "x", "1", NULL), "control character");
    refused(event("bad\xc2\x85", "x", "1", NULL), "control character");
    refused(event("s", "\xff\xfe", "1", NULL), "UTF-8 at byte 0");
    refused(event("$own", "x", "1", NULL), "\"$own\" starts with '$'");
    refused(event("s", "$closed", "1", NULL), "\"$closed\"");
}

static void C02_rubbish_is_refused_with_its_byte_offset(void **state)
{
    (void)state;
    refused(event("s", "x", "{\"a\":1,}", NULL), "data: invalid JSON at byte 7");
    refused(event("s", "x", "1", "{"), "meta: invalid JSON");
    refused(event("s", "x", "1", "[1]"), "not a JSON object");
    refused(event("s", "x", "\"\\u0000\"", NULL), "data");
    refused(event("s", "x", "\"\\ud800\"", NULL), "data");
    refused(event("s", "x", "1", "{\"correlation\":7}"), "meta.correlation");
    refused(event("s", "x", "1", "{\"causation\":\"7\"}"), "meta.causation");
    refused(event("s", "x", "1", "{\"causation\":0}"), "meta.causation");
}

static void C02_a_payload_may_have_as_many_bytes_as_configured_and_no_more(void **state)
{
    (void)state;
    char text[PAYLOAD_MAX + 2];
    prepared_append p;
    memset(text, 'x', sizeof text);
    text[0] = '"';
    text[PAYLOAD_MAX - 1] = '"';
    text[PAYLOAD_MAX] = '\0';
    const weir_new_event largest = event("s", "x", text, NULL);
    assert_int_equal(prepare_event(&p, &largest, NULL), WEIR_OK);
    weir__prepared_free(&p);
    text[PAYLOAD_MAX - 1] = 'x';
    text[PAYLOAD_MAX] = '"';
    text[PAYLOAD_MAX + 1] = '\0';
    refused(event("s", "x", text, NULL), "data has 1025 bytes, allowed 1024");
}

static void C02_white_space_goes_and_nothing_else_changes(void **state)
{
    (void)state;
    prepared_append p;
    const weir_new_event e =
        event("s", "x", " { \"b\" : 1.10 , \"a\": [ 1 , 2 ],\n\"b\":\"\\u00e4 \\/\" } ",
              "{ \"who\" : \"me\", \"correlation\" : \"c1\" }");
    assert_int_equal(prepare_event(&p, &e, NULL), WEIR_OK);
    const store_new_event *out = &p.append.events[0];
    const char *data = "{\"b\":1.10,\"a\":[1,2],\"b\":\"\\u00e4 \\/\"}";
    assert_true(weir__str_equal(out->data, weir__str(data)));
    assert_true(weir__str_equal(out->meta, weir__str("{\"who\":\"me\",\"correlation\":\"c1\"}")));
    weir__prepared_free(&p);
}

static void C02_data_left_out_is_an_empty_object_and_meta_gets_its_members_last(void **state)
{
    (void)state;
    prepared_append p;
    const weir_new_event e = event("s", "x", NULL, "{\"who\":\"me\"}");
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .correlation = weir__str("c\"2"), .causation = 9 };
    assert_int_equal(prepare(&p, &r, NULL), WEIR_OK);
    assert_true(weir__str_equal(p.append.events[0].data, weir__str("{}")));
    assert_true(
        weir__str_equal(p.append.events[0].meta,
                        weir__str("{\"who\":\"me\",\"correlation\":\"c\\\"2\",\"causation\":9}")));
    weir__prepared_free(&p);
}

static void an_append_without_a_correlation_gets_one_fresh_one_for_all_its_events(void **state)
{
    (void)state;
    prepared_append p;
    prepared_append q;
    const weir_new_event a = event("s", "x", "1", NULL);
    const weir_new_event b = event("t", "y", "2", "{}");
    const weir_new_event *events[] = { &a, &b };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 2 };
    assert_int_equal(prepare(&p, &r, NULL), WEIR_OK);
    assert_int_equal(prepare(&q, &r, NULL), WEIR_OK);
    assert_true(weir__str_equal(p.append.events[0].meta, p.append.events[1].meta));
    assert_false(weir__str_equal(p.append.events[0].meta, q.append.events[0].meta));
    weir__prepared_free(&p);
    weir__prepared_free(&q);
}

static void streams_are_distinct_expectations_first_then_by_first_event(void **state)
{
    (void)state;
    prepared_append p;
    const weir_new_event a = event("a", "x", "1", NULL);
    const weir_new_event b = event("b", "x", "1", NULL);
    const weir_new_event *events[] = { &a, &b, &a };
    const weir_expectation e = { WEIR_EXPECTATION_INIT, .expect = WEIR_EXPECT_EXACT, .version = 0,
                                 .stream = weir__str("b") };
    const weir_expectation *expectations[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 3,
                                    .expectations = expectations, .expectations_count = 1 };
    assert_int_equal(prepare(&p, &r, NULL), WEIR_OK);
    assert_int_equal(p.append.streams_count, 2);
    assert_true(weir__str_equal(p.append.streams[0].name, weir__str("b")));
    assert_int_equal(p.append.streams[0].expect, WEIR_EXPECT_EXACT);
    assert_int_equal(p.append.streams[1].expect, WEIR_EXPECT_ANY);
    assert_int_equal(p.append.events[0].stream_index, 1);
    assert_int_equal(p.append.events[1].stream_index, 0);
    assert_int_equal(p.append.events[2].stream_index, 1);
    weir__prepared_free(&p);
}

static void C05_many_streams_are_told_apart(void **state)
{
    (void)state;
    enum { COUNT = STORE_APPEND_STREAMS_MAX };
    static char names[COUNT][8];
    static weir_new_event events[COUNT * 2];
    static const weir_new_event *pointers[COUNT * 2];
    prepared_append p;
    for (int i = 0; i < COUNT * 2; i++) {
        const int stream = i % COUNT;
        (void)snprintf(names[stream], sizeof names[stream], "s-%d", stream);
        events[i] = event(names[stream], "x", "1", NULL);
        pointers[i] = &events[i];
    }
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = pointers,
                                    .events_count = COUNT * 2 };
    assert_int_equal(prepare(&p, &r, NULL), WEIR_OK);
    assert_int_equal(p.append.streams_count, COUNT);
    for (uint32_t i = 0; i < COUNT * 2; i++) {
        assert_int_equal(p.append.events[i].stream_index, i % COUNT);
    }
    weir__prepared_free(&p);
}

static void C05_more_streams_than_allowed_are_refused(void **state)
{
    (void)state;
    enum { COUNT = STORE_APPEND_STREAMS_MAX + 1 };
    static char names[COUNT][8];
    static weir_new_event events[COUNT];
    static const weir_new_event *pointers[COUNT];
    prepared_append p;
    weir_error err;
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof names[i], "s-%d", i);
        events[i] = event(names[i], "x", "1", NULL);
        pointers[i] = &events[i];
    }
    const weir_expectation guard = { WEIR_EXPECTATION_INIT, .stream = weir__str("guard") };
    const weir_expectation *guards[] = { &guard };
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = pointers, .events_count = COUNT };
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "1001 streams, allowed 1 to 1000"));
    weir__prepared_free(&p);
    r.events_count = COUNT - 1;
    assert_int_equal(prepare(&p, &r, &err), WEIR_OK);
    weir__prepared_free(&p);
    r.expectations = guards; /* a stream without an event is one more */
    r.expectations_count = 1;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
}

static void C05_more_events_than_allowed_are_refused(void **state)
{
    (void)state;
    prepared_append p;
    weir_error err;
    const weir_new_event e = event("s", "x", "1", NULL);
    const weir_new_event **events = calloc(STORE_APPEND_EVENTS_MAX + 1, sizeof(weir_new_event *));
    assert_non_null(events);
    for (size_t i = 0; i <= STORE_APPEND_EVENTS_MAX; i++) {
        events[i] = &e;
    }
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                              .events_count = STORE_APPEND_EVENTS_MAX + 1 };
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    r.events_count = STORE_APPEND_EVENTS_MAX;
    assert_int_equal(prepare(&p, &r, &err), WEIR_OK);
    weir__prepared_free(&p);
    free(events);
}

static void C10_more_key_changes_than_allowed_are_refused(void **state)
{
    (void)state;
    prepared_append p;
    weir_error err;
    const weir_new_event e = event("s", "x", "1", NULL);
    const weir_new_event *events[] = { &e };
    const weir_key_change change = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE,
                                     .key = weir__str("k"), .stream = weir__str("s") };
    const weir_key_change *changes[STORE_APPEND_KEYS_MAX + 1];
    for (size_t i = 0; i <= STORE_APPEND_KEYS_MAX; i++) {
        changes[i] = &change;
    }
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                              .key_changes = changes,
                              .key_changes_count = STORE_APPEND_KEYS_MAX + 1 };
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "1001 key changes"));
    weir__prepared_free(&p);
    r.key_changes_count = STORE_APPEND_KEYS_MAX;
    assert_int_equal(prepare(&p, &r, &err), WEIR_OK);
    weir__prepared_free(&p);
}

static void C05_an_append_has_at_most_64_MiB(void **state)
{
    (void)state;
    enum { BYTES = 1024 * 1024 };
    prepared_append p;
    weir_error err;
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'x', BYTES);
    text[0] = '"';
    text[BYTES - 1] = '"';
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                               .name = weir__str("x"), .data = { .ptr = text, .len = BYTES } };
    const weir_new_event *events[64];
    for (int i = 0; i < 64; i++) {
        events[i] = &e;
    }
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 64 };
    assert_int_equal(weir__append_prepare(&p, &r, BYTES, weir__clock_machine(), &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "67108864"));
    weir__prepared_free(&p);
    r.events_count = 63;
    assert_int_equal(weir__append_prepare(&p, &r, BYTES, weir__clock_machine(), &err), WEIR_OK);
    weir__prepared_free(&p);
    free(text);
}

/* What the fingerprint of a request is. */
static void fingerprint_of(const weir_append_request *r, uint8_t out[WEIR_SHA256_BYTES])
{
    prepared_append p;
    weir_error err;
    if (prepare(&p, r, &err) != WEIR_OK) {
        fail_msg("refused: %s", err.message);
    }
    memcpy(out, p.append.fingerprint, WEIR_SHA256_BYTES);
    weir__prepared_free(&p);
}

static void C09_the_fingerprint_covers_everything_but_meta(void **state)
{
    (void)state;
    uint8_t first[WEIR_SHA256_BYTES];
    uint8_t other[WEIR_SHA256_BYTES];
    weir_new_event e = event("s", "x", "{\"a\":1}", "{\"m\":1}");
    weir_new_event f = event("t", "y", "{\"a\":2}", NULL);
    const weir_new_event *events[] = { &e, &f };
    weir_expectation x = { WEIR_EXPECTATION_INIT, .expect = WEIR_EXPECT_EXACT, .version = 1,
                           .stream = weir__str("s") };
    const weir_expectation *expectations[] = { &x };
    weir_key_change k = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE, .key = weir__str("k"),
                          .stream = weir__str("s") };
    const weir_key_change *changes[] = { &k };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                    .events_count = 2,        .expectations = expectations,
                                    .expectations_count = 1,  .key_changes = changes,
                                    .key_changes_count = 1,   .key = weir__str("idem") };
    fingerprint_of(&r, first);
    e.meta = weir__str("{\"m\":2}");
    e.data = weir__str("{ \"a\" : 1 }");
    fingerprint_of(&r, other);
    assert_memory_equal(first, other, sizeof first);

    e.data = weir__str("{\"a\":2}");
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    e.data = weir__str("{\"a\":1}");
    e.name = weir__str("z");
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    e.name = weir__str("x");
    f.stream = weir__str("s");
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    f.stream = weir__str("t");
    x.version = 2;
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    x.version = 1;
    k.key = weir__str("l");
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    k.key = weir__str("k");
    k.change = WEIR_KEY_RELEASE;
    fingerprint_of(&r, other);
    assert_memory_not_equal(first, other, sizeof first);
    k.change = WEIR_KEY_RESERVE;
    fingerprint_of(&r, other);
    assert_memory_equal(first, other, sizeof first);
}

static void requests_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    prepared_append p;
    weir_error err;
    const weir_new_event e = event("s", "x", "1", NULL);
    const weir_new_event *events[] = { &e };
    weir_expectation x = { WEIR_EXPECTATION_INIT, .stream = weir__str("s") };
    const weir_expectation *twice[] = { &x, &x };
    weir_key_change k = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE, .key = weir__str("k"),
                          .stream = weir__str("elsewhere") };
    const weir_key_change *changes[] = { &k };
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT };

    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL); /* nothing at all */
    weir__prepared_free(&p);
    r.events = events;
    r.events_count = 1;
    r.expectations = twice;
    r.expectations_count = 2;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "two expectations"));
    weir__prepared_free(&p);
    r.expectations_count = 1;
    x.expect = 4;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    x.expect = WEIR_EXPECT_EXACT;
    x.version = -1;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    x.expect = WEIR_EXPECT_NONE;
    x.version = 3;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    r.expectations_count = 0;
    r.key_changes = changes;
    r.key_changes_count = 1;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "elsewhere"));
    weir__prepared_free(&p);
    k.stream = weir__str("s");
    k.change = 3;
    assert_int_equal(prepare(&p, &r, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
}

static void structs_of_other_headers_are_read_by_their_size(void **state)
{
    (void)state;
    struct {
        weir_append_request known;
        uint64_t later;
    } newer = { .known = { .size = sizeof newer } };
    const weir_new_event e = event("s", "x", "1", NULL);
    const weir_new_event *events[] = { &e };
    prepared_append p;
    weir_error err;
    newer.known.events = events;
    newer.known.events_count = 1;
    assert_int_equal(prepare(&p, &newer.known, &err), WEIR_OK);
    weir__prepared_free(&p);
    newer.later = 1;
    assert_int_equal(prepare(&p, &newer.known, &err), WEIR_EINVAL);
    weir__prepared_free(&p);
    newer.known.size = offsetof(weir_append_request, expectations);
    newer.known.expectations_count = 99; /* beyond its size: not there */
    assert_int_equal(prepare(&p, &newer.known, &err), WEIR_OK);
    weir__prepared_free(&p);
    newer.known.size = 0;
    assert_int_equal(prepare(&p, &newer.known, &err), WEIR_EINVAL);
    assert_non_null(strstr(err.message, "_INIT"));
    weir__prepared_free(&p);
}

static void running_out_of_memory_is_reported_at_every_step(void **state)
{
    (void)state;
    const weir_new_event a = event("s", "x", "{ \"a\":1}", "{\"m\":1}");
    const weir_new_event b = event("t", "y", "2", NULL);
    const weir_new_event *events[] = { &a, &b };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 2,
                                    .key = weir__str("k") };
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        prepared_append p;
        weir_error err;
        weir__memory_fail_nth(nth);
        const weir_status status = prepare(&p, &r, &err);
        failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(status, failed ? WEIR_ENOMEM : WEIR_OK);
        weir__prepared_free(&p);
        assert_true(nth < 100);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C01_names_have_1_to_512_bytes_of_utf8_without_control_characters),
        cmocka_unit_test(C02_rubbish_is_refused_with_its_byte_offset),
        cmocka_unit_test(C02_a_payload_may_have_as_many_bytes_as_configured_and_no_more),
        cmocka_unit_test(C02_white_space_goes_and_nothing_else_changes),
        cmocka_unit_test(C02_data_left_out_is_an_empty_object_and_meta_gets_its_members_last),
        cmocka_unit_test(an_append_without_a_correlation_gets_one_fresh_one_for_all_its_events),
        cmocka_unit_test(streams_are_distinct_expectations_first_then_by_first_event),
        cmocka_unit_test(C05_many_streams_are_told_apart),
        cmocka_unit_test(C05_more_streams_than_allowed_are_refused),
        cmocka_unit_test(C05_more_events_than_allowed_are_refused),
        cmocka_unit_test(C10_more_key_changes_than_allowed_are_refused),
        cmocka_unit_test(C05_an_append_has_at_most_64_MiB),
        cmocka_unit_test(C09_the_fingerprint_covers_everything_but_meta),
        cmocka_unit_test(requests_that_contradict_themselves_are_refused),
        cmocka_unit_test(structs_of_other_headers_are_read_by_their_size),
        cmocka_unit_test(running_out_of_memory_is_reported_at_every_step),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
