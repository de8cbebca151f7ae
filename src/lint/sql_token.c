/* sql_token.c - text into tokens.
 *
 * Strings, names and comments are those of base/sql.h. Other tokens are as PostgreSQL's scanner has
 * them: an operator ends before a comment and before a sign that belongs to a number. Beside SQL
 * there may be lines for psql and sqlite3, the data of COPY ... FROM STDIN, and the holes of
 * templates.
 */
#include "lint/sql_token.h"

#include "base/assert.h"
#include "base/sql.h"

#include <strings.h>

enum { OPEN_BYTES_MIN = 64 };

typedef struct scanner {
    const char *at, *end;
    uint32_t line;
    bool at_start;   /* nothing of a statement has been seen since the last ';' */
    bool line_start; /* nothing but space stands before `at` on its line */
    bool section;    /* for the next token */
    uint8_t copying; /* how much of COPY ... FROM STDIN has been seen in this statement: 0 to 3 */
    weir_arena *arena;
    sql_tokens *out;
    weir_buffer open; /* of size_t: parentheses that wait for their partner */
    bool in_rule;     /* CREATE RULE, the one statement with ';' between parentheses */
    uint32_t bad_line;
    weir_error *err;
} scanner;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_op_char(char c)
{
    return c != '\0' && strchr("+-*/<>=~!@#%^&|?", c) != NULL;
}

/* The byte `n` further on; NUL past the end. */
static char byte_at(const scanner *s, size_t n)
{
    return (size_t)(s->end - s->at) > n ? s->at[n] : '\0';
}

static weir_status no_memory(const scanner *s)
{
    return weir__fail(s->err, WEIR_ENOMEM, "out of memory");
}

static weir_status scan_fail(scanner *s, uint32_t line, const char *what)
{
    s->bad_line = line;
    return weir__fail(s->err, WEIR_EINVAL, "%s", what);
}

static const sql_token *token_last(const scanner *s)
{
    const size_t count = weir__sql_tokens_count(s->out);
    return count == 0 ? NULL : weir__sql_token(s->out, count - 1);
}

/* Moves on by `len` bytes, counting lines. */
static void bytes_skip(scanner *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        s->line += s->at[i] == '\n' ? 1 : 0;
    }
    s->at += len;
}

static weir_str text_lower(const scanner *s, weir_str text)
{
    size_t i = 0;

    while (i < text.len && !(text.ptr[i] >= 'A' && text.ptr[i] <= 'Z')) {
        i++;
    }
    if (i == text.len) {
        return text;
    }
    char *copy = weir__arena_copy(s->arena, text.ptr, text.len);
    if (copy == NULL) {
        return (weir_str){ 0 };
    }
    for (; i < text.len; i++) {
        if (copy[i] >= 'A' && copy[i] <= 'Z') {
            copy[i] = (char)(copy[i] - 'A' + 'a');
        }
    }
    return (weir_str){ copy, text.len };
}

/* ---- what every token goes through ----------------------------------------------------------- */

static weir_status close_parenthesis(scanner *s, sql_token *t, size_t index)
{
    size_t partner;

    if (s->open.len == 0) {
        return scan_fail(s, t->line, "a parenthesis is closed that was not opened");
    }
    s->open.len -= sizeof partner;
    memcpy(&partner, s->open.ptr + s->open.len, sizeof partner);
    t->match = partner;
    ((sql_token *)(void *)s->out->tokens.ptr)[partner].match = index;
    return WEIR_OK;
}

static weir_status check_parentheses(scanner *s)
{
    size_t index;

    if (s->open.len == 0) {
        return WEIR_OK;
    }
    memcpy(&index, s->open.ptr + s->open.len - sizeof index, sizeof index);
    return scan_fail(s, weir__sql_token(s->out, index)->line, "this parenthesis is not closed");
}

static bool is_char(const sql_token *t, char c)
{
    return t->kind == SQL_OP && t->text.len == 1 && t->text.ptr[0] == c;
}

