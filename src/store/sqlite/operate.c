/* operate.c - the operator's verbs, on one target or on a million, in short transactions.
 *
 * Each transaction walks over at most STORE_OPERATE_CHUNK names, then changes what it found: the
 * filter and the predicate of the verb hold at the moment of the change. A dry run asks the same
 * predicates in read transactions.
 *
 * INVARIANT  Whoever moves a position here takes the lease away (fence + 1), so that no holder can
 * write as if it had not moved.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/beyond.h"
#include "store/refusal.h"
#include "store/sqlite/operate_sql.h"
#include "store/sqlite/subscribe_sql.h"
#include "store/sqlite/targets.h"

_Static_assert(SQL_RULE_WORK == STORE_RULE_WORK, "the rules of words.sql");

/* One call. */
typedef struct operating {
    const store_operate *op;
    int64_t position; /* of a reset: the last position that is not handled again */
    /* how far it has come */
    weir_str after; /* the name where the last chunk ended */
    bool more;
    int64_t changed;
} operating;

/* What the verbs look at. */
typedef struct target_row {
    store_target t;   /* due_us: 1 when it is deferred; `reaction` is not used */
    int64_t reaction; /* that failed; 0: none */
    bool is_passed;
} target_row;

/* Texts are in the arena. */
static weir_status read_row(sqlite_conn *conn, int64_t target, weir_arena *arena, target_row *out,
                            weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_operate_target, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    const bool row = weir__cursor_next(&cursor);
    if (row) {
        *out = (target_row){ .t = { .blocked = weir__cursor_bool(&cursor, 0),
                                    .due_us = weir__cursor_bool(&cursor, 1),
                                    .paused = weir__cursor_bool(&cursor, 2),
                                    .behind = weir__cursor_bool(&cursor, 3),
                                    .prioritized = !weir__cursor_null(&cursor, 4),
                                    .priority = weir__cursor_i64(&cursor, 4),
                                    .error = weir__cursor_copy(&cursor, 5, arena),
                                    .event = weir__cursor_i64(&cursor, 6),
                                    .attempts = weir__cursor_i64(&cursor, 8) },
                             .reaction = weir__cursor_i64(&cursor, 7) };
        out->is_passed = weir__block_is_passed(out->t.blocked, out->reaction != 0, out->t.event,
                                               out->t.attempts);
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK && !row
               ? weir__fail(err, WEIR_ECORRUPT, "no target with id %lld", (long long)target)
               : status;
}

/* ---- reset --------------------------------------------------------------------------------- */

/* The position before the first event created at or after a time. */
static weir_status position_of_time(sqlite_conn *conn, int64_t time_us, int64_t *position,
                                    weir_error *err)
{
    int64_t low = 1, high = conn->row->head + 1; /* the first such event, or head + 1: none */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        sqlite_cursor cursor = weir__cursor_open(conn, sql_reset_probe, err);
        weir__cursor_bind_i64(&cursor, 1, middle);
        if (!weir__cursor_next(&cursor) || weir__cursor_i64(&cursor, 1) >= time_us) {
            high = middle;
        } else {
            low = weir__cursor_i64(&cursor, 0) + 1;
        }
        const weir_status status = weir__cursor_end(&cursor);
        if (status != WEIR_OK) {
            return status;
        }
    }
    *position = low - 1;
    return WEIR_OK;
}

typedef struct reset_item {
    int64_t reaction, at, mark;
    bool reroute; /* its events have to be routed again */
} reset_item;

/* The subscriptions to move, as reset_item. They are collected first: moving them writes to the
 * table that is being read. */
static weir_status reset_items(sqlite_conn *conn, int64_t target, int64_t position,
                               weir_buffer *items, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_reset_subscriptions, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    weir__cursor_bind_i64(&cursor, 2, position);
    weir__cursor_bind_i64(&cursor, 3, conn->row->head);
    while (weir__cursor_next(&cursor)) {
        const reset_item item = { .reaction = weir__cursor_i64(&cursor, 0),
                                  .at = weir__cursor_i64(&cursor, 1),
                                  .mark = weir__cursor_i64(&cursor, 2),
                                  .reroute = weir__cursor_bool(&cursor, 3) };
        weir__cursor_collect(&cursor, items, &item, sizeof item);
    }
    return weir__cursor_end(&cursor);
}

