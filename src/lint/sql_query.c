/* sql_query.c - the queries of one statement, with their clauses.
 *
 * A run of tokens is walked once at its own level: a keyword that begins a clause ends the one
 * before it, and parentheses are stepped over. Those that hold a query are then read in the same
 * way, with what stands before them for their role. A keyword behind a dot or AS is a name.
 */
#include "lint/sql_script.h"

#include "base/assert.h"

typedef struct reader {
    sql_script *s;
    size_t statement;
    weir_error *err;
} reader;

typedef enum clause {
    CLAUSE_LIST,
    CLAUSE_FROM,
    CLAUSE_WHERE,
    CLAUSE_ORDER,
    CLAUSE_LIMIT,
    CLAUSE_SET,
    CLAUSE_VALUES,
    CLAUSE_RETURNING,
    CLAUSE_OTHER,
} clause;

static weir_status read_run(reader *r, sql_range run, sql_role role, size_t parent);

static const sql_token *token_at(const reader *r, size_t i)
{
    return weir__sql_at(r->s, i);
}

static bool token_is(const reader *r, size_t i, size_t end, const char *word)
{
    return i < end && weir__sql_is_word(token_at(r, i), word);
}

/* A keyword and not a name that is spelt like one. */
static bool is_key(const reader *r, sql_range run, size_t i, const char *word)
{
    return token_is(r, i, run.end, word) &&
           (i == run.begin ||
            (!weir__sql_is_op(token_at(r, i - 1), ".") && !token_is(r, i - 1, run.end, "as")));
}

static bool begins_query(const reader *r, size_t i, size_t end)
{
    static const char *const verbs[] = { "select", "with",   "update", "delete",
                                         "insert", "values", "perform" };

    while (i < end && weir__sql_is_op(token_at(r, i), "(")) {
        i++;
    }
    for (size_t k = 0; k < sizeof verbs / sizeof verbs[0]; k++) {
        if (token_is(r, i, end, verbs[k])) {
            return true;
        }
    }
    return false;
}

/* Past a name with its qualifiers; *last: its last part, or SQL_NONE. */
static size_t pass_name(const reader *r, size_t i, size_t end, size_t *last)
{
    *last = SQL_NONE;
    while (i < end && (weir__sql_is_name(token_at(r, i)) || token_at(r, i)->kind == SQL_PARAM)) {
        *last = i++;
        if (i >= end || !weir__sql_is_op(token_at(r, i), ".")) {
            break;
        }
        i++;
    }
    return i;
}

/* The table at i, with its alias. */
static size_t pass_table(const reader *r, size_t i, size_t end, sql_query *q)
{
    static const char *const not_alias[] = { "set",       "where",      "using",      "from",
                                             "returning", "join",       "left",       "right",
                                             "full",      "inner",      "cross",      "natural",
                                             "on",        "values",     "default",    "select",
                                             "with",      "overriding", "tablesample" };

    if (token_is(r, i, end, "only") || token_is(r, i, end, "lateral")) {
        i++;
    }
    i = pass_name(r, i, end, &q->table);
    if (i < end && weir__sql_is_op(token_at(r, i), "*")) {
        i++;
    }
    if (token_is(r, i, end, "as")) {
        i++;
    }
    for (size_t k = 0; k < sizeof not_alias / sizeof not_alias[0]; k++) {
        if (token_is(r, i, end, not_alias[k])) {
            return i;
        }
    }
    if (q->table != SQL_NONE && i < end && weir__sql_is_name(token_at(r, i))) {
        q->alias = i++;
    }
    return i;
}

static sql_role role_of(const reader *r, sql_range run, size_t open, clause in)
{
    const size_t before = open == run.begin ? SQL_NONE : open - 1;

    if (before != SQL_NONE) {
        if (token_is(r, before, run.end, "in") || token_is(r, before, run.end, "any") ||
            token_is(r, before, run.end, "some")) {
            return SQL_ROLE_IN;
        }
        if (token_is(r, before, run.end, "exists")) {
            return SQL_ROLE_EXISTS;
        }
        if (token_is(r, before, run.end, "array")) {
            return SQL_ROLE_ARRAY;
        }
    }
    if (in == CLAUSE_FROM && before != SQL_NONE &&
        (weir__sql_is_op(token_at(r, before), ",") || token_is(r, before, run.end, "from") ||
         token_is(r, before, run.end, "join") || token_is(r, before, run.end, "using") ||
         token_is(r, before, run.end, "lateral"))) {
        return SQL_ROLE_FROM;
    }
    return SQL_ROLE_VALUE;
}

