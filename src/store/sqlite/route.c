/* route.c - one step of routing: marks raised, work rows and parks written, `routed` advanced.
 *
 * INVARIANTS
 *   (1) Marks and `routed` move in one transaction, which began where the reading began: an event
 *       is routed once for each reaction, whoever reads the log how often.
 *   (2) A subscription's `at` moves only when it has no work (at = mark), and never past the first
 *       event that was found: no event is stepped over.
 *   (3) What a subscription becomes is kept in memory while its marks are raised, and written once:
 *       steps with work rows have many marks of few targets. Nothing else reads those rows
 *       meanwhile.
 *   (4) Re-reading is over exactly when reread_to is 0; then no subscription counts as reset.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/beyond.h"
#include "store/judge.h"
#include "store/sqlite/route_sql.h"
#include "store/sqlite/targets.h"

enum {
    KEPT_MAX = 1024, /* subscriptions in memory; a power of two */
    WORK_MANY = 16,  /* rows of route_work_many                 */
    WORK_COLUMNS = 3,
};

/* A step together with what its reaction's row says. */
typedef struct route_reaction {
    int64_t id;
    int64_t reread_to; /* 0: not re-reading */
    store_rule rule;
} route_reaction;

/* The locking and checking of one step. On SQLite the transaction is the lock. */
static weir_status check_step(sqlite_conn *conn, const store_route_step *step, route_reaction *out,
                              weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_route_reaction, err);
    weir__cursor_bind_i64(&cursor, 1, step->reaction);
    const bool row = weir__cursor_next(&cursor);
    const store_reaction r = { .name = row ? weir__cursor_text(&cursor, 0) : (weir_str){ 0 },
                               .current = row ? weir__cursor_i64(&cursor, 1) : 0,
                               .routed = row ? weir__cursor_i64(&cursor, 2) : 0,
                               .retired = row && weir__cursor_bool(&cursor, 4) };
    if (cursor.status == WEIR_OK) {
        weir__cursor_fail(&cursor, weir__step_judge(step, row ? &r : NULL, err));
    }
    if (row) {
        *out = (route_reaction){ .id = step->reaction,
                                 .reread_to = weir__cursor_i64(&cursor, 3),
                                 .rule = (store_rule)weir__cursor_i64(&cursor, 5) };
    }
    return weir__cursor_end(&cursor);
}

static weir_status find_subscription(sqlite_conn *conn, int64_t target, int64_t reaction,
                                     store_routed *out, weir_error *err)
{
    *out = (store_routed){ 0 };
    if (target == 0) {
        return WEIR_OK;
    }
    sqlite_cursor cursor = weir__cursor_open(conn, sql_route_subscription, err);
    weir__cursor_bind_i64(&cursor, 1, target);
    weir__cursor_bind_i64(&cursor, 2, reaction);
    if (weir__cursor_next(&cursor)) {
        *out = (store_routed){ .found = true,
                               .at = weir__cursor_i64(&cursor, 0),
                               .mark = weir__cursor_i64(&cursor, 1),
                               .was_reset = weir__cursor_bool(&cursor, 2),
                               .priority = weir__cursor_i64(&cursor, 3) };
    }
    return weir__cursor_end(&cursor);
}

/* A subscription whose marks are being raised. */
typedef struct kept_subscription {
    const store_mark *of;    /* a mark with its names; NULL: this one is free */
    const store_mark *shown; /* the last that was raised; NULL: nothing to write */
    int64_t target;          /* 0: there is none yet */
    store_routed sub;        /* as it will be */
    bool stored;             /* it has a row */
    bool touched;            /* its target's row may have to change */
} kept_subscription;

/* Those of one call, each in the one place where its names lead. */
typedef struct route_marks {
    sqlite_conn *conn;
    const store_route *route;
    const route_reaction *reactions;
    int64_t now_us;
    kept_subscription *kept;
    size_t kept_count; /* a power of two */
    sqlite_ids touched;
    int64_t work[WORK_MANY * WORK_COLUMNS]; /* rows that are not written yet */
    size_t work_count;
} route_marks;

