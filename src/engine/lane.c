/* lane.c - see lane.h.
 *
 *   TURN --some leased--> SENT_BACK (one read for each event that was parked and sent back)
 *     ^                       |
 *     |                     FETCH <---+
 *     |                       |       | what the list had no room for
 *     +--- the slots begin ---+-------+
 *
 * INVARIANTS
 *   (1) A slot is ASSIGNED from the moment its target is leased, so that the lease is renewed; the
 *       lane fills its batch and then says that it is ready. Only the lane's leasing task makes an
 *       IDLE slot ASSIGNED.
 *   (2) What was leased gets to a slot, whatever happens after: a batch that could not be filled is
 *       `broken` and given back by its slot.
 *   (3) A slot that is FINISHED is the leasing task's. A turn ends it: it is IDLE, or nobody knows
 *       what became of it and it is RUNNING again, to give its target back. A turn that did not
 *       happen is tried again with all of them.
 *   (4) Room for a fetch is taken before anything is leased, and nobody waits for room while they
 *       hold a lease: targets for which there turns out to be none are given back. See room.h.
 *   (5) Of LANE_LOANS lists at least one is free when something is fetched: the last free one is
 *       not lent, its events are copied. So what slow handlers keep is bounded.
 */
#include "engine/lane.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/batch.h"
#include "engine/slot_private.h"

/* ---- leading and lagging ------------------------------------------------------------------ */

static size_t share_carried(double *carry, double share, size_t most)
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
    split.leading = share_carried(&shares->leading_carry, leading_share * (double)limit, limit);
    const size_t lagging = limit - split.leading;
    split.reserve = share_carried(&shares->reserve_carry, LANE_RESERVE * (double)lagging, lagging);
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

enum { LANE_LOANS = 3 };

typedef enum round_phase { ROUND_TURN, ROUND_SENT_BACK, ROUND_FETCH } round_phase;

typedef struct lane_round {
    round_phase phase;
    lane_shares shares;
    lane_split split; /* of the lease call under way */
    store_known_reaction *known;
    int64_t log_asked; /* before the numbers in it were looked up */
    slot **finished;   /* what this turn settles */
    store_settle **settles;
    size_t finished_count;
    slot **dropped; /* finished too, but lost */
    size_t dropped_count;
    store_lease_list leases;
    slot **slots;       /* slots[i] has leases[i]; NULL: it has begun */
    int64_t room_bytes; /* taken for what is fetched next */
    size_t fits;        /* targets that are leased at once; fewer when room ran out before */
    batch_loan loans[LANE_LOANS];
    batch_loan *loan; /* what is fetched into; NULL: to be chosen */
    bool lent;        /* batches borrow from it */
    store_chunk chunk;
    size_t lease_index, sent_back_index; /* ROUND_SENT_BACK: the next to read */
    bool short_of_room;                  /* some were given back for want of it */
    bool full;                           /* as many were leased as were asked for */
    int64_t wait_us;                     /* mono: the store failed, not before */
    uint64_t number;                     /* of this round */
    int64_t begun_us;                    /* mono: when the last of its slots began */
    int64_t hint_at_us;                  /* mono: hints are not followed before, after vain ones */
    int64_t vain_us;                     /* how long to wait after the next one */
} lane_round;

