/* claim.c - weir_claim_rows and what belongs to it: claims on tables of the caller's own.
 *
 * A handle keeps sessions that nobody uses and opens another when there is none: calls that run at
 * the same time never share a connection. One that has lost its connection is dropped.
 *
 * THREADS  `mu` guards the list of free sessions, and nothing is called while it is held.
 */
#include "claim/claim.h"
#include "api/api.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/stop.h"
#include "base/str.h"
#include "base/struct.h"
#include "base/thread.h"

#include <inttypes.h>
#include <string.h>

enum { SESSIONS_KEPT_MAX = 8 };

typedef struct tables_core {
    /* immutable */
    table_db *db; /* owned; NULL: the session is on a connection of the caller's */
    uint32_t fork_generation;

    weir_stop stop; /* set when the handle is closed: what waits ends */

    weir_mutex mu;
    /* guarded by mu */
    table_session *free[SESSIONS_KEPT_MAX]; /* owned */
    size_t free_count;
} tables_core;

struct weir_rows {
    weir_arena arena; /* what follows */
    weir_str *json;
    table_result result;
    table_value *keys; /* row after row */
    size_t key_count;
    bool has_fence;
    int64_t *fences;
    weir_str *times;       /* of the claims; may be empty */
    finish_request finish; /* what is the same for all of them */
};

/* ---- handles -------------------------------------------------------------------------------- */

/* A weir_tables * is a ticket (base/handle.h). weir__handle_leave ends it. */
static weir_status tables_enter(const weir_tables *t, tables_core **out, weir_error *err)
{
    if (t == NULL) {
        return weir__fail(err, WEIR_EINVAL, "weir_tables is NULL");
    }
    tables_core *c = weir__handle_enter(HANDLE_TABLES, t);
    if (c == NULL) {
        return weir__fail(err, WEIR_EMISUSE, "this is not a handle, or it was closed");
    }
    if (c->fork_generation != weir__fork_generation()) {
        weir__handle_leave(t);
        return weir__fail(err, WEIR_EMISUSE,
                          "this handle was opened before a fork; open another in the child");
    }
    *out = c;
    return WEIR_OK;
}

static weir_status tables_new(tables_core **out, weir_error *err)
{
    tables_core *t = weir__calloc(1, sizeof *t);

    if (t == NULL || !weir__mutex_init(&t->mu)) {
        weir__free(t);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle on tables");
    }
    if (!weir__stop_init(&t->stop)) {
        weir__mutex_destroy(&t->mu);
        weir__free(t);
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a handle on tables");
    }
    t->fork_generation = weir__fork_generation();
    *out = t;
    return WEIR_OK;
}

/* After the last call. */
static void tables_end(void *object)
{
    tables_core *t = object;
    /* In a forked child the connections belong to the parent. */
    if (t->fork_generation == weir__fork_generation()) {
        for (size_t i = 0; i < t->free_count; i++) {
            weir__table_session_close(t->free[i]);
        }
        weir__table_close(t->db);
    }
    weir__stop_destroy(&t->stop);
    weir__mutex_destroy(&t->mu);
    weir__free(t);
}

/* t: moved; may be NULL when status says so. */
static weir_status tables_give(tables_core *t, weir_status status, weir_tables **out,
                               weir_error *err)
{
    weir_tables *ticket =
        status == WEIR_OK ? weir__handle_open(HANDLE_TABLES, t, tables_end) : NULL;
    if (status == WEIR_OK && ticket == NULL) {
        status = weir__fail(err, WEIR_EBUSY, "%d handles are open already", HANDLES_MAX);
    }
    if (status != WEIR_OK) {
        if (t != NULL) {
            tables_end(t);
        }
        return status;
    }
    *out = ticket;
    return WEIR_OK;
}

int32_t weir_tables_open(const weir_tables_options *options, weir_tables **out, weir_error *err)
{
    weir_tables_options o = { 0 };
    tables_core *t = NULL;
    weir_status status = weir__struct_copy(&o, sizeof o, options, "weir_tables_options", err);

    if (status == WEIR_OK && (out == NULL || o.flags != 0 || o.url == NULL)) {
        status = weir__fail(err, WEIR_EINVAL,
                            out == NULL     ? "out is NULL"
                            : o.url == NULL ? "url is NULL"
                                            : "unknown flags");
    }
    if (status == WEIR_OK) {
        status = tables_new(&t, err);
    }
    if (status == WEIR_OK) {
        const table_options given = { .url = o.url, .application = weir__str(o.application) };
        status = weir__table_open(&t->db, &given, err);
    }
    return tables_give(t, status, out, err);
}

