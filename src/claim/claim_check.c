/* claim_check.c - a request against the table: every name becomes a column, every mistake is told
 * with the flag that it was made with.
 */
#define _GNU_SOURCE /* memrchr */

#include "base/assert.h"
#include "base/sql.h"
#include "base/str.h"
#include "claim/claim_private.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* Columns that Weir fills itself. */
typedef struct own_column {
    const char *flag, *name;       /* name: the default; NULL: there is none */
    const char *postgres, *sqlite; /* types */
} own_column;

static const own_column own_columns[] = {
    { "--by-column", "claimed_by", "text", "TEXT" },
    { "--at-column", "claimed_at", "timestamptz", "TEXT" },
    { "--lease-column", "locked_until", "timestamptz", "TEXT" },
    { "--fence-column", NULL, "bigint NOT NULL DEFAULT 0", "INTEGER NOT NULL DEFAULT 0" },
    { "--attempts-column", NULL, "bigint NOT NULL DEFAULT 0", "INTEGER NOT NULL DEFAULT 0" },
};

static const own_column *own_column_of(const char *flag)
{
    size_t i = 0;
    while (strcmp(own_columns[i].flag, flag) != 0) {
        i++;
        WEIR_ASSERT(i < sizeof own_columns / sizeof own_columns[0]);
    }
    return &own_columns[i];
}

const table_column *weir__claim_column_of(const table_info *table, const char *flag, weir_str name)
{
    const weir_str usual = weir__str(own_column_of(flag)->name);
    return weir__claim_no_column(name) ? NULL
                                       : weir__table_column(table, name.len > 0 ? name : usual);
}

weir_status weir__claim_column(const table_info *table, const char *flag, weir_str name, bool write,
                               const table_column **out, weir_error *err)
{
    const table_column *column = weir__table_column(table, name);
    if (column == NULL) {
        return weir__fail(err, WEIR_EINVAL, "%s: no column \"%.*s\" in %.*s", flag, (int)name.len,
                          name.len == 0 ? "" : name.ptr, (int)table->shown.len, table->shown.ptr);
    }
    if (write && (column->generated || column->key > 0)) {
        return weir__fail(err, WEIR_EINVAL, "%s: column \"%.*s\" of %.*s is %s", flag,
                          (int)name.len, name.ptr, (int)table->shown.len, table->shown.ptr,
                          column->generated ? "generated: it cannot be written"
                                            : "part of the primary key: a claim leaves it alone");
    }
    *out = column;
    return WEIR_OK;
}

weir_status weir__claim_own_column(const table_info *table, table_dialect dialect, const char *flag,
                                   weir_str name, const table_column **out, weir_error *err)
{
    const own_column *own = own_column_of(flag);
    name = name.len > 0 ? name : weir__str(own->name);
    const weir_status status = weir__claim_column(table, flag, name, true, out, err);

    if (status != WEIR_OK && weir__table_column(table, name) == NULL) {
        weir__error_detail(err,
                           "Add it with ALTER TABLE %.*s ADD COLUMN \"%.*s\" %s; or name "
                           "another column.",
                           (int)table->quoted.len, table->quoted.ptr, (int)name.len, name.ptr,
                           dialect == TABLE_POSTGRES ? own->postgres : own->sqlite);
    }
    return status;
}

/* Values become literals too, and there no database knows where such a text ends. */
static weir_status check_value(const char *flag, weir_str name, const table_value *value,
                               weir_error *err)
{
    const bool nul = value->kind == TABLE_TEXT && value->text.len > 0 &&
                     memchr(value->text.ptr, '\0', value->text.len) != NULL;
    return nul ? weir__fail(err, WEIR_EINVAL, "%s: the value of \"%.*s\" has a NUL byte in it",
                            flag, (int)name.len, name.ptr)
               : WEIR_OK;
}

static weir_status check_clock(claim_spec *c, const char *flag, const table_column *column,
                               claim_clock *out, weir_error *err)
{
    *out = weir__claim_clock(c->dialect, column);
    if (*out != CLAIM_CLOCK_NONE) {
        return WEIR_OK;
    }
    const weir_status status =
        weir__fail(err, WEIR_EINVAL, "%s: column \"%.*s\" of %.*s is %.*s: it cannot hold a time",
                   flag, (int)column->name.len, column->name.ptr, (int)c->table->shown.len,
                   c->table->shown.ptr, (int)column->type.len, column->type.ptr);
    weir__error_detail(err, c->dialect == TABLE_POSTGRES
                                ? "Times are kept in columns of type timestamptz, timestamp, "
                                  "bigint (microseconds) or text."
                                : "Times are kept in INTEGER (microseconds) or TEXT columns.");
    return status;
}

