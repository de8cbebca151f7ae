/* lane.c - see lane.h.
 *
 *   LEASE --some--> FETCH --> SENT_BACK (one read for each event that was parked and sent back)
 *     ^                            |
 *     +-------- the slots begin ---+
 *
 * INVARIANTS
 *   (1) A slot is ASSIGNED from the moment its target is leased, so that the lease is renewed; the
 *       lane fills its batch and then says that it is ready. Only the lane's leasing task makes an
 *       IDLE slot ASSIGNED.
 *   (2) What was leased gets to a slot, whatever happens after: a batch that could not be filled is
 *       `broken` and given back by its slot.
 */
#include "engine/lane.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/batch.h"
#include "engine/slot.h"

/* ---- leading and lagging ------------------------------------------------------------------ */

static size_t carried(double *carry, double share, size_t most)
{
    *carry += share;
    size_t whole = *carry >= 1.0 ? (size_t)*carry : 0;
    whole = whole < most ? whole : most;
    *carry -= (double)whole;
    return whole;
}

lane_split weir__lane_split(lane_shares *shares, double leading_share, size_t limit)
{
    lane_split split = { 0 };
    split.leading = carried(&shares->leading_carry, leading_share * (double)limit, limit);
    const size_t lagging = limit - split.leading;
    split.reserve = carried(&shares->reserve_carry, LANE_RESERVE * (double)lagging, lagging);
    return split;
}

double weir__lane_seen(lane_shares *shares, bool leading, size_t events)
{
    double *average = leading ? &shares->leading_events : &shares->lagging_events;
    *average = *average == 0.0 ? (double)events : *average + ((double)events - *average) / 8.0;

    const double sum = shares->leading_events + shares->lagging_events;
    if (shares->leading_events == 0.0 || shares->lagging_events == 0.0) {
        return 0.5;
    }
    const double share = shares->leading_events / sum;
    return share < LANE_SHARE_MIN ? LANE_SHARE_MIN
                                  : (share > LANE_SHARE_MAX ? LANE_SHARE_MAX : share);
}

/* ---- a round: leased, fetched, handed out ---------------------------------------------------- */

typedef enum round_phase { ROUND_LEASE, ROUND_FETCH, ROUND_SENT_BACK } round_phase;

typedef struct lane_round {
    round_phase phase;
    lane_shares shares;
    lane_split split; /* of the lease call under way */
    store_known_reaction *known;
    store_lease_list leases;
    slot **slots; /* slots[i] has leases[i] */
    store_fetch_list fetched;
    store_chunk chunk;
    size_t lease_index, sent_back_index; /* ROUND_SENT_BACK: the next to read */
    bool full;                           /* as many were leased as were asked for */
    int64_t wait_us;                     /* mono: the store failed, not before */
} lane_round;

static bool is_draining(lane *l)
{
    weir__lock(&l->worker->mu);
    const bool draining = l->draining;
    weir__unlock(&l->worker->mu);
    return draining;
}

static size_t free_slots(lane *l)
{
    size_t count = 0;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count; i++) {
        count += l->slots[i].state == SLOT_IDLE;
    }
    weir__unlock(&l->worker->mu);
    return count;
}

/* Whoever woke us may have work: the next slot that is free has us ask for it. */
static void ask_later(lane *l)
{
    weir__lock(&l->worker->mu);
    l->crowded = true;
    weir__unlock(&l->worker->mu);
}

/* The slot that gets a lease: marked under the lock, filled outside of it. */
static slot *slot_take(lane *l, const store_leased *leased)
{
    slot *found = NULL;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count && found == NULL; i++) {
        if (l->slots[i].state == SLOT_IDLE) {
            found = &l->slots[i];
            found->state = SLOT_ASSIGNED;
            found->target = leased->target;
            found->fence = leased->fence;
            found->extend_until_us = INT64_MAX;
            found->lost = false;
            found->interrupted = false;
        }
    }
    weir__unlock(&l->worker->mu);
    WEIR_ASSERT(found != NULL);
    return found;
}

static void tell_leased(lane *l, const store_leased *leased)
{
    const log_field fields[] = {
        { .name = "target", .text = leased->name },
        { .name = "fence", .number = leased->fence },
        { .name = "lane", .text = l->config.name },
    };
    weir__worker_log(l->worker, 0, "leased", fields, sizeof fields / sizeof fields[0]);
}

