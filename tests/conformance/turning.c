/* turning.c - TURN of store.h: what was settled and what is leased in one transaction. Each test is
 * named after the guarantee that a turn has to keep as its parts do: C20 to C26 and C33. */
#include "kit.h"
#include "store/seed.h"

#include <stdio.h>

enum { TARGETS_MAX = 64 };

/* Settles of one turn, each with one advance. */
typedef struct turn {
    store_advance advances[TARGETS_MAX];
    store_settle settles[TARGETS_MAX];
    store_settle *pointers[TARGETS_MAX];
    size_t count;
    store_lease_list list; /* what was leased */
} turn;

static store_settle *turn_add(turn *t, const store_leased *l, int64_t reaction, int64_t to)
{
    assert_true(t->count < TARGETS_MAX);
    const size_t i = t->count++;
    t->advances[i] = (store_advance){ .reaction = reaction, .to = to };
    t->settles[i] = kit_settle_of(l, STORE_END_RELEASE);
    t->settles[i].advances = &t->advances[i];
    t->settles[i].advances_count = 1;
    t->settles[i].status = WEIR_EMISUSE; /* nobody's answer */
    t->pointers[i] = &t->settles[i];
    return &t->settles[i];
}

/* lease NULL: none. What was leased is in t->list. */
static weir_status turn_run(kit *k, weir_store *s, turn *t, const store_lease_request *lease)
{
    store_lease_list list = { 0 };
    const weir_status status = s->work->turn(s, t->pointers, t->count, lease, &list, &k->err);
    t->list = (store_lease_list){ .leases = list.leases, .leases_count = list.leases_count };
    kit_keep(k, &list.arena);
    return status;
}

/* A reaction "r" and targets t-00, t-01, ... with `events` events to handle each; the positions of
 * target i's are in ids[i * events] and after. */
static store_reaction targets_with(kit *k, size_t count, size_t events, int64_t *ids)
{
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (size_t n = 0; n < events; n++) {
        for (size_t i = 0; i < count; i++) {
            ids[i * events + n] = kit_put(k, kit_text(k, "t-%02zu", i), "A");
        }
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    return r;
}

static void leased_are(const turn *t, const char *names)
{
    char got[512] = "";
    size_t len = 0;
    for (size_t i = 0; i < t->list.leases_count; i++) {
        const weir_str name = t->list.leases[i].name;
        len += (size_t)snprintf(got + len, sizeof got - len, "%.*s ", (int)name.len, name.ptr);
    }
    assert_string_equal(got, names);
}

/* ---- C20, C21, C22: the lease of a turn ------------------------------------------------------ */

static void C20_a_turn_leases_what_it_has_freed(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[4];
    const store_reaction r = targets_with(k, 2, 2, ids);
    const store_lease_list *held = kit_lease(k, "lane", 10);
    assert_int_equal(held->leases_count, 2);
    const store_settle *partly = turn_add(&t, &held->leases[0], r.id, ids[0]);
    const store_settle *done = turn_add(&t, &held->leases[1], r.id, ids[3]);
    const store_lease_request lease = kit_lease_request("lane", 10);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(partly->status, WEIR_OK);
    assert_true(partly->behind);
    assert_int_equal(done->status, WEIR_OK);
    assert_false(done->behind);
    leased_are(&t, "t-00 ");
    const store_leased *again = &t.list.leases[0];
    assert_true(again->fence > held->leases[0].fence);
    assert_int_equal(again->until_us, kit_now(k) + KIT_LEASE_US);
    assert_int_equal(again->lost, 0); /* it was given back */
    assert_int_equal(again->subscriptions_count, 1);
    assert_int_equal(again->subscriptions[0].at, ids[0]);
    assert_int_equal(again->subscriptions[0].mark, ids[1]);
    assert_int_equal(kit_target(k, "t-00")->state, STORE_TARGET_LEASED);
    assert_int_equal(kit_target(k, "t-01")->state, STORE_TARGET_IDLE);
    KIT_OK(k, kit_settle(k, again, r.id, ids[1], STORE_END_RELEASE));
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_check(k);
}

static void C20_a_turn_leases_nothing_that_leasing_would_not(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[8];
    const store_reaction r = targets_with(k, 4, 2, ids);
    const store_reaction other = kit_declare(k, "other", "*", "t-03", STORE_RULE_STREAM);
    KIT_OK(k, kit_route(k, k->store, "other", "", "lane", 0));
    const store_lease_list *held = kit_lease(k, "lane", 3);
    assert_int_equal(held->leases_count, 3);
    kit_operate(k, STORE_PAUSE, "t-01");
    turn_add(&t, &held->leases[0], r.id, ids[0]);
    turn_add(&t, &held->leases[1], r.id, ids[2]);
    store_lease_request lease = kit_lease_request("lane", 10);
    const store_known_reaction known = { .reaction = other.id, .number = 1 };
    lease.all_reactions = false;
    lease.known = &known;
    lease.known_count = 1;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "t-03 "); /* its only known one */
    assert_int_equal(t.list.leases[0].subscriptions_count, 1);
    t.count = 0;
    lease = kit_lease_request("lane", 10);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "t-00 "); /* t-01 is paused, t-02 and t-03 are held */

    bool changed = false;
    KIT_OK(k, k->store->work->lane_pause(k->store, weir__str("lane"), true, weir__str("me"),
                                         &changed, &k->err));
    const store_leased last = t.list.leases[0];
    const store_settle *settle = turn_add(&t, &last, r.id, ids[0]);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    leased_are(&t, "");
}

