/* work.c - weir work: runs reactions until it is told to stop.
 *
 * One thread waits for signals and for the end of things; everything else happens in an engine.
 *
 *   SIGHUP            the file is read again. When it is well, an engine with what it says begins,
 *                     and the one before takes nothing more and ends when what it runs has ended:
 *                     both share the store, whose fences keep them apart. Otherwise nothing
 *                     changes.
 *   SIGTERM, SIGINT   nothing more is begun; what runs has the budget to end. A second one: at
 *                     once.
 *
 * INVARIANT  At most two engines: a file that is read while one still ends is read again after it.
 */
#include "cli/work.h"
#include "api/api.h"
#include "base/clock.h"
#include "engine/room.h"
#include "store/away.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    LOOK_MS = 20, /* how often the end of what runs is looked for */
    IDLE_LOOK_MS = 100,
};
#define BUDGET_US_DEFAULT INT64_C(30000000)
#define BUDGET_US_MAX     INT64_C(86400000000)

static const cli_option options[] = {
    { "config", "FILE", CLI_WORD, "run the reactions of this file (default: weir.yaml)" },
    { "on", "NAME", CLI_WORD, "react to events with this name; repeat it for more; '*' means all" },
    { "to", "TARGET", CLI_WORD, "target of the reaction, such as mail or 'mail-{stream}'" },
    { "run", "CMD", CLI_WORD, "run CMD for each event; it reads the event on stdin" },
    { "exec", "CMD", CLI_WORD,
      "keep CMD running: it reads one line per event and answers each line" },
    { "name", "NAME", CLI_WORD,
      "name of the reaction; cannot be changed later (default: the command)" },
    { "source", "PATTERN", CLI_WORD, "only streams that fit: order-1, order-*, /^order-[0-9]+$/" },
    { "lane", "NAME", CLI_WORD, "lane of the reaction (default: default)" },
    { "priority", "N", CLI_WORD, "priority of its targets: a number, or a template" },
    { "retries", "N", CLI_NUMBER, "attempts after the first one (default: 3)" },
    { "from", "PLACE", CLI_WORD, "where a new reaction begins: start, now or a position" },
    { "lanes", "NAMES", CLI_WORD, "work only in these lanes, separated by commas" },
    { "threads", "N", CLI_NUMBER, "how many handlers run at the same time, in each lane" },
    { "memory-limit", "SIZE", CLI_WORD, "memory for the events of all handlers (default: 256MiB)" },
    { "until-idle", NULL, CLI_FLAG,
      "stop when no running worker has work left; exit with 1 if anything is left" },
    { "redeclare", NULL, CLI_FLAG, "use these definitions, even if newer ones were declared" },
    { "budget", "TIME", CLI_WORD,
      "how long handlers may take to finish after a signal (default: 30s)" },
    { "log", "FORM", CLI_WORD, "text or json (default: the form of error messages)" },
    { "verbose", NULL, CLI_FLAG, "also log every lease and every settle" },
    { "check", NULL, CLI_FLAG, "check the reactions, and do not run them" },
};

typedef struct work {
    cli *c;
    weir *w;           /* owned */
    const char *path;  /* of the file; NULL: flags */
    const char *store; /* what the file said about it when we began; NULL: nothing, or not asked */
    work_log log;
    weir_str *lanes; /* owned; of --lanes */
    size_t lanes_count;
    int signal_fd;
    int64_t budget_us;
    int64_t memory_limit_bytes; /* of --memory-limit; 0: what the file says */
    weir_engine *engine;        /* owned: the one that takes work */
    weir_engine *before;        /* owned: the one before, while it ends; NULL: none */
    bool away;                  /* the store was, when we began; said once */
    bool reload_wanted;
    work_others others;
    bool stuck; /* a handler cannot be ended: nothing that it may use is freed */
} work;

/* ---- options ------------------------------------------------------------------------------- */