static void assign(lane *l)
{
    lane_round *r = l->round;
    const int64_t now_us = weir__task_now(&l->leasing);
    const size_t limit = (size_t)l->config.event_limit;

    for (size_t i = 0; i < r->leases.leases_count; i++) {
        const store_leased *leased = &r->leases.leases[i];
        slot *s = slot_take(l, leased);
        batch *b = s->batch;
        b->store_us = leased->until_us - l->config.lease_us;
        b->mono_us = now_us;
        b->broken = weir__batch_begin(b, leased, l->worker->registry, limit, NULL) != WEIR_OK;
        r->slots[i] = s;
        tell_leased(l, leased);
    }
    weir__metric_add(&l->worker->metrics, METRIC_LEASED, r->leases.leases_count);
    weir__task_wake(&l->renewing);
}

/* Woken or not, the store is left alone until then. */
static int64_t store_failed(lane *l, const weir_error *err)
{
    l->round->wait_us = weir__worker_store_failed(l->worker, &l->leasing, &l->attempt, err);
    return l->round->wait_us;
}

/* The target came back to the lane that has just let it go: nobody was before it. */
static bool came_back(const lane *l, const store_leased *leased)
{
    for (size_t i = 0; i < l->slots_count; i++) {
        const slot *s = &l->slots[i];
        if (s->last_target == leased->target && s->last_fence + 1 == leased->fence) {
            return true;
        }
    }
    return false;
}

/* Others wait when all that was asked for was given, and to others than those who had it. */
static void set_crowded(lane *l)
{
    const lane_round *r = l->round;
    size_t back = 0;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        back += came_back(l, &r->leases.leases[i]);
    }
    l->crowded = r->full && back < r->leases.leases_count;
    weir__unlock(&l->worker->mu);
}

static int64_t lease(lane *l)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    weir_error err;

    size_t limit = is_draining(l) ? 0 : free_slots(l);
    if (limit == 0) {
        ask_later(l);
        return TASK_WAIT;
    }
    limit = limit < (size_t)l->config.target_limit ? limit : (size_t)l->config.target_limit;
    const lane_shares before = r->shares;
    r->split = weir__lane_split(&r->shares, l->leading_share, limit);
    const store_lease_request request = {
        .lane = l->config.name,
        .holder = weir__str(w->name),
        .lease_us = l->config.lease_us,
        .limit = limit,
        .leading = r->split.leading,
        .reserve = r->split.reserve,
        .known = r->known,
        .known_count = weir__registry_known(w->registry, r->known),
        .lost_max = w->options.lost_max,
    };
    if (request.known_count == 0) {
        return TASK_WAIT;
    }
    const int64_t begin_us = weir__task_now(&l->leasing);
    const weir_status status = w->store->ops->lease(w->store, &request, &r->leases, &err);
    if (status != WEIR_OK) {
        r->shares = before;
        return store_failed(l, &err);
    }
    l->attempt = 0;
    weir__metric_observe(&w->metrics, METRIC_LEASE_US, weir__task_now(&l->leasing) - begin_us);
    r->full = r->leases.leases_count == limit;
    set_crowded(l);
    if (r->leases.leases_count == 0) {
        r->shares = before; /* nobody had the share: it is still due */
        return TASK_WAIT;
    }
    assign(l);
    r->phase = ROUND_FETCH;
    return TASK_NOW;
}

/* Which of the leases were given as leading is not told: the most current ones were. */
static bool is_leading(const lane_round *r, size_t index)
{
    const int64_t mine = r->leases.leases[index].watermark;
    size_t better = 0;
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        const int64_t theirs = r->leases.leases[i].watermark;
        better += theirs > mine || (theirs == mine && i < index);
    }
    return better < r->split.leading;
}

/* All batches are as full as they will be: the slots begin. */
static int64_t begin(lane *l)
{
    lane_round *r = l->round;

    for (size_t i = 0; i < r->leases.leases_count; i++) {
        batch *b = r->slots[i]->batch;
        if (!b->broken) {
            weir__batch_sort(b);
            l->leading_share = weir__lane_seen(&r->shares, is_leading(r, i), b->events_count);
        }
    }
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        r->slots[i]->batch->ready = true;
    }
    weir__unlock(&l->worker->mu);
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        weir__task_wake(&r->slots[i]->task);
    }
    r->phase = ROUND_LEASE;
    weir__arena_reset(&r->fetched.arena); /* batches have their own copies */
    return r->full && free_slots(l) > 0 ? TASK_NOW : TASK_WAIT;
}

static int64_t begin_broken(lane *l)
{
    for (size_t i = 0; i < l->round->leases.leases_count; i++) {
        l->round->slots[i]->batch->broken = true;
    }
    return begin(l);
}

/* ---- fetching ----------------------------------------------------------------------------- */

