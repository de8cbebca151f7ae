/* table_postgres.c - the port to tables on PostgreSQL: a connection for each session, made by
 * the driver (pg/) for a database that need not have a store.
 *
 * A statement is one round trip, and one more when it comes again and is prepared
 * (pg/prepared.c). Two kinds need a transaction around them: one that waits for locks only so
 * long (SET LOCAL lock_timeout), and any when there is a pooler in between and the role has
 * settings that results or commits would depend on.
 *
 * INVARIANTS
 *   (1) A session whose connection was lost stays without one: locks and transactions went with it,
 *       and nobody shall believe to have them still. Only where it was lost by looking at a table
 *       outside of a transaction, which has nothing to lose, another one is made at once.
 *   (2) Inside a transaction, and before COMMIT was sent, a lost connection means that nothing has
 *       happened (EUNAVAILABLE). In all other cases it is not known (EUNKNOWN).
 *   (3) lock_timeout is 0 but for the one statement that asked for another.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "store/pg_url.h"
#include "table/postgres_sql.h"
#include "table/table_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TYPES_KNOWN_MAX = 64,
    VALUES_MAX = 65535, /* the protocol counts in 16 bits */
    INTEGER_TEXT_BYTES = 24,
    SCRIPT_BYTES = PG_SETTINGS_BYTES + 96,
    STOP_GRACE_US = 5 * 1000 * 1000,
};

/* Object ids of types that params.h has no use for; they never change. */
enum {
    OID_INT2 = 21,
    OID_OID = 26,
    OID_FLOAT4 = 700,
    OID_FLOAT8 = 701,
    OID_TIMESTAMP = 1114,
    OID_TIMESTAMPTZ = 1184,
    OID_NUMERIC = 1700,
    OID_JSONB = 3802,
};

extern const table_ops weir__table_postgres_ops;

typedef struct postgres_db {
    table_db base;
    pg_database database; /* its texts are those of base.url */
} postgres_db;

/* What was found out about a type. */
typedef struct known_type {
    Oid type;
    Oid element; /* 0: it is no array */
} known_type;

typedef struct postgres_session {
    table_session base;
    pg_conn conn;          /* not adopted */
    PGconn *given;         /* adopted: borrowed */
    int64_t answer_us;     /* how long a statement may take, apart from waiting */
    bool lock_timeout_set; /* in the transaction that is open */
    known_type types[TYPES_KNOWN_MAX];
    size_t types_count;
} postgres_session;

static postgres_db *db_of(table_db *base)
{
    return (postgres_db *)(void *)base;
}

static postgres_session *session_of(table_session *base)
{
    return (postgres_session *)(void *)base;
}

static PGconn *raw_of(postgres_session *s)
{
    return s->base.adopted ? s->given : s->conn.raw;
}

static void *postgres_native(table_session *base)
{
    return raw_of(session_of(base));
}

static int session_fd(table_session *base)
{
    const PGconn *raw = raw_of(session_of(base));
    return raw == NULL ? -1 : pq.PQsocket(raw);
}

static bool in_transaction(table_session *base)
{
    const PGconn *raw = raw_of(session_of(base));
    return raw != NULL && pq.PQtransactionStatus(raw) != PQTRANS_IDLE &&
           pq.PQtransactionStatus(raw) != PQTRANS_UNKNOWN;
}

