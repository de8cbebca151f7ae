/* settling.c - C24 to C28 and C33: fences, positions, failures, and effects that happen once. */
#include "kit.h"

/* A reaction "r" and a target "s" with `count` events to handle, positions in ids. */
static store_reaction target_with(kit *k, size_t count, int64_t *ids)
{
    const store_reaction r = kit_declare(k, "r", "Work", "*", STORE_RULE_STREAM);
    for (size_t i = 0; i < count; i++) {
        ids[i] = kit_put(k, "s", "Work");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    return r;
}

/* ---- C24 ---------------------------------------------------------------------------------- */

static void C24_fences_grow_through_everything(void **state)
{
    kit *k = *state;
    int64_t id;
    const store_reaction r = target_with(k, 1, &id);
    int64_t highest = 0;
    for (int round = 0; round < 8; round++) {
        const store_leased l = kit_lease_target(k, "lane", "s");
        assert_true(l.fence > highest);
        highest = l.fence;
        switch (round) {
        case 0:
            KIT_OK(k, kit_release(k, &l));
            break;
        case 1:
            kit_advance(k, KIT_LEASE_US); /* lost */
            break;
        case 2:
            kit_reopen(k);
            kit_advance(k, KIT_LEASE_US);
            break;
        case 3:
            KIT_OK(k, kit_defer(k, &l, kit_now(k)));
            break;
        case 4:
            KIT_OK(k, kit_settle(k, &l, r.id, l.subscriptions[0].mark, STORE_END_RELEASE));
            kit_put(k, "s", "Work");
            KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
            break;
        case 5:
            KIT_OK(k, kit_release(k, &l));
            kit_reopen(k);
            break;
        case 6: {
            store_operate op = kit_operate_of(k, STORE_RESET, "s");
            KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
            assert_int_equal(op.changed, 1);
            break;
        }
        default:
            break;
        }
    }
    assert_int_equal(kit_target(k, "s")->fence, highest);
}

/* Everything that names a fence, with one that is not the holder's; nothing may change. */
static void stale_is_lost(kit *k, int64_t target, int64_t fence, int64_t reaction)
{
    const store_target *before = kit_target(k, "s");
    const int64_t head = kit_head(k);
    const store_leased l = { .target = target, .fence = fence };
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "effect", WEIR_EXPECT_ANY, 0), "Done", "{}");
    store_append *effects[] = { &a.append };
    const store_advance advance = { .reaction = reaction, .to = head };
    const store_park park = { .reaction = reaction, .event = head, .error = weir__str("x") };
    for (int end = STORE_END_RELEASE; end <= STORE_END_BLOCK; end++) {
        store_settle settle = kit_settle_of(&l, (store_end)end);
        settle.appends = effects;
        settle.appends_count = 1;
        settle.advances = &advance;
        settle.advances_count = 1;
        settle.parks = &park;
        settle.parks_count = 1;
        settle.lease_us = KIT_LEASE_US;
        settle.failure = (store_failure){ .reaction = reaction, .event = head };
        KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), WEIR_ELOST);
    }
    store_fenced item = { .target = target, .fence = fence };
    KIT_OK(k, k->store->work->extend(k->store, KIT_LEASE_US, &item, 1, &k->err));
    assert_int_equal(item.status, WEIR_ELOST);
    item.status = WEIR_OK;
    KIT_OK(k, k->store->work->extend(k->store, 0, &item, 1, &k->err));
    assert_int_equal(item.status, WEIR_ELOST);
    const store_failure why = { .reaction = reaction, .event = head, .error = weir__str("x") };
    const store_leased stale = { .target = target, .fence = fence };
    KIT_IS(k, kit_block(k, &stale, &why), WEIR_ELOST);
    KIT_IS(k, kit_defer(k, &stale, INT64_MAX / 2), WEIR_ELOST);

    const store_target *after = kit_target(k, "s");
    assert_int_equal(kit_head(k), head);
    assert_int_equal(kit_parked(k).parked_count, 0);
    assert_int_equal(after->state, before->state);
    assert_int_equal(after->fence, before->fence);
    assert_int_equal(after->leased_until_us, before->leased_until_us);
    assert_int_equal(after->due_us, before->due_us);
    assert_int_equal(after->blocked, before->blocked);
    assert_int_equal(after->subscriptions[0].at, before->subscriptions[0].at);
    assert_int_equal(after->subscriptions[0].retries, before->subscriptions[0].retries);
    assert_int_equal(after->error.len, before->error.len);
}

