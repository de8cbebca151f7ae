/* targets.c - looking at targets: walking over those a filter accepts, listing them, lanes, poll.
 *
 * Everything here only reads, but for the pause of a lane, which is one row however many targets
 * the lane has.
 */
#include "store/sqlite/targets.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/subscribe_sql.h"
#include "store/sqlite/targets_sql.h"
#include "store/target.h"

#include <stdlib.h>

/* ---- walking ------------------------------------------------------------------------------- */

/* The listed names in their order. What is not a target is passed over. */
static weir_status walk_names(sqlite_conn *conn, sqlite_walk *walk, weir_str *scanned_to,
                              weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    weir_status status = WEIR_OK;
    weir_str *sorted = weir__calloc(filter->names_count, sizeof *sorted);
    if (sorted == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu names", filter->names_count);
    }
    for (size_t i = 0; i < filter->names_count; i++) {
        sorted[i] = filter->names[i];
    }
    const size_t count = weir__names_sort(sorted, filter->names_count);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        int64_t id = 0;
        bool found = false;
        if (weir__str_compare(sorted[i], *scanned_to) <= 0) {
            continue; /* before the walk */
        }
        if (weir__sqlite_ids_count(&walk->ids) >= walk->limit) {
            walk->more = true;
            break;
        }
        *scanned_to = sorted[i];
        status = weir__sqlite_get_by_text(conn, sql_target_by_name, sorted[i], &found, &id, err);
        if (status == WEIR_OK && found) {
            status = weir__sqlite_ids_add(&walk->ids, id, err);
        }
    }
    weir__free(sorted);
    return status;
}

static weir_status has_source(sqlite_conn *conn, int64_t target, const store_pattern *source,
                              bool *has, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_walk_sources, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    *has = false;
    while (!*has && weir__cursor_next(&cursor)) {
        *has = weir__pattern_matches(source, weir__cursor_text(&cursor, 0));
    }
    return weir__cursor_end(&cursor);
}

/* Whether a row of a walk is accepted. */
static bool target_accepts(const store_target_filter *filter, sqlite_cursor *cursor)
{
    bool accepted = true;
    if (!weir__target_accepts(filter, weir__cursor_text(cursor, 1), weir__cursor_text(cursor, 2))) {
        return false;
    }
    if (filter->source != NULL) {
        weir__cursor_fail(cursor, has_source(cursor->conn, weir__cursor_i64(cursor, 0),
                                             filter->source, &accepted, cursor->err));
    }
    return accepted;
}

/* `last`: the last name looked at. */
static weir_status walk_range(sqlite_conn *conn, sqlite_walk *walk, weir_buffer *last,
                              weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    size_t looked = 0;
    sqlite_cursor cursor =
        weir__cursor_open(conn, filter->blocked ? sql_walk_blocked : sql_walk_all, err);
    weir__cursor_bind_text(&cursor, 1, weir__target_range(filter, walk->after));
    while (weir__cursor_next(&cursor)) {
        const weir_str name = weir__cursor_text(&cursor, 1);
        if (weir__str_equal(name, walk->after)) {
            continue; /* the range is inclusive, the walk is not */
        }
        if (weir__target_is_beyond(filter, name)) {
            break;
        }
        if (looked >= walk->looked_max || weir__sqlite_ids_count(&walk->ids) >= walk->limit) {
            walk->more = true;
            break;
        }
        looked++;
        weir__buffer_clear(last);
        weir__cursor_collect(&cursor, last, name.ptr, name.len);
        if (target_accepts(filter, &cursor)) {
            weir__cursor_fail(&cursor,
                              weir__sqlite_ids_add(&walk->ids, weir__cursor_i64(&cursor, 0), err));
        }
    }
    return weir__cursor_end(&cursor);
}

weir_status weir__sqlite_walk(sqlite_conn *conn, sqlite_walk *walk, weir_arena *arena,
                              weir_error *err)
{
    weir_buffer last = { 0 };
    weir_str to = walk->after;
    weir_status status = WEIR_OK;
    walk->more = false;
    if (walk->filter->names_count > 0) {
        status = walk_names(conn, walk, &to, err);
    } else {
        status = walk_range(conn, walk, &last, err);
        if (last.len > 0) {
            to = (weir_str){ .ptr = last.ptr, .len = last.len };
        }
    }
    if (status == WEIR_OK) {
        walk->scanned_to.ptr = weir__arena_copy(arena, to.len == 0 ? "" : to.ptr, to.len);
        walk->scanned_to.len = to.len;
        if (walk->scanned_to.ptr == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a target's name");
        }
    }
    weir__buffer_free(&last);
    return status;
}