int32_t weir_tables_adopt(int32_t native, void *connection, weir_tables **out, weir_error *err)
{
    tables_core *t = NULL;
    weir_status status = WEIR_OK;

    if (out == NULL || connection == NULL ||
        (native != WEIR_NATIVE_POSTGRES && native != WEIR_NATIVE_SQLITE)) {
        return weir__fail(err, WEIR_EINVAL, "out or connection is NULL, or its kind is unknown");
    }
    status = tables_new(&t, err);
    if (status == WEIR_OK) {
        status = weir__table_session_adopt(
            &t->free[0], native == WEIR_NATIVE_POSTGRES ? TABLE_POSTGRES : TABLE_SQLITE, connection,
            err);
    }
    if (status == WEIR_OK) {
        t->free_count = 1;
    }
    return tables_give(t, status, out, err);
}

void weir_tables_close(weir_tables *t)
{
    tables_core *c = t == NULL ? NULL : weir__handle_shut(HANDLE_TABLES, t);
    if (c == NULL) {
        return;
    }
    const bool forked = c->fork_generation != weir__fork_generation();
    if (!forked) {
        weir__stop_set(&c->stop);
    }
    weir__handle_end(t, forked);
}

static weir_status session_take(tables_core *t, table_session **out, weir_error *err)
{
    weir__lock(&t->mu);
    *out = t->free_count > 0 ? t->free[--t->free_count] : NULL;
    weir__unlock(&t->mu);
    weir_status status = WEIR_OK;
    if (*out == NULL) {
        status = t->db != NULL
                     ? weir__table_session_open(t->db, out, err)
                     : weir__fail(err, WEIR_EMISUSE, "the connection is in use by another call");
    }
    if (status == WEIR_OK) {
        weir__table_session_heed(*out, &t->stop);
    }
    return status;
}

static void session_give(tables_core *t, table_session *s, weir_status status)
{
    const bool lost = t->db != NULL && (status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN);

    weir__lock(&t->mu);
    const bool keep = !lost && t->free_count < SESSIONS_KEPT_MAX;
    if (keep) {
        t->free[t->free_count++] = s;
    }
    weir__unlock(&t->mu);
    if (!keep) {
        weir__table_session_close(s);
    }
}

/* ---- values --------------------------------------------------------------------------------- */

static weir_status value_take(const weir_value *in, weir_value *v, table_value *out, bool sql,
                              weir_error *err)
{
    const weir_status status = weir__struct_copy(v, sizeof *v, in, "weir_value", err);

    if (status != WEIR_OK) {
        return status;
    }
    if (v->kind < WEIR_VALUE_NULL || v->kind > (sql ? WEIR_VALUE_SQL : WEIR_VALUE_BYTES) ||
        v->name.len == 0) {
        return weir__fail(
            err, WEIR_EINVAL,
            v->name.len == 0 ? "a weir_value has no name" : "a weir_value has kind %d", v->kind);
    }
    static const table_value_kind kinds[] = { [WEIR_VALUE_NULL] = TABLE_NULL,
                                              [WEIR_VALUE_TEXT] = TABLE_TEXT,
                                              [WEIR_VALUE_INTEGER] = TABLE_INTEGER,
                                              [WEIR_VALUE_BYTES] = TABLE_BYTES,
                                              [WEIR_VALUE_SQL] = TABLE_TEXT };
    *out = (table_value){ .kind = kinds[v->kind], .text = v->text, .number = v->number };
    return WEIR_OK;
}

