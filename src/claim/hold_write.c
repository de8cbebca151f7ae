/* hold_write.c - what a command wants written to its row: {"set":{"amount":5}}.
 *
 * A value is taken as JSON has it: text without its quotes, numbers with all their digits, null;
 * arrays and objects as JSON text, for columns that hold JSON.
 */
#include "base/json.h"
#include "base/str.h"
#include "claim/claim_private.h"
#include "claim/hold_private.h"

#include <string.h>

/* The value of the member "set", when there is one. json: the line without white space. */
static bool find_set(weir_str line, weir_buffer *json, weir_str *set)
{
    weir_json_type type;
    size_t at = 0;

    while (at < line.len && (line.ptr[at] == ' ' || line.ptr[at] == '\t')) {
        at++;
    }
    return at < line.len && line.ptr[at] == '{' &&
           weir__json_compact(line, json, &type, NULL) == WEIR_OK && type == WEIR_JSON_OBJECT &&
           weir__json_get((weir_str){ .ptr = json->ptr, .len = json->len }, "set", set);
}

bool weir__hold_is_set(weir_str line)
{
    weir_buffer json = { 0 };
    weir_str set;
    const bool found = find_set(line, &json, &set);

    weir__buffer_free(&json);
    return found;
}

/* A statement while it is written. */
typedef struct writing {
    claim_text text;
    weir_arena arena; /* values that had escapes */
    const table_info *table;
    size_t columns;
} writing;

static void column_add(writing *w, const table_column *column)
{
    weir__claim_add(&w->text, w->columns++ == 0 ? " SET " : ", ");
    weir__claim_add_str(&w->text, column->quoted);
    weir__claim_add(&w->text, " = ");
}

static weir_status json_value(writing *w, weir_str json, table_value *out, weir_error *err)
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
    weir_str set;
    weir_status status = WEIR_OK;

    if (!find_set(line, &json, &set)) {
        goto out; /* nothing is wanted */
    }
    if (weir__json_type(set) != WEIR_JSON_OBJECT) {
        status = weir__fail(err, WEIR_EINVAL, "\"set\" must be an object of columns and values");
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
            weir__claim_column(w->table, "{\"set\"}",
                               (weir_str){ .ptr = name.ptr, .len = name.len }, true, &column, err);
        if (status == WEIR_OK) {
            status = json_value(w, it.value, &value, err);
        }
        if (status == WEIR_OK) {
            column_add(w, column);
            weir__claim_add_value(&w->text, &value, column);
        }
    }
out:
    weir__buffer_free(&json);
    weir__buffer_free(&name);
    return status;
}

static weir_status done_add(writing *w, const runner_writes *done, weir_error *err)
{
    weir_status status = WEIR_OK;

    for (size_t i = 0; status == WEIR_OK && i < done->set_count; i++) {
        const table_column *column = NULL;
        status = weir__claim_column(w->table, "--done", done->set[i].column, true, &column, err);
        if (status == WEIR_OK) {
            column_add(w, column);
            weir__claim_add_value(&w->text, &done->set[i].value, column);
        }
    }
    for (size_t i = 0; status == WEIR_OK && i < done->set_sql_count; i++) {
        bool used[CLAIM_COLUMNS_MAX] = { false };
        const table_column *column = NULL;
        status =
            weir__claim_column(w->table, "--done-sql", done->set_sql[i].column, true, &column, err);
        if (status == WEIR_OK) {
            status = weir__claim_check_sql("--done-sql", done->set_sql[i].sql, w->text.dialect,
                                           done->params, done->params_count, used, err);
        }
        if (status == WEIR_OK) {
            column_add(w, column);
            weir__claim_add(&w->text, "(");
            weir__claim_add_sql(&w->text, done->set_sql[i].sql, done->params, done->params_count);
            weir__claim_add(&w->text, ")");
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
    return status;
}
