/* many_test.c - many claimers at once: forty threads with sessions of their own on PostgreSQL,
 * eight processes on SQLite, eight threads in memory. Each writes down what it was given; what must
 * hold is checked from those notes and from the table, by code that knows only the contract:
 *
 *   - no row is in two notes, and after the storm every row is in one;
 *   - no batch is larger than asked for, and each is in order;
 *   - nobody is given a short batch and then, without any row having come free, another one;
 *   - nobody was told of an error.
 */
#include "kit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    STORM_THREADS = 40,
    STORM_PROCESSES = 8,
    STORM_LIMIT = 7,
    STORM_ROWS_MAX = 4000,
    CAP_THREADS = 32,
    CAP = 3,
    RACES_MAX = 10000,
};

/* ---- notes ----------------------------------------------------------------------------------- */

/* What all were given. Guarded by mu. */
typedef struct notes {
    pthread_mutex_t mu;
    int given[STORM_ROWS_MAX + 1];
    claim_mode modes[2]; /* what claimers do with even and odd numbers */
    int64_t limit;
} notes;

/* What one claimer was given so far. */
typedef struct history {
    size_t short_batches;
    const char *wrong;
} history;

/* ids: in the order in which they came. NULL: as it should be. */
static const char *note(notes *n, history *h, const int64_t *ids, size_t count)
{
    if (count > (size_t)n->limit) {
        return "was given more than asked for";
    }
    if (h->short_batches > 0 && count > 0) {
        return "had a short batch while rows were free";
    }
    h->short_batches += count < (size_t)n->limit;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 1 || ids[i] > STORM_ROWS_MAX) {
            return "was given a row that there is not";
        }
        if (i > 0 && ids[i] <= ids[i - 1]) {
            return "was given rows out of order";
        }
    }
    pthread_mutex_lock(&n->mu);
    for (size_t i = 0; i < count; i++) {
        n->given[ids[i]]++;
    }
    pthread_mutex_unlock(&n->mu);
    return NULL;
}

static notes *notes_new(int64_t limit)
{
    notes *n = calloc(1, sizeof *n);
    assert_non_null(n);
    assert_int_equal(pthread_mutex_init(&n->mu, NULL), 0);
    n->limit = limit;
    return n;
}

/* Every row was given once, and the table agrees. */
static void notes_check(kit *k, notes *n, int rows)
{
    for (int id = 1; id <= rows; id++) {
        if (n->given[id] != 1) {
            fail_msg("row %d was given %d times", id, n->given[id]);
        }
    }
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed' AND "
                                   "attempts = 1"),
                     rows);
    pthread_mutex_destroy(&n->mu);
    free(n);
}

/* ---- no row twice ---------------------------------------------------------------------------- */

static const char *drain(kit *k, int number, void *ctx)
{
    notes *n = ctx;
    history h = { 0 };
    claimer c = { 0 };
    char by[16];
    int64_t ids[CLAIM_LIMIT_MAX];
    size_t count = 1;
    snprintf(by, sizeof by, "w%d", number);
    claim_request r = kit_request(k, n->limit);
    r.by = weir__str(by);
    r.attempts_column = weir__str("attempts");
    r.mode = n->modes[number % 2];
    r.wait_us = -1;
    const char *wrong = NULL;
    while (wrong == NULL && count > 0) {
        /* In memory there is one connection, which all take in turn. */
        if (c.s == NULL && claimer_begin(&c, k->db) != WEIR_OK) {
            wrong = "has no session";
            break;
        }
        if (claimer_try(&c, &r) != WEIR_OK) {
            fprintf(stderr, "%s: %s\n", by, c.err.message);
            wrong = "was told of an error";
            break;
        }
        count = c.r.rows_count;
        for (size_t i = 0; i < count && i < CLAIM_LIMIT_MAX; i++) {
            ids[i] = claimer_number(&c, i, "id");
        }
        wrong = note(n, &h, ids, count);
        if (k->kind == KIT_MEMORY) {
            claimer_end(&c);
        }
    }
    claimer_end(&c);
    return wrong;
}

/* The connection in memory is free for others. */
static void give_way(kit *k)
{
    if (k->kind == KIT_MEMORY) {
        kit_claimer_close(k, k->one);
    }
}

static void come_back(kit *k)
{
    if (k->kind == KIT_MEMORY) {
        k->one = kit_claimer(k);
        k->lite = weir__table_native(k->one->s);
    }
}

