/* prepared.c - the prepared statements of a connection.
 *
 * A constant is prepared at once, and known by its address. A text of the moment is prepared when
 * it comes the second time, and known by what it says; of those a session has a few, and the one
 * least lately used gives way.
 *
 * INVARIANTS
 *   (1) Preparing changes how fast a statement is, never what it does: one that cannot be run under
 *       its name any more (somebody has dropped it, or its table has changed) is sent without one.
 *   (2) A name says what the statement is: should a pooler hand us a session in which somebody else
 *       has prepared, the same name is still the same statement. One that was given up is not used
 *       again on this connection.
 *   (3) Texts are run under a name outside of transactions only: inside, one that is gone would
 *       cost the transaction.
 */
#include "base/assert.h"
#include "base/error.h"
#include "pg/pg_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_BYTES_MAX = 64 * 1024, /* a longer one is not worth it */
};

/* Unless the URL says so: where there is a pooler, the next statement may meet another session. */
static bool conn_prepares(const pg_conn *conn)
{
    const int32_t asked = conn->database->prepare;
    return asked == 1 || (asked == 0 && !conn->server.pooled);
}

/* Somebody has dropped what was prepared, or its plan no longer fits: nothing has happened. */
static bool is_gone(const pg_conn *conn)
{
    return conn->outcome == PG_REFUSED &&
           (strcmp(conn->sqlstate, "26000") == 0 || strcmp(conn->sqlstate, "42P05") == 0 ||
            strcmp(conn->sqlstate, "0A000") == 0);
}

static uint64_t text_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return hash;
}

/* ---- the list ------------------------------------------------------------------------------ */

static pg_prepared *entry_add(pg_conn *conn, const char *sql)
{
    WEIR_ASSERT(conn->prepared_count < sizeof conn->prepared / sizeof conn->prepared[0]);
    pg_prepared *p = &conn->prepared[conn->prepared_count++];
    *p = (pg_prepared){ .sql = sql };
    return p;
}

/* The last one takes its place. After the connection was lost there is none. */
static void entry_drop(pg_conn *conn, pg_prepared *p)
{
    if (conn->prepared_count > 0) {
        weir__free(p->text);
        *p = conn->prepared[--conn->prepared_count];
    }
}

void weir__pg_prepared_forget(pg_conn *conn)
{
    while (conn->prepared_count > 0) {
        weir__free(conn->prepared[--conn->prepared_count].text);
    }
}

static pg_prepared *constant_entry(pg_conn *conn, const char *sql)
{
    for (size_t i = 0; i < conn->prepared_count; i++) {
        if (conn->prepared[i].sql == sql) {
            return &conn->prepared[i];
        }
    }
    return entry_add(conn, sql);
}

/* ---- running under a name ------------------------------------------------------------------ */

/* A prepare that was not answered has done nothing. */
static weir_status entry_prepare(pg_conn *conn, pg_prepared *p, const pg_sending *s,
                                 weir_error *err)
{
    PGresult *result = NULL;
    (void)snprintf(p->name, sizeof p->name, "weir_%016" PRIx64 "_%u", text_hash(s->text),
                   conn->prepared_again);
    const int sent = pq.PQsendPrepare(conn->raw, p->name, s->text, s->plain.count, s->plain.types);
    const weir_status status = weir__pg_collect(conn, sent, s->deadline_us, &result, err);
    pq.PQclear(result);
    p->named = status == WEIR_OK;
    if (conn->outcome != PG_LOST) {
        return status;
    }
    conn->outcome = PG_NOT_SENT;
    return weir__wrap(err, WEIR_EUNAVAILABLE, "could not prepare a statement");
}

/* *gone: its name is of no use any more, and nothing has happened. */
static weir_status entry_run(pg_conn *conn, pg_prepared *p, const pg_sending *s, PGresult **result,
                             bool *gone, weir_error *err)
{
    weir_status status = p->named ? WEIR_OK : entry_prepare(conn, p, s, err);
    const bool named = status == WEIR_OK;
    if (named) {
        const pg_plain *plain = &s->plain;
        const int sent = pq.PQsendQueryPrepared(conn->raw, p->name, plain->count, plain->values,
                                                plain->lengths, plain->formats, (int)s->format);
        status = weir__pg_collect(conn, sent, s->deadline_us, result, err);
    }
    *gone = is_gone(conn);
    if (*gone) {
        conn->prepared_again++;
    }
    if (*gone || !named) {
        entry_drop(conn, p);
    }
    return status;
}

