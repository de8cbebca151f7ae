/* ordered.h - an ordered set whose nodes live inside the things it orders.
 *
 * A treap: a search tree by the set's own order that is a heap by random weights, which keeps it
 * balanced without bookkeeping. Adding and removing never allocate, so a transaction can always be
 * undone; they cost O(log n) expected steps, and so does seeking. Not thread-safe: the owner locks.
 */
#ifndef WEIR_STORE_MEMORY_ORDERED_H
#define WEIR_STORE_MEMORY_ORDERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of the thing that is ordered. A node is in one set at a time. */
typedef struct ordered_node {
    struct ordered_node *left, *right, *parent; /* borrowed */
    uint64_t weight;
} ordered_node;

/* <0, 0, >0. A total order: 0 only for the node itself. */
typedef int (*ordered_compare_fn)(const ordered_node *a, const ordered_node *b);
/* Whether `node` is at or after the place that `key` stands for: false for the first nodes of the
 * set, true for all the others. */
typedef bool (*ordered_reached_fn)(const void *key, const ordered_node *node);

typedef struct ordered_set {
    ordered_compare_fn compare; /* immutable */
    ordered_node *root;
    size_t count;
    uint64_t random; /* state of the weights' generator */
    uint64_t steps;  /* nodes visited so far: lets a test count what an operation costs */
} ordered_set;

void weir__ordered_init(ordered_set *set, ordered_compare_fn compare);
void weir__ordered_add(ordered_set *set, ordered_node *node);
void weir__ordered_remove(ordered_set *set, ordered_node *node);

/* NULL: there is none. */
ordered_node *weir__ordered_first(ordered_set *set);
ordered_node *weir__ordered_last(ordered_set *set);
ordered_node *weir__ordered_next(ordered_set *set, const ordered_node *node);
ordered_node *weir__ordered_previous(ordered_set *set, const ordered_node *node);
/* The first node for which `reached` holds. */
ordered_node *weir__ordered_seek(ordered_set *set, ordered_reached_fn reached, const void *key);

/* Whether order, heap and links are intact; O(n), for tests and checks. */
bool weir__ordered_is_sound(const ordered_set *set);

/* The thing a node is a member of. */
#define ORDERED_ITEM(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
/* The same for a node that must not be changed. */
#define ORDERED_ITEM_CONST(node, type, member)                                                     \
    ((const type *)(const void *)((const char *)(node)-offsetof(type, member)))

#endif
