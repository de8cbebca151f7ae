/* kill_test.c - workers that are killed with SIGKILL, crash, or are stopped past their lease, on
 * SQLite and PostgreSQL: what is promised about effects, order and leases holds all the same.
 *
 * Workers are processes (worker_program.c). Each line of their journal is written before the
 * handler does anything else, so it says what was begun; what counts is in the store.
 */
#include "world.h"

#include <libpq-fe.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

enum { EVENTS_MAX = 4096, STREAMS = 8 };

/* ---- what must be true after a storm ----------------------------------------------------- */

typedef struct id_list {
    int64_t ids[EVENTS_MAX];
    size_t count;
} id_list;

static int collect_id(void *ctx, const weir_event *e)
{
    id_list *list = ctx;
    assert_true(list->count < EVENTS_MAX);
    list->ids[list->count++] = e->id;
    return 0;
}

/* data is {"of":ID}. */
static int collect_of(void *ctx, const weir_event *e)
{
    id_list *list = ctx;
    assert_true(list->count < EVENTS_MAX && e->data.len > 6);
    list->ids[list->count++] = strtoll(e->data.ptr + 6, NULL, 10);
    return 0;
}

static char *stream_name(size_t i)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "in-%zu", i);
    return name;
}

/* Every event of the stream has exactly one effect, in their order. */
static void check_effects(const char *reaction, const char *stream)
{
    static id_list events, effects;
    char out[64];
    events.count = effects.count = 0;
    (void)snprintf(out, sizeof out, "out-%s-%s", reaction, stream);
    (void)world_read(stream, collect_id, &events);
    (void)world_read(out, collect_of, &effects);
    assert_int_equal(effects.count, events.count);
    for (size_t i = 0; i < events.count; i++) {
        assert_int_equal(effects.ids[i], events.ids[i]);
    }
}

typedef struct order {
    const char *reaction, *stream;
    id_list events;
    size_t begun; /* so many of them, in order */
    size_t again;
} order;

static void see_order(void *ctx, const char *line)
{
    order *o = ctx;
    char reaction[64], target[64];
    long long event = 0;
    if (sscanf(line, "handled %*d %*d %63s %63s %lld", reaction, target, &event) != 3 ||
        strcmp(reaction, o->reaction) != 0 || strcmp(target, o->stream) != 0) {
        return;
    }
    size_t index = 0;
    while (index < o->events.count && o->events.ids[index] != event) {
        index++;
    }
    assert_true(index < o->events.count);
    assert_true(index <= o->begun); /* none before the one before it */
    o->again += index < o->begun;
    o->begun = index == o->begun ? index + 1 : o->begun;
}

/* Every event was begun, none before the one that comes before it. Returns how many were again. */
static size_t check_order(const char *reaction, const char *stream)
{
    static order o;
    o = (order){ .reaction = reaction, .stream = stream };
    (void)world_read(stream, collect_id, &o.events);
    (void)world_journal("handled", see_order, &o);
    assert_int_equal(o.begun, o.events.count);
    return o.again;
}

static bool everything_has_its_effect(const void *ctx)
{
    char out[64];
    for (size_t i = 0; i < STREAMS; i++) {
        (void)snprintf(out, sizeof out, "out-%s-%s", (const char *)ctx, stream_name(i));
        if (world_read(out, NULL, NULL) < world_read(stream_name(i), NULL, NULL)) {
            return false;
        }
    }
    return true;
}

/* ---- storms ------------------------------------------------------------------------------ */

static pid_t start_worker(const char *const *more)
{
    const char *arguments[32] = { here.url, here.journal, "lost_max=1000",
                                  "lane=default:4:300:10" };
    size_t count = 4;
    while (*more != NULL && count < 31) {
        arguments[count++] = *more++;
    }
    return world_start(getenv("WORKER_PROGRAM"), NULL, arguments);
}

typedef struct line_count {
    pid_t pid;
    size_t count;
} line_count;

static void count_line(void *ctx, const char *line)
{
    line_count *c = ctx;
    int pid = 0;
    c->count += sscanf(line, "%*s %*d %d", &pid) == 1 && pid == c->pid;
}

static size_t lines_of(const char *word, pid_t pid)
{
    line_count c = { .pid = pid };
    (void)world_journal(word, count_line, &c);
    return c.count;
}

typedef struct awaited {
    const char *word;
    pid_t pid;
    size_t count;
} awaited;

static bool has_lines(const void *ctx)
{
    const awaited *a = ctx;
    return lines_of(a->word, a->pid) >= a->count;
}