static void C21_a_turn_without_a_lease_settles_and_one_without_settles_leases(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[6];
    const store_reaction r = targets_with(k, 3, 2, ids);
    store_lease_request lease = kit_lease_request("lane", 2);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "t-00 t-01 "); /* at most `limit` */
    const store_leased held[] = { t.list.leases[0], t.list.leases[1] };
    const store_settle *first = turn_add(&t, &held[0], r.id, ids[0]);
    KIT_OK(k, turn_run(k, k->store, &t, NULL));
    leased_are(&t, "");
    assert_int_equal(first->status, WEIR_OK);
    assert_int_equal(kit_target(k, "t-00")->state, STORE_TARGET_READY);
    t.count = 0;
    const store_settle *second = turn_add(&t, &held[1], r.id, ids[3]);
    lease.limit = 0;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "");
    assert_int_equal(second->status, WEIR_OK);
    assert_false(second->behind);
    t.count = 0;
    KIT_OK(k, turn_run(k, k->store, &t, NULL));
    leased_are(&t, "");
    lease.limit = 10;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "t-00 t-02 ");
}

static void C22_a_turn_leases_in_the_order_of_leasing(void **state)
{
    enum { RANK = 1 << STORE_RANK_SHIFT };
    kit *k = *state;
    turn t = { 0 };
    KIT_OK(k, weir__store_seed(k->store, INT64_C(100) * RANK, 0, &k->err));
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    static const struct {
        const char *name;
        int64_t priority, rank;
    } places[] = {
        { "a", 9, 10 }, { "b", 9, 11 }, { "c", 9, 12 }, { "poor", 0, 2 }, { "newest", 0, 60 }
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int64_t first = places[i].rank * RANK + 1;
        KIT_OK(k, kit_mark(k, "r", places[i].name, "lane", places[i].priority, first, 99 * RANK));
    }
    const store_leased held = kit_lease_target(k, "lane", "a");
    turn_add(&t, &held, r.id, 40 * RANK); /* from the first of its priority to the last */
    store_lease_request lease = kit_lease_request("lane", 4);
    lease.leading = 1;
    lease.reserve = 1;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "b c poor newest ");
    lease = kit_lease_request("lane", 4);
    t.count = 0;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    leased_are(&t, "a ");
    assert_int_equal(t.list.leases[0].watermark, 40 * RANK);
}

/* A target moves by one event a turn, so that this many are enough for any of them. */
enum { WORKERS = 4, TURNS = 60, SHARED = 12, EVENTS = WORKERS * (TURNS + 1) };

typedef struct turning {
    weir_store *stores[WORKERS];
    int64_t reaction;
    _Atomic int64_t holder[SHARED + 1]; /* per target's id: who is inside, 0: nobody */
    _Atomic size_t doubles, failed, lost, handled;
} turning;

