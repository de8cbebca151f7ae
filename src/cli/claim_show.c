/* claim_show.c - weir claim --dry-run, --sql: what would happen, and nothing does. */
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
        (void)weir__cli_put(&k->c->out, (weir_str){ .ptr = sql.ptr, .len = sql.len });
    }
    weir__buffer_free(&sql);
    return status;
}
