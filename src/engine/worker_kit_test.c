/* worker_kit_test.c - see worker_kit_test.h. */
#include "engine/worker_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIT_WALL_AHEAD_US INT64_C(1700000000000000)
enum { KIT_STEPS_MAX = 200000 };

int64_t kit_mono_us = 1000000;
int64_t kit_suspended_us;
static char dir[64]; /* of the SQLite store that is open; "": none */

static int64_t hand_wall(void *ctx)
{
    (void)ctx;
    return kit_mono_us + kit_suspended_us + KIT_WALL_AHEAD_US;
}

static int64_t hand_mono(void *ctx)
{
    (void)ctx;
    return kit_mono_us;
}

static int64_t hand_boot(void *ctx)
{
    (void)ctx;
    return kit_mono_us + kit_suspended_us;
}

static const weir_clock hand_clock = { .wall_us = hand_wall,
                                       .mono_us = hand_mono,
                                       .boot_us = hand_boot };

/* ---- the store ---------------------------------------------------------------------------- */

static uint64_t kit_starts; /* of workers since kit_open: what they draw at random begins with it */

weir_store *kit_open(bool sqlite)
{
    char path[128] = "";
    weir_store *inner = NULL, *store = NULL;
    weir_error err;

    kit_starts = 0;
    dir[0] = '\0';
    if (sqlite) {
        (void)snprintf(dir, sizeof dir, "/tmp/weir-worker-XXXXXX");
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof path, "%s/store.db", dir);
    }
    const store_options options = { .path = weir__str(path),
                                    .busy_us = 10000000,
                                    .key_ttl_us = 1000000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .sync_normal = true,
                                    .application = "worker_test",
                                    .clock = &hand_clock };
    const weir_status status = sqlite ? weir__sqlite_open(&inner, &options, &err)
                                      : weir__memory_open(&inner, &options, &err);
    if (status != WEIR_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(weir__fault_open(&store, inner, &err), WEIR_OK);
    return store;
}

void kit_close(weir_store *s)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-weir" };

    s->about->close(s);
    for (size_t i = 0; dir[0] != '\0' && i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/store.db%s", dir, suffixes[i]);
        (void)unlink(path);
    }
    assert_true(dir[0] == '\0' || rmdir(dir) == 0);
    dir[0] = '\0';
}

static int64_t append(weir_store *s, const char *stream, const store_new_event *events,
                      size_t count)
{
    store_append_stream streams[] = { { .name = weir__str(stream) } };
    store_append a = {
        .streams = streams, .streams_count = 1, .events = events, .events_count = count
    };
    store_append *const list[] = { &a };

    assert_int_equal(s->log->append(s, list, 1, NULL), WEIR_OK);
    assert_int_equal(a.status, WEIR_OK);
    return streams[0].id;
}

int64_t kit_append(weir_store *s, const char *stream, const char *name, const char *data)
{
    const store_new_event event = { .name = weir__str(name),
                                    .data = weir__str(data),
                                    .meta = weir__str("{}") };
    return append(s, stream, &event, 1);
}

void kit_append_many(weir_store *s, const char *stream, const char *name, size_t count)
{
    store_new_event *events = calloc(count, sizeof *events);

    assert_non_null(events);
    for (size_t i = 0; i < count; i++) {
        events[i] = (store_new_event){ .name = weir__str(name),
                                       .data = weir__str("{}"),
                                       .meta = weir__str("{}") };
    }
    (void)append(s, stream, events, count);
    free(events);
}

/* ---- a process ---------------------------------------------------------------------------- */

static kit_process *process_of(scheduler *s)
{
    return (kit_process *)(void *)((char *)s - offsetof(kit_process, scheduler));
}

static void hand_wake(scheduler *s, task *t)
{
    kit_process *p = process_of(s);

    if (!kit_woken(p, t)) {
        assert_true(p->woken_count < sizeof p->woken / sizeof p->woken[0]);
        p->woken[p->woken_count++] = t;
    }
}

static uint64_t hand_random(scheduler *s)
{
    kit_process *p = process_of(s);

    p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return p->random >> 11;
}

