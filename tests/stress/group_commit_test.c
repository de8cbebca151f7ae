/* group_commit_test.c - callers of one process share transactions, and each gets its own answer.
 *
 * METHOD  64 threads append 100 times each: to streams of their own, with an exact version that
 * must hold, and in turn to one stream that all of them fight for, with the version they last saw.
 * The transactions are counted by the store itself; the answers are held against the log.
 */
#include "api/api.h"
#include "store/store.h"
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    THREADS = 64,
    APPENDS = 100,           /* per thread */
    TRANSACTIONS_MAX = 1600, /* fewer than this */
    CONTESTED_EVERY = 10,    /* every tenth append goes to the stream that all share */
};

typedef struct caller {
    weir *store;
    pthread_barrier_t *start;
    int number;
    int64_t ids[APPENDS]; /* 0: a conflict */
    int64_t
        contested[APPENDS]; /* the version it got there; -1: it did not go there, or a conflict */
    int own, conflicts;
    bool wrong;
} caller;

static void append_own(caller *c, int i)
{
    char stream[32], data[64];
    weir_error err;
    int64_t at = -1;
    (void)snprintf(stream, sizeof(stream), "own-%d", c->number);
    (void)snprintf(data, sizeof(data), "{\"caller\":%d,\"i\":%d}", c->number, i);
    const int32_t expect = c->own == 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT;
    const int64_t version = c->own == 0 ? 0 : c->own - 1;
    if (append_one(c->store, stream, expect, version, data, &at, &c->ids[i], &err) != WEIR_OK ||
        at != c->own) {
        c->wrong = true;
    }
    c->own++;
}

static void append_contested(caller *c, int i, int64_t *seen)
{
    char data[64];
    weir_error err;
    int64_t at = -1;
    (void)snprintf(data, sizeof(data), "{\"caller\":%d,\"i\":%d}", c->number, i);
    const int32_t expect = *seen < 0 ? WEIR_EXPECT_NONE : WEIR_EXPECT_EXACT;
    const int32_t rc = append_one(c->store, "contested", expect, *seen < 0 ? 0 : *seen, data, &at,
                                  &c->ids[i], &err);
    if (rc == WEIR_OK) {
        c->wrong = c->wrong || at != *seen + 1;
        c->contested[i] = at;
        *seen = at;
    } else if (rc == WEIR_ECONFLICT) {
        c->wrong = c->wrong || err.actual == *seen || strcmp(err.stream, "contested") != 0 ||
                   err.expected != *seen;
        c->conflicts++;
        *seen = err.actual;
    } else {
        c->wrong = true;
    }
}

static void *caller_main(void *arg)
{
    caller *c = arg;
    int64_t seen = -1;
    (void)pthread_barrier_wait(c->start);
    for (int i = 0; i < APPENDS; i++) {
        c->contested[i] = -1;
        if (i % CONTESTED_EVERY == 0) {
            append_contested(c, i, &seen);
        } else {
            append_own(c, i);
        }
    }
    return NULL;
}

typedef struct log_check {
    const caller *callers;
    int64_t events, contested;
    bool wrong;
} log_check;

/* Every event is where the caller that wrote it was told it is. */
static int event_check(void *ctx, const weir_event *event)
{
    log_check *l = ctx;
    char data[64] = "";
    int number = -1, i = -1;
    memcpy(data, event->data.ptr, event->data.len < 63 ? event->data.len : 63);
    l->events++;
    if (sscanf(data, "{\"caller\":%d,\"i\":%d}", &number, &i) != 2 || number < 0 ||
        number >= THREADS || i < 0 || i >= APPENDS || l->callers[number].ids[i] != event->id) {
        l->wrong = true;
        return 0;
    }
    if (i % CONTESTED_EVERY == 0) {
        l->wrong = l->wrong || l->callers[number].contested[i] != event->version ||
                   event->version != l->contested;
        l->contested++;
    }
    return 0;
}

static int64_t transactions_of(weir *w)
{
    weir_store *s = weir__store(w);
    store_stats stats;
    weir_error err;
    if (s->about->stats(s, &stats, &err) != WEIR_OK) {
        fail_msg("stats: %s", err.message);
    }
    return stats.transactions;
}

static void C13_64_threads_share_transactions_and_keep_their_own_answers(void **state)
{
    (void)state;
    static caller callers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    weir_error err;
    char *directory = directory_make("group");
    char *path = text_format("%s/s.db", directory), *url = text_format("sqlite:%s", path);
    weir *w = store_open(url, 0);
    const int64_t before = transactions_of(w);

    (void)pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (caller){ .store = w, .start = &start, .number = i };
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &callers[i]), 0);
    }
    int64_t appended = 0, conflicts = 0;
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_false(callers[i].wrong);
        conflicts += callers[i].conflicts;
        appended += APPENDS - callers[i].conflicts;
    }
    const int64_t transactions = transactions_of(w) - before;
    print_message("# %" PRId64 " appends and %" PRId64 " conflicts in %" PRId64 " transactions\n",
                  appended, conflicts, transactions);
    assert_true(transactions > 0 && transactions < TRANSACTIONS_MAX);
    assert_true(conflicts > 0); /* or nothing was contested */

    log_check l = { .callers = callers };
    assert_int_equal(weir_log(w, NULL, event_check, &l, &err), WEIR_OK);
    assert_false(l.wrong);
    assert_int_equal(l.events, appended);
    weir_close(w);
    char *sound = integrity_check(path);
    assert_string_equal(sound, "ok");
    free(sound);
    (void)pthread_barrier_destroy(&start);
    directory_remove(directory);
    free(path);
    free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C13_64_threads_share_transactions_and_keep_their_own_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
