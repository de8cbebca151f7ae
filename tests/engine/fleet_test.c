/* fleet_test.c - several worker processes on one store, on SQLite and PostgreSQL: who routes, who
 * is told what is due, old and new versions side by side, shutdown under load, priorities.
 *
 * Times that are promised are measured between lines of the journal, which carry the machine's
 * monotonic clock.
 */
#include "world.h"

#include "engine/metrics.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LINES_MAX = 8192 };
#define SECOND_US INT64_C(1000000)

/* ---- the journal, parsed ----------------------------------------------------------------- */

typedef struct handled {
    long long time_us, event, attempt;
    int pid;
    char reaction[32], target[64];
} handled;

typedef struct handled_list {
    handled lines[LINES_MAX];
    size_t count;
} handled_list;

static handled_list all;

static void parse_line(void *ctx, const char *line)
{
    handled_list *list = ctx;
    handled h;
    assert_true(list->count < LINES_MAX);
    assert_int_equal(sscanf(line, "handled %lld %d %31s %63s %lld %lld", &h.time_us, &h.pid,
                            h.reaction, h.target, &h.event, &h.attempt),
                     6);
    list->lines[list->count++] = h;
}

static const handled_list *journal(void)
{
    all.count = 0;
    (void)world_journal("handled", parse_line, &all);
    return &all;
}

/* Its first line, NULL: none; until the next call of journal. */
static const handled *line_of_event(const char *reaction, int64_t event)
{
    const handled_list *list = journal();
    for (size_t i = 0; i < list->count; i++) {
        if (list->lines[i].event == event && strcmp(list->lines[i].reaction, reaction) == 0) {
            return &list->lines[i];
        }
    }
    return NULL;
}

static size_t times_handled(const char *reaction, int64_t event)
{
    const handled_list *list = journal();
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        count += list->lines[i].event == event && strcmp(list->lines[i].reaction, reaction) == 0;
    }
    return count;
}

static void parse_time(void *ctx, const char *line)
{
    assert_int_equal(sscanf(line, "%*s %lld", (long long *)ctx), 1);
}

/* Of the last line with that word. */
static int64_t time_of(const char *word)
{
    long long time_us = 0;
    assert_true(world_journal(word, parse_time, &time_us) > 0);
    return time_us;
}

static bool all_is_routed_and_handled(const void *ctx)
{
    store_poll poll = { 0 };
    (void)ctx;
    WORLD_OK(here.store->work->poll(here.store, &poll, &here.err));
    return poll.routed_least >= poll.head && !poll.ready && poll.due_us == INT64_MAX &&
           poll.lease_end_us == INT64_MAX;
}

static void await_all(void)
{
    world_await(all_is_routed_and_handled, NULL, "everything is handled");
}

/* ---- routing ----------------------------------------------------------------------------- */

static void act_8_1_D_what_another_process_appends_is_handled_soon_on_an_idle_system(void **state)
{
    int64_t soonest_us = INT64_MAX;
    (void)state;
    for (int i = 0; i < 2; i++) {
        (void)world_worker("reaction=r", NULL);
    }
    for (int i = 0; i < 5; i++) {
        const int64_t begin_us = world_now_us();
        const int64_t id = world_append("in-1", "Came", NULL);
        await_all();
        const handled *line = line_of_event("r", id);
        assert_non_null(line);
        soonest_us = line->time_us - begin_us < soonest_us ? line->time_us - begin_us : soonest_us;
    }
    assert_true(soonest_us < 2 * SECOND_US); /* a busy machine may make some of them late */
    assert_int_equal(journal()->count, 5);
}

/* The process that routes; 0: nobody yet. Holders are called APPLICATION@HOST:PID:... */
static pid_t router_pid(void)
{
    store_reaction_list list = { 0 };
    pid_t pid = 0;
    WORLD_OK(here.store->work->reactions(here.store, &list, &here.err));
    if (list.reactions_count > 0 && list.reactions[0].router.len > 0) {
        const weir_str holder = list.reactions[0].router;
        const char *colon = memchr(holder.ptr, ':', holder.len);
        assert_non_null(colon);
        pid = (pid_t)strtol(colon + 1, NULL, 10);
    }
    weir__arena_free(&list.arena);
    return pid;
}

