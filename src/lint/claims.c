/* claims.c - finds the claims of a script, and asks of each what a careful reviewer asks.
 *
 * A claim is a SELECT (`take`) that picks rows, and the UPDATE or DELETE (`mark`) that makes them
 * somebody's: in one statement, or one after the other. README.md says when a SELECT counts.
 *
 * Where the text leaves something open (a hole of a template, a function of the user's own), it is
 * taken to be right: a finding is something that can be seen to be wrong.
 */
#include "lint/lint_private.h"

typedef struct claim {
    lint *l;
    const sql_script *s;
    const sql_query *take;
    const sql_query *mark; /* NULL: there is none */
    weir_str table;
    bool together;   /* in one transaction */
    bool keyed;      /* mark finds its row by its key */
    bool flips;      /* mark changes what take's conditions ask for, or deletes the row */
    bool guarded;    /* mark asks again for what it flips */
    bool possessive; /* mark's assignments are those of somebody who takes something */
    bool returned;   /* mark, or what surrounds it, hands the rows to whoever claims */
} claim;

static const sql_token *token_at(const claim *c, size_t i)
{
    return weir__sql_at(c->s, i);
}

static bool is_empty(sql_range r)
{
    return r.begin >= r.end;
}

static bool text_contains(weir_str text, const char *part)
{
    const size_t len = strlen(part);

    for (size_t i = 0; i + len <= text.len; i++) {
        if (memcmp(text.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- what mark does -------------------------------------------------------------------------- */

/* Whether one of take's conditions, or of what it reads from, mentions the column. */
static bool take_asks(const claim *c, weir_str column)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    if (weir__lint_mentions(c->s, c->take->where, column)) {
        return true;
    }
    for (size_t i = t->queries.begin; i < t->queries.end; i++) {
        const sql_query *q = weir__sql_query(c->s, i);
        size_t on = q->from.begin;
        while (on < q->from.end && !weir__sql_is_word(token_at(c, on), "on")) {
            on++;
        }
        if (q != c->mark && q->verb == SQL_SELECT &&
            (weir__lint_mentions(c->s, q->where, column) ||
             weir__lint_mentions(c->s, (sql_range){ on, q->from.end }, column))) {
            return true;
        }
    }
    return false;
}

/* Whether take's conditions hold something whose meaning the text does not tell. */
static bool take_is_open(const claim *c)
{
    static const char *const known[] = { "now",
                                         "coalesce",
                                         "lower",
                                         "upper",
                                         "and",
                                         "or",
                                         "not",
                                         "in",
                                         "any",
                                         "all",
                                         "some",
                                         "exists",
                                         "array",
                                         "date_trunc",
                                         "clock_timestamp",
                                         "interval",
                                         "make_interval",
                                         "extract",
                                         "greatest",
                                         "least",
                                         "abs",
                                         "nullif",
                                         "between",
                                         "is",
                                         "datetime",
                                         "strftime",
                                         "unixepoch",
                                         "julianday",
                                         "length",
                                         "cast",
                                         "where",
                                         "statement_timestamp",
                                         "then",
                                         "else",
                                         "when",
                                         "varchar",
                                         "numeric",
                                         "char",
                                         "timestamp",
                                         "timestamptz",
                                         "from",
                                         "values",
                                         "as",
                                         "like",
                                         "to_timestamp",
                                         "date",
                                         "pg_try_advisory_xact_lock",
                                         "pg_try_advisory_lock" };
    const sql_range where = c->take->where;

    if (weir__lint_has_kind(c->s, where, SQL_HOLE)) {
        return true;
    }
    for (size_t i = where.begin; i + 1 < where.end; i++) {
        if (!weir__sql_is_name(token_at(c, i)) || !weir__sql_is_op(token_at(c, i + 1), "(")) {
            continue;
        }
        bool is_known = false;
        for (size_t k = 0; k < sizeof known / sizeof known[0] && !is_known; k++) {
            is_known = weir__str_equal(token_at(c, i)->name, weir__str(known[k]));
        }
        if (!is_known) {
            return true;
        }
    }
    return false;
}

/* SET n = n + 1 makes a row no less claimable. */
static bool value_counts(const claim *c, weir_str column, sql_range value)
{
    if (!weir__lint_mentions(c->s, value, column) || weir__lint_has_word(c->s, value, "interval")) {
        return false;
    }
    for (size_t i = value.begin; i < value.end; i++) {
        if (weir__sql_is_op(token_at(c, i), "+") || weir__sql_is_op(token_at(c, i), "-")) {
            return true;
        }
    }
    return false;
}

/* SET status = 'pending' where take asks for status = 'pending'. */
static bool value_keeps(const claim *c, weir_str column, sql_range value)
{
    sql_range condition;
    size_t i = 0;

    while (weir__lint_condition(c->s, c->take->where, &i, &condition)) {
        const lint_comparison x = weir__lint_compare(c->s, condition);
        if (x.column != SQL_NONE && x.equal &&
            weir__str_equal(token_at(c, x.column)->name, column) &&
            x.value.end - x.value.begin == 1 && value.end - value.begin == 1 &&
            token_at(c, value.begin)->kind == SQL_STRING &&
            weir__str_equal(token_at(c, value.begin)->text, token_at(c, x.value.begin)->text)) {
            return true;
        }
    }
    return false;
}

/* Names and values with which one says that something is taken. */
static bool is_possessive(const claim *c, weir_str column, sql_range value)
{
    static const char *const columns[] = { "claim",     "lock",    "lease",      "worker",
                                           "taken",     "reserve", "picked",     "holder",
                                           "assigned",  "started", "visible_at", "invisible",
                                           "processing" };
    static const char *const values[] = { "claim",   "process",   "running",   "progress",
                                          "lock",    "taken",     "reserve",   "lease",
                                          "started", "working",   "sending",   "picked",
                                          "active",  "executing", "in_flight", "assigned",
                                          "dispatch" };

    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (text_contains(column, columns[i])) {
            return true;
        }
    }
    if (value.end - value.begin != 1 || token_at(c, value.begin)->kind != SQL_STRING) {
        return false;
    }
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (text_contains(token_at(c, value.begin)->name, values[i])) {
            return true;
        }
    }
    return false;
}

/* Whether mark's own conditions, not those of queries inside them, ask for the column again. What
 * a template puts there may ask for anything. */
static bool mark_asks(const claim *c, weir_str column)
{
    const sql_range where = c->mark->where;
    sql_range condition;
    size_t i = 0, from = where.begin;

    while (weir__lint_condition(c->s, where, &i, &condition)) {
        if (condition.end - condition.begin == 1 &&
            token_at(c, condition.begin)->kind == SQL_HOLE) {
            return true;
        }
    }
    for (size_t k = where.begin; k < where.end; k++) {
        if (weir__sql_is_op(token_at(c, k), "(") &&
            (weir__sql_is_word(token_at(c, k + 1), "select") ||
             weir__sql_is_word(token_at(c, k + 1), "with"))) {
            if (weir__lint_mentions(c->s, (sql_range){ from, k }, column)) {
                return true;
            }
            k = token_at(c, k)->match;
            from = k;
        }
    }
    return weir__lint_mentions(c->s, (sql_range){ from, where.end }, column);
}

static void look_at_assignments(claim *c)
{
    size_t i = c->mark->set.begin, column;
    sql_range value;

    while (weir__lint_assignment(c->s, c->mark->set, &i, &column, &value)) {
        if (column == SQL_NONE) {
            /* Several at once: each name of theirs counts, and what they get is not known. */
            const bool hole = weir__lint_has_kind(c->s, value, SQL_HOLE);
            c->flips = c->flips || hole;
            for (size_t k = value.begin; k < value.end; k++) {
                const weir_str name = token_at(c, k)->name;
                c->flips = c->flips || (name.len > 0 && take_asks(c, name));
                c->guarded = c->guarded || mark_asks(c, name);
                c->possessive = c->possessive || is_possessive(c, name, (sql_range){ 0, 0 });
            }
            continue;
        }
        const weir_str name = token_at(c, column)->name;
        c->possessive = c->possessive || is_possessive(c, name, value);
        if (!value_counts(c, name, value) && !value_keeps(c, name, value)) {
            c->flips = c->flips || take_is_open(c) || take_asks(c, name);
            c->guarded = c->guarded || mark_asks(c, name);
        }
    }
}

/* A condition key = value, or key IN (values), without a query in it. */
static bool finds_by_key(const claim *c)
{
    sql_range condition;
    size_t i = 0;

    if (weir__lint_is_by_key(c->l, c->s, c->mark)) {
        return true;
    }
    while (weir__lint_condition(c->s, c->mark->where, &i, &condition)) {
        const lint_comparison x = weir__lint_compare(c->s, condition);
        if (x.column == SQL_NONE || !x.equal || weir__lint_has_query(c->s, x.value)) {
            continue;
        }
        /* What take has selected, to find the rows again. */
        for (size_t k = c->take->list.begin; k < c->take->list.end; k++) {
            const bool alone =
                (k + 1 == c->take->list.end || weir__sql_is_op(token_at(c, k + 1), ","));
            if (alone && weir__sql_is_name(token_at(c, k)) &&
                weir__str_equal(token_at(c, k)->name, token_at(c, x.column)->name) &&
                !weir__lint_mentions(c->s, c->take->where, token_at(c, k)->name)) {
                return true;
            }
        }
    }
    return false;
}

static void look_at_mark(claim *c, const sql_query *mark)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);
    const sql_statement *u = weir__sql_statement(c->s, mark->statement);

    c->mark = mark;
    c->together = t == u || t->transaction == u->transaction;
    c->flips = mark->verb == SQL_DELETE;
    c->guarded = c->possessive = false;
    c->returned = !is_empty(mark->returning);
    look_at_assignments(c);
    c->keyed = finds_by_key(c);
}

