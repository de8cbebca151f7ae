/* keys.c - which columns tell rows apart, as far as the text says.
 *
 * What is declared in the text counts; for a table that it says nothing about, names speak: id,
 * and the like, and job_id in a table jobs.
 */
#include "lint/lint_private.h"

typedef struct builder {
    lint_keys *keys;
    const sql_script *s;
    weir_str table;
    weir_error *err;
} builder;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static size_t columns_count(const lint_keys *k)
{
    return k->columns.len / sizeof(weir_str);
}

static weir_status add_key(builder *b, size_t begin)
{
    const lint_key key = { .table = b->table, .begin = begin, .end = columns_count(b->keys) };

    if (key.begin == key.end) {
        return WEIR_OK;
    }
    if (!weir__buffer_add(&b->keys->keys, &key, sizeof key) ||
        !weir__buffer_add(&b->keys->tables, &b->table, sizeof b->table)) {
        return no_memory(b->err);
    }
    return WEIR_OK;
}

/* A key of one column. */
static weir_status add_column(builder *b, weir_str name)
{
    const size_t begin = columns_count(b->keys);

    return weir__buffer_add(&b->keys->columns, &name, sizeof name) ? add_key(b, begin)
                                                                   : no_memory(b->err);
}

/* A key of the columns in the parentheses at `open`; none if one of them is an expression. */
static weir_status add_columns(builder *b, size_t open)
{
    const size_t begin = columns_count(b->keys);
    const size_t end = weir__sql_at(b->s, open)->match;

    for (size_t i = open + 1; i < end;) {
        const sql_token *t = weir__sql_at(b->s, i);
        const size_t next = weir__sql_element(b->s, i, end);
        if (!weir__sql_is_name(t) || (i + 1 < next && weir__sql_is_op(t + 1, "("))) {
            b->keys->columns.len = begin * sizeof(weir_str);
            return WEIR_OK;
        }
        if (!weir__buffer_add(&b->keys->columns, &t->name, sizeof t->name)) {
            return no_memory(b->err);
        }
        i = next + 1;
    }
    return add_key(b, begin);
}

static bool token_is(const sql_script *s, size_t i, const char *word)
{
    return weir__sql_is_word(weir__sql_at(s, i), word);
}

/* PRIMARY KEY (...) or UNIQUE (...) at i; *open: its parenthesis, or SQL_NONE. */
static bool is_key_at(const sql_script *s, size_t i, size_t end, size_t *open)
{
    size_t k = i;

    if (weir__sql_words(s, i, end, "primary", "key", NULL)) {
        k += 2;
    } else if (weir__sql_words(s, i, end, "unique", NULL, NULL)) {
        k++;
        while (k < end && weir__sql_at(s, k)->kind == SQL_WORD) {
            k++; /* NULLS NOT DISTINCT */
        }
    } else {
        return false;
    }
    *open = k < end && weir__sql_is_op(weir__sql_at(s, k), "(") ? k : SQL_NONE;
    return true;
}

/* One column or constraint of CREATE TABLE or ALTER TABLE. */
static weir_status read_element(builder *b, size_t begin, size_t end)
{
    static const char *const counting[] = { "serial",  "bigserial", "smallserial",  "serial8",
                                            "serial4", "identity",  "autoincrement" };
    size_t i = begin, open = SQL_NONE;

    if (i + 1 < end && token_is(b->s, i, "constraint")) {
        i += 2;
    }
    if (is_key_at(b->s, i, end, &open)) {
        return open == SQL_NONE ? WEIR_OK : add_columns(b, open);
    }
    if (i != begin || !weir__sql_is_name(weir__sql_at(b->s, begin))) {
        return WEIR_OK;
    }
    for (i = begin + 1; i < end; i = weir__sql_over(b->s, i)) {
        bool key = is_key_at(b->s, i, end, &open);
        for (size_t k = 0; k < sizeof counting / sizeof counting[0]; k++) {
            key = key || token_is(b->s, i, counting[k]);
        }
        if (key) {
            return add_column(b, weir__sql_at(b->s, begin)->name);
        }
    }
    return WEIR_OK;
}

static size_t pass_name(builder *b, size_t i, size_t end)
{
    while (i < end && weir__sql_is_name(weir__sql_at(b->s, i))) {
        b->table = weir__sql_at(b->s, i++)->name;
        if (i >= end || !weir__sql_is_op(weir__sql_at(b->s, i), ".")) {
            break;
        }
        i++;
    }
    return i;
}

static weir_status read_table(builder *b, size_t i, size_t end)
{
    weir_status status = WEIR_OK;

    if (weir__sql_words(b->s, i, end, "if", "not", "exists")) {
        i += 3;
    }
    i = pass_name(b, i, end);
    if (i >= end || !weir__sql_is_op(weir__sql_at(b->s, i), "(")) {
        return WEIR_OK;
    }
    const size_t close = weir__sql_at(b->s, i)->match;
    for (i++; status == WEIR_OK && i < close;) {
        const size_t next = weir__sql_element(b->s, i, close);
        status = read_element(b, i, next);
        i = next + 1;
    }
    return status;
}

/* CREATE UNIQUE INDEX ... ON table [USING method] (columns), unless it is only for some rows. */
static weir_status read_index(builder *b, size_t i, size_t end)
{
    if (weir__lint_has_word(b->s, (sql_range){ i, end }, "where")) {
        return WEIR_OK;
    }
    while (i < end && !token_is(b->s, i, "on")) {
        i++;
    }
    i = i + 1 < end && token_is(b->s, i + 1, "only") ? i + 2 : i + 1;
    if (i >= end) {
        return WEIR_OK;
    }
    i = pass_name(b, i, end);
    i = weir__sql_words(b->s, i, end, "using", NULL, NULL) ? i + 2 : i;
    return i < end && weir__sql_is_op(weir__sql_at(b->s, i), "(") ? add_columns(b, i) : WEIR_OK;
}