/* A subscription whose events only the router knows has to be routed again. */
static weir_status reset_work(sqlite_conn *conn, int64_t target, const reset_item *item,
                              weir_error *err)
{
    bool found = false;
    int64_t reread_to = 0;
    const int64_t values[] = { target, item->reaction, item->at, conn->row->head };
    weir_status status = weir__sqlite_run_ints(conn, sql_reset_work, values, 3, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_reset_work_rows, values, 2, err);
    }
    if (status == WEIR_OK) {
        status =
            weir__sqlite_get_int(conn, sql_reset_reread, &values[1], 3, &found, &reread_to, err);
    }
    if (status == WEIR_OK && reread_to == 0) {
        /* Nothing was routed yet, so there is nothing to read again. */
        status = weir__sqlite_run_ints(conn, sql_reset_not_reset, &item->reaction, 1, err);
    }
    return status;
}

static weir_status target_reset(sqlite_conn *conn, int64_t target, const operating *o,
                                bool *changed, weir_error *err)
{
    weir_buffer items = { 0 };
    bool found = false;
    int64_t to_clear = 0;
    weir_status status = reset_items(conn, target, o->position, &items, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_get_int(conn, sql_reset_to_clear, &target, 1, &found, &to_clear, err);
    }
    *changed = status == WEIR_OK && (items.len > 0 || to_clear != 0);
    if (!*changed || o->op->dry_run) {
        goto out;
    }
    for (size_t at = 0; at < items.len && status == WEIR_OK; at += sizeof(reset_item)) {
        reset_item item;
        memcpy(&item, items.ptr + at, sizeof item);
        if (item.reroute) {
            status = reset_work(conn, target, &item, err);
        } else {
            status = weir__sqlite_run_ints(conn, sql_reset_at,
                                           (int64_t[]){ target, item.reaction, item.at, item.mark },
                                           4, err);
        }
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_clear(conn, target, true, err);
    }
out:
    weir__buffer_free(&items);
    return status;
}

/* ---- skip ---------------------------------------------------------------------------------- */

/* A subscription that is behind. `value` is in the arena given. */
typedef struct lagging {
    int64_t reaction, at, mark, retries;
    weir_str value;
} lagging;

static weir_status read_lagging(sqlite_conn *conn, int64_t target, weir_arena *arena,
                                weir_buffer *out, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_skip_subscriptions, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    while (weir__cursor_next(&cursor)) {
        const lagging sub = { .reaction = weir__cursor_i64(&cursor, 0),
                              .at = weir__cursor_i64(&cursor, 1),
                              .mark = weir__cursor_i64(&cursor, 2),
                              .retries = weir__cursor_i64(&cursor, 3),
                              .value = weir__cursor_copy(&cursor, 4, arena) };
        weir__cursor_collect(&cursor, out, &sub, sizeof sub);
    }
    return weir__cursor_end(&cursor);
}

static weir_status next_add(sqlite_conn *conn, int64_t target, const lagging *sub,
                            weir_arena *arena, store_obstacles *o, weir_error *err)
{
    sqlite_definition definition = { 0 };
    sqlite_ids ids = { 0 };
    const sqlite_range range = {
        .target = target, .value = sub->value, .after = sub->at, .up_to = sub->mark
    };
    weir_status status = weir__sqlite_definition_open(conn, sub->reaction, arena, &definition, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_find_events(conn, &definition, &range, 1, &ids, err);
    }
    if (status == WEIR_OK && weir__sqlite_ids_count(&ids) > 0) {
        weir__obstacle_add(o, weir__sqlite_ids_get(&ids, 0), sub->reaction, sub->retries);
    }
    weir__buffer_free(&ids.bytes);
    weir__sqlite_definition_close(&definition);
    return status;
}

/* Of the events that were sent back, the first and the one that the block names. */
static weir_status sent_back_add(sqlite_conn *conn, int64_t target, store_obstacles *o,
                                 weir_error *err)
{
    const int64_t values[] = { target, o->named.reaction, o->named.event };
    bool found = false;
    int64_t one = 0;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_skip_sent_back, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    if (weir__cursor_next(&cursor)) {
        weir__obstacle_add(o, weir__cursor_i64(&cursor, 0), weir__cursor_i64(&cursor, 1),
                           weir__cursor_i64(&cursor, 2));
    }
    weir_status status = weir__cursor_end(&cursor);
    if (status == WEIR_OK && o->named.event != 0) {
        status = weir__sqlite_get_int(conn, sql_skip_is_sent_back, values, 3, &found, &one, err);
    }
    if (status == WEIR_OK && found) {
        weir__obstacle_add(o, o->named.event, o->named.reaction, o->named.attempts);
    }
    return status;
}

