/* sha256.c - SHA-256 as in FIPS 180-4. */
#include "base/sha256.h"

#include <endian.h>
#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_BYTES = 8, ROUNDS = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void add_block(uint32_t state[8], const uint8_t block[BLOCK_BYTES])
{
    uint32_t w[ROUNDS];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

    for (size_t i = 0; i < 16; i++) {
        uint32_t word;
        memcpy(&word, block + 4 * i, sizeof word);
        w[i] = be32toh(word);
    }
    for (size_t i = 16; i < ROUNDS; i++) {
        const uint32_t x = w[i - 15];
        const uint32_t y = w[i - 2];
        const uint32_t sigma0 = rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3;
        const uint32_t sigma1 = rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10;
        w[i] = w[i - 16] + sigma0 + w[i - 7] + sigma1;
    }
    for (size_t i = 0; i < ROUNDS; i++) {
        const uint32_t sum1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        const uint32_t choice = (e & f) ^ (~e & g);
        const uint32_t t1 = h + sum1 + choice + round_constants[i] + w[i];
        const uint32_t sum0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + sum0 + majority;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void weir__sha256_init(weir_sha256 *h)
{
    *h = (weir_sha256){
        .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                   0x1f83d9ab, 0x5be0cd19 },
    };
}

void weir__sha256_add(weir_sha256 *h, const void *ptr, size_t len)
{
    const uint8_t *next = ptr;
    size_t waiting = h->bytes % BLOCK_BYTES; /* bytes in h->block */

    h->bytes += len;
    while (len > 0) {
        if (waiting == 0 && len >= BLOCK_BYTES) {
            add_block(h->state, next);
            next += BLOCK_BYTES;
            len -= BLOCK_BYTES;
            continue;
        }
        const size_t room = BLOCK_BYTES - waiting;
        const size_t taken = len < room ? len : room;
        memcpy(h->block + waiting, next, taken);
        next += taken;
        len -= taken;
        waiting += taken;
        if (waiting == BLOCK_BYTES) {
            add_block(h->state, h->block);
            waiting = 0;
        }
    }
}

void weir__sha256_end(weir_sha256 *h, uint8_t out[WEIR_SHA256_BYTES])
{
    static const uint8_t padding[BLOCK_BYTES] = { 0x80 };
    const uint64_t bits = htobe64(h->bytes * 8);
    const size_t waiting = h->bytes % BLOCK_BYTES;
    /* One 0x80, then zeros until the length ends a block. */
    const size_t room = BLOCK_BYTES - LENGTH_BYTES;
    const size_t padding_bytes = (waiting < room ? room : room + BLOCK_BYTES) - waiting;

    weir__sha256_add(h, padding, padding_bytes);
    weir__sha256_add(h, &bits, sizeof bits);
    for (size_t i = 0; i < 8; i++) {
        const uint32_t word = htobe32(h->state[i]);
        memcpy(out + 4 * i, &word, sizeof word);
    }
}
