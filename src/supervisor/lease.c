/* lease.c - see lease.h. */
#include "supervisor/lease.h"

#include "base/assert.h"
#include "base/clock.h"
#include "supervisor/supervisor.h"

bool weir__child_lease_init(child_lease *l)
{
    *l = (child_lease){ .until_us = INT64_MAX, .leash_fd = -1 };
    return weir__mutex_init(&l->mu);
}

void weir__child_lease_destroy(child_lease *l)
{
    WEIR_ASSERT(l->leash_fd == -1);
    weir__mutex_destroy(&l->mu);
}

void weir__child_lease_set(child_lease *l, int64_t until_us)
{
    weir__lock(&l->mu);
    l->until_us = until_us;
    if (l->leash_fd >= 0) {
        weir__leash_tell(l->leash_fd, LEASH_UNTIL, 0, until_us);
    }
    weir__unlock(&l->mu);
}

bool weir__child_lease_has_ended(child_lease *l)
{
    weir__lock(&l->mu);
    const int64_t until_us = l->until_us;
    weir__unlock(&l->mu);
    return weir__clock_boot() >= until_us;
}

void weir__child_lease_attach(child_lease *l, int leash_fd)
{
    weir__lock(&l->mu);
    WEIR_ASSERT(l->leash_fd == -1);
    l->leash_fd = leash_fd;
    weir__leash_tell(leash_fd, LEASH_UNTIL, 0, l->until_us);
    weir__unlock(&l->mu);
}

void weir__child_lease_detach(child_lease *l)
{
    weir__lock(&l->mu);
    WEIR_ASSERT(l->leash_fd >= 0);
    weir__leash_tell(l->leash_fd, LEASH_UNTIL, 0, INT64_MAX);
    l->leash_fd = -1;
    weir__unlock(&l->mu);
}
