/* close.c - weir close: ends a stream. */
#include "cli/cli.h"

static const cli_option options[] = {
    { "expect", "WHAT", CLI_EXPECT, "only if the stream is at this version" },
    { "force", NULL, CLI_FLAG, "even if reactions have not handled all of it" },
    { "dry-run", NULL, CLI_FLAG, "say what would happen; change nothing" },
};

/* Closes, and says whether that changed anything. */
static weir_status close_stream(cli *c, weir *w, weir_str stream, weir_error *err)
{
    const cli_given *expect = weir__cli_get(c, "expect");
    const bool dry_run = weir__cli_has(c, "dry-run");
    const weir_stream *before = NULL, *after = NULL;
    const weir_close_options o = {
        WEIR_CLOSE_OPTIONS_INIT,
        .flags = (weir__cli_has(c, "force") ? (uint32_t)WEIR_CLOSE_FORCE : 0) |
                 (dry_run ? (uint32_t)WEIR_CLOSE_DRY_RUN : 0),
        .expect = expect == NULL ? WEIR_EXPECT_ANY : expect->expect,
        .version = expect == NULL ? 0 : expect->number,
    };
    weir_status status = (weir_status)weir_stream_info(w, stream, &before, err);

    if (status == WEIR_OK) {
        status = (weir_status)weir_stream_close(w, stream, &o, err);
    }
    if (status == WEIR_OK) {
        status = (weir_status)weir_stream_info(w, stream, &after, err);
    }
    if (status == WEIR_OK) {
        const report_field fields[] = {
            { .name = "stream", .type = REPORT_STR, .text = stream },
            { .name = "version", .type = REPORT_I64, .number = after->version },
            { .name = "count", .type = REPORT_I64, .number = after->count },
            { .name = "closed", .type = REPORT_BOOL, .number = after->closed },
            { .name = dry_run ? "would_change" : "changed",
              .type = REPORT_I64,
              .number = before->closed != 0 ? 0 : 1 },
        };
        (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    }
    weir_stream_free(before);
    weir_stream_free(after);
    return status;
}

static int close_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    weir_status status = weir__cli_open(c, CLI_OPEN_CHANGE, &w, &err);

    if (status == WEIR_OK) {
        status = close_stream(c, w, weir__str(c->words[0]), &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_close_command = {
    .name = "close",
    .block = CLI_BLOCK_EVENTS,
    .usage = "STREAM [options]",
    .summary = "end a stream: no more appends",
    .about =
        "Appends a last event $closed to STREAM. Every later append to it is refused (exit status\n"
        "4). Nothing is removed: the events can still be read, and reserved keys stay reserved.\n"
        "Closing a closed stream changes nothing. If reactions still have events of the stream to\n"
        "handle, closing is refused (exit status 75) unless --force is given.",
    .example = "weir close order-1 --expect 4\n"
               "weir close order-1 --dry-run",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 1,
    .words_max = 1,
    .run = close_run,
};
