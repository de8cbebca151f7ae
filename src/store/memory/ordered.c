/* ordered.c - a treap with parent links.
 *
 * INVARIANTS
 *   (1) In-order traversal is ascending by set->compare.
 *   (2) No node weighs more than its parent.
 *   (3) child->parent is the node that links to it; the root's is NULL.
 * The weights are random and independent of the keys, so the expected depth is 2 ln n whatever the
 * order in which nodes come.
 */
#include "store/memory/ordered.h"

#include "base/assert.h"

void weir__ordered_init(ordered_set *set, ordered_compare_fn compare)
{
    *set = (ordered_set){ .compare = compare, .random = UINT64_C(0x2545F4914F6CDD1D) };
}

/* xorshift64: cheap, and good enough to balance a tree. */
static uint64_t next_weight(ordered_set *set)
{
    uint64_t x = set->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    set->random = x;
    return x;
}

/* Makes `child` take the place of `node` under node's parent. */
static void replace_child(ordered_set *set, const ordered_node *node, ordered_node *child)
{
    ordered_node *parent = node->parent;
    if (parent == NULL) {
        set->root = child;
    } else if (parent->left == node) {
        parent->left = child;
    } else {
        parent->right = child;
    }
    if (child != NULL) {
        child->parent = parent;
    }
}

/* Moves a node above its parent, which becomes its child; the order stays. */
static void rotate_up(ordered_set *set, ordered_node *node)
{
    ordered_node *parent = node->parent;
    ordered_node *moved;

    replace_child(set, parent, node);
    if (parent->left == node) {
        moved = node->right;
        parent->left = moved;
        node->right = parent;
    } else {
        moved = node->left;
        parent->right = moved;
        node->left = parent;
    }
    if (moved != NULL) {
        moved->parent = parent;
    }
    parent->parent = node;
}

void weir__ordered_add(ordered_set *set, ordered_node *node)
{
    ordered_node *parent = NULL;
    ordered_node **link = &set->root;

    while (*link != NULL) {
        parent = *link;
        set->steps++;
        const int order = set->compare(node, parent);
        WEIR_ASSERT(order != 0);
        link = order < 0 ? &parent->left : &parent->right;
    }
    *node = (ordered_node){ .parent = parent, .weight = next_weight(set) };
    *link = node;
    while (node->parent != NULL && node->parent->weight < node->weight) {
        set->steps++;
        rotate_up(set, node);
    }
    set->count++;
}

void weir__ordered_remove(ordered_set *set, ordered_node *node)
{
    WEIR_ASSERT(set->count > 0);
    while (node->left != NULL && node->right != NULL) {
        set->steps++;
        rotate_up(set, node->left->weight > node->right->weight ? node->left : node->right);
    }
    replace_child(set, node, node->left != NULL ? node->left : node->right);
    *node = (ordered_node){ 0 };
    set->count--;
}

ordered_node *weir__ordered_first(ordered_set *set)
{
    ordered_node *node = set->root;
    while (node != NULL && node->left != NULL) {
        set->steps++;
        node = node->left;
    }
    return node;
}

ordered_node *weir__ordered_last(ordered_set *set)
{
    ordered_node *node = set->root;
    while (node != NULL && node->right != NULL) {
        set->steps++;
        node = node->right;
    }
    return node;
}

ordered_node *weir__ordered_next(ordered_set *set, const ordered_node *node)
{
    set->steps++;
    if (node->right != NULL) {
        ordered_node *next = node->right;
        while (next->left != NULL) {
            set->steps++;
            next = next->left;
        }
        return next;
    }
    while (node->parent != NULL && node->parent->right == node) {
        set->steps++;
        node = node->parent;
    }
    return node->parent;
}

ordered_node *weir__ordered_previous(ordered_set *set, const ordered_node *node)
{
    set->steps++;
    if (node->left != NULL) {
        ordered_node *previous = node->left;
        while (previous->right != NULL) {
            set->steps++;
            previous = previous->right;
        }
        return previous;
    }
    while (node->parent != NULL && node->parent->left == node) {
        set->steps++;
        node = node->parent;
    }
    return node->parent;
}

ordered_node *weir__ordered_seek(ordered_set *set, ordered_reached_fn reached, const void *key)
{
    ordered_node *node = set->root;
    ordered_node *found = NULL;

    while (node != NULL) {
        set->steps++;
        if (reached(key, node)) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return found;
}

/* Leftmost node below and including `node`. */
static const ordered_node *leftmost(const ordered_node *node)
{
    while (node != NULL && node->left != NULL) {
        node = node->left;
    }
    return node;
}

bool weir__ordered_is_sound(const ordered_set *set)
{
    const ordered_node *node = leftmost(set->root);
    const ordered_node *previous = NULL;
    size_t count = 0;

    if (set->root != NULL && set->root->parent != NULL) {
        return false;
    }
    while (node != NULL) {
        const bool linked = (node->left == NULL || node->left->parent == node) &&
                            (node->right == NULL || node->right->parent == node);
        const bool heap = node->parent == NULL || node->parent->weight >= node->weight;
        if (!linked || !heap || (previous != NULL && set->compare(previous, node) >= 0)) {
            return false;
        }
        count++;
        previous = node;
        if (node->right != NULL) {
            node = leftmost(node->right);
        } else {
            while (node->parent != NULL && node->parent->right == node) {
                node = node->parent;
            }
            node = node->parent;
        }
    }
    return count == set->count;
}