/* What one worker has, and how it ends it. */
static void worker_add(turning *w, turn *t, const store_leased *l, size_t index)
{
    const store_leased_subscription *sub = &l->subscriptions[0];
    if (atomic_exchange(&w->holder[l->target], 0) != (int64_t)index + 1) {
        atomic_fetch_add(&w->doubles, 1);
    }
    atomic_fetch_add(&w->handled, 1);
    const size_t i = t->count++;
    t->advances[i] = (store_advance){ .reaction = w->reaction, .to = sub->at + 1 };
    t->settles[i] = (store_settle){ .target = l->target,
                                    .fence = l->fence,
                                    .advances = &t->advances[i],
                                    .advances_count = 1,
                                    .status = WEIR_EMISUSE };
    t->pointers[i] = &t->settles[i];
}

/* Turns, and in between what else is done to leases: extending, settling alone. */
static void take_turns(void *ctx, size_t index)
{
    turning *w = ctx;
    weir_store *s = w->stores[index];
    store_lease_list list = { 0 };
    const store_lease_request lease = kit_lease_request("lane", 4);
    for (size_t n = 0; n <= TURNS; n++) {
        turn t = { 0 };
        weir_error err;
        for (size_t i = 0; i < list.leases_count; i++) {
            store_fenced item = { .target = list.leases[i].target, .fence = list.leases[i].fence };
            if (s->work->extend(s, KIT_LEASE_US, &item, 1, &err) != WEIR_OK ||
                item.status != WEIR_OK) {
                atomic_fetch_add(&w->lost, 1);
            }
            worker_add(w, &t, &list.leases[i], index);
        }
        if (t.count > 0 && n % 3 == 0) {
            t.count--;
            if (s->work->settle(s, t.pointers[t.count], &err) != WEIR_OK) {
                atomic_fetch_add(&w->lost, 1);
            }
        }
        if (s->work->turn(s, t.pointers, t.count, n == TURNS ? NULL : &lease, &list, &err) !=
            WEIR_OK) {
            atomic_fetch_add(&w->failed, 1);
        }
        for (size_t i = 0; i < t.count; i++) {
            if (t.settles[i].status != WEIR_OK) {
                atomic_fetch_add(&w->lost, 1);
            }
        }
        for (size_t i = 0; i < list.leases_count; i++) {
            if (atomic_exchange(&w->holder[list.leases[i].target], (int64_t)index + 1) != 0) {
                atomic_fetch_add(&w->doubles, 1);
            }
        }
    }
    weir__arena_free(&list.arena);
}

