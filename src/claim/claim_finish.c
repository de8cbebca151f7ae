/* claim_finish.c - the end of a claim: done, failed, given back, or made longer.
 *
 * INVARIANT  One UPDATE, guarded by everything that was given: the holder, the fence, the lease,
 * what the claim has written. Only when it has written nothing is the row looked at, to say why.
 *
 * Many rows are one UPDATE too where a statement is a round trip; where it is not (SQLite), one for
 * each row, prepared once, in one transaction.
 */
#include "base/assert.h"
#include "base/str.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 200 };

static const weir_str by_default = { .len = 0 };

/* A finish that was checked. */
typedef struct finish_spec {
    const finish_request *request;
    const table_info *table;
    table_dialect dialect;
    const table_column *by, *at, *fence, *lease; /* NULL: none */
    claim_clock lease_clock;
    const table_column *set[CLAIM_COLUMNS_MAX], *set_sql[CLAIM_COLUMNS_MAX],
        *held[CLAIM_COLUMNS_MAX];
    char key[SHOWN_BYTES]; /* for messages */
} finish_spec;

/* ---- the request ---------------------------------------------------------------------------- */

/* The column that was named, or the one of the default name if it is there. */
static weir_status optional_column(const finish_spec *f, const char *flag, weir_str name,
                                   const table_column **out, weir_error *err)
{
    if (name.len > 0) {
        return weir__claim_own_column(f->table, f->dialect, flag, name, out, err);
    }
    *out = weir__claim_column_of(f->table, flag, name);
    return WEIR_OK;
}

static weir_status check_lease(finish_spec *f, weir_error *err)
{
    const finish_request *r = f->request;
    const weir_status status =
        optional_column(f, "--lease-column", r->lease_column, &f->lease, err);
    if (status != WEIR_OK) {
        return status;
    }
    f->lease_clock = f->lease == NULL ? CLAIM_CLOCK_NONE : weir__claim_clock(f->dialect, f->lease);
    if (f->lease != NULL && f->lease_clock == CLAIM_CLOCK_NONE) {
        if (r->lease_column.len > 0 || r->kind == FINISH_EXTEND) {
            return weir__fail(err, WEIR_EINVAL,
                              "--lease-column: column \"%.*s\" of %.*s cannot hold a time",
                              (int)f->lease->name.len, f->lease->name.ptr, (int)f->table->shown.len,
                              f->table->shown.ptr);
        }
        f->lease = NULL;
    }
    if (r->kind == FINISH_EXTEND && weir__claim_no_column(r->lease_column)) {
        return weir__fail(err, WEIR_EINVAL,
                          "--lease-column: without one there is no lease to extend");
    }
    if (r->kind == FINISH_EXTEND && f->lease == NULL) {
        return weir__claim_own_column(f->table, f->dialect, "--lease-column", by_default, &f->lease,
                                      err);
    }
    if (r->kind == FINISH_EXTEND && r->lease_us <= 0) {
        return weir__fail(err, WEIR_EINVAL, "--lease: %" PRId64 " us, allowed is more than 0",
                          r->lease_us);
    }
    return WEIR_OK;
}

static weir_status check_guards(finish_spec *f, weir_error *err)
{
    const finish_request *r = f->request;
    weir_status status = optional_column(f, "--by-column", r->by_column, &f->by, err);
    if (status == WEIR_OK && r->by.len > 0 && f->by == NULL) {
        return weir__claim_own_column(f->table, f->dialect, "--by-column", by_default, &f->by, err);
    }
    if (status == WEIR_OK && r->has_fence) {
        if (r->fence_column.len == 0) {
            return weir__fail(err, WEIR_EINVAL,
                              "--fence-column is missing: it names the column that has the fence");
        }
        status = weir__claim_own_column(f->table, f->dialect, "--fence-column", r->fence_column,
                                        &f->fence, err);
    }
    if (status == WEIR_OK) {
        status = optional_column(f, "--at-column", r->at_column, &f->at, err);
    }
    if (status == WEIR_OK) {
        status = check_lease(f, err);
    }
    if (status == WEIR_OK && r->by.len == 0 && !r->has_fence &&
        (r->held_count == 0 || f->lease != NULL)) {
        status =
            weir__fail(err, WEIR_EINVAL, "--by or --fence is missing: they tell whose claim it is");
    }
    return status;
}

