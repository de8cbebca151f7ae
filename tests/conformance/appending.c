/* appending.c - C05 to C08: an append is all or nothing, under expectations, and versions have no
 * gaps, whatever races, refusals and reopenings there are.
 */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- C05 ---------------------------------------------------------------------------------- */

static void C05_an_append_writes_to_several_streams_or_to_none(void **state)
{
    kit *k = *state;
    kit_put(k, "c", "Before");
    kit_append a;
    kit_append_init(&a);
    const uint32_t x = kit_append_stream(&a, "a", WEIR_EXPECT_NONE, 0);
    const uint32_t y = kit_append_stream(&a, "b", WEIR_EXPECT_ANY, 0);
    const uint32_t z = kit_append_stream(&a, "c", WEIR_EXPECT_EXACT, 1); /* it is at 0 */
    kit_append_event(&a, x, "A", "{}");
    kit_append_event(&a, y, "B", "{}");
    kit_append_event(&a, z, "C", "{}");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);
    assert_int_equal(kit_log(k).count, 1);
    assert_int_equal(kit_version(k, "a"), -1);
    assert_int_equal(kit_version(k, "b"), -1);

    a.streams[z].version = 0;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_int_equal(kit_log(k).count, 4);
    assert_int_equal(a.streams[x].first, 0);
    assert_int_equal(a.streams[x].last, 0);
    assert_int_equal(a.streams[z].first, 1);
    assert_int_equal(a.streams[z].last, 1);
    assert_true(a.streams[x].id < a.streams[y].id && a.streams[y].id < a.streams[z].id);
    assert_int_equal(a.streams[z].id, kit_head(k));
}

/* The time that an append said it happened, against what its events say. */
static void check_times(kit *k, const kit_append *a)
{
    for (size_t i = 0; i < a->append.streams_count; i++) {
        const store_append_stream *s = &a->streams[i];
        const kit_events log = kit_log(k);
        int64_t created_us = 0;
        for (size_t j = 0; j < log.count; j++) {
            created_us = log.events[j].id == s->id ? log.events[j].created_us : created_us;
        }
        assert_int_equal(s->created_us, created_us); /* 0: it got no event */
    }
}

static void the_time_of_an_append_is_returned_and_is_its_events_created(void **state)
{
    kit *k = *state;
    kit_append a, b, keyed, again;
    /* A new stream and one that is only named; then one event to a stream that is there. */
    kit_put(k, "named", "A");
    kit_advance(k, 1234567);
    kit_append_init(&a);
    const uint32_t x = kit_append_stream(&a, "x", WEIR_EXPECT_NONE, 0);
    (void)kit_append_stream(&a, "named", WEIR_EXPECT_EXISTS, 0);
    kit_append_event(&a, x, "A", "{}");
    kit_append_event(&a, x, "B", "{}");
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_true(a.streams[x].created_us > 0);
    check_times(k, &a);
    const int64_t first_us = a.streams[x].created_us;
    kit_advance(k, 1234567);
    KIT_OK(k, kit_try(k->store, "x", WEIR_EXPECT_EXACT, 1, &a));
    assert_true(a.streams[0].created_us > first_us);
    check_times(k, &a);
    /* Several callers in one transaction, without waiting, and with a key. */
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "x", WEIR_EXPECT_ANY, 0), "C", "{}");
    kit_append_init(&b);
    kit_append_event(&b, kit_append_stream(&b, "y", WEIR_EXPECT_ANY, 0), "C", "{}");
    a.append.flags = b.append.flags = STORE_APPEND_NOWAIT;
    store_append *both[] = { &a.append, &b.append };
    KIT_OK(k, k->store->log->append(k->store, both, 2, &k->err));
    assert_int_equal(a.append.status, WEIR_OK);
    assert_int_equal(b.append.status, WEIR_OK);
    check_times(k, &a);
    check_times(k, &b);
    /* A replay has the time of its first run. */
    kit_append_init(&keyed);
    const uint32_t z = kit_append_stream(&keyed, "z", WEIR_EXPECT_NONE, 0);
    (void)kit_append_stream(&keyed, "named", WEIR_EXPECT_EXISTS, 0);
    kit_append_event(&keyed, z, "A", "{}");
    kit_append_key(&keyed, "key");
    KIT_OK(k, kit_append_run(k->store, &keyed));
    check_times(k, &keyed);
    kit_advance(k, 1234567);
    kit_append_init(&again);
    kit_append_event(&again, kit_append_stream(&again, "z", WEIR_EXPECT_NONE, 0), "A", "{}");
    (void)kit_append_stream(&again, "named", WEIR_EXPECT_EXISTS, 0);
    kit_append_key(&again, "key");
    KIT_OK(k, kit_append_run(k->store, &again));
    assert_true(again.append.replayed);
    assert_int_equal(again.streams[0].created_us, keyed.streams[z].created_us);
    assert_int_equal(again.streams[1].created_us, 0);
    check_times(k, &again);
}