/* ---- finding take and mark ------------------------------------------------------------------- */

static bool claim_writes(const claim *c, const sql_query *q)
{
    return (q->verb == SQL_UPDATE || q->verb == SQL_DELETE) && c->table.len > 0 &&
           weir__str_equal(weir__lint_table(c->s, q), c->table);
}

/* Whether q is inside `outer`. */
static bool is_inside(const claim *c, const sql_query *q, const sql_query *outer)
{
    while (q->parent != SQL_NONE) {
        q = weir__sql_query(c->s, q->parent);
        if (q == outer) {
            return true;
        }
    }
    return false;
}

/* Whether q, or what it is inside of, has a name in a WITH. */
static bool is_in_with(const claim *c, const sql_query *q)
{
    while (q->role != SQL_ROLE_CTE && q->parent != SQL_NONE) {
        q = weir__sql_query(c->s, q->parent);
    }
    return q->role == SQL_ROLE_CTE;
}

/* The key of a mark in another transaction must come from outside the text: `WHERE id = 7` in a
 * file of many statements is not the row that some SELECT before it picked. */
static bool takes_parameter(const claim *c)
{
    sql_range condition;
    size_t i = 0;

    while (weir__lint_condition(c->s, c->mark->where, &i, &condition)) {
        if (weir__lint_has_kind(c->s, condition, SQL_PARAM) ||
            weir__lint_has_kind(c->s, condition, SQL_HOLE)) {
            return true;
        }
    }
    return false;
}

