/* claim_options.c - see claim_options.h. */
#include "cli/claim_options.h"
#include "base/json.h"
#include "claim/claim_private.h"
#include "cli/column_text.h"
#include "cli/work.h"

#include <stdlib.h>

enum { FIELDS_MAX = REPORT_COLUMNS_MAX };

/* ---- flags ---------------------------------------------------------------------------------- */

/* Flags that a command does not have were not given. */
static bool was_given(const cli *c, const char *name)
{
    for (size_t i = 0; i < c->given_count; i++) {
        if (strcmp(c->given[i].option->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int fail_memory(const cli *c)
{
    weir_error err;

    (void)weir__fail(&err, WEIR_ENOMEM, "out of memory");
    return weir__cli_fail(c, &err);
}

/* COLUMN=REST of one flag. */
static int take_pair(const cli *c, claim_options *o, const cli_given *g, weir_str *column,
                     weir_str *rest)
{
    weir_error err;
    const weir_status status =
        weir__cli_column_pair(weir__str(g->text), &o->arena, column, rest, &err);

    if (status == WEIR_ENOMEM) {
        return fail_memory(c);
    }
    return status == WEIR_OK ? CLI_DONE
                             : weir__cli_usage(c, "--%s: %s", g->option->name, err.message);
}

/* All of --NAME COLUMN=VALUE and --NAME-sql COLUMN=EXPR, in place of what the file has. */
static int take_writes(const cli *c, claim_options *o, const char *name, const char *name_sql,
                       claim_writes *w)
{
    const size_t most = c->given_count + 1;
    int status = CLI_DONE;

    if (!was_given(c, name) && !was_given(c, name_sql)) {
        return CLI_DONE;
    }
    claim_set *set = weir__arena_alloc(&o->arena, most * sizeof *set);
    claim_set_sql *sql = weir__arena_alloc(&o->arena, most * sizeof *sql);
    if (set == NULL || sql == NULL) {
        return fail_memory(c);
    }
    *w = (claim_writes){ .set = set, .set_sql = sql };
    for (size_t i = 0; status == CLI_DONE && i < c->given_count; i++) {
        const cli_given *g = &c->given[i];
        weir_str column = { 0 }, rest = { 0 };
        const bool is_set = strcmp(g->option->name, name) == 0;
        if (!is_set && strcmp(g->option->name, name_sql) != 0) {
            continue;
        }
        status = take_pair(c, o, g, &column, &rest);
        if (status == CLI_DONE && is_set) {
            set[w->set_count++] =
                (claim_set){ .column = column, .value = { .kind = TABLE_TEXT, .text = rest } };
        } else if (status == CLI_DONE) {
            sql[w->set_sql_count++] = (claim_set_sql){ .column = column, .sql = rest };
        }
    }
    return status;
}

static int take_params(const cli *c, claim_options *o)
{
    int status = CLI_DONE;

    o->params = weir__arena_alloc(&o->arena, (c->given_count + 1) * sizeof *o->params);
    if (o->params == NULL) {
        return fail_memory(c);
    }
    for (size_t i = 0; status == CLI_DONE && i < c->given_count; i++) {
        claim_param *p = &o->params[o->params_count];
        if (strcmp(c->given[i].option->name, "param") == 0) {
            *p = (claim_param){ .value = { .kind = TABLE_TEXT } };
            status = take_pair(c, o, &c->given[i], &p->name, &p->value.text);
            o->params_count++;
        }
    }
    return status;
}

static void take_str(const cli *c, const char *name, weir_str *out)
{
    if (was_given(c, name)) {
        *out = weir__cli_text(c, name);
    }
}

/* A flag with a number or a duration within bounds. */
static int take_number(const cli *c, const char *name, int64_t min, int64_t max, int64_t *out)
{
    if (!was_given(c, name)) {
        return CLI_DONE;
    }
    const cli_given *g = weir__cli_get(c, name);
    if (g->number < min || g->number > max) {
        return g->option->kind == CLI_SPAN
                   ? weir__cli_usage(c, "--%s takes a duration from 1ms to a year, not \"%s\"",
                                     name, g->text)
                   : weir__cli_usage(c, "--%s takes a number from %lld to %lld, not \"%s\"", name,
                                     (long long)min, (long long)max, g->text);
    }
    *out = g->number;
    return CLI_DONE;
}

static int take_max_per(const cli *c, claim_options *o)
{
    claim_request *r = &o->spec.claim;
    weir_str rest = { 0 };

    if (!was_given(c, "max-per")) {
        return CLI_DONE;
    }
    const cli_given *g = weir__cli_get(c, "max-per");
    const int status = take_pair(c, o, g, &r->max_per_column, &rest);
    if (status == CLI_DONE && (!weir__str_to_i64(rest, &r->max_per) || r->max_per < 1)) {
        return weir__cli_usage(c, "--max-per takes COLUMN=N with N from 1, not \"%s\"", g->text);
    }
    return status;
}

static int take_order(const cli *c, claim_options *o)
{
    claim_request *r = &o->spec.claim;
    weir_error err;

    if (!was_given(c, "order")) {
        return CLI_DONE;
    }
    const weir_status status = weir__cli_column_order(weir__cli_text(c, "order"), &o->arena,
                                                      &r->order, &r->order_count, &err);
    if (status == WEIR_ENOMEM) {
        return fail_memory(c);
    }
    return status == WEIR_OK ? CLI_DONE : weir__cli_usage(c, "--order: %s", err.message);
}

static int take_path(const cli *c, claim_options *o)
{
    if (was_given(c, "path") &&
        !weir__config_path(weir__cli_text(c, "path"), &o->spec.claim.path)) {
        return weir__cli_usage(c, "--path takes default, fast or portable, not \"%s\"",
                               weir__cli_text(c, "path").ptr);
    }
    return CLI_DONE;
}

/* `--set` means what is written by this command: a claim's, or that of done, fail and release. */
static claim_writes *set_of(const cli *c, table_spec *s)
{
    const char *name = c->command->name;

    return strcmp(name, "done") == 0      ? &s->done
           : strcmp(name, "fail") == 0    ? &s->failed
           : strcmp(name, "release") == 0 ? &s->released
                                          : &s->claim.writes;
}

static int take_all_writes(const cli *c, claim_options *o)
{
    table_spec *s = &o->spec;
    int status = take_writes(c, o, "set", "set-sql", set_of(c, s));

    if (status == CLI_DONE) {
        status = take_writes(c, o, "done", "done-sql", &s->done);
    }
    if (status == CLI_DONE) {
        status = take_writes(c, o, "fail", "fail-sql", &s->failed);
    }
    if (status == CLI_DONE) {
        status = take_writes(c, o, "release", "release-sql", &s->released);
    }
    return status == CLI_DONE ? take_params(c, o) : status;
}

static int take_numbers(const cli *c, table_spec *s)
{
    int status = take_number(c, "limit", 1, CLAIM_LIMIT_MAX, &s->claim.limit);

    if (status == CLI_DONE) {
        status = take_number(c, "lease", TABLE_DURATION_US_MIN, TABLE_DURATION_US_MAX,
                             &s->claim.lease_us);
    }
    if (status == CLI_DONE) {
        status = take_number(c, "parallel", 1, RUNNER_PARALLEL_MAX, &s->parallel);
    }
    if (status == CLI_DONE) {
        status = take_number(c, "deadline", TABLE_DURATION_US_MIN, TABLE_DURATION_US_MAX,
                             &s->deadline_us);
    }
    return status;
}

static int take_flags(const cli *c, claim_options *o)
{
    claim_request *r = &o->spec.claim;
    int status = take_all_writes(c, o);

    take_str(c, "where", &r->where);
    take_str(c, "by", &r->by);
    take_str(c, "by-column", &r->by_column);
    take_str(c, "at-column", &r->at_column);
    take_str(c, "lease-column", &r->lease_column);
    take_str(c, "fence-column", &r->fence_column);
    take_str(c, "attempts-column", &r->attempts_column);
    if (status == CLI_DONE) {
        status = take_numbers(c, &o->spec);
    }
    if (status == CLI_DONE) {
        status = take_max_per(c, o);
    }
    if (status == CLI_DONE) {
        status = take_order(c, o);
    }
    return status == CLI_DONE ? take_path(c, o) : status;
}

int weir__cli_claim_read(cli *c, claim_options *o, const char *name, bool from_file)
{
    weir_error err;

    o->spec = weir__table_spec(weir__str(name));
    if (from_file) {
        if (weir__config_tables_read(&o->file, "weir.yaml", &err) != WEIR_OK) {
            const cli_config problems = { .problems = o->file.problems,
                                          .problems_count = o->file.problems_count };
            return weir__work_problems(c, &problems, &err);
        }
        const table_spec *found = weir__config_table(&o->file, weir__str(name));
        if (found != NULL) {
            o->spec = *found;
        }
    }
    return take_flags(c, o);
}

void weir__cli_claim_free(claim_options *o)
{
    weir__arena_free(&o->arena);
    weir__config_tables_free(&o->file);
    *o = (claim_options){ .params = NULL };
}

/* ---- parameters ------------------------------------------------------------------------------ */

static bool sql_uses(weir_str sql, table_dialect dialect, weir_str name)
{
    claim_scan scan = { .sql = sql, .dialect = dialect };
    claim_piece piece;
    bool more = sql.len > 0;

    while (more && weir__claim_scan_next(&scan, &piece, &more, NULL) == WEIR_OK && more) {
        if (piece.param && weir__str_equal(piece.text, name)) {
            return true;
        }
    }
    return false;
}

static bool writes_use(const claim_writes *w, table_dialect dialect, weir_str name)
{
    for (size_t i = 0; i < w->set_sql_count; i++) {
        if (sql_uses(w->set_sql[i].sql, dialect, name)) {
            return true;
        }
    }
    return false;
}

int weir__cli_claim_params(const cli *c, claim_options *o, table_dialect dialect)
{
    table_spec *s = &o->spec;
    claim_writes *writes[] = { &s->claim.writes, &s->done, &s->failed, &s->released };
    enum { WRITES = sizeof writes / sizeof writes[0] };
    claim_param *lists[WRITES];

    for (size_t k = 0; k < WRITES; k++) {
        lists[k] = weir__arena_alloc(&o->arena, (o->params_count + 1) * sizeof *lists[k]);
        if (lists[k] == NULL) {
            return fail_memory(c);
        }
        writes[k]->params = lists[k];
    }
    for (size_t i = 0; i < o->params_count; i++) {
        const claim_param p = o->params[i];
        bool used = false;
        for (size_t k = 0; k < WRITES; k++) {
            if (writes_use(writes[k], dialect, p.name) ||
                (k == 0 && sql_uses(s->claim.where, dialect, p.name))) {
                lists[k][writes[k]->params_count++] = p;
                used = true;
            }
        }
        if (!used) {
            lists[0][writes[0]->params_count++] = p;
        }
    }
    return CLI_DONE;
}

/* ---- a database and a table of it ------------------------------------------------------------ */

int weir__cli_claim_fail(const cli *c, const weir_error *err)
{
    const int status = weir__cli_fail(c, err);

    return status == CLI_NOTHING ? CLI_ERROR : status;
}

int weir__cli_place_open(cli *c, weir_str table, claim_place *p)
{
    char *url = NULL;
    weir_error err;
    weir_status status = weir__cli_url(c, &url, &err);

    if (status == WEIR_OK) {
        const table_options options = { .url = url };
        status = weir__table_open(&p->db, &options, &err);
    }
    weir__free(url);
    if (status == WEIR_OK) {
        status = weir__table_session_open(p->db, &p->session, &err);
    }
    if (status == WEIR_OK) {
        /* Remembered by the session, so that what it does with the table asks no more. */
        const table_info *known = NULL;
        status = weir__table_described(p->session, table, &known, &err);
        if (status == WEIR_OK && !weir__table_info_copy(known, &p->arena, &p->table)) {
            status = weir__fail(&err, WEIR_ENOMEM, "out of memory");
        }
    }
    return status == WEIR_OK ? CLI_DONE : weir__cli_claim_fail(c, &err);
}

void weir__cli_place_close(claim_place *p)
{
    weir__table_session_close(p->session);
    weir__table_close(p->db);
    weir__arena_free(&p->arena);
    *p = (claim_place){ .db = NULL };
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool put_memory(cli_output *o)
{
    o->failed = true;
    (void)weir__fail(&o->error, WEIR_ENOMEM, "out of memory");
    return false;
}

/* The members of a row's JSON as cells: strings without quotes and escapes. */
static bool print_cells(cli_output *o, const table_result *r, weir_str object)
{
    report_field fields[FIELDS_MAX];
    weir_arena arena = { 0 };
    weir_buffer decoded = { 0 };
    weir_json_members it = weir__json_members(object);
    size_t count = 0;
    bool ok = true;

    while (ok && count < FIELDS_MAX && count < r->columns_count && weir__json_members_next(&it)) {
        const char *name = weir__arena_copy(&arena, r->names[count].ptr, r->names[count].len);
        const weir_json_type type = weir__json_type(it.value);
        weir_str text = it.value;
        if (type == WEIR_JSON_STRING) {
            weir__buffer_clear(&decoded);
            ok = weir__json_string_decode(it.value, &decoded);
            const char *copy =
                weir__arena_copy(&arena, decoded.ptr == NULL ? "" : decoded.ptr, decoded.len);
            text = (weir_str){ .ptr = copy, .len = decoded.len };
            ok = ok && copy != NULL;
        }
        ok = ok && name != NULL;
        fields[count++] = (report_field){ .name = name,
                                          .type = type == WEIR_JSON_NULL ? REPORT_NULL : REPORT_STR,
                                          .text = text };
    }
    ok = ok ? weir__cli_row(o, fields, count) : put_memory(o);
    weir__buffer_free(&decoded);
    weir__arena_free(&arena);
    return ok;
}

bool weir__cli_table_print(cli_output *o, const table_result *r, size_t row)
{
    weir_buffer json = { 0 };
    bool ok = weir__table_row_json(r, row, SIZE_MAX, &json);

    if (!ok) {
        ok = put_memory(o);
    } else if (o->json) {
        ok = weir__buffer_add(&json, "\n", 1)
                 ? weir__cli_put(o, (weir_str){ .ptr = json.ptr, .len = json.len })
                 : put_memory(o);
    } else {
        ok = print_cells(o, r, (weir_str){ .ptr = json.ptr, .len = json.len });
    }
    weir__buffer_free(&json);
    return ok;
}

bool weir__cli_key_json(const table_info *t, const table_result *r, size_t row, weir_buffer *out)
{
    weir_str *names = weir__calloc(t->key_count + 1, sizeof *names);
    table_cell *cells = weir__calloc(t->key_count + 1, sizeof *cells);
    const table_result key = {
        .names = names, .columns_count = t->key_count, .cells = cells, .rows_count = 1
    };
    bool ok = names != NULL && cells != NULL;

    for (size_t i = 0; ok && i < t->key_count; i++) {
        names[i] = t->columns[t->key[i]].name;
        cells[i] = r->cells[row * r->columns_count + t->key[i]];
    }
    ok = ok && weir__table_row_json(&key, 0, SIZE_MAX, out);
    weir__free(names);
    weir__free(cells);
    return ok;
}
