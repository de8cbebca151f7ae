/* lock.c - weir lock: runs a program while a name is held that one at a time can hold. */
#include "lock/lock.h"
#include "cli/guarded.h"

#include <stdio.h>

enum { EXIT_STATUS_MAX = 255 };

static const cli_option options[] = {
    { "table", "NAME", CLI_WORD, "lock a row of this table instead, which PROGRAM reads on stdin" },
    { "id", "KEY", CLI_TEXT, "primary key of the row; repeat it for a key of several columns" },
    { "wait", "[D]", CLI_WAIT, "wait for the holder: at most D, or as long as it takes" },
    { "held-exit", "N", CLI_NUMBER, "exit with N instead of 75 if somebody else holds it" },
    { "check", "D", CLI_SPAN, "notice within D that the lock was lost (default: 10s)" },
    { "grace", "D", CLI_SPAN, "time from SIGTERM to SIGKILL when it was lost (default: 10s)" },
};

static void lock_note(void *ctx, const char *text)
{
    weir__cli_note(ctx, "%s", text);
}

/* ---- a run_watch over a named_lock ----------------------------------------------------------- */

static int watch_fd(void *ctx)
{
    return weir__lock_poll_fd(ctx);
}

static int64_t watch_due(void *ctx)
{
    return weir__lock_due_us(ctx);
}

static weir_status watch_look(void *ctx, bool prove, int64_t *known_us, weir_error *err)
{
    return prove ? weir__lock_prove(ctx, known_us, err) : weir__lock_watch(ctx, known_us, err);
}

/* ---- the command --------------------------------------------------------------------------- */

/* Lets go of the lock. */
static int run_under(const cli *c, const cli_guarded *g, named_lock *l)
{
    char what[64];
    run_outcome out = { 0 };
    weir_error err;
    const run_request q = {
        .argv = g->argv,
        .fence = weir__lock_fence(l),
        .check_us = g->check_us,
        .grace_us = g->grace_us,
        .hold_fd = weir__lock_hold_fd(l),
        .hold_passed = weir__lock_kind(l) == LOCK_FILE,
        .leased = weir__lock_kind(l) == LOCK_LEASE,
        .watch = { .ctx = l, .poll_fd = watch_fd, .due_us = watch_due, .look = watch_look },
    };
    const weir_status status = weir__run(&q, &out, &err);
    if (status != WEIR_OK) {
        (void)weir__cli_fail(c, &err);
        if (out.orphaned) {
            weir__lock_leave(l);
        } else {
            weir__lock_release(l);
        }
        return status == WEIR_ELOST ? CLI_HELD : CLI_ERROR;
    }
    (void)snprintf(what, sizeof what, "the lock (%s)", weir__lock_kind_text(weir__lock_kind(l)));
    const int result = weir__cli_guarded_end(c, g, what, &out);
    weir__run_outcome_free(&out);
    weir__lock_release(l);
    return result;
}

static int run_with(cli *c, const cli_guarded *g)
{
    const cli_given *wait = weir__cli_get(c, "wait"), *held = weir__cli_get(c, "held-exit");
    char *url = NULL;
    named_lock *l = NULL;
    weir_error err;
    weir_status status = weir__cli_url(c, &url, &err);
    if (status == WEIR_OK) {
        const lock_request q = {
            .url = url,
            .name = weir__str(c->words[0]),
            .holder = weir__str(g->holder),
            .wait_us = wait == NULL ? 0 : wait->number,
            .check_us = g->check_us,
            .grace_us = g->grace_us,
            .note_cb = lock_note,
            .note_ctx = c,
        };
        status = weir__lock_acquire(&l, &q, &err);
    }
    weir__free(url);
    if (status != WEIR_OK) {
        const int result = weir__cli_fail(c, &err);
        return status != WEIR_EHELD ? CLI_ERROR : held != NULL ? (int)held->number : result;
    }
    return run_under(c, g, l);
}

static int lock_run(cli *c)
{
    const cli_given *held = weir__cli_get(c, "held-exit");
    cli_guarded g = { 0 };
    int result = CLI_DONE;
    if (weir__cli_has(c, "table")) {
        return weir__cli_lock_table(c);
    }
    if (weir__cli_has(c, "id")) {
        return weir__cli_usage(c, "--id needs --table NAME: of which table");
    }
    if (held != NULL && held->number > EXIT_STATUS_MAX) {
        return weir__cli_usage(c, "--held-exit is %s, allowed 0 to 255", held->text);
    }
    if (c->program_first != 1) {
        result =
            c->has_program
                ? weir__cli_usage(c, "one name comes before --, and what is to be run after it")
                : weir__cli_usage(c, "what is to be run follows --, as in weir lock NAME -- "
                                     "./job");
    }
    if (result == CLI_DONE) {
        result = weir__cli_guarded_take(c, "lock name", &g);
    }
    if (result == CLI_DONE) {
        result = run_with(c, &g);
    }
    weir__cli_guarded_free(&g);
    return result;
}

const cli_command weir__cli_lock_command = {
    .name = "lock",
    .block = CLI_BLOCK_JOBS,
    .usage = "NAME [options] -- PROGRAM [ARGUMENT...]\n"
             "--table TABLE --id KEY [options] -- PROGRAM [ARGUMENT...]",
    .summary = "run a program unless another copy is already running",
    .about =
        "Runs PROGRAM if nobody holds NAME, on this machine or (PostgreSQL) on any other, and\n"
        "passes on its exit status. If somebody holds it, weir lock exits with 75 and says who,\n"
        "where and since when; with --wait it waits. It does not remember past runs: for that\n"
        "there is weir once. Nothing is installed, and you do not need weir init, except behind a\n"
        "pooler. The lock ends with this process, and the program ends with the lock: if the lock\n"
        "is lost, the program is sent SIGTERM, then SIGKILL, and the exit status is 75.\n"
        "WEIR_FENCE is set if the store is initialised.\n"
        "\n"
        "With --table, a row of your own table is locked in a transaction. PROGRAM reads the row\n"
        "as JSON on stdin. What should be written to it, PROGRAM prints as its last line:\n"
        "{\"set\":{\"amount\":5}}. Exit status 0 commits.",
    .example = "weir lock expense-reconciler -- ./reconcile\n"
               "weir lock expense-reconciler --wait 30s -- ./reconcile\n"
               "weir lock --table expenses --id 42 -- ./reconcile\n"
               "weir lock import --held-exit 0 --store postgres://db/shop -- ./import",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 1,
    .words_max = SIZE_MAX,
    .run = lock_run,
};