static void await_lines(const char *word, pid_t pid, size_t count)
{
    const awaited a = { .word = word, .pid = pid, .count = count };
    world_await(has_lines, &a, word);
}

/* A handler of that worker was begun: what it does is not settled yet, most likely. Or it had time
 * enough: somebody else may have all the work. */
static void await_its_turn(pid_t pid, size_t before)
{
    const int64_t until_us = world_now_us() + 300000;
    while (lines_of("handled", pid) == before && world_now_us() < until_us) {
        world_pause_us(500);
    }
}

/* Kills so often one of `workers` of them, in the middle of a handler, while events come. */
static void storm(const char *const *arguments, size_t workers, size_t kills, const char *data)
{
    pid_t pids[4];
    assert_true(workers <= 4);
    for (size_t i = 0; i < workers; i++) {
        pids[i] = start_worker(arguments);
    }
    world_await_journal("running", workers);
    for (size_t kill = 0; kill < kills; kill++) {
        const pid_t victim = pids[kill % workers];
        const size_t before = lines_of("handled", victim);
        for (size_t i = 0; i < 2 * STREAMS; i++) {
            (void)world_append(stream_name(i % STREAMS), "Came", data);
        }
        await_its_turn(victim, before);
        world_kill(victim);
        pids[kill % workers] = start_worker(arguments);
    }
}

static void C33_effects_are_exactly_once_and_in_order_while_workers_are_killed(void **state)
{
    const char *const arguments[] = { "reaction=r", "do=effect", "ms=10", NULL };
    size_t again = 0;
    (void)state;
    storm(arguments, 3, 16, NULL);
    world_await(everything_has_its_effect, "r", "every event has its effect");
    for (size_t i = 0; i < STREAMS; i++) {
        check_effects("r", stream_name(i));
        again += check_order("r", stream_name(i));
    }
    assert_true(again > 0); /* otherwise nobody was killed in the middle of anything */
}

/* ---- balances ---------------------------------------------------------------------------- */

static char table[128];

static int64_t sqlite_number(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t number = 0;
    (void)snprintf(path, sizeof path, "%s/store.db", here.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 20000);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    const int code = sqlite3_step(statement);
    assert_true(code == SQLITE_ROW || code == SQLITE_DONE);
    number = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return number;
}

static int64_t postgres_number(const char *sql)
{
    PGconn *conn = PQconnectdb(getenv("WEIR_TEST_POSTGRES"));
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        fail_msg("%s", PQerrorMessage(conn));
    }
    const int64_t number = PQntuples(result) == 1 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    PQfinish(conn);
    return number;
}