weir_status weir__pg_run(pg_conn *conn, const pg_call *call, PGresult **result, weir_error *err)
{
    pg_values values;
    bool gone = false;
    const char *text = weir__pg_text_of(conn, call->sql, err);
    *result = NULL;
    if (text == NULL) {
        return WEIR_ENOMEM;
    }
    weir_status status = weir__pg_send_begin(conn, call->params, err);
    if (status != WEIR_OK) {
        return status;
    }
    const int64_t answer_us = call->answer_us == 0 ? conn->database->answer_us : call->answer_us;
    const pg_sending s = { .text = text,
                           .plain = weir__pg_plain_of(call->params, &values),
                           .format = PG_BINARY,
                           .deadline_us = weir__pg_deadline_us(answer_us) };
    if (!conn_prepares(conn)) {
        return weir__pg_send(conn, &s, result, err);
    }
    status = entry_run(conn, constant_entry(conn, call->sql), &s, result, &gone, err);
    if (gone) {
        /* All of them under other names from here on. This statement goes without one, once; inside
         * a transaction, which has failed with it, the next one does. */
        weir__pg_prepared_forget(conn);
        if (pq.PQtransactionStatus(conn->raw) == PQTRANS_IDLE) {
            status = weir__pg_send(conn, &s, result, err);
        }
    }
    return status;
}

/* ---- texts that come again ----------------------------------------------------------------- */

static bool text_is_worth(const pg_conn *conn, const char *sql, const pg_plain *plain)
{
    bool texts = true; /* values of a type of their own would be part of what is prepared */
    for (int i = 0; i < plain->count && texts; i++) {
        texts = plain->types[i] == 0;
    }
    return texts && conn_prepares(conn) && strlen(sql) <= TEXT_BYTES_MAX;
}

/* NULL: it did not come before. */
static pg_prepared *text_entry(pg_conn *conn, const char *sql)
{
    for (size_t i = 0; i < conn->prepared_count; i++) {
        if (conn->prepared[i].text != NULL && strcmp(conn->prepared[i].text, sql) == 0) {
            return &conn->prepared[i];
        }
    }
    return NULL;
}

/* The one least lately used, if there is no room for another. */
static pg_prepared *text_oldest(pg_conn *conn)
{
    pg_prepared *oldest = NULL;
    size_t count = 0;
    for (size_t i = 0; i < conn->prepared_count; i++) {
        pg_prepared *p = &conn->prepared[i];
        if (p->text != NULL) {
            count++;
            oldest = oldest == NULL || p->used < oldest->used ? p : oldest;
        }
    }
    return count < PG_TEXTS_MAX ? NULL : oldest;
}

/* What was not prepared has nothing in the server; the rest would stay there. */
static weir_status text_give_way(pg_conn *conn, pg_prepared *p, int64_t answer_us, weir_error *err)
{
    char sql[sizeof p->name + sizeof "DEALLOCATE "];
    weir_status status = WEIR_OK;
    if (p->named) {
        (void)snprintf(sql, sizeof sql, "DEALLOCATE %s", p->name);
        status = weir__pg_run_script(conn, sql, answer_us, err);
        if (status != WEIR_OK && is_gone(conn)) {
            status = WEIR_OK;
        }
    }
    entry_drop(conn, p);
    return status == WEIR_EUNKNOWN ? weir__wrap(err, WEIR_EUNAVAILABLE, "before a statement")
                                   : status;
}

/* Out of memory only means that it is not prepared the next time either. */
static weir_status text_note(pg_conn *conn, const char *sql, int64_t answer_us, weir_error *err)
{
    pg_prepared *oldest = text_oldest(conn);
    const weir_status status =
        oldest == NULL ? WEIR_OK : text_give_way(conn, oldest, answer_us, err);
    char *text = status == WEIR_OK ? weir__strndup(sql, strlen(sql)) : NULL;
    if (text != NULL) {
        pg_prepared *p = entry_add(conn, text);
        p->text = text; /* moved */
        p->used = ++conn->prepared_used;
    }
    return status;
}

weir_status weir__pg_run_again(pg_conn *conn, const char *sql, const pg_plain *plain,
                               int64_t answer_us, PGresult **result, weir_error *err)
{
    const bool worth = text_is_worth(conn, sql, plain);
    pg_prepared *p = worth ? text_entry(conn, sql) : NULL;
    weir_status status = WEIR_OK;
    *result = NULL;
    if (p != NULL) {
        bool gone = false;
        p->used = ++conn->prepared_used;
        status = weir__pg_send_begin(conn, NULL, err);
        if (status == WEIR_OK) {
            const pg_sending s = { .text = sql,
                                   .plain = *plain,
                                   .deadline_us = weir__pg_deadline_us(answer_us) };
            status = entry_run(conn, p, &s, result, &gone, err);
        }
        if (!gone) {
            return status;
        }
    } else if (worth) {
        status = text_note(conn, sql, answer_us, err);
    }
    return status == WEIR_OK || p != NULL
               ? weir__pg_run_plain(conn, sql, plain, answer_us, result, err)
               : status;
}
