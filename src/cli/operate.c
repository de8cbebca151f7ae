/* operate.c - weir unblock, skip, reset, prioritize, pause, resume: what operators do to targets.
 *
 * One call of the port each, on the targets that are named or fit; the answer is how many changed.
 * --dry-run asks the same question of the store and changes nothing. A verb that takes work away or
 * repeats it asks first, and names what it is about.
 */
#include "cli/operate.h"
#include "store/request.h"

#include <inttypes.h>
#include <stdio.h>

enum { OPERATOR_BYTES_MAX = 512 };

/* One list for all six: each command has a part of it, see the commands below. */
static const cli_option options[] = {
    { "clear", NULL, CLI_FLAG, "back to what its reactions declare" },
    { "match", "PATTERN", CLI_WORD, "targets whose name fits: mail-1, mail-*, /^mail-/" },
    { "source", "PATTERN", CLI_WORD, "targets with a subscription whose source fits" },
    { "lane", "NAME", CLI_WORD, "targets of this lane" },
    { "blocked", NULL, CLI_FLAG, "targets that are blocked" },
    { "all", NULL, CLI_FLAG, "every target" },
    { "dry-run", NULL, CLI_FLAG, "print how many would change; change nothing" },
    { "yes", NULL, CLI_FLAG, "do not ask; only skip and reset ask" },
    { "to", "WHERE", CLI_WORD, "start, a position (the last that stays handled), or a time" },
};
enum { OPTIONS_FROM_CLEAR = 0, OPTIONS_FROM_MATCH = 1 };
enum { OPTIONS_FILTER_COUNT = 7, OPTIONS_RESET_COUNT = 8 };

/* ---- running a verb ------------------------------------------------------------------------- */

static weir_status operate_call(const cli *c, weir_store *store, store_operate *op, weir_error *err)
{
    cli_ticker ticker;

    weir__cli_ticker_start(&ticker, c, op->dry_run ? "counting targets" : "changing targets");
    const weir_status status = store->work->operate(store, op, err);
    weir__cli_ticker_stop(&ticker);
    return status;
}

/* What is said of a verb. asks: the question, without its object; NULL: nothing is asked. */
typedef struct spoken {
    const char *would, *did, *asks;
} spoken;

/* Adds the event as "event 7 (OrderPlaced of order-1)". */
static bool event_add(weir_buffer *out, const weir_event *event)
{
    return weir__buffer_add_text(out, "event ") && weir__buffer_add_i64(out, event->id) &&
           weir__buffer_add_text(out, " (") && weir__report_shown(out, event->name) &&
           weir__buffer_add_text(out, " of ") && weir__report_shown(out, event->stream) &&
           weir__buffer_add_text(out, ")");
}

/* The event that skip would park: the one that failed, otherwise the first that waits. Nothing is
 * added if there is none. */
static weir_status next_event_add(weir_store *store, weir_str name, weir_buffer *out,
                                  weir_error *err)
{
    const store_targets_query q = { .filter = { .names = &name, .names_count = 1 }, .limit = 1 };
    store_targets_chunk chunk = { 0 };
    store_fetch_list list = { 0 };
    int64_t least = INT64_MAX;
    weir_status status = store->work->targets(store, &q, &chunk, err);
    const store_target *t = status == WEIR_OK && chunk.targets_count == 1 ? chunk.targets : NULL;

    for (size_t i = 0; t != NULL && status == WEIR_OK && i < t->subscriptions_count; i++) {
        const store_subscription *s = &t->subscriptions[i];
        const store_fetch_item item = {
            .target = t->id, .reaction = s->reaction, .after = s->at, .up_to = s->mark, .limit = 1
        };
        if (s->retired || s->at >= s->mark) {
            continue;
        }
        status = store->work->fetch(store, &item, 1, &list, err);
        const weir_event *event =
            status == WEIR_OK && list.events_count > 0 ? list.events[0].event : NULL;
        if (event != NULL && least != t->event && (event->id == t->event || event->id < least)) {
            least = event->id;
            weir__buffer_clear(out);
            if (!event_add(out, event)) {
                status = weir__fail(err, WEIR_ENOMEM, "out of memory");
            }
        }
    }
    weir__arena_free(&list.arena);
    weir__arena_free(&chunk.arena);
    return status;
}