static bool is_draining(lane *l)
{
    return atomic_load_explicit(&l->draining, memory_order_relaxed);
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

/* There may be work for us: the next slot that becomes free will ask. */
static void ask_later(lane *l)
{
    weir__lock(&l->worker->mu);
    l->crowded = true;
    weir__unlock(&l->worker->mu);
}

/* The slot that gets a lease: marked under the lock, filled outside of it. */
static slot *slot_take(lane *l, const store_leased *leased, int64_t asked_us)
{
    slot *found = NULL;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count && found == NULL; i++) {
        if (l->slots[i].state == SLOT_IDLE) {
            found = &l->slots[i];
            found->state = SLOT_ASSIGNED;
            found->round = l->round->number;
            found->target = leased->target;
            found->fence = leased->fence;
            found->token = leased->token;
            found->extend_until_us = INT64_MAX;
            weir__slot_taken_locked(found, asked_us);
            /* Leased under numbers of definitions that are perhaps somebody else's by now. */
            const bool stale = weir__worker_log_changed_locked(l->worker, l->round->log_asked);
            found->lost = stale;
            found->given_up = stale;
            found->interrupted = stale;
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

/* asked_us: boot, before the leases were asked for. */
static void leases_assign(lane *l, int64_t asked_us)
{
    lane_round *r = l->round;
    const int64_t now_us = weir__task_now(&l->leasing);
    const size_t limit = (size_t)l->config.event_limit;

    for (size_t i = 0; i < r->leases.leases_count; i++) {
        const store_leased *leased = &r->leases.leases[i];
        slot *s = slot_take(l, leased, asked_us);
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

/* Adds what a slot has finished. Of two leases of one target, of which the older was taken away,
 * only the newer is settled: a turn has each target once. */
static void add_finished(lane_round *r, slot *s)
{
    size_t at = 0;

    while (at < r->finished_count && r->finished[at]->target != s->target) {
        at++;
    }
    if (at == r->finished_count) {
        r->finished[r->finished_count++] = s;
    } else if (r->finished[at]->fence > s->fence) {
        r->dropped[r->dropped_count++] = s;
    } else {
        r->dropped[r->dropped_count++] = r->finished[at];
        r->finished[at] = s;
    }
}

/* The slots that are FINISHED, and their settles. One whose renewal was refused is lost. */
static void collect_finished(lane *l)
{
    lane_round *r = l->round;

    r->finished_count = 0;
    r->dropped_count = 0;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < l->slots_count; i++) {
        slot *s = &l->slots[i];
        if (s->state == SLOT_FINISHED && s->lost) {
            r->dropped[r->dropped_count++] = s;
        } else if (s->state == SLOT_FINISHED) {
            add_finished(r, s);
        }
    }
    for (size_t i = 0; i < r->finished_count; i++) {
        r->finished[i]->batch->ending = true;
        r->settles[i] = &r->finished[i]->batch->settle;
    }
    weir__unlock(&l->worker->mu);
    for (size_t i = 0; i < r->dropped_count; i++) {
        weir__slot_lost(r->dropped[i]);
    }
}

/* The turn did not happen: they are as before, and may lose their leases meanwhile. */
static void keep_finished(lane *l)
{
    lane_round *r = l->round;
    weir__lock(&l->worker->mu);
    for (size_t i = 0; i < r->finished_count; i++) {
        r->finished[i]->batch->ending = false;
    }
    weir__unlock(&l->worker->mu);
}

static int64_t turn_failed(lane *l, weir_status status, const weir_error *err)
{
    lane_round *r = l->round;
    if (status != WEIR_EUNKNOWN) {
        keep_finished(l);
    } else {
        for (size_t i = 0; i < r->finished_count; i++) {
            weir__slot_settle_unknown(r->finished[i], err);
        }
    }
    return store_failed(l, err);
}

/* One call: what is finished is settled, and what comes next is leased. */
static weir_status call_store(lane *l, const store_lease_request *request, weir_error *err)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    const int64_t begin_us = weir__task_now(&l->leasing);
    const weir_status status =
        w->store->work->turn(w->store, r->settles, r->finished_count, request, &r->leases, err);

    if (status == WEIR_OK) {
        weir__metric_observe(&w->metrics,
                             r->finished_count == 0 ? METRIC_LEASE_US : METRIC_SETTLE_US,
                             weir__task_now(&l->leasing) - begin_us);
    }
    return status;
}

/* ---- room --------------------------------------------------------------------------------- */

int64_t weir__lane_fetch_room(const lane *l)
{
    return (int64_t)weir__room_fetch_bytes(l->room.room) + l->worker->options.payload_bytes;
}

/* Whether the round has so much, or gets it. */
static bool room_for(lane *l, int64_t bytes)
{
    lane_round *r = l->round;
    if (bytes > r->room_bytes && !weir__room_take(&l->room, bytes - r->room_bytes)) {
        return false;
    }
    r->room_bytes = bytes > r->room_bytes ? bytes : r->room_bytes;
    return true;
}

static void room_give_back(lane *l)
{
    weir__room_correct(&l->room, &l->round->room_bytes, 0);
}

/* So much of what the round has taken is another's now, to be given back with its events. */
static int64_t room_move(lane *l, int64_t bytes)
{
    lane_round *r = l->round;
    if (bytes > r->room_bytes) { /* it is there already: it cannot be refused */
        weir__room_correct(&l->room, &r->room_bytes, bytes);
    }
    r->room_bytes -= bytes;
    return bytes;
}

/* What came is counted where it is: lent, or copied. */
static void room_settle(lane *l)
{
    lane_round *r = l->round;
    if (r->loan != NULL && r->lent) {
        r->loan->room = &l->room;
        r->loan->room_bytes +=
            room_move(l, (int64_t)r->loan->list.arena.bytes_used - r->loan->room_bytes);
    }
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        if (r->slots[i] != NULL) {
            batch *b = r->slots[i]->batch;
            b->room_bytes += room_move(l, weir__batch_bytes(b) - b->room_bytes);
        }
    }
}

/* ---- a turn -------------------------------------------------------------------------------- */

/* No slot is free, and some have only just begun: most handlers are quick. Those that finish before
 * the last of them need not wake us then: we come back by ourselves. */
static bool better_together(lane *l)
{
    const lane_round *r = l->round;
    const bool early =
        weir__task_now(&l->leasing) < r->begun_us + LANE_TOGETHER_US && !is_draining(l);
    size_t idle = 0, running = 0;

    weir__lock(&l->worker->mu);
    for (size_t i = 0; early && i < l->slots_count; i++) {
        const slot *s = &l->slots[i];
        idle += s->state == SLOT_IDLE;
        running += s->round == r->number && (s->state == SLOT_ASSIGNED || s->state == SLOT_RUNNING);
    }
    l->together = idle == 0 ? running : 0;
    l->together_round = r->number;
    weir__unlock(&l->worker->mu);
    return idle == 0 && running > 0;
}

/* Nothing was leased, and nothing was settled: it was for nothing. */
static void leased_in_vain(lane_round *r, int64_t now_us)
{
    if (now_us - r->hint_at_us > LANE_VAIN_PAST_US) {
        r->vain_us = 0;
    }
    r->hint_at_us = now_us + r->vain_us;
    r->vain_us = r->vain_us == 0                     ? LANE_VAIN_US
                 : r->vain_us * 2 < LANE_VAIN_US_MAX ? r->vain_us * 2
                                                     : LANE_VAIN_US_MAX;
}

/* How many targets this turn may lease. Takes the room for fetching their events. */
static size_t lease_limit(lane *l)
{
    const lane_round *r = l->round;
    size_t limit = is_draining(l) ? 0 : free_slots(l) + r->finished_count;

    limit = limit < (size_t)l->config.target_limit ? limit : (size_t)l->config.target_limit;
    limit = limit < r->fits ? limit : r->fits;
    if (limit > 0 && !room_for(l, weir__lane_fetch_room(l))) {
        limit = 0; /* until somebody has given some back */
    }
    return limit;
}

static int64_t lane_turn(lane *l)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    weir_error err = { .size = sizeof err };

    if (better_together(l)) {
        return r->begun_us + LANE_TOGETHER_US;
    }
    /* What is asked from here on, this turn may not see. */
    const bool asked = atomic_exchange(&l->asked, false);
    collect_finished(l);
    if (!asked && r->finished_count == 0 && weir__task_now(&l->leasing) < r->hint_at_us) {
        return r->hint_at_us;
    }
    atomic_store(&l->hinted, false);
    r->log_asked = weir__worker_log_ask(w);
    const size_t known_count = weir__registry_known(w->registry, r->known);
    const size_t limit = known_count == 0 ? 0 : lease_limit(l);
    if (limit == 0 && r->finished_count == 0) {
        ask_later(l);
        return TASK_WAIT;
    }
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
        .known_count = known_count,
        .lost_max = w->options.lost_max,
    };
    const int64_t asked_us = weir__task_boot(&l->leasing);
    const weir_status status = call_store(l, &request, &err);
    if (status != WEIR_OK) {
        r->shares = before;
        room_give_back(l);
        return turn_failed(l, status, &err);
    }
    l->attempt = 0;
    for (size_t i = 0; i < r->finished_count; i++) {
        weir__slot_settled(r->finished[i]);
    }
    r->full = limit > 0 && r->leases.leases_count == limit;
    set_crowded(l);
    if (r->leases.leases_count == 0) {
        r->shares = before; /* nobody had the share: it is still due */
        room_give_back(l);
        if (r->finished_count == 0) {
            leased_in_vain(r, weir__task_now(&l->leasing));
        }
        return TASK_WAIT;
    }
    r->vain_us = 0;
    r->hint_at_us = 0;
    r->number++;
    if (!r->short_of_room && r->fits < l->slots_count) {
        r->fits *= 2;
    }
    r->short_of_room = false;
    leases_assign(l, asked_us);
    r->phase = ROUND_SENT_BACK;
    r->lease_index = 0;
    r->sent_back_index = 0;
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

/* Something is to be fetched for it, and the list was full before its turn came. */
static bool is_empty_handed(const batch *b)
{
    if (b->broken || b->events_count > 0) {
        return false;
    }
    for (size_t i = 0; i < b->parts_count; i++) {
        if (b->parts[i].behind && !b->parts[i].exhausted) {
            return true;
        }
    }
    return false;
}

/* ---- slots begin --------------------------------------------------------------------------- */

/* The slots whose batches are as full as they will be begin. */
static int64_t slots_begin(lane *l)
{
    lane_round *r = l->round;
    size_t left = 0;

    for (size_t i = 0; i < r->leases.leases_count; i++) {
        slot *s = r->slots[i];
        if (s == NULL) {
            continue;
        }
        if (is_empty_handed(s->batch)) {
            left++;
            continue;
        }
        if (!s->batch->broken) {
            weir__batch_sort(s->batch);
            l->leading_share =
                weir__lane_seen(&r->shares, is_leading(r, i), s->batch->events_count);
        }
        weir__lock(&l->worker->mu);
        s->batch->ready = true;
        weir__unlock(&l->worker->mu);
        weir__task_wake(&s->task);
        r->slots[i] = NULL;
    }
    if (r->loan != NULL) {
        weir__loan_drop(r->loan);
        r->loan = NULL;
    }
    room_give_back(l);
    if (left > 0) {
        return TASK_NOW;
    }
    r->phase = ROUND_TURN;
    r->begun_us = weir__task_now(&l->leasing);
    /* A wake-up in the middle of the round will not be repeated. */
    return atomic_load(&l->asked) || atomic_load(&l->hinted) || (r->full && free_slots(l) > 0)
               ? TASK_NOW
               : TASK_WAIT;
}

static int64_t begin_broken(lane *l)
{
    for (size_t i = 0; i < l->round->leases.leases_count; i++) {
        if (l->round->slots[i] != NULL) {
            l->round->slots[i]->batch->broken = true;
        }
    }
    return slots_begin(l);
}

/* There is no room for the others. They are given back, for workers that have some. */
static int64_t begin_fed(lane *l)
{
    lane_round *r = l->round;
    size_t fed = 0;
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        const bool hungry = r->slots[i] != NULL && r->slots[i]->batch->events_count == 0;
        if (hungry) {
            r->slots[i]->batch->broken = true;
        }
        fed += !hungry;
    }
    r->fits = fed == 0 ? 1 : fed;
    r->short_of_room = true;
    return slots_begin(l);
}

