/* claim_text.c - a statement while it is written: values become parameters, or literals when it is
 * only to be shown.
 *
 * INVARIANT  Running out of memory is remembered and told when the statement is run; until then
 * nothing needs to look.
 */
#include "base/sql.h"
#include "base/str.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { VALUES_FIRST = 32 };

void weir__claim_text_free(claim_text *t)
{
    weir__buffer_free(&t->sql);
    weir__free(t->values);
    t->values = NULL;
    t->values_count = t->values_capacity = 0;
}

void weir__claim_text_clear(claim_text *t)
{
    weir__buffer_clear(&t->sql);
    t->values_count = 0;
    t->ended = false;
}

void weir__claim_add_str(claim_text *t, weir_str s)
{
    t->failed = t->failed || !weir__buffer_add(&t->sql, s.ptr, s.len);
}

void weir__claim_add(claim_text *t, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof text) {
        t->failed = true; /* names are added by themselves: what is formatted here is short */
        return;
    }
    weir__claim_add_str(t, (weir_str){ .ptr = text, .len = (size_t)len });
}

static void add_param(claim_text *t, const table_value *value)
{
    if (t->values_count == t->values_capacity) {
        const size_t capacity = t->values_capacity == 0 ? VALUES_FIRST : t->values_capacity * 2;
        table_value *values = weir__realloc(t->values, capacity * sizeof *values);
        if (values == NULL) {
            t->failed = true;
            return;
        }
        t->values = values;
        t->values_capacity = capacity;
    }
    t->values[t->values_count++] = *value;
    weir__claim_add(t, "$%zu", t->values_count);
}

void weir__claim_add_value(claim_text *t, const table_value *value, const table_column *column)
{
    const bool cast = column != NULL && weir__claim_dialect(t->dialect)->casts;
    if (t->literals) {
        t->failed = t->failed || !weir__table_literal(&t->sql, t->dialect, value,
                                                      cast ? column->type : (weir_str){ 0 });
        return;
    }
    if (cast) {
        weir__claim_add(t, "CAST(");
    }
    add_param(t, value);
    if (cast) {
        weir__claim_add(t, " AS ");
        weir__claim_add_str(t, column->type);
        weir__claim_add(t, ")");
    }
}

/* What a value would become one token with: BETWEEN$1, E'...', U&'...'. */
static bool is_joining(char c)
{
    return weir__sql_is_name_byte(c) || c == '$' || c == '&';
}

void weir__claim_add_sql(claim_text *t, weir_str sql, const claim_param *params,
                         size_t params_count)
{
    claim_scan scan = { .sql = sql, .dialect = t->dialect };
    claim_piece piece;
    bool found = true;
    while (weir__claim_scan_next(&scan, &piece, &found, NULL) == WEIR_OK && found) {
        if (!piece.param) {
            weir__claim_add_str(t, piece.text);
            continue;
        }
        if (t->sql.len > 0 && is_joining(t->sql.ptr[t->sql.len - 1])) {
            weir__claim_add(t, " ");
        }
        for (size_t i = 0; i < params_count; i++) {
            if (weir__str_equal(params[i].name, piece.text)) {
                /* Each place has one of its own: they may be of different types. */
                weir__claim_add_value(t, &params[i].value, NULL);
                break;
            }
        }
    }
}

/* Types without an operator for equality are compared as texts. */
static bool is_incomparable(const claim_text *t, const table_column *column)
{
    return t->dialect == TABLE_POSTGRES && (weir__str_equal(column->type, weir__str("json")) ||
                                            weir__str_equal(column->type, weir__str("xml")));
}

void weir__claim_add_equal(claim_text *t, const table_column *column, const table_value *value)
{
    if (value->kind == TABLE_NULL) {
        weir__claim_add_str(t, column->quoted);
        weir__claim_add(t, " IS NULL");
        return;
    }
    const bool as_text = is_incomparable(t, column);
    weir__claim_add(t, "%s", as_text ? "CAST(" : "");
    weir__claim_add_str(t, column->quoted);
    weir__claim_add(t, "%s", as_text ? " AS text) = CAST(" : " = ");
    weir__claim_add_value(t, value, column);
    weir__claim_add(t, "%s", as_text ? " AS text)" : "");
}

void weir__claim_add_time(claim_text *t, claim_clock clock, const char *from, int64_t later_us)
{
    const claim_dialect *sql = weir__claim_dialect(t->dialect);
    weir__claim_add(t, "(SELECT %sat%s FROM ", sql->times[clock].before, sql->times[clock].after);
    if (later_us != 0) {
        weir__claim_add(t, "(SELECT at%s%" PRId64 "%s AS at FROM ", sql->later.before, later_us,
                        sql->later.after);
    }
    if (from == NULL) {
        weir__claim_add(t, "(%s) AS weir_now", sql->moment);
    } else {
        weir__claim_add(t, "%s", from);
    }
    weir__claim_add(t, "%s", later_us != 0 ? ") AS weir_later)" : ")");
}

weir_status weir__claim_text_run(claim_text *t, table_session *s, int64_t wait_us,
                                 table_result *result, weir_error *err)
{
    t->ended = t->ended || (!t->failed && weir__buffer_add(&t->sql, "", 1));
    if (!t->ended) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    }
    if (t->values_count > CLAIM_VALUES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "the claim has %zu values, allowed are %d",
                          t->values_count, CLAIM_VALUES_MAX);
    }
    const table_statement statement = { .sql = t->sql.ptr,
                                        .values = t->values,
                                        .values_count = t->values_count,
                                        .wait_us = wait_us,
                                        .again = t->again };
    return weir__claim_refused(weir__table_run(s, &statement, result, err), err);
}
