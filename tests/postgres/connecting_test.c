/* connecting_test.c - what becomes of a connection while it is being made: nothing that the server
 * says then reaches stderr, a server that is away or starting up is waited for when a store is
 * opened, what waiting cannot mend is told at once, and a host that is silent is passed over.
 *
 * What no real server says on demand comes from a server that is not one: a socket on loopback that
 * answers with messages of the test.
 */
#include "pg_support.h"
#include "proxy.h"
#include "servers.h"

#include "lock/lock.h"
#include "store/pg_url.h"
#include "table/table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)
#define LONG   (600 * SECOND) /* longer than the suite may take */

/* ---- stderr -------------------------------------------------------------------------------- */

static int stderr_before = -1;
static char stderr_path[64];

static void stderr_catch(void)
{
    fflush(stderr);
    snprintf(stderr_path, sizeof stderr_path, "/tmp/weir-stderr.XXXXXX");
    const int fd = mkstemp(stderr_path);
    stderr_before = dup(STDERR_FILENO);
    assert_true(fd >= 0 && stderr_before >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    close(fd);
}

/* How many bytes were written to it. */
static int64_t stderr_release(void)
{
    fflush(stderr);
    const off_t bytes = lseek(STDERR_FILENO, 0, SEEK_END);
    assert_int_equal(dup2(stderr_before, STDERR_FILENO), STDERR_FILENO);
    close(stderr_before);
    unlink(stderr_path);
    return bytes;
}

/* ---- a server that is not one -------------------------------------------------------------- */

typedef struct fake {
    int fd;
    int port;
    pthread_t thread;
    char answer[2048]; /* to the startup message */
    size_t answer_len;
    _Atomic int answered;
} fake;

static void fake_add(fake *f, char type, const void *body, size_t len)
{
    const uint32_t size = htonl((uint32_t)len + 4);
    assert_true(f->answer_len + len + 5 <= sizeof f->answer);
    f->answer[f->answer_len] = type;
    memcpy(f->answer + f->answer_len + 1, &size, 4);
    memcpy(f->answer + f->answer_len + 5, body, len);
    f->answer_len += len + 5;
}

/* A NOTICE ('N') or an error ('E'). */
static void fake_say(fake *f, char type, const char *severity, const char *sqlstate,
                     const char *text)
{
    char body[512];
    const int len = snprintf(body, sizeof body, "S%s%cV%s%cC%s%cM%s%c", severity, 0, severity, 0,
                             sqlstate, 0, text, 0);
    assert_true(len > 0 && (size_t)len < sizeof body);
    body[len] = '\0';
    fake_add(f, type, body, (size_t)len + 1);
}

static void fake_welcome(fake *f)
{
    fake_add(f, 'R', "\0\0\0\0", 4);
    fake_add(f, 'S', "server_version\00015.0", sizeof "server_version\00015.0");
    fake_add(f, 'K', "\0\0\0\1\0\0\0\1", 8);
    fake_add(f, 'Z', "I", 1);
}

/* Answers every connection the same, and closes it. */
static void *fake_serve(void *arg)
{
    fake *f = arg;
    for (;;) {
        char startup[1024];
        const int conn = accept(f->fd, NULL, NULL);
        if (conn < 0) {
            return NULL;
        }
        if (read(conn, startup, sizeof startup) > 0 && f->answer_len > 0) {
            f->answered += write(conn, f->answer, f->answer_len) > 0;
            shutdown(conn, SHUT_WR);
            while (read(conn, startup, sizeof startup) > 0) {
            }
        }
        close(conn);
    }
}

static void fake_listen(fake *f, int backlog)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    *f = (fake){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    assert_true(f->fd >= 0);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(f->fd, backlog), 0);
    assert_int_equal(getsockname(f->fd, (struct sockaddr *)&at, &len), 0);
    f->port = ntohs(at.sin_port);
}

static void fake_start(fake *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, fake_serve, f), 0);
}

static void fake_stop(fake *f)
{
    shutdown(f->fd, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->fd);
}

/* ---- helpers ------------------------------------------------------------------------------- */

static store_options options_of(pg_test *t, int64_t busy_us, const char *format, ...)
    WEIR_PRINTF(3, 4);
static store_options options_of(pg_test *t, int64_t busy_us, const char *format, ...)
{
    static char path[TEST_URL_BYTES];
    va_list args;
    store_options options = test_options(t);
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    options.path = weir__str(path);
    options.busy_us = busy_us;
    return options;
}

static store_options options_to(pg_test *t, const fake *f)
{
    return options_of(t, 1, "postgres://weir@127.0.0.1:%d/weir?sslmode=disable&gssencmode=disable",
                      f->port);
}

