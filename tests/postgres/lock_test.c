/* lock_test.c - goal: weir lock on PostgreSQL, as C40 has it: one holder, whoever asks and however;
 * released when its holder dies, but not while its program runs; noticed when it is lost.
 * Method: the program itself, on the test's server, through a proxy that goes silent and through a
 * real pooler. What is run under a lock says what happens to it in files, and is watched from
 * here. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bouncer.h"
#include "pg_support.h"
#include "proxy.h"

enum { ARGUMENTS_MAX = 24, TEXT_BYTES = 8192, PATH_BYTES = 128, SECONDS = 120 };

/* ---- programs ------------------------------------------------------------------------------ */

static char directory[64];

static const char *path(const char *name)
{
    static char text[4][PATH_BYTES];
    static int next;
    next = (next + 1) % 4;
    snprintf(text[next], PATH_BYTES, "%s/%s", directory, name);
    return text[next];
}

/* The whole of a file; "": it is not there. */
static const char *content(const char *name)
{
    static char text[TEXT_BYTES];
    const int fd = open(path(name), O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[len < 0 ? 0 : len] = '\0';
    return text;
}

static bool exists(const char *name)
{
    return access(path(name), F_OK) == 0;
}

static void touch(const char *name)
{
    const int fd = open(path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    close(fd);
}

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        const int64_t wait_until = test_mono_us() + SECONDS * INT64_C(1000000);                    \
        while (!(condition)) {                                                                     \
            if (test_mono_us() >= wait_until) {                                                    \
                fail_msg("never came: %s", #condition);                                            \
            }                                                                                      \
            usleep(2000);                                                                          \
        }                                                                                          \
    } while (0)

/* `weir` with these words, in the directory; stdout and stderr go to NAME.out and NAME.err. */
static pid_t weir_start(const char *name, const char *url, const char *const *words)
{
    const char *argv[ARGUMENTS_MAX + 1] = { getenv("WEIR"), NULL };
    char out[PATH_BYTES], err[PATH_BYTES];
    size_t n = 1;
    for (; *words != NULL; words++) {
        assert_true(n < ARGUMENTS_MAX);
        argv[n++] = *words;
    }
    argv[n] = NULL;
    snprintf(out, sizeof out, "%s/%s.out", directory, name);
    snprintf(err, sizeof err, "%s/%s.err", directory, name);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        setpgid(pid, pid);
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0); /* as a shell does */
        const int in = open("/dev/null", O_RDONLY);
        const int o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        const int e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (getppid() != parent || dup2(in, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0 ||
            chdir(directory) != 0 || setenv("WEIR_STORE", url, 1) != 0) {
            _exit(99);
        }
        char *copies[ARGUMENTS_MAX + 1] = { NULL };
        for (size_t i = 0; i < n; i++) {
            copies[i] = strdup(argv[i]);
        }
        execv(copies[0], copies);
        _exit(99);
    }
    return pid;
}

#define WEIR(name, url, ...) weir_start(name, url, (const char *const[]){ __VA_ARGS__, NULL })

/* As a shell has it. */
static int ended(pid_t pid)
{
    int status = 0;
    const int64_t until = test_mono_us() + SECONDS * INT64_C(1000000);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (test_mono_us() >= until) {
            kill(pid, SIGKILL);
            fail_msg("it did not end");
        }
        usleep(2000);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool alive(pid_t pid)
{
    return kill(pid, 0) == 0;
}

/* What a program has written of its number. */
static pid_t number_in(const char *name)
{
    return (pid_t)strtol(content(name), NULL, 10);
}

#define WORKS "echo $$ >p.tmp; mv p.tmp p; while [ ! -e go ]; do sleep 0.01; done"

/* ---- surroundings -------------------------------------------------------------------------- */

static int setup(void **state)
{
    snprintf(directory, sizeof directory, "/tmp/weir-lock.XXXXXX");
    return mkdtemp(directory) == NULL || chmod(directory, 0777) != 0 ? -1 : test_setup(state);
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    const int rc = system(command);
    return test_teardown(state) + (rc == 0 ? 0 : -1);
}
#define LOCK_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Locks of sessions whose application is `weir lock NAME`; -1: all. */
static int64_t sessions(pg_test *t, const char *name, bool granted)
{
    return test_number(t->conn,
                       "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "
                       "locktype = 'advisory' AND objsubid = 1 AND granted = %s AND "
                       "application_name = 'weir lock %s'",
                       granted ? "true" : "false", name);
}

static void store_make(pg_test *t)
{
    test_store_close(t, test_store(t));
}

static const char *through(pg_test *t, const char *host, char url[TEST_URL_BYTES])
{
    snprintf(url, TEST_URL_BYTES, "postgres:///postgres?host=%s&user=postgres&schema=%s", host,
             t->schema);
    return url;
}

/* ---- one holder ---------------------------------------------------------------------------- */

static void C40_of_many_shells_one_runs(void **state)
{
    enum { SHELLS = 8 };
    pg_test *t = *state;
    pid_t pids[SHELLS];
    char name[16], needle[64];
    int ran = 0, held = 0;
    for (int initialised = 0; initialised < 2; initialised++) {
        if (initialised == 1) {
            store_make(t);
            unlink(path("go"));
            unlink(path("ran"));
        }
        ran = held = 0;
        for (int i = 0; i < SHELLS; i++) {
            snprintf(name, sizeof name, "%d", i);
            pids[i] = WEIR(name, t->url, "lock", "one", "--", "sh", "-c",
                           "echo $PPID >>ran; while [ ! -e go ]; do sleep 0.01; done");
        }
        /* All but one end by themselves. */
        for (int left = SHELLS; left > 1;) {
            int status = 0;
            const pid_t pid = waitpid(-1, &status, 0);
            for (int i = 0; i < SHELLS; i++) {
                if (pids[i] == pid) {
                    snprintf(name, sizeof name, "%d.err", i);
                    held += WIFEXITED(status) && WEXITSTATUS(status) == 75 ? 1 : 0;
                    assert_non_null(strstr(content(name), "\"code\":\"held\""));
                    assert_non_null(strstr(content(name), "\\\"one\\\" is held by "));
                    pids[i] = 0;
                    left--;
                }
            }
        }
        touch("go");
        for (int i = 0; i < SHELLS; i++) {
            if (pids[i] != 0) {
                snprintf(needle, sizeof needle, " pid %d since 2", (int)pids[i]);
                ran += ended(pids[i]) == 0 ? 1 : 0;
            }
        }
        assert_int_equal(held, SHELLS - 1);
        assert_int_equal(ran, 1);
        assert_int_equal(strchr(content("ran"), '\n') - content("ran"),
                         (long)strlen(content("ran")) - 1);
    }
}

static void C40_the_loser_hears_who_where_and_since_when(void **state)
{
    pg_test *t = *state;
    char host[256] = "", needle[320];
    gethostname(host, sizeof host - 1);
    const pid_t holder = WEIR("holder", t->url, "lock", "n */ '\"ä", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    assert_int_equal(ended(WEIR("loser", t->url, "lock", "n */ '\"ä", "--text", "--", "true")), 75);
    snprintf(needle, sizeof needle, "weir: lock: \"n */ '\"ä\" is held by root@%s pid %d since 20",
             host, (int)holder);
    if (geteuid() == 0) {
        assert_string_equal(
            needle, strstr(content("loser.err"), needle) == NULL ? content("loser.err") : needle);
    }
    assert_int_equal(ended(WEIR("other", t->url, "lock", "n */ '\"", "--", "true")), 0);
    assert_int_equal(
        ended(WEIR("zero", t->url, "lock", "n */ '\"ä", "--held-exit", "0", "--", "false")), 0);
    touch("go");
    assert_int_equal(ended(holder), 0);
}

static void C40_a_released_name_is_free_at_once(void **state)
{
    pg_test *t = *state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ended(WEIR("w", t->url, "lock", "again", "--", "sh", "-c", "exit 3")), 3);
    }
    assert_int_equal(sessions(t, "again", true), 0);
}

static void C40_who_waits_is_next(void **state)
{
    pg_test *t = *state;
    const pid_t holder = WEIR("holder", t->url, "lock", "w", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    assert_int_equal(ended(WEIR("short", t->url, "lock", "w", "--wait", "100ms", "--", "true")),
                     75);
    const pid_t waiter = WEIR("waiter", t->url, "lock", "w", "--wait", "--", "sh", "-c",
                              "kill -0 $(cat p) && touch both; touch ran");
    WAIT_FOR(sessions(t, "w", false) == 1);
    assert_int_equal(ended(WEIR("list", t->url, "locks")), 0);
    assert_non_null(strstr(content("list.out"), "{\"lock\":\"w\",\"state\":\"held\",\"by\":\""));
    assert_non_null(strstr(content("list.out"), "{\"lock\":\"w\",\"state\":\"waiting\",\"by\":\""));
    assert_non_null(
        strstr(content("list.out"), "\"kind\":\"session\",\"until\":null,\"fence\":null}"));
    touch("go");
    assert_int_equal(ended(holder), 0);
    assert_int_equal(ended(waiter), 0);
    assert_true(exists("ran"));
    assert_false(exists("both"));
}

static void C40_each_run_has_a_larger_fence(void **state)
{
    pg_test *t = *state;
    long last = 0;
    assert_int_equal(ended(WEIR("w", t->url, "lock", "f", "--", "sh", "-c", "echo .$WEIR_FENCE.")),
                     0);
    assert_string_equal(content("w.out"), "..\n");
    store_make(t);
    for (int i = 0; i < 25; i++) {
        assert_int_equal(
            ended(WEIR("w", t->url, "lock", "f", "--", "sh", "-c", "echo $WEIR_FENCE")), 0);
        const long fence = strtol(content("w.out"), NULL, 10);
        assert_true(fence > last);
        last = fence;
    }
    /* And leaves no note behind. */
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.locks", t->schema), 0);
}

/* ---- it ends with its holder, and not before its program ------------------------------------ */

static void C40_a_killed_holder_frees_it_when_its_program_is_gone(void **state)
{
    pg_test *t = *state;
    const pid_t holder =
        WEIR("w", t->url, "lock", "k", "--grace", "700ms", "--", "sh", "-c",
             "trap 'touch term' TERM; sh -c \"trap '' TERM; echo \\$\\$ >q; sleep 60\" & " WORKS);
    WAIT_FOR(exists("p") && number_in("q") > 0);
    const pid_t program = number_in("p"), other = number_in("q");
    assert_true(program > 0 && other > 0);
    kill(holder, SIGKILL);
    assert_int_equal(ended(holder), 128 + SIGKILL);
    /* As long as one of its processes is there, nobody else has it. */
    int looks = 0;
    for (;;) {
        const bool program_there = alive(program) || alive(other);
        const int64_t held = sessions(t, "k", true);
        if (held == 0) {
            assert_false(alive(program) || alive(other));
            break;
        }
        looks += program_there ? 1 : 0;
        usleep(1000);
    }
    assert_true(looks > 5); /* it was seen to hold on */
    assert_true(exists("term"));
    assert_int_equal(ended(WEIR("next", t->url, "lock", "k", "--", "true")), 0);
}

/* A program with a child in its group and one in a session of its own. */
#define FAMILY                                                                                     \
    "trap '' TERM; sh -c \"trap '' TERM; echo \\$\\$ >q; sleep 60\" & "                            \
    "setsid sh -c \"trap '' TERM; echo \\$\\$ >r; sleep 60\" & " WORKS

static void C40_who_kills_the_holders_group_lets_nobody_in_beside_its_program(void **state)
{
    pg_test *t = *state;
    const pid_t holder =
        WEIR("w", t->url, "lock", "k", "--grace", "300ms", "--", "sh", "-c", FAMILY);
    WAIT_FOR(exists("p") && number_in("q") > 0 && number_in("r") > 0);
    const pid_t family[] = { number_in("p"), number_in("q"), number_in("r") };
    assert_int_equal(kill(-holder, SIGKILL), 0);
    assert_int_equal(ended(holder), 128 + SIGKILL);
    int looks = 0;
    for (;;) {
        const bool there = alive(family[0]) || alive(family[1]) || alive(family[2]);
        if (sessions(t, "k", true) == 0) {
            assert_false(alive(family[0]) || alive(family[1]) || alive(family[2]));
            break;
        }
        looks += there ? 1 : 0;
        usleep(1000);
    }
    assert_true(looks > 3); /* it was seen to hold on */
    assert_int_equal(ended(WEIR("next", t->url, "lock", "k", "--", "true")), 0);
}

static void C40_a_terminated_session_ends_the_program(void **state)
{
    pg_test *t = *state;
    /* As it is when nothing is configured: SIGTERM within 2 s, SIGKILL 10 s later. */
    const pid_t holder =
        WEIR("w", t->url, "lock", "t", "--", "sh", "-c",
             "trap 'touch term' TERM; echo $$ >p.tmp; mv p.tmp p; while :; do sleep 0.01; done");
    WAIT_FOR(exists("p"));
    const pid_t program = number_in("p");
    const int64_t start = test_mono_us();
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(pg_terminate_backend(pid)) FROM "
                                 "pg_stat_activity WHERE application_name = 'weir lock t'"),
                     1);
    WAIT_FOR(exists("term"));
    const int64_t term = test_mono_us();
    assert_true(term - start < 2000000);
    WAIT_FOR(!alive(program));
    const int64_t killed = test_mono_us() - start;
    assert_true(killed > 9900000 && killed < 13000000);
    assert_int_equal(ended(holder), 75);
    assert_non_null(strstr(content("w.err"), "\"code\":\"lost\""));
    assert_non_null(strstr(content("w.err"), "PostgreSQL ended the session that had the lock"));
}

