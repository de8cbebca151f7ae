/* lane.h - a lane of a worker: leases targets for its free slots, renews the leases of those that
 * run, and sleeps well.
 *
 * Tasks: `leasing` takes turns: one call settles every batch that is finished and leases for as
 * many slots as are free then, another one fetches for all of them, and the slots begin.
 * `renewing` extends what runs, at a third of the lease.
 *
 * Settling and leasing in one transaction is what makes it fast: a target costs one commit for each
 * of its batches, or less when several finish together, and who is served next is decided anew each
 * time. Nobody waits for another's handler, but for a moment (LANE_TOGETHER_US): a turn takes what
 * is finished when it begins.
 */
#ifndef WEIR_ENGINE_LANE_H
#define WEIR_ENGINE_LANE_H

#include "engine/worker_private.h"

#define LANE_SHARE_MIN 0.2
#define LANE_SHARE_MAX 0.8
#define LANE_RESERVE   0.25 /* of the lagging slots: those ignore priority */

/* While no slot is free, those that began with the last turn are waited for so long after it, so
 * that the next one settles them all. */
#define LANE_TOGETHER_US INT64_C(1000)

/* A lease is not relied upon in its last sixth, at most one second: time passes between a look at
 * the clock and what is done after it, and clocks do not all run at the same speed. */
#define LANE_MARGIN_PART   6
#define LANE_MARGIN_US_MAX INT64_C(1000000)

/* Pause between two leases that found nothing and that only a hint called for; there is none
 * before the first. */
#define LANE_VAIN_US      INT64_C(1000)
#define LANE_VAIN_US_MAX  INT64_C(16000)
#define LANE_VAIN_PAST_US INT64_C(100000)

/* How slots are divided between targets that are current and those that lag. What does not come out
 * even is carried over, so that one slot serves each of them in turn. */
typedef struct lane_shares {
    double leading_carry, reserve_carry;
    double leading_events, lagging_events; /* averages per batch, moving; 0: none seen yet */
} lane_shares;

typedef struct lane_split {
    size_t leading, reserve;
} lane_split;

lane_split weir__lane_split(lane_shares *shares, double leading_share, size_t limit);
/* A batch of so many events was fetched. Gives the new share of the leading: in proportion to how
 * full the batches of either are, within the bounds. */
double weir__lane_seen(lane_shares *shares, bool leading, size_t events);

/* config.name: borrowed from the registry. */
weir_status weir__lane_init(lane *l, worker *w, const lane_config *config, weir_error *err);
void weir__lane_free(lane *l);
/* There is something to settle or to lease: a turn begins after this. Any thread. */
void weir__lane_ask(lane *l);
/* Somebody did something that may have given us work: the same, but not at once when that was in
 * vain lately. Any thread. */
void weir__lane_hint(lane *l);
/* A slot has just become FINISHED: whether the lane has to be asked, or comes back in a moment
 * anyway and waits for others. worker.mu is held. */
bool weir__lane_finished_locked(lane *l, const slot *s);
/* No more leases; what was leased and not started is handed back (uncharged). */
void weir__lane_drain(lane *l);
int64_t weir__lane_renew(task *t); /* the step of `renewing` */
/* The room that one fetch takes: what it asks for, and the event that goes beyond it. */
int64_t weir__lane_fetch_room(const lane *l);
/* Until when a lease may be relied upon that was asked for at asked_us, both of the boot clock. */
int64_t weir__lane_held_until(const lane *l, int64_t asked_us);
/* What its slots hold is lost, and what runs is interrupted: the log is another one. Any thread. */
void weir__lane_give_up(lane *l);
/* Every slot is idle. */
bool weir__lane_idle(lane *l);

#endif
