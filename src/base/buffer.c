/* buffer.c - a growing run of bytes.
 *
 * INVARIANT  len <= capacity, and ptr is NULL exactly when capacity is 0. Growing at least doubles
 * the capacity, so that adding n bytes one by one copies fewer than 2n.
 */
#include "base/assert.h"
#include "base/memory.h"

#include <string.h>

enum {
    BUFFER_BYTES_MIN = 64,
    I64_TEXT_BYTES_MAX = 20, /* -9223372036854775808 */
};

bool weir__buffer_reserve(weir_buffer *b, size_t more)
{
    size_t needed;

    WEIR_ASSERT(b->len <= b->capacity);
    if (more <= b->capacity - b->len) {
        return true;
    }
    if (__builtin_add_overflow(b->len, more, &needed)) {
        return false;
    }
    size_t capacity = b->capacity <= SIZE_MAX / 2 ? b->capacity * 2 : needed;
    if (capacity < BUFFER_BYTES_MIN) {
        capacity = BUFFER_BYTES_MIN;
    }
    if (capacity < needed) {
        capacity = needed;
    }
    char *ptr = weir__realloc(b->ptr, capacity);
    if (ptr == NULL) {
        return false;
    }
    b->ptr = ptr;
    b->capacity = capacity;
    return true;
}

bool weir__buffer_add(weir_buffer *b, const void *ptr, size_t len)
{
    if (!weir__buffer_reserve(b, len)) {
        return false;
    }
    if (len > 0) {
        memcpy(b->ptr + b->len, ptr, len);
        b->len += len;
    }
    return true;
}

bool weir__buffer_add_text(weir_buffer *b, const char *text)
{
    return weir__buffer_add(b, text, strlen(text));
}

bool weir__buffer_add_i64(weir_buffer *b, int64_t value)
{
    char text[I64_TEXT_BYTES_MAX];
    size_t start = sizeof text;
    /* The magnitude is computed unsigned, where the smallest value has one too. */
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do {
        text[--start] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        text[--start] = '-';
    }
    return weir__buffer_add(b, text + start, sizeof text - start);
}

void weir__buffer_clear(weir_buffer *b)
{
    b->len = 0;
}

void weir__buffer_free(weir_buffer *b)
{
    weir__free(b->ptr);
    *b = (weir_buffer){ 0 };
}
