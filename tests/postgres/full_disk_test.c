/* full_disk_test.c - a server whose disk is full refuses, loses nothing, and goes on when there is
 * room (C12, C13, C33).
 *
 * METHOD  A real file system of a few megabytes (tmpfs, in a mount namespace of this process alone)
 * holds what grows: the database in a tablespace, or the write-ahead log. A server that was started
 * in the same namespace uses it, and dies with this process. Callers on one handle fill it by
 * appending. What was acknowledged must be there; of what was not, only what nobody knew about may
 * be. Mounting needs root: without it the tests fail and say so.
 */
#include "pg_support.h"
#include "servers.h"
#include "targets_support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DISK_MIB = 24,
    BALLAST_BYTES = 6 * 1024 * 1024,
    THREADS = 8,
    PAD_BYTES = 1500,
    LARGE_BYTES = 200 * 1024,
    APPENDS_MAX = 100000, /* a disk that takes so many is not full */
    PLACE_BYTES = 256,
};

/* ---- the disk and its server ---------------------------------------------------------------- */

static char disk_place[PLACE_BYTES];
static pid_t server_pid;

static void in_disk(char path[PLACE_BYTES + 16], const char *name)
{
    (void)snprintf(path, PLACE_BYTES + 16, "%s/%s", disk_place, name);
}

static void disk_make(void)
{
    static bool own_namespace;
    char size[32], ballast[PLACE_BYTES + 16];
    /* EINVAL: the root is not a mount point, as in a chroot. */
    if (!own_namespace &&
        (unshare(CLONE_NEWNS) != 0 ||
         (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 && errno != EINVAL))) {
        fail_msg("a mount namespace of its own is needed, as root: %s", strerror(errno));
    }
    own_namespace = true;
    (void)snprintf(disk_place, sizeof disk_place, "%s/disk", test_environment("WEIR_TEST_PG_DIR"));
    (void)snprintf(size, sizeof size, "size=%dm", DISK_MIB);
    test_shell("mkdir $dir/disk");
    if (mount("tmpfs", disk_place, "tmpfs", 0, size) != 0) {
        fail_msg("a small file system cannot be mounted (root is needed): %s", strerror(errno));
    }
    assert_int_equal(chmod(disk_place, 0777), 0);
    in_disk(ballast, "ballast");
    test_shell("head -c %d /dev/zero > %s", BALLAST_BYTES, ballast);
}

static void disk_make_room(void)
{
    char ballast[PLACE_BYTES + 16];
    in_disk(ballast, "ballast");
    assert_int_equal(unlink(ballast), 0);
}

static void disk_remove(void)
{
    assert_int_equal(umount(disk_place), 0);
    test_shell("rmdir $dir/disk");
}

/* more: for initdb. Whoever does not ask for more gets commits that a panic takes back. */
static void cluster_make(const char *more)
{
    test_shell("mkdir $dir/full-socket; $bin/initdb -D $dir/full -U postgres -A trust -E UTF8 "
               "--locale=C.UTF-8 --no-sync --wal-segsize=1 %s; "
               "printf \"unix_socket_directories = \\x27%%s\\x27\\nlisten_addresses = \\x27\\x27\\n"
               "fsync = off\\nmax_wal_size = 64MB\\nautovacuum = off\\nsynchronous_commit = off\\n"
               "wal_writer_delay = 10s\\n\" $dir/full-socket "
               ">> $dir/full/postgresql.conf",
               more);
}

/* A child of ours, which the kernel ends when we end, however that is. */
static void server_run(void)
{
    const char *user = test_environment("WEIR_TEST_PG_USER");
    char program[PLACE_BYTES], data[PLACE_BYTES], log[PLACE_BYTES];
    (void)snprintf(program, sizeof program, "%s/postgres", test_environment("WEIR_TEST_PG_BIN"));
    (void)snprintf(data, sizeof data, "%s/full", test_environment("WEIR_TEST_PG_DIR"));
    (void)snprintf(log, sizeof log, "%s/full.log", test_environment("WEIR_TEST_PG_DIR"));
    (void)fflush(NULL);
    server_pid = fork();
    assert_true(server_pid >= 0);
    if (server_pid == 0) {
        if (freopen(log, "a", stderr) == NULL || freopen("/dev/null", "w", stdout) == NULL ||
            chdir("/") != 0) {
            _exit(1);
        }
        (void)execlp("setpriv", "setpriv", "--pdeathsig", "QUIT", "--reuid", user, "--regid", user,
                     "--init-groups", "--", program, "-D", data, (char *)NULL);
        _exit(1);
    }
}

static PGconn *server_wait(pg_test *t, const char *database)
{
    for (int i = 0; i < 300; i++) {
        PGconn *conn = PQconnectdb(server_url("full", database));
        if (PQstatus(conn) == CONNECTION_OK) {
            t->conns[t->conns_count++] = conn;
            return conn;
        }
        PQfinish(conn);
        (void)usleep(100000);
    }
    fail_msg("the server cannot be reached");
    return NULL;
}

