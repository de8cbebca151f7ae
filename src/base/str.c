/* str.c - comparing, hashing and reading short texts. */
#include "base/str.h"

#include <endian.h>
#include <stdint.h>

int weir__str_compare(weir_str a, weir_str b)
{
    const size_t common = a.len < b.len ? a.len : b.len;
    const int order = common == 0 ? 0 : memcmp(a.ptr, b.ptr, common);
    if (order != 0) {
        return order;
    }
    return a.len < b.len ? -1 : a.len > b.len;
}

bool weir__str_starts_with(weir_str s, weir_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

/* Multiplies, and folds the high bits, which have seen all of the input, back onto the low ones,
 * which hash tables use. */
static uint64_t hash_mix(uint64_t h)
{
    h *= UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 32;
}

uint64_t weir__str_hash(weir_str s)
{
    uint64_t h = hash_mix(s.len + 1);
    size_t i = 0;
    uint64_t word;

    for (; s.len - i >= sizeof word; i += sizeof word) {
        memcpy(&word, s.ptr + i, sizeof word);
        h = hash_mix(h ^ le64toh(word));
    }
    if (i < s.len) {
        word = 0;
        memcpy(&word, s.ptr + i, s.len - i);
        h = hash_mix(h ^ le64toh(word));
    }
    return hash_mix(h);
}

static size_t size_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t weir__str_edits(weir_str a, weir_str b)
{
    size_t rows[3][WEIR_STR_EDITS_BYTES_MAX + 1];

    if (a.len > WEIR_STR_EDITS_BYTES_MAX || b.len > WEIR_STR_EDITS_BYTES_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b.len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a.len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            row[j] = size_least(above[j - 1] + (a.ptr[i - 1] == b.ptr[j - 1] ? 0 : 1),
                                size_least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1]) {
                row[j] = size_least(row[j], above2[j - 2] + 1);
            }
        }
    }
    return rows[a.len % 3][b.len];
}

bool weir__str_to_i64(weir_str s, int64_t *out)
{
    const bool negative = s.len > 0 && s.ptr[0] == '-';
    size_t i = negative ? 1 : 0;
    int64_t value = 0;

    if (i == s.len) {
        return false;
    }
    for (; i < s.len; i++) {
        const int digit = s.ptr[i] - '0';
        if (digit < 0 || digit > 9) {
            return false;
        }
        /* Built downwards for negative numbers: the smallest one has no positive counterpart. */
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(negative ? -digit : digit), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

typedef struct unit {
    const char *name;
    int64_t factor;
} unit;

/* A number that is not negative, followed by the name of one of the units. */
static bool number_with_unit(weir_str s, const unit *units, size_t units_count, int64_t *out)
{
    size_t digits = 0;
    int64_t number;

    while (digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9') {
        digits++;
    }
    if (!weir__str_to_i64((weir_str){ .ptr = s.ptr, .len = digits }, &number)) {
        return false;
    }
    const weir_str rest = { .ptr = s.ptr + digits, .len = s.len - digits };
    for (size_t i = 0; i < units_count; i++) {
        if (weir__str_equal(rest, weir__str(units[i].name))) {
            int64_t value;
            if (__builtin_mul_overflow(number, units[i].factor, &value)) {
                return false;
            }
            *out = value;
            return true;
        }
    }
    return false;
}

bool weir__str_to_duration_us(weir_str s, int64_t *out)
{
    static const unit units[] = {
        { "ms", 1000 },
        { "s", 1000000 },
        { "m", INT64_C(60) * 1000000 },
        { "h", INT64_C(3600) * 1000000 },
        { "d", INT64_C(86400) * 1000000 },
    };
    return number_with_unit(s, units, sizeof units / sizeof units[0], out);
}

bool weir__str_to_bytes(weir_str s, int64_t *out)
{
    static const unit units[] = {
        { "", 1 },
        { "KiB", INT64_C(1) << 10 },
        { "MiB", INT64_C(1) << 20 },
        { "GiB", INT64_C(1) << 30 },
    };
    return number_with_unit(s, units, sizeof units / sizeof units[0], out);
}
