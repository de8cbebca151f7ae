/* processes.c - the guarantees between processes: several of them on one store, and killed ones.
 *
 * Method: this program runs itself again as `--child ROLE`. A child tells what it was acknowledged,
 * line by line, on its standard output, and the test holds the store against that.
 */
#include "kit.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES = 64, CHILDREN = 4 };

/* ---- the children ------------------------------------------------------------------------- */

static void say(const char *format, int64_t a, int64_t b)
{
    char line[LINE_BYTES];
    const int len = snprintf(line, sizeof line, "%s %" PRId64 " %" PRId64 "\n", format, a, b);
    if (write(STDOUT_FILENO, line, (size_t)len) != len) {
        _exit(3); /* nobody listens */
    }
}

/* Appends to a stream of its own until it is killed, two events at a time. */
static int child_append(weir_store *s, const char *arg)
{
    for (;;) {
        kit_append a;
        kit_append_init(&a);
        const uint32_t stream = kit_append_stream(&a, arg, WEIR_EXPECT_ANY, 0);
        kit_append_event(&a, stream, "A", "{}");
        kit_append_event(&a, stream, "B", "{}");
        if (kit_append_run(s, &a) != WEIR_OK) {
            return 1;
        }
        say("appended", a.streams[0].last, a.streams[0].id);
    }
}

/* Races for the first `arg` versions of one stream, and says which it won. */
static int child_race(weir_store *s, const char *arg)
{
    const int64_t versions = strtoll(arg, NULL, 10);
    int64_t next = 0;
    while (next < versions) {
        kit_append a;
        const weir_status status =
            kit_try(s, "race", next == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT,
                    next == 0 ? 0 : next - 1, &a);
        if (status == WEIR_OK) {
            say("won", a.streams[0].last, a.streams[0].id);
            next++;
        } else if (status == WEIR_ECONFLICT && a.err.actual >= next) {
            next = a.err.actual + 1;
        } else {
            return 1;
        }
    }
    return 0;
}

/* Tries `arg` idempotency keys that others try as well. */
static int child_keys(weir_store *s, const char *arg)
{
    const int64_t keys = strtoll(arg, NULL, 10);
    for (int64_t i = 0; i < keys; i++) {
        char key[32];
        kit_append a;
        snprintf(key, sizeof key, "key-%" PRId64, i);
        kit_append_init(&a);
        kit_append_event(&a, kit_append_stream(&a, "keyed", WEIR_EXPECT_ANY, 0), "A", "{}");
        kit_append_key(&a, key);
        if (kit_append_run(s, &a) != WEIR_OK) {
            return 1;
        }
        say(a.append.replayed ? "replayed" : "first", i, a.streams[0].id);
    }
    return 0;
}

/* Leases what there is, says so, and waits for the end. */
static int child_lease(weir_store *s, const char *arg)
{
    store_lease_list list = { 0 };
    weir_error err;
    const store_lease_request r = kit_lease_request(arg, 100);
    if (s->work->turn(s, NULL, 0, &r, &list, &err) != WEIR_OK) {
        return 1;
    }
    for (size_t i = 0; i < list.leases_count; i++) {
        say("leased", list.leases[i].target, list.leases[i].fence);
    }
    say("done", 0, 0);
    for (;;) {
        pause();
    }
}

static int child_once(weir_store *s, const char *arg)
{
    kit_append a;
    if (kit_try(s, arg, WEIR_EXPECT_ANY, 0, &a) != WEIR_OK) {
        return 1;
    }
    say("appended", a.streams[0].last, a.streams[0].id);
    return 0;
}

/* The time of the test that started us. */
static int64_t parents_wall(void *ctx)
{
    const char *text = getenv("WEIR_KIT_WALL_US");
    (void)ctx;
    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

/* A machine has one, whatever its processes think of the time of day. */
static int64_t parents_boot(void *ctx)
{
    const char *text = getenv("WEIR_KIT_BOOT_US");
    (void)ctx;
    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

int kit_child(const kit_adapter *adapter, const char *role, const char *place, const char *arg)
{
    /* Where the clock is the database's, it is the same one for every process. */
    const bool keeps = (adapter->features & KIT_KEEPS_TIME) != 0;
    weir_clock clock = *weir__clock_machine();
    clock.wall_us = keeps ? clock.wall_us : parents_wall;
    clock.boot_us = parents_boot;
    clock.boot_id = NULL;
    const store_options options = { .busy_us = INT64_C(30) * 1000 * 1000,
                                    .key_ttl_us = INT64_C(24) * 3600 * 1000 * 1000,
                                    .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                                    .application = "conformance child",
                                    .clock = &clock };
    static const struct {
        const char *role;
        int (*run)(weir_store *s, const char *arg);
    } roles[] = { { "append", child_append },
                  { "race", child_race },
                  { "keys", child_keys },
                  { "lease", child_lease },
                  { "once", child_once } };
    weir_store *s = NULL;
    weir_error err;
    int result = 2;
    if (adapter->open(place, &options, &s, &err) != WEIR_OK) {
        fprintf(stderr, "child %s: %s\n", role, err.message);
        return 2;
    }
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(roles[i].role, role) == 0) {
            result = roles[i].run(s, arg);
        }
    }
    s->about->close(s);
    return result;
}