static weir_status find_obstacle(sqlite_conn *conn, int64_t target, const target_row *row,
                                 weir_arena *arena, store_obstacle *out, weir_error *err)
{
    store_obstacles o = { .least = { .found = false } };
    weir_buffer subs = { 0 };
    if (row->t.blocked) {
        o.named = (store_obstacle){ .event = row->t.event,
                                    .reaction = row->reaction,
                                    .attempts = row->t.attempts };
    }
    weir_status status = sent_back_add(conn, target, &o, err);
    if (status == WEIR_OK) {
        status = read_lagging(conn, target, arena, &subs, err);
    }
    for (size_t at = 0; at < subs.len && status == WEIR_OK; at += sizeof(lagging)) {
        lagging sub;
        memcpy(&sub, subs.ptr + at, sizeof sub);
        status = next_add(conn, target, &sub, arena, &o, err);
    }
    *out = weir__obstacle_first(&o);
    weir__buffer_free(&subs);
    return status;
}

/* A target that is behind may have nothing in the way: a mark whose events the reaction no longer
 * wants. The next worker finds that out and settles it. */
static weir_status target_skip(sqlite_conn *conn, int64_t target, const operating *o,
                               int64_t now_us, weir_arena *arena, bool *changed, weir_error *err)
{
    target_row row = { 0 };
    store_obstacle found = { 0 };
    weir_status status = read_row(conn, target, arena, &row, err);
    if (status != WEIR_OK || !row.t.behind || row.is_passed) {
        *changed = false;
        return status;
    }
    status = find_obstacle(conn, target, &row, arena, &found, err);
    *changed = status == WEIR_OK && found.found;
    if (!*changed || o->op->dry_run) {
        return status;
    }
    const store_park park = { .reaction = found.reaction,
                              .event = found.event,
                              .attempts = found.attempts,
                              .error = weir__skip_error(row.t.error) };
    const int64_t values[] = { target, found.reaction, found.event };
    status = weir__sqlite_park(conn, target, &park, now_us, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_skip_advance, values, 3, err);
    }
    if (status == WEIR_OK && sqlite3_changes(conn->db) > 0) {
        status = weir__sqlite_run_ints(conn, sql_skip_work_rows, values, 3, err);
    }
    return status == WEIR_OK ? weir__sqlite_clear(conn, target, true, err) : status;
}

/* ---- one target ---------------------------------------------------------------------------- */

static weir_status set_pause(sqlite_conn *conn, int64_t target, bool paused, weir_str by,
                             weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_operate_pause, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    weir__cursor_bind_i64(&cursor, 2, paused ? 1 : 0);
    weir__cursor_bind_text(&cursor, 3, paused ? by : (weir_str){ 0 });
    return weir__cursor_run(&cursor);
}

static weir_status set_priority(sqlite_conn *conn, int64_t target, const store_operate *op,
                                weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_operate_prioritize, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    if (!op->clear) {
        weir__cursor_bind_i64(&cursor, 2, op->priority);
    }
    return weir__cursor_run(&cursor);
}

static weir_status target_apply(sqlite_conn *conn, int64_t target, const store_operate *op,
                                weir_error *err)
{
    switch (op->verb) {
    case STORE_UNBLOCK:
        return weir__sqlite_clear(conn, target, false, err);
    case STORE_PRIORITIZE:
        return set_priority(conn, target, op, err);
    case STORE_PAUSE:
        return set_pause(conn, target, true, op->by, err);
    case STORE_RESUME:
        return set_pause(conn, target, false, op->by, err);
    case STORE_RESET:
    case STORE_SKIP:
        break;
    }
    return weir__fail(err, WEIR_EINVAL, "unknown verb %d", (int)op->verb);
}

static weir_status operate_one(sqlite_conn *conn, int64_t target, const operating *o,
                               int64_t now_us, weir_arena *arena, bool *changed, weir_error *err)
{
    target_row row = { 0 };
    weir_status status = WEIR_OK;
    if (o->op->verb == STORE_RESET) {
        status = target_reset(conn, target, o, changed, err);
    } else if (o->op->verb == STORE_SKIP) {
        status = target_skip(conn, target, o, now_us, arena, changed, err);
    } else {
        status = read_row(conn, target, arena, &row, err);
        *changed = status == WEIR_OK && weir__verb_changes(o->op, &row.t, row.is_passed);
        if (*changed && !o->op->dry_run) {
            status = target_apply(conn, target, o->op, err);
        }
    }
    if (status == WEIR_OK && *changed && !o->op->dry_run) {
        status = weir__sqlite_derive(conn, target, NULL, err);
    }
    return status;
}

