/* raw_group.h - the least group commit over threads: what group appends are measured against.
 *
 * Callers queue up. Whoever finds a writer idle leads: it takes what waits, writes it in one
 * transaction, hands the writer to the first of those who came meanwhile, and wakes the others.
 */
#ifndef WEIR_BENCH_RAW_GROUP_H
#define WEIR_BENCH_RAW_GROUP_H

#include "load.h"

#include <stdatomic.h>

enum { GROUP_WRITERS_MAX = 4 };

typedef struct group_item {
    const bench_event *event;
    struct group_item *next;
    void *writer; /* of a leader */
    _Atomic uint32_t state;
} group_item;

/* Writes a list of `count` events durably, in one transaction, and checks their versions. */
typedef void group_write_fn(void *writer, const group_item *items, int64_t count);

/* Runs the load of the arguments, as bench_load_run does. writers: connections, each used by one
 * thread at a time; at most `most` events to a transaction. */
void group_run(int argc, char **argv, group_write_fn *write, void *const *writers,
               int64_t writers_count, int64_t most);

#endif