static void C24_a_stale_fence_writes_nothing(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    const store_leased first = kit_lease_target(k, "lane", "s");
    kit_advance(k, KIT_LEASE_US);
    const store_leased second = kit_lease_target(k, "lane", "s");
    stale_is_lost(k, first.target, first.fence, r.id);
    stale_is_lost(k, first.target, second.fence + 1, r.id); /* one that was never given out */
    stale_is_lost(k, first.target, 0, r.id);
    KIT_OK(k, kit_settle(k, &second, r.id, ids[0], STORE_END_RELEASE));
    stale_is_lost(k, second.target, second.fence, r.id); /* released: held by nobody */
    kit_check(k);
}

static void C24_a_fence_that_a_reset_took_away_is_stale(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[1], STORE_END_KEEP));
    assert_int_equal(kit_operate(k, STORE_RESET, "s"), 1);
    stale_is_lost(k, l.target, l.fence, r.id);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0] - 1);
}

static void C24_the_fence_decides_not_the_clock(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, 3, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    kit_advance(k, 10 * KIT_LEASE_US); /* ended long ago, but nobody took it */
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_KEEP));
    kit_advance(k, 10 * KIT_LEASE_US);
    store_fenced item = { .target = l.target, .fence = l.fence, .status = WEIR_EMISUSE };
    KIT_OK(k, k->store->work->extend(k->store, KIT_LEASE_US, &item, 1, &k->err));
    assert_int_equal(item.status, WEIR_OK);
    assert_int_equal(item.until_us, kit_now(k) + KIT_LEASE_US);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_advance(k, 10 * KIT_LEASE_US);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[1], STORE_END_RELEASE));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[1]);
}

static void C24_extending_answers_each_by_its_own_fence(void **state)
{
    kit *k = *state;
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    for (int i = 0; i < 3; i++) {
        kit_put(k, kit_text(k, "t-%d", i), "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    const store_lease_list *list = kit_lease(k, "lane", 3);
    assert_int_equal(list->leases_count, 3);
    store_fenced items[] = {
        { .target = list->leases[0].target, .fence = list->leases[0].fence },
        { .target = list->leases[1].target, .fence = list->leases[1].fence + 1 },
        { .target = 9999, .fence = 1 },
        { .target = list->leases[2].target, .fence = list->leases[2].fence },
    };
    kit_advance(k, 100);
    KIT_OK(k, k->store->work->extend(k->store, 2 * KIT_LEASE_US, items, 4, &k->err));
    assert_int_equal(items[0].status, WEIR_OK);
    assert_int_equal(items[0].until_us, kit_now(k) + 2 * KIT_LEASE_US);
    assert_int_equal(items[1].status, WEIR_ELOST);
    assert_int_equal(items[2].status, WEIR_ENOTFOUND);
    assert_int_equal(items[3].status, WEIR_OK);
    kit_advance(k, KIT_LEASE_US); /* only the one that was not extended is over */
    assert_int_equal(kit_lease(k, "lane", 3)->leases_count, 1);
    KIT_OK(k, k->store->work->extend(k->store, 0, items, 4, &k->err));
    assert_int_equal(items[0].status, WEIR_OK);
    assert_int_equal(items[1].status, WEIR_OK); /* the next fence: the one just given */
    assert_int_equal(items[2].status, WEIR_ENOTFOUND);
    assert_int_equal(items[3].status, WEIR_OK);
    assert_int_equal(kit_lease(k, "lane", 3)->leases_count, 3);
}

static void C24_releasing_costs_nothing(void **state)
{
    kit *k = *state;
    int64_t id;
    const store_reaction r = target_with(k, 1, &id);
    kit_lease_target(k, "lane", "s");
    kit_advance(k, KIT_LEASE_US);
    const store_leased l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.lost, 1);
    KIT_OK(k, kit_release(k, &l));
    assert_int_equal(kit_target(k, "s")->lost, 1);
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_READY);
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 0);
    kit_lease_target(k, "lane", "s");
}

