/* committer_fixture.c - see committer_fixture.h.
 *
 * THREADS  The gate's mu guards what the gate has; a test that reads it without has joined whoever
 * could write it.
 */
#include "store/committer_fixture.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAIT_US_MAX = 10 * 1000000 }; /* for what is to happen */

/* ---- names -------------------------------------------------------------------------------- */

/* By its place the gate knows a name that it is given. */
static char names[GATE_NAMES_COUNT][8];

static weir_str name_at(size_t index)
{
    return weir__str(names[index]);
}

weir_str name_of_letter(char letter)
{
    return name_at((size_t)(letter - 'A'));
}

weir_str name_of_number(size_t number)
{
    return name_at(GATE_LETTERS_COUNT + number);
}

static size_t name_index(weir_str name)
{
    return (size_t)(name.ptr - names[0]) / sizeof names[0];
}

/* The committer compares hashes, 1,024 apart. Names that were meant to be different and are not by
 * their hashes would make nothing wrong, but the tests want to know who meets whom. */
static void names_fill(void)
{
    bool used[1024] = { false };
    for (size_t i = 0; i < GATE_LETTERS_COUNT; i++) {
        size_t hash = 0;
        unsigned number = 0;
        do {
            (void)snprintf(names[i], sizeof names[i], "%c%u", (char)('A' + (int)i),
                           number++ % 1000);
            hash = weir__str_hash(name_at(i)) % 1024;
        } while (used[hash]);
        used[hash] = true;
    }
    for (unsigned i = 0; i < GATE_NUMBERS_COUNT; i++) {
        (void)snprintf(names[GATE_LETTERS_COUNT + i], sizeof names[0], "%u", i % 1000000);
    }
}

/* ---- a caller ----------------------------------------------------------------------------- */

static caller *caller_of(store_append *append)
{
    return (caller *)((char *)append - offsetof(caller, append));
}

int64_t tag_of(const store_append *append)
{
    return append->streams[0].version;
}

static size_t append_names_count(const store_append *a)
{
    return a->streams_count + a->key_changes_count + (a->key.len > 0);
}

static weir_str append_name(const store_append *a, size_t i)
{
    if (i < a->streams_count) {
        return a->streams[i].name;
    }
    i -= a->streams_count;
    return i < a->key_changes_count ? a->key_changes[i].key : a->key;
}

/* ---- the store ---------------------------------------------------------------------------- */

static bool any_has_many_names(store_append *const *appends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (append_names_count(appends[i]) > GATE_NAMES_FEW) {
            return true;
        }
    }
    return false;
}

/* Returns the transaction's number. */
static size_t enter_locked(gate_store *g, store_append *const *appends, size_t count)
    WEIR_REQUIRES(g->mu)
{
    const size_t serial = ++g->serial;
    g->running++;
    g->running_max = g->running > g->running_max ? g->running : g->running_max;
    g->running_with_many += any_has_many_names(appends, count);
    g->meetings += g->running > 1 && g->running_with_many > 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < append_names_count(appends[i]); k++) {
            size_t *by = &g->named_by[name_index(append_name(appends[i], k))];
            g->meetings += *by != 0 && *by != serial;
            *by = serial;
        }
    }
    return serial;
}

static void leave_locked(gate_store *g, size_t serial, store_append *const *appends, size_t count)
    WEIR_REQUIRES(g->mu)
{
    g->running--;
    g->running_with_many -= any_has_many_names(appends, count);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < append_names_count(appends[i]); k++) {
            size_t *by = &g->named_by[name_index(append_name(appends[i], k))];
            *by = *by == serial ? 0 : *by;
        }
    }
}

uint64_t tag_bit(int64_t tag)
{
    return tag >= 0 && tag < 64 ? UINT64_C(1) << tag : 0;
}

static void pass_gate_locked(gate_store *g, const store_append *leader) WEIR_REQUIRES(g->mu)
{
    const uint64_t bit = tag_bit(tag_of(leader));
    g->inside++;
    g->waiting |= bit;
    while (g->closed && (g->let & bit) == 0) {
        weir__cond_wait(&g->opened, &g->mu);
    }
    g->waiting &= ~bit;
    g->inside--;
}

static bool any_waits_for_held(const gate_store *g, store_append *const *appends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (g->held && tag_of(appends[i]) == g->held_tag &&
            (appends[i]->flags & STORE_APPEND_NOWAIT) == 0) {
            return true;
        }
    }
    return false;
}

/* What the transaction fails with as a whole. */
static weir_status trouble_locked(gate_store *g, store_append *const *appends, size_t count,
                                  weir_error *err) WEIR_REQUIRES(g->mu)
{
    if (count > 1 && g->batch_fails != WEIR_OK) {
        const weir_status status = weir__fail(err, g->batch_fails, "the batch failed");
        if (g->batch_fails_left > 0 && --g->batch_fails_left == 0) {
            g->batch_fails = WEIR_OK;
        }
        return status;
    }
    if (count == 1 && g->alone_fails_tag != 0 && tag_of(appends[0]) == g->alone_fails_tag) {
        return weir__fail(err, WEIR_EIO, "this one fails alone");
    }
    if (count > 1 && g->rough && g->calls % 13 == 0) {
        caller_of(appends[0])->led_busy = true;
        return weir__fail(err, WEIR_EBUSY, "the batch failed");
    }
    if (count > 1 && g->rough && g->calls % 17 == 0) {
        return weir__fail(err, WEIR_EIO, "the batch failed");
    }
    return WEIR_OK;
}

