/* hold_write.c - what a command wants written to its row: {"set":{"amount":5}}.
 *
 * A value is taken as JSON has it: text without its quotes, numbers with all their digits, null;
 * arrays and objects as JSON text, for columns that hold JSON.
 */
#include "base/json.h"
#include "base/str.h"
#include "claim/claim_private.h"
#include "claim/hold_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Whether a line begins with {"set", white space allowed between the two: it is meant for us even
 * if the rest cannot be read. */
static bool begins_as_set(weir_str line)
{
    static const char *const tokens[] = { "{", "\"set\"" };
    size_t at = 0;

    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const size_t len = strlen(tokens[i]);
        while (at < line.len && is_space(line.ptr[at])) {
            at++;
        }
        if (line.len - at < len || memcmp(line.ptr + at, tokens[i], len) != 0) {
            return false;
        }
        at += len;
    }
    return true;
}

bool weir__hold_is_set(weir_str line)
{
    weir_buffer json = { 0 };
    weir_json_type type;
    weir_str set;
    const bool found =
        begins_as_set(line) ||
        (line.len > 0 && weir__json_compact(line, &json, &type, NULL) == WEIR_OK &&
         weir__json_get((weir_str){ .ptr = json.ptr, .len = json.len }, "set", &set));

    weir__buffer_free(&json);
    return found;
}

/* The value of the member "set". json: the line without white space. */
static weir_status find_set(weir_str line, weir_buffer *json, weir_str *set, weir_error *err)
{
    weir_json_type type;
    size_t count = 0;
    weir_status status = weir__json_compact(line, json, &type, err);

    if (status == WEIR_EINVAL) {
        return weir__wrap(err, status, "its last line is no valid {\"set\":{...}}");
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_json_members it = weir__json_members((weir_str){ .ptr = json->ptr, .len = json->len });
    while (weir__json_members_next(&it)) {
        const weir_str quoted = { .ptr = it.name.ptr - 1, .len = it.name.len + 2 };
        if (weir__json_string_is(quoted, weir__str("set"))) {
            *set = it.value;
            count++;
        }
    }
    if (count > 1) {
        return weir__fail(err, WEIR_EINVAL, "its last line has \"set\" twice");
    }
    return count == 1 && weir__json_type(*set) == WEIR_JSON_OBJECT
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL, "\"set\" must be an object of columns and values");
}

/* A statement while it is written. */
typedef struct writing {
    claim_text text;
    weir_arena arena; /* values that had escapes */
    const table_info *table;
    const char **by; /* for each column of the table: which flag writes it; NULL: none does */
    size_t columns;
} writing;

#define BY_SET "{\"set\"}"

/* Each column is written once: what a database makes of two values differs. flag: BY_SET or an
 * option's. */
static weir_status column_add(writing *w, const char *flag, weir_str name,
                              const table_column **column, weir_error *err)
{
    weir_status status = weir__claim_column(w->table, flag, name, true, column, err);
    if (status != WEIR_OK) {
        return status;
    }
    const weir_str shown = (*column)->name;
    const char **by = &w->by[*column - w->table->columns];
    if (*by != NULL && strcmp(flag, BY_SET) == 0) {
        return weir__fail(err, WEIR_EINVAL, "its last line names column \"%.*s\" twice",
                          (int)shown.len, shown.ptr);
    }
    if (*by != NULL && strcmp(*by, BY_SET) == 0) {
        return weir__fail(err, WEIR_EINVAL,
                          "column \"%.*s\" is in the {\"set\":{...}} of the command and in %s: "
                          "leave it to one of the two",
                          (int)shown.len, shown.ptr, flag);
    }
    if (*by != NULL) {
        return weir__fail(err, WEIR_EINVAL, "column \"%.*s\" is written twice: by %s and by %s",
                          (int)shown.len, shown.ptr, *by, flag);
    }
    *by = flag;
    weir__claim_add(&w->text, w->columns++ == 0 ? " SET " : ", ");
    weir__claim_add_str(&w->text, (*column)->quoted);
    weir__claim_add(&w->text, " = ");
    return WEIR_OK;
}