/* Claimers, and a session that holds rows meanwhile. */
typedef struct held_rows {
    notes *n;
    PGconn *holds, *looks;
    _Atomic int ended; /* claimers that are done */
} held_rows;

/* The last thread looks for a statement that waits for the held rows without end (the portable path
 * waits 1 ms). It waits until it is seen, because only then are the rows given back: how fast the
 * machine is does not matter. */
static const char *drain_beside(kit *k, int number, void *ctx)
{
    held_rows *h = ctx;
    const char *wrong = NULL;
    if (number < STORM_THREADS) {
        wrong = drain(k, number, h->n);
        h->ended++;
        return wrong;
    }
    char sql[256];
    snprintf(
        sql, sizeof sql,
        "SELECT 1 FROM pg_stat_activity WHERE query_start < clock_timestamp() - interval '30 s' "
        "AND %d = ANY (pg_blocking_pids(pid)) LIMIT 1",
        PQbackendPID(h->holds));
    while (wrong == NULL && h->ended < STORM_THREADS) {
        PGresult *result = PQexec(h->looks, sql);
        if (PQntuples(result) != 0) {
            wrong = "saw a claimer wait for a held row";
            PQclear(PQexec(h->holds, "ROLLBACK"));
        }
        PQclear(result);
        usleep(10000);
    }
    return wrong;
}

/* Five rows are held all the time, and nobody ever waits for them. (PostgreSQL itself may make a
 * claimer wait for the end of another's claim, for a row that neither of them gets: its SKIP LOCKED
 * does that when a row is updated between two looks at it.) */
static void C36_forty_claimers_get_every_row_once_and_wait_for_nobody(void **state)
{
    kit *k = *state;
    const int rows = k->path == CLAIM_PATH_PORTABLE ? 1400 : 2800;
    static const int held[] = { 1, 2, 3, 700, 701 };
    const size_t held_count = sizeof held / sizeof held[0];
    kit_jobs(k, rows);
    held_rows h = { .n = notes_new(STORM_LIMIT), .holds = kit_connect(k), .looks = kit_connect(k) };
    kit_pg(h.holds, "BEGIN; SELECT 1 FROM jobs WHERE id IN (1, 2, 3, 700, 701) FOR UPDATE");
    kit_together(k, STORM_THREADS + 1, drain_beside, &h);
    for (size_t i = 0; i < held_count; i++) {
        assert_int_equal(h.n->given[held[i]]++, 0);
    }
    kit_pg(h.holds, "UPDATE jobs SET status = 'claimed', attempts = 1 "
                    "WHERE id IN (1, 2, 3, 700, 701); COMMIT");
    notes_check(k, h.n, rows);
}

static void C36_eight_claimers_in_memory_get_every_row_once(void **state)
{
    kit *k = *state;
    kit_jobs(k, 280);
    notes *n = notes_new(STORM_LIMIT);
    give_way(k);
    kit_together(k, 8, drain, n);
    come_back(k);
    notes_check(k, n, 280);
}

/* Those that wait and those that skip get along. */
static void C37_who_waits_and_who_skips_share_the_rows(void **state)
{
    kit *k = *state;
    const int rows = 700;
    kit_jobs(k, rows);
    notes *n = notes_new(STORM_LIMIT);
    n->modes[1] = CLAIM_WAIT;
    kit_together(k, STORM_THREADS / 2, drain, n);
    notes_check(k, n, rows);
}

static size_t numbers(const char *text, int64_t *out)
{
    size_t count = 0;
    char *end = NULL;
    for (const char *at = text; *at != '\0'; at = end) {
        out[count++] = strtoll(at, &end, 10);
        assert_true(end != at && count < CLAIM_LIMIT_MAX);
    }
    return count;
}

