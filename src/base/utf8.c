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

bool weir__utf8_hidden(uint32_t code)
{
    /* What Unicode calls Default_Ignorable, the separators of lines, annotations, and a blank. */
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        { 0x00AD, 0x00AD },   { 0x034F, 0x034F },   { 0x061C, 0x061C }, { 0x115F, 0x1160 },
        { 0x17B4, 0x17B5 },   { 0x180B, 0x180F },   { 0x200B, 0x200F }, { 0x2028, 0x202E },
        { 0x2060, 0x206F },   { 0x2800, 0x2800 },   { 0x3164, 0x3164 }, { 0xFE00, 0xFE0F },
        { 0xFEFF, 0xFEFF },   { 0xFFA0, 0xFFA0 },   { 0xFFF0, 0xFFFB }, { 0x1BCA0, 0x1BCA3 },
        { 0x1D173, 0x1D17A }, { 0xE0000, 0xE0FFF },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

static size_t unit_escape(uint32_t unit, char *out)
{
    static const char hex[] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'u';
    for (int i = 0; i < 4; i++) {
        out[2 + i] = hex[unit >> (12 - 4 * i) & 15];
    }
    return 6;
}

size_t weir__utf8_escape(uint32_t code, char out[WEIR_UTF8_ESCAPE_BYTES_MAX])
{
    if (code < 0x10000) {
        return unit_escape(code, out);
    }
    code -= 0x10000;
    return unit_escape(0xD800 + (code >> 10), out) + unit_escape(0xDC00 + (code & 0x3FF), out + 6);
}

bool weir__utf8_add_shown(weir_buffer *out, weir_str text)
{
    const size_t old_len = out->len;
    const char *end = text.len == 0 ? text.ptr : text.ptr + text.len;
    const char *run = text.ptr;
    bool ok = true;

    for (const char *at = text.ptr; at < end && ok;) {
        uint32_t code = 0;
        /* The first of them is C2 AD. */
        const size_t bytes = (uint8_t)*at < 0xC2 ? 1 : weir__utf8_decode(at, end, &code);
        if (bytes > 1 && weir__utf8_hidden(code)) {
            char escape[WEIR_UTF8_ESCAPE_BYTES_MAX];
            ok = weir__buffer_add(out, run, (size_t)(at - run)) &&
                 weir__buffer_add(out, escape, weir__utf8_escape(code, escape));
            run = at + bytes;
        }
        at += bytes == 0 ? 1 : bytes;
    }
    if (ok && weir__buffer_add(out, run, (size_t)(end - run))) {
        return true;
    }
    out->len = old_len;
    return false;
}
