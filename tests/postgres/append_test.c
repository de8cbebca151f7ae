/* append_test.c - appending on PostgreSQL: statements, batches, sizes, and a caller's transaction.
 *
 * Method: the store's verbs and the public functions on one side, plain SQL sessions on the other,
 * which write behind the store's back or look at what the server counted. What every store promises
 * is in tests/conformance; who waits for whom, and who wins, in contention_test.c.
 */
#include "append_support.h"

#include "store/postgres/postgres_private.h"
#include "store/seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The statements of the store since test_statements_reset: they all name its schema. */
static int64_t statements(pg_test *t)
{
    char like[TEST_SCHEMA_BYTES + 8];
    snprintf(like, sizeof like, "%%\"%s\".%%", t->schema);
    return test_statements(t, like);
}

/* ---- statements ---------------------------------------------------------------------------- */

static void one_append_is_one_statement_and_so_is_a_batch(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    made m[64];
    char names[64][16];
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "s-%d", i);
    }
    test_put(t, s, "s-0", "A");
    test_statements_reset(t);
    test_put(t, s, "s-0", "A"); /* there is one */
    assert_int_equal(statements(t), 1);
    test_put(t, s, "new", "A"); /* there is none */
    assert_int_equal(statements(t), 2);
    make(&m[0], "s-0", WEIR_EXPECT_EXACT, 7, "A"); /* refused */
    TEST_OK(t, run(s, m, 1, 0, &t->err));
    assert_int_equal(m[0].append.status, WEIR_ECONFLICT);
    assert_int_equal(statements(t), 3);
    make(&m[0], "s-0", WEIR_EXPECT_ANY, 0, "A"); /* with a key, several streams */
    make_add(&m[0], "s-1", "A");
    make_key(&m[0], "key", 1);
    TEST_OK(t, run(s, m, 1, 0, &t->err));
    assert_int_equal(m[0].append.status, WEIR_OK);
    assert_int_equal(statements(t), 4);
    for (int round = 0; round < 2; round++) { /* at once, then in order: two name a stream */
        for (int i = 0; i < PG_APPEND_NAMES_MAX; i++) {
            make(&m[i], names[i], round == 0 ? WEIR_EXPECT_ANY : WEIR_EXPECT_EXISTS, 0, "A");
        }
        if (round == 1) {
            make(&m[PG_APPEND_NAMES_MAX - 1], names[0], WEIR_EXPECT_EXISTS, 0, "A");
        }
        TEST_OK(t, run(s, m, PG_APPEND_NAMES_MAX, STORE_APPEND_NOWAIT, &t->err));
        for (int i = 0; i < PG_APPEND_NAMES_MAX; i++) {
            assert_int_equal(m[i].append.status, WEIR_OK);
        }
        assert_int_equal(statements(t), 5 + round);
    }
}

/* Called, they cost an append of one event more than all the rest of it. */
static void the_checks_of_an_event_are_put_in_the_place_of_their_calls(void **state)
{
    pg_test *t = *state;
    (void)test_store(t);
    PGresult *result = test_query(t->conn,
                                  "EXPLAIN (VERBOSE, COSTS OFF) SELECT "
                                  "%s.event_name(e.stream, e.name, e.data, e.meta, e.version = 7), "
                                  "%s.append_judge(0, e.id, e.version, e.name), "
                                  "%s.append_hash(0, e.name) FROM %s.events AS e",
                                  t->schema, t->schema, t->schema, t->schema);
    bool output = false;
    for (int i = 0; i < PQntuples(result); i++) {
        const char *line = PQgetvalue(result, i, 0);
        output = output || strstr(line, "Output:") != NULL;
        assert_null(strstr(line, "event_name("));
        assert_null(strstr(line, "is_name("));
        assert_null(strstr(line, "append_judge("));
        assert_null(strstr(line, "append_hash("));
    }
    assert_true(output);
    PQclear(result);
}

/* ---- behind an append's back ---------------------------------------------------------------- */

/* The next event named Trapped finds, between its check and its insert, that another session has
 * written the same version of the same stream and committed. */
