/* keys.c - C09 and C10: idempotency keys make an append happen once, reserved keys belong to one
 * stream.
 */
#include "kit.h"

#include <stdio.h>

static const int64_t ttl_us = INT64_C(24) * 3600 * 1000 * 1000;

/* An append of one event to `stream` with an idempotency key. */
static weir_status keyed(weir_store *s, const char *key, const char *stream, const char *name,
                         kit_append *a)
{
    kit_append_init(a);
    kit_append_event(a, kit_append_stream(a, stream, WEIR_EXPECT_ANY, 0), name, "{}");
    kit_append_key(a, key);
    return kit_append_run(s, a);
}

/* ---- C09 ---------------------------------------------------------------------------------- */

static void C09_a_repeat_returns_the_first_result_and_writes_nothing(void **state)
{
    kit *k = *state;
    kit_put(k, "named", "A");
    kit_append first;
    kit_append_init(&first);
    const uint32_t x = kit_append_stream(&first, "x", WEIR_EXPECT_NONE, 0);
    const uint32_t y = kit_append_stream(&first, "y", WEIR_EXPECT_ANY, 0);
    kit_append_stream(&first, "named", WEIR_EXPECT_EXACT, 0);
    kit_append_event(&first, x, "A", "{}");
    kit_append_event(&first, y, "B", "{}");
    kit_append_event(&first, x, "C", "{}");
    kit_append_change(&first, WEIR_KEY_RESERVE, "email:x", x);
    kit_append_key(&first, "key");
    KIT_OK(k, kit_append_run(k->store, &first));
    assert_false(first.append.replayed);
    kit_put(k, "x", "Later");
    kit_put(k, "named", "Later");
    const int64_t head = kit_head(k);

    for (int round = 0; round < 3; round++) {
        kit_append again = first;
        again.append.streams = again.streams;
        again.append.events = again.events;
        again.append.key_changes = again.changes;
        again.append.err = &again.err;
        for (size_t i = 0; i < 3; i++) {
            again.streams[i].first = again.streams[i].last = again.streams[i].id = -7;
        }
        weir_store *s = round == 1 ? kit_open(k) : k->store;
        KIT_OK(k, kit_append_run(s, &again));
        assert_true(again.append.replayed);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(again.streams[i].first, first.streams[i].first);
            assert_int_equal(again.streams[i].last, first.streams[i].last);
            assert_int_equal(again.streams[i].id, first.streams[i].id);
        }
        kit_reopen(k);
        assert_int_equal(kit_head(k), head);
    }
    assert_int_equal(kit_log(k).count, 6);
}

static void C09_a_repeat_is_a_replay_although_the_stream_is_closed(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, keyed(k->store, "key", "s", "A", &a));
    kit_append close;
    kit_append_init(&close);
    kit_append_event(&close, kit_append_stream(&close, "s", WEIR_EXPECT_ANY, 0), "$closed", "{}");
    close.append.flags = STORE_APPEND_CLOSE;
    KIT_OK(k, kit_append_run(k->store, &close));
    KIT_OK(k, keyed(k->store, "key", "s", "A", &a));
    assert_true(a.append.replayed);
    KIT_IS(k, keyed(k->store, "other", "s", "A", &a), WEIR_ECLOSED);
}

static void C09_the_same_key_with_other_content_is_refused(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, keyed(k->store, "key", "s", "A", &a));
    KIT_IS(k, keyed(k->store, "key", "s", "B", &a), WEIR_EKEYREUSED);
    KIT_IS(k, keyed(k->store, "key", "t", "A", &a), WEIR_EKEYREUSED);
    assert_int_equal(a.err.code, WEIR_EKEYREUSED);
    assert_int_equal(kit_log(k).count, 1);
    kit_reopen(k);
    KIT_IS(k, keyed(k->store, "key", "s", "B", &a), WEIR_EKEYREUSED);
    KIT_OK(k, keyed(k->store, "Key", "s", "B", &a)); /* another key: bytes decide */
}

/* Content as a caller gives it: each part of it counts, but for meta. */
typedef struct content {
    const char *stream, *name, *data, *meta, *reserve, *correlation;
    int32_t expect;
} content;

