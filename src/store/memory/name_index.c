/* name_index.c - see name_index.h.
 *
 * INVARIANTS
 *   (1) Entries of a node are ascending. All names below entry i of an inner node are at or above
 *       its key and below the key of entry i + 1; the key of entry 0 is not looked at.
 *   (2) Leaves are linked in order. A leaf may be empty, after a removal: nothing is ever merged,
 *       because removals only undo additions.
 *   (3) Separators are copies, so that they outlive the names they were taken from.
 * A node that is full is split on the way down, so an addition never has to go back up.
 */
#include "store/memory/name_index.h"

#include "base/assert.h"
#include "base/memory.h"
#include "base/str.h"

enum { NODE_ENTRIES_MAX = 64, NODE_HALF = NODE_ENTRIES_MAX / 2 };

typedef struct name_entry {
    weir_str key; /* leaf: the item's; inner: owned */
    union {
        struct name_node *child; /* owned */
        table_item *item;        /* borrowed */
    } to;
} name_entry;

typedef struct name_node {
    bool leaf;
    size_t count;
    struct name_node *next; /* of a leaf: the one after it; borrowed */
    name_entry entries[NODE_ENTRIES_MAX];
} name_node;

/* The first entry from `low` on whose key is at or above `key` (with `above`: above it). */
static size_t position(const name_node *node, size_t low, weir_str key, bool above)
{
    size_t high = node->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = weir__str_compare(node->entries[middle].key, key);
        if (order < 0 || (above && order == 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The entry of an inner node below which `key` belongs. */
static size_t way_down(const name_node *node, weir_str key)
{
    return position(node, 1, key, true) - 1;
}

static name_node *node_open(bool leaf)
{
    name_node *node = weir__malloc(sizeof *node);
    if (node != NULL) {
        node->leaf = leaf;
        node->count = 0;
        node->next = NULL;
    }
    return node;
}

static void insert(name_node *node, size_t at, name_entry entry)
{
    WEIR_ASSERT(node->count < NODE_ENTRIES_MAX && at <= node->count);
    memmove(&node->entries[at + 1], &node->entries[at], (node->count - at) * sizeof(name_entry));
    node->entries[at] = entry;
    node->count++;
}

/* Moves the upper half of a full child to a new node beside it. false: out of memory. */
static bool split(name_node *parent, size_t at)
{
    name_node *child = parent->entries[at].to.child;
    name_node *sibling = node_open(child->leaf);
    const weir_str first = child->entries[NODE_HALF].key;
    const char *separator = sibling == NULL ? NULL : weir__strndup(first.ptr, first.len);
    if (separator == NULL) {
        weir__free(sibling);
        return false;
    }
    memcpy(sibling->entries, &child->entries[NODE_HALF],
           (NODE_ENTRIES_MAX - NODE_HALF) * sizeof(name_entry));
    sibling->count = NODE_ENTRIES_MAX - NODE_HALF;
    sibling->next = child->next;
    child->count = NODE_HALF;
    child->next = child->leaf ? sibling : NULL;
    insert(parent, at + 1,
           (name_entry){ .key = { .ptr = separator, .len = first.len }, .to.child = sibling });
    return true;
}

/* A root with room. NULL: out of memory. */
static name_node *roomy_root(name_index *index)
{
    if (index->root == NULL) {
        index->root = node_open(true);
        return index->root;
    }
    if (index->root->count < NODE_ENTRIES_MAX) {
        return index->root;
    }
    name_node *root = node_open(false);
    if (root == NULL) {
        return NULL;
    }
    insert(root, 0, (name_entry){ .to.child = index->root });
    if (!split(root, 0)) {
        weir__free(root);
        return NULL;
    }
    index->root = root;
    return root;
}

bool weir__name_index_add(name_index *index, table_item *item)
{
    name_node *node = roomy_root(index);
    if (node == NULL) {
        return false;
    }
    while (!node->leaf) {
        size_t at = way_down(node, item->key);
        if (node->entries[at].to.child->count == NODE_ENTRIES_MAX) {
            if (!split(node, at)) {
                return false;
            }
            at = way_down(node, item->key);
        }
        node = node->entries[at].to.child;
    }
    insert(node, position(node, 0, item->key, false),
           (name_entry){ .key = item->key, .to.item = item });
    index->count++;
    return true;
}

static name_node *leaf_of(const name_index *index, weir_str key)
{
    name_node *node = index->root;
    while (node != NULL && !node->leaf) {
        node = node->entries[way_down(node, key)].to.child;
    }
    return node;
}

void weir__name_index_remove(name_index *index, const table_item *item)
{
    name_node *leaf = leaf_of(index, item->key);
    WEIR_ASSERT(leaf != NULL);
    const size_t at = position(leaf, 0, item->key, false);
    WEIR_ASSERT(at < leaf->count && leaf->entries[at].to.item == item);
    leaf->count--;
    memmove(&leaf->entries[at], &leaf->entries[at + 1], (leaf->count - at) * sizeof(name_entry));
    index->count--;
}

/* Steps over the ends of leaves. */
static void settle(name_cursor *cursor)
{
    while (cursor->leaf != NULL && cursor->at >= cursor->leaf->count) {
        cursor->leaf = cursor->leaf->next;
        cursor->at = 0;
    }
}

name_cursor weir__name_index_seek(const name_index *index, weir_str key, bool above)
{
    name_cursor cursor = { .leaf = leaf_of(index, key) };
    if (cursor.leaf != NULL) {
        cursor.at = position(cursor.leaf, 0, key, above);
        settle(&cursor);
    }
    return cursor;
}

table_item *weir__name_index_item(const name_cursor *cursor)
{
    return cursor->leaf == NULL ? NULL : cursor->leaf->entries[cursor->at].to.item;
}

void weir__name_index_next(name_cursor *cursor)
{
    cursor->at++;
    settle(cursor);
}

bool weir__name_index_is_sound(const name_index *index)
{
    const table_item *previous = NULL;
    size_t count = 0;
    name_cursor cursor = weir__name_index_seek(index, (weir_str){ 0 }, false);

    for (const table_item *item; (item = weir__name_index_item(&cursor)) != NULL;) {
        /* Reached by its leaf's links and by the separators: both must lead to the same place. */
        const name_cursor found = weir__name_index_seek(index, item->key, false);
        if (weir__name_index_item(&found) != item ||
            (previous != NULL && weir__str_compare(previous->key, item->key) >= 0)) {
            return false;
        }
        previous = item;
        count++;
        weir__name_index_next(&cursor);
    }
    return count == index->count;
}

/* As deep as the tree: at most six for any number of names that fits into memory. */
static void node_free(name_node *node)
{
    for (size_t i = 0; !node->leaf && i < node->count; i++) {
        char *separator;
        memcpy(&separator, &node->entries[i].key.ptr, sizeof separator);
        weir__free(separator);
        node_free(node->entries[i].to.child);
    }
    weir__free(node);
}

void weir__name_index_free(name_index *index)
{
    if (index->root != NULL) {
        node_free(index->root);
    }
    *index = (name_index){ 0 };
}
