/* reactions.c - what reactions are declared, by which definition, and who routes them.
 *
 * INVARIANT  What is written is written by one function of the database each
 * (reaction_functions.sql); here requests become its arguments and rows become reactions.
 */
#include "base/assert.h"
#include "base/error.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/reactions_sql.h"

#include <string.h>

/* The columns of sql_declare and sql_reactions. */
enum {
    REACTION_GIVEN,
    REACTION_CHANGED,
    REACTION_ID,
    REACTION_NAME,
    REACTION_NUMBER,
    REACTION_SINCE,
    REACTION_ROUTED,
    REACTION_REREAD_TO,
    REACTION_RETIRED,
    REACTION_ROUTER,
    REACTION_ROUTER_UNTIL,
    REACTION_ROUTER_FENCE,
    REACTION_NAMES,
    REACTION_SOURCE,
    REACTION_RULE,
    REACTION_RULE_TEXT,
    REACTION_ATTEMPTS,
};

/* ---- reading ------------------------------------------------------------------------------- */

/* A name per line. */
static bool split_names(weir_str text, weir_arena *arena, store_reaction *out)
{
    size_t count = text.len > 0 ? 1 : 0;
    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n';
    }
    weir_str *names = weir__arena_alloc(arena, (count + 1) * sizeof *names);
    char *copy = weir__arena_copy(arena, text.len == 0 ? "" : text.ptr, text.len);
    if (names == NULL || copy == NULL) {
        return false;
    }
    const char *at = copy;
    for (size_t i = 0; i < count; i++) {
        const char *end = memchr(at, '\n', (size_t)(copy + text.len - at));
        end = end == NULL ? copy + text.len : end;
        names[i] = (weir_str){ .ptr = at, .len = (size_t)(end - at) };
        at = end + 1;
    }
    out->names = names;
    out->names_count = count;
    return true;
}

static weir_status read_reaction(const PGresult *result, int row, weir_arena *arena,
                                 store_reaction *out, weir_error *err)
{
    const int32_t rule = weir__pg_i32(result, row, REACTION_RULE);
    store_reaction r = {
        .id = weir__pg_i64(result, row, REACTION_ID),
        .number = weir__pg_i64(result, row, REACTION_NUMBER),
        .current = weir__pg_i64(result, row, REACTION_NUMBER),
        .since = weir__pg_i64(result, row, REACTION_SINCE),
        .routed = weir__pg_i64(result, row, REACTION_ROUTED),
        .reread_to = weir__pg_i64(result, row, REACTION_REREAD_TO),
        .retired = weir__pg_bool(result, row, REACTION_RETIRED),
        .router_until_us = weir__pg_i64(result, row, REACTION_ROUTER_UNTIL),
        .router_fence = weir__pg_i64(result, row, REACTION_ROUTER_FENCE),
        .attempts = weir__pg_i64(result, row, REACTION_ATTEMPTS),
        .all_names = weir__pg_null(result, row, REACTION_NAMES),
    };
    if (rule < STORE_RULE_CONSTANT || rule > STORE_RULE_WORK) {
        return weir__fail(err, WEIR_ECORRUPT, "reaction %lld has an unknown rule %d",
                          (long long)r.id, (int)rule);
    }
    r.rule = (store_rule)rule;
    if (!weir__pg_text_copy(arena, result, row, REACTION_NAME, &r.name) ||
        !weir__pg_text_copy(arena, result, row, REACTION_ROUTER, &r.router) ||
        !weir__pg_text_copy(arena, result, row, REACTION_SOURCE, &r.source) ||
        !weir__pg_text_copy(arena, result, row, REACTION_RULE_TEXT, &r.rule_text) ||
        (!r.all_names && !split_names(weir__pg_text(result, row, REACTION_NAMES), arena, &r))) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a reaction");
    }
    *out = r;
    return WEIR_OK;
}

