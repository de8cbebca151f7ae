/* locks.c - C40: the store never records two holders of a named lock, a lock ends with its holder's
 * lease, and each acquisition has a fence that is larger than all before it.
 */
#include "kit.h"

static weir_status take_on(kit *k, weir_store *s, const char *name, const char *holder,
                           int64_t lease_us, store_lock *out)
{
    return s->locks->take(
        s, &(store_lock_request){ STORE_LOCK, weir__str(name), weir__str(holder), lease_us },
        &k->arena, out, &k->err);
}

static store_lock take(kit *k, const char *name, const char *holder, int64_t lease_us)
{
    store_lock out = { 0 };
    KIT_OK(k, take_on(k, k->store, name, holder, lease_us, &out));
    KIT_STR(out.name, name);
    KIT_STR(out.holder, holder);
    return out;
}

static weir_status extend(kit *k, const store_lock *l, int64_t lease_us)
{
    return k->store->locks->extend(k->store, STORE_LOCK, l->name, l->fence, l->token, lease_us,
                                   &k->err);
}

static weir_status release(kit *k, const store_lock *l)
{
    return k->store->locks->release(k->store, l->name, l->fence, l->token, &k->err);
}

/* Names and holders that are listed, in one text. */
static const char *listed(kit *k)
{
    store_lock_list list = { 0 };
    const char *text = "";
    KIT_OK(k, k->store->locks->list(k->store, &list, &k->err));
    for (size_t i = 0; i < list.locks_count; i++) {
        const store_lock *l = &list.locks[i];
        text = kit_text(k, "%s%.*s=%.*s ", text, (int)l->name.len, l->name.ptr, (int)l->holder.len,
                        l->holder.ptr);
    }
    kit_keep(k, &list.arena);
    return text;
}

static void C40_a_name_has_one_holder(void **state)
{
    kit *k = *state;
    weir_store *other = kit_open(k);
    store_lock theirs = { 0 };
    char since[WEIR_TIME_TEXT_BYTES];

    const store_lock mine = take(k, "nightly", "me on host-1", KIT_LEASE_US);
    assert_true(mine.fence > 0);
    assert_int_equal(mine.since_us, kit_now(k));
    assert_int_equal(mine.until_us, mine.since_us + KIT_LEASE_US);
    kit_advance(k, KIT_LEASE_US - 1);
    KIT_IS(k, take_on(k, other, "nightly", "you", KIT_LEASE_US, &theirs), WEIR_EHELD);
    KIT_STR(theirs.name, "nightly");
    KIT_STR(theirs.holder, "me on host-1");
    assert_int_equal(theirs.fence, mine.fence);
    assert_int_equal(theirs.since_us, mine.since_us);
    assert_int_equal(theirs.until_us, mine.until_us);
    weir__time_to_text(mine.since_us, since);
    assert_string_equal(k->err.message,
                        kit_text(k, "\"nightly\" is held by me on host-1 since %s", since));
    /* Who has it is no exception: a holder is a text, not an identity. */
    KIT_IS(k, take_on(k, k->store, "nightly", "me on host-1", KIT_LEASE_US, &theirs), WEIR_EHELD);
    KIT_OK(k, extend(k, &mine, KIT_LEASE_US));
    kit_check(k);
}

static void C40_a_lock_ends_with_its_lease(void **state)
{
    kit *k = *state;
    const store_lock mine = take(k, "n", "me", KIT_LEASE_US);
    kit_advance(k, KIT_LEASE_US);
    const store_lock theirs = take(k, "n", "you", KIT_LEASE_US);
    assert_true(theirs.fence > mine.fence);
    assert_int_equal(theirs.since_us, kit_now(k));
    KIT_IS(k, extend(k, &mine, KIT_LEASE_US), WEIR_ELOST);
    assert_string_equal(k->err.message, kit_text(k, "\"n\" is no longer held with fence %lld",
                                                 (long long)mine.fence));
    KIT_IS(k, release(k, &mine), WEIR_ELOST);
    assert_string_equal(listed(k), "n=you ");
    KIT_OK(k, release(k, &theirs));
}

static void C40_a_lock_lives_as_long_as_it_is_extended(void **state)
{
    kit *k = *state;
    store_lock theirs = { 0 };
    const store_lock mine = take(k, "n", "me", KIT_LEASE_US);
    for (int i = 0; i < 5; i++) {
        kit_advance(k, KIT_LEASE_US - 1);
        KIT_OK(k, extend(k, &mine, KIT_LEASE_US));
    }
    kit_advance(k, KIT_LEASE_US - 1);
    KIT_IS(k, take_on(k, k->store, "n", "you", KIT_LEASE_US, &theirs), WEIR_EHELD);
    assert_int_equal(theirs.since_us, mine.since_us);
    kit_advance(k, 1);
    /* Nobody has followed: the fence decides, not the clock. */
    KIT_OK(k, extend(k, &mine, INT64_MAX));
    kit_advance(k, (int64_t)1000 * KIT_LEASE_US);
    KIT_IS(k, take_on(k, k->store, "n", "you", KIT_LEASE_US, &theirs), WEIR_EHELD);
    assert_int_equal(theirs.until_us, INT64_MAX);
}

static void C40_a_released_lock_is_free(void **state)
{
    kit *k = *state;
    const store_lock mine = take(k, "n", "me", KIT_LEASE_US);
    KIT_OK(k, release(k, &mine));
    KIT_IS(k, release(k, &mine), WEIR_ELOST);
    KIT_IS(k, extend(k, &mine, KIT_LEASE_US), WEIR_ELOST);
    assert_string_equal(listed(k), "");
    (void)take(k, "n", "you", KIT_LEASE_US);
    const store_lock unknown = { .name = weir__str("never"), .fence = 1 };
    KIT_IS(k, release(k, &unknown), WEIR_ELOST);
}