static weir_status check_sets(finish_spec *f, weir_error *err)
{
    const finish_request *r = f->request;
    bool used[CLAIM_COLUMNS_MAX] = { 0 };
    weir_status status = WEIR_OK;
    if (r->writes.set_count > CLAIM_COLUMNS_MAX || r->writes.set_sql_count > CLAIM_COLUMNS_MAX ||
        r->held_count > CLAIM_COLUMNS_MAX || r->writes.params_count > CLAIM_COLUMNS_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--set, --set-sql, --param: allowed are %d each",
                          CLAIM_COLUMNS_MAX);
    }
    for (size_t i = 0; i < r->writes.set_count && status == WEIR_OK; i++) {
        status =
            weir__claim_column(f->table, "--set", r->writes.set[i].column, true, &f->set[i], err);
    }
    for (size_t i = 0; i < r->held_count && status == WEIR_OK; i++) {
        status = weir__claim_column(f->table, "--set", r->held[i].column, false, &f->held[i], err);
    }
    for (size_t i = 0; i < r->writes.set_sql_count && status == WEIR_OK; i++) {
        status = weir__claim_column(f->table, "--set-sql", r->writes.set_sql[i].column, true,
                                    &f->set_sql[i], err);
        if (status == WEIR_OK) {
            status = weir__claim_check_sql("--set-sql", r->writes.set_sql[i].sql, f->dialect,
                                           r->writes.params, r->writes.params_count, used, err);
        }
    }
    for (size_t i = 0; i < r->writes.params_count && status == WEIR_OK; i++) {
        if (!used[i]) {
            status = weir__fail(err, WEIR_EINVAL, "--param: :%.*s is used nowhere",
                                (int)r->writes.params[i].name.len, r->writes.params[i].name.ptr);
        }
    }
    return status;
}

static weir_status check_key_count(const finish_spec *f, weir_error *err)
{
    return f->request->key_count == f->table->key_count
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL,
                            "the primary key of %.*s has %zu columns, and %zu values were given",
                            (int)f->table->shown.len, f->table->shown.ptr, f->table->key_count,
                            f->request->key_count);
}

static weir_status check_key(finish_spec *f, weir_error *err)
{
    const finish_request *r = f->request;
    size_t len = 0;
    const weir_status status = check_key_count(f, err);
    if (status != WEIR_OK) {
        return status;
    }
    for (size_t i = 0; i < r->key_count; i++) {
        const table_value *v = &r->key[i];
        const size_t left = sizeof f->key - len;
        if (v->kind == TABLE_NULL) {
            return weir__fail(err, WEIR_EINVAL, "a primary key is never NULL");
        }
        const int more =
            v->kind == TABLE_INTEGER
                ? snprintf(f->key + len, left, "%s%" PRId64, i == 0 ? "" : ", ", v->number)
                : snprintf(f->key + len, left, "%s%.*s", i == 0 ? "" : ", ",
                           v->kind == TABLE_BYTES ? 3 : (int)v->text.len,
                           v->kind == TABLE_BYTES ? "..."
                           : v->text.len == 0     ? ""
                                                  : v->text.ptr);
        len = more < 0 || (size_t)more >= left ? sizeof f->key - 1 : len + (size_t)more;
    }
    return WEIR_OK;
}

/* ---- the statements ------------------------------------------------------------------------- */

