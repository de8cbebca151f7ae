/* why_answer.c - the answer of weir why: one sentence, the same in one word, and what to type next.
 *
 * The answer is the first thing in the way, in the order in which a worker would meet it: a
 * position beyond the end of the log; a lease, a block, a pause, a backoff; then, if there is work,
 * that nobody takes it; then, if there is none, where its next event is. `reason` is the same in
 * one word, for programs.
 */
#include "base/assert.h"
#include "cli/config_reactions.h"
#include "cli/why.h"
#include "store/request.h"
#include "store/secrets.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { QUOTED_BYTES_MAX = 200 }; /* of an error, in the sentence; all of it is shown below */

/* ---- the sentence --------------------------------------------------------------------------- */

static void answer_say(why *w, const char *format, ...) WEIR_PRINTF(2, 3);
static void answer_say(why *w, const char *format, ...)
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

/* "3 s ago", "in 4 min", or the time itself: what stands before it must suit all of them. */
static void say_time(why *w, int64_t time_us)
{
    char text[REPORT_WORD_BYTES];

    weir__report_time(w->screen, time_us, text);
    answer_say(w, "%s", text);
}

/* The line of the error that matters, cut short. */
static void say_error(why *w)
{
    const weir_str gist = weir__report_gist(w->f->target->error);
    const bool cut = gist.len > QUOTED_BYTES_MAX;

    if (gist.len > 0) {
        answer_say(w, ": ");
        say_str(w, (weir_str){ .ptr = gist.ptr,
                               .len = cut ? weir__utf8_valid_prefix(gist.ptr, QUOTED_BYTES_MAX)
                                          : gist.len });
        answer_say(w, cut ? "..." : "");
    }
}

/* Begins the answer: its name, and a word for programs. */
static void answer_begin(why *w, const char *reason)
{
    w->reason = reason;
    say_str(w, w->f->target->name);
}

/* "event 3 of reaction mail, attempt 2 of 4, ": what is known of the failure. The second number is
 * left out when there is no limit, or nobody has told it. */
static void say_failure(why *w)
{
    const store_target *t = w->f->target;
    const int64_t allowed = weir__cli_why_attempts(w->f);

    if (t->event != 0) {
        answer_say(w, "event %" PRId64, t->event);
    }
    if (t->event != 0 && t->reaction.len > 0) {
        answer_say(w, " of reaction ");
        say_str(w, t->reaction);
    }
    if (t->attempts > 0) {
        answer_say(w, "%sattempt %" PRId64, t->event != 0 ? ", " : "", t->attempts);
    }
    if (t->attempts > 0 && allowed > 0) {
        answer_say(w, " of %" PRId64, allowed);
    }
}

/* ---- what to type next ---------------------------------------------------------------------- */

static void next_text(why *w, const char *text)
{
    w->failed = w->failed || !weir__buffer_add_text(&w->next[w->next_count].command, text);
}

void weir__cli_why_next(why *w, const char *what, const char *verb, weir_str word)
{
    WEIR_ASSERT(w->next_count < WHY_NEXT_MAX);
    weir_buffer *b = &w->next[w->next_count].command, url = { 0 };

    /* A name that looks like an option comes last, after the end of options. */
    const char *last = strrchr(verb, ' ');
    const bool dashed =
        word.len > 0 && word.ptr[0] == '-' && (last == NULL || strncmp(last, " --", 3) != 0);

    w->next[w->next_count].what = what;
    next_text(w, "weir ");
    next_text(w, verb);
    if (word.len > 0 && !dashed) {
        next_text(w, " ");
        w->failed = w->failed || !weir__cli_add_shell_word(b, word);
    }
    if (w->store != NULL) {
        next_text(w, " --store ");
        w->failed = w->failed || !weir__url_without_passwords(&url, weir__str(w->store)) ||
                    !weir__cli_add_shell_word(b, (weir_str){ url.ptr, url.len });
        weir__buffer_free(&url);
    }
    if (dashed) {
        next_text(w, " -- ");
        w->failed = w->failed || !weir__cli_add_shell_word(b, word);
    }
    w->next_count++;
}

