/* handle.h - tickets: what the public functions are given in place of addresses.
 *
 * A program may end a handle while other threads of it are inside a call, and a language runtime
 * may use one after that. A ticket names a place in a table and how often that place has been used.
 * It is compared, never followed: one that has ended is refused, also after its place was given to
 * another handle.
 *
 *     OPEN --shut--> CLOSED --the last call has left--> FREE (and the object is ended)
 *
 * Calls enter and leave; from `shut` on nobody enters. Any thread.
 */
#ifndef WEIR_BASE_HANDLE_H
#define WEIR_BASE_HANDLE_H

#include <stdbool.h>

enum { HANDLES_MAX = 16384 }; /* that are open at the same time */

typedef enum handle_kind { HANDLE_STORE = 1, HANDLE_ENGINE = 2, HANDLE_TABLES = 3 } handle_kind;

/* A ticket for the object. NULL: HANDLES_MAX are open. end: called with the object, once, after the
 * last call has left. */
void *weir__handle_open(handle_kind kind, void *object, void (*end)(void *object));

/* The object, which lives at least until `leave`. NULL: this is no handle of that kind, or it was
 * shut. */
void *weir__handle_enter(handle_kind kind, const void *ticket);
void weir__handle_leave(const void *ticket);

/* Refuses calls from now on. Gives the object, for waking the calls inside: call weir__handle_end
 * next. NULL: somebody else has shut it. */
void *weir__handle_shut(handle_kind kind, const void *ticket);
/* Waits for the calls inside and ends the object. Called from inside a call (a callback), it does
 * not wait: the last call that leaves ends the object. forked: those inside are threads of another
 * process, which nobody waits for. */
void weir__handle_end(const void *ticket, bool forked);

#endif