static void C40_a_cut_network_is_noticed(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    proxy *p = proxy_start();
    const pid_t holder = WEIR(
        "w", through(t, proxy_host(p), url), "lock", "c", "--check", "1s", "--grace", "500ms", "--",
        "sh", "-c", "trap '' TERM; echo $$ >p.tmp; mv p.tmp p; while :; do sleep 0.01; done");
    WAIT_FOR(exists("p"));
    const pid_t program = number_in("p");
    /* It goes on for longer than a check takes. */
    assert_true(test_wait(t->conn, SECONDS,
                          "SELECT max(query_start - backend_start) > interval '1200 ms' FROM "
                          "pg_stat_activity WHERE application_name = 'weir lock c'"));
    assert_true(alive(program));
    const int64_t start = test_mono_us();
    proxy_blackhole(p, true);
    /* As long as it runs the server lets nobody else have the name, whatever it knows. */
    do {
        const int64_t held = sessions(t, "c", true);
        assert_true(held == 1 || !alive(program));
        assert_true(test_mono_us() - start < SECONDS * INT64_C(1000000));
    } while (alive(program));
    assert_int_equal(ended(holder), 75);
    assert_non_null(strstr(content("w.err"), "has not answered for too long"));
    proxy_stop(p);
}

static void C40_a_stopped_holder_has_no_program(void **state)
{
    pg_test *t = *state;
    const pid_t holder = WEIR("w", t->url, "lock", "s", "--check", "1s", "--grace", "200ms", "--",
                              "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    const pid_t program = number_in("p");
    kill(holder, SIGSTOP);
    WAIT_FOR(!alive(program)); /* nobody looks after the lock any more */
    kill(holder, SIGCONT);
    assert_int_equal(ended(holder), 75);
    assert_non_null(strstr(content("w.err"), "\"code\":\"lost\""));
}

static void C40_a_killed_guard_ends_the_program(void **state)
{
    pg_test *t = *state;
    const pid_t holder = WEIR("w", t->url, "lock", "g", "--", "sh", "-c",
                              "echo $PPID >guard; sh -c 'echo $$ >q; sleep 60' & " WORKS);
    WAIT_FOR(exists("p") && number_in("q") > 0);
    const pid_t guard = number_in("guard"), program = number_in("p"), other = number_in("q");
    assert_true(guard > 0 && guard != holder);
    kill(guard, SIGKILL);
    assert_int_equal(ended(holder), 1);
    assert_false(alive(program));
    assert_false(alive(other));
}

static void C40_nothing_else_loses_it(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES + 128];
    /* Settings that would end the session or its statements, and somebody who cancels them. */
    snprintf(url, sizeof url,
             "%s&options=-c%%20idle_session_timeout%%3D200%%20-c%%20statement_timeout%%3D150",
             t->url);
    const pid_t holder = WEIR("holder", url, "lock", "e", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    const pid_t waiter = WEIR("waiter", url, "lock", "e", "--wait", "--check", "4s", "--", "sh",
                              "-c", "touch w; while [ ! -e stop ]; do sleep 0.01; done");
    WAIT_FOR(sessions(t, "e", false) == 1);
    assert_true(test_wait(t->conn, SECONDS,
                          "SELECT min(clock_timestamp() - backend_start) > interval '600 ms' FROM "
                          "pg_stat_activity WHERE application_name = 'weir lock e'"));
    touch("go");
    assert_int_equal(ended(holder), 0);
    WAIT_FOR(exists("w"));
    /* Longer than it takes until the lock is proved again, and shorter than --check. */
    const int64_t start = test_mono_us();
    while (test_mono_us() - start < INT64_C(2000000)) {
        (void)test_number(t->conn, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity "
                                   "WHERE application_name = 'weir lock e'");
        usleep(5000);
    }
    assert_int_equal(sessions(t, "e", true), 1);
    touch("stop");
    assert_int_equal(ended(waiter), 0);
}

static void C40_without_a_database_nothing_runs(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    assert_int_equal(
        ended(WEIR("w", through(t, "/nowhere", url), "lock", "x", "--", "touch", "ran")), 1);
    assert_false(exists("ran"));
    assert_non_null(strstr(content("w.err"), "\"code\":\"unavailable\""));
    proxy *p = proxy_start();
    const pid_t holder =
        WEIR("w", through(t, proxy_host(p), url), "lock", "x", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    proxy_close_all(p);
    assert_int_equal(ended(holder), 75);
    proxy_stop(p);
}

/* ---- behind a pooler ------------------------------------------------------------------------ */

static void C40_behind_a_pooler_it_is_a_lease(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    bouncer b = bouncer_start("transaction", 4);
    through(t, b.directory, url);
    assert_int_equal(ended(WEIR("none", url, "lock", "l", "--", "touch", "ran")), 1);
    assert_non_null(strstr(content("none.err"), "no store for a lease: run weir init"));
    assert_false(exists("ran"));
    store_make(t);
    const pid_t holder = WEIR("w", url, "lock", "l", "--check", "1s", "--grace", "200ms", "--",
                              "sh", "-c", "echo $WEIR_FENCE >fence; " WORKS);
    WAIT_FOR(exists("p"));
    assert_true(strtol(content("fence"), NULL, 10) > 0);
    assert_non_null(strstr(content("w.err"), "pooler in between: the lock is a lease of 6200 ms"));
    /* It lives longer than its lease. */
    const int64_t until = test_number(t->conn, "SELECT lease_until FROM %s.locks", t->schema);
    WAIT_FOR(test_number(t->conn, "SELECT %s.clock_us()", t->schema) > until);
    assert_int_equal(ended(WEIR("two", url, "lock", "l", "--", "touch", "ran")), 75);
    assert_non_null(strstr(content("two.err"), "\\\"l\\\" is held by "));
    assert_int_equal(ended(WEIR("direct", t->url, "lock", "l", "--", "touch", "ran")), 75);
    assert_non_null(strstr(content("direct.err"), "\\\"l\\\" is held by "));
    assert_int_equal(ended(WEIR("list", t->url, "locks")), 0);
    assert_non_null(strstr(content("list.out"), "\"kind\":\"lease\",\"until\":\"2"));
    touch("go");
    assert_int_equal(ended(holder), 0);
    assert_false(exists("ran"));
    assert_int_equal(ended(WEIR("three", url, "lock", "l", "--", "touch", "ran")), 0);
    bouncer_stop(&b);
}

static void C40_a_session_keeps_leases_away(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    bouncer b = bouncer_start("transaction", 4);
    through(t, b.directory, url);
    /* It has the name since before there was a store. */
    const pid_t holder = WEIR("w", t->url, "lock", "m", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    store_make(t);
    assert_int_equal(ended(WEIR("two", url, "lock", "m", "--", "touch", "ran")), 75);
    assert_non_null(strstr(content("two.err"), "\\\"m\\\" is held by "));
    assert_false(exists("ran"));
    touch("go");
    assert_int_equal(ended(holder), 0);
    assert_int_equal(ended(WEIR("three", url, "lock", "m", "--", "true")), 0);
    bouncer_stop(&b);
}

static void C40_a_lease_taken_while_a_session_waited_counts(void **state)
{
    pg_test *t = *state;
    weir_arena arena = { 0 };
    store_lock lease = { 0 };
    const pid_t holder = WEIR("w", t->url, "lock", "i", "--", "sh", "-c", WORKS);
    WAIT_FOR(exists("p"));
    const pid_t waiter = WEIR("two", t->url, "lock", "i", "--wait", "--", "touch", "ran");
    WAIT_FOR(sessions(t, "i", false) == 1);
    /* weir init, and somebody behind a pooler who was faster. */
    weir_store *s = test_store(t);
    TEST_OK(t, s->locks->take(s,
                              &(store_lock_request){ STORE_LOCK, weir__str("i"),
                                                     weir__str("pooled"), INT64_C(60000000) },
                              &arena, &lease, &t->err));
    touch("go");
    assert_int_equal(ended(holder), 0);
    WAIT_FOR(sessions(t, "i", false) == 0);
    assert_true(test_wait(t->conn, SECONDS,
                          "SELECT count(*) = 1 FROM pg_stat_activity WHERE "
                          "application_name = 'weir lock i' AND query LIKE '%%lock_take%%'"));
    assert_false(exists("ran"));
    assert_int_equal(ended(WEIR("three", t->url, "lock", "i", "--", "touch", "ran")), 75);
    TEST_OK(t, s->locks->release(s, weir__str("i"), lease.fence, lease.token, &t->err));
    assert_int_equal(ended(waiter), 0);
    assert_true(exists("ran"));
    weir__arena_free(&arena);
}

static void C40_sessions_and_leases_in_a_storm(void **state)
{
    enum { EACH = 4, ROUNDS = 12 };
    pg_test *t = *state;
    char url[TEST_URL_BYTES], name[16];
    pid_t pids[2 * EACH];
    int ran = 0;
    bouncer b = bouncer_start("transaction", 6);
    through(t, b.directory, url);
    store_make(t);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2 * EACH; i++) {
            snprintf(name, sizeof name, "%d", i);
            pids[i] = WEIR(name, i % 2 == 0 ? url : t->url, "lock", "storm", "--wait", "100ms",
                           "--", "sh", "-c", "mkdir in || touch both; sleep 0.02; rmdir in");
        }
        for (int i = 0; i < 2 * EACH; i++) {
            const int status = ended(pids[i]);
            assert_true(status == 0 || status == 75);
            ran += status == 0 ? 1 : 0;
        }
    }
    assert_false(exists("both"));
    assert_true(ran >= ROUNDS);
    bouncer_stop(&b);
}

static void C40_a_stopped_holder_of_a_lease_has_no_program_when_it_ends(void **state)
{
    pg_test *t = *state;
    char url[TEST_URL_BYTES];
    bouncer b = bouncer_start("transaction", 4);
    through(t, b.directory, url);
    store_make(t);
    const pid_t holder = WEIR("w", url, "lock", "z", "--check", "500ms", "--grace", "200ms", "--",
                              "sh", "-c", FAMILY);
    WAIT_FOR(exists("p") && number_in("q") > 0 && number_in("r") > 0);
    const pid_t program = number_in("p"), near = number_in("q"), far = number_in("r");
    assert_int_equal(kill(-holder, SIGSTOP), 0); /* as kill -STOP %1 does */
    /* Until the end of the lease somebody asks for it. */
    const pid_t next = WEIR("next", url, "lock", "z", "--wait", "--", "sh", "-c",
                            "for i in $(cat p q r); do kill -0 $i 2>/dev/null && touch both; done; "
                            "touch ran");
    assert_int_equal(ended(next), 0);
    assert_false(alive(program) || alive(near) || alive(far));
    assert_true(exists("ran"));
    assert_false(exists("both"));
    kill(-holder, SIGCONT);
    assert_int_equal(ended(holder), 75);
    bouncer_stop(&b);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        LOCK_TEST(C40_of_many_shells_one_runs),
        LOCK_TEST(C40_the_loser_hears_who_where_and_since_when),
        LOCK_TEST(C40_a_released_name_is_free_at_once),
        LOCK_TEST(C40_who_waits_is_next),
        LOCK_TEST(C40_each_run_has_a_larger_fence),
        LOCK_TEST(C40_a_killed_holder_frees_it_when_its_program_is_gone),
        LOCK_TEST(C40_who_kills_the_holders_group_lets_nobody_in_beside_its_program),
        LOCK_TEST(C40_a_terminated_session_ends_the_program),
        LOCK_TEST(C40_a_cut_network_is_noticed),
        LOCK_TEST(C40_a_stopped_holder_has_no_program),
        LOCK_TEST(C40_a_killed_guard_ends_the_program),
        LOCK_TEST(C40_nothing_else_loses_it),
        LOCK_TEST(C40_without_a_database_nothing_runs),
        LOCK_TEST(C40_behind_a_pooler_it_is_a_lease),
        LOCK_TEST(C40_a_session_keeps_leases_away),
        LOCK_TEST(C40_a_lease_taken_while_a_session_waited_counts),
        LOCK_TEST(C40_sessions_and_leases_in_a_storm),
        LOCK_TEST(C40_a_stopped_holder_of_a_lease_has_no_program_when_it_ends),
    };
    /* Of several programs that are started here one may be waited for by another's wait. */
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
