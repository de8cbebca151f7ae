/* watch.c - watches: an eventfd each, written when something was committed, here or elsewhere.
 *
 * A watch that was woken is not written again until it was waited for: a busy store costs a watcher
 * that is behind nothing.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/postgres/wake.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void weir__pg_watches_wake(pg_wake *w)
{
    weir__lock(&w->mu);
    for (store_watch *watch = w->watches; watch != NULL; watch = watch->next) {
        if (!watch->pending) {
            const uint64_t one = 1;
            const ssize_t written = write(watch->fd, &one, sizeof one);
            WEIR_ASSERT(written == (ssize_t)sizeof one);
            watch->pending = true;
        }
    }
    weir__unlock(&w->mu);
}

weir_status weir__pg_watch_open(weir_store *s, store_watch **out, weir_error *err)
{
    pg_wake *w = pg_of(s)->wake;
    /* First, so that what is committed elsewhere after this call wakes the watch, and becoming able
     * to listen does not. */
    const weir_status status = weir__pg_wake_listen(w, err);
    if (status != WEIR_OK) {
        return status;
    }
    store_watch *watch = weir__calloc(1, sizeof *watch);
    if (watch == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a watch");
    }
    watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->fd < 0) {
        const int error = errno;
        weir__free(watch);
        (void)weir__fail(err, WEIR_EIO, "could not open a wake-up descriptor: errno %d", error);
        weir__error_store_code(err, "%d", error);
        return WEIR_EIO;
    }
    watch->wake = w;
    weir__lock(&w->mu);
    watch->next = w->watches;
    if (watch->next != NULL) {
        watch->next->previous = watch;
    }
    w->watches = watch;
    weir__unlock(&w->mu);
    *out = watch;
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

weir_status weir__pg_watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken,
                                weir_error *err)
{
    (void)err;
    *woken = wait_readable(watch->fd, timeout_ms);
    if (*woken) {
        uint64_t count;
        weir__lock(&watch->wake->mu);
        const ssize_t got = read(watch->fd, &count, sizeof count);
        WEIR_ASSERT(got == (ssize_t)sizeof count);
        watch->pending = false;
        weir__unlock(&watch->wake->mu);
    }
    return WEIR_OK;
}

int weir__pg_watch_fd(store_watch *watch)
{
    return watch->fd;
}

void weir__pg_watch_close(store_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    pg_wake *w = watch->wake;
    weir__lock(&w->mu);
    if (watch->previous != NULL) {
        watch->previous->next = watch->next;
    } else {
        w->watches = watch->next;
    }
    if (watch->next != NULL) {
        watch->next->previous = watch->previous;
    }
    weir__unlock(&w->mu);
    (void)close(watch->fd);
    weir__free(watch);
}
