/* once.c - P10: a key of once has one run at a time, and none any more when one was done; who
 * failed or crashed is followed by another, who has a larger fence.
 */
#include "kit.h"

#include <stdio.h>

static weir_status begin_on(kit *k, weir_store *s, const char *key, const char *holder,
                            store_lock *out)
{
    return s->locks->take(
        s, &(store_lock_request){ STORE_ONCE, weir__str(key), weir__str(holder), KIT_LEASE_US },
        &k->arena, out, &k->err);
}

/* A run that is the caller's. */
static store_lock begin(kit *k, const char *key, const char *holder)
{
    store_lock out = { 0 };
    KIT_OK(k, begin_on(k, k->store, key, holder, &out));
    assert_int_equal(out.state, STORE_ONCE_RUNNING);
    KIT_STR(out.name, key);
    KIT_STR(out.holder, holder);
    assert_true(out.fence > 0);
    assert_int_equal(out.since_us, kit_now(k));
    assert_int_equal(out.until_us, out.since_us + KIT_LEASE_US);
    return out;
}

static weir_status finish(kit *k, const store_lock *o, int64_t exit_status, weir_str output)
{
    return k->store->locks->finish(k->store, o->name, o->fence, o->token, exit_status, output,
                                   &k->err);
}

static weir_status extend(kit *k, const store_lock *o)
{
    return k->store->locks->extend(k->store, STORE_ONCE, o->name, o->fence, o->token, KIT_LEASE_US,
                                   &k->err);
}

static weir_status forget(kit *k, const char *key)
{
    return k->store->locks->forget(k->store, weir__str(key), &k->err);
}

static void P10_a_key_that_was_done_is_not_begun_again(void **state)
{
    kit *k = *state;
    static const char output[] = "two lines\nand \0\xff any \x01 bytes\n";
    const weir_str bytes = { .ptr = output, .len = sizeof output - 1 };
    store_lock again = { 0 };

    const store_lock first = begin(k, "nightly", "me");
    kit_advance(k, 1000);
    KIT_OK(k, finish(k, &first, 0, bytes));
    const int64_t ended_us = kit_now(k);
    kit_advance(k, (int64_t)1000 * KIT_LEASE_US);
    kit_reopen(k);
    weir_store *other = kit_open(k);
    KIT_OK(k, begin_on(k, other, "nightly", "you", &again));
    assert_int_equal(again.state, STORE_ONCE_DONE);
    KIT_STR(again.holder, "me");
    assert_int_equal(again.fence, first.fence);
    assert_int_equal(again.since_us, first.since_us);
    assert_int_equal(again.exit_status, 0);
    assert_int_equal(again.ended_us, ended_us);
    assert_int_equal(again.output.len, bytes.len);
    assert_memory_equal(again.output.ptr, output, bytes.len);
    kit_check(k);
}

static void P10_what_a_run_printed_is_kept_up_to_the_limit(void **state)
{
    kit *k = *state;
    store_lock again = { 0 };
    char *bytes = weir__arena_alloc(&k->arena, STORE_ONCE_OUTPUT_BYTES_MAX);
    for (size_t i = 0; i < STORE_ONCE_OUTPUT_BYTES_MAX; i++) {
        bytes[i] = (char)(i % 251);
    }
    const store_lock full = begin(k, "full", "me");
    KIT_OK(k, finish(k, &full, 0, (weir_str){ .ptr = bytes, .len = STORE_ONCE_OUTPUT_BYTES_MAX }));
    KIT_OK(k, begin_on(k, k->store, "full", "you", &again));
    assert_int_equal(again.output.len, STORE_ONCE_OUTPUT_BYTES_MAX);
    assert_memory_equal(again.output.ptr, bytes, STORE_ONCE_OUTPUT_BYTES_MAX);

    const store_lock silent = begin(k, "silent", "me");
    KIT_OK(k, finish(k, &silent, 0, (weir_str){ 0 }));
    KIT_OK(k, begin_on(k, k->store, "silent", "you", &again));
    assert_int_equal(again.state, STORE_ONCE_DONE);
    assert_int_equal(again.output.len, 0);
}