static bool add_set(claim_text *t, const table_column *column, size_t *count)
{
    if (column == NULL) {
        return false;
    }
    weir__claim_add(t, "%s", *count == 0 ? "\n  SET " : ",\n      ");
    weir__claim_add_str(t, column->quoted);
    weir__claim_add(t, " = ");
    (*count)++;
    return true;
}

static bool is_set(const finish_spec *f, const table_column *column)
{
    for (size_t i = 0; i < f->request->writes.set_count; i++) {
        if (f->set[i] == column) {
            return true;
        }
    }
    for (size_t i = 0; i < f->request->writes.set_sql_count; i++) {
        if (f->set_sql[i] == column) {
            return true;
        }
    }
    return false;
}

/* What the request itself sets goes before what its kind does. */
static size_t add_sets(claim_text *t, const finish_spec *f)
{
    const finish_request *r = f->request;
    size_t count = 0;
    for (size_t i = 0; i < r->writes.set_count; i++) {
        (void)add_set(t, f->set[i], &count);
        weir__claim_add_value(t, &r->writes.set[i].value, f->set[i]);
    }
    for (size_t i = 0; i < r->writes.set_sql_count; i++) {
        (void)add_set(t, f->set_sql[i], &count);
        weir__claim_add(t, "(");
        weir__claim_add_sql(t, r->writes.set_sql[i].sql, r->writes.params, r->writes.params_count);
        weir__claim_add(t, "\n)");
    }
    if (!is_set(f, f->lease) && add_set(t, f->lease, &count)) {
        if (r->kind == FINISH_EXTEND) {
            weir__claim_add_time(t, f->lease_clock, NULL, r->lease_us);
        } else if (r->kind == FINISH_RELEASE) {
            weir__claim_add(t, "CASE WHEN ");
            weir__claim_add_str(t, f->lease->quoted);
            weir__claim_add(t, " IS NOT NULL THEN ");
            weir__claim_add_time(t, f->lease_clock, NULL, 0);
            weir__claim_add(t, " END");
        } else {
            weir__claim_add(t, "NULL");
        }
    }
    const table_column *cleared[] = { f->by, f->at };
    for (size_t i = 0; i < 2 && r->kind == FINISH_RELEASE; i++) {
        if (!is_set(f, cleared[i]) && add_set(t, cleared[i], &count)) {
            weir__claim_add(t, "NULL");
        }
    }
    return count;
}

/* A row without a lease may be finished, not extended: it is nobody's any more, or has no end. */
static void add_lease_lives(claim_text *t, const finish_spec *f)
{
    weir__claim_add(t, "(");
    if (f->request->kind != FINISH_EXTEND) {
        weir__claim_add_str(t, f->lease->quoted);
        weir__claim_add(t, " IS NULL OR ");
    }
    weir__claim_add_str(t, f->lease->quoted);
    weir__claim_add(t, " > ");
    weir__claim_add_time(t, f->lease_clock, NULL, 0);
    weir__claim_add(t, ")");
}

/* Those that are the same for every row. */
static void add_common_guards(claim_text *t, const finish_spec *f)
{
    const finish_request *r = f->request;
    if (r->by.len > 0) {
        weir__claim_add(t, "\n    AND ");
        weir__claim_add_equal(t, f->by, &(table_value){ .kind = TABLE_TEXT, .text = r->by });
    }
    if (f->lease != NULL) {
        weir__claim_add(t, "\n    AND ");
        add_lease_lives(t, f);
    }
    for (size_t i = 0; i < r->held_count; i++) {
        weir__claim_add(t, "\n    AND ");
        weir__claim_add_equal(t, f->held[i], &r->held[i].value);
    }
}

static void add_guards(claim_text *t, const finish_spec *f, const table_value *key, int64_t fence)
{
    weir__claim_add_key_is(t, f->table, key);
    if (f->request->at.len > 0 && f->at != NULL) {
        weir__claim_add(t, "\n    AND ");
        weir__claim_add_equal(t, f->at,
                              &(table_value){ .kind = TABLE_TEXT, .text = f->request->at });
    }
    if (f->request->has_fence) {
        weir__claim_add(t, "\n    AND ");
        weir__claim_add_equal(t, f->fence,
                              &(table_value){ .kind = TABLE_INTEGER, .number = fence });
    }
    add_common_guards(t, f);
}

