/* watches.h - those who want to be woken, for stores that know themselves when something was
 * committed: an eventfd each.
 *
 * A watch that was woken is not written again until it was waited for: a busy store costs a watcher
 * that is behind nothing.
 */
#ifndef WEIR_STORE_WATCHES_H
#define WEIR_STORE_WATCHES_H

#include "base/thread.h"
#include "store/store.h"

typedef struct watch_list {
    weir_mutex *mu;     /* borrowed: the lock of whoever has the list */
    store_watch *first; /* guarded by mu; borrowed: their openers own them */
} watch_list;

struct store_watch {
    watch_list *list; /* borrowed */
    void *owner;      /* borrowed: what the store wants to know when it is closed */
    int fd;           /* owned; immutable */
    /* guarded by list->mu */
    bool pending; /* the fd is readable */
    store_watch *next, *previous;
};

/* Every watch of the list is woken. The caller holds its lock. */
void weir__watches_wake_locked(watch_list *list);
/* One more; ENOMEM, EIO. */
weir_status weir__watch_add(watch_list *list, void *owner, store_watch **out, weir_error *err);

/* As the port has them: watch_wait, watch_fd, watch_close. */
weir_status weir__watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken, weir_error *err);
int weir__watch_fd(store_watch *watch);
void weir__watch_remove(store_watch *watch);

#endif
