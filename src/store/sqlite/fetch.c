/* fetch.c - finding the events of a subscription.
 *
 * INVARIANTS
 *   (1) What is given is exactly what the reaction's current definition wants (names, source),
 *       restricted by its rule: a target per stream gets the events of its stream, and so on;
 *       targets of any other rule get what the router wrote into weir_work.
 *   (2) An event is read by the cursor that finds it; its data only if its name may be wanted.
 *   (3) Fewer events than were asked for means that there are no more in the range. The caller
 *       moves its position on that word, so a cursor is never cut short.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
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

typedef struct finding finding;

/* Takes the event that a cursor stands on. */
typedef weir_status (*take_fn)(finding *f, sqlite_cursor *cursor);

/* Looking for the next events of one subscription. */
struct finding {
    sqlite_conn *conn;
    const sqlite_definition *definition;
    sqlite_range range;
    size_t limit; /* of `found`; who takes may lower it */
    size_t found;
    weir_str name, stream; /* of the event that the cursor stands on */
    bool with_data;
    take_fn take_cb;
    void *ctx;           /* take_cb's: a fetching or sqlite_ids */
    uint32_t item_index; /* of a fetching */
};

static bool is_full(const finding *f)
{
    return f->found >= f->limit;
}

/* Tells a cursor whose data it has to read: that of names between ?5 and ?6. Names are in bytewise
 * order, and every text is less than a blob. */
static void bind_data(const finding *f, sqlite_cursor *cursor)
{
    const store_reaction *r = &f->definition->reaction;
    if (!f->with_data || (!r->all_names && r->names_count == 0)) {
        weir__cursor_bind_bytes(cursor, 5, NULL, 0);
        weir__cursor_bind_text(cursor, 6, weir__str(""));
    } else if (r->all_names) {
        weir__cursor_bind_text(cursor, 5, weir__str(""));
        weir__cursor_bind_bytes(cursor, 6, NULL, 0);
    } else {
        weir__cursor_bind_text(cursor, 5, r->names[0]);
        weir__cursor_bind_text(cursor, 6, r->names[r->names_count - 1]);
    }
}

/* Takes what the definition wants of an open cursor's rows, until it is enough, the rows end or lie
 * above the range. */
static weir_status events_collect(finding *f, sqlite_cursor *cursor)
{
    bind_data(f, cursor);
    while (!is_full(f) && weir__cursor_next(cursor) &&
           weir__cursor_i64(cursor, 0) <= f->range.up_to) {
        f->name = weir__cursor_text(cursor, 1);
        f->stream = weir__cursor_text(cursor, 2);
        if (weir__sqlite_definition_wants(f->definition, f->stream, f->name)) {
            f->found++;
            weir__cursor_fail(cursor, f->take_cb(f, cursor));
        }
    }
    return weir__cursor_end(cursor);
}

/* The first of a stream's versions, up to `last`, whose event lies above `after`; last + 1: none.
 * Positions grow with versions, which have no gaps. */
static weir_status search_version(sqlite_conn *conn, int64_t stream_row, int64_t last,
                                  int64_t after, int64_t *version, weir_error *err)
{
    int64_t low = 0, high = last; /* the answer is in [low, high + 1] */
    bool found = false;
    const weir_status begun = weir__sqlite_get_int(
        conn, sql_fetch_stream_first, (int64_t[]){ stream_row, conn->row->version_base }, 2, &found,
        &low, err);
    if (begun != WEIR_OK) {
        return begun;
    }
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
    int64_t last = 0;
    bool known = false;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_fetch_stream_row, err);
    weir__cursor_bind_text(&cursor, 1, stream);
    weir__cursor_bind_i64(&cursor, 2, after);
    *found = weir__cursor_next(&cursor);
    if (*found) {
        *row_id = weir__cursor_i64(&cursor, 0);
        last = weir__cursor_i64(&cursor, 1);
        known = !weir__cursor_null(&cursor, 2);
        *version = weir__cursor_i64(&cursor, 2);
    }
    weir_status status = weir__cursor_end(&cursor);
    if (status == WEIR_OK && *found && !known) {
        status = search_version(conn, *row_id, last, after, version, err);
    }
    *found = *found && *version <= last;
    return status;
}

static weir_status find_by_stream(finding *f, weir_str stream, weir_error *err)
{
    int64_t row = 0, version = 0;
    bool found = false;
    weir_status status = find_version(f->conn, stream, f->range.after, &found, &row, &version, err);
    if (status != WEIR_OK || !found) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(f->conn, sql_fetch_by_stream, err);
    weir__cursor_bind_i64(&cursor, 1, row);
    weir__cursor_bind_i64(&cursor, 2, version);
    return events_collect(f, &cursor);
}

/* A cursor whose parameters ?2 and ?3 are the range. */
static sqlite_cursor open_range(const finding *f, const char *sql, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(f->conn, sql, err);
    weir__cursor_bind_i64(&cursor, 2, f->range.after);
    weir__cursor_bind_i64(&cursor, 3, f->range.up_to);
    return cursor;
}