weir_status weir__pg_reactions(weir_store *base, store_reaction_list *list, weir_error *err)
{
    PGresult *result = NULL;
    weir__arena_reset(&list->arena);
    list->reactions = NULL;
    list->reactions_count = 0;
    weir_status status = weir__pg_call(
        pg_of(base), &(pg_call){ .sql = sql_reactions, .repeat = PG_REPEAT }, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int rows = pq.PQntuples(result);
    store_reaction *reactions =
        weir__arena_alloc(&list->arena, ((size_t)rows + 1) * sizeof *reactions);
    if (reactions == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the list of reactions");
    }
    for (int row = 0; row < rows && status == WEIR_OK; row++) {
        status = read_reaction(result, row, &list->arena, &reactions[row], err);
    }
    if (status == WEIR_OK) {
        list->reactions = reactions;
        list->reactions_count = (size_t)rows;
    }
    pq.PQclear(result);
    return status;
}

/* ---- declaring ----------------------------------------------------------------------------- */

/* Where a reaction begins that the store has not seen before. Now is `safe`, not `head`: of two
 * appends under way the later may be visible first, and an event that becomes visible after the
 * declaration must not lie below it. */
static weir_status start_position(weir_store *base, const store_reaction_declaration *d,
                                  int64_t *since, weir_error *err)
{
    store_positions positions = { 0 };
    *since = d->start == STORE_START_POSITION ? d->start_position : 0;
    if (d->start != STORE_START_NOW) {
        return WEIR_OK;
    }
    const weir_status status = weir__pg_positions(base, &positions, err);
    *since = positions.safe;
    return status;
}

weir_status weir__pg_declare(weir_store *base, const store_reaction_declaration *d,
                             weir_arena *arena, store_reaction *out, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    int64_t since = 0;
    weir_status status = start_position(base, d, &since, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__pg_add_text(&p, d->name);
    if (d->all_names) {
        weir__pg_add_null(&p, PG_OID_TEXT_ARRAY);
    } else {
        weir__pg_add_text_array(&p, d->names, d->names_count);
    }
    weir__pg_add_text(&p, d->source);
    weir__pg_add_i32(&p, (int32_t)d->rule);
    weir__pg_add_text(&p, d->rule_text);
    weir__pg_add_i64(&p, since);
    weir__pg_add_bool(&p, d->redeclare);
    weir__pg_add_i64(&p, d->attempts);
    /* A second time it is the current definition, which changes nothing. */
    status = weir__pg_call(s, &(pg_call){ .sql = sql_declare, .params = &p, .repeat = PG_REPEAT },
                           &result, err);
    if (status == WEIR_OK) {
        store_reaction reaction = { 0 };
        status = read_reaction(result, 0, arena, &reaction, err);
        if (status == WEIR_OK) {
            reaction.number = weir__pg_i64(result, 0, REACTION_GIVEN);
            *out = reaction;
        }
        atomic_fetch_add(&s->transactions, 1);
        if (weir__pg_bool(result, 0, REACTION_CHANGED)) {
            weir__pg_wake(s);
        }
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}

weir_status weir__pg_retire(weir_store *base, weir_str name, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, name);
    const weir_status status = weir__pg_call(
        s,
        &(pg_call){
            .sql = sql_retire, .params = &p, .repeat = PG_REPEAT, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status == WEIR_OK) {
        atomic_fetch_add(&s->transactions, 1);
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}

/* ---- routers' leases ----------------------------------------------------------------------- */

weir_status weir__pg_router_lease(weir_store *base, weir_str holder, int64_t lease_us,
                                  store_router_lease *items, size_t count, weir_error *err)
{
    pg_store *s = pg_of(base);
    pg_params p = { 0 };
    PGresult *result = NULL;
    if (count == 0) {
        return WEIR_OK;
    }
    weir__pg_add_text(&p, holder);
    weir__pg_add_i64(&p, lease_us);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(&p, items[i].reaction);
    }
    weir__pg_array_end(&p);
    weir__pg_array_begin(&p, PG_OID_INT8_ARRAY);
    for (size_t i = 0; i < count; i++) {
        weir__pg_push_i64(&p, items[i].fence);
    }
    weir__pg_array_end(&p);
    /* Taken without our hearing of it: a second try finds it held, and free when its time is over.
     * Nobody routes under a fence that was never given out. */
    const weir_status status = weir__pg_call(
        s, &(pg_call){ .sql = sql_router_lease, .params = &p, .repeat = PG_REPEAT }, &result, err);
    if (status == WEIR_OK) {
        WEIR_ASSERT((size_t)pq.PQntuples(result) == count);
        for (size_t i = 0; i < count; i++) {
            items[i].fence = weir__pg_i64(result, (int)i, 0);
            items[i].until_us = weir__pg_i64(result, (int)i, 1);
        }
        atomic_fetch_add(&s->transactions, 1);
        if (lease_us == 0) {
            weir__pg_wake(s); /* what is given back can be taken at once by whoever waits for it */
        }
        pq.PQclear(result);
    }
    weir__pg_params_free(&p);
    return status;
}
