/* claim_scan.c - reads the SQL that users give: finds :name, and nothing that only looks like it.
 *
 * What is a string, a name in quotes or a comment is known by base/sql.h, and passed over; :: is
 * too. What is found at the same time is refused: SQL that would reach out of the parentheses it is
 * put in.
 */
#include "base/sql.h"
#include "claim/claim_private.h"

#include <string.h>
#include <strings.h>

static char byte_at(const claim_scan *s, size_t at)
{
    return at < s->sql.len ? s->sql.ptr[at] : '\0';
}

/* A byte of code is one that may stand between the parentheses. */
static weir_status byte_check(claim_scan *s, weir_error *err)
{
    const char c = byte_at(s, s->at), next = byte_at(s, s->at + 1);

    s->depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (s->depth < 0) {
        return weir__fail(err, WEIR_EINVAL, "a parenthesis is closed that was not opened");
    }
    if (c == ';') {
        return weir__fail(err, WEIR_EINVAL, "a semicolon: this is one expression");
    }
    if (c == '$' && next >= '0' && next <= '9') {
        return weir__fail(err, WEIR_EINVAL,
                          "parameters have names here: :name with --param "
                          "name=VALUE");
    }
    return WEIR_OK;
}

/* What begins at s->at. */
static weir_status part_read(claim_scan *s, sql_part *part, weir_error *err)
{
    static const char *const kinds[] = { [SQL_PART_COMMENT] = "a comment",
                                         [SQL_PART_STRING] = "a string",
                                         [SQL_PART_DOLLAR] = "a string",
                                         [SQL_PART_QUOTED] = "a name in quotes" };
    const char *text = s->sql.ptr + s->at;

    *part = weir__sql_part(s->sql, s->at,
                           s->dialect == TABLE_SQLITE ? SQL_FLAVOR_SQLITE : SQL_FLAVOR_POSTGRES);
    if (part->endless) {
        return weir__fail(err, WEIR_EINVAL, "%s does not end: %.*s", kinds[part->kind],
                          (int)(part->len < 40 ? part->len : 40), text);
    }
    if (memchr(text, '\0', part->len) != NULL) {
        return weir__fail(err, WEIR_EINVAL, "a NUL byte");
    }
    return part->kind == SQL_PART_BYTE ? byte_check(s, err) : WEIR_OK;
}

weir_status weir__claim_scan_next(claim_scan *s, claim_piece *piece, bool *found, weir_error *err)
{
    const size_t start = s->at;

    *found = start < s->sql.len;
    if (!*found) {
        return WEIR_OK; /* an empty text may have no address at all */
    }
    if (s->sql.ptr[start] == ':' && weir__sql_is_letter(byte_at(s, start + 1))) {
        s->at++;
        while (weir__sql_is_name_byte(byte_at(s, s->at))) {
            s->at++;
        }
        *piece =
            (claim_piece){ .param = true,
                           .text = { .ptr = s->sql.ptr + start + 1, .len = s->at - start - 1 } };
        return WEIR_OK;
    }
    while (s->at < s->sql.len) {
        const bool colon = s->sql.ptr[s->at] == ':';
        sql_part part = { .len = 2 };
        if (colon && weir__sql_is_letter(byte_at(s, s->at + 1))) {
            break;
        }
        if (!colon || byte_at(s, s->at + 1) != ':') {
            const weir_status status = part_read(s, &part, err);
            if (status != WEIR_OK) {
                return status;
            }
        }
        s->at += part.len;
    }
    if (s->at == s->sql.len && s->depth != 0) {
        return weir__fail(err, WEIR_EINVAL, "a parenthesis is not closed");
    }
    *piece = (claim_piece){ .text = { .ptr = s->sql.ptr + start, .len = s->at - start } };
    return WEIR_OK;
}

/* The word that was read, in any case of letters. */
static bool is_word(const claim_scan *s, const sql_part *part, const char *word)
{
    return part->kind == SQL_PART_WORD && part->len == strlen(word) &&
           strncasecmp(s->sql.ptr + s->at, word, part->len) == 0;
}

weir_status weir__claim_scan_and(claim_scan *s, size_t *end, size_t *next, weir_error *err)
{
    int64_t open = 0; /* CASE ... END */
    bool between = false;

    while (s->at < s->sql.len) {
        sql_part part;
        const weir_status status = part_read(s, &part, err);
        if (status != WEIR_OK) {
            return status;
        }
        open += is_word(s, &part, "case") ? 1 : is_word(s, &part, "end") ? -1 : 0;
        const bool outside = s->depth == 0 && open <= 0;
        if (outside && is_word(s, &part, "and") && !between) {
            *end = s->at;
            *next = s->at += part.len;
            return WEIR_OK;
        }
        if (outside && (is_word(s, &part, "between") || is_word(s, &part, "and"))) {
            between = is_word(s, &part, "between"); /* its own AND comes next */
        }
        s->at += part.len;
    }
    *end = *next = s->sql.len;
    return WEIR_OK;
}