/* ---- C25 ---------------------------------------------------------------------------------- */

static void C25_a_position_moves_forward_only(void **state)
{
    kit *k = *state;
    int64_t ids[4];
    const store_reaction r = target_with(k, 4, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[2], STORE_END_KEEP));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[2]);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_KEEP)); /* ignored */
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[2]);
    assert_int_equal(kit_target(k, "s")->watermark, ids[2]);
    KIT_OK(k, kit_settle(k, &l, r.id, ids[3], STORE_END_RELEASE));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[3]);
    kit_check(k);
}

static void C25_settling_can_go_part_of_the_way(void **state)
{
    kit *k = *state;
    int64_t ids[3];
    const store_reaction r = target_with(k, 3, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    const store_advance advance = { .reaction = r.id, .to = ids[0] };
    settle.advances = &advance;
    settle.advances_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_true(settle.behind);
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].at, ids[0]);
    assert_int_equal(l.watermark, ids[0]);
    settle = kit_settle_of(&l, STORE_END_RELEASE);
    const store_advance rest = { .reaction = r.id, .to = ids[2] };
    settle.advances = &rest;
    settle.advances_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind);
    assert_true(kit_nothing_to_lease(k, "lane"));
}

static void C25_settling_can_keep_the_lease(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    kit_advance(k, 1000);
    store_settle settle = kit_settle_of(&l, STORE_END_KEEP);
    const store_advance advance = { .reaction = r.id, .to = ids[0] };
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.lease_us = 3 * KIT_LEASE_US;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(settle.lease_until_us, kit_now(k) + 3 * KIT_LEASE_US);
    assert_int_equal(kit_target(k, "s")->leased_until_us, settle.lease_until_us);
    assert_int_equal(kit_target(k, "s")->fence, l.fence);
    kit_advance(k, 2 * KIT_LEASE_US);
    assert_true(kit_nothing_to_lease(k, "lane"));
}

static void C25_settling_can_defer_in_the_same_step(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_DEFER);
    const store_advance advance = { .reaction = r.id, .to = ids[0] };
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.until_us = kit_now(k) + 500;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0]);
    assert_int_equal(kit_target(k, "s")->state, STORE_TARGET_DEFERRED);
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_advance(k, 500);
    assert_int_equal(kit_lease_target(k, "lane", "s").subscriptions[0].at, ids[0]);
}

static void C25_advancing_clears_retries_and_lost_leases(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    kit_advance(k, KIT_LEASE_US);
    l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_KEEP);
    settle.lease_us = KIT_LEASE_US;
    settle.failure =
        (store_failure){ .reaction = r.id, .event = ids[0], .error = weir__str("no luck") };
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 1);
    assert_int_equal(kit_target(k, "s")->lost, 1); /* a failure is no progress */
    KIT_STR(kit_target(k, "s")->error, "no luck");
    KIT_OK(k, kit_settle(k, &l, r.id, ids[0], STORE_END_RELEASE));
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 0);
    assert_int_equal(kit_target(k, "s")->lost, 0);
    KIT_STR(kit_target(k, "s")->error, "");
}

/* ---- C26: the store's part ---------------------------------------------------------------- */

static void C26_lost_leases_are_counted_and_block_at_the_limit(void **state)
{
    kit *k = *state;
    int64_t id;
    const store_reaction r = target_with(k, 1, &id);
    kit_put(k, "u", "Work");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_operate op = kit_operate_of(k, STORE_PRIORITIZE, "s"); /* taken before u */
    op.priority = 1;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    store_lease_request request = kit_lease_request("lane", 1);
    request.lost_max = 3;
    store_lease_list *list = NULL;
    for (int64_t lost = 0; lost < 3; lost++) {
        KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
        KIT_STR(list->leases[0].name, "s");
        assert_int_equal(list->leases[0].lost, lost);
        assert_int_equal(kit_subscription(k, "s", r.id)->retries, 0); /* costs no retry */
        kit_advance(k, KIT_LEASE_US);
    }
    KIT_OK(k, kit_lease_with(k, k->store, &request, &list));
    assert_int_equal(list->leases_count, 1);
    KIT_STR(list->leases[0].name, "u"); /* another one in its place */
    const store_target *t = kit_target(k, "s");
    assert_int_equal(t->state, STORE_TARGET_BLOCKED);
    assert_true(t->error.len > 0);
    assert_int_equal(t->lost, 3);
    assert_int_equal(kit_operate(k, STORE_UNBLOCK, "s"), 1);
    assert_int_equal(kit_target(k, "s")->lost, 0);
    assert_int_equal(kit_lease_target(k, "lane", "s").lost, 0);
}

