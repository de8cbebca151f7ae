/* restore_test.c - a dump (pg_dump) that is read into a new cluster goes on where it was made:
 * routing, subscriptions, leases, keys (C16, C24, C25, C31). Nothing is skipped, nothing is handled
 * twice, and no position is given away again.
 *
 * The dump is made in the middle of everything: some events are not routed, some targets are
 * halfway through theirs, one is leased, an event is parked and another was sent back, an append is
 * open with positions above it committed. A small router and a small worker go on in the new
 * cluster; what they handle there and what was handled before must be every event, once for each
 * reaction. Followers, who are told of the change, are in rewind_test.
 */
#include "pg_support.h"
#include "servers.h"
#include "targets_support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REACTIONS = 2, EVENTS_MAX = 512, SLICE = 3, STREAMS = 7 };
#define LEASE_US INT64_C(1500000)

typedef struct world {
    pg_test *t;
    weir_store *s;
    int64_t reactions[REACTIONS];           /* their ids */
    int handled[REACTIONS][EVENTS_MAX + 1]; /* by position: how many times */
} world;

static void reactions_find(world *w)
{
    store_reaction_list list = { 0 };
    TEST_OK(w->t, w->s->work->reactions(w->s, &list, &w->t->err));
    assert_int_equal(list.reactions_count, REACTIONS);
    for (size_t i = 0; i < REACTIONS; i++) {
        w->reactions[i] = list.reactions[i].id;
    }
    weir__arena_free(&list.arena);
}

static void put_many(world *w, int count)
{
    char stream[16];
    for (int i = 0; i < count; i++) {
        (void)snprintf(stream, sizeof stream, "s-%d", i % STREAMS);
        assert_true(test_put(w->t, w->s, stream, "A") <= EVENTS_MAX);
    }
}

/* Routes one reaction up to `to`, or to what is safe: a target per stream, called "name/stream". */
static void route_one(world *w, const store_reaction *r, int64_t to)
{
    pg_test *t = w->t;
    store_chunk chunk = { 0 };
    store_positions at;
    TEST_OK(t, w->s->log->positions(w->s, &at, &t->err));
    to = to < at.safe ? to : at.safe;
    const store_log_query q = { .after = r->routed, .to = to, .limit = EVENTS_MAX };
    TEST_OK(t, w->s->log->read_log(w->s, &q, &chunk, &t->err));
    assert_false(chunk.more);
    static char targets[EVENTS_MAX][64];
    static store_mark marks[EVENTS_MAX];
    for (size_t i = 0; i < chunk.events_count; i++) {
        const weir_event *e = &chunk.events[i];
        (void)snprintf(targets[i], sizeof targets[i], "%.*s/%.*s", (int)r->name.len, r->name.ptr,
                       (int)e->stream.len, e->stream.ptr);
        marks[i] = (store_mark){ .target = weir__str(targets[i]),
                                 .lane = weir__str("l"),
                                 .source = e->stream,
                                 .value = r->rule == STORE_RULE_WORK ? weir__str("") : e->stream,
                                 .first = e->id,
                                 .last = e->id };
    }
    const store_route_step step = {
        .reaction = r->id, .number = r->current, .from = r->routed, .to = to
    };
    const store_route route = {
        .steps = &step, .steps_count = 1, .marks = marks, .marks_count = chunk.events_count
    };
    TEST_OK(t, w->s->work->route(w->s, &route, NULL, &t->err));
    weir__chunk_free(&chunk);
}

static void route_all(world *w, int64_t to)
{
    store_reaction_list list = { 0 };
    TEST_OK(w->t, w->s->work->reactions(w->s, &list, &w->t->err));
    for (size_t i = 0; i < list.reactions_count; i++) {
        route_one(w, &list.reactions[i], to);
    }
    weir__arena_free(&list.arena);
}

static void handle(world *w, int64_t reaction, int64_t event)
{
    const int index = reaction == w->reactions[0] ? 0 : 1;
    assert_true(event >= 1 && event <= EVENTS_MAX);
    w->handled[index][event]++;
}

static size_t lease(world *w, size_t limit, store_lease_list *list)
{
    const store_lease_request request = { .lane = weir__str("l"),
                                          .holder = weir__str("test"),
                                          .lease_us = LEASE_US,
                                          .limit = limit,
                                          .all_reactions = true };
    TEST_OK(w->t, w->s->work->turn(w->s, NULL, 0, &request, list, &w->t->err));
    return list->leases_count;
}

