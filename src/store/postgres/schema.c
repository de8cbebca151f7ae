/* schema.c - the tables and functions of a store: creating them, upgrading them, showing how.
 *
 * INVARIANTS
 *   (1) Creation and every upgrade is one transaction under an advisory lock, and looks again after
 *       it has the lock: any number of processes may try at once, one does it.
 *   (2) An upgrade only adds. The functions are replaced as a whole; one whose arguments change
 *       gets a new name, because clients of the version before still call the old one.
 *   (3) What `plan` prints is what `open` runs.
 */
#include "store/postgres/append_functions_sql.h"
#include "store/postgres/fetch_functions_sql.h"
#include "store/postgres/lease_functions_sql.h"
#include "store/postgres/locks_functions_sql.h"
#include "store/postgres/operate_functions_sql.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/reaction_functions_sql.h"
#include "store/postgres/read_functions_sql.h"
#include "store/postgres/role_functions_sql.h"
#include "store/postgres/route_functions_sql.h"
#include "store/postgres/safe_functions_sql.h"
#include "store/postgres/schema_2_sql.h"
#include "store/postgres/schema_3_sql.h"
#include "store/postgres/schema_sql.h"
#include "store/postgres/settle_functions_sql.h"
#include "store/postgres/store_sql.h"
#include "store/postgres/targets_schema_sql.h"
#include "store/postgres/turn_functions_sql.h"
#include "store/postgres/unhandled_functions_sql.h"
#include "store/postgres/worker_functions_sql.h"

#include "base/error.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>

/* What words.sql calls by a name means the same here. */
_Static_assert(SQL_RULE_CONSTANT == STORE_RULE_CONSTANT && SQL_RULE_STREAM == STORE_RULE_STREAM &&
                   SQL_RULE_CATEGORY == STORE_RULE_CATEGORY && SQL_RULE_NAME == STORE_RULE_NAME &&
                   SQL_RULE_WORK == STORE_RULE_WORK,
               "the rules of words.sql");
_Static_assert(SQL_VERB_UNBLOCK == STORE_UNBLOCK && SQL_VERB_PRIORITIZE == STORE_PRIORITIZE &&
                   SQL_VERB_PAUSE == STORE_PAUSE && SQL_VERB_RESUME == STORE_RESUME,
               "the verbs of words.sql");
_Static_assert(SQL_LOCK_HELD == STORE_ONCE_RUNNING && SQL_LOCK_DONE == STORE_ONCE_DONE &&
                   SQL_LOCK_FAILED == STORE_ONCE_FAILED && SQL_LOCK_DIED == STORE_ONCE_DIED,
               "the states of words.sql");
_Static_assert(SQL_END_KEEP == STORE_END_KEEP && SQL_END_DEFER == STORE_END_DEFER &&
                   SQL_END_BLOCK == STORE_END_BLOCK,
               "the ends of words.sql");
_Static_assert(SQL_EXPECT_ANY == WEIR_EXPECT_ANY && SQL_EXPECT_NONE == WEIR_EXPECT_NONE &&
                   SQL_EXPECT_EXISTS == WEIR_EXPECT_EXISTS && SQL_EXPECT_EXACT == WEIR_EXPECT_EXACT,
               "the expectations of words.sql");
_Static_assert(SQL_APPEND_CLOSE == STORE_APPEND_CLOSE && SQL_APPEND_FORCE == STORE_APPEND_FORCE &&
                   SQL_APPEND_DRY_RUN == STORE_APPEND_DRY_RUN &&
                   SQL_APPEND_CHAIN == STORE_APPEND_CHAIN &&
                   SQL_APPEND_NOWAIT == STORE_APPEND_NOWAIT,
               "the flags of words.sql");
_Static_assert(SQL_CHANGE_RESERVE == WEIR_KEY_RESERVE && SQL_CHANGE_RELEASE == WEIR_KEY_RELEASE &&
                   SQL_HELD_STREAM == PG_HELD_STREAM && SQL_HELD_KEY == PG_HELD_KEY &&
                   SQL_HELD_RESERVED == PG_HELD_RESERVED && SQL_STORE_LOCK == PG_LOCK_CLASS,
               "the names and locks of words.sql");
_Static_assert(SQL_CHUNK_EVENTS == STORE_CHUNK_EVENTS_MAX &&
                   SQL_CHUNK_BYTES == STORE_CHUNK_BYTES_SOFT,
               "the chunks of words.sql");