static bool lane_is_used(const cli_config *config, weir_str name)
{
    for (size_t i = 0; i < config->reactions_count; i++) {
        const weir_str lane = config->reactions[i].lane;
        if (weir__str_equal(lane.len == 0 ? weir__str("default") : lane, name)) {
            return true;
        }
    }
    for (size_t i = 0; i < config->lanes_count; i++) {
        if (weir__str_equal(config->lanes[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* Names of one --lanes. CLI_DONE or an exit status. */
static int lanes_split(work *k, const cli_config *config, const char *text)
{
    while (*text != '\0') {
        const weir_str name = { text, strcspn(text, ",") };
        if (name.len == 0 || !lane_is_used(config, name)) {
            return weir__cli_usage(k->c, "--lanes: no reaction is in lane \"%.*s\"", (int)name.len,
                                   name.ptr);
        }
        k->lanes[k->lanes_count++] = name;
        text += name.len + (text[name.len] == ',' ? 1 : 0);
    }
    return CLI_DONE;
}

static int lanes_read(work *k, const cli_config *config)
{
    size_t most = 1;
    int status = CLI_DONE;

    for (size_t i = 0; i < k->c->given_count; i++) {
        const char *text = k->c->given[i].text;
        most += text == NULL ? 0 : strlen(text);
    }
    k->lanes = weir__calloc(most, sizeof *k->lanes);
    if (k->lanes == NULL) {
        weir_error err;
        (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
        return weir__cli_fail(k->c, &err);
    }
    for (size_t i = 0; status == CLI_DONE && i < k->c->given_count; i++) {
        const cli_given *given = &k->c->given[i];
        if (given->text != NULL && strcmp(given->option->name, "lanes") == 0) {
            status = lanes_split(k, config, given->text);
        }
    }
    return status;
}

static int options_read(work *k)
{
    const weir_str budget = weir__cli_text(k->c, "budget");
    const weir_str memory = weir__cli_text(k->c, "memory-limit");
    const weir_str form = weir__cli_text(k->c, "log");
    const cli_given *threads = weir__cli_get(k->c, "threads");

    if (memory.len > 0 && !weir__cli_config_memory(memory, &k->memory_limit_bytes)) {
        return weir__cli_usage(k->c, "--memory-limit takes " ROOM_BYTES_TEXT ", not \"%s\"",
                               memory.ptr);
    }
    k->budget_us = BUDGET_US_DEFAULT;
    if (budget.len > 0 &&
        (!weir__str_to_duration_us(budget, &k->budget_us) || k->budget_us > BUDGET_US_MAX)) {
        return weir__cli_usage(k->c, "--budget takes a duration up to 24h such as 30s, not \"%s\"",
                               budget.ptr);
    }
    k->log = (work_log){ .json = k->c->json_errors, .verbose = weir__cli_has(k->c, "verbose") };
    if (weir__str_equal(form, weir__str("json"))) {
        k->log.json = true;
    } else if (weir__str_equal(form, weir__str("text"))) {
        k->log.json = false;
    } else if (form.len > 0) {
        return weir__cli_usage(k->c, "--log takes text or json, not \"%s\"", form.ptr);
    }
    if (threads != NULL && (threads->number < 1 || threads->number > 1000)) {
        return weir__cli_usage(k->c, "--threads takes a number from 1 to 1000");
    }
    return CLI_DONE;
}

static void work_say(work *k, int32_t level, const char *event, const char *error)
{
    const log_field field = weir__log_text_field("error", weir__str(error));

    weir__work_say(&k->log, level, event, &field, 1);
}

/* ---- engines ------------------------------------------------------------------------------- */

/* *out: runs. */
static weir_status engine_begin(work *k, const cli_config *config, weir_engine **out,
                                weir_error *err)
{
    const weir_engine_options o = {
        WEIR_ENGINE_OPTIONS_INIT,
        .flags = weir__cli_has(k->c, "redeclare") ? WEIR_ENGINE_REDECLARE : 0,
        .lanes = k->lanes,
        .lanes_count = k->lanes_count,
        .log = weir__work_log,
        .log_ctx = &k->log,
        .memory_limit_bytes =
            k->memory_limit_bytes != 0 ? k->memory_limit_bytes : config->memory_limit_bytes,
    };
    weir_engine *e = NULL;
    weir_status status = (weir_status)weir_engine_open(k->w, &o, &e, err);

    for (size_t i = 0; status == WEIR_OK && i < config->lanes_count; i++) {
        status = (weir_status)weir_engine_lane(e, &config->lanes[i], err);
    }
    for (size_t i = 0; status == WEIR_OK && i < config->reactions_count; i++) {
        status = (weir_status)weir_engine_reaction(e, &config->reactions[i], err);
    }
    if (status == WEIR_OK) {
        status = (weir_status)weir_engine_start(e, err);
    }
    if (status != WEIR_OK) {
        weir_engine_free(e);
        /* The engine speaks of a file. */
        if (weir__cli_has(k->c, "on") && strstr(err->message, "where it begins") != NULL) {
            weir__error_detail(err, "Add --from start to handle them, --from now to begin with "
                                    "the next event, or --from POSITION.");
        }
        return status;
    }
    atomic_store(&k->log.live.engine, e);
    *out = e;
    return WEIR_OK;
}

static void engine_end(work *k, weir_engine **e)
{
    weir_error err;

    if (*e == NULL) {
        return;
    }
    if (weir_engine_stop(*e, 0, &err) != WEIR_OK) {
        work_say(k, LOG_WARNING, "not_stopped", err.message);
        k->stuck = true; /* freeing would wait for it */
    } else {
        weir_engine_free(*e);
    }
    *e = NULL;
}

static bool work_drained(weir_engine *e)
{
    return e == NULL || weir__engine_drained(e);
}

static void say_begun(work *k, const char *event, const cli_config *config)
{
    const log_field fields[] = {
        weir__log_number_field("reactions", (int64_t)config->reactions_count),
        weir__log_text_field("config", weir__str(k->path == NULL ? "flags" : k->path)),
    };

    weir__work_say(&k->log, LOG_INFO, event, fields, sizeof fields / sizeof fields[0]);
}

/* ---- reading the file again ---------------------------------------------------------------- */

static void say_problems(work *k, const cli_config *config, const weir_error *err)
{
    weir_str left = { config->problems.ptr, config->problems.len };

    if (left.len == 0) {
        work_say(k, LOG_ERROR, "reload_refused", err->message);
    }
    while (left.len > 0) {
        char line[sizeof err->message];
        const size_t len = strcspn(left.ptr, "\n"); /* every line has its end */
        (void)snprintf(line, sizeof line, "%.*s", (int)len, left.ptr);
        work_say(k, LOG_ERROR, "reload_refused", line);
        left.ptr += len + 1;
        left.len -= len + 1;
    }
}

static bool same_text(const char *a, const char *b)
{
    return weir__str_equal(weir__str(a), weir__str(b));
}

static void work_reload(work *k)
{
    cli_config config = { 0 };
    weir_engine *e = NULL;
    weir_error err;

    k->reload_wanted = false;
    if (k->path == NULL) {
        work_say(k, LOG_WARNING, "reload_refused",
                 "this worker was started with flags, so there is no file to read again");
        return;
    }
    weir_status status = weir__work_config_file(k->c, k->path, &config, &err);
    if (status == WEIR_OK && !same_text(config.store, k->store)) {
        work_say(k, LOG_WARNING, "store_kept",
                 "the store changed in the file; restart the worker to use it");
    }
    if (status == WEIR_OK) {
        status = engine_begin(k, &config, &e, &err);
    }
    if (status != WEIR_OK) {
        say_problems(k, &config, &err);
    } else {
        k->before = k->engine;
        k->engine = e;
        weir__engine_drain(k->before);
        say_begun(k, "reloaded", &config);
    }
    weir__cli_config_free(&config);
}

/* ---- signals ------------------------------------------------------------------------------- */

static int signals_open(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    return pthread_sigmask(SIG_BLOCK, &set, NULL) != 0
               ? -1
               : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The next signal, waiting for it; -1: for ever. 0: none came. */
static int next_signal(const work *k, int timeout_ms)
{
    struct pollfd fd = { .fd = k->signal_fd, .events = POLLIN };
    struct signalfd_siginfo info;

    if (poll(&fd, 1, timeout_ms) <= 0 || read(k->signal_fd, &info, sizeof info) != sizeof info) {
        return 0;
    }
    return (int)info.ssi_signo;
}

/* ---- running ------------------------------------------------------------------------------- */

static int wait_signal(work *k, bool *idle)
{
    weir_error err;

    if (weir__cli_has(k->c, "until-idle") && k->before == NULL) {
        *idle = weir_engine_wait_idle(k->engine, IDLE_LOOK_MS, &err) == WEIR_OK;
        if (*idle) {
            k->others.without_worker = 0;
        } else {
            *idle = weir__work_others(&k->others, &k->log, weir__store(k->w), k->engine, k->lanes,
                                      k->lanes_count);
        }
        return next_signal(k, 0);
    }
    return next_signal(k, k->before == NULL ? -1 : LOOK_MS);
}

/* Until it is to end: the signal that says so, 0: nothing is left to do. */
static int run_engines(work *k)
{
    for (;;) {
        bool idle = false;
        const int number = wait_signal(k, &idle);
        if (number == SIGTERM || number == SIGINT) {
            return number;
        }
        k->reload_wanted = k->reload_wanted || number == SIGHUP;
        if (k->before != NULL && work_drained(k->before)) {
            engine_end(k, &k->before);
        }
        if (k->reload_wanted && k->before == NULL) {
            work_reload(k);
        } else if (idle) {
            return 0;
        }
    }
}

static void say_draining(work *k, int number)
{
    const log_field fields[] = {
        weir__log_text_field("signal", weir__str(number == SIGINT ? "INT" : "TERM")),
        weir__log_number_field("budget_ms", k->budget_us / 1000),
    };

    weir__work_say(&k->log, LOG_INFO, "draining", fields, sizeof fields / sizeof fields[0]);
}

static void say_interrupting(work *k, const char *reason)
{
    const log_field field = weir__log_text_field("reason", weir__str(reason));

    weir__work_say(&k->log, LOG_WARNING, "interrupting", &field, 1);
}

/* What an engine whose store is damaged or was taken away has to say about it. */
static bool take_damage(const work *k, weir_error *err)
{
    return weir__engine_damaged(k->engine, err) ||
           (k->before != NULL && weir__engine_damaged(k->before, err));
}

/* Lets what runs end within the budget, or until a second signal, which the log sends as well when
 * the store turns out to be damaged: true, and *damage. */
static bool work_drain(work *k, int number, weir_error *damage)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t until_us = weir__clock_mono(clock) + k->budget_us;

    if (number != 0) {
        say_draining(k, number);
    }
    weir__engine_drain(k->engine);
    if (k->before != NULL) {
        weir__engine_drain(k->before);
    }
    while (!(work_drained(k->engine) && work_drained(k->before))) {
        const int again = next_signal(k, LOOK_MS);
        if (again == SIGTERM || again == SIGINT || weir__clock_mono(clock) >= until_us) {
            say_interrupting(k, atomic_load(&k->log.damaged) ? "store"
                                : again == 0                 ? "budget"
                                                             : "signal");
            break;
        }
    }
    const bool damaged = take_damage(k, damage);
    engine_end(k, &k->before);
    engine_end(k, &k->engine);
    weir__work_say(&k->log, LOG_INFO, "stopped", NULL, 0);
    return damaged;
}

/* As a running worker says it. The call that found out goes on waiting. ctx: the work. */
static void start_away(void *ctx, const weir_error *err)
{
    work *k = ctx;
    const log_field fields[] = {
        weir__log_text_field("status", weir__str(weir_status_text(err->code))),
        weir__log_text_field("error", weir__str(err->message)),
    };

    if (!k->away) {
        k->away = true;
        weir__work_say(&k->log, LOG_WARNING, "store_away", fields,
                       sizeof fields / sizeof fields[0]);
    }
}

static weir_status store_open(work *k, const cli_config *config, weir_error *err)
{
    const char *environment = getenv("WEIR_STORE");

    k->store = config->store;
    if (config->store != NULL && k->c->store == NULL &&
        (environment == NULL || environment[0] == '\0')) {
        k->c->store = config->store;
    }
    weir_status status = weir__cli_open(k->c, CLI_OPEN_WRITE, &k->w, err);
    if (status == WEIR_OK && k->w == NULL) {
        status = weir__cli_create(k->c, &k->w, err);
    }
    return status;
}

/* The exit status of a run that had nothing left to do: whether it did all of it. */
static int judge_idle(work *k, work_left *left)
{
    weir_error err;

    if (weir__work_left(weir__store(k->w), left, &err) != WEIR_OK) {
        return weir__cli_fail(k->c, &err);
    }
    if (left->blocked == 0 && left->parked == 0 && k->others.without_worker == 0) {
        return CLI_DONE;
    }
    const log_field next = weir__log_text_field("next", weir__str("weir why"));
    log_field fields[] = {
        weir__log_number_field("blocked", left->blocked),
        weir__log_number_field("parked", left->parked),
        weir__log_number_field("without_worker", k->others.without_worker),
        next,
    };
    size_t count = sizeof fields / sizeof fields[0];
    if (k->others.without_worker == 0) {
        fields[2] = next;
        count--;
    }
    weir__work_say(&k->log, LOG_ERROR, "not_all_handled", fields, count);
    return CLI_ERROR;
}

static int workers_run(work *k, const cli_config *config)
{
    weir_error err;
    weir_status status = WEIR_OK;
    work_left left = { 0 };

    /* Before there is any thread, so that all of them leave signals to this one. */
    k->signal_fd = signals_open();
    if (k->signal_fd < 0) {
        status = weir__fail(&err, WEIR_EIO, "could not wait for signals: %s", strerror(errno));
    }
    weir__store_away_set(start_away, k);
    if (status == WEIR_OK) {
        status = store_open(k, config, &err);
    }
    if (status == WEIR_OK) {
        status = weir__store(k->w)->about->now(weir__store(k->w), &left.since_us, &err);
    }
    if (status == WEIR_OK) {
        weir__work_live_begin(&k->log.live, &k->log, weir__store(k->w));
        status = engine_begin(k, config, &k->engine, &err);
    }
    weir__store_away_set(NULL, NULL);
    if (status != WEIR_OK) {
        weir__work_live_end(&k->log.live);
        return weir__cli_fail(k->c, &err);
    }
    if (k->away) {
        weir__work_say(&k->log, LOG_INFO, "store_back", NULL, 0);
    }
    say_begun(k, "started", config);
    const int number = run_engines(k);
    int signal_number = number;
    if (atomic_load(&k->log.damaged)) {
        k->budget_us = 0; /* what runs could not be settled any more */
        signal_number = 0;
    }
    const bool damaged = work_drain(k, signal_number, &err);
    weir__work_live_end(&k->log.live);
    if (damaged) {
        return weir__cli_fail(k->c, &err);
    }
    return number == 0 ? judge_idle(k, &left) : CLI_DONE;
}

static int check_only(cli *c, const cli_config *config)
{
    const report_field fields[] = {
        { .name = "reactions", .type = REPORT_I64, .number = (int64_t)config->reactions_count },
        { .name = "lanes", .type = REPORT_I64, .number = (int64_t)config->lanes_count },
    };

    (void)weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
    return CLI_DONE;
}

static int work_run(cli *c)
{
    work k = { .c = c, .signal_fd = -1 };
    cli_config config = { 0 };
    int status = options_read(&k);

    if (status == CLI_DONE) {
        status = weir__work_config(c, &config, &k.path);
    }
    if (status == CLI_DONE) {
        status = lanes_read(&k, &config);
    }
    if (status == CLI_DONE) {
        status = weir__cli_has(c, "check") ? check_only(c, &config) : workers_run(&k, &config);
    }
    if (!k.stuck) {
        weir_close(k.w);
    }
    if (k.signal_fd >= 0) {
        (void)close(k.signal_fd);
    }
    weir__buffer_free(&k.others.said);
    weir__free(k.lanes);
    weir__cli_config_free(&config);
    return status;
}

const cli_command weir__cli_work_command = {
    .name = "work",
    .block = CLI_BLOCK_WORKERS,
    .usage = "[--config FILE] [options]\n"
             "--on NAME --to TARGET --run CMD|--exec CMD [options]",
    .summary = "run reactions: handlers for events, in order, one worker per target",
    .about =
        "Runs the reactions of weir.yaml, or one reaction that the flags describe, until it is\n"
        "told to stop. A handler gets its events in order, and no target is handled by two\n"
        "workers at the same time. You can run any number of workers, on any number of\n"
        "machines; they share the work. After a crash, a handler may be run again for an event\n"
        "that it has already seen, but what it appends through its answer happens once. On\n"
        "SIGTERM the worker lets running handlers finish and hands back the rest; on SIGHUP it\n"
        "reads the file again. On a terminal, a line under the log shows how it is going, lane by\n"
        "lane. With --on, only the store is taken from weir.yaml, not its reactions and lanes.",
    .example = "weir work --on OrderPlaced --to 'mail-{stream}' --run ./send-mail --until-idle\n"
               "weir work --check\n"
               "weir work --lanes mail --threads 8 --log json",
    .options = options,
    .options_count = sizeof options / sizeof options[0],
    .words_min = 0,
    .words_max = 0,
    .run = work_run,
};
