/* route.c - one step of routing: marks raised, work rows and parks written, `routed` advanced.
 *
 * INVARIANTS
 *   (1) Marks and `routed` move in one transaction, which began where the reading began: an event
 *       is routed once for each reaction, whoever reads the log how often.
 *   (2) A subscription's `at` moves only when it has no work (at = mark), and never past the first
 *       event that was found: no event is stepped over.
 *   (3) Re-reading is over exactly when reread_to is 0; then no subscription counts as reset.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/route_sql.h"
#include "store/sqlite/targets.h"

/* A step together with what its reaction's row says. */
typedef struct route_reaction {
    int64_t id;
    int64_t reread_to; /* 0: not re-reading */
    store_rule rule;
} route_reaction;

typedef struct route_subscription {
    bool found, was_reset;
    int64_t at, mark, priority;
} route_subscription;

/* The locking and checking of one step. On SQLite the transaction is the lock. */
static weir_status check_step(sqlite_conn *conn, const store_route_step *step, route_reaction *out,
                              weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    weir_status status = weir__sqlite_statement(conn, sql_route_reaction, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, step->reaction);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status != WEIR_OK) {
        goto out;
    }
    if (!row) {
        status =
            weir__fail(err, WEIR_ECONFLICT, "no reaction with id %lld", (long long)step->reaction);
        goto out;
    }
    const weir_str name = weir__sqlite_column_str(stmt, 0);
    const int64_t number = sqlite3_column_int64(stmt, 1);
    const int64_t routed = sqlite3_column_int64(stmt, 2);
    if (sqlite3_column_int(stmt, 4) != 0) {
        status = weir__fail(err, WEIR_ECONFLICT, "reaction \"%.*s\" is retired", (int)name.len,
                            name.ptr);
    } else if (number != step->number) {
        status = weir__fail(err, WEIR_ECONFLICT,
                            "reaction \"%.*s\" has definition %lld, routed with %lld",
                            (int)name.len, name.ptr, (long long)number, (long long)step->number);
    } else if (routed != step->from) {
        status =
            weir__fail(err, WEIR_ECONFLICT, "reaction \"%.*s\" is routed up to %lld, expected %lld",
                       (int)name.len, name.ptr, (long long)routed, (long long)step->from);
    }
    *out = (route_reaction){ .id = step->reaction,
                             .reread_to = sqlite3_column_int64(stmt, 3),
                             .rule = (store_rule)sqlite3_column_int(stmt, 5) };
out:
    weir__sqlite_done(stmt);
    return status;
}

