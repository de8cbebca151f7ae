/* memory_store_test.c - what the conformance kit cannot see from outside: the registry of named
 * stores, expired keys, and threads.
 */
#include "base/memory.h"
#include "store/memory/memory_kit_test.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the registry ------------------------------------------------------------------------- */

static void named_stores_are_shared_until_the_last_handle_closes(void **state)
{
    (void)state;
    store_positions first, second;
    assert_null(kit_open("shared", WEIR_OPEN_EXISTING));
    weir_store *a = kit_open("shared", 0);
    weir_store *b = kit_open("shared", WEIR_OPEN_EXISTING);
    weir_store *other = kit_open("another", 0);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(kit_head(b), 1);
    assert_int_equal(kit_head(other), 0);
    assert_int_equal(a->log->positions(a, &first, NULL), WEIR_OK);
    a->about->close(a);
    assert_int_equal(kit_head(b), 1);
    b->about->close(b);

    assert_null(kit_open("shared", WEIR_OPEN_EXISTING));
    weir_store *again = kit_open("shared", 0);
    assert_int_equal(kit_head(again), 0);
    assert_int_equal(again->log->positions(again, &second, NULL), WEIR_OK);
    assert_string_not_equal(first.epoch, second.epoch);
    again->about->close(again);
    other->about->close(other);
}

static void unnamed_stores_are_private(void **state)
{
    (void)state;
    weir_store *a = kit_open("", 0);
    weir_store *b = kit_open("", 0);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(kit_head(b), 0);
    assert_null(kit_open("", WEIR_OPEN_EXISTING));
    assert_null(kit_open("", WEIR_OPEN_READONLY));
    a->about->close(a);
    b->about->close(b);
}

static void a_read_only_handle_reads_and_does_not_write(void **state)
{
    (void)state;
    weir_store *a = kit_open("shared", 0);
    weir_store *b = kit_open("shared", WEIR_OPEN_READONLY);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(kit_append(b, "order-1", "Placed", ""), WEIR_EMISUSE);
    assert_int_equal(kit_head(b), 1);
    a->about->close(a);
    b->about->close(b);
}

static void opening_survives_failed_allocations(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        weir__memory_fail_nth(nth);
        weir_store *s = kit_open("shared", 0);
        const bool failed = weir__memory_failed();
        weir__memory_fail_nth(0);
        if (!failed) {
            assert_true(nth > 1);
            s->about->close(s);
            return;
        }
        assert_null(s);
        assert_null(kit_open("shared", WEIR_OPEN_EXISTING));
    }
}