static weir_status content_append(kit *k, const content *c)
{
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str(c->stream),
                                   .name = weir__str(c->name), .data = weir__str(c->data),
                                   .meta = weir__str(c->meta) };
    const weir_new_event *events[] = { &event };
    const weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = c->expect,
                                           .stream = weir__str(c->stream) };
    const weir_expectation *expectations[] = { &expectation };
    const weir_key_change change = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE,
                                     .key = weir__str(c->reserve), .stream = weir__str(c->stream) };
    const weir_key_change *changes[] = { &change };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT,
                                    .events = events,
                                    .events_count = 1,
                                    .expectations = expectations,
                                    .expectations_count = 1,
                                    .key_changes = changes,
                                    .key_changes_count = 1,
                                    .key = weir__str("key"),
                                    .correlation = weir__str(c->correlation) };
    return kit_request(k, &r);
}

static void C09_content_is_everything_but_meta(void **state)
{
    kit *k = *state;
    const content first = { .stream = "s",
                            .name = "A",
                            .data = "{\"a\":1}",
                            .meta = "{\"m\":1}",
                            .reserve = "email:a",
                            .correlation = "one" };
    KIT_OK(k, content_append(k, &first));
    content same = first;
    same.meta = "{\"m\":2}";
    same.correlation = "two";
    same.data = "{ \"a\" : 1 }"; /* white space is no content */
    KIT_OK(k, content_append(k, &same));
    assert_int_equal(kit_log(k).count, 1);

    content other[5] = { first, first, first, first, first };
    other[0].stream = "t";
    other[1].name = "B";
    other[2].data = "{\"a\":1.0}";
    other[3].reserve = "email:b";
    other[4].expect = WEIR_EXPECT_EXISTS;
    for (size_t i = 0; i < 5; i++) {
        KIT_IS(k, content_append(k, &other[i]), WEIR_EKEYREUSED);
    }
    assert_int_equal(kit_log(k).count, 1);
}

static void C09_a_refused_append_does_not_use_up_its_key(void **state)
{
    kit *k = *state;
    kit_put(k, "s", "A");
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_NONE, 0), "B", "{}");
    kit_append_key(&a, "key");
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT);
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ECONFLICT); /* judged again, not replayed */
    a.streams[0].expect = WEIR_EXPECT_EXACT;
    kit_append_key(&a, "key");
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_false(a.append.replayed);
    assert_int_equal(kit_version(k, "s"), 1);
}

static void C09_keys_expire(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, keyed(k->store, "key", "s", "A", &a));
    kit_advance(k, ttl_us - 1);
    KIT_OK(k, keyed(k->store, "key", "s", "A", &a));
    assert_true(a.append.replayed);
    KIT_IS(k, keyed(k->store, "key", "s", "B", &a), WEIR_EKEYREUSED);
    kit_advance(k, 2);
    KIT_OK(k, keyed(k->store, "key", "s", "B", &a));
    assert_false(a.append.replayed);
    /* It is remembered anew, from now. */
    kit_advance(k, ttl_us - 1);
    KIT_OK(k, keyed(k->store, "key", "s", "B", &a));
    assert_true(a.append.replayed);
    assert_int_equal(kit_version(k, "s"), 1);
}

static void C09_a_key_is_never_the_correlation(void **state)
{
    kit *k = *state;
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("A") };
    const weir_new_event *events[] = { &event };
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                              .correlation = weir__str("same") };
    KIT_OK(k, kit_request(k, &r));
    KIT_OK(k, kit_request(k, &r));
    r.key = weir__str("same");
    KIT_OK(k, kit_request(k, &r));
    KIT_OK(k, kit_request(k, &r)); /* the only replay */
    assert_int_equal(kit_log(k).count, 3);
}

static void C09_repeats_in_one_transaction_run_once(void **state)
{
    kit *k = *state;
    kit_append all[3];
    store_append *appends[3];
    for (size_t i = 0; i < 3; i++) {
        kit_append_init(&all[i]);
        kit_append_event(&all[i], kit_append_stream(&all[i], "s", WEIR_EXPECT_NONE, 0),
                         i == 2 ? "Other" : "A", "{}");
        kit_append_key(&all[i], "key");
        appends[i] = &all[i].append;
    }
    KIT_OK(k, k->store->log->append(k->store, appends, 3, &k->err));
    assert_int_equal(all[0].append.status, WEIR_OK);
    assert_int_equal(all[1].append.status, WEIR_OK);
    assert_true(all[1].append.replayed && !all[0].append.replayed);
    assert_int_equal(all[1].streams[0].id, all[0].streams[0].id);
    assert_int_equal(all[2].append.status, WEIR_EKEYREUSED);
    assert_int_equal(kit_log(k).count, 1);
}

enum { REPEATERS = 8, KEYS = 30 };

typedef struct repeats {
    weir_store *stores[REPEATERS];
    weir_status status[REPEATERS][KEYS];
    bool replayed[REPEATERS][KEYS];
    int64_t id[REPEATERS][KEYS];
} repeats;

