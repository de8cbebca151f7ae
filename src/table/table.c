/* table.c - what is the same on every database: which adapter, what is refused before it is asked,
 * names as identifiers and values as literals.
 *
 * INVARIANT  No text with a NUL byte gets further than this file: databases written in C would take
 * it for the end.
 */
#define _GNU_SOURCE /* memmem, memrchr */

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "table/table_private.h"

#include <stdio.h>
#include <string.h>

enum { NEAR_NAMES_MAX = 3 };

/* ---- databases and sessions ------------------------------------------------------------------ */

weir_status weir__table_open(table_db **out, const table_options *options, weir_error *err)
{
    store_url url;
    weir_status status = weir__url_parse(&url, options->url, err);
    if (status == WEIR_OK && options->application.len > 0) {
        url.options.application =
            weir__arena_copy(&url.memory, options->application.ptr, options->application.len);
        if (url.options.application == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate a database handle");
        }
    }
    if (status == WEIR_OK) {
        status = strcmp(url.scheme, "postgres") == 0 ? weir__table_postgres_open(out, &url, err)
                                                     : weir__table_sqlite_open(out, &url, err);
    }
    weir__url_free(&url);
    return status;
}

void weir__table_db_free(table_db *db)
{
    weir__url_free(&db->url);
    weir__free(db);
}

void weir__table_close(table_db *db)
{
    if (db != NULL) {
        db->ops->db_close(db);
    }
}

table_dialect weir__table_dialect(const table_db *db)
{
    return db->ops->dialect;
}

weir_status weir__table_session_open(table_db *db, table_session **out, weir_error *err)
{
    return db->ops->session_open(db, out, err);
}

weir_status weir__table_session_adopt(table_session **out, table_dialect dialect, void *native,
                                      weir_error *err)
{
    if (native == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "there is no connection to work on");
    }
    return dialect == TABLE_POSTGRES ? weir__table_postgres_adopt(out, native, err)
                                     : weir__table_sqlite_adopt(out, native, err);
}

void weir__table_session_close(table_session *s)
{
    if (s != NULL) {
        weir__arena_free(&s->known_memory);
        s->known_name = (weir_str){ 0 };
        s->ops->session_close(s);
    }
}

bool weir__table_adopted(const table_session *s)
{
    return s->adopted;
}

table_dialect weir__table_session_dialect(const table_session *s)
{
    return s->ops->dialect;
}

void *weir__table_native(table_session *s)
{
    return s->ops->native(s);
}

int weir__table_session_fd(table_session *s)
{
    return s->ops->fd == NULL ? -1 : s->ops->fd(s);
}

bool weir__table_in_transaction(table_session *s)
{
    return s->ops->in_transaction(s);
}

void weir__table_session_heed(table_session *s, const weir_stop *stop)
{
    s->stop = stop;
}

weir_status weir__table_stopped(weir_error *err)
{
    return weir__fail(err, WEIR_EINTERRUPTED, "the handle was closed by another thread");
}

static weir_status refuse_adopted(weir_error *err)
{
    return weir__fail(err, WEIR_EMISUSE,
                      "the connection is the caller's own: it begins and ends its transactions");
}

weir_status weir__table_begin(table_session *s, weir_error *err)
{
    if (s->adopted) {
        return refuse_adopted(err);
    }
    if (s->ops->in_transaction(s)) {
        return weir__fail(err, WEIR_EMISUSE, "a transaction is open already");
    }
    return s->ops->begin(s, err);
}

weir_status weir__table_commit(table_session *s, weir_error *err)
{
    if (s->adopted) {
        return refuse_adopted(err);
    }
    return s->ops->commit(s, err);
}

void weir__table_rollback(table_session *s)
{
    if (!s->adopted) {
        s->ops->rollback(s);
    }
}

