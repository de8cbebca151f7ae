/* committer_two_test.c - who shares a transaction with whom, and who waits for whom, where two
 * transactions run at a time.
 *
 * Method: see committer_test.c. That something does not happen is shown by waiting until every
 * caller is asleep. In each test the n-th caller has the tag n unless it says otherwise, and a
 * transaction at the gate is known by the tag of its leader.
 */
#include "store/committer_fixture.h"

#include <string.h>

static void assert_order(const gate_store *g, const int64_t *tags, size_t count)
{
    assert_int_equal(g->judged, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(g->order[i], tags[i]);
    }
}

/* ---- who meets whom ------------------------------------------------------------------------ */

static void C13_a_second_transaction_runs_beside_the_first_but_no_third(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "A" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "B" });
    assert_at_gate(f, tag_bit(1) | tag_bit(2));
    for (const char *stream = "C\0D\0E\0"; *stream != '\0'; stream += 2) {
        (void)caller_start(f, (wish){ .streams = stream });
        assert_at_gate(f, tag_bit(1) | tag_bit(2));
    }
    let_end(f, 2); /* the younger one first */
    assert_at_gate(f, tag_bit(1) | tag_bit(3));
    let_end(f, 1);
    assert_at_gate(f, tag_bit(3));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 3);
    assert_int_equal(f->gate.counts[2], 3);
    assert_int_equal(f->gate.running_max, 2);
}

/* Of a stream, an idempotency key and a reserved key each meets its like, and any of the others. */
static void C13_who_has_a_name_in_common_waits_and_a_stranger_behind_him_does_not(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "AB", .key = 'K', .reserved = 'R' });
    assert_at_gate(f, tag_bit(1));
    static const wish wishes[] = {
        { .streams = "B" },  { .streams = "C", .key = 'K' }, { .streams = "D", .reserved = 'R' },
        { .streams = "EA" }, { .streams = "F", .key = 'R' }, { .streams = "G", .reserved = 'B' },
    };
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        (void)caller_start(f, wishes[i]);
        assert_at_gate(f, tag_bit(1));
    }
    (void)caller_start(f, (wish){ .streams = "X", .key = 'Y', .reserved = 'Z' });
    assert_at_gate(f, tag_bit(1) | tag_bit(8));
    let_end(f, 8);
    assert_at_gate(f, tag_bit(1));
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 3);
    assert_order(&f->gate, (const int64_t[]){ 8, 1, 2, 3, 4, 5, 6, 7 }, 8);
}

/* The second append waits for the first, and so do those who want what it wants. */
static void C13_who_was_stepped_over_is_not_overtaken_by_a_leader(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "A" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "AB" });
    settle(f);
    (void)caller_start(f, (wish){ .streams = "B" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "BC" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "C" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "D" });
    assert_at_gate(f, tag_bit(1) | tag_bit(6));
    let_end(f, 6);
    assert_at_gate(f, tag_bit(1));
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2));
    assert_all_are_answered(f);
    assert_order(&f->gate, (const int64_t[]){ 6, 1, 2, 3, 4, 5 }, 6);
}

static void C13_who_was_stepped_over_is_not_overtaken_in_a_batch(void **state)
{
    fixture *f = *state;
    static const char *const streams[] = { "A", "C", "AB", "D", "B", "E" };
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        (void)caller_start(f, (wish){ .streams = streams[i] });
        assert_at_gate(f, i == 0 ? tag_bit(1) : tag_bit(1) | tag_bit(2));
    }
    let_end(f, 2);
    assert_at_gate(f, tag_bit(1) | tag_bit(4));
    let_end(f, 4);
    assert_at_gate(f, tag_bit(1));
    assert_int_equal(f->gate.counts[1], 2);
    let_end(f, 1);
    assert_at_gate(f, tag_bit(3));
    assert_all_are_answered(f);
    assert_order(&f->gate, (const int64_t[]){ 2, 4, 6, 1, 3, 5 }, 6);
}

static void C13_a_transaction_has_the_names_of_all_its_callers(void **state)
{
    fixture *f = *state;
    static const char *const streams[] = { "A", "B", "C", "D" };
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        (void)caller_start(f, (wish){ .streams = streams[i] });
        assert_at_gate(f, i == 0 ? tag_bit(1) : tag_bit(1) | tag_bit(2));
    }
    let_end(f, 2);
    assert_at_gate(f, tag_bit(1) | tag_bit(3));
    let_end(f, 1);
    (void)caller_start(f, (wish){ .streams = "D" }); /* the leader's is C */
    assert_at_gate(f, tag_bit(3));
    (void)caller_start(f, (wish){ .streams = "A" });
    assert_at_gate(f, tag_bit(3) | tag_bit(6));
    assert_all_are_answered(f);
}

