/* sqlite_test.c - what only this adapter can get wrong: other programs in the database, the
 * immutability of the log, what people see in SQL, indexes that give the same as a scan, files and
 * permissions, memory that runs out.
 *
 * What every store promises is proved in tests/conformance/. Faults are planted with SQL on a
 * connection of their own. The filters are compared with weir__filter_matches over the whole log,
 * for filters drawn at random from a printed seed.
 */
#include "store/sqlite/sqlite_testing.h"

#include "base/str.h"
#include "store/seed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void what_another_program_has_appended_is_seen(void **state)
{
    testing *t = *state;
    assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 3, &t->err), WEIR_OK);
    testing_sql(t, "INSERT INTO weir_events SELECT id + 3, stream, version + 3, category, created, "
                   "name, meta, data FROM weir_events");
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_EXACT, 2, 2, &t->err),
                     WEIR_ECONFLICT);
    assert_int_equal(t->err.expected, 2);
    assert_int_equal(t->err.actual, 5);
    assert_string_equal(t->err.stream, "order-1");
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_events"), 6);
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_EXACT, 5, 2, &t->err),
                     WEIR_OK);
    assert_int_equal(testing_number(t, "SELECT max(version) FROM weir_events"), 7);
    assert_string_equal(testing_check(t->store), "");
}

static void events_cannot_be_changed_in_sql(void **state)
{
    testing *t = *state;
    sqlite3 *db = NULL;
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(sqlite3_open(t->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE weir_events SET data = '{}'", NULL, NULL, NULL),
                     SQLITE_CONSTRAINT);
    assert_string_equal(sqlite3_errmsg(db), "weir: events are immutable");
    assert_int_equal(sqlite3_exec(db, "DELETE FROM weir_events", NULL, NULL, NULL),
                     SQLITE_CONSTRAINT);
    (void)sqlite3_close(db);
}

/* What a later version does: this one removes nothing, but understands what is left. */
static void a_stream_without_its_beginning_is_read_appended_to_and_checked(void **state)
{
    testing *t = *state;
    store_chunk chunk = { 0 };
    const store_stream_query q = { .stream = weir__str("order-1"),
                                   .from = 0,
                                   .to = INT64_MAX,
                                   .until_us = INT64_MAX,
                                   .limit = 10 };
    assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 5, &t->err), WEIR_OK);
    testing_sql(
        t, "BEGIN; UPDATE weir_store SET removing = 1;"
           "DELETE FROM weir_events WHERE version < 3; INSERT INTO weir_truncated VALUES (1, 3);"
           "UPDATE weir_store SET removing = 0, removed = removed + 1; COMMIT");
    assert_int_equal(t->store->log->read_stream(t->store, &q, &chunk, &t->err), WEIR_OK);
    assert_int_equal(chunk.events_count, 2);
    assert_int_equal(chunk.events[0].version, 3);
    weir__arena_free(&chunk.arena);
    assert_int_equal(testing_append_n(t->store, "order-1", WEIR_EXPECT_EXACT, 4, 1, &t->err),
                     WEIR_OK);
    assert_string_equal(testing_check(t->store), "");
    testing_sql(t, "UPDATE weir_truncated SET first = 2");
    assert_non_null(strstr(testing_check(t->store), "versions: stream \"order-1\" has 3 events"));
}

static void people_read_the_log_in_sql(void **state)
{
    testing *t = *state;
    t->wall_us = INT64_C(1700000000000042);
    testing_close(&t->store);
    assert_int_equal(unlink(t->path), 0);
    assert_int_equal(unlink(testing_file(t, "-wal")), 0);
    t->store = testing_open(t, 0);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(
        testing_number(t,
                       "SELECT count(*) FROM weir_log WHERE id = 1 AND stream = 'order-1' AND "
                       "version = 0 AND name = 'Happened' AND data = '{\"n\":1}' AND meta = '{}' "
                       "AND created = '2023-11-14T22:13:20.000042Z'"),
        1);
}

