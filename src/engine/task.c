/* task.c - waits that grow. */
#include "engine/task.h"

int64_t weir__task_backoff_us(task *t, int attempt, int64_t base_us, int64_t cap_us)
{
    int64_t wait_us = base_us;

    for (int i = 0; i < attempt && wait_us < cap_us; i++) {
        wait_us = wait_us > cap_us / 2 ? cap_us : wait_us * 2;
    }
    wait_us = wait_us < cap_us ? wait_us : cap_us;
    /* Half of it is kept: many that failed together come back neither together nor at once. */
    const int64_t half_us = wait_us / 2;
    const uint64_t random = t->scheduler->random(t->scheduler);
    return wait_us - half_us + (int64_t)(random % ((uint64_t)half_us + 1));
}
