/* positions_test.c - positions that never skip (C16), and who holds them back (C17).
 *
 * Transactions of somebody else are held open by plain connections that call the append function
 * itself. What depends on the moment is not left to chance: weir__pg_safe_watch stops the reader
 * between two steps of its rule.
 */
#include "pg_support.h"

#include "store/postgres/read_sql.h"
#include "store/postgres/safe.h"
#include "store/postgres/safe_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { IDS_MAX = 4096 };

/* Everything one reader was given: without payloads, as a router reads, and with them, as others
 * do. */
typedef struct follower {
    weir_store *store;
    int64_t after;
    int64_t ids[IDS_MAX];
    size_t count;
    bool held;
    bool whole; /* by turns */
} follower;

/* An append in the transaction that is open on this connection; its position. */
static int64_t append_on(pg_test *t, PGconn *conn, const char *stream)
{
    return test_number(conn,
                       "SELECT position FROM %s.append_one(0, 0, '%s', 0, 0, 'A', '{}', '{}')",
                       t->schema, stream);
}

static int64_t safe_of(pg_test *t, weir_store *s)
{
    store_positions at;
    TEST_OK(t, s->log->positions(s, &at, &t->err));
    return at.safe;
}

/* Reads to the end, once. */
static void follow(pg_test *t, follower *f)
{
    store_chunk chunk = { 0 };
    do {
        const store_log_query q = {
            .after = f->after, .to = INT64_MAX, .limit = 1000, .bare = !f->whole
        };
        TEST_OK(t, f->store->log->read_log(f->store, &q, &chunk, &t->err));
        for (size_t i = 0; i < chunk.events_count; i++) {
            assert_int_equal(chunk.events[i].data.len > 0, f->whole);
            assert_true(f->count < IDS_MAX);
            assert_true(f->count == 0 || chunk.events[i].id > f->ids[f->count - 1]);
            f->ids[f->count++] = chunk.events[i].id;
        }
        f->after = chunk.scanned_to;
    } while (chunk.more);
    f->held = chunk.held;
    f->whole = !f->whole;
    weir__chunk_free(&chunk);
}

/* Reads until it has seen `count` events, for at most two seconds. */
static void follow_until(pg_test *t, follower *f, size_t count)
{
    const int64_t deadline = test_mono_us() + 2000000;
    follow(t, f);
    while (f->count < count && test_mono_us() < deadline) {
        usleep(2000);
        follow(t, f);
    }
}

/* Every event of the table was given, in its order, and nothing else. */
static void has_everything(pg_test *t, const follower *f)
{
    PGresult *all = test_query(t->conn, "SELECT id FROM %s.events ORDER BY id", t->schema);
    assert_int_equal(f->count, PQntuples(all));
    for (size_t i = 0; i < f->count; i++) {
        assert_int_equal(f->ids[i], atoll(PQgetvalue(all, (int)i, 0)));
    }
    PQclear(all);
}

/* ---- an append that is held open ---------------------------------------------------------- */

static void held_and_passed(pg_test *t, bool commit)
{
    weir_store *s = test_store(t);
    PGconn *writer = test_connect(t);
    follower router = { .store = test_store(t) };
    const int64_t first = test_put(t, s, "before", "A");
    test_exec(writer, "BEGIN");
    /* To a stream that is there and to a new one: the function has a way of its own for each. */
    const int64_t held = append_on(t, writer, commit ? "before" : "held");
    for (int i = 0; i < 1000; i++) {
        (void)test_put(t, s, i % 2 == 0 ? "even" : "odd", "A");
    }
    follow(t, &router);
    assert_int_equal(router.count, 1); /* what came before it, and nothing that came after */
    assert_int_equal(router.ids[0], first);
    assert_true(router.held);
    assert_int_equal(router.after, first);

    store_positions at;
    TEST_OK(t, s->log->positions(s, &at, &t->err));
    assert_int_equal(at.head, held + 1000);
    assert_int_equal(at.safe, held - 1);

    test_exec(writer, commit ? "COMMIT" : "ROLLBACK");
    follow_until(t, &router, commit ? 1002 : 1001);
    has_everything(t, &router);
    assert_false(router.held);
    assert_int_equal(safe_of(t, s), held + 1000);
}

static void C16_readers_wait_for_an_open_append_and_give_all_in_order(void **state)
{
    held_and_passed(*state, true);
}

static void C16_readers_go_on_when_an_open_append_rolls_back(void **state)
{
    held_and_passed(*state, false);
}

