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

#include <stdlib.h>

/* ---- walking ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return weir__str_compare(*(const weir_str *)a, *(const weir_str *)b);
}

/* The listed names in their order. What is not a target is passed over. */
static weir_status walk_names(sqlite_conn *conn, sqlite_walk *walk, weir_str *scanned_to,
                              weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    sqlite3_stmt *stmt = NULL;
    weir_status status = WEIR_OK;
    bool row = false;
    weir_str *sorted = weir__calloc(filter->names_count, sizeof *sorted);
    if (sorted == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu names", filter->names_count);
    }
    for (size_t i = 0; i < filter->names_count; i++) {
        sorted[i] = filter->names[i];
    }
    qsort(sorted, filter->names_count, sizeof *sorted, compare_names);
    for (size_t i = 0; i < filter->names_count && status == WEIR_OK; i++) {
        if (weir__str_compare(sorted[i], *scanned_to) <= 0) {
            continue; /* before the walk, or a name given twice */
        }
        if (weir__sqlite_ids_count(&walk->ids) >= walk->limit) {
            walk->more = true;
            break;
        }
        *scanned_to = sorted[i];
        status = weir__sqlite_statement(conn, sql_target_by_name, &stmt, err);
        if (status == WEIR_OK) {
            weir__sqlite_bind_str(stmt, 1, sorted[i]);
            status = weir__sqlite_step(conn, stmt, &row, err);
        }
        if (status == WEIR_OK && row) {
            status = weir__sqlite_ids_add(&walk->ids, sqlite3_column_int64(stmt, 0), err);
        }
        weir__sqlite_done(stmt);
    }
    weir__free(sorted);
    return status;
}

static weir_status has_source(sqlite_conn *conn, int64_t target, const store_pattern *source,
                              bool *has, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    *has = false;
    weir_status status = weir__sqlite_statement(conn, sql_walk_sources, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    while (!*has) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        *has = weir__pattern_matches(source, weir__sqlite_column_str(stmt, 0));
    }
    weir__sqlite_done(stmt);
    return status;
}

/* Whether a row of a walk is accepted. */
static weir_status accepts(sqlite_conn *conn, const store_target_filter *filter,
                           sqlite3_stmt *cursor, bool *accepted, weir_error *err)
{
    *accepted = false;
    if ((filter->match != NULL &&
         !weir__pattern_matches(filter->match, weir__sqlite_column_str(cursor, 1))) ||
        (filter->lane.len > 0 &&
         !weir__str_equal(filter->lane, weir__sqlite_column_str(cursor, 2)))) {
        return WEIR_OK;
    }
    *accepted = true;
    if (filter->source == NULL) {
        return WEIR_OK;
    }
    return has_source(conn, sqlite3_column_int64(cursor, 0), filter->source, accepted, err);
}

/* Whether names from here on can match: they come in order, and a prefix is a range. */
static bool beyond(const store_target_filter *filter, weir_str name)
{
    if (filter->match == NULL ||
        (filter->match->kind != PATTERN_PREFIX && filter->match->kind != PATTERN_EXACT)) {
        return false;
    }
    return weir__str_compare(name, filter->match->name) > 0 &&
           (filter->match->kind == PATTERN_EXACT ||
            !weir__str_starts_with(name, filter->match->name));
}