/* Reads what is inside the parentheses at `open`: a query, or an expression with queries in it. */
static weir_status read_inside(reader *r, size_t open, sql_role role, size_t parent)
{
    sql_range inside = { open + 1, token_at(r, open)->match };

    /* ((SELECT ...)) is the same query, in the same role. */
    while (inside.begin < inside.end && weir__sql_is_op(token_at(r, inside.begin), "(") &&
           token_at(r, inside.begin)->match == inside.end - 1) {
        inside.begin++;
        inside.end--;
    }
    if (begins_query(r, inside.begin, inside.end)) {
        return read_run(r, inside, role, parent);
    }
    weir_status status = WEIR_OK;
    for (size_t i = inside.begin; status == WEIR_OK && i < inside.end;
         i = weir__sql_over(r->s, i)) {
        if (weir__sql_is_op(token_at(r, i), "(")) {
            sql_role inner =
                role_of(r, inside, i, role == SQL_ROLE_FROM ? CLAUSE_FROM : CLAUSE_OTHER);
            /* ANY(ARRAY(...)) and IN (...) keep what they are through further parentheses. */
            if (inner == SQL_ROLE_VALUE && i == inside.begin && role == SQL_ROLE_FROM) {
                inner = SQL_ROLE_FROM;
            }
            status = read_inside(r, i, inner, parent);
        }
    }
    return status;
}

/* FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE, FOR KEY SHARE, with OF, NOWAIT and SKIP LOCKED. */
static size_t pass_lock(const reader *r, size_t i, sql_range run, sql_query *q)
{
    size_t k = i + 1;

    if (token_is(r, k, run.end, "no") && token_is(r, k + 1, run.end, "key")) {
        k += 2;
    } else if (token_is(r, k, run.end, "key")) {
        k++;
    }
    const bool update = token_is(r, k, run.end, "update");
    if (!update && !token_is(r, k, run.end, "share")) {
        return i;
    }
    k++;
    sql_range of = { k, k };
    sql_wait wait = SQL_WAIT;
    if (token_is(r, k, run.end, "of")) {
        size_t name = SQL_NONE;
        of.begin = ++k;
        do {
            k = pass_name(r, k, run.end, &name);
        } while (k < run.end && weir__sql_is_op(token_at(r, k), ",") && ++k < run.end);
        of.end = k;
    }
    if (token_is(r, k, run.end, "nowait")) {
        wait = SQL_WAIT_NOWAIT;
        k++;
    } else if (token_is(r, k, run.end, "skip") && token_is(r, k + 1, run.end, "locked")) {
        wait = SQL_WAIT_SKIP;
        k += 2;
    }
    /* Of several, the one that takes the rows to be changed. */
    if (update || q->lock == SQL_LOCK_NONE) {
        q->lock = update ? SQL_LOCK_UPDATE : SQL_LOCK_SHARE;
        q->wait = wait;
        q->of = of;
    }
    return k;
}

static sql_range *range_of(sql_query *q, clause c)
{
    switch (c) {
    case CLAUSE_LIST:
        return &q->list;
    case CLAUSE_FROM:
        return &q->from;
    case CLAUSE_WHERE:
        return &q->where;
    case CLAUSE_ORDER:
        return &q->order;
    case CLAUSE_LIMIT:
        return &q->limit;
    case CLAUSE_SET:
        return &q->set;
    case CLAUSE_VALUES:
        return &q->values;
    case CLAUSE_RETURNING:
        return &q->returning;
    case CLAUSE_OTHER:
        break;
    }
    return NULL;
}

/* The clause that begins at i, and where its contents do; CLAUSE_OTHER with *to == i: none. */
static clause clause_at(const reader *r, sql_range run, size_t i, sql_query *q, size_t *to)
{
    static const struct {
        const char *first, *second;
        clause clause;
    } heads[] = {
        { "from", NULL, CLAUSE_FROM },           { "where", NULL, CLAUSE_WHERE },
        { "order", "by", CLAUSE_ORDER },         { "group", "by", CLAUSE_OTHER },
        { "having", NULL, CLAUSE_OTHER },        { "window", NULL, CLAUSE_OTHER },
        { "limit", NULL, CLAUSE_LIMIT },         { "offset", NULL, CLAUSE_OTHER },
        { "returning", NULL, CLAUSE_RETURNING }, { "into", NULL, CLAUSE_OTHER },
        { "fetch", "first", CLAUSE_LIMIT },      { "fetch", "next", CLAUSE_LIMIT },
        { "on", "conflict", CLAUSE_OTHER },
    };

    *to = i;
    for (size_t k = 0; k < sizeof heads / sizeof heads[0]; k++) {
        if (!is_key(r, run, i, heads[k].first) ||
            (heads[k].second != NULL && !token_is(r, i + 1, run.end, heads[k].second))) {
            continue;
        }
        *to = i + (heads[k].second == NULL ? 1 : 2);
        q->distinct = q->distinct || strcmp(heads[k].first, "group") == 0 ||
                      strcmp(heads[k].first, "having") == 0;
        return heads[k].clause;
    }
    if (q->verb == SQL_UPDATE && q->set.begin == q->set.end && is_key(r, run, i, "set")) {
        *to = i + 1;
        return CLAUSE_SET;
    }
    if (q->verb == SQL_DELETE && is_key(r, run, i, "using") && q->from.end == 0) {
        *to = i + 1;
        return CLAUSE_FROM;
    }
    if (q->verb == SQL_INSERT && is_key(r, run, i, "values")) {
        *to = i + 1;
        return CLAUSE_VALUES;
    }
    if (q->verb == SQL_SELECT && is_key(r, run, i, "for")) {
        *to = pass_lock(r, i, run, q);
    }
    return CLAUSE_OTHER;
}

