/* reading.c - C15, C16 and C18: what readers are given, in which order, and what it costs
 * others. */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>

enum { SECOND = 1000 * 1000 };

/* ---- C15: streams ------------------------------------------------------------------------- */

/* The versions a stream query gives, over all its chunks of at most `chunk_limit`. */
static size_t stream_versions(kit *k, store_stream_query q, int64_t limit, int64_t *out, size_t max)
{
    store_chunk chunk = { 0 };
    size_t count = 0;
    bool more = limit > 0;
    q.stream = weir__str("s");
    while (more) {
        q.limit = limit - (int64_t)count < 3 ? limit - (int64_t)count : 3;
        KIT_OK(k, k->store->log->read_stream(k->store, &q, &chunk, &k->err));
        assert_true((int64_t)chunk.events_count <= q.limit);
        for (size_t i = 0; i < chunk.events_count; i++) {
            assert_true(count < max);
            out[count++] = chunk.events[i].version;
            q.from = chunk.events[i].version + (q.backward ? -1 : 1);
        }
        more = chunk.more && (int64_t)count < limit;
        if (more) {
            assert_true(chunk.events_count > 0);
            more = q.backward ? q.from >= q.to : q.from <= q.to;
        }
    }
    weir__chunk_free(&chunk);
    return count;
}

static void C15_a_stream_is_read_both_ways_from_any_version(void **state)
{
    kit *k = *state;
    for (int i = 0; i < 10; i++) {
        kit_put(k, "s", "A");
        kit_put(k, "noise", "A");
    }
    static const struct {
        int64_t from, to;
        bool backward;
        int64_t limit, first, last;
        size_t count;
    } cases[] = {
        { 0, INT64_MAX, false, INT64_MAX, 0, 9, 10 },
        { 4, INT64_MAX, false, INT64_MAX, 4, 9, 6 },
        { 0, 0, false, INT64_MAX, 0, 0, 1 },
        { 2, 5, false, INT64_MAX, 2, 5, 4 },
        { 2, 100, false, 4, 2, 5, 4 },
        { 10, 20, false, INT64_MAX, 0, 0, 0 },
        { INT64_MAX, 0, true, INT64_MAX, 9, 0, 10 },
        { 4, 0, true, INT64_MAX, 4, 0, 5 },
        { 4, 2, true, INT64_MAX, 4, 2, 3 },
        { 9, 0, true, 7, 9, 3, 7 },
        { 0, 0, true, INT64_MAX, 0, 0, 1 },
        { INT64_MAX, 8, true, 1, 9, 9, 1 },
        { 3, 9, false, 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t versions[16];
        const store_stream_query q = { .from = cases[i].from,
                                       .to = cases[i].to,
                                       .backward = cases[i].backward,
                                       .until_us = INT64_MAX };
        const size_t count = stream_versions(k, q, cases[i].limit, versions, 16);
        assert_int_equal(count, cases[i].count);
        for (size_t j = 0; j < count; j++) {
            const int64_t step = (int64_t)j * (cases[i].backward ? -1 : 1);
            assert_int_equal(versions[j], cases[i].first + step);
        }
        if (count > 0) {
            assert_int_equal(versions[count - 1], cases[i].last);
        }
    }
}

static void C15_a_stream_that_is_not_there_is_not_found(void **state)
{
    kit *k = *state;
    kit_put(k, "s-1", "A");
    store_chunk chunk = { 0 };
    const store_stream_query q = {
        .stream = weir__str("s"), .to = INT64_MAX, .limit = 10, .until_us = INT64_MAX
    };
    KIT_IS(k, k->store->log->read_stream(k->store, &q, &chunk, &k->err), WEIR_ENOTFOUND);
    weir__chunk_free(&chunk);
    store_stream_info info;
    KIT_IS(k, k->store->log->stream_info(k->store, weir__str("S-1"), &k->arena, &info, &k->err),
           WEIR_ENOTFOUND);
    KIT_OK(k, k->store->log->stream_info(k->store, weir__str("s-1"), &k->arena, &info, &k->err));
    KIT_STR(info.stream, "s-1");
    assert_int_equal(info.version, 0);
    assert_false(info.closed);
}

static void C15_a_stream_is_read_until_a_time(void **state)
{
    kit *k = *state;
    int64_t times[5];
    for (size_t i = 0; i < 5; i++) {
        times[i] = kit_now(k);
        kit_put(k, "s", "A");
        kit_advance(k, SECOND);
    }
    int64_t versions[8];
    store_stream_query q = { .to = INT64_MAX, .until_us = times[2] };
    assert_int_equal(stream_versions(k, q, INT64_MAX, versions, 8), 3); /* inclusive */
    q.until_us = times[2] - 1;
    assert_int_equal(stream_versions(k, q, INT64_MAX, versions, 8), 2);
    q.until_us = 0; /* a bound of 0 is a bound */
    assert_int_equal(stream_versions(k, q, INT64_MAX, versions, 8), 0);
    q = (store_stream_query){ .from = INT64_MAX, .to = 0, .backward = true, .until_us = times[1] };
    assert_int_equal(stream_versions(k, q, INT64_MAX, versions, 8), 2);
    assert_int_equal(versions[0], 1);
}

static void C15_an_event_comes_back_as_it_was_given(void **state)
{
    kit *k = *state;
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "order-\xc3\xa4", WEIR_EXPECT_ANY, 0),
                     "Pl\xc3\xa4"
                     "ced",
                     "{\"n\":12345678901234567890123,\"n\":1.0,\"t\":\"\\u00e9 ' \\\" %\"}");
    KIT_OK(k, kit_append_run(k->store, &a));
    kit_reopen(k);
    const kit_events log = kit_log(k);
    const kit_events stream = kit_stream(k, "order-\xc3\xa4");
    for (int i = 0; i < 2; i++) {
        const weir_event *e = i == 0 ? &log.events[0] : &stream.events[0];
        KIT_STR(e->stream, "order-\xc3\xa4");
        KIT_STR(e->name, "Pl\xc3\xa4"
                         "ced");
        KIT_STR(e->data, "{\"n\":12345678901234567890123,\"n\":1.0,\"t\":\"\\u00e9 ' \\\" %\"}");
        KIT_STR(e->meta, "{\"correlation\":\"c-1\"}");
        assert_int_equal(e->id, a.streams[0].id);
        assert_int_equal(e->version, 0);
        assert_int_equal(e->created_us, atomic_load(&k->wall_us));
    }
}

