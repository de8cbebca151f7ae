/* lease.c - who may work on which targets: the choice of targets and the handing out of fences.
 *
 * INVARIANTS
 *   (1) A fence is handed out once: fence + 1 is committed, durably, before anyone sees it.
 *   (2) Choosing reads candidates in the order in which they would be taken and stops at the limit.
 *       What it steps over are live leases and targets whose work nobody here knows, never blocked,
 *       paused, deferred or idle targets.
 *   (3) A candidate that is reached is taken, or blocked because it lost too many leases; one that
 *       is not reached is not touched.
 *
 * Candidates come from two places: targets without a due time from a cursor on an index (scan),
 * those whose due time has passed from a list that was read before (due). Each of the three steps
 * merges both in its own order, then writes; so the next step's cursor does not find them any more.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"
#include "store/sqlite/lease_sql.h"
#include "store/sqlite/targets.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum lease_order {
    ORDER_LEADING,  /* rank descending, id descending   */
    ORDER_LAGGING,  /* rank, id                         */
    ORDER_PRIORITY, /* priority descending, rank, id    */
} lease_order;

typedef struct candidate {
    store_leased lease; /* as it will be handed out */
    int64_t rank;
    bool expired; /* has a lease that nobody gave back */
    bool due;     /* its due time has to be unset      */
    bool used;    /* of the due list: taken or blocked */
} candidate;

/* One lease call. */
typedef struct leasing {
    sqlite_conn *conn;
    const store_lease_request *request;
    store_known_reaction *known; /* owned: by reaction, for bsearch */
    sqlite_times now;
    bool sent_back;    /* some target has events that were sent back: rarely so */
    weir_arena *arena; /* of the list */
    candidate *due;    /* in the arena */
    size_t due_count;
    candidate *chosen; /* in the arena: up to request->limit */
    size_t chosen_count;
} leasing;

static int compare_known(const void *a, const void *b)
{
    const int64_t left = ((const store_known_reaction *)a)->reaction;
    const int64_t right = ((const store_known_reaction *)b)->reaction;
    return (left > right) - (left < right);
}

static bool reaction_known(const leasing *l, int64_t reaction, int64_t number)
{
    if (l->request->all_reactions) {
        return true;
    }
    const store_known_reaction key = { .reaction = reaction };
    const store_known_reaction *found =
        l->request->known_count == 0
            ? NULL
            : bsearch(&key, l->known, l->request->known_count, sizeof key, compare_known);
    return found != NULL && found->number == number;
}

/* < 0: a comes first. */
static int compare_in_order(const candidate *a, const candidate *b, lease_order order)
{
    if (order == ORDER_PRIORITY && a->lease.priority != b->lease.priority) {
        return a->lease.priority > b->lease.priority ? -1 : 1;
    }
    int by_rank = (a->rank > b->rank) - (a->rank < b->rank);
    if (by_rank == 0) {
        by_rank = (a->lease.target > b->lease.target) - (a->lease.target < b->lease.target);
    }
    return order == ORDER_LEADING ? -by_rank : by_rank;
}

static int compare_leading(const void *a, const void *b)
{
    return compare_in_order(a, b, ORDER_LEADING);
}

static int compare_lagging(const void *a, const void *b)
{
    return compare_in_order(a, b, ORDER_LAGGING);
}

static int compare_priority(const void *a, const void *b)
{
    return compare_in_order(a, b, ORDER_PRIORITY);
}

/* ---- the work of a candidate --------------------------------------------------------------- */

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate leases");
}