/* `last`: the last name looked at. */
static weir_status walk_range(sqlite_conn *conn, sqlite_walk *walk, weir_buffer *last,
                              weir_error *err)
{
    const store_target_filter *filter = walk->filter;
    sqlite3_stmt *cursor = NULL;
    size_t looked = 0;
    bool row = false, accepted = false;
    weir_str from = walk->after;
    if (filter->match != NULL &&
        (filter->match->kind == PATTERN_PREFIX || filter->match->kind == PATTERN_EXACT) &&
        weir__str_compare(filter->match->name, from) > 0) {
        from = filter->match->name;
    }
    weir_status status = weir__sqlite_statement(
        conn, filter->blocked ? sql_walk_blocked : sql_walk_all, &cursor, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(cursor, 1, from);
    while (status == WEIR_OK) {
        status = weir__sqlite_step(conn, cursor, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        const weir_str name = weir__sqlite_column_str(cursor, 1);
        if (weir__str_equal(name, walk->after)) {
            continue; /* the range is inclusive, the walk is not */
        }
        if (beyond(filter, name)) {
            break;
        }
        if (looked >= walk->looked_max || weir__sqlite_ids_count(&walk->ids) >= walk->limit) {
            walk->more = true;
            break;
        }
        looked++;
        weir__buffer_clear(last);
        if (!weir__buffer_add(last, name.ptr, name.len)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a target's name");
            break;
        }
        status = accepts(conn, filter, cursor, &accepted, err);
        if (status == WEIR_OK && accepted) {
            status = weir__sqlite_ids_add(&walk->ids, sqlite3_column_int64(cursor, 0), err);
        }
    }
    weir__sqlite_done(cursor);
    return status;
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

static store_target_state state_of(const store_target *t, bool lane_paused)
{
    if (t->leased_until_us != 0) {
        return STORE_TARGET_LEASED;
    }
    if (t->blocked) {
        return STORE_TARGET_BLOCKED;
    }
    if (t->paused || lane_paused) {
        return STORE_TARGET_PAUSED;
    }
    if (t->due_us != 0) {
        return STORE_TARGET_DEFERRED;
    }
    return t->behind ? STORE_TARGET_READY : STORE_TARGET_IDLE;
}

static weir_status read_target_row(sqlite3_stmt *stmt, const sqlite_times *now, weir_arena *arena,
                                   store_target *t, weir_error *err)
{
    const int64_t until_us = sqlite3_column_int64(stmt, 10);
    const bool live = sqlite3_column_type(stmt, 9) != SQLITE_NULL && until_us > now->machine_us;
    const int64_t due_us = sqlite3_column_int64(stmt, 11); /* NULL reads as 0 */
    *t = (store_target){
        .id = sqlite3_column_int64(stmt, 0),
        .name = weir__sqlite_column_copy(stmt, 1, arena),
        .lane = weir__sqlite_column_copy(stmt, 2, arena),
        .priority = sqlite3_column_int64(stmt, 3),
        .prioritized = sqlite3_column_int(stmt, 4) != 0,
        .watermark = sqlite3_column_int64(stmt, 5),
        .behind = sqlite3_column_int(stmt, 6) != 0,
        .fence = sqlite3_column_int64(stmt, 7),
        .lost = sqlite3_column_int64(stmt, 8),
        .leased_until_us = live ? weir__sqlite_held_until(now, until_us) : 0,
        .due_us = due_us > now->store_us ? due_us : 0,
        .blocked = sqlite3_column_type(stmt, 12) != SQLITE_NULL,
        .blocked_us = sqlite3_column_int64(stmt, 12),
        .error = weir__sqlite_column_copy(stmt, 13, arena),
        .event = sqlite3_column_int64(stmt, 14),
        .reaction = weir__sqlite_column_copy(stmt, 15, arena),
        .attempts = sqlite3_column_int64(stmt, 16),
        .paused = sqlite3_column_int(stmt, 17) != 0,
        .paused_by = weir__sqlite_column_copy(stmt, 18, arena),
    };
    if (live) {
        t->holder = weir__sqlite_column_copy(stmt, 9, arena);
    }
    t->state = state_of(t, sqlite3_column_int(stmt, 19) != 0);
    if (t->name.ptr == NULL || t->lane.ptr == NULL || t->error.ptr == NULL ||
        t->reaction.ptr == NULL || t->paused_by.ptr == NULL || (live && t->holder.ptr == NULL)) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a target");
    }
    return WEIR_OK;
}

/* Fills subscriptions and mark. */
static weir_status read_subscriptions(sqlite_conn *conn, weir_arena *arena, store_target *t,
                                      weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    weir_buffer found = { 0 };
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_target_subscriptions, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, t->id);
    for (;;) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        const store_subscription sub = {
            .reaction = sqlite3_column_int64(stmt, 0),
            .reaction_name = weir__sqlite_column_copy(stmt, 1, arena),
            .source = weir__sqlite_column_copy(stmt, 2, arena),
            .value = weir__sqlite_column_copy(stmt, 3, arena),
            .at = sqlite3_column_int64(stmt, 4),
            .mark = sqlite3_column_int64(stmt, 5),
            .retries = sqlite3_column_int64(stmt, 6),
            .priority = sqlite3_column_int64(stmt, 7),
            .retired = sqlite3_column_int(stmt, 8) != 0,
            .routed = sqlite3_column_int64(stmt, 9),
        };
        if (sub.reaction_name.ptr == NULL || sub.source.ptr == NULL || sub.value.ptr == NULL ||
            !weir__buffer_add(&found, &sub, sizeof sub)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a subscription");
            break;
        }
        t->mark = sub.mark > t->mark ? sub.mark : t->mark;
    }
    weir__sqlite_done(stmt);
    if (status == WEIR_OK && found.len > 0) {
        store_subscription *copy = weir__arena_alloc(arena, found.len);
        if (copy == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy subscriptions");
        } else {
            memcpy(copy, found.ptr, found.len);
            t->subscriptions = copy;
            t->subscriptions_count = found.len / sizeof *copy;
        }
    }
    weir__buffer_free(&found);
    return status;
}