/* Of such a number SQLite would make an infinite one. */
static weir_status check_number(writing *w, weir_str json, const table_column *column,
                                weir_error *err)
{
    const char *text = weir__arena_copy(&w->arena, json.ptr, json.len);
    if (text == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    return w->text.dialect == TABLE_SQLITE && weir__claim_makes_numbers(column) &&
                   isinf(strtod(text, NULL))
               ? weir__fail(err, WEIR_EINVAL,
                            "its last line: %.*s is too large a number for column \"%.*s\"",
                            (int)json.len, json.ptr, (int)column->name.len, column->name.ptr)
               : WEIR_OK;
}

static weir_status json_value(writing *w, weir_str json, const table_column *column,
                              table_value *out, weir_error *err)
{
    weir_buffer decoded = { 0 };
    weir_status status = WEIR_OK;

    *out = (table_value){ .kind = TABLE_TEXT, .text = json };
    switch (weir__json_type(json)) {
    case WEIR_JSON_NULL:
        out->kind = TABLE_NULL;
        break;
    case WEIR_JSON_STRING:
        if (!weir__json_string_decode(json, &decoded)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
            break;
        }
        out->text.ptr =
            weir__arena_copy(&w->arena, decoded.len == 0 ? "" : decoded.ptr, decoded.len);
        out->text.len = decoded.len;
        status = out->text.ptr == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
        break;
    case WEIR_JSON_NUMBER:
        if (weir__str_to_i64(json, &out->number)) {
            out->kind = TABLE_INTEGER;
        } else {
            status = check_number(w, json, column, err);
        }
        break;
    case WEIR_JSON_FALSE:
    case WEIR_JSON_TRUE:
        if (w->text.dialect == TABLE_SQLITE) {
            out->kind = TABLE_INTEGER;
            out->number = json.ptr[0] == 't' ? 1 : 0;
        }
        break;
    case WEIR_JSON_ARRAY:
    case WEIR_JSON_OBJECT:
        break;
    }
    weir__buffer_free(&decoded);
    return status;
}

static weir_status wanted_add(writing *w, weir_str line, weir_error *err)
{
    weir_buffer json = { 0 }, name = { 0 };
    weir_str set = { .len = 0 };
    weir_status status = WEIR_OK;

    if (line.len == 0) {
        return WEIR_OK; /* nothing is wanted */
    }
    status = find_set(line, &json, &set, err);
    if (status != WEIR_OK) {
        goto out;
    }
    /* Borrowed until the statement has run. */
    const char *copy = weir__arena_copy(&w->arena, set.ptr, set.len);
    if (copy == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        goto out;
    }
    weir_json_members it = weir__json_members((weir_str){ .ptr = copy, .len = set.len });
    while (status == WEIR_OK && weir__json_members_next(&it)) {
        const weir_str quoted = { .ptr = it.name.ptr - 1, .len = it.name.len + 2 };
        const table_column *column = NULL;
        table_value value;
        weir__buffer_clear(&name);
        if (!weir__json_string_decode(quoted, &name)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
            break;
        }
        status =
            column_add(w, BY_SET, (weir_str){ .ptr = name.ptr, .len = name.len }, &column, err);
        if (status == WEIR_OK) {
            status = json_value(w, it.value, column, &value, err);
        }
        if (status == WEIR_OK) {
            weir__claim_add_value(&w->text, &value, column);
        }
    }
out:
    weir__buffer_free(&json);
    weir__buffer_free(&name);
    return status;
}

static weir_status done_add(writing *w, const claim_writes *done, weir_error *err)
{
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < done->set_count; i++) {
        const table_column *column = NULL;
        status = column_add(w, "--done", done->set[i].column, &column, err);
        if (status == WEIR_OK) {
            weir__claim_add_value(&w->text, &done->set[i].value, column);
        }
    }
    for (size_t i = 0; status == WEIR_OK && i < done->set_sql_count; i++) {
        bool used[CLAIM_COLUMNS_MAX] = { false };
        const table_column *column = NULL;
        status = column_add(w, "--done-sql", done->set_sql[i].column, &column, err);
        if (status == WEIR_OK) {
            status = weir__claim_check_sql("--done-sql", done->set_sql[i].sql, w->text.dialect,
                                           done->params, done->params_count, used, err);
        }
        if (status == WEIR_OK) {
            weir__claim_add(&w->text, "(");
            weir__claim_add_sql(&w->text, done->set_sql[i].sql, done->params, done->params_count);
            weir__claim_add(&w->text, "\n)");
        }
    }
    return status;
}

static void key_add(writing *w, const table_result *rows)
{
    for (size_t i = 0; i < w->table->key_count; i++) {
        const table_value value = weir__table_cell_value(&rows->cells[w->table->key[i]]);
        weir__claim_add(&w->text, i == 0 ? " WHERE " : " AND ");
        weir__claim_add_equal(&w->text, &w->table->columns[w->table->key[i]], &value);
    }
}

weir_status weir__hold_write(table_session *s, const hold_options *o, const table_result *rows,
                             weir_str line, weir_error *err)
{
    writing w = { .text = { .dialect = weir__table_session_dialect(s) }, .table = o->table };
    table_result result = { .rows_count = 0 };
    weir_status status = WEIR_OK;

    w.by = weir__calloc(o->table->columns_count, sizeof *w.by);
    if (w.by == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    weir__claim_add(&w.text, "UPDATE ");
    weir__claim_add_str(&w.text, o->table->quoted);
    status = wanted_add(&w, line, err);
    if (status == WEIR_OK) {
        status = done_add(&w, &o->done, err);
    }
    if (status == WEIR_OK && w.columns > 0) {
        key_add(&w, rows);
        status = weir__claim_text_run(&w.text, s, -1, &result, err);
    }
    if (status == WEIR_OK && w.columns > 0 && result.changed != 1) {
        status = weir__fail(err, WEIR_EIO, "the row was not written: %lld rows have its key",
                            (long long)result.changed);
    }
    weir__table_result_free(&result);
    weir__claim_text_free(&w.text);
    weir__arena_free(&w.arena);
    weir__free(w.by);
    return status;
}