/* "skip event 7 (OrderPlaced of order-1) of mail-1", "reset 3 targets" */
static weir_status question_add(weir_store *store, const store_operate *op, const spoken *words,
                                weir_buffer *out, weir_error *err)
{
    const bool one = op->filter.names_count == 1;
    weir_buffer event = { 0 };
    weir_status status = WEIR_OK;

    if (one && op->verb == STORE_SKIP) {
        status = next_event_add(store, op->filter.names[0], &event, err);
    }
    bool ok = weir__buffer_add_text(out, words->asks) && weir__buffer_add(out, " ", 1);
    if (op->verb == STORE_SKIP) {
        ok = ok &&
             (event.len > 0 ? weir__buffer_add(out, event.ptr, event.len)
                            : weir__buffer_add_text(out, "the next event")) &&
             weir__buffer_add_text(out, " of ");
    }
    if (one) {
        ok = ok && weir__report_shown(out, op->filter.names[0]);
    } else {
        ok = ok && weir__buffer_add_i64(out, op->changed) &&
             weir__buffer_add_text(out, op->changed == 1 ? " target" : " targets");
    }
    weir__buffer_free(&event);
    return status != WEIR_OK                    ? status
           : ok && weir__buffer_add(out, "", 1) ? WEIR_OK
                                                : weir__fail(err, WEIR_ENOMEM, "out of memory");
}

/* Counts, asks, and leaves op->dry_run as it was. *go_on false: the answer was no. */
static weir_status ask_first(const cli *c, weir_store *store, store_operate *op,
                             const spoken *words, bool *go_on, weir_error *err)
{
    weir_buffer question = { 0 };
    weir_status status = WEIR_OK;

    *go_on = true;
    if (op->dry_run || weir__cli_has(c, "yes")) {
        return status;
    }
    op->dry_run = true;
    status = operate_call(c, store, op, err);
    op->dry_run = false;
    if (status == WEIR_OK && op->changed > 0) {
        status = question_add(store, op, words, &question, err);
        *go_on = status == WEIR_OK && weir__cli_ask(c, question.ptr);
    }
    weir__buffer_free(&question);
    return status;
}

static void verb_tell(cli *c, const store_operate *op, const spoken *words)
{
    const bool one = op->filter.names_count == 1;

    weir__cli_changed(c, op->changed,
                      &(cli_deed){ .would = words->would,
                                   .did = words->did,
                                   .object = "target",
                                   .name = one ? op->filter.names[0] : (weir_str){ 0 } });
}

/* A `wants` of cli_target_sink: stops at the first that neither verb could repair. */
static bool refuse_passed(void *ctx, const store_target *t, bool *wanted)
{
    weir_error *err = ctx;

    *wanted = false;
    if (!weir__target_is_passed(t)) {
        return true;
    }
    (void)weir__fail(err, WEIR_EMISUSE,
                     "target \"%.*s\" is beyond the log and would pass over event %" PRId64
                     "; set it back with weir reset --to %" PRId64,
                     (int)t->name.len, t->name.ptr, t->event, t->event - 1);
    return false;
}

/* unblock and skip leave targets alone that were blocked because they are beyond the log. Naming
 * one is an error. */
static weir_status check_passed(weir_store *store, const store_operate *op, weir_error *err)
{
    weir_error refused = { .size = sizeof refused };
    const cli_target_sink sink = { .wants = refuse_passed, .ctx = &refused };

    if (op->filter.names_count == 0 || (op->verb != STORE_UNBLOCK && op->verb != STORE_SKIP)) {
        return WEIR_OK;
    }
    const weir_status status = weir__cli_targets_each(store, &op->filter, INT64_MAX, &sink, err);
    if (status == WEIR_OK && refused.code != WEIR_OK) {
        *err = refused;
        return WEIR_EMISUSE;
    }
    return status;
}