/* Follows COPY ... FROM STDIN and CREATE RULE through a statement. */
static void statement_follow(scanner *s, const sql_token *t)
{
    if (is_char(t, ';') && s->open.len == 0) {
        s->at_start = true;
        s->in_rule = false;
        return;
    }
    if (s->at_start) {
        s->copying = weir__sql_is_word(t, "copy") ? 1 : 0;
    } else if (s->copying == 1 && weir__sql_is_word(t, "from")) {
        s->copying = 2;
    } else if (s->copying == 2) {
        s->copying = weir__sql_is_word(t, "stdin") ? 3 : 1;
    }
    if (weir__sql_is_word(t, "rule") && token_last(s) != NULL) {
        const sql_token *before = token_last(s);
        s->in_rule = weir__sql_is_word(before, "create") || weir__sql_is_word(before, "replace");
    }
    s->at_start = false;
}

/* Adds the token of the next `len` bytes. name: see sql_token; body: where its contents begin. */
static weir_status token_add(scanner *s, sql_kind kind, size_t len, weir_str name, size_t body)
{
    const size_t index = weir__sql_tokens_count(s->out);
    sql_token t = {
        .kind = kind, .line = s->line, .section = s->section, .text = { s->at, len }, .name = name
    };
    weir_status status = WEIR_OK;

    t.body_line = s->line;
    for (size_t i = 0; i < body; i++) {
        t.body_line += s->at[i] == '\n' ? 1 : 0;
    }
    if (kind == SQL_WORD) {
        t.name = text_lower(s, t.text);
        if (t.name.ptr == NULL) {
            return no_memory(s);
        }
    }
    statement_follow(s, &t);
    if (is_char(&t, '(')) {
        if (s->open.len / sizeof index >= SQL_DEPTH_MAX) {
            return scan_fail(s, s->line, "parentheses are nested more than 200 deep");
        }
        if (!weir__buffer_add(&s->open, &index, sizeof index)) {
            return no_memory(s);
        }
    } else if (is_char(&t, ')')) {
        status = close_parenthesis(s, &t, index);
    } else if (is_char(&t, ';') && !s->in_rule) {
        status = check_parentheses(s);
    }
    if (status == WEIR_OK && !weir__buffer_add(&s->out->tokens, &t, sizeof t)) {
        status = no_memory(s);
    }
    s->section = false;
    s->line_start = false;
    bytes_skip(s, len);
    return status;
}

static weir_status plain_add(scanner *s, sql_kind kind, size_t len)
{
    return token_add(s, kind, len, (weir_str){ 0 }, 0);
}

/* ---- comments -------------------------------------------------------------------------------- */

/* What a comment may say to us. */
static weir_status comment_read(scanner *s, const char *from, const char *to)
{
    static const char allow[] = "weir:allow";
    static const char name[] = "name:";
    const char *p = from;

    while (p < to && (is_space(*p) || *p == '-' || *p == '*' || *p == '/')) {
        p++;
    }
    const size_t len = (size_t)(to - p);
    if (len >= sizeof name - 1 && memcmp(p, name, sizeof name - 1) == 0) {
        s->section = true;
    }
    if (len > sizeof allow - 1 && memcmp(p, allow, sizeof allow - 1) == 0) {
        p += sizeof allow - 1;
        const char *newline = memchr(p, '\n', (size_t)(to - p));
        const sql_allow a = { .token = weir__sql_tokens_count(s->out),
                              .line = s->line,
                              .rules = { p, (size_t)((newline == NULL ? to : newline) - p) } };
        if (!weir__buffer_add(&s->out->allows, &a, sizeof a)) {
            return no_memory(s);
        }
    }
    return WEIR_OK;
}

static weir_status comment_skip(scanner *s, const sql_part *part)
{
    if (part->endless) {
        return scan_fail(s, s->line, "the comment that begins here does not end");
    }
    const weir_status status = comment_read(s, s->at, s->at + part->len);
    bytes_skip(s, part->len);
    return status;
}

/* ---- quotes ---------------------------------------------------------------------------------- */

static sql_part part_at(const scanner *s, size_t n)
{
    return weir__sql_part((weir_str){ s->at, (size_t)(s->end - s->at) }, n, SQL_FLAVOR_ANY);
}

