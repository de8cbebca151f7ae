/* sql.c - see sql.h. */
#define _GNU_SOURCE /* memmem */

#include "base/sql.h"

/* The text from where a part begins. */
typedef struct sql_rest {
    const char *ptr;
    size_t len;
    sql_flavor flavor;
} sql_rest;

static char byte_at(const sql_rest *r, size_t at)
{
    return at < r->len ? r->ptr[at] : '\0';
}

static sql_part part_endless(const sql_rest *r, sql_part_kind kind, size_t opening)
{
    return (sql_part){ .kind = kind, .len = r->len, .opening = opening, .endless = true };
}

static bool is_line_end(const sql_rest *r, char c)
{
    return c == '\n' || (c == '\r' && r->flavor != SQL_FLAVOR_SQLITE);
}

static size_t line_end(const sql_rest *r, size_t at)
{
    while (at < r->len && !is_line_end(r, r->ptr[at])) {
        at++;
    }
    return at;
}

static sql_part comment_part(const sql_rest *r)
{
    size_t depth = 1;

    for (size_t i = 2; i + 1 < r->len; i++) {
        if (r->ptr[i] == '*' && r->ptr[i + 1] == '/') {
            i++;
            if (--depth == 0) {
                return (sql_part){ .kind = SQL_PART_COMMENT, .len = i + 1 };
            }
        } else if (r->ptr[i] == '/' && r->ptr[i + 1] == '*' && r->flavor != SQL_FLAVOR_SQLITE) {
            i++;
            depth++;
        }
    }
    return part_endless(r, SQL_PART_COMMENT, 0);
}

/* 'a' and 'b' are one string if a line ends between them and nothing but comments of a line stands
 * there. Where the second one begins, for a string that ends before `at`; 0: there is none. */
static size_t continuation_at(const sql_rest *r, size_t at)
{
    bool line = false;

    for (; at < r->len; at++) {
        const char c = r->ptr[at];
        line = line || is_line_end(r, c);
        if (c == '-' && byte_at(r, at + 1) == '-') {
            at = line_end(r, at);
            line = line || at < r->len;
        } else if (c == '\0' || strchr(" \t\n\r\f", c) == NULL) {
            return c == '\'' && line ? at : 0;
        }
    }
    return 0;
}

/* What has its quote behind `prefix` bytes. A doubled quote stands for itself. */
static sql_part quoted_part(const sql_rest *r, sql_part_kind kind, size_t prefix, bool escapes)
{
    const char quote = r->ptr[prefix] == '[' ? ']' : r->ptr[prefix];
    size_t next = 0;

    for (size_t i = prefix + 1; i < r->len; i++) {
        const bool doubled = r->ptr[i] == quote && byte_at(r, i + 1) == quote && quote != ']';
        if (doubled || (escapes && r->ptr[i] == '\\')) {
            i++;
        } else if (r->ptr[i] == quote && escapes && (next = continuation_at(r, i + 1)) > 0) {
            i = next;
        } else if (r->ptr[i] == quote) {
            return (sql_part){ .kind = kind, .len = i + 1, .opening = prefix + 1, .closing = 1 };
        }
    }
    return part_endless(r, kind, prefix + 1);
}

/* $tag$...$tag$; a byte if there is no tag. */
static sql_part dollar_part(const sql_rest *r)
{
    size_t tag = 1;

    while (weir__sql_is_name_byte(byte_at(r, tag)) &&
           (tag > 1 || weir__sql_is_letter(byte_at(r, tag)))) {
        tag++;
    }
    if (byte_at(r, tag) != '$') {
        return (sql_part){ .kind = SQL_PART_BYTE, .len = 1 };
    }
    tag++;
    const char *end = memmem(r->ptr + tag, r->len - tag, r->ptr, tag);
    return end == NULL ? part_endless(r, SQL_PART_DOLLAR, tag)
                       : (sql_part){ .kind = SQL_PART_DOLLAR,
                                     .len = (size_t)(end - r->ptr) + tag,
                                     .opening = tag,
                                     .closing = tag };
}

static sql_part word_part(const sql_rest *r)
{
    const char c = r->ptr[0], next = byte_at(r, 1), after = byte_at(r, 2);
    size_t len = 1;

    if (next == '\'' && strchr("eEbBxXnN", c) != NULL) {
        return quoted_part(r, SQL_PART_STRING, 1,
                           (c == 'e' || c == 'E') && r->flavor != SQL_FLAVOR_SQLITE);
    }
    if ((c == 'u' || c == 'U') && next == '&' && (after == '\'' || after == '"')) {
        return quoted_part(r, after == '"' ? SQL_PART_QUOTED : SQL_PART_STRING, 2, false);
    }
    while (weir__sql_is_name_byte(byte_at(r, len)) || byte_at(r, len) == '$') {
        len++;
    }
    return (sql_part){ .kind = SQL_PART_WORD, .len = len };
}

sql_part weir__sql_part(weir_str sql, size_t at, sql_flavor flavor)
{
    const sql_rest r = { .ptr = sql.ptr + at, .len = sql.len - at, .flavor = flavor };
    const char c = r.ptr[0], next = byte_at(&r, 1);
    size_t len = 1;

    if (c == '-' && next == '-') {
        return (sql_part){ .kind = SQL_PART_COMMENT, .len = line_end(&r, 2) };
    }
    if (c == '/' && next == '*') {
        return comment_part(&r);
    }
    if (c == '\'') {
        return quoted_part(&r, SQL_PART_STRING, 0, false);
    }
    if (c == '"' || (c == '`' && flavor != SQL_FLAVOR_POSTGRES) ||
        (c == '[' && flavor == SQL_FLAVOR_SQLITE)) {
        return quoted_part(&r, SQL_PART_QUOTED, 0, false);
    }
    if (c == '$' && flavor != SQL_FLAVOR_SQLITE) {
        return dollar_part(&r);
    }
    if (weir__sql_is_letter(c)) {
        return word_part(&r);
    }
    if (c >= '0' && c <= '9') {
        while (weir__sql_is_name_byte(byte_at(&r, len))) {
            len++;
        }
        return (sql_part){ .kind = SQL_PART_NUMBER, .len = len };
    }
    return (sql_part){ .kind = SQL_PART_BYTE, .len = len };
}