static int run_verb(cli *c, size_t first, store_operate *op, const spoken *words)
{
    weir *w = NULL;
    weir_error err;
    char by[OPERATOR_BYTES_MAX];
    cli_target_filter f = { 0 };
    bool go_on = true;
    int result = words->asks == NULL ? CLI_DONE : weir__cli_may_ask(c);

    if (result == CLI_DONE) {
        result = weir__cli_filter_take(c, first, &f);
    }
    if (result != CLI_DONE) {
        weir__cli_filter_free(&f);
        return result;
    }
    op->filter = f.filter;
    op->dry_run = weir__cli_has(c, "dry-run");
    op->by = weir__str(weir__cli_operator(by, sizeof by));
    weir_status status = weir__cli_open(c, op->dry_run ? CLI_OPEN_READ : CLI_OPEN_CHANGE, &w, &err);
    if (status == WEIR_OK) {
        status = weir__cli_filter_check(weir__store(w), &f, &err);
    }
    if (status == WEIR_OK) {
        status = check_passed(weir__store(w), op, &err);
    }
    if (status == WEIR_OK && words->asks != NULL) {
        status = ask_first(c, weir__store(w), op, words, &go_on, &err);
    }
    if (status == WEIR_OK && go_on) {
        status = operate_call(c, weir__store(w), op, &err);
    }
    weir_close(w);
    if (status != WEIR_OK) {
        result = weir__cli_fail(c, &err);
    } else if (!go_on) {
        result = weir__cli_declined(c);
    } else {
        verb_tell(c, op, words);
    }
    weir__cli_filter_free(&f);
    return result;
}

/* ---- unblock, skip, reset, prioritize ------------------------------------------------------- */

static int run_unblock(cli *c)
{
    store_operate op = { .verb = STORE_UNBLOCK };

    return run_verb(c, 0, &op, &(spoken){ "unblock", "unblocked", NULL });
}

const cli_command weir__cli_unblock_command = {
    .name = "unblock",
    .block = CLI_BLOCK_OPERATE,
    .usage = "TARGET... [options]\nfilter [options]",
    .summary = "let blocked and deferred targets continue where they stopped",
    .about =
        "Ends the block or the backoff of targets and forgets their failures. They continue at\n"
        "their position: nothing that was handled is handled again. A target that was blocked\n"
        "because it is beyond the log needs weir reset. The exit status is 3 if no target matched.",
    .example = "weir unblock mail-1\n"
               "weir unblock --blocked --lane mail --dry-run",
    .options = &options[OPTIONS_FROM_MATCH],
    .options_count = OPTIONS_FILTER_COUNT,
    .words_max = SIZE_MAX,
    .run = run_unblock,
};

static int run_skip(cli *c)
{
    store_operate op = { .verb = STORE_SKIP };

    return run_verb(c, 0, &op, &(spoken){ "skip an event of", "skipped an event of", "park" });
}

const cli_command weir__cli_skip_command = {
    .name = "skip",
    .block = CLI_BLOCK_OPERATE,
    .usage = "TARGET... [options]\nfilter [options]",
    .summary = "park the event that a target is stuck at, and go on after it",
    .about =
        "Parks the next event of each target (of a blocked target, the one it is stuck on), and\n"
        "lets the target go on after it. weir parked lists parked events and sends them back. If "
        "a\n"
        "worker holds the target, it loses its lease. Asks on a terminal; needs --yes elsewhere.",
    .example = "weir skip mail-1 --dry-run\n"
               "weir skip mail-1 --yes",
    .options = &options[OPTIONS_FROM_MATCH],
    .options_count = OPTIONS_FILTER_COUNT,
    .words_max = SIZE_MAX,
    .run = run_skip,
};

