/* connection.c - running statements on one connection to PostgreSQL, and knowing what became of
 * each. connect.c makes it.
 *
 * INVARIANTS
 *   (1) After every statement conn->outcome says what is known. A statement that was sent and whose
 *       answer is not there is PG_LOST, whatever the reason: nobody may call it failed.
 *   (2) A connection whose state is not known is closed at once: no answer of an earlier statement
 *       can be taken for that of a later one.
 *   (3) No call blocks for longer than its answer_us.
 *   (4) Transactions are READ COMMITTED: functions of a database that are ours rely on a new
 *       snapshot in each of their statements.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/str.h"
#include "pg/pg.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BACKOFF_US_FIRST = 50 * 1000,
    BACKOFF_US_MAX = 2 * 1000 * 1000,
    CANCEL_US = 10 * 1000 * 1000, /* for the answer to a statement that was cancelled */
    CANCEL_AGAIN_US = 200 * 1000, /* after so long without one it is cancelled again */
    POLL_MS_MAX = 60 * 1000,
    CANCEL_TEXT_BYTES = 256,
};

int64_t weir__pg_backoff_us(int attempt)
{
    int64_t most = BACKOFF_US_FIRST;
    for (int i = 0; i < attempt && most < BACKOFF_US_MAX; i++) {
        most *= 2;
    }
    most = most < BACKOFF_US_MAX ? most : BACKOFF_US_MAX;
    return (int64_t)(weir__random_u64() % (uint64_t)most) + 1;
}

int64_t weir__pg_pause_us(int attempt, int64_t deadline_us)
{
    const int64_t left_us = deadline_us - pg_mono_us();
    const int64_t pause_us = weir__pg_backoff_us(attempt);
    return left_us <= 0 ? 0 : pause_us < left_us ? pause_us : left_us;
}

/* ---- errors ------------------------------------------------------------------------------- */

void weir__pg_one_line(const char *text, char *out, size_t bytes)
{
    size_t len = 0;
    for (; *text != '\0' && len + 1 < bytes; text++) {
        if (*text == '\n' || *text == '\t') {
            if (len > 0 && out[len - 1] != ' ') {
                out[len++] = ' ';
            }
        } else {
            out[len++] = *text;
        }
    }
    while (len > 0 && out[len - 1] == ' ') {
        len--;
    }
    out[len] = '\0';
}

const char *weir__pg_field(const PGresult *result, int code)
{
    const char *text = pq.PQresultErrorField(result, code);
    return text == NULL ? "" : text;
}

weir_status weir__pg_foreign_status(const PGresult *result, weir_error *err)
{
    char message[400];
    const char *sqlstate = weir__pg_field(result, PG_DIAG_SQLSTATE);
    weir_status status = WEIR_EIO;
    if (strcmp(sqlstate, "55P03") == 0) {
        status = WEIR_EHELD;
    } else if (strcmp(sqlstate, "40P01") == 0 || strcmp(sqlstate, "40001") == 0) {
        status = WEIR_ECONFLICT;
    }
    weir__pg_one_line(weir__pg_field(result, PG_DIAG_MESSAGE_PRIMARY), message, sizeof message);
    (void)weir__fail(err, status, "PostgreSQL refused: %s", message);
    if (weir__pg_field(result, PG_DIAG_MESSAGE_DETAIL)[0] != '\0') {
        weir__error_detail(err, "%s", weir__pg_field(result, PG_DIAG_MESSAGE_DETAIL));
    }
    weir__error_store_code(err, "%s", sqlstate);
    return status;
}