static void two_names_of_one_file_are_one_store(void **state)
{
    testing *t = *state;
    char link[128];
    (void)snprintf(link, sizeof link, "%s/link.db", t->dir);
    assert_int_equal(symlink(t->path, link), 0);
    t->options.path = weir__str(link);
    t->options.busy_us = 20 * 1000;
    weir_store *other = testing_open(t, WEIR_OPEN_EXISTING);
    assert_string_equal(sqlite_of(other)->side.path, sqlite_of(t->store)->side.path);
    assert_int_equal(weir__side_lock(&sqlite_of(t->store)->side, 0, &t->err), WEIR_OK);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_EBUSY);
    weir__side_unlock(&sqlite_of(t->store)->side);
    assert_int_equal(testing_append(other, "order-1", &t->err), WEIR_OK);
    testing_close(&other);
}

/* ---- idempotency keys --------------------------------------------------------------------- */

static weir_status append_with_key(weir_store *store, store_append_stream streams[2],
                                   bool *replayed, weir_error *err)
{
    store_new_event events[3];
    for (size_t i = 0; i < 3; i++) {
        events[i] = (store_new_event){ .stream_index = i == 1 ? 1 : 0,
                                       .name = weir__str("Happened"),
                                       .data = weir__str("{}"),
                                       .meta = weir__str("{}") };
    }
    streams[0] = (store_append_stream){ .name = weir__str("order-1") };
    streams[1] = (store_append_stream){ .name = weir__str("order-2") };
    store_append append = { .streams = streams,
                            .streams_count = 2,
                            .events = events,
                            .events_count = 3,
                            .key = weir__str("key-1"),
                            .err = err };
    memset(append.fingerprint, 7, sizeof append.fingerprint);
    store_append *appends[1] = { &append };
    const weir_status status = store->log->append(store, appends, 1, err);
    *replayed = append.replayed;
    return status != WEIR_OK ? status : append.status;
}

static void a_replay_gives_the_first_result_also_after_reopening_and_past_32_bits(void **state)
{
    testing *t = *state;
    store_append_stream first[2];
    store_append_stream again[2];
    bool replayed = true;
    const int64_t base = INT64_C(1) << 40;
    assert_int_equal(weir__store_seed(t->store, base, base + 5, &t->err), WEIR_OK);
    assert_int_equal(append_with_key(t->store, first, &replayed, &t->err), WEIR_OK);
    assert_false(replayed);
    assert_int_equal(first[0].first, base + 5);
    assert_int_equal(first[0].last, base + 6);
    assert_int_equal(first[0].id, base + 3);
    assert_int_equal(first[1].id, base + 2);
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    testing_close(&t->store);
    t->store = testing_open(t, 0);
    assert_int_equal(append_with_key(t->store, again, &replayed, &t->err), WEIR_OK);
    assert_true(replayed);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(again[i].first, first[i].first);
        assert_int_equal(again[i].last, first[i].last);
        assert_int_equal(again[i].id, first[i].id);
    }
    assert_int_equal(testing_head(t->store), base + 4);
    assert_string_equal(testing_check(t->store), "");

    testing_sql(t, "UPDATE weir_keys SET result = x'80'");
    assert_int_equal(append_with_key(t->store, again, &replayed, &t->err), WEIR_ECORRUPT);
    testing_sql(t, "UPDATE weir_keys SET result = x'000000000000ff00'");
    assert_int_equal(append_with_key(t->store, again, &replayed, &t->err), WEIR_ECORRUPT);
}

static void expired_keys_are_removed_sixty_four_at_a_time(void **state)
{
    testing *t = *state;
    store_append_stream streams[2];
    bool replayed = false;
    testing_sql(t, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) "
                   "INSERT INTO weir_keys SELECT 'k' || i, i, zeroblob(32), x'' FROM n");
    assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_keys"), 100); /* it has no key */
    assert_int_equal(append_with_key(t->store, streams, &replayed, &t->err), WEIR_OK);
    testing_sql(t, "DELETE FROM weir_keys WHERE key = 'key-1'");
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_keys"), 36);
    assert_int_equal(testing_number(t, "SELECT min(expires) FROM weir_keys"),
                     65); /* oldest first */
    assert_int_equal(append_with_key(t->store, streams, &replayed, &t->err), WEIR_OK);
    assert_int_equal(testing_number(t, "SELECT count(*) FROM weir_keys"), 1);
}

