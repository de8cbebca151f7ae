/* waiters.h - whether a process of a group waits, over a connection of its own, for what a backend
 * of PostgreSQL holds.
 *
 * Who waits for whom is the server's knowledge; which process a backend works for is this
 * machine's. They are brought together by what cannot be mistaken:
 *   - the name that the group's programs were told to give their connections (PGAPPNAME), which has
 *     a random number in it; or
 *   - the address and port of the connection, which is a socket of a process of the group.
 * A program that names its connections itself and comes through a Unix socket or a pooler is not
 * recognised; nobody else is ever taken for it.
 */
#ifndef WEIR_CLAIM_WAITERS_H
#define WEIR_CLAIM_WAITERS_H

#include "table/table.h"

#include <sys/types.h>

typedef struct waiter_search {
    int64_t holder; /* the backend's process number */
    pid_t group;    /* of processes                  */
    weir_str name;  /* that its connections have, or have in it */
} waiter_search;

typedef struct waiter_found {
    bool holder_gone; /* the backend does not exist any more   */
    int64_t waiter;   /* a backend that waits for it, directly or behind others; 0: none */
} waiter_found;

/* s: another session, of PostgreSQL. Blocks as long as one query does. */
weir_status weir__waiters_look(table_session *s, const waiter_search *search, waiter_found *out,
                               weir_error *err);

/* Ends a backend that waits: the server does not notice that its client is gone, and would go on
 * with its statement as soon as the lock is free. EIO: it may not be ended by us (42501), or would
 * not. */
weir_status weir__waiter_end(table_session *s, int64_t waiter, weir_error *err);

/* The machine's part: whether a process of the group has a TCP socket with this address
 * and port on our side. */
bool weir__group_has_socket(pid_t group, weir_str address, int64_t port);

#endif
