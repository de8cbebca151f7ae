/* sha256.h - FIPS 180-4, for fingerprints of content. */
#ifndef WEIR_BASE_SHA256_H
#define WEIR_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { WEIR_SHA256_BYTES = 32 };

typedef struct weir_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} weir_sha256;

void weir__sha256_init(weir_sha256 *h);
void weir__sha256_add(weir_sha256 *h, const void *ptr, size_t len);
void weir__sha256_end(weir_sha256 *h, uint8_t out[WEIR_SHA256_BYTES]);

#endif