/* ---- listing ------------------------------------------------------------------------------- */

static void read_target_row(sqlite_cursor *cursor, const sqlite_times *now, weir_arena *arena,
                            store_target *t)
{
    const int64_t until_us = weir__cursor_i64(cursor, 10);
    const bool live = !weir__cursor_null(cursor, 9) && until_us > now->machine_us;
    const int64_t due_us = weir__cursor_i64(cursor, 11); /* NULL reads as 0 */
    *t = (store_target){
        .id = weir__cursor_i64(cursor, 0),
        .name = weir__cursor_copy(cursor, 1, arena),
        .lane = weir__cursor_copy(cursor, 2, arena),
        .priority = weir__cursor_i64(cursor, 3),
        .prioritized = weir__cursor_bool(cursor, 4),
        .watermark = weir__cursor_i64(cursor, 5),
        .behind = weir__cursor_bool(cursor, 6),
        .fence = weir__cursor_i64(cursor, 7),
        .lost = weir__cursor_i64(cursor, 8),
        .leased_until_us = live ? weir__sqlite_held_until(now, until_us) : 0,
        .due_us = due_us > now->store_us ? due_us : 0,
        .blocked = !weir__cursor_null(cursor, 12),
        .blocked_us = weir__cursor_i64(cursor, 12),
        .error = weir__cursor_copy(cursor, 13, arena),
        .event = weir__cursor_i64(cursor, 14),
        .reaction = weir__cursor_copy(cursor, 15, arena),
        .attempts = weir__cursor_i64(cursor, 16),
        .paused = weir__cursor_bool(cursor, 17),
        .paused_by = weir__cursor_copy(cursor, 18, arena),
    };
    if (live) {
        t->holder = weir__cursor_copy(cursor, 9, arena);
    }
    t->state = weir__target_state(t, weir__cursor_bool(cursor, 19), now->store_us);
}

/* Fills subscriptions and mark. */
static weir_status read_subscriptions(sqlite_conn *conn, weir_arena *arena, store_target *t,
                                      weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_target_subscriptions, err);
    weir__cursor_bind_i64(&cursor, 1, t->id);
    while (weir__cursor_next(&cursor)) {
        const store_subscription sub = {
            .reaction = weir__cursor_i64(&cursor, 0),
            .reaction_name = weir__cursor_copy(&cursor, 1, arena),
            .source = weir__cursor_copy(&cursor, 2, arena),
            .value = weir__cursor_copy(&cursor, 3, arena),
            .at = weir__cursor_i64(&cursor, 4),
            .mark = weir__cursor_i64(&cursor, 5),
            .retries = weir__cursor_i64(&cursor, 6),
            .priority = weir__cursor_i64(&cursor, 7),
            .retired = weir__cursor_bool(&cursor, 8),
            .routed = weir__cursor_i64(&cursor, 9),
        };
        weir__cursor_collect(&cursor, &found, &sub, sizeof sub);
        t->mark = sub.mark > t->mark ? sub.mark : t->mark;
    }
    return weir__cursor_keep(&cursor, &found, sizeof *t->subscriptions, arena, &t->subscriptions,
                             &t->subscriptions_count);
}

static weir_status read_target(sqlite_conn *conn, int64_t id, const sqlite_times *now,
                               weir_arena *arena, store_target *out, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_target_read, err);
    weir__cursor_bind_i64(&cursor, 1, id);
    if (weir__cursor_next(&cursor)) {
        read_target_row(&cursor, now, arena, out);
    } else if (cursor.status == WEIR_OK) {
        weir__cursor_fail(&cursor,
                          weir__fail(err, WEIR_ECORRUPT, "no target with id %lld", (long long)id));
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK ? read_subscriptions(conn, arena, out, err) : status;
}

