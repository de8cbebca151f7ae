/* world.c - see world.h. */
#include "world.h"

#include "base/clock.h"

#include <errno.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 32, LOOK_US = 2000 };

world here;

bool world_is(const char *kind)
{
    return strcmp(here.kind, kind) == 0;
}

void world_expect(int32_t got, int32_t wanted, const char *call, const char *file, int line)
{
    if (got != wanted) {
        print_error("%s:%d: %s is %d, expected %d: %s %s\n", file, line, call, got, wanted,
                    here.err.message, here.err.detail);
        fail();
    }
}

/* ---- the store of a test ------------------------------------------------------------------ */

static const char *server(void)
{
    const char *url = getenv("WEIR_TEST_POSTGRES");
    if (url == NULL || url[0] == '\0') {
        (void)fprintf(stderr, "WEIR_TEST_POSTGRES is not set: run this by with-server\n");
        exit(2);
    }
    return url;
}

int world_set_up(void **state)
{
    static unsigned count = 0;
    (void)state;
    const char *kind = here.kind;
    here = (world){ .kind = kind };
    (void)snprintf(here.dir, sizeof here.dir, "/tmp/weir-engine-XXXXXX");
    assert_non_null(mkdtemp(here.dir));
    (void)snprintf(here.journal, sizeof here.journal, "%s/journal", here.dir);
    if (world_is("postgres")) {
        (void)snprintf(here.schema, sizeof here.schema, "weir_engine_%ld_%u", (long)getpid(),
                       ++count);
        (void)snprintf(here.url, sizeof here.url, "%s%cschema=%s", server(),
                       strchr(server(), '?') ? '&' : '?', here.schema);
    } else if (world_is("sqlite")) {
        (void)snprintf(here.url, sizeof here.url, "sqlite:%s/store.db", here.dir);
    } else {
        (void)snprintf(here.url, sizeof here.url, "memory:world");
    }
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = here.url };
    WORLD_OK(weir_open(&options, &here.w, &here.err));
    here.store = weir__store(here.w);
    return 0;
}

static void drop_schema(void)
{
    char sql[128];
    PGconn *conn = PQconnectdb(server());
    (void)snprintf(sql, sizeof sql,
                   "SET client_min_messages = error; DROP SCHEMA IF EXISTS %s CASCADE",
                   here.schema);
    PQclear(PQexec(conn, sql));
    PQfinish(conn);
}

int world_tear_down(void **state)
{
    char command[128];
    (void)state;
    while (here.pids_count > 0) {
        world_kill(here.pids[here.pids_count - 1]);
    }
    weir_close(here.w);
    here.w = NULL;
    if (here.schema[0] != '\0') {
        drop_schema();
    }
    (void)snprintf(command, sizeof command, "rm -rf %s", here.dir);
    return system(command) == 0 ? 0 : -1;
}

int world_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (argc < 2 || argc > 3) {
        (void)fprintf(stderr, "usage: %s memory|sqlite|postgres [PATTERN]\n", argv[0]);
        return 2;
    }
    here.kind = argv[1];
    if (argc == 3) {
        cmocka_set_test_filter(argv[2]);
    }
    return _cmocka_run_group_tests(here.kind, tests, count, NULL, NULL);
}

/* ---- appending and looking ---------------------------------------------------------------- */

int32_t world_try_append(weir *w, const char *stream, const char *name, const char *data,
                         int64_t *id, weir_error *err)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                                   .name = weir__str(name),
                                   .data = weir__str(data == NULL ? "{}" : data) };
    const weir_new_event *const events[] = { &event };
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                          .events_count = 1 };
    const weir_append_result *result = NULL;
    const int32_t status = weir_append(w, &request, &result, err);
    if (status == WEIR_OK && id != NULL) {
        *id = result->streams[0]->id;
    }
    weir_append_result_free(result);
    return status;
}

int64_t world_append(const char *stream, const char *name, const char *data)
{
    int64_t id = 0;
    WORLD_OK(world_try_append(here.w, stream, name, data, &id, &here.err));
    return id;
}

typedef struct reading {
    weir_event_fn fn;
    void *ctx;
    size_t count;
} reading;

static int read_one(void *ctx, const weir_event *event)
{
    reading *r = ctx;
    r->count++;
    return r->fn == NULL ? 0 : r->fn(r->ctx, event);
}

size_t world_read(const char *stream, weir_event_fn fn, void *ctx)
{
    const weir_read_options options = { WEIR_READ_OPTIONS_INIT, .stream = weir__str(stream) };
    reading r = { .fn = fn, .ctx = ctx };
    const int32_t status = weir_read(here.w, &options, read_one, &r, &here.err);
    if (status != WEIR_ENOTFOUND) {
        WORLD_OK(status);
    }
    return r.count;
}

const store_target *world_target(const char *name)
{
    static store_targets_chunk chunk;
    const weir_str names[] = { weir__str(name) };
    const store_targets_query query = { .filter = { .names = names, .names_count = 1 },
                                        .limit = 1 };
    WORLD_OK(here.store->work->targets(here.store, &query, &chunk, &here.err));
    return chunk.targets_count == 1 ? &chunk.targets[0] : NULL;
}

