/* lasting.c - C38: how long a claim lasts, and what its holder may still write. Leases end by the
 * database's clock: every look at one is put between two readings of that clock, so that nothing
 * here depends on how fast the machine is.
 */
#include "kit.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

static claim_request held_request(const kit *k, int64_t limit)
{
    claim_request r = kit_request(k, limit);
    r.writes.set = NULL;
    r.writes.set_count = 0;
    r.hold = true;
    return r;
}

static void begin(claimer *c)
{
    KIT_OK(c, weir__table_begin(c->s, &c->err));
}

/* ---- transactions ---------------------------------------------------------------------------- */

static void C38_a_claim_inside_a_transaction_is_misuse(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    begin(k->one);
    const claim_request r = kit_request(k, 1);
    KIT_IS(k->one, kit_try(k, &r), WEIR_EMISUSE);
    assert_int_equal(k->one->r.rows_count, 0);
    KIT_OK(k->one, weir__table_commit(k->one->s, &k->one->err));
    assert_string_equal(kit_rows(k, "SELECT count(*) FROM jobs WHERE status = 'claimed'"), "0");
    assert_string_equal(kit_claim(k, &r), "1");
}

static void C38_holding_outside_of_a_transaction_is_misuse(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    const claim_request r = held_request(k, 1);
    KIT_IS(k->one, kit_try(k, &r), WEIR_EMISUSE);
    assert_false(weir__table_in_transaction(k->one->s));
}

static void C38_what_is_held_is_not_written(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    const claim_request r = held_request(k, 2);
    begin(k->one);
    assert_string_equal(kit_claim(k, &r), "1 2");
    assert_string_equal(claimer_column(k->one, "status"), "pending pending");
    KIT_OK(k->one, weir__table_commit(k->one->s, &k->one->err));
    assert_string_equal(kit_rows(k, "SELECT id, status, fence, attempts FROM jobs ORDER BY id"),
                        "1 pending 0 0,2 pending 0 0,3 pending 0 0");
    /* Zero is zero here too. */
    begin(k->one);
    const claim_request none = held_request(k, 0);
    assert_string_equal(kit_claim(k, &none), "");
    weir__table_rollback(k->one->s);
}

static void C38_what_is_held_dies_with_its_transaction(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    kit_worker *w = kit_worker_start(k, 0);
    assert_string_equal(kit_worker_ask(w, "begin"), "ok");
    assert_string_equal(kit_worker_ask(w, "claim limit=2 hold=1"), "ok 1:0 2:0");
    claim_request r = kit_request(k, 3);
    if (k->kind == KIT_POSTGRES) {
        assert_string_equal(kit_claim(k, &r), "3");
    } else {
        r.mode = CLAIM_NOWAIT;
        KIT_IS(k->one, kit_try(k, &r), WEIR_EHELD);
    }
    kit_worker_kill(w);
    /* Its server's process sees that it is gone. */
    if (k->kind == KIT_POSTGRES) {
        kit_await(k, "0",
                  "SELECT count(*) FROM pg_stat_activity "
                  "WHERE application_name = 'claim_worker'");
    }
    assert_string_equal(kit_claim(k, &r), k->kind == KIT_POSTGRES ? "1 2" : "1 2 3");
}

static void C38_a_claim_is_there_when_it_returned_and_its_claimer_died(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    kit_worker *w = kit_worker_start(k, 0);
    assert_string_equal(kit_worker_ask(w, "claim limit=2 by=A"), "ok 1:0 2:0");
    kit_worker_kill(w);
    assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by FROM jobs ORDER BY id"),
                        "1 claimed A,2 claimed A,3 pending -");
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* When the lease of the first job ends, in microseconds since 1970, by what its column holds. */
static int64_t lease_end(kit *k, const char *type)
{
    if (k->kind == KIT_POSTGRES && strcmp(type, "text") != 0 && strcmp(type, "bigint") != 0) {
        const char *zone = strcmp(type, "timestamp") == 0 ? " AT TIME ZONE 'UTC'" : "";
        return kit_number(k,
                          "SELECT (extract(epoch FROM locked_until%s) * 1000000)::bigint FROM jobs "
                          "WHERE id = 1",
                          zone);
    }
    if (strcmp(type, "text") != 0) {
        return kit_number(k, "SELECT locked_until FROM jobs WHERE id = 1");
    }
    int64_t us = 0;
    const char *text = kit_rows(k, "SELECT locked_until FROM jobs WHERE id = 1");
    assert_int_equal(strlen(text), 27); /* always as long, so that texts compare as times do */
    assert_true(weir__time_from_text(weir__str(text), &us));
    return us;
}

