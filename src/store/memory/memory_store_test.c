/* memory_store_test.c - what the conformance kit cannot see from outside: allocations that fail in the
 * middle of every verb, the registry of named stores, and what leasing costs.
 *
 * Method of the fault loops: a store with something of everything is described as text; a verb is run
 * with its 1st, 2nd, 3rd ... allocation failing until it needs no more; after every failure the
 * description must be the same, and the store must find nothing wrong with itself. Costs are counted
 * in nodes visited, not in time. The clock stands still unless a test moves it.
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/memory/memory_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int64_t test_time_us = 1000000;

static int64_t test_clock(void *ctx)
{
    (void)ctx;
    return test_time_us;
}

static const weir_clock clock_by_hand = { .wall_us = test_clock, .mono_us = test_clock };

static weir_store *open_store(const char *name, uint32_t flags)
{
    const store_options options = {
        .path = weir__str(name),
        .open_flags = flags,
        .key_ttl_us = 1000000,
        .application = "test",
        .clock = &clock_by_hand,
    };
    weir_store *s = NULL;
    return weir__memory_open(&s, &options, NULL) == WEIR_OK ? s : NULL;
}

/* ---- small requests ----------------------------------------------------------------------- */

static weir_status append_one(weir_store *s, const char *stream, const char *name, const char *key)
{
    store_append_stream streams[] = { { .name = weir__str(stream) } };
    const store_new_event events[] = {
        { .name = weir__str(name), .data = weir__str("{}"), .meta = weir__str("{}") }
    };
    store_append a = { .streams = streams,
                       .streams_count = 1,
                       .events = events,
                       .events_count = 1,
                       .key = weir__str(key) };
    store_append *const list[] = { &a };
    const weir_status status = s->ops->append(s, list, 1, NULL);
    return status != WEIR_OK ? status : a.status;
}

static weir_status declare(weir_store *s, const char *name, const char *event, store_rule rule,
                           store_reaction *out, weir_arena *arena)
{
    const weir_str names[] = { weir__str(event), weir__str("Other") };
    const store_reaction_declaration d = {
        .name = weir__str(name),
        .names = names,
        .names_count = 2,
        .source = weir__str("*"),
        .rule = rule,
        .rule_text = weir__str("x"),
    };
    return s->ops->declare(s, &d, arena, out, NULL);
}

static int64_t subscribe(weir_store *s, const char *target, int64_t reaction, int64_t at)
{
    const store_subscribe sub = {
        .target = weir__str(target),
        .lane = weir__str("lane"),
        .reaction = reaction,
        .source = weir__str("order"),
        .value = weir__str("order-1"),
        .at = at,
    };
    int64_t id = 0;
    assert_int_equal(s->ops->subscribe(s, &sub, &id, NULL), WEIR_OK);
    return id;
}

static weir_status route_mark(weir_store *s, const store_reaction *r, const char *target,
                              int64_t first, int64_t last, int64_t to)
{
    const store_route_step step = {
        .reaction = r->id, .number = r->current, .from = r->routed, .to = to
    };
    const store_mark mark = {
        .target = weir__str(target),
        .lane = weir__str("lane"),
        .source = weir__str("order"),
        .value = weir__str("order-1"),
        .first = first,
        .last = last,
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = &mark, .marks_count = 1
    };
    return s->ops->route(s, &route, NULL, NULL);
}

static store_lease_request lease_all(size_t limit)
{
    return (store_lease_request){ .lane = weir__str("lane"),
                                  .holder = weir__str("someone"),
                                  .lease_us = 1000,
                                  .limit = limit,
                                  .all_reactions = true };
}

/* ---- describing a store ------------------------------------------------------------------- */

static void say(weir_buffer *out, const char *format, ...) WEIR_PRINTF(2, 3);
static void say(weir_buffer *out, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_in_range(len, 0, sizeof line - 1);
    assert_true(weir__buffer_add(out, line, (size_t)len));
}

static void say_events(weir_store *s, weir_buffer *out)
{
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 1000 };
    assert_int_equal(s->ops->read_log(s, &q, &chunk, NULL), WEIR_OK);
    for (size_t i = 0; i < chunk.events_count; i++) {
        const weir_event *e = &chunk.events[i];
        say(out, "event %lld %.*s/%lld %.*s %.*s\n", (long long)e->id, (int)e->stream.len,
            e->stream.ptr, (long long)e->version, (int)e->name.len, e->name.ptr, (int)e->data.len,
            e->data.ptr);
    }
    weir__chunk_free(&chunk);
    store_streams_chunk streams = { 0 };
    const store_streams_query sq = { .limit = 1000 };
    assert_int_equal(s->ops->streams(s, &sq, &streams, NULL), WEIR_OK);
    for (size_t i = 0; i < streams.streams_count; i++) {
        const store_stream_info *info = &streams.streams[i];
        say(out, "stream %.*s at %lld closed %d\n", (int)info->stream.len, info->stream.ptr,
            (long long)info->version, info->closed);
    }
    weir__arena_free(&streams.arena);
}