/* The same through the public functions: nobody wakes a follower when someone rolls back. */
static void C16_a_follower_goes_on_soon_after_a_rollback(void **state)
{
    pg_test *t = *state;
    weir *w = test_weir(t);
    PGconn *writer = test_connect(t);
    PGconn *other = test_connect(t);
    const weir_log_options options = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
    weir_reader *reader = NULL;
    const weir_event *event = NULL;
    int64_t took_us = INT64_MAX;
    TEST_OK(t, weir_log_open(w, &options, &reader, &t->err));
    /* Without an eye on what is held back it takes a second, every time. A busy machine has twenty
     * tries to be faster. */
    for (int i = 0; i < 20 && took_us >= 600000; i++) {
        test_exec(writer, "BEGIN");
        (void)append_on(t, writer, "held");
        const int64_t id = append_on(t, other, "other");
        TEST_OK(t, weir_reader_next(reader, 400, &event, &t->err));
        assert_null(event);
        test_exec(writer, "ROLLBACK");
        const int64_t began_us = test_mono_us();
        TEST_OK(t, weir_reader_next(reader, 60000, &event, &t->err));
        took_us = test_mono_us() - began_us;
        assert_non_null(event);
        assert_int_equal(event->id, id);
    }
    weir_reader_close(reader);
    assert_true(took_us < 600000);
}

/* A subtransaction that is undone releases its lock; the positions it took are dead. */
static void C16_a_savepoint_rolled_back_holds_nobody(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *writer = test_connect(t);
    test_exec(writer, "BEGIN; SAVEPOINT a");
    (void)append_on(t, writer, "undone");
    const int64_t id = test_put(t, s, "other", "A");
    assert_true(safe_of(t, s) < id);
    test_exec(writer, "ROLLBACK TO a");
    assert_int_equal(safe_of(t, s), id);
    const int64_t again = append_on(t, writer, "kept");
    const int64_t later = test_put(t, s, "other", "A");
    assert_int_equal(safe_of(t, s), id);
    test_exec(writer, "COMMIT");
    assert_true(again < later);
    assert_int_equal(safe_of(t, s), later);
}

/* ---- each step of the rule ---------------------------------------------------------------- */

/* The same process is back with its next append before anybody looks: that one does not count. */
static void C16_a_holder_is_a_transaction_and_not_a_process(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *busy = test_connect(t);
    int64_t id = 0;
    test_exec(busy, "BEGIN");
    (void)append_on(t, busy, "busy");
    for (int i = 0; i < 10; i++) {
        id = test_put(t, s, "other", "A");
        assert_true(safe_of(t, s) < id); /* held by the transaction that is open now */
        test_exec(busy, "ROLLBACK; BEGIN");
        (void)append_on(t, busy, "busy");
        assert_int_equal(safe_of(t, s), id); /* not by the next one of the same process */
    }
    test_exec(busy, "COMMIT");
}

/* What happens between two statements of the rule. */
typedef struct scene {
    pg_test *t;
    weir_store *store;
    PGconn *first, *second;
    int statements; /* so far */
    const char *sql;
    int64_t open_id, last_id;
    bool played;
} scene;

/* Before the second statement: someone takes a position and keeps it, another one passes it, and
 * the holder that was there ends. */
static void play_second(void *ctx, const char *sql)
{
    scene *c = ctx;
    (void)sql;
    if (++c->statements == 2) {
        test_exec(c->second, "BEGIN");
        c->open_id = append_on(c->t, c->second, "second");
        c->last_id = append_on(c->t, c->t->conn, "passing");
        test_exec(c->first, "COMMIT");
        c->played = true;
    }
}

static void C16_holders_are_looked_at_after_the_gap_was_seen(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    scene c = { .t = t, .first = test_connect(t), .second = test_connect(t) };
    (void)safe_of(t, s); /* knows its server */
    test_exec(c.first, "BEGIN");
    (void)append_on(t, c.first, "first");
    (void)append_on(t, t->conn, "passing");
    weir__pg_safe_watch(s, play_second, &c);
    follow(t, &f);
    assert_true(c.played);
    weir__pg_safe_watch(s, NULL, NULL);
    for (int i = 0; i < 5; i++) {
        follow(t, &f);
        assert_true(f.after < c.open_id);
    }
    test_exec(c.second, "COMMIT");
    follow_until(t, &f, 4);
    has_everything(t, &f);
}

