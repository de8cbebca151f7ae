/* race.c - weir race: workers that go for the rows of one table at the same time.
 *
 * This thread prints lines as they come from race/, and waits for signals: the first one ends the
 * race, drops its table and then the process; a second one is fatal at once, for when the database
 * does not answer.
 */
#include "race/race.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    WORKERS_DEFAULT = 2,
    ROWS_DEFAULT = 3,
    LIMIT_DEFAULT = 1,
    PAUSE_US_DEFAULT = 1000000,
    SLOW_US = 50000, /* an answer that took longer is worth a word */
    SIGNAL_STATUS = 128,
};

static const cli_option options[] = {
    { "workers", "N", CLI_NUMBER, "how many workers; each has one turn (default: 2)" },
    { "rows", "N", CLI_NUMBER, "how many rows the table has (default: 3)" },
    { "limit", "N", CLI_NUMBER, "how many rows a worker asks for (default: 1)" },
    { "mode", "MODE", CLI_WORD, "skip, wait, autocommit or none (default: skip)" },
    { "pause", "TIME", CLI_SPAN, "how long a worker works on its rows (default: 1s)" },
    { "effects", "FILE", CLI_WORD, "append the side effects to FILE, and leave it there" },
    { "keep", NULL, CLI_FLAG, "do not drop the table afterwards" },
    { "drop", "TABLE", CLI_WORD, "only drop a table that a killed race left behind" },
};

/* What a run has. */
typedef struct running {
    cli *c;
    race *race;
    race_options options;
    char *shown; /* owned: the store, without secrets */
    int signal_fd;
    int signal; /* the one that came; 0: none */
    bool headed;
    int64_t effects, doubled;
    bool complete;
} running;

/* ---- text ------------------------------------------------------------------------------------ */

static void add_rows(weir_buffer *b, const race_line *line)
{
    (void)weir__buffer_add_text(b, line->rows_count == 1 ? "row " : "rows ");
    for (size_t i = 0; i < line->rows_count; i++) {
        (void)(weir__buffer_add_text(b, i == 0 ? "" : ", ") &&
               weir__buffer_add_i64(b, line->rows[i]));
    }
}

static void add_what(const running *k, weir_buffer *b, const race_line *line)
{
    switch (line->what) {
    case RACE_ASKS:
        (void)(weir__buffer_add_text(b, "asks for ") && weir__buffer_add_i64(b, k->options.limit) &&
               weir__buffer_add_text(b, k->options.limit == 1 ? " row" : " rows"));
        break;
    case RACE_GETS:
    case RACE_SEES:
        (void)weir__buffer_add_text(b, line->what == RACE_GETS ? "gets " : "sees ");
        if (line->rows_count == 0) {
            (void)weir__buffer_add_text(b, "nothing");
        } else {
            add_rows(b, line);
        }
        break;
    case RACE_SENDS:
        (void)weir__buffer_add_text(b, "sends the email of ");
        add_rows(b, line);
        break;
    case RACE_WRITES:
        (void)weir__buffer_add_text(b, "writes ");
        if (line->rows_count == 0) {
            (void)weir__buffer_add_text(b, "nothing");
        } else {
            add_rows(b, line);
            (void)(weir__buffer_add_text(b, ": ") &&
                   weir__buffer_add(b, line->text.ptr, line->text.len));
        }
        break;
    case RACE_COMMITS:
        (void)weir__buffer_add_text(b, "commits");
        break;
    case RACE_FAILS:
        (void)(weir__buffer_add_text(b, "fails: ") && weir__report_shown(b, line->text));
        break;
    case RACE_WHATS_COUNT:
        break;
    }
}

static void print_step(const running *k, const race_line *line)
{
    weir_buffer b = { 0 };
    char worker[32];

    (void)snprintf(worker, sizeof worker, "worker-%zu", line->worker);
    add_what(k, &b, line);
    (void)weir__cli_print(&k->c->out, "%8.3f s  %-9s ", (double)line->elapsed_us / 1e6, worker);
    (void)weir__cli_put(&k->c->out, (weir_str){ .ptr = b.ptr, .len = b.len });
    if (line->took_us >= SLOW_US) {
        (void)weir__cli_print(&k->c->out, ", after %.3f s", (double)line->took_us / 1e6);
    }
    (void)weir__cli_print(&k->c->out, "\n");
    weir__buffer_free(&b);
}