static void C36_eight_processes_get_every_row_once(void **state)
{
    kit *k = *state;
    const int rows = 560;
    int64_t ids[CLAIM_LIMIT_MAX];
    kit_worker *w[STORM_PROCESSES];
    kit_jobs(k, rows);
    kit_exec(k, "UPDATE jobs SET attempts = 1");
    notes *n = notes_new(STORM_LIMIT);
    for (int i = 0; i < STORM_PROCESSES; i++) {
        w[i] = kit_worker_start(k, 0);
    }
    for (int i = 0; i < STORM_PROCESSES; i++) {
        kit_worker_send(w[i], "drain limit=%d by=w%d", STORM_LIMIT, i);
    }
    for (int i = 0; i < STORM_PROCESSES; i++) {
        history h = { 0 };
        const char *line = kit_worker_read(w[i]);
        while (line != NULL && strncmp(line, "batch", 5) == 0) {
            const char *wrong = note(n, &h, ids, numbers(line + 5, ids));
            if (wrong != NULL) {
                fail_msg("process %d %s", i, wrong);
            }
            line = kit_worker_read(w[i]);
        }
        assert_string_equal(line == NULL ? "it died" : line, "end");
    }
    notes_check(k, n, rows);
}

/* ---- never too many for one value ------------------------------------------------------------ */

/* Whoever exceeds the cap is refused by the table itself. On PostgreSQL a trigger sees only what is
 * committed, so it counts in rows that one transaction at a time can hold. */
static void cap_in_the_table(kit *k)
{
    kit_exec(k, "CREATE TABLE caps (kind text PRIMARY KEY, held integer NOT NULL DEFAULT 0, "
                "most integer NOT NULL DEFAULT 0)");
    kit_exec(k, "INSERT INTO caps (kind) VALUES ('k0'), ('k1'), ('k2'), ('none')");
    kit_exec_each(k,
                  "CREATE FUNCTION cap() RETURNS trigger LANGUAGE plpgsql AS $$ "
                  "DECLARE now_held integer; BEGIN "
                  "UPDATE caps SET held = held + (new.status = 'claimed')::integer - "
                  "(old.status = 'claimed')::integer WHERE kind = coalesce(new.kind, 'none') "
                  "RETURNING held INTO now_held; "
                  "IF now_held > 3 THEN RAISE EXCEPTION 'more than 3 of % are held', new.kind; "
                  "END IF; "
                  "UPDATE caps SET most = greatest(most, now_held) WHERE kind = "
                  "coalesce(new.kind, 'none'); RETURN new; END $$; "
                  "CREATE TRIGGER cap AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION cap()",
                  "CREATE TRIGGER cap AFTER UPDATE ON jobs BEGIN "
                  "UPDATE caps SET held = held + (new.status = 'claimed') - "
                  "(old.status = 'claimed') WHERE kind = coalesce(new.kind, 'none'); "
                  "SELECT RAISE(ABORT, 'more than 3 of a kind are held') FROM caps "
                  "WHERE held > 3; "
                  "UPDATE caps SET most = max(most, held); END");
}

/* How many are done. Any thread, atomic. */
typedef struct cap_run {
    int rows;
    int done;
} cap_run;

/* Claims, finishes, and claims again, until all rows are done. */
static const char *capped(kit *k, int number, void *ctx)
{
    cap_run *run = ctx;
    claimer c = { 0 };
    char by[16];
    const char *wrong = NULL;
    snprintf(by, sizeof by, "w%d", number);
    claim_request r = kit_lease(k, 5, by, KIT_HOUR);
    r.max_per_column = weir__str("kind");
    r.max_per = CAP;
    if (claimer_begin(&c, k->db) != WEIR_OK) {
        return "has no session";
    }
    while (wrong == NULL && __atomic_load_n(&run->done, __ATOMIC_ACQUIRE) < run->rows) {
        if (claimer_try(&c, &r) != WEIR_OK) {
            fprintf(stderr, "%s: %s\n", by, c.err.message);
            wrong = "was told of an error by its claim";
            break;
        }
        int64_t ids[8];
        const size_t count = c.r.rows_count;
        wrong = count > 5 ? "was given more than asked for" : NULL;
        for (size_t i = 0; i < count && wrong == NULL; i++) {
            ids[i] = claimer_number(&c, i, "id");
        }
        for (size_t i = 0; i < count && wrong == NULL; i++) {
            if (kit_finish(&c, FINISH_DONE, ids[i], by) != WEIR_OK) {
                fprintf(stderr, "%s: %s\n", by, c.err.message);
                wrong = "could not finish";
            }
            (void)__atomic_add_fetch(&run->done, 1, __ATOMIC_ACQ_REL);
        }
        if (count == 0) {
            (void)sched_yield();
        }
    }
    if (wrong != NULL) {
        __atomic_store_n(&run->done, run->rows, __ATOMIC_RELEASE); /* the others end too */
    }
    claimer_end(&c);
    return wrong;
}