/* IS [NOT] DISTINCT FROM is no clause. */
static bool is_comparison(const reader *r, sql_range run, size_t i)
{
    return i > run.begin + 1 && token_is(r, i, run.end, "from") &&
           token_is(r, i - 1, run.end, "distinct") &&
           (token_is(r, i - 2, run.end, "is") || token_is(r, i - 2, run.end, "not"));
}

static bool is_set_operation(const reader *r, sql_range run, size_t i)
{
    return is_key(r, run, i, "union") || is_key(r, run, i, "intersect") ||
           is_key(r, run, i, "except");
}

/* The clauses of the query `index` from token i on. Ends before a set operation. */
static weir_status read_clauses(reader *r, sql_range run, size_t index, size_t i, size_t *stopped)
{
    sql_query q = *weir__sql_query(r->s, index);
    clause in = q.verb == SQL_SELECT ? CLAUSE_LIST : CLAUSE_OTHER;
    weir_status status = WEIR_OK;

    if (in == CLAUSE_LIST) {
        q.list = (sql_range){ i, i };
    }
    while (status == WEIR_OK && i < run.end && !is_set_operation(r, run, i)) {
        size_t to = i;
        const clause next = is_comparison(r, run, i) ? CLAUSE_OTHER : clause_at(r, run, i, &q, &to);
        if (to > i) {
            in = next;
            i = to;
            if (range_of(&q, in) != NULL) {
                *range_of(&q, in) = (sql_range){ i, i };
            }
            if (in == CLAUSE_FROM && q.verb == SQL_SELECT && q.table == SQL_NONE) {
                (void)pass_table(r, i, run.end, &q);
            }
            continue;
        }
        if (q.verb == SQL_INSERT && (is_key(r, run, i, "select") || is_key(r, run, i, "with"))) {
            break; /* INSERT ... SELECT: a query of its own */
        }
        if (weir__sql_is_op(token_at(r, i), "(")) {
            const sql_role role = role_of(r, (sql_range){ run.begin, run.end }, i, in);
            *weir__sql_query(r->s, index) = q;
            status = read_inside(r, i, role, index);
        }
        i = weir__sql_over(r->s, i);
        if (range_of(&q, in) != NULL) {
            range_of(&q, in)->end = i;
        }
    }
    *weir__sql_query(r->s, index) = q;
    *stopped = i;
    return status;
}

static weir_status add_query(reader *r, sql_query q, size_t *index)
{
    *index = weir__sql_queries_count(r->s);
    return weir__buffer_add(&r->s->queries, &q, sizeof q)
               ? WEIR_OK
               : weir__fail(r->err, WEIR_ENOMEM, "out of memory");
}

/* WITH name [(columns)] AS [NOT] [MATERIALIZED] (query), ... *i: behind it. */
static weir_status read_with(reader *r, sql_range run, size_t *i, size_t parent)
{
    weir_status status = WEIR_OK;
    size_t k = *i + 1;

    if (token_is(r, k, run.end, "recursive")) {
        k++;
    }
    while (status == WEIR_OK && k < run.end && weir__sql_is_name(token_at(r, k))) {
        const size_t name = k++;
        const size_t first = weir__sql_queries_count(r->s);
        if (k < run.end && weir__sql_is_op(token_at(r, k), "(")) {
            k = weir__sql_over(r->s, k);
        }
        while (token_is(r, k, run.end, "as") || token_is(r, k, run.end, "not") ||
               token_is(r, k, run.end, "materialized")) {
            k++;
        }
        if (k >= run.end || !weir__sql_is_op(token_at(r, k), "(")) {
            break;
        }
        status = read_inside(r, k, SQL_ROLE_CTE, parent);
        if (status == WEIR_OK && first < weir__sql_queries_count(r->s)) {
            /* The last query at this level is the one the name stands for. */
            for (size_t n = first; n < weir__sql_queries_count(r->s); n++) {
                if (weir__sql_query(r->s, n)->role == SQL_ROLE_CTE &&
                    weir__sql_query(r->s, n)->cte == SQL_NONE) {
                    weir__sql_query(r->s, n)->cte = name;
                }
            }
        }
        k = weir__sql_over(r->s, k);
        /* SEARCH ... SET and CYCLE ... USING belong to the query before them. */
        while (k < run.end && !weir__sql_is_op(token_at(r, k), ",") &&
               !begins_query(r, k, run.end)) {
            k = weir__sql_over(r->s, k);
        }
        if (k >= run.end || !weir__sql_is_op(token_at(r, k), ",")) {
            break;
        }
        k++;
    }
    *i = k;
    return status;
}