static void print_verdict(cli_output *o, const race_line *line)
{
    const char *plural = line->effects == 1 ? "email was" : "emails were";

    if (line->doubled == 0) {
        (void)weir__cli_print(o, "\n%" PRId64 " %s sent, no customer got two.\n", line->effects,
                              plural);
    } else {
        (void)weir__cli_print(
            o, "\n%" PRId64 " %s sent, %" PRId64 " too many: a customer got the same email %s.\n",
            line->effects, plural, line->doubled, line->doubled == 1 ? "twice" : "several times");
    }
}

/* "memory:" is followed by a colon of its own. */
static int shown_len(const char *shown)
{
    const size_t len = strlen(shown);
    return (int)(len > 0 && shown[len - 1] == ':' ? len - 1 : len);
}

static void print_text(running *k, const race_line *line)
{
    cli_output *o = &k->c->out;
    const race_options *p = &k->options;
    const report_field fields[] = {
        { .name = "row", .type = REPORT_I64, .number = line->rows_count > 0 ? line->rows[0] : 0 },
        { .name = "status", .type = REPORT_STR, .text = line->text },
        { .name = "claimed_by", .type = REPORT_STR, .text = line->by },
        { .name = "emails", .type = REPORT_I64, .number = line->effects },
    };
    char text[1024];

    switch (line->kind) {
    case RACE_LINE_LEFT:
        break;
    case RACE_LINE_TABLE:
        (void)snprintf(text, sizeof text,
                       "table %.*s in %.*s: %" PRId64 " rows, %" PRId64
                       " workers, mode %s, pause %.3f s",
                       (int)line->text.len, line->text.ptr, shown_len(k->shown), k->shown, p->rows,
                       p->workers, weir__race_mode_name(p->mode), (double)p->pause_us / 1e6);
        (void)weir__cli_wrap(o, "", "", weir__str(text));
        (void)weir__cli_print(o, "\n");
        break;
    case RACE_LINE_STEP:
        print_step(k, line);
        break;
    case RACE_LINE_ROW:
        if (!k->headed) {
            (void)weir__cli_print(o, "\n");
            k->headed = true;
        }
        (void)weir__cli_row(o, fields, sizeof fields / sizeof fields[0]);
        return; /* columns are measured when all are there */
    case RACE_LINE_RESULT:
        (void)weir__cli_flush(o);
        print_verdict(o, line);
        break;
    }
    (void)weir__cli_flush(o);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_table(const running *k, report_json *j, const race_line *line)
{
    const race_options *p = &k->options;

    weir__report_json_str(j, "table", line->text);
    weir__report_json_str(j, "store", weir__str(k->shown));
    weir__report_json_str(j, "mode", weir__str(weir__race_mode_name(p->mode)));
    weir__report_json_i64(j, "workers", p->workers);
    weir__report_json_i64(j, "rows", p->rows);
    weir__report_json_i64(j, "limit", p->limit);
    weir__report_json_i64(j, "pause_us", p->pause_us);
}

static void json_text(report_json *j, const char *name, weir_str text)
{
    if (text.ptr == NULL) {
        weir__report_json_null(j, name);
    } else {
        weir__report_json_str(j, name, text);
    }
}

static void json_step(report_json *j, const race_line *line)
{
    char worker[32];

    (void)snprintf(worker, sizeof worker, "worker-%zu", line->worker);
    weir__report_json_i64(j, "elapsed_us", line->elapsed_us);
    weir__report_json_str(j, "worker", weir__str(worker));
    weir__report_json_str(j, "what", weir__str(weir__race_what_name(line->what)));
    weir__report_json_open(j, "rows", '[');
    for (size_t i = 0; i < line->rows_count; i++) {
        weir__report_json_i64(j, NULL, line->rows[i]);
    }
    weir__report_json_close(j, ']');
    weir__report_json_i64(j, "took_us", line->took_us);
    if (line->what == RACE_WRITES && line->text.ptr != NULL) {
        weir__report_json_str(j, "status", line->text);
    } else if (line->what == RACE_FAILS) {
        weir__report_json_str(j, "message", line->text);
    }
}

static void print_json(const running *k, const race_line *line)
{
    static const char *const kinds[] = { [RACE_LINE_LEFT] = "left",
                                         [RACE_LINE_TABLE] = "table",
                                         [RACE_LINE_STEP] = "step",
                                         [RACE_LINE_ROW] = "row",
                                         [RACE_LINE_RESULT] = "result" };
    weir_buffer b = { 0 };
    report_json j = { .buffer = &b };

    weir__report_json_open(&j, NULL, '{');
    weir__report_json_str(&j, "kind", weir__str(kinds[line->kind]));
    switch (line->kind) {
    case RACE_LINE_LEFT:
        weir__report_json_str(&j, "table", line->text);
        break;
    case RACE_LINE_TABLE:
        json_table(k, &j, line);
        break;
    case RACE_LINE_STEP:
        json_step(&j, line);
        break;
    case RACE_LINE_ROW:
        weir__report_json_i64(&j, "row", line->rows[0]);
        weir__report_json_str(&j, "status", line->text);
        json_text(&j, "claimed_by", line->by);
        json_text(&j, "claimed_at", line->at);
        weir__report_json_i64(&j, "side_effects", line->effects);
        break;
    case RACE_LINE_RESULT:
        weir__report_json_i64(&j, "side_effects", line->effects);
        weir__report_json_i64(&j, "doubled", line->doubled);
        break;
    }
    weir__report_json_close(&j, '}');
    if (!j.failed && weir__buffer_add(&b, "\n", 1)) {
        (void)weir__cli_put(&k->c->out, (weir_str){ .ptr = b.ptr, .len = b.len });
        (void)weir__cli_flush(&k->c->out);
    }
    weir__buffer_free(&b);
}

/* ---- running --------------------------------------------------------------------------------- */

static void take_line(running *k, const race_line *line)
{
    if (line->kind == RACE_LINE_LEFT) {
        weir__cli_note(k->c,
                       "table %.*s is of another race: one that runs now, or one that was killed. "
                       "weir race --drop %.*s removes it",
                       (int)line->text.len, line->text.ptr, (int)line->text.len, line->text.ptr);
        return;
    }
    if (line->kind == RACE_LINE_RESULT) {
        k->complete = true;
        k->effects = line->effects;
        k->doubled = line->doubled;
    }
    if (k->c->out.json) {
        print_json(k, line);
    } else {
        print_text(k, line);
    }
}

/* A signal, or nobody who reads: the race ends. A second signal is fatal. */
static void race_watch(running *k, const struct pollfd *signals, const struct pollfd *reader)
{
    struct signalfd_siginfo info;
    sigset_t set;

    if (signals->revents != 0 && k->signal == 0 &&
        read(k->signal_fd, &info, sizeof info) == sizeof info) {
        k->signal = (int)info.ssi_signo;
        k->c->out.stop_fd = -1; /* what is to be said is said */
        weir__race_stop(k->race);
        /* A shell has what it runs in the background ignore them. */
        (void)signal(SIGINT, SIG_DFL);
        (void)signal(SIGTERM, SIG_DFL);
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGINT);
        (void)sigaddset(&set, SIGTERM);
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    if ((reader->revents & (POLLERR | POLLHUP)) != 0 || k->c->out.failed) {
        k->c->out.closed = true;
        weir__race_stop(k->race);
    }
}

static void race_follow(running *k)
{
    while (!weir__race_over(k->race)) {
        const race_line *line = weir__race_next(k->race);
        if (line != NULL) {
            take_line(k, line);
            continue;
        }
        struct pollfd fds[] = {
            { .fd = weir__race_fd(k->race), .events = POLLIN },
            { .fd = k->signal == 0 ? k->signal_fd : -1, .events = POLLIN },
            { .fd = k->c->out.closed ? -1 : k->c->out.fd, .events = 0 },
        };
        if (poll(fds, 3, -1) > 0) {
            race_watch(k, &fds[1], &fds[2]);
        }
    }
}

/* FILE, or one without a name that is gone with the process. */
static weir_status effects_open(const char *path, int *fd, weir_error *err)
{
    const char *directory = getenv("TMPDIR");
    char name[4096];

    if (path != NULL) {
        *fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
        return *fd < 0 ? weir__fail(err, WEIR_EINVAL, "--effects: could not open \"%s\": %s", path,
                                    strerror(errno))
                       : WEIR_OK;
    }
    directory = directory == NULL || directory[0] == '\0' ? "/tmp" : directory;
    const int n = snprintf(name, sizeof name, "%s/weir-race-XXXXXX", directory);
    *fd = n < 0 || (size_t)n >= sizeof name ? -1 : mkstemp(name);
    if (*fd < 0 || fcntl(*fd, F_SETFL, O_APPEND) != 0 || fcntl(*fd, F_SETFD, FD_CLOEXEC) != 0) {
        return weir__fail(err, WEIR_EIO, "could not make a file for side effects in \"%s\": %s",
                          directory, strerror(errno));
    }
    (void)unlink(name);
    return WEIR_OK;
}

/* It is a demonstration: a store that somebody uses is raced in only if --store is typed. */
static weir_status race_url(const cli *c, char **url, weir_error *err)
{
    if (c->store != NULL) {
        return weir__cli_url(c, url, err);
    }
    *url = weir__strndup("memory:", 7);
    return *url == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
}

static int64_t number_of(const cli *c, const char *name, int64_t otherwise)
{
    const cli_given *given = weir__cli_get(c, name);
    return given == NULL ? otherwise : given->number;
}

static int race_finish(running *k, weir_status status, const weir_error *err)
{
    if (status != WEIR_OK) {
        return weir__cli_fail(k->c, err);
    }
    if (k->signal != 0) {
        return SIGNAL_STATUS + k->signal;
    }
    if (k->complete && k->doubled > 0 &&
        (k->options.mode == RACE_SKIP || k->options.mode == RACE_WAIT)) {
        weir_error doubled;
        (void)weir__fail(&doubled, WEIR_ECORRUPT,
                         "%" PRId64 " side effects were doubled although rows were claimed",
                         k->doubled);
        return weir__cli_fail(k->c, &doubled);
    }
    return CLI_DONE;
}

static int race_all(running *k, const char *url)
{
    weir_error err;
    int fd = -1;
    const cli_given *effects = weir__cli_get(k->c, "effects");
    weir_status status = effects_open(effects == NULL ? NULL : effects->text, &fd, &err);

    /* Before there is any thread, so that all of them leave signals to this one. */
    k->signal_fd = weir__cli_signals_open();
    if (status == WEIR_OK && k->signal_fd < 0) {
        status = weir__fail(&err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
    }
    if (status == WEIR_OK) {
        k->options.url = url;
        k->options.effects_fd = fd;
        k->c->out.stop_fd = k->signal_fd;
        status = weir__race_start(&k->race, &k->options, &err);
    }
    if (status == WEIR_OK) {
        race_follow(k);
        status = weir__race_end(k->race, &err);
    }
    k->c->out.stop_fd = -1;
    if (k->signal_fd >= 0) {
        (void)close(k->signal_fd);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return race_finish(k, status, &err);
}

static int race_drop(const cli *c, const char *url)
{
    weir_error err;
    const weir_status status = weir__race_drop(url, weir__cli_text(c, "drop"), &err);

    if (status == WEIR_EINVAL) {
        return weir__cli_usage(c, "--drop: %s", err.message);
    }
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}

static int race_run(cli *c)
{
    running k = { .c = c, .signal_fd = -1 };
    weir_error err;
    char *url = NULL;
    int exit_status;
    const weir_str mode = weir__cli_text(c, "mode");

    k.options = (race_options){ .workers = number_of(c, "workers", WORKERS_DEFAULT),
                                .rows = number_of(c, "rows", ROWS_DEFAULT),
                                .limit = number_of(c, "limit", LIMIT_DEFAULT),
                                .pause_us = number_of(c, "pause", PAUSE_US_DEFAULT),
                                .keep = weir__cli_has(c, "keep") };
    if (mode.len > 0 && !weir__race_mode_of(mode, &k.options.mode)) {
        return weir__cli_usage(c, "--mode is \"%s\", allowed skip, wait, autocommit and none",
                               mode.ptr);
    }
    if (weir__race_check(&k.options, &err) != WEIR_OK) {
        return weir__cli_usage(c, "%s", err.message);
    }
    weir_status status = race_url(c, &url, &err);
    if (status == WEIR_OK) {
        status = weir__cli_url_shown(url, &k.shown, &err);
    }
    if (status != WEIR_OK) {
        exit_status = weir__cli_fail(c, &err);
    } else if (weir__cli_has(c, "drop")) {
        exit_status = race_drop(c, url);
    } else {
        exit_status = race_all(&k, url);
    }
    weir__free(url);
    weir__free(k.shown);
    return exit_status;
}

const cli_command weir__cli_race_command = {
    .name = "race",
    .block = CLI_BLOCK_TABLES,
    .usage = "[options]\n"
             "--drop TABLE",
    .summary = "two workers go for one table: what each of them sees",
    .about =
        "Makes a table, lets workers compete for its rows at the same time, and prints what each\n"
        "of them saw and when; then the table, and a sentence that says whether an email was sent\n"
        "twice. Then it drops the table. In the modes skip (weir claim) and wait (weir claim\n"
        "--hold --wait) rows are claimed. The modes autocommit and none are wrong on purpose: a\n"
        "lock that is released before the work begins, and no lock at all. The race is in memory\n"
        "unless --store is given.",
    .example = "weir race\n"
               "weir race --mode none\n"
               "weir race --mode wait --pause 2s --store postgres:///orders\n"
               "weir race --workers 3 --rows 2 --mode autocommit --store sqlite:orders.db",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = race_run,
};
