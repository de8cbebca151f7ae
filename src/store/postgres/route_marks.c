/* route_marks.c - putting the marks of a route together (route_marks.h). */
#include "store/postgres/route_marks.h"

#include "base/str.h"

#include <stdlib.h>

/* A mark while it is looked at. */
typedef struct place {
    uint32_t head;  /* index of the first mark of what it goes into, perhaps its own */
    uint32_t name;  /* of its target                                                 */
    uint32_t round; /* of a head                                                     */
    uint32_t mark;  /* of a head: its index in the result                            */
} place;

/* By target, reaction, and place in the route. */
static int compare_marks(const void *left, const void *right)
{
    const store_mark *a = *(const store_mark *const *)left;
    const store_mark *b = *(const store_mark *const *)right;
    const int order = weir__str_compare(a->target, b->target);
    if (order != 0) {
        return order;
    }
    if (a->reaction_index != b->reaction_index) {
        return a->reaction_index < b->reaction_index ? -1 : 1;
    }
    return (a > b) - (a < b);
}

static bool is_one_event(const store_mark *m)
{
    return m->first == m->last;
}

/* Where the marks of a target end, in their sorted order; whether they name one lane. */
static size_t end_of_target(const store_mark *const *sorted, size_t from, size_t count,
                            bool *one_lane)
{
    size_t end = from + 1;
    *one_lane = true;
    for (; end < count && weir__str_equal(sorted[end]->target, sorted[from]->target); end++) {
        *one_lane = *one_lane && weir__str_equal(sorted[end]->lane, sorted[from]->lane);
    }
    return end;
}

/* Finds the heads among the marks of a target. */
static void place_target(const store_mark *marks, const store_mark *const *sorted, size_t count,
                         bool one_lane, uint32_t name, place *places)
{
    for (size_t i = 0; i < count; i++) {
        const store_mark *m = sorted[i];
        const uint32_t index = (uint32_t)(m - marks);
        place *p = &places[index];
        *p = (place){ .head = index, .name = name };
        if (i == 0 || sorted[i - 1]->reaction_index != m->reaction_index) {
            continue;
        }
        const store_mark *before = sorted[i - 1];
        const uint32_t head = places[before - marks].head;
        if (one_lane && is_one_event(before) && is_one_event(m) && before->last <= m->last) {
            p->head = head;
        } else {
            p->round = places[head].round + 1;
        }
    }
}

/* Goes through the marks in their order; an event that is there twice comes once. */
static void marks_collect(const store_mark *marks, size_t count, place *places, pg_route_marks *out)
{
    for (size_t i = 0; i < count; i++) {
        place *head = &places[places[i].head];
        const bool begins = places[i].head == i;
        if (begins) {
            head->mark = (uint32_t)out->marks_count++;
            out->marks[head->mark] =
                (pg_route_mark){ .begin = &marks[i], .name = head->name, .round = head->round };
        }
        pg_route_mark *mark = &out->marks[head->mark];
        if (is_one_event(&marks[i]) && (begins || mark->end->last < marks[i].last)) {
            out->events[out->events_count++] =
                (pg_route_event){ .mark = head->mark, .event = marks[i].last };
        }
        mark->end = &marks[i];
    }
}

bool weir__pg_route_marks(const store_mark *marks, size_t count, weir_arena *arena,
                          pg_route_marks *out)
{
    *out = (pg_route_marks){ 0 };
    if (count == 0) {
        return true;
    }
    const store_mark **sorted = weir__arena_alloc(arena, count * sizeof *sorted);
    place *places = weir__arena_alloc(arena, count * sizeof *places);
    out->names = weir__arena_alloc(arena, count * sizeof *out->names);
    out->marks = weir__arena_alloc(arena, count * sizeof *out->marks);
    out->events = weir__arena_alloc(arena, count * sizeof *out->events);
    if (sorted == NULL || places == NULL || out->names == NULL || out->marks == NULL ||
        out->events == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &marks[i];
    }
    qsort(sorted, count, sizeof *sorted, compare_marks);
    for (size_t from = 0, end = 0; from < count; from = end) {
        bool one_lane;
        end = end_of_target(sorted, from, count, &one_lane);
        place_target(marks, sorted + from, end - from, one_lane, (uint32_t)out->names_count,
                     places);
        out->names[out->names_count++] = sorted[from]->target;
    }
    marks_collect(marks, count, places, out);
    return true;
}
