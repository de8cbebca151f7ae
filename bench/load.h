/* load.h - the load of the append rows, the same for all sides.
 *
 *     --count N --callers C [--from F] [--each E] [--categories K]
 *
 * C callers, threads or processes, append N events. Each caller appends one event after the other,
 * to streams of its own, so it knows their versions. The callers go round BENCH_STREAMS streams,
 * which have F events each. With --each, a stream gets E events before the caller goes on to a new
 * one: one append in E creates a stream. All streams are in one category, or in K.
 *
 * Every caller makes BENCH_WARM appends to another stream before the time begins. It begins when
 * all callers are connected and warm, and ends with the last append, before anything is closed.
 */
#ifndef WEIR_BENCH_LOAD_H
#define WEIR_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_WARM = 20, BENCH_CALLERS_MAX = 256 };

typedef struct bench_event {
    const char *stream;
    size_t stream_len;
    int64_t version; /* that it will have */
    int64_t number;  /* see bench_data */
} bench_event;

typedef struct bench_side {
    void *(*open)(void *ctx); /* for a caller */
    void (*append)(void *caller, const bench_event *event);
    void (*close)(void *caller); /* or NULL */
    bool processes;              /* callers are processes, not threads */
} bench_side;

/* Runs the load of the arguments and reports; what fails ends the program. */
void bench_load_run(int argc, char **argv, const bench_side *side, void *ctx);

#endif
