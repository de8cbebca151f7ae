/* log.c - weir log: the events of all streams by position, and those to come.
 *
 * If the server goes away while its log is followed, we wait for it, however long that takes. We
 * say so once on stderr, and again once when it is back. Following waits on three things at once:
 * the reader's descriptor, a signal, and stdout, whose reader may go away while nothing happens. A
 * wake-up is lost if a process dies before it sends it, so we also look once a second.
 */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FOLLOW_LOOK_MS = 1000 };

static const cli_option options[] = {
    { "after", "ID", CLI_NUMBER, "only events after this position" },
    { "since", "TIME", CLI_TIME, "only events created at or after TIME" },
    { "tail", "N", CLI_NUMBER, "only the last N events (with --follow, then new ones)" },
    { "limit", "N", CLI_NUMBER, "at most N events" },
    { "name", "NAME", CLI_WORD, "only events with this name; may be repeated" },
    { "stream", "PATTERN", CLI_WORD, "only streams that fit: order-1, order-*, /^order-[0-9]+$/" },
    { "category", "NAME", CLI_WORD, "only streams of this category: what is before the first -" },
    { "correlation", "TEXT", CLI_WORD, "only events with this meta.correlation" },
    { "follow", NULL, CLI_FLAG, "keep waiting for new events until interrupted" },
};

static int print_event(void *ctx, const weir_event *event)
{
    return weir__cli_event(ctx, event) ? 0 : 1;
}

/* Filters and bounds from the command line. *names: owned by the caller. */
static weir_status query_fill(const cli *c, weir_log_options *o, weir_str **names, weir_error *err)
{
    const cli_given *after = weir__cli_get(c, "after");
    const cli_given *since = weir__cli_get(c, "since");
    const cli_given *limit = weir__cli_get(c, "limit");

    *names = weir__calloc(c->given_count + 1, sizeof **names);
    if (*names == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < c->given_count; i++) {
        if (strcmp(c->given[i].option->name, "name") == 0) {
            (*names)[o->names_count++] = weir__str(c->given[i].text);
            o->fields |= WEIR_HAS_NAMES;
        }
    }
    o->names = *names;
    o->stream = weir__cli_text(c, "stream");
    o->category = weir__cli_text(c, "category");
    o->correlation = weir__cli_text(c, "correlation");
    if (after != NULL) {
        o->after = after->number;
        o->fields |= WEIR_HAS_AFTER;
    }
    if (since != NULL) {
        o->since_us = since->number;
        o->fields |= WEIR_HAS_SINCE;
    }
    if (limit != NULL) {
        o->limit = limit->number;
        o->fields |= WEIR_HAS_LIMIT;
    }
    return WEIR_OK;
}

static int keep_id(void *ctx, const weir_event *event)
{
    *(int64_t *)ctx = event->id;
    return 0;
}

/* Moves `after` to just before the last `tail` events that fit. They are only counted here and read
 * again afterwards, so that memory does not grow with their number. */
static weir_status seek_tail(weir *w, weir_log_options *o, int64_t tail, weir_error *err)
{
    weir_log_options back = *o;
    int64_t first = 0, safe = 0;
    weir_status status = (weir_status)weir_positions(w, NULL, &safe, err);

    if (status != WEIR_OK) {
        return status;
    }
    /* From `safe` down to what --after allows. */
    back.flags = WEIR_READ_BACKWARD;
    back.fields =
        (o->fields & ~(uint32_t)WEIR_HAS_AFTER) | WEIR_HAS_LIMIT | WEIR_HAS_AFTER | WEIR_HAS_TO;
    back.limit = tail;
    back.after = safe + 1;
    back.to = (o->fields & WEIR_HAS_AFTER) == 0 ? 0 : o->after < safe ? o->after + 1 : back.after;
    if (tail > 0 && back.to < back.after) {
        status = (weir_status)weir_log(w, &back, keep_id, &first, err);
    }
    if (status == WEIR_OK && ((o->fields & WEIR_HAS_AFTER) == 0 || o->after <= safe)) {
        o->after = first > 0 ? first - 1 : safe;
        o->fields |= WEIR_HAS_AFTER;
    }
    return status;
}

