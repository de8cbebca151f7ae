/* servers.h - more servers than the one that with-server started, and what it takes to make them.
 *
 * A server made here has a name; its data, its socket and its log are below with-server's own
 * directory, in NAME, NAME-socket and NAME.log, and go with it.
 */
#ifndef WEIR_TESTS_POSTGRES_SERVERS_H
#define WEIR_TESTS_POSTGRES_SERVERS_H

#include "pg_support.h"

/* A variable that with-server sets. */
const char *test_environment(const char *name);
/* A command of the shell, as the user of the server; it must succeed. $bin, $data and $dir are
 * those of with-server. */
void test_shell(const char *format, ...) WEIR_PRINTF(1, 2);

/* Starts and ends a server whose data are there; the end is as sudden as a server's own can be. */
void server_start(const char *server);
void server_end(const char *server);
/* Makes a new cluster and starts its server. */
void server_make(const char *server);
/* Ends it, and removes what it left. */
void server_remove(const char *server);
/* A plain connection to it, closed after the test. */
PGconn *server_connect(pg_test *t, const char *server, const char *database);
/* Its URL; until the next call. */
const char *server_url(const char *server, const char *database);

#endif