/* ---- reading ------------------------------------------------------------------------------ */

static const char *const stream_names[] = { "order-1", "order-2", "order", "ship-1", "orderly-1" };
static const char *const event_names[] = { "A", "B", "C", "D" };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Events in many small appends, whose clock moves now and then. */
static void fill_log(testing *t, size_t count, uint64_t *seed)
{
    for (size_t i = 0; i < count; i += 4) {
        store_append_stream streams[5];
        store_new_event events[4];
        for (size_t j = 0; j < 5; j++) {
            streams[j] = (store_append_stream){ .name = weir__str(stream_names[j]) };
        }
        for (size_t j = 0; j < 4; j++) {
            events[j] = (store_new_event){
                .stream_index = (uint32_t)(next_random(seed) % 5),
                .name = weir__str(event_names[next_random(seed) % 4]),
                .data = weir__str("{}"),
                .meta = weir__str(next_random(seed) % 2 == 0 ? "{\"correlation\":\"x\"}" : "{}"),
            };
        }
        store_append append = { .streams = streams,
                                .streams_count = 5,
                                .events = events,
                                .events_count = 4,
                                .err = &t->err };
        store_append *appends[1] = { &append };
        t->wall_us += (int64_t)(next_random(seed) % 3) * 10;
        assert_int_equal(t->store->log->append(t->store, appends, 1, &t->err), WEIR_OK);
        assert_int_equal(append.status, WEIR_OK);
    }
}

/* The log as one array; the chunks it lies in are kept. */
typedef struct whole_log {
    weir_event events[4096];
    size_t count;
    store_chunk chunks[64];
    size_t chunks_count;
} whole_log;

static void read_whole(testing *t, whole_log *log)
{
    store_log_query q = { .to = INT64_MAX, .limit = INT64_MAX };
    store_chunk *chunk = NULL;
    do {
        chunk = &log->chunks[log->chunks_count++];
        assert_int_equal(t->store->log->read_log(t->store, &q, chunk, &t->err), WEIR_OK);
        for (size_t i = 0; i < chunk->events_count; i++) {
            log->events[log->count++] = chunk->events[i];
        }
        q.after = chunk->scanned_to;
    } while (chunk->more);
}

static int64_t random_time(const testing *t, uint64_t *seed, int64_t none)
{
    return next_random(seed) % 2 == 0 ? none : t->wall_us - (int64_t)(next_random(seed) % 12000);
}

/* Compares what a query gives, over all its chunks, with the whole log. */
static void compare_query(testing *t, const whole_log *log, store_log_query q)
{
    store_chunk chunk = { 0 };
    size_t at = q.backward ? log->count : 0; /* next of the whole log to be expected */
    int64_t after = q.after;
    do {
        assert_int_equal(t->store->log->read_log(t->store, &q, &chunk, &t->err), WEIR_OK);
        assert_true((int64_t)chunk.events_count <= q.limit);
        for (size_t i = 0; i < chunk.events_count; i++) {
            const weir_event *want = NULL;
            while (want == NULL) {
                assert_true(q.backward ? at > 0 : at < log->count);
                const weir_event *e = &log->events[q.backward ? --at : at++];
                const bool inside =
                    q.backward ? e->id < after && e->id >= q.to : e->id > after && e->id <= q.to;
                want = inside && weir__filter_matches(q.filter, e) ? e : NULL;
            }
            const weir_event *got = &chunk.events[i];
            assert_int_equal(got->id, want->id);
            assert_int_equal(got->version, want->version);
            assert_int_equal(got->created_us, want->created_us);
            assert_true(weir__str_equal(got->stream, want->stream));
            assert_true(weir__str_equal(got->name, want->name));
            assert_true(weir__str_equal(got->meta, want->meta));
            assert_true(weir__str_equal(got->data, want->data));
        }
        assert_true(!chunk.more || (q.backward ? chunk.scanned_to < q.after
                                               : chunk.scanned_to > q.after)); /* it gets on */
        q.after = chunk.scanned_to;
    } while (chunk.more);
    while (q.backward ? at > 0 : at < log->count) { /* nothing that is wanted was left out */
        const weir_event *e = &log->events[q.backward ? --at : at++];
        const bool inside =
            q.backward ? e->id < after && e->id >= q.to : e->id > after && e->id <= q.to;
        assert_false(inside && weir__filter_matches(q.filter, e));
    }
    weir__chunk_free(&chunk);
}