static weir_status check_count(claim_spec *c, const char *flag, weir_str name,
                               const table_column **out, weir_error *err)
{
    if (name.len == 0) {
        return WEIR_OK;
    }
    const weir_status status = weir__claim_own_column(c->table, c->dialect, flag, name, out, err);
    if (status == WEIR_OK && !weir__claim_is_integer(c->dialect, *out)) {
        return weir__fail(err, WEIR_EINVAL, "%s: column \"%.*s\" of %.*s is %.*s, not an integer",
                          flag, (int)name.len, name.ptr, (int)c->table->shown.len,
                          c->table->shown.ptr, (int)(*out)->type.len, (*out)->type.ptr);
    }
    return status;
}

static weir_status check_stamps(claim_spec *c, weir_error *err)
{
    const claim_request *r = c->request;
    weir_status status = WEIR_OK;
    if (r->by.len > 0 && !weir__claim_no_column(r->by_column)) {
        status =
            weir__claim_own_column(c->table, c->dialect, "--by-column", r->by_column, &c->by, err);
    }
    if (status == WEIR_OK && r->by.len > 0 && !weir__claim_no_column(r->at_column)) {
        status =
            weir__claim_own_column(c->table, c->dialect, "--at-column", r->at_column, &c->at, err);
    }
    if (status == WEIR_OK && c->at != NULL) {
        status = check_clock(c, "--at-column", c->at, &c->at_clock, err);
    }
    if (status == WEIR_OK && r->lease_us < 0) {
        status = weir__fail(err, WEIR_EINVAL, "--lease: %" PRId64 " us, allowed is more than 0",
                            r->lease_us);
    }
    if (status == WEIR_OK && r->lease_us > 0) {
        status = weir__claim_own_column(c->table, c->dialect, "--lease-column", r->lease_column,
                                        &c->lease, err);
    }
    if (status == WEIR_OK && c->lease != NULL) {
        status = check_clock(c, "--lease-column", c->lease, &c->lease_clock, err);
    }
    if (status == WEIR_OK) {
        status = check_count(c, "--fence-column", r->fence_column, &c->fence, err);
    }
    return status == WEIR_OK
               ? check_count(c, "--attempts-column", r->attempts_column, &c->attempts, err)
               : status;
}

static weir_status check_set(claim_spec *c, weir_error *err)
{
    const claim_request *r = c->request;
    weir_status status = WEIR_OK;
    if (r->writes.set_count > CLAIM_COLUMNS_MAX || r->writes.set_sql_count > CLAIM_COLUMNS_MAX ||
        r->order_count > CLAIM_COLUMNS_MAX) {
        return weir__fail(err, WEIR_EINVAL,
                          "--set, --set-sql, --order: allowed are %d columns each",
                          CLAIM_COLUMNS_MAX);
    }
    for (size_t i = 0; i < r->writes.set_count && status == WEIR_OK; i++) {
        status =
            weir__claim_column(c->table, "--set", r->writes.set[i].column, true, &c->set[i], err);
        if (status == WEIR_OK) {
            status = check_value("--set", r->writes.set[i].column, &r->writes.set[i].value, err);
        }
    }
    for (size_t i = 0; i < r->writes.set_sql_count && status == WEIR_OK; i++) {
        status = weir__claim_column(c->table, "--set-sql", r->writes.set_sql[i].column, true,
                                    &c->set_sql[i], err);
    }
    return status;
}

/* Every column that the claim writes, one after the other; NULL: no more. */
static const table_column *written_column(const claim_spec *c, size_t index, const char **flag)
{
    const struct {
        const table_column *column;
        const char *flag;
    } others[] = { { c->by, "--by-column" },
                   { c->at, "--at-column" },
                   { c->lease, "--lease-column" },
                   { c->fence, "--fence-column" },
                   { c->attempts, "--attempts-column" } };
    if (index < c->request->writes.set_count) {
        *flag = "--set";
        return c->set[index];
    }
    index -= c->request->writes.set_count;
    if (index < c->request->writes.set_sql_count) {
        *flag = "--set-sql";
        return c->set_sql[index];
    }
    index -= c->request->writes.set_sql_count;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].column != NULL && index-- == 0) {
            *flag = others[i].flag;
            return others[i].column;
        }
    }
    return NULL;
}

static bool is_written(const claim_spec *c, const table_column *column)
{
    const char *flag;
    const table_column *other;
    for (size_t i = 0; (other = written_column(c, i, &flag)) != NULL; i++) {
        if (other == column) {
            return true;
        }
    }
    return false;
}

