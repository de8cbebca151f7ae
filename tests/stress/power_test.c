/* power_test.c - what was acknowledged survives loss of power.
 *
 * METHOD  A program uses a store through the recording VFS (power.h) and notes, for every answer
 * it gets, how many file operations had happened by then. The record is then played, and at every
 * sync point, just before it, and at every single operation, the files are written out as a disk
 * might hold them if the current had gone off there. Each of these is opened as a user would after
 * the reboot: it must open, be sound, hold everything that had been answered, nothing by halves,
 * and go on. A small checkpoint threshold makes cuts in the middle of checkpoints part of it.
 */
#include "power.h"
#include "store/url.h"
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ACKS_MAX = 512,
    EVENTS_MAX = 4096,
    STREAMS = 5,
};

/* An answer: an append that was acknowledged when `step` operations had been done. */
typedef struct ack {
    size_t step;
    int append; /* its number, which is in the data of its events */
    int events;
    int64_t id; /* of its last event */
} ack;

typedef struct workload {
    pthread_mutex_t mu;
    weir *store;
    ack acks[ACKS_MAX];
    int acks_count; /* guarded by mu while it runs */
    int appends;    /* how many were begun, guarded likewise */
    int appends_max;
} workload;

/* ---- the program that loses power --------------------------------------------------------- */

/* Append number `n`: one to three streams, one to three events, some under a key, some large
 * enough for overflow pages. */
static void append_number(workload *w, int n)
{
    char data[4096], name[3][16], key[16], pad[2001];
    weir_new_event events[3];
    const weir_new_event *list[3];
    const int count = 1 + n % 3;
    const int pad_len = n % 7 == 0 ? 2000 : n % 50;
    memset(pad, 'x', (size_t)pad_len);
    pad[pad_len] = '\0';
    (void)snprintf(key, sizeof(key), "key-%d", n);
    (void)snprintf(data, sizeof(data), "{\"append\":%d,\"of\":%d,\"pad\":\"%s\"}", n, count, pad);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "s-%d", (n + i * (n % 2)) % STREAMS);
        events[i] = (weir_new_event){ WEIR_NEW_EVENT_INIT, .stream = text(name[i]),
                                      .name = text("Cut"), .data = text(data) };
        list[i] = &events[i];
    }
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = list,
                                    .events_count = (size_t)count,
                                    .key = n % 4 == 0 ? text(key) : (weir_str){ 0 } };
    const weir_append_result *result = NULL;
    weir_error err;
    const int32_t rc = weir_append(w->store, &r, &result, &err);
    if (rc != WEIR_OK) {
        (void)fprintf(stderr, "append %d: %s\n", n, err.message);
    }
    must(rc == WEIR_OK, "an append failed");
    int64_t id = 0;
    for (size_t i = 0; i < result->streams_count; i++) {
        id = result->streams[i]->id > id ? result->streams[i]->id : id;
    }
    weir_append_result_free(result);
    pthread_mutex_lock(&w->mu);
    must(w->acks_count < ACKS_MAX, "too many answers");
    w->acks[w->acks_count++] = (ack){ .step = power_now(), .append = n, .events = count, .id = id };
    pthread_mutex_unlock(&w->mu);
}

static void *workload_thread(void *arg)
{
    workload *w = arg;
    for (;;) {
        pthread_mutex_lock(&w->mu);
        const int n = w->appends < w->appends_max ? w->appends++ : -1;
        pthread_mutex_unlock(&w->mu);
        if (n < 0) {
            return NULL;
        }
        append_number(w, n);
    }
}

/* Records `appends` appends by `threads` threads. Returns the number of steps. */
static size_t workload_record(workload *w, const char *settings, int appends, int threads)
{
    pthread_t ids[16];
    char *directory = directory_make_volatile("power");
    char *url =
        text_format("sqlite:%s/s.db?vfs=" POWER_VFS "&checkpoint=10%s", directory, settings);
    memset(w, 0, sizeof(*w));
    (void)pthread_mutex_init(&w->mu, NULL);
    w->appends_max = appends;
    power_begin();
    w->store = store_open(url, 0);
    for (int i = 0; i < threads; i++) {
        must(pthread_create(&ids[i], NULL, workload_thread, w) == 0, "cannot start a thread");
    }
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(ids[i], NULL);
    }
    weir_close(w->store);
    const size_t steps = power_end();
    directory_remove(directory);
    free(url);
    return steps;
}