/* ---- fetching ----------------------------------------------------------------------------- */

/* One item for each part that is behind, of all batches. */
static size_t fetch_items(lane *l, store_fetch_item *items, batch **owners)
{
    const lane_round *r = l->round;
    size_t count = 0;
    for (size_t i = 0; i < r->leases.leases_count; i++) {
        if (r->slots[i] == NULL) {
            continue;
        }
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
        p->exhausted = r->loan->list.exhausted[i];
    }
    for (size_t i = 0; i < r->loan->list.events_count; i++) {
        const store_fetched *f = &r->loan->list.events[i];
        batch *b = owners[f->item_index];
        if (r->lent) {
            weir__batch_borrow(b, r->loan);
        }
        if (!b->broken) {
            b->broken = weir__batch_add(b, items[f->item_index].reaction, f->event, !r->lent, NULL,
                                        NULL) != WEIR_OK;
        }
    }
}

static void choose_loan(lane_round *r)
{
    size_t free_count = 0;

    if (r->loan != NULL) {
        return; /* the fetch before failed */
    }
    for (size_t i = 0; i < LANE_LOANS; i++) {
        if (!atomic_load_explicit(&r->loans[i].busy, memory_order_acquire)) {
            r->loan = &r->loans[i];
            free_count++;
        }
    }
    WEIR_ASSERT(r->loan != NULL);
    r->lent = free_count > 1;
    atomic_store_explicit(&r->loan->holders, 1, memory_order_relaxed);
    atomic_store_explicit(&r->loan->busy, true, memory_order_relaxed);
}