/* The next slice of a target's events, and the end of its lease. */
static void work_on(world *w, const store_leased *l)
{
    pg_test *t = w->t;
    store_fetch_list list = { 0 };
    store_advance advance = { 0 };
    store_settle settle = { .target = l->target, .fence = l->fence };
    int64_t done[EVENTS_MAX];
    for (size_t i = 0; i < l->sent_back_count; i++) {
        handle(w, l->sent_back[i].reaction, l->sent_back[i].event);
        done[i] = l->sent_back[i].parked;
    }
    settle.parked_done = done;
    settle.parked_done_count = l->sent_back_count;
    if (l->subscriptions_count > 0) {
        const store_leased_subscription *sub = &l->subscriptions[0];
        const store_fetch_item item = { .target = l->target,
                                        .reaction = sub->reaction,
                                        .after = sub->at,
                                        .up_to = sub->mark,
                                        .limit = SLICE };
        TEST_OK(t, w->s->work->fetch(w->s, &item, 1, &list, &t->err));
        advance = (store_advance){ .reaction = sub->reaction, .to = sub->at };
        for (size_t i = 0; i < list.events_count; i++) {
            handle(w, sub->reaction, list.events[i].event->id);
            advance.to = list.events[i].event->id;
        }
        advance.to = list.exhausted[0] ? sub->mark : advance.to;
        settle.advances = &advance;
        settle.advances_count = 1;
    }
    TEST_OK(t, w->s->work->settle(w->s, &settle, &t->err));
    weir__arena_free(&list.arena);
}

static void work_some(world *w, size_t targets)
{
    store_lease_list list = { 0 };
    assert_int_equal(lease(w, targets, &list), targets);
    for (size_t i = 0; i < targets; i++) {
        work_on(w, &list.leases[i]);
    }
    weir__arena_free(&list.arena);
}

/* Until nothing is behind: what is leased by somebody who never comes back is waited for. */
static void work_all(world *w)
{
    const int64_t deadline = test_mono_us() + INT64_C(20000000);
    int64_t behind = 0;
    do {
        store_lease_list list = { 0 };
        const size_t count = lease(w, 100, &list);
        for (size_t i = 0; i < count; i++) {
            work_on(w, &list.leases[i]);
        }
        weir__arena_free(&list.arena);
        if (count == 0) {
            (void)usleep(50000);
        }
        store_targets_chunk chunk = { 0 };
        const store_targets_query q = { .limit = 1000 };
        TEST_OK(w->t, w->s->work->targets(w->s, &q, &chunk, &w->t->err));
        behind = 0;
        for (size_t i = 0; i < chunk.targets_count; i++) {
            behind += chunk.targets[i].behind;
        }
        weir__arena_free(&chunk.arena);
    } while (behind > 0 && test_mono_us() < deadline);
    assert_int_equal(behind, 0);
}

static weir_status append_under_key(weir_store *s, bool *replayed, int64_t *id, weir_error *err)
{
    store_append_stream stream = { .name = weir__str("keyed"), .expect = WEIR_EXPECT_ANY };
    const store_new_event event = { .name = weir__str("A"),
                                    .data = weir__str("{}"),
                                    .meta = weir__str("{}") };
    const store_key_change change = { .key = weir__str("email:a"), .change = WEIR_KEY_RESERVE };
    store_append append = { .streams = &stream,
                            .streams_count = 1,
                            .events = &event,
                            .events_count = 1,
                            .key_changes = &change,
                            .key_changes_count = 1,
                            .key = weir__str("once"),
                            .fingerprint = { 1, 2, 3 },
                            .err = err };
    store_append *appends[] = { &append };
    const weir_status status = s->log->append(s, appends, 1, err);
    *replayed = append.replayed;
    *id = stream.id;
    return status != WEIR_OK ? status : append.status;
}

/* Parks the next event of one target and sends it back, and parks that of another: the first is
 * handled later, the second is what an operator keeps, and not handled. Returns the second. */
static int64_t park_two(world *w, int64_t *reaction)
{
    pg_test *t = w->t;
    store_operate skip = { .verb = STORE_SKIP };
    weir_str names[] = { weir__str("by-stream/s-0"), weir__str("by-work/s-0") };
    store_parked_chunk parked = { 0 };
    const store_parked_query q = { .limit = 10 };
    skip.filter.names = names;
    skip.filter.names_count = 2;
    TEST_OK(t, w->s->work->operate(w->s, &skip, &t->err));
    assert_int_equal(skip.changed, 2);
    TEST_OK(t, w->s->work->parked(w->s, &q, &parked, &t->err));
    assert_int_equal(parked.parked_count, 2);
    TEST_OK(t, w->s->work->parked_change(w->s, parked.parked[0].id, STORE_PARKED_RETRY, &t->err));
    const int64_t event = parked.parked[1].event;
    *reaction = parked.parked[1].reaction;
    weir__arena_free(&parked.arena);
    return event;
}

/* Every event of the log that is there, once per reaction, and no other. */
static void handled_once(world *w, PGconn *conn, int64_t parked_reaction, int64_t parked_event)
{
    for (int64_t id = 1; id <= EVENTS_MAX; id++) {
        const int64_t there = test_number(conn, "SELECT count(*) FROM %s.events WHERE id = %lld",
                                          w->t->schema, (long long)id);
        for (size_t i = 0; i < REACTIONS; i++) {
            const bool parked = w->reactions[i] == parked_reaction && id == parked_event;
            if (w->handled[i][id] != (parked ? 0 : there)) {
                fail_msg("reaction %zu handled event %lld %d times", i, (long long)id,
                         w->handled[i][id]);
            }
        }
    }
}

