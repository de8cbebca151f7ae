/* claim_explain.c - how a claim would be run, what is slow about that, and the index that mends it.
 *
 * Plans of small tables say nothing: they are read whole, whatever indexes there are. So what the
 * indexes are good for is tried on a table without rows that has the same ones (claim_model.c);
 * then on the same with the indexes that we would recommend. What is slow on the first and not on
 * the second is a finding, and it is gone once they are there.
 */
#include "base/sha256.h"
#include "base/sql.h"
#include "base/str.h"
#include "claim/claim_model.h"

#include <string.h>
#include <strings.h>

typedef struct explainer {
    claim_model model;
    weir_buffer ready; /* the condition of the index for ready rows; may be empty */
    const table_column *fixed[CLAIM_COLUMNS_MAX]; /* by that condition; of SQLite's, see below */
    size_t fixed_count;
    probe_cost before[PROBES], after[PROBES];
} explainer;

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "could not allocate the plan of a claim");
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* The next part of a text, which it is then without: letters of a name, or one in quotes. */
static weir_str cut_name(weir_str *text)
{
    weir_str name = { .ptr = text->ptr, .len = 0 };
    const char *end = NULL;
    if (text->len > 0 && text->ptr[0] == '"') {
        end = memchr(text->ptr + 1, '"', text->len - 1);
        name = (weir_str){ .ptr = text->ptr + 1,
                           .len = end == NULL ? 0 : (size_t)(end - text->ptr) - 1 };
    } else {
        while (name.len < text->len && weir__sql_is_name_byte(text->ptr[name.len])) {
            name.len++;
        }
    }
    const size_t cut = end == NULL ? name.len : name.len + 2;
    *text = weir__claim_trimmed((weir_str){ .ptr = text->ptr + cut, .len = text->len - cut });
    return name;
}

/* One value and nothing else: 'pending', 5, :state. */
static bool is_value(weir_str text)
{
    const char first = text.len == 0 ? '\0' : text.ptr[0];
    bool plain = text.len > 1 || first != ':';
    if (first == '\'') {
        return text.len > 1 && memchr(text.ptr + 1, '\'', text.len - 1) == text.ptr + text.len - 1;
    }
    for (size_t i = first == ':' ? 1 : 0; i < text.len && plain; i++) {
        const bool digit = text.ptr[i] >= '0' && text.ptr[i] <= '9';
        plain = digit || (first == ':' && weir__sql_is_name_byte(text.ptr[i]));
    }
    return plain && text.len > 0;
}

/* The column of a condition such as status = 'pending'; NULL: it is of another kind. */
static const table_column *fixed_by(const table_info *t, weir_str part)
{
    const weir_str name = cut_name(&part);
    const table_column *found = NULL;
    for (size_t i = 0; i < t->columns_count && name.len > 0; i++) {
        const weir_str other = t->columns[i].name;
        if (other.len == name.len && strncasecmp(other.ptr, name.ptr, name.len) == 0) {
            found = &t->columns[i];
        }
    }
    for (int i = 0; i < 2 && part.len > 0 && part.ptr[0] == '='; i++) {
        part = (weir_str){ .ptr = part.ptr + 1, .len = part.len - 1 };
        if (is_value(weir__claim_trimmed(part))) {
            return found;
        }
    }
    return NULL;
}

/* SQLite reads a table from end to end rather than an index whose condition most rows fulfilled
 * when its statistics were made. It does not when a column of the index is given a value, and all
 * that is asked about a row is in the index. */
static void note_fixed(explainer *e, weir_str part)
{
    const claim_spec *c = e->model.c;
    const table_column *column = c->dialect == TABLE_SQLITE ? fixed_by(c->table, part) : NULL;
    if (column != NULL && e->fixed_count < CLAIM_COLUMNS_MAX) {
        e->fixed[e->fixed_count++] = column;
    }
}