/* ---- C15: the log ------------------------------------------------------------------------- */

/* A log of 240 events: 4 streams of 2 categories and one alone, 5 names, 3 correlations, a second
 * between each. The filter under test is held against the plain definition of what matches. */
enum { MIXED = 240 };

static void mixed_log(kit *k)
{
    static const char *const streams[] = { "order-1", "order-2", "orders", "user-1", "user" };
    static const char *const names[] = { "A", "B", "C", "D", "E" };
    static const char *const metas[] = {
        "{\"correlation\":\"c-1\"}", "{\"z\":{\"correlation\":\"c-1\"},\"correlation\":\"c-2\"}",
        "{\"correlation\":\"c-\\u0031\"}"
    };
    for (size_t i = 0; i < MIXED; i++) {
        kit_append a;
        kit_append_init(&a);
        kit_append_event(&a, kit_append_stream(&a, streams[(i * 7) % 5], WEIR_EXPECT_ANY, 0),
                         names[(i / 3) % 5], "{}");
        a.events[0].meta = weir__str(metas[i % 3]);
        KIT_OK(k, kit_append_run(k->store, &a));
        kit_advance(k, SECOND);
    }
}

/* What a filter must give, from the whole log. */
static size_t expected_ids(const kit_events *all, const store_log_query *q, int64_t *ids)
{
    size_t count = 0;
    for (size_t n = 0; n < all->count && (int64_t)count < q->limit; n++) {
        const weir_event *e = &all->events[q->backward ? all->count - 1 - n : n];
        const bool inside =
            q->backward ? e->id < q->after && e->id >= q->to : e->id > q->after && e->id <= q->to;
        if (inside && (q->filter == NULL || weir__filter_matches(q->filter, e))) {
            ids[count++] = e->id;
        }
    }
    return count;
}

static void log_is(kit *k, const kit_events *all, const store_log_query *q)
{
    int64_t ids[MIXED];
    const size_t count = expected_ids(all, q, ids);
    const kit_events got = kit_read_log(k, k->store, q);
    assert_int_equal(got.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got.events[i].id, ids[i]);
    }
}