static void hand_log(void *ctx, int level, const char *event, const log_field *fields, size_t count)
{
    kit_process *p = ctx;
    weir_buffer text = { 0 };
    const size_t used = strlen(p->log);

    assert_true(weir__log_to_text(&text, fields, count));
    (void)snprintf(p->log + used, sizeof p->log - used, "%d %s %.*s\n", level, event, (int)text.len,
                   text.ptr == NULL ? "" : text.ptr);
    weir__buffer_free(&text);
}

void kit_declare(kit_process *p, const weir_reaction *declared)
{
    assert_int_equal(weir__registry_reaction(&p->reactions, declared, NULL), WEIR_OK);
}

void kit_reaction(kit_process *p, const char *name, const char *on, const char *to)
{
    const weir_str names[] = { weir__str(on) };
    const weir_reaction d = { .size = sizeof d,
                              .name = weir__str(name),
                              .on = names,
                              .on_count = on == NULL ? 0 : 1,
                              .to = weir__str(to),
                              .from = WEIR_FROM_START };
    kit_declare(p, &d);
}

void kit_start(kit_process *p, weir_store *s, const worker_options *options)
{
    worker_options o = options != NULL ? *options : (worker_options){ 0 };
    weir_error err;

    o.log = hand_log;
    o.log_ctx = p;
    p->random = ++kit_starts;
    p->scheduler = (scheduler){ .wake = hand_wake, .random = hand_random, .clock = &hand_clock };
    if (weir__registry_declare(&p->reactions, s, false, &err) != WEIR_OK ||
        weir__worker_open(&p->worker, s, &p->reactions, &o, &p->scheduler, &err) != WEIR_OK) {
        fail_msg("%s", err.message);
    }
}

void kit_stop(kit_process *p)
{
    p->scheduler = (scheduler){ 0 }; /* as with threads: it ends before the worker does */
    weir__worker_close(p->worker);
    weir__registry_free(&p->reactions);
    *p = (kit_process){ 0 };
}

void kit_abandon(kit_process *p)
{
    weir__worker_abandon(p->worker);
    weir__registry_free(&p->reactions);
    *p = (kit_process){ 0 };
}

static int64_t run(task *t)
{
    for (int i = 0; i < KIT_STEPS_MAX; i++) {
        const int64_t until_us = t->step(t);
        if (until_us > kit_mono_us) {
            return until_us;
        }
    }
    fail_msg("%s never waits", t->name);
    return 0;
}

int64_t kit_route(kit_process *p)
{
    return run(&p->worker->router.task);
}

int64_t kit_poll(kit_process *p)
{
    return run(&p->worker->poller.task);
}

void kit_run(kit_process *p, int64_t us)
{
    const int64_t end_us = kit_mono_us + us;
    worker *w = p->worker;

    while (kit_mono_us < end_us) {
        int64_t next_us = kit_poll(p);
        const int64_t route_us = kit_woken(p, &w->router.task) || w->router.until_us <= kit_mono_us
                                     ? kit_route(p)
                                     : w->router.until_us;
        kit_forget(p);
        next_us = route_us < next_us ? route_us : next_us;
        kit_mono_us = next_us < end_us ? next_us : end_us;
    }
}

bool kit_woken(const kit_process *p, const task *t)
{
    for (size_t i = 0; i < p->woken_count; i++) {
        if (p->woken[i] == t) {
            return true;
        }
    }
    return false;
}

void kit_forget(kit_process *p)
{
    p->woken_count = 0;
}

