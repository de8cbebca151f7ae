/* marks.h - what a run of events means for targets: marks, merged per reaction and target, and
 * parks for events whose target could not be found.
 *
 * Events are added in the order of their positions. Everything lives in the arena given; texts are
 * borrowed from who adds them, until the marks were routed.
 */
#ifndef WEIR_ENGINE_MARKS_H
#define WEIR_ENGINE_MARKS_H

#include "engine/reaction.h"

typedef struct mark_list {
    weir_arena *arena; /* borrowed; the only member that is set at first */
    store_mark *marks;
    size_t marks_count, marks_capacity;
    store_route_park *parks;
    size_t parks_count, parks_capacity;
    uint32_t *table; /* index of a mark + 1, by hash; 0: free. A power of two, at most half full */
    size_t table_size;
} mark_list;

/* rule WORK: one mark per event, because each becomes a row. Otherwise a run of events of one
 * reaction for one target in one lane is one mark, with the priority and the source of its last.
 * false: out of memory. */
bool weir__marks_add(mark_list *l, uint32_t reaction_index, store_rule rule,
                     const reaction_route *route, int64_t event);
/* error: copied. */
bool weir__marks_park(mark_list *l, uint32_t reaction_index, int64_t event, weir_str error);

#endif
