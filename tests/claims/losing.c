/* losing.c - C37: what happens to a claimer when somebody else holds what it wants. The other one
 * is a plain connection that holds its lock until the test lets it go: a claimer that waited for it
 * where it should not would stand still until the suite's time is up.
 */
#include "kit.h"

#include <pthread.h>
#include <stdlib.h>

#define CLAIMED(k) kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id")

/* The first job is locked by this connection. */
static PGconn *holder(kit *k, const char *sql)
{
    PGconn *other = kit_connect(k);
    kit_pg(other, "SET idle_in_transaction_session_timeout = '10min'; BEGIN");
    kit_pg(other, sql);
    return other;
}

static PGconn *first_held(kit *k)
{
    return holder(k, "SELECT 1 FROM jobs WHERE id = 1 FOR UPDATE");
}

/* SQLite: the writer's lock is held by the plain connection. */
static void write_held(kit *k)
{
    kit_exec(k, "BEGIN IMMEDIATE");
}

/* A claim in a thread of its own. */
typedef struct waiting {
    pthread_t thread;
    claimer *c;
    claim_request request;
    weir_status status;
    bool over; /* atomic */
} waiting;

static void *wait_for_it(void *ctx)
{
    waiting *w = ctx;
    w->status = claimer_try(w->c, &w->request);
    __atomic_store_n(&w->over, true, __ATOMIC_RELEASE);
    return NULL;
}

static void wait_begin(waiting *w)
{
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static void wait_end(waiting *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
}

/* Until somebody waits for a lock; on the portable path too. */
static void await_waiter(kit *k)
{
    kit_await(k, "t",
              "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'weir' AND "
              "wait_event_type = 'Lock'");
}

static waiting waiting_claim(kit *k, int64_t limit, int64_t wait_us)
{
    waiting w = { .c = k->one, .request = kit_request(k, limit) };
    w.request.mode = CLAIM_WAIT;
    w.request.wait_us = wait_us;
    return w;
}

/* ---- skipping -------------------------------------------------------------------------------- */

static void C37_what_others_hold_is_skipped_without_waiting(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    PGconn *other = first_held(k);
    claim_request r = kit_request(k, 1);
    assert_string_equal(kit_claim(k, &r), "2");
    r.limit = 5;
    assert_string_equal(kit_claim(k, &r), "3");
    assert_string_equal(kit_claim(k, &r), "");
    /* It was held all the time. */
    assert_int_equal(PQtransactionStatus(other), PQTRANS_INTRANS);
    kit_pg(other, "COMMIT");
    assert_string_equal(kit_claim(k, &r), "1");
}

/* Somebody who has a lock that a claim need not fear does not keep it away. */
static void C37_a_reference_to_a_row_does_not_hold_it(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    kit_exec(k, "CREATE TABLE lines (job bigint REFERENCES jobs)");
    PGconn *other = holder(k, "INSERT INTO lines VALUES (1)");
    const claim_request r = kit_request(k, 2);
    assert_string_equal(kit_claim(k, &r), "1 2");
    kit_pg(other, "COMMIT");
}

static void C37_skip_waits_for_the_writer_of_sqlite_within_the_timeout(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    write_held(k);
    kit_exec(k, "UPDATE jobs SET status = 'done' WHERE id = 1");
    waiting w = { .c = k->one, .request = kit_request(k, 5) };
    wait_begin(&w);
    kit_exec(k, "COMMIT");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, NULL), "2");
}

/* A database handle that gives up soon. */
static void C37_past_the_busy_timeout_it_says_so(void **state)
{
    kit *k = *state;
    char url[KIT_URL_BYTES + 16];
    claimer c = { 0 };
    table_db *db = NULL;
    kit_jobs(k, 2);
    snprintf(url, sizeof url, "%s?busy=50ms", k->url);
    KIT_OK(k->one, weir__table_open(&db, &(table_options){ .url = url }, &k->one->err));
    KIT_OK(&c, claimer_begin(&c, db));
    write_held(k);
    claim_request r = kit_request(k, 1);
    KIT_IS(&c, claimer_try(&c, &r), WEIR_EHELD);
    assert_false(weir__table_in_transaction(c.s));
    kit_exec(k, "COMMIT");
    assert_string_equal(kit_claim_by(&c, &r), "1");
    claimer_end(&c);
    weir__table_close(db);
}

