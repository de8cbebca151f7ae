/* targets_fixture.h - a store in a file with a clock that only tests move, and short ways to give
 * it reactions, targets and work. For the tests of the targets side that look behind the port.
 */
#ifndef WEIR_STORE_SQLITE_TARGETS_FIXTURE_H
#define WEIR_STORE_SQLITE_TARGETS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/sqlite_private.h"
#include "store/store.h"

typedef struct fixture {
    char dir[64];
    char path[96];
    int64_t now_us; /* the clock */
    weir_clock clock;
    weir_store *store;
    weir_arena arena; /* what the helpers hand out; freed with the fixture */
    weir_error err;
} fixture;

/* cmocka's setup and teardown: *state is the fixture. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

#define OK(f, call) fixture_ok((f), (call), #call, __FILE__, __LINE__)
void fixture_ok(fixture *f, weir_status status, const char *call, const char *file, int line);

sqlite3 *fixture_db(fixture *f); /* the writing connection, outside of any transaction */
void fixture_exec(fixture *f, const char *sql);
int64_t fixture_int(fixture *f, const char *sql); /* the one integer it gives */
/* Steps of SQLite's machine and of full scans, over all statements of the writing connection, since
 * the last call. */
typedef struct fixture_steps {
    int64_t vm, fullscan, sorts;
} fixture_steps;
fixture_steps fixture_take_steps(fixture *f);

/* Appends one event; its position. */
int64_t fixture_put(fixture *f, const char *stream, const char *name);
/* Declares a reaction from the beginning of the log; names separated by commas, "*": all. */
store_reaction fixture_declare(fixture *f, const char *name, const char *names, const char *source,
                               store_rule rule);
/* Raises one mark, and takes `routed` to `last` when that is further. */
void fixture_mark(fixture *f, const char *reaction, const char *target, const char *lane,
                  const char *value, int64_t first, int64_t last);
/* Up to `limit` leases of lane "l", all reactions counting, of one second. */
void fixture_lease(fixture *f, size_t limit, store_lease_list *list);
/* Makes targets t0000000, t0000001, ... of lane "l", each with one event to handle; `per_rank` of
 * them in each rank. */
void fixture_many(fixture *f, const char *reaction, int64_t first, int64_t count, int64_t per_rank);
/* The store's own check finds nothing. */
void fixture_check(fixture *f);

#endif