_Static_assert(SQL_ERROR_TEXT_BYTES == STORE_ERROR_TEXT_BYTES_MAX &&
                   SQL_OUTPUT_BYTES == STORE_ONCE_OUTPUT_BYTES_MAX &&
                   SQL_METRICS_BYTES == STORE_METRICS_BYTES_MAX,
               "the sizes of words.sql");
_Static_assert(SQL_STATUS_CONFLICT == WEIR_ECONFLICT && SQL_STATUS_BUSY == WEIR_EBUSY &&
                   SQL_STATUS_NOTFOUND == WEIR_ENOTFOUND && SQL_STATUS_CLOSED == WEIR_ECLOSED &&
                   SQL_STATUS_KEYREUSED == WEIR_EKEYREUSED &&
                   SQL_STATUS_INFLIGHT == WEIR_EINFLIGHT && SQL_STATUS_TAKEN == WEIR_ETAKEN &&
                   SQL_STATUS_LOST == WEIR_ELOST && SQL_STATUS_HELD == WEIR_EHELD &&
                   SQL_STATUS_MISUSE == WEIR_EMISUSE,
               "the statuses of words.sql");

/* 2: clients of schema 1 name a lease by its fence alone, which is not enough (schema_2.sql). 3:
 * those of schema 2 hold streams by rows that are gone (schema_3.sql). */
static const pg_schema_step steps[] = {
    { .version = 2, .change = sql_schema_2 },
    { .version = 3, .change = sql_schema_3 },
};

const pg_schema weir__pg_schema_current = {
    .version = 3, .client_least = 3, .steps = steps, .steps_count = sizeof steps / sizeof steps[0]
};

/* ---- the schema's name in our SQL ----------------------------------------------------------- */

static bool is_word(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || ch == '"' || ch == '$';
}

static bool ends_with(const char *begin, const char *end, const char *word)
{
    const size_t len = strlen(word);
    return (size_t)(end - begin) >= len && memcmp(end - len, word, len) == 0;
}

/* Whether the `weir` at `at` is the schema's name. */
static bool names_schema(const char *begin, const char *at)
{
    if (at > begin && (is_word(at[-1]) || at[-1] == '.')) {
        return false;
    }
    return at[4] == '.' || (!is_word(at[4]) && (ends_with(begin, at, "SCHEMA ") ||
                                                ends_with(begin, at, "SCHEMA IF NOT EXISTS ")));
}

bool weir__pg_sql_add(const pg_store *s, weir_buffer *out, const char *sql)
{
    const char *rest = sql;
    const char *at = sql;
    bool ok = true;
    while (ok && (at = strstr(at, "weir")) != NULL) {
        if (names_schema(sql, at)) {
            ok = weir__buffer_add(out, rest, (size_t)(at - rest)) &&
                 weir__buffer_add_text(out, s->schema);
            rest = at + 4;
        }
        at += 4;
    }
    return ok && weir__buffer_add_text(out, rest);
}

const char *weir__pg_sql(pg_store *s, const char *sql)
{
    const char *found = NULL;
    if (s->default_schema) {
        return sql;
    }
    weir__lock(&s->sql_mu);
    for (size_t i = 0; i < s->sql_count && found == NULL; i++) {
        found = s->sql[i].from == sql ? s->sql[i].to : NULL;
    }
    if (found == NULL && s->sql_count < PG_STATEMENTS_MAX) {
        weir_buffer text = { 0 };
        if (weir__pg_sql_add(s, &text, sql) && weir__buffer_add(&text, "", 1)) {
            s->sql[s->sql_count++] = (struct pg_sql){ .from = sql, .to = text.ptr };
            found = text.ptr;
        } else {
            weir__buffer_free(&text);
        }
    }
    weir__unlock(&s->sql_mu);
    return found;
}

/* ---- scripts -------------------------------------------------------------------------------- */

bool weir__pg_schema_functions(const pg_store *s, weir_buffer *sql)
{
    static const char *const parts[] = {
        sql_schema_durable,   sql_schema_log,          sql_append_functions, sql_safe_functions,
        sql_read_functions,   sql_reaction_functions,  sql_route_functions,  sql_lease_functions,
        sql_fetch_functions,  sql_settle_functions,    sql_turn_functions,   sql_operate_functions,
        sql_worker_functions, sql_unhandled_functions, sql_locks_functions,  sql_role_functions,
        sql_schema_private,
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!weir__pg_sql_add(s, sql, parts[i]) || !weir__buffer_add_text(sql, "\n")) {
            return false;
        }
    }
    return true;
}