/* Whether another SELECT of take's statement locks rows of the same table. */
static bool has_locking_take(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    for (size_t i = t->queries.begin; i < t->queries.end; i++) {
        const sql_query *q = weir__sql_query(c->s, i);
        if (q != c->take && q->verb == SQL_SELECT && q->lock == SQL_LOCK_UPDATE &&
            weir__str_equal(weir__lint_table(c->s, q), c->table)) {
            return true;
        }
    }
    return false;
}

/* Whether take and the mark that was looked at are a claim. */
static bool is_claim(const claim *c)
{
    const bool one_statement = c->mark->statement == c->take->statement;
    const bool bounded = !is_empty(c->take->limit);
    const bool ordered = !is_empty(c->take->order);

    if (c->take->wait == SQL_WAIT_SKIP) {
        return c->together || (c->keyed && takes_parameter(c));
    }
    if (one_statement && !is_inside(c, c->take, c->mark) && !is_in_with(c, c->take)) {
        return false;
    }
    if (one_statement && (c->take->role == SQL_ROLE_EXISTS || c->take->distinct)) {
        return false;
    }
    if (one_statement && c->take->lock == SQL_LOCK_UPDATE) {
        return bounded || c->possessive;
    }
    if (one_statement && has_locking_take(c)) {
        return false; /* what is locked elsewhere in the statement is what is taken */
    }
    if (one_statement) {
        /* Without a lock and without telling what was taken it is maintenance, done in portions. */
        return c->take->lock == SQL_LOCK_NONE && (c->flips || c->possessive) &&
               ((bounded && (c->returned || c->possessive)) || (c->possessive && c->returned));
    }
    if (!c->keyed || (!c->together && !takes_parameter(c)) || c->take->distinct) {
        return false;
    }
    if (c->take->lock == SQL_LOCK_UPDATE) {
        return (c->flips && (bounded || c->possessive) && c->mark->verb == SQL_UPDATE) ||
               (bounded && c->possessive) || (c->mark->verb == SQL_DELETE && bounded && ordered);
    }
    const bool handed_out = c->take->role == SQL_ROLE_TOP || c->take->role == SQL_ROLE_CTE ||
                            c->take->role == SQL_ROLE_FROM;
    return handed_out && c->mark->verb == SQL_UPDATE &&
           ((c->flips && (bounded || ordered || c->possessive)) || (c->possessive && bounded));
}