static bool server_is_gone(void)
{
    if (server_pid != 0 && waitpid(server_pid, NULL, WNOHANG) == server_pid) {
        server_pid = 0;
    }
    return server_pid == 0;
}

/* Ends it as a crash would, if it is there: what it had not made durable is gone. */
static void server_crash(void)
{
    if (!server_is_gone()) {
        assert_int_equal(kill(server_pid, SIGQUIT), 0);
        assert_int_equal(waitpid(server_pid, NULL, 0), server_pid);
        server_pid = 0;
    }
}

static void server_end_now(void)
{
    server_crash();
    test_shell("rm -rf $dir/full $dir/full-socket");
}

/* ---- callers -------------------------------------------------------------------------------- */

typedef struct filler {
    weir *w;
    int number;
    int64_t acknowledged;
    int32_t status;
    weir_error err;
    pthread_t thread;
} filler;

/* Digits that no compression makes much smaller. */
static void fill_random(char *text, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        seed = seed * 1103515245U + 12345U;
        text[i] = (char)('0' + (seed >> 16) % 75); /* '0' to 'z' */
        if (text[i] == '\\') {
            text[i] = '/';
        }
    }
    text[0] = '"';
    text[bytes - 2] = '"';
    text[bytes - 1] = '\0';
}

static int32_t append_text(weir *w, const char *stream, const char *data, int64_t *version,
                           weir_error *err)
{
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str(stream),
                               .name = weir__str("A"), .data = weir__str(data) };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    const weir_append_result *result = NULL;
    const int32_t status = weir_append(w, &r, &result, err);
    if (status == WEIR_OK) {
        *version = result->streams[0]->last;
        weir_append_result_free(result);
    }
    return status;
}

static void *filler_main(void *arg)
{
    filler *f = arg;
    char data[PAD_BYTES], stream[32];
    (void)snprintf(stream, sizeof stream, "s-%d", f->number);
    while (f->acknowledged < APPENDS_MAX) {
        int64_t version = -1;
        fill_random(data, sizeof data, (unsigned)(f->number * APPENDS_MAX + f->acknowledged));
        f->status = append_text(f->w, stream, data, &version, &f->err);
        if (f->status != WEIR_OK || version != f->acknowledged) {
            return NULL;
        }
        f->acknowledged++;
    }
    return NULL;
}

static void fill(weir *w, filler *fillers)
{
    for (int i = 0; i < THREADS; i++) {
        fillers[i] = (filler){ .w = w, .number = i };
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, filler_main, &fillers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(fillers[i].thread, NULL), 0);
        assert_int_not_equal(fillers[i].status, WEIR_OK);
    }
}

/* Of every caller's stream all that was acknowledged, and one more where nobody could know. */
static void nothing_is_lost(pg_test *t, PGconn *conn, const filler *fillers)
{
    for (int i = 0; i < THREADS; i++) {
        const int64_t there =
            test_number(conn, "SELECT count(*) FROM %s.events WHERE stream = 's-%d'", t->schema, i);
        const int64_t last = test_number(
            conn, "SELECT coalesce(max(version), -1) FROM %s.events WHERE stream = 's-%d'",
            t->schema, i);
        assert_int_equal(last, there - 1);
        assert_true(there >= fillers[i].acknowledged);
        assert_true(there <= fillers[i].acknowledged + (fillers[i].status == WEIR_EUNKNOWN));
    }
}

static weir *weir_on(pg_test *t, const char *database)
{
    char url[TEST_URL_BYTES + TEST_SCHEMA_BYTES];
    (void)snprintf(url, sizeof url, "%s&schema=%s", server_url("full", database), t->schema);
    const weir_options options = { WEIR_OPTIONS_INIT, .store_url = url,
                                   .application = "weir-test" };
    weir *w = NULL;
    TEST_OK(t, weir_open(&options, &w, &t->err));
    t->weirs[t->weirs_count++] = w;
    return w;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static weir_status settle_with_effect(const work *job, char *data, weir_error *err)
{
    store_append_stream stream = { .name = weir__str("effect") };
    weir_error own = { 0 };
    const store_new_event event = { .name = weir__str("E"),
                                    .data = weir__str(data),
                                    .meta = weir__str("{}") };
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1, .err = &own
    };
    store_append *appends[] = { &append };
    const store_advance advance = { .reaction = job->reaction, .to = job->event };
    store_settle settle = { .target = job->lease.target,
                            .fence = job->lease.fence,
                            .appends = appends,
                            .appends_count = 1,
                            .advances = &advance,
                            .advances_count = 1 };
    return job->s->work->settle(job->s, &settle, err);
}

