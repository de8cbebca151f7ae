/* lease.c - who may work on which targets: one call of weir.lease, and its answer as a list.
 *
 * INVARIANT  Rows come target by target, in the order of the list; of each target first its
 * subscriptions (kind 1), then its sent-back events (kind 2), each in their order. A target that
 * was leased has at least one row.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/postgres/lease_rows.h"
#include "store/postgres/lease_sql.h"

#include <string.h>

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate leases");
}

void weir__pg_lease_params(pg_params *p, const store_lease_request *r)
{
    weir__pg_add_text(p, r->lane);
    weir__pg_add_text(p, r->holder);
    weir__pg_add_i64(p, r->lease_us);
    weir__pg_add_i64(p, (int64_t)r->limit);
    weir__pg_add_i64(p, (int64_t)r->leading);
    weir__pg_add_i64(p, (int64_t)r->reserve);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->known_count; i++) {
        weir__pg_push_i64(p, r->known[i].reaction);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < r->known_count; i++) {
        weir__pg_push_i64(p, r->known[i].number);
    }
    weir__pg_array_end(p);
    weir__pg_add_bool(p, r->all_reactions);
    weir__pg_add_i64(p, r->lost_max);
}

/* How many of the rows from `row` on are of the same target and kind. */
static int run_length(const PGresult *result, int row, int rows, int64_t target, int32_t kind)
{
    int count = 0;
    while (row + count < rows && weir__pg_i64(result, row + count, LEASE_TARGET) == target &&
           weir__pg_i32(result, row + count, LEASE_KIND) == kind) {
        count++;
    }
    return count;
}

static bool read_subscriptions(const PGresult *result, int row, int count, weir_arena *arena,
                               store_leased *out)
{
    store_leased_subscription *subs = weir__arena_alloc(arena, ((size_t)count + 1) * sizeof *subs);
    if (subs == NULL) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        subs[i] = (store_leased_subscription){
            .reaction = weir__pg_i64(result, row + i, LEASE_REACTION),
            .at = weir__pg_i64(result, row + i, LEASE_FIRST),
            .mark = weir__pg_i64(result, row + i, LEASE_SECOND),
            .retries = weir__pg_i64(result, row + i, LEASE_THIRD),
        };
        if (!weir__pg_text_copy(arena, result, row + i, LEASE_SOURCE, &subs[i].source) ||
            !weir__pg_text_copy(arena, result, row + i, LEASE_VALUE, &subs[i].value)) {
            return false;
        }
    }
    out->subscriptions = subs;
    out->subscriptions_count = (size_t)count;
    return true;
}

static bool read_sent_back(const PGresult *result, int row, int count, weir_arena *arena,
                           store_leased *out)
{
    store_sent_back *sent = weir__arena_alloc(arena, ((size_t)count + 1) * sizeof *sent);
    if (sent == NULL) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        sent[i] = (store_sent_back){
            .parked = weir__pg_i64(result, row + i, LEASE_FIRST),
            .reaction = weir__pg_i64(result, row + i, LEASE_REACTION),
            .event = weir__pg_i64(result, row + i, LEASE_SECOND),
            .attempts = weir__pg_i64(result, row + i, LEASE_THIRD),
        };
    }
    out->sent_back = sent;
    out->sent_back_count = (size_t)count;
    return true;
}

weir_status weir__pg_lease_rows(const PGresult *result, int first, store_lease_list *list,
                                weir_error *err)
{
    const int rows = pq.PQntuples(result);
    size_t targets = 0;
    for (int row = first; row < rows; row++) {
        targets += row == first || weir__pg_i64(result, row, LEASE_TARGET) !=
                                       weir__pg_i64(result, row - 1, LEASE_TARGET);
    }
    store_leased *leases = weir__arena_alloc(&list->arena, (targets + 1) * sizeof *leases);
    if (leases == NULL) {
        return no_memory(err);
    }
    size_t count = 0;
    for (int row = first; row < rows;) {
        store_leased *l = &leases[count++];
        *l = (store_leased){
            .target = weir__pg_i64(result, row, LEASE_TARGET),
            .fence = weir__pg_i64(result, row, LEASE_FENCE),
            .token = weir__pg_i64(result, row, LEASE_TOKEN),
            .until_us = weir__pg_i64(result, row, LEASE_UNTIL),
            .watermark = weir__pg_i64(result, row, LEASE_WATERMARK),
            .priority = weir__pg_i64(result, row, LEASE_PRIORITY),
            .lost = weir__pg_i64(result, row, LEASE_LOST),
        };
        if (!weir__pg_text_copy(&list->arena, result, row, LEASE_NAME, &l->name)) {
            return no_memory(err);
        }
        int run = run_length(result, row, rows, l->target, LEASE_KIND_SUBSCRIPTION);
        if (!read_subscriptions(result, row, run, &list->arena, l)) {
            return no_memory(err);
        }
        row += run;
        run = run_length(result, row, rows, l->target, LEASE_KIND_SENT_BACK);
        if (!read_sent_back(result, row, run, &list->arena, l)) {
            return no_memory(err);
        }
        row += run;
    }
    WEIR_ASSERT(count == targets);
    list->leases = leases;
    list->leases_count = count;
    return WEIR_OK;
}

weir_status weir__pg_lease(weir_store *base, const store_lease_request *r, store_lease_list *list,
                           weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;

    weir__leases_clear(list);
    if (r->limit == 0) {
        return WEIR_OK;
    }
    WEIR_ASSERT(r->limit <= STORE_LEASE_TARGETS_MAX);
    weir__pg_lease_params(&p, r);
    /* Not repeated: what was leased without our hearing of it is free again when its time is over,
     * and a caller who asks once more should know that it does. */
    weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql_lease, .params = &p }, &result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        status = weir__pg_lease_rows(result, 0, list, err);
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}

weir_status weir__pg_poll(weir_store *base, store_poll *poll, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    store_positions positions = { 0 };

    weir_status status = weir__pg_positions(base, &positions, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__pg_add_text(&p, poll->lane);
    status = weir__pg_call(s, &(pg_call){ .sql = sql_poll, .params = &p, .repeat = PG_REPEAT },
                           &result, err);
    if (status == WEIR_OK) {
        *poll = (store_poll){
            .lane = poll->lane,
            .head = positions.head,
            .safe = positions.safe,
            .now_us = weir__pg_i64(result, 0, 0),
            .routed_least = weir__pg_i64_or(result, 0, 1, INT64_MAX),
            .ready = weir__pg_bool(result, 0, 2),
            .due_us = weir__pg_i64_or(result, 0, 3, INT64_MAX),
            .lease_end_us = weir__pg_i64_or(result, 0, 4, INT64_MAX),
            .router_end_us = weir__pg_i64_or(result, 0, 5, INT64_MAX),
        };
        memcpy(poll->epoch, positions.epoch, sizeof poll->epoch);
        memcpy(poll->log, positions.log, sizeof poll->log);
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}