/* Writes the work rows that are left, all at once if there are as many as that. */
static weir_status write_work(route_marks *m, weir_error *err)
{
    weir_status status = WEIR_OK;
    if (m->work_count == WORK_MANY) {
        status = weir__sqlite_run_ints(m->conn, sql_route_work_many, m->work,
                                       (size_t)WORK_MANY * WORK_COLUMNS, err);
    }
    for (size_t i = 0; m->work_count < WORK_MANY && i < m->work_count && status == WEIR_OK; i++) {
        status = weir__sqlite_run_ints(m->conn, sql_route_work, &m->work[i * WORK_COLUMNS],
                                       WORK_COLUMNS, err);
    }
    m->work_count = 0;
    return status;
}

static weir_status add_work(route_marks *m, int64_t target, int64_t reaction, int64_t event,
                            weir_error *err)
{
    int64_t *row = &m->work[m->work_count * WORK_COLUMNS];
    row[0] = target;
    row[1] = reaction;
    row[2] = event;
    m->work_count++;
    return m->work_count == WORK_MANY ? write_work(m, err) : WEIR_OK;
}

/* Writes a subscription, if it has changed. */
static weir_status write_subscription(route_marks *m, kept_subscription *k, weir_error *err)
{
    const store_mark *mark = k->shown;
    if (mark == NULL) {
        return WEIR_OK;
    }
    sqlite_cursor cursor =
        weir__cursor_open(m->conn, k->stored ? sql_route_mark : sql_route_subscribe, err);
    weir__cursor_bind_i64(&cursor, 1, k->target);
    weir__cursor_bind_i64(&cursor, 2, m->reactions[mark->reaction_index].id);
    weir__cursor_bind_i64(&cursor, 3, k->sub.at);
    weir__cursor_bind_i64(&cursor, 4, k->sub.mark);
    weir__cursor_bind_i64(&cursor, 5, k->sub.priority);
    weir__cursor_bind_text(&cursor, 6, mark->source);
    weir__cursor_bind_text(&cursor, 7, mark->value);
    const weir_status status = weir__cursor_run(&cursor);
    return status == WEIR_OK && k->touched ? weir__sqlite_ids_add(&m->touched, k->target, err)
                                           : status;
}

/* The subscription of a mark. Another one that has its place is written. */
static weir_status keep_subscription(route_marks *m, const store_mark *mark,
                                     kept_subscription **out, weir_error *err)
{
    const size_t hash = (size_t)weir__str_hash(mark->target) + mark->reaction_index;
    kept_subscription *k = &m->kept[hash & (m->kept_count - 1)];
    *out = k;
    if (k->of != NULL && k->of->reaction_index == mark->reaction_index &&
        weir__str_equal(k->of->target, mark->target) && weir__str_equal(k->of->lane, mark->lane)) {
        return WEIR_OK;
    }
    weir_status status = write_subscription(m, k, err);
    *k = (kept_subscription){ 0 };
    if (status == WEIR_OK) {
        status = weir__sqlite_target_find(m->conn, mark->target, mark->lane, &k->target, err);
    }
    if (status == WEIR_OK) {
        status = find_subscription(m->conn, k->target, m->reactions[mark->reaction_index].id,
                                   &k->sub, err);
    }
    if (status == WEIR_OK) {
        k->stored = k->sub.found;
        k->of = mark;
    }
    return status;
}

/* Whether raising its mark leaves the target's row as it is: it was behind already, at the same
 * position and with the same priority. */
static bool target_stays(const store_routed *sub, const store_mark *mark)
{
    return sub->found && sub->at < sub->mark && sub->priority == mark->priority;
}

/* Blocks a target whose position is beyond the log. */
static weir_status block_beyond(route_marks *m, size_t index, const kept_subscription *k,
                                weir_error *err)
{
    char text[STORE_BEYOND_TEXT_BYTES_MAX];
    const store_mark *mark = &m->route->marks[index];
    const store_route_step *step = &m->route->steps[mark->reaction_index];
    sqlite_cursor cursor = weir__cursor_open(m->conn, sql_route_block, err);
    weir__cursor_bind_i64(&cursor, 1, k->target);
    weir__cursor_bind_i64(&cursor, 2, m->now_us);
    weir__cursor_bind_text(&cursor, 3, weir__beyond_text(text, mark, step, k->sub.at, k->sub.mark));
    weir__cursor_bind_i64(&cursor, 4, mark->first);
    weir__cursor_bind_i64(&cursor, 5, step->reaction);
    const weir_status status = weir__cursor_run(&cursor);
    if (status == WEIR_OK && m->route->beyond != NULL && sqlite3_changes(m->conn->db) > 0) {
        m->route->beyond[index] = true;
    }
    return status;
}