static void P10_a_key_has_one_run_at_a_time(void **state)
{
    kit *k = *state;
    store_lock theirs = { 0 };
    char since[WEIR_TIME_TEXT_BYTES];
    const store_lock mine = begin(k, "key", "me on host-1");
    weir__time_to_text(mine.since_us, since);
    kit_advance(k, KIT_LEASE_US - 1);
    KIT_OK(k, extend(k, &mine));
    kit_advance(k, KIT_LEASE_US - 1);
    KIT_IS(k, begin_on(k, kit_open(k), "key", "you", &theirs), WEIR_EINFLIGHT);
    assert_int_equal(theirs.state, STORE_ONCE_RUNNING);
    KIT_STR(theirs.holder, "me on host-1");
    assert_int_equal(theirs.fence, mine.fence);
    assert_int_equal(theirs.since_us, mine.since_us);
    assert_int_equal(theirs.until_us, kit_now(k) + 1);
    assert_string_equal(k->err.message,
                        kit_text(k, "\"key\" is being run by me on host-1 since %s", since));
    KIT_IS(k, forget(k, "key"), WEIR_EINFLIGHT);
    (void)begin(k, "key-2", "you");
}

static void P10_a_run_that_failed_may_be_tried_again(void **state)
{
    kit *k = *state;
    store_lock third = { 0 };
    const store_lock first = begin(k, "key", "me");
    KIT_OK(k, finish(k, &first, 3, weir__str("it broke")));
    const store_lock second = begin(k, "key", "you");
    assert_true(second.fence > first.fence);
    assert_int_equal(second.output.len, 0);
    KIT_IS(k, finish(k, &first, 0, weir__str("late")), WEIR_ELOST);
    KIT_OK(k, finish(k, &second, 0, weir__str("done")));
    KIT_OK(k, begin_on(k, k->store, "key", "they", &third));
    assert_int_equal(third.state, STORE_ONCE_DONE);
    KIT_STR(third.output, "done");
}

static void P10_a_run_whose_lease_has_ended_may_be_tried_again(void **state)
{
    kit *k = *state;
    const store_lock first = begin(k, "key", "me");
    kit_reopen(k);
    kit_advance(k, KIT_LEASE_US);
    const store_lock second = begin(k, "key", "you");
    assert_true(second.fence > first.fence);
    KIT_IS(k, extend(k, &first), WEIR_ELOST);
    KIT_IS(k, finish(k, &first, 0, weir__str("late")), WEIR_ELOST);
    KIT_OK(k, extend(k, &second));
}

static void P10_whom_nobody_followed_may_finish_late(void **state)
{
    kit *k = *state;
    store_lock again = { 0 };
    const store_lock mine = begin(k, "key", "me");
    kit_advance(k, 2 * (int64_t)KIT_LEASE_US);
    KIT_OK(k, finish(k, &mine, 0, weir__str("late")));
    KIT_OK(k, begin_on(k, k->store, "key", "you", &again));
    assert_int_equal(again.state, STORE_ONCE_DONE);
    KIT_STR(again.output, "late");
}

static void P10_finishing_twice_changes_nothing(void **state)
{
    kit *k = *state;
    store_lock again = { 0 };
    const store_lock mine = begin(k, "key", "me");
    KIT_OK(k, finish(k, &mine, 0, weir__str("first")));
    KIT_OK(k, finish(k, &mine, 1, weir__str("second")));
    KIT_IS(k, extend(k, &mine), WEIR_ELOST);
    KIT_OK(k, begin_on(k, k->store, "key", "you", &again));
    assert_int_equal(again.state, STORE_ONCE_DONE);
    KIT_STR(again.output, "first");
}

static void P10_a_forgotten_key_begins_anew(void **state)
{
    kit *k = *state;
    KIT_IS(k, forget(k, "key"), WEIR_ENOTFOUND);
    assert_string_equal(k->err.message, "there is no run of \"key\"");
    const store_lock first = begin(k, "key", "me");
    KIT_OK(k, finish(k, &first, 0, weir__str("x")));
    KIT_OK(k, forget(k, "key"));
    KIT_IS(k, finish(k, &first, 0, weir__str("x")), WEIR_ELOST);
    const store_lock second = begin(k, "key", "me");
    assert_true(second.fence > first.fence);
    kit_advance(k, KIT_LEASE_US);
    KIT_OK(k, forget(k, "key")); /* it crashed */
    (void)begin(k, "key", "me");
}