/* What the dump finds, and what must not be given away again. */
typedef struct unfinished {
    int64_t keyed, head;             /* positions: of the append under a key, of the log      */
    int64_t parked, parked_reaction; /* the event that an operator keeps                      */
    int64_t target, fence;           /* leased by a worker that never comes back              */
    int64_t router_fence;
    PGconn *open_append;
} unfinished;

static unfinished leave_unfinished(world *w)
{
    pg_test *t = w->t;
    unfinished u = { 0 };
    bool replayed = true;
    TEST_OK(t, append_under_key(w->s, &replayed, &u.keyed, &t->err));
    put_many(w, 60);
    route_all(w, 50); /* the rest is not routed yet */
    work_some(w, 9);
    u.parked = park_two(w, &u.parked_reaction);
    store_lease_list held = { 0 };
    assert_int_equal(lease(w, 1, &held), 1);
    u.target = held.leases[0].target;
    u.fence = held.leases[0].fence;
    weir__arena_free(&held.arena);
    store_router_lease router = { .reaction = w->reactions[0] };
    TEST_OK(t, w->s->work->router_lease(w->s, weir__str("router"), LEASE_US, &router, 1, &t->err));
    assert_true(router.fence > 0);
    u.router_fence = router.fence;
    u.open_append = test_connect(t);
    test_exec(u.open_append,
              "BEGIN; SELECT * FROM %s.append_one(0, 0, 'open', 0, 0, 'A', '{}', '{}')", t->schema);
    put_many(w, 20);
    u.head = look(t, "SELECT max(id) FROM %s.events");
    return u;
}

/* Positions, versions and keys. */
static void log_goes_on(world *w, const unfinished *u)
{
    pg_test *t = w->t;
    bool replayed = false;
    int64_t id = 0, version = -1;
    TEST_OK(t, append_under_key(w->s, &replayed, &id, &t->err));
    assert_true(replayed && id == u->keyed);
    assert_string_equal(
        test_text(t->conn, "SELECT stream FROM %s.reserved WHERE key = 'email:a'", t->schema),
        "keyed");
    TEST_OK(t, test_try(w->s, "s-0", WEIR_EXPECT_ANY, 0, "A", &version, &id, &t->err));
    assert_true(id > u->head);
    assert_int_equal(version, 12);
}

static void fences_go_on(world *w, const unfinished *u, PGconn *fresh)
{
    pg_test *t = w->t;
    store_lease_list list = { 0 };
    bool seen = false;
    assert_true(test_wait(fresh, 120,
                          "SELECT lease_until < %s.clock_us() FROM %s.targets WHERE id = %lld",
                          t->schema, t->schema, (long long)u->target));
    const size_t count = lease(w, 100, &list);
    for (size_t i = 0; i < count; i++) {
        if (list.leases[i].target == u->target) {
            assert_true(list.leases[i].fence > u->fence);
            seen = true;
        }
        work_on(w, &list.leases[i]);
    }
    assert_true(seen);
    weir__arena_free(&list.arena);
    store_router_lease router = { .reaction = w->reactions[0] };
    TEST_OK(t, w->s->work->router_lease(w->s, weir__str("other"), LEASE_US, &router, 1, &t->err));
    assert_true(router.fence > u->router_fence);
}

static void T10_a_restored_store_goes_on_where_the_dump_was_made(void **state)
{
    pg_test *t = *state;
    world w = { .t = t, .s = test_store(t) };
    (void)give_reaction(t, w.s, "by-stream", STORE_RULE_STREAM);
    (void)give_reaction(t, w.s, "by-work", STORE_RULE_WORK);
    reactions_find(&w);
    const unfinished u = leave_unfinished(&w);
    server_make("fresh");
    test_shell("$bin/pg_dump -h $dir -U postgres -n %s postgres | $bin/psql -q -v ON_ERROR_STOP=1 "
               "-h $dir/fresh-socket -U postgres postgres",
               t->schema);
    test_exec(u.open_append, "COMMIT"); /* too late for the dump: not part of the new log */

    store_options options = test_options(t);
    options.path = weir__str(server_url("fresh", "postgres"));
    w.s = test_store_with(t, &options);
    PGconn *fresh = server_connect(t, "fresh", "postgres");
    assert_int_equal(test_number(fresh, "SELECT count(*) FROM %s.events", t->schema), 81);
    /* The triggers that guard them came along, as they were. */
    test_exec(fresh, "SET session_replication_role = replica");
    assert_string_equal(test_refused(fresh, "DELETE FROM %s.events", t->schema), "P0001");
    test_exec(fresh, "RESET session_replication_role");
    log_goes_on(&w, &u);
    fences_go_on(&w, &u, fresh);
    put_many(&w, 30);
    route_all(&w, EVENTS_MAX);
    work_all(&w);
    handled_once(&w, fresh, u.parked_reaction, u.parked);
    nothing_is_wrong(t, w.s);
    test_store_close(t, w.s);
    test_disconnect(t, fresh);
    server_remove("fresh");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        PG_TEST(T10_a_restored_store_goes_on_where_the_dump_was_made),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