static void C05_a_stream_can_be_named_with_an_expectation_and_no_events(void **state)
{
    kit *k = *state;
    kit_put(k, "guard", "A");
    kit_put(k, "guard", "B");
    kit_append a;
    kit_append_init(&a);
    const uint32_t guard = kit_append_stream(&a, "guard", WEIR_EXPECT_EXACT, 0);
    const uint32_t other = kit_append_stream(&a, "other", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, other, "A", "{}");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);
    assert_string_equal(a.err.stream, "guard");
    assert_int_equal(kit_version(k, "other"), -1);

    a.streams[guard].version = 1;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_int_equal(a.streams[guard].first, -1);
    assert_int_equal(a.streams[guard].last, 1);
    assert_int_equal(a.streams[guard].id, 0);
    assert_int_equal(a.streams[other].first, 0);

    /* A stream that is only expected not to be there does not begin to be. */
    kit_append_init(&a);
    const uint32_t absent = kit_append_stream(&a, "absent", WEIR_EXPECT_NONE, 0);
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_int_equal(a.streams[absent].last, -1);
    assert_int_equal(kit_version(k, "absent"), -1);
    store_streams_chunk chunk = { 0 };
    const store_streams_query all = { .limit = 100 };
    KIT_OK(k, k->store->log->streams(k->store, &all, &chunk, &k->err));
    assert_int_equal(chunk.streams_count, 2);
    weir__arena_free(&chunk.arena);
}

/* A request of `count` events of one stream, each with `data`; ended by free(events). */
static weir_status many_events(kit *k, size_t count, weir_str data,
                               weir_status (*run)(kit *, const weir_append_request *))
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("many"),
                                   .name = weir__str("N"), .data = data };
    const weir_new_event **events = calloc(count, sizeof(const weir_new_event *));
    assert_non_null(events);
    for (size_t i = 0; i < count; i++) {
        events[i] = &event;
    }
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events,
                                    .events_count = count, .correlation = weir__str("c") };
    const weir_status status = run(k, &r);
    free(events);
    return status;
}

static void C05_an_append_has_at_most_100_000_events(void **state)
{
    kit *k = *state;
    KIT_IS(k, many_events(k, STORE_APPEND_EVENTS_MAX + 1, weir__str("1"), kit_request),
           WEIR_EINVAL);
    assert_int_equal(kit_head(k), 0);
    KIT_OK(k, many_events(k, STORE_APPEND_EVENTS_MAX, weir__str("1"), kit_request));
    assert_int_equal(kit_version(k, "many"), STORE_APPEND_EVENTS_MAX - 1);
}

static void C05_an_append_has_at_most_64_mib(void **state)
{
    kit *k = *state;
    const size_t bytes = 1000 * 1000;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'x', bytes);
    text[0] = '"';
    text[bytes - 1] = '"';
    const weir_str data = { .ptr = text, .len = bytes };
    KIT_IS(k, many_events(k, 68, data, kit_request), WEIR_EINVAL);
    assert_int_equal(kit_head(k), 0);
    KIT_OK(k, many_events(k, 66, data, kit_request));
    assert_int_equal(kit_version(k, "many"), 65);
    free(text);
}

