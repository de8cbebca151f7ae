/* read.c - weir read: the events of one stream. */
#include "cli/cli.h"

static const cli_option options[] = {
    { "from", "VERSION", CLI_NUMBER, "start at this version" },
    { "to", "VERSION", CLI_NUMBER, "stop after this version" },
    { "limit", "N", CLI_NUMBER, "at most N events" },
    { "backward", NULL, CLI_FLAG, "newest first; --from is then the highest version" },
    { "at", "TIME", CLI_TIME, "the stream as it was at TIME" },
};

static int print_event(void *ctx, const weir_event *event)
{
    return weir__cli_event(ctx, event) ? 0 : 1;
}

/* A bound that was given, and its bit. */
static void version_bound(const cli *c, const char *name, uint32_t bit, int64_t *value,
                          uint32_t *fields)
{
    const cli_given *given = weir__cli_get(c, name);

    if (given != NULL) {
        *value = given->number;
        *fields |= bit;
    }
}

static int read_run(cli *c)
{
    weir *w = NULL;
    weir_error err;
    weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = weir__str(c->words[0]) };

    version_bound(c, "from", WEIR_HAS_FROM, &o.from, &o.fields);
    version_bound(c, "to", WEIR_HAS_TO, &o.to, &o.fields);
    version_bound(c, "limit", WEIR_HAS_LIMIT, &o.limit, &o.fields);
    version_bound(c, "at", WEIR_HAS_UNTIL, &o.until_us, &o.fields);
    o.flags = weir__cli_has(c, "backward") ? WEIR_READ_BACKWARD : 0;
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        status = (weir_status)weir_read(w, &o, print_event, &c->out, &err);
    }
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_read_command = {
    .name = "read",
    .block = CLI_BLOCK_EVENTS,
    .usage = "STREAM [options]",
    .summary = "print the events of a stream",
    .about =
        "Prints the events of STREAM in the order of their versions, one per line. Versions start\n"
        "at 0; --from and --to are inclusive. If the stream does not exist, the exit status is 3.",
    .empty = "No event of the stream matches.",
    .example = "weir read order-1\n"
               "weir read order-1 --backward --limit 1\n"
               "weir read order-1 --at 2026-11-15T20:00:00Z",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 1,
    .words_max = 1,
    .run = read_run,
};
