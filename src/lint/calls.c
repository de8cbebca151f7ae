/* calls.c - findings that lie in a call or an expression: work done while rows are locked, advisory
 * locks whose keys collide or that outlive their rows, keys that are another one at every try.
 */
#include "lint/lint_private.h"

static const sql_token *token_at(const sql_script *s, size_t i)
{
    return weir__sql_at(s, i);
}

static bool is_one_of(const sql_token *t, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (weir__sql_is_word(t, *words)) {
            return true;
        }
    }
    return false;
}

static bool is_call(const sql_script *s, size_t i)
{
    return token_at(s, i)->kind == SQL_WORD && weir__sql_is_op(token_at(s, i + 1), "(");
}

static bool word_contains(weir_str text, const char *part)
{
    const size_t len = strlen(part);

    for (size_t i = 0; i + len <= text.len; i++) {
        if (memcmp(text.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- work while rows are locked -------------------------------------------------------------- */

/* Calls that wait for a clock or for another machine. net.http_post and its kin only queue. */
static bool is_work(const sql_script *s, sql_range run, size_t i)
{
    static const char *const waiting[] = {
        "pg_sleep", "pg_sleep_for", "pg_sleep_until", "http",      "http_get", "http_post",
        "http_put", "http_patch",   "http_delete",    "http_head", NULL
    };

    if (token_at(s, i)->kind == SQL_META) {
        return weir__str_starts_with(token_at(s, i)->text, weir__str("\\!"));
    }
    if (weir__sql_is_word(token_at(s, i), "program") &&
        weir__sql_is_word(token_at(s, run.begin), "copy") &&
        token_at(s, i + 1)->kind == SQL_STRING) {
        return true;
    }
    if (!is_call(s, i)) {
        return false;
    }
    const bool net = i > run.begin + 1 && weir__sql_is_op(token_at(s, i - 1), ".") &&
                     weir__sql_is_word(token_at(s, i - 2), "net");
    return (is_one_of(token_at(s, i), waiting) && !net) ||
           weir__str_starts_with(token_at(s, i)->name, weir__str("dblink"));
}

static bool locks_rows(const sql_script *s, const sql_statement *t)
{
    for (size_t i = t->queries.begin; i < t->queries.end; i++) {
        if (weir__sql_query(s, i)->lock == SQL_LOCK_UPDATE) {
            return true;
        }
    }
    return false;
}

/* IF NOT FOUND THEN: nothing was locked where this branch is taken. */
static bool is_empty_branch(const sql_script *s, size_t statement)
{
    const sql_range run = weir__sql_statement(s, statement)->tokens;

    if (!weir__sql_is_word(token_at(s, run.begin), "if")) {
        return false;
    }
    return weir__sql_words(s, run.begin + 1, run.end, "not", "found", NULL) ||
           weir__lint_has_word(s, run, "null");
}

static weir_status check_work(lint *l, const sql_script *s)
{
    uint32_t locked = 0; /* the transaction that has rows locked */
    weir_status status = WEIR_OK;

    for (size_t n = 0; status == WEIR_OK && n < weir__sql_statements_count(s); n++) {
        const sql_statement *t = weir__sql_statement(s, n);
        if (locks_rows(s, t)) {
            locked = t->transaction;
        }
        if (locked == 0 || t->transaction != locked || (n > 0 && is_empty_branch(s, n - 1))) {
            continue;
        }
        for (size_t i = t->tokens.begin; status == WEIR_OK && i < t->tokens.end; i++) {
            if (is_work(s, t->tokens, i)) {
                status = weir__lint_add(l, s, i, n, LINT_WORK_UNDER_LOCK, NULL);
            }
        }
    }
    return status;
}

/* ---- advisory locks -------------------------------------------------------------------------- */

static bool takes_advisory_lock(const sql_script *s, size_t i)
{
    const weir_str name = token_at(s, i)->name;

    return is_call(s, i) && weir__str_starts_with(name, weir__str("pg_")) &&
           word_contains(name, "advisory_") && word_contains(name, "lock") &&
           !word_contains(name, "unlock");
}

/* Whether the arguments are a hash of 32 bits. */
static bool name_collides(const sql_script *s, sql_range arguments)
{
    static const char *const narrow[] = { "hashtext", "hashname",    "hashbpchar",
                                          "hashchar", "hashvarchar", "crc32",
                                          "crc32c",   "adler32",     NULL };
    static const char *const wide[] = { "hashtextextended", "md5",  "sha256", "sha512",
                                        "digest",           "sha1", NULL };
    static const char *const types[] = { "int", "int4", "integer", NULL };
    bool hashed = false, cut = false;

    for (size_t i = arguments.begin; i < arguments.end; i++) {
        if (is_call(s, i) && is_one_of(token_at(s, i), narrow)) {
            return true;
        }
        hashed = hashed || (is_call(s, i) && is_one_of(token_at(s, i), wide));
        cut = cut || (is_one_of(token_at(s, i), types) && i > arguments.begin &&
                      (weir__sql_is_op(token_at(s, i - 1), "::") ||
                       weir__sql_is_word(token_at(s, i - 1), "as")));
        cut = cut || (weir__sql_is_word(token_at(s, i), "bit") && i + 2 < arguments.end &&
                      weir__str_equal(token_at(s, i + 2)->text, weir__str("32")));
    }
    return hashed && cut;
}

static bool is_in(sql_range r, size_t i)
{
    return r.begin <= i && i < r.end;
}

/* The innermost query whose list or conditions hold the token; NULL: none. */
static const sql_query *query_around(const sql_script *s, size_t token)
{
    const sql_query *found = NULL;

    for (size_t n = 0; n < weir__sql_queries_count(s); n++) {
        const sql_query *q = weir__sql_query(s, n);
        if ((is_in(q->list, token) || is_in(q->where, token) || is_in(q->from, token)) &&
            (found == NULL || q->begin > found->begin)) {
            found = q;
        }
    }
    return found;
}

/* PostgreSQL may call the function for rows that LIMIT or another condition then leaves out. */
static bool locks_too_much(const sql_script *s, size_t token)
{
    const sql_query *q = query_around(s, token);
    sql_range condition;
    size_t i = 0, conditions = 0;

    if (q == NULL || q->verb != SQL_SELECT || q->from.begin >= q->from.end) {
        return false;
    }
    if (is_in(q->list, token)) {
        return q->limit.begin < q->limit.end && q->table != SQL_NONE;
    }
    if (!is_in(q->where, token)) {
        return false;
    }
    while (weir__lint_condition(s, q->where, &i, &condition)) {
        conditions++;
    }
    return conditions > 1 || q->limit.begin < q->limit.end;
}

static weir_status check_advisory(lint *l, const sql_script *s)
{
    weir_status status = WEIR_OK;

    for (size_t n = 0; status == WEIR_OK && n < weir__sql_statements_count(s); n++) {
        const sql_range run = weir__sql_statement(s, n)->tokens;
        for (size_t i = run.begin; status == WEIR_OK && i < run.end; i++) {
            if (!takes_advisory_lock(s, i)) {
                continue;
            }
            if (name_collides(s, (sql_range){ i + 2, token_at(s, i + 1)->match })) {
                status = weir__lint_add(l, s, i, n, LINT_LOCK_KEY_COLLIDES, NULL);
            }
            if (status == WEIR_OK && locks_too_much(s, i)) {
                status = weir__lint_add(l, s, i, n, LINT_LOCK_NOT_RETURNED, NULL);
            }
        }
    }
    return status;
}

/* ---- keys of idempotency --------------------------------------------------------------------- */

static bool is_key_name(const sql_token *t)
{
    static const char *const parts[] = { "idempot", "idem_key", "dedup", "once_key" };

    if (t->kind != SQL_WORD && t->kind != SQL_QUOTED) {
        return false;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (word_contains(t->name, parts[i])) {
            return true;
        }
    }
    return false;
}

/* The call that the token is an argument of; SQL_NONE. */
static size_t call_around(const sql_script *s, sql_range run, size_t token)
{
    for (size_t i = token; i-- > run.begin;) {
        if (weir__sql_is_op(token_at(s, i), "(") && token_at(s, i)->match > token) {
            if (i > run.begin && token_at(s, i - 1)->kind == SQL_WORD) {
                return i - 1;
            }
        }
    }
    return SQL_NONE;
}

/* date_trunc('day', now()), to_char(now(), 'YYYY-MM-DD') and now()::date name a day on purpose. */
static bool is_coarse(const sql_script *s, sql_range run, size_t token, size_t after)
{
    static const char *const finer[] = { "SS", "MS",     "US",    "MI",   "ss",
                                         "mi", "second", "micro", "milli" };
    const size_t call = call_around(s, run, token);

    if (after + 1 < run.end && weir__sql_is_op(token_at(s, after), "::") &&
        weir__sql_is_word(token_at(s, after + 1), "date")) {
        return true;
    }
    if (call == SQL_NONE) {
        return false;
    }
    if (weir__sql_is_word(token_at(s, call), "date")) {
        return true;
    }
    if (!weir__sql_is_word(token_at(s, call), "date_trunc") &&
        !weir__sql_is_word(token_at(s, call), "to_char")) {
        return false;
    }
    for (size_t i = call; i < token_at(s, call + 1)->match; i++) {
        for (size_t k = 0; token_at(s, i)->kind == SQL_STRING && k < sizeof finer / sizeof finer[0];
             k++) {
            if (word_contains(token_at(s, i)->name, finer[k])) {
                return false;
            }
        }
    }
    return true;
}

/* The token that makes the expression another one at every try; SQL_NONE. */
static size_t word_changing(const sql_script *s, sql_range run)
{
    static const char *const words[] = { "current_timestamp", "localtimestamp", "current_time",
                                         "localtime", NULL };
    static const char *const times[] = {
        "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", NULL
    };
    static const char *const calls[] = { "random",           "gen_random_uuid",
                                         "uuid_generate_v1", "uuid_generate_v1mc",
                                         "uuid_generate_v4", "uuidv4",
                                         "uuidv7",           "nextval",
                                         "txid_current",     "pg_current_xact_id",
                                         "pg_backend_pid",   "randomblob",
                                         "gen_random_bytes", "unixepoch",
                                         "julianday",        NULL };
    static const char *const sqlite[] = { "datetime", "strftime", NULL };

    for (size_t i = run.begin; i < run.end; i++) {
        const bool call = i + 1 < run.end && is_call(s, i);
        if (is_one_of(token_at(s, i), words) && !is_coarse(s, run, i, i + 1)) {
            return i;
        }
        if (call && is_one_of(token_at(s, i), times) &&
            !is_coarse(s, run, i, token_at(s, i + 1)->match + 1)) {
            return i;
        }
        if (call && is_one_of(token_at(s, i), calls)) {
            return i;
        }
        for (size_t k = i + 2;
             call && is_one_of(token_at(s, i), sqlite) && k < token_at(s, i + 1)->match; k++) {
            if (token_at(s, k)->kind == SQL_STRING && word_contains(token_at(s, k)->name, "now")) {
                return i;
            }
        }
    }
    return SQL_NONE;
}

static weir_status check_expression(lint *l, const sql_script *s, const sql_query *q, sql_range run)
{
    const size_t token = word_changing(s, run);
    return token == SQL_NONE ? WEIR_OK
                             : weir__lint_add(l, s, token, q->statement, LINT_KEY_CHANGES, NULL);
}

/* The element number `n` of a list; empty when there is none. */
static sql_range list_element(const sql_script *s, sql_range list, size_t n)
{
    size_t i = list.begin;

    for (; n > 0 && i < list.end; n--) {
        i = weir__sql_element(s, i, list.end) + 1;
    }
    return i < list.end ? (sql_range){ i, weir__sql_element(s, i, list.end) }
                        : (sql_range){ list.end, list.end };
}

/* INSERT INTO t (..., key, ...) VALUES or SELECT: what goes into the key. */
static weir_status check_insert(lint *l, const sql_script *s, size_t index)
{
    const sql_query *q = weir__sql_query(s, index);
    weir_status status = WEIR_OK;
    size_t number = 0;

    for (size_t i = q->list.begin; status == WEIR_OK && i < q->list.end; number++) {
        const size_t end = weir__sql_element(s, i, q->list.end);
        const bool key = is_key_name(token_at(s, i));
        i = end + 1;
        if (!key) {
            continue;
        }
        for (size_t k = q->values.begin; status == WEIR_OK && k < q->values.end;
             k = weir__sql_over(s, k)) {
            if (weir__sql_is_op(token_at(s, k), "(")) {
                const sql_range row = { k + 1, token_at(s, k)->match };
                status = check_expression(l, s, q, list_element(s, row, number));
            }
        }
        const sql_query *from = index + 1 < weir__sql_queries_count(s) ? q + 1 : NULL;
        if (status == WEIR_OK && from != NULL && from->statement == q->statement &&
            from->verb == SQL_SELECT && q->values.begin >= q->values.end) {
            status = check_expression(l, s, q, list_element(s, from->list, number));
        }
    }
    return status;
}

static weir_status check_update(lint *l, const sql_script *s, const sql_query *q)
{
    weir_status status = WEIR_OK;
    size_t i = q->set.begin, column;
    sql_range value;

    while (status == WEIR_OK && weir__lint_assignment(s, q->set, &i, &column, &value)) {
        if (column != SQL_NONE && is_key_name(token_at(s, column))) {
            status = check_expression(l, s, q, value);
        }
    }
    return status;
}

/* SELECT expression AS key. */
static weir_status check_select(lint *l, const sql_script *s, const sql_query *q)
{
    weir_status status = WEIR_OK;

    for (size_t i = q->list.begin; status == WEIR_OK && i < q->list.end;) {
        const size_t end = weir__sql_element(s, i, q->list.end);
        if (end > i + 1 && is_key_name(token_at(s, end - 1))) {
            status = check_expression(l, s, q, (sql_range){ i, end - 1 });
        }
        i = end + 1;
    }
    return status;
}

/* key := expression; */
static weir_status check_assignments(lint *l, const sql_script *s)
{
    weir_status status = WEIR_OK;

    for (size_t n = 0; status == WEIR_OK && n < weir__sql_statements_count(s); n++) {
        const sql_range run = weir__sql_statement(s, n)->tokens;
        for (size_t i = run.begin; status == WEIR_OK && i < run.end; i++) {
            if (weir__sql_is_op(token_at(s, i), ":=") && is_key_name(token_at(s, run.begin))) {
                const size_t token = word_changing(s, (sql_range){ i, run.end });
                if (token != SQL_NONE) {
                    status = weir__lint_add(l, s, token, n, LINT_KEY_CHANGES, NULL);
                }
                break;
            }
        }
    }
    return status;
}

static weir_status check_keys(lint *l, const sql_script *s)
{
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < weir__sql_queries_count(s); i++) {
        const sql_query *q = weir__sql_query(s, i);
        switch (q->verb) {
        case SQL_INSERT:
            status = check_insert(l, s, i);
            break;
        case SQL_UPDATE:
            status = check_update(l, s, q);
            break;
        case SQL_SELECT:
            status = check_select(l, s, q);
            break;
        case SQL_DELETE:
            break;
        }
    }
    return status == WEIR_OK ? check_assignments(l, s) : status;
}

weir_status weir__lint_calls(lint *l, const sql_script *s)
{
    weir_status status = check_work(l, s);

    if (status == WEIR_OK) {
        status = check_advisory(l, s);
    }
    return status == WEIR_OK ? check_keys(l, s) : status;
}
