/* random.c - random bytes from the kernel, and UUIDs of version 7.
 *
 * THREADS  Each thread has a pool of its own. A pool that was filled before a fork is dropped in
 * the child: parent and child must not hand out the same bytes. Bytes that were handed out are
 * wiped from the pool.
 */
#include "base/random.h"

#include "base/assert.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

enum { POOL_BYTES = 256 }; /* getrandom is never cut short by a signal up to this size */

static _Thread_local uint8_t pool[POOL_BYTES];
static _Thread_local size_t pool_left; /* unused bytes, at the end of the pool */
static _Thread_local uint32_t pool_generation;

static void pool_fill(uint8_t *out, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t rc = getrandom(out, bytes, 0);
        if (rc < 0) {
            WEIR_ASSERT(errno == EINTR); /* anything else: no source of randomness at all */
            continue;
        }
        out += rc;
        bytes -= (size_t)rc;
    }
}

void weir__random_bytes(void *out, size_t bytes)
{
    const uint32_t generation = weir__fork_generation();

    if (bytes > POOL_BYTES / 2) {
        pool_fill(out, bytes);
        return;
    }
    if (pool_left < bytes || pool_generation != generation) {
        pool_fill(pool, POOL_BYTES);
        pool_left = POOL_BYTES;
        pool_generation = generation;
    }
    if (bytes > 0) {
        uint8_t *next = pool + POOL_BYTES - pool_left;
        memcpy(out, next, bytes);
        explicit_bzero(next, bytes);
        pool_left -= bytes;
    }
}

uint64_t weir__random_u64(void)
{
    uint64_t value;
    weir__random_bytes(&value, sizeof value);
    return value;
}

void weir__uuid7(int64_t wall_us, char out[WEIR_UUID_TEXT_BYTES])
{
    const uint64_t us = wall_us < 0 ? 0 : (uint64_t)wall_us;
    const uint64_t ms = us / 1000 & UINT64_C(0xFFFFFFFFFFFF);
    /* The fraction of the millisecond goes where RFC 9562 allows it (section 6.2, method 3), so
     * that ids made within one millisecond sort by time as well. */
    const uint64_t fraction = us % 1000 * 4096 / 1000;
    const uint64_t random = weir__random_u64() & UINT64_C(0x3FFFFFFFFFFFFFFF);
    const uint64_t high = ms << 16 | UINT64_C(0x7000) | fraction;
    const uint64_t low = UINT64_C(0x8000000000000000) | random;

    /* Written by hand: every append makes one, and snprintf was a tenth of its work here. */
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    for (int nibble = 0; nibble < 32; nibble++) {
        const uint64_t half = nibble < 16 ? high : low;
        if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20) {
            out[at++] = '-';
        }
        out[at++] = digits[half >> (60 - 4 * (nibble % 16)) & 15];
    }
    out[at++] = '\0';
    WEIR_ASSERT(at == WEIR_UUID_TEXT_BYTES);
}