static void C36_T14_a_cap_per_value_holds_under_32_claimers(void **state)
{
    kit *k = *state;
    cap_run run = { .rows = k->kind == KIT_POSTGRES ? 240 : 120 };
    kit_jobs(k, run.rows);
    kit_exec(k, "UPDATE jobs SET kind = CASE id %% 4 WHEN 0 THEN NULL WHEN 1 THEN 'k1' WHEN 2 THEN "
                "'k2' ELSE 'k0' END");
    cap_in_the_table(k);
    /* One claim uses the caps up. Whether the threads ever do depends on who meets whom. */
    claim_request r = kit_lease(k, 4 * CAP, "first", KIT_HOUR);
    r.max_per_column = weir__str("kind");
    r.max_per = CAP;
    assert_string_equal(kit_claim(k, &r), "1 2 3 4 5 6 7 8 9 10 11 12");
    for (; run.done < 4 * CAP; run.done++) {
        KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, run.done + 1, "first"));
    }
    kit_together(k, CAP_THREADS, capped, &run);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'done'"), run.rows);
    /* They were used up, and no more. */
    assert_string_equal(kit_rows(k, "SELECT max(most), max(held) FROM caps"), "3 0");
}

/* What is taken with a cap, by one claimer. */
static void C36_a_cap_counts_what_is_held_and_nothing_else(void **state)
{
    kit *k = *state;
    kit_jobs(k, 12);
    kit_exec(k, "UPDATE jobs SET kind = CASE WHEN id <= 6 THEN 'a' WHEN id <= 9 THEN 'b' END");
    claim_request r = kit_lease(k, 12, "A", KIT_HOUR);
    r.max_per_column = weir__str("kind");
    r.max_per = 2;
    assert_string_equal(kit_claim(k, &r), "1 2 7 8 10 11");
    assert_string_equal(kit_claim(k, &r), "");
    KIT_OK(k->one, kit_finish(k->one, FINISH_DONE, 2, "A"));
    assert_string_equal(kit_claim(k, &r), "3");
    /* A lease that has ended is not held. It is taken again, and counts then. */
    kit_exec_each(k, "UPDATE jobs SET locked_until = now() - interval '1 s' WHERE id IN (1, 10)",
                  "UPDATE jobs SET locked_until = 1000000 WHERE id IN (1, 10)");
    r.limit = 1;
    assert_string_equal(kit_claim(k, &r), "1");
    assert_string_equal(kit_claim(k, &r), "10");
    assert_string_equal(kit_claim(k, &r), "");
    r.max_per = 0;
    KIT_IS(k->one, kit_try(k, &r), WEIR_EINVAL);
    kit_message(k->one, "--max-per");
}

/* ---- ten thousand races ---------------------------------------------------------------------- */

/* Two threads that meet before every race. */
typedef struct races {
    pthread_barrier_t *line;
    int effects[RACES_MAX + 1]; /* what the winners did. Atomic */
    bool failed;                /* atomic */
    int count;
} races;

static const char *racer(kit *k, int number, void *ctx)
{
    races *all = ctx;
    claimer c = { 0 };
    const char *wrong = NULL;
    claim_param id = { .name = weir__str("id"), .value = { .kind = TABLE_INTEGER } };
    claim_request r = kit_request(k, 1);
    r.where = weir__str("status = 'pending' AND id = :id");
    r.writes.params = &id;
    r.writes.params_count = 1;
    r.by = number == 0 ? weir__str("A") : weir__str("B");
    r.attempts_column = weir__str("attempts");
    if (claimer_begin(&c, k->db) != WEIR_OK) {
        __atomic_store_n(&all->failed, true, __ATOMIC_RELEASE);
    }
    for (int i = 1; i <= all->count; i++) {
        id.value.number = i;
        pthread_barrier_wait(all->line);
        if (__atomic_load_n(&all->failed, __ATOMIC_ACQUIRE)) {
            break; /* both see it before the next race: it is set before the barrier, see below */
        }
        if (claimer_try(&c, &r) != WEIR_OK || c.r.rows_count > 1) {
            wrong = c.r.rows_count > 1 ? "was given two rows" : "was told of an error";
            fprintf(stderr, "race %d: %s\n", i, c.err.message);
        } else if (c.r.rows_count == 1) {
            (void)__atomic_add_fetch(&all->effects[claimer_number(&c, 0, "id")], 1,
                                     __ATOMIC_ACQ_REL);
        }
        pthread_barrier_wait(all->line);
        if (wrong != NULL) {
            __atomic_store_n(&all->failed, true, __ATOMIC_RELEASE);
        }
    }
    claimer_end(&c);
    return wrong;
}

