/* parked.c - weir parked: events that were set aside, one by one or all that fit.
 *
 * A parked event belongs to a reaction and, unless it was parked while it was routed, to a target.
 * It is known by its number. Verbs on a filter go through what is parked a page at a time, and each
 * event is a transaction of its own: an interrupted run has done part of it, and can be repeated.
 */
#include "cli/operate.h"
#include "store/request.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { PARKED_PAGE = 500 };

static const cli_option options[] = {
    { "target", "NAME", CLI_WORD, "only events of this target" },
    { "reaction", "NAME", CLI_WORD, "only events of this reaction" },
    { "all", NULL, CLI_FLAG, "retry, drop: every parked event" },
    { "limit", "N", CLI_NUMBER, "ls: at most N events" },
    { "dry-run", NULL, CLI_FLAG, "retry, drop: print how many would change; change nothing" },
    { "yes", NULL, CLI_FLAG, "drop: do not ask" },
};

typedef enum parked_verb {
    PARKED_LS,
    PARKED_SHOW,
    PARKED_RETRY,
    PARKED_DROP,
    PARKED_VERBS_COUNT
} parked_verb;
static const char *const verbs[PARKED_VERBS_COUNT] = { "ls", "show", "retry", "drop" };

typedef struct parked {
    cli *c;
    weir_store *store;
    parked_verb verb;
    int64_t *ids; /* owned: those that are named */
    size_t ids_count;
    bool dry_run;
    int64_t count; /* that changed, would change, or were shown */
    int64_t found; /* to be changed, or left as they are already */
    bool enough;   /* the rest of a page is not wanted */
} parked;

/* ---- going through what is parked ----------------------------------------------------------- */

/* One of them. d->enough: no more. */
typedef weir_status (*parked_fn)(parked *d, const store_parked *p, weir_error *err);

/* All that fit the options. */
static weir_status each_that_fits(parked *d, parked_fn fn, weir_error *err)
{
    store_parked_query q = { .limit = PARKED_PAGE,
                             .target = weir__cli_text(d->c, "target"),
                             .reaction = weir__cli_text(d->c, "reaction") };
    store_parked_chunk chunk = { .more = true };
    weir_status status = WEIR_OK;

    while (status == WEIR_OK && !d->enough && chunk.more) {
        status = d->store->work->parked(d->store, &q, &chunk, err);
        for (size_t i = 0; status == WEIR_OK && !d->enough && i < chunk.parked_count; i++) {
            q.after = chunk.parked[i].id;
            status = fn(d, &chunk.parked[i], err);
        }
    }
    weir__arena_free(&chunk.arena);
    return status;
}

/* Each that is named. WEIR_ENOTFOUND: one is not there; those before it have been given to fn. */
static weir_status each_named(parked *d, parked_fn fn, weir_error *err)
{
    store_parked_chunk chunk = { 0 };
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < d->ids_count; i++) {
        const store_parked_query q = { .after = d->ids[i] - 1, .limit = 1 };
        status = d->store->work->parked(d->store, &q, &chunk, err);
        if (status != WEIR_OK) {
            break;
        }
        if (chunk.parked_count == 0 || chunk.parked[0].id != d->ids[i]) {
            status = weir__fail(err, WEIR_ENOTFOUND, "no parked event %" PRId64, d->ids[i]);
        } else {
            status = fn(d, &chunk.parked[0], err);
        }
    }
    weir__arena_free(&chunk.arena);
    return status;
}

static weir_status parked_each(parked *d, parked_fn fn, weir_error *err)
{
    return d->ids_count > 0 ? each_named(d, fn, err) : each_that_fits(d, fn, err);
}

/* ---- ls, show ------------------------------------------------------------------------------- */

enum { PARKED_FIELDS_COUNT = 9 };

static void parked_fields(const store_parked *p, report_field fields[PARKED_FIELDS_COUNT])
{
    const report_field row[] = {
        { .name = "id", .type = REPORT_I64, .number = p->id },
        { .name = "reaction", .type = REPORT_STR, .text = p->reaction_name },
        { .name = "target", .type = REPORT_STR, .text = weir__cli_or_null(p->target) },
        { .name = "event", .type = REPORT_I64, .number = p->event, .rank = 1 },
        { .name = "attempts", .type = REPORT_COUNT, .number = p->attempts, .rank = 4 },
        { .name = "parked", .type = REPORT_TIME, .number = p->parked_us, .rank = 3 },
        { .name = "sent_back", .type = REPORT_BOOL, .number = p->sent_back, .rank = 5 },
        { .name = "error",
          .type = REPORT_STR,
          .text = weir__cli_or_null(p->error),
          .flags = REPORT_JSON_ONLY },
        { .name = "error",
          .type = REPORT_STR,
          .text = weir__cli_or_null(weir__report_gist(p->error)),
          .flags = REPORT_TEXT_ONLY,
          .rank = 2 },
    };

    static_assert(sizeof row / sizeof row[0] == PARKED_FIELDS_COUNT, "all of them");
    memcpy(fields, row, sizeof row);
}