/* The token of `prefix` bytes and the part with quotes behind them. */
static weir_status quoted_add(scanner *s, sql_kind kind, size_t prefix, const sql_part *part)
{
    const size_t opening = prefix + part->opening;

    if (part->endless) {
        return scan_fail(s, s->line,
                         part->kind == SQL_PART_QUOTED
                             ? "the quoted name that begins here does not end"
                         : part->kind == SQL_PART_DOLLAR
                             ? "the dollar-quoted string that begins here does not end"
                             : "the string that begins here does not end");
    }
    return token_add(s, kind, prefix + part->len,
                     (weir_str){ s->at + opening, part->len - part->opening - part->closing },
                     opening);
}

/* ---- parameters and holes -------------------------------------------------------------------- */

/* Whether what comes next stands where a value may begin. */
static bool wants_value(const scanner *s)
{
    static const char *const before[] = { "limit",  "offset",    "and",  "or",     "not",
                                          "where",  "in",        "like", "ilike",  "between",
                                          "values", "set",       "then", "else",   "when",
                                          "select", "returning", "on",   "by",     "first",
                                          "next",   "any",       "from", "update", "into",
                                          "as",     "is",        "over", "having", "using" };
    const sql_token *t = token_last(s);

    if (t == NULL) {
        return true;
    }
    if (t->kind == SQL_OP) {
        return !is_char(t, ')') && !is_char(t, ']');
    }
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        if (weir__sql_is_word(t, before[i])) {
            return true;
        }
    }
    return false;
}

/* Letters and digits from byte `n` on. */
static size_t part_end(const scanner *s, size_t n)
{
    while (weir__sql_is_name_byte(byte_at(s, n))) {
        n++;
    }
    return n;
}

/* {name}, ${name}, #{name}, {{ name }}: `n` is where the brace is. 0: it is none. */
static size_t braces_len(const scanner *s, size_t n)
{
    size_t depth = 0;

    for (;; n++) {
        const char c = byte_at(s, n);
        if (c == '\0' || c == '\n' || c == ';' || c == '\'') {
            return 0;
        }
        depth += c == '{' ? 1 : 0;
        if (c == '}' && --depth == 0) {
            return n + 1;
        }
    }
}

/* How long the parameter or hole at `at` is, and which it is; 0: there is none. */
static size_t parameter_len(const scanner *s, sql_kind *kind)
{
    const char c = *s->at, next = byte_at(s, 1);
    size_t n = 0;

    *kind = SQL_PARAM;
    if (c == '$' || (c == ':' && next != ':' && next != '=')) {
        n = part_end(s, 1);
        n = n > 1 && (c == '$' || !is_digit(next)) ? n : 0;
    } else if ((c == '?' || (c == '@' && weir__sql_is_letter(next))) && wants_value(s)) {
        n = part_end(s, 1);
    } else if (c == '%' && wants_value(s)) {
        if (next == 's' && !weir__sql_is_name_byte(byte_at(s, 2))) {
            n = 2;
        } else if (next == '(' && byte_at(s, part_end(s, 2)) == ')') {
            n = part_end(s, 2) + 2;
            n = byte_at(s, n - 1) == 's' ? n : 0;
        }
    }
    if (n == 0) {
        *kind = SQL_HOLE;
        if (c == '<' && weir__sql_is_letter(next) && byte_at(s, part_end(s, 1)) == '>' &&
            byte_at(s, part_end(s, 1) + 1) != '>' && byte_at(s, part_end(s, 1) + 1) != '=') {
            n = part_end(s, 1) + 1;
        } else if (c == '{' || ((c == '$' || c == '#') && next == '{')) {
            n = braces_len(s, c == '{' ? 0 : 1);
        }
    }
    return n;
}

/* ---- numbers, operators ---------------------------------------------------------------------- */