static bool somebody_routes(const void *ctx)
{
    (void)ctx;
    return router_pid() != 0;
}

/* Ends the router in that way; how long an event that comes then waits for its handler. */
static int64_t takeover_us(int signal)
{
    const pid_t a = world_worker("reaction=r", NULL);
    const pid_t b = world_worker("reaction=r", NULL);
    (void)world_append("in-1", "Came", NULL);
    await_all();
    world_await(somebody_routes, NULL, "somebody routes");
    const pid_t router = router_pid();
    assert_true(router == a || router == b);
    world_signal(router, signal);
    (void)world_end(router);
    const int64_t begin_us = world_now_us();
    const int64_t id = world_append("in-1", "Came", NULL);
    await_all();
    const handled *line = line_of_event("r", id);
    assert_non_null(line);
    assert_int_equal(line->pid, router == a ? b : a);
    return line->time_us - begin_us;
}

static void a_router_that_was_killed_is_replaced_within_five_seconds(void **state)
{
    (void)state;
    assert_true(takeover_us(SIGKILL) < 5 * SECOND_US);
}

static void a_router_that_ends_is_replaced_within_a_second(void **state)
{
    (void)state;
    assert_true(takeover_us(SIGTERM) < SECOND_US);
}

static bool handled_so_many(const void *ctx)
{
    return journal()->count >= *(const size_t *)ctx;
}