static void say_reactions(weir_store *s, weir_buffer *out)
{
    store_reaction_list list = { 0 };
    assert_int_equal(s->ops->reactions(s, &list, NULL), WEIR_OK);
    for (size_t i = 0; i < list.reactions_count; i++) {
        const store_reaction *r = &list.reactions[i];
        say(out, "reaction %lld %.*s %lld since %lld routed %lld reread %lld retired %d",
            (long long)r->id, (int)r->name.len, r->name.ptr, (long long)r->current,
            (long long)r->since, (long long)r->routed, (long long)r->reread_to, r->retired);
        say(out, " router %.*s %lld %lld names %zu\n", (int)r->router.len, r->router.ptr,
            (long long)r->router_until_us, (long long)r->router_fence, r->names_count);
    }
    weir__arena_free(&list.arena);
}

static void say_targets(weir_store *s, weir_buffer *out)
{
    store_targets_chunk chunk = { 0 };
    const store_targets_query q = { .limit = 1000 };
    assert_int_equal(s->ops->targets(s, &q, &chunk, NULL), WEIR_OK);
    for (size_t i = 0; i < chunk.targets_count; i++) {
        const store_target *t = &chunk.targets[i];
        say(out, "target %lld %.*s state %d priority %lld %d watermark %lld lost %lld fence %lld",
            (long long)t->id, (int)t->name.len, t->name.ptr, (int)t->state, (long long)t->priority,
            t->prioritized, (long long)t->watermark, (long long)t->lost, (long long)t->fence);
        say(out, " holder %.*s until %lld due %lld blocked %lld error %.*s at %lld by %.*s %lld",
            (int)t->holder.len, t->holder.ptr, (long long)t->leased_until_us, (long long)t->due_us,
            (long long)t->blocked_us, (int)t->error.len, t->error.ptr, (long long)t->event,
            (int)t->reaction.len, t->reaction.ptr, (long long)t->attempts);
        say(out, " paused %d %.*s\n", t->paused, (int)t->paused_by.len, t->paused_by.ptr);
        for (size_t n = 0; n < t->subscriptions_count; n++) {
            const store_subscription *sub = &t->subscriptions[n];
            say(out, "  %lld at %lld mark %lld retries %lld priority %lld %.*s %.*s\n",
                (long long)sub->reaction, (long long)sub->at, (long long)sub->mark,
                (long long)sub->retries, (long long)sub->priority, (int)sub->source.len,
                sub->source.ptr, (int)sub->value.len, sub->value.ptr);
        }
    }
    weir__arena_free(&chunk.arena);
}

static void say_rest(weir_store *s, weir_buffer *out)
{
    store_parked_chunk parked = { 0 };
    const store_parked_query pq = { .limit = 1000 };
    assert_int_equal(s->ops->parked(s, &pq, &parked, NULL), WEIR_OK);
    for (size_t i = 0; i < parked.parked_count; i++) {
        const store_parked *p = &parked.parked[i];
        say(out, "parked %lld %lld %.*s event %lld %lld %.*s back %d\n", (long long)p->id,
            (long long)p->reaction, (int)p->target.len, p->target.ptr, (long long)p->event,
            (long long)p->attempts, (int)p->error.len, p->error.ptr, p->sent_back);
    }
    weir__arena_free(&parked.arena);
    store_lane_list lanes = { 0 };
    assert_int_equal(s->ops->lanes(s, &lanes, NULL), WEIR_OK);
    for (size_t i = 0; i < lanes.lanes_count; i++) {
        const store_lane *l = &lanes.lanes[i];
        say(out, "lane %.*s paused %d %.*s: %lld %lld %lld %lld %lld\n", (int)l->lane.len,
            l->lane.ptr, l->paused, (int)l->paused_by.len, l->paused_by.ptr, (long long)l->targets,
            (long long)l->ready, (long long)l->leased, (long long)l->blocked,
            (long long)l->deferred);
    }
    weir__arena_free(&lanes.arena);

    const memory_core *c = weir__memory_handle(s)->core;
    say(out, "keys %zu reserved %zu snapshots %zu", c->keys.count, c->reserved.count,
        c->snapshots.count);
    for (size_t i = 0; i < c->reactions_count; i++) {
        say(out, " work %zu", c->reactions[i]->work.count);
    }
}