static void lease_in(kit *k, const char *type)
{
    const int64_t lease_us = 40 * KIT_MS;
    kit_exec(k, "DROP TABLE IF EXISTS jobs");
    kit_exec(k,
             "CREATE TABLE jobs (id bigint PRIMARY KEY, status text DEFAULT 'pending', "
             "claimed_by text, claimed_at %s, locked_until %s, fence bigint NOT NULL DEFAULT 0, "
             "attempts integer NOT NULL DEFAULT 0)",
             type, type);
    kit_exec(k, "INSERT INTO jobs (id) VALUES (1)");
    /* What a table looks like is asked once for a session. */
    kit_claimer_renew(k);
    claim_request first = kit_lease(k, 1, "A", lease_us);
    const int64_t before = kit_now_us(k);
    assert_string_equal(kit_claim(k, &first), "1");
    const int64_t after = kit_now_us(k);
    const int64_t end = lease_end(k, type);
    /* SQLite's clock shows milliseconds. */
    const int64_t tick = k->kind == KIT_POSTGRES ? 0 : KIT_MS;
    if (end < before + lease_us - tick || end > after + lease_us) {
        fail_msg("%s: %" PRId64 " to %" PRId64 " and 40 ms is not %" PRId64, type, before, after,
                 end);
    }
    const claim_request second = kit_lease(k, 1, "B", KIT_HOUR);
    for (;;) {
        const int64_t asked = kit_now_us(k);
        const char *got = kit_claim(k, &second);
        const int64_t answered = kit_now_us(k);
        if (got[0] != '\0') {
            assert_true(answered >= end); /* never before */
            break;
        }
        if (asked >= end) {
            fail_msg("%s: not free %" PRId64 " us after its end", type, asked - end);
        }
    }
    assert_string_equal(kit_rows(k, "SELECT claimed_by, fence, attempts FROM jobs"), "B 2 2");
}

static void C38_a_lease_is_free_when_it_ends_and_not_before(void **state)
{
    kit *k = *state;
    static const char *const postgres[] = { "timestamptz", "timestamp", "bigint", "text" };
    static const char *const sqlite[] = { "integer", "text", "bigint" };
    const size_t count = k->kind == KIT_POSTGRES ? 4 : 3;
    if (k->kind == KIT_POSTGRES) {
        kit_exec(k, "ALTER DATABASE postgres SET TimeZone = 'Asia/Kathmandu'");
    }
    for (size_t i = 0; i < count; i++) {
        lease_in(k, k->kind == KIT_POSTGRES ? postgres[i] : sqlite[i]);
    }
    kit_exec_each(k, "ALTER DATABASE postgres RESET TimeZone", NULL);
}

/* In the instant in which it ends a lease has ended, to the claimer and to the holder; in the one
 * before it has not. */
