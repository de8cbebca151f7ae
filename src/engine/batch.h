/* batch.h - what a slot works on: a leased target, the next events of its subscriptions, and how
 * far they are.
 *
 * A batch has a part for each reaction of the lease. Events run in the order (position, reaction);
 * those that were parked and sent back come first. [first, next) is the segment: events that were
 * run and are not settled. What is known of a part (at, retries) is as of the last settle; what the
 * segment adds to it is in its events' states, so that going back is forgetting the segment.
 */
#ifndef WEIR_ENGINE_BATCH_H
#define WEIR_ENGINE_BATCH_H

#include "engine/reaction.h"
#include "engine/room.h"

typedef enum event_state {
    EVENT_WAITING,
    EVENT_DONE,
    EVENT_PARKED, /* set aside by its reaction's policy               */
    EVENT_HELD,   /* failed or was deferred: its part ends here        */
} event_state;

/* What a lane has fetched for many batches at once, and lends to them: the last who gives it back
 * frees its events. Owned by the lane. */
typedef struct batch_loan {
    store_fetch_list list;
    _Atomic size_t holders; /* batches that borrow from it, and the lane while it hands out */
    _Atomic bool busy;      /* set by the lane, cleared when nothing of it is used any more */
    room_share *room;       /* borrowed: where room_bytes were taken */
    int64_t room_bytes;     /* by its events, while they are lent    */
} batch_loan;

/* One event for one reaction. */
typedef struct batch_event {
    const weir_event *event; /* in the batch's arena, in its `fetched` or in its `loan` */
    size_t part_index;
    int64_t parked;   /* id of the parked event that was sent back; 0: none */
    int64_t attempts; /* of a parked event, so far */
    event_state state;
    weir_str error;  /* PARKED: why; in the arena */
    int64_t attempt; /* PARKED: which it was      */
} batch_event;

typedef struct batch_part {
    reaction *reaction; /* borrowed from the registry */
    int64_t at, mark, retries;
    bool behind;    /* has a subscription in the lease; otherwise only sent-back events */
    bool exhausted; /* nothing is left up to mark beyond the events of this batch */
} batch_part;

typedef enum hold_kind {
    HOLD_POSTPONE, /* the handler wants it later: free of charge */
    HOLD_RETRY,
    HOLD_BLOCK,
} hold_kind;

/* Why a part ended before its events did. */
typedef struct batch_hold {
    hold_kind kind;
    size_t index; /* of the event */
    int64_t attempt;
    int64_t backoff_us; /* RETRY: from now */
    int64_t until_us;   /* POSTPONE: of the store's clock; 0: backoff_us from now */
    weir_str error;     /* in the arena */
    bool settled;       /* charged already */
} batch_hold;

typedef enum batch_phase {
    PHASE_RUN, /* the next event                                      */
    PHASE_NOW, /* asks the store for its time, which the settle needs */
    PHASE_SETTLE,
    PHASE_RELEASE, /* gives the target back                               */
    PHASE_FETCH,   /* kept: the next events                               */
    PHASE_PULL,    /* the event waits to be pulled, or was                */
    PHASE_RENEW,   /* the lease may have ended: it is renewed or lost     */
} batch_phase;

