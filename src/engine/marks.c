/* marks.c - collecting marks and parks of a run of events.
 *
 * What stays true: of one (reaction, target, lane) there is one mark unless its rule is WORK, and
 * first and last of it are positions of events that were added.
 */
#include "engine/marks.h"

#include "base/str.h"

enum { MARKS_MIN = 32 };

/* Room for one more in an array of the arena; what it held before is left behind there. */
static bool array_room(weir_arena *arena, void **items, size_t item_bytes, size_t count,
                       size_t *capacity)
{
    if (count < *capacity) {
        return true;
    }
    const size_t more = *capacity == 0 ? MARKS_MIN : *capacity * 2;
    void *bigger = weir__arena_alloc(arena, more * item_bytes);
    if (bigger == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(bigger, *items, count * item_bytes);
    }
    *items = bigger;
    *capacity = more;
    return true;
}

/* Where a mark is in the table, or could be. */
static size_t find_place(const mark_list *l, uint32_t reaction_index, weir_str target,
                         weir_str lane)
{
    const uint64_t spread = (uint64_t)reaction_index * UINT64_C(0x9e3779b97f4a7c15);
    size_t place = (size_t)(weir__str_hash(target) ^ spread) & (l->table_size - 1);

    while (l->table[place] != 0) {
        const store_mark *mark = &l->marks[l->table[place] - 1];
        if (mark->reaction_index == reaction_index && weir__str_equal(mark->target, target) &&
            weir__str_equal(mark->lane, lane)) {
            break;
        }
        place = (place + 1) & (l->table_size - 1);
    }
    return place;
}

static bool table_room(mark_list *l)
{
    if (l->marks_count < l->table_size / 2) {
        return true;
    }
    const size_t size = l->table_size == 0 ? (size_t)MARKS_MIN * 2 : l->table_size * 2;
    uint32_t *table = weir__arena_alloc(l->arena, size * sizeof *table);
    if (table == NULL) {
        return false;
    }
    memset(table, 0, size * sizeof *table);
    l->table = table;
    l->table_size = size;
    for (size_t i = 0; i < l->marks_count; i++) {
        const store_mark *mark = &l->marks[i];
        /* Marks of WORK rules are never looked for; if they have the same place, one is enough. */
        l->table[find_place(l, mark->reaction_index, mark->target, mark->lane)] = (uint32_t)i + 1;
    }
    return true;
}

bool weir__marks_add(mark_list *l, uint32_t reaction_index, store_rule rule,
                     const reaction_route *route, int64_t event)
{
    void *marks = l->marks;

    if (!table_room(l) ||
        !array_room(l->arena, &marks, sizeof *l->marks, l->marks_count, &l->marks_capacity)) {
        return false;
    }
    l->marks = marks;
    if (rule != STORE_RULE_WORK) {
        const size_t place = find_place(l, reaction_index, route->target, route->lane);
        if (l->table[place] != 0) {
            store_mark *mark = &l->marks[l->table[place] - 1];
            mark->priority = route->priority;
            mark->source = route->source;
            mark->value = route->value;
            mark->last = event;
            return true;
        }
        l->table[place] = (uint32_t)l->marks_count + 1;
    }
    l->marks[l->marks_count++] = (store_mark){
        .reaction_index = reaction_index,
        .target = route->target,
        .lane = route->lane,
        .priority = route->priority,
        .source = route->source,
        .value = route->value,
        .first = event,
        .last = event,
    };
    return true;
}

bool weir__marks_park(mark_list *l, uint32_t reaction_index, int64_t event, weir_str error)
{
    void *parks = l->parks;
    const char *text = weir__arena_copy(l->arena, error.ptr, error.len);

    if (text == NULL ||
        !array_room(l->arena, &parks, sizeof *l->parks, l->parks_count, &l->parks_capacity)) {
        return false;
    }
    l->parks = parks;
    l->parks[l->parks_count++] = (store_route_park){
        .reaction_index = reaction_index,
        .event = event,
        .error = { .ptr = text, .len = error.len },
    };
    return true;
}