/* ---- C06 ---------------------------------------------------------------------------------- */

static void C06_expectations_are_enforced(void **state)
{
    kit *k = *state;
    kit_append a;
    static const struct {
        int32_t expect;
        int64_t version;
        weir_status missing, present; /* on no stream; on one at version 1 */
        int64_t expected;             /* as a conflict reports it          */
    } cases[] = {
        { WEIR_EXPECT_ANY, 0, WEIR_OK, WEIR_OK, 0 },
        { WEIR_EXPECT_NONE, 0, WEIR_OK, WEIR_ECONFLICT, WEIR_VERSION_NONE },
        { WEIR_EXPECT_EXISTS, 0, WEIR_ECONFLICT, WEIR_OK, WEIR_VERSION_EXISTS },
        { WEIR_EXPECT_EXACT, 0, WEIR_ECONFLICT, WEIR_ECONFLICT, 0 },
        { WEIR_EXPECT_EXACT, 1, WEIR_ECONFLICT, WEIR_OK, 1 },
        { WEIR_EXPECT_EXACT, 2, WEIR_ECONFLICT, WEIR_ECONFLICT, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *missing = kit_text(k, "missing-%zu", i);
        const char *present = kit_text(k, "present-%zu", i);
        KIT_IS(k, kit_try(k->store, missing, cases[i].expect, cases[i].version, &a),
               cases[i].missing);
        if (cases[i].missing == WEIR_ECONFLICT) {
            assert_int_equal(a.err.expected, cases[i].expected);
            assert_int_equal(a.err.actual, WEIR_VERSION_NONE);
            assert_string_equal(a.err.stream, missing);
        }
        kit_put(k, present, "A");
        kit_put(k, present, "B");
        KIT_IS(k, kit_try(k->store, present, cases[i].expect, cases[i].version, &a),
               cases[i].present);
        if (cases[i].present == WEIR_ECONFLICT) {
            assert_int_equal(a.err.code, WEIR_ECONFLICT);
            assert_int_equal(a.err.expected, cases[i].expected);
            assert_int_equal(a.err.actual, 1);
            assert_string_equal(a.err.stream, present);
        }
    }
}

enum { RACERS = 8, ROUNDS = 40 };

typedef struct race {
    weir_store *stores[RACERS];
    weir_status results[RACERS][ROUNDS];
    int64_t versions[RACERS][ROUNDS]; /* won, or the actual one of the conflict */
    int32_t expect;
} race;

static void race_open(kit *k, race *r)
{
    for (size_t i = 0; i < RACERS; i++) {
        r->stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
}

/* Everybody wants every version, knowing exactly what it must follow. */
static void race_exact(void *ctx, size_t index)
{
    race *r = ctx;
    for (int64_t round = 0; round < ROUNDS; round++) {
        kit_append a;
        const weir_status status =
            kit_try(r->stores[index], "race", round == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT,
                    round - 1, &a);
        r->results[index][round] = status;
        r->versions[index][round] = status == WEIR_OK ? a.streams[0].last : a.err.actual;
        /* Losing to a version that is not there yet cannot be: wait until it is. */
        while (r->results[index][round] == WEIR_ECONFLICT && r->versions[index][round] < round) {
            const weir_status again =
                kit_try(r->stores[index], "race", round == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT,
                        round - 1, &a);
            r->results[index][round] = again;
            r->versions[index][round] = again == WEIR_OK ? a.streams[0].last : a.err.actual;
        }
    }
}

static void C06_one_writer_wins_each_version_of_a_race(void **state)
{
    kit *k = *state;
    race r = { 0 };
    race_open(k, &r);
    kit_threads(RACERS, race_exact, &r);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t winners = 0;
        for (size_t i = 0; i < RACERS; i++) {
            if (r.results[i][round] == WEIR_OK) {
                winners++;
                assert_int_equal(r.versions[i][round], round);
            } else {
                assert_int_equal(r.results[i][round], WEIR_ECONFLICT);
                assert_true(r.versions[i][round] >= (int64_t)round);
            }
        }
        assert_int_equal(winners, 1);
    }
    assert_int_equal(kit_stream(k, "race").count, ROUNDS);
    kit_check_log(k, kit_log(k));
}

static void race_any(void *ctx, size_t index)
{
    race *r = ctx;
    for (size_t round = 0; round < ROUNDS; round++) {
        kit_append a;
        r->results[index][round] =
            kit_try(r->stores[index], "crowd", round % 2 == 0 ? WEIR_EXPECT_ANY : r->expect, 0, &a);
        r->versions[index][round] = a.streams[0].last;
    }
}

static void C06_any_never_conflicts(void **state)
{
    kit *k = *state;
    race r = { .expect = WEIR_EXPECT_ANY };
    race_open(k, &r);
    kit_threads(RACERS, race_any, &r);
    bool seen[RACERS * ROUNDS] = { false };
    for (size_t i = 0; i < RACERS; i++) {
        for (size_t round = 0; round < ROUNDS; round++) {
            assert_int_equal(r.results[i][round], WEIR_OK);
            const int64_t version = r.versions[i][round];
            assert_true(version >= 0 && version < RACERS * ROUNDS && !seen[version]);
            seen[version] = true;
        }
    }
    kit_check_log(k, kit_log(k));
}

static void race_none(void *ctx, size_t index)
{
    race *r = ctx;
    for (size_t round = 0; round < ROUNDS; round++) {
        char stream[32];
        snprintf(stream, sizeof stream, "new-%zu", round);
        kit_append a;
        r->results[index][round] = kit_try(r->stores[index], stream, WEIR_EXPECT_NONE, 0, &a);
        r->versions[index][round] = a.err.actual;
    }
}

static void C06_one_writer_begins_a_stream(void **state)
{
    kit *k = *state;
    race r = { 0 };
    race_open(k, &r);
    kit_threads(RACERS, race_none, &r);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t winners = 0;
        for (size_t i = 0; i < RACERS; i++) {
            winners += r.results[i][round] == WEIR_OK;
            if (r.results[i][round] != WEIR_OK) {
                assert_int_equal(r.results[i][round], WEIR_ECONFLICT);
                assert_int_equal(r.versions[i][round], 0);
            }
        }
        assert_int_equal(winners, 1);
    }
}

