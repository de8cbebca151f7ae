/* slot_project_test.c - projections: events that are handled inside the settling transaction, and
 * SQL that handlers stage. On SQLite, where there is a transaction to look at, and on memory.
 *
 * Method: as slot_test.c. A projection counts events in a table of its own on the native handle;
 * what it wrote is there exactly when the progress is.
 */
#include "engine/slot_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <sqlite3.h>
#include <stdio.h>

typedef struct projection {
    char seen[2048];    /* "[1 2 3] " for each call */
    int64_t fail_event; /* says no when it is among the events */
    size_t fail_times;  /* 0: always */
    int64_t slow_event; /* takes longer than allowed */
    void (*during)(struct projection *p);
    weir_store *store;
} projection;

static kit_process a;
static recorder one;
static projection sums;

static weir_store *begin(void **state)
{
    weir_store *s = kit_open(*state != NULL);
    one = (recorder){ .store = s };
    sums = (projection){ .store = s };
    return s;
}

static void end(weir_store *s)
{
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static void append(weir_store *s, size_t count)
{
    kit_append_many(s, "order-1", "Placed", count);
}

static weir_status run_sql(void *native, const char *sql, weir_error *err)
{
    if (native == NULL || sqlite3_exec(native, sql, NULL, NULL, NULL) == SQLITE_OK) {
        return WEIR_OK;
    }
    return weir__fail(err, WEIR_EIO, "%s", sqlite3_errmsg(native));
}

static void note(char *seen, size_t bytes, const char *text)
{
    const size_t used = strlen(seen);
    (void)snprintf(seen + used, bytes - used, "%s", text);
}

static int32_t project(void *ctx, void *native, const weir_event *const *events,
                       size_t events_count, weir_error *err)
{
    projection *p = ctx;
    char text[64];
    bool fails = false;
    weir_status status = run_sql(
        native, "CREATE TABLE IF NOT EXISTS counted(id INTEGER PRIMARY KEY, times INTEGER)", err);

    for (size_t i = 0; i < events_count && status == WEIR_OK; i++) {
        (void)snprintf(text, sizeof text, "%s%lld", i == 0 ? "[" : " ", (long long)events[i]->id);
        note(p->seen, sizeof p->seen, text);
        char sql[200];
        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO counted VALUES(%lld,1) ON CONFLICT(id) DO UPDATE SET "
                       "times=times+1",
                       (long long)events[i]->id);
        status = run_sql(native, sql, err);
        fails = fails || events[i]->id == p->fail_event;
        if (events[i]->id == p->slow_event) {
            kit_mono_us += 6 * S;
        }
    }
    note(p->seen, sizeof p->seen, "] ");
    if (p->during != NULL) {
        p->during(p);
    }
    if (status == WEIR_OK && fails) {
        p->fail_event = p->fail_times == 1 ? 0 : p->fail_event;
        p->fail_times -= p->fail_times > 0;
        status = weir__fail(err, WEIR_EINVAL, "cannot count this");
    }
    return status;
}

/* What the table says, through a settle that changes nothing: "1x1 2x1 ". */
typedef struct table_text {
    char text[1000];
} table_text;

static int add_row(void *ctx, int columns, char **values, char **names)
{
    table_text *t = ctx;
    char text[64];
    (void)columns;
    (void)names;
    (void)snprintf(text, sizeof text, "%sx%s ", values[0], values[1]);
    note(t->text, sizeof t->text, text);
    return 0;
}

static weir_status read_table(void *ctx, void *native, weir_error *err)
{
    table_text *t = ctx;
    t->text[0] = '\0';
    (void)sqlite3_exec(native, "SELECT id, times FROM counted ORDER BY id", add_row, t, NULL);
    return weir__fail(err, WEIR_EMISUSE, "only looking");
}

static const char *counted(weir_store *s)
{
    static table_text t;
    store_settle settle = { .target = 1, .fence = 1, .sql = read_table, .sql_ctx = &t };
    assert_int_equal(s->work->settle(s, &settle, NULL), WEIR_EMISUSE);
    return t.text;
}

static void declare(const char *name, const weir_reaction *more)
{
    weir_reaction d = more == NULL ? (weir_reaction){ 0 } : *more;
    d.project = project;
    d.ctx = &sums;
    kit_handler(&a, NULL, name, "all", &d);
}

