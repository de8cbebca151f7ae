/* derive.c - keeps a target's row in step with its subscriptions; small tools of the targets side.
 *
 * INVARIANT  At the end of every transaction, behind, watermark, rank and priority of every target
 * are what weir__sqlite_target_derived computes. Leasing reads nothing else, so a target whose row
 * is wrong is either leased for nothing or never again.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/refusal.h"
#include "store/sqlite/derive_sql.h"
#include "store/sqlite/targets.h"

#include <stdlib.h>
#include <string.h>

/* ---- targets ------------------------------------------------------------------------------- */

/* Room for one more subscription; NULL: out of memory. Few targets have more than fit into the
 * struct. */
static sqlite_subscription *next_subscription(sqlite_target *t)
{
    if (t->subscriptions_count == t->capacity) {
        const size_t capacity = t->capacity * 2;
        sqlite_subscription *more = weir__calloc(capacity, sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        memcpy(more, t->subscriptions, t->subscriptions_count * sizeof *more);
        weir__free(t->many);
        t->many = more;
        t->subscriptions = more;
        t->capacity = capacity;
    }
    return &t->subscriptions[t->subscriptions_count++];
}

static void read_target(sqlite_cursor *cursor, sqlite_target *t)
{
    t->fence = weir__cursor_i64(cursor, 0);
    t->leased = weir__cursor_bool(cursor, 1);
    t->lost = weir__cursor_i64(cursor, 2);
    t->failed = weir__cursor_bool(cursor, 3);
    t->paused = weir__cursor_bool(cursor, 4);
    t->is = (store_derived){ .behind = weir__cursor_bool(cursor, 5),
                             .watermark = weir__cursor_i64(cursor, 6),
                             .priority = weir__cursor_i64(cursor, 7) };
    t->prioritized = !weir__cursor_null(cursor, 8);
    t->override = weir__cursor_i64(cursor, 8);
    t->sent_back = weir__cursor_bool(cursor, 9);
    t->has_work = weir__cursor_bool(cursor, 10);
}

weir_status weir__sqlite_target_load(sqlite_conn *conn, int64_t id, sqlite_target *t,
                                     weir_error *err)
{
    bool found = false;
    *t = (sqlite_target){ .id = id, .capacity = sizeof t->few / sizeof t->few[0] };
    t->subscriptions = t->few;
    sqlite_cursor cursor = weir__cursor_open(conn, sql_target_load, err);
    weir__cursor_bind_i64(&cursor, 1, id);
    while (weir__cursor_next(&cursor)) {
        if (!found) {
            read_target(&cursor, t);
            found = true;
        }
        if (weir__cursor_null(&cursor, 11)) {
            continue;
        }
        sqlite_subscription *s = next_subscription(t);
        if (s == NULL) {
            weir__cursor_fail(&cursor,
                              weir__fail(err, WEIR_ENOMEM, "could not allocate subscriptions"));
            break;
        }
        *s = (sqlite_subscription){ .reaction = weir__cursor_i64(&cursor, 11),
                                    .at = weir__cursor_i64(&cursor, 12),
                                    .mark = weir__cursor_i64(&cursor, 13),
                                    .priority = weir__cursor_i64(&cursor, 14),
                                    .retired = weir__cursor_bool(&cursor, 15) };
    }
    const weir_status status = weir__cursor_end(&cursor);
    return status == WEIR_OK && !found ? weir__target_unknown(id, err) : status;
}

void weir__sqlite_target_free(sqlite_target *t)
{
    weir__free(t->many);
    t->many = NULL;
}

store_derived weir__sqlite_target_derived(const sqlite_target *t)
{
    store_derived d = { .behind = t->sent_back };
    for (size_t i = 0; i < t->subscriptions_count; i++) {
        const sqlite_subscription *s = &t->subscriptions[i];
        if (!s->retired) {
            weir__derived_add(&d, s->at, s->mark, s->priority);
        }
    }
    d.priority = t->prioritized ? t->override : d.priority;
    return d;
}

bool weir__sqlite_derived_moves(const store_derived *is, const store_derived *should)
{
    return is->behind != should->behind || is->priority != should->priority ||
           is->watermark >> STORE_RANK_SHIFT != should->watermark >> STORE_RANK_SHIFT;
}

weir_status weir__sqlite_derive(sqlite_conn *conn, int64_t target, bool *behind, weir_error *err)
{
    sqlite_target t;
    weir_status status = weir__sqlite_target_load(conn, target, &t, err);
    if (status != WEIR_OK) {
        goto out;
    }
    const store_derived should = weir__sqlite_target_derived(&t);
    if (weir__sqlite_derived_moves(&t.is, &should)) {
        status = weir__sqlite_run_ints(conn, sql_derive_write,
                                       (int64_t[]){ target, should.behind, should.watermark,
                                                    should.watermark >> STORE_RANK_SHIFT,
                                                    should.priority },
                                       5, err);
    } else if (t.is.watermark != should.watermark) {
        status = weir__sqlite_run_ints(conn, sql_derive_watermark,
                                       (int64_t[]){ target, should.watermark }, 2, err);
    }
    if (status == WEIR_OK && behind != NULL) {
        *behind = should.behind;
    }
out:
    weir__sqlite_target_free(&t);
    return status;
}

/* ---- tools --------------------------------------------------------------------------------- */

weir_status weir__sqlite_ids_add(sqlite_ids *ids, int64_t id, weir_error *err)
{
    if (!weir__buffer_add(&ids->bytes, &id, sizeof id)) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a list of %zu ids",
                          weir__sqlite_ids_count(ids) + 1);
    }
    return WEIR_OK;
}

int64_t weir__sqlite_ids_get(const sqlite_ids *ids, size_t index)
{
    int64_t id = 0;
    memcpy(&id, ids->bytes.ptr + index * sizeof id, sizeof id);
    return id;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t left = 0, right = 0;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

void weir__sqlite_ids_sort(sqlite_ids *ids)
{
    const size_t count = weir__sqlite_ids_count(ids);
    if (count < 2) {
        return;
    }
    qsort(ids->bytes.ptr, count, sizeof(int64_t), compare_ids);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        const int64_t id = weir__sqlite_ids_get(ids, i);
        if (id != weir__sqlite_ids_get(ids, kept - 1)) {
            memcpy(ids->bytes.ptr + kept * sizeof id, &id, sizeof id);
            kept++;
        }
    }
    ids->bytes.len = kept * sizeof(int64_t);
}