static weir_status check_written(const claim_spec *c, weir_error *err)
{
    const char *flag = "";
    const char *first = "";
    const table_column *column;
    size_t count = 0;
    for (; (column = written_column(c, count, &flag)) != NULL; count++) {
        for (size_t i = 0; i < count; i++) {
            if (written_column(c, i, &first) == column) {
                return weir__fail(err, WEIR_EINVAL, "%s: column \"%.*s\" is written by %s already",
                                  flag, (int)column->name.len, column->name.ptr, first);
            }
        }
    }
    if (count == 0 && !c->request->hold) {
        const weir_status status = weir__fail(
            err, WEIR_EINVAL, "--set: nothing would be written, and everybody given the same rows");
        weir__error_detail(err,
                           "Mark what is taken with --set, --set-sql, --by or --lease, or lock "
                           "it in a transaction with --hold.");
        return status;
    }
    return WEIR_OK;
}

/* A name stands in SQL, in any case of letters, by itself or between quotes. Strings count too:
 * better a mistake that is not noticed than a claim that is refused. */
static bool sql_mentions(weir_str sql, weir_str name)
{
    for (size_t i = 0; i + name.len <= sql.len; i++) {
        const char before = i == 0 ? ' ' : sql.ptr[i - 1];
        const char after = i + name.len == sql.len ? ' ' : sql.ptr[i + name.len];
        if (strncasecmp(sql.ptr + i, name.ptr, name.len) == 0 && !weir__sql_is_name_byte(before) &&
            !weir__sql_is_name_byte(after)) {
            return true;
        }
    }
    return false;
}

/* The last part of the table's name: jobs of public.jobs. */
static weir_str table_name(const table_info *table)
{
    const char *dot = memrchr(table->shown.ptr, '.', table->shown.len);
    const size_t start = dot == NULL ? 0 : (size_t)(dot + 1 - table->shown.ptr);
    return (weir_str){ .ptr = table->shown.ptr + start, .len = table->shown.len - start };
}

/* Without a lease it is `where` that tells what is taken from what is free. If it looks at nothing
 * that the claim writes, everybody is given the same rows. What it looks at is not always to be
 * seen: through the row as a whole, a query of its own, or a column computed from others. */
static weir_status check_marks(const claim_spec *c, weir_error *err)
{
    const weir_str where = c->request->where;
    const char *flag;
    const table_column *column;
    bool looks = c->request->hold || c->lease != NULL || sql_mentions(where, weir__str("select")) ||
                 sql_mentions(where, table_name(c->table));
    for (size_t i = 0; !looks && (column = written_column(c, i, &flag)) != NULL; i++) {
        looks = sql_mentions(where, column->name);
    }
    for (size_t i = 0; !looks && i < c->table->columns_count; i++) {
        looks = c->table->columns[i].generated && sql_mentions(where, c->table->columns[i].name);
    }
    if (looks) {
        return WEIR_OK;
    }
    const weir_status status =
        weir__fail(err, WEIR_EINVAL,
                   "--where looks at nothing that the claim writes: everybody "
                   "would be given the same rows");
    weir__error_detail(err, "Let --where ask for rows that are not taken yet (status = 'pending') "
                            "and --set change that (status=claimed), or give a --lease.");
    return status;
}

static bool has_order(const claim_spec *c, const table_column *column)
{
    for (size_t i = 0; i < c->order_count; i++) {
        if (c->order[i].column == column) {
            return true;
        }
    }
    return false;
}

static weir_status check_order(claim_spec *c, weir_error *err)
{
    const claim_request *r = c->request;
    for (size_t i = 0; i < r->order_count; i++) {
        const table_column *column = NULL;
        const weir_status status =
            weir__claim_column(c->table, "--order", r->order[i].column, false, &column, err);
        if (status != WEIR_OK) {
            return status;
        }
        if (!has_order(c, column)) {
            c->order[c->order_count++] = (claim_order_column){ .column = column,
                                                               .descending = r->order[i].descending,
                                                               .written = is_written(c, column) };
        }
    }
    if (c->table->key_count > CLAIM_KEY_MAX) {
        return weir__fail(err, WEIR_EINVAL,
                          "the primary key of %.*s has %zu columns, allowed are "
                          "%d",
                          (int)c->table->shown.len, c->table->shown.ptr, c->table->key_count,
                          CLAIM_KEY_MAX);
    }
    for (size_t i = 0; i < c->table->key_count; i++) {
        const table_column *column = &c->table->columns[c->table->key[i]];
        if (!has_order(c, column)) {
            c->order[c->order_count++] = (claim_order_column){ .column = column };
        }
    }
    return WEIR_OK;
}