/* ---- the parent's side -------------------------------------------------------------------- */

typedef struct child {
    pid_t pid;
    FILE *out;
} child;

static child child_start(kit *k, const char *role, const char *arg)
{
    int fd = -1;
    child c = { .pid = kit_spawn(k, role, arg, &fd) };
    c.out = fdopen(fd, "r");
    assert_non_null(c.out);
    return c;
}

/* The next thing a child says; false: it has ended. */
static bool child_says(child *c, char word[LINE_BYTES], int64_t *a, int64_t *b)
{
    char line[LINE_BYTES];
    if (fgets(line, sizeof line, c->out) == NULL || strchr(line, '\n') == NULL) {
        return false;
    }
    assert_int_equal(sscanf(line, "%31s %" SCNd64 " %" SCNd64, word, a, b), 3);
    return true;
}

static int child_end(child *c, int signal_number)
{
    int status = 0;
    if (signal_number != 0) {
        assert_int_equal(kill(c->pid, signal_number), 0);
    }
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    fclose(c->out);
    return status;
}

static void C12_what_was_acknowledged_survives_kill_9(void **state)
{
    kit *k = *state;
    char word[LINE_BYTES];
    for (int round = 0; round < 8; round++) {
        child children[CHILDREN];
        int64_t last[CHILDREN];
        int64_t id[CHILDREN];
        for (size_t i = 0; i < CHILDREN; i++) {
            children[i] = child_start(k, "append", kit_text(k, "own-%d-%zu", round, i));
        }
        for (size_t i = 0; i < CHILDREN; i++) {
            for (int n = 0; n < 4 + round; n++) {
                assert_true(child_says(&children[i], word, &last[i], &id[i]));
            }
        }
        for (size_t i = 0; i < CHILDREN; i++) {
            assert_int_equal(kill(children[i].pid, SIGKILL), 0);
        }
        for (size_t i = 0; i < CHILDREN; i++) {
            while (child_says(&children[i], word, &last[i], &id[i])) {
                /* what it was told before it died */
            }
            assert_true(WIFSIGNALED(child_end(&children[i], 0)));
            const kit_events events = kit_stream(k, kit_text(k, "own-%d-%zu", round, i));
            assert_true((int64_t)events.count > last[i]);
            assert_int_equal(events.count % 2, 0); /* no append is there by half */
            assert_int_equal(events.events[last[i]].id, id[i]);
        }
        kit_reopen(k);
    }
    kit_check_log(k, kit_log(k));
    kit_check(k);
}

static void C06_one_process_wins_each_version_of_a_race(void **state)
{
    kit *k = *state;
    enum { VERSIONS = 120 };
    child children[CHILDREN];
    int64_t won_by[VERSIONS] = { 0 };
    for (size_t i = 0; i < CHILDREN; i++) {
        children[i] = child_start(k, "race", kit_text(k, "%d", VERSIONS));
    }
    for (size_t i = 0; i < CHILDREN; i++) {
        char word[LINE_BYTES];
        int64_t version = 0;
        int64_t id = 0;
        while (child_says(&children[i], word, &version, &id)) {
            assert_true(version >= 0 && version < VERSIONS);
            assert_int_equal(won_by[version], 0);
            won_by[version] = id;
        }
        assert_int_equal(child_end(&children[i], 0), 0);
    }
    const kit_events events = kit_stream(k, "race");
    assert_int_equal(events.count, VERSIONS);
    for (size_t i = 0; i < VERSIONS; i++) {
        assert_int_equal(events.events[i].id, won_by[i]);
    }
    kit_check_log(k, kit_log(k));
}

