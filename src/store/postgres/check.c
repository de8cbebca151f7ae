/* check.c - everything that can be checked by reading, and what a store says about itself.
 *
 * A store may be large and in use, so a check is many short statements, each of which looks at a
 * slice of one table in one snapshot: nothing is held up, nothing that is being written looks
 * wrong. Whether tables, indexes and functions are as they should be is asked by check_schema.c.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/finding.h"
#include "store/postgres/check_sql.h"
#include "store/postgres/postgres_private.h"

#include <assert.h>
#include <stdio.h>

static_assert(STORE_RANK_SHIFT == 5, "check_targets spells out the shift");

static const char advice_positions[] =
    "Part of the log was restored or lost without the rest. Restore all of the schema from one "
    "backup; followers have to begin again.";

static const char *advice_for(const char *rule)
{
    return strcmp(rule, "positions") == 0 ? advice_positions : weir__finding_advice(rule);
}

/* One check of a store. */
typedef struct checking {
    pg_store *s;
    store_finding_fn fn;
    void *ctx;
    weir_arena arena; /* texts of one slice */
    size_t found;
} checking;

/* Where a slice begins. */
typedef struct place {
    weir_str name; /* in the arena of whoever goes on from here */
    int64_t a, b, c;
} place;

static weir_status finding_tell(checking *x, const PGresult *result, int row, weir_error *err)
{
    weir_str rule = { 0 }, text = { 0 };
    if (x->found == STORE_FINDINGS_MAX) {
        return WEIR_OK;
    }
    if (!weir__pg_text_copy(&x->arena, result, row, 0, &rule) ||
        !weir__pg_text_copy(&x->arena, result, row, 1, &text)) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a finding");
    }
    x->found++;
    x->fn(x->ctx, rule.ptr, text.ptr, advice_for(rule.ptr));
    return WEIR_OK;
}

/* *at becomes the place where the slice ended, its name in `names`. */
static weir_status check_slice(checking *x, const char *sql, weir_arena *names, place *at,
                               bool *more, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    *more = false;
    weir__arena_reset(&x->arena);
    weir__pg_add_text(&p, at->name);
    weir__pg_add_i64(&p, at->a);
    weir__pg_add_i64(&p, at->b);
    weir__pg_add_i64(&p, at->c);
    weir_status status = weir__pg_call(
        x->s,
        &(pg_call){ .sql = sql, .params = &p, .repeat = PG_REPEAT, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    weir__pg_params_free(&p);
    for (int row = 0; status == WEIR_OK && row < pq.PQntuples(result); row++) {
        if (weir__pg_text(result, row, 0).len > 0) {
            status = finding_tell(x, result, row, err);
            continue;
        }
        *more = weir__pg_bool(result, row, 6);
        *at = (place){ .a = weir__pg_i64(result, row, 3),
                       .b = weir__pg_i64(result, row, 4),
                       .c = weir__pg_i64(result, row, 5) };
        if (!weir__pg_text_copy(names, result, row, 2, &at->name)) {
            status = weir__fail(err, WEIR_ENOMEM, "could not copy a name");
        }
    }
    pq.PQclear(result);
    return status;
}

static weir_status check_table(checking *x, const char *sql, weir_error *err)
{
    /* Two arenas in turn: the name where a slice ended is where the next one begins. */
    weir_arena names[2] = { { 0 }, { 0 } };
    place at = { .a = INT64_MIN, .b = INT64_MIN, .c = INT64_MIN };
    weir_status status = WEIR_OK;
    bool more = true;
    for (size_t turn = 0; more && status == WEIR_OK; turn ^= 1) {
        weir__arena_reset(&names[turn]);
        status = check_slice(x, sql, &names[turn], &at, &more, err);
    }
    weir__arena_free(&names[0]);
    weir__arena_free(&names[1]);
    return status;
}

weir_status weir__pg_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    static const char *const tables[] = {
        sql_check_positions, sql_check_events,  sql_check_truncated,
        sql_check_keys,      sql_check_targets, sql_check_subscriptions,
        sql_check_work,      sql_check_parked,  sql_check_reactions,
    };
    checking x = { .s = pg_of(base), .fn = fn, .ctx = ctx };
    weir_status status = weir__pg_check_server(x.s, fn, ctx, err);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == WEIR_OK; i++) {
        status = check_table(&x, tables[i], err);
    }
    weir__arena_free(&x.arena);
    return status;
}

static void copy_name(char *out, size_t bytes, weir_str name)
{
    (void)snprintf(out, bytes, "%.*s", (int)name.len, name.ptr);
}

/* Whether there is a pooler in between, as the connection that is used next has found. */
static weir_status find_pooler(pg_store *s, bool *pooled, weir_error *err)
{
    pg_conn *conn = NULL;
    const weir_status status = weir__pg_take(s, 0, &conn, err);
    if (status == WEIR_OK) {
        *pooled = conn->server.pooled;
        weir__pg_give(conn);
    }
    return status;
}

weir_status weir__pg_stats(weir_store *base, store_stats *out, weir_error *err)
{
    pg_store *s = pg_of(base);
    PGresult *result = NULL;
    bool pooled = false;
    weir_status status = find_pooler(s, &pooled, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__pg_call(
        s, &(pg_call){ .sql = sql_stats, .repeat = PG_REPEAT, .answer_us = PG_ANSWER_US_LONG },
        &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int server = weir__pg_i32(result, 0, 4), library = pq.PQlibVersion();
    const bool flushes = weir__pg_bool(result, 0, 5), whole = weir__pg_bool(result, 0, 6);
    *out = (store_stats){
        .schema = s->schema_version,
        .streams = weir__pg_i64(result, 0, 0),
        .targets = weir__pg_i64(result, 0, 1),
        .blocked = weir__pg_i64(result, 0, 2),
        .parked = weir__pg_i64(result, 0, 3),
        .transactions = atomic_load_explicit(&s->transactions, memory_order_relaxed),
        .file_bytes = weir__pg_i64(result, 0, 7),
        .standby = weir__pg_bool(result, 0, 10),
        .pooled = pooled,
    };
    copy_name(out->database, sizeof out->database, weir__pg_text(result, 0, 8));
    copy_name(out->place, sizeof out->place, weir__str(s->schema_name));
    copy_name(out->user, sizeof out->user, weir__pg_text(result, 0, 9));
    /* Every write of the store's commits durably, whatever synchronous_commit says: what is left is
     * whether the server keeps that word. */
    (void)snprintf(out->durability, sizeof out->durability, "%s",
                   !flushes ? "none" : (whole ? "full" : "normal"));
    (void)snprintf(out->library, sizeof out->library, "PostgreSQL %d.%d (libpq %d.%d)",
                   server / 10000, server % 10000, library / 10000, library % 10000);
    pq.PQclear(result);
    return WEIR_OK;
}