static weir_status number_add(scanner *s)
{
    size_t n = part_end(s, 0);

    /* 1..10 of a loop is two numbers. */
    if (byte_at(s, n) == '.' && byte_at(s, n + 1) != '.') {
        n = part_end(s, n + 1);
    }
    const char e = byte_at(s, n - 1);
    if ((e == 'e' || e == 'E') && (byte_at(s, n) == '+' || byte_at(s, n) == '-') &&
        is_digit(byte_at(s, n + 1)) && byte_at(s, 1) != 'x') {
        n = part_end(s, n + 1);
    }
    return plain_add(s, SQL_NUMBER, n);
}

/* Whether byte `n` begins a parameter or a hole that stands right behind an operator. */
static bool begins_value(const scanner *s, size_t n)
{
    const char c = byte_at(s, n), after = byte_at(s, n + 1);

    return (c == '?' && byte_at(s, 0) != '@') || (c == '#' && after == '{') ||
           (c == '@' && weir__sql_is_letter(after)) ||
           (c == '<' && weir__sql_is_letter(after) && byte_at(s, 0) == '=') ||
           (c == '%' &&
            (after == '(' || (after == 's' && !weir__sql_is_name_byte(byte_at(s, n + 2)))));
}

static weir_status operator_add(scanner *s)
{
    size_t n = 0;
    bool special = false; /* has a character after which + and - may end an operator */

    while (is_op_char(byte_at(s, n)) && !(byte_at(s, n) == '-' && byte_at(s, n + 1) == '-') &&
           !(byte_at(s, n) == '/' && byte_at(s, n + 1) == '*') && !(n > 0 && begins_value(s, n))) {
        special = special || strchr("~!@#%^&|?", byte_at(s, n)) != NULL;
        n++;
    }
    while (n > 1 && !special && (byte_at(s, n - 1) == '+' || byte_at(s, n - 1) == '-')) {
        n--;
    }
    if (n == 0) {
        const char next = byte_at(s, 1);
        n = (*s->at == ':' && (next == ':' || next == '=')) || (*s->at == '.' && next == '.') ? 2
                                                                                              : 1;
    }
    return plain_add(s, SQL_OP, n);
}

/* ---- what is not SQL ------------------------------------------------------------------------- */

static size_t line_rest(const scanner *s)
{
    const char *newline = memchr(s->at, '\n', (size_t)(s->end - s->at));
    return (size_t)((newline == NULL ? s->end : newline) - s->at);
}

/* A command for psql, from the backslash to the end of the line. Those that send what has been
 * typed so far end a statement; the others may stand in the middle of one. */
static weir_status meta_read(scanner *s)
{
    static const char *const sending[] = { "\\g",     "\\gx",           "\\gset", "\\gexec",
                                           "\\gdesc", "\\crosstabview", "\\watch" };
    const size_t len = line_rest(s);
    weir_status status = WEIR_OK;

    if (byte_at(s, 1) == ';') {
        s->at++;
        return plain_add(s, SQL_OP, 1);
    }
    const size_t name = part_end(s, 1);
    for (size_t i = 0; i < sizeof sending / sizeof sending[0] && !s->at_start; i++) {
        if (name == strlen(sending[i]) && memcmp(s->at, sending[i], name) == 0) {
            const sql_token end = { .kind = SQL_OP, .line = s->line, .text = { ";", 1 } };
            statement_follow(s, &end);
            status = check_parentheses(s);
            if (status == WEIR_OK && !weir__buffer_add(&s->out->tokens, &end, sizeof end)) {
                status = no_memory(s);
            }
            bytes_skip(s, len);
            return status;
        }
    }
    if (s->at_start) {
        status = plain_add(s, SQL_META, len);
        s->at_start = true;
        return status;
    }
    bytes_skip(s, len);
    return WEIR_OK;
}

