/* append.c - weir append: one event for one stream, or a batch (batch.c). */
#include "cli/cli.h"

static const cli_option options[] = {
    { "expect", "WHAT", CLI_EXPECT, "any, none, exists or a version (default: any)" },
    { "meta", "JSON", CLI_TEXT, "an object kept beside the data; @FILE or - as for DATA" },
    { "correlation", "TEXT", CLI_WORD, "meta.correlation (default: a fresh one)" },
    { "key", "KEY", CLI_WORD,
      "idempotency key: a repeat gives the first result and writes nothing" },
    { "reserve", "KEY", CLI_WORD, "reserve a unique key for the stream; may be repeated" },
    { "release-key", "KEY", CLI_WORD, "give up a reserved key; may be repeated" },
    { "batch", "FILE", CLI_TEXT, "append every line of FILE, - for standard input" },
    { "keep-going", NULL, CLI_FLAG, "with --batch: go on after a refused line" },
    { "atomic", NULL, CLI_FLAG, "with --batch: append all lines or none" },
};

/* --reserve and --release-key, in the order given. *changes and *pointers: owned. */
static weir_status key_changes(const cli *c, weir_str stream, weir_key_change **changes,
                               const weir_key_change ***pointers, size_t *count, weir_error *err)
{
    *changes = weir__calloc(c->given_count + 1, sizeof **changes);
    *pointers = weir__calloc(c->given_count + 1, sizeof **pointers);
    if (*changes == NULL || *pointers == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < c->given_count; i++) {
        const bool reserve = strcmp(c->given[i].option->name, "reserve") == 0;
        if (!reserve && strcmp(c->given[i].option->name, "release-key") != 0) {
            continue;
        }
        (*changes)[*count] =
            (weir_key_change){ WEIR_KEY_CHANGE_INIT,
                               .change = reserve ? WEIR_KEY_RESERVE : WEIR_KEY_RELEASE,
                               .key = weir__str(c->given[i].text), .stream = stream };
        (*pointers)[*count] = &(*changes)[*count];
        (*count)++;
    }
    return WEIR_OK;
}

static void print_result(cli *c, const weir_append_result *result)
{
    for (size_t i = 0; i < result->streams_count; i++) {
        const weir_appended *a = result->streams[i];
        const report_field fields[] = {
            { .name = "stream", .type = REPORT_STR, .text = a->stream },
            { .name = "first", .type = REPORT_I64, .number = a->first },
            { .name = "last", .type = REPORT_I64, .number = a->last },
            { .name = "id", .type = REPORT_I64, .number = a->id },
            { .name = "replayed", .type = REPORT_BOOL, .number = result->replayed },
        };
        (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    }
}

static int append_one(cli *c)
{
    weir_error err;
    weir_buffer data = { 0 }, meta = { 0 };
    weir_key_change *changes = NULL;
    const weir_key_change **change_pointers = NULL;
    const weir_append_result *result = NULL;
    const cli_given *given = NULL;
    weir_status status = WEIR_OK;
    weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->words[0]),
                             .name = weir__str(c->words[1]) };
    weir_expectation expectation = { WEIR_EXPECTATION_INIT, .stream = event.stream };
    const weir_new_event *const events[] = { &event };
    const weir_expectation *const expectations[] = { &expectation };
    weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .expectations = expectations, .expectations_count = 1 };

    if (c->words_count > 2) {
        status = weir__cli_data("data", c->words[2], &data, &event.data, &err);
    }
    if (status == WEIR_OK && (given = weir__cli_get(c, "meta")) != NULL) {
        status = weir__cli_data("meta", given->text, &meta, &event.meta, &err);
    }
    if (status == WEIR_OK && (given = weir__cli_get(c, "expect")) != NULL) {
        expectation.expect = given->expect;
        expectation.version = given->number;
    }
    if (status == WEIR_OK) {
        request.key = weir__cli_text(c, "key");
        request.correlation = weir__cli_text(c, "correlation");
        status = key_changes(c, event.stream, &changes, &change_pointers,
                             &request.key_changes_count, &err);
        request.key_changes = change_pointers;
    }
    if (status == WEIR_OK) {
        status = weir__cli_append(c, &request, &result, &err);
    }
    if (status == WEIR_OK) {
        print_result(c, result);
    }
    weir_append_result_free(result);
    weir__free(change_pointers);
    weir__free(changes);
    weir__buffer_free(&data);
    weir__buffer_free(&meta);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

static bool is_stdin(const char *argument)
{
    return strcmp(argument, "-") == 0;
}

static int append_run(cli *c)
{
    const cli_given *batch = weir__cli_get(c, "batch");
    static const char *const single[] = { "expect", "meta", "reserve", "release-key" };

    if (batch == NULL) {
        if (weir__cli_has(c, "keep-going") || weir__cli_has(c, "atomic")) {
            return weir__cli_usage(c, "--keep-going and --atomic need --batch");
        }
        const cli_given *meta = weir__cli_get(c, "meta");
        if (c->words_count > 2 && is_stdin(c->words[2]) && meta != NULL && is_stdin(meta->text)) {
            return weir__cli_usage(c, "only one of DATA and --meta can be -");
        }
        return c->words_count < 2 ? weir__cli_usage(c, "needs STREAM and NAME") : append_one(c);
    }
    if (c->words_count > 0) {
        return weir__cli_usage(c, "unexpected argument \"%s\" beside --batch", c->words[0]);
    }
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (weir__cli_has(c, single[i])) {
            return weir__cli_usage(c, "--%s cannot be combined with --batch: lines have their own",
                                   single[i]);
        }
    }
    if (weir__cli_has(c, "atomic") && weir__cli_has(c, "keep-going")) {
        return weir__cli_usage(c, "--atomic and --keep-going exclude each other");
    }
    if (weir__cli_has(c, "key") && !weir__cli_has(c, "atomic")) {
        return weir__cli_usage(c, "--key with --batch needs --atomic: lines have their own");
    }
    return weir__cli_batch(c, batch->text);
}

const cli_command weir__cli_append_command = {
    .name = "append",
    .block = CLI_BLOCK_EVENTS,
    .usage = "STREAM NAME [DATA] [options]\n--batch FILE|- [--keep-going|--atomic] [options]",
    .summary = "add an event to a stream, or every line of a file",
    .about =
        "Appends an event NAME with DATA to STREAM, and prints its version and position. DATA is\n"
        "JSON (default: {}); @FILE reads a file, - reads standard input. With --expect, the\n"
        "append is refused (exit status 4) if the stream is not at the version that you expect.\n"
        "The first append creates the store.\n"
        "\n"
        "A batch has one JSON object per line: stream, name, and optionally data, meta, expect,\n"
        "key, reserve. Each line is an append of its own. A batch stops at the first line that is\n"
        "refused; lines that were committed stay, and stderr says how many.",
    .example = "weir append order-1 OrderPlaced '{\"total\":12}' --expect none\n"
               "weir append order-1 OrderPaid @payment.json --expect 0 --key pay-771\n"
               "weir append --batch events.jsonl",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 3,
    .run = append_run,
};