static void set_trap(pg_test *t)
{
    test_exec(t->conn,
              "CREATE EXTENSION IF NOT EXISTS dblink;"
              "CREATE TABLE IF NOT EXISTS %s.trap (armed boolean);"
              "DELETE FROM %s.trap; INSERT INTO %s.trap VALUES (true);"
              "CREATE OR REPLACE FUNCTION %s.spring() RETURNS trigger LANGUAGE plpgsql AS $$"
              " BEGIN"
              "  IF (SELECT armed FROM %s.trap) THEN"
              "   PERFORM public.dblink_exec(%s, format("
              "    'UPDATE %s.trap SET armed = false; INSERT INTO %s.events VALUES "
              "     (nextval(''%s.positions''), %%L, %%s, ''Intruder'', ''{}'', ''{}'', now())',"
              "    NEW.stream, NEW.version));"
              "  END IF;"
              "  RETURN NEW;"
              " END $$;"
              "DROP TRIGGER IF EXISTS trap ON %s.events;"
              "CREATE TRIGGER trap BEFORE INSERT ON %s.events FOR EACH ROW"
              " WHEN (NEW.name = 'Trapped') EXECUTE FUNCTION %s.spring()",
              t->schema, t->schema, t->schema, t->schema, t->schema,
              PQescapeLiteral(t->conn, test_server(), strlen(test_server())), t->schema, t->schema,
              t->schema, t->schema, t->schema, t->schema);
}

static void C06_what_the_unique_index_refuses_is_the_same_conflict(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    made m[3];
    test_put(t, s, "s", "A");
    set_trap(t);
    make(&m[0], "before", WEIR_EXPECT_ANY, 0, "A");
    make(&m[1], "s", WEIR_EXPECT_EXACT, 0, "Trapped");
    make(&m[2], "after", WEIR_EXPECT_NONE, 0, "A");
    TEST_OK(t, run(s, m, 3, STORE_APPEND_NOWAIT, &t->err));
    assert_int_equal(m[0].append.status, WEIR_OK);
    assert_int_equal(m[2].append.status, WEIR_OK);
    assert_int_equal(m[1].append.status, WEIR_ECONFLICT);
    assert_int_equal(m[1].err.expected, 0);
    assert_int_equal(m[1].err.actual, 1);
    assert_string_equal(m[1].err.stream, "s");
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.events WHERE name = 'Trapped'", t->schema),
        0);
    /* The same when it is alone. */
    test_put(t, s, "u", "A");
    test_exec(t->conn, "UPDATE %s.trap SET armed = true", t->schema);
    make(&m[0], "u", WEIR_EXPECT_EXACT, 0, "Trapped");
    TEST_OK(t, run(s, m, 1, 0, &t->err));
    assert_int_equal(m[0].append.status, WEIR_ECONFLICT);
    assert_int_equal(m[0].err.actual, 1);
}

static void C06_any_does_not_conflict_with_what_was_written_behind_its_back(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    made m;
    test_put(t, s, "s", "A");
    set_trap(t);
    make(&m, "s", WEIR_EXPECT_ANY, 0, "Trapped");
    TEST_OK(t, run(s, &m, 1, 0, &t->err));
    assert_int_equal(m.append.status, WEIR_OK);
    assert_int_equal(m.streams[0].first, 2); /* the intruder has 1 */
    assert_int_equal(
        test_number(t->conn, "SELECT version FROM %s.streams WHERE name = 's'", t->schema), 2);
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* One commit of `count` events, to streams numbered from `first`; how long it took. */
static int64_t many_events(pg_test *t, weir_store *s, size_t count, size_t first,
                           size_t streams_count)
{
    store_append_stream *streams = calloc(streams_count, sizeof *streams);
    store_new_event *events = calloc(count, sizeof *events);
    char(*names)[24] = calloc(streams_count, sizeof *names);
    assert_true(streams != NULL && events != NULL && names != NULL);
    for (size_t i = 0; i < streams_count; i++) {
        snprintf(names[i], sizeof names[i], "m-%zu", first + i);
        streams[i].name = weir__str(names[i]);
    }
    for (size_t i = 0; i < count; i++) {
        events[i] = (store_new_event){ .stream_index = (uint32_t)(i % streams_count),
                                       .name = weir__str("A"),
                                       .data = weir__str("{\"a\":1}"),
                                       .meta = weir__str("{}") };
    }
    store_append a = { .streams = streams,
                       .streams_count = streams_count,
                       .events = events,
                       .events_count = count,
                       .err = &t->err };
    store_append *appends[] = { &a };
    const int64_t start_us = test_mono_us();
    TEST_OK(t, s->log->append(s, appends, 1, &t->err));
    const int64_t took_us = test_mono_us() - start_us;
    TEST_OK(t, a.status);
    assert_int_equal(streams[streams_count - 1].last - streams[streams_count - 1].first + 1,
                     count / streams_count);
    free(names);
    free(events);
    free(streams);
    return took_us;
}

/* As many events in one commit as in PARTS: it takes about as long. With plans that compare
 * everything with everything it took PARTS times as long. */
static void one_commit_of(pg_test *t, weir_store *s, size_t count, size_t streams_count)
{
    enum { PARTS = 50, SLOWER = 10 };
    const size_t streams_each = streams_count < PARTS ? streams_count : streams_count / PARTS;
    const int64_t before = test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema);
    int64_t parts_us = 0;
    for (size_t i = 0; i < PARTS; i++) {
        parts_us += many_events(t, s, count / PARTS, 1000000 + i * streams_each, streams_each);
    }
    const int64_t whole_us = many_events(t, s, count, 0, streams_count);
    print_message("# %zu events: %lld ms in one commit, %lld ms in %d\n", count,
                  (long long)whole_us / 1000, (long long)parts_us / 1000, PARTS);
    assert_true(whole_us < SLOWER * parts_us);
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema),
                     before + 2 * (int64_t)count);
}

