/* queue.c - see queue.h. */
#include "queue.h"

#include "bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 10 };

typedef struct crew {
    queue_options options;
    const queue_side *side;
    bool each;
    int64_t count;
    _Atomic unsigned char *seen; /* by row */
    _Atomic int64_t handled;
    pthread_barrier_t ready; /* connected; the time begins */
} crew;

typedef struct member {
    crew *crew;
    int number;
} member;

bool queue_is_postgres(const char *url)
{
    return strncmp(url, "postgres", 8) == 0;
}

static void handle(crew *c, const int64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bench_must(ids[i] >= 1 && ids[i] <= c->count, "a row that was not pending");
        bench_must(atomic_fetch_add(&c->seen[ids[i]], 1) == 0, "a row was taken twice");
    }
    (void)atomic_fetch_add(&c->handled, (int64_t)count);
}

static void *work(void *argument)
{
    const member *m = argument;
    crew *c = m->crew;
    int64_t ids[QUEUE_LIMIT_MAX];
    char name[QUEUE_NAME_BYTES];
    size_t count;
    (void)snprintf(name, sizeof name, "worker-%d", m->number);
    void *worker = c->side->open(&c->options, name);
    (void)pthread_barrier_wait(&c->ready);
    while ((count = c->side->take(worker, ids)) > 0) {
        bench_must((int64_t)count <= c->options.limit, "more rows than asked for");
        handle(c, ids, count);
        const size_t step = c->each ? 1 : count;
        for (size_t i = 0; i < count; i += step) {
            c->side->finish(worker, ids + i, step);
        }
    }
    c->side->close(worker);
    return NULL;
}

static void run_crew(crew *c, int64_t workers)
{
    pthread_t threads[QUEUE_WORKERS_MAX];
    member members[QUEUE_WORKERS_MAX];
    bench_must(workers >= 1 && workers <= QUEUE_WORKERS_MAX, "1 to 64 workers");
    c->seen = calloc((size_t)c->count + 1, sizeof *c->seen);
    bench_must(c->seen != NULL, "no memory");
    (void)pthread_barrier_init(&c->ready, NULL, (unsigned)workers + 1);
    for (int i = 0; i < (int)workers; i++) {
        members[i] = (member){ .crew = c, .number = i };
        bench_must(pthread_create(&threads[i], NULL, work, &members[i]) == 0, "no thread");
    }
    (void)pthread_barrier_wait(&c->ready);
    const bench_timer started = bench_start();
    for (int i = 0; i < (int)workers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    bench_must(atomic_load(&c->handled) == c->count, "not every row was taken");
    bench_report(started, c->count);
    (void)pthread_barrier_destroy(&c->ready);
    free(c->seen);
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void take_often(const queue_options *options, const queue_side *side, int64_t times)
{
    static int64_t took[QUEUE_TIMES_MAX];
    int64_t ids[QUEUE_LIMIT_MAX];
    bench_must(times >= 1 && times <= QUEUE_TIMES_MAX, "1 to 100000 times");
    void *worker = side->open(options, "worker-0");
    for (int64_t i = -WARM; i < times; i++) {
        const int64_t from = bench_now_us();
        const size_t count = side->take(worker, ids);
        if (i >= 0) {
            took[i] = bench_now_us() - from;
        }
        bench_must((int64_t)count == options->limit, "not as many rows as asked for");
        side->put_back(worker, ids, count);
    }
    side->close(worker);
    qsort(took, (size_t)times, sizeof took[0], by_size);
    (void)printf("{\"p50_us\":%" PRId64 ",\"p99_us\":%" PRId64 ",\"min_us\":%" PRId64 "}\n",
                 took[times / 2], took[times * 99 / 100], took[0]);
}

bool queue_run(int argc, char **argv, const queue_side *side)
{
    const queue_options options = { .url = bench_text(argc, argv, "url", ""),
                                    .limit = bench_number(argc, argv, "limit", 1),
                                    .lease = bench_number(argc, argv, "lease", 0) != 0,
                                    .pgmq = bench_number(argc, argv, "pgmq", 0) != 0 };
    bench_must(options.limit >= 1 && options.limit <= QUEUE_LIMIT_MAX, "a limit of 1 to 1000");
    if (argc > 1 && strcmp(argv[1], "work") == 0) {
        crew c = { .options = options,
                   .side = side,
                   .each = bench_number(argc, argv, "each", 0) != 0,
                   .count = bench_number(argc, argv, "count", 1000) };
        run_crew(&c, bench_number(argc, argv, "workers", 1));
        return true;
    }
    if (argc > 1 && strcmp(argv[1], "take") == 0) {
        take_often(&options, side, bench_number(argc, argv, "times", 300));
        return true;
    }
    return false;
}
