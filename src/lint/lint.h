/* lint.h - a careful reviewer for SQL that claims rows. README.md says what a claim is and what is
 * asked of it. Needs no database.
 */
#ifndef WEIR_LINT_LINT_H
#define WEIR_LINT_LINT_H

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

/* In the order in which findings of one line are reported. */
typedef enum lint_rule {
    LINT_NO_ROW_LOCK,
    LINT_NO_SKIP_LOCKED,
    LINT_NO_ORDER,
    LINT_NO_TIE_BREAK,
    LINT_NO_LIMIT,
    LINT_WRONG_LIMIT,
    LINT_LIMIT_NOT_KEPT,
    LINT_NO_FLIP,
    LINT_NOT_ONE_TRANSACTION,
    LINT_WORK_UNDER_LOCK,
    LINT_LOCK_KEY_COLLIDES,
    LINT_LOCK_NOT_RETURNED,
    LINT_KEY_CHANGES,
    LINT_RULES_COUNT,
} lint_rule;

typedef struct lint_rule_info {
    const char *name;    /* an interface: never renamed                    */
    const char *message; /* what goes wrong, and what to do: one sentence  */
    const char *wrong;   /* SQL that has this finding, and no other        */
    const char *right;   /* the same, mended: it has none                  */
} lint_rule_info;

extern const lint_rule_info weir__lint_rules[LINT_RULES_COUNT];

typedef enum lint_dialect {
    LINT_DIALECT_GUESS = 0, /* SQLite if the text has something that only SQLite takes */
    LINT_DIALECT_POSTGRES,
    LINT_DIALECT_SQLITE,
} lint_dialect;

typedef struct lint_options {
    lint_dialect dialect;
    int64_t limit; /* how many rows a claim is to take; 0: any number will do */
} lint_options;

typedef struct lint_finding {
    uint32_t line;
    lint_rule rule;
    weir_str message; /* in the report's arena, or static */
} lint_finding;

/* Zero at first. */
typedef struct lint_report {
    weir_arena arena;
    weir_buffer findings; /* of lint_finding, by line and then by rule; no two are alike */
    uint32_t bad_line;    /* EINVAL: where the text cannot be read */
} lint_report;

/* EINVAL: the text cannot be read as SQL. */
weir_status weir__lint(weir_str text, const lint_options *options, lint_report *out,
                       weir_error *err);
void weir__lint_report_free(lint_report *r);

static inline size_t weir__lint_findings_count(const lint_report *r)
{
    return r->findings.len / sizeof(lint_finding);
}

static inline const lint_finding *weir__lint_finding(const lint_report *r, size_t i)
{
    return (const lint_finding *)(const void *)r->findings.ptr + i;
}

#endif
