/* weir_store.c - the same work as the raw programs, through libweir.
 *
 *     weir_store append --url URL --count N --callers C [--from F]   N appends, C threads
 *     weir_store one --url URL --count N --callers C                 the same, all to one stream,
 *                                                                    which may have any version
 *     weir_store many --url URL --count N --callers C                N appends, C processes
 *     weir_store fill --url URL --count N                            one stream of N events
 *     weir_store read --url URL                                      reads it, by version
 *     weir_store log --url URL                                       reads everything, by position
 *
 * Every append expects the exact version of its stream. --from: how many events per stream are
 * there already, when appending to a store that was filled before.
 */
#include "bench.h"
#include "weir.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS_MAX = 256 };

typedef struct caller {
    weir *store;
    int64_t number, callers, count, from;
    int one_stream;
} caller;

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

/* A caller has the streams whose number modulo the callers is its own, so versions can be
 * expected. */
static void *caller_main(void *arg)
{
    const caller *c = arg;
    char name[BENCH_NAME_BYTES];
    const int64_t own = (BENCH_STREAMS - c->number + c->callers - 1) / c->callers;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->one_stream) {
            append(c->store, text("only-1", 6), ANY, i);
            continue;
        }
        const size_t len = bench_stream(name, c->number + i % own * c->callers);
        append(c->store, text(name, len), c->from + i / own - 1, i);
    }
    return NULL;
}

static int64_t append_many(weir *w, int64_t count, int64_t callers, int64_t from, int one_stream)
{
    pthread_t threads[CALLERS_MAX];
    caller list[CALLERS_MAX];
    bench_must(callers >= 1 && callers <= CALLERS_MAX, "1 to 256 callers");
    for (int64_t i = 0; i < callers; i++) {
        list[i] = (caller){ .store = w,
                            .number = i,
                            .callers = callers,
                            .count = count / callers,
                            .from = from,
                            .one_stream = one_stream };
        bench_must(pthread_create(&threads[i], NULL, caller_main, &list[i]) == 0, "no thread");
    }
    for (int64_t i = 0; i < callers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return count / callers * callers;
}

/* Each process has a handle and streams of its own. */
static int64_t append_processes(const char *url, int64_t count, int64_t callers)
{
    for (int64_t i = 0; i < callers; i++) {
        const pid_t pid = fork();
        bench_must(pid >= 0, "cannot start a process");
        if (pid == 0) {
            caller c = { .number = i, .callers = callers, .count = count / callers };
            weir_error err;
            const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
            const int32_t rc = weir_open(&o, &c.store, &err);
            bench_must(rc == WEIR_OK, rc == WEIR_OK ? "" : err.message);
            (void)caller_main(&c);
            weir_close(c.store);
            _exit(0);
        }
    }
    for (int64_t i = 0; i < callers; i++) {
        int status = 0;
        bench_must(wait(&status) > 0 && status == 0, "a process failed");
    }
    return count / callers * callers;
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
    weir *w = NULL;
    weir_error err;
    bench_must(argc > 1, "usage: see weir_store.c");
    const char *verb = argv[1];
    const int64_t count = bench_number(argc, argv, "count", 10000);
    const weir_options o = { WEIR_OPTIONS_INIT,
                             .store_url = bench_text(argc, argv, "url", "sqlite:weir-bench.db") };
    int64_t events = count;
    if (strcmp(verb, "many") == 0) { /* before anything is open: it forks */
        const bench_timer t = bench_start();
        events = append_processes(o.store_url, count, bench_number(argc, argv, "callers", 16));
        bench_report(t, events);
        return 0;
    }
    const int32_t rc = weir_open(&o, &w, &err);
    bench_must(rc == WEIR_OK, rc == WEIR_OK ? "" : err.message);
    const bench_timer t = bench_start();
    if (strcmp(verb, "append") == 0 || strcmp(verb, "one") == 0) {
        events = append_many(w, count, bench_number(argc, argv, "callers", 1),
                             bench_number(argc, argv, "from", 0), strcmp(verb, "one") == 0);
    } else if (strcmp(verb, "fill") == 0) {
        fill(w, count);
    } else {
        events = read_all(w, strcmp(verb, "log") == 0);
    }
    bench_report(t, events);
    weir_close(w);
    return 0;
}
