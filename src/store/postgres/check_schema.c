/* check_schema.c - is everything in the schema as this version makes it?
 *
 * See check_schema.sql. The model is made and compared inside one transaction that is always rolled
 * back, so a connection that goes back to the pool has no trace of it. Where no model can be made
 * (a standby, a role without the right to make temporary tables) that is told, and the rest is
 * checked.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/check_schema_sql.h"
#include "store/postgres/check_server.h"
#include "store/postgres/postgres_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct judge {
    pg_store *s;
    store_survey_fn fn;
    void *ctx;
} judge;

static void finding_tell(const judge *j, bool act, const char *rule, const char *text,
                         const char *advice)
{
    j->fn(j->ctx, act, rule, text, advice);
}

static const char advice_model[] =
    "Make it as it should be: weir init --plan with another ?schema= in the URL prints it.";

/* What differs in one object. Definitions of functions and views are digests, and not shown. */
static void tell_difference(const judge *j, const PGresult *result, int row)
{
    char text[2048], advice[1024];
    const weir_str kind = weir__pg_text(result, row, 0);
    const weir_str name = weir__pg_text(result, row, 1);
    const bool wanted = !weir__pg_null(result, row, 2), found = !weir__pg_null(result, row, 3);
    const weir_str should = wanted ? weir__pg_text(result, row, 2) : weir__str("");
    const weir_str is = found ? weir__pg_text(result, row, 3) : weir__str("");
    const bool shown =
        !weir__str_equal(kind, weir__str("function")) && !weir__str_equal(kind, weir__str("view"));

    if (wanted && !found) {
        (void)snprintf(text, sizeof text, "%.*s %.*s is missing", (int)kind.len, kind.ptr,
                       (int)name.len, name.ptr);
    } else if (wanted) {
        (void)snprintf(text, sizeof text, "%.*s %.*s is not as this version makes it%s%.*s%s%.*s%s",
                       (int)kind.len, kind.ptr, (int)name.len, name.ptr, shown ? ": it is \"" : "",
                       shown ? (int)is.len : 0, is.ptr, shown ? "\", and should be \"" : "",
                       shown ? (int)should.len : 0, should.ptr, shown ? "\"" : "");
    } else {
        (void)snprintf(text, sizeof text, "%.*s %.*s is not Weir's: \"%.*s\"", (int)kind.len,
                       kind.ptr, (int)name.len, name.ptr, (int)is.len, is.ptr);
        finding_tell(
            j, false, "schema", text,
            "It runs with every write of Weir's; take it away if something is slow or refused.");
        return;
    }
    if (!found && weir__str_equal(kind, weir__str("index"))) {
        (void)snprintf(advice, sizeof advice,
                       "Make it without stopping anybody, with CONCURRENTLY after INDEX and %s. "
                       "before the table: %.*s",
                       j->s->schema, (int)should.len, should.ptr);
        finding_tell(j, true, "schema", text, advice);
        return;
    }
    finding_tell(j, true, "schema", text, advice_model);
}

/* Inside the transaction, with the model there. The clock of tests is not as it should be, on
 * purpose. */
static weir_status schema_compare(const judge *j, pg_conn *conn, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&params, weir__str(j->s->schema_name));
    const weir_status status =
        weir__pg_run_text(conn, sql_check_model, &params, PG_ANSWER_US_LONG, &result, err);
    weir__pg_params_free(&params);
    for (int i = 0; status == WEIR_OK && i < pq.PQntuples(result); i++) {
        const bool clock = weir__str_equal(weir__pg_text(result, i, 1), weir__str("clock()"));
        if (!clock || j->s->clock == NULL) {
            tell_difference(j, result, i);
        }
    }
    pq.PQclear(result);
    return status;
}

/* Makes the model. *made false: this server or this role cannot, and `err` says why. */
static weir_status model_make(pg_conn *conn, bool *made, weir_error *err)
{
    weir_buffer sql = { 0 };
    PGresult *result = NULL;
    *made = false;
    weir_status status = weir__pg_run_text(conn, sql_check_temporary, NULL, 0, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    const bool possible = weir__pg_bool(result, 0, 0);
    pq.PQclear(result);
    if (!possible) {
        (void)weir__fail(err, WEIR_EMISUSE,
                         "this role may not make temporary tables here, the server only reads, or "
                         "the session has temporary tables of its own");
        return WEIR_OK;
    }
    if (!weir__pg_schema_model(&sql) || !weir__buffer_add(&sql, "", 1)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the schema");
    } else {
        status = weir__pg_run_script(conn, sql.ptr, PG_ANSWER_US_LONG, err);
        *made = status == WEIR_OK;
        status = conn->outcome == PG_REFUSED ? WEIR_OK : status;
    }
    weir__buffer_free(&sql);
    return status;
}

static weir_status check_model(const judge *j, weir_error *err)
{
    pg_conn *conn = NULL;
    bool made = false;
    weir_status status = weir__pg_take(j->s, 0, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__pg_run_script(conn, "BEGIN; SET LOCAL quote_all_identifiers = off",
                                 j->s->answer_us, err);
    if (status == WEIR_OK) {
        status = model_make(conn, &made, err);
    }
    if (status == WEIR_OK && made) {
        status = schema_compare(j, conn, err);
    } else if (status == WEIR_OK) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "tables and functions were not compared with what this version makes: %.400s",
            err == NULL ? "" : err->message);
        finding_tell(j, false, "schema", text, "Run weir doctor as the owner of the schema.");
    }
    if (conn->raw != NULL) {
        (void)weir__pg_run_script(conn, "ROLLBACK", j->s->answer_us, NULL);
    }
    weir__pg_give(conn);
    return status == WEIR_EUNKNOWN ? WEIR_EUNAVAILABLE : status; /* nothing was changed */
}

