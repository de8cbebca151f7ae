/* utf8.h - one UTF-8 sequence at a time (RFC 3629: no surrogates, no overlong forms). */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { WEIR_UTF8_BYTES_MAX = 4 };

/* The bytes of the valid sequence that starts at `at` (1 to 4) and its code point, or 0 when there
 * is none before `end`. */
size_t weir__utf8_decode(const char *at, const char *end, uint32_t *code);
/* Writes the sequence of `code`, which must not be a surrogate nor above U+10FFFF; its bytes. */
size_t weir__utf8_encode(uint32_t code, char out[WEIR_UTF8_BYTES_MAX]);

#endif
