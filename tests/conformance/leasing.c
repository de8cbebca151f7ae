/* leasing.c - C20 to C23: which targets can be leased, how many, in which order, and at what
 * cost. */
#include "kit.h"
#include "store/seed.h"

#include <stdio.h>
#include <stdlib.h>

/* A reaction "r" with a target per stream t-000, t-001, ... each with one event to handle. */
static store_reaction ready_targets(kit *k, size_t count)
{
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (size_t i = 0; i < count; i++) {
        kit_put(k, kit_text(k, "t-%03zu", i), "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    return r;
}

/* ---- C20 ---------------------------------------------------------------------------------- */

static void C20_a_target_without_work_is_not_leased(void **state)
{
    kit *k = *state;
    const store_reaction r = ready_targets(k, 1);
    const store_leased l = kit_lease_target(k, "lane", "t-000");
    KIT_OK(k, kit_settle(k, &l, r.id, l.subscriptions[0].mark, STORE_END_RELEASE));
    assert_int_equal(kit_target(k, "t-000")->state, STORE_TARGET_IDLE);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_put(k, "t-000", "A");
    assert_true(kit_nothing_to_lease(k, "lane")); /* not routed yet */
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    kit_lease_target(k, "lane", "t-000");
}

static void C20_a_blocked_target_is_not_leased(void **state)
{
    kit *k = *state;
    ready_targets(k, 1);
    const store_leased l = kit_lease_target(k, "lane", "t-000");
    const store_failure why = { .error = weir__str("because") };
    KIT_OK(k, kit_block(k, &l, &why));
    assert_int_equal(kit_target(k, "t-000")->state, STORE_TARGET_BLOCKED);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_advance(k, INT64_C(1000) * KIT_LEASE_US); /* time does not unblock */
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "t-000"), 1);
    kit_lease_target(k, "lane", "t-000");
}

static void C20_a_paused_target_is_not_leased(void **state)
{
    kit *k = *state;
    ready_targets(k, 2);
    assert_int_equal(kit_operate(k, STORE_PAUSE, "t-000"), 1);
    assert_int_equal(kit_target(k, "t-000")->state, STORE_TARGET_PAUSED);
    KIT_STR(kit_target(k, "t-000")->paused_by, "an operator");
    kit_lease_target(k, "lane", "t-001");
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_operate(k, STORE_RESUME, "t-000"), 1);
    kit_lease_target(k, "lane", "t-000");
}

static void C20_a_target_of_a_paused_lane_is_not_leased(void **state)
{
    kit *k = *state;
    ready_targets(k, 1);
    bool changed = false;
    const weir_str lane = weir__str("lane");
    const weir_str by = weir__str("me");
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, true, by, &changed, &k->err));
    assert_true(changed);
    assert_true(kit_nothing_to_lease(k, "lane"));
    assert_int_equal(kit_target(k, "t-000")->state, STORE_TARGET_PAUSED);
    KIT_OK(k, k->store->work->lane_pause(k->store, lane, false, by, &changed, &k->err));
    assert_true(changed);
    kit_lease_target(k, "lane", "t-000");
}

static void C20_a_deferred_target_is_leased_when_it_is_due(void **state)
{
    kit *k = *state;
    ready_targets(k, 1);
    store_leased l = kit_lease_target(k, "lane", "t-000");
    const int64_t due = kit_now(k) + 1000;
    KIT_OK(k, kit_defer(k, &l, due));
    assert_int_equal(kit_target(k, "t-000")->state, STORE_TARGET_DEFERRED);
    assert_int_equal(kit_target(k, "t-000")->due_us, due);
    kit_advance(k, 999);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_advance(k, 1);
    l = kit_lease_target(k, "lane", "t-000");
    assert_int_equal(kit_target(k, "t-000")->due_us, 0); /* taking it ends the deferral */
    KIT_OK(k, kit_release(k, &l));
    kit_lease_target(k, "lane", "t-000");
}