size_t kit_logged(const kit_process *p, const char *text)
{
    size_t count = 0;

    for (const char *at = p->log; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

uint64_t kit_count(const kit_process *p, metric_counter c)
{
    return weir__metric_get(&p->worker->metrics, c);
}

/* ---- what the store says ------------------------------------------------------------------ */

/* Copies a subscription; its texts are not kept. false: there is none. */
static bool subscription(weir_store *s, const char *target, const char *name, int64_t *target_id,
                         store_subscription *out)
{
    const weir_str names[] = { weir__str(target) };
    const store_targets_query q = { .filter = { .names = names, .names_count = 1 }, .limit = 1 };
    store_targets_chunk chunk = { 0 };
    bool found = false;

    if (s->work->targets(s, &q, &chunk, NULL) == WEIR_OK && chunk.targets_count == 1) {
        const store_target *t = &chunk.targets[0];
        *target_id = t->id;
        for (size_t i = 0; i < t->subscriptions_count; i++) {
            if (weir__str_equal(t->subscriptions[i].reaction_name, weir__str(name))) {
                *out = t->subscriptions[i];
                found = true;
            }
        }
    }
    weir__arena_free(&chunk.arena);
    return found;
}

int64_t kit_mark(weir_store *s, const char *target, const char *reaction_name)
{
    store_subscription sub;
    int64_t id;
    return subscription(s, target, reaction_name, &id, &sub) ? sub.mark : -1;
}

int64_t kit_at(weir_store *s, const char *target, const char *reaction_name)
{
    store_subscription sub;
    int64_t id;
    return subscription(s, target, reaction_name, &id, &sub) ? sub.at : -1;
}

size_t kit_fetchable(weir_store *s, const char *target, const char *reaction_name)
{
    store_subscription sub;
    store_fetch_list list = { 0 };
    int64_t id;

    if (!subscription(s, target, reaction_name, &id, &sub)) {
        return 0;
    }
    const store_fetch_item item = { .target = id,
                                    .reaction = sub.reaction,
                                    .after = sub.at,
                                    .up_to = sub.mark,
                                    .limit = STORE_CHUNK_EVENTS_MAX };
    assert_int_equal(s->work->fetch(s, &item, 1, &list, NULL), WEIR_OK);
    const size_t count = list.events_count;
    weir__arena_free(&list.arena);
    return count;
}

size_t kit_parked(weir_store *s, const char *reaction_name)
{
    const store_parked_query q = { .limit = 10000, .reaction = weir__str(reaction_name) };
    store_parked_chunk chunk = { 0 };

    assert_int_equal(s->work->parked(s, &q, &chunk, NULL), WEIR_OK);
    const size_t count = chunk.parked_count;
    weir__arena_free(&chunk.arena);
    return count;
}

int64_t kit_routed(weir_store *s, const char *reaction_name)
{
    store_reaction_list list = { 0 };
    int64_t routed = -1;

    assert_int_equal(s->work->reactions(s, &list, NULL), WEIR_OK);
    for (size_t i = 0; i < list.reactions_count; i++) {
        if (weir__str_equal(list.reactions[i].name, weir__str(reaction_name))) {
            routed = list.reactions[i].routed;
        }
    }
    weir__arena_free(&list.arena);
    return routed;
}

/* ---- on both stores ----------------------------------------------------------------------- */

static void on_memory(void **state)
{
    (*(const kit_test *const *)state)->run(false);
}

static void on_sqlite(void **state)
{
    (*(const kit_test *const *)state)->run(true);
}

int kit_main(const kit_test *tests, size_t count)
{
    static kit_test copies[KIT_TESTS_MAX];
    static char names[2 * KIT_TESTS_MAX][160];
    struct CMUnitTest all[2 * KIT_TESTS_MAX];

    for (size_t i = 0; i < count && i < KIT_TESTS_MAX; i++) {
        copies[i] = tests[i];
        (void)snprintf(names[2 * i], sizeof names[0], "%s (memory)", tests[i].name);
        (void)snprintf(names[2 * i + 1], sizeof names[0], "%s (SQLite)", tests[i].name);
        all[2 * i] = (struct CMUnitTest){ .name = names[2 * i],
                                          .test_func = on_memory,
                                          .initial_state = &copies[i] };
        all[2 * i + 1] = (struct CMUnitTest){ .name = names[2 * i + 1],
                                              .test_func = on_sqlite,
                                              .initial_state = &copies[i] };
    }
    return _cmocka_run_group_tests("worker", all, 2 * count, NULL, NULL);
}