static weir_status read_target(sqlite_conn *conn, int64_t id, const sqlite_times *now,
                               weir_arena *arena, store_target *out, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_target_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, id);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && !row) {
        status = weir__fail(err, WEIR_ECORRUPT, "no target with id %lld", (long long)id);
    } else if (status == WEIR_OK) {
        status = read_target_row(stmt, now, arena, out, err);
    }
    weir__sqlite_done(stmt);
    return status == WEIR_OK ? read_subscriptions(conn, arena, out, err) : status;
}

static weir_status targets_in(sqlite_store *s, sqlite_conn *conn, const store_targets_query *q,
                              store_targets_chunk *chunk, weir_error *err)
{
    sqlite_walk walk = { .filter = &q->filter,
                         .after = q->after,
                         .limit = (uint64_t)q->limit < STORE_CHUNK_EVENTS_MAX
                                      ? (size_t)q->limit
                                      : STORE_CHUNK_EVENTS_MAX,
                         .looked_max = STORE_CHUNK_EVENTS_MAX };
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

static weir_status read_lanes(sqlite_conn *conn, const sqlite_times *now, weir_arena *arena,
                              weir_buffer *found, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_lane_list, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, now->machine_us);
    sqlite3_bind_int64(stmt, 2, now->store_us);
    for (;;) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        const store_lane lane = { .lane = weir__sqlite_column_copy(stmt, 0, arena),
                                  .paused = sqlite3_column_int(stmt, 1) != 0,
                                  .paused_by = weir__sqlite_column_copy(stmt, 2, arena),
                                  .targets = sqlite3_column_int64(stmt, 3),
                                  .ready = sqlite3_column_int64(stmt, 4),
                                  .leased = sqlite3_column_int64(stmt, 5),
                                  .blocked = sqlite3_column_int64(stmt, 6),
                                  .retrying = sqlite3_column_int64(stmt, 7),
                                  .deferred = sqlite3_column_int64(stmt, 8),
                                  .lag = sqlite3_column_int64(stmt, 9),
                                  .oldest_us = sqlite3_column_int64(stmt, 10) };
        if (lane.lane.ptr == NULL || lane.paused_by.ptr == NULL ||
            !weir__buffer_add(found, &lane, sizeof lane)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a lane");
            break;
        }
    }
    weir__sqlite_done(stmt);
    return status;
}