static void count_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)advice;
    print_message("# %s: %s\n", rule, text);
    ++*(int *)ctx;
}

/* The store as text; it must be in order. */
static weir_buffer describe(weir_store *s)
{
    weir_buffer out = { 0 };
    int findings = 0;
    say_events(s, &out);
    say_reactions(s, &out);
    say_targets(s, &out);
    say_rest(s, &out);
    assert_int_equal(s->ops->check(s, count_finding, &findings, NULL), WEIR_OK);
    assert_int_equal(findings, 0);
    assert_true(weir__buffer_add(&out, "", 1));
    return out;
}

/* ---- a store with something of everything ------------------------------------------------- */

typedef struct world {
    weir_store *s;
    store_reaction plain, work; /* texts in the arena */
    weir_arena arena;
    store_lease_list leases; /* of "one" (plain and work) and "two" (work) */
    int64_t one, two, three;
    int64_t fence_one, fence_two;
    int64_t parked; /* sent back, on "one" */
} world;

/* Events 1..6 of order-1; "one" is leased with a sent-back event, "two" leased, "three" blocked. */
static void world_open(world *w)
{
    *w = (world){ .s = open_store("", 0) };
    weir_store *s = w->s;
    test_time_us = 1000000;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(append_one(s, "order-1", "Placed", i == 0 ? "key-1" : ""), WEIR_OK);
    }
    assert_int_equal(declare(s, "plain", "Placed", STORE_RULE_STREAM, &w->plain, &w->arena), 0);
    assert_int_equal(declare(s, "work", "Placed", STORE_RULE_WORK, &w->work, &w->arena), 0);
    assert_int_equal(route_mark(s, &w->plain, "one", 1, 4, 4), WEIR_OK);
    for (int64_t id = 1; id <= 3; id++) {
        w->work.routed = id - 1;
        assert_int_equal(route_mark(s, &w->work, id == 1 ? "one" : "two", id, id, id), WEIR_OK);
    }
    w->work.routed = 3;
    w->plain.routed = 4;
    w->one = 1;
    w->two = 2;
    w->three = subscribe(s, "three", w->plain.id, 0);
    assert_int_equal(w->three, 3);

    const store_lease_request r = lease_all(10);
    assert_int_equal(s->ops->lease(s, &r, &w->leases, NULL), WEIR_OK);
    assert_int_equal(w->leases.leases_count, 2);
    const store_park park = {
        .reaction = w->plain.id, .event = 1, .attempts = 3, .error = weir__str("it broke")
    };
    const store_advance advance = { .reaction = w->plain.id, .to = 1 };
    store_settle settle = { .target = w->one,
                            .fence = 1,
                            .advances = &advance,
                            .advances_count = 1,
                            .parks = &park,
                            .parks_count = 1,
                            .end = STORE_END_KEEP,
                            .lease_us = 1000 };
    assert_int_equal(s->ops->settle(s, &settle, NULL), WEIR_OK);
    assert_int_equal(s->ops->parked_retry(s, 1, NULL), WEIR_OK);
    w->parked = 1;
    w->fence_one = 1;
    w->fence_two = 1;
    w->plain.routed = 4;
    assert_int_equal(route_mark(s, &w->plain, "three", 5, 6, 6), WEIR_OK);
    w->plain.routed = 6;
    const store_lease_request again = lease_all(1);
    assert_int_equal(s->ops->lease(s, &again, &w->leases, NULL), WEIR_OK);
    assert_int_equal(w->leases.leases_count, 1);
    const store_failure why = { .reaction = w->plain.id, .event = 5, .error = weir__str("no") };
    assert_int_equal(s->ops->block(s, w->three, 1, &why, NULL), WEIR_OK);
    const store_advance work = { .reaction = w->work.id, .to = 2 };
    store_settle half = { .target = w->two,
                          .fence = 1,
                          .advances = &work,
                          .advances_count = 1,
                          .end = STORE_END_KEEP,
                          .lease_us = 1000 };
    assert_int_equal(s->ops->settle(s, &half, NULL), WEIR_OK);
}

static void world_close(world *w)
{
    weir__arena_free(&w->leases.arena);
    weir__arena_free(&w->arena);
    w->s->ops->close(w->s);
}

/* One verb, and what has to happen before it. */
typedef struct fault_case {
    const char *name;
    void (*setup)(world *w); /* may be NULL */
    weir_status (*verb)(world *w);
} fault_case;

/* The journal gives back what it keeps, so that the next transaction has to allocate it. */
static void journal_drop(weir_store *s)
{
    journal *j = &weir__memory_handle(s)->core->journal;
    const uint64_t serial = j->serial;
    weir__journal_free(j);
    j->serial = serial;
}

