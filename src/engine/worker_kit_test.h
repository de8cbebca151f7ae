/* worker_kit_test.h - a worker run by hand: time stands still until a test moves it, every step is
 * called by the test, and every wake-up and log line is noted.
 *
 * The store's clock and the monotonic one are far apart, so that whoever mixes them is seen.
 */
#ifndef WEIR_ENGINE_WORKER_KIT_TEST_H
#define WEIR_ENGINE_WORKER_KIT_TEST_H

#include "engine/router.h"
#include "engine/worker_private.h"
#include "store/fault/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { KIT_LOG_BYTES = 65536, KIT_TESTS_MAX = 40 };

/* A process: its reactions and its worker. */
typedef struct kit_process {
    registry reactions;
    worker *worker;
    scheduler scheduler;
    uint64_t random;
    const task *woken[64];
    size_t woken_count;
    char log[KIT_LOG_BYTES]; /* a line each: level event key=value ... */
} kit_process;

extern int64_t kit_mono_us;
extern int64_t kit_suspended_us; /* so long only the store's clock went on */

/* A test that is run on memory and on SQLite. */
typedef struct kit_test {
    const char *name;
    void (*run)(bool sqlite);
} kit_test;
int kit_main(const kit_test *tests, size_t count);

/* A store that counts and can fail. */
weir_store *kit_open(bool sqlite);
void kit_close(weir_store *s);

/* One event; answers its position. */
int64_t kit_append(weir_store *s, const char *stream, const char *name, const char *data);
void kit_append_many(weir_store *s, const char *stream, const char *name, size_t count);

/* on: NULL is all. */
void kit_reaction(kit_process *p, const char *name, const char *on, const char *to);
void kit_declare(kit_process *p, const weir_reaction *declared);
/* Declares to the store and opens the worker. options: NULL is the defaults. */
void kit_start(kit_process *p, weir_store *s, const worker_options *options);
void kit_stop(kit_process *p);    /* hands back */
void kit_abandon(kit_process *p); /* as if killed */

/* Runs the router or the poller until it waits; answers until when. */
int64_t kit_route(kit_process *p);
int64_t kit_poll(kit_process *p);
/* Runs both, with time, for so long. */
void kit_run(kit_process *p, int64_t us);

bool kit_woken(const kit_process *p, const task *t); /* since forgotten */
void kit_forget(kit_process *p);
size_t kit_logged(const kit_process *p, const char *text); /* how often it is in the log */
uint64_t kit_count(const kit_process *p, metric_counter c);

/* Of the subscription of a reaction on a target; -1: there is none. */
int64_t kit_mark(weir_store *s, const char *target, const char *reaction_name);
int64_t kit_at(weir_store *s, const char *target, const char *reaction_name);
size_t kit_parked(weir_store *s, const char *reaction_name);
int64_t kit_routed(weir_store *s, const char *reaction_name);
/* How many events a fetch of a subscription gives up to its mark. */
size_t kit_fetchable(weir_store *s, const char *target, const char *reaction_name);

#endif
