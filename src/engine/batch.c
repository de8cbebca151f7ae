/* batch.c - see batch.h.
 *
 * INVARIANTS
 *   (1) first <= next <= events_count; events before `first` are settled or were passed over
 *       because their part is held.
 *   (2) A part's events that are DONE or PARKED stand before its first that is not: a held part
 *       runs nothing more. So the last of them is where `at` may go.
 */
#include "engine/batch.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"

#include <stdlib.h>

enum { BATCH_KEPT_BYTES_MAX = 256 * 1024 }; /* of an arena's memory, between two batches */

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate a batch");
}

static int compare_parts(const void *a, const void *b)
{
    const int64_t left = ((const batch_part *)a)->reaction->known.id;
    const int64_t right = ((const batch_part *)b)->reaction->known.id;
    return (left > right) - (left < right);
}

batch_part *weir__batch_part(batch *b, int64_t reaction_id)
{
    for (size_t i = 0; i < b->parts_count; i++) {
        if (b->parts[i].reaction->known.id == reaction_id) {
            return &b->parts[i];
        }
    }
    return NULL;
}

static void part_add(batch *b, registry *reactions, int64_t id,
                     const store_leased_subscription *sub)
{
    reaction *q = weir__registry_find(reactions, id);
    if (q == NULL || weir__batch_part(b, id) != NULL) {
        return;
    }
    batch_part *p = &b->parts[b->parts_count++];
    *p = (batch_part){ .reaction = q };
    if (sub != NULL) {
        p->at = sub->at;
        p->mark = sub->mark;
        p->retries = sub->retries;
        p->behind = true;
    }
}

/* What was small is kept for the next batch. */
static void arena_forget(weir_arena *arena)
{
    if (arena->bytes_used > BATCH_KEPT_BYTES_MAX) {
        weir__arena_free(arena);
    } else {
        weir__arena_reset(arena);
    }
}

weir_status weir__batch_begin(batch *b, const store_leased *leased, registry *reactions,
                              size_t event_limit, weir_error *err)
{
    const size_t parts = leased->subscriptions_count + leased->sent_back_count;

    weir__arena_reset(&b->lease_arena);
    b->target = leased->target;
    b->fence = leased->fence;
    b->token = leased->token;
    b->parts_count = 0;
    b->rounds = 1;
    b->phase = PHASE_RUN;
    b->wait_us = 0;
    b->attempt = 0;
    b->broken = false;
    b->name = (weir_str){
        .ptr = weir__arena_copy(&b->lease_arena, leased->name.ptr, leased->name.len),
        .len = leased->name.len,
    };
    b->parts = weir__arena_alloc(&b->lease_arena, (parts + 1) * sizeof *b->parts);
    if (b->name.ptr == NULL || b->parts == NULL) {
        b->name = weir__str("");
        return no_memory(err);
    }
    for (size_t i = 0; i < leased->subscriptions_count; i++) {
        part_add(b, reactions, leased->subscriptions[i].reaction, &leased->subscriptions[i]);
    }
    for (size_t i = 0; i < leased->sent_back_count; i++) {
        part_add(b, reactions, leased->sent_back[i].reaction, NULL);
    }
    qsort(b->parts, b->parts_count, sizeof *b->parts, compare_parts);
    return weir__batch_clear(b, event_limit, leased->sent_back_count, err);
}

weir_status weir__batch_clear(batch *b, size_t event_limit, size_t more, weir_error *err)
{
    const size_t capacity = event_limit + b->parts_count + more;

    weir__batch_give_back(b);
    arena_forget(&b->arena);
    b->events_count = 0;
    b->events_capacity = 0;
    b->copy_bytes = 0;
    b->first = 0;
    b->next = 0;
    b->project = false;
    b->holds_count = 0;
    b->gone_count = 0;
    b->now_us = 0;
    b->single = false;
    b->stopped = false;
    b->reruns = 0;
    b->io_errors = 0;
    b->events = weir__arena_alloc(&b->arena, (capacity + 1) * sizeof *b->events);
    b->holds = weir__arena_alloc(&b->arena, (b->parts_count + 1) * sizeof *b->holds);
    b->gone = weir__arena_alloc(&b->arena, (more + 1) * sizeof *b->gone);
    if (b->events == NULL || b->holds == NULL || b->gone == NULL) {
        return no_memory(err);
    }
    b->events_capacity = capacity;
    return WEIR_OK;
}