static weir_status read_subscriptions(const leasing *l, candidate *c, weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(l->conn, sql_lease_subscriptions, err);
    weir__cursor_bind_i64(&cursor, 1, c->lease.target);
    while (weir__cursor_next(&cursor)) {
        if (!reaction_known(l, weir__cursor_i64(&cursor, 0), weir__cursor_i64(&cursor, 1))) {
            continue;
        }
        const store_leased_subscription sub = {
            .reaction = weir__cursor_i64(&cursor, 0),
            .at = weir__cursor_i64(&cursor, 2),
            .mark = weir__cursor_i64(&cursor, 3),
            .retries = weir__cursor_i64(&cursor, 4),
            .source = weir__cursor_copy(&cursor, 5, l->arena),
            .value = weir__cursor_copy(&cursor, 6, l->arena),
        };
        weir__cursor_collect(&cursor, &found, &sub, sizeof sub);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *c->lease.subscriptions, l->arena,
                             &c->lease.subscriptions, &c->lease.subscriptions_count);
}

static weir_status read_sent_back(const leasing *l, candidate *c, weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(l->conn, sql_lease_sent_back, err);
    weir__cursor_bind_i64(&cursor, 1, c->lease.target);
    while (weir__cursor_next(&cursor)) {
        const store_sent_back event = { .parked = weir__cursor_i64(&cursor, 0),
                                        .reaction = weir__cursor_i64(&cursor, 1),
                                        .event = weir__cursor_i64(&cursor, 3),
                                        .attempts = weir__cursor_i64(&cursor, 4) };
        if (reaction_known(l, event.reaction, weir__cursor_i64(&cursor, 2))) {
            weir__cursor_collect(&cursor, &found, &event, sizeof event);
        }
    }
    return weir__cursor_keep(&cursor, &found, sizeof *c->lease.sent_back, l->arena,
                             &c->lease.sent_back, &c->lease.sent_back_count);
}

/* ---- candidates ---------------------------------------------------------------------------- */

/* The row a cursor stands on. Its name is borrowed from the cursor. */
static candidate read_candidate(const sqlite_cursor *cursor)
{
    return (candidate){ .lease = { .target = weir__cursor_i64(cursor, 0),
                                   .name = weir__cursor_text(cursor, 1),
                                   .priority = weir__cursor_i64(cursor, 2),
                                   .watermark = weir__cursor_i64(cursor, 3),
                                   .fence = weir__cursor_i64(cursor, 5),
                                   .lost = weir__cursor_i64(cursor, 6) },
                        .rank = weir__cursor_i64(cursor, 4),
                        .expired = weir__cursor_bool(cursor, 7) };
}

/* The next row that has work we know; false: there is none, or the cursor has failed. The
 * candidate's texts are in the arena. */
static bool next_known(const leasing *l, sqlite_cursor *cursor, candidate *out)
{
    while (weir__cursor_next(cursor)) {
        candidate c = read_candidate(cursor);
        weir__cursor_fail(cursor, read_subscriptions(l, &c, cursor->err));
        if (l->sent_back && cursor->status == WEIR_OK) {
            weir__cursor_fail(cursor, read_sent_back(l, &c, cursor->err));
        }
        if (c.lease.subscriptions_count > 0 || c.lease.sent_back_count > 0) {
            c.lease.name = weir__cursor_copy(cursor, 1, l->arena);
            *out = c;
            return cursor->status == WEIR_OK;
        }
    }
    return false;
}

static sqlite_cursor open_cursor(const leasing *l, const char *sql, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(l->conn, sql, err);
    weir__cursor_bind_text(&cursor, 1, l->request->lane);
    weir__cursor_bind_i64(&cursor, 2, l->now.machine_us);
    if (sql == sql_lease_due) {
        weir__cursor_bind_i64(&cursor, 3, l->now.store_us);
    }
    return cursor;
}

/* The first candidates, at most `limit`, whose due time has passed. */
static weir_status read_due(leasing *l, weir_error *err)
{
    l->due = weir__arena_alloc(l->arena, l->request->limit * sizeof *l->due);
    if (l->due == NULL) {
        return no_memory(err);
    }
    sqlite_cursor cursor = open_cursor(l, sql_lease_due, err);
    while (l->due_count < l->request->limit && next_known(l, &cursor, &l->due[l->due_count])) {
        l->due[l->due_count++].due = true;
    }
    return weir__cursor_end(&cursor);
}

