/* memory.h - the heap as the library uses it: every allocation goes through here, so that a test
 * can make the Nth one fail. Running out of memory is WEIR_ENOMEM, never an abort.
 */
#ifndef WEIR_BASE_MEMORY_H
#define WEIR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *weir__malloc(size_t bytes);
void *weir__calloc(size_t count, size_t bytes);
void *weir__realloc(void *ptr, size_t bytes);
void weir__free(void *ptr);
/* ptr[0..len) as a NUL-terminated copy. */
char *weir__strndup(const char *ptr, size_t len);

/* Test only: the `nth` allocation from now (1 = the next) of this thread fails, once. 0: none. */
void weir__memory_fail_nth(uint64_t nth);
/* Test only: whether that failure has been used up. */
bool weir__memory_failed(void);

/* An arena: allocations that die together. One owner thread. bytes_max 0: no limit. Over the limit
 * alloc returns NULL and the arena still works. A zeroed struct is an empty arena. */
typedef struct weir_arena {
    size_t bytes_max;
    size_t bytes_used;          /* bytes handed out since the last reset */
    struct arena_block *blocks; /* owned; newest first */
} weir_arena;

void *weir__arena_alloc(weir_arena *a, size_t bytes); /* aligned for any type; not zeroed */
char *weir__arena_copy(weir_arena *a, const char *ptr, size_t len); /* NUL-terminated copy */
void weir__arena_reset(weir_arena *a); /* keeps one block for reuse, at most 1 MiB of it */
void weir__arena_free(weir_arena *a);  /* gives everything back; the arena is empty again */

/* A growing run of bytes. A zeroed struct is an empty buffer. Appending returns false on ENOMEM and
 * leaves the buffer as it was. */
typedef struct weir_buffer {
    char *ptr; /* owned; NULL while empty */
    size_t len;
    size_t capacity;
} weir_buffer;

bool weir__buffer_reserve(weir_buffer *b, size_t more);
bool weir__buffer_add(weir_buffer *b, const void *ptr, size_t len);
bool weir__buffer_add_text(weir_buffer *b, const char *text);
bool weir__buffer_add_i64(weir_buffer *b, int64_t value);
void weir__buffer_clear(weir_buffer *b); /* len = 0, keeps the memory */
void weir__buffer_free(weir_buffer *b);

#endif
