/* drain.c - the engine at work, through libweir's public functions.
 *
 *     drain fill --url URL --count N --streams S [--name NAME]
 *                                                      N events over S streams, in few transactions
 *     drain drain --url URL --count N --streams S --to TEMPLATE [--filled 1] LANE
 *                                                      N events, each handled once
 *     drain priority --url URL --count N --targets T --preferred P --which I LANE
 *                                                      N events, each handled by T reactions
 *     drain latency --url URL --count N --rate R --callers C --streams S [--slow N] [--slots N]
 *                                                      appends here, handlers in another process
 *     drain targets --url URL --count N                routes to N targets, and handles some;
 *                                                      filled before, the last event is a Last
 *     drain idle --url URL                             has nothing to do until told to end
 *
 * LANE is --threads, --targets-limit and --events-limit. Handlers do nothing but count. A program
 * that is warm says "ready" and goes on when it reads a line, or the end of its input: meanwhile a
 * database can be analyzed. The time ends when the last settle was answered, which the engine's log
 * tells (writing it is in the time). Everything must come to rest, and every event must have been
 * handled once.
 */
#include "bench.h"
#include "weir.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    APPEND_MAX = 50000, /* events of one append */
    CALLERS_MAX = 64,
    TARGETS_MAX = 1000,
    SLOW_US = 20000,
    REST_MS = 1800000,  /* after that, it hangs */
    LATENCY_WARM = 50,  /* events before those that are measured */
    WARM_AGAIN = 3,     /* times, after a database was analyzed: each connection has its plans */
    AGAIN_EVENTS = 200, /* at most, each time */
};

/* What a reaction has to handle, and when it had. */
typedef struct tally {
    _Atomic int64_t handled;
    int64_t want, done_us;
    sem_t *done;
} tally;

static weir_str str(const char *text)
{
    return (weir_str){ text, strlen(text) };
}

static void must_ok(int32_t status, const weir_error *err)
{
    bench_must(status == WEIR_OK, status == WEIR_OK ? "" : err->message);
}

static int64_t cpu_us(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

/* A line of /proc/self/status that is a number of kB. */
static int64_t status_kb(const char *name)
{
    char line[256];
    int64_t kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    bench_must(f != NULL, "no /proc/self/status");
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
            kb = strtoll(line + strlen(name) + 1, NULL, 10);
        }
    }
    (void)fclose(f);
    return kb;
}

static void ready(void)
{
    char line[16];
    (void)printf("ready\n");
    (void)fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) {
        return; /* nobody who waits */
    }
}

static weir *store_open(int argc, char **argv)
{
    weir *w = NULL;
    weir_error err = { .size = sizeof err };
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = bench_text(argc, argv, "url", NULL),
                             .application = "bench" };
    must_ok(weir_open(&o, &w, &err), &err);
    return w;
}

/* ---- appending ----------------------------------------------------------------------------- */

typedef struct new_text {
    char data[BENCH_DATA_BYTES], stream[64];
} new_text;

/* Events `from` to `from + count`, in one transaction: CATEGORY-0, CATEGORY-1, ... in turn. The
 * customer in the data has the number of the stream. */
static void append_once(weir *w, const char *category, const char *name, int64_t from,
                        int64_t count, int64_t streams)
{
    weir_error err = { .size = sizeof err };
    new_text *texts = calloc((size_t)count, sizeof *texts);
    weir_new_event *events = calloc((size_t)count, sizeof *events);
    const weir_new_event **list = calloc((size_t)count, sizeof *list);
    bench_must(texts != NULL && events != NULL && list != NULL, "no memory");
    for (int64_t i = 0; i < count; i++) {
        const int64_t stream = (from + i) % streams;
        const int len =
            snprintf(texts[i].stream, sizeof texts[i].stream, "%s-%" PRId64, category, stream);
        events[i] =
            (weir_new_event){ WEIR_NEW_EVENT_INIT, .stream = { texts[i].stream, (size_t)len },
                              .name = str(name),
                              .data = { texts[i].data, bench_data(texts[i].data, stream) } };
        list[i] = &events[i];
    }
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = list,
                                    .events_count = (size_t)count };
    must_ok(weir_append(w, &r, NULL, &err), &err);
    free(list);
    free(events);
    free(texts);
}

static void append_all(weir *w, const char *category, const char *name, int64_t count,
                       int64_t streams)
{
    for (int64_t done = 0; done < count; done += APPEND_MAX) {
        const int64_t left = count - done;
        append_once(w, category, name, done, left < APPEND_MAX ? left : APPEND_MAX, streams);
    }
}