/* He waits for both, and whoever comes after him waits for him. */
static void C13_who_wants_two_streams_waits_for_both_transactions(void **state)
{
    fixture *f = *state;
    static const char *const streams[] = { "A", "B", "AB", "A", "C", "B" };
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        (void)caller_start(f, (wish){ .streams = streams[i] });
        assert_at_gate(f, i == 0 ? tag_bit(1) : tag_bit(1) | tag_bit(2));
    }
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2) | tag_bit(5));
    let_end(f, 2); /* its place is for him, though a younger one is under way */
    assert_at_gate(f, tag_bit(3) | tag_bit(5));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 4);
}

static void C13_an_append_with_many_names_runs_by_itself_and_in_its_turn(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "A" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "B" });
    assert_at_gate(f, tag_bit(1) | tag_bit(2));
    (void)caller_start(f, (wish){ .streams = "CDEFGHI", .key = 'K', .reserved = 'R' });
    settle(f);
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2));
    (void)caller_start(f,
                       (wish){ .streams = "X" }); /* could run at once, and would again and again */
    assert_at_gate(f, tag_bit(2));
    (void)caller_start(f, (wish){ .streams = "Y" });
    assert_at_gate(f, tag_bit(2));
    let_end(f, 2);
    assert_at_gate(f, tag_bit(3));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 3);
    assert_order(&f->gate, (const int64_t[]){ 1, 2, 3, 4, 5 }, 5);
}

static void C13_nothing_runs_beside_an_append_with_many_names(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "ABCDEFGHI" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "X" });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "JKLMNOPQR" });
    assert_at_gate(f, tag_bit(1));
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 2);
}

static void eight_names_are_not_many(void **state)
{
    fixture *f = *state;
    (void)caller_start(f, (wish){ .streams = "ABCDEF", .key = 'K', .reserved = 'R' });
    assert_at_gate(f, tag_bit(1));
    (void)caller_start(f, (wish){ .streams = "GHIJLM", .key = 'N', .reserved = 'K' });
    assert_at_gate(f, tag_bit(1)); /* the last of its names is one of the first's */
    (void)caller_start(f, (wish){ .streams = "OPQSTU", .key = 'V', .reserved = 'W' });
    assert_at_gate(f, tag_bit(1) | tag_bit(3));
    assert_all_are_answered(f);
}

/* Leaves a transaction of eight at the gate: tags 2 to 9. */
static void eight_under_way(fixture *f)
{
    for (size_t i = 0; i < 9; i++) {
        (void)caller_start(f, (wish){ .streams = "A" });
        assert_at_gate(f, tag_bit(1));
    }
    let_end(f, 1);
    assert_at_gate(f, tag_bit(2));
}

static void C13_fewer_than_half_as_many_as_are_under_way_wait_for_them(void **state)
{
    fixture *f = *state;
    eight_under_way(f);
    for (const char *stream = "B\0C\0D\0"; *stream != '\0'; stream += 2) {
        (void)caller_start(f, (wish){ .streams = stream });
        assert_at_gate(f, tag_bit(2));
    }
    let_end(f, 2);
    assert_at_gate(f, tag_bit(10));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 3);
    assert_int_equal(f->gate.counts[1], 8);
    assert_int_equal(f->gate.counts[2], 3);
}

static void C13_half_as_many_as_are_under_way_start_beside_them(void **state)
{
    fixture *f = *state;
    eight_under_way(f);
    for (const char *stream = "B\0C\0D\0E\0"; *stream != '\0'; stream += 2) {
        assert_at_gate(f, tag_bit(2));
        (void)caller_start(f, (wish){ .streams = stream });
    }
    assert_at_gate(f, tag_bit(2) | tag_bit(10)); /* the one who came first leads */
    let_end(f, 10);
    assert_int_equal(f->gate.counts[1], 4);
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 3);
}

/* A transaction of four fails while another one is under way and others wait, one of them for a
 * stream of the four. Two have time left: they go on before those who came after them. */