static void every_filter_gives_what_a_scan_of_the_log_would(void **state)
{
    testing *t = *state;
    static const char *const patterns[] = {
        "*", "order-1", "order-*", "or*", "/r-[12]$/", "none-1"
    };
    static const char *const categories[] = { "", "order", "ship", "none" };
    uint64_t seed = (uint64_t)getpid() * 7919 + (uint64_t)weir__clock_wall(weir__clock_machine());
    print_message("# seed %llu\n", (unsigned long long)seed);
    t->wall_us = INT64_C(4000000000000000);
    fill_log(t, 3000, &seed);
    whole_log *log = calloc(1, sizeof *log);
    assert_non_null(log);
    read_whole(t, log);
    assert_int_equal(log->count, 3000);

    for (int round = 0; round < 400; round++) {
        weir_str names[4];
        store_pattern *pattern = NULL;
        store_filter filter = {
            .has_names = next_random(&seed) % 3 == 0,
            .names = names,
            .category = weir__str(categories[next_random(&seed) % 4]),
            .correlation = weir__str(next_random(&seed) % 4 == 0 ? "x" : ""),
            .since_us = random_time(t, &seed, INT64_MIN),
            .until_us = random_time(t, &seed, INT64_MAX),
        };
        for (size_t i = 0; i < 4; i++) {
            if (next_random(&seed) % 2 == 0) {
                names[filter.names_count++] = weir__str(event_names[i]);
            }
        }
        if (next_random(&seed) % 2 == 0) {
            const char *text = patterns[next_random(&seed) % 6];
            assert_int_equal(weir__pattern_open(&pattern, weir__str(text), &t->err), WEIR_OK);
        }
        filter.stream = pattern;
        store_log_query q = {
            .backward = next_random(&seed) % 2 == 0,
            .limit =
                next_random(&seed) % 3 == 0 ? (int64_t)(next_random(&seed) % 50) + 1 : INT64_MAX,
            .filter = next_random(&seed) % 10 == 0 ? NULL : &filter,
        };
        const int64_t some = (int64_t)(next_random(&seed) % 3200);
        q.after = next_random(&seed) % 2 == 0 ? some : q.backward ? INT64_MAX : 0;
        q.to = next_random(&seed) % 2 == 0 ? (int64_t)(next_random(&seed) % 3200)
               : q.backward                ? 0
                                           : INT64_MAX;
        compare_query(t, log, q);
        weir__pattern_close(pattern);
    }
    for (size_t i = 0; i < log->chunks_count; i++) {
        weir__chunk_free(&log->chunks[i]);
    }
    free(log);
}