static weir_status targets_in(sqlite_store *s, sqlite_conn *conn, const store_targets_query *q,
                              store_targets_chunk *chunk, weir_error *err)
{
    sqlite_walk walk = { .filter = &q->filter,
                         .after = q->after,
                         .limit = weir__chunk_limit(q->limit, STORE_CHUNK_NAMES_MAX),
                         .looked_max = STORE_CHUNK_NAMES_MAX };
    sqlite_times now = { 0 };
    store_target *targets = NULL;
    size_t count = 0;
    weir_status status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_walk(conn, &walk, &chunk->arena, err);
    }
    if (status != WEIR_OK) {
        goto out;
    }
    count = weir__sqlite_ids_count(&walk.ids);
    targets = weir__arena_alloc(&chunk->arena, (count + 1) * sizeof *targets);
    if (targets == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate %zu targets", count);
        goto out;
    }
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = read_target(conn, weir__sqlite_ids_get(&walk.ids, i), &now, &chunk->arena,
                             &targets[i], err);
    }
    if (status == WEIR_OK) {
        chunk->targets = targets;
        chunk->targets_count = count;
        chunk->scanned_to = walk.scanned_to;
        chunk->more = walk.more;
    }
out:
    weir__buffer_free(&walk.ids.bytes);
    return status;
}

weir_status weir__sqlite_targets(weir_store *base, const store_targets_query *q,
                                 store_targets_chunk *chunk, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    weir__arena_reset(&chunk->arena);
    chunk->targets = NULL;
    chunk->targets_count = 0;
    chunk->scanned_to = (weir_str){ 0 };
    chunk->more = false;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status == WEIR_OK) {
        status = targets_in(s, conn, q, chunk, err);
        weir__sqlite_read_end(s, conn);
    }
    return status;
}

/* ---- lanes --------------------------------------------------------------------------------- */

static weir_status read_lanes(sqlite_conn *conn, const sqlite_times *now, store_lane_list *list,
                              weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_lane_list, err);
    weir__cursor_bind_i64(&cursor, 1, now->machine_us);
    weir__cursor_bind_i64(&cursor, 2, now->store_us);
    while (weir__cursor_next(&cursor)) {
        const store_lane lane = { .lane = weir__cursor_copy(&cursor, 0, &list->arena),
                                  .paused = weir__cursor_bool(&cursor, 1),
                                  .paused_by = weir__cursor_copy(&cursor, 2, &list->arena),
                                  .targets = weir__cursor_i64(&cursor, 3),
                                  .ready = weir__cursor_i64(&cursor, 4),
                                  .leased = weir__cursor_i64(&cursor, 5),
                                  .blocked = weir__cursor_i64(&cursor, 6),
                                  .retrying = weir__cursor_i64(&cursor, 7),
                                  .deferred = weir__cursor_i64(&cursor, 8),
                                  .lag = weir__cursor_i64(&cursor, 9),
                                  .oldest_us = weir__cursor_i64(&cursor, 10) };
        weir__cursor_collect(&cursor, &found, &lane, sizeof lane);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *list->lanes, &list->arena, &list->lanes,
                             &list->lanes_count);
}

weir_status weir__sqlite_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };

    weir__arena_reset(&list->arena);
    list->lanes = NULL;
    list->lanes_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = read_lanes(conn, &now, list, err);
    }
    weir__sqlite_read_end(s, conn);
    return status;
}

static weir_status lane_pause_in(sqlite_conn *conn, weir_str lane, bool paused, weir_str by,
                                 bool *changed, weir_error *err)
{
    bool found = false;
    int64_t is = 0;
    const weir_status status =
        weir__sqlite_get_by_text(conn, sql_lane_read, lane, &found, &is, err);
    *changed = status == WEIR_OK && (is != 0) != paused;
    if (!*changed) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_lane_set, err);
    weir__cursor_bind_text(&cursor, 1, lane);
    weir__cursor_bind_i64(&cursor, 2, paused ? 1 : 0);
    weir__cursor_bind_text(&cursor, 3, paused ? by : (weir_str){ 0 });
    return weir__cursor_run(&cursor);
}

weir_status weir__sqlite_lane_pause(weir_store *base, weir_str lane, bool paused, weir_str by,
                                    bool *changed, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    bool did = false;
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = lane_pause_in(conn, lane, paused, by, &did, err);
    status = weir__sqlite_write_end(s, status, did, err);
    if (status == WEIR_OK && changed != NULL) {
        *changed = did;
    }
    return status;
}

