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
    assert_true(weir__metrics_print(m, labels, out));
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
        const bool ok = weir__metrics_print(&m, "", &text);
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
        cmocka_unit_test(fields_become_text_that_stays_one_line),
        cmocka_unit_test(fields_become_json_that_can_be_read_back),
        cmocka_unit_test(waits_double_up_to_their_cap_with_jitter_in_the_upper_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