size_t world_parked(const char *reaction)
{
    static store_parked_chunk chunk;
    const store_parked_query query = { .limit = 1000, .reaction = weir__str(reaction) };
    WORLD_OK(here.store->work->parked(here.store, &query, &chunk, &here.err));
    return chunk.parked_count;
}

void world_operate(store_verb verb, const char *target)
{
    const weir_str names[] = { weir__str(target) };
    store_operate op = { .verb = verb,
                         .filter = { .names = names, .names_count = 1 },
                         .by = weir__str("test") };
    WORLD_OK(here.store->work->operate(here.store, &op, &here.err));
    assert_int_equal(op.changed, 1);
}

int64_t world_now_us(void)
{
    return weir__clock_mono(weir__clock_machine());
}

void world_pause_us(int64_t us)
{
    weir__clock_pause(us);
}

void world_await(bool (*holds)(const void *ctx), const void *ctx, const char *what)
{
    const int64_t until_us = world_now_us() + WORLD_WAIT_US;
    while (!holds(ctx)) {
        if (world_now_us() > until_us) {
            fail_msg("waited in vain: %s", what);
        }
        world_pause_us(LOOK_US);
    }
}

/* ---- worker processes --------------------------------------------------------------------- */

/* Ends with the test's program, however that ends. */
static void become(const char *program, const char *preload, const char *const *arguments)
{
    char *argv[ARGUMENTS_MAX + 2] = { strdup(program) };
    for (size_t i = 0; arguments[i] != NULL && i < ARGUMENTS_MAX; i++) {
        argv[i + 1] = strdup(arguments[i]);
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        (preload != NULL && setenv("LD_PRELOAD", preload, 1) != 0)) {
        _exit(120);
    }
    (void)execv(program, argv);
    _exit(121);
}

pid_t world_start(const char *program, const char *preload, const char *const *arguments)
{
    assert_true(here.pids_count < WORLD_PIDS_MAX);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        become(program, preload, arguments);
    }
    here.pids[here.pids_count++] = pid;
    return pid;
}

pid_t world_worker(const char *argument, ...)
{
    const char *arguments[ARGUMENTS_MAX + 1] = { here.url, here.journal };
    size_t count = 2;
    va_list list;

    va_start(list, argument);
    for (const char *a = argument; a != NULL; a = va_arg(list, const char *)) {
        assert_true(count < ARGUMENTS_MAX);
        arguments[count++] = a;
    }
    va_end(list);
    const char *program = getenv("WORKER_PROGRAM");
    assert_non_null(program);
    const size_t running = world_journal("running", NULL, NULL);
    const pid_t pid = world_start(program, NULL, arguments);
    world_await_journal("running", running + 1);
    return pid;
}

void world_signal(pid_t pid, int signal)
{
    assert_int_equal(kill(pid, signal), 0);
}

void world_stop(pid_t pid)
{
    char url[WORLD_URL_BYTES + 32];
    (void)snprintf(url, sizeof url, "%s%s", here.url, world_is("sqlite") ? "?busy=50ms" : "");
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url };
    weir *w = NULL;
    WORLD_OK(weir_open(&options, &w, &here.err));
    for (;;) {
        int stopped = 0;
        world_signal(pid, SIGSTOP);
        /* Until all its threads have stopped: one inside flock() would get the lock after we have
         * looked for it. */
        assert_int_equal(waitpid(pid, &stopped, WUNTRACED), pid);
        assert_true(WIFSTOPPED(stopped));
        const int32_t status = world_try_append(w, "probe-1", "Probed", NULL, NULL, &here.err);
        if (status != WEIR_EBUSY) {
            WORLD_OK(status);
            break;
        }
        world_signal(pid, SIGCONT);
        world_pause_us(1000);
    }
    weir_close(w);
}

int world_end(pid_t pid)
{
    int status = 0;
    for (size_t i = 0; i < here.pids_count; i++) {
        if (here.pids[i] == pid) {
            here.pids[i] = here.pids[--here.pids_count];
            break;
        }
    }
    pid_t got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR) {
        got = waitpid(pid, &status, 0);
    }
    assert_int_equal(got, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void world_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)world_end(pid);
}

void world_heal(void)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s.healed", here.journal);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fclose(f);
}

size_t world_journal(const char *word, world_line_fn fn, void *ctx)
{
    char line[WORLD_LINE_BYTES];
    size_t count = 0;
    const size_t len = strlen(word);
    FILE *f = fopen(here.journal, "re");

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, word, len) == 0 && (line[len] == ' ' || line[len] == '\0')) {
            count++;
            if (fn != NULL) {
                fn(ctx, line);
            }
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return count;
}

typedef struct awaited {
    const char *word;
    size_t count;
} awaited;

static bool journal_has(const void *ctx)
{
    const awaited *a = ctx;
    return world_journal(a->word, NULL, NULL) >= a->count;
}

void world_await_journal(const char *word, size_t count)
{
    awaited a = { .word = word, .count = count };
    world_await(journal_has, &a, word);
}
