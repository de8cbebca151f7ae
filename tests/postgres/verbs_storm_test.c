/* verbs_storm_test.c - several processes call all verbs of the targets' side at random, and are
 * killed while they do.
 *
 * WHAT IS HELD AGAINST WHAT  Whoever handles an event writes so into a table of the test's own, in
 * the transaction of the settle. When the storm has passed and what is left was worked off:
 *   - the store's own check finds nothing: no target is stuck (C20), no flag is wrong;
 *   - every event that a reaction listens to was handled by it exactly once, or stands parked
 *     (C25, C33), although leases expired, operators skipped and definitions changed meanwhile;
 *     those that operators sent back to an earlier position (lane "again") at least once;
 *   - no fence was given twice (C24), and never more targets than asked for (C21);
 *   - the versions of each stream have no gap.
 * The seed is printed; WEIR_SEED repeats the choices, though not the scheduling.
 */
#include "targets_support.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROCESSES = 4,
    STREAMS = 5,
    EVENTS_READ = 64, /* by one call of a router */
    MARKS_MAX = EVENTS_READ * 6,
    LEASES_MAX = 1 << 20,
    STORM_SECONDS = 12,
    STORM_HANDLED_LEAST = 1500,
    DRAIN_MS = 600000,
};

/* What all processes write into. */
typedef struct shared {
    _Atomic bool over; /* processes end */
    _Atomic size_t leases_count;
    _Atomic int failures, calls, conflicts, lost;
    char failure[512]; /* of the first that failed */
    struct {
        int64_t target, fence;
    } leases[LEASES_MAX];
} shared;

typedef struct storm {
    weir_store *s;
    shared *all;
    const char *schema;
    uint64_t random;
    int process;
    bool calm; /* draining: nothing but routing and handling */
    weir_error err;
} storm;

static const struct {
    const char *name, *lane;
    store_rule rule;
} reactions[] = {
    { "stream", "once", STORE_RULE_STREAM },
    { "constant", "once", STORE_RULE_CONSTANT },
    { "work", "once", STORE_RULE_WORK },
    { "category", "once", STORE_RULE_CATEGORY },
    { "again-stream", "again", STORE_RULE_STREAM },
    { "again-work", "again", STORE_RULE_WORK },
};
enum { REACTIONS = sizeof reactions / sizeof reactions[0] };

static uint64_t roll(storm *m, uint64_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (m->random >> 11) % below;
}

