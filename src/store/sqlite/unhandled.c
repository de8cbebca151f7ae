/* unhandled.c - which reactions still have something to do with a stream: what closing asks.
 *
 * An event is unhandled when a reaction that is not retired listens to it, it lies above where the
 * reaction began, and it is not yet routed, or lies above the position of the subscription it
 * belongs to, or has a work row.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/sqlite/targets.h"
#include "store/sqlite/unhandled_sql.h"

#include <string.h>

/* The least `at` of a reaction's subscriptions with that value (NULL: of all); INT64_MAX: there are
 * none. */
static weir_status least_at(sqlite_conn *conn, int64_t reaction, const weir_str *value,
                            int64_t *out, weir_error *err)
{
    bool found = false;
    sqlite_cursor cursor =
        weir__cursor_open(conn, value == NULL ? sql_unhandled_at_any : sql_unhandled_at, err);
    weir__cursor_bind_i64(&cursor, 1, reaction);
    if (value != NULL) {
        weir__cursor_bind_text(&cursor, 2, *value);
    }
    *out = INT64_MAX;
    return weir__cursor_get_int(&cursor, &found, out);
}

/* Up to where every event of the stream that the reaction listens to is handled, when that is one
 * position for the whole stream; else up to where nothing can be unhandled. */
static weir_status handled_to(sqlite_conn *conn, const store_reaction *r, weir_str stream,
                              int64_t *out, weir_error *err)
{
    const weir_str category = weir__category(stream);
    int64_t at = INT64_MAX;
    weir_status status = WEIR_OK;
    switch (r->rule) {
    case STORE_RULE_CONSTANT:
    case STORE_RULE_NAME:
        status = least_at(conn, r->id, NULL, &at, err);
        break;
    case STORE_RULE_STREAM:
        status = least_at(conn, r->id, &stream, &at, err);
        break;
    case STORE_RULE_CATEGORY:
        status = least_at(conn, r->id, &category, &at, err);
        break;
    case STORE_RULE_WORK:
        at = r->since; /* work rows can be anywhere above */
        break;
    }
    *out = at < r->routed ? at : r->routed;
    if (*out < r->since) {
        *out = r->since;
    }
    return status;
}

/* Whether an event above handled_to that the reaction wants is unhandled. */
static weir_status is_unhandled(sqlite_conn *conn, const store_reaction *r, int64_t event,
                                weir_str name, bool *unhandled, weir_error *err)
{
    int64_t value = 0;
    weir_status status = WEIR_OK;
    *unhandled = true;
    if (event > r->routed) {
        return WEIR_OK;
    }
    if (r->rule == STORE_RULE_NAME) {
        status = least_at(conn, r->id, &name, &value, err);
        *unhandled = event > value;
    } else if (r->rule == STORE_RULE_WORK) {
        status = weir__sqlite_get_int(conn, sql_unhandled_work, (int64_t[]){ r->id, event }, 2,
                                      unhandled, &value, err);
    }
    return status;
}

static weir_status reaction_holds(sqlite_conn *conn, const sqlite_definition *definition,
                                  int64_t stream_row, weir_str stream, bool *holds, weir_error *err)
{
    const store_reaction *r = &definition->reaction;
    int64_t from = 0, version = 0;
    bool found = false;
    *holds = false;
    if (!weir__pattern_matches(definition->source, stream)) {
        return WEIR_OK;
    }
    weir_status status = handled_to(conn, r, stream, &from, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_version_after(conn, stream_row, from, &found, &version, err);
    }
    if (status != WEIR_OK || !found) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_unhandled_events, err);
    weir__cursor_bind_i64(&cursor, 1, stream_row);
    weir__cursor_bind_i64(&cursor, 2, version);
    while (!*holds && weir__cursor_next(&cursor)) {
        const weir_str name = weir__cursor_text(&cursor, 1);
        if (weir__sqlite_definition_wants(definition, stream, name)) {
            weir__cursor_fail(
                &cursor, is_unhandled(conn, r, weir__cursor_i64(&cursor, 0), name, holds, err));
        }
    }
    return weir__cursor_end(&cursor);
}

static weir_status read_reactions(sqlite_conn *conn, sqlite_ids *ids, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_unhandled_reactions, err);
    while (weir__cursor_next(&cursor)) {
        weir__cursor_fail(&cursor, weir__sqlite_ids_add(ids, weir__cursor_i64(&cursor, 0), err));
    }
    return weir__cursor_end(&cursor);
}

weir_status weir__sqlite_unhandled(sqlite_store *s, sqlite_conn *conn, int64_t stream_row,
                                   weir_str stream, weir_error *err)
{
    store_named names = { 0 };
    weir_arena arena = { 0 };
    sqlite_ids ids = { 0 };
    (void)s;
    weir_status status = read_reactions(conn, &ids, err);
    for (size_t i = 0; i < weir__sqlite_ids_count(&ids) && status == WEIR_OK; i++) {
        sqlite_definition definition = { 0 };
        bool holds = false;
        weir__arena_reset(&arena);
        status = weir__sqlite_definition_open(conn, weir__sqlite_ids_get(&ids, i), &arena,
                                              &definition, err);
        if (status == WEIR_OK) {
            status = reaction_holds(conn, &definition, stream_row, stream, &holds, err);
        }
        if (status == WEIR_OK && holds) {
            weir__named_add(&names, definition.reaction.name);
        }
        weir__sqlite_definition_close(&definition);
    }
    if (status == WEIR_OK && names.len > 0) {
        status = weir__stream_unhandled(stream, &names, err);
    }
    weir__buffer_free(&ids.bytes);
    weir__arena_free(&arena);
    return status;
}