static void C40_each_acquisition_has_a_larger_fence(void **state)
{
    kit *k = *state;
    int64_t last = 0;
    for (int i = 0; i < 12; i++) {
        const store_lock l = take(k, "n", "me", i % 3 == 2 ? 0 : KIT_LEASE_US);
        assert_true(l.fence > last);
        last = l.fence;
        if (i % 3 == 0) {
            KIT_OK(k, release(k, &l)); /* its row may be gone, its fences are not */
        } else {
            kit_advance(k, KIT_LEASE_US); /* it crashed */
        }
        if (i % 4 == 1) {
            (void)take(k, kit_text(k, "another-%d", i), "me", KIT_LEASE_US);
        }
        if (i % 5 == 4) {
            kit_reopen(k);
        }
    }
    kit_check(k);
}

static void C40_what_is_held_by_other_means_has_a_fence_too(void **state)
{
    kit *k = *state;
    store_lock theirs = { 0 };
    const store_lock first = take(k, "n", "me", 0);
    assert_int_equal(first.until_us, 0);
    assert_string_equal(listed(k), "n=me ");
    KIT_OK(k, extend(k, &first, KIT_LEASE_US));
    kit_advance(k, (int64_t)1000 * KIT_LEASE_US);
    assert_string_equal(listed(k), "n=me "); /* only who has it can tell when it ends */
    const store_lock second = take(k, "n", "you", 0);
    assert_true(second.fence > first.fence);
    KIT_IS(k, release(k, &first), WEIR_ELOST);
    KIT_OK(k, release(k, &second));
    /* A lease keeps them out, too. */
    (void)take(k, "n", "leased", KIT_LEASE_US);
    KIT_IS(k, take_on(k, k->store, "n", "me", 0, &theirs), WEIR_EHELD);
    KIT_STR(theirs.holder, "leased");
}

static void C40_locks_are_listed_by_name(void **state)
{
    kit *k = *state;
    store_lock_list list = { 0 };
    const store_lock c = take(k, "c", "three", KIT_LEASE_US);
    (void)take(k, "a", "one", 2 * (int64_t)KIT_LEASE_US);
    (void)take(k, "\xc3\xa4", "last", KIT_LEASE_US);
    (void)take(k, "B", "none", 0);
    assert_string_equal(listed(k), "B=none a=one c=three \xc3\xa4=last ");
    KIT_OK(k, k->store->locks->list(k->store, &list, &k->err));
    assert_int_equal(list.locks[2].fence, c.fence);
    assert_int_equal(list.locks[2].since_us, c.since_us);
    assert_int_equal(list.locks[2].until_us, c.until_us);
    assert_int_equal(list.locks[0].until_us, 0);
    kit_keep(k, &list.arena);
    kit_advance(k, KIT_LEASE_US);
    assert_string_equal(listed(k), "B=none a=one ");
}

/* ---- many at once --------------------------------------------------------------------------- */

enum { TAKERS = 8, ROUNDS = 50 };

typedef struct takers {
    weir_store *stores[TAKERS];
    weir_status status[TAKERS];
    _Atomic int64_t holders;    /* who believe to hold it at this moment */
    _Atomic int64_t last_fence; /* of the latest holder                  */
    _Atomic int64_t taken, doubled, backwards;
} takers;

/* Takes the one name over and over and gives it back; while it holds it, nobody else must. */
static void take_many(void *ctx, size_t index)
{
    takers *t = ctx;
    weir_store *s = t->stores[index];
    const weir_str name = weir__str("n");
    for (int round = 0; round < ROUNDS && t->status[index] == WEIR_OK;) {
        weir_arena arena = { 0 };
        weir_error err;
        store_lock l = { 0 };
        weir_status status = s->locks->take(
            s, &(store_lock_request){ STORE_LOCK, name, weir__str("t"), KIT_LEASE_US }, &arena, &l,
            &err);
        if (status == WEIR_OK) {
            round++;
            t->taken++;
            t->doubled += t->holders++ != 0;
            t->backwards += atomic_exchange(&t->last_fence, l.fence) >= l.fence;
            t->holders--;
            status = s->locks->release(s, name, l.fence, l.token, &err);
        }
        t->status[index] = status == WEIR_EHELD ? WEIR_OK : status;
        weir__arena_free(&arena);
    }
}

static void C40_of_many_at_once_one_has_it(void **state)
{
    kit *k = *state;
    static takers t;
    t = (takers){ 0 };
    for (size_t i = 0; i < TAKERS; i++) {
        t.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(TAKERS, take_many, &t);
    for (size_t i = 0; i < TAKERS; i++) {
        assert_int_equal(t.status[i], WEIR_OK);
    }
    assert_int_equal(t.taken, TAKERS * ROUNDS);
    assert_int_equal(t.doubled, 0);
    assert_int_equal(t.backwards, 0);
    assert_string_equal(listed(k), "");
    kit_check(k);
}

kit_theme kit_locks(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(C40_a_name_has_one_holder),
        KIT_TEST(C40_a_lock_ends_with_its_lease),
        KIT_TEST(C40_a_lock_lives_as_long_as_it_is_extended),
        KIT_TEST(C40_a_released_lock_is_free),
        KIT_TEST(C40_each_acquisition_has_a_larger_fence),
        KIT_TEST(C40_what_is_held_by_other_means_has_a_fence_too),
        KIT_TEST(C40_locks_are_listed_by_name),
        KIT_TEST(C40_of_many_at_once_one_has_it),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