static void P10_keys_and_names_of_locks_are_apart(void **state)
{
    kit *k = *state;
    store_lock lock = { 0 };
    store_lock_list list = { 0 };
    const store_lock once = begin(k, "same", "a run");
    KIT_OK(k, k->store->locks->take(k->store,
                                    &(store_lock_request){ STORE_LOCK, weir__str("same"),
                                                           weir__str("a lock"), KIT_LEASE_US },
                                    &k->arena, &lock, &k->err));
    assert_int_not_equal(lock.fence, once.fence);
    KIT_IS(k, k->store->locks->release(k->store, lock.name, once.fence, once.token, &k->err),
           WEIR_ELOST);
    KIT_OK(k, k->store->locks->list(k->store, &list, &k->err));
    assert_int_equal(list.locks_count, 1);
    KIT_STR(list.locks[0].holder, "a lock");
    kit_keep(k, &list.arena);
    KIT_OK(k, k->store->locks->release(k->store, lock.name, lock.fence, lock.token, &k->err));
    KIT_OK(k, extend(k, &once));
}

/* The keys and states of a list, one after the other. */
static const char *listed(kit *k, const char *pattern, int64_t limit)
{
    static const char *const words[] = { [STORE_ONCE_RUNNING] = "running",
                                         [STORE_ONCE_DONE] = "done",
                                         [STORE_ONCE_FAILED] = "failed",
                                         [STORE_ONCE_DIED] = "died" };
    store_once_list list = { 0 };
    store_pattern *match = NULL;
    const char *all = "";
    if (pattern != NULL) {
        KIT_OK(k, weir__pattern_open(&match, weir__str(pattern), &k->err));
    }
    KIT_OK(k, k->store->locks->runs(k->store, match, limit, &list, &k->err));
    for (size_t i = 0; i < list.runs_count; i++) {
        const store_lock *o = &list.runs[i];
        all = kit_text(k, "%s%s%.*s %s", all, i == 0 ? "" : ", ", (int)o->name.len, o->name.ptr,
                       words[o->state]);
        assert_int_equal(o->output.len, 0);
    }
    kit_keep(k, &list.arena);
    weir__pattern_close(match);
    return all;
}

static void P10_runs_are_listed_with_how_they_ended(void **state)
{
    kit *k = *state;
    store_once_list list = { 0 };
    store_lock lock = { 0 };
    assert_string_equal(listed(k, NULL, 10), "");
    KIT_OK(k, k->store->locks->take(k->store,
                                    &(store_lock_request){ STORE_LOCK, weir__str("a-lock"),
                                                           weir__str("me"), KIT_LEASE_US },
                                    &k->arena, &lock, &k->err));
    const store_lock dead = begin(k, "dead", "me@there pid 1");
    kit_advance(k, 1000);
    const store_lock done = begin(k, "job-1", "me@here pid 2");
    kit_advance(k, 1000);
    KIT_OK(k, finish(k, &done, 0, weir__str("output")));
    const int64_t done_us = kit_now(k);
    const store_lock failed = begin(k, "job-2", "me@here pid 3");
    kit_advance(k, 1000);
    KIT_OK(k, finish(k, &failed, 3, weir__str("output")));
    assert_string_equal(listed(k, NULL, 10), "dead running, job-2 failed, job-1 done");
    kit_advance(k, KIT_LEASE_US);
    (void)begin(k, "job-4", "me");
    (void)begin(k, "job-3", "me");
    kit_reopen(k);
    const char *const all = "job-3 running, job-4 running, job-2 failed, job-1 done, dead died";
    assert_string_equal(listed(k, NULL, 10), all);
    assert_string_equal(listed(k, "*", 10), all);
    assert_string_equal(listed(k, NULL, 3), "job-3 running, job-4 running, job-2 failed");
    assert_string_equal(listed(k, NULL, 0), "");
    assert_string_equal(listed(k, "dead", 10), "dead died");
    assert_string_equal(listed(k, "dea", 10), "");
    assert_string_equal(listed(k, "job-*", 3), "job-3 running, job-4 running, job-2 failed");
    assert_string_equal(listed(k, "/[12]$/", 1), "job-2 failed");

    KIT_OK(k, k->store->locks->runs(k->store, NULL, 10, &list, &k->err));
    const store_lock *o = &list.runs[3];
    KIT_STR(o->holder, "me@here pid 2");
    assert_int_equal(o->fence, done.fence);
    assert_int_equal(o->since_us, done.since_us);
    assert_int_equal(o->ended_us, done_us);
    assert_int_equal(o->exit_status, 0);
    assert_int_equal(list.runs[2].exit_status, 3);
    assert_int_equal(list.runs[4].since_us, dead.since_us);
    assert_int_equal(list.runs[4].until_us, dead.until_us);
    assert_int_equal(list.runs[4].ended_us, 0);
    kit_keep(k, &list.arena);
    const store_lock again = begin(k, "dead", "you");
    assert_string_equal(listed(k, "dead", 10), "dead running");
    KIT_OK(k, finish(k, &again, 0, (weir_str){ 0 }));
    KIT_OK(k, forget(k, "dead"));
    assert_string_equal(listed(k, "dead", 10), "");
}