static void C33_a_projection_gets_its_events_in_one_call_inside_the_settle(void **state)
{
    weir_store *s = begin(state);
    declare("sums", NULL);
    kit_start(&a, s, NULL);
    append(s, 3);
    kit_drive(&a, 1);
    assert_string_equal(sums.seen, "[1 2 3] ");
    assert_int_equal(kit_at(s, "all", "sums"), 3);
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 1);
    if (*state != NULL) {
        assert_string_equal(counted(s), "1x1 2x1 3x1 ");
    }
    end(s);
}

static void C28_what_a_projection_did_before_the_event_that_fails_is_kept(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = 1 };
    sums.fail_event = 3;
    declare("sums", &more);
    kit_start(&a, s, NULL);
    append(s, 4);
    kit_drive(&a, 60 * S);
    assert_int_equal(kit_at(s, "all", "sums"), 2);
    const kit_target t = kit_target_of(s, "all");
    assert_int_equal(t.state, STORE_TARGET_BLOCKED);
    assert_int_equal(t.event, 3);
    assert_int_equal(t.attempts, 2);
    assert_string_equal(t.error, "cannot count this");
    assert_string_equal(sums.seen, "[1 2 3 4] [1] [2] [3] [3 4] [3] ");
    if (*state != NULL) {
        assert_string_equal(counted(s), "1x1 2x1 ");
    }
    end(s);
}

static void C33_a_projection_that_takes_too_long_is_undone(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction more = { .retries = -1, .poison = WEIR_POISON_PARK };
    const weir_lane patient = { WEIR_LANE_INIT, .name = weir__str("default"), .lease_us = 60 * S };
    char text[200];
    sums.slow_event = 2;
    kit_lane(&a, &patient); /* nothing is renewed while the test's only thread projects */
    declare("sums", &more);
    kit_start(&a, s, NULL);
    append(s, 3);
    kit_drive(&a, 60 * S);
    (void)kit_parked_id(s, text, sizeof text);
    assert_string_equal(text, "2/1 the projection took 6000 ms, allowed 5000");
    assert_int_equal(kit_at(s, "all", "sums"), 3);
    if (*state != NULL) {
        assert_string_equal(counted(s), "1x1 3x1 ");
    }
    end(s);
}

/* The settle's outcome is not known: it had happened. */
static void C33_a_projection_counts_once_whatever_the_store_says(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = FAULT_FAIL_AFTER, .nth = 1, .status = WEIR_EUNKNOWN
    };
    declare("sums", NULL);
    kit_start(&a, s, NULL);
    append(s, 2);
    weir__fault_set(s, &plan);
    kit_drive(&a, 10 * S);
    assert_int_equal(weir__fault_hits(s), 1);
    assert_int_equal(kit_at(s, "all", "sums"), 2);
    assert_string_equal(sums.seen, "[1 2] ");
    end(s);
}

static void handlers_and_projections_on_one_target_take_turns(void **state)
{
    weir_store *s = begin(state);
    one.effect = "effect";
    kit_handler(&a, &one, "one", "all", NULL);
    declare("sums", NULL);
    kit_start(&a, s, NULL);
    append(s, 3);
    kit_drive(&a, 1);
    assert_string_equal(one.seen, "one:1/1 one:2/1 one:3/1 ");
    assert_string_equal(sums.seen, "[1] [2] [3] ");
    assert_int_equal(kit_count(&a, METRIC_SETTLED), 6);
    assert_int_equal(kit_version(s, "effect"), 2);
    assert_int_equal(kit_at(s, "all", "one"), 3);
    assert_int_equal(kit_at(s, "all", "sums"), 3);
    end(s);
}

static void the_failure_of_a_handler_survives_the_projections_behind_it(void **state)
{
    weir_store *s = begin(state);
    one.fail_event = 1;
    one.fail_times = 1;
    one.outcome = WEIR_RETRY;
    one.why = "no";
    sums.fail_event = 2;
    sums.fail_times = 1;
    kit_handler(&a, &one, "one", "all", NULL);
    declare("sums", NULL);
    kit_start(&a, s, NULL);
    append(s, 2);
    kit_drive(&a, 1);
    assert_string_equal(one.seen, "one:1/1 ");
    assert_int_equal(kit_retries(s, "all", "one"), 1);
    assert_int_equal(kit_target_of(s, "all").state, STORE_TARGET_DEFERRED);
    kit_drive(&a, 10 * S);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    assert_int_equal(kit_at(s, "all", "sums"), 2);
    if (*state != NULL) {
        assert_string_equal(counted(s), "1x1 2x1 ");
    }
    end(s);
}

