/* bench.c - see bench.h. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { PATH_BYTES = 512, FILE_BYTES = 8192 };

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

bench_timer bench_start(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (bench_timer){ .wall_us = bench_now_us(),
                          .cpu_us =
                              (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                              used.ru_utime.tv_usec + used.ru_stime.tv_usec,
                          .switches = used.ru_nvcsw + used.ru_nivcsw };
}

/* The start of DIR/PROCESS/NAME; "" if there is none. */
static void file_text(char out[FILE_BYTES], const char *dir, const char *process, const char *name)
{
    char path[PATH_BYTES];
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/%s/%s", dir, process, name);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        len = fread(out, 1, FILE_BYTES - 1, file);
        (void)fclose(file);
    }
    out[len] = '\0';
}

/* What all backends of the server have used until now; false if there is no server. */
static bool server_used(int64_t *us, int64_t *switches)
{
    char pid[FILE_BYTES], children[FILE_BYTES], text[FILE_BYTES], *rest = NULL;
    const char *data = getenv("WEIR_TEST_PG_DATA");
    if (data == NULL) {
        return false;
    }
    char children_of[PATH_BYTES];
    file_text(pid, data, ".", "postmaster.pid");
    const int digits = (int)strcspn(pid, "\n");
    (void)snprintf(children_of, sizeof children_of, "%.*s/task/%.*s", digits, pid, digits, pid);
    file_text(children, "/proc", children_of, "children");
    *us = *switches = 0;
    for (char *child = strtok_r(children, " ", &rest); child != NULL;
         child = strtok_r(NULL, " ", &rest)) {
        int64_t ran_ns, waited_ns, times;
        file_text(text, "/proc", child, "cmdline");
        if (strstr(text, "[local]") == NULL) {
            continue; /* not a client's */
        }
        file_text(text, "/proc", child, "schedstat");
        if (sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64, &ran_ns, &waited_ns, &times) == 3) {
            *us += ran_ns / 1000;
            *switches += times;
        }
    }
    return true;
}

bench_timer bench_start_server(void)
{
    int64_t us = 0, switches = 0;
    const bool server = server_used(&us, &switches);
    bench_timer t = bench_start();
    t.server = server;
    t.server_us = us;
    t.server_switches = switches;
    return t;
}

void bench_report(bench_timer started, int64_t events)
{
    int64_t us, switches;
    const bench_timer now = bench_start();
    (void)printf("{\"events\":%" PRId64 ",\"wall_us\":%" PRId64 ",\"cpu_us\":%" PRId64
                 ",\"switches\":%" PRId64,
                 events, now.wall_us - started.wall_us, now.cpu_us - started.cpu_us,
                 now.switches - started.switches);
    if (started.server && server_used(&us, &switches)) {
        (void)printf(",\"server_us\":%" PRId64 ",\"server_switches\":%" PRId64,
                     us - started.server_us, switches - started.server_switches);
    }
    (void)printf("}\n");
    (void)fflush(stdout);
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
