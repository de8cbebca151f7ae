/* check_server.c - what surrounds a store: is this server set up to keep what it acknowledges, does
 * anything hold it up, and how is it reached? doctor prints it.
 *
 * Nothing here is a fault of the store, so none of it belongs to `check`: a sound store on a server
 * without fsync is sound, until the power fails. Every statement is a short read of catalogs and
 * statistics, in a transaction of its own.
 */
#include "store/postgres/check_server.h"
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/check_server_sql.h"
#include "store/postgres/postgres_private.h"
#include "store/watches.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    DEAD_ROWS_MANY = 100000, /* and more than there are live ones */
};

/* A transaction that is older holds up vacuuming for longer than the hot tables stay fast. */
_Atomic int64_t weir__pg_old_transaction_us = INT64_C(300000000);
_Atomic int64_t weir__pg_old_transactions = 1000000;

/* Whoever notes how far the log is final has the row for some milliseconds. */
_Atomic int64_t weir__pg_safe_kept_us = INT64_C(5000000);

typedef struct survey {
    pg_store *s;
    store_survey_fn fn;
    void *ctx;
} survey;

static void survey_tell(const survey *v, bool act, const char *rule, const char *text,
                        const char *advice)
{
    v->fn(v->ctx, act, rule, text, advice);
}

static weir_status survey_ask(const survey *v, const char *sql, pg_params *params,
                              PGresult **result, weir_error *err)
{
    return weir__pg_call(v->s, &(pg_call){ .sql = sql, .params = params, .repeat = PG_REPEAT },
                         result, err);
}

/* "12 min", "3 h": how long something has lasted. */
static void duration_text(int64_t us, char *out, size_t size)
{
    const int64_t seconds = us / 1000000;
    if (seconds < 120) {
        (void)snprintf(out, size, "%" PRId64 " s", seconds);
    } else if (seconds < 7200) {
        (void)snprintf(out, size, "%" PRId64 " min", seconds / 60);
    } else {
        (void)snprintf(out, size, "%" PRId64 " h", seconds / 3600);
    }
}

static weir_status look_at_facts(const survey *v, bool *standbys, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = survey_ask(v, sql_server_facts, NULL, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (weir__pg_bool(result, 0, 0)) {
        survey_tell(
            v, false, "standby",
            "this server is a standby: it is read up to the first gap in the positions after "
            "the one that the primary last called safe, and nothing can be appended here",
            "Name all hosts in the URL, with target_session_attrs=read-write for those who write.");
    }
    if (!weir__pg_bool(result, 0, 1)) {
        survey_tell(
            v, false, "rights",
            "this role cannot see what others do on the server, so transactions of theirs that "
            "hold it up are not listed",
            "GRANT pg_read_all_stats to the role that runs weir doctor.");
    }
    *standbys = weir__pg_i64(result, 0, 2) > 0;
    pq.PQclear(result);
    return WEIR_OK;
}

/* Rights with which a role can bypass the functions. */
static weir_status look_at_rights(const survey *v, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&params, weir__str(v->s->schema_name));
    const weir_status status = survey_ask(v, sql_server_rights, &params, &result, err);
    weir__pg_params_free(&params);
    for (int i = 0; status == WEIR_OK && i < pq.PQntuples(result); i++) {
        char text[512];
        const weir_str who = weir__pg_text(result, i, 0), right = weir__pg_text(result, i, 1);
        const weir_str place = weir__pg_text(result, i, 2);
        (void)snprintf(text, sizeof text, "%.*s has %.*s on %.*s, and can bypass what Weir checks",
                       (int)who.len, who.ptr, (int)right.len, right.ptr, (int)place.len, place.ptr);
        survey_tell(
            v, true, "rights", text,
            "REVOKE it, and let weir init --grant ROLE --as KIND give what the role needs.");
    }
    pq.PQclear(result);
    return status;
}

/* What the server is set to, as far as it endangers something. */
static void judge_setting(const survey *v, weir_str name, weir_str value, bool standbys)
{
    static const struct {
        const char *name, *bad;
        bool act;
        const char *rule, *text, *advice;
    } rules[] = {
        { "fsync", "off", true, "durability",
          "fsync is off: what was acknowledged is lost, or the database damaged, when the machine "
          "or its power fails",
          "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()" },
        { "full_page_writes", "off", true, "durability",
          "full_page_writes is off: a crash of the machine in the middle of a write can damage the "
          "database",
          "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()" },
        { "synchronous_commit", "off", false, "durability",
          "synchronous_commit is off for this role: Weir turns it on for its own transactions; "
          "other commits of the role can be lost in a crash",
          "ALTER ROLE or ALTER DATABASE ... RESET synchronous_commit, unless that is meant." },
        { "data_checksums", "off", false, "checksums",
          "data checksums are off: damage on the disk is not noticed when it is read",
          "Stop the server and run pg_checksums --enable, or make the next cluster with initdb "
          "--data-checksums." },
        { "autovacuum", "off", true, "autovacuum",
          "autovacuum is off: tables that change all the time grow and slow down without end",
          "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()" },
        { "track_counts", "off", true, "autovacuum",
          "track_counts is off: autovacuum does not know what to do",
          "ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (weir__str_equal(name, weir__str(rules[i].name)) &&
            weir__str_equal(value, weir__str(rules[i].bad))) {
            survey_tell(v, rules[i].act, rules[i].rule, rules[i].text, rules[i].advice);
        }
    }
    if (standbys && value.len == 0 &&
        weir__str_equal(name, weir__str("synchronous_standby_names"))) {
        survey_tell(
            v, false, "standbys",
            "standbys are attached and none is synchronous: a failover can lose the last commits, "
            "and readers that have seen them get WEIR_EREWOUND",
            "Set synchronous_standby_names if nothing acknowledged may be lost in a failover.");
    }
}

