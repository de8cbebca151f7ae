/* bouncer.h - the real pgbouncer before the test's server.
 *
 * It runs as the server's user (it refuses root), listens on a socket in a directory of its own,
 * and ends with the test's program, however that ends.
 */
#ifndef WEIR_TESTS_POSTGRES_BOUNCER_H
#define WEIR_TESTS_POSTGRES_BOUNCER_H

#include <sys/types.h>

typedef struct bouncer {
    pid_t process;
    char directory[64]; /* libpq's host */
} bouncer;

/* mode: "transaction" or "session". size: connections to the server. Ends the program when it
 * cannot be had. */
bouncer bouncer_start(const char *mode, int size);
void bouncer_stop(bouncer *b);

#endif