static void repeat_all(void *ctx, size_t index)
{
    repeats *r = ctx;
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        kit_append a;
        snprintf(key, sizeof key, "key-%zu", i);
        r->status[index][i] = keyed(r->stores[index], key, "s", "A", &a);
        r->replayed[index][i] = a.append.replayed;
        r->id[index][i] = a.streams[0].id;
    }
}

static void C09_concurrent_repeats_run_once(void **state)
{
    kit *k = *state;
    repeats r = { 0 };
    for (size_t i = 0; i < REPEATERS; i++) {
        r.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(REPEATERS, repeat_all, &r);
    for (size_t i = 0; i < KEYS; i++) {
        size_t first = 0;
        int64_t id = 0;
        for (size_t t = 0; t < REPEATERS; t++) {
            assert_true(r.status[t][i] == WEIR_OK || r.status[t][i] == WEIR_EINFLIGHT);
            if (r.status[t][i] == WEIR_OK) {
                first += !r.replayed[t][i];
                assert_true(id == 0 || id == r.id[t][i]);
                id = r.id[t][i];
            }
        }
        assert_int_equal(first, 1);
    }
    assert_int_equal(kit_stream(k, "s").count, KEYS);
}

static weir_status change(kit *k, const char *stream, int32_t change_, const char *key,
                          kit_append *a)
{
    kit_append_init(a);
    const uint32_t s = kit_append_stream(a, stream, WEIR_EXPECT_ANY, 0);
    kit_append_event(a, s, "Changed", "{}");
    kit_append_change(a, change_, key, s);
    return kit_append_run(k->store, a);
}

static void C10_a_taken_key_is_refused_and_names_its_owner(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    KIT_IS(k, change(k, "user-2", WEIR_KEY_RESERVE, "email:a", &a), WEIR_ETAKEN);
    assert_string_equal(a.err.stream, "user-1");
    assert_int_equal(kit_version(k, "user-2"), -1);
    assert_int_equal(kit_log(k).count, 1);
    kit_reopen(k);
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
    assert_string_equal(kit_key_owner(k, "email:A"), "");
    KIT_IS(k, change(k, "user-2", WEIR_KEY_RESERVE, "email:a", &a), WEIR_ETAKEN);
}

static void C10_the_owner_reserving_again_changes_nothing(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
}

static void C10_the_owner_can_release(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    KIT_IS(k, change(k, "user-2", WEIR_KEY_RELEASE, "email:a", &a), WEIR_ETAKEN);
    assert_string_equal(a.err.stream, "user-1");
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RELEASE, "email:a", &a));
    assert_string_equal(kit_key_owner(k, "email:a"), "");
    KIT_OK(k, change(k, "user-3", WEIR_KEY_RELEASE, "email:a", &a)); /* free stays free */
    KIT_OK(k, change(k, "user-2", WEIR_KEY_RESERVE, "email:a", &a));
    assert_string_equal(kit_key_owner(k, "email:a"), "user-2");
}

static void C10_a_key_moves_in_one_append(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    kit_append_init(&a);
    const uint32_t from = kit_append_stream(&a, "user-1", WEIR_EXPECT_ANY, 0);
    const uint32_t to = kit_append_stream(&a, "user-2", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, to, "Moved", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:a", to);
    kit_append_change(&a, WEIR_KEY_RELEASE, "email:a", from);
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ETAKEN); /* in the order given */
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
    const store_key_change swap = a.changes[0];
    a.changes[0] = a.changes[1];
    a.changes[1] = swap;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_string_equal(kit_key_owner(k, "email:a"), "user-2");
}

static void C10_a_refused_append_changes_no_key(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    kit_append_init(&a);
    const uint32_t s = kit_append_stream(&a, "user-2", WEIR_EXPECT_ANY, 0);
    const uint32_t owner = kit_append_stream(&a, "user-1", WEIR_EXPECT_ANY, 0);
    kit_append_event(&a, s, "A", "{}");
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:b", s);
    kit_append_change(&a, WEIR_KEY_RELEASE, "email:a", owner);
    kit_append_change(&a, WEIR_KEY_RELEASE, "email:a", owner);
    kit_append_change(&a, WEIR_KEY_RESERVE, "email:b", owner); /* taken a moment ago */
    KIT_IS(k, kit_append_run(k->store, &a), WEIR_ETAKEN);
    assert_string_equal(a.err.stream, "user-2");
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
    assert_string_equal(kit_key_owner(k, "email:b"), "");
    assert_int_equal(kit_version(k, "user-2"), -1);
}

