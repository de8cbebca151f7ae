/* table.h - a hash table from names to the things that carry them.
 *
 * Open addressing with linear probing; a slot keeps the hash beside the pointer, so that a probe
 * that does not fit costs no second cache line. Room is made by weir__table_reserve, so that adding
 * never fails: a transaction that has to put an item back always can. Not thread-safe: the owner
 * locks.
 */
#ifndef WEIR_STORE_MEMORY_TABLE_H
#define WEIR_STORE_MEMORY_TABLE_H

#include "weir.h"

#include <stdbool.h>

/* First member of everything that is kept in a table. */
typedef struct table_item {
    uint64_t hash; /* weir__str_hash(key) */
    weir_str key;  /* borrowed from the item itself: immutable while it is in a table */
} table_item;

typedef struct table_slot {
    uint64_t hash;
    table_item *item; /* borrowed; NULL: empty */
} table_slot;

/* A zeroed struct is an empty table. */
typedef struct table {
    table_slot *slots; /* owned; NULL while nothing was reserved */
    size_t capacity;   /* a power of two, or 0 */
    size_t count;
} table;

/* NULL: there is none. */
table_item *weir__table_find(const table *t, uint64_t hash, weir_str key);
/* Makes room for one more item. false: out of memory, the table is as it was. */
bool weir__table_reserve(table *t);
/* There must be room, and no item with that key. */
void weir__table_add(table *t, table_item *item);
void weir__table_remove(table *t, table_item *item);
/* Walks all items in no order: *cursor starts at 0; NULL: that was all. Nothing may be added or
 * removed meanwhile. */
table_item *weir__table_next(const table *t, size_t *cursor);
void weir__table_free(table *t); /* the slots, not the items */

#endif
