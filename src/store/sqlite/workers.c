/* workers.c - who works on the store: one row for each process, written at every beat.
 *
 * INVARIANT  The rows are a hint. Nothing is decided by them and a beat is not synced, so what they
 * say may be lost with the power, alone.
 */
#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "store/sqlite/targets.h"
#include "store/sqlite/workers_sql.h"

/* ---- beating ------------------------------------------------------------------------------- */

static bool encode_lanes(const store_worker *worker, weir_buffer *out)
{
    bool ok = weir__buffer_add_text(out, "[");
    for (size_t i = 0; i < worker->lanes_count && ok; i++) {
        ok = (i == 0 || weir__buffer_add_text(out, ",")) &&
             weir__json_write_string(out, worker->lanes[i]);
    }
    return ok && weir__buffer_add_text(out, "]");
}

static bool encode_known(const store_worker *worker, weir_buffer *out)
{
    bool ok = weir__buffer_add_text(out, "[");
    for (size_t i = 0; i < worker->known_count && ok; i++) {
        ok = (i == 0 || weir__buffer_add_text(out, ",")) &&
             weir__buffer_add_i64(out, worker->known[i].reaction) &&
             weir__buffer_add_text(out, ",") && weir__buffer_add_i64(out, worker->known[i].number);
    }
    return ok && weir__buffer_add_text(out, "]");
}

/* What a beat writes, with the lists as the table keeps them. */
typedef struct beat {
    const store_worker *worker;
    weir_buffer lanes, known;
    sqlite_times now;
    int64_t until_us; /* of the machine's clock */
} beat;

static weir_status write_row(sqlite_conn *conn, const char *sql, const beat *b, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql, err);
    weir__cursor_bind_text(&cursor, 1, b->worker->name);
    weir__cursor_bind_text(&cursor, 2, b->worker->host);
    weir__cursor_bind_i64(&cursor, 3, b->worker->pid);
    weir__cursor_bind_text(&cursor, 4, (weir_str){ b->lanes.ptr, b->lanes.len });
    weir__cursor_bind_text(&cursor, 5, (weir_str){ b->known.ptr, b->known.len });
    weir__cursor_bind_i64(&cursor, 6, b->worker->draining ? 1 : 0);
    weir__cursor_bind_i64(&cursor, 7, b->now.store_us);
    weir__cursor_bind_i64(&cursor, 8, b->until_us);
    weir__cursor_bind_text(&cursor, 9, b->worker->metrics);
    if (sqlite3_bind_parameter_count(cursor.stmt) >= 10) {
        weir__cursor_bind_i64(&cursor, 10, b->now.machine_us - STORE_WORKER_KEPT_US);
    }
    return weir__cursor_run(&cursor);
}

static weir_status beat_renew(sqlite_conn *conn, const beat *b, weir_error *err)
{
    const weir_status status = write_row(conn, sql_worker_renew, b, err);
    return status == WEIR_OK && sqlite3_changes64(conn->db) == 0
               ? write_row(conn, sql_worker_insert, b, err)
               : status;
}

static weir_status beat_gone(sqlite_conn *conn, weir_str name, weir_error *err)
{
    sqlite_cursor cursor = weir__cursor_open(conn, sql_worker_gone, err);
    weir__cursor_bind_text(&cursor, 1, name);
    return weir__cursor_run(&cursor);
}

weir_status weir__sqlite_worker_beat(weir_store *base, const store_worker *worker, int64_t lease_us,
                                     weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    beat b = { .worker = worker };
    weir_status status = WEIR_OK;

    if (!encode_lanes(worker, &b.lanes) || !encode_known(worker, &b.known)) {
        status = weir__fail(err, WEIR_ENOMEM, "could not allocate a worker's lists");
        goto out;
    }
    status = weir__sqlite_hold_begin(s, SQLITE_TX_HINT, &conn, &b.now, err);
    if (status != WEIR_OK) {
        goto out;
    }
    b.until_us = weir__time_later(b.now.machine_us, lease_us);
    status = lease_us != 0 ? beat_renew(conn, &b, err) : beat_gone(conn, worker->name, err);
    if (status == WEIR_OK) {
        const int64_t which[] = { b.now.machine_us - STORE_WORKER_KEPT_US,
                                  STORE_WORKERS_FORGOTTEN_MAX };
        status = weir__sqlite_run_ints(conn, sql_workers_forget, which, 2, err);
    }
    status = weir__sqlite_write_end(s, status, false, err);
out:
    weir__buffer_free(&b.lanes);
    weir__buffer_free(&b.known);
    return status;
}

/* ---- listing ------------------------------------------------------------------------------- */