static int64_t sql_number(const char *format, ...) WEIR_PRINTF(1, 2);
static int64_t sql_number(const char *format, ...)
{
    char sql[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    return world_is("sqlite") ? sqlite_number(sql) : postgres_number(sql);
}

static void create_balances(void)
{
    (void)snprintf(table, sizeof table, "%s%sbalances", here.schema,
                   world_is("postgres") ? "." : "");
    (void)sql_number("CREATE TABLE %s (account text, amount bigint)", table);
    for (size_t i = 0; i < STREAMS; i++) {
        (void)sql_number("INSERT INTO %s VALUES ('%s', 0)", table, stream_name(i));
    }
}

/* How much more is in the table than was deposited, each deposit being 1. */
static int64_t too_much(void)
{
    int64_t deposited = 0;
    for (size_t i = 0; i < STREAMS; i++) {
        deposited += (int64_t)world_read(stream_name(i), NULL, NULL);
    }
    return sql_number("SELECT sum(amount) FROM %s", table) - deposited;
}

static bool nothing_is_left(const void *ctx)
{
    store_poll poll = { 0 };
    (void)ctx;
    /* First whether all is routed: targets that were looked at before that may have work now. */
    WORLD_OK(here.store->work->poll(here.store, &poll, &here.err));
    for (size_t i = 0; i < STREAMS; i++) {
        const store_target *t = world_target(stream_name(i));
        if (t == NULL || t->behind || t->holder.len > 0) {
            return false;
        }
    }
    return poll.routed_least >= poll.head;
}

static void C33_a_balance_inside_the_settle_survives_kills(void **state)
{
    char in_table[160];
    const char *const arguments[] = { "reaction=b", "do=balance", "ms=3", in_table, NULL };
    (void)state;
    create_balances();
    (void)snprintf(in_table, sizeof in_table, "table=%s", table);
    storm(arguments, 2, 10, "{\"amount\":1}");
    world_await(nothing_is_left, NULL, "every deposit is handled");
    assert_int_equal(too_much(), 0);
}

/* The test above would see a duplicate. */
static void C33_control_a_balance_outside_of_the_settle_is_counted_twice(void **state)
{
    char in_table[160];
    /* Long enough after its mistake that the kill finds somebody there, on a slow machine too. */
    const char *const arguments[] = { "reaction=b", "do=outside", "ms=100", in_table, NULL };
    (void)state;
    create_balances();
    (void)snprintf(in_table, sizeof in_table, "table=%s", table);
    storm(arguments, 2, 6, "{\"amount\":1}");
    world_await(nothing_is_left, NULL, "every deposit is handled");
    assert_true(too_much() > 0);
}

static bool example_is_done(const void *ctx)
{
    return sql_number("SELECT coalesce(sum(amount), 0) FROM %s", table) >= *(const int64_t *)ctx;
}

static bool example_has_begun(const void *ctx)
{
    (void)ctx;
    return sql_number("SELECT count(*) FROM sqlite_schema WHERE name = '%s'", table) > 0;
}

static void C33_the_example_of_balances_survives_kills(void **state)
{
    char path[128], stream[32];
    const char *const arguments[] = { path, NULL };
    int64_t deposited = 0;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/store.db", here.dir);
    (void)snprintf(table, sizeof table, "balances");
    pid_t pid = world_start(getenv("BALANCE_EXAMPLE"), NULL, arguments);
    world_await(example_has_begun, NULL, "the example has made its table");
    for (int kill = 0; kill < 6; kill++) {
        for (int i = 0; i < 40; i++) {
            (void)snprintf(stream, sizeof stream, "account-%d", i % 5);
            (void)world_append(stream, "Deposited", "{\"amount\":3}");
            deposited += 3;
        }
        world_pause_us(50000 * (kill % 3));
        world_kill(pid);
        pid = world_start(getenv("BALANCE_EXAMPLE"), NULL, arguments);
    }
    world_await(example_is_done, &deposited, "every deposit is in the table");
    world_signal(pid, SIGTERM);
    assert_int_equal(world_end(pid), 0);
    assert_int_equal(sql_number("SELECT sum(amount) FROM %s", table), deposited);
    assert_int_equal(sql_number("SELECT count(*) FROM %s", table), 5);
}

/* ---- leases ------------------------------------------------------------------------------ */

static bool lease_has_ended(const void *stream)
{
    const store_target *t = world_target(stream);
    return t != NULL && t->leased_until_us == 0; /* one that has ended is not shown */
}

static bool first_has_its_effect(const void *ctx)
{
    (void)ctx;
    return world_read("out-r-in-0", NULL, NULL) > 0;
}

/* The other one still has them while the settles of the first come: T5, a rescue between the end of
 * a handler and its settle. */
static void T4_T5_a_stopped_worker_is_replaced_and_its_settle_is_refused_and_counted(void **state)
{
    (void)state;
    /* Long enough for all of them to have begun before the first ends, on a slow machine too. */
    const pid_t zombie =
        world_worker("lane=default:8:400:10", "reaction=r", "do=effect", "ms=3000", NULL);
    for (size_t i = 0; i < STREAMS; i++) {
        (void)world_append(stream_name(i), "Came", NULL);
    }
    await_lines("handled", zombie, STREAMS);
    world_stop(zombie);
    /* Longer than the first one has left, so that it still holds them then; and by leases that do
     * not end because a renewal is late on a slow machine. */
    const pid_t other =
        world_worker("lane=default:8:60000:10", "reaction=r", "do=effect", "ms=6000", NULL);
    await_lines("handled", other, STREAMS);
    assert_int_equal(world_read("out-r-in-0", NULL, NULL), 0);
    world_signal(zombie, SIGCONT);
    await_lines("log.lost", zombie, STREAMS);
    world_await(everything_has_its_effect, "r", "the other has finished them");
    world_signal(zombie, SIGTERM);
    assert_int_equal(world_end(zombie), 0);
    assert_int_equal(lines_of("log.lost", other), 0);
    for (size_t i = 0; i < STREAMS; i++) {
        check_effects("r", stream_name(i));
        const store_target *t = world_target(stream_name(i));
        assert_int_equal(t->subscriptions[0].retries, 0); /* C34: nothing is charged */
        assert_false(t->blocked);
    }
}

/* What a worker with do=gate waits for. */
static void open_gate(pid_t pid)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s.gate.%d", here.journal, (int)pid);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
}

