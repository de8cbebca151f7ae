/* claim_model.c - what the indexes of a table are good for, seen on a table without rows.
 *
 * What is asked are the parts of a claim one by one, without locks, under which PostgreSQL shows
 * conditions that an index has settled already. There it is told to read no table from end to end
 * and to sort nothing, if there is any other way: what it does all the same it has no index for.
 */
#include "claim/claim_model.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate the plan of a claim");
}

weir_str weir__claim_buffer_str(const weir_buffer *b)
{
    return (weir_str){ .ptr = b->ptr == NULL ? "" : b->ptr, .len = b->len };
}

weir_str weir__claim_trimmed(weir_str s)
{
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[0]) != NULL) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    return s;
}

static bool text_contains(weir_str s, const char *part)
{
    const size_t len = strlen(part);
    for (size_t i = 0; i + len <= s.len; i++) {
        if (memcmp(s.ptr + i, part, len) == 0) {
            return true;
        }
    }
    return false;
}

bool weir__claim_has_probe(const claim_spec *c, probe_kind kind)
{
    switch (kind) {
    case PROBE_READY:
        return true;
    case PROBE_EXPIRED:
        return c->lease != NULL;
    case PROBE_HELD:
        return c->per != NULL && c->request->writes.set_count > 0;
    case PROBES:
        break;
    }
    return false;
}

void weir__claim_model_free(claim_model *m)
{
    weir__buffer_free(&m->quoted);
}

/* ---- statements that can be tried ----------------------------------------------------------- */

/* Runs a statement of which it is not known whether the database takes it. */
weir_status weir__claim_attempt(claim_model *m, claim_text *t, bool keep, bool *taken,
                                weir_error *err)
{
    weir_status status = weir__claim_run(m->s, "SAVEPOINT weir_try", 0, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__claim_text_run(t, m->s, 0, NULL, err);
    *taken = status == WEIR_OK;
    if (status != WEIR_OK && status != WEIR_EINVAL && status != WEIR_EIO) {
        return status;
    }
    if (!keep || !*taken) {
        status = weir__claim_run(m->s, "ROLLBACK TO SAVEPOINT weir_try", 0, err);
    }
    return status == WEIR_OK ? weir__claim_run(m->s, "RELEASE SAVEPOINT weir_try", 0, err) : status;
}

static weir_status run_text(claim_model *m, const char *before, weir_str text, weir_error *err)
{
    claim_text t = { .dialect = m->c->dialect };
    weir__claim_add(&t, "%s", before);
    weir__claim_add_str(&t, text);
    const weir_status status = weir__claim_text_run(&t, m->s, 0, NULL, err);
    weir__claim_text_free(&t);
    return status;
}

/* ---- the table without rows ----------------------------------------------------------------- */

weir_str weir__claim_last_part(weir_str quoted)
{
    /* "schema"."name": the last quote that opens a part follows a dot or nothing. */
    size_t start = 0;
    bool inside = false;
    for (size_t i = 0; i < quoted.len; i++) {
        inside = quoted.ptr[i] == '"' ? !inside : inside;
        if (!inside && quoted.ptr[i] == '.') {
            start = i + 1;
        }
    }
    return (weir_str){ .ptr = quoted.ptr + start, .len = quoted.len - start };
}

static weir_status model_postgres(claim_model *m, weir_error *err)
{
    static const char *const settings[] = {
        "SET LOCAL enable_seqscan = off",
        "SET LOCAL enable_bitmapscan = off",
        "SET LOCAL enable_sort = off",
        "SET LOCAL enable_incremental_sort = off",
        "SET LOCAL client_min_messages = warning",
    };
    claim_text t = { .dialect = TABLE_POSTGRES };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0] && status == WEIR_OK; i++) {
        status = weir__claim_run(m->s, settings[i], 0, err);
    }
    weir__claim_add(&t, "CREATE TEMPORARY TABLE ");
    weir__claim_add_str(&t, m->table.quoted);
    weir__claim_add(&t, " (LIKE ");
    weir__claim_add_str(&t, m->c->table->quoted);
    weir__claim_add(&t, " INCLUDING INDEXES)");
    if (status == WEIR_OK) {
        status = weir__claim_text_run(&t, m->s, 0, NULL, err);
    }
    weir__claim_text_free(&t);
    return status;
}

/* SQLite keeps what a table and an index were created with: CREATE TABLE jobs (...). */
static weir_status model_one_sqlite(claim_model *m, weir_str sql, weir_error *err)
{
    static const struct {
        const char *begins, *becomes;
    } kinds[] = { { "CREATE TABLE ", "CREATE TABLE temp." },
                  { "CREATE INDEX ", "CREATE INDEX temp." },
                  { "CREATE UNIQUE INDEX ", "CREATE UNIQUE INDEX temp." } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t len = strlen(kinds[i].begins);
        if (sql.len > len && strncasecmp(sql.ptr, kinds[i].begins, len) == 0) {
            return run_text(m, kinds[i].becomes,
                            (weir_str){ .ptr = sql.ptr + len, .len = sql.len - len }, err);
        }
    }
    return WEIR_OK; /* an index that a constraint has made comes with the table */
}

