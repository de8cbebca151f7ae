/* check_targets.c - the invariants of the targets side, asked of a store by doctor.
 *
 * Each check is one SQL statement that gives a sentence for each violation, written without any use
 * of the code that keeps the invariant.
 */
#include "base/error.h"
#include "base/memory.h"
#include "store/finding.h"
#include "store/sqlite/check_targets_sql.h"
#include "store/sqlite/targets.h"

#include <assert.h>

static_assert(STORE_RANK_SHIFT == 5, "check_rank spells out the shift");

typedef struct target_check {
    const char *rule;   /* static */
    const char *sql;    /* static */
    const char *advice; /* NULL: what is done about it on every store */
} target_check;

static const char advice_foreign[] =
    "Something other than Weir has written to this table, or the file is damaged: run PRAGMA "
    "integrity_check, and restore a backup if it complains.";

static const target_check checks[] = {
    { "target-derived", sql_check_derived, NULL },
    { "target-rank", sql_check_rank, NULL },
    { "target-held", sql_check_held, NULL },
    { "target-lease", sql_check_lease, advice_foreign },
    { "target-lane", sql_check_lane, NULL },
    { "subscription-position", sql_check_position, advice_foreign },
    { "subscription", sql_check_subscription, advice_foreign },
    { "work", sql_check_work, advice_foreign },
    { "parked", sql_check_parked, advice_foreign },
    { "reaction-definition", sql_check_definition, advice_foreign },
    { "reaction-routing", sql_check_routing, advice_foreign },
};

static weir_status run_check(sqlite_conn *conn, const target_check *check, store_finding_fn fn,
                             void *ctx, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, check->sql, err);
    while (weir__cursor_next(&cursor)) {
        const char *text = (const char *)sqlite3_column_text(cursor.stmt, 0);
        if (text == NULL) {
            weir__cursor_fail(&cursor, weir__fail(err, WEIR_ENOMEM, "could not copy a finding"));
        } else {
            fn(ctx, check->rule, text,
               check->advice != NULL ? check->advice : weir__finding_advice(check->rule));
        }
    }
    return weir__cursor_end(&cursor);
}

weir_status weir__sqlite_check_targets(sqlite_store *s, sqlite_conn *conn, store_finding_fn fn,
                                       void *ctx, weir_error *err)
{
    (void)s;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        const weir_status status = run_check(conn, &checks[i], fn, ctx, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}
