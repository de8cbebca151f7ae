/* sql_token.h - SQL as a run of tokens: PostgreSQL's, and SQLite's where it differs.
 *
 * A token knows its line and, if it is a parenthesis, its partner. Comments are not tokens; what
 * they can say to the reader of the tokens is kept beside them: `-- name:` begins a section, and
 * `weir:allow RULE` is a sql_allow. Everything is borrowed from the text, or lives in the arena.
 *
 * INVARIANTS
 *   (1) The last token is SQL_END, and there is no other.
 *   (2) '(' and ')' come in pairs: tokens[tokens[i].match].match == i, and no pair crosses another.
 *   (3) Lines never go down.
 */
#ifndef WEIR_LINT_SQL_TOKEN_H
#define WEIR_LINT_SQL_TOKEN_H

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SQL_BYTES_MAX = 64 * 1024 * 1024,
    SQL_DEPTH_MAX = 200, /* of parentheses */
};

typedef enum sql_kind {
    SQL_END = 0,
    SQL_WORD,   /* an unquoted name or keyword                                  */
    SQL_QUOTED, /* "name", U&"name", `name`                                     */
    SQL_STRING, /* '...' in any of its forms                                    */
    SQL_DOLLAR, /* $tag$...$tag$                                                */
    SQL_NUMBER,
    SQL_PARAM, /* $1, $name, :name, :'name', ?, ?1, @name, %s, %(name)s         */
    SQL_HOLE,  /* <name>, {name}, ${name}: any SQL that somebody will put there */
    SQL_OP,    /* operators and punctuation                                     */
    SQL_META,  /* a line that is not SQL: \! of psql, .mode of sqlite3          */
} sql_kind;

typedef struct sql_token {
    sql_kind kind;
    uint32_t line;
    bool section;  /* a comment before it begins a section, where statements stand alone */
    weir_str text; /* as it is written                                                */
    weir_str name; /* WORD: in lower case; QUOTED, STRING, DOLLAR: what is between the quotes */
    uint32_t body_line; /* DOLLAR, STRING: the line its contents begin on                  */
    size_t match;       /* of a parenthesis: the index of its partner                        */
} sql_token;

/* "weir:allow" in a comment. */
typedef struct sql_allow {
    size_t token;   /* the index of the token that follows it            */
    uint32_t line;  /* where it stands                                   */
    weir_str rules; /* what stands behind it, up to the end of its line  */
} sql_allow;

typedef struct sql_tokens {
    weir_buffer tokens; /* of sql_token */
    weir_buffer allows; /* of sql_allow */
} sql_tokens;

/* text: borrowed for as long as the tokens live; the arena too. line: the number of its first line.
 * EINVAL: it cannot be read as SQL, and *bad_line says where. `out` is zero at first, and is freed
 * by the caller in any case. */
weir_status weir__sql_tokenize(weir_str text, uint32_t line, weir_arena *arena, sql_tokens *out,
                               uint32_t *bad_line, weir_error *err);
void weir__sql_tokens_free(sql_tokens *t);

static inline const sql_token *weir__sql_token(const sql_tokens *t, size_t i)
{
    return (const sql_token *)(const void *)t->tokens.ptr + i;
}

static inline size_t weir__sql_tokens_count(const sql_tokens *t)
{
    return t->tokens.len / sizeof(sql_token);
}

/* word: in lower case. */
static inline bool weir__sql_is_word(const sql_token *t, const char *word)
{
    return t->kind == SQL_WORD && t->name.len == strlen(word) &&
           memcmp(t->name.ptr, word, t->name.len) == 0;
}

static inline bool weir__sql_is_op(const sql_token *t, const char *op)
{
    return t->kind == SQL_OP && t->text.len == strlen(op) &&
           memcmp(t->text.ptr, op, t->text.len) == 0;
}

/* Something that can be the name of a table or column. */
static inline bool weir__sql_is_name(const sql_token *t)
{
    return t->kind == SQL_WORD || t->kind == SQL_QUOTED || t->kind == SQL_HOLE;
}

#endif
