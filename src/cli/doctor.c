/* doctor.c - weir doctor: is this store sound, and what should be done about it?
 *
 * A finding is something to act on and makes the exit status 1. A note is something to know that is
 * as it was asked for, or that Weir takes care of; it does not.
 */
#include "cli/operate.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct doctor {
    cli *c;
    int64_t findings, notes;
} doctor;

static void doctor_say(doctor *d, const char *level, const char *rule, const char *text,
                       const char *advice)
{
    const report_field fields[] = {
        { .name = "level", .type = REPORT_STR, .text = weir__str(level) },
        { .name = "rule", .type = REPORT_STR, .text = weir__str(rule) },
        { .name = "message", .type = REPORT_STR, .text = weir__str(text) },
        { .name = "advice", .type = REPORT_STR, .text = weir__str(advice == NULL ? "" : advice) },
    };

    if (d->c->out.json) {
        (void)weir__cli_row(&d->c->out, fields, sizeof fields / sizeof fields[0]);
        return;
    }
    char first[64];
    (void)snprintf(first, sizeof first, "%s %s: ", level, rule);
    (void)weir__cli_wrap(&d->c->out, first, "    ", weir__str(text));
    if (advice != NULL && advice[0] != '\0') {
        (void)weir__cli_wrap(&d->c->out, "    ", "    ", weir__str(advice));
    }
}

static void finding_show(void *ctx, const char *rule, const char *text, const char *advice)
{
    doctor *d = ctx;

    d->findings++;
    doctor_say(d, "finding", rule, text, advice);
}

static void note_show(doctor *d, const char *rule, const char *text, const char *advice)
{
    d->notes++;
    doctor_say(d, "note", rule, text, advice);
}

/* A store_survey_fn. */
static void surroundings_show(void *ctx, bool act, const char *rule, const char *text,
                              const char *advice)
{
    if (act) {
        finding_show(ctx, rule, text, advice);
    } else {
        note_show(ctx, rule, text, advice);
    }
}

/* How a file is synced; a server is looked at by its store's survey. */
static void look_at_settings(doctor *d, const store_stats *stats)
{
    if (stats->database[0] != '\0') {
        return;
    }
    if (strcmp(stats->durability, "normal") == 0) {
        note_show(
            d, "durability",
            "the store is opened with sync=normal: the last commits may be lost "
            "if the power fails",
            "Leave sync out of the store's URL to have every commit on disk when it returns.");
    } else if (strcmp(stats->durability, "none") == 0) {
        note_show(d, "durability", "this store is in memory and ends with the program",
                  "Use sqlite:PATH to keep events.");
    }
}

static void print_end(doctor *d, const store_stats *stats)
{
    const report_field fields[] = {
        { .name = "findings", .type = REPORT_I64, .number = d->findings },
        { .name = "notes", .type = REPORT_I64, .number = d->notes },
        { .name = "schema", .type = REPORT_I64, .number = stats->schema },
        { .name = "library", .type = REPORT_STR, .text = weir__str(stats->library) },
        { .name = "durability", .type = REPORT_STR, .text = weir__str(stats->durability) },
    };

    if (d->c->out.json) {
        (void)weir__cli_row(&d->c->out, fields, sizeof fields / sizeof fields[0]);
        return;
    }
    (void)weir__cli_print(
        &d->c->out,
        "%" PRId64 " finding%s, %" PRId64 " note%s; schema %" PRId64 ", %s, durability %s\n",
        d->findings, d->findings == 1 ? "" : "s", d->notes, d->notes == 1 ? "" : "s", stats->schema,
        stats->library, stats->durability);
}

/* The store, then what surrounds it (a server with wrong settings has many stores), then the work
 * that nobody will do. */
static weir_status store_examine(doctor *d, weir_store *store, store_stats *stats, weir_error *err)
{
    cli_ticker ticker;

    weir__cli_ticker_start(&ticker, d->c, "reading the whole store");
    weir_status status = store->about->check(store, finding_show, d, err);
    weir__cli_ticker_stop(&ticker);
    if (status == WEIR_OK && store->about->survey != NULL) {
        weir__cli_ticker_start(&ticker, d->c, "looking at what is around it");
        status = store->about->survey(store, surroundings_show, d, err);
        weir__cli_ticker_stop(&ticker);
    }
    if (status == WEIR_OK) {
        weir__cli_ticker_start(&ticker, d->c, "looking at the targets");
        status = weir__cli_doctor_work(store, surroundings_show, d, err);
        weir__cli_ticker_stop(&ticker);
    }
    return status == WEIR_OK ? store->about->stats(store, stats, err) : status;
}

static int doctor_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    store_stats stats = { 0 };
    doctor d = { .c = c };
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);

    if (status == WEIR_OK) {
        status = store_examine(&d, weir__store(w), &stats, &err);
    }
    if (status == WEIR_OK) {
        look_at_settings(&d, &stats);
        print_end(&d, &stats);
    }
    weir_close(w);
    if (status != WEIR_OK) {
        return weir__cli_fail(c, &err);
    }
    return d.findings > 0 ? CLI_ERROR : CLI_DONE;
}

const cli_command weir__cli_doctor_command = {
    .name = "doctor",
    .block = CLI_BLOCK_OPERATE,
    .usage = "[options]",
    .summary = "check the store, and say what to do about each finding",
    .about =
        "Checks that the store is consistent, its schema, the database library, and how durable\n"
        "commits are; on PostgreSQL also the server: its settings, long transactions, poolers.\n"
        "Lists blocked targets, parked events, and work that nobody will do: work of retired\n"
        "reactions, of reactions that no running worker handles, and in lanes that no worker\n"
        "serves. Findings need action; if there are any, the exit status is 1. Notes are for\n"
        "information.",
    .example = "weir doctor\n"
               "weir doctor --store sqlite:orders.db --json\n"
               "weir doctor --store postgres:///orders",
    .words_min = 0,
    .words_max = 0,
    .run = doctor_run,
};