/* Fewer where a race takes longer: the portable path has many steps. */
static int races_of(const kit *k)
{
    return k->path == CLAIM_PATH_PORTABLE ? 2000 : RACES_MAX;
}

static void races_check(kit *k, const int *effects)
{
    const int count = races_of(k);
    int doubled = 0;
    int none = 0;
    for (int i = 1; i <= count; i++) {
        doubled += effects[i] > 1;
        none += effects[i] == 0;
    }
    assert_int_equal(doubled, 0);
    assert_int_equal(none, 0);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM jobs WHERE status = 'claimed' AND "
                                   "attempts = 1 AND claimed_by IN ('A', 'B')"),
                     count);
    /* Otherwise one was always first, and there was no race. */
    assert_true(kit_number(k, "SELECT count(*) FROM jobs WHERE claimed_by = 'A'") > count / 100);
    assert_true(kit_number(k, "SELECT count(*) FROM jobs WHERE claimed_by = 'B'") > count / 100);
}

static void C36_ten_thousand_races_of_two_have_one_winner_each(void **state)
{
    kit *k = *state;
    pthread_barrier_t line;
    races *all = calloc(1, sizeof *all);
    assert_non_null(all);
    all->line = &line;
    all->count = races_of(k);
    assert_int_equal(pthread_barrier_init(&line, NULL, 2), 0);
    kit_jobs(k, all->count);
    kit_together(k, 2, racer, all);
    pthread_barrier_destroy(&line);
    races_check(k, all->effects);
    free(all);
}

/* Processes, which are told together. */
static void C36_ten_thousand_races_of_two_processes_have_one_winner_each(void **state)
{
    kit *k = *state;
    const int count = races_of(k);
    int *effects = calloc((size_t)count + 1, sizeof *effects);
    assert_non_null(effects);
    kit_jobs(k, count);
    kit_exec(k, "UPDATE jobs SET attempts = 1");
    kit_worker *w[2] = { kit_worker_start(k, 0), kit_worker_start(k, 0) };
    for (int i = 1; i <= count; i++) {
        const int first = i % 2;
        kit_worker_send(w[first], "claim limit=1 by=%c where=status='pending'AND(id=%d)",
                        "AB"[first], i);
        kit_worker_send(w[!first], "claim limit=1 by=%c where=status='pending'AND(id=%d)",
                        "AB"[!first], i);
        for (int j = 0; j < 2; j++) {
            const char *answer = kit_worker_read(w[j]);
            int64_t id = 0;
            if (answer != NULL && sscanf(answer, "ok %ld:0", &id) == 1) {
                assert_int_equal(id, i);
                effects[id]++;
            } else {
                assert_string_equal(answer == NULL ? "it died" : answer, "ok");
            }
        }
    }
    races_check(k, effects);
    free(effects);
}

static const kit_case cases[] = {
    KIT_TEST(C36_forty_claimers_get_every_row_once_and_wait_for_nobody, ON_POSTGRES),
    KIT_TEST(C36_eight_processes_get_every_row_once, ON_SHARED),
    KIT_TEST(C36_eight_claimers_in_memory_get_every_row_once, KIT_MEMORY),
    KIT_TEST(C37_who_waits_and_who_skips_share_the_rows, ON_POSTGRES),
    KIT_TEST(C36_a_cap_counts_what_is_held_and_nothing_else, ON_ALL),
    KIT_TEST(C36_T14_a_cap_per_value_holds_under_32_claimers, ON_SHARED),
    KIT_TEST(C36_ten_thousand_races_of_two_have_one_winner_each, ON_POSTGRES),
    KIT_TEST(C36_ten_thousand_races_of_two_processes_have_one_winner_each, ON_SQLITE),
};

int main(int argc, char **argv)
{
    const kit_case *const lists[] = { cases, NULL };
    const size_t counts[] = { sizeof cases / sizeof cases[0] };
    return kit_main(argc, argv, lists, counts);
}
