/* str.h - small questions about weir_str, UTF-8 and numbers in text. */
#ifndef WEIR_BASE_STR_H
#define WEIR_BASE_STR_H

#include "weir.h"

#include <stdbool.h>
#include <string.h>

static inline weir_str weir__str(const char *text)
{
    return (weir_str){ .ptr = text, .len = text == NULL ? 0 : strlen(text) };
}

static inline bool weir__str_equal(weir_str a, weir_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Bytewise order, as COLLATE "C": <0, 0, >0. */
int weir__str_compare(weir_str a, weir_str b);
bool weir__str_starts_with(weir_str s, weir_str prefix);
/* FNV-1a or better; for hash tables in memory only, never stored. */
uint64_t weir__str_hash(weir_str s);

/* How many letters must be added, left out, changed or swapped with their neighbour to make one of
 * the other; SIZE_MAX when one of them is longer than any word that is mistyped. */
enum { WEIR_STR_EDITS_BYTES_MAX = 63 };
size_t weir__str_edits(weir_str a, weir_str b);

/* Length of the longest valid UTF-8 prefix (RFC 3629: no surrogates, no overlong forms). */
size_t weir__utf8_valid_prefix(const char *ptr, size_t len);

/* The whole of `s` as a decimal integer, optional '-', no spaces, no '+'. false: not one, or out of
 * range. */
bool weir__str_to_i64(weir_str s, int64_t *out);
/* "10s", "500ms", "5m", "24h", "2d" in microseconds; a bare number is refused. */
bool weir__str_to_duration_us(weir_str s, int64_t *out);
/* "1048576", "64KiB", "1MiB". */
bool weir__str_to_bytes(weir_str s, int64_t *out);

/* RFC 3339, UTC, microseconds: "2026-11-15T20:02:24.000001Z" (27 bytes and NUL).
 * Years outside 0000 to 9999 are shown with a sign and six digits. */
enum { WEIR_TIME_TEXT_BYTES = 32 };
void weir__time_to_text(int64_t time_us, char out[WEIR_TIME_TEXT_BYTES]);
/* RFC 3339 with Z or an offset, up to nanoseconds (cut to microseconds), and "2026-11-15" (00:00
 * UTC); a space may stand for the T. The years 0001 to 9999. Impossible dates are refused, and so
 * are leap seconds: our times have none. */
bool weir__time_from_text(weir_str s, int64_t *out);

#endif