static weir_status find_subscription(sqlite_conn *conn, int64_t target, int64_t reaction,
                                     route_subscription *out, weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    bool row = false;
    *out = (route_subscription){ 0 };
    if (target == 0) {
        return WEIR_OK;
    }
    weir_status status = weir__sqlite_statement(conn, sql_route_subscription, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    sqlite3_bind_int64(stmt, 2, reaction);
    status = weir__sqlite_step(conn, stmt, &row, err);
    if (status == WEIR_OK && row) {
        *out = (route_subscription){ .found = true,
                                     .at = sqlite3_column_int64(stmt, 0),
                                     .mark = sqlite3_column_int64(stmt, 1),
                                     .was_reset = sqlite3_column_int(stmt, 2) != 0,
                                     .priority = sqlite3_column_int64(stmt, 3) };
    }
    weir__sqlite_done(stmt);
    return status;
}

static weir_status write_subscription(sqlite_conn *conn, int64_t target, int64_t reaction,
                                      const store_mark *mark, const route_subscription *sub,
                                      weir_error *err)
{
    sqlite3_stmt *stmt = NULL;
    const char *sql = sub->found ? sql_route_mark : sql_route_subscribe;
    int64_t at = sub->at, new_mark = sub->mark;
    if (!sub->found) {
        at = mark->first - 1;
        new_mark = mark->last;
    } else if (at == new_mark && mark->first - 1 > at) {
        /* An idle subscription follows the log, or its target would look most lagging. */
        at = mark->first - 1;
    }
    if (mark->last > new_mark) {
        new_mark = mark->last;
    }
    weir_status status = weir__sqlite_statement(conn, sql, &stmt, err);
    if (status != WEIR_OK) {
        return status;
    }
    sqlite3_bind_int64(stmt, 1, target);
    sqlite3_bind_int64(stmt, 2, reaction);
    sqlite3_bind_int64(stmt, 3, at);
    sqlite3_bind_int64(stmt, 4, new_mark);
    sqlite3_bind_int64(stmt, 5, mark->priority);
    weir__sqlite_bind_str(stmt, 6, mark->source);
    weir__sqlite_bind_str(stmt, 7, mark->value);
    return weir__sqlite_run(conn, stmt, err);
}

/* Whether raising its mark leaves the target's row as it is: it was behind already, at the same
 * position and with the same priority. */
static bool target_stays(const route_subscription *sub, const store_mark *mark)
{
    return sub->found && sub->at < sub->mark && sub->priority == mark->priority;
}

/* One mark; the target is added to `touched` when its row may have to change. */
static weir_status raise_mark(sqlite_conn *conn, const route_reaction *reaction,
                              const store_mark *mark, sqlite_ids *touched, weir_error *err)
{
    int64_t target = 0;
    route_subscription sub = { 0 };
    weir_status status = weir__sqlite_target_find(conn, mark->target, mark->lane, &target, err);
    if (status == WEIR_OK) {
        status = find_subscription(conn, target, reaction->id, &sub, err);
    }
    if (status != WEIR_OK || (sub.found && mark->last <= sub.at)) {
        return status;
    }
    /* What is read again was routed before: everyone else has had it. */
    if (reaction->rule == STORE_RULE_WORK && mark->last <= reaction->reread_to && !sub.was_reset) {
        return WEIR_OK;
    }
    if (target == 0) {
        status = weir__sqlite_target_ensure(conn, mark->target, mark->lane, &target, err);
    }
    if (status == WEIR_OK) {
        status = write_subscription(conn, target, reaction->id, mark, &sub, err);
    }
    if (status == WEIR_OK && reaction->rule == STORE_RULE_WORK) {
        status = weir__sqlite_run_ints(conn, sql_route_work,
                                       (int64_t[]){ target, reaction->id, mark->last }, 3, err);
    }
    return status == WEIR_OK && !target_stays(&sub, mark)
               ? weir__sqlite_ids_add(touched, target, err)
               : status;
}

static weir_status advance(sqlite_conn *conn, const route_reaction *reaction,
                           const store_route_step *step, weir_error *err)
{
    int64_t reread_to = reaction->reread_to;
    weir_status status = WEIR_OK;
    if (reread_to != 0 && step->to >= reread_to) {
        reread_to = 0;
        status = weir__sqlite_run_ints(conn, sql_route_end_reread, &reaction->id, 1, err);
    }
    if (status == WEIR_OK) {
        status = weir__sqlite_run_ints(conn, sql_route_advance,
                                       (int64_t[]){ reaction->id, step->to, reread_to }, 3, err);
    }
    return status;
}

static weir_status route_in(sqlite_conn *conn, const store_route *r, route_reaction *reactions,
                            int64_t now_us, size_t *bad_mark, weir_error *err)
{
    sqlite_ids touched = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->steps_count; i++) {
        status = check_step(conn, &r->steps[i], &reactions[i], err);
        if (status != WEIR_OK) {
            goto out;
        }
    }
    for (size_t i = 0; i < r->marks_count; i++) {
        const store_mark *mark = &r->marks[i];
        status = raise_mark(conn, &reactions[mark->reaction_index], mark, &touched, err);
        if (status == WEIR_EINVAL && bad_mark != NULL) {
            *bad_mark = i;
        }
        if (status != WEIR_OK) {
            goto out;
        }
    }
    weir__sqlite_ids_sort(&touched);
    for (size_t i = 0; i < weir__sqlite_ids_count(&touched); i++) {
        status = weir__sqlite_derive(conn, weir__sqlite_ids_get(&touched, i), NULL, err);
        if (status != WEIR_OK) {
            goto out;
        }
    }
    for (size_t i = 0; i < r->parks_count; i++) {
        const store_park park = { .reaction = reactions[r->parks[i].reaction_index].id,
                                  .event = r->parks[i].event,
                                  .error = r->parks[i].error };
        status = weir__sqlite_park(conn, 0, &park, now_us, err);
        if (status != WEIR_OK) {
            goto out;
        }
    }
    for (size_t i = 0; i < r->steps_count && status == WEIR_OK; i++) {
        status = advance(conn, &reactions[i], &r->steps[i], err);
    }
out:
    weir__buffer_free(&touched.bytes);
    return status;
}

weir_status weir__sqlite_route(weir_store *base, const store_route *r, size_t *bad_mark,
                               weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    int64_t now_us = 0;
    route_reaction *reactions = weir__calloc(r->steps_count + 1, sizeof *reactions);
    if (reactions == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu routing steps", r->steps_count);
    }
    weir_status status = weir__sqlite_write_begin(s, 0, &conn, &now_us, err);
    if (status == WEIR_OK) {
        status = route_in(conn, r, reactions, now_us, bad_mark, err);
        status = weir__sqlite_write_end(s, status, r->marks_count > 0, err);
    }
    weir__free(reactions);
    return status;
}
