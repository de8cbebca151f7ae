/* sql_script.c - statements, function bodies and transactions.
 *
 * A statement ends at its semicolon. In the body of a function the words that begin a block or a
 * branch end one as well, so that BEGIN, IF ... THEN, ELSE and FOR ... LOOP do not hide what
 * follows them. Bodies that are quoted, or stand between BEGIN ATOMIC and END, are set aside for
 * the caller to read as scripts of their own.
 */
#include "lint/sql_script.h"

typedef struct splitter {
    sql_script *s;
    weir_arena *arena;
    size_t i;
    uint32_t section;
    weir_error *err;
} splitter;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static bool token_is(const sql_script *s, size_t i, const char *word)
{
    return weir__sql_is_word(weir__sql_at(s, i), word);
}

static bool is_one_of(const sql_script *s, size_t i, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (token_is(s, i, *words)) {
            return true;
        }
    }
    return false;
}

bool weir__sql_words(const sql_script *s, size_t i, size_t end, const char *a, const char *b,
                     const char *c)
{
    return i < end && token_is(s, i, a) && (b == NULL || (i + 1 < end && token_is(s, i + 1, b))) &&
           (c == NULL || (i + 2 < end && token_is(s, i + 2, c)));
}

size_t weir__sql_element(const sql_script *s, size_t i, size_t end)
{
    while (i < end && !weir__sql_is_op(weir__sql_at(s, i), ",")) {
        i = weir__sql_over(s, i);
    }
    return i < end ? i : end;
}