/* Where there is no command for it: in words. */
static void next_words(why *w, const char *before, weir_str name, const char *after)
{
    WEIR_ASSERT(w->next_count < WHY_NEXT_MAX);
    weir_buffer *b = &w->next[w->next_count].command;

    next_text(w, before);
    w->failed = w->failed || !weir__buffer_add(b, name.ptr, name.len);
    next_text(w, after);
    w->next[w->next_count++].what = NULL;
}

/* Whether weir work, typed here, would run a reaction of that name, or one of that lane: weir.yaml
 * has it. A worker that was started with --on or with another file cannot be guessed. */
static bool is_in_file(const weir_str *name, const weir_str *lane)
{
    cli_config config = { 0 };
    weir_error err;
    bool found = false;

    if (weir__cli_config_read(&config, "weir.yaml", &err) == WEIR_OK) {
        for (size_t i = 0; i < config.reactions_count && !found; i++) {
            const weir_reaction *r = &config.reactions[i];
            const weir_str its_lane = r->lane.len == 0 ? weir__str("default") : r->lane;
            found = (name == NULL || weir__str_equal(r->name, *name)) &&
                    (lane == NULL || weir__str_equal(its_lane, *lane));
        }
    }
    weir__cli_config_free(&config);
    return found;
}

/* For work that only a worker can do. */
static void next_worker(why *w)
{
    const store_target *t = w->f->target;
    weir_str name = t->reaction;

    if (weir__cli_workers_count(&w->f->workers, &t->lane, NULL) > 0) {
        return;
    }
    for (size_t i = 0; name.len == 0 && i < t->subscriptions_count; i++) {
        name = t->subscriptions[i].retired ? name : t->subscriptions[i].reaction_name;
    }
    if (is_in_file(name.len == 0 ? NULL : &name, &t->lane)) {
        weir__cli_why_next(w, "start a worker for its lane", "work --lanes", t->lane);
    } else if (name.len > 0) {
        next_words(w, "start a worker for reaction ", name, " again");
    } else {
        next_words(w, "start a worker for lane ", t->lane, " again");
    }
}

static void next_watch(why *w)
{
    weir__cli_why_next(w, "follow it", "targets --watch --match", w->f->target->name);
}

/* ---- what is in the way --------------------------------------------------------------------- */

static void answer_leased(why *w)
{
    const store_target *t = w->f->target;
    const store_worker *worker = weir__cli_worker_named(&w->f->workers, t->holder);

    answer_begin(w, "leased");
    answer_say(w, " is leased by ");
    say_str(w, t->holder);
    if (worker != NULL) {
        answer_say(w, " on host ");
        say_str(w, worker->host);
        answer_say(w, " (process %" PRId64 ")", worker->pid);
    }
    if (worker != NULL && worker->until_us <= w->f->workers.now_us) {
        answer_say(w, ", which is gone; others may take it when the lease ends: ");
    } else {
        answer_say(w, "; the lease ends or is renewed ");
    }
    say_time(w, t->leased_until_us);
    next_worker(w);
    next_watch(w);
}

static void answer_blocked(why *w)
{
    const store_target *t = w->f->target;
    const int64_t behind = w->f->waiting - (w->f->failed_waits ? 1 : 0);

    answer_begin(w, "blocked");
    answer_say(w, " is blocked");
    say_error(w);
    answer_say(w, " (");
    say_failure(w);
    answer_say(w, t->event != 0 || t->attempts > 0 ? ", " : "");
    say_time(w, t->blocked_us);
    answer_say(w, ")");
    if (behind > 0) {
        answer_say(w, "; %" PRId64 "%s event%s wait%s%s", behind,
                   w->f->waiting_more ? " or more" : "", behind == 1 ? "" : "s",
                   behind == 1 ? "s" : "", t->event != 0 ? " behind it" : "");
    }
    weir__cli_why_next(w, "try again, once the cause is fixed", "unblock", t->name);
    weir__cli_why_next(w, "park the event and continue with the next one", "skip", t->name);
    next_worker(w);
}

static void answer_paused(why *w)
{
    const store_target *t = w->f->target;

    answer_begin(w, t->paused ? "paused" : "lane-paused");
    if (t->paused) {
        answer_say(w, " is paused by ");
        say_str(w, t->paused_by);
        weir__cli_why_next(w, "let it continue", "resume", t->name);
    } else {
        answer_say(w, " waits: its lane ");
        say_str(w, t->lane);
        answer_say(w, " is paused by ");
        say_str(w, w->f->lane == NULL ? weir__str("somebody") : w->f->lane->paused_by);
        weir__cli_why_next(w, "let the lane continue", "resume --lane", t->lane);
    }
    next_worker(w);
}

