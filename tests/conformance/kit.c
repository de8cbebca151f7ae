/* kit.c - the fixture of the conformance kit: handles, time, appending, reading, running. */
#define _GNU_SOURCE /* pipe2 */
#include "kit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const kit_adapter *the_adapter; /* set once by kit_main */

static int64_t kit_wall(void *ctx)
{
    return atomic_load(&((kit *)ctx)->wall_us);
}

static const char *kit_boot_id(void *ctx)
{
    return ((kit *)ctx)->boot_id;
}

static int64_t kit_mono(void *ctx)
{
    return atomic_load(&((kit *)ctx)->mono_us);
}

const char *kit_temp_dir(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        return "/dev/shm";
    }
    const char *dir = getenv("TMPDIR");
    return dir != NULL && dir[0] != '\0' ? dir : "/tmp";
}

/* ---- the fixture -------------------------------------------------------------------------- */

int kit_setup(void **state)
{
    kit *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return -1;
    }
    k->adapter = the_adapter;
    /* In the past, so that what is written through a URL, by the machine's clock, comes later. */
    atomic_init(&k->wall_us, INT64_C(1500000000000000));
    atomic_init(&k->mono_us, INT64_C(1000000000));
    k->clock = (weir_clock){ .wall_us = kit_wall, .mono_us = kit_mono, .ctx = k };
    if (!k->adapter->create(k->place)) {
        print_error("could not make a place for the store: %s\n", strerror(errno));
        free(k);
        return -1;
    }
    const store_options options = kit_options(k);
    if (k->adapter->open(k->place, &options, &k->store, &k->err) != WEIR_OK) {
        print_error("could not open the store: %s\n", k->err.message);
        k->adapter->destroy(k->place);
        free(k);
        return -1;
    }
    *state = k;
    return 0;
}

int kit_teardown(void **state)
{
    kit *k = *state;
    for (size_t i = 0; i < k->others_count; i++) {
        k->others[i]->about->close(k->others[i]);
    }
    if (k->store != NULL) {
        k->store->about->close(k->store);
    }
    for (size_t i = 0; i < k->kept_count; i++) {
        weir__arena_free(&k->kept[i]);
    }
    free(k->kept);
    weir__arena_free(&k->arena);
    k->adapter->destroy(k->place);
    free(k);
    return 0;
}

store_options kit_options(kit *k)
{
    return (store_options){
        .busy_us = INT64_C(10) * 1000 * 1000,
        .key_ttl_us = INT64_C(24) * 3600 * 1000 * 1000,
        .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
        .application = "conformance",
        .clock = &k->clock,
    };
}

weir_store *kit_open_with(kit *k, const store_options *options)
{
    assert_true(k->others_count < KIT_HANDLES_MAX);
    weir_store *s = NULL;
    KIT_OK(k, k->adapter->open(k->place, options, &s, &k->err));
    k->others[k->others_count++] = s;
    return s;
}

weir_store *kit_open(kit *k)
{
    const store_options options = kit_options(k);
    return kit_open_with(k, &options);
}

void kit_close_other(kit *k, weir_store *s)
{
    for (size_t i = 0; i < k->others_count; i++) {
        if (k->others[i] == s) {
            k->others[i] = k->others[--k->others_count];
            s->about->close(s);
            return;
        }
    }
    fail_msg("not a handle of this test");
}

void kit_reopen(kit *k)
{
    const store_options options = kit_options(k);
    weir_store *s = NULL;
    if ((k->adapter->features & KIT_DURABLE) != 0) {
        k->store->about->close(k->store);
        k->store = NULL;
        KIT_OK(k, k->adapter->open(k->place, &options, &s, &k->err));
    } else {
        /* What such a store holds ends with its last handle, so the new one comes first. */
        KIT_OK(k, k->adapter->open(k->place, &options, &s, &k->err));
        k->store->about->close(k->store);
    }
    k->store = s;
}

void kit_advance(kit *k, int64_t us)
{
    atomic_fetch_add(&k->mono_us, us);
    atomic_fetch_add(&k->wall_us, us);
}

void kit_machine_start(kit *k, const char *boot_id)
{
    k->boot_id = boot_id;
    k->clock.boot_id = kit_boot_id;
    kit_reopen(k);
}

void kit_wall_jump(kit *k, int64_t us)
{
    atomic_fetch_add(&k->wall_us, us);
}