/* Each event was begun once by whoever has it under that fence. */
typedef struct begun_count {
    pid_t pid;
    long long fence;
    size_t count;
} begun_count;

static void see_begun(void *ctx, const char *line)
{
    begun_count *b = ctx;
    int pid = 0;
    long long fence = 0;
    assert_int_equal(sscanf(line, "handled %*d %d %*s %*s %*d %*d %lld", &pid, &fence), 2);
    if (pid == b->pid) {
        assert_int_equal(fence, b->fence);
        b->count++;
    }
}

static size_t begun_by(pid_t pid, long long fence)
{
    begun_count b = { .pid = pid, .fence = fence };
    (void)world_journal("handled", see_begun, &b);
    return b.count;
}

/* On SQLite: nobody can write until it is let go. A renewal that is refused would tell a worker
 * that it has lost the lease, and then it need not look at its own clock. NULL: another store. */
static sqlite3 *store_hold(void)
{
    char path[128];
    sqlite3 *db = NULL;
    if (!world_is("sqlite")) {
        return NULL;
    }
    (void)snprintf(path, sizeof path, "%s/store.db", here.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 60000);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static void store_let_go(sqlite3 *db)
{
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
}

static void C24_a_stopped_worker_begins_nothing_under_the_lease_that_it_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * STREAMS; i++) {
        (void)world_append(stream_name(i % STREAMS), "Came", NULL);
    }
    const pid_t zombie = world_worker("lane=default:8:400:10", "reaction=r", "do=gate", NULL);
    await_lines("handled", zombie, STREAMS); /* the first of each stream */
    world_stop(zombie);
    /* Its own leases do not end while it is slow. */
    const pid_t other = world_worker("lane=default:8:60000:10", "reaction=r", "do=gate", NULL);
    await_lines("handled", other, STREAMS);
    sqlite3 *db = store_hold();
    open_gate(zombie);
    world_signal(zombie, SIGCONT);
    await_lines("passed", zombie, STREAMS);
    if (db != NULL) {
        (void)usleep(300000); /* one that does not look at its clock goes on now */
        store_let_go(db);
    }
    await_lines("log.lost", zombie, STREAMS);
    assert_int_equal(begun_by(zombie, 1), STREAMS); /* not one of the others */
    assert_int_equal(begun_by(other, 2), STREAMS);
    open_gate(other);
    world_await(nothing_is_left, NULL, "everything is handled");
    assert_int_equal(begun_by(zombie, 1), STREAMS);
    assert_int_equal(begun_by(other, 2), 2 * STREAMS);
}

static bool only_target_is_done(const void *ctx)
{
    store_poll poll = { 0 };
    (void)ctx;
    WORLD_OK(here.store->work->poll(here.store, &poll, &here.err));
    const store_target *t = world_target("in-0");
    return poll.routed_least >= poll.head && t != NULL && !t->behind && t->holder.len == 0;
}

/* Nobody else was there: it goes on where it was, under the same fence. It has one slot, because
 * another slot of the same worker could take what has ended. */
static void a_stopped_worker_goes_on_with_what_nobody_took(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        (void)world_append(stream_name(0), "Came", NULL);
    }
    const pid_t pid = world_worker("lane=default:1:400:10", "reaction=r", "do=gate", NULL);
    await_lines("handled", pid, 1);
    world_stop(pid);
    world_await(lease_has_ended, stream_name(0), "its lease has ended");
    open_gate(pid);
    world_signal(pid, SIGCONT);
    world_await(only_target_is_done, NULL, "everything is handled");
    assert_int_equal(begun_by(pid, 1), 2);
    assert_int_equal(world_journal("log.lost", NULL, NULL), 0);
}

/* ---- programs ---------------------------------------------------------------------------- */

static char *beside_journal(char *out, size_t bytes, const char *what)
{
    (void)snprintf(out, bytes, "%s.%s", here.journal, what);
    return out;
}

