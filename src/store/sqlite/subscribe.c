/* subscribe.c - targets are made by the first subscription to them, and stay for ever.
 *
 * INVARIANT  A target's lane is fixed when it is made, and every lane of a target is in weir_lanes.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/judge.h"
#include "store/sqlite/subscribe_sql.h"
#include "store/sqlite/targets.h"

static weir_status target_add(sqlite_conn *conn, weir_str name, weir_str lane, int64_t *target,
                              weir_error *err)
{
    bool found = false;
    sqlite_cursor ensure = weir__cursor_open(conn, sql_lane_ensure, err);
    weir__cursor_bind_text(&ensure, 1, lane);
    const weir_status status = weir__cursor_run(&ensure);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite_cursor insert = weir__cursor_open(conn, sql_target_insert, err);
    weir__cursor_bind_text(&insert, 1, name);
    weir__cursor_bind_text(&insert, 2, lane);
    return weir__cursor_get_int(&insert, &found, target);
}

weir_status weir__sqlite_target_find(sqlite_conn *conn, weir_str name, weir_str lane,
                                     int64_t *target, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_target_by_name, err);
    weir__cursor_bind_text(&cursor, 1, name);
    *target = 0;
    if (weir__cursor_next(&cursor)) {
        *target = weir__cursor_i64(&cursor, 0);
        weir__cursor_fail(&cursor,
                          weir__lane_judge(name, weir__cursor_text(&cursor, 1), lane, err));
    }
    return weir__cursor_end(&cursor);
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