/* CREATE VIEW, CREATE RULE: runs nothing now. */
static bool claim_defines(const claim *c, const sql_statement *t)
{
    return weir__sql_is_word(token_at(c, t->tokens.begin), "create");
}

/* Looks for the mark that belongs to take: in its statement, then in those that follow, those of
 * the same transaction first. true: they are a claim. */
static bool find_mark(claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    for (size_t i = t->queries.begin; i < t->queries.end; i++) {
        const sql_query *q = weir__sql_query(c->s, i);
        if (claim_writes(c, q)) {
            look_at_mark(c, q);
            if (is_claim(c)) {
                return true;
            }
        }
    }
    for (int together = 1; together >= 0; together--) {
        const sql_query *weak = NULL; /* one that marks the row, but leaves it claimable */
        for (size_t n = c->take->statement + 1; n < weir__sql_statements_count(c->s); n++) {
            const sql_statement *u = weir__sql_statement(c->s, n);
            if (u->section != t->section) {
                break;
            }
            if (claim_defines(c, t) || claim_defines(c, u)) {
                continue;
            }
            for (size_t i = u->queries.begin; i < u->queries.end; i++) {
                const sql_query *q = weir__sql_query(c->s, i);
                if (!claim_writes(c, q)) {
                    continue;
                }
                look_at_mark(c, q);
                if (c->together != (together == 1) || !is_claim(c)) {
                    continue;
                }
                if (c->flips) {
                    return true;
                }
                weak = weak == NULL ? q : weak;
            }
        }
        if (weak != NULL) {
            look_at_mark(c, weak);
            return true;
        }
    }
    c->mark = NULL;
    c->flips = c->guarded = c->keyed = c->together = c->possessive = c->returned = false;
    return false;
}

