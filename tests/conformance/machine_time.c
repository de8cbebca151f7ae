/* machine_time.c - C04: what is held is held for as long as the machine's own clock says.
 *
 * Goal: one process whose time of day is days off takes nothing from anybody, and leaves nothing
 * held for longer, also for those who open the store, look once and go. A machine that is started
 * again has nobody who holds anything. Method: one of everything that can be held is taken; the
 * wall clock jumps, the machine's clock does not; then others try to take it, each with a handle of
 * its own.
 */
#include "kit.h"

#define DAYS_US (INT64_C(3) * 24 * 3600 * 1000000)

/* What can be held. */
enum { TARGET, ROUTER, LOCK, ONCE, HELD_COUNT };

static const char *const held_names[] = { "target", "router", "lock", "once" };

static bool take_target(kit *k, weir_store *s)
{
    const store_lease_request r = kit_lease_request("lane", 1);
    store_lease_list *list = NULL;
    KIT_OK(k, kit_lease_with(k, s, &r, &list));
    return list->leases_count == 1;
}

static bool take_router(kit *k, weir_store *s)
{
    store_router_lease lease = { .reaction = kit_reaction(k, "r").id };
    KIT_OK(k, s->work->router_lease(s, weir__str("router"), KIT_LEASE_US, &lease, 1, &k->err));
    return lease.fence != 0;
}

static bool is_taken(weir_status status, weir_status held)
{
    assert_true(status == WEIR_OK || status == held);
    return status == WEIR_OK;
}

static bool take_lock(kit *k, weir_store *s)
{
    store_lock lock = { 0 };
    return is_taken(s->locks->take(s,
                                   &(store_lock_request){ STORE_LOCK, weir__str("name"),
                                                          weir__str("me"), KIT_LEASE_US },
                                   &k->arena, &lock, &k->err),
                    WEIR_EHELD);
}

static bool take_once(kit *k, weir_store *s)
{
    store_lock once = { 0 };
    return is_taken(s->locks->take(s,
                                   &(store_lock_request){ STORE_ONCE, weir__str("key"),
                                                          weir__str("me"), KIT_LEASE_US },
                                   &k->arena, &once, &k->err),
                    WEIR_EINFLIGHT);
}

/* Which of all a process gets that opens the store, tries each and goes. */
static const char *taken(kit *k)
{
    static bool (*const takes[])(kit *, weir_store *) = { take_target, take_router, take_lock,
                                                          take_once };
    weir_store *s = kit_open(k);
    const char *text = "";
    for (size_t i = 0; i < HELD_COUNT; i++) {
        if (takes[i](k, s)) {
            text = kit_text(k, "%s%s ", text, held_names[i]);
        }
    }
    kit_close_other(k, s);
    return text;
}

#define EVERYTHING "target router lock once "

static void begin(kit *k)
{
    kit_declare(k, "r", "*", "*", STORE_RULE_STREAM);
    kit_put(k, "s", "A");
    KIT_OK(k, kit_route(k, k->store, "r", "", "lane", 0));
}

/* Somebody whose time of day is days ahead was here, and has gone. */
static void meet_one_ahead(kit *k)
{
    kit_wall_jump(k, DAYS_US);
    weir_store *s = kit_open(k);
    kit_append a;
    assert_int_equal(kit_try(s, "ahead", WEIR_EXPECT_ANY, 0, &a), WEIR_OK);
    kit_close_other(k, s);
    kit_wall_jump(k, -DAYS_US);
}

static void C04_a_wall_clock_ahead_ends_no_lease(void **state)
{
    kit *k = *state;
    begin(k);
    assert_string_equal(taken(k), EVERYTHING);
    kit_wall_jump(k, DAYS_US);
    assert_string_equal(taken(k), "");
    kit_put(k, "other", "B");
    assert_string_equal(taken(k), "");
    kit_wall_jump(k, -DAYS_US);
    assert_string_equal(taken(k), "");
    kit_reopen(k);
    kit_advance(k, KIT_LEASE_US - 1);
    assert_string_equal(taken(k), "");
    kit_advance(k, 1);
    assert_string_equal(taken(k), EVERYTHING);
    kit_check(k);
}

