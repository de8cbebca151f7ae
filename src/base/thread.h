/* thread.h - pthreads with the two things they lack: lock annotations for clang's -Wthread-safety,
 * and condition variables on the monotonic clock. Errors of lock operations are bugs and abort.
 */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define WEIR_CAPABILITY(x) __attribute__((capability(x)))
#define WEIR_ACQUIRE(...)  __attribute__((acquire_capability(__VA_ARGS__)))
#define WEIR_RELEASE(...)  __attribute__((release_capability(__VA_ARGS__)))
#define WEIR_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define WEIR_NO_LOCK_CHECK __attribute__((no_thread_safety_analysis))
#else
#define WEIR_CAPABILITY(x)
#define WEIR_ACQUIRE(...)
#define WEIR_RELEASE(...)
#define WEIR_REQUIRES(...)
#define WEIR_NO_LOCK_CHECK
#endif

typedef struct WEIR_CAPABILITY("mutex") weir_mutex {
    pthread_mutex_t raw;
} weir_mutex;

typedef struct weir_cond {
    pthread_cond_t raw; /* waits on CLOCK_MONOTONIC */
} weir_cond;

bool weir__mutex_init(weir_mutex *mu); /* false: out of memory */
void weir__mutex_destroy(weir_mutex *mu);
void weir__lock(weir_mutex *mu) WEIR_ACQUIRE(*mu);
void weir__unlock(weir_mutex *mu) WEIR_RELEASE(*mu);

bool weir__cond_init(weir_cond *cond);
void weir__cond_destroy(weir_cond *cond);
void weir__cond_wait(weir_cond *cond, weir_mutex *mu) WEIR_REQUIRES(*mu);
/* false: `deadline_mono_us` (CLOCK_MONOTONIC, microseconds) has passed. */
bool weir__cond_wait_until(weir_cond *cond, weir_mutex *mu, int64_t deadline_mono_us)
    WEIR_REQUIRES(*mu);
void weir__cond_signal(weir_cond *cond);
void weir__cond_broadcast(weir_cond *cond);

/* Handed by one thread to one other, once, with a number. Cheaper than a mutex and a condition: who
 * waits is woken to nothing but its number. Zeroed is ready to use. The baton may end as soon as
 * await has returned, on whichever thread; pass does not look at it again. */
typedef struct weir_baton {
    _Atomic uint32_t state; /* 0; a sleeper's mark; or the number */
} weir_baton;

enum { WEIR_BATON_MAX = 1000 }; /* numbers are 1 to this */

void weir__baton_pass(weir_baton *baton, uint32_t number);
uint32_t weir__baton_await(weir_baton *baton);

/* How often this process has been forked from one that used the library: a handle remembers the
 * number it was opened with, and refuses to work when it has changed. */
uint32_t weir__fork_generation(void);

#endif
