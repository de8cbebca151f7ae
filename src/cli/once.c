/* once.c - weir once: runs a program once, ever, for a key.
 *
 * The first run that succeeds is remembered with what it wrote to stdout; later runs print that and
 * run nothing. See lock/once.h for how long a run is somebody's.
 */
#include "lock/once.h"
#include "base/clock.h"
#include "cli/guarded.h"
#include "cli/once.h"
#include "cli/operate.h"

#include <stdio.h>
#include <unistd.h>

enum {
    RETRY_US_FIRST = 20 * 1000, /* the first pause before another attempt; later ones are longer */
    RETRY_US_MAX = 500 * 1000,
};

static const cli_option options[] = {
    { "nowait", NULL, CLI_FLAG, "exit with 75 if another process is running it" },
    { "check", "D", CLI_SPAN, "notice within D that the run was lost (default: 10s)" },
    { "grace", "D", CLI_SPAN, "time from SIGTERM to SIGKILL if it was lost (default: 10s)" },
    { "list", NULL, CLI_FLAG, "list runs: where, when, how long, and how they ended" },
    { "limit", "N", CLI_NUMBER, "with --list: at most N runs" },
    { "forget", NULL, CLI_FLAG, "forget the run of KEY, so that it can be run again" },
    { "yes", NULL, CLI_FLAG, "with --forget: do not ask" },
};

/* ---- a run_watch over a once_run ------------------------------------------------------------- */

static int watch_fd(void *ctx)
{
    (void)ctx;
    return -1;
}

static int64_t watch_due(void *ctx)
{
    return weir__once_due_us(ctx);
}

/* The fence decides: a run that was stopped for long goes on if nobody has begun another. */
static weir_status watch_look(void *ctx, bool prove, int64_t *known_us, weir_error *err)
{
    (void)prove;
    return weir__once_watch(ctx, known_us, err);
}

/* ---- the run ------------------------------------------------------------------------------- */

static int once_finish(const cli *c, once_run *r, const run_outcome *out, int result)
{
    weir_error err;
    bool kept = true;
    const weir_str output = { .ptr = out->output.ptr, .len = out->output.len };
    const weir_status status = weir__once_finish(r, out->exit_status, output, &kept, &err);
    if (status != WEIR_OK) {
        (void)weir__wrap(&err, status, "the program ended with %d, but that could not be stored",
                         out->exit_status);
        (void)weir__cli_fail(c, &err);
        return status == WEIR_ELOST ? CLI_HELD : CLI_ERROR;
    }
    if (!kept) {
        weir__cli_note(c, "its output could not be kept: later runs will print nothing");
    } else if (out->cut && out->exit_status == 0) {
        weir__cli_note(c, "the first %zu bytes of its output were kept", out->output.len);
    }
    return result;
}

static int run_ours(const cli *c, const cli_guarded *g, once_run *r)
{
    run_outcome out = { 0 };
    weir_error err;
    const run_request q = {
        .argv = g->argv,
        .fence = weir__once_state(r)->fence,
        .check_us = g->check_us,
        .grace_us = g->grace_us,
        .hold_fd = -1,
        .leased = true,
        .watch = { .ctx = r, .poll_fd = watch_fd, .due_us = watch_due, .look = watch_look },
        .capture_bytes_max = STORE_ONCE_OUTPUT_BYTES_MAX,
    };
    const weir_status status = weir__run(&q, &out, &err);
    if (status != WEIR_OK) {
        (void)weir__cli_fail(c, &err);
        weir__run_outcome_free(&out);
        return status == WEIR_ELOST ? CLI_HELD : CLI_ERROR;
    }
    int result = weir__cli_guarded_end(c, g, "the run", &out);
    if (!out.lost) {
        result = once_finish(c, r, &out, result);
    }
    weir__run_flush(&out);
    weir__run_outcome_free(&out);
    return result;
}

/* Until it is ours, or was done. */
static weir_status await_turn(const cli *c, once_run *r, weir_error *err)
{
    int64_t pause_us = RETRY_US_FIRST;
    weir_status status = WEIR_EINFLIGHT;
    if (isatty(STDERR_FILENO) != 0) {
        weir__cli_note(c, "waiting: %s", err->message);
    }
    while (status == WEIR_EINFLIGHT) {
        weir__clock_pause(pause_us);
        pause_us += pause_us / 2;
        pause_us = pause_us < RETRY_US_MAX ? pause_us : RETRY_US_MAX;
        status = weir__once_begin(r, err);
    }
    return status;
}

/* SQLite: the first use makes the file, as the first append does. */
static weir_status store_make(const cli *c, const char *url, weir_error *err)
{
    weir *w = NULL;
    if (strncmp(url, "sqlite:", 7) != 0) {
        return WEIR_OK;
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_WRITE, &w, err);
    if (status == WEIR_OK && w == NULL) {
        status = weir__cli_create(c, &w, err);
    }
    weir_close(w);
    return status;
}