static void assert_clean(const weir_error *err)
{
    for (const char *ch = err->message; *ch != '\0'; ch++) {
        assert_true((unsigned char)*ch >= ' ');
    }
}

/* ---- nothing on stderr --------------------------------------------------------------------- */

#define HOSTILE "\033]0;owned\007\033[31mred\033[0m"

/* Everything that connects: stores, locks, tables of others. */
static void connect_in_every_way(pg_test *t, const fake *f)
{
    weir_store *s = NULL;
    const store_options options = options_to(t, f);
    char url[TEST_URL_BYTES];
    table_db *db = NULL;
    table_session *session = NULL;
    lock_list locks = { 0 };
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    assert_int_equal(t->err.code, WEIR_EUNAVAILABLE);
    assert_clean(&t->err);
    snprintf(url, sizeof url, "%s&busy=1ms", options.path.ptr);
    TEST_OK(t, weir__table_open(&db, &(table_options){ .url = url }, &t->err));
    TEST_IS(t, weir__table_session_open(db, &session, &t->err), WEIR_EUNAVAILABLE);
    assert_clean(&t->err);
    weir__table_close(db);
    TEST_IS(t, weir__lock_list(url, &locks, &t->err), WEIR_EUNAVAILABLE);
    assert_clean(&t->err);
}

static void what_a_server_says_while_connecting_is_not_printed(void **state)
{
    pg_test *t = *state;
    enum { BEFORE, AFTER, BYE, CASES };
    for (int i = 0; i < CASES; i++) {
        fake f;
        fake_listen(&f, 8);
        if (i == BEFORE) {
            fake_say(&f, 'N', "NOTICE", "00000", HOSTILE);
            fake_say(&f, 'E', "FATAL", "53300", HOSTILE);
        } else {
            fake_welcome(&f);
            fake_say(&f, i == AFTER ? 'N' : 'E', i == AFTER ? "WARNING" : "FATAL", "57P01",
                     HOSTILE);
        }
        fake_start(&f);
        stderr_catch();
        connect_in_every_way(t, &f);
        const int64_t written = stderr_release();
        fake_stop(&f);
        assert_int_equal(written, 0);
        assert_true(f.answered >= 3);
    }
}

static void a_farewell_while_connecting_is_in_the_error(void **state)
{
    pg_test *t = *state;
    weir_store *s = NULL;
    fake f;
    fake_listen(&f, 8);
    fake_welcome(&f);
    fake_say(&f, 'E', "FATAL", "57P01", "we are closing");
    fake_start(&f);
    const store_options options = options_to(t, &f);
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    fake_stop(&f);
    assert_non_null(strstr(t->err.message, "we are closing"));
}

/* ---- waiting when a store is opened -------------------------------------------------------- */

typedef struct opener {
    store_options options;
    weir_store *store;
    weir_status status;
    weir_error err;
    pthread_t thread;
} opener;

static void *open_now(void *arg)
{
    opener *o = arg;
    o->status = weir__postgres_open(&o->store, &o->options, &o->err);
    return NULL;
}

/* Nobody listens there: each attempt fails at once, and busy= is all that is waited for. */
static void C41_whoever_waits_for_a_server_has_the_whole_busy_time(void **state)
{
    pg_test *t = *state;
    enum { BUSY_US = 700 * 1000, RUNS = 3 };
    char url[TEST_URL_BYTES];
    weir_store *s = NULL;
    table_db *db = NULL;
    table_session *session = NULL;
    pg_database database;
    pg_pool *pool = NULL;
    pg_conn *conn = NULL;
    store_options options =
        options_of(t, BUSY_US, "postgres://weir@127.0.0.1:1/weir?sslmode=disable");
    snprintf(url, sizeof url, "%s&busy=700ms", options.path.ptr);
    TEST_OK(t, weir__table_open(&db, &(table_options){ .url = url }, &t->err));
    TEST_OK(t, weir__pg_url_database(&database, &options, &weir__pg_guest, NULL, &t->err));
    TEST_OK(t, weir__pg_pool_open(&pool, &database, 0, &t->err));
    for (int i = 0; i < RUNS; i++) {
        int64_t began_us = weir__clock_mono(weir__clock_machine());
        TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
        assert_true(weir__clock_mono(weir__clock_machine()) - began_us >= BUSY_US);
        began_us = weir__clock_mono(weir__clock_machine());
        TEST_IS(t, weir__table_session_open(db, &session, &t->err), WEIR_EUNAVAILABLE);
        assert_true(weir__clock_mono(weir__clock_machine()) - began_us >= BUSY_US);
        began_us = weir__clock_mono(weir__clock_machine());
        TEST_IS(t, weir__pg_pool_take(pool, 0, &conn, &t->err), WEIR_EUNAVAILABLE);
        assert_true(weir__clock_mono(weir__clock_machine()) - began_us >= BUSY_US);
    }
    weir__pg_pool_close(pool);
    weir__table_close(db);
}