int64_t kit_now(kit *k)
{
    int64_t now_us = 0;
    KIT_OK(k, k->store->about->now(k->store, &now_us, &k->err));
    return now_us;
}

int64_t kit_head(kit *k)
{
    store_positions p = { 0 };
    KIT_OK(k, k->store->log->positions(k->store, &p, &k->err));
    assert_true(p.safe <= p.head);
    return p.head;
}

/* ---- judging ------------------------------------------------------------------------------ */

void kit_expect(kit *k, weir_status got, weir_status wanted, const char *call, const char *file,
                int line)
{
    if (got != wanted) {
        print_error("%s:%d: %s\n  gave %s, expected %s%s%s\n", file, line, call,
                    weir_status_text(got), weir_status_text(wanted),
                    got == WEIR_OK ? "" : "; last error: ", got == WEIR_OK ? "" : k->err.message);
        _fail(file, line);
    }
}

void kit_expect_str(weir_str got, const char *wanted, const char *file, int line)
{
    if (!weir__str_equal(got, weir__str(wanted))) {
        print_error("%s:%d: got \"%.*s\", expected \"%s\"\n", file, line, (int)got.len,
                    got.ptr == NULL ? "" : got.ptr, wanted);
        _fail(file, line);
    }
}

static void finding_report(void *ctx, const char *rule, const char *text, const char *advice)
{
    size_t *count = ctx;
    print_error("check: %s: %s (%s)\n", rule, text, advice);
    (*count)++;
}

void kit_check(kit *k)
{
    size_t findings = 0;
    KIT_OK(k, k->store->about->check(k->store, finding_report, &findings, &k->err));
    assert_int_equal(findings, 0);
}

const char *kit_text(kit *k, const char *format, ...)
{
    char buffer[2048];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    assert_true(len >= 0 && (size_t)len < sizeof buffer);
    const char *copy = weir__arena_copy(&k->arena, buffer, (size_t)len);
    assert_non_null(copy);
    return copy;
}

void kit_keep(kit *k, weir_arena *arena)
{
    if (k->kept_count == k->kept_capacity) {
        k->kept_capacity = k->kept_capacity == 0 ? 16 : 2 * k->kept_capacity;
        weir_arena *grown = realloc(k->kept, k->kept_capacity * sizeof *grown);
        assert_non_null(grown);
        k->kept = grown;
    }
    k->kept[k->kept_count++] = *arena;
    *arena = (weir_arena){ 0 };
}

/* ---- appending ---------------------------------------------------------------------------- */

void kit_append_init(kit_append *a)
{
    *a = (kit_append){ 0 };
    a->append.streams = a->streams;
    a->append.events = a->events;
    a->append.key_changes = a->changes;
    a->append.err = &a->err;
}

uint32_t kit_append_stream(kit_append *a, const char *stream, int32_t expect, int64_t version)
{
    const size_t index = a->append.streams_count++;
    a->streams[index] =
        (store_append_stream){ .name = weir__str(stream), .expect = expect, .version = version };
    return (uint32_t)index;
}

void kit_append_event(kit_append *a, uint32_t stream, const char *name, const char *data)
{
    a->events[a->append.events_count++] = (store_new_event){
        .stream_index = stream,
        .name = weir__str(name),
        .data = weir__str(data),
        .meta = weir__str("{\"correlation\":\"c-1\"}"),
    };
}

void kit_append_change(kit_append *a, int32_t change, const char *key, uint32_t stream)
{
    a->changes[a->append.key_changes_count++] =
        (store_key_change){ .key = weir__str(key), .stream_index = stream, .change = change };
}

static void hash_str(weir_sha256 *h, weir_str s)
{
    const uint64_t len = s.len;
    weir__sha256_add(h, &len, sizeof len);
    weir__sha256_add(h, s.ptr, s.len);
}