static weir_status raise_mark(route_marks *m, size_t index, weir_error *err)
{
    const store_mark *mark = &m->route->marks[index];
    const route_reaction *reaction = &m->reactions[mark->reaction_index];
    kept_subscription *k = NULL;
    weir_status status = keep_subscription(m, mark, &k, err);
    if (status == WEIR_OK && k->sub.found &&
        weir__mark_is_beyond(mark, &m->route->steps[mark->reaction_index], reaction->reread_to,
                             k->sub.at, k->sub.mark)) {
        status = block_beyond(m, index, k, err);
    }
    if (status != WEIR_OK ||
        !weir__mark_counts(mark, &k->sub, reaction->rule, reaction->reread_to)) {
        return status;
    }
    if (k->target == 0) {
        status = weir__sqlite_target_ensure(m->conn, mark->target, mark->lane, &k->target, err);
    }
    k->touched = k->touched || !target_stays(&k->sub, mark);
    k->shown = mark;
    weir__mark_raise(mark, &k->sub);
    return status == WEIR_OK && reaction->rule == STORE_RULE_WORK
               ? add_work(m, k->target, reaction->id, mark->last, err)
               : status;
}

/* All marks, and then the rows of the targets they change. */
static weir_status raise_marks(sqlite_conn *conn, const store_route *r,
                               const route_reaction *reactions, int64_t now_us, size_t *bad_mark,
                               weir_error *err)
{
    route_marks m = {
        .conn = conn, .route = r, .reactions = reactions, .now_us = now_us, .kept_count = 1
    };
    weir_status status = WEIR_OK;
    while (m.kept_count < r->marks_count && m.kept_count < KEPT_MAX) {
        m.kept_count *= 2;
    }
    m.kept = weir__calloc(m.kept_count, sizeof *m.kept);
    if (m.kept == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate %zu subscriptions", m.kept_count);
    }
    for (size_t i = 0; i < r->marks_count && status == WEIR_OK; i++) {
        status = raise_mark(&m, i, err);
        if (status == WEIR_EINVAL && bad_mark != NULL) {
            *bad_mark = i;
        }
    }
    if (status == WEIR_OK) {
        status = write_work(&m, err);
    }
    for (size_t i = 0; i < m.kept_count && status == WEIR_OK; i++) {
        status = write_subscription(&m, &m.kept[i], err);
    }
    weir__sqlite_ids_sort(&m.touched);
    for (size_t i = 0; i < weir__sqlite_ids_count(&m.touched) && status == WEIR_OK; i++) {
        status = weir__sqlite_derive(conn, weir__sqlite_ids_get(&m.touched, i), NULL, err);
    }
    weir__buffer_free(&m.touched.bytes);
    weir__free(m.kept);
    return status;
}

static weir_status reaction_advance(sqlite_conn *conn, const route_reaction *reaction,
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
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < r->steps_count && status == WEIR_OK; i++) {
        status = check_step(conn, &r->steps[i], &reactions[i], err);
    }
    if (status == WEIR_OK && r->marks_count > 0) {
        status = raise_marks(conn, r, reactions, now_us, bad_mark, err);
    }
    for (size_t i = 0; i < r->parks_count && status == WEIR_OK; i++) {
        const store_park park = { .reaction = reactions[r->parks[i].reaction_index].id,
                                  .event = r->parks[i].event,
                                  .error = r->parks[i].error };
        status = weir__sqlite_park(conn, 0, &park, now_us, err);
    }
    for (size_t i = 0; i < r->steps_count && status == WEIR_OK; i++) {
        status = reaction_advance(conn, &reactions[i], &r->steps[i], err);
    }
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
    /* Not synced: what is lost with the power is routed again, and an answer that builds on it was
     * committed after it. */
    weir_status status = weir__sqlite_write_begin(s, SQLITE_TX_HINT, &conn, &now_us, err);
    if (status == WEIR_OK) {
        status = route_in(conn, r, reactions, now_us, bad_mark, err);
        status = weir__sqlite_write_end(s, status, r->marks_count > 0, err);
    }
    weir__free(reactions);
    return status;
}