/* T23 */
static void C05_a_commit_has_as_many_events_as_it_likes(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    one_commit_of(t, s, 5000, 1);
    one_commit_of(t, s, 5000, 1000); /* as many streams as an append has */
    one_commit_of(t, s, 70000, 10);  /* more than a statement has parameters */
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM (SELECT id - lag(id) OVER (ORDER BY id) AS "
                                 "step FROM %s.events) AS x WHERE step <> 1",
                                 t->schema),
                     0);
}

/* T17: whoever listens, no size of name or payload is a notification's. */
static void C05_a_payload_of_a_mebibyte_and_names_of_500_bytes(void **state)
{
    enum { PAYLOAD = 1024 * 1024 };
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_watch *watch = NULL;
    bool woken = false;
    char *data = malloc(PAYLOAD);
    char stream[501], name[501], key[501];
    assert_non_null(data);
    memset(data, 'x', PAYLOAD);
    data[0] = data[PAYLOAD - 1] = '"';
    memset(stream, 's', 500);
    memset(name, 'n', 500);
    memset(key, 'k', 500);
    stream[500] = name[500] = key[500] = '\0';
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    made m;
    for (int i = 0; i < 2; i++) { /* by both functions */
        make(&m, stream, i == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXISTS, 0, name);
        m.events[0].data = (weir_str){ .ptr = data, .len = PAYLOAD };
        if (i == 1) {
            make_key(&m, key, 1);
        }
        TEST_OK(t, run(s, &m, 1, 0, &t->err));
        assert_int_equal(m.append.status, WEIR_OK);
        assert_int_equal(m.streams[0].last, i);
        TEST_OK(t, s->log->watch_wait(watch, 5000, &woken, &t->err));
        assert_true(woken);
    }
    assert_int_equal(test_number(t->conn,
                                 "SELECT sum(octet_length(data::text)) FROM %s.events "
                                 "WHERE octet_length(name) = 500 AND octet_length(stream) = 500",
                                 t->schema),
                     2 * PAYLOAD);
    s->log->watch_close(watch);
    free(data);
}