/* An append that is wrong in every way there is, and what it is told as the reasons go away. */
static void C06_refusals_are_judged_in_order(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_append_init(&a);
    const uint32_t owner = kit_append_stream(&a, "owner", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, owner, "A", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:a", owner);
    kit_append_key(&a, "key-1");
    KIT_OK(k, kit_append_run(k->store, &a));
    kit_put(k, "closed", "A");
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "closed", WEIR_EXPECT_ANY, 0), "$closed", "{}");
    a.append.flags = STORE_APPEND_CLOSE;
    KIT_OK(k, kit_append_run(k->store, &a));
    kit_put(k, "moved", "A");

    kit_append_init(&a);
    const uint32_t moved = kit_append_stream(&a, "moved", WEIR_EXPECT_NONE, 0);
    const uint32_t closed = kit_append_stream(&a, "closed", WEIR_EXPECT_NONE, 0);
    kit_append_event(&a, moved, "A", "{}");
    kit_append_event(&a, closed, "A", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:a", moved);
    kit_append_key(&a, "key-1");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_EKEYREUSED);
    kit_append_key(&a, "key-2");
    /* Streams as given: the first one conflicts before the second one is found closed. */
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);
    assert_string_equal(a.err.stream, "moved");
    a.streams[moved].expect = WEIR_EXPECT_ANY;
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECLOSED);
    assert_string_equal(a.err.stream, "closed");
    /* Closed comes before the conflict of the same stream, which goes the same way now. */
    a.append.streams_count = 1;
    a.append.events_count = 1;
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ETAKEN);
    assert_string_equal(a.err.stream, "owner");
    a.append.key_changes_count = 0;
    KIT_OK(k, kit_append_run(k->store, &a));
}