/* ---- why not -------------------------------------------------------------------------------- */

static void add_column_or_null(claim_text *t, const table_column *column)
{
    if (column == NULL) {
        weir__claim_add(t, "NULL");
    } else {
        weir__claim_add_str(t, column->quoted);
    }
}

static weir_status say_why(const finish_spec *f, const table_result *r, weir_error *err)
{
    const finish_request *request = f->request;
    const weir_str table = f->table->shown;
    const table_cell *by = &r->cells[0];
    const table_cell *fence = &r->cells[1];
    const table_cell *leased = &r->cells[2];
    const table_cell *lives = &r->cells[3];
    int64_t actual = 0;
    const bool same_fence =
        !fence->null && weir__str_to_i64(fence->text, &actual) && actual == request->fence;
    weir_status status;
    if (request->by.len > 0 && (by->null || !weir__str_equal(by->text, request->by))) {
        status =
            weir__fail(err, WEIR_ELOST, "row %s of %.*s is not held by \"%.*s\": %s%.*s%s", f->key,
                       (int)table.len, table.ptr, (int)request->by.len, request->by.ptr,
                       by->null ? "nobody holds it" : "it is \"", (int)by->text.len,
                       by->null ? "" : by->text.ptr, by->null ? "" : "\"'s");
    } else if (request->has_fence && !same_fence) {
        status =
            weir__fail(err, WEIR_ELOST, "row %s of %.*s was %s: its fence is %.*s, not %" PRId64,
                       f->key, (int)table.len, table.ptr,
                       actual > request->fence ? "claimed again" : "never claimed so",
                       fence->null ? 4 : (int)fence->text.len,
                       fence->null ? "NULL" : fence->text.ptr, request->fence);
    } else if (!lives->null && weir__str_equal(lives->text, weir__str("0"))) {
        status = weir__fail(err, WEIR_ELOST, "row %s of %.*s is no longer yours: %s", f->key,
                            (int)table.len, table.ptr,
                            leased->null ? "it has no lease that goes on" : "its lease has ended");
    } else {
        status = weir__fail(err, WEIR_ELOST, "row %s of %.*s is no longer claimed", f->key,
                            (int)table.len, table.ptr);
    }
    return status;
}

static weir_status why_not(table_session *s, const finish_spec *f, weir_error *err)
{
    claim_text t = { .dialect = f->dialect };
    table_result r = { 0 };
    weir__claim_add(&t, "SELECT ");
    add_column_or_null(&t, f->by);
    weir__claim_add(&t, ", ");
    add_column_or_null(&t, f->fence);
    weir__claim_add(&t, ", ");
    add_column_or_null(&t, f->lease);
    weir__claim_add(&t, ", ");
    if (f->lease == NULL) {
        weir__claim_add(&t, "NULL");
    } else {
        weir__claim_add(&t, "CASE WHEN ");
        add_lease_lives(&t, f);
        weir__claim_add(&t, " THEN 1 ELSE 0 END");
    }
    weir__claim_add(&t, " FROM ");
    weir__claim_add_str(&t, f->table->quoted);
    weir__claim_add(&t, " WHERE ");
    weir__claim_add_key_is(&t, f->table, f->request->key);
    weir_status status = weir__claim_text_run(&t, s, 0, &r, err);
    if (status == WEIR_OK && r.rows_count == 0) {
        status = weir__fail(err, WEIR_ENOTFOUND, "there is no row %s in %.*s", f->key,
                            (int)f->table->shown.len, f->table->shown.ptr);
    } else if (status == WEIR_OK) {
        status = say_why(f, &r, err);
    }
    weir__table_result_free(&r);
    weir__claim_text_free(&t);
    return status;
}