static weir_status connection_gone(weir_error *err)
{
    return weir__fail(err, WEIR_EUNAVAILABLE,
                      "the connection of this session was lost; open another session");
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The parameters of one statement, as libpq wants them. */
typedef struct arguments {
    weir_arena arena;
    pg_plain plain;
} arguments;

static const char *value_text(weir_arena *arena, const table_value *value)
{
    char digits[INTEGER_TEXT_BYTES];
    switch (value->kind) {
    case TABLE_NULL:
        return NULL;
    case TABLE_INTEGER:
        (void)snprintf(digits, sizeof digits, "%" PRId64, value->number);
        return weir__arena_copy(arena, digits, strlen(digits));
    case TABLE_TEXT:
    case TABLE_BYTES:
        break;
    }
    return weir__arena_copy(arena, value->text.len == 0 ? "" : value->text.ptr, value->text.len);
}

/* Texts have no type of their own: the statement decides what they are. */
static weir_status arguments_fill(arguments *a, const table_statement *statement, weir_error *err)
{
    const size_t count = statement->values_count;
    if (count > VALUES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "the statement has %zu values, allowed are %d", count,
                          VALUES_MAX);
    }
    Oid *types = weir__arena_alloc(&a->arena, (count + 1) * sizeof *types);
    const char **values = weir__arena_alloc(&a->arena, (count + 1) * sizeof *values);
    int *lengths = weir__arena_alloc(&a->arena, (count + 1) * sizeof *lengths);
    int *formats = weir__arena_alloc(&a->arena, (count + 1) * sizeof *formats);
    bool ok = types != NULL && values != NULL && lengths != NULL && formats != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        const table_value *value = &statement->values[i];
        const bool bytes = value->kind == TABLE_BYTES;
        types[i] = bytes ? PG_OID_BYTEA : 0;
        formats[i] = bytes ? 1 : 0;
        lengths[i] = bytes ? (int)value->text.len : 0;
        values[i] = value_text(&a->arena, value);
        ok = (values[i] != NULL || value->kind == TABLE_NULL) && value->text.len <= INT32_MAX;
    }
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the parameters of a statement");
    }
    a->plain = (pg_plain){ .count = (int)count,
                           .types = types,
                           .values = values,
                           .lengths = lengths,
                           .formats = formats };
    return WEIR_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The one result of what was sent, or NULL. Waits as long as it takes; once `w` is stopped the
 * statement is cancelled. */
static PGresult *await_given(PGconn *given, pg_wait *w)
{
    const char *why = NULL;
    int64_t cancelled_us = 0;
    PGresult *kept = NULL;
    for (;;) {
        /* When it cannot be cancelled either, libpq waits. */
        while (!weir__pg_await(given, w, &why) && pg_mono_us() >= w->deadline_us &&
               weir__pg_cancel(given, w, &cancelled_us)) {
        }
        PGresult *result = pq.PQgetResult(given);
        if (result == NULL) {
            return kept;
        }
        pq.PQclear(kept);
        kept = result;
    }
}

/* On the caller's own connection, with all the time it takes. */
static weir_status send_given(PGconn *given, const char *sql, const pg_plain *p, pg_wait *w,
                              PGresult **out, weir_error *err)
{
    PGresult *before = NULL;
    while ((before = pq.PQgetResult(given)) != NULL) {
        pq.PQclear(before); /* what the caller has left unread, as PQexecParams does */
    }
    const int sent =
        pq.PQsendQueryParams(given, sql, p->count, p->types, p->values, p->lengths, p->formats, 0);
    PGresult *result = sent == 1 ? await_given(given, w) : NULL;
    const ExecStatusType type = pq.PQresultStatus(result);
    if (type == PGRES_TUPLES_OK || type == PGRES_COMMAND_OK || type == PGRES_EMPTY_QUERY) {
        *out = result;
        return WEIR_OK;
    }
    const weir_status status =
        pq.PQstatus(given) != CONNECTION_OK
            ? weir__fail(err, WEIR_EUNKNOWN,
                         "the connection given was lost: it is not known what happened")
            : weir__pg_foreign_status(result, err);
    pq.PQclear(result);
    return status;
}

static int64_t answer_time(const postgres_session *s, int64_t wait_us)
{
    return wait_us < 0 || wait_us > INT64_MAX - s->answer_us ? INT64_MAX : s->answer_us + wait_us;
}

/* Who waits for others is stopped at once; what works has some time to end by itself. */
static int64_t grace_of(const table_statement *statement)
{
    return statement->wait_us != 0 ? 0 : STOP_GRACE_US;
}

/* keep: outside of transactions; it may be prepared. */
static weir_status command_send(postgres_session *s, const table_statement *statement,
                                const pg_plain *plain, bool keep, PGresult **out, weir_error *err)
{
    const int64_t answer_us = answer_time(s, statement->wait_us);
    if (s->base.adopted) {
        pg_wait wait = { .deadline_us = INT64_MAX,
                         .stop = s->base.stop,
                         .grace_us = grace_of(statement) };
        return send_given(s->given, statement->sql, plain, &wait, out, err);
    }
    s->conn.stop = s->base.stop;
    s->conn.stop_grace_us = grace_of(statement);
    const weir_status status =
        keep ? weir__pg_run_again(&s->conn, statement->sql, plain, answer_us, out, err)
             : weir__pg_run_plain(&s->conn, statement->sql, plain, answer_us, out, err);
    s->conn.stop = NULL; /* how a transaction ends is left alone */
    return status;
}