static bool add_version(const pg_store *s, weir_buffer *sql, const pg_schema *schema)
{
    return weir__pg_sql_add(s, sql, sql_store_versions) && weir__buffer_add_text(sql, "    (") &&
           weir__buffer_add_i64(sql, schema->version) && weir__buffer_add_text(sql, ", ") &&
           weir__buffer_add_i64(sql, schema->client_least) && weir__buffer_add_text(sql, ");\n");
}

static bool add_line(const pg_store *s, weir_buffer *sql, const char *text)
{
    return weir__pg_sql_add(s, sql, text) && weir__buffer_add_text(sql, "\n");
}

typedef struct found_store {
    bool schema; /* at least the schema is there, perhaps with others' tables */
    bool there;
    int64_t version, client_least;
    bool workers; /* it has that table */
    bool counts;  /* and what they count */
    bool locks;   /* and the table of locks */
} found_store;

static bool up_to_date(const found_store *found, const pg_schema *schema)
{
    return found->there && (found->version > schema->version ||
                            (found->version == schema->version && found->counts && found->locks));
}

/* Everything of schema 1, then whatever came later, into a schema that is there. */
static bool script_in(const pg_store *s, const pg_schema *schema, const found_store *found,
                      weir_buffer *sql)
{
    bool ok = true;
    int64_t version = found->there ? found->version : 0;
    if (version == 0) {
        static const char *const parts[] = { sql_schema_clock,     sql_schema,
                                             sql_targets_schema,   sql_workers_schema,
                                             sql_counts_schema,    sql_locks_schema,
                                             sql_schema_immutable, sql_schema_rows };
        for (size_t i = 0; ok && i < sizeof parts / sizeof parts[0]; i++) {
            ok = add_line(s, sql, parts[i]);
        }
        version = 1;
    } else {
        ok = (found->workers || add_line(s, sql, sql_workers_schema)) &&
             (found->counts || add_line(s, sql, sql_counts_schema)) &&
             (found->locks || add_line(s, sql, sql_locks_schema));
    }
    for (size_t i = 0; ok && i < schema->steps_count; i++) {
        if (schema->steps[i].version > version) {
            ok = add_line(s, sql, schema->steps[i].change);
        }
    }
    return ok && weir__pg_schema_functions(s, sql) && add_version(s, sql, schema);
}

bool weir__pg_schema_model(weir_buffer *sql)
{
    char name[] = "pg_temp";
    const pg_store model = { .schema = name };
    return script_in(&model, &weir__pg_schema_current, &(found_store){ .schema = true }, sql);
}

/* ---- looking and changing -------------------------------------------------------------------- */

/* The schema itself when it is missing, and what is missing in it. */
static bool schema_script(const pg_store *s, const pg_schema *schema, const found_store *found,
                          weir_buffer *sql)
{
    return (found->schema || add_line(s, sql, sql_schema_make)) &&
           (!found->there || add_line(s, sql, sql_schema_tables)) &&
           script_in(s, schema, found, sql);
}

/* A table of the right name without the right columns. */
static weir_status refuse_foreign(const pg_store *s, weir_error *err)
{
    const weir_status status = weir__fail(
        err, WEIR_EINVAL, "schema %s has a table \"store\" that is not Weir's", s->schema);
    weir__error_detail(err, "Choose another schema: add ?schema=NAME to the store URL.");
    return status;
}

/* Looking changes nothing: without an answer nothing has happened. */
static weir_status look_failed(weir_status status, weir_error *err)
{
    return status == WEIR_EUNKNOWN ? weir__pg_lost_nothing("looking for the store", err) : status;
}

