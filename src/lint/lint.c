/* lint.c - one text: its scripts are read, judged, and what was found is put in order.
 *
 * A file is a script; the bodies of its functions are scripts of their own, read in turn. What the
 * file declares about its tables counts in all of them.
 */
#include "lint/lint_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LINT_BODIES_DEPTH_MAX = 8, /* DO inside a function inside a DO ... */
    LINT_MESSAGE_BYTES_MAX = 512,
};

size_t weir__lint_statement_of(const sql_script *s, size_t token)
{
    size_t low = 0, high = weir__sql_statements_count(s);

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (weir__sql_statement(s, middle)->tokens.end <= token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Whether the list of rules in a comment has this one. */
static bool names_rule(weir_str list, const char *name)
{
    const size_t len = strlen(name);
    size_t i = 0;

    while (i < list.len) {
        size_t n = 0;
        while (i + n < list.len &&
               ((list.ptr[i + n] >= 'a' && list.ptr[i + n] <= 'z') || list.ptr[i + n] == '-')) {
            n++;
        }
        if (n == len && memcmp(list.ptr + i, name, len) == 0) {
            return true;
        }
        i += n > 0 ? n : 1;
    }
    return false;
}

/* A comment speaks of the statement it stands in or before, or, behind the ';' on its line, of the
 * one that ends there. */
static bool is_allowed(const sql_script *s, size_t statement, lint_rule rule)
{
    const sql_allow *allows = (const sql_allow *)(const void *)s->tokens.allows.ptr;

    for (size_t i = 0; i < s->tokens.allows.len / sizeof *allows; i++) {
        size_t token = allows[i].token;
        while (token > 0 && weir__sql_is_op(weir__sql_at(s, token - 1), ";") &&
               weir__sql_at(s, token - 1)->line == allows[i].line) {
            token--;
        }
        size_t of = weir__lint_statement_of(s, token);
        if (token != allows[i].token && of > 0) {
            of--;
        }
        if (of == statement && names_rule(allows[i].rules, weir__lint_rules[rule].name)) {
            return true;
        }
    }
    return false;
}

weir_status weir__lint_add(lint *l, const sql_script *s, size_t token, size_t other, lint_rule rule,
                           const char *format, ...)
{
    lint_finding f = { .line = weir__sql_at(s, token)->line,
                       .rule = rule,
                       .message = weir__str(weir__lint_rules[rule].message) };

    if (is_allowed(s, weir__lint_statement_of(s, token), rule) || is_allowed(s, other, rule)) {
        return WEIR_OK;
    }
    if (format != NULL) {
        char text[LINT_MESSAGE_BYTES_MAX];
        va_list args;
        va_start(args, format);
        const int n = vsnprintf(text, sizeof text, format, args);
        va_end(args);
        const size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
        f.message = (weir_str){ weir__arena_copy(&l->report->arena, text, len), len };
    }
    if (f.message.ptr == NULL || !weir__buffer_add(&l->report->findings, &f, sizeof f)) {
        return weir__fail(l->err, WEIR_ENOMEM, "out of memory");
    }
    return WEIR_OK;
}

/* ---- which database -------------------------------------------------------------------------- */

/* Something that only SQLite takes. */
static bool speaks_sqlite(const sql_script *s)
{
    static const char *const words[] = { "autoincrement", "sqlite_master", "sqlite_schema",
                                         "unixepoch",     "julianday",     "strftime",
                                         "pragma" };

    for (size_t n = 0; n < weir__sql_statements_count(s); n++) {
        const sql_range run = weir__sql_statement(s, n)->tokens;
        const size_t i = run.begin;
        if (weir__sql_words(s, i, run.end, "begin", "immediate", NULL) ||
            weir__sql_words(s, i, run.end, "begin", "exclusive", NULL) ||
            weir__sql_words(s, i, run.end, "begin", "deferred", NULL) ||
            weir__sql_words(s, i, run.end, "insert", "or", NULL) ||
            weir__sql_words(s, i, run.end, "update", "or", NULL)) {
            return true;
        }
        for (size_t k = i; k < run.end; k++) {
            for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
                if (weir__sql_is_word(weir__sql_at(s, k), words[w])) {
                    return true;
                }
            }
            if (weir__sql_words(s, k, run.end, "without", "rowid", NULL)) {
                return true;
            }
        }
    }
    return false;
}

static bool has_row_locks(const sql_script *s)
{
    for (size_t i = 0; i < weir__sql_queries_count(s); i++) {
        if (weir__sql_query(s, i)->lock != SQL_LOCK_NONE) {
            return true;
        }
    }
    return false;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int finding_compare(const void *a, const void *b)
{
    const lint_finding *x = a, *y = b;

    if (x->line != y->line) {
        return x->line < y->line ? -1 : 1;
    }
    return x->rule == y->rule ? 0 : x->rule < y->rule ? -1 : 1;
}

static void put_in_order(lint_report *r)
{
    lint_finding *f = (lint_finding *)(void *)r->findings.ptr;
    const size_t count = weir__lint_findings_count(r);
    size_t kept = 0;

    if (count == 0) {
        return;
    }
    qsort(f, count, sizeof *f, finding_compare);
    for (size_t i = 1; i < count; i++) {
        if (finding_compare(&f[kept], &f[i]) != 0) {
            f[++kept] = f[i];
        }
    }
    r->findings.len = (kept + 1) * sizeof *f;
}

static weir_status lint_script(lint *l, weir_str text, uint32_t line, unsigned depth)
{
    sql_script s = { 0 };
    weir_status status = weir__sql_script_read(text, line, depth > 0, &l->report->arena, &s,
                                               &l->report->bad_line, l->err);

    if (status == WEIR_OK && depth == 0) {
        l->sqlite =
            l->options.dialect == LINT_DIALECT_SQLITE ||
            (l->options.dialect == LINT_DIALECT_GUESS && speaks_sqlite(&s) && !has_row_locks(&s));
        status = weir__lint_keys_read(&l->keys, &s, l->err);
    }
    if (status == WEIR_OK) {
        status = weir__lint_claims(l, &s);
    }
    if (status == WEIR_OK) {
        status = weir__lint_calls(l, &s);
    }
    const sql_body *bodies = (const sql_body *)(const void *)s.bodies.ptr;
    for (size_t i = 0;
         status == WEIR_OK && i < s.bodies.len / sizeof *bodies && depth < LINT_BODIES_DEPTH_MAX;
         i++) {
        status = lint_script(l, bodies[i].text, bodies[i].line, depth + 1);
    }
    weir__sql_script_free(&s);
    return status;
}

weir_status weir__lint(weir_str text, const lint_options *options, lint_report *out,
                       weir_error *err)
{
    lint l = { .options = *options, .report = out, .err = err };
    const weir_status status = lint_script(&l, text, 1, 0);

    weir__lint_keys_free(&l.keys);
    put_in_order(out);
    return status;
}

void weir__lint_report_free(lint_report *r)
{
    weir__buffer_free(&r->findings);
    weir__arena_free(&r->arena);
}