static void numbers_past(pg_test *t, int64_t base)
{
    weir_store *s = test_store(t);
    made m[3];
    TEST_OK(t, weir__store_seed(s, base, base, &t->err));
    assert_int_equal(test_put(t, s, "s", "A"), base + 1); /* creates */
    assert_int_equal(test_put(t, s, "s", "A"), base + 2); /* finds */
    make(&m[0], "s", WEIR_EXPECT_EXACT, base + 1, "A");   /* set-based, with a key */
    make_key(&m[0], "key", 1);
    make(&m[1], "u", WEIR_EXPECT_NONE, 0, "A");
    TEST_OK(t, run(s, m, 2, STORE_APPEND_NOWAIT, &t->err));
    assert_int_equal(m[0].append.status, WEIR_OK);
    assert_int_equal(m[0].streams[0].last, base + 2);
    assert_int_equal(m[0].streams[0].id, base + 3);
    assert_int_equal(m[1].streams[0].first, base);
    assert_int_equal(m[1].streams[0].id, base + 4);
    make(&m[0], "s", WEIR_EXPECT_EXACT, base + 1, "A"); /* replayed */
    make_key(&m[0], "key", 1);
    make(&m[1], "u", WEIR_EXPECT_EXACT, base - 1, "A"); /* refused */
    make(&m[2], "u", WEIR_EXPECT_EXACT, base, "A");     /* in order */
    TEST_OK(t, run(s, m, 3, 0, &t->err));
    assert_true(m[0].append.replayed);
    assert_int_equal(m[0].streams[0].id, base + 3);
    assert_int_equal(m[1].append.status, WEIR_ECONFLICT);
    assert_int_equal(m[1].err.expected, base - 1);
    assert_int_equal(m[1].err.actual, base);
    assert_int_equal(m[2].streams[0].last, base + 1);
    make(&m[0], "s", WEIR_EXPECT_ANY, 0, "A");
    TEST_OK(t, run(s, m, 1, STORE_APPEND_DRY_RUN, &t->err));
    assert_int_equal(m[0].streams[0].last, base + 3);
    assert_int_equal(m[0].streams[0].id, base + 6);
}

static void C03_numbers_past_2_to_the_31(void **state)
{
    numbers_past(*state, INT64_C(1) << 31);
}

static void C03_numbers_past_2_to_the_32(void **state)
{
    numbers_past(*state, INT64_C(1) << 32);
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Versions without gaps, positions in the order of versions, heads that say the same. */
static void consistent(pg_test *t)
{
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM (SELECT stream, version, id,"
                                 " row_number() OVER (PARTITION BY stream ORDER BY id) - 1 AS nth"
                                 " FROM %s.events) AS e WHERE e.version <> e.nth",
                                 t->schema),
                     0);
    assert_int_equal(
        test_number(t->conn,
                    "SELECT count(*) FROM (SELECT stream AS name, max(version) AS version,"
                    " max(id) AS last_id FROM %s.events GROUP BY stream) AS e"
                    " FULL JOIN %s.streams AS s USING (name, version, last_id)"
                    " WHERE e.name IS NULL OR s.name IS NULL",
                    t->schema, t->schema),
        0);
}