/* The holder ends right before it is looked for. */
static void play_look(void *ctx, const char *sql)
{
    scene *c = ctx;
    if (strcmp(sql, c->sql) == 0 && !c->played) {
        c->played = true;
        test_exec(c->first, "COMMIT");
    }
}

static void C16_events_are_read_after_the_holders_were_found_gone(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    scene c = { .t = t, .first = test_connect(t) };
    test_exec(c.first, "BEGIN");
    (void)append_on(t, c.first, "first");
    (void)append_on(t, t->conn, "passing");
    follow(t, &f);
    assert_int_equal(f.count, 0);
    c.sql = sql_safe_look;
    weir__pg_safe_watch(s, play_look, &c);
    for (int i = 0; i < 3; i++) {
        follow(t, &f);
    }
    weir__pg_safe_watch(s, NULL, NULL);
    assert_true(c.played);
    has_everything(t, &f);
    assert_int_equal(f.count, 2);
}

/* What lies before a gap was read before anybody looked who owns it: that is not all there is. */
static void what_was_read_too_early_is_read_again(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    scene c = { .t = t, .first = test_connect(t), .sql = sql_safe_look };
    (void)append_on(t, t->conn, "before");
    test_exec(c.first, "BEGIN");
    (void)append_on(t, c.first, "first");
    (void)append_on(t, t->conn, "passing");
    weir__pg_safe_watch(s, play_look, &c);
    follow(t, &f);
    weir__pg_safe_watch(s, NULL, NULL);
    assert_true(c.played);
    has_everything(t, &f);
    assert_int_equal(f.count, 3);
}

/* Each reader runs the rule by itself; one that is told by another what is safe goes on as well. */
static void C16_the_hint_only_grows_and_never_beyond_the_log(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    const int64_t id = test_put(t, s, "a", "A");
    test_exec(t->conn, "SELECT %s.safe_advance(%lld)", t->schema, (long long)id);
    assert_int_equal(test_number(t->conn, "SELECT position FROM %s.safe", t->schema), id);
    test_exec(t->conn, "SELECT %s.safe_advance(%lld)", t->schema, (long long)id + 1000000);
    test_exec(t->conn, "SELECT %s.safe_advance(0)", t->schema);
    assert_int_equal(test_number(t->conn, "SELECT position FROM %s.safe", t->schema), id);
    /* Nobody waits for whoever is writing it. */
    const int64_t next = test_put(t, s, "a", "A");
    PGconn *slow = test_connect(t);
    test_exec(slow, "BEGIN; SELECT %s.safe_advance(%lld)", t->schema, (long long)next);
    test_exec(t->conn, "SET lock_timeout = '1s'; SELECT %s.safe_advance(%lld)", t->schema,
              (long long)next);
    assert_int_equal(safe_of(t, s), next);
    test_exec(slow, "COMMIT");
    assert_int_equal(safe_of(t, test_store(t)), next);
}

static void C16_the_hint_is_written_now_and_then(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "SELECT count(x.position) FROM generate_series(1, 3000) AS g, LATERAL "
              "%s.append_one(0, 0, 's-' || g, 0, 0, 'A', '{}', '{}') AS x",
              t->schema);
    assert_int_equal(safe_of(t, s), 3000);
    assert_int_equal(test_number(t->conn, "SELECT position FROM %s.safe", t->schema), 3000);
    test_statements_reset(t);
    for (int i = 0; i < 20; i++) {
        (void)test_put(t, s, "a", "A");
        (void)safe_of(t, s);
    }
    assert_true(test_statements(t, "%safe_prove%") <= 3);
}

/* ---- whoever is not concerned ------------------------------------------------------------- */

static void C16_a_bystander_in_a_transaction_delays_nobody(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *idle = test_connect(t);
    PGconn *wrote = test_connect(t);
    PGconn *locked = test_connect(t);
    PGconn *gap = test_connect(t);
    test_exec(t->conn, "CREATE TABLE %s.mine (id bigint)", t->schema);
    (void)test_put(t, s, "a", "A");
    test_exec(idle, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM %s.events",
              t->schema);
    test_exec(wrote, "BEGIN; INSERT INTO %s.mine VALUES (1)", t->schema);
    test_exec(locked, "BEGIN; SELECT pg_advisory_xact_lock_shared(1465207122, 1)");
    /* A gap that nobody owns: only who could own it is waited for. */
    test_exec(gap, "BEGIN");
    (void)append_on(t, gap, "gone");
    test_exec(gap, "ROLLBACK");
    const int64_t id = test_put(t, s, "a", "A");
    follower f = { .store = s };
    follow(t, &f);
    has_everything(t, &f);
    assert_int_equal(f.after, id);
    assert_false(f.held);
    store_holder_list list = { 0 };
    TEST_OK(t, s->about->holders(s, &list, &t->err));
    assert_int_equal(list.holders_count, 0);
    weir__arena_free(&list.arena);
}