/* ---- C27, C28 ----------------------------------------------------------------------------- */

static void C27_a_failure_costs_one_retry_and_defers(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    for (int64_t attempt = 1; attempt <= 3; attempt++) {
        const store_leased l = kit_lease_target(k, "lane", "s");
        assert_int_equal(l.subscriptions[0].retries, attempt - 1);
        store_settle settle = kit_settle_of(&l, STORE_END_DEFER);
        settle.failure =
            (store_failure){ .reaction = r.id, .event = ids[0], .error = weir__str("timeout") };
        settle.until_us = kit_now(k) + attempt * 1000;
        KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
        const store_target *t = kit_target(k, "s");
        assert_int_equal(t->state, STORE_TARGET_DEFERRED);
        KIT_STR(t->error, "timeout");
        assert_int_equal(t->event, ids[0]);
        KIT_STR(t->reaction, "r");
        assert_int_equal(t->attempts, attempt);
        assert_int_equal(kit_subscription(k, "s", r.id)->retries, attempt);
        assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0] - 1);
        kit_advance(k, attempt * 1000 - 1);
        assert_true(kit_nothing_to_lease(k, "lane"));
        kit_advance(k, 1);
    }
}

static void C27_a_block_keeps_the_error_the_event_and_the_attempts(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_KEEP);
    settle.lease_us = KIT_LEASE_US;
    settle.failure =
        (store_failure){ .reaction = r.id, .event = ids[0], .error = weir__str("one") };
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    settle.end = STORE_END_BLOCK;
    settle.failure.error = weir__str("two: \"quoted\"");
    kit_advance(k, 77);
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    kit_reopen(k);
    const store_target *t = kit_target(k, "s");
    assert_int_equal(t->state, STORE_TARGET_BLOCKED);
    assert_true(t->blocked);
    assert_int_equal(t->blocked_us, kit_now(k));
    KIT_STR(t->error, "two: \"quoted\"");
    assert_int_equal(t->event, ids[0]);
    KIT_STR(t->reaction, "r");
    assert_int_equal(t->attempts, 2);
    KIT_STR(t->holder, "");
    assert_true(kit_nothing_to_lease(k, "lane"));
    kit_check(k);
}

static void C27_a_parked_event_lets_its_target_go_on(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    const store_park park = {
        .reaction = r.id, .event = ids[0], .attempts = 4, .error = weir__str("poison")
    };
    const store_advance advance = { .reaction = r.id, .to = ids[0] };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.parks = &park;
    settle.parks_count = 1;
    settle.advances = &advance;
    settle.advances_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    const store_parked_chunk parked = kit_parked(k);
    assert_int_equal(parked.parked_count, 1);
    assert_int_equal(parked.parked[0].reaction, r.id);
    assert_int_equal(parked.parked[0].event, ids[0]);
    assert_int_equal(parked.parked[0].attempts, 4);
    assert_int_equal(parked.parked[0].parked_us, kit_now(k));
    KIT_STR(parked.parked[0].error, "poison");
    KIT_STR(parked.parked[0].target, "s");
    KIT_STR(parked.parked[0].reaction_name, "r");
    assert_false(parked.parked[0].sent_back);
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].at, ids[0]);
    assert_int_equal(l.sent_back_count, 0);
}