static weir_status find_by_category(finding *f, weir_str category, weir_error *err)
{
    int64_t row = 0;
    bool found = false;
    weir_status status =
        weir__sqlite_get_by_text(f->conn, sql_fetch_category_row, category, &found, &row, err);
    if (status != WEIR_OK || !found) {
        return status;
    }
    sqlite_cursor cursor = open_range(f, sql_fetch_by_category, err);
    weir__cursor_bind_i64(&cursor, 1, row);
    return events_collect(f, &cursor);
}

static weir_status find_by_name(finding *f, weir_str name, weir_error *err)
{
    sqlite_cursor cursor = open_range(f, sql_fetch_by_name, err);
    weir__cursor_bind_text(&cursor, 1, name);
    return events_collect(f, &cursor);
}

static weir_status find_by_log(finding *f, weir_error *err)
{
    sqlite_cursor cursor = open_range(f, sql_fetch_by_log, err);
    return events_collect(f, &cursor);
}

static weir_status find_by_work(finding *f, weir_error *err)
{
    sqlite_cursor cursor = open_range(f, sql_fetch_by_work, err);
    weir__cursor_bind_i64(&cursor, 1, f->range.target);
    weir__cursor_bind_i64(&cursor, 4, f->definition->reaction.id);
    return events_collect(f, &cursor);
}

static weir_status take_id(finding *f, sqlite_cursor *cursor)
{
    return weir__sqlite_ids_add(f->ctx, weir__cursor_i64(cursor, 0), cursor->err);
}

/* The first `limit` of each name hold the first `limit` of all; those are then read by position. */
static weir_status find_by_names(finding *f, weir_error *err)
{
    const store_reaction *r = &f->definition->reaction;
    sqlite_ids ids = { 0 };
    weir_status status = WEIR_OK;
    if (r->names_count == 1) {
        return find_by_name(f, r->names[0], err);
    }
    for (size_t i = 0; i < r->names_count && status == WEIR_OK; i++) {
        finding each = *f;
        each.with_data = false;
        each.take_cb = take_id;
        each.ctx = &ids;
        status = find_by_name(&each, r->names[i], err);
    }
    weir__sqlite_ids_sort(&ids);
    for (size_t i = 0; i < weir__sqlite_ids_count(&ids) && !is_full(f) && status == WEIR_OK; i++) {
        sqlite_cursor cursor = weir__cursor_open(f->conn, sql_fetch_event, err);
        weir__cursor_bind_i64(&cursor, 1, weir__sqlite_ids_get(&ids, i));
        status = events_collect(f, &cursor);
    }
    weir__buffer_free(&ids.bytes);
    return status;
}

/* The same, in the log itself as long as its next events seem to be wanted for the most part: to
 * find each by its name takes longer. A wrong guess costs a look at a few times `limit` events. */
static weir_status find_dense_or_by_names(finding *f, weir_error *err)
{
    const store_reaction *r = &f->definition->reaction;
    const int64_t after = f->range.after, up_to = f->range.up_to;
    bool dense = false;
    weir_status status = WEIR_OK;
    if (r->names_count > 0 && after < up_to) {
        const sqlite_names names = { .names = r->names,
                                     .count = r->names_count,
                                     .low = after + 1,
                                     .high = up_to,
                                     .limit = (int64_t)f->limit };
        status = weir__sqlite_names_dense(f->conn, &names, &dense, err);
    }
    if (status == WEIR_OK && dense) {
        const int64_t most = (int64_t)f->limit * SQLITE_DENSE_PART;
        f->range.up_to = up_to - after > most ? after + most : up_to;
        status = find_by_log(f, err);
        f->range.after = f->range.up_to;
        f->range.up_to = up_to;
    }
    return status == WEIR_OK && f->range.after < up_to && !is_full(f) ? find_by_names(f, err)
                                                                      : status;
}

/* Everything the reaction listens to, for the one target it has. */
static weir_status find_constant(finding *f, weir_error *err)
{
    const store_pattern *source = f->definition->source;
    const store_reaction *r = &f->definition->reaction;
    if (source->kind == PATTERN_EXACT) {
        return find_by_stream(f, source->name, err);
    }
    /* A prefix that goes beyond the first '-' lies inside one category. */
    const weir_str category =
        source->kind == PATTERN_PREFIX ? weir__category(source->name) : (weir_str){ 0 };
    if (category.len < source->name.len && source->kind == PATTERN_PREFIX) {
        return find_by_category(f, category, err);
    }
    return !r->all_names && r->names_count <= FETCH_NAMES_MAX ? find_dense_or_by_names(f, err)
                                                              : find_by_log(f, err);
}

