/* table.c - see table.h.
 *
 * INVARIANTS
 *   (1) At least a quarter of the slots is empty, so every probe ends.
 *   (2) Between the home slot of an item and the slot it is in, no slot is empty. Removing shifts
 *       later items back to keep this; there are no tombstones, and a table never fills up with
 *       them.
 */
#include "store/memory/table.h"

#include "base/assert.h"
#include "base/memory.h"
#include "base/str.h"

enum { TABLE_CAPACITY_MIN = 16 };

table_item *weir__table_find(const table *t, uint64_t hash, weir_str key)
{
    if (t->capacity == 0) {
        return NULL;
    }
    const size_t mask = t->capacity - 1;
    for (size_t i = hash & mask; t->slots[i].item != NULL; i = (i + 1) & mask) {
        if (t->slots[i].hash == hash && weir__str_equal(t->slots[i].item->key, key)) {
            return t->slots[i].item;
        }
    }
    return NULL;
}

static void put(table_slot *slots, size_t mask, table_slot slot)
{
    size_t i = slot.hash & mask;
    while (slots[i].item != NULL) {
        i = (i + 1) & mask;
    }
    slots[i] = slot;
}

bool weir__table_reserve(table *t)
{
    if (t->count + 1 <= t->capacity - t->capacity / 4 && t->capacity > 0) {
        return true;
    }
    size_t capacity = TABLE_CAPACITY_MIN;
    if (t->capacity > 0 && __builtin_mul_overflow(t->capacity, (size_t)2, &capacity)) {
        return false;
    }
    table_slot *slots = weir__calloc(capacity, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i].item != NULL) {
            put(slots, capacity - 1, t->slots[i]);
        }
    }
    weir__free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return true;
}

void weir__table_add(table *t, table_item *item)
{
    WEIR_ASSERT(t->count < t->capacity - t->capacity / 4);
    put(t->slots, t->capacity - 1, (table_slot){ .hash = item->hash, .item = item });
    t->count++;
}

void weir__table_remove(table *t, table_item *item)
{
    const size_t mask = t->capacity - 1;
    size_t hole = item->hash & mask;

    while (t->slots[hole].item != item) {
        WEIR_ASSERT(t->slots[hole].item != NULL);
        hole = (hole + 1) & mask;
    }
    for (size_t i = (hole + 1) & mask; t->slots[i].item != NULL; i = (i + 1) & mask) {
        /* An item may move back into the hole unless its home lies behind the hole. */
        const size_t home = t->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    t->slots[hole] = (table_slot){ 0 };
    t->count--;
}

table_item *weir__table_next(const table *t, size_t *cursor)
{
    while (*cursor < t->capacity) {
        table_item *item = t->slots[(*cursor)++].item;
        if (item != NULL) {
            return item;
        }
    }
    return NULL;
}

void weir__table_free(table *t)
{
    weir__free(t->slots);
    *t = (table){ 0 };
}
