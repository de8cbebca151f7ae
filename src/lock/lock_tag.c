/* lock_tag.c - who holds a lock, as a text that others can read where the lock is: in the statement
 * of a session, or in a locked file.
 *
 * INVARIANT  A value that was cut off is not given: the reader never sees half a name. Each value
 * ends with a space, and what comes last is marked by one too.
 */
#include "base/str.h"
#include "lock/lock_private.h"

#include <stdio.h>

enum { DIGITS_BYTES = 24 };

static bool is_plain(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '-' || ch == '_' || ch == '.' || ch == '@' || ch == ':';
}

static bool add_encoded(weir_buffer *out, weir_str text)
{
    bool ok = true;
    for (size_t i = 0; i < text.len && ok; i++) {
        char hex[4];
        if (is_plain(text.ptr[i])) {
            ok = weir__buffer_add(out, &text.ptr[i], 1);
        } else {
            (void)snprintf(hex, sizeof hex, "%%%02x", (unsigned)(unsigned char)text.ptr[i]);
            ok = weir__buffer_add(out, hex, 3);
        }
    }
    return ok;
}

bool weir__lock_tag_add(weir_buffer *out, const lock_tag *tag)
{
    char since[DIGITS_BYTES + 8] = "";
    if (tag->since_us != 0) {
        (void)snprintf(since, sizeof since, "since=%lld ", (long long)tag->since_us);
    }
    return weir__buffer_add_text(out, since) && weir__buffer_add_text(out, "by=") &&
           add_encoded(out, tag->by) && weir__buffer_add_text(out, " name=") &&
           add_encoded(out, tag->name) && weir__buffer_add_text(out, " ");
}

static int hex_value(char ch)
{
    return ch >= '0' && ch <= '9' ? ch - '0' : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* What stands between WORD= and the next space; .ptr NULL: it is not there, or cut off. */
static weir_str value_of(weir_str text, const char *word)
{
    const size_t len = strlen(word);
    for (size_t i = 0; i + len <= text.len; i++) {
        if (memcmp(text.ptr + i, word, len) != 0) {
            continue;
        }
        const char *from = text.ptr + i + len;
        const char *end = memchr(from, ' ', text.len - i - len);
        if (end != NULL) {
            return (weir_str){ .ptr = from, .len = (size_t)(end - from) };
        }
    }
    return (weir_str){ 0 };
}

static bool tag_decode(weir_str in, weir_arena *arena, weir_str *out)
{
    size_t len = 0;
    char *copy = weir__arena_copy(arena, in.len == 0 ? "" : in.ptr, in.len);
    if (copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < in.len; i++) {
        const int high = in.ptr[i] == '%' && i + 2 < in.len ? hex_value(in.ptr[i + 1]) : -1;
        const int low = high >= 0 ? hex_value(in.ptr[i + 2]) : -1;
        copy[len++] = low >= 0 ? (char)(high * 16 + low) : in.ptr[i];
        i += low >= 0 ? 2 : 0;
    }
    *out = (weir_str){ .ptr = copy, .len = len };
    return true;
}

bool weir__lock_tag_read(weir_str text, weir_arena *arena, lock_tag *tag)
{
    lock_tag read = { 0 };
    (void)weir__str_to_i64(value_of(text, "since="), &read.since_us);
    if (!tag_decode(value_of(text, "by="), arena, &read.by) ||
        !tag_decode(value_of(text, "name="), arena, &read.name)) {
        return false;
    }
    *tag = read;
    return true;
}