static void instant_in(kit *k, const char *type, int64_t end, int64_t tick)
{
    char value[128];
    char text[WEIR_TIME_TEXT_BYTES];
    if (strcmp(type, "text") == 0) {
        weir__time_to_text(end, text);
        snprintf(value, sizeof value, "'%s'", text);
    } else if (strcmp(type, "bigint") == 0) {
        snprintf(value, sizeof value, "%" PRId64, end);
    } else {
        snprintf(value, sizeof value, "%s 'epoch' + interval '%" PRId64 " microseconds'", type,
                 end);
    }
    kit_exec(k, "DROP TABLE IF EXISTS jobs");
    kit_exec(k,
             "CREATE TABLE jobs (id bigint PRIMARY KEY, status text DEFAULT 'claimed', claimed_by "
             "text DEFAULT 'A', claimed_at %s, locked_until %s DEFAULT (%s), fence bigint NOT NULL "
             "DEFAULT 1, attempts integer NOT NULL DEFAULT 1)",
             type, type, value);
    kit_exec(k, "INSERT INTO jobs (id) VALUES (1), (2)");
    kit_exec(k, "INSERT INTO jobs (id, status) VALUES (3, 'pending')");
    const claim_request r = kit_lease(k, 9, "B", KIT_HOUR);
    kit_pin_clock(k, end - tick);
    assert_string_equal(kit_claim(k, &r), "");
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 2, "A"));
    kit_exec(k, "UPDATE jobs SET status = 'claimed', locked_until = %s WHERE id = 2", value);
    kit_pin_clock(k, end);
    KIT_IS(k->one, kit_finish(k->one, FINISH_DONE, 2, "A"), WEIR_ELOST);
    KIT_IS(k->one, kit_finish_fence(k->one, FINISH_EXTEND, 1, 1), WEIR_ELOST);
    assert_string_equal(kit_claim(k, &r), "1 2 3");
    assert_int_equal(lease_end(k, type), end + KIT_HOUR);
}

static void C38_a_lease_ends_in_an_instant_for_all(void **state)
{
    kit *k = *state;
    static const char *const postgres[] = { "timestamptz", "timestamp", "bigint", "text" };
    static const char *const sqlite[] = { "bigint", "text" };
    const size_t count = k->kind == KIT_POSTGRES ? 4 : 2;
    const int64_t tick = k->kind == KIT_POSTGRES ? 1 : KIT_MS;
    /* Past 2^53 of any smaller unit; with and without microseconds. */
    for (size_t i = 0; i < count; i++) {
        const char *type = k->kind == KIT_POSTGRES ? postgres[i] : sqlite[i];
        instant_in(k, type, INT64_C(1794700800000000), tick);
        instant_in(k, type, INT64_C(1794700800123000), tick);
    }
}

static void C38_a_lease_cannot_be_kept_in_a_column_of_another_type(void **state)
{
    kit *k = *state;
    kit_exec_each(k,
                  "CREATE TABLE jobs (id integer PRIMARY KEY, status text DEFAULT 'pending', "
                  "locked_until boolean, fence text, attempts text)",
                  "CREATE TABLE jobs (id integer PRIMARY KEY, status text DEFAULT 'pending', "
                  "locked_until real, fence text, attempts text)");
    kit_exec(k, "INSERT INTO jobs (id) VALUES (1)");
    claim_request r = kit_request(k, 1);
    r.lease_us = KIT_SECOND;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "locked_until");
    r.lease_us = 0;
    r.fence_column = weir__str("fence");
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "--fence-column");
    kit_message(k->one, "fence");
    assert_string_equal(kit_rows(k, "SELECT status FROM jobs"), "pending");
}

/* Rows are ready when their lease is over, whoever wrote it. */
static void C38_a_row_that_is_ready_and_leased_is_not_free(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    kit_exec_each(k,
                  "UPDATE jobs SET locked_until = now() + interval '1 hour' WHERE id = 1; "
                  "UPDATE jobs SET locked_until = now() - interval '1 hour' WHERE id = 2",
                  "UPDATE jobs SET locked_until = 9000000000000000 WHERE id = 1; "
                  "UPDATE jobs SET locked_until = 1000000 WHERE id = 2");
    const claim_request r = kit_lease(k, 10, "A", KIT_SECOND);
    assert_string_equal(kit_claim(k, &r), "2 3");
}

