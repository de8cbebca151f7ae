/* public_operate.c - what a program can do through weir.h without starting `weir`: append in one
 * call, look at targets, lanes, parked events and locks, change them, take locks and run once.
 * Goal: each function does what the verb of the port does, on every store, and says no as its
 * comment says. Method: targets are made and broken through the port, then only weir.h is used.
 */
#include "kit.h"

#include "api/api.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static weir *operator_open(kit *k, uint32_t flags)
{
    char url[KIT_PLACE_BYTES + 64];
    weir *w = NULL;
    k->adapter->url(k->place, url, sizeof url);
    const weir_options o = { WEIR_OPTIONS_INIT, .flags = flags, .store_url = url,
                             .application = "shop" };
    KIT_OK(k, (weir_status)weir_open(&o, &w, &k->err));
    return w;
}

#define IS(call, status) KIT_IS(k, (weir_status)(call), (status))
#define OK(call)         IS(call, WEIR_OK)

/* ---- appending ---------------------------------------------------------------------------- */

static int keep_time(void *ctx, const weir_event *event)
{
    *(int64_t *)ctx = event->created_us;
    return 0;
}

static void the_short_append_is_the_long_one(void **state)
{
    kit *k = *state;
    weir *w = operator_open(k, 0);
    const weir_str stream = WEIR_STR("order-1");
    weir_appended got = { WEIR_APPENDED_INIT };
    OK(weir_append_one(w, stream, WEIR_EXPECT_NONE, 0, WEIR_STR("Placed"),
                       WEIR_STR("{\"total\":40}"), &got, &k->err));
    assert_int_equal(got.first, 0);
    assert_int_equal(got.last, 0);
    assert_int_equal(got.size, sizeof got);
    assert_ptr_equal(got.stream.ptr, stream.ptr);
    assert_int_equal(got.id, kit_head(k));
    int64_t created_us = 0;
    const weir_read_options all = { WEIR_READ_OPTIONS_INIT, .stream = stream };
    OK(weir_read(w, &all, keep_time, &created_us, &k->err));
    assert_true(created_us > 0);
    assert_int_equal(got.created_us, created_us);

    OK(weir_append_one(w, stream, WEIR_EXPECT_EXACT, got.last, WEIR_STR("Paid"),
                       (weir_str){ NULL, 0 }, NULL, &k->err));
    KIT_STR(kit_stream(k, "order-1").events[1].data, "{}");
    IS(weir_append_one(w, stream, WEIR_EXPECT_EXACT, 0, WEIR_STR("Paid"), (weir_str){ NULL, 0 },
                       &got, &k->err),
       WEIR_ECONFLICT);
    assert_int_equal(k->err.actual, 1);
    assert_int_equal(got.last, 0); /* as it was */
    IS(weir_append_one(w, stream, 9, 0, WEIR_STR("Paid"), (weir_str){ NULL, 0 }, NULL, &k->err),
       WEIR_EINVAL);
    /* A struct of an older header is filled as far as it goes, one without a size not at all. */
    got = (weir_appended){ .size = offsetof(weir_appended, created_us), .created_us = 7 };
    OK(weir_append_one(w, stream, WEIR_EXPECT_ANY, 0, WEIR_STR("Sent"), (weir_str){ NULL, 0 }, &got,
                       &k->err));
    assert_int_equal(got.last, 2);
    assert_int_equal(got.created_us, 7);
    assert_int_equal(got.size, offsetof(weir_appended, created_us));
    got.size = 0;
    IS(weir_append_one(w, stream, WEIR_EXPECT_ANY, 0, WEIR_STR("Sent"), (weir_str){ NULL, 0 }, &got,
                       &k->err),
       WEIR_EINVAL);
    assert_int_equal(kit_version(k, "order-1"), 2);
    weir_close(w);
}

