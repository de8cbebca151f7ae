/* error_text.c - see error_text.h. */
#include "store/error_text.h"

#include "base/utf8.h"
#include "store/store.h"

#include <string.h>

weir_str weir__error_text(weir_arena *arena, weir_str text, size_t bytes_max)
{
    const char *at = text.ptr;
    const char *const end = text.len == 0 ? at : text.ptr + text.len;
    char *out = weir__arena_alloc(arena, (text.len < bytes_max ? text.len : bytes_max) + 1);
    size_t len = 0;

    while (out != NULL && at < end) {
        uint32_t code = 0;
        const size_t bytes = weir__utf8_decode(at, end, &code);
        const bool shown = bytes > 0 && code != 0;
        if (len + (shown ? bytes : 1) > bytes_max) {
            break;
        }
        if (shown) {
            memcpy(out + len, at, bytes);
            len += bytes;
        } else {
            out[len++] = '?';
        }
        at += bytes == 0 ? 1 : bytes;
    }
    return (weir_str){ .ptr = out == NULL ? "" : out, .len = len };
}

weir_str weir__error_text_cut(weir_str text)
{
    if (text.len > STORE_ERROR_TEXT_BYTES_MAX) {
        text.len = STORE_ERROR_TEXT_BYTES_MAX;
        while (text.len > STORE_ERROR_TEXT_BYTES_MAX - 3 && (text.ptr[text.len] & 0xc0) == 0x80) {
            text.len--; /* what follows belongs to the character before it */
        }
    }
    return text;
}