/* Opens in the background, once it is known that it is refused at the moment. */
static void open_begin(pg_test *t, opener *o)
{
    *o = (opener){ .options = o->options, .err = { .size = sizeof o->err } };
    store_options at_once = o->options;
    at_once.busy_us = 1;
    TEST_IS(t, weir__postgres_open(&o->store, &at_once, &t->err), WEIR_EUNAVAILABLE);
    assert_int_equal(pthread_create(&o->thread, NULL, open_now, o), 0);
}

static void open_end(opener *o)
{
    pthread_join(o->thread, NULL);
    if (o->status != WEIR_OK) {
        fail_msg("not opened: %s", o->err.message);
    }
    o->store->about->close(o->store);
}

static void C41_opening_waits_for_a_server_that_is_away(void **state)
{
    pg_test *t = *state;
    opener o;
    server_make("away");
    server_end("away");
    o.options = options_of(t, LONG, "%s", server_url("away", "postgres"));
    stderr_catch();
    open_begin(t, &o);
    server_start("away");
    open_end(&o);
    assert_int_equal(stderr_release(), 0);
    server_remove("away");
}

/* A standby that lets nobody in answers like a server that is starting up, until it is promoted. */
static void C41_opening_waits_for_a_server_that_is_starting_up(void **state)
{
    pg_test *t = *state;
    opener o;
    server_make("slow");
    server_end("slow");
    test_shell("echo \"hot_standby = off\" >> $dir/slow/postgresql.conf; touch "
               "$dir/slow/standby.signal; $bin/pg_ctl -D $dir/slow -l $dir/slow.log -s -W start");
    o.options = options_of(t, LONG, "%s", server_url("slow", "postgres"));
    /* Until it answers at all. */
    PGPing ping = PQPING_NO_RESPONSE;
    while ((ping = PQping(server_url("slow", "postgres"))) != PQPING_REJECT) {
        usleep(10000);
    }
    stderr_catch();
    open_begin(t, &o);
    assert_null(strstr(t->err.message, "57P03"));
    assert_null(strstr(t->err.message, ".c:"));
    test_shell("$bin/pg_ctl -D $dir/slow -s -w promote");
    open_end(&o);
    assert_int_equal(stderr_release(), 0);
    server_remove("slow");
}

static void C41_opening_waits_for_a_server_without_room(void **state)
{
    pg_test *t = *state;
    opener o;
    test_store_close(t, test_store(t));
    test_exec(t->conn,
              "CREATE ROLE narrow LOGIN CONNECTION LIMIT 0; GRANT USAGE ON SCHEMA %s TO narrow; "
              "GRANT ALL ON ALL TABLES IN SCHEMA %s TO narrow",
              t->schema, t->schema);
    o.options = options_of(t, LONG, "postgres:///postgres?host=%s&user=narrow",
                           test_environment("WEIR_TEST_PG_DIR"));
    stderr_catch();
    open_begin(t, &o);
    assert_non_null(strstr(t->err.detail, "no connection to spare"));
    test_exec(t->conn, "ALTER ROLE narrow CONNECTION LIMIT -1");
    open_end(&o);
    assert_int_equal(stderr_release(), 0);
    test_exec(t->conn, "DROP OWNED BY narrow; DROP ROLE narrow");
}

/* These end although there is time for more attempts than the suite may take. */
static void what_waiting_cannot_mend_is_told_at_once(void **state)
{
    pg_test *t = *state;
    weir_store *s = NULL;
    const char *dir = test_environment("WEIR_TEST_PG_DIR");
    store_options options =
        options_of(t, LONG, "postgres:///postgres?host=%s&user=nobody_knows", dir);
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    assert_non_null(strstr(t->err.detail, "CREATE ROLE"));
    options = options_of(t, LONG, "postgres:///nowhere?host=%s&user=postgres", dir);
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    assert_non_null(strstr(t->err.message, "database \"nowhere\" does not exist"));
    assert_null(strstr(t->err.message, "3D000"));
    assert_non_null(strstr(t->err.detail, "createdb"));
    test_exec(t->conn, "CREATE DATABASE closed ALLOW_CONNECTIONS false");
    options = options_of(t, LONG, "postgres:///closed?host=%s&user=postgres", dir);
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    assert_non_null(strstr(t->err.detail, "ALTER DATABASE ... ALLOW_CONNECTIONS true"));
    assert_null(strstr(t->err.detail, "createdb"));
    test_exec(t->conn, "DROP DATABASE closed");
}

/* ---- cut while opening --------------------------------------------------------------------- */