static weir_status look_at_settings(const survey *v, bool standbys, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = survey_ask(v, sql_server_settings, NULL, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (int i = 0; i < pq.PQntuples(result); i++) {
        judge_setting(v, weir__pg_text(result, i, 0), weir__pg_text(result, i, 1), standbys);
    }
    pq.PQclear(result);
    return WEIR_OK;
}

/* The isolation that sessions get unless they ask for another. Weir asks; a pooler may not pass
 * that on, and the user's own transactions that append do not ask. */
static weir_status look_at_isolation(const survey *v, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = survey_ask(v, sql_server_isolation, NULL, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (int i = 0; i < pq.PQntuples(result); i++) {
        const weir_str value = weir__pg_text(result, i, 0);
        const weir_str where = weir__pg_text(result, i, 1);
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "default_transaction_isolation is %.*s (%.*s): a position is safe to read by "
            "rules that hold in READ COMMITTED only, and appends in a longer transaction "
            "conflict where they would have waited",
            (int)value.len, value.ptr, (int)where.len, where.ptr);
        survey_tell(
            v, true, "isolation", text,
            "RESET default_transaction_isolation there, and ask for more where it is needed.");
    }
    pq.PQclear(result);
    return WEIR_OK;
}

static weir_status look_at_transactions(const survey *v, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&params, weir__pg_old_transaction_us);
    weir__pg_add_i64(&params, weir__pg_old_transactions);
    weir_status status = survey_ask(v, sql_server_old_transactions, &params, &result, err);
    weir__pg_params_free(&params);
    if (status != WEIR_OK) {
        return status;
    }
    for (int i = 0; i < pq.PQntuples(result); i++) {
        char text[1024], since[96] = "", lasted[32], advice[512];
        const weir_str who = weir__pg_text(result, i, 0);
        const weir_str cure = weir__pg_text(result, i, 4);
        if (!weir__pg_null(result, i, 1)) {
            char when[WEIR_TIME_TEXT_BYTES];
            weir__time_to_text(weir__pg_time_us(result, i, 1), when);
            duration_text(weir__pg_i64(result, i, 2), lasted, sizeof lasted);
            (void)snprintf(since, sizeof since, " since %s (%s)", when, lasted);
        }
        (void)snprintf(text, sizeof text,
                       "%.*s has held back the removal of dead rows%s, over %" PRId64
                       " transactions",
                       (int)who.len, who.ptr, since, weir__pg_i64_or(result, i, 3, 0));
        (void)snprintf(advice, sizeof advice, "End it: %.*s.", (int)cure.len, cure.ptr);
        survey_tell(v, true, "old-transaction", text, advice);
    }
    pq.PQclear(result);
    return status;
}

/* Transactions that have noted how far the log is final and are still open: until they end, nobody
 * else can note it. */
static weir_status look_at_safe(const survey *v, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_i64(&params, weir__pg_safe_kept_us);
    const weir_status status = survey_ask(v, sql_server_safe_kept, &params, &result, err);
    weir__pg_params_free(&params);
    for (int i = 0; status == WEIR_OK && i < pq.PQntuples(result); i++) {
        char text[1024], when[WEIR_TIME_TEXT_BYTES], lasted[32], advice[512];
        const weir_str who = weir__pg_text(result, i, 0), row = weir__pg_text(result, i, 1);
        const weir_str cure = weir__pg_text(result, i, 4);
        weir__time_to_text(weir__pg_time_us(result, i, 2), when);
        duration_text(weir__pg_i64(result, i, 3), lasted, sizeof lasted);
        (void)snprintf(text, sizeof text,
                       "%.*s has kept the row of %.*s since %s (%s): nobody can note how far the "
                       "log is final, so standbys are read no further than the next gap in the "
                       "positions",
                       (int)who.len, who.ptr, (int)row.len, row.ptr, when, lasted);
        (void)snprintf(advice, sizeof advice, "End it: %.*s.", (int)cure.len, cure.ptr);
        survey_tell(v, true, "safe-kept", text, advice);
    }
    pq.PQclear(result);
    return status;
}

