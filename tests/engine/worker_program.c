/* worker_program.c - a worker to be killed, stopped and watched: runs the reactions that its
 * arguments declare until SIGTERM, through weir.h alone.
 *
 *   worker_program URL JOURNAL [NAME=VALUE]...
 *
 *   lane=NAME:THREADS:LEASE_MS:EVENT_LIMIT[:CYCLE_MS]   lost_max=N   budget_ms=N   redeclare=1
 *   reaction=NAME   begins a reaction; what follows is about it:
 *     on=EVENT (several)  source=  to=  lane_of=  priority=  retries=  base_ms=  cap_ms=  poison=
 *     do=note     writes a line into the journal, and that is all
 *     do=effect   appends one event to "out-REACTION-TARGET" as well
 *     do=crash    aborts at events named "Crash"
 *     do=fail     fails until there is a file JOURNAL.healed
 *     do=gate     waits until there is a file JOURNAL.gate.PID, then says `passed`
 *     do=fenced   writes its fence to JOURNAL.outside, unless a higher one is there
 *     do=balance  adds to a row of `table`, inside the settling transaction
 *     do=outside  the same on a connection of its own, with no regard to the settle: a mistake
 *     do=run, do=exec   the program cmd=COMMAND; nothing is written into the journal for it
 *     ms=N        the handler takes so long, after its line and before its effect
 *     table=NAME  of do=balance and do=outside
 *
 * The journal gets one line per thing, each written by one write, with the time in us and the pid:
 *   running TIME PID TIME_OF_DAY      stopped TIME PID
 *   handled TIME PID REACTION TARGET EVENT ATTEMPT FENCE KEY      (do=outside: after its mistake)
 *   written TIME PID      refused TIME PID      do=fenced, after its time
 *   log.EVENT TIME PID JSON      what the engine says, from level info on
 * It exits with 0 after a SIGTERM, with 3 when its budget was not enough.
 */
#include <fcntl.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include <weir.h>

enum { REACTIONS_MAX = 8, NAMES_MAX = 8, LINE_BYTES = 1024, BUDGET_MS = 5000 };

typedef struct job {
    weir_reaction reaction;
    weir_str names[NAMES_MAX];
    const char *what;    /* do= */
    const char *table;   /* table= */
    const char *command; /* cmd= */
    long ms;
} job;

static job jobs[REACTIONS_MAX];
static size_t jobs_count;
static const char *url, *journal;
static int journal_fd;
static sem_t has_begun; /* "running" is in the journal */
static long budget_ms = BUDGET_MS;
static weir_engine_options engine_options = { WEIR_ENGINE_OPTIONS_INIT };

static weir_str str(const char *text)
{
    return (weir_str){ text, strlen(text) };
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (len > 0) {
        size_t bytes = (size_t)len < sizeof line - 1 ? (size_t)len : sizeof line - 2;
        line[bytes++] = '\n';
        if (write(journal_fd, line, bytes) != (ssize_t)bytes) {
            abort();
        }
    }
}

static void give_up(const char *what, const weir_error *err)
{
    (void)fprintf(stderr, "worker_program: %s: %s %s\n", what, err == NULL ? "" : err->message,
                  err == NULL ? "" : err->detail);
    exit(1);
}

static long long now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void log_line(void *ctx, int32_t level, weir_str event, weir_str json)
{
    (void)ctx;
    if (level > 0) {
        say("log.%.*s %lld %d %.*s", (int)event.len, event.ptr, now_us(), (int)getpid(),
            (int)json.len, json.ptr);
    }
}

/* ---- handlers ----------------------------------------------------------------------------- */

static const char *add_sql(char *sql, size_t bytes, const char *table, const weir_event *e)
{
    const char *amount = memchr(e->data.ptr, ':', e->data.len);
    (void)snprintf(sql, bytes, "UPDATE %s SET amount = amount + %ld WHERE account = '%.*s'", table,
                   amount == NULL ? 0 : strtol(amount + 1, NULL, 10), (int)e->stream.len,
                   e->stream.ptr);
    return sql;
}