/* What cannot have been committed is known: it did not happen. */
static weir_status transaction_undone(weir_status status, weir_error *err)
{
    return status == WEIR_EUNKNOWN
               ? weir__wrap(err, WEIR_EUNAVAILABLE, "the transaction was undone")
               : status;
}

/* Statements without parameters or results. */
static weir_status postgres_script(postgres_session *s, const char *sql, weir_error *err)
{
    if (!s->base.adopted) {
        return weir__pg_run_script(&s->conn, sql, s->answer_us, err);
    }
    PGresult *result = pq.PQexec(s->given, sql);
    const weir_status status = pq.PQstatus(s->given) != CONNECTION_OK
                                   ? weir__fail(err, WEIR_EUNKNOWN, "the connection given was lost")
                               : pq.PQresultStatus(result) == PGRES_FATAL_ERROR
                                   ? weir__pg_foreign_status(result, err)
                                   : WEIR_OK;
    pq.PQclear(result);
    return status;
}

/* In whole milliseconds, and 0 would be no limit. */
static int64_t timeout_ms(int64_t wait_us)
{
    const int64_t ms = wait_us / 1000;
    return ms < 1 ? 1 : ms > INT32_MAX ? INT32_MAX : ms;
}

static weir_status transaction_begin(postgres_session *s, int64_t wait_us, weir_error *err)
{
    char sql[SCRIPT_BYTES];
    char timeout[64] = "";
    if (wait_us > 0) {
        (void)snprintf(timeout, sizeof timeout, "; SET LOCAL lock_timeout = %" PRId64,
                       timeout_ms(wait_us));
    }
    (void)snprintf(sql, sizeof sql, "BEGIN%s%s%s", s->conn.settings[0] == '\0' ? "" : "; ",
                   s->conn.settings, timeout);
    s->lock_timeout_set = wait_us > 0;
    const weir_status status = postgres_script(s, sql, err);
    return status == WEIR_EUNKNOWN
               ? weir__wrap(err, WEIR_EUNAVAILABLE, "could not begin a transaction")
               : status;
}

static void transaction_end(postgres_session *s)
{
    s->lock_timeout_set = false;
    if (in_transaction(&s->base) && postgres_script(s, "ROLLBACK", NULL) != WEIR_OK &&
        !s->base.adopted) {
        weir__pg_disconnect(&s->conn); /* the end of a session undoes what is open in it */
    }
}

static weir_status transaction_commit(postgres_session *s, weir_error *err)
{
    s->lock_timeout_set = false;
    if (pq.PQtransactionStatus(raw_of(s)) == PQTRANS_INERROR) {
        /* COMMIT would be answered with ROLLBACK, and no error. */
        transaction_end(s);
        return weir__fail(err, WEIR_EIO,
                          "a statement of the transaction had failed: it was rolled back");
    }
    return postgres_script(s, "COMMIT", err);
}

/* One statement in a transaction of its own. */
static weir_status send_wrapped(postgres_session *s, const table_statement *statement,
                                const pg_plain *plain, PGresult **out, weir_error *err)
{
    weir_status status = transaction_begin(s, statement->wait_us, err);
    if (status != WEIR_OK) {
        transaction_end(s);
        return status;
    }
    status = transaction_undone(command_send(s, statement, plain, false, out, err), err);
    if (status == WEIR_OK) {
        status = transaction_commit(s, err);
    }
    if (status != WEIR_OK) {
        transaction_end(s);
        pq.PQclear(*out);
        *out = NULL;
    }
    return status;
}

/* Of this statement alone: the next one sets it back. */
static weir_status lock_timeout(postgres_session *s, int64_t wait_us, weir_error *err)
{
    char sql[64];
    /* After a failure only the way back is open, to a savepoint perhaps: the next one sets it. */
    if ((wait_us <= 0 && !s->lock_timeout_set) ||
        pq.PQtransactionStatus(raw_of(s)) == PQTRANS_INERROR) {
        return WEIR_OK;
    }
    (void)snprintf(sql, sizeof sql, "SET LOCAL lock_timeout = %" PRId64,
                   wait_us > 0 ? timeout_ms(wait_us) : 0);
    s->lock_timeout_set = wait_us > 0;
    return transaction_undone(postgres_script(s, sql, err), err);
}