/* Two stores in one database have numbers of their own. */
static void C16_an_append_to_another_store_delays_nobody(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    char name[TEST_SCHEMA_BYTES + 8];
    snprintf(name, sizeof name, "%s other", t->schema);
    store_options options = test_options(t);
    options.schema = weir__str(name);
    weir_store *other = test_store_with(t, &options);
    (void)test_put(t, other, "a", "A");
    PGconn *writer = test_connect(t);
    PGconn *gap = test_connect(t);
    test_exec(writer, "BEGIN");
    (void)test_number(
        writer, "SELECT position FROM \"%s\".append_one(0, 0, 'x', 0, 0, 'A', '{}', '{}')", name);
    test_exec(gap, "BEGIN");
    (void)append_on(t, gap, "gone");
    test_exec(gap, "ROLLBACK");
    const int64_t id = test_put(t, s, "a", "A");
    assert_int_equal(safe_of(t, s), id);
    test_exec(writer, "ROLLBACK");
    test_store_close(t, other);
    test_exec(t->conn, "SET client_min_messages = warning; DROP SCHEMA \"%s\" CASCADE", name);
}

/* A backend that is ended in the middle of an append leaves a gap without an owner. */
static void C16_a_killed_backend_leaves_a_gap_that_nobody_waits_for(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *writer = test_connect(t);
    test_exec(writer, "BEGIN");
    (void)append_on(t, writer, "held");
    const int pid = PQbackendPID(writer);
    const int64_t id = test_put(t, s, "a", "A");
    assert_true(safe_of(t, s) < id);
    test_exec(t->conn, "SELECT pg_terminate_backend(%d)", pid);
    assert_true(
        test_wait(t->conn, 120, "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = %d)", pid));
    assert_int_equal(safe_of(t, s), id);
}

/* ---- prepared transactions ---------------------------------------------------------------- */

static void C16_a_prepared_transaction_holds_and_is_named(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    PGconn *writer = test_connect(t);
    test_exec(writer, "BEGIN");
    (void)append_on(t, writer, "held");
    test_exec(writer, "PREPARE TRANSACTION '%s'", t->schema);
    (void)test_put(t, s, "a", "A");
    follow(t, &f);
    follow(t, &f);
    assert_int_equal(f.count, 0);
    assert_true(f.held);
    store_holder_list list = { 0 };
    TEST_OK(t, s->about->holders(s, &list, &t->err));
    assert_int_equal(list.holders_count, 1);
    assert_int_equal(list.holders[0].pid, 0);
    assert_true(weir__str_equal(list.holders[0].transaction, weir__str(t->schema)));
    assert_true(weir__str_equal(list.holders[0].user, weir__str("postgres")));
    assert_true(list.holders[0].since_us > 0);
    weir__arena_free(&list.arena);
    test_exec(writer, "COMMIT PREPARED '%s'", t->schema);
    follow_until(t, &f, 2);
    has_everything(t, &f);
    assert_int_equal(f.count, 2);
}

/* It has no process any more, and is still the same. */
static void C16_a_holder_that_is_prepared_is_still_a_holder(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    PGconn *writer = test_connect(t);
    test_exec(writer, "BEGIN");
    (void)append_on(t, writer, "held");
    (void)test_put(t, s, "a", "A");
    follow(t, &f);
    assert_int_equal(f.count, 0);
    test_exec(writer, "PREPARE TRANSACTION '%s'", t->schema);
    for (int i = 0; i < 5; i++) {
        follow(t, &f);
        assert_int_equal(f.count, 0);
        assert_true(f.held);
    }
    test_exec(writer, "COMMIT PREPARED '%s'", t->schema);
    follow_until(t, &f, 2);
    has_everything(t, &f);
    assert_int_equal(f.count, 2);
}

/* ---- C17 ---------------------------------------------------------------------------------- */