static void a_router_paused_past_its_lease_spoils_nothing(void **state)
{
    (void)state;
    const pid_t a = world_worker("lane=default:1:400:10", "reaction=r", "do=effect", NULL);
    (void)world_append("in-1", "Came", NULL);
    await_all();
    world_stop(a);
    const pid_t b = world_worker("lane=default:1:400:10", "reaction=r", "do=effect", NULL);
    for (int i = 0; i < 20; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    const size_t count = 21;
    world_await(handled_so_many, &count, "the other has routed and handled them");
    world_signal(a, SIGCONT);
    for (int i = 0; i < 20; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    await_all();
    assert_int_equal(world_read("out-r-in-1", NULL, NULL), 41);
    (void)b;
}

/* ---- several services, several versions -------------------------------------------------- */

static void C32_two_services_with_different_reactions_share_a_store(void **state)
{
    (void)state;
    const pid_t a = world_worker("reaction=a", "do=effect", "to=one", NULL);
    const pid_t b = world_worker("reaction=b", "do=effect", "to=one", NULL);
    for (int i = 0; i < 60; i++) {
        (void)world_append("in-1", "Came", NULL);
    }
    await_all();
    const handled_list *list = journal();
    assert_int_equal(list->count, 120);
    for (size_t i = 0; i < list->count; i++) {
        const handled *h = &list->lines[i];
        assert_int_equal(h->pid, strcmp(h->reaction, "a") == 0 ? a : b);
    }
    assert_int_equal(world_read("out-a-one", NULL, NULL), 60);
    assert_int_equal(world_read("out-b-one", NULL, NULL), 60);
}

/* So many events of both names; the position of the last. */
static int64_t append_both(int count)
{
    int64_t id = 0;
    for (int i = 0; i < count; i++) {
        (void)world_append("in-1", "Old", NULL);
        id = world_append("in-1", "New", NULL);
    }
    return id;
}

typedef struct deploy {
    int64_t new_since; /* from here on events named New must be handled */
    size_t missed, twice;
} deploy;

static int check_event(void *ctx, const weir_event *e)
{
    deploy *d = ctx;
    const size_t times = times_handled("r", e->id);
    d->missed += times == 0 && (e->name.ptr[0] == 'O' || e->id > d->new_since);
    d->twice += times > 1;
    return 0;
}

static void C32_a_rolling_deploy_that_gains_an_event_name_misses_nothing(void **state)
{
    deploy d = { 0 };
    (void)state;
    const pid_t old = world_worker("reaction=r", "on=Old", "do=effect", NULL);
    (void)append_both(10);
    await_all();
    d.new_since = append_both(10);
    const pid_t new = world_worker("reaction=r", "on=Old", "on=New", "do=effect", NULL);
    (void)append_both(10);
    world_signal(old, SIGTERM);
    assert_int_equal(world_end(old), 0);
    (void)append_both(10);
    /* The old one comes back by itself: it must not become current, nor route. */
    const pid_t back = world_worker("reaction=r", "on=Old", "do=effect", NULL);
    (void)append_both(10);
    await_all();
    (void)world_read("in-1", check_event, &d);
    assert_int_equal(d.missed, 0);
    assert_int_equal(d.twice, 0);
    for (size_t i = 0; i < journal()->count; i++) {
        assert_int_not_equal(all.lines[i].pid, back);
    }
    assert_true(world_journal("log.definition_old", NULL, NULL) > 0);
    assert_true(times_handled("r", d.new_since) <= 1);
    (void)new;
}

static void two_workers_share_one_store_and_handle_each_event_once(void **state)
{
    char stream[32];
    (void)state;
    const pid_t a = world_worker("lane=default:2:5000:5", "reaction=r", "do=effect", "ms=5", NULL);
    const pid_t b = world_worker("lane=default:2:5000:5", "reaction=r", "do=effect", "ms=5", NULL);
    for (int i = 0; i < 200; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % 20);
        (void)world_append(stream, "Came", NULL);
    }
    await_all();
    size_t of_a = 0;
    const handled_list *list = journal();
    assert_int_equal(list->count, 200);
    for (size_t i = 0; i < list->count; i++) {
        of_a += list->lines[i].pid == a;
        assert_true(list->lines[i].pid == a || list->lines[i].pid == b);
    }
    assert_true(of_a > 0 && of_a < 200);
}

/* ---- time -------------------------------------------------------------------------------- */

static void act_8_1_C_C43_a_backoff_is_due_without_activity_after_a_restart_elsewhere(void **state)
{
    enum { TARGETS = 4 };
    int64_t ids[TARGETS], due_us[TARGETS], soonest_us = INT64_MAX;
    char stream[32];
    bool waited = false;
    (void)state;
    const pid_t a = world_worker("lane=default:4:300:10", "reaction=r", "do=fail", "base_ms=2000",
                                 "retries=100", NULL);
    for (int i = 0; i < TARGETS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        ids[i] = world_append(stream, "Came", NULL);
    }
    world_await_journal("log.retrying", TARGETS);
    world_kill(a);
    world_heal();
    for (int i = 0; i < TARGETS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        due_us[i] = world_target(stream)->due_us;
    }
    int64_t store_us = 0;
    WORLD_OK(here.store->about->now(here.store, &store_us, &here.err));
    const int64_t ahead_us = store_us - world_now_us();
    /* It looks every five seconds, and when something is due. */
    const pid_t b = world_worker("lane=default:4:300:10:5000", "reaction=r", "do=fail", NULL);
    const int64_t running_us = time_of("running");
    await_all();
    for (int i = 0; i < TARGETS; i++) {
        const handled_list *list = journal();
        const handled *last = NULL;
        for (size_t n = 0; n < list->count; n++) {
            last = list->lines[n].event == ids[i] ? &list->lines[n] : last;
        }
        assert_int_equal(last->pid, b);
        assert_true(last->attempt >= 2);
        const int64_t due = due_us[i] - ahead_us;
        assert_true(last->time_us >= due - 5000);
        if (due > running_us) {
            soonest_us = last->time_us - due < soonest_us ? last->time_us - due : soonest_us;
            waited = true;
        }
    }
    /* Two seconds at most after its first look they were due; the next one is later than that by as
     * much again. A busy machine may make some of them late. */
    assert_true(!waited || soonest_us < 2 * SECOND_US);
}

static void see_skew(void *ctx, const char *line)
{
    long long seconds = 0;
    assert_int_equal(sscanf(line, "running %*d %*d %lld", &seconds), 1);
    const long long off = llabs(seconds - (long long)time(NULL));
    *(size_t *)ctx += off > 3500 && off < 3700;
}

/* PostgreSQL only: SQLite's clock is the machine's, and there is one machine. */
static void T19_workers_whose_clocks_are_an_hour_off_steal_and_miss_nothing(void **state)
{
    const char *const arguments[] = { here.url,     here.journal, "lane=default:2:400:10",
                                      "reaction=r", "do=effect",  "ms=700",
                                      NULL };
    char stream[32];
    (void)state;
    assert_int_equal(setenv("CLOCK_SKEW_SECONDS", "3600", 1), 0);
    (void)world_start(getenv("WORKER_PROGRAM"), getenv("CLOCK_SKEW"), arguments);
    assert_int_equal(setenv("CLOCK_SKEW_SECONDS", "-3600", 1), 0);
    (void)world_start(getenv("WORKER_PROGRAM"), getenv("CLOCK_SKEW"), arguments);
    world_await_journal("running", 2);
    size_t skewed = 0;
    (void)world_journal("running", see_skew, &skewed);
    assert_int_equal(skewed, 2);
    for (int i = 0; i < 6; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        (void)world_append(stream, "Came", NULL);
    }
    await_all();
    assert_int_equal(journal()->count, 6);
    assert_int_equal(world_journal("log.lost", NULL, NULL), 0);
}

/* ---- shutdown, priority ------------------------------------------------------------------ */

static void T21_shutdown_under_load_ends_in_its_budget_and_charges_nothing(void **state)
{
    enum { STREAMS = 20, EVENTS = 15 };
    char stream[32];
    (void)state;
    const pid_t a = world_worker("budget_ms=60000", "lane=default:4:5000:10", "reaction=r",
                                 "do=effect", "ms=40", NULL);
    for (int i = 0; i < STREAMS * EVENTS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % STREAMS);
        (void)world_append(stream, "Came", NULL);
    }
    world_await_journal("handled", 10);
    const int64_t begin_us = world_now_us();
    world_signal(a, SIGTERM);
    assert_int_equal(world_end(a), 0);
    assert_true(world_now_us() - begin_us < 60 * SECOND_US);
    assert_true(journal()->count < STREAMS * EVENTS);
    for (int i = 0; i < STREAMS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        const store_target *t = world_target(stream);
        if (t != NULL) {
            assert_int_equal(t->holder.len, 0);
            assert_int_equal(t->lost, 0);
            assert_int_equal(t->subscriptions[0].retries, 0);
            assert_int_equal(t->due_us, 0);
        }
    }
    (void)world_worker("lane=default:4:5000:10", "reaction=r", "do=effect", NULL);
    await_all();
    assert_int_equal(journal()->count, STREAMS * EVENTS);
    for (size_t i = 0; i < all.count; i++) {
        assert_int_equal(all.lines[i].attempt, 1);
    }
}