static weir_status print_parked(parked *d, const store_parked *p, weir_error *err)
{
    const cli_given *limit = weir__cli_get(d->c, "limit");
    report_field fields[PARKED_FIELDS_COUNT];

    (void)err;
    d->enough = limit != NULL && d->count >= limit->number;
    if (!d->enough) {
        d->count++;
        parked_fields(p, fields);
        d->enough = !weir__cli_row(&d->c->out, fields, PARKED_FIELDS_COUNT);
    }
    return WEIR_OK;
}

/* With the event itself. */
static weir_status show_parked(parked *d, const store_parked *p, weir_error *err)
{
    store_chunk chunk = { 0 };
    const store_log_query q = { .after = p->event - 1, .to = p->event, .limit = 1 };
    report_field fields[PARKED_FIELDS_COUNT + 6];

    weir_status status = d->store->log->read_log(d->store, &q, &chunk, err);
    if (status == WEIR_OK && chunk.events_count != 1) {
        status = weir__fail(err, WEIR_ECORRUPT, "event %" PRId64 " is not in the log", p->event);
    }
    if (status == WEIR_OK) {
        const weir_event *e = &chunk.events[0];
        const report_field event[] = {
            { .name = "stream", .type = REPORT_STR, .text = e->stream },
            { .name = "version", .type = REPORT_I64, .number = e->version },
            { .name = "name", .type = REPORT_STR, .text = e->name },
            { .name = "created", .type = REPORT_TIME, .number = e->created_us },
            { .name = "data", .type = REPORT_RAW, .text = e->data },
            { .name = "meta", .type = REPORT_RAW, .text = e->meta },
        };
        parked_fields(p, fields);
        memcpy(fields + PARKED_FIELDS_COUNT, event, sizeof event);
        d->count++;
        (void)weir__cli_row(&d->c->out, fields, sizeof fields / sizeof fields[0]);
    }
    weir__chunk_free(&chunk);
    return status;
}

/* ---- retry, drop ---------------------------------------------------------------------------- */

static weir_status count_parked(parked *d, const store_parked *p, weir_error *err)
{
    (void)err;
    d->found++;
    /* One that was sent back already, or has nowhere to go, is not sent back. */
    d->count += d->verb == PARKED_DROP || (!p->sent_back && p->target.len > 0) ? 1 : 0;
    return WEIR_OK;
}

static weir_status change_parked(parked *d, const store_parked *p, weir_error *err)
{
    const bool named = d->ids_count > 0;
    weir_status status;

    if (d->verb == PARKED_DROP) {
        status = d->store->work->parked_change(d->store, p->id, STORE_PARKED_DROP, err);
    } else if (p->target.len == 0 && !named) {
        /* Parked while it was routed: it is of no target, so a filter leaves it out. */
        weir__cli_note(d->c, "%" PRId64 " stays parked: it has no target", p->id);
        return WEIR_OK;
    } else {
        status = d->store->work->parked_change(d->store, p->id, STORE_PARKED_RETRY, err);
    }
    if (status == WEIR_ENOTFOUND && !named) {
        return WEIR_OK; /* somebody else was quicker */
    }
    d->count += status == WEIR_OK && (d->verb == PARKED_DROP || !p->sent_back) ? 1 : 0;
    return status;
}

