/* power_engine_test.c - routing is not synced, and nobody can tell after the power has failed.
 *
 * METHOD  As power_test.c: a program appends, routes, leases, fetches and settles through the
 * recording VFS and notes after how many file operations it had each answer. Then the files are
 * written out as a disk might hold them at each sync, and a worker of the next morning goes on with
 * them. What must hold whatever was lost:
 *   - what was appended is there, and the effects of every settle that was answered;
 *   - a target has the number it was leased under, and its next fence is higher than each answered;
 *   - in the end every event has had its effect once.
 * With sync=normal the last appends and settles may be lost; the rest holds all the same.
 */
#include "power.h"
#include "store/store.h"
#include "store/url.h"
#include "support.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    STREAMS = 3,
    ROUNDS = 20,
    ACKS_MAX = 512,
    POSITIONS_MAX = 512,
};

typedef enum ack_kind { ACK_APPENDED, ACK_LEASED, ACK_SETTLED } ack_kind;

typedef struct ack {
    ack_kind kind;
    size_t step;
    int64_t target, fence; /* LEASED */
    int64_t position;      /* APPENDED; SETTLED: the event whose effect was written */
    int stream;
} ack;

/* A program with a store, and what it was answered. */
typedef struct world {
    weir_store *store;
    bool recording;
    ack acks[ACKS_MAX];
    int acks_count;
    int64_t reaction;
} world;

static void ack_add(world *w, ack a)
{
    if (w->recording) {
        must(w->acks_count < ACKS_MAX, "too many answers");
        a.step = power_now();
        w->acks[w->acks_count++] = a;
    }
}

static void ok(weir_status status, const char *what, const weir_error *err)
{
    if (status != WEIR_OK) {
        fail_msg("%s: %s", what, err->message);
    }
}

static void store_begin(world *w, const char *address)
{
    store_url url = { 0 };
    weir_error err;
    weir_arena arena = { 0 };
    store_reaction reaction;
    const store_reaction_declaration d = { .name = text("copy"),
                                           .all_names = true,
                                           .source = text("s-*"),
                                           .rule = STORE_RULE_STREAM,
                                           .rule_text = text("{stream}") };
    ok(weir__url_parse(&url, address, &err), "url", &err);
    ok(weir__store_open(&w->store, &url, &err), "open", &err);
    weir__url_free(&url);
    ok(w->store->work->declare(w->store, &d, &arena, &reaction, &err), "declare", &err);
    w->reaction = reaction.id;
    weir__arena_free(&arena);
}

static int64_t event_append(world *w, int stream)
{
    char name[16];
    weir_error err;
    (void)snprintf(name, sizeof name, "s-%d", stream);
    store_append_stream to = { .name = text(name), .expect = WEIR_EXPECT_ANY };
    const store_new_event event = { .name = text("Made"), .data = text("{}"), .meta = text("{}") };
    store_append append = {
        .streams = &to, .streams_count = 1, .events = &event, .events_count = 1, .err = &err
    };
    store_append *list[] = { &append };
    ok(w->store->log->append(w->store, list, 1, &err), "append", &err);
    ok(append.status, "append", &err);
    ack_add(w, (ack){ .kind = ACK_APPENDED, .position = to.id, .stream = stream });
    return to.id;
}

static int stream_number(weir_str stream)
{
    const bool ours = stream.len == 3 && memcmp(stream.ptr, "s-", 2) == 0;
    return ours && stream.ptr[2] >= '0' && stream.ptr[2] < '0' + STREAMS ? stream.ptr[2] - '0' : -1;
}

static int64_t routed_now(world *w)
{
    store_reaction_list list = { 0 };
    weir_error err;
    ok(w->store->work->reactions(w->store, &list, &err), "reactions", &err);
    assert_int_equal(list.reactions_count, 1);
    const int64_t routed = list.reactions[0].routed;
    weir__arena_free(&list.arena);
    return routed;
}

/* Everything that is not routed yet. */
static void log_route(world *w)
{
    store_chunk chunk = { 0 };
    store_mark marks[STREAMS];
    size_t marks_count = 0;
    int mark_of[STREAMS] = { -1, -1, -1 };
    weir_error err;
    const int64_t routed = routed_now(w);
    const store_log_query q = { .after = routed, .to = INT64_MAX, .limit = 1000 };
    ok(w->store->log->read_log(w->store, &q, &chunk, &err), "read", &err);
    for (size_t i = 0; i < chunk.events_count; i++) {
        const weir_event *e = &chunk.events[i];
        const int stream = stream_number(e->stream);
        if (stream < 0) {
            continue;
        }
        if (mark_of[stream] < 0) {
            mark_of[stream] = (int)marks_count;
            marks[marks_count++] = (store_mark){ .target = e->stream,
                                                 .lane = text("default"),
                                                 .source = e->stream,
                                                 .value = e->stream,
                                                 .first = e->id };
        }
        marks[mark_of[stream]].last = e->id;
    }
    const store_route_step step = {
        .reaction = w->reaction, .number = 1, .from = routed, .to = chunk.scanned_to
    };
    const store_route route = { .steps = &step,
                                .steps_count = 1,
                                .marks = marks,
                                .marks_count = marks_count,
                                .place = chunk.place };
    if (chunk.scanned_to > routed) {
        ok(w->store->work->route(w->store, &route, NULL, &err), "route", &err);
    }
    weir__chunk_free(&chunk);
}