/* ---- taking -------------------------------------------------------------------------------- */

static weir_status block_lost(const leasing *l, const candidate *c, weir_error *err)
{
    char reason[96];
    const int64_t lost = c->lease.lost + 1;
    const int len =
        snprintf(reason, sizeof reason, "lost its lease %lld times in a row", (long long)lost);
    WEIR_ASSERT(len > 0 && (size_t)len < sizeof reason);
    sqlite_cursor cursor = weir__cursor_open(l->conn, sql_lease_block, err);
    weir__cursor_bind_i64(&cursor, 1, c->lease.target);
    weir__cursor_bind_i64(&cursor, 2, l->now.store_us);
    weir__cursor_bind_i64(&cursor, 3, lost);
    weir__cursor_bind_text(&cursor, 4, weir__str(reason));
    return weir__cursor_run(&cursor);
}

static weir_status candidate_take(const leasing *l, candidate *c, weir_error *err)
{
    c->lease.fence++;
    c->lease.token = l->conn->row->token;
    c->lease.until_us = weir__time_later(l->now.store_us, l->request->lease_us);
    c->lease.lost += c->expired ? 1 : 0;
    sqlite_cursor cursor =
        weir__cursor_open(l->conn, c->due ? sql_lease_take_due : sql_lease_take, err);
    weir__cursor_bind_i64(&cursor, 1, c->lease.target);
    weir__cursor_bind_i64(&cursor, 2, c->lease.fence);
    weir__cursor_bind_text(&cursor, 3, l->request->holder);
    weir__cursor_bind_i64(&cursor, 4, weir__time_later(l->now.machine_us, l->request->lease_us));
    weir__cursor_bind_i64(&cursor, 5, c->lease.lost);
    return weir__cursor_run(&cursor);
}

static bool lost_too_often(const leasing *l, const candidate *c)
{
    return c->expired && l->request->lost_max > 0 && c->lease.lost + 1 >= l->request->lost_max;
}

/* The candidates of one step, in its order: up to `wanted` that will be taken, at the end of
 * l->chosen, and those that will be blocked, in `blocked`. Reads only. */
static weir_status candidates_choose(leasing *l, lease_order order, size_t wanted,
                                     sqlite_cursor *cursor, weir_buffer *blocked)
{
    candidate scanned = { 0 };
    size_t due_index = 0, taken = 0;
    bool have = next_known(l, cursor, &scanned);

    while (cursor->status == WEIR_OK && taken < wanted) {
        while (due_index < l->due_count && l->due[due_index].used) {
            due_index++;
        }
        candidate *due = due_index < l->due_count ? &l->due[due_index] : NULL;
        const bool from_due = due != NULL && (!have || compare_in_order(due, &scanned, order) < 0);
        if (!from_due && !have) {
            break;
        }
        const candidate c = from_due ? *due : scanned;
        if (!lost_too_often(l, &c)) {
            l->chosen[l->chosen_count + taken] = c;
            taken++;
        } else {
            weir__cursor_collect(cursor, blocked, &c, sizeof c);
        }
        if (from_due) {
            due->used = true;
        } else if (taken < wanted) {
            have = next_known(l, cursor, &scanned);
        }
    }
    l->chosen_count += taken;
    return weir__cursor_end(cursor);
}