/* Both ways, with bounds and limits around. */
static size_t filter_is(kit *k, const kit_events *all, const store_filter *filter)
{
    const int64_t head = kit_head(k);
    const store_log_query forward = { .to = INT64_MAX, .limit = INT64_MAX, .filter = filter };
    const store_log_query backward = {
        .after = INT64_MAX, .to = 0, .backward = true, .limit = INT64_MAX, .filter = filter
    };
    const store_log_query limits[] = {
        forward,
        backward,
        { .after = 17, .to = 90, .limit = INT64_MAX, .filter = filter },
        { .after = 0, .to = 0, .limit = INT64_MAX, .filter = filter }, /* a bound of 0 is a bound */
        { .after = head, .to = INT64_MAX, .limit = INT64_MAX, .filter = filter },
        { .after = 3, .to = INT64_MAX, .limit = 5, .filter = filter },
        { .after = 100, .to = 30, .backward = true, .limit = INT64_MAX, .filter = filter },
        { .after = 0, .to = 0, .backward = true, .limit = INT64_MAX, .filter = filter },
        { .after = INT64_MAX, .to = 0, .backward = true, .limit = 7, .filter = filter },
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        log_is(k, all, &limits[i]);
    }
    return kit_read_log(k, k->store, &forward).count;
}

static const store_filter everything = { .since_us = INT64_MIN, .until_us = INT64_MAX };

static void C15_the_log_is_read_by_position(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    assert_int_equal(all.count, MIXED);
    assert_int_equal(filter_is(k, &all, NULL), MIXED);
    assert_int_equal(filter_is(k, &all, &everything), MIXED);
}

static void C15_the_log_is_filtered_by_names(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    const weir_str one[] = { weir__str("B") };
    const weir_str several[] = { weir__str("A"), weir__str("E"), weir__str("Z") };
    store_filter f = everything;
    f.has_names = true;
    assert_int_equal(filter_is(k, &all, &f), 0); /* an empty list matches nothing */
    f.names = one;
    f.names_count = 1;
    assert_int_equal(filter_is(k, &all, &f), MIXED / 5);
    f.names = several;
    f.names_count = 3;
    assert_int_equal(filter_is(k, &all, &f), 2 * MIXED / 5);
}

