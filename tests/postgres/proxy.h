/* proxy.h - a proxy between a store and its server, which fails in the ways a network does.
 *
 * It listens on a socket in a directory of its own and passes everything on to the test's server,
 * in both directions, until it is told otherwise. One thread. It knows one thing of the protocol:
 * the message with which the server says that it has finished, which it sends after the commit.
 *
 * THREADS  Any thread may call these.
 */
#ifndef WEIR_TESTS_POSTGRES_PROXY_H
#define WEIR_TESTS_POSTGRES_PROXY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct proxy proxy;

/* Ends the program when it cannot be had. */
proxy *proxy_start(void);
void proxy_stop(proxy *p);
/* Where to connect: the directory of the socket (libpq's host), with the server's port. */
const char *proxy_host(const proxy *p);

/* The next answer to a statement whose text holds `text` (NULL: to anything) is not passed on: when
 * the server has said that it has finished, both connections are closed. Once. */
void proxy_cut_answer(proxy *p, const char *text);
/* The next message that holds `text` is not passed on: both connections are closed. Once. */
void proxy_cut_request(proxy *p, const char *text);
int proxy_cuts(proxy *p); /* how often either has happened */
/* From now on nothing is passed on over the connections there are, which stay open; *new ones* are
 * treated the same only with `all`. */
void proxy_blackhole(proxy *p, bool all);
void proxy_heal(proxy *p); /* new connections work again; those that were swallowed stay so */
void proxy_close_all(proxy *p);
int proxy_connections(proxy *p); /* open, to the client */

#endif