/* ---- failing at once ------------------------------------------------------------------------- */

static void C37_nowait_is_told_at_once(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    PGconn *other = k->kind == KIT_POSTGRES ? first_held(k) : NULL;
    if (other == NULL) {
        write_held(k);
    }
    claim_request r = kit_request(k, 2);
    r.mode = CLAIM_NOWAIT;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EHELD);
    assert_int_equal(k->one->r.rows_count, 0);
    assert_false(weir__table_in_transaction(k->one->s));
    if (other != NULL) {
        assert_int_equal(PQtransactionStatus(other), PQTRANS_INTRANS);
        kit_pg(other, "COMMIT");
    } else {
        kit_exec(k, "COMMIT");
    }
    assert_string_equal(CLAIMED(k), "");
    assert_string_equal(kit_claim(k, &r), "1 2");
}

/* Who wants other rows is not concerned. */
static void C37_nowait_is_about_the_rows_wanted(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    PGconn *other = first_held(k);
    claim_request r = kit_request(k, 2);
    r.mode = CLAIM_NOWAIT;
    r.where = weir__str("status = 'pending' AND id > 1");
    assert_string_equal(kit_claim(k, &r), "2 3");
    kit_pg(other, "COMMIT");
}

static void C37_nowait_with_nobody_there_is_a_claim(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    claim_request r = kit_request(k, 2);
    r.mode = CLAIM_NOWAIT;
    assert_string_equal(kit_claim(k, &r), "1 2");
    assert_string_equal(kit_claim(k, &r), "3");
    assert_string_equal(kit_claim(k, &r), "");
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void C37_who_waited_sees_what_was_committed(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    PGconn *other = holder(k, "UPDATE jobs SET priority = 7, kind = 'changed' WHERE id = 1");
    waiting w = waiting_claim(k, 1, -1);
    wait_begin(&w);
    await_waiter(k);
    assert_false(__atomic_load_n(&w.over, __ATOMIC_ACQUIRE));
    kit_pg(other, "COMMIT");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, "id"), "1");
    assert_string_equal(claimer_column(k->one, "priority"), "7");
    assert_string_equal(claimer_column(k->one, "kind"), "changed");
    assert_string_equal(CLAIMED(k), "1");
}

static void C37_who_waited_in_vain_gets_the_next(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    PGconn *other = holder(k, "UPDATE jobs SET status = 'done' WHERE id = 1");
    waiting w = waiting_claim(k, 2, 60 * KIT_SECOND);
    wait_begin(&w);
    await_waiter(k);
    kit_pg(other, "COMMIT");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, NULL), "2 3");
    assert_string_equal(kit_rows(k, "SELECT id, status FROM jobs ORDER BY id"),
                        "1 done,2 claimed,3 claimed");
}

static void C37_who_waited_for_a_rollback_gets_the_row(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    PGconn *other = holder(k, "UPDATE jobs SET status = 'done' WHERE id = 1");
    waiting w = waiting_claim(k, 1, -1);
    wait_begin(&w);
    await_waiter(k);
    kit_pg(other, "ROLLBACK");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, NULL), "1");
}

/* The row moves in the order while it is waited for. */
static void C37_who_waited_gets_rows_in_order_all_the_same(void **state)
{
    kit *k = *state;
    kit_jobs(k, 4);
    kit_exec(k, "UPDATE jobs SET priority = id");
    PGconn *other = holder(k, "UPDATE jobs SET priority = 10 WHERE id = 1");
    const claim_order order = { .column = weir__str("priority") };
    waiting w = waiting_claim(k, 4, -1);
    w.request.order = &order;
    w.request.order_count = 1;
    wait_begin(&w);
    await_waiter(k);
    kit_pg(other, "COMMIT");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, "priority"), "2 3 4 10");
}

static void C37_a_wait_ends_when_its_time_is_over(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    PGconn *other = k->kind == KIT_POSTGRES ? first_held(k) : NULL;
    if (other == NULL) {
        write_held(k);
    }
    const int64_t before = kit_mono_us();
    waiting w = waiting_claim(k, 1, 100 * KIT_MS);
    KIT_IS(k->one, kit_try(k, &w.request), WEIR_EHELD);
    assert_true(kit_mono_us() - before >= 100 * KIT_MS);
    assert_false(weir__table_in_transaction(k->one->s));
    if (other != NULL) {
        kit_pg(other, "COMMIT");
    } else {
        kit_exec(k, "COMMIT");
    }
    assert_string_equal(CLAIMED(k), "");
    assert_string_equal(kit_claim(k, &w.request), "1");
}