/* ---- many at once --------------------------------------------------------------------------- */

enum { RUNNERS = 8, KEYS = 20, TRIES = 3 };

typedef struct runners {
    weir_store *stores[RUNNERS];
    weir_status status[RUNNERS];
    _Atomic int64_t begun[KEYS], done[KEYS];
} runners;

/* Goes through all keys until each is done. A key fails for all but its TRIESth run. */
static void run_keys(void *ctx, size_t index)
{
    runners *r = ctx;
    weir_store *s = r->stores[index];
    for (int key = 0; key < KEYS && r->status[index] == WEIR_OK;) {
        char name[16];
        weir_arena arena = { 0 };
        weir_error err;
        store_lock o = { 0 };
        (void)snprintf(name, sizeof name, "key-%d", key);
        weir_status status = s->locks->take(
            s, &(store_lock_request){ STORE_ONCE, weir__str(name), weir__str("t"), KIT_LEASE_US },
            &arena, &o, &err);
        if (status == WEIR_OK && o.state == STORE_ONCE_DONE) {
            key++;
        } else if (status == WEIR_OK) {
            const bool last = ++r->begun[key] == TRIES;
            r->done[key] += last;
            status = s->locks->finish(s, weir__str(name), o.fence, o.token, last ? 0 : 1,
                                      weir__str("x"), &err);
        }
        r->status[index] = status == WEIR_EINFLIGHT ? WEIR_OK : status;
        weir__arena_free(&arena);
    }
}

static void P10_of_many_at_once_one_runs(void **state)
{
    kit *k = *state;
    static runners r;
    r = (runners){ 0 };
    for (size_t i = 0; i < RUNNERS; i++) {
        r.stores[i] = i % 2 == 0 ? k->store : kit_open(k);
    }
    kit_threads(RUNNERS, run_keys, &r);
    for (size_t i = 0; i < RUNNERS; i++) {
        assert_int_equal(r.status[i], WEIR_OK);
    }
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(r.begun[i], TRIES);
        assert_int_equal(r.done[i], 1);
    }
}

kit_theme kit_once(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(P10_a_key_that_was_done_is_not_begun_again),
        KIT_TEST(P10_what_a_run_printed_is_kept_up_to_the_limit),
        KIT_TEST(P10_a_key_has_one_run_at_a_time),
        KIT_TEST(P10_a_run_that_failed_may_be_tried_again),
        KIT_TEST(P10_a_run_whose_lease_has_ended_may_be_tried_again),
        KIT_TEST(P10_whom_nobody_followed_may_finish_late),
        KIT_TEST(P10_finishing_twice_changes_nothing),
        KIT_TEST(P10_a_forgotten_key_begins_anew),
        KIT_TEST(P10_keys_and_names_of_locks_are_apart),
        KIT_TEST(P10_runs_are_listed_with_how_they_ended),
        KIT_TEST(P10_of_many_at_once_one_runs),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