static void C09_repeats_of_several_processes_run_once(void **state)
{
    kit *k = *state;
    enum { KEYS = 60 };
    child children[CHILDREN];
    int64_t ids[KEYS] = { 0 };
    size_t firsts = 0;
    for (size_t i = 0; i < CHILDREN; i++) {
        children[i] = child_start(k, "keys", kit_text(k, "%d", KEYS));
    }
    for (size_t i = 0; i < CHILDREN; i++) {
        char word[LINE_BYTES];
        int64_t key = 0;
        int64_t id = 0;
        while (child_says(&children[i], word, &key, &id)) {
            assert_true(ids[key] == 0 || ids[key] == id);
            ids[key] = id;
            firsts += strcmp(word, "first") == 0;
        }
        assert_int_equal(child_end(&children[i], 0), 0);
    }
    assert_int_equal(firsts, KEYS);
    assert_int_equal(kit_stream(k, "keyed").count, KEYS);
}

static void C24_the_targets_of_a_killed_process_are_free_when_its_lease_ends(void **state)
{
    kit *k = *state;
    enum { COUNT = 5 };
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int i = 0; i < COUNT; i++) {
        kit_put(k, kit_text(k, "t-%d", i), "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    int64_t fences[COUNT] = { 0 };
    for (int round = 0; round < 3; round++) {
        child c = child_start(k, "lease", "lane");
        char word[LINE_BYTES];
        int64_t target = 0;
        int64_t fence = 0;
        int64_t leased[COUNT] = { 0 };
        size_t count = 0;
        while (child_says(&c, word, &target, &fence) && strcmp(word, "done") != 0) {
            leased[count++] = target;
            for (size_t i = 0; i + 1 < count; i++) {
                assert_true(leased[i] != target);
            }
            assert_true(fence > fences[target % COUNT]); /* larger than every earlier one */
            fences[target % COUNT] = fence;
        }
        assert_int_equal(count, COUNT);
        assert_true(kit_nothing_to_lease(k, "lane"));
        assert_true(WIFSIGNALED(child_end(&c, SIGKILL)));
        kit_reopen(k);
        assert_true(kit_nothing_to_lease(k, "lane")); /* nobody knows that it is dead */
        kit_advance(k, 2 * KIT_LEASE_US);
        kit_put(k, "tick", "A"); /* the store's time is what somebody has written */
    }
    const store_lease_list *list = kit_lease(k, "lane", 10);
    assert_int_equal(list->leases_count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(list->leases[i].fence > fences[list->leases[i].target % COUNT]);
    }
}

static void P06_an_append_of_another_process_wakes_a_watch(void **state)
{
    kit *k = *state;
    store_watch *watch = NULL;
    const bool echoes = (k->adapter->features & KIT_ECHOES) != 0;
    KIT_OK(k, k->store->log->watch_open(k->store, &watch, &k->err));
    for (int i = 0; i < 3; i++) {
        bool woken = true;
        KIT_OK(k, k->store->log->watch_wait(watch, 0, &woken, &k->err));
        assert_true(echoes || !woken);
        child c = child_start(k, "once", "s");
        /* Where one is woken now and then for nothing, the one that counts still has to come. */
        for (int n = 0; n < 10 && (n == 0 || (echoes && kit_version(k, "s") < i)); n++) {
            KIT_OK(k, k->store->log->watch_wait(watch, 30000, &woken, &k->err));
            assert_true(woken);
        }
        assert_int_equal(kit_version(k, "s"), i); /* what it wakes for can be read */
        assert_int_equal(child_end(&c, 0), 0);
        /* A child may announce more than once; what it has to say has been said by now. */
        do {
            KIT_OK(k, k->store->log->watch_wait(watch, 0, &woken, &k->err));
        } while (woken);
    }
    k->store->log->watch_close(watch);
}

static void C04_time_is_one_for_all_processes(void **state)
{
    kit *k = *state;
    /* The clock of this process is ahead of the machine's, which is all that a child has. */
    kit_advance(k, INT64_C(365) * 24 * 3600 * 1000 * 1000 * 30);
    kit_put(k, "s", "A");
    child c = child_start(k, "once", "s");
    assert_int_equal(child_end(&c, 0), 0);
    const kit_events events = kit_stream(k, "s");
    assert_int_equal(events.count, 2);
    assert_true(events.events[1].created_us >= events.events[0].created_us);
}

kit_theme kit_processes(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C12_what_was_acknowledged_survives_kill_9),
        KIT_TEST(C06_one_process_wins_each_version_of_a_race),
        KIT_TEST(C09_repeats_of_several_processes_run_once),
        KIT_TEST(C24_the_targets_of_a_killed_process_are_free_when_its_lease_ends),
        KIT_TEST(P06_an_append_of_another_process_wakes_a_watch),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

kit_theme kit_processes_time(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C04_time_is_one_for_all_processes),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