void weir__batch_free(batch *b)
{
    weir__batch_give_back(b);
    weir__arena_free(&b->lease_arena);
    weir__arena_free(&b->arena);
    weir__arena_free(&b->fetched.arena);
    *b = (batch){ 0 };
}

int64_t weir__batch_share(const batch *b, size_t event_limit)
{
    size_t behind = 0;
    for (size_t i = 0; i < b->parts_count; i++) {
        behind += b->parts[i].behind && !b->parts[i].exhausted;
    }
    const size_t share = behind == 0 ? event_limit : event_limit / behind;
    return share == 0 ? 1 : (int64_t)share;
}

static const weir_event *copy_event(weir_arena *arena, const weir_event *in)
{
    weir_event *out = weir__arena_alloc(arena, sizeof *out);
    if (out == NULL) {
        return NULL;
    }
    *out = *in;
    weir_str *const texts[] = { &out->stream, &out->name, &out->data, &out->meta };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i]->len > 0) {
            texts[i]->ptr = weir__arena_copy(arena, texts[i]->ptr, texts[i]->len);
            if (texts[i]->ptr == NULL) {
                return NULL;
            }
        }
    }
    return out;
}

weir_status weir__batch_add(batch *b, int64_t reaction_id, const weir_event *event, bool copy,
                            const store_sent_back *parked, weir_error *err)
{
    const batch_part *part = weir__batch_part(b, reaction_id);
    const weir_event *kept = copy ? copy_event(&b->arena, event) : event;

    WEIR_ASSERT(part != NULL);
    WEIR_ASSERT(b->events_count < b->events_capacity);
    if (kept == NULL) {
        return no_memory(err);
    }
    const reaction_mode mode = part->reaction->mode;
    const size_t bytes = event->data.len + event->meta.len;
    if (mode != REACTION_HANDLE && mode != REACTION_PROJECT && bytes > b->copy_bytes) {
        b->copy_bytes = bytes;
    }
    b->events[b->events_count++] = (batch_event){
        .event = kept,
        .part_index = (size_t)(part - b->parts),
        .parked = parked == NULL ? 0 : parked->parked,
        .attempts = parked == NULL ? 0 : parked->attempts,
    };
    return WEIR_OK;
}

void weir__batch_add_gone(batch *b, const store_sent_back *parked)
{
    b->gone[b->gone_count++] = *parked;
}

static int compare_events(const void *a, const void *b)
{
    const batch_event *left = a, *right = b;
    const int sent_back = (right->parked != 0) - (left->parked != 0);
    const int64_t l = left->event->id, r = right->event->id;
    if (sent_back != 0 || l != r) {
        return sent_back != 0 ? sent_back : (l > r) - (l < r);
    }
    return (left->part_index > right->part_index) - (left->part_index < right->part_index);
}

void weir__loan_drop(batch_loan *loan)
{
    /* What the others did with the events happened before they are freed. */
    if (atomic_fetch_sub_explicit(&loan->holders, 1, memory_order_acq_rel) == 1) {
        arena_forget(&loan->list.arena);
        if (loan->room != NULL) {
            weir__room_correct(loan->room, &loan->room_bytes, 0);
        }
        atomic_store_explicit(&loan->busy, false, memory_order_release);
    }
}

int64_t weir__batch_bytes(const batch *b)
{
    return (int64_t)(b->arena.bytes_used + b->fetched.arena.bytes_used + b->copy_bytes);
}

void weir__batch_forget(batch *b)
{
    b->events_count = 0;
    b->copy_bytes = 0;
    weir__batch_give_back(b);
    arena_forget(&b->arena);
    arena_forget(&b->fetched.arena);
}

void weir__batch_borrow(batch *b, batch_loan *loan)
{
    if (b->loan != loan) {
        WEIR_ASSERT(b->loan == NULL);
        atomic_fetch_add_explicit(&loan->holders, 1, memory_order_relaxed);
        b->loan = loan;
    }
}

void weir__batch_give_back(batch *b)
{
    if (b->loan != NULL) {
        weir__loan_drop(b->loan);
        b->loan = NULL;
    }
}