static void C38_fences_and_attempts_grow_with_every_claim(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    kit_exec(k, "UPDATE jobs SET fence = 9007199254740993, attempts = 3");
    const claim_request r = kit_lease(k, 1, "A", KIT_HOUR);
    assert_string_equal(kit_claim(k, &r), "1");
    assert_string_equal(claimer_column(k->one, "fence"), "9007199254740994");
    assert_string_equal(claimer_column(k->one, "attempts"), "4");
    KIT_OK(k->one, kit_finish_fence(k->one, FINISH_RELEASE, 1, INT64_C(9007199254740994)));
    kit_exec(k, "UPDATE jobs SET status = 'pending'");
    assert_string_equal(kit_claim(k, &r), "1");
    assert_string_equal(claimer_column(k->one, "fence"), "9007199254740995");
    assert_string_equal(claimer_column(k->one, "attempts"), "5");
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* The first job: a lease that has ended is as good as none. */
static const char *state_of(kit *k)
{
    char now[32];
    snprintf(now, sizeof now, "%" PRId64, kit_now_us(k));
    return kit_rows(k,
                    "SELECT status, claimed_by, CASE WHEN claimed_at IS NULL THEN 'no' ELSE 'at' "
                    "END, CASE WHEN locked_until > %s THEN 'leased' ELSE 'free' END, fence "
                    "FROM jobs WHERE id = 1",
                    k->kind == KIT_POSTGRES ? "clock_timestamp()" : now);
}

static void claim_one(kit *k, const char *by)
{
    const claim_request r = kit_lease(k, 1, by, KIT_HOUR);
    kit_exec(k, "UPDATE jobs SET status = 'pending', locked_until = NULL");
    assert_string_equal(kit_claim(k, &r), "1");
}

static void C38_the_holder_finishes_its_row(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    assert_string_equal(state_of(k), "claimed A at leased 1");
    KIT_OK(k->one, kit_finish(k->one, FINISH_EXTEND, 1, "A"));
    assert_string_equal(state_of(k), "claimed A at leased 1");
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 1, "A"));
    assert_string_equal(claimer_column(k->one, "status"), "done");
    assert_string_equal(state_of(k), "done A at free 1");
    claim_one(k, "A");
    KIT_OK(k->one, kit_finish(k->one, FINISH_FAIL, 1, "A"));
    assert_string_equal(state_of(k), "done A at free 2");
    claim_one(k, "A");
    KIT_OK(k->one, kit_finish(k->one, FINISH_RELEASE, 1, "A"));
    assert_string_equal(state_of(k), "done - no free 3");
    /* A release that leaves the mark of the claim gives the row back all the same, at once. */
    claim_one(k, "A");
    const table_value key = { .kind = TABLE_INTEGER, .number = 1 };
    const finish_request back = kit_finish_request(FINISH_RELEASE, &key, "A");
    KIT_OK(k->one, weir__claim_finish(k->one->s, &back, NULL, &k->one->err));
    assert_string_equal(state_of(k), "claimed - no free 4");
    const claim_request r = kit_lease(k, 1, "B", KIT_HOUR);
    assert_string_equal(kit_claim(k, &r), "1");
}

static void C38_another_does_not(void **state)
{
    kit *k = *state;
    static const finish_kind kinds[] = { FINISH_DONE, FINISH_FAIL, FINISH_RELEASE, FINISH_EXTEND };
    kit_jobs(k, 1);
    claim_one(k, "A");
    const int64_t end =
        k->kind == KIT_POSTGRES ? lease_end(k, "timestamptz") : lease_end(k, "integer");
    for (size_t i = 0; i < 4; i++) {
        KIT_IS(k->one, kit_finish(k->one, kinds[i], 1, "B"), WEIR_ELOST);
        kit_message(k->one, "A");
        KIT_IS(k->one, kit_finish_fence(k->one, kinds[i], 1, 0), WEIR_ELOST);
        KIT_IS(k->one, kit_finish_fence(k->one, kinds[i], 1, 2), WEIR_ELOST);
        KIT_IS(k->one, kit_finish(k->one, kinds[i], 2, "A"), WEIR_ENOTFOUND);
        assert_string_equal(state_of(k), "claimed A at leased 1");
        assert_int_equal(lease_end(k, k->kind == KIT_POSTGRES ? "timestamptz" : "integer"), end);
    }
    KIT_OK(k->one, kit_finish_fence(k->one, FINISH_DONE, 1, 1));
}

/* Two with the same name: the fence tells them apart. */
static void C38_a_namesake_is_refused_by_its_fence(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    claim_one(k, "A");
    const table_value key = { .kind = TABLE_INTEGER, .number = 1 };
    finish_request r = kit_finish_request(FINISH_DONE, &key, "A");
    r.has_fence = true;
    r.fence_column = weir__str("fence");
    r.fence = 1;
    KIT_IS(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err), WEIR_ELOST);
    assert_string_equal(state_of(k), "claimed A at leased 2");
    r.fence = 2;
    KIT_OK(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err));
}

