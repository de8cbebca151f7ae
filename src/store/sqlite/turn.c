/* turn.c - what ends and what begins in one transaction: many plain settles, then one lease.
 *
 * INVARIANT  A settle that is refused has written nothing, so the others need not be undone. All
 * answers are handed out after the commit.
 */
#include "base/error.h"
#include "store/sqlite/targets.h"

typedef struct turn_answer {
    weir_status status;
    bool behind;
} turn_answer;

static weir_status turn_in(sqlite_conn *conn, const sqlite_times *now, store_settle *const *settles,
                           size_t count, turn_answer *answers, weir_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const weir_status status =
            weir__sqlite_settle_plain(conn, settles[i], now, &answers[i].behind, err);
        if (status != WEIR_OK && status != WEIR_ELOST && status != WEIR_ENOTFOUND) {
            return status;
        }
        answers[i].status = status;
    }
    return WEIR_OK;
}

weir_status weir__sqlite_turn(weir_store *base, store_settle *const *settles, size_t settles_count,
                              const store_lease_request *lease, store_lease_list *list,
                              weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };
    const bool leases = lease != NULL && lease->limit > 0;

    weir__leases_clear(list);
    if (settles_count == 0 && !leases) {
        return WEIR_OK;
    }
    weir_status status = WEIR_OK;
    turn_answer *answers = weir__calloc(settles_count + 1, sizeof *answers); /* may be none */
    int64_t *left = weir__calloc(settles_count + 1, sizeof *left);           /* with work */
    size_t left_count = 0;
    if (answers == NULL || left == NULL) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate %zu answers", settles_count);
        goto out;
    }
    status = weir__sqlite_hold_begin(s, leases ? SQLITE_TX_DURABLE : 0, &conn, &now, err);
    if (status != WEIR_OK) {
        goto out;
    }
    status = turn_in(conn, &now, settles, settles_count, answers, err);
    if (status == WEIR_OK && leases) {
        status = weir__sqlite_lease_in(conn, &now, lease, list, err);
    }
    for (size_t i = 0; i < settles_count; i++) {
        if (answers[i].behind) {
            left[left_count++] = settles[i]->target;
        }
    }
    const bool wake = !weir__leased_all(left, left_count, list);
    status = weir__sqlite_write_end(s, status, wake, err);
    if (status != WEIR_OK) {
        weir__leases_clear(list);
        goto out;
    }
    for (size_t i = 0; i < settles_count; i++) {
        settles[i]->status = answers[i].status;
        settles[i]->behind = answers[i].behind;
    }
out:
    weir__free(answers);
    weir__free(left);
    return status;
}