static weir_status store_look(pg_store *s, pg_conn *conn, found_store *found, weir_error *err)
{
    PGresult *result = NULL;
    pg_params p = { 0 };
    *found = (found_store){ 0 };
    weir__pg_add_text(&p, weir__str(s->schema_name));
    weir_status status = weir__pg_run_text(conn, sql_store_exists, &p, 0, &result, err);
    weir__pg_params_free(&p);
    if (status != WEIR_OK) {
        return look_failed(status, err);
    }
    found->there = weir__pg_bool(result, 0, 0);
    found->schema = weir__pg_bool(result, 0, 1);
    found->workers = weir__pg_bool(result, 0, 2);
    found->counts = weir__pg_bool(result, 0, 3);
    found->locks = weir__pg_bool(result, 0, 4);
    pq.PQclear(result);
    if (!found->there) {
        return WEIR_OK;
    }
    status = weir__pg_run_text(conn, sql_store_row, NULL, 0, &result, err);
    if (status != WEIR_OK) {
        return strcmp(conn->sqlstate, "42703") == 0 ? refuse_foreign(s, err)
                                                    : look_failed(status, err);
    }
    if (pq.PQntuples(result) != 1) {
        status = weir__fail(err, WEIR_ECORRUPT, "table %s.store has no row; restore it", s->schema);
    } else {
        const weir_str epoch = weir__pg_text(result, 0, 2);
        found->version = weir__pg_i32(result, 0, 0);
        found->client_least = weir__pg_i32(result, 0, 1);
        s->number = weir__pg_i32(result, 0, 3);
        (void)snprintf(s->epoch, sizeof s->epoch, "%.*s", (int)epoch.len, epoch.ptr);
    }
    pq.PQclear(result);
    return status;
}

/* One process at a time; ends with the transaction. */
static weir_status schema_lock(pg_store *s, pg_conn *conn, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    weir__pg_add_text(&p, weir__str(s->schema_name));
    const weir_status status =
        weir__pg_run_text(conn, sql_schema_lock, &p, PG_ANSWER_US_LONG, &result, err);
    pq.PQclear(result);
    weir__pg_params_free(&p);
    return status;
}

static weir_status change_locked(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_error *err)
{
    found_store found;
    weir_buffer sql = { 0 };
    weir_status status = store_look(s, conn, &found, err);
    if (status != WEIR_OK || up_to_date(&found, schema)) {
        return status; /* somebody else was first */
    }
    if (!schema_script(s, schema, &found, &sql) || !weir__buffer_add(&sql, "", 1)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate the schema");
    } else {
        status = weir__pg_run_script(conn, sql.ptr, PG_ANSWER_US_LONG, err);
    }
    weir__buffer_free(&sql);
    if (status == WEIR_OK) {
        s->opening = found.there ? STORE_UPGRADED : STORE_MADE;
        status = store_look(s, conn, &found, err);
        (void)snprintf(s->epoch_made, sizeof s->epoch_made, "%s", s->epoch);
    }
    return status;
}

/* Somebody has a table of the store and does not let go: says who. */
static void name_blocker(pg_store *s, pg_conn *conn, weir_error *err)
{
    PGresult *result = NULL;
    if (weir__pg_run_text(conn, sql_schema_blocker, NULL, s->answer_us, &result, NULL) == WEIR_OK &&
        pq.PQntuples(result) == 1) {
        char since[WEIR_TIME_TEXT_BYTES] = "an unknown time";
        const weir_str who = weir__pg_text(result, 0, 0), cure = weir__pg_text(result, 0, 2);
        if (!weir__pg_null(result, 0, 1)) {
            weir__time_to_text(weir__pg_time_us(result, 0, 1), since);
        }
        (void)weir__fail(err, WEIR_EBUSY, "%.*s has used its tables since %s and has not ended",
                         (int)who.len, who.ptr, since);
        weir__error_detail(err,
                           "Nothing was changed. End that transaction (%.*s), or give the upgrade "
                           "more time: add busy=5m to the store URL.",
                           (int)cure.len, cure.ptr);
        weir__error_store_code(err, "55P03");
    }
    pq.PQclear(result);
}

static weir_status schema_change(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_error *err)
{
    weir_status status = weir__pg_run_script(conn, sql_schema_begin, s->answer_us, err);
    if (status == WEIR_OK) {
        status = schema_lock(s, conn, err);
    }
    if (status == WEIR_OK) {
        status = change_locked(s, schema, conn, err);
    }
    if (status == WEIR_OK) {
        return weir__pg_run_script(conn, "COMMIT", PG_ANSWER_US_LONG, err);
    }
    const bool no_right = strcmp(conn->sqlstate, "42501") == 0;
    const bool held = strcmp(conn->sqlstate, "55P03") == 0;
    if (conn->raw != NULL) {
        (void)weir__pg_run_script(conn, "ROLLBACK", s->answer_us, NULL);
    }
    if (held && conn->raw != NULL) {
        name_blocker(s, conn, err);
    }
    (void)weir__wrap(err, status, "could not create or upgrade the store in schema %s", s->schema);
    if (no_right) {
        weir__error_detail(err, "Run weir init as a role that may create a schema in this database "
                                "(or as the owner of the store), then weir init --grant ROLE.");
    }
    return status;
}