weir_status weir__table_run(table_session *s, const table_statement *statement,
                            table_result *result, weir_error *err)
{
    weir__table_result_clear(result);
    for (size_t i = 0; i < statement->values_count; i++) {
        const table_value *value = &statement->values[i];
        if (value->kind == TABLE_TEXT && value->text.len > 0 &&
            memchr(value->text.ptr, '\0', value->text.len) != NULL) {
            return weir__fail(err, WEIR_EINVAL, "value %zu has a NUL byte in it", i + 1);
        }
    }
    return statement->wait_us != 0 && weir__stop_is_set(s->stop)
               ? weir__table_stopped(err)
               : s->ops->run(s, statement, result, err);
}

/* ---- results --------------------------------------------------------------------------------- */

void weir__table_result_clear(table_result *r)
{
    if (r != NULL) {
        weir__arena_reset(&r->arena);
        *r = (table_result){ .arena = r->arena };
    }
}

void weir__table_result_free(table_result *r)
{
    weir__arena_free(&r->arena);
    *r = (table_result){ 0 };
}

weir_str weir__table_cell_text(const table_result *r, size_t row, size_t column)
{
    const table_cell *cell = &r->cells[row * r->columns_count + column];
    const weir_str none = { .ptr = "" };
    return cell->null ? none : cell->text;
}

