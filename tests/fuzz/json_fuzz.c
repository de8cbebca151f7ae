/* json_fuzz.c - any bytes as JSON.
 *
 *   accepted:  compacting again changes nothing, and the cursor, walked over all levels of the
 *              original text, finds everything that is in the compact one
 *   refused:   nothing is left in the output, and the offset in the message lies in the text
 *   always:    the cursor ends and stays inside; the bytes written as a string are accepted and
 *              come back
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"

#include <stdio.h>

static weir_str contents(const weir_buffer *b)
{
    return (weir_str){ .ptr = b->ptr, .len = b->len };
}

static bool is_inside(weir_str part, weir_str whole)
{
    return part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len;
}

/* Writes the compact form of an accepted value with what the cursor says about it. Recursive, but
 * no deeper than what was accepted. */
static void rebuild(weir_str value, weir_buffer *out)
{
    const weir_json_type type = weir__json_type(value);
    if (type != WEIR_JSON_ARRAY && type != WEIR_JSON_OBJECT) {
        WEIR_ASSERT(weir__buffer_add(out, value.ptr, value.len));
        return;
    }
    const bool object = type == WEIR_JSON_OBJECT;
    weir_json_members it = object ? weir__json_members(value) : weir__json_elements(value);
    const char *separator = object ? "{" : "[";
    bool empty = true;
    while (object ? weir__json_members_next(&it) : weir__json_elements_next(&it)) {
        WEIR_ASSERT(is_inside(it.value, value));
        WEIR_ASSERT(weir__buffer_add_text(out, separator));
        if (object) {
            WEIR_ASSERT(is_inside(it.name, value));
            WEIR_ASSERT(weir__buffer_add_text(out, "\""));
            WEIR_ASSERT(weir__buffer_add(out, it.name.ptr, it.name.len));
            WEIR_ASSERT(weir__buffer_add_text(out, "\":"));
        }
        rebuild(it.value, out);
        separator = ",";
        empty = false;
    }
    if (empty) {
        WEIR_ASSERT(weir__buffer_add_text(out, separator));
    }
    WEIR_ASSERT(weir__buffer_add_text(out, object ? "}" : "]"));
}

static weir_str without_space(weir_str s)
{
    while (s.len > 0 && strchr(" \t\r\n", *s.ptr) != NULL) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    return s;
}

static void check_accepted(weir_str text, const weir_buffer *compact, weir_json_type type)
{
    weir_buffer again = { 0 };
    weir_buffer rebuilt = { 0 };
    weir_json_type again_type = WEIR_JSON_NULL;

    WEIR_ASSERT(compact->len <= text.len);
    WEIR_ASSERT(memchr(compact->ptr, '\n', compact->len) == NULL);
    WEIR_ASSERT(weir__utf8_valid_prefix(compact->ptr, compact->len) == compact->len);
    WEIR_ASSERT(weir__json_compact(contents(compact), &again, &again_type, NULL) == WEIR_OK);
    WEIR_ASSERT(weir__str_equal(contents(&again), contents(compact)));
    WEIR_ASSERT(again_type == type && weir__json_type(text) == type);
    rebuild(without_space(text), &rebuilt);
    WEIR_ASSERT(weir__str_equal(contents(&rebuilt), contents(compact)));
    weir__buffer_free(&again);
    weir__buffer_free(&rebuilt);
}

static void check_refused(weir_str text, const weir_error *err)
{
    size_t offset = 0;
    int used = 0;
    WEIR_ASSERT(err->code == WEIR_EINVAL);
    WEIR_ASSERT(sscanf(err->message, "invalid JSON at byte %zu: %n", &offset, &used) == 1);
    WEIR_ASSERT(used > 0 && err->message[used] != '\0');
    WEIR_ASSERT(offset <= text.len);
}

static void check_cursor(weir_str text)
{
    size_t steps = 0;
    weir_str value = { 0 };
    weir_buffer decoded = { 0 };

    for (weir_json_members it = weir__json_members(text); weir__json_members_next(&it);) {
        WEIR_ASSERT(is_inside(it.name, text) && is_inside(it.value, text));
        WEIR_ASSERT(++steps <= text.len);
        (void)weir__json_string_is(it.value, text);
        (void)weir__json_string_decode(it.value, &decoded);
    }
    for (weir_json_members it = weir__json_elements(text); weir__json_elements_next(&it);) {
        WEIR_ASSERT(is_inside(it.value, text));
        WEIR_ASSERT(++steps <= 2 * text.len);
    }
    WEIR_ASSERT(!weir__json_get(text, "a", &value) || is_inside(value, text));
    (void)weir__json_string_decode(text, &decoded);
    weir__buffer_free(&decoded);
}

static void check_writing(weir_str text)
{
    weir_buffer json = { 0 };
    weir_buffer compact = { 0 };
    weir_buffer back = { 0 };

    WEIR_ASSERT(weir__json_write_string(&json, text));
    WEIR_ASSERT(weir__json_compact(contents(&json), &compact, NULL, NULL) == WEIR_OK);
    WEIR_ASSERT(weir__str_equal(contents(&json), contents(&compact)));
    WEIR_ASSERT(weir__json_string_decode(contents(&json), &back));
    const bool representable = weir__utf8_valid_prefix(text.ptr, text.len) == text.len &&
                               (text.len == 0 || memchr(text.ptr, '\0', text.len) == NULL);
    WEIR_ASSERT(!representable || weir__str_equal(contents(&back), text));
    WEIR_ASSERT(weir__json_string_is(contents(&json), contents(&back)));
    weir__buffer_free(&json);
    weir__buffer_free(&compact);
    weir__buffer_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weir_str text = { .ptr = size == 0 ? "" : (const char *)data, .len = size };
    weir_buffer compact = { 0 };
    weir_json_type type = WEIR_JSON_NULL;
    weir_error err = { .code = 0 };

    if (weir__json_compact(text, &compact, &type, &err) == WEIR_OK) {
        check_accepted(text, &compact, type);
    } else {
        WEIR_ASSERT(compact.len == 0);
        check_refused(text, &err);
    }
    check_cursor(text);
    check_writing(text);
    weir__buffer_free(&compact);
    return 0;
}
