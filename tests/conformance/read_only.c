/* read_only.c - P09: a handle that was opened for reading alone reads everything and changes
 * nothing: every verb that would is refused, whatever the database would allow.
 */
#include "kit.h"

static weir_store *reader_of(kit *k)
{
    store_options options = kit_options(k);
    options.open_flags = WEIR_OPEN_READONLY;
    return kit_open_with(k, &options);
}

#define REFUSED(k, call)                                                                           \
    do {                                                                                           \
        KIT_IS(k, call, WEIR_EMISUSE);                                                             \
        assert_string_equal((k)->err.message, "the store was opened for reading only");            \
        (k)->err = (weir_error){ 0 };                                                              \
    } while (0)

static void refuse_writers(kit *k, weir_store *s)
{
    kit_append a;
    const store_snapshot snapshot = { .stream = weir__str("t-1"), .data = weir__str("x") };
    store_append *append = &a.append;

    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "t-1", WEIR_EXPECT_ANY, 0), "A", "{}");
    REFUSED(k, s->log->append(s, &append, 1, &k->err));
    if (s->log->append_in != NULL) {
        int nobody = 0; /* a connection that must not be touched */
        REFUSED(k, s->log->append_in(s, &nobody, append, &k->err));
    }
    REFUSED(k, s->log->snapshot_put(s, &snapshot, &k->err));
    REFUSED(k, s->log->snapshot_drop(s, weir__str("t"), weir__str("1"), NULL, &k->err));
}

static void refuse_routers(kit *k, weir_store *s, const store_reaction *r)
{
    store_reaction out = { 0 };
    const store_reaction_declaration d = { .name = weir__str("new"),
                                           .all_names = true,
                                           .source = weir__str("*") };
    store_router_lease item = { .reaction = r->id };
    const store_route_step step = {
        .reaction = r->id, .number = r->number, .from = r->routed, .to = r->routed
    };
    const store_route route = { .steps = &step, .steps_count = 1 };

    REFUSED(k, s->work->declare(s, &d, &k->arena, &out, &k->err));
    REFUSED(k, s->work->retire(s, r->name, &k->err));
    REFUSED(k, s->work->router_lease(s, weir__str("me"), KIT_LEASE_US, &item, 1, &k->err));
    REFUSED(k, s->work->route(s, &route, NULL, &k->err));
}

static void refuse_workers(kit *k, weir_store *s, const store_leased *l)
{
    store_lease_list list = { 0 };
    const store_lease_request request = kit_lease_request("lane", 1);
    store_settle settle = kit_settle_of(l, STORE_END_RELEASE);
    store_fenced item = { .target = l->target, .fence = l->fence };
    const store_worker worker = { .name = weir__str("w"), .host = weir__str("h") };

    REFUSED(k, s->work->turn(s, NULL, 0, &request, &list, &k->err));
    REFUSED(k, s->work->settle(s, &settle, &k->err));
    REFUSED(k, s->work->extend(s, KIT_LEASE_US, &item, 1, &k->err));
    REFUSED(k, s->work->extend(s, 0, &item, 1, &k->err));
    REFUSED(k, s->about->worker_beat(s, &worker, KIT_LEASE_US, &k->err));
    REFUSED(k, s->about->worker_beat(s, &worker, 0, &k->err));
    store_settle *const settles[] = { &settle };
    REFUSED(k, s->work->turn(s, settles, 1, &request, &list, &k->err));
    weir__arena_free(&list.arena);
}

static void refuse_locks(kit *k, weir_store *s)
{
    const weir_str name = weir__str("n");
    const weir_str me = weir__str("me");
    store_lock lock = { 0 };
    store_lock once = { 0 };
    REFUSED(k, s->locks->take(s, &(store_lock_request){ STORE_LOCK, name, me, KIT_LEASE_US },
                              &k->arena, &lock, &k->err));
    REFUSED(k, s->locks->extend(s, STORE_LOCK, name, 1, 0, KIT_LEASE_US, &k->err));
    REFUSED(k, s->locks->release(s, name, 1, 0, &k->err));
    REFUSED(k, s->locks->take(s, &(store_lock_request){ STORE_ONCE, name, me, KIT_LEASE_US },
                              &k->arena, &once, &k->err));
    REFUSED(k, s->locks->extend(s, STORE_ONCE, name, 1, 0, KIT_LEASE_US, &k->err));
    REFUSED(k, s->locks->finish(s, name, 1, 0, 0, me, &k->err));
    REFUSED(k, s->locks->forget(s, name, &k->err));
}

