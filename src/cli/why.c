/* why.c - weir why: why a target is, or is not, running: one sentence, and what it rests on.
 *
 * The answer is the first thing in the way, in the order in which a worker would meet it: a lease,
 * a block, a pause, a backoff; then, when there is work, that nobody takes it; then, when there is
 * none, where its next event is. `reason` is the same in one word, for programs.
 */
#include "cli/why.h"
#include "store/request.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { QUOTED_BYTES_MAX = 200 }; /* of an error, in the sentence; the evidence has all of it */

typedef struct why {
    const why_facts *f;
    const char *reason;
    weir_buffer answer;
    bool failed; /* no memory */
} why;

/* ---- the sentence --------------------------------------------------------------------------- */

static void say(why *w, const char *format, ...) WEIR_PRINTF(2, 3);
static void say(why *w, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->failed = w->failed || !weir__buffer_add_text(&w->answer, text);
}

static void say_str(why *w, weir_str text)
{
    w->failed = w->failed || (text.len > 0 && !weir__buffer_add(&w->answer, text.ptr, text.len));
}

static void say_time(why *w, int64_t time_us)
{
    char text[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(time_us, text);
    say(w, "%s", text);
}

/* The first line of an error, cut short. */
static void say_error(why *w, weir_str error)
{
    const char *end = error.len == 0 ? NULL : memchr(error.ptr, '\n', error.len);
    const size_t line = end == NULL ? error.len : (size_t)(end - error.ptr);
    const size_t len =
        line <= QUOTED_BYTES_MAX ? line : weir__utf8_valid_prefix(error.ptr, QUOTED_BYTES_MAX);

    say(w, "\"");
    say_str(w, (weir_str){ .ptr = error.ptr, .len = len });
    say(w, len < error.len ? "...\"" : "\"");
}

/* Begins the answer: its name, and a word for programs. */
static void begin(why *w, const char *reason)
{
    w->reason = reason;
    say_str(w, w->f->target->name);
}

/* "attempt 2 of 4"; without the second number when there is no limit, or nobody has told it. */
static void say_attempt(why *w, const char *before)
{
    const store_target *t = w->f->target;
    const int64_t allowed = weir__cli_why_attempts(w->f);

    if (t->attempts > 0) {
        say(w, "%sattempt %" PRId64, before, t->attempts);
    }
    if (t->attempts > 0 && allowed > 0) {
        say(w, " of %" PRId64, allowed);
    }
}

/* ---- what is in the way --------------------------------------------------------------------- */

static void answer_leased(why *w)
{
    const store_target *t = w->f->target;
    const store_worker *worker = weir__cli_worker_named(&w->f->workers, t->holder);

    begin(w, "leased");
    say(w, " is leased by ");
    say_str(w, t->holder);
    if (worker != NULL) {
        say(w, " on host ");
        say_str(w, worker->host);
        say(w, " (process %" PRId64 ")", worker->pid);
    }
    say(w, " until ");
    say_time(w, t->leased_until_us);
    say(w, " with fence %" PRId64, t->fence);
}

static void answer_blocked(why *w)
{
    const store_target *t = w->f->target;
    const int64_t behind = w->f->waiting - (w->f->failed_waits ? 1 : 0);

    begin(w, "blocked");
    say(w, " is blocked since ");
    say_time(w, t->blocked_us);
    if (t->event != 0) {
        say(w, " at event %" PRId64, t->event);
    }
    if (t->reaction.len > 0) {
        say(w, " of reaction ");
        say_str(w, t->reaction);
    }
    say(w, " with error ");
    say_error(w, t->error);
    say_attempt(w, " after ");
    say(w, ", %" PRId64 "%s event%s %s", behind, w->f->waiting_more ? " or more" : "",
        behind == 1 ? "" : "s", t->event != 0 ? "behind it" : "waiting");
}

static void answer_paused(why *w)
{
    const store_target *t = w->f->target;

    begin(w, t->paused ? "paused" : "lane-paused");
    if (t->paused) {
        say(w, " is paused by ");
        say_str(w, t->paused_by);
    } else {
        say(w, " waits: its lane ");
        say_str(w, t->lane);
        say(w, " is paused by ");
        say_str(w, w->f->lane == NULL ? weir__str("somebody") : w->f->lane->paused_by);
    }
}

static void answer_deferred(why *w)
{
    const store_target *t = w->f->target;

    begin(w, "deferred");
    say(w, " is deferred until ");
    say_time(w, t->due_us);
    if (t->error.len == 0) {
        say(w, ", without an error");
        return;
    }
    say(w, " because of error ");
    say_error(w, t->error);
    if (t->event != 0) {
        say(w, " at event %" PRId64, t->event);
    }
    say_attempt(w, ", ");
}

/* ---- work that nobody takes ----------------------------------------------------------------- */

/* Whether the reaction keeps the target busy. Where only an event that was sent back waits, all of
 * its reactions may. */
static bool has_work(const why_facts *f, const store_subscription *s)
{
    return !s->retired && (s->at < s->mark || f->waiting == 0);
}

/* Of the reactions with work: one that no worker of the lane knows. *another_known: another is. */
static const store_reaction *unknown_reaction(const why_facts *f, bool *another_known)
{
    const store_reaction *unknown = NULL;

    *another_known = false;
    for (size_t i = 0; i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        if (r == NULL || !has_work(f, s)) {
            continue;
        }
        if (weir__cli_workers_count(&f->workers, &f->target->lane, r) > 0) {
            *another_known = true;
        } else if (unknown == NULL) {
            unknown = r;
        }
    }
    return unknown;
}

static void answer_ready(why *w)
{
    const why_facts *f = w->f;
    bool known = false;
    const store_reaction *unknown = unknown_reaction(f, &known);
    const size_t workers = weir__cli_workers_count(&f->workers, &f->target->lane, NULL);

    if (workers == 0) {
        begin(w, "no-worker");
        say(w, " has work, and its lane ");
        say_str(w, f->target->lane);
        say(w, " has no worker");
        return;
    }
    if (unknown != NULL && !known) {
        begin(w, "unknown-reaction");
        say(w, " has work of reaction ");
        say_str(w, unknown->name);
        say(w, ", which is known to no running worker of its lane");
        return;
    }
    begin(w, "ready");
    say(w, " is ready: the next free one of %zu worker%s of its lane takes it", workers,
        workers == 1 ? "" : "s");
    if (unknown != NULL) {
        say(w, "; but its reaction ");
        say_str(w, unknown->name);
        say(w, " is known to none of them");
    }
}

/* ---- no work: where its next event is ------------------------------------------------------- */

static void say_event(why *w, const why_event *e)
{
    say(w,
        e->certain ? " has no work yet: event %" PRId64
                   : " has no work yet: event %" PRId64 ", which may be for it,",
        e->event);
}

static void answer_unrouted(why *w)
{
    const why_event *e = &w->f->unrouted;
    const store_reaction *r = e->reaction;
    const bool routed_by = r->router.len > 0 && r->router_until_us > w->f->positions.now_us;
    const bool known = weir__cli_workers_count(&w->f->workers, NULL, r) > 0;

    begin(w, routed_by || known ? "unrouted" : "unknown-reaction");
    say_event(w, e);
    say(w, " is not routed; reaction ");
    say_str(w, r->name);
    if (routed_by) {
        say(w, " is routed by ");
        say_str(w, r->router);
        say(w, ", up to %" PRId64 " of %" PRId64, r->routed, w->f->positions.safe);
    } else {
        say(w, known ? " is routed by nobody at the moment" : " is known to no running worker");
    }
}

static void answer_held(why *w)
{
    const store_holder_list *holders = &w->f->holders;

    begin(w, "held-back");
    say_event(w, &w->f->held);
    say(w, " is above safe (%" PRId64 ")", w->f->positions.safe);
    if (holders->holders_count == 0) {
        return; /* it has just ended */
    }
    const store_holder *h = &holders->holders[0];
    if (h->pid != 0) {
        say(w, ", held back by process %" PRId64, h->pid);
    } else {
        say(w, ", held back by the prepared transaction ");
        say_str(w, h->transaction);
    }
    if (h->application.len > 0) {
        say(w, " (");
        say_str(w, h->application);
        say(w, ")");
    }
    if (h->since_us != 0) {
        say(w, " since ");
        say_time(w, h->since_us);
    }
}

static const store_subscription *retired_with_work(const why_facts *f)
{
    for (size_t i = 0; i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        if (s->retired && s->at < s->mark) {
            return s;
        }
    }
    return NULL;
}

static void answer_idle(why *w)
{
    const store_subscription *retired = retired_with_work(w->f);

    if (w->f->unrouted.event != 0) {
        answer_unrouted(w);
    } else if (w->f->held.event != 0) {
        answer_held(w);
    } else if (retired != NULL) {
        begin(w, "retired");
        say(w, " has no work that counts: its reaction ");
        say_str(w, retired->reaction_name);
        say(w, " is retired");
    } else {
        begin(w, "no-work");
        say(w, " has no work");
    }
}

static void judge(why *w)
{
    switch (w->f->target->state) {
    case STORE_TARGET_LEASED:
        answer_leased(w);
        break;
    case STORE_TARGET_BLOCKED:
        answer_blocked(w);
        break;
    case STORE_TARGET_PAUSED:
        answer_paused(w);
        break;
    case STORE_TARGET_DEFERRED:
        answer_deferred(w);
        break;
    case STORE_TARGET_READY:
        answer_ready(w);
        break;
    case STORE_TARGET_IDLE:
        answer_idle(w);
        break;
    }
}

/* ---- the evidence --------------------------------------------------------------------------- */

static void json_reactions(cli_json *j, const why_facts *f)
{
    weir__cli_json_open(j, "reactions", '[');
    for (size_t i = 0; i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        weir__cli_json_open(j, NULL, '{');
        weir__cli_json_str(j, "reaction", s->reaction_name);
        weir__cli_json_i64(j, "at", s->at);
        weir__cli_json_i64(j, "mark", s->mark);
        weir__cli_json_i64(j, "retries", s->retries);
        weir__cli_json_bool(j, "retired", s->retired);
        if (r != NULL) {
            weir__cli_json_i64(j, "routed", r->routed);
            weir__cli_json_i64(j, "workers",
                               (int64_t)weir__cli_workers_count(&f->workers, &f->target->lane, r));
        }
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

static void json_workers(cli_json *j, const why_facts *f)
{
    weir__cli_json_open(j, "workers", '[');
    for (size_t i = 0; i < f->workers.list.workers_count; i++) {
        const store_worker *worker = &f->workers.list.workers[i];
        if (!weir__cli_worker_works(&f->workers, worker) ||
            !weir__cli_worker_serves(worker, f->target->lane)) {
            continue;
        }
        weir__cli_json_open(j, NULL, '{');
        weir__cli_json_str(j, "worker", worker->name);
        weir__cli_json_str(j, "host", worker->host);
        weir__cli_json_i64(j, "pid", worker->pid);
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

static void json_holders(cli_json *j, const why_facts *f)
{
    weir__cli_json_open(j, "held_back_by", '[');
    for (size_t i = 0; i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        const cli_field fields[] = {
            { .name = "pid", .type = h->pid != 0 ? CLI_I64 : CLI_NULL, .number = h->pid },
            { .name = "transaction", .type = CLI_STR, .text = h->transaction },
            { .name = "application", .type = CLI_STR, .text = h->application },
            { .name = "since", .type = CLI_STAMP, .number = h->since_us },
        };
        weir__cli_json_open(j, NULL, '{');
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            weir__cli_json_field(j, &fields[k]);
        }
        weir__cli_json_close(j, '}');
    }
    weir__cli_json_close(j, ']');
}

static cli_field text_field(const char *name, weir_str text)
{
    return (cli_field){ .name = name, .type = CLI_STR, .text = weir__cli_or_null(text) };
}

static cli_field number_field(const char *name, int64_t number)
{
    return (cli_field){ .name = name, .type = CLI_I64, .number = number };
}

/* A number that is missing when it is 0. */
static cli_field optional_field(const char *name, int64_t number)
{
    return (cli_field){ .name = name, .type = number == 0 ? CLI_NULL : CLI_I64, .number = number };
}

static cli_field time_field(const char *name, int64_t time_us)
{
    return (cli_field){ .name = name, .type = CLI_STAMP, .number = time_us };
}

enum { EVIDENCE_MAX = 32 };

/* Everything but the lists. The number of fields. */
static size_t evidence(const why_facts *f, cli_field out[EVIDENCE_MAX])
{
    const store_target *t = f->target;
    const bool lane_paused = f->lane != NULL && f->lane->paused;
    const cli_field fields[] = {
        text_field("state", weir__str(weir__cli_state_text(t->state))),
        text_field("lane", t->lane),
        number_field("priority", t->priority),
        number_field("watermark", t->watermark),
        number_field("mark", t->mark),
        number_field("waiting", f->waiting),
        { .name = "waiting_more", .type = CLI_BOOL, .number = f->waiting_more },
        text_field("leased_by", t->holder),
        time_field("leased_until", t->leased_until_us),
        number_field("fence", t->fence),
        number_field("lost", t->lost),
        time_field("blocked_since", t->blocked ? t->blocked_us : 0),
        time_field("deferred_until", t->due_us),
        text_field("error", t->error),
        optional_field("event", t->event),
        text_field("reaction", t->reaction),
        optional_field("attempts", t->attempts),
        optional_field("attempts_allowed", weir__cli_why_attempts(f)),
        text_field("paused_by", t->paused ? t->paused_by : (weir_str){ 0 }),
        text_field("lane_paused_by", lane_paused ? f->lane->paused_by : (weir_str){ 0 }),
        number_field("parked", f->parked),
        number_field("sent_back", f->sent_back),
        optional_field("unrouted", f->unrouted.event),
        optional_field("above_safe", f->held.event),
        number_field("head", f->positions.head),
        number_field("safe", f->positions.safe),
    };
    static_assert(sizeof fields / sizeof fields[0] <= EVIDENCE_MAX, "it fits");

    memcpy(out, fields, sizeof fields);
    return sizeof fields / sizeof fields[0];
}

static bool print_json(cli *c, const why *w)
{
    cli_field fields[EVIDENCE_MAX];
    const size_t count = evidence(w->f, fields);
    weir_buffer buffer = { 0 };
    cli_json j = { .buffer = &buffer };

    weir__cli_json_open(&j, NULL, '{');
    weir__cli_json_str(&j, "target", w->f->target->name);
    weir__cli_json_str(&j, "reason", weir__str(w->reason));
    weir__cli_json_str(&j, "answer", (weir_str){ w->answer.ptr, w->answer.len });
    weir__cli_json_open(&j, "evidence", '{');
    for (size_t i = 0; i < count; i++) {
        weir__cli_json_field(&j, &fields[i]);
    }
    json_holders(&j, w->f);
    json_reactions(&j, w->f);
    json_workers(&j, w->f);
    weir__cli_json_close(&j, '}');
    weir__cli_json_close(&j, '}');
    const bool ok = !j.failed && weir__buffer_add(&buffer, "\n", 1);
    if (ok) {
        (void)weir__cli_put(&c->out, (weir_str){ buffer.ptr, buffer.len });
    }
    weir__buffer_free(&buffer);
    return ok;
}

static bool is_missing(const cli_field *field)
{
    return field->type == CLI_NULL || (field->type == CLI_STR && field->text.ptr == NULL) ||
           (field->type == CLI_STAMP && field->number == 0);
}

/* The sentence, then what is there of the evidence, then the reactions. */
static bool print_text(cli *c, const why *w)
{
    const why_facts *f = w->f;
    cli_field fields[EVIDENCE_MAX];
    const size_t count = evidence(f, fields);
    cli_table facts = { 0 }, reactions = { 0 };
    weir_buffer text = { 0 };
    bool ok = weir__cli_shown(&text, (weir_str){ w->answer.ptr, w->answer.len }) &&
              weir__buffer_add_text(&text, "\n\n");

    for (size_t i = 0; ok && i < count; i++) {
        cli_field row[2] = {
            { .name = "evidence", .type = CLI_STR, .text = weir__str(fields[i].name) }, fields[i]
        };
        row[1].name = "value";
        ok = is_missing(&fields[i]) || weir__cli_table_row(&facts, row, 2);
    }
    ok = ok && weir__cli_table_flush(&facts, &text) && weir__buffer_add_text(&text, "\n");
    for (size_t i = 0; ok && i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        const cli_field row[] = {
            text_field("reaction", s->reaction_name),
            number_field("at", s->at),
            number_field("mark", s->mark),
            number_field("routed", r == NULL ? 0 : r->routed),
            number_field("retries", s->retries),
            { .name = "retired", .type = CLI_BOOL, .number = s->retired },
            number_field(
                "workers",
                r == NULL ? 0 : (int64_t)weir__cli_workers_count(&f->workers, &f->target->lane, r)),
        };
        ok = weir__cli_table_row(&reactions, row, sizeof row / sizeof row[0]);
    }
    ok = ok && weir__cli_table_flush(&reactions, &text);
    if (ok) {
        (void)weir__cli_put(&c->out, (weir_str){ text.ptr, text.len });
    }
    weir__buffer_free(&text);
    weir__cli_table_free(&facts);
    weir__cli_table_free(&reactions);
    return ok;
}

static int run(cli *c)
{
    weir *handle = NULL;
    weir_error err;
    why_facts facts = { 0 };
    why w = { .f = &facts };
    const weir_str target = weir__str(c->words[0]);
    weir_status status = weir__name_check("target name", target, true, &err);

    if (status == WEIR_OK) {
        status = weir__cli_open(c, CLI_OPEN_READ, &handle, &err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_why_collect(weir__store(handle), target, &facts, &err);
    }
    if (status == WEIR_OK) {
        judge(&w);
        const bool ok = !w.failed && (c->out.json ? print_json(c, &w) : print_text(c, &w));
        status = ok ? WEIR_OK : weir__fail(&err, WEIR_ENOMEM, "out of memory");
    }
    weir__buffer_free(&w.answer);
    weir__cli_why_free(&facts);
    weir_close(handle);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_why_command = {
    .name = "why",
    .block = CLI_BLOCK_WORKERS,
    .usage = "TARGET [options]",
    .summary = "why a target is, or is not, running",
    .about = "Answers in one sentence and shows what the answer rests on. In JSON, reason is the\n"
             "answer in one word: leased, blocked, paused, lane-paused, deferred, no-worker,\n"
             "unknown-reaction, ready, unrouted, held-back, retired or no-work.",
    .example = "weir why mail-1\n"
               "weir why mail-1 --json",
    .words_min = 1,
    .words_max = 1,
    .run = run,
};