static void a_watch_outlives_its_handle_and_counts_between_waits(void **state)
{
    (void)state;
    weir_store *a = kit_open("shared", 0);
    weir_store *b = kit_open("shared", 0);
    store_watch *watch = NULL;
    bool woken = true;
    assert_int_equal(b->log->watch_open(b, &watch, NULL), WEIR_OK);
    assert_int_equal(a->log->watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_false(woken);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(a->log->watch_wait(watch, -1, &woken, NULL), WEIR_OK);
    assert_true(woken);
    assert_int_equal(a->log->watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_false(woken);
    b->about->close(b);
    assert_int_equal(kit_append(a, "order-1", "Placed", ""), WEIR_OK);
    a->about->close(a);
    assert_int_equal(weir__watch_wait(watch, 0, &woken, NULL), WEIR_OK);
    assert_true(woken);
    weir__memory_watch_close(watch);
}

/* ---- bounds ------------------------------------------------------------------------------- */

enum { KEYS = 150 };

static void expired_keys_go_in_bounded_batches(void **state)
{
    (void)state;
    weir_store *s = kit_open("", 0);
    const memory_core *c = weir__memory_handle(s)->core;
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, "key-%d", i);
        assert_int_equal(kit_append(s, "order-1", "Placed", key), WEIR_OK);
    }
    assert_int_equal(c->keys.count, KEYS);
    kit_time_us += 1000000;
    assert_int_equal(kit_append(s, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(c->keys.count, KEYS - KEYS_EXPIRED_MAX);
    /* One that has expired and is still there is unknown: it is used again. The last keys in the
     * order of their names go first. */
    assert_int_equal(kit_append(s, "order-1", "Placed", "key-0"), WEIR_OK);
    assert_int_equal(c->keys.count, KEYS - 2 * KEYS_EXPIRED_MAX);
    assert_int_equal(kit_head(s), KEYS + 2);
    assert_int_equal(kit_append(s, "order-1", "Placed", ""), WEIR_OK);
    assert_int_equal(c->keys.count, 1);
    s->about->close(s);
}

/* Three of the longest names are more than a message holds. */
static void a_refused_close_names_reactions_as_far_as_there_is_room(void **state)
{
    (void)state;
    weir_store *s = kit_open("", 0);
    weir_arena arena = { 0 };
    store_reaction r;
    char name[STORE_NAME_BYTES_MAX + 1] = "";
    store_append_stream stream = { .name = { .ptr = "order-1", .len = 7 } };
    const store_new_event event = { .name = { .ptr = "$closed", .len = 7 } };
    weir_error err;
    store_append a = { .flags = STORE_APPEND_CLOSE,
                       .streams = &stream,
                       .streams_count = 1,
                       .events = &event,
                       .events_count = 1,
                       .err = &err };
    store_append *const list[] = { &a };

    assert_int_equal(kit_append(s, "order-1", "Placed", ""), WEIR_OK);
    for (char c = 'a'; c <= 'c'; c++) {
        memset(name, c, STORE_NAME_BYTES_MAX);
        assert_int_equal(kit_declare(s, name, "Placed", STORE_RULE_STREAM, &r, &arena), WEIR_OK);
    }
    assert_int_equal(s->log->append(s, list, 1, NULL), WEIR_OK);
    assert_int_equal(a.status, WEIR_EHELD);
    assert_string_equal(err.stream, "order-1");
    assert_non_null(strstr(err.message, "not handled by: aaaa"));
    assert_int_equal(kit_head(s), 1);
    weir__arena_free(&arena);
    s->about->close(s);
}

/* ---- threads ------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 300 };

/* Appends, routes what it appended, leases, settles. What it loses to others is not an error. */
static void *work(void *ctx)
{
    weir_store *s = ctx;
    store_lease_list list = { 0 };
    store_reaction_list reactions = { 0 };
    for (int i = 0; i < ROUNDS; i++) {
        if (kit_append(s, "order-1", "Placed", "") != WEIR_OK ||
            s->work->reactions(s, &reactions, NULL) != WEIR_OK) {
            abort();
        }
        const store_reaction *r = &reactions.reactions[0];
        if (r->routed < kit_head(s)) {
            (void)kit_route(s, r, "target", r->routed + 1, r->routed + 1, r->routed + 1);
        }
        const store_lease_request request = kit_lease_request(1);
        if (s->work->turn(s, NULL, 0, &request, &list, NULL) != WEIR_OK) {
            abort();
        }
        for (size_t n = 0; n < list.leases_count; n++) {
            const store_leased *leased = &list.leases[n];
            const store_advance advance = { .reaction = leased->subscriptions[0].reaction,
                                            .to = leased->subscriptions[0].mark };
            store_settle settle = { .target = leased->target,
                                    .fence = leased->fence,
                                    .advances = &advance,
                                    .advances_count = 1 };
            if (s->work->settle(s, &settle, NULL) != WEIR_OK) {
                abort();
            }
        }
    }
    weir__arena_free(&list.arena);
    weir__arena_free(&reactions.arena);
    return NULL;
}

static void threads_share_a_store(void **state)
{
    (void)state;
    weir_store *s = kit_open("", 0);
    weir_arena arena = { 0 };
    store_reaction r;
    pthread_t threads[THREADS];
    assert_int_equal(kit_declare(s, "one", "Placed", STORE_RULE_STREAM, &r, &arena), WEIR_OK);
    weir__arena_free(&arena);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, s), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(kit_head(s), THREADS * ROUNDS);
    weir_buffer end = kit_describe(s);
    weir__buffer_free(&end);
    s->about->close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_stores_are_shared_until_the_last_handle_closes),
        cmocka_unit_test(unnamed_stores_are_private),
        cmocka_unit_test(a_read_only_handle_reads_and_does_not_write),
        cmocka_unit_test(opening_survives_failed_allocations),
        cmocka_unit_test(a_watch_outlives_its_handle_and_counts_between_waits),
        cmocka_unit_test(expired_keys_go_in_bounded_batches),
        cmocka_unit_test(a_refused_close_names_reactions_as_far_as_there_is_room),
        cmocka_unit_test(threads_share_a_store),
    };
    return cmocka_run_group_tests_name("memory_store", tests, NULL, NULL);
}
