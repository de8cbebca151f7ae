/* servers.c - see servers.h. */
#include "servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COMMAND_BYTES = 4096, PLACE_BYTES = 256 };

const char *test_environment(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

void test_shell(const char *format, ...)
{
    char command[COMMAND_BYTES];
    char whole[COMMAND_BYTES + 1024];
    const char *dir = test_environment("WEIR_TEST_PG_DIR");
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    (void)snprintf(whole, sizeof whole,
                   "cd / && exec %s%s%s bash -c 'set -e -o pipefail; bin=%s data=%s dir=%s; %s' "
                   ">>%s/shell.log 2>&1 </dev/null",
                   geteuid() == 0 ? "runuser -u " : "",
                   geteuid() == 0 ? test_environment("WEIR_TEST_PG_USER") : "",
                   geteuid() == 0 ? " --" : "", test_environment("WEIR_TEST_PG_BIN"),
                   test_environment("WEIR_TEST_PG_DATA"), dir, command, dir);
    if (system(whole) != 0) {
        char show[PLACE_BYTES];
        (void)snprintf(show, sizeof show, "tail -30 %s/shell.log >&2", dir);
        fail_msg("could not run: %s%s", command, system(show) == 0 ? "" : ", nor show why");
    }
}

void server_start(const char *server)
{
    test_shell("$bin/pg_ctl -D $dir/%s -l $dir/%s.log -s -w start", server, server);
}

void server_end(const char *server)
{
    test_shell("$bin/pg_ctl -D $dir/%s -m immediate -s -w stop", server);
}

void server_make(const char *server)
{
    test_shell("mkdir $dir/%s-socket; $bin/initdb -D $dir/%s -U postgres -A trust -E UTF8 "
               "--locale=C.UTF-8 --no-sync; printf \"unix_socket_directories = \\x27%%s\\x27\\n"
               "listen_addresses = \\x27\\x27\\nfsync = off\\n\" $dir/%s-socket "
               ">> $dir/%s/postgresql.conf",
               server, server, server, server);
    server_start(server);
}

void server_remove(const char *server)
{
    server_end(server);
    test_shell("rm -rf $dir/%s $dir/%s-socket $dir/%s.log", server, server, server);
}

const char *server_url(const char *server, const char *database)
{
    static char url[TEST_URL_BYTES];
    (void)snprintf(url, sizeof url, "postgres:///%s?host=%s/%s-socket&user=postgres", database,
                   test_environment("WEIR_TEST_PG_DIR"), server);
    return url;
}

PGconn *server_connect(pg_test *t, const char *server, const char *database)
{
    PGconn *conn = PQconnectdb(server_url(server, database));
    if (PQstatus(conn) != CONNECTION_OK) {
        fail_msg("%s: %s", server, PQerrorMessage(conn));
    }
    assert_true(t->conns_count < TEST_HANDLES_MAX);
    t->conns[t->conns_count++] = conn;
    return conn;
}
