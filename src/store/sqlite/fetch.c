/* fetch.c - finding the events of a subscription.
 *
 * INVARIANTS
 *   (1) What is given is exactly what the reaction's current definition wants (names, source),
 *       restricted by its rule: a target per stream gets the events of its stream, and so on;
 *       targets of any other rule get what the router wrote into weir_work.
 *   (2) Fewer events than were asked for means that there are no more in the range. The caller
 *       moves its position on that word, so a cursor is never cut short.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/fetch_sql.h"
#include "store/sqlite/targets.h"

#include <string.h>

enum {
    FETCH_NAMES_MAX =
        16, /* so many event names are looked up one by one; more of them read the log */
};

/* ---- definitions --------------------------------------------------------------------------- */

weir_status weir__sqlite_definition_open(sqlite_conn *conn, int64_t reaction, weir_arena *arena,
                                         sqlite_definition *out, weir_error *err)
{
    sqlite_definition d = { 0 };
    weir_status status = weir__sqlite_reaction_load(conn, reaction, arena, &d.reaction, err);
    if (status == WEIR_OK) {
        status = weir__pattern_open(&d.source, d.reaction.source, err);
    }
    if (status == WEIR_OK) {
        *out = d;
    }
    return status;
}

void weir__sqlite_definition_close(sqlite_definition *definition)
{
    if (definition != NULL) {
        weir__pattern_close(definition->source);
        definition->source = NULL;
    }
}

bool weir__sqlite_definition_wants(const sqlite_definition *definition, weir_str stream,
                                   weir_str name)
{
    const store_reaction *r = &definition->reaction;
    const bool named = r->all_names ? name.len > 0 && name.ptr[0] != '$'
                                    : weir__names_contain(r->names, r->names_count, name);
    return named && weir__pattern_matches(definition->source, stream);
}

/* ---- cursors ------------------------------------------------------------------------------- */

/* Adds what the definition wants of an open cursor's rows, until there are `limit` in `ids`, the
 * rows end or lie above up_to. */
static weir_status collect(sqlite_conn *conn, sqlite3_stmt *cursor,
                           const sqlite_definition *definition, int64_t up_to, size_t limit,
                           sqlite_ids *ids, weir_error *err)
{
    bool row = false;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && weir__sqlite_ids_count(ids) < limit) {
        status = weir__sqlite_step(conn, cursor, &row, err);
        if (status != WEIR_OK || !row || sqlite3_column_int64(cursor, 0) > up_to) {
            break;
        }
        if (weir__sqlite_definition_wants(definition, weir__sqlite_column_str(cursor, 2),
                                          weir__sqlite_column_str(cursor, 1))) {
            status = weir__sqlite_ids_add(ids, sqlite3_column_int64(cursor, 0), err);
        }
    }
    weir__sqlite_done(cursor);
    return status;
}

/* A row id by a name; 0: none. */
static weir_status row_by_name(sqlite_conn *conn, const char *sql, weir_str name, int64_t *out,
                               weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, name);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK) {
        *out = row ? sqlite3_column_int64(stmt, 0) : 0;
    }
    weir__sqlite_done(stmt);
    return status;
}

/* The first of a stream's versions, up to `last`, whose event lies above `after`; last + 1: none.
 * Positions grow with versions, which have no gaps. */