static weir_status model_sqlite(claim_model *m, weir_error *err)
{
    claim_text t = { .dialect = TABLE_SQLITE };
    table_result r = { 0 };
    const weir_str whole = m->c->table->quoted;
    const weir_str name = weir__claim_last_part(whole);
    weir__claim_add(&t, "SELECT sql FROM ");
    weir__claim_add_str(&t, (weir_str){ .ptr = whole.ptr, .len = whole.len - name.len });
    weir__claim_add(&t, "sqlite_schema WHERE type IN ('table', 'index') AND '\"' || replace("
                        "tbl_name, '\"', '\"\"') || '\"' = ");
    weir__claim_add_value(&t, &(table_value){ .kind = TABLE_TEXT, .text = name }, NULL);
    weir__claim_add(&t, " ORDER BY type = 'index'");
    weir_status status = weir__claim_text_run(&t, m->s, 0, &r, err);
    for (size_t i = 0; i < r.rows_count && status == WEIR_OK; i++) {
        if (!r.cells[i].null) {
            status = model_one_sqlite(m, r.cells[i].text, err);
        }
    }
    weir__table_result_free(&r);
    weir__claim_text_free(&t);
    return status;
}

weir_status weir__claim_model_make(claim_model *m, weir_error *err)
{
    const weir_str name = weir__claim_last_part(m->c->table->quoted);
    const bool sqlite = m->c->dialect == TABLE_SQLITE;
    if (!weir__buffer_add_text(&m->quoted, sqlite ? "\"temp\"." : "\"pg_temp\".") ||
        !weir__buffer_add(&m->quoted, name.ptr, name.len)) {
        return no_memory(err);
    }
    m->table = *m->c->table;
    m->table.quoted = weir__claim_buffer_str(&m->quoted);
    m->spec = *m->c;
    m->spec.table = &m->table;
    return sqlite ? model_sqlite(m, err) : model_postgres(m, err);
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* SELECT of one part of a claim. */
static void add_probe(claim_text *t, const claim_spec *c, probe_kind kind)
{
    weir__claim_add(t, "%s SELECT ",
                    c->dialect == TABLE_SQLITE ? "EXPLAIN QUERY PLAN" : "EXPLAIN (COSTS OFF)");
    weir__claim_add_key(t, c->table);
    weir__claim_add(t, " FROM ");
    weir__claim_add_str(t, c->table->quoted);
    weir__claim_add(t, " WHERE ");
    switch (kind) {
    case PROBE_READY:
        weir__claim_add_where(t, c, c->request->where);
        weir__claim_add(t, " ORDER BY ");
        weir__claim_add_order(t, c, false);
        weir__claim_add(t, " LIMIT %" PRId64, c->limit > 0 ? c->limit : 1);
        break;
    case PROBE_EXPIRED:
        weir__claim_add_ended(t, c, NULL);
        break;
    case PROBE_HELD:
        weir__claim_add_held(t, c);
        break;
    case PROBES:
        break;
    }
}

/* The index that a line of a plan names, after `before`. */
static weir_str index_in(weir_str line, const char *before)
{
    const size_t len = strlen(before);
    for (size_t i = 0; i + len < line.len; i++) {
        if (memcmp(line.ptr + i, before, len) == 0) {
            weir_str name = { .ptr = line.ptr + i + len, .len = 0 };
            const char *end = line.ptr + line.len;
            const bool quoted = *name.ptr == '"';
            name.ptr += quoted ? 1 : 0;
            while (name.ptr + name.len < end && name.ptr[name.len] != (quoted ? '"' : ' ')) {
                name.len++;
            }
            return name;
        }
    }
    return (weir_str){ 0 };
}

static weir_status is_partial(claim_model *m, weir_str index, bool *partial, weir_error *err)
{
    claim_text t = { .dialect = m->c->dialect };
    table_result r = { 0 };
    weir__claim_add(&t, "%s",
                    m->c->dialect == TABLE_SQLITE
                        ? "SELECT 1 FROM pragma_index_list("
                        : "SELECT 1 FROM pg_catalog.pg_index AS i JOIN "
                          "pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid "
                          "WHERE i.indpred IS NOT NULL AND i.indrelid OPERATOR(pg_catalog.=) "
                          "CAST(");
    const weir_str name = weir__claim_last_part(m->c->dialect == TABLE_SQLITE ? m->c->table->quoted
                                                                              : m->table.quoted);
    if (m->c->dialect == TABLE_SQLITE) {
        weir__claim_add_value(
            &t, &(table_value){ .kind = TABLE_TEXT, .text = { name.ptr + 1, name.len - 2 } }, NULL);
        weir__claim_add(&t, ", 'temp') WHERE partial AND name = ");
    } else {
        weir__claim_add_value(&t, &(table_value){ .kind = TABLE_TEXT, .text = m->table.quoted },
                              NULL);
        weir__claim_add(&t, " AS pg_catalog.regclass) AND c.relname OPERATOR(pg_catalog.=) ");
    }
    weir__claim_add_value(&t, &(table_value){ .kind = TABLE_TEXT, .text = index }, NULL);
    const weir_status status = weir__claim_text_run(&t, m->s, 0, &r, err);
    *partial = r.rows_count > 0;
    weir__table_result_free(&r);
    weir__claim_text_free(&t);
    return status;
}

static weir_status read_sqlite(claim_model *m, const table_result *plan, probe_cost *cost,
                               weir_error *err)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < plan->rows_count && status == WEIR_OK; i++) {
        const weir_str line = plan->cells[(i + 1) * plan->columns_count - 1].text;
        const weir_str index = index_in(line, "INDEX ");
        bool partial = false;
        if (text_contains(line, "TEMP B-TREE FOR") && text_contains(line, "ORDER BY")) {
            cost->sorts++;
        } else if (weir__str_starts_with(line, weir__str("SCAN ")) && index.len == 0) {
            cost->scans++;
        } else if (weir__str_starts_with(line, weir__str("SCAN "))) {
            status = is_partial(m, index, &partial, err);
            cost->filters += partial ? 0 : 1;
        }
    }
    return status;
}