static void C28_progress_before_a_failure_is_kept(void **state)
{
    kit *k = *state;
    int64_t ids[4];
    const store_reaction r = target_with(k, 4, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.failure = (store_failure){ .reaction = r.id, .event = ids[0], .error = weir__str("x") };
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 1);
    /* Two are done, the third fails: its first attempt. */
    l = kit_lease_target(k, "lane", "s");
    const store_advance advance = { .reaction = r.id, .to = ids[1] };
    settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.failure = (store_failure){ .reaction = r.id, .event = ids[2], .error = weir__str("y") };
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[1]);
    assert_int_equal(kit_subscription(k, "s", r.id)->retries, 1);
    assert_int_equal(kit_target(k, "s")->event, ids[2]);
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].at, ids[1]); /* never handled again */
    assert_int_equal(l.subscriptions[0].retries, 1);
}

/* ---- C33 ---------------------------------------------------------------------------------- */

typedef struct own_sql {
    kit *k;
    size_t calls;
    weir_status status;
} own_sql;

/* The caller's own statement, where the store has SQL; elsewhere only the call. */
static weir_status run_own_sql(void *ctx, void *native, weir_error *err)
{
    own_sql *own = ctx;
    own->calls++;
    if (own->k->adapter->own_write != NULL && !own->k->adapter->own_write(native)) {
        return weir__fail(err, WEIR_EMISUSE, "the caller's own statement could not be run");
    }
    return own->status == WEIR_OK
               ? WEIR_OK
               : weir__fail(err, own->status, "the caller's own statement failed");
}

/* How many of the caller's own writes are there to stay. */
static void own_writes_are(kit *k, int64_t count)
{
    if (k->adapter->own_count != NULL) {
        assert_int_equal(k->adapter->own_count(k->place), count);
    }
}

static void C33_effects_and_the_position_happen_together(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    store_leased l = kit_lease_target(k, "lane", "s");
    own_sql own = { .k = k };
    kit_append a[2];
    store_append *effects[2];
    for (size_t i = 0; i < 2; i++) {
        kit_append_init(&a[i]);
        kit_append_event(&a[i],
                         kit_append_stream(&a[i], i == 0 ? "mail" : "audit", WEIR_EXPECT_NONE, 0),
                         "Sent", "{}");
        effects[i] = &a[i].append;
    }
    kit_append_change(&a[0], WEIR_KEY_RESERVE, "mail:1", 0);
    kit_append_key(&a[1], "once");
    const store_advance advance = { .reaction = r.id, .to = ids[0] };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.appends = effects;
    settle.appends_count = 2;
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.sql = run_own_sql;
    settle.sql_ctx = &own;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_int_equal(own.calls, 1);
    assert_int_equal(a[0].append.status, WEIR_OK);
    assert_int_equal(a[0].streams[0].last, 0);
    assert_int_equal(a[1].streams[0].id, kit_head(k));
    assert_int_equal(kit_version(k, "mail"), 0);
    assert_int_equal(kit_version(k, "audit"), 0);
    assert_string_equal(kit_key_owner(k, "mail:1"), "mail");
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0]);

    /* However often it is run: the same settle again is the settle of somebody who lost. */
    KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), WEIR_ELOST);
    assert_int_equal(kit_stream(k, "mail").count, 1);
    own_writes_are(k, 1);
}

/* A settle whose last effect is refused, or whose SQL fails: nothing of it, and the lease goes
 * on. */