/* A SELECT ... FOR UPDATE that looks for rows in some state, rather than for somebody's rows. */
static bool asks_for_state(const claim *c)
{
    sql_range condition;
    size_t i = 0;

    while (weir__lint_condition(c->s, c->take->where, &i, &condition)) {
        const lint_comparison x = weir__lint_compare(c->s, condition);
        if (weir__lint_has_word(c->s, condition, "null") ||
            weir__lint_has_word(c->s, condition, "now") ||
            weir__lint_has_word(c->s, condition, "current_timestamp") ||
            weir__lint_has_word(c->s, condition, "false") ||
            (x.column != SQL_NONE && (text_contains(token_at(c, x.column)->name, "stat") ||
                                      text_contains(token_at(c, x.column)->name, "phase")))) {
            return true;
        }
    }
    return false;
}

/* The same table written in a way that is not an UPDATE of it: the claim is kept in another one. */
static bool is_kept_elsewhere(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    for (size_t n = 0; n < weir__sql_queries_count(c->s); n++) {
        const sql_query *q = weir__sql_query(c->s, n);
        const sql_statement *u = weir__sql_statement(c->s, q->statement);
        if (q->verb == SQL_SELECT || u->transaction != t->transaction ||
            q->statement < c->take->statement) {
            continue;
        }
        /* NOT EXISTS (SELECT ... FROM claims), LEFT JOIN claims, and INSERT INTO claims. */
        const weir_str table = weir__lint_table(c->s, q);
        if (weir__str_equal(table, c->table)) {
            continue;
        }
        if (weir__lint_mentions(c->s, c->take->where, table) ||
            weir__lint_mentions(c->s, c->take->from, table)) {
            return true;
        }
    }
    return false;
}

/* ---- what shields a transaction -------------------------------------------------------------- */

static bool is_advisory_lock(const sql_token *t)
{
    return t->kind == SQL_WORD && text_contains(t->name, "advisory") &&
           text_contains(t->name, "lock") && !text_contains(t->name, "unlock");
}

/* LOCK TABLE, an advisory lock, BEGIN IMMEDIATE, or an isolation level that lets the second writer
 * fail: something before take sees to it that two of them do not write the same row. */
static bool is_shielded(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    for (size_t n = 0; n < c->take->statement; n++) {
        const sql_statement *u = weir__sql_statement(c->s, n);
        const sql_token *first = token_at(c, u->tokens.begin);
        if (u->transaction != t->transaction) {
            continue;
        }
        if (weir__sql_is_word(first, "lock")) {
            return true;
        }
        if ((weir__sql_is_word(first, "begin") || weir__sql_is_word(first, "start") ||
             weir__sql_is_word(first, "set")) &&
            (weir__lint_has_word(c->s, u->tokens, "serializable") ||
             weir__lint_has_word(c->s, u->tokens, "repeatable") ||
             (!c->s->body && (weir__lint_has_word(c->s, u->tokens, "immediate") ||
                              weir__lint_has_word(c->s, u->tokens, "exclusive"))))) {
            return true;
        }
        for (size_t i = u->tokens.begin; i < u->tokens.end; i++) {
            if (is_advisory_lock(token_at(c, i))) {
                return true;
            }
        }
    }
    return false;
}

/* SET lock_timeout: whoever writes it has thought about waiting. */
static bool has_lock_timeout(const claim *c)
{
    for (size_t n = 0; n < c->take->statement; n++) {
        const sql_range run = weir__sql_statement(c->s, n)->tokens;
        for (size_t i = run.begin; i < run.end; i++) {
            if (weir__str_equal(token_at(c, i)->name, weir__str("lock_timeout"))) {
                return true;
            }
        }
    }
    return false;
}

/* ---- the questions --------------------------------------------------------------------------- */

