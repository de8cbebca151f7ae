/* committer_fixture.h - a committer over a store that is a gate, and callers that append to it.
 *
 * The test opens and closes the gate, so that who waits while which transaction runs is decided by
 * the test and not by the scheduler. The gate itself counts the transactions that ran at once with
 * a name in common.
 */
#ifndef WEIR_STORE_COMMITTER_FIXTURE_H
#define WEIR_STORE_COMMITTER_FIXTURE_H

#include "base/error.h"
#include "base/str.h"
#include "store/committer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    GATE_CALLS_MAX = 4096,     /* so many transactions and appends are recorded               */
    GATE_NAMES_FEW = 8,        /* an append with more names than this collides with every one */
    GATE_LETTERS_COUNT = 26,   /* names for tests that say who meets whom                     */
    GATE_NUMBERS_COUNT = 1000, /* names for those that want many                              */
    GATE_NAMES_COUNT = GATE_LETTERS_COUNT + GATE_NUMBERS_COUNT,
    CALLER_STREAMS_MAX = 12,
};

/* Every stream and key that reaches the gate has its name from here. */
weir_str name_of_letter(char letter);
weir_str name_of_number(size_t number);

typedef struct caller {
    pthread_t thread;
    bool joined;
    atomic_int tid; /* 0: not running yet */
    atomic_bool returned;
    committer *c;
    store_append append;
    store_append_stream streams[CALLER_STREAMS_MAX];
    store_key_change key_change;
    size_t judged; /* how often; guarded by the gate's mu until the caller has its answer */
    bool led_busy; /* it led a transaction that the rough gate refused as busy */
    weir_error err;
    weir_status status;
} caller;

typedef struct gate_store {
    weir_store base;
    weir_mutex mu;
    weir_cond opened;
    /* guarded by mu */
    bool closed;
    uint64_t let;                  /* tags of leaders that pass all the same              */
    uint64_t waiting;              /* tags of leaders that wait at the gate; those to 63  */
    size_t inside;                 /* transactions that wait at the gate                  */
    size_t counts[GATE_CALLS_MAX]; /* how many appends each transaction had               */
    int64_t order[GATE_CALLS_MAX]; /* tags in the order in which they were judged         */
    size_t calls, judged;
    weir_status batch_fails; /* what transactions of more than one append fail with       */
    size_t batch_fails_left; /* so many of them; 0: all                                   */
    int64_t alone_fails_tag; /* the append that also fails alone                          */
    int64_t held_tag;        /* the append whose stream somebody holds: busy, or it waits */
    bool held;               /* still                                                     */
    size_t held_inside;      /* callers that wait for it                                  */
    bool rough;              /* transactions fail and streams are held now and then       */

    /* Of transactions that wait for nobody: those of a batch. */
    size_t running, running_max;
    size_t running_with_many; /* with an append of more than GATE_NAMES_FEW names */
    size_t meetings;          /* of two that must not run at once; stays 0        */
    size_t serial;
    size_t named_by[GATE_NAMES_COUNT]; /* a transaction's serial; 0: none */
} gate_store;

typedef struct fixture {
    gate_store gate; /* closed, to begin with */
    committer *c;
    size_t started;
    caller callers[COMMITTER_WAITING_MAX + 2];
} fixture;

/* cmocka's setup and teardown: *state is the fixture. The number is log->group_commit. */
int fixture_setup_1(void **state);
int fixture_setup_2(void **state);
int fixture_setup_few(void **state); /* one transaction at a time, with at most four names */
int fixture_teardown(void **state);

/* What a caller appends. */
typedef struct wish {
    const char *streams; /* a letter each; NULL: one that all share */
    char key, reserved;  /* a letter; 0: none                       */
    int64_t tag;         /* 0: the first caller's is 1, and so on   */
    int64_t deadline_us; /* 0: the store's own                      */
    size_t events_count;
} wish;

/* The tag is carried by the version of the first stream. An append conflicts if its tag is a
 * multiple of five. */
int64_t tag_of(const store_append *append);
weir_status status_of_tag(int64_t tag);
uint64_t tag_bit(int64_t tag); /* of a set of tags; 0 for one that has no place in it */

caller *caller_start(fixture *f, wish w); /* returns at once */
/* Returns when it is in the queue. So far nobody has returned. */
void caller_queue(fixture *f, wish w);
void caller_join(caller *k);
void join_all(fixture *f);
/* The first caller is inside the store; `count` more wait behind it, in this order. */
void queue_up(fixture *f, size_t count);

void gate_set(gate_store *g, bool closed);

/* Waits until every caller sleeps, in the queue or at the gate: then nothing can happen any more
 * that was going to. */
void settle(fixture *f);
/* The transactions that these lead come to the gate, and no others do. */
void assert_at_gate(fixture *f, uint64_t tags);
/* Lets the transaction through that the append with this tag leads, and waits until the caller has
 * returned: whoever was to follow has been chosen then. */
void let_end(fixture *f, int64_t tag);
/* Lets everybody through. Each has one answer, its own, and no two met that should not have. */
void assert_all_are_answered(fixture *f);

#endif
