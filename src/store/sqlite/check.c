/* check.c - everything about the events side that can be checked by reading; doctor prints it.
 *
 * This reads the whole store in one transaction, which stops checkpoints for as long as it takes:
 * the WAL grows meanwhile. What it finds is collected and told when the transaction has ended.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/check_sql.h"
#include "store/sqlite/sqlite_private.h"

#include <string.h>

enum { FINDINGS_MAX = 200 };

typedef struct finding {
    const char *rule, *text, *advice; /* in the arena */
} finding;

typedef struct findings {
    weir_arena arena;
    finding items[FINDINGS_MAX];
    size_t count;
    bool no_memory;
} findings;

static const char *copy_text(weir_arena *arena, const char *text)
{
    return weir__arena_copy(arena, text, strlen(text));
}

/* A store_finding_fn that keeps what it is told. */
static void finding_collect(void *ctx, const char *rule, const char *text, const char *advice)
{
    findings *f = ctx;
    if (f->count == FINDINGS_MAX) {
        return; /* two hundred are enough to know that something is wrong */
    }
    const finding item = { .rule = copy_text(&f->arena, rule),
                           .text = copy_text(&f->arena, text),
                           .advice = copy_text(&f->arena, advice) };
    if (item.rule == NULL || item.text == NULL || item.advice == NULL) {
        f->no_memory = true;
        return;
    }
    f->items[f->count++] = item;
}

static const char advice_restore[] = "Restore the store from a backup; nothing in Weir writes "
                                     "this, so find out what else writes to it.";
static const char advice_damage[] =
    "Stop all writers, copy the files, and restore a backup or try .recover of the sqlite3 shell.";

/* Every row of the query is a fault, except the text `fine`. */
static weir_status question_ask(sqlite_conn *conn, const char *sql, const char *rule,
                                const char *fine, const char *advice, findings *f, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    while (weir__cursor_next(&cursor)) {
        const char *text = (const char *)sqlite3_column_text(cursor.stmt, 0);
        if (text != NULL && (fine == NULL || strcmp(text, fine) != 0)) {
            finding_collect(f, rule, text, advice);
        }
    }
    return weir__cursor_end(&cursor);
}

/* One object of the schema as it should be, against the one that is there. */
static weir_status compare_object(sqlite_conn *conn, weir_str name, weir_str sql, findings *f,
                                  weir_error *err)
{
    weir_buffer text = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_check_object, err);
    weir__cursor_bind_text(&cursor, 1, name);
    const bool row = weir__cursor_next(&cursor);
    if (cursor.status == WEIR_OK &&
        (!row || !weir__str_equal(weir__cursor_text(&cursor, 0), sql))) {
        if (weir__buffer_add(&text, name.ptr, name.len) &&
            weir__buffer_add_text(&text,
                                  row ? " is not as this version makes it" : " is missing") &&
            weir__buffer_add(&text, "", 1)) {
            finding_collect(
                f, "schema", text.ptr,
                "Someone has changed Weir's own tables; make it again as weir init --plan "
                "shows it for a new file.");
        } else {
            f->no_memory = true;
        }
    }
    weir__buffer_free(&text);
    return weir__cursor_end(&cursor);
}

static weir_status check_schema(sqlite_store *s, sqlite_conn *conn, findings *f, weir_error *err)
{
    sqlite_conn model = { 0 };
    weir_status status = WEIR_OK;
    const int rc =
        sqlite3_open_v2(":memory:", &model.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        status = weir__sqlite_fail(&model, rc, err, "open a database in memory");
    } else {
        status = weir__sqlite_schema_build(s, &model, err);
    }
    if (status == WEIR_OK) {
        sqlite_cursor cursor = weir__cursor_open(&model, sql_check_objects, err);
        while (weir__cursor_next(&cursor)) {
            weir__cursor_fail(&cursor, compare_object(conn, weir__cursor_text(&cursor, 0),
                                                      weir__cursor_text(&cursor, 1), f, err));
        }
        status = weir__cursor_end(&cursor);
    }
    weir__sqlite_conn_close(&model);
    return status;
}

static weir_status check_in(sqlite_store *s, sqlite_conn *conn, findings *f, weir_error *err)
{
    static const struct {
        const char *sql, *rule, *fine, *advice;
    } questions[] = {
        { sql_check_integrity, "integrity", "ok", advice_damage },
        { sql_check_versions, "versions", NULL, advice_restore },
        { sql_check_empty_streams, "streams", NULL, advice_restore },
        { sql_check_orphans, "streams", NULL, advice_restore },
        { sql_check_closed, "streams", NULL, advice_restore },
        { sql_check_categories, "categories", NULL, advice_restore },
        { sql_check_event_categories, "categories", NULL, advice_restore },
        { sql_check_order, "order", NULL, advice_restore },
        { sql_check_json, "json", NULL, advice_restore },
        { sql_check_keys, "keys", NULL, advice_restore },
        { sql_check_clock, "clock", NULL, advice_restore },
    };
    weir_status status = check_schema(s, conn, f, err);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0] && status == WEIR_OK; i++) {
        status = question_ask(conn, questions[i].sql, questions[i].rule, questions[i].fine,
                              questions[i].advice, f, err);
    }
    if (status == WEIR_OK && !s->database.immutable) {
        status = question_ask(
            conn, sql_check_journal, "journal", "wal",
            "The database is not in WAL mode; opening it for writing switches it back.", f, err);
    }
    return status == WEIR_OK ? weir__sqlite_check_targets(s, conn, finding_collect, f, err)
                             : status;
}

weir_status weir__sqlite_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    findings *f = weir__calloc(1, sizeof *f);
    if (f == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a check");
    }
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status == WEIR_OK) {
        status = check_in(s, conn, f, err);
        weir__sqlite_read_end(s, conn);
    }
    if (status == WEIR_OK && f->no_memory) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate memory for a check");
    }
    for (size_t i = 0; i < f->count && status == WEIR_OK; i++) {
        fn(ctx, f->items[i].rule, f->items[i].text, f->items[i].advice);
    }
    weir__arena_free(&f->arena);
    weir__free(f);
    return status;
}
