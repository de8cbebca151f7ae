/* turn.c - leases that end and others that begin: one call of weir.turn, and its answer.
 *
 * INVARIANTS
 *   (1) One statement: all of it happened, or nothing, or its answer was lost. Never repeated.
 *   (2) Results are written when the whole answer was understood.
 *
 * Rows of kind LEASE_KIND_SETTLED come first, one for each settle, by target.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/postgres/lease_rows.h"
#include "store/postgres/turn_sql.h"

#include <stdlib.h>
#include <string.h>

/* One turn on its way. */
typedef struct turning {
    store_settle **settles; /* by target: the order of the answers */
    size_t settles_count;
    const store_lease_request *lease;
} turning;

static int by_target(const void *left, const void *right)
{
    const store_settle *a = *(store_settle *const *)left, *b = *(store_settle *const *)right;
    return (a->target > b->target) - (a->target < b->target);
}

static void add_advances(pg_params *p, const turning *x)
{
    enum { TARGET, REACTION, TO, COLUMNS };
    for (int column = TARGET; column < COLUMNS; column++) {
        weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
        for (size_t i = 0; i < x->settles_count; i++) {
            const store_settle *settle = x->settles[i];
            for (size_t k = 0; k < settle->advances_count; k++) {
                const store_advance *advance = &settle->advances[k];
                weir__pg_push_i64(p, column == TARGET     ? settle->target
                                     : column == REACTION ? advance->reaction
                                                          : advance->to);
            }
        }
        weir__pg_array_end(p);
    }
}

static void add_turn(pg_params *p, const turning *x)
{
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->settles_count; i++) {
        weir__pg_push_i64(p, x->settles[i]->target);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->settles_count; i++) {
        weir__pg_push_i64(p, x->settles[i]->fence);
    }
    weir__pg_array_end(p);
    weir__pg_array_begin(p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < x->settles_count; i++) {
        weir__pg_push_i64(p, x->settles[i]->token);
    }
    weir__pg_array_end(p);
    add_advances(p, x);
    weir__pg_lease_params(p, x->lease);
}

/* Writes nothing unless there is an answer for each. */
static weir_status take_settles(const turning *x, const PGresult *result, weir_error *err)
{
    for (size_t i = 0; i < x->settles_count; i++) {
        if (i >= (size_t)pq.PQntuples(result) ||
            weir__pg_i32(result, (int)i, LEASE_KIND) != LEASE_KIND_SETTLED ||
            weir__pg_i64(result, (int)i, LEASE_TARGET) != x->settles[i]->target) {
            return weir__fail(err, WEIR_ECORRUPT, "the answer to a turn cannot be read");
        }
    }
    for (size_t i = 0; i < x->settles_count; i++) {
        x->settles[i]->status = (weir_status)weir__pg_i64(result, (int)i, LEASE_FIRST);
        x->settles[i]->behind = weir__pg_i64(result, (int)i, LEASE_SECOND) != 0;
        x->settles[i]->lease_until_us = 0;
    }
    return WEIR_OK;
}

/* Whether a target was left with work and is not ours again: somebody may be glad of it. */
static bool left_some(const turning *x, const store_lease_list *list)
{
    size_t more = 0;
    for (size_t i = 0; i < x->settles_count; i++) {
        more += x->settles[i]->behind;
    }
    for (size_t i = 0; i < list->leases_count && more > 0; i++) {
        const store_settle wanted = { .target = list->leases[i].target };
        const store_settle *key = &wanted;
        store_settle **found =
            bsearch(&key, x->settles, x->settles_count, sizeof *x->settles, by_target);
        more -= found != NULL && (*found)->behind;
    }
    return more > 0;
}

static weir_status turn_run(const turning *x, pg_store *s, store_lease_list *list, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    add_turn(&p, x);
    weir_status status =
        weir__pg_call(s, &(pg_call){ .sql = sql_turn, .params = &p }, &result, err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return status;
    }
    atomic_fetch_add(&s->transactions, 1);
    status = weir__pg_lease_rows(result, (int)x->settles_count, list, err);
    if (status == WEIR_OK) {
        status = take_settles(x, result, err);
    }
    pq.PQclear(result);
    if (status != WEIR_OK) {
        status = weir__wrap(err, WEIR_EUNKNOWN, "the turn was committed");
    }
    if (status != WEIR_OK || left_some(x, list)) {
        weir__pg_wake(s);
    }
    return status;
}

weir_status weir__pg_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                          const store_lease_request *lease, store_lease_list *list, weir_error *err)
{
    const store_lease_request nothing = { .limit = 0 };
    turning x = { .settles_count = settles_count, .lease = lease == NULL ? &nothing : lease };

    WEIR_ASSERT(settles_count <= STORE_LEASE_TARGETS_MAX);
    WEIR_ASSERT(x.lease->limit <= STORE_LEASE_TARGETS_MAX);
    if (settles_count == 0) {
        return weir__pg_lease(base, x.lease, list, err);
    }
    weir__leases_clear(list);
    x.settles = weir__calloc(settles_count, sizeof(store_settle *));
    if (x.settles == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a turn");
    }
    memcpy(x.settles, settles, settles_count * sizeof(store_settle *));
    qsort(x.settles, settles_count, sizeof(store_settle *), by_target);
    const weir_status status = turn_run(&x, pg_of(base), list, err);
    weir__free(x.settles);
    return status;
}
