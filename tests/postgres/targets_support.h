/* targets_support.h - short ways to give a store on PostgreSQL reactions, targets and work. */
#ifndef WEIR_TESTS_POSTGRES_TARGETS_SUPPORT_H
#define WEIR_TESTS_POSTGRES_TARGETS_SUPPORT_H

#include "pg_support.h"

#include <pthread.h>

/* Declares a reaction to everything, from the beginning of the log; its id. */
int64_t give_reaction(pg_test *t, weir_store *s, const char *name, store_rule rule);
/* Raises one mark, and takes `routed` to `last` when that is further. */
weir_status try_mark(pg_test *t, weir_store *s, const char *reaction, const char *target,
                     int64_t first, int64_t last);
void give_mark(pg_test *t, weir_store *s, const char *reaction, const char *target, int64_t first,
               int64_t last);
/* The only target of lane "l" that can be leased, for ten seconds. */
store_leased take_lease(pg_test *t, weir_store *s);

/* The target called `target` with one event of stream "order-1" to do, leased. */
typedef struct work {
    weir_store *s;
    int64_t reaction, event;
    store_leased lease;
} work;
work give_work(pg_test *t, const char *target);

/* A number out of the test's schema: SQL with %s for the schema's name, once. */
int64_t look(pg_test *t, const char *sql);

/* The store's own check finds nothing. */
void nothing_is_wrong(pg_test *t, weir_store *s);
/* How many findings have that rule; *text (may be NULL): the first sentence. */
int findings(pg_test *t, weir_store *s, const char *rule, char text[512]);

/* A call that runs beside the test. */
typedef struct beside {
    pthread_t thread;
    void (*run)(void *ctx);
    void *ctx;
} beside;
void begin_beside(beside *b, void (*run)(void *ctx), void *ctx);
void end_beside(beside *b);

/* Whether somebody of the store's connections waits for a lock of the database, before long. */
bool somebody_waits(pg_test *t);

#endif