static void a_chunk_ends_with_the_event_that_fills_it(void **state)
{
    testing *t = *state;
    enum { EVENTS = 5, BYTES = 400 * 1024 };
    char *data = malloc(BYTES + 3);
    assert_non_null(data);
    memset(data, 'x', BYTES + 2);
    data[0] = '"';
    data[BYTES + 1] = '"';
    store_append_stream stream = { .name = weir__str("order-1") };
    store_new_event events[EVENTS];
    for (size_t i = 0; i < EVENTS; i++) {
        events[i] = (store_new_event){ .name = weir__str("A"),
                                       .data = { .ptr = data, .len = BYTES + 2 },
                                       .meta = weir__str("{}") };
    }
    store_append append = {
        .streams = &stream, .streams_count = 1, .events = events, .events_count = EVENTS
    };
    store_append *appends[1] = { &append };
    assert_int_equal(t->store->log->append(t->store, appends, 1, &t->err), WEIR_OK);
    store_chunk chunk = { 0 };
    const store_log_query log = { .to = INT64_MAX, .limit = 100 };
    assert_int_equal(t->store->log->read_log(t->store, &log, &chunk, &t->err), WEIR_OK);
    assert_int_equal(chunk.events_count, 3); /* 1.2 of 1 MiB */
    assert_int_equal(chunk.scanned_to, 3);
    assert_true(chunk.more);
    const store_stream_query q = {
        .stream = weir__str("order-1"), .to = INT64_MAX, .limit = 100, .until_us = INT64_MAX
    };
    assert_int_equal(t->store->log->read_stream(t->store, &q, &chunk, &t->err), WEIR_OK);
    assert_int_equal(chunk.events_count, 3);
    assert_true(chunk.more);
    weir__chunk_free(&chunk);
    free(data);
}

static void streams_come_in_the_order_of_their_bytes_whatever_narrows_them(void **state)
{
    testing *t = *state;
    static const char *const names[] = { "a",  "a b",  "a-",  "a-1",       "a-2",
                                         "a.", "aa-1", "b-1", "\xc3\xa9-1" };
    static const char *const patterns[] = { "*", "a-*", "a-1", "a*", "/1$/", "\xc3\xa9*" };
    static const char *const categories[] = { "", "a", "b", "\xc3\xa9" };
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(testing_append(t->store, names[8 - i], &t->err), WEIR_OK);
    }
    for (size_t round = 0; round < 6 * 4 * 10 * 2; round++) {
        store_pattern *pattern = NULL;
        const size_t from = round / 24 % 10;
        store_streams_query q = { .category = weir__str(categories[round / 6 % 4]),
                                  .after = weir__str(from == 0 ? "" : names[from - 1]),
                                  .limit = round / 240 == 0 ? 2 : 1000 };
        assert_int_equal(weir__pattern_open(&pattern, weir__str(patterns[round % 6]), &t->err),
                         WEIR_OK);
        q.pattern = pattern;
        store_streams_chunk chunk = { 0 };
        size_t at = from;
        do {
            assert_int_equal(t->store->log->streams(t->store, &q, &chunk, &t->err), WEIR_OK);
            assert_true((int64_t)chunk.streams_count <= q.limit);
            for (size_t i = 0; i < chunk.streams_count; i++, at++) {
                while (at < 9 &&
                       (!weir__pattern_matches(pattern, weir__str(names[at])) ||
                        (q.category.len > 0 &&
                         !weir__str_equal(weir__category(weir__str(names[at])), q.category)))) {
                    at++;
                }
                assert_true(at < 9);
                assert_true(weir__str_equal(chunk.streams[i].stream, weir__str(names[at])));
                assert_int_equal(chunk.streams[i].id, 9 - (int64_t)at);
            }
            q.after = chunk.scanned_to;
            static char last[520];
            memcpy(last, q.after.ptr, q.after.len);
            q.after.ptr = last; /* the next chunk resets the arena */
        } while (chunk.more);
        for (; at < 9; at++) {
            assert_false(weir__pattern_matches(pattern, weir__str(names[at])) &&
                         (q.category.len == 0 ||
                          weir__str_equal(weir__category(weir__str(names[at])), q.category)));
        }
        weir__arena_free(&chunk.arena);
        weir__pattern_close(pattern);
    }
}

/* ---- check -------------------------------------------------------------------------------- */