static int32_t staged_sql_fn(void *ctx, void *native, weir_error *err)
{
    const char *sql = ctx;
    if (strcmp(sql, "fail") == 0) {
        return weir__fail(err, WEIR_EBUSY, "staged SQL says no");
    }
    return run_sql(native, sql, err);
}

static char sql_good[] = "CREATE TABLE IF NOT EXISTS counted AS SELECT 7 AS id, 7 AS times";
static char sql_bad[] = "fail";

static void stage_sql(recorder *r, weir_delivery *d)
{
    (void)r;
    const bool bad = d->event->id == 2 && d->attempt == 1;
    assert_int_equal(weir__stage_sql(d, staged_sql_fn, bad ? sql_bad : sql_good, NULL), WEIR_OK);
}

static void C33_staged_sql_is_settled_with_the_rest_or_not_at_all(void **state)
{
    weir_store *s = begin(state);
    one.effect = "effect";
    one.during = stage_sql;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, 2);
    kit_drive(&a, 1);
    assert_int_equal(kit_version(s, "effect"), 0);
    assert_int_equal(kit_at(s, "all", "one"), 1);
    assert_string_equal(kit_target_of(s, "all").error, "staged SQL says no");
    if (*state != NULL) {
        assert_string_equal(counted(s), "7x7 ");
    }
    kit_drive(&a, 10 * S);
    assert_int_equal(kit_version(s, "effect"), 1);
    assert_int_equal(kit_at(s, "all", "one"), 2);
    end(s);
}

static void a_settle_with_sql_that_breaks_the_store_again_and_again_is_a_failure(void **state)
{
    weir_store *s = begin(state);
    const fault_plan plan = {
        .verb = FAULT_SETTLE, .action = FAULT_FAIL_BEFORE, .nth = 1, .count = 5, .status = WEIR_EIO
    };
    one.effect = "effect";
    one.during = stage_sql;
    kit_handler(&a, &one, "one", "all", NULL);
    kit_start(&a, s, NULL);
    append(s, 1);
    weir__fault_set(s, &plan);
    kit_drive(&a, 60 * S);
    assert_int_equal(weir__fault_hits(s), 5);
    assert_string_equal(one.seen, "one:1/1 one:1/2 ");
    assert_int_equal(kit_version(s, "effect"), 0);
    end(s);
}

static size_t full_calls;

/* The disk is full for the first two calls: the database may not grow then. */
static int32_t fill_the_disk(void *ctx, void *native, weir_error *err)
{
    const bool full = ++full_calls <= 2;
    (void)ctx;
    weir_status status = run_sql(
        native, full ? "PRAGMA max_page_count = 1" : "PRAGMA max_page_count = 1000000", err);
    if (status == WEIR_OK) {
        status = run_sql(native, "CREATE TABLE large AS SELECT zeroblob(1000000) AS bytes", err);
    }
    return status;
}

static void stage_large(recorder *r, weir_delivery *d)
{
    (void)r;
    assert_int_equal(weir__stage_sql(d, fill_the_disk, NULL, NULL), WEIR_OK);
}

/* With no retries, so that a charge would block. */
static void C41_sql_that_fails_because_the_store_does_is_nobodys_failure(void **state)
{
    weir_store *s = begin(state);
    const weir_reaction none = { .retries = -1 };
    full_calls = 0;
    one.during = stage_large;
    kit_handler(&a, &one, "one", "all", &none);
    kit_start(&a, s, NULL);
    append(s, 1);
    kit_drive(&a, 60 * S);
    assert_int_equal(full_calls, *state != NULL ? 3 : 1);
    assert_string_equal(one.seen, "one:1/1 ");
    assert_int_equal(kit_at(s, "all", "one"), 1);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(C33_a_projection_gets_its_events_in_one_call_inside_the_settle),
        TEST(C28_what_a_projection_did_before_the_event_that_fails_is_kept),
        TEST(C33_a_projection_that_takes_too_long_is_undone),
        TEST(C33_a_projection_counts_once_whatever_the_store_says),
        TEST(handlers_and_projections_on_one_target_take_turns),
        TEST(the_failure_of_a_handler_survives_the_projections_behind_it),
        TEST(C33_staged_sql_is_settled_with_the_rest_or_not_at_all),
        TEST(a_settle_with_sql_that_breaks_the_store_again_and_again_is_a_failure),
        TEST(C41_sql_that_fails_because_the_store_does_is_nobodys_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