static void T15_a_target_without_priority_is_leased_within_twenty_rounds(void **state)
{
    enum { SLOTS = 4, ROUNDS = 20, HOT = 6, EVENTS = 60 };
    char stream[32];
    (void)state;
    for (int i = 0; i < HOT * EVENTS; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % HOT);
        (void)world_append(stream, "Came", "{\"p\":100}");
    }
    const int64_t low = world_append("in-low", "Came", "{\"p\":0}");
    (void)world_worker("lane=default:4:5000:1", "reaction=r", "priority={data.p}", "ms=3", NULL);
    await_all();
    const handled_list *list = journal();
    assert_int_equal(list->count, HOT * EVENTS + 1);
    size_t before = 0;
    while (list->lines[before].event != low) {
        before++;
    }
    assert_true(before <= (size_t)SLOTS * ROUNDS);
}

/* ---- the server -------------------------------------------------------------------------- */

/* what: start, stop or restart */
static void server_do(const char *what)
{
    char command[512];
    const char *user = getenv("WEIR_TEST_PG_USER");
    (void)snprintf(command, sizeof command, "cd / && %s%s%s %s/pg_ctl %s -w -s %s -D %s -l %s/log",
                   geteuid() == 0 ? "runuser -u " : "", geteuid() == 0 ? user : "",
                   geteuid() == 0 ? " --" : "", getenv("WEIR_TEST_PG_BIN"), what,
                   strcmp(what, "start") == 0 ? "" : "-m immediate", getenv("WEIR_TEST_PG_DATA"),
                   getenv("WEIR_TEST_PG_DIR"));
    assert_int_equal(system(command), 0);
}

