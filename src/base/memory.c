/* memory.c - the heap, with a failure that a test can order.
 *
 * THREADS  The ordered failure belongs to the thread that ordered it, so that it hits the code
 * under test and not a neighbour.
 */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local uint64_t fail_countdown; /* 1: the next allocation fails. 0: none does */
static _Thread_local bool fail_used;

/* Whether this allocation is the one that was ordered to fail, or is larger than any object can be
 * (which malloc would refuse as well, but some checking allocators end the process over). */
static bool must_fail(size_t bytes)
{
    if (__builtin_expect(fail_countdown != 0, 0)) {
        fail_countdown--;
        if (fail_countdown == 0) {
            fail_used = true;
            return true;
        }
    }
    return bytes > PTRDIFF_MAX;
}

/* Asking for nothing still gives a pointer, so that NULL always means "out of memory". */
void *weir__malloc(size_t bytes)
{
    return must_fail(bytes) ? NULL : malloc(bytes == 0 ? 1 : bytes);
}

void *weir__calloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        total = SIZE_MAX;
    }
    return must_fail(total) ? NULL : calloc(1, total == 0 ? 1 : total);
}

void *weir__realloc(void *ptr, size_t bytes)
{
    return must_fail(bytes) ? NULL : realloc(ptr, bytes == 0 ? 1 : bytes);
}

void weir__free(void *ptr)
{
    free(ptr);
}

char *weir__strndup(const char *ptr, size_t len)
{
    size_t bytes;
    if (__builtin_add_overflow(len, (size_t)1, &bytes)) {
        return NULL;
    }
    char *copy = weir__malloc(bytes);
    if (copy == NULL) {
        return NULL;
    }
    if (len > 0) {
        memcpy(copy, ptr, len);
    }
    copy[len] = '\0';
    return copy;
}

void weir__memory_fail_nth(uint64_t nth)
{
    fail_countdown = nth;
    fail_used = false;
}

bool weir__memory_failed(void)
{
    return fail_used;
}
