/* claim_scan.c - a scanner for the SQL that users give: finds :name, and nothing that only looks
 * like it.
 *
 * Strings ('...', E'...\'...', $tag$...$tag$), names in quotes, comments (nested on PostgreSQL) and
 * :: are passed over. What is found at the same time is refused: SQL that would reach out of the
 * parentheses it is put in.
 */
#define _GNU_SOURCE /* memmem */

#include "claim/claim_private.h"

#include <string.h>
#include <strings.h>

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || ((unsigned char)c) > 127;
}

bool weir__claim_is_name(char c)
{
    return is_name_start(c) || (c >= '0' && c <= '9');
}

static char char_at(const claim_scan *s, size_t at)
{
    return at < s->sql.len ? s->sql.ptr[at] : '\0';
}

static weir_status unfinished(const claim_scan *s, const char *what, weir_error *err)
{
    const size_t len = s->sql.len - s->at;
    return weir__fail(err, WEIR_EINVAL, "%s does not end: %.*s", what, (int)(len < 40 ? len : 40),
                      s->sql.ptr + s->at);
}

/* The end of what begins with a quote at `at`; 0: there is none. */
static size_t quoted_end(const claim_scan *s, size_t at, char quote, bool backslashes)
{
    for (size_t i = at + 1; i < s->sql.len; i++) {
        if (backslashes && s->sql.ptr[i] == '\\') {
            i++;
        } else if (s->sql.ptr[i] == quote) {
            return i + 1; /* a doubled one is the end of one and the beginning of the next */
        }
    }
    return 0;
}

static size_t comment_end(const claim_scan *s, size_t at)
{
    size_t depth = 1;
    for (size_t i = at + 2; i + 1 < s->sql.len; i++) {
        const bool open = s->sql.ptr[i] == '/' && s->sql.ptr[i + 1] == '*';
        const bool close = s->sql.ptr[i] == '*' && s->sql.ptr[i + 1] == '/';
        if (open && s->dialect == TABLE_POSTGRES) {
            depth++;
            i++;
        } else if (close) {
            depth--;
            i++;
            if (depth == 0) {
                return i + 1;
            }
        }
    }
    return 0;
}

/* The length of $tag$ at `at`; 0: it is none. */
static size_t dollar_tag(const claim_scan *s, size_t at)
{
    size_t i = at + 1;
    while (weir__claim_is_name(char_at(s, i)) && !(i == at + 1 && !is_name_start(char_at(s, i)))) {
        i++;
    }
    return char_at(s, i) == '$' ? i + 1 - at : 0;
}

static size_t dollar_end(const claim_scan *s, size_t at, size_t tag)
{
    const char *end = memmem(s->sql.ptr + at + tag, s->sql.len - at - tag, s->sql.ptr + at, tag);
    return end == NULL ? 0 : (size_t)(end - s->sql.ptr) + tag;
}

/* E'...': the letter stands alone before the quote. */
static bool has_backslashes(const claim_scan *s, size_t at)
{
    return s->dialect == TABLE_POSTGRES && at > 0 &&
           (s->sql.ptr[at - 1] == 'E' || s->sql.ptr[at - 1] == 'e') &&
           !(at > 1 && weir__claim_is_name(s->sql.ptr[at - 2]));
}

/* Passes over what is no code at s->at; *end is s->at when it is code. */
static weir_status skip(const claim_scan *s, size_t *end, weir_error *err)
{
    const size_t at = s->at;
    const char c = char_at(s, at);
    const char next = char_at(s, at + 1);
    const char *what = NULL;
    if (c == '-' && next == '-') {
        const char *line = memchr(s->sql.ptr + at, '\n', s->sql.len - at);
        *end = line == NULL ? s->sql.len : (size_t)(line - s->sql.ptr);
    } else if (c == '/' && next == '*') {
        *end = comment_end(s, at);
        what = "a comment";
    } else if (c == '\'') {
        *end = quoted_end(s, at, c, has_backslashes(s, at));
        what = "a string";
    } else if (c == '"' || (s->dialect == TABLE_SQLITE && (c == '`' || c == '['))) {
        *end = quoted_end(s, at, c == '[' ? ']' : c, false);
        what = "a name in quotes";
    } else if (c == '$' && s->dialect == TABLE_POSTGRES && dollar_tag(s, at) > 0 &&
               !(at > 0 && weir__claim_is_name(s->sql.ptr[at - 1]))) {
        *end = dollar_end(s, at, dollar_tag(s, at));
        what = "a string";
    } else {
        *end = at;
    }
    return what != NULL && *end == 0 ? unfinished(s, what, err) : WEIR_OK;
}

