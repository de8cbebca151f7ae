/* sqlite_testing.h - what the tests of this directory share: a directory of their own, a store in
 * it, a clock that can be moved, short ways to append and count, and children that do something at
 * once.
 */
#ifndef WEIR_STORE_SQLITE_SQLITE_TESTING_H
#define WEIR_STORE_SQLITE_SQLITE_TESTING_H

#include "store/sqlite/sqlite_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

#include <cmocka.h>

typedef struct testing {
    char dir[64];  /* removed with everything in it */
    char path[96]; /* DIR/s.db                      */
    store_options options;
    weir_clock clock;
    int64_t wall_us, mono_us; /* what that clock says; 0: the machine's */
    weir_store *store;
    weir_error err;
} testing;

int testing_setup(void **state);      /* with an open store    */
int testing_setup_bare(void **state); /* with a directory only */
int testing_teardown(void **state);

/* A second handle on the same file; fails the test when it cannot be opened. */
weir_store *testing_open(testing *t, uint32_t open_flags);
void testing_close(weir_store **store);
/* PATH and a suffix, as one text; static buffers, four at a time. */
const char *testing_file(const testing *t, const char *suffix);
bool testing_exists(const testing *t, const char *suffix);
int64_t testing_bytes(const testing *t, const char *suffix);

/* Appends `count` events to one stream; the status of the append, or of the verb. */
weir_status testing_append_n(weir_store *store, const char *stream, int32_t expect, int64_t version,
                             size_t count, weir_error *err);
weir_status testing_append(weir_store *store, const char *stream, weir_error *err);
int64_t testing_head(weir_store *store);
/* The findings of a check, as "rule: text" lines in a static buffer; "" when there are none. */
const char *testing_check(weir_store *store);

/* SQL on a connection of its own, which neither checkpoints nor knows the side lock. */
void testing_sql(const testing *t, const char *sql);
int64_t testing_number(const testing *t, const char *sql);

/* Forks; the child runs fn(ctx) once `go` was given, and exits with what it returns. */
typedef struct child {
    pid_t pid;
    int go; /* write end */
} child;
child testing_fork(int (*fn)(void *ctx), void *ctx);
void testing_go(child *c);
int testing_join(child *c); /* exit status; -1: killed */

#endif