/* A scan of the plan, while its lines are read. */
typedef struct pg_scan {
    bool open, condition;
    size_t filters; /* conditions that every row found is put to */
    weir_str index;
} pg_scan;

/* Filter: ((a) AND (b)) */
static size_t conditions_count(weir_str line)
{
    size_t count = 1;
    for (size_t i = 0; i + 7 <= line.len; i++) {
        count += memcmp(line.ptr + i, ") AND (", 7) == 0 ? 1 : 0;
    }
    return count;
}

static weir_status scan_end(claim_model *m, pg_scan *scan, probe_cost *cost, weir_error *err)
{
    bool partial = false;
    weir_status status = WEIR_OK;
    if (scan->open && scan->filters > 0 && !scan->condition) {
        status = is_partial(m, scan->index, &partial, err);
    }
    if (scan->open && scan->filters > 0) {
        cost->scans += scan->condition || partial ? 0 : 1;
        cost->filters += scan->condition || partial ? scan->filters : 0;
    }
    *scan = (pg_scan){ 0 };
    return status;
}

static weir_status read_postgres(claim_model *m, const table_result *plan, probe_cost *cost,
                                 weir_error *err)
{
    pg_scan scan = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < plan->rows_count && status == WEIR_OK; i++) {
        weir_str line = weir__claim_trimmed(plan->cells[i].text);
        const bool node = i == 0 || weir__str_starts_with(line, weir__str("->"));
        if (!node) {
            scan.condition =
                scan.condition || weir__str_starts_with(line, weir__str("Index Cond:"));
            scan.filters +=
                weir__str_starts_with(line, weir__str("Filter:")) ? conditions_count(line) : 0;
            continue;
        }
        if (i > 0) {
            line = weir__claim_trimmed((weir_str){ .ptr = line.ptr + 2, .len = line.len - 2 });
        }
        status = scan_end(m, &scan, cost, err);
        cost->scans += weir__str_starts_with(line, weir__str("Seq Scan")) ? 1 : 0;
        cost->sorts += weir__str_starts_with(line, weir__str("Sort")) ||
                               weir__str_starts_with(line, weir__str("Incremental Sort"))
                           ? 1
                           : 0;
        scan.open = weir__str_starts_with(line, weir__str("Index "));
        scan.index = index_in(line, " using ");
    }
    return status == WEIR_OK ? scan_end(m, &scan, cost, err) : status;
}

weir_status weir__claim_probe(claim_model *m, probe_cost costs[PROBES], weir_error *err)
{
    weir_status status = WEIR_OK;
    for (int kind = 0; kind < PROBES && status == WEIR_OK; kind++) {
        claim_text t = { .dialect = m->c->dialect, .literals = true };
        table_result plan = { 0 };
        if (weir__claim_has_probe(m->c, (probe_kind)kind)) {
            add_probe(&t, &m->spec, (probe_kind)kind);
            status = weir__claim_text_run(&t, m->s, 0, &plan, err);
            if (status == WEIR_OK) {
                status = m->c->dialect == TABLE_SQLITE ? read_sqlite(m, &plan, &costs[kind], err)
                                                       : read_postgres(m, &plan, &costs[kind], err);
            }
        }
        weir__table_result_free(&plan);
        weir__claim_text_free(&t);
    }
    return status;
}
