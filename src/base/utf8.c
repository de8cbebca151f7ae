/* utf8.c - checking, reading and writing UTF-8.
 *
 * Which second bytes are allowed depends on the first byte: that is what shuts out overlong forms
 * (E0, F0), surrogates (ED) and code points above U+10FFFF (F4). Every later byte is 80 to BF.
 */
#include "base/utf8.h"

#include "base/assert.h"
#include "base/str.h"

static bool is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t weir__utf8_decode(const char *at, const char *end, uint32_t *code)
{
    const uint8_t *b = (const uint8_t *)at;
    const size_t left = (size_t)(end - at);

    if (left == 0) {
        return 0;
    }
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    if (b[0] < 0xC2 || b[0] > 0xF4 || left < 2 || !is_tail(b[1])) {
        return 0;
    }
    if (b[0] < 0xE0) {
        *code = (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
        return 2;
    }
    if (left < 3 || !is_tail(b[2])) {
        return 0;
    }
    if (b[0] < 0xF0) {
        if ((b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F)) {
            return 0;
        }
        *code = (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
        return 3;
    }
    if (left < 4 || !is_tail(b[3]) || (b[0] == 0xF0 && b[1] < 0x90) ||
        (b[0] == 0xF4 && b[1] > 0x8F)) {
        return 0;
    }
    *code = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
            (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3F);
    return 4;
}

size_t weir__utf8_encode(uint32_t code, char out[WEIR_UTF8_BYTES_MAX])
{
    WEIR_ASSERT(code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF));
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

size_t weir__utf8_valid_prefix(const char *ptr, size_t len)
{
    size_t i = 0;

    while (i < len) {
        uint64_t word;
        while (len - i >= sizeof word) { /* most text is ASCII: eight bytes at a time */
            memcpy(&word, ptr + i, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) != 0) {
                break;
            }
            i += sizeof word;
        }
        if (i == len) {
            break;
        }
        uint32_t code;
        const size_t bytes = weir__utf8_decode(ptr + i, ptr + len, &code);
        if (bytes == 0) {
            break;
        }
        i += bytes;
    }
    return i;
}