/* Events of one part, which most batches have, come in order. */
static bool is_sorted(const batch *b)
{
    for (size_t i = 1; i < b->events_count; i++) {
        if (compare_events(&b->events[i - 1], &b->events[i]) > 0) {
            return false;
        }
    }
    return true;
}

void weir__batch_sort(batch *b)
{
    if (is_sorted(b)) {
        return;
    }
    qsort(b->events, b->events_count, sizeof *b->events, compare_events);
}

/* ---- how far it is ------------------------------------------------------------------------ */

static bool was_run(const batch_event *e)
{
    return e->state == EVENT_DONE || e->state == EVENT_PARKED;
}

bool weir__batch_held(const batch *b, size_t part_index)
{
    for (size_t i = 0; i < b->holds_count; i++) {
        if (b->events[b->holds[i].index].part_index == part_index) {
            return true;
        }
    }
    return false;
}

int64_t weir__batch_progress(const batch *b, size_t part_index)
{
    const batch_part *p = &b->parts[part_index];
    int64_t to = p->at;
    bool all = p->behind && p->exhausted && !weir__batch_held(b, part_index);

    for (size_t i = 0; i < b->events_count; i++) {
        const batch_event *e = &b->events[i];
        if (e->part_index != part_index || e->parked != 0) {
            continue;
        }
        if (was_run(e)) {
            to = e->event->id > to ? e->event->id : to;
        } else {
            all = false;
        }
    }
    return all && p->mark > to ? p->mark : to;
}

int64_t weir__batch_attempt(const batch *b, size_t index)
{
    const batch_event *e = &b->events[index];
    const batch_part *p = weir__batch_part_of(b, e);
    if (e->parked != 0) {
        return e->attempts + 1;
    }
    for (size_t i = b->first; i < index; i++) {
        if (b->events[i].part_index == e->part_index && b->events[i].parked == 0) {
            return 1; /* an event before it was handled: the count begins again */
        }
    }
    return p->retries + 1;
}

size_t weir__batch_runnable(const batch *b, size_t from)
{
    while (from < b->events_count && weir__batch_held(b, b->events[from].part_index)) {
        from++;
    }
    return from;
}

size_t weir__batch_segment(const batch *b)
{
    size_t count = 0;
    for (size_t i = b->first; i < b->next; i++) {
        count += was_run(&b->events[i]);
    }
    return count;
}

size_t weir__batch_first_run(const batch *b)
{
    size_t i = b->first;
    while (i < b->next && !was_run(&b->events[i])) {
        i++;
    }
    WEIR_ASSERT(i < b->next);
    return i;
}

void weir__batch_rewind(batch *b, size_t index)
{
    size_t kept = 0;
    WEIR_ASSERT(b->first <= index && index <= b->next);
    for (size_t i = index; i < b->events_count; i++) {
        b->events[i].state = EVENT_WAITING;
    }
    for (size_t i = 0; i < b->holds_count; i++) {
        if (b->holds[i].index < index) {
            b->holds[kept++] = b->holds[i];
        }
    }
    b->holds_count = kept;
    b->next = index;
    b->project = false;
    b->now_us = 0;
    b->stopped = kept > 0 && b->holds[kept - 1].kind == HOLD_BLOCK;
}

void weir__batch_settled(batch *b, batch_hold *charged)
{
    for (size_t i = 0; i < b->parts_count; i++) {
        const int64_t to = weir__batch_progress(b, i);
        if (to > b->parts[i].at) {
            b->parts[i].at = to;
            b->parts[i].retries = 0;
        }
    }
    if (charged != NULL) {
        charged->settled = true;
        weir__batch_part_of(b, &b->events[charged->index])->retries++;
    }
    b->first = b->next;
    b->project = false;
    b->now_us = 0;
    b->reruns = 0;
    b->io_errors = 0;
}

void weir__batch_hold_add(batch *b, batch_hold hold)
{
    WEIR_ASSERT(b->holds_count < b->parts_count);
    WEIR_ASSERT(!weir__batch_held(b, b->events[hold.index].part_index));
    b->events[hold.index].state = EVENT_HELD;
    b->holds[b->holds_count++] = hold;
    b->stopped = b->stopped || hold.kind == HOLD_BLOCK;
}