static void C06_a_batch_numbers_the_events_of_streams_that_appends_share(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    made m[4];
    const int64_t before = test_put(t, s, "x", "A"); /* y and z are new */
    make(&m[0], "x", WEIR_EXPECT_ANY, 0, "B");       /* x, y, x */
    make_add(&m[0], "y", "C");
    m[0].events[2] = m[0].events[0];
    m[0].append.events_count = 3;
    make(&m[1], "z", WEIR_EXPECT_NONE, 0, "D");
    make(&m[2], "y", WEIR_EXPECT_ANY, 0, "E");
    make(&m[3], "x", WEIR_EXPECT_ANY, 0, "F");
    TEST_OK(t, run(s, m, 4, STORE_APPEND_NOWAIT, &t->err));
    const struct {
        int append, stream;
        int64_t first, last, id;
    } wanted[] = { { 0, 0, 1, 2, before + 3 },
                   { 0, 1, 0, 0, before + 2 },
                   { 1, 0, 0, 0, before + 4 },
                   { 2, 0, 1, 1, before + 5 },
                   { 3, 0, 3, 3, before + 6 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const made *one = &m[wanted[i].append];
        assert_int_equal(one->append.status, WEIR_OK);
        assert_int_equal(one->streams[wanted[i].stream].first, wanted[i].first);
        assert_int_equal(one->streams[wanted[i].stream].last, wanted[i].last);
        assert_int_equal(one->streams[wanted[i].stream].id, wanted[i].id);
    }
    assert_int_equal(test_number(t->conn,
                                 "SELECT count(*) FROM %s.events WHERE (stream, version, name) IN "
                                 "(('x', 0, 'A'), ('x', 1, 'B'), ('y', 0, 'C'), ('x', 2, 'B'),"
                                 " ('z', 0, 'D'), ('y', 1, 'E'), ('x', 3, 'F'))",
                                 t->schema),
                     7);
    consistent(t);
}

/* One append of the batch is refused because of its other stream: the neighbour, before or after
 * it, has the shared stream for itself. */
static void C05_a_refused_append_leaves_no_gap_in_a_stream_it_shares(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    made m[3];
    test_put(t, s, "other", "A");
    test_put(t, s, "shared", "A");
    for (int round = 0; round < 4; round++) {
        const int bad = round % 2;
        const char *shared = round < 2 ? "shared" : "new";
        make(&m[bad], shared, WEIR_EXPECT_ANY, 0, "Bad");
        make_add(&m[bad], "other", "Bad");
        m[bad].streams[1].expect = WEIR_EXPECT_EXACT;
        m[bad].streams[1].version = 7;
        make(&m[1 - bad], shared, WEIR_EXPECT_ANY, 0, "Good");
        make(&m[2], "third", WEIR_EXPECT_ANY, 0, "Good");
        TEST_OK(t, run(s, m, 3, STORE_APPEND_NOWAIT, &t->err));
        assert_int_equal(m[bad].append.status, WEIR_ECONFLICT);
        assert_int_equal(m[bad].err.actual, 0);
        assert_int_equal(m[1 - bad].append.status, WEIR_OK);
        assert_int_equal(m[1 - bad].streams[0].first, round < 2 ? 1 + round : round - 2);
        assert_int_equal(m[1 - bad].streams[0].last, round < 2 ? 1 + round : round - 2);
        assert_int_equal(m[2].append.status, WEIR_OK);
        assert_int_equal(m[2].streams[0].last, round);
    }
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.events WHERE name = 'Bad'", t->schema), 0);
    /* Not even a position: 2 + 4 times 2. */
    assert_int_equal(test_number(t->conn, "SELECT last_value FROM %s.positions", t->schema), 10);
    consistent(t);
}

/* ---- durability ---------------------------------------------------------------------------- */

static void C12_a_role_without_synchronous_commit_commits_durably_all_the_same(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *user = test_connect(t);
    made m[2];
    test_exec(t->conn,
              "CREATE TABLE %s.durability (name text, setting text);"
              "CREATE FUNCTION %s.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
              " INSERT INTO %s.durability VALUES (NEW.name, current_setting('synchronous_commit'));"
              " RETURN NULL; END $$;"
              "CREATE TRIGGER note AFTER INSERT ON %s.events FOR EACH ROW"
              " EXECUTE FUNCTION %s.note();",
              t->schema, t->schema, t->schema, t->schema, t->schema);
    test_exec(t->conn, "ALTER ROLE CURRENT_USER SET synchronous_commit = off");
    weir_store *s = test_store(t);
    test_put(t, s, "s", "Created");
    test_put(t, s, "s", "Single");
    make(&m[0], "s", WEIR_EXPECT_ANY, 0, "Batch");
    make(&m[1], "u", WEIR_EXPECT_ANY, 0, "Batch");
    TEST_OK(t, run(s, m, 2, STORE_APPEND_NOWAIT, &t->err));
    test_exec(t->conn, "ALTER ROLE CURRENT_USER RESET synchronous_commit");
    test_exec(user, "SET synchronous_commit = off; BEGIN");
    TEST_OK(t, append_by(w, user, "s", "", NULL, &t->err));
    assert_string_equal(test_text(user, "SHOW synchronous_commit"), "on");
    test_exec(user, "COMMIT");
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.durability", t->schema), 5);
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.durability WHERE setting <> 'on'", t->schema),
        0);
}

/* ---- a caller's own transaction ------------------------------------------------------------ */