static void C41_a_connection_that_is_cut_while_opening_is_made_again(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    /* Asking who the server is, looking for the store, making it: each is cut once. */
    static const char *const cut[] = { "pg_backend_pid", "to_regclass", "COMMIT" };
    int cuts = 0;
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        weir_store *s = NULL;
        store_options options =
            options_of(t, 1, "postgres:///postgres?host=%s&user=postgres", proxy_host(p));
        proxy_cut_answer(p, cut[i]);
        if (i < 2) { /* only looking: it is known that nothing has happened */
            TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
            assert_int_equal(t->err.code, WEIR_EUNAVAILABLE);
            assert_null(strstr(t->err.message, "not known"));
            assert_non_null(strstr(t->err.message, "was lost while"));
            assert_int_equal(proxy_cuts(p), ++cuts);
            proxy_cut_answer(p, cut[i]);
        }
        options.busy_us = LONG;
        s = test_store_with(t, &options);
        assert_int_equal(proxy_cuts(p), ++cuts);
        test_put(t, s, "s-0", "Happened");
        test_store_close(t, s);
        test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA %s CASCADE", t->schema);
    }
    proxy_stop(p);
}

/* ---- several hosts ------------------------------------------------------------------------- */

enum { WAITING = 8 };

/* A host that takes no connections: its queue is full. */
static void full_start(fake *full, int waiting[WAITING])
{
    fake_listen(full, 0);
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)full->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < WAITING; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(waiting[i], (struct sockaddr *)&at, sizeof at);
    }
}

static void full_stop(const fake *full, const int waiting[WAITING])
{
    for (int i = 0; i < WAITING; i++) {
        close(waiting[i]);
    }
    close(full->fd);
}

/* Of the hosts one does not take connections (its queue is full), one takes them and says nothing,
 * one is not there. The last one is the server. */
static void hosts_that_do_not_answer_are_passed_over(void **state)
{
    pg_test *t = *state;
    proxy *p = proxy_start();
    fake full;
    int waiting[WAITING];
    full_start(&full, waiting);
    proxy_blackhole(p, true);
    store_options options = options_of(
        t, 1,
        "postgres:///postgres?host=127.0.0.1,%s,/nowhere,%s,%s&port=%d,5432,5432,5432,5432"
        "&user=postgres&connect_timeout=2&sslmode=disable",
        proxy_host(p), proxy_host(p), test_environment("WEIR_TEST_PG_DIR"), full.port);
    weir_store *s = test_store_with(t, &options);
    test_put(t, s, "s-0", "Happened");
    test_store_close(t, s);
    /* Nothing but such hosts: each of them is named. */
    options = options_of(t, 1,
                         "postgres:///postgres?host=127.0.0.1,%s&port=%d,5432&user=postgres"
                         "&connect_timeout=2&sslmode=disable",
                         proxy_host(p), full.port);
    TEST_IS(t, weir__postgres_open(&s, &options, &t->err), WEIR_EUNAVAILABLE);
    assert_non_null(strstr(t->err.message, proxy_host(p)));
    full_stop(&full, waiting);
    proxy_stop(p);
}

/* Each mention has its own connect_timeout, 2 s. Nothing else limits a connect() but the system, at
 * about 130 s: tcp_user_timeout, which Weir sets to 9 s, is off. */
static void a_host_that_is_named_twice_is_passed_over_twice(void **state)
{
    pg_test *t = *state;
    fake full;
    int waiting[WAITING];
    full_start(&full, waiting);
    store_options options =
        options_of(t, 1,
                   "postgres:///postgres?host=127.0.0.1,127.0.0.1,%s&port=%d,%d,5432"
                   "&user=postgres&connect_timeout=2&tcp_user_timeout=0&sslmode=disable",
                   test_environment("WEIR_TEST_PG_DIR"), full.port, full.port);
    const int64_t start_us = pg_mono_us();
    weir_store *s = test_store_with(t, &options);
    assert_true(pg_mono_us() - start_us < 90 * SECOND);
    test_store_close(t, s);
    full_stop(&full, waiting);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(what_a_server_says_while_connecting_is_not_printed),
        PG_TEST(a_farewell_while_connecting_is_in_the_error),
        PG_TEST(C41_opening_waits_for_a_server_that_is_away),
        PG_TEST(C41_opening_waits_for_a_server_that_is_starting_up),
        PG_TEST(C41_opening_waits_for_a_server_without_room),
        PG_TEST(C41_whoever_waits_for_a_server_has_the_whole_busy_time),
        PG_TEST(what_waiting_cannot_mend_is_told_at_once),
        PG_TEST(C41_a_connection_that_is_cut_while_opening_is_made_again),
        PG_TEST(hosts_that_do_not_answer_are_passed_over),
        PG_TEST(a_host_that_is_named_twice_is_passed_over_twice),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