/* ---- engines ------------------------------------------------------------------------------- */

static int32_t count_one(void *ctx, weir_delivery *d)
{
    tally *t = ctx;
    (void)d;
    if (atomic_fetch_add(&t->handled, 1) + 1 == t->want) {
        t->done_us = bench_now_us();
        bench_must(sem_post(t->done) == 0, "cannot post");
    }
    return WEIR_DONE;
}

static _Atomic int64_t settled_us; /* when the last settle was answered */

/* Two that come at the same time may pass each other: then it is too early by that. */
static void look_at_log(void *ctx, int32_t level, weir_str event, weir_str json)
{
    (void)ctx;
    if (event.len == 7 && memcmp(event.ptr, "settled", 7) == 0) {
        settled_us = bench_now_us();
    }
    bench_must(level < 2, level < 2 ? "" : json.ptr);
}

static weir_engine *engine_open(weir *w)
{
    weir_engine *e = NULL;
    weir_error err = { .size = sizeof err };
    const weir_engine_options o = { WEIR_ENGINE_OPTIONS_INIT, .log = look_at_log };
    must_ok(weir_engine_open(w, &o, &e, &err), &err);
    return e;
}

static void add_lane(weir_engine *e, const char *name, int64_t threads, int64_t targets,
                     int64_t events)
{
    weir_error err = { .size = sizeof err };
    const weir_lane l = { WEIR_LANE_INIT, .name = str(name), .threads = (int32_t)threads,
                          .target_limit = (int32_t)targets, .event_limit = (int32_t)events };
    must_ok(weir_engine_lane(e, &l, &err), &err);
}

static void add_lane_of(weir_engine *e, int argc, char **argv)
{
    add_lane(e, "default", bench_number(argc, argv, "threads", 4),
             bench_number(argc, argv, "targets-limit", 10),
             bench_number(argc, argv, "events-limit", 10));
}

static void add_reaction(weir_engine *e, const char *name, const char *on, const char *to,
                         const char *lane, int64_t priority, weir_handle_fn handle, void *ctx)
{
    weir_error err = { .size = sizeof err };
    const weir_str names[] = { str(on) };
    const weir_reaction q = { WEIR_REACTION_INIT,   .name = str(name),
                              .on = names,          .on_count = 1,
                              .to = str(to),        .lane = str(lane),
                              .priority = priority, .from = WEIR_FROM_START,
                              .handle = handle,     .ctx = ctx };
    must_ok(weir_engine_reaction(e, &q, &err), &err);
}

static void start(weir_engine *e)
{
    weir_error err = { .size = sizeof err };
    const int32_t status = weir_engine_start(e, &err);
    bench_must(status == WEIR_OK, err.detail[0] != '\0' ? err.detail : err.message);
}

static void wait_done(sem_t *done)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += REST_MS / 1000;
    bench_must(sem_timedwait(done, &until) == 0, "events were not handled in time");
}

/* Nothing may be left to do, and nothing done twice. */
static void rest(weir_engine *e, const tally *tallies, int64_t count)
{
    weir_error err = { .size = sizeof err };
    must_ok(weir_engine_wait_idle(e, REST_MS, &err), &err);
    for (int64_t i = 0; i < count; i++) {
        bench_must(tallies[i].handled == tallies[i].want, "not every event was handled once");
    }
}

static void engine_end(weir_engine *e)
{
    weir_error err = { .size = sizeof err };
    must_ok(weir_engine_stop(e, 10000, &err), &err);
    weir_engine_free(e);
}

/* ---- draining ------------------------------------------------------------------------------ */

static void report(int64_t events, int64_t from_us, int64_t done_us, int64_t cpu_from_us,
                   int64_t cpu_done_us)
{
    (void)printf("{\"events\":%" PRId64 ",\"wall_us\":%" PRId64 ",\"cpu_us\":%" PRId64
                 ",\"memory_kb\":%" PRId64 "}\n",
                 events, done_us - from_us, cpu_done_us - cpu_from_us, status_kb("VmHWM"));
}

/* Another reaction of the same lane does the same work before: threads, connections, statements.
 * Whoever was waiting for "ready" may have analyzed the database, which makes all plans void; so it
 * does a little more. */
static void warm_up(weir *w, weir_engine *e, tally *warm, int64_t streams)
{
    for (int i = 0; i < 1 + WARM_AGAIN; i++) {
        const int64_t more = i == 0                       ? warm->want
                             : streams < AGAIN_EVENTS / 2 ? 2 * streams
                                                          : AGAIN_EVENTS;
        warm->want = i == 0 ? more : warm->want + more;
        append_all(w, "warm", "Warm", more, streams);
        wait_done(warm->done);
        rest(e, warm, 1);
        if (i == 0) {
            ready();
        }
    }
}