typedef struct batch {
    /* guarded by worker.mu */
    bool ready;  /* the lane has filled it: the slot may begin              */
    bool ending; /* a call that ends the lease is under way, or its outcome is unknown */

    /* the lease; in lease_arena */
    weir_arena lease_arena;
    int64_t target, fence, token;
    weir_str name;
    batch_part *parts; /* by reaction id */
    size_t parts_count;
    int64_t store_us, mono_us; /* the two clocks at the same moment, roughly: when it was leased */
    int64_t rounds;            /* batches in a row, with this one */

    /* the events; in arena */
    weir_arena arena;
    store_fetch_list fetched; /* of a kept target */
    batch_loan *loan;         /* NULL: none; borrowed, until the events are forgotten */
    batch_event *events;
    size_t events_count, events_capacity;
    size_t copy_bytes;  /* of the largest event that is copied to be handed out */
    int64_t room_bytes; /* taken for all of it but the loan; see room.h         */
    size_t first, next;
    bool project;      /* the segment is given to its reaction's project function, in the settle */
    batch_hold *holds; /* at most one per part */
    size_t holds_count;
    store_sent_back *gone; /* sent back, but no longer in the log: done with the next settle */
    size_t gone_count;

    batch_phase phase;
    batch_phase renewed_phase; /* PHASE_RENEW: what comes after it                    */
    int64_t wait_us;           /* mono: nothing is done before                        */
    int64_t now_us;            /* of the store; 0: not asked for                       */
    bool single;               /* every event is settled by itself                    */
    bool stopped;              /* no further event is run                              */
    bool broken;               /* it could not be filled: to be given back            */
    int reruns;                /* of the event at `first`                              */
    int attempt;               /* failures of the store in a row                       */
    int io_errors;             /* of those, EIO with SQL                               */
    struct pulled *pulled;     /* PHASE_PULL; owned by its caller once pulled, by us before */
    store_settle settle;       /* of a slot that is FINISHED; in arena */
} batch;

/* Begins with a lease. reactions: where the parts' reactions are found; one that is not there is
 * left out. Everything is copied. event_limit: of the lane. WEIR_ENOMEM. */
weir_status weir__batch_begin(batch *b, const store_leased *leased, registry *reactions,
                              size_t event_limit, weir_error *err);
/* Forgets the events, keeps the lease. Room for event_limit events and one per part. */
weir_status weir__batch_clear(batch *b, size_t event_limit, size_t more, weir_error *err);
void weir__batch_forget(batch *b); /* its events, and all that they took */
void weir__batch_free(batch *b);   /* zeroed is fine */

/* How many events a part that is behind may fetch. */
int64_t weir__batch_share(const batch *b, size_t event_limit);
/* NULL: not of this lease. */
batch_part *weir__batch_part(batch *b, int64_t reaction_id);
/* copy: the event's memory ends before the batch. parked: the row that was sent back, or NULL. */
weir_status weir__batch_add(batch *b, int64_t reaction_id, const weir_event *event, bool copy,
                            const store_sent_back *parked, weir_error *err);
/* An event that was sent back and is no longer in the log. There is room, because it is one of
 * those of the lease. */
void weir__batch_add_gone(batch *b, const store_sent_back *parked);
/* What its events take, but for those of its loan. */
int64_t weir__batch_bytes(const batch *b);
/* The batch has events of this loan, which are not copied. */
void weir__batch_borrow(batch *b, batch_loan *loan);
/* Gives the loan back, if there is one; events that were not copied are gone then. */
void weir__batch_give_back(batch *b);
/* One holder less. */
void weir__loan_drop(batch_loan *loan);
/* In the order in which they run. */
void weir__batch_sort(batch *b);

static inline batch_part *weir__batch_part_of(const batch *b, const batch_event *e)
{
    return &b->parts[e->part_index];
}
/* The part has ended: none of its events is run any more. */
bool weir__batch_held(const batch *b, size_t part_index);
/* Which attempt this event's is. */
int64_t weir__batch_attempt(const batch *b, size_t index);
/* Where a settle of the segment puts `at` of a part; at: it does not move. */
int64_t weir__batch_progress(const batch *b, size_t part_index);
/* The next event to run at or after `from`, or events_count. */
size_t weir__batch_runnable(const batch *b, size_t from);
/* Events of the segment that were run (done or parked). */
size_t weir__batch_segment(const batch *b);
/* The first event of the segment that was run; there is one. */
size_t weir__batch_first_run(const batch *b);
/* Forgets the segment from `index` on: it is run again. What was held before it stays held. */
void weir__batch_rewind(batch *b, size_t index);
/* The segment was settled. charged: the hold whose failure was written, or NULL. */
void weir__batch_settled(batch *b, batch_hold *charged);
/* Ends the part of the event at `index`. */
void weir__batch_hold_add(batch *b, batch_hold hold);

/* The store's time, as far as can be said without asking. */
static inline int64_t weir__batch_store_us(const batch *b, int64_t mono_us)
{
    return b->store_us + (mono_us - b->mono_us);
}

#endif