bool weir__pg_is_fatal(const PGresult *result)
{
    const char *severity = weir__pg_field(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0;
}

void weir__pg_disconnect(pg_conn *conn)
{
    if (conn->raw != NULL) {
        pq.PQfinish(conn->raw);
    }
    conn->raw = NULL;
    conn->prepared_count = 0;
    conn->told_us = 0;
}

/* ---- running ------------------------------------------------------------------------------ */

static weir_status lost(pg_conn *conn, const char *why, weir_error *err)
{
    char message[400];
    weir__pg_one_line(pq.PQerrorMessage(conn->raw), message, sizeof message);
    weir__pg_disconnect(conn);
    conn->outcome = PG_LOST;
    return weir__fail(err, WEIR_EUNKNOWN,
                      "PostgreSQL did not answer, so it is not known what happened: %s%s%s", why,
                      message[0] == '\0' ? "" : ": ", message);
}

static weir_status not_sent(pg_conn *conn, weir_error *err)
{
    char message[400];
    weir__pg_one_line(conn->raw == NULL ? "" : pq.PQerrorMessage(conn->raw), message,
                      sizeof message);
    weir__pg_disconnect(conn);
    conn->outcome = PG_NOT_SENT;
    return weir__fail(err, WEIR_EUNAVAILABLE,
                      "the connection to PostgreSQL was lost; nothing was sent: %s",
                      conn->farewell[0] != 0 ? conn->farewell : message);
}

/* One that died has something to read: the end, or a farewell, or both, one after the other. The
 * farewell may have come together with the last answer: then libpq has it already, and the end may
 * be yet to come. */
bool weir__pg_still_there(pg_conn *conn)
{
    struct pollfd fd = { .fd = pq.PQsocket(conn->raw), .events = POLLIN };
    if (fd.fd < 0) {
        return false;
    }
    for (;;) {
        /* PQisBusy takes what has come apart: notice_receive sees a farewell. */
        if (pq.PQisBusy(conn->raw) != 0 || conn->ended || pq.PQstatus(conn->raw) != CONNECTION_OK) {
            return false;
        }
        if (poll(&fd, 1, 0) <= 0) {
            return true;
        }
        if (pq.PQconsumeInput(conn->raw) != 1) {
            return false;
        }
    }
}

bool weir__pg_await(PGconn *raw, pg_wait *w, const char **why)
{
    for (;;) {
        const int unsent = pq.PQflush(raw);
        if (unsent < 0) {
            *why = "the connection broke while sending";
            return false;
        }
        if (unsent == 0 && pq.PQisBusy(raw) == 0) {
            return true;
        }
        const int64_t now_us = pg_mono_us();
        if (weir__stop_is_set(w->stop)) {
            w->stop = NULL;
            w->deadline_us =
                w->deadline_us - now_us > w->grace_us ? now_us + w->grace_us : w->deadline_us;
        }
        const int64_t left_us = w->deadline_us - now_us;
        if (left_us <= 0) {
            *why = "no answer in time";
            return false;
        }
        struct pollfd fds[] = {
            { .fd = pq.PQsocket(raw), .events = (short)(POLLIN | (unsent != 0 ? POLLOUT : 0)) },
            { .fd = weir__stop_fd(w->stop), .events = POLLIN },
        };
        const int64_t left_ms = left_us / 1000 < POLL_MS_MAX ? left_us / 1000 : POLL_MS_MAX;
        const int ready = poll(fds, 2, (int)left_ms + 1);
        if (ready < 0 && errno != EINTR) {
            *why = "the connection cannot be waited for";
            return false;
        }
        if (ready > 0 && (fds[0].revents & ~POLLOUT) != 0 && pq.PQconsumeInput(raw) != 1) {
            *why = "the connection broke";
            return false;
        }
    }
}

/* The server ends the session with this error: what was running may be committed. */
static bool ends_session(const PGresult *result)
{
    const char *sqlstate = weir__pg_field(result, PG_DIAG_SQLSTATE);
    return weir__pg_is_fatal(result) || sqlstate[0] == '\0' || strncmp(sqlstate, "08", 2) == 0;
}

bool weir__pg_cancel(PGconn *raw, pg_wait *w, int64_t *first_us)
{
    char text[CANCEL_TEXT_BYTES];
    *first_us = *first_us == 0 ? pg_mono_us() : *first_us;
    if (pg_mono_us() - *first_us > CANCEL_US) {
        return false;
    }
    PGcancel *request = pq.PQgetCancel(raw);
    const bool sent = request != NULL && pq.PQcancel(request, text, sizeof text) == 1;
    pq.PQfreeCancel(request);
    w->deadline_us = pg_mono_us() + CANCEL_AGAIN_US;
    return sent;
}

/* All results of what was sent; the first that failed counts, or else the last with rows. */
static weir_status collect(pg_conn *conn, int64_t deadline_us, PGresult **out, weir_error *err)
{
    PGresult *kept = NULL;
    const char *why = NULL;
    pg_wait wait = { .deadline_us = deadline_us,
                     .stop = conn->stop,
                     .grace_us = conn->stop_grace_us };
    int64_t cancelled_us = 0;
    for (;;) {
        if (!weir__pg_await(conn->raw, &wait, &why)) {
            /* The answer says whether it was done by then. */
            if (conn->database->manner->cancels && pg_mono_us() >= wait.deadline_us &&
                weir__pg_cancel(conn->raw, &wait, &cancelled_us)) {
                continue;
            }
            pq.PQclear(kept);
            return lost(conn, why, err);
        }
        PGresult *result = pq.PQgetResult(conn->raw);
        if (result == NULL) {
            break;
        }
        const bool failed_before = kept != NULL && pq.PQresultStatus(kept) == PGRES_FATAL_ERROR;
        const bool rows_before = kept != NULL && pq.PQresultStatus(kept) == PGRES_TUPLES_OK &&
                                 pq.PQresultStatus(result) == PGRES_COMMAND_OK;
        const bool keeps = failed_before || rows_before;
        pq.PQclear(keeps ? result : kept);
        kept = keeps ? kept : result;
    }
    if (kept == NULL || pq.PQstatus(conn->raw) != CONNECTION_OK ||
        (pq.PQresultStatus(kept) == PGRES_FATAL_ERROR && ends_session(kept))) {
        pq.PQclear(kept);
        return lost(conn, "the server ended the session", err);
    }
    const ExecStatusType type = pq.PQresultStatus(kept);
    if (type != PGRES_TUPLES_OK && type != PGRES_COMMAND_OK && type != PGRES_EMPTY_QUERY) {
        const weir_status status = conn->database->manner->refusal(kept, err);
        conn->outcome = PG_REFUSED;
        (void)snprintf(conn->sqlstate, sizeof conn->sqlstate, "%s",
                       weir__pg_field(kept, PG_DIAG_SQLSTATE));
        pq.PQclear(kept);
        return status;
    }
    conn->outcome = PG_DONE;
    if (conn->unsynced) {
        conn->unsynced = false;
        pq.PQclear(kept);
        conn->outcome = PG_LOST;
        return weir__fail(err, WEIR_EUNKNOWN,
                          "committed on this server, but the synchronous standby did not confirm "
                          "it: a failover may lose it");
    }
    *out = kept;
    return WEIR_OK;
}

typedef struct values {
    const char *ptrs[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
} values;

static void values_of(const pg_params *p, values *v)
{
    for (int i = 0; p != NULL && i < p->count; i++) {
        /* A value of no bytes still needs an address: NULL is NULL. */
        v->ptrs[i] = p->offsets[i] == SIZE_MAX ? NULL
                     : p->bytes.ptr == NULL    ? ""
                                               : p->bytes.ptr + p->offsets[i];
        v->formats[i] = 1;
    }
}

static weir_status begin(pg_conn *conn, const pg_params *params, weir_error *err)
{
    conn->sqlstate[0] = '\0';
    conn->outcome = PG_NOT_SENT;
    if (params != NULL && params->failed) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the parameters of a statement");
    }
    if (conn->raw == NULL || !weir__pg_still_there(conn)) {
        return not_sent(conn, err);
    }
    return WEIR_OK;
}

static weir_status send_text(pg_conn *conn, const char *sql, const pg_params *params,
                             int64_t deadline_us, PGresult **result, weir_error *err)
{
    values v;
    values_of(params, &v);
    const int count = params == NULL ? 0 : params->count;
    const int sent =
        pq.PQsendQueryParams(conn->raw, sql, count, params == NULL ? NULL : params->types, v.ptrs,
                             params == NULL ? NULL : params->lengths, v.formats, 1);
    return sent == 1 ? collect(conn, deadline_us, result, err)
                     : lost(conn, "the statement could not be sent", err);
}

weir_status weir__pg_send_text(pg_conn *conn, const char *sql, const pg_params *params,
                               PGresult **result, weir_error *err)
{
    return send_text(conn, sql, params, pg_mono_us() + conn->database->answer_us, result, err);
}

static weir_status before(pg_conn *conn, const pg_params *params, weir_error *err)
{
    const pg_manner *manner = conn->database->manner;
    const weir_status status = begin(conn, params, err);
    return status == WEIR_OK && manner->before != NULL ? manner->before(conn, err) : status;
}

/* What is sent for a constant text; NULL: no memory. */
static const char *text_of(pg_conn *conn, const char *sql)
{
    pg_database *db = conn->database;
    return db->manner->text == NULL ? sql : db->manner->text(db, sql);
}

weir_status weir__pg_run_text(pg_conn *conn, const char *sql, pg_params *params, int64_t answer_us,
                              PGresult **result, weir_error *err)
{
    const char *text = text_of(conn, sql);
    const int64_t wait_us = answer_us == 0 ? conn->database->answer_us : answer_us;
    *result = NULL;
    if (text == NULL) {
        conn->outcome = PG_NOT_SENT;
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    }
    const weir_status status = before(conn, params, err);
    return status == WEIR_OK ? send_text(conn, text, params, pg_mono_us() + wait_us, result, err)
                             : status;
}

weir_status weir__pg_run_script_rows(pg_conn *conn, const char *sql, int64_t answer_us,
                                     PGresult **result, weir_error *err)
{
    const int64_t now_us = pg_mono_us();
    const int64_t deadline_us = answer_us > INT64_MAX - now_us ? INT64_MAX : now_us + answer_us;
    *result = NULL;
    const weir_status status = before(conn, NULL, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (pq.PQsendQuery(conn->raw, sql) != 1) {
        return lost(conn, "the statement could not be sent", err);
    }
    return collect(conn, deadline_us, result, err);
}

weir_status weir__pg_run_script(pg_conn *conn, const char *sql, int64_t answer_us, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = weir__pg_run_script_rows(conn, sql, answer_us, &result, err);
    pq.PQclear(result);
    return status;
}

static int64_t deadline_after(int64_t answer_us)
{
    const int64_t now_us = pg_mono_us();
    return answer_us > INT64_MAX - now_us ? INT64_MAX : now_us + answer_us;
}

weir_status weir__pg_run_plain(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err)
{
    *result = NULL;
    const weir_status status = before(conn, NULL, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (pq.PQsendQueryParams(conn->raw, sql, plain->count, plain->types, plain->values,
                             plain->lengths, plain->formats, 0) != 1) {
        return lost(conn, "the statement could not be sent", err);
    }
    return collect(conn, deadline_after(answer_us), result, err);
}

weir_status weir__pg_prepare_plain(pg_conn *conn, const char *name, const char *sql,
                                   const pg_plain *plain, int64_t answer_us, weir_error *err)
{
    PGresult *result = NULL;
    weir_status status = before(conn, NULL, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = pq.PQsendPrepare(conn->raw, name, sql, plain->count, plain->types) == 1
                 ? collect(conn, deadline_after(answer_us), &result, err)
                 : lost(conn, "the statement could not be sent", err);
    pq.PQclear(result);
    return status;
}

weir_status weir__pg_run_prepared(pg_conn *conn, const char *name, const pg_plain *plain,
                                  int64_t answer_us, PGresult **result, weir_error *err)
{
    *result = NULL;
    const weir_status status = before(conn, NULL, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (pq.PQsendQueryPrepared(conn->raw, name, plain->count, plain->values, plain->lengths,
                               plain->formats, 0) != 1) {
        return lost(conn, "the statement could not be sent", err);
    }
    return collect(conn, deadline_after(answer_us), result, err);
}

enum { PREPARED_NAME_BYTES = 48 };

uint64_t weir__pg_text_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return hash;
}

/* The name under which a text is prepared on this connection; prepares it if it is not. The name
 * says what the text is: should a pooler hand us a session in which somebody else has prepared, the
 * same name is still the same statement. */
static weir_status prepared_name(pg_conn *conn, const char *sql, const char *text,
                                 const pg_params *params, int64_t deadline_us,
                                 char name[PREPARED_NAME_BYTES], weir_error *err)
{
    PGresult *result = NULL;
    uint64_t hash = 0;
    for (size_t i = 0; i < conn->prepared_count; i++) {
        if (conn->prepared[i].sql == sql) {
            hash = conn->prepared[i].hash;
        }
    }
    const bool known = hash != 0;
    hash = known ? hash : weir__pg_text_hash(text);
    (void)snprintf(name, PREPARED_NAME_BYTES, "weir_%016" PRIx64 "_%u", hash, conn->prepared_again);
    if (known) {
        return WEIR_OK;
    }
    WEIR_ASSERT(conn->prepared_count < PG_STATEMENTS_MAX);
    if (pq.PQsendPrepare(conn->raw, name, text, params == NULL ? 0 : params->count,
                         params == NULL ? NULL : params->types) != 1) {
        (void)lost(conn, "the statement could not be sent", err);
    } else {
        weir_status status = collect(conn, deadline_us, &result, err);
        pq.PQclear(result);
        if (status == WEIR_OK) {
            conn->prepared[conn->prepared_count++] =
                (struct pg_prepared){ .sql = sql, .hash = hash };
        }
        if (conn->outcome != PG_LOST) {
            return status;
        }
    }
    conn->outcome = PG_NOT_SENT; /* preparing does nothing */
    return weir__wrap(err, WEIR_EUNAVAILABLE, "could not prepare a statement");
}

static weir_status run_prepared(pg_conn *conn, const char *sql, const char *text,
                                const pg_params *params, int64_t deadline_us, PGresult **result,
                                weir_error *err)
{
    char name[PREPARED_NAME_BYTES];
    values v;
    const weir_status status = prepared_name(conn, sql, text, params, deadline_us, name, err);
    if (status != WEIR_OK) {
        return status;
    }
    values_of(params, &v);
    if (pq.PQsendQueryPrepared(conn->raw, name, params == NULL ? 0 : params->count, v.ptrs,
                               params == NULL ? NULL : params->lengths, v.formats, 1) != 1) {
        return lost(conn, "the statement could not be sent", err);
    }
    return collect(conn, deadline_us, result, err);
}

bool weir__pg_prepared_gone(const pg_conn *conn)
{
    return conn->outcome == PG_REFUSED &&
           (strcmp(conn->sqlstate, "26000") == 0 || strcmp(conn->sqlstate, "42P05") == 0 ||
            strcmp(conn->sqlstate, "0A000") == 0);
}

bool weir__pg_prepares(const pg_conn *conn)
{
    const int32_t asked = conn->database->prepare;
    return asked == 1 || (asked == 0 && !conn->server.pooled);
}

weir_status weir__pg_run(pg_conn *conn, const pg_call *call, PGresult **result, weir_error *err)
{
    const char *text = text_of(conn, call->sql);
    *result = NULL;
    if (text == NULL) {
        conn->outcome = PG_NOT_SENT;
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    }
    weir_status status = before(conn, call->params, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int64_t deadline_us =
        pg_mono_us() + (call->answer_us == 0 ? conn->database->answer_us : call->answer_us);
    if (!weir__pg_prepares(conn)) {
        return send_text(conn, text, call->params, deadline_us, result, err);
    }
    status = run_prepared(conn, call->sql, text, call->params, deadline_us, result, err);
    if (weir__pg_prepared_gone(conn)) {
        /* Under other names from here on. This statement goes without one, once; inside a
         * transaction, which has failed with it, the next one does. */
        conn->prepared_count = 0;
        conn->prepared_again++;
        if (pq.PQtransactionStatus(conn->raw) == PQTRANS_IDLE) {
            status = send_text(conn, text, call->params, deadline_us, result, err);
        }
    }
    return status;
}
