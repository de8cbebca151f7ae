/* session.c - how the store uses its connections: what is asked of a new one, what is sent for a
 * statement, and what the server's refusals mean.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/postgres/postgres_private.h"
#include "store/postgres/store_sql.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- refusals ----------------------------------------------------------------------------- */

/* Our own functions raise WRnnn for the status -nnn. */
static bool own_status(const char *sqlstate, weir_status *status)
{
    if (strncmp(sqlstate, "WR", 2) != 0) {
        return false;
    }
    *status = (weir_status)-strtol(sqlstate + 2, NULL, 10);
    return *status < 0 && *status >= WEIR_EMISUSE;
}

static weir_status status_of(const char *sqlstate)
{
    weir_status status;
    if (own_status(sqlstate, &status)) {
        return status;
    }
    if (strcmp(sqlstate, "55P03") == 0 || strcmp(sqlstate, "57014") == 0 ||
        strcmp(sqlstate, "40P01") == 0 || strcmp(sqlstate, "40001") == 0) {
        return WEIR_EBUSY;
    }
    return WEIR_EIO;
}

/* What the reader of the message should do about it; "" when the message says it. */
static const char *advice_for(const char *sqlstate)
{
    if (strcmp(sqlstate, "42501") == 0) {
        return " (the role lacks a right: see weir init --grant)";
    }
    if (strcmp(sqlstate, "42883") == 0 || strcmp(sqlstate, "42P01") == 0 ||
        strcmp(sqlstate, "3F000") == 0) {
        return " (the store is not there or incomplete: run weir init)";
    }
    if (strcmp(sqlstate, "25006") == 0) {
        return " (this server only reads; add target_session_attrs=read-write to the store URL)";
    }
    return "";
}

weir_status weir__pg_result_status(const PGresult *result, weir_error *err)
{
    char message[400];
    weir_status own;
    const char *sqlstate = weir__pg_field(result, PG_DIAG_SQLSTATE);
    const weir_status status = status_of(sqlstate);
    weir__pg_one_line(weir__pg_field(result, PG_DIAG_MESSAGE_PRIMARY), message, sizeof message);
    const bool status_is_own = own_status(sqlstate, &own);
    if (status_is_own) {
        (void)weir__fail(err, status, "%s", message);
    } else {
        (void)weir__fail(err, status, "PostgreSQL refused: %s%s", message, advice_for(sqlstate));
    }
    if (weir__pg_field(result, PG_DIAG_MESSAGE_DETAIL)[0] != '\0') {
        weir__error_detail(err, "%s", weir__pg_field(result, PG_DIAG_MESSAGE_DETAIL));
    }
    /* Our functions put a name of up to 512 bytes here, which the detail has no room for. */
    if (status_is_own && weir__pg_field(result, PG_DIAG_COLUMN_NAME)[0] != '\0') {
        weir__error_stream(err, weir__str(weir__pg_field(result, PG_DIAG_COLUMN_NAME)));
    }
    weir__error_store_code(err, "%s", sqlstate);
    return status;
}

/* ---- sessions ----------------------------------------------------------------------------- */

static pg_store *store_of(const pg_conn *conn)
{
    return conn->database->owner;
}

/* Tests have a clock of their own, which the session is told before each statement. */
static weir_status clock_tell(pg_conn *conn, weir_error *err)
{
    pg_params p = { 0 };
    PGresult *result = NULL;
    char text[24];
    const int64_t now_us = weir__clock_wall(store_of(conn)->clock);
    if (now_us == conn->told_us) {
        return WEIR_OK;
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)now_us);
    weir__pg_add_text(&p, weir__str(text));
    const weir_status status =
        weir__pg_send_text(conn, sql_connection_test_clock, &p, &result, err);
    pq.PQclear(result);
    weir__pg_params_free(&p);
    if (status == WEIR_OK) {
        conn->told_us = now_us;
    }
    return status;
}

static weir_status session_before(pg_conn *conn, weir_error *err)
{
    return store_of(conn)->clock == NULL ? WEIR_OK : clock_tell(conn, err);
}

static weir_status session_hello(pg_conn *conn, weir_error *err)
{
    pg_store *s = store_of(conn);
    const weir_status status = weir__pg_hello(conn, err);
    if (status == WEIR_OK && s->safe != NULL) {
        weir__pg_safe_connected(s->safe, &conn->server);
    }
    return status;
}

static const char *session_text(pg_database *db, const char *sql)
{
    return weir__pg_sql(db->owner, sql);
}

const pg_manner weir__pg_store_manner = {
    .hello = session_hello,
    .before = session_before,
    .text = session_text,
    .refusal = weir__pg_result_status,
    .answer_us = PG_ANSWER_US_DEFAULT,
};
