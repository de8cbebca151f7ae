/* bench.h - what the benchmark programs share: the events they write, clocks, and how they report.
 *
 * Both sides of a comparison use the same events: about 200 bytes of JSON, and meta as long as
 * what Weir stores for an append without one. A program prints one line of JSON: events, wall and
 * processor time, switches of its threads, and those of the server's backends if it asked for them.
 */
#ifndef WEIR_BENCH_BENCH_H
#define WEIR_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BENCH_DATA_BYTES = 256,
    BENCH_NAME_BYTES = 32,
    BENCH_STREAMS = 1000, /* that appends go round */
};

/* Event `number`: its JSON into `out` (BENCH_DATA_BYTES). Returns its length. */
size_t bench_data(char *out, int64_t number);
/* The stream of event `number`, into `out` (BENCH_NAME_BYTES). */
size_t bench_stream(char *out, int64_t number);
extern const char bench_meta[];

typedef struct bench_timer {
    int64_t wall_us, cpu_us, switches;
    bool server;
    int64_t server_us, server_switches;
} bench_timer;

bench_timer bench_start(void);
/* The same; the report has what the backends of the server that with-server started used as well.
 * No backend may end in between. */
bench_timer bench_start_server(void);
void bench_report(bench_timer started, int64_t events);

int64_t bench_now_us(void); /* monotonic, the same in all processes */
/* The number behind --NAME in the arguments, or `otherwise`. */
int64_t bench_number(int argc, char **argv, const char *name, int64_t otherwise);
const char *bench_text(int argc, char **argv, const char *name, const char *otherwise);
void bench_must(int condition, const char *what);

#endif