/* Settles one event with its effect, an event that tells of it. */
static void event_settle(world *w, const store_leased *lease, int64_t position, bool last)
{
    char data[32];
    weir_error err;
    (void)snprintf(data, sizeof data, "{\"of\":%" PRId64 "}", position);
    store_append_stream to = { .name = text("effects"), .expect = WEIR_EXPECT_ANY };
    const store_new_event event = { .name = text("Done"), .data = text(data), .meta = text("{}") };
    store_append append = {
        .streams = &to, .streams_count = 1, .events = &event, .events_count = 1, .err = &err
    };
    store_append *const appends[] = { &append };
    const store_advance advance = { .reaction = w->reaction, .to = position };
    store_settle settle = { .target = lease->target,
                            .fence = lease->fence,
                            .token = lease->token,
                            .appends = appends,
                            .appends_count = 1,
                            .advances = &advance,
                            .advances_count = 1,
                            .end = last ? STORE_END_RELEASE : STORE_END_KEEP,
                            .lease_us = 1 };
    ok(w->store->work->settle(w->store, &settle, &err), "settle", &err);
    ack_add(w, (ack){ .kind = ACK_SETTLED, .position = position, .stream = -1 });
}

static void lease_work(world *w, const store_leased *lease)
{
    store_fetch_list list = { 0 };
    weir_error err;
    assert_int_equal(lease->subscriptions_count, 1);
    const store_leased_subscription *sub = &lease->subscriptions[0];
    const store_fetch_item item = { .target = lease->target,
                                    .reaction = sub->reaction,
                                    .after = sub->at,
                                    .up_to = sub->mark,
                                    .limit = 100 };
    ok(w->store->work->fetch(w->store, &item, 1, &list, &err), "fetch", &err);
    assert_true(list.events_count > 0);
    for (size_t i = 0; i < list.events_count; i++) {
        event_settle(w, lease, list.events[i].event->id, i + 1 == list.events_count);
    }
    weir__arena_free(&list.arena);
}

/* Leases and works off at most `limit` targets. Returns how many; fences: of each stream, the last
 * that was given, and the target's number. */
static size_t targets_work(world *w, size_t limit, int64_t fences[STREAMS], int64_t ids[STREAMS])
{
    store_lease_list list = { 0 };
    weir_error err;
    const store_lease_request r = { .lane = text("default"),
                                    .holder = text("test"),
                                    .lease_us = 1, /* it ends with the machine */
                                    .limit = limit,
                                    .all_reactions = true };
    ok(w->store->work->turn(w->store, NULL, 0, &r, &list, &err), "lease", &err);
    const size_t count = list.leases_count;
    for (size_t i = 0; i < count; i++) {
        const int stream = stream_number(list.leases[i].name);
        assert_true(stream >= 0);
        ack_add(w, (ack){ .kind = ACK_LEASED,
                          .target = list.leases[i].target,
                          .fence = list.leases[i].fence,
                          .stream = stream });
        fences[stream] = list.leases[i].fence;
        ids[stream] = list.leases[i].target;
    }
    for (size_t i = 0; i < count; i++) {
        lease_work(w, &list.leases[i]);
    }
    weir__arena_free(&list.arena);
    return count;
}

static size_t world_record(world *w, const char *settings)
{
    int64_t fences[STREAMS], ids[STREAMS];
    char *directory = directory_make_volatile("power");
    char *url =
        text_format("sqlite:%s/s.db?vfs=" POWER_VFS "&checkpoint=20%s", directory, settings);
    memset(w, 0, sizeof *w);
    power_begin();
    w->recording = true;
    store_begin(w, url);
    for (int i = 0; i < ROUNDS; i++) {
        (void)event_append(w, i % STREAMS);
        if (i % 3 != 2) { /* now and then two rounds are routed together */
            log_route(w);
        }
        if (i % 4 != 1) { /* or routed and left */
            (void)targets_work(w, 1, fences, ids);
        }
    }
    w->store->about->close(w->store);
    const size_t steps = power_end();
    directory_remove(directory);
    free(url);
    return steps;
}

/* What the log has: of each position, its stream (-1: another) and how many effects it had. */
typedef struct found {
    int stream[POSITIONS_MAX], effects[POSITIONS_MAX];
} found;