/* Runs a verb with its nth allocation failing. false: it does not have so many. */
static bool fail_allocation(const fault_case *f, uint64_t nth)
{
    world w;
    world_open(&w);
    if (f->setup != NULL) {
        f->setup(&w);
    }
    weir_buffer before = describe(w.s);
    journal_drop(w.s);
    weir__memory_fail_nth(nth);
    weir_status status = f->verb(&w);
    const bool failed = weir__memory_failed();
    weir__memory_fail_nth(0);
    weir_buffer after = describe(w.s);
    if (failed) {
        assert_int_equal(status, WEIR_ENOMEM);
        assert_string_equal(before.ptr, after.ptr);
        status = f->verb(&w); /* and now it works */
        weir__buffer_free(&after);
        after = describe(w.s);
    }
    assert_int_equal(status, WEIR_OK);
    weir__buffer_free(&before);
    weir__buffer_free(&after);
    world_close(&w);
    return failed;
}

/* ---- fault loops -------------------------------------------------------------------------- */

enum { BIG_STREAMS = 20 };

/* New streams, known ones, names and keys; more streams than fit on the stack; two appends. */
static weir_status big_append(world *w)
{
    static char names[BIG_STREAMS][16];
    store_append_stream streams[BIG_STREAMS];
    store_new_event events[BIG_STREAMS];
    for (uint32_t i = 0; i < BIG_STREAMS; i++) {
        (void)snprintf(names[i], sizeof names[i], "order-%u", i);
        streams[i] = (store_append_stream){ .name = weir__str(names[i]) };
        events[i] = (store_new_event){ .stream_index = i,
                                       .name = weir__str(names[i]),
                                       .data = weir__str("[1]"),
                                       .meta = weir__str("{}") };
    }
    const store_key_change changes[] = {
        { .key = weir__str("email:a"), .stream_index = 0, .change = WEIR_KEY_RESERVE },
        { .key = weir__str("email:a"), .stream_index = 0, .change = WEIR_KEY_RELEASE },
        { .key = weir__str("email:a"), .stream_index = 1, .change = WEIR_KEY_RESERVE },
    };
    store_append_stream refused_stream = { .name = weir__str("order-1"),
                                           .expect = WEIR_EXPECT_NONE };
    store_append refused = { .streams = &refused_stream, .streams_count = 1 };
    store_append a = { .streams = streams,
                       .streams_count = BIG_STREAMS,
                       .events = events,
                       .events_count = BIG_STREAMS,
                       .key_changes = changes,
                       .key_changes_count = 3,
                       .key = weir__str("key-2") };
    store_append *const list[] = { &refused, &a };
    const weir_status status = w->s->ops->append(w->s, list, 2, NULL);
    if (status == WEIR_OK) {
        assert_int_equal(refused.status, WEIR_ECONFLICT);
    }
    return status != WEIR_OK ? status : a.status;
}

