/* stop.c - see stop.h. */
#include "base/stop.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool weir__stop_init(weir_stop *s)
{
    *s = (weir_stop){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    return s->fd >= 0;
}

void weir__stop_destroy(weir_stop *s)
{
    (void)close(s->fd);
}

void weir__stop_set(weir_stop *s)
{
    const uint64_t one = 1;
    atomic_store(&s->set, true); /* first: whoever is woken looks at it */
    const ssize_t written = write(s->fd, &one, sizeof one);
    (void)written; /* it cannot be full */
}

bool weir__stop_is_set(const weir_stop *s)
{
    return s != NULL && atomic_load(&s->set);
}

int weir__stop_fd(const weir_stop *s)
{
    return s == NULL ? -1 : s->fd;
}
