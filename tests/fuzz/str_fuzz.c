/* str_fuzz.c - any bytes as text: numbers, units, UTF-8, order, and as part of an error message.
 *
 * Numbers are compared with strtoll, which accepts more; what it accepts too much is written here.
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>

static void check_numbers(weir_str s)
{
    char text[64];
    int64_t value = 0;
    const bool read = weir__str_to_i64(s, &value);

    if (s.len < sizeof text) {
        if (s.len > 0) {
            memcpy(text, s.ptr, s.len);
        }
        text[s.len] = '\0';
        char *end = NULL;
        errno = 0;
        const long long expected = strtoll(text, &end, 10);
        const bool strict = s.len > 0 && strchr("-0123456789", text[0]) != NULL && text[0] != '\0';
        const bool right = strict && errno == 0 && end != text && end == text + s.len;
        WEIR_ASSERT(read == right);
        WEIR_ASSERT(!read || value == expected);
    }
    int64_t us = -1;
    int64_t bytes = -1;
    WEIR_ASSERT(!weir__str_to_duration_us(s, &us) || (us >= 0 && us % 1000 == 0 && !read));
    WEIR_ASSERT(!weir__str_to_bytes(s, &bytes) || bytes >= 0);
    WEIR_ASSERT(!read || value < 0 || s.ptr[0] == '-' || bytes == value);
}

static void check_utf8(weir_str s)
{
    const size_t valid = weir__utf8_valid_prefix(s.ptr, s.len);
    size_t i = 0;
    uint32_t code = 0;

    WEIR_ASSERT(valid <= s.len);
    while (i < valid) { /* the prefix is made of whole sequences, */
        char again[WEIR_UTF8_BYTES_MAX];
        const size_t bytes = weir__utf8_decode(s.ptr + i, s.ptr + valid, &code);
        WEIR_ASSERT(bytes > 0 && weir__utf8_encode(code, again) == bytes);
        WEIR_ASSERT(memcmp(again, s.ptr + i, bytes) == 0);
        i += bytes;
    }
    WEIR_ASSERT(i == valid); /* and no further one follows */
    WEIR_ASSERT(i == s.len || weir__utf8_decode(s.ptr + i, s.ptr + s.len, &code) == 0);
}

static void check_order(weir_str s)
{
    const weir_str a = { .ptr = s.ptr, .len = s.len / 2 };
    const weir_str b = { .ptr = s.ptr + s.len / 2, .len = s.len - s.len / 2 };
    const int order = weir__str_compare(a, b);

    WEIR_ASSERT((order < 0) == (weir__str_compare(b, a) > 0));
    WEIR_ASSERT((order == 0) == weir__str_equal(a, b));
    WEIR_ASSERT(order != 0 || weir__str_hash(a) == weir__str_hash(b));
    WEIR_ASSERT(weir__str_compare(a, s) <= 0 && weir__str_starts_with(s, a));
    WEIR_ASSERT(!weir__str_starts_with(b, a) || weir__str_compare(a, b) <= 0);
}

static void check_clean(const char *text, size_t size)
{
    const size_t len = strnlen(text, size);
    WEIR_ASSERT(len < size);
    WEIR_ASSERT(weir__utf8_valid_prefix(text, len) == len);
    for (size_t i = 0; i < len; i++) {
        WEIR_ASSERT((uint8_t)text[i] >= 0x20 && text[i] != 0x7F);
    }
}

static void check_errors(weir_str s)
{
    weir_error err;
    const int len = s.len > 4000 ? 4000 : (int)s.len;

    (void)weir__fail(&err, WEIR_EIO, "before %.*s after", len, s.ptr);
    check_clean(err.message, sizeof err.message);
    (void)weir__wrap(&err, WEIR_EIO, "outer %.*s", len, s.ptr);
    check_clean(err.message, sizeof err.message);
    weir__error_detail(&err, "%.*s", len, s.ptr);
    check_clean(err.detail, sizeof err.detail);
    weir__error_store_code(&err, "%.*s", len, s.ptr);
    check_clean(err.store_code, sizeof err.store_code);
    weir__error_stream(&err, s);
    check_clean(err.stream, sizeof err.stream);
    (void)weir__fail_conflict(&err, s, (int64_t)s.len, WEIR_VERSION_NONE);
    check_clean(err.message, sizeof err.message);
    check_clean(err.stream, sizeof err.stream);
    WEIR_ASSERT(memchr(s.ptr, '\0', s.len) != NULL ||
                strstr(err.message, "no such stream") != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weir_str s = { .ptr = size == 0 ? "" : (const char *)data, .len = size };
    check_numbers(s);
    check_utf8(s);
    check_order(s);
    check_errors(s);
    return 0;
}
