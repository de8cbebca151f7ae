/* sql.h - where the parts of SQL begin and end: words, strings, names in quotes, comments.
 *
 * Whoever reads SQL otherwise than its database does takes text for code, or code for text. So
 * there is one place that knows:
 *
 *   PostgreSQL  comments nest, and -- ends at \n or \r; in E'...' a backslash escapes, also in its
 *               continuation on another line; $tag$...$tag$ is a string, but not inside of a word
 *   SQLite      comments do not nest, and -- ends at \n; `name` and [name] are names
 *   any         not known which of them: as PostgreSQL, and `name` is a name
 */
#ifndef WEIR_BASE_SQL_H
#define WEIR_BASE_SQL_H

#include "base/str.h"

typedef enum sql_flavor {
    SQL_FLAVOR_POSTGRES = 0,
    SQL_FLAVOR_SQLITE,
    SQL_FLAVOR_ANY,
} sql_flavor;

typedef enum sql_part_kind {
    SQL_PART_BYTE = 0, /* one byte of code: an operator, punctuation, white space, NUL */
    SQL_PART_WORD,     /* a keyword, or a name without quotes                          */
    SQL_PART_NUMBER,   /* digits, and letters right behind them                        */
    SQL_PART_COMMENT,
    SQL_PART_STRING, /* '...', with its E, B, X, N or U&                             */
    SQL_PART_DOLLAR, /* $tag$...$tag$                                                */
    SQL_PART_QUOTED, /* "name", U&"name", `name`, [name]                             */
} sql_part_kind;

typedef struct sql_part {
    sql_part_kind kind;
    size_t len;     /* of the whole part; if it has no end, that of the rest */
    size_t opening; /* how much of it is in front of the contents ...        */
    size_t closing; /* ... and behind them                                   */
    bool endless;   /* a string, name or comment that does not end           */
} sql_part;

/* What begins at `at`, which is where another part has ended, and less than sql.len. */
sql_part weir__sql_part(weir_str sql, size_t at, sql_flavor flavor);

/* A letter with which a name without quotes may begin; one that may follow it, but for $. */
static inline bool weir__sql_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

static inline bool weir__sql_is_name_byte(char c)
{
    return weir__sql_is_letter(c) || (c >= '0' && c <= '9');
}

#endif