static bool file_has_text(const void *ctx)
{
    char path[256], text[16] = "";
    FILE *file = fopen(beside_journal(path, sizeof path, ctx), "r");
    const bool has = file != NULL && fgets(text, sizeof text, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    return has;
}

/* The next holder's program looks for the first one's, and writes what it found. */
static void program_of_a_stopped_worker(const char *how)
{
    char command[700], next[700], path[256], text[16] = "";
    (void)snprintf(command, sizeof command,
                   "cmd=read line; echo $$ > %s.new; mv %s.new %s.pid; exec sleep 1000",
                   here.journal, here.journal, here.journal);
    (void)snprintf(next, sizeof next,
                   "cmd=if kill -0 $(cat %s.pid); then echo beside; else echo alone; fi > %s.found",
                   here.journal, here.journal);
    (void)world_append("in-0", "Came", NULL);
    const pid_t zombie = world_worker("lane=default:1:1500:10", "reaction=r", how, command, NULL);
    world_await(file_has_text, "pid", "its program runs");
    world_stop(zombie);
    (void)world_worker("lane=default:1:60000:10", "reaction=r", "do=run", next, NULL);
    world_await(file_has_text, "found", "the next program has looked");
    FILE *file = fopen(beside_journal(path, sizeof path, "found"), "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    (void)fclose(file);
    assert_string_equal(text, "alone\n");
    world_await(only_target_is_done, NULL, "it is handled");
    world_signal(zombie, SIGCONT);
    await_lines("log.lost", zombie, 1);
    assert_int_equal(world_target("in-0")->subscriptions[0].retries, 0);
}

static void C24_a_program_of_a_stopped_worker_ends_before_its_lease(void **state)
{
    (void)state;
    program_of_a_stopped_worker("do=run");
}

static void C24_a_program_that_stays_ends_before_a_stopped_workers_lease(void **state)
{
    (void)state;
    program_of_a_stopped_worker("do=exec");
}

enum { RENEWED_LEASE_MS = 6000 };

/* Whether the lease of in-0 ends more than a whole lease later than at *ctx. Not by counting its
 * moves: a store that measures leases by another clock tells their ends to within microseconds. */
static bool lease_has_moved(const void *ctx)
{
    const store_target *t = world_target("in-0");
    return t != NULL &&
           t->leased_until_us > *(const int64_t *)ctx + RENEWED_LEASE_MS * INT64_C(1000);
}

static void C24_a_program_goes_on_while_its_lease_is_renewed(void **state)
{
    char command[700], path[256], lane[32];
    (void)state;
    (void)snprintf(lane, sizeof lane, "lane=default:1:%d:10", RENEWED_LEASE_MS);
    (void)snprintf(command, sizeof command,
                   "cmd=echo begun >> %s.begun; while ! test -e %s.go; do sleep 0.05; done",
                   here.journal, here.journal);
    (void)world_append("in-0", "Came", NULL);
    (void)world_worker(lane, "reaction=r", "do=run", command, NULL);
    world_await(file_has_text, "begun", "its program runs");
    const int64_t until_us = world_target("in-0")->leased_until_us;
    world_await(lease_has_moved, &until_us, "its lease was renewed for longer than it is");
    FILE *file = fopen(beside_journal(path, sizeof path, "go"), "w");
    assert_non_null(file);
    (void)fclose(file);
    world_await(only_target_is_done, NULL, "it is handled");
    file = fopen(beside_journal(path, sizeof path, "begun"), "r");
    char text[64] = "";
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), strlen("begun\n")); /* once */
    (void)fclose(file);
}

static void C26_a_lease_shorter_than_its_handler_is_renewed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        (void)world_worker("lane=default:1:300:10", "reaction=r", "do=effect", "ms=1500", NULL);
    }
    (void)world_append("in-0", "Came", NULL);
    world_await(first_has_its_effect, NULL, "it is handled");
    assert_int_equal(world_journal("handled", NULL, NULL), 1);
    assert_int_equal(world_journal("log.lost", NULL, NULL), 0);
    assert_int_equal(world_target("in-0")->lost, 0);
}

static bool target_is_blocked(const void *ctx)
{
    const store_target *t = world_target(ctx);
    return t != NULL && t->blocked;
}

static void T13_a_handler_that_crashes_its_worker_ten_times_blocks_its_target(void **state)
{
    (void)state;
    (void)world_append("in-0", "Came", NULL);
    const int64_t id = world_append("in-0", "Crash", NULL);
    for (int i = 0; i < 10; i++) {
        const pid_t pid =
            world_worker("lane=default:1:100:10", "reaction=r", "do=crash", "retries=1", NULL);
        assert_int_equal(world_end(pid), -SIGABRT);
        assert_false(target_is_blocked("in-0"));
    }
    (void)world_append("in-1", "Came", NULL);
    const size_t begun = world_journal("handled", NULL, NULL);
    (void)world_worker("lane=default:1:100:10", "reaction=r", "do=crash", "retries=1", NULL);
    world_await(target_is_blocked, "in-0", "the target is blocked");
    world_await_journal("handled", begun + 1); /* C44: the other target is handled */
    const store_target *t = world_target("in-0");
    assert_int_equal(t->lost, 10);
    assert_int_equal(t->subscriptions[0].retries, 0);
    assert_non_null(memmem(t->error.ptr, t->error.len, "lease", 5));
    assert_true(t->subscriptions[0].at < id);
    assert_true(world_journal("handled", NULL, NULL) >= 10 + 1);
}