static weir_status add_usable(explainer *e, weir_str part, weir_error *err)
{
    claim_text t = { .dialect = e->model.c->dialect, .literals = true };
    claim_text condition = { .dialect = e->model.c->dialect, .literals = true };
    bool taken = false;
    weir__claim_add_sql(&condition, part, e->model.c->request->writes.params,
                        e->model.c->request->writes.params_count);
    weir__claim_add(&t, "CREATE INDEX %sweir_try ON ",
                    e->model.c->dialect == TABLE_SQLITE ? "temp." : "");
    weir__claim_add_str(&t, e->model.c->dialect == TABLE_SQLITE
                                ? weir__claim_last_part(e->model.table.quoted)
                                : e->model.table.quoted);
    weir__claim_add(&t, " (");
    weir__claim_add_key(&t, &e->model.table);
    weir__claim_add(&t, ") WHERE (");
    weir__claim_add_str(&t, weir__claim_buffer_str(&condition.sql));
    weir__claim_add(&t, "\n)");
    t.failed = t.failed || condition.failed;
    const weir_status status = weir__claim_attempt(&e->model, &t, false, &taken, err);
    if (status == WEIR_OK && taken) {
        const weir_str sql = weir__claim_trimmed(weir__claim_buffer_str(&condition.sql));
        if ((e->ready.len > 0 && !weir__buffer_add_text(&e->ready, " AND ")) ||
            !weir__buffer_add(&e->ready, sql.ptr, sql.len)) {
            weir__claim_text_free(&t);
            weir__claim_text_free(&condition);
            return no_memory(err);
        }
        note_fixed(e, part);
    }
    weir__claim_text_free(&t);
    weir__claim_text_free(&condition);
    return status;
}

/* The parts of --where, between its ANDs, of which an index can be made. */
static weir_status find_usable(explainer *e, weir_error *err)
{
    const weir_str where = e->model.c->request->where;
    claim_scan scan = { .sql = where, .dialect = e->model.c->dialect };
    weir_status status = WEIR_OK;
    size_t start = 0;
    while (status == WEIR_OK && start < where.len) {
        size_t end = start;
        size_t next = where.len;
        status = weir__claim_scan_and(&scan, &end, &next, err);
        const weir_str part =
            weir__claim_trimmed((weir_str){ .ptr = where.ptr + start, .len = end - start });
        if (status == WEIR_OK && part.len > 0) {
            status = add_usable(e, part, err);
        }
        start = next;
    }
    return status;
}

static bool can_index(const explainer *e, const table_column *column)
{
    return e->model.c->dialect == TABLE_SQLITE ||
           (!weir__str_equal(column->type, weir__str("json")) &&
            !weir__str_equal(column->type, weir__str("xml")));
}

static void add_ready_columns(claim_text *t, const explainer *e)
{
    const claim_spec *c = e->model.c;
    bool there = c->lease == NULL;
    for (size_t i = 0; i < e->fixed_count; i++) {
        weir__claim_add_str(t, e->fixed[i]->quoted);
        weir__claim_add(t, ", ");
        there = there || e->fixed[i] == c->lease;
    }
    for (size_t i = 0; i < c->order_count; i++) {
        there = there || c->order[i].column == c->lease;
    }
    weir__claim_add_order(t, c, false);
    if (e->fixed_count > 0 && !there) {
        weir__claim_add(t, ", ");
        weir__claim_add_str(t, c->lease->quoted);
    }
}

/* What an index is of: (columns) WHERE condition. */
static void add_index_of(claim_text *t, const explainer *e, probe_kind kind)
{
    const claim_spec *c = e->model.c;
    size_t count = 0;
    weir__claim_add(t, " (");
    if (kind == PROBE_READY) {
        add_ready_columns(t, e);
    } else {
        for (size_t i = 0; i < c->request->writes.set_count; i++) {
            if (can_index(e, c->set[i])) {
                weir__claim_add(t, "%s", count++ == 0 ? "" : ", ");
                weir__claim_add_str(t, c->set[i]->quoted);
            }
        }
        if (c->lease != NULL) {
            weir__claim_add(t, "%s", count == 0 ? "" : ", ");
            weir__claim_add_str(t, c->lease->quoted);
        }
    }
    weir__claim_add(t, ")");
    /* Without values by which to tell a claimed row, --where is also what expired ones fulfil. */
    if (e->ready.len > 0 && (kind == PROBE_READY || c->request->writes.set_count == 0)) {
        weir__claim_add(t, " WHERE ");
        weir__claim_add_str(t, weir__claim_buffer_str(&e->ready));
    }
}

/* SQLite wants a name; the same index has always the same. */
static void add_index_name(claim_text *t, const explainer *e, probe_kind kind, weir_str of)
{
    uint8_t digest[WEIR_SHA256_BYTES];
    weir_sha256 hash;
    weir__sha256_init(&hash);
    weir__sha256_add(&hash, of.ptr, of.len);
    weir__sha256_end(&hash, digest);
    const weir_str table = weir__claim_last_part(e->model.c->table->quoted);
    weir__claim_add_str(t, (weir_str){ .ptr = table.ptr, .len = table.len - 1 });
    weir__claim_add(t, "_%s_%02x%02x%02x\"", kind == PROBE_READY ? "ready" : "claimed", digest[0],
                    digest[1], digest[2]);
}