static void an_append_belongs_to_the_callers_transaction(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    weir_store *s = test_store(t);
    PGconn *user = test_connect(t);
    const weir_append_result *result = NULL;
    store_watch *watch = NULL;
    bool woken = false;
    test_exec(t->conn, "CREATE TABLE %s.mine (n integer)", t->schema);
    test_exec(user, "BEGIN; INSERT INTO %s.mine VALUES (1)", t->schema);
    TEST_OK(t, append_by(w, user, "s", "", NULL, &t->err));
    test_exec(user, "ROLLBACK");
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 0);
    TEST_OK(t, s->log->watch_open(s, &watch, &t->err));
    test_exec(user, "BEGIN; INSERT INTO %s.mine VALUES (2)", t->schema);
    TEST_OK(t, append_by(w, user, "s", "", &result, &t->err));
    assert_int_equal(result->streams[0]->first, 0);
    weir_append_result_free(result);
    TEST_OK(t, append_by(w, user, "s", "", NULL, &t->err)); /* sees its own */
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 0);
    test_exec(user, "COMMIT");
    do { /* what others said before */
        TEST_OK(t, s->log->watch_wait(watch, 0, &woken, &t->err));
    } while (woken);
    weir_wake(w);
    TEST_OK(t, s->log->watch_wait(watch, 10000, &woken, &t->err));
    assert_true(woken);
    s->log->watch_close(watch);
    assert_int_equal(
        test_number(t->conn, "SELECT count(*) FROM %s.events, %s.mine", t->schema, t->schema), 2);
}

static void a_refusal_leaves_the_callers_transaction_as_it_was(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *user = test_connect(t);
    const weir_new_event e = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                               .name = weir__str("A") };
    const weir_new_event *events[] = { &e };
    const weir_expectation x = { WEIR_EXPECTATION_INIT, .stream = weir__str("s"),
                                 .expect = WEIR_EXPECT_EXACT, .version = 4 };
    const weir_expectation *expectations[] = { &x };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .expectations = expectations, .expectations_count = 1 };
    test_exec(user, "BEGIN");
    TEST_OK(t, append_by(w, user, "s", "", NULL, &t->err));
    TEST_IS(t, weir_append_in(w, user, &r, NULL, &t->err), WEIR_ECONFLICT);
    assert_int_equal(t->err.expected, 4);
    assert_int_equal(t->err.actual, 0);
    TEST_OK(t, append_by(w, user, "s", "", NULL, &t->err));
    test_exec(user, "COMMIT");
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 2);
}

static void a_transaction_that_cannot_be_appended_in_is_named(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *user = test_connect(t);
    TEST_IS(t, append_by(w, user, "s", "", NULL, &t->err), WEIR_EMISUSE);
    assert_non_null(strstr(t->err.message, "no transaction is open"));
    static const char *const levels[] = { "REPEATABLE READ", "SERIALIZABLE" };
    for (size_t i = 0; i < 2; i++) {
        test_exec(user, "BEGIN ISOLATION LEVEL %s", levels[i]);
        TEST_IS(t, append_by(w, user, "s", "", NULL, &t->err), WEIR_EMISUSE);
        assert_non_null(strstr(t->err.message, "READ COMMITTED"));
        assert_int_equal(test_number(user, "SELECT 1"), 1); /* still usable */
        test_exec(user, "COMMIT");
    }
    test_exec(user, "BEGIN");
    assert_string_equal(test_refused(user, "SELECT 1 / 0"), "22012");
    TEST_IS(t, append_by(w, user, "s", "", NULL, &t->err), WEIR_EMISUSE);
    assert_non_null(strstr(t->err.message, "roll it back"));
    test_exec(user, "ROLLBACK");
    assert_int_equal(test_number(t->conn, "SELECT count(*) FROM %s.events", t->schema), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(one_append_is_one_statement_and_so_is_a_batch),
        PG_TEST(the_checks_of_an_event_are_put_in_the_place_of_their_calls),
        PG_TEST(C06_what_the_unique_index_refuses_is_the_same_conflict),
        PG_TEST(C06_any_does_not_conflict_with_what_was_written_behind_its_back),
        PG_TEST(C05_a_commit_has_as_many_events_as_it_likes),
        PG_TEST(C05_a_payload_of_a_mebibyte_and_names_of_500_bytes),
        PG_TEST(C03_numbers_past_2_to_the_31),
        PG_TEST(C03_numbers_past_2_to_the_32),
        PG_TEST(C06_a_batch_numbers_the_events_of_streams_that_appends_share),
        PG_TEST(C05_a_refused_append_leaves_no_gap_in_a_stream_it_shares),
        PG_TEST(C12_a_role_without_synchronous_commit_commits_durably_all_the_same),
        PG_TEST(an_append_belongs_to_the_callers_transaction),
        PG_TEST(a_refusal_leaves_the_callers_transaction_as_it_was),
        PG_TEST(a_transaction_that_cannot_be_appended_in_is_named),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
