/* watches.c - see watches.h. */
#include "store/watches.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void weir__watches_wake_locked(watch_list *list)
{
    for (store_watch *watch = list->first; watch != NULL; watch = watch->next) {
        if (!watch->pending) {
            const uint64_t one = 1;
            const ssize_t written = write(watch->fd, &one, sizeof one);
            WEIR_ASSERT(written == (ssize_t)sizeof one);
            watch->pending = true;
        }
    }
}

weir_status weir__watch_add(watch_list *list, void *owner, store_watch **out, weir_error *err)
{
    store_watch *watch = weir__calloc(1, sizeof *watch);
    if (watch == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    watch->list = list;
    watch->owner = owner;
    watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->fd < 0) {
        const int error = errno;
        weir__free(watch);
        (void)weir__fail(err, WEIR_EIO, "could not open a wake-up descriptor: errno %d", error);
        weir__error_store_code(err, "%d", error);
        return WEIR_EIO;
    }
    weir__lock(list->mu);
    watch->next = list->first;
    if (watch->next != NULL) {
        watch->next->previous = watch;
    }
    list->first = watch;
    weir__unlock(list->mu);
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

weir_status weir__watch_wait(store_watch *watch, int32_t timeout_ms, bool *woken, weir_error *err)
{
    (void)err;
    *woken = wait_readable(watch->fd, timeout_ms);
    if (*woken) {
        uint64_t count;
        weir__lock(watch->list->mu);
        const ssize_t got = read(watch->fd, &count, sizeof count);
        WEIR_ASSERT(got == (ssize_t)sizeof count);
        watch->pending = false;
        weir__unlock(watch->list->mu);
    }
    return WEIR_OK;
}

int weir__watch_fd(store_watch *watch)
{
    return watch->fd;
}

void weir__watch_remove(store_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    watch_list *list = watch->list;
    weir__lock(list->mu);
    if (watch->previous != NULL) {
        watch->previous->next = watch->next;
    } else {
        list->first = watch->next;
    }
    if (watch->next != NULL) {
        watch->next->previous = watch->previous;
    }
    weir__unlock(list->mu);
    (void)close(watch->fd);
    weir__free(watch);
}
