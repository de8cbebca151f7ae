/* listener.h - the connection that listens: one per handle, driven by the thread of wake.c.
 *
 * Nothing here blocks, except libpq's look-up of a host's name: the owner waits for `fd` and for
 * `due_us`, then calls step, which says what has happened.
 *
 *   DOWN --begin--> CONNECTING --> GREETING --> TESTING --> JOINING --> READY
 *     ^                 |              |           |            |          |
 *     +-----------------+--- lost -----+-----------+------------+----------+
 *     +------------------------ deaf --------------+
 *
 * GREETING finds out who the server's process is and listens to a channel that nobody else knows;
 * TESTING waits for a notification on it. Behind a pooler that gives every transaction another
 * server connection it never comes: such a connection is deaf, and only then is it known. The
 * store's own channel is listened to when the test has passed: a pooler's connections, which others
 * will use, do not collect it. With it goes the lock by which writers know that somebody listens,
 * and a word to those that listen already.
 *
 * WHAT MUST STAY TRUE  A connection that is READY has answered within the last LISTENER_QUIET_US +
 * LISTENER_ANSWER_US: one that is dead without a word (a proxy that no longer forwards, a failed
 * over address) is noticed by that.
 *
 * THREADS  Everything belongs to the thread of wake.c.
 */
#ifndef WEIR_STORE_POSTGRES_LISTENER_H
#define WEIR_STORE_POSTGRES_LISTENER_H

#include "store/postgres/postgres_private.h"

enum { LISTENER_CHANNEL_BYTES = 48 };
#define LISTENER_QUIET_US   INT64_C(3000000) /* without a word for so long: ask */
#define LISTENER_ANSWER_US  INT64_C(3000000) /* no answer for so long: lost */
#define LISTENER_CONNECT_US INT64_C(3000000) /* for each host */

typedef enum listener_state {
    LISTENER_DOWN = 0,
    LISTENER_CONNECTING,
    LISTENER_GREETING,
    LISTENER_TESTING,
    LISTENER_JOINING,
    LISTENER_READY,
} listener_state;

/* What a step can tell, as bits. */
enum {
    LISTENER_TOLD_WAKE = 1,    /* somebody else has notified */
    LISTENER_TOLD_READY = 2,   /* from now on notifications arrive */
    LISTENER_TOLD_TEST = 4,    /* send a notification to `test_channel`, by another connection */
    LISTENER_TOLD_OTHERS = 8,  /* others listen: one has come, or we have looked */
    LISTENER_TOLD_LOST = 16,   /* DOWN again; `why` */
    LISTENER_TOLD_DEAF = 32,   /* DOWN again: notifications do not arrive here; `why` */
    LISTENER_TOLD_SILENT = 64, /* with LOST: it was fine, and then no longer answered */
    LISTENER_TOLD_ALONE = 128, /* we have looked, and nobody else listens: nothing was sent */
};

typedef struct pg_listener {
    pg_store *store; /* borrowed */
    listener_state state;
    PGconn *raw;     /* owned; NULL while DOWN */
    int64_t due_us;  /* monotonic: step must be called by then; INT64_MAX: no need */
    short events;    /* to poll for on fd */
    size_t host;     /* which one of the URL's comes next, from 0, without end */
    size_t hosts;    /* how many there are */
    int32_t process; /* of the server, as it names itself in notifications */
    bool asking;     /* a statement is on its way */
    bool notifying;  /* ... and it is our notification */
    bool looking;    /* ... which is sent only if others listen */
    bool heard;      /* the test's notification has come */
    char channel[LISTENER_CHANNEL_BYTES];
    char test_channel[LISTENER_CHANNEL_BYTES];
    char why[256];
} pg_listener;

void weir__pg_listener_init(pg_listener *l, pg_store *s);
void weir__pg_listener_close(pg_listener *l);
/* From DOWN: starts to connect, to the next host if there are several. The bits as of step. */
uint32_t weir__pg_listener_begin(pg_listener *l, int64_t now_us);
int weir__pg_listener_fd(const pg_listener *l); /* -1: none */
/* fd was ready, or due_us has come. */
uint32_t weir__pg_listener_step(pg_listener *l, int64_t now_us);
/* READY and no statement on its way: sends our notification; with `look` only if others listen:
 * OTHERS or ALONE follows. false: not now. */
bool weir__pg_listener_notify(pg_listener *l, bool look, int64_t now_us);
/* Whether the result of sql_listener_notify_others says that nobody else listens. */
bool weir__pg_listener_alone(const PGresult *result);

#endif