static int32_t sql_run(void *native, const char *sql)
{
    if (strncmp(url, "sqlite", 6) == 0) {
        return sqlite3_exec(native, sql, NULL, NULL, NULL) == SQLITE_OK ? WEIR_OK : WEIR_EIO;
    }
    PGresult *result = PQexec(native, sql);
    const bool fine = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return fine ? WEIR_OK : WEIR_EIO;
}

static int32_t balance(void *ctx, void *native, const weir_event *const *events, size_t count,
                       weir_error *err)
{
    const job *j = ctx;
    char sql[LINE_BYTES];
    int32_t status = WEIR_OK;
    say("handled %lld %d %.*s - %lld 0", now_us(), (int)getpid(), (int)j->reaction.name.len,
        j->reaction.name.ptr, (long long)events[0]->id);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = sql_run(native, add_sql(sql, sizeof sql, j->table, events[i]));
    }
    if (status != WEIR_OK) {
        (void)snprintf(err->message, sizeof err->message, "could not update the balances");
    }
    (void)usleep((useconds_t)(j->ms * 1000));
    return status;
}

static int32_t balance_outside(const job *j, const weir_event *e)
{
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static void *connection;
    char sql[LINE_BYTES];

    (void)pthread_mutex_lock(&mu);
    if (connection == NULL && strncmp(url, "sqlite:", 7) == 0) {
        sqlite3 *db = NULL;
        if (sqlite3_open(url + 7, &db) != SQLITE_OK || sqlite3_busy_timeout(db, 10000) != 0) {
            abort();
        }
        connection = db;
    } else if (connection == NULL) {
        /* The URL has a member that only the store knows. */
        char server[LINE_BYTES];
        (void)snprintf(server, sizeof server, "%s", url);
        server[strstr(server, "schema=") - server - 1] = '\0';
        connection = PQconnectdb(server);
    }
    const int32_t status = sql_run(connection, add_sql(sql, sizeof sql, j->table, e));
    (void)pthread_mutex_unlock(&mu);
    return status;
}

static int32_t stage_effect(weir_delivery *d)
{
    char stream[256], data[64];
    const weir_str reaction = weir_delivery_reaction(d), target = weir_delivery_target(d);
    (void)snprintf(stream, sizeof stream, "out-%.*s-%.*s", (int)reaction.len, reaction.ptr,
                   (int)target.len, target.ptr);
    (void)snprintf(data, sizeof data, "{\"of\":%lld}", (long long)weir_delivery_event(d)->id);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = str(stream),
                                   .name = str("Effect"), .data = str(data) };
    const weir_new_event *const events[] = { &event };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1 };
    return weir_stage_append(d, &request, NULL);
}

/* A resource that is not Weir's and remembers the highest fence that it was shown. */
static int32_t write_fenced(int64_t fence)
{
    char path[256], text[32] = "";
    (void)snprintf(path, sizeof path, "%s.outside", journal);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || pread(fd, text, sizeof text - 1, 0) < 0) {
        abort();
    }
    const bool refused = strtoll(text, NULL, 10) > fence;
    const int len = snprintf(text, sizeof text, "%lld\n", (long long)fence);
    if (!refused && pwrite(fd, text, (size_t)len, 0) != len) {
        abort();
    }
    (void)close(fd);
    say("%s %lld %d", refused ? "refused" : "written", now_us(), (int)getpid());
    return WEIR_DONE;
}

