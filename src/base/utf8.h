/* utf8.h - one UTF-8 sequence at a time (RFC 3629: no surrogates, no overlong forms). */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include "base/memory.h"
#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEIR_UTF8_BYTES_MAX = 4 };

/* The bytes of the valid sequence that starts at `at` (1 to 4) and its code point, or 0 when there
 * is none before `end`. */
size_t weir__utf8_decode(const char *at, const char *end, uint32_t *code);
/* Writes the sequence of `code`, which must not be a surrogate nor above U+10FFFF; its bytes. */
size_t weir__utf8_encode(uint32_t code, char out[WEIR_UTF8_BYTES_MAX]);

/* Characters that are invisible or change how others look: line and paragraph separators (U+2028,
 * U+2029), zero-width characters, and those that change the direction of text. Control characters
 * are not among them: each output treats those in its own way. */
bool weir__utf8_hidden(uint32_t code);
/* "\u202e", as in JSON; two of them above U+FFFF. Its bytes. */
enum { WEIR_UTF8_ESCAPE_BYTES_MAX = 12 };
size_t weir__utf8_escape(uint32_t code, char out[WEIR_UTF8_ESCAPE_BYTES_MAX]);
/* Adds text with such characters escaped, and everything else as it is. In JSON they stand inside
 * of strings only, where the escape means the same. false: out of memory. */
bool weir__utf8_add_shown(weir_buffer *out, weir_str text);

#endif
