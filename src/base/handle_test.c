/* handle_test.c - tickets: calls after the end are refused, calls inside are waited for, and the
 * object is ended once, by whoever is last.
 *
 * Method: an object that counts its ends; threads that enter and leave while others shut it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/handle.h"
#include "base/thread.h"

#include <stdlib.h>

enum { THREADS = 8, ROUNDS = 200 };

typedef struct thing {
    _Atomic int ends;
    _Atomic int inside;
    _Atomic bool bad; /* ended while somebody was inside */
} thing;

static void thing_end(void *object)
{
    thing *t = object;
    atomic_fetch_add(&t->ends, 1);
    if (atomic_load(&t->inside) > 0) {
        atomic_store(&t->bad, true);
    }
}

static void an_object_is_reached_by_its_ticket_alone(void **state)
{
    (void)state;
    thing t = { 0 }, other = { 0 };
    void *ticket = weir__handle_open(HANDLE_STORE, &t, thing_end);
    assert_non_null(ticket);
    assert_ptr_equal(weir__handle_enter(HANDLE_STORE, ticket), &t);
    weir__handle_leave(ticket);
    assert_null(weir__handle_enter(HANDLE_ENGINE, ticket)); /* another kind */
    assert_null(weir__handle_enter(HANDLE_STORE, NULL));
    assert_null(weir__handle_enter(HANDLE_STORE, &t)); /* an address */
    assert_ptr_equal(weir__handle_shut(HANDLE_STORE, ticket), &t);
    assert_int_equal(t.ends, 0);
    weir__handle_end(ticket, false);
    assert_int_equal(t.ends, 1);
    /* Its place is used again, and the old ticket is still refused. */
    void *later = weir__handle_open(HANDLE_STORE, &other, thing_end);
    assert_ptr_not_equal(later, ticket);
    assert_null(weir__handle_enter(HANDLE_STORE, ticket));
    assert_null(weir__handle_shut(HANDLE_STORE, ticket));
    assert_ptr_equal(weir__handle_enter(HANDLE_STORE, later), &other);
    weir__handle_leave(later);
    assert_non_null(weir__handle_shut(HANDLE_STORE, later));
    weir__handle_end(later, false);
    assert_int_equal(t.ends, 1);
    assert_int_equal(other.ends, 1);
}

static void ended_from_inside_it_ends_with_the_last_call(void **state)
{
    (void)state;
    thing t = { 0 };
    void *ticket = weir__handle_open(HANDLE_STORE, &t, thing_end);
    assert_non_null(weir__handle_enter(HANDLE_STORE, ticket));
    assert_non_null(weir__handle_enter(HANDLE_STORE, ticket)); /* a callback that calls */
    assert_non_null(weir__handle_shut(HANDLE_STORE, ticket));
    weir__handle_end(ticket, false);
    assert_null(weir__handle_enter(HANDLE_STORE, ticket));
    weir__handle_leave(ticket);
    assert_int_equal(t.ends, 0);
    weir__handle_leave(ticket);
    assert_int_equal(t.ends, 1);
}

static void in_a_forked_child_nobody_is_waited_for(void **state)
{
    (void)state;
    thing t = { 0 };
    void *ticket = weir__handle_open(HANDLE_STORE, &t, thing_end);
    assert_non_null(weir__handle_enter(HANDLE_STORE, ticket)); /* as a thread that is not here */
    assert_non_null(weir__handle_shut(HANDLE_STORE, ticket));
    weir__handle_end(ticket, true);
    assert_int_equal(t.ends, 1);
}

static void so_many_can_be_open_and_no_more(void **state)
{
    (void)state;
    thing t = { 0 };
    void **tickets = calloc(HANDLES_MAX, sizeof(void *));
    assert_non_null(tickets);
    for (int i = 0; i < HANDLES_MAX; i++) {
        tickets[i] = weir__handle_open(HANDLE_TABLES, &t, thing_end);
        assert_non_null(tickets[i]);
    }
    assert_null(weir__handle_open(HANDLE_TABLES, &t, thing_end));
    for (int i = 0; i < HANDLES_MAX; i++) {
        assert_non_null(weir__handle_shut(HANDLE_TABLES, tickets[i]));
        weir__handle_end(tickets[i], false);
    }
    assert_int_equal(t.ends, HANDLES_MAX);
    free(tickets);
}

/* ---- threads ------------------------------------------------------------------------------ */

typedef struct race {
    thing thing;
    void *ticket;
    pthread_barrier_t begin;
    _Atomic int entered, shut;
} race;

static void *race_main(void *arg)
{
    race *r = arg;
    const int me = atomic_fetch_add(&r->entered, 1);
    (void)pthread_barrier_wait(&r->begin);
    for (int i = 0; i < 20; i++) {
        if (me < 2 && i == 10) { /* two want to end it, one of them from inside */
            const bool nested = me == 0 && weir__handle_enter(HANDLE_STORE, r->ticket) != NULL;
            if (weir__handle_shut(HANDLE_STORE, r->ticket) != NULL) {
                atomic_fetch_add(&r->shut, 1);
                weir__handle_end(r->ticket, false);
            }
            if (nested) {
                weir__handle_leave(r->ticket);
            }
        }
        thing *t = weir__handle_enter(HANDLE_STORE, r->ticket);
        if (t != NULL) {
            atomic_fetch_add(&t->inside, 1);
            atomic_fetch_sub(&t->inside, 1);
            weir__handle_leave(r->ticket);
        }
    }
    return NULL;
}

static void eight_threads_enter_while_two_of_them_end_it(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        race r = { 0 };
        pthread_t threads[THREADS];
        assert_int_equal(pthread_barrier_init(&r.begin, NULL, THREADS), 0);
        r.ticket = weir__handle_open(HANDLE_STORE, &r.thing, thing_end);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, race_main, &r), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            (void)pthread_join(threads[i], NULL);
        }
        assert_int_equal(r.shut, 1);
        assert_int_equal(r.thing.ends, 1);
        assert_false(r.thing.bad);
        (void)pthread_barrier_destroy(&r.begin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_reached_by_its_ticket_alone),
        cmocka_unit_test(ended_from_inside_it_ends_with_the_last_call),
        cmocka_unit_test(in_a_forked_child_nobody_is_waited_for),
        cmocka_unit_test(so_many_can_be_open_and_no_more),
        cmocka_unit_test(eight_threads_enter_while_two_of_them_end_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