/* What is written, in the arena. */
static weir_status writes_take(const weir_value *const *set, size_t set_count,
                               const weir_value *const *params, size_t params_count,
                               weir_arena *arena, claim_writes *out, weir_error *err)
{
    weir_status status = WEIR_OK;
    weir_value v = { 0 };

    if (set_count > CLAIM_COLUMNS_MAX || params_count > CLAIM_COLUMNS_MAX ||
        (set_count > 0 && set == NULL) || (params_count > 0 && params == NULL)) {
        return weir__fail(err, WEIR_EINVAL, "values or parameters are NULL or more than %d",
                          CLAIM_COLUMNS_MAX);
    }
    claim_set *values = weir__arena_alloc(arena, (set_count + 1) * sizeof *values);
    claim_set_sql *sql = weir__arena_alloc(arena, (set_count + 1) * sizeof *sql);
    claim_param *given = weir__arena_alloc(arena, (params_count + 1) * sizeof *given);
    if (values == NULL || sql == NULL || given == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    *out = (claim_writes){ .set = values, .set_sql = sql, .params = given };
    for (size_t i = 0; status == WEIR_OK && i < set_count; i++) {
        claim_set *s = &values[out->set_count];
        status = value_take(set[i], &v, &s->value, true, err);
        if (status == WEIR_OK && v.kind == WEIR_VALUE_SQL) {
            sql[out->set_sql_count++] = (claim_set_sql){ .column = v.name, .sql = v.text };
        } else if (status == WEIR_OK) {
            s->column = v.name;
            out->set_count++;
        }
    }
    for (size_t i = 0; status == WEIR_OK && i < params_count; i++) {
        status = value_take(params[i], &v, &given[i].value, false, err);
        given[i].name = v.name;
        out->params_count++;
    }
    return status;
}

static weir_status order_take(const weir_claim *c, weir_arena *arena, claim_request *r,
                              weir_error *err)
{
    weir_status status = WEIR_OK;

    if (c->order_count > CLAIM_COLUMNS_MAX || (c->order_count > 0 && c->order == NULL)) {
        return weir__fail(err, WEIR_EINVAL, "order is NULL or has more than %d columns",
                          CLAIM_COLUMNS_MAX);
    }
    claim_order *order = weir__arena_alloc(arena, (c->order_count + 1) * sizeof *order);
    if (order == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    for (size_t i = 0; status == WEIR_OK && i < c->order_count; i++) {
        weir_order o = { 0 };
        status = weir__struct_copy(&o, sizeof o, c->order[i], "weir_order", err);
        if (status == WEIR_OK && (o.flags & ~(uint32_t)WEIR_ORDER_DESCENDING) != 0) {
            status = weir__fail(err, WEIR_EINVAL, "weir_order has unknown flags");
        }
        order[i] = (claim_order){ .column = o.column,
                                  .descending = (o.flags & WEIR_ORDER_DESCENDING) != 0 };
    }
    r->order = order;
    r->order_count = c->order_count;
    return status;
}

/* ---- the request ---------------------------------------------------------------------------- */

static weir_status claim_check(const weir_claim *c, weir_error *err)
{
    const uint32_t known = WEIR_CLAIM_WAIT | WEIR_CLAIM_NOWAIT | WEIR_CLAIM_HOLD |
                           WEIR_CLAIM_PORTABLE | WEIR_CLAIM_NO_BY | WEIR_CLAIM_NO_AT;
    const uint32_t both = WEIR_CLAIM_WAIT | WEIR_CLAIM_NOWAIT;

    if ((c->flags & ~known) != 0 || (c->flags & both) == both) {
        return weir__fail(err, WEIR_EINVAL,
                          "weir_claim has flags that are unknown, or exclude "
                          "each other");
    }
    if (c->limit < 0 || c->wait_us < WEIR_NONE) {
        return weir__fail(err, WEIR_EINVAL,
                          "weir_claim has limit %" PRId64 " and wait_us %" PRId64
                          ", allowed are 0 or more, and 0, more or WEIR_NONE",
                          c->limit, c->wait_us);
    }
    return c->table.len > 0 ? WEIR_OK : weir__fail(err, WEIR_EINVAL, "weir_claim has no table");
}

/* Inside, a name that is empty and not NULL stands for no column. */
static weir_str column_of(weir_str name, bool none)
{
    static const weir_str by_default = { 0 };

    if (none) {
        return CLAIM_NO_COLUMN;
    }
    return name.len == 0 ? by_default : name;
}

/* What is asked for, as src/claim/ has it. It borrows from *claim and lives in the arena. */
static weir_status request_take(const weir_claim *claim, weir_arena *arena, claim_request *out,
                                weir_error *err)
{
    weir_claim c = { 0 };
    weir_status status = weir__struct_copy(&c, sizeof c, claim, "weir_claim", err);

    if (status == WEIR_OK) {
        status = claim_check(&c, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    *out = (claim_request){
        .table = c.table,
        .where = c.where,
        .limit = c.limit == 0 ? 1 : c.limit,
        .by = c.by,
        .by_column = column_of(c.by_column, (c.flags & WEIR_CLAIM_NO_BY) != 0),
        .at_column = column_of(c.at_column, (c.flags & WEIR_CLAIM_NO_AT) != 0),
        .lease_us = c.lease_us,
        .lease_column = column_of(c.lease_column, false),
        .fence_column = c.fence_column,
        .attempts_column = c.attempts_column,
        .max_per_column = c.max_per_column,
        .max_per = c.max_per,
        .mode = (c.flags & WEIR_CLAIM_WAIT) != 0     ? CLAIM_WAIT
                : (c.flags & WEIR_CLAIM_NOWAIT) != 0 ? CLAIM_NOWAIT
                                                     : CLAIM_SKIP,
        .wait_us = c.wait_us,
        .path = (c.flags & WEIR_CLAIM_PORTABLE) != 0 ? CLAIM_PATH_PORTABLE : CLAIM_PATH_DEFAULT,
        .hold = (c.flags & WEIR_CLAIM_HOLD) != 0,
    };
    status = writes_take(c.set, c.set_count, c.params, c.params_count, arena, &out->writes, err);
    return status == WEIR_OK ? order_take(&c, arena, out, err) : status;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void weir_rows_free(weir_rows *rows)
{
    if (rows != NULL) {
        weir__table_result_free(&rows->result);
        weir__arena_free(&rows->arena);
        weir__free(rows);
    }
}

size_t weir_rows_count(const weir_rows *rows)
{
    return rows == NULL ? 0 : rows->result.rows_count;
}

weir_str weir_rows_json(const weir_rows *rows, size_t row)
{
    return row < weir_rows_count(rows) ? rows->json[row] : (weir_str){ .len = 0 };
}

/* A copy that stays NULL where it was, and empty where it was that. */
static bool str_keep(weir_arena *arena, weir_str *s)
{
    if (s->ptr != NULL) {
        s->ptr = weir__arena_copy(arena, s->ptr, s->len);
        return s->ptr != NULL;
    }
    return true;
}

/* Keeps what finishing a row will ask for. */
static bool claim_keep(weir_rows *rows, const claim_request *r)
{
    finish_request *f = &rows->finish;
    const size_t count = r->writes.set_count;
    claim_set *held = weir__arena_alloc(&rows->arena, (count + 1) * sizeof *held);
    bool ok = held != NULL;

    *f = weir__claim_finish_of(r);
    f->held = held;
    for (size_t i = 0; ok && i < count; i++) {
        held[i] = r->writes.set[i];
        ok = str_keep(&rows->arena, &held[i].column) && str_keep(&rows->arena, &held[i].value.text);
    }
    return ok && str_keep(&rows->arena, &f->table) && str_keep(&rows->arena, &f->by) &&
           str_keep(&rows->arena, &f->by_column) && str_keep(&rows->arena, &f->at_column) &&
           str_keep(&rows->arena, &f->fence_column) && str_keep(&rows->arena, &f->lease_column);
}

/* Each row as JSON, its key and its fence. */
static bool rows_keep(weir_rows *rows, const table_info *table, const claim_request *r)
{
    const size_t count = rows->result.rows_count;
    const table_column *fence =
        r->fence_column.len == 0 ? NULL : weir__table_column(table, r->fence_column);
    weir_buffer json = { 0 };
    bool ok = true;

    rows->key_count = table->key_count;
    rows->json = weir__arena_alloc(&rows->arena, (count + 1) * sizeof *rows->json);
    rows->fences = weir__arena_alloc(&rows->arena, (count + 1) * sizeof *rows->fences);
    rows->keys =
        weir__arena_alloc(&rows->arena, (count * table->key_count + 1) * sizeof *rows->keys);
    rows->times = weir__arena_alloc(&rows->arena, (count + 1) * sizeof *rows->times);
    ok = rows->json != NULL && rows->fences != NULL && rows->keys != NULL && rows->times != NULL;
    rows->has_fence = fence != NULL && ok;
    for (size_t i = 0; ok && i < count; i++) {
        const table_cell *cells = &rows->result.cells[i * rows->result.columns_count];
        weir__buffer_clear(&json);
        ok = weir__table_row_json(&rows->result, i, SIZE_MAX, &json);
        const char *copy = ok ? weir__arena_copy(&rows->arena, json.ptr, json.len) : NULL;
        ok = copy != NULL;
        rows->json[i] = (weir_str){ .ptr = copy, .len = json.len };
        rows->times[i] = weir__claim_time(r, table, cells);
        for (size_t k = 0; k < table->key_count; k++) {
            rows->keys[i * table->key_count + k] = weir__table_cell_value(&cells[table->key[k]]);
        }
        rows->has_fence = rows->has_fence &&
                          weir__str_to_i64(cells[fence - table->columns].text, &rows->fences[i]);
    }
    weir__buffer_free(&json);
    return ok;
}

static weir_status claim_with(table_session *s, const claim_request *r, weir_rows *rows,
                              weir_error *err)
{
    weir_status status = WEIR_OK;

    /* Everything that can fail comes first: what was claimed is never reported as failed. */
    if (!claim_keep(rows, r)) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (status == WEIR_OK) {
        status = weir__claim_rows(s, r, &rows->result, err);
    }
    if (status == WEIR_OK && !rows_keep(rows, weir__table_known(s), r)) {
        status = weir__fail(err, WEIR_ENOMEM,
                            "out of memory; the rows are claimed, until their leases end");
    }
    return status;
}

int32_t weir_claim_rows(weir_tables *ticket, const weir_claim *claim, weir_rows **out,
                        weir_error *err)
{
    tables_core *t = NULL;
    claim_request r = { .limit = 0 };
    weir_arena arena = { 0 };
    table_session *s = NULL;
    weir_rows *rows = NULL;
    weir_status status = tables_enter(ticket, &t, err);

    if (status != WEIR_OK) {
        return status;
    }
    status = out == NULL ? weir__fail(err, WEIR_EINVAL, "out is NULL")
                         : request_take(claim, &arena, &r, err);
    if (status == WEIR_OK) {
        rows = weir__calloc(1, sizeof *rows);
        status =
            rows == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : session_take(t, &s, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_words(claim_with(s, &r, rows, err), err);
        session_give(t, s, status);
    }
    weir__handle_leave(ticket);
    weir__arena_free(&arena);
    if (status != WEIR_OK) {
        weir_rows_free(rows);
        return status;
    }
    *out = rows;
    return WEIR_OK;
}

int32_t weir_rows_finish(weir_tables *ticket, const weir_rows *rows, size_t row,
                         const weir_finish *finish, weir_error *err)
{
    tables_core *t = NULL;
    weir_finish f = { 0 };
    claim_writes w = { 0 };
    weir_arena arena = { 0 };
    table_session *s = NULL;
    weir_status status = tables_enter(ticket, &t, err);

    if (status != WEIR_OK) {
        return status;
    }
    status = weir__struct_copy(&f, sizeof f, finish, "weir_finish", err);
    if (status == WEIR_OK && (row >= weir_rows_count(rows) || f.kind < WEIR_FINISH_DONE ||
                              f.kind > WEIR_FINISH_EXTEND)) {
        status = weir__fail(err, WEIR_EINVAL,
                            row >= weir_rows_count(rows) ? "there is no row %zu"
                                                         : "row %zu: the kind is unknown",
                            row);
    }
    if (status == WEIR_OK) {
        status = writes_take(f.set, f.set_count, f.params, f.params_count, &arena, &w, err);
    }
    if (status == WEIR_OK) {
        status = session_take(t, &s, err);
    }
    if (status == WEIR_OK) {
        finish_request r = rows->finish;
        r.kind = (finish_kind)f.kind;
        r.key = &rows->keys[row * rows->key_count];
        r.key_count = rows->key_count;
        r.at = rows->times[row];
        r.has_fence = rows->has_fence;
        r.fence = rows->has_fence ? rows->fences[row] : 0;
        r.lease_us = f.lease_us == 0 ? r.lease_us : f.lease_us;
        r.writes = w;
        status = weir__claim_words(weir__claim_finish(s, &r, NULL, err), err);
        session_give(t, s, status);
    }
    weir__handle_leave(ticket);
    weir__arena_free(&arena);
    return status;
}