/* So it looks, too, when a lock is granted in the moment in which the wait ends. */
static void C37_a_wait_that_is_cancelled_is_over(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    PGconn *other = first_held(k);
    waiting w = waiting_claim(k, 1, 60 * KIT_SECOND);
    wait_begin(&w);
    await_waiter(k);
    kit_exec(k, "SELECT pg_cancel_backend(%d)", PQbackendPID(weir__table_native(k->one->s)));
    wait_end(&w);
    KIT_IS(k->one, w.status, WEIR_EHELD);
    kit_pg(other, "COMMIT");
    assert_string_equal(CLAIMED(k), "");
    assert_string_equal(kit_claim(k, &w.request), "1");
}

static void C37_sqlite_waits_and_sees_what_was_committed(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    write_held(k);
    kit_exec(k, "UPDATE jobs SET status = 'done' WHERE id = 1; "
                "UPDATE jobs SET priority = 7 WHERE id = 2");
    waiting w = waiting_claim(k, 2, -1);
    wait_begin(&w);
    kit_exec(k, "COMMIT");
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, NULL), "2");
    assert_string_equal(claimer_column(k->one, "priority"), "7");
}

/* ---- rows that are held in a transaction ----------------------------------------------------- */

static claim_request held_request(const kit *k, int64_t limit, claim_mode mode)
{
    claim_request r = kit_request(k, limit);
    r.writes.set = NULL;
    r.writes.set_count = 0;
    r.hold = true;
    r.mode = mode;
    return r;
}

static void C37_what_one_claimer_holds_another_skips_waits_for_or_is_told_of(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    claimer *other = kit_claimer(k);
    KIT_OK(other, weir__table_begin(other->s, &other->err));
    claim_request held = held_request(k, 1, CLAIM_SKIP);
    assert_string_equal(kit_claim_by(other, &held), "1");
    KIT_OK(k->one, weir__table_begin(k->one->s, &k->one->err));
    assert_string_equal(kit_claim(k, &held), "2");
    weir__table_rollback(k->one->s);
    claim_request r = kit_request(k, 1);
    assert_string_equal(kit_claim(k, &r), "2");
    r.mode = CLAIM_NOWAIT;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EHELD);
    waiting w = waiting_claim(k, 1, -1);
    wait_begin(&w);
    await_waiter(k);
    weir__table_rollback(other->s);
    wait_end(&w);
    KIT_OK(k->one, w.status);
    assert_string_equal(claimer_column(k->one, NULL), "1");
}

const kit_case kit_losing[] = {
    KIT_TEST(C37_what_others_hold_is_skipped_without_waiting, ON_POSTGRES),
    KIT_TEST(C37_a_reference_to_a_row_does_not_hold_it, ON_POSTGRES),
    KIT_TEST(C37_skip_waits_for_the_writer_of_sqlite_within_the_timeout, ON_SQLITE),
    KIT_TEST(C37_past_the_busy_timeout_it_says_so, ON_SQLITE),
    KIT_TEST(C37_nowait_is_told_at_once, ON_SHARED),
    KIT_TEST(C37_nowait_is_about_the_rows_wanted, ON_POSTGRES),
    KIT_TEST(C37_nowait_with_nobody_there_is_a_claim, ON_ALL),
    KIT_TEST(C37_who_waited_sees_what_was_committed, ON_POSTGRES),
    KIT_TEST(C37_who_waited_in_vain_gets_the_next, ON_POSTGRES),
    KIT_TEST(C37_who_waited_for_a_rollback_gets_the_row, ON_POSTGRES),
    KIT_TEST(C37_who_waited_gets_rows_in_order_all_the_same, ON_POSTGRES),
    KIT_TEST(C37_a_wait_ends_when_its_time_is_over, ON_SHARED),
    KIT_TEST(C37_a_wait_that_is_cancelled_is_over, ON_POSTGRES),
    KIT_TEST(C37_sqlite_waits_and_sees_what_was_committed, ON_SQLITE),
    KIT_TEST(C37_what_one_claimer_holds_another_skips_waits_for_or_is_told_of, ON_POSTGRES),
};
const size_t kit_losing_count = sizeof kit_losing / sizeof kit_losing[0];