int weir__cli_signals_open(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    return sigprocmask(SIG_BLOCK, &set, NULL) != 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC);
}

/* Waits for something to do; reader NULL: FOLLOW_LOOK_MS at most. false: a signal came, or nobody
 * reads stdout any more. */
static bool wait_more(cli *c, weir_reader *reader)
{
    struct pollfd fds[] = {
        { .fd = c->out.stop_fd, .events = POLLIN },
        { .fd = c->out.fd, .events = 0 }, /* only that it was closed */
        { .fd = reader == NULL ? -1 : weir_reader_fd(reader), .events = POLLIN },
    };

    if (poll(fds, sizeof fds / sizeof fds[0], FOLLOW_LOOK_MS) < 0) {
        return errno == EINTR;
    }
    return fds[0].revents == 0 && (fds[1].revents & (POLLERR | POLLHUP)) == 0;
}

static weir_status log_follow(cli *c, weir *w, weir_log_options *o, weir_error *err)
{
    weir_reader *reader = NULL;
    weir_status status;
    int64_t left = (o->fields & WEIR_HAS_LIMIT) != 0 ? o->limit : INT64_MAX;
    bool go_on = left > 0, away = false;

    c->out.line_by_line = true;
    c->out.answered = true;         /* whatever comes */
    c->out.screen.relative = false; /* a line stays while time goes on */
    c->out.stop_fd = weir__cli_signals_open();
    if (c->out.stop_fd < 0) {
        return weir__fail(err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
    }
    o->flags = WEIR_READ_FOLLOW;
    status = (weir_status)weir_log_open(w, o, &reader, err);
    while (status == WEIR_OK && go_on) {
        const weir_event *event = NULL;
        status = (weir_status)weir_reader_next(reader, 0, &event, err);
        if (status == WEIR_EUNAVAILABLE) {
            /* Following means waiting for more, so it also waits for the server. */
            if (!away) {
                weir__cli_note(c, "%s; waiting for it to come back", err->message);
            }
            away = true;
            go_on = wait_more(c, NULL);
            status = WEIR_OK;
        } else if (status == WEIR_OK) {
            if (away) {
                weir__cli_note(c, "the store is back");
            }
            away = false;
            go_on = event != NULL ? weir__cli_event(&c->out, event) && --left > 0
                                  : wait_more(c, reader);
        }
    }
    weir_reader_close(reader);
    (void)close(c->out.stop_fd);
    c->out.stop_fd = -1;
    return status;
}

static int log_run(cli *c)
{
    weir *w = NULL;
    weir_str *names = NULL;
    weir_error err;
    weir_log_options o = { WEIR_LOG_OPTIONS_INIT };
    const cli_given *tail = weir__cli_get(c, "tail");
    weir_status status = query_fill(c, &o, &names, &err);

    if (status == WEIR_OK) {
        status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    }
    if (status == WEIR_OK && tail != NULL) {
        status = seek_tail(w, &o, tail->number, &err);
    }
    if (status == WEIR_OK) {
        status = weir__cli_has(c, "follow")
                     ? log_follow(c, w, &o, &err)
                     : (weir_status)weir_log(w, &o, print_event, &c->out, &err);
    }
    weir_close(w);
    weir__free(names);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

const cli_command weir__cli_log_command = {
    .name = "log",
    .block = CLI_BLOCK_EVENTS,
    .usage = "[options]",
    .summary = "print the events of all streams, and follow new ones",
    .about =
        "Prints events in the order of their positions, from the first one, or from where\n"
        "--after, --since or --tail say. --follow then prints what anybody appends, line by line.\n"
        "It ends with 0 when it is interrupted or when nobody reads its output any more.",
    .empty = "No events yet. weir append STREAM NAME DATA adds the first one.",
    .example = "weir log --follow\n"
               "weir log --stream 'order-*' --name OrderPaid --tail 10\n"
               "weir log --after 1200 --limit 100",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = log_run,
};