static weir_status claim_report(const claim *c, size_t token, lint_rule rule)
{
    const size_t other = c->take->statement;
    return weir__lint_add(c->l, c->s, token, other, rule, NULL);
}

static weir_status ask_lock(const claim *c)
{
    const bool one_statement = c->mark != NULL && c->mark->statement == c->take->statement;

    if (c->take->lock == SQL_LOCK_UPDATE) {
        return c->take->wait == SQL_WAIT && !is_shielded(c) && !has_lock_timeout(c)
                   ? claim_report(c, c->take->begin, LINT_NO_SKIP_LOCKED)
                   : WEIR_OK;
    }
    if (c->guarded || is_shielded(c) || (c->l->sqlite && one_statement)) {
        return WEIR_OK;
    }
    /* Who deletes a row second deletes nothing: nobody has it twice, but he has waited for it. */
    return claim_report(c, c->take->begin,
                        c->mark != NULL && c->mark->verb == SQL_DELETE ? LINT_NO_SKIP_LOCKED
                                                                       : LINT_NO_ROW_LOCK);
}

/* Another query of take's statement, that take reads from, has the clause. */
static bool is_inherited(const claim *c, bool limit)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    if (weir__lint_has_kind(c->s, limit ? c->take->where : c->take->order, SQL_HOLE)) {
        return true;
    }
    for (size_t i = t->queries.begin; i < t->queries.end; i++) {
        const sql_query *q = weir__sql_query(c->s, i);
        const bool inside = is_inside(c, q, c->take);
        const bool named = q->cte != SQL_NONE &&
                           (weir__lint_mentions(c->s, c->take->from, token_at(c, q->cte)->name) ||
                            weir__lint_has_query(c->s, c->take->where));
        if (q != c->take && q->verb == SQL_SELECT && (inside || named) &&
            !is_empty(limit ? q->limit : q->order)) {
            return true;
        }
    }
    return false;
}

/* The columns of ORDER BY, positions in the list resolved. false: one is not to be known. */
static bool order_columns(const claim *c, weir_str *columns, size_t max, size_t *count)
{
    const sql_range order = c->take->order;

    *count = 0;
    for (size_t i = order.begin; i < order.end;) {
        const size_t end = weir__sql_element(c->s, i, order.end);
        const sql_range run = { i, end };
        size_t name = SQL_NONE;
        if (weir__lint_has_kind(c->s, run, SQL_HOLE) || weir__lint_has_kind(c->s, run, SQL_PARAM) ||
            weir__lint_has_word(c->s, run, "random")) {
            return false;
        }
        while (i < end && weir__sql_is_op(token_at(c, i), "(")) {
            i++;
        }
        for (; i < end && weir__sql_is_name(token_at(c, i)); i += 2) {
            name = i;
            if (i + 1 >= end || !weir__sql_is_op(token_at(c, i + 1), ".")) {
                break;
            }
        }
        int64_t position = 0;
        if (name == SQL_NONE && i < end && weir__str_to_i64(token_at(c, i)->text, &position) &&
            position > 0) {
            size_t k = c->take->list.begin;
            for (; position > 1 && k < c->take->list.end; position--) {
                k = weir__sql_element(c->s, k, c->take->list.end) + 1;
            }
            const size_t element = weir__sql_element(c->s, k, c->take->list.end);
            name = element > k && element <= c->take->list.end ? element - 1 : SQL_NONE;
        }
        const bool call =
            name != SQL_NONE && name + 1 < end && weir__sql_is_op(token_at(c, name + 1), "(");
        if (name != SQL_NONE && !call && *count < max) {
            columns[(*count)++] = token_at(c, name)->name;
        }
        i = end + 1;
    }
    return true;
}