static void drain(int argc, char **argv)
{
    weir *w = store_open(argc, argv);
    weir_engine *e = engine_open(w);
    sem_t done;
    const int64_t count = bench_number(argc, argv, "count", 5000);
    const int64_t streams = bench_number(argc, argv, "streams", 100);
    const int64_t filled = bench_number(argc, argv, "filled", 0);
    const char *to = bench_text(argc, argv, "to", "{stream}");
    char warm_to[128];
    tally warm = { .want = count, .done = &done }, main_tally = { .want = count, .done = &done };
    bench_must(sem_init(&done, 0, 0) == 0, "no semaphore");
    (void)snprintf(warm_to, sizeof warm_to, "warm-%s", to);
    add_lane_of(e, argc, argv);
    if (!filled) {
        add_reaction(e, "warm", "Warm", warm_to, "default", 0, count_one, &warm);
    }
    add_reaction(e, "main", "OrderPlaced", to, "default", 0, count_one, &main_tally);
    int64_t from_us = bench_now_us(), cpu_from_us = cpu_us();
    start(e);
    if (!filled) {
        warm_up(w, e, &warm, streams);
        append_all(w, "order", "OrderPlaced", count, streams);
        from_us = bench_now_us();
        cpu_from_us = cpu_us();
    }
    wait_done(&done);
    const int64_t cpu_done_us = cpu_us();
    rest(e, &main_tally, 1);
    report(count, from_us, settled_us, cpu_from_us, cpu_done_us);
    engine_end(e);
    weir_close(w);
}

/* As many reactions as targets, each with every event. The one in the middle may have priority. */
static void priority(int argc, char **argv)
{
    static tally tallies[TARGETS_MAX];
    weir *w = store_open(argc, argv);
    weir_engine *e = engine_open(w);
    sem_t done;
    const int64_t count = bench_number(argc, argv, "count", 500);
    const int64_t targets = bench_number(argc, argv, "targets", 50);
    const int64_t which = bench_number(argc, argv, "which", 0);
    tally warm = { .want = 100, .done = &done };
    bench_must(which < targets && targets <= TARGETS_MAX, "cannot start");
    bench_must(sem_init(&done, 0, 0) == 0, "cannot start");
    add_lane_of(e, argc, argv);
    add_reaction(e, "warm", "Warm", "warm-{stream}", "default", 0, count_one, &warm);
    for (int64_t i = 0; i < targets; i++) {
        char name[32];
        const int64_t preferred = i == which ? bench_number(argc, argv, "preferred", 0) : 0;
        (void)snprintf(name, sizeof name, "target-%04" PRId64, i);
        tallies[i] = (tally){ .want = count, .done = &done };
        add_reaction(e, name, "OrderPlaced", name, "default", preferred, count_one, &tallies[i]);
    }
    start(e);
    warm_up(w, e, &warm, 10);
    append_all(w, "order", "OrderPlaced", count, 1);
    const int64_t from_us = bench_now_us();
    for (int64_t i = 0; i < targets; i++) {
        wait_done(&done);
    }
    rest(e, tallies, targets);
    (void)printf("{\"events\":%" PRId64 ",\"wall_us\":%" PRId64 ",\"preferred_us\":%" PRId64
                 ",\"done_us\":[",
                 count * targets, settled_us - from_us, tallies[which].done_us - from_us);
    for (int64_t i = 0; i < targets; i++) {
        (void)printf("%s%" PRId64, i == 0 ? "" : ",", tallies[i].done_us - from_us);
    }
    (void)printf("]}\n");
    engine_end(e);
    weir_close(w);
}

/* ---- from commit to handler ---------------------------------------------------------------- */

/* Shared by the two processes. handled_us: by number of the event. */
typedef struct board {
    _Atomic int64_t slow, seen, twice;
    int64_t streams, count;
    _Atomic int64_t handled_us[];
} board;

static int32_t note_time(void *ctx, weir_delivery *d)
{
    board *b = ctx;
    const int64_t now_us = bench_now_us();
    const weir_event *e = weir_delivery_event(d);
    int64_t stream = 0, none = 0;
    for (size_t i = strlen("order-"); i < e->stream.len; i++) {
        stream = stream * 10 + (e->stream.ptr[i] - '0');
    }
    const int64_t number = e->version * b->streams + stream;
    bench_must(number < b->count, "an event that nobody appended");
    if (atomic_compare_exchange_strong(&b->handled_us[number], &none, now_us)) {
        atomic_fetch_add(&b->seen, 1);
    } else {
        atomic_fetch_add(&b->twice, 1);
    }
    return WEIR_DONE;
}