/* --to. CLI_DONE or CLI_USAGE. */
static int take_where(const cli *c, store_operate *op)
{
    const weir_str where = weir__cli_text(c, "to");

    if (where.len == 0) {
        return weir__cli_usage(c, "--to start, --to POSITION or --to TIME is needed");
    }
    if (weir__str_equal(where, weir__str("start"))) {
        op->reset_to = STORE_RESET_START;
    } else if (weir__str_to_i64(where, &op->position) && op->position >= 0) {
        op->reset_to = STORE_RESET_POSITION;
    } else if (weir__time_from_text(where, &op->time_us)) {
        op->reset_to = STORE_RESET_TIME;
    } else {
        return weir__cli_usage(c,
                               "--to takes start, a position from 0, or a time such as "
                               "2026-11-15T20:02:24Z, not \"%s\"",
                               where.ptr);
    }
    return CLI_DONE;
}

static int run_reset(cli *c)
{
    store_operate op = { .verb = STORE_RESET };
    const int result = take_where(c, &op);

    return result == CLI_DONE
               ? run_verb(c, 0, &op, &(spoken){ "reset", "reset", "handle events again of" })
               : result;
}

const cli_command weir__cli_reset_command = {
    .name = "reset",
    .block = CLI_BLOCK_OPERATE,
    .usage = "TARGET... --to WHERE [options]\nfilter --to WHERE [options]",
    .summary = "rewind targets: handle events again",
    .about =
        "Rewinds targets to the start, to a position (the last one that is not handled again) or\n"
        "to a time (events created at or after it are handled again). It never moves a target\n"
        "forward, nor to before the place where a reaction began. It always clears block, backoff\n"
        "and failure counts, even if the position stays. If a worker holds the target, it loses\n"
        "its lease. Asks on a terminal; needs --yes elsewhere.",
    .example = "weir reset mail-1 --to start --dry-run\n"
               "weir reset mail-1 --to 0 --yes\n"
               "weir reset --match 'mail-*' --to 2026-11-15T20:00:00Z --dry-run",
    .options = &options[OPTIONS_FROM_MATCH],
    .options_count = OPTIONS_RESET_COUNT,
    .words_max = SIZE_MAX,
    .run = run_reset,
};

static int run_prioritize(cli *c)
{
    store_operate op = { .verb = STORE_PRIORITIZE, .clear = weir__cli_has(c, "clear") };

    if (op.clear) {
        return run_verb(c, 0, &op,
                        &(spoken){ "clear the priority of", "cleared the priority of", NULL });
    }
    if (c->words_count == 0) {
        return weir__cli_usage(c, "which priority? Give a number first, or --clear");
    }
    if (!weir__str_to_i64(weir__str(c->words[0]), &op.priority)) {
        return weir__cli_usage(c, "the first argument is the priority, a whole number, not \"%s\"",
                               c->words[0]);
    }
    return run_verb(c, 1, &op, &(spoken){ "set the priority of", "set the priority of", NULL });
}

const cli_command weir__cli_prioritize_command = {
    .name = "prioritize",
    .block = CLI_BLOCK_OPERATE,
    .usage = "N TARGET... [options]\nN filter [options]\n--clear TARGET... [options]\n"
             "--clear filter [options]",
    .summary = "set which targets of a lane get workers first",
    .about =
        "Sets the priority of targets to N, whatever their reactions declare, until it is\n"
        "cleared. Free workers of a lane take targets with a higher priority first. The usual\n"
        "priority is 0; negative ones come last. The order of events inside a target never\n"
        "changes.",
    .example = "weir prioritize 10 mail-1\n"
               "weir prioritize --clear --match 'mail-*'",
    .options = &options[OPTIONS_FROM_CLEAR],
    .options_count = OPTIONS_FROM_MATCH + OPTIONS_FILTER_COUNT,
    .words_max = SIZE_MAX,
    .run = run_prioritize,
};

/* ---- pause, resume: targets, or a lane ------------------------------------------------------ */

/* --lane alone is the lane itself: targets that come into it later are held as well. */
static bool is_lane_alone(const cli *c)
{
    return weir__cli_has(c, "lane") && c->words_count == 0 && !weir__cli_has(c, "match") &&
           !weir__cli_has(c, "source") && !weir__cli_has(c, "blocked") && !weir__cli_has(c, "all");
}