/* ---- after the reboot --------------------------------------------------------------------- */

typedef struct found {
    int events[ACKS_MAX];      /* of each append                       */
    int of[ACKS_MAX];          /* how many it should have, as written  */
    int64_t last_id[ACKS_MAX]; /* of each append                       */
    int64_t versions[STREAMS]; /* the next of each stream              */
    int64_t highest;
    bool gap;
} found;

static int event_found(void *ctx, const weir_event *event)
{
    found *f = ctx;
    int append = -1, of = 0, stream = -1;
    char data[64] = "", name[16] = "";
    memcpy(data, event->data.ptr, event->data.len < 63 ? event->data.len : 63);
    memcpy(name, event->stream.ptr, event->stream.len < 15 ? event->stream.len : 15);
    if (sscanf(data, "{\"append\":%d,\"of\":%d", &append, &of) != 2 ||
        sscanf(name, "s-%d", &stream) != 1 || append < 0 || append >= ACKS_MAX || stream < 0 ||
        stream >= STREAMS || event->version != f->versions[stream]) {
        f->gap = true;
        return 0;
    }
    f->versions[stream]++;
    f->events[append]++;
    f->of[append] = of;
    f->last_id[append] = event->id;
    f->highest = event->id;
    return 0;
}

typedef struct verdict {
    int lost;        /* acknowledged appends that are not there */
    char wrong[640]; /* what else is not as it must be; "" nothing */
} verdict;

static void verdict_wrong(verdict *v, const char *what, const char *more)
{
    if (v->wrong[0] == '\0') {
        (void)snprintf(v->wrong, sizeof(v->wrong), "%s %s", what, more);
    }
}

static void verdict_of_appends(verdict *v, const found *f, const workload *w, size_t step)
{
    for (int i = 0; i < ACKS_MAX; i++) {
        if (f->events[i] != 0 && f->events[i] != f->of[i]) {
            verdict_wrong(v, "an append is there by halves", "");
        }
    }
    for (int i = 0; i < w->acks_count; i++) {
        const ack *a = &w->acks[i];
        if (a->step > step) {
            continue;
        }
        if (f->events[a->append] == 0) {
            v->lost++;
        } else if (f->events[a->append] != a->events || f->last_id[a->append] != a->id) {
            verdict_wrong(v, "an append is not where it was acknowledged", "");
        }
    }
}

/* Opens what a cut left, as its owner would, and looks at everything. */
static verdict cut_judge(const char *directory, const workload *w, size_t step)
{
    verdict v = { 0 };
    found f = { 0 };
    weir *store = NULL;
    weir_error err;
    int64_t id = 0;
    char *path = text_format("%s/s.db", directory);
    char *url = text_format("sqlite:%s?sync=normal", path);
    const weir_options o = { WEIR_OPTIONS_INIT, .store_url = url };
    if (weir_open(&o, &store, &err) != WEIR_OK) {
        verdict_wrong(&v, "it does not open:", err.message);
    } else if (weir_log(store, NULL, event_found, &f, &err) != WEIR_OK) {
        verdict_wrong(&v, "its log cannot be read:", err.message);
    } else if (append_one(store, "after", WEIR_EXPECT_NONE, 0, "{}", NULL, &id, &err) != WEIR_OK) {
        verdict_wrong(&v, "nothing can be appended:", err.message);
    } else {
        if (f.gap || id <= f.highest) {
            verdict_wrong(&v, "versions or positions are not in order", "");
        }
        verdict_of_appends(&v, &f, w, step);
    }
    weir_close(store);
    char *sound = integrity_check(path);
    if (strcmp(sound, "ok") != 0) {
        verdict_wrong(&v, "integrity_check:", sound);
    }
    free(sound);
    free(url);
    free(path);
    return v;
}

typedef struct sums {
    int cuts, lost_cuts;
} sums;

/* One cut; fails the test unless the verdict is clean. lossy: acknowledged appends may be lost. */
static void cut_check(const power_player *p, const workload *w, size_t step, power_loss loss,
                      uint64_t seed, bool lossy, const char *directory, sums *s)
{
    directory_empty(directory);
    power_player_cut(p, loss, seed, directory);
    const verdict v = cut_judge(directory, w, step);
    s->cuts++;
    s->lost_cuts += v.lost > 0 ? 1 : 0;
    if (v.wrong[0] != '\0' || (v.lost > 0 && !lossy)) {
        fail_msg("cut after step %zu, loss %d, seed %" PRIu64 ": %d acknowledged appends lost; %s",
                 step, (int)loss, seed, v.lost, v.wrong);
    }
}

