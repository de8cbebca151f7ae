/* claim_show.c - weir claim --dry-run, --sql, --explain: what would happen, and nothing does. */
#include "cli/claim.h"

int weir__cli_claim_preview(claim_run *k)
{
    table_result rows = { .rows_count = 0 };
    weir_error err;
    int status = CLI_DONE;

    if (weir__claim_preview(k->place.session, &k->request, &rows, &err) != WEIR_OK) {
        status = weir__cli_claim_fail(k->c, &err);
    } else if (rows.rows_count == 0) {
        status = CLI_NOTHING;
    }
    for (size_t i = 0; i < rows.rows_count && weir__cli_table_print(&k->c->out, &rows, i); i++) {
    }
    weir__table_result_free(&rows);
    return status;
}

/* Text in every form: it is there to be read, or to be given to psql, sqlite3 or weir lint. */
int weir__cli_claim_sql(claim_run *k)
{
    weir_buffer sql = { 0 };
    weir_error err;
    int status = CLI_DONE;

    if (weir__claim_sql(&k->request, &k->place.table, weir__table_dialect(k->place.db), &sql,
                        &err) != WEIR_OK) {
        status = weir__cli_claim_fail(k->c, &err);
    } else {
        (void)weir__cli_put_exact(&k->c->out, (weir_str){ .ptr = sql.ptr, .len = sql.len });
    }
    weir__buffer_free(&sql);
    return status;
}

static void explain_json(cli_output *o, const claim_plan *plan)
{
    weir_buffer b = { 0 };
    report_json j = { .buffer = &b };

    weir__report_json_open(&j, NULL, '{');
    weir__report_json_str(&j, "plan", plan->text);
    weir__report_json_open(&j, "findings", '[');
    for (size_t i = 0; i < plan->findings_count; i++) {
        weir__report_json_open(&j, NULL, '{');
        weir__report_json_str(&j, "rule", weir__str(plan->findings[i].rule));
        weir__report_json_str(&j, "text", plan->findings[i].text);
        weir__report_json_close(&j, '}');
    }
    weir__report_json_close(&j, ']');
    weir__report_json_str(&j, "indexes", plan->indexes);
    weir__report_json_close(&j, '}');
    if (j.failed || !weir__buffer_add(&b, "\n", 1)) {
        o->failed = true;
        (void)weir__fail(&o->error, WEIR_ENOMEM, "out of memory");
    } else {
        (void)weir__cli_put(o, (weir_str){ .ptr = b.ptr, .len = b.len });
    }
    weir__buffer_free(&b);
}

static void explain_text(cli_output *o, const claim_plan *plan)
{
    (void)weir__cli_put(o, plan->text);
    if (plan->findings_count == 0) {
        (void)weir__cli_print(o, "\nno complaint: an index finds the rows in their order\n");
        return;
    }
    (void)weir__cli_print(o, "\n");
    for (size_t i = 0; i < plan->findings_count; i++) {
        (void)weir__cli_print(o, "%s: ", plan->findings[i].rule);
        (void)weir__cli_put(o, plan->findings[i].text);
        (void)weir__cli_print(o, "\n");
    }
    if (plan->indexes.len > 0) {
        (void)weir__cli_print(o, "\n");
        (void)weir__cli_put(o, plan->indexes);
    }
}

int weir__cli_claim_explain(claim_run *k)
{
    claim_plan plan = { .findings_count = 0 };
    weir_error err;
    int status = CLI_DONE;

    if (weir__claim_explain(k->place.session, &k->request, &plan, &err) != WEIR_OK) {
        status = weir__cli_claim_fail(k->c, &err);
    } else if (k->c->out.json) {
        explain_json(&k->c->out, &plan);
    } else {
        explain_text(&k->c->out, &plan);
    }
    weir__claim_plan_free(&plan);
    return status;
}