/* A lock that is granted in the moment in which lock_timeout ends is, to the server, a statement
 * that somebody has cancelled (57014). Before the answer was due, that is what it was taken for. */
static weir_status too_late(const postgres_session *s, const table_statement *statement,
                            weir_status status, int64_t started_us, weir_error *err)
{
    const int64_t passed_us = weir__clock_mono(weir__clock_machine()) - started_us;
    const bool cancelled = status == WEIR_EIO && strcmp(err->store_code, "57014") == 0;
    if (cancelled && weir__stop_is_set(s->base.stop)) {
        return weir__table_stopped(err);
    }
    return cancelled && statement->wait_us > 0 && (s->base.adopted || passed_us < s->answer_us)
               ? weir__wrap(err, WEIR_EHELD, "a lock was not to be had in time")
               : status;
}

/* In a transaction of the caller's: what lock_timeout was there, it is again afterwards. */
static weir_status send_inside_given(postgres_session *s, const table_statement *statement,
                                     const pg_plain *plain, PGresult **out, weir_error *err)
{
    char back[96] = "";
    weir_status status = WEIR_OK;
    if (statement->wait_us > 0) {
        PGresult *shown = pq.PQexec(s->given, "SHOW lock_timeout");
        if (pq.PQresultStatus(shown) == PGRES_TUPLES_OK) {
            (void)snprintf(back, sizeof back, "SET LOCAL lock_timeout = '%s'",
                           pq.PQgetvalue(shown, 0, 0));
        }
        pq.PQclear(shown);
        status = lock_timeout(s, statement->wait_us, err);
        s->lock_timeout_set = false;
    }
    if (status == WEIR_OK) {
        status = command_send(s, statement, plain, false, out, err);
    }
    /* After a failure the transaction can only be undone, and the setting with it. */
    if (status == WEIR_OK && back[0] != '\0') {
        status = postgres_script(s, back, err);
    }
    return transaction_undone(status, err);
}

static weir_status send_inside(postgres_session *s, const table_statement *statement,
                               const pg_plain *plain, PGresult **out, weir_error *err)
{
    if (s->base.adopted) {
        return send_inside_given(s, statement, plain, out, err);
    }
    const weir_status status = lock_timeout(s, statement->wait_us, err);
    return status != WEIR_OK
               ? status
               : transaction_undone(command_send(s, statement, plain, false, out, err), err);
}

/* ---- results --------------------------------------------------------------------------------- */

static table_shape shape_of(Oid type)
{
    switch (type) {
    case PG_OID_BOOL:
        return TABLE_SHAPE_BOOL;
    case PG_OID_BYTEA:
        return TABLE_SHAPE_BYTES;
    case OID_INT2:
    case PG_OID_INT4:
    case PG_OID_INT8:
    case OID_OID:
    case OID_FLOAT4:
    case OID_FLOAT8:
    case OID_NUMERIC:
        return TABLE_SHAPE_NUMBER;
    case PG_OID_JSON:
    case OID_JSONB:
        return TABLE_SHAPE_JSON;
    case OID_TIMESTAMPTZ:
        return TABLE_SHAPE_TIME;
    case OID_TIMESTAMP:
        return TABLE_SHAPE_TIME_BARE;
    default:
        return TABLE_SHAPE_TEXT;
    }
}