weir_status weir__pg_schema_open(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_error *err)
{
    found_store found;
    const uint32_t flags = s->options.open_flags;
    weir_status status = store_look(s, conn, &found, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (!found.there && (flags & (WEIR_OPEN_EXISTING | WEIR_OPEN_READONLY)) != 0) {
        return weir__fail(
            err, WEIR_ENOTFOUND,
            "there is no store in schema %s of this database; make one with weir init", s->schema);
    }
    if (found.there && found.client_least > schema->version) {
        return weir__fail(err, WEIR_ENEWER,
                          "the store has schema %" PRId64
                          ", which needs a newer Weir than this one (schema %" PRId64 ")",
                          found.version, schema->version);
    }
    if (found.there && found.version < schema->version && (flags & WEIR_OPEN_READONLY) != 0) {
        return weir__fail(err, WEIR_EMISUSE,
                          "the store has schema %" PRId64 ", which must be upgraded to %" PRId64
                          " by weir init, or by opening it once for writing",
                          found.version, schema->version);
    }
    if (found.there && !(found.counts && found.locks) && (flags & WEIR_OPEN_READONLY) != 0) {
        return weir__fail(
            err, WEIR_EMISUSE,
            "the store is of an earlier Weir and must be upgraded by weir init, or by "
            "opening it once for writing");
    }
    if (!up_to_date(&found, schema) && (flags & WEIR_OPEN_READONLY) == 0) {
        status = schema_change(s, schema, conn, err);
        if (status == WEIR_OK) {
            status = store_look(s, conn, &found, err);
        }
    }
    if (status == WEIR_OK && s->clock != NULL) {
        weir_buffer sql = { 0 };
        status = weir__pg_sql_add(s, &sql, sql_store_test_clock) && weir__buffer_add(&sql, "", 1)
                     ? weir__pg_run_script(conn, sql.ptr, s->answer_us, err)
                     : weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
        weir__buffer_free(&sql);
    }
    s->schema_version = found.version;
    /* The answer to a COMMIT may have been lost, and somebody else may have been quicker: the epoch
     * tells whose store it is. */
    s->base.opened = strcmp(s->epoch_made, s->epoch) == 0 ? s->opening : STORE_FOUND;
    return status;
}

weir_status weir__pg_schema_grant(pg_store *s, pg_conn *conn, weir_str role, const char *kind,
                                  bool plan, weir_buffer *sql, weir_error *err)
{
    char *quoted = pq.PQescapeLiteral(conn->raw, role.ptr, role.len);
    if (quoted == NULL) {
        return weir__fail(err, WEIR_EINVAL, "\"%.*s\" cannot be the name of a role", (int)role.len,
                          role.ptr);
    }
    weir_status status = WEIR_OK;
    bool ok = weir__pg_sql_add(s, sql, sql_schema_grant);
    sql->len -= ok; /* its line break */
    ok = ok && weir__buffer_add_text(sql, quoted) && weir__buffer_add_text(sql, ", '") &&
         weir__buffer_add_text(sql, kind) && weir__buffer_add_text(sql, "');\n") &&
         weir__buffer_add(sql, "", 1);
    if (ok) {
        sql->len--;
    } else {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    }
    pq.PQfreemem(quoted);
    if (status == WEIR_OK && !plan) {
        status = weir__pg_run_script(conn, sql->ptr, s->answer_us, err);
    }
    if (status != WEIR_OK && strcmp(conn->sqlstate, "42704") == 0) {
        weir__error_detail(err, "Make the role first: CREATE ROLE ... LOGIN");
    }
    return status;
}

weir_status weir__pg_schema_plan(pg_store *s, const pg_schema *schema, pg_conn *conn,
                                 weir_buffer *sql, weir_error *err)
{
    found_store found;
    const weir_status status = store_look(s, conn, &found, err);
    if (status != WEIR_OK || up_to_date(&found, schema)) {
        return status;
    }
    const bool ok = weir__buffer_add_text(sql, sql_schema_begin) &&
                    schema_script(s, schema, &found, sql) &&
                    weir__buffer_add_text(sql, "COMMIT;\n");
    return ok ? WEIR_OK : weir__fail(err, WEIR_ENOMEM, "could not allocate the schema");
}
