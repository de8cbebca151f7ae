/* why.c - weir why: why a target is, or is not, running, and what to do about it. */
#include "cli/why.h"
#include "store/request.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { DATA_BYTES_MAX = 2000 }; /* of an event, as it is shown */

/* ---- the evidence --------------------------------------------------------------------------- */

static void json_reactions(report_json *j, const why_facts *f)
{
    weir__report_json_open(j, "reactions", '[');
    for (size_t i = 0; i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        weir__report_json_open(j, NULL, '{');
        weir__report_json_str(j, "reaction", s->reaction_name);
        weir__report_json_i64(j, "at", s->at);
        weir__report_json_i64(j, "mark", s->mark);
        weir__report_json_i64(j, "retries", s->retries);
        weir__report_json_bool(j, "retired", s->retired);
        if (r != NULL) {
            weir__report_json_i64(j, "routed", r->routed);
            weir__report_json_i64(
                j, "workers", (int64_t)weir__cli_workers_count(&f->workers, &f->target->lane, r));
        }
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

static void json_workers(report_json *j, const why_facts *f)
{
    weir__report_json_open(j, "workers", '[');
    for (size_t i = 0; i < f->workers.list.workers_count; i++) {
        const store_worker *worker = &f->workers.list.workers[i];
        if (!weir__cli_worker_works(&f->workers, worker) ||
            !weir__cli_worker_serves(worker, f->target->lane)) {
            continue;
        }
        weir__report_json_open(j, NULL, '{');
        weir__report_json_str(j, "worker", worker->name);
        weir__report_json_str(j, "host", worker->host);
        weir__report_json_i64(j, "pid", worker->pid);
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

static void json_holders(report_json *j, const why_facts *f)
{
    weir__report_json_open(j, "held_back_by", '[');
    for (size_t i = 0; i < f->holders.holders_count; i++) {
        const store_holder *h = &f->holders.holders[i];
        const report_field fields[] = {
            { .name = "pid", .type = h->pid != 0 ? REPORT_I64 : REPORT_NULL, .number = h->pid },
            { .name = "transaction", .type = REPORT_STR, .text = h->transaction },
            { .name = "application", .type = REPORT_STR, .text = h->application },
            { .name = "since", .type = REPORT_TIME, .number = h->since_us },
        };
        weir__report_json_open(j, NULL, '{');
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            weir__report_json_field(j, &fields[k]);
        }
        weir__report_json_close(j, '}');
    }
    weir__report_json_close(j, ']');
}

static report_field text_field(const char *name, weir_str text)
{
    return (report_field){ .name = name, .type = REPORT_STR, .text = weir__cli_or_null(text) };
}

static report_field number_field(const char *name, int64_t number)
{
    return (report_field){ .name = name, .type = REPORT_I64, .number = number };
}

/* A number that is missing when it is 0. */
static report_field optional_field(const char *name, int64_t number)
{
    return (report_field){ .name = name,
                           .type = number == 0 ? REPORT_NULL : REPORT_I64,
                           .number = number };
}

static report_field time_field(const char *name, int64_t time_us)
{
    return (report_field){ .name = name, .type = REPORT_TIME, .number = time_us };
}

/* What people are shown in another place. */
static report_field json_only(report_field field)
{
    field.flags = REPORT_JSON_ONLY;
    return field;
}

enum { EVIDENCE_MAX = 32 };

/* Everything but the lists. The number of fields. */
static size_t evidence_tell(const why_facts *f, report_field out[EVIDENCE_MAX])
{
    const store_target *t = f->target;
    const weir_event *e = f->event;
    const bool lane_paused = f->lane != NULL && f->lane->paused;
    const report_field fields[] = {
        text_field("state", weir__str(weir__cli_state_text(weir__cli_target_state(t)))),
        text_field("lane", t->lane),
        number_field("priority", t->priority),
        number_field("watermark", t->watermark),
        number_field("mark", t->mark),
        number_field("waiting", f->waiting),
        { .name = "waiting_more", .type = REPORT_BOOL, .number = f->waiting_more },
        text_field("leased_by", t->holder),
        time_field("leased_until", t->leased_until_us),
        number_field("fence", t->fence),
        number_field("lost", t->lost),
        time_field("blocked_since", t->blocked ? t->blocked_us : 0),
        time_field("deferred_until", t->due_us),
        json_only(text_field("error", t->error)),
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
        json_only(text_field("event_stream", e == NULL ? weir__str(NULL) : e->stream)),
        json_only(text_field("event_name", e == NULL ? weir__str(NULL) : e->name)),
        { .name = "event_data",
          .type = e == NULL ? REPORT_NULL : REPORT_RAW,
          .flags = REPORT_JSON_ONLY,
          .text = e == NULL ? weir__str(NULL) : e->data },
        number_field("head", f->positions.head),
        number_field("safe", f->positions.safe),
    };
    static_assert(sizeof fields / sizeof fields[0] <= EVIDENCE_MAX, "it fits");

    memcpy(out, fields, sizeof fields);
    return sizeof fields / sizeof fields[0];
}

static void json_next(report_json *j, const char *name, const why *w)
{
    weir__report_json_open(j, name, '[');
    for (size_t i = 0; i < w->next_count; i++) {
        const weir_buffer *command = &w->next[i].command;
        if (w->next[i].what != NULL) {
            weir__report_json_str(j, NULL, (weir_str){ command->ptr, command->len });
        }
    }
    weir__report_json_close(j, ']');
}

bool weir__cli_why_json_next(weir_buffer *out, const why *w)
{
    report_json j = { .buffer = out };

    json_next(&j, NULL, w);
    return !j.failed;
}

static bool print_json(cli *c, const why *w)
{
    report_field fields[EVIDENCE_MAX];
    const size_t count = evidence_tell(w->f, fields);
    weir_buffer buffer = { 0 };
    report_json j = { .buffer = &buffer };

    weir__report_json_open(&j, NULL, '{');
    weir__report_json_str(&j, "target", w->f->target->name);
    weir__report_json_str(&j, "reason", weir__str(w->reason));
    weir__report_json_str(&j, "answer", (weir_str){ w->answer.ptr, w->answer.len });
    weir__report_json_open(&j, "evidence", '{');
    for (size_t i = 0; i < count; i++) {
        weir__report_json_field(&j, &fields[i]);
    }
    json_holders(&j, w->f);
    json_reactions(&j, w->f);
    json_workers(&j, w->f);
    weir__report_json_close(&j, '}');
    json_next(&j, "next", w);
    weir__report_json_close(&j, '}');
    const bool ok = !j.failed && weir__buffer_add(&buffer, "\n", 1);
    if (ok) {
        (void)weir__cli_put(&c->out, (weir_str){ buffer.ptr, buffer.len });
    }
    weir__buffer_free(&buffer);
    return ok;
}

/* Not for the table: it is not there, or shown elsewhere. */
static bool is_missing(const report_field *field)
{
    return field->flags == REPORT_JSON_ONLY || field->type == REPORT_NULL ||
           (field->type == REPORT_STR && field->text.ptr == NULL) ||
           (field->type == REPORT_TIME && field->number == 0);
}

/* ---- for people ----------------------------------------------------------------------------- */

/* Lines, indented, under a head. */
static bool add_block(weir_buffer *out, const char *head, weir_str text)
{
    bool ok = weir__buffer_add_text(out, head);

    for (size_t at = 0; ok && at < text.len;) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        const size_t len = end == NULL ? text.len - at : (size_t)(end - text.ptr) - at;
        const weir_str line = { .ptr = text.ptr + at, .len = len };
        ok = weir__buffer_add_text(out, len > 0 ? "    " : "") && weir__report_shown(out, line) &&
             weir__buffer_add(out, "\n", 1);
        at += len + 1;
    }
    return ok;
}

static bool add_event(weir_buffer *out, const weir_event *event)
{
    char head[64];
    const weir_str members[] = { event->stream, event->name, event->data };
    static const char *const names[] = { "    stream  ", "    name    ", "    data    " };
    bool ok;

    (void)snprintf(head, sizeof head, "\nEvent %" PRId64 ":\n", event->id);
    ok = weir__buffer_add_text(out, head);
    for (size_t i = 0; ok && i < sizeof members / sizeof members[0]; i++) {
        const bool cut = members[i].len > DATA_BYTES_MAX;
        const weir_str shown = {
            .ptr = members[i].ptr,
            .len = cut ? weir__utf8_valid_prefix(members[i].ptr, DATA_BYTES_MAX) : members[i].len
        };
        ok = weir__buffer_add_text(out, names[i]) && weir__report_shown(out, shown) &&
             weir__buffer_add_text(out, cut ? "...\n" : "\n");
    }
    return ok;
}

/* Whether a worker is running that could take it. */
static bool add_workers(weir_buffer *out, const why_facts *f)
{
    const size_t count = weir__cli_workers_count(&f->workers, &f->target->lane, NULL);
    char text[128];

    if (count == 0) {
        const bool others = weir__cli_workers_count(&f->workers, NULL, NULL) > 0;
        return weir__buffer_add_text(out, others ? "\nWorkers: none is running for lane "
                                                 : "\nWorkers: none is running") &&
               weir__report_shown(out, others ? f->target->lane : (weir_str){ 0 }) &&
               weir__buffer_add(out, "\n", 1);
    }
    (void)snprintf(text, sizeof text, "\nWorkers: %zu %s running for lane ", count,
                   count == 1 ? "is" : "are");
    return weir__buffer_add_text(out, text) && weir__report_shown(out, f->target->lane) &&
           weir__buffer_add(out, "\n", 1);
}

bool weir__cli_why_add_next(weir_buffer *out, const report_screen *screen, const why *w)
{
    size_t widest = 0, comment = 0;
    bool ok = true;

    for (size_t i = 0; i < w->next_count; i++) {
        if (w->next[i].what == NULL) {
            continue;
        }
        const size_t width = weir__report_width(w->next[i].command.ptr, w->next[i].command.len);
        widest = width > widest ? width : widest;
        comment = strlen(w->next[i].what) > comment ? strlen(w->next[i].what) : comment;
    }
    /* What a command does stands behind it, or above it where that is too wide. */
    const bool above = screen->columns > 0 && widest + comment + 8 > screen->columns;
    for (size_t i = 0; ok && i < w->next_count; i++) {
        const weir_buffer *command = &w->next[i].command;
        const size_t width = weir__report_width(command->ptr, command->len);
        if (w->next[i].what == NULL) {
            ok = weir__report_wrap(out, screen, (weir_str){ command->ptr, command->len }, "    ",
                                   "    ");
            continue;
        }
        ok = !above ||
             (weir__buffer_add_text(out, "    # ") && weir__buffer_add_text(out, w->next[i].what) &&
              weir__buffer_add(out, "\n", 1));
        ok = ok && weir__buffer_add_text(out, "    ") &&
             weir__report_shown(out, (weir_str){ command->ptr, command->len });
        for (size_t k = width; ok && !above && k < widest; k++) {
            ok = weir__buffer_add(out, " ", 1);
        }
        ok = ok &&
             (above || (weir__buffer_add_text(out, "  # ") &&
                        weir__buffer_add_text(out, w->next[i].what))) &&
             weir__buffer_add(out, "\n", 1);
    }
    return ok;
}

/* What only somebody who knows Weir from inside wants to see. */
static bool add_internals(weir_buffer *out, const report_screen *screen, const why_facts *f)
{
    report_field fields[EVIDENCE_MAX];
    const size_t count = evidence_tell(f, fields);
    report_table facts = { .screen = screen }, reactions = { .screen = screen };
    bool ok = weir__buffer_add(out, "\n", 1);

    for (size_t i = 0; ok && i < count; i++) {
        report_field row[2] = { { .name = "evidence", .type = REPORT_STR }, fields[i] };
        row[0].text =
            weir__str(strcmp(fields[i].name, "watermark") == 0 ? "position" : fields[i].name);
        row[1].name = "value";
        ok = is_missing(&fields[i]) || weir__report_table_row(&facts, row, 2);
    }
    ok = ok && weir__report_table_flush(&facts, out) && weir__buffer_add_text(out, "\n");
    for (size_t i = 0; ok && i < f->target->subscriptions_count; i++) {
        const store_subscription *s = &f->target->subscriptions[i];
        const store_reaction *r = weir__cli_why_reaction(f, s->reaction);
        const report_field row[] = {
            text_field("reaction", s->reaction_name),
            number_field("at", s->at),
            number_field("mark", s->mark),
            number_field("routed", r == NULL ? 0 : r->routed),
            number_field("retries", s->retries),
            { .name = "retired", .type = REPORT_BOOL, .number = s->retired },
            number_field(
                "workers",
                r == NULL ? 0 : (int64_t)weir__cli_workers_count(&f->workers, &f->target->lane, r)),
        };
        ok = weir__report_table_row(&reactions, row, sizeof row / sizeof row[0]);
    }
    ok = ok && weir__report_table_flush(&reactions, out);
    weir__report_table_free(&facts);
    weir__report_table_free(&reactions);
    return ok;
}

/* The sentence; of a failure all that it said, and the event; who works; what to do. */
static bool print_text(cli *c, const why *w, bool verbose)
{
    const why_facts *f = w->f;
    const report_screen *screen = &c->out.screen;
    weir_buffer text = { 0 };
    bool ok = weir__report_wrap(&text, screen, (weir_str){ w->answer.ptr, w->answer.len }, "", "");

    if (f->target->error.len > 0) {
        ok = ok && add_block(&text, "\nError:\n", f->target->error);
    }
    if (f->event != NULL) {
        ok = ok && add_event(&text, f->event);
    }
    ok = ok && add_workers(&text, f);
    if (verbose) {
        ok = ok && add_internals(&text, screen, f);
    }
    ok =
        ok &&
        weir__buffer_add_text(&text, w->next_count > 0 ? "\nNext:\n" : "\nNext: nothing to do\n") &&
        weir__cli_why_add_next(&text, screen, w);
    if (ok) {
        (void)weir__cli_put(&c->out, (weir_str){ text.ptr, text.len });
    }
    weir__buffer_free(&text);
    return ok;
}

weir_status weir__cli_why_target(cli *c, weir_store *store, weir_str target, bool verbose,
                                 weir_error *err)
{
    static const report_screen exact = { 0 };
    why_facts facts = { 0 };
    why w = { .f = &facts, .screen = c->out.json ? &exact : &c->out.screen, .store = c->store };
    weir_status status = weir__cli_why_look(store, &facts, err);

    if (status == WEIR_OK) {
        status = weir__cli_why_collect(store, target, &facts, err);
    }
    if (status == WEIR_OK) {
        weir__cli_why_judge(&w);
        const bool ok = !w.failed && (c->out.json ? print_json(c, &w) : print_text(c, &w, verbose));
        status = ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__cli_why_free(&w);
    weir__cli_why_facts_free(&facts);
    return status;
}

static int why_run(cli *c)
{
    weir *handle = NULL;
    weir_error err;
    const bool all = c->words_count == 0;
    weir_status status =
        all ? WEIR_OK : weir__name_check("target name", weir__str(c->words[0]), true, &err);

    if (all && weir__cli_has(c, "verbose")) {
        return weir__cli_usage(c, "--verbose explains one target: name it");
    }
    if (status == WEIR_OK) {
        status = weir__cli_open(c, CLI_OPEN_READ, &handle, &err);
    }
    if (status == WEIR_OK) {
        status = all ? weir__cli_why_all(c, weir__store(handle), &err)
                     : weir__cli_why_target(c, weir__store(handle), weir__str(c->words[0]),
                                            weir__cli_has(c, "verbose"), &err);
    }
    weir_close(handle);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

static const cli_option options[] = {
    { "verbose", NULL, CLI_FLAG, "also show fences, marks and the other facts behind the answer" },
};

const cli_command weir__cli_why_command = {
    .name = "why",
    .block = CLI_BLOCK_WORKERS,
    .usage = "[options]\n"
             "TARGET [options]",
    .summary = "what is stuck, or why a target is, or is not, running",
    .about =
        "Without a target, explains everything that is stuck, worst first. The exit status is 0\n"
        "even then; use weir doctor for a check that fails. With a target, answers in one\n"
        "sentence, shows the error and the event that failed, and suggests the next commands.\n"
        "--verbose adds the facts behind the answer; JSON always has them. In JSON, reason is\n"
        "the answer in one word: leased, blocked, paused, lane-paused, beyond-log, retrying,\n"
        "deferred, no-worker, unknown-reaction, ready, routed-beyond-log, unrouted, held-back,\n"
        "retired or no-work.",
    .example = "weir why\n"
               "weir why mail-1\n"
               "weir why mail-1 --verbose\n"
               "weir why mail-1 --json",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 1,
    .run = why_run,
};