/* One item for each part that is behind, of all batches. */
static size_t fetch_items(lane *l, store_fetch_item *items, batch **owners)
{
    const lane_round *r = l->round;
    size_t count = 0;
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        batch *b = r->slots[i]->batch;
        const int64_t share = weir__batch_share(b, (size_t)l->config.event_limit);
        for (size_t n = 0; n < b->parts_count && !b->broken; n++) {
            const batch_part *p = &b->parts[n];
            if (!p->behind) {
                continue;
            }
            if (items != NULL) {
                owners[count] = b;
                items[count] = (store_fetch_item){ .target = b->target,
                                                   .reaction = p->reaction->known.id,
                                                   .after = p->at,
                                                   .up_to = p->mark,
                                                   .limit = share };
            }
            count++;
        }
    }
    return count;
}

static void add_fetched(const lane_round *r, const store_fetch_item *items, batch *const *owners,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        batch_part *p = weir__batch_part(owners[i], items[i].reaction);
        p->exhausted = r->fetched.exhausted[i];
    }
    for (size_t i = 0; i < r->fetched.events_count; i++) {
        const store_fetched *f = &r->fetched.events[i];
        batch *b = owners[f->item_index];
        if (!b->broken) {
            b->broken = weir__batch_add(b, items[f->item_index].reaction, f->event, true, NULL,
                                        NULL) != WEIR_OK;
        }
    }
}

static int64_t fetch(lane *l)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    weir_status status = WEIR_OK;
    weir_error err;

    r->phase = ROUND_SENT_BACK;
    r->lease_index = 0;
    r->sent_back_index = 0;
    const size_t count = fetch_items(l, NULL, NULL);
    if (count == 0) {
        return TASK_NOW;
    }
    store_fetch_item *items = weir__calloc(count, sizeof *items);
    batch **owners = weir__calloc(count, sizeof(batch *));
    if (items == NULL || owners == NULL) {
        status = weir__fail(&err, WEIR_ENOMEM, "could not allocate a fetch");
    } else {
        (void)fetch_items(l, items, owners);
        status = w->store->ops->fetch(w->store, items, count, &r->fetched, &err);
    }
    int64_t again_us = TASK_NOW;
    if (status == WEIR_OK) {
        l->attempt = 0;
        add_fetched(r, items, owners, count);
    } else {
        again_us = store_failed(l, &err);
        r->phase = ROUND_FETCH;
        if (status == WEIR_ENOTFOUND) { /* trying again does not help */
            (void)begin_broken(l);
        }
    }
    weir__free(items);
    weir__free(owners);
    return again_us;
}

/* The next event that was sent back and has room in its batch. */
static const store_sent_back *next_sent_back(const lane *l, batch **out)
{
    lane_round *r = l->round;
    for (; r->lease_index < r->leases.leases_count; r->lease_index++, r->sent_back_index = 0) {
        const store_leased *leased = &r->leases.leases[r->lease_index];
        batch *b = r->slots[r->lease_index]->batch;
        while (!b->broken && r->sent_back_index < leased->sent_back_count &&
               r->sent_back_index < (size_t)l->config.event_limit) {
            const store_sent_back *found = &leased->sent_back[r->sent_back_index];
            if (weir__batch_part(b, found->reaction) != NULL) {
                *out = b;
                return found;
            }
            r->sent_back_index++;
        }
    }
    return NULL;
}

static int64_t read_sent_back(lane *l)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    batch *b = NULL;
    weir_error err;

    const store_sent_back *back = next_sent_back(l, &b);
    if (back == NULL) {
        return begin(l);
    }
    const store_log_query query = { .after = back->event - 1, .to = back->event, .limit = 1 };
    const weir_status status = w->store->ops->read_log(w->store, &query, &r->chunk, &err);
    if (status != WEIR_OK) {
        return store_failed(l, &err);
    }
    l->attempt = 0;
    if (r->chunk.events_count == 1) {
        b->broken =
            weir__batch_add(b, back->reaction, r->chunk.events, true, back, NULL) != WEIR_OK;
    }
    r->sent_back_index++;
    return TASK_NOW;
}

static int64_t leasing_step(task *t)
{
    lane *l = (lane *)((char *)t - offsetof(lane, leasing));
    lane_round *r = l->round;

    if (r->phase != ROUND_LEASE && is_draining(l)) {
        return begin_broken(l);
    }
    if (r->wait_us > weir__task_now(t)) {
        return r->wait_us;
    }
    switch (r->phase) {
    case ROUND_LEASE:
        return lease(l);
    case ROUND_FETCH:
        return fetch(l);
    case ROUND_SENT_BACK:
        return read_sent_back(l);
    }
    return TASK_WAIT;
}

/* ---- renewing ----------------------------------------------------------------------------- */

/* What is held and not past its deadline. *held: what is held at all. */
static size_t renewable(lane *l, store_fenced *items, slot **slots, size_t *held)
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
            items[count++] = (store_fenced){ .target = s->target, .fence = s->fence };
        }
    }
    weir__unlock(&l->worker->mu);
    return count;
}