static void C20_a_target_is_leased_once_until_its_lease_ends(void **state)
{
    kit *k = *state;
    ready_targets(k, 1);
    const store_leased l = kit_lease_target(k, "lane", "t-000");
    assert_int_equal(l.until_us, kit_now(k) + KIT_LEASE_US);
    const store_target *t = kit_target(k, "t-000");
    assert_int_equal(t->state, STORE_TARGET_LEASED);
    KIT_STR(t->holder, "worker-1");
    assert_int_equal(t->leased_until_us, l.until_us);
    weir_store *other = kit_open(k);
    const store_lease_request r = kit_lease_request("lane", 1);
    store_lease_list *list = NULL;
    KIT_OK(k, kit_lease_with(k, other, &r, &list));
    assert_int_equal(list->leases_count, 0);
    kit_advance(k, KIT_LEASE_US - 1);
    KIT_OK(k, kit_lease_with(k, other, &r, &list));
    assert_int_equal(list->leases_count, 0);
    kit_advance(k, 1);
    KIT_OK(k, kit_lease_with(k, other, &r, &list));
    assert_int_equal(list->leases_count, 1);
    assert_true(list->leases[0].fence > l.fence);
}

static void C20_leases_are_of_one_lane(void **state)
{
    kit *k = *state;
    kit_declare(k, "r", "*", "a*", STORE_RULE_STREAM);
    kit_declare(k, "q", "*", "b*", STORE_RULE_STREAM);
    kit_put(k, "a", "A");
    kit_put(k, "b", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "fast", 0));
    KIT_OK(k, kit_route(k, k->store, "q", "", "slow", 0));
    assert_true(kit_nothing_to_lease(k, "other"));
    assert_int_equal(kit_lease(k, "fast", 10)->leases_count, 1);
    kit_lease_target(k, "slow", "b");
}

static void C20_only_known_reactions_in_their_current_definition_count(void **state)
{
    kit *k = *state;
    const store_reaction a = kit_declare(k, "a", "*", "s-1", STORE_RULE_STREAM);
    const store_reaction b = kit_declare(k, "b", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s-1", "A");
    kit_put(k, "s-2", "A");
    KIT_OK(k, kit_route(k, k->store, "a", "", "lane", 0));
    KIT_OK(k, kit_route(k, k->store, "b", "", "lane", 0));
    store_lease_request r = kit_lease_request("lane", 10);
    store_lease_list *list = NULL;
    store_known_reaction known[] = { { .reaction = a.id, .number = 1 },
                                     { .reaction = b.id, .number = 1 } };
    r.all_reactions = false;
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list)); /* knows nothing */
    assert_int_equal(list->leases_count, 0);
    r.known = known;
    r.known_count = 1;
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
    assert_int_equal(list->leases_count, 1);
    KIT_STR(list->leases[0].name, "s-1");
    assert_int_equal(list->leases[0].subscriptions_count, 1);
    assert_int_equal(list->leases[0].subscriptions[0].reaction, a.id);
    KIT_OK(k, kit_release(k, &list->leases[0]));
    r.known_count = 2;
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
    assert_int_equal(list->leases_count, 2);
    for (size_t i = 0; i < 2; i++) {
        KIT_OK(k, kit_release(k, &list->leases[i]));
    }
    /* Somebody declares b anew: who knows the old definition leaves it alone. */
    kit_declare(k, "b", "A", "*", STORE_RULE_STREAM);
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
    assert_int_equal(list->leases_count, 1);
    KIT_STR(list->leases[0].name, "s-1");
    assert_int_equal(list->leases[0].subscriptions_count, 1);
    known[1].number = 2;
    KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
    assert_int_equal(list->leases_count, 1);
    KIT_STR(list->leases[0].name, "s-2");
}

/* ---- C21 ---------------------------------------------------------------------------------- */