/* After a failure, or because its handler asked to wait. */
static void answer_deferred(why *w)
{
    const store_target *t = w->f->target;
    const bool failed = weir__cli_target_state(t) == CLI_TARGET_RETRYING;

    answer_begin(w, failed ? "retrying" : "deferred");
    if (failed) {
        answer_say(w, " is retrying");
        say_error(w);
        answer_say(w, " (");
        say_failure(w);
        answer_say(w, "); next attempt ");
    } else {
        answer_say(w, " was deferred by its handler; next attempt ");
    }
    say_time(w, t->due_us);
    weir__cli_why_next(w, "try again now", "unblock", t->name);
    if (failed) {
        weir__cli_why_next(w, "park the event and continue with the next one", "skip", t->name);
    }
    next_worker(w);
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

static void next_unknown(why *w, const store_reaction *r)
{
    if (is_in_file(&r->name, NULL)) {
        weir__cli_why_next(w, "start a worker that has the reaction", "work", (weir_str){ 0 });
    } else {
        next_words(w, "start a worker for reaction ", r->name, " again");
    }
    weir__cli_why_next(w, "or retire the reaction", "reactions retire", r->name);
}

static void answer_ready(why *w)
{
    const why_facts *f = w->f;
    bool known = false;
    const store_reaction *unknown = unknown_reaction(f, &known);
    const size_t workers = weir__cli_workers_count(&f->workers, &f->target->lane, NULL);

    if (workers == 0) {
        answer_begin(w, "no-worker");
        answer_say(w, " has work");
        if (unknown != NULL) {
            answer_say(w, " for reaction ");
            say_str(w, unknown->name);
        }
        if (weir__cli_workers_count(&f->workers, NULL, NULL) == 0) {
            answer_say(w, ", and no worker is running");
        } else {
            answer_say(w, ", and no running worker serves its lane ");
            say_str(w, f->target->lane);
        }
        next_worker(w);
        return;
    }
    if (unknown != NULL && !known) {
        answer_begin(w, "unknown-reaction");
        answer_say(w, " has work for reaction ");
        say_str(w, unknown->name);
        answer_say(w, ", which no running worker of its lane handles");
        next_unknown(w, unknown);
        return;
    }
    answer_begin(w, "ready");
    answer_say(w, " is ready: the next free one of %zu worker%s of its lane takes it", workers,
               workers == 1 ? "" : "s");
    if (unknown != NULL) {
        answer_say(w, "; but its reaction ");
        say_str(w, unknown->name);
        answer_say(w, " is handled by none of them");
        next_unknown(w, unknown);
    }
    next_watch(w);
}

/* ---- no work: where its next event is ------------------------------------------------------- */

static void say_event(why *w, const why_event *e)
{
    answer_say(w,
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

    answer_begin(w, routed_by || known ? "unrouted" : "unknown-reaction");
    say_event(w, e);
    answer_say(w, " is not routed; reaction ");
    say_str(w, r->name);
    if (routed_by) {
        answer_say(w, " is routed by ");
        say_str(w, r->router);
        answer_say(w, ", up to %" PRId64 " of %" PRId64, r->routed, w->f->positions.safe);
    } else {
        answer_say(w, known ? " is routed by nobody at the moment"
                            : " is handled by no running worker");
    }
    if (routed_by || known) {
        weir__cli_why_next(w, "see how far each reaction is routed", "reactions", (weir_str){ 0 });
    } else {
        next_unknown(w, r);
    }
}

static void answer_held(why *w)
{
    const store_holder_list *holders = &w->f->holders;

    answer_begin(w, "held-back");
    say_event(w, &w->f->held);
    answer_say(w, " is above safe (%" PRId64 ")", w->f->positions.safe);
    weir__cli_why_next(w, "see which transactions hold readers back", "status", (weir_str){ 0 });
    if (holders->holders_count == 0) {
        return; /* it has just ended */
    }
    const store_holder *h = &holders->holders[0];
    if (h->pid != 0) {
        answer_say(w, ", held back by process %" PRId64, h->pid);
    } else {
        answer_say(w, ", held back by the prepared transaction ");
        say_str(w, h->transaction);
    }
    if (h->application.len > 0) {
        answer_say(w, " (");
        say_str(w, h->application);
        answer_say(w, ")");
    }
    if (h->since_us != 0) {
        answer_say(w, ", which began ");
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

static const store_reaction *routed_beyond(const why_facts *f)
{
    for (size_t i = 0; i < f->target->subscriptions_count; i++) {
        const store_reaction *r = weir__cli_why_reaction(f, f->target->subscriptions[i].reaction);
        if (r != NULL && weir__cli_is_routed_beyond(r, &f->positions)) {
            return r;
        }
    }
    return NULL;
}

static void answer_routed_beyond(why *w, const store_reaction *r)
{
    answer_begin(w, "routed-beyond-log");
    answer_say(w, " gets no work: reaction ");
    say_str(w, r->name);
    answer_say(w,
               " is routed up to %" PRId64 ", but the log ends at %" PRId64
               ": a part of the log was lost",
               r->routed, w->f->positions.head);
    weir__cli_why_next(w, "see how it is set back", "doctor", (weir_str){ 0 });
}

static void answer_idle(why *w)
{
    const store_subscription *retired = retired_with_work(w->f);
    const store_reaction *beyond = routed_beyond(w->f);

    if (beyond != NULL) {
        answer_routed_beyond(w, beyond);
    } else if (w->f->unrouted.event != 0) {
        answer_unrouted(w);
    } else if (w->f->held.event != 0) {
        answer_held(w);
    } else if (retired != NULL) {
        answer_begin(w, "retired");
        answer_say(w, " has no work that counts: its reaction ");
        say_str(w, retired->reaction_name);
        answer_say(w, " is retired");
        if (is_in_file(&retired->reaction_name, NULL)) {
            weir__cli_why_next(w, "start a worker that has the reaction: that brings it back",
                               "work", (weir_str){ 0 });
        } else {
            next_words(w, "start a worker for reaction ", retired->reaction_name,
                       " to bring it back");
        }
    } else {
        answer_begin(w, "no-work");
        answer_say(w, " has no work");
    }
}

/* Nothing else matters then: events would be passed over until the log has got there. */
static void answer_beyond(why *w, int64_t position, int64_t end)
{
    answer_begin(w, "beyond-log");
    answer_say(w, " is at position %" PRId64 ", but %s at %" PRId64 ": a part of the log was lost",
               position, end == w->f->head ? "the log ends" : "what was routed of the log ends",
               end);
    weir__cli_why_next(w, "set it back to the last event before that part", "reset --to POSITION",
                       w->f->target->name);
}

/* The same, when a worker has met it: it was blocked at the first event that it never had. */
static void answer_passed(why *w)
{
    const store_target *t = w->f->target;
    char verb[48];

    answer_begin(w, "beyond-log");
    answer_say(w, " is blocked");
    say_error(w);
    answer_say(w, " (");
    say_time(w, t->blocked_us);
    answer_say(w, "); it would pass over event %" PRId64, t->event);
    (void)snprintf(verb, sizeof verb, "reset --to %" PRId64, t->event - 1);
    weir__cli_why_next(w, "set it back to before that event, or further", verb, t->name);
}

/* Parked events are in nobody's way, but nobody else will look after them. */
static void next_parked(why *w)
{
    if (w->f->parked > w->f->sent_back) {
        weir__cli_why_next(w, "see the events that were parked", "parked ls --target",
                           w->f->target->name);
    }
}

static void answer_judge(why *w)
{
    int64_t position = 0, end = 0;

    if (weir__target_is_passed(w->f->target)) {
        answer_passed(w);
        return;
    }
    if (weir__cli_is_beyond(w->f->target, w->f->head, &position, &end)) {
        answer_beyond(w, position, end);
        return;
    }
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

void weir__cli_why_judge(why *w)
{
    answer_judge(w);
    next_parked(w);
}

void weir__cli_why_free(why *w)
{
    for (size_t i = 0; i < WHY_NEXT_MAX; i++) {
        weir__buffer_free(&w->next[i].command);
    }
    weir__buffer_free(&w->answer);
}