static void C21_turns_at_once_give_no_target_to_two(void **state)
{
    kit *k = *state;
    static turning w;
    memset(&w, 0, sizeof w);
    w.reaction = kit_declare(k, "r", "*", "*", STORE_RULE_STREAM).id;
    for (int i = 0; i < EVENTS; i++) {
        kit_put(k, "s", "A");
    }
    for (size_t i = 0; i < SHARED; i++) {
        KIT_OK(k, kit_mark(k, "r", kit_text(k, "t-%02zu", i), "lane", 0, 1, EVENTS));
        assert_in_range(kit_target(k, kit_text(k, "t-%02zu", i))->id, 1, SHARED);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        w.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(WORKERS, take_turns, &w);
    assert_int_equal(atomic_load(&w.failed), 0);
    assert_int_equal(atomic_load(&w.lost), 0);
    assert_int_equal(atomic_load(&w.doubles), 0);
    /* Every handling moved one target by one: nothing was handled twice or lost. */
    int64_t moved = 0;
    for (size_t i = 0; i < SHARED; i++) {
        moved += kit_subscription(k, kit_text(k, "t-%02zu", i), w.reaction)->at;
    }
    assert_true(moved > WORKERS * TURNS);
    assert_int_equal(moved, atomic_load(&w.handled));
    assert_int_equal(kit_lease(k, "lane", 100)->leases_count, SHARED);
    kit_check(k);
}

/* ---- C24, C25, C26, C33: the settles of a turn ----------------------------------------------- */

static void C24_a_turn_answers_each_by_its_own_fence(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[10];
    const store_reaction r = targets_with(k, 5, 2, ids);
    const store_lease_list *held = kit_lease(k, "lane", 5);
    assert_int_equal(held->leases_count, 5);
    KIT_OK(k, kit_release(k, &held->leases[1])); /* given back already */
    assert_int_equal(kit_operate(k, STORE_SKIP, "t-02"), 1);
    const int64_t taken_away = kit_target(k, "t-02")->fence;

    const store_settle *first = turn_add(&t, &held->leases[0], r.id, ids[0]);
    const store_settle *back = turn_add(&t, &held->leases[1], r.id, ids[3]);
    const store_settle *stale = turn_add(&t, &held->leases[2], r.id, ids[5]);
    const store_leased nobody = { .target = 987654, .fence = 1 };
    const store_settle *none = turn_add(&t, &nobody, r.id, ids[0]);
    /* One of its two subscriptions is not there, and that is found after the first. */
    store_settle *half = turn_add(&t, &held->leases[3], r.id, ids[7]);
    const store_advance both[] = { { .reaction = r.id, .to = ids[7] },
                                   { .reaction = r.id + 999, .to = ids[7] } };
    half->advances = both;
    half->advances_count = 2;
    const store_settle *last = turn_add(&t, &held->leases[4], r.id, ids[9]);
    KIT_OK(k, turn_run(k, k->store, &t, NULL));

    assert_int_equal(first->status, WEIR_OK);
    assert_int_equal(back->status, WEIR_ELOST);
    assert_int_equal(stale->status, WEIR_ELOST);
    assert_int_equal(none->status, WEIR_ENOTFOUND);
    assert_int_equal(half->status, WEIR_ENOTFOUND);
    assert_int_equal(last->status, WEIR_OK);
    static const size_t handled[] = { 1, 0, 1, 0, 2 }; /* t-02: its first was skipped */
    for (size_t i = 0; i < 5; i++) {
        const store_subscription *sub = kit_subscription(k, kit_text(k, "t-%02zu", i), r.id);
        assert_int_equal(sub->at, handled[i] == 0 ? ids[i * 2] - 1 : ids[i * 2 + handled[i] - 1]);
    }
    assert_int_equal(kit_target(k, "t-02")->fence, taken_away);
    const store_target *kept = kit_target(k, "t-03");
    assert_int_equal(kept->state, STORE_TARGET_LEASED); /* its holder can still settle it */
    assert_int_equal(kept->fence, held->leases[3].fence);
    KIT_OK(k, kit_settle(k, &held->leases[3], r.id, ids[7], STORE_END_RELEASE));
    kit_check(k);
}

static void C24_what_was_lost_to_another_is_not_settled_by_a_turn(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[2];
    const store_reaction r = targets_with(k, 1, 2, ids);
    const store_leased slow = kit_lease_target(k, "lane", "t-00");
    kit_advance(k, KIT_LEASE_US);
    /* The fence decides, not the clock: nobody has taken it. */
    const store_settle *settle = turn_add(&t, &slow, r.id, ids[0]);
    const store_lease_request lease = kit_lease_request("lane", 1);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    leased_are(&t, "t-00 ");
    kit_advance(k, KIT_LEASE_US);
    const store_leased second = t.list.leases[0];
    const store_leased third = kit_lease_target(k, "lane", "t-00");
    assert_true(third.fence > second.fence);
    t.count = 0;
    settle = turn_add(&t, &second, r.id, ids[1]);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_ELOST);
    leased_are(&t, "");
    assert_int_equal(kit_subscription(k, "t-00", r.id)->at, ids[0]);
    KIT_OK(k, kit_settle(k, &third, r.id, ids[1], STORE_END_RELEASE));
}

static void C24_a_fence_of_a_turn_is_never_given_out_again(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[8];
    const store_reaction r = targets_with(k, 1, 8, ids);
    const store_lease_request lease = kit_lease_request("lane", 1);
    int64_t highest = 0;
    for (size_t i = 0; i < 8; i++) {
        KIT_OK(k, turn_run(k, k->store, &t, &lease));
        leased_are(&t, "t-00 ");
        const store_leased l = t.list.leases[0];
        assert_true(l.fence > highest);
        highest = l.fence;
        kit_reopen(k);
        assert_int_equal(kit_target(k, "t-00")->fence, highest);
        t.count = 0;
        turn_add(&t, &l, r.id, ids[i]);
    }
}