static void run_status(pg_test *t, const char *flag, char *out, size_t bytes)
{
    char command[2 * TEST_URL_BYTES];
    snprintf(command, sizeof command, "'%s' status %s --store '%s' 2>&1", getenv("WEIR"), flag,
             t->url);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t len = fread(out, 1, bytes - 1, pipe);
    out[len] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void C17_who_holds_safe_back_is_named_oldest_first(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    PGconn *old = test_connect(t);
    PGconn *young = test_connect(t);
    char text[8192];
    char wanted[128];
    test_exec(old, "SET application_name = 'the slow one'; BEGIN");
    (void)append_on(t, old, "old");
    test_exec(young, "BEGIN");
    (void)append_on(t, young, "young");
    (void)test_put(t, s, "a", "A");

    store_holder_list list = { 0 };
    TEST_OK(t, s->about->holders(s, &list, &t->err));
    assert_int_equal(list.holders_count, 2);
    const store_holder *h = &list.holders[0];
    assert_int_equal(h->pid, PQbackendPID(old));
    assert_int_equal(list.holders[1].pid, PQbackendPID(young));
    assert_true(h->since_us > 0 && h->since_us <= list.holders[1].since_us);
    assert_true(weir__str_equal(h->application, weir__str("the slow one")));
    assert_true(weir__str_equal(h->state, weir__str("idle in transaction")));
    assert_true(h->query.len > 0 && h->transaction.len > 0);
    weir__arena_free(&list.arena);

    if (getenv("WEIR") == NULL) {
        return; /* run by hand */
    }
    run_status(t, "--json", text, sizeof text);
    snprintf(wanted, sizeof wanted, "\"held_back_by\":[{\"pid\":%d,", PQbackendPID(old));
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, "\"application\":\"the slow one\""));
    run_status(t, "--text", text, sizeof text);
    snprintf(wanted, sizeof wanted, "%d", PQbackendPID(old));
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, "the slow one"));
    test_exec(old, "COMMIT");
    test_exec(young, "PREPARE TRANSACTION 'two \"phases\"'");
    run_status(t, "--json", text, sizeof text);
    assert_non_null(strstr(text, "\"held_back_by\":[{\"pid\":null,"
                                 "\"transaction\":\"two \\\"phases\\\"\",\"prepared\":true,"));
    test_exec(young, "COMMIT PREPARED 'two \"phases\"'");
    run_status(t, "--json", text, sizeof text);
    assert_non_null(strstr(text, "\"held_back_by\":[]"));
}

/* ---- C18 ---------------------------------------------------------------------------------- */