static int run_key(cli *c, const cli_guarded *g)
{
    char *url = NULL;
    once_run *r = NULL;
    weir_error err;
    int result = CLI_DONE;
    weir_status status = weir__cli_url(c, &url, &err);
    if (status == WEIR_OK) {
        status = store_make(c, url, &err);
    }
    if (status == WEIR_OK) {
        const once_request q = { .url = url,
                                 .key = weir__str(c->words[0]),
                                 .holder = weir__str(g->holder),
                                 .check_us = g->check_us,
                                 .grace_us = g->grace_us };
        status = weir__once_open(&r, &q, &err);
    }
    if (status == WEIR_EINFLIGHT && !weir__cli_has(c, "nowait")) {
        status = await_turn(c, r, &err);
    }
    if (status != WEIR_OK) {
        result = weir__cli_fail(c, &err);
        result = result == CLI_HELD ? result : CLI_ERROR;
    } else if (weir__once_state(r)->state == STORE_ONCE_DONE) {
        (void)weir__cli_put_exact(&c->out, weir__once_state(r)->output);
    } else {
        result = run_ours(c, g, r);
    }
    weir__once_close(r);
    weir__free(url);
    return result;
}

/* ---- forgetting ---------------------------------------------------------------------------- */

static int once_forget(cli *c)
{
    char question[640];
    weir *w = NULL;
    weir_error err;
    if (c->has_program || c->words_count != 1) {
        return weir__cli_usage(c, "--forget takes one key, and nothing to run");
    }
    if (!weir__cli_has(c, "yes") && (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0)) {
        return weir__cli_usage(c, "--forget needs --yes if there is no terminal to ask on");
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_CHANGE, &w, &err);
    if (status == WEIR_OK) {
        (void)snprintf(question, sizeof question,
                       "forget the run of \"%s\", so that it can be run "
                       "again",
                       c->words[0]);
        if (!weir__cli_ask(c, question)) {
            weir_close(w);
            return weir__cli_declined(c);
        }
        weir_store *store = weir__store(w);
        status = store->locks->forget(store, weir__str(c->words[0]), &err);
    }
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    weir__cli_changed(c, 1, &(cli_deed){ .did = "forgot", .name = weir__str(c->words[0]) });
    return CLI_DONE;
}

static int once_command(cli *c)
{
    cli_guarded g = { 0 };
    int result = CLI_DONE;
    if (weir__cli_has(c, "list")) {
        return weir__cli_once_list(c);
    }
    if (weir__cli_has(c, "limit")) {
        return weir__cli_usage(c, "--limit is for --list");
    }
    if (weir__cli_has(c, "forget")) {
        return once_forget(c);
    }
    if (weir__cli_has(c, "yes")) {
        return weir__cli_usage(c, "--yes is for --forget");
    }
    if (c->program_first != 1) {
        result =
            weir__cli_usage(c, "give one key before --, and the program to run after it, as in "
                               "weir once KEY -- ./job");
    }
    if (result == CLI_DONE) {
        result = weir__cli_guarded_take(c, "key", &g);
    }
    if (result == CLI_DONE) {
        result = run_key(c, &g);
    }
    weir__cli_guarded_free(&g);
    return result;
}

const cli_command weir__cli_once_command = {
    .name = "once",
    .block = CLI_BLOCK_JOBS,
    .usage = "KEY [options] -- PROGRAM [ARGUMENT...]\n--list [PATTERN] [--limit N]\n"
             "--forget KEY [--yes]",
    .summary = "run a program until it has succeeded once for a key",
    .about =
        "Runs PROGRAM, unless a run of KEY has already succeeded: then it prints what that run\n"
        "wrote to stdout, and exits with 0. While another run of KEY is in progress it waits for\n"
        "the outcome; with --nowait it exits with 75. A run that failed, or whose process died,\n"
        "can be tried again. The store keeps the key, the exit status and the first MiB of\n"
        "stdout. PostgreSQL needs weir init; an SQLite file is created by the first run.\n"
        "PROGRAM gets WEIR_FENCE, a number that grows with each run of the key.\n"
        "--list shows the latest run of each key, those in progress first, then the newest.\n"
        "PATTERN is a key, a prefix such as 'nightly-*', or a regular expression in slashes.",
    .example = "weir once nightly-2026-11-15 -- ./nightly\n"
               "weir once invoice-4711 --nowait -- ./send-invoice 4711\n"
               "weir once --list 'nightly-*'\n"
               "weir once --forget nightly-2026-11-15 --yes",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = SIZE_MAX,
    .run = once_command,
};
