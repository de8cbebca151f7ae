/* weir_store.c - the same work as the raw programs, through libweir.
 *
 *     weir_store append --url URL, and the load of load.h            callers are threads
 *     weir_store many --url URL, and the load of load.h              callers are processes
 *     weir_store one --url URL, and the load of load.h               threads, all to one stream,
 *                                                                    which may have any version
 *     weir_store fill --url URL --count N                            one stream of N events
 *     weir_store read --url URL                                      reads it, by version
 *     weir_store log --url URL                                       reads everything, by position
 *
 * Every other append expects the exact version of its stream.
 */
#include "bench.h"
#include "load.h"
#include "weir.h"

#include <stdlib.h>
#include <string.h>

/* An expected version that is none. */
enum { ANY = -2 };

static weir_str text(const char *ptr, size_t len)
{
    return (weir_str){ ptr, len };
}

static void append(weir *w, weir_str stream, int64_t expected, int64_t number)
{
    char data[BENCH_DATA_BYTES];
    weir_error err;
    const size_t len = bench_data(data, number);
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = stream,
                               .name = text("OrderPlaced", 11), .data = text(data, len) };
    const weir_expectation x = { WEIR_EXPECTATION_INIT,
                                 .expect = expected == ANY ? WEIR_EXPECT_ANY
                                           : expected < 0  ? WEIR_EXPECT_NONE
                                                           : WEIR_EXPECT_EXACT,
                                 .version = expected < 0 ? 0 : expected, .stream = stream };
    const weir_new_event *events[] = { &e };
    const weir_expectation *expectations[] = { &x };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .expectations = expectations, .expectations_count = 1 };
    const weir_append_result *out = NULL;
    const int32_t rc = weir_append(w, &r, &out, &err);
    bench_must(rc == WEIR_OK, rc == WEIR_OK ? "" : err.message);
    weir_append_result_free(out);
}

static void append_event(void *caller, const bench_event *e)
{
    append(caller, text(e->stream, e->stream_len), e->version - 1, e->number);
}

static void append_to_one(void *caller, const bench_event *e)
{
    append(caller, text("only-1", 6), ANY, e->number);
}

static weir *store_open(const char *url)
{
    weir *w = NULL;
    weir_error err;
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    const int32_t rc = weir_open(&o, &w, &err);
    bench_must(rc == WEIR_OK, rc == WEIR_OK ? "" : err.message);
    return w;
}

static void *handle_open(void *ctx)
{
    return store_open(ctx);
}

static void handle_close(void *caller)
{
    weir_close(caller);
}

static void *handle_share(void *ctx)
{
    return ctx;
}

static void fill(weir *w, int64_t count)
{
    enum { AT_ONCE = 1000 };
    static char data[AT_ONCE][BENCH_DATA_BYTES];
    static weir_new_event events[AT_ONCE];
    static const weir_new_event *list[AT_ONCE];
    weir_error err;
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        for (int64_t i = 0; i < AT_ONCE; i++) {
            const size_t len = bench_data(data[i], done + i);
            events[i] =
                (weir_new_event){ WEIR_NEW_EVENT_INIT, .stream = text("long-1", 6),
                                  .name = text("OrderPlaced", 11), .data = text(data[i], len) };
            list[i] = &events[i];
        }
        const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = list,
                                        .events_count = AT_ONCE };
        bench_must(weir_append(w, &r, NULL, &err) == WEIR_OK, "an append failed");
    }
}

typedef struct tally {
    int64_t count;
    size_t bytes;
} tally;

static int event_count(void *ctx, const weir_event *event)
{
    tally *t = ctx;
    t->count++;
    t->bytes += event->name.len + event->meta.len + event->data.len;
    return 0;
}

static int64_t read_all(weir *w, int whole_log)
{
    tally t = { 0 };
    weir_error err;
    const weir_read_options o = { WEIR_READ_OPTIONS_INIT, .stream = text("long-1", 6) };
    const int32_t rc = whole_log ? weir_log(w, NULL, event_count, &t, &err)
                                 : weir_read(w, &o, event_count, &t, &err);
    bench_must(rc == WEIR_OK, rc == WEIR_OK ? "" : err.message);
    bench_must(t.bytes > (size_t)t.count * 200, "the events are too small");
    return t.count;
}

int main(int argc, char **argv)
{
    static const bench_side many = {
        .open = handle_open, .append = append_event, .close = handle_close, .processes = true
    };
    static const bench_side threads = { .open = handle_share, .append = append_event };
    static const bench_side one = { .open = handle_share, .append = append_to_one };
    bench_must(argc > 1, "usage: see weir_store.c");
    const char *verb = argv[1];
    char *url = strdup(bench_text(argc, argv, "url", "sqlite:weir-bench.db"));
    if (strcmp(verb, "many") == 0) { /* before anything is open: it forks */
        bench_load_run(argc, argv, &many, url);
        free(url);
        return 0;
    }
    weir *w = store_open(url);
    if (strcmp(verb, "append") == 0 || strcmp(verb, "one") == 0) {
        bench_load_run(argc, argv, strcmp(verb, "one") == 0 ? &one : &threads, w);
    } else {
        int64_t events = bench_number(argc, argv, "count", 10000);
        const bench_timer t = bench_start();
        if (strcmp(verb, "fill") == 0) {
            fill(w, events);
        } else {
            events = read_all(w, strcmp(verb, "log") == 0);
        }
        bench_report(t, events);
    }
    weir_close(w);
    free(url);
    return 0;
}