static void the_result_of_a_replay_has_the_first_time(void **state)
{
    kit *k = *state;
    weir *w = operator_open(k, 0);
    const weir_new_event event = { WEIR_NEW_EVENT_INIT, .stream = WEIR_STR("s"),
                                   .name = WEIR_STR("A") };
    const weir_new_event *const events[] = { &event };
    const weir_append_request r = { WEIR_APPEND_REQUEST_INIT, .events = events, .events_count = 1,
                                    .key = WEIR_STR("once") };
    const weir_append_result *first = NULL, *second = NULL;
    OK(weir_append(w, &r, &first, &k->err));
    OK(weir_append(w, &r, &second, &k->err));
    assert_int_equal(second->replayed, 1);
    assert_true(first->streams[0]->created_us > 0);
    assert_int_equal(second->streams[0]->created_us, first->streams[0]->created_us);
    weir_append_result_free(first);
    weir_append_result_free(second);
    weir_close(w);
}

/* ---- targets ------------------------------------------------------------------------------ */

/* Reaction "r" with targets mail-a, mail-b and mail-c, each with two events. */
static void targets_make(kit *k)
{
    static const char *const streams[] = { "a", "b", "c" };
    kit_declare(k, "r", "Work", "*", STORE_RULE_STREAM);
    for (size_t i = 0; i < 2 * 3; i++) {
        kit_put(k, streams[i % 3], "Work");
    }
    KIT_OK(k, kit_route(k, k->store, "r", "mail-", "post", 0));
}

/* Blocks one target at its next event. */
static void target_block(kit *k, const char *target)
{
    store_lease_list *list = kit_lease(k, "post", 3);
    for (size_t i = 0; i < list->leases_count; i++) {
        const store_leased *l = &list->leases[i];
        if (weir__str_equal(l->name, weir__str(target))) {
            store_settle s = kit_settle_of(l, STORE_END_BLOCK);
            s.failure = (store_failure){ .reaction = l->subscriptions[0].reaction,
                                         .event = l->subscriptions[0].mark,
                                         .error = weir__str("broken") };
            KIT_OK(k, k->store->work->settle(k->store, &s, &k->err));
        } else {
            KIT_OK(k, kit_release(k, l));
        }
    }
}

/* The names that are listed, with a space behind each. */
static void listed(kit *k, weir *w, const weir_targets_options *o, const char *expected)
{
    weir_target_list *list = NULL;
    const weir_target *row = NULL;
    char names[256] = "";
    OK(weir_targets_open(w, o, &list, &k->err));
    for (;;) {
        OK(weir_targets_next(list, &row, &k->err));
        if (row == NULL) {
            break;
        }
        const size_t len = strlen(names);
        (void)snprintf(names + len, sizeof names - len, "%.*s ", (int)row->name.len, row->name.ptr);
    }
    OK(weir_targets_next(list, &row, &k->err)); /* the end stays the end */
    assert_null(row);
    weir_targets_close(list);
    assert_string_equal(names, expected);
}

