/* lane_room_test.c - the events of a worker take no more memory than it may use. On memory and on
 * SQLite.
 *
 * Method: as slot_test.c, with events of 900 kB. Tasks are run one after the other, so that a batch
 * that was filled stays until its slot runs; handlers look at how much is in use.
 */
#include "engine/slot_kit_test.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_BYTES = 900000, STREAMS = 8, EACH = 7 };
#define MIB (INT64_C(1) << 20)

static kit_process a;
static recorder one, two;
static int64_t most; /* that was in use while a handler ran */

static void looks(recorder *r, weir_delivery *d)
{
    const int64_t used = r->process->worker->room.used;
    (void)d;
    most = used > most ? used : most;
}

static void append_large(weir_store *s, const char *stream, size_t count)
{
    char *data = malloc(LARGE_BYTES + 1);
    assert_non_null(data);
    memset(data, 'x', LARGE_BYTES);
    data[0] = data[LARGE_BYTES - 1] = '"';
    data[LARGE_BYTES] = '\0';
    for (size_t i = 0; i < count; i++) {
        (void)kit_append(s, stream, "Placed", data);
    }
    free(data);
}

static void add_lane(const char *name, int32_t threads)
{
    const weir_lane declared = { WEIR_LANE_INIT, .name = weir__str(name), .threads = threads };
    kit_lane(&a, &declared);
}

static weir_store *begin(void **state, int64_t memory_bytes)
{
    const worker_options options = { .memory_bytes = memory_bytes };
    weir_store *s = kit_open(*state != NULL);

    one = (recorder){ .store = s, .during = looks };
    two = (recorder){ .store = s, .during = looks };
    most = 0;
    add_lane("default", STREAMS);
    kit_handler(&a, &one, "one", "{stream}", NULL);
    kit_start(&a, s, &options);
    return s;
}