static bool is_sync(size_t step)
{
    const power_kind kind = power_step_kind(step);
    return kind == POWER_SYNC || kind == POWER_SYNC_DIRECTORY;
}

/* Cuts around every sync point: everything unsynced is lost, and a random part of it is. */
static sums cut_at_syncs(const workload *w, size_t steps, bool lossy)
{
    sums s = { 0 };
    char *directory = directory_make_volatile("cut");
    power_player *p = power_player_open();
    for (size_t step = 0; step < steps; step++) {
        const bool sync = is_sync(step);
        if (sync) {
            cut_check(p, w, step, POWER_LOSE_ALL, 0, lossy, directory, &s);
            cut_check(p, w, step, POWER_LOSE_SOME, step, lossy, directory, &s);
        }
        power_player_step(p);
        if (sync) {
            cut_check(p, w, step + 1, POWER_LOSE_ALL, 0, lossy, directory, &s);
            cut_check(p, w, step + 1, POWER_LOSE_SOME, step, lossy, directory, &s);
        }
    }
    cut_check(p, w, steps, POWER_LOSE_ALL, 0, lossy, directory, &s);
    power_player_close(p);
    directory_remove(directory);
    return s;
}

/* ---- tests -------------------------------------------------------------------------------- */

static workload work; /* too large for a stack */

static void nothing_acknowledged_is_lost_at_any_sync_point(void **state)
{
    (void)state;
    const size_t steps = workload_record(&work, "", 40, 1);
    const sums s = cut_at_syncs(&work, steps, false);
    assert_int_equal(work.acks_count, 40);
    assert_true(s.cuts >= 4 * 40); /* every commit has a sync of its own */
    print_message("# %d cuts in %zu steps\n", s.cuts, steps);
}

static void nothing_acknowledged_is_lost_when_callers_share_transactions(void **state)
{
    (void)state;
    const size_t steps = workload_record(&work, "", 60, 6);
    const sums s = cut_at_syncs(&work, steps, false);
    assert_int_equal(work.acks_count, 60);
    print_message("# %d cuts in %zu steps\n", s.cuts, steps);
}

static void nothing_acknowledged_is_lost_at_any_write_when_sectors_are_torn(void **state)
{
    (void)state;
    sums s = { 0 };
    const size_t steps = workload_record(&work, "", 24, 1);
    char *directory = directory_make_volatile("cut");
    power_player *p = power_player_open();
    for (size_t step = 0; step < steps; step++) {
        cut_check(p, &work, step, POWER_LOSE_SOME, step * 7919 + 1, false, directory, &s);
        power_player_step(p);
    }
    power_player_close(p);
    directory_remove(directory);
    print_message("# %d cuts\n", s.cuts);
}

/* What sync=normal allows, and the proof that these tests would notice a loss. */
static void with_sync_normal_only_the_last_commits_are_lost_and_nothing_is_torn(void **state)
{
    (void)state;
    const size_t steps = workload_record(&work, "&sync=normal", 40, 1);
    const sums s = cut_at_syncs(&work, steps, true);
    assert_true(s.cuts > 0);
    assert_true(s.lost_cuts > 0);
    print_message("# %d cuts, %d of them lost the end\n", s.cuts, s.lost_cuts);
}

static int row_count(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int rows = -1;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM t", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        rows = sqlite3_column_int(stmt, 0);
    }
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return rows;
}

/* Ten inserts through plain SQLite; how many of them are there after a cut at the very end? */
static int raw_rows_left(const char *synchronous, power_loss loss)
{
    sqlite3 *db = NULL;
    char *directory = directory_make("raw"), *cut = directory_make_volatile("cut");
    char *path = text_format("%s/s.db", directory), *cut_path = text_format("%s/s.db", cut);
    char *pragma = text_format("PRAGMA journal_mode=WAL; CREATE TABLE t(x); PRAGMA synchronous=%s;",
                               synchronous);
    power_begin();
    must(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, POWER_VFS) ==
             SQLITE_OK,
         "cannot open a database");
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    must(sqlite3_exec(db, pragma, NULL, NULL, NULL) == SQLITE_OK, "cannot set up a database");
    for (int i = 0; i < 10; i++) {
        must(sqlite3_exec(db, "INSERT INTO t VALUES (1)", NULL, NULL, NULL) == SQLITE_OK,
             "cannot insert");
    }
    const size_t steps = power_now();
    (void)sqlite3_close(db);
    (void)power_end();
    power_player *p = power_player_open();
    for (size_t i = 0; i < steps; i++) {
        power_player_step(p);
    }
    power_player_cut(p, loss, 0, cut);
    power_player_close(p);
    const int rows = row_count(cut_path);
    directory_remove(directory);
    directory_remove(cut);
    free(path);
    free(cut_path);
    free(pragma);
    return rows;
}