/* The element type of arrays that are common enough not to ask for it. */
static Oid common_element(Oid type)
{
    static const struct {
        Oid array, element;
    } common[] = {
        { PG_OID_BOOL_ARRAY, PG_OID_BOOL },
        { PG_OID_BYTEA_ARRAY, PG_OID_BYTEA },
        { PG_OID_INT4_ARRAY, PG_OID_INT4 },
        { PG_OID_INT8_ARRAY, PG_OID_INT8 },
        { PG_OID_TEXT_ARRAY, PG_OID_TEXT },
        { PG_OID_JSON_ARRAY, PG_OID_JSON },
        { 1005, OID_INT2 },
        { 1015, PG_OID_TEXT }, /* varchar */
        { 1021, OID_FLOAT4 },
        { 1022, OID_FLOAT8 },
        { 1115, OID_TIMESTAMP },
        { 1185, OID_TIMESTAMPTZ },
        { 1231, OID_NUMERIC },
        { 2951, PG_OID_TEXT }, /* uuid */
        { 3807, OID_JSONB },
    };
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        if (common[i].array == type) {
            return common[i].element;
        }
    }
    return 0;
}

/* Asks the catalog, once for each type. *element: 0 when it is no array. */
static weir_status ask_element(postgres_session *s, Oid type, Oid *element, weir_error *err)
{
    char digits[INTEGER_TEXT_BYTES];
    const char *value = digits;
    const int zero = 0;
    const Oid unknown = 0;
    PGresult *result = NULL;
    for (size_t i = 0; i < s->types_count; i++) {
        if (s->types[i].type == type) {
            *element = s->types[i].element;
            return WEIR_OK;
        }
    }
    (void)snprintf(digits, sizeof digits, "%u", type);
    const pg_plain plain = {
        .count = 1, .types = &unknown, .values = &value, .lengths = &zero, .formats = &zero
    };
    const table_statement asked = { .sql = sql_postgres_element };
    const weir_status status = command_send(s, &asked, &plain, false, &result, err);
    if (status != WEIR_OK) {
        return transaction_undone(status, err); /* it only reads */
    }
    *element = pq.PQntuples(result) == 0 ? 0 : (Oid)strtoul(pq.PQgetvalue(result, 0, 0), NULL, 10);
    pq.PQclear(result);
    if (s->types_count < TYPES_KNOWN_MAX) {
        s->types[s->types_count++] = (known_type){ .type = type, .element = *element };
    }
    return WEIR_OK;
}

/* A text with braces around it is an array, if its type is one. */
static bool looks_like_array(const PGresult *result, int column)
{
    for (int row = 0; row < pq.PQntuples(result); row++) {
        const char first =
            pq.PQgetisnull(result, row, column) != 0 ? '\0' : pq.PQgetvalue(result, row, column)[0];
        if (first == '{' || first == '[') {
            return true;
        }
    }
    return false;
}