/* ---- C07 ---------------------------------------------------------------------------------- */

static void C07_conflict_leaves_no_trace(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    const int64_t head = kit_head(k);
    kit_append a;
    kit_append_init(&a);
    const uint32_t fresh = kit_append_stream(&a, "fresh", WEIR_EXPECT_ANY, 0);
    const uint32_t s = kit_append_stream(&a, "s", WEIR_EXPECT_NONE, 0);
    kit_append_event(&a, fresh, "F", "{}");
    kit_append_event(&a, s, "G", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:x", fresh);
    kit_append_key(&a, "key");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);

    assert_int_equal(kit_head(k), head);
    assert_int_equal(kit_log(k).count, 1);
    assert_int_equal(kit_version(k, "fresh"), -1);
    assert_int_equal(kit_version(k, "s"), 0);
    assert_string_equal(kit_key_owner(k, "email:x"), "");
    /* The key is free for something else. */
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_EXACT, 0), "B", "{}");
    kit_append_key(&a, "key");
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_false(a.append.replayed);
    assert_int_equal(a.streams[0].last, 1);
    kit_check_log(k, kit_log(k));
    kit_check(k);
}

static void C07_a_refused_append_between_others_leaves_no_trace(void **state)
{
    kit *k = *state;
    kit_append all[3];
    store_append *appends[3];
    for (size_t i = 0; i < 3; i++) {
        kit_append_init(&all[i]);
        appends[i] = &all[i].append;
        const uint32_t own = kit_append_stream(&all[i],
                                               i == 0   ? "a"
                                               : i == 1 ? "b"
                                                        : "c",
                                               WEIR_EXPECT_ANY, 0);
        const uint32_t both =
            kit_append_stream(&all[i], "shared", i == 1 ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY, 0);
        kit_append_event(&all[i], own, "A", "{}");
        kit_append_event(&all[i], both, "B", "{}");
    }
    KIT_OK(k, k->store->log->append(k->store, appends, 3, &k->err));
    assert_int_equal(all[0].append.status, WEIR_OK);
    assert_int_equal(all[1].append.status, WEIR_ECONFLICT);
    assert_int_equal(all[1].err.actual, 0); /* it has seen the one before it */
    assert_int_equal(all[2].append.status, WEIR_OK);
    assert_int_equal(all[2].streams[1].first, 1);
    assert_int_equal(kit_version(k, "b"), -1);
    assert_int_equal(kit_log(k).count, 4);
    kit_check_log(k, kit_log(k));
}

static void C07_a_dry_run_judges_and_leaves_no_trace(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_EXACT, 0), "B", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:x", 0);
    kit_append_key(&a, "key");
    a.append.flags = STORE_APPEND_DRY_RUN;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_int_equal(a.streams[0].first, 1);
    assert_int_equal(a.streams[0].last, 1);
    assert_int_equal(kit_log(k).count, 1);
    assert_int_equal(kit_version(k, "s"), 0);
    a.streams[0].version = 5;
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);
    a.append.flags = 0;
    a.streams[0].version = 0;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_false(a.append.replayed);
    assert_int_equal(kit_version(k, "s"), 1);
}

/* ---- C08 ---------------------------------------------------------------------------------- */

static void C08_versions_have_no_gaps_through_conflicts_and_reopenings(void **state)
{
    kit *k = *state;
    kit_append a;
    for (int64_t i = 0; i < 30; i++) {
        KIT_IS(k, kit_try(k->store, "s", WEIR_EXPECT_EXACT, i + 3, &a), WEIR_ECONFLICT);
        KIT_OK(k, kit_try(k->store, "s", i == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT, i - 1, &a));
        assert_int_equal(a.streams[0].first, i);
        KIT_OK(k, kit_try(k->store, i % 2 == 0 ? "t" : "u", WEIR_EXPECT_ANY, 0, &a));
        if (i % 7 == 0) {
            kit_reopen(k);
        }
    }
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 60);
    kit_check_log(k, log);
    kit_check(k);
}

