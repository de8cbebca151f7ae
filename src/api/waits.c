/* waits.c - see waits.h.
 *
 * INVARIANT, under mu: the descriptor is readable exactly while `closed` or `ending` is not 0.
 */
#include "api/waits.h"

#include "base/error.h"

#include <sys/eventfd.h>
#include <unistd.h>

bool weir__waits_init(wait_list *w)
{
    *w = (wait_list){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    if (w->fd < 0) {
        return false;
    }
    if (!weir__mutex_init(&w->mu)) {
        (void)close(w->fd);
        return false;
    }
    if (!weir__cond_init(&w->drained)) {
        weir__mutex_destroy(&w->mu);
        (void)close(w->fd);
        return false;
    }
    return true;
}

void weir__waits_destroy(wait_list *w)
{
    weir__cond_destroy(&w->drained);
    weir__mutex_destroy(&w->mu);
    (void)close(w->fd);
}

static void fd_set_locked(wait_list *w) WEIR_REQUIRES(w->mu)
{
    const uint64_t one = 1;
    const ssize_t written = write(w->fd, &one, sizeof one);
    (void)written; /* it cannot be full: it is written once until it is read */
}

static void fd_clear_locked(wait_list *w) WEIR_REQUIRES(w->mu)
{
    uint64_t count;
    const ssize_t got = read(w->fd, &count, sizeof count);
    (void)got;
}

void weir__waits_begin(wait_list *w, wait_mark *mark)
{
    weir__lock(&w->mu);
    while (w->ending > 0 && !w->closed) {
        weir__cond_wait(&w->drained, &w->mu);
    }
    w->waiting++;
    mark->interrupted = w->interrupted;
    weir__unlock(&w->mu);
}

bool weir__waits_goes_on(wait_list *w, const wait_mark *mark)
{
    weir__lock(&w->mu);
    const bool goes_on = !w->closed && mark->interrupted == w->interrupted;
    weir__unlock(&w->mu);
    return goes_on;
}

void weir__waits_end(wait_list *w, const wait_mark *mark)
{
    weir__lock(&w->mu);
    w->waiting--;
    if (mark->interrupted != w->interrupted && --w->ending == 0) {
        if (!w->closed) {
            fd_clear_locked(w);
        }
        weir__cond_broadcast(&w->drained);
    }
    weir__unlock(&w->mu);
}

int weir__waits_fd(const wait_list *w)
{
    return w->fd;
}

void weir__waits_interrupt(wait_list *w)
{
    weir__lock(&w->mu);
    /* While some are ending there are no others. */
    if (!w->closed && w->ending == 0 && w->waiting > 0) {
        w->ending = w->waiting;
        w->interrupted++;
        fd_set_locked(w);
    }
    weir__unlock(&w->mu);
}

void weir__waits_close(wait_list *w)
{
    weir__lock(&w->mu);
    if (!w->closed) {
        w->closed = true;
        if (w->ending == 0) {
            fd_set_locked(w);
        }
        weir__cond_broadcast(&w->drained);
    }
    weir__unlock(&w->mu);
}

weir_status weir__waits_failed(weir_error *err)
{
    return weir__fail(err, WEIR_EINTERRUPTED, "the wait was interrupted by another thread");
}