static void C25_a_turn_advances_as_settling_does(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[3];
    const store_reaction r = targets_with(k, 1, 3, ids);
    const store_reaction other = kit_declare(k, "other", "*", "*", STORE_RULE_STREAM);
    KIT_OK(k, kit_route(k, k->store, "other", "", "lane", 7));
    store_leased l = kit_lease_target(k, "lane", "t-00");
    store_settle failing = kit_settle_of(&l, STORE_END_DEFER);
    failing.failure =
        (store_failure){ .reaction = r.id, .event = ids[0], .error = weir__str("no") };
    KIT_OK(k, k->store->work->settle(k->store, &failing, &k->err));
    l = kit_lease_target(k, "lane", "t-00");
    kit_advance(k, KIT_LEASE_US);
    l = kit_lease_target(k, "lane", "t-00"); /* lost once, failed once */
    assert_int_equal(l.lost, 1);

    /* Nothing moves: what has failed is still so. */
    store_settle *settle = turn_add(&t, &l, r.id, 0);
    const store_lease_request lease = kit_lease_request("lane", 1);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    leased_are(&t, "t-00 ");
    l = t.list.leases[0];
    assert_int_equal(l.lost, 1);
    assert_int_equal(kit_subscription(k, "t-00", r.id)->retries, 1);
    KIT_STR(kit_target(k, "t-00")->error, "no");

    /* Two reactions, one of them all the way. */
    const store_advance advances[] = { { .reaction = r.id, .to = ids[1] },
                                       { .reaction = other.id, .to = ids[2] } };
    t.count = 0;
    settle = turn_add(&t, &l, 0, 0);
    settle->advances = advances;
    settle->advances_count = 2;
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    assert_true(settle->behind);
    leased_are(&t, "t-00 ");
    l = t.list.leases[0];
    assert_int_equal(l.lost, 0);
    assert_int_equal(l.watermark, ids[1]); /* of what is behind */
    assert_int_equal(l.priority, 7);
    assert_int_equal(l.subscriptions_count, 1);
    assert_int_equal(l.subscriptions[0].at, ids[1]);
    assert_int_equal(l.subscriptions[0].retries, 0);
    const store_target *target = kit_target(k, "t-00");
    assert_int_equal(target->error.len, 0);
    assert_int_equal(target->event, 0);
    assert_int_equal(target->attempts, 0);

    /* Forwards only. */
    t.count = 0;
    settle = turn_add(&t, &l, r.id, ids[0]);
    KIT_OK(k, turn_run(k, k->store, &t, NULL));
    assert_int_equal(settle->status, WEIR_OK);
    assert_int_equal(kit_subscription(k, "t-00", r.id)->at, ids[1]);
    kit_check(k);
}

/* One target moves by two reactions, another one not at all: its failure is still its own. */
static void C25_what_a_turn_does_not_advance_keeps_its_failure(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[2];
    const store_reaction r = targets_with(k, 2, 1, ids);
    const store_reaction other = kit_declare(k, "other", "*", "t-00", STORE_RULE_STREAM);
    KIT_OK(k, kit_route(k, k->store, "other", "", "lane", 0));
    const store_lease_list *held = kit_lease(k, "lane", 10);
    assert_int_equal(held->leases_count, 2);
    store_settle failed = kit_settle_of(&held->leases[1], STORE_END_DEFER);
    failed.failure =
        (store_failure){ .reaction = r.id, .event = ids[1], .error = weir__str("why") };
    KIT_OK(k, k->store->work->settle(k->store, &failed, &k->err));
    const store_lease_list *again = kit_lease(k, "lane", 10);
    assert_int_equal(again->leases_count, 1);

    const store_advance both[] = { { .reaction = r.id, .to = ids[0] },
                                   { .reaction = other.id, .to = ids[0] } };
    store_settle *first = turn_add(&t, &held->leases[0], r.id, ids[0]);
    first->advances = both;
    first->advances_count = 2;
    store_settle *second = turn_add(&t, &again->leases[0], r.id, ids[1]);
    second->advances_count = 0;
    KIT_OK(k, turn_run(k, k->store, &t, NULL));
    const store_target *kept = kit_target(k, "t-01");
    assert_true(weir__str_equal(kept->error, weir__str("why")));
    assert_int_equal(kept->attempts, 1);
    kit_check(k);
}

