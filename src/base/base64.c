/* base64.c - see base64.h. Three bytes are four digits of six bits each; what is missing at the end
 * is filled up with zero bits, and with '=' for the digits that hold nothing else.
 */
#include "base/base64.h"

enum { GROUP_BYTES = 3, GROUP_DIGITS = 4 };

bool weir__base64_add(weir_buffer *out, weir_str bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t needed;

    if (__builtin_mul_overflow(bytes.len / GROUP_BYTES + 1, (size_t)GROUP_DIGITS, &needed) ||
        !weir__buffer_reserve(out, needed)) {
        return false;
    }
    for (size_t i = 0; i < bytes.len; i += GROUP_BYTES) {
        uint32_t group = 0;
        char text[GROUP_DIGITS];
        const size_t left = bytes.len - i;
        for (size_t j = 0; j < GROUP_BYTES; j++) {
            group = group << 8 | (j < left ? (uint8_t)bytes.ptr[i + j] : 0U);
        }
        for (size_t j = 0; j < GROUP_DIGITS; j++) {
            text[j] = j <= left ? digits[group >> (18 - 6 * j) & 63] : '=';
        }
        if (!weir__buffer_add(out, text, sizeof text)) {
            return false;
        }
    }
    return true;
}