weir_status weir__sqlite_lanes(weir_store *base, store_lane_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    weir_buffer found = { 0 };
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
        status = read_lanes(conn, &now, &list->arena, &found, err);
    }
    weir__sqlite_read_end(s, conn);
    if (status == WEIR_OK && found.len > 0) {
        store_lane *lanes = weir__arena_alloc(&list->arena, found.len);
        if (lanes == NULL) {
            status = weir__fail(err, WEIR_ENOMEM, "could not allocate the list of lanes");
        } else {
            memcpy(lanes, found.ptr, found.len);
            list->lanes = lanes;
            list->lanes_count = found.len / sizeof *lanes;
        }
    }
    weir__buffer_free(&found);
    return status;
}

static weir_status lane_pause_in(sqlite_conn *conn, weir_str lane, bool paused, weir_str by,
                                 bool *changed, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_lane_read, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, lane);
    status = weir__sqlite_step(conn, stmt, &row, err);
    const bool is = status == WEIR_OK && row && sqlite3_column_int(stmt, 0) != 0;
    weir__sqlite_done(stmt);
    *changed = status == WEIR_OK && is != paused;
    if (!*changed) {
        return status;
    }
    status = weir__sqlite_statement(conn, sql_lane_set, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, lane);
    sqlite3_bind_int(stmt, 2, paused ? 1 : 0);
    weir__sqlite_bind_str(stmt, 3, paused ? by : (weir_str){ 0 });
    return weir__sqlite_run(conn, stmt, err);
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
    sqlite3_stmt *stmt = NULL;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, lane);
    if (sqlite3_bind_parameter_count(stmt) > 1) {
        sqlite3_bind_int64(stmt, 2, now_us);
    }
    status = weir__sqlite_step(conn, stmt, found, err);
    if (status == WEIR_OK && *found) {
        *value = sqlite3_column_int64(stmt, 0);
    }
    weir__sqlite_done(stmt);
    return status;
}

static int64_t least(int64_t a, int64_t b)
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
        poll->lease_end_us = least(poll->lease_end_us, weir__sqlite_held_until(now, value));
    }
    status = poll_value(conn, sql_poll_due_next, lane, now->store_us, &found, &value, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (found) {
        poll->due_us = least(poll->due_us, value);
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

/* An aggregate that is NULL when there was nothing to aggregate. */
static weir_status poll_least(sqlite_conn *conn, const char *sql, int64_t now_us, int64_t *out,
                              weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (sqlite3_bind_parameter_count(stmt) > 0) {
        sqlite3_bind_int64(stmt, 1, now_us);
    }
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && row && sqlite3_column_type(stmt, 0) != SQLITE_NULL) {
        *out = sqlite3_column_int64(stmt, 0);
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status poll_in(sqlite_conn *conn, const sqlite_times *now, store_poll *poll,
                           weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = poll_least(conn, sql_poll_routed, 0, &poll->routed_least, err);
    if (status == WEIR_OK) {
        status = poll_least(conn, sql_poll_router_end, now->machine_us, &poll->router_end_us, err);
        poll->router_end_us = weir__sqlite_held_until(now, poll->router_end_us);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_poll_lanes, &stmt, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, poll->lane);
    for (;;) {
        status = weir__sqlite_step(conn, stmt, &row, err);
        if (status != WEIR_OK || !row) {
            break;
        }
        status = poll_lane(conn, weir__sqlite_column_str(stmt, 0), sqlite3_column_int(stmt, 1) != 0,
                           now, poll, err);
        if (status != WEIR_OK) {
            break;
        }
    }
    weir__sqlite_done(stmt);
    return status;
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
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    (void)s;
    weir_status status = weir__sqlite_statement(conn, sql_stats_targets, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && row) {
        out->targets = sqlite3_column_int64(stmt, 0);
        out->blocked = sqlite3_column_int64(stmt, 1);
        out->parked = sqlite3_column_int64(stmt, 2);
    }
    weir__sqlite_done(stmt);
    return status;
}
