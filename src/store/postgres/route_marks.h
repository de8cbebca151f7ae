/* route_marks.h - the marks of a route as weir.route takes them: one for all events of a
 * subscription.
 *
 * Where every event is a mark of its own (rule WORK), a page of a thousand events mostly has few
 * targets, and all that the database does for a mark it would do for each event. What is put
 * together here means the same as its marks one after the other:
 *
 *   * only marks of one event each, of one reaction and one target, in the order of the log. None
 *     counts up to some position, and all of them do beyond it: if any does, the last one does,
 *     which gives priority, source and value;
 *   * nothing of a target that has marks for two lanes. So the first mark that a lane is wrong for
 *     is the first of what it was put into.
 *
 * Other marks of the same subscription follow in a later round: the database handles the rounds one
 * after the other, and in a round every mark has a subscription of its own.
 */
#ifndef WEIR_STORE_POSTGRES_ROUTE_MARKS_H
#define WEIR_STORE_POSTGRES_ROUTE_MARKS_H

#include "base/memory.h"
#include "store/store.h"

typedef struct pg_route_mark {
    const store_mark *begin, *end; /* the first and the last of the marks that it stands for */
    uint32_t name;                 /* index into names                                        */
    uint32_t round;
} pg_route_mark;

typedef struct pg_route_event {
    uint32_t mark; /* index into marks */
    int64_t event;
} pg_route_event;

typedef struct pg_route_marks {
    weir_str *names; /* of targets, each once, in the order in which they are locked: by bytes */
    size_t names_count;
    pg_route_mark *marks; /* in the order of their first marks                                 */
    size_t marks_count;
    pg_route_event *events; /* of marks for one event each; a mark for a run of them has none  */
    size_t events_count;
} pg_route_marks;

/* *out: in the arena; points into `marks`. false: out of memory. */
bool weir__pg_route_marks(const store_mark *marks, size_t count, weir_arena *arena,
                          pg_route_marks *out);

#endif
