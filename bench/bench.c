/* bench.c - see bench.h. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

const char bench_meta[] = "{\"correlation\":\"01936f00-0000-7000-8000-000000000000\"}";

size_t bench_data(char *out, int64_t number)
{
    const int n = snprintf(out, BENCH_DATA_BYTES,
                           "{\"order\":%" PRId64 ",\"customer\":\"customer-%05d\",\"lines\":["
                           "{\"sku\":\"KB-104-DE\",\"count\":1,\"price\":\"49.90\"},"
                           "{\"sku\":\"MS-7-BLK\",\"count\":2,\"price\":\"19.95\"}],"
                           "\"currency\":\"EUR\",\"note\":\"leave it at the door\"}",
                           number, (int)(number % 100000));
    bench_must(n > 0 && n < BENCH_DATA_BYTES, "an event does not fit");
    return (size_t)n;
}

size_t bench_stream(char *out, int64_t number)
{
    const int n = snprintf(out, BENCH_NAME_BYTES, "order-%d", (int)(number % BENCH_STREAMS));
    bench_must(n > 0 && n < BENCH_NAME_BYTES, "a stream's name does not fit");
    return (size_t)n;
}

int64_t bench_now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t cpu_us(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

bench_timer bench_start(void)
{
    return (bench_timer){ .wall_us = bench_now_us(), .cpu_us = cpu_us() };
}

void bench_report(bench_timer started, int64_t events)
{
    (void)printf("{\"events\":%" PRId64 ",\"wall_us\":%" PRId64 ",\"cpu_us\":%" PRId64 "}\n",
                 events, bench_now_us() - started.wall_us, cpu_us() - started.cpu_us);
}

const char *bench_text(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, name) == 0) {
            return argv[i + 1];
        }
    }
    return otherwise;
}

int64_t bench_number(int argc, char **argv, const char *name, int64_t otherwise)
{
    const char *found = bench_text(argc, argv, name, NULL);
    return found == NULL ? otherwise : strtoll(found, NULL, 10);
}

void bench_must(int condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "bench: %s\n", what);
        exit(1);
    }
}