static void C13_a_busy_store_sends_those_with_time_left_to_the_front(void **state)
{
    fixture *f = *state;
    const int64_t past_us = weir__clock_mono(weir__clock_machine());
    f->gate.batch_fails = WEIR_EBUSY;
    f->gate.batch_fails_left = 1;
    const wish wishes[] = {
        { .streams = "A" },
        { .streams = "B" },
        { .streams = "C", .deadline_us = past_us },
        { .streams = "D", .deadline_us = past_us },
        { .streams = "E", .deadline_us = INT64_MAX },
        { .streams = "FG", .deadline_us = INT64_MAX },
    };
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        (void)caller_start(f, wishes[i]);
        assert_at_gate(f, i == 0 ? tag_bit(1) : tag_bit(1) | tag_bit(2));
    }
    let_end(f, 2);
    assert_at_gate(f, tag_bit(1) | tag_bit(3));
    (void)caller_start(f, (wish){ .streams = "G", .deadline_us = INT64_MAX });
    settle(f);
    (void)caller_start(f, (wish){ .streams = "H", .deadline_us = INT64_MAX });
    assert_at_gate(f, tag_bit(1) | tag_bit(3));
    let_end(f, 3);
    assert_at_gate(f, tag_bit(1) | tag_bit(5));
    let_end(f, 5);
    assert_at_gate(f, tag_bit(1));
    assert_all_are_answered(f);
    assert_int_equal(f->gate.counts[1], 4);
    assert_int_equal(f->callers[2].status, WEIR_EBUSY);
    assert_int_equal(f->callers[3].status, WEIR_EBUSY);
    assert_order(&f->gate, (const int64_t[]){ 2, 5, 6, 7, 8, 1 }, 6);
}

static void C13_who_was_sent_back_counts_among_those_who_wait(void **state)
{
    fixture *f = *state;
    eight_under_way(f);
    f->gate.batch_fails = WEIR_EBUSY;
    f->gate.batch_fails_left = 1;
    for (const char *stream = "B\0C\0D\0E\0"; *stream != '\0'; stream += 2) {
        assert_at_gate(f, tag_bit(2));
        (void)caller_start(f, (wish){ .streams = stream, .deadline_us = INT64_MAX });
    }
    assert_at_gate(f, tag_bit(2) | tag_bit(10));
    let_end(f, 10);
    assert_at_gate(f, tag_bit(2)); /* three were sent back */
    (void)caller_start(f, (wish){ .streams = "F" });
    assert_at_gate(f, tag_bit(2) | tag_bit(11));
    let_end(f, 11);
    assert_all_are_answered(f);
    assert_int_equal(f->gate.calls, 4);
    assert_int_equal(f->gate.counts[2], 4);
}

/* ---- many threads ------------------------------------------------------------------------- */

typedef struct hammer {
    pthread_t thread;
    fixture *f;
    caller *k;
    uint32_t random;
    size_t appends, streams_count;
    size_t wrong; /* answers */
} hammer;

static uint32_t hammer_random(hammer *h, size_t below)
{
    h->random = h->random * 1664525U + 1013904223U;
    return (h->random >> 8) % (uint32_t)below;
}

/* Mostly one stream, sometimes two, seldom many; sometimes keys, which are names of streams too, so
 * that there is more to meet. */
static void hammer_wish(hammer *h)
{
    caller *k = h->k;
    const uint32_t kind = hammer_random(h, 100);
    const size_t streams_count = kind == 0 ? GATE_NAMES_FEW : kind < 20 ? 2 : 1;
    const size_t first = hammer_random(h, h->streams_count);
    k->judged = 0;
    k->led_busy = false;
    k->append = (store_append){ .streams = k->streams,
                                .streams_count = streams_count,
                                .key_changes = &k->key_change,
                                .key_changes_count = hammer_random(h, 10) == 0,
                                .deadline_us = hammer_random(h, 2) == 0 ? 0 : INT64_MAX,
                                .err = &k->err };
    for (size_t i = 0; i < streams_count; i++) {
        const size_t number = (first + i) % h->streams_count;
        k->streams[i] = (store_append_stream){ .name = name_of_number(number) };
    }
    k->streams[0].version = hammer_random(h, 1000);
    k->key_change.key = name_of_number(hammer_random(h, h->streams_count));
    if (kind == 0 || hammer_random(h, 10) == 0) {
        k->append.key = name_of_number(hammer_random(h, h->streams_count));
    }
}