void kit_append_key(kit_append *a, const char *key)
{
    weir_sha256 h;
    weir__sha256_init(&h);
    for (size_t i = 0; i < a->append.streams_count; i++) {
        hash_str(&h, a->streams[i].name);
        weir__sha256_add(&h, &a->streams[i].expect, sizeof a->streams[i].expect);
        weir__sha256_add(&h, &a->streams[i].version, sizeof a->streams[i].version);
    }
    for (size_t i = 0; i < a->append.events_count; i++) {
        weir__sha256_add(&h, &a->events[i].stream_index, sizeof a->events[i].stream_index);
        hash_str(&h, a->events[i].name);
        hash_str(&h, a->events[i].data);
    }
    for (size_t i = 0; i < a->append.key_changes_count; i++) {
        weir__sha256_add(&h, &a->changes[i].stream_index, sizeof a->changes[i].stream_index);
        weir__sha256_add(&h, &a->changes[i].change, sizeof a->changes[i].change);
        hash_str(&h, a->changes[i].key);
    }
    weir__sha256_end(&h, a->append.fingerprint);
    a->append.key = weir__str(key);
}

weir_status kit_append_run(weir_store *s, kit_append *a)
{
    store_append *one = &a->append;
    one->status = WEIR_EMISUSE; /* the store has to set it */
    one->replayed = false;
    const weir_status status = s->log->append(s, &one, 1, &a->err);
    return status != WEIR_OK ? status : one->status;
}

weir_status kit_try(weir_store *s, const char *stream, int32_t expect, int64_t version,
                    kit_append *a)
{
    kit_append_init(a);
    kit_append_event(a, kit_append_stream(a, stream, expect, version), "Tried", "{}");
    return kit_append_run(s, a);
}

int64_t kit_put(kit *k, const char *stream, const char *name)
{
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, stream, WEIR_EXPECT_ANY, 0), name, "{}");
    const weir_status status = kit_append_run(k->store, &a);
    k->err = a.err;
    KIT_OK(k, status);
    return a.streams[0].id;
}

const char *kit_key_owner(kit *k, const char *key)
{
    kit_append a;
    kit_append_init(&a);
    const uint32_t nobody = kit_append_stream(&a, "nobody", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, nobody, "Asked", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, key, nobody);
    a.append.flags = STORE_APPEND_DRY_RUN;
    const weir_status status = kit_append_run(k->store, &a);
    assert_true(status == WEIR_OK || status == WEIR_ETAKEN);
    return status == WEIR_OK ? "" : kit_text(k, "%s", a.err.stream);
}