static weir_status look_at_tables(const survey *v, weir_error *err)
{
    pg_params params = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&params, weir__str(v->s->schema_name));
    const weir_status status = survey_ask(v, sql_server_tables, &params, &result, err);
    weir__pg_params_free(&params);
    if (status != WEIR_OK) {
        return status;
    }
    for (int i = 0; i < pq.PQntuples(result); i++) {
        char text[512], advice[512];
        const weir_str table = weir__pg_text(result, i, 0);
        const int64_t dead = weir__pg_i64_or(result, i, 1, 0);
        const int64_t live = weir__pg_i64_or(result, i, 2, 0);
        if (weir__pg_bool(result, i, 4)) {
            (void)snprintf(text, sizeof text, "autovacuum is turned off for %.*s", (int)table.len,
                           table.ptr);
            (void)snprintf(advice, sizeof advice, "ALTER TABLE %.*s RESET (autovacuum_enabled)",
                           (int)table.len, table.ptr);
            survey_tell(v, true, "autovacuum", text, advice);
        }
        if (dead >= DEAD_ROWS_MANY && dead > live) {
            (void)snprintf(text, sizeof text,
                           "%.*s has %" PRId64 " dead rows and %" PRId64 " live ones, in %" PRId64
                           " bytes",
                           (int)table.len, table.ptr, dead, live, weir__pg_i64_or(result, i, 3, 0));
            (void)snprintf(advice, sizeof advice,
                           "VACUUM %.*s; if it does not help, something holds old rows back (see "
                           "old-transaction).",
                           (int)table.len, table.ptr);
            survey_tell(v, true, "bloat", text, advice);
        }
    }
    pq.PQclear(result);
    return WEIR_OK;
}

/* Functions and operators that others may put in the way of SQL. Weir's own does not look there,
 * except where a pooler hands every transaction to another session. */
static weir_status look_at_path(const survey *v, bool pooled, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = survey_ask(v, sql_server_path, NULL, &result, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (int i = 0; i < pq.PQntuples(result); i++) {
        char text[512], advice[512];
        const weir_str who = weir__pg_text(result, i, 0), place = weir__pg_text(result, i, 1);
        const weir_str cure = weir__pg_text(result, i, 2);
        (void)snprintf(text, sizeof text,
                       "%.*s can create functions and operators in schema %.*s, which this role's "
                       "search_path names: SQL%s can call them, with the rights of this role",
                       (int)who.len, who.ptr, (int)place.len, place.ptr,
                       pooled ? ", also Weir's own through a pooler," : " of your own");
        (void)snprintf(advice, sizeof advice, "%.*s%s", (int)cure.len, cure.ptr,
                       pooled ? "; or, for the role that uses the pooler, ALTER ROLE ... SET "
                                "search_path = pg_catalog"
                              : "");
        survey_tell(v, pooled, "path", text, advice);
    }
    pq.PQclear(result);
    return WEIR_OK;
}

/* Who is in between, and do notifications arrive? Listening is the only way to know. */
static weir_status look_at_connection(const survey *v, weir_error *err)
{
    store_watch *watch = NULL;
    pg_conn *conn = NULL;
    weir_status status = weir__pg_take(v->s, 0, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    const bool pooled = conn->server.pooled;
    weir__pg_give(conn);
    if (pooled) {
        survey_tell(
            v, false, "pooler",
            "there is a pooler in transaction mode between here and the server: statements are "
            "prepared only if the URL says prepare=on",
            "With PgBouncer from 1.21 and max_prepared_statements, add prepare=on to the URL.");
    }
    status = look_at_path(v, pooled, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__pg_watch_open(&v->s->base, &watch, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (strcmp(weir__pg_wake_mode(v->s), "notify") != 0) {
        survey_tell(
            v, false, "wake-ups",
            "notifications do not arrive here, so those who wait for work look about once a "
            "second",
            "Name the server itself for listening, beside the pooler: ?direct=HOST:PORT.");
    }
    weir__watch_remove(watch);
    return WEIR_OK;
}

/* A store_survey_fn: what check tells already is left out. */
static void tell_notes(void *ctx, bool act, const char *rule, const char *text, const char *advice)
{
    if (!act) {
        survey_tell(ctx, false, rule, text, advice);
    }
}

weir_status weir__pg_survey(weir_store *base, store_survey_fn fn, void *ctx, weir_error *err)
{
    survey v = { .s = pg_of(base), .fn = fn, .ctx = ctx };
    bool standbys = false;
    weir_status status = look_at_facts(&v, &standbys, err);
    if (status == WEIR_OK) {
        status = look_at_settings(&v, standbys, err);
    }
    if (status == WEIR_OK) {
        status = look_at_isolation(&v, err);
    }
    if (status == WEIR_OK) {
        status = look_at_rights(&v, err);
    }
    if (status == WEIR_OK) {
        status = look_at_transactions(&v, err);
    }
    if (status == WEIR_OK) {
        status = look_at_safe(&v, err);
    }
    if (status == WEIR_OK) {
        status = look_at_tables(&v, err);
    }
    if (status == WEIR_OK) {
        status = look_at_connection(&v, err);
    }
    return status == WEIR_OK ? weir__pg_check_schema(v.s, tell_notes, &v, err) : status;
}
