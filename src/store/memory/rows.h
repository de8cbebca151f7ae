/* rows.h - sorted arrays of rows that never change, and how a change of them is undone.
 *
 * A row is one block of memory: a struct, and behind it the texts that the struct points to. To
 * change something, copy the struct, change the copy and put it: it takes the place of the row
 * with the same key. What was replaced stays where it is until the changes are kept, so pointers
 * to rows are good until then. Not thread-safe: the owner locks.
 */
#ifndef WEIR_STORE_MEMORY_ROWS_H
#define WEIR_STORE_MEMORY_ROWS_H

#include "base/memory.h"
#include "weir.h"

enum { ROW_TEXTS_MAX = 6, ROW_NUMBERS_MAX = 3 };

/* What the rows of a table are. They are sorted by their key: a text, or none, then numbers. */
typedef struct row_kind {
    size_t bytes; /* of the struct */
    size_t texts_count;
    size_t texts[ROW_TEXTS_MAX]; /* offsets of weir_str */
    bool by_text;                /* the key begins with the first of the texts */
    size_t numbers_count;
    size_t numbers[ROW_NUMBERS_MAX]; /* offsets of int64_t: the rest of the key */
    bool shared;                     /* the rows are those of another table */
    void (*end)(void *row);          /* frees what else the struct owns; NULL: nothing */
} row_kind;

typedef struct row_table {
    const row_kind *kind;
    void **rows; /* owned, each too unless the kind is shared */
    size_t count, capacity;
} row_table;

/* One row that took the place of another; NULL: there was none, or there is none now. */
typedef struct row_change {
    row_table *table;
    void *old, *now;
} row_change;

/* What has to be undone, in the order in which it was done. Zeroed is empty. */
typedef struct row_changes {
    row_change *list; /* owned */
    size_t count, capacity;
} row_changes;

/* A key is a struct of the table's kind of which only the key is filled in. */

/* The index of the first row that is not before the key. */
size_t weir__rows_seek(const row_table *t, const void *key);
/* NULL: there is none. */
const void *weir__rows_find(const row_table *t, const void *key);
/* A copy of `row` becomes the row with its key. false: out of memory, nothing has changed. */
bool weir__rows_put(row_changes *c, row_table *t, const void *row);
/* Lists a row of another table in a shared one. false: out of memory, nothing has changed. */
bool weir__rows_share(row_changes *c, row_table *t, void *row);
/* Removes the row with that key, which is there. false: out of memory, nothing has changed. */
bool weir__rows_remove(row_changes *c, row_table *t, const void *key);
/* *out becomes a copy of the struct with copies of its texts in the arena. false: out of memory. */
bool weir__row_copy(const row_kind *kind, const void *row, weir_arena *arena, void *out);

/* Undoes all but the first `count` changes. Never fails. */
void weir__changes_undo(row_changes *c, size_t count);
/* All changes stay: what they replaced is freed. */
void weir__changes_keep(row_changes *c);

/* <0, 0, >0: the keys of two rows. */
int weir__row_compare(const row_kind *kind, const void *a, const void *b);
void weir__rows_free(row_table *t);

#endif
