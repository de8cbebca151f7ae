/* death_test.c - claimers that die between any two steps of a claim, connections that end under
 * them, answers that are lost, and servers that are killed: a claim is there as a whole, or not at
 * all, and what is not claimed is free at once.
 *
 * A worker (claim_worker.c) is told at which of its steps to kill itself: at the first, at the
 * second, and so on, until it survives to answer.
 */
#include "kit.h"
#include "proxy.h"
#include "servers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS_MAX = 200, BATCH = 3 };

/* Everybody who was killed is gone from the database too. */
static void await_gone(kit *k)
{
    if (k->kind == KIT_POSTGRES) {
        kit_await(k, "0",
                  "SELECT count(*) FROM pg_stat_activity "
                  "WHERE application_name = 'claim_worker'");
    }
}

static void reset(kit *k)
{
    kit_exec(k, "UPDATE jobs SET status = 'pending', claimed_by = NULL, claimed_at = NULL, "
                "locked_until = NULL, fence = 0, attempts = 0");
}

/* Has a worker die at its n-th step of these lines; false: it survived them all. */
static bool dies(kit *k, int step, const char *const *lines, size_t count)
{
    k->workers_count = 0; /* those before have ended */
    kit_worker *w = kit_worker_start(k, 0);
    assert_string_equal(kit_worker_ask(w, "die at=%d", step), "ok");
    bool alive = true;
    for (size_t i = 0; i < count && alive; i++) {
        kit_worker_send(w, "%s", lines[i]);
        const char *answer = kit_worker_read(w);
        alive = answer != NULL;
        if (alive && strncmp(answer, "ok", 2) != 0) {
            fail_msg("step %d: %s", step, answer);
        }
    }
    kit_worker_kill(w);
    free(w);
    k->workers_count = 0;
    await_gone(k);
    return !alive;
}

static void C36_a_claimer_that_dies_at_any_step_leaves_all_or_nothing(void **state)
{
    kit *k = *state;
    const char *const line = "claim limit=3 by=A lease=3600000000 fence=1";
    int step = 1;
    int nothing = 0;
    kit_jobs(k, BATCH + 2);
    for (; dies(k, step, &line, 1); step++) {
        assert_true(step < STEPS_MAX);
        const int64_t claimed =
            kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed' AND claimed_by = 'A' "
                          "AND locked_until IS NOT NULL AND claimed_at IS NOT NULL AND fence = 1");
        const int64_t touched = kit_number(
            k, "SELECT count(*) FROM jobs WHERE status <> 'pending' OR claimed_by IS NOT "
               "NULL OR locked_until IS NOT NULL OR claimed_at IS NOT NULL OR "
               "fence <> 0");
        if (claimed != touched || (claimed != 0 && claimed != BATCH)) {
            fail_msg("step %d: %d rows claimed, %d touched", step, (int)claimed, (int)touched);
        }
        nothing += claimed == 0;
        /* What it did not get is free at once. */
        claim_request r = kit_request(k, BATCH + 2);
        r.mode = CLAIM_NOWAIT;
        assert_string_equal(kit_claim(k, &r), claimed == 0 ? "1 2 3 4 5" : "4 5");
        reset(k);
    }
    assert_true(step > 2 && nothing > 0);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed'"), BATCH);
}

static void C38_a_holder_that_dies_at_any_step_leaves_nothing(void **state)
{
    kit *k = *state;
    static const char *const lines[] = { "begin", "claim limit=3 hold=1", "commit" };
    int step = 1;
    kit_jobs(k, BATCH);
    for (; dies(k, step, lines, 3); step++) {
        assert_true(step < STEPS_MAX);
        assert_string_equal(kit_rows(k, "SELECT id, status, claimed_by FROM jobs ORDER BY id"),
                            "1 pending -,2 pending -,3 pending -");
        claim_request r = kit_request(k, BATCH);
        r.mode = CLAIM_NOWAIT;
        assert_string_equal(kit_claim(k, &r), "1 2 3");
        reset(k);
    }
    assert_true(step > 3);
}

