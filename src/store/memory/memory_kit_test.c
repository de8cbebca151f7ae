/* memory_kit_test.c - see memory_kit_test.h. */
#include "store/memory/memory_kit_test.h"

#include "base/error.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

int64_t kit_time_us = 1000000;

static int64_t test_clock(void *ctx)
{
    (void)ctx;
    return kit_time_us;
}

static const weir_clock clock_by_hand = { .wall_us = test_clock, .mono_us = test_clock };

weir_store *kit_open(const char *name, uint32_t flags)
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

weir_status kit_append(weir_store *s, const char *stream, const char *name, const char *key)
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
    const weir_status status = s->log->append(s, list, 1, NULL);
    return status != WEIR_OK ? status : a.status;
}

weir_status kit_declare(weir_store *s, const char *name, const char *event, store_rule rule,
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
    return s->work->declare(s, &d, arena, out, NULL);
}

weir_status kit_route(weir_store *s, const store_reaction *r, const char *target, int64_t first,
                      int64_t last, int64_t to)
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
    return s->work->route(s, &route, NULL, NULL);
}

store_lease_request kit_lease_request(size_t limit)
{
    return (store_lease_request){ .lane = weir__str("lane"),
                                  .holder = weir__str("someone"),
                                  .lease_us = 1000,
                                  .limit = limit,
                                  .all_reactions = true };
}

int64_t kit_head(weir_store *s)
{
    store_positions p;
    assert_int_equal(s->log->positions(s, &p, NULL), WEIR_OK);
    return p.head;
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
    assert_int_equal(s->log->read_log(s, &q, &chunk, NULL), WEIR_OK);
    for (size_t i = 0; i < chunk.events_count; i++) {
        const weir_event *e = &chunk.events[i];
        say(out, "event %lld %.*s/%lld %.*s %.*s\n", (long long)e->id, (int)e->stream.len,
            e->stream.ptr, (long long)e->version, (int)e->name.len, e->name.ptr, (int)e->data.len,
            e->data.ptr);
    }
    weir__chunk_free(&chunk);
    store_streams_chunk streams = { 0 };
    const store_streams_query sq = { .limit = 1000 };
    assert_int_equal(s->log->streams(s, &sq, &streams, NULL), WEIR_OK);
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
    assert_int_equal(s->work->reactions(s, &list, NULL), WEIR_OK);
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
    assert_int_equal(s->work->targets(s, &q, &chunk, NULL), WEIR_OK);
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
    assert_int_equal(s->work->parked(s, &pq, &parked, NULL), WEIR_OK);
    for (size_t i = 0; i < parked.parked_count; i++) {
        const store_parked *p = &parked.parked[i];
        say(out, "parked %lld %lld %.*s event %lld %lld %.*s back %d\n", (long long)p->id,
            (long long)p->reaction, (int)p->target.len, p->target.ptr, (long long)p->event,
            (long long)p->attempts, (int)p->error.len, p->error.ptr, p->sent_back);
    }
    weir__arena_free(&parked.arena);
    store_lane_list lanes = { 0 };
    assert_int_equal(s->work->lanes(s, &lanes, NULL), WEIR_OK);
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
    say(out, " work %zu", c->work.count);
}

static void count_finding(void *ctx, const char *rule, const char *text, const char *advice)
{
    (void)advice;
    print_message("# %s: %s\n", rule, text);
    ++*(int *)ctx;
}

weir_buffer kit_describe(weir_store *s)
{
    weir_buffer out = { 0 };
    int findings = 0;
    say_events(s, &out);
    say_reactions(s, &out);
    say_targets(s, &out);
    say_rest(s, &out);
    assert_int_equal(s->about->check(s, count_finding, &findings, NULL), WEIR_OK);
    assert_int_equal(findings, 0);
    assert_true(weir__buffer_add(&out, "", 1));
    return out;
}
