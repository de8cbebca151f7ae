/* once.h - one run of a key of once: begun, watched while its program runs, finished (C40).
 *
 * What must stay true
 *   (1) A key whose run is not finished is somebody's for as long as its lease lasts, and the lease
 *       outlasts the program: see README.md for the times.
 *   (2) What was finished with 0 is remembered for ever, even where its output cannot be kept.
 *
 * THREADS  One at a time.
 */
#ifndef WEIR_LOCK_ONCE_H
#define WEIR_LOCK_ONCE_H

#include "lock/lock.h"
#include "store/store.h"

typedef struct once_request {
    const char *url;
    weir_str key;
    weir_str holder; /* who and where, for people to read */
    int64_t check_us, grace_us;
} once_request;

typedef struct once_run once_run;

/* Opens the store, which must be there (ENOTFOUND), and begins. Everything in *q is copied.
 * WEIR_OK: weir__once_state says what there is: the run is ours (RUNNING), or was done before
 * (DONE). EINFLIGHT: somebody else's, and the message says whose; *out is there all the same, and
 * weir__once_begin tries again. Otherwise *out is NULL. */
weir_status weir__once_open(once_run **out, const once_request *q, weir_error *err);
weir_status weir__once_begin(once_run *r, weir_error *err);
void weir__once_close(once_run *r); /* NULL is a no-op */

/* As of the last begin; borrowed until the next one. */
const store_lock *weir__once_state(const once_run *r);

/* As weir__lock_due_us and weir__lock_watch. */
int64_t weir__once_due_us(const once_run *r);
weir_status weir__once_watch(once_run *r, int64_t *known_us, weir_error *err);

/* Its end; tried for as long as the lease lasts. *kept false: the output could not be. ELOST:
 * somebody else has begun meanwhile. */
weir_status weir__once_finish(once_run *r, int exit_status, weir_str output, bool *kept,
                              weir_error *err);

#endif