static int64_t lane_fetch(lane *l)
{
    worker *w = l->worker;
    lane_round *r = l->round;
    weir_status status = WEIR_OK;
    weir_error err;

    const size_t count = fetch_items(l, NULL, NULL);
    if (count == 0) {
        return slots_begin(l);
    }
    if (!room_for(l, weir__lane_fetch_room(l))) {
        return begin_fed(l);
    }
    store_fetch_item *items = weir__calloc(count, sizeof *items);
    batch **owners = weir__calloc(count, sizeof(batch *));
    if (items == NULL || owners == NULL) {
        status = weir__fail(&err, WEIR_ENOMEM, "could not allocate a fetch");
    } else {
        (void)fetch_items(l, items, owners);
        choose_loan(r);
        r->loan->list.bytes_soft = weir__room_fetch_bytes(l->room.room);
        status = w->store->work->fetch(w->store, items, count, &r->loan->list, &err);
    }
    int64_t again_us = TASK_NOW;
    if (status == WEIR_OK) {
        l->attempt = 0;
        add_fetched(r, items, owners, count);
        room_settle(l);
        again_us = slots_begin(l);
    } else {
        again_us = store_failed(l, &err);
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
    if (back == NULL || !room_for(l, w->options.payload_bytes)) {
        r->phase = ROUND_FETCH;
        return lane_fetch(l);
    }
    const store_log_query query = { .after = back->event - 1, .to = back->event, .limit = 1 };
    const weir_status status = w->store->log->read_log(w->store, &query, &r->chunk, &err);
    if (status != WEIR_OK) {
        return store_failed(l, &err);
    }
    l->attempt = 0;
    if (r->chunk.events_count == 1) {
        b->broken =
            weir__batch_add(b, back->reaction, r->chunk.events, true, back, NULL) != WEIR_OK;
        room_settle(l);
    } else if (!r->chunk.held) {
        weir__batch_add_gone(b, back);
    }
    r->sent_back_index++;
    return TASK_NOW;
}

static int64_t leasing_step(task *t)
{
    lane *l = (lane *)((char *)t - offsetof(lane, leasing));
    lane_round *r = l->round;

    if (r->phase != ROUND_TURN && is_draining(l)) {
        return begin_broken(l);
    }
    if (r->wait_us > weir__task_now(t)) {
        return r->wait_us;
    }
    switch (r->phase) {
    case ROUND_TURN:
        return lane_turn(l);
    case ROUND_SENT_BACK:
        return read_sent_back(l);
    case ROUND_FETCH:
        return lane_fetch(l);
    }
    return TASK_WAIT;
}

/* ---- the lane ----------------------------------------------------------------------------- */

static void lane_told(void *ctx)
{
    weir__lane_ask(ctx);
}

weir_status weir__lane_init(lane *l, worker *w, const lane_config *config, weir_error *err)
{
    weir_status status = WEIR_OK;

    *l = (lane){ .worker = w, .config = *config, .leading_share = 0.5 };
    weir__room_share(&l->room, &w->room, lane_told, l);
    l->leasing = (task){ .step = leasing_step, .name = "leasing", .scheduler = w->scheduler };
    l->renewing = (task){ .step = weir__lane_renew, .name = "renewing", .scheduler = w->scheduler };
    l->round = weir__calloc(1, sizeof *l->round);
    l->slots = weir__calloc((size_t)config->threads, sizeof *l->slots);
    if (l->round != NULL) {
        l->round->fits = (size_t)config->threads;
        l->round->known = weir__calloc(w->registry->reactions_count + 1, sizeof *l->round->known);
        l->round->slots = weir__calloc((size_t)config->threads, sizeof(slot *));
        l->round->finished = weir__calloc((size_t)config->threads, sizeof(slot *));
        l->round->dropped = weir__calloc((size_t)config->threads, sizeof(slot *));
        l->round->settles = weir__calloc((size_t)config->threads, sizeof(store_settle *));
    }
    if (l->round == NULL || l->slots == NULL || l->round->known == NULL ||
        l->round->slots == NULL || l->round->finished == NULL || l->round->dropped == NULL ||
        l->round->settles == NULL) {
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
        weir__free(l->round->finished);
        weir__free(l->round->dropped);
        weir__free(l->round->settles);
        weir__arena_free(&l->round->leases.arena);
        for (size_t i = 0; i < LANE_LOANS; i++) {
            weir__arena_free(&l->round->loans[i].list.arena);
        }
        weir__chunk_free(&l->round->chunk);
        weir__free(l->round);
        l->round = NULL;
    }
}

bool weir__lane_finished_locked(lane *l, const slot *s)
{
    if (l->together == 0 || s->round != l->together_round) {
        return true;
    }
    l->together--;
    return l->together == 0;
}

void weir__lane_ask(lane *l)
{
    atomic_store(&l->asked, true);
    weir__task_wake(&l->leasing);
}

void weir__lane_hint(lane *l)
{
    atomic_store(&l->hinted, true);
    weir__task_wake(&l->leasing);
}

void weir__lane_drain(lane *l)
{
    atomic_store(&l->draining, true);
    weir__lane_ask(l);
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