static void C15_the_log_is_filtered_by_stream(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    static const struct {
        const char *pattern;
        size_t count;
    } cases[] = {
        { "*", MIXED },
        { "order-1", MIXED / 5 },
        { "order-*", 2 * MIXED / 5 },
        { "order*", 3 * MIXED / 5 },
        { "user", MIXED / 5 },
        { "nobody", 0 },
        { "nobody*", 0 },
        { "/^order-[12]$/", 2 * MIXED / 5 },
        { "/-1/", 2 * MIXED / 5 },
        { "/^(user|orders)$/", 2 * MIXED / 5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        store_pattern *pattern = NULL;
        KIT_OK(k, weir__pattern_open(&pattern, weir__str(cases[i].pattern), &k->err));
        store_filter f = everything;
        f.stream = pattern;
        assert_int_equal(filter_is(k, &all, &f), cases[i].count);
        weir__pattern_close(pattern);
    }
}

static void C15_the_log_is_filtered_by_category(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    store_filter f = everything;
    f.category = weir__str("order");
    assert_int_equal(filter_is(k, &all, &f), 2 * MIXED / 5);
    f.category = weir__str("user"); /* the whole name is the category of a name without a '-' */
    assert_int_equal(filter_is(k, &all, &f), 2 * MIXED / 5);
    f.category = weir__str("order-1");
    assert_int_equal(filter_is(k, &all, &f), 0);
}

static void C15_the_log_is_filtered_by_correlation(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    store_filter f = everything;
    f.correlation = weir__str("c-1"); /* written as c-1 or as c-\u0031; not inside another member */
    assert_int_equal(filter_is(k, &all, &f), 2 * MIXED / 3);
    f.correlation = weir__str("c-2");
    assert_int_equal(filter_is(k, &all, &f), MIXED / 3);
    f.correlation = weir__str("c-");
    assert_int_equal(filter_is(k, &all, &f), 0);
}

static void C15_the_log_is_filtered_by_time(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    const int64_t start = all.events[0].created_us;
    store_filter f = everything;
    f.since_us = start + 10 * SECOND;
    assert_int_equal(filter_is(k, &all, &f), MIXED - 10); /* inclusive */
    f.until_us = start + 19 * SECOND;
    assert_int_equal(filter_is(k, &all, &f), 10);
    f.since_us = start + 19 * SECOND + 1;
    assert_int_equal(filter_is(k, &all, &f), 0);
    f = everything;
    f.until_us = 0; /* a bound of 0 is a bound */
    assert_int_equal(filter_is(k, &all, &f), 0);
    f = everything;
    f.since_us = 0;
    assert_int_equal(filter_is(k, &all, &f), MIXED);
    f.since_us = INT64_MAX;
    assert_int_equal(filter_is(k, &all, &f), 0);
}

static void C15_filters_combine(void **state)
{
    kit *k = *state;
    mixed_log(k);
    const kit_events all = kit_log(k);
    const weir_str names[] = { weir__str("A"), weir__str("C") };
    store_pattern *pattern = NULL;
    KIT_OK(k, weir__pattern_open(&pattern, weir__str("/1/"), &k->err));
    store_filter f = everything;
    f.has_names = true;
    f.names = names;
    f.names_count = 2;
    f.stream = pattern;
    f.category = weir__str("order");
    f.correlation = weir__str("c-1");
    f.since_us = all.events[20].created_us;
    f.until_us = all.events[200].created_us;
    const size_t count = filter_is(k, &all, &f);
    assert_true(count > 0 && count < 40);
    weir__pattern_close(pattern);
}

static void C15_streams_are_listed_by_name(void **state)
{
    kit *k = *state;
    mixed_log(k);
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "user-1", WEIR_EXPECT_ANY, 0), "$closed", "{}");
    a.append.flags = STORE_APPEND_CLOSE;
    KIT_OK(k, kit_append_run(k->store, &a));
    store_pattern *prefix = NULL;
    store_pattern *regex = NULL;
    KIT_OK(k, weir__pattern_open(&prefix, weir__str("order*"), &k->err));
    KIT_OK(k, weir__pattern_open(&regex, weir__str("/1$/"), &k->err));
    const struct {
        store_streams_query q;
        const char *names;
    } cases[] = {
        { { .limit = 100 }, "order-1 order-2 orders user user-1 " },
        { { .limit = 2 }, "order-1 order-2 orders user user-1 " }, /* a page at a time */
        { { .limit = 100, .after = weir__str("order-2") }, "orders user user-1 " },
        { { .limit = 100, .after = weir__str("user-1") }, "" },
        { { .limit = 1, .pattern = prefix }, "order-1 order-2 orders " },
        { { .limit = 100, .pattern = regex }, "order-1 user-1 " },
        { { .limit = 100, .category = weir__str("user") }, "user user-1 " },
        { { .limit = 100, .category = weir__str("user"), .pattern = regex }, "user-1 " },
        { { .limit = 100, .closed = 1 }, "user-1 " },
        { { .limit = 100, .closed = 2 }, "order-1 order-2 orders user " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char names[256] = "";
        size_t len = 0;
        store_streams_chunk chunk = { 0 };
        store_streams_query q = cases[i].q;
        do {
            KIT_OK(k, k->store->log->streams(k->store, &q, &chunk, &k->err));
            assert_true((int64_t)chunk.streams_count <= q.limit);
            for (size_t j = 0; j < chunk.streams_count; j++) {
                const store_stream_info *s = &chunk.streams[j];
                assert_int_equal(s->version, kit_version(k, kit_text(k, "%.*s", (int)s->stream.len,
                                                                     s->stream.ptr)));
                len += (size_t)snprintf(names + len, sizeof names - len, "%.*s ",
                                        (int)s->stream.len, s->stream.ptr);
            }
            q.after = weir__str(kit_text(k, "%.*s", (int)chunk.scanned_to.len,
                                         chunk.scanned_to.ptr == NULL ? "" : chunk.scanned_to.ptr));
        } while (chunk.more);
        assert_string_equal(names, cases[i].names);
        weir__arena_free(&chunk.arena);
    }
    weir__pattern_close(prefix);
    weir__pattern_close(regex);
}

static void C15_stream_information_has_its_times_and_positions(void **state)
{
    kit *k = *state;
    const int64_t created = kit_now(k);
    kit_put(k, "s", "A");
    kit_advance(k, 5 * SECOND);
    const int64_t id = kit_put(k, "s", "B");
    store_stream_info info;
    KIT_OK(k, k->store->log->stream_info(k->store, weir__str("s"), &k->arena, &info, &k->err));
    assert_int_equal(info.version, 1);
    assert_int_equal(info.id, id);
    assert_int_equal(info.created_us, created);
    assert_int_equal(info.updated_us, created + 5 * SECOND);
}