/* Whether mark finds the rows by this column: then it tells them apart. */
static bool is_claims_key(const claim *c, weir_str column)
{
    sql_range condition;
    size_t i = 0;

    if (c->mark == NULL) {
        return false;
    }
    while (weir__lint_condition(c->s, c->mark->where, &i, &condition)) {
        const lint_comparison x = weir__lint_compare(c->s, condition);
        if (x.column == SQL_NONE || !x.equal ||
            !weir__str_equal(token_at(c, x.column)->name, column)) {
            continue;
        }
        for (size_t k = c->take->list.begin; k < c->take->list.end; k++) {
            if (weir__str_equal(token_at(c, k)->name, column) ||
                weir__sql_is_op(token_at(c, k), "*")) {
                return true;
            }
        }
    }
    return false;
}

static weir_status ask_order(const claim *c)
{
    weir_str columns[16];
    size_t count = 0;

    /* Who deletes rows without looking at them does not care which. */
    if (c->mark != NULL && c->mark->verb == SQL_DELETE && is_empty(c->mark->returning) &&
        c->mark->statement == c->take->statement && c->mark->role == SQL_ROLE_TOP) {
        return WEIR_OK;
    }
    if (is_empty(c->take->order)) {
        return is_inherited(c, false) ? WEIR_OK : claim_report(c, c->take->begin, LINT_NO_ORDER);
    }
    if (!order_columns(c, columns, sizeof columns / sizeof columns[0], &count) ||
        weir__lint_is_unique(&c->l->keys, c->table, columns, count)) {
        return WEIR_OK;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_claims_key(c, columns[i])) {
            return WEIR_OK;
        }
    }
    return claim_report(c, c->take->order.begin, LINT_NO_TIE_BREAK);
}

static weir_status ask_limit(const claim *c)
{
    const sql_range limit = c->take->limit;
    const int64_t wanted = c->l->options.limit;
    int64_t number = 0;

    if (is_empty(limit) || weir__lint_has_word(c->s, limit, "all") ||
        weir__lint_has_word(c->s, limit, "null")) {
        return is_inherited(c, true) || (c->guarded && wanted == 0)
                   ? WEIR_OK
                   : claim_report(c, c->take->begin, LINT_NO_LIMIT);
    } else if (weir__sql_is_word(token_at(c, limit.begin), "row") ||
               weir__sql_is_word(token_at(c, limit.begin), "rows")) {
        number = 1; /* FETCH FIRST ROW ONLY */
    } else if (!weir__str_to_i64(token_at(c, limit.begin)->text, &number)) {
        return WEIR_OK;
    }
    if (wanted == 0 || number == wanted) {
        return WEIR_OK;
    }
    return weir__lint_add(c->l, c->s, limit.begin, c->take->statement, LINT_WRONG_LIMIT,
                          "the claim takes up to %lld rows where %lld were asked for: write LIMIT "
                          "%lld",
                          (long long)number, (long long)wanted, (long long)wanted);
}

static weir_status ask_limit_kept(const claim *c)
{
    if (c->l->sqlite || c->mark == NULL || c->take->lock == SQL_LOCK_NONE ||
        is_empty(c->take->limit) || !is_inside(c, c->take, c->mark)) {
        return WEIR_OK;
    }
    const bool joined = c->take->role == SQL_ROLE_IN || c->take->role == SQL_ROLE_FROM;
    return joined && weir__sql_query(c->s, c->take->parent) == c->mark
               ? claim_report(c, c->take->begin, LINT_LIMIT_NOT_KEPT)
               : WEIR_OK;
}

static weir_status ask_flip(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    if (c->mark != NULL) {
        return c->flips || is_kept_elsewhere(c) ? WEIR_OK
                                                : claim_report(c, c->mark->begin, LINT_NO_FLIP);
    }
    /* In a section the statement stands alone: its transaction and its UPDATE are elsewhere. */
    if ((t->section > 0 && t->alone) || is_kept_elsewhere(c)) {
        return WEIR_OK;
    }
    return claim_report(c, c->take->begin, LINT_NO_FLIP);
}

