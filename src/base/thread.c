/* thread.c - locks that abort when misused, waits on the monotonic clock, handing over a number,
 * and noticing a fork. */
#include "base/thread.h"

#include "base/assert.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool weir__mutex_init(weir_mutex *mu)
{
#ifdef WEIR_DEBUG
    /* Locking twice or unlocking another's lock is then an error, and so an abort. */
    pthread_mutexattr_t attr;
    if (pthread_mutexattr_init(&attr) != 0) {
        return false;
    }
    int rc = pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    WEIR_ASSERT(rc == 0);
    rc = pthread_mutex_init(&mu->raw, &attr);
    (void)pthread_mutexattr_destroy(&attr);
#else
    const int rc = pthread_mutex_init(&mu->raw, NULL);
#endif
    return rc == 0;
}

void weir__mutex_destroy(weir_mutex *mu)
{
    const int rc = pthread_mutex_destroy(&mu->raw);
    WEIR_ASSERT(rc == 0);
}

void weir__lock(weir_mutex *mu) WEIR_NO_LOCK_CHECK
{
    const int rc = pthread_mutex_lock(&mu->raw);
    WEIR_ASSERT(rc == 0);
}

void weir__unlock(weir_mutex *mu) WEIR_NO_LOCK_CHECK
{
    const int rc = pthread_mutex_unlock(&mu->raw);
    WEIR_ASSERT(rc == 0);
}

bool weir__cond_init(weir_cond *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) {
        return false;
    }
    int rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    WEIR_ASSERT(rc == 0);
    rc = pthread_cond_init(&cond->raw, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc == 0;
}

void weir__cond_destroy(weir_cond *cond)
{
    const int rc = pthread_cond_destroy(&cond->raw);
    WEIR_ASSERT(rc == 0);
}

void weir__cond_wait(weir_cond *cond, weir_mutex *mu)
{
    const int rc = pthread_cond_wait(&cond->raw, &mu->raw);
    WEIR_ASSERT(rc == 0);
}

bool weir__cond_wait_until(weir_cond *cond, weir_mutex *mu, int64_t deadline_mono_us)
{
    const int64_t us = deadline_mono_us < 0 ? 0 : deadline_mono_us;
    const struct timespec deadline = {
        .tv_sec = (time_t)(us / 1000000),
        .tv_nsec = (long)(us % 1000000) * 1000,
    };
    const int rc = pthread_cond_timedwait(&cond->raw, &mu->raw, &deadline);
    WEIR_ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void weir__cond_signal(weir_cond *cond)
{
    const int rc = pthread_cond_signal(&cond->raw);
    WEIR_ASSERT(rc == 0);
}

void weir__cond_broadcast(weir_cond *cond)
{
    const int rc = pthread_cond_broadcast(&cond->raw);
    WEIR_ASSERT(rc == 0);
}

/* ---- batons ------------------------------------------------------------------------------- */

enum { BATON_SLEEPER = WEIR_BATON_MAX + 1 }; /* somebody sleeps until the number comes */

void weir__baton_pass(weir_baton *baton, uint32_t number)
{
    WEIR_ASSERT(number >= 1 && number <= WEIR_BATON_MAX);
    /* Release: what was written before passing is seen after awaiting. */
    const uint32_t before = atomic_exchange_explicit(&baton->state, number, memory_order_release);
    WEIR_ASSERT(before == 0 || before == BATON_SLEEPER);
    if (before == BATON_SLEEPER) {
        /* By address alone: the baton may be gone by now. At worst this wakes a stranger who sleeps
         * at the same address, and everyone who sleeps on a futex looks twice. */
        (void)syscall(SYS_futex, &baton->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

uint32_t weir__baton_await(weir_baton *baton)
{
    uint32_t state = 0;
    if (atomic_compare_exchange_strong_explicit(&baton->state, &state, BATON_SLEEPER,
                                                memory_order_acquire, memory_order_acquire)) {
        state = BATON_SLEEPER;
    }
    while (state == BATON_SLEEPER) {
        /* Returns at once when the number is there already; spurious returns are looked at
         * again. */
        (void)syscall(SYS_futex, &baton->state, FUTEX_WAIT_PRIVATE, BATON_SLEEPER, NULL, NULL, 0);
        state = atomic_load_explicit(&baton->state, memory_order_acquire);
    }
    return state;
}

/* Atomic because any thread may ask; relaxed because the only writer is the child handler, which
 * runs before the child has a second thread. */
static _Atomic uint32_t fork_generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool fork_handler_missing; /* immutable after fork_once */

static void fork_in_child(void)
{
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void fork_register(void)
{
    fork_handler_missing = pthread_atfork(NULL, NULL, fork_in_child) != 0;
}

uint32_t weir__fork_generation(void)
{
    const int rc = pthread_once(&fork_once, fork_register);
    WEIR_ASSERT(rc == 0);
    if (fork_handler_missing) {
        return (uint32_t)getpid(); /* out of memory: dearer, and as different after a fork */
    }
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}
