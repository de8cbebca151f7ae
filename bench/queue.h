/* queue.h - what raw_queue and weir_queue share: arguments, workers, what they report.
 *
 *     work --url URL --count N --workers W --limit L [--lease 1] [--each 1]
 *                  until nothing is left: take L rows, finish them, all in one statement or with
 *                  --each one by one. Fails unless N rows were taken, none of them twice
 *     take --url URL --limit L --times T [--lease 1]
 *                  takes L rows T times, and puts them back outside of the time: the median and the
 *                  99th percentile in microseconds
 *
 * URL is a PostgreSQL one, or the path of a SQLite file. The table "jobs" is there: queues.py makes
 * and fills it, rows numbered from 1, the first N of them pending.
 */
#ifndef WEIR_BENCH_QUEUE_H
#define WEIR_BENCH_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QUEUE_LIMIT_MAX = 1000,
    QUEUE_WORKERS_MAX = 64,
    QUEUE_TIMES_MAX = 100000,
    QUEUE_NAME_BYTES = 24,
};

#define QUEUE_LEASE_US INT64_C(30000000)

typedef struct queue_options {
    const char *url;
    int64_t limit; /* of rows to take at a time */
    bool lease;    /* ends in QUEUE_LEASE_US */
    bool pgmq;     /* raw_queue: another queue, see there */
} queue_options;

/* One side of the comparison. A worker is used by one thread. What fails ends the program. */
typedef struct queue_side {
    void *(*open)(const queue_options *options, const char *name);
    void (*close)(void *worker);
    /* Into ids, as many as QUEUE_LIMIT_MAX at most; how many it took. */
    size_t (*take)(void *worker, int64_t *ids);
    void (*finish)(void *worker, const int64_t *ids, size_t count);
    void (*put_back)(void *worker, const int64_t *ids, size_t count);
} queue_side;

bool queue_is_postgres(const char *url);
/* The verbs above. false: it is another verb. */
bool queue_run(int argc, char **argv, const queue_side *side);

#endif
