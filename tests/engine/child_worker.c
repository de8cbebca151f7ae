/* child_worker.c - a worker to be killed: runs one program per event on one thread and asks one
 * that stays on another, both for ever, in the directory it was started in.
 *
 *   child_worker RUN_COMMAND EXEC_COMMAND LEASE_MS
 *
 * LEASE_MS: of the first, which runs as long as the worker does; 0: none.
 */
#include "base/clock.h"
#include "base/str.h"
#include "engine/child/child.h"

#include <pthread.h>
#include <stdlib.h>

static child_keeper *keeper;
static child_lease lease;

static child_call call_for_ever(void)
{
    return (child_call){ .line = weir__str("{}"),
                         .deadline_mono_us =
                             weir__clock_mono(weir__clock_machine()) + INT64_C(3600000000) };
}

static void *run(void *ctx)
{
    child_call call = call_for_ever();
    child_result result = { .kind = 0 };

    call.lease = &lease;
    if (weir__child_run(keeper, ctx, &call, &result, NULL) != WEIR_OK) {
        abort();
    }
    return NULL;
}

static void *ask(void *ctx)
{
    child_result result = { .kind = 0 };
    child *c = NULL;

    if (weir__child_open(&c, keeper, ctx, NULL) != WEIR_OK) {
        abort();
    }
    for (;;) {
        const child_call call = call_for_ever();
        if (weir__child_ask(c, &call, &result, NULL) != WEIR_OK) {
            abort();
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t runs, asks;

    if (argc != 4 || !weir__child_lease_init(&lease) ||
        weir__child_keeper_open(&keeper, NULL) != WEIR_OK) {
        return 1;
    }
    const long lease_ms = strtol(argv[3], NULL, 10);
    if (lease_ms > 0) {
        weir__child_lease_set(&lease, weir__clock_boot() + lease_ms * 1000);
    }
    if (pthread_create(&runs, NULL, run, argv[1]) != 0 ||
        pthread_create(&asks, NULL, ask, argv[2]) != 0) {
        return 1;
    }
    return pthread_join(asks, NULL);
}
