/* wake.h - the watches of a handle, and the thread that wakes them.
 *
 * THREADS  `mu` is a leaf lock: nothing is sent, received or waited for while it is held.
 */
#ifndef WEIR_STORE_POSTGRES_WAKE_H
#define WEIR_STORE_POSTGRES_WAKE_H

#include "store/postgres/listener.h"
#include "store/watches.h"

struct pg_wake {
    pg_store *store;     /* borrowed */
    int fd;              /* owned; immutable: readable when the thread has something to look at */
    _Atomic bool unsent; /* something was committed that nobody else was told of yet */
    _Atomic int64_t written;  /* events of this handle so far */
    _Atomic int64_t position; /* of the last of them, or of one shortly before it */
    _Atomic bool unhinted;    /* and nobody was asked since how far the log is final */

    weir_mutex mu;
    weir_cond settled; /* `mode` has changed */
    /* guarded by mu */
    watch_list watches;
    const char *mode; /* as weir__pg_wake_mode tells; static text */
    bool testing;     /* ... and may become another in a moment */
    bool running;     /* there is a thread */
    bool listen;      /* somebody has opened a watch: from then on we listen */
    bool stopping;
    pthread_t thread; /* while running */

    /* owned by the thread */
    pg_listener listener;
    int attempt;                         /* to reach the server, in a row */
    int64_t next_begin_us;               /* when to connect the listener */
    int64_t next_notify_us;              /* not before */
    bool alone;                          /* nobody else listened when we looked last */
    int64_t next_look_us, look_us;       /* when to look again; how long that is, always */
    int64_t told_written, told_position; /* as they were when we notified last */
    int64_t next_poll_us;                /* while notifications do not arrive */
    int64_t hint_to;                     /* weir.safe is to get there; 0: it is */
    int64_t next_hint_us, hint_pause_us; /* not before; how long after one that did not get there */
};

#endif