/* ---- what leaves the database ------------------------------------------------------------ */

typedef struct redelivered {
    int64_t event;
    char key[64];
    long long fence, attempt;
    size_t count;
} redelivered;

static void see_redelivery(void *ctx, const char *line)
{
    redelivered *r = ctx;
    char key[64];
    long long event = 0, fence = 0, attempt = 0;
    assert_int_equal(
        sscanf(line, "handled %*d %*d %*s %*s %lld %lld %lld %63s", &event, &attempt, &fence, key),
        4);
    if (event != r->event) {
        return;
    }
    if (r->count++ == 0) {
        (void)snprintf(r->key, sizeof r->key, "%s", key);
    }
    assert_string_equal(key, r->key);
    assert_true(fence > r->fence);
    assert_true(attempt == 1 || attempt == r->attempt + 1);
    r->fence = fence;
    r->attempt = attempt;
}

/* After a crash, in another process, and after failures. */
static void C35_a_redelivery_has_the_same_key_and_a_larger_fence(void **state)
{
    redelivered first = { 0 }, second = { 0 };
    (void)state;
    const pid_t a = world_worker("lane=default:1:300:10", "reaction=r", "ms=30000", NULL);
    first.event = world_append("in-0", "Came", NULL);
    await_lines("handled", a, 1);
    world_kill(a);
    const pid_t b = world_worker("lane=default:1:300:10", "reaction=r", "do=fail", "retries=1000",
                                 "base_ms=1", "cap_ms=5", NULL);
    await_lines("handled", b, 3);
    world_heal();
    second.event = world_append("in-0", "Came", NULL);
    world_await(only_target_is_done, NULL, "both are handled");
    (void)world_journal("handled", see_redelivery, &first);
    (void)world_journal("handled", see_redelivery, &second);
    assert_true(first.count >= 4 && second.count >= 1);
    assert_string_not_equal(first.key, second.key);
}

static void C35_a_fence_keeps_a_stopped_worker_from_what_is_outside(void **state)
{
    (void)state;
    const pid_t zombie =
        world_worker("lane=default:1:400:10", "reaction=r", "do=fenced", "ms=3000", NULL);
    (void)world_append("in-0", "Came", NULL);
    await_lines("handled", zombie, 1);
    world_stop(zombie);
    const pid_t other = world_worker("lane=default:1:400:10", "reaction=r", "do=fenced", NULL);
    await_lines("written", other, 1);
    world_signal(zombie, SIGCONT);
    await_lines("refused", zombie, 1);
    assert_int_equal(world_journal("written", NULL, NULL), 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(C33_effects_are_exactly_once_and_in_order_while_workers_are_killed),
        WORLD_TEST(C33_a_balance_inside_the_settle_survives_kills),
        WORLD_TEST(C33_control_a_balance_outside_of_the_settle_is_counted_twice),
        WORLD_TEST(T4_T5_a_stopped_worker_is_replaced_and_its_settle_is_refused_and_counted),
        WORLD_TEST(C24_a_stopped_worker_begins_nothing_under_the_lease_that_it_lost),
        WORLD_TEST(a_stopped_worker_goes_on_with_what_nobody_took),
        WORLD_TEST(C24_a_program_of_a_stopped_worker_ends_before_its_lease),
        WORLD_TEST(C24_a_program_that_stays_ends_before_a_stopped_workers_lease),
        WORLD_TEST(C24_a_program_goes_on_while_its_lease_is_renewed),
        WORLD_TEST(C26_a_lease_shorter_than_its_handler_is_renewed),
        WORLD_TEST(T13_a_handler_that_crashes_its_worker_ten_times_blocks_its_target),
        WORLD_TEST(C35_a_redelivery_has_the_same_key_and_a_larger_fence),
        WORLD_TEST(C35_a_fence_keeps_a_stopped_worker_from_what_is_outside),
        WORLD_TEST(C33_the_example_of_balances_survives_kills), /* SQLite only */
    };
    const size_t others = argc > 1 && strcmp(argv[1], "sqlite") == 0 ? 0 : 1;
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0] - others);
}