static bool is_end(const sql_script *s, size_t i)
{
    const sql_token *t = weir__sql_at(s, i);
    return t->kind == SQL_END || weir__sql_is_op(t, ";");
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static weir_status add_body(splitter *p, weir_str text, uint32_t line)
{
    const sql_body body = { .text = text, .line = line };
    return weir__buffer_add(&p->s->bodies, &body, sizeof body) ? WEIR_OK : no_memory(p->err);
}

/* The contents of '...' with doubled quotes made single. Lines stay where they are. */
static weir_status add_quoted_body(splitter *p, const sql_token *t)
{
    if (memchr(t->name.ptr, '\'', t->name.len) == NULL) {
        return add_body(p, t->name, t->body_line);
    }
    char *copy = weir__arena_alloc(p->arena, t->name.len);
    size_t len = 0;
    if (copy == NULL) {
        return no_memory(p->err);
    }
    for (size_t i = 0; i < t->name.len; i++) {
        copy[len++] = t->name.ptr[i];
        if (t->name.ptr[i] == '\'' && i + 1 < t->name.len && t->name.ptr[i + 1] == '\'') {
            i++;
        }
    }
    return add_body(p, (weir_str){ copy, len }, t->body_line);
}

/* Whether the statement says it is in a language that we can read. */
static bool is_readable(const sql_script *s, sql_range run)
{
    for (size_t i = run.begin; i + 1 < run.end; i = weir__sql_over(s, i)) {
        if (token_is(s, i, "language")) {
            const weir_str name = weir__sql_at(s, i + 1)->name;
            return weir__str_equal(name, weir__str("sql")) ||
                   weir__str_equal(name, weir__str("plpgsql"));
        }
    }
    return true;
}

static weir_status find_quoted_body(splitter *p, sql_range run)
{
    const bool block = token_is(p->s, run.begin, "do");

    if (!is_readable(p->s, run)) {
        return WEIR_OK;
    }
    for (size_t i = run.begin + 1; i < run.end; i = weir__sql_over(p->s, i)) {
        const sql_token *t = weir__sql_at(p->s, i);
        if ((t->kind == SQL_DOLLAR || t->kind == SQL_STRING) &&
            (token_is(p->s, i - 1, "as") || (block && !token_is(p->s, i - 1, "language")))) {
            return t->kind == SQL_DOLLAR ? add_body(p, t->name, t->body_line)
                                         : add_quoted_body(p, t);
        }
    }
    return WEIR_OK;
}

/* BEGIN [ATOMIC] ... END: `begin` is the BEGIN. *after: behind the END. */
static weir_status find_plain_body(splitter *p, size_t begin, size_t *after)
{
    const sql_token *first = weir__sql_at(p->s, begin);
    size_t depth = 1, i = begin + 1;

    if (token_is(p->s, i, "atomic")) {
        first = weir__sql_at(p->s, i++);
    }
    for (; weir__sql_at(p->s, i)->kind != SQL_END; i = weir__sql_over(p->s, i)) {
        depth += token_is(p->s, i, "case") ? 1 : 0;
        if (token_is(p->s, i, "end") && --depth == 0) {
            break;
        }
    }
    const sql_token *last = weir__sql_at(p->s, i);
    const char *from = first->text.ptr + first->text.len;
    const char *to = last->kind == SQL_END
                         ? weir__sql_at(p->s, i - 1)->text.ptr + weir__sql_at(p->s, i - 1)->text.len
                         : last->text.ptr;
    *after = last->kind == SQL_END ? i : i + 1;
    return to > from ? add_body(p, (weir_str){ from, (size_t)(to - from) }, first->line) : WEIR_OK;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Up to the word, outside parentheses and CASE, or to the end of the statement. */
static size_t scan_to(const sql_script *s, size_t i, const char *word)
{
    size_t cases = 0;

    while (!is_end(s, i) && !(cases == 0 && token_is(s, i, word))) {
        cases += token_is(s, i, "case") ? 1 : 0;
        cases -= cases > 0 && token_is(s, i, "end") ? 1 : 0;
        i = weir__sql_over(s, i);
    }
    return i;
}

/* name [NO SCROLL] CURSOR ... of a function's declarations. */
static bool declares_cursor(const sql_script *s, sql_range run)
{
    for (size_t i = run.begin + 1; s->body && i < run.end && i < run.begin + 4; i++) {
        if (token_is(s, i, "cursor")) {
            return true;
        }
    }
    return false;
}

/* Where the query of a statement begins that is one with something in front of it. */
static size_t query_begin(const sql_script *s, sql_range run)
{
    static const char *const verbs[] = { "select", "with",   "update", "delete",
                                         "insert", "values", NULL };
    static const char *const heads[] = { "explain", "prepare", "declare", "create",
                                         "return",  "for",     "open",    NULL };
    static const char *const before[] = { "as",      "for",     "in",      "query",
                                          "explain", "analyze", "verbose", NULL };
    size_t i = run.begin;

    if (i >= run.end || (!is_one_of(s, i, heads) && !declares_cursor(s, run))) {
        return i;
    }
    for (i++; i < run.end; i = weir__sql_over(s, i)) {
        const bool behind =
            is_one_of(s, i - 1, before) ||
            (token_is(s, run.begin, "explain") && weir__sql_is_op(weir__sql_at(s, i - 1), ")"));
        if (is_one_of(s, i, verbs) && behind) {
            return i;
        }
    }
    return run.begin;
}

static weir_status add_statement(splitter *p, sql_range run)
{
    const size_t index = weir__sql_statements_count(p->s);
    sql_statement t = { .tokens = run, .section = p->section };
    weir_status status = WEIR_OK;

    for (size_t i = run.begin; i < run.end; i++) {
        if (weir__sql_at(p->s, i)->section) {
            t.section = ++p->section;
        }
    }
    t.queries.begin = weir__sql_queries_count(p->s);
    status =
        weir__sql_queries_read(p->s, index, (sql_range){ query_begin(p->s, run), run.end }, p->err);
    t.queries.end = weir__sql_queries_count(p->s);
    if (status == WEIR_OK && !weir__buffer_add(&p->s->statements, &t, sizeof t)) {
        status = no_memory(p->err);
    }
    return status;
}

/* The end of the statement at i in a body: a word that stands before others, or a condition. */
static size_t body_statement_end(const sql_script *s, size_t i)
{
    static const char *const single[] = { "begin", "declare", "else", "loop", "exception", NULL };
    static const char *const conditions[] = { "if", "elsif", "elseif", "when", NULL };
    static const char *const loops[] = { "for", "foreach", "while", NULL };

    if (is_one_of(s, i, single)) {
        return i + 1;
    }
    if (weir__sql_is_op(weir__sql_at(s, i), "<<")) {
        while (!is_end(s, i) && !weir__sql_is_op(weir__sql_at(s, i), ">>")) {
            i++;
        }
        return is_end(s, i) ? i : i + 1;
    }
    if (token_is(s, i, "case")) {
        const size_t when = scan_to(s, i + 1, "when");
        return when;
    }
    if (is_one_of(s, i, conditions)) {
        i = scan_to(s, i, "then");
        return is_end(s, i) ? i : i + 1;
    }
    if (is_one_of(s, i, loops)) {
        i = scan_to(s, i, "loop");
        return is_end(s, i) ? i : i + 1;
    }
    return scan_to(s, i, ";");
}

/* CREATE FUNCTION, PROCEDURE or TRIGGER. */
static bool is_routine(const sql_script *s, size_t i)
{
    static const char *const kinds[] = { "function", "procedure", "trigger", NULL };
    static const char *const between[] = {
        "or", "replace", "temp", "temporary", "constraint", NULL
    };

    if (!token_is(s, i, "create")) {
        return false;
    }
    for (i++; is_one_of(s, i, between); i++) {
    }
    return is_one_of(s, i, kinds);
}

static weir_status split_one(splitter *p)
{
    const sql_script *s = p->s;
    const size_t begin = p->i;
    weir_status status = WEIR_OK;
    size_t end;

    if (weir__sql_at(s, begin)->kind == SQL_META) {
        end = begin + 1;
    } else if (s->body) {
        end = body_statement_end(s, begin);
    } else {
        end = scan_to(s, begin, ";");
    }
    if (is_routine(s, begin)) {
        const size_t block = scan_to(s, begin, "begin");
        if (!is_end(s, block)) {
            end = block;
            status = find_plain_body(p, block, &p->i);
        } else {
            status = find_quoted_body(p, (sql_range){ begin, end });
            p->i = end;
        }
    } else {
        if (token_is(s, begin, "do")) {
            status = find_quoted_body(p, (sql_range){ begin, end });
        }
        p->i = end;
    }
    return status == WEIR_OK ? add_statement(p, (sql_range){ begin, end }) : status;
}

/* ---- transactions ---------------------------------------------------------------------------- */

static bool ends_transaction(const sql_script *s, sql_range run)
{
    static const char *const words[] = { "commit", "end", "rollback", "abort", NULL };

    if (weir__sql_words(s, run.begin, run.end, "prepare", "transaction", NULL)) {
        return true;
    }
    if (!is_one_of(s, run.begin, words) || (s->body && token_is(s, run.begin, "end"))) {
        return false;
    }
    for (size_t i = run.begin; i < run.end; i++) {
        if (token_is(s, i, "to")) {
            return false; /* a savepoint */
        }
    }
    return true;
}

static bool begins_transaction(const sql_script *s, sql_range run)
{
    return !s->body && (token_is(s, run.begin, "begin") ||
                        weir__sql_words(s, run.begin, run.end, "start", "transaction", NULL));
}

static bool range_contains(weir_str text, const char *part)
{
    const size_t len = strlen(part);

    for (size_t i = 0; i + len <= text.len; i++) {
        if (memcmp(text.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

/* \set AUTOCOMMIT off */
static bool turns_autocommit_off(const sql_script *s, sql_range run)
{
    const sql_token *t = weir__sql_at(s, run.begin);
    return t->kind == SQL_META && weir__str_starts_with(t->text, weir__str("\\set")) &&
           range_contains(t->text, "AUTOCOMMIT") && range_contains(t->text, "off");
}

/* A COMMIT that nothing began: what came before it was one transaction, begun elsewhere. */
static void join_back(const sql_script *s, size_t from, size_t to, uint32_t transaction)
{
    for (size_t i = from; i < to; i++) {
        weir__sql_statement(s, i)->transaction = transaction;
        weir__sql_statement(s, i)->alone = false;
    }
}

static void find_transactions(const sql_script *s)
{
    uint32_t counter = 1;
    uint32_t current = s->body ? counter : 0; /* 0: none is open */
    bool autocommit = !s->body;
    size_t since = 0; /* the first statement that a COMMIT without BEGIN would end */

    for (size_t i = 0; i < weir__sql_statements_count(s); i++) {
        sql_statement *t = weir__sql_statement(s, i);
        if (i > 0 && t->section != t[-1].section) {
            current = s->body ? ++counter : 0;
            since = i;
        }
        if (turns_autocommit_off(s, t->tokens)) {
            autocommit = false;
        }
        if (begins_transaction(s, t->tokens) || (current == 0 && !autocommit)) {
            current = ++counter;
        }
        const bool ends = ends_transaction(s, t->tokens);
        if (ends && current == 0) {
            current = ++counter;
            join_back(s, since, i, current);
        }
        t->alone = current == 0;
        t->transaction = t->alone ? ++counter : current;
        if (ends) {
            current = s->body ? ++counter : 0;
            since = i + 1;
        }
    }
}

weir_status weir__sql_script_read(weir_str text, uint32_t line, bool body, weir_arena *arena,
                                  sql_script *out, uint32_t *bad_line, weir_error *err)
{
    splitter p = { .s = out, .arena = arena, .err = err };
    weir_status status = weir__sql_tokenize(text, line, arena, &out->tokens, bad_line, err);

    out->body = body;
    while (status == WEIR_OK && weir__sql_at(out, p.i)->kind != SQL_END) {
        if (weir__sql_is_op(weir__sql_at(out, p.i), ";")) {
            p.i++;
        } else {
            status = split_one(&p);
        }
    }
    if (status == WEIR_OK) {
        find_transactions(out);
    }
    return status;
}

void weir__sql_script_free(sql_script *s)
{
    weir__sql_tokens_free(&s->tokens);
    weir__buffer_free(&s->statements);
    weir__buffer_free(&s->queries);
    weir__buffer_free(&s->bodies);
}