/* The query whose verb is at *i. */
static weir_status read_verb(reader *r, sql_range run, size_t *i, sql_role role, size_t parent)
{
    sql_query q = { .role = role,
                    .parent = parent,
                    .statement = r->statement,
                    .begin = *i,
                    .table = SQL_NONE,
                    .alias = SQL_NONE,
                    .cte = SQL_NONE };
    size_t index = 0, k = *i + 1;

    if (token_is(r, *i, run.end, "update")) {
        q.verb = SQL_UPDATE;
        k += token_is(r, k, run.end, "or") ? 2 : 0; /* SQLite: UPDATE OR IGNORE */
        k = pass_table(r, k, run.end, &q);
    } else if (token_is(r, *i, run.end, "delete")) {
        q.verb = SQL_DELETE;
        k += token_is(r, k, run.end, "from") ? 1 : 0;
        k = pass_table(r, k, run.end, &q);
    } else if (token_is(r, *i, run.end, "insert")) {
        q.verb = SQL_INSERT;
        while (k < run.end && !token_is(r, k, run.end, "into")) {
            k = weir__sql_over(r->s, k);
        }
        k = k < run.end ? pass_table(r, k + 1, run.end, &q) : run.end;
        if (k < run.end && weir__sql_is_op(token_at(r, k), "(") && !begins_query(r, k, run.end)) {
            q.list = (sql_range){ k + 1, token_at(r, k)->match };
            k = weir__sql_over(r->s, k);
        }
    } else {
        q.verb = SQL_SELECT; /* SELECT, or VALUES by itself, which has no clauses of interest */
        if (token_is(r, k, run.end, "all")) {
            k++;
        } else if (token_is(r, k, run.end, "distinct")) {
            q.distinct = true;
            k++;
            if (token_is(r, k, run.end, "on") && k + 1 < run.end) {
                k = weir__sql_over(r->s, k + 1);
            }
        }
    }
    k = k < run.end ? k : run.end;
    weir_status status = add_query(r, q, &index);
    if (status == WEIR_OK) {
        status = read_clauses(r, run, index, k, i);
    }
    return status;
}

/* A query expression: WITH, then queries joined by set operations. */
static weir_status read_run(reader *r, sql_range run, sql_role role, size_t parent)
{
    weir_status status = WEIR_OK;
    bool united = false;
    size_t i = run.begin;

    while (status == WEIR_OK && i < run.end) {
        const size_t index = weir__sql_queries_count(r->s);
        if (token_is(r, i, run.end, "with")) {
            status = read_with(r, run, &i, parent);
            continue;
        }
        if (weir__sql_is_op(token_at(r, i), "(") && begins_query(r, i, run.end)) {
            status = read_inside(r, i, role, parent);
            i = weir__sql_over(r->s, i);
        } else if (begins_query(r, i, run.end)) {
            const size_t before = i;
            status = read_verb(r, run, &i, role, parent);
            WEIR_ASSERT(status != WEIR_OK || i > before);
        } else {
            i = weir__sql_over(r->s, i);
            continue;
        }
        united = united || (i < run.end && is_set_operation(r, run, i));
        for (size_t n = index; united && n < weir__sql_queries_count(r->s); n++) {
            sql_query *q = weir__sql_query(r->s, n);
            q->distinct = q->distinct || (q->parent == parent && q->verb == SQL_SELECT);
        }
    }
    return status;
}

weir_status weir__sql_queries_read(sql_script *s, size_t statement, sql_range tokens,
                                   weir_error *err)
{
    reader r = { .s = s, .statement = statement, .err = err };

    if (begins_query(&r, tokens.begin, tokens.end)) {
        return read_run(&r, tokens, SQL_ROLE_TOP, SQL_NONE);
    }
    /* Something else, such as a call or a condition: the queries in its parentheses. */
    weir_status status = WEIR_OK;
    for (size_t i = tokens.begin; status == WEIR_OK && i < tokens.end; i = weir__sql_over(s, i)) {
        if (weir__sql_is_op(weir__sql_at(s, i), "(")) {
            status = read_inside(&r, i, role_of(&r, tokens, i, CLAUSE_OTHER), SQL_NONE);
        }
    }
    return status;
}