/* The most memory there ever was; a sanitizer keeps what was freed, so there it says nothing. */
static int64_t memory_kib(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#endif
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* A thousand events of a chunk can be a GiB; what was sent is in memory. After small ones, because
 * those are read the quick way. */
static void C18_large_events_do_not_come_a_thousand_at_a_time(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    store_chunk chunk = { 0 };
    size_t count = 0;
    test_exec(
        t->conn,
        "DO $$ BEGIN FOR g IN 1..150 LOOP PERFORM %s.append_one(0, 0, 'big', 0, 0, 'A', "
        "(CASE WHEN g < 50 THEN '{}' ELSE '\"' || (SELECT string_agg(md5(g * 1.1 * i || ''), '')"
        " FROM generate_series(1, 32000) AS i) || '\"' END)::json, '{}'); END LOOP; END $$",
        t->schema);
    for (int backward = 0; backward < 2; backward++) {
        store_log_query q = { .after = backward ? INT64_MAX : 0,
                              .to = backward ? 0 : INT64_MAX,
                              .backward = backward,
                              .limit = 1000 };
        const int64_t before = memory_kib();
        do {
            TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
            count += chunk.events_count;
            q.after = chunk.scanned_to;
        } while (chunk.more);
        assert_true(memory_kib() - before < 24 * 1024);
    }
    store_stream_query q = {
        .stream = weir__str("big"), .to = INT64_MAX, .limit = 1000, .until_us = INT64_MAX
    };
    const int64_t before = memory_kib();
    do {
        TEST_OK(t, s->log->read_stream(s, &q, &chunk, &t->err));
        assert_true(chunk.events_count > 0);
        count += chunk.events_count;
        q.from = chunk.events[chunk.events_count - 1].version + 1;
    } while (chunk.more);
    assert_true(memory_kib() - before < 24 * 1024);
    assert_int_equal(count, 3 * 150);
    weir__chunk_free(&chunk);
}

/* ---- searching by path -------------------------------------------------------------------- */

typedef struct search {
    const char *stream, *category, *names[2], *where;
} search;

typedef struct search_mode {
    bool backward, bare;
    int64_t limit;
} search_mode;

/* Reads what a filter wants, but for the first and the last hundred, in all its chunks. */
static void search_finds(pg_test *t, weir_store *s, const search *c, const search_mode *m)
{
    const int64_t last = test_number(t->conn, "SELECT max(id) - 100 FROM %s.events", t->schema);
    const weir_str names[] = { weir__str(c->names[0]), weir__str(c->names[1]) };
    store_pattern *pattern = NULL;
    if (c->stream[0] != '\0') {
        TEST_OK(t, weir__pattern_open(&pattern, weir__str(c->stream), &t->err));
    }
    const store_filter filter = { .has_names = names[0].len > 0,
                                  .names = names,
                                  .names_count = names[1].len > 0 ? 2 : 1,
                                  .stream = pattern,
                                  .category = weir__str(c->category),
                                  .since_us = INT64_MIN,
                                  .until_us = INT64_MAX };
    store_log_query q = { .after = m->backward ? last + 1 : 100,
                          .to = m->backward ? 101 : last,
                          .backward = m->backward,
                          .limit = m->limit,
                          .bare = m->bare,
                          .filter = &filter };
    store_chunk chunk = { 0 };
    PGresult *rows = test_query(t->conn,
                                "SELECT id, name FROM %s.events WHERE id BETWEEN 101 AND %lld "
                                "AND %s ORDER BY id %s",
                                t->schema, (long long)last, c->where, m->backward ? "DESC" : "");
    int row = 0;
    do {
        TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
        for (size_t j = 0; j < chunk.events_count; j++, row++) {
            const weir_event *e = &chunk.events[j];
            assert_true(row < PQntuples(rows));
            assert_int_equal(e->id, atoll(PQgetvalue(rows, row, 0)));
            assert_true(weir__str_equal(e->name, weir__str(PQgetvalue(rows, row, 1))));
            assert_int_equal(e->data.len, m->bare ? 0 : 2);
            assert_int_equal(e->meta.len, m->bare ? 0 : 2);
        }
        assert_true(!chunk.more || chunk.scanned_to != q.after);
        q.after = chunk.scanned_to;
    } while (chunk.more);
    assert_int_equal(row, PQntuples(rows));
    PQclear(rows);
    weir__chunk_free(&chunk);
    weir__pattern_close(pattern);
}

/* Steps over a log that is much longer than a page, by every index, in both directions, with
 * payloads and without. In its middle so many positions are missing that pages of positions have
 * nothing in them. */
static void C15_filters_find_the_same_by_every_index(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    for (int half = 0; half < 2; half++) {
        test_exec(t->conn,
                  "SELECT count(x.position) FROM generate_series(1, 2500) AS g, LATERAL "
                  "%s.append_one(0, 0, (ARRAY['a-1','a-2','b-1','c'])[1 + g %% 4], 0, 0, "
                  "CASE WHEN g %% 97 = 0 THEN 'Rare' ELSE (ARRAY['X','Y','Z'])[1 + g %% 3] END, "
                  "'{}', '{}') AS x; "
                  "SELECT setval(pg_get_serial_sequence('%s.events', 'id'), 30000)",
                  t->schema, t->schema);
    }
    static const search cases[] = {
        { "a-1", "", { "", "" }, "stream = 'a-1'" },
        { "a-1", "", { "Y", "" }, "stream = 'a-1' AND name = 'Y'" },
        { "a-*", "", { "", "" }, "stream LIKE 'a-%'" },
        { "", "a", { "Z", "" }, "stream LIKE 'a-%' AND name = 'Z'" },
        { "", "", { "X", "" }, "name = 'X'" },
        { "", "", { "X", "Z" }, "name IN ('X', 'Z')" },
        { "", "", { "Rare", "" }, "name = 'Rare'" },
        { "", "", { "Rare", "X" }, "name IN ('Rare', 'X')" },
        { "", "b", { "Rare", "" }, "stream LIKE 'b-%' AND name = 'Rare'" },
        { "/[ac]/", "", { "", "" }, "stream ~ '[ac]'" },
        { "nobody", "", { "", "" }, "false" },
        { "", "", { "", "" }, "true" },
    };
    static const search_mode modes[] = { { false, false, 700 },  { true, false, 700 },
                                         { false, false, 1000 }, { true, false, 1000 },
                                         { false, true, 300 },   { false, true, 8000 },
                                         { true, true, 700 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t j = 0; j < sizeof modes / sizeof modes[0]; j++) {
            search_finds(t, s, &cases[i], &modes[j]);
        }
    }
}

/* Most of the log is read where it lies, whatever index there is; a rare name never is. */
static void names_that_are_frequent_are_not_looked_for_one_by_one(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "INSERT INTO %s.events SELECT g, 's-' || g %% 100, g / 100, "
              "CASE WHEN g %% 1000 = 0 THEN 'Rare' ELSE 'Often' END, '{}', '{}', "
              "timestamptz '2020-01-01' FROM generate_series(1, 40000) AS g",
              t->schema);
    static const struct {
        const char *name;
        int64_t events;
        size_t chunks_max;
    } cases[] = { { "Often", 39960, 7 }, { "Rare", 40, 1 }, { "Often", 39960, 7 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const weir_str name = weir__str(cases[i].name);
        const store_filter filter = { .has_names = true,
                                      .names = &name,
                                      .names_count = 1,
                                      .since_us = INT64_MIN,
                                      .until_us = INT64_MAX };
        store_log_query q = { .to = 40000, .limit = 8000, .bare = true, .filter = &filter };
        store_chunk chunk = { 0 };
        int64_t events = 0;
        size_t chunks = 0;
        do {
            TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
            events += (int64_t)chunk.events_count;
            q.after = chunk.scanned_to;
            chunks++;
        } while (chunk.more);
        assert_int_equal(events, cases[i].events);
        assert_true(chunks <= cases[i].chunks_max);
        assert_true(atomic_load(&pg_of(s)->read_dense) != 0); /* and not of the rare one */
        weir__chunk_free(&chunk);
    }
}

/* A long log is not read from its beginning for the sake of its last hours. */
static void C15_times_are_found_without_reading_the_log(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    test_exec(t->conn,
              "INSERT INTO %s.events SELECT g, 's', g - 1, 'A', '{}', '{}', "
              "timestamptz '2020-01-01 00:00:00+00' + g * interval '1 minute' "
              "+ (g %% 3) * interval '5 minutes' FROM generate_series(1, 40000) AS g",
              t->schema);
    const int64_t begin_us = INT64_C(1577836800000000);
    const int64_t minute_us = INT64_C(60000000);
    static const struct {
        int64_t since, until; /* minutes; -1: no bound */
    } cases[] = { { 39000, -1 }, { -1, 500 }, { 20000, 20010 }, { 50000, -1 }, { 100, 39900 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const store_filter filter = {
            .since_us = cases[i].since < 0 ? INT64_MIN : begin_us + cases[i].since * minute_us,
            .until_us = cases[i].until < 0 ? INT64_MAX : begin_us + cases[i].until * minute_us,
        };
        store_chunk chunk = { 0 };
        int64_t count = 0;
        int64_t chunks = 0;
        store_log_query q = { .to = INT64_MAX, .limit = 1000, .filter = &filter };
        do {
            TEST_OK(t, s->log->read_log(s, &q, &chunk, &t->err));
            count += (int64_t)chunk.events_count;
            q.after = chunk.scanned_to;
            chunks++;
        } while (chunk.more);
        weir__chunk_free(&chunk);
        assert_int_equal(q.after, 40000);
        const int64_t wanted = test_number(
            t->conn,
            "SELECT count(*) FROM %s.events WHERE created >= timestamptz '2020-01-01 00:00:00+00' "
            "+ "
            "%lld * interval '1 minute' AND created <= timestamptz '2020-01-01 00:00:00+00' + "
            "%lld * interval '1 minute'",
            t->schema, (long long)cases[i].since,
            cases[i].until < 0 ? 1000000LL : (long long)cases[i].until);
        assert_int_equal(count, wanted);
        assert_true(chunks <= wanted / 1000 + 7); /* a day at either end is three pages */
    }
}

static void count_statements(void *ctx, const char *sql)
{
    (void)sql;
    ++*(int *)ctx;
}

/* A router that is told of an event asks once. */
static void what_is_new_is_read_in_the_statement_that_finds_it(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    follower f = { .store = s };
    int asked = 0;
    (void)append_on(t, t->conn, "a");
    follow(t, &f);
    weir__pg_safe_watch(s, count_statements, &asked);
    for (int i = 0; i < 3; i++) {
        const int64_t id = append_on(t, t->conn, "b");
        f.whole = i == 2; /* the other way takes two */
        asked = 0;
        test_statements_reset(t);
        follow(t, &f);
        assert_int_equal(f.ids[f.count - 1], id);
        assert_int_equal(asked, 1);
        assert_int_equal(test_statements(t, "%next_id%"), 1);
        assert_int_equal(test_statements(t, "%small_data%"), i == 2 ? 1 : 0);
    }
    weir__pg_safe_watch(s, NULL, NULL);
    has_everything(t, &f);
}

/* The plan of a statement that serves all values of its parameters, in `plan`. */
static void plan_of(pg_test *t, weir_store *s, const char *sql, weir_buffer *plan)
{
    static const char nulls[] = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL";
    const char *text = weir__pg_sql(pg_of(s), sql);
    int count = 0;
    assert_non_null(text);
    for (char parameter[] = "$1"; strstr(text, parameter) != NULL; parameter[1]++) {
        count++;
    }
    test_exec(t->conn, "PREPARE p AS %s", text);
    PGresult *rows =
        test_query(t->conn, "EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p %s%.*s%s", count > 0 ? "(" : "",
                   count > 0 ? 6 * count - 2 : 0, nulls, count > 0 ? ")" : "");
    for (int i = 0; i < PQntuples(rows); i++) {
        assert_true(weir__buffer_add_text(plan, PQgetvalue(rows, i, 0)));
    }
    assert_true(weir__buffer_add(plan, "", 1));
    PQclear(rows);
    test_exec(t->conn, "DEALLOCATE p");
}

/* Functions that the statements have in common are no functions any more in their plans. */
static void what_statements_of_reading_share_costs_nothing(void **state)
{
    pg_test *t = *state;
    weir_store *s = test_store(t);
    static const char *const statements[] = {
        sql_read_stream_forward_small,
        sql_read_stream_forward_sized,
        sql_read_stream_backward_small,
        sql_read_stream_backward_sized,
        sql_read_log_times,
        sql_read_log_forward_small,
        sql_read_log_backward_small,
        sql_read_log_bare,
        sql_read_category_bare,
        sql_read_names_bare,
        sql_read_log_forward_sized,
        sql_read_log_backward_sized,
        sql_read_category_forward_sized,
        sql_read_category_backward_sized,
        sql_read_names_forward_sized,
        sql_read_names_backward_sized,
        sql_read_exact_forward_sized,
        sql_read_exact_backward_sized,
        sql_safe_read,
        sql_safe_look,
        sql_safe_reread,
        sql_safe_verify,
    };
    static const char *const shared[] = { "server(", "small_data(", "sent_bytes(", "is_wanted(",
                                          "version_from" };
    test_exec(t->conn, "SET plan_cache_mode = force_generic_plan");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        weir_buffer plan = { 0 };
        plan_of(t, s, statements[i], &plan);
        for (size_t j = 0; j < sizeof shared / sizeof shared[0]; j++) {
            if (strstr(plan.ptr, shared[j]) != NULL) {
                fail_msg("%s is called by %s", shared[j], statements[i]);
            }
        }
        weir__buffer_free(&plan);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(C15_filters_find_the_same_by_every_index),
        PG_TEST(names_that_are_frequent_are_not_looked_for_one_by_one),
        PG_TEST(what_is_new_is_read_in_the_statement_that_finds_it),
        PG_TEST(C15_times_are_found_without_reading_the_log),
        PG_TEST(what_statements_of_reading_share_costs_nothing),
        PG_TEST(C16_readers_wait_for_an_open_append_and_give_all_in_order),
        PG_TEST(C16_readers_go_on_when_an_open_append_rolls_back),
        PG_TEST(C16_a_follower_goes_on_soon_after_a_rollback),
        PG_TEST(C16_a_savepoint_rolled_back_holds_nobody),
        PG_TEST(C16_a_holder_is_a_transaction_and_not_a_process),
        PG_TEST(C16_holders_are_looked_at_after_the_gap_was_seen),
        PG_TEST(C16_events_are_read_after_the_holders_were_found_gone),
        PG_TEST(what_was_read_too_early_is_read_again),
        PG_TEST(C16_the_hint_only_grows_and_never_beyond_the_log),
        PG_TEST(C16_the_hint_is_written_now_and_then),
        PG_TEST(C16_a_bystander_in_a_transaction_delays_nobody),
        PG_TEST(C16_an_append_to_another_store_delays_nobody),
        PG_TEST(C16_a_killed_backend_leaves_a_gap_that_nobody_waits_for),
        PG_TEST(C16_a_prepared_transaction_holds_and_is_named),
        PG_TEST(C16_a_holder_that_is_prepared_is_still_a_holder),
        PG_TEST(C17_who_holds_safe_back_is_named_oldest_first),
        PG_TEST(C18_large_events_do_not_come_a_thousand_at_a_time),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