/* Store time stands still for those who come and go while it is ahead of the wall clock. */
static void C04_a_clock_that_was_ahead_stretches_no_lease(void **state)
{
    kit *k = *state;
    begin(k);
    meet_one_ahead(k);
    kit_reopen(k);
    assert_string_equal(taken(k), EVERYTHING);
    kit_reopen(k);
    assert_string_equal(taken(k), "");
    kit_advance(k, KIT_LEASE_US - 1);
    kit_reopen(k);
    assert_string_equal(taken(k), "");
    kit_advance(k, 1);
    kit_reopen(k);
    assert_string_equal(taken(k), EVERYTHING);
}

static void C04_a_wall_clock_behind_stretches_no_lease(void **state)
{
    kit *k = *state;
    begin(k);
    kit_wall_jump(k, -DAYS_US);
    assert_string_equal(taken(k), EVERYTHING);
    kit_wall_jump(k, DAYS_US);
    kit_advance(k, KIT_LEASE_US - 1);
    assert_string_equal(taken(k), "");
    kit_advance(k, 1);
    assert_string_equal(taken(k), EVERYTHING);
}

/* What lasts is extended by the same clock that ends it. */
static void C04_what_is_extended_while_a_clock_is_ahead_ends_in_time(void **state)
{
    kit *k = *state;
    store_lock lock = { 0 };
    begin(k);
    store_leased lease = kit_lease_target(k, "lane", "s");
    KIT_OK(k, k->store->locks->take(k->store,
                                    &(store_lock_request){ STORE_LOCK, weir__str("name"),
                                                           weir__str("me"), KIT_LEASE_US },
                                    &k->arena, &lock, &k->err));
    kit_wall_jump(k, DAYS_US);
    kit_advance(k, KIT_LEASE_US - 1);
    store_fenced item = { .target = lease.target, .fence = lease.fence, .token = lease.token };
    KIT_OK(k, k->store->work->extend(k->store, KIT_LEASE_US, &item, 1, &k->err));
    assert_int_equal(item.status, WEIR_OK);
    assert_int_equal(item.until_us, kit_now(k) + KIT_LEASE_US);
    KIT_OK(k, k->store->locks->extend(k->store, STORE_LOCK, lock.name, lock.fence, lock.token,
                                      KIT_LEASE_US, &k->err));
    kit_wall_jump(k, -DAYS_US);
    kit_reopen(k);
    kit_advance(k, KIT_LEASE_US - 1);
    assert_string_equal(taken(k), "router once ");
    kit_advance(k, 1);
    assert_string_equal(taken(k), "target lock ");
}

/* Who asks is told in store time, and what is left is right. */
static void C04_the_end_of_a_lease_is_told_in_store_time(void **state)
{
    kit *k = *state;
    store_lock_list locks = { 0 };
    store_worker_list workers = { 0 };
    const store_worker me = { .name = weir__str("me"), .host = weir__str("host"), .pid = 1 };
    store_poll poll = { .lane = weir__str("lane") };

    begin(k);
    assert_string_equal(taken(k), EVERYTHING);
    KIT_OK(k, k->store->about->worker_beat(k->store, &me, KIT_LEASE_US, &k->err));
    kit_wall_jump(k, DAYS_US);
    kit_advance(k, 1000);
    kit_put(k, "other", "B");
    const int64_t until_us = kit_now(k) + KIT_LEASE_US - 1000;
    assert_int_equal(kit_target(k, "s")->leased_until_us, until_us);
    assert_int_equal(kit_reaction(k, "r").router_until_us, until_us);
    KIT_OK(k, k->store->locks->list(k->store, &locks, &k->err));
    assert_int_equal(locks.locks_count, 1);
    assert_int_equal(locks.locks[0].until_us, until_us);
    kit_keep(k, &locks.arena);
    KIT_OK(k, k->store->about->workers(k->store, &workers, &k->err));
    assert_int_equal(workers.workers_count, 1);
    assert_int_equal(workers.workers[0].until_us, until_us);
    kit_keep(k, &workers.arena);
    KIT_OK(k, k->store->work->poll(k->store, &poll, &k->err));
    assert_false(poll.ready);
    assert_int_equal(poll.lease_end_us, until_us);
    assert_int_equal(poll.router_end_us, until_us);
}