static weir_status ask_transaction(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    if (c->mark != NULL) {
        return c->together || (c->guarded && c->take->lock == SQL_LOCK_NONE)
                   ? WEIR_OK
                   : claim_report(c, c->mark->begin, LINT_NOT_ONE_TRANSACTION);
    }
    return t->alone && t->section == 0 && !is_kept_elsewhere(c)
               ? claim_report(c, c->take->begin, LINT_NOT_ONE_TRANSACTION)
               : WEIR_OK;
}

/* Who waits for rows, and in the same transaction then takes what is free, does so on purpose. */
static bool is_waiting_room(const claim *c)
{
    const sql_statement *t = weir__sql_statement(c->s, c->take->statement);

    for (size_t n = t->queries.end; n < weir__sql_queries_count(c->s); n++) {
        const sql_query *q = weir__sql_query(c->s, n);
        if (weir__sql_statement(c->s, q->statement)->transaction != t->transaction) {
            break;
        }
        if (q->verb == SQL_SELECT && q->wait == SQL_WAIT_SKIP &&
            weir__str_equal(weir__lint_table(c->s, q), c->table)) {
            return true;
        }
    }
    return false;
}

/* LATERAL (SELECT ... WHERE t.name = u.name): the row that belongs to another one, not the next. */
static bool is_lookup(const claim *c)
{
    sql_range condition;
    size_t i = 0, conditions = 0;

    if (c->take->role != SQL_ROLE_FROM || c->take->begin < 2 ||
        !weir__sql_is_word(token_at(c, c->take->begin - 2), "lateral")) {
        return false;
    }
    while (weir__lint_condition(c->s, c->take->where, &i, &condition)) {
        const lint_comparison x = weir__lint_compare(c->s, condition);
        if (x.column == SQL_NONE || !x.equal || x.value.begin + 1 >= x.value.end ||
            !weir__sql_is_name(token_at(c, x.value.begin)) ||
            !weir__sql_is_op(token_at(c, x.value.begin + 1), ".")) {
            return false;
        }
        conditions++;
    }
    return conditions > 0;
}

/* SELECT 1 ... FOR UPDATE: asks whether rows are there and free, and does not say which. */
static bool is_probe(const claim *c)
{
    const sql_range list = c->take->list;

    for (size_t i = list.begin; i < list.end; i++) {
        if (weir__sql_is_name(token_at(c, i)) || weir__sql_is_op(token_at(c, i), "*")) {
            return false;
        }
    }
    return true;
}

static weir_status claim_judge(lint *l, const sql_script *s, const sql_query *take)
{
    claim c = { .l = l, .s = s, .take = take, .table = weir__lint_table(s, take) };
    static weir_status (*const questions[])(const claim *) = { ask_lock,  ask_order,
                                                               ask_limit, ask_limit_kept,
                                                               ask_flip,  ask_transaction };
    weir_status status = WEIR_OK;

    if (take->lock == SQL_LOCK_SHARE || weir__lint_is_by_key(l, s, take) || c.table.len == 0 ||
        is_lookup(&c) || is_probe(&c)) {
        return WEIR_OK;
    }
    if (take->lock == SQL_LOCK_UPDATE && take->wait == SQL_WAIT && is_waiting_room(&c)) {
        return WEIR_OK;
    }
    if (!find_mark(&c) && take->wait != SQL_WAIT_SKIP &&
        !(take->lock == SQL_LOCK_UPDATE && !is_empty(take->limit) && asks_for_state(&c))) {
        return WEIR_OK;
    }
    for (size_t i = 0; status == WEIR_OK && i < sizeof questions / sizeof questions[0]; i++) {
        status = questions[i](&c);
    }
    return status;
}

weir_status weir__lint_claims(lint *l, const sql_script *s)
{
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < weir__sql_queries_count(s); i++) {
        const sql_query *q = weir__sql_query(s, i);
        if (q->verb == SQL_SELECT) {
            status = claim_judge(l, s, q);
        }
    }
    return status;
}
