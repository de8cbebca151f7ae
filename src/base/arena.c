/* arena.c - allocations that die together.
 *
 * A list of blocks; the newest is the one that is filled. A request that does not fit starts a new
 * block of at least twice the size of the one before, so that the number of blocks stays small and
 * what is left over in full ones stays below what was handed out.
 *
 * INVARIANTS
 *   (1) In every block: used <= capacity.
 *   (2) bytes_used counts padding for alignment too: the limit bounds memory, not requests. Only
 *       the last allocation before the limit may end on it exactly.
 *
 * Under AddressSanitizer the unused part of every block is poisoned, so that reading past an
 * allocation or after a reset is found as if each had come from the heap.
 */
#include "base/assert.h"
#include "base/memory.h"

#include <stdalign.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISON 1
#endif
#endif
#ifdef ARENA_POISON
#include <sanitizer/asan_interface.h>
#endif

enum {
    ARENA_BLOCK_BYTES_MIN = 4096,
    ARENA_BLOCK_BYTES_GROWN = 256 * 1024, /* doubling stops here */
    ARENA_KEPT_BYTES_MAX = 1024 * 1024,   /* a larger block does not outlive a reset */
};

typedef struct arena_block {
    struct arena_block *older; /* owned */
    size_t capacity;
    size_t used;
    alignas(max_align_t) char bytes[];
} arena_block;

static void memory_poison(const char *ptr, size_t bytes)
{
#ifdef ARENA_POISON
    ASAN_POISON_MEMORY_REGION(ptr, bytes);
#else
    (void)ptr;
    (void)bytes;
#endif
}

static void memory_unpoison(const char *ptr, size_t bytes)
{
#ifdef ARENA_POISON
    ASAN_UNPOISON_MEMORY_REGION(ptr, bytes);
#else
    (void)ptr;
    (void)bytes;
#endif
}

static void block_free(arena_block *block)
{
    if (block != NULL) {
        memory_unpoison(block->bytes, block->capacity);
        weir__free(block);
    }
}

/* Puts a block with room for `bytes` in front. */
static bool add_block(weir_arena *a, size_t bytes)
{
    size_t capacity = ARENA_BLOCK_BYTES_MIN;
    size_t total;

    if (a->blocks != NULL) {
        capacity = a->blocks->capacity < ARENA_BLOCK_BYTES_GROWN / 2 ? a->blocks->capacity * 2
                                                                     : ARENA_BLOCK_BYTES_GROWN;
    }
    if (capacity < bytes) {
        capacity = bytes;
    }
    if (__builtin_add_overflow(capacity, sizeof(arena_block), &total)) {
        return false;
    }
    arena_block *block = weir__malloc(total);
    if (block == NULL) {
        return false;
    }
    block->older = a->blocks;
    block->capacity = capacity;
    block->used = 0;
    memory_poison(block->bytes, capacity);
    a->blocks = block;
    return true;
}

/* `alignment`: a power of two. */
static char *block_take(weir_arena *a, size_t bytes, size_t alignment)
{
    arena_block *block = a->blocks;
    size_t padding = block == NULL ? 0 : (0 - block->used) & (alignment - 1);
    const bool fits = block != NULL && padding <= block->capacity - block->used &&
                      bytes <= block->capacity - block->used - padding;
    size_t total;

    if (!fits) {
        padding = 0;
    }
    if (__builtin_add_overflow(bytes, padding, &total) ||
        __builtin_add_overflow(a->bytes_used, total, &total) ||
        (a->bytes_max != 0 && total > a->bytes_max)) {
        return NULL;
    }
    if (!fits && !add_block(a, bytes)) {
        return NULL;
    }
    block = a->blocks;
    char *ptr = block->bytes + block->used + padding;
    block->used += padding + bytes;
    a->bytes_used = total;
    WEIR_ASSERT(block->used <= block->capacity);
    memory_unpoison(ptr, bytes);
    return ptr;
}

void *weir__arena_alloc(weir_arena *a, size_t bytes)
{
    return block_take(a, bytes == 0 ? 1 : bytes, alignof(max_align_t));
}

char *weir__arena_copy(weir_arena *a, const char *ptr, size_t len)
{
    size_t bytes;
    if (__builtin_add_overflow(len, (size_t)1, &bytes)) {
        return NULL;
    }
    char *copy = block_take(a, bytes, 1);
    if (copy == NULL) {
        return NULL;
    }
    if (len > 0) {
        memcpy(copy, ptr, len);
    }
    copy[len] = '\0';
    return copy;
}

void weir__arena_reset(weir_arena *a)
{
    arena_block *kept = NULL; /* the largest that may stay */
    arena_block *block = a->blocks;

    while (block != NULL) {
        arena_block *older = block->older;
        const bool better = block->capacity <= ARENA_KEPT_BYTES_MAX &&
                            (kept == NULL || block->capacity > kept->capacity);
        if (better) {
            block_free(kept);
            kept = block;
        } else {
            block_free(block);
        }
        block = older;
    }
    if (kept != NULL) {
        kept->older = NULL;
        kept->used = 0;
        memory_poison(kept->bytes, kept->capacity);
    }
    a->blocks = kept;
    a->bytes_used = 0;
}

void weir__arena_free(weir_arena *a)
{
    while (a->blocks != NULL) {
        arena_block *older = a->blocks->older;
        block_free(a->blocks);
        a->blocks = older;
    }
    a->bytes_used = 0;
}