/* The clock was set by one whose time of day is ahead, so all ends are days ahead as well. */
static void C04_a_start_of_the_machine_ends_every_lease(void **state)
{
    kit *k = *state;
    store_poll poll = { .lane = weir__str("lane") };
    kit_wall_jump(k, DAYS_US);
    begin(k);
    assert_string_equal(taken(k), EVERYTHING);
    kit_wall_jump(k, -DAYS_US);
    kit_machine_start(k, "second");
    /* Before anybody has written, too. */
    assert_int_equal(kit_target(k, "s")->leased_until_us, 0);
    KIT_OK(k, k->store->work->poll(k->store, &poll, &k->err));
    assert_true(poll.ready);
    assert_string_equal(taken(k), EVERYTHING);
    assert_string_equal(taken(k), "");
    kit_advance(k, KIT_LEASE_US);
    assert_string_equal(taken(k), EVERYTHING);
    kit_check(k);
}

/* A process that may not read the machine's boot id. */
static void C04_who_knows_of_no_start_keeps_and_ends_leases_too(void **state)
{
    kit *k = *state;
    begin(k);
    assert_string_equal(taken(k), EVERYTHING);
    kit_machine_start(k, ""); /* which it was not, but who knows */
    assert_string_equal(taken(k), "");
    kit_wall_jump(k, -DAYS_US);
    assert_string_equal(taken(k), "");
    kit_advance(k, KIT_LEASE_US);
    assert_string_equal(taken(k), EVERYTHING);
    kit_wall_jump(k, DAYS_US);
    /* It has run for less than before, and a month has passed. */
    atomic_store(&k->mono_us, 1);
    kit_wall_jump(k, 10 * DAYS_US);
    kit_reopen(k);
    assert_string_equal(taken(k), EVERYTHING);
}

/* A month in which nobody opened the store. */
static void C04_keys_expire_while_the_machine_is_off(void **state)
{
    kit *k = *state;
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = weir__str("s"),
                                   .name = weir__str("A") };
    const weir_new_event *events[] = { &event };
    weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                              .key = weir__str("key") };
    KIT_OK(k, kit_request(k, &r));
    kit_machine_start(k, "second");
    KIT_OK(k, kit_request(k, &r));
    assert_int_equal(kit_version(k, "s"), 0);
    kit_wall_jump(k, 10 * DAYS_US);
    kit_machine_start(k, "third");
    KIT_OK(k, kit_request(k, &r));
    assert_int_equal(kit_version(k, "s"), 1);
}

kit_theme kit_machine_time(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C04_a_wall_clock_ahead_ends_no_lease),
        KIT_TEST(C04_a_clock_that_was_ahead_stretches_no_lease),
        KIT_TEST(C04_a_wall_clock_behind_stretches_no_lease),
        KIT_TEST(C04_what_is_extended_while_a_clock_is_ahead_ends_in_time),
        KIT_TEST(C04_the_end_of_a_lease_is_told_in_store_time),
        KIT_TEST(C04_a_start_of_the_machine_ends_every_lease),
        KIT_TEST(C04_who_knows_of_no_start_keeps_and_ends_leases_too),
        KIT_TEST(C04_keys_expire_while_the_machine_is_off),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