static void C21_leasing_n_gives_n_while_there_are_as_many(void **state)
{
    kit *k = *state;
    ready_targets(k, 25);
    /* Some in the way: blocked, paused, deferred, leased. */
    for (size_t i = 0; i < 8; i++) {
        const store_leased l = kit_lease(k, "lane", 1)->leases[0];
        const store_failure why = { .error = weir__str("x") };
        if (i % 4 == 0) {
            KIT_OK(k, kit_block(k, &l, &why));
        } else if (i % 4 == 1) {
            KIT_OK(k, kit_defer(k, &l, INT64_MAX / 2));
        } else if (i % 4 == 2) {
            kit_operate(k, STORE_PAUSE, kit_text(k, "%.*s", (int)l.name.len, l.name.ptr));
        }
    }
    assert_int_equal(kit_lease(k, "lane", 0)->leases_count, 0);
    bool seen[25] = { false };
    size_t total = 0;
    static const size_t asked[] = { 1, 5, 7, 100 };
    static const size_t given[] = { 1, 5, 7, 4 };
    for (size_t i = 0; i < 4; i++) {
        const store_lease_list *list = kit_lease(k, "lane", asked[i]);
        assert_int_equal(list->leases_count, given[i]);
        for (size_t j = 0; j < list->leases_count; j++) {
            size_t n = 0;
            assert_int_equal(
                sscanf(kit_text(k, "%.*s", (int)list->leases[j].name.len, list->leases[j].name.ptr),
                       "t-%zu", &n),
                1);
            assert_false(seen[n]);
            seen[n] = true;
            total++;
        }
    }
    assert_int_equal(total, 17);
}

enum { WORKERS = 4, TARGETS = 60, SLICE = 15 };

typedef struct workers {
    weir_store *stores[WORKERS];
    size_t counts[WORKERS];
    int64_t targets[WORKERS][SLICE];
    weir_status status[WORKERS];
} workers;

static void lease_slice(void *ctx, size_t index)
{
    workers *w = ctx;
    store_lease_list list = { 0 };
    weir_error err;
    const store_lease_request r = kit_lease_request("lane", SLICE);
    w->status[index] = w->stores[index]->work->turn(w->stores[index], NULL, 0, &r, &list, &err);
    w->counts[index] = list.leases_count;
    for (size_t i = 0; i < list.leases_count && i < SLICE; i++) {
        w->targets[index][i] = list.leases[i].target;
    }
    weir__arena_free(&list.arena);
}