weir_status status_of_tag(int64_t tag)
{
    return tag % 5 == 0 ? WEIR_ECONFLICT : WEIR_OK;
}

static void judge_locked(gate_store *g, store_append *a) WEIR_REQUIRES(g->mu)
{
    const int64_t tag = tag_of(a);
    if ((g->held && tag == g->held_tag) ||
        (g->rough && tag % 50 == 49 && (a->flags & STORE_APPEND_NOWAIT) != 0)) {
        a->status = weir__fail(a->err, WEIR_EBUSY, "somebody holds it");
        a->alone = true;
        return;
    }
    if (g->judged < GATE_CALLS_MAX) {
        g->order[g->judged] = tag;
    }
    g->judged++;
    caller_of(a)->judged++;
    a->streams[0].id = tag * 10;
    a->status = status_of_tag(tag) == WEIR_OK
                    ? WEIR_OK
                    : weir__fail_conflict(a->err, a->streams[0].name, 1, tag);
}

static weir_status gate_append(weir_store *base, store_append *const *appends, size_t count,
                               weir_error *err)
{
    gate_store *g = (gate_store *)base;
    const bool waits_for_nobody = (appends[0]->flags & STORE_APPEND_NOWAIT) != 0;
    size_t serial = 0;
    weir__lock(&g->mu);
    if (waits_for_nobody) {
        serial = enter_locked(g, appends, count);
    }
    pass_gate_locked(g, appends[0]);
    while (any_waits_for_held(g, appends, count)) {
        g->held_inside++;
        weir__cond_wait(&g->opened, &g->mu);
        g->held_inside--;
    }
    if (g->rough) { /* lets others come meanwhile */
        weir__unlock(&g->mu);
        (void)sched_yield();
        weir__lock(&g->mu);
    }
    if (g->calls < GATE_CALLS_MAX) {
        g->counts[g->calls] = count;
    }
    g->calls++;
    const weir_status status = trouble_locked(g, appends, count, err);
    for (size_t i = 0; status == WEIR_OK && i < count; i++) {
        judge_locked(g, appends[i]);
    }
    if (waits_for_nobody) {
        leave_locked(g, serial, appends, count);
    }
    weir__unlock(&g->mu);
    return status;
}

static const store_log_ops gate_log_1 = { .group_commit = 1, .append = gate_append };
static const store_log_ops gate_log_2 = { .group_commit = 2, .append = gate_append };
static const store_log_ops gate_log_few = { .group_commit = 1,
                                            .batch_names_max = 4,
                                            .append = gate_append };

void gate_set(gate_store *g, bool closed)
{
    weir__lock(&g->mu);
    g->closed = closed;
    weir__cond_broadcast(&g->opened);
    weir__unlock(&g->mu);
}

static void gate_let(gate_store *g, int64_t tag)
{
    weir__lock(&g->mu);
    g->let |= tag_bit(tag);
    weir__cond_broadcast(&g->opened);
    weir__unlock(&g->mu);
}

static uint64_t gate_waiting(gate_store *g)
{
    weir__lock(&g->mu);
    const uint64_t tags = g->waiting;
    weir__unlock(&g->mu);
    return tags;
}

/* ---- the fixture -------------------------------------------------------------------------- */

static int setup_with(void **state, const store_log_ops *log)
{
    fixture *f = weir__calloc(1, sizeof *f);
    names_fill();
    f->gate.base.log = log;
    f->gate.closed = true;
    assert_true(weir__mutex_init(&f->gate.mu) && weir__cond_init(&f->gate.opened));
    assert_int_equal(weir__committer_open(&f->c, &f->gate.base, NULL), WEIR_OK);
    *state = f;
    return 0;
}

int fixture_setup_1(void **state)
{
    return setup_with(state, &gate_log_1);
}

int fixture_setup_2(void **state)
{
    return setup_with(state, &gate_log_2);
}

int fixture_setup_few(void **state)
{
    return setup_with(state, &gate_log_few);
}

static void *caller_run(void *arg)
{
    caller *k = arg;
    atomic_store(&k->tid, (int)syscall(SYS_gettid));
    k->status = weir__committer_append(k->c, &k->append);
    atomic_store(&k->returned, true);
    return NULL;
}