/* The lease is another's. A slot that has ended it meanwhile did not lose it. */
static void lose(lane *l, slot *s, const store_fenced *item)
{
    worker *w = l->worker;
    char name[STORE_NAME_BYTES_MAX] = "";
    size_t name_len = 0;
    bool lost = false;

    weir__lock(&w->mu);
    if (s->state != SLOT_IDLE && s->target == item->target && s->fence == item->fence &&
        !s->batch->ending && !s->lost) {
        s->lost = true;
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
        weir__worker_log(w, 2, "lost", fields, sizeof fields / sizeof fields[0]);
        weir__task_wake(&s->task);
    }
}

/* One call for all of them. When to do it again. */
static int64_t extend(lane *l, store_fenced *items, slot *const *slots, size_t count)
{
    weir_store *store = l->worker->store;
    const int64_t again_us = weir__task_now(&l->renewing) + l->config.lease_us / 3;
    weir_error err;

    if (store->ops->extend(store, l->config.lease_us, items, count, &err) != WEIR_OK) {
        const int64_t backoff_us =
            weir__worker_store_failed(l->worker, &l->renewing, &l->renew_attempt, &err);
        return backoff_us < again_us ? backoff_us : again_us;
    }
    l->renew_attempt = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].status != WEIR_OK) {
            lose(l, slots[i], &items[i]);
        }
    }
    return again_us;
}

static int64_t renewing_step(task *t)
{
    lane *l = (lane *)((char *)t - offsetof(lane, renewing));
    const int64_t now_us = weir__task_now(t);
    store_fenced *items = weir__calloc(l->slots_count, sizeof *items);
    slot **slots = weir__calloc(l->slots_count, sizeof(slot *));
    int64_t again_us = now_us + l->config.lease_us / 3;
    size_t held = 1;

    if (items != NULL && slots != NULL) {
        const size_t count = renewable(l, items, slots, &held);
        if (held > 0 && l->renew_us > now_us) {
            again_us = l->renew_us; /* woken by a lease: not due */
        } else if (count > 0 && l->renew_us > 0) {
            again_us = extend(l, items, slots, count);
        }
    }
    /* Nothing is held: the next lease wakes us, and is renewed a third of its time later. */
    l->renew_us = held == 0 ? 0 : again_us;
    weir__free(items);
    weir__free(slots);
    return held == 0 ? TASK_WAIT : again_us;
}

/* ---- the lane ----------------------------------------------------------------------------- */

weir_status weir__lane_init(lane *l, worker *w, const lane_config *config, weir_error *err)
{
    weir_status status = WEIR_OK;

    *l = (lane){ .worker = w, .config = *config, .leading_share = 0.5 };
    l->leasing = (task){ .step = leasing_step, .name = "leasing", .scheduler = w->scheduler };
    l->renewing = (task){ .step = renewing_step, .name = "renewing", .scheduler = w->scheduler };
    l->round = weir__calloc(1, sizeof *l->round);
    l->slots = weir__calloc((size_t)config->threads, sizeof *l->slots);
    if (l->round != NULL) {
        l->round->known = weir__calloc(w->registry->reactions_count + 1, sizeof *l->round->known);
        l->round->slots = weir__calloc((size_t)config->threads, sizeof(slot *));
    }
    if (l->round == NULL || l->slots == NULL || l->round->known == NULL ||
        l->round->slots == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a lane");
    }
    for (; status == WEIR_OK && l->slots_count < (size_t)config->threads; l->slots_count++) {
        status = weir__slot_init(&l->slots[l->slots_count], l, l->slots_count, err);
    }
    if (status != WEIR_OK) {
        weir__lane_free(l);
    }
    return status;
}

void weir__lane_free(lane *l)
{
    for (size_t i = 0; i < l->slots_count; i++) {
        weir__slot_free(&l->slots[i]);
    }
    weir__free(l->slots);
    l->slots = NULL;
    l->slots_count = 0;
    if (l->round != NULL) {
        weir__free(l->round->known);
        weir__free(l->round->slots);
        weir__arena_free(&l->round->leases.arena);
        weir__arena_free(&l->round->fetched.arena);
        weir__chunk_free(&l->round->chunk);
        weir__free(l->round);
        l->round = NULL;
    }
}

void weir__lane_drain(lane *l)
{
    weir__lock(&l->worker->mu);
    l->draining = true;
    weir__unlock(&l->worker->mu);
    weir__task_wake(&l->leasing);
    for (size_t i = 0; i < l->slots_count; i++) {
        weir__task_wake(&l->slots[i].task);
    }
}

bool weir__lane_idle(lane *l)
{
    bool idle = true;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count; i++) {
        idle = idle && l->slots[i].state == SLOT_IDLE;
    }
    weir__unlock(&l->worker->mu);
    return idle;
}