/* *known: it has a target or was paused once. *paused: it is. */
static weir_status look_at_lane(weir_store *store, weir_str lane, bool *known, bool *paused,
                                weir_error *err)
{
    store_lane_list list = { 0 };
    const weir_status status = store->work->lanes(store, &list, err);

    *known = *paused = false;
    for (size_t i = 0; status == WEIR_OK && i < list.lanes_count; i++) {
        if (weir__str_equal(list.lanes[i].lane, lane)) {
            *known = true;
            *paused = list.lanes[i].paused;
        }
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status pause_lane(cli *c, weir_store *store, bool pause, int64_t *changed,
                              weir_error *err)
{
    const weir_str lane = weir__cli_text(c, "lane");
    char by[OPERATOR_BYTES_MAX];
    bool known = false, paused = false, did = false;
    weir_status status = weir__name_check("lane", lane, true, err);

    if (status == WEIR_OK) {
        status = look_at_lane(store, lane, &known, &paused, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (!known && !pause) {
        return weir__fail(err, WEIR_ENOTFOUND, "no lane \"%s\"", lane.ptr);
    }
    if (!known) {
        weir__cli_note(c, "lane \"%s\" has no target yet", lane.ptr);
    }
    did = paused != pause;
    if (!weir__cli_has(c, "dry-run")) {
        status = store->work->lane_pause(store, lane, pause,
                                         weir__str(weir__cli_operator(by, sizeof by)), &did, err);
    }
    *changed = did ? 1 : 0;
    return status;
}

static int run_pausing(cli *c, bool pause)
{
    store_operate op = { .verb = pause ? STORE_PAUSE : STORE_RESUME };
    weir *w = NULL;
    weir_error err;
    int64_t changed = 0;

    if (!is_lane_alone(c)) {
        return run_verb(c, 0, &op,
                        pause ? &(spoken){ "pause", "paused", NULL }
                              : &(spoken){ "resume", "resumed", NULL });
    }
    weir_status status =
        weir__cli_open(c, weir__cli_has(c, "dry-run") ? CLI_OPEN_READ : CLI_OPEN_CHANGE, &w, &err);
    if (status == WEIR_OK) {
        status = pause_lane(c, weir__store(w), pause, &changed, &err);
    }
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    weir__cli_changed(c, changed,
                      &(cli_deed){ .would = pause ? "pause lane" : "resume lane",
                                   .did = pause ? "paused lane" : "resumed lane",
                                   .name = weir__cli_text(c, "lane") });
    return CLI_DONE;
}

static int run_pause(cli *c)
{
    return run_pausing(c, true);
}

const cli_command weir__cli_pause_command = {
    .name = "pause",
    .block = CLI_BLOCK_OPERATE,
    .usage = "TARGET... [options]\nfilter [options]\n--lane NAME",
    .summary = "pause targets or a lane",
    .about =
        "Pauses targets: a batch that is running finishes, and nothing new starts. --lane alone\n"
        "pauses the lane itself, with all targets that it has or will have; together with another\n"
        "filter it selects targets. weir why shows who paused a target.",
    .example = "weir pause mail-1\n"
               "weir pause --lane mail\n"
               "weir pause --lane mail --match 'mail-*'",
    .options = &options[OPTIONS_FROM_MATCH],
    .options_count = OPTIONS_FILTER_COUNT,
    .words_max = SIZE_MAX,
    .run = run_pause,
};

static int run_resume(cli *c)
{
    return run_pausing(c, false);
}

const cli_command weir__cli_resume_command = {
    .name = "resume",
    .block = CLI_BLOCK_OPERATE,
    .usage = "TARGET... [options]\nfilter [options]\n--lane NAME",
    .summary = "resume targets or a lane",
    .about =
        "Ends a pause. --lane alone resumes the lane itself; targets in it that were paused on\n"
        "their own stay paused.",
    .example = "weir resume mail-1\n"
               "weir resume --lane mail\n"
               "weir resume --all",
    .options = &options[OPTIONS_FROM_MATCH],
    .options_count = OPTIONS_FILTER_COUNT,
    .words_max = SIZE_MAX,
    .run = run_resume,
};