static void targets_are_listed_as_they_are(void **state)
{
    kit *k = *state;
    targets_make(k);
    target_block(k, "mail-b");
    weir *w = operator_open(k, WEIR_OPEN_READONLY);
    listed(k, w, NULL, "mail-a mail-b mail-c ");
    weir_targets_options o = { WEIR_TARGETS_OPTIONS_INIT, .flags = WEIR_TARGETS_BLOCKED };
    listed(k, w, &o, "mail-b ");
    o = (weir_targets_options){ WEIR_TARGETS_OPTIONS_INIT, .match = WEIR_STR("mail-*"),
                                .lane = WEIR_STR("post") };
    listed(k, w, &o, "mail-a mail-b mail-c ");
    o.lane = WEIR_STR("other");
    listed(k, w, &o, "");
    const weir_str names[] = { WEIR_STR("mail-c"), WEIR_STR("mail-a"), WEIR_STR("mail-c") };
    o = (weir_targets_options){ WEIR_TARGETS_OPTIONS_INIT, .names = names, .names_count = 3 };
    listed(k, w, &o, "mail-a mail-c ");

    weir_target_list *list = NULL;
    const weir_target *row = NULL;
    OK(weir_targets_open(w, NULL, &list, &k->err));
    OK(weir_targets_next(list, &row, &k->err));
    assert_int_equal(row->state, WEIR_TARGET_READY);
    assert_int_equal(row->flags, WEIR_TARGET_BEHIND);
    assert_true(row->lag > 0);
    OK(weir_targets_next(list, &row, &k->err));
    assert_int_equal(row->size, sizeof *row);
    assert_int_equal(row->state, WEIR_TARGET_BLOCKED);
    KIT_STR(row->lane, "post");
    KIT_STR(row->error, "broken");
    KIT_STR(row->reaction, "r");
    assert_true(row->event > 0);
    assert_true(row->blocked_us > 0);
    assert_int_equal(row->attempts, 1);
    /* A list may outlive its handle, but not give more. */
    weir_close(w);
    IS(weir_targets_next(list, &row, &k->err), WEIR_EMISUSE);
    weir_targets_close(list);
    weir_targets_close(NULL);
}