static weir_status parked_change(parked *d, bool *go_on, weir_error *err)
{
    char question[128];
    /* Before the first is touched: all that are named are there, or something fits. */
    weir_status status = parked_each(d, count_parked, err);

    *go_on = true;
    if (status == WEIR_OK && d->found == 0) {
        status = weir__fail(err, WEIR_ENOTFOUND, "no parked event matched");
    }
    if (status != WEIR_OK || d->dry_run) {
        return status;
    }
    if (d->verb == PARKED_DROP) {
        (void)snprintf(question, sizeof question, "drop %" PRId64 " parked event%s for ever",
                       d->count, d->count == 1 ? "" : "s");
        *go_on = weir__cli_ask(d->c, question);
    }
    d->count = 0;
    return *go_on ? parked_each(d, change_parked, err) : WEIR_OK;
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* Numbers of parked events, after the verb. CLI_DONE or an exit status. */
static int take_ids(parked *d)
{
    const cli *c = d->c;
    weir_error err;

    d->ids = weir__calloc(c->words_count + 1, sizeof *d->ids);
    if (d->ids == NULL) {
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(c, &err);
    }
    for (size_t i = 1; i < c->words_count; i++) {
        int64_t id = 0;
        if (!weir__str_to_i64(weir__str(c->words[i]), &id) || id < 1) {
            return weir__cli_usage(c, "\"%s\" is not the number of a parked event", c->words[i]);
        }
        bool twice = false;
        for (size_t k = 0; k < d->ids_count; k++) {
            twice = twice || d->ids[k] == id;
        }
        if (!twice) {
            d->ids[d->ids_count++] = id;
        }
    }
    return CLI_DONE;
}

/* What each verb takes. CLI_DONE or CLI_USAGE. */
static int check_usage(const parked *d)
{
    const cli *c = d->c;
    const bool filtered = weir__cli_has(c, "target") || weir__cli_has(c, "reaction");
    const bool all = weir__cli_has(c, "all"), named = d->ids_count > 0;
    const bool changes = d->verb == PARKED_RETRY || d->verb == PARKED_DROP;

    if (!changes && (all || weir__cli_has(c, "dry-run") || weir__cli_has(c, "yes"))) {
        return weir__cli_usage(c, "--all, --dry-run and --yes are for retry and drop");
    }
    if (d->verb != PARKED_LS && weir__cli_has(c, "limit")) {
        return weir__cli_usage(c, "--limit is for ls");
    }
    if (d->verb == PARKED_LS) {
        return named ? weir__cli_usage(c, "ls takes no numbers; show does") : CLI_DONE;
    }
    if (d->verb == PARKED_SHOW) {
        return named && !filtered ? CLI_DONE
                                  : weir__cli_usage(c, "show takes numbers of parked events");
    }
    if (!named && !filtered && !all) {
        return weir__cli_usage(c, "which parked events? Give their numbers, --target, --reaction "
                                  "or --all");
    }
    if (named + filtered + all > 1) {
        return weir__cli_usage(c, "numbers, a filter and --all exclude each other");
    }
    return d->verb == PARKED_DROP ? weir__cli_may_ask(c) : CLI_DONE;
}

static weir_status parked_act(parked *d, bool *go_on, weir_error *err)
{
    weir_status status = WEIR_OK;

    switch (d->verb) {
    case PARKED_LS:
        status = each_that_fits(d, print_parked, err);
        if (status == WEIR_OK && d->count == 0 && !d->c->out.closed &&
            (weir__cli_has(d->c, "target") || weir__cli_has(d->c, "reaction"))) {
            status = weir__fail(err, WEIR_ENOTFOUND, "no parked event matched");
        }
        break;
    case PARKED_SHOW:
        status = each_named(d, show_parked, err);
        break;
    case PARKED_RETRY:
    case PARKED_DROP:
    case PARKED_VERBS_COUNT:
        status = parked_change(d, go_on, err);
        break;
    }
    return status;
}

static int run_with(parked *d)
{
    weir *w = NULL;
    weir_error err;
    bool go_on = true;
    const bool changes = d->verb == PARKED_RETRY || d->verb == PARKED_DROP;

    d->dry_run = weir__cli_has(d->c, "dry-run");
    weir_status status =
        weir__cli_open(d->c, changes && !d->dry_run ? CLI_OPEN_CHANGE : CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        d->store = weir__store(w);
        status = parked_act(d, &go_on, &err);
    }
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(d->c, &err);
    }
    if (!go_on) {
        return weir__cli_declined(d->c);
    }
    if (changes) {
        const bool retry = d->verb == PARKED_RETRY;
        weir__cli_changed(d->c, d->count,
                          &(cli_deed){ .would = retry ? "send back" : "drop",
                                       .did = retry ? "sent back" : "dropped",
                                       .object = "parked event" });
    }
    return CLI_DONE;
}

static int parked_run(cli *c)
{
    parked d = { .c = c };

    /* Without a verb it is the first, which lists. */
    while (c->words_count > 0 && d.verb < PARKED_VERBS_COUNT &&
           strcmp(c->words[0], verbs[d.verb]) != 0) {
        d.verb++;
    }
    if (d.verb == PARKED_VERBS_COUNT) {
        return weir__cli_usage(c, "unknown verb \"%s\": it is ls, show, retry or drop",
                               c->words[0]);
    }
    int result = take_ids(&d);
    if (result == CLI_DONE) {
        result = check_usage(&d);
    }
    if (result == CLI_DONE) {
        result = run_with(&d);
    }
    weir__free(d.ids);
    return result;
}

const cli_command weir__cli_parked_command = {
    .name = "parked",
    .block = CLI_BLOCK_WORKERS,
    .usage =
        "[ls] [options]\nshow ID...\nretry ID...|filter [options]\ndrop ID...|filter [options]",
    .summary = "parked events: list, show, send back, drop",
    .about =
        "A parked event was set aside by its reaction, by routing or by weir skip. ls (the\n"
        "default) lists parked events. show prints them with their events. retry sends them back\n"
        "to their reaction, which handles them before its next batch. drop forgets them; the\n"
        "event stays in its stream. drop asks on a terminal and needs --yes elsewhere.",
    .empty = "No event is parked.",
    .example = "weir parked\n"
               "weir parked show 1\n"
               "weir parked retry --target mail-1 --dry-run\n"
               "weir parked drop 1 --yes",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = SIZE_MAX,
    .run = parked_run,
};
