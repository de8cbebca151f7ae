/* metrics_test.c - what is counted and told: Prometheus' text, log lines as text and as JSON, and
 * the waits that grow. */
#include "base/json.h"
#include "base/str.h"
#include "engine/log.h"
#include "engine/metrics.h"
#include "engine/task.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The text is NUL-terminated for strstr. */
static void print(const metrics *m, const char *labels, weir_buffer *out)
{
    const metrics_of of = { .counted = m, .labels = labels };
    assert_true(weir__metrics_print(&of, 1, out));
    assert_true(weir__buffer_add(out, "", 1));
}

static void assert_line(const weir_buffer *text, const char *line)
{
    const char *at = strstr(text->ptr, line);
    const size_t len = strlen(line);

    if (at == NULL || (at != text->ptr && at[-1] != '\n') || at[len] != '\n') {
        fail_msg("no line \"%s\" in:\n%s", line, text->ptr);
    }
}

static void counters_are_printed_with_type_and_labels(void **state)
{
    metrics m = { 0 };
    weir_buffer text = { 0 };

    (void)state;
    weir__metric_add(&m, METRIC_HANDLED, 41);
    weir__metric_add(&m, METRIC_HANDLED, 1);
    print(&m, "worker=\"a\"", &text);
    assert_line(&text, "# TYPE weir_handled_events_total counter");
    assert_line(&text, "# HELP weir_handled_events_total Events whose handler succeeded.");
    assert_line(&text, "weir_handled_events_total{worker=\"a\"} 42");
    assert_line(&text, "weir_lost_leases_total{worker=\"a\"} 0");
    weir__buffer_clear(&text);
    print(&m, "", &text);
    assert_line(&text, "weir_handled_events_total 42");
    weir__buffer_free(&text);
}

static void histograms_are_cumulative_and_in_seconds(void **state)
{
    static const int64_t values_us[] = { -5, 0, 1, 2, 3, 4, 1024, 1025, 67108864, 67108865 };
    metrics m = { 0 };
    weir_buffer text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof values_us / sizeof values_us[0]; i++) {
        weir__metric_observe(&m, METRIC_HANDLER_US, values_us[i]);
    }
    print(&m, "", &text);
    assert_line(&text, "# TYPE weir_handler_seconds histogram");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"0.000001\"} 3"); /* -5, 0, 1 */
    assert_line(&text, "weir_handler_seconds_bucket{le=\"0.000002\"} 4");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"0.000004\"} 6");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"0.001024\"} 7");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"0.002048\"} 8");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"1.048576\"} 8");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"67.108864\"} 9");
    assert_line(&text, "weir_handler_seconds_bucket{le=\"+Inf\"} 10");
    assert_line(&text, "weir_handler_seconds_count 10");
    assert_line(&text, "weir_handler_seconds_sum 134.219788");
    weir__buffer_clear(&text);
    print(&m, "lane=\"mail\"", &text);
    assert_line(&text, "weir_handler_seconds_bucket{lane=\"mail\",le=\"+Inf\"} 10");
    assert_line(&text, "weir_handler_seconds_sum{lane=\"mail\"} 134.219788");
    weir__buffer_free(&text);
}

static void every_metric_is_printed_once(void **state)
{
    metrics m = { 0 };
    weir_buffer text = { 0 };
    size_t types = 0;

    (void)state;
    print(&m, "", &text);
    for (const char *at = text.ptr; (at = strstr(at, "# TYPE weir_")) != NULL; at++) {
        const size_t len = strcspn(at, "\n");
        types++;
        assert_null(strstr(text.ptr, "(null)"));
        for (const char *other = at + 1; (other = strstr(other, "# TYPE weir_")) != NULL; other++) {
            assert_true(strcspn(other, "\n") != len || strncmp(at, other, len) != 0);
        }
    }
    assert_int_equal(types, METRIC_COUNTERS + METRIC_HISTOGRAMS);
    weir__buffer_free(&text);
}

static void printing_without_memory_leaves_the_text_as_it_was(void **state)
{
    metrics m = { 0 };

    (void)state;
    for (uint64_t n = 1;; n++) {
        weir_buffer text = { 0 };
        assert_true(weir__buffer_add_text(&text, "before"));
        weir__memory_fail_nth(n);
        const metrics_of of = { .counted = &m, .labels = "" };
        const bool ok = weir__metrics_print(&of, 1, &text);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_int_equal(ok, !failed);
        assert_true(!failed || text.len == 6);
        weir__buffer_free(&text);
        if (!failed) {
            assert_true(n > 1);
            break;
        }
    }
}

