/* raw_memory.c - the reference for the memory store: a hash map, an array, a mutex, four threads.
 *
 *     raw_memory --count N --threads T
 *
 * Each append looks its stream up by name, compares the version, copies the event's texts, and
 * puts it at the end of the log; under one lock, like any log with one order.
 */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4096, THREADS_MAX = 64 }; /* four times the streams */

typedef struct event {
    int64_t id, version, created_us;
    size_t stream, data_len;
    char texts[]; /* name, meta, data */
} event;

typedef struct stream {
    char name[BENCH_NAME_BYTES];
    size_t name_len; /* 0: a free slot */
    int64_t version;
} stream;

static struct {
    pthread_mutex_t mu;
    stream streams[SLOTS];
    event **events;
    size_t count, capacity;
} store = { .mu = PTHREAD_MUTEX_INITIALIZER };

static size_t stream_find_locked(const char *name, size_t len)
{
    uint64_t h = 1469598103934665603ULL;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)name[i]) * 1099511628211ULL;
    }
    size_t slot = (size_t)(h % SLOTS);
    while (
        store.streams[slot].name_len != 0 &&
        (store.streams[slot].name_len != len || memcmp(store.streams[slot].name, name, len) != 0)) {
        slot = (slot + 1) % SLOTS;
    }
    if (store.streams[slot].name_len == 0) {
        memcpy(store.streams[slot].name, name, len);
        store.streams[slot].name_len = len;
        store.streams[slot].version = -1;
    }
    return slot;
}

static void append(const char *name, size_t name_len, int64_t expected, const char *data,
                   size_t data_len)
{
    static const char event_name[] = "OrderPlaced";
    const size_t meta_len = strlen(bench_meta);
    const int64_t now_us = bench_now_us();
    event *e = malloc(sizeof(*e) + sizeof(event_name) + meta_len + data_len);
    bench_must(e != NULL, "out of memory");
    memcpy(e->texts, event_name, sizeof(event_name));
    memcpy(e->texts + sizeof(event_name), bench_meta, meta_len);
    memcpy(e->texts + sizeof(event_name) + meta_len, data, data_len);
    e->data_len = data_len;
    e->created_us = now_us;
    pthread_mutex_lock(&store.mu);
    e->stream = stream_find_locked(name, name_len);
    bench_must(store.streams[e->stream].version == expected, "a version is not as expected");
    e->version = ++store.streams[e->stream].version;
    if (store.count == store.capacity) {
        store.capacity = store.capacity == 0 ? 1024 : store.capacity * 2;
        store.events = realloc(store.events, store.capacity * sizeof(event *));
        bench_must(store.events != NULL, "out of memory");
    }
    store.events[store.count++] = e;
    e->id = (int64_t)store.count;
    pthread_mutex_unlock(&store.mu);
}

typedef struct worker {
    int64_t number, threads, count;
} worker;

/* A thread has the streams whose number modulo the threads is its own, so versions can be
 * expected. */
static void *worker_main(void *arg)
{
    const worker *w = arg;
    char data[BENCH_DATA_BYTES], name[BENCH_NAME_BYTES];
    for (int64_t i = w->number; i < w->count; i += w->threads) {
        const size_t len = bench_stream(name, i);
        append(name, len, i / BENCH_STREAMS - 1, data, bench_data(data, i));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    worker workers[THREADS_MAX];
    const int64_t count = bench_number(argc, argv, "count", 400000);
    const int64_t n = bench_number(argc, argv, "threads", 4);
    bench_must(n >= 1 && n <= THREADS_MAX && BENCH_STREAMS % n == 0, "threads must divide 1000");
    const bench_timer t = bench_start();
    for (int64_t i = 0; i < n; i++) {
        workers[i] = (worker){ .number = i, .threads = n, .count = count };
        bench_must(pthread_create(&threads[i], NULL, worker_main, &workers[i]) == 0, "no thread");
    }
    for (int64_t i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    bench_report(t, count);
    return 0;
}