static void *hammer_run(void *arg)
{
    hammer *h = arg;
    for (size_t i = 0; i < h->appends; i++) {
        hammer_wish(h);
        const weir_status status = weir__committer_append(h->f->c, &h->k->append);
        const caller *k = h->k;
        const bool may_be_refused = k->append.deadline_us == 0 || k->led_busy;
        const bool refused = status == WEIR_EBUSY && k->judged == 0 && may_be_refused &&
                             strcmp(k->err.message, "the batch failed") == 0;
        const bool judged = status == status_of_tag(tag_of(&k->append)) && k->judged == 1;
        h->wrong += !refused && !judged;
    }
    return NULL;
}

static void hammer_with(fixture *f, size_t threads, size_t streams_count)
{
    enum { APPENDS = 20000 };
    hammer *hammers = weir__calloc(threads, sizeof *hammers);
    f->gate.rough = true;
    f->gate.running_max = 0;
    for (size_t i = 0; i < threads; i++) {
        hammers[i] = (hammer){ .f = f,
                               .k = &f->callers[i],
                               .random = (uint32_t)(i * 7919 + streams_count),
                               .appends = APPENDS / threads,
                               .streams_count = streams_count };
        assert_int_equal(pthread_create(&hammers[i].thread, NULL, hammer_run, &hammers[i]), 0);
    }
    gate_set(&f->gate, false);
    size_t wrong = 0;
    for (size_t i = 0; i < threads; i++) {
        assert_int_equal(pthread_join(hammers[i].thread, NULL), 0);
        wrong += hammers[i].wrong;
    }
    gate_set(&f->gate, true);
    weir__free(hammers);
    assert_int_equal(wrong, 0);
    assert_int_equal(f->gate.meetings, 0);
    assert_int_equal(f->gate.running, 0);
    assert_int_equal(weir__committer_waiting(f->c), 0);
    assert_true(f->gate.running_max <= threads && f->gate.running_max <= 2);
    if (threads >= 64) {
        assert_int_equal(f->gate.running_max, 2); /* or nothing was tried */
    }
}

static void C13_many_threads_get_one_answer_each_and_never_meet(void **state)
{
    static const size_t threads[] = { 1, 2, 64, 300 };
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        hammer_with(*state, threads[i], 8);
        hammer_with(*state, threads[i], GATE_NUMBERS_COUNT);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup_2, fixture_teardown)

/* Names count once, whoever has them; one caller by himself has as many as he likes. */
static void C13_a_transaction_has_no_more_names_than_the_store_likes(void **state)
{
    fixture *f = *state;
    static const wish wishes[] = {
        { .streams = "A" },  { .streams = "AB" },    { .streams = "B", .key = 'C' },
        { .streams = "DA" }, { .streams = "E" },     { .streams = "A" },
        { .streams = "FG" }, { .streams = "HIJKL" }, { .streams = "M" },
    };
    (void)caller_start(f, (wish){ .streams = "Z" });
    assert_at_gate(f, tag_bit(1));
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        caller_queue(f, wishes[i]);
    }
    assert_all_are_answered(f);
    static const size_t counts[] = { 1, 4, 3, 1, 1 }; /* Z; A B C D; E A FG; HIJKL; M */
    assert_int_equal(f->gate.calls, sizeof counts / sizeof counts[0]);
    for (size_t i = 0; i < f->gate.calls; i++) {
        assert_int_equal(f->gate.counts[i], counts[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(C13_a_second_transaction_runs_beside_the_first_but_no_third),
        TEST(C13_who_has_a_name_in_common_waits_and_a_stranger_behind_him_does_not),
        TEST(C13_who_was_stepped_over_is_not_overtaken_by_a_leader),
        TEST(C13_who_was_stepped_over_is_not_overtaken_in_a_batch),
        TEST(C13_a_transaction_has_the_names_of_all_its_callers),
        TEST(C13_who_wants_two_streams_waits_for_both_transactions),
        TEST(C13_an_append_with_many_names_runs_by_itself_and_in_its_turn),
        TEST(C13_nothing_runs_beside_an_append_with_many_names),
        TEST(eight_names_are_not_many),
        TEST(C13_fewer_than_half_as_many_as_are_under_way_wait_for_them),
        TEST(C13_half_as_many_as_are_under_way_start_beside_them),
        TEST(C13_a_busy_store_sends_those_with_time_left_to_the_front),
        TEST(C13_who_was_sent_back_counts_among_those_who_wait),
        TEST(C13_many_threads_get_one_answer_each_and_never_meet),
        cmocka_unit_test_setup_teardown(C13_a_transaction_has_no_more_names_than_the_store_likes,
                                        fixture_setup_few, fixture_teardown),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("committer_two", tests, NULL, NULL);
}
