/* clauses.c - questions about the clauses of a query: conditions, assignments, its table. */
#include "lint/lint_private.h"

static const sql_token *token_at(const sql_script *s, size_t i)
{
    return weir__sql_at(s, i);
}

bool weir__lint_has_kind(const sql_script *s, sql_range run, sql_kind kind)
{
    for (size_t i = run.begin; i < run.end; i++) {
        if (token_at(s, i)->kind == kind) {
            return true;
        }
    }
    return false;
}

bool weir__lint_has_word(const sql_script *s, sql_range run, const char *word)
{
    for (size_t i = run.begin; i < run.end; i++) {
        if (weir__sql_is_word(token_at(s, i), word)) {
            return true;
        }
    }
    return false;
}

bool weir__lint_has_query(const sql_script *s, sql_range run)
{
    return weir__lint_has_word(s, run, "select");
}

/* Takes parentheses around the whole of a range off. */
static sql_range word_bare(const sql_script *s, sql_range run)
{
    while (run.begin + 1 < run.end && weir__sql_is_op(token_at(s, run.begin), "(") &&
           token_at(s, run.begin)->match == run.end - 1) {
        run.begin++;
        run.end--;
    }
    return run;
}

bool weir__lint_condition(const sql_script *s, sql_range where, size_t *i, sql_range *out)
{
    where = word_bare(s, where);
    size_t k = *i == 0 ? where.begin : *i;
    if (k >= where.end) {
        return false;
    }
    for (size_t n = where.begin; n < where.end; n = weir__sql_over(s, n)) {
        if (weir__sql_is_word(token_at(s, n), "or")) {
            *out = where; /* one condition, as a whole */
            *i = where.end;
            return true;
        }
    }
    *out = (sql_range){ k, k };
    bool between = false;
    while (k < where.end) {
        if (weir__sql_is_word(token_at(s, k), "and") && !between) {
            break;
        }
        between = weir__sql_is_word(token_at(s, k), "between") ||
                  (between && !weir__sql_is_word(token_at(s, k), "and"));
        k = weir__sql_over(s, k);
    }
    out->end = k;
    *i = k + 1;
    return true;
}

lint_comparison weir__lint_compare(const sql_script *s, sql_range condition)
{
    lint_comparison c = { .column = SQL_NONE };
    condition = word_bare(s, condition);
    size_t i = condition.begin;

    while (i < condition.end && weir__sql_is_name(token_at(s, i))) {
        c.column = i++;
        if (i >= condition.end || !weir__sql_is_op(token_at(s, i), ".")) {
            break;
        }
        i++;
    }
    if (c.column == SQL_NONE || i >= condition.end) {
        return c;
    }
    const sql_token *op = token_at(s, i);
    if (op->kind == SQL_OP && !weir__sql_is_op(op, "(") && !weir__sql_is_op(op, "::")) {
        c.equal = weir__sql_is_op(op, "=") || weir__sql_is_op(op, "==");
    } else if (weir__sql_is_word(op, "in")) {
        c.equal = true;
    } else if (op->kind != SQL_WORD) {
        c.column = SQL_NONE;
        return c;
    }
    c.value = (sql_range){ i + 1, condition.end };
    return c;
}

bool weir__lint_mentions(const sql_script *s, sql_range run, weir_str name)
{
    for (size_t i = run.begin; i < run.end; i++) {
        const sql_token *t = token_at(s, i);
        if ((t->kind == SQL_WORD || t->kind == SQL_QUOTED) && weir__str_equal(t->name, name) &&
            !(i + 1 < run.end && (weir__sql_is_op(t + 1, "(") || weir__sql_is_op(t + 1, "."))) &&
            !(i > run.begin && weir__sql_is_op(t - 1, "::"))) {
            return true;
        }
    }
    return false;
}

bool weir__lint_assignment(const sql_script *s, sql_range set, size_t *i, size_t *column,
                           sql_range *value)
{
    if (*i >= set.end) {
        return false;
    }
    const size_t begin = *i;
    const size_t end = weir__sql_element(s, begin, set.end);
    size_t k = begin;

    *i = end + 1;
    *column = SQL_NONE;
    *value = (sql_range){ end, end };
    while (k < end && (weir__sql_is_name(token_at(s, k)) || weir__sql_is_op(token_at(s, k), "."))) {
        *column = k++;
    }
    if (k >= end || !weir__sql_is_op(token_at(s, k), "=") ||
        (*column != SQL_NONE && token_at(s, *column)->kind == SQL_HOLE)) {
        *column = SQL_NONE; /* (a, b) = ..., or something that will be put there */
        *value = (sql_range){ begin, end };
        return true;
    }
    *value = (sql_range){ k + 1, end };
    return true;
}

weir_str weir__lint_table(const sql_script *s, const sql_query *q)
{
    size_t table = q->table;

    /* FOR UPDATE OF name: the table with that alias or name. */
    for (size_t i = q->from.begin; q->of.begin < q->of.end && i < q->from.end;
         i = weir__sql_over(s, i)) {
        const weir_str of = token_at(s, q->of.end - 1)->name;
        const sql_token *t = token_at(s, i);
        if (!weir__sql_is_name(t) || !weir__str_equal(t->name, of)) {
            continue;
        }
        const bool behind_as = i > q->from.begin && weir__sql_is_word(t - 1, "as");
        const size_t before = behind_as ? i - 1 : i;
        const bool alias = before > q->from.begin && weir__sql_is_name(token_at(s, before - 1)) &&
                           !weir__sql_is_word(token_at(s, before - 1), "join") &&
                           !weir__sql_is_word(token_at(s, before - 1), "lateral") &&
                           !weir__sql_is_word(token_at(s, before - 1), "only");
        table = alias ? before - 1 : i;
        break;
    }
    if (table == SQL_NONE) {
        return (weir_str){ 0 };
    }
    const sql_token *t = token_at(s, table);
    return t->name.len > 0 ? t->name : t->text;
}

/* Whether a qualified name in its conditions can be a column of another table. */
static bool has_other_tables(const sql_script *s, const sql_query *q)
{
    if (q->parent != SQL_NONE || (q->verb != SQL_SELECT && q->from.begin < q->from.end)) {
        return true;
    }
    for (size_t i = q->from.begin; i < q->from.end; i = weir__sql_over(s, i)) {
        if (weir__sql_is_op(token_at(s, i), ",") || weir__sql_is_word(token_at(s, i), "join")) {
            return true;
        }
    }
    return false;
}

bool weir__lint_is_by_key(const lint *l, const sql_script *s, const sql_query *q)
{
    const weir_str table = weir__lint_table(s, q);
    const bool others = has_other_tables(s, q);
    weir_str columns[16];
    size_t count = 0, i = 0;
    sql_range condition;

    while (weir__lint_condition(s, q->where, &i, &condition)) {
        const lint_comparison c = weir__lint_compare(s, condition);
        if (weir__sql_words(s, condition.begin, condition.end, "current", "of", NULL)) {
            return true;
        }
        /* a.id = b.id joins; it says nothing about which row. */
        const bool joins = others && c.column != SQL_NONE && c.value.begin + 1 < c.value.end &&
                           weir__sql_is_name(token_at(s, c.value.begin)) &&
                           weir__sql_is_op(token_at(s, c.value.begin + 1), ".");
        if (c.column != SQL_NONE && c.equal && !joins && !weir__lint_has_query(s, c.value) &&
            count < sizeof columns / sizeof columns[0]) {
            columns[count++] = token_at(s, c.column)->name;
        }
    }
    return count > 0 && weir__lint_is_unique(&l->keys, table, columns, count);
}