static weir_status column_shape(postgres_session *s, const PGresult *result, int column,
                                table_cell *model, weir_error *err)
{
    const Oid type = pq.PQftype(result, column);
    Oid element = common_element(type);
    *model = (table_cell){ .shape = shape_of(type) };
    if (element == 0 && model->shape == TABLE_SHAPE_TEXT && type != PG_OID_TEXT &&
        looks_like_array(result, column)) {
        const weir_status status = ask_element(s, type, &element, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (element != 0) {
        *model = (table_cell){ .shape = TABLE_SHAPE_ARRAY, .element = shape_of(element) };
    }
    return WEIR_OK;
}

static bool copy_cell(const PGresult *result, int row, int column, weir_arena *arena,
                      table_cell *cell)
{
    cell->null = pq.PQgetisnull(result, row, column) != 0;
    if (cell->null) {
        return true;
    }
    const weir_str text = { .ptr = pq.PQgetvalue(result, row, column),
                            .len = (size_t)pq.PQgetlength(result, row, column) };
    char *copy = weir__arena_copy(arena, text.ptr, text.len);
    cell->text = (weir_str){ .ptr = copy, .len = text.len };
    return copy != NULL && (cell->shape != TABLE_SHAPE_BYTES ||
                            weir__table_bytes_decode(text, copy, &cell->text.len));
}

static int64_t rows_written(PGresult *result)
{
    int64_t rows = 0;
    const char *tag = pq.PQcmdStatus(result);
    if (strncmp(tag, "SELECT", 6) != 0 && strncmp(tag, "FETCH", 5) != 0) {
        (void)weir__str_to_i64(weir__str(pq.PQcmdTuples(result)), &rows);
    }
    return rows;
}

static weir_status result_fill(postgres_session *s, PGresult *result, table_result *r,
                               weir_error *err)
{
    const size_t columns = (size_t)pq.PQnfields(result);
    const size_t rows = (size_t)pq.PQntuples(result);
    weir_str *names = weir__arena_alloc(&r->arena, (columns + 1) * sizeof *names);
    table_cell *models = weir__arena_alloc(&r->arena, (columns + 1) * sizeof *models);
    table_cell *cells = weir__arena_alloc(&r->arena, (columns * rows + 1) * sizeof *cells);
    bool ok = names != NULL && models != NULL && cells != NULL;
    for (size_t i = 0; i < columns && ok; i++) {
        const weir_str name = weir__str(pq.PQfname(result, (int)i));
        names[i] =
            (weir_str){ .ptr = weir__arena_copy(&r->arena, name.ptr, name.len), .len = name.len };
        ok = names[i].ptr != NULL;
        const weir_status status = column_shape(s, result, (int)i, &models[i], err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < columns * rows && ok; i++) {
        cells[i] = models[i % columns];
        ok = copy_cell(result, (int)(i / columns), (int)(i % columns), &r->arena, &cells[i]);
    }
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate the rows of a result");
    }
    r->names = names;
    r->columns_count = columns;
    r->cells = cells;
    r->rows_count = rows;
    r->changed = rows_written(result);
    return WEIR_OK;
}

/* ---- the port -------------------------------------------------------------------------------- */

static weir_status postgres_run(table_session *base, const table_statement *statement,
                                table_result *result, weir_error *err)
{
    postgres_session *s = session_of(base);
    arguments a = { 0 };
    PGresult *answer = NULL;
    weir_error local = { 0 };
    err = err == NULL ? &local : err;
    if (raw_of(s) == NULL) {
        return connection_gone(err);
    }
    const bool inside = in_transaction(base);
    const int64_t started_us = weir__clock_mono(weir__clock_machine());
    weir_status status = arguments_fill(&a, statement, err);
    if (status == WEIR_OK && inside) {
        status = send_inside(s, statement, &a.plain, &answer, err);
    } else if (status == WEIR_OK && (statement->wait_us > 0 || s->conn.settings[0] != '\0')) {
        status = send_wrapped(s, statement, &a.plain, &answer, err);
    } else if (status == WEIR_OK) {
        status = command_send(s, statement, &a.plain, statement->again, &answer, err);
    }
    status = too_late(s, statement, status, started_us, err);
    if (status == WEIR_OK && result != NULL) {
        status = result_fill(s, answer, result, err);
        if (status != WEIR_OK) {
            weir__table_result_clear(result);
            if (!inside) {
                /* It stands, and what it gave cannot be told. */
                status = weir__wrap(err, WEIR_EUNKNOWN, "the statement was done");
            }
        }
    }
    pq.PQclear(answer);
    weir__arena_free(&a.arena);
    return status;
}

static weir_status postgres_begin(table_session *base, weir_error *err)
{
    postgres_session *s = session_of(base);
    if (s->conn.raw == NULL) {
        return connection_gone(err);
    }
    const weir_status status = transaction_begin(s, 0, err);
    if (status != WEIR_OK) {
        transaction_end(s);
    }
    return status;
}

static weir_status postgres_commit(table_session *base, weir_error *err)
{
    postgres_session *s = session_of(base);
    if (s->conn.raw == NULL) {
        return connection_gone(err);
    }
    if (!in_transaction(base)) {
        return weir__fail(err, WEIR_EMISUSE, "no transaction is open: nothing was committed");
    }
    return transaction_commit(s, err);
}

static void postgres_rollback(table_session *base)
{
    transaction_end(session_of(base));
}

/* ---- what a table looks like ----------------------------------------------------------------- */

static bool cell_true(const table_result *r, size_t row, size_t column)
{
    return weir__str_equal(weir__table_cell_text(r, row, column), weir__str("t"));
}

static const char *kind_of(char relkind)
{
    switch (relkind) {
    case 'v':
        return "a view";
    case 'm':
        return "a materialized view";
    case 'f':
        return "a foreign table";
    case 'S':
        return "a sequence";
    case 'c':
        return "a composite type";
    case 'i':
    case 'I':
        return "an index";
    default:
        return NULL;
    }
}

static weir_status postgres_ask(postgres_session *s, const char *sql, weir_str name,
                                table_result *r, weir_error *err)
{
    const table_value value = { .kind = TABLE_TEXT, .text = name };
    const table_statement statement = { .sql = sql,
                                        .values = &value,
                                        .values_count = name.len > 0 ? 1 : 0 };
    const weir_status status = weir__table_run(&s->base, &statement, r, err);
    return status == WEIR_EUNKNOWN ? weir__pg_lost_nothing("looking at a table", err) : status;
}

/* The same, over other connections until the time is up, if one is lost meanwhile. */
static weir_status ask_again(postgres_session *s, const char *sql, weir_str name, table_result *r,
                             weir_error *err)
{
    const bool alone = !s->base.adopted && s->conn.raw != NULL && !in_transaction(&s->base);
    const int64_t deadline_us =
        alone ? weir__clock_mono(weir__clock_machine()) + s->conn.database->busy_us : 0;
    weir_status status = postgres_ask(s, sql, name, r, err);
    for (int attempt = 0; alone && status == WEIR_EUNAVAILABLE && s->conn.raw == NULL; attempt++) {
        const int64_t pause_us = weir__pg_pause_us(attempt, deadline_us);
        if (pause_us == 0 || weir__stop_is_set(s->base.stop)) {
            break;
        }
        weir__clock_pause(pause_us);
        status = weir__pg_connect(s->conn.database, &s->conn, NULL, err);
        status = status == WEIR_OK ? postgres_ask(s, sql, name, r, err) : status;
    }
    return status;
}

static weir_status not_found(postgres_session *s, const table_name *name, table_result *r,
                             weir_error *err)
{
    const weir_status status = postgres_ask(s, sql_postgres_tables, (weir_str){ 0 }, r, err);
    return status == WEIR_OK ? weir__table_not_found(name, r, err) : status;
}

static bool copy_columns(const table_result *r, weir_arena *arena, table_column *columns)
{
    bool ok = true;
    for (size_t i = 0; i < r->rows_count && ok; i++) {
        int64_t key = 0;
        (void)weir__str_to_i64(weir__table_cell_text(r, i, 8), &key);
        columns[i] = (table_column){ .not_null = cell_true(r, i, 6),
                                     .generated = cell_true(r, i, 7),
                                     .key = (size_t)key };
        ok = weir__table_copy(arena, weir__table_cell_text(r, i, 4), &columns[i].name) &&
             weir__table_copy(arena, weir__table_cell_text(r, i, 5), &columns[i].type);
    }
    return ok;
}

static bool name_shown(table_info *t, weir_str schema, weir_str name, weir_arena *arena)
{
    weir_buffer text = { 0 };
    const bool ok =
        weir__buffer_add(&text, schema.ptr, schema.len) && weir__buffer_add_text(&text, ".") &&
        weir__buffer_add(&text, name.ptr, name.len) &&
        weir__table_copy(arena, (weir_str){ .ptr = text.ptr, .len = text.len }, &t->shown);
    weir__buffer_free(&text);
    return ok;
}

static weir_status describe_found(const table_result *r, weir_arena *arena, table_info *t,
                                  weir_error *err)
{
    int64_t id = 0;
    const char relkind = weir__table_cell_text(r, 0, 3).ptr[0];
    const weir_str schema = weir__table_cell_text(r, 0, 1);
    const weir_str name = weir__table_cell_text(r, 0, 2);
    table_column *columns = weir__arena_alloc(arena, (r->rows_count + 1) * sizeof *columns);
    if (columns == NULL || !name_shown(t, schema, name, arena) ||
        !copy_columns(r, arena, columns)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate what a table looks like");
    }
    const char *kind = kind_of(relkind);
    if (kind != NULL) {
        return weir__table_wrong_kind(t, kind, err);
    }
    (void)weir__str_to_i64(weir__table_cell_text(r, 0, 0), &id);
    t->id = (uint64_t)id;
    t->partitioned = relkind == 'p';
    /* A table may have no columns at all. */
    t->columns_count = weir__table_cell_text(r, 0, 4).len == 0 ? 0 : r->rows_count;
    return weir__table_finish(t, columns, schema, name, arena, err);
}

static weir_status postgres_describe(table_session *base, const table_name *name, weir_arena *arena,
                                     table_info *out, weir_error *err)
{
    postgres_session *s = session_of(base);
    table_result r = { 0 };
    table_info t = { 0 };
    weir_buffer quoted = { 0 };
    weir_status status = WEIR_OK;
    if ((name->schema.ptr != NULL &&
         !(weir__table_quote(&quoted, name->schema) && weir__buffer_add_text(&quoted, "."))) ||
        !weir__table_quote(&quoted, name->name)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a table's name");
        goto out;
    }
    status = ask_again(s, sql_postgres_describe, (weir_str){ .ptr = quoted.ptr, .len = quoted.len },
                       &r, err);
    if (status == WEIR_OK) {
        status =
            r.rows_count == 0 ? not_found(s, name, &r, err) : describe_found(&r, arena, &t, err);
    }
    if (status == WEIR_OK) {
        *out = t;
    }
out:
    weir__buffer_free(&quoted);
    weir__table_result_free(&r);
    return status;
}

/* ---- sessions and databases ------------------------------------------------------------------ */

static void session_close(table_session *base)
{
    postgres_session *s = session_of(base);
    if (!base->adopted) {
        weir__pg_disconnect(&s->conn);
    }
    weir__free(s);
}

static weir_status session_new(postgres_session **out, weir_error *err)
{
    postgres_session *s = weir__calloc(1, sizeof *s);
    if (s == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a session");
    }
    s->base.ops = &weir__table_postgres_ops;
    s->answer_us = PG_ANSWER_US_LONG;
    *out = s;
    return WEIR_OK;
}

static weir_status session_open(table_db *base, table_session **out, weir_error *err)
{
    pg_database *database = &db_of(base)->database;
    postgres_session *s = NULL;
    weir_status status = session_new(&s, err);
    if (status != WEIR_OK) {
        return status;
    }
    s->answer_us = database->answer_us;
    status = weir__pg_connect_first(database, &s->conn, NULL, err);
    if (status != WEIR_OK) {
        weir__free(s);
        return status;
    }
    *out = &s->base;
    return WEIR_OK;
}

weir_status weir__table_postgres_open(table_db **out, store_url *url, weir_error *err)
{
    postgres_db *db = weir__calloc(1, sizeof *db);
    if (db == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a database handle");
    }
    const weir_status status =
        weir__pg_url_database(&db->database, &url->options, &weir__pg_guest, NULL, err);
    if (status != WEIR_OK) {
        weir__free(db);
        return status;
    }
    db->base.ops = &weir__table_postgres_ops;
    db->base.url = *url;
    *url = (store_url){ 0 };
    *out = &db->base;
    return WEIR_OK;
}

/* Settings are not ours to change here, and without these, results would not be what they seem. */
static weir_status check_settings(PGconn *given, weir_error *err)
{
    static const struct {
        const char *name, *value;
    } needed[] = { { "client_encoding", "UTF8" },
                   { "DateStyle", "ISO" },
                   { "IntervalStyle", "postgres" } };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const char *value = pq.PQparameterStatus(given, needed[i].name);
        if (value != NULL && strncmp(value, needed[i].value, strlen(needed[i].value)) != 0) {
            return weir__fail(err, WEIR_EMISUSE, "%s of the connection given is %s: set it to %s",
                              needed[i].name, value, needed[i].value);
        }
    }
    return WEIR_OK;
}

weir_status weir__table_postgres_adopt(table_session **out, void *given, weir_error *err)
{
    postgres_session *s = NULL;
    weir_status status = weir__libpq_load(err);
    if (status == WEIR_OK && pq.PQstatus(given) != CONNECTION_OK) {
        status = weir__fail(err, WEIR_EUNAVAILABLE, "the connection given is lost");
    }
    if (status == WEIR_OK) {
        status = check_settings(given, err);
    }
    if (status == WEIR_OK) {
        status = session_new(&s, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    s->base.adopted = true;
    s->given = given;
    *out = &s->base;
    return WEIR_OK;
}

const table_ops weir__table_postgres_ops = {
    .dialect = TABLE_POSTGRES,
    .session_open = session_open,
    .session_close = session_close,
    .db_close = weir__table_db_free,
    .native = postgres_native,
    .fd = session_fd,
    .in_transaction = in_transaction,
    .begin = postgres_begin,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .run = postgres_run,
    .describe = postgres_describe,
};