weir_status kit_request(kit *k, const weir_append_request *request)
{
    prepared_append p = { 0 };
    weir_status status =
        weir__append_prepare(&p, request, STORE_PAYLOAD_BYTES_DEFAULT, &k->clock, &k->err);
    if (status == WEIR_OK) {
        store_append *one = &p.append;
        one->err = &k->err;
        status = k->store->log->append(k->store, &one, 1, &k->err);
        status = status != WEIR_OK ? status : one->status;
    }
    weir__prepared_free(&p);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------ */

static weir_str str_copy(kit *k, weir_str s)
{
    const char *copy = weir__arena_copy(&k->arena, s.ptr == NULL ? "" : s.ptr, s.len);
    assert_non_null(copy);
    return (weir_str){ .ptr = copy, .len = s.len };
}

/* A growing list whose memory ends with the test. */
static void events_add(kit *k, kit_events *list, size_t *capacity, const weir_event *e)
{
    if (list->count == *capacity) {
        *capacity = *capacity == 0 ? 64 : 2 * *capacity;
        weir_event *grown = weir__arena_alloc(&k->arena, *capacity * sizeof *grown);
        assert_non_null(grown);
        if (list->count > 0) {
            memcpy(grown, list->events, list->count * sizeof *grown);
        }
        list->events = grown;
    }
    weir_event *copy = &list->events[list->count++];
    *copy = *e;
    copy->stream = str_copy(k, e->stream);
    copy->name = str_copy(k, e->name);
    copy->data = str_copy(k, e->data);
    copy->meta = str_copy(k, e->meta);
}

/* What read_log promises about one chunk. */
static void log_chunk_check(const store_log_query *q, const store_chunk *chunk)
{
    assert_true(chunk->events_count <= (q->bare ? STORE_CHUNK_BARE_MAX : STORE_CHUNK_EVENTS_MAX));
    assert_true((int64_t)chunk->events_count <= q->limit);
    int64_t last = q->after;
    for (size_t i = 0; i < chunk->events_count; i++) {
        const weir_event *e = &chunk->events[i];
        if (q->backward) {
            assert_true(e->id < last && e->id >= q->to && e->id >= chunk->scanned_to);
        } else {
            assert_true(e->id > last && e->id <= q->to && e->id <= chunk->scanned_to);
        }
        assert_true(e->id <= chunk->head);
        if (q->filter != NULL && !q->bare) {
            assert_true(weir__filter_matches(q->filter, e));
        }
        last = e->id;
    }
    if (chunk->more) {
        /* Otherwise a reader that goes on from here would never end. */
        assert_true(q->backward ? chunk->scanned_to < q->after : chunk->scanned_to > q->after);
    }
}

kit_events kit_read_log(kit *k, weir_store *s, const store_log_query *query)
{
    kit_events list = { 0 };
    size_t capacity = 0;
    store_chunk chunk = { 0 };
    store_log_query q = *query;
    bool more = q.limit > 0;
    while (more) {
        KIT_OK(k, s->log->read_log(s, &q, &chunk, &k->err));
        log_chunk_check(&q, &chunk);
        for (size_t i = 0; i < chunk.events_count; i++) {
            events_add(k, &list, &capacity, &chunk.events[i]);
        }
        q.after = chunk.scanned_to;
        q.limit -= (int64_t)chunk.events_count;
        more = chunk.more && q.limit > 0;
    }
    weir__chunk_free(&chunk);
    return list;
}

kit_events kit_log(kit *k)
{
    const store_log_query q = { .to = INT64_MAX, .limit = INT64_MAX };
    return kit_read_log(k, k->store, &q);
}

kit_events kit_stream(kit *k, const char *stream)
{
    kit_events list = { 0 };
    size_t capacity = 0;
    store_chunk chunk = { 0 };
    store_stream_query q = {
        .stream = weir__str(stream), .to = INT64_MAX, .limit = INT64_MAX, .until_us = INT64_MAX
    };
    do {
        KIT_OK(k, k->store->log->read_stream(k->store, &q, &chunk, &k->err));
        assert_true(chunk.events_count <= STORE_CHUNK_EVENTS_MAX);
        for (size_t i = 0; i < chunk.events_count; i++) {
            assert_true(chunk.events[i].version >= q.from);
            KIT_STR(chunk.events[i].stream, stream);
            q.from = chunk.events[i].version + 1;
            events_add(k, &list, &capacity, &chunk.events[i]);
        }
        assert_true(chunk.events_count > 0 || !chunk.more);
    } while (chunk.more);
    weir__chunk_free(&chunk);
    return list;
}

int64_t kit_version(kit *k, const char *stream)
{
    store_stream_info info = { 0 };
    weir_error err;
    const weir_status status =
        k->store->log->stream_info(k->store, weir__str(stream), &k->arena, &info, &err);
    if (status == WEIR_ENOTFOUND) {
        return -1;
    }
    assert_int_equal(status, WEIR_OK);
    return info.version;
}

static int event_by_stream(const void *a, const void *b)
{
    const weir_event *x = a;
    const weir_event *y = b;
    const int order = weir__str_compare(x->stream, y->stream);
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

void kit_check_log(kit *k, kit_events log)
{
    if (log.count == 0) {
        return;
    }
    weir_event *sorted = weir__arena_alloc(&k->arena, log.count * sizeof *sorted);
    assert_non_null(sorted);
    memcpy(sorted, log.events, log.count * sizeof *sorted);
    for (size_t i = 1; i < log.count; i++) {
        assert_true(log.events[i].id > log.events[i - 1].id);
        /* Transactions that run side by side take their time and their position one after the
         * other, each for itself. */
        if (k->store->log->group_commit <= 1) {
            assert_true(log.events[i].created_us >= log.events[i - 1].created_us);
        }
    }
    qsort(sorted, log.count, sizeof *sorted, event_by_stream);
    int64_t next = 0;
    for (size_t i = 0; i < log.count; i++) {
        if (i == 0 || !weir__str_equal(sorted[i].stream, sorted[i - 1].stream)) {
            next = 0;
        }
        assert_int_equal(sorted[i].version, next);
        next++;
    }
}

/* ---- threads and processes ---------------------------------------------------------------- */

typedef struct thread_start {
    pthread_barrier_t *barrier;
    kit_thread_fn fn;
    void *ctx;
    size_t index;
} thread_start;

static void *thread_main(void *arg)
{
    thread_start *start = arg;
    pthread_barrier_wait(start->barrier);
    start->fn(start->ctx, start->index);
    return NULL;
}

void kit_threads(size_t count, kit_thread_fn fn, void *ctx)
{
    enum { THREADS_MAX = 128 };
    pthread_t threads[THREADS_MAX];
    thread_start starts[THREADS_MAX];
    pthread_barrier_t barrier;
    assert_true(count <= THREADS_MAX);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, (unsigned)count), 0);
    for (size_t i = 0; i < count; i++) {
        starts[i] = (thread_start){ .barrier = &barrier, .fn = fn, .ctx = ctx, .index = i };
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &starts[i]), 0);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&barrier);
}

