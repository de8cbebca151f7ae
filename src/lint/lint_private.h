/* lint_private.h - what the parts of the reviewer share. */
#ifndef WEIR_LINT_LINT_PRIVATE_H
#define WEIR_LINT_LINT_PRIVATE_H

#include "lint/lint.h"
#include "lint/sql_script.h"

/* What the text itself says about its tables. Names are those of tokens. */
typedef struct lint_keys {
    weir_buffer tables;  /* of weir_str: those with at least one key */
    weir_buffer keys;    /* of lint_key */
    weir_buffer columns; /* of weir_str */
} lint_keys;

typedef struct lint_key {
    weir_str table;
    size_t begin, end; /* in columns */
} lint_key;

/* One run over one text. */
typedef struct lint {
    lint_options options;
    bool sqlite;
    lint_keys keys;
    lint_report *report;
    weir_error *err;
} lint;

/* keys.c. Primary keys and unique columns that the script declares. */
weir_status weir__lint_keys_read(lint_keys *keys, const sql_script *s, weir_error *err);
void weir__lint_keys_free(lint_keys *keys);
/* Whether no two rows of the table agree in these columns, as far as the text tells. */
bool weir__lint_is_unique(const lint_keys *keys, weir_str table, const weir_str *columns,
                          size_t count);

/* clauses.c. Questions about a query. */
typedef struct lint_comparison {
    size_t column; /* the last part of its name; SQL_NONE: it is nothing so simple */
    sql_range value;
    bool equal; /* =, IN or = ANY */
} lint_comparison;

/* The conditions that all must hold, one after the other: begin with *i = 0. false: no more. */
bool weir__lint_condition(const sql_script *s, sql_range where, size_t *i, sql_range *out);
lint_comparison weir__lint_compare(const sql_script *s, sql_range condition);
/* Whether the range has this name as a column, outside queries of its own. */
bool weir__lint_mentions(const sql_script *s, sql_range run, weir_str name);
/* Whether a range holds a token of the kind. */
bool weir__lint_has_kind(const sql_script *s, sql_range run, sql_kind kind);
bool weir__lint_has_word(const sql_script *s, sql_range run, const char *word);
bool weir__lint_has_query(const sql_script *s, sql_range run);
/* The next assignment of SET: *i is where it begins, and then where the next one does. *column is
 * SQL_NONE for what cannot be told. */
bool weir__lint_assignment(const sql_script *s, sql_range set, size_t *i, size_t *column,
                           sql_range *value);
weir_str weir__lint_table(const sql_script *s, const sql_query *q);
/* The query's rows are found by their key. */
bool weir__lint_is_by_key(const lint *l, const sql_script *s, const sql_query *q);

/* claims.c, calls.c. */
weir_status weir__lint_claims(lint *l, const sql_script *s);
weir_status weir__lint_calls(lint *l, const sql_script *s);

/* lint.c. A finding at a token. `other`: a second statement whose comments may allow it. Without a
 * format the message is the rule's. */
weir_status weir__lint_add(lint *l, const sql_script *s, size_t token, size_t other, lint_rule rule,
                           const char *format, ...) WEIR_PRINTF(6, 7);
/* The statement that a token belongs to. */
size_t weir__lint_statement_of(const sql_script *s, size_t token);

#endif