static void log_find(world *w, found *f)
{
    store_chunk chunk = { 0 };
    weir_error err;
    memset(f, 0, sizeof *f);
    memset(f->stream, 0xff, sizeof f->stream);
    const store_log_query q = { .to = INT64_MAX, .limit = 1000 };
    ok(w->store->log->read_log(w->store, &q, &chunk, &err), "read", &err);
    assert_false(chunk.more);
    for (size_t i = 0; i < chunk.events_count; i++) {
        int64_t of = 0;
        char data[32] = "";
        assert_true(chunk.events[i].id < POSITIONS_MAX);
        f->stream[chunk.events[i].id] = stream_number(chunk.events[i].stream);
        memcpy(data, chunk.events[i].data.ptr,
               chunk.events[i].data.len < 31 ? chunk.events[i].data.len : 31);
        if (sscanf(data, "{\"of\":%" SCNd64 "}", &of) == 1) {
            assert_true(of > 0 && of < POSITIONS_MAX);
            f->effects[of]++;
        }
    }
    weir__chunk_free(&chunk);
}

static void finding_count(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)fprintf(stderr, "%s: %s %s\n", rule, text, advice);
    ++*(int *)ctx;
}

/* The next morning. "": nothing is wrong. */
static const char *world_go_on(const world *before, size_t step, bool lossy, world *w)
{
    found f;
    weir_error err;
    int findings = 0;
    int64_t fences[STREAMS] = { 0 }, ids[STREAMS] = { 0 };
    log_find(w, &f);
    for (int i = 0; i < before->acks_count && !lossy; i++) {
        const ack *a = &before->acks[i];
        if (a->step <= step && a->kind == ACK_APPENDED && f.stream[a->position] != a->stream) {
            return "an event that was acknowledged is lost";
        }
        if (a->step <= step && a->kind == ACK_SETTLED && f.effects[a->position] != 1) {
            return "a settle that was acknowledged is lost";
        }
    }
    for (int i = 0; i < STREAMS; i++) { /* so that each target is leased */
        (void)event_append(w, i);
    }
    log_route(w);
    const int64_t deadline = mono_us() + 10000000;
    size_t worked = 0;
    while (worked < STREAMS && mono_us() < deadline) {
        worked += targets_work(w, STREAMS, fences, ids);
    }
    if (worked != STREAMS) {
        return "a target is not leased once";
    }
    for (int i = 0; i < before->acks_count; i++) {
        const ack *a = &before->acks[i];
        if (a->kind != ACK_LEASED || a->step > step) {
            continue;
        }
        if (a->fence >= fences[a->stream]) {
            return "a fence was given out again";
        }
        if (a->target != ids[a->stream]) {
            return "a target has another number";
        }
    }
    log_find(w, &f);
    for (int i = 0; i < POSITIONS_MAX; i++) {
        if (f.effects[i] != (f.stream[i] >= 0 ? 1 : 0)) {
            return "an event had no effect, or two";
        }
    }
    ok(w->store->about->check(w->store, finding_count, &findings, &err), "check", &err);
    return findings == 0 ? "" : "doctor finds something";
}

static void cut_check(const world *before, const power_player *p, size_t step, power_loss loss,
                      bool lossy, const char *directory)
{
    world w = { 0 };
    directory_empty(directory);
    power_player_cut(p, loss, step * 7919 + 1, directory);
    char *url = text_format("sqlite:%s/s.db?sync=normal", directory);
    store_begin(&w, url);
    const char *wrong = world_go_on(before, step, lossy, &w);
    w.store->about->close(w.store);
    free(url);
    if (wrong[0] != '\0') {
        fail_msg("cut after step %zu, loss %d: %s", step, (int)loss, wrong);
    }
}

static bool is_sync(size_t step)
{
    const power_kind kind = power_step_kind(step);
    return kind == POWER_SYNC || kind == POWER_SYNC_DIRECTORY;
}

/* Around each sync: before the next one, the most has been answered on top of it. */
static void world_cut(const char *settings, bool lossy)
{
    static world w; /* too large for a stack */
    int cuts = 0;
    const size_t steps = world_record(&w, settings);
    char *directory = directory_make_volatile("cut");
    power_player *p = power_player_open();
    for (size_t step = 0; step <= steps; step++) {
        if (step == steps || is_sync(step) || (step > 0 && is_sync(step - 1))) {
            cut_check(&w, p, step, POWER_LOSE_ALL, lossy, directory);
            cut_check(&w, p, step, POWER_LOSE_SOME, lossy, directory);
            cut_check(&w, p, step, POWER_LOSE_NOTHING, lossy, directory);
            cuts += 3;
        }
        if (step < steps) {
            power_player_step(p);
        }
    }
    power_player_close(p);
    directory_remove(directory);
    print_message("# %d cuts in %zu steps, %d answers\n", cuts, steps, w.acks_count);
}

static void C24_routing_that_was_lost_with_the_power_is_done_again(void **state)
{
    (void)state;
    world_cut("", false);
}

static void C24_routing_that_was_lost_with_sync_normal_is_done_again(void **state)
{
    (void)state;
    world_cut("&sync=normal", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C24_routing_that_was_lost_with_the_power_is_done_again),
        cmocka_unit_test(C24_routing_that_was_lost_with_sync_normal_is_done_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
