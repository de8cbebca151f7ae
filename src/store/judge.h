/* judge.h - what is decided about an append, a lease and a reaction by what a store has found: the
 * same for all of them. PostgreSQL decides in SQL, where the rows are locked (append_functions.sql,
 * settle_functions.sql, route_functions.sql, reaction_functions.sql), and has to decide alike.
 */
#ifndef WEIR_STORE_JUDGE_H
#define WEIR_STORE_JUDGE_H

#include "store/store.h"

/* ---- appends ------------------------------------------------------------------------------- */

/* One stream of an append, streams[index]: its last version (WEIR_VERSION_NONE: it has no event),
 * and whether it is closed. ENOTFOUND, ECLOSED, ECONFLICT. *done becomes true when it is to be
 * closed and is already: then that is all there is to do. */
weir_status weir__stream_judge(const store_append *append, size_t index, int64_t version,
                               bool closed, bool *done, weir_error *err);
/* Whether streams[index] may be closed only when everything of it was handled. */
static inline bool weir__close_asks(const store_append *append, size_t index)
{
    return index == 0 &&
           (append->flags & (STORE_APPEND_CLOSE | STORE_APPEND_FORCE)) == STORE_APPEND_CLOSE;
}
/* Whether a remembered fingerprint is that of this append. EKEYREUSED. */
weir_status weir__key_judge(const store_append *append, weir_str fingerprint, weir_error *err);
/* Whether the append may change a reserved key whose owner is `owner` (empty: it is free). ETAKEN.
 * *after: the owner from then on. */
weir_status weir__key_change_judge(const store_append *append, const store_key_change *change,
                                   weir_str owner, weir_str *after, weir_error *err);

/* ---- leases -------------------------------------------------------------------------------- */

/* Whether `held` is the lease that a target with this fence has: somebody holds it, its time over
 * or not, and it was taken on this log. ELOST. */
weir_status weir__fence_judge(const store_fenced *held, int64_t fence, bool leased, int64_t token,
                              weir_error *err);
/* Whether a settle keeps a failure. */
static inline bool weir__settle_fails(const store_settle *settle)
{
    return settle->failure.reaction != 0 || settle->end == STORE_END_BLOCK;
}
/* Whether there is nothing to its target but progress. */
bool weir__settle_is_plain(const store_settle *settle);

/* What happens to a router's lease, of which `r` has the fence and the end (0: nobody has it), of
 * the clock that `now_us` is of. */
typedef enum router_verdict {
    ROUTER_STAYS, /* somebody else has it, or nobody may */
    ROUTER_ENDS,
    ROUTER_GOES_ON, /* with the same fence */
    ROUTER_BEGINS,  /* with the next one   */
} router_verdict;
router_verdict weir__router_judge(const store_reaction *r, int64_t fence, int64_t lease_us,
                                  int64_t now_us);

/* ---- reactions ----------------------------------------------------------------------------- */

/* Where a new reaction begins on a log that ends at `end`. EINVAL. */
weir_status weir__declared_start(const store_reaction_declaration *d, int64_t end, int64_t *since,
                                 weir_error *err);
/* The number of what is declared, of which `number` is the latest under which it is known (0: it
 * is not); above r->current: it is a new definition. */
int64_t weir__declared_number(const store_reaction_declaration *d, const store_reaction *r,
                              int64_t number);

/* Whether a step may be routed. r: name, current, routed and retired of its reaction; NULL: there
 * is none. ECONFLICT. */
weir_status weir__step_judge(const store_route_step *step, const store_reaction *r,
                             weir_error *err);

/* What routing changes of a subscription. */
typedef struct store_routed {
    bool found; /* there is one */
    bool was_reset;
    int64_t at, mark, priority;
} store_routed;

/* Whether a mark says something new. While a reaction is re-read, up to reread_to, everyone but the
 * subscriptions that were reset has had these events. */
bool weir__mark_counts(const store_mark *mark, const store_routed *sub, store_rule rule,
                       int64_t reread_to);
void weir__mark_raise(const store_mark *mark, store_routed *sub);

/* Whether a target that is in lane `has` may be used in lane `wants`. EINVAL. */
weir_status weir__lane_judge(weir_str target, weir_str has, weir_str wants, weir_error *err);

#endif