/* What its one worker has counted of the calls that failed, as status shows it. */
static uint64_t store_errors(void)
{
    store_worker_list list = { 0 };
    metrics counted = { 0 };
    WORLD_OK(here.store->about->workers(here.store, &list, &here.err));
    assert_int_equal(list.workers_count, 1);
    assert_true(weir__metrics_load(&counted, list.workers[0].metrics));
    weir__arena_free(&list.arena);
    return weir__metric_get(&counted, METRIC_STORE_ERRORS);
}

static void C41_workers_go_on_when_PostgreSQL_was_restarted_under_load(void **state)
{
    char stream[32];
    size_t appended[5] = { 0 };
    (void)state;
    const pid_t worker =
        world_worker("lane=default:4:500:10", "reaction=r", "do=effect", "ms=5", NULL);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(stream, sizeof stream, "in-%d", i % 5);
        if (world_try_append(here.w, stream, "Came", NULL, NULL, &here.err) == WEIR_OK) {
            appended[i % 5]++;
        }
        if (i == 30) {
            server_do("restart");
        } else if (i == 60) {
            server_do("stop");
            world_await_journal("log.store_away", world_journal("log.store_back", NULL, NULL) + 1);
            server_do("start");
        }
    }
    await_all();
    for (int i = 0; i < 5; i++) {
        char out[32];
        (void)snprintf(stream, sizeof stream, "in-%d", i);
        (void)snprintf(out, sizeof out, "out-r-in-%d", i);
        assert_true(world_read(stream, NULL, NULL) >= appended[i]);
        assert_int_equal(world_read(out, NULL, NULL), world_read(stream, NULL, NULL));
    }
    world_await_journal("log.store_back", world_journal("log.store_away", NULL, NULL));
    world_signal(worker, SIGTERM);
    assert_int_equal(world_end(worker), 0);
    assert_true(store_errors() > 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(act_8_1_D_what_another_process_appends_is_handled_soon_on_an_idle_system),
        WORLD_TEST(a_router_that_was_killed_is_replaced_within_five_seconds),
        WORLD_TEST(a_router_that_ends_is_replaced_within_a_second),
        WORLD_TEST(C32_two_services_with_different_reactions_share_a_store),
        WORLD_TEST(C32_a_rolling_deploy_that_gains_an_event_name_misses_nothing),
        WORLD_TEST(two_workers_share_one_store_and_handle_each_event_once),
        WORLD_TEST(act_8_1_C_C43_a_backoff_is_due_without_activity_after_a_restart_elsewhere),
        WORLD_TEST(T21_shutdown_under_load_ends_in_its_budget_and_charges_nothing),
        WORLD_TEST(T15_a_target_without_priority_is_leased_within_twenty_rounds),
        WORLD_TEST(a_router_paused_past_its_lease_spoils_nothing),
        /* PostgreSQL only */
        WORLD_TEST(T19_workers_whose_clocks_are_an_hour_off_steal_and_miss_nothing),
        WORLD_TEST(C41_workers_go_on_when_PostgreSQL_was_restarted_under_load),
    };
    const size_t others = argc > 1 && strcmp(argv[1], "postgres") == 0 ? 0 : 2;
    return world_main(argc, argv, tests, sizeof tests / sizeof tests[0] - others);
}
