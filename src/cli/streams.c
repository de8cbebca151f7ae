/* streams.c - weir streams: which streams there are. */
#include "cli/cli.h"

static const cli_option options[] = {
    { "match", "PATTERN", CLI_WORD, "only names that fit: order-1, order-*, /^order-[0-9]+$/" },
    { "category", "NAME", CLI_WORD, "only this category: what is before the first -" },
    { "open", NULL, CLI_FLAG, "only streams that are not closed" },
    { "closed", NULL, CLI_FLAG, "only streams that are closed" },
    { "after", "NAME", CLI_TEXT, "only names that sort after this one" },
    { "limit", "N", CLI_NUMBER, "at most N streams" },
};

static int print_stream(void *ctx, const weir_stream *s)
{
    const report_field fields[] = {
        { .name = "stream", .type = REPORT_STR, .text = s->stream },
        { .name = "version", .type = REPORT_I64, .number = s->version },
        { .name = "count", .type = REPORT_COUNT, .number = s->count, .rank = 1 },
        { .name = "created", .type = REPORT_TIME, .number = s->created_us, .rank = 4 },
        { .name = "updated", .type = REPORT_TIME, .number = s->updated_us, .rank = 2 },
        { .name = "closed", .type = REPORT_BOOL, .number = s->closed, .rank = 3 },
    };

    return weir__cli_row(ctx, fields, sizeof fields / sizeof fields[0]) ? 0 : 1;
}

static int streams_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    const cli_given *limit = weir__cli_get(c, "limit");
    weir_streams_options o = { WEIR_STREAMS_OPTIONS_INIT, .stream = weir__cli_text(c, "match"),
                               .category = weir__cli_text(c, "category"),
                               .after = weir__cli_text(c, "after") };

    if (weir__cli_has(c, "open") && weir__cli_has(c, "closed")) {
        return weir__cli_usage(c, "--open and --closed exclude each other");
    }
    o.closed = weir__cli_has(c, "closed") ? 1 : weir__cli_has(c, "open") ? 2 : 0;
    if (limit != NULL) {
        o.limit = limit->number;
        o.fields = WEIR_HAS_LIMIT;
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        status = (weir_status)weir_streams(w, &o, print_stream, &c->out, &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_streams_command = {
    .name = "streams",
    .block = CLI_BLOCK_EVENTS,
    .usage = "[options]",
    .summary = "list streams",
    .about =
        "Lists streams by name, with the version of the last event, the number of events, when\n"
        "the stream began and last changed, and whether it is closed.",
    .empty = "No streams yet. weir append STREAM NAME DATA adds the first event.",
    .example = "weir streams\n"
               "weir streams --match 'order-*' --open --limit 20",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = streams_run,
};