static void verbs_change_what_fits_and_count_it(void **state)
{
    kit *k = *state;
    targets_make(k);
    target_block(k, "mail-b");
    weir *w = operator_open(k, 0);
    int64_t changed = -1;
    const weir_str b = WEIR_STR("mail-b");
    weir_targets_options one = { WEIR_TARGETS_OPTIONS_INIT, .names = &b, .names_count = 1 };
    weir_targets_options all = { WEIR_TARGETS_OPTIONS_INIT, .flags = WEIR_TARGETS_ALL };

    one.flags = WEIR_TARGETS_DRY_RUN;
    OK(weir_targets_unblock(w, &one, &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_true(kit_target(k, "mail-b")->blocked);
    one.flags = 0;
    OK(weir_targets_unblock(w, &one, &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_false(kit_target(k, "mail-b")->blocked);
    OK(weir_targets_unblock(w, &all, &changed, &k->err));
    assert_int_equal(changed, 0);

    OK(weir_targets_pause(w, &one, NULL, &k->err));
    KIT_STR(kit_target(k, "mail-b")->paused_by, "shop");
    OK(weir_targets_resume(w, &all, &changed, &k->err));
    assert_int_equal(changed, 1);

    one.priority = 7;
    OK(weir_targets_prioritize(w, &one, &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_int_equal(kit_target(k, "mail-b")->priority, 7);
    one.priority = 0;
    one.flags = WEIR_TARGETS_CLEAR;
    OK(weir_targets_prioritize(w, &one, &changed, &k->err));
    assert_false(kit_target(k, "mail-b")->prioritized);
    one.flags = 0;

    OK(weir_targets_skip(w, &one, &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_int_equal(kit_parked(k).parked_count, 1);
    const int64_t watermark = kit_target(k, "mail-b")->watermark;
    OK(weir_targets_reset(w, &one, &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_true(kit_target(k, "mail-b")->watermark < watermark);
    one.reset_to = WEIR_RESET_POSITION;
    one.reset_position = watermark;
    OK(weir_targets_reset(w, &one, &changed, &k->err));
    assert_int_equal(changed, 0); /* it is below that already */
    weir_close(w);
    kit_check(k);
}

static void verbs_refuse_what_they_do_not_understand(void **state)
{
    kit *k = *state;
    targets_make(k);
    weir *w = operator_open(k, 0);
    weir *reader = operator_open(k, WEIR_OPEN_READONLY);
    int64_t changed = -1;
    weir_targets_options o = { WEIR_TARGETS_OPTIONS_INIT };
    const weir_str nobody = WEIR_STR("nobody");
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_EINVAL); /* which? */
    IS(weir_targets_pause(w, NULL, &changed, &k->err), WEIR_EINVAL);
    o.flags = WEIR_TARGETS_ALL | WEIR_TARGETS_CLEAR;
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_EINVAL);
    o.flags = WEIR_TARGETS_ALL;
    o.lane = WEIR_STR("post");
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_EINVAL);
    o.flags = 0;
    o.reset_position = 3;
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_EINVAL);
    IS(weir_targets_reset(w, &o, &changed, &k->err), WEIR_EINVAL); /* not with START */
    o = (weir_targets_options){ WEIR_TARGETS_OPTIONS_INIT, .match = WEIR_STR("/(/") };
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_EINVAL);
    o = (weir_targets_options){ WEIR_TARGETS_OPTIONS_INIT, .names = &nobody, .names_count = 1 };
    IS(weir_targets_pause(w, &o, &changed, &k->err), WEIR_ENOTFOUND);
    o = (weir_targets_options){ WEIR_TARGETS_OPTIONS_INIT, .flags = WEIR_TARGETS_ALL };
    IS(weir_targets_pause(reader, &o, &changed, &k->err), WEIR_EMISUSE);
    IS(weir_targets_pause(NULL, &o, &changed, &k->err), WEIR_EINVAL);
    assert_int_equal(changed, -1);
    o.flags |= WEIR_TARGETS_DRY_RUN;
    OK(weir_targets_pause(reader, &o, &changed, &k->err));
    assert_int_equal(changed, 3);
    weir_target_list *list = NULL;
    IS(weir_targets_open(w, &o, &list, &k->err), WEIR_EINVAL);
    IS(weir_targets_open(w, NULL, NULL, &k->err), WEIR_EINVAL);
    assert_null(list);
    weir_close(reader);
    weir_close(w);
}

/* ---- lanes and parked events -------------------------------------------------------------- */

static void lanes_are_paused_and_listed(void **state)
{
    kit *k = *state;
    targets_make(k);
    weir *w = operator_open(k, 0);
    int64_t changed = -1;
    weir_lane_list *list = NULL;
    const weir_lane_state *row = NULL;
    OK(weir_lane_pause(w, WEIR_STR("post"), WEIR_STR("anna"), &changed, &k->err));
    assert_int_equal(changed, 1);
    OK(weir_lane_pause(w, WEIR_STR("post"), (weir_str){ NULL, 0 }, &changed, &k->err));
    assert_int_equal(changed, 0);
    IS(weir_lane_pause(w, (weir_str){ NULL, 0 }, WEIR_STR("anna"), &changed, &k->err), WEIR_EINVAL);
    OK(weir_lanes_open(w, &list, &k->err));
    OK(weir_lanes_next(list, &row, &k->err));
    KIT_STR(row->name, "post");
    KIT_STR(row->paused_by, "anna");
    assert_int_equal(row->paused, 1);
    assert_int_equal(row->targets, 3);
    OK(weir_lanes_next(list, &row, &k->err));
    assert_null(row);
    weir_lanes_close(list);
    weir_lanes_close(NULL);
    assert_true(kit_nothing_to_lease(k, "post"));
    OK(weir_lane_resume(w, WEIR_STR("post"), &changed, &k->err));
    assert_int_equal(changed, 1);
    assert_false(kit_nothing_to_lease(k, "post"));
    weir_close(w);
}

static void parked_events_are_listed_retried_and_dropped(void **state)
{
    kit *k = *state;
    targets_make(k);
    weir *w = operator_open(k, 0);
    weir_targets_options all = { WEIR_TARGETS_OPTIONS_INIT, .flags = WEIR_TARGETS_ALL };
    weir_parked_list *list = NULL;
    const weir_parked *row = NULL;
    int64_t ids[3] = { 0 };
    OK(weir_targets_skip(w, &all, NULL, &k->err));
    OK(weir_parked_open(w, NULL, &list, &k->err));
    for (size_t i = 0; i < 3; i++) {
        OK(weir_parked_next(list, &row, &k->err));
        assert_non_null(row);
        assert_true(row->event > 0 && row->parked_us > 0);
        KIT_STR(row->reaction, "r");
        ids[i] = row->id;
    }
    OK(weir_parked_next(list, &row, &k->err));
    assert_null(row);
    weir_parked_close(list);
    assert_true(ids[0] < ids[1] && ids[1] < ids[2]);

    OK(weir_parked_retry(w, ids[0], &k->err));
    OK(weir_parked_drop(w, ids[1], &k->err));
    IS(weir_parked_drop(w, ids[1], &k->err), WEIR_ENOTFOUND);
    IS(weir_parked_retry(w, ids[1], &k->err), WEIR_ENOTFOUND);
    const weir_parked_options o = { WEIR_PARKED_OPTIONS_INIT, .target = WEIR_STR("mail-a") };
    OK(weir_parked_open(w, &o, &list, &k->err));
    size_t count = 0;
    for (;; count++) {
        OK(weir_parked_next(list, &row, &k->err));
        if (row == NULL) {
            break;
        }
        KIT_STR(row->target, "mail-a");
        assert_int_equal(row->sent_back, row->id == ids[0]);
    }
    assert_true(count <= 1);
    weir_parked_close(list);
    weir_parked_close(NULL);
    weir_close(w);
    kit_check(k);
}

/* ---- locks and once ----------------------------------------------------------------------- */

static void a_lock_has_one_holder_until_it_is_released(void **state)
{
    kit *k = *state;
    weir *a = operator_open(k, 0);
    weir *b = operator_open(k, 0);
    const weir_lock *lock = NULL, *other = NULL;
    const weir_lock_options o = { WEIR_LOCK_OPTIONS_INIT, .holder = WEIR_STR("anna"),
                                  .lease_us = 60 * 1000 * 1000 };
    OK(weir_lock_take(a, WEIR_STR("import"), &o, &lock, &k->err));
    KIT_STR(lock->name, "import");
    KIT_STR(lock->holder, "anna");
    assert_true(lock->fence > 0);
    assert_true(lock->until_us > lock->since_us);
    IS(weir_lock_take(b, WEIR_STR("import"), NULL, &other, &k->err), WEIR_EHELD);
    assert_non_null(strstr(k->err.message, "anna"));
    assert_null(other);
    OK(weir_lock_extend(a, lock, 0, &k->err));

    weir_lock_list *list = NULL;
    const weir_lock *row = NULL;
    OK(weir_locks_open(b, &list, &k->err));
    OK(weir_locks_next(list, &row, &k->err));
    KIT_STR(row->name, "import");
    KIT_STR(row->holder, "anna");
    assert_int_equal(row->fence, lock->fence);
    OK(weir_locks_next(list, &row, &k->err));
    assert_null(row);
    weir_locks_close(list);
    weir_locks_close(NULL);

    OK(weir_lock_release(a, lock, &k->err));
    IS(weir_lock_release(a, lock, &k->err), WEIR_ELOST);
    OK(weir_lock_take(b, WEIR_STR("import"), NULL, &other, &k->err));
    assert_true(other->fence > lock->fence);
    assert_non_null(
        strstr(kit_text(k, "%.*s", (int)other->holder.len, other->holder.ptr), "shop@"));
    IS(weir_lock_extend(a, lock, 0, &k->err), WEIR_ELOST);
    IS(weir_lock_extend(a, lock, 1, &k->err), WEIR_EINVAL);
    IS(weir_lock_take(a, (weir_str){ NULL, 0 }, NULL, &lock, &k->err), WEIR_EINVAL);
    IS(weir_lock_take(a, WEIR_STR("x"), NULL, NULL, &k->err), WEIR_EINVAL);
    IS(weir_lock_release(a, NULL, &k->err), WEIR_EINVAL);
    weir_lock_free(lock);
    weir_lock_free(other);
    weir_lock_free(NULL);
    weir_close(b);
    weir_close(a);
}

static void what_is_done_once_is_not_done_again(void **state)
{
    kit *k = *state;
    weir *a = operator_open(k, 0);
    weir *b = operator_open(k, 0);
    const weir_once *run = NULL, *other = NULL;
    OK(weir_once_begin(a, WEIR_STR("2024-03"), NULL, &run, &k->err));
    assert_int_equal(run->state, WEIR_ONCE_RUNNING);
    KIT_STR(run->key, "2024-03");
    IS(weir_once_begin(b, WEIR_STR("2024-03"), NULL, &other, &k->err), WEIR_EINFLIGHT);
    IS(weir_once_forget(b, WEIR_STR("2024-03"), &k->err), WEIR_EINFLIGHT);
    assert_null(other);
    OK(weir_once_extend(a, run, 60 * 1000 * 1000, &k->err));
    OK(weir_once_finish(a, run, 1, WEIR_STR("no paper"), &k->err)); /* failed: may be tried again */
    weir_once_free(run);

    OK(weir_once_begin(b, WEIR_STR("2024-03"), NULL, &run, &k->err));
    assert_int_equal(run->state, WEIR_ONCE_RUNNING);
    OK(weir_once_finish(b, run, 0, WEIR_STR("12 invoices\n"), &k->err));
    OK(weir_once_finish(b, run, 0, WEIR_STR("12 invoices\n"), &k->err)); /* changes nothing */
    OK(weir_once_begin(a, WEIR_STR("2024-03"), NULL, &other, &k->err));
    assert_int_equal(other->state, WEIR_ONCE_DONE);
    assert_int_equal(other->exit_status, 0);
    assert_true(other->ended_us > 0);
    KIT_STR(other->output, "12 invoices\n");
    IS(weir_once_finish(a, other, 0, WEIR_STR(""), &k->err), WEIR_EMISUSE);
    weir_once_free(run);
    weir_once_free(other);

    OK(weir_once_forget(a, WEIR_STR("2024-03"), &k->err));
    IS(weir_once_forget(a, WEIR_STR("2024-03"), &k->err), WEIR_ENOTFOUND);
    OK(weir_once_begin(a, WEIR_STR("2024-03"), NULL, &run, &k->err));
    assert_int_equal(run->state, WEIR_ONCE_RUNNING);
    char *large = weir__calloc(1, STORE_ONCE_OUTPUT_BYTES_MAX + 1);
    assert_non_null(large);
    weir_str output = { .ptr = large, .len = STORE_ONCE_OUTPUT_BYTES_MAX + 1 };
    IS(weir_once_finish(a, run, 0, output, &k->err), WEIR_EINVAL);
    output.len--;
    OK(weir_once_finish(a, run, 0, output, &k->err));
    weir__free(large);
    weir_once_free(run);
    weir_once_free(NULL);
    weir_close(b);
    weir_close(a);
}

static void keys_of_once_are_listed_with_their_runs(void **state)
{
    kit *k = *state;
    enum { KEYS = 9 };
    weir *w = operator_open(k, 0);
    const weir_once *run = NULL;
    weir_once_list *list = NULL;
    const weir_once *row = NULL;
    OK(weir_onces_open(w, &list, &k->err));
    OK(weir_onces_next(list, &row, &k->err));
    assert_null(row);
    weir_onces_close(list);
    for (int i = 0; i < KEYS; i++) {
        const char *key = kit_text(k, "key-%04d", i);
        OK(weir_once_begin(w, weir__str(key), NULL, &run, &k->err));
        if (i % 3 != 0) { /* the others are running */
            OK(weir_once_finish(w, run, i % 3 == 1 ? 0 : 4, WEIR_STR("out"), &k->err));
        }
        weir_once_free(run);
        /* The next one is newer: two of one microsecond have no order. */
        const int64_t begun_us = weir__clock_boot();
        while (weir__clock_boot() < begun_us + 2) {
        }
    }
    OK(weir_onces_open(w, &list, &k->err));
    for (int i = 0; i < KEYS; i++) {
        OK(weir_onces_next(list, &row, &k->err));
        assert_non_null(row);
        /* 6, 3 and 0 are running; of the others the last one comes first. */
        const int number = i < 3 ? 6 - 3 * i : (KEYS - 1) - (i - 3) - (i - 3) / 2;
        KIT_STR(row->key, kit_text(k, "key-%04d", number));
        assert_int_equal(row->state, number % 3 == 0   ? WEIR_ONCE_RUNNING
                                     : number % 3 == 1 ? WEIR_ONCE_DONE
                                                       : WEIR_ONCE_FAILED);
        assert_int_equal(row->exit_status, number % 3 == 2 ? 4 : 0);
        assert_int_equal(row->ended_us > 0, number % 3 != 0);
        assert_int_equal(row->until_us > 0, number % 3 == 0);
        assert_int_equal(row->output.len, 0);
    }
    OK(weir_onces_next(list, &row, &k->err));
    assert_null(row);
    weir_onces_close(list);
    weir_onces_close(NULL);
    weir_close(w);
}

/* A caller's mistake, and no crash. */
static void a_length_without_a_text_is_refused(void **state)
{
    kit *k = *state;
    const weir_str none = { .ptr = NULL, .len = 5 };
    const weir_str stream = WEIR_STR("s"), name = WEIR_STR("N"), data = WEIR_STR("{}");
    const weir_targets_options filter = { WEIR_TARGETS_OPTIONS_INIT, .match = none };
    const weir_parked_options parked = { WEIR_PARKED_OPTIONS_INIT, .target = none };
    weir *w = operator_open(k, 0);
    weir_appended appended = { .size = sizeof appended };
    const weir_lock *lock = NULL;
    const weir_once *run = NULL;
    weir_parked_list *list = NULL;
    int64_t changed = 0;

    IS(weir_append_one(w, none, WEIR_EXPECT_ANY, 0, name, data, &appended, &k->err), WEIR_EINVAL);
    IS(weir_append_one(w, stream, WEIR_EXPECT_ANY, 0, none, data, &appended, &k->err), WEIR_EINVAL);
    IS(weir_append_one(w, stream, WEIR_EXPECT_ANY, 0, name, none, &appended, &k->err), WEIR_EINVAL);
    IS(weir_lock_take(w, none, NULL, &lock, &k->err), WEIR_EINVAL);
    IS(weir_once_begin(w, none, NULL, &run, &k->err), WEIR_EINVAL);
    IS(weir_targets_pause(w, &filter, &changed, &k->err), WEIR_EINVAL);
    IS(weir_parked_open(w, &parked, &list, &k->err), WEIR_EINVAL);
    weir_close(w);
}

kit_theme kit_public_operate(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(the_short_append_is_the_long_one),
        KIT_TEST(the_result_of_a_replay_has_the_first_time),
        KIT_TEST(targets_are_listed_as_they_are),
        KIT_TEST(verbs_change_what_fits_and_count_it),
        KIT_TEST(verbs_refuse_what_they_do_not_understand),
        KIT_TEST(lanes_are_paused_and_listed),
        KIT_TEST(parked_events_are_listed_retried_and_dropped),
        KIT_TEST(a_lock_has_one_holder_until_it_is_released),
        KIT_TEST(what_is_done_once_is_not_done_again),
        KIT_TEST(keys_of_once_are_listed_with_their_runs),
        KIT_TEST(a_length_without_a_text_is_refused),
    };
    return (kit_theme){ .tests = tests, .count = sizeof tests / sizeof tests[0] };
}