static void end(weir_store *s)
{
    assert_int_equal(a.worker->room.used, 0); /* everything was given back */
    assert_int_equal(a.worker->lanes[0].room.used, 0);
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static void append_to_all(weir_store *s)
{
    for (int i = 0; i < STREAMS; i++) {
        char stream[32];
        (void)snprintf(stream, sizeof stream, "order-%d", i);
        append_large(s, stream, EACH);
    }
}

static void handles_all(weir_store *s)
{
    append_to_all(s);
    kit_drive(&a, 1 * S);
    assert_int_equal(one.calls, STREAMS * EACH); /* each once: none was lost on the way */
    assert_int_equal(kit_count(&a, METRIC_LOST), 0);
    assert_int_equal(kit_count(&a, METRIC_FAILED), 0);
}

static void without_a_limit_that_matters_all_slots_have_events(void **state)
{
    weir_store *s = begin(state, 256 * MIB);
    handles_all(s);
    assert_true(most > STREAMS * 4 * MIB); /* otherwise the tests below prove nothing */
    end(s);
}

static void slots_wait_for_room(void **state)
{
    weir_store *s = begin(state, 16 * MIB);
    handles_all(s);
    assert_in_range(most, 8 * MIB, 16 * MIB);
    end(s);
}

/* With less than one event's worth there is one batch at a time, and nothing stands still. */
static void an_event_larger_than_the_limit_goes_through_by_itself(void **state)
{
    weir_store *s = begin(state, MIB / 2);
    handles_all(s);
    /* What a fetch brings until it has 64 KiB: one event; and what a batch needs besides. */
    assert_in_range(most, LARGE_BYTES, LARGE_BYTES + 300000);
    end(s);
}

static void nothing_is_leased_while_there_is_no_room(void **state)
{
    weir_store *s = begin(state, 8 * MIB);
    int64_t all = 8 * MIB;
    append_large(s, "order-1", 1);
    (void)kit_route(&a);
    assert_true(weir__room_take(&a.worker->lanes[0].room, all));
    kit_drive(&a, 10 * S);
    assert_int_equal(one.calls, 0);
    assert_int_equal(kit_target_of(s, "order-1").state, STORE_TARGET_READY); /* for others, too */
    assert_int_equal(kit_target_of(s, "order-1").fence, 0);
    weir__room_correct(&a.worker->lanes[0].room, &all, 0);
    assert_true(kit_woken(&a, &a.worker->lanes[0].leasing));
    kit_drive(&a, 1);
    assert_int_equal(one.calls, 1);
    end(s);
}

static void a_target_that_is_kept_is_let_go_when_there_is_no_room_for_more(void **state)
{
    weir_store *s = begin(state, 8 * MIB);
    append_large(s, "order-1", EACH);
    (void)kit_route(&a);
    (void)kit_steps(&a.worker->lanes[0].leasing);
    slot *const first = &a.worker->lanes[0].slots[0];
    assert_true(a.worker->room.used > 0);
    const int64_t before = a.worker->room.used;
    int64_t taken = 0;
    weir__room_correct(&a.worker->lanes[0].room, &taken, 8 * MIB - before);
    (void)kit_steps(&first->task);
    assert_true(one.calls > 0 && one.calls < EACH);
    (void)kit_steps(&a.worker->lanes[0].leasing); /* settles */
    assert_int_equal(first->state, SLOT_IDLE);
    assert_int_equal(kit_target_of(s, "order-1").state, STORE_TARGET_READY);
    weir__room_correct(&a.worker->lanes[0].room, &taken, 0);
    kit_drive(&a, 1);
    assert_int_equal(one.calls, EACH);
    end(s);
}

static void C44_a_lane_that_is_stuck_does_not_stop_another(void **state)
{
    const worker_options options = { .memory_bytes = 4 * MIB };
    const weir_reaction beside = { .lane = weir__str("beside") };
    weir_store *s = kit_open(*state != NULL);

    two = (recorder){ .store = s, .during = looks };
    add_lane("default", STREAMS);
    add_lane("beside", 2);
    kit_handler(&a, NULL, "one", "{stream}", NULL); /* pulled, and nobody does */
    kit_handler(&a, &two, "two", "two-{stream}", &beside);
    kit_start(&a, s, &options);
    append_to_all(s);
    kit_drive(&a, 1 * S);
    assert_true(a.worker->lanes[0].room.used > 0);
    assert_int_equal(two.calls, STREAMS * EACH);
    kit_check(s);
    kit_stop(&a);
    kit_close(s);
}

static void a_parked_event_that_is_sent_back_is_counted(void **state)
{
    weir_store *s = kit_open(*state != NULL);
    const weir_reaction parks = { .poison = WEIR_POISON_PARK };
    const worker_options options = { .memory_bytes = 16 * MIB };
    char why[64];

    one = (recorder){
        .store = s, .during = looks, .fail_event = -1, .outcome = WEIR_PERMANENT, .why = "no"
    };
    add_lane("default", STREAMS);
    kit_handler(&a, &one, "one", "{stream}", &parks);
    kit_start(&a, s, &options);
    append_large(s, "order-1", 1);
    kit_drive(&a, 1 * S);
    const int64_t id = kit_parked_id(s, why, sizeof why);
    one.fail_event = 0;
    most = 0;
    assert_int_equal(s->work->parked_change(s, id, STORE_PARKED_RETRY, NULL), WEIR_OK);
    kit_drive(&a, 10 * S);
    assert_true(most >= LARGE_BYTES);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_limit_that_matters_all_slots_have_events),
        TEST(slots_wait_for_room),
        TEST(an_event_larger_than_the_limit_goes_through_by_itself),
        TEST(nothing_is_leased_while_there_is_no_room),
        TEST(a_target_that_is_kept_is_let_go_when_there_is_no_room_for_more),
        TEST(C44_a_lane_that_is_stuck_does_not_stop_another),
        TEST(a_parked_event_that_is_sent_back_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