/* The lines behind COPY ... FROM STDIN; up to and with the one that is \. alone. */
static void copy_data(scanner *s)
{
    bytes_skip(s, line_rest(s));
    while (s->at < s->end) {
        bytes_skip(s, 1);
        const size_t len = line_rest(s);
        const bool ends = len >= 2 && memcmp(s->at, "\\.", 2) == 0 &&
                          (len == 2 || (len == 3 && s->at[2] == '\r'));
        bytes_skip(s, len);
        if (ends) {
            return;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Code that is neither a word nor a number. */
static weir_status byte_read(scanner *s)
{
    const char c = *s->at;
    sql_kind kind = SQL_PARAM;

    if (is_space(c)) {
        s->line_start = s->line_start || c == '\n';
        bytes_skip(s, 1);
        return WEIR_OK;
    }
    if (c == '\\') {
        return meta_read(s);
    }
    if (c == '.' && s->at_start && s->line_start && weir__sql_is_letter(byte_at(s, 1))) {
        const weir_status status = plain_add(s, SQL_META, line_rest(s));
        s->at_start = true;
        return status;
    }
    if (c == ':' && (byte_at(s, 1) == '\'' || byte_at(s, 1) == '"')) {
        const sql_part part = part_at(s, 1);
        return quoted_add(s, SQL_PARAM, 1, &part);
    }
    const size_t n = parameter_len(s, &kind);
    if (n > 0) {
        return plain_add(s, kind, n);
    }
    return c == '.' && is_digit(byte_at(s, 1)) ? number_add(s) : operator_add(s);
}

static weir_status token_read(scanner *s)
{
    const sql_part part = part_at(s, 0);

    switch (part.kind) {
    case SQL_PART_BYTE:
        break;
    case SQL_PART_WORD:
        return plain_add(s, SQL_WORD, part.len);
    case SQL_PART_NUMBER:
        return number_add(s);
    case SQL_PART_COMMENT:
        return comment_skip(s, &part);
    case SQL_PART_STRING:
        return quoted_add(s, SQL_STRING, 0, &part);
    case SQL_PART_DOLLAR:
        return quoted_add(s, SQL_DOLLAR, 0, &part);
    case SQL_PART_QUOTED:
        return quoted_add(s, SQL_QUOTED, 0, &part);
    }
    return byte_read(s);
}

/* UTF-8 without NUL, and past the mark that some editors put in front. */
static weir_status check_bytes(scanner *s)
{
    if (s->end - s->at >= 3 && memcmp(s->at, "\xEF\xBB\xBF", 3) == 0) {
        s->at += 3;
    }
    const size_t valid = weir__utf8_valid_prefix(s->at, (size_t)(s->end - s->at));
    const char *nul = memchr(s->at, '\0', valid);
    if (nul == NULL && valid == (size_t)(s->end - s->at)) {
        return WEIR_OK;
    }
    bytes_skip(s, nul != NULL ? (size_t)(nul - s->at) : valid);
    return scan_fail(s, s->line, nul != NULL ? "there is a NUL byte in it" : "it is not UTF-8");
}

weir_status weir__sql_tokenize(weir_str text, uint32_t line, weir_arena *arena, sql_tokens *out,
                               uint32_t *bad_line, weir_error *err)
{
    const char *begin = text.len == 0 ? "" : text.ptr;
    scanner s = { .at = begin,
                  .end = begin + text.len,
                  .line = line,
                  .at_start = true,
                  .line_start = true,
                  .arena = arena,
                  .out = out,
                  .err = err };
    weir_status status = WEIR_OK;

    if (text.len > SQL_BYTES_MAX) {
        status = scan_fail(&s, line, "there are more than 64 MiB of it");
    } else {
        status = check_bytes(&s);
    }
    while (status == WEIR_OK && s.at < s.end) {
        status = token_read(&s);
        if (status == WEIR_OK && s.at_start && s.copying == 3) {
            s.copying = 0;
            copy_data(&s);
        }
    }
    if (status == WEIR_OK) {
        status = check_parentheses(&s);
    }
    const sql_token end = { .kind = SQL_END, .line = s.line };
    if (status == WEIR_OK && !weir__buffer_add(&out->tokens, &end, sizeof end)) {
        status = no_memory(&s);
    }
    *bad_line = s.bad_line;
    weir__buffer_free(&s.open);
    return status;
}

void weir__sql_tokens_free(sql_tokens *t)
{
    weir__buffer_free(&t->tokens);
    weir__buffer_free(&t->allows);
}
