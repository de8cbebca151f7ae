/* claim_run.c - weir claim --run: a command for each claimed row, by claim/runner.
 *
 * Whole lines of the children go to stdout and stderr, as in xargs; what became of a row that is
 * not done is told on stderr. When nobody reads stdout any more that is a stop, as by a signal.
 */
#include "claim/runner.h"
#include "cli/claim.h"

void weir__cli_claim_stdout(void *ctx, weir_str line)
{
    claim_run *k = ctx;

    weir__lock(&k->mu);
    (void)weir__cli_put(&k->c->out, line);
    (void)weir__cli_put(&k->c->out, weir__str("\n"));
    if (!weir__cli_flush(&k->c->out) && k->c->out.closed) {
        atomic_store(&k->unread, true);
    }
    weir__unlock(&k->mu);
}

void weir__cli_claim_stderr(void *ctx, weir_str line)
{
    weir_buffer b = { 0 };

    (void)ctx;
    if (weir__buffer_reserve(&b, line.len + 1)) {
        (void)(line.len == 0 || weir__buffer_add(&b, line.ptr, line.len));
        (void)weir__buffer_add(&b, "\n", 1);
        weir__cli_stderr((weir_str){ .ptr = b.ptr, .len = b.len });
    }
    weir__buffer_free(&b);
}

static void tell_json(weir_buffer *b, weir_str key, const char *outcome, weir_str why)
{
    report_json j = { .buffer = b };

    weir__report_json_open(&j, NULL, '{');
    weir__report_json_field(&j, &(report_field){ .name = "row", .type = REPORT_RAW, .text = key });
    weir__report_json_str(&j, "outcome", weir__str(outcome));
    weir__report_json_str(&j, "why", why);
    weir__report_json_close(&j, '}');
}

void weir__cli_claim_tell(const claim_run *k, const table_result *rows, size_t row,
                          const char *outcome, weir_str why)
{
    weir_buffer b = { 0 }, key = { 0 };

    if (!weir__cli_key_json(&k->place.table, rows, row, &key)) {
        weir__cli_stderr(weir__str("weir: out of memory\n"));
        return;
    }
    const weir_str shown = { .ptr = key.ptr, .len = key.len };
    if (k->c->json_errors) {
        tell_json(&b, shown, outcome, why);
    } else {
        (void)weir__buffer_add_text(&b, "weir: ");
        (void)weir__buffer_add_text(&b, k->c->command->name);
        (void)weir__buffer_add_text(&b, ": ");
        (void)weir__report_shown(&b, shown);
        (void)weir__buffer_add_text(&b, " ");
        (void)weir__buffer_add_text(&b, outcome);
        (void)weir__buffer_add_text(&b, ": ");
        (void)weir__report_shown(&b, why);
    }
    if (weir__buffer_add(&b, "\n", 1)) {
        weir__cli_stderr((weir_str){ .ptr = b.ptr, .len = b.len });
    }
    weir__buffer_free(&b);
    weir__buffer_free(&key);
}

static void row_tell(void *ctx, const table_result *rows, size_t row, runner_outcome outcome,
                     weir_str why)
{
    static const char *const words[RUNNER_OUTCOMES] = { [RUNNER_DONE] = "done",
                                                        [RUNNER_FAILED] = "failed",
                                                        [RUNNER_LOST] = "lost",
                                                        [RUNNER_RELEASED] = "released" };

    weir__cli_claim_tell(ctx, rows, row, words[outcome], why);
}

/* The last line: "19 done, 1 failed, 3 left". What was lost or released is left, for others. */
static void tell_tally(const claim_run *k, const runner_tally *t)
{
    const size_t done = t->outcomes[RUNNER_DONE], failed = t->outcomes[RUNNER_FAILED];

    weir__cli_note(k->c, "%zu done, %zu failed, %zu left", done, failed,
                   t->claimed - done - failed);
}

int weir__cli_claim_children(claim_run *k)
{
    const table_spec *s = &k->options.spec;
    const runner_options o = { .db = k->place.db,
                               .keeper = k->keeper,
                               .table = &k->place.table,
                               .request = &k->request,
                               .command = k->command,
                               .parallel = (size_t)s->parallel,
                               .deadline_us = s->deadline_us,
                               .budget_us = k->budget_us,
                               .stop_fd = k->signal_fd,
                               .stop = &k->unread,
                               .done = s->done,
                               .failed = s->failed,
                               .released = s->released,
                               .told = row_tell,
                               .told_ctx = k,
                               .stdout_cb = weir__cli_claim_stdout,
                               .stderr_cb = weir__cli_claim_stderr,
                               .child_ctx = k };
    runner_tally tally = { .claimed = 0 };
    weir_error err;

    if (weir__runner_run(&o, &k->place.session, &tally, &err) != WEIR_OK) {
        return weir__cli_claim_fail(k->c, &err);
    }
    if (tally.claimed == 0) {
        return CLI_NOTHING;
    }
    tell_tally(k, &tally);
    return tally.outcomes[RUNNER_DONE] == tally.claimed ? CLI_DONE : CLI_ERROR;
}