static weir_status forced_close(world *w)
{
    store_append_stream stream = { .name = weir__str("order-1") };
    const store_new_event event = { .name = weir__str("$closed"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append a = { .flags = STORE_APPEND_CLOSE | STORE_APPEND_FORCE,
                       .streams = &stream,
                       .streams_count = 1,
                       .events = &event,
                       .events_count = 1 };
    store_append *const list[] = { &a };
    const weir_status status = w->s->ops->append(w->s, list, 1, NULL);
    return status != WEIR_OK ? status : a.status;
}

static weir_status declare_new(world *w)
{
    store_reaction r;
    return declare(w->s, "new", "Placed", STORE_RULE_CONSTANT, &r, &w->arena);
}

static weir_status declare_changed(world *w)
{
    store_reaction r;
    return declare(w->s, "plain", "Changed", STORE_RULE_STREAM, &r, &w->arena);
}

static void retire_plain(world *w)
{
    assert_int_equal(w->s->ops->retire(w->s, weir__str("plain"), NULL), WEIR_OK);
}

static weir_status route_all(world *w)
{
    const store_route_step steps[] = {
        { .reaction = w->plain.id, .number = 1, .from = 6, .to = 6 },
        { .reaction = w->work.id, .number = 1, .from = 3, .to = 6 },
    };
    const weir_str lane = weir__str("lane");
    const store_mark marks[] = {
        { .reaction_index = 1,
          .target = weir__str("two"),
          .lane = lane,
          .first = 4,
          .last = 4,
          .source = weir__str("another"),
          .value = weir__str("another"),
          .priority = 7 },
        { .reaction_index = 1,
          .target = weir__str("four"),
          .lane = lane,
          .first = 5,
          .last = 5,
          .source = weir__str("s"),
          .value = weir__str("v") },
        { .reaction_index = 0,
          .target = weir__str("four"),
          .lane = lane,
          .first = 5,
          .last = 6,
          .source = weir__str("s"),
          .value = weir__str("v") },
        { .reaction_index = 0,
          .target = weir__str("one"),
          .lane = lane,
          .first = 6,
          .last = 6,
          .source = weir__str("s"),
          .value = weir__str("w") },
    };
    const store_route_park parks[] = {
        { .reaction_index = 1, .event = 6, .error = weir__str("nowhere") },
    };
    const store_route route = { .steps = steps,
                                .steps_count = 2,
                                .marks = marks,
                                .marks_count = 4,
                                .parks = parks,
                                .parks_count = 1 };
    return w->s->ops->route(w->s, &route, NULL, NULL);
}

static weir_status subscribe_new(world *w)
{
    const store_subscribe sub = {
        .target = weir__str("five"),
        .lane = weir__str("other lane"),
        .reaction = w->work.id,
        .source = weir__str("s"),
        .value = weir__str("v"),
        .at = 2,
    };
    return w->s->ops->subscribe(w->s, &sub, NULL, NULL);
}

/* The leases have expired, and "two" has lost as many as it may. */
static void leases_expire(world *w)
{
    weir__memory_handle(w->s)->core->targets[w->two - 1]->state.lost = 4;
    test_time_us += 1000000;
}

static weir_status lease_again(world *w)
{
    store_lease_list list = { 0 };
    store_lease_request r = lease_all(1);
    r.leading = 1;
    r.lost_max = 5;
    const weir_status status = w->s->ops->lease(w->s, &r, &list, NULL);
    if (status == WEIR_OK) {
        assert_int_equal(list.leases_count, 1);
        assert_int_equal(list.leases[0].target, w->one);
    }
    weir__arena_free(&list.arena);
    return status;
}

static weir_status settle_all(world *w)
{
    store_append_stream stream = { .name = weir__str("mail-1") };
    const store_new_event event = { .name = weir__str("Sent"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append a = { .streams = &stream,
                       .streams_count = 1,
                       .events = &event,
                       .events_count = 1,
                       .key = weir__str("key-3") };
    store_append *const appends[] = { &a };
    const store_advance advances[] = { { .reaction = w->plain.id, .to = 2 },
                                       { .reaction = w->work.id, .to = 1 } };
    const store_park park = { .reaction = w->plain.id, .event = 2, .error = weir__str("bad") };
    const int64_t done[] = { w->parked };
    store_settle settle = {
        .target = w->one,
        .fence = w->fence_one,
        .appends = appends,
        .appends_count = 1,
        .advances = advances,
        .advances_count = 2,
        .parks = &park,
        .parks_count = 1,
        .parked_done = done,
        .parked_done_count = 1,
        .failure = { .reaction = w->plain.id, .event = 3, .error = weir__str("failed") },
        .end = STORE_END_DEFER,
        .until_us = 5000000,
    };
    return w->s->ops->settle(w->s, &settle, NULL);
}

static weir_status extend_both(world *w)
{
    store_fenced items[] = { { .target = w->one, .fence = w->fence_one },
                             { .target = w->two, .fence = w->fence_two } };
    return w->s->ops->extend(w->s, 5000, items, 2, NULL);
}

static weir_status release_both(world *w)
{
    store_fenced items[] = { { .target = w->one, .fence = w->fence_one },
                             { .target = w->two, .fence = w->fence_two } };
    return w->s->ops->release(w->s, items, 2, NULL);
}

static weir_status operate(world *w, store_operate op)
{
    op.by = weir__str("operator");
    return w->s->ops->operate(w->s, &op, NULL);
}

static weir_status unblock_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_UNBLOCK });
}

static weir_status reset_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_RESET });
}

static void reset_everything(world *w)
{
    assert_int_equal(reset_all(w), WEIR_OK);
}

/* From where the reset took the reaction back to, to where it was. */
static weir_status route_again(world *w)
{
    store_reaction work = w->work;
    work.routed = 0;
    return route_mark(w->s, &work, "two", 2, 2, 3);
}

static weir_status skip_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_SKIP });
}

static weir_status pause_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_PAUSE });
}

static weir_status prioritize_all(world *w)
{
    return operate(w, (store_operate){ .verb = STORE_PRIORITIZE, .priority = 9 });
}

static weir_status pause_lane(world *w)
{
    bool changed = false;
    return w->s->ops->lane_pause(w->s, weir__str("a third lane"), true, weir__str("me"), &changed,
                                 NULL);
}

static weir_status drop_parked(world *w)
{
    return w->s->ops->parked_drop(w->s, w->parked, NULL);
}