/* ---- all of them --------------------------------------------------------------------------- */

/* What one transaction does: the next names after o->after. `names` is the arena where the new
 * o->after goes; *changed counts this chunk, which may yet be rolled back. */
static weir_status operate_chunk(sqlite_conn *conn, operating *o, int64_t now_us, weir_arena *names,
                                 int64_t *changed, weir_error *err)
{
    sqlite_walk walk = { .filter = &o->op->filter,
                         .after = o->after,
                         .limit = STORE_OPERATE_CHUNK,
                         .looked_max = STORE_OPERATE_CHUNK };
    weir_arena scratch = { 0 };
    weir_status status = weir__sqlite_walk(conn, &walk, names, err);
    for (size_t i = 0; i < weir__sqlite_ids_count(&walk.ids) && status == WEIR_OK; i++) {
        bool did = false;
        weir__arena_reset(&scratch);
        status =
            operate_one(conn, weir__sqlite_ids_get(&walk.ids, i), o, now_us, &scratch, &did, err);
        *changed += did ? 1 : 0;
    }
    if (status == WEIR_OK) {
        o->after = walk.scanned_to;
        o->more = walk.more;
    }
    weir__arena_free(&scratch);
    weir__buffer_free(&walk.ids.bytes);
    return status;
}

static weir_status run_chunk(sqlite_store *s, operating *o, weir_arena *names, weir_error *err)
{
    sqlite_conn *conn = NULL;
    int64_t now_us = 0, count = 0;
    weir_status status = WEIR_OK;
    if (o->op->dry_run) {
        status = weir__sqlite_read_begin(s, &conn, err);
        if (status == WEIR_OK) {
            status = operate_chunk(conn, o, 0, names, &count, err);
            weir__sqlite_read_end(s, conn);
        }
    } else {
        status = weir__sqlite_write_begin(s, SQLITE_TX_DURABLE, &conn, &now_us, err);
        if (status == WEIR_OK) {
            status = operate_chunk(conn, o, now_us, names, &count, err);
            status = weir__sqlite_write_end(s, status, count > 0, err);
        }
    }
    o->changed += status == WEIR_OK ? count : 0;
    return status;
}

/* Every name given must be a target. Targets are never deleted, so this holds until the end. */
static weir_status check_names(sqlite_conn *conn, const store_target_filter *filter,
                               weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < filter->names_count && status == WEIR_OK; i++) {
        const weir_str name = filter->names[i];
        int64_t id = 0;
        bool found = false;
        status = weir__sqlite_get_by_text(conn, sql_target_by_name, name, &found, &id, err);
        if (status == WEIR_OK && !found) {
            status = weir__target_not_named(name, err);
        }
    }
    return status;
}

/* What must be known before the first target is touched. */
static weir_status operate_prepare(sqlite_store *s, operating *o, weir_error *err)
{
    sqlite_conn *conn = NULL;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = check_names(conn, &o->op->filter, err);
    if (status == WEIR_OK && o->op->verb == STORE_RESET) {
        if (o->op->reset_to == STORE_RESET_POSITION) {
            o->position = o->op->position;
        } else if (o->op->reset_to == STORE_RESET_TIME) {
            status = position_of_time(conn, o->op->time_us, &o->position, err);
        }
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

weir_status weir__sqlite_operate(weir_store *base, store_operate *op, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    operating o = { .op = op, .more = true };
    /* Two arenas in turn: the name where a chunk ended is where the next one begins. */
    weir_arena names[2] = { { 0 }, { 0 } };

    weir_status status = operate_prepare(s, &o, err);
    for (size_t turn = 0; o.more && status == WEIR_OK; turn ^= 1) {
        weir__arena_reset(&names[turn]);
        status = run_chunk(s, &o, &names[turn], err);
    }
    if (status == WEIR_OK) {
        op->changed = o.changed;
    }
    weir__arena_free(&names[0]);
    weir__arena_free(&names[1]);
    return status;
}