static void several_workers_share_one_head(void **state)
{
    metrics one = { 0 }, two = { 0 };
    const metrics_of all[] = { { &one, "worker=\"1\"" }, { &two, "worker=\"2\"" } };
    weir_buffer text = { 0 };

    (void)state;
    weir__metric_add(&one, METRIC_STALE, 1);
    weir__metric_add(&two, METRIC_STALE, 2);
    weir__metric_observe(&two, METRIC_BATCH, 3);
    assert_true(weir__metrics_print(all, 2, &text));
    assert_true(weir__buffer_add(&text, "", 1));
    assert_line(&text, "# TYPE weir_stale_fences_total counter\n"
                       "weir_stale_fences_total{worker=\"1\"} 1\n"
                       "weir_stale_fences_total{worker=\"2\"} 2");
    assert_line(&text, "weir_commit_batch_appends_bucket{worker=\"2\",le=\"2\"} 0");
    assert_line(&text, "weir_commit_batch_appends_bucket{worker=\"2\",le=\"4\"} 1");
    assert_line(&text, "weir_commit_batch_appends_bucket{worker=\"2\",le=\"256\"} 1\n"
                       "weir_commit_batch_appends_bucket{worker=\"2\",le=\"+Inf\"} 1");
    assert_line(&text, "weir_commit_batch_appends_sum{worker=\"2\"} 3");
    weir__buffer_clear(&text);
    assert_true(weir__metrics_print(all, 0, &text));
    assert_int_equal(text.len, 0);
    weir__buffer_free(&text);
}

static void labels_are_escaped(void **state)
{
    weir_buffer text = { 0 };

    (void)state;
    assert_true(weir__metrics_label(&text, "a", weir__str("x\"y\\z\nw\xc3\xa9")));
    assert_true(weir__metrics_label(&text, "b", (weir_str){ 0 }));
    assert_true(weir__buffer_add(&text, "", 1));
    assert_string_equal(text.ptr, "a=\"x\\\"y\\\\z\\nw\xc3\xa9\",b=\"\"");
    weir__buffer_free(&text);
}

/* ---- keeping ------------------------------------------------------------------------------- */

static void what_is_saved_is_loaded(void **state)
{
    metrics m = { 0 }, again = { 0 };
    weir_buffer saved = { 0 }, before = { 0 }, after = { 0 };
    const committer_counts appends = {
        .appends = 5, .events = 9, .conflicts = 2, .batches = { 1, 2 }, .batched = 5
    };

    (void)state;
    assert_true(weir__metrics_save(&m, &saved));
    assert_int_equal(saved.len, 2); /* {} */
    assert_true(weir__metrics_load(&again, (weir_str){ saved.ptr, saved.len }));
    for (size_t i = 0; i < METRIC_COUNTERS; i++) {
        weir__metric_add(&m, (metric_counter)i, (uint64_t)1 << (i * 2));
    }
    for (size_t i = 0; i < METRIC_HISTOGRAMS; i++) {
        for (int64_t us = 1; us < INT64_C(1) << 40; us = us * 3 + (int64_t)i) {
            weir__metric_observe(&m, (metric_histogram)i, us);
        }
    }
    weir__metrics_add_appends(&m, &appends);
    weir__buffer_clear(&saved);
    assert_true(weir__metrics_save(&m, &saved));
    assert_true(saved.len < STORE_METRICS_BYTES_MAX);
    assert_true(weir__metrics_load(&again, (weir_str){ saved.ptr, saved.len }));
    print(&m, "", &before);
    print(&again, "", &after);
    assert_string_equal(before.ptr, after.ptr);
    assert_int_equal(weir__metric_get(&again, METRIC_CONFLICTS),
                     (UINT64_C(1) << (METRIC_CONFLICTS * 2)) + 2);
    weir__buffer_free(&saved);
    weir__buffer_free(&before);
    weir__buffer_free(&after);
}

static void what_another_version_saves_is_read_as_far_as_it_is_known(void **state)
{
    static const char *const bad[] = { "",
                                       "[]",
                                       "{",
                                       "{\"weir_settles_total\":-1}",
                                       "{\"weir_settles_total\":\"1\"}",
                                       "{\"weir_lease_seconds\":[]}",
                                       "{\"weir_lease_seconds\":7}" };
    metrics m = { 0 };

    (void)state;
    assert_true(weir__metrics_load(
        &m, weir__str("{\"weir_settles_total\":7,\"weir_of_tomorrow\":[[1],{}]}")));
    assert_int_equal(weir__metric_get(&m, METRIC_SETTLED), 7);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(weir__metrics_load(&m, weir__str(bad[i])));
    }
}