static int32_t be_slow(void *ctx, weir_delivery *d)
{
    board *b = ctx;
    const struct timespec nap = { .tv_nsec = SLOW_US * 1000L };
    (void)d;
    (void)nanosleep(&nap, NULL);
    atomic_fetch_add(&b->slow, 1);
    return WEIR_DONE;
}

/* The process of the handlers, until the pipe ends. */
static void handle_elsewhere(int argc, char **argv, board *b, int ready_fd, int end_fd)
{
    const int64_t slots = bench_number(argc, argv, "slots", 4);
    char byte = 'r';
    weir *w = store_open(argc, argv);
    weir_engine *e = engine_open(w);
    add_lane(e, "fast", slots, slots, 100);
    add_lane(e, "slow", 4, 10, 10);
    add_reaction(e, "fast", "OrderPlaced", "{stream}", "fast", 0, note_time, b);
    add_reaction(e, "slow", "Slow", "{stream}", "slow", 0, be_slow, b);
    start(e);
    bench_must(write(ready_fd, &byte, 1) == 1, "cannot say that it is ready");
    bench_must(read(end_fd, &byte, 1) == 0, "the pipe says something");
    engine_end(e);
    weir_close(w);
}

typedef struct caller {
    weir *w;
    board *board;
    int64_t *called_us, *returned_us;
    int64_t number, callers, rate, begin_us;
} caller;