finish_request weir__claim_finish_of(const claim_request *claim)
{
    return (finish_request){ .table = claim->table,
                             .by = weir__claim_no_column(claim->by_column) ? by_default : claim->by,
                             .by_column = claim->by_column,
                             .at_column = claim->at_column,
                             .fence_column = claim->fence_column,
                             .lease_column =
                                 claim->lease_us > 0 ? claim->lease_column : CLAIM_NO_COLUMN,
                             .lease_us = claim->lease_us,
                             .held = claim->writes.set,
                             .held_count = claim->writes.set_count };
}

weir_str weir__claim_time(const claim_request *request, const table_info *table,
                          const table_cell *cells)
{
    /* A column that the request names may be one that the row's own program writes too. */
    const table_column *at = request->by.len == 0 || request->at_column.ptr != NULL
                                 ? NULL
                                 : weir__claim_column_of(table, "--at-column", by_default);
    const weir_str unknown = { .len = 0 };
    if (at == NULL || cells[at - table->columns].null) {
        return unknown;
    }
    return cells[at - table->columns].text;
}

/* ---- the way in ----------------------------------------------------------------------------- */

/* Where rows are not locked, a transaction was waited for as the URL says. */
static int64_t wait_of(const finish_spec *f)
{
    return weir__claim_dialect(f->dialect)->row_locks ? f->request->wait_us : 0;
}

static weir_status add_update(claim_text *t, const finish_spec *f, weir_error *err)
{
    weir__claim_add(t, "UPDATE ");
    weir__claim_add_str(t, f->table->quoted);
    return add_sets(t, f) > 0
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL, "--set: nothing would be written to %.*s",
                            (int)f->table->shown.len, f->table->shown.ptr);
}

static weir_status write_finish(table_session *s, const finish_spec *f, table_result *result,
                                weir_error *err)
{
    claim_text t = { .dialect = f->dialect, .again = true }; /* it is found by its key */
    table_result own = { 0 };
    result = result == NULL ? &own : result;
    weir_status status = add_update(&t, f, err);
    if (status == WEIR_OK) {
        weir__claim_add(&t, "\n  WHERE ");
        add_guards(&t, f, f->request->key, f->request->fence);
        weir__claim_add(&t, "\n  RETURNING ");
        weir__claim_add_columns(&t, f->table);
        status = weir__claim_text_run(&t, s, wait_of(f), result, err);
    }
    if (status == WEIR_OK && result->rows_count == 0) {
        status = why_not(s, f, err);
    }
    weir__table_result_free(&own);
    weir__claim_text_free(&t);
    return status;
}

static const table_column *key_column(const finish_spec *f, size_t i)
{
    return &f->table->columns[f->table->key[i]];
}

/* What was given for each row: its number, its key and its fence. */
static void add_given(claim_text *t, const finish_spec *f, const finish_batch *batch)
{
    const size_t columns = f->table->key_count;
    weir__claim_add(t, "WITH weir_given (weir_row, ");
    for (size_t i = 0; i < columns; i++) {
        weir__claim_add(t, "%sweir_key_%zu", i == 0 ? "" : ", ", i + 1);
    }
    weir__claim_add(t, "%s) AS (VALUES ", f->request->has_fence ? ", weir_fence" : "");
    for (size_t i = 0; i < batch->count; i++) {
        weir__claim_add(t, "%s(%zu", i == 0 ? "" : ", ", i);
        for (size_t j = 0; j < columns; j++) {
            weir__claim_add(t, ", ");
            weir__claim_add_value(t, &batch->keys[i * columns + j], key_column(f, j));
        }
        if (f->request->has_fence) {
            weir__claim_add(t, ", ");
            weir__claim_add_value(
                t, &(table_value){ .kind = TABLE_INTEGER, .number = batch->fences[i] }, f->fence);
        }
        weir__claim_add(t, ")");
    }
    weir__claim_add(t, ")");
}