static void C38_a_lease_that_has_ended_is_not_its_holders_any_more(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    kit_exec_each(k, "UPDATE jobs SET locked_until = clock_timestamp()",
                  "UPDATE jobs SET locked_until = CAST((julianday('now') - 2440587.5) * 86400000 "
                  "AS integer) * 1000 - 1000");
    /* Nobody has taken it; still. */
    KIT_IS(k->one, kit_finish(k->one, FINISH_DONE, 1, "A"), WEIR_ELOST);
    KIT_IS(k->one, kit_finish(k->one, FINISH_EXTEND, 1, "A"), WEIR_ELOST);
    KIT_IS(k->one, kit_finish_fence(k->one, FINISH_RELEASE, 1, 1), WEIR_ELOST);
    assert_string_equal(state_of(k), "claimed A at free 1");
    /* Where there was no lease there is none that could end. */
    kit_exec(k, "UPDATE jobs SET locked_until = NULL");
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 1, "A"));
}

static void C38_a_finish_asks_for_a_holder_or_a_fence(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    const table_value key = { .kind = TABLE_INTEGER, .number = 1 };
    finish_request r = kit_finish_request(FINISH_DONE, &key, "");
    r.by = (weir_str){ 0 };
    KIT_IS(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err), WEIR_EINVAL);
    r.by = weir__str("A");
    r.key_count = 0;
    KIT_IS(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err), WEIR_EINVAL);
    assert_string_equal(state_of(k), "claimed A at leased 1");
}

/* What the claim wrote must still be there, when that is said. */
static void C38_a_row_that_is_not_as_it_was_claimed_is_lost(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    kit_exec(k, "UPDATE jobs SET status = 'cancelled'");
    const claim_set held = { .column = weir__str("status"),
                             .value = { .kind = TABLE_TEXT, .text = weir__str("claimed") } };
    const table_value key = { .kind = TABLE_INTEGER, .number = 1 };
    finish_request r = kit_finish_request(FINISH_RELEASE, &key, "A");
    r.held = &held;
    r.held_count = 1;
    KIT_IS(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err), WEIR_ELOST);
    assert_string_equal(state_of(k), "cancelled A at leased 1");
    kit_exec(k, "UPDATE jobs SET status = 'claimed'");
    KIT_OK(k->one, weir__claim_finish(k->one->s, &r, NULL, &k->one->err));
    assert_string_equal(state_of(k), "claimed - no free 1");
}

static void C38_a_finish_goes_with_the_transaction_it_is_in(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    claim_one(k, "A");
    begin(k->one);
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 1, "A"));
    weir__table_rollback(k->one->s);
    assert_string_equal(state_of(k), "claimed A at leased 1");
    begin(k->one);
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 1, "A"));
    KIT_OK(k->one, weir__table_commit(k->one->s, &k->one->err));
    assert_string_equal(state_of(k), "done A at free 1");
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Stopped while it does nothing: it answered, and waits for the next line. */
static void stop(const kit_worker *w)
{
    int status = 0;
    assert_int_equal(kill(w->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(w->pid, &status, WUNTRACED), w->pid);
    assert_true(WIFSTOPPED(status));
}

static void expect_lost(const char *answer)
{
    char lost[32];
    snprintf(lost, sizeof lost, "error %d ", WEIR_ELOST);
    if (strncmp(answer, lost, strlen(lost)) != 0) {
        fail_msg("\"%s\" is not \"%s...\"", answer, lost);
    }
}

static void C38_a_holder_that_slept_past_its_lease_is_refused(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    kit_worker *w = kit_worker_start(k, 0);
    assert_string_equal(kit_worker_ask(w, "claim limit=2 by=A lease=50000 fence=1"), "ok 1:1 2:1");
    stop(w);
    /* The first of them is taken by another when the lease ends, with the same name; the second by
     * nobody. */
    claim_request r = kit_lease(k, 1, "A", KIT_HOUR);
    const int64_t deadline = kit_mono_us() + KIT_PATIENCE;
    while (kit_claim(k, &r)[0] == '\0' && kit_mono_us() < deadline) {
    }
    assert_string_equal(claimer_column(k->one, NULL), "1");
    /* On the portable path every row has a lease of its own. */
    const int64_t end = kit_number(
        k,
        k->kind == KIT_POSTGRES
            ? "SELECT (extract(epoch FROM locked_until) * 1000000)::bigint FROM jobs WHERE id = 2"
            : "SELECT locked_until FROM jobs WHERE id = 2");
    while (kit_now_us(k) <= end) {
        usleep(1000);
    }
    assert_int_equal(kill(w->pid, SIGCONT), 0);
    expect_lost(kit_worker_ask(w, "finish id=1 kind=done by=A fence=1"));
    expect_lost(kit_worker_ask(w, "finish id=1 kind=extend lease=1000000 fence=1"));
    expect_lost(kit_worker_ask(w, "finish id=1 kind=release fence=1"));
    expect_lost(kit_worker_ask(w, "finish id=2 kind=done by=A"));
    expect_lost(kit_worker_ask(w, "finish id=2 kind=done fence=1"));
    assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by, fence FROM jobs ORDER BY id"),
                        "1 claimed A 2,2 claimed A 1");
    KIT_OK(k->one, kit_finish_fence(k->one, FINISH_DONE, 1, 2));
}

