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
#include "pg/pg_private.h"

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
    weir__pg_prepared_forget(conn);
    conn->told_us = 0;
}

/* ---- running ------------------------------------------------------------------------------ */

static const char not_known[] = "PostgreSQL did not answer, so it is not known what happened: ";

weir_status weir__pg_lost_nothing(const char *what, weir_error *err)
{
    char cause[400];
    const size_t len = sizeof not_known - 1;
    const bool is_lost = err != NULL && strncmp(err->message, not_known, len) == 0;
    (void)snprintf(cause, sizeof cause, "%s", is_lost ? err->message + len : "");
    return is_lost ? weir__fail(err, WEIR_EUNAVAILABLE,
                                "the connection to PostgreSQL was lost while %s: %s", what, cause)
                   : weir__wrap(err, WEIR_EUNAVAILABLE, "%s", what);
}

static weir_status conn_lost(pg_conn *conn, const char *why, weir_error *err)
{
    char message[400];
    weir__pg_one_line(pq.PQerrorMessage(conn->raw), message, sizeof message);
    weir__pg_disconnect(conn);
    conn->outcome = PG_LOST;
    return weir__fail(err, WEIR_EUNKNOWN, "%s%s%s%s", not_known, why,
                      message[0] == '\0' ? "" : ": ", message);
}

static weir_status conn_not_sent(pg_conn *conn, weir_error *err)
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

weir_status weir__pg_collect(pg_conn *conn, int sent, int64_t deadline_us, PGresult **out,
                             weir_error *err)
{
    PGresult *kept = NULL;
    const char *why = NULL;
    pg_wait wait = { .deadline_us = deadline_us,
                     .stop = conn->stop,
                     .grace_us = conn->stop_grace_us };
    int64_t cancelled_us = 0;
    if (sent != 1) {
        return conn_lost(conn, "the statement could not be sent", err);
    }
    for (;;) {
        if (!weir__pg_await(conn->raw, &wait, &why)) {
            /* The answer says whether it was done by then. */
            if (conn->database->manner->cancels && pg_mono_us() >= wait.deadline_us &&
                weir__pg_cancel(conn->raw, &wait, &cancelled_us)) {
                continue;
            }
            pq.PQclear(kept);
            return conn_lost(conn, why, err);
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
        return conn_lost(conn, "the server ended the session", err);
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

/* What a statement of binary parameters sends; `values` has to live as long. */
pg_plain weir__pg_plain_of(const pg_params *p, pg_values *values)
{
    const int count = p == NULL ? 0 : p->count;
    for (int i = 0; i < count; i++) {
        /* A value of no bytes still needs an address: NULL is NULL. */
        values->ptrs[i] = p->offsets[i] == SIZE_MAX ? NULL
                          : p->bytes.ptr == NULL    ? ""
                                                    : p->bytes.ptr + p->offsets[i];
        values->formats[i] = 1;
    }
    return (pg_plain){ .count = count,
                       .types = p == NULL ? NULL : p->types,
                       .values = values->ptrs,
                       .lengths = p == NULL ? NULL : p->lengths,
                       .formats = values->formats };
}

weir_status weir__pg_send(pg_conn *conn, const pg_sending *s, PGresult **result, weir_error *err)
{
    const pg_plain *p = &s->plain;
    const int sent = pq.PQsendQueryParams(conn->raw, s->text, p->count, p->types, p->values,
                                          p->lengths, p->formats, (int)s->format);
    return weir__pg_collect(conn, sent, s->deadline_us, result, err);
}

weir_status weir__pg_send_text(pg_conn *conn, const char *sql, const pg_params *params,
                               PGresult **result, weir_error *err)
{
    pg_values values;
    const pg_sending s = { .text = sql,
                           .plain = weir__pg_plain_of(params, &values),
                           .format = PG_BINARY,
                           .deadline_us = weir__pg_deadline_us(conn->database->answer_us) };
    return weir__pg_send(conn, &s, result, err);
}

weir_status weir__pg_send_begin(pg_conn *conn, const pg_params *params, weir_error *err)
{
    const pg_manner *manner = conn->database->manner;
    conn->sqlstate[0] = '\0';
    conn->outcome = PG_NOT_SENT;
    if (params != NULL && params->failed) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the parameters of a statement");
    }
    if (conn->raw == NULL || !weir__pg_still_there(conn)) {
        return conn_not_sent(conn, err);
    }
    return manner->before != NULL ? manner->before(conn, err) : WEIR_OK;
}

const char *weir__pg_text_of(pg_conn *conn, const char *sql, weir_error *err)
{
    pg_database *db = conn->database;
    const char *text = db->manner->text == NULL ? sql : db->manner->text(db, sql);
    if (text == NULL) {
        conn->outcome = PG_NOT_SENT;
        (void)weir__fail(err, WEIR_ENOMEM, "could not allocate a statement");
    }
    return text;
}

int64_t weir__pg_deadline_us(int64_t answer_us)
{
    const int64_t now_us = pg_mono_us();
    return answer_us > INT64_MAX - now_us ? INT64_MAX : now_us + answer_us;
}

weir_status weir__pg_run_text(pg_conn *conn, const char *sql, pg_params *params, int64_t answer_us,
                              PGresult **result, weir_error *err)
{
    pg_values values;
    const int64_t wait_us = answer_us == 0 ? conn->database->answer_us : answer_us;
    const char *text = weir__pg_text_of(conn, sql, err);
    *result = NULL;
    if (text == NULL) {
        return WEIR_ENOMEM;
    }
    const weir_status status = weir__pg_send_begin(conn, params, err);
    if (status != WEIR_OK) {
        return status;
    }
    const pg_sending s = { .text = text,
                           .plain = weir__pg_plain_of(params, &values),
                           .format = PG_BINARY,
                           .deadline_us = weir__pg_deadline_us(wait_us) };
    return weir__pg_send(conn, &s, result, err);
}

weir_status weir__pg_run_script_rows(pg_conn *conn, const char *sql, int64_t answer_us,
                                     PGresult **result, weir_error *err)
{
    const int64_t deadline_us = weir__pg_deadline_us(answer_us);
    *result = NULL;
    const weir_status status = weir__pg_send_begin(conn, NULL, err);
    return status == WEIR_OK
               ? weir__pg_collect(conn, pq.PQsendQuery(conn->raw, sql), deadline_us, result, err)
               : status;
}

weir_status weir__pg_run_script(pg_conn *conn, const char *sql, int64_t answer_us, weir_error *err)
{
    PGresult *result = NULL;
    const weir_status status = weir__pg_run_script_rows(conn, sql, answer_us, &result, err);
    pq.PQclear(result);
    return status;
}

weir_status weir__pg_run_plain(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err)
{
    *result = NULL;
    const weir_status status = weir__pg_send_begin(conn, NULL, err);
    if (status != WEIR_OK) {
        return status;
    }
    const pg_sending s = { .text = sql,
                           .plain = *plain,
                           .deadline_us = weir__pg_deadline_us(answer_us) };
    return weir__pg_send(conn, &s, result, err);
}