/* Those of them that are still yours, locked. One after the other, by its key: a planner that
 * believes that hardly any row has this holder, as its statistics of before the claim say, would
 * rather read the whole table and compare each row with all that were given. */
static void add_mine(claim_text *t, const finish_spec *f)
{
    weir__claim_add(t, ",\nweir_mine AS MATERIALIZED (\n  SELECT weir_given.weir_row, weir_locked.*"
                       "\n  FROM weir_given CROSS JOIN LATERAL (\n    SELECT ");
    for (size_t i = 0; i < f->table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : ", ");
        weir__claim_add_str(t, key_column(f, i)->quoted);
        weir__claim_add(t, " AS weir_mine_%zu", i + 1);
    }
    weir__claim_add(t, " FROM ");
    weir__claim_add_str(t, f->table->quoted);
    weir__claim_add(t, "\n    WHERE ");
    for (size_t i = 0; i < f->table->key_count; i++) {
        weir__claim_add(t, "%s", i == 0 ? "" : " AND ");
        weir__claim_add_str(t, key_column(f, i)->quoted);
        weir__claim_add(t, " = weir_given.weir_key_%zu", i + 1);
    }
    if (f->request->has_fence) {
        weir__claim_add(t, "\n    AND ");
        weir__claim_add_str(t, f->fence->quoted);
        weir__claim_add(t, " = weir_given.weir_fence");
    }
    add_common_guards(t, f);
    weir__claim_add(t, "\n    FOR UPDATE) AS weir_locked)\n");
}

static weir_status write_together(table_session *s, const finish_spec *f, const finish_batch *batch,
                                  bool *finished, weir_error *err)
{
    claim_text t = { .dialect = f->dialect, .again = true };
    table_result rows = { 0 };
    add_given(&t, f, batch);
    add_mine(&t, f);
    weir_status status = add_update(&t, f, err);
    if (status == WEIR_OK) {
        weir__claim_add(&t, "\n  FROM weir_mine\n  WHERE ");
        for (size_t i = 0; i < f->table->key_count; i++) {
            weir__claim_add(&t, "%s", i == 0 ? "" : " AND ");
            weir__claim_add_str(&t, key_column(f, i)->quoted);
            weir__claim_add(&t, " = weir_mine_%zu", i + 1);
        }
        weir__claim_add(&t, "\n  RETURNING weir_row");
        status = weir__claim_text_run(&t, s, wait_of(f), &rows, err);
    }
    for (size_t i = 0; i < rows.rows_count && status == WEIR_OK; i++) {
        int64_t row = -1;
        WEIR_ASSERT(weir__str_to_i64(rows.cells[i].text, &row) && row >= 0 &&
                    (size_t)row < batch->count);
        finished[row] = true;
    }
    weir__table_result_free(&rows);
    weir__claim_text_free(&t);
    return status;
}

/* One statement for all of them, with another key each time. */
static weir_status write_in_turn(table_session *s, const finish_spec *f, const finish_batch *batch,
                                 bool *finished, weir_error *err)
{
    const size_t columns = f->table->key_count;
    claim_text t = { .dialect = f->dialect };
    table_result row = { 0 };
    weir_status status = add_update(&t, f, err);
    weir__claim_add(&t, "\n  WHERE ");
    const size_t first = t.values_count; /* the key's; then the fence's */
    add_guards(&t, f, batch->keys, 0);
    for (size_t i = 0; i < batch->count && status == WEIR_OK; i++) {
        if (!t.failed) {
            memcpy(&t.values[first], &batch->keys[i * columns], columns * sizeof *t.values);
        }
        if (!t.failed && f->request->has_fence) {
            t.values[first + columns].number = batch->fences[i];
        }
        status = weir__claim_text_run(&t, s, 0, &row, err);
        finished[i] = row.changed > 0;
    }
    weir__table_result_free(&row);
    weir__claim_text_free(&t);
    return status;
}

