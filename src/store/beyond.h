/* beyond.h - positions beyond the log: of a log that lost its end (a failover, tables restored from
 * different times, a damaged file) under targets that were further. See ROUTE in store.h.
 */
#ifndef WEIR_STORE_BEYOND_H
#define WEIR_STORE_BEYOND_H

#include "store/store.h"

enum { STORE_BEYOND_TEXT_BYTES_MAX = 160 };

/* Whether a mark meets a subscription (at, marked) whose position is of a log that lost its
 * end. All that is routed comes once, in the order of the log: so its first event cannot have been
 * handled, and nothing was found past the end of this step. While a reaction is re-read, up to
 * reread_to, that is different. Routing has everything at hand for this, and no event is passed
 * over without being routed; so it costs nothing, and holds also when the log has grown past the
 * position.
 *
 * A target that is blocked because of it stays so until it is reset. To unblock it would let events
 * be passed over, and to skip its next event would park another one than the one in the way. */
bool weir__mark_is_beyond(const store_mark *mark, const store_route_step *step, int64_t reread_to,
                          int64_t at, int64_t marked);
/* The error of a target that was blocked because of it, in `out`. */
weir_str weir__beyond_text(char out[STORE_BEYOND_TEXT_BYTES_MAX], const store_mark *mark,
                           const store_route_step *step, int64_t at, int64_t marked);
/* Whether a target was blocked by ROUTE, at an event that its position has passed although nobody
 * has tried it. Every other block that names a reaction has attempts. */
static inline bool weir__block_is_passed(bool blocked, bool has_reaction, int64_t event,
                                         int64_t attempts)
{
    return blocked && has_reaction && event != 0 && attempts == 0;
}
static inline bool weir__target_is_passed(const store_target *t)
{
    return weir__block_is_passed(t->blocked, t->reaction.len > 0, t->event, t->attempts);
}

#endif