static void C38_who_dies_while_finishing_has_finished_or_not(void **state)
{
    kit *k = *state;
    const char *const line = "finish id=1 kind=done by=A";
    int step = 1;
    kit_jobs(k, 1);
    for (;; step++) {
        assert_true(step < STEPS_MAX);
        const claim_request r = kit_lease(k, 1, "A", KIT_HOUR);
        assert_string_equal(kit_claim(k, &r), "1");
        const bool died = dies(k, step, &line, 1);
        const char *rows = kit_rows(k, "SELECT status, claimed_by, CASE WHEN locked_until IS NULL "
                                       "THEN 'free' ELSE 'leased' END FROM jobs");
        if (strcmp(rows, "done A free") != 0 && !(died && strcmp(rows, "claimed A leased") == 0)) {
            fail_msg("step %d: %s", step, rows);
        }
        if (!died) {
            break;
        }
        reset(k);
    }
    assert_true(step > 1);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void terminate(kit *k, claimer *c)
{
    kit_exec(k, "SELECT pg_terminate_backend(%d, 10000)", PQbackendPID(weir__table_native(c->s)));
}

static void C38_what_is_held_is_free_when_its_connection_ends(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    claimer *holder = kit_claimer(k);
    claim_request held = kit_request(k, 1);
    held.writes.set = NULL;
    held.writes.set_count = 0;
    held.hold = true;
    KIT_OK(holder, weir__table_begin(holder->s, &holder->err));
    assert_string_equal(kit_claim_by(holder, &held), "1");
    claim_request r = kit_request(k, 1);
    assert_string_equal(kit_claim(k, &r), "2");
    terminate(k, holder);
    assert_string_equal(kit_claim(k, &r), "1");
    KIT_IS(holder, weir__table_commit(holder->s, &holder->err), WEIR_EUNAVAILABLE);
}

static void C36_a_session_that_was_ended_claims_nothing(void **state)
{
    kit *k = *state;
    kit_jobs(k, 2);
    claimer *c = kit_claimer(k);
    const claim_request r = kit_request(k, 1);
    assert_string_equal(kit_claim_by(c, &r), "1");
    terminate(k, c);
    const weir_status status = claimer_try(c, &r);
    assert_true(status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN);
    assert_int_equal(c->r.rows_count, 0);
    assert_string_equal(kit_claim(k, &r), "2");
}

typedef struct waiting {
    pthread_t thread;
    claimer *c;
    claim_request request;
    weir_status status;
} waiting;

static void *wait_for_it(void *ctx)
{
    waiting *w = ctx;
    w->status = claimer_try(w->c, &w->request);
    return NULL;
}

/* Ended in the middle of its statement. */
static void C36_a_claim_that_is_ended_while_it_waits_claims_nothing(void **state)
{
    kit *k = *state;
    kit_jobs(k, 3);
    PGconn *other = kit_connect(k);
    kit_pg(other, "BEGIN; SELECT 1 FROM jobs WHERE id = 2 FOR UPDATE");
    waiting w = { .c = kit_claimer(k), .request = kit_request(k, 3) };
    w.request.mode = CLAIM_WAIT;
    w.request.wait_us = -1;
    assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
    const int pid = PQbackendPID(weir__table_native(w.c->s));
    kit_await(k, "t", "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %d", pid);
    kit_exec(k, "SELECT pg_terminate_backend(%d, 10000)", pid);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_true(w.status == WEIR_EUNAVAILABLE || w.status == WEIR_EUNKNOWN);
    kit_pg(other, "COMMIT");
    const claim_request r = kit_request(k, 3);
    assert_string_equal(kit_claim(k, &r), "1 2 3");
}

/* The server has committed, and nobody is told. */
static void C36_a_claim_whose_answer_is_lost_is_not_repeated(void **state)
{
    kit *k = *state;
    char url[KIT_URL_BYTES];
    kit_jobs(k, 12);
    proxy *p = proxy_start();
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres", proxy_host(p));
    table_db *db = NULL;
    claimer c = { 0 };
    KIT_OK(k->one, weir__table_open(&db, &(table_options){ .url = url }, &k->one->err));
    KIT_OK(&c, claimer_begin(&c, db));
    claim_request r = kit_request(k, BATCH);
    /* The third is one message to the server: its statement was prepared by the second. */
    assert_string_equal(kit_claim_by(&c, &r), "1 2 3");
    assert_string_equal(kit_claim_by(&c, &r), "4 5 6");
    proxy_cut_answer(p, k->path == CLAIM_PATH_PORTABLE ? "COMMIT" : NULL);
    KIT_IS(&c, claimer_try(&c, &r), WEIR_EUNKNOWN);
    assert_int_equal(proxy_cuts(p), 1);
    assert_int_equal(c.r.rows_count, 0);
    assert_string_equal(kit_rows(k, "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id"),
                        "1,2,3,4,5,6,7,8,9");
    claimer_end(&c);
    weir__table_close(db);
    proxy_stop(p);
}

/* The request was never there. */
static void C36_a_claim_that_is_lost_on_the_way_takes_nothing(void **state)
{
    kit *k = *state;
    char url[KIT_URL_BYTES];
    kit_jobs(k, 6);
    proxy *p = proxy_start();
    snprintf(url, sizeof url, "postgres:///postgres?host=%s&user=postgres", proxy_host(p));
    table_db *db = NULL;
    claimer c = { 0 };
    KIT_OK(k->one, weir__table_open(&db, &(table_options){ .url = url }, &k->one->err));
    KIT_OK(&c, claimer_begin(&c, db));
    claim_request r = kit_request(k, BATCH);
    assert_string_equal(kit_claim_by(&c, &r), "1 2 3");
    proxy_cut_request(p, k->path == CLAIM_PATH_PORTABLE ? "COMMIT" : "jobs");
    const weir_status status = claimer_try(&c, &r);
    assert_true(status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN);
    assert_int_equal(proxy_cuts(p), 1);
    kit_await(k, "1,2,3", "SELECT id FROM jobs WHERE status = 'claimed' ORDER BY id");
    assert_string_equal(kit_claim(k, &r), "4 5 6");
    claimer_end(&c);
    weir__table_close(db);
    proxy_stop(p);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* SIGKILL to the server and to all its processes, and a new one on what is left on the disk. */
static void kill_server(kit *k)
{
    test_shell("main=$(head -1 $data/postmaster.pid); "
               "all=\"$main $(cat /proc/$main/task/$main/children)\"; kill -KILL $all; "
               "while kill -0 $main 2>/dev/null; do sleep 0.01; done; "
               "for one in $all; do while kill -0 $one 2>/dev/null; do sleep 0.01; done; done; "
               "$bin/pg_ctl -D $data -l $dir/log -s -w start");
    PQfinish(k->pg);
    k->pg = PQconnectdb(getenv("WEIR_TEST_POSTGRES"));
    assert_int_equal(PQstatus(k->pg), CONNECTION_OK);
}

/* Whatever the database was told about when to write. */
static void C38_a_claim_survives_the_server_being_killed(void **state)
{
    kit *k = *state;
    kit_jobs(k, 6);
    kit_exec(k, "ALTER DATABASE postgres SET synchronous_commit = off");
    kit_exec(k, "ALTER SYSTEM SET wal_writer_delay = '10s'");
    kit_exec(k, "SELECT pg_reload_conf()");
    for (int64_t i = 0; i < 2; i++) {
        kit_claimer_close(k, k->one);
        k->one = kit_claimer(k);
        kit_exec(k, "CHECKPOINT");
        const claim_request r = kit_lease(k, BATCH, "A", KIT_HOUR);
        assert_string_equal(kit_claim(k, &r), i == 0 ? "1 2 3" : "4 5 6");
        kill_server(k);
        assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed' AND "
                                       "fence = 1 AND locked_until > now()"),
                         (i + 1) * BATCH);
    }
    const claim_request r = kit_request(k, BATCH);
    assert_int_not_equal(kit_try(k, &r), WEIR_OK); /* its connection is gone */
    kit_exec(k, "ALTER DATABASE postgres RESET synchronous_commit");
}

