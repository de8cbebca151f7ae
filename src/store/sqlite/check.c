/* check.c - everything about the events side that can be checked by reading; doctor prints it.
 *
 * This reads the whole store in one transaction, which stops checkpoints for as long as it takes:
 * the WAL grows meanwhile. What it finds is collected and told when the transaction has ended.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/finding.h"
#include "store/sqlite/check_sql.h"
#include "store/sqlite/sqlite_private.h"

#include <stdio.h>
#include <string.h>

static const char advice_damage[] =
    "Stop all writers, copy the files, and restore a backup or try .recover of the sqlite3 shell.";

/* Every row of the query is a fault, except the text `fine`. */
static weir_status question_ask(sqlite_conn *conn, const char *sql, const char *rule,
                                const char *fine, const char *advice, store_findings *f,
                                weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    while (weir__cursor_next(&cursor)) {
        const char *text = (const char *)sqlite3_column_text(cursor.stmt, 0);
        if (text != NULL && (fine == NULL || strcmp(text, fine) != 0)) {
            weir__finding_keep(f, rule, text, advice);
        }
    }
    return weir__cursor_end(&cursor);
}

/* One object of the schema as it should be, against the one that is there. */
static weir_status compare_object(sqlite_conn *conn, weir_str name, weir_str sql, store_findings *f,
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
            weir__finding_keep(
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

/* The schema as this version makes it, in memory. Closed by the caller, also after a failure. */
static weir_status model_open(sqlite_store *s, sqlite_conn *model, weir_error *err)
{
    const int rc =
        sqlite3_open_v2(":memory:", &model->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    return rc != SQLITE_OK ? weir__sqlite_fail(model, rc, err, "open a database in memory")
                           : weir__sqlite_schema_build(s, model, err);
}

static weir_status check_schema(sqlite_store *s, sqlite_conn *conn, store_findings *f,
                                weir_error *err)
{
    sqlite_conn model = { 0 };
    weir_status status = model_open(s, &model, err);
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

static weir_status check_in(sqlite_store *s, sqlite_conn *conn, store_findings *f, weir_error *err)
{
    static const struct {
        const char *sql, *rule, *fine, *advice;
    } questions[] = {
        { sql_check_integrity, "integrity", "ok", advice_damage },
        { sql_check_versions, "versions", NULL, NULL },
        { sql_check_empty_streams, "streams", NULL, NULL },
        { sql_check_orphans, "streams", NULL, NULL },
        { sql_check_closed, "streams", NULL, NULL },
        { sql_check_categories, "categories", NULL, NULL },
        { sql_check_event_categories, "categories", NULL, NULL },
        { sql_check_order, "order", NULL, NULL },
        { sql_check_json, "json", NULL, NULL },
        { sql_check_keys, "keys", NULL, NULL },
        { sql_check_clock, "clock", NULL, NULL },
    };
    weir_status status = check_schema(s, conn, f, err);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0] && status == WEIR_OK; i++) {
        const char *advice = questions[i].advice;
        status =
            question_ask(conn, questions[i].sql, questions[i].rule, questions[i].fine,
                         advice != NULL ? advice : weir__finding_advice(questions[i].rule), f, err);
    }
    if (status == WEIR_OK && !s->database.immutable) {
        status = question_ask(
            conn, sql_check_journal, "journal", "wal",
            "The database is not in WAL mode; opening it for writing switches it back.", f, err);
    }
    return status == WEIR_OK ? weir__sqlite_check_targets(s, conn, weir__finding_keep, f, err)
                             : status;
}

/* Notes a trigger unless the model has one of that name: then check compares the two. */
static weir_status judge_trigger(sqlite_conn *model, sqlite_cursor *trigger, store_findings *f,
                                 weir_error *err)
{
    const weir_str name = weir__cursor_text(trigger, 0), table = weir__cursor_text(trigger, 1);
    const weir_str sql = weir__cursor_text(trigger, 2);
    sqlite_cursor cursor = weir__cursor_open(model, sql_check_object, err);
    char text[1024];
    weir__cursor_bind_text(&cursor, 1, name);
    const bool ours = weir__cursor_next(&cursor);
    const weir_status status = weir__cursor_end(&cursor);
    if (status == WEIR_OK && !ours) {
        (void)snprintf(text, sizeof text, "trigger %.*s on %.*s is not Weir's: \"%.*s\"",
                       (int)name.len, name.ptr, (int)table.len, table.ptr, (int)sql.len, sql.ptr);
        weir__finding_keep(
            f, "schema", text,
            "It runs with every write of Weir's; take it away if something is slow or refused.");
    }
    return status;
}

static weir_status survey_in(sqlite_store *s, sqlite_conn *conn, store_findings *f, weir_error *err)
{
    sqlite_conn model = { 0 };
    weir_status status = model_open(s, &model, err);
    if (status == WEIR_OK) {
        sqlite_cursor cursor = weir__cursor_open(conn, sql_check_triggers, err);
        while (weir__cursor_next(&cursor)) {
            weir__cursor_fail(&cursor, judge_trigger(&model, &cursor, f, err));
        }
        status = weir__cursor_end(&cursor);
    }
    weir__sqlite_conn_close(&model);
    return status;
}

/* Where the notes of a survey go. */
typedef struct survey_listener {
    store_survey_fn fn;
    void *ctx;
} survey_listener;

/* A store_finding_fn: whatever is found around a file is a note. */
static void survey_note(void *ctx, const char *rule, const char *text, const char *advice)
{
    const survey_listener *to = ctx;
    to->fn(to->ctx, false, rule, text, advice);
}

weir_status weir__sqlite_survey(weir_store *base, store_survey_fn fn, void *ctx, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    store_findings f = { .count = 0 };
    survey_listener to = { .fn = fn, .ctx = ctx };
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status == WEIR_OK) {
        status = survey_in(s, conn, &f, err);
        weir__sqlite_read_end(s, conn);
    }
    return weir__findings_tell(&f, status, survey_note, &to, err);
}

weir_status weir__sqlite_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    sqlite_store *s = sqlite_of(base);
    sqlite_conn *conn = NULL;
    store_findings f = { .count = 0 };
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status == WEIR_OK) {
        status = check_in(s, conn, &f, err);
        weir__sqlite_read_end(s, conn);
    }
    return weir__findings_tell(&f, status, fn, ctx, err);
}