/* Notes an answer that must not be: any other than these, or one that tells of waiting. */
static void expect(storm *m, weir_status got, const char *verb, const weir_status *fine,
                   size_t count)
{
    atomic_fetch_add(&m->all->calls, 1);
    for (size_t i = 0; i < count; i++) {
        if (got == fine[i]) {
            return;
        }
    }
    if (atomic_fetch_add(&m->all->failures, 1) == 0) {
        (void)snprintf(m->all->failure, sizeof m->all->failure, "%s: %d: %.400s", verb, got,
                       m->err.message);
    }
}
#define EXPECT(m, call, ...)                                                                       \
    do {                                                                                           \
        const weir_status fine_[] = { WEIR_OK, ##__VA_ARGS__ };                                    \
        expect((m), (call), #call, fine_, sizeof fine_ / sizeof fine_[0]);                         \
    } while (0)

/* ---- declaring, appending ------------------------------------------------------------------- */

static void declare(storm *m, size_t number, bool other)
{
    weir_arena arena = { 0 };
    store_reaction out = { 0 };
    const store_reaction_declaration d = { .name = weir__str(reactions[number].name),
                                           .all_names = true,
                                           .source = weir__str("*"),
                                           .rule = reactions[number].rule,
                                           .rule_text = weir__str(other ? "two" : "one"),
                                           .redeclare = true };
    EXPECT(m, m->s->work->declare(m->s, &d, &arena, &out, &m->err), WEIR_EBUSY);
    weir__arena_free(&arena);
}

static void append(storm *m)
{
    enum { MOST = 4 };
    char names[MOST][2][32];
    store_append_stream streams[MOST][2];
    store_new_event events[MOST][3];
    store_append appends[MOST];
    store_append *list[MOST];
    weir_error errors[MOST];
    const size_t count = 1 + roll(m, MOST);
    for (size_t i = 0; i < count; i++) {
        const size_t wide = 1 + roll(m, 2), first = roll(m, STREAMS), many = 1 + roll(m, 3);
        for (size_t j = 0; j < wide; j++) {
            const size_t which = (first + j) % STREAMS;
            (void)snprintf(names[i][j], sizeof names[i][j], "c%zu-%zu", which % 3, which);
            streams[i][j] = (store_append_stream){ .name = weir__str(names[i][j]) };
        }
        for (size_t j = 0; j < many; j++) {
            events[i][j] = (store_new_event){ .stream_index = (uint32_t)(j % wide),
                                              .name = weir__str(roll(m, 9) == 0 ? "No" : "Yes"),
                                              .data = weir__str("{}"),
                                              .meta = weir__str("{}") };
        }
        appends[i] = (store_append){ .streams = streams[i],
                                     .streams_count = many < wide ? many : wide,
                                     .events = events[i],
                                     .events_count = many,
                                     .flags = count > 1 ? STORE_APPEND_NOWAIT : 0,
                                     .err = &errors[i] };
        list[i] = &appends[i];
    }
    EXPECT(m, m->s->log->append(m->s, list, count, &m->err));
}

/* ---- routing -------------------------------------------------------------------------------- */

static size_t reaction_number(weir_str name)
{
    size_t n = 0;
    while (n < REACTIONS && !weir__str_equal(name, weir__str(reactions[n].name))) {
        n++;
    }
    return n;
}

/* Routes some of the reactions that are level with one of them. True: something was left. */
static bool route(storm *m)
{
    store_reaction_list list = { 0 };
    store_chunk chunk = { 0 };
    static store_mark marks[MARKS_MAX];
    static char names[MARKS_MAX][48];
    store_route_step steps[REACTIONS];
    size_t numbers[REACTIONS];
    store_route r = { .steps = steps, .marks = marks };
    bool more = false;
    EXPECT(m, m->s->work->reactions(m->s, &list, &m->err));
    if (list.reactions_count == 0) {
        goto out;
    }
    const store_reaction *one = &list.reactions[roll(m, list.reactions_count)];
    const store_log_query q = { .after = one->routed,
                                .to = INT64_MAX,
                                .limit = 1 + (int64_t)roll(m, EVENTS_READ) };
    weir_status status = m->s->log->read_log(m->s, &q, &chunk, &m->err);
    expect(m, status, "read_log", &(weir_status){ WEIR_OK }, 1);
    if (status != WEIR_OK || chunk.scanned_to <= one->routed) {
        goto out;
    }
    more = true;
    for (size_t i = 0; i < list.reactions_count; i++) {
        const store_reaction *level = &list.reactions[i];
        if (level->retired || level->routed != one->routed ||
            (level != one && !m->calm && roll(m, 2) == 0)) {
            continue;
        }
        numbers[r.steps_count] = reaction_number(level->name);
        steps[r.steps_count++] = (store_route_step){ .reaction = level->id,
                                                     .number = level->current,
                                                     .from = level->routed,
                                                     .to = chunk.scanned_to };
    }
    for (size_t i = 0; i < chunk.events_count; i++) {
        const weir_event *e = &chunk.events[i];
        for (size_t k = 0; k < r.steps_count && e->name.ptr[0] == 'Y'; k++) {
            const size_t n = numbers[k];
            char *text = names[r.marks_count];
            const char *lane = reactions[n].lane;
            weir_str value = { 0 };
            switch (reactions[n].rule) {
            case STORE_RULE_STREAM:
            case STORE_RULE_WORK: /* shares its targets with the one by stream */
                value = reactions[n].rule == STORE_RULE_STREAM ? e->stream : value;
                (void)snprintf(text, sizeof names[0], "%s/%.*s", lane, (int)e->stream.len,
                               e->stream.ptr);
                break;
            case STORE_RULE_CATEGORY:
                value = (weir_str){ .ptr = e->stream.ptr, .len = 2 };
                (void)snprintf(text, sizeof names[0], "%s/%.2s", lane, e->stream.ptr);
                break;
            case STORE_RULE_CONSTANT:
            case STORE_RULE_NAME:
                (void)snprintf(text, sizeof names[0], "%s/all", lane);
                break;
            }
            marks[r.marks_count++] = (store_mark){ .reaction_index = (uint32_t)k,
                                                   .target = weir__str(text),
                                                   .lane = weir__str(lane),
                                                   .priority = (int64_t)roll(m, 3),
                                                   .source = weir__str("*"),
                                                   .value = value,
                                                   .first = e->id,
                                                   .last = e->id };
        }
    }
    if (r.steps_count > 0) {
        status = m->s->work->route(m->s, &r, NULL, &m->err);
        atomic_fetch_add(&m->all->conflicts, status == WEIR_ECONFLICT);
        EXPECT(m, status, WEIR_ECONFLICT, WEIR_EBUSY);
    }
out:
    weir__chunk_free(&chunk);
    weir__arena_free(&list.arena);
    return more;
}

/* ---- handling ------------------------------------------------------------------------------- */

typedef struct handled {
    const storm *m;
    char rows[8192]; /* of VALUES */
} handled;

static weir_status write_handled(void *ctx, void *native, weir_error *err)
{
    handled *h = ctx;
    char sql[9000];
    (void)snprintf(sql, sizeof sql, "INSERT INTO %s_test.handled VALUES %s", h->m->schema, h->rows);
    PGresult *result = PQexec(native, sql);
    const bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return ok ? WEIR_OK : weir__fail(err, WEIR_EIO, "%s", PQerrorMessage(native));
}

static void note(handled *h, int64_t reaction, int64_t event)
{
    const size_t len = strlen(h->rows);
    (void)snprintf(h->rows + len, sizeof h->rows - len, "%s(%lld, %lld)", len == 0 ? "" : ", ",
                   (long long)reaction, (long long)event);
}

/* One batch of a target: handled up to some point, and then settled in some way. */
static void handle(storm *m, const store_leased *lease)
{
    enum { MOST = 8, EVENTS = 16 };
    handled h = { .m = m };
    store_fetch_item items[MOST];
    store_advance advances[MOST];
    int64_t parked_done[MOST];
    store_park park;
    store_fetch_list list = { 0 };
    store_settle settle = { .target = lease->target,
                            .fence = lease->fence,
                            .advances = advances,
                            .parked_done = parked_done };
    const size_t count = lease->subscriptions_count < MOST ? lease->subscriptions_count : MOST;
    if (!m->calm && roll(m, 12) == 0) { /* other ways to end it */
        store_fenced item = { .target = lease->target, .fence = lease->fence };
        const store_failure why = { .reaction = count > 0 ? lease->subscriptions[0].reaction : 0,
                                    .error = weir__str("no") };
        int64_t now = 0;
        switch (roll(m, 5)) {
        case 0:
            EXPECT(m, m->s->work->extend(m->s, 0, &item, 1, &m->err));
            return;
        case 1:
            settle.failure = why;
            settle.end = STORE_END_BLOCK;
            EXPECT(m, m->s->work->settle(m->s, &settle, &m->err), WEIR_ELOST);
            return;
        case 2:
            EXPECT(m, m->s->about->now(m->s, &now, &m->err));
            settle.end = STORE_END_DEFER;
            settle.until_us = now + (int64_t)roll(m, 100000);
            EXPECT(m, m->s->work->settle(m->s, &settle, &m->err), WEIR_ELOST);
            return;
        case 3:
            EXPECT(m, m->s->work->extend(m->s, 50000, &item, 1, &m->err));
            break;
        default:
            return; /* forgotten: it expires */
        }
    }
    for (size_t i = 0; i < count; i++) {
        const store_leased_subscription *u = &lease->subscriptions[i];
        items[i] = (store_fetch_item){ .target = lease->target,
                                       .reaction = u->reaction,
                                       .after = u->at,
                                       .up_to = u->mark,
                                       .limit = 1 + (int64_t)roll(m, EVENTS) };
    }
    EXPECT(m, m->s->work->fetch(m->s, items, count, &list, &m->err), WEIR_ENOTFOUND);
    for (size_t i = 0; i < count; i++) {
        int64_t to = items[i].after;
        bool all = list.exhausted != NULL && list.exhausted[i];
        for (size_t k = 0; k < list.events_count; k++) {
            if (list.events[k].item_index != i) {
                continue;
            }
            if (!m->calm && roll(m, 40) == 0) { /* the rest another time */
                all = false;
                break;
            }
            to = list.events[k].event->id;
            if (settle.parks_count == 0 && !m->calm && roll(m, 60) == 0) {
                park = (store_park){ .reaction = items[i].reaction,
                                     .event = to,
                                     .attempts = 1,
                                     .error = weir__str("parked") };
                settle.parks = &park;
                settle.parks_count = 1;
            } else {
                note(&h, items[i].reaction, to);
            }
        }
        to = all ? items[i].up_to : to;
        if (to > items[i].after) {
            advances[settle.advances_count++] =
                (store_advance){ .reaction = items[i].reaction, .to = to };
        }
    }
    for (size_t i = 0; i < lease->sent_back_count && i < MOST; i++) {
        parked_done[settle.parked_done_count++] = lease->sent_back[i].parked;
        note(&h, lease->sent_back[i].reaction, lease->sent_back[i].event);
    }
    if (h.rows[0] != '\0') {
        settle.sql = write_handled;
        settle.sql_ctx = &h;
    }
    /* An effect, now and then; it is an event like others. */
    weir_error failed = { 0 };
    char name[32];
    (void)snprintf(name, sizeof name, "c0-%d", (int)roll(m, STREAMS) / 3 * 3);
    store_append_stream stream = { .name = weir__str(name) };
    const store_new_event event = { .name = weir__str("Effect"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    store_append effect = {
        .streams = &stream, .streams_count = 1, .events = &event, .events_count = 1, .err = &failed
    };
    store_append *const effects[] = { &effect };
    if (!m->calm && roll(m, 4) == 0) {
        settle.appends = effects;
        settle.appends_count = 1;
    }
    if (!m->calm && count > 0 && roll(m, 20) == 0) {
        settle.failure = (store_failure){ .reaction = items[0].reaction,
                                          .event = 1,
                                          .error = weir__str("failed") };
        settle.end = roll(m, 2) == 0 ? STORE_END_BLOCK : STORE_END_RELEASE;
    } else if (!m->calm && roll(m, 20) == 0) {
        settle.end = STORE_END_DEFER;
        EXPECT(m, m->s->about->now(m->s, &settle.until_us, &m->err));
        settle.until_us += (int64_t)roll(m, 50000);
    } else if (!m->calm && roll(m, 10) == 0) {
        settle.end = STORE_END_KEEP;
        settle.lease_us = 20000;
    }
    const weir_status status = m->s->work->settle(m->s, &settle, &m->err);
    atomic_fetch_add(&m->all->lost, status == WEIR_ELOST);
    EXPECT(m, status, WEIR_ELOST, WEIR_EBUSY);
    weir__arena_free(&list.arena);
}

/* Takes targets and handles some of their events. True: there were any. */
static bool work_on(storm *m, const char *lane)
{
    store_lease_list list = { 0 };
    const store_lease_request q = { .lane = weir__str(lane),
                                    .holder = weir__str("storm"),
                                    .lease_us = m->calm ? 10000000 : 1000 << roll(m, 9),
                                    .limit = 1 + roll(m, 4),
                                    .leading = roll(m, 2),
                                    .reserve = roll(m, 2),
                                    .all_reactions = true,
                                    .lost_max = m->calm ? 0 : 5 };
    EXPECT(m, m->s->work->turn(m->s, NULL, 0, &q, &list, &m->err));
    const bool any = list.leases_count > 0;
    if (list.leases_count > q.limit) {
        expect(m, WEIR_EINVAL, "more targets than asked for", NULL, 0);
    }
    for (size_t i = 0; i < list.leases_count; i++) {
        const size_t place = atomic_fetch_add(&m->all->leases_count, 1);
        if (place < LEASES_MAX) {
            m->all->leases[place].target = list.leases[i].target;
            m->all->leases[place].fence = list.leases[i].fence;
        }
    }
    for (size_t i = 0; i < list.leases_count; i++) {
        handle(m, &list.leases[i]);
    }
    weir__arena_free(&list.arena);
    return any;
}

/* ---- operating ------------------------------------------------------------------------------ */

static void send_back(storm *m)
{
    store_parked_chunk chunk = { 0 };
    const store_parked_query q = { .limit = 8 };
    EXPECT(m, m->s->work->parked(m->s, &q, &chunk, &m->err));
    for (size_t i = 0; i < chunk.parked_count; i++) {
        if (!chunk.parked[i].sent_back) {
            EXPECT(m,
                   m->s->work->parked_change(m->s, chunk.parked[i].id, STORE_PARKED_RETRY, &m->err),
                   WEIR_ENOTFOUND, WEIR_EBUSY);
        }
    }
    weir__arena_free(&chunk.arena);
}

static void operate(storm *m)
{
    store_operate op = { .by = weir__str("storm") };
    const char *lane = roll(m, 2) == 0 ? "once" : "again";
    char name[48];
    weir_str target = weir__str(name);
    (void)snprintf(name, sizeof name, "%s/c%d-%d", lane, (int)roll(m, 3), (int)roll(m, STREAMS));
    target = weir__str(name);
    if (roll(m, 2) == 0) {
        op.filter.names = &target;
        op.filter.names_count = 1;
    } else {
        op.filter.lane = weir__str(lane);
    }
    bool changed = false;
    store_positions at = { 0 };
    switch (roll(m, 9)) {
    case 0:
        op.verb = STORE_RESET;
        op.filter = (store_target_filter){ .lane = weir__str("again") };
        EXPECT(m, m->s->log->positions(m->s, &at, &m->err));
        op.reset_to = STORE_RESET_POSITION;
        op.position = at.safe > 100 ? at.safe - (int64_t)roll(m, 100) : 0;
        break;
    case 1:
        op.verb = STORE_SKIP;
        break;
    case 2:
        op.verb = STORE_PRIORITIZE;
        op.priority = (int64_t)roll(m, 5);
        op.clear = roll(m, 2) == 0;
        break;
    case 3:
        op.verb = roll(m, 3) == 0 ? STORE_PAUSE : STORE_RESUME;
        break;
    case 4: {
        const size_t n = roll(m, REACTIONS);
        EXPECT(m, m->s->work->retire(m->s, weir__str(reactions[n].name), &m->err), WEIR_EBUSY);
        declare(m, n, roll(m, 2) == 0);
        return;
    }
    case 5:
        declare(m, roll(m, REACTIONS), roll(m, 2) == 0);
        return;
    case 6:
        EXPECT(m, m->s->work->lane_pause(m->s, weir__str(lane), true, weir__str("storm"), &changed,
                                         &m->err));
        EXPECT(m, m->s->work->lane_pause(m->s, weir__str(lane), false, weir__str("storm"), &changed,
                                         &m->err));
        return;
    case 7:
        send_back(m);
        return;
    default:
        op.verb = STORE_UNBLOCK;
        break;
    }
    EXPECT(m, m->s->work->operate(m->s, &op, &m->err), WEIR_ENOTFOUND, WEIR_EBUSY);
}

/* ---- processes ------------------------------------------------------------------------------ */

static void process_run(pg_test *t, shared *all, uint64_t seed, int number)
{
    storm m = { .all = all,
                .schema = t->schema,
                .random = seed * 7919 + (uint64_t)number + 1,
                .process = number };
    store_options options = test_options(t);
    options.pool = 3;
    if (weir__postgres_open(&m.s, &options, &m.err) != WEIR_OK) {
        expect(&m, WEIR_EIO, "open", NULL, 0);
        return;
    }
    for (int i = 0; i < 20; i++) {
        (void)roll(&m, 2);
    }
    while (!all->over) {
        const uint64_t what = roll(&m, 100);
        if (what < 20) {
            append(&m);
        } else if (what < 45) {
            (void)route(&m);
        } else if (what < 90) {
            (void)work_on(&m, roll(&m, 2) == 0 ? "once" : "again");
        } else {
            operate(&m);
        }
    }
    m.s->about->close(m.s);
}

static pid_t process_start(pg_test *t, shared *all, uint64_t seed, int number)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        process_run(t, all, seed, number);
        _exit(0);
    }
    return pid;
}

static int lease_order(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    const int by_target = (x[0] > y[0]) - (x[0] < y[0]);
    return by_target != 0 ? by_target : (x[1] > y[1]) - (x[1] < y[1]);
}

static void drain(pg_test *t, storm *m)
{
    const int64_t end_us = test_mono_us() + INT64_C(1000) * DRAIN_MS;
    store_operate op = { .verb = STORE_RESUME, .by = weir__str("test") };
    for (size_t i = 0; i < REACTIONS; i++) {
        declare(m, i, false);
    }
    int idle = 0;
    while (idle < 3 && test_mono_us() < end_us) {
        op.verb = idle % 2 == 0 ? STORE_UNBLOCK : STORE_RESUME;
        TEST_OK(t, m->s->work->operate(m->s, &op, &m->err));
        bool busy = false;
        for (int i = 0; i < 12; i++) {
            busy = route(m) || busy;
            busy = work_on(m, "once") || busy;
            busy = work_on(m, "again") || busy;
        }
        idle = busy ? 0 : idle + 1;
        if (!busy) {
            usleep(300000); /* leases of the dead end, and what was deferred is due */
        }
    }
    assert_true(idle >= 3);
}

/* Events that were handled once so far, counted for each reaction. */
static int64_t handled_once(pg_test *t)
{
    return look(t, "SELECT count(*) FROM (SELECT 1 FROM %s_test.handled GROUP BY reaction, event "
                   "HAVING count(*) = 1) AS once");
}

static void every_verb_at_random_from_several_processes_handles_each_event_once(void **state)
{
    pg_test *t = *state;
    const char *given = getenv("WEIR_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)test_mono_us();
    print_message("WEIR_SEED=%llu\n", (unsigned long long)seed);
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    storm m = {
        .s = test_store(t), .all = all, .schema = t->schema, .random = seed | 1, .calm = true
    };
    test_exec(t->conn,
              "CREATE SCHEMA %s_test; CREATE TABLE %s_test.handled (reaction bigint, "
              "event bigint); CREATE INDEX ON %s_test.handled (reaction, event)",
              t->schema, t->schema, t->schema);
    for (size_t i = 0; i < REACTIONS; i++) {
        declare(&m, i, false);
    }

    pid_t pids[PROCESSES];
    const int64_t end_us = test_mono_us() + test_storm_us(STORM_SECONDS);
    int number = 0, killed = 0;
    for (; number < PROCESSES; number++) {
        pids[number] = process_start(t, all, seed, number);
    }
    while (test_mono_us() < end_us || handled_once(t) < STORM_HANDLED_LEAST) {
        usleep(1000000 + (unsigned)roll(&m, 1000000)); /* opening a store takes a while */
        const size_t victim = roll(&m, PROCESSES);
        (void)kill(pids[victim], SIGKILL);
        (void)waitpid(pids[victim], NULL, 0);
        killed++;
        pids[victim] = process_start(t, all, seed, number++);
    }
    all->over = true;
    for (size_t i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
    }
    char text[512] = "";
    (void)findings(t, m.s, NULL, text);
    assert_string_equal(text, "");
    const int calls = atomic_load(&all->calls);
    const size_t leases = atomic_load(&all->leases_count);
    drain(t, &m);
    print_message("%d calls, %zu leases, %d lost, %d conflicts, %d killed, %lld events\n", calls,
                  leases, atomic_load(&all->lost), atomic_load(&all->conflicts), killed,
                  (long long)look(t, "SELECT count(*) FROM %s.events"));
    if (atomic_load(&all->failures) != 0) {
        fail_msg("%d calls failed; the first: %s", atomic_load(&all->failures), all->failure);
    }
    nothing_is_wrong(t, m.s);

    const size_t count = all->leases_count < LEASES_MAX ? all->leases_count : LEASES_MAX;
    qsort(all->leases, count, sizeof all->leases[0], lease_order);
    for (size_t i = 1; i < count; i++) {
        assert_true(lease_order(&all->leases[i - 1], &all->leases[i]) < 0);
    }
    assert_int_equal(look(t, "SELECT count(*) FROM %s.targets WHERE behind"), 0);
    assert_int_equal(look(t, "SELECT count(*) FROM (SELECT stream FROM %s.events GROUP BY stream "
                             "HAVING max(version) + 1 <> count(*)) AS s"),
                     0);
    /* How often each was handled or stands parked; of lane "once" and of lane "again". */
    test_exec(
        t->conn,
        "CREATE TABLE %s_test.times AS SELECT r.name, e.id AS event, "
        "(SELECT count(*) FROM %s_test.handled AS h WHERE h.reaction = r.id AND h.event = e.id)"
        " AS handled, (SELECT count(*) FROM %s.parked AS p WHERE p.reaction = r.id AND "
        "p.event = e.id) AS parked "
        "FROM %s.reactions AS r, %s.events AS e WHERE e.name = 'Yes'",
        t->schema, t->schema, t->schema, t->schema, t->schema);
    assert_int_equal(look(t, "SELECT count(*) FROM %s_test.times WHERE name LIKE 'again%%' AND "
                             "handled + parked = 0"),
                     0);
    assert_int_equal(look(t, "SELECT count(*) FROM %s_test.times WHERE name NOT LIKE 'again%%' AND "
                             "handled + parked <> 1"),
                     0);
    assert_true(look(t, "SELECT count(*) FROM %s_test.times WHERE handled = 1") > 1000);
    test_exec(t->conn, "DROP SCHEMA %s_test CASCADE", t->schema);
    (void)munmap(all, sizeof *all);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(every_verb_at_random_from_several_processes_handles_each_event_once),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