static void the_model_forgets_what_was_not_synced_and_keeps_what_was(void **state)
{
    (void)state;
    assert_int_equal(raw_rows_left("FULL", POWER_LOSE_ALL), 10);
    assert_int_equal(raw_rows_left("OFF", POWER_LOSE_NOTHING), 10);
    assert_int_equal(raw_rows_left("OFF", POWER_LOSE_ALL), 0);
}

/* ---- fences ------------------------------------------------------------------------------- */

typedef struct fence_ack {
    size_t step;
    int64_t target, router; /* fences handed out */
} fence_ack;

typedef struct fenced {
    weir_store *store;
    int64_t reaction;
    fence_ack acks[64];
    int acks_count;
} fenced;

static weir_store *port_open(const char *address)
{
    store_url url = { 0 };
    weir_store *store = NULL;
    weir_error err;
    if (weir__url_parse(&url, address, &err) != WEIR_OK ||
        weir__store_open(&store, &url, &err) != WEIR_OK) {
        fail_msg("cannot open %s: %s", address, err.message);
    }
    weir__url_free(&url);
    return store;
}

static int64_t reaction_declare(weir_store *store)
{
    weir_arena arena = { 0 };
    store_reaction reaction;
    weir_error err;
    const store_reaction_declaration d = { .name = text("mail"),
                                           .all_names = true,
                                           .source = text("*"),
                                           .rule = STORE_RULE_CONSTANT,
                                           .rule_text = text("all") };
    if (store->work->declare(store, &d, &arena, &reaction, &err) != WEIR_OK) {
        fail_msg("declare: %s", err.message);
    }
    const int64_t id = reaction.id;
    weir__arena_free(&arena);
    return id;
}

/* Gives the target work that is never done: from position 0 to 1,000. */
static void target_mark(weir_store *store, int64_t reaction)
{
    weir_error err;
    const store_route_step step = { .reaction = reaction, .number = 1, .from = 0, .to = 0 };
    const store_mark mark = { .target = text("post"),
                              .lane = text("default"),
                              .source = text("*"),
                              .first = 1,
                              .last = 1000 };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    if (store->work->route(store, &route, NULL, &err) != WEIR_OK) {
        fail_msg("route: %s", err.message);
    }
}

/* A lease that ends at once, so that the next one is free to take it. 0: there was nothing to
 * lease. */
static int64_t target_fence(weir_store *store)
{
    weir_error err;
    store_lease_list list = { 0 };
    const store_lease_request r = { .lane = text("default"),
                                    .holder = text("test"),
                                    .lease_us = 1,
                                    .limit = 1,
                                    .all_reactions = true };
    if (store->work->turn(store, NULL, 0, &r, &list, &err) != WEIR_OK) {
        fail_msg("lease: %s", err.message);
    }
    const int64_t fence = list.leases_count == 1 ? list.leases[0].fence : 0;
    weir__arena_free(&list.arena);
    return fence;
}

static int64_t router_fence(weir_store *store, int64_t reaction)
{
    weir_error err;
    store_router_lease item = { .reaction = reaction };
    if (store->work->router_lease(store, text("test"), 1, &item, 1, &err) != WEIR_OK) {
        fail_msg("router_lease: %s", err.message);
    }
    return item.fence;
}

/* A lease is free again one microsecond later: asked for until it is. */
static int64_t until_fence(int64_t (*ask)(weir_store *store, int64_t reaction), weir_store *store,
                           int64_t reaction)
{
    const int64_t deadline = mono_us() + 10000000;
    int64_t fence = 0;
    while (fence == 0 && mono_us() < deadline) {
        fence = ask(store, reaction);
    }
    return fence;
}

static int64_t ask_target(weir_store *store, int64_t reaction)
{
    (void)reaction;
    return target_fence(store);
}