/* SQLite: within a transaction, for which alone it waits as its URL says. */
static weir_status finish_checked(table_session *s, const finish_spec *f, table_result *result,
                                  weir_error *err)
{
    if (weir__claim_dialect(f->dialect)->row_locks || weir__table_in_transaction(s)) {
        return write_finish(s, f, result, err);
    }
    weir_status status = weir__claim_begin(s, CLAIM_BUSY_TIMEOUT, err);
    if (status == WEIR_OK) {
        status = write_finish(s, f, result, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_commit(s, err);
    }
    if (status != WEIR_OK) {
        weir__claim_rollback(s);
    }
    return status;
}

static weir_status finish_check(table_session *s, finish_spec *f, weir_error *err)
{
    weir_status status = weir__table_described(s, f->request->table, &f->table, err);
    if (status == WEIR_OK) {
        status = check_key_count(f, err);
    }
    if (status == WEIR_OK) {
        status = check_guards(f, err);
    }
    return status == WEIR_OK ? check_sets(f, err) : status;
}

static weir_status check_batch(const finish_spec *f, const finish_batch *batch, weir_error *err)
{
    if (batch->count > CLAIM_LIMIT_MAX) {
        return weir__fail(err, WEIR_EINVAL, "%zu rows are to be finished at once, allowed are %d",
                          batch->count, CLAIM_LIMIT_MAX);
    }
    for (size_t i = 0; i < batch->count * f->table->key_count; i++) {
        if (batch->keys[i].kind == TABLE_NULL) {
            return weir__fail(err, WEIR_EINVAL, "a primary key is never NULL");
        }
    }
    return WEIR_OK;
}

static weir_status batch_checked(table_session *s, const finish_spec *f, const finish_batch *batch,
                                 bool *finished, weir_error *err)
{
    if (weir__claim_dialect(f->dialect)->row_locks) {
        return write_together(s, f, batch, finished, err);
    }
    if (weir__table_in_transaction(s)) {
        return write_in_turn(s, f, batch, finished, err);
    }
    weir_status status = weir__claim_begin(s, CLAIM_BUSY_TIMEOUT, err);
    if (status == WEIR_OK) {
        status = write_in_turn(s, f, batch, finished, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_commit(s, err);
    }
    if (status != WEIR_OK) {
        weir__claim_rollback(s);
    }
    return status;
}

weir_status weir__claim_finish_batch(table_session *s, const finish_request *request,
                                     const finish_batch *batch, bool *finished, weir_error *err)
{
    weir_error local = { 0 };
    err = err == NULL ? &local : err;
    finish_spec f = { .request = request, .dialect = weir__table_session_dialect(s) };
    for (size_t i = 0; i < batch->count; i++) {
        finished[i] = false;
    }
    weir_status status = finish_check(s, &f, err);
    if (status == WEIR_OK) {
        status = check_batch(&f, batch, err);
    }
    if (status == WEIR_OK && batch->count > 0) {
        status = batch_checked(s, &f, batch, finished, err);
    }
    for (size_t i = 0; i < batch->count && status != WEIR_OK; i++) {
        finished[i] = false;
    }
    if (status == WEIR_EINVAL) {
        weir__table_forget(s); /* the next call looks at the table again */
    }
    return status;
}

weir_status weir__claim_finish(table_session *s, const finish_request *request,
                               table_result *result, weir_error *err)
{
    weir_error local = { 0 };
    err = err == NULL ? &local : err;
    finish_spec f = { .request = request, .dialect = weir__table_session_dialect(s) };
    weir_status status = finish_check(s, &f, err);
    if (status == WEIR_OK) {
        status = check_key(&f, err);
    }
    if (status == WEIR_OK) {
        status = finish_checked(s, &f, result, err);
    }
    if (status == WEIR_EINVAL) {
        weir__table_forget(s); /* the next call looks at the table again */
    }
    return status;
}