/* CREATE INDEX, on the model or to be shown. */
static void add_index(claim_text *t, const explainer *e, probe_kind kind, bool model)
{
    const claim_spec *c = e->model.c;
    const bool sqlite = c->dialect == TABLE_SQLITE;
    claim_text of = { .dialect = c->dialect };
    add_index_of(&of, e, kind);
    weir__claim_add(t, "CREATE INDEX ");
    if (sqlite) {
        const weir_str quoted = c->table->quoted;
        const weir_str schema = { .ptr = quoted.ptr,
                                  .len = quoted.len - weir__claim_last_part(quoted).len };
        if (model) {
            weir__claim_add(t, "temp.");
        } else if (!weir__str_equal(schema, weir__str("\"main\"."))) {
            weir__claim_add_str(t, schema);
        }
        add_index_name(t, e, kind, weir__claim_buffer_str(&of.sql));
        weir__claim_add(t, " ");
    }
    weir__claim_add(t, "ON ");
    weir__claim_add_str(t, sqlite  ? weir__claim_last_part(c->table->quoted)
                           : model ? e->model.table.quoted
                                   : c->table->quoted);
    weir__claim_add_str(t, weir__claim_buffer_str(&of.sql));
    t->failed = t->failed || of.failed;
    weir__claim_text_free(&of);
}

/* Without a condition, in the key's own order, the key's index has all there is. */
static bool worth_an_index(const explainer *e, probe_kind kind)
{
    const claim_spec *c = e->model.c;
    return weir__claim_has_probe(c, kind) || (kind == PROBE_EXPIRED && c->per != NULL)
               ? kind != PROBE_READY || e->ready.len > 0 || c->order[0].column->key != 1
               : false;
}

static weir_status make_indexes(explainer *e, weir_error *err)
{
    weir_status status = WEIR_OK;
    for (int kind = 0; kind < PROBE_HELD && status == WEIR_OK; kind++) {
        claim_text t = { .dialect = e->model.c->dialect };
        bool taken = false;
        if (worth_an_index(e, (probe_kind)kind)) {
            add_index(&t, e, (probe_kind)kind, true);
            status = weir__claim_attempt(&e->model, &t, true, &taken, err);
        }
        weir__claim_text_free(&t);
    }
    return status;
}

/* ---- findings ------------------------------------------------------------------------------- */

/* "before TABLE after" */
typedef struct finding_text {
    const char *before, *after;
} finding_text;

static const finding_text scan_texts[PROBES] = {
    [PROBE_READY] = { "every row of ", " is read to find those that are ready" },
    [PROBE_EXPIRED] = { "every row of ", " is read to find claims whose lease has ended" },
    [PROBE_HELD] = { "every row of ", " is read to count what is held" },
};
static const finding_text filter_texts[PROBES] = {
    [PROBE_READY] = { "rows of ", " that are not ready are read on the way to those that are" },
    [PROBE_EXPIRED] = { "rows of ", " that are no expired claims are read on the way to those that "
                                    "are" },
    [PROBE_HELD] = { "rows of ", " that are not held are read to count those that are" },
};
static const finding_text sort_text = { "all rows of ",
                                        " that are ready are sorted to find the first" };

static bool add_finding(claim_plan *plan, const explainer *e, const char *rule,
                        const finding_text *text)
{
    weir_buffer sentence = { 0 };
    const weir_str table = e->model.c->table->shown;
    bool ok = weir__buffer_add_text(&sentence, text->before) &&
              weir__buffer_add(&sentence, table.ptr, table.len) &&
              weir__buffer_add_text(&sentence, text->after);
    const char *copy = ok ? weir__arena_copy(&plan->arena, sentence.ptr, sentence.len) : NULL;
    ok = copy != NULL;
    if (ok && plan->findings_count < CLAIM_FINDINGS_MAX) {
        plan->findings[plan->findings_count++] =
            (claim_finding){ .rule = rule, .text = { .ptr = copy, .len = sentence.len } };
    }
    weir__buffer_free(&sentence);
    return ok;
}

static bool costs_compare(claim_plan *plan, const explainer *e, probe_kind kind)
{
    const probe_cost *before = &e->before[kind];
    const probe_cost *after = &e->after[kind];
    return (before->scans <= after->scans ||
            add_finding(plan, e, "sequential-scan", &scan_texts[kind])) &&
           (before->sorts <= after->sorts || add_finding(plan, e, "sort", &sort_text)) &&
           (before->filters <= after->filters ||
            add_finding(plan, e, "filter", &filter_texts[kind]));
}