/* ---- C16 ---------------------------------------------------------------------------------- */

enum { WRITERS = 4, WRITES = 60, READERS = 2 };

typedef struct followers {
    weir_store *stores[WRITERS + READERS];
    _Atomic size_t writing; /* writers that have not finished */
    _Atomic size_t failed;
    int64_t seen[READERS][WRITERS * WRITES * 2];
    size_t seen_count[READERS];
} followers;

static void follow(followers *f, size_t reader, weir_store *s)
{
    store_chunk chunk = { 0 };
    store_log_query q = { .to = INT64_MAX, .limit = 7 };
    bool last = false;
    for (;;) {
        weir_error err;
        if (s->log->read_log(s, &q, &chunk, &err) != WEIR_OK) {
            atomic_fetch_add(&f->failed, 1);
            break;
        }
        for (size_t i = 0; i < chunk.events_count; i++) {
            f->seen[reader][f->seen_count[reader]++] = chunk.events[i].id;
        }
        q.after = chunk.scanned_to;
        if (!chunk.more) {
            if (last) {
                break;
            }
            last = atomic_load(&f->writing) == 0; /* one more look after the last writer */
        }
    }
    weir__chunk_free(&chunk);
}

static void write_or_follow(void *ctx, size_t index)
{
    followers *f = ctx;
    if (index >= WRITERS) {
        follow(f, index - WRITERS, f->stores[index]);
        return;
    }
    for (size_t i = 0; i < WRITES; i++) {
        kit_append a;
        char stream[32];
        snprintf(stream, sizeof stream, "w-%zu", index);
        kit_append_init(&a);
        const uint32_t s = kit_append_stream(&a, stream, WEIR_EXPECT_ANY, 0);
        kit_append_event(&a, s, "A", "{}");
        kit_append_event(&a, s, "B", "{}");
        if (kit_append_run(f->stores[index], &a) != WEIR_OK) {
            atomic_fetch_add(&f->failed, 1);
        }
    }
    atomic_fetch_sub(&f->writing, 1);
}

static void C16_a_reader_never_skips_an_event(void **state)
{
    kit *k = *state;
    static followers f;
    memset(&f, 0, sizeof f);
    atomic_store(&f.writing, WRITERS);
    for (size_t i = 0; i < WRITERS + READERS; i++) {
        f.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(WRITERS + READERS, write_or_follow, &f);
    assert_int_equal(atomic_load(&f.failed), 0);
    const kit_events log = kit_log(k);
    assert_int_equal(log.count, WRITERS * WRITES * 2);
    for (size_t r = 0; r < READERS; r++) {
        assert_int_equal(f.seen_count[r], log.count);
        for (size_t i = 0; i < log.count; i++) {
            assert_int_equal(f.seen[r][i], log.events[i].id);
        }
    }
}

static void C16_the_end_of_the_log_is_where_reading_goes_on(void **state)
{
    kit *k = *state;
    store_chunk chunk = { 0 };
    const weir_str names[] = { weir__str("Wanted") };
    store_filter f = everything;
    f.has_names = true;
    f.names = names;
    f.names_count = 1;
    store_log_query q = { .to = INT64_MAX, .limit = 10, .filter = &f };
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err)); /* an empty log */
    assert_int_equal(chunk.events_count, 0);
    assert_false(chunk.more);
    for (int i = 0; i < 5; i++) {
        kit_put(k, "s", "Other");
    }
    const int64_t head = kit_head(k);
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_int_equal(chunk.events_count, 0);
    assert_false(chunk.more);
    assert_int_equal(chunk.scanned_to, head); /* nothing up to here will be looked at again */
    q.to = head - 2;
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_int_equal(chunk.scanned_to, head - 2);
    q = (store_log_query){ .after = head, .to = INT64_MAX, .limit = 10, .filter = &f };
    const int64_t id = kit_put(k, "s", "Wanted");
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_int_equal(chunk.events_count, 1);
    assert_int_equal(chunk.events[0].id, id);
    weir__chunk_free(&chunk);
}