static weir_status lease_router(world *w)
{
    store_router_lease items[] = { { .reaction = w->plain.id }, { .reaction = w->work.id } };
    return w->s->ops->router_lease(w->s, weir__str("router"), 1000, items, 2, NULL);
}

static weir_status put_snapshot(world *w)
{
    const store_snapshot snapshot = { .stream = weir__str("order-1"),
                                      .revision = weir__str("1"),
                                      .version = 3,
                                      .data = weir__str("state") };
    return w->s->ops->snapshot_put(w->s, &snapshot, NULL);
}

static weir_status read_everything(world *w)
{
    store_chunk chunk = { 0 };
    store_fetch_list fetched = { 0 };
    store_targets_chunk targets = { 0 };
    const store_log_query log = { .to = INT64_MAX, .limit = 1000 };
    const store_stream_query stream = {
        .stream = weir__str("order-1"), .to = INT64_MAX, .limit = 1000, .until_us = INT64_MAX
    };
    const store_fetch_item item = {
        .target = w->one, .reaction = w->plain.id, .up_to = 4, .limit = 10
    };
    const store_targets_query query = { .limit = 10 };
    weir_status status = w->s->ops->read_log(w->s, &log, &chunk, NULL);
    if (status == WEIR_OK) {
        status = w->s->ops->read_stream(w->s, &stream, &chunk, NULL);
    }
    if (status == WEIR_OK) {
        status = w->s->ops->fetch(w->s, &item, 1, &fetched, NULL);
    }
    if (status == WEIR_OK) {
        assert_int_equal(fetched.events_count, 4);
        status = w->s->ops->targets(w->s, &query, &targets, NULL);
    }
    weir__chunk_free(&chunk);
    weir__arena_free(&fetched.arena);
    weir__arena_free(&targets.arena);
    return status;
}

static void a_failed_allocation_leaves_the_store_as_it_was(void **state)
{
    (void)state;
    static const fault_case cases[] = {
        { "append", NULL, big_append },
        { "close a stream", NULL, forced_close },
        { "declare a new reaction", NULL, declare_new },
        { "declare a new definition", NULL, declare_changed },
        { "bring a retired reaction back", retire_plain, declare_changed },
        { "route", NULL, route_all },
        { "route to the end of a re-reading", reset_everything, route_again },
        { "subscribe", NULL, subscribe_new },
        { "lease", leases_expire, lease_again },
        { "settle", NULL, settle_all },
        { "extend", NULL, extend_both },
        { "release", NULL, release_both },
        { "unblock", NULL, unblock_all },
        { "reset", NULL, reset_all },
        { "skip", NULL, skip_all },
        { "pause", NULL, pause_all },
        { "prioritize", NULL, prioritize_all },
        { "pause a lane", NULL, pause_lane },
        { "drop a parked event", NULL, drop_parked },
        { "lease a router", NULL, lease_router },
        { "put a snapshot", NULL, put_snapshot },
        { "read", NULL, read_everything },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t nth = 1;
        while (fail_allocation(&cases[i], nth)) {
            nth++;
            assert_in_range(nth, 1, 10000);
        }
        print_message("# %s: %llu allocations failed\n", cases[i].name,
                      (unsigned long long)nth - 1);
        assert_in_range(nth, 2, 10000); /* one that allocates nothing would prove nothing */
    }
}

/* ---- the registry ------------------------------------------------------------------------- */

static int64_t head_of(weir_store *s)
{
    store_positions p;
    assert_int_equal(s->ops->positions(s, &p, NULL), WEIR_OK);
    return p.head;
}

static void named_stores_are_shared_until_the_last_handle_closes(void **state)
{
    (void)state;
    store_positions first, second;
    assert_null(open_store("shared", WEIR_OPEN_EXISTING));
    weir_store *a = open_store("shared", 0);
    weir_store *b = open_store("shared", WEIR_OPEN_EXISTING);
    weir_store *other = open_store("another", 0);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(head_of(b), 1);
    assert_int_equal(head_of(other), 0);
    assert_int_equal(a->ops->positions(a, &first, NULL), WEIR_OK);
    a->ops->close(a);
    assert_int_equal(head_of(b), 1);
    b->ops->close(b);

    assert_null(open_store("shared", WEIR_OPEN_EXISTING));
    weir_store *again = open_store("shared", 0);
    assert_int_equal(head_of(again), 0);
    assert_int_equal(again->ops->positions(again, &second, NULL), WEIR_OK);
    assert_string_not_equal(first.epoch, second.epoch);
    again->ops->close(again);
    other->ops->close(other);
}