static void every_planted_fault_is_found(void **state)
{
    testing *t = *state;
    static const struct {
        const char *sql, *finding;
    } faults[] = {
        { "UPDATE weir_events SET version = 9 WHERE version = 2", "versions: " },
        { "INSERT INTO weir_truncated VALUES (1, 1)", "versions: " },
        { "DELETE FROM weir_events WHERE version = 1", "versions: " },
        { "DELETE FROM weir_events WHERE stream = 1", "has no event" },
        { "DELETE FROM weir_streams WHERE name = 'order-1'", "belongs to no stream" },
        { "UPDATE weir_streams SET closed = 1", "streams: " },
        { "UPDATE weir_categories SET name = 'x'", "categories: " },
        { "UPDATE weir_events SET category = 77 WHERE id = 2", "categories: event 2 " },
        { "UPDATE weir_events SET created = 5 WHERE id = 2", "order: event 2 " },
        { "UPDATE weir_events SET id = 100 WHERE id = 1", "order: event 100 comes before" },
        { "UPDATE weir_events SET data = '{' WHERE id = 1", "json: event 1 " },
        { "INSERT INTO weir_keys VALUES ('k', 1, x'00', x'')", "keys: " },
        { "UPDATE weir_store SET clock_us = -1", "clock: " },
        { "DROP INDEX weir_events_by_name", "schema: weir_events_by_name is missing" },
        { "DROP TABLE weir_workers", "schema: weir_workers is missing" },
        { "DROP TABLE weir_locks", "schema: weir_locks is missing" },
        { "DROP VIEW weir_log; CREATE VIEW weir_log AS SELECT 1", "schema: weir_log is not as" },
    };
    testing_close(&t->store);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)unlink(t->path);
        (void)unlink(testing_file(t, "-wal"));
        (void)unlink(testing_file(t, "-shm"));
        t->store = testing_open(t, 0);
        assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 3, &t->err), WEIR_OK);
        assert_string_equal(testing_check(t->store), "");
        testing_sql(t, "DROP TRIGGER weir_events_no_update; DROP TRIGGER weir_events_no_delete;");
        testing_sql(t, faults[i].sql);
        const char *found = testing_check(t->store);
        if (strstr(found, faults[i].finding) == NULL) {
            fail_msg("%s: wanted %s, found %s", faults[i].sql, faults[i].finding, found);
        }
        testing_close(&t->store);
    }
}

/* ---- permissions -------------------------------------------------------------------------- */

enum { NOBODY = 65534 };

/* Somebody without permissions, and two pipes. */
typedef struct nobody {
    testing *t;
    int opened[2];  /* it says that it has opened the store */
    int written[2]; /* and is told that it was written to   */
} nobody;

/* What happens to it; 0: as it should. */
static int read_as_nobody(void *ctx)
{
    const nobody *n = ctx;
    testing *t = n->t;
    weir_store *store = NULL;
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
        return 10; /* root may do anything, so it must not be root */
    }
    if (weir__sqlite_open(&store, &t->options, &t->err) != WEIR_EIO || t->err.detail[0] == '\0') {
        return 11; /* writing must fail, and say what to do */
    }
    t->options.open_flags = WEIR_OPEN_READONLY;
    if (weir__sqlite_open(&store, &t->options, &t->err) != WEIR_OK) {
        return 12;
    }
    store_positions positions;
    if (store->log->positions(store, &positions, &t->err) != WEIR_OK) {
        return 13;
    }
    if (positions.head < 2) {
        return 14;
    }
    if (sqlite_of(store)->database.immutable) {
        char byte;
        if (write(n->opened[1], "o", 1) != 1 || read(n->written[0], &byte, 1) != 1 ||
            store->log->positions(store, &positions, &t->err) != WEIR_EUNAVAILABLE) {
            return 15;
        }
    }
    testing_close(&store);
    return 0;
}

/* Takes the permission to write away, or gives it back. */
static void set_writable(const testing *t, bool writable)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-weir" };
    assert_int_equal(chmod(t->dir, writable ? 0755 : 0555), 0);
    for (size_t i = 0; i < 4; i++) {
        if (testing_exists(t, suffixes[i])) {
            assert_int_equal(chmod(testing_file(t, suffixes[i]), writable ? 0644 : 0444), 0);
        }
    }
}

