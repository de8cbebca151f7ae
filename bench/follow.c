/* follow.c - how long a commit of one process takes to come out of `weir log --follow` in another.
 *
 *     follow --weir PROGRAM --url URL --count N [--rate R]
 *
 * It starts the follower, then appends N events, R per second (0: each as soon as the one before
 * it came out), and reads the follower's output. The time is from just before the append is
 * called, so it has the commit in it, to the line having been read. Prints p50, p99 and the
 * largest, in microseconds, with the commit and without it (from the moment the append returned; a
 * follower may be the faster one: then 0).
 */
#include "bench.h"
#include "weir.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t percentile(int64_t *sorted, int64_t count, int64_t of_100)
{
    return sorted[(count - 1) * of_100 / 100];
}

static pid_t follower_start(const char *program, const char *url, FILE **out)
{
    int ends[2];
    bench_must(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)execl(program, program, "log", "--follow", "--json", "--store", url, (char *)NULL);
        _exit(127);
    }
    bench_must(pid > 0, "cannot start the follower");
    (void)close(ends[1]);
    *out = fdopen(ends[0], "r");
    bench_must(*out != NULL, "no pipe");
    return pid;
}

static void append(weir *w, int64_t number)
{
    char data[BENCH_DATA_BYTES];
    weir_error err;
    const size_t len = bench_data(data, number);
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = { "order-1", 7 },
                               .name = { "OrderPlaced", 11 }, .data = { data, len } };
    const weir_new_event *events[] = { &e };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1 };
    bench_must(weir_append(w, &r, NULL, &err) == WEIR_OK, "an append failed");
}

static void wait_until(int64_t at_us)
{
    const struct timespec at = { .tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

int main(int argc, char **argv)
{
    weir *w = NULL;
    weir_error err;
    FILE *out = NULL;
    char line[4096];
    const int64_t count = bench_number(argc, argv, "count", 500);
    const int64_t rate = bench_number(argc, argv, "rate", 100);
    const weir_options o = { WEIR_OPTIONS_INIT,
                             .store_url = bench_text(argc, argv, "url", "sqlite:weir-bench.db") };
    int64_t *whole = calloc((size_t)count, sizeof(int64_t));
    int64_t *after = calloc((size_t)count, sizeof(int64_t));
    bench_must(whole != NULL && after != NULL && weir_open(&o, &w, &err) == WEIR_OK,
               "cannot start");
    append(w, 0); /* the first line says that the follower is there */
    const pid_t follower =
        follower_start(bench_text(argc, argv, "weir", "build/weir"), o.store_url, &out);
    bench_must(fgets(line, sizeof(line), out) != NULL, "the follower says nothing");
    const int64_t begin = bench_now_us();
    for (int64_t i = 0; i < count; i++) {
        if (rate > 0) {
            wait_until(begin + i * 1000000 / rate);
        }
        const int64_t called = bench_now_us();
        append(w, i + 1);
        const int64_t returned = bench_now_us();
        bench_must(fgets(line, sizeof(line), out) != NULL, "the follower ended");
        const int64_t read = bench_now_us();
        whole[i] = read - called;
        after[i] = read > returned ? read - returned : 0;
    }
    (void)kill(follower, SIGTERM);
    (void)waitpid(follower, NULL, 0);
    weir_close(w);
    qsort(whole, (size_t)count, sizeof(int64_t), compare);
    qsort(after, (size_t)count, sizeof(int64_t), compare);
    (void)printf("{\"count\":%" PRId64 ",\"p50_us\":%" PRId64 ",\"p99_us\":%" PRId64
                 ",\"max_us\":%" PRId64 ",\"after_commit_p50_us\":%" PRId64
                 ",\"after_commit_p99_us\":%" PRId64 "}\n",
                 count, percentile(whole, count, 50), percentile(whole, count, 99),
                 whole[count - 1], percentile(after, count, 50), percentile(after, count, 99));
    free(whole);
    free(after);
    return 0;
}
