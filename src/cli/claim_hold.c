/* claim_hold.c - weir claim --hold --run: a transaction for each row, by claim/hold.
 *
 * Up to --limit rows, --parallel at once. A row is looked for when there is somebody to work on it,
 * and not twice: one whose command has failed is as it was, and would be found again.
 */
#include "base/clock.h"
#include "claim/hold.h"
#include "cli/claim.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

/* Rows that were tried, and what became of them. */
typedef struct holding {
    claim_run *k;
    hold_options options;
    atomic_bool interrupted; /* the budget is over */
    int wake_fd;             /* readable: a worker has ended */

    weir_mutex mu;
    /* guarded by mu */
    bool stopping;
    weir_arena arena;
    table_value *tried; /* keys, value after value; room for all that are wanted */
    size_t tried_count; /* of rows */
    size_t begun, done, workers;
    weir_error error; /* the first that a worker could not go on after */
    bool failed;
} holding;

static bool same_value(table_value a, table_value b)
{
    return a.kind == b.kind && a.number == b.number && weir__str_equal(a.text, b.text);
}

static bool was_tried_locked(const holding *g, const table_result *rows) WEIR_REQUIRES(g->mu)
{
    const table_info *t = &g->k->place.table;

    for (size_t row = 0; row < g->tried_count; row++) {
        size_t same = 0;
        while (same < t->key_count &&
               same_value(g->tried[row * t->key_count + same],
                          weir__table_cell_value(&rows->cells[t->key[same]]))) {
            same++;
        }
        if (same == t->key_count) {
            return true;
        }
    }
    return false;
}

/* A row was found: it is not looked for again. One that another worker found, tried and let go
 * since this one began to look is not wanted. ctx: a holding. */
static bool note_row(void *ctx, const table_result *rows)
{
    holding *g = ctx;
    const table_info *t = &g->k->place.table;

    weir__lock(&g->mu);
    if (was_tried_locked(g, rows)) {
        g->begun--;
        weir__unlock(&g->mu);
        return false;
    }
    for (size_t i = 0; i < t->key_count; i++) {
        table_value v = weir__table_cell_value(&rows->cells[t->key[i]]);
        if (v.kind == TABLE_TEXT || v.kind == TABLE_BYTES) {
            v.text.ptr = weir__arena_copy(&g->arena, v.text.len == 0 ? "" : v.text.ptr, v.text.len);
            if (v.text.ptr == NULL) {
                g->failed = true;
                (void)weir__fail(&g->error, WEIR_ENOMEM, "out of memory");
                v = (table_value){ .kind = TABLE_NULL };
            }
        }
        g->tried[g->tried_count * t->key_count + i] = v;
    }
    g->tried_count++;
    weir__unlock(&g->mu);
    return true;
}

static void print_line(void *ctx, weir_str line)
{
    weir__cli_claim_stdout(((holding *)ctx)->k, line);
}

static void print_error(void *ctx, weir_str line)
{
    weir__cli_claim_stderr(((holding *)ctx)->k, line);
}

static void note_exit(holding *g, int32_t exit_status, bool lost)
{
    weir__lock(&g->mu);
    g->k->exit_status = exit_status;
    g->k->lost = g->k->lost || lost;
    weir__unlock(&g->mu);
}

static void note_done(holding *g)
{
    weir__lock(&g->mu);
    g->done++;
    weir__unlock(&g->mu);
}

static void note_error(holding *g, const weir_error *err)
{
    weir__lock(&g->mu);
    if (!g->failed) {
        g->error = *err;
        g->failed = true;
    }
    weir__unlock(&g->mu);
}

/* Whether another row is wanted; then it is counted, and *request leaves out those that were
 * tried. */
static bool take_turn(holding *g, claim_request *request)
{
    weir__lock(&g->mu);
    const bool wanted = !g->stopping && !g->failed && g->begun < (size_t)g->k->request.limit;
    if (wanted) {
        g->begun++;
        *request = g->k->request;
        request->exclude = g->tried;
        request->exclude_count = g->tried_count;
    }
    weir__unlock(&g->mu);
    return wanted;
}

