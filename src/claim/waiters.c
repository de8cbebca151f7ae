/* waiters.c - see waiters.h. */
#define _GNU_SOURCE /* memmem */

#include "claim/waiters.h"
#include "base/error.h"
#include "base/str.h"

#include "waiters_sql.h"

#include <string.h>

#define LOOK_WAIT_US INT64_C(1000000)

static bool list_contains(weir_str text, weir_str part)
{
    return part.len > 0 && text.len >= part.len &&
           memmem(text.ptr, text.len, part.ptr, part.len) != NULL;
}

static weir_str text_of(const table_cell *cell)
{
    const weir_str nothing = { .len = 0 };

    return cell->null ? nothing : cell->text;
}

/* Whether a backend works for a process of the group. */
static bool is_ours(const waiter_search *search, const table_cell *cells)
{
    int64_t port = 0;

    if (list_contains(text_of(&cells[3]), search->name)) {
        return true;
    }
    return search->group > 0 && !cells[1].null && weir__str_to_i64(text_of(&cells[2]), &port) &&
           port > 0 && weir__group_has_socket(search->group, cells[1].text, port);
}

weir_status weir__waiters_look(table_session *s, const waiter_search *search, waiter_found *out,
                               weir_error *err)
{
    const table_value value = { .kind = TABLE_INTEGER, .number = search->holder };
    const table_statement look = {
        .sql = sql_waiters, .values = &value, .values_count = 1, .wait_us = LOOK_WAIT_US
    };
    table_result rows = { .rows_count = 0 };
    const weir_status status = weir__table_run(s, &look, &rows, err);

    if (status == WEIR_OK) {
        *out = (waiter_found){ .holder_gone = true };
    }
    for (size_t i = 0; status == WEIR_OK && i < rows.rows_count; i++) {
        const table_cell *cells = &rows.cells[i * rows.columns_count];
        int64_t pid = 0;
        (void)weir__str_to_i64(text_of(&cells[0]), &pid);
        if (pid == search->holder) {
            out->holder_gone = false;
        } else if (out->waiter == 0 && is_ours(search, cells)) {
            out->waiter = pid;
        }
    }
    weir__table_result_free(&rows);
    return status;
}

weir_status weir__waiter_end(table_session *s, int64_t waiter, weir_error *err)
{
    const table_value value = { .kind = TABLE_INTEGER, .number = waiter };
    const table_statement end = {
        .sql = sql_waiter_end, .values = &value, .values_count = 1, .wait_us = LOOK_WAIT_US
    };
    table_result r = { .rows_count = 0 };
    weir_status status = weir__table_run(s, &end, &r, err);

    if (status == WEIR_OK &&
        (r.rows_count != 1 || !weir__str_equal(text_of(&r.cells[0]), weir__str("t")))) {
        status = weir__fail(err, WEIR_EIO, "backend %lld did not end", (long long)waiter);
    }
    weir__table_result_free(&r);
    return status;
}
