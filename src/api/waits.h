/* waits.h - the waits under way on a handle, and ending them: weir_interrupt and weir_close.
 *
 *     weir__waits_begin(waits, &mark);          before the first poll
 *     poll what is waited for, and weir__waits_fd(waits)
 *     while weir__waits_goes_on(waits, &mark)
 *     weir__waits_end(waits, &mark);
 *
 * An interrupt ends the waits that have begun, and none that begins later. Its descriptor stays
 * readable until all of them have ended; a wait that would begin meanwhile begins after that.
 */
#ifndef WEIR_API_WAITS_H
#define WEIR_API_WAITS_H

#include "base/thread.h"
#include "weir.h"

typedef struct wait_list {
    int fd; /* owned; immutable */
    weir_mutex mu;
    weir_cond drained;
    /* guarded by mu */
    size_t waiting;
    size_t ending;        /* of those, that were interrupted and have not ended */
    uint64_t interrupted; /* how often */
    bool closed;          /* no wait goes on any more */
} wait_list;

typedef struct wait_mark {
    uint64_t interrupted; /* when it began */
} wait_mark;

bool weir__waits_init(wait_list *w);    /* false: nothing was made */
void weir__waits_destroy(wait_list *w); /* nobody waits */

void weir__waits_begin(wait_list *w, wait_mark *mark);
bool weir__waits_goes_on(wait_list *w, const wait_mark *mark);
void weir__waits_end(wait_list *w, const wait_mark *mark);
int weir__waits_fd(const wait_list *w);

/* Ends the waits under way. */
void weir__waits_interrupt(wait_list *w);
/* The same, and those that begin later. */
void weir__waits_close(wait_list *w);

/* WEIR_EINTERRUPTED, for a call that was waiting. */
weir_status weir__waits_failed(weir_error *err);

#endif