static weir_status check_code(claim_scan *s, weir_error *err)
{
    const char c = char_at(s, s->at);
    s->depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (s->depth < 0) {
        return weir__fail(err, WEIR_EINVAL, "a parenthesis is closed that was not opened");
    }
    if (c == ';') {
        return weir__fail(err, WEIR_EINVAL, "a semicolon: this is one expression");
    }
    if (c == '$' && char_at(s, s->at + 1) >= '0' && char_at(s, s->at + 1) <= '9' &&
        !(s->at > 0 && weir__claim_is_name(s->sql.ptr[s->at - 1]))) {
        return weir__fail(err, WEIR_EINVAL,
                          "parameters have names here: :name with --param "
                          "name=VALUE");
    }
    return c == '\0' ? weir__fail(err, WEIR_EINVAL, "a NUL byte") : WEIR_OK;
}

weir_status weir__claim_scan_next(claim_scan *s, claim_piece *piece, bool *found, weir_error *err)
{
    const size_t start = s->at;
    *found = start < s->sql.len;
    if (!*found) {
        return WEIR_OK; /* an empty text may have no address at all */
    }
    if (s->sql.ptr[start] == ':' && is_name_start(char_at(s, start + 1))) {
        s->at++;
        while (weir__claim_is_name(char_at(s, s->at))) {
            s->at++;
        }
        *piece =
            (claim_piece){ .param = true,
                           .text = { .ptr = s->sql.ptr + start + 1, .len = s->at - start - 1 } };
        return WEIR_OK;
    }
    while (s->at < s->sql.len) {
        size_t end;
        weir_status status = skip(s, &end, err);
        if (status == WEIR_OK && end == s->at) {
            status = check_code(s, err);
            end++;
        }
        if (status != WEIR_OK) {
            return status;
        }
        const bool colon = s->sql.ptr[s->at] == ':';
        if (colon && char_at(s, s->at + 1) == ':') {
            end = s->at + 2;
        } else if (colon && is_name_start(char_at(s, s->at + 1))) {
            break;
        }
        s->at = end;
    }
    if (s->at == s->sql.len && s->depth != 0) {
        return weir__fail(err, WEIR_EINVAL, "a parenthesis is not closed");
    }
    *piece = (claim_piece){ .text = { .ptr = s->sql.ptr + start, .len = s->at - start } };
    return WEIR_OK;
}

/* A word stands here, in any case of letters. */
static bool is_word(const claim_scan *s, const char *word)
{
    const size_t len = strlen(word);
    return s->at + len <= s->sql.len && strncasecmp(s->sql.ptr + s->at, word, len) == 0 &&
           !weir__claim_is_name(char_at(s, s->at + len)) &&
           !(s->at > 0 && weir__claim_is_name(s->sql.ptr[s->at - 1]));
}

weir_status weir__claim_scan_and(claim_scan *s, size_t *end, size_t *next, weir_error *err)
{
    int64_t open = 0; /* CASE ... END */
    bool between = false;
    while (s->at < s->sql.len) {
        size_t after;
        weir_status status = skip(s, &after, err);
        if (status == WEIR_OK && after == s->at) {
            open += is_word(s, "case") ? 1 : is_word(s, "end") ? -1 : 0;
            const bool outside = s->depth == 0 && open <= 0;
            if (outside && is_word(s, "and") && !between) {
                *end = s->at;
                *next = s->at += strlen("and");
                return WEIR_OK;
            }
            if (outside && (is_word(s, "between") || is_word(s, "and"))) {
                between = is_word(s, "between"); /* its own AND comes next */
            }
            status = check_code(s, err);
            after++;
        }
        if (status != WEIR_OK) {
            return status;
        }
        s->at = after;
    }
    *end = *next = s->sql.len;
    return WEIR_OK;
}