static void unnamed_stores_are_private(void **state)
{
    (void)state;
    weir_store *a = open_store("", 0);
    weir_store *b = open_store("", 0);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(head_of(b), 0);
    assert_null(open_store("", WEIR_OPEN_EXISTING));
    assert_null(open_store("", WEIR_OPEN_READONLY));
    a->ops->close(a);
    b->ops->close(b);
}

static void a_read_only_handle_reads_and_does_not_write(void **state)
{
    (void)state;
    weir_store *a = open_store("shared", 0);
    weir_store *b = open_store("shared", WEIR_OPEN_READONLY);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(append_one(b, "order-1", "Placed", ""), WEIR_EMISUSE);
    assert_int_equal(head_of(b), 1);
    a->ops->close(a);
    b->ops->close(b);
}

static void opening_survives_failed_allocations(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        weir__memory_fail_nth(nth);
        weir_store *s = open_store("shared", 0);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        if (!failed) {
            assert_true(nth > 1);
            s->ops->close(s);
            return;
        }
        assert_null(s);
        assert_null(open_store("shared", WEIR_OPEN_EXISTING));
    }
}

static void a_watch_outlives_its_handle_and_counts_between_waits(void **state)
{
    (void)state;
    weir_store *a = open_store("shared", 0);
    weir_store *b = open_store("shared", 0);
    store_watch *watch = NULL;
    bool woken = true;
    assert_int_equal(b->ops->watch_open(b, &watch, NULL), WEIR_OK);
    assert_int_equal(a->ops->watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_false(woken);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(a->ops->watch_wait(watch, -1, &woken, NULL), WEIR_OK);
    assert_true(woken);
    assert_int_equal(a->ops->watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_false(woken);
    b->ops->close(b);
    assert_int_equal(append_one(a, "order-1", "Placed", ""), WEIR_OK);
    a->ops->close(a);
    assert_int_equal(weir__memory_watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_true(woken);
    weir__memory_watch_close(watch);
}

/* ---- bounds ------------------------------------------------------------------------------- */

enum { KEYS = 150 };

static void expired_keys_go_in_bounded_batches(void **state)
{
    (void)state;
    weir_store *s = open_store("", 0);
    const memory_core *c = weir__memory_handle(s)->core;
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, "key-%d", i);
        assert_int_equal(append_one(s, "order-1", "Placed", key), WEIR_OK);
    }
    assert_int_equal(c->keys.count, KEYS);
    test_time_us += 1000000;
    assert_int_equal(append_one(s, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(c->keys.count, KEYS - KEYS_EXPIRED_MAX);
    /* One that has expired and is still there is unknown: it is used again. */
    assert_int_equal(append_one(s, "order-1", "Placed", "key-149"), WEIR_OK);
    assert_int_equal(c->keys.count, KEYS - 2 * KEYS_EXPIRED_MAX);
    assert_int_equal(head_of(s), KEYS + 2);
    assert_int_equal(append_one(s, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(c->keys.count, 1);
    s->ops->close(s);
}

/* ---- what leasing costs ------------------------------------------------------------------- */

enum { FEW = 1000, MANY = 100000, LEASED = 10, CALLS = 20 };

typedef enum crowd {
    CROWD_READY,
    CROWD_BLOCKED,
    CROWD_DEFERRED,
    CROWD_PAUSED,
    CROWD_UNKNOWN
} crowd;

/* A store in which `count` targets are ready for reaction 1, and as many are what `crowd` says. */
static weir_store *crowded_store(size_t count, crowd kind)
{
    weir_store *s = open_store("", 0);
    weir_arena arena = { 0 };
    store_reaction r[2];
    char name[32];
    assert_int_equal(append_one(s, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(declare(s, "one", "Placed", STORE_RULE_STREAM, &r[0], &arena), WEIR_OK);
    assert_int_equal(declare(s, "two", "Placed", STORE_RULE_STREAM, &r[1], &arena), WEIR_OK);
    weir__arena_free(&arena);
    memory_core *c = weir__memory_handle(s)->core;
    for (size_t i = 0; i < 2 * count; i++) {
        const bool special = i % 2 == 1 && kind != CROWD_READY;
        (void)snprintf(name, sizeof name, "target-%zu", i);
        subscribe(s, name, special && kind == CROWD_UNKNOWN ? 2 : 1, 0);
        memory_target *t = c->targets[i];
        weir__memory_unplace(t);
        /* Different priorities and ranks, and work far ahead. */
        t->subscriptions[0]->state.at = (int64_t)((i * 7919) % 1000) * 1024;
        t->subscriptions[0]->state.mark = INT64_MAX;
        t->subscriptions[0]->state.priority = (int64_t)(i * 31 % 5);
        t->state.blocked = special && kind == CROWD_BLOCKED;
        t->state.paused = special && kind == CROWD_PAUSED;
        t->state.due_us = special && kind == CROWD_DEFERRED ? INT64_MAX : 0;
        weir__memory_derive(t);
        weir__memory_place(t);
    }
    return s;
}

/* Nodes visited per call. */
static uint64_t lease_cost(size_t count, crowd kind)
{
    weir_store *s = crowded_store(count, kind);
    store_lease_list list = { 0 };
    const store_known_reaction known = { .reaction = 1, .number = 1 };
    store_lease_request r = lease_all(LEASED);
    const uint64_t before = weir__memory_lease_steps(s);
    r.leading = 2;
    r.reserve = 2;
    r.all_reactions = false;
    r.known = &known;
    r.known_count = 1;
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(s->ops->lease(s, &r, &list, NULL), WEIR_OK);
        assert_int_equal(list.leases_count, LEASED);
    }
    const uint64_t cost = (weir__memory_lease_steps(s) - before) / CALLS;
    weir__arena_free(&list.arena);
    s->ops->close(s);
    return cost;
}

static void leasing_costs_the_same_with_many_targets_as_with_few(void **state)
{
    (void)state;
    static const char *const names[] = { "ready", "blocked", "deferred", "paused", "unknown" };
    for (crowd kind = CROWD_READY; kind <= CROWD_UNKNOWN; kind++) {
        const uint64_t few = lease_cost(FEW, kind);
        const uint64_t many = lease_cost(MANY, kind);
        print_message("# %s: %llu nodes with %d, %llu with %d\n", names[kind],
                      (unsigned long long)few, FEW, (unsigned long long)many, MANY);
        /* A hundred times the targets make the trees deeper, by ln 100 / ln 2,000 of their depth on
         * average; twice the cost leaves room for that and is far from a hundred times. */
        assert_in_range(many, 1, 2 * few);
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 300 };

/* Appends, routes what it appended, leases, settles. Whatever it loses to others is not an error. */
static void *work(void *ctx)
{
    weir_store *s = ctx;
    store_lease_list list = { 0 };
    store_reaction_list reactions = { 0 };
    for (int i = 0; i < ROUNDS; i++) {
        if (append_one(s, "order-1", "Placed", "") != WEIR_OK ||
            s->ops->reactions(s, &reactions, NULL) != WEIR_OK) {
            abort();
        }
        const store_reaction *r = &reactions.reactions[0];
        if (r->routed < head_of(s)) {
            (void)route_mark(s, r, "target", r->routed + 1, r->routed + 1, r->routed + 1);
        }
        const store_lease_request request = lease_all(1);
        if (s->ops->lease(s, &request, &list, NULL) != WEIR_OK) {
            abort();
        }
        for (size_t n = 0; n < list.leases_count; n++) {
            const store_leased *leased = &list.leases[n];
            const store_advance advance = { .reaction = leased->subscriptions[0].reaction,
                                            .to = leased->subscriptions[0].mark };
            store_settle settle = { .target = leased->target,
                                    .fence = leased->fence,
                                    .advances = &advance,
                                    .advances_count = 1 };
            if (s->ops->settle(s, &settle, NULL) != WEIR_OK) {
                abort();
            }
        }
    }
    weir__arena_free(&list.arena);
    weir__arena_free(&reactions.arena);
    return NULL;
}

static void threads_share_a_store(void **state)
{
    (void)state;
    weir_store *s = open_store("", 0);
    weir_arena arena = { 0 };
    store_reaction r;
    pthread_t threads[THREADS];
    assert_int_equal(declare(s, "one", "Placed", STORE_RULE_STREAM, &r, &arena), WEIR_OK);
    weir__arena_free(&arena);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, s), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(head_of(s), THREADS * ROUNDS);
    weir_buffer end = describe(s);
    weir__buffer_free(&end);
    s->ops->close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_leaves_the_store_as_it_was),
        cmocka_unit_test(named_stores_are_shared_until_the_last_handle_closes),
        cmocka_unit_test(unnamed_stores_are_private),
        cmocka_unit_test(a_read_only_handle_reads_and_does_not_write),
        cmocka_unit_test(opening_survives_failed_allocations),
        cmocka_unit_test(a_watch_outlives_its_handle_and_counts_between_waits),
        cmocka_unit_test(expired_keys_go_in_bounded_batches),
        cmocka_unit_test(leasing_costs_the_same_with_many_targets_as_with_few),
        cmocka_unit_test(threads_share_a_store),
    };
    return cmocka_run_group_tests_name("memory_store", tests, NULL, NULL);
}