static weir_status lease_step(leasing *l, lease_order order, size_t wanted, weir_error *err)
{
    static const struct {
        const char *sql;
        int (*compare)(const void *, const void *);
    } orders[] = { [ORDER_LEADING] = { sql_lease_leading, compare_leading },
                   [ORDER_LAGGING] = { sql_lease_by_rank, compare_lagging },
                   [ORDER_PRIORITY] = { sql_lease_by_priority, compare_priority } };
    weir_buffer blocked = { 0 };
    const size_t first = l->chosen_count;

    if (wanted > l->request->limit - l->chosen_count) {
        wanted = l->request->limit - l->chosen_count;
    }
    if (wanted == 0) {
        return WEIR_OK;
    }
    qsort(l->due, l->due_count, sizeof *l->due, orders[order].compare);
    sqlite_cursor cursor = open_cursor(l, orders[order].sql, err);
    weir_status status = candidates_choose(l, order, wanted, &cursor, &blocked);
    for (size_t i = first; i < l->chosen_count && status == WEIR_OK; i++) {
        status = candidate_take(l, &l->chosen[i], err);
    }
    for (size_t at = 0; at < blocked.len && status == WEIR_OK; at += sizeof(candidate)) {
        candidate c;
        memcpy(&c, blocked.ptr + at, sizeof c);
        status = block_lost(l, &c, err);
    }
    weir__buffer_free(&blocked);
    return status;
}

static weir_status lane_paused(const leasing *l, bool *paused, weir_error *err)
{
    int64_t value = 0;
    const weir_status status = weir__sqlite_get_by_text(l->conn, sql_lease_lane_paused,
                                                        l->request->lane, paused, &value, err);
    *paused = value != 0;
    return status;
}

static weir_status choose_and_take(leasing *l, weir_error *err)
{
    bool paused = false;
    int64_t one = 0;
    weir_status status = lane_paused(l, &paused, err);
    if (status != WEIR_OK || paused) {
        return status;
    }
    status =
        weir__sqlite_get_int(l->conn, sql_lease_any_sent_back, NULL, 0, &l->sent_back, &one, err);
    if (status != WEIR_OK) {
        return status;
    }
    l->chosen = weir__arena_alloc(l->arena, l->request->limit * sizeof *l->chosen);
    if (l->chosen == NULL) {
        return no_memory(err);
    }
    status = read_due(l, err);
    if (status == WEIR_OK) {
        status = lease_step(l, ORDER_LEADING, l->request->leading, err);
    }
    if (status == WEIR_OK) {
        status = lease_step(l, ORDER_LAGGING, l->request->reserve, err);
    }
    if (status == WEIR_OK) {
        status = lease_step(l, ORDER_PRIORITY, l->request->limit, err);
    }
    return status;
}

/* The chosen ones in the order of the list. */
static weir_status hand_out(leasing *l, store_lease_list *list, weir_error *err)
{
    store_leased *leases = NULL;
    if (l->chosen_count == 0) {
        return WEIR_OK;
    }
    leases = weir__arena_alloc(l->arena, l->chosen_count * sizeof *leases);
    if (leases == NULL) {
        return no_memory(err);
    }
    qsort(l->chosen, l->chosen_count, sizeof *l->chosen, compare_priority);
    for (size_t i = 0; i < l->chosen_count; i++) {
        leases[i] = l->chosen[i].lease;
    }
    list->leases = leases;
    list->leases_count = l->chosen_count;
    return WEIR_OK;
}

weir_status weir__sqlite_lease_in(sqlite_conn *conn, const sqlite_times *now,
                                  const store_lease_request *r, store_lease_list *list,
                                  weir_error *err)
{
    leasing l = { .conn = conn, .request = r, .now = *now, .arena = &list->arena };
    WEIR_ASSERT(r->limit > 0 && r->limit <= STORE_LEASE_TARGETS_MAX);
    if (r->known_count > 0) {
        l.known = weir__calloc(r->known_count, sizeof *l.known);
        if (l.known == NULL) {
            return no_memory(err);
        }
        memcpy(l.known, r->known, r->known_count * sizeof *l.known);
        qsort(l.known, r->known_count, sizeof *l.known, compare_known);
    }
    weir_status status = choose_and_take(&l, err);
    if (status == WEIR_OK) {
        status = hand_out(&l, list, err);
    }
    weir__free(l.known);
    return status;
}
