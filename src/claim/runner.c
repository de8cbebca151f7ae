/* runner.c - see runner.h and runner_private.h: workers, and the thread that supervises them. */
#include "claim/runner.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "claim/runner_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 50 };
#define FOREVER_US    (INT64_MAX / 4) /* of the monotonic clock */
#define MARGIN_US_MAX INT64_C(1000000)

/* ---- outcomes ------------------------------------------------------------------------------- */

static void row_settle(runner *r, runner_row *row, runner_outcome outcome, weir_str why)
{
    const uint64_t one = 1;

    if (outcome != RUNNER_DONE && r->o->told != NULL) {
        r->o->told(r->o->told_ctx, &r->rows, row->index, outcome, why);
    }
    weir__lock(&r->mu);
    WEIR_ASSERT(row->state == ROW_SETTLING);
    row->state = ROW_SETTLED;
    r->settled++;
    r->tally.outcomes[outcome]++;
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
    while (write(r->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* From now on it is not renewed; whether it was lost before. */
static bool settle_begin(runner *r, runner_row *row)
{
    weir__lock(&r->mu);
    while (row->renewing && !row->lost) { /* what is lost is not written to */
        weir__cond_wait(&r->changed, &r->mu);
    }
    row->state = ROW_SETTLING;
    const bool lost = row->lost;
    weir__unlock(&r->mu);
    return lost;
}

static bool has_writes(const claim_writes *w)
{
    return w->set_count > 0 || w->set_sql_count > 0;
}

/* Writes an outcome; what cannot be written is told as failed, or as lost. */
static void settle_with(runner *r, runner_row *row, finish_kind kind, const claim_writes *writes,
                        runner_outcome outcome, weir_str why)
{
    char text[sizeof((weir_error *)NULL)->message * 2];
    weir_error err;

    const weir_status status = weir__runner_write(r, row, kind, writes, &err);
    if (status == WEIR_OK) {
        row_settle(r, row, outcome, why);
        return;
    }
    const char *said = outcome == RUNNER_DONE       ? "the command has succeeded"
                       : outcome == RUNNER_RELEASED ? "the row was to be released"
                                                    : why.ptr;
    const int len = outcome == RUNNER_FAILED ? (int)why.len : (int)strlen(said);
    (void)snprintf(text, sizeof text, "%.*s%s but this could not be written: %s", len, said,
                   len == 0 ? "" : ",", err.message);
    row_settle(r, row, status == WEIR_ELOST ? RUNNER_LOST : RUNNER_FAILED, weir__str(text));
}

static void settle_released(runner *r, runner_row *row, runner_outcome outcome, weir_str why)
{
    settle_with(r, row, FINISH_RELEASE, &r->o->released, outcome, why);
}

/* ---- children ------------------------------------------------------------------------------- */

static void row_judge(runner *r, runner_row *row, const child_result *result)
{
    switch ((child_kind)result->kind) {
    case CHILD_DONE:
        if (has_writes(&r->o->done)) {
            settle_with(r, row, FINISH_DONE, &r->o->done, RUNNER_DONE, (weir_str){ .len = 0 });
        } else {
            row_settle(r, row, RUNNER_DONE, (weir_str){ .len = 0 });
        }
        return;
    case CHILD_INTERRUPTED:
        settle_released(r, row, RUNNER_RELEASED, weir__str("its command was ended by the stop"));
        return;
    case CHILD_RETRY:
    case CHILD_PERMANENT:
    case CHILD_DEFER:
        break;
    }
    if (has_writes(&r->o->failed)) {
        settle_with(r, row, FINISH_FAIL, &r->o->failed, RUNNER_FAILED, result->why);
    } else {
        row_settle(r, row, RUNNER_FAILED, result->why);
    }
}

static const char not_renewed[] = "its lease could not be renewed before its end";

static void lost_locked(runner *r, runner_row *row) WEIR_REQUIRES(r->mu)
{
    if (!row->lost) {
        row->lost = true;
        (void)snprintf(row->why, sizeof row->why, "%s", not_renewed);
        atomic_store(&row->interrupted, true);
        weir__cond_broadcast(&r->changed);
    }
}

/* A lease that was not renewed counts as lost this long before it ends, so that its command is gone
 * by then. */
static int64_t margin_us(const runner *r)
{
    const int64_t part_us = r->o->request->lease_us / 6;

    return part_us < MARGIN_US_MAX ? part_us : MARGIN_US_MAX;
}

void weir__runner_held_locked(runner *r, runner_row *row, int64_t until_us)
{
    row->held_until_us = until_us;
    weir__child_lease_set(&row->lease, until_us == INT64_MAX ? until_us : until_us - margin_us(r));
}

static void row_run(runner *r, runner_row *row, child_result *result)
{
    const runner_options *o = r->o;
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    const child_call call = {
        .line = row->json,
        .deadline_mono_us = o->deadline_us > 0 ? now_us + o->deadline_us : now_us + FOREVER_US,
        .interrupted = &row->interrupted,
        .lease = &row->lease,
        .plain = true,
        .stdout_cb = o->stdout_cb,
        .stdout_ctx = o->child_ctx,
        .stderr_cb = o->stderr_cb,
        .stderr_ctx = o->child_ctx,
    };
    weir_error err;
    const weir_status status = weir__child_run(o->keeper, o->command, &call, result, &err);

    if (status == WEIR_OK && result->expired) { /* by its supervisor: we may have been stopped */
        weir__lock(&r->mu);
        lost_locked(r, row);
        weir__unlock(&r->mu);
    }
    if (settle_begin(r, row)) {
        row_settle(r, row, RUNNER_LOST, weir__str(row->why));
    } else if (status != WEIR_OK) { /* nothing was run: the row is not to blame */
        settle_released(r, row, RUNNER_FAILED, weir__str(err.message));
    } else {
        row_judge(r, row, result);
    }
}

/* The next row, RUNNING; *run: it is to be run, else released. NULL: there is none. */
static runner_row *row_take(runner *r, bool *run)
{
    runner_row *row = NULL;

    weir__lock(&r->mu);
    while (!r->begun && !r->ended) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    if (!r->ended && r->next < r->count) {
        row = &r->row[r->next++];
        row->state = ROW_RUNNING;
        *run = !r->stopping && !row->lost;
    }
    weir__unlock(&r->mu);
    return row;
}

/* A row that is not run: lost before it was begun, or because of the stop. */
static void row_release(runner *r, runner_row *row)
{
    if (settle_begin(r, row)) {
        row_settle(r, row, RUNNER_LOST, weir__str(row->why));
    } else {
        settle_released(r, row, RUNNER_RELEASED, weir__str("it was not begun before the stop"));
    }
}

static void *worker_run(void *ctx)
{
    runner *r = ctx;
    child_result result = { .kind = 0 };
    bool run = false;

    for (runner_row *row; (row = row_take(r, &run)) != NULL;) {
        if (run) {
            row_run(r, row, &result);
        } else {
            row_release(r, row);
        }
    }
    weir__child_result_free(&result);
    return NULL;
}

/* Once there is a stop: gives back what no worker has begun, while they are busy with what runs. */
static void *release_rest(void *ctx)
{
    runner *r = ctx;
    bool run = false;

    weir__lock(&r->mu);
    while (!r->stopping && !r->ended) {
        weir__cond_wait(&r->changed, &r->mu);
    }
    weir__unlock(&r->mu);
    for (runner_row *row; (row = row_take(r, &run)) != NULL;) {
        row_release(r, row);
    }
    return NULL;
}

/* ---- supervision ---------------------------------------------------------------------------- */

/* Leases that may end soon and were not renewed. */
static void leases_look(runner *r)
{
    const int64_t now_us = weir__clock_boot();

    weir__lock(&r->mu);
    for (size_t i = 0; i < r->count; i++) {
        runner_row *row = &r->row[i];
        if (row->state <= ROW_RUNNING && row->held_until_us < INT64_MAX &&
            now_us >= row->held_until_us - margin_us(r)) {
            lost_locked(r, row);
        }
    }
    weir__unlock(&r->mu);
}

static void interrupt_all(runner *r)
{
    weir__lock(&r->mu);
    for (size_t i = 0; i < r->count; i++) {
        atomic_store(&r->row[i].interrupted, true);
    }
    weir__unlock(&r->mu);
}

/* Takes what stop_fd has to say. false: nothing. */
static bool stop_take(int fd)
{
    char note[256];

    return read(fd, note, sizeof note) > 0;
}

static bool is_over(runner *r, bool stop)
{
    weir__lock(&r->mu);
    if (stop && !r->stopping) {
        r->stopping = true;
        weir__cond_broadcast(&r->changed);
    }
    const bool over = r->settled == r->count;
    weir__unlock(&r->mu);
    return over;
}

static void rows_supervise(runner *r)
{
    const weir_clock *clock = weir__clock_machine();
    int64_t stop_until_us = INT64_MAX; /* set by the first stop */
    bool stopping = false;

    while (!is_over(r, stopping)) {
        struct pollfd fds[] = { { .fd = r->o->stop_fd, .events = POLLIN },
                                { .fd = r->wake_fd, .events = POLLIN } };
        uint64_t count;
        (void)poll(fds, 2, LOOK_MS);
        if (fds[1].revents != 0) {
            (void)!read(r->wake_fd, &count, sizeof count);
        }
        if ((fds[0].revents != 0 && stop_take(r->o->stop_fd)) ||
            (!stopping && r->o->stop != NULL && atomic_load(r->o->stop))) {
            const int64_t now_us = weir__clock_mono(clock);
            stop_until_us = stopping ? now_us : now_us + r->o->budget_us;
            stopping = true;
        }
        if (weir__clock_mono(clock) >= stop_until_us) {
            (void)is_over(r, true);
            interrupt_all(r);
        }
        leases_look(r);
    }
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* What is known of the rows that were claimed. before_us, before_boot_us: the claim was sent. */
static weir_status rows_note(runner *r, int64_t before_us, int64_t before_boot_us, weir_error *err)
{
    const runner_options *o = r->o;
    const claim_request *q = o->request;
    const table_column *fence =
        q->fence_column.len == 0 ? NULL : weir__table_column(o->table, q->fence_column);
    weir_buffer json = { 0 };
    bool ok = true;

    r->row = weir__arena_alloc(&r->arena, (r->rows.rows_count + 1) * sizeof *r->row);
    ok = r->row != NULL;
    for (size_t i = 0; ok && i < r->rows.rows_count; i++) {
        const table_cell *cells = &r->rows.cells[i * r->rows.columns_count];
        table_value *key = weir__arena_alloc(&r->arena, (o->table->key_count + 1) * sizeof *key);
        weir__buffer_clear(&json);
        ok = key != NULL && weir__table_row_json(&r->rows, i, SIZE_MAX, &json);
        const char *copy = ok ? weir__arena_copy(&r->arena, json.ptr, json.len) : NULL;
        ok = copy != NULL;
        for (size_t k = 0; ok && k < o->table->key_count; k++) {
            key[k] = weir__table_cell_value(&cells[o->table->key[k]]);
        }
        r->row[i] = (runner_row){ .index = i,
                                  .key = key,
                                  .at = weir__claim_time(q, o->table, cells),
                                  .json = { .ptr = copy, .len = json.len },
                                  .renew_at_us = before_us + q->lease_us / 3 };
        ok = ok && weir__child_lease_init(&r->row[i].lease);
        r->row_count += ok ? 1 : 0;
        if (ok) {
            weir__lock(&r->mu);
            weir__runner_held_locked(r, &r->row[i],
                                     q->lease_us > 0 ? before_boot_us + q->lease_us : INT64_MAX);
            weir__unlock(&r->mu);
        }
        if (fence != NULL) {
            const table_cell *cell = &cells[fence - o->table->columns];
            r->row[i].has_fence = !cell->null && weir__str_to_i64(cell->text, &r->row[i].fence);
        }
    }
    weir__buffer_free(&json);
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "out of memory");
}

/* Claims; r->count says how many there are to work on. */
static weir_status rows_claim(runner *r, weir_error *err)
{
    const int64_t before_us = weir__clock_mono(weir__clock_machine());
    const int64_t before_boot_us = weir__clock_boot();
    weir_status status = weir__claim_rows(r->session, r->o->request, &r->rows, err);

    if (status == WEIR_OK) {
        status = rows_note(r, before_us, before_boot_us,
                           err); /* else they are free when their leases end */
    }
    weir__lock(&r->mu);
    r->count = status == WEIR_OK ? r->rows.rows_count : 0;
    r->tally.claimed = r->count;
    r->begun = status == WEIR_OK && r->count > 0;
    r->ended = !r->begun;
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
    return status;
}

/* Threads of a run, each of which waits for the claim. */
typedef struct crew {
    pthread_t threads[RUNNER_PARALLEL_MAX + 2];
    size_t count;
} crew;

static weir_status crew_add(crew *c, void *(*life)(void *), runner *r, weir_error *err)
{
    const int error = pthread_create(&c->threads[c->count], NULL, life, r);

    if (error != 0) {
        return weir__fail(err, WEIR_EIO, "could not start a thread: errno %d", error);
    }
    c->count++;
    return WEIR_OK;
}

/* Everything that a run needs is there before the claim: otherwise nothing is claimed. */
static weir_status crew_start(crew *c, runner *r, size_t parallel, weir_error *err)
{
    weir_status status = WEIR_OK;

    if (r->o->request->lease_us > 0) {
        status = weir__table_session_open(r->o->db, &r->renewal, err);
        if (status == WEIR_OK) {
            status = crew_add(c, weir__runner_renew, r, err);
        }
    }
    if (status == WEIR_OK) {
        status = crew_add(c, release_rest, r, err);
    }
    for (size_t i = 0; status == WEIR_OK && i < parallel; i++) {
        status = crew_add(c, worker_run, r, err);
    }
    return status;
}

static weir_status run_with(runner *r, size_t parallel, weir_error *err)
{
    crew c = { .count = 0 };
    weir_status status = crew_start(&c, r, parallel, err);

    if (status == WEIR_OK) {
        status = rows_claim(r, err);
    }
    if (status == WEIR_OK && r->count > 0) {
        rows_supervise(r);
    }
    weir__lock(&r->mu);
    r->ended = true;
    weir__cond_broadcast(&r->changed);
    weir__unlock(&r->mu);
    for (size_t i = 0; i < c.count; i++) {
        (void)pthread_join(c.threads[i], NULL);
    }
    weir__table_session_close(r->renewal);
    return status;
}

weir_status weir__runner_run(const runner_options *o, table_session **session, runner_tally *out,
                             weir_error *err)
{
    const size_t parallel = o->parallel == 0 ? 1 : o->parallel;
    runner r = { .o = o, .session = *session, .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    const bool locked = weir__mutex_init(&r.mu);
    const bool waits = locked && weir__cond_init(&r.changed);
    weir_status status;

    if (parallel > RUNNER_PARALLEL_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "%zu commands at once, allowed 1 to %d", parallel,
                            RUNNER_PARALLEL_MAX);
    } else if (o->request->lease_us > 0 && o->request->lease_us < RUNNER_LEASE_US_MIN) {
        status = weir__fail(err, WEIR_EINVAL,
                            "a lease under which commands run has to be 500 ms or more");
    } else if (!waits || r.wake_fd < 0) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    } else {
        status = run_with(&r, parallel, err);
    }
    if (status == WEIR_OK) {
        *out = r.tally;
    }
    *session = r.session;
    if (r.wake_fd >= 0) {
        (void)close(r.wake_fd);
    }
    if (waits) {
        weir__cond_destroy(&r.changed);
    }
    if (locked) {
        weir__mutex_destroy(&r.mu);
    }
    for (size_t i = 0; i < r.row_count; i++) {
        weir__child_lease_destroy(&r.row[i].lease);
    }
    weir__table_result_free(&r.rows);
    weir__arena_free(&r.arena);
    return status;
}
