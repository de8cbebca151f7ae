/* handle.c - see handle.h.
 *
 * INVARIANTS
 *   (1) A place's word is: how often it was used (32 bits), CLOSED, DEFERRED, how many calls are
 *       inside (30 bits). It is the only thing that a stale ticket looks at.
 *   (2) The other fields of a place are written while it is free, under `mu`, and read by calls
 *       that are inside, or that have shut it.
 *   (3) The call that has shut a place is inside until weir__handle_end. It frees the place when no
 *       other call is inside; with DEFERRED, the last call that leaves does.
 *
 * THREADS  `mu` guards the list of free places and is held around a wait for `left` only. It is a
 * leaf, and free at a fork.
 */
#include "base/handle.h"

#include "base/assert.h"
#include "base/thread.h"

#include <assert.h>
#include <string.h>

#define INDEX_BITS 16
#define CLOSED     (UINT64_C(1) << 31)
#define DEFERRED   (UINT64_C(1) << 30)
#define INSIDE     (DEFERRED - 1)

static_assert(HANDLES_MAX <= 1 << INDEX_BITS, "a place fits into a ticket");

typedef struct place {
    _Atomic uint64_t word; /* 0: never used */
    void *object;
    void (*end)(void *object);
    handle_kind kind;
    uint32_t next_free; /* guarded by mu: index + 1; 0: none */
} place;

static place places[HANDLES_MAX];
static weir_mutex mu = { PTHREAD_MUTEX_INITIALIZER };
static weir_cond left = { PTHREAD_COND_INITIALIZER };
static uint32_t free_first;   /* guarded by mu: index + 1; 0: none */
static uint32_t places_count; /* guarded by mu: that were ever used */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Calls that this thread is inside of, of any handle. */
static _Thread_local unsigned depth;

static void before_fork(void) WEIR_NO_LOCK_CHECK
{
    weir__lock(&mu);
}

static void in_parent(void) WEIR_NO_LOCK_CHECK
{
    weir__unlock(&mu);
}

static void in_child(void) WEIR_NO_LOCK_CHECK
{
    static const weir_cond none = { PTHREAD_COND_INITIALIZER };
    left = none; /* the threads that waited are not in this process */
    weir__unlock(&mu);
}

/* Without the handlers (out of memory) a fork in the middle of an open or a close is not safe. */
static void fork_register(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- tickets ------------------------------------------------------------------------------ */

static uintptr_t use_of(uint64_t word)
{
    return (uintptr_t)(word >> 32) & (UINTPTR_MAX >> INDEX_BITS);
}

static void *ticket_make(uint32_t index, uint64_t word)
{
    const uintptr_t number = use_of(word) << INDEX_BITS | index;
    void *ticket = NULL;
    memcpy(&ticket, &number, sizeof ticket); /* not an address: never followed */
    return ticket;
}

/* NULL: no ticket of ours. *use: which use of the place it is for. */
static place *place_of(const void *ticket, uintptr_t *use)
{
    const uintptr_t number = (uintptr_t)ticket;
    const uintptr_t index = number & (((uintptr_t)1 << INDEX_BITS) - 1);
    *use = number >> INDEX_BITS;
    return *use == 0 || index >= HANDLES_MAX ? NULL : &places[index];
}

/* ---- opening ------------------------------------------------------------------------------ */

void *weir__handle_open(handle_kind kind, void *object, void (*end)(void *object))
{
    void *ticket = NULL;
    const int rc = pthread_once(&fork_once, fork_register);
    (void)rc;
    weir__lock(&mu);
    uint32_t at = free_first;
    if (at != 0) {
        free_first = places[at - 1].next_free;
    } else if (places_count < HANDLES_MAX) {
        at = ++places_count;
    }
    if (at != 0) {
        place *p = &places[at - 1];
        uint64_t use = (atomic_load_explicit(&p->word, memory_order_relaxed) >> 32) + 1;
        use = use_of(use << 32) == 0 ? 1 : use; /* all of them were used: 4 billion times */
        p->object = object;
        p->end = end;
        p->kind = kind;
        atomic_store_explicit(&p->word, use << 32, memory_order_release);
        ticket = ticket_make(at - 1, use << 32);
    }
    weir__unlock(&mu);
    return ticket;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* CLOSED and free: nobody enters. */
static void place_free(place *p)
{
    void *object = p->object;
    void (*end)(void *) = p->end;
    weir__lock(&mu);
    const uint64_t word = atomic_load_explicit(&p->word, memory_order_relaxed);
    atomic_store_explicit(&p->word, (word & ~(INSIDE | DEFERRED)) | CLOSED, memory_order_relaxed);
    p->object = NULL;
    p->next_free = free_first;
    free_first = (uint32_t)(p - places) + 1;
    weir__unlock(&mu);
    end(object);
}

void *weir__handle_enter(handle_kind kind, const void *ticket)
{
    uintptr_t use;
    place *p = place_of(ticket, &use);
    if (p == NULL) {
        return NULL;
    }
    uint64_t word = atomic_load_explicit(&p->word, memory_order_relaxed);
    do {
        if (use_of(word) != use || (word & CLOSED) != 0) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&p->word, &word, word + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    depth++;
    if (p->kind != kind) {
        weir__handle_leave(ticket);
        return NULL;
    }
    return p->object;
}

void weir__handle_leave(const void *ticket)
{
    uintptr_t use;
    place *p = place_of(ticket, &use);
    WEIR_ASSERT(p != NULL);
    WEIR_ASSERT(depth > 0);
    depth--;
    const uint64_t word = atomic_fetch_sub_explicit(&p->word, 1, memory_order_acq_rel);
    WEIR_ASSERT((word & INSIDE) > 0);
    if ((word & DEFERRED) != 0) {
        if ((word & INSIDE) == 1) {
            place_free(p);
        }
    } else if ((word & CLOSED) != 0) {
        weir__lock(&mu);
        weir__cond_broadcast(&left);
        weir__unlock(&mu);
    }
}

/* ---- ending ------------------------------------------------------------------------------- */

void *weir__handle_shut(handle_kind kind, const void *ticket)
{
    uintptr_t use;
    void *object = weir__handle_enter(kind, ticket);
    if (object == NULL) {
        return NULL;
    }
    place *p = place_of(ticket, &use);
    if ((atomic_fetch_or_explicit(&p->word, CLOSED, memory_order_acq_rel) & CLOSED) != 0) {
        weir__handle_leave(ticket);
        return NULL;
    }
    return object; /* and stays inside until weir__handle_end */
}

void weir__handle_end(const void *ticket, bool forked)
{
    uintptr_t use;
    place *p = place_of(ticket, &use);
    WEIR_ASSERT(p != NULL);
    WEIR_ASSERT(depth > 0);
    depth--;
    if (!forked && depth > 0) {
        (void)atomic_fetch_or_explicit(&p->word, DEFERRED, memory_order_acq_rel);
        const uint64_t word = atomic_fetch_sub_explicit(&p->word, 1, memory_order_acq_rel);
        if ((word & INSIDE) > 1) {
            return;
        }
    } else if (!forked) {
        weir__lock(&mu);
        while ((atomic_load_explicit(&p->word, memory_order_acquire) & INSIDE) > 1) {
            weir__cond_wait(&left, &mu);
        }
        weir__unlock(&mu);
    }
    place_free(p);
}