static void C16_the_epoch_stays_while_the_log_is_the_same(void **state)
{
    kit *k = *state;
    store_positions before;
    store_positions after;
    KIT_OK(k, k->store->log->positions(k->store, &before, &k->err));
    assert_int_equal(before.head, 0);
    assert_int_equal(before.safe, 0);
    assert_true(before.epoch[0] != '\0');
    const int64_t id = kit_put(k, "s", "A");
    kit_reopen(k);
    KIT_OK(k, k->store->log->positions(k->store, &after, &k->err));
    assert_string_equal(before.epoch, after.epoch);
    assert_int_equal(after.head, id);
    assert_int_equal(after.safe, id);
    assert_int_equal(after.now_us, kit_now(k));
}

/* ---- C18 ---------------------------------------------------------------------------------- */

static void C18_a_chunk_is_bounded_in_events(void **state)
{
    kit *k = *state;
    enum { COUNT = 2500 };
    kit_append a;
    for (int i = 0; i < COUNT / 50; i++) {
        kit_append_init(&a);
        const uint32_t s = kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0);
        for (int j = 0; j < 50; j++) {
            kit_append_event(&a, s, j == 49 && i == 49 ? "Last" : "A", "{}");
        }
        KIT_OK(k, kit_append_run(k->store, &a));
    }
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = INT64_MAX };
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_true(chunk.events_count > 0 && chunk.events_count <= STORE_CHUNK_EVENTS_MAX);
    assert_true(chunk.more);
    const store_stream_query sq = {
        .stream = weir__str("s"), .to = INT64_MAX, .limit = INT64_MAX, .until_us = INT64_MAX
    };
    KIT_OK(k, k->store->log->read_stream(k->store, &sq, &chunk, &k->err));
    assert_true(chunk.events_count > 0 && chunk.events_count <= STORE_CHUNK_EVENTS_MAX);
    assert_true(chunk.more);

    /* What is looked at is bounded as well, when nothing matches for a long while. */
    const weir_str names[] = { weir__str("Last") };
    store_filter f = everything;
    f.correlation = weir__str("nobody");
    const store_log_query nothing = { .to = INT64_MAX, .limit = INT64_MAX, .filter = &f };
    KIT_OK(k, k->store->log->read_log(k->store, &nothing, &chunk, &k->err));
    assert_int_equal(chunk.events_count, 0);
    assert_true(chunk.more);
    assert_true(chunk.scanned_to > 0 && chunk.scanned_to <= STORE_CHUNK_EVENTS_MAX);
    weir__chunk_free(&chunk);
    f = everything;
    f.has_names = true;
    f.names = names;
    f.names_count = 1;
    const store_log_query last = { .to = INT64_MAX, .limit = INT64_MAX, .filter = &f };
    assert_int_equal(kit_read_log(k, k->store, &last).count, 1);
    assert_int_equal(kit_log(k).count, COUNT);
    assert_int_equal(kit_stream(k, "s").count, COUNT);
}

/* Who only wants to know where events belong reads them without what is in them. */
static void C18_bare_events_have_no_payload_and_come_in_greater_chunks(void **state)
{
    kit *k = *state;
    enum { COUNT = 2500 };
    kit_append a;
    for (int i = 0; i < COUNT / 50; i++) {
        kit_append_init(&a);
        for (int j = 0; j < 50; j++) {
            const uint32_t s =
                j % 10 == 0 ? kit_append_stream(&a, kit_text(k, "c-%d", j), WEIR_EXPECT_ANY, 0)
                            : (uint32_t)(j / 10);
            kit_append_event(&a, s, j % 5 == 0 ? "Fifth" : "A", "{\"n\":1}");
            if (j % 25 == 0) {
                a.events[j].meta = weir__str("{\"correlation\":\"x\"}");
            }
        }
        KIT_OK(k, kit_append_run(k->store, &a));
    }
    const weir_str names[] = { weir__str("Fifth") };
    store_pattern *exact = NULL;
    KIT_OK(k, weir__pattern_open(&exact, weir__str("c-30"), &k->err));
    store_filter filters[] = { everything, everything, everything, everything, everything };
    static const size_t expected[] = { COUNT, COUNT / 5, COUNT, COUNT / 5, COUNT / 25 };
    filters[1].has_names = true;
    filters[1].names = names;
    filters[1].names_count = 1;
    filters[2].category = weir__str("c");
    filters[3].stream = exact;
    filters[4].correlation = weir__str("x");
    for (size_t i = 0; i < 2 * sizeof filters / sizeof filters[0]; i++) {
        const bool backward = i % 2 == 1;
        store_log_query q = { .after = backward ? INT64_MAX : 0,
                              .to = backward ? 0 : INT64_MAX,
                              .backward = backward,
                              .limit = INT64_MAX,
                              .filter = &filters[i / 2] };
        const kit_events whole = kit_read_log(k, k->store, &q);
        assert_int_equal(whole.count, expected[i / 2]);
        q.bare = true;
        const kit_events bare = kit_read_log(k, k->store, &q);
        assert_int_equal(bare.count, whole.count);
        for (size_t n = 0; n < bare.count; n++) {
            const weir_event *b = &bare.events[n];
            const weir_event *w = &whole.events[n];
            assert_true(w->data.len > 0 && w->meta.len > 0);
            assert_true(b->data.len == 0 && b->meta.len == 0);
            assert_true(b->id == w->id && b->version == w->version &&
                        b->created_us == w->created_us);
            assert_true(weir__str_equal(b->stream, w->stream) && weir__str_equal(b->name, w->name));
        }
    }
    weir__pattern_close(exact);
    /* A chunk may end early when the machine is slow, but not every time. */
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 1700, .bare = true };
    for (int tries = 0; tries < 100 && chunk.events_count <= STORE_CHUNK_EVENTS_MAX; tries++) {
        KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
        assert_true(chunk.events_count <= 1700);
        assert_true(chunk.more);
    }
    assert_true(chunk.events_count > STORE_CHUNK_EVENTS_MAX);
    weir__chunk_free(&chunk);
}