/* ---- poll ---------------------------------------------------------------------------------- */

/* The single integer of a statement with parameters (lane, now), of the clock it goes by. */
static weir_status poll_value(sqlite_conn *conn, const char *sql, weir_str lane, int64_t now_us,
                              bool *found, int64_t *value, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_text(&cursor, 1, lane);
    if (sqlite3_bind_parameter_count(cursor.stmt) > 1) {
        weir__cursor_bind_i64(&cursor, 2, now_us);
    }
    return weir__cursor_get_int(&cursor, found, value);
}

static int64_t time_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static weir_status poll_lane(sqlite_conn *conn, weir_str lane, bool paused, const sqlite_times *now,
                             store_poll *poll, weir_error *err)
{
    bool found = false;
    int64_t value = 0;
    if (paused) {
        return WEIR_OK; /* nothing of it can be leased, now or when it is due */
    }
    weir_status status =
        poll_value(conn, sql_poll_lease_end, lane, now->machine_us, &found, &value, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (found) {
        poll->lease_end_us = time_least(poll->lease_end_us, weir__sqlite_held_until(now, value));
    }
    status = poll_value(conn, sql_poll_due_next, lane, now->store_us, &found, &value, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (found) {
        poll->due_us = time_least(poll->due_us, value);
    }
    status = poll_value(conn, sql_poll_due, lane, now->store_us, &found, &value, err);
    if (status != WEIR_OK) {
        return status;
    }
    poll->ready = poll->ready || found;
    status = poll_value(conn, sql_poll_ready, lane, now->machine_us, &found, &value, err);
    poll->ready = poll->ready || (status == WEIR_OK && found);
    return status;
}

static weir_status poll_in(sqlite_conn *conn, const sqlite_times *now, store_poll *poll,
                           weir_error *err)
{
    bool found = false;
    weir_status status =
        weir__sqlite_get_int(conn, sql_poll_routed, NULL, 0, &found, &poll->routed_least, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_get_int(conn, sql_poll_router_end, &now->machine_us, 1, &found,
                                      &poll->router_end_us, err);
        poll->router_end_us = weir__sqlite_held_until(now, poll->router_end_us);
    }
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_poll_lanes, err);
    weir__cursor_bind_text(&cursor, 1, poll->lane);
    while (weir__cursor_next(&cursor)) {
        weir__cursor_fail(&cursor, poll_lane(conn, weir__cursor_text(&cursor, 0),
                                             weir__cursor_bool(&cursor, 1), now, poll, err));
    }
    return weir__cursor_end(&cursor);
}

weir_status weir__sqlite_poll(weir_store *base, store_poll *poll, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    store_poll result = { .lane = poll->lane,
                          .routed_least = INT64_MAX,
                          .due_us = INT64_MAX,
                          .lease_end_us = INT64_MAX,
                          .router_end_us = INT64_MAX };
    sqlite_times now = { 0 };
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    result.head = conn->row->head;
    result.safe = conn->row->head;
    status = weir__sqlite_read_times(s, conn, &now, err);
    result.now_us = now.store_us;
    if (status == WEIR_OK) {
        status = weir__sqlite_epoch(conn, result.epoch, sizeof result.epoch, err);
    }
    if (status == WEIR_OK) {
        memcpy(result.log, result.epoch, sizeof result.log);
        status = poll_in(conn, &now, &result, err);
    }
    weir__sqlite_read_end(s, conn);
    if (status == WEIR_OK) {
        result.lease_end_us = result.ready ? INT64_MAX : result.lease_end_us;
        *poll = result;
    }
    return status;
}

weir_status weir__sqlite_stats_targets(sqlite_store *s, sqlite_conn *conn, store_stats *out,
                                       weir_error *err)
{
    (void)s;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_stats_targets, err);
    if (weir__cursor_next(&cursor)) {
        out->targets = weir__cursor_i64(&cursor, 0);
        out->blocked = weir__cursor_i64(&cursor, 1);
        out->parked = weir__cursor_i64(&cursor, 2);
    }
    return weir__cursor_end(&cursor);
}