static void C25_a_turn_that_fails_has_not_happened(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[4];
    const store_reaction r = targets_with(k, 2, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "t-00");
    store_options options = kit_options(k);
    options.open_flags = WEIR_OPEN_READONLY;
    weir_store *reader = kit_open_with(k, &options);
    store_settle *settle = turn_add(&t, &l, r.id, ids[0]);
    const store_lease_request lease = kit_lease_request("lane", 2);
    assert_int_not_equal(turn_run(k, reader, &t, &lease), WEIR_OK);
    leased_are(&t, "");
    assert_int_equal(settle->status, WEIR_EMISUSE); /* as it was */
    assert_int_equal(kit_subscription(k, "t-00", r.id)->at, ids[0] - 1);
    assert_int_equal(kit_target(k, "t-00")->fence, l.fence);
    assert_int_equal(kit_target(k, "t-01")->state, STORE_TARGET_READY);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    leased_are(&t, "t-00 t-01 ");
}

static void C26_a_turn_blocks_what_lost_too_many_leases(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[6];
    const store_reaction r = targets_with(k, 3, 2, ids);
    store_lease_request lease = kit_lease_request("lane", 2);
    lease.lost_max = 2;
    for (int64_t lost = 0; lost < 2; lost++) { /* t-00 and t-01 are lost, t-01 comes back once */
        KIT_OK(k, turn_run(k, k->store, &t, &lease));
        leased_are(&t, "t-00 t-01 ");
        assert_int_equal(t.list.leases[0].lost, lost);
        kit_advance(k, KIT_LEASE_US);
    }
    const store_leased second = t.list.leases[1];
    const store_settle *settle = turn_add(&t, &second, r.id, ids[2]);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    leased_are(&t, "t-01 t-02 "); /* another one in the place of t-00 */
    assert_int_equal(t.list.leases[0].lost, 0);
    const store_target *blocked = kit_target(k, "t-00");
    assert_int_equal(blocked->state, STORE_TARGET_BLOCKED);
    assert_int_equal(blocked->lost, 2);
    KIT_STR(blocked->error, "lost its lease 2 times in a row");
}

static void C33_work_rows_go_with_what_a_turn_has_handled(void **state)
{
    kit *k = *state;
    turn t = { 0 };
    int64_t ids[3], left[4];
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_WORK);
    for (size_t i = 0; i < 3; i++) {
        ids[i] = kit_put(k, "s", "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_leased l = kit_lease_target(k, "lane", "s");
    const store_settle *settle = turn_add(&t, &l, r.id, ids[1]);
    const store_lease_request lease = kit_lease_request("lane", 1);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_int_equal(settle->status, WEIR_OK);
    assert_true(settle->behind);
    leased_are(&t, "s ");
    l = t.list.leases[0];
    assert_int_equal(kit_fetch(k, l.target, r.id, 0, ids[2], left, 4), 1);
    assert_int_equal(left[0], ids[2]);
    t.count = 0;
    settle = turn_add(&t, &l, r.id, ids[2]);
    KIT_OK(k, turn_run(k, k->store, &t, &lease));
    assert_false(settle->behind);
    assert_int_equal(kit_fetch(k, l.target, r.id, 0, ids[2], left, 4), 0);
    kit_check(k);
}

kit_theme kit_turning(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C20_a_turn_leases_what_it_has_freed),
        KIT_TEST(C20_a_turn_leases_nothing_that_leasing_would_not),
        KIT_TEST(C21_a_turn_without_a_lease_settles_and_one_without_settles_leases),
        KIT_TEST(C21_turns_at_once_give_no_target_to_two),
        KIT_TEST(C22_a_turn_leases_in_the_order_of_leasing),
        KIT_TEST(C24_a_turn_answers_each_by_its_own_fence),
        KIT_TEST(C24_what_was_lost_to_another_is_not_settled_by_a_turn),
        KIT_TEST(C24_a_fence_of_a_turn_is_never_given_out_again),
        KIT_TEST(C25_a_turn_advances_as_settling_does),
        KIT_TEST(C25_what_a_turn_does_not_advance_keeps_its_failure),
        KIT_TEST(C25_a_turn_that_fails_has_not_happened),
        KIT_TEST(C26_a_turn_blocks_what_lost_too_many_leases),
        KIT_TEST(C33_work_rows_go_with_what_a_turn_has_handled),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