/* All chunks of a query have the ids and names of `whole`. */
static void see_ids_and_names(kit *k, store_log_query q, const kit_events *whole)
{
    store_chunk chunk = { 0 };
    size_t count = 0;
    do {
        KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
        assert_true((int64_t)chunk.events_count <= q.limit);
        for (size_t i = 0; i < chunk.events_count; i++, count++) {
            assert_true(count < whole->count);
            assert_int_equal(chunk.events[i].id, whole->events[count].id);
            assert_true(weir__str_equal(chunk.events[i].name, whole->events[count].name));
        }
        q.after = chunk.scanned_to;
    } while (chunk.more);
    assert_int_equal(count, whole->count);
    weir__chunk_free(&chunk);
}

/* Who does not look at streams either may get less, but the same events under the same names. */
static void C18_ids_and_names_are_those_of_the_events(void **state)
{
    kit *k = *state;
    enum { COUNT = 2500 };
    static const char *const all[] = { "A", "B", "B", "B", "C" };
    kit_append a;
    for (int i = 0; i < COUNT / 50; i++) {
        kit_append_init(&a);
        const uint32_t s = kit_append_stream(&a, kit_text(k, "c-%d", i % 7), WEIR_EXPECT_ANY, 0);
        for (int j = 0; j < 50; j++) {
            kit_append_event(&a, s, i < 40 ? all[j % 5] : "B", "{}");
        }
        KIT_OK(k, kit_append_run(k->store, &a));
    }
    const weir_str names[] = { weir__str("A"), weir__str("B"), weir__str("C"), weir__str("None") };
    store_pattern *exact = NULL;
    KIT_OK(k, weir__pattern_open(&exact, weir__str("c-3"), &k->err));
    store_filter filters[] = { everything, everything, everything, everything };
    for (size_t i = 0; i < 3; i++) {
        filters[i].has_names = true;
        filters[i].names = &names[i];
        filters[i].names_count = i == 0 ? 4 : i == 1 ? 1 : 2;
    }
    filters[1].stream = exact;
    static const size_t expected[] = { COUNT, 6 * 30 + 50, 400, COUNT };
    static const int64_t limits[] = { INT64_MAX, 7 };
    for (size_t i = 0; i < 4 * sizeof filters / sizeof filters[0]; i++) {
        const bool backward = i % 2 == 1;
        store_log_query q = { .after = backward ? INT64_MAX : 0,
                              .to = backward ? 0 : INT64_MAX,
                              .backward = backward,
                              .limit = INT64_MAX,
                              .filter = &filters[i / 4] };
        const kit_events whole = kit_read_log(k, k->store, &q);
        assert_int_equal(whole.count, expected[i / 4]);
        q.bare = true;
        q.ids_and_names = true;
        q.limit = limits[i / 2 % 2];
        see_ids_and_names(k, q, &whole);
    }
    weir__pattern_close(exact);
}