/* writes: somebody with more rights appends while the store is open for reading. */
static int run_as_nobody(testing *t, bool writes)
{
    nobody n = { .t = t };
    assert_int_equal(pipe(n.opened), 0);
    assert_int_equal(pipe(n.written), 0);
    set_writable(t, false);
    child c = testing_fork(read_as_nobody, &n);
    testing_go(&c);
    (void)close(n.opened[1]); /* so that a child that fails is noticed */
    if (writes) {
        char byte;
        assert_int_equal(read(n.opened[0], &byte, 1), 1);
        set_writable(t, true);
        t->store = testing_open(t, 0);
        assert_int_equal(testing_append(t->store, "order-1", &t->err), WEIR_OK);
        assert_int_equal(write(n.written[1], "w", 1), 1);
    }
    const int result = testing_join(&c);
    set_writable(t, true);
    (void)close(n.opened[0]);
    (void)close(n.written[0]);
    (void)close(n.written[1]);
    return result;
}

static void a_store_that_cannot_be_written_can_be_read(void **state)
{
    testing *t = *state;
    assert_int_equal(testing_append_n(t->store, "order-1", 0, 0, 2, &t->err), WEIR_OK);
    testing_close(&t->store);
    assert_int_equal(run_as_nobody(t, false), 0); /* with the WAL and the side file beside it */

    /* As it is on a medium: everything in the database. Once with the side file, once without. */
    testing_sql(t, "PRAGMA wal_checkpoint(TRUNCATE)");
    (void)unlink(testing_file(t, "-wal"));
    (void)unlink(testing_file(t, "-shm"));
    assert_int_equal(run_as_nobody(t, true), 0);
    testing_close(&t->store);
    testing_sql(t, "PRAGMA wal_checkpoint(TRUNCATE)");
    (void)unlink(testing_file(t, "-wal"));
    (void)unlink(testing_file(t, "-shm"));
    (void)unlink(testing_file(t, "-weir"));
    assert_int_equal(run_as_nobody(t, true), 0);
}

/* ---- memory ------------------------------------------------------------------------------- */

static void running_out_of_memory_fails_the_verb_and_nothing_else(void **state)
{
    testing *t = *state;
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        store_append_stream streams[2];
        bool replayed = false;
        store_chunk chunk = { 0 };
        weir_store *other = NULL;
        const store_log_query q = { .to = INT64_MAX, .limit = 10 };
        weir__memory_fail_nth(nth);
        weir_status status = weir__sqlite_open(&other, &t->options, &t->err);
        if (status == WEIR_OK) {
            status = append_with_key(other, streams, &replayed, &t->err);
        }
        if (status == WEIR_OK) {
            status = other->log->read_log(other, &q, &chunk, &t->err);
        }
        failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        assert_true(status == WEIR_OK || (failed && status == WEIR_ENOMEM));
        assert_true(failed || status == WEIR_OK);
        weir__chunk_free(&chunk);
        testing_close(&other);
        assert_true(nth < 1000);
    }
    assert_int_equal(testing_head(t->store), 3); /* once, however often it was tried */
    assert_string_equal(testing_check(t->store), "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, testing_setup, testing_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(what_another_program_has_appended_is_seen),
        TEST(events_cannot_be_changed_in_sql),
        TEST(a_stream_without_its_beginning_is_read_appended_to_and_checked),
        TEST(people_read_the_log_in_sql),
        TEST(two_names_of_one_file_are_one_store),
        TEST(a_replay_gives_the_first_result_also_after_reopening_and_past_32_bits),
        TEST(expired_keys_are_removed_sixty_four_at_a_time),
        TEST(every_filter_gives_what_a_scan_of_the_log_would),
        TEST(a_chunk_ends_with_the_event_that_fills_it),
        TEST(streams_come_in_the_order_of_their_bytes_whatever_narrows_them),
        TEST(every_planted_fault_is_found),
        TEST(a_store_that_cannot_be_written_can_be_read),
        TEST(running_out_of_memory_fails_the_verb_and_nothing_else),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
}