static void C10_closing_keeps_keys(void **state)
{
    kit *k = *state;
    kit_append a;
    KIT_OK(k, change(k, "user-1", WEIR_KEY_RESERVE, "email:a", &a));
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "user-1", WEIR_EXPECT_ANY, 0), "$closed", "{}");
    a.append.flags = STORE_APPEND_CLOSE;
    KIT_OK(k, kit_append_run(k->store, &a));
    assert_string_equal(kit_key_owner(k, "email:a"), "user-1");
    KIT_IS(k, change(k, "user-2", WEIR_KEY_RESERVE, "email:a", &a), WEIR_ETAKEN);
}

typedef struct reservers {
    weir_store *stores[REPEATERS];
    weir_status status[REPEATERS][KEYS];
    char owners[REPEATERS][KEYS][32];
} reservers;

static void reserve_all(void *ctx, size_t index)
{
    reservers *r = ctx;
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        char stream[32];
        kit_append a;
        snprintf(key, sizeof key, "email:%zu", i);
        snprintf(stream, sizeof stream, "user-%zu", index);
        kit_append_init(&a);
        const uint32_t s = kit_append_stream(&a, stream, WEIR_EXPECT_ANY, 0);
        kit_append_event(&a, s, "A", "{}");
        kit_append_change(&a, WEIR_KEY_RESERVE, key, s);
        r->status[index][i] = kit_append_run(r->stores[index], &a);
        snprintf(r->owners[index][i], 32, "%.31s",
                 r->status[index][i] == WEIR_OK ? stream : a.err.stream);
    }
}

static void C10_one_of_many_gets_a_key(void **state)
{
    kit *k = *state;
    static reservers r;
    r = (reservers){ 0 };
    for (size_t i = 0; i < REPEATERS; i++) {
        r.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(REPEATERS, reserve_all, &r);
    for (size_t i = 0; i < KEYS; i++) {
        const char *owner = kit_key_owner(k, kit_text(k, "email:%zu", i));
        size_t winners = 0;
        for (size_t t = 0; t < REPEATERS; t++) {
            assert_true(r.status[t][i] == WEIR_OK || r.status[t][i] == WEIR_ETAKEN);
            assert_string_equal(r.owners[t][i], owner);
            winners += r.status[t][i] == WEIR_OK;
        }
        assert_int_equal(winners, 1);
    }
    kit_check_log(k, kit_log(k));
}

static void C09_expired_keys_are_removed_in_bounded_batches(void **state)
{
    kit *k = *state;
    enum { COUNT = 200, BATCH = 64 };
    for (int i = 0; i < COUNT; i++) {
        kit_append a;
        KIT_OK(k, keyed(k->store, kit_text(k, "key-%d", i), "s", "A", &a));
    }
    kit_put(k, "s", "A"); /* nothing has expired */
    assert_int_equal(k->adapter->keys_count(k->place, k->store), COUNT);
    kit_advance(k, ttl_us + 1);
    int64_t left = COUNT;
    for (int added = 1; left > 0; added++) {
        /* An append that keeps a key takes its share of the work, and no more. */
        kit_append a;
        KIT_OK(k, keyed(k->store, kit_text(k, "new-%d", added), "s", "A", &a));
        left = left > BATCH ? left - BATCH : 0;
        assert_int_equal(k->adapter->keys_count(k->place, k->store), left + added);
    }
}

kit_theme kit_key_counts(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C09_expired_keys_are_removed_in_bounded_batches),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

kit_theme kit_keys(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C09_a_repeat_returns_the_first_result_and_writes_nothing),
        KIT_TEST(C09_a_repeat_is_a_replay_although_the_stream_is_closed),
        KIT_TEST(C09_the_same_key_with_other_content_is_refused),
        KIT_TEST(C09_content_is_everything_but_meta),
        KIT_TEST(C09_a_refused_append_does_not_use_up_its_key),
        KIT_TEST(C09_keys_expire),
        KIT_TEST(C09_a_key_is_never_the_correlation),
        KIT_TEST(C09_repeats_in_one_transaction_run_once),
        KIT_TEST(C09_concurrent_repeats_run_once),
        KIT_TEST(C10_a_taken_key_is_refused_and_names_its_owner),
        KIT_TEST(C10_the_owner_reserving_again_changes_nothing),
        KIT_TEST(C10_the_owner_can_release),
        KIT_TEST(C10_a_key_moves_in_one_append),
        KIT_TEST(C10_a_refused_append_changes_no_key),
        KIT_TEST(C10_closing_keeps_keys),
        KIT_TEST(C10_one_of_many_gets_a_key),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