static void C18_a_chunk_is_bounded_in_bytes(void **state)
{
    kit *k = *state;
    enum { PAYLOAD = 400 * 1000, COUNT = 12 };
    char *data = malloc(PAYLOAD + 1);
    assert_non_null(data);
    memset(data, 'x', PAYLOAD);
    data[0] = data[PAYLOAD - 1] = '"';
    data[PAYLOAD] = '\0';
    for (int i = 0; i < COUNT; i++) {
        kit_append a;
        kit_append_init(&a);
        kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_ANY, 0), "A", data);
        KIT_OK(k, kit_append_run(k->store, &a));
    }
    free(data);
    /* The chunk ends with the event that reaches the limit: three of these. */
    store_chunk chunk = { 0 };
    store_log_query q = { .to = INT64_MAX, .limit = INT64_MAX };
    size_t count = 0;
    size_t bytes_max = 0;
    do {
        KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
        assert_true(chunk.events_count <= 3);
        count += chunk.events_count;
        q.after = chunk.scanned_to;
        bytes_max = chunk.arena.bytes_used > bytes_max ? chunk.arena.bytes_used : bytes_max;
    } while (chunk.more);
    assert_int_equal(count, COUNT);
    assert_true(bytes_max < 2 * STORE_CHUNK_BYTES_SOFT);
    const store_stream_query sq = { .stream = weir__str("s"),
                                    .from = INT64_MAX,
                                    .backward = true,
                                    .limit = INT64_MAX,
                                    .until_us = INT64_MAX };
    KIT_OK(k, k->store->log->read_stream(k->store, &sq, &chunk, &k->err));
    assert_true(chunk.events_count <= 3 && chunk.more);
    weir__chunk_free(&chunk);
}

static void C18_a_reader_that_stops_holds_nothing(void **state)
{
    kit *k = *state;
    for (int i = 0; i < 20; i++) {
        kit_put(k, "s", "A");
    }
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 5 };
    KIT_OK(k, k->store->log->read_log(k->store, &q, &chunk, &k->err));
    assert_true(chunk.more);
    /* The chunk is in our hands and stays as it is, while others write as if we were not there. */
    store_options impatient = kit_options(k);
    impatient.busy_us = 1;
    weir_store *other = kit_open_with(k, &impatient);
    kit_append a;
    for (int i = 0; i < 20; i++) {
        KIT_OK(k, kit_try(other, "s", WEIR_EXPECT_ANY, 0, &a));
    }
    if (k->adapter->quiet != NULL) {
        assert_true(k->adapter->quiet(k->place));
    }
    assert_int_equal(chunk.events_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(chunk.events[i].version, i);
        KIT_STR(chunk.events[i].stream, "s");
        KIT_STR(chunk.events[i].data, "{}");
    }
    weir__chunk_free(&chunk);
}

kit_theme kit_reading(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C15_a_stream_is_read_both_ways_from_any_version),
        KIT_TEST(C15_a_stream_that_is_not_there_is_not_found),
        KIT_TEST(C15_a_stream_is_read_until_a_time),
        KIT_TEST(C15_an_event_comes_back_as_it_was_given),
        KIT_TEST(C15_the_log_is_read_by_position),
        KIT_TEST(C15_the_log_is_filtered_by_names),
        KIT_TEST(C15_the_log_is_filtered_by_stream),
        KIT_TEST(C15_the_log_is_filtered_by_category),
        KIT_TEST(C15_the_log_is_filtered_by_correlation),
        KIT_TEST(C15_the_log_is_filtered_by_time),
        KIT_TEST(C15_filters_combine),
        KIT_TEST(C15_streams_are_listed_by_name),
        KIT_TEST(C15_stream_information_has_its_times_and_positions),
        KIT_TEST(C16_a_reader_never_skips_an_event),
        KIT_TEST(C16_the_end_of_the_log_is_where_reading_goes_on),
        KIT_TEST(C16_the_epoch_stays_while_the_log_is_the_same),
        KIT_TEST(C18_a_chunk_is_bounded_in_events),
        KIT_TEST(C18_a_chunk_is_bounded_in_bytes),
        KIT_TEST(C18_bare_events_have_no_payload_and_come_in_greater_chunks),
        KIT_TEST(C18_ids_and_names_are_those_of_the_events),
        KIT_TEST(C18_a_reader_that_stops_holds_nothing),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