static void C08_positions_follow_the_order_given_in_an_append(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_append_init(&a);
    const uint32_t x = kit_append_stream(&a, "x", WEIR_EXPECT_ANY, 0);
    const uint32_t y = kit_append_stream(&a, "y", WEIR_EXPECT_ANY, 0);
    static const char *const names[] = { "A", "B", "C", "D", "E", "F" };
    for (size_t i = 0; i < 6; i++) {
        kit_append_event(&a, i == 0 || i == 3 || i == 4 ? y : x, names[i], "{}");
    }
    KIT_OK(k, kit_append_run(k->store, &a));
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 6);
    for (size_t i = 0; i < 6; i++) {
        KIT_STR(log.events[i].name, names[i]);
    }
    kit_check_log(k, log);
    assert_int_equal(a.streams[x].first, 0);
    assert_int_equal(a.streams[x].last, 2);
    assert_int_equal(a.streams[y].last, 2);
    assert_int_equal(a.streams[x].id, log.events[5].id);
    assert_int_equal(a.streams[y].id, log.events[4].id);
}

static void race_mixed(void *ctx, size_t index)
{
    race *r = ctx;
    for (size_t round = 0; round < ROUNDS; round++) {
        kit_append a;
        kit_append_init(&a);
        char own[32];
        snprintf(own, sizeof own, "own-%zu", index);
        const uint32_t x = kit_append_stream(&a, "shared-1", WEIR_EXPECT_ANY, 0);
        const uint32_t y = kit_append_stream(&a, own, WEIR_EXPECT_ANY, 0);
        const uint32_t z = kit_append_stream(
            &a, "shared-2", round % 3 == 0 ? WEIR_EXPECT_EXACT : WEIR_EXPECT_ANY, (int64_t)round);
        kit_append_event(&a, x, "A", "{}");
        kit_append_event(&a, y, "B", "{}");
        kit_append_event(&a, z, "C", "{}");
        kit_append_event(&a, x, "D", "{}");
        r->results[index][round] = kit_append_run(r->stores[index], &a);
    }
}

static void C08_versions_have_no_gaps_under_concurrent_writers(void **state)
{
    kit *k = *state;
    race r = { 0 };
    race_open(k, &r);
    kit_threads(RACERS, race_mixed, &r);
    size_t won = 0;
    for (size_t i = 0; i < RACERS; i++) {
        for (size_t round = 0; round < ROUNDS; round++) {
            const weir_status status = r.results[i][round];
            assert_true(status == WEIR_OK || (status == WEIR_ECONFLICT && round % 3 == 0));
            won += status == WEIR_OK;
        }
    }
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, 4 * won);
    kit_check_log(k, log);
    kit_check(k);
}

kit_theme kit_appending(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C05_an_append_writes_to_several_streams_or_to_none),
        KIT_TEST(the_time_of_an_append_is_returned_and_is_its_events_created),
        KIT_TEST(C05_a_stream_can_be_named_with_an_expectation_and_no_events),
        KIT_TEST(C05_an_append_has_at_most_100_000_events),
        KIT_TEST(C05_an_append_has_at_most_64_mib),
        KIT_TEST(C06_expectations_are_enforced),
        KIT_TEST(C06_one_writer_wins_each_version_of_a_race),
        KIT_TEST(C06_any_never_conflicts),
        KIT_TEST(C06_one_writer_begins_a_stream),
        KIT_TEST(C06_refusals_are_judged_in_order),
        KIT_TEST(C07_conflict_leaves_no_trace),
        KIT_TEST(C07_a_refused_append_between_others_leaves_no_trace),
        KIT_TEST(C07_a_dry_run_judges_and_leaves_no_trace),
        KIT_TEST(C08_versions_have_no_gaps_through_conflicts_and_reopenings),
        KIT_TEST(C08_positions_follow_the_order_given_in_an_append),
        KIT_TEST(C08_versions_have_no_gaps_under_concurrent_writers),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