static void C21_workers_at_once_all_get_full_slices(void **state)
{
    kit *k = *state;
    ready_targets(k, TARGETS);
    workers w = { 0 };
    for (size_t i = 0; i < WORKERS; i++) {
        w.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(WORKERS, lease_slice, &w);
    for (size_t i = 0; i < WORKERS; i++) {
        assert_int_equal(w.status[i], WEIR_OK);
        assert_int_equal(w.counts[i], SLICE);
        for (size_t j = 0; j < SLICE; j++) {
            for (size_t n = 0; n < WORKERS * SLICE; n++) {
                const bool same = n / SLICE == i && n % SLICE == j;
                assert_true(same || w.targets[n / SLICE][n % SLICE] != w.targets[i][j]);
            }
        }
    }
}

enum { TURNS = 40, HELD = 8 };

typedef struct holding {
    weir_store *stores[WORKERS];
    _Atomic int64_t holder[HELD]; /* per target: who is inside, 0: nobody */
    _Atomic size_t doubles;       /* two inside at once                   */
    _Atomic size_t failed, taken;
} holding;

static void hold_and_release(void *ctx, size_t index)
{
    holding *h = ctx;
    weir_store *s = h->stores[index];
    for (size_t turn = 0; turn < TURNS; turn++) {
        store_lease_list list = { 0 };
        weir_error err;
        const store_lease_request r = kit_lease_request("lane", 3);
        if (s->work->turn(s, NULL, 0, &r, &list, &err) != WEIR_OK) {
            atomic_fetch_add(&h->failed, 1);
        }
        for (size_t i = 0; i < list.leases_count; i++) {
            const size_t slot = (size_t)(list.leases[i].target % HELD);
            if (atomic_exchange(&h->holder[slot], (int64_t)index + 1) != 0) {
                atomic_fetch_add(&h->doubles, 1);
            }
            atomic_fetch_add(&h->taken, 1);
        }
        for (size_t i = 0; i < list.leases_count; i++) {
            store_fenced item = { .target = list.leases[i].target, .fence = list.leases[i].fence };
            atomic_store(&h->holder[list.leases[i].target % HELD], 0);
            if (s->work->extend(s, 0, &item, 1, &err) != WEIR_OK || item.status != WEIR_OK) {
                atomic_fetch_add(&h->failed, 1);
            }
        }
        weir__arena_free(&list.arena);
    }
}

static void C21_nobody_is_given_what_somebody_else_holds(void **state)
{
    kit *k = *state;
    ready_targets(k, 8);
    static holding h;
    memset(&h, 0, sizeof h);
    for (size_t i = 0; i < WORKERS; i++) {
        h.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(WORKERS, hold_and_release, &h);
    assert_int_equal(atomic_load(&h.failed), 0);
    assert_int_equal(atomic_load(&h.doubles), 0);
    assert_true(atomic_load(&h.taken) > WORKERS * TURNS);
    assert_int_equal(kit_lease(k, "lane", 100)->leases_count, 8);
    kit_check(k);
}

/* ---- C22 ---------------------------------------------------------------------------------- */

/* Targets by hand: name, priority and where they are. */
static void place(kit *k, const char *name, int64_t priority, int64_t watermark)
{
    KIT_OK(k, kit_mark(k, "r", name, "lane", priority, watermark + 1, watermark + 1));
    assert_int_equal(kit_target(k, name)->watermark, watermark);
}

static void leased_are(kit *k, const store_lease_request *r, const char *names)
{
    store_lease_list *list = NULL;
    KIT_OK(k, kit_lease_with(k, k->store, r, &list));
    char got[256] = "";
    size_t len = 0;
    for (size_t i = 0; i < list->leases_count; i++) {
        len += (size_t)snprintf(got + len, sizeof got - len, "%.*s ", (int)list->leases[i].name.len,
                                list->leases[i].name.ptr);
        KIT_OK(k, kit_release(k, &list->leases[i]));
    }
    assert_string_equal(got, names);
}

enum { RANK = 1 << STORE_RANK_SHIFT };

static void C22_priority_comes_first_then_the_most_lagging(void **state)
{
    kit *k = *state;
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    place(k, "current", 0, 9 * RANK);
    place(k, "lagging", 0, 1 * RANK);
    place(k, "high", 5, 8 * RANK);
    place(k, "low", -5, 0);
    place(k, "higher", 5, 7 * RANK);
    store_lease_request r = kit_lease_request("lane", 10);
    leased_are(k, &r, "higher high lagging current low ");
    r.limit = 3;
    leased_are(k, &r, "higher high lagging ");
}

static void C22_watermarks_count_to_within_32(void **state)
{
    kit *k = *state;
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    place(k, "first", 0, 4 * RANK + 30); /* created first: the lower id */
    place(k, "second", 0, 4 * RANK + 3);
    place(k, "third", 0, 4 * RANK - 1);
    const store_lease_request r = kit_lease_request("lane", 10);
    leased_are(k, &r, "third first second ");
}

static void C22_a_reserve_ignores_priority(void **state)
{
    kit *k = *state;
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    place(k, "a", 9, 10 * RANK);
    place(k, "b", 9, 11 * RANK);
    place(k, "c", 9, 12 * RANK);
    place(k, "poor", 0, 2 * RANK);
    place(k, "poorer", 0, 1 * RANK);
    store_lease_request r = kit_lease_request("lane", 3);
    leased_are(k, &r, "a b c ");
    r.reserve = 1;
    leased_are(k, &r, "a b poorer ");
    r.reserve = 2;
    leased_are(k, &r, "a poorer poor ");
}

static void C22_a_leading_share_keeps_the_most_current_current(void **state)
{
    kit *k = *state;
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    place(k, "old-1", 5, 1 * RANK);
    place(k, "old-2", 5, 2 * RANK);
    place(k, "old-3", 5, 3 * RANK);
    place(k, "active", 0, 50 * RANK);
    place(k, "newest", 0, 60 * RANK);
    store_lease_request r = kit_lease_request("lane", 3);
    leased_are(k, &r, "old-1 old-2 old-3 ");
    r.leading = 1;
    leased_are(k, &r, "old-1 old-2 newest ");
    r.leading = 2;
    leased_are(k, &r, "old-1 active newest ");
    r.leading = 1;
    r.reserve = 1;
    r.limit = 2;
    leased_are(k, &r, "old-1 newest ");
}

static void C22_targets_that_became_due_take_their_place_by_priority(void **state)
{
    kit *k = *state;
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    place(k, "due", 3, 1 * RANK);
    const store_leased l = kit_lease_target(k, "lane", "due");
    KIT_OK(k, kit_defer(k, &l, kit_now(k) + 5));
    place(k, "ready", 1, 1 * RANK);
    place(k, "urgent", 7, 1 * RANK);
    const store_lease_request r = kit_lease_request("lane", 10);
    leased_are(k, &r, "urgent ready ");
    kit_advance(k, 5);
    leased_are(k, &r, "urgent due ready ");
}

static void C22_the_order_inside_a_target_is_the_order_of_events(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int i = 0; i < 5; i++) {
        kit_put(k, "s", "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_operate op = kit_operate_of(k, STORE_PRIORITIZE, "s");
    op.priority = 100;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    int64_t at = 0;
    for (int i = 0; i < 5; i++) {
        const store_leased l = kit_lease_target(k, "lane", "s");
        int64_t ids[1];
        assert_int_equal(l.subscriptions[0].at, at);
        assert_int_equal(kit_fetch(k, l.target, r.id, at, l.subscriptions[0].mark, ids, 1), 1);
        assert_int_equal(ids[0], at + 1);
        at = ids[0];
        KIT_OK(k, kit_settle(k, &l, r.id, at, STORE_END_RELEASE));
    }
    assert_true(kit_nothing_to_lease(k, "lane"));
}

/* ---- C23 ---------------------------------------------------------------------------------- */

typedef struct measure {
    kit *k;
    bool native;
    uint64_t steps;
} measure;

static weir_status read_steps(void *ctx, void *native, weir_error *err)
{
    measure *m = ctx;
    (void)err;
    m->native = native != NULL;
    if (m->native) {
        m->steps = m->k->adapter->steps(m->k->store, native);
    }
    return WEIR_OK;
}

/* The store's steps so far, looked up through the handle that the caller's own SQL gets. */
static uint64_t steps_now(kit *k, const store_leased *gauge)
{
    measure m = { .k = k };
    store_settle settle = kit_settle_of(gauge, STORE_END_KEEP);
    settle.lease_us = INT64_C(1000) * KIT_LEASE_US;
    settle.sql = read_steps;
    settle.sql_ctx = &m;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    return m.native ? m.steps : k->adapter->steps(k->store, NULL);
}

/* Steps of leasing ten targets and of handing them back. */
static uint64_t lease_cost(kit *k, const store_leased *gauge, size_t expected)
{
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 3; round++) {
        const uint64_t before = steps_now(k, gauge);
        store_lease_request r = kit_lease_request("lane", 10);
        r.reserve = 2;
        r.leading = 2;
        store_lease_list *list = NULL;
        KIT_OK(k, kit_lease_with(k, k->store, &r, &list));
        const uint64_t steps = steps_now(k, gauge) - before;
        assert_int_equal(list->leases_count, expected);
        for (size_t i = 0; i < list->leases_count; i++) {
            KIT_OK(k, kit_release(k, &list->leases[i]));
        }
        best = steps < best ? steps : best;
    }
    return best;
}

/* Marks `count` more targets named n-... in lane `lane`, all behind. */
static void many_targets(kit *k, const store_reaction *r, size_t from, size_t count)
{
    enum { BATCH = 1000 };
    store_mark *marks = calloc(BATCH, sizeof *marks);
    char(*names)[24] = calloc(BATCH, sizeof *names);
    assert_non_null(marks);
    assert_non_null(names);
    for (size_t done = 0; done < count; done += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            snprintf(names[i], sizeof names[i], "n-%zu", from + done + i);
            marks[i] = (store_mark){ .target = weir__str(names[i]),
                                     .lane = weir__str("lane"),
                                     .priority = (int64_t)(i % 3),
                                     .source = weir__str(names[i]),
                                     .value = weir__str(names[i]),
                                     .first = 1 + (int64_t)(i % 7) * RANK,
                                     .last = 1 + (int64_t)(i % 7) * RANK };
        }
        const int64_t routed = kit_reaction(k, "r").routed;
        const store_route_step step = {
            .reaction = r->id, .number = 1, .from = routed, .to = routed
        };
        const store_route route = {
            .steps = &step, .steps_count = 1, .marks = marks, .marks_count = BATCH
        };
        KIT_OK(k, k->store->work->route(k->store, &route, NULL, &k->err));
    }
    free(names);
    free(marks);
}

enum { FEW = 1000, MANY = 24000 };

static void cost_is_flat(kit *k, store_verb held, bool defer)
{
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    KIT_OK(k, kit_mark(k, "r", "gauge", "gauges", 0, 1, 1));
    const store_leased gauge = kit_lease_target(k, "gauges", "gauge");
    store_operate op = { .verb = held, .by = weir__str("me") };
    uint64_t costs[2];
    size_t targets = 0;
    for (size_t i = 0; i < 2; i++) {
        many_targets(k, &r, targets, i == 0 ? FEW : MANY - FEW);
        targets = i == 0 ? FEW : MANY;
        if (defer) {
            size_t leased = 0;
            do {
                const store_lease_list *list = kit_lease(k, "lane", STORE_LEASE_TARGETS_MAX);
                leased = list->leases_count;
                for (size_t j = 0; j < leased; j++) {
                    KIT_OK(k, kit_defer(k, &list->leases[j], INT64_MAX / 2));
                }
            } while (leased > 0);
        } else if (held != STORE_UNBLOCK) {
            op.filter.lane = weir__str("lane");
            KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
        }
        if (k->adapter->tidy != NULL) {
            k->adapter->tidy(k->place);
        }
        costs[i] = lease_cost(k, &gauge, defer || held != STORE_UNBLOCK ? 0 : 10);
    }
    /* 24 times the targets: a cost that grew with them would be 24 times as high. Trees may be one
     * level deeper. */
    if (costs[1] > 2 * costs[0] + 64) {
        print_error("leasing took %llu steps with %d targets and %llu with %d\n",
                    (unsigned long long)costs[0], FEW, (unsigned long long)costs[1], MANY);
    }
    assert_true(costs[1] <= 2 * costs[0] + 64);
    assert_true(costs[0] > 0 || held != STORE_UNBLOCK);
}

static void C23_leasing_costs_the_same_with_everything_ready(void **state)
{
    cost_is_flat(*state, STORE_UNBLOCK, false);
}

static void C23_leasing_costs_the_same_with_everything_held(void **state)
{
    cost_is_flat(*state, STORE_PAUSE, false);
}

static void C23_leasing_costs_the_same_with_everything_deferred(void **state)
{
    cost_is_flat(*state, STORE_UNBLOCK, true);
}

kit_theme kit_leasing(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C20_a_target_without_work_is_not_leased),
        KIT_TEST(C20_a_blocked_target_is_not_leased),
        KIT_TEST(C20_a_paused_target_is_not_leased),
        KIT_TEST(C20_a_target_of_a_paused_lane_is_not_leased),
        KIT_TEST(C20_a_deferred_target_is_leased_when_it_is_due),
        KIT_TEST(C20_a_target_is_leased_once_until_its_lease_ends),
        KIT_TEST(C20_leases_are_of_one_lane),
        KIT_TEST(C20_only_known_reactions_in_their_current_definition_count),
        KIT_TEST(C21_leasing_n_gives_n_while_there_are_as_many),
        KIT_TEST(C21_workers_at_once_all_get_full_slices),
        KIT_TEST(C21_nobody_is_given_what_somebody_else_holds),
        KIT_TEST(C22_priority_comes_first_then_the_most_lagging),
        KIT_TEST(C22_watermarks_count_to_within_32),
        KIT_TEST(C22_a_reserve_ignores_priority),
        KIT_TEST(C22_a_leading_share_keeps_the_most_current_current),
        KIT_TEST(C22_targets_that_became_due_take_their_place_by_priority),
        KIT_TEST(C22_the_order_inside_a_target_is_the_order_of_events),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}

kit_theme kit_counted(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C23_leasing_costs_the_same_with_everything_ready),
        KIT_TEST(C23_leasing_costs_the_same_with_everything_held),
        KIT_TEST(C23_leasing_costs_the_same_with_everything_deferred),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
