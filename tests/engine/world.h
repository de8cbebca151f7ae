/* world.h - what the engine's tests on real stores share: a store of the test's own, short ways to
 * append and to look, and worker processes (worker_program.c) that are started, killed and watched.
 *
 * The first argument of a suite is the kind of store: memory, sqlite or postgres (by with-server);
 * the second, when there, a pattern of test names. Every test gets a new store; processes that it
 * started and the store are gone after it, however it ends.
 *
 * THREADS  Everything here asserts: for the test's own thread, unless it says otherwise.
 */
#ifndef TESTS_ENGINE_WORLD_H
#define TESTS_ENGINE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "api/api.h"
#include "base/error.h"
#include "base/str.h"

enum { WORLD_PIDS_MAX = 64, WORLD_URL_BYTES = 1024, WORLD_LINE_BYTES = 512 };
#define WORLD_WAIT_US INT64_C(60000000) /* whatever takes longer has failed */

typedef struct world {
    const char *kind;
    char dir[64];    /* of the test, removed after it             */
    char schema[64]; /* PostgreSQL: dropped after it              */
    char url[WORLD_URL_BYTES];
    char journal[128]; /* what workers write: a line per thing    */
    weir *w;           /* open before the test begins             */
    weir_store *store; /* the same store, for what weir.h has not */
    weir_error err;    /* of the last call that failed            */
    pid_t pids[WORLD_PIDS_MAX];
    size_t pids_count;
} world;

extern world here;

int world_set_up(void **state);
int world_tear_down(void **state);
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_set_up, world_tear_down)
int world_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);
bool world_is(const char *kind);

/* A call's status, with here.err shown when it is another than expected. */
#define WORLD_IS(call, status) world_expect((call), (status), #call, __FILE__, __LINE__)
#define WORLD_OK(call)         WORLD_IS(call, WEIR_OK)
void world_expect(int32_t got, int32_t wanted, const char *call, const char *file, int line);

/* One event to a stream; its position. data: JSON, NULL: {}. */
int64_t world_append(const char *stream, const char *name, const char *data);
/* Any thread: it does not assert. */
int32_t world_try_append(weir *w, const char *stream, const char *name, const char *data,
                         int64_t *id, weir_error *err);
/* Calls fn for each event of a stream; how many there are. fn may be NULL. */
size_t world_read(const char *stream, weir_event_fn fn, void *ctx);
/* The target, until the next call; NULL: there is none. */
const store_target *world_target(const char *name);
size_t world_parked(const char *reaction);
void world_operate(store_verb verb, const char *target);

int64_t world_now_us(void); /* monotonic. Any thread */
void world_pause_us(int64_t us);
/* Fails the test when it does not hold within WORLD_WAIT_US. */
void world_await(bool (*holds)(const void *ctx), const void *ctx, const char *what);

/* ---- worker processes --------------------------------------------------------------------- */

/* Starts worker_program on the test's store and journal with these arguments (up to a NULL), and
 * waits until its engine runs. */
pid_t world_worker(const char *argument, ...);
/* The same with this text as LD_PRELOAD; NULL: none. Does not wait. */
pid_t world_start(const char *program, const char *preload, const char *const *arguments);
void world_signal(pid_t pid, int signal);
/* SIGSTOP, where it holds no lock of the database: others can append. */
void world_stop(pid_t pid);
/* Waits for its end: the exit status, or minus the signal. */
int world_end(pid_t pid);
void world_kill(pid_t pid); /* SIGKILL, and waits */
void world_heal(void);      /* from now on do=fail succeeds */

/* Lines of the journal that begin with this word and a space (or are it), in their order. fn may be
 * NULL. Returns how many. */
typedef void (*world_line_fn)(void *ctx, const char *line);
size_t world_journal(const char *word, world_line_fn fn, void *ctx);
void world_await_journal(const char *word, size_t count);

#endif