static void C38_a_dead_workers_batch_is_free_when_its_lease_ends(void **state)
{
    kit *k = *state;
    kit_jobs(k, 10);
    kit_worker *w = kit_worker_start(k, 0);
    assert_string_equal(kit_worker_ask(w, "claim limit=10 by=A lease=100000"),
                        "ok 1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0 9:0 10:0");
    kit_worker_kill(w);
    /* On the portable path every row has a lease of its own. */
    kit_exec(k, "CREATE TABLE ends AS SELECT id, locked_until AS ended FROM jobs");
    const int64_t last =
        kit_number(k, k->kind == KIT_POSTGRES
                          ? "SELECT (extract(epoch FROM max(ended)) * 1000000)::bigint FROM ends"
                          : "SELECT max(ended) FROM ends");
    const claim_request r = kit_lease(k, 10, "B", KIT_HOUR);
    for (size_t got = 0; got < 10;) {
        const int64_t asked = kit_now_us(k);
        KIT_OK(k->one, kit_try(k, &r));
        got += k->one->r.rows_count;
        assert_true(got == 10 || asked < last); /* within a second, and rather less */
    }
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs JOIN ends ON jobs.id = ends.id "
                                   "WHERE claimed_by = 'B' AND claimed_at >= ended"),
                     10);
}

static void C38_a_live_one_is_never_stolen(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    kit_worker *w = kit_worker_start(k, 0);
    const claim_request thief = kit_lease(k, 1, "B", KIT_HOUR);
    int64_t first_end = 0;
    /* A holder that was too slow to extend has lost it rightly, and begins anew. */
    for (;;) {
        assert_string_equal(kit_worker_ask(w, "claim limit=1 by=A lease=200000"), "ok 1:0");
        first_end = lease_end(k, k->kind == KIT_POSTGRES ? "timestamptz" : "integer");
        if (strcmp(kit_worker_ask(w, "finish id=1 kind=extend by=A lease=3600000000"), "ok") == 0) {
            break;
        }
        kit_exec(k, "UPDATE jobs SET status = 'pending', locked_until = NULL");
    }
    int tries = 0;
    int after = 0;
    while (after < 100) {
        after += kit_now_us(k) > first_end;
        assert_string_equal(kit_claim(k, &thief), "");
        tries++;
    }
    assert_true(tries > after); /* before the first lease had ended, and after */
    assert_string_equal(kit_worker_ask(w, "finish id=1 kind=done by=A"), "ok");
}