static weir_status search_version(sqlite_conn *conn, int64_t stream_row, int64_t last,
                                  int64_t after, int64_t *version, weir_error *err)
{
    int64_t low = conn->row.version_base, high = last; /* the answer is in [low, high + 1] */
    while (low <= high) {
        const int64_t middle = low + (high - low) / 2;
        int64_t id = 0;
        bool row = false;
        const weir_status status = weir__sqlite_get_int(
            conn, sql_fetch_stream_position, (int64_t[]){ stream_row, middle }, 2, &row, &id, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (!row) {
            return weir__fail(err, WEIR_ECORRUPT, "stream %lld has no event with version %lld",
                              (long long)stream_row, (long long)middle);
        }
        if (id > after) {
            high = middle - 1;
        } else {
            low = middle + 1;
        }
    }
    *version = low;
    return WEIR_OK;
}

weir_status weir__sqlite_version_after(sqlite_conn *conn, int64_t stream_row, int64_t after,
                                       bool *found, int64_t *version, weir_error *err)
{
    int64_t last = 0;
    *found = false;
    weir_status status =
        weir__sqlite_get_int(conn, sql_fetch_stream_last, &stream_row, 1, found, &last, err);
    if (status == WEIR_OK && *found) {
        status = search_version(conn, stream_row, last, after, version, err);
        *found = *version <= last;
    }
    return status;
}

/* The same by the stream's name, and its row. */
static weir_status find_version(sqlite_conn *conn, weir_str stream, int64_t after, bool *found,
                                int64_t *row_id, int64_t *version, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t last = 0;
    bool known = false;
    *found = false;
    weir_status status = weir__sqlite_statement(conn, sql_fetch_stream_row, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, stream);
    sqlite3_bind_int64(stmt, 2, after);
    status = weir__sqlite_step(conn, stmt, found, err);
    if (status == WEIR_OK && *found) {
        *row_id = sqlite3_column_int64(stmt, 0);
        last = sqlite3_column_int64(stmt, 1);
        known = sqlite3_column_type(stmt, 2) != SQLITE_NULL;
        *version = sqlite3_column_int64(stmt, 2);
    }
    weir__sqlite_done(stmt);
    if (status == WEIR_OK && *found && !known) {
        status = search_version(conn, *row_id, last, after, version, err);
    }
    *found = *found && *version <= last;
    return status;
}

static weir_status find_by_stream(sqlite_conn *conn, const sqlite_definition *definition,
                                  weir_str stream, const sqlite_range *range, size_t limit,
                                  sqlite_ids *ids, weir_error *err)
{
    sqlite3_stmt *cursor = NULL;
    int64_t row = 0, version = 0;
    bool found = false;
    weir_status status = find_version(conn, stream, range->after, &found, &row, &version, err);
    if (status != WEIR_OK || !found) {
        return status;
    }
    status = weir__sqlite_statement(conn, sql_fetch_by_stream, &cursor, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(cursor, 1, row);
    sqlite3_bind_int64(cursor, 2, version);
    return collect(conn, cursor, definition, range->up_to, limit, ids, err);
}

/* A cursor whose parameters ?2 and ?3 are the range. */
static weir_status open_range(sqlite_conn *conn, const char *sql, const sqlite_range *range,
                              sqlite3_stmt **cursor, weir_error *err)
{
    const weir_status status = weir__sqlite_statement(conn, sql, cursor, err);
    if (status == WEIR_OK) {
        sqlite3_bind_int64(*cursor, 2, range->after);
        sqlite3_bind_int64(*cursor, 3, range->up_to);
    }
    return status;
}

static weir_status find_by_category(sqlite_conn *conn, const sqlite_definition *definition,
                                    weir_str category, const sqlite_range *range, size_t limit,
                                    sqlite_ids *ids, weir_error *err)
{
    sqlite3_stmt *cursor = NULL;
    int64_t row = 0;
    weir_status status = row_by_name(conn, sql_fetch_category_row, category, &row, err);
    if (status == WEIR_OK && row == 0) {
        return WEIR_OK;
    }
    if (status == WEIR_OK) {
        status = open_range(conn, sql_fetch_by_category, range, &cursor, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(cursor, 1, row);
    return collect(conn, cursor, definition, range->up_to, limit, ids, err);
}

static weir_status find_by_name(sqlite_conn *conn, const sqlite_definition *definition,
                                weir_str name, const sqlite_range *range, size_t limit,
                                sqlite_ids *ids, weir_error *err)
{
    sqlite3_stmt *cursor = NULL;
    const weir_status status = open_range(conn, sql_fetch_by_name, range, &cursor, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(cursor, 1, name);
    return collect(conn, cursor, definition, range->up_to, limit, ids, err);
}

/* The first `limit` of each name hold the first `limit` of all. */
static weir_status find_by_names(sqlite_conn *conn, const sqlite_definition *definition,
                                 const sqlite_range *range, size_t limit, sqlite_ids *ids,
                                 weir_error *err)
{
    const store_reaction *r = &definition->reaction;
    sqlite_ids found = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->names_count && status == WEIR_OK; i++) {
        status = find_by_name(conn, definition, r->names[i], range,
                              weir__sqlite_ids_count(&found) + limit, &found, err);
    }
    weir__sqlite_ids_sort(&found);
    const size_t count = weir__sqlite_ids_count(&found);
    for (size_t i = 0; i < count && i < limit && status == WEIR_OK; i++) {
        status = weir__sqlite_ids_add(ids, weir__sqlite_ids_get(&found, i), err);
    }
    weir__buffer_free(&found.bytes);
    return status;
}

/* Everything the reaction listens to, for the one target it has. */
static weir_status find_constant(sqlite_conn *conn, const sqlite_definition *definition,
                                 const sqlite_range *range, size_t limit, sqlite_ids *ids,
                                 weir_error *err)
{
    const store_pattern *source = definition->source;
    sqlite3_stmt *cursor = NULL;
    if (source->kind == PATTERN_EXACT) {
        return find_by_stream(conn, definition, source->name, range, limit, ids, err);
    }
    /* A prefix that goes beyond the first '-' lies inside one category. */
    const weir_str category =
        source->kind == PATTERN_PREFIX ? weir__category(source->name) : (weir_str){ 0 };
    if (category.len < source->name.len && source->kind == PATTERN_PREFIX) {
        return find_by_category(conn, definition, category, range, limit, ids, err);
    }
    if (!definition->reaction.all_names && definition->reaction.names_count <= FETCH_NAMES_MAX) {
        return find_by_names(conn, definition, range, limit, ids, err);
    }
    const weir_status status = open_range(conn, sql_fetch_by_log, range, &cursor, err);
    return status == WEIR_OK ? collect(conn, cursor, definition, range->up_to, limit, ids, err)
                             : status;
}

weir_status weir__sqlite_find_events(sqlite_conn *conn, const sqlite_definition *definition,
                                     const sqlite_range *range, size_t limit, sqlite_ids *ids,
                                     weir_error *err)
{
    sqlite3_stmt *cursor = NULL;
    sqlite_ids found = { 0 };
    weir_status status = WEIR_OK;
    switch (definition->reaction.rule) {
    case STORE_RULE_CONSTANT:
        status = find_constant(conn, definition, range, limit, &found, err);
        break;
    case STORE_RULE_STREAM:
        status = find_by_stream(conn, definition, range->value, range, limit, &found, err);
        break;
    case STORE_RULE_CATEGORY:
        status = find_by_category(conn, definition, range->value, range, limit, &found, err);
        break;
    case STORE_RULE_NAME:
        status = find_by_name(conn, definition, range->value, range, limit, &found, err);
        break;
    case STORE_RULE_WORK:
        status = open_range(conn, sql_fetch_by_work, range, &cursor, err);
        if (status == WEIR_OK) {
            sqlite3_bind_int64(cursor, 1, range->target);
            sqlite3_bind_int64(cursor, 4, definition->reaction.id);
            status = collect(conn, cursor, definition, range->up_to, limit, &found, err);
        }
        break;
    }
    for (size_t i = 0; i < weir__sqlite_ids_count(&found) && status == WEIR_OK; i++) {
        status = weir__sqlite_ids_add(ids, weir__sqlite_ids_get(&found, i), err);
    }
    weir__buffer_free(&found.bytes);
    return status;
}

/* ---- fetching ------------------------------------------------------------------------------ */

/* One fetch call. */
typedef struct fetching {
    sqlite_conn *conn;
    weir_arena *arena;   /* of the list */
    weir_buffer opened;  /* sqlite_definition: those used so far */
    weir_buffer fetched; /* store_fetched */
    bool *exhausted;     /* in the arena: per item */
    size_t bytes;        /* of data and meta so far */
} fetching;

static weir_status definition_of(fetching *f, int64_t reaction, sqlite_definition *out,
                                 weir_error *err)
{
    for (size_t at = 0; at < f->opened.len; at += sizeof *out) {
        memcpy(out, f->opened.ptr + at, sizeof *out);
        if (out->reaction.id == reaction) {
            return WEIR_OK;
        }
    }
    weir_status status = weir__sqlite_definition_open(f->conn, reaction, f->arena, out, err);
    if (status == WEIR_OK && !weir__buffer_add(&f->opened, out, sizeof *out)) {
        weir__sqlite_definition_close(out);
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a definition");
    }
    return status;
}

static weir_status subscription_value(fetching *f, const store_fetch_item *item, weir_str *value,
                                      weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(f->conn, sql_fetch_subscription, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, item->target);
    sqlite3_bind_int64(stmt, 2, item->reaction);
    status = weir__sqlite_step(f->conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ENOTFOUND, "target %lld has no subscription of reaction %lld",
                            (long long)item->target, (long long)item->reaction);
    } else if (status == WEIR_OK) {
        *value = weir__sqlite_column_copy(stmt, 0, f->arena);
        if (value->ptr == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a subscription");
        }
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status load_event(fetching *f, int64_t id, uint32_t item_index, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_event *event = weir__arena_alloc(f->arena, sizeof *event);
    weir_status status = weir__sqlite_statement(f->conn, sql_fetch_event, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, id);
    status = weir__sqlite_step(f->conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ECORRUPT, "no event at position %lld", (long long)id);
    } else if (status == WEIR_OK && event != NULL) {
        *event = (weir_event){ .size = sizeof *event,
                               .id = id,
                               .version = sqlite3_column_int64(stmt, 1),
                               .created_us = sqlite3_column_int64(stmt, 2),
                               .stream = weir__sqlite_column_copy(stmt, 3, f->arena),
                               .name = weir__sqlite_column_copy(stmt, 4, f->arena),
                               .data = weir__sqlite_column_copy(stmt, 5, f->arena),
                               .meta = weir__sqlite_column_copy(stmt, 6, f->arena) };
    }
    weir__sqlite_done(stmt);
    const store_fetched fetched = { .event = event, .item_index = item_index };
    if (status == WEIR_OK &&
        (event == NULL || event->stream.ptr == NULL || event->name.ptr == NULL ||
         event->data.ptr == NULL || event->meta.ptr == NULL ||
         !weir__buffer_add(&f->fetched, &fetched, sizeof fetched))) {
        status = weir__fail(err, WEIR_ENOMEM, "could not copy an event");
    }
    if (status == WEIR_OK) {
        f->bytes += event->data.len + event->meta.len;
    }
    return status;
}

/* How many more events the list takes: none once its bytes are reached. */
static size_t room_left(const fetching *f)
{
    return f->bytes >= STORE_FETCH_BYTES_SOFT
               ? 0
               : STORE_FETCH_EVENTS_MAX - f->fetched.len / sizeof(store_fetched);
}

static weir_status fetch_item(fetching *f, const store_fetch_item *item, uint32_t item_index,
                              weir_error *err)
{
    const size_t room = room_left(f);
    const size_t limit = (uint64_t)item->limit < room ? (size_t)item->limit : room;
    sqlite_range range = { .target = item->target, .after = item->after, .up_to = item->up_to };
    sqlite_definition definition = { 0 };
    sqlite_ids ids = { 0 };
    weir_status status = subscription_value(f, item, &range.value, err);
    if (status == WEIR_OK && limit > 0) {
        status = definition_of(f, item->reaction, &definition, err);
        if (status == WEIR_OK) {
            status = weir__sqlite_find_events(f->conn, &definition, &range, limit, &ids, err);
        }
    }
    const size_t found = weir__sqlite_ids_count(&ids);
    for (size_t i = 0; i < found && room_left(f) > 0 && status == WEIR_OK; i++) {
        status = load_event(f, weir__sqlite_ids_get(&ids, i), item_index, err);
    }
    f->exhausted[item_index] = room_left(f) > 0 && found < limit;
    weir__buffer_free(&ids.bytes);
    return status;
}

weir_status weir__sqlite_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    fetching f = { .arena = &list->arena };

    weir__arena_reset(&list->arena);
    list->events = NULL;
    list->events_count = 0;
    f.exhausted = weir__arena_alloc(&list->arena, (count + 1) * sizeof *f.exhausted);
    list->exhausted = f.exhausted;
    weir_status status = f.exhausted == NULL
                             ? weir__fail(err, WEIR_ENOMEM, "could not allocate fetched events")
                             : weir__sqlite_read_begin(s, &f.conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = fetch_item(&f, &items[i], (uint32_t)i, err);
    }
    weir__sqlite_read_end(s, f.conn);
    if (status == WEIR_OK && f.fetched.len > 0) {
        store_fetched *events = weir__arena_alloc(&list->arena, f.fetched.len);
        if (events == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate fetched events");
        } else {
            memcpy(events, f.fetched.ptr, f.fetched.len);
            list->events = events;
            list->events_count = f.fetched.len / sizeof *events;
        }
    }
    for (size_t at = 0; at < f.opened.len; at += sizeof(sqlite_definition)) {
        sqlite_definition definition;
        memcpy(&definition, f.opened.ptr + at, sizeof definition);
        weir__sqlite_definition_close(&definition);
    }
    weir__buffer_free(&f.opened);
    weir__buffer_free(&f.fetched);
    return status;
}