/* The control: without a promise, a commit is lost like that. */
static void a_commit_that_was_not_waited_for_is_lost(void **state)
{
    kit *k = *state;
    kit_jobs(k, 1);
    kit_exec(k, "ALTER SYSTEM SET wal_writer_delay = '10s'");
    kit_exec(k, "SELECT pg_reload_conf()");
    kit_exec(k, "CHECKPOINT");
    kit_exec(k, "SET synchronous_commit = off; UPDATE jobs SET status = 'claimed'");
    kill_server(k);
    assert_string_equal(kit_rows(k, "SELECT status FROM jobs"), "pending");
}

static const kit_case cases[] = {
    KIT_TEST(C36_a_claimer_that_dies_at_any_step_leaves_all_or_nothing, ON_SHARED),
    KIT_TEST(C38_a_holder_that_dies_at_any_step_leaves_nothing, ON_SHARED),
    KIT_TEST(C38_who_dies_while_finishing_has_finished_or_not, ON_SHARED),
    KIT_TEST(C38_what_is_held_is_free_when_its_connection_ends, ON_POSTGRES),
    KIT_TEST(C36_a_session_that_was_ended_claims_nothing, ON_POSTGRES),
    KIT_TEST(C36_a_claim_that_is_ended_while_it_waits_claims_nothing, ON_POSTGRES),
    KIT_TEST(C36_a_claim_whose_answer_is_lost_is_not_repeated, ON_POSTGRES),
    KIT_TEST(C36_a_claim_that_is_lost_on_the_way_takes_nothing, ON_POSTGRES),
    KIT_TEST(a_commit_that_was_not_waited_for_is_lost, ON_POSTGRES),
    KIT_TEST(C38_a_claim_survives_the_server_being_killed, ON_POSTGRES),
};

int main(int argc, char **argv)
{
    const kit_case *const lists[] = { cases, NULL };
    const size_t counts[] = { sizeof cases / sizeof cases[0] };
    return kit_main(argc, argv, lists, counts);
}
