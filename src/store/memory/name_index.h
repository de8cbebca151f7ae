/* name_index.h - names in bytewise order, for listing them page by page.
 *
 * A B+ tree of the items of a table (table.h). Every append to a new stream adds a name, so it is
 * built for adding: an addition touches a few nodes of 64 names, not one cache line per comparison
 * as a binary tree would. Names are removed only when an addition is undone. Not thread-safe: the
 * owner locks.
 */
#ifndef WEIR_STORE_MEMORY_NAME_INDEX_H
#define WEIR_STORE_MEMORY_NAME_INDEX_H

#include "store/memory/table.h"

/* A zeroed struct is an empty index. */
typedef struct name_index {
    struct name_node *root; /* owned; NULL while nothing was added */
    size_t count;
} name_index;

/* A place in an index; valid until something is added or removed. */
typedef struct name_cursor {
    const struct name_node *leaf; /* borrowed; NULL: at the end */
    size_t at;
} name_cursor;

/* There must be no item with that key. false: out of memory, the index is as it was. */
bool weir__name_index_add(name_index *index, table_item *item);
/* Never fails. */
void weir__name_index_remove(name_index *index, const table_item *item);

/* The place of the first name at or above `key`, or only above it. */
name_cursor weir__name_index_seek(const name_index *index, weir_str key, bool above);
/* The item at a place; NULL: at the end. */
table_item *weir__name_index_item(const name_cursor *cursor);
void weir__name_index_next(name_cursor *cursor);

/* Whether order, separators and count are intact; O(n), for tests and checks. */
bool weir__name_index_is_sound(const name_index *index);
void weir__name_index_free(name_index *index); /* the nodes, not the items */

#endif