static weir_status check_indexes(const judge *j, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&params, weir__str(j->s->schema_name));
    const pg_call call = { .sql = sql_check_indexes, .params = &params, .repeat = PG_REPEAT };
    const weir_status status = weir__pg_call(j->s, &call, &result, err);
    weir__pg_params_free(&params);
    for (int i = 0; status == WEIR_OK && i < pq.PQntuples(result); i++) {
        char text[512], advice[512];
        const weir_str name = weir__pg_text(result, i, 0);
        const bool leftover = weir__pg_bool(result, i, 1);
        (void)snprintf(text, sizeof text,
                       "index %.*s is invalid: nobody reads it, and every write "
                       "pays for it",
                       (int)name.len, name.ptr);
        (void)snprintf(advice, sizeof advice,
                       leftover ? "It is left over from a REINDEX that failed: DROP INDEX "
                                  "CONCURRENTLY %.*s"
                                : "REINDEX INDEX CONCURRENTLY %.*s",
                       (int)name.len, name.ptr);
        finding_tell(j, true, "index", text, advice);
    }
    pq.PQclear(result);
    return status;
}

static weir_status check_sequences(const judge *j, weir_error *err)
{
    PGresult *result = NULL;
    const pg_call call = { .sql = sql_check_sequences, .repeat = PG_REPEAT };
    const weir_status status = weir__pg_call(j->s, &call, &result, err);
    for (int i = 0; status == WEIR_OK && i < pq.PQntuples(result); i++) {
        char text[256], advice[256];
        const weir_str name = weir__pg_text(result, i, 3);
        const bool positions = weir__pg_bool(result, i, 4);
        (void)snprintf(text, sizeof text,
                       "the sequence of %s has CACHE %" PRId64 ", INCREMENT %" PRId64 "%s: %s",
                       positions ? "positions" : "locks' fences", weir__pg_i64(result, i, 0),
                       weir__pg_i64(result, i, 1), weir__pg_bool(result, i, 2) ? ", CYCLE" : "",
                       positions ? "readers can skip events"
                                 : "a lock's next holder can have a smaller fence");
        (void)snprintf(
            advice, sizeof advice,
            "Stop all writers, then ALTER SEQUENCE %s.%.*s CACHE 1 INCREMENT 1 NO CYCLE.",
            j->s->schema, (int)name.len, name.ptr);
        finding_tell(j, true, "sequence", text, advice);
    }
    pq.PQclear(result);
    return status;
}

weir_status weir__pg_check_schema(pg_store *s, store_survey_fn fn, void *ctx, weir_error *err)
{
    const judge j = { .s = s, .fn = fn, .ctx = ctx };
    weir_status status = WEIR_OK;
    if (s->schema_version == weir__pg_schema_current.version) {
        status = check_model(&j, err);
    } else {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "the store has schema %" PRId64 " and this program knows schema %" PRId64
                       ": tables and functions were not compared",
                       s->schema_version, weir__pg_schema_current.version);
        finding_tell(&j, false, "schema", text,
                     "Run weir doctor of the version that made the schema.");
    }
    if (status == WEIR_OK) {
        status = check_indexes(&j, err);
    }
    return status == WEIR_OK ? check_sequences(&j, err) : status;
}

/* A store_finding_fn behind a store_survey_fn: faults only. */
typedef struct faults {
    store_finding_fn fn;
    void *ctx;
} faults;

static void tell_fault(void *ctx, bool act, const char *rule, const char *text, const char *advice)
{
    const faults *f = ctx;
    if (act) {
        f->fn(f->ctx, rule, text, advice);
    }
}

weir_status weir__pg_check_server(pg_store *s, store_finding_fn fn, void *ctx, weir_error *err)
{
    faults f = { .fn = fn, .ctx = ctx };
    return weir__pg_check_schema(s, tell_fault, &f, err);
}