static void settle_fails_whole(kit *k, weir_status refusal)
{
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    kit_append a[2];
    store_append *effects[2];
    kit_append_init(&a[0]);
    kit_append_event(&a[0], kit_append_stream(&a[0], "owner", WEIR_EXPECT_ANY, 0), "X", "{}");
    kit_append_change(&a[0], WEIR_KEY_RESERVE, "taken", 0);
    kit_append_key(&a[0], "used");
    KIT_OK(k, kit_append_run(k->store, &a[0]));
    const int64_t head = kit_head(k);
    const store_leased l = kit_lease_target(k, "lane", "s");

    own_sql own = { .k = k, .status = refusal == WEIR_EIO ? WEIR_EIO : WEIR_OK };
    for (size_t i = 0; i < 2; i++) {
        kit_append_init(&a[i]);
        const bool conflicts = i == 1 && refusal == WEIR_ECONFLICT;
        kit_append_event(&a[i],
                         kit_append_stream(&a[i], i == 0 ? "mail" : "owner",
                                           conflicts ? WEIR_EXPECT_NONE : WEIR_EXPECT_ANY, 0),
                         "Sent", "{}");
        effects[i] = &a[i].append;
    }
    if (refusal == WEIR_ETAKEN) {
        const uint32_t other = kit_append_stream(&a[1], "thief", WEIR_EXPECT_ANY, 0);
        kit_append_change(&a[1], WEIR_KEY_RESERVE, "taken", other);
    }
    if (refusal == WEIR_EKEYREUSED) {
        kit_append_key(&a[1], "used");
    }
    const store_advance advance = { .reaction = r.id, .to = ids[1] };
    const store_park park = { .reaction = r.id, .event = ids[0], .error = weir__str("x") };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.appends = effects;
    settle.appends_count = 2;
    settle.advances = &advance;
    settle.advances_count = 1;
    settle.parks = &park;
    settle.parks_count = 1;
    settle.sql = run_own_sql;
    settle.sql_ctx = &own;
    KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), refusal);
    assert_int_equal(k->err.code, refusal);
    assert_int_equal(own.calls, 1);
    own_writes_are(k, 0);
    if (refusal == WEIR_ECONFLICT) {
        assert_string_equal(k->err.stream, "owner");
        assert_int_equal(k->err.actual, 0);
    }
    assert_int_equal(kit_head(k), head);
    assert_int_equal(kit_version(k, "mail"), -1);
    assert_int_equal(kit_subscription(k, "s", r.id)->at, ids[0] - 1);
    assert_int_equal(kit_parked(k).parked_count, 0);
    const store_target *t = kit_target(k, "s");
    assert_int_equal(t->state, STORE_TARGET_LEASED);
    assert_int_equal(t->fence, l.fence);
    assert_int_equal(t->leased_until_us, l.until_us);
    /* The handler can be run again under the same lease. */
    KIT_OK(k, kit_settle(k, &l, r.id, ids[1], STORE_END_RELEASE));
    kit_check(k);
}

static void C33_a_conflict_undoes_the_whole_settle(void **state)
{
    settle_fails_whole(*state, WEIR_ECONFLICT);
}

static void C33_a_taken_key_undoes_the_whole_settle(void **state)
{
    settle_fails_whole(*state, WEIR_ETAKEN);
}

static void C33_a_reused_idempotency_key_undoes_the_whole_settle(void **state)
{
    settle_fails_whole(*state, WEIR_EKEYREUSED);
}

static void C33_failing_sql_undoes_the_whole_settle(void **state)
{
    settle_fails_whole(*state, WEIR_EIO);
}

static void C33_sql_runs_first_and_not_without_the_lease(void **state)
{
    kit *k = *state;
    int64_t id;
    target_with(k, 1, &id);
    const store_leased l = kit_lease_target(k, "lane", "s");
    /* Whatever else is wrong: the caller's SQL has its answer first. */
    own_sql own = { .k = k, .status = WEIR_EHELD };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.fence = l.fence + 1;
    settle.sql = run_own_sql;
    settle.sql_ctx = &own;
    KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), WEIR_EHELD);
    own.status = WEIR_OK;
    KIT_IS(k, k->store->work->settle(k->store, &settle, &k->err), WEIR_ELOST);
    assert_int_equal(own.calls, 2);
    own_writes_are(k, 0);
}

static void C33_what_effects_append_is_work_like_any_other(void **state)
{
    kit *k = *state;
    int64_t id;
    const store_reaction r = target_with(k, 1, &id);
    store_leased l = kit_lease_target(k, "lane", "s");
    kit_append a;
    kit_append_init(&a);
    kit_append_event(&a, kit_append_stream(&a, "s", WEIR_EXPECT_EXACT, 0), "Work", "{}");
    store_append *effects[] = { &a.append };
    const store_advance advance = { .reaction = r.id, .to = id };
    store_settle settle = kit_settle_of(&l, STORE_END_RELEASE);
    settle.appends = effects;
    settle.appends_count = 1;
    settle.advances = &advance;
    settle.advances_count = 1;
    KIT_OK(k, k->store->work->settle(k->store, &settle, &k->err));
    assert_false(settle.behind); /* until it is routed */
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    l = kit_lease_target(k, "lane", "s");
    assert_int_equal(l.subscriptions[0].mark, a.streams[0].id);
}