static weir_status find_by_rule(finding *f, weir_error *err)
{
    switch (f->definition->reaction.rule) {
    case STORE_RULE_CONSTANT:
        return find_constant(f, err);
    case STORE_RULE_STREAM:
        return find_by_stream(f, f->range.value, err);
    case STORE_RULE_CATEGORY:
        return find_by_category(f, f->range.value, err);
    case STORE_RULE_NAME:
        return find_by_name(f, f->range.value, err);
    case STORE_RULE_WORK:
        return find_by_work(f, err);
    }
    return WEIR_OK;
}

weir_status weir__sqlite_find_events(sqlite_conn *conn, const sqlite_definition *definition,
                                     const sqlite_range *range, size_t limit, sqlite_ids *ids,
                                     weir_error *err)
{
    finding f = { .conn = conn,
                  .definition = definition,
                  .range = *range,
                  .limit = limit,
                  .take_cb = take_id,
                  .ctx = ids };
    return find_by_rule(&f, err);
}

/* ---- fetching ------------------------------------------------------------------------------ */

/* One fetch call. */
typedef struct fetching {
    sqlite_conn *conn;
    weir_arena *arena;   /* of the list */
    weir_buffer opened;  /* sqlite_definition: those used so far */
    weir_buffer fetched; /* store_fetched */
    weir_event *last;    /* of them; NULL: none yet */
    bool *exhausted;     /* in the arena: per item */
    size_t bytes;        /* of data and meta so far */
    size_t bytes_soft;   /* where they end          */
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
    sqlite_cursor cursor = weir__cursor_open(f->conn, sql_fetch_subscription, err);
    weir__cursor_bind_i64(&cursor, 1, item->target);
    weir__cursor_bind_i64(&cursor, 2, item->reaction);
    const bool row = weir__cursor_next(&cursor);
    if (row) {
        *value = weir__cursor_copy(&cursor, 0, f->arena);
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK && !row ? weir__subscription_unknown(item->target, item->reaction, err)
                                     : status;
}

/* How many more events the list takes: none once its bytes are reached. */
static size_t room_left(const fetching *f)
{
    return f->bytes >= f->bytes_soft
               ? 0
               : STORE_FETCH_EVENTS_MAX - f->fetched.len / sizeof(store_fetched);
}

/* A text in the arena; the same text of the event before serves as well. */
static weir_str copy_text(fetching *f, weir_str text, const weir_str *before)
{
    if (before != NULL && weir__str_equal(*before, text)) {
        return *before;
    }
    const char *copy = weir__arena_copy(f->arena, text.len == 0 ? "" : text.ptr, text.len);
    return (weir_str){ .ptr = copy, .len = copy == NULL ? 0 : text.len };
}

static weir_status take_event(finding *found, sqlite_cursor *cursor)
{
    fetching *f = found->ctx;
    const weir_event *before = f->last;
    weir_event *event = weir__arena_alloc(f->arena, sizeof *event);
    const store_fetched fetched = { .event = event, .item_index = found->item_index };
    if (event != NULL) {
        *event =
            (weir_event){ .size = sizeof *event,
                          .id = weir__cursor_i64(cursor, 0),
                          .name = copy_text(f, found->name, before ? &before->name : NULL),
                          .stream = copy_text(f, found->stream, before ? &before->stream : NULL),
                          .version = weir__cursor_i64(cursor, 3),
                          .created_us = weir__cursor_i64(cursor, 4),
                          .meta = weir__cursor_copy(cursor, 5, f->arena),
                          .data = weir__cursor_copy(cursor, 6, f->arena) };
    }
    if (event == NULL || event->stream.ptr == NULL || event->name.ptr == NULL ||
        event->data.ptr == NULL || event->meta.ptr == NULL ||
        !weir__buffer_add(&f->fetched, &fetched, sizeof fetched)) {
        return weir__fail(cursor->err, WEIR_ENOMEM, "could not copy an event");
    }
    f->last = event;
    f->bytes += event->data.len + event->meta.len;
    if (room_left(f) == 0) {
        found->limit = found->found;
    }
    return WEIR_OK;
}

static weir_status fetch_item(fetching *f, const store_fetch_item *item, uint32_t item_index,
                              weir_error *err)
{
    const size_t room = room_left(f);
    sqlite_definition definition = { 0 };
    finding found = {
        .conn = f->conn,
        .definition = &definition,
        .range = { .target = item->target, .after = item->after, .up_to = item->up_to },
        .limit = weir__chunk_limit(item->limit, room),
        .with_data = true,
        .take_cb = take_event,
        .ctx = f,
        .item_index = item_index,
    };
    weir_status status = subscription_value(f, item, &found.range.value, err);
    if (status == WEIR_OK && !is_full(&found)) {
        status = definition_of(f, item->reaction, &definition, err);
        if (status == WEIR_OK) {
            status = find_by_rule(&found, err);
        }
    }
    f->exhausted[item_index] = !is_full(&found);
    return status;
}

weir_status weir__sqlite_fetch(weir_store *base, const store_fetch_item *items, size_t count,
                               store_fetch_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    fetching f = { .arena = &list->arena, .bytes_soft = weir__fetch_bytes_soft(list) };

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