table_value weir__table_cell_value(const table_cell *cell)
{
    if (cell->null) {
        return (table_value){ .kind = TABLE_NULL };
    }
    table_value value = { .kind = cell->shape == TABLE_SHAPE_BYTES ? TABLE_BYTES : TABLE_TEXT,
                          .text = cell->text };
    if (cell->shape == TABLE_SHAPE_NUMBER && weir__str_to_i64(cell->text, &value.number)) {
        value.kind = TABLE_INTEGER; /* to SQLite, '1' and 1 are not the same */
    }
    return value;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Text between two quotes, those inside doubled. */
static bool add_quoted(weir_buffer *out, weir_str text, char quote)
{
    bool ok = weir__buffer_add(out, &quote, 1);
    for (size_t i = 0; i < text.len && ok; i++) {
        WEIR_ASSERT(text.ptr[i] != '\0');
        ok = weir__buffer_add(out, text.ptr + i, 1) &&
             (text.ptr[i] != quote || weir__buffer_add(out, &quote, 1));
    }
    return ok && weir__buffer_add(out, &quote, 1);
}

bool weir__table_quote(weir_buffer *out, weir_str identifier)
{
    return add_quoted(out, identifier, '"');
}

const table_column *weir__table_column(const table_info *t, weir_str name)
{
    for (size_t i = 0; i < t->columns_count; i++) {
        if (weir__str_equal(t->columns[i].name, name)) {
            return &t->columns[i];
        }
    }
    return NULL;
}

/* One part of a name, from *at on: up to a dot, or in quotes. false: it is not one. */
static bool read_part(weir_str text, size_t *at, weir_arena *arena, weir_str *part)
{
    char *copy = weir__arena_alloc(arena, text.len + 1);
    size_t len = 0;
    size_t i = *at;
    bool whole = true;
    if (copy == NULL) {
        return false;
    }
    if (i < text.len && text.ptr[i] == '"') {
        whole = false;
        for (i++; i < text.len && !whole; i++) {
            const bool quote = text.ptr[i] == '"';
            if (quote && (i + 1 == text.len || text.ptr[i + 1] != '"')) {
                whole = true;
            } else {
                copy[len++] = text.ptr[i];
                i += quote ? 1 : 0;
            }
        }
    } else {
        while (i < text.len && text.ptr[i] != '.' && text.ptr[i] != '"') {
            copy[len++] = text.ptr[i++];
        }
    }
    copy[len] = '\0';
    *part = (weir_str){ .ptr = copy, .len = len };
    *at = i;
    return whole && len > 0 && (i == text.len || text.ptr[i] == '.');
}

static weir_status parse_name(weir_str text, weir_arena *arena, table_name *out, weir_error *err)
{
    size_t at = 0;
    weir_str first = { 0 };
    weir_str second = { 0 };
    bool ok = text.len > 0 && memchr(text.ptr, '\0', text.len) == NULL &&
              weir__utf8_valid_prefix(text.ptr, text.len) == text.len &&
              read_part(text, &at, arena, &first);
    const bool two = ok && at < text.len;
    if (two) {
        at++; /* the dot */
        ok = read_part(text, &at, arena, &second) && at == text.len;
    }
    if (!ok) {
        const weir_status status =
            weir__fail(err, WEIR_EINVAL, "\"%.*s\" is not the name of a table: NAME or SCHEMA.NAME",
                       (int)text.len, text.len == 0 ? "" : text.ptr);
        weir__error_detail(err, "A part with a dot or a quote in it is written as in SQL, between "
                                "double quotes: \"odd.name\".");
        return status;
    }
    *out = two ? (table_name){ .schema = first, .name = second } : (table_name){ .name = first };
    return WEIR_OK;
}

weir_status weir__table_describe(table_session *s, weir_str name, weir_arena *arena,
                                 table_info *out, weir_error *err)
{
    table_name parsed;
    const weir_status status = parse_name(name, arena, &parsed, err);
    return status == WEIR_OK ? s->ops->describe(s, &parsed, arena, out, err) : status;
}

void weir__table_forget(table_session *s)
{
    weir__arena_reset(&s->known_memory);
    s->known_name = (weir_str){ 0 };
}

const table_info *weir__table_known(const table_session *s)
{
    return s->known_name.len > 0 ? &s->known : NULL;
}

bool weir__table_info_copy(const table_info *t, weir_arena *arena, table_info *out)
{
    table_column *columns = weir__arena_alloc(arena, (t->columns_count + 1) * sizeof *columns);
    size_t *key = weir__arena_alloc(arena, (t->key_count + 1) * sizeof *key);
    table_info copy = *t;
    bool ok = columns != NULL && key != NULL && weir__table_copy(arena, t->shown, &copy.shown) &&
              weir__table_copy(arena, t->quoted, &copy.quoted);
    for (size_t i = 0; i < t->columns_count && ok; i++) {
        columns[i] = t->columns[i];
        ok = weir__table_copy(arena, t->columns[i].name, &columns[i].name) &&
             weir__table_copy(arena, t->columns[i].type, &columns[i].type) &&
             weir__table_copy(arena, t->columns[i].quoted, &columns[i].quoted);
    }
    if (ok) {
        memcpy(key, t->key, t->key_count * sizeof *key);
        copy.columns = columns;
        copy.key = key;
        *out = copy;
    }
    return ok;
}

/* Whether what is remembered is still true. Inside of a transaction it may be what the transaction
 * has changed, of which nothing is left, and no number tells, when it is rolled back. */
static weir_status look_for_changes(table_session *s, bool *kept, weir_error *err)
{
    int64_t version = 0;
    *kept = !s->adopted && s->known_name.len > 0;
    if (s->adopted) {
        return WEIR_OK;
    }
    if (s->ops->version == NULL) {
        /* A column that is gone or new is noticed by whoever names it. One that nobody names, and
         * that belongs to the rows all the same, is found by looking now and then. */
        const int64_t now_us = weir__clock_mono(weir__clock_machine());
        *kept = *kept && now_us - s->known_us < TABLE_KNOWN_US;
        s->known_us = *kept ? s->known_us : now_us;
        return WEIR_OK;
    }
    if (s->ops->in_transaction(s)) {
        *kept = false;
        version = -1;
    } else {
        const weir_status status = s->ops->version(s, &version, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    *kept = *kept && s->known_version == version && version >= 0;
    s->known_version = version;
    return WEIR_OK;
}

weir_status weir__table_described(table_session *s, weir_str name, const table_info **out,
                                  weir_error *err)
{
    bool kept = false;
    /* Before the table is looked at: what changes meanwhile is looked at once more. */
    weir_status status = look_for_changes(s, &kept, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!kept || !weir__str_equal(s->known_name, name)) {
        weir__table_forget(s);
        status = weir__table_describe(s, name, &s->known_memory, &s->known, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (!weir__table_copy(&s->known_memory, name, &s->known_name)) {
            return weir__fail(err, WEIR_ENOMEM, "could not allocate what a table looks like");
        }
    }
    *out = &s->known;
    return WEIR_OK;
}

/* ---- what adapters say alike --------------------------------------------------------------- */

/* In small letters, as far as it is compared. */
static weir_str name_folded(weir_str name, char out[WEIR_STR_EDITS_BYTES_MAX])
{
    const size_t len = name.len < WEIR_STR_EDITS_BYTES_MAX ? name.len : WEIR_STR_EDITS_BYTES_MAX;
    for (size_t i = 0; i < len; i++) {
        const char c = name.ptr[i];
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return (weir_str){ .ptr = out, .len = len };
}

/* Without its schema: "app.jobs" is near "jobs". */
static weir_str last_part(weir_str name)
{
    const char *dot = name.len == 0 ? NULL : memrchr(name.ptr, '.', name.len);
    const size_t start = dot == NULL ? 0 : (size_t)(dot - name.ptr) + 1;
    return (weir_str){ .ptr = name.ptr + start, .len = name.len - start };
}

static bool is_near(weir_str name, weir_str other)
{
    char a[WEIR_STR_EDITS_BYTES_MAX];
    char b[WEIR_STR_EDITS_BYTES_MAX];
    const weir_str x = name_folded(name, a);
    const weir_str y = name_folded(other, b);
    const size_t shorter = x.len < y.len ? x.len : y.len;
    /* Two slips in a word of three or four letters is another word. */
    return 2 * weir__str_edits(x, y) < (shorter < 5 ? shorter : 5) ||
           (shorter >= 4 &&
            (memmem(a, x.len, b, y.len) != NULL || memmem(b, y.len, a, x.len) != NULL));
}

weir_status weir__table_not_found(const table_name *name, const table_result *tables,
                                  weir_error *err)
{
    char near[400] = "";
    size_t len = 0;
    size_t found = 0;
    for (size_t i = 0; i < tables->rows_count && found < NEAR_NAMES_MAX; i++) {
        const weir_str other = weir__table_cell_text(tables, i, 0);
        if (is_near(name->name, last_part(other)) && other.len + 8 < sizeof near - len) {
            len += (size_t)snprintf(near + len, sizeof near - len, "%s\"%.*s\"",
                                    found == 0 ? "" : ", ", (int)other.len, other.ptr);
            found++;
        }
    }
    return weir__fail(err, WEIR_ENOTFOUND, "there is no table \"%.*s%s%.*s\"%s%s",
                      (int)name->schema.len, name->schema.len == 0 ? "" : name->schema.ptr,
                      name->schema.len == 0 ? "" : ".", (int)name->name.len, name->name.ptr,
                      found == 0 ? "" : "; near it: ", near);
}

weir_status weir__table_wrong_kind(const table_info *t, const char *kind, weir_error *err)
{
    const weir_status status =
        weir__fail(err, WEIR_EINVAL, "\"%.*s\" is %s: rows are taken from tables alone",
                   (int)t->shown.len, t->shown.ptr, kind);
    weir__error_detail(err, "Name the table that its rows are kept in.");
    return status;
}

bool weir__table_copy(weir_arena *arena, weir_str text, weir_str *out)
{
    out->ptr = weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
    out->len = text.len;
    return out->ptr != NULL;
}

/* Moves a text that was built into the arena. */
static bool copy_buffer(weir_arena *arena, weir_buffer *text, weir_str *out)
{
    const bool ok = weir__table_copy(arena, (weir_str){ .ptr = text->ptr, .len = text->len }, out);
    weir__buffer_clear(text);
    return ok;
}

static bool quote_names(table_info *t, table_column *columns, weir_str schema, weir_str name,
                        weir_arena *arena)
{
    weir_buffer text = { 0 };
    bool ok = (schema.len == 0 ||
               (weir__table_quote(&text, schema) && weir__buffer_add_text(&text, "."))) &&
              weir__table_quote(&text, name) && copy_buffer(arena, &text, &t->quoted);
    for (size_t i = 0; i < t->columns_count && ok; i++) {
        ok = weir__table_quote(&text, columns[i].name) &&
             copy_buffer(arena, &text, &columns[i].quoted);
    }
    weir__buffer_free(&text);
    return ok;
}

weir_status weir__table_finish(table_info *t, table_column *columns, weir_str schema, weir_str name,
                               weir_arena *arena, weir_error *err)
{
    size_t *key = weir__arena_alloc(arena, (t->columns_count + 1) * sizeof *key);
    if (key == NULL || !quote_names(t, columns, schema, name, arena)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate what a table looks like");
    }
    t->key_count = 0;
    for (size_t i = 0; i < t->columns_count; i++) {
        t->key_count += columns[i].key > 0 ? 1 : 0;
    }
    for (size_t i = 0; i < t->columns_count; i++) {
        WEIR_ASSERT(columns[i].key <= t->key_count);
        if (columns[i].key > 0) {
            key[columns[i].key - 1] = i;
        }
    }
    t->key = key;
    t->columns = columns;
    if (t->key_count == 0) {
        const weir_status status = weir__fail(
            err, WEIR_EINVAL, "table \"%.*s\" has no primary key, by which a row is found again",
            (int)t->shown.len, t->shown.ptr);
        weir__error_detail(err,
                           "Add one: ALTER TABLE %.*s ADD PRIMARY KEY (...) in PostgreSQL; in "
                           "SQLite the table has to be made anew.",
                           (int)t->quoted.len, t->quoted.ptr);
        return status;
    }
    return WEIR_OK;
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool add_hex(weir_buffer *out, weir_str bytes)
{
    static const char digits[] = "0123456789abcdef";
    bool ok = true;
    for (size_t i = 0; i < bytes.len && ok; i++) {
        const unsigned char byte = (unsigned char)bytes.ptr[i];
        const char pair[2] = { digits[byte >> 4], digits[byte & 15] };
        ok = weir__buffer_add(out, pair, 2);
    }
    return ok && weir__buffer_add_text(out, "'");
}

/* E'' means the same whatever standard_conforming_strings is. */
static bool add_escaped(weir_buffer *out, weir_str text)
{
    bool ok = weir__buffer_add_text(out, "E'");
    for (size_t i = 0; i < text.len && ok; i++) {
        WEIR_ASSERT(text.ptr[i] != '\0');
        ok = (text.ptr[i] != '\\' && text.ptr[i] != '\'') || weir__buffer_add(out, text.ptr + i, 1);
        ok = ok && weir__buffer_add(out, text.ptr + i, 1);
    }
    return ok && weir__buffer_add_text(out, "'");
}

static bool add_literal(weir_buffer *out, table_dialect dialect, const table_value *value)
{
    switch (value->kind) {
    case TABLE_NULL:
        return weir__buffer_add_text(out, "NULL");
    case TABLE_INTEGER:
        /* In parentheses: two minus signs in a row begin a comment. */
        return (value->number >= 0 || weir__buffer_add_text(out, "(")) &&
               weir__buffer_add_i64(out, value->number) &&
               (value->number >= 0 || weir__buffer_add_text(out, ")"));
    case TABLE_TEXT:
        if (dialect == TABLE_POSTGRES && value->text.len > 0 &&
            memchr(value->text.ptr, '\\', value->text.len) != NULL) {
            return add_escaped(out, value->text);
        }
        return add_quoted(out, value->text, '\'');
    case TABLE_BYTES:
        return weir__buffer_add_text(out, dialect == TABLE_POSTGRES ? "E'\\\\x" : "X'") &&
               add_hex(out, value->text);
    }
    return false;
}

bool weir__table_literal(weir_buffer *out, table_dialect dialect, const table_value *value,
                         weir_str type)
{
    /* Without a cast PostgreSQL would take bytes for a text. */
    const bool bytes = value->kind == TABLE_BYTES && dialect == TABLE_POSTGRES;
    const weir_str as = type.len == 0 && bytes ? weir__str("bytea") : type;
    if (as.len == 0) {
        return add_literal(out, dialect, value);
    }
    return weir__buffer_add_text(out, "CAST(") && add_literal(out, dialect, value) &&
           weir__buffer_add_text(out, " AS ") && weir__buffer_add(out, as.ptr, as.len) &&
           weir__buffer_add_text(out, ")");
}
