/* load.c - see load.h. */
#include "load.h"

#include "bench.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In memory that processes share. */
typedef struct load {
    const bench_side *side;
    void *ctx;
    int64_t own_count; /* of each caller */
    int64_t callers, from, each, categories;
    pthread_barrier_t barrier;
    _Atomic int64_t cpu_us, switches; /* of callers that are processes */
} load;

typedef struct caller {
    load *load;
    int64_t number;
} caller;

static void load_append(const load *l, void *opened, const char *stream, size_t stream_len,
                        int64_t version, int64_t number)
{
    const bench_event e = {
        .stream = stream, .stream_len = stream_len, .version = version, .number = number
    };
    l->side->append(opened, &e);
}

static void caller_warm(const caller *c, void *opened)
{
    char stream[BENCH_NAME_BYTES];
    const int len = snprintf(stream, sizeof stream, "warm-%d-%d", (int)getpid(), (int)c->number);
    for (int64_t i = 0; i < BENCH_WARM; i++) {
        load_append(c->load, opened, stream, (size_t)len, i, i);
    }
}

static size_t stream_name(const load *l, int64_t number, char out[BENCH_NAME_BYTES])
{
    const char *kind = l->each > 0 ? "new" : "order";
    const int len = l->categories == 0
                        ? snprintf(out, BENCH_NAME_BYTES, "%s-%lld", kind, (long long)number)
                        : snprintf(out, BENCH_NAME_BYTES, "%s%lld-%lld", kind,
                                   (long long)(number % l->categories), (long long)number);
    return (size_t)len;
}

static void caller_append(const caller *c, void *opened)
{
    const load *l = c->load;
    char stream[BENCH_NAME_BYTES];
    const int64_t streams =
        l->each > 0 ? l->own_count : (BENCH_STREAMS - c->number + l->callers - 1) / l->callers;
    for (int64_t i = 0; i < l->own_count; i++) {
        const int64_t turn = l->each > 0 ? i / l->each : i % streams;
        const int64_t version = l->each > 0 ? i % l->each : l->from + i / streams;
        const size_t len = stream_name(l, c->number + turn * l->callers, stream);
        load_append(l, opened, stream, len, version, i);
    }
}

static void *caller_main(void *arg)
{
    const caller *c = arg;
    load *l = c->load;
    void *opened = l->side->open(l->ctx);
    caller_warm(c, opened);
    (void)pthread_barrier_wait(&l->barrier); /* warm */
    (void)pthread_barrier_wait(&l->barrier); /* the time has begun */
    const bench_timer started = bench_start();
    caller_append(c, opened);
    if (l->side->processes) {
        const bench_timer ended = bench_start();
        (void)atomic_fetch_add(&l->cpu_us, ended.cpu_us - started.cpu_us);
        (void)atomic_fetch_add(&l->switches, ended.switches - started.switches);
    }
    (void)pthread_barrier_wait(&l->barrier); /* done */
    (void)pthread_barrier_wait(&l->barrier); /* reported */
    if (l->side->close != NULL) {
        l->side->close(opened);
    }
    return NULL;
}

/* A caller that fails would be waited for at a barrier for ever. */
static void child_ended(int signal_number)
{
    (void)signal_number;
    static const char text[] = "bench: a process failed\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1); /* and the other callers with it */
}

static void load_time(load *l, int64_t events)
{
    (void)pthread_barrier_wait(&l->barrier);
    bench_timer started = bench_start_server();
    (void)pthread_barrier_wait(&l->barrier);
    (void)pthread_barrier_wait(&l->barrier);
    started.cpu_us -= atomic_load(&l->cpu_us);
    started.switches -= atomic_load(&l->switches);
    bench_report(started, events);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)pthread_barrier_wait(&l->barrier);
}

static void run_threads(load *l, caller *list)
{
    pthread_t threads[BENCH_CALLERS_MAX];
    for (int64_t i = 0; i < l->callers; i++) {
        bench_must(pthread_create(&threads[i], NULL, caller_main, &list[i]) == 0, "no thread");
    }
    load_time(l, l->own_count * l->callers);
    for (int64_t i = 0; i < l->callers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static void run_processes(load *l, caller *list)
{
    (void)signal(SIGCHLD, child_ended);
    for (int64_t i = 0; i < l->callers; i++) {
        const pid_t pid = fork();
        bench_must(pid >= 0, "cannot start a process");
        if (pid == 0) {
            (void)signal(SIGCHLD, SIG_DFL);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)caller_main(&list[i]);
            _exit(0);
        }
    }
    load_time(l, l->own_count * l->callers);
    while (wait(NULL) > 0) {
    }
}

void bench_load_run(int argc, char **argv, const bench_side *side, void *ctx)
{
    caller list[BENCH_CALLERS_MAX];
    pthread_barrierattr_t shared;
    load *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bench_must(l != MAP_FAILED, "no memory");
    const int64_t callers = bench_number(argc, argv, "callers", 1);
    bench_must(callers >= 1 && callers <= BENCH_CALLERS_MAX, "1 to 256 callers");
    l->side = side;
    l->ctx = ctx;
    l->callers = callers;
    l->own_count = bench_number(argc, argv, "count", 10000) / callers;
    l->from = bench_number(argc, argv, "from", 0);
    l->each = bench_number(argc, argv, "each", 0);
    l->categories = bench_number(argc, argv, "categories", 0);
    (void)pthread_barrierattr_init(&shared);
    (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&l->barrier, &shared, (unsigned)callers + 1);
    for (int64_t i = 0; i < callers; i++) {
        list[i] = (caller){ .load = l, .number = i };
    }
    (side->processes ? run_processes : run_threads)(l, list);
    (void)munmap(l, sizeof *l);
}