static void filler_append(weir_store *store, int n)
{
    char data[64];
    weir_error err;
    (void)snprintf(data, sizeof(data), "{\"n\":%d}", n);
    store_append_stream stream = { .name = text("filler"), .expect = WEIR_EXPECT_ANY };
    const store_new_event event = { .name = text("Filled"),
                                    .data = text(data),
                                    .meta = text("{\"correlation\":\"x\"}") };
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1, .err = &err
    };
    store_append *list[] = { &append };
    if (store->log->append(store, list, 1, &err) != WEIR_OK || append.status != WEIR_OK) {
        fail_msg("append: %s", err.message);
    }
}

static size_t fences_record(fenced *f, const char *settings)
{
    char *directory = directory_make_volatile("power");
    char *url =
        text_format("sqlite:%s/s.db?vfs=" POWER_VFS "&checkpoint=10%s", directory, settings);
    memset(f, 0, sizeof(*f));
    power_begin();
    f->store = port_open(url);
    f->reaction = reaction_declare(f->store);
    target_mark(f->store, f->reaction);
    for (int i = 0; i < 12; i++) {
        filler_append(f->store, i); /* not synced with sync=normal, and between the fences */
        const int64_t target = until_fence(ask_target, f->store, f->reaction);
        f->acks[f->acks_count++] = (fence_ack){ .step = power_now(), .target = target };
        filler_append(f->store, i);
        const int64_t router = until_fence(router_fence, f->store, f->reaction);
        f->acks[f->acks_count++] = (fence_ack){ .step = power_now(), .router = router };
        assert_true(target > 0 && router > 0);
    }
    f->store->about->close(f->store);
    const size_t steps = power_end();
    directory_remove(directory);
    free(url);
    return steps;
}

/* After the cut the next fences are higher than every one that was handed out before it. */
static void fences_check(const fenced *f, const power_player *p, size_t step, power_loss loss,
                         const char *directory)
{
    int64_t target_high = 0, router_high = 0;
    for (int i = 0; i < f->acks_count; i++) {
        if (f->acks[i].step <= step) {
            target_high = f->acks[i].target > target_high ? f->acks[i].target : target_high;
            router_high = f->acks[i].router > router_high ? f->acks[i].router : router_high;
        }
    }
    if (target_high == 0) {
        return; /* no fence was handed out yet: the target need not be there */
    }
    directory_empty(directory);
    power_player_cut(p, loss, step, directory);
    char *url = text_format("sqlite:%s/s.db?sync=normal", directory);
    weir_store *store = port_open(url);
    const int64_t target = until_fence(ask_target, store, f->reaction);
    const int64_t router = until_fence(router_fence, store, f->reaction);
    store->about->close(store);
    free(url);
    if (target <= target_high || router <= router_high) {
        fail_msg("cut after step %zu, loss %d: fence %" PRId64 " after %" PRId64
                 ", router's fence %" PRId64 " after %" PRId64,
                 step, (int)loss, target, target_high, router, router_high);
    }
}

static void fences_cut(const char *settings)
{
    fenced f;
    const size_t steps = fences_record(&f, settings);
    char *directory = directory_make_volatile("cut");
    power_player *p = power_player_open();
    for (size_t step = 0; step <= steps; step++) {
        /* What is sure to be on the disk changes with a sync only, so just before the next one is
         * where the most has been handed out on top of it. */
        if (step == steps || is_sync(step) || (step > 0 && is_sync(step - 1))) {
            fences_check(&f, p, step, POWER_LOSE_ALL, directory);
            fences_check(&f, p, step, POWER_LOSE_SOME, directory);
        }
        if (step < steps) {
            power_player_step(p);
        }
    }
    power_player_close(p);
    directory_remove(directory);
}

static void C24_fences_never_repeat_after_a_cut(void **state)
{
    (void)state;
    fences_cut("");
}

static void C24_fences_never_repeat_after_a_cut_with_sync_normal(void **state)
{
    (void)state;
    fences_cut("&sync=normal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_forgets_what_was_not_synced_and_keeps_what_was),
        cmocka_unit_test(nothing_acknowledged_is_lost_at_any_sync_point),
        cmocka_unit_test(nothing_acknowledged_is_lost_when_callers_share_transactions),
        cmocka_unit_test(nothing_acknowledged_is_lost_at_any_write_when_sectors_are_torn),
        cmocka_unit_test(with_sync_normal_only_the_last_commits_are_lost_and_nothing_is_torn),
        cmocka_unit_test(C24_fences_never_repeat_after_a_cut),
        cmocka_unit_test(C24_fences_never_repeat_after_a_cut_with_sync_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