static void refuse_operators(kit *k, weir_store *s, int64_t parked)
{
    static const store_verb verbs[] = { STORE_UNBLOCK,    STORE_RESET, STORE_SKIP,
                                        STORE_PRIORITIZE, STORE_PAUSE, STORE_RESUME };
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        store_operate op = kit_operate_of(k, verbs[i], "t-1");
        REFUSED(k, s->work->operate(s, &op, &k->err));
    }
    REFUSED(k, s->work->lane_pause(s, weir__str("lane"), true, weir__str("me"), NULL, &k->err));
    REFUSED(k, s->work->parked_change(s, parked, STORE_PARKED_RETRY, &k->err));
    REFUSED(k, s->work->parked_change(s, parked, STORE_PARKED_DROP, &k->err));
}

/* What an operator sees, in one text. */
static const char *seen(kit *k)
{
    const store_target *t = kit_target(k, "t-1");
    const store_reaction r = kit_reaction(k, "r");
    return kit_text(k, "%lld %lld %lld %d %d %d %lld %d %zu", (long long)kit_head(k),
                    (long long)t->fence, (long long)t->watermark, (int)t->state, (int)t->paused,
                    (int)t->prioritized, (long long)r.router_fence, (int)r.retired,
                    kit_parked(k).parked_count);
}

static void P09_a_handle_for_reading_changes_nothing(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    const int64_t first = kit_put(k, "t-1", "A");
    kit_put(k, "t-1", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    assert_int_equal(kit_operate(k, STORE_SKIP, "t-1"), 1); /* parks the first */
    const store_leased l = kit_lease_target(k, "lane", "t-1");
    const store_parked_chunk parked = kit_parked(k);
    assert_int_equal(parked.parked_count, 1);
    assert_int_equal(parked.parked[0].event, first);
    const char *before = seen(k);

    weir_store *s = reader_of(k);
    const store_reaction now = kit_reaction(k, "r");
    assert_int_equal(now.id, r.id);
    refuse_writers(k, s);
    refuse_routers(k, s, &now);
    refuse_workers(k, s, &l);
    refuse_operators(k, s, parked.parked[0].id);
    refuse_locks(k, s);
    assert_string_equal(seen(k), before);
    KIT_OK(k, kit_release(k, &l)); /* it is still held, by who had it */
    kit_check(k);
}

static void P09_a_handle_for_reading_reads(void **state)
{
    kit *k = *state;
    store_worker_list workers = { 0 };
    store_lane_list lanes = { 0 };
    store_lock_list locks = { 0 };
    store_lock lock = { 0 };
    store_chunk chunk = { 0 };
    const store_log_query q = { .to = INT64_MAX, .limit = 10 };
    const store_worker worker = { .name = weir__str("w"), .host = weir__str("h") };

    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "t-1", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    KIT_OK(k, k->store->about->worker_beat(k->store, &worker, KIT_LEASE_US, &k->err));
    KIT_OK(k, k->store->locks->take(k->store,
                                    &(store_lock_request){ STORE_LOCK, weir__str("n"),
                                                           weir__str("me"), KIT_LEASE_US },
                                    &k->arena, &lock, &k->err));
    weir_store *s = reader_of(k);
    KIT_OK(k, s->log->read_log(s, &q, &chunk, &k->err));
    assert_int_equal(chunk.events_count, 1);
    KIT_OK(k, s->about->workers(s, &workers, &k->err));
    assert_int_equal(workers.workers_count, 1);
    KIT_OK(k, s->work->lanes(s, &lanes, &k->err));
    assert_int_equal(lanes.lanes_count, 1);
    KIT_OK(k, s->locks->list(s, &locks, &k->err));
    assert_int_equal(locks.locks_count, 1);
    weir__chunk_free(&chunk);
    weir__arena_free(&locks.arena);
    weir__arena_free(&workers.arena);
    weir__arena_free(&lanes.arena);
}

kit_theme kit_read_only(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(P09_a_handle_for_reading_changes_nothing),
        KIT_TEST(P09_a_handle_for_reading_reads),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