static void wait_until(int64_t at_us)
{
    const struct timespec at = { .tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void *caller_main(void *arg)
{
    const caller *c = arg;
    for (int64_t i = c->number; i < c->board->count; i += c->callers) {
        wait_until(c->begin_us + i * 1000000 / c->rate);
        c->called_us[i] = bench_now_us();
        append_once(c->w, "order", "OrderPlaced", i, 1, c->board->streams);
        c->returned_us[i] = bench_now_us();
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Prints percentiles of `to - from`; a handler may be faster than the return of the append. */
static void print_times(const char *name, const board *b, const int64_t *from_us)
{
    const int64_t count = b->count - LATENCY_WARM;
    int64_t *took = calloc((size_t)count, sizeof *took);
    bench_must(took != NULL, "no memory");
    for (int64_t i = 0; i < count; i++) {
        const int64_t us = b->handled_us[i + LATENCY_WARM] - from_us[i + LATENCY_WARM];
        took[i] = us > 0 ? us : 0;
    }
    qsort(took, (size_t)count, sizeof *took, compare);
    (void)printf("\"%sp50_us\":%" PRId64 ",\"%sp99_us\":%" PRId64 ",\"%smax_us\":%" PRId64 ",",
                 name, took[(count - 1) / 2], name, took[(count - 1) * 99 / 100], name,
                 took[count - 1]);
    free(took);
}

static void offer(weir *w, board *b, int64_t callers, int64_t rate, int64_t slow)
{
    static caller list[CALLERS_MAX];
    pthread_t threads[CALLERS_MAX];
    int64_t *called_us = calloc((size_t)b->count, sizeof(int64_t));
    int64_t *returned_us = calloc((size_t)b->count, sizeof(int64_t));
    bench_must(called_us != NULL && returned_us != NULL, "no memory");
    const int64_t begin_us = bench_now_us();
    for (int64_t i = 0; i < callers; i++) {
        list[i] = (caller){ .w = w,
                            .board = b,
                            .called_us = called_us,
                            .returned_us = returned_us,
                            .number = i,
                            .callers = callers,
                            .rate = rate,
                            .begin_us = begin_us };
        bench_must(pthread_create(&threads[i], NULL, caller_main, &list[i]) == 0, "no thread");
    }
    for (int64_t i = 0; i < callers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    const int64_t end_us = bench_now_us();
    while (b->seen < b->count && bench_now_us() < end_us + (int64_t)REST_MS * 1000) {
        wait_until(bench_now_us() + 1000);
    }
    bench_must(b->seen == b->count && b->twice == 0, "not every event was handled once");
    bench_must(slow == 0 || b->slow < slow, "the slow lane had too little to do");
    (void)printf("{\"events\":%" PRId64 ",\"offered_us\":%" PRId64 ",\"slow_handled\":%" PRId64 ",",
                 b->count, end_us - begin_us, b->slow);
    print_times("whole_", b, called_us);
    print_times("", b, returned_us);
    (void)printf("\"memory_kb\":%" PRId64 "}\n", status_kb("VmHWM"));
    free(called_us);
    free(returned_us);
}

static void latency(int argc, char **argv)
{
    const int64_t count = bench_number(argc, argv, "count", 1000) + LATENCY_WARM;
    const int64_t slow = bench_number(argc, argv, "slow", 0);
    const int64_t callers = bench_number(argc, argv, "callers", 1);
    const int64_t streams = bench_number(argc, argv, "streams", callers);
    int ready_ends[2], end_ends[2];
    char byte;
    int status = 0;
    bench_must(callers <= CALLERS_MAX && streams % callers == 0, "streams must suit the callers");
    board *b = mmap(NULL, sizeof *b + (size_t)count * sizeof b->handled_us[0],
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bench_must(b != MAP_FAILED && pipe(ready_ends) == 0 && pipe(end_ends) == 0, "cannot start");
    b->count = count;
    b->streams = streams;
    const pid_t pid = fork(); /* before there is a thread or a store */
    bench_must(pid >= 0, "no process");
    if (pid == 0) {
        (void)close(end_ends[1]);
        handle_elsewhere(argc, argv, b, ready_ends[1], end_ends[0]);
        exit(0);
    }
    (void)close(ready_ends[1]);
    (void)close(end_ends[0]);
    bench_must(read(ready_ends[0], &byte, 1) == 1, "the handlers do not start");
    weir *w = store_open(argc, argv);
    if (slow > 0) {
        append_all(w, "slow", "Slow", slow, 100);
        while (b->slow < 10) {
            wait_until(bench_now_us() + 1000);
        }
    }
    offer(w, b, callers, bench_number(argc, argv, "rate", 100), slow);
    (void)close(end_ends[1]);
    bench_must(waitpid(pid, &status, 0) == pid && status == 0, "the handlers' process failed");
    weir_close(w);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The store was filled with an event for each target, and one that is called Last. */
static void targets(int argc, char **argv)
{
    weir *w = store_open(argc, argv);
    weir_engine *e = engine_open(w);
    sem_t done;
    const int64_t count = bench_number(argc, argv, "count", 1000000);
    tally some = { .want = count, .done = &done }, last = { .want = 1, .done = &done };
    bench_must(sem_init(&done, 0, 0) == 0, "no semaphore");
    add_lane_of(e, argc, argv);
    add_lane(e, "last", 1, 1, 1);
    add_reaction(e, "main", "OrderPlaced", "{stream}", "default", 0, count_one, &some);
    add_reaction(e, "last", "Last", "last", "last", 0, count_one, &last);
    const int64_t from_us = bench_now_us(), cpu_from_us = cpu_us();
    start(e);
    while (last.handled == 0) {
        wait_done(&done);
    }
    report(some.handled, from_us, bench_now_us(), cpu_from_us, cpu_us());
    engine_end(e);
    weir_close(w);
}

static void idle(int argc, char **argv)
{
    weir *w = store_open(argc, argv);
    weir_engine *e = engine_open(w);
    sem_t done;
    tally t = { .want = 1, .done = &done };
    bench_must(sem_init(&done, 0, 0) == 0, "no semaphore");
    add_lane_of(e, argc, argv);
    add_reaction(e, "main", "OrderPlaced", "{stream}", "default", 0, count_one, &t);
    start(e);
    append_all(w, "order", "OrderPlaced", 1, 1);
    wait_done(&done);
    rest(e, &t, 1);
    ready();
    (void)printf("{\"memory_kb\":%" PRId64 "}\n", status_kb("VmRSS"));
    engine_end(e);
    weir_close(w);
}

int main(int argc, char **argv)
{
    bench_must(argc > 1, "usage: see drain.c");
    const char *verb = argv[1];
    if (strcmp(verb, "drain") == 0) {
        drain(argc, argv);
    } else if (strcmp(verb, "priority") == 0) {
        priority(argc, argv);
    } else if (strcmp(verb, "latency") == 0) {
        latency(argc, argv);
    } else if (strcmp(verb, "targets") == 0) {
        targets(argc, argv);
    } else if (strcmp(verb, "idle") == 0) {
        idle(argc, argv);
    } else {
        bench_must(strcmp(verb, "fill") == 0, "usage: see drain.c");
        weir *w = store_open(argc, argv);
        append_all(w, "order", bench_text(argc, argv, "name", "OrderPlaced"),
                   bench_number(argc, argv, "count", 1000), bench_number(argc, argv, "streams", 1));
        weir_close(w);
    }
    return 0;
}
