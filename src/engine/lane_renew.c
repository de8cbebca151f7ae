/* lane_renew.c - the leases of what runs, or waits to be settled, are renewed at a third of their
 * time, all of a lane in one call.
 *
 * INVARIANTS
 *   (1) Nothing is renewed past the deadline of its handler: a handler that hangs loses the target.
 *   (2) held_until_us of a slot is never later than the end of its lease in the store, if clocks
 *       run equally fast: the store counts from a moment after the call was sent, we from before.
 */
#include "base/str.h"
#include "engine/batch.h"
#include "engine/lane.h"
#include "engine/slot_private.h"

int64_t weir__lane_held_until(const lane *l, int64_t asked_us)
{
    const int64_t lease_us = l->config.lease_us;
    const int64_t part_us = lease_us / LANE_MARGIN_PART;
    return asked_us + lease_us - (part_us < LANE_MARGIN_US_MAX ? part_us : LANE_MARGIN_US_MAX);
}

/* What is held and not past its deadline. *held: what is held at all. */
static size_t slot_renewable(lane *l, store_fenced *items, slot **slots, size_t *held)
{
    const int64_t now_us = weir__task_now(&l->renewing);
    size_t count = 0;

    *held = 0;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count; i++) {
        slot *s = &l->slots[i];
        *held += s->state != SLOT_IDLE;
        if (s->state != SLOT_IDLE && !s->lost && s->extend_until_us > now_us) {
            slots[count] = s;
            items[count++] =
                (store_fenced){ .target = s->target, .fence = s->fence, .token = s->token };
        }
    }
    weir__unlock(&l->worker->mu);
    return count;
}

/* The lease is another's, or of a log that is no more. A slot that has ended it meanwhile did not
 * lose it. */
static void slot_lose(lane *l, slot *s, const store_fenced *item, bool given_up)
{
    worker *w = l->worker;
    char name[STORE_NAME_BYTES_MAX] = "";
    size_t name_len = 0;
    bool lost = false;

    weir__lock(&w->mu);
    if (s->state != SLOT_IDLE && s->target == item->target && s->fence == item->fence &&
        s->token == item->token && !s->batch->ending && !s->lost) {
        s->lost = true;
        s->given_up = given_up;
        s->interrupted = true;
        lost = true;
        if (s->batch->ready) { /* until then it is being filled */
            name_len = s->batch->name.len < sizeof name ? s->batch->name.len : sizeof name;
            memcpy(name, s->batch->name.ptr, name_len);
        }
    }
    weir__unlock(&w->mu);
    if (lost) {
        const log_field fields[] = { { .name = "target", .text = { .ptr = name, .len = name_len } },
                                     { .name = "fence", .number = item->fence } };
        weir__metric_add(&w->metrics, METRIC_LOST, 1);
        weir__metric_add(&w->metrics, METRIC_STALE, 1);
        weir__worker_log(w, 2, "lost", fields, sizeof fields / sizeof fields[0]);
        weir__task_wake(&s->task);
    }
    if (lost && !given_up) {
        weir__poller_ask(&w->poller); /* is it still the same log? */
    }
}

static void slot_renewed(lane *l, slot *const *slots, const store_fenced *items, size_t count,
                         int64_t asked_us)
{
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < count; i++) {
        slot *s = slots[i];
        if (items[i].status == WEIR_OK && s->state != SLOT_IDLE && s->target == items[i].target &&
            s->fence == items[i].fence && s->token == items[i].token) {
            weir__slot_held_locked(s, asked_us);
        }
    }
    weir__unlock(&l->worker->mu);
}

void weir__lane_give_up(lane *l)
{
    for (size_t i = 0; i < l->slots_count; i++) {
        slot *s = &l->slots[i];
        weir__lock(&l->worker->mu);
        const store_fenced item = { .target = s->target, .fence = s->fence, .token = s->token };
        weir__unlock(&l->worker->mu);
        slot_lose(l, s, &item, true);
    }
}

/* One call for all of them. When to do it again. */
static int64_t leases_extend(lane *l, store_fenced *items, slot *const *slots, size_t count)
{
    weir_store *store = l->worker->store;
    const int64_t again_us = weir__task_now(&l->renewing) + l->config.lease_us / 3;
    const int64_t asked_us = weir__task_boot(&l->renewing);
    weir_error err;

    if (store->work->extend(store, l->config.lease_us, items, count, &err) != WEIR_OK) {
        const int64_t backoff_us =
            weir__worker_store_failed(l->worker, &l->renewing, &l->renew_attempt, &err);
        return backoff_us < again_us ? backoff_us : again_us;
    }
    l->renew_attempt = 0;
    slot_renewed(l, slots, items, count, asked_us);
    for (size_t i = 0; i < count; i++) {
        if (items[i].status != WEIR_OK) {
            slot_lose(l, slots[i], &items[i], false);
        }
    }
    return again_us;
}

int64_t weir__lane_renew(task *t)
{
    lane *l = (lane *)((char *)t - offsetof(lane, renewing));
    const int64_t now_us = weir__task_now(t);
    store_fenced *items = weir__calloc(l->slots_count, sizeof *items);
    slot **slots = weir__calloc(l->slots_count, sizeof(slot *));
    int64_t again_us = now_us + l->config.lease_us / 3;
    size_t held = 1;

    if (items != NULL && slots != NULL) {
        const size_t count = slot_renewable(l, items, slots, &held);
        if (held > 0 && l->renew_us > now_us) {
            again_us = l->renew_us; /* woken by a lease: not due */
        } else if (count > 0 && l->renew_us > 0) {
            again_us = leases_extend(l, items, slots, count);
        }
    }
    /* Nothing is held: the next lease wakes us, and is renewed a third of its time later. */
    l->renew_us = held == 0 ? 0 : again_us;
    weir__free(items);
    weir__free(slots);
    return held == 0 ? TASK_WAIT : again_us;
}