static void *worker_run(void *ctx)
{
    holding *g = ctx;
    hold *h = NULL;
    hold_result r = { .outcome = HOLD_NOTHING };
    claim_request request;
    weir_error err;
    weir_status status = weir__hold_open(&h, &g->options, &err);
    const uint64_t one = 1;
    bool more = true;

    while (status == WEIR_OK && more && take_turn(g, &request)) {
        status = weir__hold_run(h, &request, &r, &err);
        more = r.outcome != HOLD_NOTHING;
        if (status == WEIR_OK && r.outcome == HOLD_DONE) {
            note_done(g);
        }
        if (status == WEIR_OK && r.outcome != HOLD_NOTHING && r.outcome != HOLD_UNWANTED) {
            note_exit(g, r.exit_status, r.lost);
        }
        if (status == WEIR_OK && (r.outcome == HOLD_FAILED || r.outcome == HOLD_STOPPED) &&
            !(g->k->passes_on && r.exit_status > 0)) {
            weir__cli_claim_tell(g->k, &r.rows, 0, r.outcome == HOLD_FAILED ? "failed" : "released",
                                 r.why);
        }
    }
    if (status != WEIR_OK) {
        note_error(g, &err);
    }
    weir__hold_result_free(&r);
    weir__hold_close(h);
    weir__lock(&g->mu);
    g->workers--;
    weir__unlock(&g->mu);
    while (write(g->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    return NULL;
}

static size_t workers_left(holding *g, bool stop)
{
    weir__lock(&g->mu);
    g->stopping = g->stopping || stop;
    const size_t left = g->workers;
    weir__unlock(&g->mu);
    return left;
}

/* Until all workers have ended, or were told to by a signal and the end of the budget. That nobody
 * reads stdout any more is as good as a signal. */
static void workers_supervise(holding *g)
{
    const weir_clock *clock = weir__clock_machine();
    int64_t until_us = INT64_MAX;
    bool stopping = false;

    while (workers_left(g, stopping) > 0) {
        struct pollfd fds[] = { { .fd = g->k->signal_fd, .events = POLLIN },
                                { .fd = g->wake_fd, .events = POLLIN } };
        char note[256];
        (void)poll(fds, 2, LOOK_MS);
        if (fds[1].revents != 0) {
            (void)!read(g->wake_fd, note, 8);
        }
        if ((fds[0].revents != 0 && read(g->k->signal_fd, note, sizeof note) > 0) ||
            (!stopping && atomic_load(&g->k->unread))) {
            const int64_t now_us = weir__clock_mono(clock);
            until_us = stopping ? now_us : now_us + g->k->budget_us;
            stopping = true;
        }
        if (weir__clock_mono(clock) >= until_us) {
            atomic_store(&g->interrupted, true);
        }
    }
}

static int holding_outcome(holding *g)
{
    if (g->failed) {
        return weir__cli_claim_fail(g->k->c, &g->error);
    }
    if (g->tried_count == 0) {
        return g->stopping ? CLI_ERROR : CLI_NOTHING;
    }
    return g->done == g->tried_count && !g->stopping ? CLI_DONE : CLI_ERROR;
}

static int run_workers(holding *g, size_t count)
{
    pthread_t threads[RUNNER_PARALLEL_MAX];
    size_t started = 0;

    g->workers = count;
    while (started < count && pthread_create(&threads[started], NULL, worker_run, g) == 0) {
        started++;
    }
    weir__lock(&g->mu);
    g->workers -= count - started;
    weir__unlock(&g->mu);
    if (started == 0) {
        (void)weir__fail(&g->error, WEIR_EIO, "could not start a thread");
        g->failed = true;
    }
    workers_supervise(g);
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return holding_outcome(g);
}

int weir__cli_claim_held(claim_run *k)
{
    const table_spec *s = &k->options.spec;
    const size_t rows = (size_t)k->request.limit, parts = k->place.table.key_count;
    /* SQLite has one writer at a time: a second one would only wait. */
    const bool alone = weir__table_dialect(k->place.db) == TABLE_SQLITE;
    holding g = { .k = k, .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    int status = CLI_ERROR;

    g.options = (hold_options){ .db = k->place.db,
                                .keeper = k->keeper,
                                .table = &k->place.table,
                                .command = k->command,
                                .deadline_us = s->deadline_us,
                                .done = s->done,
                                .interrupted = &g.interrupted,
                                .locked_cb = note_row,
                                .stdout_cb = print_line,
                                .stderr_cb = print_error,
                                .child_ctx = &g };
    g.tried = weir__calloc(rows * parts + 1, sizeof *g.tried);
    if (g.tried != NULL && g.wake_fd >= 0 && weir__mutex_init(&g.mu)) {
        /* Each has a connection of its own. */
        weir__table_session_close(k->place.session);
        k->place.session = NULL;
        status = run_workers(&g, alone                        ? 1
                                 : (size_t)s->parallel < rows ? (size_t)s->parallel
                                                              : rows);
        weir__mutex_destroy(&g.mu);
    }
    weir__free(g.tried);
    weir__arena_free(&g.arena);
    if (g.wake_fd >= 0) {
        (void)close(g.wake_fd);
    }
    return status;
}
