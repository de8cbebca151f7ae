/* subscribe.c - targets are made by the first subscription to them, and stay for ever.
 *
 * INVARIANT  A target's lane is fixed when it is made, and every lane of a target is in weir_lanes.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/subscribe_sql.h"
#include "store/sqlite/targets.h"

static weir_status target_add(sqlite_conn *conn, weir_str name, weir_str lane, int64_t *target,
                              weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_lane_ensure, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, lane);
    status = weir__sqlite_run(conn, stmt, err);
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_target_insert, &stmt, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, name);
    weir__sqlite_bind_str(stmt, 2, lane);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK) {
        WEIR_ASSERT(row);
        *target = sqlite3_column_int64(stmt, 0);
    }
    weir__sqlite_done(stmt);
    return status;
}

weir_status weir__sqlite_target_find(sqlite_conn *conn, weir_str name, weir_str lane,
                                     int64_t *target, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_target_by_name, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__sqlite_bind_str(stmt, 1, name);
    status = weir__sqlite_step(conn, stmt, &row, err);
    *target = 0;
    if (status == WEIR_OK && row) {
        const weir_str has = weir__sqlite_column_str(stmt, 1);
        *target = sqlite3_column_int64(stmt, 0);
        if (!weir__str_equal(has, lane)) {
            status =
                weir__fail(err, WEIR_EINVAL, "target \"%.*s\" is in lane \"%.*s\", not in \"%.*s\"",
                           (int)name.len, name.ptr, (int)has.len, has.ptr, (int)lane.len, lane.ptr);
        }
    }
    weir__sqlite_done(stmt);
    return status;
}

weir_status weir__sqlite_target_ensure(sqlite_conn *conn, weir_str name, weir_str lane,
                                       int64_t *target, weir_error *err)
{
    weir_status status = weir__sqlite_target_find(conn, name, lane, target, err);
    if (status == WEIR_OK && *target == 0) {
        status = target_add(conn, name, lane, target, err);
    }
    return status;
}

static weir_status subscribe_in(sqlite_conn *conn, const store_subscribe *sub, int64_t *target,
                                weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool found = false;
    int64_t one = 0;
    weir_status status =
        weir__sqlite_get_int(conn, sql_subscribe_reaction, &sub->reaction, 1, &found, &one, err);
    if (status == WEIR_OK && !found) {
        status =
            weir__fail(err, WEIR_ENOTFOUND, "no reaction with id %lld", (long long)sub->reaction);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_target_ensure(conn, sub->target, sub->lane, target, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_statement(conn, sql_subscribe, &stmt, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, *target);
    sqlite3_bind_int64(stmt, 2, sub->reaction);
    sqlite3_bind_int64(stmt, 3, sub->at);
    sqlite3_bind_int64(stmt, 4, sub->priority);
    weir__sqlite_bind_str(stmt, 5, sub->source);
    weir__sqlite_bind_str(stmt, 6, sub->value);
    status = weir__sqlite_run(conn, stmt, err);
    return status == WEIR_OK ? weir__sqlite_derive(conn, *target, NULL, err) : status;
}

weir_status weir__sqlite_subscribe(weir_store *base, const store_subscribe *sub, int64_t *target,
                                   weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0, id = 0;

    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = subscribe_in(conn, sub, &id, err);
    status = weir__sqlite_write_end(s, status, false, err);
    if (status == WEIR_OK && target != NULL) {
        *target = id;
    }
    return status;
}