weir_status weir__claim_check_sql(const char *flag, weir_str sql, table_dialect dialect,
                                  const claim_param *params, size_t params_count, bool *used,
                                  weir_error *err)
{
    claim_scan scan = { .sql = sql, .dialect = dialect };
    claim_piece piece = { 0 };
    bool found = true;
    while (found) {
        const weir_status status = weir__claim_scan_next(&scan, &piece, &found, err);
        if (status != WEIR_OK) {
            return weir__wrap(err, status, "%s", flag);
        }
        bool known = !found || !piece.param;
        for (size_t i = 0; i < params_count && !known; i++) {
            known = weir__str_equal(params[i].name, piece.text);
            used[i] = used[i] || known;
        }
        if (!known) {
            return weir__fail(err, WEIR_EINVAL, "%s: there is no --param for :%.*s", flag,
                              (int)piece.text.len, piece.text.ptr);
        }
    }
    return WEIR_OK;
}

static weir_status check_params(const claim_spec *c, weir_error *err)
{
    const claim_request *r = c->request;
    bool used[CLAIM_COLUMNS_MAX] = { 0 };
    if (r->writes.params_count > CLAIM_COLUMNS_MAX) {
        return weir__fail(err, WEIR_EINVAL, "--param: allowed are %d", CLAIM_COLUMNS_MAX);
    }
    weir_status status = weir__claim_check_sql("--where", r->where, c->dialect, r->writes.params,
                                               r->writes.params_count, used, err);
    if (status == WEIR_OK) {
        status = weir__claim_check_sql("--expired-where", r->expired_where, c->dialect,
                                       r->writes.params, r->writes.params_count, used, err);
    }
    for (size_t i = 0; i < r->writes.set_sql_count && status == WEIR_OK; i++) {
        if (r->writes.set_sql[i].sql.len == 0) {
            return weir__fail(err, WEIR_EINVAL, "--set-sql: no expression for \"%.*s\"",
                              (int)r->writes.set_sql[i].column.len,
                              r->writes.set_sql[i].column.ptr);
        }
        status = weir__claim_check_sql("--set-sql", r->writes.set_sql[i].sql, c->dialect,
                                       r->writes.params, r->writes.params_count, used, err);
    }
    for (size_t i = 0; i < r->writes.params_count && status == WEIR_OK; i++) {
        if (!used[i]) {
            status = weir__fail(err, WEIR_EINVAL, "--param: :%.*s is used nowhere",
                                (int)r->writes.params[i].name.len, r->writes.params[i].name.ptr);
        } else {
            status =
                check_value("--param", r->writes.params[i].name, &r->writes.params[i].value, err);
        }
    }
    return status;
}

static weir_status check_max_per(claim_spec *c, weir_error *err)
{
    const claim_request *r = c->request;
    if (r->max_per_column.len == 0) {
        return WEIR_OK;
    }
    if (r->hold) {
        return weir__fail(err, WEIR_EINVAL,
                          "--max-per counts what is marked as held, and --hold "
                          "marks nothing");
    }
    if (r->writes.set_count == 0 && c->lease == NULL) {
        return weir__fail(err, WEIR_EINVAL,
                          "--max-per needs --set or --lease, by which to see what "
                          "is held");
    }
    if (r->max_per < 1) {
        return weir__fail(err, WEIR_EINVAL, "--max-per: %" PRId64 ", allowed is 1 or more",
                          r->max_per);
    }
    return weir__claim_column(c->table, "--max-per", r->max_per_column, false, &c->per, err);
}

weir_status weir__claim_check(const claim_request *request, const table_info *table,
                              table_dialect dialect, claim_spec *out, weir_error *err)
{
    WEIR_ASSERT(table->key_count > 0);
    claim_spec *c = out;
    *c = (claim_spec){ .request = request,
                       .table = table,
                       .dialect = dialect,
                       .sql = weir__claim_dialect(dialect),
                       .limit = request->limit };
    weir_status status = weir__claim_path_choose(request, dialect, &c->path, err);
    if (status == WEIR_OK && request->limit > CLAIM_LIMIT_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "--limit: %" PRId64 ", allowed is up to %d",
                            request->limit, CLAIM_LIMIT_MAX);
    }
    if (status == WEIR_OK && request->exclude_count > CLAIM_EXCLUDE_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "%zu rows are not wanted, allowed are %d",
                            request->exclude_count, CLAIM_EXCLUDE_MAX);
    }
    if (status == WEIR_OK) {
        status = check_set(c, err);
    }
    if (status == WEIR_OK) {
        status = check_stamps(c, err);
    }
    if (status == WEIR_OK) {
        status = check_written(c, err);
    }
    if (status == WEIR_OK) {
        status = check_marks(c, err);
    }
    if (status == WEIR_OK) {
        status = check_order(c, err);
    }
    if (status == WEIR_OK) {
        status = check_params(c, err);
    }
    return status == WEIR_OK ? check_max_per(c, err) : status;
}