/* ALTER TABLE [IF EXISTS] [ONLY] name ADD ... */
static weir_status read_alter(builder *b, size_t i, size_t end)
{
    weir_status status = WEIR_OK;

    if (weir__sql_words(b->s, i, end, "if", "exists", NULL)) {
        i += 2;
    }
    if (weir__sql_words(b->s, i, end, "only", NULL, NULL)) {
        i++;
    }
    i = pass_name(b, i, end);
    while (status == WEIR_OK && i < end) {
        const size_t next = weir__sql_element(b->s, i, end);
        if (token_is(b->s, i, "add")) {
            i += i + 1 < next && token_is(b->s, i + 1, "column") ? 2 : 1;
            status = read_element(b, i, next);
        }
        i = next + 1;
    }
    return status;
}

weir_status weir__lint_keys_read(lint_keys *keys, const sql_script *s, weir_error *err)
{
    weir_status status = WEIR_OK;

    for (size_t n = 0; status == WEIR_OK && n < weir__sql_statements_count(s); n++) {
        const sql_range run = weir__sql_statement(s, n)->tokens;
        builder b = { .keys = keys, .s = s, .err = err };
        size_t i = run.begin;
        if (weir__sql_words(s, i, run.end, "alter", "table", NULL)) {
            status = read_alter(&b, i + 2, run.end);
        } else if (weir__sql_words(s, i, run.end, "create", "unique", "index")) {
            status = read_index(&b, i + 3, run.end);
        } else if (weir__sql_words(s, i, run.end, "create", NULL, NULL)) {
            for (i++;
                 i < run.end && weir__sql_at(s, i)->kind == SQL_WORD && !token_is(s, i, "table");
                 i++) {
            }
            if (i + 1 < run.end && token_is(s, i, "table")) {
                status = read_table(&b, i + 1, run.end);
            }
        }
    }
    return status;
}

void weir__lint_keys_free(lint_keys *keys)
{
    weir__buffer_free(&keys->tables);
    weir__buffer_free(&keys->keys);
    weir__buffer_free(&keys->columns);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool equal_folded(weir_str a, weir_str b)
{
    if (a.len != b.len) {
        return false;
    }
    for (size_t i = 0; i < a.len; i++) {
        const char x = a.ptr[i] >= 'A' && a.ptr[i] <= 'Z' ? (char)(a.ptr[i] + 32) : a.ptr[i];
        const char y = b.ptr[i] >= 'A' && b.ptr[i] <= 'Z' ? (char)(b.ptr[i] + 32) : b.ptr[i];
        if (x != y) {
            return false;
        }
    }
    return true;
}

/* job_id for jobs, category_uuid for categories, batch_key for batches, job_id for job. */
static bool is_named_after(weir_str column, weir_str table)
{
    static const char *const ends[] = { "_id", "_uuid", "_guid", "_key", "_no", "_number", "id" };

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t len = strlen(ends[i]);
        if (column.len <= len ||
            !equal_folded((weir_str){ column.ptr + column.len - len, len }, weir__str(ends[i]))) {
            continue;
        }
        const weir_str stem = { column.ptr, column.len - len };
        const size_t more = table.len > stem.len ? table.len - stem.len : 0;
        if (equal_folded(stem, table) ||
            (more >= 1 && more <= 2 && equal_folded(stem, (weir_str){ table.ptr, stem.len }) &&
             equal_folded((weir_str){ table.ptr + stem.len, more },
                          more == 1 ? weir__str("s") : weir__str("es")))) {
            return true;
        }
        if (more == 2 && stem.len > 1 && (stem.ptr[stem.len - 1] | 32) == 'y' &&
            equal_folded((weir_str){ stem.ptr, stem.len - 1 },
                         (weir_str){ table.ptr, stem.len - 1 }) &&
            equal_folded((weir_str){ table.ptr + stem.len - 1, 3 }, weir__str("ies"))) {
            return true;
        }
    }
    return false;
}

static bool looks_unique(weir_str table, weir_str column)
{
    static const char *const names[] = { "id",      "uuid", "guid", "ulid", "pk", "rowid",
                                         "_rowid_", "oid",  "ctid", "seq",  "_id" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (equal_folded(column, weir__str(names[i]))) {
            return true;
        }
    }
    return is_named_after(column, table);
}

static bool key_has(const weir_str *columns, size_t count, weir_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (weir__str_equal(columns[i], name)) {
            return true;
        }
    }
    return false;
}

bool weir__lint_is_unique(const lint_keys *keys, weir_str table, const weir_str *columns,
                          size_t count)
{
    static const char *const always[] = { "rowid", "_rowid_", "oid", "ctid" };
    const weir_str *tables = (const weir_str *)(const void *)keys->tables.ptr;
    const weir_str *known = (const weir_str *)(const void *)keys->columns.ptr;
    const lint_key *list = (const lint_key *)(const void *)keys->keys.ptr;

    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) {
        if (key_has(columns, count, weir__str(always[i]))) {
            return true;
        }
    }
    if (keys->tables.len > 0 && key_has(tables, keys->tables.len / sizeof *tables, table)) {
        for (size_t k = 0; k < keys->keys.len / sizeof *list; k++) {
            bool all = weir__str_equal(list[k].table, table);
            for (size_t i = list[k].begin; all && i < list[k].end; i++) {
                all = key_has(columns, count, known[i]);
            }
            if (all) {
                return true;
            }
        }
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (looks_unique(table, columns[i])) {
            return true;
        }
    }
    return false;
}