static int32_t handle(void *ctx, weir_delivery *d)
{
    const job *j = ctx;
    const weir_event *e = weir_delivery_event(d);
    const weir_str reaction = weir_delivery_reaction(d), target = weir_delivery_target(d);
    char healed[256], gate[256];

    if (strcmp(j->what, "outside") == 0 && balance_outside(j, e) != WEIR_OK) {
        return WEIR_RETRY;
    }
    const weir_str key = weir_delivery_key(d);
    say("handled %lld %d %.*s %.*s %lld %lld %lld %.*s", now_us(), (int)getpid(), (int)reaction.len,
        reaction.ptr, (int)target.len, target.ptr, (long long)e->id,
        (long long)weir_delivery_attempt(d), (long long)weir_delivery_fence(d), (int)key.len,
        key.ptr);
    if (strcmp(j->what, "crash") == 0 && e->name.len == 5 && memcmp(e->name.ptr, "Crash", 5) == 0) {
        (void)sem_wait(&has_begun); /* who starts it waits for that before it looks for its end */
        abort();
    }
    (void)usleep((useconds_t)(j->ms * 1000));
    (void)snprintf(healed, sizeof healed, "%s.healed", journal);
    (void)snprintf(gate, sizeof gate, "%s.gate.%d", journal, (int)getpid());
    if (strcmp(j->what, "fail") == 0 && access(healed, F_OK) != 0) {
        weir_delivery_fail(d, "not healed");
        return WEIR_RETRY;
    }
    while (strcmp(j->what, "gate") == 0 && access(gate, F_OK) != 0) {
        (void)usleep(200);
    }
    if (strcmp(j->what, "gate") == 0) {
        say("passed %lld %d", now_us(), (int)getpid());
    }
    if (strcmp(j->what, "fenced") == 0) {
        return write_fenced(weir_delivery_fence(d));
    }
    if (strcmp(j->what, "effect") == 0) {
        return stage_effect(d) == WEIR_OK ? WEIR_DONE : WEIR_PERMANENT;
    }
    return WEIR_DONE;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static void add_lane(weir_engine *e, const char *value)
{
    static char names[REACTIONS_MAX][64];
    static size_t count;
    int threads = 0, lease_ms = 0, events = 0, cycle_ms = 0;
    if (count == REACTIONS_MAX || sscanf(value, "%63[^:]:%d:%d:%d:%d", names[count], &threads,
                                         &lease_ms, &events, &cycle_ms) < 4) {
        give_up("lane=NAME:THREADS:LEASE_MS:EVENT_LIMIT[:CYCLE_MS]", NULL);
    }
    const weir_lane lane = {
        WEIR_LANE_INIT,        .name = str(names[count++]),
        .threads = threads,    .lease_us = lease_ms * INT64_C(1000),
        .event_limit = events, .cycle_us = cycle_ms * INT64_C(1000),
    };
    weir_error err;
    if (weir_engine_lane(e, &lane, &err) != WEIR_OK) {
        give_up("lane", &err);
    }
}

static void begin_reaction(const char *name)
{
    if (jobs_count == REACTIONS_MAX) {
        give_up("too many reactions", NULL);
    }
    job *j = &jobs[jobs_count++];
    *j = (job){ .what = "note", .table = "balances" };
    j->reaction =
        (weir_reaction){ WEIR_REACTION_INIT,    .name = str(name),       .source = str("in-*"),
                         .to = str("{stream}"), .from = WEIR_FROM_START, .ctx = j };
}

static bool set_of_reaction(job *j, const char *name, const char *value)
{
    weir_reaction *q = &j->reaction;
    const long number = strtol(value, NULL, 10);
    if (strcmp(name, "on") == 0 && q->on_count < NAMES_MAX) {
        j->names[q->on_count++] = str(value);
        q->on = j->names;
    } else if (strcmp(name, "source") == 0) {
        q->source = str(value);
    } else if (strcmp(name, "to") == 0) {
        q->to = str(value);
    } else if (strcmp(name, "lane_of") == 0) {
        q->lane = str(value);
    } else if (strcmp(name, "priority") == 0) {
        q->priority_text = str(value);
    } else if (strcmp(name, "retries") == 0) {
        q->retries = (int32_t)number;
    } else if (strcmp(name, "base_ms") == 0) {
        q->backoff_base_us = number * 1000;
    } else if (strcmp(name, "cap_ms") == 0) {
        q->backoff_cap_us = number * 1000;
    } else if (strcmp(name, "poison") == 0) {
        q->poison = (int32_t)number;
    } else if (strcmp(name, "do") == 0) {
        j->what = value;
    } else if (strcmp(name, "table") == 0) {
        j->table = value;
    } else if (strcmp(name, "cmd") == 0) {
        j->command = value;
    } else if (strcmp(name, "ms") == 0) {
        j->ms = number;
    } else {
        return false;
    }
    return true;
}

/* Those of the engine come before it is opened. */
static bool set_of_engine(const char *name, const char *value)
{
    if (strcmp(name, "lost_max") == 0) {
        engine_options.lost_max = strtol(value, NULL, 10);
    } else if (strcmp(name, "budget_ms") == 0) {
        budget_ms = strtol(value, NULL, 10);
    } else if (strcmp(name, "redeclare") == 0) {
        engine_options.flags = WEIR_ENGINE_REDECLARE;
    } else {
        return false;
    }
    return true;
}

static void parse(weir_engine *e, char **arguments)
{
    for (char **a = arguments; *a != NULL; a++) {
        char *value = strchr(*a, '=');
        if (value == NULL) {
            give_up("NAME=VALUE", NULL);
        }
        char name[32];
        (void)snprintf(name, sizeof name, "%.*s", (int)(value - *a), *a);
        value++;
        if (e == NULL) {
            (void)set_of_engine(name, value);
        } else if (strcmp(name, "lane") == 0) {
            add_lane(e, value);
        } else if (strcmp(name, "reaction") == 0) {
            begin_reaction(value);
        } else if (!set_of_engine(name, value) &&
                   (jobs_count == 0 || !set_of_reaction(&jobs[jobs_count - 1], name, value))) {
            give_up(*a, NULL);
        }
    }
}

static void declare(weir_engine *e)
{
    weir_error err;
    for (size_t i = 0; i < jobs_count; i++) {
        weir_reaction *q = &jobs[i].reaction;
        if (strcmp(jobs[i].what, "balance") == 0) {
            q->project = balance;
        } else if (strcmp(jobs[i].what, "run") == 0) {
            q->run = jobs[i].command;
        } else if (strcmp(jobs[i].what, "exec") == 0) {
            q->exec = jobs[i].command;
        } else {
            q->handle = handle;
        }
        if (weir_engine_reaction(e, q, &err) != WEIR_OK) {
            give_up("reaction", &err);
        }
    }
}

int main(int argc, char **argv)
{
    weir *w = NULL;
    weir_engine *e = NULL;
    weir_error err;
    sigset_t ends;
    int signal_number;

    if (argc < 3) {
        give_up("usage: worker_program URL JOURNAL [NAME=VALUE]...", NULL);
    }
    url = argv[1];
    journal = argv[2];
    (void)sem_init(&has_begun, 0, 0);
    journal_fd = open(journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL);
    engine_options.log = log_line;
    parse(NULL, argv + 3);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url };
    if (weir_open(&options, &w, &err) != WEIR_OK ||
        weir_engine_open(w, &engine_options, &e, &err) != WEIR_OK) {
        give_up("opening", &err);
    }
    parse(e, argv + 3);
    declare(e);
    if (weir_engine_start(e, &err) != WEIR_OK) {
        give_up("starting", &err);
    }
    say("running %lld %d %lld", now_us(), (int)getpid(), (long long)time(NULL));
    (void)sem_post(&has_begun);
    (void)sigwait(&ends, &signal_number);
    const int32_t status = weir_engine_stop(e, (int32_t)budget_ms, &err);
    say("stopped %lld %d", now_us(), (int)getpid());
    if (status == WEIR_EBUSY) {
        _exit(3);
    }
    weir_engine_free(e);
    weir_close(w);
    return status == WEIR_OK ? 0 : 1;
}