static size_t count_elements(weir_str array)
{
    size_t count = 0;
    for (weir_json_members it = weir__json_elements(array); weir__json_elements_next(&it);) {
        count++;
    }
    return count;
}

static weir_status decode_lanes(weir_str array, weir_arena *arena, store_worker *out,
                                weir_error *err)
{
    const size_t count = count_elements(array);
    weir_buffer name = { 0 };
    weir_str *lanes = weir__arena_alloc(arena, (count + 1) * sizeof *lanes);
    size_t done = 0;

    for (weir_json_members it = weir__json_elements(array);
         lanes != NULL && weir__json_elements_next(&it); done++) {
        weir__buffer_clear(&name);
        char *copy = NULL;
        if (weir__json_string_decode(it.value, &name)) {
            copy = weir__arena_copy(arena, name.len == 0 ? "" : name.ptr, name.len);
        }
        if (copy == NULL) {
            break;
        }
        lanes[done] = (weir_str){ .ptr = copy, .len = name.len };
    }
    weir__buffer_free(&name);
    out->lanes = lanes;
    out->lanes_count = count;
    return lanes != NULL && done == count
               ? WEIR_OK
               : weir__fail(err, WEIR_ENOMEM, "could not copy a worker's lanes");
}

static weir_status decode_known(weir_str array, weir_arena *arena, store_worker *out,
                                weir_error *err)
{
    const size_t count = count_elements(array) / 2;
    weir_json_members it = weir__json_elements(array);
    store_known_reaction *known = weir__arena_alloc(arena, (count + 1) * sizeof *known);

    if (known == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not copy a worker's reactions");
    }
    for (size_t i = 0; i < count; i++) {
        bool ok = weir__json_elements_next(&it) && weir__str_to_i64(it.value, &known[i].reaction);
        ok = ok && weir__json_elements_next(&it) && weir__str_to_i64(it.value, &known[i].number);
        if (!ok) {
            return weir__fail(err, WEIR_ECORRUPT, "worker %lld has unreadable reactions",
                              (long long)out->id);
        }
    }
    out->known = known;
    out->known_count = count;
    return WEIR_OK;
}

static weir_status read_worker(sqlite_cursor *cursor, const sqlite_times *now, weir_arena *arena,
                               store_worker *out)
{
    *out = (store_worker){ .id = weir__cursor_i64(cursor, 0),
                           .name = weir__cursor_copy(cursor, 1, arena),
                           .host = weir__cursor_copy(cursor, 2, arena),
                           .pid = weir__cursor_i64(cursor, 3),
                           .since_us = weir__cursor_i64(cursor, 6),
                           .until_us = weir__sqlite_held_until(now, weir__cursor_i64(cursor, 7)),
                           .draining = weir__cursor_bool(cursor, 8),
                           .holds = weir__cursor_i64(cursor, 9),
                           .metrics = weir__cursor_copy(cursor, 10, arena) };
    const weir_status status = decode_lanes(weir__cursor_text(cursor, 4), arena, out, cursor->err);
    return status == WEIR_OK ? decode_known(weir__cursor_text(cursor, 5), arena, out, cursor->err)
                             : status;
}

static weir_status workers_in(sqlite_conn *conn, const sqlite_times *now, store_worker_list *list,
                              weir_error *err)
{
    weir_buffer found = { 0 };
    sqlite_cursor cursor = weir__cursor_open(conn, sql_workers_list, err);
    weir__cursor_bind_i64(&cursor, 1, now->machine_us - STORE_WORKER_KEPT_US);
    weir__cursor_bind_i64(&cursor, 2, now->machine_us);
    weir__cursor_bind_i64(&cursor, 3, list->count_holds ? 1 : 0);
    while (weir__cursor_next(&cursor)) {
        store_worker worker = { 0 };
        weir__cursor_fail(&cursor, read_worker(&cursor, now, &list->arena, &worker));
        weir__cursor_collect(&cursor, &found, &worker, sizeof worker);
    }
    return weir__cursor_keep(&cursor, &found, sizeof *list->workers, &list->arena, &list->workers,
                             &list->workers_count);
}

weir_status weir__sqlite_workers(weir_store *base, store_worker_list *list, weir_error *err)
{
    sqlite_store *s = (sqlite_store *)base;
    sqlite_conn *conn = NULL;
    sqlite_times now = { 0 };

    weir__arena_reset(&list->arena);
    list->workers = NULL;
    list->workers_count = 0;
    weir_status status = weir__sqlite_read_begin(s, &conn, err);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir__sqlite_read_times(s, conn, &now, err);
    if (status == WEIR_OK) {
        status = workers_in(conn, &now, list, err);
    }
    weir__sqlite_read_end(s, conn);
    return status;
}
