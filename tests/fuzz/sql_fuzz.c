/* sql_fuzz.c - any bytes as SQL: the tokenizer, the scripts above it, and the reviewer.
 *
 *   accepted:  tokens lie in the text, one behind the other; parentheses are pairs; statements and
 *              queries lie where they are said to; findings are in order, no two alike, on lines
 *              of the text; a comment in front changes nothing but their lines
 *   refused:   with a line of the text, and with a comment in front as well
 */
#include "fuzz.h"

#include "base/assert.h"
#include "lint/lint.h"
#include "lint/sql_script.h"

static uint32_t lines_of(weir_str text)
{
    uint32_t lines = 1;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n' ? 1 : 0;
    }
    return lines;
}

static void check_tokens(const sql_script *s, weir_str text)
{
    const size_t count = weir__sql_tokens_count(&s->tokens);
    const char *from = text.ptr;
    uint32_t line = 1;

    WEIR_ASSERT(count > 0 && weir__sql_at(s, count - 1)->kind == SQL_END);
    for (size_t i = 0; i + 1 < count; i++) {
        const sql_token *t = weir__sql_at(s, i);
        WEIR_ASSERT(t->kind != SQL_END && t->text.len > 0);
        WEIR_ASSERT(t->line >= line);
        line = t->line;
        if (weir__sql_is_op(t, "(") || weir__sql_is_op(t, ")")) {
            WEIR_ASSERT(t->match < count && weir__sql_at(s, t->match)->match == i);
        }
        if (t->text.ptr >= text.ptr && t->text.ptr < text.ptr + text.len) {
            WEIR_ASSERT(t->text.ptr >= from);
            from = t->text.ptr + t->text.len;
            WEIR_ASSERT(from <= text.ptr + text.len);
        } else {
            WEIR_ASSERT(weir__sql_is_op(t, ";")); /* put there for \g and its like */
        }
    }
}

static void check_range(sql_range r, sql_range outer)
{
    WEIR_ASSERT(r.begin >= r.end || (outer.begin <= r.begin && r.end <= outer.end));
}

static void check_script(const sql_script *s)
{
    size_t from = 0;

    for (size_t i = 0; i < weir__sql_statements_count(s); i++) {
        const sql_statement *t = weir__sql_statement(s, i);
        WEIR_ASSERT(t->tokens.begin >= from && t->tokens.end >= t->tokens.begin);
        from = t->tokens.end;
        for (size_t n = t->queries.begin; n < t->queries.end; n++) {
            const sql_query *q = weir__sql_query(s, n);
            WEIR_ASSERT(q->statement == i);
            WEIR_ASSERT(q->parent == SQL_NONE || q->parent < n);
            WEIR_ASSERT(q->begin >= t->tokens.begin && q->begin < t->tokens.end);
            WEIR_ASSERT(q->table == SQL_NONE || (q->table > q->begin && q->table < t->tokens.end));
            check_range(q->list, t->tokens);
            check_range(q->from, t->tokens);
            check_range(q->where, t->tokens);
            check_range(q->order, t->tokens);
            check_range(q->limit, t->tokens);
            check_range(q->set, t->tokens);
            check_range(q->values, t->tokens);
            check_range(q->returning, t->tokens);
            check_range(q->of, t->tokens);
        }
    }
    WEIR_ASSERT(from < weir__sql_tokens_count(&s->tokens));
}

static void check_findings(const lint_report *r, uint32_t lines)
{
    const size_t count = weir__lint_findings_count(r);

    for (size_t i = 0; i < count; i++) {
        const lint_finding *f = weir__lint_finding(r, i);
        WEIR_ASSERT(f->line >= 1 && f->line <= lines && f->rule < LINT_RULES_COUNT);
        WEIR_ASSERT(f->message.len > 0);
        WEIR_ASSERT(i == 0 || f[-1].line < f->line ||
                    (f[-1].line == f->line && f[-1].rule < f->rule));
    }
}

/* The same text behind a line with a comment. */
static void check_shifted(weir_str text, const lint_options *options, weir_status status,
                          const lint_report *report)
{
    static const char comment[] = "-- it's ( /* a comment\n";
    weir_buffer shifted = { 0 };
    lint_report again = { 0 };
    weir_error err;

    WEIR_ASSERT(weir__buffer_add_text(&shifted, comment));
    WEIR_ASSERT(weir__buffer_add(&shifted, text.ptr, text.len));
    const weir_status other =
        weir__lint((weir_str){ shifted.ptr, shifted.len }, options, &again, &err);
    WEIR_ASSERT(other == status);
    if (status == WEIR_OK) {
        const size_t count = weir__lint_findings_count(report);
        WEIR_ASSERT(weir__lint_findings_count(&again) == count);
        for (size_t i = 0; i < count; i++) {
            const lint_finding *a = weir__lint_finding(report, i);
            const lint_finding *b = weir__lint_finding(&again, i);
            WEIR_ASSERT(a->line + 1 == b->line && a->rule == b->rule);
        }
    } else {
        WEIR_ASSERT(again.bad_line == report->bad_line + 1);
    }
    weir__lint_report_free(&again);
    weir__buffer_free(&shifted);
}

static void check_read(weir_str text, bool body)
{
    weir_arena arena = { 0 };
    sql_script s = { 0 };
    weir_error err;
    uint32_t bad_line = 0;
    const weir_status status = weir__sql_script_read(text, 1, body, &arena, &s, &bad_line, &err);

    if (status == WEIR_OK) {
        check_tokens(&s, text);
        check_script(&s);
    } else {
        WEIR_ASSERT(status == WEIR_EINVAL);
        WEIR_ASSERT(bad_line >= 1 && bad_line <= lines_of(text));
    }
    weir__sql_script_free(&s);
    weir__arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weir_str text = { .ptr = size == 0 ? "" : (const char *)data, .len = size };
    const bool marked = size >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0;

    check_read(text, false);
    check_read(text, true);
    for (int dialect = LINT_DIALECT_GUESS; dialect <= LINT_DIALECT_SQLITE; dialect++) {
        const lint_options options = { .dialect = (lint_dialect)dialect, .limit = dialect };
        lint_report report = { 0 };
        weir_error err;
        const weir_status status = weir__lint(text, &options, &report, &err);
        WEIR_ASSERT(status == WEIR_OK || status == WEIR_EINVAL);
        check_findings(&report, lines_of(text));
        if (!marked && dialect == LINT_DIALECT_GUESS) {
            check_shifted(text, &options, status, &report);
        }
        weir__lint_report_free(&report);
    }
    return 0;
}