static bool add_indexes(claim_plan *plan, const explainer *e, const bool wanted[PROBES])
{
    claim_text t = { .dialect = e->model.c->dialect };
    for (int kind = 0; kind < PROBE_HELD; kind++) {
        if (wanted[kind]) {
            add_index(&t, e, (probe_kind)kind, false);
            weir__claim_add(&t, ";\n");
        }
    }
    plan->indexes.len = t.sql.len;
    plan->indexes.ptr = weir__arena_copy(&plan->arena, t.sql.len == 0 ? "" : t.sql.ptr, t.sql.len);
    const bool ok = !t.failed && plan->indexes.ptr != NULL;
    weir__claim_text_free(&t);
    return ok;
}

static bool add_findings(claim_plan *plan, const explainer *e)
{
    bool wanted[PROBES] = { false };
    bool ok = true;
    for (int kind = 0; kind < PROBES && ok; kind++) {
        const size_t count = plan->findings_count;
        ok = costs_compare(plan, e, (probe_kind)kind);
        /* What counts is found by the index that finds expired claims. */
        const bool found = plan->findings_count > count;
        wanted[kind == PROBE_HELD ? PROBE_EXPIRED : kind] |= found;
    }
    return ok && add_indexes(plan, e, wanted);
}

/* ---- the way in ----------------------------------------------------------------------------- */

static weir_status plan_text(table_session *s, const claim_spec *c, claim_plan *plan,
                             weir_error *err)
{
    claim_text t = { .dialect = c->dialect, .literals = true };
    table_result r = { 0 };
    weir_buffer text = { 0 };
    bool ok = true;
    weir__claim_add(&t, "%s ", c->dialect == TABLE_SQLITE ? "EXPLAIN QUERY PLAN" : "EXPLAIN");
    if (c->path != CLAIM_PATH_FAST || c->request->hold) {
        weir__claim_add_choice(&t, c, &(claim_choice){ .limit = c->limit });
        weir__claim_add_chosen(&t, c, false);
    } else if (c->sql->row_locks) {
        weir__claim_add_fast(&t, c, CLAIM_LOCK_SKIP, c->limit, true);
    } else {
        weir__claim_add_fast_update(&t, c);
    }
    const weir_status status = weir__claim_text_run(&t, s, 0, &r, err);
    for (size_t i = 0; i < r.rows_count && ok; i++) {
        const weir_str line = r.cells[(i + 1) * r.columns_count - 1].text;
        ok = weir__buffer_add(&text, line.ptr, line.len) && weir__buffer_add_text(&text, "\n");
    }
    plan->text.ptr = weir__arena_copy(&plan->arena, text.len == 0 ? "" : text.ptr, text.len);
    plan->text.len = text.len;
    ok = ok && plan->text.ptr != NULL;
    weir__buffer_free(&text);
    weir__table_result_free(&r);
    weir__claim_text_free(&t);
    return status == WEIR_OK && !ok ? no_memory(err) : status;
}

static weir_status look_for_indexes(explainer *e, claim_plan *plan, weir_error *err)
{
    weir_status status = weir__claim_begin(e->model.s, CLAIM_BUSY_TIMEOUT, err);
    if (status == WEIR_OK) {
        status = weir__claim_model_make(&e->model, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_probe(&e->model, e->before, err);
    }
    if (status == WEIR_OK) {
        status = find_usable(e, err);
    }
    if (status == WEIR_OK) {
        status = make_indexes(e, err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_probe(&e->model, e->after, err);
    }
    weir__claim_rollback(e->model.s);
    if (status != WEIR_OK) {
        return weir__wrap(err, status, "looking for indexes");
    }
    return add_findings(plan, e) ? WEIR_OK : no_memory(err);
}

weir_status weir__claim_explain(table_session *s, const claim_request *request, claim_plan *plan,
                                weir_error *err)
{
    weir_error local = { 0 };
    claim_spec c;
    const table_info *table = NULL;
    err = err == NULL ? &local : err;
    weir__claim_plan_free(plan);
    if (weir__table_in_transaction(s)) {
        return weir__fail(err, WEIR_EMISUSE,
                          "a transaction is open: a plan is made in one of its "
                          "own, which is undone");
    }
    weir__table_forget(s);
    weir_status status = weir__table_described(s, request->table, &table, err);
    if (status == WEIR_OK) {
        status = weir__claim_check(request, table, weir__table_session_dialect(s), &c, err);
    }
    if (status == WEIR_OK) {
        status = plan_text(s, &c, plan, err);
    }
    if (status == WEIR_OK) {
        explainer e = { .model = { .s = s, .c = &c } };
        status = look_for_indexes(&e, plan, err);
        weir__claim_model_free(&e.model);
        weir__buffer_free(&e.ready);
    }
    if (status != WEIR_OK) {
        weir__claim_plan_free(plan);
    }
    return status;
}

void weir__claim_plan_free(claim_plan *plan)
{
    weir__arena_free(&plan->arena);
    *plan = (claim_plan){ 0 };
}