/* Workers whose clocks are an hour ahead and behind. */
static void C38_a_workers_clock_does_not_count(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    kit_worker *early = kit_worker_start(k, 3600);
    kit_worker *late = kit_worker_start(k, -3600);
    int64_t clocks[2] = { 0 };
    assert_int_equal(sscanf(kit_worker_ask(early, "now"), "now %" SCNd64, &clocks[0]), 1);
    assert_int_equal(sscanf(kit_worker_ask(late, "now"), "now %" SCNd64, &clocks[1]), 1);
    assert_true(clocks[0] - clocks[1] > 7190 * KIT_SECOND); /* they really are */
    assert_string_equal(kit_worker_ask(early, "claim limit=1 by=E lease=600000000"), "ok 1:0");
    assert_string_equal(kit_worker_ask(late, "claim limit=1 by=L lease=600000000"), "ok 2:0");
    /* Ten minutes are ten minutes, by the database's clock. */
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE locked_until BETWEEN now() + "
                                    "interval '8 min' AND now() + interval '10 min' AND claimed_at "
                                    "BETWEEN now() - interval '2 min' AND now() ORDER BY id"),
                        "1,2");
    /* Neither takes the other's; both may finish; a lease that has ended is free for both. */
    assert_string_equal(kit_worker_ask(early, "claim limit=3 by=E lease=600000000"), "ok 3:0");
    assert_string_equal(kit_worker_ask(late, "claim limit=3 by=L lease=600000000"), "ok");
    assert_string_equal(kit_worker_ask(early, "claim limit=3 by=E lease=600000000"), "ok");
    kit_exec(k, "UPDATE jobs SET locked_until = now() - interval '1 ms' WHERE id = 3");
    expect_lost(kit_worker_ask(late, "finish id=3 kind=done by=E"));
    expect_lost(kit_worker_ask(early, "finish id=3 kind=done by=E"));
    assert_string_equal(kit_worker_ask(late, "claim limit=3 by=L lease=600000000"), "ok 3:0");
    assert_string_equal(kit_worker_ask(early, "finish id=1 kind=done by=E"), "ok");
    assert_string_equal(kit_worker_ask(late, "finish id=2 kind=done by=L"), "ok");
}

const kit_case kit_lasting[] = {
    KIT_TEST(C38_a_claim_inside_a_transaction_is_misuse, ON_ALL),
    KIT_TEST(C38_holding_outside_of_a_transaction_is_misuse, ON_ALL),
    KIT_TEST(C38_what_is_held_is_not_written, ON_ALL),
    KIT_TEST(C38_what_is_held_dies_with_its_transaction, ON_SHARED),
    KIT_TEST(C38_a_claim_is_there_when_it_returned_and_its_claimer_died, ON_SHARED),
    KIT_TEST(C38_a_lease_is_free_when_it_ends_and_not_before, ON_ALL),
    KIT_TEST(C38_a_lease_ends_in_an_instant_for_all, ON_SHARED),
    KIT_TEST(C38_a_lease_cannot_be_kept_in_a_column_of_another_type, ON_ALL),
    KIT_TEST(C38_a_row_that_is_ready_and_leased_is_not_free, ON_ALL),
    KIT_TEST(C38_fences_and_attempts_grow_with_every_claim, ON_ALL),
    KIT_TEST(C38_the_holder_finishes_its_row, ON_ALL),
    KIT_TEST(C38_another_does_not, ON_ALL),
    KIT_TEST(C38_a_namesake_is_refused_by_its_fence, ON_ALL),
    KIT_TEST(C38_a_lease_that_has_ended_is_not_its_holders_any_more, ON_ALL),
    KIT_TEST(C38_a_finish_asks_for_a_holder_or_a_fence, ON_ALL),
    KIT_TEST(C38_a_row_that_is_not_as_it_was_claimed_is_lost, ON_ALL),
    KIT_TEST(C38_a_finish_goes_with_the_transaction_it_is_in, ON_ALL),
    KIT_TEST(C38_a_holder_that_slept_past_its_lease_is_refused, ON_SHARED),
    KIT_TEST(C38_a_dead_workers_batch_is_free_when_its_lease_ends, ON_SHARED),
    KIT_TEST(C38_a_live_one_is_never_stolen, ON_SHARED),
    KIT_TEST(C38_a_workers_clock_does_not_count, ON_POSTGRES),
};
const size_t kit_lasting_count = sizeof kit_lasting / sizeof kit_lasting[0];