static void C33_work_rows_go_with_what_was_handled(void **state)
{
    kit *k = *state;
    const store_reaction r = kit_declare(k, "r", "*", "*", STORE_RULE_WORK);
    int64_t ids[4];
    for (size_t i = 0; i < 4; i++) {
        ids[i] = kit_put(k, "s", "A");
        kit_put(k, "other", "A");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
    store_operate op = kit_operate_of(k, STORE_PRIORITIZE, "s");
    op.priority = 1;
    KIT_OK(k, k->store->work->operate(k->store, &op, &k->err));
    store_leased l = kit_lease_target(k, "lane", "s");
    int64_t got[8];
    const int64_t at = l.subscriptions[0].at;
    assert_int_equal(kit_fetch(k, l.target, r.id, at, l.subscriptions[0].mark, got, 8), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(got[i], ids[i]);
    }
    KIT_OK(k, kit_settle(k, &l, r.id, ids[1], STORE_END_KEEP));
    assert_int_equal(kit_fetch(k, l.target, r.id, at, l.subscriptions[0].mark, got, 8), 2);
    assert_int_equal(got[0], ids[2]);
    KIT_OK(k, kit_settle(k, &l, r.id, l.subscriptions[0].mark, STORE_END_RELEASE));
    assert_int_equal(kit_fetch(k, l.target, r.id, at, l.subscriptions[0].mark, got, 8), 0);
    kit_check(k);
}

static void C33_fetching_needs_a_subscription(void **state)
{
    kit *k = *state;
    int64_t ids[2];
    const store_reaction r = target_with(k, 2, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    store_fetch_item items[] = {
        { .target = l.target, .reaction = r.id, .up_to = INT64_MAX, .limit = 10 },
        { .target = l.target, .reaction = r.id + 1, .up_to = INT64_MAX, .limit = 10 },
    };
    store_fetch_list list = { 0 };
    KIT_IS(k, k->store->work->fetch(k->store, items, 2, &list, &k->err), WEIR_ENOTFOUND);
    items[1].reaction = r.id;
    items[1].after = ids[0];
    KIT_OK(k, k->store->work->fetch(k->store, items, 2, &list, &k->err));
    assert_int_equal(list.events_count, 3); /* by item, then position */
    assert_int_equal(list.events[0].item_index, 0);
    assert_int_equal(list.events[1].item_index, 0);
    assert_int_equal(list.events[2].item_index, 1);
    assert_int_equal(list.events[2].event->id, ids[1]);
    KIT_STR(list.events[2].event->name, "Work");
    weir__arena_free(&list.arena);
}

/* An engine settles an exhausted item at its mark; were a full list taken for the end of an item,
 * events would be stepped over. */
static void C28_fetching_says_of_which_items_nothing_is_left(void **state)
{
    enum { WHOLE = 10, MANY = STORE_FETCH_EVENTS_MAX / WHOLE - 1 };
    kit *k = *state;
    static int64_t ids[MANY];
    const store_reaction r = target_with(k, MANY, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    const store_fetch_item whole = {
        .target = l.target, .reaction = r.id, .up_to = INT64_MAX, .limit = MANY + 1
    };
    store_fetch_item items[WHOLE + 3];
    for (size_t i = 0; i < WHOLE + 3; i++) {
        items[i] = whole;
    }
    store_fetch_list list = { 0 };
    items[WHOLE].after = ids[MANY - 2]; /* one event left, two asked for */
    items[WHOLE].limit = 2;
    items[WHOLE + 1].after =
        ids[MANY - WHOLE]; /* as many left as asked for, and the list is full */
    items[WHOLE + 1].limit = WHOLE - 1;
    KIT_OK(k, k->store->work->fetch(k->store, items, WHOLE + 3, &list, &k->err));
    assert_int_equal(list.events_count, STORE_FETCH_EVENTS_MAX);
    for (size_t i = 0; i <= WHOLE; i++) {
        assert_true(list.exhausted[i]);
    }
    assert_false(list.exhausted[WHOLE + 1]);
    assert_false(list.exhausted[WHOLE + 2]); /* got nothing, and has everything left */
    items[0].limit = MANY;
    KIT_OK(k, k->store->work->fetch(k->store, items, 1, &list, &k->err));
    assert_int_equal(list.events_count, MANY);
    assert_false(list.exhausted[0]); /* as many as asked for: nobody has looked further */
    weir__arena_free(&list.arena);
}

static void C28_a_fetch_ends_with_the_bytes_it_was_asked_for(void **state)
{
    enum { EVENTS = 6 };
    kit *k = *state;
    int64_t ids[EVENTS];
    const store_reaction r = target_with(k, EVENTS, ids);
    const store_leased l = kit_lease_target(k, "lane", "s");
    const store_fetch_item items[] = {
        { .target = l.target, .reaction = r.id, .up_to = INT64_MAX, .limit = EVENTS },
        { .target = l.target, .reaction = r.id, .after = ids[4], .up_to = INT64_MAX, .limit = 2 },
    };
    store_fetch_list list = { 0 };
    KIT_OK(k, k->store->work->fetch(k->store, items, 1, &list, &k->err));
    assert_int_equal(list.events_count, EVENTS);
    size_t three = 0;
    for (size_t i = 0; i < 3; i++) {
        three += list.events[i].event->data.len + list.events[i].event->meta.len;
    }
    list.bytes_soft = three;
    KIT_OK(k, k->store->work->fetch(k->store, items, 2, &list, &k->err));
    assert_int_equal(list.events_count, 3);
    assert_false(list.exhausted[0]);
    assert_false(list.exhausted[1]); /* has one left, but there was no room */
    list.bytes_soft = three + 1;
    KIT_OK(k, k->store->work->fetch(k->store, items, 2, &list, &k->err));
    assert_int_equal(list.events_count, 4); /* the one that goes beyond it is given */
    list.bytes_soft = 1;
    KIT_OK(k, k->store->work->fetch(k->store, items, 2, &list, &k->err));
    assert_int_equal(list.events_count, 1); /* so there is always one */
    weir__arena_free(&list.arena);
}

kit_theme kit_settling(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C24_fences_grow_through_everything),
        KIT_TEST(C24_a_stale_fence_writes_nothing),
        KIT_TEST(C24_a_fence_that_a_reset_took_away_is_stale),
        KIT_TEST(C24_the_fence_decides_not_the_clock),
        KIT_TEST(C24_extending_answers_each_by_its_own_fence),
        KIT_TEST(C24_releasing_costs_nothing),
        KIT_TEST(C25_a_position_moves_forward_only),
        KIT_TEST(C25_settling_can_go_part_of_the_way),
        KIT_TEST(C25_settling_can_keep_the_lease),
        KIT_TEST(C25_settling_can_defer_in_the_same_step),
        KIT_TEST(C25_advancing_clears_retries_and_lost_leases),
        KIT_TEST(C26_lost_leases_are_counted_and_block_at_the_limit),
        KIT_TEST(C27_a_failure_costs_one_retry_and_defers),
        KIT_TEST(C27_a_block_keeps_the_error_the_event_and_the_attempts),
        KIT_TEST(C27_a_parked_event_lets_its_target_go_on),
        KIT_TEST(C28_progress_before_a_failure_is_kept),
        KIT_TEST(C33_effects_and_the_position_happen_together),
        KIT_TEST(C33_a_conflict_undoes_the_whole_settle),
        KIT_TEST(C33_a_taken_key_undoes_the_whole_settle),
        KIT_TEST(C33_a_reused_idempotency_key_undoes_the_whole_settle),
        KIT_TEST(C33_failing_sql_undoes_the_whole_settle),
        KIT_TEST(C33_sql_runs_first_and_not_without_the_lease),
        KIT_TEST(C33_what_effects_append_is_work_like_any_other),
        KIT_TEST(C33_work_rows_go_with_what_was_handled),
        KIT_TEST(C33_fetching_needs_a_subscription),
        KIT_TEST(C28_fetching_says_of_which_items_nothing_is_left),
        KIT_TEST(C28_a_fetch_ends_with_the_bytes_it_was_asked_for),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
