/* column_text.c - see column_text.h. */
#include "cli/column_text.h"
#include "base/error.h"
#include "base/str.h"

#include <string.h>
#include <strings.h>

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static weir_str text_cut(weir_str text, size_t at)
{
    return (weir_str){ .ptr = text.ptr + at, .len = text.len - at };
}

static weir_str text_trim(weir_str text)
{
    while (text.len > 0 && text.ptr[0] == ' ') {
        text = text_cut(text, 1);
    }
    while (text.len > 0 && text.ptr[text.len - 1] == ' ') {
        text.len--;
    }
    return text;
}

/* The name between double quotes at the beginning of `text`; *rest: what follows it. */
static weir_status take_quoted(weir_str text, weir_arena *arena, weir_str *name, weir_str *rest,
                               weir_error *err)
{
    char *copy = weir__arena_alloc(arena, text.len + 1);
    size_t len = 0, i = 1;

    if (copy == NULL) {
        return no_memory(err);
    }
    while (i < text.len && !(text.ptr[i] == '"' && (i + 1 == text.len || text.ptr[i + 1] != '"'))) {
        i += text.ptr[i] == '"' ? 1 : 0;
        copy[len++] = text.ptr[i++];
    }
    if (i >= text.len) {
        return weir__fail(err, WEIR_EINVAL, "a name in \"%.*s\" has no closing quote",
                          (int)text.len, text.ptr);
    }
    copy[len] = '\0';
    *name = (weir_str){ .ptr = copy, .len = len };
    *rest = text_cut(text, i + 1);
    return WEIR_OK;
}

/* A name up to one of `ends`. */
static weir_status take_name(weir_str text, const char *ends, weir_arena *arena, weir_str *name,
                             weir_str *rest, weir_error *err)
{
    size_t len = 0;

    if (text.len > 0 && text.ptr[0] == '"') {
        return take_quoted(text, arena, name, rest, err);
    }
    while (len < text.len && strchr(ends, text.ptr[len]) == NULL) {
        len++;
    }
    *name = text_trim((weir_str){ .ptr = text.ptr, .len = len });
    *rest = text_cut(text, len);
    return WEIR_OK;
}

weir_status weir__cli_column_pair(weir_str text, weir_arena *arena, weir_str *column,
                                  weir_str *rest, weir_error *err)
{
    weir_str name = { 0 }, after = { 0 };
    const weir_status status = take_name(text, "=", arena, &name, &after, err);

    if (status != WEIR_OK) {
        return status;
    }
    if (name.len == 0 || after.len == 0 || after.ptr[0] != '=') {
        return weir__fail(err, WEIR_EINVAL, "expected COLUMN=VALUE, not \"%.*s\"", (int)text.len,
                          text.ptr);
    }
    *column = name;
    *rest = text_cut(after, 1);
    return WEIR_OK;
}

/* Takes a direction off the end of what stands between two commas. */
static bool ends_with_word(weir_str *text, const char *word)
{
    const size_t len = strlen(word);

    if (text->len < len + 1 || text->ptr[text->len - len - 1] != ' ' ||
        strncasecmp(text->ptr + text->len - len, word, len) != 0) {
        return false;
    }
    *text = text_trim((weir_str){ .ptr = text->ptr, .len = text->len - len });
    return true;
}

/* One column of an order; *rest begins after its comma. */
static weir_status take_ordered(weir_str text, weir_arena *arena, claim_order *out, weir_str *rest,
                                weir_error *err)
{
    weir_str name = { 0 }, after = { 0 };
    const bool quoted = text.len > 0 && text.ptr[0] == '"';
    const weir_status status = take_name(text, ",", arena, &name, &after, err);

    if (status != WEIR_OK) {
        return status;
    }
    if (quoted) { /* the direction stands outside of the quotes */
        const char *comma = after.len == 0 ? NULL : memchr(after.ptr, ',', after.len);
        const size_t len = comma == NULL ? after.len : (size_t)(comma - after.ptr);
        const weir_str word = text_trim((weir_str){ .ptr = after.ptr, .len = len });
        const bool descending = word.len == 4 && strncasecmp(word.ptr, "desc", 4) == 0;
        if (word.len > 0 && !descending &&
            !(word.len == 3 && strncasecmp(word.ptr, "asc", 3) == 0)) {
            return weir__fail(err, WEIR_EINVAL, "expected desc or asc after \"%.*s\", not \"%.*s\"",
                              (int)name.len, name.ptr, (int)word.len, word.ptr);
        }
        *out = (claim_order){ .column = name, .descending = descending };
        after = text_cut(after, len);
    } else {
        const bool descending = ends_with_word(&name, "desc");
        if (!descending) {
            (void)ends_with_word(&name, "asc");
        }
        *out = (claim_order){ .column = name, .descending = descending };
    }
    *rest = after.len > 0 ? text_trim(text_cut(after, 1)) : after;
    if (out->column.len == 0 || (after.len > 0 && rest->len == 0)) {
        return weir__fail(err, WEIR_EINVAL, "a column is missing");
    }
    return WEIR_OK;
}

weir_status weir__cli_column_order(weir_str text, weir_arena *arena, const claim_order **order,
                                   size_t *count, weir_error *err)
{
    claim_order *list = weir__arena_alloc(arena, (CLAIM_COLUMNS_MAX + 1) * sizeof *list);
    weir_str rest = text_trim(text);
    size_t n = 0;
    weir_status status = list == NULL ? no_memory(err) : WEIR_OK;

    if (status == WEIR_OK && rest.len == 0) {
        status = weir__fail(err, WEIR_EINVAL, "a column is missing");
    }
    while (status == WEIR_OK && rest.len > 0) {
        if (n == CLAIM_COLUMNS_MAX) {
            return weir__fail(err, WEIR_EINVAL, "there are more than %d columns",
                              CLAIM_COLUMNS_MAX);
        }
        status = take_ordered(rest, arena, &list[n++], &rest, err);
    }
    if (status == WEIR_OK) {
        *order = list;
        *count = n;
    }
    return status;
}
