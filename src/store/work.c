/* work.c - whether what an adapter has committed may give somebody work: promise (6) of store.h.
 *
 * A wake-up too many costs every process a look; one too few leaves work until somebody polls.
 */
#include "store/store.h"

#include <stdlib.h>

bool weir__settle_gives_work(const store_settle *settle, bool behind)
{
    if (settle->sql != NULL || settle->appends_count > 0) {
        return true;
    }
    switch (settle->end) {
    case STORE_END_RELEASE:
        return behind;
    case STORE_END_KEEP:
        return false;
    case STORE_END_DEFER: /* who sleeps until something is due has to know */
    case STORE_END_BLOCK:
        break;
    }
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

bool weir__leased_all(int64_t *ids, size_t count, const store_lease_list *list)
{
    size_t leased = 0;
    if (count == 0) {
        return true;
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 0; i < list->leases_count; i++) {
        const int64_t target = list->leases[i].target;
        leased += bsearch(&target, ids, count, sizeof *ids, compare_ids) != NULL;
    }
    return leased == count;
}
