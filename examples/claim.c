/* claim.c - takes rows of a table that nobody else holds, one after the other, until none is left.
 *
 *     cc claim.c -o claim $(pkg-config --cflags --libs libweir)
 *     sqlite3 jobs.db "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT DEFAULT 'new',
 *                      claimed_by TEXT, claimed_at TEXT, locked_until TEXT)"
 *     ./claim sqlite:jobs.db worker-1
 *
 * Any number of these can run at the same time; each row is given to one of them. One that dies in
 * the middle leaves a row that is free again after a minute.
 */
#include <stdio.h>
#include <string.h>
#include <weir.h>

int main(int argc, char **argv)
{
    const weir_tables_options options = { WEIR_TABLES_OPTIONS_INIT,
                                          .url = argc > 1 ? argv[1] : "sqlite:jobs.db" };
    const char *me = argc > 2 ? argv[2] : "worker";
    const weir_str status = { "status", 6 };
    const weir_value claimed = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .name = status,
                                 .text = { "claimed", 7 } };
    const weir_value done = { WEIR_VALUE_INIT, WEIR_VALUE_TEXT, .name = status,
                              .text = { "done", 4 } };
    const weir_value *const claimed_set[] = { &claimed }, *const done_set[] = { &done };
    const weir_claim claim = {
        WEIR_CLAIM_INIT,     .table = { "jobs", 4 }, .where = { "status = 'new'", 14 },
        .set = claimed_set,  .set_count = 1,         .by = { me, strlen(me) },
        .lease_us = 60000000
    };
    const weir_finish finish = { WEIR_FINISH_INIT, WEIR_FINISH_DONE, .set = done_set,
                                 .set_count = 1 };
    weir_tables *tables = NULL;
    weir_error err;
    int more = 1;

    int32_t result = weir_tables_open(&options, &tables, &err);
    while (result == WEIR_OK && more) {
        weir_rows *rows = NULL;
        result = weir_claim_rows(tables, &claim, &rows, &err);
        more = result == WEIR_OK && weir_rows_count(rows) == 1;
        if (more) {
            const weir_str row = weir_rows_json(rows, 0);
            printf("%.*s\n", (int)row.len, row.ptr); /* here the work is done */
            result = weir_rows_finish(tables, rows, 0, &finish, &err);
        }
        weir_rows_free(rows);
        if (result == WEIR_ELOST) { /* it took too long, and is another's by now */
            result = WEIR_OK;
        }
    }
    if (result != WEIR_OK) {
        fprintf(stderr, "claim: %s\n", err.message);
    }
    weir_tables_close(tables);
    return result == WEIR_OK ? 0 : 1;
}
