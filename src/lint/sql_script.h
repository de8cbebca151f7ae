/* sql_script.h - a script as a reviewer sees it: statements, what they read and write, and which of
 * them share a transaction.
 *
 * A script is a file or the body of a function. Not a parser of SQL: it finds the clauses of
 * SELECT, UPDATE, DELETE and INSERT wherever they are nested, and passes over everything else.
 *
 * INVARIANTS
 *   (1) Statements cover the tokens in order and do not overlap; queries lie inside theirs.
 *   (2) A query's parent comes before it.
 *   (3) Ranges are half-open runs of token indexes; an empty one: there is no such clause.
 */
#ifndef WEIR_LINT_SQL_SCRIPT_H
#define WEIR_LINT_SQL_SCRIPT_H

#include "lint/sql_token.h"

typedef struct sql_range {
    size_t begin, end;
} sql_range;

typedef enum sql_verb {
    SQL_SELECT,
    SQL_UPDATE,
    SQL_DELETE,
    SQL_INSERT,
} sql_verb;

/* Where a query stands. */
typedef enum sql_role {
    SQL_ROLE_TOP,    /* the statement itself, or a branch of its UNION          */
    SQL_ROLE_CTE,    /* WITH name AS (...)                                      */
    SQL_ROLE_IN,     /* IN (...), = ANY (...)                                   */
    SQL_ROLE_FROM,   /* a table of FROM or USING                                */
    SQL_ROLE_ARRAY,  /* ARRAY(...)                                              */
    SQL_ROLE_EXISTS, /* EXISTS (...)                                            */
    SQL_ROLE_VALUE,  /* any other expression                                    */
} sql_role;

typedef enum sql_lock {
    SQL_LOCK_NONE = 0,
    SQL_LOCK_SHARE,  /* FOR SHARE, FOR KEY SHARE            */
    SQL_LOCK_UPDATE, /* FOR UPDATE, FOR NO KEY UPDATE       */
} sql_lock;

typedef enum sql_wait {
    SQL_WAIT = 0,
    SQL_WAIT_SKIP,
    SQL_WAIT_NOWAIT,
} sql_wait;

enum { SQL_NONE = SIZE_MAX }; /* no such token, query or statement */

typedef struct sql_query {
    sql_verb verb;
    sql_role role;
    size_t parent; /* a query; SQL_NONE */
    size_t statement;
    size_t begin;        /* the verb                                                       */
    size_t table;        /* the last part of the name: what is written, or read first      */
    size_t alias;        /* SQL_NONE                                                       */
    size_t cte;          /* the name in WITH; SQL_NONE                                     */
    sql_range list;      /* SELECT: what is selected; INSERT: the columns                  */
    sql_range from;      /* FROM or USING                                                  */
    sql_range where;     /* WHERE                                                          */
    sql_range order;     /* ORDER BY                                                       */
    sql_range limit;     /* LIMIT or FETCH FIRST                                           */
    sql_range set;       /* UPDATE ... SET                                                 */
    sql_range values;    /* INSERT ... VALUES                                              */
    sql_range returning; /* RETURNING                                                      */
    sql_lock lock;
    sql_wait wait;
    sql_range of;  /* FOR UPDATE OF */
    bool distinct; /* DISTINCT, GROUP BY, HAVING, UNION: its rows are not rows of the table */
} sql_query;

typedef struct sql_statement {
    sql_range tokens;  /* without the ';' */
    sql_range queries; /* indexes */
    uint32_t section;
    uint32_t transaction; /* the same number: the same transaction                     */
    bool alone;           /* it is a transaction of its own, as nothing else was asked for */
} sql_statement;

/* SQL inside the script that is a script of its own. */
typedef struct sql_body {
    weir_str text; /* quotes that are doubled in it are single */
    uint32_t line;
} sql_body;

typedef struct sql_script {
    sql_tokens tokens;
    weir_buffer statements; /* of sql_statement */
    weir_buffer queries;    /* of sql_query */
    weir_buffer bodies;     /* of sql_body */
    bool body;              /* of a function: BEGIN is a block, and all is one transaction */
} sql_script;

/* As weir__sql_tokenize. */
weir_status weir__sql_script_read(weir_str text, uint32_t line, bool body, weir_arena *arena,
                                  sql_script *out, uint32_t *bad_line, weir_error *err);
void weir__sql_script_free(sql_script *s);

/* sql_query.c. The queries of the tokens of a statement, into script->queries. */
weir_status weir__sql_queries_read(sql_script *s, size_t statement, sql_range tokens,
                                   weir_error *err);

static inline const sql_token *weir__sql_at(const sql_script *s, size_t i)
{
    return weir__sql_token(&s->tokens, i);
}

static inline size_t weir__sql_statements_count(const sql_script *s)
{
    return s->statements.len / sizeof(sql_statement);
}

static inline sql_statement *weir__sql_statement(const sql_script *s, size_t i)
{
    return (sql_statement *)(void *)s->statements.ptr + i;
}

static inline size_t weir__sql_queries_count(const sql_script *s)
{
    return s->queries.len / sizeof(sql_query);
}

static inline sql_query *weir__sql_query(const sql_script *s, size_t i)
{
    return (sql_query *)(void *)s->queries.ptr + i;
}

/* Whether token i of the range begins with these words; a NULL ends them. */
bool weir__sql_words(const sql_script *s, size_t i, size_t end, const char *a, const char *b,
                     const char *c);
/* The end of the element of a list that begins at i: a comma outside parentheses, or `end`. */
size_t weir__sql_element(const sql_script *s, size_t i, size_t end);
/* The next token of the range that is not inside parentheses which begin at i. */
static inline size_t weir__sql_over(const sql_script *s, size_t i)
{
    return weir__sql_is_op(weir__sql_at(s, i), "(") ? weir__sql_at(s, i)->match + 1 : i + 1;
}

#endif