static void C12_a_full_tablespace_refuses_and_loses_nothing(void **state)
{
    pg_test *t = *state;
    filler fillers[THREADS];
    disk_make();
    cluster_make("");
    server_run();
    PGconn *conn = server_wait(t, "postgres");
    test_shell("mkdir $dir/disk/space");
    test_exec(conn, "CREATE TABLESPACE small LOCATION '%s/space'", disk_place);
    test_exec(conn, "CREATE DATABASE full_one TABLESPACE small");
    conn = server_wait(t, "full_one");

    weir *w = weir_on(t, "full_one");
    store_options options = test_options(t);
    char place[TEST_URL_BYTES];
    (void)snprintf(place, sizeof place, "%s", server_url("full", "full_one"));
    options.path = weir__str(place);
    work job = { .s = test_store_with(t, &options) };
    job.reaction = give_reaction(t, job.s, "r", STORE_RULE_CONSTANT);
    job.event = test_put(t, job.s, "order-1", "Placed");
    give_mark(t, job.s, "r", "t", job.event, job.event);
    job.lease = take_lease(t, job.s);

    fill(w, fillers);
    for (int i = 0; i < THREADS; i++) {
        if (fillers[i].status != WEIR_EIO || strcmp(fillers[i].err.store_code, "53100") != 0 ||
            strstr(fillers[i].err.message, "No space left on device") == NULL) {
            fail_msg("caller %d: status %d, \"%s\" (%s)", i, fillers[i].status,
                     fillers[i].err.message, fillers[i].err.store_code);
        }
        assert_true(fillers[i].acknowledged > 0);
    }
    nothing_is_lost(t, conn, fillers);
    /* Reading needs no room; a settle whose effect has none leaves the lease as it was. */
    char *large = malloc(LARGE_BYTES);
    assert_non_null(large);
    fill_random(large, LARGE_BYTES, 7);
    TEST_IS(t, settle_with_effect(&job, large, &t->err), WEIR_EIO);
    assert_string_equal(t->err.store_code, "53100");
    assert_int_equal(
        test_number(conn, "SELECT count(*) FROM %s.events WHERE stream = 'effect'", t->schema), 0);
    assert_int_equal(test_number(conn, "SELECT at FROM %s.subscriptions", t->schema),
                     job.event - 1);

    disk_make_room();
    TEST_OK(t, settle_with_effect(&job, large, &t->err));
    assert_int_equal(test_number(conn, "SELECT at FROM %s.subscriptions", t->schema), job.event);
    int64_t version = -1;
    TEST_OK(t, append_text(w, "s-0", "{}", &version, &t->err));
    assert_int_equal(version, fillers[0].acknowledged);
    nothing_is_wrong(t, job.s);
    free(large);
    test_weir_close(t, w);
    test_store_close(t, job.s);
    server_end_now();
    disk_remove();
}

/* The server cannot go on: it panics, and does not come back before there is room. Then it does,
 * and the same handle is at work again. */
static void C12_a_full_disk_of_the_log_loses_nothing(void **state)
{
    pg_test *t = *state;
    filler fillers[THREADS];
    disk_make();
    cluster_make("-X $dir/disk/wal");
    server_run();
    PGconn *conn = server_wait(t, "postgres");
    weir *w = weir_on(t, "postgres");
    /* Nothing gives room back: what a slot keeps is not removed. */
    test_exec(conn, "SELECT pg_create_physical_replication_slot('keeps', true)");

    fill(w, fillers);
    int64_t acknowledged = 0;
    for (int i = 0; i < THREADS; i++) {
        const int32_t status = fillers[i].status;
        acknowledged += fillers[i].acknowledged;
        if (status != WEIR_EUNKNOWN && status != WEIR_EUNAVAILABLE && status != WEIR_EIO) {
            fail_msg("caller %d: status %d, \"%s\" (%s)", i, status, fillers[i].err.message,
                     fillers[i].err.store_code);
        }
    }
    assert_true(acknowledged > 1000);
    test_shell("grep -q \"No space left on device\" $dir/full.log");
    disk_make_room();
    /* It may be gone, starting again, or about to notice: from here on its state is known. */
    server_crash();
    server_run();
    conn = server_wait(t, "postgres");
    nothing_is_lost(t, conn, fillers);
    int64_t version = -1;
    int32_t status = WEIR_EUNAVAILABLE;
    for (int i = 0; i < 100 && status == WEIR_EUNAVAILABLE; i++) {
        status = append_text(w, "after", "{}", &version, &t->err);
    }
    TEST_OK(t, status);
    assert_int_equal(version, 0);
    test_weir_close(t, w);
    server_end_now();
    disk_remove();
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C12_a_full_tablespace_refuses_and_loses_nothing),
        PG_TEST(C12_a_full_disk_of_the_log_loses_nothing),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