/* ---- log lines ---------------------------------------------------------------------------- */

static const char awkward[] = "two\nlines \"quoted\" \\ =";

static void fields_become_text_that_stays_one_line(void **state)
{
    const log_field fields[] = {
        weir__log_text_field("target", weir__str("mail-order-1")),
        weir__log_number_field("fence", -42),
        weir__log_text_field("error", weir__str(awkward)),
        weir__log_text_field("empty", (weir_str){ 0 }),
        weir__log_text_field("spaced", weir__str("a b")),
        weir__log_text_field("quote", weir__str("a\"b")),
    };
    weir_buffer text = { 0 };

    (void)state;
    assert_true(weir__log_to_text(&text, fields, sizeof fields / sizeof fields[0]));
    assert_true(weir__buffer_add(&text, "", 1));
    assert_string_equal(text.ptr, "target=mail-order-1 fence=-42 "
                                  "error=\"two\\nlines \\\"quoted\\\" \\\\ =\" empty=\"\" "
                                  "spaced=\"a b\" quote=\"a\\\"b\"");
    weir__buffer_free(&text);
}

static void fields_become_json_that_can_be_read_back(void **state)
{
    const log_field fields[] = {
        weir__log_text_field("error", weir__str(awkward)),
        weir__log_text_field("bytes", (weir_str){ "\xff\0x", 3 }),
        weir__log_number_field("least", INT64_MIN),
    };
    weir_buffer text = { 0 }, compact = { 0 };
    weir_str value;

    (void)state;
    assert_true(weir__log_to_json(&text, fields, sizeof fields / sizeof fields[0]));
    const weir_str json = { text.ptr, text.len };
    assert_int_equal(weir__json_compact(json, &compact, NULL, NULL), WEIR_OK);
    assert_int_equal(compact.len, text.len);
    assert_true(weir__json_get(json, "error", &value));
    assert_true(weir__json_string_is(value, weir__str(awkward)));
    assert_true(weir__json_get(json, "least", &value));
    assert_true(weir__str_equal(value, weir__str("-9223372036854775808")));
    weir__buffer_clear(&text);
    assert_true(weir__log_to_json(&text, NULL, 0));
    assert_int_equal(text.len, 2);
    weir__buffer_free(&text);
    weir__buffer_free(&compact);
}

/* ---- waits -------------------------------------------------------------------------------- */

static uint64_t next_random;

static uint64_t given_random(scheduler *s)
{
    (void)s;
    return next_random;
}

static void waits_double_up_to_their_cap_with_jitter_in_the_upper_half(void **state)
{
    scheduler s = { .random = given_random };
    task t = { .scheduler = &s };

    (void)state;
    next_random = 0;
    assert_int_equal(weir__task_backoff_us(&t, 0, 100, 1000), 50);
    assert_int_equal(weir__task_backoff_us(&t, 1, 100, 1000), 100);
    assert_int_equal(weir__task_backoff_us(&t, 3, 100, 1000), 400);
    assert_int_equal(weir__task_backoff_us(&t, 4, 100, 1000), 500);
    assert_int_equal(weir__task_backoff_us(&t, 1000000, 100, 1000), 500);
    next_random = 50;
    assert_int_equal(weir__task_backoff_us(&t, 0, 100, 1000), 100);
    next_random = 51;
    assert_int_equal(weir__task_backoff_us(&t, 0, 100, 1000), 50);
    assert_int_equal(weir__task_backoff_us(&t, 62, INT64_MAX / 2, INT64_MAX),
                     INT64_MAX - INT64_MAX / 2 + 51);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_are_printed_with_type_and_labels),
        cmocka_unit_test(histograms_are_cumulative_and_in_seconds),
        cmocka_unit_test(every_metric_is_printed_once),
        cmocka_unit_test(printing_without_memory_leaves_the_text_as_it_was),
        cmocka_unit_test(several_workers_share_one_head),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(what_another_version_saves_is_read_as_far_as_it_is_known),
        cmocka_unit_test(fields_become_text_that_stays_one_line),
        cmocka_unit_test(fields_become_json_that_can_be_read_back),
        cmocka_unit_test(waits_double_up_to_their_cap_with_jitter_in_the_upper_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
