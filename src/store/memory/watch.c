/* watch.c - wake-ups: an eventfd for each watch, written when something was committed.
 *
 * THREADS  `pending` and the list are guarded by the core's mutex. A watch that has been woken is
 * not written again until it was waited for: a busy store costs a watcher that is behind nothing.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/memory/memory_store.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct store_watch {
    memory_core *core; /* counted reference */
    int fd;            /* owned; immutable  */
    /* guarded by core->mu */
    bool pending; /* the fd is readable */
    store_watch *next, *previous;
};

void weir__memory_wake(memory_core *c)
{
    for (store_watch *w = c->watches; w != NULL; w = w->next) {
        if (!w->pending) {
            const uint64_t one = 1;
            const ssize_t written = write(w->fd, &one, sizeof one);
            WEIR_ASSERT(written == (ssize_t)sizeof one);
            w->pending = true;
        }
    }
}

weir_status weir__memory_watch_open(weir_store *base, store_watch **out, weir_error *err)
{
    memory_handle *h = weir__memory_handle(base);
    store_watch *w = weir__calloc(1, sizeof *w);
    if (w == NULL) {
        return weir__memory_full(err);
    }
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0) {
        const int error = errno;
        weir__free(w);
        weir__fail(err, WEIR_EIO, "could not open a wake-up descriptor: errno %d", error);
        weir__error_store_code(err, "%d", error);
        return WEIR_EIO;
    }
    w->core = h->core;
    weir__memory_core_retain(w->core);
    weir__lock(&w->core->mu);
    w->next = w->core->watches;
    if (w->next != NULL) {
        w->next->previous = w;
    }
    w->core->watches = w;
    weir__unlock(&w->core->mu);
    *out = w;
    return WEIR_OK;
}

/* Waits until the fd is readable. false: the time is over. */
static bool wait_readable(int fd, int32_t timeout_ms)
{
    const weir_clock *clock = weir__clock_machine();
    const int64_t end_us = weir__clock_mono(clock) + (int64_t)timeout_ms * 1000;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int left_ms = timeout_ms < 0 ? -1 : timeout_ms;

    for (;;) {
        const int rc = poll(&p, 1, left_ms);
        if (rc >= 0) {
            return rc > 0;
        }
        WEIR_ASSERT(errno == EINTR);
        if (timeout_ms >= 0) {
            const int64_t left_us = end_us - weir__clock_mono(clock);
            left_ms = left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
        }
    }
}

weir_status weir__memory_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                    weir_error *err)
{
    (void)err;
    *woken = wait_readable(watch->fd, timeout_ms);
    if (*woken) {
        uint64_t count;
        weir__lock(&watch->core->mu);
        const ssize_t got = read(watch->fd, &count, sizeof count);
        WEIR_ASSERT(got == (ssize_t)sizeof count);
        watch->pending = false;
        weir__unlock(&watch->core->mu);
    }
    return WEIR_OK;
}

int weir__memory_watch_fd(store_watch *watch)
{
    return watch->fd;
}

void weir__memory_watch_close(store_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    memory_core *c = watch->core;
    weir__lock(&c->mu);
    if (watch->previous != NULL) {
        watch->previous->next = watch->next;
    } else {
        c->watches = watch->next;
    }
    if (watch->next != NULL) {
        watch->next->previous = watch->previous;
    }
    weir__unlock(&c->mu);
    (void)close(watch->fd);
    weir__free(watch);
    weir__memory_core_release(c);
}