int kit_spawn(kit *k, const char *role, const char *arg, int *out_fd)
{
    extern char **environ;
    int fds[2];
    assert_int_equal(
        setenv("WEIR_KIT_WALL_US", kit_text(k, "%lld", (long long)atomic_load(&k->wall_us)), 1), 0);
    assert_int_equal(
        setenv("WEIR_KIT_BOOT_US", kit_text(k, "%lld", (long long)atomic_load(&k->mono_us)), 1), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO), 0);
    char *const argv[] = { weir__arena_copy(&k->arena, "kit", 3),
                           weir__arena_copy(&k->arena, "--child", 7),
                           weir__arena_copy(&k->arena, role, strlen(role)),
                           weir__arena_copy(&k->arena, k->place, strlen(k->place)),
                           weir__arena_copy(&k->arena, arg, strlen(arg)),
                           NULL };
    pid_t pid = -1;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    *out_fd = fds[0];
    return pid;
}

/* ---- running ------------------------------------------------------------------------------ */

static size_t theme_add(struct CMUnitTest *all, size_t count, size_t max, kit_theme theme)
{
    for (size_t i = 0; i < theme.count && count < max; i++) {
        all[count++] = theme.tests[i];
    }
    return count;
}

int kit_main(int argc, char **argv, const kit_adapter *adapter)
{
    enum { TESTS_MAX = 400 };
    static struct CMUnitTest all[TESTS_MAX];
    if (argc == 5 && strcmp(argv[1], "--child") == 0) {
        return kit_child(adapter, argv[2], argv[3], argv[4]);
    }
    the_adapter = adapter;
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const kit_theme themes[] = {
        kit_names(),     kit_appending(), kit_keys(),    kit_closing(),  kit_committing(),
        kit_reading(),   kit_reacting(),  kit_leasing(), kit_settling(), kit_operating(),
        kit_parking(),   kit_services(),  kit_holding(), kit_workers(),  kit_turning(),
        kit_read_only(), kit_locks(),     kit_once(),
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof themes / sizeof themes[0]; i++) {
        count = theme_add(all, count, TESTS_MAX, themes[i]);
    }
    if ((adapter->features & KIT_KEEPS_TIME) != 0) {
        count = theme_add(all, count, TESTS_MAX, kit_kept_time());
    }
    if ((adapter->features & KIT_ONE_MACHINE) != 0) {
        count = theme_add(all, count, TESTS_MAX, kit_machine_time());
    }
    if (adapter->own_begin != NULL) {
        count = theme_add(all, count, TESTS_MAX, kit_own_transactions());
    }
    if (adapter->keys_count != NULL) {
        count = theme_add(all, count, TESTS_MAX, kit_key_counts());
    }
    if (adapter->workers_count != NULL) {
        count = theme_add(all, count, TESTS_MAX, kit_worker_counts());
    }
    if (adapter->steps != NULL) {
        count = theme_add(all, count, TESTS_MAX, kit_counted());
    }
    if (adapter->url != NULL) {
        count = theme_add(all, count, TESTS_MAX, kit_public());
        count = theme_add(all, count, TESTS_MAX, kit_public_operate());
    }
    if ((adapter->features & KIT_PROCESSES) != 0) {
        count = theme_add(all, count, TESTS_MAX, kit_processes());
    }
    const uint32_t both = KIT_PROCESSES | KIT_KEEPS_TIME;
    if ((adapter->features & both) == both) {
        count = theme_add(all, count, TESTS_MAX, kit_processes_time());
    }
    if (adapter->own != NULL) {
        count = theme_add(all, count, TESTS_MAX, adapter->own());
    }
    return _cmocka_run_group_tests(adapter->name, all, count, NULL, NULL);
}