static void caller_wish(caller *k, wish w)
{
    static const store_new_event events[COMMITTER_BATCH_EVENTS_MAX];
    const char *streams = w.streams == NULL ? "S" : w.streams;
    k->append = (store_append){ .streams = k->streams,
                                .streams_count = strlen(streams),
                                .events = events,
                                .events_count = w.events_count,
                                .key_changes = &k->key_change,
                                .key_changes_count = w.reserved != 0,
                                .deadline_us = w.deadline_us,
                                .err = &k->err };
    for (size_t i = 0; i < k->append.streams_count; i++) {
        k->streams[i] = (store_append_stream){ .name = name_of_letter(streams[i]) };
    }
    k->streams[0].version = w.tag;
    if (w.key != 0) {
        k->append.key = name_of_letter(w.key);
    }
    if (w.reserved != 0) {
        k->key_change = (store_key_change){ .key = name_of_letter(w.reserved) };
    }
}

caller *caller_start(fixture *f, wish w)
{
    caller *k = &f->callers[f->started++];
    w.tag = w.tag == 0 ? (int64_t)f->started : w.tag;
    *k = (caller){ .c = f->c };
    caller_wish(k, w);
    assert_int_equal(pthread_create(&k->thread, NULL, caller_run, k), 0);
    return k;
}

void caller_join(caller *k)
{
    if (!k->joined) {
        assert_int_equal(pthread_join(k->thread, NULL), 0);
        k->joined = true;
    }
}

void join_all(fixture *f)
{
    for (size_t i = 0; i < f->started; i++) {
        caller_join(&f->callers[i]);
    }
}

static bool all_returned(fixture *f)
{
    for (size_t i = 0; i < f->started; i++) {
        if (!atomic_load(&f->callers[i].returned)) {
            return false;
        }
    }
    return true;
}

/* A test that failed leaves callers behind. Those that do not return keep what they use: they would
 * write to it if somebody still told them something. */
int fixture_teardown(void **state)
{
    fixture *f = *state;
    const int64_t deadline_us = weir__clock_mono(weir__clock_machine()) + WAIT_US_MAX;
    gate_set(&f->gate, false);
    while (!all_returned(f)) {
        if (weir__clock_mono(weir__clock_machine()) > deadline_us) {
            print_error("somebody never got an answer\n");
            return -1;
        }
        (void)sched_yield();
    }
    join_all(f);
    weir__committer_close(f->c);
    weir__cond_destroy(&f->gate.opened);
    weir__mutex_destroy(&f->gate.mu);
    weir__free(f);
    return 0;
}

static void wait_inside(gate_store *g, size_t count)
{
    bool there = false;
    while (!there) {
        weir__lock(&g->mu);
        there = g->inside == count;
        weir__unlock(&g->mu);
        (void)sched_yield();
    }
}

void caller_queue(fixture *f, wish w)
{
    (void)caller_start(f, w);
    while (weir__committer_waiting(f->c) != f->started) {
        (void)sched_yield();
    }
}

void queue_up(fixture *f, size_t count)
{
    (void)caller_start(f, (wish){ 0 });
    wait_inside(&f->gate, 1);
    for (size_t i = 0; i < count; i++) {
        caller_queue(f, (wish){ 0 });
    }
}

/* ---- that nothing happens ------------------------------------------------------------------ */

/* Whether its thread sleeps, or is gone. */
static bool caller_sleeps(caller *k)
{
    char path[64], text[256];
    const int tid = atomic_load(&k->tid);
    if (k->joined || tid == 0) {
        return k->joined;
    }
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return true;
    }
    const size_t len = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[len] = '\0';
    /* The state comes after the program's name, which is in parentheses. */
    const char *name_end = strrchr(text, ')');
    return len == 0 || (name_end != NULL && strncmp(name_end, ") S", 3) == 0);
}

static bool all_sleep(fixture *f)
{
    for (size_t i = 0; i < f->started; i++) {
        if (!caller_sleeps(&f->callers[i])) {
            return false;
        }
    }
    return true;
}

void settle(fixture *f)
{
    /* Twice in a row: who was looked at first may have been woken by who was looked at last. */
    while (!all_sleep(f) || !all_sleep(f)) {
        (void)sched_yield();
    }
}

void assert_at_gate(fixture *f, uint64_t tags)
{
    const int64_t deadline_us = weir__clock_mono(weir__clock_machine()) + WAIT_US_MAX;
    while (gate_waiting(&f->gate) != tags) {
        if (weir__clock_mono(weir__clock_machine()) > deadline_us) {
            break;
        }
        (void)sched_yield();
    }
    assert_int_equal(gate_waiting(&f->gate), tags);
    settle(f);
    assert_int_equal(gate_waiting(&f->gate), tags);
}

void let_end(fixture *f, int64_t tag)
{
    gate_let(&f->gate, tag);
    caller_join(&f->callers[tag - 1]);
}

void assert_all_are_answered(fixture *f)
{
    gate_set(&f->gate, false);
    join_all(f);
    for (size_t i = 0; i < f->started; i++) {
        const caller *k = &f->callers[i];
        assert_int_equal(k->judged, k->status == WEIR_EBUSY ? 0 : 1);
        if (k->judged == 1) {
            assert_int_equal(k->status, status_of_tag(tag_of(&k->append)));
        }
    }
    assert_int_equal(f->gate.meetings, 0);
    assert_int_equal(weir__committer_waiting(f->c), 0);
}
